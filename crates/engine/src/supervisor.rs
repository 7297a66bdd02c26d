//! When to restart, when to wait, when to give up.
//!
//! [`Supervisor::step`] takes an event and `now` and returns effects; [`Supervisor::deadline`] names the next moment
//! it wants to be called without an event. It performs nothing. Every effect that is answered carries a [`Life`];
//! an answer with another life comes from a former operation and is dropped, so that nothing is ever done on behalf
//! of a server that is gone.
//!
//! ```text
//!            looked                       wished, looked, planned
//!   Blind ───────────► Down ◄──────────┐        ┌────────────► Working ──► (proved) Up
//!                      │  ▲            │        │               │    │
//!          process seen│  │gone        │gone    │ wished        │    └─► failed: what the next look shows
//!                      ▼  │            │        │               ▼
//!                    ComingUp ──────► Up ──► Planning         GaveUp ──► (a person's wish) Planning
//!                      │    answers   │ ▲                       ▲
//!                      │90 s  no answer▼ │answers               │ crash loop, start never answers
//!                      └────────────► Silent                    │
//!   Blocked: the port is held by a stranger or another user     ┘
//!   Upgrading: an upgrade has stopped the server; left by its wish to start it, or when it hands it back
//! ```

mod run;
#[cfg(test)]
mod tests;

use crate::alert::{Alert, AlertKind};
use crate::owner::{AgentKind, Foreigner, Owner, Ownership};
use crate::plan::{Goal, Phase, Plan, Refusal, Seat, Step, StepFailure};
use crate::process::Identity;
use crate::setting::{Layer, Report, Standing, Values};
use crate::time::{Awake, Now, Wall};
use crate::{Known, plan::plan};
pub use run::Run;
use std::collections::VecDeque;
use std::time::Duration;

/// One operation or one life of a server. Answers that carry an older one are dropped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Life(pub u64);

/// A wish's number, by which its progress and outcome find whoever asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WishId(pub u64);

/// Who wants something done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A person, through the CLI or the menu.
    Person,
    /// The server had started before its values were published in this login.
    LoginRace,
    /// A server that we keep running ourselves has died.
    Crash,
    /// A restart was cut off by the end of the daemon before this one.
    CutOff,
    /// The gateway takes or leaves the server's place.
    Gateway,
    /// An upgrade or a rollback, see [`crate::upgrade`].
    Upgrade,
}

/// Something to be done to the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wish {
    /// Its number.
    pub id: WishId,
    /// Who wants it.
    pub origin: Origin,
    /// What for.
    pub goal: Goal,
    /// A server started by hand may be stopped for it.
    pub take_over: bool,
}

/// What `/api/version` said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The server's version.
    Version(String),
    /// The port is open and nothing came within the deadline.
    Silent,
    /// Nobody listens.
    Refused,
    /// Something answered that is not Ollama; the phrase says what.
    NotOllama(String),
}

/// Everything the daemon saw in one look.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Look {
    /// The port looked at: where the server listens, or shall.
    pub port: u16,
    /// Where it shall listen after a start.
    pub seat: Seat,
    /// Who owns the server.
    pub ownership: Ownership,
    /// Whether nobody listens on the port.
    pub port_free: Known<bool>,
    /// When the server process started.
    pub server_started: Option<Wall>,
    /// What it says.
    pub answer: Answer,
    /// Its settings through all layers.
    pub reports: Vec<Report>,
    /// We have written down that this server is ours to keep running.
    pub kept_by_us: bool,
    /// When our values were published in this login; `None` inside when they were not.
    pub published_at: Known<Option<Wall>>,
}

