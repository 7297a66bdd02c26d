//! Each fault of a runner meets the request of a steady client; once the runner
//! is gone, the client is served again.

use std::time::Duration;

use serde_json::Value;

use crate::sandbox::{Sandbox, eventually, http_within, is_alive, signal};

/// Both generations of runners, and the MLX engine in each.
const RUNNERS: [(&str, &str); 4] =
    [("0.33.0", "smollm:135m"), ("0.33.0", "qwen3-mlx:4b"), ("0.24.0", "smollm:135m"), ("0.24.0", "qwen3-mlx:4b")];

fn with_steady_client(version: &str, model: &str) -> Sandbox {
    let sandbox = Sandbox::start(&["--ollama", version, "--speed", "60"]);
    sandbox.fault(&["work-steady", "--model", model]);
    sandbox.is_served_again();
    sandbox
}

fn pid_of(sandbox: &Sandbox, model: &str) -> i64 {
    sandbox.runner_of(model)["pid"].as_i64().unwrap()
}

fn cpu_ms(sandbox: &Sandbox, model: &str) -> u64 {
    sandbox.runner_of(model)["cpu_ms"].as_u64().unwrap()
}

#[test]
fn a_stuck_decode_loop_serves_nobody_until_the_runner_is_gone() {
    for (version, model) in RUNNERS {
        let sandbox = with_steady_client(version, model);
        sandbox.fault(&["runner-stuck", "--model", model]);
        assert_eq!(sandbox.runner_of(model)["phase"], "stuck", "{version} {model}");
        let health = if model.contains("mlx") { "/v1/status" } else { "/health" };
        assert_eq!(sandbox.ask_runner(model, health).0, 200, "{version} {model}");
        let served = sandbox.served();
        let cpu = cpu_ms(&sandbox, model);
        sandbox.seconds_pass(12);
        assert_eq!(sandbox.served(), served, "{version} {model}");
        assert!(cpu_ms(&sandbox, model) - cpu <= 20, "{version} {model}");

        signal(pid_of(&sandbox, model), "KILL");

        sandbox.is_served_again();
    }
}

#[test]
fn a_busy_loop_burns_a_core_and_serves_nobody() {
    for (version, model) in [RUNNERS[0], RUNNERS[2]] {
        let sandbox = with_steady_client(version, model);
        sandbox.fault(&["runner-busy-loop", "--model", model]);
        assert_eq!(sandbox.runner_of(model)["phase"], "busy-loop");
        assert_eq!(sandbox.ask_runner(model, "/health").0, 200);
        let (served, cpu) = (sandbox.served(), cpu_ms(&sandbox, model));
        eventually(|| cpu_ms(&sandbox, model) > cpu + 150);
        assert_eq!(sandbox.served(), served);

        signal(pid_of(&sandbox, model), "KILL");

        sandbox.is_served_again();
    }
}

#[test]
fn a_stopped_runner_is_stopped_in_the_middle_of_a_request() {
    for (version, model) in [RUNNERS[0], RUNNERS[1]] {
        let sandbox = with_steady_client(version, model);
        sandbox.fault(&["runner-stopped", "--model", model]);
        let runner = sandbox.runner_of(model);
        assert_eq!((&runner["state"], &runner["busy"]), (&"T".into(), &1.into()), "{version} {model}");
        assert_eq!(sandbox.ask_runner(model, "/health").0, 0);

        signal(pid_of(&sandbox, model), "KILL");

        sandbox.is_served_again();
    }
}

#[test]
fn a_dead_http_side_answers_nothing_while_the_process_lives() {
    for (version, model) in RUNNERS {
        let sandbox = with_steady_client(version, model);
        sandbox.fault(&["runner-http-dead", "--model", model]);
        assert_eq!(sandbox.ask_runner(model, "/health").0, 0, "{version} {model}");
        let served = sandbox.served();
        assert_eq!(sandbox.http("GET", "/api/version", "").0, 200);
        sandbox.seconds_pass(12);
        assert_eq!(sandbox.served(), served, "{version} {model}");

        let pid = pid_of(&sandbox, model);
        assert!(is_alive(pid));
        signal(pid, "KILL");

        sandbox.is_served_again();
    }
}

