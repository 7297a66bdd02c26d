//! What holds whatever happens. The bench itself asserts, at every step: never a second server of ours, a signal only
//! to the server that the plan was made for, requests held exactly while none is ready, and a named deadline that a
//! tick serves.

use super::super::*;
use super::bench::{Bench, Fault};
use crate::plan::Again;
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Happening {
    Time(u64),
    Wish(u8),
    Restart,
    UpgradeStops,
    UpgradeStarts,
    HandedOver,
    HandedBack,
    ServerDies,
    ServerAppears,
    AnswersStop,
    AnswersCome,
    Sleep,
    Fault(Fault),
    StaleAnswer(u64, usize),
    StaleFailure(u64, usize),
    Stranger(bool),
}

fn happening() -> impl Strategy<Value = Happening> {
    prop_oneof![
        4 => (1_u64..120).prop_map(Happening::Time),
        2 => (1_u8..4).prop_map(Happening::Wish),
        1 => Just(Happening::Restart),
        1 => Just(Happening::UpgradeStops),
        1 => Just(Happening::UpgradeStarts),
        1 => Just(Happening::HandedOver),
        1 => Just(Happening::HandedBack),
        2 => Just(Happening::ServerDies),
        2 => Just(Happening::ServerAppears),
        1 => Just(Happening::AnswersStop),
        1 => Just(Happening::AnswersCome),
        1 => Just(Happening::Sleep),
        2 => fault().prop_map(Happening::Fault),
        1 => (0_u64..60, 0_usize..8).prop_map(|(life, index)| Happening::StaleAnswer(life, index)),
        1 => (0_u64..60, 0_usize..8).prop_map(|(life, index)| Happening::StaleFailure(life, index)),
        1 => any::<bool>().prop_map(Happening::Stranger),
    ]
}

fn fault() -> impl Strategy<Value = Fault> {
    let step = prop_oneof![Just("persist"), Just("publish"), Just("stop"), Just("sweep"), Just("start")];
    prop_oneof![
        Just(Fault::None),
        Just(Fault::NeverAnswers),
        Just(Fault::OwnerRespawns),
        Just(Fault::OwnerRespawnsWithOldValues),
        Just(Fault::StartsWithOldValues),
        Just(Fault::Unreadable),
        (1_u64..20).prop_map(|seconds| Fault::DiesAfter(Duration::from_secs(seconds))),
        step.clone().prop_map(Fault::StepHangs),
        (step, any::<bool>(), 1_u32..4).prop_map(|(name, soon, times)| Fault::StepFails {
            name,
            code: "scripted",
            again: if soon { Again::Soon } else { Again::Never },
            times,
        }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whatever_happens_the_invariants_hold(own in any::<bool>(), story in prop::collection::vec(happening(), 1..40)) {
        let mut bench = if own { Bench::with_own_process() } else { Bench::with_app() };
        bench.settle();
        let mut wishes = vec![];
        for happening in story {
            play(&mut bench, happening, &mut wishes);
        }
        bench.fault = Fault::None;
        bench.run_for(1200);
        for wish in wishes {
            prop_assert!(bench.outcomes.contains_key(&wish), "every wish ends: {wish:?}");
        }
    }
}

fn play(bench: &mut Bench, happening: Happening, wishes: &mut Vec<WishId>) {
    match happening {
        Happening::Time(seconds) => bench.run_for(seconds),
        Happening::Wish(value) => {
            let wish = bench.apply(&value.to_string());
            wishes.push(wish.id);
            bench.wish(wish);
        }
        Happening::Restart => {
            let mut wish = bench.apply("1");
            wish.goal = Goal::Restart { desired: wish.goal.desired().clone() };
            wishes.push(wish.id);
            bench.wish(wish);
        }
        Happening::UpgradeStops => wishes.push(bench.upgrade_wishes(Goal::Stop)),
        Happening::UpgradeStarts => {
            wishes.push(bench.upgrade_wishes(Goal::Restart { desired: Values::new() }));
        }
        Happening::HandedOver => bench.event(Event::HandedOver),
        Happening::HandedBack => bench.event(Event::HandedBack),
        Happening::ServerDies => bench.kill_server(),
        Happening::ServerAppears => {
            // Somebody starts one while none runs; while we are starting one, the port decides and ours exits.
            if bench.server.is_none() && bench.foreigner.is_none() && bench.supervisor.state().word() == "down" {
                bench.respawn("4".to_owned());
                bench.run_for(11);
            }
        }
        Happening::AnswersStop => bench.answers = false,
        Happening::AnswersCome => bench.answers = bench.server.is_some(),
        Happening::Sleep => bench.event(Event::Woke),
        Happening::Fault(fault) => bench.fault = fault,
        Happening::StaleAnswer(life, index) => {
            if bench.performing != Some((Life(life), index)) {
                bench.event(Event::StepDone { life: Life(life), index, note: String::new() });
            }
        }
        Happening::StaleFailure(life, index) => {
            if bench.performing != Some((Life(life), index)) {
                let failure =
                    StepFailure { code: "stale", message: String::new(), hint: String::new(), again: Again::Never };
                bench.event(Event::StepFailed { life: Life(life), index, failure });
            }
        }
        Happening::Stranger(there) => {
            if bench.server.is_none() {
                bench.foreigner = there.then(|| Foreigner::Stranger { pid: 9, program: "python3".to_owned() });
            }
        }
    }
}
