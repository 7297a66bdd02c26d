//! The three ways in which a line of the log tells its time.
//!
//! Almost every stamp has the one layout that Go writes; it is read digit by digit. Everything else is left to the
//! calendar library.

use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use stablehand_engine::time::Wall;
use std::sync::atomic::{AtomicU64, Ordering};

/// The zone that stamps without an offset are meant in. It remembers its offset of the minute asked last: lines of one
/// minute come by the thousand, and zones change at whole minutes.
#[derive(Debug)]
pub(super) struct Zone {
    zone: TimeZone,
    /// The local minute since 1970 plus one in the upper 40 bits, its offset in seconds plus [`OFFSET_BASE`] in the
    /// lower 24; 0 before the first question.
    remembered: AtomicU64,
}

const OFFSET_BASE: i64 = 1 << 23;

impl Zone {
    pub fn new(zone: TimeZone) -> Self {
        Self { zone, remembered: AtomicU64::new(0) }
    }

    /// Seconds to take off a local time of that minute to have UTC.
    fn offset_s(&self, day: &Day, hour: u32, minute: u32) -> Option<i64> {
        let local_minute = day.since_1970() * 1440 + i64::from(hour * 60 + minute);
        let key = u64::try_from(local_minute).ok().filter(|minute| *minute < 1 << 39)? + 1;
        let remembered = self.remembered.load(Ordering::Relaxed);
        if remembered >> 24 == key {
            return Some(i64::try_from(remembered & 0xff_ffff).ok()? - OFFSET_BASE);
        }
        let small = |value: u32| i8::try_from(value).ok();
        let year = i16::try_from(day.year).ok()?;
        let moment =
            DateTime::new(year, small(day.month)?, small(day.day)?, small(hour)?, small(minute)?, 0, 0).ok()?;
        let utc = moment.to_zoned(self.zone.clone()).ok()?.timestamp().as_second();
        let offset = local_minute * 60 - utc;
        if let Ok(shifted) = u64::try_from(offset + OFFSET_BASE)
            && shifted <= 0xff_ffff
        {
            self.remembered.store(key << 24 | shifted, Ordering::Relaxed);
        }
        Some(offset)
    }
}

impl Clone for Zone {
    fn clone(&self) -> Self {
        Self::new(self.zone.clone())
    }
}

/// RFC 3339 with an offset: `2026-08-21T18:48:22.123-07:00`.
pub(super) fn rfc3339(text: &str) -> Option<Wall> {
    usual(text.as_bytes()).or_else(|| {
        let stamp: jiff::Timestamp = text.parse().ok()?;
        Some(Wall::from_unix_ms(stamp.as_millisecond()))
    })
}

/// A time of day without an offset, meant in the machine's zone: `2026/08/21 18:48:22`, the two parts apart.
pub(super) fn local(date: &str, time: &str, zone: &Zone) -> Option<Wall> {
    let (date, time) = (date.as_bytes(), time.split('.').next()?.as_bytes());
    let ([a, b, c, d, b'/', e, f, b'/', g, h], [i, j, b':', k, l, b':', m, n]) = (date, time) else { return None };
    let day = Day::try_new(two(*a, *b)? * 100 + two(*c, *d)?, two(*e, *f)?, two(*g, *h)?)?;
    let (hour, minute, second) = clock(two(*i, *j)?, two(*k, *l)?, two(*m, *n)?)?;
    let local_s = day.since_1970() * 86_400 + i64::from(hour * 3600 + minute * 60 + second);
    Some(Wall::from_unix_ms((local_s - zone.offset_s(&day, hour, minute)?) * 1000))
}

/// The layout that Go writes, from 1970 on.
fn usual(text: &[u8]) -> Option<Wall> {
    let (head, tail) = text.split_at_checked(19)?;
    let [a, b, c, d, b'-', e, f, b'-', g, h, b'T', i, j, b':', k, l, b':', m, n] = head else { return None };
    let day = Day::try_new(two(*a, *b)? * 100 + two(*c, *d)?, two(*e, *f)?, two(*g, *h)?)?;
    let (hour, minute, second) = clock(two(*i, *j)?, two(*k, *l)?, two(*m, *n)?)?;
    let (fraction, zone) = match tail.strip_prefix(b".") {
        Some(rest) => {
            let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
            rest.split_at_checked(digits).filter(|_| (1..=9).contains(&digits))?
        }
        None => (&[][..], tail),
    };
    let milliseconds = (0..3).fold(0, |sum, at| sum * 10 + i64::from(fraction.get(at).map_or(0, |byte| byte - b'0')));
    let east_s = match zone {
        b"Z" => 0,
        [sign @ (b'+' | b'-'), a, b, b':', c, d] => {
            let (hours, minutes, _) = clock(two(*a, *b)?, two(*c, *d)?, 0)?;
            let span_s = i64::from(hours * 3600 + minutes * 60);
            if *sign == b'-' { -span_s } else { span_s }
        }
        _ => return None,
    };
    let local_s = day.since_1970() * 86_400 + i64::from(hour * 3600 + minute * 60 + second);
    Some(Wall::from_unix_ms((local_s - east_s) * 1000 + milliseconds))
}

