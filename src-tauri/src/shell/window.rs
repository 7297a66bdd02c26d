//! The popover's window.

use super::state::Tray;
use super::{POPOVER, changed, on_main, tell, tray};
use crate::placement::{Area, corner};
use crate::popover::{Act, Event, KEPT_HIDDEN};
use tauri::webview::PageLoadEvent;
use tauri::{AppHandle, Manager, PhysicalPosition, WebviewUrl, WebviewWindow, WebviewWindowBuilder};

const WIDTH: f64 = 420.0;
const HEIGHT: f64 = 640.0;

/// Steps the popover's life and does what comes of it. On the main thread.
pub fn step(app: &AppHandle, event: Event) {
    let state = app.state::<Tray>();
    match state.step_popover(event) {
        None => {}
        Some(Act::Create) => {
            if let Err(error) = create(app) {
                state.step_popover(Event::Gone);
                tell(app, "window-failed", &[("why", &error.to_string())]);
            }
        }
        Some(Act::Show) => {
            if let Some(window) = app.get_webview_window(POPOVER) {
                show(app, &window);
                changed(app);
            } else {
                state.step_popover(Event::Gone);
                step(app, Event::Wanted);
            }
        }
        Some(Act::Hide) => {
            if let Some(window) = app.get_webview_window(POPOVER) {
                let _ = window.hide();
            }
            let later = app.clone();
            tauri::async_runtime::spawn(async move {
                tokio::time::sleep(KEPT_HIDDEN).await;
                let app = later.clone();
                on_main(&later, move || step(&app, Event::Elapsed));
            });
        }
        Some(Act::Destroy) => {
            if let Some(window) = app.get_webview_window(POPOVER) {
                let _ = window.destroy();
            }
        }
    }
}

fn create(app: &AppHandle) -> tauri::Result<()> {
    let builder = WebviewWindowBuilder::new(app, POPOVER, WebviewUrl::App("index.html".into()))
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
        // The page is ours alone; whatever it links to is not shown in here.
        .on_navigation(|url| url.scheme() == "tauri" || url.host_str() == Some("tauri.localhost"))
        .on_page_load(|window, load| {
            // Not before there is something to see.
            if load.event() == PageLoadEvent::Finished && window.state::<Tray>().is_popover_shown() {
                show(window.app_handle(), &window);
            }
        });
    builder.build()?;
    Ok(())
}

fn show(app: &AppHandle, window: &WebviewWindow) {
    if let Some((x, y)) = place(app, window) {
        let _ = window.set_position(PhysicalPosition::new(x, y));
    }
    let _ = window.show();
    let _ = window.set_focus();
}

fn place(app: &AppHandle, window: &WebviewWindow) -> Option<(f64, f64)> {
    let icon = tray::icon_area(app);
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
