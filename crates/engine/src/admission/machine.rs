//! The queue: strict order of arrival per model, within slots and bounds.

use super::estimate::Mean;
use super::{
    Costs, Effect, End, Event, HeldNow, Limits, ModelNow, Permit, Refusal, RunningNow, Scope, Snapshot, Start, Ticket,
    TicketId, WaitingNow, Why,
};
use crate::time::Awake;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// The queue of the gateway.
#[derive(Clone, Debug)]
pub struct Admission {
    limits: Limits,
    waiting: BTreeMap<TicketId, Waiter>,
    running: BTreeMap<Permit, Runner>,
    models: BTreeMap<Arc<str>, Model>,
    holds: BTreeMap<(Why, Scope), Option<Awake>>,
    permits: u64,
}

#[derive(Clone, Debug)]
struct Waiter {
    ticket: Ticket,
    arrived: Awake,
    gives_up: Option<Awake>,
}

#[derive(Clone, Debug)]
struct Runner {
    waiter: Waiter,
    admitted: Awake,
}

#[derive(Clone, Debug, Default)]
struct Model {
    loaded: bool,
    slots: Option<u32>,
    around: u32,
    running: u32,
    service: Mean,
    load: Mean,
}

impl Admission {
    /// An empty queue.
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            waiting: BTreeMap::new(),
            running: BTreeMap::new(),
            models: BTreeMap::new(),
            holds: BTreeMap::new(),
            permits: 0,
        }
    }

    /// Takes in what has happened; what is to be done, in this order.
    pub fn step(&mut self, now: Awake, event: Event) -> Vec<Effect> {
        let mut effects = Vec::new();
        let mut arrived = None;
        match event {
            Event::Arrived(ticket) => {
                if !self.waiting.contains_key(&ticket.id) && !self.runs(ticket.id) {
                    arrived = Some(ticket.id);
                    let patience = ticket.patience.or(self.limits.of_client(&ticket.client).patience);
                    let gives_up = patience.map(|patience| now + patience);
                    self.waiting.insert(ticket.id, Waiter { ticket, arrived: now, gives_up });
                }
            }
            Event::Ended { permit, end } => {
                if let Some(runner) = self.give_back(permit)
                    && let End::Served { load } = end
                {
                    let model = self.models.entry(runner.waiter.ticket.model).or_default();
                    let load = load.unwrap_or_default();
                    model.service.learn(now.since(runner.admitted).saturating_sub(load));
                    if !load.is_zero() {
                        model.load.learn(load);
                    }
                }
            }
            Event::Left(ticket) => {
                self.waiting.remove(&ticket);
                let held = self.running.iter().find(|(_, runner)| runner.waiter.ticket.id == ticket);
                if let Some(permit) = held.map(|(permit, _)| *permit) {
                    self.give_back(permit);
                }
            }
            Event::PutBack(permit) => {
                if let Some(runner) = self.give_back(permit) {
                    self.waiting.insert(runner.waiter.ticket.id, runner.waiter);
                }
            }
            Event::Drop(ticket) => {
                if self.waiting.remove(&ticket).is_some() {
                    effects.push(Effect::Refuse { ticket, refusal: Refusal::Dropped });
                }
            }
            Event::Move { ticket, lane } => {
                if let Some(waiter) = self.waiting.get_mut(&ticket) {
                    waiter.ticket.lane = lane;
                }
            }
            Event::Hold { why, scope, until } => {
                let begun = self.holds.insert((why, scope.clone()), until).is_none();
                if begun && scope == Scope::All {
                    effects.push(Effect::Held(why));
                }
            }
            Event::Release { why, scope } => self.release(why, scope, false, &mut effects),
            Event::Slots { model, slots } => self.models.entry(model).or_default().slots = slots,
            Event::Loaded { models, asked: _ } => {
                self.models.values_mut().for_each(|model| model.loaded = false);
                for model in models {
                    self.models.entry(model).or_default().loaded = true;
                }
            }
            Event::Around { model, busy } => self.models.entry(model).or_default().around = busy,
            Event::Learnt { model, costs } => {
                let model = self.models.entry(model).or_default();
                costs.service.into_iter().for_each(|span| model.service.learn(span));
                costs.load.into_iter().for_each(|span| model.load.learn(span));
            }
            Event::Reloaded(limits) => self.limits = *limits,
            Event::Tick => {}
        }
        self.expire(now, &mut effects);
        self.admit(now, &mut effects);
        if let Some(ticket) = arrived {
            self.bound(ticket, &mut effects);
        }
        effects
    }

    /// When to call [`Self::step`] with [`Event::Tick`], and what for.
    pub fn deadline(&self) -> Option<(Awake, &'static str)> {
        let holds = self.holds.values().flatten().map(|until| (*until, "a hold ends"));
        let patience = self.waiting.values().filter_map(|waiter| waiter.gives_up).map(|at| (at, "a client gives up"));
        holds.chain(patience).min()
    }

    /// What was measured, by model: to be kept over a restart and given back with [`Event::Learnt`].
    pub fn costs(&self) -> Vec<(Arc<str>, Costs)> {
        self.models
            .iter()
            .map(|(name, model)| (name.clone(), Costs { service: model.service.get(), load: model.load.get() }))
            .filter(|(_, costs)| *costs != Costs::default())
            .collect()
    }

    /// The queue as it stands.
    pub fn snapshot(&self, now: Awake) -> Snapshot {
        let mut places: BTreeMap<&str, usize> = BTreeMap::new();
        let waiting = self
            .waiting
            .values()
            .map(|waiter| {
                let place = places.entry(&waiter.ticket.model).or_default();
                *place += 1;
                WaitingNow {
                    ticket: waiter.ticket.id,
                    model: waiter.ticket.model.clone(),
                    client: waiter.ticket.client.clone(),
                    lane: waiter.ticket.lane,
                    waited: now.since(waiter.arrived),
                    position: *place,
                    expected: None,
                }
            })
            .collect();
        let running = self
            .running
            .iter()
            .map(|(permit, runner)| RunningNow {
                ticket: runner.waiter.ticket.id,
                permit: *permit,
                model: runner.waiter.ticket.model.clone(),
                client: runner.waiter.ticket.client.clone(),
                lane: runner.waiter.ticket.lane,
                waited: runner.admitted.since(runner.waiter.arrived),
                running: now.since(runner.admitted),
            })
            .collect();
        let models = self
            .models
            .iter()
            .map(|(name, model)| ModelNow {
                model: name.clone(),
                loaded: model.loaded,
                slots: model.slots,
                at_most: self.at_most(name),
                running: model.running,
                around: model.around,
                waiting: self.waits_for(name),
                costs: Costs { service: model.service.get(), load: model.load.get() },
            })
            .collect();
        let held = self
            .holds
            .iter()
            .map(|((why, scope), until)| HeldNow { why: *why, scope: scope.clone(), until: *until })
            .collect();
        Snapshot { waiting, running, models, held, switches: 0 }
    }

    fn runs(&self, ticket: TicketId) -> bool {
        self.running.values().any(|runner| runner.waiter.ticket.id == ticket)
    }

    fn waits_for(&self, model: &str) -> usize {
        self.waiting.values().filter(|waiter| &*waiter.ticket.model == model).count()
    }

    fn at_most(&self, model: &str) -> u32 {
        let state = self.models.get(model);
        let slots = state.and_then(|state| state.slots).unwrap_or(self.limits.slots_while_unknown);
        let set = self.limits.of_model(model).running.unwrap_or(u32::MAX);
        slots.min(set).saturating_sub(state.map_or(0, |state| state.around))
    }

    fn held(&self, model: &str) -> bool {
        self.holds.keys().any(|(_, scope)| match scope {
            Scope::All => true,
            Scope::Model(held) => &**held == model,
        })
    }

    fn give_back(&mut self, permit: Permit) -> Option<Runner> {
        let runner = self.running.remove(&permit)?;
        if let Some(model) = self.models.get_mut(&runner.waiter.ticket.model) {
            model.running = model.running.saturating_sub(1);
        }
        Some(runner)
    }

    fn release(&mut self, why: Why, scope: Scope, expired: bool, effects: &mut Vec<Effect>) {
        let all = scope == Scope::All;
        if self.holds.remove(&(why, scope)).is_some() && all {
            effects.push(Effect::Released { why, expired });
        }
    }

    fn expire(&mut self, now: Awake, effects: &mut Vec<Effect>) {
        let over = |until: &Option<Awake>| until.is_some_and(|until| until <= now);
        let ended: Vec<_> = self.holds.iter().filter(|(_, until)| over(until)).map(|(hold, _)| hold.clone()).collect();
        for (why, scope) in ended {
            self.release(why, scope, true, effects);
        }
        self.waiting.retain(|id, waiter| {
            let stays = !over(&waiter.gives_up);
            if !stays {
                let refusal = Refusal::WaitedOut { waited: now.since(waiter.arrived) };
                effects.push(Effect::Refuse { ticket: *id, refusal });
            }
            stays
        });
    }

    fn admit(&mut self, now: Awake, effects: &mut Vec<Effect>) {
        for id in self.waiting.keys().copied().collect::<Vec<_>>() {
            let Some(model) = self.waiting.get(&id).map(|waiter| waiter.ticket.model.clone()) else { continue };
            let running = self.models.get(&model).map_or(0, |state| state.running);
            let others = self.models.iter().filter(|(name, state)| **name != model && state.running > 0).count();
            let room = others < self.limits.loaded_models.max(1);
            if running >= self.at_most(&model) || !room || self.held(&model) {
                continue;
            }
            let Some(waiter) = self.waiting.remove(&id) else { continue };
            self.permits += 1;
            let permit = Permit(self.permits);
            let state = self.models.entry(model).or_default();
            state.running += 1;
            let start = if state.loaded || state.running > 1 { Start::Warm } else { Start::Load };
            effects.push(Effect::Admit { ticket: id, permit, waited: now.since(waiter.arrived), start });
            self.running.insert(permit, Runner { waiter, admitted: now });
        }
    }

    /// One that has just come and was not admitted: waits, or goes.
    fn bound(&mut self, id: TicketId, effects: &mut Vec<Effect>) {
        let Some(waiter) = self.waiting.get(&id) else { return };
        let model_at_most = self.limits.of_model(&waiter.ticket.model).waiting;
        let client_at_most = self.limits.of_client(&waiter.ticket.client).waiting;
        let position = self.waits_for(&waiter.ticket.model);
        let of_client = self.waiting.values().filter(|other| other.ticket.client == waiter.ticket.client).count();
        let refusal = if position > model_at_most {
            Some(Refusal::ModelFull { at_most: model_at_most })
        } else if self.waiting.len() > self.limits.waiting {
            Some(Refusal::Full { at_most: self.limits.waiting })
        } else if of_client > client_at_most {
            Some(Refusal::ClientFull { at_most: client_at_most })
        } else {
            None
        };
        effects.push(match refusal {
            None => Effect::Wait { ticket: id, position, expected: None::<Duration> },
            Some(refusal) => {
                self.waiting.remove(&id);
                Effect::Refuse { ticket: id, refusal }
            }
        });
    }
}
