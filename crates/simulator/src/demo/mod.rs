//! The program's own command line: worlds are made, stopped, disturbed, put to
//! sleep and looked at.

pub mod start;
pub mod status;
pub mod stop;
pub mod terminal;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use clap::{Args, Parser, Subcommand};

use crate::faults;
use crate::releases;
use crate::releases::flaw::Flaw;
use crate::wire::Reply;
use crate::world::{Os, Owner, WORLD_VARIABLE, World, layout};

/// Plays a Mac or a Linux machine in a folder, with a stand-in Ollama.
#[derive(Debug, Parser)]
#[command(version)]
struct CommandLine {
    /// Say what was done, or why not, as JSON.
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Makes a world, or starts a stopped one, and logs its user in.
    Start {
        #[command(flatten)]
        place: Place,
        /// The system to play.
        #[arg(long, value_enum)]
        os: Option<Os>,
        /// Version of Ollama.
        #[arg(long)]
        ollama: Option<String>,
        /// World seconds per real second.
        #[arg(long)]
        speed: Option<f64>,
        /// What starts Ollama.
        #[arg(long, value_enum)]
        owner: Option<Owner>,
        /// The app came with Homebrew's cask.
        #[arg(long)]
        cask: bool,
    },
    /// Ends every process of a world.
    Stop {
        #[command(flatten)]
        place: Place,
    },
    /// Lists faults, or raises one.
    Fault {
        #[command(flatten)]
        place: Place,
        /// Name of the fault.
        name: Option<String>,
        /// Model whose runner is meant.
        #[arg(long)]
        model: Option<String>,
        /// Seconds, for faults that have a length.
        #[arg(long)]
        seconds: Option<u64>,
        /// How often, for faults that are counted.
        #[arg(long)]
        times: Option<u64>,
    },
    /// Builds an Ollama.app of another version, for upgrades.
    Bundle {
        #[command(flatten)]
        place: Place,
        /// Version of the bundle.
        #[arg(long)]
        ollama: String,
        /// Where to put it; must not exist.
        path: PathBuf,
    },
    /// Publishes a release of Ollama, or lists the ways in which one can be bad.
    Release {
        #[command(flatten)]
        place: Place,
        /// What is wrong with it; without a value, lists what can be.
        #[arg(long, value_name = "KIND", num_args = 0..=1, default_missing_value = "")]
        bad: Option<String>,
        /// Size of the largest file in its archive.
        #[arg(long, value_name = "N")]
        megabytes: Option<u64>,
        /// Its version.
        version: Option<String>,
    },
    /// Lets the machine sleep: wall time goes on, awake time does not.
    Sleep {
        #[command(flatten)]
        place: Place,
        /// World seconds.
        seconds: f64,
    },
    /// Shows the processes and the session of a world as JSON.
    Status {
        #[command(flatten)]
        place: Place,
        /// Go on: ten lines a real second, until nobody reads.
        #[arg(long)]
        watch: bool,
    },
}

#[derive(Debug, Args)]
struct Place {
    /// Folder of the world; STABLEHAND_WORLD if absent.
    #[arg(long)]
    dir: Option<PathBuf>,
}

impl Place {
    fn folder(self) -> Result<PathBuf> {
        match self.dir.or_else(|| std::env::var_os(WORLD_VARIABLE).map(PathBuf::from)) {
            Some(dir) => Ok(dir),
            None => bail!("no world is named: give --dir or set {WORLD_VARIABLE}"),
        }
    }

    fn world(self) -> Result<World> {
        World::open(&self.folder()?)
    }
}

/// Runs the program under its own name.
pub fn run() -> ExitCode {
    let CommandLine { json, verb } = CommandLine::parse();
    // The status is JSON in any case.
    let wrapped = json && !matches!(verb, Verb::Status { .. });
    let reply = match obey(verb) {
        Ok(said) if wrapped => {
            let lines: Vec<&str> = said.lines().map(str::trim_end).collect();
            Reply::said(format!("{}\n", serde_json::json!({ "said": lines })))
        }
        Ok(said) => Reply::said(format!("{}\n", said.trim_end())),
        Err(error) if wrapped => {
            let stdout = format!("{}\n", serde_json::json!({ "failed": format!("{error:#}") }));
            Reply { code: 1, stdout, ..Reply::default() }
        }
        Err(error) => Reply::failed(1, format!("stablehand-sim: {error:#}")),
    };
    reply.deliver()
}

fn obey(verb: Verb) -> Result<String> {
    match verb {
        Verb::Start { place, os, ollama, speed, owner, cask } => {
            let wish = start::Wish { os, ollama, speed, owner, cask };
            start::start(&place.folder()?, &wish)
        }
        Verb::Stop { place } => stop::stop(&place.world()?),
        Verb::Fault { name: None, .. } => Ok(faults::Fault::list()),
        Verb::Fault { place, name: Some(name), model, seconds, times } => {
            let world = place.world()?;
            faults::raise(&world, &name, &faults::Details { model, seconds, times })
        }
        Verb::Bundle { place, ollama, path } => {
            if path.exists() {
                bail!("{} exists already; nothing was changed", path.display());
            }
            layout::install_bundle(&place.world()?, &path, &ollama)?;
            Ok(format!("built Ollama {ollama} at {}", path.display()))
        }
        Verb::Release { place, bad, megabytes, version } => {
            release(place, bad.as_deref(), megabytes, version.as_deref())
        }
        Verb::Sleep { place, seconds } => sleep(&place.world()?, seconds),
        Verb::Status { place, watch: false } => Ok(format!("{:#}", status::status(&place.world()?))),
        Verb::Status { place, watch: true } => status::watch(&place.world()?),
    }
}

fn release(place: Place, bad: Option<&str>, megabytes: Option<u64>, version: Option<&str>) -> Result<String> {
    let flaw = match bad {
        None => None,
        Some("") => return Ok(Flaw::list()),
        Some(name) => match Flaw::named(name) {
            Some(flaw) => Some(flaw),
            None => bail!("no release is bad in the way {name:?}; nothing was published, `--bad` alone lists the ways"),
        },
    };
    let Some(version) = version else {
        bail!("which version? Nothing was published");
    };
    releases::publish(&place.world()?, version, flaw, megabytes)
}

fn sleep(world: &World, seconds: f64) -> Result<String> {
    if !(seconds.is_finite() && seconds >= 0.0) {
        bail!("a sleep cannot last {seconds} seconds; nothing was changed");
    }
    let mut clock = world.clock.file();
    clock.slept_ms += (seconds * 1000.0) as i64;
    clock.write(&world.dir.join("clock.json")).context("the clock cannot be written; nothing was changed")?;
    Ok(format!("slept {seconds} s; {} s in all", clock.slept_ms as f64 / 1000.0))
}
