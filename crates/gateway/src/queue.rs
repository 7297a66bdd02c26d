//! The queue: one owner of what waits and runs, and how the tasks of requests talk to it.
//!
//! Wishes lie in a list, in the order in which they came, and whoever has the owner carries all of them out. That is
//! the owner's own task, which also acts when a time comes; and a request that arrives, so that it need not wait for
//! that task to hear that it may go on.

use crate::counts::{Counts, Kind};
use hashbrown::HashMap;
use stablehand_engine::admission::{
    Admission, Costs, Effect, End, Event, Lane, Limits, Permit, Refusal, Snapshot, Start, Ticket, TicketId, Why,
};
use stablehand_engine::time::Awake;
use stablehand_platform::clock::Clock;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, oneshot, watch};
use tokio::time::Instant;

/// A way to the queue. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Queue {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    next_ticket: AtomicU64,
    wishes: Mutex<VecDeque<Wish>>,
    owner: Mutex<Owner>,
    /// There are wishes, or another time at which to act, for the owner's task.
    called: Notify,
    /// How often anything has changed, and who waits for that.
    count: AtomicU64,
    changed: Notify,
    held: watch::Sender<BTreeSet<Why>>,
}

/// What became of a request.
#[derive(Debug)]
pub enum Decision {
    /// It may be sent.
    Admitted {
        /// To be given back.
        held: Held,
        /// How long it has waited.
        waited: Duration,
    },
    /// It will not be sent.
    Refused(Refusal),
}

/// The first answer to a request that has come.
#[derive(Debug)]
pub enum Arrival {
    /// Decided at once.
    Decided(Decision),
    /// It waits.
    Waits(Waiting),
}

/// A request that waits. Dropping it gives up its place.
#[derive(Debug)]
pub struct Waiting {
    /// Its place when it came, from 1.
    pub position: usize,
    decision: oneshot::Receiver<Told>,
    place: Place,
}

/// A permit. Dropping it tells that the client has gone.
#[derive(Debug)]
pub struct Held {
    permit: Permit,
    place: Place,
}

/// The number of a request in the queue, for as long as it is anywhere in it.
#[derive(Debug)]
struct Place {
    ticket: TicketId,
    queue: Queue,
    left: bool,
}

/// The last that the owner tells of a ticket that waits.
#[derive(Debug)]
enum Told {
    Admitted { permit: Permit, waited: Duration },
    Refused(Refusal),
}

/// The first that the owner tells of a ticket.
#[derive(Debug)]
enum First {
    Decided(Told),
    Waits { position: usize, decision: oneshot::Receiver<Told> },
}

#[derive(Debug)]
enum Wish {
    Missing {
        model: Arc<str>,
        client: Arc<str>,
    },
    PutBack {
        ticket: TicketId,
        permit: Permit,
        told: oneshot::Sender<Told>,
    },
    Ended {
        ticket: TicketId,
        permit: Permit,
        end: End,
    },
    Left(TicketId),
    Event(Event),
    /// What a person wants of one request; whether it waited, so that it was done.
    Asked {
        of: TicketId,
        event: Event,
        done: oneshot::Sender<bool>,
    },
}

/// The queue as it stands, all of one moment.
#[derive(Debug)]
pub struct View {
    /// Who waits and runs.
    pub snapshot: Snapshot,
    /// What was counted.
    pub counts: Counts,
    /// The path of everybody in the queue.
    pub paths: HashMap<TicketId, &'static str>,
}

/// Tells of changes. One that came before it was made counts as seen.
#[derive(Debug)]
pub struct Changes {
    queue: Queue,
    seen: u64,
}

impl Changes {
    /// Waits for a change that was not seen yet.
    pub async fn changed(&mut self) {
        loop {
            // Asked for before the count is read, so that none is missed.
            let changed = self.queue.inner.changed.notified();
            let count = self.queue.inner.count.load(Ordering::Acquire);
            if count != self.seen {
                self.seen = count;
                return;
            }
            changed.await;
        }
    }

    /// All until now is seen.
    pub fn mark_seen(&mut self) {
        self.seen = self.queue.inner.count.load(Ordering::Acquire);
    }
}

impl Queue {
    /// Starts the owner.
    pub fn start(limits: Limits, clock: Clock) -> Self {
        let owner = Owner {
            admission: Admission::new(limits),
            clock,
            arriving: None,
            waiting: HashMap::new(),
            about: HashMap::new(),
            stirred: HashMap::new(),
            counts: Counts::default(),
            acts_at: None,
        };
        let inner = Inner {
            next_ticket: AtomicU64::new(1),
            wishes: Mutex::default(),
            owner: Mutex::new(owner),
            called: Notify::new(),
            count: AtomicU64::new(0),
            changed: Notify::new(),
            held: watch::Sender::new(BTreeSet::new()),
        };
        let queue = Self { inner: Arc::new(inner) };
        tokio::spawn(queue.clone().act());
        queue
    }

