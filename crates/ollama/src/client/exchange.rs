//! One request and its answer on a connection of their own.

use super::CallError;
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::{Method, Request, header};
use hyper_util::rt::TokioIo;
use std::io;
use std::net::SocketAddr;
use tokio::net::TcpStream;

/// An answer, whatever its status.
pub(crate) struct Answer {
    pub status: u16,
    pub body: Bytes,
}

/// Sends a request and reads the answer. Nothing outlives the returned future: when it is dropped, the connection is.
pub(super) async fn exchange(
    address: SocketAddr,
    method: Method,
    path: &'static str,
    body: String,
    most_answer_bytes: usize,
) -> Result<Answer, CallError> {
    let stream = TcpStream::connect(address).await.map_err(|error| {
        if error.kind() == io::ErrorKind::ConnectionRefused {
            CallError::Refused { address }
        } else {
            CallError::Broken { path, reason: error.to_string() }
        }
    })?;
    let (mut sender, connection) =
        http1::handshake(TokioIo::new(stream)).await.map_err(|error| failed(address, path, &error))?;
    let mut request = Request::builder()
        .method(method)
        .uri(path)
        .header(header::HOST, address.to_string())
        .header(header::CONNECTION, "close")
        .header(header::ACCEPT, "application/json");
    if !body.is_empty() {
        request = request.header(header::CONTENT_TYPE, "application/json");
    }
    let request = request
        .body(Full::new(Bytes::from(body)))
        .map_err(|error| CallError::Malformed { path, reason: error.to_string() })?;
    let talk = async move {
        let response = sender.send_request(request).await.map_err(|error| failed(address, path, &error))?;
        let status = response.status().as_u16();
        let body = Limited::new(response.into_body(), most_answer_bytes).collect().await.map_err(|error| {
            if error.is::<LengthLimitError>() {
                let reason = format!("it is longer than {most_answer_bytes} bytes");
                CallError::Malformed { path, reason }
            } else {
                CallError::Broken { path, reason: error.to_string() }
            }
        })?;
        Ok(Answer { status, body: body.to_bytes() })
    };
    let mut talk = std::pin::pin!(talk);
    let mut connection = std::pin::pin!(connection);
    tokio::select! {
        biased;
        answer = &mut talk => answer,
        // The connection may end first, with the last of the answer still to be collected.
        _ = &mut connection => talk.await,
    }
}

fn failed(address: SocketAddr, path: &'static str, error: &hyper::Error) -> CallError {
    if error.is_parse() {
        CallError::NotOllama { address, reason: format!("it does not speak HTTP: {error}") }
    } else {
        CallError::Broken { path, reason: error.to_string() }
    }
}
