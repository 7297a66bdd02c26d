//! The watch over one life of the server.

use super::envelope::{LOAD_LONGEST, NOISE_SPAN};
use super::evidence::ServerSeen;
use super::fact::Fact;
use super::runner::Interval;
use super::verdict::{How, Judgement, Rung, Subject, Verdict, Why};
use crate::Known;
use crate::process::Identity;
use crate::supervisor::FIRST_ANSWER;
use crate::time::{Awake, Now};
use std::collections::{BTreeMap, VecDeque};
use std::mem::discriminant;
use std::time::Duration;

/// `/api/version` takes no lock; only a server that is dead or starved of everything leaves it unanswered so long.
const VERSION_SILENT_LONGEST: Duration = Duration::from_secs(60);
/// `/api/ps` waits for locks that are held for up to 10 s while a hung runner is asked (`server/sched.go needsReload`),
/// and for as long as an MLX model is loaded.
const PS_SILENT_LONGEST: Duration = Duration::from_secs(70);
/// The span within which failures are counted together, and slow runners remembered.
const FAILURE_SPAN: Duration = Duration::from_secs(600);
/// So many failures within the span, spread over at least [`FAILURES_SPREAD`] and no fewer than the successes in it, are
/// more than one bad request.
const FAILURES_LEAST: u32 = 5;
const FAILURES_SPREAD: Duration = Duration::from_secs(60);
/// A runner is called slow for good after this long.
const SLOW_LONGEST: Duration = Duration::from_secs(120);
/// Slowness that came with a second life of a runner is not that runner's.
const SLOW_LIVES: usize = 2;

#[derive(Clone, Debug)]
pub(super) struct ServerWatch {
    id: Identity,
    first_seen: Awake,
    answered: bool,
    version_silent_for: Duration,
    ps_silent_for: Duration,
    ps_silent_while_loading: bool,
    loading_since: Option<Awake>,
    /// Requests that failed and that were answered well, by look.
    ends: VecDeque<(Awake, u32, u32)>,
    /// Runners that were slow for long without an explanation, and when last.
    slow: BTreeMap<Identity, Awake>,
    /// For how long each runner has been slow without an explanation.
    unexplained_for: BTreeMap<Identity, Duration>,
    verdict: Option<(Verdict, Awake)>,
}

type Told = (Verdict, Vec<Fact>, Option<Rung>);

impl ServerWatch {
    pub(super) fn new(id: Identity, now: Now) -> Self {
        Self {
            id,
            first_seen: now.awake,
            answered: false,
            version_silent_for: Duration::ZERO,
            ps_silent_for: Duration::ZERO,
            ps_silent_while_loading: false,
            loading_since: None,
            ends: VecDeque::new(),
            slow: BTreeMap::new(),
            unexplained_for: BTreeMap::new(),
            verdict: None,
        }
    }

    pub(super) fn id(&self) -> Identity {
        self.id
    }

    pub(super) fn forgive(&mut self) {
        self.version_silent_for = Duration::ZERO;
        self.ps_silent_for = Duration::ZERO;
        self.ends.clear();
        self.slow.clear();
        self.unexplained_for.clear();
    }

    pub(super) fn judge(
        &mut self,
        interval: &Interval,
        seen: &ServerSeen,
        loading: bool,
        woke: Option<Duration>,
        runners: &[Judgement],
    ) -> Judgement {
        self.take_in(interval, seen, loading, runners);
        let (verdict, evidence, may_recover) = self.tell(interval.now.awake, seen, woke, runners);
        let since = match &self.verdict {
            Some((before, since)) if discriminant(before) == discriminant(&verdict) => *since,
            Some(_) | None => interval.now.awake,
        };
        self.verdict = Some((verdict.clone(), since));
        Judgement { subject: Subject::Server { id: self.id }, verdict, evidence, since, may_recover }
    }