    /// A number for a request.
    pub fn number(&self) -> TicketId {
        TicketId(self.inner.next_ticket.fetch_add(1, Ordering::Relaxed))
    }

    /// A request has come, with a number of its own.
    pub fn arrive(&self, ticket: Ticket, path: &'static str) -> Option<Arrival> {
        let place = Place { ticket: ticket.id, queue: self.clone(), left: false };
        let first = {
            let mut owner = self.owner();
            let first = owner.arrive(&self.inner, ticket, path);
            if owner.acts_earlier() {
                self.inner.called.notify_one();
            }
            first
        };
        Some(match first? {
            First::Decided(told) => Arrival::Decided(decided(told, place)),
            First::Waits { position, decision } => Arrival::Waits(Waiting { position, decision, place }),
        })
    }

    /// Something has happened.
    pub fn tell(&self, event: Event) {
        self.wish(Wish::Event(event));
    }

    /// Takes a request out that waits; says whether it did.
    pub async fn drop_request(&self, of: TicketId) -> bool {
        self.ask(of, Event::Drop(of)).await
    }

    /// Lets a request wait in another lane; says whether it waits.
    pub async fn move_request(&self, of: TicketId, lane: Lane) -> bool {
        self.ask(of, Event::Move { ticket: of, lane }).await
    }

    async fn ask(&self, of: TicketId, event: Event) -> bool {
        let (done, answer) = oneshot::channel();
        self.wish(Wish::Asked { of, event, done });
        answer.await.unwrap_or(false)
    }

    /// The queue as it stands.
    pub fn view(&self) -> View {
        let owner = self.owner();
        View {
            snapshot: owner.admission.snapshot(owner.clock.awake()),
            counts: owner.counts.clone(),
            paths: owner.about.iter().map(|(ticket, about)| (*ticket, about.path)).collect(),
        }
    }

    /// What was measured.
    pub fn costs(&self) -> BTreeMap<Arc<str>, Costs> {
        self.owner().admission.costs()
    }

    /// Tells of every change from now on.
    pub fn changes(&self) -> Changes {
        Changes { queue: self.clone(), seen: self.inner.count.load(Ordering::Acquire) }
    }

    /// What holds all requests.
    pub fn holds(&self) -> watch::Receiver<BTreeSet<Why>> {
        self.inner.held.subscribe()
    }

    /// Whether the server itself is away, and not only the queue held.
    pub fn is_away(&self) -> bool {
        self.inner.held.borrow().iter().any(|why| takes_the_server_away(*why))
    }

    /// Whether all requests are held for this reason.
    pub fn is_held(&self, why: Why) -> bool {
        self.inner.held.borrow().contains(&why)
    }

    /// Waits until the server is not away.
    pub async fn is_back(&self) {
        let mut holds = self.holds();
        // Without a sender the gateway ends.
        let _ = holds.wait_for(|holds| !holds.iter().any(|why| takes_the_server_away(*why))).await;
    }

    /// A model was asked for that the server does not have.
    pub fn is_missing(&self, model: &Arc<str>, client: &Arc<str>) {
        self.wish(Wish::Missing { model: model.clone(), client: client.clone() });
    }

    fn wish(&self, wish: Wish) {
        self.inner.wishes().push_back(wish);
        self.inner.called.notify_one();
    }

    /// The owner, with all wishes carried out. Nobody holds it across a wait.
    fn owner(&self) -> MutexGuard<'_, Owner> {
        let mut owner = self.inner.owner.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            let Some(wish) = self.inner.wishes().pop_front() else { return owner };
            owner.take(&self.inner, wish);
        }
    }

    /// The owner's task.
    async fn act(self) {
        loop {
            let left = {
                let mut owner = self.owner();
                owner.acts_at = owner.admission.deadline().map(|(at, _)| at);
                owner.acts_at.map(|at| owner.clock.real_span(at.since(owner.clock.awake())))
            };
            match left {
                None => self.inner.called.notified().await,
                Some(left) => tokio::select! {
                    biased;
                    () = self.inner.called.notified() => {}
                    () = tokio::time::sleep(left) => self.inner.wishes().push_back(Wish::Event(Event::Tick)),
                },
            }
        }
    }
}

impl Inner {
    fn wishes(&self) -> MutexGuard<'_, VecDeque<Wish>> {
        self.wishes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note_change(&self) {
        self.count.fetch_add(1, Ordering::Release);
        self.changed.notify_waiters();
    }
}

