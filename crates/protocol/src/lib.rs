//! What the daemon and its clients say to each other.
//!
//! HTTP/1.1 on a Unix socket that only its owner can open. `GET /v1/snapshot` gives a [`Snapshot`],
//! `POST /v1/request` takes a [`Request`] and answers with one [`Event`] a line, the last one being
//! [`Event::Result`]; `GET /v1/events` sends a snapshot on every change as server-sent events. Every answer carries
//! the daemon's version in the header [`VERSION_HEADER`]. `docs/api.md` describes it for people.
//!
//! These types are the interface: a field that is added is optional for old clients, a word that is added is shown as
//! it is. Nothing here decides anything.

#[cfg(feature = "client")]
pub mod client;
pub mod exposition;
pub mod face;
mod gateway;
mod history;
mod known;
pub mod queue;
mod snapshot;
mod upgrade;
mod watched;

pub use gateway::Gateway;
pub use history::{Past, PastEvent, PastPoint};
pub use known::Known;
pub use snapshot::{
    Alert, Config, MemoryBound, Owner, Proof, Rival, Runner, Server, Setting, Snapshot, StepProgress, Work,
};

pub use upgrade::{KeptVersion, Measured, Release, Upgrade, UpgradeEnd, Versions};
pub use watched::{
    Client as QueueClient, Endpoint, GivenUp, Judged, LogSummary, Memory, ModelTokens, Phrase, PhraseValue, Progress,
    Queue, Recovery, Watched, WatchedRunner,
};

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;

/// Response header with the daemon's version.
pub const VERSION_HEADER: &str = "stablehand-version";

/// Something that did not work, for a person and for a program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[cfg_attr(feature = "types", derive(ts_rs::TS), ts(export_to = "protocol.ts"))]
#[error("{message}")]
pub struct Failure {
    /// Stable kebab-case word to branch on.
    pub code: String,
    /// What happened, and what was left unchanged.
    pub message: String,
    /// What to do about it; may be empty.
    pub hint: String,
}

impl Failure {
    /// A failure from its three parts.
    pub fn new(code: impl Into<String>, message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { code: code.into(), message: message.into(), hint: hint.into() }
    }

    /// What is wrong in the text of the configuration file, with line and column where the span of bytes is known.
    pub fn in_config(path: &Path, text: &str, span: Option<Range<usize>>, what: &str) -> Self {
        let place = match span {
            Some(span) => {
                let before = text.get(..span.start).unwrap_or(text);
                let line = before.matches('\n').count() + 1;
                let column = before.rsplit('\n').next().unwrap_or("").chars().count() + 1;
                format!("{}:{line}:{column}", path.display())
            }
            None => path.display().to_string(),
        };
        Self::new(
            "bad-config",
            format!("{place}: {what}; this version of the file is not taken"),
            "correct the file; it is read again as soon as it is saved",
        )
    }
}

/// What a client asks for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "types", derive(ts_rs::TS), ts(export_to = "protocol.ts"))]
#[serde(tag = "verb", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Request {
    /// Change desired settings. Nothing else changes until `apply`.
    Settings {
        /// Values to set, by name.
        #[serde(default)]
        set: BTreeMap<String, String>,
        /// Names to unset.
        #[serde(default)]
        unset: Vec<String>,
        /// A preset to take first.
        #[serde(default)]
        preset: Option<String>,
        /// Only say what would change.
        #[serde(default)]
        dry_run: bool,
    },
    /// Persist and publish the desired settings, restart Ollama through its owner, prove.
    Apply {
        /// A server started by hand may be stopped and started again by us.
        #[serde(default)]
        take_over: bool,
        /// Only say what would be done.
        #[serde(default)]
        dry_run: bool,
    },
    /// Restart Ollama through its owner, prove.
    Restart {
        /// A server started by hand may be stopped and started again by us.
        #[serde(default)]
        take_over: bool,
        /// Only say what would be done.
        #[serde(default)]
        dry_run: bool,
    },
    /// Read every layer anew and compare.
    Verify,
    /// Unload a model.
    Unload {
        /// Its name.
        model: String,
        /// Only say what would be done.
        #[serde(default)]
        dry_run: bool,
    },
    /// End the runner of a model.
    StopRunner {
        /// Its name.
        model: String,
        /// SIGKILL when SIGTERM is not enough.
        #[serde(default)]
        force: bool,
        /// Only say what would be done.
        #[serde(default)]
        dry_run: bool,
    },
    /// Let recovery act again on what it has given up (`watched.recovery.given_up`).
    Recover {
        /// Only say what would be taken up again.
        #[serde(default)]
        dry_run: bool,
    },
    /// Ask for releases, and say what there is; nothing is changed.
    CheckReleases {
        /// Also those meant for testing.
        #[serde(default)]
        prerelease: bool,
    },
    /// Put another version of Ollama in place and prove it, or put the old one back.
    Upgrade {
        /// The version; the newest release when there is none.
        #[serde(default)]
        to: Option<String>,
        /// Also one meant for testing.
        #[serde(default)]
        prerelease: bool,
        /// Also an older one than what is in place.
        #[serde(default)]
        downgrade: bool,
        /// Measure speed and load time on a fixed prompt before and after.
        #[serde(default)]
        measure: bool,
        /// Only say what would be done.
        #[serde(default)]
        dry_run: bool,
    },
    /// Put a kept version back in place, and stay on it.
    Rollback {
        /// The version; the one in use last when there is none.
        #[serde(default)]
        to: Option<String>,
        /// Settings and chats that the old version can not read may be set aside (never removed).
        #[serde(default)]
        set_database_aside: bool,
        /// Only say what would be done.
        #[serde(default)]
        dry_run: bool,
    },
    /// Stay on a version, or on none any more.
    Pin {
        /// The version.
        version: Option<String>,
    },
    /// Change our own configuration file, comments kept.
    Configure {
        /// Values by the file's own names, e.g. `recovery.policy` = `runner`; an empty value takes the line out.
        set: BTreeMap<String, String>,
    },
    /// Say where the gateway shall stand, and bring it there.
    Gateway {
        /// `off`, `beside` or `takeover`.
        mode: String,
        /// Its port beside Ollama.
        #[serde(default)]
        port: Option<u16>,
        /// Only say what would be done.
        #[serde(default)]
        dry_run: bool,
    },
    /// Deliver no desktop notifications for a while; alerts are still seen and kept.
    PauseAlerts {
        /// For how long; 0 ends the pause.
        seconds: u64,
    },
}

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "types", derive(ts_rs::TS), ts(export_to = "protocol.ts"))]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// Every desired setting is proven.
    Proven,
    /// Something differs; `settings[].drift` names the layers.
    Drift,
    /// Something could not be read.
    Unknown,
    /// The desired settings were changed; nothing else was.
    Changed,
    /// A dry run: this is what would be done.
    Planned,
    /// Refused or failed; see `failure`.
    Failed,
}

