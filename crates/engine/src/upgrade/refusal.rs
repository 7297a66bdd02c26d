//! Why no upgrade or rollback is planned. Nothing has been changed then.

use super::Words;
use super::found::{Busy, Install, Unreachable};
use crate::plan;
use std::path::PathBuf;

/// The page of the system's settings on which macOS lets a program change other apps.
pub const APP_MANAGEMENT_PAGE: &str = "x-apple.systempreferences:com.apple.preference.security?Privacy_AppBundles";

/// What to do when macOS does not let us change the app. The permission holds for a process that starts after it.
pub(super) const APP_MANAGEMENT_HINT: &str = "allow Stablehand in System Settings > Privacy & Security > App \
                                              Management, then try again; it starts anew before it does";

/// Why no plan is made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// Something that the plan rests on could not be read.
    #[error("{what} could not be told: {reason}")]
    Unknown {
        /// What.
        what: &'static str,
        /// Why.
        reason: String,
    },
    /// There is nothing to upgrade.
    #[error("no Ollama was found on this machine")]
    Absent,
    /// It was built or unpacked by hand.
    #[error("{} was built or unpacked by hand, and is not replaced", program.display())]
    Manual {
        /// The program.
        program: PathBuf,
        /// The version asked for, when one was.
        wanted: Option<String>,
    },
    /// It is in a container.
    #[error("Ollama runs in the container {name}, which is never changed")]
    Container {
        /// The container.
        name: String,
        /// The version asked for, when one was.
        wanted: Option<String>,
    },
    /// The server could not be stopped and started.
    #[error("the server could not be restarted, which an upgrade ends with: {0}")]
    Restart(plan::Refusal),
    /// Something else is being done.
    #[error("{}", busy(*.0))]
    Busy(Busy),
    /// There is no release of that version.
    #[error("there is no release {version}")]
    NoSuchRelease {
        /// The version.
        version: String,
        /// The newest that there is.
        newest: Option<String>,
    },
    /// The release has no file for this install.
    #[error("the release {version} has no {asset}")]
    WithoutAsset {
        /// The version.
        version: String,
        /// The file.
        asset: String,
    },
    /// The release has no hash of the file.
    #[error("the release {version} names no SHA-256 of {asset}, so that a download could not be checked")]
    WithoutHash {
        /// The version.
        version: String,
        /// The file.
        asset: String,
    },
    /// The releases could not be read.
    #[error("the releases of Ollama could not be read: {}", unreachable_phrase(.0))]
    Unreachable(Unreachable),
    /// It is installed already.
    #[error("{version} is installed already")]
    Same {
        /// The version.
        version: String,
    },
    /// It is older.
    #[error("{wanted} is older than the installed {installed}")]
    Older {
        /// The installed version.
        installed: String,
        /// The version asked for.
        wanted: String,
    },
    /// A person wants to stay on another version.
    #[error("Ollama is pinned to {pin}")]
    Pinned {
        /// That version.
        pin: String,
        /// The version asked for.
        wanted: String,
    },
    /// It runs from a random read-only folder.
    #[error(
        "{} runs from a random read-only folder (App Translocation), which is gone as soon as it quits", .0.display()
    )]
    Translocated(PathBuf),
    /// It runs from the built-in updater's backup.
    #[error("the Ollama that runs is what its own updater moved away ({})", .0.display())]
    UpdatersBackup(PathBuf),
    /// The folder may not be written.
    #[error("{} may not be changed by you: it belongs to the computer's administrators", .0.display())]
    FolderDenied(PathBuf),
    /// It belongs to somebody else.
    #[error("{} belongs to {owner}, so that it could be moved away but never removed", place.display())]
    ForeignOwner {
        /// What is installed.
        place: PathBuf,
        /// Whose it is.
        owner: String,
    },
    /// The volume is read-only.
    #[error("the volume {} is read-only", .0.display())]
    ReadOnly(PathBuf),
    /// macOS does not let us change the app.
    #[error("macOS did not let Stablehand change {} (App Management)", .0.display())]
    AppManagement(PathBuf),
    /// Not enough room.
    #[error("{} are needed, {} are free at {}", megabytes(*needed_bytes), megabytes(*free_bytes), at.display())]
    NoSpace {
        /// What is needed.
        needed_bytes: u64,
        /// What is free.
        free_bytes: u64,
        /// On the volume of this path.
        at: PathBuf,
    },
    /// No such old version is kept.
    #[error("{}", nothing_kept(asked.as_deref(), installed))]
    NothingKept {
        /// The version asked for.
        asked: Option<String>,
        /// The installed version.
        installed: String,
        /// What is kept.
        kept: Vec<String>,
    },
    /// Homebrew's formula can not go back.
    #[error("Ollama is Homebrew's formula, and Homebrew keeps no older one to go back to")]
    BrewGoesForward,
    /// The old version could not read the database.
    #[error("{to} can not go on with the current settings and chats: {why}")]
    DatabaseNewer {
        /// The old version.
        to: String,
        /// Why.
        why: String,
        /// Where the current database would be set aside.
        aside: PathBuf,
        /// Whether the database of then is kept.
        kept: bool,
    },
}

