//! The one client of the control socket.

pub mod gateway;

use crate::{Ending, Event, Failure, Past, Request, Snapshot, VERSION_HEADER};
use bytes::{Bytes, BytesMut};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::net::UnixStream;

/// How long the daemon may take to accept and to begin an answer.
const FIRST_ANSWER: Duration = Duration::from_secs(10);
/// The longest line of an answer that is accepted.
const LINE_LIMIT_BYTES: usize = 4 << 20;

/// Why the daemon could not be talked to.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// Nobody listens on the socket.
    #[error("the Stablehand daemon is not running")]
    NotRunning(PathBuf),
    /// The socket may not be opened.
    #[error("the control socket {0} belongs to another user")]
    NotOurs(PathBuf),
    /// No answer in time.
    #[error("the Stablehand daemon does not answer")]
    Silent,
    /// The connection broke.
    #[error("the connection to the Stablehand daemon broke: {0}")]
    Broken(String),
    /// The answer could not be understood.
    #[error(
        "the Stablehand daemon (version {daemon}) says something that this version ({client}) does not understand: {what}"
    )]
    Strange {
        /// Version of the daemon.
        daemon: String,
        /// Version of this client.
        client: &'static str,
        /// What was not understood.
        what: String,
    },
    /// The daemon is of another version.
    #[error("the Stablehand daemon is version {daemon}, this program {client}; nothing was changed")]
    OtherVersion {
        /// Version of the daemon.
        daemon: String,
        /// Version of this client.
        client: &'static str,
    },
    /// The daemon refused the request.
    #[error("{0}")]
    Refused(Failure),
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Self {
        let message = error.to_string();
        match error {
            ClientError::NotRunning(socket) => Self::new(
                "daemon-not-running",
                format!("{message} (no one listens on {}); nothing was changed", socket.display()),
                "start it with `stablehand serve`, or let it start at every login with `stablehand install`",
            ),
            ClientError::NotOurs(_) => {
                Self::new("daemon-not-ours", format!("{message}; nothing was changed"), "run this as that user")
            }
            ClientError::Silent => Self::new(
                "daemon-silent",
                format!("{message} within {} s", FIRST_ANSWER.as_secs()),
                "look at `stablehand logs --daemon`, then restart it",
            ),
            ClientError::Broken(_) => {
                Self::new("daemon-connection", message, "see whether the daemon still runs: `stablehand doctor`")
            }
            ClientError::Strange { .. } | ClientError::OtherVersion { .. } => Self::new(
                "daemon-version",
                message,
                "restart the daemon so that both are the same version: stop `stablehand serve` and start it again",
            ),
            ClientError::Refused(failure) => failure,
        }
    }
}

/// A connection to the daemon of one user on one machine. Every call opens its own.
#[derive(Clone, Debug)]
pub struct Client {
    socket: PathBuf,
}

impl Client {
    /// A client of the daemon behind this socket.
    pub fn new(socket: impl Into<PathBuf>) -> Self {
        Self { socket: socket.into() }
    }

    /// The socket.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// The present state.
    ///
    /// # Errors
    /// When the daemon cannot be reached or does not answer in time.
    pub async fn snapshot(&self) -> Result<Snapshot, ClientError> {
        let mut answer = self.get("/v1/snapshot").await?;
        let mut body = BytesMut::new();
        while let Some(part) = answer.part(Some(FIRST_ANSWER)).await? {
            body.extend_from_slice(&part);
        }
        answer.parse(&body)
    }

    /// Sends a request; its events are read from what comes back.
    ///
    /// # Errors
    /// When the daemon cannot be reached or does not begin to answer in time.
    ///
    /// Nothing is asked of a daemon of another version: it could understand the request otherwise.
    pub async fn request(&self, request: &Request) -> Result<Events, ClientError> {
        let daemon = self.get("/v1/snapshot").await?.daemon.clone();
        if daemon != env!("CARGO_PKG_VERSION") {
            return Err(ClientError::OtherVersion { daemon, client: env!("CARGO_PKG_VERSION") });
        }
        let body = serde_json::to_vec(request).map_err(|error| ClientError::Broken(error.to_string()))?;
        let answer = self.send("POST", "/v1/request", body).await?;
        Ok(Events { answer, buffer: BytesMut::new() })
    }