/// What happens to the supervisor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The answer to [`Effect::Look`].
    Looked {
        /// Of the effect.
        life: Life,
        /// What was seen.
        look: Box<Look>,
    },
    /// Somebody wants something done.
    Wished(Wish),
    /// The answer to [`Effect::Perform`]: done.
    StepDone {
        /// Of the effect.
        life: Life,
        /// Of the effect.
        index: usize,
        /// A short note for the progress display, may be empty.
        note: String,
    },
    /// The answer to [`Effect::Perform`]: not done.
    StepFailed {
        /// Of the effect.
        life: Life,
        /// Of the effect.
        index: usize,
        /// Why.
        failure: StepFailure,
    },
    /// The named deadline may have passed.
    Tick,
    /// The machine was asleep.
    Woke,
    /// Something that a look shows was changed by us (the configuration): look at once.
    Changed,
    /// An upgrade has the server's life in its hands: nothing is done to it but what that wishes.
    HandedOver,
    /// It has not any more.
    HandedBack,
}

/// How a wish ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Every desired setting is proven.
    Proven,
    /// The server runs, but these settings differ (names of settings).
    Drift(Vec<String>),
    /// The server runs, but something could not be read.
    Unknown(String),
    /// No plan was made; nothing was changed.
    Refused(Refusal),
    /// A step failed.
    Failed {
        /// The step.
        step: Step,
        /// Why.
        failure: StepFailure,
        /// Whether a server is left running, as far as is known.
        serving: bool,
    },
    /// A newer wish took its place before it began; nothing was changed.
    Superseded,
    /// The server is stopped, and stays so until the upgrade starts it.
    Stopped,
}

/// Progress of a wish, for whoever asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Progress {
    /// The plan was made.
    Planned(Plan),
    /// A step begins.
    Began {
        /// Position in the plan, from 0.
        index: usize,
        /// How many steps there are.
        of: usize,
        /// The step.
        step: Step,
        /// 1 for the first attempt.
        attempt: u32,
    },
    /// A step is done.
    Done {
        /// Position in the plan, from 0.
        index: usize,
        /// A short note, may be empty.
        note: String,
    },
    /// A step will be tried again.
    Retrying {
        /// Position in the plan, from 0.
        index: usize,
        /// Why.
        failure: StepFailure,
    },
    /// The whole plan is run a second time, with the reason.
    Again(String),
}

/// What the daemon shall do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Look at everything and answer with [`Event::Looked`].
    Look {
        /// To be put on the answer.
        life: Life,
    },
    /// Carry out one step and answer with [`Event::StepDone`] or [`Event::StepFailed`].
    Perform {
        /// To be put on the answer.
        life: Life,
        /// To be put on the answer.
        index: usize,
        /// What to do.
        step: Step,
    },
    /// Stop carrying out whatever belongs to this life; its answer would be dropped.
    Abandon {
        /// Of the effect that is no longer wanted.
        life: Life,
    },
    /// Hold new requests: no server is ready for them.
    Hold,
    /// Let requests through.
    Release,
    /// Tell whoever asked.
    Report {
        /// Whose progress.
        wish: WishId,
        /// What happened.
        progress: Progress,
    },
    /// The wish has ended.
    Finish {
        /// Which.
        wish: WishId,
        /// How.
        outcome: Outcome,
    },
    /// Tell a person.
    Alert(Alert),
}

/// Why the supervisor does nothing more by itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Surrender {
    /// Servers died one after the other.
    CrashLoop {
        /// How many within [`CRASH_WINDOW`].
        deaths: usize,
    },
    /// A server was started and never answered.
    NeverAnswered,
}

/// The supervisor's view of the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// Nothing was seen yet.
    Blind {
        /// Since when.
        since: Awake,
    },
    /// No server runs.
    Down {
        /// Since when.
        since: Awake,
    },
    /// A server process is there and has not answered yet.
    ComingUp {
        /// The process.
        server: Identity,
        /// Since when.
        since: Awake,
    },
    /// The server answers.
    Up {
        /// The process, when it can be seen.
        server: Option<Identity>,
        /// Since when.
        since: Awake,
    },
    /// The server does not answer any more, or never has within its time.
    Silent {
        /// The process.
        server: Identity,
        /// Since when.
        since: Awake,
    },
    /// The port is held by somebody else.
    Blocked {
        /// By whom.
        by: Foreigner,
        /// Since when.
        since: Awake,
    },
    /// A wish waits for the fresh look that its plan is made from.
    Planning {
        /// The wish.
        wish: Box<Wish>,
        /// 1, or 2 when its plan was carried out once and has to be made anew.
        round: u32,
        /// Since when.
        since: Awake,
    },
    /// A plan is being carried out.
    Working(Box<Run>),
    /// An upgrade has stopped the server, or found it stopped when it was taken up again.
    Upgrading {
        /// Since when.
        since: Awake,
    },
    /// Nothing more is done until a person asks.
    GaveUp {
        /// Why.
        why: Surrender,
        /// Since when.
        since: Awake,
    },
}

