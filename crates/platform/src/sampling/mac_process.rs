//! A process of macOS: from what the kernel hands out (`sys/proc_info.h`, `sys/resource.h`) to a [`ProcessSample`].

use super::pages_in_bytes;
use super::sample::{Flow, Footprint, FootprintKind, ProcessSample, RunState};
use stablehand_engine::Known;
use stablehand_engine::process::Identity;
use stablehand_engine::time::Awake;
use std::io;
use std::time::Duration;

/// `p_stat` of a process that a signal stopped (`sys/proc.h`).
const SSTOP: u32 = 4;

/// `p_stat` of a process that waits for its parent to notice its end.
const SZOMB: u32 = 5;

/// Flag of `pbi_flags`: the process is working its way through `exit`.
const IN_EXIT: u32 = 4;

/// Why the kernel handed out nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// There is no such process.
    Gone,
    /// Another reason, as a phrase.
    Because(String),
}

/// The error number of "no such process" (`sys/errno.h`).
const ESRCH: i32 = 3;

/// The error number of "not permitted".
const EPERM: i32 = 1;

/// What the kernel meant by an error.
pub(super) fn refusal(error: &io::Error) -> Refusal {
    match error.raw_os_error() {
        Some(ESRCH) => Refusal::Gone,
        Some(EPERM) => Refusal::Because("macOS shows nothing of another user's process".to_owned()),
        Some(_) | None => Refusal::Because(format!("macOS does not show this process: {error}")),
    }
}

/// The part of `proc_bsdinfo` that matters; told of ended processes, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RawLife {
    /// `pbi_status`.
    pub(super) status: u32,
    /// `pbi_flags`.
    pub(super) flags: u32,
    /// `pbi_start_tvsec`.
    pub(super) started_unix_s: u64,
}

/// The part of `rusage_info_v4` that matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RawUsage {
    /// `ri_user_time` + `ri_system_time`, in units of [`Timebase`].
    pub(super) cpu_units: u64,
    /// `ri_phys_footprint`.
    pub(super) footprint_bytes: u64,
    /// `ri_pageins`.
    pub(super) pageins: u64,
}

/// `mach_timebase_info`: one unit is `numer / denom` nanoseconds, 125/3 on Apple silicon and 1/1 on Intel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Timebase {
    pub(super) numer: u32,
    pub(super) denom: u32,
}

/// What the kernel said of one process, as a sample.
pub(super) fn sample(
    id: Identity,
    life: Result<RawLife, Refusal>,
    usage: Result<RawUsage, Refusal>,
    timebase: Timebase,
    now: Awake,
    scale: f64,
) -> ProcessSample {
    let life = match life {
        Ok(life) => life,
        Err(Refusal::Gone) => return ProcessSample::gone(id),
        Err(Refusal::Because(reason)) => return ProcessSample::unknown(id, &reason),
    };
    if life.started_unix_s != id.birth {
        return ProcessSample::gone(id);
    }
    let state = match life.status {
        SZOMB => RunState::Zombie,
        SSTOP => RunState::Stopped,
        _ => RunState::Running,
    };
    let usage = match usage {
        Ok(usage) => usage,
        Err(refusal) => {
            let ending = state == RunState::Zombie || life.flags & IN_EXIT != 0;
            let reason = match refusal {
                Refusal::Gone if ending => "the process has ended and holds no memory".to_owned(),
                Refusal::Gone => "the process ended while it was looked at".to_owned(),
                Refusal::Because(reason) => reason,
            };
            return ProcessSample { state: Known::Is(state), ..ProcessSample::unknown(id, &reason) };
        }
    };
    ProcessSample {
        id,
        state: Known::Is(state),
        cpu: cpu_time(usage.cpu_units, timebase, scale),
        footprint: if state == RunState::Zombie {
            Known::unknown("the process has ended and holds no memory")
        } else {
            Known::Is(Footprint { bytes: usage.footprint_bytes, kind: FootprintKind::Physical, counted: now })
        },
        read_back: Flow::so_far(pages_in_bytes(usage.pageins)),
    }
}

