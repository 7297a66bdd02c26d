//! The one loop that joins the house.
//!
//! [`serve`] owns the engine's supervisor in one task ([`supervision`]): it looks at the machine ([`looking`]), feeds
//! what it saw to the engine, and performs the effects that come back. Clients talk to it through the control socket
//! ([`control`]) and get copies of its state; the change from engine values to protocol values happens in
//! [`translation`] alone. Verbs that work without a running daemon ([`installation`], [`doctor`], [`server_log`]) are
//! plain functions here.

pub mod configuration;
mod control;
pub mod doctor;
pub mod installation;
mod interruption;
mod looking;
mod memory;
mod models;
mod place;
mod presence;
pub mod server_log;
mod supervision;
mod translation;

pub use place::Place;

use stablehand_engine::plan::StepFailure;
use stablehand_platform::machine::Machine;
use stablehand_protocol::Failure;
use std::time::Duration;
use tokio::sync::{mpsc, watch};

/// How long the control socket stays closed at most while the first look is under way.
const FIRST_LOOK: Duration = Duration::from_secs(5);

/// Runs the daemon until it is told to end (SIGTERM, SIGINT).
///
/// The control socket answers only after the first look, so that whoever gets a snapshot gets one that was seen.
///
/// # Errors
/// When another daemon of this user runs, or the control socket cannot be made. Nothing was changed then.
pub async fn serve(machine: Machine) -> Result<(), Failure> {
    let _presence = presence::claim(&machine)?;
    let (commands, inbox) = mpsc::channel(16);
    let (snapshots, latest) = watch::channel(None);
    let supervision = tokio::spawn(supervision::run(machine.clone(), inbox, snapshots));
    let mut seen = latest.clone();
    let _ = tokio::time::timeout(FIRST_LOOK, seen.wait_for(Option::is_some)).await;
    let listener = presence::listen(&machine)?;
    tracing::info!(socket = %stablehand_platform::paths::stablehand_files(&machine).socket.display(), "ready");
    let control = tokio::spawn(control::serve(listener, machine.uid(), commands, latest));
    let ended = supervision.await;
    control.abort();
    presence::leave(&machine);
    ended.map_err(|error| Failure::new("daemon-broke", format!("the supervision loop broke: {error}"), ""))
}

/// What is said of a setting that the catalogue does not hold.
pub fn no_such_setting(name: &str) -> Failure {
    match stablehand_ollama::catalogue::check(name, "1", None) {
        Err(refused) => Failure::new(refused.code, refused.to_string(), refused.hint),
        Ok(_) => Failure::new(
            "setting-not-shown",
            format!("the daemon does not report {name}"),
            "see `stablehand settings list --all`",
        ),
    }
}

/// A failure of a step as a client gets it.
fn failure_of(failure: &StepFailure) -> Failure {
    Failure::new(failure.code, failure.message.clone(), failure.hint.clone())
}
