//! What the raw lines of one runner tell: its requests from the prompt to the release.
//!
//! Requests are kept by slot and task, since a log may be joined in the middle of one, and lines may be missing. What a
//! line does not tell stays unknown: a request whose answer was not counted is not a request with an empty answer.

use super::threads::Threads;
use crate::log::{SlotEvent, SlotLine};
use stablehand_engine::stall::evidence::{FinishedRequest, LogProgress};
use stablehand_engine::time::Wall;
use std::collections::VecDeque;

/// A request whose prompt's length the log told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PromptInSlot {
    /// The slot.
    pub slot: u32,
    /// The runner's number of the request.
    pub task: i64,
    /// Tokens of the whole prompt.
    pub prompt_tokens: u64,
    /// How many of them came from the cache, where told.
    pub cached_tokens: Option<u64>,
}

/// What a line of a slot led to, for those who count over all runners.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Told {
    /// The length of a prompt.
    pub prompt_tokens: Option<u64>,
    /// A request ended by itself and without a token.
    pub empty_response: bool,
}

#[derive(Clone, Debug)]
struct Request {
    slot: u32,
    task: i64,
    prompt_tokens: Option<u64>,
    cached_tokens: Option<u64>,
    /// Share of the prompt that the slot's context began with.
    similarity: Option<f64>,
    in_threads: bool,
    done_tokens: u64,
    generated_tokens: Option<u64>,
    complete: bool,
    cancelled: bool,
}

/// Everything that one runner told.
#[derive(Clone, Debug, Default)]
pub(super) struct Voice {
    /// The least recent first.
    requests: VecDeque<Request>,
    /// What the next request of a slot shares with its context.
    similarities: Vec<(u32, f64)>,
    progress: Option<LogProgress>,
    finished: VecDeque<FinishedRequest>,
    pub threads: Threads,
}

const MOST_REQUESTS: usize = 64;
const MOST_FINISHED: usize = 8;

impl Voice {
    pub fn progress(&self) -> Option<LogProgress> {
        self.progress
    }

    /// The newest last.
    pub fn finished(&self) -> Vec<FinishedRequest> {
        self.finished.iter().copied().collect()
    }

    pub fn prompts(&self) -> Vec<PromptInSlot> {
        let told = |request: &Request| {
            let (slot, task, cached_tokens) = (request.slot, request.task, request.cached_tokens);
            request.prompt_tokens.map(|prompt_tokens| PromptInSlot { slot, task, prompt_tokens, cached_tokens })
        };
        self.requests.iter().filter_map(told).collect()
    }

    /// From here on the lines may be another runner's: what is under way cannot be followed to its end, and what is
    /// finished is no longer known to be the newest.
    pub fn interrupt(&mut self) {
        self.requests.clear();
        self.similarities.clear();
        self.finished.clear();
    }

    /// Progress of a prompt that a line tells as a whole (MLX).
    pub fn prompt_progress(&mut self, now: Wall, done_tokens: u64, prompt_tokens: u64) {
        self.progress = Some(LogProgress {
            at: now,
            prompt_tokens_done: done_tokens,
            prompt_tokens_total: Some(prompt_tokens),
            tokens_generated: 0,
        });
    }

    /// Nothing is under way any more that progress was told of.
    pub fn forget_progress(&mut self) {
        self.progress = None;
    }

    pub fn cancelled(&mut self, task: i64) {
        if let Some(request) = self.requests.iter_mut().rev().find(|request| request.task == task) {
            request.cancelled = true;
        }
    }

    /// The runner refused it: it does not end like a request.
    pub fn refused(&mut self, task: i64) {
        self.requests.retain(|request| request.task != task);
    }

    pub fn all_idle(&mut self) {
        self.requests.clear();
    }

