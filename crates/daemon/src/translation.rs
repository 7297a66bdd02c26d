//! Engine values become protocol values here and nowhere else, and get their words for people.

use crate::configuration::ConfigurationFile;
use crate::looking::Seen;
use stablehand_engine::Known;
use stablehand_engine::alert::Alert;
use stablehand_engine::owner::{AgentKind, Contender, Foreigner, Owner, Ownership, Rival};
use stablehand_engine::plan::{Refusal, Step};
use stablehand_engine::setting::{Layer, MAIN_SETTINGS, Proof, Report, Standing};
use stablehand_engine::supervisor::{Origin, Outcome, Progress, State, Supervisor, Surrender};
use stablehand_engine::time::Wall;
use stablehand_ollama::catalogue;
use stablehand_platform::linux::systemctl;
use stablehand_platform::machine::{Machine, Os};
use stablehand_protocol::{self as protocol, Ending, Failure, Snapshot, StepProgress, Watched};
use std::collections::VecDeque;
use std::sync::Arc;

/// What a snapshot is made from.
pub struct Sources<'a> {
    /// The machine.
    pub machine: &'a Machine,
    /// The engine's state.
    pub supervisor: &'a Supervisor,
    /// When the engine's state began.
    pub since: Wall,
    /// The last look.
    pub seen: &'a Seen,
    /// Memory, queue and runners.
    pub watched: Option<Arc<Watched>>,
    /// Versions of Ollama.
    pub versions: Option<Arc<protocol::Versions>>,
    /// The last alerts, oldest first.
    pub alerts: &'a VecDeque<protocol::Alert>,
    /// Until when no desktop notification is delivered.
    pub alerts_paused_until: Option<Wall>,
    /// Our own configuration.
    pub configuration: &'a ConfigurationFile,
    /// Where the gateway stands.
    pub gateway: protocol::Gateway,
}

/// The whole state as a copy.
pub fn snapshot(sources: &Sources<'_>) -> Snapshot {
    let Sources {
        machine,
        supervisor,
        since,
        seen,
        watched,
        versions,
        alerts,
        alerts_paused_until,
        configuration,
        gateway,
    } = sources;
    Snapshot {
        daemon_version: env!("CARGO_PKG_VERSION").to_owned(),
        simulated: simulated(machine),
        server: server(machine, supervisor, *since, seen),
        work: work(supervisor),
        settings: seen.look.reports.iter().map(setting).collect(),
        runners: seen.runners.clone(),
        watched: watched.as_deref().cloned(),
        versions: versions.as_deref().cloned(),
        gateway: Some(gateway.clone()),
        alerts: alerts.iter().cloned().collect(),
        alerts_paused_until: alerts_paused_until.map(rfc3339),
        config: protocol::Config {
            path: configuration.path().display().to_string(),
            failure: configuration.failure().cloned(),
            quiet: configuration.current().quiet.map(|hours| hours.to_string()),
        },
        notes: seen.notes.clone(),
    }
}

/// The folder of the simulated machine, when it is one.
pub fn simulated(machine: &Machine) -> Option<String> {
    machine.simulated().map(|folder| folder.display().to_string())
}

/// What every ending of a request about settings carries.
pub fn ending(machine: &Machine, seen: &Seen) -> Ending {
    let shown = |report: &&Report| report.desired.is_some() || MAIN_SETTINGS.contains(&report.name.as_str());
    Ending {
        settings: seen.look.reports.iter().filter(shown).map(setting).collect(),
        runners: seen.runners.clone(),
        notes: seen.notes.clone(),
        simulated: simulated(machine),
        ..Ending::new(protocol::Outcome::Unknown)
    }
}

