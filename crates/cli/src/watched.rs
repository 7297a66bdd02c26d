//! What was watched, for people: runners with their verdicts, the queue, memory, the log.

use crate::paint::Paint;
use stablehand_protocol::{GivenUp, Judged, Known, Snapshot, Watched, WatchedRunner};
use std::fmt::{Display, Write as _};

/// One page.
pub fn page(watched: Option<&Watched>, paint: Paint) -> String {
    let Some(watched) = watched else { return "nothing was watched yet; ask again in a moment\n".to_owned() };
    let mut out = String::new();
    line(&mut out, &memory(watched));
    line(&mut out, &queue(watched));
    if let Some(server) = &watched.server {
        line(&mut out, &format!("server: {}", verdict(server, paint)));
    }
    if watched.runners.is_empty() {
        line(&mut out, "no runner: no model is loaded");
    }
    for runner in &watched.runners {
        line(&mut out, &paint.strong(&format!("{} (pid {})", model(runner), runner.pid)));
        if let Some(judged) = &runner.judged {
            line(&mut out, &format!("  {}", verdict(judged, paint)));
            for fact in &judged.evidence {
                line(&mut out, &format!("    {}", fact.words));
            }
        }
        let busy = shown(&runner.slots_busy, ToString::to_string);
        let slots = shown(&runner.slots, ToString::to_string);
        let memory = shown(&runner.footprint_bytes, |bytes| gibibytes(*bytes));
        let listed = shown(&runner.listed_until, |until| until.clone().unwrap_or_else(|| "not listed".to_owned()));
        line(&mut out, &format!("  slots {busy} of {slots} busy, own memory {memory}, loaded until {listed}"));
    }
    for given_up in &watched.recovery.given_up {
        line(&mut out, &paint.bad(&gave_up(given_up)));
    }
    log(&mut out, watched, paint);
    out
}

/// What is going on, as a paragraph that a person understands.
pub fn why(snapshot: &Snapshot) -> String {
    let mut sentences = vec![format!("{}.", snapshot.server.words)];
    let Some(watched) = &snapshot.watched else {
        sentences.push("Runners were not watched yet; ask again in a moment.".to_owned());
        return format!("{}\n", sentences.join(" "));
    };
    if let Some(server) = &watched.server {
        sentences.push(explained("The server", server));
    }
    if watched.runners.is_empty() {
        sentences.push("No model is loaded.".to_owned());
    }
    for runner in &watched.runners {
        match &runner.judged {
            Some(judged) => sentences.push(explained(&format!("{} (pid {})", model(runner), runner.pid), judged)),
            None => sentences.push(format!("{} (pid {}) was not judged yet.", model(runner), runner.pid)),
        }
    }
    sentences.push(format!("{}.", capital(&queue(watched))));
    if let Known::Is(rate) = &watched.memory.swap_out_bytes_per_s
        && *rate >= 1_000_000.0
    {
        sentences.push(format!("Memory is being swapped out at {:.0} MB/s, which slows everything.", rate / 1e6));
    }
    let trouble = watched.runners.iter().filter_map(|runner| runner.judged.as_ref()).chain(&watched.server);
    if trouble.into_iter().any(|judged| judged.trouble) {
        sentences.push(match watched.recovery.policy.as_str() {
            "alert" => "Nothing is done about it by itself (recovery policy «alert»).".to_owned(),
            policy => format!("Recovery policy is «{policy}»."),
        });
    }
    for given_up in &watched.recovery.given_up {
        sentences.push(format!("{}; `stablehand recover` lets it try again.", capital(&gave_up(given_up))));
    }
    format!("{}\n", sentences.join(" "))
}

fn gave_up(given_up: &GivenUp) -> String {
    let GivenUp { cause, subject, words } = given_up;
    format!("recovery gave up on {subject} ({cause}): {words}")
}

fn explained(subject: &str, judged: &Judged) -> String {
    let facts: Vec<&str> = judged.evidence.iter().map(|fact| fact.words.as_str()).collect();
    let evidence = if facts.is_empty() { String::new() } else { format!(" ({})", facts.join("; ")) };
    format!("{subject}: {}{evidence}.", judged.said.words)
}

