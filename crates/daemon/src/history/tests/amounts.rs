//! What is kept for how long, in which form, and how much room it takes.

use super::*;
use std::os::unix::fs::PermissionsExt;

/// Twenty series.
fn names() -> Vec<String> {
    let machine = [
        "memory_used_bytes",
        "memory_compressed_bytes",
        "memory_wired_bytes",
        "swap_used_bytes",
        "swap_in_bytes_per_s",
        "swap_out_bytes_per_s",
        "pressure_level",
        "gpu_ratio",
        "queue_at_least",
        "queue_at_most",
        "server_serving",
    ];
    let mut names = machine.map(str::to_owned).to_vec();
    for model in ["gemma3:27b", "qwen3:14b", "nomic-embed-text:latest"] {
        for name in ["tokens_per_s", "footprint_bytes", "slots_busy"] {
            names.push(series(name, &[("model", model)]));
        }
    }
    assert_eq!(names.len(), 20);
    names
}

/// A second of the machine: some numbers level, some restless, some whole, some not.
fn second(names: &[String], at_ms: i64) -> Vec<Sample> {
    let noise = |salt: i64| {
        let mixed = ((at_ms / 1000) ^ salt.wrapping_mul(0x9e37_79b9)).wrapping_mul(0x5851_f42d_4c95_7f2d);
        f64::from(u32::try_from((mixed >> 33) & 0xffff).unwrap())
    };
    let number = |(salt, name): (i64, &String)| {
        let value = match name.split('{').next().unwrap() {
            "swap_used_bytes" => 1_073_741_824.0,
            "pressure_level" | "server_serving" => 1.0,
            "swap_out_bytes_per_s" => 0.0,
            "swap_in_bytes_per_s" => noise(salt) * 17.3,
            "gpu_ratio" => noise(salt) / 65_535.0,
            "tokens_per_s" => noise(salt) / 1_000.0,
            "slots_busy" | "queue_at_least" | "queue_at_most" => (noise(salt) / 20_000.0).floor(),
            _bytes => 43_210_987_520.0 + noise(salt) * 16_384.0,
        };
        sample(at_ms, name, value)
    };
    (1..).zip(names).map(number).collect()
}

fn numbers(at_ms: i64, step_ms: i64, count: i64, value: impl Fn(i64) -> f64) -> Vec<Sample> {
    (0..count).map(|n| sample(at_ms + n * step_ms, "a", value(n))).collect()
}

#[test]
fn seconds_become_tens_and_minutes_that_agree_with_them() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = open(&folder.path().join("history.sqlite"));
    // Three hours; the least, mean and greatest of each stretch are known.
    let value = |n: i64| (n % 60) as f64 * if n % 2 == 0 { 1.0 } else { -1.0 };
    for chunk in numbers(NOON_MS, 1000, 3 * 3600, value).chunks(7) {
        store.write(&points(chunk.to_vec())).unwrap();
    }
    let rows = everything(&store);
    let (fine, tens) = (only(&rows, 0), only(&rows, 10));
    assert!((15 * 60..=17 * 60).contains(&fine.len()), "{}", fine.len());
    assert_eq!(tens.len() * 10 + fine.len(), 3 * 3600);
    assert!(only(&rows, 60).is_empty());
    for row in tens {
        let first = (row.at.unix_ms - NOON_MS) / 1000;
        let inside: Vec<f64> = (first..first + 10).map(value).collect();
        let mean = inside.iter().sum::<f64>() / 10.0;
        assert_eq!(row.min, inside.iter().copied().fold(f64::MAX, f64::min));
        assert_eq!(row.max, inside.iter().copied().fold(f64::MIN, f64::max));
        assert!((row.avg - mean).abs() < 1e-9);
    }
    // The same as minutes, which lie beneath.
    store.connection().execute_batch("DELETE FROM tens; DELETE FROM seconds").unwrap();
    let minutes = everything(&store);
    assert_eq!(minutes.len(), 179);
    assert!(minutes.iter().all(|row| (row.min, row.max, row.avg.round()) == (-59.0, 58.0, -1.0)), "{minutes:?}");
}

