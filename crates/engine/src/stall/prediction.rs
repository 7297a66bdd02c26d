//! How long the next step of a model may honestly take.
//!
//! Speed at position 0, its loss with position and the batch size are constants of a model on a machine; they are
//! only not known. The [`super::envelope`] bounds them at first, each measured step narrows the bound. Time per token
//! is `a · (1 + k · position)`:
//!
//! ```text
//! measured at q:       at least L, at most U           (looks are some seconds apart)
//! bound of k:          least of a near L against greatest of a far U, never above the envelope's
//! bound at position p: U · (1 + k·p) / (1 + k·q), of the ten nearest q the greatest but two
//! ```
//!
//! Measurements under paging bound from above and are used only while there are no others.

use super::envelope::{
    BATCH_LARGEST, BATCH_SMALLEST, FAR_POSITION, GAPS_WANTED, NOISE_FACTOR, PAGING_FACTOR, PREFILL_FAR_FACTOR,
    PREFILL_SLOWEST_TOKENS_PER_S,
};
use super::profile::Profile;
use super::span::from_seconds;
use std::time::Duration;

/// One measured step of a prompt.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Measured {
    /// Position of its first token.
    pub from: u64,
    /// Whether that is the position; otherwise it is at least this (tokens from the cache are not told).
    pub from_sure: bool,
    /// Its tokens.
    pub tokens: u64,
    /// It took no longer.
    pub at_most: Duration,
    /// It took at least this.
    pub at_least: Duration,
    /// It was the first of its prompt: an image or the cache may be in it.
    pub first: bool,
    /// Paging was seen or possible.
    pub paged: bool,
    /// It follows a step of the same size, which only full batches do.
    pub repeats: bool,
}

/// What was learned of a model on this machine.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Prediction {
    points: Vec<Point>,
    /// The batch size of the present life, once it was seen.
    batch: Option<u64>,
    prefill_gaps: u32,
    gaps: u32,
    usual_tokens_per_s: Option<f64>,
    rates_seen: u32,
    generated: bool,
    harmless_short_answers: usize,
    pub(super) profile: Profile,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Point {
    middle: u64,
    at_most_s_per_token: f64,
    /// `None` where a lower bound would mislead: parts of batches, first steps.
    at_least_s_per_token: Option<f64>,
    quality: Quality,
}

/// Best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Quality {
    Clean,
    First,
    Paged,
}

/// The longest honest time of the next step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bound {
    /// Without margins, as it is told to a person.
    pub honest: Duration,
    /// With the margin for noise.
    pub allowed: Duration,
    /// What it rests on.
    pub source: Source,
}

/// What a bound rests on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// Nothing that was measured narrows the [`super::envelope`]: no honest work takes longer, of whatever model.
    Envelope,
    /// What was measured of this model, or what usually comes. The model may do something that was not seen of it yet.
    Predicted,
}

/// At most so many points are kept, and so many of one stretch of positions.
const POINTS_KEPT: usize = 128;
const POINTS_PER_STRETCH: usize = 4;
const STRETCH: u64 = 4_096;
/// So many of the nearest points bound a step, and so many of them are taken for outliers.
const NEAREST: usize = 10;
const OUTLIERS: usize = 2;
/// Tokens by which full batches may differ: other slots' tokens share them.
const BATCH_PLAY: u64 = 64;
/// A generation rate counts for so much of the usual one.
const RATE_WEIGHT: f64 = 0.05;
const SLOW_RATE_WEIGHT: f64 = 0.0005;
/// Successive answers of at most one token that are wrong for a model that generates text.
const SHORT_ANSWERS: usize = 3;
/// Rates that must have been seen before one is called usual.
const RATES_WANTED: u32 = 20;

impl Prediction {
    /// The longest honest time of one batch that begins at `position`.
    pub fn next_batch(&self, position: u64) -> Bound {
        let tokens = self.batch.map_or(BATCH_LARGEST, |batch| batch.saturating_add(BATCH_PLAY)).min(BATCH_LARGEST);
        self.tokens_from(position, tokens)
    }

