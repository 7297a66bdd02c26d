//! Scenarios and properties of the ladder, played by hand: judgements in, effects out.

mod properties;

use super::*;
use crate::Known;
use crate::stall::{How, Rung, Subject};
use crate::time::{Awake, Now, Wall};

pub(super) const RUNNER: Identity = Identity { pid: 101, birth: 7 };
const OTHER: Identity = Identity { pid: 102, birth: 7 };
const SERVER: Identity = Identity { pid: 10, birth: 7 };

pub(super) fn at(seconds: u64) -> Now {
    Now { awake: Awake::from_start(Duration::from_secs(seconds)), wall: Wall::from_unix_ms(0) }
}

pub(super) fn runner(id: Identity, verdict: Verdict, may_recover: Option<Rung>) -> Judgement {
    let subject = Subject::Runner { id, model: Known::Is("qwen3:8b".to_owned()) };
    Judgement { subject, verdict, evidence: vec![], since: Awake::default(), may_recover }
}

fn server(verdict: Verdict, may_recover: Option<Rung>) -> Judgement {
    let subject = Subject::Server { id: SERVER };
    Judgement { subject, verdict, evidence: vec![], since: Awake::default(), may_recover }
}

fn hung(id: Identity) -> Judgement {
    runner(id, Verdict::Hung { how: How::DecodeLoop }, Some(Rung::EndRunner))
}

fn working(id: Identity) -> Judgement {
    runner(id, Verdict::Generating { tokens_per_s: None }, None)
}

fn ladder(policy: Policy) -> Ladder {
    Ladder::new(policy, Limits::default())
}

/// The names of the effects, without what is only told.
fn names(effects: &[Effect]) -> Vec<&'static str> {
    effects
        .iter()
        .filter_map(|effect| match effect {
            Effect::SaveEvidence { .. } => Some("save"),
            Effect::SignalRunner { signal: Signal::Term, .. } => Some("term"),
            Effect::SignalRunner { signal: Signal::Kill, .. } => Some("kill"),
            Effect::Unload { .. } => Some("unload"),
            Effect::RestartThroughOwner { .. } => Some("restart"),
            Effect::Verify { .. } => Some("verify"),
            Effect::GiveUp { .. } => Some("give up"),
            Effect::Finish { finish: Finish::Done, .. } => Some("done"),
            Effect::Finish { finish: Finish::Refused(_), .. } => Some("refused"),
            Effect::Finish { finish: Finish::Failed(_), .. } => Some("failed"),
            Effect::Alert(_) | Effect::Abandon { .. } => None,
        })
        .collect()
}

/// Of the effect that is to be answered next: a wish may have taken the place of what was begun before it.
pub(super) fn life(effects: &[Effect]) -> Life {
    effects.iter().rev().find_map(Effect::life).expect("an effect that is answered")
}

fn told(effects: &[Effect]) -> Vec<&'static str> {
    effects
        .iter()
        .filter_map(|effect| match effect {
            Effect::Alert(notice) => Some(notice.kind),
            Effect::SaveEvidence { .. }
            | Effect::SignalRunner { .. }
            | Effect::Unload { .. }
            | Effect::RestartThroughOwner { .. }
            | Effect::Verify { .. }
            | Effect::Abandon { .. }
            | Effect::GiveUp { .. }
            | Effect::Finish { .. } => None,
        })
        .collect()
}

/// What is not waited for any more, in the order of the effects.
fn abandoned(effects: &[Effect]) -> Vec<Life> {
    let life = |effect: &Effect| if let Effect::Abandon { life } = effect { Some(*life) } else { None };
    effects.iter().filter_map(life).collect()
}

/// Plays a whole recovery of a hung runner that begins with this step; what came last.
fn recover(ladder: &mut Ladder, now: Now, outcome: Result<Proof, String>) -> Vec<Effect> {
    let saved = ladder.step(now, Event::Judged(vec![hung(RUNNER)]));
    assert_eq!(names(&saved), ["save"], "{saved:?}");
    let term = ladder.step(now, Event::Done { life: life(&saved) });
    assert_eq!(names(&term), ["term"]);
    let verify = ladder.step(now, Event::Done { life: life(&term) });
    assert_eq!(names(&verify), ["verify"]);
    ladder.step(now, Event::Judged(vec![]));
    ladder.step(now, Event::Verified { life: life(&verify), outcome })
}

