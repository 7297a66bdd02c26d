//! What an upgrade is planned from, gathered in one look.

use super::brew;
use super::database;
use super::life::named_by;
use super::presence::{client_version, program_in};
use crate::configuration::Upgrades;
use rustix::fs::{Access, StatVfsMountFlags, access, statvfs};
use stablehand_engine::Known;
use stablehand_engine::owner::{Owner, Ownership, Scope, Survey, ownership};
use stablehand_engine::plan::{self, Goal, Seat};
use stablehand_engine::process::Role;
use stablehand_engine::setting::Values;
use stablehand_engine::time::Wall;
use stablehand_engine::upgrade::found::{BuiltInUpdater, Busy, Database, Folders, Found, Install, Rights};
use stablehand_engine::upgrade::kept::{Kept, retain};
use stablehand_platform::machine::{Machine, Os};
use stablehand_platform::paths::{stablehand_files, versions_folders, versions_of_the_system, versions_of_the_user};
use stablehand_platform::survey::Surveyor;
use stablehand_platform::{applications, exchange, staging};
use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex as StdMutex, PoisonError};
use tokio::sync::Mutex;

/// What the daemon knows that no look shows.
#[derive(Clone, Debug)]
pub(super) struct Beside {
    /// Our configuration.
    pub(super) upgrades: Upgrades,
    /// What else is being done.
    pub(super) busy: Option<Busy>,
    /// macOS refused this very process a change to the app.
    pub(super) app_management_refused: bool,
    /// Where the server listens after a start.
    pub(super) seat: Seat,
    /// Where it listens now: beside its own port while the gateway is in its place.
    pub(super) port: u16,
}

/// The folder of everything about upgrades that needs no volume of its own.
pub(super) fn folder(machine: &Machine) -> PathBuf {
    stablehand_files(machine).data_dir.join("upgrades")
}

/// What is in place and what is kept: enough for a picture, and cheap enough for one every minute.
#[derive(Clone, Debug)]
pub(super) struct InPlace {
    /// How it came there; `None` when nothing is.
    pub(super) install: Known<Option<Install>>,
    /// Its version.
    pub(super) installed: Known<String>,
    /// Old versions; the forms of their databases are not read here.
    pub(super) kept: Vec<Kept>,
    /// The folders that an upgrade would use.
    pub(super) folders: Folders,
}

impl InPlace {
    /// How it came there, where that is known and something is.
    pub(super) fn known_install(&self) -> Option<&Install> {
        self.install.known().and_then(Option::as_ref)
    }
}

/// Versions of programs by the state of their files: a program has to be started to tell.
#[derive(Debug, Default)]
pub(super) struct ProgramVersions(StdMutex<HashMap<PathBuf, (Mark, String)>>);

/// The file itself, wherever links lead, and its state.
type Mark = (PathBuf, [u64; 3], [i64; 2]);

impl ProgramVersions {
    async fn of(&self, machine: &Machine, program: &Path) -> Known<String> {
        let mark: Mark = match program.canonicalize().and_then(|file| Ok((fs::metadata(&file)?, file))) {
            Ok((about, file)) => (file, [about.dev(), about.ino(), about.size()], [about.mtime(), about.mtime_nsec()]),
            Err(error) => return Known::unknown(format!("{}: {error}", program.display())),
        };
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner).get(program).cloned();
        if let Some((of, version)) = known
            && of == mark
        {
            return Known::Is(version);
        }
        match client_version(machine, program).await {
            Ok(version) => {
                let mut versions = self.0.lock().unwrap_or_else(PoisonError::into_inner);
                versions.insert(program.to_path_buf(), (mark, version.clone()));
                Known::Is(version)
            }
            Err(reason) => Known::Unknown(reason),
        }
    }
}

/// Looks at what is in place.
pub(super) async fn look(
    machine: &Machine,
    surveyor: &Mutex<Surveyor>,
    programs: &ProgramVersions,
    port: u16,
) -> InPlace {
    let survey = surveyor.lock().await.survey(port).await;
    in_place(machine, &survey, &ownership(&survey), programs).await
}

