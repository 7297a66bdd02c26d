//! The watch over one life of a runner: what moved, how long it has been silent, how it is listed.

mod judging;
mod unloading;

use super::envelope::{FAMILIAR_SPAN, PAGING_TAIL, UNSEEN_INTERVAL};
use super::evidence::{Health, MachineSeen, ProcessState, RunnerSeen, ServerSeen};
use super::fact::Pattern;
use super::prediction::{Measured, Prediction};
use super::progress::{Answers, LogLines, Movement, Slots, tokens_f64};
use super::verdict::Verdict;
use super::watcher::Paging;
use crate::process::Belonging;
use crate::time::{Awake, Now};
use std::collections::VecDeque;
use std::time::Duration;
use unloading::Stay;

/// The span between two observations.
#[derive(Clone, Copy, Debug)]
pub(super) struct Interval {
    /// The look before.
    pub before: Awake,
    /// This look.
    pub now: Now,
    /// Whether memory was or may have been paged in between.
    pub paging: Paging,
}

impl Interval {
    /// How much silence it counts for.
    pub fn silence(&self) -> Duration {
        self.now.awake.since(self.before).min(UNSEEN_INTERVAL)
    }

    /// How much of it honest work may have had, were it slowed as much as paging can.
    pub fn worked(&self) -> Duration {
        self.paging.weigh(self.silence())
    }

    fn looks(&self) -> (Awake, Awake) {
        (self.before, self.now.awake)
    }
}

/// What a runner's judgement needs to know of its surroundings.
#[derive(Clone, Copy, Debug)]
pub(super) struct Around<'a> {
    pub now: Now,
    pub machine: &'a MachineSeen,
    pub server: &'a ServerSeen,
    pub paging: Paging,
    /// Other runners that have work.
    pub sharers: u32,
    /// The longest honest batch of them.
    pub others_batch: Duration,
    /// How long ago the machine woke, within its grace.
    pub woke: Option<Duration>,
}

/// The watch over one life.
#[derive(Clone, Debug)]
pub(super) struct RunnerWatch {
    pub(super) seen: RunnerSeen,
    first_seen: Awake,
    /// It was once ready to work.
    ready: bool,
    loading_for: Duration,
    slots: Slots,
    slots_readable: bool,
    /// When they were last readable.
    slots_read_at: Awake,
    log: LogLines,
    answers: Answers,
    /// Bytes of the one answer that is in it came.
    bytes_came: bool,
    /// More than one request was in it since it last had none: whose bytes come cannot be told.
    mixed: bool,
    /// Since the last progress: when, and awake time that passed since, and how much of it work may have had.
    progress_at: Awake,
    silence: Duration,
    worked: Duration,
    /// The same of the time before the last sleeps, as long as nothing moved in between.
    before_wake: (Duration, Duration),
    /// It has made progress since the machine woke.
    moved_since_wake: bool,
    /// When its own pages were last read back.
    paged_at: Option<(Awake, Paging)>,
    paged_in_silence: Paging,
    decode_at_progress: Option<u64>,
    cpu_in_silence: VecDeque<(Awake, Duration)>,
    gpu_idle_for: Duration,
    gpu_idle_looks: u32,
    health_silent_for: Duration,
    health_silent_looks: u32,
    stopped_for: Duration,
    stopped_looks: u32,
    orphan_for: Duration,
    footprint_still_for: Duration,
    stay: Stay,
    /// Tokens generated in all, at each look of the last half minute of pure generation.
    rate_window: VecDeque<(Awake, u64)>,
    generated: u64,
    last_s_per_token: Option<f64>,
    verdict: Option<(Verdict, Awake)>,
}

const CPU_SAMPLES: usize = 128;
const RATE_SPAN: Duration = Duration::from_secs(30);
const RATE_SPAN_LEAST: Duration = Duration::from_secs(5);

