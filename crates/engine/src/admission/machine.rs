//! The queue itself: what each event changes. Who is next is decided in [`super::seats`] and [`super::turns`].

use super::estimate::Mean;
use super::seats::{Seats, Standing};
use super::table::Table;
use super::turns::{Arrival, Opened, Turns};
use super::{Costs, Effect, End, Event, Lane, Limits, Permit, Refusal, Scope, Start, Ticket, TicketId, Why};
use crate::time::Awake;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// The queue of the gateway.
#[derive(Clone, Debug)]
pub struct Admission {
    pub(super) limits: Limits,
    pub(super) models: Table<Model>,
    pub(super) clients: Table<Client>,
    pub(super) requests: BTreeMap<TicketId, Request>,
    pub(super) permits: BTreeMap<Permit, TicketId>,
    pub(super) holds: BTreeMap<(Why, Scope), Option<Awake>>,
    /// Who gives up when.
    patience: BTreeSet<(Awake, TicketId)>,
    pub(super) seats: Seats,
    /// Since when a model without a place in memory is asked for.
    pub(super) contended_since: Option<Awake>,
    /// Until when an idle model is kept for a request that may follow.
    pub(super) lingers_until: Option<Awake>,
    pub(super) waiting: usize,
    pub(super) switches: u64,
    /// Over all models.
    pub(super) service: Mean,
    pub(super) load: Mean,
    arrivals: Arrival,
    issued: u64,
}

/// A model that was asked for or seen.
#[derive(Clone, Debug, Default)]
pub(super) struct Model {
    pub(super) lanes: [Turns; Lane::ALL.len()],
    pub(super) memory: Memory,
    pub(super) slots: Option<u32>,
    pub(super) running: u32,
    pub(super) around: u32,
    /// When that was told.
    pub(super) around_told: Awake,
    /// Its limit.
    pub(super) at_most: Option<u32>,
    /// Holds of this model alone.
    pub(super) holds: u32,
    /// Since when it is in memory, its loading not counted.
    pub(super) seated_since: Awake,
    /// When it last answered.
    pub(super) answered: Option<Awake>,
    /// Since when it has been asked for without anybody's having had a turn.
    pub(super) passed_over_since: Option<Awake>,
    pub(super) service: Mean,
    pub(super) load: Mean,
    /// As the seats know it.
    pub(super) standing: Standing,
}

/// Whether a model is in the server's memory, as far as is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Memory {
    /// It is not.
    #[default]
    Absent,
    /// It is expected to have gone for another one.
    Gone {
        /// Since then.
        since: Awake,
    },
    /// A request that makes the server load it was let through.
    Loading {
        /// Then.
        since: Awake,
    },
    /// It is.
    Present,
}

/// A client that waits or runs.
#[derive(Clone, Debug, Default)]
pub(super) struct Client {
    pub(super) waiting: usize,
    pub(super) running: u32,
    /// Its limit.
    at_most: Option<u32>,
    /// It holds as many permits as it may.
    parked: bool,
    /// Service that it was charged for, by lane.
    served_us: [u64; Lane::ALL.len()],
    /// Where it has an account.
    accounts: BTreeSet<(usize, Lane)>,
}

/// A request that waits or runs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Request {
    pub(super) model: usize,
    pub(super) client: usize,
    pub(super) lane: Lane,
    arrival: Arrival,
    pub(super) arrived: Awake,
    pub(super) gives_up: Option<Awake>,
    pub(super) running: Option<Running>,
}

/// What a running request holds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Running {
    pub(super) permit: Permit,
    pub(super) since: Awake,
    charged: Duration,
    found: Found,
}

/// The state in which an admitted request finds its model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Found {
    Present,
    /// Another request has it loaded.
    Loading,
    /// It has the model loaded.
    Absent,
}

impl Model {
    pub(super) fn is_busy(&self) -> bool {
        self.running > 0 || self.around > 0
    }

    pub(super) fn is_in_memory(&self) -> bool {
        match self.memory {
            Memory::Absent | Memory::Gone { .. } => self.is_busy(),
            Memory::Loading { .. } | Memory::Present => true,
        }
    }

