//! The app's database of settings and chats (`ollama app/store/database.go`): copies that are whole, and what tells
//! whether somebody has used it since.

use rusqlite::{Connection, OpenFlags};
use stablehand_engine::Known;
use stablehand_engine::upgrade::database::{Schema, Use};
use stablehand_engine::upgrade::fault::Fault;
use stablehand_platform::disk::Disk;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long somebody else may hold a lock on it.
const BUSY: Duration = Duration::from_secs(5);

/// Copies the database with SQLite's backup, so that what is still in its log comes along. A copy that is there is
/// whole, and was made before. A database that is not there needs none.
pub(super) fn copy(disk: &Disk<'_>, from: &Path, to: &Path) -> Result<(), Fault> {
    if to.exists() || !from.exists() {
        return Ok(());
    }
    let folder = to.parent().unwrap_or(Path::new("/"));
    disk.create_folders(folder)?;
    let beside = with_ending(to, ".copying");
    remove_database(disk, &beside)?;
    let made = disk
        .change("write", &beside, || Ok(()))
        .and_then(|()| backup(from, &beside).map_err(|reason| Fault::File { path: from.to_path_buf(), reason }))
        .and_then(|()| disk.change("sync", &beside, || fs::File::open(&beside)?.sync_all()))
        .and_then(|()| disk.change("rename", to, || fs::rename(&beside, to)));
    if let Err(fault) = made {
        // The first error is the one to tell.
        let _in_vain = remove_database(disk, &beside);
        return Err(fault);
    }
    disk.sync_folder(folder)
}

fn backup(from: &Path, to: &Path) -> Result<(), String> {
    let copied = || -> rusqlite::Result<()> {
        let source = open(from)?;
        let mut target = Connection::open(to)?;
        rusqlite::backup::Backup::new(&source, &mut target)?.run_to_completion(1024, Duration::ZERO, None)?;
        // One file, nothing beside it.
        target.pragma_update(None, "journal_mode", "DELETE")?;
        Ok(())
    };
    copied().map_err(|error| error.to_string())
}

/// Puts a copy where the app looks for its database; the copy remains.
pub(super) fn put(disk: &Disk<'_>, copy: &Path, at: &Path) -> Result<(), Fault> {
    let folder = at.parent().unwrap_or(Path::new("/"));
    let beside = with_ending(at, ".putting-back");
    disk.create_folders(folder)?;
    disk.remove_tree(&beside)?;
    disk.change("write", &beside, || {
        fs::copy(copy, &beside)?;
        fs::File::open(&beside)?.sync_all()
    })?;
    // What was in the log of the one that goes must not be taken for the new one's.
    for ending in ["-wal", "-shm", "-journal"] {
        disk.remove_tree(&with_ending(at, ending))?;
    }
    disk.change("rename", at, || fs::rename(&beside, at))?;
    disk.sync_folder(folder)
}

/// Takes the database away, so that the app makes one of its own.
pub(super) fn remove_database(disk: &Disk<'_>, at: &Path) -> Result<(), Fault> {
    for ending in ["-wal", "-shm", "-journal", ""] {
        let path = with_ending(at, ending);
        if fs::symlink_metadata(&path).is_ok() {
            disk.remove_tree(&path)?;
        }
    }
    Ok(())
}

/// Sets the current database aside under a name of its own; what was set aside before stays. Returns the name.
pub(super) fn set_aside(disk: &Disk<'_>, at: &Path, wanted: &Path) -> Result<PathBuf, Fault> {
    let now = content(at);
    let mut name = wanted.to_path_buf();
    for number in 2.. {
        if !name.exists() || (now.known().is_some() && content(&name) == now) {
            break;
        }
        name = with_ending(wanted, &format!("-{number}"));
    }
    copy(disk, at, &name)?;
    Ok(name)
}

/// The form of its tables.
pub(super) fn schema(at: &Path) -> Known<Schema> {
    let read = || -> rusqlite::Result<i64> {
        open(at)?.query_row("SELECT schema_version FROM settings LIMIT 1", [], |row| row.get(0))
    };
    read().map_or_else(|error| Known::unknown(format!("{}: {error}", at.display())), |form| Known::Is(Schema(form)))
}

/// Whether somebody has used the database since the copy was made.
pub(super) fn used_since(copy: &Path, at: &Path) -> Use {
    if !copy.exists() {
        return Use::Unknown("there is no copy of before".to_owned());
    }
    if !at.exists() {
        return Use::Nobody;
    }
    match (content(copy), content(at)) {
        (Known::Is(before), Known::Is(now)) if before == now => Use::Nobody,
        (Known::Is(before), Known::Is(now)) => Use::Somebody(format!(
            "{} chats with {} messages became {} with {}",
            before.chats, before.messages, now.chats, now.messages
        )),
        (Known::Unknown(reason), _) | (_, Known::Unknown(reason)) => Use::Unknown(reason),
    }
}

