//! The history as its users see it. Limits of the file are tested on [`Store`], with time handed in.

use super::store::{Batch, Sample, Store, TEN_SECONDS_MS};
use super::*;
use std::fs;
use std::process::{Command, Stdio};

mod amounts;
mod survival;

/// 2026-11-07T12:00:00Z.
const NOON_MS: i64 = 1_794_052_800_000;

fn at(unix_ms: i64) -> Wall {
    Wall::from_unix_ms(unix_ms)
}

fn sample(at_ms: i64, series: &str, value: f64) -> Sample {
    Sample { at_ms, series: series.into(), value }
}

fn points(samples: impl IntoIterator<Item = Sample>) -> Batch {
    Batch { points: samples.into_iter().collect(), entries: vec![] }
}

fn event(at_ms: i64, words: &str) -> Entry {
    Entry {
        at: at(at_ms),
        kind: Kind::Alert,
        subject: "server".to_owned(),
        words: words.to_owned(),
        detail_json: "{}".to_owned(),
    }
}

fn open(path: &Path) -> Store {
    let (store, note) = Store::open(path, Limits::default(), at(NOON_MS)).unwrap();
    assert_eq!(note, None);
    store
}

fn everything(store: &Store) -> Vec<Row> {
    let wanted = reading::Wanted {
        since: at(i64::MIN / 2),
        until: at(i64::MAX / 2),
        series: SeriesFilter::All,
        most_rows: usize::MAX,
    };
    reading::rows(store.connection(), &wanted).unwrap()
}

fn only(rows: &[Row], span_s: u64) -> Vec<&Row> {
    rows.iter().filter(|row| row.span.as_secs() == span_s).collect()
}

/// Where rows of one series end that was seen each second; there must be no gap, and nothing told twice.
fn end_without_gaps(rows: &[Row]) -> i64 {
    let mut next_ms = rows[0].at.unix_ms;
    for row in rows {
        assert_eq!(row.at.unix_ms, next_ms);
        next_ms += if row.span.is_zero() { 1000 } else { row.span.as_millis() as i64 };
    }
    next_ms
}

