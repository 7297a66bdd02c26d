//! Upgrades and rollbacks on simulated machines: proved, or taken back by themselves.

#![allow(clippy::unwrap_used, reason = "tests panic where they fail; clippy's own exception does not reach here")]

mod world;

use serde_json::Value;
use world::{World, setting};

const MAC: [&str; 6] = ["--os", "macos", "--speed", "20", "--ollama", "0.22.1"];
const APP: &str = "/Applications/Ollama.app";

fn versions(world: &World) -> Value {
    world.watch_until(|snapshot| snapshot["versions"].is_object());
    world.last(&["versions"]).1
}

fn installed(world: &World) -> String {
    versions(world)["installed"].as_str().unwrap().to_owned()
}

fn kept(world: &World) -> Vec<String> {
    let versions = versions(world);
    versions["kept"].as_array().unwrap().iter().map(|kept| kept["version"].as_str().unwrap().to_owned()).collect()
}

fn publish(world: &World, version: &str, flaw: Option<&str>) {
    let dir = world.dir();
    let mut all = vec!["demo", "release", "--dir", dir.to_str().unwrap(), version];
    if let Some(flaw) = flaw {
        all.extend(["--bad", flaw]);
    }
    let (code, said) = world.text(&all);
    assert_eq!(code, 0, "{said}");
}

/// Upgrades, and returns exit code and ending.
fn upgrade(world: &World, version: &str) -> (i32, Value) {
    world.last(&["upgrade", "--to", version, "--yes"])
}

#[track_caller]
fn is_proven(world: &World) {
    let (code, ending) = world.last(&["verify"]);
    assert_eq!((code, &ending["outcome"]), (0, &"proven".into()), "{ending}");
    assert_eq!(setting(&ending, "OLLAMA_NUM_PARALLEL")["effective"], "1");
}

/// What lies in the folder of upgrades, beside the kept versions.
fn left_over(world: &World) -> Vec<String> {
    let folder = world.file("/Users/sim/Library/Application Support/dev.stablehand/upgrades");
    let names = |folder: &std::path::Path| -> Vec<String> {
        let Ok(entries) = std::fs::read_dir(folder) else { return vec![] };
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    };
    let mut left = names(&folder.join("work"));
    left.extend(names(&folder).into_iter().filter(|name| name.starts_with("journal")));
    left.extend(names(&folder.join("kept")).into_iter().filter(|name| name.starts_with('.')));
    left
}

#[test]
fn an_upgrade_keeps_the_settings_and_a_bad_release_comes_back_by_itself() {
    let world = World::start(&MAC);
    assert_eq!(world.apply_serial()["outcome"], "proven");
    world.fault("app-quarantined");
    let (code, lines) = world.json(&["upgrade", "--to", "0.24.0", "--yes"]);
    let ending = lines.last().unwrap();
    assert_eq!((code, &ending["outcome"]), (0, &"proven".into()), "{ending}");
    assert!(lines.iter().any(|line| line["event"] == "bytes"), "progress is told");
    assert_eq!((installed(&world).as_str(), kept(&world)), ("0.24.0", vec!["0.22.1".to_owned()]));
    is_proven(&world);
    assert_eq!(world.last(&["quarantine"]).1["state"], "nothing-blocks");

    publish(&world, "0.25.0", Some("loses-settings"));
    let (code, ending) = upgrade(&world, "0.25.0");
    assert_eq!((code, &ending["failure"]["code"]), (1, &"not-proved-settings".into()), "{ending}");
    publish(&world, "0.26.0", Some("will-not-start"));
    let (code, ending) = upgrade(&world, "0.26.0");
    let message = ending["failure"]["message"].as_str().unwrap();
    assert!(
        code == 1 && message.contains("did not come up") && message.contains("0.24.0 is in its place"),
        "{message}"
    );
    assert_eq!((installed(&world).as_str(), kept(&world)), ("0.24.0", vec!["0.22.1".to_owned()]));
    is_proven(&world);
    assert_eq!(left_over(&world), [""; 0]);
    let (code, said) = world.text(&["versions"]);
    assert!(code == 0 && said.contains("last:") && said.contains("undone"), "{said}");
}