impl State {
    /// The word used for it in reports and JSON.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Blind { .. } => "looking",
            Self::Down { .. } => "down",
            Self::ComingUp { .. } => "coming-up",
            Self::Up { .. } => "up",
            Self::Silent { .. } => "silent",
            Self::Blocked { .. } => "blocked",
            Self::Planning { .. } => "planning",
            Self::Working(run) => match run.phase() {
                Phase::Preparing => "preparing",
                Phase::Stopping => "stopping",
                Phase::Starting => "starting",
                Phase::Proving => "proving",
            },
            Self::Upgrading { .. } => "upgrading",
            Self::GaveUp { .. } => "gave-up",
        }
    }

    /// Whether the server's life is being changed, so that it must not be left as it is now.
    pub fn is_busy(&self) -> bool {
        match self {
            Self::Planning { .. } | Self::Working(_) | Self::Upgrading { .. } => true,
            Self::Blind { .. }
            | Self::Down { .. }
            | Self::ComingUp { .. }
            | Self::Up { .. }
            | Self::Silent { .. }
            | Self::Blocked { .. }
            | Self::GaveUp { .. } => false,
        }
    }

    /// Since when it has been so.
    pub fn since(&self) -> Awake {
        match self {
            Self::Blind { since }
            | Self::Down { since }
            | Self::ComingUp { since, .. }
            | Self::Up { since, .. }
            | Self::Silent { since, .. }
            | Self::Blocked { since, .. }
            | Self::Planning { since, .. }
            | Self::Upgrading { since }
            | Self::GaveUp { since, .. } => *since,
            Self::Working(run) => run.began(),
        }
    }
}

/// How often a server may die within [`CRASH_WINDOW`] before it is given up on.
pub const CRASHES_ALLOWED: usize = 5;
/// The span within which deaths are counted.
pub const CRASH_WINDOW: Duration = Duration::from_secs(600);
/// How long a server may take until its first answer.
pub const FIRST_ANSWER: Duration = Duration::from_secs(90);

const LOOK_RESTING: Duration = Duration::from_secs(10);
const LOOK_CHANGING: Duration = Duration::from_secs(1);
const LOOK_MUST_RETURN: Duration = Duration::from_secs(30);

/// The machine. One task owns it.
#[derive(Debug)]
pub struct Supervisor {
    state: State,
    life: Life,
    /// The look that is under way, and since when.
    looking: Option<(Life, Awake)>,
    next_look: Awake,
    serving: bool,
    queued: VecDeque<Wish>,
    deaths: VecDeque<Awake>,
    last_server: Option<Identity>,
    /// The persisted values as the last look reported them.
    lasting: Values,
    /// A server that we keep running ourselves died; it is started again at this moment.
    revive_at: Option<Awake>,
    /// The publication for which the one restart of this login was already spent.
    login_restart_spent: Option<Wall>,
    next_own_wish: u64,
    /// Added to every deadline.
    slack: Duration,
}

impl Supervisor {
    /// A supervisor that has seen nothing yet, and the effects that make it look.
    ///
    /// `slack` is added to every deadline. It is for a simulated machine, whose time can run faster than its
    /// processes do; on a real one it is zero.
    pub fn new(now: Now, slack: Duration) -> (Self, Vec<Effect>) {
        let mut supervisor = Self {
            state: State::Blind { since: now.awake },
            life: Life(0),
            looking: None,
            next_look: now.awake,
            serving: false,
            queued: VecDeque::new(),
            deaths: VecDeque::new(),
            last_server: None,
            lasting: Values::new(),
            revive_at: None,
            login_restart_spent: None,
            next_own_wish: OWN_WISHES,
            slack,
        };
        let mut effects = vec![Effect::Hold];
        supervisor.look(now, &mut effects);
        (supervisor, effects)
    }

