//! Scenarios and properties, played against a small model of a machine with one server.

mod bench;
mod diagram;
mod properties;
mod upgrading;

use super::*;
use crate::plan::{Again, Stop};
use bench::{Bench, Fault};

#[test]
fn an_apply_ends_proven_and_holds_requests_only_while_no_server_is_ready() {
    let mut bench = Bench::with_app();
    bench.settle();
    assert_eq!(bench.supervisor.state().word(), "up");
    bench.ask("1");
    bench.run_for(20);
    assert_eq!(bench.outcome(), Some(&Outcome::Proven));
    assert_eq!(bench.started, 1);
    assert_eq!(bench.holds, [true, false, true, false], "held at first, served, held for the restart, served");
}

#[test]
fn a_refusal_before_the_stop_leaves_the_server_serving() {
    let mut bench = Bench::with_app();
    bench.settle();
    bench.fault = Fault::StepFails { name: "publish", code: "setenv-denied", again: Again::Never, times: 1 };
    bench.ask("1");
    bench.run_for(20);
    assert!(matches!(bench.outcome(), Some(Outcome::Failed { serving: true, .. })), "{:?}", bench.outcome());
    assert_eq!(bench.started, 0);
    assert_eq!(bench.holds, [true, false], "no request was held for it");
}

#[test]
fn a_start_refused_by_a_known_race_is_tried_again() {
    let mut bench = Bench::with_app();
    bench.settle();
    bench.fault = Fault::StepFails { name: "start", code: "open-600", again: Again::Soon, times: 2 };
    bench.ask("1");
    bench.run_for(30);
    assert_eq!(bench.outcome(), Some(&Outcome::Proven));
    assert_eq!(bench.started, 1);
}

#[test]
fn a_server_that_ends_at_once_is_started_a_few_times_and_its_own_reason_is_told() {
    let mut bench = Bench::with_app();
    bench.settle();
    bench.fault = Fault::StepFails { name: "start", code: "server-ended", again: Again::Few, times: 5 };
    bench.ask("1");
    bench.run_for(15);
    let Some(Outcome::Failed { failure, .. }) = bench.outcome() else { panic!("{:?}", bench.outcome()) };
    assert_eq!(failure.code, "server-ended", "and not that it took too long");
    bench.fault = Fault::StepFails { name: "start", code: "server-ended", again: Again::Few, times: 4 };
    bench.ask("1");
    bench.run_for(60);
    assert_eq!(bench.outcome(), Some(&Outcome::Proven), "another server may have let go of the port late");
}

#[test]
fn a_start_that_never_answers_is_tried_twice_and_then_given_up_on() {
    let mut bench = Bench::with_app();
    bench.settle();
    bench.fault = Fault::NeverAnswers;
    bench.ask("1");
    bench.run_for(400);
    assert!(matches!(bench.outcome(), Some(Outcome::Failed { step: Step::AwaitAnswer { .. }, .. })));
    assert!(matches!(bench.supervisor.state(), State::GaveUp { why: Surrender::NeverAnswered, .. }));
    assert_eq!(bench.started, 2);
    bench.fault = Fault::None;
    bench.run_for(300);
    assert_eq!(bench.started, 2, "given up is left by a person alone");
    bench.ask("1");
    bench.run_for(60);
    assert_eq!(bench.outcome(), Some(&Outcome::Proven));
}

#[test]
fn a_server_that_dies_at_each_start_is_given_up_on_at_once() {
    let mut bench = Bench::with_app();
    bench.settle();
    bench.fault = Fault::DiesAtStart;
    bench.ask("1");
    bench.run_for(10);
    let Some(Outcome::Failed { failure, .. }) = bench.outcome() else { panic!("{:?}", bench.outcome()) };
    assert_eq!(failure.code, "dies-at-start");
    assert!(matches!(bench.supervisor.state(), State::GaveUp { why: Surrender::CrashLoop { .. }, .. }));
}

#[test]
fn an_owner_that_starts_the_server_again_by_itself_is_not_started_a_second_time() {
    let mut bench = Bench::with_app();
    bench.settle();
    bench.fault = Fault::OwnerRespawns;
    bench.ask("1");
    bench.run_for(30);
    assert_eq!(bench.outcome(), Some(&Outcome::Proven), "it came back with the session's new values");
    assert_eq!(bench.started, 0);
}

