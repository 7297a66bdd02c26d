use crate::sandbox::{Sandbox, eventually, is_alive, text};

#[test]
fn a_world_starts_answers_and_leaves_no_process_behind() {
    let sandbox = Sandbox::start(&[]);
    assert_eq!(sandbox.http("GET", "/api/version", ""), (200, "{\"version\":\"0.33.0\"}".into()));
    assert_eq!(sandbox.http("GET", "/", "").1, "Ollama is running");
    assert_eq!(sandbox.http("GET", "/nothing", "").0, 404);
    let status = sandbox.status();
    let pids: Vec<i64> =
        ["gui", "serve", "shim", "manager"].iter().map(|key| status[key][0].as_i64().unwrap()).collect();

    let output = sandbox.verb("stop", &[]);

    assert!(text(&output.stdout).starts_with("stopped "), "{output:?}");
    assert!(!pids.iter().any(|pid| is_alive(*pid)));
}

#[test]
fn a_folder_that_is_no_world_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("precious"), "data").unwrap();
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_stablehand-sim"))
        .args(["start", "--dir", folder.path().to_str().unwrap()])
        .output()
        .unwrap();
    assert!(!output.status.success());
    assert!(text(&output.stderr).contains("is not empty"), "{output:?}");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[test]
fn a_stopped_world_starts_again_with_an_empty_session_and_a_clock_that_goes_on() {
    let sandbox = Sandbox::start(&[]);
    sandbox.launchctl(&["setenv", "OLLAMA_NUM_PARALLEL", "4"]);
    sandbox.verb("sleep", &["3600"]);
    let before = sandbox.status()["wall_unix_ms"].as_i64().unwrap();
    sandbox.verb("stop", &[]);

    let output = sandbox.restart(&[]);

    assert!(text(&output.stdout).starts_with("started again"), "{output:?}");
    let status = sandbox.status();
    assert_eq!(status["session"], serde_json::json!({}));
    let passed = status["wall_unix_ms"].as_i64().unwrap() - before;
    assert!((0..600_000).contains(&passed), "{passed}");
}

#[test]
fn agents_of_the_home_directory_run_at_login_before_the_app() {
    let sandbox = Sandbox::start(&[]);
    sandbox.verb("stop", &[]);
    let launchctl = sandbox.dir().join("bin/launchctl");
    let plist = format!(
        "<?xml version=\"1.0\"?><plist version=\"1.0\"><dict><key>Label</key><string>a.setter</string>\
         <key>ProgramArguments</key><array><string>{}</string><string>setenv</string>\
         <string>OLLAMA_MAX_QUEUE</string><string>10</string></array>\
         <key>RunAtLoad</key><true/></dict></plist>",
        launchctl.display()
    );
    std::fs::write(sandbox.home().join("Library/LaunchAgents/a.setter.plist"), plist).unwrap();

    sandbox.restart(&[]);

    assert_eq!(sandbox.status()["session"]["OLLAMA_MAX_QUEUE"], "10");
    eventually(|| sandbox.server_log().contains(" OLLAMA_MAX_QUEUE:10 "));

    sandbox.fault(&["lost-login-race"]);

    assert_eq!(sandbox.status()["session"]["OLLAMA_MAX_QUEUE"], "10");
    eventually(|| sandbox.server_log().contains(" OLLAMA_MAX_QUEUE:512 "));
}

#[test]
fn a_new_bundle_carries_its_own_version() {
    let sandbox = Sandbox::start(&[]);
    let app = sandbox.dir().join("Applications/Ollama.app");
    let new = sandbox.dir().join("staged.app");
    assert!(sandbox.verb("bundle", &["--ollama", "0.34.4", new.to_str().unwrap()]).status.success());
    std::fs::rename(&app, sandbox.dir().join("old")).unwrap();
    std::fs::rename(&new, &app).unwrap();

    sandbox.restart_app();

    assert_eq!(sandbox.http("GET", "/api/version", "").1, "{\"version\":\"0.34.4\"}");
}

#[test]
fn a_world_with_a_deaf_app_stops_quickly_and_starts_no_server_again() {
    let sandbox = Sandbox::start(&[]);
    sandbox.fault(&["work-steady"]);
    sandbox.fault(&["gui-ignores-sigterm"]);
    let servers = sandbox.server_log().matches("msg=\"server config\"").count();
    let began = std::time::Instant::now();

    let output = sandbox.verb("stop", &[]);

    assert!(output.status.success(), "{output:?}");
    assert!(began.elapsed() < std::time::Duration::from_secs(4), "{:?}", began.elapsed());
    assert_eq!(sandbox.server_log().matches("msg=\"server config\"").count(), servers);
    let said = text(&output.stdout);
    let ended: u32 = said.split(": ").nth(1).unwrap().split(' ').next().unwrap().parse().unwrap();
    assert!(ended <= 8, "{said}");
}

#[test]
fn a_full_volume_says_so_until_it_is_emptied() {
    let sandbox = Sandbox::start(&["--owner", "none"]);
    let volume = sandbox.dir().join("volume.json");
    sandbox.fault(&["disk-full"]);
    assert_eq!(std::fs::read_to_string(&volume).unwrap(), "{\"free_bytes\":0}");
    sandbox.fault(&["clear"]);
    assert!(!volume.exists());
}
