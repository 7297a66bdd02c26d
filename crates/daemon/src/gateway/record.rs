//! What the next daemon has to know of a server that was moved: the port, and the server that did not move.

use serde::{Deserialize, Serialize};
use stablehand_engine::process::Identity;
use stablehand_platform::files::{remove, write_atomically};
use stablehand_platform::machine::Machine;
use stablehand_platform::paths::stablehand_files;
use std::path::PathBuf;

/// The note.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// The port of 127.0.0.1 that the server was moved to, or may have been.
    pub moved: Option<u16>,
    /// The server that was restarted and did not move.
    pub spent: Option<Identity>,
}

/// The note as it lies on the disk.
#[derive(Serialize, Deserialize)]
struct Written {
    moved: Option<u16>,
    spent: Option<(u32, u64)>,
}

/// The note as it was left; without one, or with one that is not understood, nothing is known.
pub fn read(machine: &Machine) -> Record {
    let text = std::fs::read_to_string(path(machine)).unwrap_or_default();
    let Ok(Written { moved, spent }) = serde_json::from_str(&text) else { return Record::default() };
    Record { moved, spent: spent.map(|(pid, birth)| Identity { pid, birth }) }
}

/// Writes the note, or takes it away when there is nothing to say.
pub fn write(machine: &Machine, record: &Record) {
    let path = path(machine);
    let written = Written { moved: record.moved, spent: record.spent.map(|id| (id.pid, id.birth)) };
    let done = match (record == &Record::default(), serde_json::to_vec(&written)) {
        (true, _) => remove(machine, &path).map(|_| ()),
        (false, Ok(json)) => write_atomically(machine, &path, &json, 0o600),
        (false, Err(_)) => Ok(()),
    };
    if let Err(error) = done {
        tracing::warn!(%error, "what the next daemon should know of the moved server is not written down");
    }
}

fn path(machine: &Machine) -> PathBuf {
    stablehand_files(machine).data_dir.join("moved.json")
}
