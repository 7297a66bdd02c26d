//! Only one daemon per login, and its control socket, in words for a person.

use stablehand_platform::control_socket::{self, ClaimError, Presence};
use stablehand_platform::machine::Machine;
use stablehand_platform::paths::stablehand_files;
use stablehand_protocol::Failure;
use tokio::net::UnixListener;

/// Claims the place of the one daemon.
///
/// # Errors
/// When another one holds it, with its pid, or the lock file cannot be made.
pub fn claim(machine: &Machine) -> Result<Presence, Failure> {
    control_socket::claim(machine, &stablehand_files(machine).lock).map_err(|error| match error {
        ClaimError::Held { holder } => {
            let who = holder.map_or_else(String::new, |pid| format!(" (pid {pid})"));
            Failure::new(
                "daemon-already-running",
                format!("a Stablehand daemon already runs for this user{who}; this one ends, nothing was changed"),
                "use it: `stablehand status`",
            )
        }
        ClaimError::Unwritable { .. } => Failure::new(
            "lock-unwritable",
            format!("{error}; no daemon was started"),
            "see that its folder belongs to you and can be written",
        ),
    })
}

/// Opens the control socket.
///
/// # Errors
/// When it cannot be made.
pub fn listen(machine: &Machine) -> Result<UnixListener, Failure> {
    control_socket::listen(machine, &stablehand_files(machine).socket).map_err(|error| {
        Failure::new(
            "socket-unusable",
            format!("{error}; no daemon was started"),
            "see that its folder belongs to you and can be written",
        )
    })
}

/// Takes the socket away at the end.
pub fn leave(machine: &Machine) {
    control_socket::leave(&stablehand_files(machine).socket);
}
