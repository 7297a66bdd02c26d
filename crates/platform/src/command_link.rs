//! `stablehand` in a terminal: where it is not found, a link to our own program in a folder of the person's PATH.
//!
//! The link is written down beside the daemon's other knowledge, because it alone does not tell who made it: a package
//! manager's link to the same program looks the same. Only what stands in the record is changed or taken away.

use crate::change::Change;
use crate::files;
use crate::machine::{Machine, Os};
use crate::paths::stablehand_files;
use serde::{Deserialize, Serialize};
use stablehand_engine::plan::StepFailure;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

const NAME: &str = "stablehand";

/// In every PATH of macOS: `/etc/paths` names it, and each login shell reads that (`path_helper(8)`).
const MACOS_LOCAL: &str = "/usr/local/bin";
/// Homebrew's on Apple silicon, which belongs to the person.
const HOMEBREW: &str = "/opt/homebrew/bin";
/// The person's own (`file-hierarchy(7)`); most shells' profiles have it on the PATH when it is there.
const PERSONAL: &str = ".local/bin";

/// The layout of the record.
const FORMAT: u32 = 1;

/// A plan, and what a person should know about it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CommandLink {
    /// What makes the link; nothing when the command is found already, or something else stands in its place.
    pub changes: Vec<Change>,
    /// Why `stablehand` in this terminal is not this program, where it is not.
    pub notes: Vec<String>,
}

/// The link that we made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Record {
    format: u32,
    link: PathBuf,
    leads_to: PathBuf,
}

/// What lets a terminal find `program` as `stablehand`.
///
/// # Errors
/// A [`StepFailure`] when the record of an earlier link cannot be read.
pub fn install(machine: &Machine, program: &Path) -> Result<CommandLink, StepFailure> {
    plan(machine, program, &search_path(machine))
}

/// What takes the link away again: ours alone, and only as long as it is as we made it.
pub fn uninstall(machine: &Machine) -> Vec<Change> {
    let path = record_path(machine);
    let link = standing(machine).map(|own| Change::Unlink { path: own.link, leads_to: own.leads_to });
    let record = path.exists().then_some(Change::Remove { path });
    link.into_iter().chain(record).collect()
}

/// The program behind our own link, for a program that was started through it: a service must not hang on a link that
/// a person may take away.
pub fn behind(machine: &Machine, program: PathBuf) -> PathBuf {
    match standing(machine) {
        Some(own) if own.link == program => own.leads_to,
        Some(_) | None => program,
    }
}

fn plan(machine: &Machine, program: &Path, search_path: &[PathBuf]) -> Result<CommandLink, StepFailure> {
    let own = standing(machine);
    let places = places(machine, search_path);
    // A program that was started by a desktop knows a shorter PATH than a terminal does.
    let looked_at = search_path.iter().chain(&places).map(|folder| folder.join(NAME));
    let found = looked_at.into_iter().find(|path| is_program(path));
    let is_own = |path: &Path| own.as_ref().is_some_and(|own| own.link == path);
    match (found, &own) {
        (Some(found), _) if leads_to(&found, program) => {
            Ok(CommandLink { changes: Vec::new(), notes: note_of_path(machine, &found, search_path) })
        }
        (Some(found), _) if !is_own(&found) => {
            let note = format!(
                "`{NAME}` in a terminal is {}, which is not this program ({}); it was left as it is",
                found.display(),
                program.display()
            );
            Ok(CommandLink { changes: Vec::new(), notes: vec![note] })
        }
        (Some(_) | None, Some(own)) => link(machine, program, &own.link, Some(own.leads_to.clone()), search_path),
        (Some(_) | None, None) => new_link(machine, program, &places, search_path),
    }
}

