//! NVIDIA's GPUs, through the driver's own library (NVML), which is loaded when it is there.
//!
//! A driver whose GPU hangs may not answer for minutes. So a thread of its own asks it, and a driver that does not
//! answer in time is said to be silent; old numbers are not shown as new ones.

use super::sample::Gpu;
use nvml_wrapper::Nvml;
use nvml_wrapper::error::NvmlError;
use stablehand_engine::Known;
use std::sync::mpsc;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// The driver is asked at most this often; between, the last answer holds.
const GAP: Duration = Duration::from_secs(1);

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_millis(300);

/// A machine without a driver is looked at again this seldom.
const RETRY_GAP: Duration = Duration::from_secs(600);

/// What one GPU told.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Device {
    total_bytes: Result<u64, String>,
    used_bytes: Result<u64, String>,
    busy_percent: Result<u32, String>,
}

/// All GPUs, or why nothing is told of them.
type Answer = Result<Vec<Device>, Silence>;

/// Why nothing is told.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Silence {
    /// There is no driver, and there will hardly be one soon.
    NoDriver(String),
    /// The driver refused this time.
    Refused(String),
}

/// Asks NVIDIA's driver, with a memory.
#[derive(Debug, Default)]
pub(super) struct Nvidia {
    asker: Option<mpsc::Sender<oneshot::Sender<Answer>>>,
    pending: Option<oneshot::Receiver<Answer>>,
    last: Option<(Instant, Answer)>,
}

impl Nvidia {
    pub(super) async fn read(&mut self) -> Gpu {
        let gap = match &self.last {
            Some((_, Err(Silence::NoDriver(_)))) => RETRY_GAP,
            Some((_, Ok(_) | Err(Silence::Refused(_)))) | None => GAP,
        };
        if let Some((when, answer)) = &self.last
            && when.elapsed() < gap
            && self.pending.is_none()
        {
            return told(answer);
        }
        let mut waiting = match self.pending.take().or_else(|| self.ask()) {
            Some(waiting) => waiting,
            None => return unknown("no thread could be started that asks NVIDIA's driver"),
        };
        match tokio::time::timeout(PATIENCE, &mut waiting).await {
            Ok(answered) => {
                let answer = answered
                    .unwrap_or_else(|_ended| Err(Silence::Refused("the thread that asks has ended".to_owned())));
                let gpu = told(&answer);
                self.last = Some((Instant::now(), answer));
                gpu
            }
            Err(_elapsed) => {
                self.pending = Some(waiting);
                unknown("NVIDIA's driver does not answer")
            }
        }
    }

    fn ask(&mut self) -> Option<oneshot::Receiver<Answer>> {
        let (tell, told) = oneshot::channel();
        let tell = match &self.asker {
            Some(asker) => match asker.send(tell) {
                Ok(()) => return Some(told),
                Err(mpsc::SendError(tell)) => tell,
            },
            None => tell,
        };
        let (asker, asked) = mpsc::channel();
        let thread = std::thread::Builder::new().name("ask-nvidia".to_owned());
        let _detached = thread.spawn(move || answer_all(&asked)).ok()?;
        asker.send(tell).ok()?;
        self.asker = Some(asker);
        Some(told)
    }
}

/// The thread: ends when nobody asks any more, or when there is no driver.
fn answer_all(asked: &mpsc::Receiver<oneshot::Sender<Answer>>) {
    let driver = Nvml::init();
    for tell in asked {
        // Nobody listens any more when the sampler is gone.
        let _unheard = tell.send(match &driver {
            Ok(driver) => devices(driver),
            Err(error) => Err(Silence::NoDriver(no_driver(error))),
        });
        if driver.is_err() {
            return;
        }
    }
}

fn devices(driver: &Nvml) -> Answer {
    let refused = |error: NvmlError| format!("NVIDIA's driver says: {error}");
    let count = driver.device_count().map_err(|error| Silence::Refused(refused(error)))?;
    let one = |index: u32| {
        let device = driver.device_by_index(index).map_err(|error| Silence::Refused(refused(error)))?;
        let memory = device.memory_info().map_err(|error| {
            if matches!(error, NvmlError::NotSupported) {
                "this GPU shares main memory and tells none of its own".to_owned()
            } else {
                refused(error)
            }
        });
        Ok(Device {
            total_bytes: memory.as_ref().map(|memory| memory.total).map_err(Clone::clone),
            used_bytes: memory.as_ref().map(|memory| memory.used).map_err(Clone::clone),
            busy_percent: device.utilization_rates().map(|rates| rates.gpu).map_err(refused),
        })
    };
    (0..count).map(one).collect()
}

