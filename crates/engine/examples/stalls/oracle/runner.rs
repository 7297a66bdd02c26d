//! When one runner is provably stalled.

use super::speeds::{Prefilled, Speeds};
use super::{Clock, Model};
use crate::envelope;
use stablehand_engine::process::{Identity, RunnerKind};
use stablehand_engine::stall::evidence::{
    FinishedRequest, Health, Listing, LogProgress, ProcessState, RunnerSeen, SlotSeen,
};

/// Answers of at most one token that a model which writes text does not give in a row.
const EMPTY_ANSWERS: usize = envelope::ONE_TOKEN_ANSWERS + 1;

/// What is remembered of a runner.
pub struct RunnerWatch {
    pub id: Identity,
    pub model: usize,
    /// The last movement of anything, and of the slots.
    moved: Mark,
    slots_moved: Mark,
    /// The last look that told something of the slots, once there was one.
    told: Clock,
    slots: Option<Vec<SlotSeen>>,
    /// A request has ended since then, so that others may have come and gone unseen.
    disturbed: bool,
    decode_total: Option<u64>,
    stretch: Option<Stretch>,
    log: Option<LogProgress>,
    /// The prompt that the log tells of has not ended.
    logged: bool,
    finished: Vec<FinishedRequest>,
    bytes: u64,
    tickets: u32,
    /// Since it last was empty it never held two requests; and bytes of the one in it have been seen.
    alone: bool,
    streaming: bool,
    writes_text: bool,
    /// Work done when each of these began.
    loading_s: f64,
    unlisted_s: f64,
    orphaned_s: f64,
}

/// Something happened between two looks.
#[derive(Clone, Copy)]
struct Mark {
    /// The look before it, and the work done until then.
    after_s: f64,
    after_work_s: f64,
    /// Work done at the look that showed it.
    work_s: f64,
}

/// A part of one prompt that was seen from batch to batch, alone in its runner.
struct Stretch {
    task: u64,
    began: Mark,
    last: Mark,
    stint: Prefilled,
    /// Tokens of the newest movement, which were whole batches if the prompt goes on.
    newest: Option<u64>,
    /// Speeds of this prompt alone, counted from its unknown beginning.
    own: Speeds,
}

impl RunnerWatch {
    pub fn new(seen: &RunnerSeen, model: usize, clock: Clock) -> Self {
        Self {
            id: seen.id,
            model,
            moved: Mark::at(clock),
            // What is under way at the first look may have begun long ago.
            slots_moved: Mark { after_s: f64::NEG_INFINITY, ..Mark::at(clock) },
            told: clock,
            slots: None,
            disturbed: false,
            decode_total: None,
            stretch: None,
            log: seen.log_progress,
            logged: false,
            finished: seen.finished.clone(),
            bytes: seen.gateway_bytes.unwrap_or(0),
            // Whatever is in it already may be more than one request.
            tickets: seen.tickets.unwrap_or(0),
            alone: seen.tickets == Some(0),
            streaming: false,
            writes_text: false,
            loading_s: clock.work_s,
            unlisted_s: clock.work_s,
            orphaned_s: clock.work_s,
        }
    }

    /// Takes in what moved. Returns how many steps fit no speed.
    pub fn learn(&mut self, clock: Clock, seen: &RunnerSeen, model: &mut Model) -> u32 {
        match seen.health {
            Health::Ok | Health::Silent => self.loading_s = clock.work_s,
            Health::Loading | Health::Unknown => {}
        }
        if seen.listed.known() != Some(&Listing::Absent) {
            self.unlisted_s = clock.work_s;
        }
        if seen.belongs.server().is_some() {
            self.orphaned_s = clock.work_s;
        }
        let ended = seen.finished != self.finished;
        if ended {
            self.finished.clone_from(&seen.finished);
            self.writes_text |= seen.finished.iter().any(|request| request.tokens_generated > 1);
            self.disturbed = true;
        }
        let misfits = match seen.kind {
            RunnerKind::LlamaServer => self.learn_slots(clock, seen, model),
            RunnerKind::Mlx => self.learn_log(clock, seen, model, ended),
            RunnerKind::OllamaRunner => {
                self.learn_bytes(clock, seen, ended);
                0
            }
        };
        if ended {
            self.moved = Mark::at(clock);
        }
        misfits
    }

