//! What is kept before anything is ended: what was judged and by which facts, the observation, what `/api/ps` said, how the
//! runner was started, the last lines of the log, and where its threads stand. One JSON file each, the stacks beside it.
//!
//! Of the log only lines of forms that are known are kept, and of those what was understood: no text that a person or a
//! program gave to a model is in any of it.

use super::observing::Observed;
use crate::history::detail;
use crate::server_log::journal;
use crate::translation::rfc3339;
use serde_json::{Value, json};
use stablehand_engine::Known;
use stablehand_engine::process::RunnerArgs;
use stablehand_engine::stall::Judgement;
use stablehand_engine::stall::evidence::{Listing, RunnerSeen};
use stablehand_engine::time::Wall;
use stablehand_ollama::client::{CallError, Loaded};
use stablehand_ollama::log::{Line, Parser, RunnerFailure};
use stablehand_platform::command::run;
use stablehand_platform::files::remove;
use stablehand_platform::machine::Machine;
use stablehand_platform::server_log::LogSource;
use std::collections::{BTreeSet, VecDeque};
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

/// So many happenings keep their evidence, the newest.
const MOST_KEPT: usize = 100;
/// So many lines of the log are kept, the last ones of known forms.
const LOG_LINES: usize = 60;
/// So much of a file, or so many lines of a journal, are looked at for them.
const LOG_BYTES: u64 = 256 << 10;
const JOURNAL_LINES: &str = "500";

/// The files of one happening. Their names begin with its time, so that they sort by age.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Files {
    /// The facts.
    pub facts: PathBuf,
    /// Where the threads stood.
    pub stacks: PathBuf,
}

impl Files {
    /// For a judgement at that time.
    pub fn new(folder: &Path, at: Wall, judgement: &Judgement) -> Self {
        let name = format!("{}-{}", at.unix_ms, judgement.verdict.word());
        Self { facts: folder.join(format!("{name}.json")), stacks: folder.join(format!("{name}-stacks.txt")) }
    }
}

/// What is known at once: the judgement, and the observation that it was made by.
pub fn facts(at: Wall, judgement: &Judgement, observed: Option<&Observed>, args: Option<&RunnerArgs>) -> Value {
    json!({
        "at": rfc3339(at),
        "subject": judgement.subject.to_string(),
        "words": judgement.verdict.to_string(),
        "judgement": detail::judgement(judgement),
        "runner_arguments": args.map(|args| json!({
            "model": known(&args.model, |model| json!(model)),
            "port": known(&args.port, |port| json!(port)),
            "slots": known(&args.slots, |slots| json!(slots)),
            "context_tokens": known(&args.context_tokens, |tokens| json!(tokens)),
        })),
        "observation": observed.map(observation),
    })
}

fn observation(observed: &Observed) -> Value {
    let (server, machine) = (&observed.observation.server, &observed.observation.machine);
    json!({
        "server": {
            "pid": server.id.map(|id| id.pid),
            "answers": server.answers,
            "ps_answers": known(&server.ps_answers, |answers| json!(answers)),
            "loading": server.loading,
            "waiting_at_least": server.waiting.at_least,
            "waiting_at_most": server.waiting.at_most,
            "oldest_wait_s": known(&server.oldest_wait, |span| json!(span.as_secs())),
            "new_failures": server.failures,
            "new_successes": server.successes,
        },
        "machine": {
            "swap_in_bytes_per_s": machine.swap_in_bytes_per_s,
            "swap_out_bytes_per_s": machine.swap_out_bytes_per_s,
            "pressure": machine.pressure,
            "gpu_percent": machine.gpu_percent,
            "throttled": machine.throttled,
        },
        "runners": observed.observation.runners.iter().map(runner).collect::<Vec<_>>(),
    })
}

fn runner(runner: &RunnerSeen) -> Value {
    let slot = |slot: &stablehand_engine::stall::evidence::SlotSeen| {
        json!({
            "id": slot.id,
            "task": slot.task,
            "busy": slot.busy,
            "prompt_tokens_done": slot.prompt_tokens_done,
            "prompt_tokens_cached": slot.prompt_tokens_cached,
            "prompt_tokens_total": slot.prompt_tokens_total,
            "tokens_generated": slot.tokens_generated,
        })
    };
    json!({
        "pid": runner.id.pid,
        "kind": format!("{:?}", runner.kind),
        "model": known(&runner.model, |model| json!(model)),
        "started": rfc3339(runner.started),
        "state": format!("{:?}", runner.state),
        "cpu_s": known(&runner.cpu, |span| json!(span.as_secs_f64())),
        "footprint_bytes": known(&runner.footprint_bytes, |bytes| json!(bytes)),
        "health": format!("{:?}", runner.health),
        "slots": known(&runner.slots, |slots| slots.iter().map(slot).collect()),
        "decode_total": known(&runner.decode_total, |total| json!(total)),
        "listed": known(&runner.listed, |listing| match listing {
            Listing::Absent => json!("absent"),
            Listing::Until(until) => json!({ "until": rfc3339(*until) }),
        }),
    })
}

