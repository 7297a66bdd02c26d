//! What a watcher sees of the simulated machine: an [`Observation`], by class of evidence.

use super::runner::{Phase, Request, Runner};
use super::setup::Class;
use super::world::World;
use stablehand_engine::Known;
use stablehand_engine::process::{Belonging, Identity, RunnerKind};
use stablehand_engine::stall::evidence::{
    Health, Listing, MachineSeen, Observation, ProcessState, RunnerSeen, ServerSeen, SlotSeen, Waiting,
};
use stablehand_engine::time::Wall;
use std::time::Duration;

/// "Never" as `/api/ps` writes it.
const NEVER: Wall = Wall::from_unix_ms(11_000_000_000_000);

/// An observation of nothing yet.
pub fn nothing() -> Observation {
    Observation {
        runners: Vec::new(),
        server: ServerSeen {
            id: None,
            answers: false,
            ps_answers: Known::Is(false),
            loading: false,
            waiting: Waiting::default(),
            oldest_wait: Known::unknown("nothing waits"),
            failures: 0,
            successes: 0,
        },
        machine: MachineSeen {
            swap_in_bytes_per_s: None,
            swap_out_bytes_per_s: None,
            pressure: None,
            gpu_percent: None,
            throttled: None,
        },
    }
}

/// Looks at the machine; `seen` is the last observation and becomes the new one.
pub fn look(world: &mut World, seen: &mut Observation) {
    see_machine(world, &mut seen.machine);
    see_server(world, &mut seen.server);
    seen.runners.truncate(world.runners.len());
    for number in 0..world.runners.len() {
        // Most ticks differ in a few numbers only, so the parts that need memory are kept.
        if seen.runners.get(number).is_none_or(|old| old.id != world.runners[number].id) {
            let blank = blank(world, &world.runners[number]);
            if number < seen.runners.len() {
                seen.runners[number] = blank;
            } else {
                seen.runners.push(blank);
            }
        }
        see_runner(world, number, &mut seen.runners[number]);
    }
}

fn see_machine(world: &mut World, seen: &mut MachineSeen) {
    let sights = world.setup.sights;
    let (paging, random) = (&world.paging, &mut world.random);
    let known = !sights.swap_unknown;
    seen.swap_in_bytes_per_s = known.then_some(paging.bytes_per_s);
    seen.swap_out_bytes_per_s = known.then(|| paging.bytes_per_s * random.between((0.0, 1.0)));
    seen.pressure = known.then_some(paging.pressure);
    seen.throttled = Some(false);
    let busiest = world.runners.iter().map(|runner| runner.gpu_percent).max().unwrap_or(0);
    seen.gpu_percent = sights.gpu_shown.then_some(if sights.cpu_only { 0 } else { busiest });
}

fn see_server(world: &mut World, seen: &mut ServerSeen) {
    let server = &world.server;
    seen.id = server.id;
    seen.answers = server.answers;
    seen.ps_answers = Known::Is(server.ps_answers);
    seen.loading = server.loading;
    let waiting = world.queues.iter().map(|queue| queue.len() as u32).sum();
    let oldest_ms = world.queues.iter().flatten().map(|request| request.issued_ms).min();
    if world.setup.class == Class::Gateway {
        seen.waiting = Waiting { at_least: waiting, at_most: waiting };
        match oldest_ms {
            Some(issued_ms) => seen.oldest_wait = Known::Is(Duration::from_millis(world.now_ms - issued_ms)),
            None => unknown(&mut seen.oldest_wait, "nothing waits"),
        }
    } else {
        // Clients keep connections open that no request is on.
        let idle_sockets = world.setup.clients.len().min(3) as u32;
        seen.waiting = Waiting { at_least: 0, at_most: waiting + idle_sockets };
        unknown(&mut seen.oldest_wait, "no gateway");
    }
    seen.failures = std::mem::take(&mut world.failures);
    seen.successes = world.runners.iter_mut().map(|runner| std::mem::take(&mut runner.served)).sum();
}

fn blank(world: &World, runner: &Runner) -> RunnerSeen {
    let class = world.setup.class;
    RunnerSeen {
        id: runner.id,
        kind: match class {
            Class::Llama => RunnerKind::LlamaServer,
            Class::Mlx => RunnerKind::Mlx,
            Class::Gateway | Class::Blind => RunnerKind::OllamaRunner,
        },
        model: Known::Is(world.setup.models[runner.model].name.clone()),
        belongs: Belonging::Unknown,
        started: runner.started,
        state: ProcessState::Alive,
        cpu: Known::unknown("not looked yet"),
        footprint_bytes: Known::Is(9_000_000_000),
        health: Health::Unknown,
        slots: Known::unknown(if class == Class::Llama { "no answer yet" } else { "this generation has no slots" }),
        decode_total: Known::unknown("this runner has no such counter"),
        log_progress: None,
        paged_in_bytes_per_s: Some(0.0),
        finished: Vec::new(),
        listed: Known::unknown("not asked yet"),
        tickets: None,
        gateway_bytes: None,
    }
}

