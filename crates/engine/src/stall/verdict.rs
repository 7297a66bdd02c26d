//! What a runner or the server is doing, and how sure that is.

use super::fact::Fact;
use super::span::{Clock, Seconds};
use crate::Known;
use crate::process::Identity;
use crate::time::Awake;
use std::fmt;
use std::time::Duration;

/// Whom a judgement is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subject {
    /// One life of a runner.
    Runner {
        /// The process.
        id: Identity,
        /// Its model.
        model: Known<String>,
    },
    /// One life of the server.
    Server {
        /// The process.
        id: Identity,
    },
}

impl Subject {
    /// The process.
    pub fn id(&self) -> Identity {
        match self {
            Self::Runner { id, model: _ } | Self::Server { id } => *id,
        }
    }

    /// The model, when it is a runner whose model is known.
    pub fn model(&self) -> Option<&str> {
        match self {
            Self::Runner { id: _, model } => model.known().map(String::as_str),
            Self::Server { id: _ } => None,
        }
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Runner { id, model: Known::Is(model) } => write!(out, "{model} (process {})", id.pid),
            Self::Runner { id, model: Known::Unknown(_) } => write!(out, "runner {}", id.pid),
            Self::Server { id } => write!(out, "the server (process {})", id.pid),
        }
    }
}

/// What is going on.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    /// Nothing to do.
    Idle,
    /// A model is being loaded.
    Loading {
        /// For how long it was seen so.
        span: Duration,
    },
    /// A prompt is being processed.
    Prefill {
        /// Tokens done, those from the cache not counted.
        tokens_done: u64,
        /// Of how many, when that is known.
        of: Option<u64>,
        /// How long it will take from here, when the total and a rate are known.
        eta: Option<Duration>,
    },
    /// Text is being generated.
    Generating {
        /// Over all slots together; `None` until it was measured.
        tokens_per_s: Option<f64>,
    },
    /// Its runners have requests, and none is known to wait (the server's verdict).
    Serving,
    /// Requests wait behind busy runners, which is how it should be (the server's verdict).
    Queued,
    /// There is progress, far below what this model usually reaches here.
    Slow {
        /// Why.
        why: Why,
    },
    /// Silent for longer than is honest, but a condition of a kill is missing.
    Suspect {
        /// For how long, in awake time.
        silence: Duration,
        /// How long was allowed.
        allowed: Duration,
    },
    /// Silent for longer than is honest, with a request in it and an independent sign.
    Hung {
        /// In which way.
        how: How,
    },
    /// It answers with success and without text.
    EmptyReplies,
    /// It should be unloaded and is not ("Stopping…").
    StuckUnloading,
    /// Its server has ended and it lives on.
    Orphan,
    /// `/api/ps` lists it and its process has ended. The next request loads the model anew.
    DeadButListed,
    /// The server does not answer.
    ServerSilent,
    /// The server answers, but its scheduler does not move.
    SchedulerBlocked,
    /// Every runner of the server is slow or fails.
    ServerCorrupt,
    /// The machine woke a moment ago; nothing is concluded from a silence.
    JustWoke,
    /// It cannot be told.
    Unknown {
        /// Why not.
        why: String,
    },
}

