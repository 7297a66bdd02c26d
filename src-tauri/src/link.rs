//! How it stands with the daemon: a state machine that gets what was seen, and the time.

use stablehand_protocol::client::ClientError;
use stablehand_protocol::face::Link;
use stablehand_protocol::{Failure, Snapshot};
use std::time::Duration;

/// Our version; the daemon's must be the same.
const VERSION: &str = env!("CARGO_PKG_VERSION");
/// The first wait after a connection was lost. It doubles with every try.
const FIRST_RETRY: Duration = Duration::from_millis(250);
/// The longest wait.
const LONGEST_RETRY: Duration = Duration::from_secs(8);
/// A daemon that nothing is installed for, and that was seen this long ago, is not coming back by itself.
const ABSENT_AFTER: Duration = Duration::from_secs(5);

/// The moment of an event.
#[derive(Clone, Debug)]
pub struct Moment {
    /// Since the program began.
    pub since_start: Duration,
    /// RFC 3339.
    pub wall: String,
}

/// What was seen.
#[derive(Debug)]
pub enum Seen {
    /// A snapshot.
    Snapshot(Box<Snapshot>),
    /// No connection, or no more of it.
    Lost {
        /// Why.
        loss: Loss,
        /// Whether the daemon is installed for every login.
        installed: bool,
    },
}

/// Why there is no connection.
#[derive(Debug)]
pub enum Loss {
    /// Nobody listens.
    NotRunning(Failure),
    /// The daemon is of another version.
    OtherVersion {
        /// Its version.
        daemon: String,
        /// What that means.
        failure: Failure,
    },
    /// Anything else.
    Broken(Failure),
}

impl From<ClientError> for Loss {
    fn from(error: ClientError) -> Self {
        match error {
            ClientError::NotRunning(_) => Self::NotRunning(error.into()),
            ClientError::Strange { ref daemon, .. } | ClientError::OtherVersion { ref daemon, .. } => {
                Self::OtherVersion { daemon: daemon.clone(), failure: error.into() }
            }
            ClientError::NotOurs(_) | ClientError::Silent | ClientError::Broken(_) | ClientError::Refused(_) => {
                Self::Broken(error.into())
            }
        }
    }
}

/// The state.
#[derive(Debug)]
pub struct Connection {
    link: Link,
    attempts: u32,
    lost_at: Option<Duration>,
}

impl Connection {
    /// Before the first answer.
    pub fn new() -> Self {
        Self { link: Link::Connecting, attempts: 0, lost_at: None }
    }

    /// As the page sees it.
    pub fn link(&self) -> &Link {
        &self.link
    }

    /// How long to wait before the next try.
    pub fn retry_after(&self) -> Duration {
        let doubled = FIRST_RETRY.saturating_mul(1 << self.attempts.saturating_sub(1).min(8));
        doubled.min(LONGEST_RETRY)
    }

    /// A person did something that may have brought the daemon: try quickly again.
    pub fn hope(&mut self) {
        self.attempts = 0;
        self.lost_at = None;
    }

    /// Takes in what was seen.
    pub fn step(&mut self, now: &Moment, seen: Seen) {
        match seen {
            Seen::Snapshot(snapshot) => self.answered(snapshot),
            Seen::Lost { loss, installed } => self.lost(now, loss, installed),
        }
    }

    fn answered(&mut self, snapshot: Box<Snapshot>) {
        self.lost_at = None;
        let daemon = snapshot.daemon_version.clone();
        if daemon == VERSION {
            self.attempts = 0;
            self.link = Link::Live { snapshot };
        } else {
            let failure = ClientError::OtherVersion { daemon: daemon.clone(), client: VERSION }.into();
            self.attempts = self.attempts.saturating_add(1);
            self.link = Link::OtherVersion { daemon, failure };
        }
    }

