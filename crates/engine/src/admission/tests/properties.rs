//! What holds whatever happens: random arrivals, ends, departures, failures, holds, reloads and news of the server,
//! compared with a ledger that is kept from events and effects alone.

use super::*;
use proptest::prelude::*;
use std::collections::BTreeSet;

const MODELS: u8 = 4;
const CLIENTS: u8 = 4;

/// One step; small numbers stand for models, clients and tickets.
#[derive(Clone, Debug)]
enum Act {
    Arrive { model: u8, client: u8, lane: Lane, patience_s: Option<u8> },
    Serve { which: usize, load_s: Option<u8> },
    Fail { which: usize },
    Leave { which: usize },
    EndAgain { permit: u8 },
    PutBack { which: usize },
    Drop { which: usize },
    Move { which: usize, lane: Lane },
    Hold { why: Why, model: Option<u8>, for_s: Option<u8> },
    Release { why: Why, model: Option<u8> },
    Slots { model: u8, slots: Option<u32> },
    Loaded { models: u8, ago_s: u8 },
    Around { model: u8, busy: u32 },
    Reload(Box<Limits>),
    Pass { seconds: u8 },
}

fn lane() -> impl Strategy<Value = Lane> {
    prop::sample::select(Lane::ALL.to_vec())
}

fn why() -> impl Strategy<Value = Why> {
    prop::sample::select(vec![Why::Paused, Why::Restart, Why::Upgrade, Why::Recovery, Why::Unreachable])
}

fn seconds(span: std::ops::Range<u64>) -> impl Strategy<Value = Duration> {
    span.prop_map(Duration::from_secs)
}

fn limits() -> impl Strategy<Value = Limits> {
    let bounds = (0..12_usize, 1..4_usize, 1..3_u32, 0..8_usize, prop::option::of(0..3_u32));
    let times = (seconds(0..200), seconds(0..100), seconds(0..20), seconds(0..5));
    let of_client = (0..8_usize, prop::option::of(0..3_u32), prop::option::of(seconds(0..90)));
    (bounds, times, of_client).prop_map(
        |((waiting, loaded_models, slots, of_model, running), (affinity, ageing, quantum, linger), client)| {
            let (of_client, permits, patience) = client;
            Limits {
                waiting,
                loaded_models,
                slots_while_unknown: slots,
                affinity,
                ageing,
                quantum,
                linger,
                model: ModelLimits { waiting: of_model, running },
                clients: [("c1".into(), ClientLimits { waiting: of_client, running: permits, patience, lane: None })]
                    .into(),
                ..Limits::default()
            }
        },
    )
}

fn act() -> impl Strategy<Value = Act> {
    let which = 0..64_usize;
    prop_oneof![
        12 => (0..MODELS, 0..CLIENTS, lane(), prop::option::weighted(0.3, 0..120_u8))
            .prop_map(|(model, client, lane, patience_s)| Act::Arrive { model, client, lane, patience_s }),
        8 => (which.clone(), prop::option::of(0..30_u8)).prop_map(|(which, load_s)| Act::Serve { which, load_s }),
        2 => which.clone().prop_map(|which| Act::Fail { which }),
        3 => which.clone().prop_map(|which| Act::Leave { which }),
        1 => (0..40_u8).prop_map(|permit| Act::EndAgain { permit }),
        1 => which.clone().prop_map(|which| Act::PutBack { which }),
        1 => which.clone().prop_map(|which| Act::Drop { which }),
        1 => (which, lane()).prop_map(|(which, lane)| Act::Move { which, lane }),
        1 => (why(), prop::option::of(0..MODELS), prop::option::of(0..60_u8))
            .prop_map(|(why, model, for_s)| Act::Hold { why, model, for_s }),
        2 => (why(), prop::option::of(0..MODELS)).prop_map(|(why, model)| Act::Release { why, model }),
        1 => (0..MODELS, prop::option::of(0..4_u32)).prop_map(|(model, slots)| Act::Slots { model, slots }),
        2 => (0..16_u8, 0..30_u8).prop_map(|(models, ago_s)| Act::Loaded { models, ago_s }),
        1 => (0..MODELS, 0..3_u32).prop_map(|(model, busy)| Act::Around { model, busy }),
        1 => limits().prop_map(|limits| Act::Reload(Box::new(limits))),
        5 => (0..90_u8).prop_map(|seconds| Act::Pass { seconds }),
    ]
}

