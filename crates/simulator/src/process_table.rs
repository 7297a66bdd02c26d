//! The real process table, cut down to one world.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, kill_process_group, test_kill_process_group};
use sysinfo::{ProcessRefreshKind, ProcessStatus, ProcessesToUpdate, System, UpdateKind};

use crate::world::World;
use crate::world::clock::real_unix_ms;

/// One live process.
#[derive(Clone, Debug)]
pub struct Process {
    /// Process id.
    pub pid: i32,
    /// Parent's process id.
    pub ppid: i32,
    /// Real user id.
    pub uid: u32,
    /// Path of the program file.
    pub executable: PathBuf,
    /// Argument vector, with the name it was called by.
    pub arguments: Vec<String>,
    /// Environment at its start; empty if it cannot be read.
    pub environment: Vec<String>,
    /// Resident memory.
    pub rss_bytes: u64,
    /// CPU time since its start.
    pub cpu_ms: u64,
    /// Real instant of its start.
    pub started_unix_ms: i64,
    /// One letter: R running, S sleeping, T stopped.
    pub state: char,
}

impl Process {
    /// File name of the program.
    pub fn name(&self) -> &str {
        self.executable.file_name().and_then(|name| name.to_str()).unwrap_or_default()
    }

    /// The first argument.
    pub fn verb(&self) -> &str {
        self.arguments.get(1).map_or("", String::as_str)
    }

    /// Whether this is the GUI of an Ollama.app.
    pub fn is_gui(&self) -> bool {
        self.executable.ends_with("Contents/MacOS/Ollama")
    }

    /// Whether this is an Ollama server.
    pub fn is_serve(&self) -> bool {
        self.name() == "ollama" && matches!(self.verb(), "serve" | "start")
    }

    /// Whether this is a model's process.
    pub fn is_runner(&self) -> bool {
        self.name() == "llama-server" || (self.name() == "ollama" && self.verb() == "runner")
    }

    /// The value after `flag` in the argument vector.
    pub fn argument_after(&self, flag: &str) -> Option<&str> {
        let at = self.arguments.iter().position(|argument| argument == flag)?;
        self.arguments.get(at + 1).map(String::as_str)
    }
}

/// Every live process of this user that can be read.
pub fn all() -> Vec<Process> {
    let Ok(mut system) = System::new() else {
        return Vec::new();
    };
    system.refresh_processes_specifics(
        ProcessesToUpdate::All,
        true,
        ProcessRefreshKind::nothing()
            .with_exe(UpdateKind::Always)
            .with_cmd(UpdateKind::Always)
            .with_environ(UpdateKind::Always)
            .with_user(UpdateKind::Always)
            .with_memory()
            .with_cpu()
            .without_tasks(),
    );
    let mut processes: Vec<Process> = system
        .processes()
        .values()
        .filter(|process| !matches!(process.status(), ProcessStatus::Zombie | ProcessStatus::Dead))
        .filter_map(|process| {
            let pid = i32::try_from(process.pid().as_u32()).ok()?;
            Some(Process {
                pid,
                ppid: process.parent().map_or(0, |parent| parent.as_u32() as i32),
                uid: process.user_id().map_or(u32::MAX, |uid| **uid),
                executable: without_deleted(process.exe()?),
                arguments: texts(process.cmd()),
                environment: texts(process.environ()),
                rss_bytes: process.memory(),
                cpu_ms: process.accumulated_cpu_time(),
                started_unix_ms: fine_start(pid).unwrap_or_else(|| process.start_time() as i64 * 1000),
                state: letter(process.status()),
            })
        })
        .collect();
    processes.sort_by_key(|process| process.pid);
    processes
}

/// The processes whose program lies in the world.
pub fn of(world: &World) -> Vec<Process> {
    all().into_iter().filter(|process| process.executable.starts_with(&world.dir)).collect()
}

/// Whether `pid` is a process that has not ended.
pub fn is_alive(pid: i32) -> bool {
    state_of(pid).is_some()
}

/// The letter of the state of `pid`; `None` if it has ended.
pub fn state_of(pid: i32) -> Option<char> {
    let pid = sysinfo::Pid::from_u32(u32::try_from(pid).ok()?);
    let mut system = System::new().ok()?;
    system.refresh_processes_specifics(
        ProcessesToUpdate::Some(&[pid]),
        true,
        ProcessRefreshKind::nothing().without_tasks(),
    );
    let status = system.process(pid)?.status();
    (!matches!(status, ProcessStatus::Zombie | ProcessStatus::Dead)).then(|| letter(status))
}

/// Sends a signal. A process that is gone is no error.
pub fn signal(pid: i32, signal: Signal) {
    if let Some(pid) = Pid::from_raw(pid) {
        let _ = kill_process(pid, signal);
    }
}

/// Sends a signal to a process group. A group that is gone is no error.
pub fn signal_group(leader: i32, signal: Signal) {
    if let Some(group) = Pid::from_raw(leader) {
        let _ = kill_process_group(group, signal);
    }
}

/// Whether a process group has members.
pub fn group_is_alive(leader: i32) -> bool {
    Pid::from_raw(leader).is_some_and(|group| test_kill_process_group(group).is_ok())
}

/// Waits for `pid` to end, up to a real time. True if it ended.
pub async fn wait_gone(pid: i32, limit: Duration) -> bool {
    let deadline = Instant::now() + limit;
    while is_alive(pid) {
        if Instant::now() > deadline {
            return false;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    true
}

fn without_deleted(path: &Path) -> PathBuf {
    match path.to_str().and_then(|text| text.strip_suffix(" (deleted)")) {
        Some(text) => PathBuf::from(text),
        None => path.to_owned(),
    }
}

fn texts(values: &[std::ffi::OsString]) -> Vec<String> {
    values.iter().map(|value| value.to_string_lossy().into_owned()).collect()
}

fn letter(status: ProcessStatus) -> char {
    match status {
        ProcessStatus::Run => 'R',
        ProcessStatus::Stop | ProcessStatus::Tracing => 'T',
        ProcessStatus::Zombie | ProcessStatus::Dead => 'Z',
        ProcessStatus::UninterruptibleDiskSleep => 'U',
        ProcessStatus::Idle
        | ProcessStatus::Sleep
        | ProcessStatus::Wakekill
        | ProcessStatus::Waking
        | ProcessStatus::Parked
        | ProcessStatus::LockBlocked
        | ProcessStatus::Suspended
        | ProcessStatus::Unknown(_) => 'S',
    }
}

/// The start of a process to the hundredth of a second where `/proc` tells it
/// (field 22 of `stat`, clock ticks since boot). `None` elsewhere.
fn fine_start(pid: i32) -> Option<i64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let after_name = stat.rsplit_once(')')?.1;
    let ticks: f64 = after_name.split_whitespace().nth(19)?.parse().ok()?;
    let uptime = std::fs::read_to_string("/proc/uptime").ok()?;
    let up_seconds: f64 = uptime.split_whitespace().next()?.parse().ok()?;
    let ticks_per_second = rustix::param::clock_ticks_per_second() as f64;
    let age_ms = (up_seconds - ticks / ticks_per_second) * 1000.0;
    Some(real_unix_ms() - age_ms as i64)
}
