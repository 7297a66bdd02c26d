//! `journalctl(1)` over the journal files of the world.

use serde_json::json;

use crate::systemd::Scope;
use crate::systemd::journal::{self, Entry};
use crate::wire::Reply;
use crate::world::{World, moments};

/// How entries are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Output {
    #[default]
    Short,
    ShortIso,
    Cat,
    Json,
}

#[derive(Debug, Default)]
struct Call {
    user: bool,
    unit: Option<String>,
    output: Output,
    lines: Option<usize>,
    since: Option<String>,
    until: Option<String>,
    quiet: bool,
    follow: bool,
    reverse: bool,
}

/// Runs the command.
pub fn run(world: &World, arguments: &[String]) -> Reply {
    let call = parse(arguments);
    let scope = if call.user { Scope::User } else { Scope::System };
    let Some(unit) = &call.unit else {
        return Reply::quiet();
    };
    let since = call.since.as_deref().and_then(|text| since_ms(text, world.clock.wall_ms()));
    let mut read_bytes = 0;
    let mut entries = journal::read_on(world, scope, unit, &mut read_bytes);
    let until = call.until.as_deref().and_then(|text| since_ms(text, world.clock.wall_ms()));
    entries.retain(|entry| {
        since.is_none_or(|since| entry.unix_ms >= since) && until.is_none_or(|until| entry.unix_ms <= until)
    });
    if let Some(lines) = call.lines {
        let surplus = entries.len().saturating_sub(lines);
        entries.drain(..surplus);
    }
    if call.reverse {
        entries.reverse();
    }
    let text: String = entries.iter().map(|entry| line(entry, &call, scope, unit)).collect();
    if call.follow {
        follow(world, &call, scope, unit, text, read_bytes);
    }
    if entries.is_empty() && !call.quiet {
        return Reply::said("-- No entries --\n");
    }
    Reply::said(text)
}

fn parse(arguments: &[String]) -> Call {
    let mut call = Call::default();
    let mut words = arguments.iter().map(String::as_str);
    while let Some(word) = words.next() {
        let (flag, joined) = match word.split_once('=') {
            Some((flag, value)) if flag.starts_with("--") => (flag, Some(value)),
            Some(_) | None => (word, None),
        };
        let mut value = || joined.or_else(|| words.next()).unwrap_or_default().to_owned();
        match flag {
            "--user" => call.user = true,
            "--user-unit" => {
                call.user = true;
                call.unit = Some(unit_name(&value()));
            }
            "-u" | "--unit" => call.unit = Some(unit_name(&value())),
            "-o" | "--output" => call.output = output(&value()),
            "-n" | "--lines" => call.lines = value().parse().ok(),
            "-S" | "--since" => call.since = Some(value()),
            "-U" | "--until" => call.until = Some(value()),
            "-q" | "--quiet" => call.quiet = true,
            "--output-fields" | "-p" | "--priority" => {
                value();
            }
            "-f" | "--follow" => call.follow = true,
            "-r" | "--reverse" => call.reverse = true,
            short if short.starts_with("-u") && !short.starts_with("--") => {
                call.unit = Some(unit_name(&short[2..]));
            }
            short if short.starts_with("-n") && !short.starts_with("--") => {
                call.lines = short[2..].parse().ok();
            }
            short if short.starts_with("-o") && !short.starts_with("--") => {
                call.output = output(&short[2..]);
            }
            _ => {}
        }
    }
    call
}

fn unit_name(name: &str) -> String {
    if name.contains('.') { name.to_owned() } else { format!("{name}.service") }
}

fn output(word: &str) -> Output {
    match word {
        "short-iso" | "short-iso-precise" => Output::ShortIso,
        "cat" => Output::Cat,
        "json" => Output::Json,
        _ => Output::Short,
    }
}

