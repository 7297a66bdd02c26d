//! The gateway's queue, and what can be asked of the gateway. It has a socket of its own beside the daemon's.
//!
//! `GET /v1/queue` gives a [`QueueView`], `GET /v1/queue/events` sends one on every change as server-sent events;
//! `docs/api.md` lists the rest.

use crate::Failure;
use serde::{Deserialize, Serialize};

/// The gateway and everybody in it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "types", derive(ts_rs::TS), ts(export_to = "protocol.ts"))]
pub struct QueueView {
    /// When, RFC 3339.
    pub at: String,
    /// Version of the gateway.
    pub version: String,
    /// `open`; `leaving`: it listens no more and serves what it has; `ending`.
    pub phase: String,
    /// The addresses it listens on.
    pub listen: Vec<String>,
    /// Where Ollama is.
    pub upstream: String,
    /// What holds the queue.
    pub holds: Vec<QueueHold>,
    /// Who waits, model by model in the order of turns.
    pub waiting: Vec<WaitingRequest>,
    /// How many may wait in all.
    pub waiting_at_most: u64,
    /// Who runs, the oldest first.
    pub running: Vec<RunningRequest>,
    /// Models that are loaded, asked for or measured.
    pub models: Vec<QueueModel>,
    /// Models that took another one's place in memory since the start.
    pub switches: u64,
    /// Memory for the bodies of requests that wait.
    pub bodies_bytes: u64,
    /// Models that were asked for lately and are not installed, the newest last.
    pub missing: Vec<MissingModel>,
    /// Why the last edit of the configuration was not taken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_failure: Option<Failure>,
    /// The folder of the simulated machine, when it is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub simulated: Option<String>,
}

/// A hold.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "types", derive(ts_rs::TS), ts(export_to = "protocol.ts"))]
pub struct QueueHold {
    /// `paused`, `restart`, `upgrade`, `recovery`, `unreachable`.
    pub why: String,
    /// The model that is held; all without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// After so many milliseconds it ends by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left_ms: Option<u64>,
}

/// A request that waits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "types", derive(ts_rs::TS), ts(export_to = "protocol.ts"))]
pub struct WaitingRequest {
    /// Its number.
    pub id: u64,
    /// The model it wants.
    pub model: String,
    /// Who asks.
    pub client: String,
    /// `interactive`, `agent` or `batch`.
    pub lane: String,
    /// Its path.
    pub path: String,
    /// How long it waits.
    pub waited_ms: u64,
    /// Its place among those who wait for the model, from 1.
    pub position: u64,
    /// When it can expect its turn, where service times have been measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected_ms: Option<u64>,
}

/// A request that holds a permit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "types", derive(ts_rs::TS), ts(export_to = "protocol.ts"))]
pub struct RunningRequest {
    /// Its number.
    pub id: u64,
    /// The model it uses.
    pub model: String,
    /// Who asked.
    pub client: String,
    /// `interactive`, `agent` or `batch`.
    pub lane: String,
    /// Its path.
    pub path: String,
    /// How long it waited.
    pub waited_ms: u64,
    /// How long it has been running.
    pub running_ms: u64,
}

/// A model as the queue knows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "types", derive(ts_rs::TS), ts(export_to = "protocol.ts"))]
pub struct QueueModel {
    /// Its full name.
    pub model: String,
    /// It is in memory, or being loaded.
    pub loaded: bool,
    /// Slots of its runner, where they are known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slots: Option<u32>,
    /// Requests that may run at once now.
    pub at_most: u32,
    /// Permits held for it.
    pub running: u32,
    /// Slots busy with what did not come through the gateway.
    pub around: u32,
    /// Requests that wait for it.
    pub waiting: u64,
    /// Mean time of one request without loading.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_ms: Option<u64>,
    /// Mean time of loading it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load_ms: Option<u64>,
}

/// A model that was asked for and is not installed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "types", derive(ts_rs::TS), ts(export_to = "protocol.ts"))]
pub struct MissingModel {
    /// Its name.
    pub model: String,
    /// Who asked last.
    pub client: String,
}

/// The body of `POST /v1/queue/ID/lane`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MoveTo {
    /// `interactive`, `agent` or `batch`.
    pub lane: String,
}

/// The body of `POST /v1/hold` and `POST /v1/release`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hold {
    /// `restart`, `upgrade` or `recovery`.
    pub why: String,
    /// One model alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// It ends by itself after this; for a release without meaning.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub for_s: Option<u64>,
}

/// The body of `PUT /v1/upstream`: what the daemon knows of the server. What is absent stays as it was.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Upstream {
    /// Where the server is now; connections to the one before are not used again. Loopback alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// Which models are in memory: all of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub loaded: Option<Vec<String>>,
    /// What is known of models' runners; those that are not named stay as they were.
    pub models: Vec<UpstreamModel>,
    /// Models that may be in memory at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub loaded_models: Option<u64>,
    /// Requests that may wait in all (`OLLAMA_MAX_QUEUE` in force); `waiting` in [gateway] goes before it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waiting: Option<u64>,
    /// `OLLAMA_ORIGINS` in force.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub origins: Option<Vec<String>>,
}

/// A model's runner.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UpstreamModel {
    /// The model.
    pub model: String,
    /// Slots that its runner really has; `null` when that is not known any more.
    #[serde(default)]
    pub slots: Option<u32>,
    /// Of them busy with what did not come through the gateway.
    #[serde(default)]
    pub around_busy: u32,
    /// Costs known from elsewhere: they count as one measurement.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub costs: Option<ModelCosts>,
}

/// What a model costs, as measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ModelCosts {
    /// Mean time of one request without loading.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service_ms: Option<u64>,
    /// Mean time of loading the model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub load_ms: Option<u64>,
}

/// What the gateway did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Done {
    /// What has changed, in words.
    pub words: String,
}
