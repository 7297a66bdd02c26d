//! The simulated launchd: one process that holds the session's environment,
//! loads jobs, keeps them alive and starts apps.
//!
//! Commands ask it over loopback (see [`crate::wire`]); it answers with what
//! `launchctl(1)` or `open(1)` would print.

pub mod apps;
pub mod domain;
pub mod job_plist;
pub mod jobs;
pub mod login;
pub mod print;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;
use std::rc::Rc;

use serde::{Deserialize, Serialize};
use tokio::signal::unix::{SignalKind, signal};

use crate::releases::keeper;
use crate::wire::{self, Reply};
use crate::world::World;
use jobs::Job;

/// Name under which commands find the port.
pub const SERVICE: &str = "launchd";

/// What can be asked of launchd.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "kebab-case")]
pub enum Request {
    /// Whether it runs.
    Ping,
    /// `launchctl` with these arguments.
    Launchctl {
        /// Arguments after the program's name.
        arguments: Vec<String>,
    },
    /// `open -a`.
    Open(apps::Opening),
    /// Starts a program that is no job, as a child of launchd.
    Spawn {
        /// Program and arguments.
        arguments: Vec<String>,
        /// Environment beyond the base.
        environment: Vec<(String, String)>,
        /// Where its output goes.
        output: PathBuf,
    },
    /// Runs the login: agents and login items.
    Login {
        /// Whether agents run before the app's login item.
        agents_first: bool,
    },
    /// Ends the session: jobs are dropped, the environment is emptied.
    Logout,
    /// Opens the app with today's session values as soon as it is gone.
    Resurrect,
    /// The session's environment as JSON.
    Session,
    /// Starts nothing from now on.
    ShutDown,
}

/// State of the simulated launchd.
#[derive(Debug)]
pub struct Launchd {
    /// The machine.
    pub world: World,
    /// User whose domain this is.
    pub uid: u32,
    /// Values set by `launchctl setenv`.
    pub session: BTreeMap<String, String>,
    /// Loaded jobs by label.
    pub jobs: BTreeMap<String, Job>,
    /// Labels switched off or on, kept over logins.
    pub disabled: BTreeMap<String, bool>,
    /// Counts started processes, to tell a job's runs apart.
    pub serial: u64,
    /// Set once nothing may be started any more.
    pub shutting_down: bool,
}

/// One owner thread, many local tasks.
pub type Shared = Rc<RefCell<Launchd>>;

/// Runs launchd until SIGTERM, which ends its jobs.
pub fn run(world: World) -> ExitCode {
    let _ = rustix::process::setsid();
    let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else {
        return ExitCode::FAILURE;
    };
    let local = tokio::task::LocalSet::new();
    match local.block_on(&runtime, live(world)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => Reply::failed(1, format!("launchd: {error:#}")).deliver(),
    }
}

async fn live(world: World) -> anyhow::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let _hangup = signal(SignalKind::hangup())?;
    keeper::keep(World::open(&world.dir)?, keeper::bind(&world)?);
    let listener = wire::listen(&world, SERVICE).await?;
    let disabled = domain::read_disabled(&world);
    let shared: Shared = Rc::new(RefCell::new(Launchd {
        uid: rustix::process::getuid().as_raw(),
        world,
        session: BTreeMap::new(),
        jobs: BTreeMap::new(),
        disabled,
        serial: 0,
        shutting_down: false,
    }));
    let handler = {
        let shared = Rc::clone(&shared);
        move |request| answer(Rc::clone(&shared), request)
    };
    tokio::select! {
        () = wire::answer(listener, handler) => {}
        _ = terminate.recv() => {}
    }
    shared.borrow_mut().shutting_down = true;
    jobs::end_all(&shared).await;
    let port_file = shared.borrow().world.state("launchd.port");
    let _ = std::fs::remove_file(port_file);
    Ok(())
}

async fn answer(shared: Shared, request: Request) -> Reply {
    match request {
        Request::Ping => Reply::quiet(),
        Request::Launchctl { arguments } => domain::launchctl(&shared, &arguments).await,
        Request::Open(opening) => apps::open(&shared, opening),
        Request::Spawn { arguments, environment, output } => {
            apps::spawn_program(&shared, &arguments, &environment, &output)
        }
        Request::Login { agents_first } => login::log_in(&shared, agents_first).await,
        Request::Logout => login::log_out(&shared).await,
        Request::Resurrect => apps::resurrect(&shared),
        Request::Session => Reply::said(serde_json::to_string(&shared.borrow().session).unwrap_or_default()),
        Request::ShutDown => {
            shared.borrow_mut().shutting_down = true;
            Reply::quiet()
        }
    }
}
