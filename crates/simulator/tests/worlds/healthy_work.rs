//! Honest extremes: each ends in a served request when nobody interferes.

use serde_json::Value;

use crate::sandbox::{Sandbox, eventually, is_alive};

fn count(sandbox: &Sandbox, work: &str, key: &str) -> u64 {
    sandbox.status()["work"]["works"][work][key].as_u64().unwrap_or(0)
}

/// Begins a work and waits until it was served so often without a failure.
#[track_caller]
fn is_served(sandbox: &Sandbox, work: &str, times: u64) {
    eventually(|| count(sandbox, work, "served") >= times);
    assert_eq!(count(sandbox, work, "failed"), 0);
}

fn slots(sandbox: &Sandbox, model: &str) -> Vec<Value> {
    serde_json::from_str(&sandbox.ask_runner(model, "/slots").1).unwrap_or_default()
}

#[test]
fn a_prompt_of_eleven_minutes_is_served() {
    for (version, model) in [("0.33.0", "qwen3.6:35b"), ("0.33.0", "qwen3-mlx:4b"), ("0.24.0", "smollm:135m")] {
        let sandbox = Sandbox::start(&["--speed", "800", "--ollama", version]);
        let before = sandbox.status()["wall_unix_ms"].as_i64().unwrap();
        sandbox.fault(&["work-long-prefill", "--model", model]);
        is_served(&sandbox, "work-long-prefill", 1);
        let took_s = (sandbox.status()["wall_unix_ms"].as_i64().unwrap() - before) / 1000;
        assert!(took_s >= 650, "{version} {model}: {took_s} s");
    }
}

#[test]
fn a_first_prompt_is_served_although_the_machine_pages() {
    let sandbox = Sandbox::start(&["--speed", "300"]);
    sandbox.fault(&["work-first-prompt-swapping"]);
    let level = sandbox.command("usr/sbin/sysctl", &["-n", "kern.memorystatus_vm_pressure_level"]);
    assert_eq!(level.stdout, b"1\n", "swap grows at a normal level");
    assert!(sandbox.status()["faults"].as_array().unwrap().contains(&"work-first-prompt-swapping".into()));
    is_served(&sandbox, "work-first-prompt-swapping", 1);
    eventually(|| sandbox.status()["faults"] == serde_json::json!([]));
}

#[test]
fn an_image_is_encoded_before_the_first_token_of_the_prompt() {
    let sandbox = Sandbox::start(&["--speed", "100"]);
    sandbox.fault(&["work-image"]);
    let slot = slots(&sandbox, "gemma4:26b")[0].clone();
    assert_eq!((&slot["is_processing"], &slot["n_prompt_tokens_processed"]), (&true.into(), &0.into()), "{slot}");
    is_served(&sandbox, "work-image", 1);
    assert!(sandbox.server_log().contains("image processed in 12"), "{}", sandbox.server_log());
    let blind = sandbox.verb("fault", &["work-image", "--model", "smollm:135m"]);
    assert!(!blind.status.success());
}

#[test]
fn a_big_prompt_holds_up_three_neighbours_and_all_are_served() {
    let sandbox = Sandbox::start(&["--speed", "120"]);
    let refused = sandbox.verb("fault", &["work-four-slots"]);
    assert!(!refused.status.success());
    sandbox.launchctl(&["setenv", "OLLAMA_NUM_PARALLEL", "4"]);
    sandbox.restart_app();

    sandbox.fault(&["work-four-slots"]);

    let busy = slots(&sandbox, "gemma4:26b").iter().filter(|slot| slot["is_processing"] == true).count();
    assert_eq!(busy, 4);
    is_served(&sandbox, "work-four-slots", 4);
    sandbox.fault(&["work-stop"]);
    eventually(|| sandbox.runner_of("gemma4:26b")["busy"] == 0);
}

#[test]
fn a_client_that_stops_reading_keeps_the_only_slot_of_the_server() {
    let sandbox = Sandbox::start(&["--speed", "200"]);
    sandbox.fault(&["work-stalled-client"]);
    sandbox.fault(&["work-steady", "--model", "gemma4:26b"]);
    // The runner is done with the answer that nobody reads; the server is not.
    eventually(|| sandbox.runner_of("gemma4:26b")["phase"] == "idle");
    assert_eq!(count(&sandbox, "work-steady", "asked"), 1);
    assert_eq!(count(&sandbox, "work-steady", "served"), 0);
    sandbox.fault(&["work-stop"]);
    sandbox.fault(&["work-steady", "--model", "gemma4:26b"]);
    sandbox.is_served_again();
}

#[test]
fn a_load_of_five_minutes_is_served() {
    for (version, model) in [("0.33.0", "gemma4:26b"), ("0.24.0", "smollm:135m")] {
        let sandbox = Sandbox::start(&["--speed", "500", "--ollama", version]);
        sandbox.fault(&["work-long-load", "--model", model]);
        let runner = sandbox.runner_of(model);
        assert_eq!(runner["phase"], "loading");
        is_served(&sandbox, "work-long-load", 1);
        assert!(is_alive(runner["pid"].as_i64().unwrap()), "{version}: the same runner");
    }
}

#[test]
fn two_hundred_requests_at_once_are_served_one_after_the_other() {
    let sandbox = Sandbox::start(&["--speed", "600"]);
    sandbox.fault(&["work-queue"]);
    assert_eq!(count(&sandbox, "work-queue", "asked"), 200);
    assert_eq!(sandbox.status()["clients"].as_array().unwrap().len(), 4);
    assert!(slots(&sandbox, "smollm:135m").len() == 1);
    is_served(&sandbox, "work-queue", 200);
}

#[test]
fn an_image_pages_and_loads_are_forgotten_when_work_stops() {
    let sandbox = Sandbox::start(&["--speed", "200"]);
    sandbox.fault(&["work-image"]);
    sandbox.fault(&["clear"]);
    assert_eq!(sandbox.status()["faults"], serde_json::json!(["work-image"]), "work ends when it is told to");
    sandbox.fault(&["work-stop"]);
    assert_eq!(sandbox.status()["faults"], serde_json::json!([]));
    eventually(|| sandbox.runner_of("gemma4:26b")["busy"] == 0);
}
