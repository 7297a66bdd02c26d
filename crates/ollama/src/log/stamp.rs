//! The three ways in which a line of the log tells its time.

use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use stablehand_engine::time::Wall;

/// RFC 3339 with an offset: `2026-08-21T18:48:22.123-07:00`.
pub(super) fn rfc3339(text: &str) -> Option<Wall> {
    let stamp: jiff::Timestamp = text.parse().ok()?;
    Some(Wall::from_unix_ms(stamp.as_millisecond()))
}

/// A time of day without an offset, meant in the machine's zone: `2026/08/21 18:48:22`, the two parts apart.
pub(super) fn local(date: &str, time: &str, zone: &TimeZone) -> Option<Wall> {
    let [year, month, day] = three(date, '/')?;
    let [hour, minute, second] = three(time.split('.').next()?, ':')?;
    let small = |value: i16| i8::try_from(value).ok();
    let moment =
        DateTime::new(year, small(month)?, small(day)?, small(hour)?, small(minute)?, small(second)?, 0).ok()?;
    let stamp = moment.to_zoned(zone.clone()).ok()?.timestamp();
    Some(Wall::from_unix_ms(stamp.as_millisecond()))
}

fn three(text: &str, between: char) -> Option<[i16; 3]> {
    let mut parts = text.split(between);
    let mut next = || {
        let part = parts.next()?;
        let digits = !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
        if digits { part.parse().ok() } else { None }
    };
    let three = [next()?, next()?, next()?];
    parts.next().is_none().then_some(three)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_and_zones_lead_to_the_same_instant() {
        let summer = Wall::from_unix_ms(1_787_363_302_000);
        assert_eq!(rfc3339("2026-08-21T18:48:22-07:00"), Some(summer));
        assert_eq!(rfc3339("2026-08-22T01:48:22.000Z"), Some(summer));
        let zone = TimeZone::fixed(jiff::tz::offset(-7));
        assert_eq!(local("2026/08/21", "18:48:22", &zone), Some(summer));
        assert_eq!(rfc3339("2026-08-21T18:48:22.123-07:00"), Some(Wall::from_unix_ms(1_787_363_302_123)));
    }

    #[test]
    fn what_is_no_time_is_none() {
        let zone = TimeZone::UTC;
        for (date, time) in [
            ("2026/13/01", "00:00:00"),
            ("2026/02/30", "00:00:00"),
            ("2026-01-01", "00:00:00"),
            ("", ""),
            ("2026/01/01", "24:00:00"),
            ("2026/01/01", "1:2"),
            ("2026/01/01/01", "00:00:00"),
            ("+026/01/01", "00:00:00"),
        ] {
            assert_eq!(local(date, time, &zone), None, "{date} {time}");
        }
        assert_eq!(rfc3339("yesterday"), None);
    }
}
