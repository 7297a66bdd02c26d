//! Progress as the runners tell it: batches, slots, log lines.

use std::thread;
use std::time::Duration;

use serde_json::Value;

use crate::sandbox::{Sandbox, eventually, http};

fn slots(sandbox: &Sandbox, model: &str) -> Value {
    serde_json::from_str(&sandbox.ask_runner(model, "/slots").1).unwrap_or_default()
}

fn busy_slot(sandbox: &Sandbox, model: &str) -> Value {
    let slots = slots(sandbox, model);
    slots.as_array().into_iter().flatten().find(|slot| slot["is_processing"] == true).cloned().unwrap_or_default()
}

#[test]
fn a_prompt_grows_batch_by_batch_and_its_total_shows_at_the_end_only() {
    let sandbox = Sandbox::start(&["--speed", "40"]);
    sandbox.fault(&["work-long-prefill", "--model", "gemma4:26b", "--seconds", "60"]);
    let mut seen = Vec::new();
    eventually(|| {
        let slot = busy_slot(&sandbox, "gemma4:26b");
        let processed = slot["n_prompt_tokens_processed"].as_u64();
        if let Some(processed) = processed.filter(|_| slot["next_token"][0]["n_decoded"] == 0) {
            let total = slot["n_prompt_tokens"].as_u64().unwrap();
            assert!(total >= processed && total - processed <= 1024, "{slot}");
            if seen.last() != Some(&processed) {
                seen.push(processed);
            }
        }
        slot["next_token"][0]["n_decoded"].as_u64().is_some_and(|decoded| decoded > 0)
    });
    assert!(seen.len() >= 5, "{seen:?}");
    let whole: Vec<&u64> = seen.iter().filter(|processed| processed.is_multiple_of(1024)).collect();
    assert!(seen.len() - whole.len() <= 2, "batches of 1024, then a checkpoint and the tail: {seen:?}");
    let log = sandbox.server_log();
    assert!(log.contains("prompt processing, n_tokens =   1024, progress = "), "{log}");
    assert!(log.contains("cached n_tokens = 2048, memory_seq_rm [2048, end)"));
}

#[test]
fn slots_answer_at_once_since_0_31_and_after_the_batch_before() {
    for (version, answers) in [("0.30.4", 0), ("0.31.0", 200)] {
        let sandbox = Sandbox::start(&["--speed", "10", "--ollama", version]);
        sandbox.fault(&["work-long-prefill", "--model", "smollm:135m"]);
        let (status, body) = sandbox.ask_runner("smollm:135m", "/slots");
        assert_eq!(status, answers, "{version}: {body}");
        assert_eq!(sandbox.ask_runner("smollm:135m", "/health").0, 200);
    }
}

#[test]
fn an_idle_loop_answers_about_its_slots_in_every_version() {
    for version in ["0.30.4", "0.33.0"] {
        let sandbox = Sandbox::start(&["--ollama", version]);
        sandbox.http("POST", "/api/generate", "{\"model\":\"smollm:135m\"}");
        let slot = slots(&sandbox, "smollm:135m")[0].clone();
        assert_eq!(slot["is_processing"], false, "{version}");
        assert!(slot["next_token"].is_null() && slot["id_task"].is_null(), "{slot}");
    }
}

#[test]
fn metrics_count_decodes_where_they_are_switched_on() {
    let sandbox = Sandbox::start(&[]);
    let body = "{\"model\":\"smollm:135m\",\"prompt\":\"hello\",\"stream\":false,\"options\":{\"num_predict\":10}}";
    sandbox.http("POST", "/api/generate", body);
    assert_eq!(sandbox.ask_runner("smollm:135m", "/metrics").0, 501);
    sandbox.launchctl(&["setenv", "LLAMA_ARG_ENDPOINT_METRICS", "1"]);
    sandbox.restart_app();
    sandbox.http("POST", "/api/generate", body);
    let (status, text) = sandbox.ask_runner("smollm:135m", "/metrics");
    assert_eq!(status, 200);
    // A batch, its tail, and ten tokens.
    assert!(text.contains("\nllamacpp:n_decode_total 12\n"), "{text}");
    assert!(text.contains("\nllamacpp:n_busy_slots_per_decode 1.000\n"), "{text}");
}

