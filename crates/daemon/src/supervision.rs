//! The loop: one task owns the engine's supervisor, feeds it and performs what it asks for.
//!
//! Nothing in this task waits for the outside: looks and steps run detached and come back as messages, each with the
//! life that the engine gave it.

mod placing;

use crate::alerts::Alerts;
use crate::configuration::{Change, Configuration, ConfigurationFile};
use crate::gateway::link::Link;
use crate::gateway::seating::Seating;
use crate::gateway::view::View;
use crate::history::{Entry, History, Kind, detail};
use crate::interruption::Interruption;
use crate::looking::{Looker, Seen};
use crate::watching::{Ask, What};
use crate::{memory, translation};
use placing::{PlaceRequest, Placing};
use stablehand_engine::Known;
use stablehand_engine::alert::desktop::QuietHours;
use stablehand_engine::alert::{Alert, AlertKind};
use stablehand_engine::owner::{AgentKind, Owner, Ownership};
use stablehand_engine::plan::{Goal, Plan, Refusal, Step, StepFailure, plan};
use stablehand_engine::setting::{Name, Preset, Values, Verification, verify};
use stablehand_engine::supervisor::{Effect, Event, Life, Origin, Outcome, Progress, State, Supervisor, Wish, WishId};
use stablehand_engine::time::{Awake, Now, Wall};
use stablehand_ollama::catalogue;
use stablehand_platform::launchd::adoption;
use stablehand_platform::machine::{Machine, Os};
use stablehand_platform::survey::Surveyor;
use stablehand_protocol::Watched;
use stablehand_protocol::{self as protocol, Ending, Failure, Request, Snapshot};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{Mutex, mpsc, oneshot, watch};
use tokio::task::AbortHandle;
use tokio::time::Instant;

/// A client's request, and where its events go.
#[derive(Debug)]
pub struct Command {
    /// What is asked for.
    pub request: Request,
    /// Where the events go; a client that has left closes it, and what was begun goes on.
    pub events: mpsc::Sender<protocol::Event>,
}

/// How often the configuration file is looked at, in real time.
const CONFIGURATION_INTERVAL: Duration = Duration::from_secs(2);
/// A gap between the two clocks beyond which the machine was asleep.
const SLEPT: Duration = Duration::from_secs(10);
/// What every deadline gets more on a simulated machine, in real time.
const SIMULATED_SLACK: Duration = Duration::from_secs(10);
/// How long a plan that is under way may go on after the daemon was told to end; the service managers' own limits
/// (`ExitTimeOut`, `TimeoutStopSec`) are longer.
const GRACE_AT_END: Duration = Duration::from_secs(70);
/// A restart that was cut off longer ago is a person's business.
const CUT_OFF_COUNTS: Duration = Duration::from_secs(3600);
/// How long the search for hand-made setters may take.
const SETTERS_DEADLINE: Duration = Duration::from_secs(5);

/// What connects the loop to the others.
#[derive(Debug)]
pub struct Links {
    /// Copies of the state, for clients.
    pub snapshots: watch::Sender<Option<Arc<Snapshot>>>,
    /// The last look, for whoever watches.
    pub seen: watch::Sender<Option<Arc<Seen>>>,
    /// Our configuration, for whoever watches.
    pub configuration: watch::Sender<Configuration>,
    /// What whoever watches wants people to be told.
    pub notices: mpsc::Receiver<Alert>,
    /// What is wrong at the moment of all that whoever watches tells of.
    pub standing: watch::Receiver<BTreeSet<AlertKind>>,
    /// What was watched.
    pub watched: watch::Receiver<Option<Arc<Watched>>>,
    /// Wishes about runners go there.
    pub asks: mpsc::Sender<Ask>,
    /// Wishes about versions go there.
    pub upgrades: mpsc::Sender<Command>,
    /// What an upgrade wants to be done to the server.
    pub charges: mpsc::Receiver<Charge>,
    /// What is known of versions.
    pub versions: watch::Receiver<Option<Arc<protocol::Versions>>>,
    /// An upgrade was cut off: the server is its business until it hands it back.
    pub handed_over: bool,
    /// What is seen of the gateway.
    pub gateway: watch::Receiver<View>,
    /// The way to it.
    pub link: Link,
}

/// What an upgrade wants to be done to the server's life, which has one owner.
#[derive(Debug)]
pub enum Charge {
    /// Stop it, and leave it so.
    Stop(oneshot::Sender<Outcome>),
    /// Start a new one with what is persisted.
    Start(oneshot::Sender<Outcome>),
    /// Do nothing to it but what an upgrade wants.
    HandOver,
    /// Look after it again.
    HandBack,
}

