//! Which model goes next.
//!
//! A model in memory has a seat; there are [`Limits::loaded_models`](super::Limits::loaded_models) of them. Models
//! with permits never number more than the seats, so the server is never made to unload a model that works. While
//! nobody waits for a model without a seat, those with seats go on as they like. Otherwise the first such model, the
//! *contender*, takes a free seat or that of an idle model; and when there is none, one seat *yields*: it admits
//! nothing more and is taken when its running requests have ended. A seat yields
//! - when its model has been in memory, with somebody contending, for [`Limits::affinity`](super::Limits::affinity);
//! - sooner, when the contender is asked for in a higher lane than the seat's model, and that has been in memory for
//!   as long as the switch costs.

use super::machine::{Admission, Model};
use super::{Effect, Lane};
use crate::time::Awake;
use std::cmp::Reverse;
use std::time::Duration;

/// The lane of this model whose turn it is: the one that was passed over the longest beyond the allowed time, else
/// the best one.
pub(super) fn next_lane(model: &Model, ageing: Duration, now: Awake) -> Option<Lane> {
    let since = |lane: &Lane| model.lanes[*lane as usize].passed_over_since;
    let overdue = |lane: &Lane| since(lane).is_some_and(|since| now.since(since) >= ageing);
    Lane::ALL.into_iter().filter(overdue).min_by_key(since).or_else(|| model.best_lane())
}

/// What may be done next.
enum Next {
    /// Admit a request of a model that has a seat.
    Seated(usize),
    /// Admit a request of a model that takes a free seat, or another one's.
    Takes(usize, Option<usize>),
    /// Nothing; an idle model may give way at this moment.
    Nothing(Option<Awake>),
}

impl Admission {
    /// Admits as long as anything may be admitted.
    pub(super) fn settle(&mut self, now: Awake, effects: &mut Vec<Effect>) {
        self.lingers_until = None;
        if self.is_all_held() {
            self.contended_since = None;
            return;
        }
        loop {
            match self.next(now) {
                Next::Seated(model) => self.admit(now, model, None, effects),
                Next::Takes(model, from) => self.admit(now, model, from, effects),
                Next::Nothing(lingers_until) => {
                    self.lingers_until = lingers_until;
                    return;
                }
            }
        }
    }

    fn next(&mut self, now: Awake) -> Next {
        if self.asking.is_empty() {
            self.contended_since = None;
            return Next::Nothing(None);
        }
        let seats = self.limits.loaded_models.max(1);
        let busy = self.models.iter().filter(|(_, model)| model.is_busy()).count();
        let all_busy = busy >= seats;

        let contends = |number: &usize| {
            let model = &self.models[*number];
            !model.is_busy() && (all_busy || !model.is_in_memory())
        };
        let contender = self.first(now, contends);
        self.contended_since = contender.map(|_| self.contended_since.unwrap_or(now));
        let free = self.models.iter().filter(|(_, model)| model.is_in_memory()).count() < seats;
        let idle = if all_busy || free { None } else { self.idle_seat() };
        let yields = match contender {
            Some(contender) if idle.is_none() && !free => self.yielding(contender, all_busy, now),
            Some(_) | None => None,
        };

        let goes_on = |number: &usize| {
            let model = &self.models[*number];
            model.is_in_memory() && Some(*number) != yields && (model.is_busy() || !all_busy)
        };
        if let Some(model) = self.first(now, goes_on) {
            return Next::Seated(model);
        }
        let Some(contender) = contender.filter(|_| !all_busy) else { return Next::Nothing(None) };
        if free {
            return Next::Takes(contender, None);
        }
        match (idle, yields) {
            (Some(idle), _) => match self.lingers(contender, idle, now) {
                Some(until) => Next::Nothing(Some(until)),
                None => Next::Takes(contender, Some(idle)),
            },
            (None, Some(yields)) if !self.models[yields].is_busy() => Next::Takes(contender, Some(yields)),
            (None, Some(_) | None) => Next::Nothing(None),
        }
    }

