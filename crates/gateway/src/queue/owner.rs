//! The owner of what waits and runs: carries out one wish after the other.

use super::{First, Inner, Told, View, Wish};
use crate::counts::{Counts, Kind};
use hashbrown::HashMap;
use stablehand_engine::admission::{
    Admission, Costs, Effect, End, Event, Limits, Refusal, Start, Ticket, TicketId, Why,
};
use stablehand_engine::time::Awake;
use stablehand_platform::clock::Clock;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::Instant;

#[derive(Debug)]
pub(super) struct Owner {
    admission: Admission,
    clock: Clock,
    /// Who arrives now, and what it is told.
    arriving: Option<(TicketId, Option<First>)>,
    /// Who is to be told of a ticket.
    waiting: HashMap<TicketId, oneshot::Sender<Told>>,
    /// Everybody in the queue.
    about: HashMap<TicketId, About>,
    /// When a request of ours began or ended last, by model, in real time.
    stirred: HashMap<Arc<str>, Instant>,
    counts: Counts,
    /// When its task acts by itself.
    acts_at: Option<Awake>,
}

#[derive(Debug)]
struct About {
    path: &'static str,
    kind: Kind,
    admitted: Option<Awake>,
    /// It was counted as admitted; it is not again when it is put back.
    counted: bool,
}

/// What is told of busy slots was seen so long ago at most, in real time.
pub(super) const SEEN_AGO: Duration = Duration::from_millis(1_500);

impl Owner {
    pub(super) fn new(limits: Limits, clock: Clock) -> Self {
        Self {
            admission: Admission::new(limits),
            clock,
            arriving: None,
            waiting: HashMap::new(),
            about: HashMap::new(),
            stirred: HashMap::new(),
            counts: Counts::default(),
            acts_at: None,
        }
    }

    pub(super) fn view(&self) -> View {
        View {
            snapshot: self.admission.snapshot(self.clock.awake()),
            counts: self.counts.clone(),
            paths: self.about.iter().map(|(ticket, about)| (*ticket, about.path)).collect(),
        }
    }

    pub(super) fn costs(&self) -> BTreeMap<Arc<str>, Costs> {
        self.admission.costs()
    }

    /// After which real time its task acts by itself.
    pub(super) fn acts_in(&mut self) -> Option<Duration> {
        self.acts_at = self.admission.deadline().map(|(at, _)| at);
        self.acts_at.map(|at| self.clock.real_span(at.since(self.clock.awake())))
    }

    pub(super) fn arrive(&mut self, inner: &Inner, ticket: Ticket, path: &'static str) -> Option<First> {
        let kind = (ticket.lane.word(), ticket.client.clone(), ticket.model.clone());
        self.about.insert(ticket.id, About { path, kind, admitted: None, counted: false });
        self.arriving = Some((ticket.id, None));
        self.step(inner, Event::Arrived(ticket));
        self.arriving.take()?.1
    }

    /// Whether something is to be done before its task would do it.
    pub(super) fn acts_earlier(&self) -> bool {
        match (self.admission.deadline(), self.acts_at) {
            (None, _) => false,
            (Some(_), None) => true,
            (Some((at, _)), Some(acts_at)) => at < acts_at,
        }
    }

    pub(super) fn take(&mut self, inner: &Inner, wish: Wish) {
        match wish {
            Wish::Missing { model, client } => {
                tracing::warn!(%model, %client, "a model was asked for that is not installed");
                self.counts.missing(model, client);
                inner.note_change();
            }
            Wish::PutBack { ticket, permit, told } => {
                if let Some(about) = self.about.get_mut(&ticket) {
                    about.admitted = None;
                }
                self.waiting.insert(ticket, told);
                self.step(inner, Event::PutBack(permit));
            }
            Wish::Ended { ticket, permit, end } => {
                if let (End::Served { .. }, Some(about)) = (&end, self.about.get(&ticket)) {
                    self.counts.is_there(&about.kind.2);
                }
                self.leaves(ticket);
                self.step(inner, Event::Ended { permit, end });
            }
            Wish::Left(ticket) => {
                self.waiting.remove(&ticket);
                self.leaves(ticket);
                self.step(inner, Event::Left(ticket));
            }
            Wish::Event(event) => {
                let event = self.unambiguous(event);
                self.step(inner, event);
            }
            Wish::Asked { of, event, done } => {
                // Others' turns may come by the way; only what became of this one is the answer.
                let _ = done.send(self.step(inner, event).iter().any(|effect| was_done(effect, of)));
            }
        }
    }

