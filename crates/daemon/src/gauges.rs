//! The numbers of a snapshot in the form of the metrics.

use crate::history::History;
use crate::metrics::{
    DeedGauges, DurationGauges, Gauges, GpuGauges, HistoryGauges, MemoryGauges, ModelGauges, QueueGauges,
    RequestGauges, ServerGauges, SwapGauges,
};
use stablehand_engine::Known;
use stablehand_engine::time::Wall;
use stablehand_protocol::{self as protocol, LogSummary, Snapshot, Watched, WatchedRunner};
use std::collections::BTreeMap;
use std::time::Duration;

/// What nobody has watched yet.
const NOT_WATCHED: &str = "nothing was watched yet";

/// The gauges of a snapshot, of a daemon that started at that time.
pub fn of(snapshot: &Snapshot, history: &History, started: Wall) -> Gauges {
    let watched = snapshot.watched.as_ref();
    let deeds = history.deeds();
    let drift = snapshot.settings.iter().filter(|setting| !setting.drift.is_empty()).count();
    Gauges {
        version: snapshot.daemon_version.clone(),
        simulated: snapshot.simulated.is_some(),
        started,
        memory: MemoryGauges {
            total_bytes: of_watched(watched, |watched| &watched.memory.total_bytes),
            used_bytes: of_watched(watched, |watched| &watched.memory.used_bytes),
            wired_bytes: of_watched(watched, |watched| &watched.memory.wired_bytes),
            compressed_bytes: of_watched(watched, |watched| &watched.memory.compressed_bytes),
        },
        swap: SwapGauges {
            total_bytes: of_watched(watched, |watched| &watched.memory.swap_total_bytes),
            used_bytes: of_watched(watched, |watched| &watched.memory.swap_used_bytes),
            in_bytes_per_second: of_watched(watched, |watched| &watched.memory.swap_in_bytes_per_s),
            out_bytes_per_second: of_watched(watched, |watched| &watched.memory.swap_out_bytes_per_s),
        },
        pressure_level: of_watched(watched, |watched| &watched.memory.pressure_level),
        throttled: of_watched(watched, |watched| &watched.memory.throttled),
        gpu: watched.map(|watched| GpuGauges {
            utilization_ratio: engine(&watched.memory.gpu_percent).map(|percent| f64::from(percent) / 100.0),
            memory_used_bytes: engine(&watched.memory.gpu_used_bytes),
            memory_limit_bytes: engine(&watched.memory.gpu_limit_bytes),
        }),
        server: ServerGauges {
            up: snapshot.server.pid.is_some(),
            serving: snapshot.server.serving,
            version: engine(&snapshot.server.version),
            owner: engine(&snapshot.server.owner),
            started: match engine(&snapshot.server.started) {
                Known::Is(text) => wall(&text),
                Known::Unknown(reason) => Known::Unknown(reason),
            },
        },
        models: watched.map(models).unwrap_or_default(),
        queue: QueueGauges {
            at_least: of_watched(watched, |watched| &watched.queue.at_least),
            at_most: of_watched(watched, |watched| &watched.queue.at_most),
            oldest_wait: Known::unknown("without a gateway it is not known who waits"),
        },
        settings_drift: Known::Is(u32::try_from(drift).unwrap_or(u32::MAX)),
        deeds: DeedGauges {
            alerts_total: deeds.alerts,
            restarts_total: deeds.restarts,
            runner_kills_total: deeds.kills,
        },
        requests: match watched.map(|watched| engine(&watched.log)) {
            Some(log) => log.map(|log| requests(&log)),
            None => Known::unknown(NOT_WATCHED),
        },
        history: Some(HistoryGauges {
            file_bytes: history.file_bytes(),
            dropped_total: history.dropped_points() + history.dropped_entries(),
        }),
    }
}

fn models(watched: &Watched) -> BTreeMap<String, ModelGauges> {
    let mut models: BTreeMap<String, ModelGauges> = BTreeMap::new();
    for runner in &watched.runners {
        let Some(model) = runner.model.known() else { continue };
        let gauges = of_runner(watched, model, runner);
        match models.remove(model) {
            Some(before) => models.insert(model.clone(), together(before, gauges)),
            None => models.insert(model.clone(), gauges),
        };
    }
    models
}

fn of_runner(watched: &Watched, model: &str, runner: &WatchedRunner) -> ModelGauges {
    let verdict = runner.judged.as_ref().map_or("unknown", |judged| judged.verdict.as_str());
    ModelGauges {
        verdicts: BTreeMap::from([(verdict.to_owned(), 1)]),
        slots: engine(&runner.slots),
        slots_busy: engine(&runner.slots_busy),
        footprint_bytes: engine(&runner.footprint_bytes),
        cpu: engine(&runner.cpu_s).map(Duration::from_secs),
        prompt_tokens_total: tokens(watched, model, |tokens| &tokens.prompt_total),
        generated_tokens_total: tokens(watched, model, |tokens| &tokens.generated_total),
        tokens_per_second: match &runner.judged {
            Some(judged) if judged.verdict == "idle" => Known::Is(0.0),
            Some(judged) => {
                judged.tokens_per_s.map_or_else(|| Known::unknown("no rate of generation is measured now"), Known::Is)
            }
            None => Known::unknown(NOT_WATCHED),
        },
    }
}

