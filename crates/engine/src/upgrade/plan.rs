//! The plan of an upgrade or a rollback: data that a test compares and `--dry-run` prints.
//!
//! Everything slow and everything that can be refused comes before [`Deed::Stop`].

use super::database::{AtRollback, at_rollback};
use super::deed::{Deed, Step};
use super::found::{Found, Install, OddPlace, Rights, Wanted, odd_place};
use super::kept::{self, Kept, retain, to_roll_back_to};
use super::order::{Aside, DatabaseCopy, Download, Goal, Instead, Order, Slots, Switch};
use super::refusal::Refusal;
use crate::known::Known;
use crate::time::Wall;
use std::cmp::Ordering;
use std::fmt;
use std::path::Path;

/// How much larger than its archive a release may be unpacked. `Ollama-darwin.zip` unpacks to about three times its
/// size; an archive that claims more than this is refused before a byte is written.
pub const UNPACKED_PER_PACKED: u64 = 8;
/// What is expected of it where the archive does not say.
const UNPACKED_PER_PACKED_USUALLY: u64 = 4;
/// What has to remain free: a full volume breaks more than an upgrade.
const RESERVE_BYTES: u64 = 256 << 20;

/// What a person asks for beside the version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ask {
    /// A name for this work, unique on this machine and fit for a file name.
    pub id: String,
    /// An older version may be put in place.
    pub downgrade: bool,
    /// At a rollback: a database that the old version can not read may be set aside.
    pub set_database_aside: bool,
    /// How many old versions are kept, see [`kept::KEPT_VERSIONS`].
    pub keep: usize,
}

/// What will be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// On what.
    pub order: Order,
    /// In this order.
    pub deeds: Vec<Deed>,
}

impl Plan {
    /// The deeds with their words.
    pub fn steps(&self) -> impl Iterator<Item = Step<'_>> {
        self.deeds.iter().map(|deed| Step { deed: *deed, order: &self.order })
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} of Ollama from {} to {}", self.order.goal.word(), self.order.from, self.order.to)
    }
}

