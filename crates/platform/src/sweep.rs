//! Ending what a stop left behind: a server whose GUI was killed keeps the port, a runner whose server was killed
//! keeps the memory (`SysProcAttr` is empty, so nothing dies with its parent).

use crate::app::same_bundle;
use crate::machine::Machine;
use crate::signal::{self, Kind, SignalError};
use crate::survey::Surveyor;
use stablehand_engine::owner::{enclosing_bundle, holder};
use stablehand_engine::plan::{Again, StepFailure, Sweep};
use stablehand_engine::process::{Identity, Process, Role, Sighting};
use stablehand_engine::stall::envelope::END_LONGEST;
use std::path::Path;
use std::time::Duration;
use tokio::sync::Mutex;

/// How long leftovers may take after SIGTERM: a server waits 5 s for its runners.
const PATIENCE: Duration = Duration::from_secs(8);

/// How long they may take after SIGKILL: a runner gives its memory back first.
const AFTER_KILL: Duration = END_LONGEST;

/// Ends leftovers: SIGTERM, then SIGKILL for what stays. Each is looked for anew before each round, and checked again
/// before each signal.
///
/// # Errors
/// A [`StepFailure`] when something stays, or may not be signalled.
pub async fn sweep(machine: &Machine, surveyor: &Mutex<Surveyor>, which: &Sweep) -> Result<String, StepFailure> {
    let mut swept: Vec<String> = Vec::new();
    for (kind, within) in [(Kind::Term, PATIENCE), (Kind::Kill, AFTER_KILL)] {
        let (left, classify) = {
            let mut surveyor = surveyor.lock().await;
            (leftovers(machine, &mut surveyor, which), surveyor.classify())
        };
        let mut told = Vec::new();
        for sighting in &left {
            let id = sighting.process.id;
            match signal::send(machine, classify, id, kind, |role| same_part(role, &sighting.role)) {
                Ok(()) => told.push(id),
                Err(SignalError::Gone(_)) => {}
                Err(
                    error @ (SignalError::Forbidden(_)
                    | SignalError::NotOurs(_)
                    | SignalError::OtherRole(_)
                    | SignalError::Refused { .. }),
                ) => return Err(error.into()),
            }
            let named = format!("{} pid {}", part(&sighting.role), id.pid);
            if !swept.contains(&named) {
                swept.push(named);
            }
        }
        // They end side by side; the patience is for all of them together.
        let all_gone = async {
            for id in told {
                signal::await_gone(machine, id, within).await;
            }
        };
        let _some_stay = tokio::time::timeout(machine.clock().patience(within), all_gone).await;
    }
    let stay: Vec<_> = {
        let mut surveyor = surveyor.lock().await;
        leftovers(machine, &mut surveyor, which)
    };
    if stay.is_empty() {
        return Ok(if swept.is_empty() {
            "nothing was left".to_owned()
        } else {
            format!("ended {}", swept.join(", "))
        });
    }
    let who: Vec<_> =
        stay.iter().map(|sighting| format!("{} pid {}", part(&sighting.role), sighting.process.id.pid)).collect();
    Err(StepFailure {
        code: "leftovers-stay",
        message: format!("still there after SIGKILL: {}", who.join(", ")),
        hint: "they hang in the kernel (disk or graphics driver): try again later, or restart the machine".to_owned(),
        again: Again::Soon,
    })
}

fn leftovers(machine: &Machine, surveyor: &mut Surveyor, which: &Sweep) -> Vec<Sighting> {
    let (sightings, others) = surveyor.sightings_and_others();
    let ours = |sighting: &&Sighting| sighting.process.uid.known() == Some(&machine.uid());
    let left: Vec<Sighting> = match which {
        Sweep::Bundle(bundle) => {
            let of_bundle = |sighting: &&Sighting| {
                of_bundle(sighting, bundle)
                    && !below_a_gui(sighting, &sightings)
                    && !held_by_somebody(sighting, &sightings, &others)
            };
            sightings.iter().filter(ours).filter(of_bundle).cloned().collect()
        }
        Sweep::RunnersOf(server) => {
            let of_server = |sighting: &&Sighting| runner_of(surveyor, sighting, *server, &sightings);
            sightings.iter().filter(ours).filter(of_server).cloned().collect()
        }
    };
    left
}

fn of_bundle(sighting: &Sighting, wanted: &Path) -> bool {
    let within = || {
        let executable = sighting.process.executable.known();
        executable.and_then(|path| outermost_bundle(path)).is_some_and(|bundle| same_bundle(bundle, wanted))
    };
    match &sighting.role {
        Role::Gui { .. } => false,
        Role::Shim { bundle } => same_bundle(bundle, wanted),
        Role::Serve | Role::Runner(_) => within(),
    }
}

/// A bundle may hold others; the outermost is the app.
fn outermost_bundle(path: &Path) -> Option<&Path> {
    let mut found = enclosing_bundle(path)?;
    while let Some(outer) = enclosing_bundle(found) {
        found = outer;
    }
    Some(found)
}

/// A GUI that is there after the stop was started anew by somebody, with the new values; what it started is no
/// leftover.
fn below_a_gui(sighting: &Sighting, all: &[Sighting]) -> bool {
    let mut next = sighting.process.parent;
    for _generation in 0..8 {
        let Some(parent) = all.iter().find(|other| Some(other.process.id.pid) == next) else { return false };
        if matches!(parent.role, Role::Gui { .. }) {
            return true;
        }
        next = parent.process.parent;
    }
    false
}

