//! All watches together: one per runner life, one for the server, and what was learned per model.

use super::envelope::{PAGING_BYTES_PER_S, PAGING_FACTOR, PAGING_TAIL, WAKE_GRACE};
use super::evidence::{Health, MachineSeen, Observation, ProcessState, RunnerSeen};
use super::fact::Fact;
use super::prediction::Prediction;
use super::runner::{Around, Interval, RunnerWatch};
use super::server::ServerWatch;
use super::verdict::Judgement;
use crate::Known;
use crate::process::Identity;
use crate::time::{Awake, Now};
use std::collections::BTreeMap;
use std::time::Duration;

/// Compares observations and judges. It belongs to one task.
#[derive(Clone, Debug, Default)]
pub struct Watcher {
    runners: BTreeMap<Identity, RunnerWatch>,
    server: Option<ServerWatch>,
    models: BTreeMap<Model, Prediction>,
    last: Option<(Now, Paging)>,
    paged_at: Option<(Awake, Paging)>,
    woke_at: Option<Awake>,
}

impl Watcher {
    /// A watcher that has seen nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// The machine was asleep. Every silence begins anew, and for a while none is held against anybody.
    pub fn woke(&mut self, now: Now) {
        self.woke_at = Some(now.awake);
        for watch in self.runners.values_mut() {
            watch.forgive(now.awake);
        }
        if let Some(server) = &mut self.server {
            server.forgive();
        }
    }

    /// What was learned of a model.
    pub fn prediction(&self, model: &str) -> Option<&Prediction> {
        self.models.get(&Model::Named(model.to_owned()))
    }

    /// Judges every runner that is there, and the server.
    pub fn observe(&mut self, now: Now, seen: &Observation) -> Vec<Judgement> {
        let paging = self.paging(now.awake, &seen.machine);
        let (before, paging_before) = self.last.map_or((now.awake, paging), |(last, paging)| (last.awake, paging));
        let interval = Interval { before, now, paging: paging.or(paging_before) };
        self.last = Some((now, paging));
        let is_there = |id: &Identity| seen.runners.iter().any(|runner| runner.id == *id);
        self.runners.retain(|id, _| is_there(id));
        self.models.retain(|model, _| match model {
            Model::Named(_) => true,
            Model::Of(id) => is_there(id),
        });

        let working = self.runners.values().filter(|watch| watch.has_work()).count();
        for runner in &seen.runners {
            let model = Model::of(runner);
            let prediction = self.models.entry(model).or_default();
            match self.runners.get_mut(&runner.id) {
                Some(watch) => {
                    let others = working - usize::from(watch.has_work());
                    let interval = Interval { paging: interval.paging.or(watch.paging(now.awake, runner)), ..interval };
                    watch.take_in(&interval, runner, &seen.machine, others == 0, prediction);
                }
                None => {
                    prediction.new_life();
                    self.runners.insert(runner.id, RunnerWatch::new(now, runner.clone()));
                }
            }
        }

        let mut judgements = self.judge_runners(now, seen, paging);
        judgements.extend(self.judge_server(&interval, seen, &judgements));
        judgements
    }

    fn judge_runners(&mut self, now: Now, seen: &Observation, paging: Paging) -> Vec<Judgement> {
        let unfamiliar = Prediction::default();
        let batches: BTreeMap<Identity, Duration> = self
            .runners
            .iter()
            .filter(|(_, watch)| watch.has_work() && watch.seen.state == ProcessState::Alive)
            .map(|(id, watch)| {
                let prediction = self.models.get(&Model::of(&watch.seen));
                (*id, watch.batch_now(prediction.unwrap_or(&unfamiliar)))
            })
            .collect();
        let woke = self.grace(now.awake);
        let mut judgements = vec![];
        for (id, watch) in &mut self.runners {
            let others = batches.iter().filter(|(other, _)| *other != id);
            let own = watch.seen.paged_in_bytes_per_s.unwrap_or(0.0);
            let swap_in_bytes_per_s = seen.machine.swap_in_bytes_per_s.map(|rate| rate.max(own));
            let machine = MachineSeen { swap_in_bytes_per_s, ..seen.machine };
            let around = Around {
                now,
                machine: &machine,
                server: &seen.server,
                paging: paging.or(watch.paged(now.awake)),
                sharers: u32::try_from(others.clone().count()).unwrap_or(u32::MAX),
                others_batch: others.map(|(_, batch)| *batch).max().unwrap_or_default(),
                woke,
            };
            let prediction = self.models.get(&Model::of(&watch.seen));
            judgements.extend(watch.judge(&around, prediction.unwrap_or(&unfamiliar)));
        }
        judgements
    }

