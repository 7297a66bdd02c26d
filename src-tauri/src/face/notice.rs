//! A notification about an alert. Which alerts are told is decided by the daemon (quiet hours, pauses, one of a kind a
//! minute): on Linux it posts them itself, on macOS it starts this program with the alert's kind.

use crate::face::words::Words;
use stablehand_protocol::Snapshot;

/// What is posted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// What happened.
    pub summary: String,
    /// What to do.
    pub body: String,
}

/// The notification about the newest alert of this kind; without one (several matters after quiet hours are told as
/// one kind of their own) about the newest of all.
pub fn notice(snapshot: Option<&Snapshot>, kind: &str, simulated: bool, words: &Words) -> Notice {
    let alerts = snapshot.map(|snapshot| snapshot.alerts.as_slice()).unwrap_or_default();
    let alert = alerts.iter().rev().find(|alert| alert.kind == kind).or_else(|| alerts.last());
    let message = alert.map_or_else(|| words.say("notice.fallback"), |alert| alert.message.clone());
    let action = alert.filter(|alert| !alert.action.is_empty());
    let action = action.map(|alert| words.fill("notice.action", &[("action", &alert.action)]));
    let evidence = alert.and_then(|alert| alert.evidence.clone());
    let body = evidence.into_iter().chain(action).collect::<Vec<_>>().join("\n");
    let summary = if simulated { words.fill("notice.simulated", &[("message", &message)]) } else { message };
    Notice { summary, body }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::face::testing::{alert, snapshot};
    use crate::face::words::Language;

    #[test]
    fn the_newest_of_the_kind_is_told_with_its_remedy() {
        let words = Words::of(Language::English);
        let mut seen = snapshot();
        seen.alerts = vec![alert("hung", "old"), alert("hung", "new"), alert("drift", "other")];
        assert_eq!(
            notice(Some(&seen), "hung", false, &words),
            Notice { summary: "new".to_owned(), body: "To mend it: do it".to_owned() }
        );
        seen.alerts[1].evidence = Some("1 slot busy".to_owned());
        assert_eq!(notice(Some(&seen), "hung", false, &words).body, "1 slot busy\nTo mend it: do it");
        assert_eq!(notice(Some(&seen), "since-quiet", false, &words).summary, "other");
        assert_eq!(notice(Some(&seen), "hung", true, &words).summary, "SIMULATED: new");
        assert_eq!(notice(None, "hung", false, &words).summary, "Stablehand has something to tell");
    }
}