/// Two runners of one model, e.g. an orphan beside its successor. A sum with an unknown part is unknown.
fn together(one: ModelGauges, other: ModelGauges) -> ModelGauges {
    let mut verdicts = one.verdicts;
    for (verdict, count) in other.verdicts {
        *verdicts.entry(verdict).or_insert(0) += count;
    }
    ModelGauges {
        verdicts,
        slots: sum(one.slots, other.slots, u32::saturating_add),
        slots_busy: sum(one.slots_busy, other.slots_busy, u32::saturating_add),
        footprint_bytes: sum(one.footprint_bytes, other.footprint_bytes, u64::saturating_add),
        cpu: sum(one.cpu, other.cpu, Duration::saturating_add),
        // Counted by model already.
        prompt_tokens_total: one.prompt_tokens_total,
        generated_tokens_total: one.generated_tokens_total,
        tokens_per_second: sum(one.tokens_per_second, other.tokens_per_second, |one, other| one + other),
    }
}

fn sum<T>(one: Known<T>, other: Known<T>, add: impl Fn(T, T) -> T) -> Known<T> {
    match (one, other) {
        (Known::Is(one), Known::Is(other)) => Known::Is(add(one, other)),
        (Known::Unknown(reason), _) | (_, Known::Unknown(reason)) => Known::Unknown(reason),
    }
}

fn tokens(
    watched: &Watched,
    model: &str,
    which: impl Fn(&protocol::ModelTokens) -> &protocol::Known<u64>,
) -> Known<u64> {
    let of_model = watched.tokens.iter().find(|tokens| tokens.model == model);
    of_model.map_or_else(|| Known::unknown(NOT_WATCHED), |tokens| engine(which(tokens)))
}

fn wall(rfc3339: &str) -> Known<Wall> {
    rfc3339.parse::<jiff::Timestamp>().map(|at| Wall::from_unix_ms(at.as_millisecond())).into()
}

fn requests(log: &LogSummary) -> RequestGauges {
    let quantile = |quantile: f64, ms: u64| (quantile, Duration::from_millis(ms));
    RequestGauges {
        durations: log
            .endpoints
            .iter()
            .map(|one| {
                let quantiles = vec![quantile(0.5, one.p50_ms), quantile(0.9, one.p90_ms), quantile(0.99, one.p99_ms)];
                (one.path.clone(), DurationGauges { quantiles, count: one.requests })
            })
            .collect(),
        refused_total: log.turned_away,
        abandoned_total: log.clients_left,
        failed_total: log.failed,
    }
}

fn of_watched<T: Clone>(watched: Option<&Watched>, value: impl Fn(&Watched) -> &protocol::Known<T>) -> Known<T> {
    watched.map_or_else(|| Known::unknown(NOT_WATCHED), |watched| engine(value(watched)))
}

fn engine<T: Clone>(fact: &protocol::Known<T>) -> Known<T> {
    match fact {
        protocol::Known::Is(value) => Known::Is(value.clone()),
        protocol::Known::Unknown { unknown } => Known::Unknown(unknown.clone()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runner(pid: u32, footprint_bytes: protocol::Known<u64>) -> WatchedRunner {
        WatchedRunner {
            pid,
            model: protocol::Known::Is("gemma3:4b".to_owned()),
            kind: "llama-server".to_owned(),
            judged: None,
            slots: protocol::Known::Is(2),
            slots_busy: protocol::Known::Is(1),
            footprint_bytes,
            cpu_s: protocol::Known::Is(40),
            listed_until: protocol::Known::Is(None),
        }
    }

    fn unknown<T>(why: &str) -> protocol::Known<T> {
        protocol::Known::Unknown { unknown: why.to_owned() }
    }

    fn watched(runners: Vec<WatchedRunner>) -> Watched {
        Watched {
            at: String::new(),
            memory: protocol::Memory {
                total_bytes: unknown("-"),
                used_bytes: unknown("-"),
                wired_bytes: unknown("-"),
                compressed_bytes: unknown("-"),
                swap_total_bytes: unknown("-"),
                swap_used_bytes: unknown("-"),
                swap_in_bytes_per_s: unknown("-"),
                swap_out_bytes_per_s: unknown("-"),
                pressure_level: unknown("-"),
                gpu_limit_bytes: unknown("-"),
                gpu_used_bytes: unknown("-"),
                gpu_percent: unknown("-"),
                throttled: unknown("-"),
            },
            queue: protocol::Queue { at_least: unknown("-"), at_most: unknown("-"), clients: unknown("-") },
            runners,
            server: None,
            recovery: protocol::Recovery { policy: "alert".to_owned(), given_up: vec![], acts: false },
            log: unknown("-"),
            tokens: vec![],
        }
    }

    #[test]
    fn two_runners_of_one_model_are_added_up() {
        let models = models(&watched(vec![runner(1, protocol::Known::Is(3_000)), runner(2, protocol::Known::Is(500))]));
        let model = &models["gemma3:4b"];
        assert_eq!(model.verdicts, BTreeMap::from([("unknown".to_owned(), 2)]));
        assert_eq!((&model.slots, &model.slots_busy), (&Known::Is(4), &Known::Is(2)));
        assert_eq!(model.footprint_bytes, Known::Is(3_500));
        assert_eq!(model.cpu, Known::Is(Duration::from_secs(80)));
    }

    #[test]
    fn a_sum_with_an_unknown_part_is_unknown() {
        let models = models(&watched(vec![runner(1, protocol::Known::Is(3_000)), runner(2, unknown("not allowed"))]));
        assert_eq!(models["gemma3:4b"].footprint_bytes, Known::unknown("not allowed"));
    }
}
