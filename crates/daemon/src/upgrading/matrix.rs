//! Every change of the disk that an upgrade, its way back and a rollback make is refused once, in each way that a disk
//! has, and the daemon is started again: a whole app is in place and runs, the database is as it shall be, nothing is
//! left over, and the person is told. The table of it stands in `docs/upgrade.md`.

use super::carrying_out::{self, News, Pace};
use super::deeds::{Before, Files, Hand, Life};
use super::finding::InPlace;
use super::journal::{self, JournalFile};
use super::{database, finding, nothing_seen, presence};
use crate::configuration::Upgrades;
use rusqlite::Connection;
use stablehand_engine::Known;
use stablehand_engine::plan::{Again, StepFailure};
use stablehand_engine::upgrade::fault::NotProved;
use stablehand_engine::upgrade::found::{Archive, BuiltInUpdater, Database, Folders, Found, Install, Rights, Wanted};
use stablehand_engine::upgrade::journal::Record;
use stablehand_engine::upgrade::order::Order;
use stablehand_engine::upgrade::plan::{Ask, Plan, plan, plan_rollback};
use stablehand_engine::upgrade::resume::{Course, Presence, Resume, Turn, resume};
use stablehand_ollama::releases::{Source, Terms};
use stablehand_platform::disk::Disk;
use stablehand_platform::exchange::Exchange;
use stablehand_platform::machine::Machine;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tempfile::TempDir;
use zip::ZipWriter;
use zip::write::SimpleFileOptions;

const OLD: &str = "0.22.1";
const NEW: &str = "0.24.0";
const CHATS: i64 = 2;
const OLD_FORM: i64 = 16;
const NEW_FORM: i64 = 18;

/// The ways in which a disk refuses.
const REFUSALS: [(&str, i32); 4] = [("ENOSPC", 28), ("EACCES", 13), ("EPERM", 1), ("EIO", 5)];

/// What is done, and how it ends where nothing is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Story {
    /// An upgrade to a good release.
    Upgrade,
    /// An upgrade to a release that generates nothing, and the way back.
    Bad,
    /// A rollback to a version that was kept.
    Rollback,
}

impl Story {
    const ALL: [Self; 3] = [Self::Upgrade, Self::Bad, Self::Rollback];

    fn words(self) -> &'static str {
        match self {
            Self::Upgrade => "upgrade to a good release",
            Self::Bad => "upgrade to a release that generates nothing, and the way back",
            Self::Rollback => "rollback to the version kept",
        }
    }
}

/// What stands in for the network and for Apple's commands, made once.
struct Shelf {
    _dir: TempDir,
    spctl: PathBuf,
    zip: Vec<u8>,
}

impl Shelf {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let spctl = dir.path().join("spctl");
        fs::write(&spctl, "#!/bin/sh\necho \"$5: accepted\" >&2\necho 'source=Notarized Developer ID' >&2\n").unwrap();
        fs::set_permissions(&spctl, fs::Permissions::from_mode(0o755)).unwrap();
        Self { spctl, zip: zipped(NEW), _dir: dir }
    }
}

fn plist(version: &str) -> String {
    format!(
        "<plist version=\"1.0\"><dict><key>CFBundleIdentifier</key><string>com.electron.ollama</string>\
         <key>CFBundleShortVersionString</key><string>{version}</string></dict></plist>"
    )
}

fn zipped(version: &str) -> Vec<u8> {
    let mut zip = ZipWriter::new(io::Cursor::new(Vec::new()));
    let options = SimpleFileOptions::default().unix_permissions(0o755);
    for (name, text) in [
        ("Ollama.app/Contents/Info.plist", plist(version)),
        ("Ollama.app/Contents/MacOS/Ollama", "program".to_owned()),
        ("Ollama.app/Contents/Resources/ollama", "program".to_owned()),
    ] {
        zip.start_file(name, options).unwrap();
        zip.write_all(text.as_bytes()).unwrap();
    }
    zip.add_symlink("Ollama.app/Contents/link", "MacOS", options).unwrap();
    zip.finish().unwrap().into_inner()
}

