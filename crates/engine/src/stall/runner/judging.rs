//! From what was seen of a runner to its verdict.

use super::{Around, Paging, RunnerWatch};
use crate::process::{Belonging, RunnerKind};
use crate::stall::envelope::{
    ANSWER_LATEST, BEYOND_ENVELOPE, CACHE_SAVE_LONGEST, END_LONGEST, FAMILIAR_SPAN, FAR_BEYOND, FAR_POSITION,
    GENERATION_SLOWEST_TOKENS_PER_S, IMAGE_LONGEST, LOAD_LONGEST, NOISE_FACTOR, NOISE_SPAN, SHARERS_COUNTED,
    THROTTLING_FACTOR, UNFAMILIAR_SPAN, WAKE_GRACE,
};
use crate::stall::evidence::{Health, Listing, ProcessState};
use crate::stall::fact::{Counter, Fact, Pattern, Step};
use crate::stall::prediction::{Bound, Prediction, Source};
use crate::stall::progress::Reading;
use crate::stall::span::from_seconds;
use crate::stall::verdict::{How, Judgement, Rung, Subject, Verdict, Why};
use std::mem::discriminant;
use std::time::Duration;

/// A debugger, or a stack sample taken as evidence, stops a process for a moment.
const STOPPED_LEAST: Duration = Duration::from_secs(10);
const STOPPED_LOOKS: u32 = 2;
/// `/health` is answered by threads of its own, whatever the decode loop does.
const HEALTH_SILENT_LEAST: Duration = Duration::from_secs(30);
const HEALTH_SILENT_LOOKS: u32 = 3;
/// A stay that ended while a request ran says nothing (`expires_at` is not moved while one runs).
const STAY_OVER_LONGEST: Duration = Duration::from_secs(600);
/// A model that is being loaded is not listed; one that was ready and is not listed has been unloaded.
const ABSENT_LONGEST: Duration = Duration::from_secs(LOAD_LONGEST.as_secs() + END_LONGEST.as_secs());
/// A runner that tells nothing, rests, and has requests waiting before it, is suspected after this long.
const UNTOLD_LONGEST: Duration = Duration::from_secs(300);
const GPU_IDLE_LEAST: Duration = Duration::from_secs(10);
const GPU_IDLE_LOOKS: u32 = 3;
/// A silence of honest work that is worth a word.
const QUIET_LEAST: Duration = Duration::from_secs(10);
/// CPU use, in cores, of a process that does nothing.
const CPU_AT_REST: f64 = 0.02;
/// From this position on, a context is called long.
const LONG_CONTEXT: u64 = 32_768;
/// A rate below this part of the usual one is called slow.
const SLOW_PART: f64 = 1.0 / 3.0;

type Told = (Verdict, Vec<Fact>, Option<Rung>);

/// How long a silence is honest, and against what it is measured.
struct Allowance {
    counter: Counter,
    value: u64,
    step: Step,
    honest: Duration,
    allowed: Duration,
    source: Source,
    least: Duration,
    pattern: Option<Pattern>,
    reasons: Vec<Fact>,
}

impl Allowance {
    /// How many times longer than allowed a silence needs no other sign.
    fn far_beyond(&self, paged: Paging) -> f64 {
        match (self.source, paged) {
            (Source::Predicted, Paging::RuledOut) => f64::from(FAR_BEYOND),
            // The greatest slowness that there is was granted already.
            (Source::Predicted, Paging::Possible(_) | Paging::Seen) | (Source::Envelope, _) => BEYOND_ENVELOPE,
        }
    }
}

impl RunnerWatch {
    /// The verdict on this look; `None` for a process that is gone and not listed.
    pub(in crate::stall) fn judge(&mut self, around: &Around<'_>, prediction: &Prediction) -> Option<Judgement> {
        let (verdict, evidence, may_recover) = self.tell(around, prediction)?;
        let since = match &self.verdict {
            Some((before, since)) if discriminant(before) == discriminant(&verdict) => *since,
            Some(_) | None => around.now.awake,
        };
        self.verdict = Some((verdict.clone(), since));
        let subject = Subject::Runner { id: self.seen.id, model: self.seen.model.clone() };
        Some(Judgement { subject, verdict, evidence, since, may_recover })
    }