/// The end of a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "types", derive(ts_rs::TS), ts(export_to = "protocol.ts"))]
pub struct Ending {
    /// How it ended.
    pub outcome: Outcome,
    /// Why not, when it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<Failure>,
    /// Who starts Ollama on this machine; told by an installation alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<FoundOwner>,
    /// The settings that are desired, and the three main ones.
    #[serde(default)]
    pub settings: Vec<Setting>,
    /// What each runner really has.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub runners: Vec<Runner>,
    /// What would be done, for a dry run; what was changed, for settings.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<String>,
    /// Ollama is restarted by it; told by the plan of a gateway's place.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub restarts: bool,
    /// What the desired parallelism and context can cost at most, by model.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub memory: Vec<MemoryBound>,
    /// Versions of Ollama; told by what concerns them alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub versions: Option<Versions>,
    /// Things worth knowing that are no failure.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// The folder of the simulated machine, when it is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub simulated: Option<String>,
}

impl Ending {
    /// An ending without particulars.
    pub fn new(outcome: Outcome) -> Self {
        Self {
            outcome,
            failure: None,
            owner: None,
            settings: vec![],
            runners: vec![],
            steps: vec![],
            restarts: false,
            memory: vec![],
            versions: None,
            notes: vec![],
            simulated: None,
        }
    }

    /// The ending of something that did not work.
    pub fn failed(failure: Failure) -> Self {
        Self { failure: Some(failure), ..Self::new(Outcome::Failed) }
    }
}

/// Who starts Ollama on a machine, as far as it could be found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "types", derive(ts_rs::TS), ts(export_to = "protocol.ts"))]
pub struct FoundOwner {
    /// One word, as [`Server::owner`].
    pub owner: Known<String>,
    /// Bundle, label, unit, container or program, in words.
    pub name: Option<String>,
}

/// One line of the answer to a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub enum Event {
    /// The plan was made.
    Planned {
        /// `apply`, `restart`, `upgrade` or `rollback`.
        goal: String,
        /// Through whom.
        owner: String,
        /// The steps, in words.
        steps: Vec<String>,
    },
    /// A step begins.
    StepBegan(StepProgress),
    /// A step is done.
    StepDone {
        /// Position in the plan, from 1.
        index: usize,
        /// A short note, may be empty.
        note: String,
    },
    /// A step will be tried again.
    StepRetrying {
        /// Position in the plan, from 1.
        index: usize,
        /// Why.
        failure: Failure,
    },
    /// Bytes of the step under way.
    Bytes {
        /// So far.
        done_bytes: u64,
        /// Of how many, where that is known.
        of_bytes: Option<u64>,
    },
    /// The old version is put back, by these steps.
    TurnedBack {
        /// Why.
        failure: Failure,
        /// The steps, in words.
        steps: Vec<String>,
    },
    /// The whole plan is run a second time.
    Again {
        /// Why.
        reason: String,
    },
    /// The end; nothing comes after it.
    Result(Box<Ending>),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misspelt_field_is_refused_and_never_ignored() {
        assert!(serde_json::from_str::<Request>(r#"{"verb":"apply","dryrun":true}"#).is_err());
        let asked: Request = serde_json::from_str(r#"{"verb":"apply","dry_run":true}"#).unwrap();
        assert_eq!(asked, Request::Apply { take_over: false, dry_run: true });
        assert!(serde_json::from_str::<Request>(r#"{"verb":"unload","model":"m","dryrun":true}"#).is_err());
        let asked: Request = serde_json::from_str(r#"{"verb":"unload","model":"m"}"#).unwrap();
        assert_eq!(asked, Request::Unload { model: "m".to_owned(), dry_run: false }, "old clients do not name it");
    }
}