impl RunnerWatch {
    pub(super) fn new(now: Now, seen: RunnerSeen) -> Self {
        let mut watch = Self {
            first_seen: now.awake,
            ready: false,
            loading_for: Duration::ZERO,
            slots: Slots::default(),
            slots_readable: false,
            slots_read_at: now.awake,
            log: LogLines::default(),
            answers: Answers::default(),
            bytes_came: false,
            mixed: seen.tickets.is_some_and(|tickets| tickets > 0),
            progress_at: now.awake,
            silence: Duration::ZERO,
            worked: Duration::ZERO,
            before_wake: (Duration::ZERO, Duration::ZERO),
            moved_since_wake: true,
            paged_at: None,
            paged_in_silence: Paging::RuledOut,
            decode_at_progress: None,
            cpu_in_silence: VecDeque::new(),
            gpu_idle_for: Duration::ZERO,
            gpu_idle_looks: 0,
            health_silent_for: Duration::ZERO,
            health_silent_looks: 0,
            stopped_for: Duration::ZERO,
            stopped_looks: 0,
            orphan_for: Duration::ZERO,
            footprint_still_for: Duration::ZERO,
            stay: Stay::default(),
            rate_window: VecDeque::new(),
            generated: 0,
            last_s_per_token: None,
            verdict: None,
            seen,
        };
        let looks = (now.awake, now.awake);
        if let Some(slots) = watch.seen.slots.known() {
            watch.slots.take_in(looks, slots);
            watch.slots_readable = true;
        }
        watch.log.take_in(looks, watch.seen.log_progress, None);
        watch.answers.take_in(&watch.seen.finished);
        watch.ready = watch.seen.health == Health::Ok;
        watch.stay.take_in(now, Duration::ZERO, &watch.seen.listed, true);
        watch.begin_silence(now.awake);
        watch
    }

    /// The machine woke, or something else makes every silence so far meaningless.
    pub(super) fn forgive(&mut self, now: Awake) {
        self.moved_since_wake = false;
        let before_wake = (self.before_wake.0 + self.silence, self.before_wake.1 + self.worked);
        self.health_silent_for = Duration::ZERO;
        self.health_silent_looks = 0;
        self.stopped_for = Duration::ZERO;
        self.stopped_looks = 0;
        self.orphan_for = Duration::ZERO;
        self.loading_for = Duration::ZERO;
        self.stay.forgive(now);
        self.rate_window.clear();
        self.begin_silence(now);
        self.before_wake = before_wake;
    }

    /// What a new observation says of its own pages; it goes on for a while, since a rate is an average.
    pub(super) fn paging(&mut self, now: Awake, seen: &RunnerSeen) -> Paging {
        let paging = Paging::of_runner(seen);
        if paging != Paging::RuledOut {
            self.paged_at = Some((now, paging));
        }
        self.paged(now)
    }

    /// Whether its own pages are or may be read back.
    pub(super) fn paged(&self, now: Awake) -> Paging {
        match self.paged_at {
            Some((at, paging)) if now.since(at) < PAGING_TAIL => paging,
            Some(_) | None => Paging::RuledOut,
        }
    }

    /// Whether a request is known to be in it.
    pub(super) fn has_work(&self) -> bool {
        match self.slots.busy() {
            Some(busy) if busy > 0 || self.seen.slots.known().is_some() => busy > 0,
            Some(_) | None => self.seen.tickets.is_some_and(|tickets| tickets > 0) || self.log.reading().is_some(),
        }
    }

    /// Takes in an observation and learns from it what honest work of this model looks like.
    pub(super) fn take_in(
        &mut self,
        interval: &Interval,
        seen: &RunnerSeen,
        machine: &MachineSeen,
        alone: bool,
        prediction: &mut Prediction,
    ) {
        let had_work = self.has_work();
        let tokens_before = self.generated;
        let movement = self.movement(interval, seen, prediction);
        let slots_looked_at = seen.slots.known().is_some();
        // A runner that was not asked says nothing; one that was asked and did not answer does.
        let looked = slots_looked_at || seen.health != Health::Unknown || !self.slots_readable;
        self.slots_readable |= slots_looked_at;
        let calm = interval.paging == Paging::RuledOut && machine.throttled != Some(true) && alone;
        if movement.any && had_work && self.seen.health != Health::Loading {
            self.learn(interval, &movement, seen, machine, prediction);
        }
        self.count_conditions(interval, seen, machine);
        self.seen.clone_from(seen);
        self.follow_rate(interval.now.awake, tokens_before, calm, prediction);
        if self.slots.has_generated() {
            prediction.learn_generated(0);
        }
        let idle = !self.has_work();
        if movement.any || idle && slots_looked_at {
            self.moved_since_wake |= movement.any;
            self.begin_silence(interval.now.awake);
            self.ready |= movement.any;
        } else if looked {
            self.silence += interval.silence();
            self.worked += interval.worked();
            if interval.paging != Paging::RuledOut {
                self.paged_in_silence = interval.paging;
            }
            self.sample_cpu(interval.now.awake);
        }
        self.stay.take_in(interval.now, interval.worked(), &seen.listed, movement.any);
    }

