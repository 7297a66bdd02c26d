//! One operation of the ladder and its stages.

use super::{Cause, GivenUp, Life, WishId};
use crate::process::Identity;
use crate::stall::envelope::END_LONGEST;
use crate::stall::{Judgement, Rung};
use crate::time::{Awake, Now};
use std::time::Duration;

/// Evidence is worth a moment, not the recovery.
const SAVE_LONGEST: Duration = Duration::from_secs(5);
/// A hung runner does not come back to its signal handler; SIGTERM is for one that is not as hung as it looks.
const TERM_LONGEST: Duration = Duration::from_millis(500);
/// A runner that a person ends gently may finish what it does.
const GENTLE_LONGEST: Duration = Duration::from_secs(10);
/// A killed process gives its memory back first, which is slow while the machine pages.
const KILL_LONGEST: Duration = END_LONGEST;
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
    pub given_up: Option<GivenUp>,
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
    /// Why its evidence was not kept.
    pub unsaved: Option<String>,
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

/// The steps that end a runner for a person, in words.
pub(super) fn end_steps(named: &str, pid: u32, force: bool) -> Vec<String> {
    let patience = if force { TERM_LONGEST } else { GENTLE_LONGEST };
    let mut steps = vec![
        format!("save what is seen of the runner of {named} (pid {pid})"),
        format!("SIGTERM to pid {pid}, and wait at most {} s", patience.as_secs_f64()),
    ];
    if force {
        steps.push(format!("SIGKILL if it is still there, and wait at most {} s", KILL_LONGEST.as_secs_f64()));
    }
    steps.push(format!("see that pid {pid} is gone"));
    steps
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

    /// That its stage took too long, in words.
    pub fn overdue(&self) -> String {
        let waited = self.longest().as_secs_f64();
        match self.stage {
            Stage::Saving => format!("it took longer than {waited} s"),
            Stage::Terminating => format!("the runner was there {waited} s after SIGTERM"),
            Stage::Killing => {
                format!(
                    "the runner was still there {waited} s after SIGKILL: it hangs in the kernel (disk or graphics driver)"
                )
            }
            Stage::Unloading => format!("the server did not take the unload within {waited} s"),
            Stage::Restarting => format!("the server was not restarted within {waited} s"),
            Stage::Verifying => format!("that it has helped was not seen within {waited} s"),
        }
    }
}