#[test]
fn a_server_brought_back_with_old_values_is_restarted_once_more() {
    let mut bench = Bench::with_app();
    bench.settle();
    bench.fault = Fault::OwnerRespawnsWithOldValues;
    bench.ask("1");
    bench.run_for(60);
    assert_eq!(bench.outcome(), Some(&Outcome::Proven));
    assert_eq!(bench.stops, 2);
}

#[test]
fn a_lost_login_race_restarts_the_server_once() {
    let mut bench = Bench::with_app();
    bench.desired = "1".to_owned();
    bench.session = "1".to_owned();
    bench.effective = "4".to_owned();
    bench.published_at = Some(Wall::from_unix_ms(bench.server_started.unix_ms + 500));
    bench.fault = Fault::StartsWithOldValues;
    bench.settle();
    bench.run_for(600);
    assert_eq!(bench.stops, 2, "one restart, run twice because the values did not come, and never again");
    assert!(bench.alerts.iter().any(|alert| alert.kind == AlertKind::LoginRace));
}

#[test]
fn a_drift_that_no_login_explains_is_shown_and_never_mended_by_itself() {
    let mut bench = Bench::with_app();
    bench.desired = "1".to_owned();
    bench.effective = "4".to_owned();
    bench.published_at = Some(Wall::from_unix_ms(bench.server_started.unix_ms - 500));
    bench.settle();
    bench.run_for(600);
    assert_eq!(bench.stops, 0);
}

#[test]
fn a_crash_loop_is_given_up_on() {
    let mut bench = Bench::with_own_process();
    bench.settle();
    bench.fault = Fault::DiesAfter(Duration::from_secs(2));
    bench.kill_server();
    bench.run_for(900);
    assert!(matches!(bench.supervisor.state(), State::GaveUp { why: Surrender::CrashLoop { .. }, .. }));
    let started = bench.started;
    assert!((2..=CRASHES_ALLOWED).contains(&started), "{started}");
    bench.run_for(3600);
    assert_eq!(bench.started, started);
}

#[test]
fn a_server_of_ours_that_dies_once_is_started_again() {
    let mut bench = Bench::with_own_process();
    bench.settle();
    bench.kill_server();
    bench.run_for(60);
    assert_eq!(bench.supervisor.state().word(), "up");
    assert_eq!(bench.started, 1);
}

#[test]
fn a_server_that_its_user_quit_is_left_down() {
    let mut bench = Bench::with_app();
    bench.settle();
    bench.kill_server();
    bench.run_for(600);
    assert_eq!(bench.supervisor.state().word(), "down");
    assert_eq!(bench.started, 0);
}

#[test]
fn silence_that_began_before_a_sleep_does_not_count_after_it() {
    let mut bench = Bench::with_app();
    bench.fault = Fault::NeverAnswers;
    bench.answers = false;
    bench.settle();
    bench.run_for(80);
    assert_eq!(bench.supervisor.state().word(), "coming-up");
    bench.event(Event::Woke);
    bench.run_for(80);
    assert_eq!(bench.supervisor.state().word(), "coming-up");
    bench.run_for(20);
    assert_eq!(bench.supervisor.state().word(), "silent");
}

#[test]
fn a_port_held_by_a_stranger_is_left_alone() {
    let stranger = Foreigner::Stranger { pid: 9, program: "python3".to_owned() };
    let mut bench = Bench::blocked_by(stranger.clone());
    bench.settle();
    assert!(matches!(bench.supervisor.state(), State::Blocked { by, .. } if *by == stranger));
    bench.ask("1");
    bench.run_for(30);
    assert!(matches!(bench.outcome(), Some(Outcome::Refused(Refusal::Stranger { pid: 9, .. }))));
    assert!(bench.performed.is_empty());
}

#[test]
fn another_users_server_is_left_alone_even_when_it_answers() {
    let mut bench = Bench::blocked_by(Foreigner::OtherUser { uid: Some(502) });
    bench.answers = true;
    bench.settle();
    bench.ask("1");
    bench.run_for(30);
    assert!(matches!(bench.outcome(), Some(Outcome::Refused(Refusal::OtherUser { .. }))));
    assert!(bench.performed.is_empty());
    assert!(!bench.supervisor.serving());
}