    /// The longest honest time of the batch that it may be in now.
    pub(in crate::stall) fn batch_now(&self, prediction: &Prediction) -> Duration {
        match self.slots.reading().first() {
            Some(reading) => prediction.next_batch(reading.position).allowed,
            None if self.log.reading().is_some() => self.logged_bound(prediction).allowed,
            None => Duration::ZERO,
        }
    }

    fn tell(&self, around: &Around<'_>, prediction: &Prediction) -> Option<Told> {
        if self.seen.state == ProcessState::Gone {
            let listed = matches!(self.seen.listed.known(), Some(Listing::Until(_)));
            return listed.then(|| (Verdict::DeadButListed, vec![Fact::ListedThoughGone], None));
        }
        let work = self.has_work();
        if let Some(ago) = around.woke
            && !self.moved_since_wake
            && (work || self.is_unreadable())
        {
            return Some((Verdict::JustWoke, vec![Fact::Woke { ago }], None));
        }
        match self.seen.belongs {
            Belonging::Server(_) => {}
            Belonging::Elsewhere => {
                let why = "it runs below another server, which is not looked after here".to_owned();
                return Some((Verdict::Unknown { why }, vec![], None));
            }
            Belonging::LeftBehind if self.orphan_for > END_LONGEST + NOISE_SPAN => return Some(self.orphan(around)),
            Belonging::LeftBehind => {
                // It ends with its server; what is in its slots belongs to nobody any more.
                let why = "its server has ended, and it is about to".to_owned();
                return Some((Verdict::Unknown { why }, vec![Fact::ServerGone { span: self.orphan_for }], None));
            }
            Belonging::Unknown => {
                let why = "it was never seen below an Ollama server, so it may be somebody's own".to_owned();
                return Some((Verdict::Unknown { why }, vec![], None));
            }
        }
        if self.seen.state == ProcessState::Stopped
            && self.stopped_for >= STOPPED_LEAST
            && self.stopped_looks >= STOPPED_LOOKS
        {
            return Some(self.stopped(around));
        }
        if let Some(told) = self.loading(around) {
            return Some(told);
        }
        let allowance = self.allowance(around, prediction);
        let exceeded = self.exceeds(&allowance);
        if work && exceeded {
            return Some(self.silent(around, prediction, &allowance));
        }
        // A side that does not answer explains more than a stay that is over; it is told unless the stay alone has a rung.
        if let Some(told) = self.unloading(around, work)
            && (told.2.is_some() || !self.is_http_dead())
        {
            return Some(told);
        }
        if self.answers.short >= prediction.short_answers_suspected() && !self.is_told_by_log() {
            return Some(self.empty_replies(prediction));
        }
        if !work && self.is_unreadable() {
            return Some(self.unreadable(around, &allowance));
        }
        Some(if work { self.at_work(around, prediction, &allowance) } else { self.at_rest(around) })
    }

    /// A sleep gives the whole allowance anew; a machine that sleeps every few minutes gives it once.
    fn exceeds(&self, allowance: &Allowance) -> bool {
        let since_wake = self.worked > allowance.allowed && self.silence >= allowance.least;
        let in_all = self.worked.saturating_add(self.before_wake.1) > allowance.allowed.saturating_mul(2);
        since_wake || in_all && self.silence >= allowance.least.max(WAKE_GRACE)
    }

    /// Neither slots nor tickets nor log can say what it does.
    fn is_unreadable(&self) -> bool {
        self.seen.health == Health::Silent || self.slots_readable && self.seen.slots.known().is_none()
    }

