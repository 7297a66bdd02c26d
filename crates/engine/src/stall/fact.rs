//! The evidence of a judgement, as data. Each fact prints as a part of a sentence.

use super::span::{Clock, Seconds};
use std::fmt;
use std::time::Duration;

/// A counter whose movement is progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counter {
    /// `n_prompt_tokens_processed` of a slot.
    PromptTokens,
    /// `n_decoded` of a slot.
    TokensGenerated,
    /// Prompt tokens that the log tells.
    LoggedPromptTokens,
    /// Bytes of an answer that a gateway saw.
    GatewayBytes,
}

impl Counter {
    /// The name that the source itself uses for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::PromptTokens => "n_prompt_tokens_processed",
            Self::TokensGenerated => "n_decoded",
            Self::LoggedPromptTokens => "prompt tokens in the log",
            Self::GatewayBytes => "bytes of the answer",
        }
    }
}

/// The kind of step that may honestly take long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// One batch of a prompt that begins at this position.
    Batch {
        /// Tokens before it.
        position: u64,
    },
    /// One batch of a prompt whose position is not known.
    BatchSomewhere,
    /// A whole prompt whose steps are not told.
    WholePrompt,
    /// One token.
    Token,
    /// Loading the model.
    Load,
    /// An answer of the HTTP side.
    Answer,
}

/// A pattern of use that was learned of a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pattern {
    /// Of its prompt processing.
    Prefill,
    /// Of its generation.
    Decode,
}

impl Pattern {
    fn name(self) -> &'static str {
        match self {
            Self::Prefill => "prefill",
            Self::Decode => "decode",
        }
    }
}

/// One piece of evidence.
#[derive(Clone, Debug, PartialEq)]
pub enum Fact {
    /// A counter stood still.
    Still {
        /// Which.
        counter: Counter,
        /// Its value when the silence began.
        from: u64,
        /// Its value now.
        to: u64,
        /// How long, in awake time.
        silence: Duration,
        /// The longest honest step at this place, margins not yet added.
        step: Step,
        /// How long that step may take.
        honest: Duration,
    },
    /// `n_decode_total` stands still as well.
    DecodeCounterStill {
        /// Its value.
        value: u64,
    },
    /// The GPU does nothing although this model uses it.
    GpuIdle {
        /// Use in percent.
        percent: u32,
    },
    /// CPU use during the silence.
    Cpu {
        /// In percent of one core.
        percent: u32,
        /// The pattern that it should follow and does not; `None` when it does, or too little is known.
        unlike: Option<Pattern>,
    },
    /// The process is stopped by a signal.
    ProcessStopped {
        /// For how long it was seen so.
        span: Duration,
    },
    /// `/health` gives no answer.
    HealthSilent {
        /// For how long.
        span: Duration,
    },
    /// Requests known to be in the runner.
    InFlight {
        /// Busy slots, where slots can be read.
        busy_slots: Option<u32>,
        /// Tickets of a gateway.
        tickets: Option<u32>,
        /// The log shows a prompt that was begun and not finished.
        logged: bool,
    },
    /// No request is known to be in the runner; an open connection alone is none.
    NoRequestKnown,
    /// The slots are free while a gateway still holds requests: a client does not read its answer.
    SlotsFreeWhileTicketsHeld {
        /// How many.
        tickets: u32,
    },
    /// Requests wait in front of the runners.
    Waiting {
        /// At least.
        at_least: u32,
        /// At most.
        at_most: u32,
        /// How long the oldest has waited.
        oldest: Option<Duration>,
    },
    /// Memory is being paged.
    Paging {
        /// Read back, bytes per second.
        in_bytes_per_s: f64,
        /// Written, bytes per second.
        out_bytes_per_s: f64,
    },
    /// Paging cannot be ruled out.
    PagingPossible {
        /// Why not.
        why: &'static str,
    },
    /// Heat slows the machine.
    Throttled,
    /// Other runners work at the same time.
    Shared {
        /// How many.
        busy_runners: u32,
    },
    /// Fewer gaps of this model were seen than a narrow prediction needs.
    Unfamiliar {
        /// How many were seen.
        gaps: u32,
    },
    /// An image may be being encoded, or a prompt saved to the cache.
    ImagePossible,
    /// Nothing but the silence itself speaks for a fault.
    NoIndependentSign,
    /// The silence is so many times longer than allowed, margins included, that no slowness explains it.
    FarBeyond {
        /// So many times.
        times: f64,
    },
    /// Nothing has moved for a while, which is still honest.
    Quiet {
        /// For how long, in awake time.
        silence: Duration,
        /// How long it may be so.
        allowed: Duration,
    },
    /// Its memory has stopped growing.
    FootprintStill {
        /// For how long.
        span: Duration,
    },
    /// The machine woke.
    Woke {
        /// How long ago.
        ago: Duration,
    },
    /// The model is being loaded.
    Loading {
        /// Since it was first seen so.
        span: Duration,
        /// The longest honest load.
        honest: Duration,
    },
    /// Something could not be read.
    NotRead {
        /// What.
        what: &'static str,
        /// Why.
        why: String,
    },
    /// This kind of runner tells no progress.
    NoProgressTold,
    /// Successive answers without text.
    EmptyReplies {
        /// How many.
        count: usize,
    },
    /// This model was never seen to generate text, so that short answers may be its way.
    NeverGenerated,
    /// The time until which the model should stay loaded has passed.
    StayOver {
        /// How long ago, in awake time.
        span: Duration,
    },
    /// The end of its stay was moved to the present: somebody asked for the unload.
    UnloadAsked,
    /// `/api/ps` does not list it any more.
    NotListed {
        /// For how long.
        span: Duration,
    },
    /// `/api/ps` lists a process that has ended.
    ListedThoughGone,
    /// The server that it belonged to has ended.
    ServerGone {
        /// For how long it was seen so.
        span: Duration,
    },
    /// `/api/version` gives no answer.
    VersionSilent {
        /// For how long.
        span: Duration,
    },
    /// `/api/ps` gives no answer although `/api/version` does.
    PsSilent {
        /// For how long.
        span: Duration,
    },
    /// Requests failed on the server's side, and none succeeded meanwhile.
    Failures {
        /// How many.
        count: u32,
        /// How many were answered well meanwhile.
        succeeded: u32,
        /// Within this span.
        span: Duration,
    },
    /// The rate of generation.
    Rate {
        /// Now.
        tokens_per_s: f64,
        /// What this model usually reaches here.
        usual_tokens_per_s: Option<f64>,
    },
    /// Prompt tokens done.
    Prompt {
        /// So many.
        done: u64,
        /// Of so many, when that is known.
        total: Option<u64>,
    },
    /// Runners that have to be cured before the server is judged.
    RunnersFirst {
        /// How many.
        count: u32,
    },
    /// Every runner that works is far slower than it usually is, and nothing explains it.
    EveryRunnerSlow {
        /// How many lives of runners were seen so.
        lives: u32,
    },
}

