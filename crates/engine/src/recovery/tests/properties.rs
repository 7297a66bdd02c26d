//! What holds whatever happens.

use super::super::*;
use super::{at, runner};
use crate::stall::{How, Rung};
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Happening {
    /// Runners that are there (as a set of bits), and those of them that are hung.
    Look {
        there: u8,
        hung: u8,
    },
    Time(u64),
    Done,
    Failed,
    Verified(bool),
    Stale(u64),
    Woke,
    End {
        pid: u32,
        force: bool,
    },
    Unload,
    Policy(u8),
}

fn happening() -> impl Strategy<Value = Happening> {
    prop_oneof![
        6 => (any::<u8>(), any::<u8>()).prop_map(|(there, hung)| Happening::Look { there, hung }),
        3 => (1_u64..400).prop_map(Happening::Time),
        5 => Just(Happening::Done),
        1 => Just(Happening::Failed),
        2 => any::<bool>().prop_map(Happening::Verified),
        1 => (0_u64..40).prop_map(Happening::Stale),
        1 => Just(Happening::Woke),
        1 => (0_u32..8, any::<bool>()).prop_map(|(pid, force)| Happening::End { pid, force }),
        1 => Just(Happening::Unload),
        1 => (0_u8..3).prop_map(Happening::Policy),
    ]
}

fn identity(pid: u32) -> Identity {
    Identity { pid, birth: 1 }
}

struct Play {
    ladder: Ladder,
    seconds: u64,
    there: Vec<Identity>,
    open: Option<Life>,
    /// What is under way is answered by [`Event::Verified`].
    verifies: bool,
    asked: u64,
    ended: u64,
    saved: Option<Identity>,
    steps: Vec<u64>,
    by_person: bool,
}

impl Play {
    /// The life of what is under way. An answer of the wrong kind is none, and leaves it under way.
    fn answer(&mut self, verified: bool) -> Option<Life> {
        let open = self.open;
        if verified == self.verifies {
            self.open = None;
        }
        open
    }

    fn step(&mut self, event: Event) {
        let effects = self.ladder.step(at(self.seconds), event);
        for effect in &effects {
            match effect {
                Effect::SaveEvidence { judgement, .. } => self.saved = Some(judgement.subject.id()),
                Effect::SignalRunner { id, signal, .. } => {
                    assert!(self.there.contains(id), "signalled {id:?}, which was not in the last observation");
                    assert_eq!(self.saved, Some(*id), "evidence comes first");
                    if *signal == Signal::Term && !self.by_person {
                        self.steps.push(self.seconds);
                    }
                }
                Effect::RestartThroughOwner { .. } => {
                    assert_eq!(self.ladder.policy(), Policy::All);
                    self.steps.push(self.seconds);
                }
                Effect::Finish { .. } => self.ended += 1,
                Effect::Abandon { life } => {
                    assert_eq!(self.open.take(), Some(*life), "abandoned without being waited for, or too late");
                }
                Effect::Unload { .. } | Effect::Verify { .. } | Effect::Alert(_) | Effect::GiveUp { .. } => (),
            }
        }
        let last_hour = self.steps.iter().filter(|step| self.seconds - **step < 3_600).count();
        assert!(last_hour <= 7, "{last_hour} steps within an hour");
        let begun: Vec<Life> = effects.iter().filter_map(Effect::life).collect();
        assert!(begun.len() <= 1, "one thing at a time: {effects:?}");
        if let Some(life) = begun.first() {
            assert_eq!(self.open, None, "something else is under way still");
            self.open = Some(*life);
            self.verifies = effects.iter().any(|effect| matches!(effect, Effect::Verify { .. }));
        }
    }

    fn play(&mut self, happening: Happening) {
        match happening {
            Happening::Look { there, hung } => {
                let pids = || (0..8_u32).filter(|pid| there & (1 << pid) != 0);
                self.there = pids().map(identity).collect();
                let judged = pids()
                    .map(|pid| {
                        if hung & (1 << pid) != 0 {
                            runner(identity(pid), Verdict::Hung { how: How::DecodeLoop }, Some(Rung::EndRunner))
                        } else {
                            runner(identity(pid), Verdict::Idle, None)
                        }
                    })
                    .collect();
                self.step(Event::Judged(judged));
            }
            Happening::Time(seconds) => {
                self.seconds += seconds;
                self.step(Event::Tick);
            }
            Happening::Done => {
                if let Some(life) = self.answer(false) {
                    self.step(Event::Done { life });
                }
            }
            Happening::Failed => {
                if let Some(life) = self.answer(false) {
                    self.step(Event::Failed { life, why: "scripted".to_owned() });
                }
            }
            Happening::Verified(good) => {
                if let Some(life) = self.answer(true) {
                    let outcome = if good { Ok(Proof::Answered) } else { Err("scripted".to_owned()) };
                    self.step(Event::Verified { life, outcome });
                }
            }
            Happening::Stale(number) => {
                if self.open != Some(Life(number)) {
                    let before = self.ladder.doing();
                    self.step(Event::Done { life: Life(number) });
                    if self.ladder.deadline().is_none_or(|(deadline, _)| deadline > at(self.seconds).awake) {
                        assert!(before.is_none() || self.ladder.doing() == before, "a stale answer moved it");
                    }
                }
            }
            Happening::Woke => self.step(Event::Woke),
            Happening::End { pid, force } => {
                self.asked += 1;
                self.by_person = true;
                let ask = Ask::EndRunner { id: identity(pid), force };
                self.step(Event::PersonAsked { wish: WishId(self.asked), ask });
            }
            Happening::Unload => {
                self.asked += 1;
                self.step(Event::PersonAsked { wish: WishId(self.asked), ask: Ask::Unload { model: "m".to_owned() } });
            }
            Happening::Policy(number) => {
                let policy = [Policy::AlertOnly, Policy::Runner, Policy::All][usize::from(number)];
                self.step(Event::PolicySet(policy));
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_signal_without_sight_and_evidence_and_every_wish_ends(story in prop::collection::vec(happening(), 1..80)) {
        let mut play = Play {
            ladder: Ladder::new(Policy::All, Limits::default()),
            seconds: 0,
            there: vec![],
            open: None,
            verifies: false,
            asked: 0,
            ended: 0,
            saved: None,
            steps: vec![],
            by_person: false,
        };
        for happening in story {
            play.play(happening);
        }
        for _ in 0..2_000 {
            play.play(Happening::Time(60));
        }
        prop_assert_eq!(play.asked, play.ended, "every wish ends, once");
    }
}