/// What `/api/ps` said.
pub fn listed(said: &Result<Loaded, CallError>) -> Value {
    match said {
        Ok(loaded) => loaded
            .models
            .iter()
            .map(|model| {
                json!({
                    "name": model.name,
                    "size_bytes": model.size_bytes,
                    "gpu_bytes": model.gpu_bytes,
                    "context_per_slot_tokens": model.context_per_slot_tokens,
                    "expires_at": known(&model.expires_at, |at| json!(rfc3339(*at))),
                })
            })
            .collect(),
        Err(error) => unknown(&error.to_string()),
    }
}

/// The last lines of a log whose form is known.
pub async fn log(machine: &Machine, source: LogSource) -> Value {
    match source {
        LogSource::Nowhere(reason) => unknown(&reason),
        LogSource::File(path) => match tokio::task::spawn_blocking(move || end_of(&path)).await {
            Ok(Ok(bytes)) => lines(&bytes),
            Ok(Err(error)) => unknown(&error.to_string()),
            Err(error) => unknown(&error.to_string()),
        },
        LogSource::Journal { scope, unit } => {
            match run(machine, &journal(machine, scope, &unit).args(["-n", JOURNAL_LINES])).await {
                Ok(said) if said.succeeded() => lines(said.stdout.as_bytes()),
                Ok(said) => unknown(&said.said()),
                Err(error) => unknown(&error.to_string()),
            }
        }
    }
}

/// The end of a file, from the beginning of a line on.
fn end_of(path: &Path) -> io::Result<Vec<u8>> {
    let mut file = File::open(path)?;
    let size = file.seek(SeekFrom::End(0))?;
    let from = size.saturating_sub(LOG_BYTES);
    file.seek(SeekFrom::Start(from))?;
    let mut bytes = Vec::new();
    file.take(LOG_BYTES).read_to_end(&mut bytes)?;
    if from > 0 {
        let begins = bytes.iter().position(|byte| *byte == b'\n').map_or(bytes.len(), |at| at + 1);
        bytes.drain(..begins);
    }
    Ok(bytes)
}

fn lines(bytes: &[u8]) -> Value {
    let parser = Parser::local();
    let mut last: VecDeque<Value> = VecDeque::new();
    for line in bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
        let line = parser.line(line);
        let Some(words) = words(&line) else { continue };
        if last.len() == LOG_LINES {
            last.pop_front();
        }
        last.push_back(json!({ "at": line.at().map(rfc3339), "line": words }));
    }
    last.into_iter().collect()
}

/// What was understood of a line. Words that are not the server's own stay out: an error may quote what it is about, and
/// a variable may hold a secret.
fn words(line: &Line) -> Option<String> {
    match line {
        Line::Other => None,
        Line::Config(_) => Some("the server shows its settings".to_owned()),
        Line::SettingIgnored { name, .. } => Some(format!("the value of {name} was not understood")),
        Line::OutOfMemory { .. } => Some("a line speaks of exhausted memory".to_owned()),
        Line::LoadFailed(failure) => Some(failed("a load failed", failure)),
        Line::LoadRetried(failure) => Some(failed("a load is tried again", failure)),
        Line::RunnerFailed(failure) => Some(failed("a runner ended or failed", failure)),
        Line::Access(access) => Some(format!(
            "{} {} answered {} after {} ms",
            access.method,
            access.path,
            access.status,
            access.latency.as_millis()
        )),
        Line::Listening { .. }
        | Line::DefaultContext { .. }
        | Line::Compute { .. }
        | Line::AddressInUse { .. }
        | Line::Loading { .. }
        | Line::RunnerStarting { .. }
        | Line::RunnerReady { .. }
        | Line::RunnersLoaded { .. }
        | Line::ForcedToOne { .. }
        | Line::Evicting { .. }
        | Line::MakingRoom { .. }
        | Line::Unloaded { .. }
        | Line::ClientLeft { .. }
        | Line::ContextBeyondModel { .. }
        | Line::PromptCompared { .. }
        | Line::MlxRequestEnded { .. }
        | Line::PromptCut { .. }
        | Line::MlxPromptProgress { .. }
        | Line::Slot(_)
        | Line::SlotsIdle
        | Line::TaskCancelled { .. }
        | Line::TaskRefused { .. }
        | Line::Buffer(_) => Some(format!("{line:?}")),
    }
}

