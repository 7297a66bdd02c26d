//! What the daemon tells the gateway of the server: slots as the runners really have them, what is in memory, the
//! bounds that are in force, and what goes around the gateway; and the costs that a gateway before it has measured.
//!
//! The gateway goes on with what it last knew, so nothing here is waited for.

use super::link::Link;
use crate::control::{Latest, Looker};
use stablehand_protocol::queue::{ModelCosts, QueueView, Upstream, UpstreamModel};
use stablehand_protocol::{Known, Snapshot};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use tokio::sync::watch;

/// It is told again after this, so that a gateway that has just started knows soon.
const AGAIN: Duration = Duration::from_secs(5);

/// Tells for as long as the daemon runs.
pub async fn run(mut latest: Latest, lookers: watch::Sender<u32>, link: Link) {
    let mut memory = Memory::default();
    let mut looks_on = None;
    loop {
        if let Ok(Err(_)) = tokio::time::timeout(AGAIN, latest.changed()).await {
            return;
        }
        let snapshot = latest.borrow_and_update().clone();
        let Some(snapshot) = snapshot else { continue };
        let Ok(view) = link.queue().await else {
            memory.forget_the_gateway();
            looks_on = None;
            continue;
        };
        // While requests wait, what goes around them matters, and it changes quickly.
        let wanted = !view.waiting.is_empty();
        if wanted != looks_on.is_some() {
            looks_on = wanted.then(|| Looker::new(&lookers));
        }
        let upstream = memory.upstream(&snapshot, &view);
        if let Err(error) = link.tell(&upstream).await {
            tracing::debug!(%error, "the gateway does not know what is known of the server");
        }
    }
}

/// What is remembered between two times.
#[derive(Debug, Default)]
struct Memory {
    /// What models cost, as a gateway has measured.
    costs: BTreeMap<String, ModelCosts>,
    /// The gateway that runs has been told them.
    knows_costs: bool,
    /// When the runners were last looked at.
    looked: String,
    /// Busy slots beyond our own then, and whose requests ran, by model.
    beyond: BTreeMap<String, (u32, BTreeSet<u64>)>,
    /// What goes around, as it was last told.
    around: BTreeMap<String, u32>,
}

impl Memory {
    fn forget_the_gateway(&mut self) {
        self.knows_costs = false;
        self.beyond.clear();
        self.around.clear();
    }

    fn upstream(&mut self, snapshot: &Snapshot, view: &QueueView) -> Upstream {
        self.look_around(snapshot, view);
        let mut models: BTreeMap<String, UpstreamModel> = BTreeMap::new();
        let unknown = |model: &str| UpstreamModel { model: model.to_owned(), slots: None, around_busy: 0, costs: None };
        for runner in &snapshot.runners {
            if let (Known::Is(model), Known::Is(slots)) = (&runner.model, &runner.slots) {
                let around_busy = self.around.get(model).copied().unwrap_or(0);
                let told = UpstreamModel { slots: Some(*slots), around_busy, ..unknown(model) };
                models.insert(model.clone(), told);
            }
        }
        if self.knows_costs {
            for model in &view.models {
                if model.service_ms.is_some() || model.load_ms.is_some() {
                    let costs = ModelCosts { service_ms: model.service_ms, load_ms: model.load_ms };
                    self.costs.insert(model.model.clone(), costs);
                }
            }
        } else {
            for (model, costs) in &self.costs {
                models.entry(model.clone()).or_insert_with(|| unknown(model)).costs = Some(*costs);
            }
            self.knows_costs = true;
        }
        let loaded = loaded(snapshot);
        Upstream {
            address: None,
            loaded_models: loaded_models(snapshot, loaded.as_deref()),
            waiting: number(snapshot, "OLLAMA_MAX_QUEUE").filter(|most| *most > 0),
            origins: effective(snapshot, "OLLAMA_ORIGINS").map(origins),
            loaded,
            models: models.into_values().collect(),
        }
    }

