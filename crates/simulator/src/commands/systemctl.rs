//! `systemctl(1)`: picks the manager and asks it.

use super::accounts::AS_ROOT;
use crate::systemd::{Request, SERVICE, Scope};
use crate::wire::{self, Reply};
use crate::world::World;

/// Runs the command.
pub fn run(world: &World, arguments: &[String]) -> Reply {
    if arguments.iter().any(|word| word == "--version") {
        return Reply::said("systemd 257 (257.9-1)\n");
    }
    let user = arguments.iter().any(|word| word == "--user");
    let request = Request::Systemctl {
        scope: if user { Scope::User } else { Scope::System },
        arguments: arguments.iter().filter(|word| !matches!(word.as_str(), "--user" | "--system")).cloned().collect(),
        // Root needs nobody's leave.
        privileged: std::env::var_os(AS_ROOT).is_some() || rustix::process::getuid().is_root(),
    };
    wire::ask(world, SERVICE, &request).unwrap_or_else(|_| {
        Reply::failed(1, "System has not been booted with systemd as init system (PID 1). Can't operate.\nFailed to connect to bus: Host is down")
    })
}
