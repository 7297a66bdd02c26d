//! The client of the gateway's socket.

use super::{Client, ClientError, FIRST_ANSWER};
use crate::Failure;
use crate::queue::{Done, Hold, ModelCosts, MoveTo, QueueView, Upstream};
use bytes::BytesMut;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// A connection to the gateway of one user on one machine. Every call opens its own.
#[derive(Clone, Debug)]
pub struct Gateway {
    client: Client,
}

impl Gateway {
    /// A client of the gateway behind this socket.
    pub fn new(socket: impl Into<PathBuf>) -> Self {
        Self { client: Client::new(socket) }
    }

    /// The queue as it stands.
    ///
    /// # Errors
    /// When the gateway cannot be reached or does not answer in time; so for all of these.
    pub async fn queue(&self) -> Result<QueueView, ClientError> {
        self.call("GET", "/v1/queue", &()).await
    }

    /// The queue on every change, the present state first.
    ///
    /// # Errors
    /// When the gateway cannot be reached.
    pub async fn changes(&self) -> Result<QueueChanges, ClientError> {
        Ok(QueueChanges { answer: self.client.get("/v1/queue/events").await?, buffer: BytesMut::new() })
    }

    /// Takes a waiting request out.
    ///
    /// # Errors
    /// Also when no such request waits.
    pub async fn drop_request(&self, id: u64) -> Result<Done, ClientError> {
        self.call("DELETE", &format!("/v1/queue/{id}"), &()).await
    }

    /// Puts a waiting request into another lane.
    ///
    /// # Errors
    /// Also when no such request waits, or there is no such lane.
    pub async fn move_request(&self, id: u64, lane: &str) -> Result<Done, ClientError> {
        self.call("POST", &format!("/v1/queue/{id}/lane"), &MoveTo { lane: lane.to_owned() }).await
    }

    /// Admits nothing until [`Self::resume`].
    ///
    /// # Errors
    /// See [`Self::queue`].
    pub async fn pause(&self) -> Result<Done, ClientError> {
        self.call("POST", "/v1/pause", &()).await
    }

    /// Ends a pause.
    ///
    /// # Errors
    /// See [`Self::queue`].
    pub async fn resume(&self) -> Result<Done, ClientError> {
        self.call("POST", "/v1/resume", &()).await
    }

    /// Holds requests for a restart, an upgrade or a recovery.
    ///
    /// # Errors
    /// See [`Self::queue`].
    pub async fn hold(&self, hold: &Hold) -> Result<Done, ClientError> {
        self.call("POST", "/v1/hold", hold).await
    }

    /// Ends such a hold.
    ///
    /// # Errors
    /// See [`Self::queue`].
    pub async fn release(&self, hold: &Hold) -> Result<Done, ClientError> {
        self.call("POST", "/v1/release", hold).await
    }

    /// Gives the addresses back; what is in the gateway is served, then it ends.
    ///
    /// # Errors
    /// See [`Self::queue`].
    pub async fn leave(&self) -> Result<Done, ClientError> {
        self.call("POST", "/v1/leave", &()).await
    }

    /// Tells what is known of the server.
    ///
    /// # Errors
    /// Also when the address is not one of this machine's loopback.
    pub async fn tell(&self, upstream: &Upstream) -> Result<Done, ClientError> {
        self.call("PUT", "/v1/upstream", upstream).await
    }

    /// What models cost, as measured.
    ///
    /// # Errors
    /// See [`Self::queue`].
    pub async fn costs(&self) -> Result<BTreeMap<String, ModelCosts>, ClientError> {
        self.call("GET", "/v1/costs", &()).await
    }

    /// The metrics in Prometheus' text format.
    ///
    /// # Errors
    /// See [`Self::queue`].
    pub async fn metrics(&self) -> Result<String, ClientError> {
        self.client.metrics().await
    }

    async fn call<T: DeserializeOwned>(
        &self,
        method: &str,
        path: &str,
        body: &impl Serialize,
    ) -> Result<T, ClientError> {
        let body = serde_json::to_vec(body).map_err(|error| ClientError::Broken(error.to_string()))?;
        let body = if body == b"null" { Vec::new() } else { body };
        let mut answer = self.client.send(method, path, body).await?;
        let mut text = BytesMut::new();
        while let Some(part) = answer.part(Some(FIRST_ANSWER)).await? {
            text.extend_from_slice(&part);
        }
        answer.parse(&text)
    }
}

/// The queue as it changes.
#[derive(Debug)]
pub struct QueueChanges {
    answer: super::Answer,
    buffer: BytesMut,
}

impl QueueChanges {
    /// The next state; `None` when the gateway ends.
    ///
    /// # Errors
    /// When the connection breaks or an event cannot be understood.
    pub async fn next(&mut self) -> Result<Option<QueueView>, ClientError> {
        while let Some(line) = self.answer.line(&mut self.buffer).await? {
            if let Some(data) = line.strip_prefix(b"data:") {
                return self.answer.parse(data).map(Some);
            }
        }
        Ok(None)
    }
}

/// What a person is told when the gateway cannot be talked to.
pub fn failure(error: ClientError) -> Failure {
    match error {
        ClientError::NotRunning(socket) => Failure::new(
            "gateway-not-running",
            format!("the gateway is not running (no one listens on {}); nothing was changed", socket.display()),
            "let it stand before Ollama with `stablehand gateway on`, or run it with `stablehand serve --gateway`",
        ),
        ClientError::NotOurs(socket) => Failure::new(
            "gateway-not-ours",
            format!("the gateway's socket {} belongs to another user; nothing was changed", socket.display()),
            "run this as that user",
        ),
        ClientError::Silent => Failure::new(
            "gateway-silent",
            format!("the gateway does not answer within {} s", FIRST_ANSWER.as_secs()),
            "the daemon restarts a gateway that does not answer; `stablehand gateway status` tells",
        ),
        ClientError::Broken(what) => Failure::new(
            "gateway-connection",
            format!("the connection to the gateway broke: {what}"),
            "see whether it still runs: `stablehand gateway status`",
        ),
        ClientError::Strange { daemon, client, what } => Failure::new(
            "gateway-version",
            format!(
                "the gateway (version {daemon}) says something that this version ({client}) does not understand: {what}"
            ),
            "restart the gateway so that both are the same version",
        ),
        other @ (ClientError::OtherVersion { .. } | ClientError::Refused(_)) => other.into(),
    }
}