    pub fn is_stalled(&self, clock: Clock, seen: &RunnerSeen, model: &Model) -> bool {
        if seen.state == ProcessState::Gone {
            return false;
        }
        let in_flight = self.busy().next().is_some() || self.logged || seen.tickets.is_some_and(|held| held > 0);
        if seen.state == ProcessState::Stopped && in_flight {
            return true;
        }
        // It ends a little after its server, and does nothing more.
        if seen.belongs.server().is_none() {
            return clock.work_s - self.orphaned_s > envelope::RUNNER_END_S;
        }
        if clock.work_s - self.loading_s > envelope::LOAD_S {
            return true;
        }
        // Not listed: it loads, or it ends.
        if clock.work_s - self.unlisted_s > envelope::LOAD_S + envelope::RUNNER_END_S {
            return true;
        }
        if self.answers_nothing() {
            return true;
        }
        let silent_s = clock.work_s - self.moved.work_s;
        let longest_s = match seen.kind {
            RunnerKind::LlamaServer => self.longest_by_slots(model),
            RunnerKind::Mlx => self.longest_by_log(model),
            RunnerKind::OllamaRunner => self.longest_by_bytes(),
        };
        // Without an answer from the slots a movement may have been missed: what was under way may have ended while
        // nothing answered, and the next step be under way since.
        let unseen = seen.kind == RunnerKind::LlamaServer && seen.slots.known().is_none();
        let (steps, unanswered_s) = if unseen { (2.0, envelope::UNANSWERED_S) } else { (1.0, 0.0) };
        longest_s.is_some_and(|longest_s| silent_s > longest_s * steps + unanswered_s)
    }

    fn busy(&self) -> impl Iterator<Item = &SlotSeen> {
        self.slots.iter().flatten().filter(|slot| slot.busy)
    }

    fn answers_nothing(&self) -> bool {
        let mut streak = self.finished.iter().rev().filter(|request| !request.cancelled);
        self.writes_text
            && (0..EMPTY_ANSWERS).all(|_| streak.next().is_some_and(|request| request.tokens_generated <= 1))
    }

    // 0.30 and newer.

    fn learn_slots(&mut self, clock: Clock, seen: &RunnerSeen, model: &mut Model) -> u32 {
        let mut misfits = 0;
        let counted = seen.decode_total.known().copied();
        if let (Some(now), Some(before)) = (counted, self.decode_total)
            && now != before
        {
            self.moved = Mark::between(self.told, clock);
        }
        self.decode_total = counted.or(self.decode_total);
        let Some(slots) = seen.slots.known() else { return 0 };
        if self.slots.as_ref() != Some(slots) {
            let moved = Mark::between(self.told, clock);
            if let Some(before) = self.slots.take() {
                misfits = self.learn_prompts(moved, clock, &before, slots, model);
                self.slots_moved = moved;
            }
            self.writes_text |= slots.iter().any(|slot| slot.tokens_generated > 1);
            self.slots = Some(slots.clone());
            self.moved = moved;
        }
        (self.told, self.disturbed) = (clock, false);
        misfits
    }

