//! What looks most like a stall without being one. None of it may allow a rung.

use super::machine::{Job, Machine};
use crate::Known;
use crate::process::RunnerKind;
use crate::stall::evidence::{Health, Listing};
use crate::stall::{Verdict, Why};
use crate::time::Wall;

#[test]
fn a_prefill_of_eleven_minutes_is_honest() {
    let mut machine = Machine::new();
    let runner = &mut machine.runners[0];
    (runner.tokens_per_s, runner.far_factor) = (90.0, 2.0);
    runner.queue.push_back(Job::text(47_324, 200));
    machine.run_for(600);
    assert!(matches!(machine.verdict(0), Verdict::Prefill { .. }), "{:?}", machine.judged);
    machine.run_for(600);
    assert_eq!(machine.rungs, []);
    assert!(!machine.words.contains(&"suspect"), "{:?}", machine.words);
}

#[test]
fn the_slowest_machine_may_take_minutes_for_one_batch_from_the_first_on() {
    let mut machine = Machine::new();
    let runner = &mut machine.runners[0];
    (runner.tokens_per_s, runner.far_factor) = (20.0, 8.0);
    runner.queue.push_back(Job { cached: 120_000, prompt: 8_000, image_s: 0.0, answer: 20 });
    machine.run_for(6_000);
    assert_eq!(machine.rungs, []);
    assert!(!machine.words.contains(&"suspect"), "{:?}", machine.words);
}

#[test]
fn a_first_prompt_under_swap_may_take_ten_times_longer() {
    let mut machine = Machine::new();
    let runner = &mut machine.runners[0];
    (runner.tokens_per_s, runner.far_factor) = (20.0, 8.0);
    runner.queue.push_back(Job { cached: 0, prompt: 9_000, image_s: 100.0, answer: 20 });
    machine.paging = 10.0;
    machine.run_for(10_000);
    assert_eq!(machine.rungs, []);
    assert!(!machine.words.contains(&"suspect"), "{:?}", machine.words);
}

#[test]
fn swap_that_cannot_be_read_is_not_ruled_out() {
    let mut machine = Machine::new();
    machine.machine.swap_in_bytes_per_s = None;
    machine.runners[0].tokens_per_s = 20.0;
    machine.runners[0].queue.push_back(Job::text(9_000, 20));
    machine.paging = 10.0;
    machine.run_for(2_000);
    let said = machine.judgement(0).to_string();
    assert!(said.contains("paging cannot be ruled out"), "{said}");
    machine.run_for(4_000);
    assert_eq!(machine.rungs, []);
}

#[test]
fn an_image_may_take_two_minutes_before_the_first_token() {
    let mut machine = Machine::new();
    for _ in 0..20 {
        machine.runners[0].queue.push_back(Job::text(6_000, 50));
    }
    machine.run_for(400);
    machine.runners[0].queue.push_back(Job { cached: 0, prompt: 1_500, image_s: 119.0, answer: 20 });
    machine.run_for(200);
    assert_eq!(machine.rungs, []);
    assert!(!machine.words.contains(&"suspect"), "{:?}", machine.words);
}

#[test]
fn four_slots_stand_still_while_one_of_them_reads_47_000_tokens() {
    let mut machine = Machine::new();
    machine.runners.clear();
    let number = machine.add("qwen3:8b", 4);
    let runner = &mut machine.runners[number];
    (runner.tokens_per_s, runner.far_factor) = (60.0, 4.0);
    for _ in 0..3 {
        runner.queue.push_back(Job::text(300, 600));
    }
    machine.run_for(60);
    machine.runners[number].queue.push_back(Job::text(47_000, 100));
    machine.run_for(2_400);
    assert_eq!(machine.rungs, []);
    assert!(!machine.words.contains(&"suspect"), "{:?}", machine.words);
}

