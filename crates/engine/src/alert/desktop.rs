//! Which alerts reach the desktop: none in quiet hours, and one when they end if something is still wrong.

use super::{Alert, AlertKind};
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

/// Minutes of a day.
const DAY: u16 = 24 * 60;

/// A minute of the day in local time, 0 to 1439.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct MinuteOfDay(u16);

impl MinuteOfDay {
    /// Of an hour and a minute; `None` when there is no such time of day.
    pub fn new(hour: u16, minute: u16) -> Option<Self> {
        (hour < 24 && minute < 60).then_some(Self(hour * 60 + minute))
    }
}

impl fmt::Display for MinuteOfDay {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:02}:{:02}", self.0 / 60, self.0 % 60)
    }
}

/// A span of every day, in local time: from a minute on, to before another. It may go over midnight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuietHours {
    from: MinuteOfDay,
    to: MinuteOfDay,
}

/// A text that means no quiet hours.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoQuietHours {
    /// It is not written like `22:00-07:00`.
    #[error("quiet takes two times of day, \"22:00-07:00\"")]
    Form,
    /// It begins when it ends, which could mean the whole day or nothing.
    #[error("quiet begins and ends at {0}; leave it out to have no quiet hours")]
    Empty(MinuteOfDay),
}

impl QuietHours {
    /// Whether this minute is a quiet one.
    pub fn hold_at(self, minute: MinuteOfDay) -> bool {
        let since = |from: MinuteOfDay, to: MinuteOfDay| (to.0 + DAY - from.0) % DAY;
        since(self.from, minute) < since(self.from, self.to)
    }
}

impl FromStr for QuietHours {
    type Err = NoQuietHours;

    fn from_str(text: &str) -> Result<Self, NoQuietHours> {
        let (from, to) = text.split_once('-').ok_or(NoQuietHours::Form)?;
        let (from, to) = (minute(from).ok_or(NoQuietHours::Form)?, minute(to).ok_or(NoQuietHours::Form)?);
        if from == to { Err(NoQuietHours::Empty(from)) } else { Ok(Self { from, to }) }
    }
}

impl fmt::Display for QuietHours {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}-{}", self.from, self.to)
    }
}

fn minute(text: &str) -> Option<MinuteOfDay> {
    let (hour, minute) = text.trim().split_once(':')?;
    let number = |text: &str| text.bytes().all(|digit| digit.is_ascii_digit()).then(|| text.parse().ok()).flatten();
    MinuteOfDay::new(number(hour)?, number(minute).filter(|_| minute.len() == 2)?)
}

/// What is kept back for the end of the quiet hours: the last alert of each kind.
#[derive(Debug, Default)]
pub struct Desktop {
    kept: BTreeMap<AlertKind, Alert>,
}

impl Desktop {
    /// An alert that is news. Returns it when it is to be shown now.
    pub fn tell(&mut self, quiet: bool, alert: Alert) -> Option<Alert> {
        if quiet {
            self.kept.insert(alert.kind, alert);
            return None;
        }
        self.kept.remove(&alert.kind);
        Some(alert)
    }

    /// To be asked again and again. Returns, once after the quiet hours, what is still wrong then as one alert; what
    /// has passed meanwhile is not worth a notification any more.
    pub fn due(&mut self, quiet: bool, stands: impl Fn(AlertKind) -> bool) -> Option<Alert> {
        if quiet {
            return None;
        }
        let mut standing: Vec<Alert> =
            std::mem::take(&mut self.kept).into_values().filter(|alert| stands(alert.kind)).collect();
        match standing.len() {
            0 => None,
            1 => standing.pop(),
            count => {
                let messages: Vec<_> = standing.into_iter().map(|alert| alert.message).collect();
                let message = format!("{count} things are wrong since the quiet hours: {}", messages.join("; "));
                Some(Alert::new(AlertKind::SinceQuiet, message, "stablehand status"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hours_over_midnight_hold_on_both_sides_of_it() {
        let night: QuietHours = "22:00-07:00".parse().unwrap();
        let day: QuietHours = "9:30-17:00".parse().unwrap();
        let quiet = |hours: QuietHours, hour, minute| hours.hold_at(MinuteOfDay::new(hour, minute).unwrap());
        for (hour, minute, at_night, by_day) in [
            (21, 59, false, false),
            (22, 0, true, false),
            (0, 0, true, false),
            (6, 59, true, false),
            (7, 0, false, false),
            (9, 30, false, true),
            (16, 59, false, true),
            (17, 0, false, false),
        ] {
            assert_eq!((quiet(night, hour, minute), quiet(day, hour, minute)), (at_night, by_day), "{hour}:{minute}");
        }
        assert_eq!(day.to_string(), "09:30-17:00");
    }

    #[test]
    fn what_means_no_hours_is_refused() {
        for text in
            ["", "22:00", "22-7", "24:00-07:00", "22:60-07:00", "22:0-07:00", "+2:00-07:00", "a-b", "1:00-2:00-3"]
        {
            assert_eq!(text.parse::<QuietHours>(), Err(NoQuietHours::Form), "{text:?}");
        }
        assert!(matches!("07:00-7:00".parse::<QuietHours>(), Err(NoQuietHours::Empty(_))));
    }

    #[test]
    fn by_day_every_alert_is_shown_and_nothing_is_owed() {
        let mut desktop = Desktop::default();
        assert_eq!(desktop.tell(false, drift("a")), Some(drift("a")));
        assert_eq!(desktop.due(false, |_| true), None);
    }

    #[test]
    fn in_quiet_hours_nothing_is_shown_and_what_stands_at_their_end_is_shown_once() {
        let mut desktop = Desktop::default();
        assert_eq!(desktop.tell(true, drift("a")), None);
        assert_eq!(desktop.tell(true, drift("b")), None);
        assert_eq!(desktop.due(true, |_| true), None);
        assert_eq!(desktop.due(false, |_| true), Some(drift("b")), "one alert is shown as it is, with its own action");
        assert_eq!(desktop.due(false, |_| true), None);
    }

    #[test]
    fn what_has_passed_by_the_end_is_not_shown() {
        let mut desktop = Desktop::default();
        desktop.tell(true, drift("a"));
        assert_eq!(desktop.due(false, |_| false), None);
        assert_eq!(desktop.due(false, |_| true), None, "it was forgotten");
    }

    #[test]
    fn several_are_shown_as_one_with_one_action() {
        let mut desktop = Desktop::default();
        desktop.tell(true, drift("a drifts"));
        desktop.tell(true, Alert::new(AlertKind::Stall("hung"), "b hangs".to_owned(), "stablehand why"));
        desktop.tell(true, Alert::new(AlertKind::LoginRace, "c".to_owned(), "stablehand status"));
        let shown = desktop.due(false, |kind| kind != AlertKind::LoginRace).unwrap();
        assert_eq!(shown.message, "2 things are wrong since the quiet hours: a drifts; b hangs");
        assert_eq!((shown.kind, shown.action.as_ref()), (AlertKind::SinceQuiet, "stablehand status"));
    }

    fn drift(message: &str) -> Alert {
        Alert::new(AlertKind::Drift, message.to_owned(), "stablehand apply")
    }
}
