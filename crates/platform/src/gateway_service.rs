//! The gateway as a service of its own, which the daemon starts and stops: a launchd job, a unit of the user's
//! systemd, or a process that we start ourselves where there is neither.
//!
//! It never starts at login: its port is Ollama's own while it stands in its place, and whoever comes first has it.

use crate::change::{self, Change};
use crate::command::run;
use crate::files;
use crate::launchd::env_agent::PLIST_MODE;
use crate::launchd::property_list::PropertyList;
use crate::launchd::{self, job, launchctl, plist_of};
use crate::linux::{self, install, own_process, systemctl};
use crate::machine::{Machine, Os};
use crate::paths::stablehand_files;
use crate::{processes, signal};
use plist::Value;
use serde::{Deserialize, Serialize};
use stablehand_engine::Known;
use stablehand_engine::owner::Scope;
use stablehand_engine::plan::{Again, StepFailure};
use stablehand_engine::process::Identity;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Label of its launchd job.
pub const LABEL: &str = "dev.stablehand.gateway";

/// Its unit.
pub const UNIT: &str = "stablehand-gateway.service";

/// Arguments of its process.
const ARGUMENTS: [&str; 2] = ["serve", "--gateway"];

const PLIST: &str = include_str!("../../../launchd/dev.stablehand.gateway.plist");
const UNIT_FILE: &str = include_str!("../../../systemd/stablehand-gateway.service");

/// How long a gateway that we started ourselves may take to end: it lets running requests end for 20 s.
const PATIENCE: Duration = Duration::from_secs(30);

/// What we wrote down of a gateway that we started ourselves.
#[derive(Debug, Serialize, Deserialize)]
struct Record {
    pid: u32,
    birth: u64,
}

/// How the gateway is kept on this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Keeper {
    Launchd,
    Systemd,
    Ourselves,
}

fn keeper(machine: &Machine) -> Keeper {
    match machine.os() {
        Os::MacOs => Keeper::Launchd,
        Os::Linux if systemctl::is_there(machine) && has_user_manager(machine) => Keeper::Systemd,
        Os::Linux => Keeper::Ourselves,
    }
}

/// Whether the user's own manager can be asked; root, and a container's user, often has none.
fn has_user_manager(machine: &Machine) -> bool {
    machine.simulated().is_some() || systemctl::user_manager_socket(machine).is_some_and(|socket| socket.exists())
}

/// Starts the gateway from this program, anew when it runs.
///
/// # Errors
/// A [`StepFailure`] in words; it does not run then.
pub async fn start(machine: &Machine, program: &Path) -> Result<String, StepFailure> {
    match keeper(machine) {
        Keeper::Launchd => start_job(machine, program).await,
        Keeper::Systemd => {
            let changes = unit_changes(machine, program)?;
            linux::carry_out(machine, &changes).await?;
            linux::restart_unit(machine, Scope::User, UNIT).await
        }
        Keeper::Ourselves => {
            stop_our_own(machine).await?;
            let gateway = own_process::start_program(machine, program, &ARGUMENTS, &log_file(machine)).await?;
            let record = Record { pid: gateway.pid, birth: gateway.birth };
            let json = serde_json::to_vec(&record).unwrap_or_default();
            files::write_atomically(machine, &record_path(machine), &json, 0o600)?;
            Ok(format!("the gateway runs, pid {}", gateway.pid))
        }
    }
}

/// Ends the gateway; one that does not run is no failure.
///
/// # Errors
/// A [`StepFailure`] in words.
pub async fn stop(machine: &Machine) -> Result<String, StepFailure> {
    match keeper(machine) {
        Keeper::Launchd => job::unload(machine, LABEL).await,
        Keeper::Systemd if unit_path(machine).exists() => linux::stop_unit(machine, Scope::User, UNIT).await,
        Keeper::Systemd => Ok("the gateway did not run".to_owned()),
        Keeper::Ourselves => stop_our_own(machine).await,
    }
}