    /// Requests that it finished are told only by the runner's own lines, which older kinds do not write.
    fn is_told_by_log(&self) -> bool {
        match self.seen.kind {
            RunnerKind::LlamaServer => false,
            RunnerKind::OllamaRunner | RunnerKind::Mlx => self.seen.gateway_bytes.is_none(),
        }
    }

    fn orphan(&self, around: &Around<'_>) -> Told {
        let mut evidence = vec![Fact::ServerGone { span: self.orphan_for }];
        evidence.extend(self.in_flight());
        // What still moves belongs to somebody: perhaps its server was only not recognised.
        let still = self.silence >= END_LONGEST || !self.has_work() && !self.is_unreadable();
        let rung = (still && around.woke.is_none()).then_some(Rung::EndRunner);
        (Verdict::Orphan, evidence, rung)
    }

    fn stopped(&self, around: &Around<'_>) -> Told {
        let mut evidence = vec![Fact::ProcessStopped { span: self.stopped_for }];
        evidence.extend(waiting(around));
        // Without a request somebody may have stopped it on purpose. A runner whose stay is over is ended by its server
        // unless a request is in it.
        let kept = self.stay.over().is_some_and(|(over, _)| over >= END_LONGEST);
        let needed = self.has_work()
            || kept
            || self.seen.tickets.is_some_and(|tickets| tickets > 0)
            || around.server.waiting.at_least > 0;
        evidence.push(self.in_flight().unwrap_or(Fact::NoRequestKnown));
        let rung = (needed && around.woke.is_none()).then_some(Rung::EndRunner);
        (Verdict::Hung { how: How::ProcessStopped }, evidence, rung)
    }

    fn loading(&self, around: &Around<'_>) -> Option<Told> {
        let told = self.seen.health == Health::Loading;
        let young = !self.ready && around.server.loading && !self.has_work();
        if !told && !young {
            return None;
        }
        let span = around.now.awake.since(self.first_seen);
        let mut evidence = vec![Fact::Loading { span, honest: LOAD_LONGEST }];
        evidence.extend(paging(around.paging, around));
        let spent = if told { self.loading_for } else { self.worked };
        let allowed = LOAD_LONGEST + NOISE_SPAN;
        if spent <= allowed {
            return Some((Verdict::Loading { span }, evidence, None));
        }
        // Such a load is no honest one any more, and the server's own time-out for it (`OLLAMA_LOAD_TIMEOUT`) has not
        // come. A disk may be slower than any envelope, so its memory must stand still as well.
        let still = self.footprint_still_for >= LOAD_LONGEST;
        if told && still && spent > allowed * FAR_BEYOND && around.woke.is_none() {
            evidence.push(Fact::FarBeyond { times: f64::from(FAR_BEYOND) });
            evidence.push(Fact::FootprintStill { span: self.footprint_still_for });
            return Some((Verdict::Hung { how: How::Load }, evidence, Some(Rung::EndRunner)));
        }
        Some((Verdict::Suspect { silence: span, allowed: span.saturating_sub(spent) + allowed }, evidence, None))
    }

