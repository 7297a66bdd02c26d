//! Memory of macOS: from the kernel's numbers, or from what `vm_stat(1)` and `sysctl(8)` print, to a [`Memory`].
//!
//! Both ways meet in [`VmCounts`] and [`Settings`], so that the arithmetic stands here once.

use super::sample::{Flow, Memory, Pressure};
use stablehand_engine::Known;

/// A number, or the phrase that tells why there is none.
pub(super) type Told<T> = Result<T, String>;

/// Names that [`parse_sysctl`] reads, to be given to `sysctl -i`.
pub(super) const SYSCTL_NAMES: [&str; 4] =
    ["hw.memsize", "vm.swapusage", "kern.memorystatus_vm_pressure_level", "kern.memorystatus_level"];

/// Counts of pages (`host_statistics64`, `mach/vm_statistics.h`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct VmCounts {
    /// Bytes in one page.
    pub(super) page_bytes: Told<u64>,
    /// Anonymous pages, `internal_page_count`.
    pub(super) internal: Told<u64>,
    /// File-backed pages, `external_page_count`.
    pub(super) external: Told<u64>,
    /// `purgeable_count`.
    pub(super) purgeable: Told<u64>,
    /// `wire_count`.
    pub(super) wired: Told<u64>,
    /// Pages that hold compressed ones, `compressor_page_count`.
    pub(super) compressor: Told<u64>,
    /// Since boot.
    pub(super) decompressions: Told<u64>,
    /// Since boot.
    pub(super) swapins: Told<u64>,
    /// Since boot.
    pub(super) swapouts: Told<u64>,
}

/// What `sysctl` tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Settings {
    /// `hw.memsize`.
    pub(super) total_bytes: Told<u64>,
    /// `vm.swapusage`.
    pub(super) swap: Told<Swap>,
    /// `kern.memorystatus_vm_pressure_level`.
    pub(super) pressure_level: Told<u32>,
    /// `kern.memorystatus_level`.
    pub(super) free_percent: Told<u32>,
}

/// `vm.swapusage`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Swap {
    pub(super) total_bytes: u64,
    pub(super) used_bytes: u64,
}

/// The numbers of a look, in the terms of the sample.
pub(super) fn memory(vm: &VmCounts, settings: &Settings) -> Memory {
    let bytes = |pages: &Told<u64>| bytes(&vm.page_bytes, pages);
    Memory {
        total_bytes: Known::from(settings.total_bytes.clone()),
        used_bytes: Known::from(used_bytes(vm)),
        wired_bytes: Known::from(bytes(&vm.wired)),
        compressed_bytes: Known::from(bytes(&vm.compressor)),
        cached_bytes: Known::from(sum(bytes(&vm.external), bytes(&vm.purgeable))),
        free_percent: Known::from(percent(&settings.free_percent)),
        swap_total_bytes: Known::from(settings.swap.clone()).map(|swap| swap.total_bytes),
        swap_used_bytes: Known::from(settings.swap.clone()).map(|swap| swap.used_bytes),
        swap_in: Flow::so_far(Known::from(bytes(&vm.swapins))),
        swap_out: Flow::so_far(Known::from(bytes(&vm.swapouts))),
        decompressed: Flow::so_far(Known::from(bytes(&vm.decompressions))),
        pressure: Known::from(pressure(&settings.pressure_level)),
        // No group of processes is limited on macOS.
        limit: Known::Is(None),
    }
}

