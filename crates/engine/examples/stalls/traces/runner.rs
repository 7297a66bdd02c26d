//! A runner: slots, and one decode loop that works through them step by step.

use super::setup::{Class, Fault, Look, Model, Moment, What};
use crate::envelope;
use crate::random::Random;
use stablehand_engine::process::Identity;
use stablehand_engine::stall::evidence::{FinishedRequest, LogProgress};
use stablehand_engine::time::Wall;
use std::collections::VecDeque;

/// Bytes of an answer per token.
const TOKEN_BYTES: u64 = 130;
/// What a GPU after its reset needs for an answer without text.
const EMPTY_ANSWER_S: f64 = 0.18;
/// How many finished requests an observation holds.
const FINISHED_SHOWN: usize = 8;

/// One request.
#[derive(Clone)]
pub struct Request {
    pub id: u64,
    pub client: usize,
    pub issued_ms: u64,
    pub leaves_ms: Option<u64>,
    pub cached: u64,
    pub new: u64,
    pub answer: u64,
    pub image_s: f64,
    pub streams: bool,
    /// Stops reading after so many tokens, for so long, and reads on or leaves.
    pub unread_after: Option<u64>,
    pub unread_ms: u64,
    pub unread_until_ms: Option<u64>,
    pub reads_on: bool,
    pub gone: bool,
}

/// A slot.
#[derive(Clone, Default)]
pub struct Slot {
    pub request: Option<Request>,
    pub task: u64,
    pub done: u64,
    pub cached: u64,
    pub generated: u64,
    image_left_s: f64,
}

/// What a process is doing.
#[derive(Clone, Copy, PartialEq)]
pub enum Phase {
    Loading {
        left_s: f64,
    },
    Serving,
    /// Told to unload.
    Ending {
        left_s: f64,
    },
    /// Ended by itself; `/api/ps` lists it until then or until the next request.
    Dead {
        left_s: f64,
    },
}

/// One step of the decode loop, with the work that is left of it.
enum Step {
    Image {
        slot: usize,
    },
    /// Prompt tokens per slot; each generating slot gets a token.
    Batch {
        parts: Vec<(usize, u64)>,
    },
    /// So many tokens for each generating slot.
    Tokens {
        count: u64,
    },
    /// An answer without text.
    Empty,
}

/// A model's process.
pub struct Runner {
    pub id: Identity,
    pub model: usize,
    pub started: Wall,
    pub phase: Phase,
    pub slots: Vec<Slot>,
    step: Option<(Step, f64)>,
    /// Steps completed, and when the last of them was.
    pub steps: u64,
    pub stepped_ms: u64,
    pub decode_total: u64,
    pub cpu_s: f64,
    pub gpu_percent: u32,
    /// Bytes that a gateway has seen, and that clients have read.
    pub bytes: u64,
    pub delivered: u64,
    pub finished: Vec<FinishedRequest>,
    /// Requests that it answered since the last look.
    pub served: u32,
    pub log_progress: Option<LogProgress>,
    pub frozen: Option<Look>,
    pub reset: bool,
    /// The server that it belongs to lives.
    pub owned: bool,
    /// `/api/ps` lists it.
    pub listed: bool,
    pub unload_asked_ms: Option<u64>,
    pub busy_until_ms: u64,
    pub silent_left_s: f64,
    tasks: u64,
    one_token_streak: usize,
}

/// What happens around a runner in one tick.
pub struct Turn<'a> {
    pub class: Class,
    pub now_ms: u64,
    pub wall: Wall,
    pub paging: bool,
    pub model: &'a Model,
    pub queue: &'a mut VecDeque<Request>,
    /// Clients whose request has ended.
    pub ended: &'a mut Vec<usize>,
    pub random: &'a mut Random,
    /// A fault that waits for its moment in this runner.
    pub fault: Option<&'a Fault>,
    /// Set when it has come.
    pub struck: &'a mut bool,
}

