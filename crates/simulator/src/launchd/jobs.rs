//! The life of a job: started, ended, started again, drained.

use std::fs::{File, OpenOptions};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::rc::Rc;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use tokio::process::{Child, Command};

use super::job_plist::{JobPlist, KeepAlive};
use super::{Launchd, Shared};
use crate::faults::Fault;
use crate::process_table;
use crate::world::notes;

/// How long a job without a process stays in the middle of its bootout.
const LEAST_DRAIN: Duration = Duration::from_millis(300);

/// How a job's last process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// It has not ended yet.
    Never,
    /// With an exit code.
    Code(i32),
    /// By a signal.
    Signal(i32),
}

/// A loaded job.
#[derive(Debug)]
pub struct Job {
    /// Its description.
    pub plist: JobPlist,
    /// Its process, while it has one.
    pub pid: Option<i32>,
    /// Number of starts.
    pub runs: u32,
    /// How its last process ended.
    pub ending: Ending,
    /// Told to go: no longer loadable, not yet gone.
    pub draining: bool,
    /// Waiting to be started again.
    pub respawning: bool,
    /// Serial of its newest process.
    serial: u64,
    /// Real instant of its newest start.
    started: Instant,
}

impl Job {
    /// A job that was just loaded.
    pub fn new(plist: JobPlist) -> Self {
        Self {
            plist,
            pid: None,
            runs: 0,
            ending: Ending::Never,
            draining: false,
            respawning: false,
            serial: 0,
            started: Instant::now(),
        }
    }

    /// Second column of `launchctl list`: exit code, or minus the signal.
    pub fn status(&self) -> i32 {
        match self.ending {
            Ending::Never => 0,
            Ending::Code(code) => code,
            Ending::Signal(signal) => -signal,
        }
    }
}

/// Loads a job and starts it if it runs at load.
pub fn load(shared: &Shared, plist: JobPlist) {
    let label = plist.label.clone();
    let run_now = plist.run_at_load;
    let interval = plist.interval_s;
    shared.borrow_mut().jobs.insert(label.clone(), Job::new(plist));
    if run_now {
        start(shared, &label);
    }
    if let Some(seconds) = interval {
        let shared = Rc::clone(shared);
        tokio::task::spawn_local(async move {
            loop {
                let wait = shared.borrow().world.clock.real(Duration::from_secs(seconds.max(1)));
                tokio::time::sleep(wait).await;
                let known = shared.borrow().jobs.get(&label).map(|job| job.pid.is_none());
                match known {
                    Some(true) => start(&shared, &label),
                    Some(false) => {}
                    None => return,
                }
            }
        });
    }
}

/// Starts the process of a job that has none.
pub fn start(shared: &Shared, label: &str) {
    let mut state = shared.borrow_mut();
    if state.shutting_down {
        return;
    }
    state.serial += 1;
    let serial = state.serial;
    let Some(job) = state.jobs.get(label) else {
        return;
    };
    if job.pid.is_some() || job.draining {
        return;
    }
    let spawned = command(&state, job).and_then(|mut command| command.spawn());
    let Some(job) = state.jobs.get_mut(label) else {
        return;
    };
    job.runs += 1;
    job.serial = serial;
    job.started = Instant::now();
    job.respawning = false;
    match spawned {
        Ok(child) => {
            job.pid = child.id().map(|pid| pid as i32);
            tokio::task::spawn_local(wait(Rc::clone(shared), label.to_owned(), serial, child));
        }
        Err(_) => {
            // EX_CONFIG, as launchd records a program that cannot be run.
            job.ending = Ending::Code(78);
            tokio::task::spawn_local(after_end(Rc::clone(shared), label.to_owned(), serial));
        }
    }
}

/// Real time between SIGTERM and SIGKILL.
pub fn patience(state: &Launchd, job: &Job) -> Duration {
    state.world.clock.real_for_processes(Duration::from_secs(job.plist.exit_timeout_s))
}

/// Ends a job's process: SIGTERM, then SIGKILL after its exit timeout.
pub fn stop_process(shared: &Shared, label: &str) {
    let (pid, timeout) = {
        let state = shared.borrow();
        let Some(job) = state.jobs.get(label) else {
            return;
        };
        let Some(pid) = job.pid else {
            return;
        };
        (pid, patience(&state, job))
    };
    process_table::signal(pid, Signal::TERM);
    let shared = Rc::clone(shared);
    let label = label.to_owned();
    tokio::task::spawn_local(async move {
        tokio::time::sleep(timeout).await;
        let still = shared.borrow().jobs.get(&label).is_some_and(|job| job.pid == Some(pid));
        if still {
            process_table::signal(pid, Signal::KILL);
        }
    });
}

