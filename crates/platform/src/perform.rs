//! Carrying out one step of a plan: one try, with a short note of what happened.

use crate::change::{self, Change};
use crate::launchd::{job, launchctl};
use crate::layers::{persist_changes, switch_on};
use crate::machine::{Machine, Os};
use crate::survey::Surveyor;
use crate::sweep::sweep;
use crate::{app, command, linux, publish};
use stablehand_engine::Known;
use stablehand_engine::owner::{AgentKind, Listener, Owner, Scope};
use stablehand_engine::plan::{Again, Start, Step, StepFailure, Stop};
use stablehand_engine::process::Role;
use stablehand_engine::setting::{Name, Values};
use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;
use tokio::sync::Mutex;
use tokio::time::Instant;

/// How long one try waits for the port. A socket that is closed frees its port at once; what takes time is a server
/// on its way out.
const PORT_PATIENCE: Duration = Duration::from_secs(8);

const PORT_POLL: Duration = Duration::from_millis(250);

/// How long a job that was just loaded may take to have a process.
const JOB_START: Duration = Duration::from_secs(3);

const JOB_POLL: Duration = Duration::from_millis(250);

/// Tries one step once. Waiting for the answer and the proof are not the platform's; they succeed with an empty note.
///
/// # Errors
/// The [`StepFailure`], which says whether another try can help.
pub async fn perform(machine: &Machine, surveyor: &Mutex<Surveyor>, step: &Step) -> Result<String, StepFailure> {
    match step {
        Step::Persist { owner, values } => persist(machine, owner, values).await,
        Step::Publish { owner, set, unset } => publish_to(machine, owner, set, unset).await,
        Step::Address { owner, moved } => address(machine, owner, *moved).await,
        Step::Stop(how) => {
            surveyor.lock().await.note_stop();
            stop(machine, surveyor, how).await
        }
        Step::Sweep(which) => sweep(machine, surveyor, which).await,
        Step::AwaitPortFree { port } => await_port_free(machine, surveyor, *port).await,
        Step::Start(how) => start(machine, surveyor, how).await,
        Step::AwaitAnswer { .. } | Step::Prove => Ok(String::new()),
    }
}

/// Carries out changes in order, and words what the service manager answers.
///
/// # Errors
/// The first failure.
pub async fn carry_out(machine: &Machine, changes: &[Change]) -> Result<(), StepFailure> {
    match machine.os() {
        Os::MacOs => change::carry_out(machine, changes).await,
        Os::Linux => linux::carry_out(machine, changes).await,
    }
}

async fn persist(machine: &Machine, owner: &Owner, values: &Values) -> Result<String, StepFailure> {
    let changes = persist_changes(machine, owner, values)?;
    carry_out(machine, &changes).await?;
    switch_on(machine, owner).await?;
    if changes.is_empty() {
        return Ok("the file says it already".to_owned());
    }
    let files: Vec<_> = changes.iter().filter_map(written).map(|path| path.display().to_string()).collect();
    Ok(format!("written: {}", files.join(", ")))
}

fn written(change: &Change) -> Option<&Path> {
    match change {
        Change::Write { path, .. } => Some(path),
        Change::Folder { .. }
        | Change::Remove { .. }
        | Change::Move { .. }
        | Change::Link { .. }
        | Change::Unlink { .. }
        | Change::Run(_)
        | Change::Load { .. }
        | Change::Unload { .. } => None,
    }
}

async fn publish_to(
    machine: &Machine,
    owner: &Owner,
    set: &Values,
    unset: &BTreeSet<Name>,
) -> Result<String, StepFailure> {
    match owner {
        Owner::Systemd { scope, unit } => linux::publish(machine, *scope, unit, set, unset).await,
        Owner::Agent(AgentKind::UserUnit { unit } | AgentKind::NewUnit { unit, .. }) => {
            linux::publish(machine, Scope::User, unit, set, unset).await
        }
        Owner::Agent(AgentKind::Process { .. }) | Owner::Container { .. } => {
            Ok("this owner has no session to publish to".to_owned())
        }
        Owner::App { .. } | Owner::Brew { .. } | Owner::Agent(AgentKind::LaunchAgent { .. }) | Owner::Manual { .. } => {
            match machine.os() {
                Os::MacOs => publish::publish_step(machine, set, unset).await,
                Os::Linux => Ok("this owner has no session to publish to".to_owned()),
            }
        }
    }
}

