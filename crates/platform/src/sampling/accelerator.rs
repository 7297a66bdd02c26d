//! What `ioreg -r -d 1 -w 0 -c IOAccelerator` tells of GPUs (`ioreg(8)`).

use stablehand_engine::Known;

/// Arguments that make `ioreg` print every accelerator with its statistics on one line each.
pub(super) const ARGUMENTS: [&str; 7] = ["-r", "-d", "1", "-w", "0", "-c", "IOAccelerator"];

/// The statistics stand under this key; the same names appear again in the legend of another key.
const STATISTICS: &str = "\"PerformanceStatistics\" = {";

/// Use of all GPUs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Use {
    /// Memory of all of them.
    pub(super) in_use_bytes: Known<u64>,
    /// Of the busiest.
    pub(super) utilisation_percent: Known<u32>,
}

/// Reads `ioreg`'s output.
pub(super) fn parse(text: &str) -> Use {
    let statistics: Vec<&str> = text.lines().filter_map(|line| line.trim_start().strip_prefix(STATISTICS)).collect();
    if statistics.is_empty() {
        return no_use("ioreg shows no accelerator with statistics");
    }
    let name = text.lines().find_map(class).unwrap_or("this GPU");
    let values = |key: &str| -> Vec<u64> { statistics.iter().filter_map(|line| value(line, key)).collect() };
    let memory = values("In use system memory");
    let in_use_bytes = if memory.is_empty() {
        Known::unknown(format!("{name} does not tell how much memory it uses"))
    } else {
        let total = memory.iter().try_fold(0_u64, |sum, bytes| sum.checked_add(*bytes));
        total.map_or_else(|| Known::unknown(format!("{name} tells impossible numbers")), Known::Is)
    };
    let utilisation_percent = match values("Device Utilization %").into_iter().max() {
        None => Known::unknown(format!("{name} does not tell how busy it is")),
        Some(percent) => match u32::try_from(percent) {
            Ok(percent) if percent <= 100 => Known::Is(percent),
            Ok(_) | Err(_) => Known::unknown(format!("{name} tells a use of {percent} %")),
        },
    };
    Use { in_use_bytes, utilisation_percent }
}

/// Nothing is known, for one reason.
pub(super) fn no_use(reason: &str) -> Use {
    Use { in_use_bytes: Known::unknown(reason), utilisation_percent: Known::unknown(reason) }
}

/// `+-o AGXAcceleratorG16X  <class …`.
fn class(line: &str) -> Option<&str> {
    line.trim_start().strip_prefix("+-o ")?.split_whitespace().next()
}

/// The value of exactly this key in `"key"=1,"other"={…},…}`. `In use system memory (driver)` is another key.
fn value(statistics: &str, key: &str) -> Option<u64> {
    let mut rest = statistics;
    while let Some((_, from_name)) = rest.split_once('"') {
        let (name, after) = from_name.split_once('"')?;
        rest = after;
        if name == key
            && let Some(number) = after.strip_prefix('=')
        {
            let digits = number.bytes().take_while(u8::is_ascii_digit).count();
            return number[..digits].parse().ok();
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    const BUSY: &str = include_str!("../../fixtures/sampling/ioreg.busy.txt");
    const VIRTUAL: &str = include_str!("../../fixtures/sampling/ioreg.virtual.txt");

    #[test]
    fn the_plain_key_is_read_and_not_the_drivers() {
        let expected = Use { in_use_bytes: Known::Is(25_769_803_776), utilisation_percent: Known::Is(74) };
        assert_eq!(parse(BUSY), expected);
    }

    #[test]
    fn a_virtual_gpu_tells_its_memory_but_not_how_busy_it_is() {
        let found = parse(VIRTUAL);
        assert_eq!(found.in_use_bytes, Known::Is(41_943_040));
        assert_eq!(found.utilisation_percent, Known::unknown("AppleParavirtGPU does not tell how busy it is"));
    }

    #[test]
    fn memory_of_two_gpus_is_added_and_the_busiest_counts() {
        let second = BUSY.replace("Utilization %\"=74", "Utilization %\"=12");
        let found = parse(&format!("{second}{BUSY}"));
        assert_eq!(found.in_use_bytes, Known::Is(2 * 25_769_803_776));
        assert_eq!(found.utilisation_percent, Known::Is(74));
    }

    #[test]
    fn no_output_and_impossible_numbers_are_unknown() {
        assert!(parse("").in_use_bytes.known().is_none());
        let legend: String = BUSY.lines().filter(|line| !line.contains("PerformanceStatistics")).collect();
        assert!(parse(&legend).in_use_bytes.known().is_none());
        let odd = BUSY.replace("Utilization %\"=74", "Utilization %\"=7400000000");
        assert!(parse(&odd).utilisation_percent.reason().is_some_and(|reason| reason.contains("7400000000")));
        let odd = BUSY.replace("memory\"=25769803776", "memory\"=");
        assert!(parse(&odd).in_use_bytes.known().is_none());
        let cut = &BUSY[..BUSY.find("Device Utilization").unwrap() + 6];
        assert!(parse(cut).utilisation_percent.known().is_none());
    }

    #[test]
    fn a_legend_of_a_hundred_thousand_bytes_is_passed_over() {
        let legend = "(1,6442450945,\"In use system memory\"),".repeat(4_000);
        let text = format!("      \"IOReportLegend\" = ({legend})\n{BUSY}");
        assert_eq!(parse(&text).in_use_bytes, Known::Is(25_769_803_776));
    }
}