    /// What the supervisor believes.
    pub fn state(&self) -> &State {
        &self.state
    }

    /// Whether the server takes requests; they are held exactly while this is false.
    pub fn serving(&self) -> bool {
        self.serving
    }

    /// How many deaths are counted at present.
    pub fn deaths(&self) -> usize {
        self.deaths.len()
    }

    /// The next moment at which [`Event::Tick`] is wanted, and what for. There always is one.
    pub fn deadline(&self) -> Option<(Awake, &'static str)> {
        let look = match self.looking {
            Some((_, since)) => (since + LOOK_MUST_RETURN + self.slack, "look must return"),
            None => (self.next_look, "look again"),
        };
        let own = match &self.state {
            State::ComingUp { since, .. } => {
                Some((*since + FIRST_ANSWER + self.slack, "first answer of a starting server"))
            }
            State::Working(run) => Some(run.deadline()),
            State::Down { .. } => self.revive_at.map(|at| (at, "start a server that died again")),
            State::Blind { .. }
            | State::Up { .. }
            | State::Silent { .. }
            | State::Blocked { .. }
            | State::Planning { .. }
            | State::Upgrading { .. }
            | State::GaveUp { .. } => None,
        };
        Some(own.into_iter().fold(look, |earliest, other| if other.0 < earliest.0 { other } else { earliest }))
    }

    /// Takes one event. Effects are to be carried out in order.
    pub fn step(&mut self, now: Now, event: Event) -> Vec<Effect> {
        let mut effects = Vec::new();
        let served = self.serving;
        match event {
            Event::Looked { life, look } => {
                if self.looking.is_some_and(|(current, _)| current == life) {
                    self.looking = None;
                    self.looked(now, *look, &mut effects);
                }
            }
            Event::Wished(wish) => self.wished(now, wish, &mut effects),
            Event::StepDone { life, index, note } => self.step_done(now, life, index, note, &mut effects),
            Event::StepFailed { life, index, failure } => self.step_failed(now, life, index, failure, &mut effects),
            Event::Tick => self.tick(now, &mut effects),
            Event::Woke => self.woke(now, &mut effects),
            Event::Changed => self.look(now, &mut effects),
            Event::HandedOver => match &self.state {
                // It ends in its own words; an upgrade then wishes what it needs.
                State::Planning { .. } | State::Working(_) => {}
                State::Blind { .. }
                | State::Down { .. }
                | State::ComingUp { .. }
                | State::Up { .. }
                | State::Silent { .. }
                | State::Blocked { .. }
                | State::Upgrading { .. }
                | State::GaveUp { .. } => self.handed_over(now),
            },
            Event::HandedBack => self.handed_back(now, &mut effects),
        }
        self.forget_old_deaths(now);
        if served != self.serving {
            effects.insert(0, if self.serving { Effect::Release } else { Effect::Hold });
        }
        effects
    }

    fn looked(&mut self, now: Now, look: Look, effects: &mut Vec<Effect>) {
        // A restart of our own brings back what holds already, never what is desired and not applied yet.
        self.lasting = look
            .reports
            .iter()
            .filter_map(|report| Some((report.name.clone(), report.persisted.known()?.clone()?)))
            .collect();
        match std::mem::replace(&mut self.state, State::Blind { since: now.awake }) {
            State::Planning { wish, round, .. } => self.begin(now, *wish, round, look, effects),
            State::Working(run) => self.advance_by_look(now, *run, look, effects),
            state @ (State::Blind { .. }
            | State::Down { .. }
            | State::ComingUp { .. }
            | State::Up { .. }
            | State::Silent { .. }
            | State::Blocked { .. }
            | State::GaveUp { .. }) => {
                self.state = state;
                self.observe(now, &look, effects);
            }
            // What is seen meanwhile is the upgrade's business, and no death.
            state @ State::Upgrading { .. } => {
                self.state = state;
                self.serving = answers(&look);
            }
        }
        self.next_look = now.awake + self.look_interval();
    }

