//! What a person is told, and how often: on change only, at most one of a kind a minute, each with an action. Which of
//! it reaches the desktop is decided in [`desktop`].

pub mod desktop;

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
    /// A stall; the word of its verdict.
    Stall(&'static str),
    /// What recovery has come to; its word.
    Recovery(&'static str),
    /// A model is loaded that is not among the allowed ones.
    UnexpectedModel,
    /// What is loaded takes more than models may take together.
    MemoryBudget,
    /// A newer version of Ollama is out.
    NewVersion,
    /// An upgrade or a rollback has ended while nobody waited for it, or was taken up after it was cut off.
    Upgrade,
    /// The gateway does not stand in the server's place although it is wished.
    GatewayAside,
    /// The gateway was started anew because requests did not come through it.
    GatewayRestarted,
    /// A client asks the gateway for a model that is not installed.
    MissingModel,
    /// Several things that went wrong in quiet hours, at their end.
    SinceQuiet,
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
            Self::Stall(word) | Self::Recovery(word) => word,
            Self::UnexpectedModel => "unexpected-model",
            Self::MemoryBudget => "memory-budget",
            Self::NewVersion => "new-version",
            Self::Upgrade => "upgrade",
            Self::GatewayAside => "gateway-aside",
            Self::GatewayRestarted => "gateway-restarted",
            Self::MissingModel => "missing-model",
            Self::SinceQuiet => "since-quiet",
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
    /// The facts that speak for it, where it rests on any.
    pub evidence: Option<String>,
    /// What the person can do: a command.
    pub action: Cow<'static, str>,
}

impl Alert {
    /// An alert of a kind.
    pub fn new(kind: AlertKind, message: String, action: impl Into<Cow<'static, str>>) -> Self {
        Self { kind, message, evidence: None, action: action.into() }
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
    /// News that came within [`QUIET_SPAN`].
    waiting: Option<Alert>,
}

impl Memory {
    fn tell(&mut self, now: Awake, alert: Alert) -> Alert {
        self.told_at = Some(now);
        self.message.clone_from(&alert.message);
        self.waiting = None;
        alert
    }

    fn is_quiet(&self, now: Awake) -> bool {
        self.told_at.is_some_and(|told| now.since(told) < QUIET_SPAN)
    }
}

impl AlertGate {
    /// A condition holds. Returns the alert when it is news (the condition was not there before, or has another
    /// message) and the last alert of its kind lies at least [`QUIET_SPAN`] back. News that comes sooner waits for
    /// [`Self::due`].
    pub fn offer(&mut self, now: Awake, alert: Alert) -> Option<Alert> {
        let memory = self.kinds.entry(alert.kind).or_insert_with(|| Memory {
            told_at: None,
            message: String::new(),
            gone_since: None,
            waiting: None,
        });
        let cleared = memory.gone_since.take().is_some_and(|since| now.since(since) >= CLEAR_SPAN);
        if memory.told_at.is_some() && !cleared && memory.message == alert.message {
            // What was told last holds again, and whatever was between has passed; unless it was gone for good meanwhile
            // and waits to be told anew.
            memory.waiting.take_if(|waiting| waiting.message != alert.message);
            return None;
        }
        if memory.is_quiet(now) {
            memory.waiting = Some(alert);
            return None;
        }
        Some(memory.tell(now, alert))
    }

    /// News that had to wait and still holds.
    pub fn due(&mut self, now: Awake) -> Vec<Alert> {
        let due = self.kinds.values_mut().filter(|memory| !memory.is_quiet(now) && memory.gone_since.is_none());
        due.filter_map(|memory| memory.waiting.take().map(|alert| memory.tell(now, alert))).collect()
    }

    /// A condition does not hold (any more).
    pub fn clear(&mut self, now: Awake, kind: AlertKind) {
        if let Some(memory) = self.kinds.get_mut(&kind) {
            memory.gone_since.get_or_insert(now);
        }
    }

    /// Clears every kind that suits.
    pub fn clear_all(&mut self, now: Awake, suits: impl Fn(AlertKind) -> bool) {
        for (kind, memory) in &mut self.kinds {
            if suits(*kind) {
                memory.gone_since.get_or_insert(now);
            }
        }
    }

    /// Whether something of this kind was told and still holds. What is over as soon as it is told never holds.
    pub fn holds(&self, kind: AlertKind) -> bool {
        let lasts = match kind {
            AlertKind::GaveUp
            | AlertKind::ServerSilent
            | AlertKind::Drift
            | AlertKind::Contested
            | AlertKind::Stall(_)
            | AlertKind::UnexpectedModel
            | AlertKind::NewVersion
            | AlertKind::MemoryBudget
            | AlertKind::GatewayAside => true,
            AlertKind::LoginRace
            | AlertKind::Recovery(_)
            | AlertKind::Upgrade
            | AlertKind::GatewayRestarted
            | AlertKind::MissingModel
            | AlertKind::SinceQuiet => false,
        };
        lasts && self.kinds.get(&kind).is_some_and(|memory| memory.gone_since.is_none())
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

    #[test]
    fn two_things_of_a_kind_within_a_minute_are_both_told_in_the_end() {
        let mut gate = AlertGate::default();
        assert!(gate.offer(at(0), drift("a")).is_some());
        assert!(gate.offer(at(5), drift("b")).is_none());
        assert_eq!(gate.due(at(59)), []);
        assert_eq!(gate.due(at(60)), [drift("b")]);
        assert_eq!(gate.due(at(200)), []);
    }

    #[test]
    fn what_is_gone_before_its_minute_is_not_told() {
        let mut gate = AlertGate::default();
        assert!(gate.offer(at(0), drift("a")).is_some());
        assert!(gate.offer(at(5), drift("b")).is_none());
        gate.clear_all(at(6), |kind| kind == AlertKind::Drift);
        assert_eq!(gate.due(at(60)), []);
        assert!(!gate.holds(AlertKind::Drift));
    }

    #[test]
    fn what_happened_once_does_not_hold() {
        let mut gate = AlertGate::default();
        gate.offer(at(0), Alert::new(AlertKind::Recovery("recovered"), "a".to_owned(), "b"));
        gate.offer(at(0), drift("a"));
        assert!(gate.holds(AlertKind::Drift) && !gate.holds(AlertKind::Recovery("recovered")));
    }

    #[test]
    fn what_comes_back_within_its_minute_is_told_when_that_is_over() {
        let mut gate = AlertGate::default();
        assert!(gate.offer(at(0), drift("a")).is_some());
        gate.clear(at(5), AlertKind::Drift);
        // It is offered at every look while it holds.
        for second in 20..60 {
            assert_eq!((gate.offer(at(second), drift("a")), gate.due(at(second))), (None, vec![]));
        }
        assert_eq!(gate.due(at(60)), [drift("a")]);
        assert_eq!((gate.offer(at(61), drift("a")), gate.due(at(200))), (None, vec![]), "told once");
    }

    fn drift(message: &str) -> Alert {
        Alert::new(AlertKind::Drift, message.to_owned(), "stablehand apply")
    }

    fn at(seconds: u64) -> Awake {
        Awake::from_start(Duration::from_secs(seconds))
    }
}
