//! The GPU: how much it may use, how much it uses, how busy it is.

use super::accelerator;
use super::sample::Gpu;
use crate::command::{self, Invocation};
use crate::machine::{Machine, Os};
use stablehand_engine::Known;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// The hidden argument with which our own program prints [`gpu_working_set_of_this_process`].
pub const WORKING_SET_ARGUMENT: &str = "gpu-working-set";

/// `ioreg` prints up to 130 KB and takes far longer than all the rest, so it is asked this seldom on a real machine.
const REAL_GAP: Duration = Duration::from_secs(5);

/// A world's command is asked at most this often, in real time, however fast the world runs.
const WORLD_GAP: Duration = Duration::from_millis(500);

/// How long a question that was not answered rests.
const RETRY_GAP: Duration = Duration::from_secs(600);

/// What the child and `ioreg` may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// Asks the graphics driver, with a memory.
#[derive(Debug)]
pub(super) struct GpuSource {
    /// Our own program, which asks Metal in a process of its own.
    program: Option<PathBuf>,
    used: Option<(Instant, accelerator::Use)>,
    limit: Option<(Instant, Known<u64>)>,
    #[cfg(target_os = "linux")]
    nvidia: super::nvidia::Nvidia,
}

impl GpuSource {
    pub(super) fn new(program: Option<PathBuf>) -> Self {
        Self {
            program,
            used: None,
            limit: None,
            #[cfg(target_os = "linux")]
            nvidia: super::nvidia::Nvidia::default(),
        }
    }

    pub(super) async fn read(&mut self, machine: &Machine) -> Gpu {
        match machine.os() {
            Os::MacOs => self.read_mac(machine).await,
            Os::Linux => self.read_linux(machine).await,
        }
    }

    async fn read_mac(&mut self, machine: &Machine) -> Gpu {
        let gap = if machine.simulated().is_some() { WORLD_GAP } else { REAL_GAP };
        let fresh = self.used.take().filter(|(when, _)| when.elapsed() < gap);
        let (when, used) = match fresh {
            Some(kept) => kept,
            None => {
                let used = accelerator_use(machine).await;
                (Instant::now(), used)
            }
        };
        self.used = Some((when, used.clone()));
        Gpu {
            working_set_limit_bytes: self.limit(machine).await,
            in_use_bytes: used.in_use_bytes,
            utilisation_percent: used.utilisation_percent,
        }
    }

    async fn limit(&mut self, machine: &Machine) -> Known<u64> {
        let kept = self.limit.take().filter(|(when, limit)| limit.known().is_some() || when.elapsed() < RETRY_GAP);
        let (when, limit) = match kept {
            Some(kept) => kept,
            None => {
                let limit = match &self.program {
                    _ if machine.simulated().is_some() => machine.gpu_working_set_bytes(),
                    Some(program) => gpu_working_set(machine, program).await,
                    None => Known::unknown("no program was named that asks Metal"),
                };
                (Instant::now(), limit)
            }
        };
        self.limit = Some((when, limit.clone()));
        limit
    }

    #[cfg(target_os = "linux")]
    async fn read_linux(&mut self, machine: &Machine) -> Gpu {
        if machine.simulated().is_some() {
            return simulated_linux(machine);
        }
        self.nvidia.read().await
    }

    #[cfg(not(target_os = "linux"))]
    async fn read_linux(&mut self, machine: &Machine) -> Gpu {
        simulated_linux(machine)
    }
}

/// How much memory the GPU may use, asked by a short-lived child: Metal keeps much memory and several threads in a
/// process that has once called it. The child is `program` with [`WORKING_SET_ARGUMENT`], and prints one number of
/// bytes. A number is kept for the life of this process.
///
/// In a simulated world the marker states it; on Linux it is unknown.
pub async fn gpu_working_set(machine: &Machine, program: &Path) -> Known<u64> {
    static ANSWER: OnceLock<u64> = OnceLock::new();
    if machine.simulated().is_some() {
        return machine.gpu_working_set_bytes();
    }
    if machine.os() == Os::Linux {
        return Known::unknown("Linux has no single limit for what a GPU may use");
    }
    if let Some(bytes) = ANSWER.get() {
        return Known::Is(*bytes);
    }
    let asked = ask_child(machine, program).await;
    if let Known::Is(bytes) = asked {
        return Known::Is(*ANSWER.get_or_init(|| bytes));
    }
    asked
}

/// What Metal tells this very process ([`MTLDevice.recommendedMaxWorkingSetSize`]); with several GPUs, the largest.
/// To be called in a child that ends at once; see [`gpu_working_set`].
///
/// [`MTLDevice.recommendedMaxWorkingSetSize`]: https://developer.apple.com/documentation/metal/mtldevice/recommendedmaxworkingsetsize
pub fn gpu_working_set_of_this_process() -> Known<u64> {
    metal_working_set()
}

