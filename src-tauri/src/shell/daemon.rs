//! Following the daemon: snapshots as they come, and new tries when it is away.

use super::state::Tray;
use super::{changed, post_owed_notices};
use crate::link::{Loss, Seen};
use stablehand_protocol::client::ClientError;
use tauri::{AppHandle, Manager};

/// Follows it until the program ends.
pub async fn follow(app: AppHandle) {
    let tray = app.state::<Tray>();
    loop {
        match listen(&app, &tray).await {
            Ok(Heard::OtherPace) => continue,
            Ok(Heard::OtherVersion) => {}
            Err(error) => {
                tray.saw(Seen::Lost { loss: Loss::from(error), installed: tray.place.daemon_is_installed() });
                changed(&app);
            }
        }
        tokio::select! {
            () = tokio::time::sleep(tray.retry_after()) => {}
            () = tray.poke.notified() => {}
        }
    }
}

/// Why nothing more is heard, when nothing is wrong with the connection.
enum Heard {
    /// Somebody looks now, or nobody any more.
    OtherPace,
    /// The daemon is of another version.
    OtherVersion,
}

/// Takes in snapshots: often while somebody looks, else only what the daemon sees by itself.
async fn listen(app: &AppHandle, tray: &Tray) -> Result<Heard, ClientError> {
    let mut looked_at = tray.looked_at.subscribe();
    let often = *looked_at.borrow_and_update();
    let mut changes = if often { tray.client.changes().await? } else { tray.client.changes_at_rest().await? };
    loop {
        let snapshot = tokio::select! {
            snapshot = changes.next() => snapshot?,
            // Its sender lives as long as the program.
            _ = looked_at.changed() => return Ok(Heard::OtherPace),
        };
        let Some(snapshot) = snapshot else { return Err(ClientError::Broken("the daemon has ended".to_owned())) };
        let ours = snapshot.daemon_version == env!("CARGO_PKG_VERSION");
        tray.saw(Seen::Snapshot(Box::new(snapshot)));
        tray.poke_gateway.notify_one();
        changed(app);
        if !ours {
            return Ok(Heard::OtherVersion);
        }
        post_owed_notices(app);
    }
}
