//! Clients and servers without manners, many at once: everybody else is served, and nothing is left behind.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod stage;

use http::StatusCode;
use hyper::body::Incoming;
use stablehand_protocol::queue::Hold;
use stage::{Asked, Ollama, Stage, chat, get, header, piece, post, soon, text};
use std::collections::BTreeSet;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::task::{JoinHandle, JoinSet};

const NDJSON: &[(&str, &str)] = &[("content-type", "application/x-ndjson")];
/// Lines of an answer.
const LINES: usize = 5;
/// More than the system keeps for a connection whose reader has stopped.
const LARGE_BYTES: usize = 64 << 20;

fn line(at: usize) -> String {
    format!("{{\"line\":{at}}}\n")
}

fn whole_answer() -> String {
    (0..LINES).map(line).collect()
}

/// A request on a connection that the test writes itself; its number stands in the body.
fn raw_chat(number: usize) -> (String, String) {
    let body = format!(r#"{{"model":"m","messages":[{{"role":"user","content":"request {number}"}}]}}"#);
    let head = format!("POST /api/chat HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n", body.len());
    (head, body)
}

async fn send(stage: &Stage, number: usize) -> TcpStream {
    let mut stream = stage.raw().await;
    let (head, body) = raw_chat(number);
    stream.write_all(format!("{head}{body}").as_bytes()).await.unwrap();
    stream
}

/// Answers whoever comes, line by line.
fn serve(mut ollama: Ollama) -> JoinHandle<()> {
    tokio::spawn(async move {
        loop {
            answer(ollama.asked().await);
        }
    })
}

fn answer(asked: Asked) {
    let answering = asked.begin(NDJSON);
    for at in 0..LINES {
        answering.piece(&line(at));
    }
}

/// The stage's own Ollama, and another one, that nobody asks, in its place.
async fn taken(stage: &mut Stage) -> Ollama {
    let other = Ollama::start().await;
    std::mem::replace(&mut stage.ollama, other)
}

fn restart() -> Hold {
    Hold { why: "restart".to_owned(), model: None, for_s: Some(600) }
}

#[tokio::test]
async fn many_streams_of_one_connection_share_as_many_connections_to_ollama_as_there_are_places() {
    let mut stage = Stage::with("connections = 4").await;
    let (sender, connection) = stage.http2().await;
    tokio::spawn(connection);
    let mut asking = JoinSet::new();
    for _ in 0..100 {
        let mut sender = sender.clone();
        let asked = async move { sender.send_request(get("http://localhost/api/tags")).await.unwrap() };
        asking.spawn(asked);
    }
    for _ in 0..100 {
        stage.ollama.asked().await.json("{}");
    }
    while let Some(response) = soon("an answer", asking.join_next()).await {
        assert_eq!(text(response.unwrap()).await, "{}");
    }
    assert!(stage.ollama.accepted() <= 4, "{} connections", stage.ollama.accepted());
}

#[tokio::test]
async fn a_crowd_without_manners_keeps_nobody_else_from_being_served() {
    const EACH: usize = 12;
    let mut stage = Stage::with("waiting = 100").await;
    let ollama = taken(&mut stage).await;
    stage.control.hold(&restart()).await.unwrap();

    let (mut vanishing, mut halves, mut breaking) = (Vec::new(), Vec::new(), Vec::new());
    let (mut polite, mut slow, mut late) = (Vec::new(), Vec::new(), Vec::new());
    for number in 0..EACH {
        vanishing.push(send(&stage, number).await);
        halves.push(send(&stage, number).await);
        breaking.push(send(&stage, number).await);
        slow.push(send(&stage, number).await);
        polite.push(stage.asking(chat("m")));
        // These are still sending when the others are served.
        let mut stream = stage.raw().await;
        let (head, body) = raw_chat(number);
        stream.write_all(head.as_bytes()).await.unwrap();
        late.push((stream, body));
    }
    stage.until_waiting(5 * EACH).await;
    // Some go while they wait, some close only their own half.
    drop(vanishing);
    for half in &mut halves {
        half.shutdown().await.unwrap();
    }
    stage.until_waiting(3 * EACH).await;

    let serving = serve(ollama);
    stage.control.release(&restart()).await.unwrap();
    let mut all = JoinSet::new();
    for mut stream in breaking {
        // Goes in the middle of its answer.
        all.spawn(async move {
            let mut first = [0; 1];
            soon("an answer", stream.read_exact(&mut first)).await.unwrap();
        });
    }
    for mut stream in slow {
        // Takes a byte at a time.
        all.spawn(async move {
            let mut said = Vec::new();
            while !said.ends_with(b"\r\n0\r\n\r\n") {
                said.push(soon("the rest of an answer", stream.read_u8()).await.unwrap());
                tokio::task::yield_now().await;
            }
            let said = String::from_utf8(said).unwrap();
            assert!(said.starts_with("HTTP/1.1 200") && said.contains(&line(LINES - 1)), "{said}");
        });
    }
    for (mut stream, body) in late {
        // Sends a byte at a time.
        all.spawn(async move {
            for byte in body.bytes() {
                stream.write_u8(byte).await.unwrap();
                tokio::task::yield_now().await;
            }
            let mut said = String::new();
            let mut part = [0; 1024];
            while !said.ends_with("\r\n0\r\n\r\n") {
                let count = soon("an answer", stream.read(&mut part)).await.unwrap();
                assert_ne!(count, 0, "{said}");
                said.push_str(std::str::from_utf8(&part[..count]).unwrap());
            }
            assert!(said.starts_with("HTTP/1.1 200"), "{said}");
        });
    }
    for asking in polite {
        let response = asking.await.unwrap();
        assert_eq!(response.status(), StatusCode::OK);
        assert_eq!(text(response).await, whole_answer());
    }
    while let Some(ended) = all.join_next().await {
        ended.unwrap();
    }
    let view = stage.until("an empty queue", |view| view.running.is_empty() && view.waiting.is_empty()).await;
    assert!(view.holds.is_empty());
    let response = stage.ask(chat("m")).await;
    assert_eq!((response.status(), header(&response, "x-stablehand-position")), (StatusCode::OK, "0"));
    serving.abort();
}

#[tokio::test]
async fn whoever_sends_slowly_holds_no_permit_meanwhile() {
    let mut stage = Stage::with("").await;
    let mut stream = stage.raw().await;
    let (head, body) = raw_chat(1);
    let (first, rest) = body.split_at(20);
    stream.write_all(format!("{head}{first}").as_bytes()).await.unwrap();
    let other = stage.asking(chat("m"));
    stage.ollama.asked().await.json("{}");
    assert_eq!(other.await.unwrap().status(), StatusCode::OK);
    stream.write_all(rest.as_bytes()).await.unwrap();
    let asked = stage.ollama.asked().await;
    assert_eq!(asked.text(), body);
    asked.json("{}");
}

#[tokio::test]
async fn whoever_reads_slowly_slows_the_server_down_and_keeps_its_permit() {
    let mut stage = Stage::with("").await;
    let slow = stage.asking(chat("m"));
    let answering = stage.ollama.asked().await.begin(NDJSON);
    let large = "x".repeat(1 << 20);
    let pieces = LARGE_BYTES / large.len();
    assert!(answering.piece(&large));
    let mut slow = slow.await.unwrap().into_body();
    for _ in 1..pieces {
        assert!(answering.piece(&large));
    }
    let next = stage.asking(chat("m"));
    stage.until_waiting(1).await;
    // As much goes to somebody else meanwhile, who needs no permit.
    let other = stage.asking(post("/api/pull", r#"{"model":"m"}"#));
    let pulled = stage.ollama.asked().await.begin(NDJSON);
    for _ in 0..pieces {
        assert!(pulled.piece(&large));
    }
    drop(pulled);
    assert_eq!(length(&mut other.await.unwrap().into_body()).await, LARGE_BYTES);
    let taken = answering.taken();
    assert!(taken < pieces / 2, "{taken} of {pieces} MiB are more than the system's buffers hold");
    assert_eq!(stage.control.queue().await.unwrap().waiting.len(), 1);
    drop(answering);
    assert_eq!(length(&mut slow).await, LARGE_BYTES, "all of it arrives");
    stage.ollama.asked().await.json("{}");
    assert_eq!(next.await.unwrap().status(), StatusCode::OK);
}

/// How long an answer is, to its end.
async fn length(body: &mut Incoming) -> usize {
    let mut length = 0;
    while let Some(part) = piece(body).await {
        length += part.len();
    }
    length
}

/// Reads a request of the gateway's.
async fn request(listener: &TcpListener) -> (TcpStream, String) {
    let (mut stream, _) = soon("a connection", listener.accept()).await.unwrap();
    let mut said = Vec::new();
    let mut part = [0; 4096];
    loop {
        let count = soon("a request", stream.read(&mut part)).await.unwrap();
        assert_ne!(count, 0, "{}", String::from_utf8_lossy(&said));
        said.extend_from_slice(&part[..count]);
        let text = String::from_utf8_lossy(&said);
        if text.contains("\r\n\r\n") && (text.starts_with("GET") || text.ends_with('}')) {
            return (stream, text.into_owned());
        }
    }
}

#[tokio::test]
async fn an_ollama_that_stands_still_keeps_those_who_wait_for_it_and_nobody_who_left() {
    let mut stage = Stage::with("").await;
    let address = taken(&mut stage).await.kill().await;
    // Stopped with SIGSTOP, its port still takes connections and what is written to them.
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_reuseaddr(true).unwrap();
    socket.bind(address).unwrap();
    let listener = socket.listen(64).unwrap();

    let leaves = send(&stage, 1).await;
    stage.until_running(1).await;
    let stays = stage.asking(chat("m"));
    stage.until_waiting(1).await;
    drop(leaves);
    stage.until("the next one's turn", |view| view.running.len() == 1 && view.waiting.is_empty()).await;
    let waits = stage.asking(chat("m"));
    stage.until_waiting(1).await;

    // It goes on: whoever has left is gone, whoever has stayed gets an answer.
    let (mut chats, mut answered) = (0, 0);
    while answered < 2 {
        let (mut stream, text) = request(&listener).await;
        let body = if text.starts_with("POST /api/chat") { "{\"done\":true}" } else { "{\"models\":[]}" };
        if text.starts_with("POST /api/chat") {
            chats += 1;
            if text.contains("request 1") {
                assert_eq!(soon("the end of the request", stream.read(&mut [0; 1])).await.unwrap_or(0), 0);
                continue;
            }
            answered += 1;
        }
        let answer = format!(
            "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        stream.write_all(answer.as_bytes()).await.unwrap();
    }
    assert_eq!(chats, 3);
    for asking in [stays, waits] {
        assert_eq!(text(asking.await.unwrap()).await, "{\"done\":true}");
    }
    stage.until_running(0).await;
}

#[tokio::test]
async fn an_ollama_that_is_killed_again_and_again_gets_no_request_twice_and_loses_nobody_who_waits() {
    const CLIENTS: usize = 30;
    const KILLS: usize = 3;
    let mut stage = Stage::at_speed("waiting = 100", 20.0).await;
    let mut ollama = taken(&mut stage).await;
    let asking: Vec<_> = (0..CLIENTS)
        .map(|number| {
            let (_, body) = raw_chat(number);
            stage.asking(post("/api/chat", &body))
        })
        .collect();
    stage.until_waiting(CLIENTS - 1).await;
    let mut seen = BTreeSet::new();
    for round in 0..=KILLS {
        let served = if round < KILLS { 5 } else { CLIENTS - KILLS * 6 };
        for _ in 0..served {
            let asked = chat_of(&mut ollama).await;
            assert!(seen.insert(asked.text().to_owned()), "{} came twice", asked.text());
            answer(asked);
        }
        if round < KILLS {
            // One is being answered, the others wait.
            let asked = chat_of(&mut ollama).await;
            assert!(seen.insert(asked.text().to_owned()), "{} came twice", asked.text());
            let address = ollama.kill().await;
            drop(asked);
            ollama = Ollama::start_at(address).await;
        }
    }
    let (mut whole, mut told) = (0, 0);
    for asking in asking {
        let response = asking.await.unwrap();
        if response.status() == StatusCode::OK {
            assert_eq!(text(response).await, whole_answer());
            whole += 1;
        } else {
            assert_eq!(response.status(), StatusCode::BAD_GATEWAY);
            assert!(text(response).await.contains("is not sent a second time"));
            told += 1;
        }
    }
    assert_eq!((whole, told, seen.len()), (CLIENTS - KILLS, KILLS, CLIENTS));
    stage.until("an empty queue", |view| view.running.is_empty() && view.waiting.is_empty()).await;
}

/// The next request for inference; what the gateway asks by itself is answered.
async fn chat_of(ollama: &mut Ollama) -> Asked {
    loop {
        let asked = ollama.asked().await;
        if asked.path == "/api/chat" {
            return asked;
        }
        asked.json("{}");
    }
}
