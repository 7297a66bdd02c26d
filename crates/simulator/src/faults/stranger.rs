//! Another program on Ollama's port.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Result, bail};
use rustix::process::Signal;
use serde_json::json;

use super::{Fault, machine};
use crate::world::{World, layout, notes};

const PROGRAM: &str = "/usr/local/bin/other-server";

/// Runs the other program: a web server that knows nothing of Ollama.
pub fn run(world: &World) -> ExitCode {
    let Ok(listener) = TcpListener::bind(("127.0.0.1", world.marker.port)) else {
        return ExitCode::FAILURE;
    };
    for stream in listener.incoming().flatten() {
        let mut stream = stream;
        let _ = stream.set_read_timeout(Some(Duration::from_millis(500)));
        let mut buffer = [0_u8; 2048];
        let _ = stream.read(&mut buffer);
        let _ = stream.write_all(
            b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 15\r\nConnection: close\r\n\r\n<h1>Hello</h1>\r\n",
        );
    }
    ExitCode::SUCCESS
}

/// Ollama goes away for a moment, and the port is taken when it comes back.
pub fn take_port(world: &World) -> Result<String> {
    let program = world.path(PROGRAM);
    if !program.exists() {
        layout::install_program(world, &program)?;
    }
    machine::stop_ollama(world)?;
    machine::spawn(world, &[&program.display().to_string()])?;
    let taken =
        machine::wait_until(machine::LIMIT, || std::net::TcpStream::connect(("127.0.0.1", world.marker.port)).is_ok());
    if !taken {
        bail!("the other program did not get the port; Ollama is stopped");
    }
    notes::raise(world, Fault::PortStranger, &json!({}))?;
    machine::start_ollama(world)?;
    Ok(format!("{PROGRAM} holds port {}", world.marker.port))
}

/// The other program goes.
pub fn leave_port(world: &World) {
    let pids = machine::pids(world, |process| process.name() == "other-server");
    let _ = machine::end(&pids, Signal::TERM);
}
