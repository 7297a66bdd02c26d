//! Counts of sizes in buckets that grow with the size: eight to a doubling, so that a size is known to about six
//! percent, in a fixed amount of memory.

/// Counts of values from 0 to 2^40; larger ones count as that.
#[derive(Clone, Debug)]
pub(super) struct Histogram {
    buckets: Box<[u32; BUCKETS]>,
    count: u64,
    largest: u64,
}

const PER_DOUBLING_BITS: u32 = 3;
const DOUBLINGS: usize = 38;
/// Values below 16 have a bucket each; each doubling above has eight.
const BUCKETS: usize = (DOUBLINGS << PER_DOUBLING_BITS) + (1 << PER_DOUBLING_BITS);

impl Default for Histogram {
    fn default() -> Self {
        Self { buckets: Box::new([0; BUCKETS]), count: 0, largest: 0 }
    }
}

impl Histogram {
    pub fn add(&mut self, value: u64) {
        let bucket = &mut self.buckets[bucket(value)];
        *bucket = bucket.saturating_add(1);
        self.count += 1;
        self.largest = self.largest.max(value);
    }

    pub fn merge(&mut self, other: &Self) {
        for (mine, others) in self.buckets.iter_mut().zip(other.buckets.iter()) {
            *mine = mine.saturating_add(*others);
        }
        self.count += other.count;
        self.largest = self.largest.max(other.largest);
    }

    pub fn count(&self) -> u64 {
        self.count
    }

    /// The largest value, exactly; 0 without values.
    pub fn largest(&self) -> u64 {
        self.largest
    }

    /// The value that this share (0 to 1) of all values does not exceed; `None` without values.
    pub fn share(&self, share: f64) -> Option<u64> {
        let rank = ((self.count as f64 * share).ceil() as u64).clamp(1, self.count.max(1));
        let mut below = 0;
        for (index, count) in self.buckets.iter().enumerate() {
            below += u64::from(*count);
            if below >= rank {
                return Some(middle(index).min(self.largest));
            }
        }
        None
    }
}

fn bucket(value: u64) -> usize {
    let small = 1 << (PER_DOUBLING_BITS + 1);
    if value < small {
        return value as usize;
    }
    let doubling = 63 - value.leading_zeros();
    let within = (value >> (doubling - PER_DOUBLING_BITS)) as usize & ((1 << PER_DOUBLING_BITS) - 1);
    let index = ((doubling - PER_DOUBLING_BITS) as usize + 1) << PER_DOUBLING_BITS | within;
    index.min(BUCKETS - 1)
}

fn middle(index: usize) -> u64 {
    let small = 1 << (PER_DOUBLING_BITS + 1);
    if index < small {
        return index as u64;
    }
    let shift = (index >> PER_DOUBLING_BITS) as u32 - 1;
    let within = (index & ((1 << PER_DOUBLING_BITS) - 1)) as u64;
    let begins = ((1 << PER_DOUBLING_BITS) + within) << shift;
    begins + (1 << shift) / 2
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn shares_of_a_known_list() {
        let mut histogram = Histogram::default();
        assert_eq!(histogram.share(0.5), None);
        (1..=1000).for_each(|value| histogram.add(value));
        let near = |share: f64, value: f64| (histogram.share(share).unwrap() as f64 / value - 1.0).abs() < 0.07;
        assert!(near(0.5, 500.0) && near(0.9, 900.0) && near(0.99, 990.0));
        assert_eq!((histogram.count(), histogram.largest()), (1000, 1000));
        assert_eq!(histogram.share(1.0), Some(992));
    }

    proptest! {
        #[test]
        fn a_value_comes_back_to_within_a_sixteenth(value in 0..1_u64 << 40) {
            let mut histogram = Histogram::default();
            histogram.add(value);
            let middle = middle(bucket(value));
            prop_assert!(middle.abs_diff(value) <= value / 16 + 1, "{value} {middle}");
            prop_assert!(histogram.share(0.5).unwrap() <= value);
        }

        #[test]
        fn no_value_is_too_large(value in any::<u64>()) {
            Histogram::default().add(value);
            prop_assert!(bucket(value) < BUCKETS);
        }
    }
}
