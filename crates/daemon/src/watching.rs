//! Watching runners, the queue and memory, and clearing stalls.
//!
//! One task owns the engine's watcher and ladder: it observes ([`observing`]), lets the engine judge, and performs the
//! ladder's effects ([`deeds`]) detached. How often it looks depends on who looks and on what happens. What people see
//! of it is made in [`view`].

mod deeds;
mod evidence;
mod log_feed;
mod observing;
mod tokens;
mod view;

use crate::configuration::Configuration;
use crate::gateway::link::Link;
use crate::history::{Entry, History, Kind, Point, detail};
use crate::looking::Seen;
use crate::supervision::Command;
use deeds::Deeds;
use observing::{Observed, Observer};
use serde_json::{Value, json};
use stablehand_engine::alert::{Alert, AlertKind};
use stablehand_engine::loaded::{BudgetWatch, Pins, same_model, unexpected};
use stablehand_engine::owner::Ownership;
use stablehand_engine::process::Identity;
use stablehand_engine::recovery::{
    Ask as Wanted, Cause, Check, Effect, Event, Finish, GivenUp, Ladder, Life, Limits, Policy, Signal, WishId,
};
use stablehand_engine::stall::{Judgement, Watcher};
use stablehand_engine::time::Now;
use stablehand_ollama::argv;
use stablehand_platform::machine::Machine;
use stablehand_platform::sampling::next_interval;
use stablehand_platform::server_log::{LogSource, server_log};
use stablehand_platform::survey::Surveyor;
use stablehand_protocol::{self as protocol, Ending, Failure, Watched};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Mutex, mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::Instant;

/// However fast a simulated machine's time runs, this much real time lies between two observations.
const LEAST_REAL_INTERVAL: Duration = Duration::from_millis(150);
/// The ladder is asked no more often than this.
const LEAST_DEADLINE: Duration = Duration::from_millis(10);
/// A gap between the two clocks beyond which the machine was asleep.
const SLEPT: Duration = Duration::from_secs(10);

/// A person's wish about a runner or model, and where its end goes.
#[derive(Debug)]
pub struct Ask {
    /// What.
    pub what: What,
    /// Only what would be done is wanted.
    pub dry_run: bool,
    /// Where the result goes.
    pub events: mpsc::Sender<protocol::Event>,
}

/// What a person wishes.
#[derive(Debug)]
pub enum What {
    /// Unload this model.
    Unload(String),
    /// End the runner of this model.
    Stop {
        /// The model.
        model: String,
        /// SIGKILL when SIGTERM is not enough.
        force: bool,
    },
    /// Recover by yourself again from what was given up.
    TryAgain,
}

/// What connects this task to the others.
#[derive(Debug)]
pub struct Links {
    /// The last look at the server and its owner.
    pub seen: watch::Receiver<Option<Arc<Seen>>>,
    /// Our configuration.
    pub configuration: watch::Receiver<Configuration>,
    /// Restarts go to whoever owns the server's life.
    pub restarts: mpsc::Sender<Command>,
    /// What people are told.
    pub notices: mpsc::Sender<Alert>,
    /// What of it holds at the moment.
    pub standing: watch::Sender<BTreeSet<AlertKind>>,
    /// How many look on.
    pub lookers: watch::Receiver<u32>,
    /// What was seen.
    pub watched: watch::Sender<Option<Arc<Watched>>>,
    /// The way to the gateway.
    pub link: Link,
}