    fn learn_prompts(
        &mut self,
        moved: Mark,
        clock: Clock,
        old: &[SlotSeen],
        slots: &[SlotSeen],
        model: &mut Model,
    ) -> u32 {
        if self.disturbed && slots.len() > 1 {
            self.stretch = None;
        }
        let mut busy = slots.iter().filter(|slot| slot.busy);
        let only = busy.next().filter(|_| busy.next().is_none());
        let mut stint = Prefilled::default();
        let mut tokens = 0;
        for slot in slots.iter().filter(|slot| slot.busy) {
            let same = old.iter().find(|old| old.id == slot.id && old.busy && old.task == slot.task);
            let before = same.map_or(0, |same| same.prompt_tokens_done);
            let more = slot.prompt_tokens_done.saturating_sub(before);
            tokens += more;
            stint = stint.plus(Prefilled::batch((slot.prompt_tokens_cached + before) as f64, more));
        }
        let Some(slot) = only else {
            self.stretch = None;
            return if tokens == 0 { 0 } else { took_at_most(model, stint, self.slots_moved, clock) };
        };
        let task = slot.task.unwrap_or(0);
        let was_alone = old.iter().filter(|old| old.busy).all(|old| old.id == slot.id && old.task == slot.task);
        if tokens == 0 {
            if !was_alone {
                self.stretch = None;
            }
            return 0;
        }
        let goes_on = slot.tokens_generated == 0;
        let mut misfits = took_at_most(model, stint, self.slots_moved, clock);
        match &mut self.stretch {
            Some(stretch) if stretch.task == task && was_alone => {
                misfits += stretch.add(moved, clock, stint, tokens, goes_on, model);
            }
            Some(_) | None => {
                // The first batch may have come after an image, so a stretch begins behind it.
                self.stretch = (goes_on && was_alone && !self.disturbed).then(|| Stretch::new(task, moved, tokens));
            }
        }
        if !goes_on {
            self.stretch = None;
        }
        misfits
    }

    fn longest_by_slots(&self, model: &Model) -> Option<f64> {
        let busy = || self.busy();
        busy().next()?;
        let mut longest_s = 1.0 / envelope::GENERATION_TOKENS_PER_S.0;
        let images = busy().filter(|slot| slot.prompt_tokens_done == 0 && slot.tokens_generated == 0).count();
        longest_s += envelope::IMAGE_S * images as f64;
        let position = busy()
            .filter(|slot| slot.tokens_generated == 0)
            .map(|slot| slot.prompt_tokens_cached + slot.prompt_tokens_done);
        if let Some(position) = position.max() {
            let tokens = model.batches.largest().min(envelope::CONTEXT_TOKENS.saturating_sub(position));
            longest_s += model.speeds.longest_s(Prefilled::batch(position as f64, tokens)) * envelope::NOISE;
        }
        Some(longest_s)
    }

    // MLX. Its lines count what was not cached, so the position is known but for an offset.

    fn learn_log(&mut self, clock: Clock, seen: &RunnerSeen, model: &mut Model, ended: bool) -> u32 {
        let mut misfits = 0;
        if ended || seen.log_progress.is_none() {
            if self.logged {
                self.moved = Mark::at(clock);
            }
            self.logged = false;
            self.stretch = None;
        }
        if seen.log_progress != self.log
            && let Some(log) = seen.log_progress
        {
            let moved = Mark::between(self.told, clock);
            let before = self.log.filter(|old| {
                self.logged
                    && old.prompt_tokens_total == log.prompt_tokens_total
                    && old.prompt_tokens_done < log.prompt_tokens_done
            });
            let more = log.prompt_tokens_done - before.map_or(0, |old| old.prompt_tokens_done);
            let from = (log.prompt_tokens_done - more) as f64;
            let stint = Prefilled::batch(from, more);
            match (&mut self.stretch, before) {
                (Some(stretch), Some(_)) => {
                    // The offset only makes it slower: as it is, the stint is the least that was done in that time.
                    misfits += took_at_most(model, stint, stretch.last, clock);
                    stretch.add_own(moved, clock, stint);
                }
                _ => self.stretch = Some(Stretch::new(0, moved, more)),
            }
            // The line and the end of the request may have come between the same two looks.
            let over = ended && self.finished.last().is_some_and(|request| request.at.unix_ms >= log.at.unix_ms);
            self.logged = !over && log.prompt_tokens_total.is_some_and(|total| log.prompt_tokens_done + 1 < total);
            self.log = Some(log);
            self.moved = moved;
        }
        self.told = clock;
        misfits
    }

