//! Releases of Ollama as GitHub lists them (`/repos/ollama/ollama/releases`): which there are, what is in them, and which
//! of their files an install is made from. [`Source`] asks for them and downloads their files; all else takes bodies and
//! headers in and gives facts out.
//!
//! What comes from outside is bounded and never trusted to be well formed: a release that can not be read is left out
//! with its reason, notes are cut and freed of HTML, and an address that is not one of HTTP is no address.

mod answer;
mod download;
mod files;
mod link;
mod notes;
mod source;
mod sums;

pub use answer::{Answer, ETag, Limit};
pub use download::{BackOff, Before, Means, News, Wait, check};
pub use files::{Architecture, Extra, NoFile, SUMS, archives};
pub use link::{BASE, NotAsked, Terms};
pub use notes::{NOTES_LONGEST_BYTES, plain};
pub use source::{Asked, Source};
pub use sums::{NoSum, Sums};

use crate::client::snippet;
use crate::version::Version;
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use stablehand_engine::Known;
use stablehand_engine::time::Wall;
use stablehand_engine::upgrade::found::{Install, Wanted};
use std::cmp::Ordering;

/// The longest answer worth reading. A hundred releases take about 1 MB; more is not GitHub's.
pub const ANSWER_LONGEST_BYTES: usize = 16 << 20;
/// How many releases are read of one answer.
const MOST_RELEASES: usize = 100;
/// How many files are read of one release.
const MOST_FILES: usize = 200;
/// The longest name or address of a file.
const LONGEST_NAME_BYTES: usize = 2048;

/// Path of the newest releases, newest first, below the API's base address.
pub fn path_of_list(at_most: u8) -> String {
    format!("/repos/ollama/ollama/releases?per_page={}", at_most.clamp(1, 100))
}

/// Path of one release, below the API's base address.
pub fn path_of(version: Version) -> String {
    format!("/repos/ollama/ollama/releases/tags/v{version}")
}

/// A file of a release.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct File {
    /// Its name, e.g. `Ollama-darwin.zip`.
    pub name: String,
    /// Its size.
    pub size_bytes: u64,
    /// Where it is downloaded from.
    pub url: String,
}

/// One release.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Release {
    /// Its version, from the tag.
    pub version: Version,
    /// The tag, e.g. `v0.24.0`.
    pub tag: String,
    /// Meant for testing: GitHub says so, or the version is a candidate.
    pub prerelease: bool,
    /// When it was published.
    pub published: Known<Wall>,
    /// What is new, as plain text of at most [`NOTES_LONGEST_BYTES`].
    pub notes: String,
    /// Its files.
    pub files: Vec<File>,
}

impl Release {
    /// The file of that name.
    pub fn file(&self, name: &str) -> Option<&File> {
        self.files.iter().find(|file| file.name == name)
    }
}

/// A release that was left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftOut {
    /// Its tag, as far as it has one.
    pub tag: String,
    /// Why.
    pub why: String,
}

/// The releases of one answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Releases {
    /// Those that could be read, the highest version first.
    pub releases: Vec<Release>,
    /// Those that could not.
    pub left_out: Vec<LeftOut>,
}

/// Why an answer is no list of releases.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoReleases {
    /// It is longer than any answer of GitHub.
    #[error("the answer is longer than {ANSWER_LONGEST_BYTES} bytes")]
    TooLong,
    /// It is something else; its beginning, or GitHub's own words.
    #[error("the answer is no list of releases: {0}")]
    Other(String),
}

/// Which release is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    /// The newest that is not meant for testing.
    Newest,
    /// The newest of all.
    NewestOrCandidate,
    /// This one.
    This(Version),
}

impl Releases {
    /// Reads the list, or the answer for one tag.
    ///
    /// # Errors
    /// [`NoReleases`] when the answer is neither.
    pub fn read(body: &[u8]) -> Result<Self, NoReleases> {
        if body.len() > ANSWER_LONGEST_BYTES {
            return Err(NoReleases::TooLong);
        }
        let other = || NoReleases::Other(words_of(body));
        let values = match serde_json::from_slice(body) {
            Ok(Value::Array(values)) => values,
            Ok(value @ Value::Object(_)) if value.get("tag_name").is_some() => vec![value],
            Ok(Value::Object(_) | Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_)) | Err(_) => {
                return Err(other());
            }
        };
        let mut all = Self::default();
        for value in values.into_iter().take(MOST_RELEASES) {
            match release(value) {
                Ok(release) => all.releases.push(release),
                Err(left_out) => all.left_out.push(left_out),
            }
        }
        all.releases.sort_by_key(|release| std::cmp::Reverse(release.version));
        Ok(all)
    }

    /// The wanted one.
    pub fn get(&self, which: Which) -> Option<&Release> {
        self.releases.iter().find(|release| match which {
            Which::Newest => !release.prerelease,
            Which::NewestOrCandidate => true,
            Which::This(version) => release.version == version,
        })
    }
}

