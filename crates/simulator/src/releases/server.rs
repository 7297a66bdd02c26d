//! The server that stands in for GitHub: the list of releases, one release, and their files behind a redirect.

use std::io::SeekFrom;
use std::os::fd::AsFd;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result};
use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Path, Query, Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use futures_util::stream;
use ring::digest;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::fs::File;
use tokio::io::{AsyncReadExt, AsyncSeekExt};

use super::archives::{self, Asset, is_archive};
use super::flaw::Flaw;
use super::{Release, listing, published};
use crate::faults::Fault;
use crate::wire::Reply;
use crate::world::{World, moments, notes, write_whole};

/// What is sent in one go.
const PIECE_BYTES: u64 = 64 << 10;
/// Pieces that a slow download comes in, and how long it takes in the world.
const SLOW: (u64, Duration) = (120, Duration::from_secs(120));
/// Real time between the last piece and the cut of a connection.
const BEFORE_CUT: Duration = Duration::from_millis(20);
/// Questions that GitHub answers an unnamed client within an hour.
const LIMIT: u64 = 60;

struct Server {
    world: World,
    base: String,
    /// Held while archives are made, so that they are made once.
    making: Mutex<()>,
    asked: Mutex<u64>,
}

/// Runs the server on the socket that is its standard input, until a signal ends it.
pub fn run(world: World) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let ended = runtime.context("no runtime").and_then(|runtime| runtime.block_on(live(world)));
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => Reply::failed(1, format!("release-server: {error:#}")).deliver(),
    }
}

async fn live(world: World) -> Result<()> {
    let socket = std::io::stdin().as_fd().try_clone_to_owned()?;
    let listener = tokio::net::TcpListener::from_std(std::net::TcpListener::from(socket))?;
    let base = format!("http://{}", listener.local_addr()?);
    let server = Arc::new(Server { world, base, making: Mutex::new(()), asked: Mutex::new(0) });
    let api = Router::new()
        .route("/repos/ollama/ollama/releases", get(list))
        .route("/repos/ollama/ollama/releases/latest", get(latest))
        .route("/repos/ollama/ollama/releases/tags/{tag}", get(tagged))
        .layer(middleware::from_fn_with_state(Arc::clone(&server), limited));
    let router = Router::new()
        .merge(api)
        .route("/ollama/ollama/releases/download/{tag}/{name}", get(redirect))
        .route("/release-assets/{tag}/{name}", get(download))
        .with_state(server);
    axum::serve(listener, router).await?;
    Ok(())
}

type Shared = State<Arc<Server>>;

/// Counts questions as GitHub does, and refuses them while a fault says so.
async fn limited(State(server): Shared, request: Request, next: Next) -> Response {
    let now_seconds = server.world.clock.wall_ms() / 1000;
    let refusal = |status: StatusCode, words: &str| {
        let body = json!({ "message": words, "documentation_url": "https://docs.github.com/rest" });
        (status, axum::Json(body)).into_response()
    };
    let number = |headers: &mut HeaderMap, name: &'static str, number: i64| {
        headers.insert(name, HeaderValue::from(number));
    };
    if let Some(parameters) = notes::raised(&server.world, Fault::RateLimited) {
        let mut response = refusal(StatusCode::FORBIDDEN, "API rate limit exceeded for 127.0.0.1.");
        let reset = parameters["until_unix_seconds"].as_i64().unwrap_or(now_seconds);
        number(response.headers_mut(), "x-ratelimit-limit", LIMIT as i64);
        number(response.headers_mut(), "x-ratelimit-remaining", 0);
        number(response.headers_mut(), "x-ratelimit-reset", reset);
        return response;
    }
    if let Some(parameters) = notes::raised(&server.world, Fault::TooManyRequests) {
        let mut response = refusal(StatusCode::TOO_MANY_REQUESTS, "You have exceeded a secondary rate limit.");
        number(response.headers_mut(), "retry-after", parameters["seconds"].as_i64().unwrap_or(60));
        return response;
    }
    if notes::is_raised(&server.world, Fault::ProxyWanted) {
        return refusal(StatusCode::PROXY_AUTHENTICATION_REQUIRED, "Proxy Authentication Required");
    }
    if notes::is_raised(&server.world, Fault::ReleasesFail) {
        return refusal(StatusCode::BAD_GATEWAY, "Server Error");
    }
    let mut response = next.run(request).await;
    let free = response.status() == StatusCode::NOT_MODIFIED;
    let asked = {
        let mut asked = server.asked.lock().unwrap_or_else(PoisonError::into_inner);
        *asked += u64::from(!free);
        *asked
    };
    number(response.headers_mut(), "x-ratelimit-limit", LIMIT as i64);
    number(response.headers_mut(), "x-ratelimit-remaining", LIMIT.saturating_sub(asked).max(1) as i64);
    number(response.headers_mut(), "x-ratelimit-reset", now_seconds + 3600);
    response
}

#[derive(Deserialize)]
struct Page {
    per_page: Option<usize>,
    page: Option<usize>,
}