    /// Counts what goes around. A slot that was busy while none of ours ran may have been ours a moment before, so it
    /// counts only when two looks one after the other say so, and the same of ours ran at both.
    fn look_around(&mut self, snapshot: &Snapshot, view: &QueueView) {
        let Some(watched) = snapshot.watched.as_ref().filter(|watched| watched.at != self.looked) else { return };
        self.looked.clone_from(&watched.at);
        let before = std::mem::take(&mut self.beyond);
        self.around.clear();
        for runner in &watched.runners {
            let (Known::Is(model), Known::Is(busy)) = (&runner.model, &runner.slots_busy) else { continue };
            let ours: BTreeSet<u64> =
                view.running.iter().filter(|request| request.model == *model).map(|request| request.id).collect();
            let beyond = busy.saturating_sub(u32::try_from(ours.len()).unwrap_or(u32::MAX));
            if let Some((earlier, same)) = before.get(model)
                && *same == ours
                && beyond.min(*earlier) > 0
            {
                self.around.insert(model.clone(), beyond.min(*earlier));
            }
            self.beyond.insert(model.clone(), (beyond, ours));
        }
    }
}

/// Which models are in memory; nothing while one of them is not known.
fn loaded(snapshot: &Snapshot) -> Option<Vec<String>> {
    let watched = snapshot.watched.as_ref()?;
    let mut models = Vec::new();
    for runner in &watched.runners {
        match (&runner.listed_until, &runner.model) {
            (Known::Is(Some(_)), Known::Is(model)) => models.push(model.clone()),
            (Known::Is(None), _) => {}
            (Known::Unknown { .. }, _) | (Known::Is(Some(_)), Known::Unknown { .. }) => return None,
        }
    }
    Some(models)
}

/// How many models may be in memory at once: as set, or else as many as have been seen to fit.
fn loaded_models(snapshot: &Snapshot, loaded: Option<&[String]>) -> Option<u64> {
    let set = number(snapshot, "OLLAMA_MAX_LOADED_MODELS").filter(|most| *most > 0);
    set.or_else(|| loaded.map(|models| models.len().max(1) as u64))
}

fn number(snapshot: &Snapshot, name: &str) -> Option<u64> {
    effective(snapshot, name)?.trim().parse().ok()
}

fn effective<'a>(snapshot: &'a Snapshot, name: &str) -> Option<&'a str> {
    let setting = snapshot.settings.iter().find(|setting| setting.name == name)?;
    setting.effective.known().map(String::as_str)
}