/// How a version compares with the installed one, whose text may be anything.
pub fn against(installed: &str, version: Version) -> Known<Ordering> {
    match installed.parse::<Version>() {
        Ok(installed) if installed.is_development() => {
            Known::unknown("the installed version is a build of one's own (0.0.0)")
        }
        Ok(installed) => Known::Is(version.cmp(&installed)),
        Err(error) => Known::Unknown(error.to_string()),
    }
}

/// What the engine plans from: the release with the files of this install and their hashes, or what is missing.
pub fn wanted(
    release: &Release,
    sums: &Sums,
    install: &Install,
    architecture: Architecture,
    extras: &[Extra],
    installed: &str,
) -> Wanted {
    let version = release.version.to_string();
    match archives(release, sums, install, architecture, extras) {
        Ok(archives) => Wanted::Release { version, against_installed: against(installed, release.version), archives },
        Err(NoFile::Missing(asset)) => Wanted::WithoutAsset { version, asset },
        Err(NoFile::NoSum(asset, _)) => Wanted::WithoutHash { version, asset },
    }
}

#[derive(Deserialize)]
struct WrittenRelease {
    tag_name: String,
    #[serde(default, deserialize_with = "or_empty")]
    draft: bool,
    #[serde(default, deserialize_with = "or_empty")]
    prerelease: bool,
    #[serde(default, deserialize_with = "or_empty")]
    body: String,
    #[serde(default, deserialize_with = "or_empty")]
    published_at: String,
    #[serde(default, deserialize_with = "or_empty")]
    assets: Vec<WrittenFile>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct WrittenFile {
    name: String,
    #[serde(rename = "size")]
    size_bytes: u64,
    #[serde(rename = "browser_download_url")]
    url: String,
    /// `uploaded` once it is whole; a release is listed while its files still come in.
    state: Option<String>,
}

fn release(value: Value) -> Result<Release, LeftOut> {
    let tag = value.get("tag_name").and_then(Value::as_str).unwrap_or_default();
    let tag: String = tag.chars().take(64).filter(|symbol| !symbol.is_control()).collect();
    let left_out = |why: String| LeftOut { tag: tag.clone(), why };
    let written: WrittenRelease = serde_json::from_value(value).map_err(|error| left_out(error.to_string()))?;
    if written.draft {
        return Err(left_out("it is a draft".to_owned()));
    }
    let version: Version = written.tag_name.parse().map_err(|error| left_out(format!("{error}")))?;
    let files = written.assets.into_iter().take(MOST_FILES).filter(is_whole);
    Ok(Release {
        version,
        prerelease: written.prerelease || version.is_candidate(),
        published: match written.published_at.parse::<jiff::Timestamp>() {
            Ok(stamp) => Known::Is(Wall::from_unix_ms(stamp.as_millisecond())),
            Err(_) => Known::unknown("the release does not say when"),
        },
        notes: plain(&written.body),
        files: files.map(|file| File { name: file.name, size_bytes: file.size_bytes, url: file.url }).collect(),
        tag,
    })
}

/// Whether a file has come in whole and can be asked for.
fn is_whole(file: &WrittenFile) -> bool {
    let uploaded = file.state.as_deref().is_none_or(|state| state == "uploaded");
    let named = !file.name.is_empty() && file.name.len() <= LONGEST_NAME_BYTES;
    uploaded && named && file.size_bytes > 0 && is_address(&file.url)
}

/// An address of HTTP without anything that could end its line in a request or a terminal.
fn is_address(url: &str) -> bool {
    let rest = url.strip_prefix("https://").or_else(|| url.strip_prefix("http://"));
    let plain = url.bytes().all(|byte| byte.is_ascii_graphic());
    rest.is_some_and(|rest| !rest.is_empty() && !rest.starts_with('/')) && plain && url.len() <= LONGEST_NAME_BYTES
}

/// GitHub's words for an error (`{"message":"…"}`), or the beginning of whatever it is.
fn words_of(body: &[u8]) -> String {
    #[derive(Deserialize)]
    struct Refusal {
        message: String,
    }
    match serde_json::from_slice::<Refusal>(body) {
        Ok(refusal) => snippet(refusal.message.as_bytes()),
        Err(_) => snippet(body),
    }
}

fn or_empty<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(from: D) -> Result<T, D::Error> {
    Ok(Option::<T>::deserialize(from)?.unwrap_or_default())
}

#[cfg(test)]
mod tests;
