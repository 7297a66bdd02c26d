//! The queue as it stands, for people.

use super::{Costs, Lane, Permit, Scope, TicketId, Why};
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
