//! Loading and the decode loop. Prompts go in batches that freeze every other
//! slot, tokens come one by one, all in world time.

use std::collections::VecDeque;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use serde_json::json;
use tokio::sync::mpsc;

use super::arguments::Kind;
use super::{Runner, RunnerFault, output, say};

/// Largest number of prompt tokens in one step.
const BATCH: u64 = 2048;
/// Real time between two looks at the fault notes.
const GLANCE: Duration = Duration::from_millis(10);
/// Real time that one step of generating should take at least.
const LEAST_STEP: Duration = Duration::from_millis(4);

/// A request in a slot.
#[derive(Debug)]
pub struct Task {
    /// Number of the task.
    pub id: u64,
    /// Tokens of the prompt.
    pub prompt: u64,
    /// Tokens of the prompt handed to a batch so far.
    pub taken: u64,
    /// Tokens of the prompt processed.
    pub processed: u64,
    /// Tokens generated.
    pub decoded: u64,
    /// Tokens to generate.
    pub limit: u64,
    /// Whether the limit came from the request.
    pub limited: bool,
    /// World time spent on the prompt, ms.
    pub prompt_ms: f64,
    /// World time spent generating, ms.
    pub generate_ms: f64,
    /// Where the events go; closed when the client left.
    pub events: mpsc::UnboundedSender<String>,
}

/// One slot.
#[derive(Debug)]
pub struct Slot {
    /// What it works on.
    pub task: Option<Task>,
}

/// Sums for `/metrics`.
#[derive(Clone, Debug, Default)]
pub struct Totals {
    /// Prompt tokens processed.
    pub prompt_tokens: u64,
    /// World seconds spent on prompts.
    pub prompt_seconds: f64,
    /// Tokens generated.
    pub tokens: u64,
    /// World seconds spent generating.
    pub token_seconds: f64,
    /// Decode calls.
    pub decodes: u64,
    /// Longest sequence.
    pub longest: u64,
}

/// Slots, waiting requests and counters.
#[derive(Debug)]
pub struct State {
    /// Whether the model is loaded.
    pub ready: bool,
    /// Share of the load done, 0 to 1.
    pub progress: f64,
    /// Context of one slot.
    pub context: u64,
    /// The slots.
    pub slots: Vec<Slot>,
    /// Requests without a slot.
    pub deferred: VecDeque<Task>,
    /// Counters.
    pub totals: Totals,
    next_task: u64,
}

impl State {
    /// Empty slots.
    pub fn new(slots: u64, context: u64) -> Self {
        Self {
            ready: false,
            progress: 0.0,
            context,
            slots: (0..slots).map(|_| Slot { task: None }).collect(),
            deferred: VecDeque::new(),
            totals: Totals::default(),
            next_task: 0,
        }
    }

    /// Queues a request.
    pub fn enqueue(&mut self, mut task: Task) {
        task.id = self.next_task;
        self.next_task += 1;
        task.prompt = task.prompt.clamp(1, self.context.saturating_sub(4).max(1));
        let room = self.context.saturating_sub(task.prompt).max(1);
        task.limit = task.limit.min(room);
        self.deferred.push_back(task);
    }

    /// Number of busy slots.
    pub fn busy(&self) -> usize {
        self.slots.iter().filter(|slot| slot.task.is_some()).count()
    }
}

