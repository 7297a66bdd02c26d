//! Small files of ours, written whole or not at all.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Writes a file through a neighbour of it, so that a reader sees the old contents or the new. Its folder is made if
/// need be.
///
/// # Errors
/// When that does not work; the file is as it was.
pub fn write(path: &Path, contents: &[u8], mode: u32) -> io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("/"));
    fs::create_dir_all(folder)?;
    let mut draft = tempfile::NamedTempFile::new_in(folder)?;
    draft.write_all(contents)?;
    draft.as_file().set_permissions(fs::Permissions::from_mode(mode))?;
    draft.as_file().sync_all()?;
    draft.persist(path).map_err(|error| error.error)?;
    Ok(())
}

/// Takes a file away; one that is not there is no error.
///
/// # Errors
/// When it is there and stays.
pub fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_replaces_the_whole_and_leaves_nothing_beside_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("below/file");
        write(&path, b"a long first text", 0o600).unwrap();
        write(&path, b"short", 0o644).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"short");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o644);
        assert_eq!(fs::read_dir(dir.path().join("below")).unwrap().count(), 1);
        remove(&path).unwrap();
        remove(&path).unwrap();
        assert!(write(Path::new("/proc/x/y"), b"", 0o600).is_err());
    }
}