/// Puts an outcome of the engine into an ending.
pub fn conclude(ending: &mut Ending, outcome: &Outcome) {
    let (word, failure) = match outcome {
        Outcome::Proven => (protocol::Outcome::Proven, None),
        Outcome::Drift(names) => {
            ending.notes.push(format!("the server runs, but not as desired: {}", names.join(", ")));
            (protocol::Outcome::Drift, None)
        }
        Outcome::Unknown(reason) => {
            ending.notes.push(format!("the server runs, but this could not be read: {reason}"));
            (protocol::Outcome::Unknown, None)
        }
        Outcome::Refused(refusal) => (protocol::Outcome::Failed, Some(refusal_failure(refusal))),
        Outcome::Failed { step, failure, serving } => {
            let state = if *serving { "Ollama still serves as before" } else { "Ollama is not serving now" };
            let failure = Failure::new(
                failure.code,
                format!("«{step}» failed: {}; {state}", failure.message),
                failure.hint.clone(),
            );
            (protocol::Outcome::Failed, Some(failure))
        }
        Outcome::Superseded => (
            protocol::Outcome::Failed,
            Some(Failure::new("superseded", "a newer request took this one's place before it began", "")),
        ),
        Outcome::Stopped => (protocol::Outcome::Changed, None),
    };
    ending.outcome = word;
    ending.failure = failure;
}

/// An outcome in one sentence, for the history.
pub fn outcome_in_words(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Proven => "restarted, and every setting is proven".to_owned(),
        Outcome::Drift(names) => format!("restarted, but not as desired: {}", names.join(", ")),
        Outcome::Unknown(reason) => format!("restarted, but this could not be read: {reason}"),
        Outcome::Refused(refusal) => format!("not restarted: {refusal}"),
        Outcome::Failed { step, failure, .. } => format!("«{step}» failed: {failure}"),
        Outcome::Superseded => "not begun: a newer request took its place".to_owned(),
        Outcome::Stopped => "stopped for an upgrade".to_owned(),
    }
}

/// A refusal in words for a person.
pub fn refusal_failure(refusal: &Refusal) -> Failure {
    let (code, hint): (_, String) = match refusal {
        Refusal::Manual { started_by, .. } => {
            let place = started_by.as_deref().map_or_else(String::new, |name| format!(" (in {name})"));
            (
                "owner-manual",
                format!(
                    "stop it where it was started{place} and start Ollama as an app or service, or let Stablehand take it over: add --take-over"
                ),
            )
        }
        Refusal::Container { .. } => (
            "owner-container",
            "set the variables where the container is made (`docker run -e …`, compose file) and make it anew"
                .to_owned(),
        ),
        Refusal::Contested { .. } => {
            ("owners-contested", "keep one of them and stop the others; `stablehand doctor` says how".to_owned())
        }
        Refusal::Stranger { .. } => ("port-stranger", "stop that program, or give it another port".to_owned()),
        Refusal::OtherUser { .. } => {
            ("port-other-user", "ask that user, or give your own Ollama another port with OLLAMA_HOST".to_owned())
        }
        Refusal::Translocated(_) => (
            "app-translocated",
            "move it to another folder and back with Finder, start it again, then try again".to_owned(),
        ),
        Refusal::Absent => ("ollama-missing", "install it from ollama.com, then try again".to_owned()),
        Refusal::Unknown(_) => ("owner-unknown", "see `stablehand doctor`".to_owned()),
        Refusal::Upgrading => ("upgrading", "`stablehand status` shows how far it is; try again after it".to_owned()),
    };
    Failure::new(code, format!("{refusal}; nothing was changed"), hint)
}

/// Progress as an event.
pub fn progress(progress: &Progress) -> protocol::Event {
    match progress {
        Progress::Planned(plan) => protocol::Event::Planned {
            goal: plan.goal.word().to_owned(),
            owner: plan.owner.word().to_owned(),
            steps: plan.steps.iter().map(ToString::to_string).collect(),
        },
        Progress::Began { index, of, step, attempt } => {
            protocol::Event::StepBegan(step_progress(*index, *of, step, *attempt))
        }
        Progress::Done { index, note } => protocol::Event::StepDone { index: index + 1, note: note.clone() },
        Progress::Retrying { index, failure } => {
            protocol::Event::StepRetrying { index: index + 1, failure: crate::failure_of(failure) }
        }
        Progress::Again(reason) => protocol::Event::Again { reason: reason.clone() },
    }
}

