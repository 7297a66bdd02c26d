//! What an upgrade is planned from. Everything here was read by others, in one look.

use super::database::Schema;
use super::kept::Kept;
use crate::known::Known;
use crate::plan;
use std::cmp::Ordering;
use std::path::{Path, PathBuf};

/// How Ollama came onto this machine, which says who may replace it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Install {
    /// Ollama.app, put there by a person or by its own updater.
    App {
        /// Path of the bundle.
        bundle: PathBuf,
    },
    /// Ollama.app from a Homebrew cask.
    Cask {
        /// Path of the bundle.
        bundle: PathBuf,
        /// Name of the cask: `ollama-app`, formerly `ollama`.
        token: String,
    },
    /// The Homebrew formula `ollama`, which has the command line and the server alone.
    Formula {
        /// The program as found in PATH, e.g. `/opt/homebrew/bin/ollama`.
        program: PathBuf,
    },
    /// A Linux release tarball, as the official script unpacks it.
    Tarball {
        /// The program that the unit starts, e.g. `/usr/local/bin/ollama`: a file, or a link of ours.
        program: PathBuf,
        /// The folder that its link leads to; `None` while the program is a file, as the official script leaves it.
        linked: Option<PathBuf>,
        /// Its libraries beside a program that is a file, e.g. `/usr/local/lib/ollama`.
        libraries: PathBuf,
    },
    /// Built or unpacked by hand, in no form that could be replaced safely.
    Manual {
        /// The program.
        program: PathBuf,
    },
    /// In a container.
    Container {
        /// The container's name.
        name: String,
    },
}

impl Install {
    /// Whether another version can be put in its place. What was built by hand or lives in a container is its maker's.
    pub fn is_replaceable(&self) -> bool {
        match self {
            Self::App { .. } | Self::Cask { .. } | Self::Formula { .. } | Self::Tarball { .. } => true,
            Self::Manual { .. } | Self::Container { .. } => false,
        }
    }

    /// The word used for it in reports and JSON.
    pub fn word(&self) -> &'static str {
        match self {
            Self::App { .. } => "app",
            Self::Cask { .. } => "cask",
            Self::Formula { .. } => "formula",
            Self::Tarball { .. } => "tarball",
            Self::Manual { .. } => "manual",
            Self::Container { .. } => "container",
        }
    }

    /// What is replaced: the bundle, or the program.
    pub fn place(&self) -> Option<&Path> {
        match self {
            Self::App { bundle } | Self::Cask { bundle, .. } => Some(bundle),
            Self::Formula { program } | Self::Tarball { program, .. } | Self::Manual { program } => Some(program),
            Self::Container { .. } => None,
        }
    }
}

/// Whether we may replace what is installed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rights {
    /// As this user.
    Ours,
    /// A system install, which polkit lets us change after asking.
    Polkit,
    /// The folder that it lies in may not be written: a standard user (`EACCES`).
    FolderDenied {
        /// The folder.
        folder: PathBuf,
    },
    /// It belongs to somebody else. It could be renamed, but never removed again.
    ForeignOwner {
        /// Name of the owner, or the uid in digits.
        owner: String,
    },
    /// The volume is mounted read-only.
    ReadOnly {
        /// Where it is mounted.
        volume: PathBuf,
    },
    /// macOS refused this process a change to the app (`EPERM`, App Management). The permission, once given, holds for a
    /// process that starts after it.
    AppManagement,
}

/// Something else that is being done to the server now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Busy {
    /// Another upgrade or rollback.
    Upgrade,
    /// A restart or an apply.
    Restart,
    /// A stall is being cleared.
    Recovery,
    /// Homebrew runs.
    Brew,
}

/// A file of a release that this install is made from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Archive {
    /// Its name, e.g. `Ollama-darwin.zip`.
    pub name: String,
    /// Where it is downloaded from.
    pub url: String,
    /// Its size.
    pub size_bytes: u64,
    /// What it holds unpacked, where that is known before the download.
    pub unpacked_bytes: Known<u64>,
    /// Its SHA-256 in lower-case hex, from the release's `sha256sum.txt`.
    pub sha256: String,
}