    /// Follows what a look shows while nothing is being done.
    fn observe(&mut self, now: Now, look: &Look, effects: &mut Vec<Effect>) {
        let server = look.ownership.server();
        let answers = answers(look);
        self.count_death(now, server);
        self.serving = answers;
        if let State::GaveUp { .. } = self.state {
            return;
        }
        if self.deaths.len() >= CRASHES_ALLOWED && !answers {
            self.surrender(now, Surrender::CrashLoop { deaths: self.deaths.len() }, effects);
            return;
        }
        let next = match (&look.ownership, server, answers) {
            (Ownership::Foreign(by), _, _) => State::Blocked { by: by.clone(), since: now.awake },
            (_, server, true) => State::Up { server, since: now.awake },
            (_, None, false) => State::Down { since: now.awake },
            (_, Some(server), false) => self.without_answer(now, server),
        };
        self.enter(next, effects);
        self.revive_when_ours(now, look);
        if let State::Up { .. } = self.state {
            self.mend_lost_login_race(now, look, effects);
        }
    }

    fn without_answer(&self, now: Now, server: Identity) -> State {
        match &self.state {
            State::Up { server: Some(known), .. } if *known == server => State::Silent { server, since: now.awake },
            State::Silent { server: known, since } if *known == server => State::Silent { server, since: *since },
            State::ComingUp { server: known, since } if *known == server => State::ComingUp { server, since: *since },
            State::Blind { .. }
            | State::Down { .. }
            | State::ComingUp { .. }
            | State::Up { .. }
            | State::Silent { .. }
            | State::Blocked { .. }
            | State::Planning { .. }
            | State::Working(_)
            | State::Upgrading { .. }
            | State::GaveUp { .. } => State::ComingUp { server, since: now.awake },
        }
    }

    /// Takes a state that a look shows; a state that already was keeps its `since`.
    fn enter(&mut self, next: State, effects: &mut Vec<Effect>) {
        let same = match (&self.state, &next) {
            (State::Down { .. }, State::Down { .. }) => true,
            (State::Up { server: a, .. }, State::Up { server: b, .. }) => a == b,
            (State::ComingUp { server: a, .. }, State::ComingUp { server: b, .. })
            | (State::Silent { server: a, .. }, State::Silent { server: b, .. }) => a == b,
            (State::Blocked { by: a, .. }, State::Blocked { by: b, .. }) => a == b,
            (
                State::Blind { .. }
                | State::Down { .. }
                | State::ComingUp { .. }
                | State::Up { .. }
                | State::Silent { .. }
                | State::Blocked { .. }
                | State::Planning { .. }
                | State::Working(_)
                | State::Upgrading { .. }
                | State::GaveUp { .. },
                _,
            ) => false,
        };
        if same {
            return;
        }
        if let State::Silent { .. } = next {
            effects.push(Effect::Alert(Alert::new(
                AlertKind::ServerSilent,
                "Ollama runs but no longer answers".to_owned(),
                "stablehand restart",
            )));
        }
        self.state = next;
    }

    fn count_death(&mut self, now: Now, server: Option<Identity>) {
        if let Some(last) = self.last_server
            && server != Some(last)
        {
            self.deaths.push_back(now.awake);
        }
        self.last_server = server;
    }

    /// Only a server that nobody else keeps running is started again by us.
    fn revive_when_ours(&mut self, now: Now, look: &Look) {
        let ours = matches!(look.ownership.sole_owner(), Some(Owner::Agent(AgentKind::Process { .. })));
        let down = matches!(self.state, State::Down { .. });
        let known = look.kept_by_us || self.deaths.back().is_some();
        self.revive_at = match (ours && down && known, self.revive_at) {
            (true, Some(at)) => Some(at),
            (true, None) => Some(now.awake + revive_delay(self.deaths.len())),
            (false, _) => None,
        };
    }

