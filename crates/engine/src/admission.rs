//! When a request for inference may go to the server.
//!
//! [`Admission::step`] takes an event and `now` and returns effects; [`Admission::deadline`] names the next moment it
//! wants to be called without an event ([`Event::Tick`]). It performs nothing and reads no clock. One task of the
//! gateway owns it.
//!
//! A request is a [`Ticket`]. It gets a [`Permit`] when it may be sent and holds it until its response has ended,
//! its client has gone or the server has ([`Event::Ended`], [`Event::Left`]). Every admission has a permit of its
//! own, so an end that comes twice, or late, is dropped. Requests that never wait (unload and preload calls, `HEAD`,
//! `OPTIONS`, pulls, cloud models) are not told here at all.

mod estimate;
mod expectation;
mod limits;
mod machine;
mod seats;
mod snapshot;
mod table;
#[cfg(test)]
mod tests;
mod turns;

pub use limits::{ClientLimits, Limits, ModelLimits};
pub use machine::Admission;
pub use snapshot::{HeldNow, ModelNow, RunningNow, Snapshot, WaitingNow};

use crate::time::Awake;
use std::sync::Arc;
use std::time::Duration;

/// One request, for its whole life. The gateway counts them up and never uses a number again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TicketId(pub u64);

/// One admission of one request. A request that was put back gets another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Permit(pub u64);

/// A class of priority. Those above go first, and a lane that was passed over for [`Limits::ageing`] gets the next place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Lane {
    /// A person waits for each answer.
    Interactive,
    /// A program that works for a person.
    #[default]
    Agent,
    /// Work for the night.
    Batch,
}

impl Lane {
    /// All, the first one first.
    pub const ALL: [Self; 3] = [Self::Interactive, Self::Agent, Self::Batch];

    /// The word used for it in headers, settings and JSON.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Interactive => "interactive",
            Self::Agent => "agent",
            Self::Batch => "batch",
        }
    }

    /// The lane that is called so.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|lane| lane.word() == word)
    }
}

/// A request that asks to be let through.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ticket {
    /// Its number. A number that is known already changes nothing.
    pub id: TicketId,
    /// The model, as the server names it (aliases resolved, tag added).
    pub model: Arc<str>,
    /// Who asks, as the gateway's rules of identity name them.
    pub client: Arc<str>,
    /// Its class.
    pub lane: Lane,
    /// How long its client waits for its turn; `None` waits for ever.
    pub patience: Option<Duration>,
}

/// How a request that held a permit ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// With an answer. Its time is learnt from.
    Served {
        /// What of it was spent on loading the model, where the answer said so (`load_duration` of Ollama's own API).
        load: Option<Duration>,
    },
    /// With an error, of the server or of the connection to it. Its time is charged, but not learnt from.
    Failed,
}

/// Why requests are held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Why {
    /// A person has paused the queue.
    Paused,
    /// The server is being restarted.
    Restart,
    /// The server is being upgraded or rolled back.
    Upgrade,
    /// A runner is being recovered.
    Recovery,
    /// The gateway found nobody at the server's address.
    Unreachable,
}

impl Why {
    /// The word used for it in reports and JSON.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Paused => "paused",
            Self::Restart => "restart",
            Self::Upgrade => "upgrade",
            Self::Recovery => "recovery",
            Self::Unreachable => "unreachable",
        }
    }
}

/// What a hold is for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scope {
    /// All requests.
    All,
    /// Requests for this model.
    Model(Arc<str>),
}