/// Runs the loop until the process is told to end.
pub async fn run(
    machine: Machine,
    surveyor: Arc<Mutex<Surveyor>>,
    history: History,
    mut inbox: mpsc::Receiver<Command>,
    mut links: Links,
) {
    let (answers, mut returned) = mpsc::channel(64);
    let now = machine.clock().now();
    let (supervisor, effects) = Supervisor::new(now, slack(&machine));
    let seating = Arc::new(Seating::left(&machine));
    let configuration = ConfigurationFile::open(&machine);
    let placing =
        Placing::new(&machine, configuration.current(), Arc::clone(&seating), links.link, links.gateway.clone());
    let mut supervision = Supervision {
        looker: Arc::new(Mutex::new(Looker::with(machine.clone(), surveyor, Arc::clone(&seating)))),
        alerts: Alerts::new(machine.clone(), history.clone()),
        history,
        configuration,
        placing,
        interrupted: Interruption::of(&machine),
        machine,
        supervisor,
        answers,
        snapshots: links.snapshots,
        seen: links.seen,
        told_configuration: links.configuration,
        watched: links.watched.clone(),
        asks: links.asks,
        upgrades: links.upgrades,
        versions: links.versions.clone(),
        charged: HashMap::new(),
        asked: HashMap::new(),
        progress: HashMap::new(),
        performing: HashMap::new(),
        next_wish: 0,
        last: None,
        now,
        since: (now.awake, now.wall),
        ending: None,
    };
    supervision.perform(effects).await;
    if links.handed_over {
        supervision.event(Event::HandedOver).await;
    }
    let (Ok(mut terminate), Ok(mut interrupt), Ok(mut hang_up)) = (
        signal(SignalKind::terminate()),
        signal(SignalKind::interrupt()),
        // The terminal that started it was closed.
        signal(SignalKind::hangup()),
    ) else {
        tracing::error!("signals cannot be received; the daemon ends");
        return;
    };
    loop {
        let wait = supervision.next_wait();
        tokio::select! {
            () = any(&mut terminate, &mut interrupt, &mut hang_up) => {
                if supervision.ending.is_some() || !supervision.is_working() {
                    return;
                }
                tracing::warn!("told to end while Ollama is being restarted; ending when that is done");
                supervision.ending = Some(Instant::now() + GRACE_AT_END);
            }
            Some(command) = inbox.recv() => supervision.command(command).await,
            Some(answer) = returned.recv() => supervision.answer(answer).await,
            Some(alert) = links.notices.recv() => {
                supervision.alert(alert);
                supervision.publish();
            }
            Ok(()) = links.standing.changed() => supervision.alerts.watched(&links.standing.borrow_and_update()),
            Ok(()) = links.watched.changed() => supervision.publish(),
            Ok(()) = links.versions.changed() => {
                supervision.note_versions();
                supervision.publish();
            }
            Some(charge) = links.charges.recv() => supervision.charge(charge).await,
            Ok(()) = links.gateway.changed() => {
                supervision.consider().await;
                supervision.publish();
            }
            () = tokio::time::sleep(wait) => supervision.tick().await,
        }
        if let Some(end) = supervision.ending
            && (!supervision.is_working() || Instant::now() >= end)
        {
            return;
        }
    }
}

/// A simulated machine's time can run faster than its processes do; there, every deadline gets some real seconds more.
fn slack(machine: &Machine) -> Duration {
    if machine.simulated().is_none() {
        return Duration::ZERO;
    }
    let second = machine.clock().real_span(Duration::from_secs(1)).as_secs_f64();
    if second > 0.0 { SIMULATED_SLACK.div_f64(second.min(1.0)) } else { SIMULATED_SLACK }
}

async fn any(terminate: &mut Signal, interrupt: &mut Signal, hang_up: &mut Signal) {
    tokio::select! { _ = terminate.recv() => {}, _ = interrupt.recv() => {}, _ = hang_up.recv() => {} }
}

enum Answer {
    Looked(Life, Box<Seen>),
    Engine(Event),
    /// A person asked for a place of the gateway, and this is how the machine looks.
    ForPlace(Box<Seen>, PlaceRequest),
    /// Something was done about the gateway's place.
    Placed(Result<String, Failure>),
    /// Desired settings were changed, and this is how the machine looks to them; the answer goes out after that.
    Settled {
        seen: Box<Seen>,
        ending: Box<Ending>,
        events: mpsc::Sender<protocol::Event>,
    },
}

