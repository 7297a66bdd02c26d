//! The window system: one task follows the daemon, the main thread draws.

mod answer;
mod carrier;
mod daemon;
mod frames;
mod gateway;
mod icons;
mod page;
mod state;
mod tray;
#[cfg(target_os = "linux")]
mod tray_host;
mod window;

use crate::arguments::Wish;
use crate::face::menu::Act;
use crate::face::words::Words;
use crate::instance::First;
use crate::notify;
use crate::place::Place;
use crate::popover;
use crate::{aside, face};
#[cfg(target_os = "linux")]
pub use carrier::page_process;
use stablehand_protocol::face::Matter;
use state::Tray;
use tauri::{AppHandle, Manager, RunEvent};
use tokio::runtime::Builder as Runtime;

/// Runs until the person quits.
///
/// # Errors
/// When there is no window system to run in.
pub fn run(place: Place, first: First, wish: Wish) -> tauri::Result<()> {
    // There is little to do at a time, and each thread costs memory.
    let runtime = Runtime::new_multi_thread().worker_threads(1).enable_all().build()?;
    tauri::async_runtime::set(runtime.handle().clone());
    let builder = tauri::Builder::default().manage(Tray::new(place)).setup(move |app| {
        begin(app.handle(), first, wish)?;
        Ok(())
    });
    carrier::build(builder, page::context())?.run(on_event);
    Ok(())
}

fn begin(app: &AppHandle, first: First, wish: Wish) -> Result<(), Box<dyn std::error::Error>> {
    #[cfg(target_os = "macos")]
    app.set_activation_policy(tauri::ActivationPolicy::Accessory)?;
    tray::begin(app)?;
    #[cfg(target_os = "linux")]
    tray_host::watch(app);
    tauri::async_runtime::spawn(daemon::follow(app.clone()));
    tauri::async_runtime::spawn(gateway::follow(app.clone()));
    let clicked = app.clone();
    notify::on_click(move |click| clicked_on(&clicked, click));
    let later = app.clone();
    first.hear(move |wish| fulfil(&later, wish))?;
    match wish {
        Wish::Stand => {}
        Wish::Open | Wish::Notify(_) | Wish::NotifyIfThere(_) => fulfil(app, wish),
    }
    Ok(())
}

fn on_event(app: &AppHandle, event: RunEvent) {
    // The last window is gone; only a person ends this program, through `exit`.
    if let RunEvent::ExitRequested { code: None, api, .. } = &event {
        api.prevent_exit();
    }
    carrier::on_event(app, &event);
    // The app was opened again in the Finder.
    #[cfg(target_os = "macos")]
    if let RunEvent::Reopen { .. } = event {
        come_for(app, None);
    }
}

/// Does what a copy of this program was started for. From any thread.
fn fulfil(app: &AppHandle, wish: Wish) {
    match wish {
        Wish::Stand | Wish::Open => come_for(app, None),
        Wish::Notify(kind) | Wish::NotifyIfThere(kind) => {
            let tray = app.state::<Tray>();
            tray.owe_notice(kind);
            post_owed_notices(app);
        }
    }
}

/// Posts what was asked for, once the daemon has been heard: its snapshot has the words.
fn post_owed_notices(app: &AppHandle) {
    let tray = app.state::<Tray>();
    let Some((kinds, snapshot)) = tray.owed_notices() else { return };
    for kind in kinds {
        let notice = face::notice::notice(Some(&snapshot), &kind, tray.is_simulated(), &tray.words());
        let refused = app.clone();
        notify::post(&kind, &notice, move |why| note(&refused, &why));
    }
}

/// A notification brings what it told of. Its button does the same, and asks for what it says.
fn clicked_on(app: &AppHandle, click: notify::Click) {
    let notify::Click { kind, deed } = click;
    come_for(app, Some(Matter::Alert { kind }));
    if let Some(ask) = deed {
        let app = app.clone();
        tauri::async_runtime::spawn(async move { answer::act(&app, Act::Ask(vec![ask])).await });
    }
}

/// Says why nothing was posted: in the icon, the menu and the page.
fn note(app: &AppHandle, why: &notify::Refusal) {
    let tray = app.state::<Tray>();
    tray.fail(why.failure(&tray.words()));
    changed(app);
}

/// Opens the popover at a matter. From any thread.
fn come_for(app: &AppHandle, matter: Option<Matter>) {
    let tray = app.state::<Tray>();
    tray.set_matter(matter);
    let shown = app.clone();
    on_main(app, move || {
        window::step(&shown, popover::Event::Wanted);
        changed(&shown);
    });
}

/// The view has changed: everything that shows it is drawn anew. From any thread.
fn changed(app: &AppHandle) {
    let tray = app.state::<Tray>();
    let view = tray.view();
    if tray.is_popover_shown() {
        carrier::tell(app, &view);
    }
    let drawn = app.clone();
    on_main(app, move || tray::draw(&drawn, &view));
}

fn on_main(app: &AppHandle, work: impl FnOnce() + Send + 'static) {
    // It fails when the program is about to end.
    let _ = app.run_on_main_thread(work);
}

/// A failure that nobody may see otherwise.
fn tell(app: &AppHandle, code: &str, values: &[(&str, &str)]) {
    let tray = app.state::<Tray>();
    let words: Words = Words::clone(&tray.words());
    let failure = words.failure(code, values);
    aside(&format!("stablehand-tray: {}\n  {}\n", failure.message, failure.hint));
    tray.fail(failure);
    changed(app);
}
