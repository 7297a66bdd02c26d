//! The process table, in the engine's terms.
//!
//! A look lists every process; program, arguments and variables are read once per life and kept, because reading
//! them is what costs. On Linux they come from `/proc`, on macOS from the kernel through `sysinfo`.

mod kernel;
mod proc_fs;

use crate::machine::Machine;
use stablehand_engine::Known;
use stablehand_engine::process::{Identity, Process};
use stablehand_engine::time::Wall;
use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

/// A process younger than this (real time) may be between `fork` and `exec`, when it still shows its parent's
/// program and arguments: what is read then is read again.
const SETTLING_MS: i64 = 2_000;

/// What the kernel tells of a process in every look.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) id: Identity,
    pub(crate) parent: Option<u32>,
    /// Short name; it changes when the process becomes another program.
    pub(crate) name: String,
    /// Unix ms of real time, whatever the machine's clock plays.
    pub(crate) started_real_ms: i64,
    /// It has ended and only waits to be noticed by its parent.
    pub(crate) ended: bool,
}

/// What is read once per life.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Details {
    uid: Known<u32>,
    executable: Known<PathBuf>,
    argv: Known<Vec<String>>,
    environment: Known<BTreeMap<String, String>>,
}

/// The processes of a machine.
#[derive(Debug)]
pub struct ProcessTable {
    machine: Machine,
    kept: HashMap<Identity, Kept>,
}

#[derive(Debug)]
struct Kept {
    name: String,
    settled: bool,
    belongs: bool,
    started: Wall,
    details: Details,
}

impl ProcessTable {
    /// An empty table of this machine.
    pub fn new(machine: Machine) -> Self {
        Self { machine, kept: HashMap::new() }
    }

    /// Every process that belongs to this machine: in a world those whose program lies in it, on a real machine all
    /// that lie in no world.
    pub fn look(&mut self) -> Vec<Process> {
        let rows = kernel::rows();
        let now_ms = kernel::real_now_ms();
        let mut kept = HashMap::with_capacity(rows.len());
        let mut processes = Vec::new();
        for row in rows.into_iter().filter(|row| !row.ended) {
            let old = self.kept.remove(&row.id).filter(|old| old.settled && old.name == row.name);
            let entry = old.unwrap_or_else(|| {
                let details = kernel::details(row.id.pid);
                Kept {
                    // Arguments that could not be read may be readable later.
                    settled: now_ms - row.started_real_ms > SETTLING_MS && details.argv.known().is_some(),
                    belongs: belongs(&self.machine, &details),
                    started: self.machine.clock().wall_of_real(row.started_real_ms),
                    name: row.name.clone(),
                    details,
                }
            });
            if entry.belongs {
                processes.push(process(&row, entry.started, &entry.details));
            }
            kept.insert(row.id, entry);
        }
        self.kept = kept;
        processes
    }
}

/// One process as it is at this moment, read anew; `None` when it is gone or does not belong to this machine.
pub fn look_at(machine: &Machine, id: Identity) -> Option<Process> {
    let row = kernel::row(id.pid).filter(|row| row.id == id && !row.ended)?;
    let details = kernel::details(id.pid);
    let started = machine.clock().wall_of_real(row.started_real_ms);
    belongs(machine, &details).then(|| process(&row, started, &details))
}

/// The present process of a pid, whoever's and wherever it is; `None` when there is none.
pub(crate) fn anybody(pid: u32) -> Option<Process> {
    let row = kernel::row(pid).filter(|row| !row.ended)?;
    let started = Wall::from_unix_ms(row.started_real_ms);
    Some(process(&row, started, &kernel::details(pid)))
}

/// Whether this life still goes on. A process that has ended and was not yet noticed by its parent does not.
pub fn is_alive(id: Identity) -> bool {
    kernel::row(id.pid).is_some_and(|row| row.id == id && !row.ended)
}

/// The present life of a pid, whether or not it belongs to this machine.
pub fn identity(pid: u32) -> Option<Identity> {
    life_of(pid).map(|(id, _name)| id)
}

/// The present life of a pid, whether or not it belongs to this machine, with its short name.
pub(crate) fn life_of(pid: u32) -> Option<(Identity, String)> {
    kernel::row(pid).filter(|row| !row.ended).map(|row| (row.id, row.name))
}