/// A Mac with a server that is a word.
struct Mac {
    dir: TempDir,
    machine: Machine,
    running: Arc<Mutex<Option<String>>>,
}

impl Mac {
    fn new(shelf: &Shelf, story: Story) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = dir.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write(
            "stablehand-world.json",
            r#"{"format":1,"os":"macos","user":"sim","home":"/Users/sim","port":41873,"ollama":"0.22.1","memory_bytes":68719476736,"gpu_working_set_bytes":51539607552}"#,
        );
        let clock = r#"{"speed":1000.0,"anchor_monotonic_ms":0,"anchor_wall_unix_ms":1796000000000,"slept_ms":0}"#;
        write("clock.json", clock);
        for (at, version) in places(story) {
            write(&format!("{at}/Contents/Info.plist"), &plist(version));
            write(&format!("{at}/Contents/MacOS/Ollama"), "program");
            write(&format!("{at}/Contents/Resources/ollama"), "program");
        }
        write("Users/sim/Library/Caches/ollama/updates/ab/Ollama-darwin.zip", "staged");
        fs::create_dir_all(dir.path().join("usr/bin")).unwrap();
        fs::create_dir_all(dir.path().join("usr/sbin")).unwrap();
        symlink("/bin/true", dir.path().join("usr/bin/codesign")).unwrap();
        symlink(&shelf.spctl, dir.path().join("usr/sbin/spctl")).unwrap();
        let machine = Machine::world(dir.path()).unwrap();
        let mac = Self { dir, machine, running: Arc::new(Mutex::new(Some(in_place(story).to_owned()))) };
        make_database(&mac.database());
        if story == Story::Rollback {
            make_database(&mac.folders().kept.join(format!("{OLD}-20261129T101112345.sqlite")));
        }
        mac
    }

    fn at(&self, path: &str) -> PathBuf {
        self.dir.path().join(path)
    }

    fn app(&self) -> PathBuf {
        self.at("Applications/Ollama.app")
    }

    fn database(&self) -> PathBuf {
        self.machine.home().join("Library/Application Support/Ollama/db.sqlite")
    }

    fn folders(&self) -> Folders {
        let base = finding::folder(&self.machine);
        Folders { work: base.join("work"), kept: base.join("kept") }
    }

    fn journal(&self) -> PathBuf {
        finding::folder(&self.machine).join("journal")
    }

    fn staged(&self) -> PathBuf {
        self.machine.home().join("Library/Caches/ollama/updates/ab")
    }

    fn found(&self) -> Found {
        let folders = self.folders();
        Found {
            install: Known::Is(Some(Install::App { bundle: self.app() })),
            installed: stablehand_platform::applications::version(&self.app()).map_or_else(Known::Unknown, Known::Is),
            running_from: Some(self.app()),
            owner: "app".to_owned(),
            restart: Ok(()),
            rights: Known::Is(Rights::Ours),
            busy: None,
            free_bytes: Known::Is(1 << 40),
            installed_bytes: Known::Is(1000),
            updater: BuiltInUpdater { staged: vec![self.staged()], stale_backup: None },
            kept: finding::kept(&folders.kept, None).into_iter().map(finding::with_schema).collect(),
            pin: None,
            database: Some(Database {
                at: self.database(),
                size_bytes: 1000,
                schema: database::schema(&self.database()),
            }),
            folders,
            port: 41873,
        }
    }

    fn in_place(&self) -> InPlace {
        let Found { install, installed, kept, folders, .. } = self.found();
        InPlace { install, installed, kept, folders }
    }

    fn plan(&self, story: Story, base: &str, shelf: &Shelf) -> Plan {
        let found = self.found();
        let ask = Ask {
            id: "20261130T101112345".to_owned(),
            downgrade: false,
            set_database_aside: false,
            keep: Upgrades::default().keep,
        };
        let wanted = Wanted::Release {
            version: NEW.to_owned(),
            against_installed: Known::Is(std::cmp::Ordering::Greater),
            archives: vec![Archive {
                name: "Ollama-darwin.zip".to_owned(),
                url: format!("{base}/Ollama-darwin.zip"),
                size_bytes: shelf.zip.len() as u64,
                unpacked_bytes: Known::Is(1000),
                sha256: sha256(&shelf.zip),
            }],
        };
        match story {
            Story::Upgrade | Story::Bad => plan(&found, &wanted, &ask).unwrap(),
            Story::Rollback => plan_rollback(&found, None, &ask).unwrap(),
        }
    }

    fn hand(&self, story: Story, base: &str, before: Before) -> Hand<Word> {
        let life = Word {
            app: self.app(),
            database: self.database(),
            running: Arc::clone(&self.running),
            bad: (story == Story::Bad).then(|| NEW.to_owned()),
        };
        let source = Source::new(base, Terms::default()).unwrap();
        Hand { files: Files { machine: self.machine.clone(), before }, life, source: Some(source) }
    }
}

