//! Loads, evictions, and models that get one slot.
//!
//! The server loads one model at a time, so that a line without a model's name belongs to the load under way. It says
//! twice that a runner has started; the second one is passed over because no load is under way any more.

use crate::log::RunnerFailure;
use stablehand_engine::Known;
use stablehand_engine::time::Wall;
use std::collections::VecDeque;
use std::time::Duration;

/// One load.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Load {
    /// The model: its blob path, or its name under MLX.
    pub model: String,
    /// When it began.
    pub began: Wall,
    /// The port of its runner, once that was started.
    pub port: Option<u16>,
    /// How often it was tried again with less context or fewer neighbours.
    pub retries: u32,
    /// What it came to.
    pub state: LoadState,
}

/// What a load came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LoadState {
    /// It is under way, or the log does not tell its end.
    Running,
    /// The runner was ready after so long.
    Ready {
        /// How long it took.
        took: Duration,
    },
    /// It failed.
    Failed {
        /// The server's words.
        error: String,
        /// Whether they speak of exhausted memory.
        out_of_memory: bool,
    },
    /// The client left and the server gave it up.
    GivenUp,
    /// The log tells no end of it, and another load began, or its runner is gone.
    EndUnknown,
}

/// Loaded models made room for another one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Eviction {
    /// When.
    pub at: Wall,
    /// The server's words.
    pub why: String,
    /// The model that needed the room, or ran out of memory; unknown until its load begins.
    pub made_room_for: Known<String>,
    /// The models that went. The log names them with `OLLAMA_DEBUG=1` only; without it they are those whose runners
    /// were gone before the load was done.
    pub evicted: Known<Vec<String>>,
}

/// A model that got one slot although the setting asks for more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OneSlot {
    /// Its architecture.
    pub architecture: String,
    /// The model, once its load began.
    pub model: Known<String>,
    /// The last time.
    pub at: Wall,
    /// How often.
    pub count: u64,
}

/// The log does not tell the end of every load. One is over when its runner, which was started, has not lived for so
/// long; without a runner, and with one that lives, after what no honest load takes.
const GONE_LONGEST: Duration = Duration::from_secs(30);
const WITHOUT_RUNNER_LONGEST: Duration = Duration::from_secs(600);
const WITH_RUNNER_LONGEST: Duration = Duration::from_secs(3600);

const MOST_KEPT: usize = 16;
const MOST_WAIT: Duration = Duration::from_secs(900);

#[derive(Clone, Debug, Default)]
pub(super) struct Loads {
    loads: VecDeque<Load>,
    /// When the runner of the load under way was started, or last seen alive.
    lived_at: Option<Wall>,
    evictions: VecDeque<Eviction>,
    /// Whether the newest eviction still waits for the load that it makes room for.
    making_room: bool,
    one_slot: VecDeque<OneSlot>,
}

impl Loads {
    pub fn loads(&self) -> Vec<Load> {
        self.loads.iter().cloned().collect()
    }

    pub fn evictions(&self) -> Vec<Eviction> {
        self.evictions.iter().cloned().collect()
    }

    pub fn one_slot(&self) -> Vec<OneSlot> {
        self.one_slot.iter().cloned().collect()
    }

    /// The load under way.
    pub fn running(&self) -> Option<&Load> {
        self.loads.back().filter(|load| load.state == LoadState::Running)
    }

    pub fn begun(&mut self, at: Wall, model: &str) {
        if self.running().is_some_and(|load| load.model == model) {
            return;
        }
        if let Some(load) = self.running_mut() {
            load.state = LoadState::EndUnknown;
        }
        if let Some(eviction) = self.open_eviction(at)
            && eviction.made_room_for.known().is_none()
        {
            eviction.made_room_for = Known::Is(model.to_owned());
        }
        if let Some(seen) = self.one_slot.iter_mut().find(|seen| seen.at <= at && seen.model.known().is_none()) {
            seen.model = Known::Is(model.to_owned());
        }
        let load = Load { model: model.to_owned(), began: at, port: None, retries: 0, state: LoadState::Running };
        push(&mut self.loads, load);
    }

    pub fn runner_starts(&mut self, at: Wall, model: &Known<String>, port: Option<u16>) {
        match model {
            Known::Is(model) => self.begun(at, model),
            Known::Unknown(_) if self.running().is_none() => self.begun(at, "a model that the log does not name"),
            Known::Unknown(_) => {}
        }
        if let Some(load) = self.running_mut() {
            load.port = port;
            self.lived_at = Some(at);
        }
    }

