//! How the gateway comes to stand where it is wished, and leaves again: the engine says what is next
//! ([`stablehand_engine::takeover`]), one thing at a time is done, and what came of it is looked at.

use super::{Answer, Supervision};
use crate::configuration::{Configuration, GatewayPlace};
use crate::failure_of;
use crate::gateway::link::Link;
use crate::gateway::record::{self, Record};
use crate::gateway::seating::Seating;
use crate::gateway::view::{View, listening_at};
use crate::looking::{Front, Seen};
use crate::translation;
use stablehand_engine::Known;
use stablehand_engine::alert::{Alert, AlertKind};
use stablehand_engine::owner::Ownership;
use stablehand_engine::plan::{Goal, Seat, plan};
use stablehand_engine::setting::{Verification, verify};
use stablehand_engine::supervisor::{Event, Origin, Outcome, State, Wish, WishId};
use stablehand_engine::takeover::{self, Act, Door, Found, Hindrance, Mode, Next, Place, Takeover};
use stablehand_engine::time::Awake;
use stablehand_ollama::client::Client;
use stablehand_platform::gateway_service;
use stablehand_platform::machine::Machine;
use stablehand_protocol::{self as protocol, Ending, Failure, StepProgress};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpSocket;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

/// How long a gateway that was started may take until a request comes through it, in real time.
const OPENS_WITHIN: Duration = Duration::from_secs(20);
/// The pause between two looks at what is waited for.
const POLL: Duration = Duration::from_millis(50);
/// How long requests are held for a server that is not ready: Homebrew may take half an hour to replace it.
const HELD_AT_MOST: Duration = Duration::from_secs(1_800);
/// Ports above the server's own that are tried for the moved one.
const NEAR: u16 = 32;

/// What places the gateway.
pub(super) struct Placing {
    takeover: Takeover,
    seating: Arc<Seating>,
    pub(super) link: Link,
    pub(super) view: watch::Receiver<View>,
    acting: Option<Acting>,
    /// When something was done last; what was looked at before that is out of date.
    acted: Awake,
    asking: Option<Asking>,
    record: Record,
    /// Held requests are left to it; nothing more is done about them.
    shutting: bool,
    /// The file names addresses of a place that is being left.
    left_lines: bool,
    holds: mpsc::UnboundedSender<Option<SocketAddr>>,
}

/// What is being done.
enum Acting {
    Restart(WishId),
    Service(Act),
}

/// What a person asked for.
struct Asking {
    events: mpsc::Sender<protocol::Event>,
    notes: Vec<String>,
    /// How many acts there are, and how many were begun.
    of: usize,
    begun: usize,
    failure: Option<Failure>,
    /// Desired settings wait to be put in force.
    pending: bool,
}

/// A request, as it came.
#[derive(Debug)]
pub(super) struct PlaceRequest {
    mode: Mode,
    port: Option<u16>,
    dry_run: bool,
    events: mpsc::Sender<protocol::Event>,
}

impl Placing {
    pub(super) fn new(
        machine: &Machine,
        configuration: &Configuration,
        seating: Arc<Seating>,
        link: Link,
        view: watch::Receiver<View>,
    ) -> Self {
        let record = record::read(machine);
        let takeover = Takeover::new(configuration.gateway.mode, record.spent);
        let holds = tell_of_holds(link.clone());
        let placing = Self {
            takeover,
            seating,
            link,
            view,
            acting: None,
            acted: Awake::default(),
            asking: None,
            record,
            shutting: false,
            left_lines: false,
            holds,
        };
        placing.seat(configuration);
        placing
    }

    /// Lets the next start of the server put it where it is wished.
    fn seat(&self, configuration: &Configuration) {
        let moved = configuration.gateway.upstream.map(|upstream| upstream.port());
        self.seating.want(moved.filter(|_| self.takeover.moves()));
    }

