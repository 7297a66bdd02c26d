//! The pictures of the shapes: scripts/draw-icons makes them from the SVGs in src-tauri/icons.

use crate::face::icon::Shape;

/// A black template with transparency, which macOS draws in the menu bar's colour.
#[cfg(target_os = "macos")]
pub fn png(shape: Shape) -> &'static [u8] {
    match shape {
        Shape::Well => include_bytes!("../../icons/well@2x.png"),
        Shape::Busy => include_bytes!("../../icons/busy@2x.png"),
        Shape::Warning => include_bytes!("../../icons/warning@2x.png"),
        Shape::Stalled => include_bytes!("../../icons/stalled@2x.png"),
        Shape::Restarting => include_bytes!("../../icons/restarting@2x.png"),
        Shape::NoServer => include_bytes!("../../icons/no-server@2x.png"),
    }
}

/// Light with a dark edge: nobody says which colour a panel has.
#[cfg(not(target_os = "macos"))]
pub fn png(shape: Shape) -> &'static [u8] {
    match shape {
        Shape::Well => include_bytes!("../../icons/well-panel.png"),
        Shape::Busy => include_bytes!("../../icons/busy-panel.png"),
        Shape::Warning => include_bytes!("../../icons/warning-panel.png"),
        Shape::Stalled => include_bytes!("../../icons/stalled-panel.png"),
        Shape::Restarting => include_bytes!("../../icons/restarting-panel.png"),
        Shape::NoServer => include_bytes!("../../icons/no-server-panel.png"),
    }
}
