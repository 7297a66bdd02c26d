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

/// Ends the daemon and the gateway that live in the world, then everything
/// whose program lies in it. Returns when none is left.
pub fn stop(world: &World) -> Result<String> {
    // The managers would start again what is ended.
    let _ = match world.marker.os {
        Os::Macos => wire::ask(world, launchd::SERVICE, &launchd::Request::ShutDown),
        Os::Linux => wire::ask(world, systemd::SERVICE, &systemd::Request::ShutDown),
    };
    let own = std::process::id() as i32;
    let residents = end_all(|| {
        process_table::all().into_iter().filter(|process| process.pid != own && lives_in(process, world)).collect()
    })?;
    let programs = end_all(|| process_table::of(world).into_iter().filter(|process| process.pid != own).collect())?;
    for name in [launchd::SERVICE, systemd::SERVICE] {
        let _ = std::fs::remove_file(world.state(&format!("{name}.port")));
    }
    if notes::is_raised(world, Fault::RenameEperm) {
        machine::forbid_renames(world, false)?;
    }
    Ok(format!("stopped {}: {} processes ended", world.dir.display(), residents + programs))
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

/// SIGTERM, then SIGKILL, until `find` finds none. The number that was ended.
fn end_all(find: impl Fn() -> Vec<Process>) -> Result<usize> {
    let mut ended = std::collections::BTreeSet::new();
    let soft_until = Instant::now() + GRACE;
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
            if now > soft_until {
                process_table::signal(process.pid, Signal::KILL);
            } else if ended.insert(process.pid) {
                process_table::signal(process.pid, Signal::TERM);
                process_table::signal(process.pid, Signal::CONT);
            }
        }
        std::thread::sleep(Duration::from_millis(15));
    }
}
