//! The popover as its page sees it: a window with one page, the command `ask` and the event `view`. Who answers, and who
//! hears what happens to the window, is the [`Host`].

use super::frames::{self, Frames};
use crate::placement::{Area, corner};
use crate::popover::Event;
use stablehand_protocol::face::{Answer, Ask, EVENT, View};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use tauri::webview::PageLoadEvent;
use tauri::{
    AppHandle, Builder, Context, Emitter, Manager, PhysicalPosition, RunEvent, WebviewUrl, WebviewWindow,
    WebviewWindowBuilder, WindowEvent, Wry,
};

/// The window's label.
const LABEL: &str = "popover";
/// Where the page finds what it shows first (ui/src/backend/tauri.ts).
const FIRST_VIEW: &str = "stablehandView";
const WIDTH: f64 = 420.0;
const HEIGHT: f64 = 640.0;

/// Whoever carries the popover.
pub trait Host: Send + Sync + 'static {
    /// Answers the page.
    fn ask(&self, app: AppHandle, ask: Ask) -> Pin<Box<dyn Future<Output = Answer> + Send>>;
    /// Something happened to the window.
    fn happened(&self, app: &AppHandle, event: Event);
    /// Where the icon is, in physical pixels, where the system tells.
    fn icon(&self, app: &AppHandle) -> Option<Area>;
}

struct Page {
    host: Box<dyn Host>,
    /// Whether it is to be seen. The page is not there yet when the window is made.
    wanted: AtomicBool,
}

/// The page's one command.
#[tauri::command]
async fn ask(app: AppHandle, ask: Ask) -> Answer {
    let answered = app.state::<Page>().host.ask(app.clone(), ask);
    answered.await
}

/// What the program needs for it.
pub fn prepare(builder: Builder<Wry>, host: impl Host) -> Builder<Wry> {
    let page = Page { host: Box::new(host), wanted: AtomicBool::new(false) };
    builder.manage(page).invoke_handler(tauri::generate_handler![ask])
}

/// The pages and rights that are compiled in.
pub fn context() -> Context<Wry> {
    tauri::generate_context!()
}

/// Makes it with what there is to show, and shows it once there is something to see. On the main thread.
///
/// # Errors
/// When the system gives no window or no web view.
pub fn create(app: &AppHandle, view: &View) -> tauri::Result<()> {
    let view = serde_json::to_string(view)?;
    app.state::<Page>().wanted.store(true, Ordering::Relaxed);
    let builder = WebviewWindowBuilder::new(app, LABEL, WebviewUrl::App("index.html".into()))
        .title("Stablehand")
        .inner_size(WIDTH, HEIGHT)
        .decorations(false)
        .resizable(false)
        .maximizable(false)
        .always_on_top(true)
        .visible_on_all_workspaces(true)
        .skip_taskbar(true)
        .visible(false)
        .disable_drag_drop_handler()
        .initialization_script(format!("window.{FIRST_VIEW} = {view};"))
        // The page is ours alone; whatever it links to is not shown in here.
        .on_navigation(|url| url.scheme() == "tauri" || url.host_str() == Some("tauri.localhost"))
        .on_page_load(|window, load| {
            // Not before there is something to see.
            if load.event() == PageLoadEvent::Finished && window.state::<Page>().wanted.load(Ordering::Relaxed) {
                come(window.app_handle(), &window);
            }
        });
    match Frames::wanted() {
        None => builder,
        Some(frames) => frames::told(builder, frames),
    }
    .build()?;
    Ok(())
}

/// Shows it again; `false` when it is gone. On the main thread.
pub fn show(app: &AppHandle) -> bool {
    let Some(window) = app.get_webview_window(LABEL) else { return false };
    app.state::<Page>().wanted.store(true, Ordering::Relaxed);
    come(app, &window);
    true
}

/// Hides it. On the main thread.
pub fn hide(app: &AppHandle) {
    app.state::<Page>().wanted.store(false, Ordering::Relaxed);
    if let Some(window) = app.get_webview_window(LABEL) {
        let _ = window.hide();
    }
}

/// Takes it away. On the main thread.
#[cfg(target_os = "macos")]
pub fn destroy(app: &AppHandle) {
    if let Some(window) = app.get_webview_window(LABEL) {
        let _ = window.destroy();
    }
}

/// What Linux' web engine needs to be told: to draw without OpenGL, which takes it longer to begin with than a page of
/// text to draw, and to end this process when the page's own has ended, since an empty window helps nobody.
///
/// # Errors
/// When there is no window.
#[cfg(target_os = "linux")]
pub fn brief_engine(app: &AppHandle) -> tauri::Result<()> {
    use webkit2gtk::{HardwareAccelerationPolicy, SettingsExt, WebViewExt};
    let window = app.get_webview_window(LABEL).ok_or(tauri::Error::WindowNotFound)?;
    window.with_webview(|view| {
        let view = view.inner();
        if let Some(settings) = WebViewExt::settings(&view) {
            settings.set_hardware_acceleration_policy(HardwareAccelerationPolicy::Never);
        }
        view.connect_web_process_terminated(|_, reason| {
            crate::aside(&format!("stablehand-tray: the page's process has ended: {reason:?}\n"));
            std::process::exit(1);
        });
    })
}

/// Tells the page what there is to show. It asks for the view once it listens, so that nothing is lost before.
pub fn tell(app: &AppHandle, view: &View) {
    let _ = app.emit_to(LABEL, EVENT, view);
}

/// Passes on what happens to the window.
pub fn on_event(app: &AppHandle, event: &RunEvent) {
    let RunEvent::WindowEvent { label, event, .. } = event else { return };
    if label != LABEL {
        return;
    }
    if let WindowEvent::Focused(false) = event {
        app.state::<Page>().host.happened(app, Event::Blurred);
    } else if let WindowEvent::CloseRequested { api, .. } = event {
        api.prevent_close();
        app.state::<Page>().host.happened(app, Event::Closed);
    }
}

fn come(app: &AppHandle, window: &WebviewWindow) {
    if let Some((x, y)) = place(app, window) {
        let _ = window.set_position(PhysicalPosition::new(x, y));
    }
    let _ = window.show();
    let _ = window.set_focus();
}

fn place(app: &AppHandle, window: &WebviewWindow) -> Option<(f64, f64)> {
    let icon = app.state::<Page>().host.icon(app);
    let under = icon.and_then(|icon| window.monitor_from_point(icon.x, icon.y).ok().flatten());
    let monitor = under.or_else(|| window.primary_monitor().ok().flatten())?;
    let area = monitor.work_area();
    let free = Area {
        x: f64::from(area.position.x),
        y: f64::from(area.position.y),
        width: f64::from(area.size.width),
        height: f64::from(area.size.height),
    };
    let scale = monitor.scale_factor();
    Some(corner(icon, free, WIDTH * scale, HEIGHT * scale))
}