    /// Why the gateway is not in the server's place.
    pub(super) fn aside(&self) -> Option<Failure> {
        self.takeover.aside().map(|hindrance| in_words(hindrance, ""))
    }

    pub(super) fn is_acting(&self) -> bool {
        self.acting.is_some()
    }

    /// Tells the gateway to hold; without waiting for it.
    pub(super) fn hold(&self) {
        // Nobody reads these once the daemon ends.
        let _ = self.holds.send(None);
    }

    /// Tells the gateway to go on with the server at this address.
    pub(super) fn release(&self, address: SocketAddr) {
        let _ = self.holds.send(Some(address));
    }

    fn remember(&mut self, machine: &Machine) {
        let record = Record { moved: self.seating.ports().last, spent: self.takeover.spent() };
        if record != self.record {
            record::write(machine, &record);
            self.record = record;
        }
    }
}

impl Supervision {
    /// A person asks for a place.
    pub(super) fn asked_for_place(
        &mut self,
        mode: &str,
        port: Option<u16>,
        dry_run: bool,
        events: mpsc::Sender<protocol::Event>,
    ) {
        let refused = match Mode::from_word(mode) {
            None => Some(Failure::new(
                "unknown-mode",
                format!("there is no mode «{mode}»; nothing was changed"),
                "the modes are off, beside and takeover",
            )),
            Some(_) if self.placing.asking.is_some() => Some(Failure::new(
                "gateway-busy",
                "the gateway is just being placed; nothing was changed",
                "try again when that has ended: stablehand gateway status",
            )),
            Some(_) => self.configuration.failure().map(|failure| Failure {
                message: format!("{}; nothing was changed", failure.message),
                ..failure.clone()
            }),
        };
        let (Some(mode), None) = (Mode::from_word(mode), &refused) else {
            answer(events, refused.map_or_else(|| Ending::new(protocol::Outcome::Unknown), Ending::failed));
            return;
        };
        let looker = Arc::clone(&self.looker);
        let answers = self.answers.clone();
        let configuration = self.configuration.current().clone();
        tokio::spawn(async move {
            let seen = looker.lock().await.look_anew(&configuration).await;
            let request = PlaceRequest { mode, port, dry_run, events };
            let _ = answers.send(Answer::ForPlace(Box::new(seen), request)).await;
        });
    }

    pub(super) async fn place(&mut self, seen: Box<Seen>, request: PlaceRequest) {
        let PlaceRequest { mode, port, dry_run, events } = request;
        let seen: Arc<Seen> = Arc::from(seen);
        let found = self.found(&seen);
        let (acts, place) = match takeover::plan(mode, &found)
            .map_err(|hindrance| in_words(&hindrance, "; nothing was changed"))
            .and_then(|acts| Ok((acts, self.place_of(mode, port, &seen)?)))
        {
            Ok(planned) => planned,
            Err(failure) => return answer(events, Ending::failed(failure)),
        };
        let pending = matches!(verify(&seen.look.reports), Verification::Drift);
        if dry_run {
            let mut ending = translation::ending(&self.machine, &seen);
            ending.outcome = protocol::Outcome::Planned;
            ending.restarts = (pending && mode != Mode::Off) || acts.iter().any(restarts);
            ending.steps = steps(mode, &acts, &place, &seen, &self.goal(&seen, pending));
            if ending.steps.is_empty() {
                ending.notes.push("nothing to do: it stands there already".to_owned());
            }
            return answer(events, ending);
        }
        // The place that is left behind is known until it has been left.
        if mode != Mode::Off
            && let Err(failure) = self.configuration.place_gateway(&place)
        {
            return answer(events, Ending::failed(failure));
        }
        if mode == Mode::Off
            && let Err(failure) = self.configuration.place_gateway(&GatewayPlace { mode, ..self.written_place(&place) })
        {
            return answer(events, Ending::failed(failure));
        }
        let waits = pending && mode != Mode::Off;
        let restarts = acts.iter().any(restarts);
        let _ = events
            .send(protocol::Event::Planned {
                goal: format!("gateway {}", mode.word()),
                owner: owner_word(&seen.look.ownership).to_owned(),
                steps: acts.iter().map(ToString::to_string).collect(),
            })
            .await;
        self.placing.takeover.wish(mode);
        self.placing.shutting = false;
        self.placing.left_lines = mode == Mode::Off;
        self.placing.seat(self.configuration.current());
        self.placing.remember(&self.machine);
        self.placing.asking = Some(Asking {
            events,
            notes: Vec::new(),
            of: acts.len() + usize::from(waits && !restarts),
            begun: 0,
            failure: None,
            pending: waits,
        });
        self.last = Some(seen);
        if waits && !restarts {
            self.restart_for_place(Act::MoveBack).await;
        } else {
            self.consider().await;
        }
    }

