//! What makes room: points that are too old, and the oldest of everything when the file is too large.

use super::Limits;
use super::store::{DAY_MS, MINUTE_MS, StoreError, down_to_minute, up_to_minute};
use rusqlite::{Connection, Transaction};
use std::ops::RangeInclusive;
use std::time::Duration;

/// Tables whose rows have a time.
const TIMED: [&str; 4] = ["seconds", "tens", "minutes", "entries"];
/// Free pages that may stay in the file for what comes next.
const SPARE_PAGES: u64 = 256;

/// Forgets what lies farther from now than it may. A clock that is wrong for a moment must not wipe out everything: an
/// age counts only when it was reached the last time already, so `now_ms` spans both times, and of the coarser forms a
/// few hours go at once.
///
/// # Errors
/// When SQLite refuses; what was forgotten until then stays forgotten.
pub(super) fn forget(
    connection: &mut Connection,
    limits: Limits,
    now_ms: &RangeInclusive<i64>,
) -> Result<(), StoreError> {
    let Limits { seconds_kept, tens_kept, minutes_kept, .. } = limits;
    let transaction = connection.transaction()?;
    for (table, kept, at_once_ms) in [
        // Everything in here is in a coarser form as well.
        ("seconds", seconds_kept, i64::MAX / 4),
        ("tens", tens_kept, 60 * MINUTE_MS),
        ("minutes", minutes_kept, DAY_MS / 4),
        ("entries", minutes_kept, DAY_MS / 4),
    ] {
        forget_beyond(&transaction, table, now_ms, milliseconds(kept), at_once_ms)?;
    }
    transaction.commit()?;
    let free = pragma(connection, "freelist_count")?;
    if free > SPARE_PAGES {
        give_back(connection, free - SPARE_PAGES)?;
    }
    Ok(())
}

/// Drops the oldest of everything while the file is too large, a sixteenth of the time it covers in each round.
///
/// # Errors
/// As [`forget`].
pub(super) fn keep_small(connection: &mut Connection, most_bytes: u64, now_ms: i64) -> Result<(), StoreError> {
    if file_bytes(connection)? <= most_bytes {
        return Ok(());
    }
    let page_bytes = pragma(connection, "page_size")?.max(1);
    // Some room, so that not every batch has to drop something.
    let enough_pages = most_bytes / page_bytes * 15 / 16;
    for _ in 0..64 {
        let used = pragma(connection, "page_count")?.saturating_sub(pragma(connection, "freelist_count")?);
        if used <= enough_pages {
            break;
        }
        let Some(oldest_ms) = oldest_ms(connection, &TIMED)? else { break };
        let covered_ms = now_ms.saturating_sub(oldest_ms).max(0);
        let cut_ms = up_to_minute(oldest_ms.saturating_add(covered_ms / 16).saturating_add(1));
        let transaction = connection.transaction()?;
        for table in TIMED {
            transaction.execute(&format!("DELETE FROM {table} WHERE at_ms < ?1"), [cut_ms])?;
        }
        transaction.commit()?;
    }
    let free = pragma(connection, "freelist_count")?;
    give_back(connection, free)
}

/// Size of the file without its log.
///
/// # Errors
/// When SQLite does not say.
pub(super) fn file_bytes(connection: &Connection) -> Result<u64, StoreError> {
    Ok(pragma(connection, "page_count")? * pragma(connection, "page_size")?)
}

/// The oldest instant in these tables.
///
/// # Errors
/// When SQLite refuses.
pub(super) fn oldest_ms(connection: &Connection, tables: &[&str]) -> Result<Option<i64>, StoreError> {
    let mut oldest_ms = None;
    for table in tables {
        let here: Option<i64> =
            connection.query_row(&format!("SELECT min(at_ms) FROM {table}"), [], |row| row.get(0))?;
        oldest_ms = match (oldest_ms, here) {
            (Some(one), Some(other)) => Some(i64::min(one, other)),
            (one, other) => one.or(other),
        };
    }
    Ok(oldest_ms)
}

/// Forgets what lies farther from now than it may, on either side; whole minutes, so that each minute is either there
/// in a form or not.
fn forget_beyond(
    transaction: &Transaction<'_>,
    table: &str,
    now_ms: &RangeInclusive<i64>,
    kept_ms: i64,
    at_once_ms: i64,
) -> Result<(), StoreError> {
    // One by one: SQLite reads the whole table to find both at once.
    let extremes = format!("SELECT (SELECT min(at_ms) FROM {table}), (SELECT max(at_ms) FROM {table})");
    let (oldest_ms, newest_ms): (Option<i64>, Option<i64>) =
        transaction.prepare_cached(&extremes)?.query_row([], |row| Ok((row.get(0)?, row.get(1)?)))?;
    let (Some(oldest_ms), Some(newest_ms)) = (oldest_ms, newest_ms) else { return Ok(()) };
    let past_ms = down_to_minute(now_ms.start().saturating_sub(kept_ms));
    if oldest_ms < past_ms {
        let cut_ms = past_ms.min(down_to_minute(oldest_ms).saturating_add(at_once_ms));
        transaction.execute(&format!("DELETE FROM {table} WHERE at_ms < ?1"), [cut_ms])?;
    }
    let future_ms = up_to_minute(now_ms.end().saturating_add(kept_ms));
    if newest_ms >= future_ms {
        let cut_ms = future_ms.max(up_to_minute(newest_ms).saturating_sub(at_once_ms));
        transaction.execute(&format!("DELETE FROM {table} WHERE at_ms >= ?1"), [cut_ms])?;
    }
    Ok(())
}

fn pragma(connection: &Connection, name: &str) -> Result<u64, StoreError> {
    let value: i64 = connection.prepare_cached(&format!("PRAGMA {name}"))?.query_row([], |row| row.get(0))?;
    Ok(u64::try_from(value).unwrap_or(0))
}

/// Gives free pages back to the file system. SQLite gives one with each step of the statement.
fn give_back(connection: &Connection, pages: u64) -> Result<(), StoreError> {
    let mut statement = connection.prepare(&format!("PRAGMA incremental_vacuum({pages})"))?;
    let mut steps = statement.query([])?;
    while steps.next()?.is_some() {}
    Ok(())
}

fn milliseconds(span: Duration) -> i64 {
    i64::try_from(span.as_millis()).unwrap_or(i64::MAX)
}
