//! Each way in which a runner fails ends in its verdict, with the evidence, and with a rung where every condition holds.

use super::machine::{Job, Machine};
use crate::Known;
use crate::process::{Belonging, RunnerKind};
use crate::stall::evidence::{Health, Listing, ProcessState, Waiting};
use crate::stall::{Fact, How, Pattern, Rung, Verdict};
use crate::time::Wall;
use std::time::Duration;

/// A machine whose model is known: it has answered some requests, and generates.
fn generating() -> Machine {
    let mut machine = Machine::new();
    for _ in 0..8 {
        machine.runners[0].queue.push_back(Job::text(9_000, 60));
    }
    machine.run_for(200);
    machine.runners[0].queue.push_back(Job::text(300, 100_000));
    machine.run_for(60);
    assert!(matches!(machine.verdict(0), Verdict::Generating { .. }), "{:?}", machine.judged);
    machine
}

fn reading() -> Machine {
    let mut machine = Machine::new();
    for _ in 0..8 {
        machine.runners[0].queue.push_back(Job::text(9_000, 60));
    }
    machine.run_for(200);
    machine.runners[0].tokens_per_s = 500.0;
    machine.runners[0].queue.push_back(Job::text(120_000, 10));
    machine.run_for(60);
    assert!(matches!(machine.verdict(0), Verdict::Prefill { .. }), "{:?}", machine.judged);
    machine
}

#[test]
fn a_decode_loop_that_stands_while_http_lives_is_hung_and_says_why() {
    let mut machine = generating();
    machine.runners[0].stuck = true;
    machine.runners[0].stuck_cores = 0.23;
    machine.server.waiting = Waiting { at_least: 3, at_most: 3 };
    machine.server.oldest_wait = Known::Is(Duration::from_secs(131));
    machine.run_for(60);
    let judgement = machine.judgement(0);
    assert_eq!(judgement.verdict, Verdict::Hung { how: How::DecodeLoop });
    assert_eq!(judgement.may_recover, Some(Rung::EndRunner));
    let said = judgement.to_string();
    let begins = format!("n_decoded {0} → {0} for ", machine.runners[0].slots[0].generated);
    assert!(said.starts_with(&begins), "{said}");
    for part in [
        " s of awake time, longest honest token 2 s; ",
        "; decode counter still; ",
        "; CPU 23 %, unlike this model's decode; ",
        "; 3 clients wait, oldest 2 m 11 s",
    ] {
        assert!(said.contains(part), "{part} in {said}");
    }
}

#[test]
fn a_prompt_that_stops_is_hung_within_seconds_of_the_longest_honest_batch() {
    let mut machine = reading();
    machine.runners[0].stuck = true;
    let began_s = machine.awake_ms / 1_000;
    machine.run_until("hung");
    assert!(machine.awake_ms / 1_000 - began_s < 40, "a batch takes some 5 s here");
    let told = machine.judgement(0).evidence.iter().any(|fact| matches!(fact, Fact::DecodeCounterStill { .. }));
    assert!(told, "{:?}", machine.judged);
}

#[test]
fn an_unfamiliar_model_is_given_two_minutes_at_least() {
    let mut machine = Machine::new();
    machine.runners[0].tokens_per_s = 2_000.0;
    machine.runners[0].queue.push_back(Job::text(9_000, 100));
    machine.run_for(3);
    machine.runners[0].stuck = true;
    let began_s = machine.awake_ms / 1_000;
    machine.run_until("hung");
    assert!(machine.awake_ms / 1_000 - began_s >= 120);
}

#[test]
fn without_an_independent_sign_it_is_suspect_and_nothing_is_allowed() {
    let mut machine = Machine::new();
    machine.runners[0].metrics = false;
    machine.runners[0].queue.push_back(Job::text(300, 3_000));
    machine.run_for(60);
    machine.runners[0].stuck = true;
    machine.runners[0].stuck_cores = 0.9;
    machine.run_for(120);
    assert!(matches!(machine.verdict(0), Verdict::Suspect { .. }), "{:?}", machine.judged);
    assert!(machine.judgement(0).evidence.contains(&Fact::NoIndependentSign));
    assert_eq!(machine.rungs, []);
}

