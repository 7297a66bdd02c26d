//! The app's own updater, its database, and the places an app can run from.

use std::path::PathBuf;

use rusqlite::Connection;

use crate::sandbox::{Sandbox, eventually, signal, text};

fn database(sandbox: &Sandbox) -> Connection {
    Connection::open(sandbox.home().join("Library/Application Support/Ollama/db.sqlite")).unwrap()
}

fn form(sandbox: &Sandbox) -> i64 {
    database(sandbox).query_row("SELECT schema_version FROM settings", [], |row| row.get(0)).unwrap()
}

fn count(sandbox: &Sandbox, table: &str) -> i64 {
    database(sandbox).query_row(&format!("SELECT count(*) FROM {table}"), [], |row| row.get(0)).unwrap()
}

fn version(sandbox: &Sandbox) -> String {
    sandbox.http("GET", "/api/version", "").1
}

fn backup(sandbox: &Sandbox) -> PathBuf {
    sandbox.home().join("Library/Caches/ollama/backup/Ollama.app")
}

fn end_app(sandbox: &Sandbox) {
    signal(sandbox.pid("gui").unwrap(), "TERM");
    eventually(|| sandbox.pid("gui").is_none() && sandbox.pid("serve").is_none());
}

fn open(sandbox: &Sandbox, words: &[&str]) {
    let app = sandbox.dir().join("Applications/Ollama.app");
    let output = sandbox.command("usr/bin/open", &[&["-j", "-a", app.to_str().unwrap()], words].concat());
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn a_staged_update_is_put_in_place_at_the_next_hidden_start_but_not_at_a_fast_one() {
    let sandbox = Sandbox::start(&["--ollama", "0.22.1"]);
    sandbox.fault(&["updater-staged"]);
    end_app(&sandbox);
    open(&sandbox, &["--args", "--fast-startup"]);
    eventually(|| version(&sandbox).contains("0.22.1"));
    end_app(&sandbox);
    open(&sandbox, &[]);
    eventually(|| version(&sandbox).contains("0.24.0"));
    assert!(!sandbox.home().join("Library/Caches/ollama/updates").exists());
    eventually(|| !backup(&sandbox).exists());
    eventually(|| sandbox.status()["gui"].as_array().unwrap().len() == 1);
}

#[test]
fn the_next_login_puts_a_staged_update_in_place() {
    let sandbox = Sandbox::start(&["--ollama", "0.22.1"]);
    sandbox.fault(&["updater-staged"]);
    sandbox.fault(&["lost-login-race"]);
    eventually(|| version(&sandbox).contains("0.24.0"));
}

#[test]
fn an_old_backup_keeps_an_update_from_its_place() {
    let sandbox = Sandbox::start(&["--ollama", "0.22.1"]);
    sandbox.fault(&["updater-staged"]);
    sandbox.fault(&["updater-stale-backup"]);
    end_app(&sandbox);
    open(&sandbox, &[]);
    eventually(|| version(&sandbox).contains("0.22.1"));
    let log = std::fs::read_to_string(sandbox.home().join(".ollama/logs/app.log")).unwrap();
    assert!(log.contains("prior upgrade failed - please upgrade manually by installing the bundle"), "{log}");
    sandbox.fault(&["clear"]);
    assert!(!backup(&sandbox).exists());
}

#[test]
fn who_switched_updates_off_is_left_alone_and_a_broken_one_is_thrown_away() {
    let sandbox = Sandbox::start(&["--ollama", "0.22.1"]);
    database(&sandbox).execute("UPDATE settings SET auto_update_enabled = 0", []).unwrap();
    sandbox.fault(&["updater-staged"]);
    end_app(&sandbox);
    open(&sandbox, &[]);
    eventually(|| version(&sandbox).contains("0.22.1"));
    database(&sandbox).execute("UPDATE settings SET auto_update_enabled = 1", []).unwrap();
    sandbox.verb("release", &["--bad", "broken-seal", "0.24.1"]);
    sandbox.fault(&["clear"]);
    sandbox.fault(&["updater-staged"]);
    end_app(&sandbox);
    open(&sandbox, &[]);
    eventually(|| version(&sandbox).contains("0.22.1"));
    let log = std::fs::read_to_string(sandbox.home().join(".ollama/logs/app.log")).unwrap();
    assert!(log.contains("auto-update disabled") && log.contains("signature verification failed"), "{log}");
}

#[test]
fn the_database_has_a_chat_and_goes_forward_only() {
    let sandbox = Sandbox::start(&["--ollama", "0.32.0"]);
    assert_eq!((form(&sandbox), count(&sandbox, "chats"), count(&sandbox, "messages")), (16, 1, 2));
    sandbox.fault(&["new-chat"]);
    let replace = |version: &str| {
        end_app(&sandbox);
        let app = sandbox.dir().join("Applications/Ollama.app");
        std::fs::remove_dir_all(&app).unwrap();
        let output = sandbox.verb("bundle", &["--ollama", version, app.to_str().unwrap()]);
        assert!(output.status.success(), "{output:?}");
        sandbox.open_app();
        eventually(|| sandbox.status()["answering"] == true);
    };
    replace("0.33.0");
    assert_eq!((form(&sandbox), count(&sandbox, "chats")), (18, 2));
    replace("0.32.0");
    assert_eq!((form(&sandbox), count(&sandbox, "chats")), (18, 2));
    end_app(&sandbox);
    std::fs::remove_dir_all(sandbox.home().join("Library/Application Support/Ollama")).unwrap();
    sandbox.open_app();
    eventually(|| sandbox.status()["answering"] == true);
    assert_eq!((form(&sandbox), count(&sandbox, "chats")), (16, 0));
}

#[test]
fn an_app_runs_from_odd_places_and_comes_home() {
    let sandbox = Sandbox::start(&["--ollama", "0.22.1"]);
    let runs = || {
        let gui = sandbox.pid("gui").unwrap();
        text(std::fs::read_link(format!("/proc/{gui}/exe")).unwrap().as_os_str().as_encoded_bytes())
    };
    let installed = sandbox.dir().join("Applications/Ollama.app");
    for (fault, place) in [("app-translocated", "/AppTranslocation/"), ("app-from-backup", "/ollama/backup/")] {
        sandbox.fault(&[fault]);
        assert!(runs().contains(place) && !installed.exists(), "{}", runs());
        assert!(version(&sandbox).contains("0.22.1"));
        sandbox.fault(&["clear"]);
        assert!(runs().contains("/Applications/Ollama.app/"), "{}", runs());
    }
}
