//! Which files of a release an install is made from (`ollama .github/workflows/release.yaml`, `scripts/install.sh`).

use super::sums::{NoSum, Sums};
use super::{File, Release};
use stablehand_engine::Known;
use stablehand_engine::upgrade::found::{Archive, Install};

/// The file with the hashes of all others.
pub const SUMS: &str = "sha256sum.txt";

/// A processor that releases are built for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Architecture {
    /// 64-bit Intel and AMD.
    Amd64,
    /// 64-bit ARM.
    Arm64,
}

impl Architecture {
    /// The architecture as `uname -m` or Rust names it.
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "x86_64" | "amd64" => Some(Self::Amd64),
            "aarch64" | "arm64" => Some(Self::Arm64),
            _ => None,
        }
    }

    fn word(self) -> &'static str {
        match self {
            Self::Amd64 => "amd64",
            Self::Arm64 => "arm64",
        }
    }
}

/// Libraries that the official script unpacks over the base on some machines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extra {
    /// AMD GPUs (`lib/ollama/rocm`).
    Rocm,
    /// Jetson with JetPack 5 (`lib/ollama/cuda_jetpack5`).
    Jetpack5,
    /// Jetson with JetPack 6 (`lib/ollama/cuda_jetpack6`).
    Jetpack6,
}

impl Extra {
    /// Every one, with the folder of `lib/ollama` that shows it.
    pub const ALL: [(Self, &'static str); 3] =
        [(Self::Rocm, "rocm"), (Self::Jetpack5, "cuda_jetpack5"), (Self::Jetpack6, "cuda_jetpack6")];

    fn word(self) -> &'static str {
        match self {
            Self::Rocm => "rocm",
            Self::Jetpack5 => "jetpack5",
            Self::Jetpack6 => "jetpack6",
        }
    }
}

/// Why an install can not be made from a release.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoFile {
    /// The release does not have it.
    #[error("the release has no {0}")]
    Missing(String),
    /// Its hash is not named.
    #[error("no hash of {0}: {1}")]
    NoSum(String, NoSum),
}

/// The files that this install is made from, the base first; none where a package manager fetches its own.
///
/// # Errors
/// [`NoFile`] names the first that is missing.
pub fn archives(
    release: &Release,
    sums: &Sums,
    install: &Install,
    architecture: Architecture,
    extras: &[Extra],
) -> Result<Vec<Archive>, NoFile> {
    let wanted = match install {
        Install::App { .. } => vec![vec!["Ollama-darwin.zip".to_owned()]],
        Install::Tarball { .. } => {
            let base = format!("ollama-linux-{}", architecture.word());
            let over = extras.iter().map(|extra| format!("{base}-{}", extra.word()));
            std::iter::once(base.clone()).chain(over).map(|stem| forms(&stem)).collect()
        }
        Install::Cask { .. } | Install::Formula { .. } | Install::Manual { .. } | Install::Container { .. } => vec![],
    };
    wanted.iter().map(|names| archive(release, sums, names)).collect()
}

/// The names that a tarball has had: `.tgz` before 0.14 or so.
fn forms(stem: &str) -> Vec<String> {
    vec![format!("{stem}.tar.zst"), format!("{stem}.tgz")]
}

/// The first of these names that the release has.
fn archive(release: &Release, sums: &Sums, names: &[String]) -> Result<Archive, NoFile> {
    let found: Option<&File> = names.iter().find_map(|name| release.file(name));
    let Some(file) = found else { return Err(NoFile::Missing(names.first().cloned().unwrap_or_default())) };
    let sha256 = sums.of(&file.name).map_err(|why| NoFile::NoSum(file.name.clone(), why))?;
    Ok(Archive {
        name: file.name.clone(),
        url: file.url.clone(),
        size_bytes: file.size_bytes,
        unpacked_bytes: Known::unknown("an archive says it only once it is here"),
        sha256: sha256.to_owned(),
    })
}