async fn in_place(machine: &Machine, survey: &Survey, ownership: &Ownership, programs: &ProgramVersions) -> InPlace {
    let owner = owner_of(ownership);
    let install = match ownership {
        Ownership::Unknown(reason) => Known::Unknown(reason.clone()),
        Ownership::One { .. } | Ownership::Contested { .. } | Ownership::Foreign(_) | Ownership::Absent => {
            Known::Is(owner.and_then(|owner| install(machine, owner, survey)))
        }
    };
    let known = install.known().and_then(Option::as_ref);
    let folders = folders(machine, known.and_then(Install::place), owner.is_some_and(is_of_the_system));
    let linked = match known {
        Some(Install::Tarball { linked, .. }) => linked.as_deref(),
        Some(
            Install::App { .. }
            | Install::Cask { .. }
            | Install::Formula { .. }
            | Install::Manual { .. }
            | Install::Container { .. },
        )
        | None => None,
    };
    InPlace {
        installed: installed(machine, known, programs).await,
        kept: kept(&folders.kept, linked).into_iter().filter(|kept| !runs_from(survey, &kept.at)).collect(),
        folders,
        install,
    }
}

fn owner_of(ownership: &Ownership) -> Option<&Owner> {
    match ownership {
        Ownership::One { owner, .. } | Ownership::Contested { holder: owner, .. } => Some(owner),
        Ownership::Foreign(_) | Ownership::Absent | Ownership::Unknown(_) => None,
    }
}

/// Looks at everything that a plan needs.
pub(super) async fn find(
    machine: &Machine,
    surveyor: &Mutex<Surveyor>,
    programs: &ProgramVersions,
    beside: Beside,
) -> Found {
    let survey = surveyor.lock().await.survey(beside.port).await;
    let ownership = ownership(&survey);
    let owner = owner_of(&ownership);
    let there = in_place(machine, &survey, &ownership, programs).await;
    let install = there.known_install();
    let restart = plan::plan(Goal::Restart { desired: Values::new() }, &ownership, beside.seat, false);
    Found {
        running_from: survey.sightings.iter().find_map(|sighting| match &sighting.role {
            Role::Gui { bundle } if sighting.process.uid.known() == Some(&survey.uid) => Some(bundle.clone()),
            Role::Gui { .. } | Role::Shim { .. } | Role::Serve | Role::Runner(_) => None,
        }),
        owner: owner.map_or("nobody", Owner::word).to_owned(),
        restart: restart.map(|_thrown_away| ()),
        rights: match install.and_then(Install::place) {
            _ if beside.app_management_refused => Known::Is(Rights::AppManagement),
            Some(place) => rights(machine, place),
            None => Known::Is(Rights::Ours),
        },
        busy: beside.busy,
        free_bytes: staging::free_on(machine, &there.folders.work),
        installed_bytes: match install {
            Some(Install::Tarball { program, linked: None, libraries }) => {
                sum(&exchange::size_bytes(program), &exchange::size_bytes(libraries))
            }
            Some(Install::Tarball { linked: Some(folder), .. }) => exchange::size_bytes(folder),
            Some(install) => match install.place() {
                Some(place) => exchange::size_bytes(place),
                None => Known::unknown("it lies in a container"),
            },
            None => Known::unknown("nothing is installed"),
        },
        updater: updater(machine),
        pin: beside.upgrades.pin,
        database: database_of(machine, install),
        // The supervision holds requests by itself while no server is ready.
        port: owner.map_or(beside.seat.home, |owner| beside.seat.port(owner)),
        kept: there.kept.into_iter().map(with_schema).collect(),
        installed: there.installed,
        folders: there.folders,
        install: there.install,
    }
}

/// With the form of its database.
pub(super) fn with_schema(kept: Kept) -> Kept {
    let schema = match &kept.database {
        Some(database) => database::schema(database),
        None => Known::unknown("no database was kept with it"),
    };
    Kept { schema, ..kept }
}

fn sum(one: &Known<u64>, other: &Known<u64>) -> Known<u64> {
    match (one, other) {
        (Known::Is(one), Known::Is(other)) => Known::Is(one.saturating_add(*other)),
        (Known::Unknown(reason), _) | (_, Known::Unknown(reason)) => Known::Unknown(reason.clone()),
    }
}

/// How what an owner starts came onto this machine.
fn install(machine: &Machine, owner: &Owner, survey: &Survey) -> Option<Install> {
    match owner {
        Owner::App { bundle } => Some(match cask(machine) {
            Some(token) => Install::Cask { bundle: bundle.clone(), token },
            None => Install::App { bundle: bundle.clone() },
        }),
        Owner::Container { name } => Some(Install::Container { name: name.clone() }),
        Owner::Brew { .. } => {
            let program =
                brew::PREFIXES.iter().map(|prefix| machine.at(prefix).join("bin/ollama")).find(|path| path.exists());
            program.map(|program| Install::Formula { program })
        }
        Owner::Systemd { .. } | Owner::Agent(_) | Owner::Manual { .. } => {
            let program = program(owner, survey)?;
            Some(of_program(program, &versions_folders(machine)))
        }
    }
}

