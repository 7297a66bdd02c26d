//! What a careless or unlucky user does, and what the daemon survives.

#![allow(clippy::unwrap_used, reason = "tests panic where they fail; clippy's own exception does not reach here")]

mod world;

use world::{World, setting};

#[test]
fn a_restart_brings_back_what_holds_and_not_what_is_only_desired() {
    let world = World::start(&["--speed", "20"]);
    assert_eq!(world.apply_serial()["outcome"], "proven");
    assert_eq!(world.text(&["settings", "set", "OLLAMA_NUM_PARALLEL=3"]).0, 0);
    assert_eq!(world.last(&["restart"]).1["outcome"], "proven", "what holds is proven");
    let parallel = setting(&world.status(), "OLLAMA_NUM_PARALLEL").clone();
    assert_eq!((&parallel["desired"], &parallel["effective"]), (&"3".into(), &"1".into()), "{parallel}");
}

#[test]
fn a_change_is_seen_by_whoever_looks_next() {
    let world = World::start(&["--speed", "1"]);
    assert_eq!(world.text(&["settings", "set", "OLLAMA_MAX_QUEUE", "9"]).0, 0);
    assert_eq!(setting(&world.status(), "OLLAMA_MAX_QUEUE")["desired"], "9");
}

#[test]
fn a_daemon_killed_in_the_middle_of_a_restart_is_followed_by_one_that_finishes_it() {
    let mut world = World::start(&["--speed", "20"]);
    assert_eq!(world.apply_serial()["outcome"], "proven");
    // The app takes half a minute to quit; the daemon does not live to see it.
    world.fault("slow-quit");
    let cut = world.ask_and_leave(&["restart"], |line| line["name"] == "stop");
    assert!(cut, "the stop began");
    world.kill_daemon();
    world.inside_until(|inside| inside["gui"].as_array().unwrap().is_empty());
    world.start_daemon();
    world.watch_until(|snapshot| snapshot["server"]["state"] == "up");
    assert_eq!(world.last(&["verify"]).0, 0);
}

#[test]
fn a_server_of_ours_that_died_without_a_daemon_is_started_by_the_next_one() {
    let mut world = World::start(&["--os", "linux", "--owner", "none", "--speed", "20"]);
    assert_eq!(world.apply_serial()["outcome"], "proven");
    let pid = world.status()["server"]["pid"].to_string();
    world.stop_daemon();
    assert!(std::process::Command::new("/bin/kill").args(["-9", &pid]).status().unwrap().success());
    world.start_daemon();
    let revived = world.watch_until(|snapshot| snapshot["server"]["state"] == "up");
    assert_ne!(revived["server"]["pid"].to_string(), pid);
    assert_eq!(world.last(&["verify"]).0, 0);
}

#[test]
fn a_refused_apply_leaves_the_configuration_as_it_was() {
    let world = World::start(&["--speed", "20", "--owner", "manual"]);
    let setter = world.agents().join("ai.ollama.envsetter.plist");
    std::fs::create_dir_all(world.agents()).unwrap();
    let text = r#"<plist version="1.0"><dict><key>Label</key><string>ai.ollama.envsetter</string>
<key>ProgramArguments</key><array><string>launchctl</string><string>setenv</string>
<string>OLLAMA_KEEP_ALIVE</string><string>24h</string></array></dict></plist>"#;
    std::fs::write(&setter, text).unwrap();
    let (code, ending) = world.last(&["apply"]);
    assert_eq!((code, &ending["failure"]["code"]), (1, &"owner-manual".into()), "{ending}");
    let config = world.status()["config"]["path"].as_str().unwrap().to_owned();
    assert!(!std::path::Path::new(&config).exists());
}

#[test]
fn what_a_setter_held_is_named_before_and_after() {
    let world = World::start(&["--speed", "20"]);
    let setter = world.agents().join("ai.ollama.envsetter.plist");
    std::fs::create_dir_all(world.agents()).unwrap();
    let text = r#"<plist version="1.0"><dict><key>Label</key><string>ai.ollama.envsetter</string>
<key>ProgramArguments</key><array><string>launchctl</string><string>setenv</string>
<string>OLLAMA_KEEP_ALIVE</string><string>24h</string></array></dict></plist>"#;
    std::fs::write(&setter, text).unwrap();
    let (_, planned) = world.last(&["apply", "--dry-run"]);
    assert!(planned["steps"].to_string().contains("OLLAMA_KEEP_ALIVE=24h"), "{planned}");
    assert!(setter.exists());
    let (_, ending) = world.last(&["apply"]);
    assert_eq!(ending["outcome"], "proven", "{ending}");
    assert!(ending["notes"].to_string().contains("OLLAMA_KEEP_ALIVE=24h was found"), "{ending}");
}

#[test]
fn a_value_the_app_may_override_survives_a_lost_login_race() {
    let world = World::start(&["--speed", "20"]);
    assert_eq!(world.text(&["settings", "set", "OLLAMA_CONTEXT_LENGTH=8192"]).0, 0);
    assert_eq!(world.last(&["apply"]).1["outcome"], "proven");
    world.fault("lost-login-race");
    world.watch_until(|snapshot| {
        snapshot["server"]["state"] == "up" && setting(snapshot, "OLLAMA_CONTEXT_LENGTH")["standing"] == "proven"
    });
}

