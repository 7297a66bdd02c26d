//! The releases that are known, and asking for them: once a day, with what was known kept for the time without a
//! network.

use super::brew::{self, Package};
use super::finding::{self, InPlace};
use crate::configuration::Upgrades;
use serde::{Deserialize, Serialize};
use stablehand_engine::Known as Fact;
use stablehand_engine::time::Wall;
use stablehand_engine::upgrade::Words;
use stablehand_engine::upgrade::found::{Found, Install, Unreachable, Wanted};
use stablehand_engine::upgrade::refusal::Refusal;
use stablehand_ollama::releases::{
    Architecture, Asked, BASE, ETag, Extra, NotAsked, Release, Releases, Source, Terms, Which as Wish, against, wanted,
};
use stablehand_ollama::version::Version;
use stablehand_platform::files::write_atomically;
use stablehand_platform::machine::Machine;
use stablehand_protocol::{self as protocol, Failure};
use std::cmp::Ordering;
use std::path::PathBuf;
use std::time::Duration;

/// How many releases are asked for.
const NEWEST: u8 = 30;
/// Between two questions by itself.
const DAY: Duration = Duration::from_secs(24 * 3600);
/// The day varies by up to this, so that not everybody asks at the same minute.
const JITTER: Duration = Duration::from_secs(2 * 3600);
/// After a question without an answer.
const AGAIN: Duration = Duration::from_secs(3600);
/// The words beside a version in a plan's notes are this long at most.
const NOTES_SHOWN_BYTES: usize = 2048;

/// Which release is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Which(Wish);

impl Which {
    /// As a person says it.
    ///
    /// # Errors
    /// [`Words`] when that is no version.
    pub(super) fn of(to: Option<&str>, prerelease: bool) -> Result<Self, Words> {
        let wish = match to {
            Some(text) => Wish::This(version_of(text)?),
            None if prerelease => Wish::NewestOrCandidate,
            None => Wish::Newest,
        };
        Ok(Self(wish))
    }
}

/// The version that a person names.
///
/// # Errors
/// [`Words`] when it is none.
pub(super) fn version_of(text: &str) -> Result<Version, Words> {
    text.strip_prefix('v').unwrap_or(text).parse().map_err(|error| {
        Words::new(
            "no-version",
            format!("«{text}» is no version: {error}; nothing was changed"),
            "a version is written as 0.24.0; `stablehand upgrade --check` shows the newest",
        )
    })
}

/// Where releases come from: as configured, as the simulated machine has them, or GitHub.
///
/// # Errors
/// Why it is no address.
pub(super) fn source(machine: &Machine, upgrades: &Upgrades) -> Result<Source, NotAsked> {
    let simulated = || {
        let file = machine.simulated()?.join("releases/address");
        Some(std::fs::read_to_string(file).ok()?.trim().to_owned())
    };
    let base = upgrades.releases.clone().or_else(simulated).unwrap_or_else(|| BASE.to_owned());
    Source::new(&base, Terms::default())
}

/// What is known of releases.
pub(super) struct Known {
    releases: Releases,
    state: Option<ETag>,
    checked_at: Option<Wall>,
    /// The last question, answered or not.
    asked_at: Option<Wall>,
    failure: Option<Unreachable>,
    taken_back: Option<String>,
    path: PathBuf,
}

/// What is kept of it. The releases themselves are asked for anew after a start.
#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
struct Kept {
    /// When an answer came.
    checked_at_unix_ms: Option<i64>,
    /// The version that was put in place last and taken back.
    taken_back: Option<String>,
}

