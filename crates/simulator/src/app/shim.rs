//! The login shim (`Squirrel background`): starts the GUI hidden and stays its
//! parent until it ends.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

use crate::world::World;

/// Runs the shim.
pub fn run(_world: &World) -> ExitCode {
    let executable = std::env::current_exe().unwrap_or_default();
    let Some(contents) =
        executable.ancestors().find(|folder| folder.file_name().is_some_and(|name| name == "Contents"))
    else {
        return ExitCode::from(78);
    };
    match start_gui(contents) {
        Ok(mut gui) => {
            let _ = gui.wait();
            ExitCode::SUCCESS
        }
        Err(_) => ExitCode::from(78),
    }
}

/// In a process group of its own: launchd ends what is left of a job's group.
fn start_gui(contents: &Path) -> std::io::Result<std::process::Child> {
    Command::new(contents.join("MacOS/Ollama")).arg("hidden").process_group(0).stdin(Stdio::null()).spawn()
}
