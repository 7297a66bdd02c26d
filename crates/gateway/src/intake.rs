//! The body of a request that may wait: read to its end within bounds, and looked through as it comes.

use crate::answer::Refusal;
use crate::configuration::Bounds;
use crate::form;
use crate::route::Written;
use crate::scan::{Bad, Found, Scanner};
use crate::sending::Kept;
use futures_util::FutureExt;
use http::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE};
use http::{HeaderMap, StatusCode};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The longest time that a body may take in all.
const WHOLE: Duration = Duration::from_secs(15 * 60);
/// When to try again while the bodies of others fill the room.
const FULL_RETRY_S: u64 = 5;

/// The memory for all bodies that wait.
#[derive(Clone, Debug, Default)]
pub struct Room {
    used_bytes: Arc<AtomicU64>,
}

/// A part of it, given back when dropped.
#[derive(Debug)]
pub struct Share {
    room: Room,
    bytes: u64,
}

impl Room {
    /// An empty share.
    pub fn share(&self) -> Share {
        Share { room: self.clone(), bytes: 0 }
    }

    /// What is in use.
    pub fn used_bytes(&self) -> u64 {
        self.used_bytes.load(Ordering::Relaxed)
    }
}

impl Share {
    /// Takes more of the room; says whether there was that much.
    fn take(&mut self, bytes: u64, at_most: u64) -> bool {
        let before = self.room.used_bytes.fetch_add(bytes, Ordering::Relaxed);
        self.bytes += bytes;
        before.saturating_add(bytes) <= at_most
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.room.used_bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// Reads a body to its end.
///
/// # Errors
/// When it is too long, too slow, or no body of a request for inference.
pub async fn read(
    written: Written,
    headers: &HeaderMap,
    mut body: Incoming,
    room: &Room,
    bounds: &Bounds,
) -> Result<(Kept, Found), Refusal> {
    let encoded = headers.get(CONTENT_ENCODING).is_some_and(|coding| coding != "identity");
    if encoded {
        let message = "the body is compressed, so the model cannot be read from it; send it as it is";
        return Err(Refusal::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, message));
    }
    let announced = headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
    if announced.is_some_and(|length| length > bounds.body_bytes) {
        return Err(too_long(bounds));
    }
    let boundary = match written {
        Written::Json => None,
        Written::Form => Some(form::boundary(headers.get(CONTENT_TYPE)).ok_or_else(|| {
            Refusal::bad_request("the body is no multipart form: its Content-Type names no boundary")
        })?),
    };
    let mut share = room.share();
    let mut kept = Kept::new();
    let mut scanner = Scanner::default();
    let mut end = None;
    loop {
        let frame = match body.frame().now_or_never() {
            // What has come already, mostly all of it, needs no clock.
            Some(frame) => frame,
            None => {
                let now = tokio::time::Instant::now();
                let end = *end.get_or_insert(now + WHOLE);
                let next = tokio::time::timeout_at(end.min(now + bounds.body_silence), body.frame());
                next.await.map_err(|_| too_slow())?
            }
        };
        let Some(frame) = frame else { break };
        let frame = frame.map_err(|error| broken(&error))?;
        match frame.into_data() {
            Ok(data) => {
                let length = data.len() as u64;
                if kept.len_bytes() + length > bounds.body_bytes {
                    return Err(too_long(bounds));
                }
                if !share.take(length, bounds.bodies_bytes) {
                    return Err(Refusal { retry_after_s: Some(FULL_RETRY_S), ..no_room(bounds) });
                }
                if boundary.is_none() {
                    scanner.push(&data).map_err(|bad| refused(&bad))?;
                }
                kept.push(data);
            }
            Err(frame) => {
                if let Ok(trailers) = frame.into_trailers() {
                    kept.end_with(trailers);
                }
            }
        }
    }
    kept.occupy(share);
    let found = match boundary {
        None => scanner.finish().map_err(|bad| refused(&bad))?,
        Some(boundary) => form::read(&mut kept, &boundary).map_err(Refusal::bad_request)?,
    };
    Ok((kept, found))
}

fn refused(bad: &Bad) -> Refusal {
    Refusal::bad_request(bad.to_string())
}

fn broken(error: &hyper::Error) -> Refusal {
    Refusal::bad_request(format!("the body of the request cannot be read: {error}"))
}

fn too_slow() -> Refusal {
    Refusal::new(StatusCode::REQUEST_TIMEOUT, "the body of the request did not come in time")
}

fn too_long(bounds: &Bounds) -> Refusal {
    let limit = bounds.body_bytes >> 20;
    let message =
        format!("the body of the request is longer than {limit} MiB (body_mib in [gateway]); nothing was sent");
    Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, message)
}

fn no_room(bounds: &Bounds) -> Refusal {
    let limit = bounds.bodies_bytes >> 20;
    let message = format!(
        "the bodies of all requests that wait are longer than {limit} MiB (bodies_mib in [gateway]); try again"
    );
    Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_room_is_given_back_by_whoever_used_it() {
        let room = Room::default();
        let mut first = room.share();
        assert!(first.take(60, 100));
        let mut second = room.share();
        assert!(!second.take(60, 100));
        drop(second);
        assert_eq!(room.used_bytes(), 60);
        let mut third = room.share();
        assert!(third.take(40, 100));
        drop((first, third));
        assert_eq!(room.used_bytes(), 0);
    }
}