/// As the environment has them (commas between them) or the log line (blanks, in brackets).
fn origins(text: &str) -> Vec<String> {
    let text = text.trim().trim_start_matches('[').trim_end_matches(']');
    text.split([',', ' ']).filter(|origin| !origin.is_empty()).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a daemon and a gateway would say, as far as it matters here.
    fn said(at: &str, busy: u32, running: &[u64]) -> (Snapshot, QueueView) {
        let snapshot = serde_json::json!({
            "daemon_version": "0.1.0", "simulated": null, "work": null, "alerts": [], "notes": [],
            "server": {
                "state": "up", "since": "", "words": "", "version": "0.33.0", "owner": "app", "owner_detail": null,
                "rivals": [], "pid": 1, "started": "", "address": "127.0.0.1:11435", "serving": true
            },
            "config": { "path": "", "failure": null },
            "settings": [setting("OLLAMA_MAX_QUEUE", "10"), setting("OLLAMA_MAX_LOADED_MODELS", "0"),
                setting("OLLAMA_ORIGINS", "[http://localhost https://good.example]")],
            "runners": [{ "pid": 2, "kind": "llama-server", "model": "m:1b", "slots": 2 }],
            "watched": {
                "at": at, "server": null, "tokens": [], "recovery": { "policy": "alert" },
                "memory": serde_json::to_value(memory()).unwrap(),
                "queue": { "at_least": 0, "at_most": 0, "clients": [] }, "log": { "unknown": "none" },
                "runners": [{
                    "pid": 2, "model": "m:1b", "kind": "llama-server", "judged": null, "slots": 2, "slots_busy": busy,
                    "footprint_bytes": 1, "cpu_s": 1, "listed_until": "2026-11-30T16:00:00Z"
                }]
            }
        });
        let running: Vec<_> = running
            .iter()
            .map(|id| {
                serde_json::json!({ "id": id, "model": "m:1b", "client": "c", "lane": "agent", "path": "/api/chat",
                    "waited_ms": 0, "running_ms": 1 })
            })
            .collect();
        let view = serde_json::json!({
            "at": "", "version": "0.1.0", "phase": "open", "listen": [], "upstream": "", "holds": [], "waiting": [],
            "waiting_at_most": 512, "running": running, "switches": 0, "bodies_bytes": 0, "missing": [],
            "models": [{ "model": "m:1b", "loaded": true, "at_most": 2, "running": 0, "around": 0, "waiting": 0,
                "service_ms": 5000 }]
        });
        (serde_json::from_value(snapshot).unwrap(), serde_json::from_value(view).unwrap())
    }

    fn setting(name: &str, value: &str) -> serde_json::Value {
        serde_json::json!({
            "name": name, "desired": null, "persisted": null, "session": null, "effective": value, "proof": [],
            "default": "", "standing": "not-managed", "drift": [], "meaning": "", "allowed": "", "caution": ""
        })
    }

    fn memory() -> stablehand_protocol::Memory {
        let unknown = serde_json::json!({ "unknown": "not looked at" });
        let names = [
            "total_bytes",
            "used_bytes",
            "wired_bytes",
            "compressed_bytes",
            "swap_total_bytes",
            "swap_used_bytes",
            "swap_in_bytes_per_s",
            "swap_out_bytes_per_s",
            "pressure_level",
            "gpu_limit_bytes",
            "gpu_used_bytes",
            "gpu_percent",
            "throttled",
        ];
        let fields: serde_json::Map<_, _> = names.iter().map(|name| ((*name).to_owned(), unknown.clone())).collect();
        serde_json::from_value(fields.into()).unwrap()
    }

    #[test]
    fn what_is_in_force_is_told() {
        let (snapshot, view) = said("1", 0, &[]);
        let told = Memory::default().upstream(&snapshot, &view);
        assert_eq!((told.waiting, told.loaded_models), (Some(10), Some(1)), "0 is automatic: as many as were seen");
        assert_eq!(told.loaded.as_deref(), Some(&["m:1b".to_owned()][..]));
        assert_eq!(told.models[0].slots, Some(2));
        assert_eq!(told.origins.unwrap(), ["http://localhost", "https://good.example"]);
    }

    #[test]
    fn a_busy_slot_that_may_just_have_been_ours_does_not_count() {
        let mut memory = Memory::default();
        let mut around = |at: &str, busy, running: &[u64]| {
            let (snapshot, view) = said(at, busy, running);
            memory.upstream(&snapshot, &view).models[0].around_busy
        };
        assert_eq!(around("1", 1, &[1]), 0, "that is ours");
        assert_eq!(around("2", 1, &[]), 0, "it has just ended");
        assert_eq!(around("3", 2, &[2]), 0, "something else, perhaps");
        assert_eq!(around("3", 2, &[2]), 0, "the same look says nothing new");
        assert_eq!(around("4", 2, &[2]), 1, "it is there again, and so is ours");
        assert_eq!(around("5", 1, &[2]), 0, "gone");
    }

    #[test]
    fn a_new_gateway_is_told_what_the_one_before_has_measured() {
        let mut memory = Memory::default();
        let (snapshot, view) = said("1", 0, &[]);
        assert_eq!(memory.upstream(&snapshot, &view).models[0].costs, None);
        memory.upstream(&snapshot, &view);
        memory.forget_the_gateway();
        let costs = memory.upstream(&snapshot, &view).models[0].costs;
        assert_eq!(costs.map(|costs| costs.service_ms), Some(Some(5_000)));
        assert_eq!(memory.upstream(&snapshot, &view).models[0].costs, None, "once");
    }
}
