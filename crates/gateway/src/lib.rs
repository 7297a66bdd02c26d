//! The front door for requests: many come in at once, as many go to Ollama as it has slots for.
//!
//! A client's connection is one task ([`listening`]); a request on it is one future of that task ([`front`]), so that
//! a client that goes takes everything of its request with it. Only inference waits. Whether and when a request may be
//! sent is decided by `stablehand_engine::admission`, which one task owns ([`queue`]); the permit lives in the body of
//! the answer ([`relay`]) and ends with it. Bodies pass byte for byte, and headers too, except those that concern one
//! connection ([`headers`]).
//!
//! The whole is put together in [`gateway`], told what to do through [`control`], and measured by [`metrics`]. It is a
//! process of its own: it goes on while the daemon restarts, with what it last knew.

mod access_log;
mod answer;
mod callers;
pub mod configuration;
mod control;
mod counts;
mod doorway;
mod early;
mod family;
mod form;
mod front;
mod gateway;
mod head_timer;
mod headers;
mod intake;
mod keys;
mod listening;
mod looking;
mod malformed;
mod metrics;
mod queue;
mod relay;
mod rewriting;
mod route;
mod scan;
mod sending;
#[cfg(test)]
mod testing;
mod upstream;

pub use gateway::Gateway;

use stablehand_platform::machine::Machine;
use stablehand_platform::paths::stablehand_files;
use stablehand_protocol::Failure;
use std::path::PathBuf;
use tokio::signal::unix::{SignalKind, signal};

/// The control socket of the gateway on a machine.
pub fn socket(machine: &Machine) -> PathBuf {
    stablehand_files(machine).gateway_socket
}

/// Runs the gateway until it is told to end (SIGTERM, SIGINT), or has left its addresses and served everybody.
///
/// # Errors
/// As [`Gateway::start`].
pub async fn serve(machine: Machine) -> Result<(), Failure> {
    let gateway = Gateway::start(machine).await?;
    tokio::select! {
        () = told_to_end() => {}
        () = gateway.left() => {}
    }
    gateway.stop().await;
    Ok(())
}

async fn told_to_end() {
    let signals = [SignalKind::interrupt(), SignalKind::terminate()].map(signal);
    let [Ok(mut interrupt), Ok(mut terminate)] = signals else { return std::future::pending().await };
    tokio::select! { _ = interrupt.recv() => {}, _ = terminate.recv() => {} }
}
