//! The server's verdicts.

use super::machine::{Job, Machine};
use crate::Known;
use crate::process::Identity;
use crate::stall::evidence::{ProcessState, Waiting};
use crate::stall::{How, Rung, Verdict};

#[test]
fn a_server_that_answers_nothing_for_a_minute_is_silent() {
    let mut machine = Machine::new();
    machine.run_for(10);
    machine.server.answers = false;
    machine.run_for(60);
    assert_eq!(machine.rungs, []);
    machine.run_for(10);
    assert_eq!(machine.server_verdict(), &Verdict::ServerSilent);
    assert!(machine.rungs.iter().all(|(_, id, rung)| Some(*id) == machine.server.id && *rung == Rung::RestartServer));
    assert!(!machine.rungs.is_empty());
}

#[test]
fn a_server_that_starts_is_given_its_time() {
    let mut machine = Machine::new();
    machine.server.id = Some(Identity { pid: 11, birth: 11 });
    machine.server.answers = false;
    machine.run_for(85);
    assert_eq!(machine.server_verdict().word(), "unknown");
    assert_eq!(machine.rungs, []);
}

#[test]
fn no_server_is_no_verdict() {
    let mut machine = Machine::new();
    machine.server.id = None;
    machine.run_for(5);
    assert_eq!(machine.judged.len(), 1, "the runner alone");
}

#[test]
fn a_scheduler_that_does_not_move_while_clients_wait_is_blocked() {
    let mut machine = Machine::new();
    machine.server.ps_answers = Known::Is(false);
    machine.server.waiting = Waiting { at_least: 1, at_most: 4 };
    machine.run_for(80);
    assert_eq!(machine.server_verdict(), &Verdict::SchedulerBlocked);
    assert_eq!(machine.judged.last().and_then(|judgement| judgement.may_recover), Some(Rung::RestartServer));
}

#[test]
fn a_blocked_scheduler_waits_for_the_hung_runner_that_blocks_it() {
    let mut machine = Machine::new();
    machine.runners[0].queue.push_back(Job::text(300, 100_000));
    machine.run_for(30);
    machine.runners[0].stuck = true;
    machine.runners[0].seen.state = ProcessState::Stopped;
    machine.server.ps_answers = Known::Is(false);
    machine.server.waiting = Waiting { at_least: 1, at_most: 4 };
    machine.run_for(400);
    assert_eq!(machine.verdict(0), &Verdict::Hung { how: How::ProcessStopped });
    assert_eq!(machine.server_verdict(), &Verdict::SchedulerBlocked);
    assert!(machine.rungs.iter().all(|(_, _, rung)| *rung == Rung::EndRunner), "{:?}", machine.rungs);
}

#[test]
fn an_mlx_load_may_hold_the_list_for_five_minutes() {
    let mut machine = Machine::new();
    machine.server.loading = true;
    machine.server.ps_answers = Known::Is(false);
    machine.server.waiting = Waiting { at_least: 1, at_most: 1 };
    machine.run_for(300);
    assert!(matches!(machine.server_verdict(), Verdict::Loading { .. }));
    assert_eq!(machine.rungs, []);
}

#[test]
fn failures_alone_are_told_and_restart_nothing() {
    let mut machine = Machine::new();
    for _ in 0..20 {
        machine.server.failures = 1;
        machine.run_for(10);
    }
    assert_eq!(machine.server_verdict(), &Verdict::ServerCorrupt);
    assert_eq!(machine.rungs, []);
}

#[test]
fn a_runner_that_generates_does_not_hide_that_most_requests_fail_and_answers_do() {
    let mut machine = Machine::new();
    machine.runners[0].queue.push_back(Job::text(300, 1_000_000));
    for _ in 0..20 {
        machine.server.failures = 1;
        machine.run_for(10);
    }
    assert_eq!(machine.server_verdict(), &Verdict::ServerCorrupt);
    machine.server.successes = 10;
    machine.run_for(1);
    assert_eq!(machine.server_verdict(), &Verdict::ServerCorrupt, "twice as many failed");
    machine.server.successes = 11;
    machine.run_for(1);
    assert_ne!(machine.server_verdict(), &Verdict::ServerCorrupt);
}

/// Slow for long in one life, and again in the next.
fn slow_in_two_lives() -> Machine {
    let mut machine = Machine::new();
    machine.runners[0].queue.push_back(Job::text(300, 1_000_000));
    machine.run_for(200);
    machine.runners[0].token_s = 1.0;
    machine.run_for(300);
    assert_eq!(machine.verdict(0).word(), "slow");
    assert_ne!(machine.server_verdict(), &Verdict::ServerCorrupt, "one runner alone may be its own fault");
    machine.runners.clear();
    machine.add("gone", 1);
    let number = machine.add("qwen3:8b", 1);
    machine.runners[number].token_s = 1.0;
    machine.runners[number].queue.push_back(Job::text(300, 1_000_000));
    machine
}

#[test]
fn a_server_whose_runners_are_all_slow_in_a_second_life_too_is_told_corrupt_and_left_alone() {
    let mut machine = slow_in_two_lives();
    machine.run_for(300);
    assert_eq!(machine.server_verdict(), &Verdict::ServerCorrupt, "{:?}", machine.judged);
    // A game beside it, or a battery, does the same.
    assert_eq!(machine.rungs, []);
}

#[test]
fn a_server_that_is_slow_in_two_lives_and_fails_as_often_as_not_is_restarted() {
    let mut machine = slow_in_two_lives();
    machine.run_for(200);
    for _ in 0..6 {
        machine.server.failures = 1;
        machine.run_for(20);
    }
    assert_eq!(machine.server_verdict(), &Verdict::ServerCorrupt, "{:?}", machine.judged);
    assert_eq!(machine.rungs.last().map(|(_, _, rung)| *rung), Some(Rung::RestartServer));
}

#[test]
fn a_life_that_was_slow_long_ago_counts_no_more() {
    let mut machine = slow_in_two_lives();
    let queue = std::mem::take(&mut machine.runners[1].queue);
    machine.run_for(700);
    machine.runners[1].queue = queue;
    machine.run_for(300);
    assert_ne!(machine.server_verdict(), &Verdict::ServerCorrupt, "{:?}", machine.judged);
}

#[test]
fn after_a_sleep_a_silence_of_the_server_is_not_held_against_it() {
    let mut machine = Machine::new();
    machine.run_for(10);
    machine.server.answers = false;
    machine.run_for(50);
    machine.sleep(8);
    machine.run_for(58);
    assert_eq!(machine.server_verdict(), &Verdict::JustWoke);
    assert_eq!(machine.rungs, []);
}
