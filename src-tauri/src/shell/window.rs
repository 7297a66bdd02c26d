//! The popover's life, carried out.

use super::state::Tray;
use super::{carrier, changed, on_main, tell};
use crate::popover::{Act, Event, KEPT_HIDDEN};
use tauri::{AppHandle, Manager};

/// Steps it and does what comes of it. On the main thread.
pub fn step(app: &AppHandle, event: Event) {
    let state = app.state::<Tray>();
    match state.step_popover(event) {
        None => {}
        Some(Act::Create) => {
            if let Err(why) = carrier::create(app) {
                state.step_popover(Event::Gone);
                tell(app, "window-failed", &[("why", &why)]);
            }
        }
        Some(Act::Show) => {
            if carrier::show(app) {
                changed(app);
            } else {
                state.step_popover(Event::Gone);
                step(app, Event::Wanted);
            }
        }
        Some(Act::Hide) => {
            carrier::hide(app);
            let later = app.clone();
            tauri::async_runtime::spawn(async move {
                tokio::time::sleep(KEPT_HIDDEN).await;
                let app = later.clone();
                on_main(&later, move || step(&app, Event::Elapsed));
            });
        }
        Some(Act::Destroy) => carrier::destroy(app),
    }
}
