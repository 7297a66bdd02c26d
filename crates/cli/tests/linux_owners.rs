//! The main job under each owner that Linux knows, on a simulated machine.

#![allow(clippy::unwrap_used, reason = "tests panic where they fail; clippy's own exception does not reach here")]

mod world;

use world::{World, setting};

#[test]
fn a_system_unit_gets_a_drop_in_and_is_restarted_by_systemd() {
    let world = World::start(&["--os", "linux", "--speed", "20"]);
    let ending = world.apply_serial();
    assert_eq!(ending["outcome"], "proven", "{ending}");
    let drop_in = world.file("/etc/systemd/system/ollama.service.d/zz-stablehand.conf");
    let text = std::fs::read_to_string(&drop_in).unwrap();
    assert!(text.contains("OLLAMA_MAX_QUEUE=10") && !text.contains("STABLEHAND_WORLD"), "{text}");
    assert_eq!(setting(&ending, "OLLAMA_NUM_PARALLEL")["session"], "1");
    assert_eq!(world.status()["server"]["owner"], "systemd");

    world.fault("session-changed-by-hand");
    assert_eq!(world.last(&["verify"]).0, 1);
    assert_eq!(world.last(&["apply"]).1["outcome"], "proven");

    let (code, said) = world.text(&["uninstall"]);
    assert_eq!(code, 0, "{said}");
    assert!(!drop_in.exists());
}

#[test]
fn a_drop_in_that_sorts_after_ours_is_named() {
    let world = World::start(&["--os", "linux", "--speed", "20"]);
    assert_eq!(world.apply_serial()["outcome"], "proven");
    world.fault("later-drop-in");
    let (code, said) = world.text(&["verify"]);
    assert_eq!(code, 1, "{said}");
    assert!(said.contains("zzz-local.conf sets OLLAMA_NUM_PARALLEL=7"), "{said}");
    let (_, ending) = world.last(&["apply"]);
    assert_eq!(ending["outcome"], "drift", "{ending}");
    assert!(ending["notes"].to_string().contains("zzz-local.conf"), "{ending}");
}

#[test]
fn a_user_unit_is_restarted_by_the_users_own_manager() {
    let world = World::start(&["--os", "linux", "--owner", "user-unit", "--speed", "20"]);
    assert_eq!(world.apply_serial()["outcome"], "proven");
}

#[test]
fn a_terminals_server_is_left_alone_and_taken_over_when_told_to() {
    let mut world = World::start(&["--os", "linux", "--owner", "manual", "--speed", "20"]);
    let pid = world.status()["server"]["pid"].clone();
    let ending = world.apply_serial();
    assert_eq!(ending["failure"]["code"], "owner-manual", "{ending}");
    assert_eq!(world.status()["server"]["pid"], pid);
    let (code, ending) = world.last(&["apply", "--take-over"]);
    assert_eq!((code, &ending["outcome"]), (0, &"proven".into()), "{ending}");
    assert_eq!(world.status()["server"]["owner"], "agent");
    // From now on it is ours to restart.
    assert_eq!(world.last(&["restart"]).1["outcome"], "proven");
    let unit = world.file("/home/sim/.config/systemd/user/stablehand-ollama.service");
    assert!(unit.exists());

    // It is there after the next login, with its values, whether our daemon runs or not.
    world.stop_daemon();
    world.log_in_again();
    world.start_daemon();
    let status = world.watch_until(|snapshot| snapshot["server"]["state"] == "up");
    assert_eq!(status["server"]["owner"], "agent", "{status}");
    assert_eq!(world.last(&["verify"]).0, 0);
    assert_eq!(world.text(&["uninstall"]).0, 0);
    assert!(!unit.exists());
}

#[test]
fn a_container_is_proved_and_never_changed() {
    let world = World::start(&["--os", "linux", "--owner", "container", "--speed", "20"]);
    assert_eq!(world.last(&["verify"]).0, 0, "nothing is desired");
    let pid = world.status()["server"]["pid"].clone();
    let ending = world.apply_serial();
    assert_eq!(ending["failure"]["code"], "owner-container", "{ending}");
    let status = world.status();
    assert_eq!((&status["server"]["owner"], &status["server"]["pid"]), (&"container".into(), &pid));
    assert_eq!(setting(&status, "OLLAMA_NUM_PARALLEL")["proof"][0]["kind"], "process-environment");
}

#[test]
fn a_refused_polkit_leaves_the_server_alone() {
    let world = World::start(&["--os", "linux", "--speed", "20"]);
    world.fault("pkexec-refused");
    let ending = world.apply_serial();
    if rustix::process::getuid().is_root() {
        assert_eq!(ending["outcome"], "proven", "root needs nobody's leave: {ending}");
        return;
    }
    assert_eq!(ending["failure"]["code"], "polkit-refused", "{ending}");
    assert!(ending["failure"]["hint"].as_str().unwrap().contains("sudo stablehand apply"), "{ending}");
    assert_eq!(world.status()["server"]["serving"], true);
}

#[test]
fn a_program_that_nobody_runs_is_started_by_us() {
    let world = World::start(&["--os", "linux", "--owner", "none", "--speed", "20"]);
    assert_eq!(world.status()["server"]["state"], "down");
    let ending = world.apply_serial();
    assert_eq!(ending["outcome"], "proven", "{ending}");
}

#[test]
fn the_journal_of_a_unit_gives_the_same_numbers_as_a_log_file() {
    let world = World::start(&["--os", "linux", "--speed", "20"]);
    world.fault("work-steady");
    let seen = world.watch_until(|snapshot| {
        let endpoints = snapshot["watched"]["log"]["endpoints"].as_array();
        endpoints.is_some_and(|endpoints| endpoints.iter().any(|one| one["requests"].as_u64() >= Some(1)))
    });
    let endpoint = &seen["watched"]["log"]["endpoints"][0];
    assert!(endpoint["p50_ms"].as_u64() > Some(0), "{endpoint}");
    let (_, metrics) = world.text(&["metrics"]);
    assert!(metrics.contains("stablehand_requests_recent"), "{metrics}");
}
