//! Apps and loose programs, started as children of launchd.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::rc::Rc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::process::Command;

use super::Shared;
use super::jobs::output;
use crate::faults::Fault;
use crate::process_table;
use crate::wire::Reply;
use crate::world::notes;

/// One call of `open -a`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Opening {
    /// The bundle.
    pub bundle: PathBuf,
    /// Arguments of the app.
    pub arguments: Vec<String>,
    /// Variables of the caller and of `--env`.
    pub environment: Vec<(String, String)>,
    /// `-n`: a new instance even if one runs.
    pub fresh: bool,
}

/// Opens an app: starts it, or activates the running one.
pub fn open(shared: &Shared, opening: Opening) -> Reply {
    let executable = executable(&opening.bundle);
    let refused = Reply::failed(
        1,
        format!(
            "_LSOpenURLsWithCompletionHandler() failed for the application {} with error -600.",
            opening.bundle.display()
        ),
    );
    {
        let state = shared.borrow();
        if state.shutting_down || !notes::console_in_use(&state.world) {
            return refused;
        }
        let running = process_table::of(&state.world).iter().any(|process| process.executable == executable);
        if running && !opening.fresh {
            return Reply::quiet();
        }
        if notes::consume(&state.world, Fault::Open600Twice) {
            return refused;
        }
        if notes::consume(&state.world, Fault::OpenActivatesDyingApp) {
            return Reply::quiet();
        }
        if !executable.is_file() {
            return Reply::failed(
                1,
                format!(
                    "The application cannot be opened because its executable is missing.\nThe application {} cannot be opened for an unexpected reason, error=-10827",
                    opening.bundle.display()
                ),
            );
        }
    }
    let session = shared.borrow().session.clone().into_iter().collect::<Vec<_>>();
    let environment: Vec<_> = session.into_iter().chain(opening.environment).collect();
    start(shared, &executable, &opening.arguments, &environment, None)
}

/// Starts a program that is neither app nor job.
pub fn spawn_program(shared: &Shared, arguments: &[String], environment: &[(String, String)], log: &Path) -> Reply {
    match arguments.split_first() {
        Some((program, rest)) => start(shared, Path::new(program), rest, environment, Some(log)),
        None => Reply::failed(64, "no program"),
    }
}

/// Waits until no GUI runs, then opens the app as the command line does, with
/// the session values of the moment this was asked.
pub fn resurrect(shared: &Shared) -> Reply {
    let values: Vec<(String, String)> = shared.borrow().session.clone().into_iter().collect();
    let shared = Rc::clone(shared);
    tokio::task::spawn_local(async move {
        let executable = shared.borrow().world.path("/Applications/Ollama.app/Contents/MacOS/Ollama");
        loop {
            let guis: Vec<i32> = process_table::of(&shared.borrow().world)
                .iter()
                .filter(|process| process.is_gui())
                .map(|process| process.pid)
                .collect();
            for pid in &guis {
                while process_table::is_alive(*pid) {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            }
            let state = shared.borrow();
            if !notes::is_raised(&state.world, Fault::CliResurrectsApp) || state.shutting_down {
                return;
            }
            if guis.is_empty() {
                break;
            }
        }
        notes::clear(&shared.borrow().world, Fault::CliResurrectsApp);
        start(&shared, &executable, &["--fast-startup".to_owned()], &values, None);
    });
    Reply::quiet()
}

/// The program file of a bundle.
pub fn executable(bundle: &Path) -> PathBuf {
    let name = plist::Value::from_file(bundle.join("Contents/Info.plist"))
        .ok()
        .and_then(|value| {
            let name = value.as_dictionary()?.get("CFBundleExecutable")?;
            name.as_string().map(str::to_owned)
        })
        .unwrap_or_else(|| "Ollama".to_owned());
    bundle.join("Contents/MacOS").join(name)
}

fn start(
    shared: &Shared,
    program: &Path,
    arguments: &[String],
    environment: &[(String, String)],
    log: Option<&Path>,
) -> Reply {
    let state = shared.borrow();
    let spawned = output(log).and_then(|stdout| {
        Command::new(program)
            .args(arguments)
            .env_clear()
            .envs(state.world.base_environment())
            .envs(environment.iter().cloned())
            .current_dir(&state.world.dir)
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(stdout)
            .stderr(output(log)?)
            .spawn()
    });
    match spawned {
        Ok(mut child) => {
            let pid = child.id().unwrap_or_default();
            tokio::task::spawn_local(async move {
                let _ = child.wait().await;
            });
            Reply::said(format!("{pid}\n"))
        }
        Err(error) => Reply::failed(1, format!("{}: {error}", program.display())),
    }
}
