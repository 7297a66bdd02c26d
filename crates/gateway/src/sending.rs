//! The body of a request on its way to Ollama: passed through as it comes, or read before and kept.

use crate::intake::Share;
use bytes::{Buf, Bytes, BytesMut};
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::time::Sleep;

/// Pieces shorter than this are put together: each has a cost of its own, and holds a buffer that is longer than it.
const SHORT_BYTES: usize = 4 << 10;
/// As much is put together at most.
const TOGETHER_BYTES: usize = 64 << 10;

/// The body of a request.
#[derive(Debug)]
pub enum Sending {
    /// Goes through as it comes.
    Through(Through),
    /// Was read before.
    Kept(Kept),
}

/// A body that goes through as it comes, as long as it comes.
#[derive(Debug)]
pub struct Through {
    incoming: Incoming,
    /// How long its client may be silent, and until when it may be now.
    silence: Duration,
    silent_until: Option<Pin<Box<Sleep>>>,
}

impl Through {
    /// Of a client that may be silent for so long.
    pub fn new(incoming: Incoming, silence: Duration) -> Self {
        Self { incoming, silence, silent_until: None }
    }

    fn poll_frame(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Stopped>>> {
        if let Poll::Ready(frame) = Pin::new(&mut self.incoming).poll_frame(context) {
            self.silent_until = None;
            return Poll::Ready(frame.map(|frame| frame.map_err(Stopped::Broken)));
        }
        let silence = self.silence;
        let until = self.silent_until.get_or_insert_with(|| Box::pin(tokio::time::sleep(silence)));
        ready!(until.as_mut().poll(context));
        Poll::Ready(Some(Err(Stopped::Silent)))
    }
}

/// Why the body of a request has no end.
#[derive(Debug, thiserror::Error)]
pub enum Stopped {
    /// The connection broke, or what came was no body.
    #[error("the body of the request cannot be read: {0}")]
    Broken(#[source] hyper::Error),
    /// Nothing came for a while.
    #[error("the body of the request did not come in time")]
    Silent,
}

/// A body in pieces, as it came.
#[derive(Debug, Default)]
pub struct Kept {
    pieces: VecDeque<Bytes>,
    /// Short pieces, behind the others.
    together: BytesMut,
    trailers: Option<HeaderMap>,
    left_bytes: u64,
    /// The memory that it takes.
    share: Option<Share>,
}

impl Kept {
    /// Nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a piece at the end.
    pub fn push(&mut self, piece: Bytes) {
        self.left_bytes += piece.len() as u64;
        if piece.len() < SHORT_BYTES {
            self.together.extend_from_slice(&piece);
            if self.together.len() >= TOGETHER_BYTES {
                self.close_piece();
            }
        } else {
            self.close_piece();
            self.pieces.push_back(piece);
        }
    }

    fn close_piece(&mut self) {
        if !self.together.is_empty() {
            self.pieces.push_back(self.together.split().freeze());
        }
    }

    /// It takes this much memory for as long as it lives.
    pub fn occupy(&mut self, share: Share) {
        self.close_piece();
        self.share = Some(share);
    }

    /// All of it in one piece.
    pub fn whole(&mut self) -> Bytes {
        self.close_piece();
        if self.pieces.len() > 1 {
            let whole: BytesMut = self.pieces.drain(..).flatten().collect();
            self.pieces.push_back(whole.freeze());
        }
        self.pieces.front().cloned().unwrap_or_default()
    }

    /// What follows the body.
    pub fn end_with(&mut self, trailers: HeaderMap) {
        self.trailers = Some(trailers);
    }

    /// Its length, in bytes.
    pub fn len_bytes(&self) -> u64 {
        self.left_bytes
    }

