//! Raw lines of `llama-server`, which Ollama passes on without time, level or pid: with two runners nobody can tell
//! whose they are. They show progress all the same.

use std::time::Duration;

/// A line of one slot.
#[derive(Clone, Debug, PartialEq)]
pub struct SlotLine {
    /// Which slot of its runner.
    pub slot: u32,
    /// The runner's number of the request.
    pub task: i64,
    /// What happened.
    pub event: SlotEvent,
}

/// What happened in a slot.
#[derive(Clone, Debug, PartialEq)]
pub enum SlotEvent {
    /// It took a request.
    Launched,
    /// It knows how long the prompt is.
    PromptMeasured {
        /// Tokens of the whole prompt.
        prompt_tokens: u64,
    },
    /// A batch of the prompt is done.
    PromptProgress {
        /// Tokens done.
        done_tokens: u64,
        /// Share of the prompt that is done, 0 to 1.
        share: f64,
        /// Time since the prompt began, when told.
        elapsed: Option<Duration>,
        /// Speed, when told.
        tokens_per_second: Option<f64>,
    },
    /// Some more tokens are generated.
    Generating {
        /// Tokens generated.
        generated_tokens: u64,
        /// Speed.
        tokens_per_second: f64,
    },
    /// The prompt is done.
    PromptDone {
        /// Tokens that were processed, without those from the cache.
        prompt_tokens: u64,
        /// Time it took.
        took: Duration,
    },
    /// The generation is done.
    GenerationDone {
        /// Tokens generated.
        generated_tokens: u64,
        /// Time it took.
        took: Duration,
    },
    /// The slot is free again.
    Released {
        /// Tokens in its context.
        context_tokens: u64,
        /// Whether the context was too short.
        truncated: bool,
    },
}

/// What a buffer is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BufferUse {
    /// Weights.
    Model,
    /// Context.
    KeyValue,
    /// Working memory.
    Compute,
}

/// Memory that a runner took on one device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Buffer {
    /// The device as llama.cpp names it, e.g. `MTL0` or `CPU_Mapped`.
    pub device: String,
    /// What it is for.
    pub purpose: BufferUse,
    /// Its size.
    pub bytes: u64,
}

/// A raw line of a runner, when it is one of those that matter.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum RunnerLine {
    Slot(SlotLine),
    AllIdle,
    Cancelled { task: i64 },
    Buffer(Buffer),
}

pub(super) fn parse(line: &str) -> Option<RunnerLine> {
    if let Some(rest) = line.strip_prefix("slot ") {
        return slot(rest).map(RunnerLine::Slot);
    }
    if let Some(rest) = line.strip_prefix("srv ") {
        let (_, text) = rest.split_once(": ")?;
        return match text.trim() {
            "all slots are idle" => Some(RunnerLine::AllIdle),
            text => Some(RunnerLine::Cancelled { task: text.strip_prefix("cancel task, id_task = ")?.parse().ok()? }),
        };
    }
    buffer(line).map(RunnerLine::Buffer)
}

/// `print_timing: id  1 | task 23 | n_gen =    100, tg =  17.29 t/s, tg_3s =  17.47 t/s`
fn slot(text: &str) -> Option<SlotLine> {
    let (who, rest) = text.split_once('|')?;
    let (task, text) = rest.split_once('|')?;
    let (function, id) = who.split_once(':')?;
    let slot = id.trim().strip_prefix("id ")?.trim().parse().ok()?;
    let task = task.trim().strip_prefix("task ")?.trim().parse().ok()?;
    let text = text.trim();
    let number = |key: &str| value(text, key)?.parse::<u64>().ok();
    let event = match function.trim() {
        "launch_slot_" if text.starts_with("processing task") => SlotEvent::Launched,
        "release" if text.starts_with("stop processing") => SlotEvent::Released {
            context_tokens: number("n_tokens").or_else(|| number("n_past"))?,
            truncated: value(text, "truncated").is_some_and(|word| word != "0"),
        },
        _ if text.starts_with("new prompt") => {
            let total = number("task.n_tokens").or_else(|| number("n_prompt_tokens"));
            SlotEvent::PromptMeasured { prompt_tokens: total? }
        }
        _ if text.starts_with("prompt processing") => SlotEvent::PromptProgress {
            done_tokens: number("n_past").or_else(|| number("n_tokens"))?,
            share: value(text, "progress")?.parse().ok()?,
            elapsed: value(text, "t").and_then(seconds),
            tokens_per_second: value(text, "t").and_then(|t| first_number(t.split_once('/')?.1)),
        },
        "print_timing" if text.starts_with("n_gen") => SlotEvent::Generating {
            generated_tokens: number("n_gen")?,
            tokens_per_second: first_number(value(text, "tg")?)?,
        },
        "print_timing" if text.starts_with("prompt eval time") => {
            let (took, prompt_tokens) = timing(text)?;
            SlotEvent::PromptDone { prompt_tokens, took }
        }
        "print_timing" if text.starts_with("eval time") => {
            let (took, generated_tokens) = timing(text)?;
            SlotEvent::GenerationDone { generated_tokens, took }
        }
        _ => return None,
    };
    Some(SlotLine { slot, task, event })
}

/// `load_tensors:   CPU_Mapped model buffer size =   235.16 MiB`
fn buffer(line: &str) -> Option<Buffer> {
    let (what, size) = line.split_once(" buffer size = ")?;
    let (_, what) = what.split_once(": ")?;
    let (device, purpose) = what.trim().split_once(' ')?;
    let purpose = match purpose.trim() {
        "model" => BufferUse::Model,
        "KV" | "RS" => BufferUse::KeyValue,
        "compute" | "output" => BufferUse::Compute,
        _ => return None,
    };
    let mebibytes: f64 = size.trim().strip_suffix(" MiB")?.parse().ok()?;
    let bytes = mebibytes * 1_048_576.0;
    // A float this small converts exactly enough; nothing negative or endless is a size.
    (bytes.is_finite() && bytes >= 0.0).then(|| Buffer { device: device.to_owned(), purpose, bytes: bytes as u64 })
}

/// The text after `key = ` up to the next comma.
fn value<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    text.split(", ").find_map(|part| {
        let (name, value) = part.split_once(" = ")?;
        (name.trim().rsplit(' ').next()? == key).then(|| value.trim())
    })
}

fn first_number(text: &str) -> Option<f64> {
    text.split_whitespace().next()?.parse().ok().filter(|number: &f64| number.is_finite())
}

fn seconds(text: &str) -> Option<Duration> {
    Duration::try_from_secs_f64(first_number(text)?).ok()
}

/// `prompt eval time =    2835.63 ms /   422 tokens (    6.72 ms per token, …)`
fn timing(text: &str) -> Option<(Duration, u64)> {
    let (_, rest) = text.split_once('=')?;
    let (took, tokens) = rest.split_once('/')?;
    let took = Duration::try_from_secs_f64(first_number(took)? / 1000.0).ok()?;
    Some((took, tokens.split_whitespace().next()?.parse().ok()?))
}
