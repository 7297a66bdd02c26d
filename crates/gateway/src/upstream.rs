//! Connections to Ollama: kept open between requests, and honest about what was sent.
//!
//! A request that never left comes back to whoever sends it, so that it can be sent again; one of which a byte may have
//! left does not.

use crate::sending::{Kept, Sending};
use bytes::Bytes;
use http::header::HOST;
use http::{HeaderValue, Request, Response, Uri};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

/// How long a connection may take to open; the server is on this machine.
const CONNECT: Duration = Duration::from_secs(5);
/// How long a server that was away may take to answer, and how often it is asked.
const ANSWER: Duration = Duration::from_secs(2);
const ASK_AGAIN: Duration = Duration::from_millis(250);
/// Whoever waits for it asks again sooner than this.
const UNTRIED: Duration = Duration::from_secs(120);
/// The most connections that are kept without work.
const IDLE_AT_MOST: usize = 64;
/// The longest head of an answer.
const HEAD_BYTES: usize = 256 << 10;

/// Ollama, as the gateway reaches it. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Upstream {
    pool: Arc<Mutex<Pool>>,
    /// One for each connection that may be open. A client of HTTP/2 may ask many things at once on one of its own, and
    /// descriptors that are used up would look as if Ollama could not be reached.
    places: Arc<Semaphore>,
    /// A connection has come back while there was no place for another one.
    returned: Arc<Notify>,
}

/// On what a request can be sent.
enum Way {
    Kept(SendRequest<Sending>, u64),
    Fresh(OwnedSemaphorePermit),
}

#[derive(Debug)]
struct Pool {
    address: SocketAddr,
    /// Counts the addresses and servers there were; a connection to an earlier one is not used again.
    generation: u64,
    idle: Vec<SendRequest<Sending>>,
    /// Since when nothing could be sent on a fresh connection. Whoever lets itself be connected to, and closes at once,
    /// is as far away as nobody.
    down: Option<Down>,
}

#[derive(Clone, Copy, Debug)]
struct Down {
    since: Instant,
    /// When it was tried last.
    last: Instant,
}

impl Down {
    /// It was tried in vain now. What was so before nobody tried for a while says nothing of the time in between.
    fn again(before: Option<Self>) -> Self {
        let now = Instant::now();
        let since = before.filter(|down| now - down.last <= UNTRIED).map_or(now, |down| down.since);
        Self { since, last: now }
    }
}

/// Why there is no answer.
#[derive(Debug)]
pub enum Trouble {
    /// Nothing was sent; here is the request again.
    Unsent {
        /// The request, as it was.
        request: Box<Request<Sending>>,
        /// What the system said.
        error: io::Error,
    },
    /// The connection broke after the request, or a part of it, was sent.
    Sent(hyper::Error),
    /// Nothing was sent: all connections that there may be were in use.
    Full,
}

impl Upstream {
    /// Ollama at this address, with at most so many connections to it.
    pub fn new(address: SocketAddr, connections: usize) -> Self {
        Self {
            pool: Arc::new(Mutex::new(Pool { address, generation: 0, idle: Vec::new(), down: None })),
            places: Arc::new(Semaphore::new(connections)),
            returned: Arc::new(Notify::new()),
        }
    }

    /// Where it is.
    pub fn address(&self) -> SocketAddr {
        self.pool().address
    }

    /// It is somewhere else, or another server in the same place: no kept connection is used again.
    pub fn moved(&self, address: SocketAddr) {
        let mut pool = self.pool();
        pool.address = address;
        pool.down = None;
        pool.generation += 1;
        pool.idle.clear();
    }

    /// Sends a request. It is boxed because many futures hand it on.
    ///
    /// # Errors
    /// When it could not be sent, or was sent and not answered.
    pub async fn send(&self, mut request: Box<Request<Sending>>) -> Result<Response<Received>, Trouble> {
        // A kept connection may have been closed at the other end in this very moment; then the request comes back,
        // and another one is tried, at last a fresh one.
        let place = loop {
            match tokio::time::timeout(CONNECT, self.way()).await.map_err(|_| Trouble::Full)? {
                Way::Fresh(place) => break place,
                Way::Kept(sender, generation) => match self.send_on(sender, generation, request).await {
                    Ok(response) => return Ok(response),
                    Err(Trouble::Unsent { request: back, .. }) => request = back,
                    Err(trouble @ (Trouble::Sent(_) | Trouble::Full)) => return Err(trouble),
                },
            }
        };
        let (address, generation) = {
            let pool = self.pool();
            (pool.address, pool.generation)
        };
        let sent = match connect(address, place).await {
            Ok(sender) => self.send_on(sender, generation, request).await,
            Err(error) => Err(Trouble::Unsent { request, error }),
        };
        if let Err(Trouble::Unsent { .. }) = &sent {
            let mut pool = self.pool();
            pool.down = Some(Down::again(pool.down));
        }
        sent
    }

