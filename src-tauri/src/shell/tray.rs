//! The icon and the menu as the system has them, kept equal to the data.

use super::state::Tray;
use super::{answer, changed, icons, window};
use crate::face::icon::{Shape, icon};
use crate::face::menu::{Item, Menu, menu};
use crate::face::title::title;
use crate::popover;
use stablehand_protocol::face::View;
use std::sync::{Mutex, PoisonError};
use tauri::image::Image;
use tauri::menu::{CheckMenuItem, IsMenuItem, MenuItem, PredefinedMenuItem, Submenu};
use tauri::tray::{MouseButton, MouseButtonState, TrayIcon, TrayIconBuilder, TrayIconEvent};
use tauri::{AppHandle, Manager, Wry};

const NAME: &str = "main";

/// What the system shows now. Used by the main thread alone.
struct Shown(Mutex<Drawn>);

struct Drawn {
    tray: TrayIcon,
    menu: Menu,
    handles: Vec<Handle>,
    shape: Shape,
    title: Option<String>,
    tooltip: String,
}

/// The system's item for each [`Item`], in the same order.
enum Handle {
    Text(MenuItem<Wry>),
    Check(CheckMenuItem<Wry>),
    Submenu(Submenu<Wry>, Vec<Handle>),
    Separator(PredefinedMenuItem<Wry>),
}

/// Puts the icon there.
pub fn begin(app: &AppHandle) -> tauri::Result<()> {
    let tray_state = app.state::<Tray>();
    let view = tray_state.view();
    let shape = icon(&view);
    let menu = menu(&view, tray_state.is_simulated(), &tray_state.words());
    let (handles, system_menu) = build(app, &menu)?;
    let builder = TrayIconBuilder::with_id(NAME)
        .icon(Image::from_bytes(icons::png(shape))?)
        .icon_as_template(true)
        .menu(&system_menu)
        // macOS' left click opens the popover. Linux' trays tell of no click: both buttons open the menu.
        .show_menu_on_left_click(false)
        .on_menu_event(|app, event| on_menu(app, event.id().as_ref()))
        .on_tray_icon_event(|tray, event| on_click(tray.app_handle(), event));
    #[cfg(target_os = "linux")]
    let builder = match tray_state.place.own_socket.parent() {
        Some(folder) => builder.temp_dir_path(folder),
        None => builder,
    };
    let tray = builder.build(app)?;
    app.manage(Shown(Mutex::new(Drawn { tray, menu, handles, shape, title: None, tooltip: String::new() })));
    draw(app, &view);
    Ok(())
}

/// Makes the system show this view. On the main thread.
pub fn draw(app: &AppHandle, view: &View) {
    let tray = app.state::<Tray>();
    let Some(shown) = app.try_state::<Shown>() else { return };
    let mut drawn = shown.0.lock().unwrap_or_else(PoisonError::into_inner);
    let simulated = tray.is_simulated();
    // What could not be drawn now is tried again with the next view, because it is still different then.
    let _ = draw_icon(&mut drawn, icon(view));
    let _ = draw_title(&mut drawn, title(view, simulated));
    let wanted = menu(view, simulated, &tray.words());
    let _ = draw_tooltip(&mut drawn, tooltip(&wanted));
    let _ = draw_menu(app, &mut drawn, wanted);
}

fn draw_icon(drawn: &mut Drawn, shape: Shape) -> tauri::Result<()> {
    if drawn.shape != shape {
        // Together, since the icon alone would lose that it is a template.
        drawn.tray.set_icon_with_as_template(Some(Image::from_bytes(icons::png(shape))?), true)?;
        drawn.shape = shape;
    }
    Ok(())
}

fn draw_title(drawn: &mut Drawn, title: Option<String>) -> tauri::Result<()> {
    if drawn.title != title {
        drawn.tray.set_title(Some(title.as_deref().unwrap_or_default()))?;
        drawn.title = title;
    }
    Ok(())
}

fn draw_tooltip(drawn: &mut Drawn, tooltip: String) -> tauri::Result<()> {
    if drawn.tooltip != tooltip {
        drawn.tray.set_tooltip(Some(&tooltip))?;
        drawn.tooltip = tooltip;
    }
    Ok(())
}

/// The menu's first lines: the state, and before it that it is simulated.
fn tooltip(menu: &Menu) -> String {
    let mut lines = vec!["Stablehand"];
    for item in &menu.0 {
        match item {
            Item::Line { text, .. } | Item::Command { text, .. } => lines.push(text),
            Item::Separator | Item::Radio { .. } | Item::Toggle { .. } | Item::Submenu { .. } => break,
        }
    }
    lines.join(" — ")
}

/// Changes words and marks where they are while the same items stand there, so that an open menu stays open.
fn draw_menu(app: &AppHandle, drawn: &mut Drawn, wanted: Menu) -> tauri::Result<()> {
    if same_items(&drawn.menu.0, &wanted.0) {
        update(&drawn.handles, &drawn.menu.0, &wanted.0)?;
    } else {
        let (handles, system_menu) = build(app, &wanted)?;
        drawn.tray.set_menu(Some(system_menu))?;
        drawn.handles = handles;
    }
    drawn.menu = wanted;
    Ok(())
}