/// Who asked, and what the answer shall mention.
struct Asked {
    events: mpsc::Sender<protocol::Event>,
    notes: Vec<String>,
}

struct Supervision {
    machine: Machine,
    looker: Arc<Mutex<Looker>>,
    configuration: ConfigurationFile,
    supervisor: Supervisor,
    answers: mpsc::Sender<Answer>,
    snapshots: watch::Sender<Option<Arc<Snapshot>>>,
    seen: watch::Sender<Option<Arc<Seen>>>,
    told_configuration: watch::Sender<Configuration>,
    watched: watch::Receiver<Option<Arc<Watched>>>,
    asks: mpsc::Sender<Ask>,
    upgrades: mpsc::Sender<Command>,
    versions: watch::Receiver<Option<Arc<protocol::Versions>>>,
    history: History,
    asked: HashMap<WishId, Asked>,
    /// What an upgrade waits for.
    charged: HashMap<WishId, oneshot::Sender<Outcome>>,
    /// What was told of wishes that are under way, for the history.
    progress: HashMap<WishId, Vec<serde_json::Value>>,
    performing: HashMap<Life, AbortHandle>,
    next_wish: u64,
    last: Option<Arc<Seen>>,
    alerts: Alerts,
    placing: Placing,
    /// A restart that is under way, written down.
    interrupted: Interruption,
    now: Now,
    /// Since when the state is what it is, on both clocks.
    since: (Awake, Wall),
    /// Told to end; when the patience with a plan under way is over.
    ending: Option<Instant>,
}

impl Supervision {
    fn is_working(&self) -> bool {
        self.supervisor.state().is_busy() || !self.performing.is_empty()
    }

    /// Real time until something is due.
    fn next_wait(&self) -> Duration {
        let due = match self.supervisor.deadline() {
            Some((at, _)) => self.machine.clock().real_span(at.since(self.machine.clock().awake())),
            None => CONFIGURATION_INTERVAL,
        };
        due.min(CONFIGURATION_INTERVAL)
    }

    async fn tick(&mut self) {
        if self.configuration.follow() {
            self.event(Event::Changed).await;
        }
        self.event(Event::Tick).await;
        if self.alerts.pass_owed(self.quiet_hours()) {
            self.publish();
        }
    }

    async fn answer(&mut self, answer: Answer) {
        match answer {
            Answer::Looked(life, seen) => {
                let look = Box::new(seen.look.clone());
                self.last = Some(Arc::from(seen));
                self.seen.send_replace(self.last.clone());
                self.event(Event::Looked { life, look }).await;
                self.take_up_what_was_cut_off().await;
                self.watch_standing();
                self.consider().await;
            }
            Answer::ForPlace(seen, request) => self.place(seen, request).await,
            Answer::Placed(done) => self.placed(done).await,
            Answer::Settled { seen, ending, events } => {
                self.last = Some(Arc::from(seen));
                self.publish();
                let _ = events.send(protocol::Event::Result(ending)).await;
            }
            Answer::Engine(event) => {
                if let Event::StepDone { life, .. } | Event::StepFailed { life, .. } = &event {
                    self.performing.remove(life);
                }
                self.event(event).await;
            }
        }
    }

    /// A daemon that ended between the stop and the start of a restart left Ollama down; the next one starts it.
    async fn take_up_what_was_cut_off(&mut self) {
        let Some(began) = self.interrupted.left_behind() else { return };
        self.interrupted.clear();
        let recent = self.machine.clock().now().wall - began < CUT_OFF_COUNTS;
        if !recent || !matches!(self.supervisor.state(), State::Down { .. }) {
            return;
        }
        tracing::warn!("a restart was cut off by the end of the daemon; Ollama is started again");
        self.next_wish += 1;
        let desired = self.last.as_ref().and_then(|seen| seen.persisted.known().cloned()).unwrap_or_default();
        let id = WishId(self.next_wish);
        self.event(Event::Wished(Wish {
            id,
            origin: Origin::CutOff,
            goal: Goal::Restart { desired },
            take_over: false,
        }))
        .await;
    }