    fn movement(&mut self, interval: &Interval, seen: &RunnerSeen, prediction: &mut Prediction) -> Movement {
        let mut movement = match seen.slots.known() {
            Some(slots) => {
                // What moved did so since they were last readable, not since the last look.
                let looks = (self.slots_read_at, interval.now.awake);
                self.slots_read_at = interval.now.awake;
                self.slots.take_in(looks, slots)
            }
            None => Movement::default(),
        };
        let finished = self.answers.take_in(&seen.finished);
        if finished.text {
            prediction.learn_generated(finished.harmless);
        }
        let logged = self.log.take_in(interval.looks(), seen.log_progress, finished.newest);
        movement.any |= logged.any || finished.newest.is_some();
        if self.slots.busy().is_none() {
            movement.prompt_tokens += logged.prompt_tokens;
            movement.tokens += logged.tokens;
            movement.step = logged.step;
        }
        let decoded = |runner: &RunnerSeen| runner.decode_total.known().copied();
        movement.any |= matches!((decoded(&self.seen), decoded(seen)), (Some(before), Some(now)) if before != now);
        let bytes = match (self.seen.gateway_bytes, seen.gateway_bytes) {
            (Some(before), Some(now)) => now.saturating_sub(before),
            (None, Some(_)) | (Some(_) | None, None) => 0,
        };
        let (held_before, held) = (self.seen.tickets.unwrap_or(0), seen.tickets.unwrap_or(0));
        self.mixed = held > 1 || self.mixed && held > 0;
        movement.any |= bytes > 0 || held != held_before;
        let untold = seen.gateway_bytes.is_none();
        if finished.newest.is_some() || held == 0 || held_before == 0 || self.mixed || untold {
            // Bytes in this interval may belong to another request.
            self.bytes_came = false;
        } else if bytes > 0 {
            self.bytes_came = true;
            if self.slots.busy().is_none() {
                // A token has some bytes; nothing more is read into their number than that one was generated.
                movement.tokens += 1;
            }
        }
        self.generated += movement.tokens;
        movement
    }

    fn learn(
        &mut self,
        interval: &Interval,
        movement: &Movement,
        seen: &RunnerSeen,
        machine: &MachineSeen,
        prediction: &mut Prediction,
    ) {
        let paged = interval.paging != Paging::RuledOut || self.paged_in_silence != Paging::RuledOut;
        prediction.learn_gaps(movement.tokens);
        if let Some(step) = movement.step {
            let at_most = step.ended.1.since(step.began.0);
            prediction.learn_step(Measured {
                from: step.from,
                from_sure: step.from_sure,
                tokens: step.tokens,
                at_most,
                at_least: step.ended.0.since(step.began.1),
                first: step.first,
                paged,
                repeats: step.repeats,
            });
            self.last_s_per_token = Some(at_most.as_secs_f64() / tokens_f64(step.tokens));
        } else if movement.prompt_tokens > 0 {
            prediction.learn_gaps(1);
        }
        let pattern = match (movement.prompt_tokens > 0, movement.tokens > 0) {
            (true, false) => Some(Pattern::Prefill),
            (false, true) => Some(Pattern::Decode),
            (true, true) | (false, false) => None,
        };
        let began = self.cpu_in_silence.front().copied();
        if let (Some(pattern), Some((at, before)), Some(cpu)) = (pattern, began, seen.cpu.known()) {
            let span = interval.now.awake.since(at);
            if span >= Duration::from_millis(500) {
                let cores = cpu.saturating_sub(before).as_secs_f64() / span.as_secs_f64();
                prediction.profile.learn(pattern, cores, machine.gpu_percent);
            }
        }
    }