/// The numeric owner of a pid.
pub(crate) fn owner_of(pid: u32) -> Known<u32> {
    kernel::details(pid).uid
}

fn process(row: &Row, started: Wall, details: &Details) -> Process {
    Process {
        id: row.id,
        parent: row.parent,
        uid: details.uid.clone(),
        started,
        executable: details.executable.clone(),
        argv: details.argv.clone(),
        environment: details.environment.clone(),
    }
}

fn belongs(machine: &Machine, details: &Details) -> bool {
    match (machine.simulated(), details.executable.known()) {
        (Some(world), Some(executable)) => executable.starts_with(world),
        (Some(_), None) => false,
        (None, Some(executable)) => !lies_in_a_world(executable),
        (None, None) => true,
    }
}

/// A demo that runs beside the real machine must not look like a second server of it. Only what could be one is looked
/// at: macOS asks a person before a program looks into Documents, Desktop or Downloads, where any other program may lie.
fn lies_in_a_world(executable: &Path) -> bool {
    let is_named_so =
        executable.file_name().is_some_and(|name| name.to_string_lossy().to_lowercase().contains("llama"));
    is_named_so && executable.ancestors().skip(1).any(|folder| folder.join(crate::machine::MARKER).exists())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Clock;
    use crate::testing::{copy_program, world_folder};

    #[test]
    fn a_world_sees_only_programs_that_lie_in_it() {
        let (_dir, machine) = world_folder("macos");
        assert_eq!(ProcessTable::new(machine.clone()).look(), []);
        let program = machine.root().join("usr/local/bin/napper");
        copy_program(Path::new("/bin/sleep"), &program);
        let mut child = std::process::Command::new(&program)
            .arg("60")
            .env("OLLAMA_NUM_PARALLEL", "3")
            .env("SECRET_TOKEN", "hidden")
            .spawn()
            .unwrap();
        let seen = ProcessTable::new(machine.clone()).look();
        let id = seen[0].id;
        assert_eq!(seen.len(), 1);
        assert_eq!(id.pid, child.id());
        assert_eq!(seen[0].executable, Known::Is(program));
        assert_eq!(seen[0].parent, Some(std::process::id()));
        assert_eq!(seen[0].uid, Known::Is(machine.uid()));
        assert_eq!(seen[0].argv.known().map(|argv| argv[1].clone()), Some("60".to_owned()));
        if cfg!(target_os = "linux") {
            let wanted = BTreeMap::from([("OLLAMA_NUM_PARALLEL".to_owned(), "3".to_owned())]);
            assert_eq!(seen[0].environment, Known::Is(wanted));
            let age = machine.clock().now().wall - seen[0].started;
            assert!(age < std::time::Duration::from_secs(5), "{age:?}");
        }
        assert!(is_alive(id));
        assert_eq!(look_at(&machine, id).map(|process| process.id), Some(id));
        assert!(!is_alive(Identity { birth: id.birth + 1, ..id }));
        child.kill().unwrap();
        while is_alive(id) {
            std::thread::yield_now();
        }
        // Not reaped yet: it counts as gone all the same.
        assert_eq!(look_at(&machine, id), None);
        child.wait().unwrap();
    }

    #[test]
    fn programs_of_a_world_are_not_the_real_machines() {
        let (_dir, machine) = world_folder("linux");
        assert!(lies_in_a_world(&machine.root().join("usr/local/bin/ollama")));
        assert!(lies_in_a_world(&machine.root().join("Applications/Ollama.app/Contents/MacOS/Ollama")));
        assert!(!lies_in_a_world(Path::new("/usr/local/bin/ollama")));
        assert!(!lies_in_a_world(&machine.root().join("home/sim/Documents/bot/python")), "it could be no server");
    }

    #[test]
    fn our_own_start_lies_in_the_recent_past() {
        let row = kernel::row(std::process::id()).unwrap();
        let started = Clock::real().wall_of_real(row.started_real_ms);
        let age = Clock::real().now().wall - started;
        assert!(age < std::time::Duration::from_secs(3600), "{age:?}");
        assert!(row.started_real_ms <= kernel::real_now_ms());
    }
}