    /// The longest honest time of one batch somewhere below [`FAR_POSITION`], of what is `left` of its prompt. `steps`
    /// were measured in the same prompt, each with its tokens done before it; what they took grows from there.
    pub fn next_batch_after(&self, done: u64, left: Option<u64>, steps: &[(u64, f64)]) -> Bound {
        let tokens = left.map_or(BATCH_LARGEST, |left| left.min(BATCH_LARGEST));
        let somewhere = self.next_batch_somewhere(tokens);
        if steps.is_empty() {
            return somewhere;
        }
        let end = done.saturating_add(tokens);
        let k = self.loss_per_token();
        let mut bounds: Vec<f64> = steps
            .iter()
            .map(|(from, s_per_token)| s_per_token * growth(k, end) / growth(k, (*from).min(end)))
            .collect();
        bounds.sort_by(f64::total_cmp);
        // Many of them may have been slowed by paging; nothing makes one quicker than the model is.
        let quick = bounds.get(bounds.len() / 4).copied().unwrap_or(f64::INFINITY);
        let here = bounded(quick, Some(slowest_s_per_token(FAR_POSITION.max(end))), tokens);
        if somewhere.allowed < here.allowed { somewhere } else { here }
    }

    /// The longest honest time of one batch somewhere below [`FAR_POSITION`], from steps whose own places are not sure.
    /// Each bounds it by itself as if it had been measured at its least position; the slow ones among them were only
    /// farther on, so the quick ones bound it best.
    fn next_batch_somewhere(&self, tokens: u64) -> Bound {
        let k = self.loss_per_token();
        let mut bounds: Vec<f64> = self
            .usable()
            .map(|point| point.at_most_s_per_token * (growth(k, FAR_POSITION) / growth(k, point.middle)).max(1.0))
            .collect();
        bounds.sort_by(f64::total_cmp);
        match bounds.get(bounds.len() / 16) {
            Some(per_token) => bounded(*per_token, Some(slowest_s_per_token(FAR_POSITION)), tokens),
            None => self.tokens_from(FAR_POSITION.saturating_sub(tokens), tokens),
        }
    }

    /// The longest honest time of a whole prompt of up to [`FAR_POSITION`] tokens.
    pub fn whole_prompt(&self) -> Bound {
        // An answer that comes in one piece is waited for as well, and nothing bounds its length.
        Bound { source: Source::Predicted, ..self.tokens_from(FAR_POSITION / 2, FAR_POSITION) }
    }

    fn tokens_from(&self, position: u64, tokens: u64) -> Bound {
        // The end of the batch is its slowest place; a whole prompt is as slow as its middle on average.
        let place = if tokens > BATCH_LARGEST { position } else { position.saturating_add(tokens) };
        let slowest = slowest_s_per_token(place);
        match self.measured_s_per_token(place) {
            Some(per_token) => bounded(per_token, (!self.is_outside()).then_some(slowest), tokens),
            None => {
                let honest = from_seconds(slowest * as_f64(tokens));
                Bound { honest, allowed: honest, source: Source::Envelope }
            }
        }
    }

    /// Whether enough gaps were seen for a silence below [`super::envelope::UNFAMILIAR_SPAN`] to mean anything.
    pub fn is_familiar(&self, in_prompt: bool) -> bool {
        self.gaps_seen(in_prompt) >= GAPS_WANTED
    }

    /// Gaps between steps of progress seen of this model.
    pub fn gaps_seen(&self, in_prompt: bool) -> u32 {
        if in_prompt { self.prefill_gaps } else { self.gaps }
    }

    /// The generation rate that is usual for this model, in tokens per second, once enough was seen.
    pub fn usual_tokens_per_s(&self) -> Option<f64> {
        self.usual_tokens_per_s.filter(|_| self.rates_seen >= RATES_WANTED)
    }

    /// Whether this model was ever seen to generate more than one token for a request. Embedding models never do.
    pub fn has_generated(&self) -> bool {
        self.generated
    }

    /// A rate between two positions of a prompt that is measured again and again, in seconds per token; the estimate
    /// for what is left of it.
    pub(super) fn time_left(&self, from: u64, to: u64, last_s_per_token: f64) -> Duration {
        let k = self.loss_per_token();
        let middle = from.saturating_add(to) / 2;
        from_seconds(last_s_per_token * growth(k, middle) / growth(k, from) * as_f64(to.saturating_sub(from)))
    }

