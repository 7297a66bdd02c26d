//! The network of the world: whether the server that the releases come from is reached.

use std::net::{Ipv4Addr, TcpStream};

use anyhow::{Context, Result, bail};
use rustix::process::Signal;
use serde_json::json;

use super::{Fault, machine};
use crate::process_table;
use crate::releases::keeper;
use crate::world::{World, notes};

/// The network goes. Downloads that are under way are cut.
pub fn go(world: &World) -> Result<String> {
    notes::raise(world, Fault::NoNetwork, &json!({}))?;
    let gone = machine::wait_until(machine::LIMIT, || {
        for server in machine::pids(world, |process| process.name() == "release-server") {
            process_table::signal(server, Signal::TERM);
        }
        // Whoever holds the socket looks at the notes when somebody connects.
        !is_reached(world)
    });
    if gone { Ok("there is no network".to_owned()) } else { bail!("the releases are still reached") }
}

/// The network comes back.
pub fn come(world: &World) -> Result<()> {
    notes::clear(world, Fault::NoNetwork);
    keeper::port(world).context("this world has no address for releases")?;
    if machine::wait_until(machine::LIMIT, || is_reached(world)) { Ok(()) } else { bail!("the network stays away") }
}

fn is_reached(world: &World) -> bool {
    keeper::port(world).is_some_and(|port| TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_ok())
}
