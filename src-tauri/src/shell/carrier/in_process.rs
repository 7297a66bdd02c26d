//! The popover's window in this process.

use crate::placement::Area;
use crate::popover::Event;
use crate::shell::page::{self, Host};
use crate::shell::state::Tray;
use crate::shell::{answer, tray, window};
use stablehand_protocol::face::{Answer, Ask, View};
use std::pin::Pin;
use tauri::{App, AppHandle, Builder, Context, Manager, RunEvent, Wry};

/// The tray itself.
struct Here;

impl Host for Here {
    fn ask(&self, app: AppHandle, ask: Ask) -> Pin<Box<dyn Future<Output = Answer> + Send>> {
        Box::pin(async move { answer::answer(&app, ask).await })
    }

    fn happened(&self, app: &AppHandle, event: Event) {
        window::step(app, event);
    }

    fn icon(&self, app: &AppHandle) -> Option<Area> {
        tray::icon_area(app)
    }
}

/// The program with what its popover needs.
pub fn build(builder: Builder<Wry>, context: Context<Wry>) -> tauri::Result<App> {
    page::prepare(builder, Here).build(context)
}

/// Makes it, and shows it once there is something to see. On the main thread.
///
/// # Errors
/// Why that does not work.
pub fn create(app: &AppHandle) -> Result<(), String> {
    page::create(app, &app.state::<Tray>().view()).map_err(|error| error.to_string())
}

/// Shows it again; `false` when it is gone. On the main thread.
pub fn show(app: &AppHandle) -> bool {
    page::show(app)
}

/// Hides it. On the main thread.
pub fn hide(app: &AppHandle) {
    page::hide(app);
}

/// Takes it away with all its memory. On the main thread.
pub fn destroy(app: &AppHandle) {
    page::destroy(app);
}

/// Tells its page what there is to show.
pub fn tell(app: &AppHandle, view: &View) {
    page::tell(app, view);
}

/// Passes on what happens to its window.
pub fn on_event(app: &AppHandle, event: &RunEvent) {
    page::on_event(app, event);
}
