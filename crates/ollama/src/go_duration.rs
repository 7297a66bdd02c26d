//! Durations as Go writes and reads them (`10m0s`, `1.5h`, `120.452µs`): the server's config line and its access lines
//! carry them, and its settings are read by the same rules (`time.ParseDuration`, `time.Duration.String`).

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// A Go duration: nanoseconds that may be negative.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GoDuration {
    /// Nanoseconds.
    pub nanoseconds: i64,
}

/// Why a text is no Go duration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoDuration {
    /// Nothing there.
    #[error("a duration cannot be empty")]
    Empty,
    /// Something other than numbers with units.
    #[error("a duration is numbers with units, like 10m or 1h30m: {0:?}")]
    Form(String),
    /// A number without its unit.
    #[error("a unit (ns, us, ms, s, m, h) is missing: {0:?}")]
    UnitMissing(String),
    /// A unit that Go does not know, such as `d`.
    #[error("the units are ns, us, ms, s, m and h: {0:?}")]
    UnitUnknown(String),
    /// Beyond 292 years.
    #[error("a duration cannot be longer than 292 years: {0:?}")]
    TooLong(String),
}

const SECOND: u64 = 1_000_000_000;
/// One more than the largest duration: what may be reached on the way to the smallest one.
const LIMIT: u64 = 1 << 63;

impl GoDuration {
    /// What the server shows for "never" (`math.MaxInt64`): `2562047h47m16.854775807s`.
    pub const MAX: Self = Self { nanoseconds: i64::MAX };

    /// A duration of whole seconds, wrapping as the server's own multiplication does (`time.Duration(n) * time.Second`).
    pub const fn from_seconds_wrapping(seconds: i64) -> Self {
        Self { nanoseconds: seconds.wrapping_mul(1_000_000_000) }
    }

    /// As a span of time; `None` when negative.
    pub fn to_span(self) -> Option<Duration> {
        u64::try_from(self.nanoseconds).ok().map(Duration::from_nanos)
    }
}

impl FromStr for GoDuration {
    type Err = NoDuration;

    fn from_str(text: &str) -> Result<Self, NoDuration> {
        let form = || NoDuration::Form(text.to_owned());
        let too_long = || NoDuration::TooLong(text.to_owned());
        let negative = text.starts_with('-');
        let mut rest = text.strip_prefix(['-', '+']).unwrap_or(text);
        if rest == "0" {
            return Ok(Self { nanoseconds: 0 });
        }
        if rest.is_empty() {
            return Err(if text.is_empty() { NoDuration::Empty } else { form() });
        }
        let mut total: u64 = 0;
        while !rest.is_empty() {
            let (whole, after) = digits(rest);
            let (fraction, after) = after.strip_prefix('.').map_or(("", after), digits);
            if whole.is_empty() && fraction.is_empty() {
                return Err(form());
            }
            let unit_ends = after.find(|symbol: char| symbol == '.' || symbol.is_ascii_digit()).unwrap_or(after.len());
            let (unit, after) = after.split_at(unit_ends);
            if unit.is_empty() {
                return Err(NoDuration::UnitMissing(text.to_owned()));
            }
            let unit = unit_nanoseconds(unit).ok_or_else(|| NoDuration::UnitUnknown(text.to_owned()))?;
            let whole = if whole.is_empty() { 0 } else { whole.parse::<u64>().map_err(|_| too_long())? };
            let sum = whole
                .checked_mul(unit)
                .and_then(|nanoseconds| nanoseconds.checked_add(part_of(fraction, unit)))
                .and_then(|nanoseconds| nanoseconds.checked_add(total))
                .filter(|sum| *sum <= LIMIT);
            total = sum.ok_or_else(too_long)?;
            rest = after;
        }
        let nanoseconds = if negative { 0_i64.checked_sub_unsigned(total) } else { i64::try_from(total).ok() };
        nanoseconds.map(|nanoseconds| Self { nanoseconds }).ok_or_else(too_long)
    }
}

