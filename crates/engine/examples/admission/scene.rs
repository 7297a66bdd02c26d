//! Who asks what, and what becomes of it in order of arrival.

use crate::random::Random;
use crate::world::{Comes, Fate, Request, Setup};
use stablehand_engine::admission::{Lane, Limits, Start};
use std::time::Duration;

/// Agents, by the lane of each.
pub const AGENTS: [Lane; 4] = [Lane::Interactive, Lane::Agent, Lane::Agent, Lane::Batch];
/// Requests of each agent.
pub const REQUESTS: usize = 50;
/// Models that each agent asks in turn.
pub const MODELS: u8 = 2;
/// Time to load a model.
pub const LOAD: Duration = Duration::from_secs(30);
/// The server's work on one request, evenly between the two, in seconds.
pub const SERVICE_S: (f64, f64) = (4.0, 6.0);
/// In the second scene: from an answer to the agent's next request, in seconds.
const PAUSE: Duration = Duration::from_secs(1);

/// How the agents ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scene {
    /// All requests are queued at the start, one agent's after the other's; each asks the two models in turn.
    Queued,
    /// Each agent keeps to one model and waits for an answer before it asks again.
    Conversations,
}

impl Scene {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Queued, Self::Conversations];

    /// Its title.
    pub const fn title(self) -> &'static str {
        match self {
            Self::Queued => "all queued at the start, alternating between two models",
            Self::Conversations => "each agent with one model, asking again 1 s after each answer",
        }
    }

    /// The scene with these service times.
    pub fn setup(self, seed: u64, affinity: Duration) -> Setup {
        let mut random = Random::new(seed, &[0]);
        let mut requests = Vec::new();
        for (agent, lane) in AGENTS.into_iter().enumerate() {
            for at in 0..REQUESTS {
                let (model, comes) = match self {
                    Self::Queued => (at as u8 % MODELS, Comes::At(Duration::ZERO)),
                    Self::Conversations if at == 0 => (agent as u8 % MODELS, Comes::At(Duration::ZERO)),
                    Self::Conversations => (agent as u8 % MODELS, Comes::After(requests.len() - 1, PAUSE)),
                };
                let service = Duration::from_secs_f64(random.between(SERVICE_S));
                requests.push(Request { model, client: agent as u8, lane, comes, service });
            }
        }
        let limits = Limits { affinity, ..Limits::default() };
        Setup { limits, slots: 1, load: LOAD, requests }
    }
}

/// The same server without a queue of ours: one request after the other, strictly in order of arrival.
pub fn in_order_of_arrival(setup: &Setup) -> Vec<Fate> {
    let mut fates = vec![Fate::default(); setup.requests.len()];
    let mut left: Vec<usize> = (0..setup.requests.len()).collect();
    let mut free = Duration::ZERO;
    let mut memory = None;
    while !left.is_empty() {
        let arrival = |at: usize| match setup.requests[at].comes {
            Comes::At(time) => Some(time),
            Comes::After(other, pause) => fates[other].ended.map(|ended| ended + pause),
        };
        let known = left.iter().enumerate().filter_map(|(place, at)| Some((arrival(*at)?, *at, place)));
        let Some((arrived, at, place)) = known.min() else { return fates };
        left.remove(place);
        let request = &setup.requests[at];
        let admitted = free.max(arrived);
        let (load, start) = match memory.replace(request.model) {
            None => (setup.load, Start::Load),
            Some(model) if model == request.model => (Duration::ZERO, Start::Warm),
            Some(model) => (setup.load, Start::Switch { from: crate::world::name(model) }),
        };
        free = admitted + load + request.service;
        fates[at] = Fate {
            arrived,
            admitted: Some(admitted),
            ended: Some(free),
            start: Some(start),
            expected: None,
            refused: None,
        };
    }
    fates
}
