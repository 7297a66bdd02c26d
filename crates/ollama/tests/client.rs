//! The client against listeners that behave well, badly and not at all.

#![expect(clippy::expect_used, reason = "a helper of a test fails the test")]

use stablehand_engine::Known;
use stablehand_engine::time::Wall;
use stablehand_ollama::client::{CallError, Client, LoadTerms, NotLoopback, Stay};
use stablehand_ollama::version::Version;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

const DEADLINE: Duration = Duration::from_secs(20);

/// Answers one request with these bytes and gives back what was asked.
async fn answering(answer: impl Into<Vec<u8>>) -> (Client, tokio::task::JoinHandle<String>) {
    let answer = answer.into();
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let asked = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.expect("a client");
        let mut request = Vec::new();
        let mut block = [0; 4096];
        while !complete(&request) {
            let read = stream.read(&mut block).await.expect("a request");
            assert_ne!(read, 0, "the client left");
            request.extend_from_slice(&block[..read]);
        }
        let _ = stream.write_all(&answer).await;
        let _ = stream.shutdown().await;
        String::from_utf8_lossy(&request).into_owned()
    });
    (Client::new(address).expect("loopback"), asked)
}

fn complete(request: &[u8]) -> bool {
    let text = String::from_utf8_lossy(request);
    let Some((head, body)) = text.split_once("\r\n\r\n") else { return false };
    let length = head.lines().find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length: ")?.parse().ok());
    body.len() >= length.unwrap_or(0)
}

fn json(status: &str, body: &str) -> String {
    format!("HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}", body.len())
}

#[tokio::test]
async fn a_version_is_read() {
    let (client, asked) = answering(json("200 OK", r#"{"version":"0.33.0-rc2"}"#)).await;
    assert_eq!(client.version(DEADLINE).await, Ok("0.33.0-rc2".parse::<Version>().expect("a version")));
    let asked = asked.await.expect("asked");
    assert!(asked.starts_with("GET /api/version HTTP/1.1\r\n"));
    assert!(asked.to_ascii_lowercase().contains(&format!("host: {}\r\n", client.address())));
}

#[tokio::test]
async fn nobody_somebody_silent_and_somebody_else_are_told_apart() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let client = Client::new(address).expect("loopback");
    let short = Duration::from_millis(50);
    assert_eq!(client.version(short).await, Err(CallError::Silent { path: "/api/version", deadline: short }));
    drop(listener);
    assert_eq!(client.version(DEADLINE).await, Err(CallError::Refused { address }));

    for answer in [json("404 Not Found", "nope"), json("200 OK", "<html>"), "SSH-2.0-OpenSSH_9.9\r\n".to_owned()] {
        let (client, _asked) = answering(answer).await;
        let error = client.version(DEADLINE).await.expect_err("an error");
        assert!(matches!(error, CallError::NotOllama { .. }), "{error}");
    }
}

#[tokio::test]
async fn the_deadline_covers_an_answer_that_never_ends() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let client = Client::new(listener.local_addr().expect("an address")).expect("loopback");
    let server = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.expect("a client");
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{").await.expect("written");
        let mut rest = Vec::new();
        let _ = stream.read_to_end(&mut rest).await;
    });
    let error = client.ps(Duration::from_millis(100)).await.expect_err("an error");
    assert!(matches!(error, CallError::Silent { path: "/api/ps", .. }), "{error}");
    server.await.expect("the connection is closed with the call");
}

