//! The control socket: its paths, described in `docs/api.md`.

use crate::history::{History, past};
use crate::supervision::Command;
use axum::Router;
use axum::body::Body;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::response::sse::{self, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use futures_util::{Stream, StreamExt};
use http::HeaderValue;
use http::header::CONTENT_TYPE;
use serde::{Deserialize, Serialize};
use stablehand_engine::time::Wall;
use stablehand_platform::clock::Clock;
use stablehand_platform::control_socket;
use stablehand_protocol::{Failure, Request, Snapshot, VERSION_HEADER};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::UnixListener;
use tokio::sync::{mpsc, watch};
use tokio_stream::wrappers::{ReceiverStream, WatchStream};

/// The latest snapshot; `None` until the first look has come back.
pub type Latest = watch::Receiver<Option<Arc<Snapshot>>>;

/// How long a single question waits for a picture that is made for it; the last one is at most 30 s old.
const PICTURE: Duration = Duration::from_millis(500);
/// The most points that a chart is asked for.
const MOST_POINTS: u32 = 1_000;
/// The largest request that is read.
const REQUEST_BYTES: usize = 256 << 10;

/// What the paths of the socket reach.
#[derive(Clone, Debug)]
pub struct Reach {
    /// Requests go here.
    pub commands: mpsc::Sender<Command>,
    /// The latest snapshot.
    pub latest: Latest,
    /// How many follow the snapshots.
    pub lookers: watch::Sender<u32>,
    /// For the metrics.
    pub history: History,
    /// When the daemon started.
    pub started: Wall,
    /// The clock of the machine.
    pub clock: Clock,
}

/// Somebody follows the snapshots for as long as this lives.
struct Looker(watch::Sender<u32>);

impl Looker {
    fn new(lookers: &watch::Sender<u32>) -> Self {
        lookers.send_modify(|count| *count += 1);
        Self(lookers.clone())
    }
}

impl Drop for Looker {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count = count.saturating_sub(1));
    }
}

/// Serves the control socket until it is aborted.
pub async fn serve(listener: UnixListener, uid: u32, reach: Reach) {
    let router = Router::new()
        .route("/v1/snapshot", get(snapshot))
        .route("/v1/events", get(events))
        .route("/v1/request", post(request))
        .route("/v1/history", get(history))
        .route("/metrics", get(metrics))
        .fallback(unknown_path)
        .method_not_allowed_fallback(wrong_method)
        .with_state(reach)
        .layer(axum::middleware::map_response(with_version));
    control_socket::serve(listener, uid, router).await;
}

async fn with_version(mut response: Response) -> Response {
    response.headers_mut().insert(VERSION_HEADER, HeaderValue::from_static(env!("CARGO_PKG_VERSION")));
    response
}

/// A picture made for this question. Nobody looks often while nobody looks on, so the last one may show what was over
/// long ago.
async fn picture<T: Clone>(mut latest: watch::Receiver<T>, lookers: &watch::Sender<u32>) -> T {
    latest.mark_unchanged();
    let looks_on = Looker::new(lookers);
    // Without one in time, or where nothing has changed, the last one is the best there is.
    let _ = tokio::time::timeout(PICTURE, latest.changed()).await;
    drop(looks_on);
    latest.borrow().clone()
}

async fn snapshot(State(reach): State<Reach>) -> Response {
    match picture(reach.latest.clone(), &reach.lookers).await {
        Some(snapshot) => axum::Json(&*snapshot).into_response(),
        None => refuse(
            StatusCode::SERVICE_UNAVAILABLE,
            &Failure::new("still-looking", "the first look at this machine is not back yet", "ask again in a moment"),
        ),
    }
}

/// How closely somebody follows the snapshots.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Pace {
    /// Somebody looks on.
    #[default]
    Live,
    /// Nobody does for the moment: what is known anyway is enough.
    AtRest,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Following {
    #[serde(default)]
    pace: Pace,
}

async fn events(State(reach): State<Reach>, following: Result<Query<Following>, QueryRejection>) -> Response {
    let Ok(Query(Following { pace })) = following else {
        return refuse(
            StatusCode::BAD_REQUEST,
            &Failure::new(
                "bad-request",
                "the snapshots are followed with pace, live or at-rest, or without anything",
                "for example /v1/events?pace=at-rest",
            ),
        );
    };
    Sse::new(follow(reach.latest, &reach.lookers, pace)).keep_alive(KeepAlive::default()).into_response()
}

fn follow<T>(
    latest: watch::Receiver<Option<Arc<T>>>,
    lookers: &watch::Sender<u32>,
    pace: Pace,
) -> impl Stream<Item = Result<sse::Event, Infallible>> + use<T>
where
    T: Serialize + Send + Sync + 'static,
{
    let looker = match pace {
        Pace::Live => Some(Arc::new(Looker::new(lookers))),
        Pace::AtRest => None,
    };
    WatchStream::new(latest).filter_map(move |latest| {
        let _looks_on = looker.clone();
        async move {
            let data = serde_json::to_string(&*latest?).ok()?;
            Some(Ok(sse::Event::default().event("snapshot").data(data)))
        }
    })
}

/// How far back and into how many points; see [`stablehand_protocol::Past`].
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Span {
    since_s: u64,
    points: u32,
}