fn places(story: Story) -> Vec<(&'static str, &'static str)> {
    const KEPT: &str = "Users/sim/Library/Application Support/dev.stablehand/upgrades/kept/0.22.1-20261129T101112345";
    match story {
        Story::Upgrade | Story::Bad => vec![("Applications/Ollama.app", OLD)],
        Story::Rollback => vec![("Applications/Ollama.app", NEW), (KEPT, OLD)],
    }
}

fn in_place(story: Story) -> &'static str {
    match story {
        Story::Upgrade | Story::Bad => OLD,
        Story::Rollback => NEW,
    }
}

fn sha256(bytes: &[u8]) -> String {
    let digest = ring::digest::digest(&ring::digest::SHA256, bytes);
    digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

fn make_database(at: &Path) {
    fs::create_dir_all(at.parent().unwrap()).unwrap();
    let database = Connection::open(at).unwrap();
    let tables = "CREATE TABLE settings (schema_version INTEGER); CREATE TABLE chats (id TEXT);
                  CREATE TABLE messages (chat_id TEXT, updated_at TIMESTAMP);";
    database.execute_batch(tables).unwrap();
    database.execute("INSERT INTO settings VALUES (?)", [OLD_FORM]).unwrap();
    for chat in 0..CHATS {
        database.execute("INSERT INTO chats VALUES (?)", [chat.to_string()]).unwrap();
        database.execute("INSERT INTO messages VALUES (?, '2026-11-30')", [chat.to_string()]).unwrap();
    }
}

/// A server whose life is one word: the version that runs.
struct Word {
    app: PathBuf,
    database: PathBuf,
    running: Arc<Mutex<Option<String>>>,
    bad: Option<String>,
}

impl Life for Word {
    async fn stop(&self) -> Result<String, StepFailure> {
        *self.running.lock().unwrap() = None;
        Ok(String::new())
    }

    async fn start(&self) -> Result<String, StepFailure> {
        let version = stablehand_platform::applications::version(&self.app).map_err(|message| StepFailure {
            code: "app-not-found",
            message,
            hint: String::new(),
            again: Again::Never,
        })?;
        if version == NEW {
            let database = Connection::open(&self.database).unwrap();
            database.execute("UPDATE settings SET schema_version = ?", [NEW_FORM]).unwrap();
        }
        *self.running.lock().unwrap() = Some(version);
        Ok(String::new())
    }

    async fn prove(&self, _order: &Order, version: &str) -> Result<String, NotProved> {
        if self.bad.as_deref() == Some(version) {
            return Err(NotProved::GeneratesNothing { model: "m".to_owned(), reason: "it is empty".to_owned() });
        }
        match self.running.lock().unwrap().as_deref() {
            Some(running) if running == version => Ok(String::new()),
            Some(running) => Err(NotProved::AnswersAs(running.to_owned())),
            None => Err(NotProved::Silent),
        }
    }

    async fn runs_from(&self, _place: &Path) -> Option<u32> {
        None
    }

    async fn pin(&self, _version: &str) -> Result<(), String> {
        Ok(())
    }
}

/// What is refused: from that change on, or that one alone.
#[derive(Clone, Copy, Debug)]
struct Refusal {
    change: usize,
    errno: i32,
}

/// How it went: at which deed something was refused, and how it ended.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Went {
    deed: String,
    what: String,
    end: &'static str,
    changes: usize,
}

