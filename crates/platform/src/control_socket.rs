//! A control socket: only one process behind it, and only its owner in front of it.
//!
//! The process holds a lock that the kernel drops when it dies; whoever holds the lock knows that nobody listens on a
//! socket that lies there.

use crate::machine::Machine;
use crate::paths::prepare_socket_folder;
use rustix::fs::{FlockOperation, flock};
use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::net::unix::SocketAddr;
use tokio::net::{UnixListener, UnixStream};

/// The pause after a connection that could not be accepted.
const ACCEPT_PAUSE: Duration = Duration::from_secs(1);

/// Held for as long as the process lives.
#[derive(Debug)]
pub struct Presence {
    _lock: File,
}

/// Why the place of the one process is not to be had.
#[derive(Debug, thiserror::Error)]
pub enum ClaimError {
    /// Another one holds it.
    #[error("another process holds it")]
    Held {
        /// Its pid, as it wrote it down.
        holder: Option<u32>,
    },
    /// The lock file cannot be made.
    #[error("the lock file {path} cannot be made: {reason}")]
    Unwritable {
        /// The file.
        path: PathBuf,
        /// What the system said.
        reason: String,
    },
}

/// Why there is no socket.
#[derive(Debug, thiserror::Error)]
#[error("the control socket {path} cannot be made: {source}")]
pub struct SocketError {
    /// Where it should be.
    pub path: PathBuf,
    /// What the system said.
    pub source: io::Error,
}

/// Claims the place of the one process.
///
/// # Errors
/// When another one holds it, or the lock file cannot be made.
pub fn claim(machine: &Machine, path: &Path) -> Result<Presence, ClaimError> {
    let lock = open_lock(machine, path).map_err(|reason| ClaimError::Unwritable { path: path.to_owned(), reason })?;
    hold(lock)
}

fn open_lock(machine: &Machine, path: &Path) -> Result<File, String> {
    machine.allow_write(path).map_err(|error| error.to_string())?;
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder).map_err(|error| error.to_string())?;
    }
    OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path).map_err(|error| error.to_string())
}

fn hold(mut lock: File) -> Result<Presence, ClaimError> {
    if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err() {
        let mut holder = String::new();
        let _ = lock.read_to_string(&mut holder);
        return Err(ClaimError::Held { holder: holder.trim().parse().ok() });
    }
    // The lock is what counts; the pid in it only helps a person.
    let _ = lock
        .set_len(0)
        .and_then(|()| lock.seek(SeekFrom::Start(0)))
        .and_then(|_| lock.write_all(format!("{}\n", std::process::id()).as_bytes()));
    Ok(Presence { _lock: lock })
}

/// Opens the socket, for its owner alone. A stale one is removed.
///
/// # Errors
/// When it cannot be made.
pub fn listen(machine: &Machine, path: &Path) -> Result<UnixListener, SocketError> {
    let made = prepare_socket_folder(machine).and_then(|()| {
        match std::fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            Ok(()) | Err(_) => {}
        }
        let listener = UnixListener::bind(path)?;
        std::fs::set_permissions(path, Permissions::from_mode(0o600))?;
        Ok(listener)
    });
    made.map_err(|source| SocketError { path: path.to_owned(), source })
}

/// Takes the socket away at the end.
pub fn leave(path: &Path) {
    // A stale one is removed by whoever comes next.
    let _ = std::fs::remove_file(path);
}

/// Serves the paths of a router until it is aborted, to one user alone.
pub async fn serve(listener: UnixListener, uid: u32, router: axum::Router) {
    if let Err(error) = axum::serve(OwnerOnly { listener, uid }, router).await {
        tracing::error!(%error, "the control socket broke");
    }
}

/// Accepts connections of one user alone.
struct OwnerOnly {
    listener: UnixListener,
    uid: u32,
}

impl axum::serve::Listener for OwnerOnly {
    type Io = UnixStream;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        accept(&self.listener, self.uid).await
    }

    fn local_addr(&self) -> io::Result<Self::Addr> {
        self.listener.local_addr()
    }
}

/// Accepts the next connection of one user, or of root, who may read everything anyway. The socket's mode already says
/// so; some systems do not check it.
async fn accept(listener: &UnixListener, uid: u32) -> (UnixStream, SocketAddr) {
    loop {
        match listener.accept().await {
            Ok((stream, address)) => match stream.peer_cred() {
                Ok(peer) if peer.uid() == uid || peer.uid() == 0 => return (stream, address),
                Ok(peer) => tracing::warn!(uid = peer.uid(), "a connection of another user was refused"),
                Err(error) => tracing::warn!(%error, "a connection without a known user was refused"),
            },
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                // Out of file descriptors, mostly; they come back when clients leave.
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
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
        let first = hold(open()).unwrap();
        let Err(ClaimError::Held { holder }) = hold(open()) else { panic!() };
        assert_eq!(holder, Some(std::process::id()));
        drop(first);
        // A program that another test is starting at this moment has the file open until it begins.
        let deadline = std::time::Instant::now() + Duration::from_secs(10);
        while hold(open()).is_err() {
            assert!(std::time::Instant::now() < deadline, "the place is not free");
            std::thread::yield_now();
        }
    }
}
