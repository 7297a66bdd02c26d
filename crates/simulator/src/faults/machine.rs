//! Moves that several faults make: end Ollama, start it again, wait for it.

use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::Signal;

use crate::launchd::apps::Opening;
use crate::process_table::{self, Process};
use crate::serve::environment::Environment;
use crate::world::{Os, Owner, World, notes};
use crate::{http_probe, launchd, systemd, wire};

/// Real time that a move may take.
pub const LIMIT: Duration = Duration::from_secs(45);

/// Waits until a condition of the world holds.
pub fn wait_until(limit: Duration, holds: impl Fn() -> bool) -> bool {
    let deadline = Instant::now() + limit;
    while !holds() {
        if Instant::now() > deadline {
            return false;
        }
        std::thread::sleep(Duration::from_millis(15));
    }
    true
}

/// The port a server process was told to listen on.
pub fn port_of(world: &World, server: &Process) -> u16 {
    environment_of(world, server).port
}

/// The settings a server process was started with.
fn environment_of(world: &World, server: &Process) -> Environment {
    let lookup = |key: &str| {
        let prefix = format!("{key}=");
        server.environment.iter().find_map(|variable| variable.strip_prefix(&prefix).map(str::to_owned))
    };
    Environment::read(lookup, world.marker.port, "", true)
}

/// The port on which one of the world's servers answers now.
pub fn answering_port(world: &World) -> Option<u16> {
    answering_server(world).map(|(_, port)| port)
}

/// Process and port of the server that answers now.
pub fn answering_server(world: &World) -> Option<(i32, u16)> {
    process_table::of(world)
        .iter()
        .filter(|process| process.is_serve())
        .map(|process| (process.pid, port_of(world, process)))
        .find(|(_, port)| http_probe::get(*port, "/api/version", Duration::from_millis(500)).is_some())
}

/// Slots that the server gives a model that may have several.
pub fn slots_of_server(world: &World) -> Option<u64> {
    let server = process_table::of(world).into_iter().find(Process::is_serve)?;
    Some(environment_of(world, &server).num_parallel.max(1))
}

/// Waits until one of the world's servers answers.
pub fn wait_for_server(world: &World, limit: Duration) -> bool {
    wait_until(limit, || answering_port(world).is_some())
}

/// Pids of the processes of one kind.
pub fn pids(world: &World, wanted: impl Fn(&Process) -> bool) -> Vec<i32> {
    process_table::of(world).iter().filter(|process| wanted(process)).map(|process| process.pid).collect()
}

/// Signals processes and waits until they are gone.
pub fn end(pids: &[i32], signal: Signal) -> Result<()> {
    for pid in pids {
        process_table::signal(*pid, signal);
    }
    if wait_until(LIMIT, || !pids.iter().any(|pid| process_table::is_alive(*pid))) {
        Ok(())
    } else {
        bail!("a process did not end within {} s", LIMIT.as_secs())
    }
}

/// Ends Ollama the way its owner ends it, so that it stays away.
pub fn stop_ollama(world: &World) -> Result<()> {
    match notes::owner(world) {
        Owner::App => end(&pids(world, Process::is_gui), Signal::TERM)?,
        Owner::Brew => {
            let label = crate::world::layout::brew_plist(world).0;
            let uid = rustix::process::getuid().as_raw();
            launchctl(world, &["bootout", &format!("gui/{uid}/{label}")])?;
        }
        Owner::Systemd => systemctl(world, systemd::Scope::System, &["stop", "ollama"])?,
        Owner::UserUnit => systemctl(world, systemd::Scope::User, &["stop", "ollama"])?,
        Owner::Manual | Owner::Container | Owner::None => {
            end(&pids(world, Process::is_serve), Signal::TERM)?;
        }
    }
    let gone = wait_until(LIMIT, || pids(world, Process::is_serve).is_empty());
    if gone { Ok(()) } else { bail!("the server did not end within {} s", LIMIT.as_secs()) }
}