/// An alert with its time.
pub fn alert(alert: &Alert, at: Wall) -> protocol::Alert {
    protocol::Alert {
        kind: alert.kind.word().to_owned(),
        message: alert.message.clone(),
        evidence: alert.evidence.clone(),
        action: alert.action.clone().into_owned(),
        at: rfc3339(at),
    }
}

/// Names of the settings that are not as desired.
pub fn drifted(reports: &[Report]) -> Vec<String> {
    let differs = |report: &&Report| matches!(report.standing, Standing::Drift(_) | Standing::SetInApp);
    reports.iter().filter(differs).map(|report| report.name.to_string()).collect()
}

/// Who fights for the port, in words.
pub fn rivalry(ownership: &Ownership) -> Option<String> {
    match ownership {
        Ownership::Contested { holder, server, rivals } => {
            let others: Vec<_> = rivals.iter().map(rival_in_words).collect();
            Some(format!(
                "{} (pid {}) holds the port that {} wants too",
                name_of(holder),
                server.pid,
                others.join(" and ")
            ))
        }
        Ownership::One { .. } | Ownership::Foreign(_) | Ownership::Absent | Ownership::Unknown(_) => None,
    }
}

fn rival_in_words(rival: &Rival) -> String {
    let pid = rival.pid.map_or_else(String::new, |pid| format!("pid {pid}, "));
    let path = rival.program.as_ref().map_or_else(String::new, |path| format!("{}, ", path.display()));
    let version = rival.version.as_ref().map_or_else(String::new, |version| format!("version {version}, "));
    let who = match &rival.who {
        Contender::Owner(owner) => name_of(owner),
        Contender::Stranger => "another program".to_owned(),
    };
    format!("{who} ({pid}{path}{version}{})", rival.why)
}

fn server(machine: &Machine, supervisor: &Supervisor, since: Wall, seen: &Seen) -> protocol::Server {
    let ownership = &seen.look.ownership;
    let detail = owner_of(ownership);
    let rivals: &[Rival] = match ownership {
        Ownership::Contested { rivals, .. } => rivals,
        Ownership::One { .. } | Ownership::Foreign(_) | Ownership::Absent | Ownership::Unknown(_) => &[],
    };
    protocol::Server {
        state: supervisor.state().word().to_owned(),
        since: rfc3339(since),
        words: state_in_words(supervisor, seen),
        version: known(&seen.version, ToString::to_string),
        owner: found_owner(ownership).owner,
        owner_detail: detail.map(|owner| owner_detail(machine, owner)),
        rivals: rivals
            .iter()
            .map(|rival| protocol::Rival {
                owner: rival.who.word().to_owned(),
                pid: rival.pid,
                path: rival.program.as_ref().map(|path| path.display().to_string()),
                version: rival.version.clone(),
                why: rival.why.clone(),
            })
            .collect(),
        pid: ownership.server().map(|server| server.pid),
        started: seen.look.server_started.map_or_else(
            || protocol::Known::unknown("no server of this user is seen"),
            |at| protocol::Known::Is(rfc3339(at)),
        ),
        address: seen.address.to_string(),
        serving: supervisor.serving(),
    }
}

fn owner_of(ownership: &Ownership) -> Option<&Owner> {
    match ownership {
        Ownership::One { owner, .. } | Ownership::Contested { holder: owner, .. } => Some(owner),
        Ownership::Foreign(_) | Ownership::Absent | Ownership::Unknown(_) => None,
    }
}

/// Who starts Ollama, for clients.
pub fn found_owner(ownership: &Ownership) -> protocol::FoundOwner {
    let owner = match ownership {
        Ownership::One { owner, .. } | Ownership::Contested { holder: owner, .. } => {
            protocol::Known::Is(owner.word().to_owned())
        }
        Ownership::Foreign(by) => protocol::Known::unknown(foreigner_in_words(by)),
        Ownership::Absent => protocol::Known::unknown("no Ollama was found on this machine"),
        Ownership::Unknown(reason) => protocol::Known::unknown(reason.clone()),
    };
    protocol::FoundOwner { owner, name: owner_of(ownership).map(name_of) }
}

