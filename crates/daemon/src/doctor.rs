//! What is wrong with this machine, and how to mend it. Works without a running daemon.

use crate::configuration::ConfigurationFile;
use crate::gateway::record;
use crate::looking::Looker;
use crate::quarantine::standing;
use crate::translation;
use crate::{Place, failure_of};
use serde::Serialize;
use stablehand_engine::Known;
use stablehand_engine::owner::{Foreigner, Owner, Ownership, ownership};
use stablehand_engine::setting::Values;
use stablehand_engine::takeover::{Mode, half_done};
use stablehand_platform::launchd::adoption;
use stablehand_platform::machine::{Machine, Os};
use stablehand_platform::server_log::{LogSource, server_log};
use stablehand_platform::{console, layers};
use stablehand_protocol::{Failure, Request, Snapshot};

/// Switches on the counters of a `llama-server` (`--metrics`), for all runners of a server.
const COUNTER: &str = "LLAMA_ARG_ENDPOINT_METRICS";

/// How much a finding matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Severity {
    /// As it should be.
    Good,
    /// Worth knowing.
    Note,
    /// It keeps Stablehand or Ollama from working.
    Bad,
    /// It could not be told.
    Unknown,
}

/// One thing that was examined.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Stable kebab-case word.
    pub code: String,
    /// How much it matters.
    pub severity: Severity,
    /// What was found.
    pub message: String,
    /// What to do; empty when there is nothing to do.
    pub hint: String,
}

impl Finding {
    fn new(code: &str, severity: Severity, message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { code: code.to_owned(), severity, message: message.into(), hint: hint.into() }
    }

    fn of_failure(severity: Severity, failure: &Failure) -> Self {
        Self::new(&failure.code, severity, failure.message.clone(), failure.hint.clone())
    }

    /// The daemon answers.
    pub fn of_daemon(snapshot: &Snapshot) -> Self {
        let version = &snapshot.daemon_version;
        if version == env!("CARGO_PKG_VERSION") {
            return Self::new("daemon", Severity::Good, format!("the daemon answers (version {version})"), "");
        }
        Self::new(
            "daemon-version",
            Severity::Bad,
            format!("the daemon is version {version}, this program {}", env!("CARGO_PKG_VERSION")),
            "stop the daemon and start it again, so that both are the same version",
        )
    }

    /// The daemon does not answer.
    pub fn without_daemon(failure: &Failure) -> Self {
        Self::of_failure(Severity::Note, failure)
    }
}

/// Examines the machine.
pub async fn examine(place: &Place) -> Vec<Finding> {
    let machine = place.machine();
    let mut findings = Vec::new();
    if let Some(folder) = machine.simulated() {
        let message = format!("SIMULATED machine in {}", folder.display());
        findings.push(Finding::new("simulated", Severity::Note, message, ""));
    }
    if machine.uid() == 0 && machine.simulated().is_none() {
        findings.push(Finding::new(
            "root",
            Severity::Note,
            "running as root; nothing here needs it, and values reach root's session alone",
            "run it as the user who runs Ollama",
        ));
    }
    let file = ConfigurationFile::open(machine);
    findings.push(configuration(&file));
    findings.extend(counter(&file));
    let owner = owner(machine, &mut findings).await;
    findings.extend(gateway(machine, &file).await);
    if machine.os() == Os::MacOs {
        findings.push(session(machine).await);
        findings.extend(adoption::setters(machine).iter().map(|setter| {
            Finding::new(
                "hand-made-setter",
                Severity::Note,
                format!("{} sets Ollama's variables at login too", setter.plist.display()),
                if setter.also_does.is_empty() {
                    "`stablehand apply` adopts it: its file is kept aside, and put back by `stablehand uninstall`"
                } else {
                    "it does other things as well, so it is left alone; take Ollama's variables out of it"
                },
            )
        }));
    }
    if let Some(owner) = owner {
        findings.extend(quarantine(machine, &owner));
        findings.push(log(machine, &owner));
        // What we do not change has no file of ours.
        if !matches!(owner, Owner::Manual { .. } | Owner::Container { .. }) {
            findings.push(persisted(machine, &owner, &file).await);
        }
    }
    findings
}

fn configuration(file: &ConfigurationFile) -> Finding {
    match file.failure() {
        Some(failure) => Finding::of_failure(Severity::Bad, failure),
        None => {
            let desired = file.current().desired.len();
            let message = format!("the configuration {} is well, {desired} settings desired", file.path().display());
            Finding::new("config", Severity::Good, message, "")
        }
    }
}