#[test]
fn alerts_are_all_that_comes_by_default() {
    let mut ladder = ladder(Policy::default());
    let effects = ladder.step(at(0), Event::Judged(vec![hung(RUNNER), server(Verdict::Idle, None)]));
    assert_eq!(told(&effects), ["hung"]);
    assert_eq!(names(&effects), [""; 0]);
    assert_eq!(ladder.step(at(1), Event::Judged(vec![hung(RUNNER)])), [], "told once");
    ladder.step(at(2), Event::Judged(vec![working(RUNNER)]));
    assert_eq!(told(&ladder.step(at(3), Event::Judged(vec![hung(RUNNER)]))), ["hung"], "told again when it comes back");
}

#[test]
fn a_hung_runner_is_ended_with_its_evidence_saved_before_and_verified_after() {
    let mut ladder = ladder(Policy::Runner);
    let effects = recover(&mut ladder, at(0), Ok(Proof::Answered));
    assert_eq!(told(&effects), ["recovered"]);
    assert_eq!(ladder.doing(), None);
}

#[test]
fn a_runner_that_does_not_end_on_sigterm_is_killed_within_a_second() {
    let mut ladder = ladder(Policy::Runner);
    let saved = ladder.step(at(0), Event::Judged(vec![hung(RUNNER)]));
    ladder.step(at(0), Event::Done { life: life(&saved) });
    let (deadline, name) = ladder.deadline().expect("a deadline");
    assert_eq!(name, "runner ends on SIGTERM");
    assert!(deadline.since(at(0).awake) < Duration::from_secs(1));
    let effects = ladder.step(at(1), Event::Tick);
    assert_eq!(names(&effects), ["kill"]);
    let verify = ladder.step(at(1), Event::Done { life: life(&effects) });
    assert!(matches!(&verify[..], [Effect::Verify { check: Check::Runner { id: RUNNER, model: Some(_) }, .. }]));
}

#[test]
fn a_policy_that_is_lowered_in_the_middle_holds_at_once() {
    let mut ladder = ladder(Policy::Runner);
    let effects = ladder.step(at(0), Event::Judged(vec![hung(RUNNER)]));
    ladder.step(at(1), Event::PolicySet(Policy::AlertOnly));
    assert_eq!(names(&ladder.step(at(1), Event::Done { life: life(&effects) })), Vec::<&str>::new());
    assert_eq!(ladder.doing(), None);

    let effects = ladder.step(at(2), Event::PolicySet(Policy::Runner));
    let effects = ladder.step(at(2), Event::Done { life: life(&effects) });
    assert_eq!(names(&effects), ["term"]);
    ladder.step(at(2), Event::PolicySet(Policy::AlertOnly));
    assert_eq!(names(&ladder.step(at(4), Event::Tick)), Vec::<&str>::new(), "no SIGKILL after it");
}

#[test]
fn progress_before_the_signal_calls_it_off() {
    let mut ladder = ladder(Policy::Runner);
    let saved = ladder.step(at(0), Event::Judged(vec![hung(RUNNER)]));
    ladder.step(at(1), Event::Judged(vec![working(RUNNER)]));
    assert_eq!(ladder.step(at(1), Event::Done { life: life(&saved) }), []);
    assert_eq!(ladder.doing(), None);
}

#[test]
fn an_orphan_is_ended_and_no_request_is_made_for_it() {
    let mut ladder = ladder(Policy::Runner);
    let saved = ladder.step(at(0), Event::Judged(vec![runner(RUNNER, Verdict::Orphan, Some(Rung::EndRunner))]));
    let term = ladder.step(at(0), Event::Done { life: life(&saved) });
    let verify = ladder.step(at(0), Event::Done { life: life(&term) });
    assert!(matches!(&verify[..], [Effect::Verify { check: Check::Runner { id: RUNNER, model: None }, .. }]));
    let effects = ladder.step(at(0), Event::Verified { life: life(&verify), outcome: Ok(Proof::Answered) });
    assert_eq!(told(&effects), ["recovered"]);
}

