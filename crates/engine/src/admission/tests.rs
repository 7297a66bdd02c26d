//! Scenarios of the queue, played by hand: events in, effects out.

mod properties;

use super::*;
use std::collections::BTreeMap;

const A: &str = "a:latest";
const B: &str = "b:latest";

fn at(seconds: u64) -> Awake {
    Awake::from_start(Duration::from_secs(seconds))
}

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn ticket(id: u64, model: &str, client: &str) -> Ticket {
    Ticket { id: TicketId(id), model: model.into(), client: client.into(), lane: Lane::Agent, patience: None }
}

fn in_lane(lane: Lane, ticket: Ticket) -> Ticket {
    Ticket { lane, ..ticket }
}

fn refused(id: u64, refusal: Refusal) -> Effect {
    Effect::Refuse { ticket: TicketId(id), refusal }
}

/// A queue, its clock, and the permits that are held, by ticket.
struct Desk {
    queue: Admission,
    now: u64,
    held: BTreeMap<u64, Permit>,
}

impl Desk {
    fn new(limits: Limits) -> Self {
        Self { queue: Admission::new(limits), now: 0, held: BTreeMap::new() }
    }

    /// One that has measured both models: 5 s of service, 30 s to load.
    fn experienced(limits: Limits) -> Self {
        let mut desk = Self::new(limits);
        for model in [A, B] {
            let costs = Costs { service: Some(seconds(5)), load: Some(seconds(30)) };
            desk.tell(Event::Learnt { model: model.into(), costs });
        }
        desk
    }

    fn tell(&mut self, event: Event) -> Vec<Effect> {
        let effects = self.queue.step(at(self.now), event);
        for effect in &effects {
            if let Effect::Admit { ticket, permit, .. } = effect {
                self.held.insert(ticket.0, *permit);
            }
        }
        effects
    }

    /// Comes; whether it was let through at once.
    fn arrive(&mut self, ticket: Ticket) -> bool {
        let id = ticket.id.0;
        self.tell(Event::Arrived(ticket));
        self.held.contains_key(&id)
    }

    /// Answered after so many seconds; who is let through for it.
    fn serve(&mut self, id: u64, after: u64) -> Vec<u64> {
        self.serve_with(id, after, None)
    }

    fn serve_with(&mut self, id: u64, after: u64, load: Option<u64>) -> Vec<u64> {
        self.now += after;
        let permit = self.held.remove(&id).expect("it runs");
        let load = load.map(seconds);
        admitted(&self.tell(Event::Ended { permit, end: End::Served { load } }))
    }

    /// Serves one after the other as they are let through, so long each; their order.
    fn serve_all(&mut self, first: u64, each: u64) -> Vec<u64> {
        let mut order = vec![first];
        let mut next = Some(first);
        while let Some(id) = next {
            let mut through = self.serve(id, each);
            if let Some((deadline, _)) = self.queue.deadline().filter(|_| through.is_empty()) {
                self.now = deadline.since_start().as_secs();
                through = admitted(&self.tell(Event::Tick));
            }
            order.extend(&through);
            next = through.first().copied();
        }
        order
    }
}

fn admitted(effects: &[Effect]) -> Vec<u64> {
    effects
        .iter()
        .filter_map(|effect| if let Effect::Admit { ticket, .. } = effect { Some(ticket.0) } else { None })
        .collect()
}

#[test]
fn with_one_running_and_ten_waiting_the_next_is_refused_at_once() {
    let mut desk = Desk::new(Limits { model: ModelLimits { waiting: 10, running: None }, ..Limits::default() });
    for id in 0..11 {
        desk.arrive(ticket(id, A, "x"));
    }
    let effects = desk.tell(Event::Arrived(ticket(11, A, "x")));
    assert_eq!(effects, [refused(11, Refusal::ModelFull { at_most: 10 })]);
    desk.tell(Event::Left(TicketId(4)));
    let effects = desk.tell(Event::Arrived(ticket(12, A, "x")));
    let expected = Effect::Wait { ticket: TicketId(12), position: 10, expected: None };
    assert_eq!(effects, [expected], "a waiter that leaves frees its place at once");
}

