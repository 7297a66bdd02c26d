//! A model's process: `llama-server` of 0.30 and newer, `ollama runner` of
//! 0.24 and older, and the MLX runner. One decode loop serves all slots.

pub mod arguments;
pub mod condition;
pub mod decode;
pub mod http;
pub mod loading;
pub mod output;
pub mod pace;
pub mod record;
pub mod report;
pub mod slots;

use std::io::Write;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use crate::models::Model;
use crate::serve::library::Library;
use crate::serve::log::quoted;
use crate::world::{World, generation, moments};
use arguments::{Arguments, Kind};
use condition::{Condition, HttpDies, Watch};
use record::{Phase, Record};
use slots::State;

/// The version from which `/slots` no longer waits for the decode loop.
const INSTANT_SLOTS: (u32, u32) = (0, 31);

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
    /// Largest number of prompt tokens in one step.
    pub batch: u64,
    /// Whether `/metrics` answers.
    pub metrics: bool,
    /// Whether `/slots` and `/metrics` are answered between two steps only.
    pub asks_the_loop: bool,
    /// Slots and counters.
    pub state: Mutex<State>,
    /// Rung when there is something to do.
    pub work: Notify,
    watch: Watch,
    record: Mutex<Record>,
    http_dead: AtomicBool,
}

impl Runner {
    /// The shared state.
    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Context of one slot.
    pub fn state_context(&self) -> u64 {
        self.record().context
    }

    /// What the notes of the world say about this process.
    pub fn condition(&self) -> Condition {
        let condition = self.watch.now(&self.world);
        // The decode loop comes by here, so that a dead HTTP side is noted although nobody asks it.
        self.heed_http(condition);
        condition
    }

    /// Notes what is done now, if it is something new.
    pub fn enter(&self, phase: Phase) {
        let busy = self.state().busy();
        self.change(|record| {
            record.phase = phase;
            record.busy = busy;
        });
    }

    /// Notes how far the load is.
    pub fn note_load(&self, loaded: u32) {
        self.change(|record| record.loaded = loaded);
    }

    /// Takes the sizes that a load request names (up to 0.24).
    pub fn resize(&self, context: u64, slots: u64) {
        {
            let mut state = self.state();
            state.context = context;
            if state.busy() == 0 {
                state.slots = (0..slots).map(|_| slots::Slot::default()).collect();
            }
        }
        self.change(|record| measure(record, &self.model, context, slots));
    }

    /// Lets go everyone who waits for the loop's attention.
    pub fn answer_questions(&self) {
        let questions = std::mem::take(&mut self.state().questions);
        for question in questions {
            // Who asked may have left.
            let _ = question.send(());
        }
    }

    /// Whether the HTTP side is dead.
    pub fn is_http_dead(&self) -> bool {
        self.condition();
        self.http_dead.load(Ordering::SeqCst)
    }

    fn heed_http(&self, condition: Condition) {
        let was = self.http_dead.load(Ordering::SeqCst);
        let is = match condition.http_dies {
            None => false,
            Some(HttpDies::Now) => true,
            Some(HttpDies::WithARequest) => was || !self.state().is_idle(),
        };
        if is != was {
            self.http_dead.store(is, Ordering::SeqCst);
            self.change(|record| record.http_dead = is);
        }
    }

    fn change(&self, edit: impl FnOnce(&mut Record)) {
        let mut record = self.record();
        let before = record.clone();
        edit(&mut record);
        if *record != before {
            record.write(&self.world);
        }
    }

