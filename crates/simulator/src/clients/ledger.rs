//! `.sim/work.json`: what the clients of a world asked and got.

use std::collections::BTreeMap;
use std::fs::OpenOptions;

use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::world::{World, write_whole};

/// Something to note.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A request is on its way.
    Asked,
    /// It was answered with words.
    Served,
    /// It was not, and how it ended.
    Failed(String),
}

/// What one kind of work, or all of it, has come to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Count {
    /// Requests sent.
    pub asked: u64,
    /// Requests answered with words, to the end.
    pub served: u64,
    /// All others that have ended.
    pub failed: u64,
    /// World time of the last one served, Unix ms.
    pub last_served_unix_ms: Option<i64>,
    /// How the last failure ended.
    pub last_error: Option<String>,
    /// World time of it, Unix ms.
    pub last_error_unix_ms: Option<i64>,
}

impl Count {
    fn add(&mut self, event: &Event, now_unix_ms: i64) {
        match event {
            Event::Asked => self.asked += 1,
            Event::Served => {
                self.served += 1;
                self.last_served_unix_ms = Some(now_unix_ms);
            }
            Event::Failed(words) => {
                self.failed += 1;
                self.last_error = Some(words.clone());
                self.last_error_unix_ms = Some(now_unix_ms);
            }
        }
    }
}

/// The whole file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ledger {
    /// Everything together.
    #[serde(flatten)]
    pub all: Count,
    /// By the name of the work.
    pub works: BTreeMap<String, Count>,
}

/// Notes an event. Several clients may do so at the same time.
pub fn note(world: &World, work: &str, event: &Event) {
    let Ok(lock) = OpenOptions::new().create(true).append(true).open(world.state("work.lock")) else {
        return;
    };
    // Without the lock a count may be lost, which is better than none at all.
    let _ = flock(&lock, FlockOperation::LockExclusive);
    let mut ledger = read(world);
    let now = world.clock.wall_ms();
    ledger.all.add(event, now);
    ledger.works.entry(work.to_owned()).or_default().add(event, now);
    if let Ok(text) = serde_json::to_vec_pretty(&ledger) {
        let _ = write_whole(&world.state("work.json"), &text);
    }
}

/// The file as it is; empty where there is none.
pub fn read(world: &World) -> Ledger {
    let text = std::fs::read_to_string(world.state("work.json")).unwrap_or_default();
    serde_json::from_str(&text).unwrap_or_default()
}

/// What one work has come to.
pub fn count(world: &World, work: &str) -> Count {
    read(world).works.remove(work).unwrap_or_default()
}

/// The file for `status`.
pub fn shown(world: &World) -> Value {
    serde_json::to_value(read(world)).unwrap_or_default()
}

/// Forgets everything.
pub fn forget(world: &World) {
    let _ = std::fs::remove_file(world.state("work.json"));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_counted_with_their_times() {
        let mut count = Count::default();
        count.add(&Event::Asked, 1);
        count.add(&Event::Failed("500: broken".into()), 2);
        count.add(&Event::Asked, 3);
        count.add(&Event::Served, 4);
        assert_eq!((count.asked, count.served, count.failed), (2, 1, 1));
        assert_eq!((count.last_served_unix_ms, count.last_error_unix_ms), (Some(4), Some(2)));
        assert_eq!(count.last_error.as_deref(), Some("500: broken"));
    }
}
