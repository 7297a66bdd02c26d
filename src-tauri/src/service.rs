//! Starting and stopping the installed daemon through the service manager: what to run, as data.

use crate::place::{Place, System};
use std::path::PathBuf;

const LABEL: &str = "dev.stablehand.daemon";
const UNIT: &str = "stablehand.service";

/// A command with its arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Invocation {
    /// Absolute.
    pub program: PathBuf,
    /// What follows.
    pub arguments: Vec<String>,
}

impl Invocation {
    fn new(program: PathBuf, arguments: &[&str]) -> Self {
        Self { program, arguments: arguments.iter().map(ToString::to_string).collect() }
    }
}

/// The ways to start it, the first of which that works is enough. launchd knows the job after a crash and must be given
/// it anew after a stop (`launchctl(1)`).
pub fn start(place: &Place) -> Vec<Invocation> {
    match place.system {
        System::MacOs => {
            let launchctl = place.command("/bin/launchctl");
            let (domain, plist) = (domain(place), place.daemon_service.to_string_lossy().into_owned());
            vec![
                Invocation::new(launchctl.clone(), &["bootstrap", &domain, &plist]),
                Invocation::new(launchctl, &["kickstart", &format!("{domain}/{LABEL}")]),
            ]
        }
        System::Linux => vec![systemctl(place, "start")],
    }
}

/// The way to stop it. It stays installed, and starts again at the next login.
pub fn stop(place: &Place) -> Vec<Invocation> {
    match place.system {
        System::MacOs => {
            let job = format!("{}/{LABEL}", domain(place));
            vec![Invocation::new(place.command("/bin/launchctl"), &["bootout", &job])]
        }
        System::Linux => vec![systemctl(place, "stop")],
    }
}

/// What succeeds as long as the stopped job is still ending, where the stop does not wait for that itself. A start in
/// that while would be lost with the old job.
pub fn still_ending(place: &Place) -> Option<Invocation> {
    match place.system {
        System::MacOs => {
            let job = format!("{}/{LABEL}", domain(place));
            Some(Invocation::new(place.command("/bin/launchctl"), &["print", &job]))
        }
        System::Linux => None,
    }
}

fn domain(place: &Place) -> String {
    format!("gui/{}", place.uid)
}

fn systemctl(place: &Place, verb: &str) -> Invocation {
    Invocation::new(place.command("/usr/bin/systemctl"), &["--user", verb, UNIT])
}