#[test]
fn a_release_that_fails_after_its_start_is_taken_back_with_the_reason() {
    let world = World::start(&MAC);
    for (number, (flaw, code)) in [
        ("wrong-version", "not-proved-version"),
        ("generates-nothing", "not-proved-generation"),
        ("server-crashes", "dies-at-start or step-timed-out"),
        ("llama-server-missing", "not-proved-generation"),
    ]
    .into_iter()
    .enumerate()
    {
        let version = format!("0.40.{number}");
        publish(&world, &version, Some(flaw));
        let (exit, ending) = upgrade(&world, &version);
        // Which of two it is depends on how often the app has tried in the time that it is given.
        let told = ending["failure"]["code"].as_str().unwrap();
        assert!(exit == 1 && code.split(" or ").any(|code| code == told), "{flaw}: {ending}");
        assert_eq!(installed(&world), "0.22.1", "{flaw}");
    }
    assert_eq!((kept(&world), left_over(&world)), (vec![], vec![]));
    let history = world.last(&["history", "--since", "1d"]).1;
    let ends = history["entries"].as_array().unwrap().iter().filter(|entry| entry["kind"] == "upgrade").count();
    assert_eq!(ends, 4, "each is in the history");
}

#[test]
fn what_is_wrong_with_an_archive_is_told_before_the_server_is_touched() {
    let world = World::start(&MAC);
    let server = world.status()["server"]["pid"].clone();
    for (number, (flaw, code)) in [
        ("wrong-team", "signature-another-team"),
        ("broken-seal", "signature-broken"),
        ("unsigned", "signature-broken"),
        ("not-notarised", "signature-refused"),
        ("wrong-hash", "download-wrong-hash"),
        ("other-version-inside", "upgrade-another-version"),
        ("corrupt-zip", "download-no-archive"),
        ("truncated", "download-stopped"),
        ("huge-by-header", "download-too-large"),
        ("zip-slip", "download-leads-out"),
        ("absolute-link", "download-leads-out"),
        ("no-hash", "release-without-hash"),
        ("no-sums", "release-without-hash"),
        ("no-asset", "release-without-asset"),
    ]
    .into_iter()
    .enumerate()
    {
        let version = format!("0.40.{number}");
        publish(&world, &version, Some(flaw));
        let (exit, ending) = upgrade(&world, &version);
        assert_eq!((exit, &ending["failure"]["code"]), (1, &code.into()), "{flaw}: {ending}");
    }
    for (fault, code) in [("rate-limited", "releases-rate-limited"), ("no-network", "releases-unreadable")] {
        world.fault(fault);
        let (exit, ending) = upgrade(&world, "0.41.0");
        assert_eq!((exit, &ending["failure"]["code"]), (1, &code.into()), "{fault}: {ending}");
    }
    assert_eq!(world.status()["server"]["pid"], server, "it was never stopped");
    assert_eq!((installed(&world).as_str(), left_over(&world)), ("0.22.1", vec![]));
}

#[test]
fn a_rollback_stays_where_it_is_whatever_the_built_in_updater_has_staged() {
    let mut world = World::start(&MAC);
    assert_eq!(upgrade(&world, "0.24.0").0, 0);
    publish(&world, "0.31.0", None);
    world.fault("updater-staged");
    let (code, ending) = world.last(&["rollback", "--yes"]);
    assert_eq!((code, &ending["outcome"]), (0, &"proven".into()), "{ending}");
    assert_eq!((installed(&world).as_str(), &versions(&world)["pin"]), ("0.22.1", &"0.22.1".into()));
    world.stop_daemon();
    world.log_in_again();
    world.start_daemon();
    assert_eq!(installed(&world), "0.22.1");
    let (code, ending) = upgrade(&world, "0.24.0");
    assert_eq!((code, &ending["failure"]["code"]), (1, &"upgrade-pinned".into()), "{ending}");
    assert_eq!(world.text(&["pin", "--off"]).0, 0);
    assert_eq!(upgrade(&world, "0.24.0").0, 0);
}

#[test]
fn chats_that_an_old_version_can_not_read_are_set_aside_and_named() {
    let world = World::start(&MAC);
    publish(&world, "0.50.0", Some("newer-database"));
    assert_eq!(upgrade(&world, "0.50.0").0, 0);
    world.fault("new-chat");
    let (code, ending) = world.last(&["rollback", "--dry-run"]);
    assert_eq!((code, &ending["failure"]["code"]), (1, &"rollback-database".into()), "{ending}");
    let (code, ending) = world.last(&["rollback", "--yes"]);
    assert_eq!((code, &ending["outcome"]), (0, &"proven".into()), "{ending}");
    let notes = ending["notes"].to_string();
    let aside = notes.split_once("are in ").unwrap().1.split(".sqlite").next().unwrap().to_owned() + ".sqlite";
    assert!(std::path::Path::new(&aside).is_file(), "{notes}");
}

