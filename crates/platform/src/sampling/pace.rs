//! How often to look.

use std::time::Duration;

/// While someone looks or something is wrong.
const OFTEN: Duration = Duration::from_secs(1);

/// While requests are in flight and nobody looks.
const SOMETIMES: Duration = Duration::from_secs(5);

/// While nothing happens.
const SELDOM: Duration = Duration::from_secs(30);

/// How long to wait until the next look: 1 s while someone looks or something is wrong, 5 s while requests are in
/// flight, 30 s otherwise.
pub const fn next_interval(lookers: u32, busy: bool, trouble: bool) -> Duration {
    if lookers > 0 || trouble {
        OFTEN
    } else if busy {
        SOMETIMES
    } else {
        SELDOM
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_looker_or_trouble_outweighs_everything_and_work_outweighs_rest() {
        for (lookers, busy, trouble, seconds) in [
            (0, false, false, 30),
            (0, true, false, 5),
            (0, false, true, 1),
            (0, true, true, 1),
            (1, false, false, 1),
            (u32::MAX, true, true, 1),
        ] {
            assert_eq!(next_interval(lookers, busy, trouble), Duration::from_secs(seconds));
        }
    }
}
