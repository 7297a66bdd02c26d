//! The one loop that joins the house.
//!
//! [`serve`] owns the engine's supervisor in one task ([`supervision`]): it looks at the machine ([`looking`]), feeds
//! what it saw to the engine, and performs the effects that come back. Clients talk to it through the control socket
//! ([`control`]) and get copies of its state; the change from engine values to protocol values happens in
//! [`translation`] alone. Verbs that work without a running daemon ([`installation`], [`doctor`], [`quarantine`],
//! [`server_log`]) are plain functions here.

mod alerts;
pub mod configuration;
mod control;
pub mod doctor;
mod gateway;
mod gauges;
pub mod history;
pub mod installation;
mod interruption;
mod looking;
mod memory;
pub mod metrics;
mod models;
mod phrases;
mod place;
mod presence;
pub mod quarantine;
pub mod server_log;
mod supervision;
mod translation;
mod upgrading;
mod watching;

pub use place::Place;

use history::History;
use stablehand_engine::Known;
use stablehand_engine::plan::StepFailure;
use stablehand_engine::time::Wall;
use stablehand_platform::machine::Machine;
use stablehand_platform::survey::Surveyor;
use stablehand_protocol::Failure;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Mutex, mpsc, watch};

/// How long the control socket stays closed at most while the first look is under way.
const FIRST_LOOK: Duration = Duration::from_secs(5);

/// Runs the daemon until it is told to end (SIGTERM, SIGINT).
///
/// The control socket answers only after the first look, so that whoever gets a snapshot gets one that was seen.
///
/// # Errors
/// When another daemon of this user runs, or the control socket cannot be made. Nothing was changed then.
pub async fn serve(machine: Machine) -> Result<(), Failure> {
    let started = machine.clock().now().wall;
    let _presence = presence::claim(&machine)?;
    let (commands, inbox) = mpsc::channel(16);
    let (snapshots, latest) = watch::channel(None);
    let (seen, seen_by_watching) = watch::channel(None);
    let (configuration, configuration_of_watching) = watch::channel(configuration::Configuration::default());
    let (notices, notices_of_watching) = mpsc::channel(16);
    let (standing, standing_now) = watch::channel(std::collections::BTreeSet::new());
    let (watched, watched_now) = watch::channel(None);
    let (asks, asked) = mpsc::channel(16);
    let (lookers, lookers_now) = watch::channel(0);
    let (upgrades, upgrades_asked) = mpsc::channel(16);
    let (charges, charged) = mpsc::channel(4);
    let (versions, versions_now) = watch::channel(None);
    let (history, note) = History::open(&machine);
    if let Some(note) = note {
        tracing::warn!(%note, "history");
    }
    let surveyor = Arc::new(Mutex::new(Surveyor::new(machine.clone(), stablehand_ollama::argv::role)));
    let link = gateway::link::Link::new(&machine);
    let (view, gateway_seen) = watch::channel(gateway::view::View::default());
    let of_gateway = gateway::view::Links {
        seen: seen_by_watching.clone(),
        configuration: configuration_of_watching.clone(),
        view,
        link: link.clone(),
    };
    let checking = tokio::spawn(gateway::view::run(machine.clone(), of_gateway));
    let missing = tokio::spawn(gateway::missing::run(link.clone(), machine.clock().clone(), notices.clone()));
    let links = supervision::Links {
        gateway: gateway_seen,
        link: link.clone(),
        snapshots,
        seen,
        configuration,
        notices: notices_of_watching,
        standing: standing_now,
        watched: watched_now.clone(),
        asks,
        upgrades,
        charges: charged,
        versions: versions_now,
        handed_over: upgrading::was_cut_off(&machine),
    };
    let upgrading = upgrading::Links {
        requests: upgrades_asked,
        charges,
        commands: commands.clone(),
        seen: seen_by_watching.clone(),
        configuration: configuration_of_watching.clone(),
        watched: watched_now,
        notices: notices.clone(),
        versions,
    };
    let upgrading = tokio::spawn(upgrading::run(machine.clone(), Arc::clone(&surveyor), history.clone(), upgrading));
    let supervision =
        tokio::spawn(supervision::run(machine.clone(), Arc::clone(&surveyor), history.clone(), inbox, links));
    let watching = tokio::spawn(watching::run(
        machine.clone(),
        surveyor,
        history.clone(),
        watching::Links {
            seen: seen_by_watching,
            configuration: configuration_of_watching,
            restarts: commands.clone(),
            notices,
            standing,
            lookers: lookers_now,
            link,
            watched,
        },
        asked,
    ));
    let mut seen = latest.clone();
    let _ = tokio::time::timeout(FIRST_LOOK, seen.wait_for(Option::is_some)).await;
    let listener = presence::listen(&machine)?;
    tracing::info!(socket = %stablehand_platform::paths::stablehand_files(&machine).socket.display(), "ready");
    let control = tokio::spawn(control::serve(
        listener,
        machine.uid(),
        control::Reach { commands, latest, lookers, history, started, clock: machine.clock().clone() },
    ));
    let ended = supervision.await;
    control.abort();
    watching.abort();
    upgrading.abort();
    checking.abort();
    missing.abort();
    presence::leave(&machine);
    ended.map_err(|error| Failure::new("daemon-broke", format!("the supervision loop broke: {error}"), ""))
}

/// Carries one deed of an upgrade out, as root; what came of it, as JSON for the daemon that asked.
///
/// # Errors
/// When nothing was begun.
pub async fn deed_as_root(place: &Place, deed: &str, order: &[u8]) -> Result<String, Failure> {
    upgrading::deed_as_root(place.machine(), deed, order).await
}

/// How the history is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HistoryForm {
    /// Events and numbers as one JSON object.
    Json,
    /// Numbers as CSV.
    Csv,
    /// Events as CSV.
    Events,
}

/// The history of the last `span`, read from its file; it works without a running daemon.
///
/// # Errors
/// When there is no history, or it cannot be read.
pub fn history_text(place: &Place, span: Duration, form: HistoryForm) -> Result<String, Failure> {
    let machine = place.machine();
    let span_ms = i64::try_from(span.as_millis()).unwrap_or(i64::MAX);
    let since = Wall::from_unix_ms(machine.clock().now().wall.unix_ms.saturating_sub(span_ms));
    let recorded = history::read(&history::path(machine), since).map_err(|error| {
        Failure::new("no-history", error.to_string(), "the daemon keeps it while it runs: `stablehand serve`")
    })?;
    Ok(match form {
        HistoryForm::Json => format!("{}\n", history::export::json(&recorded)),
        HistoryForm::Csv => history::export::rows_csv(&recorded.rows),
        HistoryForm::Events => history::export::entries_csv(&recorded.entries),
    })
}

/// What Metal lets this very process use; the daemon asks a short-lived child for it.
///
/// # Errors
/// The reason, where it cannot be told.
pub fn gpu_working_set() -> Result<u64, String> {
    match stablehand_platform::sampling::gpu_working_set_of_this_process() {
        Known::Is(bytes) => Ok(bytes),
        Known::Unknown(reason) => Err(reason),
    }
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
