//! What stands beside the icon.

use stablehand_protocol::face::{Link, Title, View};
use stablehand_protocol::{Known, Watched};

/// What is said for something that is not known.
const UNKNOWN: &str = "?";

/// The text beside the icon. A simulated machine is always named as one.
pub fn title(view: &View, simulated: bool) -> Option<String> {
    let chosen = match (&view.link, view.choices.title) {
        (_, Title::Off) => None,
        (Link::Live { snapshot }, Title::Memory) => Some(memory(snapshot.watched.as_ref())),
        (Link::Live { snapshot }, Title::Queue) => Some(queue(snapshot.watched.as_ref())),
        (
            Link::Connecting | Link::Reconnecting { .. } | Link::Absent | Link::OtherVersion { .. },
            Title::Memory | Title::Queue,
        ) => Some(UNKNOWN.to_owned()),
    };
    match (simulated, chosen) {
        (false, chosen) => chosen,
        (true, None) => Some("SIMULATED".to_owned()),
        (true, Some(text)) => Some(format!("SIMULATED {text}")),
    }
}

fn memory(watched: Option<&Watched>) -> String {
    match watched.map(|watched| (&watched.memory.used_bytes, &watched.memory.total_bytes)) {
        Some((Known::Is(used), Known::Is(total))) if *total > 0 => {
            format!("{} %", (u128::from(*used) * 100 + u128::from(*total) / 2) / u128::from(*total))
        }
        Some(_) | None => UNKNOWN.to_owned(),
    }
}

fn queue(watched: Option<&Watched>) -> String {
    match watched.map(|watched| (&watched.queue.at_least, &watched.queue.at_most)) {
        Some((Known::Is(least), Known::Is(most))) if least == most => least.to_string(),
        Some((Known::Is(least), Known::Is(most))) => format!("{least}–{most}"),
        Some((Known::Is(least), Known::Unknown { .. })) => format!("≥ {least}"),
        Some((Known::Unknown { .. }, Known::Is(most))) => format!("≤ {most}"),
        Some((Known::Unknown { .. }, Known::Unknown { .. })) | None => UNKNOWN.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::face::testing::{live, snapshot, view, watched};

    fn titled(choice: Title, change: impl FnOnce(&mut Watched)) -> Option<String> {
        let mut snapshot = snapshot();
        let mut seen = watched(vec![]);
        change(&mut seen);
        snapshot.watched = Some(seen);
        let mut view = live(snapshot);
        view.choices.title = choice;
        title(&view, false)
    }

    #[test]
    fn memory_is_percent_and_the_queue_an_interval() {
        let memory = |watched: &mut Watched| {
            watched.memory.used_bytes = Known::Is(48 << 30);
            watched.memory.total_bytes = Known::Is(64 << 30);
        };
        assert_eq!(titled(Title::Memory, memory).as_deref(), Some("75 %"));
        assert_eq!(titled(Title::Off, memory), None);
        let queue = |least, most| {
            titled(Title::Queue, |watched| {
                watched.queue.at_least = least;
                watched.queue.at_most = most;
            })
        };
        assert_eq!(queue(Known::Is(2), Known::Is(2)).as_deref(), Some("2"));
        assert_eq!(queue(Known::Is(1), Known::Is(3)).as_deref(), Some("1–3"));
        assert_eq!(queue(Known::unknown("x"), Known::Is(3)).as_deref(), Some("≤ 3"));
        assert_eq!(queue(Known::unknown("x"), Known::unknown("x")).as_deref(), Some("?"));
    }

    #[test]
    fn what_is_not_known_is_never_a_number_and_a_simulation_always_says_so() {
        let mut absent = view(Link::Absent);
        absent.choices.title = Title::Memory;
        assert_eq!(title(&absent, false).as_deref(), Some("?"));
        assert_eq!(title(&absent, true).as_deref(), Some("SIMULATED ?"));
        assert_eq!(title(&live(snapshot()), true).as_deref(), Some("SIMULATED"));
    }
}