    fn take_in(&mut self, interval: &Interval, seen: &ServerSeen, loading: bool, runners: &[Judgement]) {
        let now = interval.now.awake;
        self.answered |= seen.answers;
        let add = |total: Duration, holds: bool| {
            if holds { total.saturating_add(interval.worked()) } else { Duration::ZERO }
        };
        self.version_silent_for = add(self.version_silent_for, !seen.answers);
        let ps_silent = seen.answers && seen.ps_answers == Known::Is(false);
        self.ps_silent_for = add(self.ps_silent_for, ps_silent);
        self.ps_silent_while_loading = ps_silent && (self.ps_silent_while_loading || loading);
        if loading {
            self.loading_since.get_or_insert(now);
        } else {
            self.loading_since = None;
        }
        while self.ends.front().is_some_and(|(at, ..)| now.since(*at) > FAILURE_SPAN) {
            self.ends.pop_front();
        }
        // A token is no end: a runner that generates may fail all the same.
        if seen.failures > 0 || seen.successes > 0 {
            self.ends.push_back((now, seen.failures, seen.successes));
        }
        let unexplained = |judgement: &&Judgement| judgement.verdict == Verdict::Slow { why: Why::Unexplained };
        if runners.iter().any(|judgement| matches!(judgement.verdict, Verdict::Generating { tokens_per_s: Some(_) })) {
            self.slow.clear();
        }
        self.slow.retain(|_, at| now.since(*at) <= FAILURE_SPAN);
        let before = std::mem::take(&mut self.unexplained_for);
        for judgement in runners.iter().filter(unexplained) {
            let id = judgement.subject.id();
            let span = before.get(&id).map_or(Duration::ZERO, |span| *span + interval.worked());
            if span >= SLOW_LONGEST {
                self.slow.insert(id, now);
            }
            self.unexplained_for.insert(id, span);
        }
    }

    fn tell(&self, now: Awake, seen: &ServerSeen, woke: Option<Duration>, runners: &[Judgement]) -> Told {
        if let Some(ago) = woke
            && (!self.version_silent_for.is_zero() || !self.ps_silent_for.is_zero())
        {
            return (Verdict::JustWoke, vec![Fact::Woke { ago }], None);
        }
        if !seen.answers {
            return self.silent(now);
        }
        let ps_longest =
            if self.ps_silent_while_loading { LOAD_LONGEST + PS_SILENT_LONGEST } else { PS_SILENT_LONGEST };
        if self.ps_silent_for > ps_longest + NOISE_SPAN {
            return self.blocked(seen, runners);
        }
        if let Some(told) = self.corrupt(now, runners) {
            return told;
        }
        if let Some(since) = self.loading_since {
            return (Verdict::Loading { span: now.since(since) }, waiting(seen), None);
        }
        let working = runners.iter().any(|judgement| judgement.verdict.is_work());
        let verdict = match (seen.waiting.at_least > 0, working) {
            (true, true) => Verdict::Queued,
            (true, false) => Verdict::Unknown { why: "requests wait although no runner is seen at work".to_owned() },
            (false, _) if runners.iter().any(|judgement| judgement.verdict.is_busy()) => Verdict::Serving,
            (false, true | false) => Verdict::Idle,
        };
        (verdict, waiting(seen), None)
    }

    fn silent(&self, now: Awake) -> Told {
        let span = self.version_silent_for;
        let starting = !self.answered && now.since(self.first_seen) < FIRST_ANSWER;
        if starting || span <= VERSION_SILENT_LONGEST + NOISE_SPAN {
            let why = if self.answered { "it has not answered for a moment" } else { "it has not answered yet" };
            return (Verdict::Unknown { why: why.to_owned() }, vec![Fact::VersionSilent { span }], None);
        }
        (Verdict::ServerSilent, vec![Fact::VersionSilent { span }], Some(Rung::RestartServer))
    }

    /// A hung runner blocks the scheduler too; ending it frees both, and costs less.
    fn blocked(&self, seen: &ServerSeen, runners: &[Judgement]) -> Told {
        let mut evidence = vec![Fact::PsSilent { span: self.ps_silent_for }];
        evidence.extend(waiting(seen));
        let first = runners.iter().filter(|judgement| comes_first(&judgement.verdict)).count();
        if first > 0 {
            evidence.push(Fact::RunnersFirst { count: u32::try_from(first).unwrap_or(u32::MAX) });
            return (Verdict::SchedulerBlocked, evidence, None);
        }
        // Whoever waits before it is not known without a gateway; after this long no load explains it either.
        let surely = self.ps_silent_for > LOAD_LONGEST + PS_SILENT_LONGEST + NOISE_SPAN;
        if seen.waiting.at_least == 0 && !surely {
            evidence.push(Fact::NoRequestKnown);
            return (Verdict::SchedulerBlocked, evidence, None);
        }
        (Verdict::SchedulerBlocked, evidence, Some(Rung::RestartServer))
    }