#[test]
fn what_macos_refuses_gets_words_and_is_tried_again_by_a_fresh_daemon() {
    let mut world = World::start(&MAC);
    world.fault("rename-eperm");
    let (code, ending) = upgrade(&world, "0.24.0");
    assert_eq!((code, &ending["failure"]["code"]), (1, &"app-management".into()), "{ending}");
    assert!(ending["failure"]["hint"].as_str().unwrap().contains("App Management"), "{ending}");
    assert_eq!(installed(&world), "0.22.1");
    let (code, lines) = world.json(&["upgrade", "--to", "0.24.0", "--yes"]);
    assert!(code == 1 && lines.len() == 1, "refused at once: {lines:?}");
    world.fault("clear");
    world.stop_daemon();
    world.start_daemon();
    assert_eq!(upgrade(&world, "0.24.0").0, 0);
}

#[test]
fn two_upgrades_at_once_are_one() {
    let world = World::start(&MAC);
    publish(&world, "0.30.0", Some("slow"));
    assert!(world.ask_and_leave(&["upgrade", "--to", "0.30.0", "--yes"], |line| line["event"] == "step-began"));
    let (code, ending) = upgrade(&world, "0.24.0");
    assert_eq!((code, &ending["failure"]["code"]), (1, &"upgrade-busy".into()), "{ending}");
    let ended = world.watch_until(|snapshot| snapshot["versions"]["last"].is_object());
    assert_eq!(ended["versions"]["last"]["end"], "committed", "whoever asked has left, and it goes on");
    assert!(ended["alerts"].to_string().contains("0.30.0 is proved"), "{}", ended["alerts"]);
}

#[test]
fn a_new_release_is_told_once_with_its_action() {
    let world = World::start(&MAC);
    let told = world.watch_until(|snapshot| {
        snapshot["alerts"].to_string().contains("new-version") && snapshot["versions"]["newer"] == true
    });
    let alert = &told["alerts"][0];
    assert_eq!(alert["action"], "stablehand upgrade");
    assert!(alert["message"].as_str().unwrap().contains("0.24.0 is out"), "{alert}");
    let (code, said) = world.text(&["upgrade", "--check"]);
    assert!(code == 0 && said.contains("0.24.0") && said.contains("Full Changelog"), "{said}");
}

#[test]
fn a_cask_is_upgraded_by_homebrew_and_its_quarantine_cleared() {
    let world = World::start(&[MAC.as_slice(), &["--cask"]].concat());
    assert_eq!(versions(&world)["install"], "cask");
    let (code, ending) = world.last(&["upgrade", "--yes"]);
    assert_eq!((code, &ending["outcome"]), (0, &"proven".into()), "{ending}");
    assert_eq!((installed(&world).as_str(), kept(&world)), ("0.24.0", vec!["0.22.1".to_owned()]));
    assert_eq!(world.last(&["quarantine"]).1["state"], "nothing-blocks");
    assert_eq!(world.last(&["rollback", "--yes"]).0, 0);
    assert_eq!(installed(&world), "0.22.1");
}

#[test]
fn a_formula_is_upgraded_by_homebrew() {
    let world = World::start(&[MAC.as_slice(), &["--owner", "brew"]].concat());
    assert_eq!(versions(&world)["install"], "formula");
    let (code, ending) = world.last(&["upgrade", "--yes"]);
    assert_eq!((code, &ending["outcome"]), (0, &"proven".into()), "{ending}");
    assert_eq!(installed(&world), "0.24.0");
    let (code, ending) = world.last(&["rollback", "--yes"]);
    assert_eq!(code, 1, "{ending}");
}

#[test]
fn on_linux_versions_lie_side_by_side_and_a_link_is_switched() {
    let world = World::start(&["--os", "linux", "--speed", "20", "--ollama", "0.22.1"]);
    assert_eq!(world.apply_serial()["outcome"], "proven");
    let program = world.file("/usr/local/bin/ollama");
    assert!(!program.is_symlink());
    assert_eq!(versions(&world)["install"], "tarball");
    let (code, ending) = world.last(&["upgrade", "--yes"]);
    assert_eq!((code, &ending["outcome"]), (0, &"proven".into()), "{ending}");
    assert!(program.is_symlink(), "the unit is untouched, and starts what the link leads to");
    assert_eq!((installed(&world).as_str(), kept(&world)), ("0.24.0", vec!["0.22.1".to_owned()]));
    is_proven(&world);
    publish(&world, "0.25.0", Some("server-crashes"));
    let (code, ending) = upgrade(&world, "0.25.0");
    assert_eq!((code, installed(&world).as_str()), (1, "0.24.0"), "{ending}");
    assert_eq!(world.last(&["rollback", "--yes"]).0, 0);
    assert_eq!((installed(&world).as_str(), kept(&world)), ("0.22.1", vec!["0.24.0".to_owned()]));
    is_proven(&world);
}