    /// The first model among those that could use a slot now and for which this holds.
    fn first(&self, now: Awake, holds: impl Fn(&usize) -> bool) -> Option<usize> {
        let candidates = self.asking.iter().copied().filter(|number| self.could_run(*number) && holds(number));
        candidates.min_by_key(|number| self.rank(*number, now))
    }

    /// Whether a slot of this model is free for us.
    fn could_run(&self, number: usize) -> bool {
        let model = &self.models[number];
        model.holds == 0 && model.running < self.at_most(number)
    }

    /// Models that have waited for long enough come first, the longest first; then the best lane counts.
    fn rank(&self, number: usize, now: Awake) -> (Option<Lane>, Option<Awake>) {
        let model = &self.models[number];
        let aged = model.passed_over_since.is_some_and(|since| now.since(since) >= self.limits.ageing);
        (if aged { None } else { model.best_lane() }, model.passed_over_since)
    }

    /// Requests of ours that may run for this model at once.
    pub(super) fn at_most(&self, number: usize) -> u32 {
        let model = &self.models[number];
        let slots = model.slots.unwrap_or(self.limits.slots_while_unknown);
        let set = self.limits.of_model(&self.models.name(number)).running.unwrap_or(u32::MAX);
        slots.min(set).saturating_sub(model.around)
    }

    /// The model in memory that has been without work for the longest, with nobody to use it now.
    fn idle_seat(&self) -> Option<usize> {
        let idle = |number: &usize| {
            let model = &self.models[*number];
            model.is_in_memory() && !model.is_busy() && !(self.asking.contains(number) && self.could_run(*number))
        };
        let numbers = self.models.iter().map(|(number, _)| number).filter(idle);
        numbers.min_by_key(|number| self.models[*number].answered)
    }

    /// The seat that shall become free for the contender, if its time has come.
    fn yielding(&self, contender: usize, all_busy: bool, now: Awake) -> Option<usize> {
        let seated = self.models.iter().filter(|(number, model)| {
            *number != contender && if all_busy { model.is_busy() } else { model.is_in_memory() }
        });
        let seated: Vec<(usize, &Model)> = seated.collect();
        let over = seated.iter().filter(|(_, model)| self.contended_for(model, now) >= self.limits.affinity);
        // What goes around cannot be made to end, so it comes last.
        if let Some((number, _)) = over.min_by_key(|(_, model)| (model.around, model.seated_since)) {
            return Some(*number);
        }
        let wanted = self.models[contender].best_lane()?;
        let cost = self.models[contender].load.get().unwrap_or_default();
        let lower = seated.iter().filter(|(_, model)| {
            model.best_lane().is_some_and(|lane| lane > wanted)
                && !self.is_loading(model)
                && now.since(model.seated_since) >= cost
        });
        lower.max_by_key(|(_, model)| (model.best_lane(), Reverse(model.seated_since))).map(|(number, _)| *number)
    }

    /// How long this model has been in memory while another one was asked for.
    pub(super) fn contended_for(&self, model: &Model, now: Awake) -> Duration {
        match self.contended_since {
            Some(since) if !self.is_loading(model) => now.since(since.max(model.seated_since)),
            Some(_) | None => Duration::ZERO,
        }
    }

    fn is_loading(&self, model: &Model) -> bool {
        matches!(model.memory, super::machine::Memory::Loading { .. })
    }

    /// Until when an idle model is kept although another one is asked for: a conversation's next request often comes
    /// within moments, and waiting for it costs a fraction of the two switches that it saves.
    fn lingers(&self, contender: usize, idle: usize, now: Awake) -> Option<Awake> {
        let cost = self.models[contender].load.get()?;
        let model = &self.models[idle];
        let until = model.answered? + self.limits.linger.min(cost / 4);
        let kept = now < until && self.contended_for(model, now) < self.limits.affinity && model.holds == 0;
        kept.then_some(until)
    }
}
