//! How points in time and durations are written by the programs of a world.

use std::time::Duration;

use jiff::Timestamp;
use jiff::tz::TimeZone;

/// `2026-08-21T18:48:22.123-07:00`, as Go's `slog` text handler writes it
/// (`Z` in place of a zero offset).
pub fn slog(unix_ms: i64) -> String {
    zoned(unix_ms, "%Y-%m-%dT%H:%M:%S%.3f%:z", true)
}

/// `2026-08-21T18:48:22.123000000-07:00`, as JSON answers carry it.
pub fn rfc3339_nanos(unix_ms: i64) -> String {
    zoned(unix_ms, "%Y-%m-%dT%H:%M:%S%.9f%:z", true)
}

/// `2026-08-22T01:48:22.123Z`.
pub fn rfc3339_utc(unix_ms: i64) -> String {
    timestamp(unix_ms).strftime("%Y-%m-%dT%H:%M:%S%.3fZ").to_string()
}

/// `2026/08/21 - 18:48:22`, as gin's access log writes it.
pub fn gin(unix_ms: i64) -> String {
    zoned(unix_ms, "%Y/%m/%d - %H:%M:%S", false)
}

/// `2025/02/26 21:37:33`, as Go's plain logger writes it.
pub fn go_plain(unix_ms: i64) -> String {
    zoned(unix_ms, "%Y/%m/%d %H:%M:%S", false)
}

/// `Thu Oct  1 09:05:07 2026`, as `ps -o lstart` and `ctime` write it.
pub fn ctime(unix_ms: i64) -> String {
    zoned(unix_ms, "%a %b %e %H:%M:%S %Y", false)
}

/// `2026-08-21T18:48:22-0700`, as `journalctl -o short-iso` writes it.
pub fn short_iso(unix_ms: i64) -> String {
    zoned(unix_ms, "%Y-%m-%dT%H:%M:%S%z", false)
}

/// `Fri 2026-08-21 18:48:22 PDT`, as `systemctl show` writes it.
pub fn systemd(unix_ms: i64) -> String {
    zoned(unix_ms, "%a %Y-%m-%d %H:%M:%S %Z", false)
}

/// A world duration as Go's `Duration.String` writes it: `1m22s`, `5.05s`,
/// `42.044125ms`, `120.452µs`.
pub fn go_duration(duration: Duration) -> String {
    let nanos = duration.as_nanos();
    if nanos == 0 {
        return "0s".to_owned();
    }
    if nanos < 1_000 {
        return format!("{nanos}ns");
    }
    if nanos < 1_000_000 {
        return format!("{}µs", decimal(nanos, 1_000));
    }
    if nanos < 1_000_000_000 {
        return format!("{}ms", decimal(nanos, 1_000_000));
    }
    let whole_minutes = duration.as_secs() / 60;
    let seconds = decimal(nanos - u128::from(whole_minutes) * 60_000_000_000, 1_000_000_000);
    let (hours, minutes) = (whole_minutes / 60, whole_minutes % 60);
    if hours > 0 {
        format!("{hours}h{minutes}m{seconds}s")
    } else if minutes > 0 {
        format!("{minutes}m{seconds}s")
    } else {
        format!("{seconds}s")
    }
}

/// A latency as gin shows it: whole seconds above one minute.
pub fn gin_latency(duration: Duration) -> String {
    if duration > Duration::from_secs(60) {
        go_duration(Duration::from_secs(duration.as_secs()))
    } else {
        go_duration(duration)
    }
}

/// Sizes as Ollama's `HumanBytes2` writes them: `48.0 GiB`.
pub fn human_bytes(bytes: u64) -> String {
    const UNITS: [(&str, f64); 4] =
        [("TiB", 1_099_511_627_776.0), ("GiB", 1_073_741_824.0), ("MiB", 1_048_576.0), ("KiB", 1_024.0)];
    for (unit, size) in UNITS {
        if bytes as f64 >= size {
            return format!("{:.1} {unit}", bytes as f64 / size);
        }
    }
    format!("{bytes} B")
}

fn decimal(value: u128, unit: u128) -> String {
    let whole = value / unit;
    let rest = value % unit;
    if rest == 0 {
        return whole.to_string();
    }
    let width = unit.ilog10() as usize;
    let digits = format!("{rest:0width$}");
    format!("{whole}.{}", digits.trim_end_matches('0'))
}

fn timestamp(unix_ms: i64) -> Timestamp {
    Timestamp::from_millisecond(unix_ms).unwrap_or(Timestamp::UNIX_EPOCH)
}

fn zoned(unix_ms: i64, layout: &str, zulu: bool) -> String {
    let text = timestamp(unix_ms).to_zoned(TimeZone::system()).strftime(layout).to_string();
    match text.strip_suffix("+00:00") {
        Some(start) if zulu => format!("{start}Z"),
        Some(_) | None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_look_like_gos() {
        let cases = [
            (0, "0s"),
            (120_452, "120.452µs"),
            (42_044_125, "42.044125ms"),
            (5_054_276_458, "5.054276458s"),
            (82_000_000_000, "1m22s"),
            (300_000_000_000, "5m0s"),
            (3_723_500_000_000, "1h2m3.5s"),
        ];
        for (nanos, text) in cases {
            assert_eq!(go_duration(Duration::from_nanos(nanos)), text);
        }
    }

    #[test]
    fn gin_cuts_latencies_above_a_minute() {
        assert_eq!(gin_latency(Duration::from_millis(82_400)), "1m22s");
        assert_eq!(gin_latency(Duration::from_millis(5_050)), "5.05s");
    }

    #[test]
    fn sizes_look_like_ollamas() {
        assert_eq!(human_bytes(51_539_607_552), "48.0 GiB");
        assert_eq!(human_bytes(536_870_912), "512.0 MiB");
    }

    #[test]
    fn ctime_pads_the_day_with_a_space() {
        let text = ctime(1_790_845_507_000);
        assert_eq!(text.len(), 24);
    }
}
