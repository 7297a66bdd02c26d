//! How the server reads its variables (`ollama envconfig/config.go`). These rules are mirrored, not improved: what the
//! server would ignore is ignored here too, so that a value can be judged before the server sees it.

use crate::go_duration::GoDuration;

/// The text the server works with: surrounding white space taken away, then quotes of either kind at both ends, as
/// often as they stand there (`Var`).
pub fn stripped(raw: &str) -> &str {
    raw.trim().trim_matches(['"', '\''])
}

/// `strconv.ParseUint(text, 10, 64)`: digits alone; no sign, no underscore, no exponent.
pub fn unsigned(text: &str) -> Option<u64> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if digits { text.parse().ok() } else { None }
}

/// A signed whole number, as `strconv.ParseInt(text, 10, 64)` reads it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signed {
    /// Within range.
    Is(i64),
    /// A number, but beyond range; Go gives the nearest one it has, with an error.
    Beyond(i64),
    /// No number.
    None,
}

/// Reads a signed whole number.
pub fn signed(text: &str) -> Signed {
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Signed::None;
    }
    match text.parse() {
        Ok(value) => Signed::Is(value),
        Err(_) => Signed::Beyond(if text.starts_with('-') { i64::MIN } else { i64::MAX }),
    }
}

/// `strconv.ParseBool`: these twelve words and no other.
pub fn boolean(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Some(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Some(false),
        _ => None,
    }
}

/// What the server makes of a yes-or-no variable: **any other word counts as true** (`BoolWithDefault`).
pub fn truth(raw: &str, default: bool) -> bool {
    match stripped(raw) {
        "" => default,
        text => boolean(text).unwrap_or(true),
    }
}

/// What the server makes of a count: anything but digits is the default (`Uint`, `Uint64`). No range is applied.
pub fn count(raw: &str, default: u64) -> u64 {
    unsigned(stripped(raw)).unwrap_or(default)
}

/// A duration as the settings take it: Go's form, or whole seconds. `None` when the server would use its default.
pub fn duration(text: &str) -> Option<GoDuration> {
    text.parse().ok().or_else(|| match signed(text) {
        Signed::Is(seconds) => Some(GoDuration::from_seconds_wrapping(seconds)),
        Signed::Beyond(_) | Signed::None => None,
    })
}

/// Both duration settings default to five minutes.
pub const DEFAULT_DURATION: GoDuration = GoDuration::from_seconds_wrapping(300);

/// `KeepAlive`: a negative value means for ever.
pub fn keep_alive(raw: &str) -> GoDuration {
    let duration = duration(stripped(raw)).unwrap_or(DEFAULT_DURATION);
    if duration.nanoseconds < 0 { GoDuration::MAX } else { duration }
}

/// `LoadTimeout`: zero and negative values mean for ever.
pub fn load_timeout(raw: &str) -> GoDuration {
    let duration = duration(stripped(raw)).unwrap_or(DEFAULT_DURATION);
    if duration.nanoseconds <= 0 { GoDuration::MAX } else { duration }
}

/// `LogLevel`: true is DEBUG, a whole number n is four levels down per step, everything else INFO. As Go's `slog` shows
/// it (`DEBUG-4` for 2).
pub fn level(raw: &str) -> String {
    let text = stripped(raw);
    let level = if boolean(text) == Some(true) {
        -4
    } else {
        match signed(text) {
            Signed::Is(steps) | Signed::Beyond(steps) => steps.wrapping_mul(-4),
            Signed::None => 0,
        }
    };
    let (name, base) = match level {
        ..0 => ("DEBUG", -4),
        0..4 => ("INFO", 0),
        4..8 => ("WARN", 4),
        8.. => ("ERROR", 8),
    };
    match level.wrapping_sub(base) {
        0 => name.to_owned(),
        above => format!("{name}{above:+}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_and_spaces_around_a_value_do_not_count() {
        for raw in ["4", " 4 ", "'4'", "\"4\"", "\"'4'\"", "4'", "\t4\n", "\u{a0}4\u{85}"] {
            assert_eq!(stripped(raw), "4", "{raw:?}");
        }
        assert_eq!(stripped("' 4 '"), " 4 ");
    }

    #[test]
    fn counts_are_digits_or_the_default() {
        let expected = [
            ("0", 0),
            ("04", 4),
            ("8", 8),
            ("'4'", 4),
            ("", 1),
            ("abc", 1),
            ("-1", 1),
            ("+4", 1),
            ("4.0", 1),
            ("1e3", 1),
            ("4 5", 1),
            ("0x4", 1),
            ("1_000", 1),
            ("' 4 '", 1),
            ("٤", 1),
            ("18446744073709551615", u64::MAX),
            ("18446744073709551616", 1),
        ];
        for (raw, value) in expected {
            assert_eq!(count(raw, 1), value, "{raw:?}");
        }
    }

    #[test]
    fn every_word_but_six_is_true() {
        for raw in ["1", "t", "true", "off", "no", "yes", "fAlse", "auto", "2"] {
            assert!(truth(raw, false), "{raw}");
        }
        for raw in ["0", "f", "F", "false", "FALSE", "False", "'0'"] {
            assert!(!truth(raw, true), "{raw}");
        }
        assert!(truth("", true));
        assert!(!truth(" ", false));
    }

    #[test]
    fn durations_take_seconds_too_and_wrap_as_the_server_does() {
        for (raw, shown) in [
            ("10m", "10m0s"),
            ("300", "5m0s"),
            ("0", "0s"),
            ("bogus", "5m0s"),
            ("1d", "5m0s"),
            ("10 m", "5m0s"),
            ("1e3", "5m0s"),
            ("2562048h", "5m0s"),
            ("  15m ", "15m0s"),
            ("-1", "2562047h47m16.854775807s"),
            ("-1m", "2562047h47m16.854775807s"),
            ("9223372036", "2562047h47m16s"),
            ("9223372037", "2562047h47m16.854775807s"),
            ("99999999999", "2157299h53m50.45224192s"),
            ("", "5m0s"),
        ] {
            assert_eq!(keep_alive(raw).to_string(), shown, "{raw:?}");
        }
        for (raw, shown) in [
            ("0", "2562047h47m16.854775807s"),
            ("0s", "2562047h47m16.854775807s"),
            ("-1", "2562047h47m16.854775807s"),
            ("30", "30s"),
            ("10m", "10m0s"),
            ("bogus", "5m0s"),
        ] {
            assert_eq!(load_timeout(raw).to_string(), shown, "{raw:?}");
        }
    }

    #[test]
    fn levels_are_named_as_slog_names_them() {
        for (raw, shown) in [
            ("", "INFO"),
            ("1", "DEBUG"),
            ("true", "DEBUG"),
            ("T", "DEBUG"),
            ("2", "DEBUG-4"),
            ("3", "DEBUG-8"),
            ("0", "INFO"),
            ("false", "INFO"),
            ("on", "INFO"),
            ("1.5", "INFO"),
            ("-1", "WARN"),
            ("-2", "ERROR"),
            ("-3", "ERROR+4"),
            ("9223372036854775808", "WARN"),
        ] {
            assert_eq!(level(raw), shown, "{raw:?}");
        }
    }
}