/// `@UNIX`, `YYYY-MM-DD HH:MM:SS`, `-5min`, `5 minutes ago`, `now`.
fn since_ms(text: &str, now_ms: i64) -> Option<i64> {
    if let Some(seconds) = text.strip_prefix('@') {
        return seconds.parse::<f64>().ok().map(|seconds| (seconds * 1000.0) as i64);
    }
    if text == "now" {
        return Some(now_ms);
    }
    let relative = text.strip_prefix('-').or_else(|| text.strip_suffix(" ago"));
    if let Some(span) = relative {
        let at = span.find(|character: char| character.is_alphabetic())?;
        let amount: i64 = span[..at].trim().parse().ok()?;
        let unit_ms = match span[at..].trim() {
            "s" | "sec" | "second" | "seconds" => 1_000,
            "m" | "min" | "minute" | "minutes" => 60_000,
            "h" | "hour" | "hours" => 3_600_000,
            "d" | "day" | "days" => 86_400_000,
            _ => return None,
        };
        return Some(now_ms - amount * unit_ms);
    }
    let civil: jiff::civil::DateTime = text.replace(' ', "T").parse().ok()?;
    let zoned = civil.to_zoned(jiff::tz::TimeZone::system()).ok()?;
    Some(zoned.timestamp().as_millisecond())
}

fn line(entry: &Entry, call: &Call, scope: Scope, unit: &str) -> String {
    let Entry { unix_ms, identifier, pid, message } = entry;
    match call.output {
        Output::Cat => format!("{message}\n"),
        Output::ShortIso => {
            format!("{} sim {identifier}[{pid}]: {message}\n", moments::short_iso(*unix_ms))
        }
        Output::Short => {
            let stamp = moments::ctime(*unix_ms);
            format!("{} sim {identifier}[{pid}]: {message}\n", &stamp[4..19])
        }
        Output::Json => {
            let key = match scope {
                Scope::System => "_SYSTEMD_UNIT",
                Scope::User => "_SYSTEMD_USER_UNIT",
            };
            let micros = (unix_ms * 1000).to_string();
            let value = json!({
                "__CURSOR": format!("s=sim;t={micros}"),
                "__REALTIME_TIMESTAMP": micros,
                "_HOSTNAME": "sim",
                "_PID": pid.to_string(),
                "SYSLOG_IDENTIFIER": identifier,
                key: unit,
                "PRIORITY": "6",
                "MESSAGE": message,
            });
            format!("{value}\n")
        }
    }
}

/// Writes what was there and then every new entry, until the reader goes away.
fn follow(world: &World, call: &Call, scope: Scope, unit: &str, mut pending: String, mut read_bytes: u64) -> ! {
    use std::io::Write;
    let mut out = std::io::stdout();
    loop {
        if out.write_all(pending.as_bytes()).and_then(|()| out.flush()).is_err() {
            std::process::exit(0);
        }
        std::thread::sleep(std::time::Duration::from_millis(50));
        let entries = journal::read_on(world, scope, unit, &mut read_bytes);
        pending = entries.iter().map(|entry| line(entry, call, scope, unit)).collect();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn since_is_read_in_several_shapes() {
        assert_eq!(since_ms("@1700000000", 0), Some(1_700_000_000_000));
        assert_eq!(since_ms("-5min", 600_000), Some(300_000));
        assert_eq!(since_ms("2 hours ago", 7_200_000), Some(0));
        assert!(since_ms("2026-08-21 18:48:22", 0).is_some());
        assert_eq!(since_ms("whenever", 0), None);
    }

    #[test]
    fn the_usual_call_is_read() {
        let words = [
            "--user",
            "-u",
            "ollama",
            "-o",
            "short-iso",
            "-n",
            "50",
            "--no-pager",
            "--since=@5",
            "--until",
            "@9",
            "-q",
        ];
        let call = parse(&words.map(str::to_owned));
        assert!(call.user);
        assert_eq!(call.unit.as_deref(), Some("ollama.service"));
        assert_eq!((call.output, call.lines), (Output::ShortIso, Some(50)));
        assert_eq!((call.since.as_deref(), call.until.as_deref()), (Some("@5"), Some("@9")));
        assert!(call.quiet);
    }
}
