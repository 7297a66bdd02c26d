//! The present state as Prometheus text, exposition format 0.0.4.
//!
//! A pure function of [`Gauges`]. Names begin with `stablehand_` and carry base units: bytes, seconds, ratios of 0 to
//! 1; what only grows ends in `_total`. A value that is not known has no sample, and is named by
//! `stablehand_unknown{what="…"}` instead, so that an alert can tell "zero" from "nobody knows".

mod page;

#[cfg(test)]
mod tests;

use page::{Facts, Page, Type};
use stablehand_engine::Known;
use stablehand_engine::time::Wall;
use std::collections::BTreeMap;
use std::time::Duration;

pub use stablehand_protocol::exposition::CONTENT_TYPE;

/// Everything that is told.
#[derive(Clone, Debug, PartialEq)]
pub struct Gauges {
    /// Version of the daemon.
    pub version: String,
    /// Whether the machine is a simulated one.
    pub simulated: bool,
    /// When the daemon started.
    pub started: Wall,
    /// Main memory.
    pub memory: MemoryGauges,
    /// Swap.
    pub swap: SwapGauges,
    /// 1 normal, 2 warning, 4 critical.
    pub pressure_level: Known<u32>,
    /// Whether heat slows the machine down.
    pub throttled: Known<bool>,
    /// The GPU; `None` where there is none.
    pub gpu: Option<GpuGauges>,
    /// The Ollama server.
    pub server: ServerGauges,
    /// Loaded models by name; the runners of one model are put together.
    pub models: BTreeMap<String, ModelGauges>,
    /// Requests that wait.
    pub queue: QueueGauges,
    /// How many settings differ from what is desired.
    pub settings_drift: Known<u32>,
    /// What the daemon has done since it started.
    pub deeds: DeedGauges,
    /// What the server's log told since the daemon started.
    pub requests: Known<RequestGauges>,
    /// The history; `None` when none is kept.
    pub history: Option<HistoryGauges>,
}

/// Main memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryGauges {
    /// All of it.
    pub total_bytes: Known<u64>,
    /// Used, as Activity Monitor counts it.
    pub used_bytes: Known<u64>,
    /// Cannot be moved out.
    pub wired_bytes: Known<u64>,
    /// Taken by compressed pages.
    pub compressed_bytes: Known<u64>,
}

/// Swap.
#[derive(Clone, Debug, PartialEq)]
pub struct SwapGauges {
    /// All of it.
    pub total_bytes: Known<u64>,
    /// Used.
    pub used_bytes: Known<u64>,
    /// Read back, in bytes per second.
    pub in_bytes_per_second: Known<f64>,
    /// Written, in bytes per second.
    pub out_bytes_per_second: Known<f64>,
}

/// The GPU.
#[derive(Clone, Debug, PartialEq)]
pub struct GpuGauges {
    /// How busy it is, 0 to 1.
    pub utilization_ratio: Known<f64>,
    /// Memory that it uses.
    pub memory_used_bytes: Known<u64>,
    /// Memory that it may use.
    pub memory_limit_bytes: Known<u64>,
}

/// The Ollama server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerGauges {
    /// Its process runs.
    pub up: bool,
    /// It takes requests.
    pub serving: bool,
    /// Its version.
    pub version: Known<String>,
    /// What starts it, in one word.
    pub owner: Known<String>,
    /// When it started.
    pub started: Known<Wall>,
}

/// A loaded model.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelGauges {
    /// How many runners have which verdict.
    pub verdicts: BTreeMap<String, u32>,
    /// Requests that its runners take at once.
    pub slots: Known<u32>,
    /// Slots with a request in them.
    pub slots_busy: Known<u32>,
    /// Memory of its runners' own.
    pub footprint_bytes: Known<u64>,
    /// CPU time of its runners so far.
    pub cpu: Known<Duration>,
    /// Prompt tokens processed so far.
    pub prompt_tokens_total: Known<u64>,
    /// Tokens generated so far.
    pub generated_tokens_total: Known<u64>,
    /// Tokens generated per second, now.
    pub tokens_per_second: Known<f64>,
}

/// Requests that wait. Both ends are the same when the number is exact.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueGauges {
    /// At least.
    pub at_least: Known<u32>,
    /// At most.
    pub at_most: Known<u32>,
    /// How long the oldest has waited.
    pub oldest_wait: Known<Duration>,
}

/// What the daemon has done since it started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeedGauges {
    /// Alerts.
    pub alerts_total: u64,
    /// Restarts of Ollama.
    pub restarts_total: u64,
    /// Runners that were signalled.
    pub runner_kills_total: u64,
}

/// What the server's log told.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RequestGauges {
    /// How long requests took, by endpoint.
    pub durations: BTreeMap<String, DurationGauges>,
    /// 503: refused because the queue is full.
    pub refused_total: u64,
    /// 499: the client left.
    pub abandoned_total: u64,
    /// 5xx other than 503.
    pub failed_total: u64,
}

