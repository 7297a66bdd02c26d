//! The first instant at which a stall is provable: no healthy trace of the [`envelope`] fits all that was observed.
//!
//! It sees what a rule sees, never the truth behind it, and knows nothing of the rules of the engine. What it remembers:
//! - per model, which speeds and batch sizes fit every step that was seen ([`speeds`]);
//! - per runner, since when nothing has moved, and how much work a healthy runner must have done since then at least: a
//!   second in which paging was seen, or could not be read, counts a tenth.
//!
//! A stall is proved when that work exceeds the longest step that the speeds allow. Steps are bounded by the two looks
//! around them, so the proof comes up to one interval late, never early.

mod runner;
mod server;
mod speeds;

use crate::envelope;
use runner::RunnerWatch;
use server::ServerWatch;
use speeds::{Batches, Speeds};
use stablehand_engine::process::{Identity, RunnerKind};
use stablehand_engine::stall::evidence::{MachineSeen, Observation};
use stablehand_engine::time::Now;

/// What was proved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Proof {
    /// This runner is stalled.
    Runner(Identity),
    /// The server is.
    Server,
}

/// The oracle.
#[derive(Default)]
pub struct Oracle {
    clock: Clock,
    models: Vec<Model>,
    runners: Vec<RunnerWatch>,
    server: ServerWatch,
    /// Steps that no speed of the envelope explains. In a healthy trace there are none.
    pub contradictions: u32,
}

/// Awake time and work done by a healthy machine, at this look and the one before.
#[derive(Clone, Copy, Debug, Default)]
pub struct Clock {
    started: bool,
    pub now_s: f64,
    pub before_s: f64,
    /// Least work that a healthy runner does until now.
    pub work_s: f64,
    pub work_before_s: f64,
}

/// What is known of a model on this machine.
pub struct Model {
    name: String,
    speeds: Speeds,
    batches: Batches,
}

impl Oracle {
    /// Looks at one observation and tells what it proves.
    pub fn look(&mut self, now: Now, seen: &Observation) -> Option<Proof> {
        self.clock.advance(now, &seen.machine);
        self.runners.retain(|watch| seen.runners.iter().any(|runner| runner.id == watch.id));
        let mut proof = None;
        for runner in &seen.runners {
            let number = match self.runners.iter().position(|watch| watch.id == runner.id) {
                Some(number) => number,
                None => {
                    let model = self.model(runner.model.known().map_or("?", String::as_str), runner.kind);
                    self.runners.push(RunnerWatch::new(runner, model, self.clock));
                    self.runners.len() - 1
                }
            };
            let watch = &mut self.runners[number];
            let model = &mut self.models[watch.model];
            self.contradictions += watch.learn(self.clock, runner, model);
            if watch.is_stalled(self.clock, runner, model) {
                proof = proof.or(Some(Proof::Runner(runner.id)));
            }
        }
        if self.server.is_stalled(self.clock, &seen.server) {
            proof = proof.or(Some(Proof::Server));
        }
        proof
    }

    fn model(&mut self, name: &str, kind: RunnerKind) -> usize {
        self.models.iter().position(|model| model.name == name).unwrap_or_else(|| {
            let batches = match kind {
                RunnerKind::Mlx => Batches::mlx(),
                RunnerKind::LlamaServer | RunnerKind::OllamaRunner => Batches::any(),
            };
            self.models.push(Model { name: name.to_owned(), speeds: Speeds::any(), batches });
            self.models.len() - 1
        })
    }
}

impl Clock {
    fn advance(&mut self, now: Now, machine: &MachineSeen) {
        let now_s = now.awake.since_start().as_secs_f64();
        if !self.started {
            (self.started, self.now_s) = (true, now_s);
        }
        (self.before_s, self.work_before_s) = (self.now_s, self.work_s);
        self.now_s = now_s;
        self.work_s += (self.now_s - self.before_s) / longest_factor(machine);
    }
}

/// How much slower paging can have made the interval before this look.
fn longest_factor(machine: &MachineSeen) -> f64 {
    let rate = machine.swap_in_bytes_per_s;
    let possible = rate.is_none_or(|rate| rate >= envelope::PAGING_SEEN_BYTES_PER_S)
        || machine.pressure.is_none_or(|level| level >= 2);
    if possible { envelope::PAGING_FACTOR } else { 1.0 }
}