/// Begins to unload a job. It is gone only after its process ended and a
/// while passed.
pub fn drain(shared: &Shared, label: &str) {
    let least = {
        let mut state = shared.borrow_mut();
        let least = notes::raised(&state.world, Fault::Bootstrap5AfterBootout)
            .map_or(LEAST_DRAIN, |parameters| Duration::from_secs(parameters["seconds"].as_u64().unwrap_or(4)));
        let least = state.world.clock.real(least);
        let Some(job) = state.jobs.get_mut(label) else {
            return;
        };
        job.draining = true;
        least
    };
    stop_process(shared, label);
    let shared = Rc::clone(shared);
    let label = label.to_owned();
    tokio::task::spawn_local(async move {
        tokio::time::sleep(least).await;
        loop {
            let running = shared.borrow().jobs.get(&label).is_some_and(|job| job.pid.is_some());
            if !running {
                break;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        shared.borrow_mut().jobs.remove(&label);
    });
}

/// Ends every job with its process group, as a shutdown does.
pub async fn end_all(shared: &Shared) {
    let pids: Vec<i32> = shared.borrow().jobs.values().filter_map(|job| job.pid).collect();
    for pid in &pids {
        process_table::signal_group(*pid, Signal::TERM);
    }
    let deadline = Instant::now() + Duration::from_secs(1);
    while pids.iter().any(|pid| process_table::group_is_alive(*pid)) && Instant::now() < deadline {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    for pid in &pids {
        process_table::signal_group(*pid, Signal::KILL);
    }
}

async fn wait(shared: Shared, label: String, serial: u64, mut child: Child) {
    let leader = child.id();
    let status = child.wait().await;
    if let Some(leader) = leader {
        // What the job left behind in its process group goes with it.
        process_table::signal_group(leader as i32, Signal::KILL);
    }
    {
        let mut state = shared.borrow_mut();
        let Some(job) = state.jobs.get_mut(&label).filter(|job| job.serial == serial) else {
            return;
        };
        job.pid = None;
        job.ending = status.map_or(Ending::Code(78), ending_of);
    }
    after_end(shared, label, serial).await;
}

async fn after_end(shared: Shared, label: String, serial: u64) {
    let delay = {
        let mut state = shared.borrow_mut();
        let speed_of = state.world.clock.file().speed;
        let Some(job) = state.jobs.get_mut(&label).filter(|job| job.serial == serial) else {
            return;
        };
        let again = match job.plist.keep_alive {
            KeepAlive::No => false,
            KeepAlive::Always => true,
            KeepAlive::AfterSuccess(wanted) => (job.ending == Ending::Code(0)) == wanted,
        };
        if !again || job.draining {
            return;
        }
        job.respawning = true;
        let ran = job.started.elapsed().mul_f64(speed_of);
        Duration::from_secs(job.plist.throttle_s).saturating_sub(ran).div_f64(speed_of)
    };
    tokio::time::sleep(delay).await;
    let waiting =
        shared.borrow().jobs.get(&label).is_some_and(|job| job.serial == serial && job.respawning && !job.draining);
    if waiting {
        start(&shared, &label);
    }
}

fn ending_of(status: ExitStatus) -> Ending {
    match (status.code(), status.signal()) {
        (Some(code), _) => Ending::Code(code),
        (None, Some(signal)) => Ending::Signal(signal),
        (None, None) => Ending::Never,
    }
}

fn command(state: &Launchd, job: &Job) -> std::io::Result<Command> {
    let plist = &job.plist;
    let mut command = Command::new(state.world.resolve(&plist.program));
    command
        .args(plist.arguments.iter().skip(1))
        .env_clear()
        .envs(state.world.base_environment())
        .envs(&state.session)
        .envs(&plist.environment)
        .env("XPC_SERVICE_NAME", &plist.label)
        .current_dir(plist.directory.as_deref().unwrap_or(&state.world.dir))
        .process_group(0)
        .stdin(Stdio::null())
        .stdout(output(plist.stdout.as_deref())?)
        .stderr(output(plist.stderr.as_deref())?);
    Ok(command)
}

/// Opens a job's output, or drops it.
pub fn output(path: Option<&Path>) -> std::io::Result<Stdio> {
    let Some(path) = path else {
        return Ok(Stdio::null());
    };
    if let Some(folder) = path.parent() {
        let _ = std::fs::create_dir_all(folder);
    }
    let file: File = OpenOptions::new().create(true).append(true).open(path)?;
    Ok(Stdio::from(file))
}
