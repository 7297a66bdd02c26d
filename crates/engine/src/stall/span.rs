//! Durations as a person reads them.

use std::fmt;
use std::time::Duration;

/// A silence or a prediction: seconds up to ten minutes, because they are compared with each other.
pub(super) struct Seconds(pub Duration);

impl fmt::Display for Seconds {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 < Duration::from_secs(600) { write!(out, "{} s", self.0.as_secs()) } else { Clock(self.0).fmt(out) }
    }
}

/// A wait: minutes and seconds, or hours and minutes.
pub(super) struct Clock(pub Duration);

impl fmt::Display for Clock {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0.as_secs();
        if seconds < 60 {
            write!(out, "{seconds} s")
        } else if seconds < 3_600 {
            write!(out, "{} m {} s", seconds / 60, seconds % 60)
        } else {
            write!(out, "{} h {} m", seconds / 3_600, seconds / 60 % 60)
        }
    }
}

/// Seconds as a span; what is not finite or negative is the longest or no time.
pub(super) fn from_seconds(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds.max(0.0)).unwrap_or(Duration::MAX)
}
