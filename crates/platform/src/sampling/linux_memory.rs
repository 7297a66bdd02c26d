//! Memory of Linux: `/proc/meminfo`, `/proc/vmstat` (`proc(5)`) and pressure stall information
//! (`/proc/pressure/memory`).

use super::sample::{Flow, Memory, Pressure};
use crate::machine::Machine;
use stablehand_engine::Known;
use std::fs;

/// From this share of the last 10 s in which *some* task waited for memory, the pressure is a warning.
const SOME_WARNING_PERCENT: f64 = 10.0;

/// The same for the time in which *all* tasks waited.
const FULL_WARNING_PERCENT: f64 = 5.0;

/// From this share of the last 10 s in which *all* tasks waited for memory, the pressure is critical.
const FULL_CRITICAL_PERCENT: f64 = 20.0;

/// A number, or the phrase that tells why there is none.
type Told<T> = Result<T, String>;

/// Reads the three files.
pub(super) fn read(machine: &Machine) -> Memory {
    let text = |path: &str| {
        fs::read_to_string(machine.at(path)).map_err(|error| match machine.simulated() {
            Some(_) => format!("the simulated machine plays no {path}"),
            None => format!("{path} cannot be read: {error}"),
        })
    };
    let page_bytes = u64::try_from(rustix::param::page_size()).unwrap_or(u64::MAX);
    let stalls = text("/proc/pressure/memory");
    let mut memory = memory(&text("/proc/meminfo"), &text("/proc/vmstat"), &stalls, page_bytes);
    if machine.simulated().is_some() && memory.total_bytes.known().is_none() {
        memory.total_bytes = machine.memory_bytes();
    }
    memory
}

fn memory(meminfo: &Told<String>, vmstat: &Told<String>, stalls: &Told<String>, page_bytes: u64) -> Memory {
    let row = |name: &str| row_bytes(meminfo, name);
    let flow = |name: &str| Flow::so_far(Known::from(flow_bytes(vmstat, name, page_bytes)));
    Memory {
        total_bytes: Known::from(row("MemTotal")),
        used_bytes: Known::from(less(row("MemTotal"), row("MemAvailable"))),
        wired_bytes: Known::from(sum([row("Unevictable"), row("SUnreclaim"), row("KernelStack"), row("PageTables")])),
        compressed_bytes: Known::from(row("Zswap")),
        // What is shared between processes is counted as cache by the kernel, but cannot be given up.
        cached_bytes: Known::from(less(sum([row("Cached"), row("Buffers"), row("SReclaimable")]), row("Shmem"))),
        free_percent: Known::from(percent(row("MemAvailable"), row("MemTotal"))),
        swap_total_bytes: Known::from(row("SwapTotal")),
        swap_used_bytes: Known::from(less(row("SwapTotal"), row("SwapFree"))),
        swap_in: flow("pswpin"),
        swap_out: flow("pswpout"),
        decompressed: flow("zswpin"),
        pressure: Known::from(pressure(stalls)),
        limit: Known::Is(None),
    }
}

/// `MemTotal:       24684084 kB`.
fn row_bytes(meminfo: &Told<String>, name: &str) -> Told<u64> {
    let text = meminfo.as_ref().map_err(Clone::clone)?;
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    let value = value.ok_or_else(|| format!("/proc/meminfo shows no {name}"))?;
    let odd = || format!("/proc/meminfo shows {:?} for {name}", value.trim());
    let kib = value.trim().strip_suffix(" kB").ok_or_else(odd)?;
    kib.trim().parse::<u64>().ok().and_then(|kib| kib.checked_mul(1024)).ok_or_else(odd)
}

/// `pswpin 123`, in pages.
fn flow_bytes(vmstat: &Told<String>, name: &str, page_bytes: u64) -> Told<u64> {
    let text = vmstat.as_ref().map_err(Clone::clone)?;
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    let value = value.ok_or_else(|| format!("/proc/vmstat shows no {name}"))?;
    let pages = value.trim().parse::<u64>().ok().and_then(|pages| pages.checked_mul(page_bytes));
    pages.ok_or_else(|| format!("/proc/vmstat shows {:?} for {name}", value.trim()))
}

/// `some avg10=0.00 avg60=…` and `full avg10=…`, each a share of time in percent.
fn pressure(stalls: &Told<String>) -> Told<Pressure> {
    let text = stalls.as_ref().map_err(Clone::clone)?;
    let share = |kind: &str| {
        let line = text.lines().find(|line| line.split_whitespace().next() == Some(kind));
        let value = line.and_then(|line| line.split_whitespace().find_map(|word| word.strip_prefix("avg10=")));
        let share = value.and_then(|value| value.parse::<f64>().ok()).filter(|share| (0.0..=100.0).contains(share));
        share.ok_or_else(|| format!("/proc/pressure/memory shows no share for \"{kind}\""))
    };
    let (some, full) = (share("some")?, share("full")?);
    Ok(if full >= FULL_CRITICAL_PERCENT {
        Pressure::Critical
    } else if full >= FULL_WARNING_PERCENT || some >= SOME_WARNING_PERCENT {
        Pressure::Warning
    } else {
        Pressure::Normal
    })
}

fn sum<const N: usize>(parts: [Told<u64>; N]) -> Told<u64> {
    let mut total = 0_u64;
    for part in parts {
        total = total.saturating_add(part?);
    }
    Ok(total)
}

fn less(whole: Told<u64>, part: Told<u64>) -> Told<u64> {
    let (whole, part) = (whole?, part?);
    whole.checked_sub(part).ok_or_else(|| format!("/proc/meminfo shows a part of {part} bytes of {whole}"))
}

