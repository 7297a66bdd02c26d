//! `launchctl(1)`: what needs no launchd is answered here, the rest is asked.

use std::os::unix::process::CommandExt;
use std::process::Command;

use crate::launchd::{Request, SERVICE};
use crate::wire::{self, Reply};
use crate::world::World;

/// Runs the command.
pub fn run(world: &World, arguments: &[String]) -> Reply {
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["error", code] => Reply::said(error_words(code)),
        ["asuser", _, program, rest @ ..] => {
            let error = Command::new(world.resolve(program)).args(rest).exec();
            Reply::failed(1, format!("{program}: {error}"))
        }
        ["version"] => Reply::said("Darwin Bootstrapper (simulated)\n"),
        _ => {
            let request = Request::Launchctl { arguments: arguments.to_vec() };
            wire::ask(world, SERVICE, &request).unwrap_or_else(|error| Reply::failed(1, format!("{error:#}")))
        }
    }
}

fn error_words(code: &str) -> String {
    let number = code.trim_start_matches("0x").parse::<i32>().unwrap_or(-1);
    let words = match number {
        0 => "No error",
        1 => "Operation not permitted",
        3 => "No such process",
        5 => "Input/output error",
        17 => "File exists",
        36 => "Operation now in progress",
        37 => "Operation already in progress",
        112 => "Could not find specified domain",
        113 => "Could not find specified service",
        125 => "Domain does not support specified action",
        _ => "Unknown error",
    };
    format!("{number}: {words}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_have_words() {
        assert_eq!(error_words("5"), "5: Input/output error\n");
        assert_eq!(error_words("36"), "36: Operation now in progress\n");
    }
}
