//! `quarantine`: whether macOS would stop the app at a question, and clearing that. Works without a running daemon.

use crate::looking::Looker;
use crate::translation::rfc3339;
use crate::{Place, failure_of};
use serde::Serialize;
use stablehand_engine::Known;
use stablehand_engine::owner::{Owner, Ownership, ownership};
use stablehand_engine::quarantine::{Found, Mark, Step, Verdict};
use stablehand_platform::machine::{Machine, Os};
use stablehand_platform::{quarantine, signature};
use stablehand_protocol::{Failure, Known as Shown};
use std::path::{Path, PathBuf};

/// What was found, and what was (or would be) done.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The folder of the simulated machine, when it is one.
    pub simulated: Option<String>,
    /// The app or file.
    pub path: String,
    /// Whether it is an app; of anything else only its own mark is read, and none is cleared.
    pub app: bool,
    /// Whether the next start would stop, after what was done.
    pub state: State,
    /// The same in words, with the reason.
    pub words: String,
    /// Its mark; `null` when it has none, and the mark as it was before when that was cleared.
    pub mark: Shown<Option<MarkShown>>,
    /// How many files and folders carried a mark.
    pub marked: usize,
    /// How many were looked at.
    pub looked_at: usize,
    /// What could not be read, with the reasons.
    pub unreadable: Vec<String>,
    /// What the clearing does.
    pub steps: Vec<String>,
    /// What spoke for the app; empty unless it was asked.
    pub signature: Vec<String>,
    /// Whether the marks were removed, and everything was read again.
    pub cleared: bool,
}

/// Whether the next start would stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// It would not.
    NothingBlocks,
    /// It would, until somebody clicks.
    WouldBlock,
    /// It could not be told.
    Unknown,
}

/// A mark as people and programs get it.
#[derive(Clone, Debug, Serialize)]
pub struct MarkShown {
    /// Four hexadecimal digits.
    pub flags: String,
    /// What they say.
    pub meanings: Vec<String>,
    /// Who marked it.
    pub agent: Option<String>,
    /// When, as RFC 3339.
    pub at: Shown<String>,
    /// Key in the person's list of downloads.
    pub event: Option<String>,
}

/// Looks at an app or a file; without a path, at the app that is looked after.
///
/// # Errors
/// When there is nothing to look at. Nothing is ever changed.
pub async fn check(place: &Place, path: Option<&Path>) -> Result<Report, Failure> {
    Ok(report(place, &find(place, path).await?))
}

/// Clears the quarantine of an app, after the check of its signature, and proves it.
///
/// # Errors
/// When the app is not Ollama's own, or macOS does not let it be changed. The message says what was left.
pub async fn clear(place: &Place, path: Option<&Path>, dry_run: bool) -> Result<Report, Failure> {
    let machine = place.machine();
    let found = find(place, path).await?;
    let before = report(place, &found);
    let steps = found.clearing();
    if steps.is_empty() {
        return Ok(before);
    }
    refuse(&found)?;
    let told = Report { steps: steps.iter().map(ToString::to_string).collect(), ..before };
    if dry_run {
        return Ok(told);
    }
    let (mut signature, mut after) = (Vec::new(), found);
    for step in steps {
        match step {
            Step::CheckSignature => {
                signature.push(signature::verify(machine, &after.path).await.map_err(|failure| failure_of(&failure))?);
            }
            Step::Assess => {
                signature.push(signature::assess(machine, &after.path).await.map_err(|failure| failure_of(&failure))?);
            }
            Step::Remove { .. } => quarantine::remove(machine, &after).await.map_err(|failure| failure_of(&failure))?,
            Step::Prove { .. } => {
                after = quarantine::prove(machine, &after.path).map_err(|failure| failure_of(&failure))?;
            }
        }
    }
    let (state, words) = judged(&after);
    Ok(Report { state, words, signature, cleared: true, ..told })
}

/// Whether a failure means that it could not be told if something blocks, rather than that it could not be cleared.
pub fn is_untold(failure: &Failure) -> bool {
    matches!(
        failure.code.as_str(),
        "no-quarantine"
            | "no-such-path"
            | "not-a-bundle"
            | "outside-world"
            | "quarantine-unreadable"
            | "no-app-looked-after"
            | "signature-unknown"
    )
}