impl Known {
    /// As an earlier daemon left it.
    pub(super) fn open(machine: &Machine) -> Self {
        let path = finding::folder(machine).join("releases.json");
        let kept: Kept =
            std::fs::read(&path).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok()).unwrap_or_default();
        Self {
            releases: Releases::default(),
            state: None,
            checked_at: kept.checked_at_unix_ms.map(Wall::from_unix_ms),
            asked_at: None,
            failure: None,
            taken_back: kept.taken_back,
            path,
        }
    }

    /// When an answer came last.
    pub(super) fn checked_at(&self) -> Option<Wall> {
        self.checked_at
    }

    /// The version that was put in place last and taken back.
    pub(super) fn taken_back(&self) -> Option<&str> {
        self.taken_back.as_deref()
    }

    /// How an upgrade to a version has ended.
    pub(super) fn tried(&mut self, machine: &Machine, version: &str, committed: bool) {
        self.taken_back = (!committed).then(|| version.to_owned());
        self.keep(machine);
    }

    /// Why the last question had none.
    pub(super) fn failure(&self) -> Option<Failure> {
        self.failure.as_ref().map(|why| {
            let words = Refusal::Unreachable(why.clone()).words();
            Failure::new(words.code, words.message, words.hint)
        })
    }

    /// Whether it is time to ask by itself. Nothing is known after a start, so that one asks soon.
    pub(super) fn is_due(&self, machine: &Machine) -> bool {
        let now = machine.clock().now().wall;
        let span = if self.failure.is_some() { AGAIN } else { DAY + jitter(machine) };
        self.asked_at.is_none_or(|at| now - at >= span)
    }

    /// Asks for the newest.
    pub(super) async fn ask(&mut self, machine: &Machine, upgrades: &Upgrades) {
        let now = machine.clock().now().wall;
        self.asked_at = Some(now);
        let asked = match source(machine, upgrades) {
            Ok(source) => source.list(NEWEST, self.state.as_ref(), now).await,
            Err(reason) => Asked::Unreachable(Unreachable::Other(reason.to_string())),
        };
        match asked {
            Asked::Releases { releases, etag, .. } => {
                for left_out in &releases.left_out {
                    tracing::info!(tag = %left_out.tag, why = %left_out.why, "a release was left out");
                }
                (self.releases, self.state) = (releases, etag);
                self.answered(machine, now);
            }
            Asked::NotModified { .. } => self.answered(machine, now),
            Asked::Missing => self.failure = Some(Unreachable::Other("there is no list of releases".to_owned())),
            Asked::Unreachable(why) => self.failure = Some(why),
        }
    }

    fn answered(&mut self, machine: &Machine, now: Wall) {
        (self.failure, self.checked_at) = (None, Some(now));
        self.keep(machine);
    }

    fn keep(&self, machine: &Machine) {
        let kept =
            Kept { checked_at_unix_ms: self.checked_at.map(|at| at.unix_ms), taken_back: self.taken_back.clone() };
        let Ok(bytes) = serde_json::to_vec(&kept) else { return };
        if let Some(folder) = self.path.parent()
            && let Err(error) = stablehand_platform::files::make_folder(machine, folder, 0o700)
        {
            tracing::warn!(%error, "what is known of releases is not written down");
            return;
        }
        if let Err(error) = write_atomically(machine, &self.path, &bytes, 0o600) {
            tracing::warn!(%error, "what is known of releases is not written down");
        }
    }

    /// The release that is wanted, with what it takes, and what a person should know of it.
    pub(super) async fn wanted(
        &mut self,
        machine: &Machine,
        upgrades: &Upgrades,
        found: &Found,
        which: Which,
    ) -> (Wanted, Vec<String>) {
        let installed = found.installed.known().cloned().unwrap_or_default();
        let install = found.install.known().and_then(Option::as_ref);
        match install {
            Some(Install::Cask { token, .. }) => {
                return by_brew(machine, &Package::Cask(token.clone()), &installed, which).await;
            }
            Some(Install::Formula { .. }) => return by_brew(machine, &Package::Formula, &installed, which).await,
            Some(
                Install::App { .. } | Install::Tarball { .. } | Install::Manual { .. } | Install::Container { .. },
            )
            | None => {}
        }
        let release = match self.find(machine, upgrades, which).await {
            Ok(release) => release,
            Err(wanted) => return (wanted, vec![]),
        };
        let notes = notes_of(&release);
        let (Some(install), Ok(source)) = (install, source(machine, upgrades)) else {
            return (plain(&release, &installed), notes);
        };
        let now = machine.clock().now().wall;
        match source.sums(&release, now).await {
            Ok(sums) => {
                let extras = extras(install);
                let wanted = wanted(&release, &sums, install, architecture(), &extras, &installed);
                (wanted, notes)
            }
            Err(why) => (Wanted::Unreachable(why), notes),
        }
    }

    async fn find(&mut self, machine: &Machine, upgrades: &Upgrades, which: Which) -> Result<Release, Wanted> {
        self.ask(machine, upgrades).await;
        if let (Some(why), true) = (&self.failure, self.releases.releases.is_empty()) {
            return Err(Wanted::Unreachable(why.clone()));
        }
        if let Some(release) = self.releases.get(which.0) {
            return Ok(release.clone());
        }
        let newest = self.releases.get(Wish::Newest).map(|release| release.version.to_string());
        let Wish::This(version) = which.0 else {
            return Err(Wanted::NoSuch { version: "that is not meant for testing".to_owned(), newest });
        };
        let no_such = Wanted::NoSuch { version: version.to_string(), newest };
        let source =
            source(machine, upgrades).map_err(|reason| Wanted::Unreachable(Unreachable::Other(reason.to_string())))?;
        match source.one(version, None, machine.clock().now().wall).await {
            Asked::Releases { releases, .. } => releases.get(which.0).cloned().ok_or(no_such),
            Asked::Unreachable(why) => Err(Wanted::Unreachable(why)),
            Asked::NotModified { .. } | Asked::Missing => Err(no_such),
        }
    }

    /// Whether there is a release of that version.
    ///
    /// # Errors
    /// [`Words`] when there is none, or it could not be told.
    pub(super) async fn exists(&mut self, machine: &Machine, upgrades: &Upgrades, version: &str) -> Result<(), Words> {
        let version = version_of(version)?;
        match self.find(machine, upgrades, Which(Wish::This(version))).await {
            Ok(_) => Ok(()),
            Err(Wanted::NoSuch { version, newest }) => Err(Refusal::NoSuchRelease { version, newest }.words()),
            Err(Wanted::Unreachable(why)) => Err(Refusal::Unreachable(why).words()),
            Err(Wanted::Release { .. } | Wanted::WithoutAsset { .. } | Wanted::WithoutHash { .. }) => Ok(()),
        }
    }

    /// The newest that is known and suits, and whether it is newer than what is in place.
    pub(super) fn latest(
        &self,
        there: &InPlace,
        prerelease: bool,
    ) -> (Option<protocol::Release>, protocol::Known<bool>) {
        let wish = if prerelease { Wish::NewestOrCandidate } else { Wish::Newest };
        let Some(release) = self.releases.get(wish) else {
            return (None, protocol::Known::unknown("the releases were not asked for yet"));
        };
        let newer = match &there.installed {
            Fact::Is(installed) => match against(installed, release.version) {
                Fact::Is(Ordering::Greater) => protocol::Known::Is(true),
                Fact::Is(Ordering::Less | Ordering::Equal) => protocol::Known::Is(false),
                Fact::Unknown(reason) => protocol::Known::unknown(reason),
            },
            Fact::Unknown(reason) => protocol::Known::unknown(reason.clone()),
        };
        (Some(shown(release, there.known_install())), newer)
    }
}

