//! What one decision of the queue costs while 10,000 requests wait.
//!
//! A decision is all that one event brings about: a request ends and another one gets its permit, or a request comes
//! and finds its place. Both are measured together, so that the queue stays as long as it is; the figure per decision
//! is half of it. Run by `scripts/bench admission`.

use criterion::{Criterion, criterion_group, criterion_main};
use stablehand_engine::admission::{
    Admission, ClientLimits, Effect, End, Event, Lane, Limits, ModelLimits, Permit, Ticket, TicketId,
};
use stablehand_engine::time::Awake;
use std::collections::VecDeque;
use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

const WAITING: u64 = 10_000;

/// Who waits.
struct Crowd {
    /// Its name in the output.
    name: &'static str,
    clients: u64,
    models: u64,
    /// Each names a time at which it gives up.
    patient: bool,
}

const CROWDS: [Crowd; 4] = [
    Crowd { name: "4-clients-2-models", clients: 4, models: 2, patient: false },
    Crowd { name: "100-clients-8-models", clients: 100, models: 8, patient: true },
    Crowd { name: "10000-clients-2-models", clients: 10_000, models: 2, patient: true },
    Crowd { name: "100-clients-50-models", clients: 100, models: 50, patient: true },
];

struct Queue {
    queue: Admission,
    permits: VecDeque<Permit>,
    tickets: Vec<Ticket>,
    next: u64,
    now: Awake,
}

impl Queue {
    fn new(crowd: &Crowd) -> Self {
        let model = ModelLimits { waiting: usize::MAX, running: None };
        let client = ClientLimits { running: Some(8), ..ClientLimits::default() };
        let limits = Limits { waiting: usize::MAX, slots_while_unknown: 4, model, client, ..Limits::default() };
        let clients: Vec<Arc<str>> = (0..crowd.clients).map(|client| format!("client-{client}").into()).collect();
        let models: Vec<Arc<str>> = (0..crowd.models).map(|model| format!("model-{model}:latest").into()).collect();
        let patience = crowd.patient.then_some(Duration::from_secs(1_000_000));
        let tickets = (0..WAITING).map(|at| Ticket {
            id: TicketId(0),
            model: models[(at / 3 % crowd.models) as usize].clone(),
            client: clients[(at % crowd.clients) as usize].clone(),
            lane: Lane::ALL[(at % 3) as usize],
            patience,
        });
        let tickets = tickets.collect();
        let mut queue =
            Self { queue: Admission::new(limits), permits: VecDeque::new(), tickets, next: 0, now: Awake::default() };
        while queue.next < WAITING + 4 {
            queue.arrive();
        }
        queue
    }

    fn take(&mut self, effects: &[Effect]) {
        self.permits.extend(effects.iter().filter_map(|effect| match effect {
            Effect::Admit { permit, .. } => Some(*permit),
            Effect::Wait { .. }
            | Effect::Refuse { .. }
            | Effect::Moved { .. }
            | Effect::Held(_)
            | Effect::Released { .. } => None,
        }));
    }

    fn arrive(&mut self) {
        let ticket = self.tickets[(self.next % WAITING) as usize].clone();
        let ticket = Ticket { id: TicketId(self.next), ..ticket };
        self.next += 1;
        let effects = self.queue.step(self.now, Event::Arrived(ticket));
        self.take(black_box(&effects));
    }

    fn end(&mut self) {
        self.now = self.now + Duration::from_secs(2);
        if let Some(permit) = self.permits.pop_front() {
            let effects = self.queue.step(self.now, Event::Ended { permit, end: End::Served { load: None } });
            self.take(black_box(&effects));
        }
    }
}

fn decisions(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("admission");
    for crowd in &CROWDS {
        let mut queue = Queue::new(crowd);
        group.bench_function(crowd.name, |bencher| {
            bencher.iter(|| {
                queue.end();
                queue.arrive();
            });
        });
    }
    group.finish();
}

criterion_group!(benches, decisions);
criterion_main!(benches);
