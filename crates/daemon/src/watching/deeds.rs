//! What the ladder wants done, each detached and answered with the life it came with.

use crate::supervision::Command;
use stablehand_engine::process::{Identity, Role};
use stablehand_engine::recovery::{Check, Event, Life, Signal};
use stablehand_engine::stall::Judgement;
use stablehand_engine::time::Wall;
use stablehand_ollama::client::Client;
use stablehand_platform::files::write_atomically;
use stablehand_platform::machine::Machine;
use stablehand_platform::paths::stablehand_files;
use stablehand_platform::processes;
use stablehand_platform::signal::{self, Kind, SignalError};
use stablehand_platform::survey::Surveyor;
use stablehand_protocol as protocol;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Mutex, mpsc};

/// A process that stays longer after a signal is the ladder's business again.
const GONE: Duration = Duration::from_secs(600);
/// How long an unload may take to be accepted.
const UNLOAD: Duration = Duration::from_secs(30);
/// The next request may have to load the model first.
const NEXT_ANSWER: Duration = Duration::from_secs(900);
/// Between two looks while something is waited for, in real time.
const POLL: Duration = Duration::from_millis(50);

/// Performs deeds.
#[derive(Clone, Debug)]
pub struct Deeds {
    machine: Machine,
    surveyor: Arc<Mutex<Surveyor>>,
    restarts: mpsc::Sender<Command>,
    answers: mpsc::Sender<Event>,
}

impl Deeds {
    /// Whoever gets the answers.
    pub fn new(
        machine: Machine,
        surveyor: Arc<Mutex<Surveyor>>,
        restarts: mpsc::Sender<Command>,
        answers: mpsc::Sender<Event>,
    ) -> Self {
        Self { machine, surveyor, restarts, answers }
    }

    /// Writes the evidence into the log folder: what was judged, and the observation it was judged by. No prompt is in
    /// either.
    pub fn save_evidence(&self, life: Life, judgement: &Judgement, observation: String, at: Wall) {
        let folder = stablehand_files(&self.machine).log_dir.join("evidence");
        let path = folder.join(format!("{}-{}.txt", at.unix_ms, judgement.verdict.word()));
        let text = format!("{}\n{}\n{judgement}\n\n{observation}\n", judgement.subject, judgement.verdict);
        let machine = self.machine.clone();
        self.answer(life, async move {
            let written =
                tokio::task::spawn_blocking(move || write_atomically(&machine, &path, text.as_bytes(), 0o600));
            match written.await {
                Ok(Ok(())) => Ok(()),
                Ok(Err(error)) => Err(error.to_string()),
                Err(error) => Err(error.to_string()),
            }
        });
    }

    /// Sends a signal to a runner and answers when it is gone.
    pub fn signal(&self, life: Life, id: Identity, signal: Signal) {
        let machine = self.machine.clone();
        let surveyor = Arc::clone(&self.surveyor);
        self.answer(life, async move {
            let classify = surveyor.lock().await.classify();
            let kind = match signal {
                Signal::Term => Kind::Term,
                Signal::Kill => Kind::Kill,
            };
            match signal::send(&machine, classify, id, kind, |role| matches!(role, Role::Runner(_))) {
                Ok(()) => {}
                Err(SignalError::Gone(_)) => return Ok(()),
                Err(
                    error @ (SignalError::Forbidden(_)
                    | SignalError::NotOurs(_)
                    | SignalError::OtherRole(_)
                    | SignalError::Refused { .. }),
                ) => return Err(error.to_string()),
            }
            if signal::await_gone(&machine, id, GONE).await {
                Ok(())
            } else {
                Err(format!("process {} is still there", id.pid))
            }
        });
    }

    /// Asks the server to unload a model.
    pub fn unload(&self, life: Life, model: String, port: u16) {
        let Some(client) = client(port) else { return };
        self.answer(
            life,
            async move { client.unload(&model, UNLOAD).await.map(|_| ()).map_err(|error| error.to_string()) },
        );
    }

    /// Restarts the server through its owner.
    pub fn restart(&self, life: Life) {
        let restarts = self.restarts.clone();
        self.answer(life, async move {
            let (events, mut lines) = mpsc::channel(64);
            let request = protocol::Request::Restart { take_over: false, dry_run: false };
            restarts.send(Command { request, events }).await.map_err(|_| "the daemon is ending".to_owned())?;
            while let Some(event) = lines.recv().await {
                if let protocol::Event::Result(ending) = event {
                    return match ending.failure {
                        None => Ok(()),
                        Some(failure) => Err(failure.message),
                    };
                }
            }
            Err("the restart ended without a result".to_owned())
        });
    }

    /// Sees whether a step has helped.
    pub fn verify(&self, life: Life, check: Check, port: u16) {
        let answers = self.answers.clone();
        let machine = self.machine.clone();
        tokio::spawn(async move {
            let outcome = match client(port) {
                Some(client) => holds(&machine, &client, check).await,
                None => Err("the server's address is not a loopback one".to_owned()),
            };
            let _ = answers.send(Event::Verified { life, outcome }).await;
        });
    }

    fn answer(&self, life: Life, deed: impl Future<Output = Result<(), String>> + Send + 'static) {
        let answers = self.answers.clone();
        tokio::spawn(async move {
            let event = match deed.await {
                Ok(()) => Event::Done { life },
                Err(why) => Event::Failed { life, why },
            };
            let _ = answers.send(event).await;
        });
    }
}

async fn holds(machine: &Machine, client: &Client, check: Check) -> Result<(), String> {
    match check {
        Check::Runner { id, model } => {
            if processes::is_alive(id) {
                return Err(format!("process {} is still there", id.pid));
            }
            match model {
                Some(model) => next_answer(machine, client, &model).await,
                None => Ok(()),
            }
        }
        Check::Unloaded { model, ask } => {
            while still_listed(client, &model).await? {
                tokio::time::sleep(POLL).await;
            }
            if ask { next_answer(machine, client, &model).await } else { Ok(()) }
        }
        Check::Server => client.version(UNLOAD).await.map(|_| ()).map_err(|error| error.to_string()),
    }
}

async fn still_listed(client: &Client, model: &str) -> Result<bool, String> {
    let loaded = client.ps(UNLOAD).await.map_err(|error| error.to_string())?;
    Ok(loaded.models.iter().any(|listed| listed.name == model))
}

/// One token, after the runner is gone: whoever asks next is served.
async fn next_answer(machine: &Machine, client: &Client, model: &str) -> Result<(), String> {
    let patience = machine.clock().real_span(NEXT_ANSWER).max(UNLOAD);
    client.one_token(model, patience).await.map_err(|error| error.to_string())
}

fn client(port: u16) -> Option<Client> {
    Client::new(SocketAddr::from((Ipv4Addr::LOCALHOST, port))).ok()
}