fn shown(release: &Release, install: Option<&Install>) -> protocol::Release {
    let names = match install {
        Some(Install::App { .. }) => vec!["Ollama-darwin.zip".to_owned()],
        Some(Install::Tarball { .. }) => {
            let word = match architecture() {
                Architecture::Amd64 => "amd64",
                Architecture::Arm64 => "arm64",
            };
            vec![format!("ollama-linux-{word}.tar.zst"), format!("ollama-linux-{word}.tgz")]
        }
        Some(Install::Cask { .. } | Install::Formula { .. } | Install::Manual { .. } | Install::Container { .. })
        | None => {
            vec![]
        }
    };
    let size_bytes = match names.iter().find_map(|name| release.file(name)) {
        Some(file) => protocol::Known::Is(file.size_bytes),
        None => protocol::Known::unknown("nothing of it is downloaded by Stablehand"),
    };
    protocol::Release {
        version: release.version.to_string(),
        published: match &release.published {
            Fact::Is(at) => protocol::Known::Is(crate::translation::rfc3339(*at)),
            Fact::Unknown(reason) => protocol::Known::unknown(reason.clone()),
        },
        notes: release.notes.clone(),
        size_bytes,
        prerelease: release.prerelease,
    }
}

async fn by_brew(machine: &Machine, package: &Package, installed: &str, which: Which) -> (Wanted, Vec<String>) {
    let offered = match brew::offered(machine, package).await {
        Ok(offered) => offered,
        Err(why) => return (Wanted::Unreachable(Unreachable::Other(why)), vec![]),
    };
    let Ok(version) = offered.parse::<Version>() else {
        return (
            Wanted::Unreachable(Unreachable::Other(format!("Homebrew offers {offered}, which is no version"))),
            vec![],
        );
    };
    match which.0 {
        Wish::This(asked) if asked != version => {
            let newest = Some(version.to_string());
            (Wanted::NoSuch { version: format!("{asked} in Homebrew"), newest }, vec![])
        }
        Wish::This(_) | Wish::Newest | Wish::NewestOrCandidate => {
            let against_installed = against(installed, version);
            (Wanted::Release { version: version.to_string(), against_installed, archives: vec![] }, vec![])
        }
    }
}

