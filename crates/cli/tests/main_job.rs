//! The main job on a simulated machine, with the real daemon and the real command line: a setting is picked,
//! persisted, put in force by a full restart through the owner, and proved.

#![allow(clippy::unwrap_used, reason = "tests panic where they fail; clippy's own exception does not reach here")]

mod world;

use world::{World, setting};

const MAIN: [(&str, &str); 3] =
    [("OLLAMA_NUM_PARALLEL", "1"), ("OLLAMA_MAX_LOADED_MODELS", "1"), ("OLLAMA_MAX_QUEUE", "10")];

#[test]
fn a_preset_is_applied_proved_drifts_by_hand_and_is_mended() {
    let world = World::start(&["--speed", "10"]);
    assert_eq!(world.last(&["verify"]).0, 0, "nothing is desired yet");

    let ending = world.apply_serial();
    assert_eq!(ending["outcome"], "proven", "{ending}");
    for (name, value) in MAIN {
        let setting = setting(&ending, name);
        for layer in ["desired", "persisted", "session", "effective"] {
            assert_eq!(setting[layer], value, "{name} {layer}: {setting}");
        }
        let kinds: Vec<_> = setting["proof"].as_array().unwrap().iter().map(|proof| &proof["kind"]).collect();
        assert!(kinds.contains(&&"server-config-line".into()), "{kinds:?}");
    }
    assert_eq!(world.last(&["verify"]).0, 0);

    world.fault("session-changed-by-hand");
    let (code, said) = world.text(&["verify"]);
    assert_eq!(code, 1, "{said}");
    assert!(said.contains("OLLAMA_NUM_PARALLEL (session, effective)"), "{said}");

    let (code, ending) = world.last(&["apply"]);
    assert_eq!((code, &ending["outcome"]), (0, &"proven".into()), "{ending}");

    let status = world.status();
    assert_eq!(status["server"]["version"], "0.33.0");
    assert_eq!(status["server"]["owner"], "app");
    assert_eq!(status["server"]["state"], "up");
    assert_eq!(setting(&status, "OLLAMA_NUM_PARALLEL")["standing"], "proven");
}

#[test]
fn a_value_taken_back_disappears_from_every_layer() {
    let world = World::start(&["--speed", "10"]);
    assert_eq!(world.apply_serial()["outcome"], "proven");
    assert_eq!(world.text(&["settings", "preset", "ollama-defaults"]).0, 0);
    let (code, said) = world.text(&["verify"]);
    assert_eq!(code, 1, "still persisted: {said}");
    let (code, ending) = world.last(&["apply"]);
    assert_eq!(code, 0, "{ending}");
    for (name, _) in MAIN {
        let setting = setting(&ending, name);
        assert_eq!(setting.get("persisted"), Some(&serde_json::Value::Null), "{setting}");
        assert_eq!(setting.get("session"), Some(&serde_json::Value::Null), "{setting}");
    }
    assert_eq!(setting(&ending, "OLLAMA_MAX_QUEUE")["effective"], "512");
}

#[test]
fn settings_hold_over_a_new_login() {
    let mut world = World::start(&["--speed", "10"]);
    assert_eq!(world.apply_serial()["outcome"], "proven");
    world.stop_daemon();
    let dir = world.dir();
    let (code, said) = world.text(&["demo", "stop", "--dir", dir.to_str().unwrap()]);
    assert_eq!(code, 0, "{said}");
    world.demo_start(&[]);
    world.start_daemon();
    let (code, said) = world.text(&["verify"]);
    assert_eq!(code, 0, "{said}");
}

#[test]
fn a_dry_run_shows_every_file_and_step_and_changes_nothing() {
    let world = World::start(&["--speed", "10"]);
    assert_eq!(world.text(&["settings", "preset", "serial", "--dry-run"]).0, 0);
    assert!(setting(&world.status(), "OLLAMA_NUM_PARALLEL")["desired"].is_null());
    assert_eq!(world.text(&["settings", "preset", "serial"]).0, 0);
    let before = world.inside();
    let (code, said) = world.text(&["apply", "--dry-run"]);
    assert_eq!(code, 0, "{said}");
    for part in ["dev.stablehand.ollama-env.plist", "SIGTERM", "open ", "prove", "nothing was changed"] {
        assert!(said.contains(part), "{part}: {said}");
    }
    let after = world.inside();
    for part in ["gui", "serve", "session"] {
        assert_eq!(after[part], before[part], "{part}");
    }
    assert!(!world.agents().join("dev.stablehand.ollama-env.plist").exists());
}