/// Watches until the daemon ends.
pub async fn run(
    machine: Machine,
    surveyor: Arc<Mutex<Surveyor>>,
    history: History,
    mut links: Links,
    mut asks: mpsc::Receiver<Ask>,
) {
    let (answers, mut returned) = mpsc::channel(64);
    let now = machine.clock().now();
    let policy = links.configuration.borrow().policy;
    let mut eye = Eye::new(machine.clone(), surveyor, links.link.clone());
    let mut watching = Watching {
        deeds: Deeds::new(machine.clone(), argv::role, links.restarts.clone(), answers),
        machine,
        watcher: Watcher::new(),
        ladder: Ladder::new(policy, Limits::default()),
        history,
        asked: HashMap::new(),
        next_wish: 0,
        words: BTreeMap::new(),
        budget: BudgetWatch::default(),
        pinned: Pins::default(),
        doing: HashMap::new(),
        last: None,
        now,
        looked_at: Instant::now(),
    };
    loop {
        let next_look = watching.next_look(*links.lookers.borrow());
        let due = watching.due();
        tokio::select! {
            changed = links.configuration.changed() => {
                if changed.is_err() {
                    return;
                }
                let policy = links.configuration.borrow_and_update().policy;
                watching.event(&links, Event::PolicySet(policy)).await;
            }
            Some(ask) = asks.recv() => {
                // A person's wish is about what is there now, not about the last look.
                if let Some(observed) = eye.result().await {
                    watching.take_in(&links, observed).await;
                }
                watching.begin_look(&links, &mut eye).await;
                if let Some(observed) = eye.result().await {
                    watching.take_in(&links, observed).await;
                }
                watching.ask(&links, ask).await;
            }
            Some(event) = returned.recv() => {
                watching.note_answer(&event);
                watching.event(&links, event).await;
            }
            // A runner that does not answer holds up a look, and nothing else.
            observed = eye.result(), if eye.looks() => {
                if let Some(observed) = observed {
                    watching.take_in(&links, observed).await;
                }
            }
            // Whoever begins to look gets a fresh picture.
            _ = links.lookers.changed(), if !eye.looks() => watching.begin_look(&links, &mut eye).await,
            () = tokio::time::sleep(next_look), if !eye.looks() => watching.begin_look(&links, &mut eye).await,
            () = tokio::time::sleep(due.unwrap_or_default()), if due.is_some() => {
                watching.event(&links, Event::Tick).await;
            }
        }
    }
}

/// What looks, and the look that is under way.
struct Eye {
    machine: Machine,
    surveyor: Arc<Mutex<Surveyor>>,
    link: Link,
    observer: Option<Observer>,
    look: Option<JoinHandle<(Observer, Observed)>>,
}

impl Eye {
    fn new(machine: Machine, surveyor: Arc<Mutex<Surveyor>>, link: Link) -> Self {
        Self { machine, surveyor, link, observer: None, look: None }
    }

    fn looks(&self) -> bool {
        self.look.is_some()
    }

    fn begin(&mut self, seen: Arc<Seen>) {
        let new = || Observer::new(self.machine.clone(), Arc::clone(&self.surveyor), self.link.clone());
        let mut observer = self.observer.take().unwrap_or_else(new);
        self.look = Some(tokio::spawn(async move {
            let observed = observer.observe(&seen).await;
            (observer, observed)
        }));
    }

    /// What was seen; `None` when no look is under way, or it broke. Nothing is lost when nobody waits to the end.
    async fn result(&mut self) -> Option<Observed> {
        let looked = self.look.as_mut()?.await;
        // In any case: a finished task must not be waited for again.
        self.look = None;
        match looked {
            Ok((observer, observed)) => {
                self.observer = Some(observer);
                Some(observed)
            }
            Err(broken) => {
                tracing::error!(
                    %broken,
                    "a look at runners and memory broke; the next one begins anew, without what was counted so far"
                );
                None
            }
        }
    }
}

/// A step of recovery that is under way, for the history.
struct Doing {
    subject: String,
    step: Value,
}

struct Watching {
    machine: Machine,
    deeds: Deeds,
    watcher: Watcher,
    ladder: Ladder,
    history: History,
    asked: HashMap<WishId, mpsc::Sender<protocol::Event>>,
    next_wish: u64,
    /// The last verdict of each subject, for the history.
    words: BTreeMap<Identity, &'static str>,
    budget: BudgetWatch,
    pinned: Pins,
    /// What is being done, by the life that its answer will carry.
    doing: HashMap<Life, Doing>,
    last: Option<(Observed, Vec<Judgement>)>,
    now: Now,
    /// When the last look began or ended, whichever is later.
    looked_at: Instant,
}

impl Watching {
    /// Real time until the next look.
    fn next_look(&self, lookers: u32) -> Duration {
        let (busy, trouble) = match &self.last {
            Some((observed, judgements)) => {
                (observed.is_busy(), judgements.iter().any(|judgement| judgement.verdict.is_trouble()))
            }
            None => (true, false),
        };
        let span = next_interval(lookers, busy, trouble || self.ladder.doing().is_some());
        let interval = self.machine.clock().real_span(span).max(LEAST_REAL_INTERVAL);
        interval.saturating_sub(self.looked_at.elapsed())
    }

