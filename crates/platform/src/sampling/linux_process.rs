//! A process of Linux: `/proc/PID/stat` in each look, its share of memory (`/proc/PID/smaps_rollup`) now and then.
//!
//! The kernel counts shares page by page and holds the process's memory lock meanwhile; a process that hangs in the
//! kernel may hold that lock for ever. So shares are counted by a thread of their own, and the longer a count took,
//! the longer the next one waits.

use super::pages_in_bytes;
use super::sample::{Flow, Footprint, FootprintKind, ProcessSample, RunState};
use stablehand_engine::Known;
use stablehand_engine::process::Identity;
use stablehand_engine::time::Awake;
use std::collections::HashMap;
use std::fs;
use std::io;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// A process's shares are counted at most this often.
const LEAST_GAP: Duration = Duration::from_secs(5);

/// A count that took *t* is not repeated within this many times *t*: for three processes that is 0.1 % of a core.
const GAP_PER_COST: u32 = 3_000;

/// How long a look waits in all for the first counts of processes that are new to it; later looks go on with the last
/// count.
const FIRST_COUNTS: Duration = Duration::from_millis(50);

/// The fields of `/proc/PID/stat` that matter (`proc(5)`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stat {
    /// Field 3.
    state: char,
    /// Field 12.
    major_faults: u64,
    /// Fields 14 and 15, in clock ticks.
    cpu_ticks: u64,
    /// Field 22: ticks between boot and the start.
    start_ticks: u64,
    /// Field 24.
    resident_pages: u64,
}

/// Looks at processes, and keeps the last count of each one's shares.
#[derive(Debug, Default)]
pub(super) struct LinuxProcesses {
    counts: HashMap<Identity, Count>,
}

/// The count of one process.
#[derive(Debug, Default)]
struct Count {
    last: Option<Footprint>,
    running: Option<oneshot::Receiver<Counted>>,
    next: Option<Instant>,
    refused: bool,
}

#[derive(Debug)]
struct Counted {
    bytes: Result<u64, io::ErrorKind>,
    cost: Duration,
}

impl LinuxProcesses {
    /// Looks at exactly these processes; `now` stamps what is counted, `scale` turns real CPU time into the machine's.
    pub(super) async fn read(&mut self, ids: &[Identity], now: Awake, scale: f64) -> Vec<ProcessSample> {
        self.counts.retain(|id, _| ids.contains(id));
        let first_counts_until = Instant::now() + FIRST_COUNTS;
        let mut samples = Vec::with_capacity(ids.len());
        for id in ids {
            samples.push(self.one(*id, now, scale, first_counts_until).await);
        }
        samples
    }

    async fn one(&mut self, id: Identity, now: Awake, scale: f64, first_counts_until: Instant) -> ProcessSample {
        let text = match fs::read(format!("/proc/{}/stat", id.pid)) {
            Ok(bytes) => bytes,
            // ESRCH: it ended between opening and reading.
            Err(error) if error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(3) => {
                return ProcessSample::gone(id);
            }
            Err(error) => return ProcessSample::unknown(id, &format!("the process cannot be looked at: {error}")),
        };
        let Some(stat) = parse_stat(&String::from_utf8_lossy(&text)) else {
            return ProcessSample::unknown(id, "the kernel's line for this process is not understood");
        };
        if stat.start_ticks != id.birth {
            return ProcessSample::gone(id);
        }
        let state = run_state(stat.state);
        let footprint = if state == Known::Is(RunState::Zombie) {
            Known::unknown("the process has ended and holds no memory")
        } else {
            Known::Is(self.footprint(id, now, stat.resident_pages, first_counts_until).await)
        };
        ProcessSample {
            id,
            state,
            cpu: cpu_time(stat.cpu_ticks, rustix::param::clock_ticks_per_second(), scale),
            footprint,
            read_back: Flow::so_far(pages_in_bytes(stat.major_faults)),
        }
    }

