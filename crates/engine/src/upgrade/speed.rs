//! Whether a version is slower than the one before.

use crate::known::Known;

/// One that is slower by less is as fast: the same version measured twice differs by some percent.
const SLOWER_PERCENT: u64 = 10;

/// Whether the speed after an upgrade is so much less than before that going back is worth a word. Both in the same
/// unit; nothing is said where one was not measured.
pub fn is_slower(before: &Known<u64>, after: &Known<u64>) -> bool {
    match (before, after) {
        (Known::Is(before), Known::Is(after)) => {
            after.saturating_mul(100) < before.saturating_mul(100 - SLOWER_PERCENT)
        }
        (Known::Unknown(_), _) | (_, Known::Unknown(_)) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenth_is_no_news_and_more_is() {
        let slower = |before, after| is_slower(&Known::Is(before), &Known::Is(after));
        assert!(!slower(100, 90));
        assert!(slower(100, 89));
        assert!(!slower(100, 200));
        assert!(!slower(0, 0));
        assert!(!is_slower(&Known::Is(100), &Known::unknown("no model is installed")));
    }
}