    fn lost(&mut self, now: &Moment, loss: Loss, installed: bool) {
        self.attempts = self.attempts.saturating_add(1);
        let lost_at = *self.lost_at.get_or_insert(now.since_start);
        let failure = match loss {
            Loss::OtherVersion { daemon, failure } => {
                self.link = Link::OtherVersion { daemon, failure };
                return;
            }
            Loss::NotRunning(failure) => {
                let seen_before =
                    matches!(self.link, Link::Live { .. } | Link::Reconnecting { .. } | Link::OtherVersion { .. });
                let long_ago = now.since_start.saturating_sub(lost_at) >= ABSENT_AFTER;
                if !installed && (!seen_before || long_ago) {
                    self.link = Link::Absent;
                    return;
                }
                failure
            }
            Loss::Broken(failure) => failure,
        };
        let (since, snapshot) = match std::mem::replace(&mut self.link, Link::Connecting) {
            Link::Live { snapshot } => (now.wall.clone(), Some(snapshot)),
            Link::Reconnecting { since, snapshot, .. } => (since, snapshot),
            Link::Connecting | Link::Absent | Link::OtherVersion { .. } => (now.wall.clone(), None),
        };
        self.link = Link::Reconnecting { since, snapshot, failure };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::face::testing::snapshot;

    fn at(seconds: u64) -> Moment {
        Moment { since_start: Duration::from_secs(seconds), wall: format!("t{seconds}") }
    }

    fn not_running(installed: bool) -> Seen {
        Seen::Lost { loss: Loss::from(ClientError::NotRunning("/s".into())), installed }
    }

    fn broken() -> Seen {
        Seen::Lost { loss: Loss::from(ClientError::Silent), installed: true }
    }

    fn seen() -> Seen {
        Seen::Snapshot(Box::new(snapshot()))
    }

    #[test]
    fn a_machine_without_stablehand_is_absent_at_once_and_live_when_it_comes() {
        let mut connection = Connection::new();
        assert_eq!(connection.link(), &Link::Connecting);
        connection.step(&at(0), not_running(false));
        assert_eq!(connection.link(), &Link::Absent);
        connection.step(&at(9), seen());
        assert!(matches!(connection.link(), Link::Live { .. }));
    }

    #[test]
    fn an_installed_daemon_that_is_away_is_waited_for_with_the_last_picture() {
        let mut connection = Connection::new();
        connection.step(&at(0), seen());
        connection.step(&at(5), broken());
        connection.step(&at(60), not_running(true));
        let Link::Reconnecting { since, snapshot, failure } = connection.link() else { panic!("{connection:?}") };
        assert_eq!((since.as_str(), snapshot.is_some(), failure.code.as_str()), ("t5", true, "daemon-not-running"));
        connection.step(&at(61), seen());
        assert!(matches!(connection.link(), Link::Live { .. }));
    }

    #[test]
    fn a_daemon_of_a_terminal_that_ended_becomes_absent_after_a_while() {
        let mut connection = Connection::new();
        connection.step(&at(0), seen());
        connection.step(&at(10), not_running(false));
        assert!(matches!(connection.link(), Link::Reconnecting { .. }));
        connection.step(&at(14), not_running(false));
        assert!(matches!(connection.link(), Link::Reconnecting { .. }));
        connection.step(&at(15), not_running(false));
        assert_eq!(connection.link(), &Link::Absent);
    }

    #[test]
    fn waits_grow_to_a_bound_and_begin_anew_after_an_answer() {
        let mut connection = Connection::new();
        let waits: Vec<_> = (0..8)
            .map(|second| {
                connection.step(&at(second), broken());
                connection.retry_after().as_millis()
            })
            .collect();
        assert_eq!(waits, [250, 500, 1000, 2000, 4000, 8000, 8000, 8000]);
        connection.step(&at(20), seen());
        connection.step(&at(21), broken());
        assert_eq!(connection.retry_after(), FIRST_RETRY);
    }

    #[test]
    fn another_version_is_named_and_not_shown_as_if_it_were_ours() {
        let mut other = snapshot();
        other.daemon_version = "9.9.9".to_owned();
        let mut connection = Connection::new();
        connection.step(&at(0), Seen::Snapshot(Box::new(other)));
        let Link::OtherVersion { daemon, failure } = connection.link() else { panic!("{connection:?}") };
        assert_eq!((daemon.as_str(), failure.code.as_str()), ("9.9.9", "daemon-version"));
        let strange = ClientError::Strange { daemon: "8".to_owned(), client: VERSION, what: "x".to_owned() };
        connection.step(&at(1), Seen::Lost { loss: strange.into(), installed: true });
        assert!(matches!(connection.link(), Link::OtherVersion { daemon, .. } if daemon == "8"));
    }
}
