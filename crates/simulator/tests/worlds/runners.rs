use std::io::Write;
use std::net::TcpStream;
use std::thread;

use serde_json::Value;

use crate::sandbox::{Sandbox, eventually, http, is_alive};

const GENERATE: &str =
    "{\"model\":\"smollm:135m\",\"prompt\":\"hello\",\"stream\":false,\"options\":{\"num_predict\":10}}";

fn slot_of(sandbox: &Sandbox) -> Value {
    let port = sandbox.runner()["port"].as_u64().unwrap() as u16;
    let (_, body) = http(port, "GET", "/slots", "");
    serde_json::from_str::<Value>(&body).unwrap_or_default()[0].clone()
}

#[test]
fn a_killed_server_orphans_its_runner() {
    let sandbox = Sandbox::start(&[]);
    sandbox.http("POST", "/api/generate", GENERATE);
    let runner = sandbox.runner()["pid"].as_i64().unwrap();
    let server = sandbox.pid("serve");

    sandbox.fault(&["orphan-runner"]);

    assert!(is_alive(runner));
    assert_ne!(sandbox.runner()["ppid"].as_i64(), sandbox.pid("serve"));
    assert_ne!(sandbox.pid("serve"), server);
    assert_eq!(sandbox.http("GET", "/api/ps", "").1, "{\"models\":[]}");
}

#[test]
fn a_killed_runner_stays_listed_and_is_replaced_by_the_next_request() {
    let sandbox = Sandbox::start(&[]);
    sandbox.http("POST", "/api/generate", GENERATE);
    let old = sandbox.runner()["pid"].clone();

    sandbox.fault(&["runner-killed"]);

    assert!(sandbox.http("GET", "/api/ps", "").1.contains("smollm:135m"));
    assert_eq!(sandbox.http("POST", "/api/generate", GENERATE).0, 200);
    assert_ne!(sandbox.runner()["pid"], old);
}

#[test]
fn a_stuck_runner_answers_about_its_slots_but_makes_no_progress() {
    let sandbox = Sandbox::start(&[]);
    sandbox.fault(&["runner-stuck"]);
    let port = sandbox.port();
    let request = thread::spawn(move || http(port, "POST", "/api/generate", GENERATE));
    eventually(|| slot_of(&sandbox)["is_processing"] == true);
    assert_eq!(slot_of(&sandbox)["n_prompt_tokens_processed"], 0);
    assert_eq!(sandbox.http("GET", "/api/version", "").0, 200);

    sandbox.fault(&["runner-killed"]);

    let (status, body) = request.join().unwrap();
    assert_eq!(status, 500, "{body}");
    assert_eq!(sandbox.http("POST", "/api/generate", GENERATE).0, 200, "its successor is sound");
}

#[test]
fn a_runner_with_empty_replies_still_says_success() {
    let sandbox = Sandbox::start(&[]);
    sandbox.fault(&["runner-empty-replies"]);
    let (status, body) = sandbox.http("POST", "/api/generate", GENERATE);
    let answer: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(status, 200);
    assert_eq!(answer["response"], "");
    assert_eq!(answer["done"], true);
}

#[test]
fn a_client_that_leaves_frees_its_slot() {
    let sandbox = Sandbox::start(&[]);
    sandbox.http("POST", "/api/generate", "{\"model\":\"smollm:135m\"}");
    let body = "{\"model\":\"smollm:135m\",\"prompt\":\"hello\",\"options\":{\"num_predict\":2000}}";
    let mut client = TcpStream::connect(("127.0.0.1", sandbox.port())).unwrap();
    write!(client, "POST /api/generate HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n{body}", body.len())
        .unwrap();
    eventually(|| slot_of(&sandbox)["is_processing"] == true);

    drop(client);

    eventually(|| slot_of(&sandbox)["is_processing"] == false);
    eventually(|| sandbox.server_log().contains("cancel task"));
}

#[test]
fn a_prompt_is_worked_off_in_batches() {
    let sandbox = Sandbox::start(&["--speed", "60"]);
    let prompt = "word ".repeat(16_000);
    let body = format!(
        "{{\"model\":\"qwen3.6:35b\",\"prompt\":\"{prompt}\",\"stream\":false,\"options\":{{\"num_predict\":1}}}}"
    );
    let (status, _) = sandbox.http("POST", "/api/generate", &body);
    assert_eq!(status, 200);
    let log = sandbox.server_log();
    let batches = log.matches("prompt processing, n_tokens =").count();
    assert_eq!(batches, 10, "20006 tokens in batches of 2048");
    assert!(log.contains("n_tokens =   2048, progress = 0.10"));
}

#[test]
fn an_old_version_runs_its_own_runner() {
    let sandbox = Sandbox::start(&["--ollama", "0.24.0"]);
    assert_eq!(sandbox.http("POST", "/api/generate", GENERATE).0, 200);
    let port = sandbox.runner()["port"].as_u64().unwrap() as u16;
    assert_eq!(http(port, "GET", "/slots", "").0, 404);
    assert_eq!(http(port, "GET", "/health", "").0, 200);
    assert!(sandbox.server_log().contains("runner --ollama-engine --model"));
}
