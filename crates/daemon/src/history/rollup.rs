//! From numbers to the least, mean and greatest of a span of time.

use std::collections::BTreeMap;

/// Numbers of one series put together.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Span {
    /// How many they are.
    pub(super) count: u64,
    /// The least.
    pub(super) min: f64,
    /// Their mean.
    pub(super) avg: f64,
    /// The greatest.
    pub(super) max: f64,
}

impl Span {
    /// A single number.
    pub(super) const fn of(value: f64) -> Self {
        Self { count: 1, min: value, avg: value, max: value }
    }

    /// Both together; the mean by how many each stands for.
    #[expect(clippy::cast_precision_loss, reason = "counts of seconds are far below 2^53")]
    pub(super) fn with(self, other: Self) -> Self {
        let count = self.count + other.count;
        let (min, max) = (self.min.min(other.min), self.max.max(other.max));
        let avg = self.avg + (other.avg - self.avg) * (other.count as f64 / count as f64);
        // Rounding may carry a mean of equals past them.
        Self { count, min, avg: avg.clamp(min, max), max }
    }
}

/// A span of time that is over.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Bucket {
    /// Where it begins, a multiple of its length.
    pub(super) start_ms: i64,
    /// What each series was, by its number in order.
    pub(super) spans: Vec<(i64, Span)>,
}

/// Puts numbers together. One bucket is open at a time; a number of any other instant, later or earlier, closes it.
/// What is open is therefore exactly the end of what came, as far back as it lies in one bucket.
#[derive(Debug)]
pub(super) struct Rollup {
    length_ms: i64,
    open: Option<(i64, BTreeMap<i64, Span>)>,
}

impl Rollup {
    /// For buckets of this length.
    pub(super) const fn new(length_ms: i64) -> Self {
        Self { length_ms, open: None }
    }

    /// Where the bucket of an instant begins.
    pub(super) const fn start_of(&self, at_ms: i64) -> i64 {
        at_ms.div_euclid(self.length_ms) * self.length_ms
    }

    /// Adds what was seen at one instant, by series; gives the bucket that it closes.
    pub(super) fn add(&mut self, at_ms: i64, values: &[(i64, Span)]) -> Option<Bucket> {
        let start_ms = self.start_of(at_ms);
        let closed = match &self.open {
            Some((open_ms, _)) if *open_ms != start_ms => self.close(),
            Some(_) | None => None,
        };
        let (_, spans) = self.open.get_or_insert_with(|| (start_ms, BTreeMap::new()));
        for (series, value) in values {
            spans.entry(*series).and_modify(|span| *span = span.with(*value)).or_insert(*value);
        }
        closed
    }

    fn close(&mut self) -> Option<Bucket> {
        let (start_ms, spans) = self.open.take()?;
        Some(Bucket { start_ms, spans: spans.into_iter().collect() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(value: f64) -> [(i64, Span); 1] {
        [(7, Span::of(value))]
    }

    #[test]
    fn a_bucket_holds_least_mean_and_greatest_and_closes_with_the_first_number_after_it() {
        let mut tens = Rollup::new(10_000);
        for (at_ms, value) in [(20_000, 4.0), (24_000, -1.0), (29_999, 9.0)] {
            assert_eq!(tens.add(at_ms, &one(value)), None);
        }
        let closed = tens.add(30_000, &one(1.0)).unwrap();
        let expected = Span { count: 3, min: -1.0, avg: 4.0, max: 9.0 };
        assert_eq!(closed, Bucket { start_ms: 20_000, spans: vec![(7, expected)] });
    }

    #[test]
    fn a_series_that_was_seen_once_counts_once() {
        let mut tens = Rollup::new(10_000);
        tens.add(0, &[(1, Span::of(1.0)), (2, Span::of(100.0))]);
        tens.add(1_000, &[(1, Span::of(3.0))]);
        let closed = tens.add(10_000, &one(0.0)).unwrap();
        assert_eq!(closed.spans[0].1, Span { count: 2, min: 1.0, avg: 2.0, max: 3.0 });
        assert_eq!(closed.spans[1].1, Span::of(100.0));
    }

    #[test]
    fn a_number_of_an_earlier_time_closes_the_bucket_too() {
        let mut tens = Rollup::new(10_000);
        tens.add(50_000, &one(1.0));
        assert_eq!(tens.add(-5_000, &one(2.0)).unwrap().start_ms, 50_000);
        assert_eq!(tens.add(0, &one(3.0)).unwrap().start_ms, -10_000);
    }

    #[test]
    fn the_mean_of_parts_is_the_mean_of_the_whole() {
        let numbers: Vec<f64> = (0..60).map(|n| f64::from(n * n % 17) * 1.5e9).collect();
        let whole = numbers.iter().map(|value| Span::of(*value)).reduce(Span::with).unwrap();
        let part = |range: std::ops::Range<usize>| {
            numbers[range].iter().map(|value| Span::of(*value)).reduce(Span::with).unwrap()
        };
        let joined = part(0..3).with(part(3..41)).with(part(41..60));
        let mean = numbers.iter().sum::<f64>() / 60.0;
        for span in [whole, joined] {
            assert_eq!((span.count, span.min, span.max), (60, 0.0, 16.0 * 1.5e9));
            assert!((span.avg - mean).abs() < 1e-3, "{} is not {mean}", span.avg);
        }
    }
}
