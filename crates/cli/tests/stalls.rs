//! Stalls told from honest work, and cleared, on a simulated machine: every fault ends in a served request, every
//! healthy extreme in no signal at all.

#![allow(clippy::unwrap_used, reason = "tests panic where they fail; clippy's own exception does not reach here")]

mod world;

use serde_json::Value;
use std::ops::Deref;
use std::sync::{Mutex, MutexGuard, PoisonError};
use world::World;

/// At sixty times the real speed, a machine that shares its two cores with others looks stalled itself.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// A machine that has the cores to itself.
struct Alone {
    world: World,
    _turn: MutexGuard<'static, ()>,
}

impl Deref for Alone {
    type Target = World;

    fn deref(&self) -> &World {
        &self.world
    }
}

/// A machine at sixty times the real speed, whose daemon may recover runners, with `work` going on.
fn recovering(policy: &str, work: Option<&str>, arguments: &[&str]) -> Alone {
    let turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let mut world = World::without_daemon(&[&["--speed", "60"], arguments].concat());
    let folder = world.file("/Users/sim/Library/Application Support/dev.stablehand");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("config.toml"), format!("[recovery]\npolicy = \"{policy}\"\n")).unwrap();
    world.start_daemon();
    if let Some(work) = work {
        world.fault(work);
        world.inside_until(|inside| inside["work"]["served"].as_u64().unwrap_or(0) > 2);
        // Whoever was never seen to generate is not accused of having stopped.
        world.watch_until(|snapshot| {
            let runners = snapshot["watched"]["runners"].as_array();
            runners.is_some_and(|runners| runners.iter().any(|runner| runner["judged"]["verdict"] == "generating"))
        });
    }
    Alone { world, _turn: turn }
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

/// Something is done about the fault under that policy, and the clients are served again.
#[track_caller]
fn is_cleared(policy: &str, fault: &str, verdict: &str, arguments: &[&str]) -> Alone {
    let world = recovering(policy, Some("work-steady"), arguments);
    world.fault(fault);
    world.watch_until(|snapshot| {
        snapshot["alerts"].as_array().unwrap().iter().any(|alert| alert["kind"] == "recovered")
    });
    let before = served(&world);
    world.inside_until(|inside| inside["work"]["served"].as_u64().unwrap_or(0) > before);
    let verdicts = events(&world, "verdict");
    assert!(verdicts.iter().any(|entry| entry["words"].as_str().unwrap().starts_with(verdict)), "{verdicts:#?}");
    let evidence = world.file("/Users/sim/Library/Logs/dev.stablehand/evidence");
    assert!(std::fs::read_dir(evidence).unwrap().next().is_some(), "evidence was saved before");
    world
}

#[test]
fn a_decode_loop_that_stands_still_is_cleared() {
    let world = is_cleared("runner", "runner-stuck", "hung", &[]);
    assert!(!events(&world, "kill").is_empty(), "a runner was signalled");
}

#[test]
fn a_busy_loop_without_progress_is_cleared() {
    is_cleared("runner", "runner-busy-loop", "hung", &[]);
}

#[test]
fn a_runner_whose_http_side_is_dead_is_cleared() {
    is_cleared("runner", "runner-http-dead", "hung", &[]);
}

#[test]
fn a_stopped_process_is_cleared() {
    is_cleared("runner", "runner-stopped", "hung: its process is stopped", &[]);
}

#[test]
fn empty_replies_end_in_an_unload() {
    let world = is_cleared("runner", "runner-empty-replies", "answers without text", &[]);
    assert!(events(&world, "kill").is_empty(), "unloading is enough");
}

#[test]
fn a_runner_left_behind_is_ended() {
    is_cleared("runner", "orphan-runner", "left behind", &[]);
}

#[test]
fn a_server_that_is_silent_is_restarted_under_the_policy_all() {
    is_cleared("all", "server-silent", "the server does not answer", &[]);
}

#[test]
fn a_blocked_scheduler_is_restarted_under_the_policy_all() {
    is_cleared("all", "scheduler-blocked", "the server answers, its scheduler does not move", &[]);
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
