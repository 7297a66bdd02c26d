//! One line of the log, understood.

use super::record::{Level, Record};
use super::runner_line::{self, Buffer, RunnerLine, SlotLine};
use super::stamp::Zone;
use super::{Access, ConfigLine, config_line, may_speak_of_exhausted_memory, speaks_of_exhausted_memory};
use crate::argv::runner_of_command_line;
use jiff::tz::TimeZone;
use stablehand_engine::Known;
use stablehand_engine::process::{RunnerArgs, RunnerKind};
use stablehand_engine::time::Wall;
use std::time::Duration;

/// What went wrong with a runner or a load.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunnerFailure {
    /// When.
    pub at: Wall,
    /// The model's blob path, when the line names it.
    pub model: Option<String>,
    /// The server's words.
    pub error: String,
    /// Whether they speak of exhausted memory.
    pub out_of_memory: bool,
    /// Whether the line says that the runner's process ended.
    pub process_ended: bool,
}

/// A line of the log. Everything that the supervisor has no use for is [`Line::Other`].
#[derive(Clone, Debug, PartialEq)]
pub enum Line {
    /// The server shows its settings; the first thing that it logs.
    Config(ConfigLine),
    /// The server has its port. It does not answer yet: it looks for GPUs first.
    Listening {
        /// When.
        at: Wall,
        /// Address and port.
        address: String,
        /// Its version.
        version: String,
    },
    /// The context that models get when nobody says how much; the last line of a start.
    DefaultContext {
        /// When.
        at: Wall,
        /// Tokens for each parallel request.
        tokens: u64,
        /// The GPU memory it was chosen by, as logged (`48.0 GiB`).
        gpu_memory: String,
    },
    /// A GPU, or the processor, that models run on.
    Compute {
        /// When.
        at: Wall,
        /// `Metal`, `CUDA`, `cpu` …
        library: String,
        /// What it calls itself.
        description: String,
        /// Its memory, as logged.
        total: String,
        /// What of it is free, as logged.
        available: String,
    },
    /// The server could not read a value and uses its default.
    SettingIgnored {
        /// When.
        at: Wall,
        /// The variable.
        name: String,
        /// Its value.
        value: String,
        /// What is used instead.
        used: String,
    },
    /// The server could not have its port and went.
    AddressInUse {
        /// The address.
        address: String,
    },
    /// A request ended.
    Access(Access),
    /// A model is about to be loaded.
    Loading {
        /// When.
        at: Wall,
        /// Its blob path.
        model: String,
    },
    /// A runner is being started.
    RunnerStarting {
        /// When.
        at: Wall,
        /// What its arguments say.
        args: RunnerArgs,
    },
    /// A runner is ready.
    RunnerReady {
        /// When.
        at: Wall,
        /// How long the load took, when told.
        took: Option<Duration>,
    },
    /// How many runners there are after a load.
    RunnersLoaded {
        /// When.
        at: Wall,
        /// The number.
        count: u32,
    },
    /// A model got one slot although the setting asked for more.
    ForcedToOne {
        /// When.
        at: Wall,
        /// Its architecture.
        architecture: String,
    },
    /// Loaded models make room for another one.
    Evicting {
        /// When.
        at: Wall,
        /// The server's words.
        why: String,
        /// The model that ran out of memory, where the line names it: its blob path, or its name under MLX.
        model: Option<String>,
    },
    /// A loaded model must go to make room for another one (logged with `OLLAMA_DEBUG=1` only).
    MakingRoom {
        /// When.
        at: Wall,
        /// The model that must go: its blob path, or its name.
        model: String,
    },
    /// A model was unloaded (logged with `OLLAMA_DEBUG=1` only).
    Unloaded {
        /// When.
        at: Wall,
        /// The model: its blob path, or its name.
        model: String,
        /// The pid that its runner had.
        pid: Option<u32>,
    },
    /// A model could not be loaded.
    LoadFailed(RunnerFailure),
    /// A runner ended or failed at a request.
    RunnerFailed(RunnerFailure),
    /// A load fails for lack of memory and is tried again with less context or fewer neighbours.
    LoadRetried(RunnerFailure),
    /// A client left before its answer was complete.
    ClientLeft {
        /// When.
        at: Wall,
        /// Whether its model was still being loaded, which ends the load.
        while_loading: bool,
    },
    /// More context is asked for than the model was made for.
    ContextBeyondModel {
        /// When.
        at: Wall,
        /// Tokens asked for.
        asked_tokens: u64,
        /// The longest context that the model was made for.
        limit_tokens: u64,
    },
    /// A runner of the older generation (with `OLLAMA_DEBUG=1` only) or of MLX compared a prompt with what it has in
    /// its cache.
    PromptCompared {
        /// When.
        at: Wall,
        /// Which generation.
        kind: RunnerKind,
        /// The slot, where there are several.
        slot: Option<u32>,
        /// Tokens of the prompt.
        prompt_tokens: u64,
        /// How many of them came from the cache.
        cached_tokens: u64,
    },
    /// An MLX runner is done with a request.
    MlxRequestEnded {
        /// When.
        at: Wall,
    },
    /// A prompt was longer than the context and was cut.
    PromptCut {
        /// When.
        at: Wall,
        /// The context.
        limit_tokens: u64,
        /// The prompt.
        prompt_tokens: u64,
    },
    /// An MLX runner goes on with a prompt.
    MlxPromptProgress {
        /// When.
        at: Wall,
        /// Tokens done.
        done_tokens: u64,
        /// Tokens in all.
        prompt_tokens: u64,
    },
    /// A slot of some `llama-server` tells what it does.
    Slot(SlotLine),
    /// Some `llama-server` has nothing to do.
    SlotsIdle,
    /// Some `llama-server` gives up a request because its client left.
    TaskCancelled {
        /// The runner's number of the request.
        task: i64,
    },
    /// Some `llama-server` refuses a request.
    TaskRefused {
        /// The runner's number of the request.
        task: i64,
        /// Because it is longer than the context.
        beyond_context: bool,
    },
    /// Some `llama-server` took memory.
    Buffer(Buffer),
    /// A raw line that speaks of exhausted memory.
    OutOfMemory {
        /// The line, at most 400 bytes of it.
        text: String,
    },
    /// Anything else.
    Other,
}