#[test]
fn a_restart_streams_its_steps_and_ends_with_a_new_server() {
    let world = World::start(&["--speed", "10"]);
    let before = world.status()["server"]["pid"].clone();
    let (code, lines) = world.json(&["restart"]);
    assert_eq!(code, 0, "{lines:?}");
    let names: Vec<_> =
        lines.iter().filter(|line| line["event"] == "step-began").map(|line| line["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["stop", "sweep", "await-port-free", "start", "await-answer", "prove"]);
    assert_eq!(lines.last().unwrap()["outcome"], "proven");
    assert_ne!(world.status()["server"]["pid"], before);
}

#[test]
fn an_older_ollama_is_proved_in_the_same_way() {
    let world = World::start(&["--speed", "10", "--ollama", "0.24.0"]);
    let ending = world.apply_serial();
    assert_eq!(ending["outcome"], "proven", "{ending}");
    assert_eq!(world.status()["server"]["version"], "0.24.0");
}

#[test]
fn uninstall_leaves_nothing_of_ours_and_puts_adopted_files_back() {
    let world = World::start(&["--speed", "10"]);
    let setter = world.agents().join("ai.ollama.envsetter.plist");
    let text = r#"<?xml version="1.0" encoding="UTF-8"?>
<plist version="1.0"><dict>
<key>Label</key><string>ai.ollama.envsetter</string>
<key>ProgramArguments</key><array><string>sh</string><string>-c</string>
<string>launchctl setenv OLLAMA_NUM_PARALLEL 2; launchctl setenv OLLAMA_KEEP_ALIVE 30m</string></array>
<key>RunAtLoad</key><true/>
</dict></plist>"#;
    std::fs::create_dir_all(world.agents()).unwrap();
    std::fs::write(&setter, text).unwrap();
    assert_eq!(world.text(&["install"]).0, 0);
    let command = world.file("/usr/local/bin/stablehand");
    assert_eq!(std::fs::read_link(&command).unwrap().file_name().unwrap(), "stablehand");
    let menu = world.agents().join("dev.stablehand.tray.plist");
    std::fs::write(&menu, "").unwrap();
    let ending = world.apply_serial();
    assert_eq!(ending["outcome"], "proven", "{ending}");
    assert!(!setter.exists(), "two setters would fight");
    assert_eq!(setting(&ending, "OLLAMA_KEEP_ALIVE")["effective"], "30m0s", "its other values are kept");

    let (code, said) = world.text(&["uninstall"]);
    assert_eq!(code, 0, "{said}");
    assert_eq!(std::fs::read_to_string(&setter).unwrap(), text);
    let ours: Vec<_> = walk(&world.file("/Users/sim")).into_iter().filter(|path| path.contains("stablehand")).collect();
    assert!(ours.is_empty(), "{ours:?}");
    assert!(command.symlink_metadata().is_err() && world.file("/usr/local/bin/ollama").exists());
}

fn walk(folder: &std::path::Path) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(folder) else { return vec![] };
    let mut paths = Vec::new();
    for entry in entries.map(Result::unwrap) {
        let path = entry.path();
        paths.push(path.display().to_string());
        if path.is_dir() && !path.is_symlink() {
            paths.extend(walk(&path));
        }
    }
    paths
}

#[test]
fn a_hand_made_agent_that_runs_the_bundles_server_is_restarted_through_launchd() {
    let mut world = World::without_daemon(&["--speed", "10", "--owner", "none"]);
    let program = world.file("/Applications/Ollama.app/Contents/Resources/ollama");
    let log = world.file("/Users/sim/ollama.log");
    let plist = world.agents().join("ai.ollama.serve.plist");
    let text = format!(
        r#"<?xml version="1.0" encoding="UTF-8"?>
<plist version="1.0"><dict>
<key>Label</key><string>ai.ollama.serve</string>
<key>ProgramArguments</key><array><string>{}</string><string>serve</string></array>
<key>RunAtLoad</key><true/><key>KeepAlive</key><true/>
<key>StandardErrorPath</key><string>{}</string>
</dict></plist>"#,
        program.display(),
        log.display()
    );
    std::fs::create_dir_all(world.agents()).unwrap();
    std::fs::write(&plist, text).unwrap();
    let uid = rustix::process::getuid().as_raw();
    let loaded = std::process::Command::new(world.file("/bin/launchctl"))
        .args(["bootstrap", &format!("gui/{uid}")])
        .arg(&plist)
        .status()
        .unwrap();
    assert!(loaded.success());
    world.start_daemon();
    world.watch_until(|snapshot| snapshot["server"]["state"] == "up");
    let status = world.status();
    assert_eq!(status["server"]["owner"], "agent", "{status}");
    assert!(status["server"]["owner_detail"]["name"].as_str().unwrap().contains("ai.ollama.serve"), "{status}");
    let ending = world.apply_serial();
    assert_eq!(ending["outcome"], "proven", "{ending}");
    assert!(world.inside()["gui"].as_array().unwrap().is_empty(), "no app is opened beside it");
}
