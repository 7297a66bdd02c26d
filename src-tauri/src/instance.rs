//! One copy for each user and machine. A later one says over a socket what it was started for, and ends.

use crate::arguments::Wish;
use crate::place::{self, Place};
use rustix::fs::{FlockOperation, flock};
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::{Duration, Instant};

/// How long a first copy may take until it listens.
const PATIENCE: Duration = Duration::from_secs(5);
const STEP: Duration = Duration::from_millis(20);
/// No line of ours is longer.
const LINE_LIMIT_BYTES: u64 = 128;

/// What became of this copy.
#[derive(Debug)]
pub enum Instance {
    /// It is the first. Dropping it lets another be the first.
    First(First),
    /// Another one runs, and was told.
    Second,
}

/// The first copy's hold.
#[derive(Debug)]
pub struct First {
    /// Closed, and the lock with it, when the process ends in whatever way.
    _lock: File,
    listener: UnixListener,
}

/// Becomes the first copy, or tells the first what this one was started for.
///
/// # Errors
/// When neither works.
pub fn claim(place: &Place, wish: &Wish) -> io::Result<Instance> {
    place::prepare_folder(&place.own_lock, place.uid)?;
    let lock = OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(&place.own_lock)?;
    match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {
            place::prepare_folder(&place.own_socket, place.uid)?;
            // Whoever left it there holds no lock any more.
            match fs::remove_file(&place.own_socket) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                Ok(()) | Err(_) => {}
            }
            let listener = UnixListener::bind(&place.own_socket)?;
            Ok(Instance::First(First { _lock: lock, listener }))
        }
        Err(rustix::io::Errno::WOULDBLOCK) => tell(place, wish).map(|()| Instance::Second),
        Err(error) => Err(error.into()),
    }
}

fn tell(place: &Place, wish: &Wish) -> io::Result<()> {
    let began = Instant::now();
    let mut stream = loop {
        match UnixStream::connect(&place.own_socket) {
            Ok(stream) => break stream,
            Err(error) if began.elapsed() >= PATIENCE => return Err(error),
            // It has the lock, and not yet the socket.
            Err(_) => std::thread::sleep(STEP),
        }
    };
    stream.write_all(wish.line().as_bytes())
}

impl First {
    /// Hears what later copies were started for, in a thread of its own, until the process ends.
    pub fn hear(self, mut on_wish: impl FnMut(Wish) + Send + 'static) -> io::Result<()> {
        std::thread::Builder::new().name("later copies".to_owned()).spawn(move || {
            // The lock lives as long as this thread.
            let Self { _lock, listener } = self;
            for stream in listener.incoming().flatten() {
                if let Some(wish) = read(stream) {
                    on_wish(wish);
                }
            }
        })?;
        Ok(())
    }
}

fn read(stream: UnixStream) -> Option<Wish> {
    stream.set_read_timeout(Some(PATIENCE)).ok()?;
    let mut line = String::new();
    BufReader::new(stream.take(LINE_LIMIT_BYTES)).read_line(&mut line).ok()?;
    Wish::from_line(&line)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn a_second_copy_tells_the_first_and_a_socket_left_behind_is_no_first_copy() {
        let dir = tempfile::tempdir().unwrap();
        let marker = r#"{"format":1,"os":"linux","home":"/home/sim"}"#;
        fs::write(dir.path().join("stablehand-world.json"), marker).unwrap();
        let place = Place::in_world(dir.path()).unwrap();
        place::prepare_folder(&place.own_socket, place.uid).unwrap();
        drop(UnixListener::bind(&place.own_socket).unwrap());

        let Instance::First(first) = claim(&place, &Wish::Stand).unwrap() else { panic!("it is the first") };
        let (heard, hears) = mpsc::channel();
        first.hear(move |wish| heard.send(wish).unwrap()).unwrap();
        for wish in [Wish::Open, Wish::Notify("drift".to_owned())] {
            assert!(matches!(claim(&place, &wish).unwrap(), Instance::Second));
            assert_eq!(hears.recv().unwrap(), wish);
        }
    }
}