/// Plans an upgrade.
///
/// # Errors
/// A [`Refusal`] with its words; nothing has been changed then.
pub fn plan(found: &Found, wanted: &Wanted, ask: &Ask) -> Result<Plan, Refusal> {
    let named = match wanted {
        Wanted::Release { version, .. }
        | Wanted::NoSuch { version, .. }
        | Wanted::WithoutAsset { version, .. }
        | Wanted::WithoutHash { version, .. } => Some(version.clone()),
        Wanted::Unreachable(_) => None,
    };
    let install = install_of(found, named)?;
    let (version, against_installed, archives) = match wanted {
        Wanted::Release { version, against_installed, archives } => (version, against_installed, archives),
        Wanted::NoSuch { version, newest } => {
            return Err(Refusal::NoSuchRelease { version: version.clone(), newest: newest.clone() });
        }
        Wanted::WithoutAsset { version, asset } => {
            return Err(Refusal::WithoutAsset { version: version.clone(), asset: asset.clone() });
        }
        Wanted::WithoutHash { version, asset } => {
            return Err(Refusal::WithoutHash { version: version.clone(), asset: asset.clone() });
        }
        Wanted::Unreachable(why) => return Err(Refusal::Unreachable(why.clone())),
    };
    let installed = known("the installed version", &found.installed)?;
    if installed == version {
        return Err(Refusal::Same { version: version.clone() });
    }
    match known("which version is newer", against_installed)? {
        Ordering::Greater => {}
        Ordering::Equal => return Err(Refusal::Same { version: version.clone() }),
        Ordering::Less if ask.downgrade => {}
        Ordering::Less => return Err(Refusal::Older { installed: installed.clone(), wanted: version.clone() }),
    }
    match &found.pin {
        Some(pin) if pin != version => {
            return Err(Refusal::Pinned { pin: pin.clone(), wanted: version.clone() });
        }
        Some(_) | None => {}
    }
    let polkit = may_change(found, install)?;
    let work = found.folders.work.join(&ask.id);
    let fetched = matches!(install, Install::App { .. } | Install::Tarball { .. });
    if fetched && archives.is_empty() {
        return Err(Refusal::WithoutAsset { version: version.clone(), asset: "file for this computer".to_owned() });
    }
    let downloads: Vec<_> = archives
        .iter()
        .filter(|_| fetched)
        .map(|archive| Download {
            url: archive.url.clone(),
            file: work.join(file_name(&archive.name)),
            size_bytes: archive.size_bytes,
            sha256: archive.sha256.clone(),
            unpacked_limit_bytes: archive.size_bytes.saturating_mul(UNPACKED_PER_PACKED),
        })
        .collect();
    let archive_bytes = sum(downloads.iter().map(|download| download.size_bytes));
    let unpacked_bytes = sum(archives.iter().map(|archive| {
        let usual = archive.size_bytes.saturating_mul(UNPACKED_PER_PACKED_USUALLY);
        archive.unpacked_bytes.known().copied().unwrap_or(usual)
    }));
    let old_bytes = found.installed_bytes.known().copied().unwrap_or(0);
    check_space(found, &[archive_bytes, unpacked_bytes, old_bytes])?;
    let database = found.database.as_ref().map(|database| DatabaseCopy {
        at: database.at.clone(),
        copy: found.folders.kept.join(format!("{installed}-{}.sqlite", ask.id)),
        aside: found.folders.kept.join(format!("chats-of-{version}-{}.sqlite", ask.id)),
        instead: None,
    });
    let new = match install {
        Install::Tarball { .. } => kept::name(&found.folders.kept, version, &ask.id),
        Install::App { .. }
        | Install::Cask { .. }
        | Install::Formula { .. }
        | Install::Manual { .. }
        | Install::Container { .. } => work.join("new").join("Ollama.app"),
    };
    let parts = Parts { goal: Goal::Upgrade, from: installed, to: version, polkit, new: &new, downloads, database };
    let order = order(found, install, ask, parts, &[]);
    let adopts = matches!(install, Install::Tarball { linked: None, .. });
    let mut deeds = vec![];
    match &order.switch {
        Switch::Renames => deeds.extend([
            Deed::Download,
            Deed::CheckHash,
            Deed::Unpack,
            Deed::CheckSignature,
            Deed::CheckVersion,
            Deed::ClearQuarantine,
        ]),
        Switch::Link => deeds.extend([Deed::Download, Deed::CheckHash, Deed::Unpack, Deed::CheckVersion]),
        Switch::Cask { .. } => deeds.extend([Deed::BrewFetch, Deed::KeepCopy]),
        Switch::Formula => deeds.push(Deed::BrewFetch),
    }
    deeds.extend(adopts.then_some(Deed::KeepCopy));
    Ok(finish(order, deeds))
}

/// Plans a rollback to a version that was kept: the one named, or the one that was in use last.
///
/// # Errors
/// A [`Refusal`] with its words; nothing has been changed then.
pub fn plan_rollback(found: &Found, asked: Option<&str>, ask: &Ask) -> Result<Plan, Refusal> {
    let install = install_of(found, asked.map(str::to_owned))?;
    if matches!(install, Install::Formula { .. }) {
        return Err(Refusal::BrewGoesForward);
    }
    let installed = known("the installed version", &found.installed)?;
    if asked == Some(installed.as_str()) {
        return Err(Refusal::Same { version: installed.clone() });
    }
    let Some(target) = to_roll_back_to(&found.kept, installed, asked) else {
        return Err(Refusal::NothingKept {
            asked: asked.map(str::to_owned),
            installed: installed.clone(),
            kept: found.kept.iter().map(|kept| kept.version.clone()).collect(),
        });
    };
    let polkit = may_change(found, install)?;
    let adopts = matches!(install, Install::Tarball { linked: None, .. });
    // A rename needs no room, and a full volume is no reason to stay on a bad version.
    let copied_bytes = found.installed_bytes.known().copied().filter(|_| adopts).unwrap_or(0);
    check_space(found, &[copied_bytes])?;
    let database = match &found.database {
        Some(database) => Some(database_of_rollback(found, database, target, installed, ask)?),
        None => None,
    };
    let parts = Parts {
        goal: Goal::Rollback,
        from: installed,
        to: &target.version,
        polkit,
        new: &target.at,
        downloads: vec![],
        database,
    };
    let mut order = order(found, install, ask, parts, std::slice::from_ref(&target.at));
    // Its copy of then goes with it: the database in use holds all that it holds, or is that copy.
    order.remove.extend(target.database.clone());
    let mut deeds = match &order.switch {
        // A bundle that has lain in a folder of ours is checked as one that was downloaded.
        Switch::Renames | Switch::Cask { .. } | Switch::Formula => {
            vec![Deed::CheckSignature, Deed::CheckVersion, Deed::ClearQuarantine]
        }
        Switch::Link => vec![Deed::CheckVersion],
    };
    deeds.extend(adopts.then_some(Deed::KeepCopy));
    Ok(finish(order, deeds))
}

