//! When a turn can be expected, from measured service times. Estimates, not promises: they tell somebody who would
//! give up before its turn at once, and a person what to expect.

use super::machine::{Admission, Request};
use super::turns::Turns;
use crate::time::Awake;
use std::time::Duration;

impl Admission {
    /// For the request that came last, without looking at each of those ahead. `None` when no request of its model
    /// was measured, or while it is held.
    pub(super) fn expected_at_arrival(&self, now: Awake, request: Request) -> Option<Duration> {
        let model = &self.models[request.model];
        let turns = &model.lanes[request.lane as usize];
        let each = model.service.get()?;
        let of_client = turns.waiting_of(request.client).saturating_sub(1);
        let of_others = turns.waiting().saturating_sub(of_client + 1);
        // No other client gets more in the meantime than this one, its debt and a quantum.
        let lead = turns.debt(request.client).saturating_add(self.limits.quantum);
        let fair = each.saturating_mul(count(of_client)).saturating_add(lead);
        let other_clients = count(turns.waiting_clients().saturating_sub(1));
        let others = each.saturating_mul(count(of_others)).min(fair.saturating_mul(other_clients));
        let above: usize = model.lanes.iter().take(request.lane as usize).map(Turns::waiting).sum();
        let ahead = each.saturating_mul(count(of_client + above)).saturating_add(others);
        self.expected(now, request.model, ahead)
    }

    /// When a request of this model can go that has so much service of its model before it.
    pub(super) fn expected(&self, now: Awake, number: usize, ahead: Duration) -> Option<Duration> {
        let model = &self.models[number];
        let each = model.service.get()?;
        if self.is_all_held() || model.holds > 0 {
            return None;
        }
        let slots = self.at_most(number).max(1);
        // Slots that work are on average half through.
        let current = if model.running >= slots { each / 2 } else { Duration::ZERO };
        let own = (ahead + current) / slots;

        let others = count(self.seats.count_asked_for() - usize::from(model.standing.asked_for.is_some()));
        let seats = count(self.limits.loaded_models).max(1);
        let in_memory = model.is_in_memory();
        let load = model.load.get().or(self.load.get()).unwrap_or_default();
        if others == 0 || others < seats && in_memory {
            return Some(if in_memory { own } else { own.saturating_add(load) });
        }
        // Models take turns: each that is asked for has its own time in memory between two of this one.
        let affinity = self.limits.affinity;
        let began = if in_memory { self.contended_for(model, now).min(affinity) } else { affinity };
        let length = if affinity.is_zero() { each } else { affinity };
        let turns = own.saturating_add(began).as_nanos() / length.as_nanos().max(1);
        let turns = u32::try_from(turns).unwrap_or(u32::MAX).saturating_mul(others);
        let of_others = self.service.get().unwrap_or(each).saturating_mul(count(self.waiting - model.waiting()));
        let loads = self.load.get().unwrap_or_default().saturating_mul(turns);
        let between = of_others.min(length.saturating_mul(turns)).saturating_add(loads);
        Some(own.saturating_add(if in_memory { Duration::ZERO } else { load }).saturating_add(between / seats))
    }
}

fn count(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}