#[test]
fn evidence_that_cannot_be_saved_holds_nothing_up() {
    let mut ladder = ladder(Policy::Runner);
    let saved = ladder.step(at(0), Event::Judged(vec![hung(RUNNER)]));
    let effects = ladder.step(at(0), Event::Failed { life: life(&saved), why: "the disk is full".to_owned() });
    assert_eq!(names(&effects), ["term"]);
    let verify = ladder.step(at(0), Event::Done { life: life(&effects) });
    let effects = ladder.step(at(0), Event::Verified { life: life(&verify), outcome: Ok(Proof::Seen) });
    let [Effect::Alert(notice)] = &effects[..] else { panic!("{effects:?}") };
    assert!(notice.message.ends_with("the server answers; evidence was not kept: the disk is full"), "{notice:?}");
}

#[test]
fn each_verdict_has_its_own_first_rung() {
    let cases = [
        (runner(RUNNER, Verdict::StuckUnloading, Some(Rung::EndRunner)), "term"),
        (runner(RUNNER, Verdict::Orphan, Some(Rung::EndRunner)), "term"),
        (runner(RUNNER, Verdict::EmptyReplies, Some(Rung::Unload)), "unload"),
        (server(Verdict::ServerSilent, Some(Rung::RestartServer)), "restart"),
        (server(Verdict::SchedulerBlocked, Some(Rung::RestartServer)), "restart"),
        (server(Verdict::ServerCorrupt, Some(Rung::RestartServer)), "restart"),
    ];
    for (judgement, step) in cases {
        let mut ladder = ladder(Policy::All);
        let saved = ladder.step(at(0), Event::Judged(vec![judgement]));
        assert_eq!(names(&ladder.step(at(0), Event::Done { life: life(&saved) })), [step]);
    }
}

#[test]
fn the_server_is_restarted_under_the_widest_policy_alone() {
    let mut ladder = ladder(Policy::Runner);
    let silent = server(Verdict::ServerSilent, Some(Rung::RestartServer));
    let effects = ladder.step(at(0), Event::Judged(vec![silent.clone()]));
    assert_eq!((told(&effects), names(&effects)), (vec!["server-silent"], vec![]));
    assert_eq!(names(&ladder.step(at(1), Event::PolicySet(Policy::All))), ["save"]);
}

#[test]
fn what_is_judged_without_a_rung_is_only_told() {
    let mut ladder = ladder(Policy::All);
    let suspect = Verdict::Suspect { silence: Duration::from_secs(90), allowed: Duration::from_secs(60) };
    let effects = ladder.step(at(0), Event::Judged(vec![runner(RUNNER, suspect, None)]));
    assert_eq!((told(&effects), names(&effects)), (vec!["suspect"], vec![]));
}

#[test]
fn nothing_is_kicked_while_a_pinned_model_loads() {
    let mut ladder = ladder(Policy::All);
    ladder.step(at(0), Event::PinnedSet(BTreeSet::from(["qwen3:8b".to_owned()])));
    let loading = runner(OTHER, Verdict::Loading { span: Duration::from_secs(3) }, None);
    assert_eq!(names(&ladder.step(at(1), Event::Judged(vec![hung(RUNNER), loading]))), [""; 0]);
    assert_eq!(names(&ladder.step(at(2), Event::Judged(vec![hung(RUNNER)]))), ["save"]);
}

#[test]
fn a_cause_cools_down_between_two_steps() {
    let mut ladder = ladder(Policy::Runner);
    recover(&mut ladder, at(0), Ok(Proof::Answered));
    assert_eq!(names(&ladder.step(at(30), Event::Judged(vec![hung(OTHER)]))), [""; 0]);
    assert_eq!(ladder.deadline(), Some((at(60).awake, "cooldown")));
    assert_eq!(names(&ladder.step(at(60), Event::Tick)), ["save"]);
}

