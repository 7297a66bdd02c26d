//! What goes back to a client: an answer of Ollama's passed on, or one of our own.

use crate::access_log::Entry;
use crate::early::Early;
use crate::family::Family;
use crate::relay::{Broken, Relay};
use bytes::Bytes;
use http::header::{ALLOW, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderValue, Response, StatusCode};
use http_body::{Body, Frame, SizeHint};
use std::pin::Pin;
use std::task::{Context, Poll};

/// The body of an answer.
#[derive(Debug)]
pub enum Answer {
    /// All of it at once; nothing when empty.
    Whole(Bytes),
    /// What comes from Ollama.
    Relayed(Box<Relay>),
    /// What began before its request had its turn.
    Early(Box<Early>),
}

impl Answer {
    /// Notes what becomes of it.
    pub fn note(&mut self, mut entry: Entry) {
        match self {
            Self::Whole(bytes) => {
                entry.sent(bytes.len());
                entry.complete();
            }
            Self::Relayed(relay) => relay.note(entry),
            Self::Early(early) => early.note(entry),
        }
    }
}

/// An answer of our own that says no.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Its status.
    pub status: StatusCode,
    /// Why, in words.
    pub message: String,
    /// When to ask again, in whole seconds.
    pub retry_after_s: Option<u64>,
}

impl Refusal {
    /// A refusal with a status and words.
    pub fn new(status: StatusCode, message: impl Into<String>) -> Self {
        Self { status, message: message.into(), retry_after_s: None }
    }

    /// The request is not one.
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, message)
    }

    /// Nothing can be done now.
    pub fn unavailable(message: impl Into<String>, retry_after_s: u64) -> Self {
        Self { retry_after_s: Some(retry_after_s), ..Self::new(StatusCode::SERVICE_UNAVAILABLE, message) }
    }

    /// As the family of the path says it.
    pub fn answer(&self, family: Family) -> Response<Answer> {
        let mut response = Response::new(Answer::Whole(family.error(self.status, &self.message)));
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json; charset=utf-8"));
        if let Some(seconds) = self.retry_after_s {
            headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        if self.status == StatusCode::UNAUTHORIZED {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if self.status == StatusCode::METHOD_NOT_ALLOWED {
            headers.insert(ALLOW, HeaderValue::from_static("GET, HEAD, POST, DELETE, OPTIONS"));
        }
        response
    }
}

/// An answer without a body.
pub fn empty(status: StatusCode) -> Response<Answer> {
    let mut response = Response::new(Answer::Whole(Bytes::new()));
    *response.status_mut() = status;
    response
}

impl Body for Answer {
    type Data = Bytes;
    type Error = Broken;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        match self.get_mut() {
            Self::Whole(bytes) if bytes.is_empty() => Poll::Ready(None),
            Self::Whole(bytes) => Poll::Ready(Some(Ok(Frame::data(std::mem::take(bytes))))),
            Self::Relayed(relay) => Pin::new(relay.as_mut()).poll_frame(context),
            Self::Early(early) => Pin::new(early.as_mut()).poll_frame(context),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Whole(bytes) => bytes.is_empty(),
            Self::Relayed(relay) => relay.is_end_stream(),
            Self::Early(early) => early.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Self::Relayed(relay) => relay.size_hint(),
            Self::Early(_) => SizeHint::default(),
        }
    }
}
