//! What is seen of runners, the server and the machine in one observation. The daemon fills it in; the rules of
//! [`super`] compare one observation with those before it.
//!
//! A counter that cannot be read is unknown. Only movement of a counter is progress: an HTTP side that answers says
//! nothing about the decode loop behind it.

use crate::known::Known;
use crate::process::{Belonging, Identity, RunnerKind};
use crate::time::Wall;
use std::time::Duration;

/// One observation of everything.
#[derive(Clone, Debug, PartialEq)]
pub struct Observation {
    /// Each runner in the process table, orphans included.
    pub runners: Vec<RunnerSeen>,
    /// The server.
    pub server: ServerSeen,
    /// The machine.
    pub machine: MachineSeen,
}

/// A runner.
#[derive(Clone, Debug, PartialEq)]
pub struct RunnerSeen {
    /// Which life of which process.
    pub id: Identity,
    /// Its generation.
    pub kind: RunnerKind,
    /// Its model's name.
    pub model: Known<String>,
    /// Whose it is.
    pub belongs: Belonging,
    /// When it started.
    pub started: Wall,
    /// What the kernel says of it.
    pub state: ProcessState,
    /// CPU time it has used so far.
    pub cpu: Known<Duration>,
    /// Memory that is its own (footprint on macOS, PSS on Linux); mapped weights may be missing from it.
    pub footprint_bytes: Known<u64>,
    /// Its HTTP side.
    pub health: Health,
    /// Its slots, 0.30 and newer.
    pub slots: Known<Vec<SlotSeen>>,
    /// `llamacpp:n_decode_total`: batches decoded so far.
    pub decode_total: Known<u64>,
    /// The newest progress that the log tells of this runner (older generations, MLX), with the log's time; `None` once
    /// the request that it was told of has ended, and while the lines cannot be told apart.
    pub log_progress: Option<LogProgress>,
    /// Pages of its own that it read back from disk: swapped out, or of mapped weights that memory had no room for;
    /// bytes per second, unknown is not zero.
    pub paged_in_bytes_per_s: KnownRate,
    /// The requests that it finished since it started, newest last, at most the last eight.
    pub finished: Vec<FinishedRequest>,
    /// Whether and how `/api/ps` lists it; unknown when that did not answer.
    pub listed: Known<Listing>,
    /// Requests that are known to be in it now, from a gateway; `None` without one. A request whose client has stopped
    /// reading its answer does not count: a runner that waits for its reader does nothing wrong.
    pub tickets: Option<u32>,
    /// A gateway saw bytes of an answer of this runner: how many so far; `None` without one, and while an answer is in it
    /// that is not told token by token (`stream: false`, tools: a tool call is held back until it is complete) or that its
    /// client has stopped reading.
    pub gateway_bytes: Option<u64>,
}

/// What the kernel says of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProcessState {
    /// It runs or sleeps.
    Alive,
    /// It was stopped by a signal.
    Stopped,
    /// It has ended.
    Gone,
}

/// What `/health` of a runner said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Health {
    /// 200.
    Ok,
    /// 503 while the model loads.
    Loading,
    /// Nothing within the deadline.
    Silent,
    /// It was not asked, or answered something else.
    Unknown,
}

/// One slot of `/slots`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotSeen {
    /// Its number.
    pub id: u32,
    /// The task in it; a new number is a new request.
    pub task: Option<u64>,
    /// Whether a request is in it.
    pub busy: bool,
    /// Prompt tokens processed so far (`n_prompt_tokens_processed`), in steps of one batch.
    pub prompt_tokens_done: u64,
    /// Prompt tokens that came from the cache (`n_prompt_tokens_cache`).
    pub prompt_tokens_cached: u64,
    /// Tokens generated so far (`n_decoded`).
    pub tokens_generated: u64,
    /// The total of the prompt where it is really known (a gateway, a log line); `n_prompt_tokens` is not it.
    pub prompt_tokens_total: Option<u64>,
}

/// Progress that a log line tells.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LogProgress {
    /// When the line was seen (the runner's own lines carry no time).
    pub at: Wall,
    /// Prompt tokens done.
    pub prompt_tokens_done: u64,
    /// Of how many, where the line says so.
    pub prompt_tokens_total: Option<u64>,
    /// Tokens generated, where the line says so.
    pub tokens_generated: u64,
}

/// A request that a runner has finished.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FinishedRequest {
    /// When.
    pub at: Wall,
    /// Tokens that it generated.
    pub tokens_generated: u64,
    /// Whether the client had left.
    pub cancelled: bool,
}

/// How `/api/ps` lists a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Listing {
    /// Not at all.
    Absent,
    /// Listed, to be unloaded at that time (far away when never).
    Until(Wall),
}

/// The server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerSeen {
    /// The process, when it runs.
    pub id: Option<Identity>,
    /// Whether `/api/version` was answered, with whatever.
    pub answers: bool,
    /// Whether `/api/ps` was answered within its deadline, with whatever; it takes locks that a blocked scheduler holds.
    pub ps_answers: Known<bool>,
    /// A load is under way (a log line says so, or a runner is loading).
    pub loading: bool,
    /// Requests that wait, as far as it can be told: at least, at most.
    pub waiting: Waiting,
    /// The oldest of them, since when it is known to wait.
    pub oldest_wait: Known<Duration>,
    /// 5xx answers and load failures since the last observation.
    pub failures: u32,
    /// Requests that models answered well since then.
    pub successes: u32,
}

/// How many requests wait: exact with a gateway, an interval without one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waiting {
    /// At least.
    pub at_least: u32,
    /// At most.
    pub at_most: u32,
}

/// The machine.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MachineSeen {
    /// Pages read back from swap, in bytes per second; unknown is not zero.
    pub swap_in_bytes_per_s: KnownRate,
    /// Pages written to swap, in bytes per second.
    pub swap_out_bytes_per_s: KnownRate,
    /// Pressure level: 1 normal, 2 warning, 4 critical (`kern.memorystatus_vm_pressure_level`); on Linux derived from
    /// PSI.
    pub pressure: Option<u32>,
    /// The GPU is throttled or its use is low, when that can be read: use in percent.
    pub gpu_percent: Option<u32>,
    /// The processor or GPU is throttled by heat, when that can be read.
    pub throttled: Option<bool>,
}

/// A rate, or not known.
pub type KnownRate = Option<f64>;
