//! What runs in a world, for tests and curious people.

use std::io::Write;
use std::time::Duration;

use anyhow::Result;
use serde_json::{Value, json};

use crate::clients::ledger;
use crate::faults::{Fault, machine};
use crate::process_table::{self, Process};
use crate::runner::record::{self, Record};
use crate::world::{Os, World, notes};
use crate::{launchd, wire};

/// Real time between two lines of a watch.
const GLANCE: Duration = Duration::from_millis(100);

/// Prints the state as a line of JSON again and again, until nobody reads.
pub fn watch(world: &World) -> Result<String> {
    let mut out = std::io::stdout().lock();
    while writeln!(out, "{}", status(world)).and_then(|()| out.flush()).is_ok() {
        std::thread::sleep(GLANCE);
    }
    Ok(String::new())
}

/// The state of a world as JSON.
pub fn status(world: &World) -> Value {
    let processes = process_table::of(world);
    let pids = |wanted: fn(&Process) -> bool| -> Vec<i32> {
        processes.iter().filter(|process| wanted(process)).map(|process| process.pid).collect()
    };
    let runners: Vec<Value> = processes
        .iter()
        .filter(|process| process.is_runner())
        .map(|process| {
            let record = record::of(world, process.pid);
            let number = |flag: &str| process.argument_after(flag).and_then(|value| value.parse::<u64>().ok());
            json!({
                "pid": process.pid,
                "ppid": process.ppid,
                "port": number("--port"),
                "slots": number("-np"),
                "model": record.as_ref().map(|record: &Record| record.model.clone()),
                "state": process.state.to_string(),
                "phase": record.as_ref().map(|record| record.phase),
                "cpu_ms": process.cpu_ms,
                "busy": record.as_ref().map(|record| record.busy),
            })
        })
        .collect();
    let clients: Vec<Value> = processes
        .iter()
        .filter(|process| process.name() == "bot")
        .map(
            |process| json!({ "pid": process.pid, "work": process.verb(), "model": process.argument_after("--model") }),
        )
        .collect();
    let session: Value = match world.marker.os {
        Os::Macos => wire::ask(world, launchd::SERVICE, &launchd::Request::Session)
            .ok()
            .and_then(|reply| serde_json::from_str(&reply.stdout).ok())
            .unwrap_or(Value::Null),
        Os::Linux => Value::Null,
    };
    let raised: Vec<&str> =
        Fault::ALL.iter().filter(|fault| notes::is_raised(world, **fault)).map(|fault| fault.name()).collect();
    json!({
        "dir": world.dir.display().to_string(),
        "port": world.marker.port,
        "wall_unix_ms": world.clock.wall_ms(),
        "gui": pids(Process::is_gui),
        "shim": pids(|process| process.name() == "Squirrel"),
        "serve": pids(Process::is_serve),
        "manager": pids(|process| matches!(process.name(), "launchd" | "systemd")),
        "releases": pids(|process| process.name() == "release-server"),
        "runners": runners,
        "clients": clients,
        "work": ledger::shown(world),
        "answering": machine::answering_port(world).is_some(),
        "session": session,
        "faults": raised,
    })
}
