//! Main memory and swap of whatever machine this is.

use super::linux_limit::LimitSource;
use super::mac_memory::{self, SYSCTL_NAMES, Settings, VmCounts};
use super::rates::Rates;
use super::sample::Memory;
use super::{linux_memory, mac_kernel};
use crate::command::{self, Invocation};
use crate::machine::{Machine, Os};
use stablehand_engine::process::Identity;
use stablehand_engine::time::Awake;
use std::time::{Duration, Instant};

/// A world's commands are asked at most this often, in real time, however fast the world runs; between, the last
/// answer holds.
const WORLD_GAP: Duration = Duration::from_millis(200);

/// What each command of a world may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// Reads memory, with a memory of the counters.
#[derive(Debug, Default)]
pub(super) struct MemorySource {
    rates: Rates,
    limit: LimitSource,
    kept: Option<(Instant, Memory)>,
}

impl MemorySource {
    pub(super) async fn read(&mut self, machine: &Machine, now: Awake, ids: &[Identity]) -> Memory {
        let mut memory = match (machine.os(), machine.simulated()) {
            (Os::Linux, _) => {
                let mut memory = linux_memory::read(machine);
                let pids: Vec<u32> = ids.iter().map(|id| id.pid).collect();
                memory.limit = self.limit.read(machine, &pids);
                memory
            }
            (Os::MacOs, None) => mac_memory::memory(&mac_kernel::vm_counts(), &mac_kernel::settings()),
            (Os::MacOs, Some(_)) => {
                if let Some((when, kept)) = &self.kept
                    && when.elapsed() < WORLD_GAP
                {
                    return kept.clone();
                }
                let (counts, settings) = tokio::join!(asked_vm_stat(machine), asked_sysctl(machine));
                mac_memory::memory(&counts, &settings)
            }
        };
        self.rates.fill(now, &mut memory);
        if machine.os() == Os::MacOs && machine.simulated().is_some() {
            self.kept = Some((Instant::now(), memory.clone()));
        }
        memory
    }
}

async fn asked_vm_stat(machine: &Machine) -> VmCounts {
    let vm_stat = Invocation::new(machine.at("/usr/bin/vm_stat")).timeout(PATIENCE);
    match command::run(machine, &vm_stat).await {
        Ok(output) if output.succeeded() => mac_memory::parse_vm_stat(&output.stdout),
        Ok(output) => mac_memory::no_counts(&format!("vm_stat failed: {}", output.said())),
        Err(error) => mac_memory::no_counts(&error.to_string()),
    }
}

/// `-i` leaves out names that this system does not know.
async fn asked_sysctl(machine: &Machine) -> Settings {
    let sysctl = Invocation::new(machine.at("/usr/sbin/sysctl")).arg("-i").args(SYSCTL_NAMES).timeout(PATIENCE);
    match command::run(machine, &sysctl).await {
        Ok(output) if output.succeeded() => mac_memory::parse_sysctl(&output.stdout),
        Ok(output) => mac_memory::no_settings(&format!("sysctl failed: {}", output.said())),
        Err(error) => mac_memory::no_settings(&error.to_string()),
    }
}