impl Refusal {
    /// For an install that is not ours to change, with the version asked for.
    pub(super) fn of_install(install: &Install, wanted: Option<String>) -> Option<Self> {
        match install {
            Install::App { .. } | Install::Cask { .. } | Install::Formula { .. } | Install::Tarball { .. } => None,
            Install::Manual { program } => Some(Self::Manual { program: program.clone(), wanted }),
            Install::Container { name } => Some(Self::Container { name: name.clone(), wanted }),
        }
    }

    /// Stable code for programs.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Unknown { .. } => "upgrade-unknown",
            Self::Absent => "ollama-missing",
            Self::Manual { .. } => "install-manual",
            Self::Container { .. } => "install-container",
            Self::Restart(_) => "upgrade-no-restart",
            Self::Busy(_) => "upgrade-busy",
            Self::NoSuchRelease { .. } => "no-such-release",
            Self::WithoutAsset { .. } => "release-without-asset",
            Self::WithoutHash { .. } => "release-without-hash",
            Self::Unreachable(Unreachable::Offline) => "releases-offline",
            Self::Unreachable(Unreachable::Proxy) => "releases-proxy",
            Self::Unreachable(Unreachable::Clock) => "releases-clock",
            Self::Unreachable(Unreachable::RateLimited { .. }) => "releases-rate-limited",
            Self::Unreachable(Unreachable::Other(_)) => "releases-unreadable",
            Self::Same { .. } => "upgrade-same",
            Self::Older { .. } => "upgrade-older",
            Self::Pinned { .. } => "upgrade-pinned",
            Self::Translocated(_) => "app-translocated",
            Self::UpdatersBackup(_) => "app-in-backup",
            Self::FolderDenied(_) => "upgrade-folder-denied",
            Self::ForeignOwner { .. } => "upgrade-foreign-owner",
            Self::ReadOnly(_) => "upgrade-read-only",
            Self::AppManagement(_) => "app-management",
            Self::NoSpace { .. } => "upgrade-no-space",
            Self::NothingKept { .. } => "rollback-nothing-kept",
            Self::BrewGoesForward => "rollback-brew",
            Self::DatabaseNewer { .. } => "rollback-database",
        }
    }

    /// What to do about it.
    pub fn hint(&self) -> String {
        match self {
            Self::Unknown { .. } => "see `stablehand doctor`, then try again".to_owned(),
            Self::Absent => "install it from ollama.com, then try again".to_owned(),
            Self::Manual { wanted, .. } => {
                let version = wanted.as_ref().map_or_else(String::new, |wanted| format!("OLLAMA_VERSION={wanted} "));
                format!(
                    "replace it the way it was made; or install a release beside it with \
                     `curl -fsSL https://ollama.com/install.sh | {version}sh`"
                )
            }
            Self::Container { wanted, name } => {
                let tag = wanted.as_deref().unwrap_or("latest");
                format!("run `docker pull ollama/ollama:{tag}`, then make {name} anew from that image")
            }
            Self::Restart(_) => "see `stablehand doctor`; once `stablehand restart` works, try again".to_owned(),
            Self::Busy(Busy::Brew) => "wait until Homebrew has finished, then try again".to_owned(),
            Self::Busy(Busy::Upgrade | Busy::Restart | Busy::Recovery) => {
                "wait for its end (`stablehand status` shows it), then try again".to_owned()
            }
            Self::NoSuchRelease { newest: Some(newest), .. } => format!("the newest is {newest}"),
            Self::NoSuchRelease { newest: None, .. } => "`stablehand versions` lists what there is".to_owned(),
            Self::WithoutAsset { .. } => {
                "a release gets its files one by one; try again in an hour, or choose another with --to".to_owned()
            }
            Self::WithoutHash { .. } => "choose another version with --to".to_owned(),
            Self::Unreachable(Unreachable::Offline) => {
                "check the network, then try again; a mirror can be named as `releases` in the configuration".to_owned()
            }
            Self::Unreachable(Unreachable::Proxy) => {
                "put name and password of the proxy into its address (HTTPS_PROXY, or the system's settings)".to_owned()
            }
            Self::Unreachable(Unreachable::Clock) => "set the clock, then try again".to_owned(),
            Self::Unreachable(Unreachable::RateLimited { wait_seconds: Some(seconds) }) => {
                format!("try again in {} min", seconds.div_ceil(60).max(1))
            }
            Self::Unreachable(Unreachable::RateLimited { wait_seconds: None }) => "try again in an hour".to_owned(),
            Self::Unreachable(Unreachable::Other(_)) => "try again later".to_owned(),
            Self::Same { .. } => "there is nothing to do".to_owned(),
            Self::Older { wanted, .. } => {
                format!(
                    "`stablehand rollback` goes back to a version that was kept; to go to {wanted}, add --downgrade"
                )
            }
            Self::Pinned { wanted, .. } => {
                format!("let it go with `stablehand pin --off`, or pin the new one with `stablehand pin {wanted}`")
            }
            Self::Translocated(_) => {
                "move it to another folder and back with Finder, start it again, then try again".to_owned()
            }
            Self::UpdatersBackup(_) => {
                "quit it, start the Ollama in Applications (install it from ollama.com if it is gone), then try again"
                    .to_owned()
            }
            Self::FolderDenied(_) => {
                "ask an administrator, or put Ollama.app into the Applications folder of your home".to_owned()
            }
            Self::ForeignOwner { place, owner } => {
                format!("let {owner} upgrade it, or make it yours: `sudo chown -R \"$USER\" '{}'`", place.display())
            }
            Self::ReadOnly(_) => "move Ollama to a volume that can be written, then try again".to_owned(),
            Self::AppManagement(_) => APP_MANAGEMENT_HINT.to_owned(),
            Self::NoSpace { .. } => {
                "make room (`ollama rm` removes a model, `stablehand versions` shows what is kept), then try again; \
                 what the system could clear by itself does not count"
                    .to_owned()
            }
            Self::NothingKept { kept, .. } if kept.is_empty() => {
                "a version is kept once Stablehand has upgraded it; until then `stablehand upgrade --to VERSION \
                 --downgrade` fetches an older one"
                    .to_owned()
            }
            Self::NothingKept { kept, .. } => format!("kept are {}", kept.join(", ")),
            Self::BrewGoesForward => {
                "`brew list --versions ollama` shows what is there; the app from ollama.com can be rolled back"
                    .to_owned()
            }
            Self::DatabaseNewer { aside, kept, .. } => {
                let instead = if *kept { "its own of then" } else { "a new one, with its own settings" };
                format!(
                    "with --yes the current ones are set aside as {} and it gets {instead}; no chat is removed",
                    aside.display()
                )
            }
        }
    }

    /// Code, message and hint.
    pub fn words(&self) -> Words {
        Words::new(self.code(), format!("{self}; nothing was changed"), self.hint())
    }
}

fn busy(busy: Busy) -> &'static str {
    match busy {
        Busy::Upgrade => "an upgrade or a rollback is being carried out",
        Busy::Restart => "the server is being restarted",
        Busy::Recovery => "a stall is being cleared",
        Busy::Brew => "Homebrew is at work",
    }
}

fn unreachable_phrase(why: &Unreachable) -> String {
    match why {
        Unreachable::Offline => "no network".to_owned(),
        Unreachable::Proxy => "the proxy wants a name and a password".to_owned(),
        Unreachable::Clock => "their certificate is not valid at the time that this computer's clock shows".to_owned(),
        Unreachable::RateLimited { .. } => "too many questions came from this address".to_owned(),
        Unreachable::Other(phrase) => phrase.clone(),
    }
}

fn nothing_kept(asked: Option<&str>, installed: &str) -> String {
    match asked {
        Some(version) => format!("no {version} is kept"),
        None => format!("no version other than the installed {installed} is kept"),
    }
}

fn megabytes(bytes: u64) -> String {
    super::deed::megabytes(bytes)
}