    /// A slot that was seen busy without a permit of ours may have been ours, or become ours, a moment before it was
    /// told. Taken for somebody else's it would keep ours waiting, so then it does not count.
    fn unambiguous(&self, event: Event) -> Event {
        if let Event::Around { model, .. } = &event
            && self.stirred.get(model).is_some_and(|at| at.elapsed() < SEEN_AGO)
        {
            return Event::Around { model: model.clone(), busy: 0 };
        }
        event
    }

    /// What came of it, carried out.
    fn step(&mut self, inner: &Inner, event: Event) -> Vec<Effect> {
        let now = self.clock.awake();
        let effects = self.admission.step(now, event);
        for effect in &effects {
            self.perform(inner, now, effect);
        }
        inner.note_change();
        effects
    }

    fn perform(&mut self, inner: &Inner, now: Awake, effect: &Effect) {
        match effect {
            Effect::Admit { ticket, permit, waited, start } => {
                match start {
                    Start::Load => self.counts.loads += 1,
                    // The engine counts those.
                    Start::Warm | Start::Switch { .. } => {}
                }
                if let Some(about) = self.about.get_mut(ticket) {
                    about.admitted = Some(now);
                    stir(&mut self.stirred, &about.kind.2);
                    if !std::mem::replace(&mut about.counted, true) {
                        self.counts.admitted(&about.kind, *waited);
                    }
                }
                // One whose client has just gone is told by its own drop, which is on its way here.
                self.tell(*ticket, Told::Admitted { permit: *permit, waited: *waited });
            }
            Effect::Wait { ticket, position, expected: _ } => {
                let (told, decision) = oneshot::channel();
                if let Some((arriving, first)) = &mut self.arriving
                    && arriving == ticket
                {
                    *first = Some(First::Waits { position: *position, decision });
                    self.waiting.insert(*ticket, told);
                }
            }
            Effect::Refuse { ticket, refusal } => {
                if let Some(about) = self.about.remove(ticket) {
                    *self.counts.refused.entry((refusal.word(), about.kind.0)).or_default() += 1;
                }
                self.tell(*ticket, Told::Refused(refusal.clone()));
            }
            Effect::Held(why) => {
                tracing::info!(why = why.word(), "requests are held");
                inner.held.send_modify(|held| {
                    held.insert(*why);
                });
            }
            // Whoever asked for it is told.
            Effect::Moved { ticket: _ } => {}
            Effect::Released { why, expired } => {
                inner.held.send_modify(|held| {
                    held.remove(why);
                });
                if *expired && *why != Why::Unreachable {
                    tracing::warn!(why = why.word(), "a hold has run out; nobody released it");
                } else {
                    tracing::info!(why = why.word(), "requests go on");
                }
            }
        }
    }

    fn tell(&mut self, ticket: TicketId, told: Told) {
        if let Some((arriving, first @ None)) = &mut self.arriving
            && *arriving == ticket
        {
            *first = Some(First::Decided(told));
        } else if let Some(waiter) = self.waiting.remove(&ticket) {
            let _ = waiter.send(told);
        }
    }

    /// A request is done with.
    fn leaves(&mut self, ticket: TicketId) {
        if let Some(about) = self.about.remove(&ticket)
            && let Some(admitted) = about.admitted
        {
            stir(&mut self.stirred, &about.kind.2);
            self.counts.ended(&about.kind, self.clock.awake().since(admitted));
        }
    }
}

fn stir(stirred: &mut HashMap<Arc<str>, Instant>, model: &Arc<str>) {
    match stirred.get_mut(model) {
        Some(at) => *at = Instant::now(),
        None => {
            // Clients name models as they like; those of long ago say nothing any more.
            stirred.retain(|_, at| at.elapsed() < SEEN_AGO);
            stirred.insert(model.clone(), Instant::now());
        }
    }
}

/// Whether what a person wanted of a request was done.
fn was_done(effect: &Effect, of: TicketId) -> bool {
    match effect {
        Effect::Refuse { ticket, refusal } => *ticket == of && *refusal == Refusal::Dropped,
        Effect::Moved { ticket } => *ticket == of,
        Effect::Admit { .. } | Effect::Wait { .. } | Effect::Held(_) | Effect::Released { .. } => false,
    }
}