/// Carries it out with a refusal, starts anew, and checks what has to hold.
async fn went(shelf: &Shelf, story: Story, base: &str, refusal: Option<Refusal>) -> Went {
    let mac = Mac::new(shelf, story);
    let deed = Arc::new(Mutex::new("journal".to_owned()));
    let refused = Arc::new(Mutex::new(None::<(String, String)>));
    let changes = Arc::new(AtomicUsize::new(0));
    let before: Before = {
        let (deed, refused, changes) = (Arc::clone(&deed), Arc::clone(&refused), Arc::clone(&changes));
        Arc::new(move |what, path: &Path| {
            let change = changes.fetch_add(1, Ordering::Relaxed);
            let Some(refusal) = refusal else { return Ok(()) };
            // A full disk stays full, for whatever takes room.
            let full = refusal.errno == 28 && matches!(what, "write" | "create" | "link" | "sync");
            if change == refusal.change || (full && change > refusal.change) {
                let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
                refused.lock().unwrap().get_or_insert((deed.lock().unwrap().clone(), format!("{what} {name}")));
                return Err(io::Error::from_raw_os_error(refusal.errno));
            }
            Ok(())
        })
    };
    let plan = mac.plan(story, base, shelf);
    let order = plan.order.clone();
    let pace = Pace { clock: mac.machine.clock(), slack: Duration::from_secs(30) };
    let tell = |news: News| {
        if let News::Began { deed: begun, .. } = news {
            begun.name().clone_into(&mut deed.lock().unwrap());
        }
    };
    let disk = Disk::new(mac.machine.os(), &*before);
    let mut end = "not begun";
    let mut told = true;
    if let Ok(journal) = JournalFile::create(disk, &mac.journal(), &order) {
        let words = stablehand_engine::upgrade::Words::new("upgrade", "", "");
        let course = Course { order: plan.order, turn: Turn::Finish, deeds: plan.deeds, why: String::new(), words };
        let mut hand = mac.hand(story, base, Arc::clone(&before));
        let ended = carrying_out::carry_out(&mut hand, pace, journal, course, &tell).await;
        end = word(ended.turn);
        if ended.turn.is_some() {
            // As the daemon does once it has told; one that stays is found by the next start.
            let _told = journal::remove(&disk, &mac.journal());
        }
        told = ended.turn == Some(Turn::Finish) || ended.failure.is_some() || ended.words.is_some();
    }
    assert!(told, "{story:?} {refusal:?}: nobody is told");
    if journal::is_there(&mac.journal()) {
        end = start_anew(&mac, story, base, pace).await.unwrap_or(end);
    }
    let exchange_of_a_good_disk = |_: &'static str, _: &Path| Ok(());
    let exchange = Exchange::new(&mac.machine, Disk::new(mac.machine.os(), &exchange_of_a_good_disk));
    finding::rubbish(&mac.in_place(), Upgrades::default().keep).iter().for_each(|path| exchange.discard(path).unwrap());
    let at = refused.lock().unwrap().clone().unwrap_or_default();
    check(&mac, story, refusal, &at, end);
    Went { deed: at.0, what: at.1, end, changes: changes.load(Ordering::Relaxed) }
}

fn word(turn: Option<Turn>) -> &'static str {
    match turn {
        Some(Turn::Finish) => "committed",
        Some(Turn::Undo) => "undone",
        Some(Turn::Leave) => "left",
        None => "halted",
    }
}

