//! Memory of the simulated machine: what `vm_stat(1)`, `sysctl(8)` and
//! `ioreg(8)` agree on, from the models that are loaded.

use serde_json::Value;

use crate::faults::Fault;
use crate::models::Model;
use crate::process_table::{self, Process};
use crate::wire::Reply;
use crate::world::{World, notes};

const PAGE: u64 = 16_384;

/// The state of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory {
    /// Physical memory.
    pub total_bytes: u64,
    /// Weights and caches of all runners.
    pub models_bytes: u64,
    /// Swap in use.
    pub swap_bytes: u64,
    /// 1 normal, 2 warn, 4 critical.
    pub pressure: u8,
}

impl Memory {
    /// The state of a world now.
    pub fn now(world: &World) -> Self {
        let models_bytes: u64 =
            process_table::of(world).iter().filter(|process| process.is_runner()).filter_map(runner_bytes).sum();
        let total_bytes = world.marker.memory_bytes;
        let raised = notes::raised(world, Fault::MemoryPressure);
        let level = raised.as_ref().map(|value: &Value| value["level"].as_u64().unwrap_or(4) as u8);
        let over = (models_bytes + BASE_BYTES).saturating_sub(total_bytes);
        Self {
            total_bytes,
            models_bytes,
            swap_bytes: over + if level.is_some() { 9 << 30 } else { 0 },
            pressure: level.unwrap_or(if over > 0 { 2 } else { 1 }),
        }
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

/// What the system itself and its apps take.
const BASE_BYTES: u64 = 9 << 30;

/// `vm_stat`.
pub fn vm_stat(world: &World) -> Reply {
    let memory = Memory::now(world);
    let pages = |bytes: u64| bytes / PAGE;
    let wired = pages(3 << 30) + pages(memory.models_bytes);
    let app = pages(5 << 30);
    let compressed = if memory.pressure > 1 { pages(4 << 30) } else { pages(512 << 20) };
    let free = pages(memory.total_bytes).saturating_sub(wired + 2 * app + compressed).max(4_000);
    let rows: [(&str, u64); 22] = [
        ("Pages free:", free),
        ("Pages active:", app),
        ("Pages inactive:", app - 1_024),
        ("Pages speculative:", 900),
        ("Pages throttled:", 0),
        ("Pages wired down:", wired),
        ("Pages purgeable:", 12_000),
        ("\"Translation faults\":", 812_334_101),
        ("Pages copy-on-write:", 18_330_120),
        ("Pages zero filled:", 438_120_004),
        ("Pages reactivated:", 2_307_001),
        ("Pages purged:", 225_200),
        ("File-backed pages:", app / 2),
        ("Anonymous pages:", app + app / 2),
        ("Pages stored in compressor:", compressed * 2),
        ("Pages occupied by compressor:", compressed),
        ("Decompressions:", 717_411),
        ("Compressions:", 1_650_991),
        ("Pageins:", 5_354_836),
        ("Pageouts:", 14_016),
        ("Swapins:", pages(memory.swap_bytes) / 4),
        ("Swapouts:", pages(memory.swap_bytes)),
    ];
    let mut text = format!("Mach Virtual Memory Statistics: (page size of {PAGE} bytes)\n");
    for (name, value) in rows {
        text.push_str(&format!("{name:<30} {value:>16}.\n"));
    }
    Reply::said(text)
}

/// `ioreg -r -d 1 -w 0 -c IOAccelerator`. Other classes match nothing.
pub fn ioreg(world: &World, arguments: &[String]) -> Reply {
    if !arguments.iter().any(|word| word.contains("IOAccelerator") || word.contains("AGXAccelerator")) {
        return Reply::quiet();
    }
    let memory = Memory::now(world);
    let runners: Vec<Process> = process_table::of(world).into_iter().filter(Process::is_runner).collect();
    let used = if runners.iter().any(|process| process.state == 'R') { 87 } else { 4 };
    Reply::said(format!(
        "+-o AGXAcceleratorG16X  <class AGXAcceleratorG16X, id 0x1000004b1, registered, matched, active, busy 0 (191 ms), retain 74>\n    {{\n      \"IOClass\" = \"AGXAcceleratorG16X\"\n      \"PerformanceStatistics\" = {{\"In use system memory (driver)\"=0,\"Alloc system memory\"={},\"Tiler Utilization %\"={used},\"recoveryCount\"=0,\"lastRecoveryTime\"=0,\"Renderer Utilization %\"={used},\"TiledSceneBytes\"=0,\"Device Utilization %\"={used},\"SplitSceneCount\"=0,\"Allocated PB Size\"=53149696,\"In use system memory\"={}}}\n      \"model\" = \"Apple M4 Max\"\n      \"gpu-core-count\" = 40\n    }}\n",
        memory.models_bytes + (1 << 30),
        memory.models_bytes + (600 << 20),
    ))
}

fn runner_bytes(process: &Process) -> Option<u64> {
    let blob = process.argument_after("--model")?;
    let model: Model = serde_json::from_str(&std::fs::read_to_string(blob).ok()?).ok()?;
    let number = |flag: &str| process.argument_after(flag).and_then(|value| value.parse::<u64>().ok());
    let slots = number("-np").unwrap_or(1).max(1);
    let context = number("-c").unwrap_or(4096) / slots;
    Some(model.loaded_bytes(context, slots))
}
