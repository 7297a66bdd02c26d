//! What was seen and done, for the last 30 days, in one file of at most 50 MB.
//!
//! Numbers are kept as they came for 15 minutes, as least, mean and greatest of 10 seconds for a day, and of a minute
//! for 30 days ([`rollup`]); events are kept for 30 days. Everything lies in one SQLite file ([`store`]), one packed
//! row for each instant ([`packing`]), so that a second of twenty numbers costs some two hundred bytes. The file is
//! written by one thread ([`writer`]), because the daemon's runtime has a single one and a disk may be slow. A full
//! queue loses points, never time: they are counted.
//!
//! What could not be read at some instant has no point there. A gap means "not known".
//!
//! Ages are distances from the newest point in either direction, so that neither a clock that is set back nor one that
//! jumps ahead for a moment makes old points eternal or wipes them out.

mod broken;
pub(crate) mod detail;
pub mod export;
mod forgetting;
mod packing;
pub mod past;
mod reading;
mod rollup;
mod store;
mod writer;

#[cfg(test)]
mod tests;

pub use reading::read;

use stablehand_engine::time::Wall;
use stablehand_platform::machine::Machine;
use stablehand_platform::paths::stablehand_files;
use stablehand_protocol::Failure;
use std::borrow::Cow;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::oneshot;

/// Name of the file in the data folder.
const FILE: &str = "history.sqlite";
/// How many messages may wait for the thread that writes.
const QUEUE: usize = 256;
/// Places of the queue that are kept for events and questions.
const QUEUE_KEPT_FREE_OF_POINTS: usize = 64;
/// How many rows an answer of [`History::query`] holds at most.
pub const MOST_ROWS: usize = 20_000;

/// How much is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limits {
    /// Size of the SQLite file. Its log beside it takes some megabytes more for a moment.
    pub(crate) file_bytes: u64,
    /// How long points are kept as they came.
    pub(crate) seconds_kept: Duration,
    /// How long spans of 10 seconds are kept.
    pub(crate) tens_kept: Duration,
    /// How long spans of a minute, and events, are kept.
    pub(crate) minutes_kept: Duration,
    /// How many different series are taken; points of further ones are dropped and counted.
    pub(crate) series: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            // With the log and its index, this stays below 50 MB.
            file_bytes: 44_000_000,
            seconds_kept: Duration::from_mins(15),
            tens_kept: Duration::from_hours(24),
            minutes_kept: Duration::from_hours(24 * 30),
            series: 2_000,
        }
    }
}

/// A number at an instant. A value that is not known, or not finite, is no point.
#[derive(Clone, Debug, PartialEq)]
pub struct Point<'a> {
    /// When it was seen.
    pub at: Wall,
    /// Its series: a name with its unit, and labels, as [`series`] writes them.
    pub series: Cow<'a, str>,
    /// The number, in the unit that the name tells.
    pub value: f64,
}

impl<'a> Point<'a> {
    /// A point of a series.
    pub fn new(at: Wall, series: impl Into<Cow<'a, str>>, value: f64) -> Self {
        Self { at, series: series.into(), value }
    }
}

/// A series with labels, e.g. `tokens_per_s{model="gemma3:27b"}`: labels in order of their names, quotes and
/// backslashes of values behind a backslash.
pub fn series(name: &str, labels: &[(&str, &str)]) -> String {
    if labels.is_empty() {
        return name.to_owned();
    }
    let mut labels = labels.to_vec();
    labels.sort_unstable();
    let labels: Vec<String> = labels
        .iter()
        .map(|(label, value)| {
            let value = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
            format!("{label}=\"{value}\"")
        })
        .collect();
    format!("{name}{{{}}}", labels.join(","))
}

/// What kind of thing happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The verdict on a runner or the server changed.
    Verdict,
    /// Ollama was restarted.
    Restart,
    /// A request or a recovery ended.
    Outcome,
    /// A person was told something.
    Alert,
    /// A process was signalled.
    Kill,
    /// Another version of Ollama was put in place, or not.
    Upgrade,
    /// Something about this file itself.
    History,
    /// A word of another version.
    Other(String),
}

