use crate::sandbox::{Sandbox, eventually, signal, text};

#[test]
fn the_app_respawns_its_server_with_the_old_environment() {
    let sandbox = Sandbox::start(&[]);
    sandbox.launchctl(&["setenv", "OLLAMA_NUM_PARALLEL", "4"]);
    let old = sandbox.pid("serve").unwrap();

    signal(old, "KILL");

    eventually(|| sandbox.pid("serve").is_some_and(|pid| pid != old));
    eventually(|| sandbox.status()["answering"] == true);
    let log = sandbox.server_log();
    assert_eq!(log.matches("msg=\"server config\"").count(), 2);
    assert!(!log.contains("OLLAMA_NUM_PARALLEL:4"));
}

#[test]
fn a_full_restart_takes_the_new_values() {
    let sandbox = Sandbox::start(&[]);
    sandbox.launchctl(&["setenv", "OLLAMA_NUM_PARALLEL", "4"]);

    sandbox.restart_app();

    assert!(sandbox.server_log().contains(" OLLAMA_NUM_PARALLEL:4 "));
    assert!(sandbox.home().join(".ollama/logs/server-1.log").exists());
}

#[test]
fn the_app_refuses_to_quit_when_asked_by_an_apple_event() {
    let sandbox = Sandbox::start(&[]);
    let gui = sandbox.pid("gui");
    let output = sandbox.command("usr/bin/osascript", &["-e", "quit app \"Ollama\""]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).ends_with("User canceled. (-128)\n"));
    assert_eq!(sandbox.pid("gui"), gui);
}

#[test]
fn open_fails_twice_or_starts_nothing_when_told_to() {
    let sandbox = Sandbox::start(&[]);
    sandbox.fault(&["open-600-twice"]);
    signal(sandbox.pid("gui").unwrap(), "TERM");
    eventually(|| sandbox.pid("gui").is_none());
    for _ in 0..2 {
        let output = sandbox.command("usr/bin/open", &["-a", "Ollama"]);
        assert_eq!(output.status.code(), Some(1));
        assert!(text(&output.stderr).contains("with error -600."), "{output:?}");
    }
    sandbox.fault(&["open-activates-dying-app"]);
    sandbox.open_app();
    assert_eq!(sandbox.pid("gui"), None);
    sandbox.open_app();
    eventually(|| sandbox.status()["answering"] == true);
}

#[test]
fn the_command_line_brings_the_app_back_with_old_values() {
    let sandbox = Sandbox::start(&[]);
    sandbox.fault(&["cli-resurrects-app"]);
    let old = sandbox.pid("gui").unwrap();
    sandbox.launchctl(&["setenv", "OLLAMA_NUM_PARALLEL", "4"]);

    signal(old, "TERM");

    eventually(|| sandbox.pid("gui").is_some_and(|pid| pid != old));
    eventually(|| sandbox.status()["answering"] == true);
    assert!(sandbox.server_log().contains(" OLLAMA_NUM_PARALLEL:1 "));
}

#[test]
fn a_killed_app_leaves_its_server_which_the_next_app_ends() {
    let sandbox = Sandbox::start(&[]);
    let old = sandbox.pid("serve").unwrap();
    sandbox.fault(&["orphan-serve"]);
    assert_eq!(sandbox.pid("serve"), Some(old));
    assert_eq!(sandbox.pid("gui"), None);

    sandbox.open_app();

    eventually(|| sandbox.pid("serve").is_some_and(|pid| pid != old));
}

#[test]
fn the_apps_own_settings_beat_the_session() {
    let sandbox = Sandbox::start(&[]);
    sandbox.fault(&["app-overrides-context"]);
    assert!(sandbox.server_log().contains(" OLLAMA_CONTEXT_LENGTH:65536 "));
    sandbox.fault(&["expose-on"]);
    assert!(sandbox.server_log().contains("OLLAMA_HOST:http://0.0.0.0:"));
}

#[test]
fn a_stranger_on_the_port_keeps_the_server_from_starting() {
    let sandbox = Sandbox::start(&[]);
    sandbox.fault(&["port-stranger"]);
    eventually(|| sandbox.server_log().contains("bind: address already in use"));
    assert_eq!(sandbox.status()["answering"], false);
    sandbox.fault(&["clear"]);
    eventually(|| sandbox.status()["answering"] == true);
}