    /// The lines of the file for a place.
    fn place_of(&self, mode: Mode, port: Option<u16>, seen: &Seen) -> Result<GatewayPlace, Failure> {
        let home = seen.front.home;
        let loopback = |port: u16| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        match mode {
            Mode::Off => Ok(GatewayPlace::default()),
            Mode::Beside => {
                let taken = |why: &str| {
                    Failure::new(
                        "bad-port",
                        format!("the gateway cannot stand there: {why}; nothing was changed"),
                        "name a free port: stablehand gateway on --beside 11435",
                    )
                };
                let port = port.filter(|port| *port != 0).ok_or_else(|| taken("a port is needed"))?;
                if port == home {
                    return Err(taken("that is Ollama's own port (`--takeover` stands in its place)"));
                }
                let ours =
                    seen.front.door == Door::Beside && listening_at(home, self.configuration.current()).port() == port;
                if !ours && !is_free(port) {
                    return Err(taken(&format!("port {port} is held by another program")));
                }
                Ok(GatewayPlace { mode, listen: vec![loopback(port)], upstream: Some(loopback(home)) })
            }
            Mode::Takeover => {
                let known = self.placing.record.moved;
                let moved = known.filter(|port| seen.front.place == Place::Moved || is_free(*port));
                let near = (1..=NEAR).filter_map(|step| home.checked_add(step)).find(|port| is_free(*port));
                let moved = moved.or(near).ok_or_else(|| {
                    Failure::new(
                        "no-free-port",
                        format!("no port near {home} is free for Ollama to move to; nothing was changed"),
                        "stop what listens there, then try again",
                    )
                })?;
                let listen = match seen.front.place {
                    Place::Home => addresses(&seen.front),
                    // It has moved already; what it had before stands in the file.
                    Place::Moved | Place::Nowhere => self.configuration.current().gateway.listen.clone(),
                };
                let in_place = listen.iter().all(|address| address.port() == home) && !listen.is_empty();
                let listen = if in_place { listen } else { vec![loopback(home)] };
                Ok(GatewayPlace { mode, listen, upstream: Some(loopback(moved)) })
            }
        }
    }

    /// The addresses that the file has now, for a place that is about to be left.
    fn written_place(&self, place: &GatewayPlace) -> GatewayPlace {
        let now = &self.configuration.current().gateway;
        if now.mode == Mode::Off { place.clone() } else { now.clone() }
    }

    fn found(&self, seen: &Seen) -> Found {
        let busy = match self.supervisor.state() {
            State::Blind { .. } | State::Planning { .. } | State::Working(_) | State::Upgrading { .. } => true,
            State::Down { .. }
            | State::ComingUp { .. }
            | State::Up { .. }
            | State::Silent { .. }
            | State::Blocked { .. }
            | State::GaveUp { .. } => false,
        };
        Found {
            ownership: seen.look.ownership.clone(),
            place: seen.front.place,
            astray: seen.front.astray,
            exposed: seen.front.exposed.clone(),
            door: seen.front.door,
            sick: self.placing.view.borrow().sick(seen.front.gateway).is_some(),
            busy,
        }
    }