#[test]
fn each_form_is_kept_as_long_as_it_may_and_no_longer() {
    let folder = tempfile::tempdir().unwrap();
    let limits = Limits {
        seconds_kept: Duration::from_mins(2),
        tens_kept: Duration::from_mins(10),
        minutes_kept: Duration::from_hours(1),
        ..Limits::default()
    };
    let (mut store, _) = Store::open(&folder.path().join("history.sqlite"), limits, at(NOON_MS)).unwrap();
    store.write(&Batch { points: vec![], entries: vec![event(NOON_MS, "long ago")] }).unwrap();
    for chunk in numbers(NOON_MS, 1000, 4 * 3600, |n| n as f64).chunks(60) {
        store.write(&points(chunk.to_vec())).unwrap();
    }
    let rows = everything(&store);
    let end_ms = NOON_MS + 4 * 3_600_000;
    let oldest = |span_s| end_ms - only(&rows, span_s)[0].at.unix_ms;
    assert!((2..=4).contains(&(oldest(0) / 60_000)), "{}", oldest(0));
    assert!((10..=12).contains(&(oldest(10) / 60_000)), "{}", oldest(10));
    assert!((60..=62).contains(&(oldest(60) / 60_000)), "{}", oldest(60));
    assert_eq!(end_without_gaps(&rows), end_ms);
    assert!(reading::entries(store.connection(), at(0)).unwrap().is_empty());
}

#[test]
fn a_small_file_keeps_the_newest_of_everything() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("history.sqlite");
    let limits = Limits { file_bytes: 400_000, ..Limits::default() };
    let (mut store, _) = Store::open(&path, limits, at(NOON_MS)).unwrap();
    let names = names();
    let mut largest = 0;
    for minute in 0..24 * 60 {
        let at_ms = NOON_MS + minute * 60_000;
        let mut batch = points((0..6).flat_map(|ten| second(&names, at_ms + ten * TEN_SECONDS_MS)));
        let detail_json = format!("{{\"evidence\":\"{}\"}}", "x".repeat(300));
        batch.entries.push(Entry { detail_json, ..event(at_ms, "it is warm") });
        store.write(&batch).unwrap();
        largest = largest.max(fs::metadata(&path).unwrap().len());
    }
    assert!(largest <= 450_000, "{largest}");
    let gives_back: i64 = store.connection().query_row("PRAGMA auto_vacuum", [], |row| row.get(0)).unwrap();
    assert_eq!(gives_back, 2);
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let rows = everything(&store);
    let newest = rows.last().unwrap().at.unix_ms;
    assert_eq!(newest, NOON_MS + 24 * 3_600_000 - TEN_SECONDS_MS);
    let entries = reading::entries(store.connection(), at(0)).unwrap();
    assert_eq!(entries.last().unwrap().at.unix_ms, newest - 50_000);
    // Both go back about as far: neither pushes the other out.
    assert!((rows[0].at.unix_ms - entries[0].at.unix_ms).abs() <= 60_000);
    assert!(entries.len() > 60, "{}", entries.len());
}

#[test]
fn a_clock_that_is_set_back_breaks_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("history.sqlite");
    let mut store = open(&path);
    let mut record = |at_ms: i64, count: i64, value: f64| {
        for chunk in numbers(at_ms, 1000, count, |_| value).chunks(30) {
            store.write(&points(chunk.to_vec())).unwrap();
        }
    };
    record(NOON_MS, 3600, 1.0);
    // By half an hour: what is told of these minutes holds both.
    record(NOON_MS + 1_800_000, 1800, 5.0);
    record(NOON_MS + 3_600_000, 3600, 1.0);
    store.connection().execute_batch("DELETE FROM seconds").unwrap();
    let rows = everything(&store);
    let tens = only(&rows, 10);
    assert_eq!(tens.len(), 2 * 360 - 1);
    let twice: Vec<_> = tens.iter().filter(|row| row.min < row.max).collect();
    assert_eq!(twice.len(), 180);
    assert!(twice.iter().all(|row| (row.min, row.avg, row.max) == (1.0, 3.0, 5.0)));
    drop(store);
    assert_eq!(everything(&open(&path)), rows);
}