/// Starts Ollama the way its owner starts it. Whether it answers is not waited for.
pub fn start_ollama(world: &World) -> Result<()> {
    match notes::owner(world) {
        Owner::App => open_app(world, &world.path("/Applications/Ollama.app"), false),
        Owner::Brew => {
            let (_, file) = crate::world::layout::brew_plist(world);
            let uid = rustix::process::getuid().as_raw();
            let file = file.display().to_string();
            let domain = format!("gui/{uid}");
            if wait_until(LIMIT, || launchctl(world, &["bootstrap", &domain, &file]).is_ok()) {
                Ok(())
            } else {
                bail!("the Homebrew service cannot be started")
            }
        }
        Owner::Systemd => systemctl(world, systemd::Scope::System, &["start", "ollama"]),
        Owner::UserUnit => systemctl(world, systemd::Scope::User, &["start", "ollama"]),
        Owner::Manual => {
            let terminal = world.path("/bin/zsh").display().to_string();
            spawn(world, &[&terminal, "-i"])
        }
        Owner::Container | Owner::None => Ok(()),
    }
}

/// `open -a`, as someone at the screen does it.
pub fn open_app(world: &World, bundle: &std::path::Path, fresh: bool) -> Result<()> {
    let opening = Opening { bundle: bundle.to_owned(), arguments: Vec::new(), environment: Vec::new(), fresh };
    let reply = wire::ask(world, launchd::SERVICE, &launchd::Request::Open(opening))?;
    if reply.code != 0 {
        bail!("{}", reply.stderr.trim_end());
    }
    Ok(())
}

/// `launchctl` with these words.
pub fn launchctl(world: &World, words: &[&str]) -> Result<String> {
    let arguments = words.iter().map(|word| (*word).to_owned()).collect();
    let reply = wire::ask(world, launchd::SERVICE, &launchd::Request::Launchctl { arguments })?;
    if reply.code != 0 {
        bail!("launchctl {}: {}", words.join(" "), reply.stderr.trim_end());
    }
    Ok(reply.stdout)
}

/// `systemctl` with these words and root's rights.
pub fn systemctl(world: &World, scope: systemd::Scope, words: &[&str]) -> Result<()> {
    let request = systemd::Request::Systemctl {
        scope,
        arguments: words.iter().map(|word| (*word).to_owned()).collect(),
        privileged: true,
    };
    let reply = wire::ask(world, systemd::SERVICE, &request)?;
    if reply.code != 0 {
        bail!("systemctl {}: {}", words.join(" "), reply.stderr.trim_end());
    }
    Ok(())
}

/// Starts a program as a child of the world's manager.
pub fn spawn(world: &World, words: &[&str]) -> Result<()> {
    let arguments: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
    let output = PathBuf::from("/dev/null");
    let environment = Vec::new();
    let reply = match world.marker.os {
        Os::Macos => wire::ask(world, launchd::SERVICE, &launchd::Request::Spawn { arguments, environment, output })?,
        Os::Linux => wire::ask(world, systemd::SERVICE, &systemd::Request::Spawn { arguments, environment, output })?,
    };
    if reply.code != 0 {
        bail!("{}", reply.stderr.trim_end());
    }
    Ok(())
}

/// Forbids or allows to move the apps of the world, with the host's own means:
/// the immutable flag, which needs root on Linux; else the folder is closed.
pub fn forbid_renames(world: &World, forbid: bool) -> Result<()> {
    use std::os::unix::fs::PermissionsExt;
    let folder = match world.marker.os {
        Os::Macos => world.path("/Applications"),
        Os::Linux => world.path("/usr/local/bin"),
    };
    let flagged = std::fs::read_dir(&folder)
        .with_context(|| format!("{} cannot be read", folder.display()))?
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| !path.is_symlink())
        .all(|path| {
            let mut command = if std::env::consts::OS == "macos" {
                let mut command = Command::new("/usr/bin/chflags");
                command.arg(if forbid { "uchg" } else { "nouchg" });
                command
            } else {
                let mut command = Command::new("/usr/bin/chattr");
                command.arg(if forbid { "+i" } else { "-i" });
                command
            };
            command.arg(path).output().is_ok_and(|output| output.status.success())
        });
    if !flagged || !forbid {
        let mode = if forbid { 0o555 } else { 0o755 };
        std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(mode))?;
    }
    Ok(())
}