    /// Does the next thing, when nothing is being done.
    pub(super) async fn consider(&mut self) {
        self.placing.takeover.follow(self.configuration.current().gateway.mode);
        let Some(seen) = self.last.clone() else { return };
        if self.placing.acting.is_some() {
            return;
        }
        self.complete_place(&seen);
        if seen.front.at < self.placing.acted {
            // A look is under way, or one is asked for.
            self.event(Event::Changed).await;
            return;
        }
        // One that has left, and leaves again later, is shut again.
        self.placing.shutting &= seen.front.door == Door::Leaving;
        let found = self.found(&seen);
        let next = self.placing.takeover.next(self.now.awake, &found);
        self.placing.seat(self.configuration.current());
        self.placing.remember(&self.machine);
        self.tell_of_place(&found);
        match next {
            Next::Wait => {}
            Next::Rest => self.settle_place(&seen),
            Next::Do(act @ (Act::Move | Act::MoveBack)) => self.restart_for_place(act).await,
            Next::Do(Act::Shut) if self.placing.shutting => self.settle_place(&seen),
            Next::Do(act @ (Act::Open | Act::Leave | Act::Shut)) => {
                self.began(act);
                self.serve_place(act, &seen);
            }
        }
    }

    fn began(&mut self, act: Act) {
        tracing::info!(act = act.name(), "the gateway's place");
        let Some(asking) = &mut self.placing.asking else { return };
        asking.begun += 1;
        asking.of = asking.of.max(asking.begun);
        let began = protocol::Event::StepBegan(StepProgress {
            index: asking.begun,
            of: asking.of,
            name: act.name().to_owned(),
            words: act.to_string(),
            attempt: 1,
        });
        let _ = asking.events.try_send(began);
    }

    fn goal(&self, seen: &Seen, pending: bool) -> Goal {
        if pending {
            return self.apply_goal(self.desired());
        }
        Goal::Restart { desired: seen.persisted.known().cloned().unwrap_or_default() }
    }

    async fn restart_for_place(&mut self, act: Act) {
        self.began(act);
        let (asked, pending) = self.placing.asking.as_ref().map_or((false, false), |asking| (true, asking.pending));
        let goal = match self.last.clone() {
            Some(seen) => self.goal(&seen, pending),
            None => return,
        };
        self.next_wish += 1;
        let id = WishId(self.next_wish);
        self.placing.acting = Some(Acting::Restart(id));
        let origin = if asked { Origin::Person } else { Origin::Gateway };
        self.event(Event::Wished(Wish { id, origin, goal, take_over: false })).await;
    }

    /// A restart of ours for the gateway's place has ended.
    pub(super) fn restarted_for_place(&mut self, wish: WishId, outcome: &Outcome) -> bool {
        let Some(Acting::Restart(id)) = &self.placing.acting else { return false };
        if *id != wish {
            return false;
        }
        self.placing.acting = None;
        self.placing.acted = self.machine.clock().awake();
        if let Some(asking) = &mut self.placing.asking {
            asking.pending = false;
            let mut ending = Ending::new(protocol::Outcome::Unknown);
            translation::conclude(&mut ending, outcome);
            asking.notes.extend(ending.notes);
            if let Some(failure) = ending.failure {
                asking.failure.get_or_insert(failure);
            }
        }
        // What it looks like now is seen by a look; until then nothing more is done.
        let answers = self.answers.clone();
        tokio::spawn(async move {
            let _ = answers.send(Answer::Engine(Event::Changed)).await;
        });
        true
    }

