//! What the machine and known processes use at this moment.
//!
//! A [`Sampler`] reads memory, GPU, heat and exactly the processes that it is given: the process table is not gone
//! through. What is costly (`ioreg`, shares of a large process, control groups) is read less often than it is asked
//! for, so that a look a second stays far below a hundredth of a core; each such value says so where it is declared.
//!
//! On a real Mac the kernel is asked ([`mac_kernel`]). A simulated Mac has no kernel, so its commands are asked, and
//! its processes are real ones of whatever plays it.

mod accelerator;
mod gpu;
mod heat;
mod linux_limit;
mod linux_memory;
mod linux_process;
mod mac_kernel;
mod mac_memory;
mod mac_process;
mod memory;
#[cfg(target_os = "linux")]
mod nvidia;
mod pace;
mod rates;
mod sample;

pub use gpu::{WORKING_SET_ARGUMENT, gpu_working_set, gpu_working_set_of_this_process};
pub use pace::next_interval;
pub use sample::{
    Flow, Footprint, FootprintKind, Gpu, Memory, MemoryLimit, Pressure, ProcessSample, RunState, Sample, Thermal,
};

use crate::machine::Machine;
use gpu::GpuSource;
use heat::HeatSource;
use linux_process::LinuxProcesses;
use memory::MemorySource;
use rates::ReadBack;
use stablehand_engine::Known;
use stablehand_engine::process::Identity;
use stablehand_engine::time::Awake;
use std::path::PathBuf;
use std::time::Duration;

/// Takes samples of one machine.
#[derive(Debug)]
pub struct Sampler {
    machine: Machine,
    memory: MemorySource,
    gpu: GpuSource,
    heat: HeatSource,
    processes: LinuxProcesses,
    read_back: ReadBack,
}

impl Sampler {
    /// A sampler that has seen nothing yet: its first sample has no rates.
    pub fn new(machine: Machine) -> Self {
        Self {
            machine,
            memory: MemorySource::default(),
            gpu: GpuSource::new(None),
            heat: HeatSource::default(),
            processes: LinuxProcesses::default(),
            read_back: ReadBack::default(),
        }
    }

    /// Names our own program, which is started with [`WORKING_SET_ARGUMENT`] to ask Metal (see [`gpu_working_set`]).
    /// Without one, a real Mac's limit of the GPU stays unknown.
    #[must_use]
    pub fn asking_metal_through(mut self, program: PathBuf) -> Self {
        self.gpu = GpuSource::new(Some(program));
        self
    }

    /// Looks at the machine and at exactly these processes.
    pub async fn sample(&mut self, pids: &[Identity]) -> Sample {
        let at = self.machine.clock().now();
        let memory = self.memory.read(&self.machine, at.awake, pids).await;
        let mut processes = self.processes(pids, at.awake).await;
        self.read_back.fill(at.awake, &mut processes);
        Sample {
            at,
            memory,
            gpu: self.gpu.read(&self.machine).await,
            thermal: self.heat.read(&self.machine),
            processes,
        }
    }

    async fn processes(&mut self, pids: &[Identity], now: Awake) -> Vec<ProcessSample> {
        let scale = time_scale(&self.machine);
        if cfg!(target_os = "macos") {
            let timebase = mac_kernel::timebase();
            let one = |id: &Identity| {
                let (life, usage) = (mac_kernel::life(id.pid), mac_kernel::usage(id.pid));
                mac_process::sample(*id, life, usage, timebase, now, scale)
            };
            return pids.iter().map(one).collect();
        }
        self.processes.read(pids, now, scale).await
    }
}

/// Pages in bytes.
fn pages_in_bytes(pages: u64) -> Known<u64> {
    let page_bytes = u64::try_from(rustix::param::page_size()).ok();
    page_bytes
        .and_then(|bytes| pages.checked_mul(bytes))
        .map_or_else(|| Known::unknown("the kernel tells an impossible number of pages"), Known::Is)
}

/// Seconds of the machine in one real second. What the kernel tells of a process is real time.
fn time_scale(machine: &Machine) -> f64 {
    // Long enough that the rounding to whole nanoseconds does not matter.
    const SPAN: Duration = Duration::from_secs(1_000_000);
    SPAN.as_secs_f64() / machine.clock().real_span(SPAN).as_secs_f64()
}