    fn silent(&self, around: &Around<'_>, prediction: &Prediction, allowance: &Allowance) -> Told {
        let mut evidence = vec![Fact::Still {
            counter: allowance.counter,
            from: allowance.value,
            to: allowance.value,
            silence: self.silence.saturating_add(self.before_wake.0),
            step: allowance.step,
            honest: allowance.honest,
        }];
        let http_dead = self.is_http_dead();
        let mut signs = self.signs(prediction, allowance.pattern);
        let times = allowance.far_beyond(self.paged_in_silence);
        let far_beyond = self.worked.as_secs_f64() > allowance.allowed.as_secs_f64() * times
            && self.silence >= UNFAMILIAR_SPAN * FAR_BEYOND;
        if far_beyond {
            signs.push(Fact::FarBeyond { times });
        }
        let signed = http_dead || signs.iter().any(is_sign);
        evidence.append(&mut signs);
        if http_dead {
            evidence.push(Fact::HealthSilent { span: self.health_silent_for });
        }
        evidence.extend(waiting(around));
        evidence.extend(self.in_flight());
        evidence.extend(allowance.reasons.iter().cloned());
        if !signed {
            evidence.push(Fact::NoIndependentSign);
        }
        // An answer is an independent sign; a side that does not answer and was asked too little is none against it.
        let unsure = self.seen.health == Health::Silent && !http_dead;
        if !signed || unsure || around.woke.is_some() || around.server.loading && self.slots.busy().is_none() {
            let allowed = allowance.least.max(self.silence.saturating_sub(self.worked) + allowance.allowed);
            let silence = self.silence;
            return (Verdict::Suspect { silence, allowed }, evidence, None);
        }
        let asked = self.stay.over().is_some_and(|(over, asked)| asked && over >= END_LONGEST);
        if asked {
            evidence.push(Fact::UnloadAsked);
            return (Verdict::StuckUnloading, evidence, Some(Rung::EndRunner));
        }
        let busy_loop = self.cores_in_silence().is_some_and(|cores| prediction.profile.is_beyond(cores));
        let how = match (http_dead, busy_loop) {
            (true, _) => How::HttpDead,
            (false, true) => How::BusyLoop,
            (false, false) => How::DecodeLoop,
        };
        (Verdict::Hung { how }, evidence, Some(Rung::EndRunner))
    }

    fn is_http_dead(&self) -> bool {
        self.seen.health == Health::Silent
            && self.health_silent_for >= HEALTH_SILENT_LEAST
            && self.health_silent_looks >= HEALTH_SILENT_LOOKS
    }

    /// What speaks for a fault besides the silence itself, and CPU use in any case.
    fn signs(&self, prediction: &Prediction, pattern: Option<Pattern>) -> Vec<Fact> {
        let mut signs = vec![];
        match (self.decode_at_progress, self.seen.decode_total.known()) {
            (Some(before), Some(now)) if before == *now => signs.push(Fact::DecodeCounterStill { value: *now }),
            (Some(_) | None, _) => (),
        }
        if self.gpu_idle_for >= GPU_IDLE_LEAST && self.gpu_idle_looks >= GPU_IDLE_LOOKS && prediction.profile.uses_gpu()
        {
            signs.push(Fact::GpuIdle { percent: crate::stall::profile::GPU_IDLE_PERCENT });
        }
        if let Some(cores) = self.cores_in_silence() {
            let unlike = prediction.profile.is_unlike(pattern, cores).then(|| pattern.unwrap_or(Pattern::Decode));
            signs.push(Fact::Cpu { percent: percent(cores), unlike });
        }
        signs
    }

    fn unloading(&self, around: &Around<'_>, work: bool) -> Option<Told> {
        if let Some(span) = self.stay.absent() {
            // A runner that tells nothing shows by its listing alone that its load is behind it.
            let loaded = self.ready || self.stay.was_listed();
            let left = span >= END_LONGEST * 2 && !work && loaded && !around.server.loading && self.rests_since(span);
            let sure =
                span > ABSENT_LONGEST + NOISE_SPAN && around.woke.is_none() && self.seen.tickets.unwrap_or(0) == 0;
            let rung = sure.then_some(Rung::EndRunner);
            return left.then(|| (Verdict::StuckUnloading, vec![Fact::NotListed { span }], rung));
        }
        let (span, asked) = self.stay.over()?;
        // Honest work keeps a model for as long as it takes; whether there is any must be known.
        let at_rest = !work && self.is_at_rest();
        if !at_rest || span < if asked { END_LONGEST } else { STAY_OVER_LONGEST } {
            return None;
        }
        let mut evidence = vec![Fact::StayOver { span }];
        if asked {
            evidence.push(Fact::UnloadAsked);
        }
        evidence.extend(waiting(around));
        let wanted = asked || around.server.waiting.at_least > 0;
        let rung = (wanted && around.woke.is_none() && self.seen.tickets.unwrap_or(0) == 0).then_some(Rung::EndRunner);
        Some((Verdict::StuckUnloading, evidence, rung))
    }

