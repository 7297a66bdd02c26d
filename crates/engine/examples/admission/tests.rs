//! What must hold for the figures to mean anything, and the bounds that docs/admission.md states.

use crate::report::Report;
use crate::scene::Scene;
use crate::world::{Comes, Fate, Request, Setup, play};
use proptest::prelude::*;
use stablehand_engine::admission::{Lane, Limits};
use std::collections::BTreeSet;
use std::time::Duration;

#[test]
fn two_models_in_turn_take_at_most_a_third_of_first_come_first_served() {
    for seed in 0..20 {
        let report = Report::new(seed, Duration::from_secs(120));
        let (ours, arrival) = report.figures(Scene::Queued).unwrap();
        assert!(ours.makespan_s * 3.0 <= arrival.makespan_s, "{ours:?} {arrival:?}");
        assert_eq!(arrival.switches, 199, "each request needs the other model");
    }
}

/// A part of the requests of one lane and model.
type Place = (u8, Lane);

/// What is stated, for one setup.
struct Bounds {
    /// From one turn of a model that is asked for to the next: G.
    model: Duration,
    /// From one turn of a lane of it to the next.
    lane: Duration,
    /// What another client of the lane can get more than one that waits.
    lead: Duration,
}

impl Bounds {
    fn of(setup: &Setup, fates: &[Fate]) -> Self {
        let Limits { affinity, ageing, linger, quantum, .. } = setup.limits;
        let longest = fates.iter().map(held).max().unwrap_or_default();
        let models: BTreeSet<u8> = setup.requests.iter().map(|request| request.model).collect();
        let others = u32::try_from(models.len()).unwrap() - 1;
        let model = longest + ageing + (affinity + longest * 2 + linger) * others;
        let elsewhere = affinity * others.min(1);
        Self { model, lane: ageing + model * 3, lead: quantum * 2 + longest * (4 * setup.slots) + elsewhere }
    }
}

/// How long it has held its permit.
fn held(fate: &Fate) -> Duration {
    fate.ended.unwrap_or_default().saturating_sub(fate.admitted.unwrap_or_default())
}

/// The most service that another client of this lane of this model got while this one waited, less its own.
fn most_lead(setup: &Setup, fates: &[Fate], place: Place, client: u8) -> Duration {
    let there = setup.requests.iter().zip(fates).filter(|(request, _)| (request.model, request.lane) == place);
    let there: Vec<_> = there.collect();
    let own = there.iter().filter(|(request, _)| request.client == client);
    // Spans in which it waits without a gap.
    let mut spans: Vec<(Duration, Duration)> = Vec::new();
    let mut waits: Vec<_> = own.map(|(_, fate)| (fate.arrived, fate.admitted.unwrap())).collect();
    waits.sort_unstable();
    for (from, to) in waits {
        match spans.last_mut() {
            Some(last) if from < last.1 => last.1 = last.1.max(to),
            Some(_) | None => spans.push((from, to)),
        }
    }
    let got = |client: u8, (from, to): (Duration, Duration)| -> Duration {
        let begun = there.iter().filter(|(request, fate)| {
            request.client == client && fate.admitted.is_some_and(|at| at >= from && at < to)
        });
        begun.map(|(_, fate)| held(fate)).sum()
    };
    let others = || (0..8).filter(|other| *other != client);
    let leads =
        spans.iter().flat_map(|span| others().map(|other| got(other, *span).saturating_sub(got(client, *span))));
    leads.max().unwrap_or_default()
}

fn seconds(span: std::ops::Range<f64>) -> impl Strategy<Value = Duration> {
    span.prop_map(Duration::from_secs_f64)
}

fn limits() -> impl Strategy<Value = Limits> {
    (1..3_usize, seconds(0.0..90.0), seconds(0.0..60.0), seconds(0.0..15.0), seconds(0.0..4.0)).prop_map(
        |(loaded_models, affinity, ageing, quantum, linger)| Limits {
            loaded_models,
            affinity,
            ageing,
            quantum,
            linger,
            ..Limits::default()
        },
    )
}

fn lane() -> impl Strategy<Value = Lane> {
    prop::sample::select(Lane::ALL.to_vec())
}

/// Requests in conversations and on their own.
fn requests(models: u8, clients: u8) -> impl Strategy<Value = Vec<Request>> {
    let comes = prop_oneof![
        3 => seconds(0.0..120.0).prop_map(Comes::At),
        4 => (0..1_000_usize, seconds(0.0..3.0)).prop_map(|(other, pause)| Comes::After(other, pause)),
    ];
    let request = (0..models, 0..clients, lane(), comes, seconds(0.5..12.0));
    prop::collection::vec(request, 20..70).prop_map(|requests| {
        let requests = requests.into_iter().enumerate();
        let requests = requests.map(|(at, (model, client, lane, comes, service))| {
            let comes = match comes {
                Comes::After(_, pause) if at == 0 => Comes::At(pause),
                Comes::After(other, pause) => Comes::After(other % at, pause),
                Comes::At(time) => Comes::At(time),
            };
            Request { model, client, lane, comes, service }
        });
        requests.collect()
    })
}

