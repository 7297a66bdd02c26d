//! A file that cannot be used is set aside: it may still tell a person something, and it must not stop the next one.

use jiff::Timestamp;
use jiff::tz::TimeZone;
use stablehand_engine::time::Wall;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// How many set-aside files are kept; a disk that breaks file after file shall not be filled with them.
const KEPT: usize = 2;

/// Moves the file away as `NAME.broken-TIME`, with the log that belongs to it, so that both can be opened together.
/// Older ones go beyond the second.
///
/// # Errors
/// When it cannot be moved; it is where it was then.
pub(super) fn set_aside(path: &Path, now: Wall) -> io::Result<PathBuf> {
    let aside = free_name(path, now);
    fs::rename(path, &aside)?;
    for ending in ["-wal", "-shm"] {
        // The log is missing after a clean end, and its index can be made anew.
        let _may_be_missing = fs::rename(beside(path, ending), beside(&aside, ending));
    }
    forget_older(path);
    Ok(aside)
}

/// The path with something after its name.
pub(super) fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(ending);
    PathBuf::from(name)
}

fn free_name(path: &Path, now: Wall) -> PathBuf {
    let time = Timestamp::from_millisecond(now.unix_ms)
        .map_or_else(|_| "unknown".to_owned(), |at| at.to_zoned(TimeZone::UTC).strftime("%Y%m%dT%H%M%SZ").to_string());
    let first = beside(path, &format!(".broken-{time}"));
    std::iter::once(first)
        .chain((2..100).map(|number| beside(path, &format!(".broken-{time}-{number}"))))
        .find(|name| !name.exists())
        .unwrap_or_else(|| beside(path, ".broken"))
}

fn forget_older(path: &Path) {
    let mut kept = set_aside_before(path);
    // By time, because the clock in the names may have been set back between two of them.
    kept.sort_by_key(|aside| fs::metadata(aside).and_then(|about| about.modified()).ok());
    kept.truncate(kept.len().saturating_sub(KEPT));
    for aside in kept {
        for ending in ["", "-wal", "-shm"] {
            let _may_be_missing = fs::remove_file(beside(&aside, ending));
        }
    }
}

fn set_aside_before(path: &Path) -> Vec<PathBuf> {
    let mut prefix = path.file_name().map_or_else(OsString::new, OsStr::to_owned);
    prefix.push(".broken");
    let prefix = prefix.to_string_lossy().into_owned();
    let Some(Ok(folder)) = path.parent().map(fs::read_dir) else { return vec![] };
    folder
        .filter_map(Result::ok)
        .filter(|file| {
            let name = file.file_name().to_string_lossy().into_owned();
            name.starts_with(&prefix) && !name.ends_with("-wal") && !name.ends_with("-shm")
        })
        .map(|file| file.path())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 2026-11-07T12:03:05Z.
    const NOW: Wall = Wall::from_unix_ms(1_794_052_985_000);

    #[test]
    fn a_file_goes_aside_with_its_log_and_only_two_are_kept() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("history.sqlite");
        let mut names = Vec::new();
        for number in 0..4 {
            fs::write(&path, format!("broken {number}")).unwrap();
            fs::write(beside(&path, "-wal"), "log").unwrap();
            names.push(set_aside(&path, NOW).unwrap());
            assert!(!path.exists() && !beside(&path, "-wal").exists());
            let newest = names.last().unwrap();
            assert!(newest.exists() && beside(newest, "-wal").exists());
        }
        assert_eq!(names[0].file_name().unwrap(), "history.sqlite.broken-20261107T120305Z");
        assert_eq!(names[1].file_name().unwrap(), "history.sqlite.broken-20261107T120305Z-2");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 4);
    }
}
