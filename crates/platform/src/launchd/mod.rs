//! macOS's service manager: its commands, its jobs, and the property lists that describe them.
//!
//! Everything of ours is a *user* agent in the `gui/UID` domain; a plist in `/Library/LaunchAgents` or the `system`
//! domain would need root and does not reach the user's own Ollama.

pub mod adoption;
pub mod daemon_agent;
pub mod env_agent;
pub mod job;
pub mod job_env;
pub mod launchctl;
pub(crate) mod property_list;

use crate::machine::Machine;
use stablehand_engine::plan::{Again, StepFailure};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

/// Folder of the user's launchd agents.
pub fn launch_agents_dir(machine: &Machine) -> PathBuf {
    machine.home().join("Library/LaunchAgents")
}

/// Where the plist of a label lies: launchd wants the file named after the label.
pub fn plist_of(machine: &Machine, label: &str) -> PathBuf {
    launch_agents_dir(machine).join(format!("{label}.plist"))
}

/// Whether agents that we write would be loaded at all: launchd wants them to belong to the user whose home it is, and
/// `sudo` keeps that home while it writes as root.
///
/// # Errors
/// A [`StepFailure`] when the home belongs to somebody else; nothing was changed then.
pub(crate) fn check_home(machine: &Machine) -> Result<(), StepFailure> {
    let home = machine.home();
    if fs::metadata(home).map_or(true, |about| about.uid() == machine.uid()) {
        return Ok(());
    }
    Err(StepFailure {
        code: "home-of-another-user",
        message: format!(
            "{} belongs to another user, and launchd would refuse agents that this one writes there; nothing was changed",
            home.display()
        ),
        hint: "run it without sudo, as the user who runs Ollama".to_owned(),
        again: Again::Never,
    })
}
