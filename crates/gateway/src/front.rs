//! One request: who asks, whether it waits, and what goes to Ollama and back.

use crate::access_log::{AccessLog, Entry};
use crate::answer::{Answer, Refusal};
use crate::callers::{self, Caller, Ends, Programs};
use crate::configuration::Configuration;
use crate::doorway::{self, Origins, Page};
use crate::early::Early;
use crate::family::Family;
use crate::headers::{CHANGED, LANE, POSITION, QUEUED_MS, drop_hop_by_hop, number};
use crate::intake::{self, Room};
use crate::keys::Keys;
use crate::listening::Phase;
use crate::queue::{Arrival, Decision, Held, Queue, Waiting};
use crate::relay::{Form, Relay};
use crate::rewriting;
use crate::route::{self, Endpoint, Written, is_cloud};
use crate::sending::{Sending, Through};
use crate::upstream::{Received, Trouble, Upstream};
use http::header::{CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, EXPECT, HOST, ORIGIN, TE};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Uri, Version};
use hyper::body::Incoming;
use stablehand_engine::admission::{self, End, Event, Scope, Ticket, Why};
use stablehand_platform::clock::Clock;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// The words of Ollama itself when it is full (`server/sched.go`, `ErrMaxQueue`), which clients may know.
const BUSY: &str = "server busy, please try again.  maximum pending requests exceeded";
/// When to come back after a restart.
const RESTART_RETRY_S: u64 = 5;
/// The least and the most that a client is told to stay away. Chance spreads those that were sent away together.
const BUSY_RETRY_S: (u64, u64) = (1, 30);

/// What every request shares.
#[derive(Debug)]
pub struct Front {
    /// The configuration as it is in force.
    pub configuration: watch::Receiver<Arc<Configuration>>,
    /// Pages that may ask.
    pub origins: watch::Receiver<Arc<Origins>>,
    /// Who is let in.
    pub keys: watch::Receiver<Arc<Keys>>,
    /// Ollama.
    pub upstream: Upstream,
    /// Who may be sent when.
    pub queue: Queue,
    /// Names of clients.
    pub programs: Programs,
    /// The memory for bodies.
    pub room: Room,
    /// Where each request is noted.
    pub access_log: AccessLog,
    /// Whether the gateway goes on.
    pub phase: watch::Receiver<Phase>,
    /// The clock of the machine.
    pub clock: Clock,
    /// The name of this machine.
    pub hostname: String,
}

/// An answer of Ollama's to a request that had its turn.
#[derive(Debug)]
pub struct Sent {
    /// The answer.
    pub response: Response<Received>,
    /// The permit.
    pub held: Held,
    /// How long it had waited.
    pub waited: Duration,
}

/// What is asked for, and by whom.
#[derive(Debug)]
struct Asking {
    model: Arc<str>,
    client: Arc<str>,
}

/// What became of a try to send.
#[expect(clippy::large_enum_variant, reason = "it is looked at where it was made")]
enum Once {
    Sent(Sent),
    /// Nothing could be sent; it waits again.
    PutBack(Waiting, Box<Request<Sending>>),
}

/// A request that has its turn some time.
pub type InTurn = Pin<Box<dyn Future<Output = Result<Sent, Refusal>> + Send>>;

