//! What passes through is what was sent, and a permit lives as long as its answer.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod stage;

use http::{HeaderMap, HeaderValue, Method, StatusCode};
use http_body_util::BodyExt;
use stage::{Stage, chat, get, header, piece, post, post_with, soon, text, with_method};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const NDJSON: &[(&str, &str)] = &[("content-type", "application/x-ndjson")];
const EVENTS: &[(&str, &str)] = &[("content-type", "text/event-stream")];

#[tokio::test]
async fn bodies_and_headers_arrive_as_they_were_sent() {
    let mut stage = Stage::with("").await;
    let body = "{ \"model\":\"m\",\n\t\"messages\":[{\"content\":\"ä\\u00e4 \\/\"}], \"x\" : 1e3 }  ";
    let headers = [("authorization", "Bearer k"), ("x-own", "a, b"), ("accept-encoding", "gzip"), ("user-agent", "u")];
    let asking = stage.asking(post_with("/api/chat?x=%20y&z", &headers, body));
    let asked = stage.ollama.asked().await;
    assert_eq!((asked.method.as_str(), asked.path.as_str(), asked.text()), ("POST", "/api/chat?x=%20y&z", body));
    assert_eq!(asked.headers["host"], "localhost");
    assert_eq!(asked.headers["content-length"], body.len().to_string());
    for (name, value) in headers {
        assert_eq!(asked.headers[name], value, "{name}");
    }
    let answered =
        [("content-type", "application/json"), ("x-other", "c"), ("set-cookie", "a=1"), ("set-cookie", "b=2")];
    asked.whole(StatusCode::CREATED, &answered, "{ \"message\" : {} }\n");
    let response = asking.await.unwrap();
    assert_eq!(response.status(), StatusCode::CREATED);
    assert_eq!(header(&response, "x-other"), "c");
    assert_eq!(response.headers().get_all("set-cookie").iter().count(), 2);
    assert!(response.headers().get("date").is_none(), "nothing is added that concerns the content");
    assert_eq!(text(response).await, "{ \"message\" : {} }\n");
}

#[tokio::test]
async fn what_concerns_one_connection_stays_on_it() {
    let mut stage = Stage::with("").await;
    let sent =
        b"POST /api/pull HTTP/1.1\r\nHost: localhost\r\nConnection: close, X-Mine\r\nX-Mine: 1\r\nTE: trailers\r\n\
        Keep-Alive: timeout=5\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n3\r\nabc\r\n0\r\nX-Sum: 7\r\n\r\n";
    let mut stream = stage.raw().await;
    stream.write_all(sent).await.unwrap();
    let asked = stage.ollama.asked().await;
    assert_eq!(asked.text(), "abc");
    for name in ["connection", "x-mine", "keep-alive"] {
        assert!(!asked.headers.contains_key(name), "{name}");
    }
    assert_eq!(asked.headers["te"], "trailers");
    assert_eq!(asked.trailers.as_ref().unwrap()["x-sum"], "7");
    let answering =
        asked.begin(&[("connection", "x-theirs"), ("x-theirs", "1"), ("trailer", "x-end"), ("x-kept", "2")]);
    assert!(answering.piece("one"));
    answering.trailers(HeaderMap::from_iter([("x-end".parse().unwrap(), HeaderValue::from_static("9"))]));
    drop(answering);
    let mut answer = String::new();
    soon("the end of the answer", stream.read_to_string(&mut answer)).await.unwrap();
    assert!(!answer.contains("x-theirs") && answer.contains("x-kept: 2"), "{answer}");
    assert!(answer.contains("connection: close") && answer.ends_with("3\r\none\r\n0\r\nx-end: 9\r\n\r\n"), "{answer}");
}