    pub fn slot(&mut self, now: Wall, line: &SlotLine) -> Told {
        let mut told = Told::default();
        match line.event {
            SlotEvent::Chosen { similarity, .. } => {
                self.similarities.retain(|(slot, _)| *slot != line.slot);
                if self.similarities.len() < MOST_REQUESTS {
                    self.similarities.push((line.slot, similarity.clamp(0.0, 1.0)));
                }
            }
            SlotEvent::Launched => {
                self.begin(line);
            }
            SlotEvent::PromptMeasured { prompt_tokens } => {
                let known = self.find(line).filter(|request| request.prompt_tokens.is_none()).is_some();
                let request = if known { self.find(line) } else { Some(self.begin(line)) };
                if let Some(request) = request {
                    request.prompt_tokens = Some(prompt_tokens);
                }
                told.prompt_tokens = Some(prompt_tokens);
            }
            SlotEvent::PromptCached { context_tokens } => {
                let fresh = |request: &&mut Request| request.prompt_tokens.is_some() && request.cached_tokens.is_none();
                if let Some(request) = self.find(line).filter(fresh) {
                    request.cached_tokens = Some(context_tokens);
                    self.take_turn(now, line);
                }
            }
            SlotEvent::PromptProgress { done_tokens, .. } => {
                let request = self.find_or_begin(line);
                request.done_tokens = done_tokens;
                self.moved(now, line);
            }
            SlotEvent::PromptDone { prompt_tokens, .. } => {
                let request = self.find_or_begin(line);
                request.done_tokens = prompt_tokens;
                if let (Some(total), None) = (request.prompt_tokens, request.cached_tokens) {
                    request.cached_tokens = Some(total.saturating_sub(prompt_tokens));
                }
                self.take_turn(now, line);
                self.moved(now, line);
            }
            SlotEvent::Generating { generated_tokens, .. } => {
                self.find_or_begin(line).generated_tokens = Some(generated_tokens);
                self.moved(now, line);
            }
            SlotEvent::GenerationDone { generated_tokens, .. } => {
                let request = self.find_or_begin(line);
                (request.generated_tokens, request.complete) = (Some(generated_tokens), true);
                told.empty_response = generated_tokens == 0 && !request.cancelled;
                self.moved(now, line);
            }
            SlotEvent::Released { context_tokens, .. } => self.released(now, line, context_tokens),
        }
        told
    }

    fn released(&mut self, now: Wall, line: &SlotLine, context_tokens: u64) {
        self.take_turn(now, line);
        let Some(at) = self.requests.iter().rposition(|request| request.is(line)) else { return };
        let Some(request) = self.requests.remove(at) else { return };
        if let Some(prompt_tokens) = request.prompt_tokens {
            self.threads.ended(now, Some(line.slot), prompt_tokens, context_tokens);
        }
        // A request that was given up is not counted by the runner; what it left in the context is.
        let left = request.prompt_tokens.map(|prompt| context_tokens.saturating_sub(prompt));
        let generated = request.generated_tokens.or(left.filter(|_| request.cancelled));
        // Without its count it may be an embedding, which has no answer that could be empty.
        if let Some(tokens_generated) = generated.filter(|_| request.complete || request.cancelled) {
            if self.finished.len() == MOST_FINISHED {
                self.finished.pop_front();
            }
            self.finished.push_back(FinishedRequest { at: now, tokens_generated, cancelled: request.cancelled });
        }
    }

    /// Hands a prompt to the threads, once.
    fn take_turn(&mut self, now: Wall, line: &SlotLine) {
        let Some(request) = self.find(line).filter(|request| !request.in_threads) else { return };
        let Some(prompt_tokens) = request.prompt_tokens else { return };
        request.in_threads = true;
        // A model with a sliding window keeps nothing although the prompt is the same; its runner tells that apart.
        let similar = request.similarity.map_or(0, |similarity| (prompt_tokens as f64 * similarity) as u64);
        let shared = request.cached_tokens.unwrap_or(0).max(similar).min(prompt_tokens);
        self.threads.turn(now, Some(line.slot), prompt_tokens, shared);
    }

    fn moved(&mut self, now: Wall, line: &SlotLine) {
        let Some(request) = self.find(line) else { return };
        let cached = request.cached_tokens.unwrap_or(0);
        self.progress = Some(LogProgress {
            at: now,
            prompt_tokens_done: request.done_tokens,
            // What is done does not count what came from the cache.
            prompt_tokens_total: request.prompt_tokens.map(|total| total.saturating_sub(cached)),
            tokens_generated: request.generated_tokens.unwrap_or(0),
        });
    }

    fn find(&mut self, line: &SlotLine) -> Option<&mut Request> {
        self.requests.iter_mut().rev().find(|request| request.is(line))
    }

    fn find_or_begin(&mut self, line: &SlotLine) -> &mut Request {
        match self.requests.iter().rposition(|request| request.is(line)) {
            Some(at) => &mut self.requests[at],
            None => self.begin(line),
        }
    }

    /// A new request in that slot; the one before it is over, whatever was told of its end.
    fn begin(&mut self, line: &SlotLine) -> &mut Request {
        self.requests.retain(|request| !request.is(line));
        if self.requests.len() == MOST_REQUESTS {
            self.requests.pop_front();
        }
        let similarity = self.similarities.iter().position(|(slot, _)| *slot == line.slot);
        self.requests.push_back(Request {
            slot: line.slot,
            task: line.task,
            prompt_tokens: None,
            cached_tokens: None,
            similarity: similarity.map(|at| self.similarities.swap_remove(at).1),
            in_threads: false,
            done_tokens: 0,
            generated_tokens: None,
            complete: false,
            cancelled: false,
        });
        let last = self.requests.len() - 1;
        &mut self.requests[last]
    }
}

impl Request {
    fn is(&self, line: &SlotLine) -> bool {
        (self.slot, self.task) == (line.slot, line.task)
    }
}
