//! The HTTP side of a runner. It never waits for the decode loop.

use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use futures_util::StreamExt;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio_stream::wrappers::UnboundedReceiverStream;

use super::arguments::Kind;
use super::decode::{Slot, Task};
use super::{Runner, count_tokens, output};

/// The routes of the program that is played.
pub fn router(runner: Arc<Runner>) -> Router {
    let router = Router::new().route("/health", get(health)).route("/completion", post(completion));
    let router = match runner.kind {
        Kind::LlamaServer => {
            router.route("/slots", get(slots)).route("/props", get(properties)).route("/metrics", get(metrics))
        }
        Kind::Old => router.route("/info", get(information)).route("/load", post(load)),
        Kind::Mlx => router.route("/v1/status", get(mlx_status)),
    };
    router.with_state(runner)
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

async fn slots(State(runner): State<Arc<Runner>>) -> Response {
    let state = runner.state();
    if !state.ready {
        return loading();
    }
    Json(output::slots(&state)).into_response()
}

async fn properties(State(runner): State<Arc<Runner>>) -> Response {
    if !runner.state().ready {
        return loading();
    }
    Json(output::properties(&runner)).into_response()
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
    output::metrics(&runner.state()).into_response()
}

async fn information(State(runner): State<Arc<Runner>>) -> Json<Value> {
    Json(json!([{ "id": "0", "library": "Metal", "total_memory": runner.world.marker.gpu_working_set_bytes }]))
}

async fn load(State(runner): State<Arc<Runner>>, Json(request): Json<Value>) -> Json<Value> {
    let slots = request["Parallel"].as_u64().unwrap_or(1).max(1);
    let mut state = runner.state();
    state.context = request["KvSize"].as_u64().unwrap_or(4096) / slots;
    if state.busy() == 0 {
        state.slots = (0..slots).map(|_| Slot { task: None }).collect();
    }
    Json(json!({ "success": true }))
}

async fn mlx_status(State(runner): State<Arc<Runner>>) -> Json<Value> {
    let state = runner.state();
    Json(json!({
        "Status": if state.ready { 0 } else { 2 },
        "Progress": (state.progress * 100.0) as u64,
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
    runner.state().enqueue(Task {
        id: 0,
        prompt: count_tokens(request["prompt"].as_str().unwrap_or_default()),
        taken: 0,
        processed: 0,
        decoded: 0,
        limit: limit.unwrap_or(runner.model.answer_tokens),
        limited: limit.is_some(),
        prompt_ms: 0.0,
        generate_ms: 0.0,
        events,
    });
    runner.work.notify_one();
    let stream = UnboundedReceiverStream::new(receiver)
        .map(|event| Ok::<_, std::convert::Infallible>(Bytes::from(format!("data: {event}\n\n"))));
    let mut response = Response::new(Body::from_stream(stream));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    response
}

fn loading() -> Response {
    let body = json!({ "error": { "message": "Loading model", "type": "unavailable_error", "code": 503 } });
    (StatusCode::SERVICE_UNAVAILABLE, Json(body)).into_response()
}