#[test]
fn two_fast_failures_of_the_same_kind_are_given_up_on_until_a_person_asks() {
    let mut ladder = ladder(Policy::Runner);
    recover(&mut ladder, at(0), Ok(Proof::Answered));
    recover(&mut ladder, at(100), Ok(Proof::Answered));
    let effects = ladder.step(at(200), Event::Judged(vec![hung(RUNNER)]));
    assert_eq!(names(&effects), ["give up"]);
    assert!(told(&effects).contains(&"gave-up"));
    let given_up: Vec<_> = ladder.given_up().collect();
    let [(Cause::Hung, GivenUp { subject, why })] = &given_up[..] else { panic!("{given_up:?}") };
    assert!(subject.contains("qwen3:8b") && why.contains("came back"), "{subject} {why}");
    for seconds in 201..9_000 {
        assert_eq!(names(&ladder.step(at(seconds), Event::Judged(vec![hung(RUNNER)]))), [""; 0]);
    }
    assert_eq!(names(&ladder.step(at(9_000), Event::TryAgain)), ["save"]);
    assert_eq!(ladder.given_up().count(), 0);
}

#[test]
fn what_was_given_up_names_the_command_that_takes_it_up_and_another_policy_does_it_too() {
    let mut ladder = ladder(Policy::Runner);
    recover(&mut ladder, at(0), Ok(Proof::Answered));
    recover(&mut ladder, at(100), Ok(Proof::Answered));
    let effects = ladder.step(at(200), Event::Judged(vec![hung(RUNNER)]));
    let action = |effect: &Effect| if let Effect::Alert(notice) = effect { Some(notice.action.clone()) } else { None };
    assert!(effects.iter().filter_map(action).any(|action| action == "stablehand recover"), "{effects:?}");
    assert_eq!(ladder.step(at(300), Event::PolicySet(Policy::Runner)), [], "nothing new was said");
    assert_eq!(ladder.given_up().count(), 1);
    assert_eq!(names(&ladder.step(at(301), Event::PolicySet(Policy::All))), ["save"]);
    assert_eq!(ladder.given_up().count(), 0);
}

#[test]
fn what_is_done_for_a_person_is_told_before() {
    let ask = Ask::EndRunner { id: RUNNER, force: true };
    let steps = ask.steps("qwen3:8b").join("\n");
    assert!(steps.contains("qwen3:8b (pid 101)") && steps.contains("SIGKILL") && steps.contains("60 s"), "{steps}");
    let gentle = Ask::EndRunner { id: RUNNER, force: false }.steps("qwen3:8b").join("\n");
    assert!(gentle.contains("10 s") && !gentle.contains("SIGKILL"), "{gentle}");
}

#[test]
fn a_step_that_has_not_helped_is_a_failure_too() {
    let mut ladder = ladder(Policy::Runner);
    let effects = recover(&mut ladder, at(0), Err("the next request was not answered".to_owned()));
    assert_eq!(told(&effects), ["not-helped"]);
    recover(&mut ladder, at(100), Err("the next request was not answered".to_owned()));
    assert_eq!(names(&ladder.step(at(200), Event::Judged(vec![hung(RUNNER)]))), ["give up"]);
}

#[test]
fn under_the_widest_policy_the_server_is_restarted_once_before_giving_up() {
    let mut ladder = ladder(Policy::All);
    recover(&mut ladder, at(0), Ok(Proof::Answered));
    recover(&mut ladder, at(100), Ok(Proof::Answered));
    let saved = ladder.step(at(200), Event::Judged(vec![hung(RUNNER)]));
    let restart = ladder.step(at(200), Event::Done { life: life(&saved) });
    assert_eq!(names(&restart), ["restart"]);
    let verify = ladder.step(at(220), Event::Done { life: life(&restart) });
    ladder.step(at(221), Event::Judged(vec![]));
    ladder.step(at(221), Event::Verified { life: life(&verify), outcome: Ok(Proof::Answered) });
    assert_eq!(names(&ladder.step(at(300), Event::Judged(vec![hung(RUNNER)]))), ["give up"]);
}

#[test]
fn a_process_that_survives_sigkill_is_given_up_on_at_once() {
    let mut ladder = ladder(Policy::Runner);
    let saved = ladder.step(at(0), Event::Judged(vec![hung(RUNNER)]));
    ladder.step(at(0), Event::Done { life: life(&saved) });
    let kill = ladder.step(at(1), Event::Tick);
    assert_eq!(names(&kill), ["kill"]);
    assert_eq!(ladder.step(at(60), Event::Tick), [], "40 GB are given back slowly while the machine pages");
    let effects = ladder.step(at(61), Event::Tick);
    assert_eq!((names(&effects), abandoned(&effects)), (vec!["give up"], vec![life(&kill)]));
    let why = effects.iter().find_map(|effect| if let Effect::GiveUp { why, .. } = effect { Some(why) } else { None });
    assert!(why.is_some_and(|why| why.contains("60 s after SIGKILL")), "{why:?}");
}