    /// Whether an image may follow: it may after the start of a prompt and after a batch that was not full.
    pub(super) fn may_be_interrupted_after(&self, step: Option<u64>) -> bool {
        match (step, self.batch) {
            (Some(step), Some(batch)) => !is_multiple(step, batch),
            (Some(_), None) | (None, _) => true,
        }
    }

    /// A runner of this model starts. It may have another batch size and hold another part of the model on the GPU:
    /// what was measured of the former one does not bound it.
    pub(super) fn new_life(&mut self) {
        self.batch = None;
        self.points.clear();
        self.profile = Profile::default();
    }

    /// Takes in a measured step of a prompt.
    pub(super) fn learn_step(&mut self, step: Measured) {
        if step.tokens == 0 {
            return;
        }
        let gaps = u32::try_from(step.tokens.div_ceil(BATCH_LARGEST)).unwrap_or(u32::MAX);
        self.prefill_gaps = self.prefill_gaps.saturating_add(gaps);
        self.gaps = self.gaps.saturating_add(gaps);
        if step.repeats && step.tokens >= BATCH_SMALLEST {
            self.learn_batch(step.tokens);
        }
        let per_token = |span: Duration| span.as_secs_f64() / as_f64(step.tokens);
        let quality = match (step.paged, step.first) {
            (true, _) => Quality::Paged,
            (false, true) => Quality::First,
            (false, false) => Quality::Clean,
        };
        let full = step.from_sure && step.tokens >= BATCH_SMALLEST && !step.first && step.at_least > Duration::ZERO;
        let slowed = if step.paged { f64::from(PAGING_FACTOR) } else { 1.0 };
        self.keep(Point {
            middle: step.from.saturating_add(step.tokens / 2),
            at_most_s_per_token: per_token(step.at_most),
            at_least_s_per_token: full.then(|| per_token(step.at_least) / slowed),
            quality,
        });
    }

    /// Takes in steps of progress that tell nothing of their length, such as tokens seen between two looks.
    pub(super) fn learn_gaps(&mut self, gaps: u64) {
        self.gaps = self.gaps.saturating_add(u32::try_from(gaps).unwrap_or(u32::MAX));
    }

    /// Takes in a generation rate that nothing slowed.
    pub(super) fn learn_rate(&mut self, tokens_per_s: f64) {
        self.usual_tokens_per_s = Some(match self.usual_tokens_per_s {
            // Slowness must not become usual before it was told.
            Some(usual) if tokens_per_s < usual / 2.0 => usual + (tokens_per_s - usual) * SLOW_RATE_WEIGHT,
            Some(usual) => usual + (tokens_per_s - usual) * RATE_WEIGHT,
            None => tokens_per_s,
        });
        self.rates_seen = self.rates_seen.saturating_add(1);
    }

    /// A request of this model has generated more than one token, after so many successive ones that had not.
    pub(super) fn learn_generated(&mut self, short_before: usize) {
        self.generated = true;
        self.harmless_short_answers = self.harmless_short_answers.max(short_before);
    }

    /// From how many successive answers of at most one token on something is wrong. Where somebody is known to ask
    /// for single tokens (a canary, a classifier), it takes more.
    pub(super) fn short_answers_suspected(&self) -> usize {
        SHORT_ANSWERS.max(self.harmless_short_answers.saturating_mul(2) + 1)
    }

    fn learn_batch(&mut self, step: u64) {
        self.batch = Some(match self.batch {
            Some(batch) if step.abs_diff(batch) <= BATCH_PLAY => batch.max(step),
            // Slow looks see several batches at once.
            Some(batch) if is_multiple(step, batch) => batch,
            Some(_) | None => step,
        });
    }

    fn keep(&mut self, point: Point) {
        let stretch = |point: &Point| point.middle / STRETCH;
        let same = self.points.iter().filter(|kept| stretch(kept) == stretch(&point));
        let full = same.count() >= POINTS_PER_STRETCH;
        let oldest = if full {
            self.points.iter().position(|kept| stretch(kept) == stretch(&point))
        } else if self.points.len() >= POINTS_KEPT {
            Some(0)
        } else {
            None
        };
        if let Some(oldest) = oldest {
            self.points.remove(oldest);
        }
        self.points.push(point);
    }

