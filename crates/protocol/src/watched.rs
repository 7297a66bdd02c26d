//! What is seen of runners, the queue, memory and the log, as a copy.

use crate::Known;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// One observation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "types", derive(ts_rs::TS), ts(export_to = "protocol.ts"))]
pub struct Watched {
    /// When it was made, RFC 3339.
    pub at: String,
    /// Memory of the machine.
    pub memory: Memory,
    /// Requests that wait.
    pub queue: Queue,
    /// Each runner with its verdict.
    pub runners: Vec<WatchedRunner>,
    /// The verdict on the server, when there is one.
    pub server: Option<Judged>,
    /// What recovery may do and has given up on.
    pub recovery: Recovery,
    /// What the server's log tells; unknown where it cannot be read.
    pub log: Known<LogSummary>,
    /// Tokens of each model that is loaded.
    pub tokens: Vec<ModelTokens>,
}

/// Tokens of a model since the daemon began to watch; what a runner had counted before is in it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "types", derive(ts_rs::TS), ts(export_to = "protocol.ts"))]
pub struct ModelTokens {
    /// Its name.
    pub model: String,
    /// Of prompts, without what came from the cache.
    pub prompt_total: Known<u64>,
    /// Generated; those of a request count when it ends.
    pub generated_total: Known<u64>,
}

/// Memory of the machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "types", derive(ts_rs::TS), ts(export_to = "protocol.ts"))]
pub struct Memory {
    /// Main memory.
    pub total_bytes: Known<u64>,
    /// In use, as Activity Monitor counts it.
    pub used_bytes: Known<u64>,
    /// Cannot be paged out.
    pub wired_bytes: Known<u64>,
    /// Main memory that holds compressed pages.
    pub compressed_bytes: Known<u64>,
    /// Size of the swap space; macOS lets it grow and shrink.
    pub swap_total_bytes: Known<u64>,
    /// Swap in use.
    pub swap_used_bytes: Known<u64>,
    /// Read back from swap.
    pub swap_in_bytes_per_s: Known<f64>,
    /// Written to swap.
    pub swap_out_bytes_per_s: Known<f64>,
    /// 1 normal, 2 warning, 4 critical.
    pub pressure_level: Known<u32>,
    /// What the GPU may use in all.
    pub gpu_limit_bytes: Known<u64>,
    /// What the GPU uses.
    pub gpu_used_bytes: Known<u64>,
    /// How busy the GPU is.
    pub gpu_percent: Known<u32>,
    /// Heat slows the machine down.
    pub throttled: Known<bool>,
}

/// Requests that wait; an interval, because a kept-open connection looks like a waiting request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "types", derive(ts_rs::TS), ts(export_to = "protocol.ts"))]
pub struct Queue {
    /// At least.
    pub at_least: Known<u32>,
    /// At most.
    pub at_most: Known<u32>,
    /// Programs that are connected to the server.
    pub clients: Known<Vec<Client>>,
}

/// A program that is connected to the server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "types", derive(ts_rs::TS), ts(export_to = "protocol.ts"))]
pub struct Client {
    /// Its name.
    pub program: String,
    /// Its pid.
    pub pid: Option<u32>,
    /// How many connections it has.
    pub connections: u32,
    /// Age of the oldest, as far as it was watched.
    pub oldest_s: u64,
}

/// A runner with its verdict.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "types", derive(ts_rs::TS), ts(export_to = "protocol.ts"))]
pub struct WatchedRunner {
    /// Its pid.
    pub pid: u32,
    /// Its model.
    pub model: Known<String>,
    /// `llama-server`, `ollama-runner` or `mlx`.
    pub kind: String,
    /// The verdict, when one was reached.
    pub judged: Option<Judged>,
    /// Slots, and how many of them have a request.
    pub slots: Known<u32>,
    /// Slots with a request in them.
    pub slots_busy: Known<u32>,
    /// Memory of its own; mapped weights may be missing from it.
    pub footprint_bytes: Known<u64>,
    /// CPU time of all its threads since it started, whole seconds.
    pub cpu_s: Known<u64>,
    /// Until when it stays loaded, RFC 3339; `null` when `/api/ps` does not list it.
    pub listed_until: Known<Option<String>>,
}

