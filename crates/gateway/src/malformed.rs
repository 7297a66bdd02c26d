//! What is so malformed that hyper answers it by itself, with a status and no body, is answered with words.
//!
//! Nobody else is asked in that case (`hyper proto/h1/role.rs`, `on_error`), so the answer is recognized where it goes
//! out: a bare head with one of three statuses.

use crate::family::Family;
use bytes::{Buf, Bytes};
use http::StatusCode;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// How such an answer ends.
const BARE: &[u8] = b"\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";

/// The connection of a client.
#[derive(Debug)]
pub struct Spoken {
    stream: TcpStream,
    /// What goes out in the place of a bare answer.
    words: Bytes,
}

impl Spoken {
    /// Over this connection.
    pub fn new(stream: TcpStream) -> Self {
        Self { stream, words: Bytes::new() }
    }

    /// The connection itself.
    pub fn into_inner(self) -> TcpStream {
        self.stream
    }

    fn poll_words(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.words.has_remaining() {
            let count = ready!(Pin::new(&mut self.stream).poll_write(context, &self.words))?;
            if count == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.words.advance(count);
        }
        Poll::Ready(Ok(()))
    }
}

/// The answer with words in the place of a bare one.
fn with_words(bare: &[u8]) -> Option<Bytes> {
    if !bare.ends_with(BARE) {
        return None;
    }
    let line = std::str::from_utf8(&bare[..bare.len() - BARE.len()]).ok()?;
    let (status, message) = match line.strip_prefix("HTTP/1.1 ")?.get(..3)? {
        "400" => (StatusCode::BAD_REQUEST, "this is no request that is understood here"),
        "414" => (StatusCode::URI_TOO_LONG, "the path is too long"),
        "431" => (
            StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
            "the head of the request is too long (head_kib in [gateway]), or has too many lines",
        ),
        _ => return None,
    };
    if line.contains('\r') {
        return None;
    }
    // The path was not read, so neither was its family.
    let body = Family::Ollama.error(status, message);
    let head = format!(
        "{line}\r\nconnection: close\r\ncontent-type: application/json; charset=utf-8\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    Some([head.as_bytes(), &body].concat().into())
}

impl AsyncRead for Spoken {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_read(context, into)
    }
}

impl AsyncWrite for Spoken {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(context, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        ready!(this.poll_words(context))?;
        if let [bare] = pieces
            && let Some(words) = with_words(bare)
        {
            this.words = words;
            // It is taken; the flush that follows waits until it is gone.
            return Poll::Ready(Ok(bare.len()));
        }
        Pin::new(&mut this.stream).poll_write_vectored(context, pieces)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        ready!(this.poll_words(context))?;
        Pin::new(&mut this.stream).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        ready!(this.poll_words(context))?;
        Pin::new(&mut this.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bare_answer_gets_words_and_no_other_one_does() {
        let bare = b"HTTP/1.1 400 Bad Request\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";
        let words = with_words(bare).unwrap();
        let (head, body) = std::str::from_utf8(&words).unwrap().split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 400 Bad Request\r\n"), "{head}");
        assert!(head.ends_with(&format!("content-length: {}", body.len())), "{head}");
        assert!(body.starts_with("{\"error\":"), "{body}");
        for other in [
            "HTTP/1.1 404 Not Found\r\nconnection: close\r\ncontent-length: 0\r\n\r\n",
            "HTTP/1.1 400 Bad Request\r\ndate: x\r\nconnection: close\r\ncontent-length: 0\r\n\r\n",
            "HTTP/1.1 400 Bad Request\r\nconnection: close\r\ncontent-length: 1\r\n\r\n",
            "\r\nconnection: close\r\ncontent-length: 0\r\n\r\n",
        ] {
            assert_eq!(with_words(other.as_bytes()), None, "{other}");
        }
    }
}