impl Line {
    /// When it was written, if the line tells; raw lines of runners do not.
    pub fn at(&self) -> Option<Wall> {
        match self {
            Self::Config(line) => Some(line.logged_at),
            Self::Access(access) => Some(access.ended),
            Self::LoadFailed(failure) | Self::RunnerFailed(failure) | Self::LoadRetried(failure) => Some(failure.at),
            Self::Listening { at, .. }
            | Self::DefaultContext { at, .. }
            | Self::Compute { at, .. }
            | Self::SettingIgnored { at, .. }
            | Self::Loading { at, .. }
            | Self::RunnerStarting { at, .. }
            | Self::RunnerReady { at, .. }
            | Self::RunnersLoaded { at, .. }
            | Self::ForcedToOne { at, .. }
            | Self::Evicting { at, .. }
            | Self::MakingRoom { at, .. }
            | Self::Unloaded { at, .. }
            | Self::ClientLeft { at, .. }
            | Self::ContextBeyondModel { at, .. }
            | Self::PromptCompared { at, .. }
            | Self::MlxRequestEnded { at }
            | Self::PromptCut { at, .. }
            | Self::MlxPromptProgress { at, .. } => Some(*at),
            Self::AddressInUse { .. }
            | Self::Slot(_)
            | Self::SlotsIdle
            | Self::TaskCancelled { .. }
            | Self::TaskRefused { .. }
            | Self::Buffer(_)
            | Self::OutOfMemory { .. }
            | Self::Other => None,
        }
    }
}

/// Understands lines. It knows the zone that stamps without an offset are meant in.
#[derive(Clone, Debug)]
pub struct Parser {
    zone: Zone,
}

impl Parser {
    /// For a log that was written on this machine.
    pub fn local() -> Self {
        Self { zone: Zone::new(TimeZone::system()) }
    }

    /// For a log that was written in that zone.
    pub fn in_zone(zone: TimeZone) -> Self {
        Self { zone: Zone::new(zone) }
    }

    /// Understands one line, with or without its line break.
    pub fn line(&self, bytes: &[u8]) -> Line {
        // Almost every line is of a runner; what cannot matter is told by its first bytes, before any text is checked.
        let bytes = bytes.trim_ascii_end();
        let understood = match bytes.first() {
            None => None,
            Some(b't') if bytes.starts_with(b"time=") => self.record(bytes),
            Some(b'0'..=b'9') => self.record(bytes),
            Some(b'[' | 0x1b) => Access::parse(&String::from_utf8_lossy(bytes), &self.zone).map(Line::Access),
            Some(b'E') if bytes.starts_with(b"Error: ") => start_error(&String::from_utf8_lossy(bytes)),
            Some(_) => raw(bytes),
        };
        understood.unwrap_or(Line::Other)
    }

