//! The commands of the simulated machine, one module each.

pub mod accounts;
pub mod archive;
pub mod brew;
pub mod codesign;
pub mod docker;
pub mod journalctl;
pub mod launchctl;
pub mod lsof;
pub mod memory;
pub mod open;
pub mod plutil;
pub mod ps;
pub mod sysctl;
pub mod systemctl;
pub mod xattr;
