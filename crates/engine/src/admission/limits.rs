//! What a person sets.

use super::Lane;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// The limits of the queue, as configured and as the server's proven settings give them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Requests that may wait in all.
    pub waiting: usize,
    /// Models that may be in memory at once (`OLLAMA_MAX_LOADED_MODELS` in force); 0 counts as 1.
    pub loaded_models: usize,
    /// Slots of a model whose runner has not been seen.
    pub slots_while_unknown: u32,
    /// How long requests for models in memory go before a switch to a model that others wait for.
    pub affinity: Duration,
    /// How long a lane may be passed over, and how long a model may wait for a place in memory before only those
    /// that wait longer go first.
    pub ageing: Duration,
    /// Service time that a client gets before the next client of its lane has its turn.
    pub quantum: Duration,
    /// How long an idle model that has just answered is kept for the next request of the same conversation before a
    /// switch; at most a quarter of what the switch costs, and nothing while that is not measured.
    pub linger: Duration,
    /// For models without limits of their own.
    pub model: ModelLimits,
    /// By model.
    pub models: BTreeMap<Arc<str>, ModelLimits>,
    /// For clients without limits of their own.
    pub client: ClientLimits,
    /// By client.
    pub clients: BTreeMap<Arc<str>, ClientLimits>,
}

/// Limits of one model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ModelLimits {
    /// Requests that may wait for it.
    pub waiting: usize,
    /// Requests that may run at once; its real slots bound them too.
    pub running: Option<u32>,
}

/// Limits of one client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientLimits {
    /// Requests of it that may wait.
    pub waiting: usize,
    /// Permits that it may hold at once.
    pub running: Option<u32>,
    /// How long it waits, where its request does not say so.
    pub patience: Option<Duration>,
    /// The lane of its requests, where they do not say so. Applied by the gateway, which reads what they say.
    pub lane: Option<Lane>,
}

impl Default for ModelLimits {
    fn default() -> Self {
        Self { waiting: usize::MAX, running: None }
    }
}

impl Default for ClientLimits {
    fn default() -> Self {
        Self { waiting: usize::MAX, running: None, patience: None, lane: None }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            waiting: 512,
            loaded_models: 1,
            slots_while_unknown: 1,
            affinity: Duration::from_secs(120),
            ageing: Duration::from_secs(60),
            quantum: Duration::from_secs(5),
            linger: Duration::from_secs(2),
            model: ModelLimits::default(),
            models: BTreeMap::new(),
            client: ClientLimits::default(),
            clients: BTreeMap::new(),
        }
    }
}

impl Limits {
    /// Of this model.
    pub fn of_model(&self, model: &str) -> ModelLimits {
        self.models.get(model).copied().unwrap_or(self.model)
    }

    /// Of this client.
    pub fn of_client(&self, client: &str) -> ClientLimits {
        self.clients.get(client).copied().unwrap_or(self.client)
    }
}