/// Owners whose start is told in passing (`open`, a process of ours) need no file.
async fn address(machine: &Machine, owner: &Owner, moved: Option<u16>) -> Result<String, StepFailure> {
    let (scope, unit) = match owner {
        Owner::Systemd { scope, unit } => (*scope, unit),
        Owner::Agent(AgentKind::UserUnit { unit } | AgentKind::NewUnit { unit, .. }) => (Scope::User, unit),
        Owner::App { .. }
        | Owner::Brew { .. }
        | Owner::Agent(AgentKind::LaunchAgent { .. } | AgentKind::Process { .. })
        | Owner::Container { .. }
        | Owner::Manual { .. } => return Ok(String::new()),
    };
    let changes = linux::address::changes(machine, scope, unit, moved)?;
    carry_out(machine, &changes).await?;
    Ok(if changes.is_empty() { "it is so already".to_owned() } else { String::new() })
}

async fn stop(machine: &Machine, surveyor: &Mutex<Surveyor>, how: &Stop) -> Result<String, StepFailure> {
    match how {
        Stop::App { bundle } => app::stop(machine, surveyor, bundle).await,
        Stop::Job { label } => job::unload(machine, label).await,
        Stop::Unit { scope, unit } => linux::stop_unit(machine, *scope, unit).await,
        Stop::Process { server } => {
            let classify = surveyor.lock().await.classify();
            linux::stop_process(machine, classify, *server).await
        }
    }
}

async fn start(machine: &Machine, surveyor: &Mutex<Surveyor>, how: &Start) -> Result<String, StepFailure> {
    match how {
        Start::App { bundle, environment } => app::start(machine, surveyor, bundle, environment).await,
        Start::Job { label, plist } => start_job(machine, label, plist).await,
        Start::Unit { scope, unit } => linux::start_unit(machine, *scope, unit).await,
        Start::Process { program, environment } => {
            let server = linux::start_process(machine, program, environment).await?;
            Ok(format!("{} serve runs, pid {}", program.display(), server.pid))
        }
    }
}

/// A job may be loaded without being started (no `RunAtLoad`, or launchd holds it back after an early end).
async fn start_job(machine: &Machine, label: &str, plist: &Path) -> Result<String, StepFailure> {
    let note = job::load(machine, label, plist).await?;
    let deadline = Instant::now() + machine.clock().patience(JOB_START);
    loop {
        if let Some(pid) = job::look(machine, label).await?.and_then(|job| job.pid) {
            return Ok(format!("{note}, pid {pid}"));
        }
        if Instant::now() >= deadline {
            break;
        }
        machine.clock().sleep(JOB_POLL).await;
    }
    let output = command::run(machine, &launchctl::kickstart(machine, label)).await?;
    if output.succeeded() {
        return Ok(format!("{note}, and was started"));
    }
    let error = launchctl::decode("kickstart", &output);
    Err(error.into_failure(&format!("the job {label} is loaded and was not started")))
}