    fn mend_lost_login_race(&mut self, now: Now, look: &Look, effects: &mut Vec<Effect>) {
        let (Some(published), Some(started)) = (look.published_at.known().copied().flatten(), look.server_started)
        else {
            return;
        };
        let drifted = look.reports.iter().any(|report| match &report.standing {
            Standing::Drift(layers) => layers.contains(&Layer::Effective) && report.desired.is_some(),
            Standing::NotManaged | Standing::Proven | Standing::SetInApp | Standing::Unknown(_) => false,
        });
        if started < published && drifted && self.login_restart_spent != Some(published) {
            self.login_restart_spent = Some(published);
            effects.push(Effect::Alert(Alert::new(
                AlertKind::LoginRace,
                "Ollama had started before its settings were published in this login; it is restarted once".to_owned(),
                "stablehand status",
            )));
            let wish = self.own_wish(Origin::LoginRace);
            self.wished(now, wish, effects);
        }
    }

    fn own_wish(&mut self, origin: Origin) -> Wish {
        self.next_own_wish += 1;
        let goal = Goal::Restart { desired: self.lasting.clone() };
        Wish { id: WishId(self.next_own_wish), origin, goal, take_over: false }
    }

    fn wished(&mut self, now: Now, wish: Wish, effects: &mut Vec<Effect>) {
        match &self.state {
            State::Working(_) | State::Planning { .. } => match wish.origin {
                Origin::Person | Origin::Gateway | Origin::Upgrade => {
                    for old in self.queued.drain(..) {
                        effects.push(Effect::Finish { wish: old.id, outcome: Outcome::Superseded });
                    }
                    self.queued.push_back(wish);
                }
                Origin::LoginRace | Origin::Crash | Origin::CutOff => {}
            },
            State::Upgrading { .. } if wish.origin != Origin::Upgrade => {
                effects.push(Effect::Finish { wish: wish.id, outcome: Outcome::Refused(Refusal::Upgrading) });
            }
            State::GaveUp { .. } if !matches!(wish.origin, Origin::Person | Origin::Gateway | Origin::Upgrade) => {}
            State::Blind { .. }
            | State::Down { .. }
            | State::ComingUp { .. }
            | State::Up { .. }
            | State::Silent { .. }
            | State::Blocked { .. }
            | State::Upgrading { .. }
            | State::GaveUp { .. } => {
                if matches!(wish.origin, Origin::Person | Origin::Gateway | Origin::Upgrade) {
                    self.deaths.clear();
                }
                self.revive_at = None;
                self.state = State::Planning { wish: Box::new(wish), round: 1, since: now.awake };
                // A look that is already under way may show the time before the wish.
                self.looking = None;
                self.look(now, effects);
            }
        }
    }

    fn begin(&mut self, now: Now, wish: Wish, round: u32, look: Look, effects: &mut Vec<Effect>) {
        match plan(wish.goal.clone(), &look.ownership, look.seat, wish.take_over) {
            Ok(plan) => {
                effects.push(Effect::Report { wish: wish.id, progress: Progress::Planned(plan.clone()) });
                self.life = Life(self.life.0 + 1);
                let run = Run::new(self.life, wish, round, plan, now.awake, self.slack);
                self.begin_step(now, run, effects);
            }
            Err(refusal) => {
                effects.push(Effect::Finish { wish: wish.id, outcome: Outcome::Refused(refusal) });
                match wish.origin {
                    // What it wanted to be done is its business still.
                    Origin::Upgrade => self.handed_over(now),
                    Origin::Person | Origin::LoginRace | Origin::Crash | Origin::CutOff | Origin::Gateway => {
                        self.state = State::Blind { since: now.awake };
                        self.observe(now, &look, effects);
                    }
                }
                self.take_queued(now, effects);
            }
        }
    }

    fn handed_over(&mut self, now: Now) {
        self.revive_at = None;
        self.last_server = None;
        self.state = State::Upgrading { since: now.awake };
    }

