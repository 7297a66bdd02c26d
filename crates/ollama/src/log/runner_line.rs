//! Raw lines of `llama-server`, which Ollama passes on without time, level or pid: with two runners nobody can tell
//! whose they are. They show progress all the same.
//!
//! Nearly all of a log is made of them, so they are read as bytes: no text is checked or copied before it is known to
//! matter.

use memchr::{memchr, memchr_iter, memmem};
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
    /// It was chosen for the next request because its context begins like the prompt.
    Chosen {
        /// Share of the prompt that its context begins with, 0 to 1.
        similarity: f64,
        /// Share of its context that is kept, when told.
        kept: Option<f64>,
    },
    /// It begins a batch of the prompt. The first such line of a request tells what came from the cache.
    PromptCached {
        /// Tokens of the prompt that are in its context.
        context_tokens: u64,
    },
    /// A batch of the prompt is done.
    PromptProgress {
        /// Tokens done, without those from the cache.
        done_tokens: u64,
        /// Share of the prompt that is done, those from the cache included, 0 to 1.
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
    Refused { task: i64, beyond_context: bool },
    Buffer(Buffer),
}

pub(super) fn parse(line: &[u8]) -> Option<RunnerLine> {
    if let Some(rest) = line.strip_prefix(b"slot ") {
        return slot(rest).map(RunnerLine::Slot);
    }
    if let Some(rest) = line.strip_prefix(b"srv ") {
        return server(rest);
    }
    buffer(line).map(RunnerLine::Buffer)
}

/// `update_slots: all slots are idle`
fn server(rest: &[u8]) -> Option<RunnerLine> {
    let text = rest.get(memchr(b':', rest)? + 1..)?.trim_ascii();
    if text == b"all slots are idle" {
        return Some(RunnerLine::AllIdle);
    }
    if let Some(task) = text.strip_prefix(b"cancel task, id_task = ") {
        return Some(RunnerLine::Cancelled { task: whole(task)? });
    }
    // `send_error: task id = 5, error: request (9000 tokens) exceeds the available context size (4096 tokens), …`. The
    // words of other errors may hold anything and are not kept.
    let rest = text.strip_prefix(b"task id = ")?;
    let (task, error) = rest.split_at(memmem::find(rest, b", error: ")?);
    let beyond = [&b"exceeds the available context size"[..], b"larger than the max context size"];
    let beyond_context = beyond.iter().any(|words| memmem::find(error, words).is_some());
    Some(RunnerLine::Refused { task: whole(task)?, beyond_context })
}

/// `print_timing: id  1 | task 23 | n_gen =    100, tg =  17.29 t/s, tg_3s =  17.47 t/s`
fn slot(rest: &[u8]) -> Option<SlotLine> {
    let rest = rest.trim_ascii_start();
    let (function, rest) = (&rest[..memchr(b':', rest)?], &rest[memchr(b':', rest)? + 1..]);
    let (id, rest) = up_to_bar(rest)?;
    let (task, text) = up_to_bar(rest)?;
    let event = event(function, text.trim_ascii())?;
    let slot = whole(id.strip_prefix(b"id ")?)?;
    let task = whole(task.strip_prefix(b"task ")?)?;
    Some(SlotLine { slot, task, event })
}

fn up_to_bar(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let bar = memchr(b'|', text)?;
    Some((text[..bar].trim_ascii(), &text[bar + 1..]))
}

fn event(function: &[u8], text: &[u8]) -> Option<SlotEvent> {
    let number = |key: &[u8]| whole::<u64>(value(text, key)?);
    Some(match text.first()? {
        b'p' if text.starts_with(b"prompt processing") => {
            // Where both are told, `n_tokens` is the batch alone.
            let done_tokens = number(b"n_past").or_else(|| number(b"n_tokens"))?;
            let share = decimal(value(text, b"progress")?)?;
            let time = value(text, b"t");
            SlotEvent::PromptProgress {
                done_tokens,
                share,
                elapsed: time.and_then(seconds),
                tokens_per_second: time.and_then(|time| decimal(&time[memchr(b'/', time)? + 1..])),
            }
        }
        b'p' if text.starts_with(b"prompt eval time") && function == b"print_timing" => {
            let (took, prompt_tokens) = timing(text)?;
            SlotEvent::PromptDone { prompt_tokens, took }
        }
        b'p' if text.starts_with(b"processing task") && function == b"launch_slot_" => SlotEvent::Launched,
        b'e' if text.starts_with(b"eval time") && function == b"print_timing" => {
            let (took, generated_tokens) = timing(text)?;
            SlotEvent::GenerationDone { generated_tokens, took }
        }
        b'n' if text.starts_with(b"n_gen") && function == b"print_timing" => SlotEvent::Generating {
            generated_tokens: number(b"n_gen")?,
            tokens_per_second: decimal(value(text, b"tg")?)?,
        },
        b'n' if text.starts_with(b"new prompt") => {
            let total = number(b"task.n_tokens").or_else(|| number(b"n_prompt_tokens"));
            SlotEvent::PromptMeasured { prompt_tokens: total? }
        }
        b'c' if text.starts_with(b"cached n_tokens") => {
            SlotEvent::PromptCached { context_tokens: number(b"n_tokens")? }
        }
        b's' if text.starts_with(b"stop processing") && function == b"release" => SlotEvent::Released {
            context_tokens: number(b"n_tokens").or_else(|| number(b"n_past"))?,
            truncated: value(text, b"truncated").is_some_and(|word| word != b"0"),
        },
        b's' if text.starts_with(b"selected slot by LCP similarity")
            || text.starts_with(b"selected slot by lcp similarity") =>
        {
            let keys = [&b"f_sim_best"[..], b"sim_best", b"similarity"];
            SlotEvent::Chosen {
                similarity: decimal(keys.iter().find_map(|key| value(text, key))?)?,
                kept: value(text, b"f_keep").and_then(decimal),
            }
        }
        _ => return None,
    })
}