    fn record(&self, bytes: &[u8]) -> Option<Line> {
        understand(&Record::parse(&String::from_utf8_lossy(bytes), &self.zone)?)
    }

    /// The settings that a line shows, if it is a `server config` line.
    pub fn config_line(&self, bytes: &[u8]) -> Option<ConfigLine> {
        let text = String::from_utf8_lossy(bytes.trim_ascii_end());
        config(&Record::parse(&text, &self.zone)?)
    }
}

fn raw(bytes: &[u8]) -> Option<Line> {
    match runner_line::parse(bytes) {
        Some(RunnerLine::Slot(line)) => Some(Line::Slot(line)),
        Some(RunnerLine::AllIdle) => Some(Line::SlotsIdle),
        Some(RunnerLine::Cancelled { task }) => Some(Line::TaskCancelled { task }),
        Some(RunnerLine::Refused { task, beyond_context }) => Some(Line::TaskRefused { task, beyond_context }),
        Some(RunnerLine::Buffer(buffer)) => Some(Line::Buffer(buffer)),
        None if may_speak_of_exhausted_memory(bytes) => {
            let text = String::from_utf8_lossy(bytes);
            speaks_of_exhausted_memory(&text)
                .then(|| Line::OutOfMemory { text: text[..text.floor_char_boundary(400)].to_owned() })
        }
        None => None,
    }
}

/// `Error: listen tcp 127.0.0.1:11434: bind: address already in use`
fn start_error(text: &str) -> Option<Line> {
    let rest = text.strip_prefix("Error: listen tcp ")?;
    let address = rest.strip_suffix(": bind: address already in use")?;
    Some(Line::AddressInUse { address: address.to_owned() })
}

fn config(record: &Record<'_>) -> Option<ConfigLine> {
    if record.message != "server config" {
        return None;
    }
    let values = config_line::values(&record.field("env")?).ok()?;
    Some(ConfigLine { logged_at: record.at, resolution_ms: record.resolution_ms, values })
}

/// Words that tell of a runner's end.
const ENDED: [&str; 4] =
    ["process has terminated", "process no longer running", "llama-server terminated", "llama runner terminated"];

