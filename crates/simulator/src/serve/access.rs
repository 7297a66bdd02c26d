//! Around every request: the host check, CORS headers, and the access line
//! that is written when the answer's body has ended.

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, ready};
use std::time::Instant;

use axum::body::Body;
use axum::extract::{ConnectInfo, Request, State};
use axum::http::{HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use hyper::body::{Body as HttpBody, Bytes, Frame, SizeHint};

use super::log::{AccessLine, Phase};
use super::{Arrival, Server, disturbance};
use crate::faults::Fault;

/// The middleware.
pub async fn observe(
    State(server): State<Arc<Server>>,
    ConnectInfo(client): ConnectInfo<SocketAddr>,
    mut request: Request,
    next: Next,
) -> Response {
    disturbance::outlast(&server.world, Fault::ServerSilent).await;
    let phase = Arc::new(Mutex::new(Phase::Plain));
    let arrival = Arrival { at: Instant::now(), phase: Arc::clone(&phase) };
    let mut line = AccessLine {
        log: server.log.clone(),
        world: Arc::clone(&server.world),
        arrived: arrival.at,
        method: request.method().to_string(),
        path: request.uri().path_and_query().map_or_else(|| "/".to_owned(), ToString::to_string),
        client: client.ip().to_string(),
        status: None,
        phase,
    };
    let origin = request.headers().get(header::ORIGIN).cloned();
    let host = request.headers().get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    let mut response = if !is_allowed_host(host) {
        StatusCode::FORBIDDEN.into_response()
    } else if request.method() == Method::OPTIONS && origin.is_some() {
        preflight()
    } else {
        request.extensions_mut().insert(arrival);
        next.run(request).await
    };
    if let Some(origin) = origin {
        response.headers_mut().insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    }
    line.status = Some(response.status().as_u16());
    let (parts, body) = response.into_parts();
    Response::from_parts(parts, Body::new(Watched { body, line, nap: None }))
}

/// Hosts that a server on loopback answers to.
pub fn is_allowed_host(host: &str) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        Some(_) | None => host,
    };
    let name = name.trim_start_matches('[').trim_end_matches(']').to_ascii_lowercase();
    if name.is_empty() || name == "localhost" {
        return true;
    }
    if let Ok(address) = name.parse::<std::net::IpAddr>() {
        return match address {
            std::net::IpAddr::V4(address) => address.is_loopback() || address.is_private() || address.is_unspecified(),
            std::net::IpAddr::V6(address) => address.is_loopback() || address.is_unspecified(),
        };
    }
    [".local", ".localhost", ".internal"].iter().any(|suffix| name.ends_with(suffix))
}

fn preflight() -> Response {
    let mut response = StatusCode::NO_CONTENT.into_response();
    let headers = response.headers_mut();
    headers.insert(
        header::ACCESS_CONTROL_ALLOW_METHODS,
        HeaderValue::from_static("GET,POST,PUT,PATCH,DELETE,HEAD,OPTIONS"),
    );
    headers.insert(
        header::ACCESS_CONTROL_ALLOW_HEADERS,
        HeaderValue::from_static("Origin,Content-Length,Content-Type,Authorization,User-Agent,Accept,X-Requested-With"),
    );
    headers.insert(header::ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static("43200"));
    response
}

/// A body that keeps the access line until it is dropped, and waits while the
/// server is silent.
struct Watched {
    body: Body,
    line: AccessLine,
    nap: Option<Pin<Box<tokio::time::Sleep>>>,
}

impl HttpBody for Watched {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        // A silent server says nothing more in the middle of an answer either.
        loop {
            if let Some(nap) = self.nap.as_mut() {
                ready!(nap.as_mut().poll(context));
                self.nap = None;
            }
            if !disturbance::holds(&self.line.world, Fault::ServerSilent) {
                return Pin::new(&mut self.body).poll_frame(context);
            }
            self.nap = Some(Box::pin(tokio::time::sleep(disturbance::GLANCE)));
        }
    }

    fn is_end_stream(&self) -> bool {
        debug_assert!(self.line.status.is_some());
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn foreign_hosts_are_turned_away() {
        for good in ["", "localhost:41873", "127.0.0.1", "[::1]:80", "mac.local", "10.0.0.4:1"] {
            assert!(is_allowed_host(good), "{good}");
        }
        for bad in ["example.com", "example.com:41873", "8.8.8.8"] {
            assert!(!is_allowed_host(bad), "{bad}");
        }
    }
}
