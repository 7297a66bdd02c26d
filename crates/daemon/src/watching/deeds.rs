//! What the ladder wants done, each detached and answered with the life it came with.
//!
//! Nothing here waits for anybody else's lock: what the ladder has just reconsidered is done at once, and what it does
//! not wait for any more is broken off.

use super::evidence::{self, Files};
use super::observing::Observed;
use crate::supervision::Command;
use serde_json::json;
use stablehand_engine::loaded::same_model;
use stablehand_engine::process::{Identity, Role};
use stablehand_engine::recovery::{Check, Event, Life, Proof, Signal};
use stablehand_engine::stall::evidence::Listing;
use stablehand_engine::stall::{Judgement, Subject};
use stablehand_engine::time::Wall;
use stablehand_ollama::client::{CallError, Client, LoadTerms, Stay};
use stablehand_platform::files::write_atomically;
use stablehand_platform::machine::Machine;
use stablehand_platform::paths::stablehand_files;
use stablehand_platform::processes;
use stablehand_platform::server_log::LogSource;
use stablehand_platform::signal::{self, Classify, Kind, SignalError};
use stablehand_platform::stacks;
use stablehand_protocol as protocol;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::AbortHandle;

/// A process that stays longer after a signal is the ladder's business again.
const GONE: Duration = Duration::from_secs(600);
/// How long an unload may take to be accepted.
const UNLOAD: Duration = Duration::from_secs(30);
/// The next request may have to load the model first.
const NEXT_ANSWER: Duration = Duration::from_secs(900);
/// Between two looks while something is waited for, in real time.
const POLL: Duration = Duration::from_millis(50);

/// How long each question about evidence may take, in the machine's time and at least in real time.
const MOMENT: Duration = Duration::from_secs(1);
const LEAST_MOMENT: Duration = Duration::from_millis(50);

/// What a model that generates text can do, in the words of `/api/show`.
const GENERATES: &str = "completion";

/// On what terms models were loaded whose runners were ended, by name.
type Terms = Arc<Mutex<HashMap<String, LoadTerms>>>;

/// Performs deeds.
#[derive(Debug)]
pub struct Deeds {
    machine: Machine,
    classify: Classify,
    restarts: mpsc::Sender<Command>,
    answers: mpsc::Sender<Event>,
    under_way: HashMap<Life, AbortHandle>,
    terms: Terms,
}

impl Deeds {
    /// Whoever gets the answers. `classify` tells runners from everybody else in the moment before a signal.
    pub fn new(
        machine: Machine,
        classify: Classify,
        restarts: mpsc::Sender<Command>,
        answers: mpsc::Sender<Event>,
    ) -> Self {
        Self { machine, classify, restarts, answers, under_way: HashMap::new(), terms: Terms::default() }
    }

    /// An answer has come.
    pub fn over(&mut self, life: Life) {
        self.under_way.remove(&life);
    }

    /// Breaks off what is not waited for any more.
    pub fn abandon(&mut self, life: Life) {
        if let Some(deed) = self.under_way.remove(&life) {
            deed.abort();
        }
    }