#[test]
fn series_are_written_one_way() {
    assert_eq!(series("memory_used_bytes", &[]), "memory_used_bytes");
    assert_eq!(
        series("tokens_per_s", &[("pid", "17"), ("model", "a\"b\\c")]),
        r#"tokens_per_s{model="a\"b\\c",pid="17"}"#
    );
    let filter = SeriesFilter::Named(vec!["tokens_per_s".to_owned(), r#"x{a="1"}"#.to_owned()]);
    assert!(filter.wants(r#"tokens_per_s{model="m"}"#) && filter.wants("tokens_per_s") && filter.wants(r#"x{a="1"}"#));
    assert!(!filter.wants("tokens_per_s_max") && !filter.wants("x") && !filter.wants(r#"x{a="2"}"#));
}

#[tokio::test]
async fn what_is_recorded_is_there_at_once_and_after_a_restart_and_without_a_daemon() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("data/history.sqlite");
    assert_eq!(read(&path, at(0)), Err(HistoryError::Missing(path.clone())));
    let (history, note) = History::open_at(path.clone(), Limits::default(), at(NOON_MS));
    assert_eq!(note, None);
    history.record(&[
        Point::new(at(NOON_MS), "swap_used_bytes", 5e9),
        Point::new(at(NOON_MS), "memory_used_bytes", 40e9),
        Point::new(at(NOON_MS), "queue_at_least", f64::NAN),
    ]);
    history.note(event(NOON_MS + 5, "it is warm"));
    history.record(&[Point::new(at(NOON_MS + 1000), "memory_used_bytes", 41e9)]);
    let rows = history.query(at(NOON_MS), at(NOON_MS + 60_000), SeriesFilter::All).await.unwrap();
    let told: Vec<_> = rows.iter().map(|row| (row.at.unix_ms - NOON_MS, row.series.as_ref(), row.avg)).collect();
    assert_eq!(told, [(0, "memory_used_bytes", 40e9), (0, "swap_used_bytes", 5e9), (1000, "memory_used_bytes", 41e9)]);
    let memory = SeriesFilter::Named(vec!["memory_used_bytes".to_owned()]);
    assert_eq!(history.query(at(NOON_MS + 1), at(NOON_MS + 1001), memory).await.unwrap().len(), 1);
    assert_eq!(history.entries(at(NOON_MS)).await.unwrap(), [event(NOON_MS + 5, "it is warm")]);
    // A reader beside the running daemon, and one after its end.
    let beside = read(&path, at(NOON_MS)).unwrap();
    assert_eq!(beside.rows, rows);
    drop(history);
    assert_eq!(read(&path, at(NOON_MS)).unwrap(), beside);
    assert_eq!(read(&path, at(NOON_MS + 1_000)).unwrap().rows.len(), 1);
    let (history, note) = History::open_at(path, Limits::default(), at(NOON_MS));
    assert_eq!(note, None);
    assert_eq!(history.query(at(NOON_MS), at(NOON_MS + 60_000), SeriesFilter::All).await.unwrap(), rows);
    assert!(history.dropped_points() == 0 && history.trouble().is_none() && history.file_bytes() == 0);
}

#[tokio::test]
async fn a_full_queue_drops_points_counts_them_and_keeps_places_for_events() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("history.sqlite");
    // Nobody takes anything from the queue yet.
    let (history, inbox) = History::with_queue(path.clone(), None);
    for second in 0..300 {
        history.record(&[
            Point::new(at(NOON_MS + second * 1000), "a", 1.0),
            Point::new(at(NOON_MS + second * 1000), "b", 2.0),
        ]);
    }
    let taken = QUEUE - QUEUE_KEPT_FREE_OF_POINTS;
    assert_eq!(history.dropped_points(), 2 * (300 - taken as u64));
    for _ in 0..QUEUE {
        history.note(event(NOON_MS, "it is warm"));
    }
    assert_eq!(history.dropped_entries(), taken as u64);
    assert_eq!(history.entries(at(0)).await, Err(HistoryError::Busy));
    // What was taken is written as soon as somebody writes.
    let thread =
        writer::start(path.clone(), Limits::default(), Some(open(&path)), inbox, Arc::clone(&history.desk.shared));
    drop(history.joined_by(thread.unwrap()));
    let recorded = read(&path, at(0)).unwrap();
    assert_eq!((recorded.rows.len(), recorded.entries.len()), (2 * taken, QUEUE_KEPT_FREE_OF_POINTS));
}

#[tokio::test]
async fn a_folder_that_cannot_be_made_is_said_and_nothing_else_breaks() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("file"), "in the way").unwrap();
    let path = folder.path().join("file/history.sqlite");
    let (history, note) = History::open_at(path.clone(), Limits::default(), at(NOON_MS));
    assert!(note.unwrap().contains("no history is kept"));
    history.record(&[Point::new(at(NOON_MS), "a", 1.0)]);
    history.note(event(NOON_MS, "it is warm"));
    assert!(matches!(history.entries(at(0)).await, Err(HistoryError::NotKept(_))));
    assert_eq!((history.dropped_points(), history.dropped_entries()), (1, 1));
    assert_eq!(read(&path, at(0)), Err(HistoryError::Missing(path)));
}

#[tokio::test]
async fn a_file_that_somebody_removed_is_begun_again_and_the_new_one_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("history.sqlite");
    let (history, _) = History::open_at(path.clone(), Limits::default(), at(NOON_MS));
    history.note(event(NOON_MS, "before"));
    assert_eq!(history.entries(at(0)).await.unwrap().len(), 1);
    fs::remove_file(&path).unwrap();
    history.note(event(NOON_MS + 1, "after"));
    let entries = history.entries(at(0)).await.unwrap();
    let told: Vec<_> = entries.iter().map(|entry| (entry.kind.word(), entry.words.as_str())).collect();
    assert_eq!(told, [("history", "somebody took the file away; it goes on here"), ("alert", "after")]);
}

#[tokio::test]
async fn a_long_answer_is_put_together_until_it_fits() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = open(&folder.path().join("history.sqlite"));
    for minute in 0..200 {
        let samples = (0..60).map(|second| sample(NOON_MS + (minute * 60 + second) * 1000, "a", second as f64));
        store.write(&points(samples)).unwrap();
    }
    let wanted = |most_rows| reading::Wanted {
        since: at(NOON_MS),
        until: at(NOON_MS + 200 * 60_000),
        series: SeriesFilter::All,
        most_rows,
    };
    let rows = reading::rows(store.connection(), &wanted(50)).unwrap();
    assert_eq!(rows.len(), 40);
    for row in &rows {
        assert_eq!((row.span.as_secs(), row.min, row.max), (300, 0.0, 59.0));
        assert!((row.avg - 29.5).abs() < 1e-9);
    }
    assert_eq!(reading::rows(store.connection(), &wanted(1_000_000)).unwrap().len(), everything(&store).len());
}

#[test]
fn words_and_particulars_have_a_length() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = open(&folder.path().join("history.sqlite"));
    let mut long = event(NOON_MS, &"큰".repeat(5_000));
    long.detail_json = format!("\"{}\"", "x".repeat(100_000));
    store.write(&Batch { points: vec![], entries: vec![long] }).unwrap();
    let entries = reading::entries(store.connection(), at(0)).unwrap();
    assert!(entries[0].words.ends_with("큰…") && entries[0].words.len() < 4_200);
    assert_eq!(entries[0].detail_json, r#"{"left_out_bytes":100002}"#);
}
