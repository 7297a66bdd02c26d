//! Killed daemons and broken files.

use super::*;
use std::io::{BufRead, BufReader};

/// Tells this test, started a second time as a process of its own, where to write.
const CHILD: &str = "STABLEHAND_TEST_HISTORY";

/// Something that happens to a file.
type Damage<'a> = &'a dyn Fn(&Path);

#[test]
fn what_was_written_before_a_kill_is_there_after_it() {
    if let Some(path) = std::env::var_os(CHILD) {
        write_until_killed(Path::new(&path));
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("history.sqlite");
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "history::tests::survival::what_was_written_before_a_kill_is_there_after_it", "--nocapture"])
        .env(CHILD, &path)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    // Far enough for several minutes, checkpoints of the log and things forgotten.
    let told = lines.find(|line| line.as_ref().unwrap() == "written 400").unwrap();
    assert!(told.is_ok());
    child.kill().unwrap();
    child.wait().unwrap();
    let beside = read(&path, at(0)).unwrap();
    let store = open(&path);
    let rows = everything(&store);
    assert_eq!(rows, beside.rows);
    assert_eq!(rows[0].at.unix_ms, NOON_MS);
    assert!(end_without_gaps(&rows) >= NOON_MS + 401 * 5_000);
    let entries = reading::entries(store.connection(), at(0)).unwrap();
    assert!(entries.len() > 400);
}

fn write_until_killed(path: &Path) {
    let mut store = open(path);
    for batch in 0.. {
        let at_ms = NOON_MS + batch * 5_000;
        let samples = (0..5).map(|second| sample(at_ms + second * 1000, "a", second as f64));
        let entries = vec![event(at_ms, &"it is warm ".repeat(40))];
        store.write(&Batch { points: samples.collect(), entries }).unwrap();
        println!("written {batch}");
    }
}

#[test]
fn a_file_copied_while_it_is_written_is_whole() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("history.sqlite");
    let mut store = open(&path);
    for second in 0..95 {
        store.write(&points([sample(NOON_MS + second * 1000, "a", 1.0)])).unwrap();
    }
    // An unfinished transaction, as the kill finds it.
    store.connection().execute_batch("BEGIN; DELETE FROM seconds; DELETE FROM tens; PRAGMA cache_spill = 1").unwrap();
    let copy = folder.path().join("copy.sqlite");
    for ending in ["", "-wal"] {
        fs::copy(broken::beside(&path, ending), broken::beside(&copy, ending)).unwrap();
    }
    let mut copied = open(&copy);
    assert_eq!(everything(&copied).len(), 95);
    // The spans that were open go on where they were.
    for second in 95..130 {
        copied.write(&points([sample(NOON_MS + second * 1000, "a", 7.0)])).unwrap();
    }
    copied.connection().execute_batch("DELETE FROM seconds").unwrap();
    let rows = everything(&copied);
    assert_eq!(rows.len(), 12);
    let torn = rows.iter().find(|row| row.at.unix_ms == NOON_MS + 90_000).unwrap();
    assert_eq!((torn.min, torn.avg, torn.max), (1.0, 4.0, 7.0));
    copied.connection().execute_batch("DELETE FROM tens").unwrap();
    let minutes = everything(&copied);
    assert_eq!(minutes.len(), 2);
    assert!((minutes[1].avg - (35.0 + 25.0 * 7.0) / 60.0).abs() < 1e-9);
}

#[test]
fn a_failed_write_leaves_no_half_and_the_next_one_works() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = open(&folder.path().join("history.sqlite"));
    store.write(&points([sample(NOON_MS, "a", 1.0)])).unwrap();
    store
        .connection()
        .execute_batch("CREATE TEMP TRIGGER full BEFORE INSERT ON main.entries BEGIN SELECT RAISE(ABORT, 'full'); END")
        .unwrap();
    let mut batch = points([sample(NOON_MS + 20_000, "new", 2.0), sample(NOON_MS + 20_000, "a", 3.0)]);
    batch.entries.push(event(NOON_MS, "it is warm"));
    assert!(store.write(&batch).is_err());
    assert_eq!(everything(&store).len(), 1);
    store.connection().execute_batch("DROP TRIGGER full").unwrap();
    store.write(&batch).unwrap();
    assert_eq!(everything(&store).len(), 3);
    store.connection().execute_batch("DELETE FROM seconds").unwrap();
    assert_eq!(everything(&store).iter().map(|row| row.avg).collect::<Vec<_>>(), [1.0]);
}

#[test]
fn a_broken_file_is_set_aside_and_said() {
    let scribbled = |path: &Path| {
        let mut bytes = fs::read(path).unwrap();
        let length = bytes.len();
        bytes[length / 3..length / 3 + 8_192].fill(0x5a);
        fs::write(path, bytes).unwrap();
    };
    let cut = |path: &Path| {
        let bytes = fs::read(path).unwrap();
        fs::write(path, &bytes[..bytes.len() / 2]).unwrap();
    };
    let foreign = |path: &Path| {
        fs::remove_file(path).unwrap();
        rusqlite::Connection::open(path).unwrap().execute_batch("CREATE TABLE chats (words TEXT)").unwrap();
    };
    let newer = |path: &Path| {
        rusqlite::Connection::open(path).unwrap().execute_batch("PRAGMA user_version = 99").unwrap();
    };
    let noise = |path: &Path| fs::write(path, "not a database at all, but rather long ".repeat(400)).unwrap();
    let breakages: [(&str, Damage<'_>); 5] = [
        ("scribbled", &scribbled),
        ("cut", &cut),
        ("another program", &foreign),
        ("layout 99", &newer),
        ("not a database", &noise),
    ];
    for (name, damage) in breakages {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("history.sqlite");
        let mut store = open(&path);
        for minute in 0..30 {
            let samples =
                (0..60).map(|second| sample(NOON_MS + (minute * 60 + second) * 1000, "a", second as f64 / 3.0));
            store.write(&points(samples)).unwrap();
        }
        store.close();
        damage(&path);
        let (mut store, note) = Store::open(&path, Limits::default(), at(NOON_MS)).unwrap();
        let note = note.unwrap_or_else(|| panic!("{name}: nothing was said"));
        assert!(note.contains("set aside as history.sqlite.broken-20261107T120000Z"), "{name}: {note}");
        assert!(folder.path().join("history.sqlite.broken-20261107T120000Z").exists());
        store.write(&points([sample(NOON_MS, "a", 1.0)])).unwrap();
        assert_eq!(everything(&store).len(), 1, "{name}");
        drop(store);
        open(&path);
    }
}

#[tokio::test]
async fn a_file_that_breaks_while_it_is_open_is_replaced_and_the_new_one_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("history.sqlite");
    let store = open(&path);
    store.connection().execute_batch("PRAGMA writable_schema = ON; UPDATE sqlite_schema SET rootpage = 9999 WHERE name = 'entries'; PRAGMA writable_schema = RESET").unwrap();
    let (history, inbox) = History::with_queue(path.clone(), None);
    let thread = writer::start(path.clone(), Limits::default(), Some(store), inbox, Arc::clone(&history.desk.shared));
    let history = history.joined_by(thread.unwrap());
    history.note(event(NOON_MS, "lost"));
    history.note(event(NOON_MS + 1, "kept"));
    let entries = history.entries(at(0)).await.unwrap();
    assert_eq!(entries.len(), 2, "{entries:?}");
    assert!(entries[0].kind == Kind::History && entries[0].words.contains("set aside as history.sqlite.broken-"));
    assert_eq!(entries[1].words, "kept");
    assert_eq!(history.dropped_entries(), 1);
}