/// A server that came up since the stop came up with the new values, so nothing has to be waited for then: whoever
/// answers is judged by the steps that follow.
async fn await_port_free(machine: &Machine, surveyor: &Mutex<Surveyor>, port: u16) -> Result<String, StepFailure> {
    let deadline = Instant::now() + machine.clock().patience(PORT_PATIENCE);
    loop {
        let holders = {
            let mut surveyor = surveyor.lock().await;
            let holders = match surveyor.listeners(port).await {
                Known::Is(listeners) => listeners,
                Known::Unknown(reason) => return Err(port_unknown(port, &reason)),
            };
            if holders.is_empty() {
                return Ok(format!("nobody listens on port {port}"));
            }
            let servers = surveyor.sightings().into_iter().filter(|sighting| matches!(sighting.role, Role::Serve));
            let servers: Vec<_> = servers.map(|sighting| sighting.process.id).collect();
            let newer = holders
                .iter()
                .filter_map(|holder| holder.process.known())
                .find(|id| servers.contains(id) && surveyor.is_newer_than_stop(**id));
            if let Some(id) = newer {
                return Ok(format!("a server that came up since the stop listens on port {port}, pid {}", id.pid));
            }
            holders
        };
        if Instant::now() >= deadline {
            return Err(port_busy(port, &holders));
        }
        machine.clock().sleep(PORT_POLL).await;
    }
}

fn port_busy(port: u16, holders: &[Listener]) -> StepFailure {
    let named = |holder: &Listener| {
        let program = holder.program.as_deref().unwrap_or("a process that is not shown");
        match &holder.process {
            Known::Is(id) => format!("{program} (pid {}) at {}", id.pid, holder.address),
            Known::Unknown(reason) => format!("{program} at {} ({reason})", holder.address),
        }
    };
    let who: Vec<_> = holders.iter().map(named).collect();
    StepFailure {
        code: "port-busy",
        message: format!("port {port} is still held by {}; no server was started", who.join(", ")),
        hint: "end that program, or stop what starts it, then restart".to_owned(),
        again: Again::Soon,
    }
}

fn port_unknown(port: u16, reason: &str) -> StepFailure {
    StepFailure {
        code: "port-unknown",
        message: format!("it could not be told whether port {port} is free: {reason}; no server was started"),
        hint: "try again".to_owned(),
        again: Again::Soon,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::world_folder;
    use stablehand_engine::process::Process;

    #[tokio::test]
    async fn a_held_port_is_named_with_its_holder_and_a_free_one_passes() {
        let (_dir, machine) = world_folder("macos");
        let surveyor = Mutex::new(Surveyor::new(machine.clone(), |_: &Process| None));
        let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = socket.local_addr().unwrap().port();
        let listeners = surveyor.lock().await.listeners(port).await;
        let failure = port_busy(port, listeners.known().unwrap());
        assert!(failure.message.contains(&format!("(pid {})", std::process::id())), "{}", failure.message);
        drop(socket);
        let note = perform(&machine, &surveyor, &Step::AwaitPortFree { port }).await.unwrap();
        assert_eq!(note, format!("nobody listens on port {port}"));
    }

    #[test]
    fn a_step_can_be_carried_out_on_any_thread() {
        fn sendable<T: Send>(_future: T) {}
        let (_dir, machine) = world_folder("macos");
        let surveyor = Mutex::new(Surveyor::new(machine.clone(), |_: &Process| None));
        sendable(perform(&machine, &surveyor, &Step::Prove));
        sendable(async { surveyor.lock().await.survey(1).await });
    }

    #[tokio::test]
    async fn steps_of_the_daemon_pass_without_a_note() {
        let (_dir, machine) = world_folder("macos");
        let surveyor = Mutex::new(Surveyor::new(machine.clone(), |_: &Process| None));
        assert_eq!(perform(&machine, &surveyor, &Step::Prove).await, Ok(String::new()));
    }

    #[tokio::test]
    async fn persisting_twice_writes_once() {
        let (_dir, machine) = world_folder("macos");
        let surveyor = Mutex::new(Surveyor::new(machine.clone(), |_: &Process| None));
        let owner = Owner::App { bundle: machine.at("/Applications/Ollama.app") };
        let values = crate::server_variables::server_values([("OLLAMA_MAX_QUEUE", "10")]);
        let step = Step::Persist { owner, values };
        assert!(perform(&machine, &surveyor, &step).await.unwrap().starts_with("written: "));
        assert_eq!(perform(&machine, &surveyor, &step).await.unwrap(), "the file says it already");
    }
}