    fn longest_by_log(&self, model: &Model) -> Option<f64> {
        let log = self.log.filter(|_| self.logged)?;
        let total = log.prompt_tokens_total?;
        let tokens = model.batches.largest().min(total - log.prompt_tokens_done);
        let farthest = (envelope::CONTEXT_TOKENS - tokens.min(envelope::CONTEXT_TOKENS)) as f64;
        let anywhere_s = model.speeds.longest_s(Prefilled::batch(farthest, tokens));
        let here = Prefilled::batch(log.prompt_tokens_done as f64, tokens);
        let own_s = self.stretch.as_ref().map_or(f64::INFINITY, |stretch| stretch.own.longest_s(here));
        Some(anywhere_s.min(own_s) * envelope::NOISE)
    }

    // 0.24 and older with a gateway. Before the first byte of an answer a whole prompt may be under way, or, where the
    // client does not stream, a whole answer; nothing bounds that. Neither does anything while two requests are in it.

    fn learn_bytes(&mut self, clock: Clock, seen: &RunnerSeen, ended: bool) {
        let (Some(held), Some(bytes)) = (seen.tickets, seen.gateway_bytes) else {
            (self.alone, self.streaming) = (false, false);
            return;
        };
        if held == 0 {
            self.alone = true;
        } else if held > 1 {
            self.alone = false;
        }
        if held == 0 || ended || self.tickets == 0 {
            // Bytes in this interval may belong to the request before.
            self.streaming = false;
        } else if bytes != self.bytes {
            self.streaming = self.alone;
        }
        if bytes != self.bytes || held != self.tickets {
            self.moved = Mark::at(clock);
        }
        (self.tickets, self.bytes) = (held, bytes);
    }

    fn longest_by_bytes(&self) -> Option<f64> {
        let one_streams = self.alone && self.streaming && self.tickets == 1;
        one_streams.then_some(1.0 / envelope::GENERATION_TOKENS_PER_S.0)
    }
}

impl Stretch {
    fn new(task: u64, began: Mark, newest: u64) -> Self {
        let own = Speeds::any_from_somewhere();
        Self { task, began, last: began, stint: Prefilled::default(), newest: Some(newest), own }
    }

    /// One more movement of the same prompt, alone in its runner.
    fn add(
        &mut self,
        moved: Mark,
        clock: Clock,
        stint: Prefilled,
        tokens: u64,
        goes_on: bool,
        model: &mut Model,
    ) -> u32 {
        let mut misfits = 0;
        // The movement before was not the last of the prompt.
        if let Some(whole) = self.newest.take() {
            misfits += u32::from(!model.batches.were_whole(whole));
        }
        self.stint = self.stint.plus(stint);
        misfits += took_at_most(model, self.stint, self.began, clock);
        if goes_on {
            for (stint, since) in [(stint, self.last), (self.stint, self.began)] {
                // It ended after the look before, at the earliest.
                let least_s = (moved.after_work_s - since.work_s) / envelope::NOISE;
                misfits += u32::from(!model.speeds.took_at_least(stint, least_s));
            }
            self.newest = Some(tokens);
        }
        self.last = moved;
        misfits
    }

    /// The same for a prompt whose beginning lies somewhere.
    fn add_own(&mut self, moved: Mark, clock: Clock, stint: Prefilled) {
        self.stint = self.stint.plus(stint);
        for (stint, since) in [(stint, self.last), (self.stint, self.began)] {
            self.own.took_at_most(stint, (clock.now_s - since.after_s) * envelope::NOISE);
            self.own.took_at_least(stint, (moved.after_work_s - since.work_s) / envelope::NOISE);
        }
        self.last = moved;
    }
}

fn took_at_most(model: &mut Model, stint: Prefilled, since: Mark, clock: Clock) -> u32 {
    u32::from(!model.speeds.took_at_most(stint, (clock.now_s - since.after_s) * envelope::NOISE))
}

impl Mark {
    fn at(clock: Clock) -> Self {
        Self { after_s: clock.before_s, after_work_s: clock.work_before_s, work_s: clock.work_s }
    }

    /// Between the last look that told something and now.
    fn between(told: Clock, clock: Clock) -> Self {
        Self { after_s: told.now_s, after_work_s: told.work_s, work_s: clock.work_s }
    }
}
