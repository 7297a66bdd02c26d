//! The server's life in an upgrade's hands: stopped and started through whoever owns it, and proved.

use super::deeds::Life;
use super::presence::client_version;
use crate::looking::Seen;
use crate::supervision::{Charge, Command};
use stablehand_engine::owner::Owner;
use stablehand_engine::plan::{Again, Step, StepFailure};
use stablehand_engine::process::Role;
use stablehand_engine::supervisor::Outcome;
use stablehand_engine::upgrade::fault::NotProved;
use stablehand_engine::upgrade::order::{Order, Switch};
use stablehand_ollama::client::{CallError, Client, Generation};
use stablehand_platform::machine::Machine;
use stablehand_platform::survey::Surveyor;
use stablehand_protocol::{Event, Request};
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex as StdMutex, PoisonError};
use std::time::Duration;
use tokio::sync::{Mutex, mpsc, oneshot, watch};

/// How long each question to the server may take.
const ANSWER: Duration = Duration::from_secs(10);
/// A model of some gigabytes has to be read first.
const GENERATION: Duration = Duration::from_secs(240);
/// No question gets less real time than this, however fast a simulated machine runs.
const LEAST_REAL: Duration = Duration::from_secs(15);
/// How many models are tried; the smallest may be one for embeddings alone.
const MODELS_TRIED: usize = 3;
/// The fixed prompt of proof and measurement.
const PROMPT: &str = "Count from one to twenty in words, separated by commas.";

/// What to do with a version that does not come up.
const LAST_WORDS: &str =
    "its last words are in `stablehand logs`; choose another version with --to, or wait for the next release";
/// Code of a server that dies again and again before it answers.
const DIES_AT_START: &str = "dies-at-start";
/// Code of a step that was not done in its time.
const STEP_TIMED_OUT: &str = "step-timed-out";

/// The real one.
pub(super) struct ServersLife {
    pub(super) machine: Machine,
    pub(super) surveyor: Arc<Mutex<Surveyor>>,
    pub(super) charges: mpsc::Sender<Charge>,
    pub(super) commands: mpsc::Sender<Command>,
    pub(super) seen: watch::Receiver<Option<Arc<Seen>>>,
    pub(super) last_start: StdMutex<Option<Outcome>>,
}

impl ServersLife {
    fn client(&self) -> Result<Client, String> {
        let anywhere = SocketAddr::from((Ipv4Addr::LOCALHOST, self.machine.default_port()));
        let address = self.seen.borrow().as_ref().map_or(anywhere, |seen| seen.address);
        Client::new(address).map_err(|error| error.to_string())
    }

    fn patience(&self, span: Duration) -> Duration {
        self.machine.clock().real_span(span).max(LEAST_REAL)
    }

    async fn charge(&self, charge: impl FnOnce(oneshot::Sender<Outcome>) -> Charge) -> Result<Outcome, StepFailure> {
        let (answer, outcome) = oneshot::channel();
        let ended = || failure("daemon-ending", "the daemon is ending", "it is taken up at its next start");
        self.charges.send(charge(answer)).await.map_err(|_closed| ended())?;
        outcome.await.map_err(|_closed| ended())
    }

    /// The smallest models on this computer, that a short request can be tried with.
    async fn models(&self, client: Client) -> Result<Vec<String>, CallError> {
        let mut models = client.tags(self.patience(ANSWER)).await?.models;
        models.retain(|model| model.remote_host.is_none() && model.size_bytes > 0);
        models.sort_by(|one, other| (one.size_bytes, &one.name).cmp(&(other.size_bytes, &other.name)));
        Ok(models.into_iter().map(|model| model.name).take(MODELS_TRIED).collect())
    }

    /// Lets the smallest model that can generate do so; `None` when there is none.
    ///
    /// # Errors
    /// The model, and what came instead.
    pub(super) async fn generate(&self) -> Result<Option<(String, Generation)>, (String, String)> {
        let client = self.client().map_err(|reason| ("a model".to_owned(), reason))?;
        let models = self.models(client).await.map_err(|error| ("a model".to_owned(), error.to_string()))?;
        for model in models {
            match client.generation(&model, PROMPT, self.patience(GENERATION)).await {
                Ok(generation) if generation.says_something() => return Ok(Some((model, generation))),
                Ok(_) => return Err((model, "the answer is empty".to_owned())),
                // A model for embeddings says so.
                Err(CallError::Status { code: 400, .. }) => {}
                Err(error) => return Err((model, error.to_string())),
            }
        }
        Ok(None)
    }
}

impl Life for ServersLife {
    async fn stop(&self) -> Result<String, StepFailure> {
        match self.charge(Charge::Stop).await? {
            Outcome::Stopped => Ok("it is stopped, and its port is free".to_owned()),
            // A version that has no app left runs nowhere.
            Outcome::Refused(stablehand_engine::plan::Refusal::Absent) => Ok("nothing was running".to_owned()),
            other @ (Outcome::Proven
            | Outcome::Drift(_)
            | Outcome::Unknown(_)
            | Outcome::Refused(_)
            | Outcome::Failed { .. }
            | Outcome::Superseded) => Err(not_as_wished(other)),
        }
    }

    async fn start(&self) -> Result<String, StepFailure> {
        let outcome = self.charge(Charge::Start).await?;
        *self.last_start.lock().unwrap_or_else(PoisonError::into_inner) = Some(outcome.clone());
        match outcome {
            Outcome::Proven | Outcome::Drift(_) | Outcome::Unknown(_) => Ok("it answers".to_owned()),
            other @ (Outcome::Refused(_) | Outcome::Failed { .. } | Outcome::Superseded | Outcome::Stopped) => {
                Err(not_as_wished(other))
            }
        }
    }

