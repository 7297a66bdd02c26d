//! A look at a runner in the terms of the rules.

use super::{HealthAnswer, Look, NoAnswer, Slot};
use stablehand_engine::Known;
use stablehand_engine::stall::evidence::{Health, SlotSeen};

/// What a runner's own port tells of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunnerEvidence {
    /// Its HTTP side.
    pub health: Health,
    /// Its slots.
    pub slots: Known<Vec<SlotSeen>>,
    /// Batches decoded so far; unknown as soon as the runner rounds it.
    pub decode_total: Known<u64>,
}

/// Puts a look into the terms of the rules. `prompt_tokens_total` gives the total of the prompt of a task in a slot,
/// when somebody knows it (the log, a gateway); the runner does not tell it.
pub fn evidence(look: &Look, prompt_tokens_total: impl Fn(u32, u64) -> Option<u64>) -> RunnerEvidence {
    let health = match &look.health {
        HealthAnswer::Ok => Health::Ok,
        HealthAnswer::Loading => Health::Loading,
        HealthAnswer::Silent => Health::Silent,
        // A closed port is no silence: nobody was there to be silent.
        HealthAnswer::Refused | HealthAnswer::Strange(_) => Health::Unknown,
    };
    let decode_total = match &look.metrics {
        Ok(metrics) => metrics.exact_decode_total(),
        Err(reason) => Known::unknown(reason.to_string()),
    };
    RunnerEvidence { health, slots: slots_seen(&look.slots, prompt_tokens_total), decode_total }
}

/// The slots alone. One slot whose progress cannot be told makes all of them unknown: its runner could not be cleared
/// by it.
pub fn slots_seen(
    slots: &Result<Vec<Slot>, NoAnswer>,
    prompt_tokens_total: impl Fn(u32, u64) -> Option<u64>,
) -> Known<Vec<SlotSeen>> {
    let slots = match slots {
        Ok(slots) => slots,
        Err(reason) => return Known::unknown(reason.to_string()),
    };
    let total = |slot: &Slot| slot.task.filter(|_| slot.busy).and_then(|task| prompt_tokens_total(slot.id, task));
    slots.iter().map(|slot| slot.seen(total(slot))).collect::<Result<Vec<_>, _>>().into()
}

#[cfg(test)]
mod tests {
    use super::super::{metrics, slots};
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_whole_look_becomes_evidence() {
        let look = Look {
            health: HealthAnswer::Ok,
            slots: slots::parse(include_bytes!("../../fixtures/runner/slots.newer.json")).map_err(NoAnswer::Strange),
            metrics: metrics::parse(include_bytes!("../../fixtures/runner/metrics.txt")).map_err(NoAnswer::Strange),
        };
        let evidence = evidence(&look, |slot, task| (slot == 1 && task == 311).then_some(47_324));
        assert_eq!((evidence.health, &evidence.decode_total), (Health::Ok, &Known::Is(1093)));
        let totals: Vec<_> = evidence.slots.known().unwrap().iter().map(|slot| slot.prompt_tokens_total).collect();
        assert_eq!(totals, [None, Some(47_324), None, None]);
    }

    #[test]
    fn what_is_not_told_is_unknown_with_the_reason() {
        let silent = NoAnswer::Silent { path: "/slots", deadline: Duration::from_millis(500) };
        let look = Look {
            health: HealthAnswer::Refused,
            slots: Err(silent),
            metrics: Err(NoAnswer::Unsupported { path: "/metrics" }),
        };
        let evidence = evidence(&look, |_, _| None);
        assert_eq!(evidence.health, Health::Unknown);
        assert_eq!(evidence.slots.reason(), Some("the runner did not answer /slots within 500 ms"));
        assert_eq!(evidence.decode_total.reason(), Some("the runner does not offer /metrics"));
    }

    #[test]
    fn one_slot_without_progress_makes_all_unknown() {
        let slots = slots::parse(include_bytes!("../../fixtures/runner/slots.older.json")).map_err(NoAnswer::Strange);
        assert!(slots_seen(&slots, |_, _| None).reason().is_some());
    }
}
