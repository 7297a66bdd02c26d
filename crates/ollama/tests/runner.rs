//! The client of a runner against listeners that behave well, badly and not at all.

#![expect(clippy::expect_used, reason = "a helper of a test fails the test")]

use stablehand_engine::Known;
use stablehand_engine::process::RunnerKind;
use stablehand_engine::stall::evidence::Health;
use stablehand_ollama::runner::{HealthAnswer, NoAnswer, RunnerClient, evidence};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

const DEADLINE: Duration = Duration::from_secs(20);
const SLOTS: &str = include_str!("../fixtures/runner/slots.newer.json");
const METRICS: &str = include_str!("../fixtures/runner/metrics.txt");
const PROPS: &str = include_str!("../fixtures/runner/props.json");

/// Answers every request by its path, for as long as the test runs.
async fn runner(answer: impl Fn(&str) -> String + Send + 'static) -> RunnerClient {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let port = listener.local_addr().expect("an address").port();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let path = asked(&mut stream).await;
            let _ = stream.write_all(answer(&path).as_bytes()).await;
            let _ = stream.shutdown().await;
        }
    });
    RunnerClient::new(port)
}

async fn asked(stream: &mut TcpStream) -> String {
    let mut request = Vec::new();
    let mut block = [0; 4096];
    while !request.windows(4).any(|window| window == b"\r\n\r\n") {
        let read = stream.read(&mut block).await.expect("a request");
        assert_ne!(read, 0, "the client left");
        request.extend_from_slice(&block[..read]);
    }
    String::from_utf8_lossy(&request).split(' ').nth(1).expect("a path").to_owned()
}

fn answer(status: &str, body: &str) -> String {
    format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n{body}", body.len())
}

fn llama_server(path: &str) -> String {
    match path {
        "/health" => answer("200 OK", r#"{"status":"ok"}"#),
        "/slots" => answer("200 OK", SLOTS),
        "/props" => answer("200 OK", PROPS),
        "/metrics" => answer("200 OK", METRICS),
        _ => answer("404 Not Found", r#"{"error":{"code":404,"message":"File Not Found","type":"not_found_error"}}"#),
    }
}

#[tokio::test]
async fn everything_of_a_llama_server_is_read() {
    let client = runner(llama_server).await;
    let look = client.look(RunnerKind::LlamaServer, DEADLINE).await;
    let evidence = evidence(&look, |_, _| None);
    assert_eq!((evidence.health, evidence.decode_total), (Health::Ok, Known::Is(1093)));
    assert_eq!(evidence.slots.known().map(Vec::len), Some(4));
    assert_eq!(client.props(DEADLINE).await.expect("properties").slots, Known::Is(4));
    assert_eq!(client.mlx_status(DEADLINE).await, Err(NoAnswer::Unsupported { path: "/v1/status" }));
}

#[tokio::test]
async fn what_is_not_switched_on_is_told_as_that() {
    let client = runner(|_| {
        let body = r#"{"error":{"code":501,"message":"This server does not support metrics endpoint.","type":"not_supported_error"}}"#;
        answer("501 Not Implemented", body)
    })
    .await;
    assert_eq!(client.metrics(DEADLINE).await, Err(NoAnswer::Unsupported { path: "/metrics" }));
    assert_eq!(client.slots(DEADLINE).await, Err(NoAnswer::Unsupported { path: "/slots" }));
    assert!(matches!(client.health(DEADLINE).await, HealthAnswer::Strange(_)));
}

#[tokio::test]
async fn a_runner_that_loads_says_so_everywhere() {
    let body = r#"{"error":{"code":503,"message":"Loading model","type":"unavailable_error"}}"#;
    let client = runner(move |_| answer("503 Service Unavailable", body)).await;
    assert_eq!(client.health(DEADLINE).await, HealthAnswer::Loading);
    assert_eq!(client.slots(DEADLINE).await, Err(NoAnswer::Loading));
    assert_eq!(client.metrics(DEADLINE).await, Err(NoAnswer::Loading));
}

#[tokio::test]
async fn html_is_strange_with_its_beginning() {
    let client = runner(|_| answer("200 OK", "<html><title>Printer</title></html>")).await;
    let look = client.look(RunnerKind::LlamaServer, DEADLINE).await;
    assert!(matches!(&look.health, HealthAnswer::Strange(reason) if reason.contains("Printer")));
    assert!(matches!(&look.slots, Err(NoAnswer::Strange(reason)) if reason.contains("Printer")));
    assert!(matches!(&look.metrics, Err(NoAnswer::Strange(reason)) if reason.contains("Printer")));
    let evidence = evidence(&look, |_, _| None);
    assert_eq!(evidence.health, Health::Unknown);
    assert!(evidence.slots.reason().is_some() && evidence.decode_total.reason().is_some());
    let client = runner(|_| answer("502 Bad Gateway", "<html>")).await;
    assert!(matches!(client.slots(DEADLINE).await, Err(NoAnswer::Strange(reason)) if reason.contains("502")));
    let client = runner(|_| "SSH-2.0-OpenSSH_9.9\r\n".to_owned()).await;
    assert!(matches!(client.health(DEADLINE).await, HealthAnswer::Strange(_)));
}

#[tokio::test]
async fn an_mlx_runner_is_asked_where_it_sends_to() {
    let client = runner(|path| match path {
        "/v1/status" => answer("200 OK", r#"{"Status":0,"Progress":100,"ContextLength":8192,"Memory":1000}"#),
        _ => "HTTP/1.1 308 Permanent Redirect\r\nLocation: /v1/status\r\nContent-Length: 0\r\n\r\n".to_owned(),
    })
    .await;
    let look = client.look(RunnerKind::Mlx, DEADLINE).await;
    assert_eq!((look.health, look.slots), (HealthAnswer::Ok, Err(NoAnswer::Unsupported { path: "/slots" })));
    assert_eq!(client.mlx_status(DEADLINE).await.expect("a status").memory_bytes, Known::Is(1000));
}

#[tokio::test]
async fn a_runner_that_stands_still_is_silent_and_one_that_is_gone_refuses() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let client = RunnerClient::new(listener.local_addr().expect("an address").port());
    let short = Duration::from_millis(50);
    assert_eq!(client.health(short).await, HealthAnswer::Silent);
    assert_eq!(client.slots(short).await, Err(NoAnswer::Silent { path: "/slots", deadline: short }));
    drop(listener);
    assert_eq!(client.health(DEADLINE).await, HealthAnswer::Refused);
    assert_eq!(client.metrics(DEADLINE).await, Err(NoAnswer::Refused));
}

#[tokio::test]
async fn an_endless_answer_is_given_up() {
    let client = runner(|_| answer("200 OK", &" ".repeat(5 << 20))).await;
    assert!(matches!(client.slots(DEADLINE).await, Err(NoAnswer::Strange(reason)) if reason.contains("longer than")));
}
