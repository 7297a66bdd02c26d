//! Whether a bundle is Ollama's own, as a deed's fault.

use stablehand_engine::plan::StepFailure;
use stablehand_engine::upgrade::fault::Fault;
use stablehand_engine::upgrade::order::Goal;
use stablehand_platform::machine::Machine;
use stablehand_platform::signature;
use std::path::Path;

/// Checks seal, signer and, for what was downloaded, notarisation.
///
/// # Errors
/// A [`Fault`].
pub(super) async fn check(machine: &Machine, bundle: &Path, goal: Goal) -> Result<String, Fault> {
    let sealed = signature::verify(machine, bundle).await.map_err(|failure| fault(&failure))?;
    match goal {
        Goal::Upgrade => {
            let accepted = signature::assess(machine, bundle).await.map_err(|failure| fault(&failure))?;
            Ok(format!("{sealed}; {accepted}"))
        }
        // It has run here before, and a folder without `.app` is no app to `spctl`.
        Goal::Rollback => Ok(sealed),
    }
}

fn fault(failure: &StepFailure) -> Fault {
    let why = failure.message.strip_suffix("; nothing was changed").unwrap_or(&failure.message).to_owned();
    match failure.code {
        "signature-other-team" => {
            let team = why.split_once(" is signed ").map_or(why.as_str(), |(_path, rest)| rest);
            let team = team.split_once(", and ").map_or(team, |(team, _rest)| team);
            Fault::AnotherTeam { team: team.strip_prefix("by ").unwrap_or(team).to_owned() }
        }
        "signature-not-accepted" => Fault::Refused(why),
        _ => Fault::BrokenSeal(why),
    }
}