fn state_in_words(supervisor: &Supervisor, seen: &Seen) -> String {
    match supervisor.state() {
        State::Blind { .. } => "looking at this machine".to_owned(),
        State::Down { .. } => match &seen.look.ownership {
            Ownership::Absent => "no Ollama was found on this machine".to_owned(),
            Ownership::One { .. } | Ownership::Contested { .. } | Ownership::Foreign(_) | Ownership::Unknown(_) => {
                "Ollama is not running".to_owned()
            }
        },
        State::ComingUp { server, .. } => format!("Ollama is starting (pid {}) and does not answer yet", server.pid),
        State::Up { .. } => match rivalry(&seen.look.ownership) {
            Some(rivalry) => format!("Ollama answers, but {rivalry}"),
            None => "Ollama answers".to_owned(),
        },
        State::Silent { server, .. } => format!("Ollama runs (pid {}) and does not answer", server.pid),
        State::Blocked { by, .. } => foreigner_in_words(by),
        State::Planning { wish, .. } => format!("planning: {}", wish.goal.word()),
        State::Working(run) => match run.plan().steps.get(run.index()) {
            Some(step) => format!("{}: {step}", run.plan().goal.word()),
            None => run.plan().goal.word().to_owned(),
        },
        State::Upgrading { .. } => "an upgrade or a rollback is being carried out".to_owned(),
        State::GaveUp { .. } if supervisor.serving() => {
            "Ollama answers again; nothing is done by itself until you run `stablehand restart`".to_owned()
        }
        State::GaveUp { why: Surrender::CrashLoop { deaths }, .. } => {
            format!("given up: Ollama died {deaths} times within ten minutes; `stablehand restart` tries again")
        }
        State::GaveUp { why: Surrender::NeverAnswered, .. } => {
            "given up: Ollama was started and never answered; `stablehand restart` tries again".to_owned()
        }
    }
}

fn foreigner_in_words(by: &Foreigner) -> String {
    match by {
        Foreigner::Stranger { pid, program } => {
            format!("the port is held by {program} (pid {pid}), which is no Ollama")
        }
        Foreigner::OtherUser { uid: Some(uid) } => format!("the port is held by a process of another user (uid {uid})"),
        Foreigner::OtherUser { uid: None } => "the port is held by a process of another user".to_owned(),
    }
}

/// An owner's name in words.
pub fn name_of(owner: &Owner) -> String {
    match owner {
        Owner::App { bundle } => bundle.display().to_string(),
        Owner::Brew { label, .. } => format!("Homebrew service {label}"),
        Owner::Systemd { unit, .. } => format!("systemd unit {unit}"),
        Owner::Agent(AgentKind::LaunchAgent { label, .. }) => format!("launchd job {label}"),
        Owner::Agent(AgentKind::UserUnit { unit } | AgentKind::NewUnit { unit, .. }) => format!("our unit {unit}"),
        Owner::Agent(AgentKind::Process { program }) => format!("{}, kept by Stablehand", program.display()),
        Owner::Container { name } => format!("container {name}"),
        Owner::Manual { program, started_by, .. } => {
            let program = program.known().map_or_else(|| "ollama".to_owned(), |path| path.display().to_string());
            match started_by {
                Some(parent) => format!("{program}, started by hand in {parent}"),
                None => format!("{program}, started by hand"),
            }
        }
    }
}

fn owner_detail(machine: &Machine, owner: &Owner) -> protocol::Owner {
    let (can_restart, hint) = match owner {
        Owner::App { .. } | Owner::Brew { .. } | Owner::Systemd { .. } | Owner::Agent(_) => (true, String::new()),
        Owner::Container { .. } => (false, "change it where the container is made".to_owned()),
        Owner::Manual { .. } => {
            let service = match machine.os() {
                Os::MacOs => "open Ollama.app or run `brew services start ollama`",
                Os::Linux if systemctl::is_there(machine) => "run `systemctl enable --now ollama`",
                Os::Linux => "start it as a service",
            };
            (false, format!("stop it there and {service}, or run `stablehand apply --take-over`"))
        }
    };
    protocol::Owner { name: name_of(owner), can_restart, hint }
}