    /// Real time until the ladder wants to be asked again. A look asks it too, so that this never turns in circles.
    fn due(&self) -> Option<Duration> {
        let now = self.machine.clock().awake();
        let (at, _) = self.ladder.deadline()?;
        Some(self.machine.clock().real_span(at.since(now)).max(LEAST_DEADLINE))
    }

    async fn begin_look(&mut self, links: &Links, eye: &mut Eye) {
        self.looked_at = Instant::now();
        let Some(seen) = links.seen.borrow().clone() else { return };
        let now = self.machine.clock().now();
        let gap = (now.wall - self.now.wall).saturating_sub(now.awake.since(self.now.awake));
        if gap > SLEPT {
            self.watcher.woke(now);
            self.step(links, now, Event::Woke).await;
        }
        self.now = now;
        eye.begin(seen);
    }

    async fn take_in(&mut self, links: &Links, observed: Observed) {
        self.looked_at = Instant::now();
        // Observing takes a moment; what was seen is as old as its end.
        let now = self.machine.clock().now();
        let judgements = self.watcher.observe(now, &observed.observation);
        self.record(now, &observed, &judgements);
        let watched = view::watched(&self.machine, now, &observed, &judgements, view::recovery(&self.ladder));
        let troubles = judgements.iter().filter(|judgement| judgement.verdict.is_trouble());
        let mut standing: BTreeSet<_> = troubles.map(|judgement| AlertKind::Stall(judgement.verdict.word())).collect();
        let alerts = self.loaded_alerts(links, now, &observed);
        standing.extend(alerts.iter().map(|alert| alert.kind));
        links.standing.send_replace(standing);
        for alert in alerts {
            let _ = links.notices.send(alert).await;
        }
        let pinned = self.pinned.observe(&observed.listed, now.wall).cloned();
        self.last = Some((observed, judgements.clone()));
        links.watched.send_replace(Some(Arc::new(watched)));
        if let Some(pinned) = pinned {
            self.step(links, now, Event::PinnedSet(pinned)).await;
        }
        self.step(links, now, Event::Judged(judgements)).await;
        self.step(links, now, Event::Tick).await;
    }

    async fn event(&mut self, links: &Links, event: Event) {
        let now = self.machine.clock().now();
        self.step(links, now, event).await;
    }

    async fn step(&mut self, links: &Links, now: Now, event: Event) {
        let effects = self.ladder.step(now, event);
        let recovery = view::recovery(&self.ladder);
        links.watched.send_if_modified(|watched| match watched {
            Some(seen) if seen.recovery != recovery => {
                *watched = Some(Arc::new(Watched { recovery, ..Watched::clone(seen) }));
                true
            }
            Some(_) | None => false,
        });
        for effect in effects {
            self.perform(links, now, effect).await;
        }
    }

    async fn perform(&mut self, links: &Links, now: Now, effect: Effect) {
        let anywhere = || SocketAddr::from((Ipv4Addr::LOCALHOST, self.machine.default_port()));
        let address = links.seen.borrow().as_ref().map_or_else(anywhere, |seen| seen.address);
        match effect {
            Effect::SaveEvidence { life, judgement } => {
                let step = json!({ "step": "save-evidence", "judgement": detail::judgement(&judgement) });
                self.begin(life, judgement.subject.to_string(), step);
                let observed = self.last.as_ref().map(|(observed, _)| observed);
                let log = self.log_source(links);
                self.deeds.save_evidence(life, &judgement, observed, now.wall, (log, address));
            }
            Effect::SignalRunner { life, id, signal } => {
                let words = format!("{signal:?} to runner {}", id.pid);
                tracing::warn!(pid = id.pid, ?signal, "a runner is signalled");
                let signal_word = match signal {
                    Signal::Term => "SIGTERM",
                    Signal::Kill => "SIGKILL",
                };
                let step = json!({
                    "step": "signal", "signal": signal_word, "pid": id.pid, "model": self.model_of(id),
                });
                self.note(now, Kind::Kill, id.pid.to_string(), words, &step);
                self.begin(life, id.pid.to_string(), step);
                self.deeds.signal(life, id, signal);
            }
            Effect::Unload { life, model } => {
                self.begin(life, model.clone(), json!({ "step": "unload", "model": model }));
                self.deeds.unload(life, model, address);
            }
            Effect::RestartThroughOwner { life, cause } => {
                let step = json!({ "step": "restart", "cause": cause.word() });
                self.begin(life, cause.word().to_owned(), step);
                self.deeds.restart(life);
            }
            Effect::Verify { life, check } => {
                let subject = match &check {
                    Check::Runner { id, .. } => id.pid.to_string(),
                    Check::Unloaded { model, .. } => model.clone(),
                    Check::Server => "server".to_owned(),
                };
                self.begin(life, subject, detail::check(&check));
                self.deeds.verify(life, check, address);
            }
            Effect::Abandon { life } => {
                self.deeds.abandon(life);
                self.note_end(life, Err("it is not waited for any more".to_owned()));
            }
            Effect::Alert(notice) => {
                let _ = links.notices.send(notice.into_alert()).await;
            }
            Effect::GiveUp { cause, why } => {
                let particulars = json!({ "cause": cause.word(), "why": why });
                self.note(now, Kind::Outcome, cause.word().to_owned(), format!("given up: {why}"), &particulars);
            }
            Effect::Finish { wish, finish } => self.finish(wish, finish).await,
        }
    }

