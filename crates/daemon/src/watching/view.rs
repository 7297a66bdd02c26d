//! What people see of an observation, and the numbers that the history keeps of it.

use super::observing::Observed;
use crate::history::series;
use crate::phrases;
use crate::translation::rfc3339;
use stablehand_engine::Known;
use stablehand_engine::process::RunnerKind;
use stablehand_engine::recovery::{Ladder, Policy};
use stablehand_engine::stall::evidence::{Listing, RunnerSeen, SlotSeen};
use stablehand_engine::stall::{Judgement, Subject, Verdict};
use stablehand_engine::time::{Awake, Now, Wall};
use stablehand_ollama::log_statistics::LogView;
use stablehand_platform::connections::Connection;
use stablehand_platform::machine::Machine;
use stablehand_protocol::{
    self as protocol, Judged, LogSummary, Memory, Queue, QueueClient, Recovery, Watched, WatchedRunner,
};
use std::collections::BTreeMap;
use std::time::Duration;

/// The observation as a copy for clients.
pub fn watched(
    machine: &Machine,
    now: Now,
    observed: &Observed,
    judgements: &[Judgement],
    recovery: Recovery,
) -> Watched {
    let sample = &observed.sample;
    Watched {
        at: rfc3339(Wall::from_unix_ms(now.wall.unix_ms / 1000 * 1000)),
        memory: Memory {
            total_bytes: wire(&sample.memory.total_bytes),
            used_bytes: wire(&sample.memory.used_bytes),
            wired_bytes: wire(&sample.memory.wired_bytes),
            compressed_bytes: wire(&sample.memory.compressed_bytes),
            swap_total_bytes: wire(&sample.memory.swap_total_bytes),
            swap_used_bytes: wire(&sample.memory.swap_used_bytes),
            swap_in_bytes_per_s: wire(&sample.memory.swap_in.bytes_per_s),
            swap_out_bytes_per_s: wire(&sample.memory.swap_out.bytes_per_s),
            pressure_level: wire(&sample.memory.pressure.as_ref().map(|pressure| pressure.level())),
            gpu_limit_bytes: wire(&observed.gpu_limit_bytes(machine)),
            gpu_used_bytes: wire(&sample.gpu.in_use_bytes),
            gpu_percent: wire(&sample.gpu.utilisation_percent),
            throttled: wire(&sample.thermal.throttled),
        },
        queue: Queue {
            at_least: wire(&observed.waiting.as_ref().map(|waiting| waiting.at_least)),
            at_most: wire(&observed.waiting.as_ref().map(|waiting| waiting.at_most)),
            clients: wire(&observed.connections.as_ref().map(|open| clients(open, now.awake))),
        },
        runners: observed
            .observation
            .runners
            .iter()
            .map(|runner| watched_runner(runner, judgements, now.awake))
            .collect(),
        server: judgements
            .iter()
            .find(|one| matches!(one.subject, Subject::Server { .. }))
            .map(|one| judged(one, now.awake)),
        recovery,
        log: wire(&observed.log.as_ref().map(summary)),
        tokens: observed
            .tokens
            .iter()
            .map(|(model, tokens)| protocol::ModelTokens {
                model: model.clone(),
                prompt_total: wire(&tokens.as_ref().map(|tokens| tokens.prompt)),
                generated_total: wire(&tokens.as_ref().map(|tokens| tokens.generated)),
            })
            .collect(),
    }
}

/// What recovery may do, and what it has given up.
pub fn recovery(ladder: &Ladder) -> Recovery {
    let policy = match ladder.policy() {
        Policy::AlertOnly => "alert",
        Policy::Runner => "runner",
        Policy::All => "all",
    };
    let given_up = ladder.given_up().map(|(cause, given_up)| protocol::GivenUp {
        cause: cause.word().to_owned(),
        subject: given_up.subject.clone(),
        words: given_up.why.clone(),
    });
    Recovery { policy: policy.to_owned(), given_up: given_up.collect(), acts: ladder.doing().is_some() }
}

/// The numbers that the history keeps, by series. What is unknown is no point.
pub fn points(_at: Wall, observed: &Observed) -> Vec<(String, f64)> {
    let memory = &observed.sample.memory;
    let mut points = Vec::new();
    let mut add = |name: &str, value: Option<f64>| points.extend(value.map(|value| (name.to_owned(), value)));
    add("memory_used_bytes", memory.used_bytes.known().map(|bytes| number(*bytes)));
    add("swap_used_bytes", memory.swap_used_bytes.known().map(|bytes| number(*bytes)));
    add("swap_out_bytes_per_s", memory.swap_out.bytes_per_s.known().copied());
    add("pressure_level", memory.pressure.known().map(|pressure| f64::from(pressure.level())));
    if let Known::Is(waiting) = &observed.waiting {
        add("queue_at_least", Some(f64::from(waiting.at_least)));
        add("queue_at_most", Some(f64::from(waiting.at_most)));
    }
    for runner in &observed.observation.runners {
        let Known::Is(model) = &runner.model else { continue };
        let labelled = |name: &str| series(name, &[("model", model.as_str())]);
        if let Known::Is(bytes) = &runner.footprint_bytes {
            points.push((labelled("runner_footprint_bytes"), number(*bytes)));
        }
        if let Known::Is(slots) = &runner.slots {
            points.push((labelled("runner_slots_busy"), f64::from(busy(slots))));
        }
    }
    points
}

