//! What a person is told, and how often: on change only, at most one of a kind a minute, each with an action.

use crate::time::Awake;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::Duration;

/// What an alert is about. There is at most one alert of a kind in [`QUIET_SPAN`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AlertKind {
    /// Recovery has ended without success.
    GaveUp,
    /// The server runs and does not answer.
    ServerSilent,
    /// The server was restarted because it had lost the race at login.
    LoginRace,
    /// A setting is not in force.
    Drift,
    /// Several owners fight for the port.
    Contested,
    /// A stall or its recovery; the word of its kind.
    Stall(&'static str),
    /// A model is loaded that is not among the allowed ones.
    UnexpectedModel,
}

impl AlertKind {
    /// The word used for it in JSON.
    pub fn word(self) -> &'static str {
        match self {
            Self::GaveUp => "gave-up",
            Self::ServerSilent => "server-silent",
            Self::LoginRace => "login-race",
            Self::Drift => "drift",
            Self::Contested => "contested",
            Self::Stall(word) => word,
            Self::UnexpectedModel => "unexpected-model",
        }
    }
}

/// Something a person should know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Alert {
    /// What it is about.
    pub kind: AlertKind,
    /// What happened, in one sentence.
    pub message: String,
    /// What the person can do: a command.
    pub action: Cow<'static, str>,
}

impl Alert {
    /// An alert of a kind.
    pub fn new(kind: AlertKind, message: String, action: impl Into<Cow<'static, str>>) -> Self {
        Self { kind, message, action: action.into() }
    }
}

/// The span in which a second alert of the same kind is kept back.
pub const QUIET_SPAN: Duration = Duration::from_secs(60);
/// How long a condition must be gone before it can be alerted anew.
pub const CLEAR_SPAN: Duration = Duration::from_secs(10);

/// Decides which alerts reach a person.
#[derive(Debug, Default)]
pub struct AlertGate {
    kinds: BTreeMap<AlertKind, Memory>,
}

#[derive(Debug)]
struct Memory {
    told_at: Option<Awake>,
    message: String,
    gone_since: Option<Awake>,
}

impl AlertGate {
    /// A condition holds. Returns the alert when it is news: the condition was not there before, or has another
    /// message, and the last alert of its kind lies at least [`QUIET_SPAN`] back.
    pub fn offer(&mut self, now: Awake, alert: Alert) -> Option<Alert> {
        let memory = self.kinds.entry(alert.kind).or_insert_with(|| Memory {
            told_at: None,
            message: String::new(),
            gone_since: None,
        });
        let cleared = memory.gone_since.is_some_and(|since| now.since(since) >= CLEAR_SPAN);
        let news = memory.told_at.is_none() || cleared || memory.message != alert.message;
        memory.gone_since = None;
        let quiet = memory.told_at.is_some_and(|told| now.since(told) < QUIET_SPAN);
        if !news || quiet {
            return None;
        }
        memory.told_at = Some(now);
        memory.message.clone_from(&alert.message);
        Some(alert)
    }

    /// A condition does not hold (any more).
    pub fn clear(&mut self, now: Awake, kind: AlertKind) {
        if let Some(memory) = self.kinds.get_mut(&kind) {
            memory.gone_since.get_or_insert(now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_condition_that_stays_is_told_once() {
        let mut gate = AlertGate::default();
        assert!(gate.offer(at(0), drift("a")).is_some());
        assert!(gate.offer(at(120), drift("a")).is_none());
    }

    #[test]
    fn a_condition_that_flickers_is_told_once_a_minute_at_most() {
        let mut gate = AlertGate::default();
        let told = (0..120)
            .filter(|second| {
                if second % 2 == 0 {
                    gate.offer(at(*second), drift("a")).is_some()
                } else {
                    gate.clear(at(*second), AlertKind::Drift);
                    false
                }
            })
            .count();
        assert_eq!(told, 1, "gone for a second is not gone");
    }

    #[test]
    fn a_condition_that_comes_back_is_told_again() {
        let mut gate = AlertGate::default();
        assert!(gate.offer(at(0), drift("a")).is_some());
        gate.clear(at(50), AlertKind::Drift);
        assert!(gate.offer(at(61), drift("a")).is_some());
    }

    #[test]
    fn another_message_of_the_kind_waits_for_the_minute() {
        let mut gate = AlertGate::default();
        assert!(gate.offer(at(0), drift("a")).is_some());
        assert!(gate.offer(at(30), drift("b")).is_none());
        assert!(gate.offer(at(60), drift("b")).is_some());
    }

    fn drift(message: &str) -> Alert {
        Alert::new(AlertKind::Drift, message.to_owned(), "stablehand apply")
    }

    fn at(seconds: u64) -> Awake {
        Awake::from_start(Duration::from_secs(seconds))
    }
}
