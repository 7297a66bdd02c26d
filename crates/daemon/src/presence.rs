//! Only one daemon per login: a lock that the kernel drops when its holder dies, and a socket behind it.

use rustix::fs::{FlockOperation, flock};
use stablehand_platform::machine::Machine;
use stablehand_platform::paths::{prepare_socket_folder, stablehand_files};
use stablehand_protocol::Failure;
use std::fs::{File, OpenOptions, Permissions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use tokio::net::UnixListener;

/// Held for as long as the daemon lives.
#[derive(Debug)]
pub struct Presence {
    _lock: File,
}

/// Claims the place of the one daemon.
///
/// # Errors
/// When another one holds it, with its pid, or the lock file cannot be made.
pub fn claim(machine: &Machine) -> Result<Presence, Failure> {
    let path = stablehand_files(machine).lock;
    let lock = open_lock(machine, &path).map_err(|error| {
        Failure::new(
            "lock-unwritable",
            format!("the lock file {} cannot be made: {error}; no daemon was started", path.display()),
            "see that its folder belongs to you and can be written",
        )
    })?;
    hold(lock, &path)
}

fn open_lock(machine: &Machine, path: &Path) -> Result<File, String> {
    machine.allow_write(path).map_err(|error| error.to_string())?;
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder).map_err(|error| error.to_string())?;
    }
    OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path).map_err(|error| error.to_string())
}

fn hold(mut lock: File, path: &Path) -> Result<Presence, Failure> {
    if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err() {
        let mut holder = String::new();
        let _ = lock.read_to_string(&mut holder);
        let holder = holder.trim();
        let who = if holder.is_empty() { String::new() } else { format!(" (pid {holder})") };
        return Err(Failure::new(
            "daemon-already-running",
            format!("a Stablehand daemon already runs for this user{who}; this one ends, nothing was changed"),
            "use it: `stablehand status`",
        ));
    }
    let written = lock
        .set_len(0)
        .and_then(|()| lock.seek(SeekFrom::Start(0)))
        .and_then(|_| lock.write_all(format!("{}\n", std::process::id()).as_bytes()));
    if let Err(error) = written {
        tracing::warn!(path = %path.display(), %error, "the lock is held, but does not say by whom");
    }
    Ok(Presence { _lock: lock })
}

/// Opens the control socket. A stale one is removed: whoever holds the lock knows that nobody listens on it.
///
/// # Errors
/// When it cannot be made.
pub fn listen(machine: &Machine) -> Result<UnixListener, Failure> {
    let path = stablehand_files(machine).socket;
    let made = prepare_socket_folder(machine).and_then(|()| {
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
            Ok(()) | Err(_) => {}
        }
        let listener = UnixListener::bind(&path)?;
        std::fs::set_permissions(&path, Permissions::from_mode(0o600))?;
        Ok(listener)
    });
    made.map_err(|error| {
        Failure::new(
            "socket-unusable",
            format!("the control socket {} cannot be made: {error}; no daemon was started", path.display()),
            "see that its folder belongs to you and can be written",
        )
    })
}

/// Takes the socket away at the end.
pub fn leave(machine: &Machine) {
    let path = stablehand_files(machine).socket;
    if let Err(error) = std::fs::remove_file(&path) {
        tracing::debug!(path = %path.display(), %error, "the control socket was not removed");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_claim_names_the_first_and_a_dropped_one_frees_the_place() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lock");
        let open = || OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path).unwrap();
        let first = hold(open(), &path).unwrap();
        let failure = hold(open(), &path).unwrap_err();
        assert_eq!(failure.code, "daemon-already-running");
        assert!(failure.message.contains(&format!("pid {}", std::process::id())), "{}", failure.message);
        drop(first);
        assert!(hold(open(), &path).is_ok());
    }
}