    fn serve_place(&mut self, act: Act, seen: &Seen) {
        self.placing.acting = Some(Acting::Service(act));
        let machine = self.machine.clone();
        let link = self.placing.link.clone();
        let front = listening_at(seen.front.home, self.configuration.current());
        let (pid, behind) = (seen.front.gateway, seen.address);
        if act == Act::Open && seen.front.door != Door::Shut && self.placing.asking.is_none() {
            let reason = self.placing.view.borrow().sick(pid).unwrap_or("it does not listen").to_owned();
            let message = format!("the gateway is started anew: {reason}");
            self.alert(Alert::new(AlertKind::GatewayRestarted, message, "stablehand gateway status"));
        }
        if act == Act::Shut {
            // What waits in it goes to Ollama's own address from now on.
            self.forget_place();
            self.placing.shutting = true;
        }
        let answers = self.answers.clone();
        tokio::spawn(async move {
            let done = match act {
                Act::Open => open(&machine, front).await,
                Act::Leave => leave(&machine, &link).await,
                Act::Shut => shut(&machine, &link, behind).await,
                Act::Move | Act::MoveBack => Ok(String::new()),
            };
            let _ = answers.send(Answer::Placed(done)).await;
        });
    }

    /// The file names no addresses any more, once the gateway has left them.
    fn forget_place(&mut self) {
        if !self.placing.left_lines || self.configuration.current().gateway.mode != Mode::Off {
            return;
        }
        match self.configuration.place_gateway(&GatewayPlace::default()) {
            Ok(()) => self.placing.left_lines = false,
            Err(failure) => {
                tracing::warn!(message = %failure.message, "the gateway's place stays in the configuration");
            }
        }
    }

    /// A person who writes the mode by hand leaves the addresses to us.
    fn complete_place(&mut self, seen: &Seen) {
        let written = &self.configuration.current().gateway;
        if written.mode != Mode::Takeover || written.upstream.is_some() || self.configuration.failure().is_some() {
            return;
        }
        let completed =
            self.place_of(Mode::Takeover, None, seen).and_then(|place| self.configuration.place_gateway(&place));
        if let Err(failure) = completed {
            tracing::warn!(message = %failure.message, "the gateway's place is not complete");
        }
    }

    pub(super) async fn placed(&mut self, done: Result<String, Failure>) {
        let Some(Acting::Service(act)) = self.placing.acting.take() else { return };
        self.placing.acted = self.machine.clock().awake();
        match (done, &mut self.placing.asking) {
            (Ok(note), Some(asking)) => {
                let _ = asking.events.try_send(protocol::Event::StepDone { index: asking.begun, note });
            }
            (Ok(note), None) => tracing::info!(act = act.name(), note, "done"),
            (Err(failure), asked) => {
                tracing::warn!(act = act.name(), message = %failure.message, "not done");
                if let Some(asking) = asked {
                    asking.failure.get_or_insert(failure);
                    if act == Act::Open {
                        self.placing.takeover.broke();
                    }
                }
            }
        }
        self.event(Event::Changed).await;
    }

