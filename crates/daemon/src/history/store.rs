//! The file: opened or begun, written in transactions, kept small.
//!
//! The log is written ahead (WAL) and flushed at checkpoints alone, so that a second costs no wait for the disk, and a
//! killed process loses nothing that was committed. What is open of the coarser forms is made anew at the start from
//! the points as they came.

use super::broken;
use super::forgetting;
use super::packing::{self, Damaged};
use super::rollup::{Bucket, Rollup, Span};
use super::{Entry, Limits};
use rusqlite::{Connection, OpenFlags, OptionalExtension, Transaction, params};
use stablehand_engine::time::Wall;
use std::collections::HashMap;
use std::fs::{self, DirBuilder, OpenOptions};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Length of the spans of the middle form.
pub(super) const TEN_SECONDS_MS: i64 = 10_000;
/// Length of the spans of the coarsest form; what is forgotten is forgotten in whole ones.
pub(super) const MINUTE_MS: i64 = 60_000;
pub(super) const DAY_MS: i64 = 24 * 60 * MINUTE_MS;

/// Marks the file as ours (`PRAGMA application_id`): "StHH".
const APPLICATION_ID: i32 = 0x5374_4848;
/// The layout below (`PRAGMA user_version`).
const LAYOUT: i32 = 1;
/// How long another process that reads may hold us up.
const PATIENCE: Duration = Duration::from_secs(2);
/// Pages of 4 KiB that the log may grow to before it is moved into the file.
const CHECKPOINT_PAGES: u32 = 256;
/// How much page cache SQLite may keep, in KiB.
const CACHE_KIB: i32 = 256;
/// Longest sentence and particulars of an event.
const WORDS_BYTES: usize = 4 * 1024;
const DETAIL_BYTES: usize = 64 * 1024;
/// Series that go unused are looked for when there are more than this.
const FEW_SERIES: usize = 200;

const TABLES: &str = "
    CREATE TABLE series (id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL UNIQUE, used_ms INTEGER NOT NULL);
    CREATE TABLE seconds (seq INTEGER PRIMARY KEY, at_ms INTEGER NOT NULL, packed BLOB NOT NULL);
    CREATE TABLE tens (at_ms INTEGER PRIMARY KEY, packed BLOB NOT NULL);
    CREATE TABLE minutes (at_ms INTEGER PRIMARY KEY, packed BLOB NOT NULL);
    CREATE TABLE entries (id INTEGER PRIMARY KEY, at_ms INTEGER NOT NULL, kind TEXT NOT NULL, subject TEXT NOT NULL,
                          words TEXT NOT NULL, detail TEXT NOT NULL);
    CREATE INDEX entries_at ON entries (at_ms);
";

/// A point on its way into the file.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Sample {
    /// When, in Unix milliseconds.
    pub(crate) at_ms: i64,
    /// Its series.
    pub(crate) series: Box<str>,
    /// A finite number.
    pub(crate) value: f64,
}

/// What is written in one transaction.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    /// Points in the order of their coming.
    pub(crate) points: Vec<Sample>,
    /// Events in the order of their coming.
    pub(crate) entries: Vec<Entry>,
}

