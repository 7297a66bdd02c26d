//! Signals, and only to whom they are meant for.
//!
//! Between the look that chose a process and the signal its pid may have gone to somebody else, so everything is
//! read anew at that moment: the pid lives, its start mark is the same, it is this user's, its program belongs to
//! this machine (in a world: lies in it), and it still plays the expected part. On Linux a descriptor of the process
//! is opened *before* the check and signalled after it, so that no other process can slip in between.

use crate::machine::Machine;
use crate::processes;
use rustix::process::{Pid, Signal};
use stablehand_engine::plan::{Again, StepFailure};
use stablehand_engine::process::{Identity, Process, Role};
use std::io;
use std::time::Duration;

/// Tells the part of Ollama that a process plays, from its program and arguments.
pub type Classify = fn(&Process) -> Option<Role>;

/// How long a killed process may take to vanish: a large mapped model is given back first.
const AFTER_KILL: Duration = Duration::from_secs(5);

/// How often an awaited end is looked for.
const POLL: Duration = Duration::from_millis(100);

/// The real pause between two looks is never shorter, however fast a world runs.
const LEAST_REAL_POLL: Duration = Duration::from_millis(2);

/// A signal that we send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// SIGTERM.
    Term,
    /// SIGINT.
    Int,
    /// SIGKILL.
    Kill,
}

/// Why a signal was not sent.
#[derive(Debug, thiserror::Error)]
pub enum SignalError {
    /// It is gone, or its pid belongs to another process now.
    #[error("pid {0} is gone")]
    Gone(u32),
    /// It is the first process, a process group, or we ourselves.
    #[error("pid {0} is never signalled")]
    Forbidden(u32),
    /// It is another user's, or cannot be told to be ours.
    #[error("pid {0} is not known to be this user's process, so it was not signalled")]
    NotOurs(u32),
    /// It does not play the expected part (any more).
    #[error("pid {0} is not the part of Ollama that was to be ended, so it was not signalled")]
    OtherRole(u32),
    /// The system refused.
    #[error("pid {pid} could not be signalled: {source}")]
    Refused {
        /// The process.
        pid: u32,
        /// What the system said.
        source: io::Error,
    },
}

/// Sends a signal to exactly this life of this process, if it is ours and plays an expected part.
///
/// # Errors
/// A [`SignalError`]; nothing was signalled then.
pub fn send(
    machine: &Machine,
    classify: Classify,
    id: Identity,
    kind: Kind,
    expected: impl Fn(&Role) -> bool,
) -> Result<(), SignalError> {
    send_where(machine, id, kind, |process| classify(process).is_some_and(|role| expected(&role)))
}

fn send_where(
    machine: &Machine,
    id: Identity,
    kind: Kind,
    is_meant: impl Fn(&Process) -> bool,
) -> Result<(), SignalError> {
    if id.pid <= 1 || id.pid == std::process::id() {
        return Err(SignalError::Forbidden(id.pid));
    }
    let pid = i32::try_from(id.pid).ok().and_then(Pid::from_raw).ok_or(SignalError::Forbidden(id.pid))?;
    let target = Target::open(pid);
    let process = processes::look_at(machine, id).ok_or(SignalError::Gone(id.pid))?;
    if process.uid.known() != Some(&machine.uid()) {
        return Err(SignalError::NotOurs(id.pid));
    }
    if !is_meant(&process) {
        return Err(SignalError::OtherRole(id.pid));
    }
    let signal = match kind {
        Kind::Term => Signal::TERM,
        Kind::Int => Signal::INT,
        Kind::Kill => Signal::KILL,
    };
    target.signal(signal).map_err(|error| match error {
        rustix::io::Errno::SRCH => SignalError::Gone(id.pid),
        other => SignalError::Refused { pid: id.pid, source: other.into() },
    })
}

/// Waits until a process is gone, at most this long in the machine's time. One that only waits to be noticed by its
/// parent counts as gone.
pub async fn await_gone(machine: &Machine, id: Identity, within: Duration) -> bool {
    let looks = async {
        while processes::is_alive(id) {
            tokio::time::sleep(machine.clock().real_span(POLL).max(LEAST_REAL_POLL)).await;
        }
    };
    tokio::time::timeout(machine.clock().patience(within), looks).await.is_ok() || !processes::is_alive(id)
}

/// SIGTERM, at most this long a wait, then SIGKILL. A process that is gone already is no failure.
///
/// # Errors
/// A [`StepFailure`] when it may not be signalled, or survives SIGKILL.
pub async fn end(
    machine: &Machine,
    classify: Classify,
    id: Identity,
    patience: Duration,
    expected: impl Fn(&Role) -> bool,
) -> Result<String, StepFailure> {
    end_where(machine, id, patience, |process| classify(process).is_some_and(|role| expected(&role))).await
}

/// As [`end`], for a process of ours that was started with these arguments.
///
/// # Errors
/// As [`end`].
pub async fn end_program(
    machine: &Machine,
    id: Identity,
    patience: Duration,
    arguments: &[&str],
) -> Result<String, StepFailure> {
    let called_so = |process: &Process| process.argv.known().is_some_and(|argv| argv.iter().skip(1).eq(arguments));
    end_where(machine, id, patience, called_so).await
}

