//! The OpenAI-compatible part of the API.

use std::sync::Arc;

use axum::Json;
use axum::body::{Body, Bytes};
use axum::extract::{Extension, Path, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use super::answering::{self, Ask, Problem, RUNNER_BROKE, Running};
use super::completion::{Counts, Piece};
use super::native::{images_of, parse, prompt_of};
use super::{Arrival, Server};

/// A refusal in OpenAI's shape.
pub struct OpenAiProblem(Problem);

impl From<Problem> for OpenAiProblem {
    fn from(problem: Problem) -> Self {
        Self(problem)
    }
}

impl IntoResponse for OpenAiProblem {
    fn into_response(self) -> Response {
        let kind = match self.0.status {
            StatusCode::BAD_REQUEST => "invalid_request_error",
            StatusCode::NOT_FOUND => "not_found_error",
            _ => "api_error",
        };
        let body = json!({
            "error": { "message": self.0.message, "type": kind, "param": null, "code": null }
        });
        (self.0.status, Json(body)).into_response()
    }
}

/// `GET /v1/models`.
pub async fn models(State(server): State<Arc<Server>>) -> Json<Value> {
    let data: Vec<Value> =
        server.library.all().iter().map(|stored| row(&stored.model.name, stored.written_unix_ms / 1000)).collect();
    Json(json!({ "object": "list", "data": data }))
}

/// `GET /v1/models/:model`.
pub async fn model(State(server): State<Arc<Server>>, Path(name): Path<String>) -> Result<Json<Value>, OpenAiProblem> {
    let stored = server
        .library
        .find(&name)
        .ok_or_else(|| Problem::new(StatusCode::NOT_FOUND, format!("model '{name}' not found")))?;
    Ok(Json(row(&stored.model.name, stored.written_unix_ms / 1000)))
}

/// `POST /v1/chat/completions`.
pub async fn chat_completions(
    State(server): State<Arc<Server>>,
    Extension(arrival): Extension<Arrival>,
    body: Bytes,
) -> Result<Response, OpenAiProblem> {
    let request = parse(&body)?;
    let prompt = prompt_of(&request["messages"]);
    if prompt.is_empty() {
        return Err(Problem::new(StatusCode::BAD_REQUEST, "[] is too short - 'messages'").into());
    }
    answer(server, &arrival, &request, prompt, Shape::Chat).await
}

/// `POST /v1/completions`.
pub async fn completions(
    State(server): State<Arc<Server>>,
    Extension(arrival): Extension<Arrival>,
    body: Bytes,
) -> Result<Response, OpenAiProblem> {
    let request = parse(&body)?;
    let prompt = request["prompt"].as_str().unwrap_or(" ").to_owned();
    answer(server, &arrival, &request, prompt, Shape::Text).await
}

#[derive(Clone, Copy)]
enum Shape {
    Chat,
    Text,
}

async fn answer(
    server: Arc<Server>,
    arrival: &Arrival,
    request: &Value,
    prompt: String,
    shape: Shape,
) -> Result<Response, OpenAiProblem> {
    let limit = request["max_tokens"].as_i64().or(request["max_completion_tokens"].as_i64()).unwrap_or(-1);
    let ask = Ask {
        model: request["model"].as_str().unwrap_or_default().to_owned(),
        prompt,
        images: images_of(&request["messages"]) as u64,
        options: json!({ "num_predict": limit }),
        keep_alive: Value::Null,
    };
    let mut running = answering::run(&server, &ask, arrival).await?;
    let id = format!("{}-{}", prefix(shape), arrival.at.elapsed().as_nanos() % 1000);
    let broken = || Problem::new(StatusCode::INTERNAL_SERVER_ERROR, RUNNER_BROKE);
    if request["stream"] == true {
        let first = running.generation.next().await;
        if matches!(first, Some(Piece::Broken) | None) {
            return Err(broken().into());
        }
        let usage = request["stream_options"]["include_usage"] == true;
        let mut response = Response::new(Body::from_stream(events(server, running, first, id, shape, usage)));
        response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
        return Ok(response);
    }
    let mut text = String::new();
    loop {
        match running.generation.next().await {
            Some(Piece::Text(more)) => text.push_str(&more),
            Some(Piece::Done(counts)) => {
                let mut choice = match shape {
                    Shape::Chat => {
                        json!({ "index": 0, "message": { "role": "assistant", "content": text } })
                    }
                    Shape::Text => json!({ "index": 0, "text": text }),
                };
                choice["finish_reason"] = json!(finish(counts));
                let object = match shape {
                    Shape::Chat => "chat.completion",
                    Shape::Text => "text_completion",
                };
                return Ok(Json(json!({
                    "id": id,
                    "object": object,
                    "created": server.world.clock.wall_ms() / 1000,
                    "model": running.model,
                    "system_fingerprint": "fp_ollama",
                    "choices": [choice],
                    "usage": usage_of(counts),
                }))
                .into_response());
            }
            Some(Piece::Broken) | None => return Err(broken().into()),
        }
    }
}

fn events(
    server: Arc<Server>,
    running: Running,
    first: Option<Piece>,
    id: String,
    shape: Shape,
    usage: bool,
) -> impl futures_util::Stream<Item = Result<Bytes, std::convert::Infallible>> {
    futures_util::stream::unfold(
        (server, running, first, id, false),
        move |(server, mut running, mut ready, id, ended)| async move {
            if ended {
                return None;
            }
            let piece = match ready.take() {
                Some(piece) => piece,
                None => running.generation.next().await?,
            };
            let created = server.world.clock.wall_ms() / 1000;
            let chunk = |choices: Value, usage: Value| {
                let object = match shape {
                    Shape::Chat => "chat.completion.chunk",
                    Shape::Text => "text_completion",
                };
                let mut value = json!({
                    "id": id, "object": object, "created": created, "model": running.model,
                    "system_fingerprint": "fp_ollama", "choices": choices,
                });
                if !usage.is_null() {
                    value["usage"] = usage;
                }
                format!("data: {value}\n\n")
            };
            let (text, ended) = match piece {
                Piece::Text(text) => (chunk(json!([choice(shape, &text, Value::Null)]), Value::Null), false),
                Piece::Done(counts) => {
                    let mut text = chunk(json!([choice(shape, "", json!(finish(counts)))]), Value::Null);
                    if usage {
                        text.push_str(&chunk(json!([]), usage_of(counts)));
                    }
                    text.push_str("data: [DONE]\n\n");
                    (text, true)
                }
                Piece::Broken => (
                    format!(
                        "data: {}\n\n",
                        json!({ "error": { "message": RUNNER_BROKE, "type": "api_error", "param": null, "code": null } })
                    ),
                    true,
                ),
            };
            Some((Ok(Bytes::from(text)), (server, running, None, id, ended)))
        },
    )
}

fn choice(shape: Shape, text: &str, finish: Value) -> Value {
    match shape {
        Shape::Chat => json!({
            "index": 0,
            "delta": { "role": "assistant", "content": text },
            "finish_reason": finish,
        }),
        Shape::Text => json!({ "index": 0, "text": text, "finish_reason": finish }),
    }
}

fn finish(counts: Counts) -> &'static str {
    if counts.hit_limit { "length" } else { "stop" }
}

fn usage_of(counts: Counts) -> Value {
    json!({
        "prompt_tokens": counts.prompt_tokens,
        "completion_tokens": counts.tokens,
        "total_tokens": counts.prompt_tokens + counts.tokens,
    })
}

fn prefix(shape: Shape) -> &'static str {
    match shape {
        Shape::Chat => "chatcmpl",
        Shape::Text => "cmpl",
    }
}

fn row(name: &str, created: i64) -> Value {
    json!({ "id": name, "object": "model", "created": created, "owned_by": "library" })
}
