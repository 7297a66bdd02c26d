//! Carrying a plan out: one step at a time, each with its deadline, retried where a known race is the reason.

use super::{
    Answer, CRASHES_ALLOWED, Effect, FIRST_ANSWER, Life, Look, Origin, Outcome, Progress, State, Supervisor, Surrender,
    Wish,
};
use crate::Known;
use crate::owner::Ownership;
use crate::plan::{ADDRESS, Again, Goal, Phase, Plan, Step, StepFailure};
use crate::process::Identity;
use crate::setting::{Layer, Report, Standing, Values, Verification, verify};
use crate::time::{Awake, Now};
use std::collections::BTreeSet;
use std::time::Duration;

/// A plan that is being carried out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    life: Life,
    wish: Wish,
    plan: Plan,
    index: usize,
    attempt: u32,
    /// 1, or 2 when the whole plan is run again.
    round: u32,
    began: Awake,
    step_began: Awake,
    performing: bool,
    retry_at: Option<Awake>,
    doubt: String,
    slack: Duration,
    /// Servers that came up in this plan without having answered yet.
    came_up: BTreeSet<Identity>,
}

impl Run {
    pub(super) fn new(life: Life, wish: Wish, round: u32, plan: Plan, now: Awake, slack: Duration) -> Self {
        Self {
            life,
            wish,
            plan,
            index: 0,
            attempt: 1,
            round,
            began: now,
            step_began: now,
            performing: false,
            retry_at: None,
            doubt: String::new(),
            slack,
            came_up: BTreeSet::new(),
        }
    }

    /// The wish it serves.
    pub fn wish(&self) -> &Wish {
        &self.wish
    }

    /// The plan.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Position of the present step, from 0.
    pub fn index(&self) -> usize {
        self.index
    }

    /// 1 for the first attempt of the present step.
    pub fn attempt(&self) -> u32 {
        self.attempt
    }

    /// When it began.
    pub fn began(&self) -> Awake {
        self.began
    }

    /// Which part of the plan is being carried out.
    pub fn phase(&self) -> Phase {
        self.step().phase()
    }

    pub(super) fn deadline(&self) -> (Awake, &'static str) {
        let last = self.step_deadline();
        match self.retry_at {
            Some(at) if at < last => (at, "try the step again"),
            Some(_) | None => (last, self.step().name()),
        }
    }

    pub(super) fn look_interval(&self) -> Duration {
        match self.step() {
            Step::AwaitPortFree { .. } | Step::AwaitAnswer { .. } | Step::Prove => Duration::from_millis(100),
            Step::Persist { .. }
            | Step::Publish { .. }
            | Step::Address { .. }
            | Step::Stop(_)
            | Step::Sweep(_)
            | Step::Start(_) => Duration::from_secs(1),
        }
    }

    pub(super) fn forgive(&mut self, now: Awake) {
        self.step_began = now;
    }

    fn step_deadline(&self) -> Awake {
        self.step_began + self.step().allowance() + self.slack
    }

    /// The last step is always [`Step::Prove`], and the run ends with it.
    fn step(&self) -> &Step {
        self.plan.steps.get(self.index).unwrap_or(&Step::Prove)
    }

    fn old_server(&self) -> Option<Identity> {
        self.plan.steps.iter().find_map(|step| match step {
            Step::AwaitAnswer { not, .. } => *not,
            Step::Persist { .. }
            | Step::Publish { .. }
            | Step::Address { .. }
            | Step::Stop(_)
            | Step::Sweep(_)
            | Step::AwaitPortFree { .. }
            | Step::Start(_)
            | Step::Prove => None,
        })
    }

    /// A server that is not the one the plan set out to replace.
    fn successor(&self, look: &Look) -> Option<Identity> {
        look.ownership.server().filter(|server| Some(*server) != self.old_server())
    }
}

impl Supervisor {
    pub(super) fn begin_step(&mut self, now: Now, mut run: Run, effects: &mut Vec<Effect>) {
        if run.wish.goal == Goal::Stop && run.index == run.plan.steps.len() {
            self.finish(now, run, Outcome::Stopped, None, effects);
            return;
        }
        run.step_began = now.awake;
        run.attempt = 1;
        run.retry_at = None;
        self.attempt(now, run, effects);
    }