    async fn send_on(
        &self,
        mut sender: SendRequest<Sending>,
        generation: u64,
        request: Box<Request<Sending>>,
    ) -> Result<Response<Received>, Trouble> {
        match sender.try_send_request(*request).await {
            Ok(response) => {
                self.pool().down = None;
                let home = Home { upstream: self.clone(), generation, sender };
                Ok(response.map(|incoming| Received::new(incoming, home)))
            }
            Err(mut refused) => match refused.take_message() {
                Some(request) => Err(Trouble::Unsent {
                    request: Box::new(request),
                    error: io::Error::new(io::ErrorKind::ConnectionReset, refused.into_error()),
                }),
                None => Err(Trouble::Sent(refused.into_error())),
            },
        }
    }

    /// For how long nothing could be sent; zero while it answers.
    pub fn down_for(&self) -> Duration {
        self.pool().down.map_or(Duration::ZERO, |down| down.since.elapsed())
    }

    /// Waits until it answers a simple question.
    pub async fn answers_again(&self) {
        loop {
            let mut question = Box::new(Request::new(Sending::Kept(Kept::new())));
            *question.uri_mut() = Uri::from_static("/api/version");
            question.headers_mut().insert(HOST, HeaderValue::from_static("localhost"));
            if let Ok(Ok(_)) = tokio::time::timeout(ANSWER, self.send(question)).await {
                return;
            }
            tokio::time::sleep(ASK_AGAIN).await;
        }
    }

    /// Waits until there is one.
    async fn way(&self) -> Way {
        loop {
            if let Some((sender, generation)) = self.kept() {
                return Way::Kept(sender, generation);
            }
            if let Ok(place) = self.places.clone().try_acquire_owned() {
                return Way::Fresh(place);
            }
            // Asked for before it is looked again, so that no return is missed.
            let mut returned = pin!(self.returned.notified());
            returned.as_mut().enable();
            if let Some((sender, generation)) = self.kept() {
                return Way::Kept(sender, generation);
            }
            tokio::select! {
                biased;
                Ok(place) = self.places.clone().acquire_owned() => return Way::Fresh(place),
                () = returned => {}
            }
        }
    }

    fn kept(&self) -> Option<(SendRequest<Sending>, u64)> {
        let mut pool = self.pool();
        while let Some(sender) = pool.idle.pop() {
            if sender.is_ready() {
                return Some((sender, pool.generation));
            }
        }
        None
    }

    fn pool(&self) -> MutexGuard<'_, Pool> {
        self.pool.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn connect(address: SocketAddr, place: OwnedSemaphorePermit) -> io::Result<SendRequest<Sending>> {
    let opening = tokio::time::timeout(CONNECT, TcpStream::connect(address)).await;
    let stream = opening.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
    stream.set_nodelay(true)?;
    let mut builder = http1::Builder::new();
    builder.max_buf_size(HEAD_BYTES);
    let (sender, connection) = builder.handshake(TokioIo::new(stream)).await.map_err(io::Error::other)?;
    tokio::spawn(async move {
        // Its end is told to whoever waits for an answer.
        let _ = connection.await;
        drop(place);
    });
    Ok(sender)
}

/// What gives a connection back once its answer has been read to its end.
#[derive(Debug)]
struct Home {
    upstream: Upstream,
    generation: u64,
    sender: SendRequest<Sending>,
}

impl Home {
    fn give_back(self) {
        let Self { upstream, generation, sender } = self;
        let mut pool = upstream.pool();
        if pool.generation == generation && pool.idle.len() < IDLE_AT_MOST && !sender.is_closed() {
            pool.idle.push(sender);
            if upstream.places.available_permits() == 0 {
                upstream.returned.notify_one();
            }
        }
    }
}

/// The body of an answer. Dropped before its end it closes the connection, which is how Ollama learns that its client
/// has gone.
#[derive(Debug)]
pub struct Received {
    incoming: Incoming,
    home: Option<Home>,
}

impl Received {
    fn new(incoming: Incoming, home: Home) -> Self {
        let mut received = Self { incoming, home: Some(home) };
        received.give_back_at_end();
        received
    }

    fn give_back_at_end(&mut self) {
        if self.incoming.is_end_stream()
            && let Some(home) = self.home.take()
        {
            home.give_back();
        }
    }
}

impl Body for Received {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let this = self.get_mut();
        let frame = ready!(Pin::new(&mut this.incoming).poll_frame(context));
        match &frame {
            None => {
                if let Some(home) = this.home.take() {
                    home.give_back();
                }
            }
            Some(Ok(_)) => this.give_back_at_end(),
            Some(Err(_)) => this.home = None,
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.incoming.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.incoming.size_hint()
    }
}
