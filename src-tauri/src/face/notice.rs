//! A notification about an alert. Which alerts are told is decided by the daemon (quiet hours, pauses, one of a kind a
//! minute): it starts this program with the alert's kind, and on Linux posts them itself where no copy of it runs.

use crate::face::words::Words;
use stablehand_protocol::face::Ask;
use stablehand_protocol::{Alert, Known, Request, Snapshot};

/// The kind that tells of a new version of Ollama (docs/api.md).
const NEW_VERSION: &str = "new-version";

/// What is posted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// What happened.
    pub summary: String,
    /// What to do.
    pub body: String,
    /// What its button does, when it has one.
    pub deed: Option<Deed>,
}

/// Something that can be done right from the notification.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deed {
    /// The button's words.
    pub text: String,
    /// What it asks for.
    pub ask: Ask,
}

/// The notification about the newest alert of this kind; without one (several matters after quiet hours are told as
/// one kind of their own) about the newest of all.
pub fn notice(snapshot: Option<&Snapshot>, kind: &str, simulated: bool, words: &Words) -> Notice {
    let alerts = snapshot.map(|snapshot| snapshot.alerts.as_slice()).unwrap_or_default();
    let alert = alerts.iter().rev().find(|alert| alert.kind == kind).or_else(|| alerts.last());
    if let Some(notice) = new_version(snapshot, alert, simulated, words) {
        return notice;
    }
    let message = alert.map_or_else(|| words.say("notice.fallback"), |alert| alert.message.clone());
    let action = alert.filter(|alert| !alert.action.is_empty());
    let action = action.map(|alert| words.fill("notice.action", &[("action", &alert.action)]));
    let evidence = alert.and_then(|alert| alert.evidence.clone());
    let body = evidence.into_iter().chain(action).collect::<Vec<_>>().join("\n");
    Notice { summary: named(message, simulated, words), body, deed: None }
}

/// A new version is told in the person's language, with the button that puts it in place; while it is still to be had.
fn new_version(snapshot: Option<&Snapshot>, alert: Option<&Alert>, simulated: bool, words: &Words) -> Option<Notice> {
    alert.filter(|alert| alert.kind == NEW_VERSION)?;
    let versions = snapshot?.versions.as_ref()?;
    let release =
        versions.latest.as_ref().filter(|_| versions.newer == Known::Is(true) && versions.running.is_none())?;
    let message = words.fill("notice.new-version", &[("version", &release.version)]);
    let body = match &versions.installed {
        Known::Is(installed) => words.fill("notice.new-version.installed", &[("version", installed)]),
        Known::Unknown { .. } => String::new(),
    };
    let request = Request::Upgrade {
        to: Some(release.version.clone()),
        prerelease: release.prerelease,
        downgrade: false,
        measure: false,
        dry_run: false,
    };
    let deed = Deed { text: words.say("notice.upgrade"), ask: Ask::Request { request } };
    let deed = Some(deed).filter(|_| versions.replaceable);
    Some(Notice { summary: named(message, simulated, words), body, deed })
}

fn named(message: String, simulated: bool, words: &Words) -> String {
    if simulated { words.fill("notice.simulated", &[("message", &message)]) } else { message }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::face::testing::{alert, running, snapshot, versions};
    use crate::face::words::Language;
    use stablehand_protocol::Versions;

    #[test]
    fn the_newest_of_the_kind_is_told_with_its_remedy() {
        let words = Words::of(Language::English);
        let mut seen = snapshot();
        seen.alerts = vec![alert("hung", "old"), alert("hung", "new"), alert("drift", "other")];
        assert_eq!(
            notice(Some(&seen), "hung", false, &words),
            Notice { summary: "new".to_owned(), body: "What to do: do it".to_owned(), deed: None }
        );
        seen.alerts[1].evidence = Some("1 slot busy".to_owned());
        assert_eq!(notice(Some(&seen), "hung", false, &words).body, "1 slot busy\nWhat to do: do it");
        assert_eq!(notice(Some(&seen), "since-quiet", false, &words).summary, "other");
        assert_eq!(notice(Some(&seen), "hung", true, &words).summary, "SIMULATED: new");
        assert_eq!(notice(None, "hung", false, &words).summary, "Stablehand has something to tell");
    }

    #[test]
    fn a_new_version_has_a_button_that_puts_it_in_place() {
        let mut seen = snapshot();
        seen.alerts = vec![alert("new-version", "Ollama 0.24.0 is out; 0.22.1 is installed")];
        seen.versions = Some(versions());
        let told = notice(Some(&seen), "new-version", false, &Words::of(Language::Korean));
        assert_eq!(told.summary, "Ollama 0.24.0 출시");
        let told = notice(Some(&seen), "new-version", false, &Words::of(Language::English));
        assert_eq!((&*told.summary, &*told.body), ("Ollama 0.24.0 is out", "0.22.1 is installed."));
        let deed = told.deed.unwrap();
        assert_eq!(deed.text, "Upgrade");
        let asked = serde_json::to_string(&deed.ask).unwrap();
        assert!(asked.contains(r#""verb":"upgrade","to":"0.24.0""#), "{asked}");
        seen.versions = Some(Versions { replaceable: false, ..versions() });
        let told = notice(Some(&seen), "new-version", false, &Words::of(Language::English));
        assert_eq!((&*told.summary, told.deed), ("Ollama 0.24.0 is out", None), "it is for whoever installed it");
        // Somebody was faster.
        seen.versions = Some(Versions { running: Some(running("upgrade")), ..versions() });
        assert_eq!(notice(Some(&seen), "new-version", false, &Words::of(Language::English)).deed, None);
    }
}
