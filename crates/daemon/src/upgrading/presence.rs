//! What lies in a slot: nothing, a whole version, or something else.

use stablehand_engine::upgrade::order::Switch;
use stablehand_engine::upgrade::resume::Presence;
use stablehand_platform::applications;
use stablehand_platform::command::{Invocation, run};
use stablehand_platform::machine::Machine;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The programs without which a bundle starts nothing.
const PROGRAMS: [&str; 2] = ["Contents/MacOS/Ollama", "Contents/Resources/ollama"];
/// A program says its version without a server within a moment.
const VERSION: Duration = Duration::from_secs(10);

/// Which kind of slot is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Checked {
    /// The place that is started.
    Place,
    /// A folder of ours.
    Slot,
}

/// What lies there.
pub(super) async fn of(machine: &Machine, switch: &Switch, path: &Path, slot: Checked) -> Presence {
    match fs::symlink_metadata(path) {
        Ok(_) => {}
        Err(error) if error.kind() == ErrorKind::NotFound => return Presence::Absent,
        Err(error) => return Presence::Unknown(error.to_string()),
    }
    match (switch, slot) {
        (Switch::Renames | Switch::Cask { .. }, _) => bundle(path),
        (Switch::Link, Checked::Slot) => program(machine, &program_in(path)).await,
        (Switch::Link, Checked::Place) | (Switch::Formula, _) => program(machine, path).await,
    }
}

/// The program in the folder of a version, as a release tarball holds it.
pub(super) fn program_in(folder: &Path) -> PathBuf {
    folder.join("bin/ollama")
}

fn bundle(path: &Path) -> Presence {
    for program in PROGRAMS {
        match fs::metadata(path.join(program)) {
            Ok(about) if about.is_file() && about.len() > 0 => {}
            Ok(_) => return Presence::Broken(format!("its {program} is no program")),
            Err(error) if error.kind() == ErrorKind::NotFound => {
                return Presence::Broken(format!("its {program} is missing"));
            }
            Err(error) => return Presence::Unknown(format!("{program}: {error}")),
        }
    }
    match applications::version(path) {
        Ok(version) => Presence::Whole(version),
        Err(reason) => Presence::Broken(reason),
    }
}

async fn program(machine: &Machine, path: &Path) -> Presence {
    match fs::metadata(path) {
        Ok(about) if about.is_file() && about.len() > 0 => {}
        Ok(_) => return Presence::Broken(format!("{} is no program", path.display())),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            return Presence::Broken(format!("{} is missing", path.display()));
        }
        Err(error) => return Presence::Unknown(error.to_string()),
    }
    match client_version(machine, path).await {
        Ok(version) => Presence::Whole(version),
        Err(reason) => Presence::Broken(reason),
    }
}

/// The version of a program, without asking a server (`ollama --version`, `cmd/cmd.go versionHandler`).
///
/// # Errors
/// Why it could not be had.
pub(super) async fn client_version(machine: &Machine, program: &Path) -> Result<String, String> {
    // Nobody listens on the discard port, so that it tells its own version and no server's.
    let asked = Invocation::new(program).bare_environment().env("OLLAMA_HOST", "127.0.0.1:9").arg("--version");
    let output = run(machine, &asked.timeout(VERSION)).await.map_err(|error| error.to_string())?;
    let said = [output.stdout.as_str(), output.stderr.as_str()].join("\n");
    said_version(&said).ok_or_else(|| format!("{} tells no version: {}", program.display(), output.said()))
}

/// `Warning: client version is 0.24.0` where no server answers or it is another version; else `ollama version is 0.24.0`.
fn said_version(said: &str) -> Option<String> {
    let after = |words: &str| said.lines().find_map(|line| line.trim().strip_prefix(words));
    let version = after("Warning: client version is ").or_else(|| after("ollama version is "))?;
    Some(version.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_tells_its_own_version_and_not_the_servers() {
        let alone = "Warning: could not connect to a running Ollama instance\nWarning: client version is 0.24.0\n";
        assert_eq!(said_version(alone).as_deref(), Some("0.24.0"));
        let both = "ollama version is 0.22.1\nWarning: client version is 0.24.0\n";
        assert_eq!(said_version(both).as_deref(), Some("0.24.0"));
        assert_eq!(said_version("ollama version is 0.24.0\n").as_deref(), Some("0.24.0"));
        assert_eq!(said_version("command not found"), None);
    }
}
