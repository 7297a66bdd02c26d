use crate::sandbox::{Sandbox, eventually, signal, text};

fn systemctl(sandbox: &Sandbox, words: &[&str]) -> String {
    text(&sandbox.command("usr/bin/systemctl", words).stdout)
}

fn journal(sandbox: &Sandbox) -> String {
    let words = ["-u", "ollama", "-o", "cat", "--no-pager"];
    text(&sandbox.command("usr/bin/journalctl", &words).stdout)
}

#[test]
fn a_drop_in_counts_after_a_reload_and_a_restart() {
    let sandbox = Sandbox::start(&["--os", "linux"]);
    let folder = sandbox.dir().join("etc/systemd/system/ollama.service.d");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("zz-stablehand.conf"), "[Service]\nEnvironment=\"OLLAMA_NUM_PARALLEL=4\"\n").unwrap();
    let stale = ["show", "ollama", "-p", "NeedDaemonReload", "--value"];
    assert_eq!(systemctl(&sandbox, &stale), "yes\n");

    systemctl(&sandbox, &["restart", "ollama"]);
    eventually(|| journal(&sandbox).matches("server config").count() == 2);
    assert!(!journal(&sandbox).contains("OLLAMA_NUM_PARALLEL:4"));

    systemctl(&sandbox, &["daemon-reload"]);
    systemctl(&sandbox, &["restart", "ollama"]);
    eventually(|| journal(&sandbox).contains("OLLAMA_NUM_PARALLEL:4"));
    let shown = systemctl(&sandbox, &["show", "ollama", "-p", "Environment,DropInPaths"]);
    assert!(shown.contains("OLLAMA_NUM_PARALLEL=4"), "{shown}");
    assert!(shown.contains("zz-stablehand.conf"), "{shown}");
}

#[test]
fn systemd_restarts_a_dead_server_and_ends_its_runners() {
    let sandbox = Sandbox::start(&["--os", "linux", "--owner", "user-unit"]);
    sandbox.http("POST", "/api/generate", "{\"model\":\"smollm:135m\"}");
    assert!(!sandbox.runner().is_null());

    signal(sandbox.pid("serve").unwrap(), "KILL");

    eventually(|| sandbox.runner().is_null());
    eventually(|| sandbox.status()["answering"] == true);
    let restarts = systemctl(&sandbox, &["--user", "show", "ollama", "-p", "NRestarts", "--value"]);
    assert_eq!(restarts, "1\n");
}

#[test]
fn refused_rights_stop_changes_of_the_system_unit() {
    let sandbox = Sandbox::start(&["--os", "linux"]);
    sandbox.fault(&["pkexec-refused"]);
    let systemctl = sandbox.dir().join("usr/bin/systemctl");
    let words = [systemctl.to_str().unwrap(), "restart", "ollama"];
    assert_eq!(sandbox.command("usr/bin/pkexec", &words).status.code(), Some(126));
    sandbox.fault(&["clear"]);
    assert!(sandbox.command("usr/bin/pkexec", &words).status.success());
}

#[test]
fn the_values_baked_into_a_container_are_in_force() {
    let sandbox = Sandbox::start(&["--os", "linux", "--owner", "container"]);
    let inspected = text(&sandbox.command("usr/bin/docker", &["inspect", "ollama"]).stdout);
    assert!(inspected.contains("\"OLLAMA_MAX_LOADED_MODELS=3\""), "{inspected}");
    let old = sandbox.pid("serve");
    sandbox.command("usr/bin/docker", &["restart", "ollama"]);
    eventually(|| sandbox.status()["answering"] == true && sandbox.pid("serve") != old);
}

#[test]
fn a_drop_in_changed_by_hand_is_in_force() {
    let sandbox = Sandbox::start(&["--os", "linux"]);
    sandbox.fault(&["session-changed-by-hand"]);
    assert!(journal(&sandbox).contains("OLLAMA_NUM_PARALLEL:7"));
    assert!(sandbox.dir().join("etc/systemd/system/ollama.service.d/override.conf").exists());
    sandbox.fault(&["later-drop-in"]);
    let shown = systemctl(&sandbox, &["show", "ollama", "-p", "DropInPaths"]);
    assert!(shown.trim_end().ends_with("zzz-local.conf"), "{shown}");
}