async fn list(State(server): Shared, Query(page): Query<Page>, headers: HeaderMap) -> Response {
    let per_page = page.per_page.unwrap_or(30).clamp(1, 100);
    let before = (page.page.unwrap_or(1).max(1) - 1).saturating_mul(per_page);
    let told = server.aside(listing::all).await;
    answer(told.map(|all| Some(all.into_iter().skip(before).take(per_page).collect::<Value>())), &headers)
}

async fn latest(State(server): Shared, headers: HeaderMap) -> Response {
    let told =
        server.aside(|world, base| super::newest(world).map(|release| listing::one(world, &release, base)).transpose());
    answer(told.await, &headers)
}

async fn tagged(State(server): Shared, Path(tag): Path<String>, headers: HeaderMap) -> Response {
    let told = server
        .aside(move |world, base| find(world, &tag).map(|release| listing::one(world, &release, base)).transpose());
    answer(told.await, &headers)
}

fn find(world: &World, tag: &str) -> Option<Release> {
    published(world).into_iter().find(|release| release.tag() == tag)
}

impl Server {
    /// Does what takes long beside the requests of others.
    async fn aside<T: Send + 'static>(
        self: Arc<Self>,
        work: impl FnOnce(&World, &str) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let work = move || {
            let _making = self.making.lock().unwrap_or_else(PoisonError::into_inner);
            work(&self.world, &self.base)
        };
        tokio::task::spawn_blocking(work).await.context("it was not carried out")?
    }
}

/// A body of JSON with its state, or 304 for who has it, or why there is none.
fn answer(told: Result<Option<Value>>, headers: &HeaderMap) -> Response {
    let value = match told {
        Ok(Some(value)) => value,
        Ok(None) => return not_found(),
        Err(error) => return (StatusCode::INTERNAL_SERVER_ERROR, format!("{error:#}\n")).into_response(),
    };
    let body = value.to_string();
    let hash = digest::digest(&digest::SHA256, body.as_bytes());
    let hex: String = hash.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    let etag = format!("W/\"{hex}\"");
    let known = headers.get(header::IF_NONE_MATCH).and_then(|value| value.to_str().ok());
    if known == Some(etag.as_str()) {
        return (StatusCode::NOT_MODIFIED, [(header::ETAG, etag)]).into_response();
    }
    let kind = "application/json; charset=utf-8".to_owned();
    ([(header::CONTENT_TYPE, kind), (header::ETAG, etag)], body).into_response()
}

fn not_found() -> Response {
    let body = json!({ "message": "Not Found", "documentation_url": "https://docs.github.com/rest", "status": "404" });
    (StatusCode::NOT_FOUND, axum::Json(body)).into_response()
}

