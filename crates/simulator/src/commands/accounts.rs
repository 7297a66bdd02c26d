//! Commands that act for another program or user: `osascript`, `pkexec`.

use std::os::unix::process::CommandExt;
use std::process::Command;

use crate::faults::Fault;
use crate::process_table::{self, Process};
use crate::wire::Reply;
use crate::world::{World, notes};

/// Set for programs that `pkexec` runs.
pub const AS_ROOT: &str = "STABLEHAND_SIM_ROOT";

/// `osascript -e …`: the app refuses to quit when asked by an Apple event.
pub fn osascript(world: &World, arguments: &[String]) -> Reply {
    let script = arguments.join(" ");
    let quits = script.contains("quit") && script.contains("Ollama");
    let runs = process_table::of(world).iter().any(Process::is_gui);
    if quits && runs {
        return Reply::failed(1, "21:25: execution error: Ollama got an error: User canceled. (-128)");
    }
    Reply::quiet()
}

/// `pkexec PROGRAM …`: runs it, unless the person at the dialog refuses.
pub fn pkexec(world: &World, arguments: &[String]) -> Reply {
    if notes::is_raised(world, Fault::PkexecRefused) {
        return Reply::failed(126, "Error executing command as another user: Request dismissed");
    }
    let arguments: Vec<&String> = arguments.iter().skip_while(|word| word.starts_with("--") && *word != "--").collect();
    let Some((program, rest)) = arguments.split_first() else {
        return Reply::failed(
            127,
            "pkexec --version |\n       --help |\n       [--user username] PROGRAM [ARGUMENTS...]",
        );
    };
    let error = Command::new(world.resolve(program)).args(rest).env(AS_ROOT, "1").exec();
    Reply::failed(127, format!("Error executing {program}: {error}"))
}
