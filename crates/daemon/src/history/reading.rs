//! Questions to the file: by the daemon through its own connection, or by anyone without a daemon.
//!
//! Each stretch of time comes in the finest form that is kept of it. Forms are forgotten in whole minutes, so a minute
//! that has points as they came has all of them.

use super::packing;
use super::rollup::Span;
use super::store::{MINUTE_MS, StoreError, TEN_SECONDS_MS, down_to_minute, up_to_minute};
use super::{Entry, HistoryError, Kind, Recorded, Row, SeriesFilter};
use rusqlite::{Connection, OpenFlags};
use stablehand_engine::time::Wall;
use std::collections::btree_map;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// How long a writer may hold us up.
const PATIENCE: Duration = Duration::from_secs(2);
/// Lengths of spans that a person can read off an axis, in seconds.
const READABLE_S: [i64; 14] = [10, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14_400, 21_600, 43_200, 86_400];

/// A question for numbers.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Wanted {
    /// From here.
    pub(crate) since: Wall,
    /// To before here.
    pub(crate) until: Wall,
    /// Which series.
    pub(crate) series: SeriesFilter,
    /// How many rows at most; beyond that neighbours are put together.
    pub(crate) most_rows: usize,
}

/// Reads everything since an instant from a file, without a daemon and beside a running one. Nothing in it is changed.
///
/// # Errors
/// A [`HistoryError`] when there is no file or it cannot be read; it is left as it is.
pub fn read(path: &Path, since: Wall) -> Result<Recorded, HistoryError> {
    if !path.exists() {
        return Err(HistoryError::Missing(path.to_owned()));
    }
    let wanted =
        Wanted { since, until: Wall::from_unix_ms(i64::MAX), series: SeriesFilter::All, most_rows: usize::MAX };
    let everything = || -> Result<Recorded, StoreError> {
        let connection =
            Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
        connection.busy_timeout(PATIENCE)?;
        // One instant for both, while a daemon writes on.
        let moment = connection.unchecked_transaction()?;
        Ok(Recorded { rows: rows(&moment, &wanted)?, entries: entries(&moment, since)? })
    };
    everything().map_err(|error| unreadable(path, &error))
}

pub(super) fn unreadable(path: &Path, error: &StoreError) -> HistoryError {
    HistoryError::Unreadable { path: path.to_owned(), why: error.to_string() }
}

