//! Faults of the app and the server.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use rustix::process::Signal;
use serde_json::json;

use super::{Fault, machine, macos_only};
use crate::app::settings;
use crate::commands::{codesign, xattr};
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

const QUARANTINE: &str = "com.apple.quarantine";

/// Marks the app as Homebrew does after an upgrade.
pub fn quarantine(world: &World) -> Result<String> {
    let bundle = bundle(world)?;
    mark_by_homebrew(world, &bundle)?;
    notes::raise(world, Fault::AppQuarantined, &json!({}))?;
    Ok(format!("{} is in quarantine", bundle.display()))
}

/// Marks everything in a bundle as downloaded by Homebrew and never opened.
pub fn mark_by_homebrew(world: &World, bundle: &Path) -> Result<()> {
    let seconds = world.clock.wall_ms() / 1000;
    let value = format!("0181;{seconds:x};Homebrew\\x20Cask;5B0E6C1A-3D7F-4E42-9C58-A1F0D27B6E93");
    xattr::set_below(bundle, QUARANTINE, &value).context("the app cannot be marked")
}

/// Takes the mark away.
pub fn release(world: &World) -> Result<()> {
    xattr::remove_below(&bundle(world)?, QUARANTINE).context("the app's mark cannot be removed")
}

/// Gives the app another signature, a broken one or none.
pub fn change_signature(world: &World, fault: Fault) -> Result<String> {
    let bundle = bundle(world)?;
    let version = layout::version_of_bundle(&bundle).unwrap_or_else(|| world.marker.ollama.clone());
    let seal = bundle.join(layout::SEAL);
    let said = if fault == Fault::AppSignedByOthers {
        layout::seal(&bundle, &version, Some(codesign::OTHER))?;
        "is signed by another team"
    } else if fault == Fault::AppUnsigned {
        std::fs::remove_dir_all(seal.parent().unwrap_or(&seal))?;
        "is not signed"
    } else {
        std::fs::remove_file(&seal)?;
        "has a broken seal"
    };
    notes::raise(world, fault, &json!({}))?;
    Ok(format!("{} {said}", bundle.display()))
}

/// Gives the app the signature of Ollama's developer again.
pub fn sign_again(world: &World) -> Result<()> {
    let bundle = bundle(world)?;
    let version = layout::version_of_bundle(&bundle).unwrap_or_else(|| world.marker.ollama.clone());
    layout::seal(&bundle, &version, None)
}

fn bundle(world: &World) -> Result<PathBuf> {
    macos_only(world)?;
    let bundle = world.path("/Applications/Ollama.app");
    if !bundle.is_dir() {
        bail!("there is no {}; nothing was changed", bundle.display());
    }
    Ok(bundle)
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
