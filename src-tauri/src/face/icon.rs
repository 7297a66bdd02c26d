//! The state as a shape: it is told apart without colour, in 18 points.

use stablehand_protocol::face::{Link, View};
use stablehand_protocol::{Judged, Known, Snapshot};

/// What the icon looks like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Nothing to do.
    Well,
    /// Requests are being worked on.
    Busy,
    /// A person should look.
    Warning,
    /// A runner or the server hangs.
    Stalled,
    /// The server is on its way up or down.
    Restarting,
    /// There is no server, or nobody who could tell.
    NoServer,
}

/// The words of verdicts that mean that requests hang (docs/api.md).
const HANGING: [&str; 6] =
    ["hung", "dead-but-listed", "stuck-unloading", "server-silent", "scheduler-blocked", "server-corrupt"];
/// From here on macOS calls the memory pressure a warning.
const PRESSURE_WARNING: u32 = 2;

/// The shape of this view.
pub fn icon(view: &View) -> Shape {
    match &view.link {
        Link::Connecting | Link::Absent => Shape::NoServer,
        Link::Reconnecting { .. } | Link::OtherVersion { .. } => Shape::Warning,
        Link::Live { snapshot } => match of_snapshot(snapshot) {
            // What a person has not read yet, and a pause that may be forgotten, is shown unless the server's own state
            // is worse.
            Shape::Well | Shape::Busy if !view.failures.is_empty() || is_paused(view) => Shape::Warning,
            shape @ (Shape::Well
            | Shape::Busy
            | Shape::Warning
            | Shape::Stalled
            | Shape::Restarting
            | Shape::NoServer) => shape,
        },
    }
}

/// Whether a person has paused the gateway's queue.
pub fn is_paused(view: &View) -> bool {
    let Some(Known::Is(queue)) = &view.queue else { return false };
    queue.holds.iter().any(|hold| hold.why == "paused")
}

fn of_snapshot(snapshot: &Snapshot) -> Shape {
    match snapshot.server.state.as_str() {
        "down" | "gave-up" => Shape::NoServer,
        "silent" => Shape::Stalled,
        "coming-up" | "planning" | "preparing" | "stopping" | "starting" | "proving" | "upgrading" => Shape::Restarting,
        "looking" | "up" => of_serving(snapshot),
        // `blocked`, and words of a newer daemon.
        _ => Shape::Warning,
    }
}

fn of_serving(snapshot: &Snapshot) -> Shape {
    if hanging(snapshot).is_some() {
        Shape::Stalled
    } else if judgements(snapshot).any(|judged| judged.trouble)
        || drifts(snapshot)
        || under_pressure(snapshot)
        || gateway_fails(snapshot)
    {
        Shape::Warning
    } else if is_busy(snapshot) {
        Shape::Busy
    } else {
        Shape::Well
    }
}

/// Whoever hangs: a model, or `None` inside for the server itself.
pub fn hanging(snapshot: &Snapshot) -> Option<Option<String>> {
    let hangs = |judged: &Judged| judged.trouble && HANGING.contains(&judged.verdict.as_str());
    let watched = snapshot.watched.as_ref()?;
    if watched.server.as_ref().is_some_and(hangs) {
        return Some(None);
    }
    let runner = watched.runners.iter().find(|runner| runner.judged.as_ref().is_some_and(hangs))?;
    Some(Some(match &runner.model {
        Known::Is(model) => model.clone(),
        Known::Unknown { .. } => runner.pid.to_string(),
    }))
}

/// Whether a setting that is wanted is not in force.
pub fn drifts(snapshot: &Snapshot) -> bool {
    snapshot.settings.iter().any(|setting| setting.standing == "drift")
}

/// Whether the gateway is not where it is wished, or nothing comes through it there.
pub fn gateway_fails(snapshot: &Snapshot) -> bool {
    let Some(gateway) = &snapshot.gateway else { return false };
    gateway.aside.is_some() || (gateway.healthy == Known::Is(false) && gateway.state != "changing")
}

fn under_pressure(snapshot: &Snapshot) -> bool {
    let Some(watched) = &snapshot.watched else { return false };
    matches!(watched.memory.pressure_level, Known::Is(level) if level >= PRESSURE_WARNING)
}

fn is_busy(snapshot: &Snapshot) -> bool {
    let Some(watched) = &snapshot.watched else { return false };
    watched.runners.iter().any(|runner| matches!(runner.slots_busy, Known::Is(busy) if busy > 0))
        || matches!(watched.queue.at_least, Known::Is(waiting) if waiting > 0)
}

