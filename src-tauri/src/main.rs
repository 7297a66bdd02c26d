//! `stablehand-tray`: the icon, the menu and the popover. A client of the daemon and nothing more; quitting it stops
//! nothing.
//!
//! What is shown is a pure function of a view ([`face`]); [`link`] and [`popover`] are state machines that get the
//! time; [`shell`] alone knows the window system.

mod arguments;
mod at_login;
mod choices;
mod command_line;
mod face;
mod instance;
mod kept_file;
mod link;
mod notify;
mod place;
mod placement;
mod popover;
mod service;
mod shell;

use arguments::{USAGE, Wish};
use instance::Instance;
use place::Place;
use std::io::Write;
use std::process::ExitCode;

/// Wrong usage.
const USAGE_CODE: u8 = 2;
/// No copy runs that could do it.
const NOBODY_CODE: u8 = 3;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args_os().skip(1).map(|text| text.to_string_lossy().into_owned()).collect();
    match arguments.first().map(String::as_str) {
        Some("--help" | "-h") => {
            let _ = std::io::stdout().write_all(USAGE.as_bytes());
            return ExitCode::SUCCESS;
        }
        Some("--version" | "-V") => {
            let _ = writeln!(std::io::stdout(), "stablehand-tray {}", env!("CARGO_PKG_VERSION"));
            return ExitCode::SUCCESS;
        }
        #[cfg(target_os = "linux")]
        Some(shell::page_process::VERB) if arguments.len() == 1 => {
            return told(shell::page_process::run().map(|()| ExitCode::SUCCESS));
        }
        Some(_) | None => {}
    }
    let wish = match Wish::parse(&arguments) {
        Ok(wish) => wish,
        Err(argument) => {
            aside(&format!("«{argument}» is not understood\n{USAGE}"));
            return ExitCode::from(USAGE_CODE);
        }
    };
    told(run(wish))
}

fn told(outcome: Result<ExitCode, String>) -> ExitCode {
    match outcome {
        Ok(code) => code,
        Err(why) => {
            aside(&format!("stablehand-tray: {why}\n"));
            ExitCode::FAILURE
        }
    }
}

fn run(wish: Wish) -> Result<ExitCode, String> {
    let place = Place::detect().map_err(|error| error.to_string())?;
    match instance::claim(&place, &wish) {
        Ok(Instance::First(first)) => match wish {
            Wish::Stand | Wish::Open | Wish::Notify(_) => {
                shell::run(place, first, wish).map(|()| ExitCode::SUCCESS).map_err(|error| error.to_string())
            }
            Wish::NotifyIfThere(_) => Ok(ExitCode::from(NOBODY_CODE)),
        },
        Ok(Instance::Second) => Ok(ExitCode::SUCCESS),
        Err(error) => Err(format!("neither the first copy nor able to talk to it: {error}")),
    }
}

/// Writes talk to stderr. Whoever closed it wants none.
fn aside(text: &str) {
    let _ = std::io::stderr().write_all(text.as_bytes());
}
