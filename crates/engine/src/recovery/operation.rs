//! One operation of the ladder and its stages.

use super::{Cause, Life, WishId};
use crate::process::Identity;
use crate::stall::{Judgement, Rung};
use crate::time::{Awake, Now};
use std::time::Duration;

/// Evidence is worth a moment, not the recovery.
const SAVE_LONGEST: Duration = Duration::from_secs(5);
/// A hung runner does not come back to its signal handler; SIGTERM is for one that is not as hung as it looks.
const TERM_LONGEST: Duration = Duration::from_millis(500);
/// A runner that a person ends gently may finish what it does.
const GENTLE_LONGEST: Duration = Duration::from_secs(10);
const KILL_LONGEST: Duration = Duration::from_secs(5);
const UNLOAD_LONGEST: Duration = Duration::from_secs(30);
const RESTART_LONGEST: Duration = Duration::from_secs(300);
/// The next request may have to load the model first, under paging.
const VERIFY_LONGEST: Duration = Duration::from_secs(900);

/// What is remembered of a cause.
#[derive(Debug, Default)]
pub(super) struct Memory {
    pub last_step: Option<Awake>,
    /// Steps in this row.
    pub steps: u32,
    pub fast_failures: u32,
    pub escalated: bool,
    pub given_up: bool,
}

#[derive(Debug)]
pub(super) struct Operation {
    /// Of the effect that is to be answered next.
    pub life: Life,
    pub rung: Rung,
    pub target: Target,
    pub origin: Origin,
    pub stage: Stage,
    pub since: Awake,
}

#[derive(Debug)]
pub(super) enum Target {
    Runner { id: Identity, model: Option<String> },
    Model(String),
    Server,
}

#[derive(Debug)]
pub(super) enum Origin {
    Judged { cause: Cause, judgement: Box<Judgement> },
    Person { wish: WishId, force: bool },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    Saving,
    Terminating,
    Killing,
    Unloading,
    Restarting,
    Verifying,
}

impl Stage {
    pub fn name(self) -> &'static str {
        match self {
            Self::Saving => "evidence is saved",
            Self::Terminating => "runner ends on SIGTERM",
            Self::Killing => "runner ends on SIGKILL",
            Self::Unloading => "model is unloaded",
            Self::Restarting => "server is restarted",
            Self::Verifying => "next request is answered",
        }
    }
}

impl Operation {
    /// Goes on to a stage, whose effect carries this life.
    pub fn enter(&mut self, stage: Stage, life: Life, now: Now) {
        (self.stage, self.life, self.since) = (stage, life, now.awake);
    }

    /// How long its stage may take.
    pub fn longest(&self) -> Duration {
        match self.stage {
            Stage::Saving => SAVE_LONGEST,
            Stage::Terminating if matches!(self.origin, Origin::Person { force: false, .. }) => GENTLE_LONGEST,
            Stage::Terminating => TERM_LONGEST,
            Stage::Killing => KILL_LONGEST,
            Stage::Unloading => UNLOAD_LONGEST,
            Stage::Restarting => RESTART_LONGEST,
            Stage::Verifying => VERIFY_LONGEST,
        }
    }
}
