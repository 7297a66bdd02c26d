//! Faults of the session: its variables, its agents, its screen.

use anyhow::{Result, bail};
use serde_json::json;

use super::{Fault, machine, macos_only};
use crate::systemd::Scope;
use crate::world::{Os, Owner, World, notes, write_whole};
use crate::{launchd, wire};

const BY_HAND: [(&str, &str); 3] =
    [("OLLAMA_NUM_PARALLEL", "7"), ("OLLAMA_MAX_LOADED_MODELS", "5"), ("OLLAMA_MAX_QUEUE", "99")];

/// Someone changes the values behind Stablehand's back and restarts Ollama.
pub fn changed_by_hand(world: &World) -> Result<String> {
    match world.marker.os {
        Os::Macos => {
            for (key, value) in BY_HAND {
                machine::launchctl(world, &["setenv", key, value])?;
            }
            machine::stop_ollama(world)?;
            machine::start_ollama(world)?;
        }
        Os::Linux => {
            let folder = unit_scope(world)?.folder(world).join("ollama.service.d");
            let ours = folder.join("zz-stablehand.conf");
            let file = if ours.exists() { ours } else { folder.join("override.conf") };
            edit_drop_in(world, &file)?;
        }
    }
    if !machine::wait_for_server(world, machine::LIMIT) {
        bail!("the values were set but Ollama does not answer");
    }
    Ok("someone set the values by hand and restarted Ollama".to_owned())
}

/// Someone writes a drop-in that beats Stablehand's.
pub fn later_drop_in(world: &World) -> Result<String> {
    if world.marker.os != Os::Linux {
        bail!("drop-ins exist on Linux only; nothing was changed");
    }
    let file = unit_scope(world)?.folder(world).join("ollama.service.d/zzz-local.conf");
    edit_drop_in(world, &file)?;
    if !machine::wait_for_server(world, machine::LIMIT) {
        bail!("the values were set but Ollama does not answer");
    }
    Ok(format!("someone wrote {} and restarted Ollama", file.display()))
}

/// The manager that has Ollama's unit.
fn unit_scope(world: &World) -> Result<Scope> {
    match notes::owner(world) {
        Owner::Systemd => Ok(Scope::System),
        Owner::UserUnit => Ok(Scope::User),
        Owner::App | Owner::Brew | Owner::Manual | Owner::Container | Owner::None => {
            bail!("Ollama has no unit in this world; nothing was changed")
        }
    }
}

fn edit_drop_in(world: &World, file: &std::path::Path) -> Result<()> {
    let lines: String = BY_HAND.iter().map(|(key, value)| format!("Environment=\"{key}={value}\"\n")).collect();
    write_whole(file, format!("[Service]\n{lines}").as_bytes())?;
    let scope = unit_scope(world)?;
    machine::systemctl(world, scope, &["daemon-reload"])?;
    machine::systemctl(world, scope, &["restart", "ollama"])
}

/// The person at the screen leaves.
pub fn nobody_at_the_screen(world: &World) -> Result<String> {
    macos_only(world)?;
    notes::raise(world, Fault::NoGuiSession, &json!({}))?;
    let _ = std::fs::remove_file(world.state("console"));
    Ok("nobody is at the screen".to_owned())
}

/// The background items are switched off, as in System Settings.
pub fn agents_disabled(world: &World) -> Result<String> {
    macos_only(world)?;
    notes::raise(world, Fault::AgentDisabled, &json!({}))?;
    let labels = own_labels(world);
    for label in &labels {
        let target = target(label);
        machine::launchctl(world, &["disable", &target])?;
        // A job that is not loaded needs no unloading.
        let _ = machine::launchctl(world, &["bootout", &target]);
        let gone = machine::wait_until(machine::LIMIT, || machine::launchctl(world, &["print", &target]).is_err());
        if !gone {
            bail!("{label} is disabled but does not unload");
        }
    }
    Ok(format!("disabled {}", labels.join(", ")))
}

/// The background items are switched on again.
pub fn agents_enabled(world: &World) -> Result<()> {
    for label in own_labels(world) {
        machine::launchctl(world, &["enable", &target(&label)])?;
    }
    Ok(())
}

/// The command line brings the app back with the values of this moment.
pub fn resurrect(world: &World) -> Result<String> {
    macos_only(world)?;
    notes::raise(world, Fault::CliResurrectsApp, &json!({}))?;
    wire::ask(world, launchd::SERVICE, &launchd::Request::Resurrect)?;
    Ok("the command line waits to open the app again".to_owned())
}

/// Logs out and in again; this time the app wins.
pub fn lose_login_race(world: &World) -> Result<String> {
    macos_only(world)?;
    wire::ask(world, launchd::SERVICE, &launchd::Request::Logout)?;
    wire::ask(world, launchd::SERVICE, &launchd::Request::Login { agents_first: false })?;
    if notes::owner(world) != Owner::None && !machine::wait_for_server(world, machine::LIMIT) {
        bail!("the user is logged in again but Ollama does not answer");
    }
    Ok("logged out and in again; the app started before the agents ran".to_owned())
}

fn target(label: &str) -> String {
    format!("gui/{}/{label}", rustix::process::getuid().as_raw())
}

/// Labels of Stablehand's agents: those on disk, and the one that publishes
/// the session's values in any case.
fn own_labels(world: &World) -> Vec<String> {
    let mut labels: Vec<String> = std::fs::read_dir(world.home().join("Library/LaunchAgents"))
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| {
            let name = entry.file_name().to_string_lossy().into_owned();
            name.strip_suffix(".plist").map(str::to_owned)
        })
        .filter(|label| label.starts_with("dev.stablehand."))
        .collect();
    let publisher = "dev.stablehand.ollama-env".to_owned();
    if !labels.contains(&publisher) {
        labels.push(publisher);
    }
    labels.sort();
    labels
}
