//! Stalls cleared on a simulated machine: every fault ends in a served request.

#![allow(clippy::unwrap_used, reason = "tests panic where they fail; clippy's own exception does not reach here")]

mod world;

use serde_json::Value;
use world::recovering::{Recovering, begins};

/// Times the real speed.
const SPEED: u32 = 20;
/// Slow enough that a request of its steady client is in it whenever somebody looks.
const MODEL: &str = "qwen3.6:35b";

/// A steady client is at work, and was seen to be.
fn at_work(policy: &str) -> Recovering {
    let world = Recovering::start(SPEED, policy, &[]);
    world.work_steadily(MODEL);
    world.is_seen_generating();
    world
}

/// What was at work rests: the next fault meets no request.
fn at_rest(policy: &str) -> Recovering {
    let world = at_work(policy);
    world.fault("work-stop");
    world.inside_until(|inside| inside["runners"].as_array().unwrap().iter().all(|runner| runner["busy"] == 0));
    // The daemon, too, knows that no request is in it.
    world.watch_until(|snapshot| {
        snapshot["watched"]["runners"].as_array().unwrap().iter().all(|runner| runner["slots_busy"] == 0)
    });
    world
}

/// Something is done about it, for that reason, and the clients are served again.
#[track_caller]
fn is_cleared(world: &Recovering, verdict: &str) {
    world.alert("recovered");
    world.is_served_again(1);
    world.was_judged(verdict);
    assert!(world.evidence() > 0, "evidence was saved before");
}

/// A fault that meets a request ends with a signal to the runner.
#[track_caller]
fn ends_the_runner(fault: &str, verdict: &str) {
    let world = at_work("runner");
    world.fault(fault);
    is_cleared(&world, verdict);
    assert!(!world.events("kill").is_empty(), "a runner was signalled");
}

/// A fault that comes over a runner at rest shows when somebody comes to it.
#[track_caller]
fn is_served_after_a_fault_at_rest(fault: &str) -> Recovering {
    let world = at_rest("runner");
    world.fault(fault);
    world.work_steadily(MODEL);
    world
}

#[test]
fn a_decode_loop_that_stands_still_is_cleared() {
    ends_the_runner("runner-stuck", "hung: its decode loop stands still");
}

#[test]
fn a_decode_loop_that_stops_at_rest_is_cleared() {
    let world = is_served_after_a_fault_at_rest("runner-stuck");
    world.was_judged("hung: its decode loop stands still");
}

#[test]
fn a_busy_loop_without_progress_is_cleared() {
    // How busy it is seen to be depends on what else this computer does.
    ends_the_runner("runner-busy-loop", "hung");
}

#[test]
fn a_runner_whose_http_side_is_dead_is_cleared() {
    ends_the_runner("runner-http-dead", "hung: it does not answer at all");
}

#[test]
fn a_runner_whose_http_side_dies_at_rest_is_cleared() {
    is_served_after_a_fault_at_rest("runner-http-dead");
}

#[test]
fn a_stopped_process_is_cleared() {
    ends_the_runner("runner-stopped", "hung: its process is stopped");
}

#[test]
fn a_process_that_is_stopped_at_rest_is_told_and_left_to_the_server() {
    let world = at_rest("runner");
    world.fault("runner-stopped");
    world.alert("hung");
    // Whoever comes makes Ollama itself find out and load the model anew.
    world.work_steadily(MODEL);
    world.was_left_alone();
}

#[test]
fn empty_replies_end_in_an_unload() {
    let world = at_work("runner");
    world.fault("runner-empty-replies");
    is_cleared(&world, "answers without text");
    assert!(world.events("kill").is_empty(), "unloading is enough");
}

#[test]
fn a_model_that_is_stopping_for_ever_is_cleared() {
    let world = at_work("runner");
    world.fault("stopping-for-ever");
    is_cleared(&world, "stuck while unloading");
    assert!(!world.events("kill").is_empty(), "a runner was signalled");
}

#[test]
fn a_runner_that_died_and_is_listed_is_nothing_to_act_upon() {
    let world = at_work("runner");
    world.fault("runner-killed");
    world.is_served_again(2);
    world.was_left_alone();
}

#[test]
fn a_runner_left_behind_is_ended() {
    let world = at_work("runner");
    world.fault("orphan-runner");
    is_cleared(&world, "left behind");
}