    /// Sends a request and waits for its end.
    ///
    /// # Errors
    /// When the daemon cannot be reached, or the connection breaks before the end.
    pub async fn ask(&self, request: &Request) -> Result<Ending, ClientError> {
        let mut events = self.request(request).await?;
        loop {
            if let Event::Result(ending) = events.next().await? {
                return Ok(*ending);
            }
        }
    }

    /// Snapshots as they change, the present one first. The daemon looks often for as long as these are read.
    ///
    /// # Errors
    /// When the daemon cannot be reached.
    pub async fn changes(&self) -> Result<Changes, ClientError> {
        Ok(Changes { answer: self.get("/v1/events").await?, buffer: BytesMut::new() })
    }

    /// The same for somebody whom nobody looks at: the daemon looks as often as it would by itself.
    ///
    /// # Errors
    /// When the daemon cannot be reached.
    pub async fn changes_at_rest(&self) -> Result<Changes, ClientError> {
        Ok(Changes { answer: self.get("/v1/events?pace=at-rest").await?, buffer: BytesMut::new() })
    }

    /// The last while, in this many points.
    ///
    /// # Errors
    /// When the daemon cannot be reached or does not answer in time.
    pub async fn past(&self, since_s: u64, points: u32) -> Result<Past, ClientError> {
        let mut answer = self.get(&format!("/v1/history?since_s={since_s}&points={points}")).await?;
        let mut body = BytesMut::new();
        while let Some(part) = answer.part(Some(FIRST_ANSWER)).await? {
            body.extend_from_slice(&part);
        }
        answer.parse(&body)
    }

    /// The metrics in Prometheus' text format.
    ///
    /// # Errors
    /// When the daemon cannot be reached or does not answer in time.
    pub async fn metrics(&self) -> Result<String, ClientError> {
        let mut answer = self.get("/metrics").await?;
        let mut body = BytesMut::new();
        while let Some(part) = answer.part(Some(FIRST_ANSWER)).await? {
            body.extend_from_slice(&part);
        }
        Ok(String::from_utf8_lossy(&body).into_owned())
    }

    async fn get(&self, path: &str) -> Result<Answer, ClientError> {
        self.send("GET", path, Vec::new()).await
    }

    async fn send(&self, method: &str, path: &str, body: Vec<u8>) -> Result<Answer, ClientError> {
        let sent = async {
            let stream = UnixStream::connect(&self.socket).await.map_err(|error| self.connect_error(&error))?;
            let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(broken)?;
            let driver = tokio::spawn(async move {
                // Its end is seen by whoever reads the body.
                let _ = connection.await;
            });
            let request = hyper::Request::builder()
                .method(method)
                .uri(path)
                .header("host", "localhost")
                .header("content-type", "application/json")
                .body(Full::new(Bytes::from(body)))
                .map_err(|error| ClientError::Broken(error.to_string()))?;
            let response = sender.send_request(request).await.map_err(broken)?;
            Ok((response, sender, driver))
        };
        let (response, sender, driver) =
            tokio::time::timeout(FIRST_ANSWER, sent).await.map_err(|_| ClientError::Silent)??;
        let daemon = response
            .headers()
            .get(VERSION_HEADER)
            .and_then(|value| value.to_str().ok())
            .unwrap_or("unknown")
            .to_owned();
        let status = response.status();
        let mut answer = Answer { daemon, body: response.into_body(), _sender: sender, driver };
        if status.is_success() {
            return Ok(answer);
        }
        let mut text = BytesMut::new();
        while let Some(part) = answer.part(Some(FIRST_ANSWER)).await? {
            text.extend_from_slice(&part);
        }
        Err(match serde_json::from_slice::<Failure>(&text) {
            Ok(failure) => ClientError::Refused(failure),
            Err(_) => answer.strange(format!("status {status} for {path}")),
        })
    }