#[test]
fn a_clock_that_is_wrong_for_a_moment_costs_nothing_that_is_kept() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = open(&folder.path().join("history.sqlite"));
    let ten_years_ms = 315_360_000_000;
    let mut record = |at_ms: i64, count: i64| {
        for chunk in numbers(at_ms, TEN_SECONDS_MS, count, |_| 1.0).chunks(6) {
            store.write(&points(chunk.to_vec())).unwrap();
        }
    };
    record(NOON_MS, 360);
    record(NOON_MS + ten_years_ms, 2);
    record(NOON_MS + 3_600_000, 360);
    record(NOON_MS - 2 * ten_years_ms, 2);
    record(NOON_MS + 7_200_000, 360);
    store.connection().execute_batch("DELETE FROM seconds").unwrap();
    let rows = everything(&store);
    assert_eq!(rows.len(), 3 * 360 - 1);
    // What was told of these moments is as far from now as it can be, and gone.
    assert!(rows.iter().all(|row| (NOON_MS..NOON_MS + 10_800_000).contains(&row.at.unix_ms)));
}

#[test]
fn too_many_series_are_refused_until_unused_ones_are_forgotten() {
    let folder = tempfile::tempdir().unwrap();
    let limits = Limits { series: 300, minutes_kept: Duration::from_hours(24), ..Limits::default() };
    let (mut store, _) = Store::open(&folder.path().join("history.sqlite"), limits, at(NOON_MS)).unwrap();
    let runners = |at_ms: i64, pids: std::ops::Range<i64>| {
        points(pids.map(|pid| sample(at_ms, &series("footprint_bytes", &[("pid", &pid.to_string())]), pid as f64)))
    };
    assert_eq!(store.write(&runners(NOON_MS, 0..310)).unwrap(), 10);
    let day_ms = 86_400_000;
    // Three days later nothing tells of them any more.
    for minute in 0..3 * 24 * 60 {
        store.write(&points([sample(NOON_MS + minute * 60_000, "footprint_bytes{pid=\"1\"}", 1.0)])).unwrap();
    }
    assert_eq!(store.write(&runners(NOON_MS + 3 * day_ms, 1000..1200)).unwrap(), 0);
    let names: i64 = store.connection().query_row("SELECT count(*) FROM series", [], |row| row.get(0)).unwrap();
    assert_eq!(names, 201);
}

#[tokio::test]
async fn thirty_days_stay_below_fifty_megabytes() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("history.sqlite");
    let (mut store, names) = (open(&path), names());
    let day_ms = 86_400_000;
    // As a machine does it: now and then while nobody looks, each second at the end.
    let end_ms = NOON_MS + 31 * day_ms;
    let stretches =
        [(NOON_MS, 30_000), (end_ms - day_ms, TEN_SECONDS_MS), (end_ms - 15 * 60_000, 1000), (end_ms, 1000)];
    for pair in stretches.windows(2) {
        let ((from_ms, step_ms), (to_ms, _)) = (pair[0], pair[1]);
        let instants: Vec<i64> = (from_ms..to_ms).step_by(step_ms as usize).collect();
        for chunk in instants.chunks(60) {
            store.write(&points(chunk.iter().flat_map(|at_ms| second(&names, *at_ms)))).unwrap();
        }
    }
    let bytes = |ending: &str| fs::metadata(broken::beside(&path, ending)).map_or(0, |about| about.len());
    let all = bytes("") + bytes("-wal") + bytes("-shm");
    eprintln!("30 days of 20 series take {all} bytes");
    assert!(all < 25_000_000, "{all}");
    let rows = |table: &str| -> i64 {
        store.connection().query_row(&format!("SELECT count(*) FROM {table}"), [], |row| row.get(0)).unwrap()
    };
    assert!((30 * 1440..30 * 1440 + 10).contains(&rows("minutes")), "{}", rows("minutes"));
    assert!((8_640..8_700).contains(&rows("tens")), "{}", rows("tens"));
    assert!((900..1_100).contains(&rows("seconds")), "{}", rows("seconds"));
    store.close();
    // All of it is told, in an answer that is not too long.
    let (history, note) = History::open_at(path, Limits::default(), at(end_ms));
    assert_eq!(note, None);
    let told = history.query(at(0), at(end_ms), SeriesFilter::All).await.unwrap();
    assert!(told.len() > MOST_ROWS / 4 && told.len() <= MOST_ROWS, "{}", told.len());
    assert!(end_ms - told[0].at.unix_ms >= 30 * day_ms);
    let one = SeriesFilter::Named(vec!["memory_used_bytes".to_owned()]);
    let last_hour = history.query(at(end_ms - 3_600_000), at(end_ms), one).await.unwrap();
    assert!(last_hour.len() > 900 && last_hour.last().unwrap().at.unix_ms == end_ms - 1000);
}