#[test]
fn a_server_that_is_silent_is_restarted_under_the_policy_all() {
    let world = at_work("all");
    world.fault("server-silent");
    is_cleared(&world, "the server does not answer");
}

#[test]
fn a_blocked_scheduler_is_restarted_under_the_policy_all() {
    let world = at_work("all");
    world.fault("scheduler-blocked");
    is_cleared(&world, "the server answers, its scheduler does not move");
}

#[test]
fn a_server_whose_runners_are_slow_and_break_is_told_and_left_alone() {
    // Failures may be the requests' own; restarting a server for a client that repeats what cannot work cures nothing.
    let world = at_work("all");
    world.fault("serve-corrupt");
    world.alert("server-corrupt");
    world.was_left_alone();
}

#[test]
fn under_the_policy_alert_nothing_is_signalled() {
    let world = at_work("alert");
    world.fault("runner-stuck");
    world.alert("hung");
    world.was_left_alone();
    let (code, said) = world.text(&["why"]);
    assert_eq!(code, 0);
    assert!(said.contains("hung") && said.contains("«alert»"), "{said}");
    // What a person would clear is told without being done.
    for verb in [&["runner", "stop", MODEL, "--force", "--dry-run"][..], &["unload", MODEL, "--dry-run"]] {
        let (code, ending) = world.last(verb);
        assert_eq!((code, &ending["outcome"]), (0, &"planned".into()), "{ending}");
        assert!(ending["steps"].to_string().contains(MODEL), "{ending}");
    }
    let (code, ending) = world.last(&["recover"]);
    assert_eq!((code, &ending["notes"][0]), (0, &"nothing was given up".into()), "{ending}");
    world.was_left_alone();
    // A person clears it.
    let (code, said) = world.text(&["runner", "stop", MODEL, "--force"]);
    assert_eq!(code, 0, "{said}");
    world.is_served_again(1);
}

#[test]
fn what_comes_back_after_each_step_is_given_up_until_a_person_asks() {
    let world = at_work("runner");
    for times in 1..=2 {
        world.fault("runner-stuck");
        world.watch_until(|_| {
            world.events("outcome").iter().filter(|entry| begins(entry, "verify: done")).count() == times
        });
        world.is_served_again(2);
        world.is_seen_generating();
    }
    world.fault("runner-stuck");
    world.alert("gave-up");
    let (_, said) = world.text(&["why"]);
    assert!(said.contains("Recovery gave up on") && said.contains("`stablehand recover`"), "{said}");
    let planned = world.last(&["recover", "--dry-run"]).1;
    assert!(planned["steps"][0].to_string().contains(MODEL), "{planned}");
    let given_up = |snapshot: &Value| snapshot["watched"]["recovery"]["given_up"].as_array().map(Vec::len);
    assert_eq!(given_up(&world.status()), Some(1));
    let (code, ending) = world.last(&["recover"]);
    assert_eq!((code, ending["steps"].as_array().map(Vec::len)), (0, Some(1)), "{ending}");
    world.is_served_again(1);
    assert_eq!(given_up(&world.status()), Some(0));
}

#[test]
fn a_model_is_unloaded_when_asked_and_an_unknown_one_is_named() {
    let world = at_rest("alert");
    let (code, ending) = world.last(&["unload", "nothing:1b"]);
    assert_eq!((code, &ending["failure"]["code"]), (1, &"no-such-model-loaded".into()), "{ending}");
    assert!(ending["failure"]["hint"].to_string().contains(MODEL), "{ending}");
    let (code, ending) = world.last(&["unload", MODEL]);
    assert_eq!(code, 0, "{ending}");
    world.inside_until(|inside| inside["runners"].as_array().unwrap().is_empty());
}

#[test]
fn metrics_and_history_tell_of_the_work() {
    let world = at_work("alert");
    let (code, metrics) = world.text(&["metrics"]);
    assert_eq!(code, 0);
    assert!(
        metrics.contains("stablehand_memory_used_bytes ") && metrics.contains("model=\"qwen3.6:35b\""),
        "{metrics}"
    );
    let (code, csv) = world.text(&["history", "--since", "1d", "--csv"]);
    assert_eq!(code, 0, "{csv}");
    assert!(csv.lines().any(|line| line.contains("memory_used_bytes")), "{csv}");
}