impl Front {
    /// Answers a request.
    pub async fn answer(self: Arc<Self>, ends: Arc<Ends>, mut request: Request<Incoming>) -> Response<Answer> {
        let family = Family::of(request.uri().path());
        let origins = self.origins.borrow().clone();
        let host = complete_host(&mut request);
        let page = origins.page(request.headers());
        let origin = request.headers().get(ORIGIN).cloned();
        let mut entry = self.access_log.entry(request.method(), request.uri().path());
        // Boxed, so that its memory is free again while an answer that began early waits.
        let passed = match host {
            Ok(()) => Box::pin(self.pass(&ends, page, &origins, request, &mut entry)).await,
            Err(refusal) => Err(refusal),
        };
        let mut response = match passed {
            Ok(mut response) => {
                if page == Page::Ours {
                    origins.mark(page, origin.as_ref(), response.headers_mut());
                }
                response
            }
            Err(refusal) => {
                let mut response = refusal.answer(family);
                origins.mark(page, origin.as_ref(), response.headers_mut());
                response
            }
        };
        if ends.spare {
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        entry.status(response.status());
        response.body_mut().note(entry);
        response
    }

    async fn pass(
        self: &Arc<Self>,
        ends: &Ends,
        page: Page,
        origins: &Origins,
        mut request: Request<Incoming>,
        entry: &mut Entry,
    ) -> Result<Response<Answer>, Refusal> {
        if ends.spare {
            return Err(Refusal::unavailable(
                "so many connections are open that this one has no place",
                BUSY_RETRY_S.0,
            ));
        }
        if page == Page::Refused {
            return Err(Refusal::new(StatusCode::FORBIDDEN, doorway::ORIGIN_REFUSED));
        }
        if !doorway::host_is_allowed(ends.local, request.headers().get(HOST), &self.hostname) {
            return Err(Refusal::new(StatusCode::FORBIDDEN, doorway::HOST_REFUSED));
        }
        if request.method() == Method::CONNECT {
            return Err(Refusal::new(StatusCode::METHOD_NOT_ALLOWED, "this is no tunnel"));
        }
        if page == Page::Ours {
            if doorway::is_preflight(&request) {
                return Ok(origins.preflight(page, request.headers().get(ORIGIN)));
            }
            // Ollama would refuse it.
            request.headers_mut().remove(ORIGIN);
        }
        let configuration = self.configuration.borrow().clone();
        let keys = self.keys.borrow().clone();
        if configuration.require_key && !is_open_to_all(&request) && keys.owner(request.headers()).is_none() {
            return Err(Refusal::new(StatusCode::UNAUTHORIZED, "a key is needed here (Authorization: Bearer …)"));
        }
        match Endpoint::of(request.method(), request.uri().path()) {
            Some(endpoint) => self.infer(&configuration, &keys, ends, endpoint, request, entry).await,
            None => self.through(&configuration, ends, page, origins, request).await,
        }
    }

    /// Passes a request on that waits for no turn.
    async fn through(
        &self,
        configuration: &Configuration,
        ends: &Ends,
        page: Page,
        origins: &Origins,
        request: Request<Incoming>,
    ) -> Result<Response<Answer>, Refusal> {
        if self.queue.is_away() {
            if doorway::is_preflight(&request) && page == Page::Allowed {
                return Ok(origins.preflight(page, request.headers().get(ORIGIN)));
            }
            let back = self.queue.is_back();
            if tokio::time::timeout(self.clock.patience(configuration.bounds.held_question), back).await.is_err() {
                let what = if self.queue.is_held(Why::Unreachable) {
                    format!("Ollama cannot be reached at {}", self.upstream.address())
                } else {
                    "Ollama is being restarted".to_owned()
                };
                return Err(Refusal::unavailable(format!("{what}; nothing was sent"), RESTART_RETRY_S));
            }
        }
        let family = Family::of(request.uri().path());
        let (parts, body) = request.into_parts();
        let body = Through::new(body, configuration.bounds.body_silence);
        let request = self.outbound(ends, parts, Sending::Through(body))?;
        let response = self.upstream.send(request).await.map_err(|trouble| self.refused(&trouble))?;
        Ok(inbound(response, None, family))
    }

    /// Passes a request on when it has its turn.
    async fn infer(
        self: &Arc<Self>,
        configuration: &Configuration,
        keys: &Keys,
        ends: &Ends,
        endpoint: &'static Endpoint,
        request: Request<Incoming>,
        entry: &mut Entry,
    ) -> Result<Response<Answer>, Refusal> {
        let (mut parts, body) = request.into_parts();
        if endpoint.written == Written::Form && names_model(parts.uri.query().unwrap_or_default()) {
            // Ollama would take that one and not the form's (Go, net/http `Request.FormValue`).
            return Err(Refusal::bad_request("the model is named in the form, and not behind the path as well"));
        }
        let (mut body, found) =
            intake::read(endpoint.written, &parts.headers, body, &self.room, &configuration.bounds).await?;
        let (model, changed) = rewriting::rewrite(configuration, endpoint, &found, &mut body)?;
        // How long it is now is said anew.
        parts.headers.remove(CONTENT_LENGTH);
        let caller = callers::caller(configuration, keys, &self.programs, ends, &parts.headers).await?;
        let request = self.outbound(ends, parts, Sending::Kept(body))?;
        entry.model(&model);
        entry.caller(&caller);
        let waits = endpoint.works(&found) && !is_cloud(&model);
        let mut response = if waits {
            let events = endpoint.answers_with_events(&found);
            self.in_turn(configuration, endpoint, events, &model, &caller, request, entry).await?
        } else {
            let response = self.upstream.send(request).await.map_err(|trouble| self.refused(&trouble))?;
            inbound(response, None, endpoint.family)
        };
        if let Some(changed) = changed {
            response.headers_mut().insert(CHANGED, changed);
        }
        Ok(response)
    }

    #[expect(clippy::too_many_arguments, reason = "all that is known of one request")]
    async fn in_turn(
        self: &Arc<Self>,
        configuration: &Configuration,
        endpoint: &'static Endpoint,
        events: bool,
        model: &Arc<str>,
        caller: &Caller,
        request: Box<Request<Sending>>,
        entry: &mut Entry,
    ) -> Result<Response<Answer>, Refusal> {
        let ticket = Ticket {
            id: self.queue.number(),
            model: model.clone(),
            client: caller.client.clone(),
            lane: caller.lane,
            patience: caller.patience,
        };
        let asking = Asking { model: model.clone(), client: caller.client.clone() };
        let (waiting, request) = match self.queue.arrive(ticket, endpoint.path).ok_or_else(ending)? {
            Arrival::Waits(waiting) => (waiting, request),
            Arrival::Decided(decision) => match self.send_once(&asking, decision, request).await? {
                Once::Sent(sent) => return Ok(answered(sent, 0, endpoint.family, caller, entry)),
                Once::PutBack(waiting, request) => (waiting, request),
            },
        };
        let position = waiting.position;
        let mut sending: InTurn = Box::pin(self.clone().send_in_turn(asking, waiting, request));
        let speaks = events && caller.keep_alive.unwrap_or(true);
        let sent = match configuration.bounds.keep_alive.filter(|_| speaks) {
            None => sending.await,
            Some(span) => match tokio::time::timeout(self.clock.real_span(span), &mut sending).await {
                Ok(sent) => sent,
                Err(_) => {
                    entry.began_early();
                    let early = Early::new(sending, self.clock.real_span(span), endpoint.family);
                    return Ok(self.begun_early(early, caller, position));
                }
            },
        };
        Ok(answered(sent?, position, endpoint.family, caller, entry))
    }

    /// The head of an answer that begins before its turn has come.
    fn begun_early(&self, early: Early, caller: &Caller, position: usize) -> Response<Answer> {
        let mut response = Response::new(Answer::Early(Box::new(early)));
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
        headers.insert(http::header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
        headers.insert(POSITION, number(position as u64));
        headers.insert(LANE, HeaderValue::from_static(caller.lane.word()));
        response
    }

    /// Waits for the turn and sends. A request of which nothing could be sent waits again, in its old place.
    async fn send_in_turn(
        self: Arc<Self>,
        asking: Asking,
        mut waiting: Waiting,
        mut request: Box<Request<Sending>>,
    ) -> Result<Sent, Refusal> {
        loop {
            let mut phase = self.phase.clone();
            let decision = tokio::select! {
                decision = waiting.decision() => decision.ok_or_else(ending)?,
                () = Phase::stops(&mut phase) => return Err(ending()),
            };
            match self.send_once(&asking, decision, request).await? {
                Once::Sent(sent) => return Ok(sent),
                Once::PutBack(again, back) => (waiting, request) = (again, back),
            }
        }
    }

    /// Sends a request that may go, unless its turn never comes.
    async fn send_once(
        &self,
        asking: &Asking,
        decision: Decision,
        request: Box<Request<Sending>>,
    ) -> Result<Once, Refusal> {
        let (held, waited) = match decision {
            Decision::Admitted { held, waited } => (held, waited),
            Decision::Refused(refusal) => return Err(self.turned_away(&refusal).await),
        };
        match self.upstream.send(request).await {
            Ok(response) => {
                // An Ollama that does not know the path says so in plain text.
                if response.status() == StatusCode::NOT_FOUND && is_json(response.headers()) {
                    self.queue.is_missing(&asking.model, &asking.client);
                }
                Ok(Once::Sent(Sent { response, held, waited }))
            }
            Err(trouble @ (Trouble::Sent(_) | Trouble::Full)) => {
                held.end(End::Failed);
                Err(self.refused(&trouble))
            }
            Err(Trouble::Unsent { request, error }) => {
                let patience = self.configuration.borrow().bounds.unreachable;
                if self.upstream.down_for() >= self.clock.real_span(patience) {
                    held.end(End::Failed);
                    return Err(self.unreachable(&error));
                }
                let until = Some(self.clock.awake() + patience);
                self.queue.tell(Event::Hold { why: Why::Unreachable, scope: Scope::All, until });
                Ok(Once::PutBack(held.put_back(), request))
            }
        }
    }

    /// A request as Ollama gets it.
    fn outbound(
        &self,
        ends: &Ends,
        mut parts: http::request::Parts,
        body: Sending,
    ) -> Result<Box<Request<Sending>>, Refusal> {
        let trailers = drop_hop_by_hop(&mut parts.headers);
        parts.headers.remove(EXPECT);
        if trailers {
            parts.headers.insert(TE, HeaderValue::from_static("trailers"));
        }
        // Ollama listens on loopback alone behind us, and would refuse a name that it would have taken in our place.
        let behind = self.upstream.address();
        let is_nameless = parts.version == Version::HTTP_10 && !parts.headers.contains_key(HOST);
        if is_nameless && let Ok(host) = HeaderValue::try_from(behind.to_string()) {
            // It was right in its own version, and goes on in one that asks for a name.
            parts.headers.insert(HOST, host);
        }
        if !ends.local.ip().to_canonical().is_loopback()
            && !doorway::host_is_allowed(behind, parts.headers.get(HOST), &self.hostname)
            && let Ok(host) = HeaderValue::try_from(behind.to_string())
        {
            parts.headers.insert(HOST, host);
        }
        if parts.uri.authority().is_some() || parts.version != Version::HTTP_11 {
            let target = parts.uri.path_and_query().map_or("/", http::uri::PathAndQuery::as_str);
            parts.uri = target.parse::<Uri>().map_err(|_| Refusal::bad_request("the path is not understood"))?;
            parts.version = Version::HTTP_11;
        }
        parts.extensions.clear();
        Ok(Box::new(Request::from_parts(parts, body)))
    }

    fn refused(&self, trouble: &Trouble) -> Refusal {
        match trouble {
            Trouble::Unsent { error, .. } => self.unreachable(error),
            Trouble::Sent(error) if error.is_parse() => Refusal::new(
                StatusCode::BAD_GATEWAY,
                format!(
                    "what came back from Ollama at {} is no answer: {error}; the request is not sent a second time",
                    self.upstream.address()
                ),
            ),
            Trouble::Sent(error) if error.is_user() => {
                Refusal::bad_request("the body of the request cannot be read to its end")
            }
            Trouble::Sent(_) => Refusal::new(StatusCode::BAD_GATEWAY, crate::relay::BROKE),
            Trouble::Full => Refusal::unavailable(
                "all connections to Ollama that there may be (connections in [gateway]) are in use; nothing was sent",
                BUSY_RETRY_S.0,
            ),
        }
    }

    fn unreachable(&self, error: &std::io::Error) -> Refusal {
        let address = self.upstream.address();
        Refusal::unavailable(
            format!("Ollama cannot be reached at {address}: {error}; nothing was sent"),
            RESTART_RETRY_S,
        )
    }

    /// Why a request does not get a turn, and when it might.
    async fn turned_away(&self, refusal: &admission::Refusal) -> Refusal {
        let (message, expected) = match refusal {
            admission::Refusal::ModelFull { .. } | admission::Refusal::Full { .. } => (BUSY.to_owned(), None),
            admission::Refusal::ClientFull { at_most } => (format!("{BUSY} (of this client {at_most} may wait)"), None),
            admission::Refusal::TooLate { expected } => (
                format!("its turn could be expected in {} s, which is later than it would wait", expected.as_secs()),
                Some(*expected),
            ),
            admission::Refusal::WaitedOut { waited } => {
                (format!("it has waited {} s, as long as it wanted to", waited.as_secs()), None)
            }
            admission::Refusal::Dropped => ("it was taken out of the queue by a person".to_owned(), None),
        };
        let (least, most) = BUSY_RETRY_S;
        let base = expected.map_or(least, |expected| expected.as_secs().clamp(least, most));
        Refusal::unavailable(message, base + fastrand::u64(0..=base.min(4) + 1))
    }
}

/// The answer to a request that had its turn.
fn answered(sent: Sent, position: usize, family: Family, caller: &Caller, entry: &mut Entry) -> Response<Answer> {
    let Sent { response, held, waited } = sent;
    entry.waited(waited);
    let mut response = inbound(response, Some(held), family);
    let headers = response.headers_mut();
    headers.insert(QUEUED_MS, number(u64::try_from(waited.as_millis()).unwrap_or(u64::MAX)));
    headers.insert(POSITION, number(position as u64));
    headers.insert(LANE, HeaderValue::from_static(caller.lane.word()));
    response
}

/// The answer as the client gets it.
fn inbound(response: Response<Received>, held: Option<Held>, family: Family) -> Response<Answer> {
    let (mut parts, body) = response.into_parts();
    drop_hop_by_hop(&mut parts.headers);
    parts.version = Version::HTTP_11;
    parts.extensions.clear();
    let form = Form::of(&parts.headers);
    let relay = Relay::new(body, held, form, family, parts.status);
    Response::from_parts(parts, Answer::Relayed(Box::new(relay)))
}

fn ending() -> Refusal {
    Refusal::unavailable("the gateway is ending; nothing was sent", RESTART_RETRY_S)
}

fn names_model(query: &str) -> bool {
    query.split('&').any(|pair| route::decoded(pair.split('=').next().unwrap_or_default()) == "model")
}

fn is_json(headers: &HeaderMap) -> bool {
    headers.get(CONTENT_TYPE).is_some_and(|kind| kind.as_bytes().starts_with(b"application/json"))
}

/// What anybody may ask: whether something is there, and what a browser asks before it asks.
fn is_open_to_all(request: &Request<Incoming>) -> bool {
    match *request.method() {
        Method::OPTIONS => true,
        Method::GET | Method::HEAD => matches!(request.uri().path(), "/" | "/api/version"),
        _ => false,
    }
}

/// A request is for one host: the one that its target or HTTP/2 names goes where HTTP/1.1 has it (RFC 9112 §3.2.2).
fn complete_host(request: &mut Request<Incoming>) -> Result<(), Refusal> {
    if request.headers().get_all(HOST).iter().nth(1).is_some() {
        return Err(Refusal::bad_request("a request has one Host"));
    }
    let Some(authority) = request.uri().authority() else { return Ok(()) };
    let host =
        HeaderValue::from_str(authority.as_str()).map_err(|_| Refusal::bad_request("the host is not understood"))?;
    request.headers_mut().insert(HOST, host);
    Ok(())
}