    fn attempt(&mut self, now: Now, mut run: Run, effects: &mut Vec<Effect>) {
        run.retry_at = None;
        let step = run.step().clone();
        if step.phase() == Phase::Stopping {
            self.serving = false;
        }
        effects.push(report(
            &run,
            Progress::Began { index: run.index, of: run.plan.steps.len(), step: step.clone(), attempt: run.attempt },
        ));
        run.performing = match &step {
            // These are looked at, not carried out.
            Step::AwaitPortFree { .. } | Step::AwaitAnswer { .. } | Step::Prove => false,
            Step::Persist { .. }
            | Step::Publish { .. }
            | Step::Address { .. }
            | Step::Stop(_)
            | Step::Sweep(_)
            | Step::Start(_) => true,
        };
        if run.performing {
            effects.push(Effect::Perform { life: run.life, index: run.index, step });
        } else {
            // A look that is under way may show the time before this step.
            self.looking = None;
            self.look(now, effects);
        }
        self.state = State::Working(Box::new(run));
    }

    fn next_step(&mut self, now: Now, mut run: Run, note: String, effects: &mut Vec<Effect>) {
        effects.push(report(&run, Progress::Done { index: run.index, note }));
        run.index += 1;
        self.begin_step(now, run, effects);
    }

    pub(super) fn step_done(&mut self, now: Now, life: Life, index: usize, note: String, effects: &mut Vec<Effect>) {
        if let Some(mut run) = self.take_run(now, life, index) {
            run.performing = false;
            self.next_step(now, run, note, effects);
        }
    }

    pub(super) fn step_failed(
        &mut self,
        now: Now,
        life: Life,
        index: usize,
        failure: StepFailure,
        effects: &mut Vec<Effect>,
    ) {
        let Some(mut run) = self.take_run(now, life, index) else { return };
        run.performing = false;
        let retry_at = now.awake + retry_delay(run.attempt);
        let goes_on = match failure.again {
            Again::Soon => true,
            Again::Few => run.attempt < ATTEMPTS_FEW,
            Again::Never => false,
        };
        if goes_on && retry_at < run.step_deadline() {
            effects.push(report(&run, Progress::Retrying { index, failure }));
            run.attempt += 1;
            run.retry_at = Some(retry_at);
            self.state = State::Working(Box::new(run));
        } else {
            self.fail(now, run, failure, effects);
        }
    }

    /// The run, when this answer belongs to its present step; otherwise it stays as it is.
    fn take_run(&mut self, now: Now, life: Life, index: usize) -> Option<Run> {
        match std::mem::replace(&mut self.state, State::Blind { since: now.awake }) {
            State::Working(run) if run.life == life && run.index == index && run.performing => Some(*run),
            state @ (State::Blind { .. }
            | State::Down { .. }
            | State::ComingUp { .. }
            | State::Up { .. }
            | State::Silent { .. }
            | State::Blocked { .. }
            | State::Planning { .. }
            | State::Working(_)
            | State::Upgrading { .. }
            | State::GaveUp { .. }) => {
                self.state = state;
                None
            }
        }
    }

    pub(super) fn advance_by_look(&mut self, now: Now, run: Run, look: Look, effects: &mut Vec<Effect>) {
        match run.step().clone() {
            Step::AwaitPortFree { .. } => self.await_port(now, run, &look, effects),
            Step::AwaitAnswer { .. } => self.await_answer(now, run, &look, effects),
            Step::Prove => self.prove(now, run, look, effects),
            Step::Start(_) if !run.performing && run.successor(&look).is_some() => {
                self.next_step(now, run, "it had been started by somebody else in the meantime".to_owned(), effects);
            }
            Step::Persist { .. }
            | Step::Publish { .. }
            | Step::Address { .. }
            | Step::Stop(_)
            | Step::Sweep(_)
            | Step::Start(_) => {
                self.state = State::Working(Box::new(run));
            }
        }
    }

    fn await_port(&mut self, now: Now, mut run: Run, look: &Look, effects: &mut Vec<Effect>) {
        let free = match &look.port_free {
            Known::Is(free) => *free,
            Known::Unknown(_) => look.answer == Answer::Refused,
        };
        if run.wish.goal == Goal::Stop && run.successor(look).is_some() {
            let failure = came_back();
            match run.round {
                1 => self.again(now, run, failure.message, effects),
                _ => self.fail(now, run, failure, effects),
            }
        } else if run.successor(look).is_some() {
            // Its owner was quicker. The session already had the new values, so this is the start we wanted.
            effects.push(report(
                &run,
                Progress::Done { index: run.index, note: "its owner has started it again already".to_owned() },
            ));
            run.index += 1;
            self.next_step(now, run, "not needed".to_owned(), effects);
        } else if free {
            self.next_step(now, run, String::new(), effects);
        } else if let Ownership::Foreign(_) = look.ownership {
            self.fail(now, run, port_taken(), effects);
        } else {
            self.state = State::Working(Box::new(run));
        }
    }