/// How long the requests of one endpoint took, in the window of the log's statistics.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DurationGauges {
    /// Pairs of a quantile (0.5, 0.95, 0.99) and its time.
    pub quantiles: Vec<(f64, Duration)>,
    /// How many there were.
    pub count: u64,
}

/// The history.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HistoryGauges {
    /// Size of its file.
    pub file_bytes: u64,
    /// Points and events that could not be kept.
    pub dropped_total: u64,
}

/// The text.
pub fn exposition(gauges: &Gauges) -> String {
    let mut page = Page::default();
    about(&mut page, gauges);
    machine(&mut page, gauges);
    server(&mut page, &gauges.server);
    models(&mut page, &gauges.models);
    queue(&mut page, &gauges.queue);
    requests(&mut page, &gauges.requests);
    ours(&mut page, gauges);
    page.finish()
}

fn about(page: &mut Page, gauges: &Gauges) {
    let simulated = if gauges.simulated { "true" } else { "false" };
    page.family("build_info", Type::Gauge, "Always 1; the labels tell which daemon this is.")
        .sample(&[("version", &gauges.version), ("simulated", simulated)], 1.0);
    page.family("start_time_seconds", Type::Gauge, "When the daemon started, Unix time.")
        .sample(&[], unix_seconds(gauges.started));
}

fn machine(page: &mut Page, gauges: &Gauges) {
    let Gauges { memory, swap, pressure_level, throttled, gpu, .. } = gauges;
    page.family("memory_total_bytes", Type::Gauge, "Main memory.").bytes(&memory.total_bytes);
    page.family("memory_used_bytes", Type::Gauge, "Main memory in use, as Activity Monitor counts it.")
        .bytes(&memory.used_bytes);
    page.family("memory_wired_bytes", Type::Gauge, "Main memory that cannot be moved out.").bytes(&memory.wired_bytes);
    page.family("memory_compressed_bytes", Type::Gauge, "Main memory taken by compressed pages.")
        .bytes(&memory.compressed_bytes);
    page.family("swap_total_bytes", Type::Gauge, "Swap space.").bytes(&swap.total_bytes);
    page.family("swap_used_bytes", Type::Gauge, "Swap space in use.").bytes(&swap.used_bytes);
    page.family("swap_in_bytes_per_second", Type::Gauge, "Rate of reading back from swap.")
        .known(&[], &swap.in_bytes_per_second);
    page.family("swap_out_bytes_per_second", Type::Gauge, "Rate of writing to swap.")
        .known(&[], &swap.out_bytes_per_second);
    page.family("memory_pressure_level", Type::Gauge, "Memory pressure: 1 normal, 2 warning, 4 critical.")
        .count(&[], pressure_level);
    page.family("thermal_throttled", Type::Gauge, "1 while heat slows the machine down.").flag(throttled);
    if let Some(gpu) = gpu {
        page.family("gpu_utilization_ratio", Type::Gauge, "How busy the GPU is, 0 to 1.")
            .known(&[], &gpu.utilization_ratio);
        page.family("gpu_memory_used_bytes", Type::Gauge, "Memory that the GPU uses.").bytes(&gpu.memory_used_bytes);
        page.family("gpu_memory_limit_bytes", Type::Gauge, "Memory that the GPU may use in all.")
            .bytes(&gpu.memory_limit_bytes);
    }
}

fn server(page: &mut Page, server: &ServerGauges) {
    let flag = |set: bool| if set { 1.0 } else { 0.0 };
    page.family("server_up", Type::Gauge, "1 while the Ollama server's process runs.").sample(&[], flag(server.up));
    page.family("server_serving", Type::Gauge, "1 while the Ollama server takes requests.")
        .sample(&[], flag(server.serving));
    let mut info = page.family("server_info", Type::Gauge, "Always 1; the labels tell which Ollama server runs.");
    match (&server.version, &server.owner) {
        (Known::Unknown(_), Known::Unknown(_)) => info.unknown(&[]),
        (version, owner) => {
            let word = |fact: &Known<String>| fact.known().cloned().unwrap_or_else(|| "unknown".to_owned());
            info.sample(&[("version", &word(version)), ("owner", &word(owner))], 1.0);
        }
    }
    let started = server.started.clone().map(unix_seconds);
    page.family("server_start_time_seconds", Type::Gauge, "When the Ollama server started, Unix time.")
        .known(&[], &started);
}

fn unix_seconds(at: Wall) -> f64 {
    page::as_float(at.unix_ms.max(0).unsigned_abs()) / 1000.0
}