async fn end_where(
    machine: &Machine,
    id: Identity,
    patience: Duration,
    is_meant: impl Fn(&Process) -> bool,
) -> Result<String, StepFailure> {
    let begun = machine.clock().awake();
    let after = || format!("{:.1} s", machine.clock().awake().since(begun).as_secs_f64());
    for (kind, within) in [(Kind::Term, patience), (Kind::Kill, AFTER_KILL)] {
        match send_where(machine, id, kind, &is_meant) {
            Ok(()) => {}
            Err(SignalError::Gone(_)) => return Ok(format!("gone after {}", after())),
            Err(
                error @ (SignalError::Forbidden(_)
                | SignalError::NotOurs(_)
                | SignalError::OtherRole(_)
                | SignalError::Refused { .. }),
            ) => return Err(error.into()),
        }
        if await_gone(machine, id, within).await {
            let how = match kind {
                Kind::Term | Kind::Int => "gone after",
                Kind::Kill => "did not heed SIGTERM and was killed after",
            };
            return Ok(format!("{how} {}", after()));
        }
    }
    Err(StepFailure {
        code: "process-stays",
        message: format!("pid {} is still there after SIGKILL and {}", id.pid, after()),
        hint: "it hangs in the kernel (disk or graphics driver): try again later, or restart the machine".to_owned(),
        again: Again::Soon,
    })
}

impl From<SignalError> for StepFailure {
    fn from(error: SignalError) -> Self {
        let (code, hint) = match &error {
            SignalError::Gone(_) => ("process-gone", "look again; it may have ended by itself"),
            SignalError::Forbidden(_) => ("process-forbidden", "look again at what listens on the port"),
            SignalError::NotOurs(_) => ("process-not-ours", "ask the user it belongs to, or stop its service"),
            SignalError::OtherRole(_) => ("process-changed", "look again; another program may have its pid now"),
            SignalError::Refused { .. } => ("signal-refused", "run it as the user that the process belongs to"),
        };
        Self { code, message: error.to_string(), hint: hint.to_owned(), again: Again::Never }
    }
}

/// Whom a signal goes to.
struct Target {
    pid: Pid,
    #[cfg(target_os = "linux")]
    descriptor: Option<rustix::fd::OwnedFd>,
}

impl Target {
    #[cfg(target_os = "linux")]
    fn open(pid: Pid) -> Self {
        // A kernel before 5.3 has no such descriptors; the pid has to do there.
        Self { pid, descriptor: rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()).ok() }
    }

    #[cfg(not(target_os = "linux"))]
    fn open(pid: Pid) -> Self {
        Self { pid }
    }

    fn signal(&self, signal: Signal) -> rustix::io::Result<()> {
        #[cfg(target_os = "linux")]
        if let Some(descriptor) = &self.descriptor {
            return rustix::process::pidfd_send_signal(descriptor, signal);
        }
        rustix::process::kill_process(self.pid, signal)
    }
}

/// Ends this very process as a loss of power would: nothing is tidied up.
pub fn kill_this_process() {
    if let Err(error) = rustix::process::kill_process(rustix::process::getpid(), Signal::KILL) {
        tracing::error!(%error, "this process could not be killed");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Napper, world_folder};

    #[tokio::test]
    async fn a_process_of_ours_with_the_right_part_is_ended() {
        let (_dir, machine) = world_folder("linux");
        let napper = Napper::start(&machine, "usr/local/bin/ollama");
        let note = end(&machine, serve, napper.id, Duration::from_secs(10), is_serve).await.unwrap();
        assert!(note.starts_with("gone after"), "{note}");
        assert!(await_gone(&machine, napper.id, Duration::ZERO).await);
        let again = end(&machine, serve, napper.id, Duration::from_secs(10), is_serve).await.unwrap();
        assert!(again.starts_with("gone after"), "{again}");
    }

    #[tokio::test]
    async fn another_part_another_life_and_processes_outside_are_left_alone() {
        let (_dir, machine) = world_folder("linux");
        let (_other_dir, other_world) = world_folder("linux");
        let napper = Napper::start(&machine, "usr/local/bin/ollama");
        let id = napper.id;
        let try_on = |machine: &Machine, classify: Classify, id| send(machine, classify, id, Kind::Kill, is_serve);
        assert!(matches!(try_on(&machine, nothing, id), Err(SignalError::OtherRole(_))));
        assert!(matches!(try_on(&machine, serve, Identity { birth: id.birth + 1, ..id }), Err(SignalError::Gone(_))));
        assert!(matches!(try_on(&other_world, serve, id), Err(SignalError::Gone(_))));
        assert!(processes::is_alive(id));
    }

    #[test]
    fn the_first_process_and_we_ourselves_are_never_signalled() {
        let (_dir, machine) = world_folder("linux");
        for pid in [0, 1, std::process::id()] {
            let sent = send(&machine, serve, Identity { pid, birth: 0 }, Kind::Term, is_serve);
            assert!(matches!(sent, Err(SignalError::Forbidden(_))), "{pid}");
        }
    }

    #[tokio::test]
    async fn a_process_that_does_not_end_is_told_from_one_that_did() {
        let (_dir, machine) = world_folder("linux");
        let napper = Napper::start(&machine, "usr/local/bin/ollama");
        assert!(!await_gone(&machine, napper.id, Duration::from_millis(20)).await);
    }

    fn serve(_process: &Process) -> Option<Role> {
        Some(Role::Serve)
    }

    fn nothing(_process: &Process) -> Option<Role> {
        None
    }

    fn is_serve(role: &Role) -> bool {
        matches!(role, Role::Serve)
    }
}
