//! Talking to a runner over HTTP: pings and completions.

use std::time::Duration;

use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::sync::OwnedSemaphorePermit;

use super::scheduler::Lease;

/// One step of an answer.
#[derive(Clone, Debug, PartialEq)]
pub enum Piece {
    /// Generated text.
    Text(String),
    /// The end, with its counts.
    Done(Counts),
    /// The runner went away in the middle.
    Broken,
}

/// Counts at the end of an answer; times are world time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Counts {
    /// Tokens of the prompt.
    pub prompt_tokens: u64,
    /// Time spent on the prompt, ms.
    pub prompt_ms: f64,
    /// Tokens generated.
    pub tokens: u64,
    /// Time spent generating, ms.
    pub generate_ms: f64,
    /// Whether a limit ended it.
    pub hit_limit: bool,
}

/// A running answer. Dropping it closes the connection to the runner, which
/// frees the slot there, and gives the permit and the lease back.
pub struct Generation {
    body: Incoming,
    buffer: Vec<u8>,
    connection: tokio::task::JoinHandle<()>,
    ended: bool,
    _permit: OwnedSemaphorePermit,
    _lease: Lease,
}

impl Drop for Generation {
    fn drop(&mut self) {
        self.connection.abort();
    }
}

impl Generation {
    /// Sends the prompt. `None` if the runner went away before it answered.
    pub async fn start(
        lease: Lease,
        permit: OwnedSemaphorePermit,
        prompt: &str,
        images: u64,
        predict: i64,
    ) -> Option<Self> {
        let path = if lease.runner.stored.model.is_mlx() { "/v1/completions" } else { "/completion" };
        let body = json!({
            "prompt": prompt,
            "images": images,
            "n_predict": predict,
            "stream": true,
            "cache_prompt": true,
        });
        let (response, connection) = send(lease.runner.port, "POST", path, &body).await?;
        Some(Self {
            body: response.into_body(),
            buffer: Vec::new(),
            connection,
            ended: false,
            _permit: permit,
            _lease: lease,
        })
    }

    /// The next step; `None` after the last.
    pub async fn next(&mut self) -> Option<Piece> {
        if self.ended {
            return None;
        }
        loop {
            while let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.buffer.drain(..=end).collect();
                if let Some(piece) = parse_line(&line) {
                    self.ended = matches!(piece, Piece::Done(_));
                    return Some(piece);
                }
            }
            match self.body.frame().await {
                Some(Ok(frame)) => {
                    if let Some(data) = frame.data_ref() {
                        self.buffer.extend_from_slice(data);
                    }
                }
                Some(Err(_)) | None => {
                    self.ended = true;
                    return Some(Piece::Broken);
                }
            }
        }
    }
}

/// Whether the runner on `port` says that it is ready.
pub async fn is_healthy(port: u16, is_mlx: bool, limit: Duration) -> bool {
    let path = if is_mlx { "/v1/status" } else { "/health" };
    let ask = async {
        let (response, connection) = send(port, "GET", path, &Value::Null).await?;
        let status = response.status();
        let body = response.into_body().collect().await.ok()?.to_bytes();
        connection.abort();
        // Runners up to 0.24 answer 200 while they load, with a number.
        let loading = serde_json::from_slice::<Value>(&body)
            .ok()
            .and_then(|value| value["status"].as_u64())
            .is_some_and(|status| status != 0);
        (status.is_success() && !loading).then_some(())
    };
    matches!(tokio::time::timeout(limit, ask).await, Ok(Some(())))
}

/// Runners up to 0.24 are told by request how to load, once they listen.
pub async fn ask_old_runner_to_load(port: u16, context: u64, slots: u64) {
    let body = json!({ "Operation": 2, "Parallel": slots, "KvSize": context * slots, "BatchSize": 512 });
    for _ in 0..500 {
        if let Some((response, connection)) = send(port, "POST", "/load", &body).await {
            let _ = response.into_body().collect().await;
            connection.abort();
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

async fn send(
    port: u16,
    method: &str,
    path: &str,
    body: &Value,
) -> Option<(Response<Incoming>, tokio::task::JoinHandle<()>)> {
    let stream = TcpStream::connect(("127.0.0.1", port)).await.ok()?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.ok()?;
    let connection = AbortOnDrop(Some(tokio::spawn(async move {
        let _ = connection.await;
    })));
    let bytes = if body.is_null() { Bytes::new() } else { Bytes::from(body.to_string()) };
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header("host", format!("127.0.0.1:{port}"))
        .header("content-type", "application/json")
        .body(Full::new(bytes))
        .ok()?;
    let response = sender.send_request(request).await.ok()?;
    Some((response, connection.keep()?))
}

/// Ends the connection when the wait for the answer's head is given up.
struct AbortOnDrop(Option<tokio::task::JoinHandle<()>>);

impl AbortOnDrop {
    fn keep(mut self) -> Option<tokio::task::JoinHandle<()>> {
        self.0.take()
    }
}

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        if let Some(task) = self.0.take() {
            task.abort();
        }
    }
}

fn parse_line(line: &[u8]) -> Option<Piece> {
    let text = std::str::from_utf8(line).ok()?.trim();
    let value: Value = serde_json::from_str(text.strip_prefix("data: ")?).ok()?;
    if value["stop"] == true {
        let timings = &value["timings"];
        return Some(Piece::Done(Counts {
            prompt_tokens: value["tokens_evaluated"].as_u64().unwrap_or(0),
            prompt_ms: timings["prompt_ms"].as_f64().unwrap_or(0.0),
            tokens: value["tokens_predicted"].as_u64().unwrap_or(0),
            generate_ms: timings["predicted_ms"].as_f64().unwrap_or(0.0),
            hit_limit: value["stop_type"] == "limit",
        }));
    }
    Some(Piece::Text(value["content"].as_str().unwrap_or_default().to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_a_stream_are_understood() {
        assert_eq!(parse_line(b"data: {\"content\":\"hi\",\"stop\":false}\n"), Some(Piece::Text("hi".into())));
        assert_eq!(parse_line(b":\n"), None);
        let done = parse_line(
            b"data: {\"content\":\"\",\"stop\":true,\"stop_type\":\"limit\",\"tokens_predicted\":3,\"tokens_evaluated\":9,\"timings\":{\"prompt_ms\":1.5,\"predicted_ms\":2.0}}\n",
        );
        let Some(Piece::Done(counts)) = done else {
            unreachable!("not the end");
        };
        assert_eq!((counts.tokens, counts.prompt_tokens, counts.hit_limit), (3, 9, true));
    }
}