async fn ask_child(machine: &Machine, program: &Path) -> Known<u64> {
    let invocation = Invocation::new(program).arg(WORKING_SET_ARGUMENT).timeout(PATIENCE);
    match command::run(machine, &invocation).await {
        Ok(output) if output.succeeded() => parse_working_set(&output.stdout),
        Ok(output) => Known::unknown(format!("the child that asks Metal failed: {}", output.said())),
        Err(error) => Known::Unknown(error.to_string()),
    }
}

fn parse_working_set(text: &str) -> Known<u64> {
    match text.trim().parse() {
        Ok(0) => Known::unknown("Metal names no limit"),
        Ok(bytes) => Known::Is(bytes),
        Err(_) => Known::unknown(format!("the child that asks Metal said {:?}", text.trim())),
    }
}

async fn accelerator_use(machine: &Machine) -> accelerator::Use {
    let ioreg = Invocation::new(machine.at("/usr/sbin/ioreg")).args(accelerator::ARGUMENTS).timeout(PATIENCE);
    match command::run(machine, &ioreg).await {
        Ok(output) if output.succeeded() => accelerator::parse(&output.stdout),
        Ok(output) => accelerator::no_use(&format!("ioreg failed: {}", output.said())),
        Err(error) => accelerator::no_use(&error.to_string()),
    }
}

fn simulated_linux(machine: &Machine) -> Gpu {
    const REASON: &str = "a simulated Linux machine plays no GPU";
    Gpu {
        working_set_limit_bytes: machine.gpu_working_set_bytes(),
        in_use_bytes: Known::unknown(REASON),
        utilisation_percent: Known::unknown(REASON),
    }
}

#[cfg(target_os = "macos")]
fn metal_working_set() -> Known<u64> {
    use objc2_metal::MTLDevice;
    let devices = objc2_metal::MTLCopyAllDevices().to_vec();
    let largest = devices.iter().map(|device| device.recommendedMaxWorkingSetSize()).max();
    match largest {
        Some(0) => Known::unknown("Metal names no limit"),
        Some(bytes) => Known::Is(bytes),
        None => Known::unknown("Metal finds no GPU"),
    }
}

#[cfg(not(target_os = "macos"))]
fn metal_working_set() -> Known<u64> {
    Known::unknown("Metal exists on macOS alone")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{fake_command, world_folder};

    #[test]
    fn a_child_says_one_number() {
        assert_eq!(parse_working_set("40132174643\n"), Known::Is(40_132_174_643));
        for odd in ["", "0\n", "-1", "37.4 GiB", "1 2"] {
            assert!(parse_working_set(odd).known().is_none(), "{odd:?}");
        }
    }

    #[tokio::test]
    async fn a_world_is_asked_through_its_own_ioreg_and_its_marker() {
        let (_dir, machine) = world_folder("macos");
        let busy = machine.root().join("busy.txt");
        std::fs::write(&busy, include_str!("../../fixtures/sampling/ioreg.busy.txt")).unwrap();
        let script = format!("echo \"$@\" >> '{}/asked'; cat '{}'", machine.root().display(), busy.display());
        fake_command(&machine, "usr/sbin/ioreg", &script);
        let mut source = GpuSource::new(None);
        let gpu = source.read(&machine).await;
        assert_eq!(gpu.in_use_bytes, Known::Is(25_769_803_776));
        assert_eq!(gpu.utilisation_percent, Known::Is(74));
        assert_eq!(gpu.working_set_limit_bytes, Known::Is(51_539_607_552));
        // Asked again at once, the command rests.
        assert_eq!(source.read(&machine).await, gpu);
        let asked = std::fs::read_to_string(machine.root().join("asked")).unwrap();
        assert_eq!(asked, "-r -d 1 -w 0 -c IOAccelerator\n");
    }

    #[tokio::test]
    async fn a_missing_command_is_the_reason() {
        let (_dir, machine) = world_folder("macos");
        let gpu = GpuSource::new(None).read(&machine).await;
        assert!(gpu.in_use_bytes.reason().is_some_and(|reason| reason.contains("ioreg could not be started")));
    }

    #[tokio::test]
    async fn a_child_that_fails_or_talks_is_no_answer() {
        let (_dir, machine) = world_folder("macos");
        let child = |name: &str, script: &str| {
            fake_command(&machine, name, script);
            machine.root().join(name)
        };
        let good = child("good", "test \"$1\" = gpu-working-set && echo 12345");
        assert_eq!(ask_child(&machine, &good).await, Known::Is(12_345));
        let bad = child("bad", "echo no GPU >&2; exit 1");
        assert!(ask_child(&machine, &bad).await.reason().is_some_and(|reason| reason.contains("no GPU")));
    }
}
