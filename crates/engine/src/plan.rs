//! An apply or a restart as a plan: a list of steps that a test compares, `--dry-run` prints, and the supervisor
//! carries out one by one.
//!
//! The order is the same for every owner: everything that can be refused comes first (files, session), so that a
//! refusal leaves the running server untouched; then stop, sweep, wait for the port, start, and prove. The session is
//! set before the stop and not after it, so that an owner or a CLI that brings the server back in between already
//! brings it back with the new values.

use crate::known::Known;
use crate::owner::{AgentKind, Owner, Ownership, Scope};
use crate::process::Identity;
use crate::setting::{Name, Value, Values};
use std::collections::BTreeSet;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

/// What a plan is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Goal {
    /// Persist the desired values, publish them, restart, prove.
    Apply {
        /// Every value that shall hold.
        desired: Values,
        /// Values of ours that shall hold no longer.
        unset: BTreeSet<Name>,
    },
    /// Restart, and prove that the desired values are (still) in force.
    Restart {
        /// Every value that shall hold.
        desired: Values,
    },
    /// Stop, for an upgrade or a rollback that starts it again itself.
    Stop,
}

/// What a goal without values leaves behind.
static NO_VALUES: Values = Values::new();

impl Goal {
    /// The word used for it in reports and JSON.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Apply { .. } => "apply",
            Self::Restart { .. } => "restart",
            Self::Stop => "stop",
        }
    }

    /// The values that shall hold afterwards.
    pub fn desired(&self) -> &Values {
        match self {
            Self::Apply { desired, .. } | Self::Restart { desired } => desired,
            Self::Stop => &NO_VALUES,
        }
    }
}

/// Where the server listens after its next start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seat {
    /// Its own port, which clients know.
    pub home: u16,
    /// The port of 127.0.0.1 that its start moves it to, while the gateway is in its place. It is given to that start
    /// alone: whatever else reads the session would follow it (the command line, `ollama launch`).
    pub moved: Option<u16>,
    /// A file of ours gives a moved address to the owner's start.
    pub written: bool,
}

impl Seat {
    /// At its own port, with nothing left of another.
    pub fn at_home(home: u16) -> Self {
        Self { home, moved: None, written: false }
    }

    /// The port that it listens on after a start through this owner.
    pub fn port(&self, owner: &Owner) -> u16 {
        self.moved_for(owner).unwrap_or(self.home)
    }

    fn moved_for(&self, owner: &Owner) -> Option<u16> {
        self.moved.filter(|_| can_be_moved(owner))
    }
}

/// Whether a start through this owner can be given an address that nobody else gets to see.
pub fn can_be_moved(owner: &Owner) -> bool {
    match owner {
        // `open` with an environment, a drop-in of the unit, the environment of a process of ours.
        Owner::App { .. }
        | Owner::Systemd { .. }
        | Owner::Agent(AgentKind::UserUnit { .. } | AgentKind::NewUnit { .. } | AgentKind::Process { .. }) => true,
        // launchd gives a job the session's values and its own plist's; the plist is Homebrew's or a person's.
        Owner::Brew { .. }
        | Owner::Agent(AgentKind::LaunchAgent { .. })
        | Owner::Container { .. }
        | Owner::Manual { .. } => false,
    }
}

/// The address of a moved server, as `OLLAMA_HOST` takes it.
pub fn moved_address(port: u16) -> String {
    format!("127.0.0.1:{port}")
}

/// How to start the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Start {
    /// `open` the bundle with these values on its own environment too.
    App {
        /// Path of the bundle.
        bundle: PathBuf,
        /// Values put on the `open` command.
        environment: Values,
    },
    /// Load the launchd job.
    Job {
        /// Its label.
        label: String,
        /// Its plist.
        plist: PathBuf,
    },
    /// Start the unit.
    Unit {
        /// Whose manager.
        scope: Scope,
        /// Its name.
        unit: String,
    },
    /// Start the program ourselves, detached.
    Process {
        /// The `ollama` program.
        program: PathBuf,
        /// Values of its environment.
        environment: Values,
    },
}