#[test]
fn a_unit_that_names_another_port_is_looked_for_there() {
    let world = World::without_daemon(&["--os", "linux", "--speed", "20"]);
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let folder = world.file("/etc/systemd/system/ollama.service.d");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("override.conf"), format!("[Service]\nEnvironment=OLLAMA_HOST=127.0.0.1:{port}\n"))
        .unwrap();
    for verb in [&["daemon-reload"][..], &["restart", "ollama"]] {
        let done = std::process::Command::new(world.file("/usr/bin/systemctl")).args(verb).status().unwrap();
        assert!(done.success());
    }
    let mut world = world;
    world.start_daemon();
    world.watch_until(|snapshot| {
        snapshot["server"]["state"] == "up" && snapshot["server"]["address"] == format!("127.0.0.1:{port}")
    });
    assert_eq!(world.apply_serial()["outcome"], "proven");
}

#[test]
fn a_setting_that_this_server_does_not_have_is_refused() {
    let world = World::start(&["--speed", "20"]);
    let (code, said) = world.text(&["settings", "set", "OLLAMA_NEW_ENGINE=1"]);
    assert_eq!(code, 1, "{said}");
    assert!(said.contains("0.24"), "{said}");
    let (code, said) = world.text(&["settings", "set", "OLLAMA_EDITOR=a\u{1}b"]);
    assert_eq!(code, 1, "{said}");
}

#[test]
fn a_bad_configuration_at_the_start_makes_the_wish_unknown_and_restarts_all_the_same() {
    let mut world = World::start(&["--speed", "20"]);
    assert_eq!(world.apply_serial()["outcome"], "proven");
    let config = world.status()["config"]["path"].as_str().unwrap().to_owned();
    world.stop_daemon();
    std::fs::write(&config, "[settings]\nOLLAMA_NUM_PARALLEL = \"many\"\n").unwrap();
    world.start_daemon();
    let (code, ending) = world.last(&["verify"]);
    assert_eq!((code, &ending["outcome"]), (3, &"unknown".into()), "{ending}");
    assert_eq!(world.last(&["apply"]).1["failure"]["code"], "bad-config");
    assert_eq!(world.last(&["restart"]).0, 0);
}

#[test]
fn uninstall_works_where_the_socket_has_a_stand_in() {
    let folder = tempfile::Builder::new().prefix(&"long-".repeat(20)).tempdir().unwrap();
    let world = World::start_in(folder, &["--speed", "20"]);
    assert_eq!(world.apply_serial()["outcome"], "proven");
    let (code, said) = world.text(&["uninstall"]);
    assert_eq!(code, 0, "{said}");
}

#[test]
fn a_reader_that_leaves_ends_what_prints_quietly() {
    let world = World::start(&["--speed", "20"]);
    let dir = world.dir();
    let there = dir.to_str().unwrap();
    for verb in [
        &["status"][..],
        &["status", "--json"],
        &["settings", "list", "--all"],
        &["verify"],
        &["doctor"],
        &["runners"],
        &["why"],
        &["history", "--json"],
        &["metrics"],
        &["logs"],
        &["install", "--dry-run"],
        &["demo", "fault"],
        &["--help"],
    ] {
        let said = world.unread(verb);
        assert!(!said.contains("panicked") && !said.contains("roken pipe"), "{verb:?}: {said}");
    }
    for verb in [&["status"][..], &["fault"], &["fault", "no-such-fault"], &["fault", "--json"], &["--help"]] {
        let said = world.unread_inside(&[verb, &["--dir", there]].concat());
        assert!(!said.contains("panicked") && !said.contains("roken pipe"), "{verb:?}: {said}");
    }
}

#[test]
fn a_fault_takes_its_length_and_its_number() {
    let world = World::without_daemon(&["--speed", "20"]);
    let (code, said) = world.text(&["demo", "fault", "open-600-twice", "--times", "3"]);
    assert_eq!((code, said.as_str()), (0, "the next 3 starts through open fail with -600\n"));
    let (code, said) = world.text(&["demo", "fault", "work-image", "--seconds", "77"]);
    assert!(code == 0 && said.contains("for 77 s"), "{said}");
}

#[test]
fn the_history_tells_each_event_with_its_particulars() {
    let world = World::start(&["--speed", "20"]);
    assert_eq!(world.apply_serial()["outcome"], "proven");
    world.fault("session-changed-by-hand");
    world.watch_until(|snapshot| snapshot["alerts"].as_array().is_some_and(|alerts| !alerts.is_empty()));
    let (_, history) = world.last(&["history"]);
    let entries = history["entries"].as_array().unwrap();
    let of =
        |kind: &str| entries.iter().find(|entry| entry["kind"] == kind).unwrap_or_else(|| panic!("{kind}: {history}"));
    let restart = of("restart");
    assert_eq!(restart["detail"]["outcome"], "proven", "{restart}");
    assert!(restart["detail"]["progress"].as_array().unwrap().len() > 5, "{restart}");
    assert_eq!(of("alert")["detail"]["action"], "stablehand apply");
}

#[test]
fn counters_of_tokens_and_deeds_are_told_where_they_can_be_known() {
    let world = World::start(&["--speed", "20"]);
    let (code, _) = world.text(&["settings", "set", "LLAMA_ARG_ENDPOINT_METRICS=1"]);
    assert_eq!(code, 0);
    assert_eq!(world.last(&["apply"]).1["outcome"], "proven");
    world.fault("work-steady");
    let generated = |snapshot: &serde_json::Value| {
        let tokens = snapshot["watched"]["tokens"][0]["generated_total"].as_u64();
        tokens.is_some_and(|tokens| tokens > 0)
    };
    world.watch_until(generated);
    let (_, metrics) = world.text(&["metrics"]);
    for sample in [
        "stablehand_start_time_seconds ",
        "stablehand_server_start_time_seconds ",
        "stablehand_generated_tokens_total{model=",
        "stablehand_prompt_tokens_total{model=",
        "stablehand_restarts_total 1\n",
    ] {
        assert!(metrics.contains(sample), "{sample} is not in\n{metrics}");
    }
}
