//! The last while as the popover draws it.

use super::{Entry, History, HistoryError, Row, SeriesFilter};
use crate::translation::rfc3339;
use stablehand_engine::time::Wall;
use stablehand_protocol::{Past, PastEvent, PastPoint};
use std::time::Duration;

/// The most events that are told.
const MOST_EVENTS: usize = 100;

type Field = fn(&mut PastPoint) -> &mut Option<f64>;

/// Series of [`PastPoint`], with how one of its fields is reached.
const SERIES: [(&str, Field); 4] = [
    ("memory_used_bytes", |point| &mut point.used_bytes),
    ("swap_used_bytes", |point| &mut point.swap_used_bytes),
    ("swap_out_bytes_per_s", |point| &mut point.swap_out_bytes_per_s),
    ("queue_at_most", |point| &mut point.waiting_at_most),
];

/// The last while until `now`, in so many points.
///
/// # Errors
/// As [`History::query`].
pub async fn past(history: &History, now: Wall, span: Duration, points: u32) -> Result<Past, HistoryError> {
    let span_ms = i64::try_from(span.as_millis()).unwrap_or(i64::MAX);
    let since = Wall::from_unix_ms(now.unix_ms.saturating_sub(span_ms));
    let names = SERIES.iter().map(|(name, _)| (*name).to_owned()).collect();
    let until = Wall::from_unix_ms(now.unix_ms.saturating_add(1));
    let rows = history.query(since, until, SeriesFilter::Named(names)).await?;
    let entries = history.entries(since).await?;
    Ok(Past { points: gather(&rows, since, span_ms, points), events: events(&entries) })
}

fn gather(rows: &[Row], since: Wall, span_ms: i64, points: u32) -> Vec<PastPoint> {
    let width_ms = (span_ms / i64::from(points.max(1))).max(1);
    let mut gathered: Vec<PastPoint> = Vec::new();
    let mut number = None;
    let mut counts = [0.0; SERIES.len()];
    for row in rows {
        let here = (row.at.unix_ms - since.unix_ms).max(0) / width_ms;
        if number != Some(here) {
            number = Some(here);
            counts = [0.0; SERIES.len()];
            let at = rfc3339(Wall::from_unix_ms(since.unix_ms + here * width_ms));
            gathered.push(PastPoint { at, ..PastPoint::default() });
        }
        let Some(index) = SERIES.iter().position(|(name, _)| *name == &*row.series) else { continue };
        let (Some(point), (name, field)) = (gathered.last_mut(), SERIES[index]) else { continue };
        let field = field(point);
        counts[index] += 1.0;
        *field = Some(match *field {
            Some(before) if name == "queue_at_most" => before.max(row.max),
            // The mean of what came so far.
            Some(before) => before + (row.avg - before) / counts[index],
            None if name == "queue_at_most" => row.max,
            None => row.avg,
        });
    }
    gathered
}

fn events(entries: &[Entry]) -> Vec<PastEvent> {
    entries[entries.len().saturating_sub(MOST_EVENTS)..]
        .iter()
        .map(|entry| PastEvent {
            at: rfc3339(entry.at),
            kind: entry.kind.word().to_owned(),
            subject: entry.subject.clone(),
            words: entry.words.clone(),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(at_ms: i64, series: &str, value: f64) -> Row {
        Row {
            at: Wall::from_unix_ms(at_ms),
            span: Duration::ZERO,
            series: series.into(),
            min: value,
            avg: value,
            max: value,
        }
    }

    #[test]
    fn rows_are_gathered_into_points_and_a_span_without_any_has_none() {
        let rows = [
            row(1_000, "memory_used_bytes", 10.0),
            row(1_000, "queue_at_most", 2.0),
            row(1_500, "memory_used_bytes", 20.0),
            row(1_500, "queue_at_most", 5.0),
            row(1_900, "memory_used_bytes", 30.0),
            row(9_000, "swap_used_bytes", 1.0),
        ];
        let points = gather(&rows, Wall::from_unix_ms(0), 10_000, 10);
        assert_eq!(points.len(), 2, "{points:?}");
        assert_eq!(points[0].at, "1970-01-01T00:00:01Z");
        assert_eq!((points[0].used_bytes, points[0].waiting_at_most), (Some(20.0), Some(5.0)));
        assert_eq!((points[1].used_bytes, points[1].swap_used_bytes), (None, Some(1.0)));
    }
}
