//! Where the server shall listen after its next start, and where it may listen now: decided by whoever places the
//! gateway, read at every look.

use super::record;
use stablehand_platform::machine::Machine;
use std::sync::{Mutex, PoisonError};

/// Shared between the two.
#[derive(Debug, Default)]
pub struct Seating {
    ports: Mutex<Ports>,
}

/// The ports of 127.0.0.1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ports {
    /// That the next start moves the server to.
    pub wanted: Option<u16>,
    /// That it may listen on now, because an earlier start moved it there.
    pub last: Option<u16>,
}

impl Seating {
    /// As an earlier daemon left it: nothing moves the server, and it may have been moved.
    pub fn left(machine: &Machine) -> Self {
        Self { ports: Mutex::new(Ports { wanted: None, last: record::read(machine).moved }) }
    }

    /// The ports.
    pub fn ports(&self) -> Ports {
        *self.ports.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The server listens at its own port, and nothing moves it.
    pub fn forget(&self) {
        *self.ports.lock().unwrap_or_else(PoisonError::into_inner) = Ports::default();
    }

    /// The next start moves the server to this port, or to its own.
    pub fn want(&self, port: Option<u16>) {
        let mut ports = self.ports.lock().unwrap_or_else(PoisonError::into_inner);
        ports.wanted = port;
        ports.last = port.or(ports.last);
    }
}