fn failed(what: &str, failure: &RunnerFailure) -> String {
    let memory = if failure.out_of_memory { ", for lack of memory" } else { "" };
    let ended = if failure.process_ended { ", its process has ended" } else { "" };
    format!("{what}{memory}{ended}")
}

/// Takes away what is older than the newest [`MOST_KEPT`] happenings. What is not ours, by its name, is left alone.
pub fn prune(machine: &Machine, folder: &Path) -> Result<(), String> {
    let entries = std::fs::read_dir(folder).map_err(|error| error.to_string())?;
    let ours: Vec<(u64, PathBuf)> = entries
        .filter_map(|entry| {
            let entry = entry.ok()?;
            let at = entry.file_name().to_str()?.split_once('-')?.0.parse().ok()?;
            Some((at, entry.path()))
        })
        .collect();
    let times: BTreeSet<u64> = ours.iter().map(|(at, _)| *at).collect();
    let kept: BTreeSet<u64> = times.into_iter().rev().take(MOST_KEPT).collect();
    for (_, path) in ours.iter().filter(|(at, _)| !kept.contains(at)) {
        remove(machine, path).map_err(|error| error.to_string())?;
    }
    Ok(())
}

fn known<T>(fact: &Known<T>, value: impl FnOnce(&T) -> Value) -> Value {
    match fact {
        Known::Is(fact) => value(fact),
        Known::Unknown(reason) => unknown(reason),
    }
}

fn unknown(reason: &str) -> Value {
    json!({ "unknown": reason })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::watching::deeds::tests::world;

    #[test]
    fn of_the_log_only_what_is_understood_is_kept_and_no_words_of_others() {
        let log = "[GIN] 2026/08/21 - 18:48:22 | 500 |  5.054276458s |       127.0.0.1 | POST     \"/api/chat?q=secret\"\n\
                   tell me the secret of my heart\n\
                   secret: cudaMalloc failed: out of memory\n\
                   time=2026-08-21T18:48:22.000Z level=ERROR source=server.go:1 msg=\"llama runner terminated\" error=\"secret\"\n";
        let kept = lines(log.as_bytes()).to_string();
        assert!(kept.contains("POST /api/chat answered 500 after 5054 ms"), "{kept}");
        assert!(kept.contains("exhausted memory") && kept.contains("its process has ended"), "{kept}");
        assert!(!kept.contains("secret"), "{kept}");
    }

    #[test]
    fn the_end_of_a_long_log_begins_with_a_whole_line() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("server.log");
        let line = "[GIN] 2026/08/21 - 18:48:22 | 200 |  1s |       127.0.0.1 | POST     \"/api/chat\"\n";
        std::fs::write(&path, line.repeat(5_000)).unwrap();
        let bytes = end_of(&path).unwrap();
        assert!(bytes.len() as u64 <= LOG_BYTES && bytes.starts_with(b"[GIN]"));
        assert_eq!(lines(&bytes).as_array().map(Vec::len), Some(LOG_LINES));
    }

    #[test]
    fn the_newest_are_kept_with_what_stands_beside_them_and_strangers_are_left_alone() {
        let (_dir, machine) = world();
        let folder = machine.home().join("evidence");
        std::fs::create_dir(&folder).unwrap();
        for at in 900..1_020 {
            std::fs::write(folder.join(format!("{at}-hung.json")), "{}").unwrap();
            std::fs::write(folder.join(format!("{at}-hung-stacks.txt")), "x").unwrap();
        }
        std::fs::write(folder.join("notes.txt"), "mine").unwrap();
        prune(&machine, &folder).unwrap();
        let left: BTreeSet<String> = std::fs::read_dir(&folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        assert_eq!(left.len(), 2 * MOST_KEPT + 1);
        assert!(left.contains("notes.txt") && left.contains("1019-hung-stacks.txt") && left.contains("920-hung.json"));
        assert!(!left.contains("919-hung.json"), "{left:?}");
    }
}