    fn handed_back(&mut self, now: Now, effects: &mut Vec<Effect>) {
        if let State::Upgrading { .. } = self.state {
            self.state = State::Blind { since: now.awake };
            self.looking = None;
            self.look(now, effects);
        }
    }

    fn take_queued(&mut self, now: Now, effects: &mut Vec<Effect>) {
        if let Some(wish) = self.queued.pop_front() {
            self.wished(now, wish, effects);
        }
    }

    fn surrender(&mut self, now: Now, why: Surrender, effects: &mut Vec<Effect>) {
        let message = match &why {
            Surrender::CrashLoop { deaths } => {
                format!("Ollama has died {deaths} times within ten minutes; nothing more is done until you ask")
            }
            Surrender::NeverAnswered => {
                "Ollama was started and never answered; nothing more is done until you ask".to_owned()
            }
        };
        effects.push(Effect::Alert(Alert::new(AlertKind::GaveUp, message, "stablehand logs, then stablehand restart")));
        self.revive_at = None;
        self.state = State::GaveUp { why, since: now.awake };
    }

    fn tick(&mut self, now: Now, effects: &mut Vec<Effect>) {
        if let State::ComingUp { server, since } = self.state
            && now.awake >= since + FIRST_ANSWER + self.slack
        {
            self.enter(State::Silent { server, since: now.awake }, effects);
        }
        if self.revive_at.is_some_and(|at| now.awake >= at) && matches!(self.state, State::Down { .. }) {
            self.revive_at = None;
            let wish = self.own_wish(Origin::Crash);
            self.wished(now, wish, effects);
        }
        if let State::Working(run) = &self.state
            && now.awake >= run.deadline().0
        {
            self.run_deadline(now, effects);
        }
        match self.looking {
            Some((_, since)) if now.awake >= since + LOOK_MUST_RETURN + self.slack => {
                self.looking = None;
                self.look(now, effects);
            }
            None if now.awake >= self.next_look => self.look(now, effects),
            Some(_) | None => {}
        }
    }

    /// After a sleep no silence counts that began before it.
    fn woke(&mut self, now: Now, effects: &mut Vec<Effect>) {
        match &mut self.state {
            State::ComingUp { since, .. } | State::Silent { since, .. } => *since = now.awake,
            State::Working(run) => run.forgive(now.awake),
            State::Blind { .. }
            | State::Down { .. }
            | State::Up { .. }
            | State::Blocked { .. }
            | State::Planning { .. }
            | State::Upgrading { .. }
            | State::GaveUp { .. } => {}
        }
        if self.looking.is_none() {
            self.look(now, effects);
        }
    }

    fn look(&mut self, now: Now, effects: &mut Vec<Effect>) {
        if self.looking.is_some() {
            return;
        }
        self.life = Life(self.life.0 + 1);
        self.looking = Some((self.life, now.awake));
        effects.push(Effect::Look { life: self.life });
    }

    fn look_interval(&self) -> Duration {
        match &self.state {
            State::Working(run) => run.look_interval(),
            State::ComingUp { .. } | State::Planning { .. } | State::Blind { .. } => LOOK_CHANGING,
            State::Down { .. }
            | State::Up { .. }
            | State::Silent { .. }
            | State::Blocked { .. }
            | State::Upgrading { .. }
            | State::GaveUp { .. } => LOOK_RESTING,
        }
    }

    fn forget_old_deaths(&mut self, now: Now) {
        while self.deaths.front().is_some_and(|death| now.awake.since(*death) > CRASH_WINDOW) {
            self.deaths.pop_front();
        }
    }
}

fn answers(look: &Look) -> bool {
    matches!(look.answer, Answer::Version(_)) && !matches!(look.ownership, Ownership::Foreign(_))
}

/// Wishes of the supervisor's own are numbered from here, so that they never meet a person's.
const OWN_WISHES: u64 = 1 << 62;

fn revive_delay(deaths: usize) -> Duration {
    let doublings = u32::try_from(deaths.saturating_sub(1)).unwrap_or(u32::MAX).min(5);
    Duration::from_secs(1 << doublings)
}
