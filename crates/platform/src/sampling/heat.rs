//! Whether the system has made the processor slower because of heat.
//!
//! macOS tells a thermal state to every process (`NSProcessInfo.thermalState`); from "serious" on it reduces
//! performance. Linux counts the moments at which Intel's processors throttled themselves
//! (`thermal_throttle/package_throttle_count`); others are not told.

use super::sample::Thermal;
use crate::machine::{Machine, Os};
use stablehand_engine::Known;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

const NO_HEAT: &str = "a simulated machine has no heat";

/// Asks for heat, with a memory of the counters.
#[derive(Debug, Default)]
pub(super) struct HeatSource {
    counters: Option<Vec<PathBuf>>,
    before: Option<u64>,
}

impl HeatSource {
    pub(super) fn read(&mut self, machine: &Machine) -> Thermal {
        if machine.simulated().is_some() {
            return Thermal { throttled: Known::unknown(NO_HEAT) };
        }
        let throttled = match machine.os() {
            Os::MacOs => mac_state(),
            Os::Linux => self.linux(Path::new("/sys/devices/system/cpu")),
        };
        Thermal { throttled }
    }

    fn linux(&mut self, folder: &Path) -> Known<bool> {
        let counters = self.counters.get_or_insert_with(|| one_per_package(folder));
        if counters.is_empty() {
            return Known::unknown("the kernel counts no throttling of this processor");
        }
        let mut total = 0_u64;
        for counter in counters {
            match fs::read_to_string(&*counter).ok().and_then(|text| text.trim().parse::<u64>().ok()) {
                Some(count) => total = total.saturating_add(count),
                None => return Known::unknown(format!("{} cannot be read", counter.display())),
            }
        }
        match self.before.replace(total) {
            Some(before) => Known::Is(total > before),
            None => Known::unknown("throttling shows in two looks, and this is the first"),
        }
    }
}

/// The counter of one processor of each package: all of a package count alike.
fn one_per_package(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let mut found = BTreeMap::new();
    for entry in entries.flatten() {
        let cpu = entry.path();
        let counter = cpu.join("thermal_throttle/package_throttle_count");
        let package = fs::read_to_string(cpu.join("topology/physical_package_id"));
        if let Ok(package) = package
            && counter.exists()
        {
            found.entry(package).or_insert(counter);
        }
    }
    found.into_values().collect()
}

/// The states are 0 nominal, 1 fair, 2 serious, 3 critical.
fn throttled_in_state(state: i64) -> Known<bool> {
    match state {
        0 | 1 => Known::Is(false),
        2 | 3 => Known::Is(true),
        other => Known::unknown(format!("macOS tells a thermal state {other} that is not known")),
    }
}

#[cfg(target_os = "macos")]
fn mac_state() -> Known<bool> {
    let state = objc2_foundation::NSProcessInfo::processInfo().thermalState();
    i64::try_from(state.0).map_or_else(|_| throttled_in_state(-1), throttled_in_state)
}

#[cfg(not(target_os = "macos"))]
fn mac_state() -> Known<bool> {
    throttled_in_state(-1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_serious_state_is_throttling_and_a_fair_one_is_not() {
        assert_eq!(throttled_in_state(0), Known::Is(false));
        assert_eq!(throttled_in_state(1), Known::Is(false));
        assert_eq!(throttled_in_state(2), Known::Is(true));
        assert_eq!(throttled_in_state(3), Known::Is(true));
        assert!(throttled_in_state(4).known().is_none());
    }

    #[test]
    fn a_growing_count_of_any_package_is_throttling() {
        let dir = tempfile::tempdir().unwrap();
        let write = |cpu: &str, file: &str, text: &str| {
            let path = dir.path().join(cpu).join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        for (cpu, package) in [("cpu0", "0\n"), ("cpu1", "0\n"), ("cpu2", "1\n")] {
            write(cpu, "topology/physical_package_id", package);
            write(cpu, "thermal_throttle/package_throttle_count", "5\n");
        }
        let mut heat = HeatSource::default();
        assert!(heat.linux(dir.path()).known().is_none());
        assert_eq!(heat.linux(dir.path()), Known::Is(false));
        write("cpu2", "thermal_throttle/package_throttle_count", "6\n");
        assert_eq!(heat.linux(dir.path()), Known::Is(true));
        assert_eq!(heat.counters.as_ref().map(Vec::len), Some(2));
        fs::remove_dir_all(dir.path().join("cpu2")).unwrap();
        assert!(heat.linux(dir.path()).known().is_none());
    }

    #[test]
    fn a_processor_without_counters_is_unknown() {
        let dir = tempfile::tempdir().unwrap();
        assert!(HeatSource::default().linux(dir.path()).known().is_none());
    }
}