#[tokio::test]
async fn loaded_models_are_read_with_fields_missing_null_and_new() {
    let body = r#"{"models":[
        {"name":"gemma3:4b","model":"gemma3:4b","size":5000,"digest":"ab","size_vram":4000,"context_length":8192,
         "expires_at":"2026-11-30T06:15:00.5+01:00","details":{"family":"gemma3","families":null,"format":"gguf"},"new":1},
        {"name":"x:latest","details":null,"expires_at":null}]}"#;
    let (client, _asked) = answering(json("200 OK", body)).await;
    let models = client.ps(DEADLINE).await.expect("models").models;
    assert_eq!((models[0].size_bytes, models[0].gpu_bytes, models[0].context_per_slot_tokens), (5000, 4000, 8192));
    assert_eq!(models[0].expires_at, Known::Is(Wall::from_unix_ms(1_796_015_700_500)));
    assert_eq!(models[0].details.family, "gemma3");
    assert!(models[1].expires_at.known().is_none());
    let (client, _asked) = answering(json("200 OK", r#"{"models":null}"#)).await;
    assert_eq!(client.tags(DEADLINE).await.expect("models").models, []);
}

#[tokio::test]
async fn an_unload_asks_for_it_and_reads_the_reason() {
    let (client, asked) =
        answering(json("200 OK", r#"{"model":"m","done":true,"done_reason":"unload","response":""}"#)).await;
    assert_eq!(client.unload("m", DEADLINE).await.expect("unloaded").done_reason.as_deref(), Some("unload"));
    let asked = asked.await.expect("asked");
    assert!(asked.starts_with("POST /api/generate ") && asked.contains(r#""keep_alive":0"#), "{asked}");
}

#[tokio::test]
async fn a_single_token_is_asked_for_on_the_terms_that_the_model_was_loaded_on() {
    let cases = [
        (LoadTerms { context_per_slot_tokens: Some(8192), stay: Some(Stay::Forever) }, Some(8192), Some(-1)),
        (LoadTerms { context_per_slot_tokens: None, stay: Some(Stay::For(Duration::from_secs(280))) }, None, Some(280)),
        (LoadTerms { context_per_slot_tokens: None, stay: Some(Stay::For(Duration::from_millis(20))) }, None, Some(1)),
        (LoadTerms::default(), None, None),
    ];
    for (terms, context, keep_alive) in cases {
        let (client, asked) = answering(json("200 OK", r#"{"model":"m","done":true,"response":"a"}"#)).await;
        client.short_answer("m", terms, DEADLINE).await.expect("answered");
        let asked = asked.await.expect("asked");
        let body = asked.split("\r\n\r\n").nth(1).expect("a body");
        let body: serde_json::Value = serde_json::from_str(body).expect("JSON");
        assert_eq!(body["options"]["num_predict"], 2);
        assert_eq!(body["options"].get("num_ctx").and_then(serde_json::Value::as_u64), context, "{asked}");
        assert_eq!(body.get("keep_alive").and_then(serde_json::Value::as_i64), keep_alive, "{asked}");
    }
}

#[tokio::test]
async fn a_refusal_keeps_its_words_and_a_strange_answer_its_beginning() {
    let (client, _asked) = answering(json("404 Not Found", r#"{"error":"model 'm' not found"}"#)).await;
    let error = client.show("m", false, DEADLINE).await.expect_err("an error");
    assert_eq!(error, CallError::Status { path: "/api/show", code: 404, text: "model 'm' not found".to_owned() });
    let (client, _asked) = answering(json("200 OK", "[1,2")).await;
    assert!(matches!(client.tags(DEADLINE).await, Err(CallError::Malformed { .. })));
}

#[tokio::test]
async fn an_answer_that_is_too_long_or_cut_off_is_an_error() {
    let body = format!(r#"{{"models":[], "x":"{}"}}"#, "y".repeat(5000));
    let (client, _asked) = answering(json("200 OK", &body)).await;
    let error = client.with_most_answer_bytes(1000).tags(DEADLINE).await.expect_err("an error");
    assert!(matches!(&error, CallError::Malformed { reason, .. } if reason.contains("1000 bytes")), "{error}");
    let (client, _asked) = answering("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{").await;
    let error = client.tags(DEADLINE).await.expect_err("an error");
    assert!(matches!(error, CallError::Broken { .. }), "{error}");
}

#[test]
fn only_loopback_is_asked() {
    let address: SocketAddr = "192.168.1.5:11434".parse().expect("an address");
    assert_eq!(Client::new(address), Err(NotLoopback(address)));
    assert!(Client::new("[::1]:11434".parse().expect("an address")).is_ok());
}