/// What the next start of the daemon does with a journal, on a disk that refuses nothing.
async fn start_anew(mac: &Mac, story: Story, base: &str, pace: Pace<'_>) -> Option<&'static str> {
    let before: Before = Arc::new(|_, _| Ok(()));
    let disk = Disk::new(mac.machine.os(), &*before);
    let found = journal::read(&mac.journal()).unwrap();
    let mut hand = mac.hand(story, base, Arc::clone(&before));
    let order = match found.records.first() {
        Some(Record::Opened(order)) => Some((**order).clone()),
        Some(_) | None => None,
    };
    let seen = match &order {
        Some(order) => carrying_out::Works::look(&mut hand, order).await,
        None => nothing_seen(),
    };
    match resume(&Ok(found.records.clone()), &seen) {
        Resume::Nothing => {
            journal::remove(&disk, &mac.journal()).unwrap();
            None
        }
        Resume::Go(course) => {
            let journal = JournalFile::resume(disk, &mac.journal(), found);
            let ended = carrying_out::carry_out(&mut hand, pace, journal, *course, &|_| {}).await;
            assert_eq!(ended.also, [], "nothing is passed over on a good disk");
            journal::remove(&disk, &mac.journal()).unwrap();
            Some(word(ended.turn))
        }
        Resume::Wait(words) => panic!("{words:?}"),
    }
}

/// What has to hold, whatever was refused.
fn check(mac: &Mac, story: Story, refusal: Option<Refusal>, at: &(String, String), end: &str) {
    let context = format!("{story:?} {refusal:?} at {at:?}, {end}");
    let version = stablehand_platform::applications::version(&mac.app()).expect(&context);
    let whole = mac.app().join("Contents/Resources/ollama").is_file();
    assert!(whole, "{context}: the app is whole");
    assert_eq!(mac.running.lock().unwrap().as_deref(), Some(version.as_str()), "{context}: what lies there runs");
    let expected = match (story, end) {
        (Story::Upgrade, "committed") => NEW,
        (Story::Rollback, "committed") => OLD,
        (Story::Upgrade | Story::Bad | Story::Rollback, "undone" | "not begun") => in_place(story),
        (_, other) => panic!("{context}: {other}"),
    };
    assert_eq!(version, expected, "{context}");
    let database = Connection::open(mac.database()).unwrap();
    let number = |question: &str| database.query_row(question, [], |row| row.get::<_, i64>(0)).unwrap();
    assert_eq!(number("SELECT count(*) FROM chats"), CHATS, "{context}: chats");
    let form = match (story, expected) {
        // It was brought there before the rollback was undone, and back with the copy otherwise.
        (_, NEW) => [NEW_FORM, if story == Story::Rollback { OLD_FORM } else { NEW_FORM }],
        (_, _) => [OLD_FORM, OLD_FORM],
    };
    assert!(form.contains(&number("SELECT schema_version FROM settings")), "{context}: the form of the database");
    let names = |folder: PathBuf| -> Vec<String> {
        let entries = fs::read_dir(folder).map(|entries| entries.map(|entry| entry.unwrap().file_name())).ok();
        entries.into_iter().flatten().map(|name| name.to_string_lossy().into_owned()).collect()
    };
    let folders = mac.folders();
    assert_eq!(names(folders.work), [""; 0], "{context}: work");
    let mut kept = names(folders.kept);
    kept.sort();
    let id = "20261130T101112345";
    let mut wanted: Vec<String> = match (story, end) {
        (Story::Upgrade | Story::Bad, "committed") => vec![format!("{OLD}-{id}"), format!("{OLD}-{id}.sqlite")],
        (Story::Rollback, "committed") => vec![format!("{NEW}-{id}"), format!("{NEW}-{id}.sqlite")],
        (Story::Rollback, _) => {
            vec![format!("{OLD}-20261129T101112345"), format!("{OLD}-20261129T101112345.sqlite")]
        }
        (Story::Upgrade | Story::Bad, _) => vec![],
    };
    wanted.sort();
    assert_eq!(kept, wanted, "{context}: kept");
    assert_eq!(names(mac.at("Applications")), ["Ollama.app"], "{context}");
    let ours = names(finding::folder(&mac.machine));
    assert!(ours.iter().all(|name| ["work", "kept"].contains(&name.as_str())), "{context}: {ours:?}");
    let beside = names(mac.database().parent().unwrap().to_path_buf());
    assert!(
        beside.iter().all(|name| name.starts_with("db.sqlite") && !name.contains("putting")),
        "{context}: {beside:?}"
    );
}

/// A server that has the archive.
async fn serve(zip: Vec<u8>) -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("http://{}", listener.local_addr().unwrap());
    let zip: Arc<[u8]> = zip.into();
    let answer = move || {
        let zip = axum::body::Bytes::from_owner(Arc::clone(&zip));
        async move { zip }
    };
    let router = axum::Router::new().route("/Ollama-darwin.zip", axum::routing::get(answer));
    tokio::spawn(async move { axum::serve(listener, router).await });
    base
}