    /// Nothing more is to be done: whoever asked is told.
    fn settle_place(&mut self, seen: &Seen) {
        if let (Some(asking), Some(hindrance)) = (&mut self.placing.asking, self.placing.takeover.aside())
            && self.placing.takeover.mode() != Mode::Off
        {
            // What was asked for is not to be had; nothing of it is left behind.
            asking.failure.get_or_insert(in_words(hindrance, ""));
            if let Err(failure) = self
                .configuration
                .place_gateway(&GatewayPlace { mode: Mode::Off, ..self.configuration.current().gateway.clone() })
            {
                tracing::warn!(message = %failure.message, "the gateway's place stays in the configuration");
            }
            self.placing.takeover.wish(Mode::Off);
            self.placing.left_lines = true;
            self.placing.seat(self.configuration.current());
            let answers = self.answers.clone();
            tokio::spawn(async move {
                let _ = answers.send(Answer::Engine(Event::Changed)).await;
            });
            return;
        }
        if self.placing.takeover.mode() == Mode::Off && seen.front.place != Place::Moved {
            if seen.front.door == Door::Shut {
                self.forget_place();
            }
            self.placing.seating.forget();
            self.placing.remember(&self.machine);
        }
        let Some(asking) = self.placing.asking.take() else { return };
        let mode = self.placing.takeover.mode();
        let mut ending = translation::ending(&self.machine, seen);
        ending.notes.extend(asking.notes);
        let front = listening_at(seen.front.home, self.configuration.current());
        let stands = match mode {
            Mode::Off => seen.front.place != Place::Moved,
            Mode::Beside => seen.front.door == Door::Beside,
            Mode::Takeover => (seen.front.place, seen.front.door) == (Place::Moved, Door::Home),
        };
        match (asking.failure, stands) {
            (None, true) => {
                ending.outcome = protocol::Outcome::Changed;
                ending.notes.push(match mode {
                    Mode::Off if seen.front.door == Door::Leaving => {
                        "the gateway has left; it ends as soon as what waits in it is answered".to_owned()
                    }
                    Mode::Off => "the gateway is off; clients reach Ollama itself".to_owned(),
                    Mode::Beside => {
                        format!("the gateway answers at http://{front}, in front of Ollama at http://{}", seen.address)
                    }
                    Mode::Takeover => format!(
                        "the gateway answers at http://{front} in Ollama's place; Ollama is behind it at http://{}",
                        seen.address
                    ),
                });
            }
            (failure, _) => {
                ending.outcome = protocol::Outcome::Failed;
                ending.failure = Some(failure.unwrap_or_else(|| {
                    Failure::new(
                        "gateway-not-placed",
                        "the gateway does not stand where it was wished",
                        "see `stablehand gateway status` and `stablehand logs --daemon`",
                    )
                }));
            }
        }
        answer(asking.events, ending);
        self.publish();
    }

    fn tell_of_place(&mut self, found: &Found) {
        match (self.placing.takeover.aside().cloned(), &self.placing.asking) {
            (Some(hindrance), None) => {
                let message = format!("the gateway does not stand in Ollama's place: {hindrance}");
                self.alert(Alert::new(AlertKind::GatewayAside, message, "stablehand gateway status"));
            }
            (Some(_), Some(_)) => {}
            (None, _) => self.alerts.over(AlertKind::GatewayAside),
        }
        if !found.sick {
            self.alerts.over(AlertKind::GatewayRestarted);
        }
    }

    /// Whoever asked for a place hears of the restart that it takes.
    pub(super) fn asked_through_place(&self, wish: WishId) -> Option<&mpsc::Sender<protocol::Event>> {
        match (&self.placing.acting, &self.placing.asking) {
            (Some(Acting::Restart(id)), Some(asking)) if *id == wish => Some(&asking.events),
            (_, _) => None,
        }
    }
}

/// One task tells the gateway, so that a release never overtakes its hold.
fn tell_of_holds(link: Link) -> mpsc::UnboundedSender<Option<SocketAddr>> {
    let (holds, mut inbox) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Some(goes_on_at) = inbox.recv().await {
            let told = match goes_on_at {
                None => link.hold(HELD_AT_MOST).await,
                Some(address) => {
                    // One that does not run needs no address.
                    let _ = link.move_to(address).await;
                    link.release().await
                }
            };
            if let Err(error) = told {
                tracing::warn!(%error, "the gateway was not told");
            }
        }
    });
    holds
}

