//! What the daemon and the gateway tell each other of models: the gateway is told what runners really have and what goes
//! around it, and tells exactly who waits and who runs.

use super::link::Link;
use crate::looking::Seen;
use stablehand_engine::loaded::same_model;
use stablehand_engine::process::{RunnerArgs, RunnerKind};
use stablehand_engine::stall::evidence::{RunnerSeen, Waiting};
use stablehand_engine::takeover::Door;
use stablehand_protocol::queue::{QueueView, Upstream, UpstreamModel};
use std::time::Duration;

/// How long the gateway may take to tell its queue, in real time; a look does not wait longer for it.
const PATIENCE: Duration = Duration::from_millis(500);

/// The queue, where a gateway runs that tells it.
pub async fn queue(link: &Link, seen: &Seen) -> Option<QueueView> {
    if seen.front.door == Door::Shut {
        return None;
    }
    let asked = tokio::time::timeout(PATIENCE, link.queue()).await;
    asked.ok().and_then(Result::ok)
}

/// Requests of the gateway that are in a model's runner now.
pub fn tickets(queue: &QueueView, model: &str) -> u32 {
    let running = queue.running.iter().filter(|request| same_model(&request.model, model)).count();
    u32::try_from(running).unwrap_or(u32::MAX)
}

/// How many wait: those in the gateway exactly, and those who ask the server itself as an interval. `around` are
/// connections to the server that are not the gateway's, `busy` the slots that work for them.
pub fn waiting(queue: &QueueView, around: u32, busy: u32) -> Waiting {
    let held = u32::try_from(queue.waiting.len()).unwrap_or(u32::MAX);
    Waiting { at_least: held, at_most: held.saturating_add(around.saturating_sub(busy)) }
}

/// Busy slots of a model that work for nobody in the gateway.
pub fn around(queue: &QueueView, model: &str, busy: u32) -> u32 {
    busy.saturating_sub(tickets(queue, model))
}

/// A runner, as far as it concerns the gateway.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunnerFacts {
    /// Its model.
    pub model: String,
    /// Requests that it takes at once.
    pub slots: Option<u32>,
    /// Slots with a request in them.
    pub busy: u32,
}

impl RunnerFacts {
    /// What is known of a runner; `None` where that is not its model.
    pub fn of(seen: &RunnerSeen, args: &RunnerArgs) -> Option<Self> {
        let busy = seen.slots.known().map_or(0, |slots| slots.iter().filter(|slot| slot.busy).count());
        let slots = match args.kind {
            // Whatever the setting says, it takes one at a time.
            RunnerKind::Mlx => Some(1),
            RunnerKind::LlamaServer | RunnerKind::OllamaRunner => args.slots.known().copied(),
        };
        let model = seen.model.known()?.clone();
        Some(Self { model, slots, busy: u32::try_from(busy).unwrap_or(u32::MAX) })
    }
}

/// What the gateway is told of the server's models.
pub fn facts(queue: &QueueView, runners: &[RunnerFacts], loaded: Option<Vec<String>>, seen: &Seen) -> Upstream {
    let models = runners.iter().map(|runner| UpstreamModel {
        model: runner.model.clone(),
        slots: runner.slots,
        around_busy: around(queue, &runner.model, runner.busy),
        costs: None,
    });
    Upstream {
        address: None,
        loaded,
        models: models.collect(),
        loaded_models: setting(seen, "OLLAMA_MAX_LOADED_MODELS")
            .and_then(|value| value.parse().ok().filter(|n| *n > 0)),
        waiting: setting(seen, "OLLAMA_MAX_QUEUE").and_then(|value| value.parse().ok().filter(|n| *n > 0)),
        origins: setting(seen, "OLLAMA_ORIGINS").map(|value| origins(&value)),
    }
}

/// A value as the running server reports it.
fn setting(seen: &Seen, name: &str) -> Option<String> {
    let report = seen.look.reports.iter().find(|report| report.name.as_str() == name)?;
    report.effective.known().map(|effective| effective.in_force.clone())
}

/// A list as Go prints it, or as the variable takes it.
fn origins(value: &str) -> Vec<String> {
    let listed = value.trim().trim_start_matches('[').trim_end_matches(']');
    listed.split([' ', ',']).map(str::trim).filter(|one| !one.is_empty()).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use stablehand_protocol::queue::{RunningRequest, WaitingRequest};

    fn queue(running: &[&str], waiting: usize) -> QueueView {
        let text = |text: &str| text.to_owned();
        let runs = |model: &&str| RunningRequest {
            id: 1,
            model: text(model),
            client: text("a"),
            lane: text("agent"),
            path: text("/api/chat"),
            waited_ms: 0,
            running_ms: 0,
        };
        let waits = |_| WaitingRequest {
            id: 2,
            model: text("m:latest"),
            client: text("b"),
            lane: text("agent"),
            path: text("/api/chat"),
            waited_ms: 0,
            position: 1,
            expected_ms: None,
        };
        QueueView {
            at: String::new(),
            version: String::new(),
            phase: text("open"),
            listen: vec![],
            upstream: String::new(),
            holds: vec![],
            waiting: (0..waiting).map(waits).collect(),
            waiting_at_most: 512,
            running: running.iter().map(runs).collect(),
            models: vec![],
            switches: 0,
            bodies_bytes: 0,
            missing: vec![],
            config_failure: None,
            simulated: None,
        }
    }

    #[test]
    fn who_waits_in_the_gateway_is_exact_and_who_goes_around_it_an_interval() {
        let two = queue(&["m:latest"], 2);
        assert_eq!(waiting(&two, 0, 0), Waiting { at_least: 2, at_most: 2 });
        assert_eq!(waiting(&two, 3, 1), Waiting { at_least: 2, at_most: 4 });
    }

    #[test]
    fn a_slot_is_busy_around_the_gateway_when_no_permit_of_it_explains_that() {
        let one = queue(&["m:latest", "other:7b"], 0);
        assert_eq!((tickets(&one, "m"), around(&one, "m", 2), around(&one, "m", 0)), (1, 1, 0));
    }

    #[test]
    fn origins_are_read_as_go_prints_them_and_as_they_are_written() {
        assert_eq!(origins("[http://localhost app://*]"), ["http://localhost", "app://*"]);
        assert_eq!(origins("https://a.example,https://b.example"), ["https://a.example", "https://b.example"]);
        assert!(origins("").is_empty());
    }
}