    fn count_conditions(&mut self, interval: &Interval, seen: &RunnerSeen, machine: &MachineSeen) {
        let worked = interval.worked();
        count(seen.health == Health::Silent, worked, &mut self.health_silent_for, &mut self.health_silent_looks);
        let stopped = seen.state == ProcessState::Stopped;
        count(stopped, interval.silence(), &mut self.stopped_for, &mut self.stopped_looks);
        let gpu_idle = machine.gpu_percent.is_some_and(|percent| percent <= super::profile::GPU_IDLE_PERCENT);
        count(gpu_idle, interval.silence(), &mut self.gpu_idle_for, &mut self.gpu_idle_looks);
        count(seen.belongs == Belonging::LeftBehind, worked, &mut self.orphan_for, &mut 0);
        count(seen.health == Health::Loading, worked, &mut self.loading_for, &mut 0);
        let footprint = |runner: &RunnerSeen| runner.footprint_bytes.known().copied();
        let still = footprint(seen).is_some() && footprint(seen) <= footprint(&self.seen);
        count(still, worked, &mut self.footprint_still_for, &mut 0);
        if seen.health == Health::Ok {
            self.ready = true;
        }
    }

    fn follow_rate(&mut self, now: Awake, tokens_before: u64, calm: bool, prediction: &mut Prediction) {
        if self.slots.generating().is_none() || !self.slots.reading().is_empty() {
            self.rate_window.clear();
            return;
        }
        if self.rate_window.is_empty() && self.generated == tokens_before {
            return;
        }
        self.rate_window.push_back((now, self.generated));
        while self.rate_window.len() > 2 && self.rate_window.front().is_some_and(|(at, _)| now.since(*at) > RATE_SPAN) {
            self.rate_window.pop_front();
        }
        if calm && let Some(rate) = self.rate() {
            prediction.learn_rate(rate);
        }
    }

    /// Tokens generated per second, over all slots.
    fn rate(&self) -> Option<f64> {
        let (first, last) = (self.rate_window.front()?, self.rate_window.back()?);
        let span = last.0.since(first.0);
        (span >= RATE_SPAN_LEAST).then(|| tokens_f64(last.1 - first.1) / span.as_secs_f64())
    }

    fn begin_silence(&mut self, now: Awake) {
        self.progress_at = now;
        self.silence = Duration::ZERO;
        self.worked = Duration::ZERO;
        self.before_wake = (Duration::ZERO, Duration::ZERO);
        self.paged_in_silence = Paging::RuledOut;
        self.decode_at_progress = self.seen.decode_total.known().copied();
        self.cpu_in_silence.clear();
        self.gpu_idle_for = Duration::ZERO;
        self.gpu_idle_looks = 0;
        self.sample_cpu(now);
    }

    fn sample_cpu(&mut self, now: Awake) {
        let Some(cpu) = self.seen.cpu.known() else { return };
        if self.cpu_in_silence.len() >= CPU_SAMPLES {
            // Every second sample goes, so that a long silence stays covered.
            let mut index = 0;
            self.cpu_in_silence.retain(|_| {
                index += 1;
                index % 2 == 1
            });
        }
        self.cpu_in_silence.push_back((now, *cpu));
    }

    /// CPU use in cores over the later half of the silence: its beginning may still have been honest work.
    fn cores_in_silence(&self) -> Option<f64> {
        let (end, _) = self.cpu_in_silence.back()?;
        self.cores_within(end.since(self.progress_at) / 2)
    }

    /// CPU use in cores over so much of the silence's end, or a little more.
    fn cores_within(&self, span: Duration) -> Option<f64> {
        let (end, used) = self.cpu_in_silence.back()?;
        let (start, before) = self.cpu_in_silence.iter().rev().find(|(at, _)| end.since(*at) >= span)?;
        let span = end.since(*start);
        (span >= FAMILIAR_SPAN / 2).then(|| used.saturating_sub(*before).as_secs_f64() / span.as_secs_f64())
    }
}

fn count(holds: bool, span: Duration, total: &mut Duration, looks: &mut u32) {
    if holds {
        // The first look that shows a condition says nothing of the time before it.
        *total += if *looks == 0 && total.is_zero() { Duration::from_nanos(1) } else { span };
        *looks = looks.saturating_add(1);
    } else {
        *total = Duration::ZERO;
        *looks = 0;
    }
}
