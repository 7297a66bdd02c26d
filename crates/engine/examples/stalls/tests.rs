//! What must hold for the figures to mean anything.

use crate::oracle::Oracle;
use crate::random::Random;
use crate::replay::replay;
use crate::report::{Part, Report};
use crate::traces::setup::Class;
use crate::traces::{HEALTHY, STALLED, sight};

/// Seconds of a healthy trace here; the benchmark itself checks all its hours.
const SHORT_S: f64 = 1_200.0;

#[test]
fn there_are_enough_kinds_and_no_name_is_used_twice() {
    let mut names: Vec<&str> = HEALTHY.iter().chain(STALLED).map(|kind| kind.name).collect();
    let count = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), count);
    assert!(HEALTHY.len() >= 20 && STALLED.len() >= 20, "{} and {}", HEALTHY.len(), STALLED.len());
}

#[test]
fn the_same_seed_gives_the_same_trace_and_another_seed_another() {
    let trace = |seed| {
        let mut world = HEALTHY[0].world(Class::Llama, seed, 3);
        let mut seen = sight::nothing();
        let mut looks = Vec::new();
        for _ in 0..600 {
            world.tick(1_000);
            sight::look(&mut world, &mut seen);
            looks.push(seen.clone());
        }
        looks
    };
    assert_eq!(trace(5), trace(5));
    assert_ne!(trace(5), trace(6));
}

#[test]
fn numbers_stay_in_their_range() {
    let mut random = Random::new(1, &[2]);
    for _ in 0..10_000 {
        assert!((20.0..=2_000.0).contains(&random.scaled((20.0, 2_000.0))));
        assert!((3..=5).contains(&random.whole((3, 5))));
        assert!((0.0..1.0).contains(&random.unit()));
    }
}

#[test]
fn the_oracle_proves_nothing_against_healthy_work() {
    for kind in HEALTHY {
        for &class in kind.classes {
            let outcome = replay(kind, class, 11, 0, Some(SHORT_S));
            assert_eq!(outcome.oracle_errors, 0, "{}, {}", class.name(), kind.name);
            assert!(outcome.stall.is_none());
        }
    }
}

#[test]
fn the_oracle_proves_a_stall_only_after_it_began_and_against_the_culprit() {
    for kind in STALLED {
        let outcome = replay(kind, kind.classes[0], 12, 0, None);
        assert_eq!(outcome.oracle_errors, 0, "{}", kind.name);
        let stall = outcome.stall.unwrap_or_else(|| panic!("{}: nothing went wrong", kind.name));
        assert!(stall.provable_s.is_none_or(|provable_s| provable_s >= outcome.healthy_s), "{}", kind.name);
    }
}

#[test]
fn a_look_at_nothing_proves_nothing() {
    let world = HEALTHY[0].world(Class::Blind, 1, 0);
    assert_eq!(Oracle::default().look(world.now(), &sight::nothing()), None);
}

#[test]
fn the_json_has_the_promised_shape() {
    let kind = &STALLED[0];
    let outcomes = vec![replay(kind, Class::Llama, 13, 0, None)];
    let json = Report { seed: 13, parts: vec![Part { class: Class::Llama, kind: kind.name, outcomes }] }.json();
    assert_eq!(json["seed"], 13);
    assert_eq!(json["rules"][0]["rule"], "stablehand");
    for key in ["recall", "false_kills_per_1000_healthy_hours", "median_seconds_to_verdict", "worst_seconds_to_verdict"]
    {
        assert!(json["rules"][1].get(key).is_some(), "{key}");
    }
    assert_eq!(json["rules"].as_array().map(Vec::len), Some(6));
    assert_eq!(json["classes"].as_array().map(Vec::len), Some(4));
}
