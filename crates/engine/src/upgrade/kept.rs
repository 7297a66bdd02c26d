//! Old versions that are kept, so that there is something to roll back to.

use super::database::Schema;
use crate::known::Known;
use crate::time::Wall;
use std::path::{Path, PathBuf};

/// How many old versions are kept unless a person says otherwise.
pub const KEPT_VERSIONS: usize = 2;

/// An old version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    /// Its version.
    pub version: String,
    /// Where it lies. A bundle has no `.app` suffix here, so that LaunchServices offers it to nobody.
    pub at: PathBuf,
    /// When it was taken out of its place.
    pub since: Wall,
    /// The database as it was then; it holds chats.
    pub database: Option<PathBuf>,
    /// The form of that database, which is the newest that this version can read.
    pub schema: Known<Schema>,
}

/// What remains and what goes when `keep` old versions are kept beside the one in place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Retention<'a> {
    /// These stay, the newest first.
    pub stay: Vec<&'a Kept>,
    /// These go, with their copies of the database.
    pub go: Vec<&'a Kept>,
}

impl Retention<'_> {
    /// Every path that goes.
    pub fn removed(&self) -> Vec<PathBuf> {
        self.go.iter().flat_map(|kept| std::iter::once(&kept.at).chain(&kept.database)).cloned().collect()
    }
}

/// Decides which old versions stay: the `keep` that were in use last, each version once, never the one in place.
pub fn retain<'a>(kept: &'a [Kept], keep: usize, in_place: &str) -> Retention<'a> {
    let mut newest_first: Vec<&Kept> = kept.iter().collect();
    newest_first.sort_by(|one, other| other.since.cmp(&one.since).then_with(|| one.at.cmp(&other.at)));
    let mut retention = Retention { stay: vec![], go: vec![] };
    for candidate in newest_first {
        let twice = retention.stay.iter().any(|stays| stays.version == candidate.version);
        if candidate.version == in_place || twice || retention.stay.len() >= keep {
            retention.go.push(candidate);
        } else {
            retention.stay.push(candidate);
        }
    }
    retention
}

/// The version that a rollback goes back to: the one asked for, else the one that was in use last.
pub fn to_roll_back_to<'a>(kept: &'a [Kept], installed: &str, asked: Option<&str>) -> Option<&'a Kept> {
    let fits = |kept: &&Kept| match asked {
        Some(version) => kept.version == version,
        None => kept.version != installed,
    };
    kept.iter().filter(fits).max_by_key(|kept| kept.since)
}

/// What the built-in updater has staged goes while a version is pinned: it would leave that version at the next login.
pub fn against_pin<'a>(pin: Option<&str>, staged: &'a [PathBuf]) -> &'a [PathBuf] {
    if pin.is_some() { staged } else { &[] }
}

/// The name under which a version is kept: unique by the upgrade that put it there, and no `.app`.
pub(super) fn name(folder: &Path, version: &str, id: &str) -> PathBuf {
    folder.join(format!("{version}-{id}"))
}