#[test]
fn a_client_that_stops_reading_leaves_free_slots_behind_a_held_request() {
    let mut machine = Machine::new();
    machine.runners[0].seen.tickets = Some(1);
    machine.runners[0].queue.push_back(Job::text(500, 100));
    machine.run_for(4_000);
    assert_eq!(machine.verdict(0), &Verdict::Idle);
    assert!(machine.judgement(0).to_string().contains("a client does not read its answer"));
    assert_eq!(machine.rungs, []);
}

#[test]
fn a_load_of_five_minutes_is_a_load_and_under_swap_one_of_fifty() {
    for (paging, seconds) in [(1.0, 299), (10.0, 2_990)] {
        let mut machine = Machine::new();
        machine.paging = paging;
        machine.server.loading = true;
        machine.runners[0].seen.health = Health::Loading;
        machine.runners[0].seen.listed = Known::Is(Listing::Absent);
        machine.run_for(seconds);
        assert!(matches!(machine.verdict(0), Verdict::Loading { .. }), "{:?}", machine.judged);
        machine.server.loading = false;
        machine.runners[0].seen.health = Health::Ok;
        machine.runners[0].queue.push_back(Job::text(4_000, 10));
        machine.run_for(30);
        assert_eq!(machine.rungs, []);
        assert!(!machine.words.contains(&"suspect"), "{:?}", machine.words);
    }
}

#[test]
fn two_hundred_queued_requests_are_a_queue() {
    let mut machine = Machine::new();
    for _ in 0..200 {
        machine.runners[0].queue.push_back(Job::text(900, 40));
    }
    (machine.server.waiting.at_least, machine.server.waiting.at_most) = (199, 199);
    machine.run_for(700);
    assert_eq!(machine.server_verdict(), &Verdict::Queued);
    assert_eq!(machine.rungs, []);
}

#[test]
fn a_server_whose_runner_reads_is_not_idle_and_a_long_batch_says_for_how_long_nothing_moved() {
    let mut machine = Machine::new();
    machine.runners[0].tokens_per_s = 25.0;
    assert_eq!(
        {
            machine.run_for(5);
            machine.server_verdict()
        },
        &Verdict::Idle
    );
    machine.runners[0].queue.push_back(Job::text(20_000, 40));
    machine.run_for(60);
    assert_eq!(machine.server_verdict(), &Verdict::Serving);
    let said = machine.judgement(0).to_string();
    assert!(said.contains("; nothing has moved for "), "{said}");
}

#[test]
fn a_machine_that_slept_eight_hours_is_given_time() {
    let mut machine = Machine::new();
    machine.runners[0].tokens_per_s = 100.0;
    machine.runners[0].queue.push_back(Job::text(120_000, 40));
    machine.run_for(500);
    machine.sleep(8);
    machine.runners[0].stuck = true;
    machine.run_for(90);
    assert_eq!(machine.verdict(0), &Verdict::JustWoke);
    machine.runners[0].stuck = false;
    machine.run_for(300);
    assert_eq!(machine.rungs, []);
    assert!(!machine.words.contains(&"suspect"), "{:?}", machine.words);
}

#[test]
fn a_sleep_that_nobody_noticed_counts_for_a_minute_at_most() {
    let mut machine = Machine::new();
    machine.runners[0].tokens_per_s = 40.0;
    machine.runners[0].queue.push_back(Job::text(120_000, 40));
    machine.run_for(100);
    machine.awake_ms += 8 * 3_600_000;
    machine.run_for(100);
    assert_eq!(machine.rungs, []);
    assert!(!machine.words.contains(&"suspect"), "{:?}", machine.words);
}

#[test]
fn a_clock_that_is_set_changes_nothing() {
    for step_ms in [-3_600_000, 3_600_000] {
        let mut machine = Machine::new();
        let until = Wall::from_unix_ms(machine.wall_ms + 300_000);
        machine.runners[0].seen.listed = Known::Is(Listing::Until(until));
        machine.runners[0].queue.push_back(Job::text(20_000, 400));
        machine.run_for(20);
        machine.wall_ms += step_ms;
        machine.run_for(250);
        assert_eq!(machine.rungs, [], "{step_ms}");
        assert!(!machine.words.contains(&"stuck-unloading"), "{:?}", machine.words);
    }
}

