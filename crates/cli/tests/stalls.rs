//! Stalls told from honest work, and cleared, on a simulated machine: every fault ends in a served request, every
//! healthy extreme in no signal at all.

#![allow(clippy::unwrap_used, reason = "tests panic where they fail; clippy's own exception does not reach here")]

mod world;

use serde_json::Value;
use world::World;

/// A machine at sixty times the real speed, whose daemon may recover runners, with `work` going on.
fn recovering(policy: &str, work: Option<&str>, arguments: &[&str]) -> World {
    let mut world = World::without_daemon(&[&["--speed", "60"], arguments].concat());
    let folder = world.file("/Users/sim/Library/Application Support/dev.stablehand");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("config.toml"), format!("[recovery]\npolicy = \"{policy}\"\n")).unwrap();
    world.start_daemon();
    if let Some(work) = work {
        world.fault(work);
        world.inside_until(|inside| inside["work"]["served"].as_u64().unwrap_or(0) > 2);
    }
    world
}

fn served(world: &World) -> u64 {
    world.inside()["work"]["served"].as_u64().unwrap_or(0)
}

/// Events of the history of one kind.
fn events(world: &World, kind: &str) -> Vec<Value> {
    let (_, history) = world.last(&["history", "--since", "1d"]);
    let entries = history["entries"].as_array().unwrap_or_else(|| panic!("{history}")).clone();
    entries.into_iter().filter(|entry| entry["kind"] == kind).collect()
}

/// The runner with that fault is ended, and the clients are served again.
#[track_caller]
fn is_cleared(fault: &str, verdict: &str, arguments: &[&str]) {
    let world = recovering("runner", Some("work-steady"), arguments);
    world.fault(fault);
    world.watch_until(|snapshot| {
        snapshot["alerts"].as_array().unwrap().iter().any(|alert| alert["kind"] == "recovered")
    });
    let before = served(&world);
    world.inside_until(|inside| inside["work"]["served"].as_u64().unwrap_or(0) > before);
    let verdicts = events(&world, "verdict");
    assert!(verdicts.iter().any(|entry| entry["words"].as_str().unwrap().starts_with(verdict)), "{verdicts:#?}");
    assert!(!events(&world, "kill").is_empty(), "a runner was signalled");
    let evidence = world.file("/Users/sim/Library/Logs/dev.stablehand/evidence");
    assert!(std::fs::read_dir(evidence).unwrap().next().is_some(), "evidence was saved before");
}

#[test]
fn a_decode_loop_that_stands_still_is_cleared() {
    is_cleared("runner-stuck", "hung", &[]);
}

#[test]
fn under_the_policy_alert_nothing_is_signalled() {
    let world = recovering("alert", Some("work-steady"), &[]);
    world.fault("runner-stuck");
    world.watch_until(|snapshot| snapshot["alerts"].as_array().unwrap().iter().any(|alert| alert["kind"] == "hung"));
    assert!(events(&world, "kill").is_empty());
    let (code, said) = world.text(&["why"]);
    assert_eq!(code, 0);
    assert!(said.contains("hung") && said.contains("«alert»"), "{said}");
    // A person clears it.
    let before = served(&world);
    let (code, said) = world.text(&["runner", "stop", "smollm:135m", "--force"]);
    assert_eq!(code, 0, "{said}");
    world.inside_until(|inside| inside["work"]["served"].as_u64().unwrap_or(0) > before);
}

#[test]
fn a_model_is_unloaded_when_asked_and_an_unknown_one_is_named() {
    let world = recovering("alert", Some("work-steady"), &[]);
    world.fault("work-stop");
    let (code, ending) = world.last(&["unload", "nothing:1b"]);
    assert_eq!((code, &ending["failure"]["code"]), (1, &"no-such-model-loaded".into()), "{ending}");
    assert!(ending["failure"]["hint"].to_string().contains("smollm:135m"), "{ending}");
    let (code, ending) = world.last(&["unload", "smollm:135m"]);
    assert_eq!(code, 0, "{ending}");
    world.inside_until(|inside| inside["runners"].as_array().unwrap().is_empty());
}

#[test]
fn metrics_and_history_tell_of_the_work() {
    let world = recovering("alert", Some("work-steady"), &[]);
    world.watch_until(|snapshot| !snapshot["watched"]["runners"].as_array().is_none_or(Vec::is_empty));
    let (code, metrics) = world.text(&["metrics"]);
    assert_eq!(code, 0);
    assert!(
        metrics.contains("stablehand_memory_used_bytes ") && metrics.contains("model=\"smollm:135m\""),
        "{metrics}"
    );
    let (code, csv) = world.text(&["history", "--since", "1d", "--csv"]);
    assert_eq!(code, 0, "{csv}");
    assert!(csv.lines().any(|line| line.contains("memory_used_bytes")), "{csv}");
}

/// Whatever the work, nothing is signalled and nobody is called hung.
#[track_caller]
fn is_left_alone(work: &str, arguments: &[&str], until: impl Fn(&Value) -> bool) {
    let world = recovering("all", None, arguments);
    world.fault(work);
    world.inside_until(until);
    assert!(events(&world, "kill").is_empty(), "{:#?}", events(&world, "verdict"));
    assert!(events(&world, "restart").is_empty());
    let hung = |entry: &Value| entry["words"].as_str().unwrap().starts_with("hung");
    assert!(!events(&world, "verdict").iter().any(hung), "{:#?}", events(&world, "verdict"));
}

fn one_served(inside: &Value) -> bool {
    inside["work"]["served"].as_u64().unwrap_or(0) >= 1
}

#[test]
fn a_prompt_of_eleven_minutes_is_left_alone() {
    is_left_alone("work-long-prefill", &[], one_served);
}

#[test]
fn a_load_of_five_minutes_is_left_alone() {
    is_left_alone("work-long-load", &[], one_served);
}

#[test]
fn an_image_of_two_minutes_is_left_alone() {
    is_left_alone("work-image", &[], one_served);
}

#[test]
fn a_sleep_of_eight_hours_signals_nobody() {
    let world = recovering("all", Some("work-steady"), &[]);
    assert_eq!(world.text(&["demo", "sleep", "28800"]).0, 0);
    let before = served(&world);
    world.inside_until(|inside| inside["work"]["served"].as_u64().unwrap_or(0) > before + 3);
    assert!(events(&world, "kill").is_empty());
}
