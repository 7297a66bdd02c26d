//! What is loaded and should not be, on a simulated machine: it is told, with the command that mends it.

#![allow(clippy::unwrap_used, reason = "tests panic where they fail; clippy's own exception does not reach here")]

mod world;

use serde_json::Value;
use world::World;

const LARGE: &str = "gemma4:26b";
const QUICK: [&str; 2] = ["--speed", "20"];
const SMALL: &str = "smollm:135m";

/// Waits for so many alerts of the kind, and returns the last.
fn alert(world: &World, kind: &str, count: usize) -> Value {
    let of_kind = |snapshot: &Value| -> Vec<Value> {
        let alerts = snapshot["alerts"].as_array().unwrap();
        alerts.iter().filter(|alert| alert["kind"] == kind).cloned().collect()
    };
    let snapshot = world.watch_until(|snapshot| of_kind(snapshot).len() >= count);
    of_kind(&snapshot).pop().unwrap()
}

/// Runs the command that an alert names.
fn follow(world: &World, alert: &Value) {
    let action = alert["action"].as_str().unwrap();
    let words: Vec<&str> = action.split(' ').collect();
    assert_eq!(words[0], "stablehand", "{action}");
    let (code, said) = world.text(&words[1..]);
    assert_eq!(code, 0, "{said}");
}

fn wall(inside: &Value) -> i64 {
    inside["wall_unix_ms"].as_i64().unwrap()
}

fn is_loaded(inside: &Value, model: &str) -> bool {
    inside["runners"].as_array().unwrap().iter().any(|runner| runner["model"] == model)
}

#[test]
fn a_model_that_is_not_allowed_is_told_and_its_action_unloads_it() {
    let mut world = World::without_daemon(&QUICK);
    let folder = world.file("/Users/sim/Library/Application Support/dev.stablehand");
    std::fs::create_dir_all(&folder).unwrap();
    let configuration = format!("[recovery]\nallowed_models = [\"{SMALL}\"]\n");
    std::fs::write(folder.join("config.toml"), configuration).unwrap();
    world.start_daemon();
    world.fault_with(&["unexpected-model", "--model", SMALL]);
    world.inside_until(|inside| is_loaded(inside, SMALL));
    assert_eq!(world.status()["alerts"], serde_json::json!([]), "an allowed one is nobody's business");
    world.fault("unexpected-model");
    let told = alert(&world, "unexpected-model", 1);
    assert_eq!(told["message"], format!("{LARGE} was loaded, and is not among the allowed models"));
    follow(&world, &told);
    let runs = |runner: &Value| runner["model"] == LARGE;
    world.watch_until(|snapshot| !snapshot["watched"]["runners"].as_array().unwrap().iter().any(runs));
    // After a moment it is over for good, and news when it comes back. Somebody looks on, so that it is seen to be over.
    let gone = wall(&world.inside());
    world.watch_until(|_| wall(&world.inside()) > gone + 30_000);
    world.fault("unexpected-model");
    alert(&world, "unexpected-model", 2);
}

#[test]
fn models_beyond_the_memory_of_the_gpu_are_told_with_sizes_and_the_action_frees_it() {
    let mut world = World::without_daemon(&QUICK);
    world.fault("unexpected-model");
    world.inside_until(|inside| is_loaded(inside, LARGE));
    // What the GPU may use was lowered while it was loaded (`sysctl iogpu.wired_limit_mb`).
    let file = world.file("stablehand-world.json");
    let mut marker: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    marker["gpu_working_set_bytes"] = (6_u64 << 30).into();
    std::fs::write(&file, marker.to_string()).unwrap();
    world.start_daemon();
    let told = alert(&world, "memory-budget", 1);
    let message = told["message"].as_str().unwrap();
    assert!(message.starts_with(&format!("{LARGE} takes ")) && message.contains("more than the 6.0 GiB"), "{message}");
    follow(&world, &told);
    world.inside_until(|inside| !is_loaded(inside, LARGE));
}
