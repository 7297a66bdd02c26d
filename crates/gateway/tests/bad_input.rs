//! Whatever is sent, there is a clear answer in the family's shape, and the queue is unharmed.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod stage;

use http::{Method, StatusCode};
use stage::{Stage, chat, get, header, post, post_with, soon, text, with_method};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// After all of it, one request still goes through.
async fn still_works(stage: &mut Stage) {
    let asking = stage.asking(chat("m"));
    stage.ollama.asked().await.json("{}");
    assert_eq!(asking.await.unwrap().status(), StatusCode::OK);
    let view = stage.until("an empty queue", |view| view.running.is_empty() && view.waiting.is_empty()).await;
    assert_eq!(view.bodies_bytes, 0, "no memory is lost");
}

#[tokio::test]
async fn bodies_that_are_no_request_are_refused_in_the_shape_of_the_family() {
    let mut stage = Stage::with("").await;
    for (body, status, words) in [
        ("", 400, "missing request body"),
        ("hello", 400, "not JSON"),
        ("[1]", 400, "not a JSON object"),
        (r#"{"model":"m""#, 400, "ends in the middle"),
        ("{}", 400, "model is required"),
        (r#"{"model":""}"#, 400, "model is required"),
        (r#"{"model":7}"#, 400, "not named by a text"),
        (r#"{"model":"a","model":"b"}"#, 400, "names a model twice"),
    ] {
        for (path, place) in
            [("/api/chat", "/error"), ("/v1/chat/completions", "/error/message"), ("/v1/messages", "/error/message")]
        {
            let response = stage.ask(post(path, body)).await;
            assert_eq!(
                (response.status().as_u16(), header(&response, "content-type")),
                (status, "application/json; charset=utf-8")
            );
            let told: serde_json::Value = serde_json::from_str(&text(response).await).unwrap();
            assert!(told.pointer(place).unwrap().as_str().unwrap().contains(words), "{path} {body}: {told}");
        }
    }
    let response = stage.ask(post_with("/v1/audio/transcriptions", &[("content-type", "text/plain")], "x")).await;
    assert!(text(response).await.contains("no multipart form"));
    let response = stage.ask(post_with("/api/chat", &[("content-encoding", "gzip")], "x")).await;
    assert_eq!(response.status(), StatusCode::UNSUPPORTED_MEDIA_TYPE);
    assert!(stage.ollama.is_idle());
    still_works(&mut stage).await;
}

#[tokio::test]
async fn a_body_that_is_too_long_is_refused_before_it_is_read_or_as_soon_as_it_is() {
    let mut stage = Stage::with("body_mib = 1\nbodies_mib = 1").await;
    let head = "POST /api/chat HTTP/1.1\r\nHost: localhost\r\n";
    let answer = stage.exchange(format!("{head}Content-Length: 1073741824\r\n\r\n{{").as_bytes()).await;
    assert!(answer.starts_with("HTTP/1.1 413 ") && answer.contains("longer than 1 MiB"), "{answer}");
    // Without an announcement, and it never ends.
    let mut stream = stage.raw().await;
    stream.write_all(format!("{head}Transfer-Encoding: chunked\r\n\r\n").as_bytes()).await.unwrap();
    let piece = format!("10000\r\n{}\r\n", " ".repeat(0x10000));
    let (mut reading, mut writing) = stream.split();
    let mut answer = String::new();
    let flood = async { while writing.write_all(piece.as_bytes()).await.is_ok() {} };
    tokio::select! {
        read = soon("an answer", reading.read_to_string(&mut answer)) => { let _ = read; }
        () = flood => { let _ = soon("an answer", reading.read_to_string(&mut answer)).await; }
    }
    assert!(answer.starts_with("HTTP/1.1 413 ") && answer.contains("longer than 1 MiB"), "{answer}");
    // Many that are not too long each.
    let _running = stage.asking(chat("m"));
    let first = stage.ollama.asked().await;
    let half = format!(r#"{{"model":"m","messages":["{}"]}}"#, "x".repeat(700 << 10));
    let waiting = stage.asking(post("/api/chat", &half));
    stage.until_waiting(1).await;
    let refused = stage.ask(post("/api/chat", &half)).await;
    assert_eq!(refused.status(), StatusCode::PAYLOAD_TOO_LARGE);
    assert!(header(&refused, "retry-after").parse::<u64>().is_ok(), "this one may come back");
    assert!(text(refused).await.contains("all requests that wait"));
    first.json("{}");
    assert_eq!(stage.ollama.asked().await.body.len(), half.len());
    waiting.abort();
    still_works(&mut stage).await;
}

#[tokio::test]
async fn a_body_that_stops_coming_is_given_up() {
    let mut stage = Stage::with("body_silence_s = 1").await;
    let head = "POST /api/chat HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{\"model\":";
    let answer = stage.exchange(head.as_bytes()).await;
    assert!(answer.starts_with("HTTP/1.1 408 ") && answer.contains("did not come in time"), "{answer}");
    still_works(&mut stage).await;
}

#[tokio::test]
async fn a_head_that_stops_coming_is_given_up() {
    let mut stage = Stage::with("head_s = 1").await;
    assert_eq!(stage.exchange(b"GET / HTTP/1.1\r\nHost: loc").await, "");
    assert_eq!(stage.exchange(b"PR").await, "", "the beginning of HTTP/2, or of a method");
    assert_eq!(stage.exchange(b"").await, "");
    still_works(&mut stage).await;
}

#[tokio::test]
async fn what_is_no_http_is_told_so_with_words() {
    let mut stage = Stage::with("").await;
    let long = format!("GET / HTTP/1.1\r\nHost: localhost\r\nX-Long: {}\r\n\r\n", "x".repeat(64 << 10));
    let many = format!("GET / HTTP/1.1\r\nHost: localhost\r\n{}\r\n", "X-A: b\r\n".repeat(300));
    let path = format!("GET /{} HTTP/1.1\r\nHost: localhost\r\n\r\n", "x".repeat(70_000));
    let chunked = "POST /api/chat HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n";
    for (sent, status) in [
        ("GET /\r\n\r\n".to_owned(), "400"),
        ("hello\r\n\r\n".to_owned(), "400"),
        ("GET / HTTP/3.7\r\nHost: localhost\r\n\r\n".to_owned(), "400"),
        ("GET / HTTP/1.1\r\nHost : localhost\r\n\r\n".to_owned(), "400"),
        ("GET / HTTP/1.1\r\nHost: localhost\r\n folded: x\r\n\r\n".to_owned(), "400"),
        ("POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nx".to_owned(), "400"),
        ("POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\nx".to_owned(), "400"),
        ("POST / HTTP/1.0\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n".to_owned(), "400"),
        ("POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: gzip\r\n\r\nx".to_owned(), "400"),
        (format!("{chunked}\r\nzz\r\n{{}}\r\n0\r\n\r\n"), "400"),
        (format!("{chunked}\r\nffffffffffffffff1\r\n{{}}\r\n"), "400"),
        (format!("{chunked}\r\n5\r\n{{}}\r\n0\r\n\r\n"), "400"),
        (long, "431"),
        (many, "431"),
        (path, "4"),
    ] {
        let answer = stage.exchange(sent.as_bytes()).await;
        let shown: String = sent.chars().take(120).collect();
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{shown:?}: {answer:?}");
        let body = answer.split_once("\r\n\r\n").unwrap().1;
        let told: serde_json::Value = serde_json::from_str(body).unwrap_or_else(|_| panic!("{shown:?}: {answer:?}"));
        assert!(told["error"].is_string(), "{shown:?}: {answer:?}");
    }
    assert!(stage.ollama.is_idle(), "none of it went on");
    still_works(&mut stage).await;
}

#[tokio::test]
async fn a_path_that_does_not_exist_is_ollamas_to_refuse() {
    let mut stage = Stage::with("").await;
    let asking = stage.asking(get("/api/nowhere"));
    stage.ollama.asked().await.whole(StatusCode::NOT_FOUND, &[], "404 page not found");
    let response = asking.await.unwrap();
    assert_eq!(response.status(), StatusCode::NOT_FOUND);
    assert_eq!(text(response).await, "404 page not found");
    let response = stage.ask(with_method(Method::CONNECT, "localhost:80", &[])).await;
    assert_eq!(response.status(), StatusCode::METHOD_NOT_ALLOWED);
    still_works(&mut stage).await;
}

#[tokio::test]
async fn an_ollama_that_answers_garbage_is_told_as_a_bad_gateway() {
    let stage = Stage::with("").await;
    for garbage in [&b"garbage\r\n\r\n"[..], b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n", b"", b"\0\0\0"] {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let told = stablehand_protocol::queue::Upstream {
            address: Some(listener.local_addr().unwrap().to_string()),
            ..stablehand_protocol::queue::Upstream::default()
        };
        stage.control.tell(&told).await.unwrap();
        let garbling = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = [0; 1024];
            let count = stream.read(&mut request).await.unwrap();
            stream.write_all(garbage).await.unwrap();
            assert!(request[..count].starts_with(b"POST /api/chat"));
        });
        let response = stage.ask(chat("m")).await;
        assert_eq!(response.status(), StatusCode::BAD_GATEWAY);
        assert!(text(response).await.contains("not sent a second time"));
        garbling.await.unwrap();
        stage.until_running(0).await;
    }
}

#[tokio::test]
async fn a_body_with_two_ends_goes_on_with_one_and_nothing_comes_after_it() {
    let mut stage = Stage::with("").await;
    for lengths in
        ["Content-Length: 4\r\nTransfer-Encoding: chunked", "Transfer-Encoding: chunked\r\nContent-Length: 4"]
    {
        let body = r#"{"model":"m","messages":["hi"]}"#;
        let sent = format!(
            "POST /api/chat HTTP/1.1\r\nHost: localhost\r\n{lengths}\r\n\r\n{:x}\r\n{body}\r\n0\r\n\r\n\
             GET /api/smuggled HTTP/1.1\r\nHost: localhost\r\n\r\n",
            body.len()
        );
        let mut stream = stage.raw().await;
        stream.write_all(sent.as_bytes()).await.unwrap();
        let asked = stage.ollama.asked().await;
        assert_eq!((asked.text(), &asked.headers["content-length"]), (body, &body.len().into()), "as it was read");
        assert!(!asked.headers.contains_key("transfer-encoding"));
        asked.json("{}");
        let mut answer = String::new();
        soon("the end", stream.read_to_string(&mut answer)).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 200 ") && answer.ends_with("{}"), "{answer}");
        assert!(stage.ollama.is_idle(), "what followed is no request");
    }
    still_works(&mut stage).await;
}

#[tokio::test]
async fn a_request_of_old_that_names_no_host_gets_one() {
    let mut stage = Stage::with("").await;
    let mut stream = stage.raw().await;
    stream.write_all(b"GET /api/tags HTTP/1.0\r\n\r\n").await.unwrap();
    let asked = stage.ollama.asked().await;
    assert_eq!(asked.headers["host"], stage.ollama.address.to_string());
    asked.json("{}");
    let mut answer = String::new();
    soon("an answer", stream.read_to_string(&mut answer)).await.unwrap();
    assert!(answer.contains(" 200 OK"), "{answer}");
}

#[tokio::test]
async fn a_model_is_named_in_a_form_and_nowhere_else() {
    let stage = Stage::with("").await;
    let kind = [("content-type", "multipart/form-data; boundary=x1")];
    let form = "--x1\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\nwhisper:1b\r\n--x1--\r\n";
    for query in ["model=other", "a=1&m%6fdel=other"] {
        let response = stage.ask(post_with(&format!("/v1/audio/transcriptions?{query}"), &kind, form)).await;
        assert_eq!(response.status(), StatusCode::BAD_REQUEST);
        assert!(text(response).await.contains("named in the form"));
    }
}

#[tokio::test]
async fn who_stops_in_the_middle_holds_no_place() {
    let mut stage = Stage::with("head_s = 1\nbody_silence_s = 1").await;
    // A body that passes through, and never ends.
    let mut body = stage.raw().await;
    let head = b"POST /api/push HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n{";
    body.write_all(head).await.unwrap();
    // The beginning of HTTP/2, and no more.
    let mut preface = stage.raw().await;
    preface.write_all(b"PRI ").await.unwrap();
    // All of it, and no request.
    let (sender, connection) = stage.http2().await;
    let mut answer = String::new();
    soon("an answer", body.read_to_string(&mut answer)).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 400 ") && answer.contains("to its end"), "{answer}");
    // What it sent was never read, so it may see a reset.
    let closed = soon("the end", preface.read_to_string(&mut answer)).await;
    assert!(closed.is_err() || closed.is_ok_and(|count| count == 0));
    let _ended = soon("the end of HTTP/2", connection).await;
    drop(sender);
    still_works(&mut stage).await;
}

#[tokio::test]
async fn names_and_pages_of_others_are_kept_out() {
    let mut stage = Stage::with("origins = [\"https://good.example\"]").await;
    let refused = async |headers: &[(&str, &str)]| {
        let mut request = with_method(Method::POST, "/api/chat", &[]);
        for (name, value) in headers {
            request.headers_mut().insert(http::HeaderName::try_from(*name).unwrap(), value.parse().unwrap());
        }
        stage.ask(request).await.status()
    };
    assert_eq!(refused(&[("host", "evil.example")]).await, StatusCode::FORBIDDEN);
    assert_eq!(refused(&[("origin", "https://evil.example")]).await, StatusCode::FORBIDDEN);
    assert_eq!(refused(&[("host", "host.docker.internal:11434")]).await, StatusCode::BAD_REQUEST, "it is let in");
    let good = [("origin", "https://good.example"), ("access-control-request-method", "POST")];
    assert_eq!(refused(&good).await, StatusCode::BAD_REQUEST, "it is let in");
    let preflight = stage.ask(with_method(Method::OPTIONS, "/api/chat", &good)).await;
    let of_it = ("https://good.example", StatusCode::NO_CONTENT);
    assert_eq!((header(&preflight, "access-control-allow-origin"), preflight.status()), of_it);
    let asking = stage.asking(with_method(Method::GET, "/api/tags", &good));
    let asked = stage.ollama.asked().await;
    assert!(!asked.headers.contains_key("origin"), "Ollama, which was not told of it, would refuse it");
    asked.json("{}");
    assert_eq!(header(&asking.await.unwrap(), "access-control-allow-origin"), "https://good.example");
    // A target that names a host is for that host, whatever else is said.
    let answer =
        stage.exchange(b"GET http://evil.example/ HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 403"), "{answer}");
    assert!(stage.ollama.is_idle());
    still_works(&mut stage).await;
}