fn percent(part: Told<u64>, whole: Told<u64>) -> Told<u32> {
    let (part, whole) = (part?, whole?);
    if whole == 0 || part > whole {
        return Err(format!("/proc/meminfo shows {part} bytes of {whole} as available"));
    }
    let percent = u128::from(part) * 100 / u128::from(whole);
    u32::try_from(percent).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::world_folder;

    const MEMINFO: &str = include_str!("../../fixtures/sampling/meminfo.txt");
    const VMSTAT: &str = include_str!("../../fixtures/sampling/vmstat.txt");
    const CALM: &str =
        "some avg10=0.00 avg60=0.12 avg300=0.40 total=913\nfull avg10=0.00 avg60=0.02 avg300=0.11 total=402\n";
    const MIB: u64 = 1 << 20;

    fn read_texts(meminfo: &str, vmstat: &str, stalls: &str) -> Memory {
        memory(&Ok(meminfo.to_owned()), &Ok(vmstat.to_owned()), &Ok(stalls.to_owned()), 4096)
    }

    #[test]
    fn the_rows_of_meminfo_and_vmstat_are_taken_by_name() {
        let memory = read_texts(MEMINFO, VMSTAT, CALM);
        assert_eq!(memory.total_bytes, Known::Is(32_000 * MIB));
        assert_eq!(memory.used_bytes, Known::Is(24_000 * MIB));
        assert_eq!(memory.free_percent, Known::Is(25));
        assert_eq!(memory.wired_bytes, Known::Is((100 + 200 + 20 + 80) * MIB));
        assert_eq!(memory.compressed_bytes, Known::Is(300 * MIB));
        assert_eq!(memory.cached_bytes, Known::Is((7_000 + 500 + 250 - 150) * MIB));
        assert_eq!(memory.swap_total_bytes, Known::Is(8_000 * MIB));
        assert_eq!(memory.swap_used_bytes, Known::Is(1_500 * MIB));
        assert_eq!(memory.swap_in.total_bytes, Known::Is(1_000 * 4096));
        assert_eq!(memory.swap_out.total_bytes, Known::Is(2_500 * 4096));
        assert_eq!(memory.decompressed.total_bytes, Known::Is(40 * 4096));
        assert_eq!(memory.pressure, Known::Is(Pressure::Normal));
    }

    #[test]
    fn a_machine_without_swap_has_a_known_zero() {
        let text = MEMINFO.replace("8192000 kB", "0 kB").replace("6656000 kB", "0 kB");
        let memory = read_texts(&text, VMSTAT, CALM);
        assert_eq!((memory.swap_total_bytes, memory.swap_used_bytes), (Known::Is(0), Known::Is(0)));
    }

    #[test]
    fn missing_keys_are_unknown_by_name() {
        let text: String = MEMINFO
            .lines()
            .filter(|line| !line.starts_with("MemAvailable") && !line.starts_with("Zswap"))
            .map(|line| format!("{line}\n"))
            .collect();
        let memory = read_texts(&text, "nr_free_pages 1\n", "");
        assert_eq!(memory.used_bytes, Known::unknown("/proc/meminfo shows no MemAvailable"));
        assert_eq!(memory.compressed_bytes, Known::unknown("/proc/meminfo shows no Zswap"));
        assert_eq!(memory.swap_out.total_bytes, Known::unknown("/proc/vmstat shows no pswpout"));
        assert!(memory.pressure.known().is_none());
        assert_eq!(memory.total_bytes, Known::Is(32_000 * MIB));
    }

    #[test]
    fn odd_rows_and_extremes_are_unknown_and_never_wrap() {
        let text = format!("MemTotal: {} kB\nMemAvailable: 9 kB\nSwapTotal: 1 MB\nSwapFree: 5 kB\n", u64::MAX);
        let memory = read_texts(&text, "pswpin 18446744073709551615\npswpout -1\n", CALM);
        assert!(memory.total_bytes.known().is_none());
        assert!(memory.swap_used_bytes.known().is_none());
        assert!(memory.swap_in.total_bytes.known().is_none());
        assert!(memory.swap_out.total_bytes.known().is_none());
        let more_free_than_there_is = "MemTotal: 10 kB\nMemAvailable: 11 kB\n";
        assert!(read_texts(more_free_than_there_is, VMSTAT, CALM).free_percent.known().is_none());
    }

    #[test]
    fn stalls_become_levels_at_the_stated_shares() {
        let level = |some: &str, full: &str| {
            let text =
                format!("some avg10={some} avg60=0.00 avg300=0.00 total=1\nfull avg10={full} avg60=0.00 total=1\n");
            pressure(&Ok(text)).ok()
        };
        assert_eq!(level("9.99", "0.00"), Some(Pressure::Normal));
        assert_eq!(level("10.00", "0.00"), Some(Pressure::Warning));
        assert_eq!(level("6.00", "5.00"), Some(Pressure::Warning));
        assert_eq!(level("99.00", "19.99"), Some(Pressure::Warning));
        assert_eq!(level("99.00", "20.00"), Some(Pressure::Critical));
        assert_eq!(level("NaN", "0.00"), None);
        assert_eq!(level("1,5", "0.00"), None);
        assert_eq!(level("101.0", "0.00"), None);
    }

    #[test]
    fn a_world_shows_only_the_files_that_it_plays_and_never_those_of_its_host() {
        let (_dir, machine) = world_folder("linux");
        let memory = read(&machine);
        assert_eq!(memory.total_bytes, Known::Is(68_719_476_736));
        assert_eq!(memory.used_bytes, Known::unknown("the simulated machine plays no /proc/meminfo"));
        fs::create_dir_all(machine.at("/proc")).unwrap();
        fs::write(machine.at("/proc/meminfo"), MEMINFO).unwrap();
        assert_eq!(read(&machine).used_bytes, Known::Is(24_000 * MIB));
    }
}
