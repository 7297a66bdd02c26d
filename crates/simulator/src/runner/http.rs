//! The HTTP side of a runner. It never waits for the decode loop, except for
//! `/slots` and `/metrics` of versions that ask it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use futures_util::StreamExt;
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot};
use tokio_stream::wrappers::UnboundedReceiverStream;

use super::arguments::Kind;
use super::slots::Task;
use super::{Runner, count_tokens, report, say_info};
use crate::world::moments;

/// Real time between two looks of a dead HTTP side at whether it still is.
const GLANCE: Duration = Duration::from_millis(20);

/// The routes of the program that is played.
pub fn router(runner: Arc<Runner>) -> Router {
    let router = Router::new();
    let router = match runner.kind {
        Kind::LlamaServer => router
            .route("/health", get(health))
            .route("/completion", post(completion))
            .route("/slots", get(slots))
            .route("/props", get(properties))
            .route("/metrics", get(metrics)),
        Kind::Old => router
            .route("/health", get(health))
            .route("/completion", post(completion))
            .route("/info", get(information))
            .route("/load", post(load)),
        Kind::Mlx => router
            .route("/health", get(|| async { Redirect::permanent("/v1/status") }))
            .route("/completion", post(|| async { Redirect::permanent("/v1/completions") }))
            .route("/v1/status", get(mlx_status))
            .route("/v1/completions", post(completion)),
    };
    router.layer(middleware::from_fn_with_state(Arc::clone(&runner), observe)).with_state(runner)
}

/// Nothing is answered while the HTTP side is dead. The MLX engine writes a
/// line about each answer.
async fn observe(State(runner): State<Arc<Runner>>, request: Request, next: Next) -> Response {
    let (method, path) = (request.method().to_string(), request.uri().path().to_owned());
    let arrived = Instant::now();
    while_http_lives(&runner).await;
    let response = next.run(request).await;
    while_http_lives(&runner).await;
    let status = response.status();
    if runner.kind != Kind::Mlx || status.is_redirection() {
        return response;
    }
    let (parts, body) = response.into_parts();
    let line = Served { runner, method, path, arrived, status };
    let stream = body.into_data_stream().inspect(move |_| {
        // Kept until the body is dropped.
        let _ = &line;
    });
    Response::from_parts(parts, Body::from_stream(stream))
}

/// Says that a request was served when its answer has ended.
struct Served {
    runner: Arc<Runner>,
    method: String,
    path: String,
    arrived: Instant,
    status: StatusCode,
}

impl Drop for Served {
    fn drop(&mut self) {
        let took = moments::go_duration(self.runner.world.clock.since(self.arrived));
        let status = self.status.to_string();
        let fields = [("method", &*self.method), ("path", &*self.path), ("took", &*took), ("status", &*status)];
        say_info(&self.runner, "server.go:215", "ServeHTTP", &fields);
    }
}

async fn while_http_lives(runner: &Runner) {
    while runner.is_http_dead() {
        tokio::time::sleep(GLANCE).await;
    }
}

async fn health(State(runner): State<Arc<Runner>>) -> Response {
    let state = runner.state();
    match runner.kind {
        Kind::LlamaServer if !state.ready => loading(),
        Kind::LlamaServer => Json(json!({ "status": "ok" })).into_response(),
        Kind::Old | Kind::Mlx => {
            let status = if state.ready { 0 } else { 2 };
            Json(json!({ "status": status, "progress": state.progress })).into_response()
        }
    }
}

/// Waits until the decode loop has time, where that is how the version works.
/// False if the model is not loaded.
async fn attention(runner: &Runner) -> bool {
    if !runner.state().ready {
        return false;
    }
    if runner.asks_the_loop {
        let (sender, answer) = oneshot::channel();
        runner.state().questions.push(sender);
        runner.work.notify_one();
        return answer.await.is_ok();
    }
    true
}

async fn slots(State(runner): State<Arc<Runner>>) -> Response {
    if !attention(&runner).await {
        return loading();
    }
    Json(report::slots(&runner.state())).into_response()
}

async fn properties(State(runner): State<Arc<Runner>>) -> Response {
    if !runner.state().ready {
        return loading();
    }
    Json(report::properties(&runner)).into_response()
}

async fn metrics(State(runner): State<Arc<Runner>>) -> Response {
    if !runner.metrics {
        let body = json!({ "error": {
            "code": 501,
            "message": "This server does not support metrics endpoint. Start it with `--metrics`",
            "type": "not_supported_error",
        } });
        return (StatusCode::NOT_IMPLEMENTED, Json(body)).into_response();
    }
    if !attention(&runner).await {
        return loading();
    }
    report::metrics(&runner.state()).into_response()
}

async fn information(State(runner): State<Arc<Runner>>) -> Json<Value> {
    Json(json!([{ "id": "0", "library": "Metal", "total_memory": runner.world.marker.gpu_working_set_bytes }]))
}

async fn load(State(runner): State<Arc<Runner>>, Json(request): Json<Value>) -> Json<Value> {
    let slots = request["Parallel"].as_u64().unwrap_or(1).max(1);
    runner.resize(request["KvSize"].as_u64().unwrap_or(4096) / slots, slots);
    Json(json!({ "success": true }))
}

async fn mlx_status(State(runner): State<Arc<Runner>>) -> Json<Value> {
    let state = runner.state();
    Json(json!({
        "Status": 0,
        "Progress": 100,
        "ContextLength": state.context,
        "Memory": runner.model.loaded_bytes(state.context, 1),
    }))
}

async fn completion(State(runner): State<Arc<Runner>>, body: Bytes) -> Response {
    let Ok(request) = serde_json::from_slice::<Value>(&body) else {
        return StatusCode::BAD_REQUEST.into_response();
    };
    if !runner.state().ready {
        return loading();
    }
    let predict = request["n_predict"].as_i64().unwrap_or(-1);
    let limit = u64::try_from(predict).ok().filter(|limit| *limit > 0);
    let (events, receiver) = mpsc::unbounded_channel();
    let prompt = count_tokens(request["prompt"].as_str().unwrap_or_default());
    runner.state().enqueue(Task {
        images: request["images"].as_u64().unwrap_or(0),
        limited: limit.is_some(),
        ..Task::new(prompt, limit.unwrap_or(runner.model.answer_tokens), events)
    });
    runner.work.notify_one();
    let stream = UnboundedReceiverStream::new(receiver).then(move |event| {
        let runner = Arc::clone(&runner);
        async move {
            while_http_lives(&runner).await;
            Ok::<_, std::convert::Infallible>(Bytes::from(format!("data: {event}\n\n")))
        }
    });
    let mut response = Response::new(Body::from_stream(stream));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    response
}

fn loading() -> Response {
    let body = json!({ "error": { "message": "Loading model", "type": "unavailable_error", "code": 503 } });
    (StatusCode::SERVICE_UNAVAILABLE, Json(body)).into_response()
}