fn two(tens: u8, ones: u8) -> Option<u32> {
    (tens.is_ascii_digit() && ones.is_ascii_digit()).then(|| u32::from(tens - b'0') * 10 + u32::from(ones - b'0'))
}

fn clock(hour: u32, minute: u32, second: u32) -> Option<(u32, u32, u32)> {
    (hour < 24 && minute < 60 && second < 60).then_some((hour, minute, second))
}

/// A day of the calendar from 1970 on.
struct Day {
    year: u32,
    month: u32,
    day: u32,
}

impl Day {
    fn try_new(year: u32, month: u32, day: u32) -> Option<Self> {
        const DAYS: [u32; 12] = [31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
        let month_at = usize::try_from(month.checked_sub(1)?).ok()?;
        let days = DAYS.get(month_at)? + u32::from(month == 2 && leap(year));
        (year >= 1970 && (1..=days).contains(&day)).then_some(Self { year, month, day })
    }

    /// Days since 1970-01-01.
    fn since_1970(&self) -> i64 {
        const BEFORE: [u32; 12] = [0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334];
        let past = self.year - 1;
        let leaps = past / 4 - past / 100 + past / 400 - 477;
        let this_year = BEFORE[self.month as usize - 1] + u32::from(self.month > 2 && leap(self.year));
        i64::from((self.year - 1970) * 365 + leaps + this_year + self.day - 1)
    }
}

fn leap(year: u32) -> bool {
    year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_and_zones_lead_to_the_same_instant() {
        let summer = Wall::from_unix_ms(1_787_363_302_000);
        assert_eq!(rfc3339("2026-08-21T18:48:22-07:00"), Some(summer));
        assert_eq!(rfc3339("2026-08-22T01:48:22.000Z"), Some(summer));
        let zone = Zone::new(TimeZone::fixed(jiff::tz::offset(-7)));
        assert_eq!(local("2026/08/21", "18:48:22", &zone), Some(summer));
        assert_eq!(rfc3339("2026-08-21T18:48:22.123-07:00"), Some(Wall::from_unix_ms(1_787_363_302_123)));
    }

    #[test]
    fn what_is_no_time_is_none() {
        let zone = Zone::new(TimeZone::UTC);
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

    #[test]
    fn the_quick_way_agrees_with_the_calendar() {
        for day in (0..60_000).step_by(7) {
            let instant = jiff::Timestamp::from_millisecond(day * 86_400_000 + day * 977 % 86_400_000).unwrap();
            let utc = instant.to_zoned(TimeZone::UTC);
            let text = utc.strftime("%Y-%m-%dT%H:%M:%S.%3fZ").to_string();
            assert_eq!(usual(text.as_bytes()), Some(Wall::from_unix_ms(instant.as_millisecond())), "{text}");
        }
        for odd in ["1969-12-31T23:59:59Z", "2026-02-29T00:00:00Z", "2026-01-01T00:00:60Z", "2026-01-01 00:00:00Z"] {
            assert_eq!(usual(odd.as_bytes()), None, "{odd}");
        }
    }

    #[test]
    fn a_zone_that_changes_is_asked_again() {
        let zone = Zone::new(TimeZone::posix("CET-1CEST,M3.5.0,M10.5.0/3").unwrap());
        for (time, unix_s) in [
            ("00:59:59", 1_774_742_399),
            ("01:59:59", 1_774_745_999),
            ("03:00:00", 1_774_746_000),
            ("03:00:30", 1_774_746_030),
            ("00:59:59", 1_774_742_399),
        ] {
            assert_eq!(local("2026/03/29", time, &zone), Some(Wall::from_unix_ms(unix_s * 1000)), "{time}");
        }
        assert_eq!(local("2026/07/01", "12:00:00", &zone), Some(Wall::from_unix_ms(1_782_900_000_000)));
    }
}