/// Why the file could not be read or written.
#[derive(Debug, thiserror::Error)]
pub(super) enum StoreError {
    /// SQLite refused.
    #[error(transparent)]
    Sqlite(#[from] rusqlite::Error),
    /// A row holds something that was never packed.
    #[error(transparent)]
    Damaged(#[from] Damaged),
    /// The file is not of our making.
    #[error("{0}")]
    Foreign(String),
}

impl StoreError {
    /// Whether the file itself is to blame, so that a new one would do better.
    pub(super) fn blames_file(&self) -> bool {
        match self {
            Self::Damaged(_) | Self::Foreign(_) => true,
            Self::Sqlite(error) => matches!(
                error.sqlite_error_code(),
                Some(rusqlite::ErrorCode::DatabaseCorrupt | rusqlite::ErrorCode::NotADatabase)
            ),
        }
    }
}

/// The open file.
#[derive(Debug)]
pub(crate) struct Store {
    connection: Connection,
    path: PathBuf,
    /// Tells whether somebody took the file away.
    inode: u64,
    limits: Limits,
    series: HashMap<Box<str>, SeriesId>,
    tens: Rollup,
    minutes: Rollup,
    /// The newest instant that was written, which is "now" for everything that forgets.
    newest_ms: i64,
    /// The newest instant when something was last forgotten.
    forgotten_ms: i64,
}

#[derive(Clone, Copy, Debug)]
struct SeriesId {
    id: i64,
    /// When it was used, to the day.
    used_ms: i64,
}

impl Store {
    /// Opens the file or begins one. One that is broken, or of another layout, is set aside; the note says so.
    ///
    /// # Errors
    /// Why there is no file to write, in words.
    pub(crate) fn open(path: &Path, limits: Limits, now: Wall) -> Result<(Self, Option<String>), String> {
        match Self::open_as_it_is(path, limits) {
            Ok(store) => Ok((store, None)),
            Err(error) if error.blames_file() => Self::begin_anew(path, limits, now, &error.to_string()),
            Err(error) => Err(format!("{} cannot be opened: {error}", path.display())),
        }
    }

    /// Sets the file aside and begins another. Nothing else may have it open.
    ///
    /// # Errors
    /// Why there is no file to write, in words.
    pub(crate) fn begin_anew(
        path: &Path,
        limits: Limits,
        now: Wall,
        why: &str,
    ) -> Result<(Self, Option<String>), String> {
        let aside = broken::set_aside(path, now)
            .map_err(|error| format!("{} is broken ({why}) and cannot be set aside: {error}", path.display()))?;
        let name = aside.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
        let store = Self::open_as_it_is(path, limits).map_err(|error| {
            format!("{} cannot be made: {error}; the broken one is {name} beside it", path.display())
        })?;
        let note = format!(
            "the history {} could not be read ({why}); it was set aside as {name}, a new one begins",
            path.display()
        );
        Ok((store, Some(note)))
    }

    fn open_as_it_is(path: &Path, limits: Limits) -> Result<Self, StoreError> {
        let unusable = |error: std::io::Error| {
            rusqlite::Error::SqliteFailure(
                rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_CANTOPEN),
                Some(error.to_string()),
            )
        };
        if let Some(folder) = path.parent() {
            DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(unusable)?;
        }
        // Made by us, because SQLite would let others read it, and gives its log the same mode.
        OpenOptions::new().append(true).create(true).mode(0o600).open(path).map_err(unusable)?;
        let connection =
            Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
        let inode = fs::metadata(path).map_err(unusable)?.ino();
        prepare(&connection)?;
        let mut store = Self {
            connection,
            path: path.to_owned(),
            inode,
            limits,
            series: HashMap::new(),
            tens: Rollup::new(TEN_SECONDS_MS),
            minutes: Rollup::new(MINUTE_MS),
            newest_ms: i64::MIN,
            forgotten_ms: i64::MIN,
        };
        store.recall()?;
        Ok(store)
    }

    /// Where it lies.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// To read from.
    pub(super) fn connection(&self) -> &Connection {
        &self.connection
    }

    /// Whether the file is still the one that was opened. A file that was removed takes writes and keeps nothing.
    pub(super) fn is_in_place(&self) -> bool {
        fs::metadata(&self.path).is_ok_and(|about| about.ino() == self.inode)
    }

    /// Size of the file without its log.
    ///
    /// # Errors
    /// When SQLite does not say.
    pub(super) fn file_bytes(&self) -> Result<u64, StoreError> {
        forgetting::file_bytes(&self.connection)
    }

    /// Writes a batch whole or not at all; gives how many points were left out because there are too many series.
    ///
    /// # Errors
    /// A [`StoreError`]; nothing of the batch is in the file then.
    pub(super) fn write(&mut self, batch: &Batch) -> Result<usize, StoreError> {
        let written = self.write_all(batch);
        if written.is_err() {
            // Names and open spans in memory may be ahead of the file now.
            self.recall()?;
            return written;
        }
        if self.newest_ms != i64::MIN && self.newest_ms.div_euclid(MINUTE_MS) != self.forgotten_ms.div_euclid(MINUTE_MS)
        {
            self.forget()?;
        }
        forgetting::keep_small(&mut self.connection, self.limits.file_bytes, self.newest_ms)?;
        written
    }

    /// Moves the log into the file, so that it is whole by itself.
    pub(super) fn close(self) {
        if let Err(error) = self.connection.execute_batch("PRAGMA wal_checkpoint(TRUNCATE)") {
            tracing::debug!(%error, "the log of the history stays beside it");
        }
    }

    fn write_all(&mut self, batch: &Batch) -> Result<usize, StoreError> {
        let Self { connection, series, tens, minutes, newest_ms, limits, .. } = self;
        let transaction = connection.transaction()?;
        let mut left_out = 0;
        for tick in batch.points.chunk_by(|one, next| one.at_ms == next.at_ms) {
            let at_ms = tick[0].at_ms;
            let mut values = Vec::with_capacity(tick.len());
            for sample in tick {
                match number_of(&transaction, series, limits.series, sample)? {
                    Some(id) => values.push((id, Span::of(sample.value))),
                    None => left_out += 1,
                }
            }
            if values.is_empty() {
                continue;
            }
            values.sort_by_key(|(id, _)| *id);
            transaction
                .prepare_cached("INSERT INTO seconds (at_ms, packed) VALUES (?1, ?2)")?
                .execute(params![at_ms, packing::pack(&values)])?;
            if let Some(bucket) = tens.add(at_ms, &values) {
                keep_bucket(&transaction, "tens", bucket)?;
            }
            if let Some(bucket) = minutes.add(at_ms, &values) {
                keep_bucket(&transaction, "minutes", bucket)?;
            }
            *newest_ms = at_ms;
        }
        for entry in &batch.entries {
            keep_entry(&transaction, entry)?;
            // An event may tell of something long past; it never sets the time back.
            *newest_ms = entry.at.unix_ms.max(*newest_ms);
        }
        transaction.commit()?;
        Ok(left_out)
    }

    /// Brings names, open spans and the newest instant in line with the file.
    fn recall(&mut self) -> Result<(), StoreError> {
        self.series.clear();
        let mut statement = self.connection.prepare("SELECT name, id, used_ms FROM series")?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            self.series.insert(row.get::<_, String>(0)?.into(), SeriesId { id: row.get(1)?, used_ms: row.get(2)? });
        }
        (self.tens, self.minutes) = (Rollup::new(TEN_SECONDS_MS), Rollup::new(MINUTE_MS));
        let mut statement = self.connection.prepare("SELECT at_ms, packed FROM seconds ORDER BY seq DESC")?;
        let mut rows = statement.query([])?;
        let mut open: Vec<(i64, Vec<(i64, Span)>)> = Vec::new();
        while let Some(row) = rows.next()? {
            let at_ms = row.get(0)?;
            if open
                .first()
                .is_some_and(|(newest_ms, _)| self.minutes.start_of(*newest_ms) != self.minutes.start_of(at_ms))
            {
                break;
            }
            let mut values = Vec::new();
            packing::unpack(row.get_ref(1)?.as_blob().map_err(|_| Damaged)?, |id, span| values.push((id, span)))?;
            open.push((at_ms, values));
        }
        // In the order of their coming. Spans of ten seconds that close here are in the file already.
        for (at_ms, values) in open.iter().rev() {
            let _in_the_file = self.tens.add(*at_ms, values);
            let _none = self.minutes.add(*at_ms, values);
            self.newest_ms = *at_ms;
        }
        Ok(())
    }