    /// Whether this machine was measured slower than the envelope.
    fn is_outside(&self) -> bool {
        self.points
            .iter()
            .any(|point| point.at_least_s_per_token.is_some_and(|least| least > slowest_s_per_token(point.middle)))
    }

    /// The points of the best quality that there is.
    fn usable(&self) -> impl Iterator<Item = &Point> {
        let best = self.points.iter().map(|point| point.quality).min();
        self.points.iter().filter(move |point| Some(point.quality) == best)
    }

    fn measured_s_per_token(&self, place: u64) -> Option<f64> {
        let k = self.loss_per_token();
        let mut nearest: Vec<&Point> = self.usable().collect();
        nearest.sort_by_key(|point| point.middle.abs_diff(place));
        nearest.truncate(NEAREST);
        let mut bounds: Vec<f64> = nearest
            .iter()
            .map(|point| point.at_most_s_per_token * (growth(k, place) / growth(k, point.middle)).max(1.0))
            .collect();
        bounds.sort_by(f64::total_cmp);
        // Outliers (a moment of other work) are passed over once there is enough else.
        let passed_over = if bounds.len() == NEAREST { OUTLIERS } else { 0 };
        bounds.len().checked_sub(1 + passed_over).and_then(|index| bounds.get(index)).copied()
    }

    /// The greatest loss of speed per token of position that agrees with what was measured.
    fn loss_per_token(&self) -> f64 {
        let envelope = (PREFILL_FAR_FACTOR - 1.0) / as_f64(FAR_POSITION);
        let mut points: Vec<&Point> = self.usable().filter(|point| point.at_least_s_per_token.is_some()).collect();
        points.sort_by_key(|point| point.middle);
        let third = points.len() / 3;
        if third == 0 {
            return envelope;
        }
        let (near, far) = (&points[..third], &points[points.len() - third..]);
        let least = near.iter().filter_map(|point| point.at_least_s_per_token).fold(f64::INFINITY, f64::min);
        let most = far.iter().map(|point| point.at_most_s_per_token).fold(0.0, f64::max);
        // The places are taken as near to each other as the groups allow: that leaves room for the greater loss.
        let near_end = near.iter().map(|point| point.middle).max().map_or(0.0, as_f64);
        let far_start = far.iter().map(|point| point.middle).min().map_or(0.0, as_f64);
        let ratio = (most / least * NOISE_FACTOR).max(1.0);
        let room = far_start - ratio * near_end;
        if room <= 0.0 { envelope } else { ((ratio - 1.0) / room).min(envelope) }
    }
}

/// A measured time per token, with and without margin, for a batch. It is kept inside the envelope unless the machine
/// was measured outside of it.
fn bounded(per_token: f64, slowest: Option<f64>, tokens: u64) -> Bound {
    let within = |value: f64| slowest.map_or(value, |slowest| value.min(slowest));
    let allowed = per_token * NOISE_FACTOR;
    let source = match slowest {
        Some(slowest) if allowed >= slowest => Source::Envelope,
        Some(_) | None => Source::Predicted,
    };
    Bound {
        honest: from_seconds(within(per_token) * as_f64(tokens)),
        allowed: from_seconds(within(allowed) * as_f64(tokens)),
        source,
    }
}

fn slowest_s_per_token(position: u64) -> f64 {
    growth((PREFILL_FAR_FACTOR - 1.0) / as_f64(FAR_POSITION), position) / PREFILL_SLOWEST_TOKENS_PER_S
}

fn growth(k: f64, position: u64) -> f64 {
    1.0 + k * as_f64(position)
}

fn is_multiple(step: u64, batch: u64) -> bool {
    let rest = step.checked_rem(batch).unwrap_or(0);
    step >= batch.saturating_sub(BATCH_PLAY) && (rest <= BATCH_PLAY || rest >= batch.saturating_sub(BATCH_PLAY))
}