#[test]
fn a_silence_far_beyond_every_slowness_needs_no_other_sign() {
    let mut machine = Machine::new();
    machine.runners[0].metrics = false;
    machine.runners[0].queue.push_back(Job::text(300, 3_000));
    machine.run_for(60);
    machine.runners[0].stuck = true;
    machine.runners[0].stuck_cores = 0.9;
    machine.run_until("hung");
    assert!(machine.judgement(0).evidence.iter().any(|fact| matches!(fact, Fact::FarBeyond { .. })));
}

#[test]
fn a_runner_that_burns_more_than_it_ever_did_in_honest_work_is_in_a_busy_loop() {
    let mut machine = generating();
    machine.runners[0].stuck = true;
    machine.runners[0].stuck_cores = 6.0;
    machine.run_for(60);
    assert_eq!(machine.verdict(0), &Verdict::Hung { how: How::BusyLoop });
    let cpu = machine.judgement(0).evidence.iter().find(|fact| matches!(fact, Fact::Cpu { .. }));
    assert_eq!(cpu, Some(&Fact::Cpu { percent: 600, unlike: Some(Pattern::Decode) }));
}

#[test]
fn a_stopped_process_is_hung_when_a_request_is_in_it_and_left_alone_otherwise() {
    for busy in [true, false] {
        let mut machine = if busy { generating() } else { Machine::new() };
        machine.run_for(5);
        let runner = &mut machine.runners[0];
        (runner.stuck, runner.stuck_cores, runner.unreadable) = (true, 0.0, true);
        (runner.seen.state, runner.seen.health) = (ProcessState::Stopped, Health::Silent);
        machine.run_for(8);
        assert_eq!(machine.rungs, [], "a stack sample stops a process for a moment");
        machine.run_for(8);
        assert_eq!(machine.verdict(0), &Verdict::Hung { how: How::ProcessStopped });
        assert_eq!(machine.judgement(0).may_recover, busy.then_some(Rung::EndRunner));
    }
}

/// A slow machine far into a prompt: a batch takes some five minutes, and it sleeps before the rule would speak.
fn sleepy(stuck: bool) -> Machine {
    let mut machine = Machine::new();
    (machine.runners[0].tokens_per_s, machine.runners[0].far_factor) = (30.0, 8.0);
    machine.runners[0].queue.push_back(Job { cached: 60_000, prompt: 40_000, image_s: 0.0, answer: 10 });
    while machine.runners[0].slots[0].done < 6_144 {
        machine.run_for(1);
    }
    machine.runners[0].stuck = stuck;
    for _ in 0..18 {
        machine.run_for(200);
        machine.sleep(8);
    }
    machine
}

#[test]
fn a_machine_that_sleeps_every_few_minutes_does_not_hide_a_stall_for_ever() {
    let machine = sleepy(true);
    assert!(machine.rungs.iter().any(|(_, _, rung)| *rung == Rung::EndRunner), "{:?}", machine.judged);
    assert!(machine.awake_ms / 1_000 - machine.rungs[0].0 < 18 * 200 - 600, "only after three sleeps at least");
}

#[test]
fn sleeps_within_an_honest_batch_add_up_to_nothing() {
    let machine = sleepy(false);
    assert_eq!(machine.rungs, []);
    assert!(!machine.words.contains(&"suspect"), "{:?}", machine.words);
}

#[test]
fn a_silence_beyond_the_envelope_itself_needs_no_threefold_of_it() {
    let mut machine = Machine::new();
    machine.runners[0].seen.kind = RunnerKind::Mlx;
    machine.runners[0].seen.cpu = Known::unknown("not permitted");
    machine.runners[0].queue.push_back(Job::text(10_000, 200));
    while machine.runners[0].seen.log_progress.is_none() {
        machine.run_for(1);
    }
    let runner = &mut machine.runners[0];
    runner.stuck = true;
    let began_s = machine.awake_ms / 1_000;
    let judgement = machine.run_until("hung");
    let took_s = machine.awake_ms / 1_000 - began_s;
    // 2,048 tokens at 20 tokens/s, eight times slower: the place of the batch is not known.
    assert!((819..2 * 819).contains(&took_s), "{took_s}");
    assert!(judgement.evidence.iter().any(|fact| matches!(fact, Fact::FarBeyond { .. })), "{judgement}");
}