async fn history(State(reach): State<Reach>, span: Result<Query<Span>, QueryRejection>) -> Response {
    let span = match span {
        Ok(Query(span)) if (1..=MOST_POINTS).contains(&span.points) && span.since_s > 0 => span,
        Ok(_) | Err(_) => {
            return refuse(
                StatusCode::BAD_REQUEST,
                &Failure::new(
                    "bad-request",
                    "the history is asked for with since_s, in seconds, and points, 1 to 1000",
                    "for example /v1/history?since_s=3600&points=120",
                ),
            );
        }
    };
    let now = reach.clock.now().wall;
    match past::past(&reach.history, now, Duration::from_secs(span.since_s), span.points).await {
        Ok(past) => axum::Json(past).into_response(),
        Err(error) => refuse(
            StatusCode::SERVICE_UNAVAILABLE,
            &Failure::new("no-history", format!("there is no history to show: {error}"), "see `stablehand doctor`"),
        ),
    }
}

async fn metrics(State(reach): State<Reach>) -> Response {
    match picture(reach.latest.clone(), &reach.lookers).await {
        Some(snapshot) => {
            let text = crate::metrics::exposition(&crate::gauges::of(&snapshot, &reach.history, reach.started));
            ([(CONTENT_TYPE, crate::metrics::CONTENT_TYPE)], text).into_response()
        }
        None => refuse(
            StatusCode::SERVICE_UNAVAILABLE,
            &Failure::new("still-looking", "the first look at this machine is not back yet", "ask again in a moment"),
        ),
    }
}

async fn request(State(reach): State<Reach>, body: Body) -> Response {
    let Ok(body) = axum::body::to_bytes(body, REQUEST_BYTES).await else {
        return refuse(
            StatusCode::PAYLOAD_TOO_LARGE,
            &Failure::new("request-too-large", "the request is too large; nothing was changed", "see docs/api.md"),
        );
    };
    let request: Request = match serde_json::from_slice(&body) {
        Ok(request) => request,
        Err(error) => {
            return refuse(
                StatusCode::BAD_REQUEST,
                &Failure::new(
                    "bad-request",
                    format!("the request is not understood: {error}; nothing was changed"),
                    "see docs/api.md, and that client and daemon are of the same version",
                ),
            );
        }
    };
    let (events, lines) = mpsc::channel(64);
    if reach.commands.send(Command { request, events }).await.is_err() {
        return refuse(
            StatusCode::SERVICE_UNAVAILABLE,
            &Failure::new("daemon-ending", "the daemon is ending; nothing was changed", "start it again"),
        );
    }
    let lines = ReceiverStream::new(lines).map(|event| {
        let mut line = serde_json::to_vec(&event).unwrap_or_default();
        line.push(b'\n');
        Ok::<_, Infallible>(line)
    });
    ([(CONTENT_TYPE, "application/x-ndjson")], Body::from_stream(lines)).into_response()
}

async fn wrong_method() -> Response {
    refuse(
        StatusCode::METHOD_NOT_ALLOWED,
        &Failure::new("wrong-method", "this path does not take that method; nothing was changed", "see docs/api.md"),
    )
}

async fn unknown_path() -> Response {
    refuse(
        StatusCode::NOT_FOUND,
        &Failure::new(
            "no-such-path",
            "there is no such path",
            "the paths are /v1/snapshot, /v1/request, /v1/events, /v1/history, /metrics",
        ),
    )
}

fn refuse(status: StatusCode, failure: &Failure) -> Response {
    (status, axum::Json(failure)).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn whoever_asks_once_gets_a_picture_made_for_it() {
        let (pictures, latest) = watch::channel("of long ago");
        let (lookers, mut looking) = watch::channel(0);
        let painter = tokio::spawn(async move {
            looking.wait_for(|count| *count > 0).await.unwrap();
            pictures.send_replace("of now");
            looking.wait_for(|count| *count == 0).await.unwrap();
        });
        assert_eq!(picture(latest, &lookers).await, "of now");
        painter.await.unwrap();
    }

    #[tokio::test]
    async fn whoever_follows_at_rest_hears_of_every_change_and_is_nobody_who_looks() {
        let (pictures, latest) = watch::channel(Some(Arc::new("first")));
        let (lookers, looking) = watch::channel(0);
        let live = follow(latest.clone(), &lookers, Pace::Live);
        assert_eq!(*looking.borrow(), 1);
        drop(live);
        assert_eq!(*looking.borrow(), 0);
        let mut at_rest = std::pin::pin!(follow(latest, &lookers, Pace::AtRest));
        assert!(at_rest.next().await.is_some());
        pictures.send_replace(Some(Arc::new("second")));
        assert!(at_rest.next().await.is_some());
        assert_eq!(*looking.borrow(), 0);
    }

    #[test]
    fn a_pace_is_one_of_two_words() {
        let pace = |query: &str| Query::<Following>::try_from_uri(&query.parse().unwrap()).map(|query| query.pace).ok();
        assert_eq!(pace("/v1/events"), Some(Pace::Live));
        assert_eq!(pace("/v1/events?pace=live"), Some(Pace::Live));
        assert_eq!(pace("/v1/events?pace=at-rest"), Some(Pace::AtRest));
        assert_eq!(pace("/v1/events?pace=often"), None);
        assert_eq!(pace("/v1/events?speed=at-rest"), None);
    }
}