#[test]
fn a_permit_is_given_back_once() {
    let mut desk = Desk::new(Limits::default());
    assert!(desk.arrive(ticket(1, A, "x")));
    assert!(!desk.arrive(ticket(2, A, "x")) && !desk.arrive(ticket(3, A, "x")));
    let permit = desk.held[&1];
    assert_eq!(desk.serve(1, 5), [2]);
    assert_eq!(desk.tell(Event::Ended { permit, end: End::Failed }), [], "an end that comes twice");
    assert_eq!(desk.tell(Event::Left(TicketId(1))), [], "a client that goes after the end");
    assert_eq!(admitted(&desk.tell(Event::Left(TicketId(2)))), [3], "a client that goes while it is served");
}

#[test]
fn what_could_not_be_sent_waits_again_in_its_old_place() {
    let mut desk = Desk::new(Limits::default());
    for id in 1..4 {
        desk.arrive(ticket(id, A, "x"));
    }
    let permit = desk.held[&1];
    let hold = Event::Hold { why: Why::Unreachable, scope: Scope::All, until: Some(at(60)) };
    assert_eq!(desk.tell(hold), [Effect::Held(Why::Unreachable)]);
    assert_eq!(desk.tell(Event::PutBack(permit)), []);
    let release = Event::Release { why: Why::Unreachable, scope: Scope::All };
    let effects = desk.tell(release.clone());
    assert_eq!(effects[0], Effect::Released { why: Why::Unreachable, expired: false });
    assert_eq!(admitted(&effects), [1]);
    assert_eq!(desk.tell(release), [], "released once");
    assert_eq!(desk.tell(Event::Ended { permit, end: End::Failed }), [], "that permit is not held any more");
    assert_eq!(desk.serve(1, 5), [2]);
}

#[test]
fn while_held_nobody_starts_and_those_who_run_go_on() {
    let mut desk = Desk::new(Limits { loaded_models: 2, ..Limits::default() });
    assert!(desk.arrive(ticket(1, A, "x")));
    desk.tell(Event::Hold { why: Why::Restart, scope: Scope::All, until: Some(at(100)) });
    desk.tell(Event::Hold { why: Why::Paused, scope: Scope::All, until: None });
    assert!(!desk.arrive(ticket(2, A, "x")) && !desk.arrive(ticket(3, B, "x")));
    assert_eq!(desk.serve(1, 10), []);
    desk.tell(Event::Release { why: Why::Paused, scope: Scope::All });
    assert_eq!(desk.held.len(), 0, "two reasons, one of which is left");
    assert_eq!(desk.queue.deadline(), Some((at(100), "a hold ends")));
    desk.now = 100;
    let effects = desk.tell(Event::Tick);
    assert_eq!(effects[0], Effect::Released { why: Why::Restart, expired: true });
    assert_eq!(admitted(&effects), [2, 3]);
}

#[test]
fn a_hold_of_one_model_leaves_the_others_alone() {
    let mut desk = Desk::new(Limits { loaded_models: 2, ..Limits::default() });
    let scope = Scope::Model(A.into());
    assert_eq!(desk.tell(Event::Hold { why: Why::Recovery, scope: scope.clone(), until: None }), []);
    assert!(!desk.arrive(ticket(1, A, "x")));
    assert!(desk.arrive(ticket(2, B, "x")));
    assert_eq!(admitted(&desk.tell(Event::Release { why: Why::Recovery, scope })), [1]);
}

