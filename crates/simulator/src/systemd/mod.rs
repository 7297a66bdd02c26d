//! The simulated systemd: one process that plays the system manager and the
//! user's manager, runs their units and keeps the journal.

pub mod control;
pub mod journal;
pub mod proc_files;
pub mod show;
pub mod unit_file;
pub mod units;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;
use std::rc::Rc;

use serde::{Deserialize, Serialize};
use tokio::process::Command;
use tokio::signal::unix::{SignalKind, signal};

use crate::launchd::jobs::output;
use crate::releases::keeper;
use crate::wire::{self, Reply};
use crate::world::{Owner, World, notes};
use units::Unit;

/// Name under which commands find the port.
pub const SERVICE: &str = "systemd";

/// Which manager.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Scope {
    /// The system manager.
    System,
    /// The user's manager.
    User,
}

impl Scope {
    /// Folder of unit files of this manager.
    pub fn folder(self, world: &World) -> PathBuf {
        match self {
            Self::System => world.path("/etc/systemd/system"),
            Self::User => world.home().join(".config/systemd/user"),
        }
    }

    /// Short name.
    pub fn name(self) -> &'static str {
        match self {
            Self::System => "system",
            Self::User => "user",
        }
    }
}

/// What can be asked of systemd.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "kebab-case")]
pub enum Request {
    /// Whether it runs.
    Ping,
    /// `systemctl` with these arguments, options of the manager taken out.
    Systemctl {
        /// Which manager.
        scope: Scope,
        /// Arguments after the program's name.
        arguments: Vec<String>,
        /// Called with the rights of root.
        privileged: bool,
    },
    /// Starts everything that is enabled, and the container if there is one.
    Boot,
    /// Starts a program that is no unit.
    Spawn {
        /// Program and arguments.
        arguments: Vec<String>,
        /// Environment beyond the base.
        environment: Vec<(String, String)>,
        /// Where its output goes.
        output: PathBuf,
    },
    /// Starts nothing from now on.
    ShutDown,
}

/// State of the simulated systemd.
#[derive(Debug)]
pub struct Systemd {
    /// The machine.
    pub world: World,
    /// Loaded units.
    pub units: BTreeMap<(Scope, String), Unit>,
    /// `systemctl --user set-environment`.
    pub user_environment: BTreeMap<String, String>,
    /// Counts started processes.
    pub serial: u64,
    /// Set once nothing may be started any more.
    pub shutting_down: bool,
}

/// One owner thread, many local tasks.
pub type Shared = Rc<RefCell<Systemd>>;

/// Runs systemd until SIGTERM. Units are left as they are.
pub fn run(world: World) -> ExitCode {
    let _ = rustix::process::setsid();
    let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else {
        return ExitCode::FAILURE;
    };
    let local = tokio::task::LocalSet::new();
    match local.block_on(&runtime, live(world)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => Reply::failed(1, format!("systemd: {error:#}")).deliver(),
    }
}

async fn live(world: World) -> anyhow::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let _hangup = signal(SignalKind::hangup())?;
    keeper::keep(World::open(&world.dir)?, keeper::bind(&world)?);
    let listener = wire::listen(&world, SERVICE).await?;
    let kernel = World::open(&world.dir)?;
    let shared: Shared = Rc::new(RefCell::new(Systemd {
        world,
        units: BTreeMap::new(),
        user_environment: BTreeMap::new(),
        serial: 0,
        shutting_down: false,
    }));
    let handler = {
        let shared = Rc::clone(&shared);
        move |request| answer(Rc::clone(&shared), request)
    };
    tokio::select! {
        () = wire::answer(listener, handler) => {}
        () = proc_files::keep(&kernel) => {}
        _ = terminate.recv() => {}
    }
    let port_file = shared.borrow().world.state("systemd.port");
    let _ = std::fs::remove_file(port_file);
    Ok(())
}

async fn answer(shared: Shared, request: Request) -> Reply {
    match request {
        Request::Ping => Reply::quiet(),
        Request::Systemctl { scope, arguments, privileged } => {
            control::systemctl(&shared, scope, &arguments, privileged).await
        }
        Request::Boot => {
            boot(&shared);
            Reply::quiet()
        }
        Request::Spawn { arguments, environment, output } => spawn(&shared, &arguments, &environment, &output),
        Request::ShutDown => {
            shared.borrow_mut().shutting_down = true;
            Reply::quiet()
        }
    }
}

fn boot(shared: &Shared) {
    for folder in ["/run/systemd", "/run/user"] {
        // Nothing there outlives a boot.
        let _ = std::fs::remove_dir_all(shared.borrow().world.path(folder));
    }
    for scope in [Scope::System, Scope::User] {
        let wants = scope.folder(&shared.borrow().world).join("default.target.wants");
        let mut names: Vec<String> = std::fs::read_dir(wants)
            .into_iter()
            .flatten()
            .flatten()
            .map(|entry| entry.file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        for name in names {
            units::start(shared, scope, &name);
        }
    }
    if notes::owner(&shared.borrow().world) == Owner::Container {
        let (shim, log) = {
            let state = shared.borrow();
            (
                state.world.path("/usr/bin/containerd-shim-runc-v2").display().to_string(),
                state.world.state("container.log"),
            )
        };
        let arguments = [shim.as_str(), "-namespace", "moby", "-id", crate::commands::docker::ID].map(str::to_owned);
        spawn(shared, &arguments, &[], &log);
    }
}

fn spawn(shared: &Shared, arguments: &[String], environment: &[(String, String)], log: &std::path::Path) -> Reply {
    let state = shared.borrow();
    let Some((program, rest)) = arguments.split_first() else {
        return Reply::failed(64, "no program");
    };
    let spawned = output(Some(log)).and_then(|stdout| {
        Command::new(program)
            .args(rest)
            .env_clear()
            .envs(state.world.base_environment())
            .envs(environment.iter().cloned())
            .current_dir(&state.world.dir)
            .process_group(0)
            .stdin(std::process::Stdio::null())
            .stdout(stdout)
            .stderr(output(Some(log))?)
            .spawn()
    });
    match spawned {
        Ok(mut child) => {
            let pid = child.id().unwrap_or_default();
            tokio::task::spawn_local(async move {
                let _ = child.wait().await;
            });
            Reply::said(format!("{pid}\n"))
        }
        Err(error) => Reply::failed(1, format!("{program}: {error}")),
    }
}
