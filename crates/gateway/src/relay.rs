//! An answer of Ollama's on its way to the client, with the permit that it holds.
//!
//! The permit lives in the body, because that is what takes the time: it is given back when the last byte has come,
//! when the connection to Ollama breaks, or when the client has gone and this is dropped.

use crate::access_log::Entry;
use crate::family::Family;
use crate::queue::Held;
use crate::upstream::Received;
use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use http_body::{Body, Frame, SizeHint};
use memchr::memmem::FinderRev;
use stablehand_engine::admission::End;
use std::pin::Pin;
use std::sync::LazyLock;
use std::task::{Context, Poll, ready};
use std::time::Duration;

/// What is told to a client in whose answer the connection to Ollama broke.
pub(crate) const BROKE: &str =
    "Ollama went away while it answered; the request had been sent and is not sent a second time";

/// Made once: making it costs more than looking for it.
static LOAD_DURATION: LazyLock<FinderRev<'static>> = LazyLock::new(|| FinderRev::new("\"load_duration\":"));

/// How an answer is written, as far as something can be added to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Events (`text/event-stream`).
    Events,
    /// A JSON object a line (`application/x-ndjson`).
    Lines,
    /// Anything else.
    Plain,
}

impl Form {
    /// Of an answer with these headers.
    pub fn of(headers: &HeaderMap) -> Self {
        let kind = headers.get(http::header::CONTENT_TYPE).map(http::HeaderValue::as_bytes).unwrap_or_default();
        if kind.starts_with(b"text/event-stream") {
            Self::Events
        } else if kind.starts_with(b"application/x-ndjson") {
            Self::Lines
        } else {
            Self::Plain
        }
    }
}

/// The connection broke; whoever reads this sees an answer without an end.
#[derive(Debug, thiserror::Error)]
#[error("the answer broke off: {0}")]
pub struct Broken(#[source] hyper::Error);

/// The body.
#[derive(Debug)]
pub struct Relay {
    received: Received,
    held: Option<Held>,
    form: Form,
    family: Family,
    /// The answer's status was an error; its time is not learnt from.
    failed: bool,
    /// The last piece, in which Ollama's own interface says how long loading took.
    last: Bytes,
    ended: bool,
    entry: Option<Entry>,
}

impl Relay {
    /// An answer that holds a permit, or none.
    pub fn new(received: Received, held: Option<Held>, form: Form, family: Family, status: StatusCode) -> Self {
        let failed = status.is_client_error() || status.is_server_error();
        let mut relay = Self { received, held, form, family, failed, last: Bytes::new(), ended: false, entry: None };
        if relay.received.is_end_stream() {
            relay.end();
        }
        relay
    }

    /// Notes what becomes of it.
    pub fn note(&mut self, mut entry: Entry) {
        if self.ended {
            entry.complete();
        }
        self.entry = Some(entry);
    }

    fn end(&mut self) {
        self.ended = true;
        if let Some(entry) = &mut self.entry {
            entry.complete();
        }
        if let Some(held) = self.held.take() {
            held.end(match (self.failed, self.family) {
                (true, _) => End::Failed,
                (false, Family::Ollama) => End::Served { load: load_duration(&self.last) },
                (false, Family::OpenAi | Family::Anthropic) => End::Served { load: None },
            });
        }
    }

    /// What can still be said to the client after a break, in the form that the answer has.
    fn last_words(&self) -> Option<Bytes> {
        let status = StatusCode::BAD_GATEWAY;
        let between = self.last.is_empty() || self.last.ends_with(b"\n");
        match self.form {
            Form::Events if between => Some(self.family.error_event(status, BROKE)),
            // As Ollama itself ends a stream whose runner has died.
            Form::Lines if between => {
                let mut line = self.family.error(status, BROKE).to_vec();
                line.push(b'\n');
                Some(Bytes::from(line))
            }
            Form::Events | Form::Lines | Form::Plain => None,
        }
    }
}

impl Body for Relay {
    type Data = Bytes;
    type Error = Broken;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        let this = self.get_mut();
        if this.ended {
            return Poll::Ready(None);
        }
        match ready!(Pin::new(&mut this.received).poll_frame(context)) {
            None => {
                this.end();
                Poll::Ready(None)
            }
            Some(Ok(frame)) => {
                if let Some(data) = frame.data_ref()
                    && !data.is_empty()
                {
                    this.last = data.clone();
                    if let Some(entry) = &mut this.entry {
                        entry.sent(data.len());
                    }
                }
                if this.received.is_end_stream() {
                    this.end();
                }
                Poll::Ready(Some(Ok(frame)))
            }
            Some(Err(error)) => {
                this.failed = true;
                // What is noted of it stays incomplete.
                let entry = this.entry.take();
                this.end();
                this.entry = entry;
                Poll::Ready(Some(match this.last_words() {
                    Some(words) => Ok(Frame::data(words)),
                    None => Err(Broken(error)),
                }))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.ended || self.received.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        if self.ended { SizeHint::with_exact(0) } else { self.received.size_hint() }
    }
}

/// `"load_duration":123` in nanoseconds, in the last piece of an answer of Ollama's own interface (`api/types.go`,
/// `Metrics`).
fn load_duration(piece: &[u8]) -> Option<Duration> {
    let digits = &piece[LOAD_DURATION.rfind(piece)? + LOAD_DURATION.needle().len()..];
    let end = digits.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(digits.len());
    std::str::from_utf8(&digits[..end]).ok()?.parse().ok().map(Duration::from_nanos)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_loading_is_read_where_it_stands() {
        let last = br#"{"model":"m","done":true,"total_duration":9,"load_duration":1500000000,"eval_count":3}"#;
        assert_eq!(load_duration(last), Some(Duration::from_millis(1_500)));
        assert_eq!(load_duration(b"data: [DONE]\n\n"), None);
        assert_eq!(load_duration(b"\"load_duration\":"), None);
    }
}