    pub fn ready(&mut self, at: Wall, took: Option<Duration>) {
        if let Some(load) = self.running_mut() {
            load.state = LoadState::Ready { took: took.unwrap_or(at - load.began) };
            self.making_room = false;
        }
    }

    pub fn failed(&mut self, failure: &RunnerFailure) {
        let state = LoadState::Failed { error: failure.error.clone(), out_of_memory: failure.out_of_memory };
        match self.running_mut() {
            Some(load) => load.state = state,
            // The server logs some failures twice, and some before a load began.
            None => {
                let again = self.loads.back().is_some_and(|load| {
                    matches!(load.state, LoadState::Failed { .. })
                        && failure.model.as_ref().is_none_or(|model| *model == load.model)
                });
                if let Some(model) = failure.model.clone().filter(|_| !again) {
                    push(&mut self.loads, Load { model, began: failure.at, port: None, retries: 0, state });
                }
            }
        }
        self.making_room = false;
    }

    pub fn retried(&mut self) {
        if let Some(load) = self.running_mut() {
            load.retries += 1;
        }
    }

    pub fn given_up(&mut self) {
        if let Some(load) = self.running_mut() {
            load.state = LoadState::GivenUp;
        }
        self.making_room = false;
    }

    /// The server began anew: nothing is under way.
    pub fn server_began(&mut self) {
        if let Some(load) = self.running_mut() {
            load.state = LoadState::EndUnknown;
        }
        self.making_room = false;
    }

    pub fn evicting(&mut self, at: Wall, why: &str, model: Option<&String>) {
        // The scheduler says it again for each model that must go.
        if model.is_none() && self.open_eviction(at).is_some() {
            return;
        }
        let needs = model.or(self.running().map(|load| &load.model));
        let made_room_for = match needs {
            Some(model) => Known::Is(model.clone()),
            None => Known::unknown("its load has not begun"),
        };
        self.making_room = true;
        let evicted = Known::unknown("the log names them with OLLAMA_DEBUG=1 only");
        push(&mut self.evictions, Eviction { at, why: why.to_owned(), made_room_for, evicted });
    }

    /// Takes in the ports of the runners that live.
    pub fn living(&mut self, now: Wall, lives: impl Fn(u16) -> bool) {
        let Some((began, port)) = self.running().map(|load| (load.began, load.port)) else { return };
        let over = match port {
            Some(port) if lives(port) => {
                self.lived_at = Some(now);
                now - began > WITH_RUNNER_LONGEST
            }
            Some(_) => now - self.lived_at.unwrap_or(began) > GONE_LONGEST,
            None => now - began > WITHOUT_RUNNER_LONGEST,
        };
        if let Some(load) = self.running_mut().filter(|_| over) {
            load.state = LoadState::EndUnknown;
        }
    }

    /// A model must go, by its name.
    pub fn making_room(&mut self, at: Wall, model: &str) {
        self.evicting(at, "a loaded model makes room for another one", None);
        self.gone(at, model);
    }

    /// A runner is gone; while room is being made, that is why.
    pub fn gone(&mut self, at: Wall, model: &str) {
        let Some(eviction) = self.open_eviction(at) else { return };
        match &mut eviction.evicted {
            Known::Is(models) if models.len() >= MOST_KEPT || models.iter().any(|gone| gone == model) => {}
            Known::Is(models) => models.push(model.to_owned()),
            unknown @ Known::Unknown(_) => *unknown = Known::Is(vec![model.to_owned()]),
        }
    }

    pub fn forced_to_one(&mut self, at: Wall, architecture: &str) {
        match self.one_slot.iter_mut().find(|seen| seen.architecture == architecture) {
            Some(seen) => (seen.at, seen.count) = (at, seen.count + 1),
            None => {
                let model = Known::unknown("its load has not begun");
                push(&mut self.one_slot, OneSlot { architecture: architecture.to_owned(), model, at, count: 1 });
            }
        }
    }

    /// The eviction that still waits for its load. Nobody waits for ever: the client may have left.
    fn open_eviction(&mut self, at: Wall) -> Option<&mut Eviction> {
        let making_room = self.making_room;
        self.evictions.back_mut().filter(|eviction| {
            making_room && u128::from(at.unix_ms.abs_diff(eviction.at.unix_ms)) < MOST_WAIT.as_millis()
        })
    }

    fn running_mut(&mut self) -> Option<&mut Load> {
        self.loads.back_mut().filter(|load| load.state == LoadState::Running)
    }
}

fn push<T>(kept: &mut VecDeque<T>, new: T) {
    if kept.len() == MOST_KEPT {
        kept.pop_front();
    }
    kept.push_back(new);
}
