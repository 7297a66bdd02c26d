//! A model's process: `llama-server` of 0.30 and newer, `ollama runner` of
//! 0.24 and older, and the MLX runner. One decode loop serves all slots.

pub mod arguments;
pub mod decode;
pub mod http;
pub mod output;

use std::io::Write;
use std::process::ExitCode;
use std::sync::{Arc, Mutex};

use tokio::sync::Notify;

use crate::faults::Fault;
use crate::models::{self, Model};
use crate::world::{World, notes};
use arguments::{Arguments, Kind};
use decode::State;

/// The ways in which a runner can be told to fail from inside. Stopping and
/// killing are done by signals from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunnerFault {
    /// The decode loop stands still; HTTP goes on.
    DecodeLoopStuck,
    /// The decode loop burns CPU without progress; HTTP goes on.
    BusyLoop,
    /// Every answer is an empty success.
    EmptyReplies,
}

impl RunnerFault {
    /// The fault raised for this very process, if any. A runner that takes its
    /// place is sound.
    pub fn now(world: &World) -> Option<Self> {
        let own = std::process::id();
        [
            (Fault::RunnerStuck, Self::DecodeLoopStuck),
            (Fault::RunnerBusyLoop, Self::BusyLoop),
            (Fault::RunnerEmptyReplies, Self::EmptyReplies),
        ]
        .into_iter()
        .find(|(fault, _)| notes::is_raised_for(world, *fault, own))
        .map(|(_, kind)| kind)
    }
}

/// What the decode loop and the HTTP side share.
#[derive(Debug)]
pub struct Runner {
    /// The machine.
    pub world: World,
    /// The model.
    pub model: Model,
    /// Path of the weights as given.
    pub model_path: String,
    /// Which program this plays.
    pub kind: Kind,
    /// Whether `/metrics` answers.
    pub metrics: bool,
    /// Slots and counters.
    pub state: Mutex<State>,
    /// Rung when there is something to do.
    pub work: Notify,
}

impl Runner {
    /// The shared state.
    pub fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

/// Number of tokens of a text.
pub fn count_tokens(text: &str) -> u64 {
    (text.len() as u64).div_ceil(4) + 6
}

/// Writes a line for the server's log. The server may be gone: an orphan goes on.
pub fn say(text: &str) {
    let _ = writeln!(std::io::stdout().lock(), "{text}");
}

/// Runs a runner until a signal ends it.
pub fn run(world: World, arguments: &[String]) -> ExitCode {
    let arguments = match Arguments::parse(arguments) {
        Ok(arguments) => arguments,
        Err(message) => {
            say(&message);
            return ExitCode::FAILURE;
        }
    };
    let Some(model) = model_of(&arguments) else {
        say(&format!(
            "srv    load_model: failed to load model, '{}'\nsrv  llama_server: exiting due to model loading error",
            arguments.model
        ));
        return ExitCode::FAILURE;
    };
    let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else {
        return ExitCode::FAILURE;
    };
    let metrics = std::env::var("LLAMA_ARG_ENDPOINT_METRICS")
        .is_ok_and(|value| !matches!(value.as_str(), "" | "0" | "false" | "off"));
    let context = arguments.context / arguments.slots;
    let runner = Arc::new(Runner {
        state: Mutex::new(State::new(arguments.slots, context)),
        model_path: arguments.model.clone(),
        kind: arguments.kind,
        work: Notify::new(),
        world,
        model,
        metrics,
    });
    runtime.block_on(live(runner, arguments.port))
}

async fn live(runner: Arc<Runner>, port: u16) -> ExitCode {
    let Ok(listener) = tokio::net::TcpListener::bind(("127.0.0.1", port)).await else {
        say(&format!("srv  llama_server: couldn't bind HTTP server socket, hostname: 127.0.0.1, port: {port}"));
        return ExitCode::FAILURE;
    };
    let router = http::router(Arc::clone(&runner));
    let serving = tokio::spawn(async move { axum::serve(listener, router).await });
    let code = decode::load_and_decode(&runner, port).await;
    serving.abort();
    code
}

fn model_of(arguments: &Arguments) -> Option<Model> {
    if arguments.kind == Kind::Mlx {
        return models::of_a_new_world().into_iter().find(|model| model.name == arguments.model);
    }
    let text = std::fs::read_to_string(&arguments.model).ok()?;
    serde_json::from_str(&text).ok()
}