impl fmt::Display for GoDuration {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let magnitude = self.nanoseconds.unsigned_abs();
        if magnitude == 0 {
            return out.write_str("0s");
        }
        if self.nanoseconds < 0 {
            out.write_str("-")?;
        }
        if magnitude < SECOND {
            let (unit, name) = match magnitude {
                0..1_000 => (1, "ns"),
                1_000..1_000_000 => (1_000, "µs"),
                _ => (1_000_000, "ms"),
            };
            return write!(out, "{}{name}", Decimal { value: magnitude, unit });
        }
        let seconds = magnitude / SECOND;
        let (hours, minutes) = (seconds / 3600, seconds / 60 % 60);
        if hours > 0 {
            write!(out, "{hours}h")?;
        }
        if hours > 0 || minutes > 0 {
            write!(out, "{minutes}m")?;
        }
        write!(out, "{}s", Decimal { value: magnitude % (60 * SECOND), unit: SECOND })
    }
}

/// `value / unit` with as many decimals as it takes and no trailing zero; `unit` is a power of ten.
struct Decimal {
    value: u64,
    unit: u64,
}

impl fmt::Display for Decimal {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, part) = (self.value / self.unit, self.value % self.unit);
        if part == 0 {
            return write!(out, "{whole}");
        }
        let width = self.unit.ilog10() as usize;
        let decimals = format!("{part:0width$}");
        write!(out, "{whole}.{}", decimals.trim_end_matches('0'))
    }
}

fn digits(text: &str) -> (&str, &str) {
    text.split_at(text.find(|symbol: char| !symbol.is_ascii_digit()).unwrap_or(text.len()))
}

fn unit_nanoseconds(unit: &str) -> Option<u64> {
    // Both the micro sign and the Greek letter are read.
    Some(match unit {
        "ns" => 1,
        "us" | "\u{b5}s" | "\u{3bc}s" => 1_000,
        "ms" => 1_000_000,
        "s" => SECOND,
        "m" => 60 * SECOND,
        "h" => 3600 * SECOND,
        _ => return None,
    })
}

/// The decimals of a number in nanoseconds, cut off as Go does. Decimals beyond eighteen are below any unit's reach.
fn part_of(fraction: &str, unit: u64) -> u64 {
    let shown = &fraction[..fraction.len().min(18)];
    let Ok(value) = shown.parse::<u128>() else { return 0 };
    let scale = 10_u128.pow(u32::try_from(shown.len()).unwrap_or(0));
    u64::try_from(value * u128::from(unit) / scale).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn durations_read_and_shown_as_the_server_does() {
        for (read, shown) in [
            ("10m", "10m0s"),
            ("1h30m", "1h30m0s"),
            ("1.5h", "1h30m0s"),
            ("24h", "24h0m0s"),
            ("0", "0s"),
            ("-0", "0s"),
            ("0s", "0s"),
            (".5s", "500ms"),
            ("5.s", "5s"),
            ("-1m", "-1m0s"),
            ("+90s", "1m30s"),
            ("120.452µs", "120.452µs"),
            ("120.452\u{3bc}s", "120.452µs"),
            ("42.044125ms", "42.044125ms"),
            ("5.054276458s", "5.054276458s"),
            ("1ns", "1ns"),
            ("1h2m3s", "1h2m3s"),
            ("1m1h", "1h1m0s"),
            ("2562047h47m16.854775807s", "2562047h47m16.854775807s"),
            ("-2562047h47m16.854775808s", "-2562047h47m16.854775808s"),
        ] {
            assert_eq!(read.parse::<GoDuration>().unwrap().to_string(), shown, "{read}");
        }
    }

    #[test]
    fn what_go_refuses_is_refused() {
        for text in [
            "",
            "-",
            ".",
            "s",
            ".s",
            "1",
            "300",
            "1d",
            "10 m",
            "10M",
            "1e3",
            "bogus",
            "1h ",
            " 1h",
            "1h-5m",
            "2562048h",
            "9223372036854775808ns",
            "2562047h47m16.854775808s",
            "99999999999999999999s",
        ] {
            assert!(text.parse::<GoDuration>().is_err(), "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn every_duration_survives_being_shown_and_read(nanoseconds in any::<i64>()) {
            let duration = GoDuration { nanoseconds };
            prop_assert_eq!(duration.to_string().parse::<GoDuration>(), Ok(duration));
        }

        #[test]
        fn no_text_makes_the_reader_panic(text in "[-+0-9.a-zµ ]{0,40}") {
            let _ = text.parse::<GoDuration>();
        }
    }
}