    fn await_answer(&mut self, now: Now, mut run: Run, look: &Look, effects: &mut Vec<Effect>) {
        if let Ownership::Foreign(_) = look.ownership {
            self.fail(now, run, port_taken(), effects);
            return;
        }
        match (&look.answer, run.successor(look)) {
            (Answer::Version(version), Some(server)) => {
                self.serving = true;
                self.last_server = Some(server);
                let note = format!("pid {} answers as {version}", server.pid);
                self.next_step(now, run, note, effects);
            }
            (Answer::Version(_) | Answer::Silent | Answer::Refused | Answer::NotOllama(_), server) => {
                run.came_up.extend(server);
                if run.came_up.len() >= CRASHES_ALLOWED {
                    self.fail(now, run, dies_at_start(), effects);
                } else {
                    self.state = State::Working(Box::new(run));
                }
            }
        }
    }

    fn prove(&mut self, now: Now, mut run: Run, look: Look, effects: &mut Vec<Effect>) {
        if run.plan.port().is_some_and(|port| port != look.port) {
            // Somebody else started it in between, without the address that ours was given.
            let reason = format!("the server came up on port {}", look.port);
            match run.round {
                1 => self.again(now, run, reason, effects),
                _ => self.finish(now, run, Outcome::Drift(vec![ADDRESS.to_owned()]), Some(look), effects),
            }
            return;
        }
        let judged = judged(&run.wish.goal, &look.reports);
        match verify(&judged) {
            Verification::Proven => {
                effects.push(report(&run, Progress::Done { index: run.index, note: "proven".to_owned() }));
                self.finish(now, run, Outcome::Proven, Some(look), effects);
            }
            Verification::Unknown(reason) => {
                run.doubt = reason;
                self.state = State::Working(Box::new(run));
            }
            Verification::Drift => {
                let names = drifted(&judged, |_| true);
                let server_differs = !drifted(&judged, |layers| layers.contains(&Layer::Effective)).is_empty();
                if server_differs && run.round == 1 {
                    let reason = format!("the server came up with other values for {}", names.join(", "));
                    self.again(now, run, reason, effects);
                } else {
                    self.finish(now, run, Outcome::Drift(names), Some(look), effects);
                }
            }
        }
    }

    /// Has the whole plan made anew from a fresh look and carried out a second time.
    fn again(&mut self, now: Now, run: Run, reason: String, effects: &mut Vec<Effect>) {
        effects.push(report(&run, Progress::Again(reason)));
        self.state = State::Planning { wish: Box::new(run.wish), round: 2, since: now.awake };
        self.looking = None;
        self.look(now, effects);
    }

    pub(super) fn run_deadline(&mut self, now: Now, effects: &mut Vec<Effect>) {
        let State::Working(run) = std::mem::replace(&mut self.state, State::Blind { since: now.awake }) else { return };
        let run = *run;
        if now.awake < run.step_deadline() {
            self.attempt(now, run, effects);
            return;
        }
        if run.performing {
            effects.push(Effect::Abandon { life: run.life });
        }
        match run.step().clone() {
            Step::Prove => {
                let doubt = run.doubt.clone();
                self.finish(now, run, Outcome::Unknown(doubt), None, effects);
            }
            step @ (Step::Persist { .. }
            | Step::Publish { .. }
            | Step::Address { .. }
            | Step::Stop(_)
            | Step::Sweep(_)
            | Step::AwaitPortFree { .. }
            | Step::Start(_)
            | Step::AwaitAnswer { .. }) => {
                let failure = timed_out(&step);
                self.fail(now, run, failure, effects);
            }
        }
    }

    fn fail(&mut self, now: Now, run: Run, failure: StepFailure, effects: &mut Vec<Effect>) {
        let step = run.step().clone();
        let never_answered = matches!(step, Step::AwaitAnswer { .. }) && failure.code == TIMED_OUT;
        if run.wish.origin == Origin::Upgrade {
            // It has another version to put in place, and nothing is given up before that.
            let outcome = Outcome::Failed { step, failure, serving: self.serving };
            self.finish(now, run, outcome, None, effects);
            return;
        }
        if never_answered && run.round == 1 {
            self.again(now, run, failure.message, effects);
            return;
        }
        let why = if never_answered {
            Some(Surrender::NeverAnswered)
        } else {
            (failure.code == DIES_AT_START).then_some(Surrender::CrashLoop { deaths: run.came_up.len() })
        };
        let outcome = Outcome::Failed { step, failure, serving: self.serving };
        match why {
            Some(why) => {
                effects.push(Effect::Finish { wish: run.wish.id, outcome });
                self.surrender(now, why, effects);
                self.take_queued(now, effects);
            }
            None => self.finish(now, run, outcome, None, effects),
        }
    }