#[test]
fn a_stale_answer_changes_nothing() {
    let mut bench = Bench::with_app();
    bench.settle();
    bench.fault = Fault::StepHangs("stop");
    bench.ask("1");
    bench.run_for(5);
    let before = bench.supervisor.state().clone();
    bench.event(Event::StepDone { life: Life(0), index: 2, note: String::new() });
    bench.event(Event::StepDone { life: bench.performing.unwrap().0, index: 7, note: String::new() });
    assert_eq!(bench.supervisor.state(), &before);
}

#[test]
fn a_step_that_hangs_is_abandoned_at_its_deadline() {
    let mut bench = Bench::with_app();
    bench.settle();
    bench.fault = Fault::StepHangs("stop");
    bench.ask("1");
    bench.run_for(70);
    let Some(Outcome::Failed { failure, .. }) = bench.outcome() else { panic!("{:?}", bench.outcome()) };
    assert_eq!(failure.code, "step-timed-out");
    assert_eq!(bench.abandoned, 1);
}

#[test]
fn a_second_wish_waits_and_a_third_takes_its_place() {
    let mut bench = Bench::with_app();
    bench.settle();
    bench.fault = Fault::StepFails { name: "start", code: "open-600", again: Again::Soon, times: 1 };
    let (first, second, third) = (bench.apply("1"), bench.apply("1"), bench.apply("1"));
    let ids = [first.id, second.id, third.id];
    bench.wish(first);
    bench.wish(second);
    bench.wish(third);
    bench.run_for(60);
    assert_eq!(bench.outcomes[&ids[0]], Outcome::Proven);
    assert_eq!(bench.outcomes[&ids[1]], Outcome::Superseded);
    assert_eq!(bench.outcomes[&ids[2]], Outcome::Proven);
    assert_eq!(bench.stops, 2);
}

#[test]
fn an_effective_value_that_cannot_be_read_ends_as_unknown() {
    let mut bench = Bench::with_app();
    bench.fault = Fault::Unreadable;
    bench.settle();
    bench.ask("1");
    bench.run_for(60);
    assert!(matches!(bench.outcome(), Some(Outcome::Unknown(_))), "{:?}", bench.outcome());
}

#[test]
fn a_server_started_by_hand_is_stopped_by_its_own_identity_when_taken_over() {
    let mut bench = Bench::with_app();
    let server = bench.server.unwrap();
    bench.owner = Owner::Manual {
        server,
        program: Known::Is("/usr/local/bin/ollama".into()),
        started_by: Some("zsh".into()),
        own_unit: Known::unknown("no systemd"),
    };
    bench.settle();
    let mut wish = bench.apply("1");
    bench.wish(wish.clone());
    bench.run_for(10);
    assert!(matches!(bench.outcome(), Some(Outcome::Refused(Refusal::Manual { .. }))));
    wish.take_over = true;
    bench.wish(wish);
    bench.run_for(30);
    assert!(bench.performed.contains(&Step::Stop(Stop::Process { server })));
    assert_eq!(bench.outcome(), Some(&Outcome::Proven));
}

#[test]
fn a_restart_brings_the_server_up_where_it_shall_listen() {
    let mut bench = Bench::with_app();
    bench.settle();
    bench.seat = Seat { home: 11434, moved: Some(11435), written: false };
    bench.ask("1");
    bench.run_for(20);
    assert_eq!((bench.outcome(), bench.listens), (Some(&Outcome::Proven), 11435));
    bench.seat = Seat::at_home(11434);
    bench.ask("1");
    bench.run_for(20);
    assert_eq!((bench.outcome(), bench.listens), (Some(&Outcome::Proven), 11434));
}

#[test]
fn a_server_that_somebody_else_started_elsewhere_is_restarted_once_more_and_then_told() {
    let mut bench = Bench::with_app();
    bench.settle();
    bench.seat = Seat { home: 11434, moved: Some(11435), written: false };
    bench.fault = Fault::OwnerRespawns;
    bench.ask("1");
    bench.run_for(40);
    assert_eq!(bench.outcome(), Some(&Outcome::Drift(vec!["OLLAMA_HOST".to_owned()])));
    assert_eq!(bench.stops, 2);
}