#[test]
fn what_is_left_of_a_logged_prompt_bounds_its_last_batch() {
    let took_s = |prompt: u64| {
        let mut machine = Machine::new();
        machine.runners[0].seen.kind = RunnerKind::Mlx;
        (machine.runners[0].tokens_per_s, machine.runners[0].far_factor) = (22.0, 8.0);
        machine.runners[0].queue.push_back(Job::text(prompt, 200));
        while machine.runners[0].seen.log_progress.is_none_or(|line| line.prompt_tokens_done < 8_192) {
            machine.run_for(1);
        }
        machine.runners[0].stuck = true;
        let began_s = machine.awake_ms / 1_000;
        machine.run_until("suspect");
        machine.awake_ms / 1_000 - began_s
    };
    let (much, little) = (took_s(20_000), took_s(8_192 + 1_024));
    assert!(little * 3 < much * 2, "half a batch is left: {little} s against {much} s");
}

#[test]
fn a_dead_http_side_is_an_independent_sign() {
    let mut machine = generating();
    let runner = &mut machine.runners[0];
    (runner.stuck, runner.unreadable, runner.stuck_cores) = (true, true, 0.9);
    runner.seen.health = Health::Silent;
    machine.run_until("hung");
    assert_eq!(machine.verdict(0), &Verdict::Hung { how: How::HttpDead });
}

#[test]
fn a_dead_http_side_without_a_known_request_is_suspect() {
    let mut machine = Machine::new();
    machine.run_for(20);
    machine.runners[0].unreadable = true;
    machine.runners[0].seen.health = Health::Silent;
    machine.run_for(4_000);
    assert!(matches!(machine.verdict(0), Verdict::Suspect { .. }), "{:?}", machine.judged);
    assert_eq!(machine.rungs, []);
}

#[test]
fn a_dead_http_side_before_which_somebody_may_wait_is_hung_once_all_that_could_be_in_it_had_its_time() {
    let mut machine = Machine::new();
    for _ in 0..8 {
        machine.runners[0].queue.push_back(Job::text(9_000, 60));
    }
    machine.run_for(400);
    assert_eq!(machine.verdict(0), &Verdict::Idle);
    machine.runners[0].seen.listed = Known::Is(Listing::Until(Wall::from_unix_ms(machine.wall_ms + 300_000)));
    machine.runners[0].unreadable = true;
    machine.runners[0].seen.health = Health::Silent;
    machine.server.waiting = Waiting { at_least: 0, at_most: 1 };
    machine.run_for(120);
    assert!(matches!(machine.verdict(0), Verdict::Suspect { .. }), "{:?}", machine.judged);
    assert_eq!(machine.rungs, []);
    machine.run_for(900);
    assert_eq!(machine.verdict(0), &Verdict::Hung { how: How::HttpDead }, "although its stay is over as well");
    assert_eq!(machine.judgement(0).may_recover, Some(Rung::EndRunner));
}

#[test]
fn a_dead_http_side_with_a_ticket_of_the_gateway_in_it_is_at_work_though_its_slots_were_free() {
    let mut machine = Machine::new();
    machine.run_for(20);
    machine.runners[0].unreadable = true;
    machine.runners[0].seen.health = Health::Silent;
    machine.runners[0].seen.tickets = Some(1);
    machine.run_until("hung");
    assert_eq!(machine.verdict(0), &Verdict::Hung { how: How::HttpDead });
}

#[test]
fn slots_that_answer_something_unknown_are_unknown_with_the_reason() {
    let mut machine = Machine::new();
    machine.run_for(5);
    machine.runners[0].unreadable = true;
    machine.run_for(30);
    let Verdict::Unknown { why } = machine.verdict(0) else { panic!("{:?}", machine.judged) };
    assert_eq!(why, "no answer within 1 s");
    assert_eq!(machine.rungs, []);
}

#[test]
fn three_answers_without_text_of_a_model_that_writes_are_a_gpu_that_was_reset() {
    let mut machine = Machine::new();
    machine.runners[0].queue.push_back(Job::text(300, 50));
    machine.run_for(10);
    for _ in 0..2 {
        machine.runners[0].queue.push_back(Job::text(300, 1));
    }
    machine.run_for(10);
    assert_eq!(machine.verdict(0), &Verdict::Idle);
    machine.runners[0].queue.push_back(Job::text(300, 1));
    machine.run_for(10);
    assert_eq!(machine.verdict(0), &Verdict::EmptyReplies);
    assert_eq!(machine.judgement(0).may_recover, Some(Rung::Unload));
    machine.runners[0].queue.push_back(Job::text(300, 50));
    machine.run_for(10);
    assert_eq!(machine.verdict(0), &Verdict::Idle, "an answer with text ends it");
}

