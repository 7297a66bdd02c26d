//! Making a world and logging its user in.

use std::fs::{File, OpenOptions};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::clients::ledger;
use crate::faults::{self, machine};
use crate::runner::record;
use crate::world::clock::{ClockFile, monotonic_ms};
use crate::world::{MARKER, Marker, Os, Owner, World, layout, notes};
use crate::{launchd, ports, systemd, wire};

/// Version of Ollama in a new world.
const DEFAULT_OLLAMA: &str = "0.33.0";
/// Real time that Ollama may take to answer.
const LIMIT: Duration = Duration::from_secs(60);

/// What the caller asked for; what is absent keeps its default or its present
/// value.
#[derive(Debug)]
pub struct Wish {
    /// System.
    pub os: Option<Os>,
    /// Version of Ollama.
    pub ollama: Option<String>,
    /// World seconds per real second.
    pub speed: Option<f64>,
    /// What starts Ollama.
    pub owner: Option<Owner>,
    /// The app came with Homebrew's cask.
    pub cask: bool,
}

/// Makes or restarts the world in `dir` and returns when Ollama answers.
pub fn start(dir: &Path, wish: &Wish) -> Result<String> {
    let speed = wish.speed.unwrap_or(1.0);
    if !(speed.is_finite() && speed > 0.0) {
        bail!("a world cannot run at speed {speed}; nothing was made");
    }
    let known = dir.join(MARKER).is_file();
    let world = if known {
        let world = World::open(dir)?;
        if is_running(&world) {
            return Ok(format!("{} is running already", world.dir.display()));
        }
        go_on(&world, wish)?
    } else {
        make(dir, wish, speed)?
    };
    start_manager(&world)?;
    log_in(&world)?;
    let owner = notes::owner(&world);
    if owner != Owner::None && !machine::wait_for_server(&world, LIMIT) {
        bail!(
            "Ollama did not answer within {} s; the world {} is running, look at its logs or stop it",
            LIMIT.as_secs(),
            world.dir.display()
        );
    }
    let owner = serde_json::to_value(owner)?;
    Ok(format!(
        "{} world {}: Ollama {} on port {}, owner {}, speed {}",
        if known { "started again" } else { "made" },
        world.dir.display(),
        world.marker.ollama,
        world.marker.port,
        owner.as_str().unwrap_or("none"),
        world.clock.file().speed,
    ))
}

/// Whether the manager of the world answers.
pub fn is_running(world: &World) -> bool {
    let answer = match world.marker.os {
        Os::Macos => wire::ask(world, launchd::SERVICE, &launchd::Request::Ping),
        Os::Linux => wire::ask(world, systemd::SERVICE, &systemd::Request::Ping),
    };
    answer.is_ok()
}

fn make(dir: &Path, wish: &Wish, speed: f64) -> Result<World> {
    if let Ok(mut entries) = std::fs::read_dir(dir)
        && entries.next().is_some()
    {
        bail!("{} is not empty and holds no {MARKER}; nothing was changed, name an empty or new folder", dir.display());
    }
    let os = wish.os.unwrap_or(Os::Macos);
    let owner = wish.owner.unwrap_or(match os {
        Os::Macos => Owner::App,
        Os::Linux => Owner::Systemd,
    });
    let fits = match os {
        Os::Macos => matches!(owner, Owner::App | Owner::Brew | Owner::Manual | Owner::None),
        Os::Linux => matches!(owner, Owner::Systemd | Owner::UserUnit | Owner::Container | Owner::Manual | Owner::None),
    };
    if !fits {
        bail!("this owner does not exist on this system; nothing was made");
    }
    if wish.cask && (os != Os::Macos || owner == Owner::Brew) {
        bail!("only the app comes with a cask; nothing was made");
    }
    let user = "sim".to_owned();
    let marker = Marker {
        format: 1,
        os,
        home: match os {
            Os::Macos => format!("/Users/{user}"),
            Os::Linux => format!("/home/{user}"),
        },
        user,
        port: ports::free()?,
        ollama: wish.ollama.clone().unwrap_or_else(|| DEFAULT_OLLAMA.to_owned()),
        memory_bytes: 64 << 30,
        gpu_working_set_bytes: 48 << 30,
    };
    layout::create(dir, &marker, owner, wish.cask, speed)
}