/// The gateway for a snapshot.
pub(super) fn shown(placing: &Placing, configuration: &Configuration, seen: &Seen) -> protocol::Gateway {
    let front = &seen.front;
    let mode = placing.takeover.mode();
    let at = listening_at(front.home, configuration);
    let (state, words) = match (mode, front.door, front.place) {
        (Mode::Off, Door::Shut, Place::Home | Place::Nowhere) => ("off", "the gateway is off".to_owned()),
        (_, Door::Unknown, _) => ("unknown", "it could not be told what the gateway does".to_owned()),
        (_, Door::Leaving, _) => ("leaving", "the gateway takes nothing new and answers what waits in it".to_owned()),
        (Mode::Beside, Door::Beside, Place::Home | Place::Nowhere) => {
            ("beside", format!("the gateway stands beside Ollama, at {at}"))
        }
        (Mode::Takeover, Door::Home, Place::Moved | Place::Nowhere) if placing.takeover.aside().is_none() => (
            "in-place",
            format!("the gateway stands in Ollama's place at {at}; Ollama is behind it at {}", seen.address),
        ),
        (Mode::Off | Mode::Beside | Mode::Takeover, _, _) => match placing.takeover.aside() {
            Some(hindrance) if !placing.is_acting() => {
                ("aside", format!("the gateway does not stand in Ollama's place: {hindrance}"))
            }
            Some(_) | None => ("changing", format!("the gateway is on its way to {}", mode.word())),
        },
    };
    let view = placing.view.borrow();
    let listens = matches!(front.door, Door::Home | Door::Beside);
    protocol::Gateway {
        mode: mode.word().to_owned(),
        state: state.to_owned(),
        words,
        listen: listens.then(|| format!("http://{at}")),
        upstream: listens.then(|| format!("http://{}", seen.address)),
        healthy: match &view.healthy {
            Known::Is(healthy) => protocol::Known::Is(*healthy),
            Known::Unknown(reason) => protocol::Known::unknown(reason.clone()),
        },
        pid: front.gateway,
        aside: placing.aside(),
    }
}

fn restarts(act: &Act) -> bool {
    match act {
        Act::Move | Act::MoveBack => true,
        Act::Open | Act::Leave | Act::Shut => false,
    }
}

/// What would be done, in words.
fn steps(mode: Mode, acts: &[Act], place: &GatewayPlace, seen: &Seen, goal: &Goal) -> Vec<String> {
    let home = seen.front.home;
    let mut words = Vec::new();
    let moved = place.upstream.map(|upstream| upstream.port()).filter(|_| mode == Mode::Takeover);
    if !acts.is_empty() {
        words.push(format!("write mode = \"{}\" into [gateway] of the configuration", mode.word()));
    }
    for act in acts {
        words.push(act.to_string());
        match act {
            Act::Move | Act::MoveBack => {
                let seat = Seat { moved, ..seen.look.seat };
                if let Ok(plan) = plan(goal.clone(), &seen.look.ownership, seat, false) {
                    words.extend(plan.steps.iter().map(|step| format!("  {step}")));
                }
            }
            Act::Open => {
                let listen: Vec<String> = place.listen.iter().map(ToString::to_string).collect();
                let behind = place.upstream.map_or_else(|| format!("port {home}"), |upstream| upstream.to_string());
                words.push(format!("  it listens on {}, in front of Ollama at {behind}", listen.join(", ")));
            }
            Act::Leave | Act::Shut => {}
        }
    }
    words
}

/// The addresses that the server has, for the gateway to have them in its place.
fn addresses(front: &Front) -> Vec<SocketAddr> {
    let mut addresses: Vec<SocketAddr> = front
        .addresses
        .iter()
        .filter_map(|shown| match shown.strip_prefix("*:") {
            Some(port) => Some(SocketAddr::from((Ipv6Addr::UNSPECIFIED, port.parse().ok()?))),
            None => shown.parse().ok(),
        })
        .collect();
    addresses.sort_unstable();
    addresses.dedup();
    addresses
}

