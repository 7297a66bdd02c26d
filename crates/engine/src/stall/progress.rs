//! What moved in a runner between two looks.

use super::evidence::{FinishedRequest, LogProgress, SlotSeen};
use crate::time::{Awake, Wall};
use std::collections::BTreeMap;

/// What moved.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Movement {
    /// Any counter moved, a request came or went: the runner works.
    pub any: bool,
    /// Prompt tokens done.
    pub prompt_tokens: u64,
    /// Tokens generated.
    pub tokens: u64,
    /// A step of a prompt whose time can be told.
    pub step: Option<StepSeen>,
}

/// One or more batches of one prompt, seen as one step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct StepSeen {
    /// Position of its first token, or at least this.
    pub from: u64,
    /// Whether that is the position.
    pub from_sure: bool,
    /// Its tokens.
    pub tokens: u64,
    /// Its start lies between these two looks …
    pub began: (Awake, Awake),
    /// … and its end between these.
    pub ended: (Awake, Awake),
    /// It was the first of its prompt.
    pub first: bool,
    /// It has the size of the one before it.
    pub repeats: bool,
}

/// The slots of one runner as they were last readable.
#[derive(Clone, Debug, Default)]
pub(super) struct Slots {
    slots: BTreeMap<u32, SlotWatch>,
}

#[derive(Clone, Copy, Debug)]
struct SlotWatch {
    seen: SlotSeen,
    /// The looks between which it last moved; `None` while that was before the first look.
    moved: Option<(Awake, Awake)>,
    last_step: Option<u64>,
}

impl SlotWatch {
    fn reads_prompt(&self) -> bool {
        self.seen.busy && self.seen.tokens_generated == 0
    }

    fn position(&self) -> u64 {
        self.seen.prompt_tokens_cached.saturating_add(self.seen.prompt_tokens_done)
    }
}

/// A prompt that is being read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Reading {
    /// Tokens before the next batch.
    pub position: u64,
    /// Tokens done, without those from the cache.
    pub done: u64,
    /// Of how many, when known.
    pub total: Option<u64>,
    /// Size of the last step.
    pub last_step: Option<u64>,
}

impl Slots {
    /// Takes in the slots; `looks` are the look before and this one.
    pub(super) fn take_in(&mut self, looks: (Awake, Awake), seen: &[SlotSeen]) -> Movement {
        let mut movement = Movement { any: seen.len() != self.slots.len(), ..Movement::default() };
        let reading_before = self.slots.values().filter(|slot| slot.reads_prompt()).count();
        let mut next = BTreeMap::new();
        for slot in seen {
            let watch = match self.slots.get(&slot.id) {
                Some(before) => before.follow(looks, *slot, reading_before == 1, &mut movement),
                None => SlotWatch { seen: *slot, moved: None, last_step: None },
            };
            next.insert(slot.id, watch);
        }
        self.slots = next;
        movement
    }

    /// How many are busy; `None` when they were never readable.
    pub(super) fn busy(&self) -> Option<u32> {
        if self.slots.is_empty() {
            return None;
        }
        u32::try_from(self.slots.values().filter(|slot| slot.seen.busy).count()).ok()
    }

    /// The prompts that are being read, the farthest first.
    pub(super) fn reading(&self) -> Vec<Reading> {
        let mut reading: Vec<Reading> = self
            .slots
            .values()
            .filter(|slot| slot.reads_prompt())
            .map(|slot| Reading {
                position: slot.position(),
                done: slot.seen.prompt_tokens_done,
                total: slot.seen.prompt_tokens_total,
                last_step: slot.last_step,
            })
            .collect();
        reading.sort_by_key(|reading| std::cmp::Reverse(reading.position));
        reading
    }

    /// The busy slot that has generated most: its count and its position.
    pub(super) fn generating(&self) -> Option<(u64, u64)> {
        self.slots
            .values()
            .filter(|slot| slot.seen.busy && slot.seen.tokens_generated > 0)
            .map(|slot| (slot.seen.tokens_generated, slot.position().saturating_add(slot.seen.tokens_generated)))
            .max()
    }

    /// Whether any busy slot has generated more than one token.
    pub(super) fn has_generated(&self) -> bool {
        self.generating().is_some_and(|(tokens, _)| tokens > 1)
    }
}

impl SlotWatch {
    fn follow(&self, looks: (Awake, Awake), now: SlotSeen, alone: bool, movement: &mut Movement) -> Self {
        let before = &self.seen;
        if before.task != now.task || before.busy != now.busy || now.prompt_tokens_done < before.prompt_tokens_done {
            movement.any = true;
            // What a new task has done already began between the two looks.
            let step = (now.busy && now.prompt_tokens_done > 0).then_some(now.prompt_tokens_done);
            movement.prompt_tokens += step.unwrap_or(0);
            movement.tokens += if now.busy { now.tokens_generated } else { 0 };
            return Self { seen: now, moved: Some(looks), last_step: step };
        }
        let prompt = now.prompt_tokens_done.saturating_sub(before.prompt_tokens_done);
        let tokens = now.tokens_generated.saturating_sub(before.tokens_generated);
        if prompt == 0 && tokens == 0 && now == *before {
            return *self;
        }
        movement.any |= prompt > 0 || now.tokens_generated != before.tokens_generated;
        movement.prompt_tokens += prompt;
        movement.tokens += tokens;
        if prompt == 0 && tokens == 0 {
            return Self { seen: now, ..*self };
        }
        if let Some(began) = self.moved
            && prompt > 0
            && alone
            && self.reads_prompt()
        {
            movement.step = Some(StepSeen {
                from: self.position(),
                from_sure: true,
                tokens: prompt,
                began,
                ended: looks,
                first: before.prompt_tokens_done == 0,
                repeats: self.last_step == Some(prompt),
            });
        }
        let last_step = if prompt > 0 { Some(prompt) } else { self.last_step };
        Self { seen: now, moved: Some(looks), last_step }
    }
}