/// What a person would miss.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Content {
    chats: i64,
    messages: i64,
    last: Option<String>,
}

fn content(at: &Path) -> Known<Content> {
    let read = || -> rusqlite::Result<Content> {
        let database = open(at)?;
        let chats = database.query_row("SELECT count(*) FROM chats", [], |row| row.get(0))?;
        let (messages, last) =
            database.query_row("SELECT count(*), CAST(max(updated_at) AS TEXT) FROM messages", [], |row| {
                Ok((row.get(0)?, row.get(1)?))
            })?;
        Ok(Content { chats, messages, last })
    };
    read().map_or_else(|error| Known::unknown(format!("{}: {error}", at.display())), Known::Is)
}

fn open(at: &Path) -> rusqlite::Result<Connection> {
    // Read and write, because a log beside it has to be read through; nothing is written.
    let database = Connection::open_with_flags(at, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    database.busy_timeout(BUSY)?;
    Ok(database)
}

fn with_ending(path: &Path, ending: &str) -> PathBuf {
    let mut name = OsString::from(path.as_os_str());
    name.push(ending);
    PathBuf::from(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use stablehand_platform::machine::Os;

    fn database(at: &Path, form: i64, chats: usize) {
        let database = Connection::open(at).unwrap();
        database.pragma_update(None, "journal_mode", "WAL").unwrap();
        database
            .execute_batch(
                "CREATE TABLE settings (schema_version INTEGER); CREATE TABLE chats (id TEXT);
                 CREATE TABLE messages (chat_id TEXT, updated_at TIMESTAMP);",
            )
            .unwrap();
        database.execute("INSERT INTO settings VALUES (?)", [form]).unwrap();
        for chat in 0..chats {
            add_chat(&database, chat);
        }
    }

    fn add_chat(database: &Connection, chat: usize) {
        database.execute("INSERT INTO chats VALUES (?)", [chat.to_string()]).unwrap();
        database.execute("INSERT INTO messages VALUES (?, '2026-11-30 10:00:00')", [chat.to_string()]).unwrap();
    }

    #[test]
    fn a_copy_holds_what_is_still_in_the_log_and_goes_back_whole() {
        let dir = tempfile::tempdir().unwrap();
        let (at, kept) = (dir.path().join("db.sqlite"), dir.path().join("kept/0.22.1.sqlite"));
        let disk = Disk::new(Os::MacOs, &|_, _| Ok(()));
        database(&at, 3, 2);
        let open_still = Connection::open(&at).unwrap();
        add_chat(&open_still, 9);
        copy(&disk, &at, &kept).unwrap();
        assert_eq!(content(&kept).known().map(|content| content.chats), Some(3));
        assert_eq!(fs::read_dir(kept.parent().unwrap()).unwrap().count(), 1, "nothing lies beside the copy");
        assert_eq!(used_since(&kept, &at), Use::Nobody);
        open_still.execute("UPDATE settings SET schema_version = 4", []).unwrap();
        assert_eq!(used_since(&kept, &at), Use::Nobody, "a form is nobody's chat");
        add_chat(&open_still, 10);
        assert!(matches!(used_since(&kept, &at), Use::Somebody(_)));
        drop(open_still);
        put(&disk, &kept, &at).unwrap();
        assert_eq!(schema(&at), Known::Is(Schema(3)));
        assert_eq!(used_since(&kept, &at), Use::Nobody);
    }

    #[test]
    fn what_is_set_aside_never_takes_the_place_of_another() {
        let dir = tempfile::tempdir().unwrap();
        let (at, wanted) = (dir.path().join("db.sqlite"), dir.path().join("chats-of-0.24.0.sqlite"));
        let disk = Disk::new(Os::MacOs, &|_, _| Ok(()));
        database(&at, 4, 1);
        assert_eq!(set_aside(&disk, &at, &wanted).unwrap(), wanted);
        assert_eq!(set_aside(&disk, &at, &wanted).unwrap(), wanted, "the same one is there already");
        add_chat(&Connection::open(&at).unwrap(), 7);
        let second = set_aside(&disk, &at, &wanted).unwrap();
        assert_ne!(second, wanted);
        assert_eq!(content(&wanted).known().map(|content| content.chats), Some(1));
        assert_eq!(content(&second).known().map(|content| content.chats), Some(2));
    }

    #[test]
    fn what_can_not_be_read_counts_as_used() {
        let dir = tempfile::tempdir().unwrap();
        let (at, kept) = (dir.path().join("db.sqlite"), dir.path().join("kept.sqlite"));
        fs::write(&at, "no database").unwrap();
        database(&kept, 3, 1);
        assert!(matches!(used_since(&kept, &at), Use::Unknown(_)));
        assert!(schema(&at).known().is_none());
        assert_eq!(used_since(&kept, &dir.path().join("gone")), Use::Nobody);
    }
}
