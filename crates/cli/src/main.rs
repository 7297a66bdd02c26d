//! `stablehand`: client verbs, and `serve`.
//!
//! A verb is a thin thing: it turns its arguments into a request, and what comes back into text ([`text`]) or JSON.
//! stdout is data, stderr is talk. Exit codes: 0 done or proven, 1 drift or failure, 2 usage, 3 unknown.

// They panic when the reader has left.
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod arguments;
mod demo;
mod gateway;
mod paint;
mod quarantine;
mod queue;
mod text;
mod verbs;
mod versions;
mod watched;

use arguments::Arguments;
use clap::Parser;
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let runtime = if arguments.verb.is_gateway() {
        // It only hands bytes on, and one thread does that without handing them to another first.
        tokio::runtime::Builder::new_current_thread().enable_all().build()
    } else {
        // A second worker, so that a read that the system delays (a dialog, a slow disk) does not silence the daemon.
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()
    };
    match runtime {
        Ok(runtime) => {
            let code = runtime.block_on(verbs::run(arguments));
            // A blocking read that is still under way must not keep a finished verb from ending.
            runtime.shutdown_background();
            code
        }
        Err(error) => {
            verbs::aside(&format!("stablehand: the system gives no runtime: {error}\n"));
            ExitCode::FAILURE
        }
    }
}