    /// It is known to do nothing: its slots are free, or its process rests.
    fn is_at_rest(&self) -> bool {
        match self.seen.slots.known() {
            Some(_) => self.slots.busy() == Some(0),
            None => self.silence >= END_LONGEST && self.cores_in_silence().is_some_and(|cores| cores <= CPU_AT_REST),
        }
    }

    /// The same of the last two minutes for which it was not listed: what it did before says nothing of now.
    fn rests_since(&self, span: Duration) -> bool {
        match self.seen.slots.known() {
            Some(_) => self.slots.busy() == Some(0),
            None => {
                let span = span.min(self.silence).min(END_LONGEST * 2);
                span >= END_LONGEST && self.cores_within(span).is_some_and(|cores| cores <= CPU_AT_REST)
            }
        }
    }

    fn empty_replies(&self, prediction: &Prediction) -> Told {
        let mut evidence = vec![Fact::EmptyReplies { count: self.answers.short }];
        let rung = if prediction.has_generated() {
            Some(Rung::Unload)
        } else {
            evidence.push(Fact::NeverGenerated);
            None
        };
        (Verdict::EmptyReplies, evidence, rung)
    }

    fn unreadable(&self, around: &Around<'_>, allowance: &Allowance) -> Told {
        let why = self.seen.slots.reason().unwrap_or("its HTTP side does not answer").to_owned();
        let mut evidence = vec![Fact::NotRead { what: "slots", why: why.clone() }];
        if self.seen.health == Health::Silent {
            evidence.push(Fact::HealthSilent { span: self.health_silent_for });
        }
        evidence.extend(waiting(around));
        evidence.push(Fact::NoRequestKnown);
        let dead = self.is_http_dead() && self.health_silent_for >= END_LONGEST;
        let overdue = self.worked > allowance.allowed && self.silence >= allowance.least;
        if dead && overdue && around.server.waiting.at_most > 0 && around.woke.is_none() {
            // Whatever was in it would have ended by now, and whoever comes to it will not be heard.
            return (Verdict::Hung { how: How::HttpDead }, evidence, Some(Rung::EndRunner));
        }
        if dead || overdue {
            let allowed = if dead { END_LONGEST } else { allowance.allowed };
            return (Verdict::Suspect { silence: self.silence, allowed }, evidence, None);
        }
        (Verdict::Unknown { why }, evidence, None)
    }

    fn at_work(&self, around: &Around<'_>, prediction: &Prediction, allowance: &Allowance) -> Told {
        let mut evidence: Vec<Fact> = self.in_flight().into_iter().collect();
        if self.silence >= QUIET_LEAST {
            let allowed = allowance.least.max(self.silence.saturating_sub(self.worked) + allowance.allowed);
            evidence.push(Fact::Quiet { silence: self.silence, allowed });
        }
        let reading = self.slots.reading().first().copied().or_else(|| self.log.reading());
        if let Some(Reading { position, done, total, last_step: _ }) = reading {
            evidence.push(Fact::Prompt { done, total });
            let left = total.map(|total| total.saturating_sub(done)).zip(self.last_s_per_token);
            let eta = left.map(|(left, rate)| prediction.time_left(position, position.saturating_add(left), rate));
            evidence.extend(paging(around.paging, around));
            return (Verdict::Prefill { tokens_done: done, of: total, eta }, evidence, None);
        }
        if self.slots.busy().is_none() && !self.bytes_came {
            evidence.push(Fact::NoProgressTold);
            return (Verdict::Prefill { tokens_done: 0, of: None, eta: None }, evidence, None);
        }
        let (rate, usual) = (self.rate(), prediction.usual_tokens_per_s());
        if let Some(tokens_per_s) = rate {
            evidence.push(Fact::Rate { tokens_per_s, usual_tokens_per_s: usual });
        }
        if let (Some(rate), Some(usual)) = (rate, usual)
            && rate < usual * SLOW_PART
        {
            evidence.extend(paging(around.paging, around));
            return (Verdict::Slow { why: self.why_slow(around) }, evidence, None);
        }
        (Verdict::Generating { tokens_per_s: rate }, evidence, None)
    }