impl fmt::Display for Fact {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Still { counter, from, to, silence, step, honest } => {
                write!(
                    out,
                    "{} {from} → {to} for {} of awake time, longest honest ",
                    counter.name(),
                    Seconds(*silence)
                )?;
                match step {
                    Step::Batch { position: _ } => write!(out, "batch at this position"),
                    Step::BatchSomewhere => write!(out, "batch at any position"),
                    Step::WholePrompt => write!(out, "whole prompt"),
                    Step::Token => write!(out, "token"),
                    Step::Load => write!(out, "load"),
                    Step::Answer => write!(out, "answer"),
                }?;
                write!(out, " {}", Seconds(*honest))
            }
            Self::DecodeCounterStill { value: _ } => write!(out, "decode counter still"),
            Self::GpuIdle { percent } => write!(out, "GPU at most {percent} %, though this model uses it"),
            Self::Cpu { percent, unlike: Some(pattern) } => {
                write!(out, "CPU {percent} %, unlike this model's {}", pattern.name())
            }
            Self::Cpu { percent, unlike: None } => write!(out, "CPU {percent} %"),
            Self::ProcessStopped { span } => write!(out, "process stopped by a signal for {}", Seconds(*span)),
            Self::HealthSilent { span } => write!(out, "/health has not answered for {}", Seconds(*span)),
            Self::InFlight { busy_slots, tickets, logged } => in_flight(out, *busy_slots, *tickets, *logged),
            Self::NoRequestKnown => write!(out, "no request is known to be in it"),
            Self::SlotsFreeWhileTicketsHeld { tickets } => {
                write!(out, "its slots are free while {tickets} requests are held: a client does not read its answer")
            }
            Self::Waiting { at_least, at_most, oldest } => waiting(out, *at_least, *at_most, *oldest),
            Self::Paging { in_bytes_per_s, out_bytes_per_s } => write!(
                out,
                "memory is paged: {:.1} MiB/s in, {:.1} MiB/s out",
                in_bytes_per_s / 1_048_576.0,
                out_bytes_per_s / 1_048_576.0
            ),
            Self::PagingPossible { why } => write!(out, "paging cannot be ruled out: {why}"),
            Self::Throttled => write!(out, "heat slows the machine"),
            Self::Shared { busy_runners } => write!(out, "{busy_runners} other runners work at the same time"),
            Self::Unfamiliar { gaps } => write!(out, "only {gaps} gaps of this model seen so far"),
            Self::ImagePossible => write!(out, "an image may be being encoded"),
            Self::NoIndependentSign => write!(out, "nothing but the silence speaks for a fault"),
            Self::FarBeyond { times } => write!(out, "more than {times} times what is allowed"),
            Self::Quiet { silence, allowed } => {
                write!(out, "nothing has moved for {}, up to {} is honest here", Seconds(*silence), Seconds(*allowed))
            }
            Self::FootprintStill { span } => write!(out, "its memory has not grown for {}", Seconds(*span)),
            Self::Woke { ago } => write!(out, "the machine woke {} ago", Seconds(*ago)),
            Self::Loading { span, honest } => {
                write!(out, "loading for {}, longest honest load {}", Seconds(*span), Seconds(*honest))
            }
            Self::NotRead { what, why } => write!(out, "{what} unknown: {why}"),
            Self::NoProgressTold => write!(out, "this kind of runner tells no progress without the gateway"),
            Self::EmptyReplies { count } => write!(out, "{count} successive answers of at most one token"),
            Self::NeverGenerated => write!(out, "it was never seen to generate text"),
            Self::StayOver { span } => write!(out, "its stay ended {} ago", Seconds(*span)),
            Self::UnloadAsked => write!(out, "its unload was asked for"),
            Self::NotListed { span } => write!(out, "/api/ps has not listed it for {}", Seconds(*span)),
            Self::ListedThoughGone => write!(out, "/api/ps lists it although its process has ended"),
            Self::ServerGone { span } => write!(out, "its server has been gone for {}", Seconds(*span)),
            Self::VersionSilent { span } => write!(out, "/api/version has not answered for {}", Seconds(*span)),
            Self::PsSilent { span } => {
                write!(out, "/api/ps has not answered for {}, though /api/version does", Seconds(*span))
            }
            Self::Failures { count, succeeded: 0, span } => {
                write!(out, "{count} requests failed within {} and none succeeded", Clock(*span))
            }
            Self::Failures { count, succeeded, span } => {
                write!(out, "{count} requests failed within {} and {succeeded} succeeded", Clock(*span))
            }
            Self::Rate { tokens_per_s, usual_tokens_per_s: Some(usual) } => {
                write!(out, "{tokens_per_s:.1} tokens/s, usually {usual:.1}")
            }
            Self::Rate { tokens_per_s, usual_tokens_per_s: None } => write!(out, "{tokens_per_s:.1} tokens/s"),
            Self::Prompt { done, total: Some(total) } => write!(out, "{done} of {total} prompt tokens done"),
            Self::Prompt { done, total: None } => write!(out, "{done} prompt tokens done"),
            Self::RunnersFirst { count } => write!(out, "{count} runners are to be cured first"),
            Self::EveryRunnerSlow { lives } => {
                write!(out, "every runner that works is far slower than usual, seen in {lives} lives of runners")
            }
        }
    }
}

fn in_flight(out: &mut fmt::Formatter<'_>, busy_slots: Option<u32>, tickets: Option<u32>, logged: bool) -> fmt::Result {
    match (busy_slots, tickets) {
        (Some(1), _) => write!(out, "1 slot busy"),
        (Some(slots), _) => write!(out, "{slots} slots busy"),
        (None, Some(1)) => write!(out, "1 request in flight"),
        (None, Some(tickets)) => write!(out, "{tickets} requests in flight"),
        (None, None) if logged => write!(out, "its log shows a prompt that was begun and not finished"),
        (None, None) => write!(out, "a request in flight"),
    }
}

fn waiting(out: &mut fmt::Formatter<'_>, at_least: u32, at_most: u32, oldest: Option<Duration>) -> fmt::Result {
    match (at_least, at_most) {
        (1, 1) => write!(out, "1 client waits")?,
        (least, most) if least == most => write!(out, "{least} clients wait")?,
        (least, most) => write!(out, "{least} to {most} clients wait")?,
    }
    match oldest {
        Some(oldest) => write!(out, ", oldest {}", Clock(oldest)),
        None => Ok(()),
    }
}
