//! One request: who asks, whether it waits, and what goes to Ollama and back.

use crate::answer::{Answer, Refusal, empty};
use crate::configuration::Configuration;
use crate::doorway::{self, Origins, Page};
use crate::family::Family;
use crate::headers::drop_hop_by_hop;
use crate::queue::Queue;
use crate::relay::{Form, Relay};
use crate::sending::Sending;
use crate::upstream::{Trouble, Upstream};
use http::header::{CONTENT_LENGTH, EXPECT, HOST, ORIGIN, TE, TRANSFER_ENCODING};
use http::{HeaderValue, Method, Request, Response, StatusCode, Uri, Version};
use hyper::body::Incoming;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::sync::watch;

/// What every request shares.
#[derive(Debug)]
pub struct Front {
    /// The configuration as it is in force.
    pub configuration: watch::Receiver<Arc<Configuration>>,
    /// Pages that may ask.
    pub origins: watch::Receiver<Arc<Origins>>,
    /// Ollama.
    pub upstream: Upstream,
    /// Who may be sent when.
    pub queue: Queue,
    /// The name of this machine.
    pub hostname: String,
}

/// The two ends of a client's connection.
#[derive(Clone, Copy, Debug)]
pub struct Ends {
    /// Ours.
    pub local: SocketAddr,
    /// The client's.
    pub peer: SocketAddr,
}

impl Front {
    /// Answers a request.
    pub async fn answer(self: Arc<Self>, ends: Ends, request: Request<Incoming>) -> Response<Answer> {
        let family = Family::of(request.uri().path());
        let origins = self.origins.borrow().clone();
        let page = origins.page(request.headers());
        let origin = request.headers().get(ORIGIN).cloned();
        match self.pass(ends, page, &origins, request).await {
            Ok(response) => response,
            Err(refusal) => {
                let mut response = refusal.answer(family);
                origins.mark(page, origin.as_ref(), response.headers_mut());
                response
            }
        }
    }

    async fn pass(
        &self,
        ends: Ends,
        page: Page,
        _origins: &Origins,
        mut request: Request<Incoming>,
    ) -> Result<Response<Answer>, Refusal> {
        check_framing(&request)?;
        complete_host(&mut request)?;
        if page == Page::Refused {
            let (status, message) = doorway::ORIGIN_REFUSED;
            return Err(Refusal::new(status, message));
        }
        let host = request.headers().get(HOST);
        if !doorway::host_is_allowed(ends.local, host, &self.hostname) {
            let (status, message) = doorway::HOST_REFUSED;
            return Err(Refusal::new(status, message));
        }
        if request.method() == Method::CONNECT {
            return Err(Refusal::new(StatusCode::METHOD_NOT_ALLOWED, "this is no tunnel"));
        }
        self.through(ends, request).await
    }

    /// Passes a request on that waits for nothing.
    async fn through(&self, ends: Ends, request: Request<Incoming>) -> Result<Response<Answer>, Refusal> {
        let family = Family::of(request.uri().path());
        let (parts, body) = request.into_parts();
        let request = self.outbound(ends, parts, Sending::Through(body))?;
        let response =
            self.upstream.send(request).await.map_err(|trouble| refused(&trouble, self.upstream.address()))?;
        Ok(inbound(response.map(|body| (body, None)), family))
    }

    /// A request as Ollama gets it.
    fn outbound(
        &self,
        ends: Ends,
        mut parts: http::request::Parts,
        body: Sending,
    ) -> Result<Request<Sending>, Refusal> {
        let trailers = drop_hop_by_hop(&mut parts.headers);
        parts.headers.remove(EXPECT);
        if trailers {
            parts.headers.insert(TE, HeaderValue::from_static("trailers"));
        }
        // Ollama listens on loopback alone behind us, and would refuse a name that it would have taken in our place.
        let behind = self.upstream.address();
        if !ends.local.ip().to_canonical().is_loopback()
            && !doorway::host_is_allowed(behind, parts.headers.get(HOST), &self.hostname)
            && let Ok(host) = HeaderValue::try_from(behind.to_string())
        {
            parts.headers.insert(HOST, host);
        }
        let target = parts.uri.path_and_query().map_or("/", http::uri::PathAndQuery::as_str);
        parts.uri = target.parse::<Uri>().map_err(|_| Refusal::bad_request("the path is not understood"))?;
        parts.version = Version::HTTP_11;
        Ok(Request::from_parts(parts, body))
    }
}

/// The answer as the client gets it.
fn inbound(
    response: Response<(crate::upstream::Received, Option<crate::queue::Held>)>,
    family: Family,
) -> Response<Answer> {
    let (mut parts, (body, held)) = response.into_parts();
    drop_hop_by_hop(&mut parts.headers);
    parts.version = Version::HTTP_11;
    parts.extensions.clear();
    let form = Form::of(&parts.headers);
    let relay = Relay::new(body, held, form, family, parts.status);
    Response::from_parts(parts, Answer::Relayed(Box::new(relay)))
}

fn refused(trouble: &Trouble, address: SocketAddr) -> Refusal {
    match trouble {
        Trouble::Unsent { error, .. } => {
            tracing::debug!(%error, %address, "Ollama cannot be reached");
            Refusal::unavailable(format!("Ollama cannot be reached at {address}: {error}; nothing was sent"), 2)
        }
        Trouble::Sent(error) if error.is_parse() => Refusal::new(
            StatusCode::BAD_GATEWAY,
            format!(
                "what came back from Ollama at {address} is no answer: {error}; the request is not sent a second time"
            ),
        ),
        Trouble::Sent(error) if error.is_user() || error.is_body_write_aborted() => {
            Refusal::bad_request("the body of the request ended before its end")
        }
        Trouble::Sent(_) => Refusal::new(StatusCode::BAD_GATEWAY, crate::relay::BROKE),
    }
}

/// A message whose end can be read in two ways is none.
fn check_framing(request: &Request<Incoming>) -> Result<(), Refusal> {
    let headers = request.headers();
    if headers.contains_key(TRANSFER_ENCODING) && headers.contains_key(CONTENT_LENGTH) {
        return Err(Refusal::bad_request("a request has a Content-Length or a Transfer-Encoding, not both"));
    }
    if headers.get_all(HOST).iter().count() > 1 {
        return Err(Refusal::bad_request("a request has one Host"));
    }
    Ok(())
}

/// The host that a target or HTTP/2 names goes where HTTP/1.1 has it (RFC 9112 §3.2.2).
fn complete_host(request: &mut Request<Incoming>) -> Result<(), Refusal> {
    let Some(authority) = request.uri().authority() else { return Ok(()) };
    let host =
        HeaderValue::from_str(authority.as_str()).map_err(|_| Refusal::bad_request("the host is not understood"))?;
    request.headers_mut().insert(HOST, host);
    Ok(())
}

/// What a browser asks before it asks.
#[expect(dead_code, reason = "used while requests are held")]
fn preflight(origins: &Origins, origin: Option<&HeaderValue>) -> Response<Answer> {
    let mut response = empty(StatusCode::NO_CONTENT);
    origins.mark_preflight(origin, response.headers_mut());
    response
}