    fn corrupt(&self, now: Awake, runners: &[Judgement]) -> Option<Told> {
        let count = self.ends.iter().fold(0_u32, |sum, (_, failed, _)| sum.saturating_add(*failed));
        let succeeded = self.ends.iter().fold(0_u32, |sum, (_, _, well)| sum.saturating_add(*well));
        let first = self.ends.iter().find(|(_, failed, _)| *failed > 0);
        let span = first.map_or(Duration::ZERO, |(at, ..)| now.since(*at));
        let failing = count >= FAILURES_LEAST && count >= succeeded && span >= FAILURES_SPREAD;
        let working: Vec<_> = runners.iter().filter(|judgement| judgement.verdict.is_work()).collect();
        let slow = self.slow.len() >= SLOW_LIVES
            && !working.is_empty()
            && working.iter().all(|judgement| self.slow.contains_key(&judgement.subject.id()));
        if !failing && !slow {
            return None;
        }
        let mut evidence = vec![];
        if failing {
            evidence.push(Fact::Failures { count, succeeded, span });
        }
        if slow {
            evidence.push(Fact::EveryRunnerSlow { lives: u32::try_from(self.slow.len()).unwrap_or(u32::MAX) });
        }
        // Failures alone may be the requests' own: a model too large to load, a client that repeats what cannot work.
        // Slowness alone may be the machine's: a game beside it, a battery. A server that has gone wrong shows both.
        let first = runners.iter().any(|judgement| comes_first(&judgement.verdict));
        let empty = runners.iter().any(|judgement| judgement.verdict == Verdict::EmptyReplies);
        let curable = failing && (slow || !first && empty);
        Some((Verdict::ServerCorrupt, evidence, curable.then_some(Rung::RestartServer)))
    }
}

impl Verdict {
    /// Whether a runner with this verdict is at work and makes progress.
    fn is_work(&self) -> bool {
        matches!(self, Self::Prefill { .. } | Self::Generating { .. } | Self::Slow { .. })
    }
}

impl Verdict {
    /// Whether a runner with this verdict has a request in it, moving or not.
    fn is_busy(&self) -> bool {
        match self {
            Self::Prefill { .. }
            | Self::Generating { .. }
            | Self::Slow { .. }
            | Self::Suspect { .. }
            | Self::Hung { how: _ } => true,
            Self::Idle
            | Self::Loading { .. }
            | Self::Serving
            | Self::Queued
            | Self::EmptyReplies
            | Self::StuckUnloading
            | Self::Orphan
            | Self::DeadButListed
            | Self::ServerSilent
            | Self::SchedulerBlocked
            | Self::ServerCorrupt
            | Self::JustWoke
            | Self::Unknown { .. } => false,
        }
    }
}

/// Whether something at a runner explains a scheduler that waits.
fn comes_first(verdict: &Verdict) -> bool {
    match verdict {
        Verdict::Loading { .. }
        | Verdict::Suspect { .. }
        | Verdict::Hung { how: How::ProcessStopped | How::DecodeLoop | How::BusyLoop | How::HttpDead | How::Load }
        | Verdict::StuckUnloading
        | Verdict::JustWoke => true,
        Verdict::Idle
        | Verdict::Prefill { .. }
        | Verdict::Generating { .. }
        | Verdict::Serving
        | Verdict::Queued
        | Verdict::Slow { .. }
        | Verdict::EmptyReplies
        | Verdict::Orphan
        | Verdict::DeadButListed
        | Verdict::ServerSilent
        | Verdict::SchedulerBlocked
        | Verdict::ServerCorrupt
        | Verdict::Unknown { .. } => false,
    }
}

fn waiting(seen: &ServerSeen) -> Vec<Fact> {
    if seen.waiting.at_most == 0 {
        return vec![];
    }
    let oldest = seen.oldest_wait.known().copied();
    vec![Fact::Waiting { at_least: seen.waiting.at_least, at_most: seen.waiting.at_most, oldest }]
}
