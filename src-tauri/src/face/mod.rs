//! What the tray shows, as pure functions of a [`View`](stablehand_protocol::face::View): the icon's shape, the words
//! beside it, the menu and a notification. No window system in here.

pub mod icon;
pub mod menu;
pub mod notice;
pub mod title;
pub mod words;

#[cfg(test)]
pub mod testing;