/// Loads the model, then decodes until the process is ended.
pub async fn load_and_decode(runner: &Runner, port: u16) -> ExitCode {
    let (slots, context) = {
        let state = runner.state();
        (state.slots.len() as u64, state.context)
    };
    let needed = runner.model.loaded_bytes(context, slots);
    if runner.kind == Kind::LlamaServer {
        output::say_load(runner, context, slots);
        if needed > runner.world.marker.gpu_working_set_bytes {
            say(&format!(
                "ggml_metal_buffer_type_alloc_buffer: error: failed to allocate buffer, size = {:.2} MiB\nsrv    load_model: failed to load model, '{}'\nsrv  llama_server: exiting due to model loading error",
                needed as f64 / 1_048_576.0,
                runner.model_path,
            ));
            return ExitCode::FAILURE;
        }
    }
    let steps = 20_u32;
    for step in 1..=steps {
        let part = Duration::from_millis(runner.model.load_ms) / steps;
        runner.world.clock.wait(part).await;
        runner.state().progress = f64::from(step) / f64::from(steps);
    }
    runner.state().ready = true;
    if runner.kind == Kind::LlamaServer {
        say("srv  llama_server: model loaded");
        say(&format!("srv  llama_server: listening on http://127.0.0.1:{port}"));
        say("srv  update_slots: all slots are idle");
    }
    let mut pace = Pace { due: Instant::now() };
    loop {
        tick(runner, &mut pace).await;
    }
}

/// Keeps steps at their world times although a step may be shorter than the
/// timer's grain.
struct Pace {
    due: Instant,
}

impl Pace {
    /// Spends `world`, working a little, and heeds faults on the way.
    async fn spend(&mut self, runner: &Runner, world: Duration) {
        let now = Instant::now();
        let oldest = now.checked_sub(Duration::from_millis(50)).unwrap_or(now);
        self.due = self.due.max(oldest) + runner.world.clock.real(world);
        loop {
            hold_while_faulty(runner).await;
            let now = Instant::now();
            if now >= self.due {
                tokio::task::yield_now().await;
                return;
            }
            let piece = (self.due - now).min(GLANCE);
            burn(piece.div_f64(12.0));
            tokio::time::sleep(piece.mul_f64(0.9)).await;
        }
    }
}

async fn tick(runner: &Runner, pace: &mut Pace) {
    hold_while_faulty(runner).await;
    drop_cancelled(runner);
    assign(runner);
    if RunnerFault::now(&runner.world) == Some(RunnerFault::EmptyReplies) {
        finish_empty(runner);
    }
    if runner.state().busy() == 0 {
        let notified = runner.work.notified();
        if runner.state().deferred.is_empty() {
            notified.await;
        }
        pace.due = Instant::now();
        return;
    }
    let filling = runner
        .state()
        .slots
        .iter()
        .position(|slot| slot.task.as_ref().is_some_and(|task| task.processed < task.prompt));
    match filling {
        Some(slot) => fill(runner, pace, slot).await,
        None => generate(runner, pace).await,
    }
}

/// Stands still, or burns CPU, as long as such a fault is raised for this
/// process and a request is in a slot.
async fn hold_while_faulty(runner: &Runner) {
    loop {
        let fault = RunnerFault::now(&runner.world);
        if runner.state().busy() == 0 && runner.state().deferred.is_empty() {
            return;
        }
        match fault {
            Some(RunnerFault::DecodeLoopStuck) => {
                assign(runner);
                tokio::time::sleep(GLANCE).await;
            }
            Some(RunnerFault::BusyLoop) => {
                assign(runner);
                burn(GLANCE / 2);
                tokio::time::sleep(GLANCE / 2).await;
            }
            Some(RunnerFault::EmptyReplies) | None => return,
        }
    }
}

/// Works on the processor for a real time.
fn burn(time: Duration) {
    let until = Instant::now() + time;
    while Instant::now() < until {
        std::hint::spin_loop();
    }
}

fn drop_cancelled(runner: &Runner) {
    let mut state = runner.state();
    state.deferred.retain(|task| !task.events.is_closed());
    let mut left = false;
    for (id, slot) in state.slots.iter_mut().enumerate() {
        let gone = slot.task.take_if(|task| task.events.is_closed());
        if let Some(task) = gone
            && runner.kind == Kind::LlamaServer
        {
            left = true;
            say(&format!("srv          stop: cancel task, id_task = {}", task.id));
            output::say_release(id, &task);
        }
    }
    if left && state.busy() == 0 {
        say("srv  update_slots: all slots are idle");
    }
}

