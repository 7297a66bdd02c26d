//! Where a command acts: this machine, or a simulated one.

use stablehand_platform::machine::{Machine, MachineError};
use stablehand_platform::paths::stablehand_files;
use stablehand_protocol::Failure;
use std::path::PathBuf;

/// The machine that a command acts on.
#[derive(Clone, Debug)]
pub struct Place {
    machine: Machine,
}

impl Place {
    /// The simulated machine that `STABLEHAND_WORLD` names, or else this one.
    ///
    /// # Errors
    /// When the named folder is no simulated machine of this user. It is never taken for the real one.
    pub fn detect() -> Result<Self, Failure> {
        Machine::detect().map(|machine| Self { machine }).map_err(|error| no_machine(&error))
    }

    /// The machine.
    pub fn machine(&self) -> &Machine {
        &self.machine
    }

    /// The folder of the simulated machine, when it is one.
    pub fn simulated(&self) -> Option<String> {
        crate::translation::simulated(&self.machine)
    }

    /// Its control socket.
    pub fn socket(&self) -> PathBuf {
        stablehand_files(&self.machine).socket
    }

    /// Runs the daemon on it.
    ///
    /// # Errors
    /// As [`crate::serve`].
    pub async fn serve(&self) -> Result<(), Failure> {
        crate::serve(self.machine.clone()).await
    }
}

fn no_machine(error: &MachineError) -> Failure {
    Failure::new(
        "no-machine",
        format!("{error}; nothing was changed"),
        "STABLEHAND_WORLD must name a folder made by `stablehand demo start --dir DIR`; unset it to act on this machine",
    )
}
