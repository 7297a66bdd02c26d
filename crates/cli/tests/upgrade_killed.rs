//! The daemon is killed at every record of an upgrade's journal, and started again: a whole app is in place and answers
//! with its settings, no chat is lost, nothing is left over, and the person is told.

#![allow(clippy::unwrap_used, reason = "tests panic where they fail; clippy's own exception does not reach here")]

mod world;

use rusqlite::Connection;
use serde_json::Value;
use std::path::PathBuf;
use world::World;

const MAC: [&str; 6] = ["--os", "macos", "--speed", "40", "--ollama", "0.22.1"];
const OLD: &str = "0.22.1";
const NEW: &str = "0.24.0";

struct Machine {
    world: World,
}

impl Machine {
    fn new() -> Self {
        let world = World::start(&MAC);
        assert_eq!(world.apply_serial()["outcome"], "proven");
        Self { world }
    }

    fn upgrades(&self) -> PathBuf {
        self.world.file("/Users/sim/Library/Application Support/dev.stablehand/upgrades")
    }

    fn chats(&self) -> i64 {
        let file = self.world.file("/Users/sim/Library/Application Support/Ollama/db.sqlite");
        Connection::open(file).unwrap().query_row("SELECT count(*) FROM chats", [], |row| row.get(0)).unwrap()
    }

    fn installed(&self) -> String {
        let text = std::fs::read_to_string(self.world.file("/Applications/Ollama.app/Contents/Info.plist")).unwrap();
        let after = text.split("CFBundleShortVersionString").nth(1).unwrap();
        after.split("<string>").nth(1).unwrap().split("</string>").next().unwrap().to_owned()
    }

    /// Upgrades to a version with the daemon's death ordered; whether it died.
    fn dies(&mut self, to: &str, at: &str) -> bool {
        std::fs::write(self.world.dir().join("upgrade-dies-at"), at).unwrap();
        let asked = self.world.run(&["upgrade", "--to", to, "--downgrade", "--yes", "--json"]);
        std::fs::remove_file(self.world.dir().join("upgrade-dies-at")).unwrap();
        let said = String::from_utf8(asked.stdout).unwrap();
        let last: Value = said.lines().last().map(|line| serde_json::from_str(line).unwrap()).unwrap_or_default();
        let died = last["event"] != "result" || last["failure"]["code"] == "daemon-connection";
        if died {
            self.world.bury_daemon();
        }
        died
    }

    /// Starts a daemon again, and waits until nothing is left to be done and the person was told.
    fn recovers(&mut self, begun: bool) -> Value {
        self.world.start_daemon();
        let journal = self.upgrades().join("journal");
        self.world.watch_until(|snapshot| {
            let versions = &snapshot["versions"];
            let told = |alert: &Value| alert["kind"] == "upgrade";
            let told = snapshot["alerts"].as_array().is_some_and(|alerts| alerts.iter().any(told));
            let done = versions.is_object() && (!begun || (versions["last"].is_object() && told));
            done && !journal.exists() && versions["running"].is_null() && snapshot["server"]["state"] == "up"
        })
    }

    fn left_over(&self) -> Vec<String> {
        let names = |folder: PathBuf| -> Vec<String> {
            let Ok(entries) = std::fs::read_dir(folder) else { return vec![] };
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
        };
        let mut left = names(self.upgrades().join("work"));
        left.extend(names(self.upgrades().join("kept")).into_iter().filter(|name| name.starts_with('.')));
        left.extend(names(self.world.file("/Applications")).into_iter().filter(|name| name.starts_with('.')));
        left
    }

    /// What has to hold after every death.
    fn check(&self, point: &str, seen: &Value, chats: i64) {
        let version = self.installed();
        let (code, ending) = self.world.last(&["verify"]);
        assert_eq!((code, &ending["outcome"]), (0, &"proven".into()), "{point}: {ending}");
        assert_eq!(seen["server"]["version"], version.as_str(), "{point}: what lies in the place is what answers");
        assert_eq!(self.chats(), chats, "{point}: no chat is lost");
        assert_eq!(self.left_over(), [""; 0], "{point}");
        let kept: Vec<_> = seen["versions"]["kept"].as_array().unwrap().iter().map(|kept| &kept["version"]).collect();
        assert!(kept.len() <= 2 && !kept.contains(&&version.as_str().into()), "{point}: {kept:?}");
    }
}

/// Kills at every record of the way to `to`, from `first` on; the table's rows.
fn killed_everywhere(to: impl Fn(&str) -> String, first: usize, flaw: Option<&str>) -> Vec<String> {
    let mut machine = Machine::new();
    if let Some(flaw) = flaw {
        let dir = machine.world.dir();
        let published =
            machine.world.text(&["demo", "release", "--dir", dir.to_str().unwrap(), "0.25.0", "--bad", flaw]);
        assert_eq!(published.0, 0, "{}", published.1);
    }
    let chats = machine.chats();
    let mut rows = vec![];
    for number in first.. {
        for after in ["", "+"] {
            let point = format!("{number}{after}");
            let from = machine.installed();
            let wanted = to(&from);
            if !machine.dies(&wanted, &point) {
                return rows;
            }
            let begun = machine.upgrades().join("journal").exists();
            let seen = machine.recovers(begun);
            machine.check(&point, &seen, chats);
            let end = seen["versions"]["last"]["end"].as_str().unwrap_or("no journal").to_owned();
            rows.push(format!("{point:>4}  {from} to {wanted}: {end}, {} in place", machine.installed()));
        }
    }
    rows
}

fn other(version: &str) -> String {
    if version == OLD { NEW.to_owned() } else { OLD.to_owned() }
}

#[test]
fn an_upgrade_that_is_killed_at_any_record_is_finished_or_undone() {
    let rows = killed_everywhere(other, 1, None);
    println!("{}", rows.join("\n"));
    assert!(rows.len() >= 50, "{} points: {rows:#?}", rows.len());
    assert!(
        rows.iter().any(|row| row.contains("undone")) && rows.iter().any(|row| row.contains("committed")),
        "{rows:#?}"
    );
}

#[test]
fn a_way_back_that_is_killed_at_any_record_is_gone_to_its_end() {
    // Up to there it is the way forward.
    const PROOF: usize = 25;
    let rows = killed_everywhere(|_| "0.25.0".to_owned(), PROOF, Some("generates-nothing"));
    println!("{}", rows.join("\n"));
    assert!(rows.len() >= 20, "{} points: {rows:#?}", rows.len());
    assert!(
        rows.iter().all(|row| row.ends_with(&format!("undone, {OLD} in place")) || row.contains("no journal")),
        "{rows:#?}"
    );
}
