//! Files of ours are replaced whole or not at all.

use crate::machine::{Machine, MachineError};
use stablehand_engine::plan::{Again, StepFailure};
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// Tells one version of a file from the next without reading it: files are replaced by a rename, or written anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    inode: u64,
    modified_s: i64,
    modified_ns: i64,
    length_bytes: u64,
}

impl Stamp {
    /// Of the file as it lies there now; `None` when there is none, or it cannot be looked at.
    pub fn of(path: &Path) -> Option<Self> {
        let about = fs::metadata(path).ok()?;
        Some(Self {
            inode: about.ino(),
            modified_s: about.mtime(),
            modified_ns: about.mtime_nsec(),
            length_bytes: about.len(),
        })
    }
}

/// Why a file was not changed.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// A world may only change its own files.
    #[error(transparent)]
    Refused(#[from] MachineError),
    /// A link leads elsewhere; replacing it would cut the link, writing through it would change a foreign file.
    #[error("{0} is a symbolic link; it was left as it is")]
    Symlink(PathBuf),
    /// A folder or a device stands there.
    #[error("{0} is not a regular file; it was left as it is")]
    NotAFile(PathBuf),
    /// Somebody took the write permission away.
    #[error("{0} is read-only; it was left as it is")]
    ReadOnly(PathBuf),
    /// The system refused.
    #[error("{path} could not be {action}: {source}; it was left as it is")]
    Io {
        /// The file.
        path: PathBuf,
        /// What was tried, as a participle.
        action: &'static str,
        /// What the system said.
        source: io::Error,
    },
}

impl FileError {
    /// What a person can do about it.
    pub fn hint(&self) -> String {
        match self {
            Self::Refused(_) => "check the paths of the simulated world".to_owned(),
            Self::Symlink(path) => {
                format!("replace the link by a plain file, or remove it: {}", crate::command::quoted_path(path))
            }
            Self::NotAFile(path) => format!("move it away: {}", crate::command::quoted_path(path)),
            Self::ReadOnly(path) => format!("allow writing: chmod u+w {}", crate::command::quoted_path(path)),
            Self::Io { path, source, .. } => {
                let folder = path.parent().unwrap_or(path);
                let kind = source.kind();
                if matches!(kind, io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem) {
                    format!("make {} writable for you, then try again", folder.display())
                } else if kind == io::ErrorKind::StorageFull {
                    "free some disk space, then try again".to_owned()
                } else {
                    format!("look at {}, then try again", folder.display())
                }
            }
        }
    }
}

impl From<FileError> for StepFailure {
    fn from(error: FileError) -> Self {
        let code = match &error {
            FileError::Refused(_) => "outside-world",
            FileError::Symlink(_) => "file-is-a-link",
            FileError::NotAFile(_) => "not-a-file",
            FileError::ReadOnly(_) => "file-read-only",
            FileError::Io { .. } => "file-not-writable",
        };
        Self { code, message: error.to_string(), hint: error.hint(), again: Again::Never }
    }
}

/// Replaces a file, or makes it, together with missing folders above it: a temporary file beside it, flushed to the
/// disk, then a rename.
///
/// # Errors
/// A [`FileError`]; the file is unchanged then.
pub fn write_atomically(machine: &Machine, path: &Path, bytes: &[u8], mode: u32) -> Result<(), FileError> {
    machine.allow_write(path)?;
    check_target(path)?;
    let folder = parent_of(path)?;
    fs::create_dir_all(folder).map_err(failed(path, "created"))?;
    let temporary = temporary_beside(path);
    let outcome = fill(&temporary, bytes, mode).and_then(|()| fs::rename(&temporary, path));
    if let Err(source) = outcome {
        // Nothing may stay behind in a folder that launchd or systemd reads; the first error is the one to tell.
        let _may_be_missing = fs::remove_file(&temporary);
        return Err(FileError::Io { path: path.to_path_buf(), action: "written", source });
    }
    flush_folder(folder);
    Ok(())
}

