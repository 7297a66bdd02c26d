//! Moving means of what was measured.

use std::time::Duration;

/// A newer measurement counts for one part in so many of the mean.
const MEMORY: u32 = 8;

/// A moving mean of spans; nothing before the first one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Mean(Option<Duration>);

impl Mean {
    pub(super) fn learn(&mut self, span: Duration) {
        self.0 = Some(match self.0 {
            None => span,
            Some(mean) => mean - mean / MEMORY + span / MEMORY,
        });
    }

    pub(super) fn get(self) -> Option<Duration> {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mean_follows_what_is_measured() {
        let mut mean = Mean::default();
        assert_eq!(mean.get(), None);
        mean.learn(Duration::from_secs(8));
        assert_eq!(mean.get(), Some(Duration::from_secs(8)));
        mean.learn(Duration::from_secs(16));
        assert_eq!(mean.get(), Some(Duration::from_secs(9)));
        for _ in 0..100 {
            mean.learn(Duration::from_secs(30));
        }
        assert!(mean.get().is_some_and(|mean| mean.as_secs_f64() > 29.9), "{mean:?}");
    }
}
