//! The one thread that touches the file.

use super::reading;
use super::store::{Batch, Store, StoreError};
use super::{Entry, HistoryError, Kind, Limits, Message, Shared};
use stablehand_engine::time::Wall;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long points wait to be written together: what a killed daemon loses at most.
const BATCH_AGE: Duration = Duration::from_secs(5);
/// How many points are written together at most.
const BATCH_POINTS: usize = 4_000;
/// SQLite is made for small stacks.
const STACK_BYTES: usize = 512 * 1024;

/// How long a file that could not be made is left alone.
const RETRY: Duration = Duration::from_secs(60);

/// Starts the thread. It ends when every sender is gone, after it has written what waits. Without a file it tries
/// again from time to time.
pub(super) fn start(
    path: PathBuf,
    limits: Limits,
    store: Option<Store>,
    inbox: Receiver<Message>,
    shared: Arc<Shared>,
) -> io::Result<JoinHandle<()>> {
    std::thread::Builder::new().name("history".to_owned()).stack_size(STACK_BYTES).spawn(move || {
        Writer { path, limits, store, tried: Instant::now(), pending: Batch::default(), began: None, shared }
            .run(&inbox);
    })
}

struct Writer {
    path: PathBuf,
    limits: Limits,
    /// `None` when the file could not be made.
    store: Option<Store>,
    /// When it was last tried to make it.
    tried: Instant,
    pending: Batch,
    /// When the oldest of what waits came.
    began: Option<Instant>,
    shared: Arc<Shared>,
}

/// What is wrong with the present file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Loss {
    /// It cannot be read.
    Broken,
    /// It is not where it was.
    Gone,
}

impl Writer {
    fn run(mut self, inbox: &Receiver<Message>) {
        loop {
            let message = match self.began {
                None => inbox.recv().map_err(|_| RecvTimeoutError::Disconnected),
                Some(began) => inbox.recv_timeout(BATCH_AGE.saturating_sub(began.elapsed())),
            };
            match message {
                Ok(message) => {
                    self.shared.waiting.fetch_sub(1, Ordering::Relaxed);
                    self.handle(message);
                }
                Err(RecvTimeoutError::Timeout) => self.commit(),
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        self.commit();
        if let Some(store) = self.store {
            store.close();
        }
    }

    fn handle(&mut self, message: Message) {
        match message {
            Message::Points(points) => {
                self.pending.points.extend(points);
                let began = *self.began.get_or_insert_with(Instant::now);
                if self.pending.points.len() >= BATCH_POINTS || began.elapsed() >= BATCH_AGE {
                    self.commit();
                }
            }
            Message::Entry(entry) => {
                self.pending.entries.push(*entry);
                self.commit();
            }
            Message::Rows { wanted, reply } => {
                self.commit();
                // Whoever asked may have left.
                let _left = reply.send(self.answer(|store| reading::rows(store.connection(), &wanted)));
            }
            Message::Entries { since, reply } => {
                self.commit();
                let _left = reply.send(self.answer(|store| reading::entries(store.connection(), since)));
            }
        }
    }

    fn commit(&mut self) {
        self.began = None;
        if self.pending.points.is_empty() && self.pending.entries.is_empty() {
            return;
        }
        let batch = std::mem::take(&mut self.pending);
        match &self.store {
            Some(store) if !store.is_in_place() => self.begin_again(&batch, Loss::Gone, "somebody took the file away"),
            None if self.tried.elapsed() >= RETRY => self.begin_again(&batch, Loss::Gone, "there was no file to write"),
            Some(_) | None => {}
        }
        match self.store.as_mut().map(|store| store.write(&batch)) {
            Some(Ok(left_out)) => {
                if left_out > 0 {
                    tracing::debug!(left_out, "points of too many series were left out of the history");
                    self.shared.lose(left_out, 0);
                }
                self.say(None);
            }
            Some(Err(error)) => {
                self.shared.lose(batch.points.len(), batch.entries.len());
                self.say(Some(error.to_string()));
                if error.blames_file() {
                    self.begin_again(&batch, Loss::Broken, &error.to_string());
                }
            }
            None => self.shared.lose(batch.points.len(), batch.entries.len()),
        }
        if let Some(Ok(bytes)) = self.store.as_ref().map(Store::file_bytes) {
            self.shared.file_bytes.store(bytes, Ordering::Relaxed);
        }
    }

    /// Begins another file in the place of one that cannot be used any more. Its first event says so.
    fn begin_again(&mut self, batch: &Batch, loss: Loss, why: &str) {
        // A broken file must be closed before it is moved.
        self.store = None;
        self.tried = Instant::now();
        let at = latest(batch);
        let begun = match loss {
            Loss::Broken => Store::begin_anew(&self.path, self.limits, at, why),
            Loss::Gone => Store::open(&self.path, self.limits, at),
        };
        match begun {
            Ok((mut store, note)) => {
                let words = note.unwrap_or_else(|| format!("{why}; it goes on here"));
                tracing::warn!("{words}");
                let (kind, subject) = (Kind::History, "history".to_owned());
                let entry = Entry { at, kind, subject, words, detail_json: String::new() };
                let first = store.write(&Batch { points: vec![], entries: vec![entry] });
                self.say(first.err().map(|error| error.to_string()));
                self.store = Some(store);
            }
            Err(why) => self.say(Some(why)),
        }
    }

    fn answer<T>(&self, question: impl FnOnce(&Store) -> Result<T, StoreError>) -> Result<T, HistoryError> {
        let Some(store) = &self.store else {
            return Err(HistoryError::NotKept(self.shared.trouble().unwrap_or_default()));
        };
        question(store).map_err(|error| reading::unreadable(store.path(), &error))
    }

    /// Remembers the present trouble; a new one is worth a line in the log.
    fn say(&self, trouble: Option<String>) {
        let before = self.shared.trouble();
        match &trouble {
            Some(words) if before.as_ref() != Some(words) => {
                tracing::warn!(error = %words, "the history could not be written; what came meanwhile is missing in it");
            }
            None if before.is_some() => tracing::info!("the history is written again"),
            Some(_) | None => {}
        }
        self.shared.set_trouble(trouble);
    }
}

/// The newest instant that a batch tells of. The thread has no clock of the machine.
fn latest(batch: &Batch) -> Wall {
    let points = batch.points.iter().map(|point| point.at_ms);
    let entries = batch.entries.iter().map(|entry| entry.at.unix_ms);
    Wall::from_unix_ms(points.chain(entries).max().unwrap_or(0))
}
