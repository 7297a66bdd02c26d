//! Ollama's own API.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::{Extension, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router, middleware};
use serde_json::{Value, json};

use super::answering::{self, Ask, Problem, RUNNER_BROKE, Running};
use super::completion::{Counts, Piece};
use super::{Arrival, Server, access, anthropic, disturbance, openai};
use crate::faults::Fault;
use crate::world::moments;

/// Routes as gin prints them at start.
pub const ROUTES: [(&str, &str); 16] = [
    ("HEAD", "/"),
    ("GET", "/"),
    ("HEAD", "/api/version"),
    ("GET", "/api/version"),
    ("GET", "/api/status"),
    ("GET", "/api/tags"),
    ("GET", "/api/ps"),
    ("POST", "/api/show"),
    ("POST", "/api/generate"),
    ("POST", "/api/chat"),
    ("POST", "/api/embed"),
    ("POST", "/api/embeddings"),
    ("POST", "/v1/chat/completions"),
    ("POST", "/v1/completions"),
    ("GET", "/v1/models"),
    ("GET", "/v1/models/:model"),
];

/// Everything the server answers.
pub fn router(server: Arc<Server>) -> Router {
    Router::new()
        .route("/", get(|| async { "Ollama is running" }))
        .route("/api/version", get(version))
        .route("/api/status", get(status))
        .route("/api/tags", get(tags))
        .route("/api/ps", get(ps))
        .route("/api/show", post(show))
        .route("/api/generate", post(generate))
        .route("/api/chat", post(chat))
        .route("/api/embed", post(embed))
        .route("/v1/models", get(openai::models))
        .route("/v1/models/{model}", get(openai::model))
        .route("/v1/chat/completions", post(openai::chat_completions))
        .route("/v1/completions", post(openai::completions))
        .route("/v1/messages", post(anthropic::messages))
        .fallback(|| async { (StatusCode::NOT_FOUND, "404 page not found") })
        .layer(middleware::from_fn_with_state(Arc::clone(&server), access::observe))
        .with_state(server)
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        (self.status, Json(json!({ "error": self.message }))).into_response()
    }
}

/// Reads a JSON body as gin binds it.
pub fn parse(body: &Bytes) -> Result<Value, Problem> {
    if body.is_empty() {
        return Err(Problem::new(StatusCode::BAD_REQUEST, "missing request body"));
    }
    serde_json::from_slice(body).map_err(|error| Problem::new(StatusCode::BAD_REQUEST, error.to_string()))
}