/// Whether the gateway came to stand where it is wished, or was cut off on the way.
async fn gateway(machine: &Machine, file: &ConfigurationFile) -> Option<Finding> {
    let mode = file.current().gateway.mode;
    if mode == Mode::Off && record::read(machine).moved.is_none() {
        return None;
    }
    let front = Looker::new(machine.clone()).look_anew(file.current()).await.front;
    Some(match half_done(mode, front.place, front.door) {
        None => Finding::new("gateway", Severity::Good, format!("the gateway is wished {}", word(mode)), ""),
        Some(what) => Finding::new(
            HALF_DONE,
            Severity::Bad,
            format!("the gateway is wished {}, and was cut off on its way: {what}", word(mode)),
            "`stablehand doctor --mend` takes it up again; a daemon that starts does so by itself",
        ),
    })
}

/// The code of what [`mending`] mends.
const HALF_DONE: &str = "gateway-half-done";

fn word(mode: Mode) -> &'static str {
    match mode {
        Mode::Off => "off",
        Mode::Beside => "beside Ollama",
        Mode::Takeover => "in Ollama's place",
    }
}

/// What is to be asked of the daemon to mend what was found; nothing where nothing found can be mended so.
pub fn mending(place: &Place, findings: &[Finding]) -> Option<Request> {
    let half_done = findings.iter().any(|finding| finding.code == HALF_DONE);
    let file = ConfigurationFile::open(place.machine());
    let wished = &file.current().gateway;
    half_done.then(|| Request::Gateway {
        mode: wished.mode.word().to_owned(),
        port: wished.listen.first().map(std::net::SocketAddr::port).filter(|_| wished.mode == Mode::Beside),
        dry_run: false,
    })
}

/// One variable of the runners tells a stall apart in seconds; it is nobody's default.
fn counter(file: &ConfigurationFile) -> Option<Finding> {
    let configuration = file.current();
    let asked = configuration.desired.keys().any(|name| name.as_str() == COUNTER);
    let known = file.failure().is_none() && !configuration.unknown;
    (known && !asked).then(|| {
        Finding::new(
            "runner-counter",
            Severity::Note,
            format!(
                "{COUNTER} is not desired, so runners (Ollama 0.30 and newer) do not count their work; a stall of a \
                     model that was never seen at work can take minutes longer to be told"
            ),
            format!("`stablehand settings set {COUNTER}=1`, then `stablehand apply`"),
        )
    })
}

async fn owner(machine: &Machine, findings: &mut Vec<Finding>) -> Option<Owner> {
    let survey = Looker::new(machine.clone()).survey_alone().await;
    let port = survey.port;
    for app in survey.apps.iter().filter(|app| app.translocated) {
        findings.push(Finding::new(
            "translocated",
            Severity::Bad,
            format!("{} runs from a random read-only place because of quarantine", app.path.display()),
            "move it to another folder and back with Finder, then start it again",
        ));
    }
    if survey.apps.len() > 1 {
        let paths: Vec<_> = survey.apps.iter().map(|app| app.path.display().to_string()).collect();
        findings.push(Finding::new(
            "several-apps",
            Severity::Note,
            format!("there are several copies of Ollama.app: {}", paths.join(", ")),
            "keep one, so that no login or click starts the other",
        ));
    }
    let (finding, owner) = match ownership(&survey) {
        Ownership::One { owner, server } => {
            let state = server.map_or("not running".to_owned(), |server| format!("pid {}", server.pid));
            let message = format!("Ollama belongs to {} ({}, {state})", owner.word(), translation::name_of(&owner));
            let (severity, hint) = match &owner {
                Owner::Manual { .. } => (
                    Severity::Note,
                    "Stablehand does not stop what was started by hand; hand it over with `stablehand apply --take-over`",
                ),
                Owner::Container { .. } => (Severity::Note, "a container is shown and proved, never changed"),
                Owner::App { .. } | Owner::Brew { .. } | Owner::Systemd { .. } | Owner::Agent(_) => {
                    (Severity::Good, "")
                }
            };
            (Finding::new("owner", severity, message, hint), Some(owner))
        }
        contested @ Ownership::Contested { .. } if contested.is_port_shared() => {
            let who = translation::rivalry(&contested).unwrap_or_default();
            let hint = "stop that program, or give it another port; who is answered there depends on the address";
            (Finding::new("port-shared", Severity::Bad, who, hint), None)
        }
        contested @ Ownership::Contested { .. } => {
            let who = translation::rivalry(&contested).unwrap_or_default();
            let hint = "keep one: quit Ollama.app and remove it from the login items, or run `brew services stop \
                        ollama`, or stop the unit";
            (Finding::new("owners-contested", Severity::Bad, who, hint), None)
        }
        Ownership::Foreign(Foreigner::Stranger { pid, program }) => {
            let message = format!("port {port} is held by {program} (pid {pid}), which is no Ollama");
            (Finding::new("port-stranger", Severity::Bad, message, "stop that program, or give it another port"), None)
        }
        Ownership::Foreign(Foreigner::OtherUser { .. }) => {
            let message = format!("port {port} is held by a process of another user");
            let hint = "ask that user, or give your own Ollama another port with OLLAMA_HOST";
            (Finding::new("port-other-user", Severity::Bad, message, hint), None)
        }
        Ownership::Absent => {
            let message = "no Ollama was found on this machine";
            (Finding::new("ollama-missing", Severity::Bad, message, "install it from ollama.com"), None)
        }
        Ownership::Unknown(reason) => {
            let message = format!("it could not be told who owns the server: {reason}");
            (Finding::new("owner-unknown", Severity::Unknown, message, ""), None)
        }
    };
    findings.push(finding);
    owner
}