    /// Keeps the evidence in the log folder, and remembers on what terms the model was loaded. What is known already is
    /// written whatever the server says; each question to it, to the log and to the system has a moment.
    pub fn save_evidence(
        &mut self,
        life: Life,
        judgement: &Judgement,
        observed: Option<&Observed>,
        at: Wall,
        (log, address): (LogSource, SocketAddr),
    ) {
        let folder = stablehand_files(&self.machine).log_dir.join("evidence");
        let files = Files::new(&folder, at, judgement);
        let id = judgement.subject.id();
        let args = processes::look_at(&self.machine, id).and_then(|process| match (self.classify)(&process) {
            Some(Role::Runner(args)) => Some(args),
            Some(Role::Gui { .. } | Role::Shim { .. } | Role::Serve) | None => None,
        });
        let mut facts = evidence::facts(at, judgement, observed, args.as_ref());
        let is_runner = matches!(judgement.subject, Subject::Runner { .. });
        let model = judgement.subject.model().map(str::to_owned);
        let terms = Arc::clone(&self.terms);
        if let Some(model) = &model {
            let stay = observed.and_then(|observed| listed_until(observed, id)).and_then(|until| Stay::left(until, at));
            remember(&terms, model, LoadTerms::of(args.as_ref(), stay));
        }
        let machine = self.machine.clone();
        self.answer(life, async move {
            let moment = machine.clock().real_span(MOMENT).max(LEAST_MOMENT);
            let asked = async {
                match client(address) {
                    Ok(client) => Some(client.ps(moment).await),
                    Err(_) => None,
                }
            };
            let (said, lines) = tokio::join!(asked, tokio::time::timeout(moment, evidence::log(&machine, log)));
            if let Some(said) = &said {
                facts["api_ps"] = evidence::listed(said);
            }
            facts["log"] = lines.unwrap_or_else(|_| json!({ "unknown": "it was not read in time" }));
            if let (Some(model), Some(Ok(loaded))) = (&model, &said)
                && let Some(listed) = loaded.models.iter().find(|listed| same_model(&listed.name, model))
            {
                let context = Some(listed.context_per_slot_tokens).filter(|tokens| *tokens > 0);
                let stay = listed.expires_at.known().and_then(|until| Stay::left(*until, at));
                remember(&terms, model, LoadTerms { context_per_slot_tokens: context, stay });
            }
            let text = format!("{facts:#}\n");
            let (writer, path) = (machine.clone(), files.facts);
            let written = tokio::task::spawn_blocking(move || {
                write_atomically(&writer, &path, text.as_bytes(), 0o600).map_err(|error| error.to_string())?;
                evidence::prune(&writer, &folder)
            });
            written.await.map_err(|error| error.to_string())??;
            if is_runner && let Err(why) = stacks::keep(&machine, id, &files.stacks).await {
                let text = format!("where its threads stood is unknown: {why}\n");
                write_atomically(&machine, &files.stacks, text.as_bytes(), 0o600).map_err(|error| error.to_string())?;
            }
            Ok(())
        });
    }

