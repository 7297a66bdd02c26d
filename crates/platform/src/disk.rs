//! Each change of the disk, asked for before and explained when it fails.

use crate::machine::Os;
use stablehand_engine::upgrade::fault::Fault;
use std::fs::{self, DirBuilder, File, Metadata, OpenOptions, Permissions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt, symlink};
use std::path::Path;

/// Called before each change of the disk, with what is done (`create`, `write`, `mode`, `sync`, `link`, `rename`,
/// `remove`) to which path. Its error is taken for the disk's; a test makes the disk fail with it.
pub type Before<'a> = &'a (dyn Fn(&'static str, &Path) -> io::Result<()> + Send + Sync);

/// `EPERM`: on macOS, App Management or a flag of the file; `EACCES` is a matter of modes.
const OPERATION_NOT_PERMITTED: i32 = rustix::io::Errno::PERM.raw_os_error();

/// The disk of a machine: each change is asked for before it is made, and a refusal is explained.
#[derive(Clone, Copy)]
pub struct Disk<'a> {
    os: Os,
    before: Before<'a>,
}

impl<'a> Disk<'a> {
    /// The disk of a machine.
    pub fn new(os: Os, before: Before<'a>) -> Self {
        Self { os, before }
    }

    /// What a refusal of the system means.
    pub fn fault(&self, path: &Path, error: &io::Error) -> Fault {
        let kind = error.kind();
        if matches!(kind, ErrorKind::StorageFull | ErrorKind::QuotaExceeded) {
            Fault::NoSpace(path.to_path_buf())
        } else if kind == ErrorKind::PermissionDenied {
            match (self.os, error.raw_os_error()) {
                (Os::MacOs, Some(OPERATION_NOT_PERMITTED)) => Fault::AppManagement(path.to_path_buf()),
                (Os::MacOs | Os::Linux, _) => Fault::Denied(path.to_path_buf()),
            }
        } else {
            Fault::File { path: path.to_path_buf(), reason: error.to_string() }
        }
    }

    /// Makes one change, unless it is refused before.
    ///
    /// # Errors
    /// A [`Fault`].
    pub fn change<T>(
        &self,
        what: &'static str,
        path: &Path,
        change: impl FnOnce() -> io::Result<T>,
    ) -> Result<T, Fault> {
        (self.before)(what, path).and_then(|()| change()).map_err(|error| self.fault(path, &error))
    }

    /// A folder with those above it.
    ///
    /// # Errors
    /// A [`Fault`].
    pub fn create_folders(&self, path: &Path) -> Result<(), Fault> {
        self.change("create", path, || DirBuilder::new().recursive(true).mode(0o700).create(path))
    }

    /// A folder where nothing is; `false` when something is.
    pub(crate) fn create_folder(&self, path: &Path) -> Result<bool, Fault> {
        self.change("create", path, || match DirBuilder::new().mode(0o700).create(path) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(false),
            Err(error) => Err(error),
        })
    }

    /// A file where nothing is; `None` when something is.
    pub(crate) fn create(&self, path: &Path) -> Result<Option<File>, Fault> {
        self.change("create", path, || match OpenOptions::new().write(true).create_new(true).mode(0o600).open(path) {
            Ok(file) => Ok(Some(file)),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(None),
            Err(error) => Err(error),
        })
    }

    pub(crate) fn write(&self, path: &Path, file: &mut File, bytes: &[u8]) -> Result<(), Fault> {
        self.change("write", path, || file.write_all(bytes))
    }

    /// The umask has cut the mode at creation.
    pub(crate) fn mode(&self, path: &Path, file: &File, mode: u32) -> Result<(), Fault> {
        self.change("mode", path, || file.set_permissions(Permissions::from_mode(mode)))
    }

    pub(crate) fn sync(&self, path: &Path, file: &File) -> Result<(), Fault> {
        self.change("sync", path, || file.sync_all())
    }

    /// Flushes a folder. Not every file system lets a folder be flushed, which is then not ours to fail for.
    ///
    /// # Errors
    /// A [`Fault`].
    pub fn sync_folder(&self, path: &Path) -> Result<(), Fault> {
        self.change("sync", path, || match File::open(path)?.sync_all() {
            Err(error) if matches!(error.kind(), ErrorKind::Unsupported | ErrorKind::InvalidInput) => Ok(()),
            other => other,
        })
    }

    /// A symbolic link where nothing is.
    pub(crate) fn link(&self, path: &Path, target: &Path) -> Result<(), Fault> {
        self.change("link", path, || symlink(target, path))
    }

    /// One more name of a file.
    pub(crate) fn hard_link(&self, path: &Path, of: &Path) -> Result<(), Fault> {
        self.change("link", path, || fs::hard_link(of, path))
    }

    pub(crate) fn rename(&self, from: &Path, to: &Path) -> Result<(), Fault> {
        self.change("rename", to, || fs::rename(from, to))
    }

    pub(crate) fn remove_file(&self, path: &Path) -> Result<(), Fault> {
        self.change("remove", path, || fs::remove_file(path))
    }

    /// A folder with all that it holds, or a file or a link, unless it is gone. Links are not followed.
    ///
    /// # Errors
    /// A [`Fault`].
    pub fn remove_tree(&self, path: &Path) -> Result<(), Fault> {
        self.change("remove", path, || {
            let removed = match fs::symlink_metadata(path) {
                Ok(about) if about.is_dir() => fs::remove_dir_all(path),
                Ok(_) => fs::remove_file(path),
                Err(error) => Err(error),
            };
            match removed {
                Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
                other => other,
            }
        })
    }
}

/// Which file it is, in which state.
pub(crate) fn mark(about: &Metadata) -> (u64, u64, u64, i64, i64) {
    (about.dev(), about.ino(), about.size(), about.mtime(), about.mtime_nsec())
}
