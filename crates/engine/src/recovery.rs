//! From a judgement to the steps that end a stall.
//!
//! [`Ladder::step`] takes an event and `now` and returns effects; [`Ladder::deadline`] names the next moment it wants
//! to be called without an event. It performs nothing. One operation runs at a time; each effect that is answered
//! carries a [`Life`] of its own, and an answer with another one is dropped.
//!
//! ```text
//! judged ─► allowed? ─► Saving ─► Terminating ─► Killing ─► Verifying ─► recovered
//!             │ no        │ no longer judged so      │ gone   ▲  │ not served, or the same again too soon, twice
//!             ▼           ▼                          └────────┤  ▼
//!           alert      (nothing)      Unloading, Restarting ──┘  the server's restart under `All`; else given up
//! ```
//!
//! Allowed means: the policy reaches so far, the cause was not given up, its cooldown is over, fewer than
//! [`Limits::per_hour`] steps within an hour, no pinned model is being loaded. A signal goes only to an identity that
//! was in the last observation, and is reconsidered in the moment before it: progress calls it off. What the ladder no
//! longer waits for is abandoned ([`Effect::Abandon`]), so that nothing that is late comes after its reconsideration.
//!
//! A person's wish goes the same way without the conditions of evidence and policy.

mod ladder;
mod notice;
mod operation;
#[cfg(test)]
mod tests;

pub use crate::supervisor::{Life, WishId};
pub use ladder::Ladder;
pub use notice::{Notice, shell_word};

use crate::process::Identity;
use crate::stall::{Judgement, Verdict};
use std::collections::BTreeSet;
use std::time::Duration;

/// How far recovery may go by itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Policy {
    /// Tell, and do nothing.
    #[default]
    AlertOnly,
    /// End or unload runners.
    Runner,
    /// Restart the server through its owner as well.
    All,
}

/// Bounds of what recovery may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Steps within an hour of awake time, all causes together.
    pub per_hour: u32,
    /// Time between two steps for the same cause.
    pub cooldown: Duration,
    /// The same cause within this time after a step for it means that the step has failed.
    pub fast: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self { per_hour: 6, cooldown: Duration::from_secs(60), fast: Duration::from_secs(600) }
    }
}

/// Fast failures of a cause that end its recovery.
pub const FAST_FAILURES_ALLOWED: u32 = 2;

/// What recovery is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Cause {
    /// [`Verdict::Hung`].
    Hung,
    /// [`Verdict::StuckUnloading`].
    StuckUnloading,
    /// [`Verdict::EmptyReplies`].
    EmptyReplies,
    /// [`Verdict::Orphan`].
    Orphan,
    /// [`Verdict::ServerSilent`].
    ServerSilent,
    /// [`Verdict::SchedulerBlocked`].
    SchedulerBlocked,
    /// [`Verdict::ServerCorrupt`].
    ServerCorrupt,
}

impl Cause {
    /// The cause that a verdict is, if it is one.
    pub fn of(verdict: &Verdict) -> Option<Self> {
        match verdict {
            Verdict::Hung { how: _ } => Some(Self::Hung),
            Verdict::StuckUnloading => Some(Self::StuckUnloading),
            Verdict::EmptyReplies => Some(Self::EmptyReplies),
            Verdict::Orphan => Some(Self::Orphan),
            Verdict::ServerSilent => Some(Self::ServerSilent),
            Verdict::SchedulerBlocked => Some(Self::SchedulerBlocked),
            Verdict::ServerCorrupt => Some(Self::ServerCorrupt),
            Verdict::Idle
            | Verdict::Loading { .. }
            | Verdict::Prefill { .. }
            | Verdict::Generating { .. }
            | Verdict::Serving
            | Verdict::Queued
            | Verdict::Slow { .. }
            | Verdict::Suspect { .. }
            | Verdict::DeadButListed
            | Verdict::JustWoke
            | Verdict::Unknown { .. } => None,
        }
    }

    /// The word used for it in reports and JSON; that of the verdict.
    pub fn word(self) -> &'static str {
        match self {
            Self::Hung => "hung",
            Self::StuckUnloading => "stuck-unloading",
            Self::EmptyReplies => "empty-replies",
            Self::Orphan => "orphan",
            Self::ServerSilent => "server-silent",
            Self::SchedulerBlocked => "scheduler-blocked",
            Self::ServerCorrupt => "server-corrupt",
        }
    }
}

/// A signal to a runner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// SIGTERM.
    Term,
    /// SIGKILL.
    Kill,
}

/// What a person wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ask {
    /// End this life of a runner.
    EndRunner {
        /// The process, as it was last seen.
        id: Identity,
        /// SIGKILL when SIGTERM is not enough.
        force: bool,
    },
    /// Unload a model.
    Unload {
        /// Its name.
        model: String,
    },
}