#[test]
fn what_is_late_is_abandoned_before_the_next_step() {
    let mut ladder = ladder(Policy::Runner);
    let saved = ladder.step(at(0), Event::Judged(vec![hung(RUNNER)]));
    let term = ladder.step(at(6), Event::Tick);
    assert!(
        matches!(&term[..], [Effect::Abandon { life }, Effect::SignalRunner { .. }] if *life == self::life(&saved)),
        "{term:?}"
    );
    let kill = ladder.step(at(7), Event::Tick);
    assert!(
        matches!(&kill[..], [Effect::Abandon { life }, Effect::SignalRunner { .. }] if *life == self::life(&term)),
        "{kill:?}"
    );
    let verify = ladder.step(at(8), Event::Done { life: life(&kill) });
    assert_eq!(abandoned(&verify), [], "an answered effect is over");
}

#[test]
fn what_is_called_off_is_abandoned() {
    // The machine slept.
    let mut ladder = ladder(Policy::Runner);
    let saved = ladder.step(at(0), Event::Judged(vec![hung(RUNNER)]));
    let term = ladder.step(at(0), Event::Done { life: life(&saved) });
    assert_eq!(ladder.step(at(0), Event::Woke), [Effect::Abandon { life: life(&term) }]);
    // It moves again, or the right was taken away.
    for then in [Event::Judged(vec![working(RUNNER)]), Event::PolicySet(Policy::AlertOnly)] {
        let mut ladder = self::ladder(Policy::Runner);
        let saved = ladder.step(at(0), Event::Judged(vec![hung(RUNNER)]));
        let term = ladder.step(at(0), Event::Done { life: life(&saved) });
        let mut effects = ladder.step(at(0), then);
        effects.extend(ladder.step(at(1), Event::Tick));
        assert_eq!((names(&effects), abandoned(&effects)), (vec![], vec![life(&term)]));
    }
}

#[test]
fn six_steps_an_hour_are_the_most_and_it_is_said() {
    let limits = Limits { fast: Duration::from_secs(1), ..Limits::default() };
    let mut ladder = Ladder::new(Policy::Runner, limits);
    for round in 0..6 {
        recover(&mut ladder, at(round * 100), Ok(Proof::Answered));
    }
    let effects = ladder.step(at(700), Event::Judged(vec![hung(RUNNER)]));
    assert_eq!((names(&effects), told(&effects)), (vec![], vec!["hung", "recovery-held"]));
    assert_eq!(ladder.deadline().map(|(_, name)| name), Some("cap per hour"));
    assert_eq!(names(&ladder.step(at(3_600), Event::Tick)), ["save"]);
}

/// Whoever asks for single tokens gets single tokens from every runner.
#[test]
fn empty_replies_that_go_on_after_an_unload_never_cost_the_server() {
    let mut ladder = ladder(Policy::All);
    let empty = |pid| {
        let id = Identity { pid, ..RUNNER };
        Event::Judged(vec![runner(id, Verdict::EmptyReplies, Some(Rung::Unload))])
    };
    let mut seen = vec![];
    for round in 0..6 {
        let begun = at(round * 130);
        let saved = ladder.step(begun, empty(500 + u32::try_from(round).unwrap()));
        seen.extend(names(&saved));
        if names(&saved) != ["save"] {
            continue;
        }
        let unload = ladder.step(begun, Event::Done { life: life(&saved) });
        seen.extend(names(&unload));
        let verify = ladder.step(begun, Event::Done { life: life(&unload) });
        ladder.step(begun, Event::Verified { life: life(&verify), outcome: Ok(Proof::Answered) });
    }
    assert!(seen.contains(&"unload") && seen.contains(&"give up"), "{seen:?}");
    assert!(!seen.contains(&"restart"), "{seen:?}");
}

