//! The server's log, wherever its owner keeps it: for people (`stablehand logs`) and for the proof.

use crate::Place;
use crate::looking::{Looker, found};
use stablehand_engine::Known;
use stablehand_engine::owner::{Owner, Ownership, Scope, ownership};
use stablehand_engine::time::Wall;
use stablehand_ollama::evidence::Logged;
use stablehand_ollama::log::Parser;
use stablehand_ollama::log::follower::{Follower, Piece, Polled, Start};
use stablehand_platform::command::{Invocation, run};
use stablehand_platform::machine::Machine;
use stablehand_platform::paths::stablehand_files;
use stablehand_platform::server_log::{LogSource, server_log};
use stablehand_protocol::Failure;
use std::collections::VecDeque;
use std::path::Path;
use std::time::Duration;

/// How often a followed log is looked at, in real time.
const FOLLOW_INTERVAL: Duration = Duration::from_millis(250);
/// The longest line that is shown whole.
const LINE_BYTES: usize = 64 << 10;
/// How much is read between two looks at Ctrl-C.
const BUDGET_BYTES: u64 = 8 << 20;
/// How many lines a look at a followed journal asks for.
const FOLLOWED_LINES: usize = 2000;
/// How many lines must stand again for two looks to be joined.
const OVERLAP_LINES: usize = 20;
/// A server writes its config line within this span after its start; the journal is asked for no more than that.
const CONFIG_LINE_SPAN: Duration = Duration::from_secs(120);

/// Where the log of the present server is.
///
/// # Errors
/// When no owner of a server can be named.
pub async fn of_server(place: &Place) -> Result<LogSource, Failure> {
    let machine = place.machine();
    let survey = Looker::new(machine.clone()).survey_alone().await;
    let owner: Owner = match ownership(&survey) {
        Ownership::One { owner, .. } | Ownership::Contested { holder: owner, .. } => owner,
        Ownership::Foreign(_) | Ownership::Absent | Ownership::Unknown(_) => {
            return Err(Failure::new(
                "no-server-log",
                "no Ollama server of yours was found, so there is no log to show",
                "see `stablehand doctor`",
            ));
        }
    };
    Ok(server_log(machine, &owner))
}

/// Where the daemon's own log is.
pub fn of_daemon(place: &Place) -> LogSource {
    let machine = place.machine();
    match machine.os() {
        stablehand_platform::machine::Os::MacOs => {
            LogSource::File(stablehand_files(machine).log_dir.join("daemon.log"))
        }
        stablehand_platform::machine::Os::Linux => {
            LogSource::Journal { scope: Scope::User, unit: "stablehand.service".to_owned() }
        }
    }
}

/// Shows the last lines of a log, and goes on with new ones when told to.
///
/// # Errors
/// When there is no log, or it cannot be read.
pub async fn show(
    place: &Place,
    source: &LogSource,
    lines: usize,
    follow: bool,
    show: &mut impl FnMut(&str),
) -> Result<(), Failure> {
    match source {
        LogSource::File(path) => show_file(path, lines, follow, show).await,
        LogSource::Journal { scope, unit } => show_journal(place.machine(), *scope, unit, lines, follow, show).await,
        LogSource::Nowhere(reason) => {
            Err(Failure::new("no-server-log", format!("there is no log to show: {reason}"), ""))
        }
    }
}

async fn show_file(path: &Path, lines: usize, follow: bool, show: &mut impl FnMut(&str)) -> Result<(), Failure> {
    let unreadable = |error: std::io::Error| {
        Failure::new("log-unreadable", format!("{} cannot be read: {error}", path.display()), "see its owner and mode")
    };
    let mut follower = Follower::new(path, Start::Beginning, LINE_BYTES);
    let mut last: VecDeque<String> = VecDeque::new();
    loop {
        let polled = follower.poll(BUDGET_BYTES, |piece| {
            last.push_back(in_words(&piece));
            if last.len() > lines {
                last.pop_front();
            }
        });
        match polled.map_err(unreadable)? {
            Polled::More => tokio::task::yield_now().await,
            Polled::CaughtUp => break,
            Polled::Missing if follow => break,
            Polled::Missing => {
                return Err(Failure::new("no-server-log", format!("there is no log at {}", path.display()), ""));
            }
        }
    }
    last.iter().for_each(|line| show(line));
    if !follow {
        return Ok(());
    }
    loop {
        tokio::time::sleep(FOLLOW_INTERVAL).await;
        follower.poll(BUDGET_BYTES, |piece| show(&in_words(&piece))).map_err(unreadable)?;
    }
}

