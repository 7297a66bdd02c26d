//! Which runners live, and whose the lines are that do not say it.
//!
//! The log names a runner when it starts and hardly ever when it ends: one that is killed or unloaded leaves no line.
//! Who lives is therefore told from outside, from the process table. As long as one runner of a generation lives, the
//! lines of that generation are its; with two of them they are nobody's.

use super::threads::Thread;
use super::voice::{PromptInSlot, Voice};
use crate::log::SlotLine;
use stablehand_engine::Known;
use stablehand_engine::process::{RunnerArgs, RunnerKind};
use stablehand_engine::stall::evidence::{FinishedRequest, LogProgress};
use stablehand_engine::time::Wall;

/// What the log tells of one runner.
#[derive(Clone, Debug, PartialEq)]
pub struct RunnerView {
    /// Its port; `None` where neither the log nor its arguments name it.
    pub port: Option<u16>,
    /// Its generation.
    pub kind: RunnerKind,
    /// Its model: a blob path, or a name under MLX.
    pub model: Known<String>,
    /// When the log told its start; `None` for one that was there before.
    pub started: Option<Wall>,
    /// The newest progress; unknown while the lines cannot be told apart, `None` when there was none.
    pub progress: Known<Option<LogProgress>>,
    /// The requests that it finished, the newest last, at most eight. Only requests whose tokens were told are among
    /// them: those of the older generation and of MLX are not.
    pub finished: Known<Vec<FinishedRequest>>,
    /// The prompts in it whose length was told.
    pub prompts: Known<Vec<PromptInSlot>>,
}

impl RunnerView {
    /// The total of the prompt of a task in a slot, when the log told it.
    pub fn prompt_tokens_total(&self, slot: u32, task: u64) -> Option<u64> {
        let same = |prompt: &&PromptInSlot| prompt.slot == slot && u64::try_from(prompt.task) == Ok(task);
        self.prompts.known()?.iter().find(same).map(|prompt| prompt.prompt_tokens)
    }
}

/// A conversation, and whose it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThreadView {
    /// The runner's port; unknown when the lines cannot be told apart.
    pub runner: Known<u16>,
    /// Its model, where the runner is known.
    pub model: Known<String>,
    /// The conversation.
    pub thread: Thread,
}

/// What lines told that are known to be no certain runner's.
#[derive(Clone, Debug, PartialEq)]
pub struct Unattributed {
    /// Why nobody's.
    pub reason: String,
    /// The newest progress of any of the runners that it may be.
    pub progress: Option<LogProgress>,
}

/// A runner as somebody sees it live.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LivingRunner {
    /// Its port, from its arguments.
    pub port: Option<u16>,
    /// Its generation.
    pub kind: RunnerKind,
    /// Its model, from its arguments.
    pub model: Known<String>,
}

impl From<&RunnerArgs> for LivingRunner {
    fn from(args: &RunnerArgs) -> Self {
        Self { port: args.port.known().copied(), kind: args.kind, model: args.model.clone() }
    }
}

#[derive(Clone, Debug)]
struct Runner {
    seen: LivingRunner,
    started: Option<Wall>,
    /// Whether the process table ever showed it.
    shown: bool,
    /// How often in a row the process table did not.
    missed: u32,
    voice: Voice,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Runners {
    living: Vec<Runner>,
    /// Whether `living` is all of them: told from outside, or followed since the server began.
    complete: bool,
    nobody: Voice,
}

/// More than anybody can load; beyond it the oldest is forgotten.
const MOST_RUNNERS: usize = 128;
/// A runner is logged before its process begins, and its last lines may be read after its end was seen.
const GONE_AFTER_MISSES: u32 = 2;
/// A process that was logged and never seen has failed to begin.
const NEVER_SHOWN_MS: u64 = 30_000;

impl Runners {
    pub fn server_began(&mut self) {
        // Runners of an earlier server that still live cannot write into this log any more.
        *self = Self { complete: true, ..Self::default() };
    }

    pub fn starts(&mut self, at: Wall, args: &RunnerArgs) {
        let seen = LivingRunner::from(args);
        self.living.retain(|runner| seen.port.is_none() || runner.seen.port != seen.port);
        if self.living.len() == MOST_RUNNERS {
            self.living.remove(0);
        }
        let kind = seen.kind;
        self.living.push(Runner { seen, started: Some(at), shown: false, missed: 0, voice: Voice::default() });
        self.reattribute(kind);
    }

    /// The runner at that port ended.
    pub fn ended(&mut self, port: u16) {
        self.living.retain(|runner| runner.seen.port != Some(port));
    }

    /// A runner of that model ended; known which only if there is one of them.
    pub fn unloaded(&mut self, model: &str) {
        let of_model = |runner: &Runner| runner.seen.model.known().is_some_and(|name| name == model);
        if self.living.iter().filter(|runner| of_model(runner)).count() == 1 {
            self.living.retain(|runner| !of_model(runner));
        }
    }