    async fn finish(&mut self, wish: WishId, finish: Finish) {
        let Some(events) = self.asked.remove(&wish) else { return };
        let ending = match finish {
            Finish::Done => Ending::new(protocol::Outcome::Changed),
            Finish::Refused(why) => Ending::failed(Failure::new("refused", format!("{why}; nothing was done"), "")),
            Finish::Failed(why) => Ending::failed(Failure::new(
                "not-done",
                why,
                "look at `stablehand why`; `stablehand restart` restarts all of Ollama",
            )),
        };
        self.end(&events, ending).await;
    }

    async fn ask(&mut self, links: &Links, ask: Ask) {
        let (wanted, named) = match ask.what {
            What::Unload(model) => match self.loaded(&model) {
                Ok(()) => (Wanted::Unload { model: model.clone() }, model),
                Err(failure) => return self.end(&ask.events, Ending::failed(failure)).await,
            },
            What::Stop { model, force } => match self.runner_of(&model) {
                Ok(id) => (Wanted::EndRunner { id, force }, model),
                Err(failure) => return self.end(&ask.events, Ending::failed(failure)).await,
            },
            What::TryAgain => return self.try_again(links, ask.dry_run, &ask.events).await,
        };
        if ask.dry_run {
            let planned = Ending { steps: wanted.steps(&named), ..Ending::new(protocol::Outcome::Planned) };
            return self.end(&ask.events, planned).await;
        }
        self.next_wish += 1;
        let wish = WishId(self.next_wish);
        self.asked.insert(wish, ask.events);
        self.event(links, Event::PersonAsked { wish, ask: wanted }).await;
    }

    async fn try_again(&mut self, links: &Links, dry_run: bool, events: &mpsc::Sender<protocol::Event>) {
        let outcome = if dry_run { protocol::Outcome::Planned } else { protocol::Outcome::Changed };
        let mut ending = Ending::new(outcome);
        let again = |(cause, given_up): (Cause, &GivenUp)| {
            format!("take up again: {} ({}), given up because {}", given_up.subject, cause.word(), given_up.why)
        };
        ending.steps = self.ladder.given_up().map(again).collect();
        if ending.steps.is_empty() {
            ending.notes.push("nothing was given up".to_owned());
        } else if self.ladder.policy() == Policy::AlertOnly {
            ending.notes.push("nothing is done by itself under the recovery policy «alert»".to_owned());
        }
        if !dry_run {
            self.event(links, Event::TryAgain).await;
        }
        self.end(events, ending).await;
    }

    async fn end(&self, events: &mpsc::Sender<protocol::Event>, mut ending: Ending) {
        ending.simulated = crate::translation::simulated(&self.machine);
        let _ = events.send(protocol::Event::Result(Box::new(ending))).await;
    }

    fn runner_of(&self, model: &str) -> Result<Identity, Failure> {
        let runners = self.last.iter().flat_map(|(observed, _)| &observed.observation.runners);
        let of_model = |runner: &&stablehand_engine::stall::evidence::RunnerSeen| {
            runner.model.known().is_some_and(|known| same_model(known, model))
        };
        runners.clone().find(of_model).map(|runner| runner.id).ok_or_else(|| {
            let there: Vec<_> = runners.filter_map(|runner| runner.model.known().cloned()).collect();
            not_there(model, "no runner has", &there)
        })
    }

