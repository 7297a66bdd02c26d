//! One trace, with every rule and the oracle looking at it side by side.
//!
//! Traces are open: what a rule would kill goes on, so that all rules see the same. What a rule has killed once is not
//! counted again until other work is in it.

use crate::oracle::{Oracle, Proof};
use crate::rivals::{Rival, RunnerView, Target, View};
use crate::traces::Kind;
use crate::traces::runner::Phase;
use crate::traces::setup::Class;
use crate::traces::sight;
use crate::traces::world::{Culprit, World};
use stablehand_engine::process::Identity;
use stablehand_engine::stall::evidence::Observation;
use stablehand_engine::stall::{Judgement, Rung, Watcher};
use std::time::Duration;

/// Ours and the others.
pub const RULES: usize = 1 + Rival::NAMES.len();

/// Interval between looks while something is under way, and at rest.
const BUSY_MS: u64 = 1_000;
const REST_MS: u64 = 5_000;
/// How long a fault is waited for.
const NO_FAULT_S: f64 = 36_000.0;
/// How long a verdict is waited for once the stall is provable.
const VERDICT_S: f64 = 1_800.0;
/// A verdict that has not come so long after the proof is noted.
const LATE_S: f64 = 30.0;
/// What was killed and had no request in it is not counted again for so long.
const QUIET_S: f64 = 600.0;

/// What came out of one trace.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    pub healthy_s: f64,
    pub false_kills: [u32; RULES],
    /// Where something went wrong.
    pub stall: Option<Stall>,
    /// The oracle proved a stall in healthy work, or found steps that no speed explains.
    pub oracle_errors: u32,
    /// What our rule said where it was wrong, and last where it said nothing.
    pub notes: Vec<String>,
}

/// When it went wrong, in seconds of awake time.
#[derive(Clone, Copy, Debug)]
pub struct Stall {
    pub provable_s: Option<f64>,
    pub verdicts_s: [Option<f64>; RULES],
}

/// Replays a healthy trace of this length, or a stalled one until everything is said (`None`).
pub fn replay(kind: &Kind, class: Class, seed: u64, number: u64, length_s: Option<f64>) -> Outcome {
    let mut world = kind.world(class, seed, number);
    let first_look_ms = (world.setup.first_look_s * 1_000.0) as u64;
    while world.now_ms < first_look_ms {
        world.tick(BUSY_MS);
    }
    let began_s = seconds(&world);
    let mut seen = sight::nothing();
    let mut cpu = Vec::new();
    let mut rules = Rules::new();
    let mut oracle = Oracle::default();
    let mut outcome = Outcome::default();
    let mut span_ms = BUSY_MS;
    loop {
        world.tick(span_ms);
        sight::look(&mut world, &mut seen);
        let now_s = seconds(&world);
        let proof = oracle.look(world.now(), &seen);
        rules.look(&world, &seen, &mut outcome);
        match (world.onset_ms, proof) {
            (None, None) => outcome.healthy_s = now_s - began_s,
            (None, Some(_)) => outcome.oracle_errors += 1,
            (Some(_), proof) => {
                let hit = match (proof, world.culprit) {
                    (Some(Proof::Runner(id)), Some(Culprit::Runner(culprit))) => id == culprit,
                    (Some(Proof::Server), Some(Culprit::Server)) => true,
                    (Some(_), _) => {
                        outcome.oracle_errors += 1;
                        false
                    }
                    (None, _) => false,
                };
                let stall = stall(&mut outcome);
                if hit && stall.provable_s.is_none() {
                    stall.provable_s = Some(now_s);
                }
                let late_s = stall.provable_s.map_or(0.0, |provable_s| now_s - provable_s);
                if stall.verdicts_s[0].is_none() && late_s >= LATE_S && outcome.notes.is_empty() {
                    outcome.notes.push(format!("{late_s:.0} s after the proof: {}", rules.words()));
                }
            }
        }
        let over = match (length_s, world.onset_ms) {
            (Some(length_s), _) => now_s - began_s >= length_s,
            (None, None) => now_s - began_s >= NO_FAULT_S,
            (None, Some(onset_ms)) => {
                let stall = stall(&mut outcome);
                let onset_s = onset_ms.max(first_look_ms) as f64 / 1_000.0;
                match stall.provable_s {
                    Some(provable_s) => stall.verdicts_s.iter().all(Option::is_some) || now_s > provable_s + VERDICT_S,
                    None => now_s > onset_s + horizon_s(class),
                }
            }
        };
        if over {
            let stall = outcome.stall.as_ref();
            if stall.is_some_and(|stall| stall.provable_s.is_some() && stall.verdicts_s[0].is_none()) {
                outcome.notes.push(format!("never acted, and at last: {}", rules.words()));
            }
            break;
        }
        span_ms = if sight::shows_work(&seen, &cpu, span_ms as f64 / 1_000.0) { BUSY_MS } else { REST_MS };
        cpu.clear();
        cpu.extend(
            seen.runners.iter().map(|runner| (runner.id, runner.cpu.known().copied().unwrap_or(Duration::ZERO))),
        );
    }
    outcome.oracle_errors += oracle.contradictions;
    outcome
}