    fn finish(&mut self, now: Now, run: Run, outcome: Outcome, look: Option<Look>, effects: &mut Vec<Effect>) {
        let stays = match (run.wish.origin, &outcome) {
            (Origin::Upgrade, Outcome::Stopped | Outcome::Failed { .. } | Outcome::Refused(_)) => true,
            (Origin::Upgrade, Outcome::Proven | Outcome::Drift(_) | Outcome::Unknown(_) | Outcome::Superseded)
            | (Origin::Person | Origin::LoginRace | Origin::Crash | Origin::CutOff | Origin::Gateway, _) => false,
        };
        effects.push(Effect::Finish { wish: run.wish.id, outcome });
        if stays {
            self.serving = false;
            self.handed_over(now);
            self.looking = None;
            self.look(now, effects);
            self.take_queued(now, effects);
            return;
        }
        self.state = State::Blind { since: now.awake };
        match look {
            Some(look) => {
                self.last_server = look.ownership.server();
                self.observe(now, &look, effects);
            }
            None => {
                // What the plan left behind is not a death.
                self.last_server = None;
                self.looking = None;
                self.look(now, effects);
            }
        }
        self.take_queued(now, effects);
    }
}

/// Attempts of a step whose failure is most likely none of a race ([`Again::Few`]).
const ATTEMPTS_FEW: u32 = 5;
const TIMED_OUT: &str = "step-timed-out";
const DIES_AT_START: &str = "dies-at-start";

fn dies_at_start() -> StepFailure {
    StepFailure {
        code: DIES_AT_START,
        message: format!("Ollama was started {CRASHES_ALLOWED} times and died each time before it answered"),
        hint: "its last words are in `stablehand logs`; then run `stablehand restart`".to_owned(),
        again: Again::Never,
    }
}

fn came_back() -> StepFailure {
    StepFailure {
        code: "came-back",
        message: "the server was started again by its owner while it was being stopped".to_owned(),
        hint: "see `stablehand doctor` for who starts it".to_owned(),
        again: Again::Never,
    }
}

fn timed_out(step: &Step) -> StepFailure {
    let seconds = match step {
        Step::AwaitAnswer { .. } => FIRST_ANSWER.as_secs(),
        Step::Persist { .. }
        | Step::Publish { .. }
        | Step::Address { .. }
        | Step::Stop(_)
        | Step::Sweep(_)
        | Step::AwaitPortFree { .. }
        | Step::Start(_)
        | Step::Prove => step.allowance().as_secs(),
    };
    StepFailure {
        code: TIMED_OUT,
        message: format!("the step «{step}» was not done within {seconds} s; the steps after it were not begun"),
        hint: "look at `stablehand logs`, then run `stablehand restart`".to_owned(),
        again: Again::Never,
    }
}

fn port_taken() -> StepFailure {
    StepFailure {
        code: "port-taken",
        message: "another program took the port while Ollama was being restarted; Ollama is stopped".to_owned(),
        hint: "see `stablehand doctor` for who it is; stop it, then run `stablehand restart`".to_owned(),
        again: Again::Never,
    }
}

/// The reports that a goal answers for: its own values, and what it takes away. What was desired anew while it ran is
/// the next wish's business.
fn judged(goal: &Goal, reports: &[Report]) -> Vec<Report> {
    let answers_for = |report: &&Report| match goal {
        Goal::Apply { desired, unset } => same_wish(desired, report) || unset.contains(&report.name),
        Goal::Restart { desired } => same_wish(desired, report),
        Goal::Stop => false,
    };
    reports.iter().filter(answers_for).cloned().collect()
}

fn same_wish(values: &Values, report: &Report) -> bool {
    let wanted = values.get(&report.name);
    wanted.is_some() && report.desired.as_ref().map(|wish| &wish.value) == wanted
}

/// Names of the settings that drift in layers for which `counts` holds; what the app itself sets is among them only
/// when every layer counts.
fn drifted(reports: &[Report], counts: impl Fn(&[Layer]) -> bool) -> Vec<String> {
    reports
        .iter()
        .filter(|report| match &report.standing {
            Standing::Drift(layers) => counts(layers),
            Standing::SetInApp => counts(&[]),
            Standing::NotManaged | Standing::Proven | Standing::Unknown(_) => false,
        })
        .map(|report| report.name.to_string())
        .collect()
}

fn report(run: &Run, progress: Progress) -> Effect {
    Effect::Report { wish: run.wish.id, progress }
}

fn retry_delay(attempt: u32) -> Duration {
    Duration::from_millis(match attempt {
        1 => 500,
        2 => 1_000,
        _ => 2_000,
    })
}