    fn why_slow(&self, around: &Around<'_>) -> Why {
        if around.paging.is_seen() {
            Why::Paging
        } else if around.machine.throttled == Some(true) {
            Why::Throttled
        } else if self.slots.generating().is_some_and(|(_, position)| position >= LONG_CONTEXT) {
            Why::LongContext
        } else if around.sharers > 0 {
            Why::Shared
        } else {
            Why::Unexplained
        }
    }

    fn at_rest(&self, around: &Around<'_>) -> Told {
        let tickets = self.seen.tickets.unwrap_or(0);
        if self.slots.busy().is_some() {
            let held = (tickets > 0).then_some(Fact::SlotsFreeWhileTicketsHeld { tickets });
            return (Verdict::Idle, held.into_iter().collect(), None);
        }
        if self.seen.tickets.is_some() {
            return (Verdict::Idle, vec![], None);
        }
        let why = match (self.seen.kind, self.seen.slots.reason()) {
            (RunnerKind::LlamaServer, Some(reason)) => reason.to_owned(),
            (RunnerKind::LlamaServer, None) | (RunnerKind::OllamaRunner | RunnerKind::Mlx, _) => {
                "this kind of runner does not tell whether it works".to_owned()
            }
        };
        let mut evidence = vec![Fact::NoProgressTold];
        if around.server.waiting.at_least > 0 && self.silence >= UNTOLD_LONGEST && self.is_at_rest() {
            evidence.extend(waiting(around));
            let verdict = Verdict::Suspect { silence: self.silence, allowed: UNTOLD_LONGEST };
            return (verdict, evidence, None);
        }
        (Verdict::Unknown { why }, evidence, None)
    }

    fn in_flight(&self) -> Option<Fact> {
        let busy_slots = self.slots.busy();
        let logged = self.log.reading().is_some();
        self.has_work().then_some(Fact::InFlight { busy_slots, tickets: self.seen.tickets, logged })
    }

