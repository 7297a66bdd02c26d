//! The one task that owns the queue, and how the others talk to it.

use stablehand_engine::admission::{
    Admission, Costs, Effect, End, Event, Lane, Limits, Permit, Refusal, Snapshot, Start, Ticket, TicketId, Why,
};
use stablehand_engine::time::Awake;
use stablehand_platform::clock::Clock;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;

/// A way to the queue. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Queue {
    wishes: mpsc::UnboundedSender<Wish>,
    next_ticket: Arc<AtomicU64>,
    changes: watch::Receiver<u64>,
    holds: watch::Receiver<BTreeSet<Why>>,
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

/// What the owner tells of a ticket.
#[derive(Debug)]
enum Told {
    Admitted { permit: Permit, waited: Duration },
    Refused(Refusal),
    Waits { position: usize, decision: oneshot::Receiver<Told> },
}

#[derive(Debug)]
enum Wish {
    Arrived {
        ticket: Ticket,
        path: &'static str,
        told: oneshot::Sender<Told>,
    },
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
    Snapshot(oneshot::Sender<Snapshot>),
    Costs(oneshot::Sender<BTreeMap<Arc<str>, Costs>>),
    Counts(oneshot::Sender<Counts>),
    Paths(oneshot::Sender<HashMap<TicketId, &'static str>>),
}

impl Queue {
    /// Starts the owner.
    pub fn start(limits: Limits, clock: Clock) -> Self {
        let (wishes, inbox) = mpsc::unbounded_channel();
        let (changed, changes) = watch::channel(0);
        let (held, holds) = watch::channel(BTreeSet::new());
        let owner = Owner {
            admission: Admission::new(limits),
            clock,
            waiting: HashMap::new(),
            about: HashMap::new(),
            stirred: HashMap::new(),
            counts: Counts::default(),
            changed,
            held,
        };
        tokio::spawn(owner.run(inbox));
        Self { wishes, next_ticket: Arc::new(AtomicU64::new(1)), changes, holds }
    }

    /// A number for a request.
    pub fn number(&self) -> TicketId {
        TicketId(self.next_ticket.fetch_add(1, Ordering::Relaxed))
    }

    /// A request has come. `None` when the gateway ends.
    pub async fn arrive(&self, ticket: Ticket, path: &'static str) -> Option<Arrival> {
        let (told, first) = oneshot::channel();
        let place = Place { ticket: ticket.id, queue: self.clone(), left: false };
        self.wishes.send(Wish::Arrived { ticket, path, told }).ok()?;
        Some(match first.await.ok()? {
            Told::Waits { position, decision } => Arrival::Waits(Waiting { position, decision, place }),
            told @ (Told::Admitted { .. } | Told::Refused(_)) => Arrival::Decided(decided(told, place)?),
        })
    }

    /// Something has happened.
    pub fn tell(&self, event: Event) {
        // Without an owner the gateway ends, and nothing matters any more.
        let _ = self.wishes.send(Wish::Event(event));
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
        self.wishes.send(Wish::Asked { of, event, done }).is_ok() && answer.await.unwrap_or(false)
    }

    /// The queue as it stands.
    pub async fn snapshot(&self) -> Option<Snapshot> {
        self.look(Wish::Snapshot).await
    }

    /// What was measured.
    pub async fn costs(&self) -> Option<BTreeMap<Arc<str>, Costs>> {
        self.look(Wish::Costs).await
    }

    /// What was counted.
    pub async fn counts(&self) -> Option<Counts> {
        self.look(Wish::Counts).await
    }

    /// The path of everybody in the queue.
    pub async fn paths(&self) -> Option<HashMap<TicketId, &'static str>> {
        self.look(Wish::Paths).await
    }

