//! Installing, uninstalling and publishing: verbs that work without a running daemon.

use crate::configuration::ConfigurationFile;
use crate::gateway::record;
use crate::looking::Looker;
use crate::translation::found_owner;
use crate::{Place, failure_of};
use rustix::fs::{FlockOperation, flock};
use rustix::process::{Pid, Signal, kill_process};
use stablehand_engine::Known;
use stablehand_engine::owner::ownership;
use stablehand_engine::setting::Name;
use stablehand_engine::takeover::Mode;
use stablehand_platform::change::Change;
use stablehand_platform::gateway_service;
use stablehand_platform::launchd::launchctl;
use stablehand_platform::machine::{Machine, Os};
use stablehand_platform::paths::{Paths, stablehand_files};
use stablehand_platform::publish::PUBLISHED_AT;
use stablehand_platform::{carry_out, command_link, install_changes, install_notes, uninstall_changes};
use stablehand_protocol::{Failure, FoundOwner};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long a daemon that runs by hand may take to end.
const DAEMON_END: Duration = Duration::from_secs(10);

/// How long a daemon that was just started may take until it answers.
const DAEMON_START: Duration = Duration::from_secs(15);

/// How often publishing is tried at a login, and the time between.
const PUBLISH_TRIES: u32 = 12;
const PUBLISH_PAUSE: Duration = Duration::from_secs(5);

/// What was (or would be) done, in words.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Each change.
    pub steps: Vec<String>,
    /// What a person should know besides.
    pub notes: Vec<String>,
    /// Who starts Ollama; an installation looks for it.
    pub owner: Option<FoundOwner>,
}

/// Makes the service manager run the daemon at every login, and `stablehand` a command in a terminal.
///
/// # Errors
/// When a file is in the way or cannot be written; what was done before stands in the message.
pub async fn install(place: &Place, dry_run: bool) -> Result<Report, Failure> {
    let machine = place.machine();
    let program = command_link::behind(machine, lasting_program()?);
    let mut changes = install_changes(machine, &program).map_err(|failure| failure_of(&failure))?;
    let link = command_link::install(machine, &program).map_err(|failure| failure_of(&failure))?;
    // Last: without it everything else works.
    changes.extend(link.changes);
    let mut steps: Vec<String> = changes.iter().map(ToString::to_string).collect();
    let mut notes = link.notes;
    notes.extend(install_notes(machine));
    let by_hand = if changes.is_empty() { None } else { running_daemon(&stablehand_files(machine).lock) };
    if let Some(pid) = by_hand {
        steps.insert(0, format!("end the daemon that runs now (pid {pid}), so that the service can run it"));
    }
    if !dry_run {
        // Two would fight for the lock.
        if by_hand.is_some() {
            end_daemon(machine).await?;
        }
        carry_out(machine, &changes).await.map_err(|failure| failure_of(&failure))?;
        if !await_daemon(machine).await {
            notes.push("the daemon does not answer yet; see `stablehand doctor`".to_owned());
        }
    }
    let survey = Looker::new(machine.clone()).survey_alone().await;
    Ok(Report { steps, notes, owner: Some(found_owner(&ownership(&survey))) })
}