fn same_items(before: &[Item], after: &[Item]) -> bool {
    before.len() == after.len()
        && before.iter().zip(after).all(|pair| match pair {
            (Item::Separator, Item::Separator) => true,
            (Item::Line { id: a, .. }, Item::Line { id: b, .. })
            | (Item::Command { id: a, .. }, Item::Command { id: b, .. })
            | (Item::Radio { id: a, .. }, Item::Radio { id: b, .. })
            | (Item::Toggle { id: a, .. }, Item::Toggle { id: b, .. }) => a == b,
            (Item::Submenu { id: a, items: in_a, .. }, Item::Submenu { id: b, items: in_b, .. }) => {
                a == b && same_items(in_a, in_b)
            }
            (
                Item::Separator
                | Item::Line { .. }
                | Item::Command { .. }
                | Item::Radio { .. }
                | Item::Toggle { .. }
                | Item::Submenu { .. },
                _,
            ) => false,
        })
}

fn update(handles: &[Handle], before: &[Item], after: &[Item]) -> tauri::Result<()> {
    for ((handle, old), new) in handles.iter().zip(before).zip(after) {
        match (handle, new) {
            (Handle::Text(item), Item::Line { text, .. } | Item::Command { text, .. }) => {
                if words_of(old) != Some(text) {
                    item.set_text(plain(text))?;
                }
            }
            (Handle::Check(item), Item::Radio { text, chosen: on, .. } | Item::Toggle { text, on, .. }) => {
                if words_of(old) != Some(text) {
                    item.set_text(plain(text))?;
                }
                // A click has set the mark already; what holds is told by the data.
                if item.is_checked()? != *on {
                    item.set_checked(*on)?;
                }
            }
            (Handle::Submenu(submenu, inner), Item::Submenu { text, items, .. }) => {
                if words_of(old) != Some(text) {
                    submenu.set_text(plain(text))?;
                }
                if let Item::Submenu { items: old_items, .. } = old {
                    update(inner, old_items, items)?;
                }
            }
            (Handle::Text(_) | Handle::Check(_) | Handle::Submenu(..) | Handle::Separator(_), _) => {}
        }
    }
    Ok(())
}

fn words_of(item: &Item) -> Option<&String> {
    match item {
        Item::Separator => None,
        Item::Line { text, .. }
        | Item::Command { text, .. }
        | Item::Radio { text, .. }
        | Item::Toggle { text, .. }
        | Item::Submenu { text, .. } => Some(text),
    }
}

fn build(app: &AppHandle, menu: &Menu) -> tauri::Result<(Vec<Handle>, tauri::menu::Menu<Wry>)> {
    let handles = build_all(app, &menu.0)?;
    let system_menu = tauri::menu::Menu::with_items(app, &as_items(&handles))?;
    Ok((handles, system_menu))
}

fn build_all(app: &AppHandle, items: &[Item]) -> tauri::Result<Vec<Handle>> {
    items.iter().map(|item| build_one(app, item)).collect()
}

fn build_one(app: &AppHandle, item: &Item) -> tauri::Result<Handle> {
    Ok(match item {
        Item::Line { id, text } => Handle::Text(MenuItem::with_id(app, id, plain(text), false, None::<&str>)?),
        Item::Command { id, text, .. } => Handle::Text(MenuItem::with_id(app, id, plain(text), true, None::<&str>)?),
        Item::Radio { id, text, chosen: on, .. } | Item::Toggle { id, text, on, .. } => {
            Handle::Check(CheckMenuItem::with_id(app, id, plain(text), true, *on, None::<&str>)?)
        }
        Item::Submenu { id, text, items } => {
            let inner = build_all(app, items)?;
            Handle::Submenu(Submenu::with_id_and_items(app, id, plain(text), true, &as_items(&inner))?, inner)
        }
        Item::Separator => Handle::Separator(PredefinedMenuItem::separator(app)?),
    })
}

fn as_items(handles: &[Handle]) -> Vec<&dyn IsMenuItem<Wry>> {
    handles
        .iter()
        .map(|handle| -> &dyn IsMenuItem<Wry> {
            match handle {
                Handle::Text(item) => item,
                Handle::Check(item) => item,
                Handle::Submenu(submenu, _) => submenu,
                Handle::Separator(separator) => separator,
            }
        })
        .collect()
}

/// An `&` in words is no mnemonic.
fn plain(text: &str) -> String {
    text.replace('&', "&&")
}

fn on_menu(app: &AppHandle, id: &str) {
    let act = app.try_state::<Shown>().and_then(|shown| {
        let drawn = shown.0.lock().unwrap_or_else(PoisonError::into_inner);
        drawn.menu.act(id).cloned()
    });
    // The system has set a mark by itself.
    changed(app);
    if let Some(act) = act {
        let app = app.clone();
        tauri::async_runtime::spawn(async move { answer::act(&app, act).await });
    }
}

fn on_click(app: &AppHandle, event: TrayIconEvent) {
    if let TrayIconEvent::Click { button: MouseButton::Left, button_state: MouseButtonState::Up, .. } = event {
        window::step(app, popover::Event::Clicked);
        changed(app);
    }
}

/// Where the icon is, in physical pixels; Linux tells nobody.
#[cfg(target_os = "macos")]
pub fn icon_area(app: &AppHandle) -> Option<crate::placement::Area> {
    use crate::placement::Area;
    let rect = app.tray_by_id(NAME)?.rect().ok()??;
    let position = rect.position.to_physical::<f64>(1.0);
    let size = rect.size.to_physical::<f64>(1.0);
    (size.width > 0.0).then_some(Area { x: position.x, y: position.y, width: size.width, height: size.height })
}