/// What happens to the queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A request has come. Answered in the same step with [`Effect::Admit`], [`Effect::Wait`] or [`Effect::Refuse`].
    Arrived(Ticket),
    /// The response to an admitted request has ended, to its last byte, or has failed.
    Ended {
        /// Of [`Effect::Admit`]; one that is not held any more changes nothing.
        permit: Permit,
        /// How.
        end: End,
    },
    /// The client has gone, half-closed its connection, or stopped reading; it may have waited or been running.
    Left(TicketId),
    /// An admitted request could not be sent (not a byte of it): it waits again, in its old place.
    PutBack(Permit),
    /// A person drops a waiting request; answered with [`Effect::Refuse`]. One that runs is not touched.
    Drop(TicketId),
    /// A person puts a waiting request into another lane, where its age counts.
    Move {
        /// Which.
        ticket: TicketId,
        /// Where to.
        lane: Lane,
    },
    /// Nothing (or nothing of one model) is admitted from now on. The same reason and scope again changes the end.
    Hold {
        /// The reason, by which it is released.
        why: Why,
        /// Whom.
        scope: Scope,
        /// When it ends by itself; `None` for a person's pause.
        until: Option<Awake>,
    },
    /// A hold ends.
    Release {
        /// Its reason.
        why: Why,
        /// Its scope.
        scope: Scope,
    },
    /// How many slots the model's runner really has (`-np`, 1 for families that are forced to it); `None` when it is
    /// not known (any more).
    Slots {
        /// The model.
        model: Arc<str>,
        /// Its slots.
        slots: Option<u32>,
    },
    /// Which models the server holds in memory.
    Loaded {
        /// All of them.
        models: Vec<Arc<str>>,
        /// When the question was asked: what was admitted later is not contradicted by the answer.
        asked: Awake,
    },
    /// How many slots of a model are busy with requests that did not come through here.
    Around {
        /// The model.
        model: Arc<str>,
        /// Busy slots less the permits that were held at that moment.
        busy: u32,
    },
    /// A model's costs, as measured before this start or by somebody else (the log); they count as one measurement.
    Learnt {
        /// The model.
        model: Arc<str>,
        /// What is known of it.
        costs: Costs,
    },
    /// New limits. Nobody who waits or runs is dropped for them.
    Reloaded(Box<Limits>),
    /// The moment of [`Admission::deadline`] may have come.
    Tick,
}

/// What the gateway shall do.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Send it. The permit is to be given back.
    Admit {
        /// Which.
        ticket: TicketId,
        /// To be given back with [`Event::Ended`] or [`Event::PutBack`].
        permit: Permit,
        /// How long it has waited.
        waited: Duration,
        /// What it finds.
        start: Start,
    },
    /// It waits.
    Wait {
        /// Which.
        ticket: TicketId,
        /// Its place among those who wait for the model in its lane and above, from 1.
        position: usize,
        /// When it can expect its turn, where service times have been measured.
        expected: Option<Duration>,
    },
    /// It will not be sent. Told for one that has just come, and for one that has waited.
    Refuse {
        /// Which.
        ticket: TicketId,
        /// Why.
        refusal: Refusal,
    },
    /// It waits in the lane that was asked for.
    Moved {
        /// Which.
        ticket: TicketId,
    },
    /// A hold of all requests has begun.
    Held(Why),
    /// A hold of all requests has ended.
    Released {
        /// Its reason.
        why: Why,
        /// Its time had run out; nobody released it.
        expired: bool,
    },
}

/// What an admitted request finds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Start {
    /// Its model is in memory, or being loaded for another request.
    Warm,
    /// Its model has to be loaded; there is room.
    Load,
    /// Its model has to be loaded in the place of another one.
    Switch {
        /// The one that is expected to go. Ollama chooses among those that are idle.
        from: Arc<str>,
    },
}

/// Why a request is not sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// So many wait for the model already.
    ModelFull {
        /// [`ModelLimits::waiting`].
        at_most: usize,
    },
    /// So many wait in all.
    Full {
        /// [`Limits::waiting`].
        at_most: usize,
    },
    /// So many of this client wait already.
    ClientFull {
        /// [`ClientLimits::waiting`].
        at_most: usize,
    },
    /// Its client would have given up before its turn.
    TooLate {
        /// When its turn could have been expected.
        expected: Duration,
    },
    /// It has waited as long as its client wanted to.
    WaitedOut {
        /// So long.
        waited: Duration,
    },
    /// A person has dropped it.
    Dropped,
}

impl Refusal {
    /// The word used for it in metrics and JSON.
    pub const fn word(&self) -> &'static str {
        match self {
            Self::ModelFull { .. } => "model-full",
            Self::Full { .. } => "full",
            Self::ClientFull { .. } => "client-full",
            Self::TooLate { .. } => "too-late",
            Self::WaitedOut { .. } => "waited-out",
            Self::Dropped => "dropped",
        }
    }
}

/// What a model costs, as measured; `None` where nothing was.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Costs {
    /// Time from permit to end of one request, without loading: a moving mean.
    pub service: Option<Duration>,
    /// Time to load the model: a moving mean.
    pub load: Option<Duration>,
}