    /// Forgets what is too old now, once in each minute.
    fn forget(&mut self) -> Result<(), StoreError> {
        let (before_ms, now_ms) = (std::mem::replace(&mut self.forgotten_ms, self.newest_ms), self.newest_ms);
        if before_ms == i64::MIN {
            return Ok(());
        }
        forgetting::forget(&mut self.connection, self.limits, &(now_ms.min(before_ms)..=now_ms.max(before_ms)))?;
        if self.series.len() > FEW_SERIES {
            self.forget_unused_series()?;
        }
        Ok(())
    }

    /// A name may go when nothing that is kept is as old as its last use.
    fn forget_unused_series(&mut self) -> Result<(), StoreError> {
        let Some(oldest_ms) = forgetting::oldest_ms(&self.connection, &["seconds", "tens", "minutes"])? else {
            return Ok(());
        };
        let used_before_ms = oldest_ms.saturating_sub(DAY_MS);
        self.connection.execute("DELETE FROM series WHERE used_ms < ?1", [used_before_ms])?;
        self.series.retain(|_, series| series.used_ms >= used_before_ms);
        Ok(())
    }
}

fn prepare(connection: &Connection) -> Result<(), StoreError> {
    connection.busy_timeout(PATIENCE)?;
    connection.set_prepared_statement_cache_capacity(16);
    // Before the first table; it has no effect on a file that has some.
    connection.execute_batch("PRAGMA auto_vacuum = INCREMENTAL")?;
    // This reads the file for the first time.
    let mode: String = connection.query_row("PRAGMA journal_mode = WAL", [], |row| row.get(0))?;
    if mode != "wal" {
        tracing::warn!(mode, "the history cannot be logged ahead here; a killed daemon may lose some of it");
    }
    connection.execute_batch(&format!(
        "PRAGMA synchronous = NORMAL;
         PRAGMA cache_size = -{CACHE_KIB};
         PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES};
         PRAGMA journal_size_limit = {};",
        u64::from(CHECKPOINT_PAGES) * 4096
    ))?;
    let tables: i64 = connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
    if tables == 0 {
        return Ok(connection.execute_batch(&format!(
            "BEGIN; {TABLES} PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {LAYOUT}; COMMIT;"
        ))?);
    }
    check(connection)
}