/// A terminal's server is no leftover, though it runs from the same bundle; neither are its runners.
fn held_by_somebody(sighting: &Sighting, all: &[Sighting], others: &[Process]) -> bool {
    let server = all
        .iter()
        .find(|other| Some(other.process.id.pid) == sighting.process.parent && matches!(other.role, Role::Serve));
    let top = server.map_or(&sighting.process, |server| &server.process);
    holder(top, others).is_some()
}

/// A runner of this server: it was seen below it, or nobody saw it in time, it has no server now, runs from the same
/// folder and started later.
fn runner_of(surveyor: &Surveyor, sighting: &Sighting, server: Identity, all: &[Sighting]) -> bool {
    if !matches!(sighting.role, Role::Runner(_)) {
        return false;
    }
    let parent = all.iter().find(|other| Some(other.process.id.pid) == sighting.process.parent);
    let has_server = parent.is_some_and(|parent| matches!(parent.role, Role::Serve));
    match surveyor.server_of_runner(sighting.process.id) {
        Some(seen_below) => seen_below == server,
        None => !has_server && surveyor.seen_server(server).is_some_and(|seen| seen.could_have_started(sighting)),
    }
}

fn same_part(role: &Role, expected: &Role) -> bool {
    match (role, expected) {
        (Role::Gui { bundle }, Role::Gui { bundle: other }) | (Role::Shim { bundle }, Role::Shim { bundle: other }) => {
            bundle == other
        }
        (Role::Serve, Role::Serve) => true,
        (Role::Runner(now), Role::Runner(then)) => now.kind == then.kind,
        (Role::Gui { .. } | Role::Shim { .. } | Role::Serve | Role::Runner(_), _) => false,
    }
}

fn part(role: &Role) -> &'static str {
    match role {
        Role::Gui { .. } => "GUI",
        Role::Shim { .. } => "login shim",
        Role::Serve => "server",
        Role::Runner(_) => "runner",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::processes;
    use crate::testing::{Napper, world_folder};
    use stablehand_engine::Known;
    use stablehand_engine::process::{Process, RunnerArgs, RunnerKind};
    use std::path::PathBuf;

    const RESOURCES: &str = "Applications/Ollama.app/Contents/Resources";

    #[tokio::test]
    async fn servers_and_runners_of_the_bundle_are_ended_and_others_stay() {
        let (_dir, machine) = world_folder("macos");
        let server = Napper::orphan(&machine, &format!("{RESOURCES}/ollama"));
        let runner = Napper::orphan(&machine, &format!("{RESOURCES}/llama-server"));
        let held = Napper::start(&machine, &format!("{RESOURCES}/ollama"));
        let other = Napper::start(&machine, "opt/homebrew/bin/ollama");
        let surveyor = Mutex::new(Surveyor::new(machine.clone(), by_name));
        let which = Sweep::Bundle(machine.at("/Applications/Ollama.app"));
        let note = sweep(&machine, &surveyor, &which).await.unwrap();
        assert!(note.contains(&format!("server pid {}", server.id.pid)), "{note}");
        assert!(note.contains(&format!("runner pid {}", runner.id.pid)), "{note}");
        assert!(!processes::is_alive(server.id) && !processes::is_alive(runner.id));
        assert!(processes::is_alive(other.id));
        assert!(processes::is_alive(held.id), "its parent, this test, holds it");
        assert_eq!(sweep(&machine, &surveyor, &which).await.unwrap(), "nothing was left");
    }

    #[tokio::test]
    async fn a_runner_whose_server_is_gone_is_ended_and_one_from_elsewhere_stays() {
        let (_dir, machine) = world_folder("linux");
        let surveyor = Mutex::new(Surveyor::new(machine.clone(), by_name));
        let server = Napper::start(&machine, "usr/local/bin/ollama");
        let id = server.id;
        surveyor.lock().await.sightings();
        let runner = Napper::start(&machine, "usr/local/lib/ollama/llama-server");
        let foreign = Napper::start(&machine, "home/sim/build/llama-server");
        drop(server);
        sweep(&machine, &surveyor, &Sweep::RunnersOf(id)).await.unwrap();
        assert!(!processes::is_alive(runner.id));
        assert!(processes::is_alive(foreign.id));
    }

    #[test]
    fn what_a_new_gui_started_is_no_leftover() {
        let gui = seen(10, None, Role::Gui { bundle: PathBuf::from("/Applications/Ollama.app") });
        let server = seen(11, Some(10), Role::Serve);
        let runner = seen(12, Some(11), Role::Runner(args()));
        let orphan = seen(13, Some(1), Role::Serve);
        let all = [gui, server, runner, orphan];
        let below: Vec<_> = all.iter().map(|sighting| below_a_gui(sighting, &all)).collect();
        assert_eq!(below, [false, true, true, false]);
    }

    fn by_name(process: &Process) -> Option<Role> {
        let name = process.executable.known()?.file_name()?.to_str()?;
        match name {
            "ollama" => Some(Role::Serve),
            "llama-server" => Some(Role::Runner(args())),
            _ => None,
        }
    }

    fn args() -> RunnerArgs {
        RunnerArgs {
            kind: RunnerKind::LlamaServer,
            model: Known::unknown("not read"),
            port: Known::unknown("not read"),
            slots: Known::unknown("not read"),
            context_tokens: Known::unknown("not read"),
        }
    }

    fn seen(pid: u32, parent: Option<u32>, role: Role) -> Sighting {
        let process = Process {
            id: Identity { pid, birth: 1 },
            parent,
            uid: Known::Is(501),
            started: stablehand_engine::time::Wall::default(),
            executable: Known::unknown("not read"),
            argv: Known::unknown("not read"),
            environment: Known::unknown("not read"),
        };
        Sighting { process, role }
    }
}