    /// Counts every change.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changes.clone()
    }

    /// What holds all requests.
    pub fn holds(&self) -> watch::Receiver<BTreeSet<Why>> {
        self.holds.clone()
    }

    /// Whether the server itself is away, and not only the queue held.
    pub fn is_away(&self) -> bool {
        self.holds.borrow().iter().any(|why| takes_the_server_away(*why))
    }

    /// Waits until the server is not away.
    pub async fn is_back(&self) {
        let mut holds = self.holds.clone();
        // Without an owner the gateway ends.
        let _ = holds.wait_for(|holds| !holds.iter().any(|why| takes_the_server_away(*why))).await;
    }

    /// A model was asked for that the server does not have.
    pub fn is_missing(&self, model: &str, client: &Arc<str>) {
        let _ = self.wishes.send(Wish::Missing { model: Arc::from(model), client: client.clone() });
    }

    async fn look<T>(&self, wish: impl FnOnce(oneshot::Sender<T>) -> Wish) -> Option<T> {
        let (told, answer) = oneshot::channel();
        self.wishes.send(wish(told)).ok()?;
        answer.await.ok()
    }
}

impl Waiting {
    /// Waits for the decision. `None` when the gateway ends.
    pub async fn decision(mut self) -> Option<Decision> {
        let told = (&mut self.decision).await.ok()?;
        decided(told, self.place)
    }
}

impl Held {
    /// The response has ended.
    pub fn end(mut self, end: End) {
        self.place.left = true;
        // Without an owner the gateway ends, and nothing matters any more.
        let _ = self.place.queue.wishes.send(Wish::Ended { ticket: self.place.ticket, permit: self.permit, end });
    }

    /// Nothing could be sent: the request waits again, in its old place.
    pub fn put_back(self) -> Option<Waiting> {
        let Self { permit, place } = self;
        let (told, decision) = oneshot::channel();
        place.queue.wishes.send(Wish::PutBack { ticket: place.ticket, permit, told }).ok()?;
        Some(Waiting { position: 1, decision, place })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if !self.left {
            let _ = self.queue.wishes.send(Wish::Left(self.ticket));
        }
    }
}

fn decided(told: Told, mut place: Place) -> Option<Decision> {
    match told {
        Told::Admitted { permit, waited } => Some(Decision::Admitted { held: Held { permit, place }, waited }),
        Told::Refused(refusal) => {
            place.left = true;
            Some(Decision::Refused(refusal))
        }
        Told::Waits { .. } => None,
    }
}

fn takes_the_server_away(why: Why) -> bool {
    match why {
        Why::Restart | Why::Upgrade | Why::Unreachable => true,
        Why::Paused | Why::Recovery => false,
    }
}

/// What was counted since the start.
#[derive(Clone, Debug, Default)]
pub struct Counts {
    /// By lane, client and model.
    pub served: BTreeMap<(&'static str, Arc<str>, Arc<str>), Served>,
    /// How long requests waited, by lane.
    pub waits: BTreeMap<&'static str, Waits>,
    /// Requests that were not sent, by reason and lane.
    pub refused: BTreeMap<(&'static str, &'static str), u64>,
    /// Admissions that loaded a model where there was room.
    pub loads: u64,
    /// Models that were asked for and are not installed, with who asked last; the newest last.
    pub missing: Vec<(Arc<str>, Arc<str>)>,
}

/// How many requests waited at most so long.
#[derive(Clone, Copy, Debug, Default)]
pub struct Waits([u64; BOUNDS_MS.len() + 1]);

/// The bounds, in milliseconds.
const BOUNDS_MS: [u64; 8] = [1, 100, 1_000, 5_000, 15_000, 60_000, 300_000, 1_200_000];

impl Waits {
    fn note(&mut self, waited: Duration) {
        let bucket = BOUNDS_MS.iter().position(|bound| waited <= Duration::from_millis(*bound));
        self.0[bucket.unwrap_or(BOUNDS_MS.len())] += 1;
    }

