//! What the tray and the process that carries its popover say to each other: one JSON object a line. The tray knows
//! and decides everything; the other one shows and passes on.

use crate::popover::Event;
use serde::{Deserialize, Serialize};
use stablehand_protocol::face::{Answer, Ask, View};

/// What the tray says. The first is a view; the popover is there to be seen from its start. The end of these lines is
/// its own end.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "order", rename_all = "kebab-case")]
pub enum Order {
    /// Show it again.
    Show,
    /// Hide it.
    Hide,
    /// What there is to show.
    View {
        /// It.
        view: Box<View>,
    },
    /// The answer to a question of the page.
    Answer {
        /// The question's.
        number: u64,
        /// It.
        answer: Box<Answer>,
    },
}

/// What the popover says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "word", rename_all = "kebab-case")]
pub enum Word {
    /// The page asks.
    Ask {
        /// Counted by the asker.
        number: u64,
        /// What.
        ask: Ask,
    },
    /// The window lost the focus.
    Blurred,
    /// The window was closed by the desktop.
    Closed,
}

impl Word {
    /// What happened to a window, where the tray is to know of it.
    pub fn of(event: Event) -> Option<Self> {
        match event {
            Event::Blurred => Some(Self::Blurred),
            Event::Closed => Some(Self::Closed),
            Event::Clicked | Event::Wanted | Event::Elapsed | Event::Gone => None,
        }
    }
}

/// As a line. These values have no keys that are no text, so that it cannot fail; were it otherwise, nothing is said.
pub fn line(said: &impl Serialize) -> Vec<u8> {
    let mut line = serde_json::to_vec(said).unwrap_or_default();
    line.push(b'\n');
    line
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::face::testing::{live, snapshot};
    use stablehand_protocol::{Failure, Request};

    #[test]
    fn every_word_survives_the_way_as_one_line() {
        let words = [
            Word::Ask { number: 7, ask: Ask::Request { request: Request::Verify } },
            Word::Ask { number: u64::MAX, ask: Ask::History { since_s: 3600, points: 60 } },
            Word::Blurred,
            Word::Closed,
        ];
        for word in words {
            let line = line(&word);
            assert_eq!(line.iter().filter(|byte| **byte == b'\n').count(), 1);
            assert_eq!(serde_json::from_slice::<Word>(&line).unwrap(), word);
        }
    }

    #[test]
    fn every_order_survives_the_way_as_one_line() {
        let mut view = live(snapshot());
        view.failures.push(Failure::new("x", "two\nlines \u{2028}<script>", "한글 😀"));
        let view = Box::new(view);
        let orders = [
            Order::Show,
            Order::Hide,
            Order::View { view: view.clone() },
            Order::Answer { number: 7, answer: Box::new(Answer::View { view }) },
            Order::Answer { number: 8, answer: Box::new(Answer::Done) },
        ];
        for order in orders {
            let line = line(&order);
            assert_eq!(line.iter().filter(|byte| **byte == b'\n').count(), 1);
            assert_eq!(serde_json::from_slice::<Order>(&line).unwrap(), order);
        }
    }
}