impl Verdict {
    /// The word used for it in reports and JSON.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Loading { .. } => "loading",
            Self::Prefill { .. } => "prefill",
            Self::Generating { .. } => "generating",
            Self::Serving => "serving",
            Self::Queued => "queued",
            Self::Slow { .. } => "slow",
            Self::Suspect { .. } => "suspect",
            Self::Hung { .. } => "hung",
            Self::EmptyReplies => "empty-replies",
            Self::StuckUnloading => "stuck-unloading",
            Self::Orphan => "orphan",
            Self::DeadButListed => "dead-but-listed",
            Self::ServerSilent => "server-silent",
            Self::SchedulerBlocked => "scheduler-blocked",
            Self::ServerCorrupt => "server-corrupt",
            Self::JustWoke => "just-woke",
            Self::Unknown { .. } => "unknown",
        }
    }

    /// Whether a person should hear of it.
    pub fn is_trouble(&self) -> bool {
        match self {
            Self::Suspect { .. }
            | Self::Hung { .. }
            | Self::EmptyReplies
            | Self::StuckUnloading
            | Self::Orphan
            | Self::ServerSilent
            | Self::SchedulerBlocked
            | Self::ServerCorrupt => true,
            Self::Idle
            | Self::Loading { .. }
            | Self::Prefill { .. }
            | Self::Generating { .. }
            | Self::Serving
            | Self::Queued
            | Self::Slow { .. }
            | Self::DeadButListed
            | Self::JustWoke
            | Self::Unknown { .. } => false,
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Idle => write!(out, "idle"),
            Self::Loading { span } => write!(out, "loading for {}", Clock(*span)),
            Self::Prefill { tokens_done, of, eta } => {
                write!(out, "reading the prompt, {tokens_done}")?;
                if let Some(total) = of {
                    write!(out, " of {total}")?;
                }
                write!(out, " tokens")?;
                match eta {
                    Some(eta) => write!(out, ", about {} left", Clock(*eta)),
                    None => Ok(()),
                }
            }
            Self::Generating { tokens_per_s: Some(rate) } => write!(out, "generating, {rate:.1} tokens/s"),
            Self::Generating { tokens_per_s: None } => write!(out, "generating"),
            Self::Serving => write!(out, "its runners are busy"),
            Self::Queued => write!(out, "requests wait behind busy runners"),
            Self::Slow { why } => write!(out, "slow: {why}"),
            Self::Suspect { silence, allowed } => {
                write!(out, "suspect: silent for {}, allowed {}", Seconds(*silence), Seconds(*allowed))
            }
            Self::Hung { how } => write!(out, "hung: {how}"),
            Self::EmptyReplies => write!(out, "answers without text"),
            Self::StuckUnloading => write!(out, "stuck while unloading"),
            Self::Orphan => write!(out, "left behind by a server that has ended"),
            Self::DeadButListed => write!(out, "ended, though still listed"),
            Self::ServerSilent => write!(out, "the server does not answer"),
            Self::SchedulerBlocked => write!(out, "the server answers, its scheduler does not move"),
            Self::ServerCorrupt => write!(out, "every runner of the server is slow or fails"),
            Self::JustWoke => write!(out, "the machine woke a moment ago"),
            Self::Unknown { why } => write!(out, "unknown: {why}"),
        }
    }
}

/// In which way a runner hangs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// Its process was stopped by a signal.
    ProcessStopped,
    /// Its decode loop stands while its HTTP side answers.
    DecodeLoop,
    /// It burns CPU time as it never did in honest work, and makes no progress.
    BusyLoop,
    /// Its HTTP side gives no answer either.
    HttpDead,
    /// Its load does not end.
    Load,
}

impl fmt::Display for How {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::ProcessStopped => "its process is stopped",
            Self::DecodeLoop => "its decode loop stands still",
            Self::BusyLoop => "it is busy without progress",
            Self::HttpDead => "it does not answer at all",
            Self::Load => "its load does not end",
        })
    }
}

/// Why a runner is slow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// Memory is being paged.
    Paging,
    /// Heat slows the machine.
    Throttled,
    /// The context is long.
    LongContext,
    /// Other runners work at the same time.
    Shared,
    /// Nothing that was seen explains it.
    Unexplained,
}

impl fmt::Display for Why {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Paging => "memory is being paged",
            Self::Throttled => "heat slows the machine",
            Self::LongContext => "the context is long",
            Self::Shared => "other runners work at the same time",
            Self::Unexplained => "nothing that was seen explains it",
        })
    }
}

/// A step of recovery.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Rung {
    /// SIGTERM, then SIGKILL, to the runner. The server itself goes on and loads the model anew.
    EndRunner,
    /// Ask the server to unload the model.
    Unload,
    /// Restart the server through its owner.
    RestartServer,
}

/// A verdict with what made it.
#[derive(Clone, Debug, PartialEq)]
pub struct Judgement {
    /// About whom.
    pub subject: Subject,
    /// What is going on.
    pub verdict: Verdict,
    /// The evidence, the weightiest first.
    pub evidence: Vec<Fact>,
    /// Since when the verdict is of this kind.
    pub since: Awake,
    /// The first step of recovery, when every condition of it holds.
    pub may_recover: Option<Rung>,
}

impl Judgement {
    /// The evidence as one sentence without its full stop, where there is any.
    pub fn evidence_in_words(&self) -> Option<String> {
        (!self.evidence.is_empty()).then(|| self.to_string())
    }
}

impl fmt::Display for Judgement {
    /// The evidence as one sentence without its full stop; the verdict in words when there is none.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.evidence.is_empty() {
            return self.verdict.fmt(out);
        }
        for (index, fact) in self.evidence.iter().enumerate() {
            if index > 0 {
                out.write_str("; ")?;
            }
            fact.fmt(out)?;
        }
        Ok(())
    }
}
