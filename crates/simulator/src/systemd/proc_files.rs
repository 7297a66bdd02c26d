//! The files of `/proc` that tell a Linux world's memory (`proc_meminfo(5)`,
//! `proc_vmstat(5)`, pressure stall information). The kernel would write them;
//! here systemd does, a few times a second.

use std::time::Duration;

use crate::machine_memory::{BASE_BYTES, Memory};
use crate::world::{World, write_whole};

/// Real time between two writings.
const EVERY: Duration = Duration::from_millis(200);

/// Writes them for ever. Awake time under pressure is summed up for `total=`.
pub async fn keep(world: &World) {
    let mut stalled_us = 0_u64;
    let mut last_awake_ms = world.clock.awake_ms();
    loop {
        let memory = Memory::now(world);
        let awake_ms = world.clock.awake_ms();
        let passed_ms = (awake_ms - last_awake_ms).max(0).unsigned_abs();
        last_awake_ms = awake_ms;
        let percent = stalled_percent(&memory);
        stalled_us += passed_ms * percent * 10;
        for (path, text) in [
            ("/proc/meminfo", meminfo(&memory)),
            ("/proc/vmstat", vmstat(&memory)),
            ("/proc/pressure/memory", pressure(percent, stalled_us)),
        ] {
            // A file that cannot be written keeps its last contents.
            let _ = write_whole(&world.path(path), text.as_bytes());
        }
        tokio::time::sleep(EVERY).await;
    }
}

/// Percent of the time in which some process waits for memory.
fn stalled_percent(memory: &Memory) -> u64 {
    match memory.pressure {
        1 if memory.pages_now => 4,
        1 => 0,
        2 => 34,
        _ => 71,
    }
}

fn meminfo(memory: &Memory) -> String {
    let kib = |bytes: u64| bytes >> 10;
    let swap_total = 40_u64 << 30;
    let cached = (6_u64 << 30) + memory.models_bytes / 2;
    let free = memory.total_bytes.saturating_sub(memory.models_bytes + BASE_BYTES).max(300 << 20);
    let available = if memory.pressure > 1 { 1_500 << 20 } else { (free + (4 << 30)).min(memory.total_bytes) };
    let rows: [(&str, u64); 18] = [
        ("MemTotal", memory.total_bytes),
        ("MemFree", free),
        ("MemAvailable", available),
        ("Buffers", 220 << 20),
        ("Cached", cached.min(memory.total_bytes - free)),
        ("SwapCached", memory.swap_bytes / 50),
        ("AnonPages", (3 << 30) + memory.models_bytes / 2),
        ("Mapped", memory.models_bytes / 2 + (400 << 20)),
        ("Shmem", 160 << 20),
        ("Unevictable", 90 << 20),
        ("KernelStack", 21 << 20),
        ("PageTables", 74 << 20),
        ("SReclaimable", 480 << 20),
        ("SUnreclaim", 310 << 20),
        ("Zswap", memory.swap_bytes / 12),
        ("Zswapped", memory.swap_bytes / 4),
        ("SwapTotal", swap_total),
        ("SwapFree", swap_total.saturating_sub(memory.swap_bytes)),
    ];
    rows.iter().map(|(name, bytes)| format!("{:<16}{:>8} kB\n", format!("{name}:"), kib(*bytes))).collect()
}

fn vmstat(memory: &Memory) -> String {
    let (swapped_in, swapped_out) = (memory.swapped_in_bytes, memory.swapped_out_bytes);
    // The kernel counts in pages of its own size, which is the host's.
    let page = rustix::param::page_size() as u64;
    format!(
        "pgpgin {}\npgpgout {}\npswpin {}\npswpout {}\nzswpin {}\nzswpout {}\npgfault 918273645\npgmajfault {}\n",
        (5 << 20) + (swapped_in >> 10),
        (2 << 20) + (swapped_out >> 10),
        swapped_in / page,
        swapped_out / page,
        swapped_in / (3 * page),
        swapped_out / (3 * page),
        40_118 + swapped_in / (8 * page),
    )
}

fn pressure(percent: u64, stalled_us: u64) -> String {
    let full = percent / 2;
    format!(
        "some avg10={percent}.00 avg60={percent}.00 avg300={percent}.00 total={stalled_us}\nfull avg10={full}.00 avg60={full}.00 avg300={full}.00 total={}\n",
        stalled_us / 2
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memory(pressure: u8, pages_now: bool) -> Memory {
        Memory {
            total_bytes: 64 << 30,
            models_bytes: 20 << 30,
            swap_bytes: 9 << 30,
            swapped_in_bytes: 4_096_000,
            swapped_out_bytes: 8_192_000,
            pressure,
            pages_now,
        }
    }

    #[test]
    fn meminfo_has_the_kernels_columns() {
        let text = meminfo(&memory(1, false));
        assert!(text.starts_with("MemTotal:       67108864 kB\nMemFree:"), "{text}");
        assert!(text.contains("SwapFree:       32505856 kB\n"), "{text}");
    }

    #[test]
    fn swapped_pages_are_counted() {
        let page = rustix::param::page_size() as u64;
        let expected = format!("pswpin {}\npswpout {}\n", 4_096_000 / page, 8_192_000 / page);
        assert!(vmstat(&memory(1, true)).contains(&expected));
    }

    #[test]
    fn pressure_follows_the_level() {
        assert!(pressure(stalled_percent(&memory(1, false)), 0).starts_with("some avg10=0.00 "));
        assert!(
            pressure(stalled_percent(&memory(4, true)), 7)
                .contains("some avg10=71.00 avg60=71.00 avg300=71.00 total=7")
        );
    }
}
