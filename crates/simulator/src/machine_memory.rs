//! Memory of the simulated machine, from the models that are loaded and the
//! faults that are raised. Whoever shows it agrees with everyone else.

use serde_json::{Value, json};

use crate::faults::Fault;
use crate::runner::record;
use crate::world::{World, notes};

/// What the system itself and its apps take.
pub const BASE_BYTES: u64 = 9 << 30;
/// Most that swap grows to.
const MOST_SWAP_BYTES: u64 = 38 << 30;

/// The state of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory {
    /// Physical memory.
    pub total_bytes: u64,
    /// Weights and caches of all runners.
    pub models_bytes: u64,
    /// Swap in use.
    pub swap_bytes: u64,
    /// Bytes read back from swap since the start of the machine.
    pub swapped_in_bytes: u64,
    /// Bytes written to swap since the start of the machine.
    pub swapped_out_bytes: u64,
    /// 1 normal, 2 warn, 4 critical.
    pub pressure: u8,
    /// Whether processes wait for pages now.
    pub pages_now: bool,
}

/// How fast a fault pages, in bytes per world second, and the pressure that
/// the system tells meanwhile. A level of 1 beside full swap is real.
struct Paging {
    in_per_s: u64,
    out_per_s: u64,
    level: u8,
}

/// The faults that page, and how.
const PAGERS: [(Fault, Paging); 3] = [
    (Fault::MemoryPressure, Paging { in_per_s: 24 << 20, out_per_s: 96 << 20, level: 4 }),
    (Fault::SlowSwapping, Paging { in_per_s: 310 << 20, out_per_s: 330 << 20, level: 2 }),
    (Fault::WorkFirstPromptSwapping, Paging { in_per_s: 420 << 20, out_per_s: 180 << 20, level: 1 }),
];

impl Memory {
    /// The state of a world now.
    pub fn now(world: &World) -> Self {
        let models_bytes: u64 = record::living(world).iter().map(|(record, _)| record.bytes).sum();
        let total_bytes = world.marker.memory_bytes;
        let over = (models_bytes + BASE_BYTES).saturating_sub(total_bytes);
        let mut memory = Self {
            total_bytes,
            models_bytes,
            swap_bytes: over,
            swapped_in_bytes: BASE_SWAPPED_IN + over / 4 + kept(world, "in"),
            swapped_out_bytes: BASE_SWAPPED_OUT + over + kept(world, "out"),
            pressure: if over > 0 { 2 } else { 1 },
            pages_now: false,
        };
        for (fault, paging) in &PAGERS {
            let Some(note) = notes::raised(world, *fault) else {
                continue;
            };
            let seconds = paged_seconds(world, &note);
            let grown = |per_s: u64| (per_s as f64 * seconds) as u64;
            memory.swapped_in_bytes += grown(paging.in_per_s);
            memory.swapped_out_bytes += grown(paging.out_per_s);
            let growth = grown(paging.out_per_s.saturating_sub(paging.in_per_s));
            memory.swap_bytes = (memory.swap_bytes + (9 << 30) + growth).min(MOST_SWAP_BYTES);
            let level = note["level"].as_u64().map_or(paging.level, |level| level as u8);
            memory.pressure = memory.pressure.max(level);
            memory.pages_now = true;
        }
        memory
    }

    /// Percentage that `kern.memorystatus_level` shows.
    pub fn free_percent(&self) -> u64 {
        match self.pressure {
            1 => {
                let used = self.models_bytes + BASE_BYTES / 2;
                (self.total_bytes.saturating_sub(used) * 100 / self.total_bytes.max(1)).max(20)
            }
            2 => 14,
            _ => 6,
        }
    }
}

const BASE_SWAPPED_IN: u64 = 212 << 20;
const BASE_SWAPPED_OUT: u64 = 640 << 20;

/// The parameters of a fault that pages from now on.
pub fn paging_from_now(world: &World) -> Value {
    json!({ "since_awake_ms": world.clock.awake_ms() })
}

/// Keeps the counters of a fault that is about to be taken back: they never fall.
pub fn keep_counters(world: &World, fault: Fault) {
    let Some((_, paging)) = PAGERS.iter().find(|(pager, _)| *pager == fault) else {
        return;
    };
    let Some(note) = notes::raised(world, fault) else {
        return;
    };
    let seconds = paged_seconds(world, &note);
    let sum = |key: &str, per_s: u64| kept(world, key) + (per_s as f64 * seconds) as u64;
    let text = json!({ "in": sum("in", paging.in_per_s), "out": sum("out", paging.out_per_s) }).to_string();
    // Lost counters make the machine look as if it had just started.
    let _ = crate::world::write_whole(&world.state("swapped.json"), text.as_bytes());
}

fn kept(world: &World, key: &str) -> u64 {
    let text = std::fs::read_to_string(world.state("swapped.json")).unwrap_or_default();
    let value: Value = serde_json::from_str(&text).unwrap_or_default();
    value[key].as_u64().unwrap_or(0)
}

fn paged_seconds(world: &World, note: &Value) -> f64 {
    let since = note["since_awake_ms"].as_i64().unwrap_or(0);
    ((world.clock.awake_ms() - since).max(0)) as f64 / 1000.0
}