/// The program that an owner starts: as it names it, or as the running server shows it, by the name that a person
/// knows.
fn program(owner: &Owner, survey: &Survey) -> Option<PathBuf> {
    let server = survey.sightings.iter().find(|sighting| sighting.role == Role::Serve);
    let running = server.and_then(|sighting| sighting.process.executable.known().cloned());
    let named = named_by(owner).or(running);
    let Some(named) = named else { return survey.programs.first().cloned() };
    let same = |path: &&PathBuf| **path == named || same_file(path, &named);
    Some(survey.programs.iter().find(same).cloned().unwrap_or(named))
}

fn same_file(one: &Path, other: &Path) -> bool {
    matches!((one.canonicalize(), other.canonicalize()), (Ok(one), Ok(other)) if one == other)
}

fn of_program(program: PathBuf, ours: &[PathBuf]) -> Install {
    // What is kept among our versions and has no link that leads to it is no install that could be moved away.
    if ours.iter().any(|folder| program.starts_with(folder)) {
        return Install::Manual { program };
    }
    if let Ok(leads_to) = fs::read_link(&program) {
        let folder = leads_to.parent().and_then(Path::parent).map(Path::to_path_buf);
        return match folder {
            Some(folder)
                if ours.iter().any(|ours| folder.parent() == Some(ours)) && program_in(&folder) == leads_to =>
            {
                let libraries = libraries(&program);
                Install::Tarball { program, linked: Some(folder), libraries }
            }
            Some(_) | None => Install::Manual { program },
        };
    }
    let libraries = libraries(&program);
    let by_the_script = program.parent().is_some_and(|folder| folder.ends_with("bin")) && libraries.is_dir();
    if by_the_script { Install::Tarball { program, linked: None, libraries } } else { Install::Manual { program } }
}

/// `PREFIX/lib/ollama` beside `PREFIX/bin/ollama` (`ollama scripts/install.sh`).
fn libraries(program: &Path) -> PathBuf {
    let prefix = program.parent().and_then(Path::parent).unwrap_or(Path::new("/"));
    prefix.join("lib/ollama")
}

/// Name of the cask that the app came from, when it did.
fn cask(machine: &Machine) -> Option<String> {
    let rooms = brew::PREFIXES.iter().map(|prefix| machine.at(prefix).join("Caskroom"));
    let tokens = ["ollama-app", "ollama"];
    rooms
        .into_iter()
        .find_map(|room| tokens.iter().find(|token| room.join(token).is_dir()).map(|token| (*token).to_owned()))
}

async fn installed(machine: &Machine, install: Option<&Install>, programs: &ProgramVersions) -> Known<String> {
    match install {
        Some(Install::App { bundle } | Install::Cask { bundle, .. }) => {
            applications::version(bundle).map_or_else(Known::Unknown, Known::Is)
        }
        Some(Install::Formula { program } | Install::Tarball { program, .. } | Install::Manual { program }) => {
            programs.of(machine, program).await
        }
        Some(Install::Container { .. }) => Known::unknown("it lies in a container"),
        None => Known::unknown("nothing is installed"),
    }
}

/// Folders on the volume of what is installed, so that a rename is enough.
fn folders(machine: &Machine, place: Option<&Path>, of_the_system: bool) -> Folders {
    let ours = folder(machine);
    let near = place.and_then(Path::parent);
    let base = match near {
        Some(near) if !exchange::on_one_volume(near, &ours) => near.join(".stablehand"),
        Some(_) | None => ours,
    };
    match machine.os() {
        Os::MacOs => Folders { work: base.join("work"), kept: base.join("kept") },
        Os::Linux if of_the_system => Folders { work: base.join("work"), kept: versions_of_the_system(machine) },
        Os::Linux => Folders { work: base.join("work"), kept: versions_of_the_user(machine) },
    }
}

fn is_of_the_system(owner: &Owner) -> bool {
    match owner {
        Owner::Systemd { scope: Scope::System, .. } => true,
        Owner::Systemd { scope: Scope::User, .. }
        | Owner::App { .. }
        | Owner::Brew { .. }
        | Owner::Agent(_)
        | Owner::Container { .. }
        | Owner::Manual { .. } => false,
    }
}