fn work(supervisor: &Supervisor) -> Option<protocol::Work> {
    match supervisor.state() {
        State::Working(run) => Some(protocol::Work {
            goal: run.plan().goal.word().to_owned(),
            origin: match run.wish().origin {
                Origin::Person => "person",
                Origin::LoginRace => "login-race",
                Origin::Crash => "crash",
                Origin::CutOff => "cut-off",
                Origin::Upgrade => "upgrade",
                Origin::Gateway => "gateway",
            }
            .to_owned(),
            step: step_progress(
                run.index(),
                run.plan().steps.len(),
                run.plan().steps.get(run.index()).unwrap_or(&Step::Prove),
                run.attempt(),
            ),
        }),
        State::Blind { .. }
        | State::Down { .. }
        | State::ComingUp { .. }
        | State::Up { .. }
        | State::Silent { .. }
        | State::Blocked { .. }
        | State::Planning { .. }
        | State::Upgrading { .. }
        | State::GaveUp { .. } => None,
    }
}

fn step_progress(index: usize, of: usize, step: &Step, attempt: u32) -> StepProgress {
    StepProgress { index: index + 1, of, name: step.name().to_owned(), words: step.to_string(), attempt }
}

/// One setting through all its layers.
pub fn setting(report: &Report) -> protocol::Setting {
    let (standing, drift): (_, &[Layer]) = match &report.standing {
        Standing::NotManaged => ("not-managed", &[]),
        Standing::Proven => ("proven", &[]),
        Standing::Drift(layers) => ("drift", layers),
        Standing::SetInApp => ("set-in-app", &[Layer::Effective]),
        Standing::Unknown(_) => ("unknown", &[]),
    };
    let entry = catalogue::find(report.name.as_str());
    protocol::Setting {
        name: report.name.to_string(),
        desired: report.desired.as_ref().map(|wish| wish.value.to_string()),
        persisted: known(&report.persisted, |value| value.as_ref().map(ToString::to_string)),
        session: report.session.as_ref().map(|layer| known(layer, |value| value.as_ref().map(ToString::to_string))),
        effective: known(&report.effective, |effective| effective.in_force.clone()),
        proof: match &report.effective {
            Known::Is(effective) => effective.proofs.iter().map(proof).collect(),
            Known::Unknown(_) => vec![],
        },
        default: report.default_in_force.clone(),
        standing: standing.to_owned(),
        drift: drift.iter().map(|layer| layer.word().to_owned()).collect(),
        meaning: entry.map_or_else(String::new, |entry| entry.meaning.to_owned()),
        allowed: entry.map_or_else(String::new, |entry| entry.kind.allowed()),
        caution: entry.and_then(|entry| entry.caution).unwrap_or_default().to_owned(),
    }
}

fn proof(proof: &Proof) -> protocol::Proof {
    let source = match proof {
        Proof::ConfigLine { logged_at, log } => format!("{log} at {}", rfc3339(*logged_at)),
        Proof::Environment { server } => format!("pid {}", server.pid),
    };
    protocol::Proof { kind: proof.word().to_owned(), source }
}

fn known<T, U>(fact: &Known<T>, derive: impl FnOnce(&T) -> U) -> protocol::Known<U> {
    match fact {
        Known::Is(value) => protocol::Known::Is(derive(value)),
        Known::Unknown(reason) => protocol::Known::unknown(reason.clone()),
    }
}

/// A calendar time for people and programs.
pub fn rfc3339(wall: Wall) -> String {
    jiff::Timestamp::from_millisecond(wall.unix_ms).map_or_else(|_| "unknown".to_owned(), |at| at.to_string())
}
