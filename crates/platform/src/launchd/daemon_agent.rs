//! The agent that keeps the daemon running: `~/Library/LaunchAgents/dev.stablehand.daemon.plist`.

use super::env_agent::PLIST_MODE;
use super::plist_of;
use super::property_list::PropertyList;
use crate::change::Change;
use crate::files;
use crate::machine::Machine;
use crate::paths;
use plist::Value;
use stablehand_engine::plan::{Again, StepFailure};
use std::path::{Path, PathBuf};

/// Its label.
pub const LABEL: &str = "dev.stablehand.daemon";

const TEMPLATE: &str = include_str!("../../../../launchd/dev.stablehand.daemon.plist");

/// Where the file lies.
pub fn path(machine: &Machine) -> PathBuf {
    plist_of(machine, LABEL)
}

/// The changes that make launchd keep this program running as the daemon.
///
/// # Errors
/// A [`StepFailure`] when the present file cannot be read.
pub fn install(machine: &Machine, program: &Path) -> Result<Vec<Change>, StepFailure> {
    let path = path(machine);
    let contents = contents(machine, program).map_err(|why| StepFailure {
        code: "daemon-plist-not-written",
        message: format!("{} could not be made: {why}; nothing was changed", path.display()),
        hint: "install Stablehand again".to_owned(),
        again: Again::Never,
    })?;
    let before = files::read(&path)?;
    let mut changes = vec![Change::Folder { path: paths::stablehand_files(machine).log_dir, mode: 0o755 }];
    if before.is_some() {
        // A loaded job goes on with the description it was loaded from.
        changes.push(Change::Unload { label: LABEL.to_owned() });
    }
    if before.as_deref() != Some(contents.as_slice()) {
        changes.push(Change::Write { path: path.clone(), mode: PLIST_MODE, contents, before });
    }
    changes.push(Change::Load { label: LABEL.to_owned(), plist: path });
    Ok(changes)
}

/// The changes that take it away again: the file first, because the daemon itself may carry them out, and what comes
/// after the end of its own job is never done.
pub fn uninstall(machine: &Machine) -> Vec<Change> {
    vec![Change::Remove { path: path(machine) }, Change::Unload { label: LABEL.to_owned() }]
}

fn contents(machine: &Machine, program: &Path) -> Result<Vec<u8>, String> {
    let told = |error: super::property_list::PropertyListError| error.to_string();
    let mut list = PropertyList::parse(Path::new(LABEL), TEMPLATE.as_bytes()).map_err(told)?;
    let log = paths::stablehand_files(machine).log_dir.join("daemon.log");
    let text = |path: &Path| Value::String(path.to_string_lossy().into_owned());
    let arguments = vec![text(program), Value::String("serve".to_owned())];
    list.top.insert("ProgramArguments".to_owned(), Value::Array(arguments));
    list.top.insert("StandardOutPath".to_owned(), text(&log));
    list.top.insert("StandardErrorPath".to_owned(), text(&log));
    list.bytes().map_err(told)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::world_folder;

    #[test]
    fn the_daemon_is_kept_alive_and_never_told_of_a_world() {
        let (_dir, machine) = world_folder("macos");
        let changes = install(&machine, Path::new("/opt/stablehand")).unwrap();
        let [Change::Folder { .. }, Change::Write { contents, mode, .. }, Change::Load { label, plist }] = &changes[..]
        else {
            panic!("{changes:?}")
        };
        assert_eq!((label.as_str(), *mode), (LABEL, 0o644));
        assert_eq!(plist, &path(&machine));
        let list = PropertyList::parse(plist, contents).unwrap();
        assert_eq!(list.arguments(), ["/opt/stablehand", "serve"]);
        assert!(list.keeps_alive());
        let belongs_to = list.top.get("AssociatedBundleIdentifiers").and_then(Value::as_array).unwrap();
        assert_eq!(belongs_to, &[Value::String("dev.stablehand".to_owned())]);
        assert_eq!(list.text("ProcessType"), Some("Standard"));
        let log = machine.home().join("Library/Logs/dev.stablehand/daemon.log");
        assert_eq!(list.text("StandardErrorPath"), log.to_str());
        assert!(!String::from_utf8_lossy(contents).contains("STABLEHAND_WORLD"));
    }

    #[test]
    fn a_second_install_takes_the_old_job_out_first() {
        let (_dir, machine) = world_folder("macos");
        let contents = contents(&machine, Path::new("/opt/stablehand")).unwrap();
        files::write_atomically(&machine, &path(&machine), &contents, 0o644).unwrap();
        let changes = install(&machine, Path::new("/opt/stablehand")).unwrap();
        assert!(matches!(&changes[1..], [Change::Unload { .. }, Change::Load { .. }]), "{changes:?}");
    }
}
