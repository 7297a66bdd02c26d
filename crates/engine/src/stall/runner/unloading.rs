//! How long a model stays loaded, as `/api/ps` tells it, and whether its unload goes through.

use crate::Known;
use crate::stall::evidence::Listing;
use crate::time::{Awake, Now, Wall};
use std::time::Duration;

/// What is known of the stay. The end is a calendar time of Ollama's clock; it is turned into awake time when it is
/// first read, because Ollama's own timer stands still while the machine sleeps, and a calendar can be set.
#[derive(Clone, Debug, Default)]
pub(super) struct Stay {
    listed: Option<Listed>,
    /// It was listed once, so it was loaded.
    was_listed: bool,
    absent_for: Option<Duration>,
}

#[derive(Clone, Copy, Debug)]
struct Listed {
    until: Wall,
    expected: Awake,
    /// The end was moved to the present: `keep_alive: 0`, `ollama stop` (`server/sched.go expireRunner`).
    asked: bool,
    /// Awake time over the end without progress, paged time weighing less.
    over: Duration,
}

/// A moved end this near to the present is one that was asked for.
const PRESENT: Duration = Duration::from_secs(2);

impl Stay {
    /// Takes in a look; `moved` when the runner made progress.
    pub(super) fn take_in(&mut self, now: Now, worked: Duration, seen: &Known<Listing>, moved: bool) {
        let Some(listing) = seen.known() else { return };
        match listing {
            Listing::Absent => {
                self.listed = None;
                let before = self.absent_for.unwrap_or_default();
                self.absent_for = Some(if moved { Duration::ZERO } else { before + worked });
            }
            Listing::Until(until) => {
                self.absent_for = None;
                self.was_listed = true;
                let listed = match self.listed {
                    Some(listed) if listed.until == *until => listed.waited(now, worked, moved),
                    before => Listed {
                        until: *until,
                        expected: now.awake + (*until - now.wall),
                        asked: before.is_some_and(|before| *until < before.until) && *until - now.wall <= PRESENT,
                        over: Duration::ZERO,
                    },
                };
                self.listed = Some(listed);
            }
        }
    }

    /// Whatever was counted so far means nothing.
    pub(super) fn forgive(&mut self, now: Awake) {
        if let Some(listed) = &mut self.listed {
            listed.over = Duration::ZERO;
            listed.expected = listed.expected.max(now);
        }
        if let Some(absent_for) = &mut self.absent_for {
            *absent_for = Duration::ZERO;
        }
    }

    /// How long the end has passed, and whether the unload was asked for.
    pub(super) fn over(&self) -> Option<(Duration, bool)> {
        self.listed.filter(|listed| !listed.over.is_zero()).map(|listed| (listed.over, listed.asked))
    }

    /// Whether `/api/ps` ever listed it.
    pub(super) fn was_listed(&self) -> bool {
        self.was_listed
    }

    /// For how long `/api/ps` has not listed it.
    pub(super) fn absent(&self) -> Option<Duration> {
        self.absent_for
    }
}

impl Listed {
    fn waited(self, now: Now, worked: Duration, moved: bool) -> Self {
        let over = if moved || now.awake <= self.expected { Duration::ZERO } else { self.over + worked };
        Self { over, ..self }
    }
}
