//! Access lines: one for each request, written when it ends (gin's logger). A request that never ends has none.

use super::stamp::{self, Zone};
use crate::go_duration::GoDuration;
use crate::go_quote::unquote;
use stablehand_engine::time::Wall;
use std::borrow::Cow;
use std::time::Duration;

/// One finished request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Access {
    /// When it ended, to the second.
    pub ended: Wall,
    /// HTTP status. 503 is a full queue, 499 a client that left.
    pub status: u16,
    /// How long it took; whole seconds above a minute.
    pub latency: Duration,
    /// The client's address.
    pub client: String,
    /// HTTP method.
    pub method: String,
    /// Path without the query, which may hold anything.
    pub path: String,
}

impl Access {
    /// When it began, to the second.
    pub fn began(&self) -> Wall {
        let latency_ms = i64::try_from(self.latency.as_millis()).unwrap_or(i64::MAX);
        Wall::from_unix_ms(self.ended.unix_ms.saturating_sub(latency_ms))
    }

    /// `[GIN] 2026/08/21 - 18:48:22 | 200 |  5.054276458s |       127.0.0.1 | POST     "/api/chat"`
    pub(super) fn parse(line: &str, zone: &Zone) -> Option<Self> {
        let plain = without_colour(line);
        let rest = plain.strip_prefix("[GIN] ")?;
        let mut parts = rest.splitn(5, '|').map(str::trim);
        let (date, time) = parts.next()?.split_once(" - ")?;
        let status = parts.next()?.parse().ok()?;
        let latency: GoDuration = parts.next()?.parse().ok()?;
        let client = parts.next()?.to_owned();
        let (method, path) = parts.next()?.split_once(' ')?;
        let (path, _) = unquote(path.trim_start().strip_prefix('"')?)?;
        Some(Self {
            ended: stamp::local(date, time, zone)?,
            status,
            latency: latency.to_span()?,
            client,
            method: method.to_owned(),
            path: path.split('?').next().unwrap_or_default().to_owned(),
        })
    }
}

/// On a terminal the logger wraps status and method in colours.
fn without_colour(line: &str) -> Cow<'_, str> {
    if !line.contains('\u{1b}') {
        return Cow::Borrowed(line);
    }
    let mut parts = line.split('\u{1b}');
    let mut plain = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        plain.push_str(part.split_once('m').map_or("", |(_, after)| after));
    }
    Cow::Owned(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finished_request_is_read() {
        let line =
            r#"[GIN] 2026/08/22 - 01:48:22 | 200 |  5.054276458s |       127.0.0.1 | POST     "/api/chat?key=secret""#;
        let access = Access::parse(line, &utc()).unwrap();
        assert_eq!((access.status, access.method.as_str(), access.path.as_str()), (200, "POST", "/api/chat"));
        assert_eq!(access.latency, Duration::from_nanos(5_054_276_458));
        assert_eq!(access.client, "127.0.0.1");
        assert_eq!(access.began(), Wall::from_unix_ms(1_787_363_302_000 - 5_054));
    }

    #[test]
    fn every_form_of_latency_is_read() {
        for (text, milliseconds) in [("120.452µs", 0), ("42.044125ms", 42), ("1m22s", 82_000), ("1h2m3s", 3_723_000)] {
            let line = format!("[GIN] 2026/08/22 - 01:48:22 | 503 | {text:>13} | 127.0.0.1 | GET      \"/api/ps\"");
            assert_eq!(Access::parse(&line, &utc()).unwrap().latency.as_millis(), milliseconds, "{text}");
        }
    }

    #[test]
    fn colours_of_a_terminal_are_taken_off() {
        let line = "[GIN] 2026/08/22 - 01:48:22 |\u{1b}[97;42m 200 \u{1b}[0m|      77.205µs |             ::1 |\u{1b}[97;44m GET      \u{1b}[0m \"/\"";
        assert_eq!(Access::parse(line, &utc()).unwrap().status, 200);
    }

    #[test]
    fn other_lines_are_no_requests() {
        for line in [
            "[GIN-debug] GET / --> x",
            "[GIN] ",
            "[GIN] 2026/08/22 - 01:48:22 | 200 | x | y | GET \"/\"",
            "[GIN] 2026/08/22 - 01:48:22 | 200 | 5s | 127.0.0.1 | GET      \"/cut",
        ] {
            assert_eq!(Access::parse(line, &utc()), None, "{line}");
        }
    }

    fn utc() -> Zone {
        Zone::new(jiff::tz::TimeZone::UTC)
    }
}
