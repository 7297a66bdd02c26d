//! Where a server's log is.

use crate::launchd::property_list::PropertyList;
use crate::linux;
use crate::machine::Machine;
use stablehand_engine::owner::{AgentKind, Owner, Scope};
use std::path::{Path, PathBuf};

/// Where the lines of a server go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogSource {
    /// A file that is written at its end and may be exchanged for a new one.
    File(PathBuf),
    /// The journal of a unit.
    Journal {
        /// Whose manager.
        scope: Scope,
        /// Its name.
        unit: String,
    },
    /// Nowhere that can be read, with the reason.
    Nowhere(String),
}

/// Where the server of this owner logs.
pub fn server_log(machine: &Machine, owner: &Owner) -> LogSource {
    match owner {
        // `app/server/server.go`; rotated to `server-1.log` and on at each start.
        Owner::App { .. } => LogSource::File(machine.home().join(".ollama/logs/server.log")),
        Owner::Brew { label, plist } | Owner::Agent(AgentKind::LaunchAgent { label, plist }) => job_log(label, plist),
        Owner::Manual { .. } => {
            LogSource::Nowhere("a server that was started by hand writes to its own terminal".to_owned())
        }
        Owner::Systemd { scope, unit } => LogSource::Journal { scope: *scope, unit: unit.clone() },
        Owner::Agent(AgentKind::UserUnit { unit } | AgentKind::NewUnit { unit, .. }) => {
            LogSource::Journal { scope: Scope::User, unit: unit.clone() }
        }
        Owner::Agent(AgentKind::Process { .. }) => LogSource::File(linux::own_process::log_file(machine)),
        Owner::Container { name } => {
            LogSource::Nowhere(format!("its log is in the container: docker logs {name}, or podman logs {name}"))
        }
    }
}

/// The server writes its log to standard error.
fn job_log(label: &str, plist: &Path) -> LogSource {
    match PropertyList::look(plist) {
        Ok(Some(list)) => match list.text("StandardErrorPath").or_else(|| list.text("StandardOutPath")) {
            Some(path) => LogSource::File(PathBuf::from(path)),
            None => LogSource::Nowhere(format!("the job {label} names no log file")),
        },
        Ok(None) => LogSource::Nowhere(format!("{} of the job {label} is missing", plist.display())),
        Err(error) => LogSource::Nowhere(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::world_folder;

    #[test]
    fn each_owner_has_its_own_place() {
        let (_dir, machine) = world_folder("macos");
        let plist = machine.home().join("homebrew.mxcl.ollama.plist");
        let text = "<plist version=\"1.0\"><dict><key>Label</key><string>x</string><key>StandardErrorPath</key>\
                    <string>/opt/homebrew/var/log/ollama.log</string></dict></plist>";
        std::fs::write(&plist, text).unwrap();
        let brew = |plist| Owner::Brew { label: "homebrew.mxcl.ollama".to_owned(), plist };
        assert_eq!(server_log(&machine, &brew(plist)), LogSource::File("/opt/homebrew/var/log/ollama.log".into()));
        assert!(matches!(server_log(&machine, &brew("/missing.plist".into())), LogSource::Nowhere(_)));
        let app = Owner::App { bundle: "/Applications/Ollama.app".into() };
        assert_eq!(server_log(&machine, &app), LogSource::File(machine.home().join(".ollama/logs/server.log")));
        let unit = Owner::Systemd { scope: Scope::System, unit: "ollama.service".to_owned() };
        assert_eq!(
            server_log(&machine, &unit),
            LogSource::Journal { scope: Scope::System, unit: "ollama.service".to_owned() }
        );
    }
}