/// A release for an install that is refused anyway.
fn plain(release: &Release, installed: &str) -> Wanted {
    Wanted::Release {
        version: release.version.to_string(),
        against_installed: against(installed, release.version),
        archives: vec![],
    }
}

fn notes_of(release: &Release) -> Vec<String> {
    let mut text = release.notes.trim().to_owned();
    if text.len() > NOTES_SHOWN_BYTES {
        let end = (0..=NOTES_SHOWN_BYTES).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
        text.truncate(end);
        text.push('…');
    }
    if text.is_empty() { vec![] } else { vec![format!("{}: {text}", release.tag)] }
}

/// The libraries that this install has beside the base.
fn extras(install: &Install) -> Vec<Extra> {
    let libraries = match install {
        Install::Tarball { linked: Some(folder), .. } => folder.join("lib/ollama"),
        Install::Tarball { linked: None, libraries, .. } => libraries.clone(),
        Install::App { .. }
        | Install::Cask { .. }
        | Install::Formula { .. }
        | Install::Manual { .. }
        | Install::Container { .. } => return vec![],
    };
    let there = Extra::ALL.iter().filter(|(_, folder)| libraries.join(folder).is_dir());
    there.map(|(extra, _)| *extra).collect()
}

fn architecture() -> Architecture {
    let machine = rustix::system::uname();
    let named = machine.machine().to_str().ok().and_then(Architecture::named);
    // What Ollama is not built for can not have been installed from its tarball.
    named.unwrap_or(Architecture::Amd64)
}

/// The same on every day, and another on every machine.
fn jitter(machine: &Machine) -> Duration {
    let name = machine.home().as_os_str().as_encoded_bytes();
    let sum: u64 =
        name.iter().fold(u64::from(machine.uid()), |sum, byte| sum.wrapping_mul(31).wrapping_add(u64::from(*byte)));
    Duration::from_secs(sum % JITTER.as_secs())
}