#[test]
fn a_stale_answer_is_dropped() {
    let mut ladder = ladder(Policy::Runner);
    let saved = ladder.step(at(0), Event::Judged(vec![hung(RUNNER)]));
    let term = ladder.step(at(0), Event::Done { life: life(&saved) });
    assert_eq!(ladder.step(at(0), Event::Done { life: life(&saved) }), []);
    let kill = ladder.step(at(1), Event::Tick);
    assert_eq!(names(&kill), ["kill"]);
    assert_eq!(ladder.step(at(1), Event::Failed { life: life(&term), why: String::new() }), []);
    assert_eq!(
        ladder.step(at(1), Event::Verified { life: life(&kill), outcome: Ok(Proof::Answered) }),
        [],
        "nothing to verify yet"
    );
}

#[test]
fn a_sleep_calls_off_what_was_suspected_before_it() {
    let mut ladder = ladder(Policy::Runner);
    let saved = ladder.step(at(0), Event::Judged(vec![hung(RUNNER)]));
    assert_eq!(ladder.step(at(1), Event::Woke), [Effect::Abandon { life: life(&saved) }]);
    assert_eq!(ladder.step(at(2), Event::Done { life: life(&saved) }), []);
    assert_eq!(ladder.doing(), None);
}

#[test]
fn a_person_ends_a_runner_whatever_it_does_and_whatever_the_policy() {
    let mut ladder = ladder(Policy::AlertOnly);
    ladder.step(at(0), Event::Judged(vec![working(RUNNER)]));
    let ask = Ask::EndRunner { id: RUNNER, force: true };
    let saved = ladder.step(at(1), Event::PersonAsked { wish: WishId(3), ask });
    assert_eq!(names(&saved), ["save"]);
    let term = ladder.step(at(1), Event::Done { life: life(&saved) });
    assert_eq!(names(&term), ["term"]);
    let kill = ladder.step(at(2), Event::Tick);
    assert_eq!(names(&kill), ["kill"]);
    let verify = ladder.step(at(2), Event::Done { life: life(&kill) });
    assert!(
        matches!(&verify[..], [Effect::Verify { check: Check::Runner { model: None, .. }, .. }]),
        "nothing is asked"
    );
    let effects = ladder.step(at(2), Event::Verified { life: life(&verify), outcome: Ok(Proof::Answered) });
    assert_eq!(effects, [Effect::Finish { wish: WishId(3), finish: Finish::Done }]);
}

#[test]
fn without_force_a_runner_that_lives_on_is_left_alone_and_it_is_said() {
    let mut ladder = ladder(Policy::All);
    ladder.step(at(0), Event::Judged(vec![working(RUNNER)]));
    let ask = Ask::EndRunner { id: RUNNER, force: false };
    let saved = ladder.step(at(0), Event::PersonAsked { wish: WishId(3), ask });
    ladder.step(at(0), Event::Done { life: life(&saved) });
    assert_eq!(ladder.step(at(5), Event::Tick), []);
    let effects = ladder.step(at(11), Event::Tick);
    let [Effect::Abandon { .. }, Effect::Finish { wish: WishId(3), finish: Finish::Failed(why) }] = &effects[..] else {
        panic!("{effects:?}")
    };
    assert!(why.contains("--force"), "{why}");
}

#[test]
fn a_runner_of_another_life_is_not_touched() {
    let mut ladder = ladder(Policy::All);
    ladder.step(at(0), Event::Judged(vec![working(RUNNER)]));
    let ask = Ask::EndRunner { id: Identity { birth: 8, ..RUNNER }, force: true };
    assert_eq!(names(&ladder.step(at(1), Event::PersonAsked { wish: WishId(3), ask })), ["refused"]);
}

#[test]
fn a_person_does_not_wait_for_the_verification_of_something_else() {
    let mut ladder = ladder(Policy::Runner);
    let saved = ladder.step(at(0), Event::Judged(vec![hung(RUNNER)]));
    let term = ladder.step(at(0), Event::Done { life: life(&saved) });
    ladder.step(at(0), Event::Done { life: life(&term) });
    let ask = Ask::Unload { model: "한글 모델".to_owned() };
    let effects = ladder.step(at(1), Event::PersonAsked { wish: WishId(9), ask });
    assert_eq!(names(&effects), ["unload"]);
    let verify = ladder.step(at(2), Event::Done { life: life(&effects) });
    assert!(matches!(&verify[..], [Effect::Verify { check: Check::Unloaded { ask: false, .. }, .. }]));
}
