//! Versions of Ollama: which there are, which is in place, and an upgrade or a rollback under way.

use crate::{Failure, Known};
use serde::{Deserialize, Serialize};

/// What is known of versions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "types", derive(ts_rs::TS), ts(export_to = "protocol.ts"))]
pub struct Versions {
    /// The version in place.
    pub installed: Known<String>,
    /// How it came there: `app`, `cask`, `formula`, `tarball`, `manual` or `container`; `null` when there is none.
    pub install: Known<Option<String>>,
    /// Whether an upgrade can put another version in its place. Otherwise it says how that is done, and does nothing.
    pub replaceable: bool,
    /// The newest release that suits, as of [`Self::checked_at`]; `null` before the first answer.
    pub latest: Option<Release>,
    /// Whether that one is newer than what is in place.
    pub newer: Known<bool>,
    /// When releases were last asked for and an answer came, RFC 3339.
    pub checked_at: Option<String>,
    /// Why the last question had no answer.
    pub unreachable: Option<Failure>,
    /// The version that a person wants to stay on.
    pub pin: Option<String>,
    /// Old versions that are kept, the one in use last first.
    pub kept: Vec<KeptVersion>,
    /// What is being done now.
    pub running: Option<Upgrade>,
    /// How the last one ended.
    pub last: Option<UpgradeEnd>,
    /// Whether the releases are asked for once a day.
    pub checks: bool,
}

/// A release.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "types", derive(ts_rs::TS), ts(export_to = "protocol.ts"))]
pub struct Release {
    /// Its version.
    pub version: String,
    /// When it was published, RFC 3339.
    pub published: Known<String>,
    /// What is new, as plain text of a few KB at most.
    pub notes: String,
    /// What would be downloaded for this machine; 0 where a package manager does it.
    pub size_bytes: Known<u64>,
    /// Meant for testing.
    pub prerelease: bool,
}

/// An old version.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "types", derive(ts_rs::TS), ts(export_to = "protocol.ts"))]
pub struct KeptVersion {
    /// Its version.
    pub version: String,
    /// Where it lies.
    pub at: String,
    /// When it was taken out of its place, RFC 3339.
    pub since: String,
    /// Whether settings and chats of then lie beside it.
    pub database: bool,
}

/// An upgrade or a rollback under way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "types", derive(ts_rs::TS), ts(export_to = "protocol.ts"))]
pub struct Upgrade {
    /// `upgrade` or `rollback`.
    pub goal: String,
    /// The version in place before.
    pub from: String,
    /// The version wanted.
    pub to: String,
    /// Fixed name of the step, e.g. `download`.
    pub step: String,
    /// The step in words.
    pub words: String,
    /// Position of the step, from 1.
    pub index: usize,
    /// How many steps there are.
    pub of: usize,
    /// Bytes downloaded or unpacked so far, for a step that counts them.
    pub done_bytes: Option<u64>,
    /// Of how many, where that is known.
    pub of_bytes: Option<u64>,
    /// Why the old version is being put back, when it is.
    pub undoing: Option<String>,
}

/// How an upgrade or a rollback ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "types", derive(ts_rs::TS), ts(export_to = "protocol.ts"))]
pub struct UpgradeEnd {
    /// `upgrade` or `rollback`.
    pub goal: String,
    /// The version in place before.
    pub from: String,
    /// The version wanted.
    pub to: String,
    /// `committed` (the wanted version is in place and proved), `undone` (the old one is), `left` or `halted`.
    pub end: String,
    /// What went wrong, where something did.
    pub failure: Option<Failure>,
    /// When, RFC 3339.
    pub at: String,
    /// Speed of both versions, where it was measured.
    pub measured: Option<Measured>,
}

/// The same prompt on both versions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "types", derive(ts_rs::TS), ts(export_to = "protocol.ts"))]
pub struct Measured {
    /// The model that answered.
    pub model: String,
    /// Tokens a second before, in thousandths.
    pub before_millitokens_per_s: Known<u64>,
    /// Tokens a second after, in thousandths.
    pub after_millitokens_per_s: Known<u64>,
    /// Time to load the model before.
    pub before_load_ms: Known<u64>,
    /// Time to load the model after.
    pub after_load_ms: Known<u64>,
    /// The version after is so much slower that going back is worth a thought.
    pub slower: bool,
}