    fn loaded(&self, model: &str) -> Result<(), Failure> {
        let Some((observed, _)) = &self.last else {
            return Err(Failure::new("not-watched-yet", "nothing was watched yet; nothing was done", "try again"));
        };
        match &observed.listed {
            stablehand_engine::Known::Is(listed) if !listed.keys().any(|known| same_model(known, model)) => {
                let there: Vec<_> = listed.keys().cloned().collect();
                Err(not_there(model, "the server has not loaded", &there))
            }
            stablehand_engine::Known::Is(_) | stablehand_engine::Known::Unknown(_) => Ok(()),
        }
    }

    /// Alerts about what is loaded that hold at the moment.
    fn loaded_alerts(&mut self, links: &Links, now: Now, observed: &Observed) -> Vec<Alert> {
        let allowed = &links.configuration.borrow().allowed_models;
        let unexpected = observed.listed.known().and_then(|loaded| unexpected(loaded, allowed));
        let (gpu, memory) = (observed.gpu_memory(&self.machine), &observed.sample.memory.total_bytes);
        let is_idle = |model: &str| observed.is_idle(model);
        let over = self.budget.observe(now.awake, &observed.listed, &gpu, memory, is_idle);
        unexpected.into_iter().chain(over).collect()
    }

    fn log_source(&self, links: &Links) -> LogSource {
        let seen = links.seen.borrow();
        match seen.as_ref().map(|seen| &seen.look.ownership) {
            Some(Ownership::One { owner, .. } | Ownership::Contested { holder: owner, .. }) => {
                server_log(&self.machine, owner)
            }
            Some(Ownership::Foreign(_) | Ownership::Absent | Ownership::Unknown(_)) | None => {
                LogSource::Nowhere("no owner of the server is known".to_owned())
            }
        }
    }

    fn begin(&mut self, life: Life, subject: String, step: Value) {
        self.doing.insert(life, Doing { subject, step });
    }

    /// How a step of recovery ended.
    fn note_answer(&mut self, event: &Event) {
        let (life, result) = match event {
            Event::Done { life } => (life, Ok(())),
            Event::Failed { life, why } => (life, Err(why.clone())),
            Event::Verified { life, outcome } => (life, outcome.clone().map(|_| ())),
            Event::Judged(_)
            | Event::Tick
            | Event::Woke
            | Event::PersonAsked { .. }
            | Event::PolicySet(_)
            | Event::TryAgain
            | Event::PinnedSet(_) => return,
        };
        self.deeds.over(*life);
        self.note_end(*life, result);
    }

    fn note_end(&mut self, life: Life, result: Result<(), String>) {
        let Some(Doing { subject, step }) = self.doing.remove(&life) else { return };
        let (words, particulars) = detail::ended(&step, result);
        self.note(self.machine.clock().now(), Kind::Outcome, subject, words, &particulars);
    }

    fn model_of(&self, id: Identity) -> Option<String> {
        let runners = self.last.iter().flat_map(|(observed, _)| &observed.observation.runners);
        runners.filter(|runner| runner.id == id).find_map(|runner| runner.model.known().cloned())
    }

    fn note(&self, at: Now, kind: Kind, subject: String, words: String, particulars: &Value) {
        self.history.note(Entry { at: at.wall, kind, subject, words, detail_json: particulars.to_string() });
    }

    fn record(&mut self, now: Now, observed: &Observed, judgements: &[Judgement]) {
        let points = view::points(now.wall, observed);
        let points: Vec<Point<'_>> =
            points.iter().map(|(series, value)| Point::new(now.wall, series.as_str(), *value)).collect();
        self.history.record(&points);
        let mut words = BTreeMap::new();
        for judgement in judgements {
            let (id, word) = (judgement.subject.id(), judgement.verdict.word());
            words.insert(id, word);
            if self.words.get(&id) != Some(&word) {
                let evidence = judgement.evidence_in_words().map_or_else(String::new, |words| format!(": {words}"));
                let text = format!("{}{evidence}", judgement.verdict);
                let particulars = detail::judgement(judgement);
                self.note(now, Kind::Verdict, judgement.subject.to_string(), text, &particulars);
            }
        }
        self.words = words;
    }
}

fn not_there(model: &str, what: &str, there: &[String]) -> Failure {
    let hint = if there.is_empty() { "no model is loaded".to_owned() } else { format!("loaded: {}", there.join(", ")) };
    Failure::new("no-such-model-loaded", format!("{what} {model}; nothing was done"), hint)
}