/// Pid of the gateway while it runs, as its keeper tells.
pub async fn pid(machine: &Machine) -> Known<Option<u32>> {
    let told = match keeper(machine) {
        Keeper::Launchd if !plist_of(machine, LABEL).exists() => Ok(None),
        Keeper::Launchd => job::look(machine, LABEL).await.map(|job| job.and_then(|job| job.pid)),
        Keeper::Systemd if !unit_path(machine).exists() => Ok(None),
        Keeper::Systemd => systemctl::show(machine, Scope::User, &[UNIT])
            .await
            .map(|units| units.first().and_then(|unit| unit.main_pid)),
        Keeper::Ourselves => Ok(recorded(machine).filter(|id| processes::is_alive(*id)).map(|id| id.pid)),
    };
    told.map_or_else(|failure| Known::unknown(failure.message), Known::Is)
}

/// What takes the service's files away; its process is ended first, see [`stop`].
pub fn uninstall_changes(machine: &Machine) -> Vec<Change> {
    let mut changes = Vec::new();
    let plist = plist_of(machine, LABEL);
    if plist.exists() {
        changes.push(Change::Unload { label: LABEL.to_owned() });
        changes.push(Change::Remove { path: plist });
    }
    let unit = unit_path(machine);
    if machine.os() == Os::Linux && unit.exists() {
        if systemctl::is_there(machine) {
            let stop = systemctl::act_invocation(machine, Scope::User, systemctl::Action::Stop(UNIT));
            changes.push(Change::Run(stop));
        }
        changes.push(Change::Remove { path: unit });
        if systemctl::is_there(machine) {
            let reload = systemctl::act_invocation(machine, Scope::User, systemctl::Action::DaemonReload);
            changes.push(Change::Run(reload));
        }
    }
    changes
}

/// Where its log goes where no journal takes it.
pub fn log_file(machine: &Machine) -> PathBuf {
    stablehand_files(machine).log_dir.join("gateway.log")
}

async fn start_job(machine: &Machine, program: &Path) -> Result<String, StepFailure> {
    let path = plist_of(machine, LABEL);
    let contents = plist_contents(machine, program).map_err(|why| StepFailure {
        code: "gateway-plist-not-written",
        message: format!("{} could not be made: {why}; nothing was changed", path.display()),
        hint: "install Stablehand again".to_owned(),
        again: Again::Never,
    })?;
    launchd::check_home(machine)?;
    let before = files::read(&path)?;
    let loaded = job::look(machine, LABEL).await?;
    let is_another = before.as_deref() != Some(contents.as_slice());
    // A loaded job goes on with the description it was loaded from; one without a process may wait for launchd's
    // throttle, in which `kickstart` waits as well.
    if is_another || loaded.is_some_and(|job| job.pid.is_none()) {
        job::unload(machine, LABEL).await?;
    }
    if is_another {
        let changes = [
            Change::Folder { path: stablehand_files(machine).log_dir, mode: 0o755 },
            Change::Write { path: path.clone(), mode: PLIST_MODE, contents, before },
        ];
        change::carry_out(machine, &changes).await?;
    }
    let note = job::load(machine, LABEL, &path).await?;
    // A fresh job is loaded and waits; one that was loaded already has been started anew.
    if job::look(machine, LABEL).await?.and_then(|job| job.pid).is_none() {
        let output = run(machine, &launchctl::kickstart(machine, LABEL)).await?;
        if !output.succeeded() {
            let error = launchctl::decode("kickstart", &output);
            return Err(error.into_failure("the gateway's job is loaded and was not started"));
        }
    }
    Ok(note)
}

fn plist_contents(machine: &Machine, program: &Path) -> Result<Vec<u8>, String> {
    let mut list = PropertyList::parse(Path::new(LABEL), PLIST.as_bytes()).map_err(|error| error.to_string())?;
    let text = |path: &Path| Value::String(path.to_string_lossy().into_owned());
    let mut arguments = vec![text(program)];
    arguments.extend(ARGUMENTS.map(|argument| Value::String(argument.to_owned())));
    list.top.insert("ProgramArguments".to_owned(), Value::Array(arguments));
    for key in ["StandardOutPath", "StandardErrorPath"] {
        list.top.insert(key.to_owned(), text(&log_file(machine)));
    }
    list.bytes().map_err(|error| error.to_string())
}

