//! Whether this desktop shows tray icons. A panel may come after us at login, so one that is missing is missed after a
//! while only, and no longer when it comes.

use super::state::Tray;
use super::{changed, come_for, tell};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tauri::{AppHandle, Manager};

/// The service that trays register with (freedesktop.org, StatusNotifierItem).
const WATCHER: &str = "org.kde.StatusNotifierWatcher";
const CODE: &str = "no-tray-host";
const PATIENCE: Duration = Duration::from_secs(8);

/// Watches for it until the program ends. On the main thread.
pub fn watch(app: &AppHandle) {
    let present = Arc::new(AtomicBool::new(false));
    let (there, gone) = (present.clone(), present.clone());
    let (app_there, app_gone) = (app.clone(), app.clone());
    let _ = gio::bus_watch_name(
        gio::BusType::Session,
        WATCHER,
        gio::BusNameWatcherFlags::NONE,
        move |_, _, _| {
            there.store(true, Ordering::Relaxed);
            let tray = app_there.state::<Tray>();
            tray.mended(CODE);
            tray.keep_popover(false);
            changed(&app_there);
        },
        move |_, _| {
            gone.store(false, Ordering::Relaxed);
            let (present, app) = (gone.clone(), app_gone.clone());
            gio::glib::timeout_add_local_once(PATIENCE, move || {
                if !present.load(Ordering::Relaxed) {
                    app.state::<Tray>().keep_popover(true);
                    tell(&app, CODE, &[]);
                    come_for(&app, None);
                }
            });
        },
    );
}
