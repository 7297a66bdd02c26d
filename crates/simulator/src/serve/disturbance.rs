//! Faults of this very server process, heeded from within. A server that takes
//! its place is sound.

use std::time::Duration;

use crate::faults::Fault;
use crate::world::{World, notes};

/// Real time between two looks at whether a fault still holds.
pub const GLANCE: Duration = Duration::from_millis(20);

/// Whether a fault is raised for this server.
pub fn holds(world: &World, fault: Fault) -> bool {
    notes::raised_for(world, fault, std::process::id()).is_some()
}

/// Waits until a fault does not hold.
pub async fn outlast(world: &World, fault: Fault) {
    while holds(world, fault) {
        tokio::time::sleep(GLANCE).await;
    }
}