impl Waiting {
    /// Waits for the decision.
    pub async fn decision(mut self) -> Option<Decision> {
        let told = (&mut self.decision).await.ok()?;
        Some(decided(told, self.place))
    }
}

impl Held {
    /// The response has ended.
    pub fn end(mut self, end: End) {
        self.place.left = true;
        self.place.queue.wish(Wish::Ended { ticket: self.place.ticket, permit: self.permit, end });
    }

    /// Nothing could be sent: the request waits again, in its old place.
    pub fn put_back(self) -> Waiting {
        let Self { permit, place } = self;
        let (told, decision) = oneshot::channel();
        place.queue.wish(Wish::PutBack { ticket: place.ticket, permit, told });
        Waiting { position: 1, decision, place }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if !self.left {
            self.queue.wish(Wish::Left(self.ticket));
        }
    }
}

fn decided(told: Told, mut place: Place) -> Decision {
    match told {
        Told::Admitted { permit, waited } => Decision::Admitted { held: Held { permit, place }, waited },
        Told::Refused(refusal) => {
            place.left = true;
            Decision::Refused(refusal)
        }
    }
}

fn takes_the_server_away(why: Why) -> bool {
    match why {
        Why::Restart | Why::Upgrade | Why::Unreachable => true,
        Why::Paused | Why::Recovery => false,
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

#[derive(Debug)]
struct Owner {
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
const SEEN_AGO: Duration = Duration::from_millis(1_500);

impl Owner {
    fn arrive(&mut self, inner: &Inner, ticket: Ticket, path: &'static str) -> Option<First> {
        let kind = (ticket.lane.word(), ticket.client.clone(), ticket.model.clone());
        self.about.insert(ticket.id, About { path, kind, admitted: None, counted: false });
        self.arriving = Some((ticket.id, None));
        self.step(inner, Event::Arrived(ticket));
        self.arriving.take()?.1
    }

    /// Whether something is to be done before its task would do it.
    fn acts_earlier(&self) -> bool {
        match (self.admission.deadline(), self.acts_at) {
            (None, _) => false,
            (Some(_), None) => true,
            (Some((at, _)), Some(acts_at)) => at < acts_at,
        }
    }

    fn take(&mut self, inner: &Inner, wish: Wish) {
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

#[cfg(test)]
mod tests {
    use super::*;
    use stablehand_engine::admission::Lane;

    #[tokio::test(start_paused = true)]
    async fn a_busy_slot_that_may_just_have_been_ours_keeps_nobody_waiting() {
        let folder = tempfile::tempdir().unwrap();
        let queue = Queue::start(Limits::default(), crate::testing::machine(folder.path()).clock().clone());
        let model: Arc<str> = Arc::from("m:latest");
        let client: Arc<str> = Arc::from("c");
        let ticket = || Ticket {
            id: queue.number(),
            model: model.clone(),
            client: client.clone(),
            lane: Lane::Agent,
            patience: None,
        };
        let around = || queue.view().snapshot.models[0].around;
        let Some(Arrival::Decided(Decision::Admitted { held, .. })) = queue.arrive(ticket(), "/api/chat") else {
            panic!("nobody is before it");
        };
        held.end(End::Served { load: None });
        queue.tell(Event::Around { model: model.clone(), busy: 1 });
        assert_eq!(around(), 0);
        tokio::time::advance(SEEN_AGO).await;
        queue.tell(Event::Around { model: model.clone(), busy: 1 });
        assert_eq!(around(), 1);
        let arrival = queue.arrive(ticket(), "/api/chat");
        assert!(matches!(arrival, Some(Arrival::Waits(_))), "the slot is somebody else's");
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_that_is_put_back_is_counted_once_and_others_hear_of_every_change() {
        let folder = tempfile::tempdir().unwrap();
        let queue = Queue::start(Limits::default(), crate::testing::machine(folder.path()).clock().clone());
        let mut changes = queue.changes();
        let id = queue.number();
        let ticket =
            Ticket { id, model: Arc::from("m:latest"), client: Arc::from("c"), lane: Lane::Agent, patience: None };
        let Some(Arrival::Decided(Decision::Admitted { held, .. })) = queue.arrive(ticket, "/api/chat") else {
            panic!("nobody is before it");
        };
        changes.changed().await;
        assert_eq!(queue.view().paths.get(&id), Some(&"/api/chat"));
        let Some(Decision::Admitted { held, .. }) = held.put_back().decision().await else {
            panic!("nothing holds it");
        };
        held.end(End::Failed);
        changes.changed().await;
        let view = queue.view();
        assert_eq!(view.counts.served.values().map(|one| (one.admitted, one.ended)).collect::<Vec<_>>(), [(1, 1)]);
        assert!(view.paths.is_empty() && view.snapshot.running.is_empty());
    }
}
