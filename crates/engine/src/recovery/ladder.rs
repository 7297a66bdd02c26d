//! The machine: one operation at a time, each stage with a deadline that has a name.

use super::operation::{Memory, Operation, Origin, Stage, Target};
use super::{
    Ask, Cause, Check, Effect, Event, FAST_FAILURES_ALLOWED, Finish, GivenUp, Life, Limits, Notice, Policy, Proof,
    Signal, WishId,
};
use crate::loaded::same_model;
use crate::process::Identity;
use crate::stall::{Judgement, Rung, Subject, Verdict};
use crate::time::{Awake, Now};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

const HOUR: Duration = Duration::from_secs(3_600);

/// The ladder. One task owns it.
#[derive(Debug)]
pub struct Ladder {
    policy: Policy,
    limits: Limits,
    pinned: BTreeSet<String>,
    judged: Vec<Judgement>,
    operation: Option<Operation>,
    asked: VecDeque<(WishId, Ask)>,
    last_life: Life,
    /// Steps of the last hour.
    steps: VecDeque<Awake>,
    causes: BTreeMap<Cause, Memory>,
    told: BTreeSet<(Identity, &'static str)>,
    held_told: bool,
    held_until: Option<(Awake, &'static str)>,
}

impl Ladder {
    /// A ladder on which nothing was done yet.
    pub fn new(policy: Policy, limits: Limits) -> Self {
        Self {
            policy,
            limits,
            pinned: BTreeSet::new(),
            judged: vec![],
            operation: None,
            asked: VecDeque::new(),
            last_life: Life(0),
            steps: VecDeque::new(),
            causes: BTreeMap::new(),
            told: BTreeSet::new(),
            held_told: false,
            held_until: None,
        }
    }

    /// How far it may go by itself.
    pub fn policy(&self) -> Policy {
        self.policy
    }

    /// The causes that were given up; [`Event::TryAgain`] and another policy take them up again.
    pub fn given_up(&self) -> impl Iterator<Item = (Cause, &GivenUp)> {
        self.causes.iter().filter_map(|(cause, memory)| Some((*cause, memory.given_up.as_ref()?)))
    }

    /// The name of what is being done, if anything is.
    pub fn doing(&self) -> Option<&'static str> {
        self.operation.as_ref().map(|operation| operation.stage.name())
    }

    /// The next moment at which [`Event::Tick`] is wanted, and what it is about.
    pub fn deadline(&self) -> Option<(Awake, &'static str)> {
        match &self.operation {
            Some(operation) => Some((operation.since + operation.longest(), operation.stage.name())),
            None => self.held_until,
        }
    }

    /// Takes an event.
    pub fn step(&mut self, now: Now, event: Event) -> Vec<Effect> {
        let mut effects = vec![];
        let waited_for = self.operation.as_ref().map(|operation| operation.life);
        let answered = self.answered_by(&event);
        match event {
            Event::Judged(judged) => {
                self.judged = judged;
                self.tell(&mut effects);
            }
            Event::Done { life } => self.answered(now, life, Ok(()), &mut effects),
            Event::Failed { life, why } => self.answered(now, life, Err(why), &mut effects),
            Event::Verified { life, outcome } => self.verified(life, outcome, &mut effects),
            Event::Tick => (),
            Event::Woke => self.woke(now),
            Event::PersonAsked { wish, ask } => self.asked.push_back((wish, ask)),
            Event::PolicySet(policy) if policy == self.policy => (),
            Event::PolicySet(policy) => {
                self.policy = policy;
                self.take_up_again();
            }
            Event::TryAgain => self.take_up_again(),
            Event::PinnedSet(pinned) => self.pinned = pinned,
        }
        self.overdue(now, &mut effects);
        self.begin_asked(now, &mut effects);
        self.begin_judged(now, &mut effects);
        self.abandon(waited_for.filter(|life| answered != Some(*life)), &mut effects);
        effects
    }

    /// The effect that an event is the answer to; an answer of another kind, or to another effect, is none.
    fn answered_by(&self, event: &Event) -> Option<Life> {
        let running = self.operation.as_ref()?;
        let life = match event {
            Event::Done { life } | Event::Failed { life, .. } if running.stage != Stage::Verifying => life,
            Event::Verified { life, .. } if running.stage == Stage::Verifying => life,
            Event::Done { .. }
            | Event::Failed { .. }
            | Event::Verified { .. }
            | Event::Judged(_)
            | Event::Tick
            | Event::Woke
            | Event::PersonAsked { .. }
            | Event::PolicySet(_)
            | Event::TryAgain
            | Event::PinnedSet(_) => return None,
        };
        (running.life == *life).then_some(*life)
    }

    /// What is not waited for any more is abandoned before anything else is done, and what was wanted and given up
    /// within one step is never begun.
    fn abandon(&self, waited_for: Option<Life>, effects: &mut Vec<Effect>) {
        let waits_for = self.operation.as_ref().map(|operation| operation.life);
        effects.retain(|effect| effect.life().is_none_or(|life| Some(life) == waits_for));
        if let Some(life) = waited_for.filter(|life| Some(*life) != waits_for) {
            effects.insert(0, Effect::Abandon { life });
        }
    }

    /// Trouble is told when it appears, once for each subject and kind.
    fn tell(&mut self, effects: &mut Vec<Effect>) {
        let mut there = BTreeSet::new();
        for judgement in self.judged.iter().filter(|judgement| judgement.verdict.is_trouble()) {
            let key = (judgement.subject.id(), judgement.verdict.word());
            if !self.told.contains(&key) {
                effects.push(Effect::Alert(Notice::trouble(judgement)));
            }
            there.insert(key);
        }
        self.told = there;
    }

    /// What was given up begins anew, with nothing held against it.
    fn take_up_again(&mut self) {
        self.causes.retain(|_, memory| memory.given_up.is_none());
    }

    /// A suspicion from before a sleep is worth nothing.
    fn woke(&mut self, now: Now) {
        let Some(operation) = &mut self.operation else { return };
        operation.since = now.awake;
        let called_off = matches!(operation.origin, Origin::Judged { .. })
            && matches!(operation.stage, Stage::Saving | Stage::Terminating);
        self.judged.clear();
        if called_off {
            self.operation = None;
        }
    }

    fn answered(&mut self, now: Now, life: Life, answer: Result<(), String>, effects: &mut Vec<Effect>) {
        let Some(stage) = self.operation.as_ref().filter(|running| running.life == life).map(|running| running.stage)
        else {
            return;
        };
        match (stage, answer) {
            (Stage::Saving, Ok(())) => self.after_saving(now, effects),
            (Stage::Saving, Err(why)) => self.without_evidence(now, why, effects),
            (Stage::Terminating, Ok(())) | (Stage::Killing, Ok(())) => self.verify(now, effects),
            (Stage::Unloading, Ok(())) | (Stage::Restarting, Ok(())) => self.verify(now, effects),
            (Stage::Terminating, Err(why)) => self.after_term(now, why, effects),
            (Stage::Killing | Stage::Unloading | Stage::Restarting, Err(why)) => self.fail(now, why, effects),
            (Stage::Verifying, Ok(()) | Err(_)) => (),
        }
    }

    fn verified(&mut self, life: Life, outcome: Result<Proof, String>, effects: &mut Vec<Effect>) {
        let verifying = |running: &&Operation| running.life == life && running.stage == Stage::Verifying;
        if self.operation.as_ref().filter(verifying).is_none() {
            return;
        }
        match outcome {
            Ok(proof) => self.finish(proof, effects),
            Err(why) => self.not_helped(why, effects),
        }
    }

    fn overdue(&mut self, now: Now, effects: &mut Vec<Effect>) {
        let Some(operation) = &self.operation else { return };
        if now.awake < operation.since + operation.longest() {
            return;
        }
        let why = operation.overdue();
        match operation.stage {
            Stage::Saving => self.without_evidence(now, why, effects),
            Stage::Terminating => self.after_term(now, why, effects),
            Stage::Killing | Stage::Unloading | Stage::Restarting => self.fail(now, why, effects),
            Stage::Verifying => self.not_helped(why, effects),
        }
    }

    fn begin_asked(&mut self, now: Now, effects: &mut Vec<Effect>) {
        while let Some((wish, ask)) = self.asked.front().cloned() {
            let waits_for_request = |running: &Operation| {
                running.stage == Stage::Verifying && matches!(running.origin, Origin::Judged { .. })
            };
            if self.operation.as_ref().is_some_and(waits_for_request) {
                self.operation = None;
            }
            if self.operation.is_some() {
                return;
            }
            self.asked.pop_front();
            match ask {
                Ask::Unload { model } => {
                    let origin = Origin::Person { wish, force: false };
                    self.begin(now, Rung::Unload, Target::Model(model), origin, effects);
                }
                Ask::EndRunner { id, force } => match self.runner(id) {
                    Some(judgement) => {
                        let judgement = judgement.clone();
                        let target = Target::Runner { id, model: judgement.subject.model().map(str::to_owned) };
                        self.begin(now, Rung::EndRunner, target, Origin::Person { wish, force }, effects);
                    }
                    None => {
                        let why = format!("process {} is no runner any more; nothing was done", id.pid);
                        effects.push(Effect::Finish { wish, finish: Finish::Refused(why) });
                    }
                },
            }
        }
    }

    fn begin_judged(&mut self, now: Now, effects: &mut Vec<Effect>) {
        self.held_until = None;
        if self.operation.is_some() {
            return;
        }
        while self.steps.front().is_some_and(|step| now.awake.since(*step) >= HOUR) {
            self.steps.pop_front();
        }
        // Runners first: ending one often frees the server too, and costs less.
        let mut candidates: Vec<(Rung, Cause, Judgement)> = self
            .judged
            .iter()
            .filter_map(|judgement| Some((judgement.may_recover?, Cause::of(&judgement.verdict)?, judgement.clone())))
            .collect();
        candidates.sort_by_key(|(rung, cause, _)| (*rung, *cause));
        for (rung, cause, judgement) in candidates {
            if self.operation.is_none() {
                self.consider(now, rung, cause, judgement, effects);
            }
        }
    }

    fn consider(&mut self, now: Now, rung: Rung, cause: Cause, judgement: Judgement, effects: &mut Vec<Effect>) {
        if self.policy < needed_for(rung) || self.loads_pinned() {
            return;
        }
        let limits = self.limits;
        let memory = self.causes.entry(cause).or_default();
        if memory.given_up.is_some() {
            return;
        }
        let last = memory.last_step.map(|step| now.awake.since(step));
        if let (Some(step), Some(ago)) = (memory.last_step, last)
            && ago < limits.cooldown
        {
            self.hold((step + limits.cooldown, "cooldown"));
            return;
        }
        let oldest = self.steps.front().copied();
        if let Some(oldest) = oldest
            && u32::try_from(self.steps.len()).unwrap_or(u32::MAX) >= limits.per_hour
        {
            self.hold((oldest + HOUR, "cap per hour"));
            if !self.held_told {
                self.held_told = true;
                let why = format!("{} steps of recovery within an hour are the most", limits.per_hour);
                effects.push(Effect::Alert(Notice::held(&judgement, &why)));
            }
            return;
        }
        self.held_told = false;
        match last {
            Some(ago) if ago < limits.fast => memory.fast_failures += u32::from(memory.fast_failures < memory.steps),
            Some(_) | None => *memory = Memory::default(),
        }
        if memory.fast_failures >= FAST_FAILURES_ALLOWED {
            let why = "the same came back soon after each step";
            return self.escalate(now, rung, cause, judgement, (why, None), effects);
        }
        self.begin_for(now, rung, cause, judgement, effects);
    }

    /// The next rung, once; then a person.
    fn escalate(
        &mut self,
        now: Now,
        rung: Rung,
        cause: Cause,
        judgement: Judgement,
        (why, unsaved): (&str, Option<&str>),
        effects: &mut Vec<Effect>,
    ) {
        let memory = self.causes.entry(cause).or_default();
        let next = match rung {
            Rung::EndRunner => Some(Rung::RestartServer),
            // A new runner was made already; answers of one token that go on are what somebody asks for.
            Rung::Unload | Rung::RestartServer => None,
        };
        if let Some(next) = next.filter(|_| self.policy == Policy::All && !memory.escalated) {
            memory.escalated = true;
            return self.begin_for(now, next, cause, judgement, effects);
        }
        memory.given_up = Some(GivenUp { subject: judgement.subject.to_string(), why: why.to_owned() });
        effects.push(Effect::Alert(Notice::gave_up(cause, &judgement, why, unsaved)));
        effects.push(Effect::GiveUp { cause, why: why.to_owned() });
    }

    fn begin_for(&mut self, now: Now, rung: Rung, cause: Cause, judgement: Judgement, effects: &mut Vec<Effect>) {
        let model = judgement.subject.model().map(str::to_owned);
        let target = match (rung, &judgement.subject, model) {
            (Rung::RestartServer, _, _) | (_, Subject::Server { .. }, _) => Target::Server,
            (Rung::Unload, Subject::Runner { .. }, Some(model)) => Target::Model(model),
            (Rung::EndRunner, Subject::Runner { id, model: _ }, model) => Target::Runner { id: *id, model },
            // A model without a name cannot be unloaded by it.
            (Rung::Unload, Subject::Runner { .. }, None) => return,
        };
        let rung = if matches!(target, Target::Server) { Rung::RestartServer } else { rung };
        self.begin(now, rung, target, Origin::Judged { cause, judgement: Box::new(judgement) }, effects);
    }

    fn begin(&mut self, now: Now, rung: Rung, target: Target, origin: Origin, effects: &mut Vec<Effect>) {
        let judgement = match (&origin, &target) {
            (Origin::Judged { cause: _, judgement }, _) => Some(judgement.clone()),
            (Origin::Person { .. }, Target::Runner { id, .. }) => self.runner(*id).cloned().map(Box::new),
            (Origin::Person { .. }, Target::Model(_) | Target::Server) => None,
        };
        let life = self.next_life();
        let (stage, since) = (Stage::Saving, now.awake);
        self.operation = Some(Operation { life, rung, target, origin, stage, since, unsaved: None });
        match judgement {
            Some(judgement) => effects.push(Effect::SaveEvidence { life, judgement }),
            None => self.after_saving(now, effects),
        }
    }

    /// What could not be kept does not keep a machine from being freed; it is said at the end.
    fn without_evidence(&mut self, now: Now, why: String, effects: &mut Vec<Effect>) {
        if let Some(operation) = &mut self.operation {
            operation.unsaved = Some(why);
        }
        self.after_saving(now, effects);
    }

    fn after_saving(&mut self, now: Now, effects: &mut Vec<Effect>) {
        if !self.still_wanted() {
            return self.call_off(effects);
        }
        let Some(operation) = &self.operation else { return };
        let counted = match &operation.origin {
            Origin::Judged { cause, judgement: _ } => Some(*cause),
            Origin::Person { .. } => None,
        };
        if let Some(cause) = counted {
            self.steps.push_back(now.awake);
            let memory = self.causes.entry(cause).or_default();
            memory.last_step = Some(now.awake);
            memory.steps += 1;
        }
        let life = self.next_life();
        let Some(operation) = &mut self.operation else { return };
        let cause = counted.unwrap_or(Cause::ServerSilent);
        let (stage, effect) = match &operation.target {
            Target::Runner { id, model: _ } => {
                (Stage::Terminating, Effect::SignalRunner { life, id: *id, signal: Signal::Term })
            }
            Target::Model(model) => (Stage::Unloading, Effect::Unload { life, model: model.clone() }),
            Target::Server => (Stage::Restarting, Effect::RestartThroughOwner { life, cause }),
        };
        operation.enter(stage, life, now);
        effects.push(effect);
    }

    fn after_term(&mut self, now: Now, why: String, effects: &mut Vec<Effect>) {
        let Some(Operation { target: Target::Runner { id, .. }, origin, .. }) = &self.operation else { return };
        let id = *id;
        let gentle = matches!(origin, Origin::Person { force: false, .. });
        // It moves again, or a person has taken the right away meanwhile.
        let spared = |judgement: &Judgement| {
            let moves = matches!(judgement.verdict, Verdict::Prefill { .. } | Verdict::Generating { .. });
            matches!(origin, Origin::Judged { .. }) && (moves || self.policy < needed_for(Rung::EndRunner))
        };
        match self.runner(id) {
            None => self.verify(now, effects),
            Some(judgement) if spared(judgement) => self.call_off(effects),
            Some(_) if gentle => {
                let why = format!("{why}; it was asked to end and lives on; --force ends it at once");
                self.fail(now, why, effects);
            }
            Some(_) => {
                let life = self.next_life();
                if let Some(operation) = &mut self.operation {
                    operation.enter(Stage::Killing, life, now);
                }
                effects.push(Effect::SignalRunner { life, id, signal: Signal::Kill });
            }
        }
    }

    fn verify(&mut self, now: Now, effects: &mut Vec<Effect>) {
        let life = self.next_life();
        let Some(operation) = &mut self.operation else { return };
        let person = matches!(operation.origin, Origin::Person { .. });
        // What is left of a server that has ended serves nobody: no next request can show whether its end has helped.
        let orphan = matches!(operation.origin, Origin::Judged { cause: Cause::Orphan, .. });
        let check = match &operation.target {
            Target::Runner { id, model } => {
                Check::Runner { id: *id, model: model.clone().filter(|_| !person && !orphan) }
            }
            Target::Model(model) => Check::Unloaded { model: model.clone(), ask: !person },
            Target::Server => Check::Server,
        };
        operation.enter(Stage::Verifying, life, now);
        effects.push(Effect::Verify { life, check });
    }

    fn finish(&mut self, proof: Proof, effects: &mut Vec<Effect>) {
        let Some(operation) = self.operation.take() else { return };
        match operation.origin {
            Origin::Person { wish, force: _ } => effects.push(Effect::Finish { wish, finish: Finish::Done }),
            Origin::Judged { cause: _, judgement } => {
                let notice = Notice::recovered(&judgement, proof, operation.unsaved.as_deref());
                effects.push(Effect::Alert(notice));
            }
        }
    }

    fn fail(&mut self, now: Now, why: String, effects: &mut Vec<Effect>) {
        let Some(operation) = self.operation.take() else { return };
        match operation.origin {
            Origin::Person { wish, force: _ } => effects.push(Effect::Finish { wish, finish: Finish::Failed(why) }),
            Origin::Judged { cause, judgement } => {
                // A step that did not even take effect is not tried a second time by itself.
                let rung = operation.rung;
                self.escalate(now, rung, cause, *judgement, (&why, operation.unsaved.as_deref()), effects);
            }
        }
    }

    /// The step took effect, and what it was for did not come. If the same is judged again soon, that is its second
    /// failure.
    fn not_helped(&mut self, why: String, effects: &mut Vec<Effect>) {
        let Some(operation) = self.operation.take() else { return };
        match operation.origin {
            Origin::Person { wish, force: _ } => effects.push(Effect::Finish { wish, finish: Finish::Failed(why) }),
            Origin::Judged { cause, judgement } => {
                self.causes.entry(cause).or_default().fast_failures += 1;
                let notice = Notice::not_helped(&judgement, &why, operation.unsaved.as_deref());
                effects.push(Effect::Alert(notice));
            }
        }
    }

    fn call_off(&mut self, effects: &mut Vec<Effect>) {
        if let Some(Operation { origin: Origin::Person { wish, .. }, .. }) = self.operation.take() {
            let why = "the runner is gone; nothing was done".to_owned();
            effects.push(Effect::Finish { wish, finish: Finish::Refused(why) });
        }
    }

    /// Whether the newest judgements still ask for the operation, and the policy still allows it.
    fn still_wanted(&self) -> bool {
        let Some(operation) = &self.operation else { return false };
        match (&operation.origin, &operation.target) {
            (Origin::Judged { cause, judgement }, _) => {
                self.policy >= needed_for(operation.rung)
                    && self.judged.iter().any(|newest| {
                        newest.subject.id() == judgement.subject.id()
                            && newest.may_recover.is_some()
                            && Cause::of(&newest.verdict) == Some(*cause)
                    })
            }
            (Origin::Person { .. }, Target::Runner { id, .. }) => self.runner(*id).is_some(),
            (Origin::Person { .. }, Target::Model(_) | Target::Server) => true,
        }
    }

    /// The newest judgement on a runner whose process is there.
    fn runner(&self, id: Identity) -> Option<&Judgement> {
        self.judged.iter().find(|judgement| {
            matches!(&judgement.subject, Subject::Runner { id: seen, model: _ } if *seen == id)
                && judgement.verdict != Verdict::DeadButListed
        })
    }

    /// Whether a pinned model is being loaded, or one that may be.
    fn loads_pinned(&self) -> bool {
        let loading = |judgement: &&Judgement| matches!(judgement.verdict, Verdict::Loading { .. });
        self.judged.iter().filter(loading).any(|judgement| match judgement.subject.model() {
            Some(model) => self.pinned.iter().any(|pinned| same_model(pinned, model)),
            None => !self.pinned.is_empty(),
        })
    }

    fn hold(&mut self, until: (Awake, &'static str)) {
        self.held_until = Some(self.held_until.map_or(until, |held| held.min(until)));
    }

    fn next_life(&mut self) -> Life {
        self.last_life = Life(self.last_life.0 + 1);
        self.last_life
    }
}

fn needed_for(rung: Rung) -> Policy {
    match rung {
        Rung::EndRunner | Rung::Unload => Policy::Runner,
        Rung::RestartServer => Policy::All,
    }
}