#[test]
fn stopping_for_ever_with_free_slots_is_stuck_unloading() {
    let mut machine = Machine::new();
    machine.run_for(20);
    machine.runners[0].seen.listed = Known::Is(Listing::Until(Wall::from_unix_ms(machine.wall_ms)));
    machine.run_for(50);
    assert_eq!(machine.rungs, []);
    machine.run_for(30);
    assert_eq!(machine.verdict(0), &Verdict::StuckUnloading);
    assert_eq!(machine.judgement(0).may_recover, Some(Rung::EndRunner));
}

#[test]
fn a_hung_runner_that_was_told_to_unload_is_stuck_unloading() {
    let mut machine = generating();
    machine.runners[0].stuck = true;
    machine.runners[0].seen.listed = Known::Is(Listing::Until(Wall::from_unix_ms(machine.wall_ms)));
    machine.run_for(120);
    assert_eq!(machine.verdict(0), &Verdict::StuckUnloading);
    assert_eq!(machine.judgement(0).may_recover, Some(Rung::EndRunner));
}

#[test]
fn a_runner_that_stays_after_its_unload_is_told_first_and_ended_late() {
    let mut machine = Machine::new();
    machine.run_for(20);
    machine.runners[0].seen.listed = Known::Is(Listing::Absent);
    machine.run_for(200);
    assert_eq!(machine.verdict(0), &Verdict::StuckUnloading);
    assert_eq!(machine.rungs, []);
    machine.run_for(200);
    assert_eq!(machine.judgement(0).may_recover, Some(Rung::EndRunner));
}

#[test]
fn a_runner_without_its_server_is_an_orphan_after_a_minute_and_kept_while_it_works() {
    let mut machine = generating();
    machine.runners[0].seen.belongs = Belonging::LeftBehind;
    machine.run_for(100);
    assert_eq!(machine.verdict(0), &Verdict::Orphan);
    assert_eq!(machine.rungs, [], "what still moves may belong to somebody");
    machine.runners[0].cancel(0);
    machine.run_for(2);
    assert_eq!(machine.judgement(0).may_recover, Some(Rung::EndRunner));
}

#[test]
fn a_dead_runner_that_is_listed_is_told_and_never_signalled() {
    let mut machine = Machine::new();
    machine.run_for(5);
    machine.runners[0].seen.state = ProcessState::Gone;
    machine.run_for(600);
    assert_eq!(machine.verdict(0), &Verdict::DeadButListed);
    assert_eq!(machine.rungs, []);
}

#[test]
fn an_mlx_prompt_that_stops_is_hung_by_its_log() {
    let mut machine = Machine::new();
    machine.runners[0].seen.kind = RunnerKind::Mlx;
    machine.runners[0].queue.push_back(Job::text(100_000, 200));
    machine.run_for(100);
    machine.runners[0].stuck = true;
    machine.run_until("hung");
    assert!(machine.judgement(0).to_string().starts_with("prompt tokens in the log "), "{}", machine.judgement(0));
}

/// Its clients leave in the middle of a prompt: the last progress that was told stands, and then the request is over.
#[test]
fn an_mlx_runner_whose_prompt_was_given_up_is_at_rest() {
    let mut machine = Machine::new();
    machine.runners[0].seen.kind = RunnerKind::Mlx;
    machine.runners[0].queue.push_back(Job::text(100_000, 200));
    machine.run_for(100);
    assert!(machine.runners[0].seen.log_progress.is_some(), "it was in the middle");
    machine.runners[0].cancel(0);
    machine.runners[0].seen.log_progress = None;
    machine.run_for(3_600);
    assert_eq!(machine.rungs, []);
    assert!(!machine.words.contains(&"hung") && !machine.words.contains(&"suspect"), "{:?}", machine.words);
}