/// Takes a file away. `Ok(false)` when there was none.
///
/// # Errors
/// A [`FileError`]; the file is unchanged then. Folders are refused; a link is removed, not what it leads to.
pub fn remove(machine: &Machine, path: &Path) -> Result<bool, FileError> {
    machine.allow_write(path)?;
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(source) => return Err(FileError::Io { path: path.to_path_buf(), action: "looked at", source }),
        Ok(about) if about.is_dir() => return Err(FileError::NotAFile(path.to_path_buf())),
        Ok(_) => {}
    }
    fs::remove_file(path).map_err(failed(path, "removed"))?;
    flush_folder(parent_of(path)?);
    Ok(true)
}

/// Makes a folder, with those above it, unless it is there.
///
/// # Errors
/// A [`FileError`] when it cannot be made.
pub fn make_folder(machine: &Machine, path: &Path, mode: u32) -> Result<(), FileError> {
    machine.allow_write(path)?;
    DirBuilder::new().recursive(true).mode(mode).create(path).map_err(failed(path, "created"))
}

/// Moves a file to a place where nothing is yet; across file systems by copy.
///
/// # Errors
/// A [`FileError`]; the file is where it was then.
pub fn move_file(machine: &Machine, from: &Path, to: &Path) -> Result<(), FileError> {
    machine.allow_write(from)?;
    machine.allow_write(to)?;
    if fs::symlink_metadata(to).is_ok() {
        return Err(FileError::NotAFile(to.to_path_buf()));
    }
    let folder = parent_of(to)?;
    fs::create_dir_all(folder).map_err(failed(to, "created"))?;
    match fs::rename(from, to) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::CrossesDevices => {
            let bytes = fs::read(from).map_err(failed(from, "read"))?;
            let about = fs::metadata(from).map_err(failed(from, "looked at"))?;
            write_atomically(machine, to, &bytes, about.mode() & 0o777)?;
            fs::remove_file(from).map_err(failed(from, "removed"))?;
        }
        Err(source) => return Err(FileError::Io { path: from.to_path_buf(), action: "moved", source }),
    }
    flush_folder(folder);
    Ok(())
}

/// What stands at a path where a link may stand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LinkTarget {
    /// Nothing.
    Nothing,
    /// A link to this.
    Link(PathBuf),
    /// A file, a folder, a device.
    NoLink,
}

impl LinkTarget {
    /// A link to this path.
    pub fn to(path: &Path) -> Self {
        Self::Link(path.to_path_buf())
    }
}

/// Reads where a link leads, without following it.
///
/// # Errors
/// [`FileError::Io`] when it cannot be looked at.
pub fn link_target(path: &Path) -> Result<LinkTarget, FileError> {
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(LinkTarget::Nothing),
        Err(source) => Err(FileError::Io { path: path.to_path_buf(), action: "looked at", source }),
        Ok(about) if about.is_symlink() => fs::read_link(path).map(LinkTarget::Link).map_err(failed(path, "read")),
        Ok(_) => Ok(LinkTarget::NoLink),
    }
}

/// Makes a symbolic link; with `replace`, in the place of another link.
///
/// # Errors
/// A [`FileError`]; what was there is there then.
pub fn link(machine: &Machine, path: &Path, leads_to: &Path, replace: bool) -> Result<(), FileError> {
    machine.allow_write(path)?;
    if !replace {
        // The system itself refuses when something is there.
        symlink(leads_to, path).map_err(failed(path, "made"))?;
    } else {
        let temporary = temporary_beside(path);
        let done = symlink(leads_to, &temporary).and_then(|()| fs::rename(&temporary, path));
        if let Err(source) = done {
            let _may_be_missing = fs::remove_file(&temporary);
            return Err(FileError::Io { path: path.to_path_buf(), action: "changed", source });
        }
    }
    flush_folder(parent_of(path)?);
    Ok(())
}

/// Reads a small file. `Ok(None)` when there is none.
///
/// # Errors
/// [`FileError::Io`] when it is there and cannot be read.
pub fn read(path: &Path) -> Result<Option<Vec<u8>>, FileError> {
    match fs::read(path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(FileError::Io { path: path.to_path_buf(), action: "read", source }),
    }
}