/// `load_tensors:   CPU_Mapped model buffer size =   235.16 MiB`
fn buffer(line: &[u8]) -> Option<Buffer> {
    let line = line.strip_suffix(b" MiB")?;
    let (what, size) = line.split_at(memmem::find(line, b" buffer size = ")?);
    let what = what.get(memmem::find(what, b": ")? + 2..)?.trim_ascii();
    let (device, purpose) = what.split_at(memchr(b' ', what)?);
    let purpose = match purpose.trim_ascii() {
        b"model" => BufferUse::Model,
        b"KV" | b"RS" => BufferUse::KeyValue,
        b"compute" | b"output" => BufferUse::Compute,
        _ => return None,
    };
    let bytes = decimal(size.get(b" buffer size = ".len()..)?)? * 1_048_576.0;
    // A float this small converts exactly enough; nothing negative is a size.
    let device = std::str::from_utf8(device).ok()?.to_owned();
    (bytes >= 0.0).then_some(Buffer { device, purpose, bytes: bytes as u64 })
}

/// The text after `key = ` up to the next comma.
fn value<'a>(text: &'a [u8], key: &[u8]) -> Option<&'a [u8]> {
    memchr_iter(b'=', text).find_map(|equals| {
        let name = text[..equals].trim_ascii_end().strip_suffix(key)?;
        if !matches!(name.last(), None | Some(b' ')) {
            return None;
        }
        let rest = &text[equals + 1..];
        Some(rest[..memchr(b',', rest).unwrap_or(rest.len())].trim_ascii())
    })
}

/// A whole number and nothing else.
fn whole<T: std::str::FromStr>(text: &[u8]) -> Option<T> {
    std::str::from_utf8(text.trim_ascii()).ok()?.parse().ok()
}

/// The number that a text begins with.
fn decimal(text: &[u8]) -> Option<f64> {
    let text = text.trim_ascii_start();
    let word = &text[..memchr(b' ', text).unwrap_or(text.len())];
    std::str::from_utf8(word).ok()?.parse().ok().filter(|number: &f64| number.is_finite())
}

fn seconds(text: &[u8]) -> Option<Duration> {
    Duration::try_from_secs_f64(decimal(text)?).ok()
}

/// `prompt eval time =    2835.63 ms /   422 tokens (    6.72 ms per token, …)`
fn timing(text: &[u8]) -> Option<(Duration, u64)> {
    let rest = text.get(memchr(b'=', text)? + 1..)?;
    let slash = memchr(b'/', rest)?;
    let took = Duration::try_from_secs_f64(decimal(&rest[..slash])? / 1000.0).ok()?;
    let tokens = rest[slash + 1..].trim_ascii_start();
    Some((took, whole(&tokens[..memchr(b' ', tokens)?])?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event_of(line: &str) -> Option<SlotEvent> {
        let RunnerLine::Slot(line) = parse(line.as_bytes())? else { return None };
        Some(line.event)
    }

    #[test]
    fn what_a_slot_keeps_of_its_context_is_read() {
        assert_eq!(
            event_of(
                "slot get_availabl: id  0 | task -1 | selected slot by LCP similarity, f_sim_best = 0.973 (> 0.100 thold), f_keep = 0.067"
            ),
            Some(SlotEvent::Chosen { similarity: 0.973, kept: Some(0.067) })
        );
        assert_eq!(
            event_of(
                "slot get_availabl: id  2 | task -1 | selected slot by lcp similarity, lcp_len = 9, similarity = 0.5 (> 0.1 thold)"
            ),
            Some(SlotEvent::Chosen { similarity: 0.5, kept: None })
        );
        assert_eq!(
            event_of("slot   operator(): id  1 | task 4 | cached n_tokens = 2286, memory_seq_rm [2286, end)"),
            Some(SlotEvent::PromptCached { context_tokens: 2286 })
        );
    }

    #[test]
    fn a_refused_request_keeps_no_words() {
        let refused = |line: &str| parse(line.as_bytes());
        assert_eq!(
            refused(
                "srv    send_error: task id = 5, error: request (9000 tokens) exceeds the available context size (4096 tokens), try increasing it"
            ),
            Some(RunnerLine::Refused { task: 5, beyond_context: true })
        );
        assert_eq!(
            refused("srv    send_error: task id = 6, error: failed to parse grammar: exceeds"),
            Some(RunnerLine::Refused { task: 6, beyond_context: false })
        );
        assert_eq!(refused("srv  send_error: task id = x, error: y"), None);
    }

    #[test]
    fn lines_of_two_runners_glued_together_are_none() {
        for line in [
            "slot print_timing: id  1 | task 2slot      release: id  0 | task 3 | stop processing: n_tokens = 1, truncated = 0",
            "slot release: id  1srv  update_slots: all slots are idle",
            "slot print_timing: id  1 | task 2 | n_gen =",
            "slot print_timing: id | task | n_gen = 1, tg = 2 t/s",
            "slot print_timing: id  1 | task 2 | n_gen = 1, tg = NaN t/s",
            "slot ",
            "srv :",
        ] {
            assert_eq!(parse(line.as_bytes()), None, "{line}");
        }
    }
}
