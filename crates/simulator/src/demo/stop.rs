//! Ending a world.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use rustix::process::Signal;

use crate::faults::{Fault, machine};
use crate::process_table::{self, Process};
use crate::world::{Os, WORLD_VARIABLE, World, notes};
use crate::{launchd, systemd, wire};

/// Real time between SIGTERM and SIGKILL.
const GRACE: Duration = Duration::from_secs(4);

/// Ends the daemon and the gateway that live in the world, then whoever starts
/// others again, then everything whose program lies in it. Returns when none
/// is left.
pub fn stop(world: &World) -> Result<String> {
    // The managers would start again what is ended.
    let _ = match world.marker.os {
        Os::Macos => wire::ask(world, launchd::SERVICE, &launchd::Request::ShutDown),
        Os::Linux => wire::ask(world, systemd::SERVICE, &systemd::Request::ShutDown),
    };
    let own = std::process::id() as i32;
    let others = |processes: Vec<Process>| processes.into_iter().filter(move |process| process.pid != own);
    let mut ended =
        end_all(GRACE, || others(process_table::all()).filter(|process| lives_in(process, world)).collect())?;
    ended += end_all(GRACE, || others(process_table::of(world)).filter(|process| process.name() == "bot").collect())?;
    // An app that heeds no signal is not waited for.
    let deaf = notes::is_raised(world, Fault::GuiIgnoresSigterm);
    let grace = if deaf { Duration::ZERO } else { GRACE };
    ended += end_all(grace, || others(process_table::of(world)).filter(is_keeper).collect())?;
    ended += end_all(GRACE, || others(process_table::of(world)).collect())?;
    for name in [launchd::SERVICE, systemd::SERVICE] {
        let _ = std::fs::remove_file(world.state(&format!("{name}.port")));
    }
    if notes::is_raised(world, Fault::RenameEperm) {
        machine::forbid_renames(world, false)?;
    }
    Ok(format!("stopped {}: {ended} processes ended", world.dir.display()))
}

/// Whether it starts others, or starts them again when they end.
fn is_keeper(process: &Process) -> bool {
    let name = process.name();
    process.is_gui() || matches!(name, "launchd" | "systemd" | "Squirrel" | "zsh" | "containerd-shim-runc-v2")
}

/// Whether this is Stablehand's daemon or gateway of that world. Its program
/// lies elsewhere; its name, its verb and its environment tell.
fn lives_in(process: &Process, world: &World) -> bool {
    if process.name() != "stablehand" || process.verb() != "serve" {
        return false;
    }
    let prefix = format!("{WORLD_VARIABLE}=");
    process
        .environment
        .iter()
        .filter_map(|variable| variable.strip_prefix(&prefix))
        .filter_map(|dir| std::path::Path::new(dir).canonicalize().ok())
        .any(|dir| dir == world.dir)
}

/// SIGTERM, after `grace` SIGKILL, until `find` finds none. The number that was ended.
fn end_all(grace: Duration, find: impl Fn() -> Vec<Process>) -> Result<usize> {
    let mut ended = std::collections::BTreeSet::new();
    let soft_until = Instant::now() + grace;
    let hard_until = soft_until + GRACE;
    loop {
        let left = find();
        if left.is_empty() {
            return Ok(ended.len());
        }
        let now = Instant::now();
        if now > hard_until {
            let pids: Vec<String> = left.iter().map(|process| process.pid.to_string()).collect();
            bail!("these processes do not end: {}", pids.join(", "));
        }
        for process in &left {
            let is_new = ended.insert(process.pid);
            if now > soft_until {
                process_table::signal(process.pid, Signal::KILL);
            } else if is_new {
                process_table::signal(process.pid, Signal::TERM);
                process_table::signal(process.pid, Signal::CONT);
            }
        }
        std::thread::sleep(Duration::from_millis(15));
    }
}