/// How to stop the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stop {
    /// SIGTERM to the GUI of the bundle (an AppleEvent quit is refused), 40 s, then SIGKILL.
    App {
        /// Path of the bundle.
        bundle: PathBuf,
    },
    /// Take the launchd job out and wait until launchd has forgotten it.
    Job {
        /// Its label.
        label: String,
    },
    /// Stop the unit.
    Unit {
        /// Whose manager.
        scope: Scope,
        /// Its name.
        unit: String,
    },
    /// SIGTERM to this one process, 10 s, then SIGKILL.
    Process {
        /// The server.
        server: Identity,
    },
}

/// Which leftovers may be swept after a stop. Every candidate is checked again (pid, start, uid, role) before each
/// signal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sweep {
    /// Shim, `serve` and runners that run from this bundle.
    Bundle(PathBuf),
    /// Runners whose server was this process and is gone.
    RunnersOf(Identity),
}

/// One step of a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Write the file that holds after every login or start (LaunchAgent, drop-in).
    Persist {
        /// Whose start must see it.
        owner: Owner,
        /// All values of ours.
        values: Values,
    },
    /// Give the session the values (`launchctl setenv`), or let the manager read its files again.
    Publish {
        /// Whose start must see it.
        owner: Owner,
        /// Values to set.
        set: Values,
        /// Names to take away.
        unset: BTreeSet<Name>,
    },
    /// Give the owner's start, and nobody else, another address to listen on, or take it away again. The file is gone
    /// after the next boot, so that a server that nobody looks after listens where clients expect it.
    Address {
        /// Whose start.
        owner: Owner,
        /// The port of 127.0.0.1; `None` takes it away.
        moved: Option<u16>,
    },
    /// Stop the server through its owner.
    Stop(Stop),
    /// End what the stop left behind.
    Sweep(Sweep),
    /// Wait until nobody listens on the port.
    AwaitPortFree {
        /// The port.
        port: u16,
    },
    /// Start the server through its owner.
    Start(Start),
    /// Wait until a *new* server answers `/api/version`.
    AwaitAnswer {
        /// The port.
        port: u16,
        /// The server that must not be the one that answers.
        not: Option<Identity>,
    },
    /// Read every layer anew and compare.
    Prove,
}

/// Which part of a plan a step belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Nothing has been taken from the running server yet.
    Preparing,
    /// The server is being stopped.
    Stopping,
    /// The server is being started.
    Starting,
    /// It answers; its values are being read.
    Proving,
}

impl Step {
    /// Its part of the plan.
    pub fn phase(&self) -> Phase {
        match self {
            Self::Persist { .. } | Self::Publish { .. } | Self::Address { .. } => Phase::Preparing,
            Self::Stop(_) | Self::Sweep(_) | Self::AwaitPortFree { .. } => Phase::Stopping,
            Self::Start(_) | Self::AwaitAnswer { .. } => Phase::Starting,
            Self::Prove => Phase::Proving,
        }
    }

    /// A short fixed name, used in JSON and as the name of the step's deadline.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Persist { .. } => "persist",
            Self::Publish { .. } => "publish",
            Self::Address { .. } => "address",
            Self::Stop(_) => "stop",
            Self::Sweep(_) => "sweep",
            Self::AwaitPortFree { .. } => "await-port-free",
            Self::Start(_) => "start",
            Self::AwaitAnswer { .. } => "await-answer",
            Self::Prove => "prove",
        }
    }

    /// How long the step may take in all, retries included, in awake time.
    pub fn allowance(&self) -> Duration {
        Duration::from_secs(match self {
            Self::Persist { .. } | Self::Publish { .. } | Self::Address { .. } => 60,
            // 40 s for the GUI (it may restore another program's profile for 30 s), then SIGKILL; a unit may take
            // its own 90 s (systemd's DefaultTimeoutStopSec).
            Self::Stop(Stop::App { .. } | Stop::Process { .. }) => 55,
            Self::Stop(Stop::Job { .. } | Stop::Unit { .. }) => 100,
            // SIGTERM, then SIGKILL: killed runners give their memory back first, see `stall::envelope::END_LONGEST`.
            Self::Sweep(_) => 75,
            Self::AwaitPortFree { .. } => 15,
            Self::Start(_) => 40,
            // GPU discovery runs between "Listening" and the first answer.
            Self::AwaitAnswer { .. } => 90,
            Self::Prove => 15,
        })
    }
}

