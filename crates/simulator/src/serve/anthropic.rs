//! The Anthropic-compatible part of the API (`anthropic/anthropic.go`, `middleware/anthropic.go`).

use std::sync::Arc;

use axum::Json;
use axum::body::{Body, Bytes};
use axum::extract::{Extension, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use super::answering::{self, Ask, Problem, RUNNER_BROKE, Running};
use super::completion::{Counts, Piece};
use super::native::{images_of, parse, prompt_of};
use super::{Arrival, Server};

/// A refusal in Anthropic's shape.
pub struct AnthropicProblem(Problem);

impl From<Problem> for AnthropicProblem {
    fn from(problem: Problem) -> Self {
        Self(problem)
    }
}

impl IntoResponse for AnthropicProblem {
    fn into_response(self) -> Response {
        let kind = match self.0.status {
            StatusCode::BAD_REQUEST => "invalid_request_error",
            StatusCode::NOT_FOUND => "not_found_error",
            StatusCode::SERVICE_UNAVAILABLE => "overloaded_error",
            _ => "api_error",
        };
        let body = json!({ "type": "error", "error": { "type": kind, "message": self.0.message } });
        (self.0.status, Json(body)).into_response()
    }
}

/// `POST /v1/messages`.
pub async fn messages(
    State(server): State<Arc<Server>>,
    Extension(arrival): Extension<Arrival>,
    body: Bytes,
) -> Result<Response, AnthropicProblem> {
    let request = parse(&body)?;
    let limit = request["max_tokens"].as_i64().filter(|limit| *limit > 0);
    let Some(limit) = limit else {
        return Err(Problem::new(StatusCode::BAD_REQUEST, "max_tokens is required and must be positive").into());
    };
    if request["messages"].as_array().is_none_or(Vec::is_empty) {
        return Err(Problem::new(StatusCode::BAD_REQUEST, "messages is required").into());
    }
    let ask = Ask {
        model: request["model"].as_str().unwrap_or_default().to_owned(),
        prompt: prompt_of(&request["messages"]),
        images: images_of(&request["messages"]) as u64,
        options: json!({ "num_predict": limit }),
        keep_alive: Value::Null,
    };
    let mut running = answering::run(&server, &ask, &arrival).await?;
    let id = format!("msg_{}", arrival.at.elapsed().as_nanos());
    let broken = || Problem::new(StatusCode::INTERNAL_SERVER_ERROR, RUNNER_BROKE);
    let mut text = String::new();
    loop {
        match running.generation.next().await {
            Some(Piece::Text(first)) if request["stream"] == true => {
                let mut response = Response::new(Body::from_stream(events(running, first, id)));
                response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
                return Ok(response);
            }
            Some(Piece::Text(more)) => text.push_str(&more),
            Some(Piece::Done(counts)) => {
                let mut message = message(&id, &running.model, json!([{ "type": "text", "text": text }]), counts);
                message["stop_reason"] = json!(stop_reason(counts));
                return Ok(Json(message).into_response());
            }
            Some(Piece::Broken) | None => return Err(broken().into()),
        }
    }
}

fn events(
    running: Running,
    first: String,
    id: String,
) -> impl futures_util::Stream<Item = Result<Bytes, std::convert::Infallible>> {
    let start = [
        json!({ "type": "message_start", "message": message(&id, &running.model, json!([]), Counts::default()) }),
        json!({ "type": "content_block_start", "index": 0, "content_block": { "type": "text", "text": "" } }),
        delta(&first),
    ];
    futures_util::stream::unfold((running, Some(start), false), |(mut running, start, ended)| async move {
        if let Some(start) = start {
            return Some((Ok(written(&start)), (running, None, false)));
        }
        if ended {
            return None;
        }
        let (bytes, ended) = match running.generation.next().await? {
            Piece::Text(text) => (written(&[delta(&text)]), false),
            Piece::Done(counts) => {
                let last = json!({
                    "type": "message_delta",
                    "delta": { "stop_reason": stop_reason(counts) },
                    "usage": usage(counts),
                });
                let stop = json!({ "type": "content_block_stop", "index": 0 });
                (written(&[stop, last, json!({ "type": "message_stop" })]), true)
            }
            Piece::Broken => {
                let error = json!({ "type": "error", "error": { "type": "api_error", "message": RUNNER_BROKE } });
                (written(&[error]), true)
            }
        };
        Some((Ok(bytes), (running, None, ended)))
    })
}

/// Each is named after its type.
fn written(events: &[Value]) -> Bytes {
    let one = |event: &Value| format!("event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap_or_default());
    events.iter().map(one).collect::<String>().into()
}

fn message(id: &str, model: &str, content: Value, counts: Counts) -> Value {
    json!({
        "id": id, "type": "message", "role": "assistant", "model": model, "content": content, "usage": usage(counts),
    })
}

fn delta(text: &str) -> Value {
    json!({ "type": "content_block_delta", "index": 0, "delta": { "type": "text_delta", "text": text } })
}

fn usage(counts: Counts) -> Value {
    json!({ "input_tokens": counts.prompt_tokens, "output_tokens": counts.tokens })
}

fn stop_reason(counts: Counts) -> &'static str {
    if counts.hit_limit { "max_tokens" } else { "end_turn" }
}
