//! What is exchanged with the gateway, over its control socket: *hold*, *release*, that it shall leave, and what is
//! known of the server behind it.
//!
//! A gateway that does not run is no failure for whoever wants it to hold: nobody's requests are in its hands.

use stablehand_platform::machine::Machine;
use stablehand_platform::paths::stablehand_files;
use stablehand_protocol::client::ClientError;
use stablehand_protocol::client::gateway::Gateway;
use stablehand_protocol::queue::{Done, Hold, QueueView, Upstream};
use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// How long the gateway may take to answer on its control socket, in real time.
const PATIENCE: Duration = Duration::from_secs(3);
/// How long it may take until its addresses are free.
const LEAVES_WITHIN: Duration = Duration::from_secs(6);

/// The word by which what we hold is released: an upgrade is a restart, too.
fn restart(at_most: Option<Duration>) -> Hold {
    Hold { why: "restart".to_owned(), model: None, for_s: at_most.map(|span| span.as_secs()) }
}

/// Why the gateway was not told.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    /// It does not run.
    #[error("the gateway does not run")]
    NotThere,
    /// It did not answer, or said no.
    #[error("the gateway was not told: {0}")]
    Broken(String),
}

/// A way to the gateway. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Link {
    client: Gateway,
    holding: Arc<AtomicBool>,
}

impl Link {
    /// The way to the gateway of this machine.
    pub fn new(machine: &Machine) -> Self {
        Self { client: Gateway::new(stablehand_files(machine).gateway_socket), holding: Arc::default() }
    }

    /// Whether we have told it to hold.
    pub fn is_holding(&self) -> bool {
        self.holding.load(Ordering::Relaxed)
    }

    /// Nothing is sent to Ollama any more, for at most this long; what comes waits.
    ///
    /// # Errors
    /// When a gateway runs and could not be told.
    pub async fn hold(&self, at_most: Duration) -> Result<(), LinkError> {
        self.holding.store(true, Ordering::Relaxed);
        unless_absent(within(PATIENCE, self.client.hold(&restart(Some(at_most)))).await)
    }

    /// What [`Self::hold`] held goes on.
    ///
    /// # Errors
    /// As for [`Self::hold`].
    pub async fn release(&self) -> Result<(), LinkError> {
        self.holding.store(false, Ordering::Relaxed);
        unless_absent(within(PATIENCE, self.client.release(&restart(None))).await)
    }

    /// It gives its addresses back, which are free when this returns; what is in it is served, then it ends.
    ///
    /// # Errors
    /// When it does not run, or could not be told.
    pub async fn leave(&self) -> Result<(), LinkError> {
        within(LEAVES_WITHIN, self.client.leave()).await.map(|_| ())
    }

    /// The server is there now.
    ///
    /// # Errors
    /// When it does not run, or could not be told.
    pub async fn move_to(&self, address: SocketAddr) -> Result<(), LinkError> {
        let upstream = Upstream { address: Some(address.to_string()), ..Upstream::default() };
        self.tell(&upstream).await
    }

    /// Tells what is known of the server.
    ///
    /// # Errors
    /// When it does not run, or could not be told.
    pub async fn tell(&self, upstream: &Upstream) -> Result<(), LinkError> {
        within(PATIENCE, self.client.tell(upstream)).await.map(|_: Done| ())
    }

    /// The queue.
    ///
    /// # Errors
    /// When it does not run, or does not tell.
    pub async fn queue(&self) -> Result<QueueView, LinkError> {
        within(PATIENCE, self.client.queue()).await
    }
}

async fn within<T>(patience: Duration, call: impl Future<Output = Result<T, ClientError>>) -> Result<T, LinkError> {
    match tokio::time::timeout(patience, call).await {
        Ok(Ok(said)) => Ok(said),
        Ok(Err(ClientError::NotRunning(_))) => Err(LinkError::NotThere),
        Ok(Err(
            error @ (ClientError::NotOurs(_)
            | ClientError::Silent
            | ClientError::Broken(_)
            | ClientError::Strange { .. }
            | ClientError::OtherVersion { .. }
            | ClientError::Refused(_)),
        )) => Err(LinkError::Broken(error.to_string())),
        Err(_) => Err(LinkError::Broken(format!("no answer within {} s", patience.as_secs()))),
    }
}

fn unless_absent(told: Result<Done, LinkError>) -> Result<(), LinkError> {
    match told {
        Ok(_) | Err(LinkError::NotThere) => Ok(()),
        Err(error @ LinkError::Broken(_)) => Err(error),
    }
}