/// Whether nobody has this port, at loopback or everywhere. Nobody is listened to for that: macOS asks a person before a
/// program listens on every address.
fn is_free(port: u16) -> bool {
    let may_bind = |ip: IpAddr| {
        let socket = if ip.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() };
        let bound = socket.and_then(|socket| {
            // What has just left may still have connections that end.
            socket.set_reuseaddr(true)?;
            socket.bind(SocketAddr::new(ip, port))
        });
        // A machine without IPv6 has nobody there.
        bound.map_or_else(|error| ip.is_ipv6() && error.kind() != std::io::ErrorKind::AddrInUse, |()| true)
    };
    // macOS lets one have loopback while another has every address (`bsd/netinet/in_pcb.c`).
    [Ipv4Addr::LOCALHOST.into(), Ipv4Addr::UNSPECIFIED.into(), Ipv6Addr::UNSPECIFIED.into()].into_iter().all(may_bind)
}

async fn open(machine: &Machine, front: SocketAddr) -> Result<String, Failure> {
    let program = std::env::current_exe().map_err(|error| {
        Failure::new("no-own-path", format!("this program cannot tell where it lies: {error}"), "install it again")
    })?;
    let note = gateway_service::start(machine, &program).await.map_err(|failure| failure_of(&failure))?;
    // An address that only others reach cannot be asked from here.
    let Ok(client) = Client::new(front) else { return Ok(note) };
    let deadline = Instant::now() + OPENS_WITHIN;
    loop {
        let said = client.version(OPENS_WITHIN).await;
        match said {
            Ok(version) => return Ok(format!("{note}; Ollama answers through it as {version}")),
            Err(error) if Instant::now() >= deadline => {
                return Err(Failure::new(
                    "gateway-not-opened",
                    format!("the gateway was started and no request came through it: {error}"),
                    format!("see {}", gateway_service::log_file(machine).display()),
                ));
            }
            Err(_) => {
                if gateway_service::pid(machine).await == Known::Is(None) {
                    return Err(Failure::new(
                        "gateway-ended",
                        "the gateway was started and ended at once",
                        format!("see {}", gateway_service::log_file(machine).display()),
                    ));
                }
                tokio::time::sleep(POLL).await;
            }
        }
    }
}

/// Without an answer on its socket it is ended: its port has to become free.
async fn leave(machine: &Machine, link: &Link) -> Result<String, Failure> {
    match link.leave().await {
        Ok(()) => Ok(String::new()),
        Err(error) => {
            tracing::warn!(%error, "the gateway cannot be told to leave; it is ended");
            gateway_service::stop(machine).await.map_err(|failure| failure_of(&failure))
        }
    }
}

/// What waits in it is sent to Ollama where that is now; with nothing in it, it ends by itself.
async fn shut(machine: &Machine, link: &Link, behind: SocketAddr) -> Result<String, Failure> {
    if let Err(error) = link.move_to(behind).await {
        tracing::info!(%error, "the gateway is ended");
        return gateway_service::stop(machine).await.map_err(|failure| failure_of(&failure));
    }
    match link.queue().await {
        Ok(queue) if queue.waiting.len() + queue.running.len() > 0 => {
            Ok(format!("{} wait and {} run in it still", queue.waiting.len(), queue.running.len()))
        }
        // Connections that are kept open without a request need not be waited for.
        Ok(_) | Err(_) => gateway_service::stop(machine).await.map_err(|failure| failure_of(&failure)),
    }
}

fn owner_word(ownership: &Ownership) -> &'static str {
    match ownership {
        Ownership::One { owner, .. } | Ownership::Contested { holder: owner, .. } => owner.word(),
        Ownership::Foreign(_) | Ownership::Absent | Ownership::Unknown(_) => "unknown",
    }
}

fn in_words(hindrance: &Hindrance, unchanged: &str) -> Failure {
    Failure::new(hindrance.code(), format!("{hindrance}{unchanged}"), hindrance.hint())
}

fn answer(events: mpsc::Sender<protocol::Event>, ending: Ending) {
    tokio::spawn(async move {
        let _ = events.send(protocol::Event::Result(Box::new(ending))).await;
    });
}
