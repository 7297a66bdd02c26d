//! Following the gateway, which has a socket of its own: its queue as it changes while somebody looks, else now and then,
//! for the marks in the menu.

use super::changed;
use super::state::Tray;
use stablehand_protocol::Known;
use stablehand_protocol::client::ClientError;
use stablehand_protocol::client::gateway;
use stablehand_protocol::queue::QueueView;
use std::time::Duration;
use tauri::{AppHandle, Manager};

/// How long a gateway that runs is not asked while nobody looks.
const AT_REST: Duration = Duration::from_secs(30);
/// How soon one that has just ended, or come, is asked again while somebody looks.
const LOOKED_AT: Duration = Duration::from_secs(2);

/// Follows it until the program ends.
pub async fn follow(app: AppHandle) {
    let tray = app.state::<Tray>();
    let mut looked_at = tray.looked_at.subscribe();
    loop {
        let looks = *looked_at.borrow_and_update();
        let lost = if looks { listen(&app, &tray, &mut looked_at).await } else { tray.gateway.queue().await.map(Some) };
        let runs = match lost {
            // Somebody began or ended to look.
            Ok(None) => continue,
            Ok(Some(queue)) => took(&app, &tray, Some(Known::Is(Box::new(queue)))),
            Err(error) => took(&app, &tray, unknown(error)),
        };
        tokio::select! {
            // Without a gateway nothing is asked before the daemon says something, or somebody looks.
            () = tokio::time::sleep(if looks { LOOKED_AT } else { AT_REST }), if runs || looks => {}
            () = tray.poke_gateway.notified() => {}
            _ = looked_at.changed() => {}
        }
    }
}

/// Takes in the queue as it changes; `None` when somebody began or ended to look.
async fn listen(
    app: &AppHandle,
    tray: &Tray,
    looked_at: &mut tokio::sync::watch::Receiver<bool>,
) -> Result<Option<QueueView>, ClientError> {
    let mut changes = tray.gateway.changes().await?;
    loop {
        let queue = tokio::select! {
            queue = changes.next() => queue?,
            // Its sender lives as long as the program.
            _ = looked_at.changed() => return Ok(None),
        };
        let Some(queue) = queue else { return Err(ClientError::NotRunning(tray.place.gateway_socket.clone())) };
        took(app, tray, Some(Known::Is(Box::new(queue))));
    }
}

/// Shows it; whether a gateway runs.
fn took(app: &AppHandle, tray: &Tray, queue: Option<Known<Box<QueueView>>>) -> bool {
    let runs = queue.is_some();
    if tray.saw_queue(queue) {
        changed(app);
    }
    runs
}

/// No gateway is no news; one that does not tell is.
fn unknown(error: ClientError) -> Option<Known<Box<QueueView>>> {
    match error {
        ClientError::NotRunning(_) => None,
        ClientError::NotOurs(_)
        | ClientError::Silent
        | ClientError::Broken(_)
        | ClientError::Strange { .. }
        | ClientError::OtherVersion { .. }
        | ClientError::Refused(_) => Some(Known::unknown(gateway::failure(error).message)),
    }
}