/// GitHub keeps its files elsewhere, behind an address that is signed and good for some minutes.
async fn redirect(State(server): Shared, Path((tag, name)): Path<(String, String)>) -> Response {
    match wanted(&server, &tag, &name).await {
        Ok(Some(_)) => {
            let expires = moments::rfc3339_utc(server.world.clock.wall_ms() + 3_600_000);
            let to = format!("{}/release-assets/{tag}/{name}?sp=r&se={expires}&sig=c2ltdWxhdGVk", server.base);
            (StatusCode::FOUND, [(header::LOCATION, to)]).into_response()
        }
        Ok(None) => not_found(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{error:#}\n")).into_response(),
    }
}

async fn wanted(server: &Arc<Server>, tag: &str, name: &str) -> Result<Option<(Release, Asset)>> {
    let (tag, name) = (tag.to_owned(), name.to_owned());
    let work = move |world: &World, _: &str| {
        let Some(release) = find(world, &tag) else { return Ok(None) };
        let asset = archives::assets(world, &release)?.into_iter().find(|asset| asset.name == name);
        Ok(asset.map(|asset| (release, asset)))
    };
    Arc::clone(server).aside(work).await
}

async fn download(State(server): Shared, Path((tag, name)): Path<(String, String)>, headers: HeaderMap) -> Response {
    let sent = async {
        let Some((release, asset)) = wanted(&server, &tag, &name).await? else { return Ok(not_found()) };
        send(&server, &release, &asset, &headers).await
    };
    sent.await.unwrap_or_else(|error: anyhow::Error| {
        (StatusCode::INTERNAL_SERVER_ERROR, format!("{error:#}\n")).into_response()
    })
}

async fn send(server: &Arc<Server>, release: &Release, asset: &Asset, headers: &HeaderMap) -> Result<Response> {
    let size = asset.size_bytes;
    let etag = format!("\"0x{}\"", asset.sha256[..16].to_uppercase());
    let text = |name: header::HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
    let same = text(header::IF_RANGE).is_none_or(|state| state == etag);
    let range = text(header::RANGE).filter(|_| same).and_then(|range| parse_range(range, size));
    let mut response = Response::new(Body::empty());
    let mut put = |name: header::HeaderName, value: String| -> Result<()> {
        response.headers_mut().insert(name, HeaderValue::from_str(&value)?);
        Ok(())
    };
    put(header::ETAG, etag)?;
    put(header::ACCEPT_RANGES, "bytes".to_owned())?;
    put(header::CONTENT_TYPE, "application/octet-stream".to_owned())?;
    put(header::CONTENT_DISPOSITION, format!("attachment; filename={}", asset.name))?;
    let (from, end) = match range {
        None => (0, size),
        Some(Range::Part { from, end }) => {
            put(header::CONTENT_RANGE, format!("bytes {from}-{}/{size}", end - 1))?;
            (from, end)
        }
        Some(Range::Outside) => {
            put(header::CONTENT_RANGE, format!("bytes */{size}"))?;
            *response.status_mut() = StatusCode::RANGE_NOT_SATISFIABLE;
            return Ok(response);
        }
    };
    put(header::CONTENT_LENGTH, (end - from).to_string())?;
    if range.is_some() {
        *response.status_mut() = StatusCode::PARTIAL_CONTENT;
    }
    let flawed = is_archive(&asset.name);
    let cut = flawed && (release.has(Flaw::Truncated) || is_first_attempt(&server.world, release));
    let pieces = Pieces {
        file: open_at(server, release, asset, from).await?,
        at: from,
        end,
        cut_at: cut.then_some(size / 2),
        pace: (flawed && release.has(Flaw::Slow)).then(|| (size.div_ceil(SLOW.0), Arc::clone(server))),
    };
    *response.body_mut() = Body::from_stream(stream::unfold(Some(pieces), next_piece));
    Ok(response)
}

/// Whether this is the download of a release whose first one is cut.
fn is_first_attempt(world: &World, release: &Release) -> bool {
    let mark = archives::folder(world, release).join("was-cut");
    release.has(Flaw::CutOnce) && !mark.exists() && write_whole(&mark, b"").is_ok()
}

async fn open_at(server: &Server, release: &Release, asset: &Asset, from: u64) -> Result<File> {
    let path = archives::folder(&server.world, release).join(&asset.name);
    let mut file = File::open(&path).await.with_context(|| format!("{} cannot be read", path.display()))?;
    file.seek(SeekFrom::Start(from)).await?;
    Ok(file)
}

/// What is still to be sent of a file.
struct Pieces {
    file: File,
    at: u64,
    end: u64,
    /// Where the connection breaks.
    cut_at: Option<u64>,
    /// How much is sent a second of the world, if it is slow.
    pace: Option<(u64, Arc<Server>)>,
}

async fn next_piece(pieces: Option<Pieces>) -> Option<(std::io::Result<Bytes>, Option<Pieces>)> {
    let mut pieces = pieces?;
    let end = pieces.cut_at.unwrap_or(pieces.end).min(pieces.end);
    if pieces.at >= end {
        if end == pieces.end {
            return None;
        }
        // What was sent before goes out first.
        tokio::time::sleep(BEFORE_CUT).await;
        return Some((Err(std::io::Error::other("the connection is cut here")), None));
    }
    let mut most = PIECE_BYTES;
    if let Some((bytes, server)) = &pieces.pace {
        server.world.clock.wait(SLOW.1 / u32::try_from(SLOW.0).unwrap_or(1)).await;
        most = *bytes;
    }
    let mut bytes = vec![0; usize::try_from(most.min(end - pieces.at)).unwrap_or(0)];
    match pieces.file.read_exact(&mut bytes).await {
        Ok(read) => {
            pieces.at += read as u64;
            Some((Ok(Bytes::from(bytes)), Some(pieces)))
        }
        Err(error) => Some((Err(error), None)),
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Range {
    Part { from: u64, end: u64 },
    Outside,
}

/// `bytes=A-`, `bytes=A-B` or `bytes=-N`; anything else counts as not asked for (RFC 9110 §14.2).
fn parse_range(text: &str, size: u64) -> Option<Range> {
    let (from, last) = text.strip_prefix("bytes=")?.split_once('-')?;
    let (from, end) = match (from, last) {
        ("", suffix) => (size.saturating_sub(suffix.parse().ok()?), size),
        (from, "") => (from.parse().ok()?, size),
        (from, last) => (from.parse().ok()?, last.parse::<u64>().ok()?.checked_add(1)?.min(size)),
    };
    Some(if from < end { Range::Part { from, end } } else { Range::Outside })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_read_as_http_has_them() {
        let part = |from, end| Some(Range::Part { from, end });
        assert_eq!(parse_range("bytes=10-", 100), part(10, 100));
        assert_eq!(parse_range("bytes=10-19", 100), part(10, 20));
        assert_eq!(parse_range("bytes=90-900", 100), part(90, 100));
        assert_eq!(parse_range("bytes=-5", 100), part(95, 100));
        assert_eq!(parse_range("bytes=100-", 100), Some(Range::Outside));
        assert_eq!(parse_range("lines=1-", 100), None);
        assert_eq!(parse_range("bytes=x-", 100), None);
    }
}
