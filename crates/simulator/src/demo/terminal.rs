//! A terminal in which someone runs `ollama serve` by hand. Its output goes
//! nowhere that lasts.

use std::process::{Command, ExitCode, Stdio};

use crate::world::World;

/// Runs the shell: the server in the foreground, then a prompt that waits.
pub fn run(world: &World) -> ExitCode {
    let started = Command::new(world.path("/usr/local/bin/ollama"))
        .arg("serve")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    match started {
        Ok(mut server) => {
            let _ = server.wait();
            loop {
                std::thread::park();
            }
        }
        Err(_) => ExitCode::from(127),
    }
}
