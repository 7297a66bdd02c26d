//! The app's quarantine on a simulated Mac: seen, refused or cleared, proved.

#![allow(clippy::unwrap_used, reason = "tests panic where they fail; clippy's own exception does not reach here")]

mod world;

use serde_json::Value;
use std::process::Command;
use world::World;

const QUICK: [&str; 4] = ["--os", "macos", "--speed", "20"];

const APP: &str = "/Applications/Ollama.app";

/// What the machine's own `xattr` says; its exit code and output.
fn xattr(world: &World, arguments: &[&str]) -> (i32, String) {
    let output = Command::new(world.file("/usr/bin/xattr")).args(arguments).output().unwrap();
    (output.status.code().unwrap(), world::words(&output))
}

fn path(world: &World) -> String {
    world.file(APP).canonicalize().unwrap().to_str().unwrap().to_owned()
}

fn marked_files(world: &World) -> usize {
    xattr(world, &["-r", "-l", &path(world)]).1.matches("com.apple.quarantine").count()
}

fn finding<'a>(findings: &'a Value, code: &str) -> Option<&'a Value> {
    findings.as_array().unwrap().iter().find(|finding| finding["code"] == code)
}

#[test]
fn a_quarantined_app_is_seen_cleared_and_proved() {
    let world = World::without_daemon(&QUICK);
    let (code, report) = world.last(&["quarantine"]);
    assert_eq!((code, &report["state"], &report["path"]), (0, &"nothing-blocks".into(), &path(&world).into()));
    assert_eq!(finding(&world.last(&["doctor"]).1, "quarantined"), None);

    world.fault("app-quarantined");
    let (code, report) = world.last(&["quarantine", "--check"]);
    assert_eq!((code, &report["state"]), (1, &"would-block".into()), "{report}");
    assert_eq!((&report["mark"]["flags"], &report["mark"]["agent"]), (&"0181".into(), &"Homebrew Cask".into()));
    assert!(report["mark"]["at"].as_str().unwrap().ends_with('Z'), "{report}");
    let marked = marked_files(&world);
    assert!(marked > 5 && report["marked"] == marked, "{marked}: {report}");
    let (code, findings) = world.last(&["doctor"]);
    let quarantined = finding(&findings, "quarantined").unwrap();
    assert!(code == 1 && quarantined["hint"].as_str().unwrap().contains("--clear"), "{findings}");

    let (code, said) = world.text(&["quarantine", "--clear", "--dry-run"]);
    assert!(code == 0 && said.contains("SIMULATED") && said.contains("1. check seal and signer"), "{said}");
    assert_eq!(marked_files(&world), marked);

    let (code, report) = world.last(&["quarantine", "--clear"]);
    assert_eq!((code, &report["state"], &report["cleared"]), (0, &"nothing-blocks".into(), &true.into()), "{report}");
    assert!(report["signature"][1].as_str().unwrap().contains("Notarized Developer ID"), "{report}");
    assert_eq!(marked_files(&world), 0);
    let (code, said) = world.text(&["quarantine", "--check", &path(&world)]);
    assert!(code == 0 && said.contains("is not in quarantine"), "{said}");
    assert_eq!(world.last(&["quarantine", "--clear"]).1["cleared"], false, "there was nothing to clear");
}

#[test]
fn an_app_that_a_person_approved_blocks_nothing() {
    let world = World::without_daemon(&QUICK);
    world.fault("app-quarantined");
    assert_eq!(xattr(&world, &["-w", "com.apple.quarantine", "01c3;6ac3a2c0;Safari;", &path(&world)]).0, 0);
    let (code, report) = world.last(&["quarantine"]);
    assert_eq!((code, &report["state"]), (0, &"nothing-blocks".into()), "{report}");
    assert!(report["marked"].as_u64().unwrap() > 5, "{report}");
}

#[test]
fn what_is_not_ollamas_own_keeps_its_quarantine() {
    for (fault, code) in [
        ("app-signed-by-others", "signature-other-team"),
        ("app-seal-broken", "signature-broken"),
        ("app-unsigned", "signature-missing"),
    ] {
        let world = World::without_daemon(&QUICK);
        world.fault("app-quarantined");
        world.fault(fault);
        let marked = marked_files(&world);
        let (exit, ending) = world.last(&["quarantine", "--clear"]);
        assert_eq!((exit, &ending["failure"]["code"]), (1, &code.into()), "{ending}");
        assert!(ending["failure"]["message"].as_str().unwrap().contains("nothing was changed"), "{ending}");
        assert_eq!(marked_files(&world), marked, "{fault}");
        world.fault("clear");
        assert_eq!(world.last(&["quarantine"]).0, 0, "{fault}");
    }
}

#[test]
fn app_management_is_named_with_its_page() {
    let world = World::without_daemon(&QUICK);
    world.fault("app-quarantined");
    world.fault("rename-eperm");
    let (exit, ending) = world.last(&["quarantine", "--clear"]);
    // The immutable flag must go before the folder can.
    world.fault("clear");
    assert_eq!((exit, &ending["failure"]["code"]), (1, &"app-management".into()), "{ending}");
    assert!(ending["failure"]["hint"].as_str().unwrap().contains("Privacy_AppBundles"), "{ending}");
}

#[test]
fn what_cannot_be_read_is_said_and_never_harmless() {
    let world = World::without_daemon(&QUICK);
    assert_eq!(xattr(&world, &["-w", "com.apple.quarantine", "nonsense", &path(&world)]).0, 0);
    let (code, report) = world.last(&["quarantine"]);
    assert_eq!((code, &report["state"]), (3, &"unknown".into()), "{report}");
    assert!(report["mark"]["unknown"].is_string(), "{report}");
    assert_eq!(finding(&world.last(&["doctor"]).1, "quarantine-unknown").unwrap()["severity"], "unknown");
    for (path, code) in [("/Applications/None.app", "no-such-path"), ("/Applications", "not-a-bundle")] {
        let (exit, ending) = world.last(&["quarantine", "--check", world.file(path).to_str().unwrap()]);
        assert_eq!((exit, &ending["failure"]["code"]), (3, &code.into()), "{ending}");
    }
    // A mark that nobody can read goes with the others.
    assert_eq!(world.last(&["quarantine", "--clear"]).0, 0);
    assert_eq!(world.last(&["quarantine"]).0, 0);
}

#[test]
fn without_an_app_one_has_to_be_named() {
    let world = World::without_daemon(&["--os", "macos", "--owner", "brew", "--speed", "20"]);
    let (code, ending) = world.last(&["quarantine"]);
    assert_eq!((code, &ending["failure"]["code"]), (3, &"no-app-looked-after".into()), "{ending}");
}

#[test]
fn linux_has_no_quarantine() {
    let world = World::without_daemon(&["--os", "linux", "--owner", "none"]);
    let (code, ending) = world.last(&["quarantine"]);
    assert_eq!((code, &ending["failure"]["code"]), (3, &"no-quarantine".into()), "{ending}");
}
