//! A note on the disk that a restart is under way, so that a daemon that is killed between the stop and the start does
//! not leave Ollama down for good.

use stablehand_engine::time::Wall;
use stablehand_platform::files::{remove, write_atomically};
use stablehand_platform::machine::Machine;
use stablehand_platform::paths::stablehand_files;
use std::path::PathBuf;

/// The note.
#[derive(Debug)]
pub struct Interruption {
    machine: Machine,
    path: PathBuf,
    /// When the restart began that an earlier daemon did not finish.
    left_behind: Option<Wall>,
}

impl Interruption {
    /// The note as an earlier daemon left it.
    pub fn of(machine: &Machine) -> Self {
        let path = stablehand_files(machine).data_dir.join("restart-under-way");
        let left_behind = std::fs::read_to_string(&path).ok().and_then(|text| text.trim().parse().ok());
        Self { machine: machine.clone(), path, left_behind: left_behind.map(Wall::from_unix_ms) }
    }

    /// When the restart began that an earlier daemon did not finish.
    pub fn left_behind(&self) -> Option<Wall> {
        self.left_behind
    }

    /// A restart begins.
    pub fn note(&mut self, now: Wall) {
        self.left_behind = None;
        if let Err(error) = write_atomically(&self.machine, &self.path, now.unix_ms.to_string().as_bytes(), 0o600) {
            tracing::warn!(%error, "a restart goes on without a note of it");
        }
    }

    /// It is over, or was taken up.
    pub fn clear(&mut self) {
        self.left_behind = None;
        if let Err(error) = remove(&self.machine, &self.path) {
            tracing::warn!(%error, "the note of a restart that is over stays");
        }
    }
}
