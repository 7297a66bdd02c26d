//! What `vm_stat(1)`, `footprint(1)` and `ioreg(8)` show of memory and GPU.

use crate::machine_memory::Memory;
use crate::runner::record;
use crate::wire::Reply;
use crate::world::World;

const PAGE: u64 = 16_384;

/// `vm_stat`.
pub fn vm_stat(world: &World) -> Reply {
    let memory = Memory::now(world);
    let pages = |bytes: u64| bytes / PAGE;
    let app = pages(5 << 30);
    let compressed = if memory.pressure > 1 || memory.pages_now { pages(4 << 30) } else { pages(512 << 20) };
    // What does not fit is in swap.
    let most_wired = pages(memory.total_bytes).saturating_sub(2 * app + compressed + 4_000);
    let wired = (pages(3 << 30) + pages(memory.models_bytes)).min(most_wired);
    let free = pages(memory.total_bytes).saturating_sub(wired + 2 * app + compressed).max(4_000);
    let (swapped_in, swapped_out) = (pages(memory.swapped_in_bytes), pages(memory.swapped_out_bytes));
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
        ("Decompressions:", 717_411 + 3 * swapped_in),
        ("Compressions:", 1_650_991 + 2 * swapped_out),
        ("Pageins:", 5_354_836 + swapped_in),
        ("Pageouts:", 14_016),
        ("Swapins:", swapped_in),
        ("Swapouts:", swapped_out),
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
    let runners = record::living(world);
    let models_bytes: u64 = runners.iter().map(|(record, _)| record.bytes).sum();
    let paging = Memory::now(world).pages_now;
    let used = runners
        .iter()
        .filter(|(_, state)| *state != 'T')
        .map(|(record, _)| record.phase.gpu_percent())
        .max()
        // A GPU whose memory is being paged waits as well.
        .map(|percent| if paging { percent / 6 } else { percent })
        .unwrap_or(0)
        .max(4);
    Reply::said(format!(
        "+-o AGXAcceleratorG16X  <class AGXAcceleratorG16X, id 0x1000004b1, registered, matched, active, busy 0 (191 ms), retain 74>\n    {{\n      \"IOClass\" = \"AGXAcceleratorG16X\"\n      \"PerformanceStatistics\" = {{\"In use system memory (driver)\"=0,\"Alloc system memory\"={},\"Tiler Utilization %\"={used},\"recoveryCount\"=0,\"lastRecoveryTime\"=0,\"Renderer Utilization %\"={used},\"TiledSceneBytes\"=0,\"Device Utilization %\"={used},\"SplitSceneCount\"=0,\"Allocated PB Size\"=53149696,\"In use system memory\"={}}}\n      \"model\" = \"Apple M4 Max\"\n      \"gpu-core-count\" = 40\n    }}\n",
        models_bytes + (1 << 30),
        models_bytes + (600 << 20),
    ))
}

/// `footprint --noCategories -f bytes -p PID`, of runners with their models'
/// memory.
pub fn footprint(world: &World, arguments: &[String]) -> Reply {
    let wanted = arguments.iter().skip_while(|word| *word != "-p").nth(1);
    let pid = wanted.and_then(|pid| pid.parse::<i32>().ok()).unwrap_or(0);
    let process = crate::process_table::of(world).into_iter().find(|process| process.pid == pid);
    let Some(process) = process else {
        let shown = wanted.map_or("", String::as_str);
        return Reply::failed(
            66,
            format!(
                "footprint: Unable to find pid for process matching '{shown}'\nfootprint: Unable to find any processes matching the supplied process names or pids (try as root?)"
            ),
        );
    };
    let own = record::of(world, pid).map_or(0, |record| record.footprint_bytes);
    let bytes = process.rss_bytes + own;
    let line = "=".repeat(70);
    Reply::said(format!(
        "{line}\n{} [{pid}]: 64-bit    Footprint: {bytes} B ({PAGE} bytes per page)\n{line}\nAuxiliary data:\n    phys_footprint: {bytes} B\n    phys_footprint_peak: {bytes} B\n",
        process.name()
    ))
}
