//! What the notes of the world say about this very runner: how it fails, how
//! slow it is, what its next request needs.

use std::sync::Mutex;
use std::time::{Duration, Instant, SystemTime};

use crate::faults::Fault;
use crate::releases::flaw::Flaw;
use crate::world::{World, notes};

/// How long a look at the notes is trusted, in real time.
const TRUST: Duration = Duration::from_millis(8);
/// Coarsest grain of a file system's times.
const GRAIN: Duration = Duration::from_millis(50);
/// How much slower a machine that pages makes everything.
pub const PAGING: f64 = 10.0;
/// How much slower the runners of a corrupt server are.
const CORRUPT: f64 = 10.0;

/// The ways in which the decode loop can be told to fail from inside. Stopping
/// and killing are done by signals from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failing {
    /// It stands still; HTTP goes on.
    Stuck,
    /// It burns CPU without progress; HTTP goes on.
    BusyLoop,
    /// Every answer is an empty success.
    EmptyReplies,
}

/// The condition of a runner at one moment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Condition {
    /// How the decode loop fails.
    pub failing: Option<Failing>,
    /// Whether the process breaks at its second request.
    pub corrupt: bool,
    /// Factor on all times.
    pub slowness: f64,
    /// Factor on the times of prompts beside [`Self::slowness`].
    pub prefill: f64,
    /// World seconds that the first batch takes longer: weights are paged in.
    pub paging_in_seconds: f64,
    /// World seconds per image, where that is said.
    pub image_seconds: Option<f64>,
    /// Whether the HTTP side is to die, and when.
    pub http_dies: Option<HttpDies>,
}

/// When the HTTP side dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HttpDies {
    /// At once.
    Now,
    /// As soon as a request is in the runner, so that it hangs.
    WithARequest,
}

/// Looks at the notes when they have changed.
#[derive(Debug)]
pub struct Watch {
    last: Mutex<Option<Look>>,
    server: u32,
    /// The release that it belongs to does not work.
    generates_nothing: bool,
}

#[derive(Clone, Copy, Debug)]
struct Look {
    at: Instant,
    notes_changed: SystemTime,
    condition: Condition,
}

impl Watch {
    /// For the process that asks, of a release with that flaw. Its parent is the server that it belongs to.
    pub fn new(flaw: Option<Flaw>) -> Self {
        let server = rustix::process::getppid().map_or(0, |pid| pid.as_raw_nonzero().get().unsigned_abs());
        Self { last: Mutex::new(None), server, generates_nothing: flaw == Some(Flaw::GeneratesNothing) }
    }

    /// The condition, a few milliseconds old at most. Little is done where
    /// nothing has changed: a runner that stands still uses no CPU.
    pub fn now(&self, world: &World) -> Condition {
        let mut last = self.last.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some(look) = *last
            && look.at.elapsed() < TRUST
        {
            return look.condition;
        }
        let changed = notes::last_change(world);
        let condition = match *last {
            Some(look) if look.notes_changed == changed && is_settled(changed) => look.condition,
            Some(_) | None => self.look(world),
        };
        *last = Some(Look { at: Instant::now(), notes_changed: changed, condition });
        condition
    }

    fn look(&self, world: &World) -> Condition {
        let own = std::process::id();
        let mine = |fault: Fault| notes::raised_for(world, fault, own);
        // A runner that takes the place of this one is sound.
        let failing = [
            (Fault::RunnerStuck, Failing::Stuck),
            (Fault::StoppingForEver, Failing::Stuck),
            (Fault::RunnerBusyLoop, Failing::BusyLoop),
            (Fault::RunnerEmptyReplies, Failing::EmptyReplies),
        ]
        .into_iter()
        .find(|(fault, _)| mine(*fault).is_some())
        .map(|(_, failing)| failing)
        .or_else(|| self.generates_nothing.then_some(Failing::EmptyReplies));
        let corrupt = notes::raised_for(world, Fault::ServeCorrupt, self.server).is_some();
        let first_prompt = mine(Fault::WorkFirstPromptSwapping);
        let paging = first_prompt.is_some() || notes::is_raised(world, Fault::SlowSwapping);
        let number = |fault: Fault, key: &str| mine(fault).and_then(|value| value[key].as_f64());
        Condition {
            failing,
            corrupt,
            slowness: if paging { PAGING } else { 1.0 } * if corrupt { CORRUPT } else { 1.0 },
            prefill: number(Fault::WorkLongPrefill, "factor").unwrap_or(1.0),
            paging_in_seconds: first_prompt.and_then(|value| value["seconds"].as_f64()).unwrap_or(0.0),
            image_seconds: number(Fault::WorkImage, "seconds"),
            http_dies: mine(Fault::RunnerHttpDead).map(|value| match value["with_request"] == true {
                true => HttpDies::WithARequest,
                false => HttpDies::Now,
            }),
        }
    }
}

/// Whether a change lies so far back that a later one would have another time.
fn is_settled(changed: SystemTime) -> bool {
    changed.elapsed().is_ok_and(|ago| ago > GRAIN)
}
