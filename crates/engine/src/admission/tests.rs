//! Scenarios of the queue, played by hand: events in, effects out.

mod properties;

use super::*;
use std::collections::BTreeMap;

const A: &str = "a:latest";

fn at(seconds: u64) -> Awake {
    Awake::from_start(Duration::from_secs(seconds))
}

fn ticket(id: u64, model: &str, client: &str) -> Ticket {
    Ticket { id: TicketId(id), model: model.into(), client: client.into(), lane: Lane::Agent, patience: None }
}

fn admitted(effects: &[Effect]) -> Vec<u64> {
    effects
        .iter()
        .filter_map(|effect| if let Effect::Admit { ticket, .. } = effect { Some(ticket.0) } else { None })
        .collect()
}

#[test]
fn with_one_running_and_ten_waiting_the_next_is_refused_at_once() {
    let limits = Limits { model: ModelLimits { waiting: 10, running: None }, ..Limits::default() };
    let mut queue = Admission::new(limits);
    for id in 0..11 {
        queue.step(at(0), Event::Arrived(ticket(id, A, "x")));
    }
    let refused = Effect::Refuse { ticket: TicketId(11), refusal: Refusal::ModelFull { at_most: 10 } };
    assert_eq!(queue.step(at(0), Event::Arrived(ticket(11, A, "x"))), [refused]);
    let ended = Event::Ended { permit: Permit(1), end: End::Served { load: None } };
    assert_eq!(admitted(&queue.step(at(5), ended.clone())), [1]);
    assert_eq!(queue.step(at(5), ended), [], "an end that comes twice");
}
