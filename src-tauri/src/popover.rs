//! The popover's life. It costs a web engine, so it is made at the first click and destroyed a while after it hid.

use std::time::Duration;

/// A hidden popover that nobody asks for is destroyed after this.
pub const KEPT_HIDDEN: Duration = Duration::from_secs(30);
/// The click on the icon takes the focus from the popover first (on macOS 27 about 80 ms before the click arrives);
/// a click so soon after means: close.
const SAME_CLICK: Duration = Duration::from_millis(250);

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The icon was clicked.
    Clicked,
    /// The menu, a notification or a second copy wants it open.
    Wanted,
    /// It lost the focus.
    Blurred,
    /// The page, or the window's own close, wants it hidden.
    Closed,
    /// Time has passed.
    Elapsed,
    /// It could not be made, or is gone.
    Gone,
}

/// What is to be done with the window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// Make and show it.
    Create,
    /// Show it.
    Show,
    /// Hide it, and come back with [`Event::Elapsed`] after [`KEPT_HIDDEN`].
    Hide,
    /// Destroy it.
    Destroy,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Absent,
    Shown,
    Hidden { at: Duration },
}

/// Its state.
#[derive(Clone, Copy, Debug)]
pub struct Popover {
    state: State,
    blurred_at: Option<Duration>,
    /// Without an icon there is no other way back to it.
    stays: bool,
}

impl Popover {
    /// There is none yet.
    pub fn new() -> Self {
        Self { state: State::Absent, blurred_at: None, stays: false }
    }

    /// Whether it stays open when the focus goes elsewhere.
    #[cfg_attr(target_os = "macos", allow(dead_code, reason = "a Mac always shows icons"))]
    pub fn stay(&mut self, stays: bool) {
        self.stays = stays;
    }

    /// Whether a person can see it.
    pub fn is_shown(&self) -> bool {
        self.state == State::Shown
    }

    /// Takes in what happened, and says what to do.
    pub fn step(&mut self, now: Duration, event: Event) -> Option<Act> {
        match (event, self.state) {
            (Event::Clicked, State::Shown) | (Event::Closed, State::Shown) => Some(self.hide(now)),
            (Event::Blurred, State::Shown) if !self.stays => {
                self.blurred_at = Some(now);
                Some(self.hide(now))
            }
            (Event::Clicked, State::Absent | State::Hidden { .. }) if self.was_same_click(now) => None,
            (Event::Clicked | Event::Wanted, State::Absent) => {
                self.state = State::Shown;
                Some(Act::Create)
            }
            (Event::Clicked | Event::Wanted, State::Hidden { .. }) | (Event::Wanted, State::Shown) => {
                self.state = State::Shown;
                Some(Act::Show)
            }
            (Event::Elapsed, State::Hidden { at }) if now.saturating_sub(at) >= KEPT_HIDDEN => {
                self.state = State::Absent;
                Some(Act::Destroy)
            }
            (Event::Gone, State::Shown | State::Hidden { .. } | State::Absent) => {
                self.state = State::Absent;
                None
            }
            (Event::Blurred, State::Shown | State::Absent | State::Hidden { .. })
            | (Event::Closed, State::Absent | State::Hidden { .. })
            | (Event::Elapsed, State::Absent | State::Shown | State::Hidden { .. }) => None,
        }
    }

    fn hide(&mut self, now: Duration) -> Act {
        self.state = State::Hidden { at: now };
        Act::Hide
    }

    fn was_same_click(&mut self, now: Duration) -> bool {
        self.blurred_at.take().is_some_and(|at| now.saturating_sub(at) < SAME_CLICK)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(milliseconds: u64) -> Duration {
        Duration::from_millis(milliseconds)
    }

    fn shown() -> Popover {
        let mut popover = Popover::new();
        assert_eq!(popover.step(ms(0), Event::Clicked), Some(Act::Create));
        popover
    }

    #[test]
    fn it_is_made_once_shown_again_while_it_is_kept_and_destroyed_then() {
        let mut popover = shown();
        assert_eq!(popover.step(ms(1000), Event::Clicked), Some(Act::Hide));
        assert_eq!(popover.step(ms(30_999), Event::Elapsed), None);
        assert_eq!(popover.step(ms(30_999), Event::Clicked), Some(Act::Show));
        assert_eq!(popover.step(ms(31_000), Event::Elapsed), None, "it is open again");
        assert_eq!(popover.step(ms(40_000), Event::Closed), Some(Act::Hide));
        assert_eq!(popover.step(ms(70_000), Event::Elapsed), Some(Act::Destroy));
        assert_eq!(popover.step(ms(70_001), Event::Wanted), Some(Act::Create));
    }

    #[test]
    fn the_click_that_took_the_focus_closes_and_the_next_one_opens() {
        let mut popover = shown();
        assert_eq!(popover.step(ms(5000), Event::Blurred), Some(Act::Hide));
        assert_eq!(popover.step(ms(5080), Event::Clicked), None);
        assert_eq!(popover.step(ms(5200), Event::Clicked), Some(Act::Show));
        assert_eq!(popover.step(ms(6000), Event::Blurred), Some(Act::Hide));
        assert_eq!(popover.step(ms(6250), Event::Clicked), Some(Act::Show));
    }

    #[test]
    fn what_is_wanted_comes_even_right_after_the_focus_was_lost() {
        let mut popover = shown();
        popover.step(ms(5000), Event::Blurred);
        assert_eq!(popover.step(ms(5010), Event::Wanted), Some(Act::Show));
        assert_eq!(popover.step(ms(5020), Event::Wanted), Some(Act::Show), "it is brought to the front");
    }

    #[test]
    fn without_an_icon_it_stays_until_it_is_closed() {
        let mut popover = shown();
        popover.stay(true);
        assert_eq!(popover.step(ms(100), Event::Blurred), None);
        assert!(popover.is_shown());
        assert_eq!(popover.step(ms(200), Event::Closed), Some(Act::Hide));
    }

    #[test]
    fn one_that_could_not_be_made_can_be_tried_again() {
        let mut popover = shown();
        assert_eq!(popover.step(ms(1), Event::Gone), None);
        assert_eq!(popover.step(ms(2), Event::Clicked), Some(Act::Create));
    }
}