#[test]
fn sixty_runners_at_work_are_sixty_runners() {
    let mut machine = Machine::new();
    for number in 0..59 {
        machine.add(&format!("모델 {number}"), 1);
    }
    for runner in &mut machine.runners {
        runner.tokens_per_s = 25.0;
        runner.queue.push_back(Job::text(9_000, 100));
    }
    machine.run_for(900);
    assert_eq!(machine.judged.len(), 61);
    assert_eq!(machine.rungs, []);
    assert!(!machine.words.contains(&"suspect"), "{:?}", machine.words);
}

#[test]
fn a_request_that_outlives_its_models_stay_is_no_unload() {
    let mut machine = Machine::new();
    let until = Wall::from_unix_ms(machine.wall_ms + 30_000);
    machine.runners[0].seen.listed = Known::Is(Listing::Until(until));
    machine.runners[0].tokens_per_s = 60.0;
    machine.runners[0].queue.push_back(Job::text(47_000, 100));
    machine.run_for(700);
    assert!(matches!(machine.verdict(0), Verdict::Prefill { .. }));
    assert_eq!(machine.rungs, []);
}

#[test]
fn embeddings_and_single_tokens_are_answers_where_they_are_usual() {
    let mut machine = Machine::new();
    for _ in 0..40 {
        machine.runners[0].queue.push_back(Job::text(300, 0));
    }
    machine.run_for(120);
    assert_eq!(machine.verdict(0), &Verdict::EmptyReplies, "told, and nothing is done");
    assert_eq!(machine.rungs, []);

    let mut machine = Machine::new();
    for round in 0..12 {
        let answer = if round % 3 == 2 { 20 } else { 1 };
        machine.runners[0].queue.push_back(Job::text(300, answer));
    }
    machine.run_for(120);
    assert_eq!(machine.rungs, [], "two short answers between two long ones are somebody's habit");
}

#[test]
fn an_mlx_prompt_is_followed_in_the_log() {
    let mut machine = Machine::new();
    let runner = &mut machine.runners[0];
    runner.seen.kind = RunnerKind::Mlx;
    (runner.tokens_per_s, runner.far_factor) = (60.0, 8.0);
    runner.queue.push_back(Job::text(40_000, 200));
    machine.run_for(300);
    assert!(
        matches!(machine.verdict(0), Verdict::Prefill { of: Some(40_000), eta: Some(_), .. }),
        "{:?}",
        machine.judged
    );
    machine.run_for(3_000);
    assert_eq!(machine.rungs, []);
    assert!(!machine.words.contains(&"suspect"), "{:?}", machine.words);
}

#[test]
fn a_runner_that_was_not_asked_is_not_silent() {
    let mut machine = Machine::new();
    machine.runners[0].queue.push_back(Job::text(300, 100_000));
    machine.run_for(60);
    machine.runners[0].unreadable = true;
    machine.runners[0].seen.health = Health::Unknown;
    machine.run_for(600);
    assert_eq!(machine.rungs, []);
    assert!(!machine.words.contains(&"suspect"), "{:?}", machine.words);
}

#[test]
fn generation_far_below_the_usual_rate_is_slow_and_says_why() {
    let mut machine = Machine::new();
    machine.runners[0].queue.push_back(Job::text(300, 1_000_000));
    machine.run_for(120);
    assert!(matches!(machine.verdict(0), Verdict::Generating { tokens_per_s: Some(_) }));
    machine.paging = 8.0;
    machine.run_for(60);
    assert_eq!(machine.verdict(0), &Verdict::Slow { why: Why::Paging });
    assert_eq!(machine.rungs, []);
}
