//! How the popover is carried. macOS runs every page in a process of the system's, so its window is ours. WebKitGTK
//! keeps a web engine's memory for the whole life of a process that began one, so on Linux the window is a child's.

#[cfg_attr(target_os = "linux", path = "child.rs")]
#[cfg_attr(target_os = "macos", path = "in_process.rs")]
mod system;

#[cfg(target_os = "linux")]
mod lines;
#[cfg(target_os = "linux")]
mod outbox;
#[cfg(target_os = "linux")]
pub mod page_process;

pub use system::{build, create, destroy, hide, on_event, show, tell};