/// A chat's messages as one prompt.
pub fn prompt_of(messages: &Value) -> String {
    let mut prompt = String::new();
    for message in messages.as_array().into_iter().flatten() {
        let role = message["role"].as_str().unwrap_or("user");
        prompt.push_str(&format!("<|{role}|>\n"));
        match &message["content"] {
            Value::String(text) => prompt.push_str(text),
            Value::Array(parts) => {
                for part in parts {
                    prompt.push_str(part["text"].as_str().unwrap_or_default());
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => {}
        }
        prompt.push('\n');
    }
    prompt
}

/// Images in a chat's messages.
pub fn images_of(messages: &Value) -> usize {
    let count = |message: &Value| {
        let parts = message["content"].as_array().into_iter().flatten();
        let own = message["images"].as_array().map_or(0, Vec::len);
        own + parts.filter(|part| part["type"] == "image_url").count()
    };
    messages.as_array().into_iter().flatten().map(count).sum()
}

async fn version(State(server): State<Arc<Server>>) -> Json<Value> {
    Json(json!({ "version": server.version }))
}

async fn status(State(server): State<Arc<Server>>) -> Json<Value> {
    let disabled = server.environment.no_cloud;
    Json(json!({ "cloud": { "disabled": disabled, "source": if disabled { "env" } else { "none" } } }))
}

async fn tags(State(server): State<Arc<Server>>) -> Json<Value> {
    let models: Vec<Value> = server
        .library
        .all()
        .iter()
        .map(|stored| {
            let model = &stored.model;
            let written = server.world.clock.wall_of_real_ms(stored.written_unix_ms);
            json!({
                "name": model.name,
                "model": model.name,
                "modified_at": moments::rfc3339_nanos(written),
                "size": model.weights_bytes,
                "digest": model.manifest_digest,
                "details": model.details(),
            })
        })
        .collect();
    Json(json!({ "models": models }))
}

async fn ps(State(server): State<Arc<Server>>) -> Json<Value> {
    disturbance::outlast(&server.world, Fault::SchedulerBlocked).await;
    // An MLX model that is being loaded holds this up until it is there.
    drop(server.scheduler.mlx_load.lock().await);
    let mut rows = Vec::new();
    for runner in server.scheduler.runners() {
        // A ping of a runner that does not answer holds this up.
        let _held = runner.reference_lock.lock().await;
        let model = &runner.stored.model;
        let expires = runner.expires_ms.load(Ordering::SeqCst);
        rows.push((
            expires,
            json!({
                "name": model.name,
                "model": model.name,
                "size": runner.bytes(),
                "digest": model.manifest_digest,
                "details": model.details(),
                "expires_at": moments::rfc3339_nanos(expires),
                "size_vram": runner.bytes(),
                "context_length": runner.context,
            }),
        ));
    }
    rows.sort_by_key(|(expires, _)| std::cmp::Reverse(*expires));
    let models: Vec<Value> = rows.into_iter().map(|(_, row)| row).collect();
    Json(json!({ "models": models }))
}

async fn show(State(server): State<Arc<Server>>, body: Bytes) -> Result<Json<Value>, Problem> {
    let request = parse(&body)?;
    let name = request["model"].as_str().or(request["name"].as_str()).unwrap_or_default();
    let stored = server
        .library
        .find(name)
        .ok_or_else(|| Problem::new(StatusCode::NOT_FOUND, format!("model '{name}' not found")))?;
    let model = &stored.model;
    let verbose = request["verbose"] == true;
    let written = server.world.clock.wall_of_real_ms(stored.written_unix_ms);
    Ok(Json(json!({
        "license": "",
        "modelfile": format!("FROM {}\n", stored.blob.display()),
        "template": "{{ .Prompt }}",
        "details": model.details(),
        "model_info": model.information(verbose),
        "tensors": [{ "name": "token_embd.weight", "type": "Q6_K", "shape": [model.embedding_length, 262_144] }],
        "capabilities": model.capabilities,
        "modified_at": moments::rfc3339_nanos(written),
    })))
}

async fn generate(
    State(server): State<Arc<Server>>,
    Extension(arrival): Extension<Arrival>,
    body: Bytes,
) -> Result<Response, Problem> {
    let request = parse(&body)?;
    let prompt = request["prompt"].as_str().unwrap_or_default().to_owned();
    let images = request["images"].as_array().map_or(0, Vec::len);
    answer(&server, &arrival, &request, prompt, images, Shape::Generate).await
}

async fn chat(
    State(server): State<Arc<Server>>,
    Extension(arrival): Extension<Arrival>,
    body: Bytes,
) -> Result<Response, Problem> {
    let request = parse(&body)?;
    let prompt = prompt_of(&request["messages"]);
    let images = images_of(&request["messages"]);
    answer(&server, &arrival, &request, prompt, images, Shape::Chat).await
}

async fn embed(
    State(server): State<Arc<Server>>,
    Extension(arrival): Extension<Arrival>,
    body: Bytes,
) -> Result<Json<Value>, Problem> {
    let request = parse(&body)?;
    let inputs: Vec<String> = match &request["input"] {
        Value::String(text) => vec![text.clone()],
        Value::Array(texts) => texts.iter().filter_map(|text| text.as_str().map(str::to_owned)).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => Vec::new(),
    };
    let ask = ask_of(&request, inputs.join(" "), 0);
    let (lease, model) = answering::lease(&server, &ask, &arrival).await?;
    let load = server.world.clock.since(arrival.at);
    let _permit = lease.runner.gate.acquire().await;
    let embeddings: Vec<Vec<f64>> = inputs
        .iter()
        .map(|text| {
            let length = text.len() as f64 + 1.0;
            (0_u32..8).map(|index| (length + f64::from(index)).sin() / 3.0).collect()
        })
        .collect();
    Ok(Json(json!({
        "model": model,
        "embeddings": embeddings,
        "total_duration": nanos(server.world.clock.since(arrival.at)),
        "load_duration": nanos(load),
        "prompt_eval_count": inputs.iter().map(|text| crate::runner::count_tokens(text)).sum::<u64>(),
    })))
}

/// Which of the two native answers is written.
#[derive(Clone, Copy)]
enum Shape {
    Generate,
    Chat,
}

impl Shape {
    fn text(self, text: &str) -> (&'static str, Value) {
        match self {
            Self::Generate => ("response", json!(text)),
            Self::Chat => ("message", json!({ "role": "assistant", "content": text })),
        }
    }
}

fn ask_of(request: &Value, prompt: String, images: usize) -> Ask {
    Ask {
        model: request["model"].as_str().unwrap_or_default().to_owned(),
        prompt,
        images: images as u64,
        options: request["options"].clone(),
        keep_alive: request["keep_alive"].clone(),
    }
}

async fn answer(
    server: &Arc<Server>,
    arrival: &Arrival,
    request: &Value,
    prompt: String,
    images: usize,
    shape: Shape,
) -> Result<Response, Problem> {
    let ask = ask_of(request, prompt, images);
    if ask.prompt.is_empty() {
        return load_or_unload(server, arrival, &ask, shape).await;
    }
    let mut running = answering::run(server, &ask, arrival).await?;
    let streamed = request["stream"] != false;
    if streamed {
        let first = running.generation.next().await;
        if matches!(first, Some(Piece::Broken) | None) {
            return Err(broken(server));
        }
        let lines = lines(Arc::clone(server), running, first, shape);
        let mut response = Response::new(Body::from_stream(lines));
        response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/x-ndjson"));
        return Ok(response);
    }
    let mut text = String::new();
    loop {
        match running.generation.next().await {
            Some(Piece::Text(more)) => text.push_str(&more),
            Some(Piece::Done(counts)) => {
                return Ok(Json(last_line(server, &running, counts, &text, shape)).into_response());
            }
            Some(Piece::Broken) | None => return Err(broken(server)),
        }
    }
}

/// Notes that a runner went away in the middle.
fn broken(server: &Server) -> Problem {
    server.log.error("llama_server.go:934", "llama-server completion error", &[("error", "unexpected EOF")]);
    Problem::new(StatusCode::INTERNAL_SERVER_ERROR, RUNNER_BROKE)
}

async fn load_or_unload(server: &Arc<Server>, arrival: &Arrival, ask: &Ask, shape: Shape) -> Result<Response, Problem> {
    let (key, value) = shape.text("");
    let created = moments::rfc3339_utc(server.world.clock.wall_ms());
    let (model, reason) = if ask.is_unload() {
        let stored = server
            .library
            .find(&ask.model)
            .ok_or_else(|| Problem::new(StatusCode::NOT_FOUND, format!("model '{}' not found", ask.model)))?;
        server.scheduler.expire(&stored.model.name).await;
        (stored.model.name, "unload")
    } else {
        let (_lease, model) = answering::lease(server, ask, arrival).await?;
        (model, "load")
    };
    Ok(Json(json!({
        "model": model,
        "created_at": created,
        key: value,
        "done": true,
        "done_reason": reason,
    }))
    .into_response())
}

fn lines(
    server: Arc<Server>,
    running: Running,
    first: Option<Piece>,
    shape: Shape,
) -> impl futures_util::Stream<Item = Result<Bytes, std::convert::Infallible>> {
    futures_util::stream::unfold(
        (server, running, first, false),
        move |(server, mut running, mut ready, ended)| async move {
            if ended {
                return None;
            }
            let piece = match ready.take() {
                Some(piece) => piece,
                None => running.generation.next().await?,
            };
            let (value, ended) = match piece {
                Piece::Text(text) => {
                    let (key, content) = shape.text(&text);
                    let line = json!({
                        "model": running.model,
                        "created_at": moments::rfc3339_utc(server.world.clock.wall_ms()),
                        key: content,
                        "done": false,
                    });
                    (line, false)
                }
                Piece::Done(counts) => (last_line(&server, &running, counts, "", shape), true),
                Piece::Broken => (json!({ "error": RUNNER_BROKE }), true),
            };
            let bytes = Bytes::from(format!("{value}\n"));
            Some((Ok(bytes), (server, running, None, ended)))
        },
    )
}

fn last_line(server: &Server, running: &Running, counts: Counts, text: &str, shape: Shape) -> Value {
    let (key, content) = shape.text(text);
    json!({
        "model": running.model,
        "created_at": moments::rfc3339_utc(server.world.clock.wall_ms()),
        key: content,
        "done": true,
        "done_reason": if counts.hit_limit { "length" } else { "stop" },
        "total_duration": nanos(server.world.clock.since(running.arrived)),
        "load_duration": nanos(running.load),
        "prompt_eval_count": counts.prompt_tokens,
        "prompt_eval_duration": (counts.prompt_ms * 1e6) as u64,
        "eval_count": counts.tokens,
        "eval_duration": (counts.generate_ms * 1e6) as u64,
    })
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
