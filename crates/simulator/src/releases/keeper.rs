//! The socket of the release server, which the world's service manager holds: the server is started when somebody
//! first connects, and again when it has died. While there is no network, nobody listens.

use std::net::{Ipv4Addr, TcpListener};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result};
use rustix::event::{PollFd, PollFlags, poll};

use crate::faults::Fault;
use crate::ports;
use crate::world::{World, notes, write_whole};

/// The program, in the world.
pub const PROGRAM: &str = "/releases/release-server";
/// Real time between two looks for the network, and before a server that died is started again.
const PAUSE: Duration = Duration::from_millis(20);

/// Where the base address is written: `http://127.0.0.1:PORT`.
pub fn address_file(world: &World) -> PathBuf {
    world.path("/releases/address")
}

/// So near to Ollama's port all belong to it.
const OLLAMAS_PORTS: u16 = 16;

/// The port in the address that was written last.
pub fn port(world: &World) -> Option<u16> {
    std::fs::read_to_string(address_file(world)).ok()?.trim().rsplit_once(':')?.1.parse().ok()
}

/// Listens, on the port of before where it is free, and writes the address down.
pub fn bind(world: &World) -> Result<TcpListener> {
    // Ollama binds its own later, and a gateway moves it to one right above.
    let is_ollamas = |port: u16| port.abs_diff(world.marker.port) < OLLAMAS_PORTS;
    let again = port(world).and_then(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, port)).ok());
    let listener = match again {
        Some(listener) => listener,
        None => TcpListener::bind((Ipv4Addr::LOCALHOST, ports::free_but(is_ollamas)?))?,
    };
    listener.set_nonblocking(true)?;
    let address = format!("http://{}\n", listener.local_addr()?);
    write_whole(&address_file(world), address.as_bytes()).context("the address of the releases cannot be written")?;
    Ok(listener)
}

/// Keeps the server for as long as this process lives, in a thread. `first` is the socket that was bound before
/// anybody could ask.
pub fn keep(world: World, first: TcpListener) {
    std::thread::spawn(move || {
        let is_offline = || notes::is_raised(&world, Fault::NoNetwork);
        let mut listener = Some(first);
        loop {
            if is_offline() {
                listener = None;
            } else if listener.is_none() {
                listener = bind(&world).ok();
            }
            if let Some(socket) = &listener
                && poll(&mut [PollFd::new(socket, PollFlags::IN)], None).is_ok()
                && !is_offline()
            {
                serve(&world, socket);
            }
            std::thread::sleep(PAUSE);
        }
    });
}

/// Runs the server, with the socket as its standard input as `inetd(8)` hands it over, until it ends.
fn serve(world: &World, listener: &TcpListener) {
    let Ok(socket) = listener.try_clone() else { return };
    let started = Command::new(world.path(PROGRAM))
        .env_clear()
        .envs(world.base_environment())
        .current_dir(&world.dir)
        .stdin(Stdio::from(OwnedFd::from(socket)))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    if let Ok(mut server) = started {
        let _ = server.wait();
    }
}