    fn judge_server(&mut self, interval: &Interval, seen: &Observation, runners: &[Judgement]) -> Option<Judgement> {
        let Some(id) = seen.server.id else {
            self.server = None;
            return None;
        };
        if self.server.as_ref().is_none_or(|server| server.id() != id) {
            self.server = Some(ServerWatch::new(id, interval.now));
        }
        let woke = self.grace(interval.now.awake);
        let loading = seen.server.loading || seen.runners.iter().any(|runner| runner.health == Health::Loading);
        let server = self.server.as_mut()?;
        Some(server.judge(interval, &seen.server, loading, woke, runners))
    }

    fn grace(&self, now: Awake) -> Option<Duration> {
        self.woke_at.map(|woke| now.since(woke)).filter(|ago| *ago < WAKE_GRACE)
    }

    fn paging(&mut self, now: Awake, machine: &MachineSeen) -> Paging {
        let paging = Paging::of(machine);
        if paging != Paging::RuledOut {
            self.paged_at = Some((now, paging));
            return paging;
        }
        match self.paged_at {
            Some((at, before)) if now.since(at) < PAGING_TAIL => before,
            Some(_) | None => Paging::RuledOut,
        }
    }
}

/// Of whom something is learned.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Model {
    Named(String),
    /// The model of this runner is not known; nothing learned of it holds for another.
    Of(Identity),
}

impl Model {
    fn of(runner: &RunnerSeen) -> Self {
        match &runner.model {
            Known::Is(name) => Self::Named(name.clone()),
            Known::Unknown(_) => Self::Of(runner.id),
        }
    }
}

/// Whether memory is being paged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Paging {
    /// It is known not to be.
    #[default]
    RuledOut,
    /// It cannot be ruled out, for this reason.
    Possible(&'static str),
    /// It is.
    Seen,
}

impl Paging {
    fn of(machine: &MachineSeen) -> Self {
        let rates = [machine.swap_in_bytes_per_s, machine.swap_out_bytes_per_s];
        if rates.iter().flatten().any(|rate| *rate >= PAGING_BYTES_PER_S) {
            Self::Seen
        } else if machine.pressure.is_some_and(|level| level > 1) {
            Self::Possible("memory pressure is raised")
        } else if rates.iter().any(Option::is_none) {
            Self::Possible("the swap rates cannot be read")
        } else {
            Self::RuledOut
        }
    }

    /// What a runner's own pages tell.
    pub(super) fn of_runner(seen: &RunnerSeen) -> Self {
        match seen.paged_in_bytes_per_s {
            Some(rate) if rate >= PAGING_BYTES_PER_S => Self::Seen,
            Some(_) => Self::RuledOut,
            None => Self::Possible("what it reads back from disk is not known"),
        }
    }

    /// The graver of two.
    pub(super) fn or(self, other: Self) -> Self {
        match (self, other) {
            (Self::Seen, _) | (_, Self::Seen) => Self::Seen,
            (Self::Possible(why), _) | (_, Self::Possible(why)) => Self::Possible(why),
            (Self::RuledOut, Self::RuledOut) => Self::RuledOut,
        }
    }

    /// How much of a span honest work may have had.
    pub(super) fn weigh(self, span: Duration) -> Duration {
        match self {
            Self::RuledOut => span,
            Self::Possible(_) | Self::Seen => span / PAGING_FACTOR,
        }
    }

    pub(super) fn is_seen(self) -> bool {
        self == Self::Seen
    }

    pub(super) fn fact(self, machine: &MachineSeen) -> Option<Fact> {
        match self {
            Self::RuledOut => None,
            Self::Possible(why) => Some(Fact::PagingPossible { why }),
            Self::Seen => Some(Fact::Paging {
                in_bytes_per_s: machine.swap_in_bytes_per_s.unwrap_or(0.0),
                out_bytes_per_s: machine.swap_out_bytes_per_s.unwrap_or(0.0),
            }),
        }
    }
}
