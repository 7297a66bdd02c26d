use std::sync::Arc;
use std::thread;

use crate::sandbox::{Sandbox, eventually, http};

const BUSY: &str = "{\"error\":\"server busy, please try again.  maximum pending requests exceeded\"}";

fn with_short_queue() -> Arc<Sandbox> {
    let sandbox = Sandbox::start(&[]);
    sandbox.launchctl(&["setenv", "OLLAMA_MAX_QUEUE", "1"]);
    sandbox.restart_app();
    Arc::new(sandbox)
}

#[test]
fn a_full_queue_for_load_decisions_answers_503() {
    let sandbox = with_short_queue();
    let port = sandbox.port();
    let load = |model: &'static str| {
        thread::spawn(move || http(port, "POST", "/api/generate", &format!("{{\"model\":\"{model}\"}}")))
    };
    let first = load("qwen3.6:35b");
    eventually(|| !sandbox.runner().is_null());

    let others: Vec<_> = (0..3).map(|_| load("gemma4:26b")).collect();
    let answers: Vec<(u16, String)> = others.into_iter().map(|other| other.join().unwrap()).collect();

    let refused: Vec<&(u16, String)> = answers.iter().filter(|answer| answer.0 == 503).collect();
    assert_eq!(refused.len(), 2, "{answers:?}");
    assert_eq!(refused[0].1, BUSY);
    assert_eq!(first.join().unwrap().0, 200);
    assert!(sandbox.server_log().contains("| 503 |"));
}

#[test]
fn waiters_for_a_loaded_model_are_not_bounded() {
    let sandbox = with_short_queue();
    let port = sandbox.port();
    let body = "{\"model\":\"smollm:135m\",\"prompt\":\"hi\",\"stream\":false,\"options\":{\"num_predict\":40}}";
    assert_eq!(http(port, "POST", "/api/generate", "{\"model\":\"smollm:135m\"}").0, 200);

    let waiters: Vec<_> = (0..8).map(|_| thread::spawn(move || http(port, "POST", "/api/generate", body).0)).collect();

    assert!(waiters.into_iter().all(|waiter| waiter.join().unwrap() == 200));
}

#[test]
fn some_families_get_one_slot_whatever_is_asked() {
    let sandbox = Sandbox::start(&[]);
    sandbox.launchctl(&["setenv", "OLLAMA_NUM_PARALLEL", "3", "OLLAMA_CONTEXT_LENGTH", "4096"]);
    sandbox.restart_app();
    for (model, slots) in [("qwen3.6:35b", 1), ("gemma4:26b", 3)] {
        assert_eq!(sandbox.http("POST", "/api/generate", &format!("{{\"model\":\"{model}\"}}")).0, 200);
        let status = sandbox.status();
        let runner = status["runners"].as_array().unwrap().iter().find(|runner| runner["model"] == model);
        assert_eq!(runner.unwrap()["slots"], slots, "{model}");
    }
    assert!(
        sandbox
            .server_log()
            .contains("msg=\"model architecture does not currently support parallel requests\" architecture=qwen35moe")
    );
    let (_, ps) = sandbox.http("GET", "/api/ps", "");
    assert_eq!(ps.matches("\"context_length\":4096").count(), 2, "{ps}");
}