    async fn prove(&self, order: &Order, version: &str) -> Result<String, NotProved> {
        let client = self.client().map_err(|_no_address| NotProved::Silent)?;
        match client.version(self.patience(ANSWER)).await {
            Ok(answered) if answered.to_string() == version => {}
            Ok(answered) => return Err(NotProved::AnswersAs(answered.to_string())),
            Err(_) => return Err(NotProved::Silent),
        }
        let last_start = self.last_start.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let mut notes = vec![format!("it answers as {version}")];
        match last_start {
            Some(Outcome::Drift(names)) => return Err(NotProved::LostSettings(names)),
            Some(Outcome::Unknown(reason)) => notes.push(format!("its settings could not all be read ({reason})")),
            Some(Outcome::Proven) => notes.push("every setting is proven".to_owned()),
            Some(Outcome::Refused(_) | Outcome::Failed { .. } | Outcome::Superseded | Outcome::Stopped) | None => {}
        }
        if let Some(program) = command_line(order) {
            match client_version(&self.machine, &program).await {
                Ok(said) if said == version => notes.push("the command line too".to_owned()),
                Ok(said) => return Err(NotProved::CommandLineIs(said)),
                Err(reason) => return Err(NotProved::CommandLineIs(format!("of no version: {reason}"))),
            }
        }
        match self.generate().await {
            Ok(Some((model, _))) => notes.push(format!("{model} generates")),
            Ok(None) => notes.push("no model is installed that could generate, so none was tried".to_owned()),
            Err((model, reason)) => return Err(NotProved::GeneratesNothing { model, reason }),
        }
        Ok(notes.join(", "))
    }

    async fn runs_from(&self, place: &Path) -> Option<u32> {
        let sightings = self.surveyor.lock().await.sightings();
        let runs = sightings.into_iter().find(|sighting| match &sighting.role {
            Role::Gui { bundle } => bundle == place,
            Role::Shim { .. } | Role::Serve | Role::Runner(_) => {
                sighting.process.executable.known().is_some_and(|program| program.starts_with(place))
            }
        });
        runs.map(|sighting| sighting.process.id.pid)
    }

    async fn pin(&self, version: &str) -> Result<(), String> {
        configure(&self.commands, "upgrades.pin", version).await
    }
}

/// Changes our configuration file through its owner.
///
/// # Errors
/// Why it was not changed.
pub(super) async fn configure(commands: &mpsc::Sender<Command>, name: &str, value: &str) -> Result<(), String> {
    let (events, mut answers) = mpsc::channel(4);
    let set = BTreeMap::from([(name.to_owned(), value.to_owned())]);
    let command = Command { request: Request::Configure { set }, events };
    commands.send(command).await.map_err(|_closed| "the daemon is ending".to_owned())?;
    while let Some(event) = answers.recv().await {
        if let Event::Result(ending) = event {
            return ending.failure.map_or(Ok(()), |failure| Err(failure.message));
        }
    }
    Err("the daemon is ending".to_owned())
}

/// The command line that comes with a version.
fn command_line(order: &Order) -> Option<PathBuf> {
    let place = &order.slots.place;
    match &order.switch {
        Switch::Renames | Switch::Cask { .. } => Some(place.join("Contents/Resources/ollama")),
        Switch::Link | Switch::Formula => Some(place.clone()),
    }
}

fn not_as_wished(outcome: Outcome) -> StepFailure {
    match outcome {
        Outcome::Failed { step: step @ (Step::Start(_) | Step::AwaitAnswer { .. }), failure, .. }
            if failure.code == STEP_TIMED_OUT =>
        {
            StepFailure {
                message: format!("it was started and did not come up within {} s", step.allowance().as_secs()),
                hint:
                    "its last words are in `stablehand logs`; choose another version with --to, or wait for the next \
                   release"
                        .to_owned(),
                ..failure
            }
        }
        Outcome::Failed { failure, .. } if failure.code == DIES_AT_START => {
            StepFailure { hint: LAST_WORDS.to_owned(), ..failure }
        }
        Outcome::Failed { failure, .. } => failure,
        Outcome::Refused(refusal) => {
            let refused = crate::translation::refusal_failure(&refusal);
            StepFailure { code: "upgrade-refused", message: refused.message, hint: refused.hint, again: Again::Never }
        }
        Outcome::Superseded => failure("superseded", "another request took its place", "try again"),
        Outcome::Proven | Outcome::Drift(_) | Outcome::Unknown(_) => {
            failure("not-stopped", "the server was started instead of being stopped", "see `stablehand doctor`")
        }
        Outcome::Stopped => failure("not-started", "the server was stopped instead of being started", "try again"),
    }
}

fn failure(code: &'static str, message: &str, hint: &str) -> StepFailure {
    StepFailure { code, message: message.to_owned(), hint: hint.to_owned(), again: Again::Never }
}

/// The bundle or program that an owner starts, where it names one.
pub(super) fn named_by(owner: &Owner) -> Option<PathBuf> {
    use stablehand_engine::Known;
    use stablehand_engine::owner::AgentKind;
    match owner {
        Owner::App { bundle } => Some(bundle.clone()),
        Owner::Agent(AgentKind::NewUnit { program, .. } | AgentKind::Process { program })
        | Owner::Manual { program: Known::Is(program), .. } => Some(program.clone()),
        Owner::Brew { .. }
        | Owner::Systemd { .. }
        | Owner::Agent(AgentKind::LaunchAgent { .. } | AgentKind::UserUnit { .. })
        | Owner::Container { .. }
        | Owner::Manual { program: Known::Unknown(_), .. } => None,
    }
}