fn see_runner(world: &mut World, number: usize, seen: &mut RunnerSeen) {
    let setup = &world.setup;
    let runner = &world.runners[number];
    let loading = matches!(runner.phase, Phase::Loading { .. });
    let silent = runner.silent_left_s > 0.0 || runner.frozen.is_some_and(|look| look.silent || look.stopped);
    seen.belongs = runner.owned.then_some(world.server.id).flatten().map_or(Belonging::LeftBehind, Belonging::Server);
    seen.state = match runner.frozen {
        Some(look) if look.stopped => ProcessState::Stopped,
        Some(_) | None if runner.is_dead() => ProcessState::Gone,
        Some(_) | None => ProcessState::Alive,
    };
    if setup.sights.cpu_unknown {
        unknown(&mut seen.cpu, "not permitted");
    } else {
        seen.cpu = Known::Is(Duration::from_secs_f64(runner.cpu_s));
    }
    seen.health = match (silent || runner.is_dead(), loading) {
        (true, _) => Health::Silent,
        (false, true) => Health::Loading,
        (false, false) => Health::Ok,
    };
    // Now and then an answer is lost.
    let lost = world.random.chance(0.0002);
    if lost {
        seen.health = Health::Unknown;
    }
    see_listing(world, number, seen);
    let runner = &world.runners[number];
    match world.setup.class {
        Class::Llama => {
            let late = world.setup.sights.slots_wait_for_batch
                && runner.is_busy()
                && (runner.frozen.is_some() || world.now_ms > runner.stepped_ms + 1_000);
            if silent || loading || lost || late || runner.is_dead() {
                unknown(&mut seen.slots, "no answer in time");
                unknown(&mut seen.decode_total, "no answer in time");
            } else {
                see_slots(runner, &mut seen.slots);
                if !world.setup.sights.no_decode_counter {
                    seen.decode_total = Known::Is(runner.decode_total);
                }
            }
            seen.finished.clone_from(&runner.finished);
        }
        Class::Mlx => {
            // The line at the end of a request says nothing of its tokens; what was told before it is over.
            let ended = runner.finished.last();
            seen.log_progress =
                runner.log_progress.filter(|line| ended.is_none_or(|request| request.at.unix_ms < line.at.unix_ms));
        }
        Class::Gateway => {
            let now_ms = world.now_ms;
            let read = |request: &&Request| !request.gone && !request.is_unread(now_ms);
            seen.tickets = Some(runner.requests().filter(read).count() as u32);
            // Of an answer that comes as a whole, or that nobody reads, the bytes say nothing.
            let told = |request: &Request| request.streams && !request.is_unread(now_ms);
            seen.gateway_bytes = runner.requests().all(told).then_some(runner.bytes);
            seen.finished.clone_from(&runner.finished);
        }
        Class::Blind => {}
    }
}

fn see_listing(world: &World, number: usize, seen: &mut RunnerSeen) {
    let runner = &world.runners[number];
    if !world.server.ps_answers {
        unknown(&mut seen.listed, "no answer in time");
        return;
    }
    // A model that is being loaded is not listed.
    let listed = runner.listed && runner.owned && !matches!(runner.phase, Phase::Loading { .. });
    let ahead_ms = |at_ms: u64| world.wall().unix_ms - world.now_ms as i64 + at_ms as i64;
    let until = match (runner.unload_asked_ms, world.setup.models[runner.model].keep_alive_s) {
        (Some(asked_ms), _) => Wall::from_unix_ms(ahead_ms(asked_ms)),
        (None, Some(keep_s)) => Wall::from_unix_ms(ahead_ms(runner.busy_until_ms) + (keep_s * 1_000.0) as i64),
        (None, None) => NEVER,
    };
    seen.listed = Known::Is(if listed { Listing::Until(until) } else { Listing::Absent });
}

fn see_slots(runner: &Runner, seen: &mut Known<Vec<SlotSeen>>) {
    let slots = runner.slots.iter().enumerate().map(|(number, slot)| {
        let busy = slot.request.is_some();
        SlotSeen {
            id: number as u32,
            task: busy.then_some(slot.task),
            busy,
            prompt_tokens_done: if busy { slot.done } else { 0 },
            prompt_tokens_cached: if busy { slot.cached } else { 0 },
            tokens_generated: if busy { slot.generated } else { 0 },
            prompt_tokens_total: None,
        }
    });
    match seen {
        Known::Is(old) => {
            old.clear();
            old.extend(slots);
        }
        Known::Unknown(_) => *seen = Known::Is(slots.collect()),
    }
}

fn unknown<T>(value: &mut Known<T>, reason: &str) {
    if value.known().is_some() || value.reason() != Some(reason) {
        *value = Known::unknown(reason);
    }
}

/// Whether anything is under way, as far as a watcher can tell; it looks more often then.
pub fn shows_work(seen: &Observation, before: &[(Identity, Duration)], span_s: f64) -> bool {
    seen.server.waiting.at_least > 0
        || seen.server.loading
        || !seen.server.answers
        || seen.runners.iter().any(|runner| {
            let busy = runner.slots.known().is_none_or(|slots| slots.iter().any(|slot| slot.busy));
            let slots = runner.kind == RunnerKind::LlamaServer;
            let cpu = runner.cpu.known().is_none_or(|cpu| {
                let earlier = before.iter().find(|(id, _)| *id == runner.id).map_or(Duration::ZERO, |(_, cpu)| *cpu);
                cpu.saturating_sub(earlier).as_secs_f64() > 0.02 * span_s
            });
            let prompt = runner
                .log_progress
                .and_then(|log| Some(log.prompt_tokens_done + 1 < log.prompt_tokens_total?))
                .unwrap_or(false);
            (slots && busy) || prompt || runner.tickets.is_some_and(|tickets| tickets > 0) || cpu
        })
}
