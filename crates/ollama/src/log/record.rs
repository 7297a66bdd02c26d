//! The server's own records, in today's form (Go's `slog` text handler, `ollama logutil/logutil.go`) and in the old one
//! (Go's `log` package), which the server still uses for the few lines before its logger is set up.

use super::stamp::{self, Zone};
use crate::go_quote::unquote;
use stablehand_engine::time::Wall;
use std::borrow::Cow;

/// How much a record matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// `TRACE`, or anything below DEBUG.
    Trace,
    /// `DEBUG`.
    Debug,
    /// `INFO`.
    Info,
    /// `WARN`.
    Warn,
    /// `ERROR`, or anything above it.
    Error,
}

impl Level {
    fn from_word(word: &str) -> Option<Self> {
        Some(match word {
            "TRACE" => Self::Trace,
            "DEBUG" => Self::Debug,
            "INFO" => Self::Info,
            "WARN" => Self::Warn,
            "ERROR" => Self::Error,
            _ if word.starts_with("DEBUG") => Self::Trace,
            _ if word.starts_with("INFO+") => Self::Info,
            _ if word.starts_with("WARN+") => Self::Warn,
            _ if word.starts_with("ERROR+") => Self::Error,
            _ => return None,
        })
    }
}

/// One record: when, how bad, what, and its fields.
#[derive(Debug)]
pub(super) struct Record<'a> {
    pub at: Wall,
    /// How far the stamp may lie before the moment it stands for: 1 ms, or a second in the old form.
    pub resolution_ms: u16,
    pub level: Level,
    pub message: Cow<'a, str>,
    fields: &'a str,
}

impl<'a> Record<'a> {
    /// Reads a line in either form.
    pub fn parse(line: &'a str, zone: &Zone) -> Option<Self> {
        if line.starts_with("time=") { Self::today(line) } else { Self::old(line, zone) }
    }

    /// The value of a field.
    pub fn field(&self, name: &str) -> Option<Cow<'a, str>> {
        fields(self.fields).find(|(key, _)| key == name).map(|(_, value)| value)
    }

    /// The value of a field as a number.
    pub fn number<T: std::str::FromStr>(&self, name: &str) -> Option<T> {
        self.field(name)?.parse().ok()
    }

    fn today(line: &'a str) -> Option<Self> {
        let mut at = None;
        let mut level = None;
        let mut rest = line;
        // time, level, source, msg: always in this order, and msg is the last of them.
        loop {
            let (key, value, after) = field(rest)?;
            rest = after;
            match &*key {
                "time" => at = stamp::rfc3339(&value),
                "level" => level = Level::from_word(&value),
                "msg" => return Some(Self { at: at?, resolution_ms: 1, level: level?, message: value, fields: rest }),
                "source" => {}
                _ => return None,
            }
        }
    }

    /// `2025/02/26 21:37:33 routes.go:1205: INFO server config env="map[…]"`
    fn old(line: &'a str, zone: &Zone) -> Option<Self> {
        let mut parts = line.splitn(5, ' ');
        let (date, time) = (parts.next()?, parts.next()?);
        let at = stamp::local(date, time, zone)?;
        let source = parts.next()?;
        let level = Level::from_word(parts.next()?)?;
        let text = parts.next()?;
        if !source.ends_with(':') {
            return None;
        }
        let ends = text.match_indices('=').find_map(|(equals, _)| {
            let key = text[..equals].rfind(' ')? + 1;
            let is_key =
                equals > key && text[key..equals].bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
            is_key.then_some(key)
        });
        let (message, fields) = text.split_at(ends.unwrap_or(text.len()));
        Some(Self { at, resolution_ms: 1000, level, message: Cow::Borrowed(message.trim_end()), fields })
    }
}

/// Every field of the rest of a record. Ends at the first one that is cut off or malformed.
fn fields(mut rest: &str) -> impl Iterator<Item = (Cow<'_, str>, Cow<'_, str>)> {
    std::iter::from_fn(move || {
        let (key, value, after) = field(rest)?;
        rest = after;
        Some((key, value))
    })
}

fn field(text: &str) -> Option<(Cow<'_, str>, Cow<'_, str>, &str)> {
    let text = text.trim_start_matches(' ');
    let (key, rest) = match text.strip_prefix('"') {
        Some(quoted) => {
            let (key, rest) = unquote(quoted)?;
            (key, rest.strip_prefix('=')?)
        }
        None => {
            let (key, rest) = text.split_once('=')?;
            (Cow::Borrowed(key), rest)
        }
    };
    let (value, rest) = match rest.strip_prefix('"') {
        Some(quoted) => unquote(quoted)?,
        None => {
            let (value, rest) = rest.split_at(rest.find(' ').unwrap_or(rest.len()));
            (Cow::Borrowed(value), rest)
        }
    };
    Some((key, value, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_of_today_is_taken_apart() {
        let line = r#"time=2026-08-21T18:48:22.123-07:00 level=WARN source=config.go:263 msg="invalid \"x\"" key=A "MLX version"=0.32 value="4 5" empty="" default=1"#;
        let record = Record::parse(line, &utc()).unwrap();
        assert_eq!(record.level, Level::Warn);
        assert_eq!(record.message, "invalid \"x\"");
        assert_eq!(record.field("value").as_deref(), Some("4 5"));
        assert_eq!(record.field("MLX version").as_deref(), Some("0.32"));
        assert_eq!(record.field("empty").as_deref(), Some(""));
        assert_eq!(record.number::<u32>("default"), Some(1));
        assert_eq!(record.field("absent"), None);
    }

    #[test]
    fn an_old_record_is_taken_apart() {
        let line = "2025/02/26 21:37:33 routes.go:1205: INFO server config env=\"map[A:1]\" n=2";
        let record = Record::parse(line, &utc()).unwrap();
        assert_eq!((record.level, &*record.message, record.resolution_ms), (Level::Info, "server config", 1000));
        assert_eq!(record.field("env").as_deref(), Some("map[A:1]"));
        assert_eq!(record.number::<u8>("n"), Some(2));
        assert_eq!(record.at, Wall::from_unix_ms(1_740_605_853_000));
    }

    #[test]
    fn other_texts_are_no_records() {
        for line in [
            "",
            "time=",
            "time=now level=INFO msg=x",
            "time=2026-08-21T18:48:22Z level=INFO msg=\"cut",
            "level=INFO msg=x",
            "2025/02/26 21:37:33 hello",
            "2025/02/26 21:37:33 a.go:1 INFO x",
            "srv  update_slots: all slots are idle",
        ] {
            assert!(Record::parse(line, &utc()).is_none(), "{line}");
        }
    }

    fn utc() -> Zone {
        Zone::new(jiff::tz::TimeZone::UTC)
    }
}