#[test]
fn a_reset_gpu_answers_each_request_with_one_empty_token() {
    let sandbox = with_steady_client("0.33.0", "smollm:135m");
    sandbox.fault(&["runner-empty-replies"]);
    let failed = |status: &Value| status["work"]["failed"].as_u64().unwrap();
    eventually(|| failed(&sandbox.status()) >= 3);
    let log = sandbox.server_log();
    assert!(log.matches("       eval time =       0.00 ms /     1 tokens").count() >= 3, "{log}");
    assert_eq!(sandbox.status()["work"]["last_error"], "200: an empty answer");
    assert!(log.contains("| 200 |"));

    signal(pid_of(&sandbox, "smollm:135m"), "KILL");

    sandbox.is_served_again();
}

#[test]
fn a_model_with_a_hung_request_stops_for_ever() {
    for (version, model) in [RUNNERS[0], RUNNERS[1], RUNNERS[2]] {
        let sandbox = Sandbox::start(&["--ollama", version, "--speed", "60"]);
        sandbox.fault(&["stopping-for-ever", "--model", model]);
        let pid = pid_of(&sandbox, model);
        let (_, ps) = sandbox.http("GET", "/api/ps", "");
        let ps: Value = serde_json::from_str(&ps).unwrap();
        assert_eq!(ps["models"][0]["name"], model, "{version}");
        sandbox.seconds_pass(12);
        assert!(is_alive(pid));
        assert!(sandbox.http("GET", "/api/ps", "").1.contains(model));

        signal(pid, "KILL");

        eventually(|| !sandbox.http("GET", "/api/ps", "").1.contains(model));
        sandbox.fault(&["work-steady", "--model", model]);
        sandbox.is_served_again();
    }
}

#[test]
fn an_orphan_outlives_the_next_server_in_each_generation() {
    for (version, model) in RUNNERS {
        let sandbox = with_steady_client(version, model);
        let (orphan, server) = (pid_of(&sandbox, model), sandbox.pid("serve"));
        sandbox.fault(&["orphan-runner", "--model", model]);
        sandbox.is_served_again();
        assert!(is_alive(orphan), "{version} {model}");
        assert_ne!(sandbox.pid("serve"), server);
        let count = sandbox.status()["runners"].as_array().map(Vec::len);
        assert_eq!(count, Some(2), "{version} {model}: the orphan and its successor");
    }
}

#[test]
fn a_second_fault_of_the_same_kind_keeps_the_first() {
    let sandbox = Sandbox::start(&[]);
    for model in ["smollm:135m", "qwen3-mlx:4b"] {
        sandbox.fault(&["runner-http-dead", "--model", model]);
    }
    for model in ["smollm:135m", "qwen3-mlx:4b"] {
        assert_eq!(sandbox.ask_runner(model, "/health").0, 0, "{model}");
    }
}

#[test]
fn a_client_loads_a_model_that_nobody_expects() {
    let sandbox = with_steady_client("0.33.0", "smollm:135m");
    sandbox.fault(&["unexpected-model"]);
    assert_eq!(sandbox.runner_of("gemma4:26b")["phase"], "idle");
    assert!(sandbox.http("GET", "/api/ps", "").1.contains("gemma4:26b"));
    let again = sandbox.verb("fault", &["unexpected-model", "--model", "gemma4:26b"]);
    assert!(!again.status.success());
}

#[test]
fn clients_are_seen_in_the_process_table_with_their_connections() {
    let sandbox = with_steady_client("0.33.0", "smollm:135m");
    let client = sandbox.status()["clients"][0].clone();
    assert_eq!((&client["work"], &client["model"]), (&"work-steady".into(), &"smollm:135m".into()));
    let listed = sandbox.command("bin/ps", &["-axo", "pid=,args="]);
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    assert!(listed.contains("/bin/bot work-steady --model smollm:135m"), "{listed}");
    let body = "{\"model\":\"smollm:135m\",\"prompt\":\"hello\",\"options\":{\"num_predict\":5}}";
    let answer = http_within(sandbox.port(), "POST", "/api/generate", body, Duration::from_secs(10));
    assert_eq!(answer.0, 200, "{answer:?}");

    sandbox.fault(&["work-stop"]);

    assert_eq!(sandbox.status()["clients"], serde_json::json!([]));
}
