//! The stand-in `ollama serve`.

pub mod access;
pub mod answering;
pub mod anthropic;
pub mod completion;
pub mod disturbance;
pub mod environment;
pub mod library;
pub mod listening;
pub mod loading;
pub mod log;
pub mod native;
pub mod openai;
pub mod scheduler;

use std::io::Write;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::signal::unix::{SignalKind, signal};

use crate::faults::Fault;
use crate::http_probe;
use crate::releases::flaw::Flaw;
use crate::wire::Reply;
use crate::world::{Os, World, moments, notes};
use environment::Environment;
use library::Library;
use log::Log;
use scheduler::Scheduler;

/// What a server says that is not the version it was released as.
const OTHER_VERSION: &str = "0.21.2";

/// World time between the open port and the first answer: the search for GPUs.
const DISCOVERY: Duration = Duration::from_millis(400);

/// What request handlers share.
#[derive(Debug)]
pub struct Server {
    /// The machine.
    pub world: Arc<World>,
    /// Effective settings.
    pub environment: Environment,
    /// Models on disk.
    pub library: Library,
    /// The log.
    pub log: Log,
    /// Version told to clients.
    pub version: String,
    /// Loaded models.
    pub scheduler: Arc<Scheduler>,
}

impl Server {
    /// Context of a slot when a request names none: the setting, else by memory.
    pub fn default_context(&self) -> u64 {
        match self.environment.context_length {
            0 => automatic_context(self.world.marker.gpu_working_set_bytes),
            tokens => tokens,
        }
    }
}

/// Runs the command line of `ollama`, other than `ollama runner`.
pub fn run(world: World, arguments: &[String]) -> ExitCode {
    match arguments.first().map(String::as_str) {
        Some("serve" | "start") => serve(world),
        Some("--version" | "-v") => version(&world).deliver(),
        Some(other) => Reply::failed(1, format!("Error: unknown command \"{other}\" for \"ollama\"")).deliver(),
        None => Reply::said(
            "Usage:\n  ollama [flags]\n  ollama [command]\n\nAvailable Commands:\n  serve       Start Ollama\n",
        )
        .deliver(),
    }
}

/// Context by memory (`server/routes.go`).
pub fn automatic_context(memory_bytes: u64) -> u64 {
    const GIB: u64 = 1 << 30;
    if memory_bytes >= 47 * GIB {
        262_144
    } else if memory_bytes >= 23 * GIB {
        32_768
    } else {
        4_096
    }
}

fn version(world: &World) -> Reply {
    let client = world.ollama_version();
    let lookup = |key: &str| std::env::var(key).ok();
    let home = world.home().display().to_string();
    let port = Environment::read(lookup, world.marker.port, &home, true).port;
    let server = http_probe::get(port, "/api/version", Duration::from_secs(2))
        .and_then(|body| serde_json::from_str::<serde_json::Value>(&body).ok())
        .and_then(|value| value["version"].as_str().map(str::to_owned));
    Reply::said(match server {
        Some(version) if version == client => format!("ollama version is {version}\n"),
        Some(version) => format!("ollama version is {version}\nWarning: client version is {client}\n"),
        None => {
            format!("Warning: could not connect to a running Ollama instance\nWarning: client version is {client}\n")
        }
    })
}

fn serve(world: World) -> ExitCode {
    let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else {
        return ExitCode::FAILURE;
    };
    let code = runtime.block_on(live(Arc::new(world)));
    let _ = std::io::stdout().flush();
    // Connections in flight are cut, as the real server cuts them.
    runtime.shutdown_background();
    code
}