fn quarantine(machine: &Machine, owner: &Owner) -> Option<Finding> {
    let bundle = match owner {
        Owner::App { bundle } => bundle,
        Owner::Brew { .. }
        | Owner::Systemd { .. }
        | Owner::Agent(_)
        | Owner::Container { .. }
        | Owner::Manual { .. } => return None,
    };
    Some(match standing(machine, bundle)? {
        Ok(words) => Finding::new(
            "quarantined",
            Severity::Bad,
            words,
            "`stablehand quarantine --clear` checks its signature and clears it",
        ),
        Err(words) => {
            Finding::new("quarantine-unknown", Severity::Unknown, words, "`stablehand quarantine` shows what was read")
        }
    })
}

async fn session(machine: &Machine) -> Finding {
    match console::check(machine).await {
        Ok(None) => Finding::new("session", Severity::Good, "this is the login session at the screen", ""),
        Ok(Some(warning)) => Finding::new("session", Severity::Note, warning, ""),
        Err(failure) => Finding::of_failure(Severity::Bad, &failure_of(&failure)),
    }
}

fn log(machine: &Machine, owner: &Owner) -> Finding {
    match server_log(machine, owner) {
        LogSource::File(path) => match std::fs::File::open(&path) {
            Ok(_) => Finding::new("log", Severity::Good, format!("the server's log is {}", path.display()), ""),
            Err(error) => Finding::new(
                "log-unreadable",
                Severity::Unknown,
                format!("the server's log {} cannot be read: {error}", path.display()),
                "what is in force is proved from the process environment alone, if at all",
            ),
        },
        LogSource::Journal { unit, .. } => {
            Finding::new("log", Severity::Good, format!("the server's log is the journal of {unit}"), "")
        }
        LogSource::Nowhere(reason) => Finding::new("no-server-log", Severity::Note, reason, ""),
    }
}

async fn persisted(machine: &Machine, owner: &Owner, file: &ConfigurationFile) -> Finding {
    let desired: Values =
        file.current().desired.iter().map(|(name, wish)| (name.clone(), wish.value.clone())).collect();
    // The same plan that `apply` would carry out finds what is in the way of it.
    match layers::persist_changes(machine, owner, &desired) {
        Err(failure) => return Finding::of_failure(Severity::Bad, &failure_of(&failure)),
        Ok(changes) => {
            if let Some(failure) = stablehand_platform::change::in_the_way(machine, &changes) {
                return Finding::of_failure(Severity::Bad, &failure_of(&failure));
            }
        }
    }
    match layers::persisted(machine, owner).await {
        Known::Is(values) => {
            Finding::new("persisted", Severity::Good, format!("{} settings are persisted", values.len()), "")
        }
        Known::Unknown(reason) => {
            Finding::new("persisted-unknown", Severity::Unknown, format!("what is persisted is unknown: {reason}"), "")
        }
    }
}