    fn allowance(&self, around: &Around<'_>, prediction: &Prediction) -> Allowance {
        let reading = self.slots.reading();
        let (counter, value, step, bound, images) = if let Some(farthest) = reading.first() {
            let images =
                reading.iter().filter(|reading| prediction.may_be_interrupted_after(reading.last_step)).count();
            let position = farthest.position;
            let bound = prediction.next_batch(position);
            (Counter::PromptTokens, farthest.done, Step::Batch { position }, bound, images)
        } else if let Some((tokens, _)) = self.slots.generating() {
            (Counter::TokensGenerated, tokens, Step::Token, token(), 0)
        } else if self.slots.busy().is_some() {
            // Free when they were last readable: what came since then is not known.
            (Counter::PromptTokens, 0, Step::BatchSomewhere, prediction.next_batch(FAR_POSITION), 1)
        } else if let Some(reading) = self.log.reading() {
            let step = Step::BatchSomewhere;
            (Counter::LoggedPromptTokens, reading.done, step, self.logged_bound(prediction), 0)
        } else if self.bytes_came {
            (Counter::GatewayBytes, self.seen.gateway_bytes.unwrap_or(0), Step::Token, token(), 0)
        } else {
            // A whole answer may come in one piece; nothing bounds that but the prompt before it.
            let bytes = self.seen.gateway_bytes.unwrap_or(0);
            (Counter::GatewayBytes, bytes, Step::WholePrompt, prediction.whole_prompt(), 1)
        };
        let mut reasons = vec![];
        let mut allowed = bound.allowed;
        if around.sharers > 0 {
            let sharers = around.sharers.min(SHARERS_COUNTED);
            allowed = allowed.saturating_mul(1 + sharers).saturating_add(around.others_batch);
            reasons.push(Fact::Shared { busy_runners: around.sharers });
        }
        if around.machine.throttled == Some(true) {
            allowed = from_seconds(allowed.as_secs_f64() * THROTTLING_FACTOR);
            reasons.push(Fact::Throttled);
        }
        if images > 0 {
            let images = u32::try_from(images).unwrap_or(u32::MAX);
            allowed = allowed.saturating_add(IMAGE_LONGEST.saturating_mul(images) + CACHE_SAVE_LONGEST);
            reasons.push(Fact::ImagePossible);
        }
        if self.slots_readable && self.seen.slots.known().is_none() {
            // The end of the step may have been missed, and another be under way.
            allowed = allowed.saturating_mul(2).saturating_add(ANSWER_LATEST);
            let why = self.seen.slots.reason().unwrap_or_default().to_owned();
            reasons.push(Fact::NotRead { what: "slots", why });
        }
        reasons.extend(paging(self.paged_in_silence, around));
        let pattern = match step {
            Step::Batch { .. } => Some(Pattern::Prefill),
            Step::Token => Some(Pattern::Decode),
            Step::BatchSomewhere if counter == Counter::LoggedPromptTokens => Some(Pattern::Prefill),
            Step::BatchSomewhere | Step::WholePrompt | Step::Load | Step::Answer => None,
        };
        let in_prompt = step != Step::Token;
        // An answer may be held back in front of a gateway (a tool call is told as a whole): only with a sign of its own
        // is a short silence of bytes believed.
        let told = counter != Counter::GatewayBytes || self.signs(prediction, pattern).iter().any(is_sign);
        let familiar = prediction.is_familiar(in_prompt) && told;
        if !familiar {
            reasons.push(Fact::Unfamiliar { gaps: prediction.gaps_seen(in_prompt) });
        }
        let least = if familiar { FAMILIAR_SPAN } else { UNFAMILIAR_SPAN };
        let allowed = allowed.saturating_add(NOISE_SPAN);
        Allowance { counter, value, step, honest: bound.honest, allowed, source: bound.source, least, pattern, reasons }
    }

    fn logged_bound(&self, prediction: &Prediction) -> Bound {
        let (done, total) = self.log.reading().map_or((0, None), |reading| (reading.done, reading.total));
        prediction.next_batch_after(done, total.map(|total| total.saturating_sub(done)), self.log.steps())
    }
}

/// How long a token may take: generation has no steps that would narrow the envelope by more than noise.
fn token() -> Bound {
    let honest = 1.0 / GENERATION_SLOWEST_TOKENS_PER_S;
    Bound { honest: from_seconds(honest), allowed: from_seconds(honest * NOISE_FACTOR), source: Source::Envelope }
}

fn is_sign(fact: &Fact) -> bool {
    matches!(
        fact,
        Fact::DecodeCounterStill { .. }
            | Fact::GpuIdle { .. }
            | Fact::Cpu { unlike: Some(_), .. }
            | Fact::FarBeyond { .. }
    )
}

fn waiting(around: &Around<'_>) -> Option<Fact> {
    let waiting = around.server.waiting;
    (waiting.at_least > 0).then(|| Fact::Waiting {
        at_least: waiting.at_least,
        at_most: waiting.at_most,
        oldest: around.server.oldest_wait.known().copied(),
    })
}

fn paging(state: Paging, around: &Around<'_>) -> Option<Fact> {
    state.fact(around.machine)
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a float that is too large saturates")]
fn percent(cores: f64) -> u32 {
    (cores * 100.0).round() as u32
}