impl Kind {
    /// Its word.
    pub fn word(&self) -> &str {
        match self {
            Self::Verdict => "verdict",
            Self::Restart => "restart",
            Self::Outcome => "outcome",
            Self::Alert => "alert",
            Self::Kill => "kill",
            Self::Upgrade => "upgrade",
            Self::History => "history",
            Self::Other(word) => word,
        }
    }

    /// The kind that a word means.
    pub fn from_word(word: &str) -> Self {
        let known =
            [Self::Verdict, Self::Restart, Self::Outcome, Self::Alert, Self::Kill, Self::Upgrade, Self::History];
        known.into_iter().find(|kind| kind.word() == word).unwrap_or_else(|| Self::Other(word.to_owned()))
    }
}

/// How many events of some kinds there were.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Deeds {
    /// [`Kind::Alert`].
    pub alerts: u64,
    /// [`Kind::Restart`].
    pub restarts: u64,
    /// [`Kind::Kill`].
    pub kills: u64,
}

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// When.
    pub at: Wall,
    /// What kind of thing.
    pub kind: Kind,
    /// Whom it is about: a model, `server`, a pid.
    pub subject: String,
    /// What happened, in a sentence; cut after 4 KiB.
    pub words: String,
    /// Particulars as JSON, such as the evidence of a verdict; may be empty. More than 64 KiB are left out.
    pub detail_json: String,
}

/// A number, or the least, mean and greatest of a span of time.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// The instant, or where the span begins.
    pub at: Wall,
    /// Length of the span; zero for a number as it came.
    pub span: Duration,
    /// The series.
    pub series: Arc<str>,
    /// The least.
    pub min: f64,
    /// The mean of what was seen.
    pub avg: f64,
    /// The greatest.
    pub max: f64,
}

/// Which series are wanted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum SeriesFilter {
    /// All.
    #[default]
    All,
    /// These: a name with labels means one series, a bare name all series of that name.
    Named(Vec<String>),
}

impl SeriesFilter {
    /// Whether a series is wanted.
    pub fn wants(&self, series: &str) -> bool {
        match self {
            Self::All => true,
            Self::Named(names) => names.iter().any(|name| {
                series.strip_prefix(name.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with('{'))
            }),
        }
    }
}

/// Everything since some instant.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Recorded {
    /// Numbers, in order of time, then of series.
    pub rows: Vec<Row>,
    /// Events, in order of time.
    pub entries: Vec<Entry>,
}

/// Why the history cannot be asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HistoryError {
    /// There is no file yet.
    #[error("there is no history at {0} yet")]
    Missing(PathBuf),
    /// The file cannot be read.
    #[error("the history at {path} cannot be read: {why}; it was left as it is")]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What was said.
        why: String,
    },
    /// Nothing is kept, because the file cannot be made or written.
    #[error("no history is kept: {0}")]
    NotKept(String),
    /// Too much is waiting to be written.
    #[error("the history is busy writing; ask again in a moment")]
    Busy,
}

impl From<HistoryError> for Failure {
    fn from(error: HistoryError) -> Self {
        let (code, hint) = match &error {
            HistoryError::Missing(_) => ("no-history", "it begins when the daemon runs: `stablehand doctor`"),
            HistoryError::Unreadable { .. } => {
                ("history-unreadable", "see its owner and mode; the daemon's log may say more")
            }
            HistoryError::NotKept(_) => ("history-not-kept", "see that the folder belongs to you and can be written"),
            HistoryError::Busy => ("history-busy", "ask again in a moment"),
        };
        Self::new(code, error.to_string(), hint)
    }
}

/// Where the history of a machine lies.
pub fn path(machine: &Machine) -> PathBuf {
    stablehand_files(machine).data_dir.join(FILE)
}

/// The history that is being written; cheap to clone. When the last one goes, what waits is written first.
#[derive(Clone, Debug)]
pub struct History {
    desk: Arc<Desk>,
}

/// What the handles and the writing thread share.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    /// Messages that wait.
    waiting: AtomicUsize,
    dropped_points: AtomicU64,
    dropped_entries: AtomicU64,
    file_bytes: AtomicU64,
    alerts: AtomicU64,
    restarts: AtomicU64,
    kills: AtomicU64,
    trouble: Mutex<Option<String>>,
}