#[test]
fn better_lanes_go_first_and_a_lane_that_was_passed_over_gets_the_next_place() {
    let mut desk = Desk::new(Limits::default());
    desk.arrive(ticket(0, A, "x"));
    desk.arrive(in_lane(Lane::Batch, ticket(1, A, "x")));
    desk.arrive(in_lane(Lane::Agent, ticket(2, A, "x")));
    for id in 3..20 {
        desk.arrive(in_lane(Lane::Interactive, ticket(id, A, "y")));
    }
    let order = desk.serve_all(0, 10);
    assert_eq!(order[..10], [0, 3, 4, 5, 6, 7, 2, 1, 8, 9], "60 s are over when the sixth has been answered");
}

#[test]
fn a_request_that_is_moved_to_another_lane_keeps_its_age() {
    let mut desk = Desk::new(Limits::default());
    for id in 0..3 {
        desk.arrive(ticket(id, A, "x"));
    }
    desk.arrive(in_lane(Lane::Batch, ticket(3, A, "x")));
    desk.arrive(in_lane(Lane::Interactive, ticket(4, A, "x")));
    desk.tell(Event::Move { ticket: TicketId(3), lane: Lane::Interactive });
    desk.tell(Event::Move { ticket: TicketId(1), lane: Lane::Batch });
    assert_eq!(desk.serve_all(0, 1), [0, 3, 4, 2, 1]);
}

#[test]
fn requests_for_the_model_in_memory_go_before_a_switch_up_to_the_bound() {
    let mut desk = Desk::experienced(Limits { linger: Duration::ZERO, ..Limits::default() });
    desk.arrive(ticket(0, A, "x"));
    assert_eq!(desk.serve_with(0, 35, Some(30)), [0; 0]);
    for id in 1..60 {
        let model = if id % 2 == 0 { A } else { B };
        desk.arrive(ticket(id, model, "x"));
    }
    let order = desk.serve_all(1, 10);
    let of_b = order.iter().take_while(|id| *id % 2 == 1).count();
    assert_eq!(of_b, 13, "120 s with others waiting, rounded up to the next end: {order:?}");
    assert_eq!(order.len(), 59);
    let switches = order.windows(2).filter(|pair| pair[0] % 2 != pair[1] % 2).count();
    assert_eq!(switches as u64 + 1, desk.queue.snapshot(at(desk.now)).switches);
}

#[test]
fn a_model_that_works_is_never_made_to_go() {
    let mut desk = Desk::new(Limits { slots_while_unknown: 2, affinity: Duration::ZERO, ..Limits::default() });
    assert!(desk.arrive(ticket(1, A, "x")) && desk.arrive(ticket(2, A, "y")));
    assert!(!desk.arrive(ticket(3, B, "x")));
    assert_eq!(desk.serve(1, 5), [0; 0], "the other one still runs");
    assert!(!desk.arrive(ticket(4, A, "x")), "its seat is given up, so nothing more is let through");
    desk.now += 5;
    let permit = desk.held[&2];
    let effects = desk.tell(Event::Ended { permit, end: End::Served { load: None } });
    assert_eq!(admitted(&effects), [3]);
    let Effect::Admit { start, .. } = &effects[0] else { panic!("{effects:?}") };
    assert_eq!(*start, Start::Switch { from: A.into() });
}

#[test]
fn a_better_lane_takes_the_seat_when_it_has_paid_for_itself() {
    let mut desk = Desk::experienced(Limits::default());
    for id in 0..40 {
        desk.arrive(ticket(id, A, "x"));
    }
    assert_eq!(desk.serve_with(0, 35, Some(30)), [1]);
    desk.arrive(in_lane(Lane::Interactive, ticket(50, B, "y")));
    let order = desk.serve_all(1, 5);
    assert_eq!(order[..7], [1, 2, 3, 4, 5, 50, 6], "30 s after its loading, the cost of the switch");
}

