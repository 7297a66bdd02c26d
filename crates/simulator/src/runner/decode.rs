//! The decode loop. A step is one batch: tokens of prompts up to the batch's
//! size, and one token of every slot that generates; a prompt therefore holds
//! its neighbours up for a whole batch per token.

use std::process::ExitCode;
use std::time::Duration;

use serde_json::json;

use super::arguments::Kind;
use super::condition::Failing;
use super::pace::{Pace, Work, hold};
use super::record::Phase;
use super::slots::{Slot, State, Task};
use super::{Runner, output, say, say_info};

/// Real time that one step of generating should take at least.
const LEAST_STEP: Duration = Duration::from_millis(4);
/// World seconds per image, unless the world says otherwise.
const IMAGE_SECONDS: f64 = 1.4;
/// The last tokens of a prompt are a batch of their own.
const TAIL: u64 = 4;
/// Models with sliding layers stop once more before the tail, for a checkpoint.
const CHECKPOINT: u64 = 516;

/// Decodes until something ends the process.
pub async fn decode(runner: &Runner) -> ExitCode {
    let mut pace = Pace::new();
    loop {
        if let Some(code) = tick(runner, &mut pace).await {
            return code;
        }
    }
}

async fn tick(runner: &Runner, pace: &mut Pace) -> Option<ExitCode> {
    if hold(runner).await {
        pace.rest();
    }
    drop_cancelled(runner);
    runner.answer_questions();
    assign(runner);
    let condition = runner.condition();
    let (busy, requests) = {
        let state = runner.state();
        (state.busy(), state.requests())
    };
    if condition.corrupt && busy > 0 && requests > 1 {
        output::say_broken(runner.kind);
        return Some(ExitCode::FAILURE);
    }
    if condition.failing == Some(Failing::EmptyReplies) {
        finish_empty(runner);
    }
    if runner.state().busy() == 0 {
        runner.enter(Phase::Idle);
        let notified = runner.work.notified();
        let is_quiet = {
            let state = runner.state();
            state.deferred.is_empty() && state.questions.is_empty()
        };
        if is_quiet {
            notified.await;
        }
        pace.rest();
        return None;
    }
    let with_images =
        runner.state().slots.iter().position(|slot| slot.task.as_ref().is_some_and(|task| task.images > 0));
    let is_filling = runner.state().tasks().any(Task::is_filling);
    match with_images {
        Some(slot) => encode(runner, pace, slot).await,
        None if is_filling => fill(runner, pace).await,
        None => generate(runner, pace).await,
    }
    None
}

fn drop_cancelled(runner: &Runner) {
    let mut state = runner.state();
    state.deferred.retain(|task| !task.events.is_closed());
    let mut left = false;
    for (id, slot) in state.slots.iter_mut().enumerate() {
        let Some(task) = slot.task.take_if(|task| task.events.is_closed()) else {
            continue;
        };
        left = true;
        match runner.kind {
            Kind::LlamaServer => {
                say(&format!("srv          stop: cancel task, id_task = {}", task.id));
                output::say_release(id, &task);
            }
            Kind::Mlx => output::say_peak(runner),
            Kind::Old => {}
        }
    }
    if left && state.busy() == 0 && runner.kind == Kind::LlamaServer {
        say("srv  update_slots: all slots are idle");
    }
}

/// Gives waiting requests to free slots.
pub fn assign(runner: &Runner) {
    let mut state = runner.state();
    while let Some(free) = state.slots.iter().rposition(|slot| slot.task.is_none()) {
        let Some(task) = state.deferred.pop_front() else {
            return;
        };
        if runner.kind == Kind::LlamaServer {
            output::say_launch(free, &task, state.context);
        }
        state.slots[free].task = Some(task);
    }
}

/// A GPU that was reset generates the end of the answer at once, every time.
fn finish_empty(runner: &Runner) {
    let mut state = runner.state();
    for id in 0..state.slots.len() {
        if let Some(mut task) = state.slots[id].task.take() {
            task.processed = task.prompt;
            task.taken = task.prompt;
            task.images = 0;
            task.decoded = 1;
            task.limited = false;
            finish(runner, id, &task);
        }
    }
}

/// The images of one request; every slot waits.
async fn encode(runner: &Runner, pace: &mut Pace, id: usize) {
    runner.enter(Phase::Encoding);
    let seconds = runner.condition().image_seconds.unwrap_or(IMAGE_SECONDS);
    if runner.kind == Kind::LlamaServer {
        say("srv  process_chun: processing image...");
    }
    let took = pace.spend(runner, Duration::from_secs_f64(seconds), Work::Encode).await;
    if runner.kind == Kind::LlamaServer {
        say(&format!("srv  process_chun: image processed in {} ms", took.as_millis()));
    }
    let mut state = runner.state();
    if let Some(task) = state.slots[id].task.as_mut() {
        task.images -= 1;
        task.prompt_ms += took.as_secs_f64() * 1000.0;
    }
}

/// How many tokens of a prompt go into one batch that has room for `room`.
fn share_of_batch(runner: &Runner, task: &Task, room: u64) -> u64 {
    let left = task.prompt - task.processed;
    let stops: &[u64] = match runner.kind {
        Kind::LlamaServer if runner.model.sliding.is_some() => &[CHECKPOINT, TAIL],
        Kind::LlamaServer => &[TAIL],
        // The last token seeds the answer.
        Kind::Mlx => &[1],
        Kind::Old => &[],
    };
    let to_stop = stops.iter().find(|stop| left > **stop).map_or(left, |stop| left - stop);
    to_stop.min(room)
}

