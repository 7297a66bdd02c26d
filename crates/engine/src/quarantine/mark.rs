//! The value of the attribute: `FLAGS;TIME;AGENT;EVENT`.

use crate::known::Known;
use crate::time::Wall;
use std::fmt;

/// What a quarantine mark says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mark {
    /// Why it was marked, and whether a person approved it.
    pub flags: Flags,
    /// When it was marked (hexadecimal Unix seconds in the value).
    pub at: Known<Wall>,
    /// The program that marked it, e.g. `Safari` or `Homebrew Cask`; none where the value names none.
    pub agent: Option<String>,
    /// Key of the download in the person's own list of downloads; often missing.
    pub event: Option<String>,
}

/// The value is no quarantine mark in the layout that we know.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnreadableMark {
    /// It is no text.
    #[error("the value of com.apple.quarantine is no text")]
    NotText,
    /// It does not begin with four hexadecimal digits.
    #[error("the value of com.apple.quarantine does not begin with four hexadecimal digits: {0:?}")]
    NoFlags(String),
}

impl Mark {
    /// Reads the value of the attribute. A time that cannot be read leaves the rest readable: the flags decide.
    ///
    /// # Errors
    /// [`UnreadableMark`] when there are no flags.
    pub fn parse(value: &[u8]) -> Result<Self, UnreadableMark> {
        let text = std::str::from_utf8(value).map_err(|_| UnreadableMark::NotText)?.trim_end_matches(['\n', '\0']);
        let mut parts = text.split(';');
        let flags = parts.next().and_then(Flags::parse);
        let flags = flags.ok_or_else(|| UnreadableMark::NoFlags(text.chars().take(40).collect()))?;
        let at = match parts.next() {
            None | Some("") => Known::unknown("the mark names no time"),
            Some(hex) => moment(hex).map_or_else(|| Known::unknown("its time is no hexadecimal number"), Known::Is),
        };
        let mut word = || parts.next().map(plain).filter(|word| !word.is_empty());
        Ok(Self { flags, at, agent: word(), event: word() })
    }
}

fn moment(hex: &str) -> Option<Wall> {
    let digits = hex.bytes().all(|byte| byte.is_ascii_hexdigit());
    let seconds = u32::from_str_radix(hex, 16).ok().filter(|_| digits)?;
    Some(Wall::from_unix_ms(i64::from(seconds) * 1000))
}

/// A word with its `\xHH` resolved. Whatever could steer a terminal is replaced.
fn plain(word: &str) -> String {
    let mut bytes = Vec::with_capacity(word.len());
    let mut rest = word.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let escaped = match rest {
            [b'\\', b'x', high, low, after @ ..] => {
                digit(*high).zip(digit(*low)).map(|(high, low)| (high << 4 | low, after))
            }
            _ => None,
        };
        let (byte, after) = escaped.unwrap_or((*first, after));
        bytes.push(byte);
        rest = after;
    }
    let symbol = |symbol: char| if symbol.is_control() { char::REPLACEMENT_CHARACTER } else { symbol };
    String::from_utf8_lossy(&bytes).chars().map(symbol).collect()
}

fn digit(symbol: u8) -> Option<u8> {
    char::from(symbol).to_digit(16).and_then(|value| u8::try_from(value).ok())
}

/// The flags of a mark. Four have public names (`QTN_FLAG_…`); Apple's own sources use the one for approval that way
/// (Security, `SecTranslocate`). What the others mean is not said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flags(u16);

impl Flags {
    const DOWNLOAD: u16 = 0x0001;
    const SANDBOX: u16 = 0x0002;
    const HARD: u16 = 0x0004;
    const USER_APPROVED: u16 = 0x0040;

    fn parse(hex: &str) -> Option<Self> {
        let four = hex.len() == 4 && hex.bytes().all(|byte| byte.is_ascii_hexdigit());
        four.then(|| u16::from_str_radix(hex, 16).ok().map(Self)).flatten()
    }

    /// Whether a person (or a program in their name) said that it may be opened.
    pub fn approved(self) -> bool {
        self.0 & Self::USER_APPROVED != 0
    }

    /// What each flag says; those without a known meaning together as a number.
    pub fn meanings(self) -> Vec<String> {
        let named = [
            (Self::DOWNLOAD, "downloaded"),
            (Self::SANDBOX, "written by a sandboxed program"),
            (Self::HARD, "must not be run"),
            (Self::USER_APPROVED, "approved by a person"),
        ];
        let mut meanings: Vec<String> =
            named.iter().filter(|(bit, _)| self.0 & bit != 0).map(|(_, meaning)| (*meaning).to_owned()).collect();
        if !self.approved() {
            meanings.push("not approved by a person".to_owned());
        }
        let others = named.iter().fold(self.0, |rest, (bit, _)| rest & !bit);
        if others != 0 {
            meanings.push(format!("others: {others:04x}"));
        }
        meanings
    }
}

impl fmt::Display for Flags {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:04x}", self.0)
    }
}
