//! The server's log as it grows, wherever its owner keeps it: a file, or the journal of a unit.

use crate::server_log::journal;
use stablehand_engine::Known;
use stablehand_engine::owner::Scope;
use stablehand_engine::time::Awake;
use stablehand_ollama::log::follower::{Follower, Piece, Start};
use stablehand_platform::command::lines::{Lines, NextLine, lines};
use stablehand_platform::machine::Machine;
use stablehand_platform::server_log::LogSource;
use std::path::PathBuf;
use std::time::Duration;

/// How much of a file is read in one observation.
const LOG_BYTES: u64 = 32 << 20;
/// How many lines of a journal are taken in one observation.
const LINES: usize = 100_000;
/// Of a longer line only the beginning is looked at.
const LINE_BYTES: usize = 16 << 10;
/// A journal that cannot be followed is tried again after this long.
const AGAIN: Duration = Duration::from_secs(30);

/// What is followed.
#[derive(Debug, Default)]
pub enum LogFeed {
    /// Nothing.
    #[default]
    None,
    /// A file.
    File {
        /// Where.
        path: PathBuf,
        /// From its end on.
        follower: Follower,
    },
    /// A journal.
    Journal {
        /// Of which unit.
        unit: (Scope, String),
        /// What `journalctl -f` writes.
        lines: Lines,
        /// A line was seen, so the journal may be read.
        told: bool,
    },
    /// A journal that could not be followed.
    Lost {
        /// Of which unit.
        unit: (Scope, String),
        /// Since when.
        since: Awake,
        /// Why.
        why: String,
    },
}

impl LogFeed {
    /// Hands on every line that was written since the last poll. Unknown, with the reason, while it cannot be told
    /// what is written.
    pub fn poll(
        &mut self,
        machine: &Machine,
        source: LogSource,
        now: Awake,
        hand_on: &mut impl FnMut(&[u8]),
    ) -> Known<()> {
        match source {
            LogSource::File(path) => self.poll_file(path, hand_on),
            LogSource::Journal { scope, unit } => self.poll_journal(machine, (scope, unit), now, hand_on),
            LogSource::Nowhere(reason) => {
                *self = Self::None;
                Known::Unknown(reason)
            }
        }
    }

    fn poll_file(&mut self, wanted: PathBuf, hand_on: &mut impl FnMut(&[u8])) -> Known<()> {
        if !matches!(self, Self::File { path, .. } if *path == wanted) {
            let follower = Follower::new(&wanted, Start::End, LINE_BYTES);
            *self = Self::File { path: wanted, follower };
        }
        let Self::File { path, follower } = self else { return Known::unknown("no log is followed") };
        let polled = follower.poll(LOG_BYTES, |piece| match piece {
            Piece::Line { bytes, .. } => hand_on(bytes),
            Piece::Rotated | Piece::Truncated => {}
        });
        match polled {
            Ok(_) => Known::Is(()),
            Err(error) => Known::unknown(format!("{} cannot be read: {error}", path.display())),
        }
    }

    fn poll_journal(
        &mut self,
        machine: &Machine,
        wanted: (Scope, String),
        now: Awake,
        hand_on: &mut impl FnMut(&[u8]),
    ) -> Known<()> {
        match self {
            Self::Journal { unit, .. } if *unit == wanted => {}
            Self::Lost { unit, since, why } if *unit == wanted && now.since(*since) < AGAIN => {
                return Known::unknown(why.clone());
            }
            Self::None | Self::File { .. } | Self::Journal { .. } | Self::Lost { .. } => {
                // The last line that is there tells whether the journal may be read at all.
                let invocation = journal(machine, wanted.0, &wanted.1).args(["-n", "1", "-f"]);
                *self = match lines(machine, &invocation, LINE_BYTES) {
                    Ok(lines) => Self::Journal { unit: wanted, lines, told: false },
                    Err(error) => {
                        let why = why_lost(&wanted.1, &error.to_string());
                        Self::Lost { unit: wanted, since: now, why }
                    }
                };
            }
        }
        let Self::Journal { unit, lines, told } = self else {
            let Self::Lost { why, .. } = self else { return Known::unknown("no journal is followed") };
            return Known::unknown(why.clone());
        };
        for _ in 0..LINES {
            match lines.next_now() {
                NextLine::Line(line) if *told => hand_on(&line),
                NextLine::Line(_) => *told = true,
                NextLine::NotYet => break,
                NextLine::Ended(words) => {
                    let words = if words.is_empty() { "journalctl ended" } else { &words };
                    let why = why_lost(&unit.1, words);
                    *self = Self::Lost { unit: unit.clone(), since: now, why: why.clone() };
                    return Known::Unknown(why);
                }
            }
        }
        if *told {
            return Known::Is(());
        }
        Known::unknown(format!(
            "the journal of {} has told nothing yet; to read a system unit's, be in the group systemd-journal or adm",
            unit.1
        ))
    }
}

fn why_lost(unit: &str, words: &str) -> String {
    format!("the journal of {unit} cannot be followed: {words}")
}
