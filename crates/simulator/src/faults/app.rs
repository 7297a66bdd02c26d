//! Faults of the app and the server.

use anyhow::{Result, bail};
use rustix::process::Signal;
use serde_json::json;

use super::{Fault, machine, macos_only};
use crate::app::settings;
use crate::process_table::Process;
use crate::world::{Os, Owner, World, layout, notes};

/// Kills the app; its server stays.
pub fn orphan_serve(world: &World) -> Result<String> {
    macos_only(world)?;
    let guis = machine::pids(world, Process::is_gui);
    if guis.is_empty() {
        bail!("the app is not running; nothing was changed");
    }
    machine::end(&guis, Signal::KILL)?;
    let servers = machine::pids(world, Process::is_serve);
    if servers.is_empty() {
        bail!("the server was not running when the app was killed");
    }
    Ok(format!("the app was killed; its server {} holds the port", servers[0]))
}

/// From now on the server ends at each start.
pub fn crash_loop(world: &World) -> Result<String> {
    notes::raise(world, Fault::CrashLoop, &json!({}))?;
    machine::end(&machine::pids(world, Process::is_serve), Signal::TERM)?;
    Ok("the server was ended and crashes at each start from now on".to_owned())
}

/// Changes a setting of the app, which restarts its server.
pub fn override_setting(world: &World, fault: Fault, column: &'static str, value: i64) -> Result<String> {
    macos_only(world)?;
    if notes::owner(world) != Owner::App {
        bail!("Ollama.app is not the owner here; nothing was changed");
    }
    settings::set(world, column, value)?;
    notes::raise(world, fault, &json!({}))?;
    restart_server(world)?;
    Ok(format!("the app's setting {column} is {value}; its server was restarted"))
}

/// The log goes away and cannot be written.
pub fn lose_log(world: &World) -> Result<String> {
    notes::raise(world, Fault::ConfigLineMissing, &json!({}))?;
    match world.marker.os {
        Os::Macos => {
            for file in [world.home().join(".ollama/logs/server.log"), world.path("/opt/homebrew/var/log/ollama.log")] {
                let _ = std::fs::remove_file(file);
            }
        }
        Os::Linux => {
            let _ = std::fs::remove_dir_all(world.state("journal"));
        }
    }
    Ok("the server's log is gone".to_owned())
}

/// From now on the server logs as in early 2025.
pub fn old_log_format(world: &World) -> Result<String> {
    notes::raise(world, Fault::BadLogFormat2025, &json!({}))?;
    if notes::owner(world) == Owner::Manual {
        return Ok("the server logs in the old format from its next start on".to_owned());
    }
    restart_server(world)?;
    Ok("the server was restarted and logs in the old format".to_owned())
}

/// A second copy of the app and a Homebrew service.
pub fn two_ollamas(world: &World) -> Result<String> {
    macos_only(world)?;
    if notes::owner(world) != Owner::App {
        bail!("Ollama.app is not the owner here; nothing was changed");
    }
    let version = &world.marker.ollama;
    let second = world.path("/Applications/Ollama 2.app");
    if !second.exists() {
        layout::install_bundle(world, &second, version)?;
    }
    layout::install_brew(world, version)?;
    let (label, file) = layout::brew_plist(world);
    let uid = rustix::process::getuid().as_raw();
    machine::launchctl(world, &["bootstrap", &format!("gui/{uid}"), &file.display().to_string()])?;
    machine::open_app(world, &second, true)?;
    let second_runs = machine::wait_until(machine::LIMIT, || {
        let guis = machine::pids(world, |process| process.is_gui() && process.executable.starts_with(&second));
        !guis.is_empty() && machine::pids(world, Process::is_gui).len() == guis.len()
    });
    if !second_runs {
        bail!("the second app did not take over");
    }
    Ok(format!("{} runs in place of the first app, and {label} wants the port", second.display()))
}

/// Ends the server alone; its keeper starts it again.
fn restart_server(world: &World) -> Result<()> {
    let before = machine::pids(world, Process::is_serve);
    machine::end(&before, Signal::TERM)?;
    if machine::wait_for_server(world, machine::LIMIT) { Ok(()) } else { bail!("the server did not come back") }
}