/// How long it is waited for a stall to become provable.
fn horizon_s(class: Class) -> f64 {
    match class {
        Class::Llama | Class::Mlx => 14_400.0,
        // What is not provable by then never is: nothing bounds a whole answer.
        Class::Gateway | Class::Blind => 3_600.0,
    }
}

fn stall(outcome: &mut Outcome) -> &mut Stall {
    outcome.stall.get_or_insert(Stall { provable_s: None, verdicts_s: [None; RULES] })
}

fn seconds(world: &World) -> f64 {
    world.now_ms as f64 / 1_000.0
}

/// All rules on one trace.
struct Rules {
    ours: Watcher,
    rivals: [Rival; 5],
    acts: Vec<Target>,
    /// What ours said last.
    said: Vec<Judgement>,
    views: Vec<RunnerView>,
    /// Per rule: what it has killed, with the oldest request that was in it then, and until when.
    killed: [Vec<(Target, u64, f64)>; RULES],
}

impl Rules {
    fn new() -> Self {
        Self {
            ours: Watcher::default(),
            rivals: Rival::all(),
            acts: Vec::new(),
            said: Vec::new(),
            views: Vec::new(),
            killed: Default::default(),
        }
    }

    fn look(&mut self, world: &World, seen: &Observation, outcome: &mut Outcome) {
        self.acts.clear();
        if world.woke {
            self.ours.woke(world.now());
        }
        self.said = self.ours.observe(world.now(), seen);
        for judgement in &self.said {
            match judgement.may_recover {
                Some(Rung::EndRunner | Rung::Unload) => self.acts.push(Target::Runner(judgement.subject.id())),
                Some(Rung::RestartServer) => self.acts.push(Target::Server),
                None => {}
            }
        }
        self.count(0, world, outcome);
        self.views.clear();
        self.views.extend((0..world.runners.len()).map(|number| view(world, number)));
        for rule in 1..RULES {
            self.acts.clear();
            let view = View {
                now_s: seconds(world),
                server_answers: world.server.answers,
                server_runs: world.server.id.is_some(),
                runners: &self.views,
            };
            self.rivals[rule - 1].look(&view, &mut self.acts);
            self.count(rule, world, outcome);
        }
    }

    /// What ours said last, in words.
    fn words(&self) -> String {
        let words = self.said.iter().map(|judgement| {
            let act = if judgement.may_recover.is_some() { "ACT " } else { "" };
            format!("{act}{}: {} ({judgement})", judgement.subject, judgement.verdict)
        });
        words.collect::<Vec<_>>().join(" | ")
    }

    fn count(&mut self, rule: usize, world: &World, outcome: &mut Outcome) {
        let now_s = seconds(world);
        for &target in &self.acts {
            let right = world.onset_ms.is_some()
                && match (target, world.culprit) {
                    (Target::Runner(id), Some(Culprit::Runner(culprit))) => id == culprit,
                    // A new server has new runners.
                    (Target::Server, Some(_)) => true,
                    (Target::Runner(_), Some(Culprit::Server)) | (_, None) => false,
                };
            if right {
                stall(outcome).verdicts_s[rule].get_or_insert(now_s);
                continue;
            }
            let oldest = oldest_request(world, target);
            let killed = &mut self.killed[rule];
            let again = killed.iter().any(|&(old, request, until_s)| {
                old == target && request == oldest && (request != 0 || now_s < until_s)
            });
            if !again {
                killed.retain(|&(old, ..)| old != target);
                killed.push((target, oldest, now_s + QUIET_S));
                outcome.false_kills[rule] += 1;
                if rule == 0 {
                    outcome.notes.push(format!("false kill at {now_s:.0} s: {}", self.words()));
                }
            }
        }
    }
}

fn oldest_request(world: &World, target: Target) -> u64 {
    match target {
        Target::Runner(id) => {
            let runner = world.runners.iter().find(|runner| runner.id == id);
            runner.and_then(|runner| runner.requests().map(|request| request.id).min()).unwrap_or(0)
        }
        Target::Server => 0,
    }
}

fn view(world: &World, number: usize) -> RunnerView {
    let runner = &world.runners[number];
    let serves = runner.phase == Phase::Serving;
    let oldest_ms = runner.requests().filter(|request| !request.gone).map(|request| request.issued_ms).min();
    let busy = runner.requests().count();
    let id: Identity = runner.id;
    RunnerView {
        id,
        serves,
        oldest_s: oldest_ms.map(|issued_ms| (world.now_ms - issued_ms) as f64 / 1_000.0),
        bytes: runner.delivered,
        has_room: busy < runner.slots.len() && world.queues[runner.model].is_empty(),
        steps: runner.steps,
        loop_turns: runner.frozen.is_none(),
    }
}