fn database_of_rollback(
    found: &Found,
    database: &super::found::Database,
    target: &Kept,
    installed: &str,
    ask: &Ask,
) -> Result<DatabaseCopy, Refusal> {
    let lasting = found.folders.kept.join(format!("chats-of-{installed}-{}.sqlite", ask.id));
    let (copy, instead) = match at_rollback(&database.schema, &target.schema) {
        AtRollback::Keep => (found.folders.kept.join(format!("{installed}-{}.sqlite", ask.id)), None),
        AtRollback::Ask(why) if !ask.set_database_aside => {
            return Err(Refusal::DatabaseNewer {
                to: target.version.clone(),
                why,
                aside: lasting,
                kept: target.database.is_some(),
            });
        }
        AtRollback::Ask(_) => (lasting, Some(target.database.clone().map_or(Instead::None, Instead::Kept))),
    };
    let aside = found.folders.kept.join(format!("chats-of-{}-{}.sqlite", target.version, ask.id));
    Ok(DatabaseCopy { at: database.at.clone(), copy, aside, instead })
}

struct Parts<'a> {
    goal: Goal,
    from: &'a str,
    to: &'a str,
    polkit: bool,
    new: &'a Path,
    downloads: Vec<Download>,
    database: Option<DatabaseCopy>,
}

/// Names every path. `leaving` are kept versions that are kept no longer because they are put in place.
fn order(found: &Found, install: &Install, ask: &Ask, parts: Parts<'_>, leaving: &[std::path::PathBuf]) -> Order {
    let work = found.folders.work.join(&ask.id);
    let beside = kept::name(&found.folders.kept, parts.from, &ask.id);
    let (switch, old, replaced) = match install {
        Install::App { .. } => (Switch::Renames, beside, vec![]),
        Install::Cask { token, .. } => match parts.goal {
            Goal::Upgrade => (Switch::Cask { token: token.clone() }, beside, vec![]),
            // Homebrew has no older one; what was kept beside it goes in as an app does.
            Goal::Rollback => (Switch::Renames, beside, vec![]),
        },
        Install::Tarball { linked: Some(folder), .. } => (Switch::Link, folder.clone(), vec![]),
        Install::Tarball { linked: None, libraries, .. } => (Switch::Link, beside, vec![libraries.clone()]),
        Install::Formula { .. } | Install::Manual { .. } | Install::Container { .. } => {
            (Switch::Formula, beside, vec![])
        }
    };
    let mut versions: Vec<Kept> = found.kept.iter().filter(|kept| !leaving.contains(&kept.at)).cloned().collect();
    if switch != Switch::Formula {
        let copy = parts.database.as_ref().filter(|database| database.instead.is_none());
        versions.push(Kept {
            version: parts.from.to_owned(),
            at: old.clone(),
            since: Wall::from_unix_ms(i64::MAX),
            database: copy.map(|database| database.copy.clone()),
            schema: Known::unknown("it is not read here"),
        });
    }
    let staged = found.updater.staged.iter().chain(&found.updater.stale_backup).enumerate();
    Order {
        id: ask.id.clone(),
        goal: parts.goal,
        switch,
        from: parts.from.to_owned(),
        to: parts.to.to_owned(),
        owner: found.owner.clone(),
        port: found.port,
        polkit: parts.polkit,
        slots: Slots {
            place: install.place().map(Path::to_path_buf).unwrap_or_default(),
            old,
            new: parts.new.to_path_buf(),
            discard: work.join("discarded"),
        },
        downloads: parts.downloads,
        aside: staged
            .map(|(index, from)| Aside { from: from.clone(), to: work.join("aside").join(index.to_string()) })
            .collect(),
        database: parts.database,
        remove: retain(&versions, ask.keep, parts.to).removed(),
        replaced,
        pin: match parts.goal {
            Goal::Upgrade => None,
            Goal::Rollback => Some(parts.to.to_owned()),
        },
        work,
    }
}