async fn live(world: Arc<World>) -> ExitCode {
    let mac = world.marker.os == Os::Macos;
    let home = world.home().display().to_string();
    let flaw = world.ollama_flaw();
    let heeded = |key: &str| {
        flaw != Some(Flaw::LosesSettings) || matches!(key, "OLLAMA_HOST" | "OLLAMA_MODELS" | "OLLAMA_ORIGINS")
    };
    let lookup = |key: &str| std::env::var(key).ok().filter(|_| heeded(key));
    let environment = Environment::read(lookup, world.marker.port, &home, mac);
    let log = Log::new(Arc::clone(&world), environment.debug);
    let version = match flaw {
        Some(Flaw::WrongVersion) => OTHER_VERSION.to_owned(),
        Some(_) | None => world.ollama_version(),
    };
    let library = Library::new(&environment.models);
    announce(&world, &environment, &library, &log);
    if notes::is_raised(&world, Fault::CrashLoop) || flaw == Some(Flaw::ServerCrashes) {
        return Reply::failed(2, "panic: runtime error: invalid memory address or nil pointer dereference").deliver();
    }
    let (Ok(mut interrupt), Ok(mut terminate)) = (signal(SignalKind::interrupt()), signal(SignalKind::terminate()))
    else {
        return ExitCode::FAILURE;
    };
    let port = environment.port;
    let listener = match listening::bind(port) {
        Ok(listener) => listener,
        Err(_) => {
            let host = &environment.host;
            return Reply::failed(1, format!("Error: listen tcp {host}:{port}: bind: address already in use"))
                .deliver();
        }
    };
    let shown = match environment.host.as_str() {
        "0.0.0.0" | "[::]" | "::" => "[::]",
        host => host,
    };
    log.info("routes.go:2011", &format!("Listening on {shown}:{port} (version {version})"), &[]);
    let scheduler = Scheduler::start(Arc::clone(&world), environment.clone(), log.clone(), version.clone());
    let server = Arc::new(Server {
        world: Arc::clone(&world),
        environment,
        library,
        log: log.clone(),
        version,
        scheduler: Arc::clone(&scheduler),
    });
    let serving = async {
        discover(&server).await;
        let silent = flaw == Some(Flaw::NeverAnswers) || notes::is_raised(&world, Fault::StartNeverAnswers);
        if silent || notes::consume(&world, Fault::StartHangsOnce) {
            std::future::pending::<()>().await;
        }
        listening::answer(listener, native::router(server)).await;
    };
    let stopping = async {
        loop {
            tokio::select! {
                _ = interrupt.recv() => {
                    if !notes::is_raised(&world, Fault::ServeIgnoresSigint) {
                        return;
                    }
                }
                _ = terminate.recv() => return,
            }
        }
    };
    tokio::select! {
        () = serving => {}
        () = stopping => {}
    }
    scheduler.kill_runners();
    ExitCode::SUCCESS
}

fn announce(world: &World, environment: &Environment, library: &Library, log: &Log) {
    for (key, value, default) in &environment.warnings {
        log.warn(
            "config.go:310",
            "invalid environment variable, using default",
            &[("key", key), ("value", value), ("default", default)],
        );
    }
    if !notes::is_raised(world, Fault::ConfigLineMissing) {
        log.info("routes.go:1951", "server config", &[("env", &environment.printed_map())]);
    }
    log.info("routes.go:1955", &format!("Ollama cloud disabled: {}", environment.no_cloud), &[]);
    log.info("images.go:522", &format!("total blobs: {}", library.blobs()), &[]);
    log.info("images.go:529", "total unused blobs removed: 0", &[]);
    if std::env::var("GIN_MODE").as_deref() != Ok("release") {
        log.raw("[GIN-debug] [WARNING] Creating an Engine instance with the Logger and Recovery middleware already attached.");
        log.raw("");
        for (method, path) in native::ROUTES {
            log.raw(&format!(
                "[GIN-debug] {method:<6} {path:<25} --> github.com/ollama/ollama/server.(*Server).GenerateRoutes.func1 (5 handlers)"
            ));
        }
    }
}

async fn discover(server: &Server) {
    let world = &server.world;
    let wait = match notes::raised(world, Fault::SlowStart) {
        Some(parameters) => Duration::from_secs(parameters["seconds"].as_u64().unwrap_or(20)),
        None => DISCOVERY,
    };
    world.clock.wait(wait).await;
    let bytes = world.marker.gpu_working_set_bytes;
    let total = moments::human_bytes(bytes);
    let (library, description) = match world.marker.os {
        Os::Macos => ("Metal", "Apple M4 Max"),
        Os::Linux => ("CUDA", "NVIDIA RTX 6000"),
    };
    server.log.info(
        "types.go:42",
        "inference compute",
        &[
            ("id", "0"),
            ("library", library),
            ("name", library),
            ("description", description),
            ("total", &total),
            ("available", &total),
        ],
    );
    server.log.info(
        "routes.go:2058",
        "vram-based default context",
        &[("total_vram", &total), ("default_num_ctx", &automatic_context(bytes).to_string())],
    );
}

/// Real instant and phase that a request carries through its handlers.
#[derive(Clone, Debug)]
pub struct Arrival {
    /// When it came.
    pub at: Instant,
    /// What it is doing.
    pub phase: Arc<std::sync::Mutex<log::Phase>>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn context_follows_memory() {
        assert_eq!(automatic_context(48 << 30), 262_144);
        assert_eq!(automatic_context(24 << 30), 32_768);
        assert_eq!(automatic_context(8 << 30), 4_096);
    }
}