    /// The bounds in seconds as Prometheus writes them, with how many waited no longer.
    pub fn told(&self) -> Vec<(String, u64)> {
        let bounds = BOUNDS_MS.iter().map(|bound| Duration::from_millis(*bound).as_secs_f64().to_string());
        let counts = self.0.iter().scan(0, |sum, count| {
            *sum += count;
            Some(*sum)
        });
        bounds.chain(["+Inf".to_owned()]).zip(counts).collect()
    }
}

/// What was counted of one kind of request.
#[derive(Clone, Copy, Debug, Default)]
pub struct Served {
    /// How often one was admitted.
    pub admitted: u64,
    /// How long they waited, in all.
    pub waited: Duration,
    /// How many have ended.
    pub ended: u64,
    /// How long they held their permits, in all.
    pub served: Duration,
}

/// Whether what a person wanted of a request was done.
fn was_done(effect: &Effect, of: TicketId) -> bool {
    match effect {
        Effect::Refuse { ticket, refusal } => *ticket == of && *refusal == Refusal::Dropped,
        Effect::Moved { ticket } => *ticket == of,
        Effect::Admit { .. } | Effect::Wait { .. } | Effect::Held(_) | Effect::Released { .. } => false,
    }
}

struct Owner {
    admission: Admission,
    clock: Clock,
    /// Who is to be told of a ticket.
    waiting: HashMap<TicketId, oneshot::Sender<Told>>,
    /// Everybody in the queue.
    about: HashMap<TicketId, About>,
    /// When a request of ours began or ended last, by model, in real time.
    stirred: HashMap<Arc<str>, Instant>,
    counts: Counts,
    changed: watch::Sender<u64>,
    held: watch::Sender<BTreeSet<Why>>,
}

struct About {
    path: &'static str,
    key: (&'static str, Arc<str>, Arc<str>),
    admitted: Option<Awake>,
}

/// What is told of busy slots was seen so long ago at most, in real time.
const SEEN_AGO: Duration = Duration::from_millis(1_500);
/// The most kinds of requests that are counted apart; clients name themselves, and a name must not fill the memory.
const KINDS_AT_MOST: usize = 512;
/// As many missing models are remembered.
const MISSING_AT_MOST: usize = 16;

impl Owner {
    async fn run(mut self, mut inbox: mpsc::UnboundedReceiver<Wish>) {
        loop {
            let wish = match self.admission.deadline() {
                None => inbox.recv().await,
                Some((at, _)) => {
                    let left = self.clock.real_span(at.since(self.clock.now().awake));
                    tokio::select! {
                        biased;
                        wish = inbox.recv() => wish,
                        () = tokio::time::sleep(left) => Some(Wish::Event(Event::Tick)),
                    }
                }
            };
            match wish {
                Some(wish) => self.take(wish),
                None => return,
            }
        }
    }