/// Whether the file is ours and whole.
fn check(connection: &Connection) -> Result<(), StoreError> {
    let ours: i32 = connection.query_row("PRAGMA application_id", [], |row| row.get(0))?;
    let layout: i32 = connection.query_row("PRAGMA user_version", [], |row| row.get(0))?;
    if ours != APPLICATION_ID {
        return Err(StoreError::Foreign("it is a database of another program".to_owned()));
    }
    if layout != LAYOUT {
        return Err(StoreError::Foreign(format!("it has layout {layout}, this version writes {LAYOUT}")));
    }
    let found: String = connection.query_row("PRAGMA quick_check(1)", [], |row| row.get(0))?;
    if found != "ok" {
        return Err(StoreError::Foreign(found));
    }
    Ok(())
}

/// The number of a series; `None` when there are too many of them.
fn number_of(
    transaction: &Transaction<'_>,
    known: &mut HashMap<Box<str>, SeriesId>,
    most: usize,
    sample: &Sample,
) -> Result<Option<i64>, StoreError> {
    let Sample { at_ms, series: name, .. } = sample;
    if let Some(series) = known.get_mut(name) {
        if series.used_ms.saturating_add(DAY_MS) <= *at_ms {
            series.used_ms = *at_ms;
            transaction.execute("UPDATE series SET used_ms = ?1 WHERE id = ?2", [*at_ms, series.id])?;
        }
        return Ok(Some(series.id));
    }
    if known.len() >= most {
        return Ok(None);
    }
    transaction.execute("INSERT INTO series (name, used_ms) VALUES (?1, ?2)", params![name, at_ms])?;
    let id = transaction.last_insert_rowid();
    known.insert(name.clone(), SeriesId { id, used_ms: *at_ms });
    Ok(Some(id))
}

/// Keeps a span. One that is there already was begun before a restart or before the clock was set back: both count.
fn keep_bucket(transaction: &Transaction<'_>, table: &str, bucket: Bucket) -> Result<(), StoreError> {
    let Bucket { start_ms, mut spans } = bucket;
    let there: Option<Vec<u8>> = transaction
        .prepare_cached(&format!("SELECT packed FROM {table} WHERE at_ms = ?1"))?
        .query_row([start_ms], |row| row.get(0))
        .optional()?;
    if let Some(there) = there {
        packing::unpack(&there, |series, before| match spans.binary_search_by_key(&series, |(series, _)| *series) {
            Ok(index) => spans[index].1 = before.with(spans[index].1),
            Err(index) => spans.insert(index, (series, before)),
        })?;
    }
    transaction
        .prepare_cached(&format!("INSERT OR REPLACE INTO {table} (at_ms, packed) VALUES (?1, ?2)"))?
        .execute(params![start_ms, packing::pack(&spans)])?;
    Ok(())
}

fn keep_entry(transaction: &Transaction<'_>, entry: &Entry) -> Result<(), StoreError> {
    let Entry { at, kind, subject, words, detail_json } = entry;
    let cut = |text: &str| match text.get(..text.floor_char_boundary(WORDS_BYTES)) {
        Some(start) if start.len() < text.len() => format!("{start}…"),
        Some(_) | None => text.to_owned(),
    };
    let detail = if detail_json.len() > DETAIL_BYTES {
        format!(r#"{{"left_out_bytes":{}}}"#, detail_json.len())
    } else {
        detail_json.clone()
    };
    transaction
        .prepare_cached("INSERT INTO entries (at_ms, kind, subject, words, detail) VALUES (?1, ?2, ?3, ?4, ?5)")?
        .execute(params![at.unix_ms, kind.word(), cut(subject), cut(words), detail])?;
    Ok(())
}

pub(super) fn down_to_minute(at_ms: i64) -> i64 {
    at_ms.div_euclid(MINUTE_MS) * MINUTE_MS
}

pub(super) fn up_to_minute(at_ms: i64) -> i64 {
    down_to_minute(at_ms.saturating_add(MINUTE_MS - 1))
}
