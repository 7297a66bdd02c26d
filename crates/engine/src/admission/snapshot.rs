//! The queue as it stands, for people.

use super::{Admission, Costs, Lane, Permit, Scope, TicketId, Why};
use crate::time::Awake;
use std::sync::Arc;
use std::time::Duration;

/// A copy of the queue.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Snapshot {
    /// Who waits, model by model in the order of their turns.
    pub waiting: Vec<WaitingNow>,
    /// Who holds a permit, the oldest first.
    pub running: Vec<RunningNow>,
    /// The models that are in memory, asked for, or measured; by name.
    pub models: Vec<ModelNow>,
    /// What holds the queue.
    pub held: Vec<HeldNow>,
    /// Models that took another one's place in memory so far.
    pub switches: u64,
}

/// A request that waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitingNow {
    /// Its number.
    pub ticket: TicketId,
    /// What it wants.
    pub model: Arc<str>,
    /// Whose it is.
    pub client: Arc<str>,
    /// Its lane.
    pub lane: Lane,
    /// How long it waits.
    pub waited: Duration,
    /// Its place in the order of turns among those who wait for its model, from 1.
    pub position: usize,
    /// When it can expect its turn from now on, where service times have been measured.
    pub expected: Option<Duration>,
}

/// A request that holds a permit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunningNow {
    /// Its number.
    pub ticket: TicketId,
    /// Its permit.
    pub permit: Permit,
    /// What it uses.
    pub model: Arc<str>,
    /// Whose it is.
    pub client: Arc<str>,
    /// Its lane.
    pub lane: Lane,
    /// How long it had waited.
    pub waited: Duration,
    /// How long it has held its permit.
    pub running: Duration,
}

/// A model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelNow {
    /// Its name.
    pub model: Arc<str>,
    /// Whether it is in memory, or is being loaded, as far as is known.
    pub loaded: bool,
    /// Slots that its runner was said to have.
    pub slots: Option<u32>,
    /// Requests of ours that may run at once now: slots, the settings and what goes around considered.
    pub at_most: u32,
    /// Permits held for it.
    pub running: u32,
    /// Slots busy with what did not come through here.
    pub around: u32,
    /// Requests that wait for it.
    pub waiting: usize,
    /// What it costs.
    pub costs: Costs,
}

/// A hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldNow {
    /// Its reason.
    pub why: Why,
    /// Whom it holds.
    pub scope: Scope,
    /// When it ends by itself.
    pub until: Option<Awake>,
}

impl Admission {
    /// The queue as it stands.
    pub fn snapshot(&self, now: Awake) -> Snapshot {
        let mut models: Vec<(Arc<str>, usize)> =
            self.models.iter().map(|(number, _)| (self.models.name(number), number)).collect();
        models.sort();
        let waiting = models.iter().flat_map(|(name, number)| self.waiting_for(now, name, *number)).collect();
        let running = self.permits.values().filter_map(|id| self.running_now(now, *id)).collect();
        let models = models.into_iter().map(|(name, number)| self.model_now(name, number)).collect();
        let held = self.holds.iter();
        let held = held.map(|((why, scope), until)| HeldNow { why: *why, scope: scope.clone(), until: *until });
        Snapshot { waiting, running, models, held: held.collect(), switches: self.switches }
    }

    /// Who waits for one model, in the order of turns as it would be if nobody came, went or aged.
    fn waiting_for(&self, now: Awake, name: &Arc<str>, number: usize) -> Vec<WaitingNow> {
        let model = &self.models[number];
        let each = model.service.get();
        let order = model.lanes.iter().flat_map(|lane| lane.in_order(each.unwrap_or(self.limits.quantum)));
        let told = order.enumerate().filter_map(|(ahead, (client, ticket))| {
            let request = self.requests.get(&ticket)?;
            let service = each.map(|each| each.saturating_mul(u32::try_from(ahead).unwrap_or(u32::MAX)));
            Some(WaitingNow {
                ticket,
                model: name.clone(),
                client: self.clients.name(client),
                lane: request.lane,
                waited: now.since(request.arrived),
                position: ahead + 1,
                expected: service.and_then(|service| self.expected(now, number, service)),
            })
        });
        told.collect()
    }

    fn running_now(&self, now: Awake, id: TicketId) -> Option<RunningNow> {
        let request = self.requests.get(&id)?;
        let running = request.running?;
        Some(RunningNow {
            ticket: id,
            permit: running.permit,
            model: self.models.name(request.model),
            client: self.clients.name(request.client),
            lane: request.lane,
            waited: running.since.since(request.arrived),
            running: now.since(running.since),
        })
    }

    fn model_now(&self, name: Arc<str>, number: usize) -> ModelNow {
        let model = &self.models[number];
        ModelNow {
            model: name,
            loaded: model.is_in_memory(),
            slots: model.slots,
            at_most: self.at_most(number),
            running: model.running,
            around: model.around,
            waiting: model.waiting(),
            costs: model.costs(),
        }
    }
}
