//! An upgrade has the server's life in its hands.

use super::bench::{Bench, Fault};
use super::*;

fn start() -> Goal {
    Goal::Restart { desired: Values::new() }
}

#[test]
fn a_server_that_an_upgrade_has_stopped_stays_stopped_until_it_is_started_by_it() {
    for mut bench in [Bench::with_app(), Bench::with_own_process()] {
        bench.settle();
        let stop = bench.upgrade_wishes(Goal::Stop);
        bench.run_for(300);
        assert_eq!(bench.outcomes[&stop], Outcome::Stopped);
        assert_eq!(bench.supervisor.state().word(), "upgrading");
        assert_eq!((bench.started, bench.server), (0, None), "nobody revives it");
        assert_eq!((bench.holds.last(), bench.alerts.len()), (Some(&true), 0));
        let started = bench.upgrade_wishes(start());
        bench.run_for(60);
        assert_eq!(bench.outcomes[&started], Outcome::Proven);
        assert_eq!((bench.started, bench.supervisor.state().word()), (1, "up"));
        assert_eq!(bench.supervisor.deaths(), 0, "a stop is no death");
    }
}

#[test]
fn what_others_wish_meanwhile_is_refused_in_words() {
    let mut bench = Bench::with_app();
    bench.settle();
    bench.upgrade_wishes(Goal::Stop);
    bench.run_for(60);
    bench.ask("1");
    assert_eq!(bench.outcome(), Some(&Outcome::Refused(Refusal::Upgrading)));
    assert_eq!(bench.supervisor.state().word(), "upgrading");
}

#[test]
fn a_version_that_never_answers_is_the_upgrades_business_and_nobody_gives_up() {
    let mut bench = Bench::with_app();
    bench.settle();
    bench.upgrade_wishes(Goal::Stop);
    bench.run_for(60);
    bench.fault = Fault::NeverAnswers;
    let started = bench.upgrade_wishes(start());
    bench.run_for(700);
    assert!(matches!(bench.outcomes[&started], Outcome::Failed { step: Step::AwaitAnswer { .. }, .. }));
    assert_eq!((bench.started, bench.supervisor.state().word()), (1, "upgrading"), "it is not tried a second time");
    assert_eq!(bench.alerts, [], "the upgrade has words of its own");
    bench.fault = Fault::None;
    bench.upgrade_wishes(Goal::Stop);
    bench.run_for(60);
    let back = bench.upgrade_wishes(start());
    bench.run_for(60);
    assert_eq!(bench.outcomes[&back], Outcome::Proven);
}

#[test]
fn a_stop_that_the_owner_takes_back_is_tried_twice_and_fails() {
    let mut bench = Bench::with_app();
    bench.settle();
    bench.fault = Fault::OwnerRespawns;
    let stop = bench.upgrade_wishes(Goal::Stop);
    bench.run_for(300);
    let Outcome::Failed { failure, .. } = &bench.outcomes[&stop] else { panic!("{:?}", bench.outcomes[&stop]) };
    assert_eq!((failure.code, bench.stops), ("came-back", 2));
}

#[test]
fn what_is_handed_back_is_looked_after_as_before() {
    let mut bench = Bench::with_own_process();
    bench.settle();
    bench.event(Event::HandedOver);
    bench.kill_server();
    bench.run_for(300);
    assert_eq!((bench.started, bench.supervisor.state().word()), (0, "upgrading"));
    bench.event(Event::HandedBack);
    bench.respawn("4".to_owned());
    bench.run_for(20);
    assert_eq!(bench.supervisor.state().word(), "up");
    bench.event(Event::HandedBack);
    assert_eq!(bench.supervisor.state().word(), "up", "what is nobody's is not taken");
}
