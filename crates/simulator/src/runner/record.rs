//! What a runner notes about itself in `.sim/runners/PID.json` whenever it
//! changes: for the commands that show memory and GPU, and for faults that
//! wait for an effect.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::process_table;
use crate::world::{World, write_whole};

/// What a runner is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Phase {
    /// Reads its weights.
    Loading,
    /// Waits for a request.
    Idle,
    /// Encodes an image.
    Encoding,
    /// Works on a prompt.
    Prefill,
    /// Generates.
    Generating,
    /// Stands still with a request.
    Stuck,
    /// Burns CPU with a request.
    BusyLoop,
}

impl Phase {
    /// Percent of the GPU that is used meanwhile.
    pub fn gpu_percent(self) -> u8 {
        match self {
            Self::Prefill => 97,
            Self::Encoding => 91,
            Self::Generating => 78,
            Self::Loading => 12,
            Self::Idle | Self::Stuck | Self::BusyLoop => 0,
        }
    }
}

/// The note.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// The process.
    pub pid: i32,
    /// Name of its model.
    pub model: String,
    /// Slots.
    pub slots: u64,
    /// Context of one slot, in tokens.
    pub context: u64,
    /// Weights, caches and scratch memory.
    pub bytes: u64,
    /// What the kernel counts as its own.
    pub footprint_bytes: u64,
    /// What it does.
    pub phase: Phase,
    /// Requests in slots.
    pub busy: usize,
    /// Twentieths of the load that are done.
    pub loaded: u32,
    /// Whether its HTTP side is dead.
    pub http_dead: bool,
}

impl Record {
    /// Writes the note.
    pub fn write(&self, world: &World) {
        if let Ok(text) = serde_json::to_vec(self) {
            // A runner whose note is lost still runs.
            let _ = write_whole(&folder(world).join(format!("{}.json", self.pid)), &text);
        }
    }
}

/// The note of one process.
pub fn of(world: &World, pid: i32) -> Option<Record> {
    let text = std::fs::read_to_string(folder(world).join(format!("{pid}.json"))).ok()?;
    serde_json::from_str(&text).ok()
}

/// The notes of all runners that live, orphans included, with the letter of
/// their state.
pub fn living(world: &World) -> Vec<(Record, char)> {
    let mut records: Vec<(Record, char)> = std::fs::read_dir(folder(world))
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| {
            let record: Record = serde_json::from_str(&std::fs::read_to_string(entry.path()).ok()?).ok()?;
            match process_table::state_of(record.pid) {
                Some(state) => Some((record, state)),
                None => {
                    let _ = std::fs::remove_file(entry.path());
                    None
                }
            }
        })
        .collect();
    records.sort_by_key(|(record, _)| record.pid);
    records
}

/// Forgets every note.
pub fn forget_all(world: &World) {
    let _ = std::fs::remove_dir_all(folder(world));
}

fn folder(world: &World) -> PathBuf {
    world.state("runners")
}