fn models(page: &mut Page, models: &BTreeMap<String, ModelGauges>) {
    let mut runners = page.family("runners", Type::Gauge, "Runners by model and verdict.");
    for (name, model) in models {
        for (verdict, count) in &model.verdicts {
            runners.sample(&[("model", name), ("verdict", verdict)], f64::from(*count));
        }
    }
    let mut each = |name: &'static str, kind: Type, help: &'static str, fact: &dyn Fn(&ModelGauges) -> Known<f64>| {
        let mut family = page.family(name, kind, help);
        for (name, model) in models {
            family.known(&[("model", name)], &fact(model));
        }
    };
    let whole = |fact: &Known<u64>| fact.clone().map(page::as_float);
    each("runner_slots", Type::Gauge, "Requests that a model's runners take at once.", &|model| {
        model.slots.clone().map(f64::from)
    });
    each("runner_slots_busy", Type::Gauge, "Slots with a request in them.", &|model| {
        model.slots_busy.clone().map(f64::from)
    });
    each(
        "runner_footprint_bytes",
        Type::Gauge,
        "Memory of a model's runners' own; mapped weights may be missing.",
        &|model| whole(&model.footprint_bytes),
    );
    each("runner_cpu_seconds_total", Type::Counter, "CPU time of a model's runners.", &|model| {
        model.cpu.clone().map(|time| time.as_secs_f64())
    });
    each("prompt_tokens_total", Type::Counter, "Prompt tokens processed by a model's runners.", &|model| {
        whole(&model.prompt_tokens_total)
    });
    each("generated_tokens_total", Type::Counter, "Tokens generated by a model's runners.", &|model| {
        whole(&model.generated_tokens_total)
    });
    each("generated_tokens_per_second", Type::Gauge, "Present rate of generation.", &|model| {
        model.tokens_per_second.clone()
    });
}

fn queue(page: &mut Page, queue: &QueueGauges) {
    page.family("queue_requests_min", Type::Gauge, "Requests that wait, at least.").count(&[], &queue.at_least);
    page.family("queue_requests_max", Type::Gauge, "Requests that wait, at most.").count(&[], &queue.at_most);
    page.family("queue_oldest_wait_seconds", Type::Gauge, "How long the oldest request has waited.")
        .known(&[], &queue.oldest_wait.clone().map(|wait| wait.as_secs_f64()));
}

fn requests(page: &mut Page, requests: &Known<RequestGauges>) {
    // Gauges, for a window that moves on: what a summary calls count and sum would have to grow for ever.
    let text = "How long requests of the last while took, by the server's log.";
    let mut durations = page.family("request_duration_seconds", Type::Gauge, text);
    match requests {
        Known::Unknown(_) => durations.unknown(&[]),
        Known::Is(requests) => {
            for (endpoint, duration) in &requests.durations {
                for (quantile, time) in &duration.quantiles {
                    let quantile = page::number(*quantile);
                    durations.sample(&[("endpoint", endpoint), ("quantile", &quantile)], time.as_secs_f64());
                }
            }
        }
    }
    let mut counts = page.family("requests_recent", Type::Gauge, "Requests of the last while, by the server's log.");
    match requests {
        Known::Unknown(_) => counts.unknown(&[]),
        Known::Is(requests) => {
            for (endpoint, duration) in &requests.durations {
                counts.sample(&[("endpoint", endpoint)], page::as_float(duration.count));
            }
        }
    }
    let mut errors = page.family(
        "error_responses_total",
        Type::Counter,
        "Requests that ended badly: 503 queue full, 499 client left, other 5xx.",
    );
    match requests {
        Known::Unknown(_) => errors.unknown(&[]),
        Known::Is(RequestGauges { refused_total, abandoned_total, failed_total, durations: _ }) => {
            for (status, count) in [("503", refused_total), ("499", abandoned_total), ("other_5xx", failed_total)] {
                errors.sample(&[("status", status)], page::as_float(*count));
            }
        }
    }
}

fn ours(page: &mut Page, gauges: &Gauges) {
    page.family("settings_drift", Type::Gauge, "Settings that differ from what is desired.")
        .count(&[], &gauges.settings_drift);
    let DeedGauges { alerts_total, restarts_total, runner_kills_total } = gauges.deeds;
    for (name, help, count) in [
        ("alerts_total", "Alerts since the daemon started.", alerts_total),
        ("restarts_total", "Restarts of Ollama since the daemon started.", restarts_total),
        ("runner_kills_total", "Runners that were signalled since the daemon started.", runner_kills_total),
    ] {
        page.family(name, Type::Counter, help).sample(&[], page::as_float(count));
    }
    if let Some(HistoryGauges { file_bytes, dropped_total }) = gauges.history {
        page.family("history_file_bytes", Type::Gauge, "Size of the history's file.")
            .sample(&[], page::as_float(file_bytes));
        page.family("history_dropped_total", Type::Counter, "Points and events that the history could not keep.")
            .sample(&[], page::as_float(dropped_total));
    }
}