/// Appends what is the same for everybody: from the stop to the commit.
fn finish(order: Order, mut deeds: Vec<Deed>) -> Plan {
    deeds.push(Deed::Stop);
    deeds.extend((!order.aside.is_empty()).then_some(Deed::SetUpdaterAside));
    if let Some(database) = &order.database {
        deeds.push(Deed::CopyDatabase);
        deeds.extend(database.instead.is_some().then_some(Deed::UseOldDatabase));
    }
    match &order.switch {
        Switch::Renames => deeds.extend([Deed::MoveOut, Deed::MoveIn]),
        Switch::Link => deeds.push(Deed::SwitchLink),
        Switch::Cask { .. } => deeds.extend([Deed::Brew, Deed::CheckInPlace, Deed::ClearInPlace]),
        Switch::Formula => deeds.push(Deed::Brew),
    }
    deeds.extend([Deed::Start, Deed::Prove]);
    deeds.push(Deed::Commit);
    Plan { order, deeds }
}

fn install_of(found: &Found, wanted: Option<String>) -> Result<&Install, Refusal> {
    let Some(install) = known("how Ollama is installed", &found.install)? else { return Err(Refusal::Absent) };
    Refusal::of_install(install, wanted).map_or(Ok(install), Err)
}

/// Whether what is installed may be changed now; the answer says whether through polkit.
fn may_change(found: &Found, install: &Install) -> Result<bool, Refusal> {
    if let Some(busy) = found.busy {
        return Err(Refusal::Busy(busy));
    }
    let place = install.place().unwrap_or(Path::new("/"));
    let running = found.running_from.as_deref();
    for path in std::iter::once(place).chain(running) {
        match odd_place(path) {
            Some(OddPlace::Translocated) => return Err(Refusal::Translocated(path.to_path_buf())),
            Some(OddPlace::UpdatersBackup) => return Err(Refusal::UpdatersBackup(path.to_path_buf())),
            None => {}
        }
    }
    if let Err(refusal) = &found.restart {
        return Err(Refusal::Restart(refusal.clone()));
    }
    match known("whether it may be changed", &found.rights)? {
        Rights::Ours => Ok(false),
        Rights::Polkit => Ok(true),
        Rights::FolderDenied { folder } => Err(Refusal::FolderDenied(folder.clone())),
        Rights::ForeignOwner { owner } => {
            Err(Refusal::ForeignOwner { place: place.to_path_buf(), owner: owner.clone() })
        }
        Rights::ReadOnly { volume } => Err(Refusal::ReadOnly(volume.clone())),
        Rights::AppManagement => Err(Refusal::AppManagement(place.to_path_buf())),
    }
}

/// Room for these parts, a copy of the database, and a reserve. An upgrade counts the old version among them: where a
/// rename is enough its copy is not made, but a volume that could not hold it is too full for a new version to work on.
fn check_space(found: &Found, parts_bytes: &[u64]) -> Result<(), Refusal> {
    let database_bytes = found.database.as_ref().map_or(0, |database| database.size_bytes);
    let needed_bytes = sum(parts_bytes.iter().copied().chain([database_bytes, RESERVE_BYTES]));
    match &found.free_bytes {
        Known::Is(free_bytes) if *free_bytes < needed_bytes => {
            Err(Refusal::NoSpace { needed_bytes, free_bytes: *free_bytes, at: found.folders.work.clone() })
        }
        // All that takes room is written before the stop; a volume that tells nothing about itself may refuse it then.
        Known::Is(_) | Known::Unknown(_) => Ok(()),
    }
}

fn known<'a, T>(what: &'static str, fact: &'a Known<T>) -> Result<&'a T, Refusal> {
    match fact {
        Known::Is(value) => Ok(value),
        Known::Unknown(reason) => Err(Refusal::Unknown { what, reason: reason.clone() }),
    }
}

fn sum(bytes: impl Iterator<Item = u64>) -> u64 {
    bytes.fold(0, u64::saturating_add)
}

/// The last part of a name that came from outside, so that it leads nowhere else.
fn file_name(name: &str) -> &str {
    let last = name.rsplit(['/', '\\']).next().unwrap_or_default();
    if last.is_empty() || last == "." || last == ".." { "archive" } else { last }
}