fn setups() -> impl Strategy<Value = Setup> {
    (1..4_u8, 1..5_u8).prop_flat_map(|(models, clients)| {
        (limits(), 1..3_u32, seconds(0.0..20.0), requests(models, clients))
            .prop_map(|(limits, slots, load, requests)| Setup { limits, slots, load, requests })
    })
}

/// The longest time in which somebody waited at this place and nobody had a turn there.
fn longest_gap(setup: &Setup, fates: &[Fate], is_there: impl Fn(Place) -> bool) -> Duration {
    let there = setup.requests.iter().zip(fates).filter(|(request, _)| is_there((request.model, request.lane)));
    // At one instant turns come before arrivals: one that goes at once has not waited.
    let mut moments: Vec<(Duration, i32)> =
        there.flat_map(|(_, fate)| [(fate.arrived, 1), (fate.admitted.unwrap(), -1)]).collect();
    moments.sort_unstable_by_key(|(at, change)| (*at, -change));
    let (mut waiting, mut since, mut longest) = (0, Duration::ZERO, Duration::ZERO);
    for (at, change) in moments {
        if waiting > 0 && change < 0 {
            longest = longest.max(at.saturating_sub(since));
        }
        if waiting == 0 || change < 0 {
            since = at;
        }
        waiting += change;
    }
    longest
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3_000, failure_persistence: None, ..ProptestConfig::default() })]

    /// All are served, no model and no lane is passed over for longer than the stated bounds, and no client gets
    /// more than the stated lead on one that waits.
    #[test]
    fn nobody_starves(setup in setups()) {
        let fates = play(&setup);
        for (request, fate) in setup.requests.iter().zip(&fates) {
            prop_assert!(fate.ended.is_some(), "{request:?} {fate:?}");
        }
        let bounds = Bounds::of(&setup, &fates);
        for model in 0..4 {
            let gap = longest_gap(&setup, &fates, |(other, _)| other == model);
            prop_assert!(gap <= bounds.model, "model {model}: {gap:?} of {:?}", bounds.model);
            for lane in Lane::ALL {
                let gap = longest_gap(&setup, &fates, |place| place == (model, lane));
                prop_assert!(gap <= bounds.lane, "model {model}, {lane:?}: {gap:?} of {:?}", bounds.lane);
                for client in 0..5 {
                    let lead = most_lead(&setup, &fates, (model, lane), client);
                    prop_assert!(lead <= bounds.lead, "{model}, {lane:?}, {client}: {lead:?} of {:?}", bounds.lead);
                }
            }
        }
    }

    /// Clients that always wait for the same model in the same lane get the same service time, whatever their
    /// requests are like, up to the stated difference.
    #[test]
    fn clients_share_service_time_not_turns(
        quantum in seconds(0.0..20.0),
        slots in 1..4_u32,
        services in prop::collection::vec((0.5..12.0_f64, 0.5..12.0_f64), 2..5),
    ) {
        const REQUESTS: usize = 40;
        let mut requests = Vec::new();
        for at in 0..REQUESTS {
            for (client, (even, odd)) in services.iter().enumerate() {
                let service = Duration::from_secs_f64(if at % 2 == 0 { *even } else { *odd });
                let comes = Comes::At(Duration::ZERO);
                requests.push(Request { model: 0, client: client as u8, lane: Lane::Agent, comes, service });
            }
        }
        let limits = Limits { quantum, ..Limits::default() };
        let setup = Setup { limits, slots, load: Duration::ZERO, requests };
        let fates = play(&setup);
        let longest = fates.iter().map(held).max().unwrap();
        let last_turn = |client: u8| {
            let of_client = setup.requests.iter().zip(&fates).filter(|(request, _)| request.client == client);
            of_client.filter_map(|(_, fate)| fate.admitted).max().unwrap()
        };
        let clients = || 0..services.len() as u8;
        // Until then all of them have waited.
        let until = clients().map(last_turn).min().unwrap();
        let service = |client: u8| -> Duration {
            let of_client = setup.requests.iter().zip(&fates).filter(|(request, _)| request.client == client);
            let begun = of_client.filter(|(_, fate)| fate.admitted.unwrap() < until);
            begun.map(|(request, _)| request.service).sum()
        };
        let (least, most) = (clients().map(service).min().unwrap(), clients().map(service).max().unwrap());
        let allowed = quantum + longest * (slots + 1);
        prop_assert!(most - least <= allowed, "{least:?} and {most:?} differ by more than {allowed:?}");
    }
}
