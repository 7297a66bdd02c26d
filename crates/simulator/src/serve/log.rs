//! The two voices of the server's log: `slog` lines on standard error and
//! gin's access lines on standard output.

use std::io::Write;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::faults::Fault;
use crate::world::{World, moments, notes};

/// Writes log lines in world time.
#[derive(Clone, Debug)]
pub struct Log {
    world: Arc<World>,
    old_format: bool,
    debug: bool,
}

impl Log {
    /// The log of one server.
    pub fn new(world: Arc<World>, debug: bool) -> Self {
        let old_format = notes::is_raised(&world, Fault::BadLogFormat2025);
        Self { world, old_format, debug }
    }

    /// An INFO line.
    pub fn info(&self, source: &str, message: &str, fields: &[(&str, &str)]) {
        self.line("INFO", source, message, fields);
    }

    /// A WARN line.
    pub fn warn(&self, source: &str, message: &str, fields: &[(&str, &str)]) {
        self.line("WARN", source, message, fields);
    }

    /// An ERROR line.
    pub fn error(&self, source: &str, message: &str, fields: &[(&str, &str)]) {
        self.line("ERROR", source, message, fields);
    }

    /// A DEBUG line, if the server was started with debugging on.
    pub fn debug(&self, source: &str, message: &str, fields: &[(&str, &str)]) {
        if self.debug {
            self.line("DEBUG", source, message, fields);
        }
    }

    /// A line as it is, on standard output.
    pub fn raw(&self, text: &str) {
        // A reader of the log that went away must not end the server.
        let _ = writeln!(std::io::stdout().lock(), "{text}");
    }

    fn line(&self, level: &str, source: &str, message: &str, fields: &[(&str, &str)]) {
        let now = self.world.clock.wall_ms();
        let mut text = if self.old_format {
            format!("{} {source}: {level} {message}", moments::go_plain(now))
        } else {
            format!("time={} level={level} source={source} msg={}", moments::slog(now), quoted(message))
        };
        for (key, value) in fields {
            text.push_str(&format!(" {key}={}", quoted(value)));
        }
        let _ = writeln!(std::io::stderr().lock(), "{text}");
    }
}

/// What a request is doing, for the line that is written if its client leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// In no queue.
    Plain,
    /// Waiting for a load decision: such a request leaves no line at all.
    Pending,
    /// Its model is being loaded.
    Loading,
    /// Waiting for a slot.
    Waiting,
}

/// An access line that is written when the request ends, however it ends.
#[derive(Debug)]
pub struct AccessLine {
    /// Where to.
    pub log: Log,
    /// The world's clock.
    pub world: Arc<World>,
    /// Real instant of arrival.
    pub arrived: Instant,
    /// Method.
    pub method: String,
    /// Path with query.
    pub path: String,
    /// Address of the client.
    pub client: String,
    /// Status, once there is one.
    pub status: Option<u16>,
    /// What the request is doing.
    pub phase: Arc<std::sync::Mutex<Phase>>,
}

impl Drop for AccessLine {
    fn drop(&mut self) {
        let phase = *self.phase.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let status = match (self.status, phase) {
            (Some(status), _) => status,
            (None, Phase::Pending) => return,
            (None, Phase::Loading | Phase::Plain) => 499,
            (None, Phase::Waiting) => 500,
        };
        let latency = self.world.clock.since(self.arrived);
        self.log.raw(&access_text(self.world.clock.wall_ms(), status, latency, &self.client, &self.method, &self.path));
    }
}

/// gin's default access line.
pub fn access_text(unix_ms: i64, status: u16, latency: Duration, client: &str, method: &str, path: &str) -> String {
    format!(
        "[GIN] {} | {status:3} | {:>13} | {client:>15} | {method:<7}  {}",
        moments::gin(unix_ms),
        moments::gin_latency(latency),
        go_quote(path),
    )
}

/// A value as `slog`'s text handler writes it.
pub fn quoted(value: &str) -> String {
    let plain = !value.is_empty()
        && value.chars().all(|character| !character.is_whitespace() && !matches!(character, '"' | '=' | '\\'));
    if plain { value.to_owned() } else { go_quote(value) }
}

fn go_quote(value: &str) -> String {
    let mut text = String::with_capacity(value.len() + 2);
    text.push('"');
    for character in value.chars() {
        match character {
            '"' => text.push_str("\\\""),
            '\\' => text.push_str("\\\\"),
            '\n' => text.push_str("\\n"),
            '\t' => text.push_str("\\t"),
            other => text.push(other),
        }
    }
    text.push('"');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_quoted_as_slog_does() {
        assert_eq!(quoted("abc"), "abc");
        assert_eq!(quoted(""), "\"\"");
        assert_eq!(quoted("a b"), "\"a b\"");
        assert_eq!(quoted("a=b"), "\"a=b\"");
        assert_eq!(quoted("say \"x\""), "\"say \\\"x\\\"\"");
    }

    #[test]
    fn access_lines_have_gins_columns() {
        let line = access_text(0, 200, Duration::from_micros(42_044), "127.0.0.1", "POST", "/api/chat");
        assert!(line.contains(" | 200 |      42.044ms |       127.0.0.1 | POST     \"/api/chat\""), "{line}");
    }
}