impl Ask {
    /// What is done for it, in words. `named` is how a person calls what it is about.
    pub fn steps(&self, named: &str) -> Vec<String> {
        match self {
            Self::EndRunner { id, force } => operation::end_steps(named, id.pid, *force),
            Self::Unload { model: _ } => vec![
                format!("ask the server to unload {named} (keep_alive 0); requests that are in it end first"),
                format!("wait until the server lists {named} no more"),
            ],
        }
    }
}

/// What happens to the ladder.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// The judgements on a new observation: all of them.
    Judged(Vec<Judgement>),
    /// The answer to an effect: done. For a signal that is: the process has ended.
    Done {
        /// Of the effect.
        life: Life,
    },
    /// The answer to an effect: not done.
    Failed {
        /// Of the effect.
        life: Life,
        /// Why.
        why: String,
    },
    /// The answer to [`Effect::Verify`].
    Verified {
        /// Of the effect.
        life: Life,
        /// Whether it holds, and what shows it; if not, why not.
        outcome: Result<Proof, String>,
    },
    /// The named deadline may have passed.
    Tick,
    /// The machine was asleep.
    Woke,
    /// A person wants something.
    PersonAsked {
        /// The wish's number, for its end.
        wish: WishId,
        /// What.
        ask: Ask,
    },
    /// The policy that is in force. Another one than before is a person's word: what was given up is taken up again.
    PolicySet(Policy),
    /// A person wants what was given up to be taken up again.
    TryAgain,
    /// Models that are pinned: nothing is kicked while one of them is being loaded.
    PinnedSet(BTreeSet<String>),
}

/// What has shown that a step has helped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Proof {
    /// The next request was answered.
    Answered,
    /// What was to end has ended, and the server answers where it was to be asked; no request was made.
    Seen,
}

/// A cause that recovery does nothing about any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GivenUp {
    /// Whose trouble it was, in words.
    pub subject: String,
    /// Why nothing more is done, in words.
    pub why: String,
}

/// What must hold after a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Check {
    /// The process is gone and its memory is back; with a model, its next request is answered too, if it is one that
    /// generates. It may have to be loaded first.
    Runner {
        /// The process that was ended.
        id: Identity,
        /// The model to ask; `None` when a person ended it and nothing shall be asked.
        model: Option<String>,
    },
    /// The model is unloaded; its next request is answered unless a person asked for the unload.
    Unloaded {
        /// The model.
        model: String,
        /// Whether to ask.
        ask: bool,
    },
    /// The server answers.
    Server,
}

/// How a person's wish ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finish {
    /// Done and verified.
    Done,
    /// Nothing was done; why.
    Refused(String),
    /// It was tried; why it failed.
    Failed(String),
}

/// What the daemon shall do.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Keep the evidence (log lines of known forms, `/api/ps`, slots, a stack sample where the system gives one); answer
    /// with [`Event::Done`].
    SaveEvidence {
        /// To be put on the answer.
        life: Life,
        /// What it is evidence of.
        judgement: Box<Judgement>,
    },
    /// Check the identity once more and send the signal; answer when the process has ended.
    SignalRunner {
        /// To be put on the answer.
        life: Life,
        /// To whom.
        id: Identity,
        /// Which.
        signal: Signal,
    },
    /// Ask the server to unload the model (`keep_alive: 0`).
    Unload {
        /// To be put on the answer.
        life: Life,
        /// The model.
        model: String,
    },
    /// Restart the server through its owner.
    RestartThroughOwner {
        /// To be put on the answer.
        life: Life,
        /// What for.
        cause: Cause,
    },
    /// The answer is not waited for any more: what has not taken effect yet shall not.
    Abandon {
        /// Of the effect.
        life: Life,
    },
    /// See whether the step has helped; answer with [`Event::Verified`].
    Verify {
        /// To be put on the answer.
        life: Life,
        /// What must hold.
        check: Check,
    },
    /// Tell a person.
    Alert(Notice),
    /// Nothing more is done for this cause until a person asks.
    GiveUp {
        /// For which.
        cause: Cause,
        /// Why, in words.
        why: String,
    },
    /// A person's wish has ended.
    Finish {
        /// Which.
        wish: WishId,
        /// How.
        finish: Finish,
    },
}

impl Effect {
    /// Of an effect that is answered: what will be on its answer.
    pub fn life(&self) -> Option<Life> {
        match self {
            Self::SaveEvidence { life, .. }
            | Self::SignalRunner { life, .. }
            | Self::Unload { life, .. }
            | Self::RestartThroughOwner { life, .. }
            | Self::Verify { life, .. } => Some(*life),
            Self::Abandon { .. } | Self::Alert(_) | Self::GiveUp { .. } | Self::Finish { .. } => None,
        }
    }
}