/// How often it ended in which way.
type Ends = BTreeMap<&'static str, usize>;

/// Every change of a story refused with each of these errors; the rows by deed.
fn refused_everywhere(story: Story, refusals: &[(&'static str, i32)]) -> BTreeMap<(String, &'static str), Ends> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let shelf = Shelf::new();
        let base = serve(shelf.zip.clone()).await;
        let whole = went(&shelf, story, &base, None).await;
        assert_eq!(whole.end, if story == Story::Bad { "undone" } else { "committed" });
        let mut rows: BTreeMap<(String, &'static str), Ends> = BTreeMap::new();
        for &(name, errno) in refusals {
            for change in 0..whole.changes {
                let went = went(&shelf, story, &base, Some(Refusal { change, errno })).await;
                assert!(!went.deed.is_empty(), "{story:?}: the change {change} was not met");
                *rows.entry((went.deed, name)).or_default().entry(went.end).or_default() += 1;
            }
        }
        rows
    })
}

const BEGIN: &str = "<!-- the matrix of refusals: printed by the daemon's tests -->\n";
const END: &str = "<!-- end of the matrix -->";

#[test]
fn whatever_the_disk_refuses_nothing_is_lost_and_the_table_stands_in_the_documents() {
    let mut rows: BTreeMap<(Story, String), BTreeMap<&'static str, Ends>> = BTreeMap::new();
    let stories: Vec<_> = Story::ALL.into_iter().flat_map(|story| REFUSALS.map(|refusal| (story, refusal))).collect();
    let workers: Vec<_> = stories
        .chunks(stories.len().div_ceil(4))
        .map(|chunk| {
            let chunk = chunk.to_vec();
            std::thread::spawn(move || {
                let one = |(story, refusal)| (story, refused_everywhere(story, &[refusal]));
                chunk.into_iter().map(one).collect::<Vec<_>>()
            })
        })
        .collect();
    let mut points = 0;
    for worker in workers {
        for (story, ends) in worker.join().unwrap() {
            for ((deed, refusal), ends) in ends {
                points += ends.values().sum::<usize>();
                rows.entry((story, deed)).or_default().insert(refusal, ends);
            }
        }
    }
    assert!(points >= 200, "{points} points");
    let mut table = format!("{points} points: each change of the disk, refused in each of four ways.\n");
    for story in Story::ALL {
        let _ =
            write!(table, "\n{}:\n\n| at | ENOSPC | EACCES | EPERM | EIO |\n|---|---|---|---|---|\n", story.words());
        for ((of, deed), ends) in &rows {
            if *of != story {
                continue;
            }
            let _ = write!(table, "| {deed} |");
            for (name, _) in REFUSALS {
                let cell = ends.get(name).map_or_else(String::new, |ends| {
                    let cells: Vec<_> = ends.iter().map(|(end, count)| format!("{count} {end}")).collect();
                    cells.join(", ")
                });
                let _ = write!(table, " {cell} |");
            }
            table.push('\n');
        }
    }
    println!("{table}");
    let document = include_str!("../../../../docs/upgrade.md");
    let begin = document.find(BEGIN).expect("docs/upgrade.md has the marked block") + BEGIN.len();
    let end = document[begin..].find(END).expect("the marked block ends") + begin;
    assert!(document[begin..end] == table, "put this block into docs/upgrade.md:\n{BEGIN}{table}{END}");
}

#[tokio::test]
async fn half_a_bundle_is_never_taken_for_a_whole_one() {
    let shelf = Shelf::new();
    let mac = Mac::new(&shelf, Story::Upgrade);
    let switch = stablehand_engine::upgrade::order::Switch::Renames;
    fs::remove_file(mac.app().join("Contents/Resources/ollama")).unwrap();
    let seen = presence::of(&mac.machine, &switch, &mac.app(), presence::Checked::Place).await;
    assert!(matches!(seen, Presence::Broken(_)), "{seen:?}");
}