impl fmt::Display for Step {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Persist { owner: Owner::Agent(AgentKind::NewUnit { unit, .. }), values } => {
                write!(out, "make Ollama the unit {unit} of yours, started at every login, with {}", list(values))
            }
            Self::Persist { owner, values } => write!(out, "persist {} for {}", list(values), owner.word()),
            Self::Publish { set, unset, .. } if unset.is_empty() => write!(out, "publish {}", list(set)),
            Self::Publish { set, unset, .. } => {
                let names: Vec<_> = unset.iter().map(Name::as_str).collect();
                write!(out, "publish {}, take away {}", list(set), names.join(" "))
            }
            Self::Address { owner, moved: Some(port) } => {
                write!(out, "give the start of {} alone the address {}", owner.word(), moved_address(*port))
            }
            Self::Address { owner, moved: None } => {
                write!(out, "take the moved address from the start of {}", owner.word())
            }
            Self::Stop(Stop::App { bundle }) => {
                write!(out, "quit {} with SIGTERM, at most 40 s, then SIGKILL", bundle.display())
            }
            Self::Stop(Stop::Job { label }) => write!(out, "take the job {label} out of launchd"),
            Self::Stop(Stop::Unit { unit, .. }) => write!(out, "stop the unit {unit}"),
            Self::Stop(Stop::Process { server }) => {
                write!(out, "stop pid {} with SIGTERM, at most 10 s, then SIGKILL", server.pid)
            }
            Self::Sweep(Sweep::Bundle(bundle)) => write!(out, "end what is left of {}", bundle.display()),
            Self::Sweep(Sweep::RunnersOf(server)) => write!(out, "end runners left by pid {}", server.pid),
            Self::AwaitPortFree { port } => write!(out, "wait until port {port} is free"),
            Self::Start(Start::App { bundle, environment }) => {
                write!(out, "open {}{}", bundle.display(), with_address(environment))
            }
            Self::Start(Start::Job { label, .. }) => write!(out, "load the job {label} into launchd"),
            Self::Start(Start::Unit { unit, .. }) => write!(out, "start the unit {unit}"),
            Self::Start(Start::Process { program, environment }) => {
                write!(out, "start {} serve{}", program.display(), with_address(environment))
            }
            Self::AwaitAnswer { port, .. } => write!(out, "wait for a new server to answer on port {port}"),
            Self::Prove => write!(out, "prove what is in force"),
        }
    }
}

/// Whether a failed step may be tried again within its allowance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Again {
    /// The answer will not change by itself.
    Never,
    /// A known race (launchd still draining, LaunchServices still listing the old app): try again soon.
    Soon,
    /// It may be such a race, and is most likely none (a server that ends at once): try again a few times.
    Few,
}

/// Why a step did not succeed, in words for a person.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct StepFailure {
    /// Stable code for programs, kebab-case, e.g. `setenv-denied`.
    pub code: &'static str,
    /// What happened, and what was left unchanged.
    pub message: String,
    /// What to do about it.
    pub hint: String,
    /// Whether trying again can help.
    pub again: Again,
}

/// The steps to a goal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// What it is for.
    pub goal: Goal,
    /// Through whom.
    pub owner: Owner,
    /// In this order.
    pub steps: Vec<Step>,
}

impl Plan {
    /// The port that the new server has to answer on.
    pub fn port(&self) -> Option<u16> {
        self.steps.iter().find_map(|step| match step {
            Step::AwaitAnswer { port, .. } => Some(*port),
            Step::Persist { .. }
            | Step::Publish { .. }
            | Step::Address { .. }
            | Step::Stop(_)
            | Step::Sweep(_)
            | Step::AwaitPortFree { .. }
            | Step::Start(_)
            | Step::Prove => None,
        })
    }
}

