//! The gateway's control socket: its paths, described in `docs/api.md`.

use crate::configuration::full_name;
use crate::gateway::Shared;
use crate::listening::Phase;
use crate::metrics;
use crate::queue::View;
use axum::Router;
use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderValue, StatusCode};
use axum::response::sse::{self, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get, post, put};
use futures_util::{Stream, StreamExt};
use serde::de::DeserializeOwned;
use stablehand_engine::admission::{Costs, Event, Lane, Scope, TicketId, Why};
use stablehand_platform::control_socket;
use stablehand_protocol::queue::{Done, Hold, ModelCosts, MoveTo, Upstream, UpstreamModel};
use stablehand_protocol::{Failure, VERSION_HEADER};
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::UnixListener;

/// The queue is told at most this often to somebody who follows it.
const FOLLOW_GAP: Duration = Duration::from_millis(250);
/// It is told again after this, because waiting times grow.
const FOLLOW_AGAIN: Duration = Duration::from_secs(1);
/// The longest time that a daemon may hold requests for without saying.
const HOLD: Duration = Duration::from_secs(10 * 60);

type Answered = Result<Response, Refused>;

/// A status and what a person is told.
struct Refused(StatusCode, Failure);

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        (self.0, axum::Json(self.1)).into_response()
    }
}

/// Serves the socket until it is aborted.
pub async fn serve(listener: UnixListener, uid: u32, shared: Arc<Shared>) {
    let router = Router::new()
        .route("/v1/queue", get(queue))
        .route("/v1/queue/events", get(events))
        .route("/v1/queue/{id}", delete(drop_request))
        .route("/v1/queue/{id}/lane", post(move_request))
        .route("/v1/pause", post(pause))
        .route("/v1/resume", post(resume))
        .route("/v1/hold", post(hold))
        .route("/v1/release", post(release))
        .route("/v1/leave", post(leave))
        .route("/v1/upstream", put(upstream))
        .route("/v1/costs", get(costs))
        .route("/metrics", get(metrics_page))
        .fallback(unknown_path)
        .method_not_allowed_fallback(wrong_method)
        .with_state(shared)
        .layer(axum::middleware::map_response(with_version));
    control_socket::serve(listener, uid, router).await;
}

async fn with_version(mut response: Response) -> Response {
    response.headers_mut().insert(VERSION_HEADER, HeaderValue::from_static(env!("CARGO_PKG_VERSION")));
    response
}

async fn queue(State(shared): State<Arc<Shared>>) -> Response {
    axum::Json(shared.view()).into_response()
}

async fn events(State(shared): State<Arc<Shared>>) -> Response {
    Sse::new(follow(shared)).keep_alive(KeepAlive::default()).into_response()
}

fn follow(shared: Arc<Shared>) -> impl Stream<Item = Result<sse::Event, Infallible>> {
    let changes = shared.front.queue.changes();
    futures_util::stream::unfold((shared, changes, true), |(shared, mut changes, first)| async move {
        if !first {
            tokio::time::sleep(FOLLOW_GAP).await;
            let left = FOLLOW_AGAIN.saturating_sub(FOLLOW_GAP);
            let _ = tokio::time::timeout(left, changes.changed()).await;
        }
        changes.mark_seen();
        let view = shared.view();
        Some((view, (shared, changes, false)))
    })
    .filter_map(|view| async move {
        let data = serde_json::to_string(&view).ok()?;
        Some(Ok(sse::Event::default().event("queue").data(data)))
    })
}

async fn drop_request(State(shared): State<Arc<Shared>>, Path(id): Path<String>) -> Answered {
    let id = ticket(&id)?;
    if shared.front.queue.drop_request(id).await {
        Ok(done(format!("request {} was taken out of the queue", id.0)))
    } else {
        Err(not_waiting(id))
    }
}

async fn move_request(State(shared): State<Arc<Shared>>, Path(id): Path<String>, body: Bytes) -> Answered {
    let id = ticket(&id)?;
    let MoveTo { lane: word } = read(&body)?;
    let lane = Lane::from_word(&word).ok_or_else(|| {
        let words: Vec<_> = Lane::ALL.iter().map(|lane| lane.word()).collect();
        bad_request(format!("there is no lane «{word}»; the lanes are {}", words.join(", ")))
    })?;
    if shared.front.queue.move_request(id, lane).await {
        Ok(done(format!("request {} waits in the lane {word} now", id.0)))
    } else {
        Err(not_waiting(id))
    }
}

async fn pause(State(shared): State<Arc<Shared>>) -> Response {
    shared.front.queue.tell(Event::Hold { why: Why::Paused, scope: Scope::All, until: None });
    done("the queue is paused: what runs goes on, nothing else is sent".to_owned())
}

async fn resume(State(shared): State<Arc<Shared>>) -> Response {
    shared.front.queue.tell(Event::Release { why: Why::Paused, scope: Scope::All });
    done("the queue goes on".to_owned())
}

async fn hold(State(shared): State<Arc<Shared>>, body: Bytes) -> Answered {
    let asked: Hold = read(&body)?;
    let why = reason(&asked.why)?;
    let at_most = shared.front.configuration.borrow().bounds.hold;
    let span = asked.for_s.map_or(HOLD, Duration::from_secs).min(at_most);
    let until = Some(shared.front.clock.awake() + span);
    shared.front.queue.tell(Event::Hold { why, scope: scope(&asked), until });
    Ok(done(format!("requests are held for at most {} s", span.as_secs())))
}