#[test]
fn an_idle_model_is_kept_for_a_moment_for_the_request_that_follows() {
    let mut desk = Desk::experienced(Limits::default());
    desk.arrive(ticket(0, A, "x"));
    desk.arrive(ticket(1, B, "y"));
    assert_eq!(desk.serve_with(0, 35, Some(30)), [0; 0]);
    assert_eq!(desk.queue.deadline(), Some((at(37), "an idle model gives way")));
    desk.now += 1;
    assert!(desk.arrive(ticket(2, A, "x")), "the conversation goes on");
    assert_eq!(desk.serve(2, 5), [0; 0]);
    desk.now += 2;
    assert_eq!(admitted(&desk.tell(Event::Tick)), [1]);
    let mut inexperienced = Desk::new(Limits::default());
    inexperienced.arrive(ticket(0, A, "x"));
    inexperienced.arrive(ticket(1, B, "y"));
    assert_eq!(inexperienced.serve(0, 35), [1], "nobody knows that a switch costs anything");
}

#[test]
fn clients_share_service_time_not_turns() {
    let limits = Limits { quantum: seconds(1), ..Limits::default() };
    let mut desk = Desk::new(limits);
    desk.arrive(ticket(0, A, "long"));
    for id in 1..20 {
        desk.arrive(ticket(id, A, if id < 4 { "long" } else { "short" }));
    }
    let mut order = vec![0];
    while let Some(id) = order.last().copied().filter(|id| desk.held.contains_key(id)) {
        order.extend(desk.serve(id, if id < 4 { 30 } else { 3 }));
    }
    let until_the_next_long_one = order.iter().skip(1).take_while(|id| **id >= 4).count();
    assert_eq!(until_the_next_long_one, 10, "30 s of one are 10 × 3 s of the other: {order:?}");
}

#[test]
fn who_causes_a_switch_is_charged_for_it() {
    let mut desk = Desk::new(Limits { quantum: seconds(1), ..Limits::default() });
    desk.arrive(ticket(0, A, "first"));
    for id in 1..4 {
        desk.arrive(ticket(id, A, "first"));
        desk.arrive(ticket(id + 10, A, "second"));
    }
    assert_eq!(desk.serve_with(0, 35, Some(30)), [11]);
    assert_eq!(desk.serve_all(11, 5), [11, 12, 13, 1, 2, 3]);
}

#[test]
fn a_client_at_its_limit_lets_the_others_pass() {
    let one = ClientLimits { running: Some(1), ..ClientLimits::default() };
    let clients = [("x".into(), one)].into();
    let mut desk = Desk::new(Limits { slots_while_unknown: 2, clients, ..Limits::default() });
    assert!(desk.arrive(ticket(1, A, "x")));
    assert!(!desk.arrive(ticket(2, A, "x")), "a slot is free, but not for this client");
    assert!(desk.arrive(ticket(3, A, "y")));
    assert!(!desk.arrive(ticket(4, A, "y")));
    assert_eq!(desk.serve(3, 5), [4]);
    assert_eq!(desk.serve(4, 5), [0; 0]);
    assert_eq!(desk.serve(1, 5), [2]);
}

#[test]
fn a_stream_of_strangers_does_not_keep_one_who_is_in_debt_waiting_for_ever() {
    let mut desk = Desk::new(Limits { quantum: seconds(1), ..Limits::default() });
    desk.arrive(ticket(0, A, "debtor"));
    desk.arrive(ticket(1, A, "debtor"));
    desk.arrive(ticket(100, A, "stranger 0"));
    let mut next = desk.serve(0, 60)[0];
    let mut strangers = 0;
    while next != 1 {
        strangers += 1;
        assert!(strangers < 40, "60 s of debt, shared by two, are 30 strangers of 4 s");
        desk.arrive(ticket(100 + strangers, A, &format!("stranger {strangers}")));
        next = desk.serve(next, 4)[0];
    }
    assert!(strangers > 10, "and the debt counts: {strangers}");
}