/// Why no plan is made. Nothing has been changed then.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// Somebody's terminal owns the server.
    #[error("the server (pid {}) was started by hand", server.pid)]
    Manual {
        /// The server.
        server: Identity,
        /// Name of the parent process.
        started_by: Option<String>,
    },
    /// A container owns the server.
    #[error("the server runs in the container {name}, which is shown and proved but never changed")]
    Container {
        /// The container.
        name: String,
    },
    /// Several fight for the port.
    #[error("several programs want port {port}: {who}")]
    Contested {
        /// The port.
        port: u16,
        /// Their words, pids and paths.
        who: String,
    },
    /// Another program holds the port.
    #[error("port {port} is held by {program} (pid {pid}), which is no Ollama")]
    Stranger {
        /// The port.
        port: u16,
        /// Its pid.
        pid: u32,
        /// Its name.
        program: String,
    },
    /// Another user's server.
    #[error("port {port} is held by a process of another user")]
    OtherUser {
        /// The port.
        port: u16,
    },
    /// The app runs from a random read-only place that is gone as soon as it quits.
    #[error("{} runs from a random read-only place (App Translocation), which is gone as soon as it quits", .0.display())]
    Translocated(PathBuf),
    /// Nothing to start.
    #[error("no Ollama was found on this machine")]
    Absent,
    /// It could not be told who owns the server.
    #[error("it could not be told who owns the server: {0}")]
    Unknown(String),
    /// An upgrade has stopped the server, and starts it again by itself.
    #[error("an upgrade or a rollback has stopped the server, and starts it again by itself")]
    Upgrading,
}

/// Makes the plan for a goal from what was seen.
///
/// `take_over` allows a server that a person started by hand to be stopped and started again by us.
///
/// # Errors
/// A [`Refusal`] with its reason; nothing has been changed then.
pub fn plan(goal: Goal, ownership: &Ownership, seat: Seat, take_over: bool) -> Result<Plan, Refusal> {
    let port = seat.home;
    let (owner, server) = match ownership {
        Ownership::One { owner, server } => (owner, *server),
        Ownership::Contested { holder, server, rivals } => {
            let mut who = format!("{} (pid {})", holder.word(), server.pid);
            for rival in rivals {
                who.push_str(&format!(", {}", rival.who.word()));
                if let Some(pid) = rival.pid {
                    who.push_str(&format!(" (pid {pid})"));
                }
                if let Some(program) = &rival.program {
                    who.push_str(&format!(" from {}", program.display()));
                }
            }
            return Err(Refusal::Contested { port, who });
        }
        Ownership::Foreign(crate::owner::Foreigner::Stranger { pid, program }) => {
            return Err(Refusal::Stranger { port, pid: *pid, program: program.clone() });
        }
        Ownership::Foreign(crate::owner::Foreigner::OtherUser { .. }) => return Err(Refusal::OtherUser { port }),
        Ownership::Absent => return Err(Refusal::Absent),
        Ownership::Unknown(reason) => return Err(Refusal::Unknown(reason.clone())),
    };
    let environment = environment(&goal, owner, seat);
    if let Owner::App { bundle } = owner
        && bundle.components().any(|part| part.as_os_str() == "AppTranslocation")
    {
        return Err(Refusal::Translocated(bundle.clone()));
    }
    let (owner, stop, sweep, start) = match owner {
        Owner::App { bundle } => (
            owner.clone(),
            Some(Stop::App { bundle: bundle.clone() }),
            Some(Sweep::Bundle(bundle.clone())),
            Start::App { bundle: bundle.clone(), environment },
        ),
        Owner::Brew { label, plist } | Owner::Agent(AgentKind::LaunchAgent { label, plist }) => (
            owner.clone(),
            Some(Stop::Job { label: label.clone() }),
            server.map(Sweep::RunnersOf),
            Start::Job { label: label.clone(), plist: plist.clone() },
        ),
        Owner::Systemd { scope, unit } => unit_parts(owner, *scope, unit, server),
        Owner::Agent(AgentKind::UserUnit { unit }) => unit_parts(owner, Scope::User, unit, server),
        Owner::Agent(AgentKind::Process { program }) => (
            owner.clone(),
            server.map(|server| Stop::Process { server }),
            server.map(Sweep::RunnersOf),
            Start::Process { program: program.clone(), environment },
        ),
        Owner::Container { name } => return Err(Refusal::Container { name: name.clone() }),
        Owner::Agent(AgentKind::NewUnit { unit, .. }) => unit_parts(owner, Scope::User, unit, server),
        Owner::Manual { server, program, started_by, own_unit } => match (take_over, program.known()) {
            // What was called by a relative path could not be started again from elsewhere.
            (true, Some(program)) if program.is_absolute() => {
                let program = program.clone();
                let (ours, start) = match own_unit {
                    Known::Is(unit) => (
                        AgentKind::NewUnit { unit: unit.clone(), program },
                        Start::Unit { scope: Scope::User, unit: unit.clone() },
                    ),
                    Known::Unknown(_) => {
                        (AgentKind::Process { program: program.clone() }, Start::Process { program, environment })
                    }
                };
                (Owner::Agent(ours), Some(Stop::Process { server: *server }), Some(Sweep::RunnersOf(*server)), start)
            }
            (true, Some(_) | None) | (false, _) => {
                return Err(Refusal::Manual { server: *server, started_by: started_by.clone() });
            }
        },
    };
    let mut steps = Vec::new();
    match (&goal, &owner) {
        (Goal::Apply { desired, unset }, _) => {
            steps.push(Step::Persist { owner: owner.clone(), values: desired.clone() });
            steps.push(Step::Publish { owner: owner.clone(), set: desired.clone(), unset: unset.clone() });
        }
        // It has to be made before it can be started.
        (Goal::Restart { desired }, Owner::Agent(AgentKind::NewUnit { .. })) => {
            steps.push(Step::Persist { owner: owner.clone(), values: desired.clone() });
        }
        (Goal::Restart { .. } | Goal::Stop, _) => {}
    }
    let (moved, port) = (seat.moved_for(&owner), seat.port(&owner));
    if started_by_a_unit(&owner) && (moved.is_some() || seat.written) {
        steps.push(Step::Address { owner: owner.clone(), moved });
    }
    steps.extend(stop.map(Step::Stop));
    steps.extend(sweep.map(Step::Sweep));
    steps.push(Step::AwaitPortFree { port });
    match &goal {
        Goal::Apply { .. } | Goal::Restart { .. } => {
            steps.push(Step::Start(start));
            steps.push(Step::AwaitAnswer { port, not: server });
            steps.push(Step::Prove);
        }
        Goal::Stop => {}
    }
    Ok(Plan { goal, owner, steps })
}