#[tokio::test]
async fn http_2_is_understood_and_its_authority_is_the_host() {
    let mut stage = Stage::with("").await;
    let (mut sender, connection) = stage.http2().await;
    tokio::spawn(connection);
    let mut request = post("http://localhost:11434/api/generate", r#"{"model":"m","prompt":"hi"}"#);
    request.headers_mut().clear();
    let asking = tokio::spawn(async move { sender.send_request(request).await.unwrap() });
    let asked = stage.ollama.asked().await;
    assert_eq!(
        (asked.path.as_str(), &asked.headers["host"]),
        ("/api/generate", &HeaderValue::from_static("localhost:11434"))
    );
    let answering = asked.begin(NDJSON);
    assert!(answering.piece("{}\n"));
    drop(answering);
    assert_eq!(text(asking.await.unwrap()).await, "{}\n");
}

#[tokio::test]
async fn a_client_that_asks_whether_to_go_on_is_told_to() {
    let mut stage = Stage::with("").await;
    let mut stream = stage.raw().await;
    let head = b"POST /api/chat HTTP/1.1\r\nHost: localhost\r\nContent-Length: 30\r\nExpect: 100-continue\r\n\r\n";
    stream.write_all(head).await.unwrap();
    let mut line = [0; 25];
    soon("100", stream.read_exact(&mut line)).await.unwrap();
    assert_eq!(&line, b"HTTP/1.1 100 Continue\r\n\r\n");
    stream.write_all(br#"{"model":"m","messages":["hi"]"#).await.unwrap();
    drop(stream);
    let mut stream = stage.raw().await;
    stream.write_all(head).await.unwrap();
    soon("100", stream.read_exact(&mut line)).await.unwrap();
    stream.write_all(br#"{"model":"m","messages":["h"]}"#).await.unwrap();
    let asked = stage.ollama.asked().await;
    assert!(!asked.headers.contains_key("expect"), "it was answered here");
    asked.json("{}");
}

#[tokio::test]
async fn pieces_go_on_as_they_come_and_the_next_has_its_turn_after_the_last() {
    let mut stage = Stage::with("").await;
    let first = stage.asking(chat("m"));
    let answering = stage.ollama.asked().await.begin(NDJSON);
    assert!(answering.piece("{\"a\":1}\n"));
    let first = first.await.unwrap();
    assert_eq!((header(&first, "x-stablehand-position"), header(&first, "x-stablehand-lane")), ("0", "agent"));
    let mut body = first.into_body();
    assert_eq!(piece(&mut body).await.as_deref(), Some("{\"a\":1}\n"));
    let second = stage.asking(post_with("/v1/chat/completions", &[("x-stablehand-lane", "batch")], r#"{"model":"M"}"#));
    let view = stage.until_waiting(1).await;
    assert_eq!(
        (view.running.len(), view.waiting[0].model.as_str(), view.waiting[0].lane.as_str()),
        (1, "m:latest", "batch")
    );
    assert!(answering.piece("{\"a\":2}\n"));
    assert_eq!(piece(&mut body).await.as_deref(), Some("{\"a\":2}\n"));
    assert!(stage.ollama.is_idle(), "the head of the first answer has come, its end has not");
    drop(answering);
    assert_eq!(piece(&mut body).await, None);
    stage.ollama.asked().await.json("{}");
    let second = second.await.unwrap();
    assert_eq!((header(&second, "x-stablehand-position"), header(&second, "x-stablehand-lane")), ("1", "batch"));
    assert!(header(&second, "x-stablehand-queued-ms").parse::<u64>().is_ok());
    stage.until_running(0).await;
}

#[tokio::test]
async fn whoever_leaves_the_queue_frees_its_place_at_once() {
    let mut stage = Stage::with("").await;
    let first = stage.asking(chat("m"));
    let asked = stage.ollama.asked().await;
    let leaves = stage.asking(chat("m"));
    stage.until_waiting(1).await;
    // One that closes only its own half is gone too, as for Ollama.
    let mut half = stage.raw().await;
    let body = r#"{"model":"m","messages":["h"]}"#;
    let head = format!("POST /api/chat HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    half.write_all(head.as_bytes()).await.unwrap();
    let stays = stage.asking(chat("m"));
    stage.until_waiting(3).await;
    leaves.abort();
    half.shutdown().await.unwrap();
    let view = stage.until_waiting(1).await;
    assert_eq!(view.running.len(), 1);
    asked.json("{}");
    assert_eq!(first.await.unwrap().status(), StatusCode::OK);
    stage.ollama.asked().await.json("{}");
    assert_eq!(stays.await.unwrap().status(), StatusCode::OK);
    assert!(stage.ollama.is_idle());
}

#[tokio::test]
async fn whoever_leaves_while_it_is_answered_ends_the_work_and_the_permit() {
    let mut stage = Stage::with("").await;
    let before_the_head = stage.asking(chat("m"));
    let mut asked = stage.ollama.asked().await;
    before_the_head.abort();
    asked.nobody_waits().await;
    stage.until_running(0).await;
    let in_the_body = stage.asking(chat("m"));
    let answering = stage.ollama.asked().await.begin(NDJSON);
    assert!(answering.piece("{}\n"));
    let mut response = in_the_body.await.unwrap();
    assert!(piece(response.body_mut()).await.is_some());
    drop(response);
    answering.nobody_reads().await;
    stage.until_running(0).await;
}

#[tokio::test]
async fn a_break_is_told_in_the_form_of_the_answer_and_nothing_is_sent_twice() {
    let mut stage = Stage::with("").await;
    // Before the head.
    let asking = stage.asking(chat("m"));
    stage.ollama.asked().await.break_off();
    let response = asking.await.unwrap();
    assert_eq!(response.status(), StatusCode::BAD_GATEWAY);
    assert!(text(response).await.contains("is not sent a second time"));
    // Between two lines, as Ollama itself would say it.
    let asking = stage.asking(chat("m"));
    let answering = stage.ollama.asked().await.begin(NDJSON);
    assert!(answering.piece("{\"a\":1}\n"));
    let mut body = asking.await.unwrap().into_body();
    assert_eq!(piece(&mut body).await.as_deref(), Some("{\"a\":1}\n"));
    answering.break_off();
    assert!(piece(&mut body).await.unwrap().starts_with("{\"error\":\"Ollama went away"));
    // Between two events.
    let asking = stage.asking(post("/v1/messages", r#"{"model":"m","stream":true}"#));
    let answering = stage.ollama.asked().await.begin(EVENTS);
    assert!(answering.piece("event: x\ndata: {}\n\n"));
    let mut body = asking.await.unwrap().into_body();
    assert!(piece(&mut body).await.is_some());
    answering.break_off();
    assert!(piece(&mut body).await.unwrap().starts_with("event: error\ndata: {\"error\""));
    // In the middle of a line nothing can be added; the answer has no end.
    let asking = stage.asking(chat("m"));
    let answering = stage.ollama.asked().await.begin(NDJSON);
    assert!(answering.piece("{\"a\":"));
    let mut body = asking.await.unwrap().into_body();
    assert_eq!(piece(&mut body).await.as_deref(), Some("{\"a\":"));
    answering.break_off();
    assert!(soon("an error", body.frame()).await.unwrap().is_err());
    stage.until_running(0).await;
    assert!(stage.ollama.is_idle());
}

#[tokio::test]
async fn what_may_not_wait_passes_while_others_do() {
    let mut stage = Stage::with("").await;
    let running = stage.asking(chat("m"));
    let hung = stage.ollama.asked().await;
    let waiting = stage.asking(chat("m"));
    stage.until_waiting(1).await;
    for request in [
        post("/api/generate", r#"{"model":"m","keep_alive":0}"#),
        post("/api/chat", r#"{"model":"m","messages":[]}"#),
        post("/api/chat", r#"{"model":"big:cloud","messages":[{}]}"#),
        post("/api/pull", r#"{"model":"m"}"#),
        get("/api/ps2"),
        with_method(Method::HEAD, "/api/chat", &[]),
        with_method(Method::OPTIONS, "/api/chat", &[]),
        with_method(Method::DELETE, "/api/delete", &[]),
    ] {
        let method = request.method().clone();
        let asking = stage.asking(request);
        let asked = stage.ollama.asked().await;
        assert_eq!(asked.method, method);
        asked.whole(StatusCode::OK, &[], "");
        assert_eq!(asking.await.unwrap().status(), StatusCode::OK);
    }
    let view = stage.control.queue().await.unwrap();
    assert_eq!((view.running.len(), view.waiting.len()), (1, 1));
    running.abort();
    drop(hung);
    stage.ollama.asked().await.json("{}");
    assert_eq!(waiting.await.unwrap().status(), StatusCode::OK);
}

#[tokio::test]
async fn a_full_queue_says_so_at_once_in_the_shape_of_each_family() {
    let mut stage = Stage::with("waiting = 2").await;
    let _running = stage.asking(chat("m"));
    let _asked = stage.ollama.asked().await;
    let _waiting = [stage.asking(chat("m")), stage.asking(chat("m"))];
    stage.until_waiting(2).await;
    let page = [("origin", "http://localhost:3000")];
    let busy = "server busy, please try again.  maximum pending requests exceeded";
    for (path, body, place) in [
        ("/api/chat", r#"{"model":"m","messages":[{}]}"#, "/error"),
        ("/v1/chat/completions", r#"{"model":"m"}"#, "/error/message"),
        ("/v1/messages", r#"{"model":"m"}"#, "/error/message"),
    ] {
        let response = stage.ask(post_with(path, &page, body)).await;
        assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
        assert!(header(&response, "retry-after").parse::<u64>().is_ok_and(|seconds| (1..=40).contains(&seconds)));
        assert_eq!(header(&response, "access-control-allow-origin"), "http://localhost:3000");
        let told: serde_json::Value = serde_json::from_str(&text(response).await).unwrap();
        assert_eq!(told.pointer(place).unwrap(), busy, "{path}");
    }
}

#[tokio::test]
async fn who_would_give_up_before_its_turn_is_told() {
    let mut stage = Stage::with("").await;
    let _running = stage.asking(chat("m"));
    let _asked = stage.ollama.asked().await;
    let deadline = [("x-stablehand-deadline-ms", "50")];
    let response = stage.ask(post_with("/v1/embeddings", &deadline, r#"{"model":"m"}"#)).await;
    assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert!(text(response).await.contains("as long as it wanted"));
}