async fn release(State(shared): State<Arc<Shared>>, body: Bytes) -> Answered {
    let asked: Hold = read(&body)?;
    shared.front.queue.tell(Event::Release { why: reason(&asked.why)?, scope: scope(&asked) });
    Ok(done("requests go on".to_owned()))
}

fn reason(word: &str) -> Result<Why, Refused> {
    [Why::Restart, Why::Upgrade, Why::Recovery].into_iter().find(|why| why.word() == word).ok_or_else(|| {
        bad_request(format!("«{word}» is no reason for a hold; there are restart, upgrade and recovery"))
    })
}

fn scope(hold: &Hold) -> Scope {
    hold.model.as_deref().map_or(Scope::All, |model| Scope::Model(Arc::from(full_name(model))))
}

async fn leave(State(shared): State<Arc<Shared>>) -> Response {
    shared.phases.send_if_modified(|phase| {
        let opens = *phase == Phase::Open;
        if opens {
            *phase = Phase::Leaving;
        }
        opens
    });
    // The addresses are free when this is answered, so that somebody else can take them.
    shared.closed().await;
    shared.has_left();
    done("the gateway listens no more; it ends when everybody in it was served".to_owned())
}

async fn upstream(State(shared): State<Arc<Shared>>, body: Bytes) -> Answered {
    let told: Upstream = read(&body)?;
    if let Some(address) = &told.address {
        let address: SocketAddr = address
            .parse()
            .ok()
            .filter(|address: &SocketAddr| address.ip().is_loopback())
            .ok_or_else(|| bad_request(format!("«{address}» is no address of loopback; nothing was changed")))?;
        // One that has left its addresses finds Ollama there.
        if shared.is_own(address) {
            return Err(bad_request(format!("{address} is the gateway's own address; nothing was changed")));
        }
        shared.front.upstream.moved(address);
    }
    let queue = &shared.front.queue;
    let asked = shared.front.clock.awake();
    shared.told.note(asked);
    if shared.told.take(&told) {
        shared.apply();
    }
    if let Some(loaded) = &told.loaded {
        let models = loaded.iter().map(|model| Arc::from(full_name(model))).collect();
        queue.tell(Event::Loaded { models, asked });
    }
    for UpstreamModel { model, slots, around_busy, costs } in told.models {
        let model: Arc<str> = Arc::from(full_name(&model));
        queue.tell(Event::Slots { model: model.clone(), slots });
        queue.tell(Event::Around { model: model.clone(), busy: around_busy });
        if let Some(costs) = costs {
            let costs = Costs {
                service: costs.service_ms.map(Duration::from_millis),
                load: costs.load_ms.map(Duration::from_millis),
            };
            queue.tell(Event::Learnt { model, costs });
        }
    }
    Ok(done("noted".to_owned()))
}

async fn costs(State(shared): State<Arc<Shared>>) -> Response {
    let costs = shared.front.queue.costs();
    let costs: BTreeMap<String, ModelCosts> = costs
        .into_iter()
        .map(|(model, costs)| {
            let costs = ModelCosts {
                service_ms: costs.service.map(crate::gateway::milliseconds),
                load_ms: costs.load.map(crate::gateway::milliseconds),
            };
            (model.to_string(), costs)
        })
        .collect();
    axum::Json(costs).into_response()
}

async fn metrics_page(State(shared): State<Arc<Shared>>) -> Response {
    let queue = &shared.front.queue;
    let View { snapshot, counts, paths: _ } = queue.view();
    let text = metrics::exposition(&snapshot, &counts, shared.front.room.used_bytes(), shared.connections());
    ([(CONTENT_TYPE, metrics::CONTENT_TYPE)], text).into_response()
}

fn ticket(text: &str) -> Result<TicketId, Refused> {
    text.parse().map(TicketId).map_err(|_| bad_request(format!("«{text}» is no number of a request")))
}

fn read<T: DeserializeOwned>(body: &[u8]) -> Result<T, Refused> {
    serde_json::from_slice(body)
        .map_err(|error| bad_request(format!("the request is not understood: {error}; nothing was changed")))
}

fn done(words: String) -> Response {
    axum::Json(Done { words }).into_response()
}

fn bad_request(message: String) -> Refused {
    Refused(StatusCode::BAD_REQUEST, Failure::new("bad-request", message, "see docs/api.md"))
}

fn not_waiting(id: TicketId) -> Refused {
    let message = format!("no request {} waits; nothing was changed", id.0);
    Refused(StatusCode::NOT_FOUND, Failure::new("not-waiting", message, "`stablehand queue` lists who waits"))
}

async fn wrong_method() -> Refused {
    let message = "this path does not take that method; nothing was changed";
    Refused(StatusCode::METHOD_NOT_ALLOWED, Failure::new("wrong-method", message, "see docs/api.md"))
}

async fn unknown_path() -> Refused {
    Refused(StatusCode::NOT_FOUND, Failure::new("no-such-path", "there is no such path", "see docs/api.md"))
}