/// Without a service manager what runs is a version among those that lie side by side, and what was started is a link.
#[test]
fn a_server_that_we_start_ourselves_goes_by_its_link_whatever_file_it_runs_from() {
    let mut world = World::start(&["--os", "linux", "--owner", "none", "--speed", "20", "--ollama", "0.22.1"]);
    std::fs::remove_file(world.file("/usr/bin/systemctl")).unwrap();
    assert_eq!(world.apply_serial()["outcome"], "proven");
    let detail = world.status()["server"]["owner_detail"].clone();
    let program = world.file("/usr/local/bin/ollama");
    assert_eq!(world.last(&["upgrade", "--to", "0.24.0", "--yes"]).0, 0, "{detail}");
    assert!(program.is_symlink());
    let stands = |world: &World, version: &str, old: &str| {
        assert_eq!((installed(world).as_str(), kept(world)), (version, vec![old.to_owned()]));
        assert_eq!(versions(world)["install"], "tarball");
        assert!(program.canonicalize().is_ok(), "the link leads to a program");
        is_proven(world);
    };
    stands(&world, "0.24.0", "0.22.1");
    assert_eq!(world.last(&["restart"]).1["outcome"], "proven");
    stands(&world, "0.24.0", "0.22.1");
    // Its house is put in order at every start.
    world.stop_daemon();
    world.start_daemon();
    stands(&world, "0.24.0", "0.22.1");
    assert_eq!(world.last(&["restart"]).1["outcome"], "proven", "what runs was not tidied away");
    publish(&world, "0.25.0", Some("server-crashes"));
    let (code, ending) = upgrade(&world, "0.25.0");
    let why = ending["failure"]["message"].as_str().unwrap();
    assert!(code == 1 && why.contains("ended at once"), "its own reason, and soon: {ending}");
    stands(&world, "0.24.0", "0.22.1");
    assert_eq!(world.last(&["rollback", "--yes"]).0, 0);
    stands(&world, "0.22.1", "0.24.0");
    assert_eq!(world.last(&["restart"]).1["outcome"], "proven");
    stands(&world, "0.22.1", "0.24.0");
}

#[test]
fn an_install_that_is_not_ours_to_replace_is_told_what_to_run() {
    let world = World::start(&["--os", "linux", "--owner", "container", "--speed", "20"]);
    let (code, ending) = world.last(&["upgrade", "--yes"]);
    assert_eq!(code, 1, "{ending}");
    let failure = &ending["failure"];
    assert!(failure["message"].as_str().unwrap().contains("container"), "{failure}");
    assert!(!failure["hint"].as_str().unwrap().is_empty(), "{failure}");
}

#[test]
fn the_app_is_whole_afterwards() {
    let world = World::start(&MAC);
    assert_eq!(upgrade(&world, "0.24.0").0, 0);
    let app = world.file(APP);
    assert!(app.join("Contents/MacOS/Ollama").is_file() && app.join("Contents/Resources/ollama").is_file());
    let links = std::fs::read_dir(app.join("Contents/Frameworks")).map_or(0, Iterator::count);
    assert!(links > 0, "links and frameworks came along");
}

#[test]
fn an_upgrade_behind_the_gateway_keeps_it_in_its_place() {
    let world = World::start(&MAC);
    assert_eq!(world.apply_serial()["outcome"], "proven");
    let (code, said) = world.text(&["gateway", "on", "--takeover", "--yes"]);
    assert_eq!(code, 0, "{said}");
    let (code, ending) = world.last(&["upgrade", "--to", "0.24.0", "--yes", "--measure"]);
    assert_eq!((code, &ending["outcome"]), (0, &"proven".into()), "{ending}");
    assert!(ending["notes"].to_string().contains("tokens/s before"), "{ending}");
    world.watch_until(|snapshot| snapshot["gateway"]["state"] == "in-place" && snapshot["gateway"]["healthy"] == true);
    is_proven(&world);
    publish(&world, "0.25.0", Some("generates-nothing"));
    let (code, ending) = upgrade(&world, "0.25.0");
    assert_eq!((code, &ending["failure"]["code"]), (1, &"not-proved-generation".into()), "{ending}");
    assert_eq!(installed(&world), "0.24.0");
    world.watch_until(|snapshot| snapshot["gateway"]["state"] == "in-place" && snapshot["gateway"]["healthy"] == true);
}