impl Shared {
    fn lose(&self, points: usize, entries: usize) {
        self.dropped_points.fetch_add(points as u64, Ordering::Relaxed);
        self.dropped_entries.fetch_add(entries as u64, Ordering::Relaxed);
    }

    fn set_trouble(&self, trouble: Option<String>) {
        *self.trouble.lock().unwrap_or_else(PoisonError::into_inner) = trouble;
    }

    fn trouble(&self) -> Option<String> {
        self.trouble.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

#[derive(Debug)]
struct Desk {
    path: PathBuf,
    /// `None` while the last handle goes.
    sender: Option<SyncSender<Message>>,
    thread: Mutex<Option<JoinHandle<()>>>,
    shared: Arc<Shared>,
}

/// What the handles tell the writing thread.
#[derive(Debug)]
pub(crate) enum Message {
    /// Numbers to keep.
    Points(Vec<store::Sample>),
    /// An event to keep.
    Entry(Box<Entry>),
    /// A question for numbers.
    Rows { wanted: reading::Wanted, reply: oneshot::Sender<Result<Vec<Row>, HistoryError>> },
    /// A question for events.
    Entries { since: Wall, reply: oneshot::Sender<Result<Vec<Entry>, HistoryError>> },
}

impl History {
    /// Opens the history of a machine, or begins one. It never fails: when nothing can be kept, the note says why, and
    /// the daemon goes on without. A file that cannot be used is set aside, and the note says where.
    ///
    /// It reads the file once, to be sure of it; that takes a fraction of a second.
    pub fn open(machine: &Machine) -> (Self, Option<String>) {
        let path = path(machine);
        if let Err(refused) = machine.allow_write(&path) {
            return Self::not_kept(path, refused.to_string());
        }
        Self::open_at(path, Limits::default(), machine.clock().now().wall)
    }

    pub(crate) fn open_at(path: PathBuf, limits: Limits, now: Wall) -> (Self, Option<String>) {
        let (store, note, trouble) = match store::Store::open(&path, limits, now) {
            Ok((store, note)) => (Some(store), note, None),
            Err(why) => (None, Some(format!("no history is kept: {why}")), Some(why)),
        };
        let (history, inbox) = Self::with_queue(path.clone(), trouble);
        match writer::start(path.clone(), limits, store, inbox, Arc::clone(&history.desk.shared)) {
            Ok(thread) => (history.joined_by(thread), note),
            Err(error) => Self::not_kept(path, format!("its thread cannot be started: {error}")),
        }
    }

    fn not_kept(path: PathBuf, why: String) -> (Self, Option<String>) {
        let note = format!("no history is kept: {why}");
        let (history, _nobody_listens) = Self::with_queue(path, Some(why));
        (history, Some(note))
    }

    fn with_queue(path: PathBuf, trouble: Option<String>) -> (Self, Receiver<Message>) {
        let (sender, inbox) = std::sync::mpsc::sync_channel(QUEUE);
        let shared = Arc::new(Shared::default());
        shared.set_trouble(trouble);
        (Self { desk: Arc::new(Desk { path, sender: Some(sender), thread: Mutex::new(None), shared }) }, inbox)
    }

    fn joined_by(self, thread: JoinHandle<()>) -> Self {
        *self.desk.thread.lock().unwrap_or_else(PoisonError::into_inner) = Some(thread);
        self
    }

    /// Where the file lies.
    pub fn path(&self) -> &Path {
        &self.desk.path
    }

    /// Keeps these points; returns at once. When too much waits already, they are dropped and counted.
    pub fn record(&self, points: &[Point<'_>]) {
        let samples: Vec<store::Sample> = points
            .iter()
            .filter(|point| point.value.is_finite())
            .map(|point| store::Sample {
                at_ms: point.at.unix_ms,
                series: point.series.as_ref().into(),
                value: point.value,
            })
            .collect();
        let count = samples.len();
        if count == 0 {
            return;
        }
        let shared = &self.desk.shared;
        let full = shared.waiting.load(Ordering::Relaxed) >= QUEUE - QUEUE_KEPT_FREE_OF_POINTS;
        if full || self.send(Message::Points(samples)).is_err() {
            shared.lose(count, 0);
        }
    }

    /// Keeps an event; returns at once. It is on the disk before any later message is looked at.
    pub fn note(&self, entry: Entry) {
        let shared = &self.desk.shared;
        let counter = match entry.kind {
            Kind::Alert => Some(&shared.alerts),
            Kind::Restart => Some(&shared.restarts),
            Kind::Kill => Some(&shared.kills),
            Kind::Verdict | Kind::Outcome | Kind::Upgrade | Kind::History | Kind::Other(_) => None,
        };
        if let Some(counter) = counter {
            counter.fetch_add(1, Ordering::Relaxed);
        }
        if self.send(Message::Entry(Box::new(entry))).is_err() {
            self.desk.shared.lose(0, 1);
            tracing::warn!("an event is missing from the history: too much waits to be written");
        }
    }

    /// Numbers from `since` to before `until`, each span of time in the finest form that is kept of it, in order of
    /// time, then of series. When that would be more than [`MOST_ROWS`], neighbours are put together.
    ///
    /// # Errors
    /// A [`HistoryError`] when nothing is kept or the file cannot be read.
    pub async fn query(&self, since: Wall, until: Wall, series: SeriesFilter) -> Result<Vec<Row>, HistoryError> {
        let wanted = reading::Wanted { since, until, series, most_rows: MOST_ROWS };
        self.ask(|reply| Message::Rows { wanted, reply }).await
    }

    /// Events since an instant, in order of time.
    ///
    /// # Errors
    /// As [`Self::query`].
    pub async fn entries(&self, since: Wall) -> Result<Vec<Entry>, HistoryError> {
        self.ask(|reply| Message::Entries { since, reply }).await
    }

    /// Alerts, restarts and signals since the start, whether they could be kept or not.
    pub fn deeds(&self) -> Deeds {
        let shared = &self.desk.shared;
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Deeds { alerts: count(&shared.alerts), restarts: count(&shared.restarts), kills: count(&shared.kills) }
    }

    /// Points that were dropped since the start, because too much waited, the disk refused, or there are too many
    /// series.
    pub fn dropped_points(&self) -> u64 {
        self.desk.shared.dropped_points.load(Ordering::Relaxed)
    }

    /// Events that were dropped since the start.
    pub fn dropped_entries(&self) -> u64 {
        self.desk.shared.dropped_entries.load(Ordering::Relaxed)
    }

    /// Size of the file at the last write; 0 before the first.
    pub fn file_bytes(&self) -> u64 {
        self.desk.shared.file_bytes.load(Ordering::Relaxed)
    }

    /// Why nothing could be written the last time; `None` when all is well.
    pub fn trouble(&self) -> Option<String> {
        self.desk.shared.trouble()
    }

    async fn ask<T>(
        &self,
        question: impl FnOnce(oneshot::Sender<Result<T, HistoryError>>) -> Message,
    ) -> Result<T, HistoryError> {
        let (reply, answer) = oneshot::channel();
        self.send(question(reply))?;
        answer.await.unwrap_or_else(|_| Err(self.ended()))
    }

    fn send(&self, message: Message) -> Result<(), HistoryError> {
        let Some(sender) = &self.desk.sender else { return Err(self.ended()) };
        // Counted before it is sent: the thread may take it at once.
        self.desk.shared.waiting.fetch_add(1, Ordering::Relaxed);
        sender.try_send(message).map_err(|refused| {
            self.desk.shared.waiting.fetch_sub(1, Ordering::Relaxed);
            match refused {
                TrySendError::Full(_) => HistoryError::Busy,
                TrySendError::Disconnected(_) => self.ended(),
            }
        })
    }

    fn ended(&self) -> HistoryError {
        HistoryError::NotKept(self.trouble().unwrap_or_else(|| "the writing thread has ended".to_owned()))
    }
}

impl Drop for Desk {
    fn drop(&mut self) {
        // The thread ends when nobody can send any more.
        self.sender = None;
        if let Some(thread) = self.thread.get_mut().unwrap_or_else(PoisonError::into_inner).take()
            && thread.join().is_err()
        {
            tracing::error!(path = %self.path.display(), "the thread that writes the history broke");
        }
    }
}