impl Runner {
    pub fn new(id: Identity, model_number: usize, model: &Model, started: Wall, phase: Phase) -> Self {
        Self {
            id,
            model: model_number,
            started,
            phase,
            slots: vec![Slot::default(); model.slots],
            step: None,
            steps: 0,
            stepped_ms: 0,
            decode_total: 0,
            cpu_s: 0.0,
            gpu_percent: 0,
            bytes: 0,
            delivered: 0,
            finished: Vec::new(),
            served: 0,
            log_progress: None,
            frozen: None,
            reset: false,
            owned: true,
            listed: true,
            unload_asked_ms: None,
            busy_until_ms: 0,
            silent_left_s: 0.0,
            tasks: 0,
            one_token_streak: 0,
        }
    }

    /// Requests in its slots.
    pub fn requests(&self) -> impl Iterator<Item = &Request> {
        self.slots.iter().filter_map(|slot| slot.request.as_ref())
    }

    pub fn is_dead(&self) -> bool {
        matches!(self.phase, Phase::Dead { .. })
    }

    pub fn is_busy(&self) -> bool {
        self.requests().next().is_some()
    }

    /// Works for so many seconds, `factor` times slower than without paging.
    pub fn advance(&mut self, seconds: f64, factor: f64, turn: &mut Turn<'_>) {
        if let Some(look) = self.frozen {
            self.cpu_s += seconds * look.cores * turn.random.between((0.9, 1.1));
            self.gpu_percent = look.gpu_percent;
            return;
        }
        if self.waits_for_reader(turn) {
            self.cpu_s += seconds * 0.003;
            self.gpu_percent = 0;
            self.busy_until_ms = turn.now_ms;
            return;
        }
        let mut left = seconds / factor;
        let mut worked = 0.0;
        let mut prefilled = 0.0;
        while left > 0.0 {
            if self.step.is_none() {
                self.step = self.begin(left, turn);
            }
            let Some((step, need)) = self.step.take() else { break };
            let prefill = matches!(step, Step::Batch { .. });
            let part = need.min(left);
            worked += part;
            if prefill {
                prefilled += part;
            }
            left -= part;
            if need > part {
                self.step = Some((step, need - part));
            } else {
                self.complete(step, turn);
            }
        }
        let share = if self.is_busy() { 1.0 } else { (worked * factor / seconds).min(1.0) };
        let cores = if prefilled * 2.0 > worked { turn.model.cpu.0 } else { turn.model.cpu.1 };
        // While pages are fetched the cores wait.
        self.cpu_s += seconds * (0.003 + share * cores / factor.sqrt() * turn.random.between((0.85, 1.15)));
        let full = turn.random.between((70.0, 100.0)) / factor;
        self.gpu_percent = if worked > 0.0 { (full * share) as u32 } else { 0 };
        if self.is_busy() || worked > 0.0 {
            self.busy_until_ms = turn.now_ms;
        }
        if self.frozen.is_some() {
            self.step = None;
        }
    }

    /// The older generation's loop hands tokens over one by one and stands while a client does not take them; the newer
    /// one writes into a buffer.
    fn waits_for_reader(&self, turn: &Turn<'_>) -> bool {
        let older = match turn.class {
            Class::Gateway | Class::Blind => true,
            Class::Llama | Class::Mlx => false,
        };
        older && self.requests().any(|request| !request.gone && request.is_unread(turn.now_ms))
    }