fn new_link(
    machine: &Machine,
    program: &Path,
    places: &[PathBuf],
    search_path: &[PathBuf],
) -> Result<CommandLink, StepFailure> {
    let free = places.iter().map(|folder| folder.join(NAME)).find(|path| files::could_write(machine, path).is_ok());
    let Some(path) = free else {
        let folders: Vec<_> = places.iter().map(|folder| folder.display().to_string()).collect();
        let note = format!(
            "`{NAME}` is not found in a terminal, and no link to it can be made in {}; it is {}",
            folders.join(" or "),
            program.display()
        );
        return Ok(CommandLink { changes: Vec::new(), notes: vec![note] });
    };
    if path.symlink_metadata().is_ok() {
        let note = format!("{} is there, is no program and not ours; it was left as it is", path.display());
        return Ok(CommandLink { changes: Vec::new(), notes: vec![note] });
    }
    link(machine, program, &path, None, search_path)
}

fn link(
    machine: &Machine,
    program: &Path,
    path: &Path,
    before: Option<PathBuf>,
    search_path: &[PathBuf],
) -> Result<CommandLink, StepFailure> {
    let record = Record { format: FORMAT, link: path.to_path_buf(), leads_to: program.to_path_buf() };
    let record_path = record_path(machine);
    let recorded_before = files::read(&record_path)?;
    // Paths that are no text cannot be written down, and are linked by hand.
    let Ok(contents) = serde_json::to_vec(&record) else {
        let note = format!("{} is no UTF-8, so that no link to it was made", program.display());
        return Ok(CommandLink { changes: Vec::new(), notes: vec![note] });
    };
    let folder_unless_there =
        |path: &Path, mode| (!path.is_dir()).then(|| Change::Folder { path: path.to_path_buf(), mode });
    let mut changes = Vec::new();
    changes.extend(folder_unless_there(&stablehand_files(machine).data_dir, 0o700));
    // Before the link: a record without one is harmless, one without a record would stay for ever.
    changes.push(Change::Write { path: record_path, mode: 0o600, contents, before: recorded_before });
    changes.extend(path.parent().and_then(|folder| folder_unless_there(folder, 0o755)));
    changes.push(Change::Link { path: path.to_path_buf(), leads_to: program.to_path_buf(), before });
    Ok(CommandLink { changes, notes: note_of_path(machine, path, search_path) })
}

fn note_of_path(machine: &Machine, path: &Path, search_path: &[PathBuf]) -> Vec<String> {
    let folder = path.parent().unwrap_or(path);
    let always = machine.os() == Os::MacOs && folder == machine.at(MACOS_LOCAL);
    if always || search_path.iter().any(|known| known == folder) {
        return Vec::new();
    }
    vec![format!(
        "{} is not on the PATH here: log in again if your profile adds it, or add it there: export PATH=\"{}:$PATH\"",
        folder.display(),
        folder.display()
    )]
}

/// Where the link may lie, the best place first.
fn places(machine: &Machine, search_path: &[PathBuf]) -> Vec<PathBuf> {
    let personal = machine.home().join(PERSONAL);
    match machine.os() {
        Os::MacOs => {
            let homebrew = Some(machine.at(HOMEBREW)).filter(|folder| search_path.contains(folder));
            let shared = Some(machine.at(MACOS_LOCAL)).into_iter().chain(homebrew).filter(|folder| folder.is_dir());
            shared.chain([personal]).collect()
        }
        Os::Linux => vec![personal],
    }
}

/// The folders where a terminal looks for commands. A simulated machine has the usual ones, below its folder.
fn search_path(machine: &Machine) -> Vec<PathBuf> {
    if machine.simulated().is_some() {
        let shared = [MACOS_LOCAL, "/usr/bin", "/bin"].map(|folder| machine.at(folder));
        return [machine.home().join(PERSONAL)].into_iter().chain(shared).collect();
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).filter(|folder| folder.is_absolute()).collect()
}

fn is_program(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|about| about.is_file() && about.permissions().mode() & 0o111 != 0)
}

fn leads_to(path: &Path, program: &Path) -> bool {
    match (path.canonicalize(), program.canonicalize()) {
        (Ok(found), Ok(program)) => found == program,
        (Ok(_) | Err(_), Ok(_) | Err(_)) => false,
    }
}