/// Reads what `vm_stat` prints. Lines that are not known (newer systems print more) are passed over.
pub(super) fn parse_vm_stat(text: &str) -> VmCounts {
    let count = |label: &str| {
        let line = text.lines().find_map(|line| {
            let (name, value) = line.rsplit_once(':')?;
            (name.trim() == label).then_some(value)
        });
        let value = line.ok_or_else(|| format!("vm_stat shows no line \"{label}\""))?;
        let digits = value.trim().trim_end_matches('.');
        digits.parse().map_err(|_| format!("vm_stat shows {:?} for \"{label}\"", value.trim()))
    };
    VmCounts {
        page_bytes: page_bytes(text),
        internal: count("Anonymous pages"),
        external: count("File-backed pages"),
        purgeable: count("Pages purgeable"),
        wired: count("Pages wired down"),
        compressor: count("Pages occupied by compressor"),
        decompressions: count("Decompressions"),
        swapins: count("Swapins"),
        swapouts: count("Swapouts"),
    }
}

/// Reads what `sysctl` prints for [`SYSCTL_NAMES`].
pub(super) fn parse_sysctl(text: &str) -> Settings {
    let value = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.map(str::trim).ok_or_else(|| format!("sysctl shows no {name}"))
    };
    let number = |name: &str| {
        let text = value(name)?;
        text.parse::<u64>().map_err(|_| format!("sysctl shows {text:?} for {name}"))
    };
    let small =
        |name: &str| u32::try_from(number(name)?).map_err(|_| format!("sysctl shows an impossible number for {name}"));
    Settings {
        total_bytes: number("hw.memsize").and_then(not_zero),
        swap: value("vm.swapusage").and_then(parse_swap),
        pressure_level: small("kern.memorystatus_vm_pressure_level"),
        free_percent: small("kern.memorystatus_level"),
    }
}

/// Nothing is known, for one reason.
pub(super) fn no_counts(reason: &str) -> VmCounts {
    let told = || Err(reason.to_owned());
    VmCounts {
        page_bytes: told(),
        internal: told(),
        external: told(),
        purgeable: told(),
        wired: told(),
        compressor: told(),
        decompressions: told(),
        swapins: told(),
        swapouts: told(),
    }
}

/// Nothing is known, for one reason.
pub(super) fn no_settings(reason: &str) -> Settings {
    Settings {
        total_bytes: Err(reason.to_owned()),
        swap: Err(reason.to_owned()),
        pressure_level: Err(reason.to_owned()),
        free_percent: Err(reason.to_owned()),
    }
}

fn not_zero(total_bytes: u64) -> Told<u64> {
    if total_bytes == 0 { Err("the system names no main memory".to_owned()) } else { Ok(total_bytes) }
}

/// The page size stands in the header; that of a caller under translation differs from the kernel's.
fn page_bytes(text: &str) -> Told<u64> {
    let number = text.split_once("page size of ").and_then(|(_, rest)| rest.split_once(" bytes"));
    number
        .and_then(|(digits, _)| digits.parse().ok())
        .filter(|bytes| *bytes > 0)
        .ok_or_else(|| "vm_stat names no page size".to_owned())
}

fn bytes(page_bytes: &Told<u64>, pages: &Told<u64>) -> Told<u64> {
    let (page_bytes, pages) = (page_bytes.clone()?, pages.clone()?);
    pages.checked_mul(page_bytes).ok_or_else(|| format!("{pages} pages are more than can be counted in bytes"))
}

fn sum(one: Told<u64>, other: Told<u64>) -> Told<u64> {
    one?.checked_add(other?).ok_or_else(|| "the pages are more than can be counted in bytes".to_owned())
}

fn used_bytes(vm: &VmCounts) -> Told<u64> {
    let (internal, purgeable) = (vm.internal.clone()?, vm.purgeable.clone()?);
    let app = internal
        .checked_sub(purgeable)
        .ok_or_else(|| format!("more pages are purgeable ({purgeable}) than anonymous ({internal})"))?;
    let app_and_wired = sum(Ok(app), vm.wired.clone())?;
    bytes(&vm.page_bytes, &sum(Ok(app_and_wired), vm.compressor.clone()))
}

fn percent(told: &Told<u32>) -> Told<u32> {
    let percent = told.clone()?;
    if percent <= 100 { Ok(percent) } else { Err(format!("the system tells {percent} % free")) }
}