#[test]
fn who_would_give_up_before_its_turn_is_told_at_once() {
    let mut desk = Desk::experienced(Limits::default());
    for id in 0..5 {
        desk.arrive(ticket(id, A, "x"));
    }
    let hasty = Ticket { patience: Some(seconds(10)), ..ticket(5, A, "x") };
    let effects = desk.tell(Event::Arrived(hasty));
    assert_eq!(effects, [refused(5, Refusal::TooLate { expected: Duration::from_millis(22_500) })]);
    let patient = Ticket { patience: Some(seconds(25)), ..ticket(6, A, "x") };
    let waits = Effect::Wait { ticket: TicketId(6), position: 5, expected: Some(Duration::from_millis(22_500)) };
    assert_eq!(desk.tell(Event::Arrived(patient)), [waits]);
    assert_eq!(desk.queue.deadline(), Some((at(25), "a client gives up")));
    desk.now = 25;
    assert_eq!(desk.tell(Event::Tick), [refused(6, Refusal::WaitedOut { waited: seconds(25) })]);
}

#[test]
fn no_patience_at_all_is_enough_for_a_free_slot() {
    let mut desk = Desk::new(Limits::default());
    assert!(desk.arrive(Ticket { patience: Some(Duration::ZERO), ..ticket(1, A, "x") }));
    let effects = desk.tell(Event::Arrived(Ticket { patience: Some(Duration::ZERO), ..ticket(2, A, "x") }));
    assert_eq!(effects, [refused(2, Refusal::WaitedOut { waited: Duration::ZERO })]);
}

#[test]
fn the_runners_real_slots_count_less_what_goes_around() {
    let running = ModelLimits { running: Some(3), ..ModelLimits::default() };
    let mut desk = Desk::new(Limits { models: [(A.into(), running)].into(), ..Limits::default() });
    for id in 0..8 {
        desk.arrive(ticket(id, A, "x"));
    }
    assert_eq!(desk.held.len(), 1, "a runner that nobody has seen has one");
    desk.tell(Event::Around { model: A.into(), busy: 1 });
    let through = desk.tell(Event::Slots { model: A.into(), slots: Some(4) });
    assert_eq!(admitted(&through), [1], "three by the settings, one of them taken");
    assert_eq!(admitted(&desk.tell(Event::Around { model: A.into(), busy: 0 })), [2]);
    desk.tell(Event::Slots { model: A.into(), slots: Some(1) });
    assert_eq!((desk.serve(0, 5), desk.serve(1, 5), desk.serve(2, 5)), (vec![], vec![], vec![3]));
}

#[test]
fn what_went_around_has_gone_with_its_runner() {
    let mut desk = Desk::new(Limits { loaded_models: 1, ..Limits::default() });
    desk.tell(Event::Around { model: A.into(), busy: 1 });
    assert!(!desk.arrive(ticket(1, B, "x")), "somebody is in the one model that has room");
    desk.now += 5;
    let gone = Event::Loaded { models: vec![], asked: Awake::from_start(Duration::from_secs(desk.now)) };
    assert_eq!(admitted(&desk.tell(gone)), [1]);
}

#[test]
fn a_reload_drops_nobody() {
    let mut desk = Desk::new(Limits::default());
    for id in 0..20 {
        desk.arrive(ticket(id, A, "x"));
    }
    let narrow = Limits { waiting: 5, ..Limits::default() };
    assert_eq!(desk.tell(Event::Reloaded(Box::new(narrow))), []);
    assert_eq!(desk.tell(Event::Arrived(ticket(20, A, "x"))), [refused(20, Refusal::Full { at_most: 5 })]);
    assert_eq!(desk.serve_all(0, 1), (0..20).collect::<Vec<_>>());
}

#[test]
fn news_of_the_memory_that_is_older_than_a_switch_changes_nothing() {
    let mut desk = Desk::new(Limits::default());
    desk.tell(Event::Loaded { models: vec![A.into()], asked: at(0) });
    desk.now = 10;
    assert!(desk.arrive(ticket(1, B, "x")));
    desk.tell(Event::Loaded { models: vec![A.into()], asked: at(9) });
    let loaded = |desk: &Desk| -> Vec<Arc<str>> {
        let models = desk.queue.snapshot(at(desk.now)).models;
        models.into_iter().filter(|model| model.loaded).map(|model| model.model).collect()
    };
    assert_eq!(loaded(&desk), [B.into()]);
    desk.now = 60;
    desk.serve(1, 0);
    desk.tell(Event::Loaded { models: vec![], asked: at(61) });
    assert_eq!(loaded(&desk), []);
}