/// Somebody may run a `llama-server` of his own on one of Ollama's models.
#[test]
fn a_runner_that_was_never_seen_below_a_server_is_never_signalled() {
    let mut machine = generating();
    machine.runners[0].seen.belongs = Belonging::Unknown;
    machine.runners[0].seen.listed = Known::Is(Listing::Absent);
    machine.run_for(1_000);
    machine.runners[0].stuck = true;
    machine.run_for(4_000);
    machine.runners[0].seen.state = ProcessState::Stopped;
    machine.run_for(1_000);
    assert!(matches!(machine.verdict(0), Verdict::Unknown { .. }), "{:?}", machine.judged);
    assert_eq!(machine.rungs, []);
}

/// Mapped weights that memory has no room for are read again and again, and neither swap nor pressure tells.
#[test]
fn a_runner_that_reads_its_weights_back_from_disk_gets_the_time_of_paging() {
    let silent_for = |paged_in: f64, seconds: u64| {
        let mut machine = Machine::new();
        machine.runners[0].queue.push_back(Job::text(100_000, 200));
        machine.run_for(60);
        machine.runners[0].stuck = true;
        machine.runners[0].stuck_cores = 0.0;
        machine.runners[0].seen.paged_in_bytes_per_s = Some(paged_in);
        machine.run_for(seconds);
        machine
    };
    assert_eq!(silent_for(0.0, 40).verdict(0).word(), "hung");
    let paging = silent_for(30_000_000.0, 40);
    assert_eq!(paging.verdict(0).word(), "prefill", "{:?}", paging.judged);
    assert!(paging.judgement(0).to_string().contains("28.6 MiB/s in"), "{}", paging.judgement(0));
    assert_eq!(paging.rungs, []);
}

/// It never told anything; that it was listed shows that it was loaded.
#[test]
fn an_mlx_runner_that_stays_after_its_unload_is_told_and_ended() {
    let mut machine = Machine::new();
    machine.runners[0].seen.kind = RunnerKind::Mlx;
    machine.runners[0].seen.slots = Known::unknown("this kind has none");
    machine.runners[0].seen.health = Health::Unknown;
    machine.run_for(30);
    machine.runners[0].seen.listed = Known::Is(Listing::Absent);
    machine.run_for(200);
    assert_eq!(machine.verdict(0), &Verdict::StuckUnloading);
    assert_eq!(machine.rungs, []);
    machine.run_for(300);
    assert_eq!(machine.judgement(0).may_recover, Some(Rung::EndRunner));
}

#[test]
fn an_old_runner_without_a_gateway_is_never_more_than_suspect() {
    let mut machine = Machine::new();
    machine.runners[0].seen.kind = RunnerKind::OllamaRunner;
    machine.runners[0].queue.push_back(Job::text(3_000, 200));
    machine.run_for(3);
    machine.runners[0].stuck = true;
    machine.runners[0].stuck_cores = 0.0;
    machine.server.waiting = Waiting { at_least: 2, at_most: 5 };
    machine.run_for(20_000);
    assert!(matches!(machine.verdict(0), Verdict::Suspect { .. }), "{:?}", machine.judged);
    assert_eq!(machine.rungs, []);
}

#[test]
fn an_old_runner_behind_a_gateway_is_judged_by_the_bytes_of_its_one_answer() {
    let mut machine = Machine::new();
    machine.runners[0].seen.kind = RunnerKind::OllamaRunner;
    (machine.runners[0].seen.tickets, machine.runners[0].seen.gateway_bytes) = (Some(0), Some(0));
    machine.run_for(2);
    machine.runners[0].seen.tickets = Some(1);
    machine.runners[0].queue.push_back(Job::text(3_000, 100_000));
    for second in 1..60 {
        machine.runners[0].seen.gateway_bytes = Some(if second > 10 { second * 400 } else { 0 });
        machine.run_for(1);
    }
    machine.runners[0].stuck = true;
    machine.run_until("hung");
    assert!(machine.judgement(0).to_string().starts_with("bytes of the answer "), "{}", machine.judgement(0));
}

#[test]
fn a_load_three_times_longer_than_honest_whose_memory_stands_still_is_hung() {
    let mut machine = Machine::new();
    machine.server.loading = true;
    machine.runners[0].seen.health = Health::Loading;
    machine.run_for(600);
    assert!(matches!(machine.verdict(0), Verdict::Suspect { .. }));
    assert_eq!(machine.rungs, []);
    machine.run_for(400);
    assert_eq!(machine.verdict(0), &Verdict::Hung { how: How::Load });
}
