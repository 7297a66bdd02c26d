//! Connections of clients: accepted, bounded, spoken with in HTTP/1.1 or HTTP/2, and closed so that the last answer
//! arrives.

use crate::answer::Answer;
use crate::callers::Ends;
use crate::front::Front;
use crate::head_timer::HeadTimer;
use crate::malformed::Spoken;
use http_body_util::BodyExt;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

/// How many may knock before they are let in.
const BACKLOG: u32 = 1_024;
/// The pause after a connection that could not be accepted: out of file descriptors, mostly.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// What begins HTTP/2 with prior knowledge (RFC 9113 §3.4), and no request of HTTP/1.1.
const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// How often it is looked whether the rest of it has come.
const PREFACE_PAUSE: Duration = Duration::from_millis(20);
/// How long the connection stays open, and how much is read, of a client that goes on sending after its last answer.
/// Closing at once would destroy the answer on its way (RFC 9112 §9.6).
const LINGER: Duration = Duration::from_secs(1);
const LINGER_BYTES: usize = 16 << 20;

/// Connections that are accepted only to be told that there is no place.
const SPARE: usize = 32;
/// How long such a one may take.
const SPARE_TIME: Duration = Duration::from_secs(5);
/// Descriptors for everything but requests.
const RESERVED_DESCRIPTORS: usize = 32 + SPARE;
/// As many are asked for. macOS refuses more (`OPEN_MAX`, setrlimit(2)).
const DESCRIPTORS_AT_MOST: u64 = 10_240;

/// Whether the gateway goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// It listens.
    Open,
    /// It listens no more, and answers what it has.
    Leaving,
    /// What waits is refused, what runs ends.
    Stopping,
}

impl Phase {
    /// The word used for it in JSON.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Leaving => "leaving",
            Self::Stopping => "ending",
        }
    }

    async fn leaves_open(phase: &mut watch::Receiver<Self>) {
        // Without a sender the gateway has ended.
        let _ = phase.wait_for(|phase| *phase != Self::Open).await;
    }

    /// Waits until the gateway stops.
    pub async fn stops(phase: &mut watch::Receiver<Self>) {
        let _ = phase.wait_for(|phase| *phase == Self::Stopping).await;
    }
}

/// Opens an address.
///
/// # Errors
/// When the system refuses, mostly because somebody else listens there.
pub fn open(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    // A server that has just left this port may still have connections that end.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// Places for connections, and for a few more whose clients are told that there is none.
#[derive(Clone, Debug)]
pub struct Places {
    all: usize,
    free: Arc<Semaphore>,
    spare: Arc<Semaphore>,
    /// One for each address that is open.
    open: watch::Sender<usize>,
}

impl Places {
    /// So many, but never more than the system gives file descriptors for: each connection may need another one to
    /// Ollama.
    pub fn new(wanted: usize) -> Self {
        let all = wanted.min(descriptors().saturating_sub(RESERVED_DESCRIPTORS) / 2).max(1);
        if all < wanted {
            tracing::info!(
                connections = all,
                "fewer connections than configured: the system gives no more descriptors"
            );
        }
        Self {
            all,
            free: Arc::new(Semaphore::new(all)),
            spare: Arc::new(Semaphore::new(SPARE)),
            open: watch::Sender::new(0),
        }
    }

    /// A place for a client that has come, and whether it is a spare one, where it is told that there is none. Without
    /// even that it waits for whichever comes first.
    async fn one(&self) -> Option<(OwnedSemaphorePermit, bool)> {
        if let Ok(place) = self.free.clone().try_acquire_owned() {
            return Some((place, false));
        }
        tokio::select! {
            biased;
            place = self.free.clone().acquire_owned() => Some((place.ok()?, false)),
            place = self.spare.clone().acquire_owned() => Some((place.ok()?, true)),
        }
    }

    /// How many there are.
    pub fn all(&self) -> usize {
        self.all
    }

    /// How many are taken.
    pub fn taken(&self) -> usize {
        self.all - self.free.available_permits()
    }

    /// Waits until nobody is connected any more.
    pub async fn emptied(&self) {
        let _ = self.free.acquire_many(u32::try_from(self.all).unwrap_or(u32::MAX)).await;
    }

    /// Waits until no address is open any more.
    pub async fn closed(&self) {
        let _ = self.open.subscribe().wait_for(|open| *open == 0).await;
    }
}

/// How many files this process may have open; as many as it is given.
fn descriptors() -> usize {
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        let wanted = limit.maximum.map_or(DESCRIPTORS_AT_MOST, |most| most.min(DESCRIPTORS_AT_MOST));
        if limit.current.is_some_and(|current| current < wanted)
            && setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), maximum: limit.maximum }).is_ok()
        {
            limit.current = Some(wanted);
        }
    }
    usize::try_from(limit.current.unwrap_or(DESCRIPTORS_AT_MOST)).unwrap_or(usize::MAX)
}