fn judgements(snapshot: &Snapshot) -> impl Iterator<Item = &Judged> {
    snapshot.watched.iter().flat_map(|watched| {
        watched.server.iter().chain(watched.runners.iter().filter_map(|runner| runner.judged.as_ref()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::face::testing::{gateway, judged, live, queue, runner, snapshot, view, watched};
    use stablehand_protocol::{Failure, Gateway};

    #[test]
    fn every_state_of_the_server_has_its_shape() {
        for (state, shape) in [
            ("looking", Shape::Well),
            ("down", Shape::NoServer),
            ("coming-up", Shape::Restarting),
            ("up", Shape::Well),
            ("silent", Shape::Stalled),
            ("blocked", Shape::Warning),
            ("planning", Shape::Restarting),
            ("preparing", Shape::Restarting),
            ("stopping", Shape::Restarting),
            ("starting", Shape::Restarting),
            ("proving", Shape::Restarting),
            ("upgrading", Shape::Restarting),
            ("gave-up", Shape::NoServer),
            ("a-word-of-tomorrow", Shape::Warning),
        ] {
            let mut snapshot = snapshot();
            snapshot.server.state = state.to_owned();
            assert_eq!(icon(&live(snapshot)), shape, "{state}");
        }
    }

    #[test]
    fn work_is_busy_trouble_is_a_warning_and_a_hang_is_stalled() {
        let shape = |verdict: &str, trouble: bool, busy: u32| {
            let mut snapshot = snapshot();
            snapshot.watched = Some(watched(vec![runner("m:1b", busy, Some(judged(verdict, trouble)))]));
            icon(&live(snapshot))
        };
        assert_eq!(shape("idle", false, 0), Shape::Well);
        assert_eq!(shape("prefill", false, 1), Shape::Busy);
        assert_eq!(shape("slow", true, 1), Shape::Warning);
        assert_eq!(shape("hung", true, 1), Shape::Stalled);
        // Suspected alone is nothing to alarm anybody about.
        assert_eq!(shape("suspect", false, 1), Shape::Busy);
    }

    #[test]
    fn what_is_not_known_is_no_work_and_no_trouble() {
        let mut snapshot = snapshot();
        let mut seen = watched(vec![runner("m:1b", 0, None)]);
        seen.runners[0].slots_busy = Known::unknown("it does not say");
        snapshot.watched = Some(seen);
        assert_eq!(icon(&live(snapshot)), Shape::Well);
    }

    #[test]
    fn an_unread_failure_shows_but_never_hides_something_worse() {
        let mut seen = live(snapshot());
        seen.failures.push(Failure::new("x", "y", "z"));
        assert_eq!(icon(&seen), Shape::Warning);
        let mut down = snapshot();
        down.server.state = "down".to_owned();
        let mut seen = live(down);
        seen.failures.push(Failure::new("x", "y", "z"));
        assert_eq!(icon(&seen), Shape::NoServer);
    }

    #[test]
    fn a_pause_that_may_be_forgotten_shows_and_other_holds_end_by_themselves() {
        for (holds, shape) in [(&["paused"][..], Shape::Warning), (&["restart"][..], Shape::Well)] {
            let mut seen = live(snapshot());
            seen.queue = Some(Known::Is(Box::new(queue(2, holds))));
            assert_eq!(icon(&seen), shape, "{holds:?}");
        }
        let mut unknown = live(snapshot());
        unknown.queue = Some(Known::unknown("it is silent"));
        assert_eq!(icon(&unknown), Shape::Well);
    }

    #[test]
    fn a_gateway_that_is_of_no_use_is_a_warning_and_one_on_its_way_is_not() {
        let shape = |state: &str, healthy: bool, aside: bool| {
            let mut snapshot = snapshot();
            snapshot.gateway = Some(Gateway {
                healthy: Known::Is(healthy),
                aside: aside.then(|| Failure::new("x", "y", "z")),
                ..gateway("takeover", state)
            });
            icon(&live(snapshot))
        };
        assert_eq!(shape("in-place", true, false), Shape::Well);
        assert_eq!(shape("in-place", false, false), Shape::Warning);
        assert_eq!(shape("changing", false, false), Shape::Well);
        assert_eq!(shape("aside", true, true), Shape::Warning);
    }

    #[test]
    fn without_a_daemon_nothing_is_claimed_to_be_well() {
        assert_eq!(icon(&view(Link::Connecting)), Shape::NoServer);
        assert_eq!(icon(&view(Link::Absent)), Shape::NoServer);
        let failure = Failure::new("x", "y", "z");
        let link = Link::Reconnecting { since: String::new(), snapshot: Some(Box::new(snapshot())), failure };
        assert_eq!(icon(&view(link)), Shape::Warning);
    }
}
