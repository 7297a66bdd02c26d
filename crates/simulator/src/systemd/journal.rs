//! The journal: one file of JSON lines per unit in `.sim/journal/`.

use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::Scope;
use crate::world::World;

/// One entry.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    /// World wall time, Unix ms.
    pub unix_ms: i64,
    /// Who wrote it.
    pub identifier: String,
    /// Its process.
    pub pid: i32,
    /// The line.
    pub message: String,
}

/// The file of a unit.
pub fn file(world: &World, scope: Scope, unit: &str) -> PathBuf {
    world.state(&format!("journal/{}/{unit}.jsonl", scope.name()))
}

/// Appends a line. A journal that cannot be written loses it.
pub fn note(world: &World, scope: Scope, unit: &str, identifier: &str, pid: i32, message: &str) {
    let path = file(world, scope, unit);
    if let Some(folder) = path.parent() {
        let _ = std::fs::create_dir_all(folder);
    }
    let entry =
        Entry { unix_ms: world.clock.wall_ms(), identifier: identifier.to_owned(), pid, message: message.to_owned() };
    let line = serde_json::to_string(&entry).unwrap_or_default();
    if let Ok(mut file) = OpenOptions::new().create(true).append(true).open(path) {
        let _ = writeln!(file, "{line}");
    }
}

/// Reads all entries of a unit.
pub fn read(world: &World, scope: Scope, unit: &str) -> Vec<Entry> {
    read_on(world, scope, unit, &mut 0)
}

/// Reads the entries behind the first `read_bytes` of a unit's file, and counts on. Half a line is left for later.
pub fn read_on(world: &World, scope: Scope, unit: &str, read_bytes: &mut u64) -> Vec<Entry> {
    let mut text = Vec::new();
    if let Ok(mut file) = File::open(file(world, scope, unit)) {
        let _ = file.seek(SeekFrom::Start(*read_bytes)).and_then(|_| file.read_to_end(&mut text));
    }
    let whole = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
    *read_bytes += whole as u64;
    text[..whole].split(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice(line).ok()).collect()
}