fn unit_changes(machine: &Machine, program: &Path) -> Result<Vec<Change>, StepFailure> {
    let mut changes = install::unit_changes(machine, UNIT, UNIT_FILE, program, &ARGUMENTS)?;
    if !changes.is_empty() {
        let reload = systemctl::act_invocation(machine, Scope::User, systemctl::Action::DaemonReload);
        changes.push(Change::Run(reload));
    }
    Ok(changes)
}

fn unit_path(machine: &Machine) -> PathBuf {
    stablehand_files(machine).services_dir.join(UNIT)
}

fn record_path(machine: &Machine) -> PathBuf {
    stablehand_files(machine).data_dir.join("gateway-process.json")
}

fn recorded(machine: &Machine) -> Option<Identity> {
    let bytes = files::read(&record_path(machine)).ok().flatten()?;
    let record: Record = serde_json::from_slice(&bytes).ok()?;
    Some(Identity { pid: record.pid, birth: record.birth })
}

async fn stop_our_own(machine: &Machine) -> Result<String, StepFailure> {
    let Some(gateway) = recorded(machine) else { return Ok("the gateway did not run".to_owned()) };
    let note = signal::end_program(machine, gateway, PATIENCE, &ARGUMENTS).await?;
    files::remove(machine, &record_path(machine))?;
    Ok(format!("the gateway (pid {}) {note}", gateway.pid))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::linux::playing::Player;
    use crate::testing::{fake_command, world_folder};

    #[tokio::test]
    async fn the_job_is_written_loaded_and_started_and_never_told_of_a_world() {
        let (_dir, machine) = world_folder("macos");
        let script = "here=\"$(dirname \"$0\")\"; echo \"$@\" >> \"$here/calls\"
case \"$1\" in print) [ -f \"$here/kicked\" ] || { echo 'Could not find service' >&2; exit 113; }
printf 'x = {\\n\\tstate = running\\n\\tpid = 7\\n}\\n';; kickstart) : > \"$here/kicked\";; bootout) exit 3;; esac";
        fake_command(&machine, "bin/launchctl", script);
        assert_eq!(pid(&machine).await, Known::Is(None));
        start(&machine, Path::new("/opt/stablehand")).await.unwrap();
        assert_eq!(pid(&machine).await, Known::Is(Some(7)));
        let list = PropertyList::look(&plist_of(&machine, LABEL)).unwrap().unwrap();
        assert_eq!(list.arguments(), ["/opt/stablehand", "serve", "--gateway"]);
        assert!(!list.keeps_alive(), "the daemon says when");
        assert_eq!(list.top.get("RunAtLoad").and_then(Value::as_boolean), Some(false));
        let calls = std::fs::read_to_string(machine.root().join("bin/calls")).unwrap();
        assert!(calls.contains("bootstrap") && calls.contains("kickstart"), "{calls}");
        let words: Vec<_> = uninstall_changes(&machine).iter().map(ToString::to_string).collect();
        assert!(words[0].contains("take the job dev.stablehand.gateway out"), "{words:?}");
        assert_eq!(words.len(), 2);
    }

    #[tokio::test]
    async fn the_unit_is_started_by_the_users_manager_and_not_enabled() {
        let player = Player::new();
        let machine = &player.machine;
        player.answers(
            "systemctl.user.show",
            &format!("Id={UNIT}\nLoadState=loaded\nActiveState=active\nSubState=running\nMainPID=5\n"),
        );
        assert_eq!(start(machine, Path::new("/opt/stablehand")).await.unwrap(), format!("{UNIT} runs, pid 5"));
        assert_eq!(pid(machine).await, Known::Is(Some(5)));
        let text = std::fs::read_to_string(unit_path(machine)).unwrap();
        assert!(text.contains("\nExecStart=/opt/stablehand serve --gateway\n"), "{text}");
        assert!(!player.calls().iter().any(|call| call.contains("enable")), "{:?}", player.calls());
        linux::carry_out(machine, &uninstall_changes(machine)).await.unwrap();
        assert!(!unit_path(machine).exists());
    }
}
