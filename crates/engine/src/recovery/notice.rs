//! What a person is told of stalls and recovery.

use super::{Cause, Proof};
use crate::alert::{Alert, AlertKind};
use crate::stall::{Judgement, Verdict};

const RECOVERED: &str = "recovered";
const NOT_HELPED: &str = "not-helped";
const HELD: &str = "recovery-held";
const GAVE_UP: &str = "gave-up";
/// The command by which a person lets recovery try again.
const TRY_AGAIN: &str = "stablehand recover";

/// Something a person should know, with what can be done about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// The word of its kind: a verdict's, `recovered`, `not-helped`, `recovery-held` or `gave-up`. One of a kind is told a minute.
    pub kind: &'static str,
    /// What happened, in a sentence.
    pub message: String,
    /// The facts that speak for it, where it rests on any.
    pub evidence: Option<String>,
    /// What the person can do: a command.
    pub action: String,
}

impl Notice {
    /// As what people are told of everything.
    pub fn into_alert(self) -> Alert {
        let Self { kind, message, evidence, action } = self;
        let outcome = [RECOVERED, NOT_HELPED, HELD, GAVE_UP].contains(&kind);
        let kind = if outcome { AlertKind::Recovery(kind) } else { AlertKind::Stall(kind) };
        Alert { evidence, ..Alert::new(kind, message, action) }
    }

    pub(super) fn trouble(judgement: &Judgement) -> Self {
        Self {
            kind: judgement.verdict.word(),
            message: format!("{}: {}", judgement.subject, judgement.verdict),
            evidence: judgement.evidence_in_words(),
            action: action(judgement),
        }
    }

    pub(super) fn recovered(judgement: &Judgement, proof: Proof, unsaved: Option<&str>) -> Self {
        let recovered = match proof {
            Proof::Answered => "recovered, and the next request was answered",
            Proof::Seen => "recovered, and the server answers",
        };
        let end = match judgement.verdict {
            Verdict::Orphan => "it was ended",
            Verdict::Idle
            | Verdict::Loading { .. }
            | Verdict::Prefill { .. }
            | Verdict::Generating { .. }
            | Verdict::Serving
            | Verdict::Queued
            | Verdict::Slow { .. }
            | Verdict::Suspect { .. }
            | Verdict::Hung { .. }
            | Verdict::EmptyReplies
            | Verdict::StuckUnloading
            | Verdict::DeadButListed
            | Verdict::ServerSilent
            | Verdict::SchedulerBlocked
            | Verdict::ServerCorrupt
            | Verdict::JustWoke
            | Verdict::Unknown { .. } => recovered,
        };
        let message = format!("{}: {}; {end}{}", judgement.subject, judgement.verdict, without(unsaved));
        Self { kind: RECOVERED, message, evidence: None, action: "stablehand history --since 1h".to_owned() }
    }

    pub(super) fn not_helped(judgement: &Judgement, why: &str, unsaved: Option<&str>) -> Self {
        let (subject, verdict) = (&judgement.subject, &judgement.verdict);
        let message = format!("{subject}: {verdict}; the step of recovery has not helped: {why}{}", without(unsaved));
        Self { kind: NOT_HELPED, message, evidence: None, action: "stablehand why".to_owned() }
    }

    pub(super) fn held(judgement: &Judgement, why: &str) -> Self {
        let message = format!("{}: {}; nothing is done: {why}", judgement.subject, judgement.verdict);
        Self { kind: HELD, message, evidence: None, action: action(judgement) }
    }

    pub(super) fn gave_up(cause: Cause, judgement: &Judgement, why: &str, unsaved: Option<&str>) -> Self {
        let subject = &judgement.subject;
        let message = format!("gave up on recovering {subject} ({}): {why}{}", cause.word(), without(unsaved));
        Self { kind: GAVE_UP, message, evidence: None, action: TRY_AGAIN.to_owned() }
    }
}

/// That nothing was kept of what was seen before.
fn without(unsaved: Option<&str>) -> String {
    unsaved.map_or_else(String::new, |why| format!("; evidence was not kept: {why}"))
}

fn action(judgement: &Judgement) -> String {
    let model = judgement.subject.model().map(shell_word);
    match (&judgement.verdict, model) {
        (Verdict::Hung { .. } | Verdict::StuckUnloading | Verdict::Orphan, Some(model)) => {
            format!("stablehand runner stop {model} --force")
        }
        (Verdict::EmptyReplies, Some(model)) => format!("stablehand unload {model}"),
        (Verdict::ServerSilent | Verdict::SchedulerBlocked | Verdict::ServerCorrupt, _) => {
            "stablehand restart".to_owned()
        }
        (
            Verdict::Hung { .. }
            | Verdict::StuckUnloading
            | Verdict::Orphan
            | Verdict::EmptyReplies
            | Verdict::Idle
            | Verdict::Loading { .. }
            | Verdict::Prefill { .. }
            | Verdict::Generating { .. }
            | Verdict::Serving
            | Verdict::Queued
            | Verdict::Slow { .. }
            | Verdict::Suspect { .. }
            | Verdict::DeadButListed
            | Verdict::JustWoke
            | Verdict::Unknown { .. },
            _,
        ) => "stablehand why".to_owned(),
    }
}

/// A model's name as it can be pasted into a shell.
pub fn shell_word(model: &str) -> String {
    let plain = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '.' | '_' | '-' | ':' | '/');
    if !model.is_empty() && model.chars().all(plain) {
        model.to_owned()
    } else {
        format!("'{}'", model.replace('\'', "'\\''"))
    }
}