    /// Takes in who lives. Gives the models of those that are gone since.
    pub fn living(&mut self, now: Wall, living: &[LivingRunner]) -> Vec<String> {
        self.complete = true;
        let mut gone = Vec::new();
        self.living.retain_mut(|runner| {
            if living.iter().any(|seen| runner.is(seen)) {
                (runner.shown, runner.missed) = (true, 0);
                return true;
            }
            runner.missed = runner.missed.saturating_add(1);
            let young = runner.started.is_some_and(|at| now.unix_ms.abs_diff(at.unix_ms) < NEVER_SHOWN_MS);
            let stays = runner.missed < GONE_AFTER_MISSES || (!runner.shown && young);
            if !stays && let Some(model) = runner.seen.model.known() {
                gone.push(model.clone());
            }
            stays
        });
        for seen in living {
            if self.living.iter().any(|runner| runner.is(seen)) || self.living.len() >= MOST_RUNNERS {
                continue;
            }
            let voice = Voice::default();
            self.living.push(Runner { seen: seen.clone(), started: None, shown: true, missed: 0, voice });
            self.reattribute(seen.kind);
        }
        gone
    }

    pub fn slot(&mut self, now: Wall, line: &SlotLine) -> super::voice::Told {
        self.voice(RunnerKind::LlamaServer).slot(now, line)
    }

    /// The voice of that generation: its only runner's, or nobody's.
    pub fn voice(&mut self, kind: RunnerKind) -> &mut Voice {
        match self.speaker(kind) {
            Ok(at) => &mut self.living[at].voice,
            Err(_) => &mut self.nobody,
        }
    }

    pub fn view(&self) -> Vec<RunnerView> {
        self.living.iter().map(|runner| self.view_of(runner)).collect()
    }

    /// What is nobody's, while there is a generation whose lines are nobody's.
    pub fn unattributed(&self) -> Option<Unattributed> {
        let kinds = [RunnerKind::LlamaServer, RunnerKind::OllamaRunner, RunnerKind::Mlx];
        let present = |kind: &RunnerKind| self.living.iter().any(|runner| runner.seen.kind == *kind);
        let reason = kinds.into_iter().filter(present).find_map(|kind| self.speaker(kind).err());
        let progress = self.nobody.progress();
        match reason {
            Some(reason) => Some(Unattributed { reason, progress }),
            None => progress.map(|at| Unattributed {
                reason: "it was not known which runners live when these lines came".to_owned(),
                progress: Some(at),
            }),
        }
    }

    pub fn threads(&self) -> Vec<ThreadView> {
        let nobody = self.nobody.threads.iter().map(|thread| ThreadView {
            runner: Known::unknown("several runners write into one log, and their lines do not name them"),
            model: Known::unknown("the runner is not known"),
            thread: thread.clone(),
        });
        let known = self.living.iter().flat_map(|runner| {
            let port = runner.seen.port.map_or_else(|| Known::unknown("its port is not known"), Known::Is);
            runner.voice.threads.iter().map(move |thread| ThreadView {
                runner: port.clone(),
                model: runner.seen.model.clone(),
                thread: thread.clone(),
            })
        });
        let mut threads: Vec<ThreadView> = known.chain(nobody).collect();
        threads.sort_by_key(|view| std::cmp::Reverse(view.thread.tokens()));
        threads
    }

    /// Which runner the lines of a generation are of, or why that is not known.
    fn speaker(&self, kind: RunnerKind) -> Result<usize, String> {
        if !self.complete {
            return Err("it is not known which runners live".to_owned());
        }
        let mut of_kind = (0..self.living.len()).filter(|at| self.living[*at].seen.kind == kind);
        match (of_kind.next(), of_kind.count()) {
            (Some(at), 0) => Ok(at),
            (None, _) => Err("no runner is known to live".to_owned()),
            (Some(_), others) => {
                Err(format!("{} runners write into one log, and their lines do not name them", others + 1))
            }
        }
    }

    /// Another runner of that generation is there: what was one's may be another's from here on.
    fn reattribute(&mut self, kind: RunnerKind) {
        if self.speaker(kind).is_err() {
            self.living
                .iter_mut()
                .filter(|runner| runner.seen.kind == kind)
                .for_each(|runner| runner.voice.interrupt());
        }
        self.nobody.interrupt();
    }

    fn view_of(&self, runner: &Runner) -> RunnerView {
        let known = self.speaker(runner.seen.kind);
        let when_known = |reason: &Result<usize, String>| reason.as_ref().err().cloned();
        fn known_or<T>(reason: Option<String>, value: impl FnOnce() -> T) -> Known<T> {
            reason.map_or_else(|| Known::Is(value()), Known::Unknown)
        }
        RunnerView {
            port: runner.seen.port,
            kind: runner.seen.kind,
            model: runner.seen.model.clone(),
            started: runner.started,
            progress: known_or(when_known(&known), || runner.voice.progress()),
            finished: known_or(when_known(&known), || runner.voice.finished()),
            prompts: known_or(when_known(&known), || runner.voice.prompts()),
        }
    }
}

impl Runner {
    fn is(&self, seen: &LivingRunner) -> bool {
        self.seen.kind == seen.kind
            && match (self.seen.port, seen.port) {
                (Some(mine), Some(other)) => mine == other,
                (None, _) | (_, None) => self.seen.model == seen.model,
            }
    }
}
