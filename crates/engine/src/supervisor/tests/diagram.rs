//! The transitions that stand in ARCHITECTURE.md, found by playing and not by hand.

use super::bench::{Bench, Fault};
use crate::owner::Foreigner;
use crate::plan::Goal;
use crate::setting::Values;
use crate::supervisor::Event;
use std::collections::BTreeSet;
use std::time::Duration;

const BEGIN: &str = "<!-- supervisor transitions: printed by the engine's tests -->\n```text\n";
const END: &str = "```\n<!-- end of supervisor transitions -->";

#[test]
fn the_transitions_in_architecture_md_are_those_that_happen() {
    let printed = printed(&played());
    let document = include_str!("../../../../../ARCHITECTURE.md");
    let begin = document.find(BEGIN).expect("ARCHITECTURE.md has the marked block") + BEGIN.len();
    let end = document[begin..].find(END).expect("the marked block ends") + begin;
    assert!(document[begin..end] == printed, "put this block into ARCHITECTURE.md:\n{BEGIN}{printed}{END}");
}

fn played() -> BTreeSet<(&'static str, &'static str, &'static str)> {
    let mut all = BTreeSet::new();
    let faults = [
        Fault::None,
        Fault::NeverAnswers,
        Fault::OwnerRespawns,
        Fault::OwnerRespawnsWithOldValues,
        Fault::StartsWithOldValues,
        Fault::Unreadable,
        Fault::DiesAfter(Duration::from_secs(2)),
        Fault::StepHangs("publish"),
        Fault::StepHangs("stop"),
        Fault::StepHangs("start"),
        Fault::StepFails { name: "persist", code: "x", again: crate::plan::Again::Never, times: 1 },
        Fault::StepFails { name: "start", code: "x", again: crate::plan::Again::Soon, times: 1 },
        Fault::StepFails { name: "start", code: "x", again: crate::plan::Again::Never, times: 1 },
    ];
    for own in [false, true] {
        for fault in &faults {
            for trouble in 0..4 {
                let mut bench = if own { Bench::with_own_process() } else { Bench::with_app() };
                bench.settle();
                bench.run_for(12);
                bench.fault = fault.clone();
                match trouble {
                    0 => {}
                    1 => bench.kill_server(),
                    2 => bench.answers = false,
                    _ => {
                        bench.kill_server();
                        bench.foreigner = Some(Foreigner::OtherUser { uid: None });
                    }
                }
                bench.run_for(12);
                let wish = bench.apply("1");
                bench.wish(wish);
                bench.run_for(700);
                bench.event(Event::Woke);
                bench.foreigner = None;
                if bench.server.is_none() {
                    bench.respawn("4".to_owned());
                }
                bench.run_for(20);
                bench.fault = Fault::None;
                bench.ask("2");
                bench.run_for(60);
                bench.upgrade_wishes(Goal::Stop);
                bench.run_for(60);
                bench.fault = fault.clone();
                bench.upgrade_wishes(Goal::Restart { desired: Values::new() });
                bench.run_for(700);
                bench.event(Event::HandedBack);
                bench.run_for(20);
                all.extend(bench.transitions.iter().copied());
            }
        }
    }
    all
}

fn printed(transitions: &BTreeSet<(&'static str, &'static str, &'static str)>) -> String {
    use std::fmt::Write as _;
    let mut text = String::new();
    for (from, cause, to) in transitions {
        writeln!(text, "{from:<10} ── {cause:<11} ──► {to}").expect("a String takes everything");
    }
    text
}
