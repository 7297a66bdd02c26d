//! Which speeds a model can still have after what was seen of it.
//!
//! A batch of `n` tokens whose middle lies at position `p` takes `n·a + n·p·b` seconds of work, with `a` the time of a
//! token at position 0 and `b` its growth per position. That is linear in `(a, b)`, also for several batches together,
//! so the possible pairs are a convex polygon, and each observation cuts a piece off.

use crate::envelope;

/// Tokens, and tokens times position: what a stretch of prefill adds up to.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Prefilled {
    tokens: f64,
    weighted: f64,
}

impl Prefilled {
    /// So many tokens from a position on.
    pub fn batch(position: f64, tokens: u64) -> Self {
        let tokens = tokens as f64;
        Self { tokens, weighted: tokens * (position + tokens / 2.0) }
    }

    /// Both together.
    pub fn plus(self, other: Self) -> Self {
        Self { tokens: self.tokens + other.tokens, weighted: self.weighted + other.weighted }
    }

    fn seconds(self, (a, b): (f64, f64)) -> f64 {
        self.tokens * a + self.weighted * b
    }
}

/// The polygon of possible speeds.
#[derive(Clone, Debug)]
pub struct Speeds(Vec<(f64, f64)>);

impl Speeds {
    /// All that the envelope allows.
    pub fn any() -> Self {
        let (slowest, fastest) = envelope::under_noise(envelope::PREFILL_TOKENS_PER_S);
        Self::with_slope_below(1.0 / fastest, 1.0 / slowest)
    }

    /// All that the envelope allows a request whose beginning lies somewhere in the context: `a` is then the time of a
    /// token there.
    pub fn any_from_somewhere() -> Self {
        let (slowest, fastest) = envelope::under_noise(envelope::PREFILL_TOKENS_PER_S);
        Self::with_slope_below(1.0 / fastest, envelope::SLOWDOWN_AT_END / slowest)
    }

    fn with_slope_below(least: f64, most: f64) -> Self {
        let growth = (envelope::SLOWDOWN_AT_END - 1.0) / envelope::CONTEXT_TOKENS as f64;
        Self(vec![(least, 0.0), (most, 0.0), (most, most * growth), (least, least * growth)])
    }

    /// The longest that this can take.
    pub fn longest_s(&self, done: Prefilled) -> f64 {
        self.0.iter().map(|&corner| done.seconds(corner)).fold(0.0, f64::max)
    }

    fn shortest_s(&self, done: Prefilled) -> f64 {
        self.0.iter().map(|&corner| done.seconds(corner)).fold(f64::INFINITY, f64::min)
    }

    /// It took at most so long. Returns whether any speed is left.
    pub fn took_at_most(&mut self, done: Prefilled, seconds: f64) -> bool {
        self.longest_s(done) <= seconds || self.cut(|corner| seconds - done.seconds(corner))
    }

    /// It took at least so long. Returns whether any speed is left.
    pub fn took_at_least(&mut self, done: Prefilled, seconds: f64) -> bool {
        self.shortest_s(done) >= seconds || self.cut(|corner| done.seconds(corner) - seconds)
    }

    /// Keeps the part on which `inside` is not negative (Sutherland and Hodgman). An empty rest is not taken over.
    fn cut(&mut self, inside: impl Fn((f64, f64)) -> f64) -> bool {
        let mut kept = Vec::with_capacity(self.0.len() + 1);
        for (number, &from) in self.0.iter().enumerate() {
            let to = self.0[(number + 1) % self.0.len()];
            let (at_from, at_to) = (inside(from), inside(to));
            if at_from >= 0.0 {
                kept.push(from);
            }
            if (at_from >= 0.0) != (at_to >= 0.0) {
                let share = at_from / (at_from - at_to);
                kept.push((from.0 + (to.0 - from.0) * share, from.1 + (to.1 - from.1) * share));
            }
        }
        let some = !kept.is_empty();
        if some {
            self.0 = kept;
        }
        some
    }
}

/// Which batch sizes a model can still have.
#[derive(Clone, Debug)]
pub struct Batches(Vec<u64>);

impl Batches {
    pub fn any() -> Self {
        Self(envelope::BATCH_TOKENS.to_vec())
    }

    pub fn mlx() -> Self {
        Self(vec![envelope::MLX_BATCH_TOKENS])
    }

    /// A prompt moved by so many tokens and then went on: these were whole batches.
    pub fn were_whole(&mut self, tokens: u64) -> bool {
        if self.0.iter().any(|&size| tokens.is_multiple_of(size)) {
            self.0.retain(|&size| tokens.is_multiple_of(size));
            return true;
        }
        false
    }

    pub fn largest(&self) -> u64 {
        self.0.iter().copied().max().unwrap_or(envelope::MLX_BATCH_TOKENS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_seen_leaves_the_slowest_speed_of_the_envelope() {
        let longest_s = Speeds::any().longest_s(Prefilled::batch(0.0, 2_048)) * envelope::NOISE;
        // 2,048 tokens at 20 tokens/s, and a little for the growth within the batch.
        assert!((102.4..109.0).contains(&longest_s), "{longest_s}");
    }

    #[test]
    fn a_fast_batch_near_the_beginning_bounds_a_far_one_by_the_slope() {
        let mut speeds = Speeds::any();
        assert!(speeds.took_at_most(Prefilled::batch(0.0, 2_048), 2.048));
        let far_s = speeds.longest_s(Prefilled::batch(122_880.0, 2_048));
        assert!((13.0..16.4).contains(&far_s), "a thousandth of a second a token, up to eight times slower: {far_s}");
    }

    #[test]
    fn a_slow_batch_far_out_and_a_fast_one_near_give_the_slope_between_them() {
        let mut speeds = Speeds::any();
        assert!(speeds.took_at_most(Prefilled::batch(0.0, 2_048), 2.048));
        assert!(speeds.took_at_most(Prefilled::batch(63_488.0, 2_048), 4.096));
        let far_s = speeds.longest_s(Prefilled::batch(129_024.0, 2_048));
        assert!(far_s < 8.3, "{far_s}");
    }

    #[test]
    fn what_no_speed_explains_is_told_and_leaves_the_speeds_as_they_were() {
        let mut speeds = Speeds::any();
        let before = speeds.longest_s(Prefilled::batch(0.0, 512));
        assert!(!speeds.took_at_most(Prefilled::batch(0.0, 512), 0.001));
        assert!(!speeds.took_at_least(Prefilled::batch(0.0, 512), 1_000.0));
        assert_eq!(speeds.longest_s(Prefilled::batch(0.0, 512)), before);
    }

    #[test]
    fn whole_batches_tell_the_batch_size() {
        let mut batches = Batches::any();
        assert!(batches.were_whole(3_072));
        assert_eq!(batches.largest(), 1_024);
        assert!(!batches.were_whole(700));
    }
}
