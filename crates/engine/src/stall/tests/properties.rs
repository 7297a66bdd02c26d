//! What holds whatever happens.

use super::machine::{Job, Machine};
use crate::stall::Verdict;
use proptest::prelude::*;

#[derive(Clone, Debug)]
struct Model {
    tokens_per_s: f64,
    far_factor: f64,
    batch: u64,
    token_s: f64,
    slots: usize,
}

fn model() -> impl Strategy<Value = Model> {
    (3.0..7.6_f64, 1.0..8.0_f64, prop_oneof![Just(512_u64), Just(1_024), Just(2_048)], -4.6..0.69_f64, 1_usize..5)
        .prop_map(|(speed, far_factor, batch, token, slots)| Model {
            tokens_per_s: speed.exp().clamp(20.0, 2_000.0),
            far_factor,
            batch,
            token_s: token.exp().min(2.0),
            slots,
        })
}

fn job() -> impl Strategy<Value = Job> {
    let image = prop_oneof![4 => Just(0.0), 1 => 1.0..119.0_f64];
    (0_u64..100_000, 1_u64..20_000, image, 1_u64..200).prop_map(|(cached, prompt, image_s, answer)| Job {
        cached: if cached % 3 == 0 { cached } else { 0 },
        prompt,
        image_s,
        answer: answer.max(2),
    })
}

#[derive(Clone, Debug)]
enum Happening {
    Ask(Job),
    Time(u64),
    Paging(f64),
    Sleep,
    ClockSet(i64),
    Unreadable(u64),
    ClientLeaves,
}

fn happening() -> impl Strategy<Value = Happening> {
    prop_oneof![
        5 => job().prop_map(Happening::Ask),
        5 => (1_u64..600).prop_map(Happening::Time),
        1 => prop_oneof![Just(1.0), 1.5..10.0_f64].prop_map(Happening::Paging),
        1 => Just(Happening::Sleep),
        1 => (-4_000_000_i64..4_000_000).prop_map(Happening::ClockSet),
        1 => (1_u64..25).prop_map(Happening::Unreadable),
        1 => Just(Happening::ClientLeaves),
    ]
}

fn play(machine: &mut Machine, happening: Happening) {
    match happening {
        Happening::Ask(job) => machine.runners[0].queue.push_back(job),
        Happening::Time(seconds) => machine.run_for(seconds),
        Happening::Paging(factor) => machine.paging = factor,
        Happening::Sleep => machine.sleep(8),
        Happening::ClockSet(step_ms) => machine.wall_ms += step_ms,
        Happening::Unreadable(seconds) => {
            machine.runners[0].unreadable = true;
            machine.run_for(seconds);
            machine.runners[0].unreadable = false;
        }
        Happening::ClientLeaves => {
            // The loop sees it between two steps.
            if let Some(number) = machine.runners[0].slots.iter().position(|slot| slot.generated > 1) {
                machine.runners[0].cancel(number);
            }
        }
    }
}

fn machine_with(model: &Model) -> Machine {
    let mut machine = Machine::new();
    machine.runners.clear();
    machine.add("m", model.slots);
    let runner = &mut machine.runners[0];
    (runner.tokens_per_s, runner.far_factor) = (model.tokens_per_s, model.far_factor);
    (runner.batch, runner.token_s) = (model.batch, model.token_s);
    machine
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn honest_work_inside_the_envelope_never_allows_a_rung(
        model in model(),
        story in prop::collection::vec(happening(), 1..60),
    ) {
        let mut machine = machine_with(&model);
        for happening in story {
            play(&mut machine, happening);
        }
        machine.run_for(1_200);
        prop_assert_eq!(&machine.rungs, &[], "{:?}", machine.judged);
    }

    #[test]
    fn any_progress_clears_a_suspicion(model in model(), jobs in prop::collection::vec(job(), 1..6), wait in 1_u64..3_000) {
        let mut machine = machine_with(&model);
        machine.runners[0].queue.extend(jobs);
        machine.runners[0].queue.push_back(Job { cached: 0, prompt: 100_000, image_s: 0.0, answer: 2_000 });
        machine.run_for(wait);
        prop_assume!(machine.runners[0].is_busy());
        machine.runners[0].stuck = true;
        machine.run_until("hung");
        machine.runners[0].stuck = false;
        let decodes = machine.runners[0].decodes;
        while machine.runners[0].decodes == decodes {
            machine.tick(1.0);
        }
        prop_assert!(!machine.verdict(0).is_trouble(), "{:?}", machine.judged);
        prop_assert!(machine.judged.iter().all(|judgement| judgement.may_recover.is_none()));
    }

    #[test]
    fn a_hung_runner_with_a_request_in_it_is_found(model in model(), jobs in prop::collection::vec(job(), 1..6), wait in 1_u64..3_000) {
        let mut machine = machine_with(&model);
        machine.runners[0].queue.extend(jobs);
        machine.run_for(wait);
        prop_assume!(machine.runners[0].is_busy());
        machine.runners[0].stuck = true;
        machine.run_until("hung");
        let hung = matches!(machine.verdict(0), Verdict::Hung { .. });
        prop_assert!(hung);
    }
}