/// The app's quarantine for the doctor; nothing when nothing blocks.
pub(crate) fn standing(machine: &Machine, bundle: &Path) -> Option<Result<String, String>> {
    let found = match quarantine::look(machine, bundle) {
        Ok(found) => found,
        Err(failure) => return Some(Err(failure.message)),
    };
    match judged(&found) {
        (State::NothingBlocks, _) => None,
        (State::WouldBlock, words) => Some(Ok(format!("{} {words}", found.path.display()))),
        (State::Unknown, words) => Some(Err(format!("{} {words}", found.path.display()))),
    }
}

async fn find(place: &Place, path: Option<&Path>) -> Result<Found, Failure> {
    let machine = place.machine();
    let path = match path {
        Some(path) => path.to_path_buf(),
        None if machine.os() == Os::MacOs => looked_after(machine).await?,
        // Refused there, in the same words as with a path.
        None => machine.root().to_path_buf(),
    };
    quarantine::look(machine, &path).map_err(|failure| failure_of(&failure))
}

async fn looked_after(machine: &Machine) -> Result<PathBuf, Failure> {
    let survey = Looker::new(machine.clone()).survey_alone().await;
    let port = survey.port;
    let because = match ownership(&survey) {
        Ownership::One { owner: Owner::App { bundle }, .. } => return Ok(bundle),
        Ownership::One { owner, .. } => format!("Ollama belongs to {} here, not to an app", owner.word()),
        Ownership::Contested { .. } => "several want to be Ollama's owner here".to_owned(),
        Ownership::Foreign(_) => format!("port {port} is held by something else"),
        Ownership::Absent => "no Ollama was found on this machine".to_owned(),
        Ownership::Unknown(reason) => format!("it could not be told who owns the server: {reason}"),
    };
    let named = survey.apps.first().map_or_else(|| PathBuf::from("PATH"), |app| app.path.clone());
    Err(Failure::new(
        "no-app-looked-after",
        format!("{because}; nothing was looked at"),
        format!("name the app: stablehand quarantine '{}'", named.display()),
    ))
}

/// What is not cleared, whatever its signature.
fn refuse(found: &Found) -> Result<(), Failure> {
    let path = found.path.display();
    if found.translocated {
        return Err(Failure::new(
            "app-translocated",
            format!("{path} is a random read-only place that macOS runs the app from; nothing was changed"),
            "quit it, move the app to another folder and back with Finder, then clear it there",
        ));
    }
    if !found.bundle {
        return Err(Failure::new(
            "not-an-app",
            format!("{path} is a file, and only an app has a signature to check; nothing was changed"),
            "name the app that it belongs to",
        ));
    }
    Ok(())
}

fn report(place: &Place, found: &Found) -> Report {
    let (state, words) = judged(found);
    Report {
        simulated: place.simulated(),
        path: found.path.display().to_string(),
        app: found.bundle,
        state,
        words,
        mark: match &found.own {
            Known::Is(mark) => Shown::Is(mark.as_ref().map(shown)),
            Known::Unknown(reason) => Shown::unknown(reason.clone()),
        },
        marked: found.marked(),
        looked_at: found.looked_at,
        unreadable: found.unreadable().iter().map(|(path, reason)| format!("{}: {reason}", path.display())).collect(),
        steps: Vec::new(),
        signature: Vec::new(),
        cleared: false,
    }
}

fn shown(mark: &Mark) -> MarkShown {
    MarkShown {
        flags: mark.flags.to_string(),
        meanings: mark.flags.meanings(),
        agent: mark.agent.clone(),
        at: match &mark.at {
            Known::Is(at) => Shown::Is(rfc3339(*at)),
            Known::Unknown(reason) => Shown::unknown(reason.clone()),
        },
        event: mark.event.clone(),
    }
}

fn judged(found: &Found) -> (State, String) {
    match found.verdict() {
        Verdict::Unmarked => (State::NothingBlocks, "is not in quarantine: nothing blocks it".to_owned()),
        Verdict::Approved => {
            (State::NothingBlocks, "is marked, and a person has approved it: nothing blocks it".to_owned())
        }
        Verdict::WouldBlock { at } => {
            let inside = at.strip_prefix(&found.path).ok().filter(|inside| !inside.as_os_str().is_empty());
            let by = inside.map_or_else(String::new, |inside| format!(", because of {}", inside.display()));
            (State::WouldBlock, format!("is in quarantine{by}: macOS would stop its next start until somebody clicks"))
        }
        Verdict::Unknown(reason) => (State::Unknown, format!("has a quarantine that cannot be told: {reason}")),
    }
}
