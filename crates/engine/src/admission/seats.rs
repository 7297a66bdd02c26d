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
use std::collections::BTreeSet;
use std::time::Duration;

/// The lane of this model whose turn it is: the one that was passed over the longest beyond the allowed time, else
/// the best one.
pub(super) fn next_lane(model: &Model, ageing: Duration, now: Awake) -> Option<Lane> {
    let since = |lane: &Lane| model.lanes[*lane as usize].passed_over_since;
    let overdue = |lane: &Lane| since(lane).is_some_and(|since| now.since(since) >= ageing);
    Lane::ALL.into_iter().filter(overdue).min_by_key(since).or_else(|| model.best_lane())
}

/// How a model stands with the seats.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Standing {
    /// It has one.
    pub(super) seated: bool,
    /// The best lane in which somebody may have a turn, and since when nobody has had one.
    pub(super) asked_for: Option<(Lane, Awake)>,
}

/// All models that have a seat or want a turn, so that nobody looks at the others.
#[derive(Clone, Debug, Default)]
pub(super) struct Seats {
    seated: BTreeSet<usize>,
    by_age: BTreeSet<(Awake, usize)>,
    by_lane: BTreeSet<(Lane, Awake, usize)>,
}

impl Seats {
    pub(super) fn change(&mut self, number: usize, from: Standing, to: Standing) {
        if to.seated {
            self.seated.insert(number);
        } else {
            self.seated.remove(&number);
        }
        if from.asked_for == to.asked_for {
            return;
        }
        if let Some((lane, since)) = from.asked_for {
            self.by_age.remove(&(since, number));
            self.by_lane.remove(&(lane, since, number));
        }
        if let Some((lane, since)) = to.asked_for {
            self.by_age.insert((since, number));
            self.by_lane.insert((lane, since, number));
        }
    }

    /// Models for which somebody may have a turn.
    pub(super) fn count_asked_for(&self) -> usize {
        self.by_age.len()
    }

    /// Models for which somebody may have a turn, in the order in which they may take a seat: those that have waited
    /// for this long come first, the longest first; then the best lane counts.
    fn in_turn(&self, ageing: Duration, now: Awake) -> impl Iterator<Item = usize> {
        let is_aged = move |since: Awake| now.since(since) >= ageing;
        let aged = self.by_age.iter().take_while(move |(since, _)| is_aged(*since)).map(|(_, number)| *number);
        let rest = self.by_lane.iter().filter(move |(_, since, _)| !is_aged(*since)).map(|(_, _, number)| *number);
        aged.chain(rest)
    }
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
        let seats = self.limits.loaded_models.max(1);
        let all_busy = self.seated().filter(|(_, model)| model.is_busy()).count() >= seats;
        let contends = |number: &usize| {
            let model = &self.models[*number];
            let has_no_seat = !model.is_busy() && (all_busy || !model.standing.seated);
            has_no_seat && self.could_run(*number)
        };
        let contender = self.seats.in_turn(self.limits.ageing, now).find(contends);
        self.contended_since = contender.map(|_| self.contended_since.unwrap_or(now));
        let free = self.seats.seated.len() < seats;
        let idle = if all_busy || free { None } else { self.idle_seat() };
        let yields = match contender {
            Some(contender) if idle.is_none() && !free => self.yielding(contender, all_busy, now),
            Some(_) | None => None,
        };

        let goes_on = |(number, model): &(usize, &Model)| {
            Some(*number) != yields && (model.is_busy() || !all_busy) && self.could_run(*number)
        };
        let go_on = self.seated().filter(|(_, model)| model.standing.asked_for.is_some()).filter(goes_on);
        if let Some((model, _)) = go_on.min_by_key(|(_, model)| self.rank(model, now)) {
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

    /// Models in memory.
    fn seated(&self) -> impl Iterator<Item = (usize, &Model)> {
        self.seats.seated.iter().map(|number| (*number, &self.models[*number]))
    }

    /// The order of [`Seats::in_turn`].
    fn rank(&self, model: &Model, now: Awake) -> Option<(Option<Lane>, Awake)> {
        let (lane, since) = model.standing.asked_for?;
        Some(((now.since(since) < self.limits.ageing).then_some(lane), since))
    }

    /// Whether a slot of this model is free for us.
    fn could_run(&self, number: usize) -> bool {
        let model = &self.models[number];
        model.holds == 0 && model.running < self.at_most(number)
    }

    /// Requests of ours that may run for this model at once.
    pub(super) fn at_most(&self, number: usize) -> u32 {
        let model = &self.models[number];
        let slots = model.slots.unwrap_or(self.limits.slots_while_unknown);
        slots.min(model.at_most.unwrap_or(u32::MAX)).saturating_sub(model.around)
    }

    /// The model in memory that has been without work for the longest, with nobody to use it now.
    fn idle_seat(&self) -> Option<usize> {
        let idle = self.seated().filter(|(number, model)| {
            !model.is_busy() && (model.standing.asked_for.is_none() || !self.could_run(*number))
        });
        idle.min_by_key(|(_, model)| model.answered).map(|(number, _)| number)
    }

    /// The seat that shall become free for the contender, if its time has come.
    fn yielding(&self, contender: usize, all_busy: bool, now: Awake) -> Option<usize> {
        let seated = || self.seated().filter(|(number, model)| *number != contender && (model.is_busy() || !all_busy));
        let over = seated().filter(|(_, model)| self.contended_for(model, now) >= self.limits.affinity);
        // What goes around cannot be made to end, so it comes last.
        if let Some((number, _)) = over.min_by_key(|(_, model)| (model.around, model.seated_since)) {
            return Some(number);
        }
        let wanted = self.models[contender].best_lane()?;
        let cost = self.models[contender].load.get().unwrap_or_default();
        let lower = seated().filter(|(_, model)| {
            model.best_lane() > Some(wanted) && !self.is_loading(model) && now.since(model.seated_since) >= cost
        });
        lower.max_by_key(|(_, model)| (model.best_lane(), Reverse(model.seated_since))).map(|(number, _)| number)
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
