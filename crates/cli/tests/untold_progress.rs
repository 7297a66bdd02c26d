//! Runners that do not tell whether they make progress, on a simulated machine: a person is told, nobody is signalled.

#![allow(clippy::unwrap_used, reason = "tests panic where they fail; clippy's own exception does not reach here")]

mod world;

use world::recovering::{Recovering, begins};

/// Times the real speed.
const SPEED: u32 = 40;

/// Many clients ask a model of that version, and the fault meets their requests.
fn disturbed(version: &str, model: &str, fault: &str) -> Recovering {
    let world = Recovering::start(SPEED, "all", &["--ollama", version]);
    world.work_steadily(model);
    world.fault_with(&["work-queue", "--model", model, "--times", "40"]);
    world.fault_with(&[fault, "--model", model]);
    world
}

/// Told when its stay is long over, and not ended: no request is known to be in it.
#[track_caller]
fn is_told_and_left_alone(version: &str, model: &str) {
    let world = disturbed(version, model, "runner-stuck");
    world.alert("stuck-unloading");
    world.was_left_alone();
    let verdicts = world.events("verdict");
    assert!(!verdicts.iter().any(|entry| begins(entry, "hung")), "{verdicts:#?}");
}

#[test]
fn a_stuck_runner_of_the_older_generation_is_told_and_left_alone() {
    is_told_and_left_alone("0.24.0", "smollm:135m");
}

#[test]
fn an_mlx_runner_that_is_stuck_while_it_generates_is_told_and_left_alone() {
    is_told_and_left_alone("0.33.0", "qwen3-mlx:4b");
}

#[test]
fn a_stopped_runner_of_the_older_generation_is_told_and_left_alone() {
    let world = disturbed("0.24.0", "smollm:135m", "runner-stopped");
    world.alert("hung");
    world.was_judged("hung: its process is stopped");
    world.was_left_alone();
}