    fn record(&self) -> MutexGuard<'_, Record> {
        self.record.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Number of tokens of a text.
pub fn count_tokens(text: &str) -> u64 {
    (text.len() as u64).div_ceil(4) + 6
}

/// A text of so many tokens.
pub fn text_of_tokens(tokens: u64) -> String {
    let length = usize::try_from(tokens.saturating_sub(6).max(1) * 4).unwrap_or(usize::MAX);
    "oats ".chars().cycle().take(length).collect()
}

/// Writes a line for the server's log. The server may be gone: an orphan goes on.
pub fn say(text: &str) {
    let _ = writeln!(std::io::stdout().lock(), "{text}");
}

/// Writes an INFO line as Ollama's own programs do.
pub fn say_info(runner: &Runner, source: &str, message: &str, fields: &[(&str, &str)]) {
    let time = moments::slog(runner.world.clock.wall_ms());
    let mut text = format!("time={time} level=INFO source={source} msg={}", quoted(message));
    for (key, value) in fields {
        text.push_str(&format!(" {key}={}", quoted(value)));
    }
    say(&text);
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
    let Some(model) = model_of(&world, &arguments) else {
        say(&format!(
            "srv    load_model: failed to load model, '{}'\nsrv  llama_server: exiting due to model loading error",
            arguments.model
        ));
        return ExitCode::FAILURE;
    };
    let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else {
        return ExitCode::FAILURE;
    };
    let runner = Arc::new(new(world, model, &arguments));
    runtime.block_on(live(runner, arguments.port))
}

fn new(world: World, model: Model, arguments: &Arguments) -> Runner {
    let metrics = std::env::var("LLAMA_ARG_ENDPOINT_METRICS")
        .is_ok_and(|value| !matches!(value.as_str(), "" | "0" | "false" | "off"));
    let (slots, context) = match arguments.kind {
        Kind::LlamaServer | Kind::Old => (arguments.slots, arguments.context / arguments.slots),
        Kind::Mlx => (1, model.context_length),
    };
    let mut record = Record {
        pid: std::process::id() as i32,
        model: model.name.clone(),
        slots: 0,
        context: 0,
        bytes: 0,
        footprint_bytes: 0,
        phase: Phase::Loading,
        busy: 0,
        loaded: 0,
        http_dead: false,
    };
    measure(&mut record, &model, context, slots);
    record.write(&world);
    Runner {
        state: Mutex::new(State::new(slots, context)),
        model_path: arguments.model.clone(),
        kind: arguments.kind,
        batch: match arguments.kind {
            Kind::LlamaServer => arguments.batch,
            Kind::Old => 512,
            Kind::Mlx => 2048,
        },
        metrics,
        asks_the_loop: generation(&world.ollama_version()) < INSTANT_SLOTS,
        work: Notify::new(),
        watch: Watch::new(world.ollama_flaw()),
        record: Mutex::new(record),
        http_dead: AtomicBool::new(false),
        world,
        model,
    }
}

fn measure(record: &mut Record, model: &Model, context: u64, slots: u64) {
    record.slots = slots;
    record.context = context;
    record.bytes = model.loaded_bytes(context, slots);
    record.footprint_bytes = model.footprint_bytes(context, slots);
}

async fn live(runner: Arc<Runner>, port: u16) -> ExitCode {
    // The MLX engine listens only once the model is there.
    let early = match runner.kind {
        Kind::LlamaServer | Kind::Old => true,
        Kind::Mlx => {
            say_info(
                &runner,
                "server.go:47",
                "MLX engine initialized",
                &[("MLX version", "0.29.1"), ("device", "gpu")],
            );
            if let Err(code) = loading::load(&runner, port).await {
                return code;
            }
            false
        }
    };
    let Ok(listener) = tokio::net::TcpListener::bind(("127.0.0.1", port)).await else {
        say(&format!("srv  llama_server: couldn't bind HTTP server socket, hostname: 127.0.0.1, port: {port}"));
        return ExitCode::FAILURE;
    };
    let router = http::router(Arc::clone(&runner));
    let serving = tokio::spawn(async move { axum::serve(listener, router).await });
    if early && let Err(code) = loading::load(&runner, port).await {
        return code;
    }
    let code = decode::decode(&runner).await;
    serving.abort();
    code
}

fn model_of(world: &World, arguments: &Arguments) -> Option<Model> {
    if arguments.kind == Kind::Mlx {
        let folder = std::env::var("OLLAMA_MODELS").ok().filter(|folder| !folder.is_empty());
        let folder = folder.unwrap_or_else(|| world.home().join(".ollama/models").display().to_string());
        return Library::new(&folder).find(&arguments.model).map(|stored| stored.model);
    }
    let text = std::fs::read_to_string(&arguments.model).ok()?;
    serde_json::from_str(&text).ok()
}