fn in_words(piece: &Piece<'_>) -> String {
    match piece {
        Piece::Line { bytes, cut_bytes: 0 } => String::from_utf8_lossy(bytes).into_owned(),
        Piece::Line { bytes, cut_bytes } => format!("{} [{cut_bytes} more bytes]", String::from_utf8_lossy(bytes)),
        Piece::Rotated => "-- the log was rotated --".to_owned(),
        Piece::Truncated => "-- the log was truncated --".to_owned(),
    }
}

async fn show_journal(
    machine: &Machine,
    scope: Scope,
    unit: &str,
    lines: usize,
    follow: bool,
    show: &mut impl FnMut(&str),
) -> Result<(), Failure> {
    let mut last: Option<Vec<String>> = None;
    loop {
        let wanted = if last.is_some() { FOLLOWED_LINES } else { lines };
        let invocation = journal(machine, scope, unit).args(["-n", &wanted.to_string()]);
        let said = run(machine, &invocation).await.map_err(|error| {
            Failure::new("journal-unreadable", format!("the journal of {unit} cannot be read: {error}"), "")
        })?;
        let all: Vec<String> = said.stdout.lines().map(str::to_owned).collect();
        let news = last.as_deref().map_or(0, |last| overlap_end(last, &all));
        all[news..].iter().for_each(|line| show(line));
        if !follow {
            return Ok(());
        }
        if news < all.len() || last.is_none() {
            last = Some(all);
        }
        tokio::time::sleep(FOLLOW_INTERVAL * 4).await;
    }
}

/// Where in `now` the lines begin that came after those of `before`: behind the last place where the end of `before`
/// stands again.
fn overlap_end(before: &[String], now: &[String]) -> usize {
    let tail = &before[before.len().saturating_sub(OVERLAP_LINES)..];
    if tail.is_empty() {
        return 0;
    }
    (tail.len().min(now.len())..=now.len()).rev().find(|end| now[..*end].ends_with(tail)).unwrap_or(0)
}

/// The lines of a unit as they were written, without a stamp of the journal.
pub(crate) fn journal(machine: &Machine, scope: Scope, unit: &str) -> Invocation {
    let invocation = Invocation::new(machine.at("/usr/bin/journalctl"));
    let invocation = match scope {
        Scope::System => invocation,
        Scope::User => invocation.arg("--user"),
    };
    invocation.args(["-u", unit, "-o", "cat", "--no-pager", "-q"])
}

/// The config line of a server that started at `started`, from its unit's journal.
pub async fn config_line_in_journal(machine: &Machine, scope: Scope, unit: &str, started: Wall) -> Known<Logged> {
    let begin = started.unix_ms / 1000 - 1;
    let end = begin + i64::try_from(CONFIG_LINE_SPAN.as_secs()).unwrap_or(120);
    let invocation = journal(machine, scope, unit).args([format!("--since=@{begin}"), format!("--until=@{end}")]);
    let said = match run(machine, &invocation).await {
        Ok(said) if said.succeeded() => said,
        Ok(said) => return Known::unknown(format!("the journal of {unit} cannot be read: {}", said.said())),
        Err(error) => return Known::unknown(format!("the journal of {unit} cannot be read: {error}")),
    };
    let parser = Parser::local();
    let line = said.stdout.lines().rev().find_map(|line| parser.config_line(line.as_bytes()));
    match line {
        Some(line) => found(line, format!("journal of {unit}")),
        None => Known::unknown(format!("the journal of {unit} holds no server config line since the server started")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_looks_at_a_journal_are_joined_where_they_overlap() {
        let lines = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(overlap_end(&lines("a b c"), &lines("x a b c d e")), 4);
        assert_eq!(overlap_end(&lines("a b c"), &lines("a b c")), 3);
        assert_eq!(overlap_end(&lines("a a"), &lines("a a a")), 3, "the last place counts: nothing is shown twice");
        assert_eq!(overlap_end(&lines("a b"), &lines("y z")), 0, "all of it is new");
    }
}
