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
        if let Err(error) = listen(&app, &tray).await {
            tray.saw(Seen::Lost { loss: Loss::from(error), installed: tray.place.daemon_is_installed() });
            changed(&app);
        }
        tokio::select! {
            () = tokio::time::sleep(tray.retry_after()) => {}
            () = tray.poke.notified() => {}
        }
    }
}

/// Takes in snapshots until there are no more, or the daemon turns out to be of another version.
async fn listen(app: &AppHandle, tray: &Tray) -> Result<(), ClientError> {
    let mut changes = tray.client.changes().await?;
    while let Some(snapshot) = changes.next().await? {
        let ours = snapshot.daemon_version == env!("CARGO_PKG_VERSION");
        tray.saw(Seen::Snapshot(Box::new(snapshot)));
        changed(app);
        if !ours {
            return Ok(());
        }
        post_owed_notices(app);
    }
    Err(ClientError::Broken("the daemon has ended".to_owned()))
}