    async fn footprint(&mut self, id: Identity, now: Awake, resident_pages: u64, until: Instant) -> Footprint {
        let count = self.counts.entry(id).or_default();
        if !count.refused && count.running.is_none() && count.next.is_none_or(|next| next <= Instant::now()) {
            count.running = start_count(id.pid);
        }
        if let Some(running) = &mut count.running {
            let first = count.last.is_none() && count.next.is_none();
            let patience = if first { until.saturating_duration_since(Instant::now()) } else { Duration::ZERO };
            if let Ok(outcome) = tokio::time::timeout(patience, running).await {
                count.running = None;
                count.take(outcome.ok(), now);
            } else {
                // Only the first look waits.
                count.next.get_or_insert_with(Instant::now);
            }
        }
        let page_bytes = u64::try_from(rustix::param::page_size()).unwrap_or(u64::MAX);
        count.last.clone().unwrap_or_else(|| Footprint {
            bytes: resident_pages.saturating_mul(page_bytes),
            kind: FootprintKind::Resident,
            counted: now,
        })
    }
}

impl Count {
    fn take(&mut self, outcome: Option<Counted>, now: Awake) {
        let cost = outcome.as_ref().map_or(Duration::ZERO, |counted| counted.cost);
        self.next = Some(Instant::now() + LEAST_GAP.max(cost.saturating_mul(GAP_PER_COST)));
        match outcome.map(|counted| counted.bytes) {
            Some(Ok(bytes)) => {
                self.last = Some(Footprint { bytes, kind: FootprintKind::Proportional, counted: now });
            }
            // Another user's process stays closed to us, and an old kernel has no such file.
            Some(Err(io::ErrorKind::PermissionDenied | io::ErrorKind::NotFound)) => self.refused = true,
            Some(Err(_)) | None => {}
        }
    }
}

/// `None` when no thread could be started; the next look tries again.
fn start_count(pid: u32) -> Option<oneshot::Receiver<Counted>> {
    let (tell, told) = oneshot::channel();
    let count = move || {
        let began = Instant::now();
        let bytes = fs::read_to_string(format!("/proc/{pid}/smaps_rollup"))
            .map_err(|error| error.kind())
            .and_then(|text| parse_shares(&text).ok_or(io::ErrorKind::InvalidData));
        // Nobody listens any more when the process was dropped from the list.
        let _unheard = tell.send(Counted { bytes, cost: began.elapsed() });
    };
    std::thread::Builder::new().name("count-shares".to_owned()).spawn(count).ok().map(|_detached| told)
}

