//! The address that a unit's start alone is given while the gateway stands in its server's place: a drop-in of its
//! own, in the folder of the running system. It is gone after the next boot (for a unit of the user's: after the last
//! logout), so that a server that nobody looks after yet listens where its clients expect it.

use super::drop_in::tool;
use super::systemctl::{self, Action};
use crate::change::Change;
use crate::command::Invocation;
use crate::files;
use crate::machine::Machine;
use crate::paths::stablehand_files;
use stablehand_engine::owner::Scope;
use stablehand_engine::plan::{ADDRESS, StepFailure, moved_address};
use std::path::{Path, PathBuf};

/// Its name. `_` sorts behind the `.` of our other drop-in, which may set the address that clients use.
pub const FILE_NAME: &str = "zz-stablehand_gateway.conf";

/// Where it lies.
pub fn path(machine: &Machine, scope: Scope, unit: &str) -> PathBuf {
    let units = match scope {
        Scope::System => machine.at("/run/systemd/system"),
        Scope::User => runtime(machine).join("systemd/user"),
    };
    units.join(format!("{unit}.d")).join(FILE_NAME)
}

/// Whether a unit's start is given a moved address by a file of ours.
pub fn is_written(machine: &Machine, scope: Scope, unit: &str) -> bool {
    path(machine, scope, unit).exists()
}

/// What makes the unit's next start listen on this port of 127.0.0.1, or on its own again; nothing when it does.
///
/// # Errors
/// A [`StepFailure`] when a file is there that cannot be read.
pub fn changes(machine: &Machine, scope: Scope, unit: &str, moved: Option<u16>) -> Result<Vec<Change>, StepFailure> {
    systemctl::check_name(unit)?;
    let path = path(machine, scope, unit);
    let before = files::read(&path)?;
    let after = moved.map(|port| contents(port).into_bytes());
    if before == after {
        return Ok(Vec::new());
    }
    let mut changes = if scope == Scope::User || machine.uid() == 0 {
        vec![match after {
            Some(contents) => Change::Write { path, mode: 0o644, contents, before },
            None => Change::Remove { path },
        }]
    } else {
        with_rights(machine, unit, &path, after)?
    };
    changes.push(Change::Run(systemctl::act_invocation(machine, scope, Action::DaemonReload)));
    Ok(changes)
}

fn with_rights(
    machine: &Machine,
    unit: &str,
    path: &Path,
    contents: Option<Vec<u8>>,
) -> Result<Vec<Change>, StepFailure> {
    let rights = |invocation| Change::Run(systemctl::with_rights(machine, Scope::System, invocation));
    let Some(contents) = contents else {
        return Ok(vec![rights(Invocation::new(tool(machine, "/usr/bin/rm")).args(["-f", "--"]).arg(path))]);
    };
    let staged = stablehand_files(machine).data_dir.join(format!("{unit}.{FILE_NAME}"));
    let install = Invocation::new(tool(machine, "/usr/bin/install"))
        .args(["-D", "-m", "0644", "--"])
        .args([staged.as_path(), path]);
    let before = files::read(&staged)?;
    Ok(vec![
        Change::Write { path: staged.clone(), mode: 0o600, contents, before },
        rights(install),
        Change::Remove { path: staged },
    ])
}

fn contents(port: u16) -> String {
    format!(
        "# Stablehand's gateway stands in this server's place. `stablehand gateway off` takes this file away; so does \
         the next boot.\n[Service]\nEnvironment={ADDRESS}={}\n",
        moved_address(port)
    )
}

/// The user's runtime folder.
fn runtime(machine: &Machine) -> PathBuf {
    let named = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|dir| dir.is_absolute());
    match named {
        Some(dir) if machine.simulated().is_none() => dir,
        Some(_) | None => machine.at(&format!("/run/user/{}", machine.uid())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::linux::drop_in;
    use crate::linux::playing::Player;

    #[tokio::test]
    async fn the_address_comes_and_goes_and_sorts_behind_the_values() {
        assert!(FILE_NAME > drop_in::FILE_NAME);
        let player = Player::new();
        let machine = &player.machine;
        let unit = "ollama.service";
        for scope in [Scope::User, Scope::System] {
            assert_eq!(changes(machine, scope, unit, None).unwrap(), []);
            crate::linux::carry_out(machine, &changes(machine, scope, unit, Some(11435)).unwrap()).await.unwrap();
            let text = std::fs::read_to_string(path(machine, scope, unit)).unwrap();
            assert!(text.ends_with("[Service]\nEnvironment=OLLAMA_HOST=127.0.0.1:11435\n"), "{text}");
            assert!(is_written(machine, scope, unit));
            assert_eq!(changes(machine, scope, unit, Some(11435)).unwrap(), []);
            crate::linux::carry_out(machine, &changes(machine, scope, unit, None).unwrap()).await.unwrap();
            assert!(!is_written(machine, scope, unit));
        }
        assert!(player.calls().iter().any(|call| call.ends_with("--user daemon-reload")), "{:?}", player.calls());
        assert_eq!(changes(machine, Scope::User, "../x", Some(1)).unwrap_err().code, "unit-name");
    }
}