    pub(super) fn waiting(&self) -> usize {
        self.lanes.iter().map(Turns::waiting).sum()
    }

    /// The best lane in which somebody may have a turn.
    pub(super) fn best_lane(&self) -> Option<Lane> {
        Lane::ALL.into_iter().find(|lane| !self.lanes[*lane as usize].is_empty())
    }

    pub(super) fn costs(&self) -> Costs {
        Costs { service: self.service.get(), load: self.load.get() }
    }

    /// Brings the times of waiting in line with who waits.
    fn note_who_waits(&mut self, now: Awake) {
        for lane in &mut self.lanes {
            let since = lane.passed_over_since.unwrap_or(now);
            lane.passed_over_since = (!lane.is_empty()).then_some(since);
        }
        let since = self.passed_over_since.unwrap_or(now);
        self.passed_over_since = self.best_lane().is_some().then_some(since);
    }

    fn is_of_use(&self) -> bool {
        self.is_in_memory()
            || self.waiting() > 0
            || self.slots.is_some()
            || self.holds > 0
            || self.costs() != Costs::default()
    }
}

impl Client {
    fn is_at_limit(&self) -> bool {
        self.at_most.is_some_and(|at_most| self.running >= at_most)
    }
}

impl Admission {
    /// An empty queue.
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            models: Table::new(),
            clients: Table::new(),
            requests: BTreeMap::new(),
            permits: BTreeMap::new(),
            holds: BTreeMap::new(),
            patience: BTreeSet::new(),
            seats: Seats::default(),
            contended_since: None,
            lingers_until: None,
            waiting: 0,
            switches: 0,
            service: Mean::default(),
            load: Mean::default(),
            arrivals: 0,
            issued: 0,
        }
    }

    /// Takes in what has happened; what is to be done, in this order.
    pub fn step(&mut self, now: Awake, event: Event) -> Vec<Effect> {
        let mut effects = Vec::new();
        if let Event::Left(ticket) = event {
            // Whoever has left is told nothing any more, not even that it has waited long enough.
            self.forget_waiting(now, ticket);
        }
        self.give_up(now, &mut effects);
        let mut arrived = None;
        match event {
            Event::Arrived(ticket) => arrived = self.arrive(now, &ticket),
            Event::Ended { permit, end } => {
                if let Some(ticket) = self.permits.get(&permit).copied() {
                    self.end(now, ticket, Some(end));
                }
            }
            Event::Left(ticket) => self.end(now, ticket, None),
            Event::PutBack(permit) => self.put_back(now, permit),
            Event::Drop(ticket) => self.refuse(now, ticket, Refusal::Dropped, &mut effects),
            Event::Move { ticket, lane } => {
                if self.change_lane(now, ticket, lane) {
                    effects.push(Effect::Moved { ticket });
                }
            }
            Event::Hold { why, scope, until } => self.hold(why, scope, until, &mut effects),
            Event::Release { why, scope } => self.release(why, scope, false, &mut effects),
            Event::Slots { model, slots } => {
                let model = self.model(&model);
                self.models[model].slots = slots;
                self.tidy_model(model);
            }
            Event::Loaded { models, asked } => self.note_loaded(now, &models, asked),
            Event::Around { model, busy } => self.note_around(now, &model, busy),
            Event::Learnt { model, costs } => {
                let model = self.model(&model);
                self.learn(model, costs);
                self.tidy_model(model);
            }
            Event::Reloaded(limits) => self.reload(now, *limits),
            Event::Tick => {}
        }
        self.end_holds(now, &mut effects);
        self.settle(now, &mut effects);
        if let Some(ticket) = arrived {
            self.answer_waiting(now, ticket, &mut effects);
        }
        effects
    }

    /// When to call [`Self::step`] with [`Event::Tick`], and what for.
    pub fn deadline(&self) -> Option<(Awake, &'static str)> {
        let holds = self.holds.values().flatten().map(|until| (*until, "a hold ends"));
        let patience = self.patience.first().map(|(at, _)| (*at, "a client gives up"));
        let lingers = self.lingers_until.map(|until| (until, "an idle model gives way"));
        holds.chain(patience).chain(lingers).min()
    }

    /// What was measured, by model: to be kept over a restart and given back with [`Event::Learnt`].
    pub fn costs(&self) -> BTreeMap<Arc<str>, Costs> {
        let costs = self.models.iter().map(|(number, model)| (self.models.name(number), model.costs()));
        costs.filter(|(_, costs)| *costs != Costs::default()).collect()
    }

    fn model(&mut self, name: &Arc<str>) -> usize {
        let (number, fresh) = self.models.number(name);
        if fresh {
            self.models[number].at_most = self.limits.of_model(name).running;
            self.models[number].lanes.iter_mut().for_each(|lane| lane.set_quantum(self.limits.quantum));
        }
        number
    }

    fn client(&mut self, name: &Arc<str>) -> usize {
        let (number, fresh) = self.clients.number(name);
        if fresh {
            self.clients[number].at_most = self.limits.of_client(name).running;
            self.clients[number].parked = self.clients[number].is_at_limit();
        }
        number
    }

    fn arrive(&mut self, now: Awake, ticket: &Ticket) -> Option<TicketId> {
        if self.requests.contains_key(&ticket.id) {
            return None;
        }
        let patience = ticket.patience.or(self.limits.of_client(&ticket.client).patience);
        let request = Request {
            model: self.model(&ticket.model),
            client: self.client(&ticket.client),
            lane: ticket.lane,
            arrival: self.arrivals,
            arrived: now,
            gives_up: patience.map(|patience| now + patience),
            running: None,
        };
        self.arrivals += 1;
        self.queue(now, ticket.id, request);
        Some(ticket.id)
    }

    /// Puts a request among those who wait.
    fn queue(&mut self, now: Awake, id: TicketId, request: Request) {
        let Request { model, client, lane, arrival, gives_up, .. } = request;
        let Client { parked, served_us, .. } = self.clients[client];
        let opened =
            self.models[model].lanes[lane as usize].push(client, arrival, id, parked, served_us[lane as usize]);
        if opened == Opened::Account {
            self.clients[client].accounts.insert((model, lane));
        }
        self.waiting += 1;
        self.clients[client].waiting += 1;
        if let Some(at) = gives_up {
            self.patience.insert((at, id));
        }
        self.requests.insert(id, request);
        self.note(now, model);
    }

    /// Takes a request from among those who wait. Its account is closed by whoever is done with the request.
    fn unqueue(&mut self, now: Awake, id: TicketId) -> Option<Request> {
        let request = self.requests.get(&id).copied().filter(|request| request.running.is_none())?;
        self.requests.remove(&id);
        let Request { model, client, lane, arrival, gives_up, .. } = request;
        self.models[model].lanes[lane as usize].remove(client, arrival);
        self.waiting -= 1;
        self.clients[client].waiting -= 1;
        if let Some(at) = gives_up {
            self.patience.remove(&(at, id));
        }
        self.note(now, model);
        Some(request)
    }

    fn forget_waiting(&mut self, now: Awake, id: TicketId) {
        if let Some(request) = self.unqueue(now, id) {
            self.tidy(request.model, request.lane);
        }
    }

    fn refuse(&mut self, now: Awake, id: TicketId, refusal: Refusal, effects: &mut Vec<Effect>) {
        if let Some(request) = self.unqueue(now, id) {
            self.tidy(request.model, request.lane);
            effects.push(Effect::Refuse { ticket: id, refusal });
        }
    }

    /// Whether it waits there now.
    fn change_lane(&mut self, now: Awake, id: TicketId, lane: Lane) -> bool {
        let Some(waits) = self.requests.get(&id).filter(|request| request.running.is_none()) else { return false };
        if waits.lane == lane {
            return true;
        }
        let Some(request) = self.unqueue(now, id) else { return false };
        self.queue(now, id, Request { lane, ..request });
        self.tidy(request.model, request.lane);
        true
    }

    /// Gives a permit to whoever of this model is next.
    pub(super) fn admit(&mut self, now: Awake, number: usize, from: Option<usize>, effects: &mut Vec<Effect>) {
        let model = &mut self.models[number];
        let Some(lane) = super::seats::next_lane(model, self.limits.ageing, now) else { return };
        let charged = model.service.get().unwrap_or(self.limits.quantum);
        let turns = &mut model.lanes[lane as usize];
        turns.catch_up(self.limits.affinity, |client| self.clients[client].served_us[lane as usize]);
        let Some((client, id)) = turns.take(charged) else { return };
        turns.passed_over_since = None;
        model.passed_over_since = None;
        let found = match (model.is_in_memory(), model.memory) {
            (false, _) => Found::Absent,
            (true, Memory::Loading { .. }) => Found::Loading,
            (true, Memory::Absent | Memory::Gone { .. } | Memory::Present) => Found::Present,
        };
        if found == Found::Absent {
            model.memory = Memory::Loading { since: now };
            model.seated_since = now;
        }
        model.running += 1;
        let start = match (found, from) {
            (Found::Present | Found::Loading, _) => Start::Warm,
            (Found::Absent, None) => Start::Load,
            (Found::Absent, Some(other)) => {
                self.models[other].memory = Memory::Gone { since: now };
                self.note(now, other);
                self.switches += 1;
                Start::Switch { from: self.models.name(other) }
            }
        };

        self.issued += 1;
        let permit = Permit(self.issued);
        self.permits.insert(permit, id);
        self.waiting -= 1;
        self.clients[client].waiting -= 1;
        self.clients[client].running += 1;
        let Some(request) = self.requests.get_mut(&id) else { return };
        request.running = Some(Running { permit, since: now, charged, found });
        let waited = now.since(request.arrived);
        if let Some(at) = request.gives_up {
            self.patience.remove(&(at, id));
        }
        effects.push(Effect::Admit { ticket: id, permit, waited, start });
        self.park(now, client);
        self.note(now, number);
    }

    /// A running request gives its permit back; `None` when its client has gone.
    fn end(&mut self, now: Awake, id: TicketId, end: Option<End>) {
        let Some((request, running)) = self.give_back(now, id) else { return };
        let took = now.since(running.since);
        let told = match end {
            Some(End::Served { load }) => {
                let load = load.map(|load| load.min(took));
                self.learn_from(now, request.model, running, took, load);
                load
            }
            Some(End::Failed) | None => {
                self.was_not_loaded(request.model);
                None
            }
        };
        // Who causes a switch is charged for it; who merely waits while another one's model is loaded is not.
        let charge = match running.found {
            Found::Loading => took.saturating_sub(told.unwrap_or_default()),
            Found::Present | Found::Absent => took,
        };
        self.charge(request, running.charged, charge);
        self.done_with(now, request);
    }

    /// What an answered request teaches about its model.
    fn learn_from(&mut self, now: Awake, number: usize, running: Running, took: Duration, load: Option<Duration>) {
        let model = &mut self.models[number];
        let service = match (running.found, load) {
            (_, Some(load)) => Some(took.saturating_sub(load)),
            (Found::Present, None) => Some(took),
            (Found::Loading | Found::Absent, None) => None,
        };
        let load = match running.found {
            Found::Absent => load.or(model.service.get().map(|service| took.saturating_sub(service))),
            Found::Loading | Found::Present => None,
        };
        if running.found == Found::Absent {
            model.seated_since = model.seated_since.max(running.since + load.unwrap_or_default());
        }
        model.memory = Memory::Present;
        model.answered = Some(now);
        self.learn(number, Costs { service, load });
    }

    fn learn(&mut self, number: usize, costs: Costs) {
        let model = &mut self.models[number];
        if let Some(service) = costs.service {
            model.service.learn(service);
            self.service.learn(service);
        }
        if let Some(load) = costs.load {
            model.load.learn(load);
            self.load.learn(load);
        }
    }

    /// A request has ended without an answer: the server gives up loading when nobody waits for it any more.
    fn was_not_loaded(&mut self, number: usize) {
        let model = &mut self.models[number];
        match model.memory {
            Memory::Loading { .. } if model.running == 0 => model.memory = Memory::Absent,
            Memory::Loading { .. } | Memory::Absent | Memory::Gone { .. } | Memory::Present => {}
        }
    }

    fn put_back(&mut self, now: Awake, permit: Permit) {
        let Some(id) = self.permits.get(&permit).copied() else { return };
        let Some((request, running)) = self.give_back(now, id) else { return };
        self.was_not_loaded(request.model);
        self.charge(request, running.charged, Duration::ZERO);
        self.queue(now, id, Request { running: None, ..request });
        self.done_with(now, request);
    }

    fn give_back(&mut self, now: Awake, id: TicketId) -> Option<(Request, Running)> {
        let request = self.requests.get(&id).copied()?;
        let running = request.running?;
        self.requests.remove(&id);
        self.permits.remove(&running.permit);
        let model = &mut self.models[request.model];
        model.running = model.running.saturating_sub(1);
        let client = &mut self.clients[request.client];
        client.running = client.running.saturating_sub(1);
        self.park(now, request.client);
        Some((request, running))
    }

    fn charge(&mut self, request: Request, charged: Duration, took: Duration) {
        let Request { model, client, lane, .. } = request;
        let took_us = self.models[model].lanes[lane as usize].ended(client, charged, took);
        let served_us = &mut self.clients[client].served_us[lane as usize];
        *served_us = served_us.saturating_add(took_us);
    }

    fn done_with(&mut self, now: Awake, request: Request) {
        self.note(now, request.model);
        self.tidy(request.model, request.lane);
    }

    /// Forgets what is of no use, so that names that come once do not pile up.
    fn tidy(&mut self, model: usize, lane: Lane) {
        for client in self.models[model].lanes[lane as usize].close_accounts() {
            self.clients[client].accounts.remove(&(model, lane));
            if self.clients[client].accounts.is_empty() {
                self.clients.forget(client);
            }
        }
        self.tidy_model(model);
    }

    fn tidy_model(&mut self, model: usize) {
        if !self.models[model].is_of_use() {
            self.models.forget(model);
        }
    }

    /// Takes a client out of the turns while it holds as many permits as it may, and puts it in again.
    fn park(&mut self, now: Awake, client: usize) {
        let parked = self.clients[client].is_at_limit();
        if self.clients[client].parked == parked {
            return;
        }
        self.clients[client].parked = parked;
        for (model, lane) in self.clients[client].accounts.iter().copied().collect::<Vec<_>>() {
            self.models[model].lanes[lane as usize].park(client, parked);
            self.note(now, model);
        }
    }

    /// Brings the seats in line with a model of which anything has changed.
    fn note(&mut self, now: Awake, number: usize) {
        let model = &mut self.models[number];
        model.note_who_waits(now);
        let standing =
            Standing { seated: model.is_in_memory(), asked_for: model.best_lane().zip(model.passed_over_since) };
        if standing != model.standing {
            self.seats.change(number, model.standing, standing);
            model.standing = standing;
        }
    }

    fn hold(&mut self, why: Why, scope: Scope, until: Option<Awake>, effects: &mut Vec<Effect>) {
        if self.holds.insert((why, scope.clone()), until).is_some() {
            return;
        }
        match scope {
            Scope::All => effects.push(Effect::Held(why)),
            Scope::Model(name) => {
                let model = self.model(&name);
                self.models[model].holds += 1;
            }
        }
    }

    fn release(&mut self, why: Why, scope: Scope, expired: bool, effects: &mut Vec<Effect>) {
        if self.holds.remove(&(why, scope.clone())).is_none() {
            return;
        }
        match scope {
            Scope::All => effects.push(Effect::Released { why, expired }),
            Scope::Model(name) => {
                let model = self.model(&name);
                self.models[model].holds = self.models[model].holds.saturating_sub(1);
                self.tidy_model(model);
            }
        }
    }

    pub(super) fn is_all_held(&self) -> bool {
        self.holds.keys().any(|(_, scope)| *scope == Scope::All)
    }

    fn note_loaded(&mut self, now: Awake, names: &[Arc<str>], asked: Awake) {
        let seen: BTreeSet<usize> = names.iter().map(|name| self.model(name)).collect();
        for number in self.models.numbers() {
            let model = &mut self.models[number];
            model.memory = match (model.memory, seen.contains(&number)) {
                // The answer is older than what we know.
                (Memory::Gone { since }, _) if since >= asked => Memory::Gone { since },
                // Ollama lists a model that it has not done loading.
                (Memory::Loading { since }, true) => Memory::Loading { since },
                (Memory::Loading { since }, false) if since >= asked || model.running > 0 => Memory::Loading { since },
                (Memory::Present, false) if model.running > 0 => Memory::Present,
                (Memory::Absent | Memory::Gone { .. }, true) => {
                    model.seated_since = asked;
                    Memory::Present
                }
                (Memory::Present, true) => Memory::Present,
                (Memory::Absent | Memory::Gone { .. } | Memory::Loading { .. } | Memory::Present, false) => {
                    Memory::Absent
                }
            };
            // Whoever went around has gone with its runner; nobody is left who would tell.
            if !seen.contains(&number) && model.around_told <= asked {
                model.around = 0;
            }
            self.note(now, number);
            self.tidy_model(number);
        }
    }

    fn note_around(&mut self, now: Awake, name: &Arc<str>, busy: u32) {
        if busy == 0 && self.models.find(name).is_none() {
            return;
        }
        let number = self.model(name);
        let model = &mut self.models[number];
        model.around = busy;
        model.around_told = now;
        match model.memory {
            Memory::Absent | Memory::Gone { .. } if busy > 0 => model.memory = Memory::Present,
            Memory::Absent | Memory::Gone { .. } | Memory::Loading { .. } | Memory::Present => {}
        }
        self.note(now, number);
        self.tidy_model(number);
    }

    fn reload(&mut self, now: Awake, limits: Limits) {
        self.limits = limits;
        for model in self.models.numbers() {
            self.models[model].at_most = self.limits.of_model(&self.models.name(model)).running;
            self.models[model].lanes.iter_mut().for_each(|lane| lane.set_quantum(self.limits.quantum));
        }
        for client in self.clients.numbers() {
            self.clients[client].at_most = self.limits.of_client(&self.clients.name(client)).running;
            self.park(now, client);
        }
    }

    fn end_holds(&mut self, now: Awake, effects: &mut Vec<Effect>) {
        let over = |until: &Option<Awake>| until.is_some_and(|until| until <= now);
        while let Some((why, scope)) = self.holds.iter().find(|(_, until)| over(until)).map(|(hold, _)| hold.clone()) {
            self.release(why, scope, true, effects);
        }
    }

    fn give_up(&mut self, now: Awake, effects: &mut Vec<Effect>) {
        while let Some((at, ticket)) = self.patience.first().copied()
            && at <= now
        {
            let arrived = self.requests.get(&ticket).map_or(now, |request| request.arrived);
            self.refuse(now, ticket, Refusal::WaitedOut { waited: now.since(arrived) }, effects);
        }
    }

    /// What one that has just come and has no permit is told.
    fn answer_waiting(&mut self, now: Awake, id: TicketId, effects: &mut Vec<Effect>) {
        let Some(request) = self.requests.get(&id).copied().filter(|request| request.running.is_none()) else { return };
        let model_at_most = self.limits.of_model(&self.models.name(request.model)).waiting;
        let client_at_most = self.limits.of_client(&self.clients.name(request.client)).waiting;
        let expected = self.expected_at_arrival(now, request);
        let patience = request.gives_up.map(|at| at.since(now));
        let refusal = if self.models[request.model].waiting() > model_at_most {
            Refusal::ModelFull { at_most: model_at_most }
        } else if self.waiting > self.limits.waiting {
            Refusal::Full { at_most: self.limits.waiting }
        } else if self.clients[request.client].waiting > client_at_most {
            Refusal::ClientFull { at_most: client_at_most }
        } else if let (Some(expected), Some(patience)) = (expected, patience)
            && expected > patience
        {
            Refusal::TooLate { expected }
        } else if patience.is_some_and(|patience| patience.is_zero()) {
            Refusal::WaitedOut { waited: Duration::ZERO }
        } else {
            let position = self.position_at_arrival(request);
            effects.push(Effect::Wait { ticket: id, position, expected });
            return;
        };
        self.refuse(now, id, refusal, effects);
    }

    pub(super) fn position_at_arrival(&self, request: Request) -> usize {
        let lanes = &self.models[request.model].lanes;
        lanes.iter().take(request.lane as usize + 1).map(Turns::waiting).sum()
    }
}
