//! Versions of Ollama, and which generation of runner each one starts.

use stablehand_engine::Known;
use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;

/// A version of Ollama, ordered by age: `0.33.0-rc2` < `0.33.0` < `0.33.0-4-g1234567` (four commits later).
///
/// A pre-release word other than `rcN` is kept as candidate 0, so the text may differ from what was parsed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version {
    major: u32,
    minor: u32,
    patch: u32,
    stage: Stage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Stage {
    Candidate(u32),
    Release,
    After(u32),
}

/// Why a text is no version.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this is no version like 0.33.0: {0:?}")]
pub struct NoVersion(String);

impl Version {
    /// The release of these numbers.
    pub const fn new(major: u32, minor: u32, patch: u32) -> Self {
        Self { major, minor, patch, stage: Stage::Release }
    }

    /// A build without a version of its own, which reports `0.0.0` (`ollama version/version.go`).
    pub fn is_development(self) -> bool {
        self.major == 0 && self.minor == 0 && self.patch == 0
    }

    /// A candidate for a release.
    pub fn is_candidate(self) -> bool {
        matches!(self.stage, Stage::Candidate(_))
    }

    /// Compares the three numbers alone, so that a candidate counts as its release.
    pub fn cmp_numbers(self, other: Self) -> Ordering {
        (self.major, self.minor, self.patch).cmp(&(other.major, other.minor, other.patch))
    }
}

impl FromStr for Version {
    type Err = NoVersion;

    fn from_str(text: &str) -> Result<Self, NoVersion> {
        let refuse = || NoVersion(text.to_owned());
        let trimmed = text.trim();
        let bare = trimmed.strip_prefix(['v', 'V']).unwrap_or(trimmed);
        let bare = bare.split_once('+').map_or(bare, |(before, _build)| before);
        let (numbers, suffix) = bare.split_once('-').unwrap_or((bare, ""));
        let mut parts = numbers.split('.').map(number);
        let (Some(Some(major)), Some(Some(minor)), Some(Some(patch)), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(refuse());
        };
        let stage = if bare.ends_with('-') { None } else { stage(suffix) };
        Ok(Self { major, minor, patch, stage: stage.ok_or_else(refuse)? })
    }
}

impl fmt::Display for Version {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}.{}.{}", self.major, self.minor, self.patch)?;
        match self.stage {
            Stage::Candidate(candidate) => write!(out, "-rc{candidate}"),
            Stage::Release => Ok(()),
            Stage::After(commits) => write!(out, "-{commits}"),
        }
    }
}

fn number(text: &str) -> Option<u32> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if digits { text.parse().ok() } else { None }
}

/// `git describe` writes the commits after a tag as `-6-g0667bad`, a candidate is `-rc2`.
fn stage(suffix: &str) -> Option<Stage> {
    if suffix.is_empty() {
        return Some(Stage::Release);
    }
    let first = suffix.split('-').next()?;
    if let Some(commits) = number(first) {
        return Some(Stage::After(commits));
    }
    let tail = first.trim_start_matches(|symbol: char| !symbol.is_ascii_digit());
    first.starts_with(|symbol: char| symbol.is_ascii_alphabetic()).then(|| Stage::Candidate(number(tail).unwrap_or(0)))
}

/// Which generation of runner a version starts for GGUF models.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunnerGeneration {
    /// `ollama runner`: tells nothing about progress. Up to 0.24 (and 0.25's candidates).
    OllamaRunner,
    /// `llama-server`: answers `/slots` and `/metrics`. From 0.30 on, its candidates included.
    LlamaServer,
}

/// The first release that starts `llama-server`.
pub const FIRST_WITH_LLAMA_SERVER: Version = Version::new(0, 30, 0);

impl RunnerGeneration {
    /// The generation that `version` starts; unknown for a development build.
    pub fn of(version: Version) -> Known<Self> {
        if version.is_development() {
            return Known::unknown("a development build (0.0.0) does not say which runner it starts");
        }
        Known::Is(match version.cmp_numbers(FIRST_WITH_LLAMA_SERVER) {
            Ordering::Less => Self::OllamaRunner,
            Ordering::Equal | Ordering::Greater => Self::LlamaServer,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_ordered_by_age() {
        let ages = ["0.0.0", "0.9.6", "0.24.0", "0.30.0-rc3", "0.30.0-rc12", "0.30.0", "0.30.0-6-g0a1b2c3", "0.33.0"];
        let versions: Vec<Version> = ages.iter().map(|text| text.parse().unwrap()).collect();
        assert!(versions.is_sorted_by(|older, newer| older < newer));
    }

    #[test]
    fn a_leading_v_and_build_data_change_nothing() {
        assert_eq!(parse("v0.33.0-rc2"), parse("0.33.0-rc2"));
        assert_eq!(parse(" 0.33.0+brew.1\n"), Version::new(0, 33, 0));
        assert_eq!(parse("v0.33.0-rc2").to_string(), "0.33.0-rc2");
    }

    #[test]
    fn a_text_that_is_no_version_is_refused() {
        for text in ["", "0.33", "0.33.0.1", "latest", "0.x.1", "0.33.0-", "-1.0.0", "0.33.+1", "99999999999.0.0"] {
            assert!(text.parse::<Version>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn the_runner_changed_with_the_first_candidate_of_0_30() {
        let of = |text: &str| RunnerGeneration::of(parse(text));
        assert_eq!(of("0.24.0"), Known::Is(RunnerGeneration::OllamaRunner));
        assert_eq!(of("0.25.0-rc0"), Known::Is(RunnerGeneration::OllamaRunner));
        assert_eq!(of("0.30.0-rc1"), Known::Is(RunnerGeneration::LlamaServer));
        assert_eq!(of("0.34.4"), Known::Is(RunnerGeneration::LlamaServer));
        assert!(of("0.0.0").known().is_none());
    }

    fn parse(text: &str) -> Version {
        text.parse().unwrap()
    }
}