/// What the log tells of a runner's prompts.
#[derive(Clone, Debug, Default)]
pub(super) struct LogLines {
    last: Option<LogProgress>,
    /// The looks between which the newest line came; `None` while that was before the first look.
    moved: Option<(Awake, Awake)>,
    /// A prompt was begun; neither its end nor the end of its request was told.
    unfinished: bool,
    /// Steps of the present prompt: tokens done before it, seconds per token at most.
    steps: Vec<(u64, f64)>,
    last_step: Option<u64>,
}

impl LogLines {
    /// Takes in the newest line; at the first sight of a runner it may be old. `finished` is the end of the newest
    /// request, when one has ended since the last look.
    pub(super) fn take_in(
        &mut self,
        looks: (Awake, Awake),
        seen: Option<LogProgress>,
        finished: Option<Wall>,
    ) -> Movement {
        let first_sight = looks.0 == looks.1;
        let mut movement = Movement::default();
        if finished.is_some() {
            self.unfinished = false;
            movement.any = true;
        }
        let Some(line) = seen else {
            // The request that was told of is over, or whose the lines are cannot be told any more: none is known.
            movement.any |= std::mem::take(&mut self.unfinished);
            self.steps.clear();
            return movement;
        };
        let same = |last: LogProgress| {
            last.prompt_tokens_done == line.prompt_tokens_done
                && last.prompt_tokens_total == line.prompt_tokens_total
                && last.tokens_generated == line.tokens_generated
                && last.at == line.at
        };
        if self.last.is_some_and(same) {
            return movement;
        }
        let first_look = self.last.is_none();
        let goes_on = self.last.filter(|last| {
            self.unfinished
                && last.prompt_tokens_total == line.prompt_tokens_total
                && line.prompt_tokens_done > last.prompt_tokens_done
        });
        movement.any = true;
        match goes_on {
            Some(last) => {
                let tokens = line.prompt_tokens_done - last.prompt_tokens_done;
                movement.prompt_tokens = tokens;
                if let Some(began) = self.moved {
                    movement.step = Some(StepSeen {
                        from: last.prompt_tokens_done,
                        from_sure: false,
                        tokens,
                        began,
                        ended: looks,
                        first: false,
                        repeats: self.last_step == Some(tokens),
                    });
                    let seconds = looks.1.since(began.0).as_secs_f64();
                    self.steps.push((last.prompt_tokens_done, seconds / tokens_f64(tokens)));
                }
                self.last_step = Some(tokens);
            }
            None => {
                self.steps.clear();
                self.last_step = None;
                movement.prompt_tokens = if first_look { 0 } else { line.prompt_tokens_done };
                let generated = self.last.map_or(0, |last| last.tokens_generated);
                movement.tokens = line.tokens_generated.saturating_sub(generated);
            }
        }
        // The last prompt token is left to the first step of generation (x/mlxrunner/pipeline.go).
        let read = line.prompt_tokens_total.is_some_and(|total| line.prompt_tokens_done.saturating_add(1) >= total);
        // Both lines may have come since the last look; the later one counts.
        let over = finished.is_some_and(|ended| ended >= line.at);
        self.unfinished = !read && line.tokens_generated == 0 && line.prompt_tokens_total.is_some() && !over;
        self.last = Some(line);
        self.moved = (!first_sight).then_some(looks);
        movement
    }

    /// The prompt that was begun and not finished.
    pub(super) fn reading(&self) -> Option<Reading> {
        let last = self.last.filter(|_| self.unfinished)?;
        Some(Reading {
            position: last.prompt_tokens_done,
            done: last.prompt_tokens_done,
            total: last.prompt_tokens_total,
            last_step: self.last_step,
        })
    }

    /// Steps of the present prompt: tokens done before it, seconds per token at most.
    pub(super) fn steps(&self) -> &[(u64, f64)] {
        &self.steps
    }
}

/// The streak of short answers of one runner.
#[derive(Clone, Debug, Default)]
pub(super) struct Answers {
    last: Option<FinishedRequest>,
    /// Successive finished requests of at most one token, cancelled ones passed over.
    pub short: usize,
}

/// What is new among the finished requests.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Finished {
    /// When the newest ended, if there are new ones.
    pub newest: Option<Wall>,
    /// One of them generated text.
    pub text: bool,
    /// The longest streak of short answers that a longer one ended: asking for one token is somebody's habit.
    pub harmless: usize,
}

impl Answers {
    /// Takes in the finished requests.
    pub(super) fn take_in(&mut self, finished: &[FinishedRequest]) -> Finished {
        let known = self.last.and_then(|last| finished.iter().rposition(|request| *request == last));
        let new = &finished[known.map_or(0, |index| index + 1)..];
        let mut told = Finished { newest: new.last().map(|request| request.at), ..Finished::default() };
        for request in new.iter().filter(|request| !request.cancelled) {
            if request.tokens_generated > 1 {
                told.harmless = told.harmless.max(self.short);
                told.text = true;
                self.short = 0;
            } else {
                self.short += 1;
            }
        }
        if let Some(last) = finished.last() {
            self.last = Some(*last);
        }
        told
    }
}

#[expect(clippy::cast_precision_loss, reason = "token counts lie far below 2^52")]
pub(super) fn tokens_f64(tokens: u64) -> f64 {
    tokens as f64
}