/// A verdict with what made it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "types", derive(ts_rs::TS), ts(export_to = "protocol.ts"))]
pub struct Judged {
    /// One word, e.g. `prefill`, `hung`.
    pub verdict: String,
    /// It, with what it says of its own.
    pub said: Phrase,
    /// The facts that made it.
    pub evidence: Vec<Phrase>,
    /// For how long it has been so, awake.
    pub for_s: u64,
    /// It is something a person should know.
    pub trouble: bool,
    /// How far a prompt has been read, when it is being read.
    #[serde(default)]
    pub progress: Option<Progress>,
    /// Tokens generated per second, while that is known.
    #[serde(default)]
    pub tokens_per_s: Option<f64>,
}

/// Something that is said of a runner or the server: a code with its values, which a face can say in its person's
/// language, and the same in English words.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "types", derive(ts_rs::TS), ts(export_to = "protocol.ts"))]
pub struct Phrase {
    /// Which phrase it is, e.g. `hung.decode-loop`, `still.token`.
    pub code: String,
    /// Its values by name; the names end with their unit (`_s` seconds, `_bytes_per_s`, `_percent`).
    pub values: BTreeMap<String, PhraseValue>,
    /// In English.
    pub words: String,
}

/// A value of a phrase.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "types", derive(ts_rs::TS), ts(export_to = "protocol.ts"))]
#[serde(untagged)]
pub enum PhraseValue {
    /// A count, or an amount of the unit that its name ends with.
    Number(f64),
    /// A word or a reason.
    Text(String),
}

/// How far a prompt has been read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "types", derive(ts_rs::TS), ts(export_to = "protocol.ts"))]
pub struct Progress {
    /// Tokens read.
    pub done_tokens: u64,
    /// Of how many, when it is known.
    pub total_tokens: Option<u64>,
    /// About how long the rest takes, when it can be told.
    pub left_s: Option<u64>,
}

/// What recovery may do, and what it does nothing about any more.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "types", derive(ts_rs::TS), ts(export_to = "protocol.ts"))]
pub struct Recovery {
    /// `alert`, `runner` or `all`.
    pub policy: String,
    /// What it has given up, until somebody asks it to recover again, or sets another policy.
    #[serde(default)]
    pub given_up: Vec<GivenUp>,
    /// A step of recovery is being taken.
    #[serde(default)]
    pub acts: bool,
}

/// A kind of trouble that recovery has given up on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "types", derive(ts_rs::TS), ts(export_to = "protocol.ts"))]
pub struct GivenUp {
    /// The verdict that it was about, e.g. `hung`. Others' trouble of that kind is left alone, too.
    pub cause: String,
    /// Whose trouble it was, in words.
    pub subject: String,
    /// Why it was given up, in words.
    pub words: String,
}

/// What the server's log tells, since the daemon reads it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "types", derive(ts_rs::TS), ts(export_to = "protocol.ts"))]
pub struct LogSummary {
    /// Latencies by endpoint in the last while.
    pub endpoints: Vec<Endpoint>,
    /// 503: turned away because too many wait for a load.
    pub turned_away: u64,
    /// 499: the client left.
    pub clients_left: u64,
    /// Other 5xx.
    pub failed: u64,
    /// Classes of errors, with how often and the last words.
    pub errors: Vec<String>,
    /// Conversations that grow, in words.
    pub threads: Vec<String>,
    /// Models that were put out for others, in words, newest last.
    pub evictions: Vec<String>,
}

/// Latencies of one endpoint.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "types", derive(ts_rs::TS), ts(export_to = "protocol.ts"))]
pub struct Endpoint {
    /// Its path.
    pub path: String,
    /// Requests in the window.
    pub requests: u64,
    /// Half took no longer.
    pub p50_ms: u64,
    /// Nine of ten took no longer.
    pub p90_ms: u64,
    /// 99 of a hundred took no longer.
    pub p99_ms: u64,
}
