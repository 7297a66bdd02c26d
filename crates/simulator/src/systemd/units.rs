//! The life of a unit's process.

use std::os::unix::process::ExitStatusExt;
use std::process::Stdio;
use std::rc::Rc;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};
use tokio::process::{Child, Command};

use super::unit_file::{self, Restart, UnitFile};
use super::{Scope, Shared, Systemd, journal};
use crate::process_table;

/// Starts within [`LIMIT_WINDOW`] after which a unit is given up.
const LIMIT_BURST: usize = 5;
/// World time that the limit looks back.
const LIMIT_WINDOW: Duration = Duration::from_secs(10);
/// World time between SIGTERM and SIGKILL.
const STOP_TIMEOUT: Duration = Duration::from_secs(90);

/// Whether a unit is up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activity {
    /// Its process runs.
    Running,
    /// Waiting to be started again.
    AutoRestart,
    /// Being stopped.
    Stopping,
    /// Stopped or never started.
    Dead,
    /// Ended badly and given up.
    Failed,
}

impl Activity {
    /// `ActiveState`.
    pub fn active_state(self) -> &'static str {
        match self {
            Self::Running => "active",
            Self::AutoRestart => "activating",
            Self::Stopping => "deactivating",
            Self::Dead => "inactive",
            Self::Failed => "failed",
        }
    }

    /// `SubState`.
    pub fn sub_state(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::AutoRestart => "auto-restart",
            Self::Stopping => "stop-sigterm",
            Self::Dead => "dead",
            Self::Failed => "failed",
        }
    }
}

/// A loaded unit.
#[derive(Debug)]
pub struct Unit {
    /// Its files as last read.
    pub file: UnitFile,
    /// Whether it is up.
    pub activity: Activity,
    /// Its main process.
    pub pid: Option<i32>,
    /// Automatic restarts.
    pub restarts: u32,
    /// Exit code or signal of the last main process.
    pub status: i32,
    /// Whether that was a signal.
    pub by_signal: bool,
    /// `Result`.
    pub result: &'static str,
    /// World wall time of the last start, Unix ms.
    pub started_ms: i64,
    serial: u64,
    recent: Vec<Instant>,
}

impl Unit {
    fn new(file: UnitFile) -> Self {
        Self {
            file,
            activity: Activity::Dead,
            pid: None,
            restarts: 0,
            status: 0,
            by_signal: false,
            result: "success",
            started_ms: 0,
            serial: 0,
            recent: Vec::new(),
        }
    }

    /// Forgets a failure.
    pub fn reset(&mut self) {
        self.recent.clear();
        if self.activity == Activity::Failed {
            self.activity = Activity::Dead;
            self.result = "success";
        }
    }
}

/// Reads the unit's files if they were never read. False if there are none.
pub fn ensure_loaded(state: &mut Systemd, scope: Scope, name: &str) -> bool {
    let key = (scope, name.to_owned());
    if state.units.contains_key(&key) {
        return true;
    }
    let folder = scope.folder(&state.world);
    match unit_file::read(&state.world, &folder, name) {
        Some(file) => {
            state.units.insert(key, Unit::new(file));
            true
        }
        None => false,
    }
}

/// `daemon-reload`: reads all files of one manager again.
pub fn reload(state: &mut Systemd, scope: Scope) {
    let folder = scope.folder(&state.world);
    let names: Vec<String> =
        state.units.keys().filter(|(known, _)| *known == scope).map(|(_, name)| name.clone()).collect();
    for name in names {
        let file = unit_file::read(&state.world, &folder, &name);
        let key = (scope, name);
        match file {
            Some(file) => {
                if let Some(unit) = state.units.get_mut(&key) {
                    unit.file = file;
                }
            }
            None => {
                let idle = state.units.get(&key).is_some_and(|unit| unit.pid.is_none());
                if idle {
                    state.units.remove(&key);
                }
            }
        }
    }
}

/// Starts a unit. False if the start was refused.
pub fn start(shared: &Shared, scope: Scope, name: &str) -> bool {
    let mut state = shared.borrow_mut();
    if state.shutting_down || !ensure_loaded(&mut state, scope, name) {
        return false;
    }
    state.serial += 1;
    let serial = state.serial;
    let now_ms = state.world.clock.wall_ms();
    let window = state.world.clock.real(LIMIT_WINDOW);
    let key = (scope, name.to_owned());
    let Some(unit) = state.units.get_mut(&key) else {
        return false;
    };
    if matches!(unit.activity, Activity::Running | Activity::Stopping) {
        return true;
    }
    unit.recent.retain(|at| at.elapsed() < window);
    if unit.recent.len() >= LIMIT_BURST {
        unit.activity = Activity::Failed;
        unit.result = "start-limit-hit";
        let line = format!("{name}: Start request repeated too quickly.");
        journal::note(&state.world, scope, name, "systemd", 1, &line);
        return false;
    }
    unit.recent.push(Instant::now());
    let spawned = command(&state, scope, &key).and_then(|mut command| command.spawn());
    let Some(unit) = state.units.get_mut(&key) else {
        return false;
    };
    unit.serial = serial;
    unit.started_ms = now_ms;
    match spawned {
        Ok(mut child) => {
            unit.pid = child.id().map(|pid| pid as i32);
            unit.activity = Activity::Running;
            unit.result = "success";
            let pid = unit.pid.unwrap_or_default();
            let line = format!("Started {name} - {}.", unit.file.description);
            journal::note(&state.world, scope, name, "systemd", 1, &line);
            if let Some(stdout) = child.stdout.take() {
                tokio::task::spawn_local(record(Rc::clone(shared), scope, name.to_owned(), pid, stdout));
            }
            if let Some(stderr) = child.stderr.take() {
                tokio::task::spawn_local(record(Rc::clone(shared), scope, name.to_owned(), pid, stderr));
            }
            tokio::task::spawn_local(wait(Rc::clone(shared), key, serial, child));
            true
        }
        Err(error) => {
            unit.activity = Activity::Failed;
            unit.result = "exit-code";
            unit.status = 203;
            let line = format!("{name}: Failed to locate executable: {error}");
            journal::note(&state.world, scope, name, "systemd", 1, &line);
            false
        }
    }
}