fn rights(machine: &Machine, place: &Path) -> Known<Rights> {
    let folder = place.parent().unwrap_or(Path::new("/"));
    match statvfs(folder) {
        Ok(volume) if volume.f_flag.contains(StatVfsMountFlags::RDONLY) => {
            return Known::Is(Rights::ReadOnly { volume: folder.to_path_buf() });
        }
        Ok(_) => {}
        Err(error) => return Known::unknown(format!("{}: {error}", folder.display())),
    }
    let writable = access(folder, Access::WRITE_OK).is_ok();
    match (machine.os(), writable) {
        (Os::Linux, false) => return Known::Is(Rights::Polkit),
        (Os::MacOs, false) => return Known::Is(Rights::FolderDenied { folder: folder.to_path_buf() }),
        (_, true) => {}
    }
    match fs::symlink_metadata(place) {
        // Root may do everything, and what is root's in a folder of ours is ours to replace on Linux.
        Ok(about) if about.uid() != machine.uid() && machine.uid() != 0 && machine.os() == Os::MacOs => {
            Known::Is(Rights::ForeignOwner { owner: about.uid().to_string() })
        }
        Ok(_) => Known::Is(Rights::Ours),
        Err(error) => Known::unknown(format!("{}: {error}", place.display())),
    }
}

/// `~/Library/Caches/ollama` (`ollama app/updater/updater_darwin.go`).
fn updater(machine: &Machine) -> BuiltInUpdater {
    if machine.os() != Os::MacOs {
        return BuiltInUpdater::default();
    }
    let caches = machine.home().join("Library/Caches/ollama");
    let backup = caches.join("backup/Ollama.app");
    BuiltInUpdater { staged: staged(machine), stale_backup: backup.exists().then_some(backup) }
}

/// What the built-in updater would put in place at the next hidden start.
pub(super) fn staged(machine: &Machine) -> Vec<PathBuf> {
    let updates = machine.home().join("Library/Caches/ollama/updates");
    let mut staged: Vec<_> = match fs::read_dir(updates) {
        Ok(entries) => entries.filter_map(|entry| Some(entry.ok()?.path())).collect(),
        Err(_) => vec![],
    };
    staged.sort();
    staged
}

/// Whether a server runs from a file in this folder; then it is no old version that may go.
fn runs_from(survey: &Survey, folder: &Path) -> bool {
    let folder = folder.canonicalize();
    survey.sightings.iter().filter(|sighting| sighting.role == Role::Serve).any(|sighting| {
        let program = sighting.process.executable.known().and_then(|program| program.canonicalize().ok());
        matches!((&program, &folder), (Some(program), Ok(folder)) if program.starts_with(folder))
    })
}

/// Old versions. Their names tell version and time (see [`stablehand_engine::upgrade::kept`]).
pub(super) fn kept(folder: &Path, in_place: Option<&Path>) -> Vec<Kept> {
    let Ok(entries) = fs::read_dir(folder) else { return vec![] };
    let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
    let mut kept: Vec<Kept> = paths.filter(|path| Some(path.as_path()) != in_place).filter_map(one_kept).collect();
    kept.sort_by(|one, other| other.since.cmp(&one.since).then_with(|| one.at.cmp(&other.at)));
    kept
}

fn one_kept(at: PathBuf) -> Option<Kept> {
    let name = at.file_name()?.to_str()?;
    if name.starts_with('.') || !at.is_dir() {
        return None;
    }
    let (version, id) = name.rsplit_once('-')?;
    let since = time_of(id)?;
    let database = at.with_file_name(format!("{name}.sqlite"));
    let database = database.is_file().then_some(database);
    Some(Kept {
        version: version.to_owned(),
        at: at.clone(),
        since,
        database,
        schema: Known::unknown("it was not read"),
    })
}

/// What is left of upgrades that have ended: everything in the folder of the work, what was cut off while it was
/// copied or removed, old versions beyond the kept ones, and copies of a database without their version.
pub(super) fn rubbish(there: &InPlace, keep: usize) -> Vec<PathBuf> {
    let within = |folder: &Path| -> Vec<PathBuf> {
        let entries = fs::read_dir(folder).ok().into_iter().flatten();
        entries.filter_map(|entry| Some(entry.ok()?.path())).collect()
    };
    let hidden = |path: &PathBuf| path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
    let kept = within(&there.folders.kept);
    let mut rubbish = within(&there.folders.work);
    rubbish.extend(kept.iter().filter(|path| hidden(path)).cloned());
    if let Known::Is(installed) = &there.installed {
        rubbish.extend(retain(&there.kept, keep, installed).removed());
    }
    let orphan = |path: &&PathBuf| {
        let of_a_version = path.extension().is_some_and(|ending| ending == "sqlite") && is_of_a_version(path);
        of_a_version && !path.with_extension("").is_dir()
    };
    rubbish.extend(kept.iter().filter(orphan).cloned());
    if let Some(place) = there.known_install().and_then(Install::place) {
        rubbish.extend(exchange::cut_off(place));
    }
    rubbish
}