    fn take(&mut self, wish: Wish) {
        match wish {
            Wish::Arrived { ticket, path, told } => {
                let id = ticket.id;
                let key = (ticket.lane.word(), ticket.client.clone(), ticket.model.clone());
                self.about.insert(id, About { path, key, admitted: None });
                self.waiting.insert(id, told);
                self.step(Event::Arrived(ticket));
            }
            Wish::Missing { model, client } => {
                tracing::warn!(%model, %client, "a model was asked for that is not installed");
                self.counts.missing.retain(|(other, _)| *other != model);
                if self.counts.missing.len() == MISSING_AT_MOST {
                    self.counts.missing.remove(0);
                }
                self.counts.missing.push((model, client));
                self.changed.send_modify(|count| *count += 1);
            }
            Wish::PutBack { ticket, permit, told } => {
                if let Some(about) = self.about.get_mut(&ticket) {
                    about.admitted = None;
                }
                self.waiting.insert(ticket, told);
                self.step(Event::PutBack(permit));
            }
            Wish::Ended { ticket, permit, end } => {
                let now = self.clock.now().awake;
                if let Some(about) = self.about.remove(&ticket) {
                    self.count_end(now, &about);
                }
                self.step(Event::Ended { permit, end });
            }
            Wish::Left(ticket) => {
                let now = self.clock.now().awake;
                self.waiting.remove(&ticket);
                if let Some(about) = self.about.remove(&ticket) {
                    self.count_end(now, &about);
                }
                self.step(Event::Left(ticket));
            }
            Wish::Event(event) => {
                let event = self.unambiguous(event);
                self.step(event);
            }
            Wish::Asked { of, event, done } => {
                // Others' turns may come by the way; only what became of this one is the answer.
                let _ = done.send(self.step(event).iter().any(|effect| was_done(effect, of)));
            }
            Wish::Snapshot(told) => {
                let _ = told.send(self.admission.snapshot(self.clock.now().awake));
            }
            Wish::Costs(told) => {
                let _ = told.send(self.admission.costs());
            }
            Wish::Paths(told) => {
                let _ = told.send(self.about.iter().map(|(ticket, about)| (*ticket, about.path)).collect());
            }
            Wish::Counts(told) => {
                let _ = told.send(self.counts.clone());
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
    fn step(&mut self, event: Event) -> Vec<Effect> {
        let now = self.clock.now().awake;
        let effects = self.admission.step(now, event);
        for effect in effects.iter().cloned() {
            self.perform(now, effect);
        }
        self.changed.send_modify(|count| *count += 1);
        effects
    }

    fn perform(&mut self, now: Awake, effect: Effect) {
        match effect {
            Effect::Admit { ticket, permit, waited, start } => {
                match start {
                    Start::Load => self.counts.loads += 1,
                    // The engine counts those.
                    Start::Warm | Start::Switch { .. } => {}
                }
                if let Some(about) = self.about.get_mut(&ticket) {
                    about.admitted = Some(now);
                    stir(&mut self.stirred, &about.key.2);
                    self.counts.waits.entry(about.key.0).or_default().note(waited);
                    let served = kind(&mut self.counts, &about.key);
                    served.admitted += 1;
                    served.waited += waited;
                }
                // One whose client has just gone is told by its own drop, which is on its way here.
                self.tell(ticket, Told::Admitted { permit, waited });
            }
            Effect::Wait { ticket, position, expected: _ } => {
                let (told, decision) = oneshot::channel();
                self.tell(ticket, Told::Waits { position, decision });
                self.waiting.insert(ticket, told);
            }
            Effect::Refuse { ticket, refusal } => {
                if let Some(about) = self.about.remove(&ticket) {
                    *self.counts.refused.entry((refusal.word(), about.key.0)).or_default() += 1;
                }
                self.tell(ticket, Told::Refused(refusal));
            }
            Effect::Held(why) => {
                tracing::info!(why = why.word(), "requests are held");
                self.held.send_modify(|held| {
                    held.insert(why);
                });
            }
            // Whoever asked for it is told.
            Effect::Moved { ticket: _ } => {}
            Effect::Released { why, expired } => {
                self.held.send_modify(|held| {
                    held.remove(&why);
                });
                if expired && why != Why::Unreachable {
                    tracing::warn!(why = why.word(), "a hold has run out; nobody released it");
                } else {
                    tracing::info!(why = why.word(), "requests go on");
                }
            }
        }
    }

    fn tell(&mut self, ticket: TicketId, told: Told) {
        if let Some(waiter) = self.waiting.remove(&ticket) {
            let _ = waiter.send(told);
        }
    }

    fn count_end(&mut self, now: Awake, about: &About) {
        if let Some(admitted) = about.admitted {
            stir(&mut self.stirred, &about.key.2);
            let served = kind(&mut self.counts, &about.key);
            served.ended += 1;
            served.served += now.since(admitted);
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

fn kind<'a>(counts: &'a mut Counts, key: &(&'static str, Arc<str>, Arc<str>)) -> &'a mut Served {
    if counts.served.len() >= KINDS_AT_MOST && !counts.served.contains_key(key) {
        let others: Arc<str> = Arc::from("others");
        return counts.served.entry((key.0, others.clone(), others)).or_default();
    }
    counts.served.entry(key.clone()).or_default()
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
        let around = async || queue.snapshot().await.unwrap().models[0].around;
        let Some(Arrival::Decided(Decision::Admitted { held, .. })) = queue.arrive(ticket(), "/api/chat").await else {
            panic!("nobody is before it");
        };
        held.end(End::Served { load: None });
        queue.tell(Event::Around { model: model.clone(), busy: 1 });
        assert_eq!(around().await, 0);
        tokio::time::advance(SEEN_AGO).await;
        queue.tell(Event::Around { model: model.clone(), busy: 1 });
        assert_eq!(around().await, 1);
        let arrival = queue.arrive(ticket(), "/api/chat").await;
        assert!(matches!(arrival, Some(Arrival::Waits(_))), "the slot is somebody else's");
    }
}