fn verdict(judged: &Judged, paint: Paint) -> String {
    let words = format!("{} for {} s", judged.said.words, judged.for_s);
    if judged.trouble { paint.bad(&words) } else { words }
}

fn memory(watched: &Watched) -> String {
    let memory = &watched.memory;
    let used = shown(&memory.used_bytes, |bytes| gibibytes(*bytes));
    let total = shown(&memory.total_bytes, |bytes| gibibytes(*bytes));
    let swap = shown(&memory.swap_used_bytes, |bytes| gibibytes(*bytes));
    let rate = shown(&memory.swap_out_bytes_per_s, |rate| format!("{:.1} MB/s", rate / 1e6));
    let pressure = shown(&memory.pressure_level, |level| {
        match level {
            1 => "normal",
            2 => "warning",
            _ => "critical",
        }
        .to_owned()
    });
    let gpu = shown(&memory.gpu_limit_bytes, |bytes| gibibytes(*bytes));
    let heat = if memory.throttled.known() == Some(&true) { ", slowed down by heat" } else { "" };
    format!("memory {used} of {total}, pressure {pressure}, swap {swap} ({rate} out), GPU may use {gpu}{heat}")
}

fn queue(watched: &Watched) -> String {
    let queue = &watched.queue;
    let waiting = match (&queue.at_least, &queue.at_most) {
        (Known::Is(least), Known::Is(most)) if least == most => format!("{least} requests wait"),
        (Known::Is(least), Known::Is(most)) => format!("between {least} and {most} requests wait"),
        (Known::Unknown { unknown }, _) | (_, Known::Unknown { unknown }) => {
            format!("how many requests wait is unknown ({unknown})")
        }
    };
    let clients = match &queue.clients {
        Known::Is(clients) if clients.is_empty() => String::new(),
        Known::Is(clients) => {
            let named: Vec<_> = clients
                .iter()
                .map(|client| match client.pid {
                    Some(pid) => {
                        format!("{} pid {pid} ×{} for {} s", client.program, client.connections, client.oldest_s)
                    }
                    None => format!("{} ×{} for {} s", client.program, client.connections, client.oldest_s),
                })
                .collect();
            format!("; connected: {}", named.join(", "))
        }
        Known::Unknown { unknown } => format!("; who is connected is unknown ({unknown})"),
    };
    format!("{waiting}{clients}")
}

fn log(out: &mut String, watched: &Watched, paint: Paint) {
    let log = match &watched.log {
        Known::Is(log) => log,
        Known::Unknown { unknown } => {
            line(out, &paint.faint(&format!("log: unknown ({unknown})")));
            return;
        }
    };
    for one in &log.endpoints {
        line(
            out,
            &format!(
                "{} {} requests, p50 {} ms, p90 {} ms, p99 {} ms",
                one.path, one.requests, one.p50_ms, one.p90_ms, one.p99_ms
            ),
        );
    }
    if log.turned_away + log.failed + log.clients_left > 0 {
        line(
            out,
            &format!("503 {}, other 5xx {}, clients that left {}", log.turned_away, log.failed, log.clients_left),
        );
    }
    for words in log.errors.iter().chain(&log.threads).chain(&log.evictions) {
        line(out, words);
    }
}

fn model(runner: &WatchedRunner) -> String {
    shown(&runner.model, Clone::clone)
}

fn shown<T>(fact: &Known<T>, words: impl Fn(&T) -> String) -> String {
    match fact {
        Known::Is(value) => words(value),
        Known::Unknown { unknown } => format!("unknown ({unknown})"),
    }
}

fn gibibytes(bytes: u64) -> String {
    #[expect(clippy::cast_precision_loss, reason = "one decimal is shown")]
    let gibibytes = bytes as f64 / f64::from(1_u32 << 30);
    format!("{gibibytes:.1} GiB")
}

fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default()
}

fn line(out: &mut String, text: &(impl Display + ?Sized)) {
    // Writing to a String cannot fail.
    let _ = writeln!(out, "{text}");
}