/// Events since an instant, in order of time.
pub(super) fn entries(connection: &Connection, since: Wall) -> Result<Vec<Entry>, StoreError> {
    let mut statement = connection
        .prepare("SELECT at_ms, kind, subject, words, detail FROM entries WHERE at_ms >= ?1 ORDER BY at_ms, id")?;
    let rows = statement.query_map([since.unix_ms], |row| {
        Ok(Entry {
            at: Wall::from_unix_ms(row.get(0)?),
            kind: Kind::from_word(&row.get::<_, String>(1)?),
            subject: row.get(2)?,
            words: row.get(3)?,
            detail_json: row.get(4)?,
        })
    })?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// Numbers, in order of time, then of series.
pub(super) fn rows(connection: &Connection, wanted: &Wanted) -> Result<Vec<Row>, StoreError> {
    let names = wanted_names(connection, &wanted.series)?;
    let mut gathering = Gathering::new(wanted.most_rows);
    let (since_ms, until_ms) = (wanted.since.unix_ms, wanted.until.unix_ms);
    // Whole minutes, so that a finer form is seen to cover a coarser one also at the ends.
    let around = [down_to_minute(since_ms), up_to_minute(until_ms)];
    let mut covered = Covered::default();
    let forms = [("seconds", 0), ("tens", TEN_SECONDS_MS), ("minutes", MINUTE_MS)];
    for (table, length_ms) in forms {
        let order = if length_ms == 0 { "at_ms, seq" } else { "at_ms" };
        let question = format!("SELECT at_ms, packed FROM {table} WHERE at_ms >= ?1 AND at_ms < ?2 ORDER BY {order}");
        let mut statement = connection.prepare(&question)?;
        let mut found = statement.query(around)?;
        let mut here = Vec::new();
        while let Some(row) = found.next()? {
            let at_ms: i64 = row.get(0)?;
            if covered.has(at_ms, length_ms) {
                continue;
            }
            here.push(at_ms);
            if at_ms.saturating_add(length_ms.max(1)) <= since_ms || at_ms >= until_ms {
                continue;
            }
            let packed = row.get_ref(1)?.as_blob().map_err(|_| packing::Damaged)?;
            packing::unpack(packed, |series, span| {
                if names.contains_key(&series) {
                    gathering.take(at_ms, length_ms, series, span);
                }
            })?;
        }
        // Afterwards, because rows of one form do not cover each other.
        here.into_iter().for_each(|at_ms| covered.add(at_ms));
    }
    Ok(gathering.rows(&names))
}

fn wanted_names(connection: &Connection, filter: &SeriesFilter) -> Result<HashMap<i64, Arc<str>>, StoreError> {
    let mut statement = connection.prepare("SELECT id, name FROM series")?;
    let mut found = statement.query([])?;
    let mut names = HashMap::new();
    while let Some(row) = found.next()? {
        let name: String = row.get(1)?;
        if filter.wants(&name) {
            names.insert(row.get(0)?, name.into());
        }
    }
    Ok(names)
}

/// Which spans of a coarser form are there in a finer one.
#[derive(Default)]
struct Covered {
    tens: HashSet<i64>,
    minutes: HashSet<i64>,
}

impl Covered {
    fn add(&mut self, at_ms: i64) {
        self.tens.insert(at_ms.div_euclid(TEN_SECONDS_MS));
        self.minutes.insert(at_ms.div_euclid(MINUTE_MS));
    }

    fn has(&self, at_ms: i64, length_ms: i64) -> bool {
        match length_ms {
            TEN_SECONDS_MS => self.tens.contains(&at_ms.div_euclid(TEN_SECONDS_MS)),
            MINUTE_MS => self.minutes.contains(&at_ms.div_euclid(MINUTE_MS)),
            _ => false,
        }
    }
}

/// Rows on their way out; too many of them are put together as they come, so that an answer never takes much memory.
struct Gathering {
    most_rows: usize,
    /// Length of the spans that everything is put into; 0 as long as everything stays as it is.
    step_ms: i64,
    /// By place and series: the length of the span, and what it holds.
    rows: BTreeMap<(i64, i64), (i64, Span)>,
}

impl Gathering {
    fn new(most_rows: usize) -> Self {
        Self { most_rows: most_rows.max(1), step_ms: 0, rows: BTreeMap::new() }
    }

    fn take(&mut self, at_ms: i64, length_ms: i64, series: i64, span: Span) {
        self.put(at_ms, length_ms, series, span);
        while self.rows.len() > self.most_rows && self.widen() {}
    }

    fn put(&mut self, at_ms: i64, length_ms: i64, series: i64, span: Span) {
        // A span that is longer already stays.
        let (at_ms, length_ms) = if self.step_ms > length_ms {
            (at_ms.div_euclid(self.step_ms) * self.step_ms, self.step_ms)
        } else {
            (at_ms, length_ms)
        };
        match self.rows.entry((at_ms, series)) {
            btree_map::Entry::Vacant(vacant) => {
                vacant.insert((length_ms, span));
            }
            btree_map::Entry::Occupied(mut occupied) => {
                let (length, there) = occupied.get_mut();
                *length = length_ms.max(*length);
                *there = there.with(span);
            }
        }
    }

    fn widen(&mut self) -> bool {
        let Some(next_s) = READABLE_S.iter().find(|seconds| **seconds * 1000 > self.step_ms) else { return false };
        self.step_ms = next_s * 1000;
        for ((at_ms, series), (length_ms, span)) in std::mem::take(&mut self.rows) {
            self.put(at_ms, length_ms, series, span);
        }
        true
    }

    fn rows(self, names: &HashMap<i64, Arc<str>>) -> Vec<Row> {
        let named = |((at_ms, series), (length_ms, span)): ((i64, i64), (i64, Span))| {
            let Span { min, avg, max, count: _ } = span;
            let span = Duration::from_millis(u64::try_from(length_ms).unwrap_or(0));
            Some(Row { at: Wall::from_unix_ms(at_ms), span, series: Arc::clone(names.get(&series)?), min, avg, max })
        };
        let mut rows: Vec<Row> = self.rows.into_iter().filter_map(named).collect();
        rows.sort_by(|one, other| one.at.cmp(&other.at).then_with(|| one.series.cmp(&other.series)));
        rows
    }
}
