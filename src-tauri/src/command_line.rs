//! Running other programs: `stablehand` for what is installed and taken away, the service manager, the editor. Always
//! by absolute path and argv.

use crate::face::words::Words;
use crate::place::{Place, System};
use crate::service::Invocation;
use stablehand_protocol::face::SystemSettings;
use stablehand_protocol::{Ending, Event, Failure};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;
use tokio::process::Command;

const PROGRAM: &str = "stablehand";
/// Where it may lie when it is not beside us.
const USUAL_FOLDERS: [&str; 4] = ["/usr/local/bin", "/opt/homebrew/bin", "/usr/bin", "/bin"];
/// An install waits for launchd, which may take its time over a job that ends slowly.
const PATIENCE: Duration = Duration::from_secs(120);
/// Between two looks at a job that is ending.
const LOOK_AGAIN: Duration = Duration::from_millis(200);

/// Runs a verb of `stablehand` that answers with one result.
///
/// # Errors
/// A [`Failure`] when it cannot be found or run, or says so itself.
pub async fn stablehand(verb: &str, dry_run: bool, words: &Words) -> Result<Ending, Failure> {
    let mut arguments = vec![verb, "--json"];
    if dry_run {
        arguments.push("--dry-run");
    }
    let failed = |why: String| words.failure("cli-failed", &[("verb", verb), ("why", &why)]);
    let program = find(std::env::current_exe().ok().as_deref()).ok_or_else(|| {
        let own = std::env::current_exe().unwrap_or_default();
        let values = [("program", &*own.to_string_lossy()), ("places", &USUAL_FOLDERS.join(", "))];
        words.failure("cli-missing", &values)
    })?;
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).kill_on_drop(true);
    let output = match tokio::time::timeout(PATIENCE, command.output()).await {
        Ok(Ok(output)) => output,
        Ok(Err(error)) => return Err(failed(error.to_string())),
        Err(_) => return Err(failed(format!("no end within {} s", PATIENCE.as_secs()))),
    };
    ending(&output.stdout).ok_or_else(|| failed(last_line(&output.stderr, &output.status.to_string())))?
}

/// The result in what it printed, which is one event a line.
fn ending(stdout: &[u8]) -> Option<Result<Ending, Failure>> {
    let line = stdout.split(|byte| *byte == b'\n').rfind(|line| !line.is_empty())?;
    let Ok(Event::Result(ending)) = serde_json::from_slice(line) else { return None };
    Some(match ending.failure {
        Some(failure) => Err(failure),
        None => Ok(*ending),
    })
}

fn find(own: Option<&Path>) -> Option<PathBuf> {
    let beside = own.and_then(Path::parent).map(|folder| folder.join(PROGRAM));
    let usual = USUAL_FOLDERS.iter().map(|folder| Path::new(folder).join(PROGRAM));
    beside.into_iter().chain(usual).find(|path| path.is_file())
}

/// Runs these until one works.
///
/// # Errors
/// What each of them said, when none worked.
pub async fn first_of(invocations: &[Invocation]) -> Result<(), String> {
    let mut said = Vec::new();
    for Invocation { program, arguments } in invocations {
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::null()).kill_on_drop(true);
        match tokio::time::timeout(PATIENCE, command.output()).await {
            Ok(Ok(output)) if output.status.success() => return Ok(()),
            Ok(Ok(output)) => said.push(last_line(&output.stderr, &output.status.to_string())),
            Ok(Err(error)) => said.push(error.to_string()),
            Err(_) => said.push(format!("no end within {} s", PATIENCE.as_secs())),
        }
    }
    Err(said.join("; "))
}

/// Waits until this no longer succeeds.
///
/// # Errors
/// When it still does after the time that the daemon may take to finish its work.
pub async fn until_fails(invocation: &Invocation) -> Result<(), String> {
    let waited = async {
        while first_of(std::slice::from_ref(invocation)).await.is_ok() {
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    };
    tokio::time::timeout(PATIENCE, waited).await.map_err(|_| format!("no end within {} s", PATIENCE.as_secs()))
}

/// What opens a text file in the person's editor. That is always this computer's own, also for a simulated machine,
/// whose `open` shows nothing to anybody.
pub fn editor(path: &Path) -> Invocation {
    let path = path.to_string_lossy().into_owned();
    let system = if cfg!(target_os = "macos") { System::MacOs } else { System::Linux };
    match system {
        System::MacOs => Invocation { program: "/usr/bin/open".into(), arguments: vec!["-t".to_owned(), path] },
        System::Linux => Invocation { program: "/usr/bin/xdg-open".into(), arguments: vec![path] },
    }
}

/// What opens a page of the system's settings; Linux has no such pages. A simulated machine's is asked of its own
/// `open`.
pub fn system_settings(place: &Place, page: SystemSettings) -> Option<Invocation> {
    let address = match page {
        SystemSettings::AppManagement => "x-apple.systempreferences:com.apple.preference.security?Privacy_AppBundles",
    };
    match place.system {
        System::MacOs => {
            Some(Invocation { program: place.command("/usr/bin/open"), arguments: vec![address.to_owned()] })
        }
        System::Linux => None,
    }
}

fn last_line(text: &[u8], otherwise: &str) -> String {
    let text = String::from_utf8_lossy(text);
    text.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or(otherwise).trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_line_is_the_result() {
        let done = b"{\"event\":\"result\",\"outcome\":\"planned\",\"settings\":[],\"steps\":[\"write a\"]}\n";
        assert_eq!(ending(done).unwrap().unwrap().steps, ["write a"]);
        let failed = b"{\"event\":\"result\",\"outcome\":\"failed\",\"failure\":{\"code\":\"c\",\"message\":\"m\",\"hint\":\"\"}}\n";
        assert_eq!(ending(failed).unwrap().unwrap_err().code, "c");
        assert!(ending(b"something else\n").is_none() && ending(b"").is_none());
    }

    #[test]
    fn the_program_beside_ours_comes_first() {
        let dir = tempfile::tempdir().unwrap();
        let beside = dir.path().join(PROGRAM);
        std::fs::write(&beside, "").unwrap();
        assert_eq!(find(Some(&dir.path().join("stablehand-tray"))), Some(beside));
    }

    #[test]
    fn a_page_of_the_settings_is_opened_where_there_are_such_pages() {
        let dir = tempfile::tempdir().unwrap();
        for (os, opens) in [("macos", true), ("linux", false)] {
            let marker = format!(r#"{{"format":1,"os":"{os}","home":"/home/sim"}}"#);
            std::fs::write(dir.path().join("stablehand-world.json"), marker).unwrap();
            let place = Place::in_world(dir.path()).unwrap();
            let opening = system_settings(&place, SystemSettings::AppManagement);
            assert_eq!(opening.is_some(), opens, "{os}");
            if let Some(opening) = opening {
                assert!(opening.program.starts_with(dir.path().canonicalize().unwrap()));
                assert_eq!(
                    opening.arguments,
                    ["x-apple.systempreferences:com.apple.preference.security?Privacy_AppBundles"]
                );
            }
        }
    }
}