    fn connect_error(&self, error: &io::Error) -> ClientError {
        let kind = error.kind();
        if kind == io::ErrorKind::NotFound || kind == io::ErrorKind::ConnectionRefused {
            ClientError::NotRunning(self.socket.clone())
        } else if kind == io::ErrorKind::PermissionDenied {
            ClientError::NotOurs(self.socket.clone())
        } else {
            ClientError::Broken(error.to_string())
        }
    }
}

/// The events of one request.
#[derive(Debug)]
pub struct Events {
    answer: Answer,
    buffer: BytesMut,
}

impl Events {
    /// The next event; after [`Event::Result`] nothing comes any more.
    ///
    /// # Errors
    /// When the connection ends before the result.
    pub async fn next(&mut self) -> Result<Event, ClientError> {
        match self.answer.line(&mut self.buffer).await? {
            Some(line) => self.answer.parse(&line),
            None => Err(ClientError::Broken("it ended before the result; what was begun goes on".to_owned())),
        }
    }
}

/// Snapshots as they change.
#[derive(Debug)]
pub struct Changes {
    answer: Answer,
    buffer: BytesMut,
}

impl Changes {
    /// The next snapshot; `None` when the daemon ends.
    ///
    /// # Errors
    /// When the connection breaks or an event cannot be understood.
    pub async fn next(&mut self) -> Result<Option<Snapshot>, ClientError> {
        while let Some(line) = self.answer.line(&mut self.buffer).await? {
            // Only `data:` lines matter here; comments keep the connection open, `event:` is always the same.
            if let Some(data) = line.strip_prefix(b"data:") {
                return self.answer.parse(data).map(Some);
            }
        }
        Ok(None)
    }
}

#[derive(Debug)]
struct Answer {
    daemon: String,
    body: Incoming,
    /// The connection closes when its last sender goes.
    _sender: http1::SendRequest<Full<Bytes>>,
    driver: tokio::task::JoinHandle<()>,
}

impl Drop for Answer {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

impl Answer {
    async fn part(&mut self, deadline: Option<Duration>) -> Result<Option<Bytes>, ClientError> {
        loop {
            let frame = match deadline {
                Some(span) => tokio::time::timeout(span, self.body.frame()).await.map_err(|_| ClientError::Silent)?,
                None => self.body.frame().await,
            };
            match frame {
                None => return Ok(None),
                Some(Err(error)) => return Err(broken(error)),
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        return Ok(Some(data));
                    }
                }
            }
        }
    }

    async fn line(&mut self, buffer: &mut BytesMut) -> Result<Option<Vec<u8>>, ClientError> {
        loop {
            if let Some(end) = buffer.iter().position(|byte| *byte == b'\n') {
                let line = buffer.split_to(end + 1);
                return Ok(Some(line[..end].to_vec()));
            }
            if buffer.len() > LINE_LIMIT_BYTES {
                return Err(self.strange("a line without an end".to_owned()));
            }
            match self.part(None).await? {
                Some(part) => buffer.extend_from_slice(&part),
                None => return Ok(None),
            }
        }
    }

    fn parse<T: serde::de::DeserializeOwned>(&self, text: &[u8]) -> Result<T, ClientError> {
        serde_json::from_slice(text).map_err(|error| self.strange(error.to_string()))
    }

    fn strange(&self, what: String) -> ClientError {
        ClientError::Strange { daemon: self.daemon.clone(), client: env!("CARGO_PKG_VERSION"), what }
    }
}

fn broken(error: hyper::Error) -> ClientError {
    ClientError::Broken(error.to_string())
}