fn no_driver(error: &NvmlError) -> String {
    if matches!(error, NvmlError::LibloadingError(_) | NvmlError::LibraryNotFound | NvmlError::DriverNotLoaded) {
        "no NVIDIA driver here".to_owned()
    } else {
        format!("NVIDIA's driver cannot be used: {error}")
    }
}

/// Memory is added up; of the uses that are told the highest counts.
fn told(answer: &Answer) -> Gpu {
    let devices = match answer {
        Ok(devices) if devices.is_empty() => return unknown("NVIDIA's driver finds no GPU"),
        Ok(devices) => devices,
        Err(Silence::NoDriver(reason) | Silence::Refused(reason)) => return unknown(reason),
    };
    let sum = |pick: fn(&Device) -> &Result<u64, String>| {
        let mut total = 0_u64;
        for device in devices {
            match pick(device) {
                Ok(bytes) => total = total.saturating_add(*bytes),
                Err(reason) => return Known::unknown(reason),
            }
        }
        Known::Is(total)
    };
    let busiest = devices.iter().filter_map(|device| device.busy_percent.as_ref().ok()).max();
    let silent = devices.iter().find_map(|device| device.busy_percent.as_ref().err());
    Gpu {
        working_set_limit_bytes: sum(|device| &device.total_bytes),
        in_use_bytes: sum(|device| &device.used_bytes),
        utilisation_percent: match (busiest, silent) {
            (Some(percent), _) if *percent <= 100 => Known::Is(*percent),
            (Some(percent), _) => Known::unknown(format!("NVIDIA's driver tells a use of {percent} %")),
            (None, Some(reason)) => Known::unknown(reason),
            (None, None) => Known::unknown("NVIDIA's driver finds no GPU"),
        },
    }
}

fn unknown(reason: &str) -> Gpu {
    Gpu {
        working_set_limit_bytes: Known::unknown(reason),
        in_use_bytes: Known::unknown(reason),
        utilisation_percent: Known::unknown(reason),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device(total_bytes: u64, used_bytes: u64, busy_percent: u32) -> Device {
        Device { total_bytes: Ok(total_bytes), used_bytes: Ok(used_bytes), busy_percent: Ok(busy_percent) }
    }

    #[test]
    fn memory_of_all_gpus_is_added_and_the_busiest_counts() {
        let gpu = told(&Ok(vec![device(24 << 30, 20 << 30, 3), device(24 << 30, 1 << 30, 98)]));
        assert_eq!(gpu.working_set_limit_bytes, Known::Is(48 << 30));
        assert_eq!(gpu.in_use_bytes, Known::Is(21 << 30));
        assert_eq!(gpu.utilisation_percent, Known::Is(98));
    }

    #[test]
    fn a_gpu_that_shares_main_memory_tells_only_how_busy_it_is() {
        let reason = "this GPU shares main memory and tells none of its own".to_owned();
        let shared = Device { total_bytes: Err(reason.clone()), used_bytes: Err(reason.clone()), busy_percent: Ok(7) };
        let gpu = told(&Ok(vec![shared]));
        assert_eq!(gpu.in_use_bytes, Known::Unknown(reason));
        assert_eq!(gpu.utilisation_percent, Known::Is(7));
    }

    #[test]
    fn no_gpu_and_impossible_numbers_are_unknown() {
        assert!(told(&Ok(Vec::new())).in_use_bytes.known().is_none());
        assert!(told(&Ok(vec![device(1, 1, 4_000)])).utilisation_percent.known().is_none());
        assert_eq!(no_driver(&NvmlError::DriverNotLoaded), "no NVIDIA driver here");
    }

    #[tokio::test]
    async fn a_driver_that_does_not_answer_is_said_to_be_silent() {
        let (asker, _held_but_never_answered) = mpsc::channel();
        let mut nvidia = Nvidia { asker: Some(asker), pending: None, last: None };
        assert_eq!(nvidia.read().await.in_use_bytes, Known::unknown("NVIDIA's driver does not answer"));
        assert!(nvidia.pending.is_some());
    }

    #[tokio::test]
    async fn a_machine_is_asked_without_a_fault_whether_or_not_it_has_a_driver() {
        let mut nvidia = Nvidia::default();
        let gpu = nvidia.read().await;
        assert_ne!(gpu.in_use_bytes, Known::Is(0));
        assert_ne!(gpu.working_set_limit_bytes, Known::Is(0));
        assert_eq!(nvidia.read().await.working_set_limit_bytes, gpu.working_set_limit_bytes);
    }
}