#[expect(clippy::cast_precision_loss, reason = "a chart of bytes needs no more than 52 bits")]
fn number(bytes: u64) -> f64 {
    bytes as f64
}

fn busy(slots: &[SlotSeen]) -> u32 {
    u32::try_from(slots.iter().filter(|slot| slot.busy).count()).unwrap_or(u32::MAX)
}

fn watched_runner(runner: &RunnerSeen, judgements: &[Judgement], now: Awake) -> WatchedRunner {
    let of_runner = judgements.iter().find(|one| one.subject.id() == runner.id);
    WatchedRunner {
        pid: runner.id.pid,
        model: wire(&runner.model),
        kind: match runner.kind {
            RunnerKind::LlamaServer => "llama-server",
            RunnerKind::OllamaRunner => "ollama-runner",
            RunnerKind::Mlx => "mlx",
        }
        .to_owned(),
        judged: of_runner.map(|one| judged(one, now)),
        slots: wire(&runner.slots.as_ref().map(|slots| u32::try_from(slots.len()).unwrap_or(u32::MAX))),
        slots_busy: wire(&runner.slots.as_ref().map(|slots| busy(slots))),
        footprint_bytes: wire(&runner.footprint_bytes),
        cpu_s: wire(&runner.cpu.as_ref().map(Duration::as_secs)),
        listed_until: wire(&runner.listed.as_ref().map(|listing| match listing {
            Listing::Absent => None,
            Listing::Until(at) => Some(rfc3339(*at)),
        })),
    }
}

fn judged(judgement: &Judgement, now: Awake) -> Judged {
    Judged {
        verdict: judgement.verdict.word().to_owned(),
        said: phrases::verdict(&judgement.verdict),
        evidence: judgement.evidence.iter().map(phrases::fact).collect(),
        for_s: now.since(judgement.since).as_secs(),
        trouble: Verdict::is_trouble(&judgement.verdict),
        progress: progress(&judgement.verdict),
        tokens_per_s: tokens_per_s(&judgement.verdict),
    }
}

fn progress(verdict: &Verdict) -> Option<protocol::Progress> {
    let Verdict::Prefill { tokens_done, of, eta } = verdict else { return None };
    Some(protocol::Progress { done_tokens: *tokens_done, total_tokens: *of, left_s: eta.map(|eta| eta.as_secs()) })
}

fn tokens_per_s(verdict: &Verdict) -> Option<f64> {
    let Verdict::Generating { tokens_per_s } = verdict else { return None };
    // A tenth is all that a person reads, and a change that nobody can see is no news.
    tokens_per_s.map(|rate| (rate * 10.0).round() / 10.0)
}

fn clients(open: &[Connection], now: Awake) -> Vec<QueueClient> {
    let mut by_client: BTreeMap<(String, Option<u32>), (u32, u64)> = BTreeMap::new();
    for connection in open {
        let program = connection.program.known().cloned().unwrap_or_else(|| "unknown".to_owned());
        let pid = connection.client.known().map(|client| client.pid);
        let entry = by_client.entry((program, pid)).or_default();
        entry.0 += 1;
        entry.1 = entry.1.max(now.since(connection.since).as_secs());
    }
    by_client
        .into_iter()
        .map(|((program, pid), (connections, oldest_s))| QueueClient { program, pid, connections, oldest_s })
        .collect()
}

fn summary(view: &LogView) -> LogSummary {
    let ms = |span: Duration| u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
    LogSummary {
        endpoints: view
            .endpoints
            .iter()
            .map(|one| protocol::Endpoint {
                path: one.endpoint.to_owned(),
                requests: one.outcomes.total(),
                p50_ms: ms(one.p50),
                p90_ms: ms(one.p90),
                p99_ms: ms(one.p99),
            })
            .collect(),
        turned_away: view.outcomes.queue_full,
        clients_left: view.outcomes.clients_left,
        failed: view.outcomes.server_errors,
        errors: view
            .errors
            .iter()
            .map(|one| format!("{:?}, {} times, last: {}", one.class, one.count, one.words))
            .collect(),
        threads: view
            .threads
            .iter()
            .map(|one| {
                let tokens = one.thread.tokens();
                match one.thread.growth_tokens_per_turn {
                    Some(growth) => format!("this thread is at {tokens} tokens and adds {growth} a turn"),
                    None => format!("this thread is at {tokens} tokens"),
                }
            })
            .collect(),
        evictions: view
            .evictions
            .iter()
            .map(|one| {
                let went = one.evicted.known().map_or_else(|| "a model".to_owned(), |models| models.join(", "));
                let whom = one.made_room_for.known().map_or_else(|| "another".to_owned(), Clone::clone);
                format!("{went} made room for {whom}")
            })
            .collect(),
    }
}

fn wire<T: Clone>(fact: &Known<T>) -> protocol::Known<T> {
    match fact {
        Known::Is(value) => protocol::Known::Is(value.clone()),
        Known::Unknown(reason) => protocol::Known::unknown(reason.clone()),
    }
}
