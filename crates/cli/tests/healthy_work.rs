//! Honest work that looks like a stall, on a simulated machine whose daemon may do anything: nothing is done.

#![allow(clippy::unwrap_used, reason = "tests panic where they fail; clippy's own exception does not reach here")]

mod world;

use world::recovering::{Recovering, begins, served};

/// Times the real speed.
const SPEED: u32 = 30;
const MODEL: &str = "smollm:135m";

/// The work gets so many answers, nothing is done to anybody, and nobody is called hung.
#[track_caller]
fn is_left_alone(arguments: &[&str], answers: u64) -> Recovering {
    let world = Recovering::start(SPEED, "all", &[]);
    world.fault_with(arguments);
    world.inside_until(|inside| served(inside) >= answers);
    nobody_is_accused(&world);
    world
}

#[track_caller]
fn nobody_is_accused(world: &Recovering) {
    world.was_left_alone();
    let verdicts = world.events("verdict");
    assert!(!verdicts.iter().any(|entry| begins(entry, "hung")), "{verdicts:#?}");
}

#[test]
fn a_prompt_of_eleven_minutes_is_left_alone() {
    is_left_alone(&["work-long-prefill"], 1);
}

#[test]
fn a_load_of_five_minutes_is_left_alone() {
    is_left_alone(&["work-long-load"], 1);
}

#[test]
fn an_image_of_two_minutes_is_left_alone() {
    is_left_alone(&["work-image"], 1);
}

#[test]
fn the_first_prompt_of_all_while_the_machine_pages_is_left_alone() {
    is_left_alone(&["work-first-prompt-swapping"], 1);
}

#[test]
fn two_hundred_requests_before_one_slot_are_left_alone() {
    is_left_alone(&["work-queue", "--times", "200"], 200);
}

#[test]
fn a_prompt_of_47000_tokens_beside_three_clients_is_left_alone() {
    let world = Recovering::start(SPEED, "all", &[]);
    assert_eq!(world.text(&["settings", "set", "OLLAMA_NUM_PARALLEL=4"]).0, 0);
    assert_eq!(world.text(&["apply"]).0, 0);
    world.fault("work-four-slots");
    // Their neighbours are held up for as long as the prompt takes, and answered after it.
    world.inside_until(|inside| served(inside) >= 4);
    nobody_is_accused(&world);
}

#[test]
fn a_client_that_does_not_read_is_left_alone() {
    let world = Recovering::start(SPEED, "all", &[]);
    world.fault("work-stalled-client");
    let began = world.inside()["wall_unix_ms"].as_i64().unwrap();
    // The runner is done with the answer after seven minutes, and its only slot stays taken.
    world.inside_until(|inside| inside["wall_unix_ms"].as_i64().unwrap() - began > 10 * 60_000);
    assert!(world.inside()["runners"].as_array().unwrap().iter().all(|runner| runner["phase"] == "idle"));
    nobody_is_accused(&world);
}

#[test]
fn a_sleep_of_eight_hours_signals_nobody() {
    let world = Recovering::start(SPEED, "all", &[]);
    world.work_steadily(MODEL);
    world.is_seen_generating();
    assert_eq!(world.text(&["demo", "sleep", "28800"]).0, 0);
    world.is_served_again(20);
    nobody_is_accused(&world);
}

#[test]
fn a_machine_that_pages_is_slow_and_told_why() {
    let world = Recovering::start(SPEED, "all", &[]);
    world.work_steadily("gemma4:26b");
    // Slow is what is slower than usual.
    world.a_runner_is(|judged| judged["evidence"].to_string().contains("usually"));
    world.fault("slow-swapping");
    world.a_runner_is(|judged| judged["verdict"] == "slow");
    world.is_served_again(1);
    world.was_judged("slow: memory is being paged");
    nobody_is_accused(&world);
}