/// Accepts connections until the gateway leaves or stops.
pub async fn accept(listener: TcpListener, front: Arc<Front>, places: Places, mut phase: watch::Receiver<Phase>) {
    places.open.send_modify(|open| *open += 1);
    let accepting = async {
        loop {
            match listener.accept().await {
                Ok((stream, peer)) => {
                    let Some(place) = places.one().await else { return };
                    tokio::spawn(speak(stream, peer, front.clone(), place, front.phase.clone()));
                }
                Err(error) => {
                    tracing::warn!(%error, "a connection could not be accepted");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    };
    tokio::select! {
        () = accepting => {}
        () = Phase::leaves_open(&mut phase) => {}
    }
    drop(listener);
    places.open.send_modify(|open| *open -= 1);
}

/// Speaks with a client. What is kept while it waits is small: a thousand may.
async fn speak(
    stream: TcpStream,
    peer: SocketAddr,
    front: Arc<Front>,
    (_place, spare): (OwnedSemaphorePermit, bool),
    phase: watch::Receiver<Phase>,
) {
    // Without it, small pieces of an answer wait for an acknowledgement.
    if stream.set_nodelay(true).is_err() {
        return;
    }
    let Ok(local) = stream.local_addr() else { return };
    let ends = Arc::new(Ends::new(local, peer, spare));
    let patience = if spare { SPARE_TIME } else { front.configuration.borrow().bounds.head };
    let spoken = match tokio::time::timeout(patience, begins_http2(&stream)).await {
        Ok(Ok(http2)) => http2,
        // Nobody spoke, or the client has gone.
        Ok(Err(_)) | Err(_) => return,
    };
    match (spoken, spare) {
        (true, true) => {
            let _ = tokio::time::timeout(SPARE_TIME, Box::pin(http2(stream, ends, front, phase))).await;
        }
        (false, true) => {
            let _ = tokio::time::timeout(SPARE_TIME, Box::pin(http1(stream, ends, front, phase))).await;
        }
        (true, false) => Box::pin(http2(stream, ends, front, phase)).await,
        (false, false) => http1(stream, ends, front, phase).await,
    }
}

async fn begins_http2(stream: &TcpStream) -> io::Result<bool> {
    let mut start = [0; PREFACE.len()];
    loop {
        let count = stream.peek(&mut start).await?;
        if count == 0 || start[..count] != PREFACE[..count] {
            return Ok(false);
        }
        if count == PREFACE.len() {
            return Ok(true);
        }
        // A piece of it: the system would tell of the same bytes again at once.
        tokio::time::sleep(PREFACE_PAUSE).await;
    }
}

async fn http1(stream: TcpStream, ends: Arc<Ends>, front: Arc<Front>, mut phase: watch::Receiver<Phase>) {
    let bounds = front.configuration.borrow().bounds;
    let peer = ends.peer;
    let service = service_fn(move |request| {
        let (front, ends) = (front.clone(), ends.clone());
        async move { Ok::<_, Infallible>(front.answer(ends, request).await) }
    });
    let mut connection = http1::Builder::new()
        .timer(HeadTimer::default())
        .header_read_timeout(bounds.head)
        .max_header_size(bounds.head_bytes)
        .auto_date_header(false)
        .serve_connection(TokioIo::new(Spoken::new(stream)), service);
    let ended = tokio::select! {
        biased;
        ended = &mut connection => ended,
        () = Phase::leaves_open(&mut phase) => {
            std::pin::Pin::new(&mut connection).graceful_shutdown();
            (&mut connection).await
        }
    };
    if let Err(error) = &ended {
        tracing::debug!(%error, %peer, "a connection ended");
    }
    linger(connection.into_parts().io.into_inner().into_inner()).await;
}

async fn http2(stream: TcpStream, ends: Arc<Ends>, front: Arc<Front>, mut phase: watch::Receiver<Phase>) {
    let bounds = front.configuration.borrow().bounds;
    let peer = ends.peer;
    let streams = Streams::default();
    let counted = streams.clone();
    let service = service_fn(move |request| {
        let (front, ends, stream) = (front.clone(), ends.clone(), counted.begin());
        async move {
            let answer = front.answer(ends, request).await;
            let with_stream = |body: Answer| {
                body.map_frame(move |frame| {
                    let _until_here = &stream;
                    frame
                })
            };
            Ok::<_, Infallible>(answer.map(with_stream))
        }
    });
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        .max_header_list_size(u32::try_from(bounds.head_bytes).unwrap_or(u32::MAX))
        .keep_alive_interval(bounds.head)
        .auto_date_header(false);
    let mut connection = pin!(builder.serve_connection(TokioIo::new(stream), service));
    let ended = tokio::select! {
        biased;
        ended = &mut connection => ended,
        () = Phase::leaves_open(&mut phase) => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
        () = streams.none_for(bounds.head) => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, %peer, "a connection ended");
    }
}

/// The streams of a connection, each until its answer has ended.
#[derive(Clone, Debug, Default)]
struct Streams {
    open: watch::Sender<usize>,
}

#[derive(Debug)]
struct Stream(Streams);

impl Streams {
    fn begin(&self) -> Stream {
        self.open.send_modify(|open| *open += 1);
        Stream(self.clone())
    }

    /// Waits until none has been open for so long.
    async fn none_for(&self, span: Duration) {
        let mut open = self.open.subscribe();
        loop {
            // Its sender is here, so it does not end.
            let _ = open.wait_for(|open| *open == 0).await;
            if tokio::time::timeout(span, open.changed()).await.is_err() {
                return;
            }
        }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.0.open.send_modify(|open| *open -= 1);
    }
}

/// Lets the last answer arrive at a client that goes on sending.
async fn linger(mut stream: TcpStream) {
    if stream.shutdown().await.is_err() {
        return;
    }
    let mut left = LINGER_BYTES;
    let mut sink = vec![0; 4 << 10];
    let _ = tokio::time::timeout(LINGER, async {
        while let Ok(count @ 1..) = stream.read(&mut sink).await {
            left = left.saturating_sub(count);
            if left == 0 {
                // What it still sends waits in its own system; meanwhile it reads the answer. Closed now, it would see an
                // error before that.
                std::future::pending::<()>().await;
            }
        }
    })
    .await;
}