fn cpu_time(units: u64, timebase: Timebase, scale: f64) -> Known<Duration> {
    if timebase.numer == 0 || timebase.denom == 0 {
        return Known::unknown("the kernel does not tell the length of its time units");
    }
    let nanoseconds = u128::from(units) * u128::from(timebase.numer) / u128::from(timebase.denom);
    match u64::try_from(nanoseconds) {
        Ok(nanoseconds) => super::scaled(Duration::from_nanos(nanoseconds), scale),
        Err(_) => Known::unknown("the kernel tells an impossible CPU time"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: Identity = Identity { pid: 4_242, birth: 1_790_000_000 };
    const SILICON: Timebase = Timebase { numer: 125, denom: 3 };
    const LIFE: RawLife = RawLife { status: 2, flags: 0x4004 & !IN_EXIT, started_unix_s: 1_790_000_000 };
    const USAGE: RawUsage = RawUsage { cpu_units: 24_000_000, footprint_bytes: 25 << 30, pageins: 31_337 };

    fn sampled(life: Result<RawLife, Refusal>, usage: Result<RawUsage, Refusal>) -> ProcessSample {
        sample(ID, life, usage, SILICON, Awake::default(), 1.0)
    }

    #[test]
    fn time_units_of_apple_silicon_are_no_nanoseconds() {
        let seen = sampled(Ok(LIFE), Ok(USAGE));
        assert_eq!(seen.state, Known::Is(RunState::Running));
        assert_eq!(seen.cpu, Known::Is(Duration::from_secs(1)));
        let footprint = seen.footprint.known().unwrap();
        assert_eq!((footprint.bytes, footprint.kind), (25 << 30, FootprintKind::Physical));
        let page_bytes = u64::try_from(rustix::param::page_size()).unwrap();
        assert_eq!(seen.read_back.total_bytes, Known::Is(31_337 * page_bytes));
        let intel = Timebase { numer: 1, denom: 1 };
        assert_eq!(cpu_time(2_000_000_000, intel, 1.0), Known::Is(Duration::from_secs(2)));
    }

    #[test]
    fn stopped_ended_and_reused_pids_are_told_apart() {
        assert_eq!(sampled(Ok(RawLife { status: SSTOP, ..LIFE }), Ok(USAGE)).state, Known::Is(RunState::Stopped));
        let ended = sampled(Ok(RawLife { status: SZOMB, ..LIFE }), Err(Refusal::Gone));
        assert_eq!(ended.state, Known::Is(RunState::Zombie));
        assert_eq!(ended.footprint, Known::unknown("the process has ended and holds no memory"));
        assert_eq!(sampled(Ok(RawLife { started_unix_s: 1, ..LIFE }), Ok(USAGE)), ProcessSample::gone(ID));
        assert_eq!(sampled(Err(Refusal::Gone), Ok(USAGE)), ProcessSample::gone(ID));
    }

    #[test]
    fn an_error_number_tells_an_end_from_a_refusal() {
        assert_eq!(refusal(&io::Error::from_raw_os_error(ESRCH)), Refusal::Gone);
        for error in [io::Error::from_raw_os_error(EPERM), io::Error::other("odd")] {
            assert!(matches!(refusal(&error), Refusal::Because(_)));
        }
    }

    #[test]
    fn a_refusal_is_a_reason_and_never_an_end() {
        let refused = || Refusal::Because("another user's process".to_owned());
        let seen = sampled(Err(refused()), Ok(USAGE));
        assert_eq!(seen.state, Known::unknown("another user's process"));
        let seen = sampled(Ok(LIFE), Err(refused()));
        assert_eq!(seen.state, Known::Is(RunState::Running));
        assert_eq!(seen.footprint, Known::unknown("another user's process"));
    }

    #[test]
    fn extremes_are_unknown_and_never_wrap() {
        assert!(cpu_time(u64::MAX, SILICON, 1.0).known().is_none());
        assert!(cpu_time(1, Timebase { numer: 1, denom: 0 }, 1.0).known().is_none());
        assert!(cpu_time(u64::MAX, Timebase { numer: 1, denom: 1 }, 1.0).known().is_some());
    }
}
