//! The front door for requests: many come in at once, as many go to Ollama as it has slots for.
//!
//! A client's connection is one task ([`listening`]); a request on it is one future of that task ([`front`]), so that
//! a client that goes takes everything of its request with it. Only inference waits. Whether and when a request may be
//! sent is decided by `stablehand_engine::admission`, which one task owns ([`queue`]); the permit lives in the body of
//! the answer ([`relay`]) and ends with it. Bodies pass byte for byte, and headers too, except those that concern one
//! connection ([`headers`]).
//!
//! The gateway is a process of its own: it goes on while the daemon restarts, with what it last knew.

#![expect(dead_code, reason = "the queue is joined next")]

mod answer;
pub mod configuration;
mod doorway;
mod family;
mod front;
mod headers;
mod listening;
mod queue;
mod relay;
mod sending;
mod upstream;

use configuration::ConfigurationFile;
use doorway::Origins;
use front::Front;
use listening::Phase;
use queue::Queue;
use stablehand_platform::machine::Machine;
use stablehand_protocol::Failure;
use std::sync::Arc;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{Semaphore, watch};
use upstream::Upstream;

/// Runs the gateway until it is told to end (SIGTERM, SIGINT).
///
/// # Errors
/// When its configuration cannot be taken, or one of its addresses is not to be had. Nothing was changed then.
pub async fn serve(machine: Machine) -> Result<(), Failure> {
    let file = ConfigurationFile::open(&machine)?;
    let configuration = file.current();
    let mut listeners = Vec::new();
    for address in &configuration.listen {
        listeners.push(listening::open(*address).map_err(|error| unbindable(*address, &error))?);
    }
    let (_configurations, configuration_now) = watch::channel(configuration.clone());
    let (_origins, origins_now) = watch::channel(Arc::new(Origins::new(configuration.origins.clone())));
    let (phases, phase) = watch::channel(Phase::Open);
    let front = Arc::new(Front {
        configuration: configuration_now,
        origins: origins_now,
        upstream: Upstream::new(configuration.upstream),
        queue: Queue::start(configuration.limits.clone(), machine.clock().clone()),
        hostname: rustix::system::uname().nodename().to_string_lossy().into_owned(),
    });
    let room = Arc::new(Semaphore::new(configuration.bounds.connections));
    for listener in listeners {
        let address = listener.local_addr().map(|address| address.to_string()).unwrap_or_default();
        tracing::info!(%address, upstream = %configuration.upstream, "the gateway listens");
        tokio::spawn(listening::accept(listener, front.clone(), room.clone(), phase.clone()));
    }
    told_to_end().await;
    phases.send_replace(Phase::Stopping);
    // Every connection holds a place; when all are back, everybody has gone.
    let everybody = u32::try_from(configuration.bounds.connections).unwrap_or(u32::MAX);
    let _ = tokio::time::timeout(configuration.bounds.drain, room.acquire_many(everybody)).await;
    Ok(())
}

async fn told_to_end() {
    let signals = [SignalKind::interrupt(), SignalKind::terminate()].map(signal);
    let [Ok(mut interrupt), Ok(mut terminate)] = signals else { return std::future::pending().await };
    tokio::select! { _ = interrupt.recv() => {}, _ = terminate.recv() => {} }
}

fn unbindable(address: std::net::SocketAddr, error: &std::io::Error) -> Failure {
    let hint = if error.kind() == std::io::ErrorKind::AddrInUse {
        "somebody listens there already (`stablehand doctor` says who); `listen` in [gateway] names the addresses"
    } else {
        "`listen` in [gateway] of the configuration names the addresses"
    };
    Failure::new(
        "address-not-to-be-had",
        format!("{address} cannot be listened on: {error}; no gateway was started"),
        hint,
    )
}