fn pressure(level: &Told<u32>) -> Told<Pressure> {
    let level = level.clone()?;
    Pressure::from_level(level).ok_or_else(|| format!("the system tells a pressure level {level} that is not known"))
}

/// `total = 2048.00M  used = 990.81M  free = 1057.19M  (encrypted)`.
fn parse_swap(text: &str) -> Told<Swap> {
    let amount = |name: &str| {
        let mut words = text.split_whitespace().skip_while(|word| *word != name);
        let told = match (words.next(), words.next(), words.next()) {
            (Some(_), Some("="), Some(amount)) => parse_amount(amount),
            _ => None,
        };
        told.ok_or_else(|| format!("sysctl shows {text:?} for vm.swapusage"))
    };
    Ok(Swap { total_bytes: amount("total")?, used_bytes: amount("used")? })
}

/// `990.81M`, or `990,81M` where the locale says so. Binary units.
fn parse_amount(text: &str) -> Option<u64> {
    let unit = text.chars().last().filter(char::is_ascii_alphabetic)?;
    let shift = match unit.to_ascii_uppercase() {
        'B' => 0,
        'K' => 10,
        'M' => 20,
        'G' => 30,
        'T' => 40,
        _ => return None,
    };
    let number = &text[..text.len() - 1];
    let (whole, fraction) = number.split_once(['.', ',']).unwrap_or((number, ""));
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || !digits(whole) || !digits(fraction) || fraction.len() > 6 {
        return None;
    }
    let unit_bytes = 1_u128 << shift;
    let scale = 10_u128.pow(u32::try_from(fraction.len()).ok()?);
    let fraction = if fraction.is_empty() { 0 } else { fraction.parse::<u128>().ok()? };
    let bytes = whole.parse::<u128>().ok()?.checked_mul(unit_bytes)?.checked_add(fraction * unit_bytes / scale)?;
    u64::try_from(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const USUAL: &str = include_str!("../../fixtures/sampling/vm_stat.64gb.txt");
    const NEWER: &str = include_str!("../../fixtures/sampling/vm_stat.tagged-memory.txt");
    const SETTINGS: &str = include_str!("../../fixtures/sampling/sysctl.warning.txt");

    const GIB: u64 = 1 << 30;

    #[test]
    fn used_memory_is_counted_as_activity_monitor_does() {
        let memory = memory(&parse_vm_stat(USUAL), &parse_sysctl(SETTINGS));
        // (1 310 720 − 65 536 + 524 288 + 262 144) pages of 16 KiB.
        assert_eq!(memory.used_bytes, Known::Is(31 * GIB));
        assert_eq!(memory.wired_bytes, Known::Is(8 * GIB));
        assert_eq!(memory.compressed_bytes, Known::Is(4 * GIB));
        assert_eq!(memory.cached_bytes, Known::Is(13 * GIB));
        assert_eq!(memory.total_bytes, Known::Is(64 * GIB));
        assert_eq!(memory.free_percent, Known::Is(38));
        assert_eq!(memory.pressure, Known::Is(Pressure::Warning));
        assert_eq!(memory.swap_total_bytes, Known::Is(6 * GIB));
        // 5 123.75 MiB.
        assert_eq!(memory.swap_used_bytes, Known::Is(5_372_641_280));
        assert_eq!(memory.swap_out.total_bytes, Known::Is(131_072 * 16_384));
        assert_eq!(memory.swap_in.total_bytes, Known::Is(65_536 * 16_384));
        assert_eq!(memory.decompressed.total_bytes, Known::Is(7_000_000 * 16_384));
        assert_eq!(memory.limit, Known::Is(None));
    }

    #[test]
    fn wider_columns_and_lines_of_tagged_memory_change_nothing() {
        let counts = parse_vm_stat(NEWER);
        assert_eq!(counts.internal, Ok(800_000));
        assert_eq!(counts.compressor, Ok(300_000));
        // "Tagged decompressions" and "Pages tagged compressed" are other lines.
        assert_eq!(counts.decompressions, Ok(1_500_000_000));
        assert_eq!(counts.swapouts, Ok(77_000_000));
    }

    #[test]
    fn a_missing_line_makes_only_what_needs_it_unknown() {
        let text: String =
            USUAL.lines().filter(|line| !line.starts_with("Pages purgeable")).map(|line| format!("{line}\n")).collect();
        let memory = memory(&parse_vm_stat(&text), &parse_sysctl("vm.swapusage: odd\nhw.memsize: 0\n"));
        assert_eq!(memory.used_bytes, Known::unknown("vm_stat shows no line \"Pages purgeable\""));
        assert_eq!(memory.wired_bytes, Known::Is(8 * GIB));
        assert!(memory.cached_bytes.known().is_none());
        assert!(memory.total_bytes.known().is_none());
        assert_eq!(memory.swap_used_bytes, Known::unknown("sysctl shows \"odd\" for vm.swapusage"));
        assert_eq!(memory.pressure, Known::unknown("sysctl shows no kern.memorystatus_vm_pressure_level"));
    }

    #[test]
    fn without_a_page_size_no_count_becomes_bytes() {
        let text = USUAL.replace("(page size of 16384 bytes)", "");
        let memory = memory(&parse_vm_stat(&text), &no_settings("not asked"));
        assert_eq!(memory.used_bytes, Known::unknown("vm_stat names no page size"));
        assert_eq!(memory.swap_out.total_bytes, Known::unknown("vm_stat names no page size"));
    }

    #[test]
    fn pages_of_4_kib_are_taken_from_the_header() {
        let text = USUAL.replace("16384", "4096");
        assert_eq!(memory(&parse_vm_stat(&text), &no_settings("")).wired_bytes, Known::Is(2 * GIB));
    }

    #[test]
    fn impossible_counts_are_unknown_and_never_wrap() {
        let counts = VmCounts { internal: Ok(1), purgeable: Ok(2), wired: Ok(u64::MAX), ..parse_vm_stat(USUAL) };
        let memory = memory(&counts, &Settings { free_percent: Ok(101), pressure_level: Ok(3), ..no_settings("") });
        assert!(memory.used_bytes.reason().is_some_and(|reason| reason.contains("purgeable")));
        assert!(memory.wired_bytes.reason().is_some_and(|reason| reason.contains("more than can be counted")));
        assert!(memory.free_percent.known().is_none());
        assert!(memory.pressure.known().is_none());
    }

    #[test]
    fn swap_is_read_with_a_point_and_with_a_comma() {
        assert_eq!(parse_amount("990.81M"), Some(1_038_939_586));
        assert_eq!(parse_amount("990,81M"), Some(1_038_939_586));
        assert_eq!(parse_amount("0.00M"), Some(0));
        assert_eq!(parse_amount("41984.00M"), Some(44_023_414_784));
        assert_eq!(parse_amount("2G"), Some(2 * GIB));
        for odd in ["", "M", ".5M", "1.024.00M", "12", "-1.00M", "1e3M", "99999999999999999999999.0T", "1.0X"] {
            assert_eq!(parse_amount(odd), None, "{odd:?}");
        }
        let zero = "vm.swapusage: total = 0,00M  used = 0,00M  free = 0,00M  (encrypted)\n";
        assert_eq!(parse_sysctl(zero).swap, Ok(Swap { total_bytes: 0, used_bytes: 0 }));
    }

    #[test]
    fn text_that_is_no_output_of_the_commands_tells_nothing() {
        for text in ["", "\u{fffd}\u{fffd}:", "Pages free", "Swapins: many.\nSwapouts:\n"] {
            let memory = memory(&parse_vm_stat(text), &parse_sysctl(text));
            assert!(memory.used_bytes.known().is_none() && memory.swap_out.total_bytes.known().is_none());
        }
    }
}