/// What is known of a ticket from outside.
#[derive(Clone, Debug)]
struct Known {
    ticket: Ticket,
    came: u64,
    permit: Option<Permit>,
}

/// What the queue should be like, from outside.
struct Ledger {
    queue: Admission,
    limits: Limits,
    now: Awake,
    tickets: BTreeMap<TicketId, Known>,
    permits: BTreeSet<Permit>,
    slots: BTreeMap<Arc<str>, Option<u32>>,
    around: BTreeMap<Arc<str>, (u32, Awake)>,
    holds: BTreeMap<(Why, Scope), Option<Awake>>,
    came: u64,
}

impl Ledger {
    fn new(limits: Limits) -> Self {
        Self {
            queue: Admission::new(limits.clone()),
            limits,
            now: at(0),
            tickets: BTreeMap::new(),
            permits: BTreeSet::new(),
            slots: BTreeMap::new(),
            around: BTreeMap::new(),
            holds: BTreeMap::new(),
            came: 0,
        }
    }

    fn nth(&self, which: usize, running: bool) -> Option<&Known> {
        let these: Vec<&Known> = self.tickets.values().filter(|known| known.permit.is_some() == running).collect();
        if these.is_empty() { None } else { Some(these[which % these.len()]) }
    }

    /// The act as an event; `None` when there is nobody to do it to.
    fn event(&mut self, act: Act) -> Option<Event> {
        Some(match act {
            Act::Arrive { model, client, lane, patience_s } => {
                self.came += 1;
                let ticket = Ticket {
                    id: TicketId(self.came),
                    model: model_name(model),
                    client: format!("c{client}").into(),
                    lane,
                    patience: patience_s.map(|s| Duration::from_secs(s.into())),
                };
                self.tickets.insert(ticket.id, Known { ticket: ticket.clone(), came: self.came, permit: None });
                Event::Arrived(ticket)
            }
            Act::Serve { which, load_s } => {
                let load = load_s.map(|s| Duration::from_secs(s.into()));
                self.end(which, |permit| Event::Ended { permit, end: End::Served { load } })?
            }
            Act::Fail { which } => self.end(which, |permit| Event::Ended { permit, end: End::Failed })?,
            Act::Leave { which } => {
                let known = self.nth(which, which.is_multiple_of(2))?.clone();
                self.tickets.remove(&known.ticket.id);
                Event::Left(known.ticket.id)
            }
            Act::EndAgain { permit } => {
                let permit = Permit(permit.into());
                let held = self.tickets.values().any(|known| known.permit == Some(permit));
                if held {
                    return None;
                }
                Event::Ended { permit, end: End::Served { load: None } }
            }
            Act::PutBack { which } => {
                let id = self.nth(which, true)?.ticket.id;
                let permit = self.tickets.get_mut(&id)?.permit.take()?;
                Event::PutBack(permit)
            }
            Act::Drop { which } => Event::Drop(self.nth(which, false)?.ticket.id),
            Act::Move { which, lane } => {
                let id = self.nth(which, false)?.ticket.id;
                self.tickets.get_mut(&id)?.ticket.lane = lane;
                Event::Move { ticket: id, lane }
            }
            Act::Hold { why, model, for_s } => {
                let until = for_s.map(|s| self.now + Duration::from_secs(s.into()));
                self.holds.insert((why, scope(model)), until);
                Event::Hold { why, scope: scope(model), until }
            }
            Act::Release { why, model } => {
                self.holds.remove(&(why, scope(model)));
                Event::Release { why, scope: scope(model) }
            }
            Act::Slots { model, slots } => {
                self.slots.insert(model_name(model), slots);
                Event::Slots { model: model_name(model), slots }
            }
            Act::Loaded { models, ago_s } => {
                let models: Vec<_> = (0..MODELS).filter(|model| models & (1 << model) != 0).map(model_name).collect();
                let asked = self.now.since_start().saturating_sub(Duration::from_secs(ago_s.into()));
                let asked = Awake::from_start(asked);
                self.around.retain(|model, (_, told)| models.contains(model) || *told > asked);
                Event::Loaded { models, asked }
            }
            Act::Around { model, busy } => {
                self.around.insert(model_name(model), (busy, self.now));
                Event::Around { model: model_name(model), busy }
            }
            Act::Reload(limits) => {
                self.limits = (*limits).clone();
                Event::Reloaded(limits)
            }
            Act::Pass { seconds } => {
                self.now = self.now + Duration::from_secs(seconds.into());
                Event::Tick
            }
        })
    }