    /// Puts other bytes in the place of some: `changes` are ranges in this body, in order, each with what comes there.
    pub fn replace(&mut self, changes: &[(std::ops::Range<u64>, Vec<u8>)]) {
        self.close_piece();
        let mut fresh = Self { trailers: self.trailers.take(), share: self.share.take(), ..Self::default() };
        let mut at = 0;
        for (range, bytes) in changes {
            self.move_to(&mut fresh, range.start.saturating_sub(at));
            fresh.push(Bytes::copy_from_slice(bytes));
            self.skip(range.end.saturating_sub(range.start));
            at = range.end;
        }
        self.move_to(&mut fresh, u64::MAX);
        fresh.close_piece();
        *self = fresh;
    }

    /// The bytes of a range, which is short.
    #[cfg(test)]
    pub fn copy(&mut self, range: std::ops::Range<u64>) -> Vec<u8> {
        let [from, to] = [range.start, range.end].map(|end| usize::try_from(end).unwrap());
        self.whole()[from..to].to_vec()
    }

    fn move_to(&mut self, other: &mut Self, mut count: u64) {
        while count > 0
            && let Some(mut piece) = self.pieces.pop_front()
        {
            let taken = piece.split_to(within(count, piece.len()));
            if piece.has_remaining() {
                self.pieces.push_front(piece);
            }
            count -= taken.len() as u64;
            other.push(taken);
        }
    }

    fn next_piece(&mut self) -> Option<Bytes> {
        self.pieces.pop_front().or_else(|| Some(self.together.split().freeze()).filter(|piece| !piece.is_empty()))
    }

    fn skip(&mut self, count: u64) {
        self.move_to(&mut Self::default(), count);
    }
}

fn within(count: u64, length: usize) -> usize {
    usize::try_from(count).map_or(length, |count| count.min(length))
}

impl Body for Sending {
    type Data = Bytes;
    type Error = Stopped;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Stopped>>> {
        match self.get_mut() {
            Self::Through(through) => through.poll_frame(context),
            Self::Kept(kept) => Poll::Ready(match kept.next_piece() {
                Some(piece) => {
                    kept.left_bytes -= piece.len() as u64;
                    Some(Ok(Frame::data(piece)))
                }
                None => kept.trailers.take().map(|trailers| Ok(Frame::trailers(trailers))),
            }),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Through(through) => through.incoming.is_end_stream(),
            Self::Kept(kept) => kept.left_bytes == 0 && kept.trailers.is_none(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Through(through) => through.incoming.size_hint(),
            // With a length in front nothing can follow.
            Self::Kept(kept) if kept.trailers.is_some() => SizeHint::default(),
            Self::Kept(kept) => SizeHint::with_exact(kept.left_bytes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(pieces: &[&'static str]) -> Kept {
        let mut kept = Kept::new();
        for piece in pieces {
            kept.push(Bytes::from_static(piece.as_bytes()));
        }
        kept
    }

    fn text(kept: &mut Kept) -> String {
        String::from_utf8(kept.whole().to_vec()).unwrap()
    }

    #[test]
    fn a_replacement_may_cross_pieces_and_leaves_all_else_as_it_was() {
        let mut body = kept(&["{\"model\":\"ag", "ent-red\",", "\"a\":1}"]);
        assert_eq!(body.copy(9..20), b"\"agent-red\"");
        body.replace(&[(9..20, b"\"qwen\"".to_vec()), (25..26, b"22".to_vec())]);
        assert_eq!(text(&mut body), r#"{"model":"qwen","a":22}"#);
        assert_eq!(body.len_bytes(), 23);
    }

    #[test]
    fn something_can_be_put_between_two_bytes() {
        let mut body = kept(&["{}"]);
        body.replace(&[(1..1, b"\"a\":1".to_vec())]);
        assert_eq!(text(&mut body), r#"{"a":1}"#);
    }

    #[test]
    fn a_body_with_trailers_has_no_length_in_front() {
        let mut body = kept(&["x"]);
        assert_eq!(body.len_bytes(), 1);
        body.end_with(HeaderMap::new());
        assert_eq!(Sending::Kept(body).size_hint().exact(), None);
        assert_eq!(Sending::Kept(kept(&["xy"])).size_hint().exact(), Some(2));
    }
}
