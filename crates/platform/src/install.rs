//! Installing and taking away Stablehand's own services.

use crate::change::Change;
use crate::command_link;
use crate::gateway_service;
use crate::launchd::{self, adoption, daemon_agent, env_agent, launchctl, plist_of};
use crate::linux;
use crate::machine::{Machine, Os};
use crate::paths::stablehand_files;
use crate::publish::PUBLISHED_AT;
use crate::survey::SERVER_LABEL;
use stablehand_engine::plan::StepFailure;
use std::path::Path;

/// The changes that make the service manager keep `program` running as the daemon.
///
/// # Errors
/// A [`StepFailure`] when a file is there that cannot be worked with; nothing was changed then.
pub fn install_changes(machine: &Machine, program: &Path) -> Result<Vec<Change>, StepFailure> {
    match machine.os() {
        Os::MacOs => {
            launchd::check_home(machine)?;
            let mut changes: Vec<_> = env_agent::run_at_login(machine, program)?.into_iter().collect();
            changes.extend(daemon_agent::install(machine, program)?);
            Ok(changes)
        }
        Os::Linux => linux::install::install_changes(machine, program),
    }
}

/// What a person should know after an install.
pub fn install_notes(machine: &Machine) -> Vec<String> {
    match machine.os() {
        Os::MacOs => Vec::new(),
        Os::Linux => linux::install::install_notes(machine),
    }
}

/// The changes that take away everything of ours but the config and the history, and put back what was adopted. The
/// running server goes on with the values it was started with.
///
/// # Errors
/// A [`StepFailure`] when a file is there that cannot be worked with; nothing was changed then.
pub fn uninstall_changes(machine: &Machine) -> Result<Vec<Change>, StepFailure> {
    // The daemon comes last, so these come first.
    let mut changes = command_link::uninstall(machine);
    let menu = stablehand_files(machine).menu_at_login;
    if menu.symlink_metadata().is_ok() {
        // A menu that runs goes on until it is quit: taking its job out of launchd would end it, and whatever it has
        // asked for, be it this.
        changes.push(Change::Remove { path: menu });
    }
    changes.extend(gateway_service::uninstall_changes(machine));
    changes.extend(match machine.os() {
        Os::MacOs => macos_uninstall(machine),
        Os::Linux => linux::install::uninstall_changes(machine)?,
    });
    Ok(changes)
}

fn macos_uninstall(machine: &Machine) -> Vec<Change> {
    let mut changes = Vec::new();
    if env_agent::path(machine).exists() {
        if let Some(values) = env_agent::persisted(machine).known() {
            let names = values.keys().map(|name| name.as_str()).chain([PUBLISHED_AT]);
            changes.extend(names.map(|name| Change::Run(launchctl::unsetenv(machine, name))));
        }
        changes.push(Change::Unload { label: env_agent::LABEL.to_owned() });
        changes.push(Change::Remove { path: env_agent::path(machine) });
    }
    // Only now: an adopted setter sets its values again as soon as it is loaded.
    changes.extend(adoption::restore(machine));
    let server = plist_of(machine, SERVER_LABEL);
    if server.exists() {
        changes.push(Change::Unload { label: SERVER_LABEL.to_owned() });
        changes.push(Change::Remove { path: server });
    }
    // The daemon last, and its file before its job: it may be the one that carries this out.
    if daemon_agent::path(machine).exists() {
        changes.extend(daemon_agent::uninstall(machine));
    }
    changes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::write_atomically;
    use crate::testing::world_folder;

    #[test]
    fn a_machine_without_anything_of_ours_needs_no_uninstall() {
        let (_dir, machine) = world_folder("macos");
        assert_eq!(uninstall_changes(&machine).unwrap(), []);
    }

    #[test]
    fn the_menu_starts_no_longer_at_login_after_an_uninstall() {
        for (os, below) in [
            ("macos", "Library/LaunchAgents/dev.stablehand.tray.plist"),
            ("linux", ".config/autostart/dev.stablehand.tray.desktop"),
        ] {
            let (_dir, machine) = world_folder(os);
            let path = machine.home().join(below);
            write_atomically(&machine, &path, b"x", 0o644).unwrap();
            assert_eq!(uninstall_changes(&machine).unwrap(), [Change::Remove { path }]);
        }
    }

    #[test]
    fn uninstalling_clears_the_session_puts_back_the_adopted_and_ends_the_daemon_last() {
        let (_dir, machine) = world_folder("macos");
        let put = |path: &Path, text: &str| write_atomically(&machine, path, text.as_bytes(), 0o644).unwrap();
        put(&env_agent::path(&machine), include_str!("../fixtures/env-agent.edited.plist"));
        put(&daemon_agent::path(&machine), "<plist version=\"1.0\"><dict/></plist>");
        let adopted = stablehand_files(&machine).data_dir.join("adopted/ai.ollama.envsetter.plist");
        put(&adopted, include_str!("../fixtures/hand-made-setter.plist"));
        let shown: Vec<_> = uninstall_changes(&machine).unwrap().iter().map(ToString::to_string).collect();
        let order = [
            "unsetenv OLLAMA_KEEP_ALIVE",
            "unsetenv OLLAMA_NUM_PARALLEL",
            "unsetenv STABLEHAND_PUBLISHED_AT",
            "take the job dev.stablehand.ollama-env out",
            "remove ",
            "move ",
            "load the job ai.ollama.envsetter",
            "remove ",
            "take the job dev.stablehand.daemon out",
        ];
        assert_eq!(shown.len(), order.len(), "{shown:#?}");
        for (line, wanted) in shown.iter().zip(order) {
            assert!(line.contains(wanted), "{line} / {wanted}");
        }
    }
}