    fn end(&mut self, which: usize, event: impl FnOnce(Permit) -> Event) -> Option<Event> {
        let known = self.nth(which, true)?.clone();
        self.tickets.remove(&known.ticket.id);
        known.permit.map(event)
    }

    fn play(&mut self, act: Act) {
        let Some(event) = self.event(act) else { return };
        self.holds.retain(|_, until| until.is_none_or(|until| until > self.now));
        let effects = self.queue.step(self.now, event.clone());
        let mut told = BTreeSet::new();
        for effect in &effects {
            match effect {
                Effect::Admit { ticket, permit, waited: _, start: _ } => self.check_admitted(*ticket, *permit),
                Effect::Wait { ticket, position, expected: _ } => {
                    assert!(told.insert(*ticket), "{ticket:?} is told twice in {effects:?}");
                    assert!(self.waiting().any(|known| known.ticket.id == *ticket), "{ticket:?} waits");
                    assert!(*position >= 1 && *position <= self.waiting().count());
                    self.check_bounds(*ticket);
                }
                Effect::Refuse { ticket, refusal } => {
                    let known = self.tickets.remove(ticket).expect("refused once, and not after it has left");
                    assert_eq!(known.permit, None, "who runs is not refused");
                    let by_itself = matches!(refusal, Refusal::WaitedOut { .. });
                    let asked = matches!(event, Event::Drop(_) | Event::Arrived(_));
                    assert!(by_itself || asked, "{event:?} may not drop anybody: {refusal:?}");
                }
                Effect::Held(_) => {}
                Effect::Moved { ticket } => {
                    let known = self.tickets.get(ticket).expect("it is in the queue");
                    assert!(known.permit.is_none(), "{ticket:?} waits no more");
                }
                Effect::Released { why, expired: _ } => assert!(!self.holds.contains_key(&(*why, Scope::All))),
            }
        }
        if let Event::Arrived(ticket) = &event
            && self.tickets.get(&ticket.id).is_some_and(|known| known.permit.is_none())
        {
            assert!(told.contains(&ticket.id), "one that waits is told so: {effects:?}");
        }
        self.check_progress();
    }

    fn waiting(&self) -> impl Iterator<Item = &Known> {
        self.tickets.values().filter(|known| known.permit.is_none())
    }

    fn running(&self, holds: impl Fn(&Known) -> bool) -> u32 {
        u32::try_from(self.tickets.values().filter(|known| known.permit.is_some() && holds(known)).count()).unwrap()
    }

    fn is_held(&self, model: &Arc<str>) -> bool {
        self.holds.keys().any(|(_, scope)| match scope {
            Scope::All => true,
            Scope::Model(held) => held == model,
        })
    }

    fn may_run(&self, model: &Arc<str>) -> u32 {
        let slots = self.slots.get(model).copied().flatten().unwrap_or(self.limits.slots_while_unknown);
        let set = self.limits.of_model(model).running.unwrap_or(u32::MAX);
        slots.min(set).saturating_sub(self.around.get(model).map_or(0, |(busy, _)| *busy))
    }

    fn busy_models(&self) -> BTreeSet<Arc<str>> {
        let running = self.tickets.values().filter(|known| known.permit.is_some());
        let around = self.around.iter().filter(|(_, (busy, _))| *busy > 0).map(|(model, _)| model.clone());
        running.map(|known| known.ticket.model.clone()).chain(around).collect()
    }

    fn check_admitted(&mut self, id: TicketId, permit: Permit) {
        assert!(self.permits.insert(permit), "{permit:?} is given twice");
        let known = self.tickets.get(&id).expect("a ticket that waits").clone();
        assert_eq!(known.permit, None, "{id:?} has a permit already");
        let ticket = &known.ticket;
        let busy = self.busy_models();
        let seats = self.limits.loaded_models.max(1);
        assert!(busy.contains(&ticket.model) || busy.len() < seats, "a model that works would have to go");
        let earlier = self.waiting().find(|other| {
            other.came < known.came
                && (&other.ticket.model, &other.ticket.client, other.ticket.lane)
                    == (&ticket.model, &ticket.client, ticket.lane)
        });
        assert!(earlier.is_none(), "{id:?} passes {earlier:?}");
        assert!(!self.is_held(&ticket.model), "{id:?} is admitted while held");
        let may_run = self.may_run(&ticket.model);
        self.tickets.get_mut(&id).expect("known").permit = Some(permit);
        assert!(self.running(|other| other.ticket.model == known.ticket.model) <= may_run, "beyond the slots");
        let of_client = self.limits.of_client(&known.ticket.client).running.unwrap_or(u32::MAX);
        assert!(self.running(|other| other.ticket.client == known.ticket.client) <= of_client, "beyond the client's");
    }