/// Whether the daemon's socket can be reached within its usual time.
async fn await_daemon(machine: &Machine) -> bool {
    let socket = stablehand_files(machine).socket;
    let reached = async {
        while tokio::net::UnixStream::connect(&socket).await.is_err() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(DAEMON_START, reached).await.is_ok()
}

/// The path that a service may name: a link of a package manager stays a link, because it outlives what it points to
/// now; a place that goes away is refused.
fn lasting_program() -> Result<PathBuf, Failure> {
    let program = std::env::current_exe().map_err(|error| {
        Failure::new("no-own-path", format!("this program cannot tell where it lies: {error}; nothing was changed"), "")
    })?;
    let text = program.to_string_lossy();
    if text.contains("/AppTranslocation/") || text.starts_with("/Volumes/") {
        return Err(Failure::new(
            "program-will-go",
            format!(
                "{text} will not be there at the next login (a disk image or a quarantined copy); nothing was changed"
            ),
            "move Stablehand to /Applications with Finder, start it from there, then install",
        ));
    }
    Ok(program)
}

/// Whether the gateway stands in Ollama's place, or was on its way there: it has to leave before anything else goes.
pub fn is_taken_over(place: &Place) -> bool {
    let machine = place.machine();
    let wished = ConfigurationFile::open(machine).current().gateway.mode == Mode::Takeover;
    wished || record::read(machine).moved.is_some()
}

/// What is said when nobody can let the gateway leave.
pub fn still_taken_over(failure: &Failure) -> Failure {
    Failure::new(
        "gateway-in-place",
        format!(
            "the gateway stands in Ollama's place, and could not be let leave it ({}); nothing was taken away",
            failure.message
        ),
        "start the daemon with `stablehand serve`, run `stablehand gateway off`, then uninstall again",
    )
}

/// Takes everything of ours away and puts adopted files back. Ollama goes on as it runs.
///
/// # Errors
/// When something cannot be taken away; what was done before stands in the message.
pub async fn uninstall(place: &Place, dry_run: bool) -> Result<Report, Failure> {
    let machine = place.machine();
    let mut changes = session_changes(machine);
    changes.extend(uninstall_changes(machine).map_err(|failure| failure_of(&failure))?);
    let mut steps: Vec<String> = changes.iter().map(ToString::to_string).collect();
    let by_hand = running_daemon(&stablehand_files(machine).lock);
    steps.extend(by_hand.map(|pid| format!("end the daemon (pid {pid})")));
    let leftovers = leftovers(machine);
    steps.extend(leftovers.iter().map(|path| format!("remove {}", path.display())));
    if is_taken_over(place) {
        steps.insert(0, "let the gateway leave Ollama's place, and restart Ollama at its own address".to_owned());
    }
    if dry_run {
        return Ok(Report { steps, ..Report::default() });
    }
    let kept = stablehand_platform::linux::own_process::recorded(machine).is_some();
    if gateway_service::pid(machine).await != Known::Is(None) {
        gateway_service::stop(machine).await.map_err(|failure| failure_of(&failure))?;
    }
    carry_out(machine, &changes).await.map_err(|failure| failure_of(&failure))?;
    end_daemon(machine).await?;
    let socket = stablehand_files(machine).socket;
    for path in &leftovers {
        remove(machine, path, &socket)?;
    }
    let orphaned = "the server that Stablehand started goes on, and nobody keeps it running any more";
    Ok(Report { steps, notes: kept.then(|| orphaned.to_owned()).into_iter().collect(), owner: None })
}

/// A plist that cannot be read tells no names; those that are desired were published too.
fn session_changes(machine: &Machine) -> Vec<Change> {
    if machine.os() != Os::MacOs {
        return vec![];
    }
    let file = ConfigurationFile::open(machine);
    let names = file.current().desired.keys().map(Name::as_str).chain([PUBLISHED_AT]);
    names.map(|name| Change::Run(launchctl::unsetenv(machine, name))).collect()
}

/// Gives the login session the persisted settings; the LaunchAgent runs this at login.
///
/// # Errors
/// When the session cannot be reached or the plist cannot be read.
pub async fn publish(place: &Place) -> Result<String, Failure> {
    let machine = place.machine();
    let mut tries = PUBLISH_TRIES;
    loop {
        match stablehand_platform::publish::publish(machine).await {
            Ok(note) => return Ok(note),
            // A login is busy, and its session may not be complete yet; it has but this one publication.
            Err(failure) if tries > 1 && failure.code != "env-plist-unreadable" => {
                tracing::warn!(code = failure.code, message = %failure.message, "not published yet");
                tries -= 1;
                machine.clock().sleep(PUBLISH_PAUSE).await;
            }
            Err(failure) => return Err(failure_of(&failure)),
        }
    }
}

/// The pid in the lock file, if somebody holds the lock.
fn running_daemon(lock: &Path) -> Option<i32> {
    let file = File::open(lock).ok()?;
    if flock(&file, FlockOperation::NonBlockingLockShared).is_ok() {
        return None;
    }
    std::fs::read_to_string(lock).ok()?.trim().parse().ok().filter(|pid| *pid > 1)
}

async fn end_daemon(machine: &Machine) -> Result<(), Failure> {
    let lock = stablehand_files(machine).lock;
    let Some(pid) = running_daemon(&lock) else { return Ok(()) };
    let stubborn = || {
        Failure::new(
            "daemon-does-not-end",
            format!("the daemon (pid {pid}) does not end; its files were left in place"),
            "end it, then try again",
        )
    };
    // Whoever holds the lock is a daemon of this user, and wrote this pid while holding it.
    let process = Pid::from_raw(pid).ok_or_else(stubborn)?;
    kill_process(process, Signal::TERM).map_err(|_| stubborn())?;
    // Another one is launchd's, which started it at once.
    let ended = async {
        while running_daemon(&lock) == Some(pid) {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(DAEMON_END, ended).await.map_err(|_| stubborn())
}

/// Our own files and folders that are there, deepest knowledge first.
fn leftovers(machine: &Machine) -> Vec<PathBuf> {
    let Paths { config_file, data_dir, log_dir, socket, lock, .. } = stablehand_files(machine);
    let mut paths = vec![socket, lock, config_file.clone(), log_dir, data_dir];
    paths.extend(config_file.parent().map(Path::to_path_buf));
    paths.retain(|path| path.symlink_metadata().is_ok());
    paths.sort();
    paths.dedup();
    // What lies in a folder that goes as a whole needs no line of its own.
    let folders: Vec<PathBuf> = paths.iter().filter(|path| path.is_dir()).cloned().collect();
    paths.retain(|path| !folders.iter().any(|folder| folder != path && path.starts_with(folder)));
    paths
}

fn remove(machine: &Machine, path: &Path, socket: &Path) -> Result<(), Failure> {
    // A long path's socket has a short stand-in outside the world; it is ours all the same.
    let allowed = if path == socket { Ok(()) } else { machine.allow_write(path).map_err(|error| error.to_string()) };
    let removed = allowed.and_then(|()| {
        let done = if path.is_dir() { std::fs::remove_dir_all(path) } else { std::fs::remove_file(path) };
        match done {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error.to_string()),
            Ok(()) | Err(_) => {
                if let (true, Some(folder)) = (path == socket, path.parent()) {
                    // Others' sockets may lie in it; then it stays.
                    let _ = std::fs::remove_dir(folder);
                }
                Ok(())
            }
        }
    });
    removed.map_err(|error| {
        Failure::new(
            "not-removed",
            format!("{} was not removed ({error}); everything before it was", path.display()),
            "remove it by hand",
        )
    })
}