/// What is put on the environment of a start of ours.
fn environment(goal: &Goal, owner: &Owner, seat: Seat) -> Values {
    let mut environment = goal.desired().clone();
    // One that is taken over becomes ours, and moves like ours.
    let movable = can_be_moved(owner) || matches!(owner, Owner::Manual { .. });
    if let (Some(port), true) = (seat.moved, movable)
        && let (Ok(name), Ok(value)) = (Name::try_new(ADDRESS), Value::try_new(&moved_address(port)))
    {
        environment.insert(name, value);
    }
    environment
}

/// The variable that names where the server listens (`envconfig/config.go`).
pub const ADDRESS: &str = "OLLAMA_HOST";

fn started_by_a_unit(owner: &Owner) -> bool {
    match owner {
        Owner::Systemd { .. } | Owner::Agent(AgentKind::UserUnit { .. } | AgentKind::NewUnit { .. }) => true,
        Owner::App { .. }
        | Owner::Brew { .. }
        | Owner::Agent(AgentKind::LaunchAgent { .. } | AgentKind::Process { .. })
        | Owner::Container { .. }
        | Owner::Manual { .. } => false,
    }
}

fn with_address(environment: &Values) -> String {
    let address = environment.iter().find(|(name, _)| name.as_str() == ADDRESS);
    address.map(|(name, value)| format!(" with {name}={value} of its own")).unwrap_or_default()
}

fn unit_parts(
    owner: &Owner,
    scope: Scope,
    unit: &str,
    server: Option<Identity>,
) -> (Owner, Option<Stop>, Option<Sweep>, Start) {
    (
        owner.clone(),
        Some(Stop::Unit { scope, unit: unit.to_owned() }),
        server.map(Sweep::RunnersOf),
        Start::Unit { scope, unit: unit.to_owned() },
    )
}

fn list(values: &Values) -> String {
    if values.is_empty() {
        return "nothing".to_owned();
    }
    let pairs: Vec<_> = values.iter().map(|(name, value)| format!("{name}={value}")).collect();
    pairs.join(" ")
}

#[cfg(test)]
mod tests;