#[test]
fn generating_is_told_every_hundred_tokens_and_the_release_counts_them() {
    let sandbox = Sandbox::start(&["--speed", "60"]);
    let body = "{\"model\":\"smollm:135m\",\"prompt\":\"hello\",\"stream\":false,\"options\":{\"num_predict\":250}}";
    assert_eq!(sandbox.http("POST", "/api/generate", body).0, 200);
    let log = sandbox.server_log();
    for line in ["| n_gen =    100, tg = ", "| n_gen =    200, tg = ", "/   250 tokens ("] {
        assert!(log.contains(line), "{line}: {log}");
    }
    // Eight tokens of prompt; the last one generated is never fed back.
    assert!(log.contains("stop processing: n_tokens = 257, truncated = 0"), "{log}");
}

#[test]
fn the_mlx_engine_tells_its_progress_in_log_lines() {
    let sandbox = Sandbox::start(&["--speed", "60"]);
    let prompt = "word ".repeat(4_000);
    let body = format!(
        "{{\"model\":\"qwen3-mlx:4b\",\"prompt\":\"{prompt}\",\"stream\":false,\"options\":{{\"num_predict\":5}}}}"
    );
    assert_eq!(sandbox.http("POST", "/api/generate", &body).0, 200);
    let log = sandbox.server_log();
    for words in [
        "msg=\"starting mlx runner subprocess\" model=qwen3-mlx:4b port=",
        "msg=\"mlx runner is ready\" port=",
        "level=INFO source=pipeline.go:150 msg=\"Prompt processing progress\" processed=2048 total=5006",
        "msg=\"Prompt processing progress\" processed=4096 total=5006",
        "msg=\"Prompt processing progress\" processed=5005 total=5006",
        "msg=\"peak memory\" size=\"",
        "msg=ServeHTTP method=POST path=/v1/completions took=",
    ] {
        assert!(log.contains(words), "{words}: {log}");
    }
    assert_eq!(sandbox.ask_runner("qwen3-mlx:4b", "/slots").0, 404);
    assert_eq!(sandbox.ask_runner("qwen3-mlx:4b", "/health").0, 308);
    sandbox.http("POST", "/api/generate", "{\"model\":\"qwen3-mlx:4b\",\"keep_alive\":0}");
    eventually(|| sandbox.runner_of("qwen3-mlx:4b").is_null());
    assert!(sandbox.server_log().contains("msg=\"stopping mlx runner subprocess\" pid="));
}

#[test]
fn the_server_says_nothing_of_loaded_models_while_an_mlx_model_loads() {
    let sandbox = Sandbox::start(&["--speed", "4"]);
    let port = sandbox.port();
    let load = thread::spawn(move || http(port, "POST", "/api/generate", "{\"model\":\"qwen3-mlx:4b\"}").0);
    eventually(|| !sandbox.runner().is_null());
    let asked = crate::sandbox::http_within(port, "GET", "/api/ps", "", Duration::from_millis(200));
    assert_eq!(asked.0, 0, "{asked:?}");
    assert_eq!(load.join().unwrap(), 200);
    assert!(sandbox.http("GET", "/api/ps", "").1.contains("qwen3-mlx:4b"));
}

#[test]
fn the_mlx_model_comes_last_and_the_smallest_stays_the_smallest() {
    let sandbox = Sandbox::start(&[]);
    let (_, tags) = sandbox.http("GET", "/api/tags", "");
    let tags: Value = serde_json::from_str(&tags).unwrap();
    let models = tags["models"].as_array().unwrap();
    let names: Vec<&str> = models.iter().map(|model| model["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["gemma4:26b", "qwen3.6:35b", "smollm:135m", "qwen3-mlx:4b"]);
    let smallest = models.iter().min_by_key(|model| model["size"].as_u64()).unwrap();
    assert_eq!(smallest["name"], "smollm:135m");
    assert_eq!(models[3]["details"]["format"], "safetensors");
}