/// `Pss:             9437184 kB`.
fn parse_shares(text: &str) -> Option<u64> {
    let value = text.lines().find_map(|line| line.strip_prefix("Pss:"))?;
    value.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// The name stands in parentheses and may hold any bytes, parentheses too, so fields are counted from the last one
/// that closes.
fn parse_stat(text: &str) -> Option<Stat> {
    let (_, tail) = text.rsplit_once(')')?;
    let fields: Vec<&str> = tail.split_whitespace().collect();
    // `tail` starts with field 3.
    let number = |field: usize| fields.get(field - 3)?.parse::<u64>().ok();
    Some(Stat {
        state: fields.first()?.chars().next()?,
        major_faults: number(12)?,
        cpu_ticks: number(14)?.checked_add(number(15)?)?,
        start_ticks: number(22)?,
        resident_pages: number(24)?,
    })
}

fn run_state(letter: char) -> Known<RunState> {
    match letter {
        'R' | 'S' | 'D' | 'I' | 'W' | 'P' | 'K' => Known::Is(RunState::Running),
        'T' | 't' => Known::Is(RunState::Stopped),
        'Z' => Known::Is(RunState::Zombie),
        'X' | 'x' => Known::Is(RunState::Gone),
        other => Known::unknown(format!("the kernel tells a state {other:?} that is not known")),
    }
}

fn cpu_time(ticks: u64, ticks_per_second: u64, scale: f64) -> Known<Duration> {
    if ticks_per_second == 0 {
        return Known::unknown("the kernel does not tell the length of its ticks");
    }
    let whole = Duration::from_secs(ticks / ticks_per_second);
    let rest = Duration::from_nanos(ticks % ticks_per_second * 1_000_000_000 / ticks_per_second);
    super::scaled(whole + rest, scale)
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAT: &str = include_str!("../../fixtures/sampling/proc-stat.runner.txt");
    const SHARES: &str = include_str!("../../fixtures/sampling/smaps-rollup.runner.txt");

    #[test]
    fn fields_are_counted_from_the_end_of_the_name() {
        let expected = Stat {
            state: 'S',
            major_faults: 6_021,
            cpu_ticks: 712_345 + 40_210,
            start_ticks: 904_412,
            resident_pages: 3_145_728,
        };
        assert_eq!(parse_stat(STAT), Some(expected));
        assert_eq!(parse_stat(&STAT.replace("llama-server", "a) R 1 (b")), Some(expected));
        assert_eq!(parse_stat("1 (x) S 1 2 3"), None);
        assert_eq!(parse_stat(""), None);
    }

    #[test]
    fn the_share_is_the_plain_row() {
        assert_eq!(parse_shares(SHARES), Some(9_437_184 * 1024));
        assert_eq!(parse_shares("Rss: 1 kB\n"), None);
        assert_eq!(parse_shares("Pss: 18446744073709551615 kB\n"), None);
    }

    #[test]
    fn letters_become_states() {
        assert_eq!(run_state('D'), Known::Is(RunState::Running));
        assert_eq!(run_state('T'), Known::Is(RunState::Stopped));
        assert_eq!(run_state('Z'), Known::Is(RunState::Zombie));
        assert!(run_state('?').known().is_none());
    }

    #[test]
    fn ticks_become_time_of_the_machine() {
        assert_eq!(cpu_time(250, 100, 1.0), Known::Is(Duration::from_millis(2_500)));
        assert_eq!(cpu_time(250, 100, 60.0), Known::Is(Duration::from_secs(150)));
        assert!(cpu_time(1, 0, 1.0).known().is_none());
        assert!(cpu_time(u64::MAX, 100, 1e9).known().is_none());
    }

    #[test]
    fn a_costly_count_waits_longer_and_a_refused_one_is_not_repeated() {
        let mut count = Count::default();
        let cost = Duration::from_millis(100);
        count.take(Some(Counted { bytes: Ok(7), cost }), Awake::default());
        assert!(count.next.is_some_and(|next| next > Instant::now() + Duration::from_secs(290)));
        assert_eq!(count.last.as_ref().map(|last| (last.bytes, last.kind)), Some((7, FootprintKind::Proportional)));
        count.take(Some(Counted { bytes: Err(io::ErrorKind::PermissionDenied), cost }), Awake::default());
        assert!(count.refused);
        assert!(count.last.is_some());
    }

    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn a_real_process_is_seen_running_stopped_ended_and_gone() {
        let (_dir, machine) = crate::testing::world_folder("linux");
        let napper = crate::testing::Napper::start(&machine, "usr/local/bin/napper");
        let id = napper.id;
        let mut source = LinuxProcesses::default();
        let mut look = async || source.read(&[id], Awake::default(), 1.0).await.remove(0);
        let first = look().await;
        assert_eq!(first.state, Known::Is(RunState::Running));
        assert!(first.cpu.known().is_some_and(|cpu| *cpu < Duration::from_secs(5)));
        assert!(first.footprint.known().is_some_and(|footprint| footprint.bytes > 0));
        let pid = rustix::process::Pid::from_raw(i32::try_from(id.pid).unwrap()).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::STOP).unwrap();
        while look().await.state != Known::Is(RunState::Stopped) {
            tokio::task::yield_now().await;
        }
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
        while look().await.state != Known::Is(RunState::Zombie) {
            tokio::task::yield_now().await;
        }
        assert!(look().await.footprint.known().is_none());
        drop(napper);
        assert_eq!(look().await, ProcessSample::gone(id));
    }

    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn another_life_of_a_pid_is_not_the_one_that_was_asked_for() {
        let mine = crate::processes::identity(std::process::id()).unwrap();
        let other = Identity { birth: mine.birth + 1, ..mine };
        let samples = LinuxProcesses::default().read(&[mine, other], Awake::default(), 1.0).await;
        assert_eq!(samples[0].state, Known::Is(RunState::Running));
        let kind = samples[0].footprint.known().map(|footprint| footprint.kind);
        assert!(matches!(kind, Some(FootprintKind::Proportional | FootprintKind::Resident)));
        assert_eq!(samples[1].state, Known::Is(RunState::Gone));
    }
}