/// Whether a version, or a copy of a database, bears the name of a version, and not one under which chats were set aside
/// for ever.
pub(super) fn is_of_a_version(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str());
    let stem = name.map(|name| name.strip_suffix(".sqlite").unwrap_or(name));
    let parts = stem.and_then(|stem| stem.rsplit_once('-'));
    parts.is_some_and(|(version, id)| !version.starts_with("chats-of-") && time_of(id).is_some())
}

/// A name for an upgrade: its time, to the millisecond, in UTC.
pub(super) fn id(now: Wall) -> String {
    match jiff::Timestamp::from_millisecond(now.unix_ms) {
        Ok(at) => at.strftime("%Y%m%dT%H%M%S%3f").to_string(),
        Err(_) => now.unix_ms.to_string(),
    }
}

/// When an upgrade of that name began.
pub(super) fn time_of(id: &str) -> Option<Wall> {
    let (seconds, millis) = id.split_at_checked(15)?;
    let at = jiff::civil::DateTime::strptime("%Y%m%dT%H%M%S", seconds).ok()?;
    let millis: i64 = millis.parse().ok()?;
    let at = at.to_zoned(jiff::tz::TimeZone::UTC).ok()?.timestamp().as_millisecond();
    Some(Wall::from_unix_ms(at + millis))
}

fn database_of(machine: &Machine, install: Option<&Install>) -> Option<Database> {
    match install? {
        Install::App { .. } | Install::Cask { .. } => {}
        Install::Formula { .. } | Install::Tarball { .. } | Install::Manual { .. } | Install::Container { .. } => {
            return None;
        }
    }
    let at = machine.home().join("Library/Application Support/Ollama/db.sqlite");
    let size_bytes = fs::metadata(&at).ok()?.len();
    Some(Database { schema: database::schema(&at), at, size_bytes })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_tells_when_the_upgrade_began() {
        let now = Wall::from_unix_ms(1_796_034_672_345);
        assert_eq!(time_of(&id(now)), Some(now));
        assert_eq!(time_of("a"), None);
        assert_eq!(time_of("20261130T101112x45"), None);
    }

    #[test]
    fn kept_versions_are_told_by_their_names_the_last_first() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["0.22.1-20261130T101112345", "0.33.0-rc2-20261201T101112345", ".0.1.0-20261201T101112345.going"] {
            fs::create_dir(dir.path().join(name)).unwrap();
        }
        fs::write(dir.path().join("chats-of-0.24.0-20261130T101112345.sqlite"), "").unwrap();
        let versions: Vec<_> = kept(dir.path(), None).into_iter().map(|kept| kept.version).collect();
        assert_eq!(versions, ["0.33.0-rc2", "0.22.1"]);
        let linked = dir.path().join("0.22.1-20261130T101112345");
        assert_eq!(kept(dir.path(), Some(&linked)).len(), 1, "what is in place is not kept");
    }

    #[test]
    fn chats_that_were_set_aside_are_never_rubbish() {
        let kept = |name: &str| is_of_a_version(Path::new(name));
        assert!(kept("/k/0.22.1-20261130T101112345.sqlite"));
        assert!(!kept("/k/chats-of-0.24.0-20261130T101112345.sqlite"));
        assert!(!kept("/k/chats-of-0.24.0-20261130T101112345.sqlite-2"));
        assert!(!kept("/k/mine.sqlite"));
    }

    #[test]
    fn a_program_is_replaced_only_where_the_script_put_it_or_where_we_did() {
        let dir = tempfile::tempdir().unwrap();
        let (program, ours) = (dir.path().join("bin/ollama"), dir.path().join("versions"));
        fs::create_dir_all(dir.path().join("bin")).unwrap();
        fs::write(&program, "x").unwrap();
        assert!(matches!(of_program(program.clone(), std::slice::from_ref(&ours)), Install::Manual { .. }));
        fs::create_dir_all(dir.path().join("lib/ollama")).unwrap();
        assert!(matches!(
            of_program(program.clone(), std::slice::from_ref(&ours)),
            Install::Tarball { linked: None, .. }
        ));
        fs::remove_file(&program).unwrap();
        let folder = ours.join("0.24.0-20261130T101112345");
        std::os::unix::fs::symlink(program_in(&folder), &program).unwrap();
        let linked = of_program(program.clone(), std::slice::from_ref(&ours));
        assert!(matches!(&linked, Install::Tarball { linked: Some(at), .. } if *at == folder), "{linked:?}");
        fs::remove_file(&program).unwrap();
        std::os::unix::fs::symlink("/nix/store/x/bin/ollama", &program).unwrap();
        assert!(matches!(of_program(program, &[ours]), Install::Manual { .. }));
    }
}