/// Takes a stopped world up again: its clock goes on, someone sits at the screen.
fn go_on(world: &World, wish: &Wish) -> Result<World> {
    let other_owner = wish.owner.is_some_and(|owner| owner != notes::owner(world));
    let other_system = wish.os.is_some_and(|os| os != world.marker.os);
    if other_owner || other_system {
        bail!("the system and the owner of a world are chosen when it is made; nothing was changed");
    }
    // These were about processes that ended with the last run.
    for fault in [
        faults::Fault::BrewAtWork,
        faults::Fault::CliResurrectsApp,
        faults::Fault::PortStranger,
        faults::Fault::RunnerStuck,
        faults::Fault::RunnerStopped,
        faults::Fault::RunnerBusyLoop,
        faults::Fault::RunnerEmptyReplies,
        faults::Fault::RunnerHttpDead,
        faults::Fault::StoppingForEver,
        faults::Fault::SchedulerBlocked,
        faults::Fault::ServeCorrupt,
        faults::Fault::ServerSilent,
        faults::Fault::WorkLongPrefill,
        faults::Fault::WorkFirstPromptSwapping,
        faults::Fault::WorkImage,
        faults::Fault::WorkLongLoad,
    ] {
        notes::clear(world, fault);
    }
    record::forget_all(world);
    ledger::forget(world);
    let file = world.clock.file();
    let now = monotonic_ms();
    let rebooted = now < file.anchor_monotonic_ms as f64;
    if rebooted {
        let fresh = ClockFile::starting_now(wish.speed.unwrap_or(file.speed));
        let kept = ClockFile {
            anchor_wall_unix_ms: fresh.anchor_wall_unix_ms.max(file.anchor_wall_unix_ms),
            slept_ms: file.slept_ms,
            ..fresh
        };
        kept.write(&world.dir.join("clock.json"))?;
    } else if let Some(speed) = wish.speed {
        file.at_speed(speed, now).write(&world.dir.join("clock.json"))?;
    }
    if !notes::is_raised(world, faults::Fault::NoGuiSession) {
        crate::world::write_whole(&world.state("console"), world.marker.user.as_bytes())?;
    }
    if notes::is_raised(world, faults::Fault::RenameEperm) {
        machine::forbid_renames(world, true)?;
    }
    World::open(&world.dir)
}

fn start_manager(world: &World) -> Result<()> {
    let (program, name) = match world.marker.os {
        Os::Macos => (world.path("/sbin/launchd"), launchd::SERVICE),
        Os::Linux => (world.path("/lib/systemd/systemd"), systemd::SERVICE),
    };
    let _ = std::fs::remove_file(world.state(&format!("{name}.port")));
    let log = log_file(world, &format!("{name}.log"))?;
    Command::new(&program)
        .env_clear()
        .envs(world.base_environment())
        .current_dir(&world.dir)
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        .spawn()
        .with_context(|| format!("{} cannot be started", program.display()))?;
    let deadline = Instant::now() + Duration::from_secs(20);
    while !is_running(world) {
        if Instant::now() > deadline {
            bail!("{name} of the world does not answer; see {}", world.state(name).display());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

fn log_in(world: &World) -> Result<()> {
    match world.marker.os {
        Os::Macos => {
            wire::ask(world, launchd::SERVICE, &launchd::Request::Login { agents_first: true })?;
        }
        Os::Linux => {
            wire::ask(world, systemd::SERVICE, &systemd::Request::Boot)?;
        }
    }
    if notes::owner(world) == Owner::Manual && !comes_by_itself(world) {
        let terminal = world.path("/bin/zsh").display().to_string();
        machine::spawn(world, &[&terminal, "-i"])?;
    }
    Ok(())
}

/// Whoever sits at the terminal starts a server only where none comes with the login.
fn comes_by_itself(world: &World) -> bool {
    let wants = systemd::Scope::User.folder(world).join("default.target.wants");
    let names = std::fs::read_dir(wants).into_iter().flatten().flatten().map(|entry| entry.file_name());
    world.marker.os == Os::Linux && names.into_iter().any(|name| name.to_string_lossy().contains("ollama"))
}

fn log_file(world: &World, name: &str) -> Result<File> {
    let path = world.state(name);
    OpenOptions::new()
        .create(true)
        .append(true)
        .open(&path)
        .with_context(|| format!("{} cannot be written", path.display()))
}