    async fn event(&mut self, event: Event) {
        let now = self.machine.clock().now();
        let mut effects = Vec::new();
        // The gap between the clocks grows only while the machine sleeps (or its clock is set).
        let gap = (now.wall - self.now.wall).saturating_sub(now.awake.since(self.now.awake));
        if gap > SLEPT {
            tracing::info!(slept_seconds = gap.as_secs(), "the machine was asleep");
            effects.extend(self.supervisor.step(now, Event::Woke));
        }
        self.now = now;
        let before = self.supervisor.state().word();
        effects.extend(self.supervisor.step(now, event));
        let after = self.supervisor.state().word();
        if before != after {
            tracing::info!(from = before, to = after, "state");
        }
        let since = self.supervisor.state().since();
        if since != self.since.0 {
            let ago_ms = i64::try_from(now.awake.since(since).as_millis()).unwrap_or(i64::MAX);
            self.since = (since, Wall::from_unix_ms(now.wall.unix_ms.saturating_sub(ago_ms)));
        }
        self.perform(effects).await;
        self.publish();
    }

    async fn perform(&mut self, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::Look { life } => self.look(life),
                Effect::Perform { life, index, step } => self.carry_out(life, index, step),
                Effect::Abandon { life } => {
                    if let Some(task) = self.performing.remove(&life) {
                        task.abort();
                    }
                }
                // Without a gateway nobody's requests are in our hands.
                Effect::Hold => self.placing.hold(),
                Effect::Release => {
                    if let Some(seen) = &self.last {
                        self.placing.release(seen.address);
                    }
                }
                Effect::Report { wish, progress } => self.report(wish, &progress).await,
                Effect::Finish { wish, outcome } => self.finish(wish, outcome).await,
                Effect::Alert(alert) => self.alert(alert),
            }
        }
    }

    fn look(&self, life: Life) {
        let looker = Arc::clone(&self.looker);
        let answers = self.answers.clone();
        let configuration = self.configuration.current().clone();
        tokio::spawn(async move {
            let seen = looker.lock().await.look(&configuration).await;
            let _ = answers.send(Answer::Looked(life, Box::new(seen))).await;
        });
    }

    fn carry_out(&mut self, life: Life, index: usize, step: Step) {
        let looker = Arc::clone(&self.looker);
        let answers = self.answers.clone();
        let machine = self.machine.clone();
        tracing::info!(index, %step, "step");
        let task = tokio::spawn(async move {
            let surveyor = looker.lock().await.surveyor();
            let event = match stablehand_platform::perform::perform(&machine, &surveyor, &step).await {
                Ok(note) => Event::StepDone { life, index, note },
                Err(failure) => Event::StepFailed { life, index, failure },
            };
            let _ = answers.send(Answer::Engine(event)).await;
        });
        self.performing.insert(life, task.abort_handle());
    }

    async fn report(&mut self, wish: WishId, progress: &Progress) {
        // An upgrade has a journal of its own.
        if let (Progress::Planned(_), false) = (progress, self.charged.contains_key(&wish)) {
            self.interrupted.note(self.machine.clock().now().wall);
        }
        let told = translation::progress(progress);
        if let Ok(told) = serde_json::to_value(&told) {
            self.progress.entry(wish).or_default().push(told);
        }
        let asked = self.asked.get(&wish).map(|asked| &asked.events);
        if let Some(events) = asked.or_else(|| self.asked_through_place(wish)) {
            let _ = events.send(told).await;
        }
    }

    async fn finish(&mut self, wish: WishId, outcome: Outcome) {
        tracing::info!(?outcome, "done");
        if let Some(answer) = self.charged.remove(&wish) {
            let _nobody_waits = answer.send(outcome);
            return;
        }
        self.history.note(Entry {
            at: self.machine.clock().now().wall,
            kind: match &outcome {
                Outcome::Proven | Outcome::Drift(_) | Outcome::Unknown(_) | Outcome::Failed { .. } => Kind::Restart,
                Outcome::Refused(_) | Outcome::Superseded | Outcome::Stopped => Kind::Outcome,
            },
            subject: "server".to_owned(),
            words: translation::outcome_in_words(&outcome),
            detail_json: detail::outcome(&outcome, self.progress.remove(&wish).unwrap_or_default()).to_string(),
        });
        self.interrupted.clear();
        if self.restarted_for_place(wish, &outcome) {
            return;
        }
        let Some(Asked { events, notes }) = self.asked.remove(&wish) else { return };
        if let (Outcome::Proven, Some(seen)) = (&outcome, &self.last) {
            let mut ending = translation::ending(&self.machine, seen);
            ending.notes.extend(notes);
            translation::conclude(&mut ending, &outcome);
            let _ = events.send(protocol::Event::Result(Box::new(ending))).await;
            return;
        }
        // The last look may be older than what went wrong.
        let looker = Arc::clone(&self.looker);
        let machine = self.machine.clone();
        let configuration = self.configuration.current().clone();
        tokio::spawn(async move {
            let seen = looker.lock().await.look_anew(&configuration).await;
            let mut ending = translation::ending(&machine, &seen);
            ending.notes.extend(notes);
            translation::conclude(&mut ending, &outcome);
            let _ = events.send(protocol::Event::Result(Box::new(ending))).await;
        });
    }

    /// Drift and rivalry are alerts of their own; they come and go with what the looks show.
    fn watch_standing(&mut self) {
        let Some(seen) = self.last.clone() else { return };
        if self.is_working() {
            return;
        }
        match verify(&seen.look.reports) {
            Verification::Drift if self.configuration.failure().is_none() => {
                let names = translation::drifted(&seen.look.reports).join(", ");
                let message = format!("not in force as desired: {names}");
                self.alert(Alert::new(AlertKind::Drift, message, "stablehand apply"));
            }
            Verification::Proven | Verification::Drift | Verification::Unknown(_) => {
                self.alerts.over(AlertKind::Drift);
            }
        }
        if !matches!(self.supervisor.state(), State::GaveUp { .. }) {
            self.alerts.over(AlertKind::GaveUp);
        }
        if !matches!(self.supervisor.state(), State::Silent { .. }) {
            self.alerts.over(AlertKind::ServerSilent);
        }
        match translation::rivalry(&seen.look.ownership) {
            Some(message) => self.alert(Alert::new(AlertKind::Contested, message, "stablehand doctor")),
            None => self.alerts.over(AlertKind::Contested),
        }
    }

    /// A version that is out is no news any more once it is in place, or is not wanted.
    fn note_versions(&mut self) {
        let waits = self
            .versions
            .borrow()
            .as_ref()
            .is_some_and(|versions| versions.newer == protocol::Known::Is(true) && versions.pin.is_none());
        if !waits {
            self.alerts.over(AlertKind::NewVersion);
        }
    }

    fn alert(&mut self, alert: Alert) {
        let quiet = self.quiet_hours();
        self.alerts.offer(alert, quiet);
    }

    fn quiet_hours(&self) -> Option<QuietHours> {
        self.configuration.current().quiet
    }

    fn pause_alerts(&mut self, span: Duration) -> Ending {
        let words = self.alerts.pause(span);
        self.publish();
        Ending {
            steps: vec![words],
            simulated: translation::simulated(&self.machine),
            ..Ending::new(protocol::Outcome::Changed)
        }
    }

    fn configure(&mut self, set: &BTreeMap<String, String>) -> Ending {
        let ending = match self.configuration.configure(set) {
            Ok(steps) => Ending { steps, ..Ending::new(protocol::Outcome::Changed) },
            Err(failure) => Ending::failed(failure),
        };
        self.publish();
        Ending { simulated: translation::simulated(&self.machine), ..ending }
    }

    fn publish(&self) {
        self.told_configuration.send_if_modified(|told| {
            let news = told != self.configuration.current();
            if news {
                told.clone_from(self.configuration.current());
            }
            news
        });
        let Some(seen) = &self.last else { return };
        let snapshot = translation::snapshot(&translation::Sources {
            machine: &self.machine,
            supervisor: &self.supervisor,
            since: self.since.1,
            seen,
            alerts: self.alerts.last(),
            alerts_paused_until: self.alerts.paused_until(self.now),
            watched: self.watched.borrow().clone(),
            versions: self.versions.borrow().clone(),
            configuration: &self.configuration,
            gateway: placing::shown(&self.placing, self.configuration.current(), seen),
        });
        self.snapshots.send_if_modified(|published| {
            let news = published.as_deref() != Some(&snapshot);
            if news {
                *published = Some(Arc::new(snapshot));
            }
            news
        });
    }

    async fn command(&mut self, command: Command) {
        let Command { request, events } = command;
        self.configuration.follow();
        match request {
            Request::Settings { set, unset, preset, dry_run } => {
                let ending = match preset_of(preset.as_deref()) {
                    Ok(preset) => {
                        let change = Change { preset, set, unset: unset.into_iter().collect() };
                        self.change_settings(&change, dry_run)
                    }
                    Err(failure) => Err(failure),
                };
                self.answer_settings(ending, events).await;
            }
            Request::Apply { take_over, dry_run } => {
                let inherited = self.inherited(take_over).await;
                let mut desired = self.desired();
                desired.extend(inherited.clone());
                self.wish(self.apply_goal(desired), inherited, take_over, dry_run, events).await;
            }
            Request::Restart { take_over, dry_run } => {
                // A restart brings back what holds already; what is desired and not applied yet stays so.
                let inherited = if take_over { self.inherited(take_over).await } else { Values::new() };
                let mut lasting =
                    self.last.as_ref().and_then(|seen| seen.persisted.known().cloned()).unwrap_or_default();
                lasting.extend(inherited.clone());
                self.wish(Goal::Restart { desired: lasting }, inherited, take_over, dry_run, events).await;
            }
            Request::Verify => self.verify(events),
            Request::Unload { model, dry_run } => self.forward(What::Unload(model), dry_run, events).await,
            Request::StopRunner { model, force, dry_run } => {
                self.forward(What::Stop { model, force }, dry_run, events).await;
            }
            Request::Recover { dry_run } => self.forward(What::TryAgain, dry_run, events).await,
            Request::CheckReleases { .. }
            | Request::Upgrade { .. }
            | Request::Rollback { .. }
            | Request::Pin { .. } => {
                if self.upgrades.send(Command { request, events }).await.is_err() {
                    tracing::error!("whoever upgrades has ended");
                }
            }
            Request::Configure { set } => {
                let ending = self.configure(&set);
                // Whoever sets the policy, also to what it is, wants it to be followed.
                if ending.failure.is_none() && set.contains_key("recovery.policy") {
                    let (nobody, _) = mpsc::channel(1);
                    self.forward(What::TryAgain, false, nobody).await;
                }
                let _ = events.send(protocol::Event::Result(Box::new(ending))).await;
            }
            Request::Gateway { mode, port, dry_run } => self.asked_for_place(&mode, port, dry_run, events),
            Request::PauseAlerts { seconds } => {
                let ending = self.pause_alerts(Duration::from_secs(seconds));
                let _ = events.send(protocol::Event::Result(Box::new(ending))).await;
            }
        }
    }

    /// What an upgrade wants to be done to the server.
    async fn charge(&mut self, charge: Charge) {
        let (goal, answer) = match charge {
            Charge::Stop(answer) => (Goal::Stop, answer),
            Charge::Start(answer) => {
                let persisted = self.last.as_ref().and_then(|seen| seen.persisted.known().cloned());
                (Goal::Restart { desired: persisted.unwrap_or_default() }, answer)
            }
            Charge::HandOver => return self.event(Event::HandedOver).await,
            Charge::HandBack => return self.event(Event::HandedBack).await,
        };
        self.next_wish += 1;
        let id = WishId(self.next_wish);
        self.charged.insert(id, answer);
        self.event(Event::Wished(Wish { id, origin: Origin::Upgrade, goal, take_over: false })).await;
    }

    async fn forward(&self, what: What, dry_run: bool, events: mpsc::Sender<protocol::Event>) {
        if self.asks.send(Ask { what, dry_run, events }).await.is_err() {
            tracing::error!("whoever watches the runners has ended");
        }
    }

    fn change_settings(&mut self, change: &Change, dry_run: bool) -> Result<(Ending, Configuration), Failure> {
        let version = self.last.as_ref().and_then(|seen| seen.version.known().copied());
        let (words, after) = self.configuration.change(change, version.as_ref(), dry_run)?;
        let outcome = if dry_run { protocol::Outcome::Planned } else { protocol::Outcome::Changed };
        let mut ending = Ending { steps: words, ..Ending::new(outcome) };
        ending.simulated = translation::simulated(&self.machine);
        let cautions = change.set.keys().filter_map(|name| {
            let caution = catalogue::find(name)?.caution?;
            Some(format!("{name}: {caution}"))
        });
        ending.notes.extend(cautions);
        if ending.steps.is_empty() {
            ending.notes.push("nothing changes: that is desired already".to_owned());
        } else if !dry_run {
            let owed = "only the desired values were changed; run `stablehand apply` to put them in force";
            ending.notes.push(owed.to_owned());
        }
        Ok((ending, after))
    }

    /// The answer goes out when a look has taken the change in, and with it the memory bound of what was changed.
    async fn answer_settings(
        &mut self,
        changed: Result<(Ending, Configuration), Failure>,
        events: mpsc::Sender<protocol::Event>,
    ) {
        let (mut ending, after) = match changed {
            Ok(changed) => changed,
            Err(failure) => {
                let _ = events.send(protocol::Event::Result(Box::new(Ending::failed(failure)))).await;
                return;
            }
        };
        let costs = ending
            .steps
            .iter()
            .any(|step| step.starts_with("OLLAMA_NUM_PARALLEL") || step.starts_with("OLLAMA_CONTEXT_LENGTH"));
        let machine = self.machine.clone();
        let present = self.configuration.current().clone();
        let looker = Arc::clone(&self.looker);
        let answers = self.answers.clone();
        tokio::spawn(async move {
            let seen = {
                let mut looker = looker.lock().await;
                let seen = looker.look(&present).await;
                if costs {
                    ending.memory = memory::bounds(&machine, looker.address(), &after.desired).await;
                }
                seen
            };
            let _ = answers.send(Answer::Settled { seen: Box::new(seen), ending: Box::new(ending), events }).await;
        });
    }

    /// What `apply` takes the place of must not lose its values: a hand-made setter, whose file goes aside, and a
    /// server started by hand that is taken over. They become desired values, unless others are desired already.
    async fn inherited(&self, take_over: bool) -> Values {
        let mut found: BTreeMap<String, String> = BTreeMap::new();
        if take_over && let Some(seen) = &self.last {
            found.extend(seen.given_by_hand.clone());
        }
        if self.machine.os() == Os::MacOs {
            let machine = self.machine.clone();
            // A setter's script may lie where macOS asks the person before it lets anybody read.
            let looking = tokio::task::spawn_blocking(move || adoption::setters(&machine));
            let setters = tokio::time::timeout(SETTERS_DEADLINE, looking).await;
            let setters = setters.ok().and_then(Result::ok).unwrap_or_default();
            let adopted = setters.into_iter().filter(|setter| setter.also_does.is_empty());
            let values = adopted.flat_map(|setter| setter.values);
            found.extend(values.map(|(name, value)| (name.to_string(), value.to_string())));
        }
        let desired = &self.configuration.current().desired;
        let version = self.last.as_ref().and_then(|seen| seen.version.known().copied());
        let taken = found.into_iter().filter_map(|(name, value)| {
            let wish = match catalogue::check(&name, &value, version.as_ref()) {
                Ok(wish) => wish,
                Err(refused) => {
                    tracing::warn!(%refused, "a value found on this machine is not taken over");
                    return None;
                }
            };
            let name = Name::try_new(&name).ok()?;
            (!desired.contains_key(&name)).then_some((name, wish.value))
        });
        taken.collect()
    }

    fn desired(&self) -> Values {
        let desired = &self.configuration.current().desired;
        desired.iter().map(|(name, wish)| (name.clone(), wish.value.clone())).collect()
    }

    fn apply_goal(&self, desired: Values) -> Goal {
        let persisted: BTreeSet<Name> = match &self.last {
            Some(seen) => seen.persisted_names(),
            None => BTreeSet::new(),
        };
        let unset = persisted.into_iter().filter(|name| !desired.contains_key(name)).collect();
        Goal::Apply { desired, unset }
    }

    async fn wish(
        &mut self,
        goal: Goal,
        inherited: Values,
        take_over: bool,
        dry_run: bool,
        events: mpsc::Sender<protocol::Event>,
    ) {
        // A restart needs nothing of the configuration, and may be what saves the day.
        if let (Some(failure), Goal::Apply { .. }) = (self.configuration.failure(), &goal) {
            let mut failure = failure.clone();
            failure.message.push_str("; nothing was changed");
            let _ = events.send(protocol::Event::Result(Box::new(Ending::failed(failure)))).await;
            return;
        }
        let notes: Vec<String> = inherited
            .iter()
            .map(|(name, value)| format!("{name}={value} was found on this machine, and is desired from now on"))
            .collect();
        if dry_run {
            self.plan_only(goal, notes, take_over, events);
            return;
        }
        let mut notes = notes;
        // Only when there will be a plan: a refusal changes nothing.
        let planned =
            self.last.as_ref().map(|seen| plan(goal.clone(), &seen.look.ownership, seen.look.seat, take_over));
        if let (Some(seen), Some(Ok(planned))) = (&self.last, &planned) {
            notes.extend(until_the_next_login(&seen.look.ownership, planned));
        }
        if let (Some(Ok(_)), false) = (planned, inherited.is_empty()) {
            let set = inherited.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
            if let Err(failure) = self.configuration.change(&Change { set, ..Change::default() }, None, false) {
                let _ = events.send(protocol::Event::Result(Box::new(Ending::failed(failure)))).await;
                return;
            }
        }
        self.next_wish += 1;
        let id = WishId(self.next_wish);
        self.asked.insert(id, Asked { events, notes });
        self.event(Event::Wished(Wish { id, origin: Origin::Person, goal, take_over })).await;
    }

    fn plan_only(&self, goal: Goal, notes: Vec<String>, take_over: bool, events: mpsc::Sender<protocol::Event>) {
        let looker = Arc::clone(&self.looker);
        let machine = self.machine.clone();
        let configuration = self.configuration.current().clone();
        tokio::spawn(async move {
            let seen = looker.lock().await.look_anew(&configuration).await;
            let mut ending = translation::ending(&machine, &seen);
            ending.notes.extend(notes);
            match plan(goal, &seen.look.ownership, seen.look.seat, take_over) {
                Ok(plan) => match steps_in_words(&machine, &plan.steps) {
                    Ok(steps) => {
                        ending.outcome = protocol::Outcome::Planned;
                        ending.notes.extend(until_the_next_login(&seen.look.ownership, &plan));
                        ending.steps = steps;
                    }
                    Err(failure) => {
                        ending.outcome = protocol::Outcome::Failed;
                        ending.failure = Some(crate::failure_of(&failure));
                    }
                },
                Err(refusal) => translation::conclude(&mut ending, &refused(refusal)),
            }
            let _ = events.send(protocol::Event::Result(Box::new(ending))).await;
        });
    }

    fn verify(&self, events: mpsc::Sender<protocol::Event>) {
        let looker = Arc::clone(&self.looker);
        let machine = self.machine.clone();
        let configuration: Configuration = self.configuration.current().clone();
        let failure = self.configuration.failure().cloned();
        tokio::spawn(async move {
            let seen = looker.lock().await.look_anew(&configuration).await;
            let mut ending = translation::ending(&machine, &seen);
            ending.outcome = match verify(&seen.look.reports) {
                Verification::Proven => protocol::Outcome::Proven,
                Verification::Drift => protocol::Outcome::Drift,
                Verification::Unknown(reason) => {
                    ending.notes.push(reason);
                    protocol::Outcome::Unknown
                }
            };
            if configuration.unknown {
                ending.outcome = protocol::Outcome::Unknown;
                ending.notes.push("no good configuration was read yet, so what is desired is not known".to_owned());
            }
            ending.notes.extend(failure.map(|failure| failure.message));
            let _ = events.send(protocol::Event::Result(Box::new(ending))).await;
        });
    }
}

