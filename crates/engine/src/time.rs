//! Two clocks, both handed in. Awake time stands still while the machine sleeps; wall time does not. Silence and
//! deadlines are counted in awake time, log lines and process starts are compared in wall time.

use std::ops::{Add, Sub};
use std::time::Duration;

/// Time awake since some fixed point of this boot. Only differences mean anything.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Awake(Duration);

impl Awake {
    /// The instant that lies this far after the clock's fixed point.
    pub const fn from_start(since: Duration) -> Self {
        Self(since)
    }

    /// How far this instant lies after the clock's fixed point.
    pub const fn since_start(self) -> Duration {
        self.0
    }

    /// Time awake from `earlier` to here; zero when `earlier` is later.
    pub fn since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

impl Add<Duration> for Awake {
    type Output = Self;

    fn add(self, span: Duration) -> Self {
        Self(self.0.saturating_add(span))
    }
}

/// Calendar time in milliseconds since 1970-01-01 UTC. It can jump in either direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Wall {
    /// Milliseconds since 1970-01-01 UTC.
    pub unix_ms: i64,
}

impl Wall {
    /// Calendar time from Unix milliseconds.
    pub const fn from_unix_ms(unix_ms: i64) -> Self {
        Self { unix_ms }
    }
}

impl Sub for Wall {
    type Output = Duration;

    /// Zero when `earlier` is later: a clock set back proves nothing.
    fn sub(self, earlier: Self) -> Duration {
        let span_ms = self.unix_ms.saturating_sub(earlier.unix_ms);
        Duration::from_millis(u64::try_from(span_ms).unwrap_or(0))
    }
}

/// One instant on both clocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Now {
    /// Time awake.
    pub awake: Awake,
    /// Calendar time.
    pub wall: Wall,
}