    /// Takes in what waits, and plans the next step: its kind and its work.
    fn begin(&mut self, left_s: f64, turn: &mut Turn<'_>) -> Option<(Step, f64)> {
        self.cancel_the_gone(turn);
        self.admit(turn);
        if !self.is_busy() {
            return None;
        }
        if let Some(look) = self.moment_of_fault(turn) {
            self.frozen = Some(look);
            *turn.struck = true;
            return None;
        }
        if self.reset {
            return Some((Step::Empty, EMPTY_ANSWER_S));
        }
        if let Some(slot) = self.slots.iter().position(|slot| slot.request.is_some() && slot.image_left_s > 0.0) {
            return Some((Step::Image { slot }, self.slots[slot].image_left_s));
        }
        let generating = self.slots.iter().filter(|slot| slot.is_generating()).count() as u64;
        let token_s = 1.0 / turn.model.generation_tokens_per_s * noise(turn.random);
        let mut room = turn.model.batch_tokens.saturating_sub(generating);
        let mut parts = Vec::new();
        let mut work = 0.0;
        for (number, slot) in self.slots.iter().enumerate() {
            let rest = slot.prompt_left();
            if rest > 0 && room > 0 {
                let tokens = rest.min(room);
                room -= tokens;
                work += prefill_s(turn.model, slot.cached + slot.done, tokens);
                parts.push((number, tokens));
            }
        }
        if !parts.is_empty() {
            let beside = if generating > 0 { token_s } else { 0.0 };
            return Some((Step::Batch { parts }, work * noise(turn.random) + beside));
        }
        let shortest = self.slots.iter().filter(|slot| slot.is_generating()).map(Slot::answer_left).min().unwrap_or(1);
        let count = ((left_s / token_s) as u64).clamp(1, shortest.max(1));
        Some((Step::Tokens { count }, token_s * count as f64))
    }

    fn complete(&mut self, step: Step, turn: &mut Turn<'_>) {
        self.steps += 1;
        self.stepped_ms = turn.now_ms;
        match step {
            Step::Image { slot } => self.slots[slot].image_left_s = 0.0,
            Step::Batch { parts } => {
                self.decode_total += 1;
                self.generate(1, turn);
                for (number, tokens) in parts {
                    self.slots[number].done += tokens;
                    self.log_prompt(number, turn);
                    self.end_prompt(number, turn);
                }
            }
            Step::Tokens { count } => {
                self.decode_total += count;
                self.generate(count, turn);
            }
            Step::Empty => {
                self.decode_total += 1;
                if let Some(number) = self.slots.iter().position(|slot| slot.request.is_some()) {
                    self.slots[number].done = self.slots[number].request.as_ref().map_or(0, |request| request.new);
                    self.finish(number, 0, false, turn);
                }
            }
        }
    }

    /// The MLX runner's line. It counts only what was not cached, and its last one stops a token before the total.
    fn log_prompt(&mut self, number: usize, turn: &Turn<'_>) {
        let slot = &self.slots[number];
        let Some(request) = &slot.request else { return };
        if turn.class == Class::Mlx && request.new > 1 {
            self.log_progress = Some(LogProgress {
                at: turn.wall,
                prompt_tokens_done: slot.done.min(request.new - 1),
                prompt_tokens_total: Some(request.new),
                tokens_generated: 0,
            });
        }
    }

    /// The first token comes out of the last batch of the prompt.
    fn end_prompt(&mut self, number: usize, turn: &mut Turn<'_>) {
        if self.slots[number].request.is_none() || self.slots[number].prompt_left() > 0 {
            return;
        }
        if turn.model.embedding {
            self.finish(number, 0, false, turn);
            return;
        }
        // A model that writes text does not end many requests in a row with one token.
        if let Some(request) = &mut self.slots[number].request
            && self.one_token_streak >= envelope::ONE_TOKEN_ANSWERS
        {
            request.answer = request.answer.max(2);
        }
        self.give_tokens(number, 1, turn);
    }

    fn generate(&mut self, count: u64, turn: &mut Turn<'_>) {
        for number in 0..self.slots.len() {
            if self.slots[number].is_generating() {
                self.give_tokens(number, count, turn);
            }
        }
    }

    fn give_tokens(&mut self, number: usize, count: u64, turn: &mut Turn<'_>) {
        let slot = &mut self.slots[number];
        slot.generated += count;
        let Some(request) = &mut slot.request else { return };
        if request.streams && !request.gone {
            self.bytes += count * TOKEN_BYTES;
            if request.unread_after.is_some_and(|after| slot.generated >= after) {
                let until_ms = turn.now_ms + request.unread_ms;
                (request.unread_after, request.unread_until_ms) = (None, Some(until_ms));
                if !request.reads_on {
                    request.leaves_ms = Some(until_ms);
                }
            }
            if !request.is_unread(turn.now_ms) {
                self.delivered += count * TOKEN_BYTES;
            }
        }
        if slot.answer_left() == 0 {
            let generated = slot.generated;
            self.finish(number, generated, false, turn);
        }
    }