/// Whether a file could be written there, as far as it can be told without writing.
///
/// # Errors
/// The [`FileError`] that a write would end with.
pub fn could_write(machine: &Machine, path: &Path) -> Result<(), FileError> {
    machine.allow_write(path)?;
    check_target(path)?;
    let folder = path.ancestors().skip(1).find(|folder| folder.exists()).unwrap_or(Path::new("/"));
    rustix::fs::access(folder, rustix::fs::Access::WRITE_OK).map_err(|error| FileError::Io {
        path: path.to_path_buf(),
        action: "written",
        source: error.into(),
    })
}

fn check_target(path: &Path) -> Result<(), FileError> {
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(source) => Err(FileError::Io { path: path.to_path_buf(), action: "looked at", source }),
        Ok(about) if about.is_symlink() => Err(FileError::Symlink(path.to_path_buf())),
        Ok(about) if !about.is_file() => Err(FileError::NotAFile(path.to_path_buf())),
        // The rename would succeed: the folder decides. But whoever took the bit away meant it.
        Ok(about) if about.mode() & 0o200 == 0 => Err(FileError::ReadOnly(path.to_path_buf())),
        Ok(_) => Ok(()),
    }
}

fn fill(temporary: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(temporary)?;
    file.write_all(bytes)?;
    // The process's umask cut the mode at creation.
    file.set_permissions(fs::Permissions::from_mode(mode))?;
    file.sync_all()
}

fn temporary_beside(path: &Path) -> PathBuf {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    path.with_file_name(format!(".{name}.{}-{count}.tmp", std::process::id()))
}

fn parent_of(path: &Path) -> Result<&Path, FileError> {
    path.parent().ok_or_else(|| FileError::NotAFile(path.to_path_buf()))
}

/// Makes a rename survive a power loss where the file system lets a folder be flushed; elsewhere it is not ours to
/// fail for.
fn flush_folder(folder: &Path) {
    let _not_everywhere = File::open(folder).and_then(|folder| folder.sync_all());
}

fn failed(path: &Path, action: &'static str) -> impl FnOnce(io::Error) -> FileError {
    let path = path.to_path_buf();
    move |source| FileError::Io { path, action, source }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::world_folder;

    #[test]
    fn a_file_is_written_whole_with_its_mode_and_nothing_stays_beside_it() {
        let (_dir, machine) = world_folder("macos");
        let path = machine.home().join("Library/LaunchAgents/a.plist");
        write_atomically(&machine, &path, b"one", 0o644).unwrap();
        write_atomically(&machine, &path, b"two", 0o644).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"two");
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o644);
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
    }

    #[test]
    fn links_folders_read_only_files_and_foreign_paths_are_refused() {
        let (_dir, machine) = world_folder("macos");
        let (link, folder, locked) =
            (machine.home().join("link"), machine.home().join("folder"), machine.home().join("locked"));
        symlink("/etc/hosts", &link).unwrap();
        fs::create_dir(&folder).unwrap();
        fs::write(&locked, "kept").unwrap();
        fs::set_permissions(&locked, fs::Permissions::from_mode(0o444)).unwrap();
        let write = |path: &Path| write_atomically(&machine, path, b"x", 0o644).unwrap_err();
        assert!(matches!(write(&link), FileError::Symlink(_)));
        assert!(matches!(write(&folder), FileError::NotAFile(_)));
        assert!(matches!(write(&locked), FileError::ReadOnly(_)));
        assert!(matches!(write(Path::new("/etc/stablehand-test")), FileError::Refused(_)));
        assert_eq!(fs::read(&locked).unwrap(), b"kept");
    }

    #[test]
    fn removing_what_is_not_there_is_no_failure() {
        let (_dir, machine) = world_folder("macos");
        let path = machine.home().join("gone");
        assert!(!remove(&machine, &path).unwrap());
        fs::write(&path, "x").unwrap();
        assert!(remove(&machine, &path).unwrap());
    }

    #[test]
    fn a_move_never_replaces() {
        let (_dir, machine) = world_folder("macos");
        let (from, to) = (machine.home().join("from"), machine.home().join("deep/to"));
        fs::write(&from, "x").unwrap();
        move_file(&machine, &from, &to).unwrap();
        fs::write(&from, "y").unwrap();
        assert!(move_file(&machine, &from, &to).is_err());
        assert_eq!(fs::read(&to).unwrap(), b"x");
    }
}