/// What a person should know who hands a server over where no service manager can keep it.
fn until_the_next_login(ownership: &Ownership, plan: &Plan) -> Option<String> {
    let Ownership::One { owner: Owner::Manual { own_unit: Known::Unknown(reason), .. }, .. } = ownership else {
        return None;
    };
    let Owner::Agent(AgentKind::Process { .. }) = &plan.owner else { return None };
    Some(format!(
        "this server runs until it is stopped or you log out: no service manager starts it again ({reason}); after the \
         next login Stablehand starts it as soon as its daemon runs"
    ))
}

fn refused(refusal: Refusal) -> Outcome {
    Outcome::Refused(refusal)
}

/// Steps as a dry run shows them: what is written, to the letter, before what is done.
fn steps_in_words(machine: &Machine, steps: &[Step]) -> Result<Vec<String>, StepFailure> {
    let mut words = Vec::new();
    for step in steps {
        words.push(step.to_string());
        if let Step::Persist { owner, values } = step {
            let changes = stablehand_platform::layers::persist_changes(machine, owner, values)?;
            words.extend(changes.iter().map(|change| format!("  {change}")));
        }
    }
    Ok(words)
}

fn preset_of(word: Option<&str>) -> Result<Option<Preset>, Failure> {
    let Some(word) = word else { return Ok(None) };
    Preset::from_word(word).map(Some).ok_or_else(|| {
        let known: Vec<_> = Preset::ALL.iter().map(|preset| preset.word()).collect();
        Failure::new(
            "unknown-preset",
            format!("there is no preset «{word}»; nothing was changed"),
            format!("the presets are {}", known.join(" and ")),
        )
    })
}
