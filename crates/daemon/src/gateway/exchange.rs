//! What the daemon and the gateway tell each other of models: the gateway is told what runners really have and what goes
//! around it, and tells exactly who waits and who runs.

use super::link::Link;
use crate::looking::Seen;
use stablehand_engine::loaded::same_model;
use stablehand_engine::process::{RunnerArgs, RunnerKind};
use stablehand_engine::stall::evidence::{RunnerSeen, Waiting};
use stablehand_engine::takeover::Door;
use stablehand_protocol::queue::{ModelCosts, QueueView, Upstream, UpstreamModel};
use std::collections::{BTreeMap, BTreeSet};
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

/// What is remembered between two looks, so that the gateway is told the truth of both.
#[derive(Debug, Default)]
pub struct Exchange {
    /// The gateway that it was exchanged with.
    gateway: Option<u32>,
    /// What models cost, as a gateway has measured.
    costs: BTreeMap<String, ModelCosts>,
    /// Busy slots beyond its own at the last look, and whose requests ran then, by model.
    beyond: BTreeMap<String, (u32, BTreeSet<u64>)>,
}

impl Exchange {
    /// What the gateway is told of the server's models.
    pub fn facts(
        &mut self,
        queue: &QueueView,
        runners: &[RunnerFacts],
        loaded: Option<Vec<String>>,
        seen: &Seen,
    ) -> Upstream {
        let another = self.gateway != seen.front.gateway;
        self.gateway = seen.front.gateway;
        let (known, beyond) = self.taken_in(queue, runners, another);
        let models = runners.iter().map(|runner| UpstreamModel {
            model: runner.model.clone(),
            slots: runner.slots,
            around_busy: beyond.get(&runner.model).copied().unwrap_or(0),
            costs: known.iter().find(|(model, _)| same_model(model, &runner.model)).map(|(_, costs)| *costs),
        });
        let most_loaded = setting(seen, "OLLAMA_MAX_LOADED_MODELS").and_then(above_zero);
        // Automatic is as many as fit: at least those that do.
        let fit = || loaded.as_ref().map(|models| models.len().max(1) as u64);
        Upstream {
            address: None,
            models: models.collect(),
            loaded_models: most_loaded.or_else(fit),
            waiting: setting(seen, "OLLAMA_MAX_QUEUE").and_then(above_zero),
            origins: setting(seen, "OLLAMA_ORIGINS").map(|value| origins(&value)),
            loaded,
        }
    }

    /// The costs that a new gateway is told, and what goes around it by model. A slot that is busy without a permit may
    /// have had one a moment before, so it counts only when two looks say so and the same permits were held at both.
    fn taken_in(
        &mut self,
        queue: &QueueView,
        runners: &[RunnerFacts],
        another: bool,
    ) -> (BTreeMap<String, ModelCosts>, BTreeMap<String, u32>) {
        let known = if another { self.costs.clone() } else { BTreeMap::new() };
        let measured = queue.models.iter().filter(|model| model.service_ms.is_some() || model.load_ms.is_some());
        for model in measured {
            let costs = ModelCosts { service_ms: model.service_ms, load_ms: model.load_ms };
            self.costs.insert(model.model.clone(), costs);
        }
        let before = std::mem::take(&mut self.beyond);
        let mut goes_around = BTreeMap::new();
        for runner in runners {
            let permits = queue.running.iter().filter(|request| same_model(&request.model, &runner.model));
            let permits: BTreeSet<u64> = permits.map(|request| request.id).collect();
            let beyond = around(queue, &runner.model, runner.busy);
            if let Some((earlier, same)) = before.get(&runner.model)
                && !another
                && *same == permits
            {
                goes_around.insert(runner.model.clone(), beyond.min(*earlier));
            }
            self.beyond.insert(runner.model.clone(), (beyond, permits));
        }
        (known, goes_around)
    }
}

fn above_zero(value: String) -> Option<u64> {
    value.trim().parse().ok().filter(|number| *number > 0)
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
    use stablehand_protocol::queue::{QueueModel, RunningRequest, WaitingRequest};

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
    fn a_busy_slot_that_may_just_have_been_of_the_gateway_does_not_count() {
        let mut exchange = Exchange::default();
        let mut told = |ids: &[u64], busy| {
            let mut queue = queue(&vec!["m:latest"; ids.len()], 0);
            for (request, id) in queue.running.iter_mut().zip(ids) {
                request.id = *id;
            }
            let runner = RunnerFacts { model: "m".to_owned(), slots: Some(2), busy };
            exchange.taken_in(&queue, &[runner], false).1.get("m").copied().unwrap_or(0)
        };
        assert_eq!(told(&[1], 1), 0, "that is its own");
        assert_eq!(told(&[], 1), 0, "it has just ended");
        assert_eq!(told(&[2], 2), 0, "something else, perhaps");
        assert_eq!(told(&[2], 2), 1, "it is there again, and so is its own");
        assert_eq!(told(&[2], 1), 0, "gone");
    }

    #[test]
    fn a_new_gateway_is_told_once_what_the_one_before_has_measured() {
        let mut exchange = Exchange::default();
        let mut measured = queue(&[], 0);
        measured.models.push(QueueModel {
            model: "m:latest".to_owned(),
            loaded: true,
            slots: Some(1),
            at_most: 1,
            running: 0,
            around: 0,
            waiting: 0,
            service_ms: Some(5_000),
            load_ms: None,
        });
        assert!(exchange.taken_in(&measured, &[], true).0.is_empty());
        let told = exchange.taken_in(&queue(&[], 0), &[], true).0;
        assert_eq!(told["m:latest"].service_ms, Some(5_000));
        assert!(exchange.taken_in(&measured, &[], false).0.is_empty());
    }

    #[test]
    fn origins_are_read_as_go_prints_them_and_as_they_are_written() {
        assert_eq!(origins("[http://localhost app://*]"), ["http://localhost", "app://*"]);
        assert_eq!(origins("https://a.example,https://b.example"), ["https://a.example", "https://b.example"]);
        assert!(origins("").is_empty());
    }
}