    fn check_bounds(&self, newest: TicketId) {
        let ticket = &self.tickets[&newest].ticket;
        let of_model = self.waiting().filter(|known| known.ticket.model == ticket.model).count();
        let of_client = self.waiting().filter(|known| known.ticket.client == ticket.client).count();
        assert!(of_model <= self.limits.of_model(&ticket.model).waiting, "beyond the model's bound");
        assert!(of_client <= self.limits.of_client(&ticket.client).waiting, "beyond the client's bound");
        assert!(self.waiting().count() <= self.limits.waiting, "beyond the bound");
    }

    /// Nobody waits for nothing.
    fn check_progress(&self) {
        let could_run = |known: &&Known| {
            let ticket = &known.ticket;
            let of_client = self.limits.of_client(&ticket.client).running.unwrap_or(u32::MAX);
            !self.is_held(&ticket.model)
                && self.may_run(&ticket.model) > 0
                && self.running(|other| other.ticket.client == ticket.client) < of_client
        };
        if self.busy_models().is_empty() && self.queue.lingers_until.is_none() {
            let idle = self.waiting().find(could_run);
            assert!(idle.is_none(), "nothing runs, and {idle:?} waits");
        }
    }

    fn check_snapshot(&self) {
        let snapshot = self.queue.snapshot(self.now);
        let waiting: BTreeSet<TicketId> = snapshot.waiting.iter().map(|waiting| waiting.ticket).collect();
        let running: BTreeMap<TicketId, Permit> =
            snapshot.running.iter().map(|running| (running.ticket, running.permit)).collect();
        assert_eq!(waiting, self.waiting().map(|known| known.ticket.id).collect());
        assert_eq!(waiting.len(), snapshot.waiting.len());
        let held = self.tickets.values().filter_map(|known| Some((known.ticket.id, known.permit?)));
        assert_eq!(running, held.collect());
    }

    /// Lets everything come to its end; nothing may be left.
    fn wind_up(mut self) {
        for (why, scope) in self.holds.keys().cloned().collect::<Vec<_>>() {
            self.holds.remove(&(why, scope.clone()));
            let model = (0..MODELS).find(|model| Scope::Model(model_name(*model)) == scope);
            self.play(Act::Release { why, model });
        }
        self.play(Act::Reload(Box::default()));
        for model in 0..MODELS {
            self.play(Act::Around { model, busy: 0 });
            self.play(Act::Slots { model, slots: Some(2) });
        }
        let mut rounds = 0;
        while !self.tickets.is_empty() {
            rounds += 1;
            assert!(rounds < 1_000, "somebody waits for ever: {:?}", self.tickets);
            self.play(Act::Pass { seconds: 90 });
            self.play(Act::Serve { which: rounds, load_s: None });
        }
        for model in 0..MODELS {
            self.play(Act::Slots { model, slots: None });
        }
        assert!(
            self.queue.requests.is_empty() && self.queue.permits.is_empty() && self.queue.seats.count_asked_for() == 0
        );
        assert_eq!((self.queue.waiting, self.queue.clients.numbers().len()), (0, 0), "no client is remembered");
        let of_use = |model: &&ModelNow| model.loaded || model.costs != Costs::default();
        let snapshot = self.queue.snapshot(self.now);
        assert_eq!(snapshot.models.iter().find(|model| !of_use(model)), None, "no model is remembered for nothing");
    }
}

fn model_name(model: u8) -> Arc<str> {
    format!("m{model}:latest").into()
}

fn scope(model: Option<u8>) -> Scope {
    model.map_or(Scope::All, |model| Scope::Model(model_name(model)))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4_000, failure_persistence: None, ..ProptestConfig::default() })]

    /// No permit is leaked or doubled, no bound is passed, nobody passes an earlier request of his own client, model
    /// and lane, a reload drops nobody, and all come to an end.
    #[test]
    fn whatever_happens_the_queue_keeps_its_promises(
        limits in limits(), acts in prop::collection::vec(act(), 1..32)
    ) {
        let mut ledger = Ledger::new(limits);
        for act in acts {
            ledger.play(act);
        }
        ledger.check_snapshot();
        ledger.wind_up();
    }
}
