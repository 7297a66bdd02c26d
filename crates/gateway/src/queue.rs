//! The queue: one owner of what waits and runs, and how the tasks of requests talk to it.
//!
//! Wishes lie in a list, in the order in which they came, and whoever has the owner carries all of them out. That is
//! the owner's own task, which also acts when a time comes; and a request that arrives, so that it need not wait for
//! that task to hear that it may go on.

mod owner;

use crate::counts::Counts;
use hashbrown::HashMap;
use owner::Owner;
use stablehand_engine::admission::{Costs, End, Event, Lane, Limits, Permit, Refusal, Snapshot, Ticket, TicketId, Why};
use stablehand_platform::clock::Clock;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, oneshot, watch};

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
        let inner = Inner {
            next_ticket: AtomicU64::new(1),
            wishes: Mutex::default(),
            owner: Mutex::new(Owner::new(limits, clock)),
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
        self.owner().view()
    }

    /// What was measured.
    pub fn costs(&self) -> BTreeMap<Arc<str>, Costs> {
        self.owner().costs()
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
            let left = self.owner().acts_in();
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

#[cfg(test)]
mod tests {
    use super::owner::SEEN_AGO;
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