/// Stops a unit and waits until all its processes are gone.
pub async fn stop(shared: &Shared, scope: Scope, name: &str) {
    let key = (scope, name.to_owned());
    let (pid, limit) = {
        let mut state = shared.borrow_mut();
        let limit = state.world.clock.real_for_processes(STOP_TIMEOUT);
        let Some(unit) = state.units.get_mut(&key) else {
            return;
        };
        if unit.activity == Activity::AutoRestart {
            unit.activity = Activity::Dead;
        }
        let Some(pid) = unit.pid else {
            return;
        };
        unit.activity = Activity::Stopping;
        let line = format!("Stopping {name} - {}...", unit.file.description);
        journal::note(&state.world, scope, name, "systemd", 1, &line);
        (pid, limit)
    };
    process_table::signal_group(pid, Signal::TERM);
    let deadline = Instant::now() + limit;
    let mut killed = false;
    loop {
        let main_gone = shared.borrow().units.get(&key).is_none_or(|unit| unit.pid != Some(pid));
        if main_gone {
            break;
        }
        if Instant::now() > deadline && !killed {
            process_table::signal_group(pid, Signal::KILL);
            killed = true;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Ends what is left of a unit's control group.
async fn end_group(pid: i32) {
    process_table::signal_group(pid, Signal::TERM);
    for _ in 0..20 {
        if !process_table::group_is_alive(pid) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    process_table::signal_group(pid, Signal::KILL);
}

async fn wait(shared: Shared, key: (Scope, String), serial: u64, mut child: Child) {
    let pid = child.id().unwrap_or_default() as i32;
    let status = child.wait().await.ok();
    end_group(pid).await;
    let (scope, name) = (key.0, key.1.clone());
    let delay = {
        let mut state = shared.borrow_mut();
        let clock_speed = state.world.clock.file().speed;
        let Some(unit) = state.units.get_mut(&key).filter(|unit| unit.serial == serial) else {
            return;
        };
        unit.pid = None;
        let signal = status.and_then(|status| status.signal());
        unit.by_signal = signal.is_some();
        unit.status = signal.or(status.and_then(|status| status.code())).unwrap_or(0);
        let clean = matches!(signal, Some(1 | 2 | 13 | 15)) || (signal.is_none() && unit.status == 0);
        let (result, words) = match (clean, signal) {
            (true, _) => ("success", "Deactivated successfully.".to_owned()),
            (false, Some(signal)) => ("signal", format!("Main process exited, code=killed, status={signal}")),
            (false, None) => ("exit-code", format!("Main process exited, code=exited, status={}", unit.status)),
        };
        unit.result = result;
        let stopping = unit.activity == Activity::Stopping;
        let again = match unit.file.restart {
            Restart::No => false,
            Restart::OnFailure => !clean,
            Restart::Always => true,
        };
        let delay = if again && !stopping {
            unit.activity = Activity::AutoRestart;
            Some(unit.file.restart_delay.div_f64(clock_speed))
        } else {
            unit.activity = if clean || stopping { Activity::Dead } else { Activity::Failed };
            None
        };
        let line = format!("{name}: {words}");
        journal::note(&state.world, scope, &name, "systemd", 1, &line);
        delay
    };
    let Some(delay) = delay else {
        return;
    };
    tokio::time::sleep(delay).await;
    let due = shared
        .borrow()
        .units
        .get(&key)
        .is_some_and(|unit| unit.serial == serial && unit.activity == Activity::AutoRestart);
    if due {
        if let Some(unit) = shared.borrow_mut().units.get_mut(&key) {
            unit.restarts += 1;
        }
        start(&shared, scope, &name);
    }
}

/// Copies the lines of a process into the journal until its last writer closed.
async fn record(shared: Shared, scope: Scope, name: String, pid: i32, source: impl AsyncRead + Unpin) {
    let identifier = {
        let state = shared.borrow();
        let unit = state.units.get(&(scope, name.clone()));
        unit.and_then(|unit| unit.file.exec_start.first())
            .and_then(|program| std::path::Path::new(program).file_name())
            .map_or_else(|| name.clone(), |program| program.to_string_lossy().into_owned())
    };
    let mut lines = BufReader::new(source).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        let state = shared.borrow();
        journal::note(&state.world, scope, &name, &identifier, pid, &line);
    }
}

fn command(state: &Systemd, scope: Scope, key: &(Scope, String)) -> std::io::Result<Command> {
    let unit = state.units.get(key).ok_or_else(|| std::io::Error::other("no such unit"))?;
    let (program, rest) = unit.file.exec_start.split_first().ok_or_else(|| std::io::Error::other("no ExecStart"))?;
    let mut command = Command::new(state.world.resolve(program));
    command.args(rest).env_clear().envs(state.world.base_environment());
    if scope == Scope::User {
        command.envs(&state.user_environment);
    }
    command
        .envs(unit.file.variables(&state.world))
        .env("INVOCATION_ID", format!("{:032x}", unit.started_ms))
        .env("JOURNAL_STREAM", "8:1")
        .current_dir(&state.world.dir)
        .process_group(0)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    Ok(command)
}
