//! Particulars of events, as JSON: what was judged by which facts, what was done, and how it ended. Facts carry numbers
//! and names of models; what people ask of models is nowhere among them.

use serde_json::{Value, json};
use stablehand_engine::alert::Alert;
use stablehand_engine::recovery::Check;
use stablehand_engine::stall::Judgement;
use stablehand_engine::supervisor::Outcome;

/// A judgement with the facts that made it.
pub(crate) fn judgement(judgement: &Judgement) -> Value {
    let facts: Vec<String> = judgement.evidence.iter().map(ToString::to_string).collect();
    json!({
        "verdict": judgement.verdict.word(),
        "trouble": judgement.verdict.is_trouble(),
        "pid": judgement.subject.id().pid,
        "model": judgement.subject.model(),
        "facts": facts,
    })
}

/// What must hold after a step of recovery.
pub(crate) fn check(check: &Check) -> Value {
    match check {
        Check::Runner { id, model } => json!({ "step": "verify", "gone": id.pid, "next_answer_of": model }),
        Check::Unloaded { model, ask } => {
            json!({ "step": "verify", "unloaded": model, "next_answer_of": ask.then_some(model) })
        }
        Check::Server => json!({ "step": "verify", "answers": "server" }),
    }
}

/// How a step of recovery ended: in words, and with the step.
pub(crate) fn ended(step: &Value, result: Result<(), String>) -> (String, Value) {
    let name = step["step"].as_str().unwrap_or("step");
    match result {
        Ok(()) => (format!("{name}: done"), json!({ "step": step, "result": "done" })),
        Err(why) => (format!("{name}: failed: {why}"), json!({ "step": step, "result": "failed", "why": why })),
    }
}

/// An alert with what can be done, and whether it was kept from the desktop.
pub(crate) fn alert(alert: &Alert, quiet_hours: bool) -> Value {
    json!({ "action": alert.action, "evidence": alert.evidence, "quiet_hours": quiet_hours })
}

/// The end of an apply or a restart, with every step of it as clients were told.
pub(crate) fn outcome(outcome: &Outcome, progress: Vec<Value>) -> Value {
    let (word, code) = match outcome {
        Outcome::Proven => ("proven", None),
        Outcome::Drift(_) => ("drift", None),
        Outcome::Unknown(_) => ("unknown", None),
        Outcome::Refused(refusal) => ("refused", Some(crate::translation::refusal_failure(refusal).code)),
        Outcome::Failed { failure, .. } => ("failed", Some(failure.code.to_owned())),
        Outcome::Superseded => ("superseded", None),
        Outcome::Stopped => ("stopped", None),
    };
    json!({ "outcome": word, "code": code, "progress": progress })
}

#[cfg(test)]
mod tests {
    use super::*;
    use stablehand_engine::Known;
    use stablehand_engine::process::Identity;
    use stablehand_engine::time::Awake;

    #[test]
    fn a_step_is_told_with_its_end() {
        let runner = Check::Runner { id: Identity { pid: 7, birth: 1 }, model: Some("m:1".to_owned()) };
        let (words, particulars) = ended(&check(&runner), Err("process 7 is still there".to_owned()));
        assert_eq!(words, "verify: failed: process 7 is still there");
        assert_eq!(particulars["step"]["gone"], 7);
        assert_eq!((&particulars["result"], &particulars["step"]["next_answer_of"]), (&json!("failed"), &json!("m:1")));
        let kept = Check::Unloaded { model: "m:1".to_owned(), ask: false };
        let (words, particulars) = ended(&check(&kept), Ok(()));
        assert_eq!((words.as_str(), &particulars["step"]["next_answer_of"]), ("verify: done", &Value::Null));
    }

    #[test]
    fn a_judgement_carries_its_facts() {
        use stablehand_engine::stall::{Subject, Verdict};
        let id = Identity { pid: 7, birth: 1 };
        let subject = Subject::Runner { id, model: Known::Is("m:1".to_owned()) };
        let judged =
            Judgement { subject, verdict: Verdict::Idle, evidence: vec![], since: Awake::default(), may_recover: None };
        let told = judgement(&judged);
        assert_eq!((&told["verdict"], &told["model"], &told["pid"]), (&json!("idle"), &json!("m:1"), &json!(7)));
    }
}