fn understand(record: &Record<'_>) -> Option<Line> {
    let at = record.at;
    let owned = |name: &str| record.field(name).map(|value| value.into_owned());
    let text = |name: &str| owned(name).unwrap_or_default();
    let failure = |error: String| RunnerFailure {
        at,
        model: owned("model"),
        out_of_memory: speaks_of_exhausted_memory(&error),
        process_ended: ENDED.iter().any(|words| error.contains(words) || record.message.contains(words)),
        error,
    };
    let with_error = || match owned("error") {
        Some(error) => failure(error),
        None => failure(record.message.to_string()),
    };
    Some(match &*record.message {
        "server config" => Line::Config(config(record)?),
        "vram-based default context" => {
            Line::DefaultContext { at, tokens: record.number("default_num_ctx")?, gpu_memory: text("total_vram") }
        }
        "inference compute" => Line::Compute {
            at,
            library: text("library"),
            description: text("description"),
            total: text("total"),
            available: text("available"),
        },
        "invalid environment variable, using default" => {
            Line::SettingIgnored { at, name: owned("key")?, value: text("value"), used: text("default") }
        }
        "invalid port, using default" => {
            Line::SettingIgnored { at, name: "OLLAMA_HOST".to_owned(), value: text("port"), used: text("default") }
        }
        "using llama-server for model" | "loading model via llama-server" => {
            Line::Loading { at, model: owned("model")? }
        }
        "starting llama-server" | "starting runner" | "starting llama server" => {
            Line::RunnerStarting { at, args: runner_of_command_line(&owned("cmd")?)? }
        }
        "starting mlx runner subprocess" => Line::RunnerStarting { at, args: mlx_args(record) },
        "mlx runner is ready" => Line::RunnerReady { at, took: None },
        "loaded runners" => Line::RunnersLoaded { at, count: record.number("count")? },
        "model architecture does not currently support parallel requests" => {
            Line::ForcedToOne { at, architecture: owned("architecture")? }
        }
        "llama-server model predicted to exceed available memory, evicting"
        | "evicting all other loaded models for OOM retry"
        | "runtime OOM detected; expiring loaded models to clear memory before next request" => {
            Line::Evicting { at, why: record.message.to_string(), model: owned("model") }
        }
        "resetting model to expire immediately to make room" => {
            Line::MakingRoom { at, model: owned("runner.model").or_else(|| owned("runner.name"))? }
        }
        "sending an unloaded event" => Line::Unloaded {
            at,
            model: owned("runner.model").or_else(|| owned("runner.name"))?,
            pid: record.number("runner.pid"),
        },
        "Load failed" | "error loading llama server" | "failed to create server" => Line::LoadFailed(with_error()),
        "llama-server load failed; reducing automatic context and retrying once"
        | "llama-server load failed; evicting all other models and retrying once"
        | "llama-server startup failed with projector GPU offload; retrying with projector CPU offload" => {
            Line::LoadRetried(with_error())
        }
        "llama-server terminated"
        | "llama runner terminated"
        | "llama-server completion error"
        | "llama-server chat error"
        | "post predict"
        | "llama-server process no longer running"
        | "llama runner process no longer running" => Line::RunnerFailed(with_error()),
        "aborting completion request due to client closing the connection"
        | "aborting chat request due to client closing the connection" => Line::ClientLeft { at, while_loading: false },
        "client connection closed before llama-server finished loading, aborting load"
        | "client connection closed before server finished loading, aborting load" => {
            Line::ClientLeft { at, while_loading: true }
        }
        "requested context size too large for model" => Line::ContextBeyondModel {
            at,
            asked_tokens: record.number("num_ctx")?,
            limit_tokens: record.number("n_ctx_train")?,
        },
        "cache hit" | "cache miss" => Line::PromptCompared {
            at,
            kind: RunnerKind::Mlx,
            slot: None,
            prompt_tokens: record.number("total")?,
            cached_tokens: record.number("cached")?,
        },
        "loading cache slot" => Line::PromptCompared {
            at,
            kind: RunnerKind::OllamaRunner,
            slot: record.number("id"),
            prompt_tokens: record.number("prompt")?,
            cached_tokens: record.number("used")?,
        },
        "peak memory" => Line::MlxRequestEnded { at },
        "truncating input prompt" => {
            Line::PromptCut { at, limit_tokens: record.number("limit")?, prompt_tokens: record.number("prompt")? }
        }
        "Prompt processing progress" => Line::MlxPromptProgress {
            at,
            done_tokens: record.number("processed")?,
            prompt_tokens: record.number("total")?,
        },
        message => return by_beginning(record, message, failure),
    })
}

/// Messages that carry their values in their words.
fn by_beginning(record: &Record<'_>, message: &str, failure: impl Fn(String) -> RunnerFailure) -> Option<Line> {
    let at = record.at;
    if let Some(rest) = message.strip_prefix("Listening on ") {
        let (address, version) = rest.split_once(" (version ")?;
        let version = version.strip_suffix(')')?.to_owned();
        return Some(Line::Listening { at, address: address.to_owned(), version });
    }
    let started =
        message.strip_prefix("llama-server started in ").or_else(|| message.strip_prefix("llama runner started in "));
    if let Some(seconds) = started.and_then(|rest| rest.strip_suffix(" seconds")) {
        return Some(Line::RunnerReady { at, took: Duration::try_from_secs_f64(seconds.parse().ok()?).ok() });
    }
    let failed = [
        "llama-server process has terminated",
        "llama runner process has terminated",
        "mlx runner failed",
        "timed out waiting for llama-server to start",
        "timed out waiting for llama runner to start",
        "llama-server reported out-of-memory during startup",
    ];
    if record.level >= Level::Info && failed.iter().any(|beginning| message.starts_with(beginning)) {
        return Some(Line::RunnerFailed(failure(message.to_owned())));
    }
    None
}

fn mlx_args(record: &Record<'_>) -> RunnerArgs {
    let missing = "the line does not say";
    RunnerArgs {
        kind: RunnerKind::Mlx,
        model: record.field("model").map_or_else(|| Known::unknown(missing), |model| Known::Is(model.into_owned())),
        port: record.number("port").map_or_else(|| Known::unknown(missing), Known::Is),
        slots: Known::Is(1),
        context_tokens: Known::unknown("an MLX runner is not told its context by its arguments"),
    }
}