/// A real span in the machine's time.
fn scaled(real: Duration, scale: f64) -> Known<Duration> {
    if scale == 1.0 {
        return Known::Is(real);
    }
    Duration::try_from_secs_f64(real.as_secs_f64() * scale)
        .map_or_else(|error| Known::unknown(format!("the CPU time cannot be told: {error}")), Known::Is)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::processes;
    use crate::testing::{Napper, fake_command, world_at_speed, world_folder};

    const VM_STAT: &str = include_str!("../../fixtures/sampling/vm_stat.64gb.txt");
    const SYSCTL: &str = include_str!("../../fixtures/sampling/sysctl.warning.txt");

    fn plays_memory(machine: &Machine) {
        let root = machine.root().display();
        std::fs::write(machine.root().join("vm_stat.txt"), VM_STAT).unwrap();
        std::fs::write(machine.root().join("sysctl.txt"), SYSCTL).unwrap();
        fake_command(machine, "usr/bin/vm_stat", &format!("cat '{root}/vm_stat.txt'"));
        fake_command(machine, "usr/sbin/sysctl", &format!("echo \"$@\" > '{root}/asked'; cat '{root}/sysctl.txt'"));
    }

    #[tokio::test]
    async fn a_simulated_mac_is_asked_through_its_commands_and_its_processes_are_real() {
        let (_dir, machine) = world_folder("macos");
        plays_memory(&machine);
        let napper = Napper::start(&machine, "usr/local/bin/napper");
        let mut sampler = Sampler::new(machine.clone());
        let sample = sampler.sample(&[napper.id]).await;
        assert_eq!(sample.memory.used_bytes, Known::Is(31 << 30));
        assert_eq!(sample.memory.pressure, Known::Is(Pressure::Warning));
        assert!(sample.memory.swap_out.bytes_per_s.known().is_none());
        assert_eq!(sample.memory.limit, Known::Is(None));
        assert_eq!(sample.gpu.working_set_limit_bytes, Known::Is(51_539_607_552));
        assert!(sample.gpu.utilisation_percent.known().is_none());
        assert!(sample.thermal.throttled.known().is_none());
        assert_eq!(sample.processes.len(), 1);
        assert_eq!(sample.processes[0].state, Known::Is(RunState::Running));
        let asked = std::fs::read_to_string(machine.root().join("asked")).unwrap();
        assert!(asked.starts_with("-i hw.memsize vm.swapusage"), "{asked}");
    }

    #[tokio::test]
    async fn a_simulated_mac_without_commands_tells_reasons_and_no_zeros() {
        let (_dir, machine) = world_folder("macos");
        let memory = Sampler::new(machine).sample(&[]).await.memory;
        assert!(memory.used_bytes.reason().is_some_and(|reason| reason.contains("vm_stat could not be started")));
        assert!(memory.swap_used_bytes.reason().is_some_and(|reason| reason.contains("sysctl could not be started")));
        assert!(memory.pressure.known().is_none());
    }

    #[tokio::test]
    async fn this_very_machine_tells_its_memory() {
        let Ok(machine) = Machine::detect() else { return };
        if machine.simulated().is_some() {
            return;
        }
        let mine = processes::identity(std::process::id()).unwrap();
        let mut sampler = Sampler::new(machine);
        let first = sampler.sample(&[mine]).await;
        let total = first.memory.total_bytes.known().copied().unwrap();
        assert!(first.memory.used_bytes.known().is_some_and(|used| *used > 0 && *used <= total));
        assert_eq!(first.processes[0].state, Known::Is(RunState::Running));
        while sampler.machine.clock().awake() == first.at.awake {
            tokio::task::yield_now().await;
        }
        let second = sampler.sample(&[mine]).await;
        assert!(second.memory.swap_out.bytes_per_s.known().is_some());
    }

    #[test]
    fn cpu_time_is_told_in_the_machines_own_time() {
        let (_dir, machine) = world_at_speed("macos", 60.0);
        let scale = time_scale(&machine);
        assert!((scale - 60.0).abs() < 1e-6);
        assert!(scaled(Duration::from_secs(2), scale).known().is_some_and(|cpu| cpu.as_secs() >= 119));
        assert!(scaled(Duration::MAX, scale).known().is_none());
    }
}