#[expect(clippy::cast_precision_loss, reason = "token counts lie far below 2^52")]
fn as_f64(tokens: u64) -> f64 {
    tokens as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A model of 1,000 tokens/s at 0 that is `far` times slower at [`FAR_POSITION`], in batches of 2,048.
    fn step(batch: u64, far: f64) -> Measured {
        let from = batch * 2_048;
        let k = (far - 1.0) / 131_072.0;
        let seconds = 2.048 * growth(k, from + 1_024);
        Measured {
            from,
            from_sure: true,
            tokens: 2_048,
            at_most: from_seconds(seconds + 1.0),
            at_least: from_seconds(seconds - 1.0),
            first: batch == 0,
            paged: false,
            repeats: batch > 0,
        }
    }

    fn measured(batches: u64, far: f64) -> Prediction {
        let mut prediction = Prediction::default();
        for batch in 0..batches {
            prediction.learn_step(step(batch, far));
        }
        prediction
    }

    #[test]
    fn an_unmeasured_model_gets_the_envelope() {
        let prediction = Prediction::default();
        assert!((prediction.next_batch(0).honest.as_secs_f64() - 102.4 * 1.11).abs() < 1.0);
        let far = prediction.next_batch(FAR_POSITION - BATCH_LARGEST).honest.as_secs_f64();
        assert!((far - 819.2).abs() < 1.0, "{far}");
    }

    #[test]
    fn each_measured_step_narrows_the_bound_and_none_falls_below_the_truth() {
        for far in [1.0, 3.0, 8.0] {
            for batches in 1..60 {
                let prediction = measured(batches, far);
                let truth = step(batches, far).at_most.as_secs_f64() - 1.0;
                let allowed = prediction.next_batch(batches * 2_048).allowed.as_secs_f64();
                assert!(allowed > truth, "{far} after {batches}: {allowed} > {truth}");
                assert!(allowed < (truth + 1.5) * 4.0, "{far} after {batches}: {allowed} is close to {truth}");
            }
        }
    }

    #[test]
    fn a_model_measured_near_the_start_may_still_lose_speed_as_the_envelope_allows() {
        let prediction = measured(3, 8.0);
        let truth = step(60, 8.0).at_most.as_secs_f64() - 1.0;
        assert!(prediction.next_batch(60 * 2_048).allowed.as_secs_f64() > truth);
    }

    #[test]
    fn a_first_step_with_an_image_does_not_hide_the_loss_of_speed() {
        let mut prediction = Prediction::default();
        let mut with_image = step(0, 8.0);
        with_image.at_most += Duration::from_secs(110);
        with_image.at_least += Duration::from_secs(110);
        prediction.learn_step(with_image);
        for batch in 1..12 {
            prediction.learn_step(step(batch, 8.0));
        }
        let truth = step(60, 8.0).at_most.as_secs_f64();
        assert!(prediction.next_batch(60 * 2_048).allowed.as_secs_f64() > truth);
    }

    #[test]
    fn a_step_that_took_ten_times_longer_under_paging_counts_only_while_there_is_no_other() {
        let mut prediction = Prediction::default();
        let mut paged = step(1, 1.0);
        paged.at_most *= 10;
        paged.paged = true;
        prediction.learn_step(paged);
        assert!(prediction.next_batch(4_096).honest > Duration::from_secs(20));
        prediction.learn_step(step(2, 1.0));
        assert!(prediction.next_batch(6_144).honest < Duration::from_secs(5));
    }

    #[test]
    fn an_image_may_follow_a_batch_that_was_not_full() {
        let prediction = measured(4, 1.0);
        assert!(!prediction.may_be_interrupted_after(Some(2_048)));
        assert!(!prediction.may_be_interrupted_after(Some(4_096)), "two batches between two looks");
        assert!(prediction.may_be_interrupted_after(Some(700)));
        assert!(prediction.may_be_interrupted_after(None), "the start of a prompt");
        assert!(Prediction::default().may_be_interrupted_after(Some(2_048)), "no batch size known");
    }

    #[test]
    fn a_machine_slower_than_the_envelope_is_believed_once_it_was_measured() {
        let mut prediction = Prediction::default();
        let mut slow = step(1, 1.0);
        slow.at_most = Duration::from_secs(400);
        slow.at_least = Duration::from_secs(398);
        prediction.learn_step(slow);
        assert!(prediction.next_batch(4_096).allowed >= Duration::from_secs(400));
    }
}