/// The link that we wrote down, if it is still as we made it.
fn standing(machine: &Machine) -> Option<Record> {
    let bytes = fs::read(record_path(machine)).ok()?;
    let record: Record = serde_json::from_slice(&bytes).ok()?;
    let stands = record.format == FORMAT && fs::read_link(&record.link).is_ok_and(|target| target == record.leads_to);
    stands.then_some(record)
}

fn record_path(machine: &Machine) -> PathBuf {
    stablehand_files(machine).data_dir.join("command-link.json")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::change::carry_out;
    use crate::testing::{fake_command, world_folder};
    use std::os::unix::fs::symlink;

    /// A machine with our program in it, and the folders of its PATH.
    fn machine_with_program(os: &str) -> (tempfile::TempDir, Machine, PathBuf) {
        let (dir, machine) = world_folder(os);
        fake_command(&machine, "opt/stablehand/bin/stablehand", "true");
        let program = machine.at("/opt/stablehand/bin/stablehand");
        (dir, machine, program)
    }

    fn link_of(planned: &CommandLink) -> Option<(&Path, &Path, Option<&Path>)> {
        planned.changes.iter().find_map(|change| match change {
            Change::Link { path, leads_to, before } => Some((path.as_path(), leads_to.as_path(), before.as_deref())),
            Change::Folder { .. }
            | Change::Write { .. }
            | Change::Remove { .. }
            | Change::Move { .. }
            | Change::Unlink { .. }
            | Change::Run(_)
            | Change::Load { .. }
            | Change::Unload { .. } => None,
        })
    }

    #[tokio::test]
    async fn on_linux_the_link_lies_in_the_persons_own_folder_and_goes_with_the_rest() {
        let (_dir, machine, program) = machine_with_program("linux");
        let place = machine.home().join(".local/bin/stablehand");
        let planned = install(&machine, &program).unwrap();
        assert_eq!(link_of(&planned), Some((place.as_path(), program.as_path(), None)));
        assert_eq!(planned.notes, [""; 0]);
        carry_out(&machine, &planned.changes).await.unwrap();
        assert_eq!(fs::read_link(&place).unwrap(), program);

        assert_eq!(install(&machine, &program).unwrap(), CommandLink::default(), "it is found now");
        assert_eq!(behind(&machine, place.clone()), program);
        carry_out(&machine, &uninstall(&machine)).await.unwrap();
        assert!(place.symlink_metadata().is_err() && program.exists());
        assert_eq!(uninstall(&machine), []);
    }

    #[tokio::test]
    async fn a_folder_that_is_not_on_the_path_is_named() {
        let (_dir, machine, program) = machine_with_program("linux");
        let path = [machine.at("/usr/bin")];
        let planned = plan(&machine, &program, &path).unwrap();
        assert!(link_of(&planned).is_some());
        let [note] = &planned.notes[..] else { panic!("{:?}", planned.notes) };
        assert!(note.contains("/.local/bin is not on the PATH here") && note.contains("export PATH="), "{note}");
        carry_out(&machine, &planned.changes).await.unwrap();
        let again = plan(&machine, &program, &path).unwrap();
        assert_eq!((again.changes.len(), again.notes), (0, planned.notes));
    }

    #[test]
    fn on_macos_the_shared_folder_comes_first_then_homebrews_then_the_persons_own() {
        let (_dir, machine, program) = machine_with_program("macos");
        let (shared, homebrew) = (machine.at(MACOS_LOCAL), machine.at(HOMEBREW));
        let place = |path: &[PathBuf]| {
            let planned = plan(&machine, &program, path).unwrap();
            let place = link_of(&planned).unwrap().0.parent().unwrap().to_path_buf();
            (place, planned.notes.len())
        };
        assert_eq!(
            place(std::slice::from_ref(&homebrew)),
            (machine.home().join(PERSONAL), 1),
            "no other folder exists"
        );
        fs::create_dir_all(&homebrew).unwrap();
        assert_eq!(place(&[]), (machine.home().join(PERSONAL), 1), "Homebrew's is not on the PATH");
        assert_eq!(place(std::slice::from_ref(&homebrew)), (homebrew.clone(), 0));
        fs::create_dir_all(&shared).unwrap();
        assert_eq!(place(&[]), (shared, 0), "every login shell has it");
    }

    #[test]
    fn another_program_of_that_name_is_left_and_told() {
        let (_dir, machine, program) = machine_with_program("linux");
        fake_command(&machine, "usr/bin/stablehand", "echo another");
        let planned = install(&machine, &program).unwrap();
        assert_eq!(planned.changes, []);
        assert!(planned.notes[0].contains("usr/bin/stablehand, which is not this program"), "{:?}", planned.notes);
    }

    #[test]
    fn what_stands_in_the_place_and_is_no_program_is_left_and_told() {
        let (_dir, machine, program) = machine_with_program("linux");
        let place = machine.home().join(".local/bin/stablehand");
        fs::create_dir_all(place.parent().unwrap()).unwrap();
        fs::write(&place, "notes").unwrap();
        let planned = install(&machine, &program).unwrap();
        assert!(planned.changes.is_empty() && planned.notes[0].contains("not ours"), "{planned:?}");
        fs::remove_file(&place).unwrap();
        symlink("/nowhere/stablehand", &place).unwrap();
        let planned = install(&machine, &program).unwrap();
        assert!(planned.changes.is_empty() && planned.notes.len() == 1, "{planned:?}");
    }

    #[test]
    fn a_package_managers_link_to_the_same_program_is_enough_and_is_never_taken_away() {
        let (_dir, machine, program) = machine_with_program("macos");
        fs::create_dir_all(machine.at(MACOS_LOCAL)).unwrap();
        symlink(&program, machine.at("/usr/local/bin/stablehand")).unwrap();
        assert_eq!(install(&machine, &program).unwrap(), CommandLink::default());
        assert_eq!(uninstall(&machine), []);
        assert_eq!(behind(&machine, machine.at("/usr/local/bin/stablehand")), machine.at("/usr/local/bin/stablehand"));
    }

    #[tokio::test]
    async fn our_own_link_follows_a_program_that_moved_and_stays_if_somebody_made_it_theirs() {
        let (_dir, machine, old) = machine_with_program("linux");
        carry_out(&machine, &install(&machine, &old).unwrap().changes).await.unwrap();
        fake_command(&machine, "opt/newer/stablehand", "true");
        let new = machine.at("/opt/newer/stablehand");
        for gone in [false, true] {
            if gone {
                fs::remove_file(&old).unwrap();
            }
            let planned = install(&machine, &new).unwrap();
            let place = machine.home().join(".local/bin/stablehand");
            assert_eq!(link_of(&planned), Some((place.as_path(), new.as_path(), Some(old.as_path()))), "{gone}");
        }
        carry_out(&machine, &install(&machine, &new).unwrap().changes).await.unwrap();
        let place = machine.home().join(".local/bin/stablehand");
        assert_eq!(fs::read_link(&place).unwrap(), new);

        let planned = uninstall(&machine);
        fs::remove_file(&place).unwrap();
        symlink("/somebody/elses", &place).unwrap();
        let failure = carry_out(&machine, &planned).await.unwrap_err();
        assert_eq!(failure.code, "file-changed");
        assert_eq!(uninstall(&machine).len(), 1, "the record alone");
        assert_eq!(fs::read_link(&place).unwrap(), Path::new("/somebody/elses"));
    }

    #[tokio::test]
    async fn a_link_never_leaves_a_simulated_machine_and_never_replaces() {
        let (_dir, machine, program) = machine_with_program("linux");
        let outside = tempfile::tempdir().unwrap();
        let out = Change::Link { path: outside.path().join("stablehand"), leads_to: program.clone(), before: None };
        assert_eq!(carry_out(&machine, &[out]).await.unwrap_err().code, "outside-world");
        assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 0);
        let taken = machine.home().join("taken");
        fs::write(&taken, "kept").unwrap();
        let over = Change::Link { path: taken.clone(), leads_to: program, before: None };
        assert_eq!(carry_out(&machine, &[over]).await.unwrap_err().code, "file-changed");
        assert_eq!(fs::read(&taken).unwrap(), b"kept");
    }
}