/// What came of the search for the wanted release.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// It is there.
    Release {
        /// Its version, e.g. `0.24.0`.
        version: String,
        /// How it compares with the installed version; unknown where that is no version (a build of one's own).
        against_installed: Known<Ordering>,
        /// The files for this install, unpacked one over the other (ROCm libraries come in one of their own). None where
        /// a package manager fetches what it needs.
        archives: Vec<Archive>,
    },
    /// There is no release of that version.
    NoSuch {
        /// The version asked for.
        version: String,
        /// The newest that there is.
        newest: Option<String>,
    },
    /// The release has no file for this install.
    WithoutAsset {
        /// Its version.
        version: String,
        /// The file's name.
        asset: String,
    },
    /// The release names no SHA-256 of the file.
    WithoutHash {
        /// Its version.
        version: String,
        /// The file's name.
        asset: String,
    },
    /// The releases could not be read.
    Unreachable(Unreachable),
}

/// Why the releases could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unreachable {
    /// No network, or no name service.
    Offline,
    /// A proxy wants a name and password (407).
    Proxy,
    /// No certificate is valid at the time that this computer's clock shows.
    Clock,
    /// Too many questions from this address.
    RateLimited {
        /// Seconds until questions are answered again, where the server said so.
        wait_seconds: Option<u64>,
    },
    /// Anything else, as a phrase.
    Other(String),
}

/// Files of the built-in updater that would undo an upgrade, or block one for ever.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BuiltInUpdater {
    /// Downloads that would be put in place at the next hidden start (`~/Library/Caches/ollama/updates/*`).
    pub staged: Vec<PathBuf>,
    /// The app that it moved away and never removed (`~/Library/Caches/ollama/backup/Ollama.app`). It refuses to work
    /// while this is there.
    pub stale_backup: Option<PathBuf>,
}

/// Folders that an upgrade may use. All lie on the volume of what is installed, so that a rename is enough.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Folders {
    /// For what is downloaded and unpacked. Each upgrade makes a folder of its own in it.
    pub work: PathBuf,
    /// For old versions.
    pub kept: PathBuf,
}

/// The app's database of settings and chats.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Database {
    /// `~/Library/Application Support/Ollama/db.sqlite`
    pub at: PathBuf,
    /// Its size.
    pub size_bytes: u64,
    /// Which form its tables have (`settings.schema_version`).
    pub schema: Known<Schema>,
}

/// Everything that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// How Ollama is installed; `None` when it is not.
    pub install: Known<Option<Install>>,
    /// Its version.
    pub installed: Known<String>,
    /// Where the app that runs now really lies, when one runs.
    pub running_from: Option<PathBuf>,
    /// Word of the owner that starts the server.
    pub owner: String,
    /// Whether the server could be stopped and started now; a plan of a restart, made and thrown away.
    pub restart: Result<(), plan::Refusal>,
    /// Whether we may replace it.
    pub rights: Known<Rights>,
    /// What else is being done.
    pub busy: Option<Busy>,
    /// Free space where [`Folders`] and the app lie.
    pub free_bytes: Known<u64>,
    /// Size of what is installed.
    pub installed_bytes: Known<u64>,
    /// What the built-in updater left.
    pub updater: BuiltInUpdater,
    /// Old versions that we keep; the one in place is not among them, wherever it lies.
    pub kept: Vec<Kept>,
    /// The version that a person wants to stay on.
    pub pin: Option<String>,
    /// The folders to use.
    pub folders: Folders,
    /// The app's database, where there is an app that has one.
    pub database: Option<Database>,
    /// The server's port.
    pub port: u16,
}

/// Why an app can not be replaced where it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OddPlace {
    /// A random read-only folder of macOS (App Translocation).
    Translocated,
    /// The folder in which the built-in updater keeps what it replaced.
    UpdatersBackup,
}

/// Whether a path is a place that an app can not be upgraded in.
pub fn odd_place(path: &Path) -> Option<OddPlace> {
    let parts: Vec<_> = path.components().map(|part| part.as_os_str()).collect();
    if parts.iter().any(|part| *part == "AppTranslocation") {
        return Some(OddPlace::Translocated);
    }
    parts.windows(2).any(|pair| pair[0] == "ollama" && pair[1] == "backup").then_some(OddPlace::UpdatersBackup)
}
