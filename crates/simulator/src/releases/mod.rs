//! Releases of Ollama as the simulated machine can have them: what is published, what is wrong with it, the archives,
//! and the server that stands in for GitHub.
//!
//! The archives are made when somebody first asks for them. Programs in them are small scripts ([`crate::first_start`]),
//! so that an archive stays small whatever this program weighs.

pub mod archives;
pub mod contents;
pub mod flaw;
pub mod keeper;
pub mod listing;
pub mod server;

use anyhow::{Result, bail};
use serde::{Deserialize, Serialize};

use crate::world::{Os, World, generation, write_whole};
use flaw::Flaw;

/// A published release.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Release {
    /// Its version, e.g. `0.24.0`.
    pub version: String,
    /// What is wrong with it.
    pub flaw: Option<Flaw>,
    /// When it was published.
    pub published_unix_ms: i64,
    /// Size of the largest file in its archives.
    pub weights_bytes: u64,
}

/// Size of the largest file, unless it is asked for otherwise.
const WEIGHTS_BYTES: u64 = 1 << 20;

impl Release {
    /// A release without a flaw.
    pub fn sound(version: &str, published_unix_ms: i64) -> Self {
        Self { version: version.to_owned(), flaw: None, published_unix_ms, weights_bytes: WEIGHTS_BYTES }
    }

    /// Its tag, e.g. `v0.24.0`.
    pub fn tag(&self) -> String {
        format!("v{}", self.version)
    }

    /// Whether it is meant for testing.
    pub fn is_candidate(&self) -> bool {
        self.version.contains('-')
    }

    /// Whether that is what is wrong with it.
    pub fn has(&self, flaw: Flaw) -> bool {
        self.flaw == Some(flaw)
    }
}

/// What is published, the newest first. A new world has two good releases.
pub fn published(world: &World) -> Vec<Release> {
    let text = std::fs::read_to_string(world.state("releases/published.json")).ok();
    text.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_else(|| {
        vec![Release::sound("0.24.0", 1_778_767_200_000), Release::sound("0.22.1", 1_777_384_800_000)]
    })
}

/// The newest that is not meant for testing, which is what Homebrew has.
pub fn newest(world: &World) -> Option<Release> {
    published(world)
        .into_iter()
        .filter(|release| !release.is_candidate())
        .max_by_key(|release| numbers(&release.version))
}

/// Publishes a release, in the place of one of the same version.
pub fn publish(world: &World, version: &str, flaw: Option<Flaw>, megabytes: Option<u64>) -> Result<String> {
    let version = version.strip_prefix('v').unwrap_or(version);
    let fits = |symbol: char| symbol.is_ascii_alphanumeric() || matches!(symbol, '.' | '-' | '+');
    if version.is_empty() || version.len() > 64 || !version.chars().all(fits) || version.starts_with('.') {
        bail!("{version:?} cannot be part of a tag; nothing was published");
    }
    if flaw == Some(Flaw::LlamaServerMissing) && generation(version) < (0, 30) {
        bail!("llama-server came with 0.30, so that {version} cannot lack it; nothing was published");
    }
    let of_a_mac = matches!(flaw, Some(Flaw::WrongTeam | Flaw::BrokenSeal | Flaw::Unsigned | Flaw::NotNotarised));
    if of_a_mac && world.marker.os != Os::Macos {
        bail!("only apps of macOS are signed; nothing was published");
    }
    let mut release = Release { flaw, ..Release::sound(version, world.clock.wall_ms()) };
    if let Some(megabytes) = megabytes {
        release.weights_bytes = megabytes.saturating_mul(1 << 20);
    }
    let mut all = published(world);
    all.retain(|other| other.version != version);
    // Its archives were another release's.
    let _ = std::fs::remove_dir_all(archives::folder(world, &release));
    let said = match flaw {
        Some(flaw) => format!("published {version}, which is bad: {}", flaw.words()),
        None => format!("published {version}"),
    };
    all.insert(0, release);
    write_whole(&world.state("releases/published.json"), &serde_json::to_vec_pretty(&all)?)?;
    Ok(said)
}

/// The numbers of a version, for an order.
pub fn numbers(version: &str) -> Vec<u32> {
    version.split(['.', '-']).map(|part| part.parse().unwrap_or(0)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flaws_have_names_of_their_own() {
        let mut names: Vec<&str> = Flaw::ALL.iter().map(|flaw| flaw.name()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), Flaw::ALL.len());
        let text = serde_json::to_string(&Flaw::ZipSlip).unwrap();
        assert_eq!(text, "\"zip-slip\"");
        assert_eq!(serde_json::from_str::<Flaw>(&text).unwrap(), Flaw::ZipSlip);
        assert!(serde_json::from_str::<Flaw>("\"none\"").is_err());
    }

    #[test]
    fn versions_are_in_the_order_of_their_numbers() {
        assert!(numbers("0.24.0") > numbers("0.9.11"));
        assert!(numbers("0.24.1") > numbers("0.24.0"));
    }
}