    fn finish(&mut self, number: usize, tokens: u64, cancelled: bool, turn: &mut Turn<'_>) {
        let Some(request) = self.slots[number].request.take() else { return };
        if !request.gone && !cancelled {
            let bytes = if request.streams { TOKEN_BYTES } else { TOKEN_BYTES * (tokens + 1) };
            self.bytes += bytes;
            self.delivered += bytes;
        }
        if !cancelled {
            self.one_token_streak = if tokens <= 1 { self.one_token_streak + 1 } else { 0 };
        }
        if self.finished.len() == FINISHED_SHOWN {
            self.finished.remove(0);
        }
        self.served += u32::from(!cancelled);
        self.finished.push(FinishedRequest { at: turn.wall, tokens_generated: tokens, cancelled });
        if !request.gone {
            turn.ended.push(request.client);
        }
    }

    /// The loop looks between two steps whether a client has left.
    fn cancel_the_gone(&mut self, turn: &mut Turn<'_>) {
        for number in 0..self.slots.len() {
            if self.slots[number].request.as_ref().is_some_and(|request| request.gone) {
                let tokens = self.slots[number].generated;
                self.finish(number, tokens, true, turn);
            }
        }
    }

    fn admit(&mut self, turn: &mut Turn<'_>) {
        for number in 0..self.slots.len() {
            if self.slots[number].request.is_some() {
                continue;
            }
            let Some(request) = turn.queue.pop_front() else { return };
            self.tasks += turn.random.whole((1, 4));
            self.slots[number] = Slot {
                task: self.tasks,
                done: 0,
                cached: request.cached,
                generated: 0,
                image_left_s: request.image_s,
                request: Some(request),
            };
        }
    }

    fn moment_of_fault(&self, turn: &Turn<'_>) -> Option<Look> {
        let fault = turn.fault?;
        let What::Stuck { moment, look } = fault.what else { return None };
        let in_time = turn.now_ms as f64 >= fault.after_s * 1_000.0;
        if !in_time || fault.paging.is_some_and(|paging| paging != turn.paging) {
            return None;
        }
        let busy = || self.slots.iter().filter(|slot| slot.request.is_some());
        let prefills = |done| busy().any(|slot| slot.prompt_left() > 0 && slot.done >= done);
        let now = match moment {
            Moment::Prefill { done } => prefills(done),
            Moment::Generation => busy().any(|slot| slot.generated > 0) && busy().all(|slot| slot.prompt_left() == 0),
            Moment::FirstBatch => busy().any(|slot| slot.done == 0),
            Moment::Shared => prefills(1) && busy().any(|slot| slot.generated > 0),
        };
        now.then_some(look)
    }
}

impl Request {
    /// Its client does not read now.
    pub fn is_unread(&self, now_ms: u64) -> bool {
        self.unread_until_ms.is_some_and(|until_ms| now_ms < until_ms)
    }
}

impl Slot {
    fn prompt_left(&self) -> u64 {
        self.request.as_ref().map_or(0, |request| request.new.saturating_sub(self.done))
    }

    fn answer_left(&self) -> u64 {
        self.request.as_ref().map_or(0, |request| request.answer.max(1).saturating_sub(self.generated))
    }

    fn is_generating(&self) -> bool {
        self.request.is_some() && self.prompt_left() == 0
    }
}

/// Work of so many prompt tokens from a position on.
fn prefill_s(model: &Model, position: u64, tokens: u64) -> f64 {
    let middle = position as f64 + tokens as f64 / 2.0;
    let slower = 1.0 + (model.slowdown_at_end - 1.0) * middle / envelope::CONTEXT_TOKENS as f64;
    tokens as f64 / model.prefill_tokens_per_s * slower
}

fn noise(random: &mut Random) -> f64 {
    random.between((1.0 / envelope::NOISE, envelope::NOISE))
}
