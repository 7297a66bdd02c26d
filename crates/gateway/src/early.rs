//! An answer that begins before its request has its turn: signs of life first, then what comes from Ollama.
//!
//! Its head is gone with status 200, so whatever goes wrong from then on is said as an event, in the family's shape.

use crate::access_log::Entry;
use crate::answer::Refusal;
use crate::family::Family;
use crate::front::{InTurn, Sent};
use crate::queue::Held;
use crate::relay::{Broken, Form, Relay};
use crate::upstream::Received;
use bytes::Bytes;
use http::StatusCode;
use http_body::{Body, Frame};
use serde_json::Value;
use stablehand_engine::admission::End;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::time::{Interval, MissedTickBehavior};

/// As much is read of an answer that is no stream.
const ANSWER_BYTES: usize = 1 << 20;

/// The body of such an answer.
pub struct Early {
    family: Family,
    state: State,
    entry: Option<Entry>,
}

enum State {
    /// Its turn has not come.
    Waits { sending: InTurn, signs: Interval },
    /// What comes from Ollama is passed on.
    Relays(Relay),
    /// Ollama answers with something that is no stream of events.
    Reads { received: Received, held: Option<Held>, status: StatusCode, read: Vec<u8> },
    /// Nothing comes any more.
    Ended,
}

impl std::fmt::Debug for Early {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str(match self.state {
            State::Waits { .. } => "Early(waits)",
            State::Relays(_) => "Early(relays)",
            State::Reads { .. } => "Early(reads)",
            State::Ended => "Early(ended)",
        })
    }
}

impl Early {
    /// Begins now, with a sign of life, and gives one again after every span.
    pub fn new(sending: InTurn, span: Duration, family: Family) -> Self {
        let mut signs = tokio::time::interval(span);
        signs.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self { family, state: State::Waits { sending, signs }, entry: None }
    }

    /// Notes what becomes of it.
    pub fn note(&mut self, entry: Entry) {
        self.entry = Some(entry);
    }

    fn begin(&mut self, sent: Sent) -> State {
        let Sent { response, held, waited } = sent;
        let (parts, received) = response.into_parts();
        let mut entry = self.entry.take();
        if let Some(entry) = &mut entry {
            entry.waited(waited);
            entry.status(parts.status);
        }
        if parts.status.is_success() && Form::of(&parts.headers) == Form::Events {
            let mut relay = Relay::new(received, Some(held), Form::Events, self.family, parts.status);
            entry.into_iter().for_each(|entry| relay.note(entry));
            State::Relays(relay)
        } else {
            self.entry = entry;
            State::Reads { received, held: Some(held), status: parts.status, read: Vec::new() }
        }
    }

    fn say(&mut self, status: StatusCode, message: &str) -> Frame<Bytes> {
        if let Some(entry) = &mut self.entry {
            entry.status(status);
        }
        self.end_with(self.family.error_event(status, message))
    }

    /// The last that is said.
    fn end_with(&mut self, words: Bytes) -> Frame<Bytes> {
        self.state = State::Ended;
        self.count(words.len());
        if let Some(entry) = &mut self.entry {
            entry.complete();
        }
        Frame::data(words)
    }

    fn count(&mut self, bytes: usize) {
        if let Some(entry) = &mut self.entry {
            entry.sent(bytes);
        }
    }
}

impl Body for Early {
    type Data = Bytes;
    type Error = Broken;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        let this = self.get_mut();
        loop {
            match &mut this.state {
                State::Waits { sending, signs } => match sending.as_mut().poll(context) {
                    Poll::Ready(Ok(sent)) => this.state = this.begin(sent),
                    Poll::Ready(Err(Refusal { status, message, .. })) => {
                        return Poll::Ready(Some(Ok(this.say(status, &message))));
                    }
                    Poll::Pending => {
                        ready!(signs.poll_tick(context));
                        let sign = this.family.keep_alive();
                        this.count(sign.len());
                        return Poll::Ready(Some(Ok(Frame::data(sign))));
                    }
                },
                State::Relays(relay) => return Pin::new(relay).poll_frame(context),
                State::Reads { received, held, status, read } => match ready!(Pin::new(received).poll_frame(context)) {
                    Some(Ok(frame)) => {
                        if let Ok(data) = frame.into_data() {
                            let room = ANSWER_BYTES.saturating_sub(read.len());
                            read.extend_from_slice(&data[..data.len().min(room)]);
                        }
                    }
                    Some(Err(_)) => {
                        held.take().into_iter().for_each(|held| held.end(End::Failed));
                        // What is noted of it stays incomplete.
                        let entry = this.entry.take();
                        let words = this.say(StatusCode::BAD_GATEWAY, crate::relay::BROKE);
                        this.entry = entry;
                        return Poll::Ready(Some(Ok(words)));
                    }
                    None => {
                        let (status, read) = (*status, std::mem::take(read));
                        let served = status.is_success();
                        let end = if served { End::Served { load: None } } else { End::Failed };
                        held.take().into_iter().for_each(|held| held.end(end));
                        if served {
                            return Poll::Ready(Some(Ok(this.end_with(one_event(&read)))));
                        }
                        return Poll::Ready(Some(Ok(this.say(status, &message_of(&read)))));
                    }
                },
                State::Ended => return Poll::Ready(None),
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.state {
            State::Waits { .. } | State::Reads { .. } => false,
            State::Relays(relay) => relay.is_end_stream(),
            State::Ended => true,
        }
    }
}

/// An answer that is no stream, to somebody who waits for events.
fn one_event(answer: &[u8]) -> Bytes {
    let text = String::from_utf8_lossy(answer);
    let lines: Vec<_> = text.trim_end().lines().map(|line| format!("data: {line}\n")).collect();
    Bytes::from(format!("{}\n", lines.concat()))
}

/// What an answer says is wrong, in whichever shape.
fn message_of(answer: &[u8]) -> String {
    let value: Option<Value> = serde_json::from_slice(answer).ok();
    let error = value.as_ref().and_then(|value| value.get("error"));
    let message = error.and_then(|error| error.as_str().or_else(|| error.get("message")?.as_str()));
    message.map_or_else(|| String::from_utf8_lossy(answer).trim().to_owned(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_is_read_from_every_shape() {
        assert_eq!(message_of(br#"{"error":"model 'm' not found"}"#), "model 'm' not found");
        assert_eq!(message_of(br#"{"error":{"message":"no","type":"x"}}"#), "no");
        assert_eq!(message_of(br#"{"type":"error","error":{"type":"x","message":"never"}}"#), "never");
        assert_eq!(message_of(b"404 page not found\n"), "404 page not found");
    }

    #[test]
    fn an_answer_that_is_no_stream_is_one_event() {
        assert_eq!(one_event(b"{\"a\":1}"), "data: {\"a\":1}\n\n");
        assert_eq!(one_event(b"{\n}\n"), "data: {\ndata: }\n\n");
    }
}