/// One batch of prompts. Generating slots get their token at its end.
async fn fill(runner: &Runner, pace: &mut Pace) {
    runner.enter(Phase::Prefill);
    let condition = runner.condition();
    let mut shares = Vec::new();
    let (time, generating) = {
        let mut state = runner.state();
        let generating = generating(&state);
        let mut room = runner.batch;
        let mut seconds = 0.0;
        for (id, slot) in state.slots.iter_mut().enumerate() {
            let Some(task) = slot.task.as_mut().filter(|task| task.is_filling()) else {
                continue;
            };
            let share = share_of_batch(runner, task, room);
            if share == 0 {
                continue;
            }
            room -= share;
            task.taken = task.processed + share;
            seconds += runner.model.prefill_seconds(task.processed, share) * condition.prefill;
            shares.push((id, task.id, share));
            if runner.kind == Kind::LlamaServer {
                output::say_cached(id, task);
            }
        }
        if state.requests() == 1 && state.totals.decodes == 0 {
            seconds += condition.paging_in_seconds / condition.slowness;
        }
        (Duration::from_secs_f64(seconds), generating)
    };
    let took = pace.spend(runner, time, Work::Prefill).await;
    let ms = took.as_secs_f64() * 1000.0;
    let mut state = runner.state();
    let busy = state.busy() as u64;
    for (id, number, share) in shares {
        let Some(task) = state.slots[id].task.as_mut().filter(|task| task.id == number) else {
            continue;
        };
        task.processed += share;
        task.prompt_ms += ms;
        match runner.kind {
            // A prompt that fits into one batch and its tail is not told of.
            Kind::LlamaServer if task.is_filling() && task.prompt > runner.batch => output::say_progress(id, task),
            Kind::Mlx if task.is_filling() => say_info(
                runner,
                "pipeline.go:150",
                "Prompt processing progress",
                &[("processed", &task.processed.to_string()), ("total", &task.prompt.to_string())],
            ),
            Kind::LlamaServer | Kind::Mlx | Kind::Old => {}
        }
        let prompt = task.prompt;
        state.totals.prompt_tokens += share;
        state.totals.longest = state.totals.longest.max(prompt);
    }
    state.totals.prompt_seconds += took.as_secs_f64();
    state.totals.decodes += 1;
    state.totals.busy_slots += busy;
    advance(runner, &mut state, &generating, 1, took);
}

/// One step of all generating slots, or a few at once where a step would be
/// shorter than the timer's grain.
async fn generate(runner: &Runner, pace: &mut Pace) {
    runner.enter(Phase::Generating);
    let busy = runner.state().busy() as u32;
    let crowd = 1.0 + 0.2 * f64::from(busy.saturating_sub(1));
    let token = Duration::from_secs_f64(crowd / runner.model.decode_per_second);
    let real = runner.world.clock.real(token.mul_f64(runner.condition().slowness)).as_secs_f64().max(1e-6);
    let most = (LEAST_STEP.as_secs_f64() / real).ceil().clamp(1.0, 64.0) as u64;
    let (step, generating) = {
        let state = runner.state();
        // A step ends where a line is due.
        let left =
            state.tasks().map(|task| (task.limit.saturating_sub(task.decoded)).min(100 - task.decoded % 100)).min();
        (left.unwrap_or(1).clamp(1, most), generating(&state))
    };
    let took = pace.spend(runner, token * u32::try_from(step).unwrap_or(1), Work::Decode).await;
    let mut state = runner.state();
    state.totals.decodes += step;
    state.totals.busy_slots += step * u64::from(busy);
    advance(runner, &mut state, &generating, step, took);
}

/// The slots whose prompts are done.
fn generating(state: &State) -> Vec<usize> {
    let is_done = |slot: &Slot| slot.task.as_ref().is_some_and(|task| !task.is_filling());
    state.slots.iter().enumerate().filter(|(_, slot)| is_done(slot)).map(|(id, _)| id).collect()
}

/// Gives `step` tokens to slots.
fn advance(runner: &Runner, state: &mut State, slots: &[usize], step: u64, took: Duration) {
    for id in slots.iter().copied() {
        let Some(mut task) = state.slots[id].task.take() else {
            continue;
        };
        let text = output::words(task.decoded, step);
        let before = task.decoded / 100;
        task.decoded += step;
        task.generate_ms += took.as_secs_f64() * 1000.0;
        let _ = task.events.send(json!({ "content": text, "stop": false }).to_string());
        state.totals.tokens += step;
        state.totals.token_seconds += took.as_secs_f64();
        state.totals.longest = state.totals.longest.max(task.prompt + task.decoded);
        if task.decoded / 100 > before && runner.kind == Kind::LlamaServer {
            output::say_speed(id, &task);
        }
        if task.decoded >= task.limit {
            finish(runner, id, &task);
        } else {
            state.slots[id].task = Some(task);
        }
    }
    if state.busy() == 0 && runner.kind == Kind::LlamaServer {
        say("srv  update_slots: all slots are idle");
    }
}

fn finish(runner: &Runner, id: usize, task: &Task) {
    let last = json!({
        "content": "",
        "stop": true,
        "stop_type": if task.limited { "limit" } else { "eos" },
        "tokens_predicted": task.decoded,
        "tokens_evaluated": task.prompt,
        "truncated": false,
        "timings": { "prompt_n": task.prompt, "prompt_ms": task.prompt_ms, "predicted_n": task.decoded, "predicted_ms": task.generate_ms },
    });
    let _ = task.events.send(last.to_string());
    match runner.kind {
        Kind::LlamaServer => output::say_end(id, task),
        Kind::Mlx => output::say_peak(runner),
        Kind::Old => {}
    }
}