    /// Sends a signal to a runner and answers when it is gone.
    pub fn signal(&mut self, life: Life, id: Identity, signal: Signal) {
        let machine = self.machine.clone();
        let classify = self.classify;
        self.answer(life, async move {
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
    pub fn unload(&mut self, life: Life, model: String, address: SocketAddr) {
        self.answer(life, async move {
            client(address)?.unload(&model, UNLOAD).await.map(|_| ()).map_err(|error| error.to_string())
        });
    }

    /// Restarts the server through its owner.
    pub fn restart(&mut self, life: Life) {
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
    pub fn verify(&mut self, life: Life, check: Check, address: SocketAddr) {
        let machine = self.machine.clone();
        let terms = Arc::clone(&self.terms);
        self.begin(life, async move {
            let outcome = match client(address) {
                Ok(client) => holds(&machine, client, check, &terms).await,
                Err(why) => Err(why),
            };
            Event::Verified { life, outcome }
        });
    }

    fn answer(&mut self, life: Life, deed: impl Future<Output = Result<(), String>> + Send + 'static) {
        self.begin(life, async move {
            match deed.await {
                Ok(()) => Event::Done { life },
                Err(why) => Event::Failed { life, why },
            }
        });
    }

    fn begin(&mut self, life: Life, deed: impl Future<Output = Event> + Send + 'static) {
        let answers = self.answers.clone();
        let task = tokio::spawn(async move {
            let answer = deed.await;
            let _ = answers.send(answer).await;
        });
        self.under_way.insert(life, task.abort_handle());
    }
}

async fn holds(machine: &Machine, client: Client, check: Check, terms: &Terms) -> Result<Proof, String> {
    match check {
        Check::Runner { id, model } => {
            if processes::is_alive(id) {
                return Err(format!("process {} is still there", id.pid));
            }
            match model {
                Some(model) => next_answer(machine, client, model, terms).await,
                None => Ok(Proof::Seen),
            }
        }
        Check::Unloaded { model, ask } => {
            while still_listed(&client, &model).await? {
                tokio::time::sleep(POLL).await;
            }
            if ask { next_answer(machine, client, model, terms).await } else { Ok(Proof::Seen) }
        }
        Check::Server => answers(&client).await,
    }
}

async fn answers(client: &Client) -> Result<Proof, String> {
    client.version(UNLOAD).await.map(|_| Proof::Seen).map_err(|error| error.to_string())
}

async fn still_listed(client: &Client, model: &str) -> Result<bool, String> {
    let loaded = client.ps(UNLOAD).await.map_err(|error| error.to_string())?;
    Ok(loaded.models.iter().any(|listed| same_model(&listed.name, model)))
}

/// A short answer, after the runner is gone: whoever asks next is served. A model that generates nothing (embeddings)
/// cannot be asked for one; that the server answers has to do there.
///
/// A request that is out is never broken off, not even when nobody waits for it any more: it may be the one that the
/// model is being loaded for.
async fn next_answer(machine: &Machine, client: Client, model: String, terms: &Terms) -> Result<Proof, String> {
    // Old servers tell no capabilities.
    if let Ok(shown) = client.show(&model, false, UNLOAD).await
        && !shown.capabilities.is_empty()
        && !shown.capabilities.iter().any(|capability| capability == GENERATES)
    {
        return answers(&client).await;
    }
    let terms = terms.lock().unwrap_or_else(PoisonError::into_inner).remove(&model).unwrap_or_default();
    let patience = machine.clock().real_span(NEXT_ANSWER).max(UNLOAD);
    let asked = tokio::spawn(async move { client.short_answer(&model, terms, patience).await });
    match asked.await.map_err(|broken| broken.to_string())? {
        Ok(()) => Ok(Proof::Answered),
        Err(CallError::Status { code: 400, text, .. }) if text.contains("does not support generate") => Ok(Proof::Seen),
        Err(error) => Err(error.to_string()),
    }
}

/// What is known later fills in what was not known before.
fn remember(terms: &Terms, model: &str, known: LoadTerms) {
    let mut terms = terms.lock().unwrap_or_else(PoisonError::into_inner);
    let kept = terms.entry(model.to_owned()).or_default();
    kept.context_per_slot_tokens = kept.context_per_slot_tokens.or(known.context_per_slot_tokens);
    kept.stay = known.stay.or(kept.stay);
}

/// Until when the server said that this runner stays. A listing without a time is no pin.
fn listed_until(observed: &Observed, id: Identity) -> Option<Wall> {
    let runner = observed.observation.runners.iter().find(|runner| runner.id == id)?;
    match runner.listed.known()? {
        Listing::Until(until) if until.unix_ms < i64::MAX => Some(*until),
        Listing::Until(_) | Listing::Absent => None,
    }
}

fn client(address: SocketAddr) -> Result<Client, String> {
    Client::new(address).map_err(|error| error.to_string())
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;
    use tokio::sync::oneshot;

    pub(in crate::watching) fn world() -> (tempfile::TempDir, Machine) {
        let dir = tempfile::tempdir().unwrap();
        let put = |name: &str, text: &str| std::fs::write(dir.path().join(name), text).unwrap();
        put(
            "stablehand-world.json",
            r#"{"format":1,"os":"linux","user":"sim","home":"/home/sim","port":41873,"ollama":"0.33.0","memory_bytes":68719476736}"#,
        );
        put("clock.json", r#"{"speed":1.0,"anchor_monotonic_ms":0,"anchor_wall_unix_ms":1796000000000,"slept_ms":0}"#);
        std::fs::create_dir_all(dir.path().join("home/sim")).unwrap();
        let machine = Machine::world(dir.path()).unwrap();
        (dir, machine)
    }

    fn deeds() -> (tempfile::TempDir, Deeds, mpsc::Receiver<Event>) {
        let (dir, machine) = world();
        let (restarts, _) = mpsc::channel(1);
        let (answers, answered) = mpsc::channel(8);
        (dir, Deeds::new(machine, |_| None, restarts, answers), answered)
    }

    #[tokio::test]
    async fn what_is_abandoned_is_broken_off_and_answers_nothing() {
        let (_dir, mut deeds, mut answered) = deeds();
        let (go, went) = oneshot::channel::<()>();
        let (done, mut effect) = oneshot::channel::<()>();
        deeds.answer(Life(1), async move {
            let _ = went.await;
            let _ = done.send(());
            Ok(())
        });
        deeds.answer(Life(2), async { Ok(()) });
        deeds.abandon(Life(1));
        let _ = go.send(());
        assert_eq!(answered.recv().await, Some(Event::Done { life: Life(2) }));
        deeds.over(Life(2));
        (&mut effect).await.unwrap_err();
        assert!(deeds.under_way.is_empty());
        drop(deeds);
        assert_eq!(answered.recv().await, None, "the abandoned one has no answer");
    }

    /// A server that answers `/api/show` with these capabilities, and whatever it was asked.
    async fn server(capabilities: &'static str) -> (Client, mpsc::UnboundedReceiver<String>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = Client::new(listener.local_addr().unwrap()).unwrap();
        let (tell, asked) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut request = vec![0; 16 << 10];
                let read = stream.read(&mut request).await.unwrap();
                let request = String::from_utf8_lossy(&request[..read]).into_owned();
                let (status, body) = match request.split(' ').nth(1) {
                    Some("/api/show") => ("200 OK", format!(r#"{{"capabilities":{capabilities}}}"#)),
                    Some("/api/version") => ("200 OK", r#"{"version":"0.33.0"}"#.to_owned()),
                    _ if capabilities == "[]" => {
                        ("400 Bad Request", r#"{"error":"\"bge-m3\" does not support generate"}"#.to_owned())
                    }
                    _ => ("200 OK", r#"{"done":true}"#.to_owned()),
                };
                let head = format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", body.len());
                let _ = stream.write_all(format!("{head}{body}").as_bytes()).await;
                let _ = tell.send(request);
            }
        });
        (client, asked)
    }

    #[tokio::test]
    async fn a_model_that_generates_nothing_is_not_asked_to() {
        let (_dir, machine) = world();
        let terms = Terms::default();
        let model = || "bge-m3:latest".to_owned();
        let (client, mut asked) = server(r#"["embedding"]"#).await;
        assert_eq!(next_answer(&machine, client, model(), &terms).await, Ok(Proof::Seen));
        let mut requests = vec![];
        while let Ok(request) = asked.try_recv() {
            requests.push(request);
        }
        assert!(requests.iter().all(|request| !request.contains("/api/generate")), "{requests:?}");
        // A server that tells no capabilities says so itself.
        let (client, _asked) = server("[]").await;
        assert_eq!(next_answer(&machine, client, model(), &terms).await, Ok(Proof::Seen));
    }

    #[tokio::test]
    async fn the_next_request_comes_on_the_terms_that_were_seen_before() {
        let (_dir, machine) = world();
        let terms = Terms::default();
        remember(&terms, "m:1", LoadTerms { context_per_slot_tokens: Some(8192), stay: None });
        remember(&terms, "m:1", LoadTerms { context_per_slot_tokens: Some(4096), stay: Some(Stay::Forever) });
        let (client, mut asked) = server(r#"["completion"]"#).await;
        assert_eq!(next_answer(&machine, client, "m:1".to_owned(), &terms).await, Ok(Proof::Answered));
        let shown = asked.recv().await.unwrap();
        assert!(shown.contains("/api/show"), "{shown}");
        let generated = asked.recv().await.unwrap();
        assert!(generated.contains(r#""num_ctx":8192"#) && generated.contains(r#""keep_alive":-1"#), "{generated}");
    }

    #[tokio::test]
    async fn evidence_is_a_file_that_a_person_can_read() {
        let (_dir, mut deeds, mut answered) = deeds();
        let subject = Subject::Server { id: Identity { pid: 1, birth: 1 } };
        let verdict = stablehand_engine::stall::Verdict::ServerSilent;
        let since = stablehand_engine::time::Awake::default();
        let judgement = Judgement { subject, verdict, evidence: vec![], since, may_recover: None };
        let log = LogSource::Nowhere("there is none".to_owned());
        let machine = deeds.machine.clone();
        deeds.save_evidence(
            Life(1),
            &judgement,
            None,
            Wall::from_unix_ms(1_796_000_000_000),
            (log, ([127, 0, 0, 1], 1).into()),
        );
        assert_eq!(answered.recv().await, Some(Event::Done { life: Life(1) }));
        let path = stablehand_files(&machine).log_dir.join("evidence/1796000000000-server-silent.json");
        let kept: serde_json::Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
        assert_eq!(kept["judgement"]["verdict"], "server-silent");
        assert_eq!(kept["log"]["unknown"], "there is none");
        assert!(kept["api_ps"]["unknown"].is_string(), "{kept}");
    }
}
