//! A server in simulated time, with the queue in front of it.

use stablehand_engine::admission::{
    Admission, Effect, End, Event, Lane, Limits, Permit, Refusal, Start, Ticket, TicketId,
};
use stablehand_engine::time::Awake;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::sync::Arc;
use std::time::Duration;

/// One request.
#[derive(Clone, Debug)]
pub struct Request {
    /// Its model.
    pub model: u8,
    /// Who asks.
    pub client: u8,
    /// Its lane.
    pub lane: Lane,
    /// When it comes.
    pub comes: Comes,
    /// How long the server works on it once its model is in memory.
    pub service: Duration,
}

/// When a request comes.
#[derive(Clone, Copy, Debug)]
pub enum Comes {
    /// So long after the beginning.
    At(Duration),
    /// So long after the answer to an earlier one, by its place in the list.
    After(usize, Duration),
}

/// A server, and who asks what of it.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Of the queue.
    pub limits: Limits,
    /// Of every model.
    pub slots: u32,
    /// Time to load any model.
    pub load: Duration,
    /// In order of arrival, where they come at the same time.
    pub requests: Vec<Request>,
}

/// What became of one request.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Fate {
    /// When it came.
    pub arrived: Duration,
    /// What it was told to expect when it came.
    pub expected: Option<Duration>,
    /// When it was let through.
    pub admitted: Option<Duration>,
    /// When its answer ended.
    pub ended: Option<Duration>,
    /// What it found.
    pub start: Option<Start>,
    /// Why it was not let through.
    pub refused: Option<Refusal>,
}

impl Fate {
    /// How long it has waited.
    pub fn waited(&self) -> Option<Duration> {
        self.admitted.map(|at| at.saturating_sub(self.arrived))
    }
}

/// What happens next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Next {
    End { permit: Permit, load: Duration },
    Come { request: usize },
}

struct World<'a> {
    setup: &'a Setup,
    queue: Admission,
    fates: Vec<Fate>,
    agenda: BinaryHeap<Reverse<(Duration, Next)>>,
    /// Requests that come after another one's answer.
    after: BTreeMap<usize, Vec<(usize, Duration)>>,
    running: BTreeMap<Permit, usize>,
    /// From when on a model in memory is ready.
    memory: BTreeMap<u8, Duration>,
}

/// Plays until the last request has ended.
pub fn play(setup: &Setup) -> Vec<Fate> {
    let mut world = World {
        setup,
        queue: Admission::new(setup.limits.clone()),
        fates: vec![Fate::default(); setup.requests.len()],
        agenda: BinaryHeap::new(),
        after: BTreeMap::new(),
        running: BTreeMap::new(),
        memory: BTreeMap::new(),
    };
    for model in setup.requests.iter().map(|request| request.model).collect::<BTreeSet<_>>() {
        world.queue.step(Awake::default(), Event::Slots { model: name(model), slots: Some(setup.slots) });
    }
    for (at, request) in setup.requests.iter().enumerate() {
        match request.comes {
            Comes::At(time) => world.agenda.push(Reverse((time, Next::Come { request: at }))),
            Comes::After(other, pause) => world.after.entry(other).or_default().push((at, pause)),
        }
    }
    while world.advance() {}
    world.fates
}

/// The name of a model.
pub fn name(model: u8) -> Arc<str> {
    format!("{}:latest", char::from(b'A' + model)).into()
}

impl World<'_> {
    fn advance(&mut self) -> bool {
        let next = self.agenda.peek().map(|Reverse((at, _))| *at);
        let deadline = self.queue.deadline().map(|(at, _)| at.since_start());
        let Some(now) = next.into_iter().chain(deadline).min() else { return false };
        let event = if next == Some(now) {
            match self.agenda.pop() {
                Some(Reverse((_, Next::Come { request }))) => self.comes(now, request),
                Some(Reverse((_, Next::End { permit, load }))) => self.ends(now, permit, load),
                None => return false,
            }
        } else {
            Event::Tick
        };
        for effect in self.queue.step(Awake::from_start(now), event) {
            self.perform(now, effect);
        }
        true
    }

    fn comes(&mut self, now: Duration, request: usize) -> Event {
        self.fates[request].arrived = now;
        let Request { model, client, lane, .. } = self.setup.requests[request];
        let client = format!("agent-{}", client + 1).into();
        Event::Arrived(Ticket { id: TicketId(request as u64), model: name(model), client, lane, patience: None })
    }

    fn ends(&mut self, now: Duration, permit: Permit, load: Duration) -> Event {
        if let Some(request) = self.running.remove(&permit) {
            self.fates[request].ended = Some(now);
            for (follower, pause) in self.after.remove(&request).unwrap_or_default() {
                self.agenda.push(Reverse((now + pause, Next::Come { request: follower })));
            }
        }
        Event::Ended { permit, end: End::Served { load: Some(load) } }
    }

    fn perform(&mut self, now: Duration, effect: Effect) {
        match effect {
            Effect::Admit { ticket, permit, waited: _, start } => self.serve(now, ticket.0 as usize, permit, start),
            Effect::Wait { ticket, position: _, expected } => self.fates[ticket.0 as usize].expected = expected,
            Effect::Refuse { ticket, refusal } => self.fates[ticket.0 as usize].refused = Some(refusal),
            Effect::Moved { .. } | Effect::Held(_) | Effect::Released { .. } => {}
        }
    }

    /// The server does what is asked of it, and would show it if the queue were wrong about what is in memory.
    fn serve(&mut self, now: Duration, request: usize, permit: Permit, start: Start) {
        let Request { model, service, .. } = self.setup.requests[request];
        match &start {
            Start::Warm => assert!(self.memory.contains_key(&model), "{} is not in memory", name(model)),
            Start::Load => {
                assert!(self.memory.insert(model, now + self.setup.load).is_none(), "it was in memory");
            }
            Start::Switch { from } => {
                let works = self.running.values().any(|at| name(self.setup.requests[*at].model) == *from);
                assert!(!works, "{from} works and would have to go");
                let before = self.memory.len();
                self.memory.retain(|other, _| name(*other) != *from);
                assert!(self.memory.len() < before, "{from} was not in memory");
                self.memory.insert(model, now + self.setup.load);
            }
        }
        assert!(self.memory.len() <= self.setup.limits.loaded_models, "more in memory than there is room for");
        let ready = self.memory[&model].max(now);
        self.fates[request].admitted = Some(now);
        self.fates[request].start = Some(start);
        self.running.insert(permit, request);
        self.agenda.push(Reverse((ready + service, Next::End { permit, load: ready - now })));
    }
}