#[test]
fn costs_are_learnt_and_survive_a_restart() {
    let mut desk = Desk::new(Limits::default());
    desk.arrive(ticket(1, A, "x"));
    desk.serve_with(1, 36, Some(30));
    let costs = desk.queue.costs();
    assert_eq!(costs[A], Costs { service: Some(seconds(6)), load: Some(seconds(30)) });
    let mut next = Desk::new(Limits::default());
    next.tell(Event::Learnt { model: A.into(), costs: costs[A] });
    assert_eq!(next.queue.costs(), costs);
}

#[test]
fn a_failure_teaches_nothing_and_what_was_not_loaded_is_not_in_memory() {
    let mut desk = Desk::new(Limits::default());
    desk.arrive(ticket(1, A, "x"));
    let permit = desk.held[&1];
    desk.now = 3;
    desk.tell(Event::Ended { permit, end: End::Failed });
    assert_eq!(desk.queue.costs(), BTreeMap::new());
    assert_eq!(desk.queue.snapshot(at(3)), Snapshot::default(), "a name that came once is forgotten");
}

#[test]
fn a_person_can_drop_who_waits_but_not_who_runs() {
    let mut desk = Desk::new(Limits::default());
    desk.arrive(ticket(1, A, "x"));
    desk.arrive(ticket(2, A, "x"));
    assert_eq!(desk.tell(Event::Drop(TicketId(1))), []);
    assert_eq!(desk.tell(Event::Drop(TicketId(2))), [refused(2, Refusal::Dropped)]);
    assert_eq!(desk.tell(Event::Drop(TicketId(2))), []);
}

#[test]
fn a_request_that_runs_waits_in_no_lane() {
    let mut queue = Admission::new(Limits::default());
    let ticket = Ticket { id: TicketId(1), model: A.into(), client: "x".into(), lane: Lane::Agent, patience: None };
    let start = Awake::from_start(Duration::ZERO);
    queue.step(start, Event::Arrived(ticket));
    assert_eq!(queue.step(start, Event::Move { ticket: TicketId(1), lane: Lane::Agent }), []);
}

#[test]
fn whoever_has_left_is_told_nothing_any_more() {
    let mut queue = Admission::new(Limits::default());
    let ticket =
        |id, patience| Ticket { id: TicketId(id), model: A.into(), client: "x".into(), lane: Lane::Agent, patience };
    let start = Awake::from_start(Duration::ZERO);
    queue.step(start, Event::Arrived(ticket(1, None)));
    queue.step(start, Event::Arrived(ticket(2, Some(Duration::from_secs(5)))));
    let late = start + Duration::from_secs(10);
    assert_eq!(queue.step(late, Event::Left(TicketId(2))), [], "it leaves at the moment at which it gives up");
}

#[test]
fn the_snapshot_tells_the_order_of_turns() {
    let mut desk = Desk::experienced(Limits { quantum: seconds(1), ..Limits::default() });
    for (id, client) in [(0, "x"), (1, "x"), (2, "x"), (3, "y")] {
        desk.arrive(ticket(id, A, client));
    }
    desk.arrive(in_lane(Lane::Interactive, ticket(4, A, "z")));
    desk.now = 2;
    let snapshot = desk.queue.snapshot(at(2));
    let order: Vec<(u64, usize)> = snapshot.waiting.iter().map(|next| (next.ticket.0, next.position)).collect();
    assert_eq!(order, [(4, 1), (3, 2), (1, 3), (2, 4)]);
    assert_eq!(snapshot.waiting[1].expected, Some(Duration::from_millis(7_500)));
    assert_eq!((snapshot.running.len(), snapshot.running[0].running), (1, seconds(2)));
}