fn assign(runner: &Runner) {
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

fn finish_empty(runner: &Runner) {
    let mut state = runner.state();
    for id in 0..state.slots.len() {
        if let Some(mut task) = state.slots[id].task.take() {
            task.processed = task.prompt;
            task.taken = task.prompt;
            finish(runner, id, &task);
        }
    }
}

/// One batch of one prompt; the other slots wait.
async fn fill(runner: &Runner, pace: &mut Pace, id: usize) {
    let (batch, time) = {
        let mut state = runner.state();
        let Some(task) = state.slots[id].task.as_mut() else {
            return;
        };
        let batch = BATCH.min(task.prompt - task.processed);
        task.taken = task.processed + batch;
        let depth = 1.0 + task.processed as f64 / 32_768.0;
        let seconds = batch as f64 / runner.model.prefill_per_second * depth;
        (batch, Duration::from_secs_f64(seconds))
    };
    pace.spend(runner, time).await;
    let mut state = runner.state();
    let total = {
        let Some(task) = state.slots[id].task.as_mut() else {
            return;
        };
        task.processed += batch;
        task.prompt_ms += time.as_secs_f64() * 1000.0;
        match runner.kind {
            Kind::LlamaServer => output::say_progress(id, task),
            Kind::Mlx => say(&format!("Prompt processing progress processed={} total={}", task.processed, task.prompt)),
            Kind::Old => {}
        }
        task.prompt
    };
    state.totals.prompt_tokens += batch;
    state.totals.prompt_seconds += time.as_secs_f64();
    state.totals.decodes += batch.div_ceil(512);
    state.totals.longest = state.totals.longest.max(total);
}

/// One step of all generating slots.
async fn generate(runner: &Runner, pace: &mut Pace) {
    let busy = runner.state().busy() as u32;
    let crowd = 1.0 + 0.2 * f64::from(busy.saturating_sub(1));
    let token = Duration::from_secs_f64(crowd / runner.model.decode_per_second);
    let real = runner.world.clock.real(token).as_secs_f64().max(1e-6);
    let most = (LEAST_STEP.as_secs_f64() / real).ceil().clamp(1.0, 64.0) as u64;
    let step = runner
        .state()
        .slots
        .iter()
        .filter_map(|slot| slot.task.as_ref())
        .map(|task| task.limit.saturating_sub(task.decoded))
        .min()
        .unwrap_or(1)
        .clamp(1, most);
    let time = token * u32::try_from(step).unwrap_or(1);
    pace.spend(runner, time).await;
    let mut state = runner.state();
    for id in 0..state.slots.len() {
        let Some(mut task) = state.slots[id].task.take() else {
            continue;
        };
        if task.processed < task.prompt {
            state.slots[id].task = Some(task);
            continue;
        }
        let text = output::words(task.decoded, step);
        let before = task.decoded / 100;
        task.decoded += step;
        task.generate_ms += time.as_secs_f64() * 1000.0;
        let _ = task.events.send(json!({ "content": text, "stop": false }).to_string());
        state.totals.tokens += step;
        state.totals.token_seconds += time.as_secs_f64();
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
    state.totals.decodes += step;
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
        Kind::Mlx => say("peak memory size=\"12.34 GiB\""),
        Kind::Old => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task(prompt: u64, limit: u64) -> Task {
        let (events, _receiver) = mpsc::unbounded_channel();
        Task {
            id: 0,
            prompt,
            taken: 0,
            processed: 0,
            decoded: 0,
            limit,
            limited: true,
            prompt_ms: 0.0,
            generate_ms: 0.0,
            events,
        }
    }

    #[test]
    fn a_prompt_is_cut_to_the_context() {
        let mut state = State::new(1, 2048);
        state.enqueue(task(47_000, 500));
        assert_eq!(state.deferred[0].prompt, 2044);
        assert_eq!(state.deferred[0].limit, 4);
    }

    #[test]
    fn tasks_are_numbered_in_order() {
        let mut state = State::new(2, 2048);
        state.enqueue(task(1, 1));
        state.enqueue(task(1, 1));
        assert_eq!(state.deferred[1].id, 1);
        assert_eq!(state.busy(), 0);
    }
}
