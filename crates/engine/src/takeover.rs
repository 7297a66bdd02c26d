//! Whether the gateway stands in Ollama's place, and what has to be done next so that it does, or does no longer.
//!
//! There is no list of steps that could be cut off: [`Takeover::next`] looks at what is wished and at what is there,
//! and names the one [`Act`] to be done now. Whoever is killed in between finds the rest by looking again.
//!
//! ```text
//!   own port    moved port     what is done          what is done when it is
//!   of Ollama                  in its place          wished back, or fails
//!   ─────────   ──────────     ──────────────        ───────────────────────
//!   Ollama      nobody         Move                  nothing
//!   nobody      Ollama         Open                  MoveBack
//!   gateway     Ollama         nothing               Leave
//!   gateway     nobody         Move, once            Leave
//! ```
//!
//! It fails open: the gateway is opened only once the server was proved on its moved port, a server that was started
//! without that address is restarted once and then left where clients find it, and a gateway that keeps breaking
//! leaves the place.

pub mod health;
#[cfg(test)]
mod tests;

use crate::known::Known;
use crate::owner::{Foreigner, Owner, Ownership};
use crate::plan::can_be_moved;
use crate::process::Identity;
use crate::time::Awake;
use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

/// Where the gateway shall be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Nowhere.
    #[default]
    Off,
    /// On a port of its own, beside Ollama on its own.
    Beside,
    /// On Ollama's own port, with Ollama moved to another.
    Takeover,
}

impl Mode {
    /// The word used for it in the configuration and in JSON.
    pub fn word(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Beside => "beside",
            Self::Takeover => "takeover",
        }
    }

    /// The mode of that word.
    pub fn from_word(word: &str) -> Option<Self> {
        [Self::Off, Self::Beside, Self::Takeover].into_iter().find(|mode| mode.word() == word)
    }
}

/// Where the server listens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// At its own port.
    Home,
    /// At the moved port, proved by its process and its answer.
    Moved,
    /// Nowhere.
    Nowhere,
}

/// What the gateway does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Door {
    /// It does not run.
    Shut,
    /// It listens at Ollama's own port.
    Home,
    /// It listens at a port of its own.
    Beside,
    /// It serves the requests that it has, and listens nowhere.
    Leaving,
    /// It could not be told; a gateway that may be in good order is not started anew for that.
    Unknown,
}

/// What is seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Who owns the server.
    pub ownership: Ownership,
    /// Where it listens.
    pub place: Place,
    /// Its owner runs, was started without the moved address, and has no server that listens.
    pub astray: bool,
    /// The app's own "Expose to network", which outranks every address that its start is given.
    pub exposed: Known<bool>,
    /// The gateway.
    pub door: Door,
    /// Real requests through the gateway fail, see [`health`].
    pub sick: bool,
    /// The server is being restarted or upgraded.
    pub busy: bool,
}

/// One thing to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// Restart Ollama at its moved port.
    Move,
    /// Start the gateway, anew when it runs, and prove it by a request.
    Open,
    /// Let the gateway leave its port; what waits in it is kept.
    Leave,
    /// Restart Ollama at its own port.
    MoveBack,
    /// End the gateway.
    Shut,
}

impl Act {
    /// A short fixed name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Move => "move",
            Self::Open => "open",
            Self::Leave => "leave",
            Self::MoveBack => "move-back",
            Self::Shut => "shut",
        }
    }
}

impl fmt::Display for Act {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Move => "restart Ollama with a moved address, given to its own start alone",
            Self::Open => "start the gateway and prove it by a real request through it",
            Self::Leave => "let the gateway leave its port; what waits in it is kept",
            Self::MoveBack => "restart Ollama at its own address",
            Self::Shut => "end the gateway, once nothing waits in it",
        })
    }
}

/// What to do now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// All is as wished, or as it has to be.
    Rest,
    /// Something is under way; look again.
    Wait,
    /// This.
    Do(Act),
}

/// Why the gateway does not stand in Ollama's place.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Hindrance {
    /// The address cannot be given to the owner's start alone.
    #[error("the start of {0} cannot be given an address that nothing else gets to see, so takeover is unavailable")]
    Owner(String),
    /// "Expose to network" is on.
    #[error("\"Expose to network\" is on in Ollama.app, which outranks every other address")]
    Exposed,
    /// There is no Ollama.
    #[error("no Ollama was found on this machine")]
    Absent,
    /// Several own the port, or somebody else does, or nobody knows; the phrase says.
    #[error("{0}")]
    Unclear(String),
    /// Nothing has run there for [`DOWN_LONGEST`].
    #[error("Ollama is not running")]
    Down,
    /// It was restarted and did not come up at its moved port.
    #[error("Ollama was restarted and did not come up at its moved address")]
    NotMoved,
    /// The gateway broke again and again.
    #[error("the gateway broke {OPENS_ALLOWED} times within ten minutes")]
    Broken,
}

impl Hindrance {
    /// A stable word for programs.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Owner(_) => "takeover-unavailable",
            Self::Exposed => "exposed-to-network",
            Self::Absent => "ollama-missing",
            Self::Unclear(_) => "owner-unclear",
            Self::Down => "ollama-down",
            Self::NotMoved => "not-moved",
            Self::Broken => "gateway-broken",
        }
    }

    /// What a person can do about it.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Owner(_) => {
                "let Ollama.app or a systemd unit run it, or use the gateway on a port of its own: stablehand gateway \
                 on --beside 11435"
            }
            Self::Exposed => {
                "switch \"Expose to network\" off in Ollama's settings, then run `stablehand gateway on --takeover`"
            }
            Self::Absent => "install it from ollama.com, then try again",
            Self::Unclear(_) => "`stablehand doctor` says who holds the port and what to do",
            Self::Down => "it is taken over again when it runs",
            Self::NotMoved => "see `stablehand logs`, then run `stablehand gateway on --takeover`",
            Self::Broken => "see `stablehand gateway status`, then run `stablehand gateway on --takeover`",
        }
    }
}

/// How long Ollama may be down before its port is left, so that its command line starts it and clients see that it is
/// down. The gateway can do neither for them.
pub const DOWN_LONGEST: Duration = Duration::from_secs(30);
/// How often the gateway is started within [`OPENS_WINDOW`].
pub const OPENS_ALLOWED: usize = 5;
/// The span within which starts of the gateway are counted.
pub const OPENS_WINDOW: Duration = Duration::from_secs(600);
/// How often each thing on the way back is tried within [`TRIES_WINDOW`]. Then there is a pause, and not an end: as long as
/// nobody has Ollama's own port, clients find nobody.
const TRIES_ALLOWED: usize = 2;
/// The span within which those are counted.
const TRIES_WINDOW: Duration = Duration::from_secs(300);

/// The machine. One task owns it.
#[derive(Debug)]
pub struct Takeover {
    mode: Mode,
    aside: Option<Hindrance>,
    /// Since the server was seen at its moved port last.
    moves: u32,
    leaves: VecDeque<Awake>,
    backs: VecDeque<Awake>,
    opens: VecDeque<Awake>,
    /// A person wished, and the gateway has not been opened for that yet.
    wished: bool,
    /// A restart of ours was begun and no server has been seen since.
    owes_start: bool,
    down_since: Option<Awake>,
    /// The server that a restart of an earlier daemon did not move.
    spent: Option<Identity>,
}

impl Takeover {
    /// A machine for this wish. `spent` is the server of [`Self::spent`] before the daemon was started: a server is
    /// restarted once, not once by each daemon.
    pub fn new(mode: Mode, spent: Option<Identity>) -> Self {
        Self {
            mode,
            aside: None,
            moves: 0,
            leaves: VecDeque::new(),
            backs: VecDeque::new(),
            opens: VecDeque::new(),
            wished: false,
            owes_start: false,
            down_since: None,
            spent,
        }
    }

    /// The wish.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// Why the place is not taken although it is wished.
    pub fn aside(&self) -> Option<&Hindrance> {
        self.aside.as_ref()
    }

    /// The server that was restarted and did not move; it is not restarted again.
    pub fn spent(&self) -> Option<Identity> {
        self.spent
    }

    /// Whether the next start of the server moves it.
    pub fn moves(&self) -> bool {
        self.mode == Mode::Takeover && self.aside.is_none()
    }

    /// A person wishes, or wishes again.
    pub fn wish(&mut self, mode: Mode) {
        *self = Self { wished: true, ..Self::new(mode, None) };
    }

    /// The configuration names this mode; one that it named before is no new wish.
    pub fn follow(&mut self, mode: Mode) {
        if mode != self.mode {
            self.wish(mode);
        }
    }

    /// The gateway could not be opened at all, and whoever asked shall hear it at once.
    pub fn broke(&mut self) {
        self.aside = Some(Hindrance::Broken);
    }

    /// What to do now. An act that is returned counts as begun.
    pub fn next(&mut self, now: Awake, found: &Found) -> Next {
        if found.busy {
            // A server that is stopped for an upgrade is not down.
            self.down_since = None;
            return Next::Wait;
        }
        self.notice(now, found);
        if self.mode == Mode::Takeover && self.aside.is_none() {
            let next = self.in_place(now, found);
            if self.aside.is_none() {
                return next;
            }
        }
        match (self.mode, &self.aside) {
            (Mode::Beside, _) => self.beside(now, found),
            (Mode::Off | Mode::Takeover, _) => self.out(now, found),
        }
    }

    fn notice(&mut self, now: Awake, found: &Found) {
        if found.place != Place::Nowhere {
            self.owes_start = false;
        }
        let down = found.place == Place::Nowhere && found.ownership.server().is_none() && !found.astray;
        self.down_since = if down { self.down_since.or(Some(now)) } else { None };
        while self.opens.front().is_some_and(|at| now.since(*at) > OPENS_WINDOW) {
            self.opens.pop_front();
        }
        if self.mode != Mode::Takeover {
            return;
        }
        match &self.aside {
            Some(Hindrance::NotMoved | Hindrance::Broken) => {}
            None | Some(_) => self.aside = self.standing_hindrance(now, found),
        }
    }

    fn standing_hindrance(&self, now: Awake, found: &Found) -> Option<Hindrance> {
        let seen = hindrance(found).filter(|hindrance| match hindrance {
            Hindrance::Owner(_) | Hindrance::Exposed => true,
            // A look that told nothing is no reason to leave a place that was taken, but one not to take it.
            Hindrance::Unclear(_) | Hindrance::Absent => found.place == Place::Home,
            Hindrance::Down | Hindrance::NotMoved | Hindrance::Broken => false,
        });
        let long = self.down_since.is_some_and(|since| now.since(since) >= DOWN_LONGEST);
        seen.or_else(|| (long && !self.owes_start).then_some(Hindrance::Down))
    }

    fn in_place(&mut self, now: Awake, found: &Found) -> Next {
        match (found.place, found.door) {
            (Place::Moved, Door::Home) if !found.sick => {
                self.moves = 0;
                self.spent = None;
                Next::Rest
            }
            (Place::Moved, door) => {
                self.moves = 0;
                self.spent = None;
                match door {
                    Door::Unknown => self.open_if_wished(now),
                    Door::Home | Door::Shut | Door::Beside | Door::Leaving => self.open(now),
                }
            }
            (Place::Home, Door::Home | Door::Shut | Door::Beside | Door::Leaving | Door::Unknown) => {
                self.move_once(found)
            }
            (Place::Nowhere, Door::Home | Door::Shut | Door::Beside | Door::Leaving | Door::Unknown) => {
                if found.astray || self.owes_start { self.move_once(found) } else { Next::Rest }
            }
        }
    }

    fn move_once(&mut self, found: &Found) -> Next {
        let server = found.ownership.server();
        if self.moves > 0 || (server.is_some() && server == self.spent) {
            self.aside = Some(Hindrance::NotMoved);
            self.spent = server;
            return Next::Rest;
        }
        self.moves += 1;
        self.owes_start = true;
        Next::Do(Act::Move)
    }

    fn open(&mut self, now: Awake) -> Next {
        if self.opens.len() >= OPENS_ALLOWED {
            self.aside = Some(Hindrance::Broken);
            return Next::Rest;
        }
        self.opens.push_back(now);
        self.wished = false;
        Next::Do(Act::Open)
    }

    /// Whoever wishes for it now has it started once, or hears why it does not start.
    fn open_if_wished(&mut self, now: Awake) -> Next {
        if std::mem::take(&mut self.wished) { self.open(now) } else { Next::Rest }
    }

    fn beside(&mut self, now: Awake, found: &Found) -> Next {
        match (found.place, found.door) {
            (_, Door::Home) => self.leave(now),
            (Place::Moved, Door::Shut | Door::Beside | Door::Leaving | Door::Unknown) => self.back(now),
            (Place::Home | Place::Nowhere, Door::Unknown) => self.open_if_wished(now),
            (Place::Home | Place::Nowhere, Door::Beside) if !found.sick => Next::Rest,
            (Place::Home | Place::Nowhere, Door::Beside | Door::Shut | Door::Leaving) => {
                if self.aside.is_some() {
                    return Next::Rest;
                }
                self.open(now)
            }
        }
    }

    fn out(&mut self, now: Awake, found: &Found) -> Next {
        match (found.place, found.door) {
            (_, Door::Home | Door::Beside) => self.leave(now),
            // Whoever cannot be looked at may hold the port, and can be told all the same.
            (Place::Moved, Door::Unknown) if self.leaves.is_empty() => self.leave(now),
            (Place::Moved, Door::Shut | Door::Leaving | Door::Unknown) => self.back(now),
            (Place::Nowhere, Door::Shut | Door::Leaving | Door::Unknown) if self.owes_start => self.back(now),
            (Place::Home | Place::Nowhere, Door::Leaving) => Next::Do(Act::Shut),
            (Place::Home | Place::Nowhere, Door::Shut | Door::Unknown) => Next::Rest,
        }
    }

    fn leave(&mut self, now: Awake) -> Next {
        if once_more(&mut self.leaves, now) { Next::Do(Act::Leave) } else { Next::Rest }
    }

    fn back(&mut self, now: Awake) -> Next {
        if !once_more(&mut self.backs, now) {
            return Next::Rest;
        }
        self.owes_start = true;
        Next::Do(Act::MoveBack)
    }
}

/// Whether there may be one more try, which is counted; not when there were enough of late.
fn once_more(tries: &mut VecDeque<Awake>, now: Awake) -> bool {
    tries.retain(|at| now.since(*at) <= TRIES_WINDOW);
    let may = tries.len() < TRIES_ALLOWED;
    if may {
        tries.push_back(now);
    }
    may
}

/// What forbids to take Ollama's place, as far as it is seen.
pub fn hindrance(found: &Found) -> Option<Hindrance> {
    let owner = match &found.ownership {
        Ownership::One { owner, .. } => owner,
        Ownership::Contested { .. } => {
            return Some(Hindrance::Unclear("several programs want Ollama's port".to_owned()));
        }
        Ownership::Foreign(Foreigner::Stranger { pid, program }) => {
            return Some(Hindrance::Unclear(format!(
                "Ollama's port is held by {program} (pid {pid}), which is no Ollama"
            )));
        }
        Ownership::Foreign(Foreigner::OtherUser { .. }) => {
            return Some(Hindrance::Unclear("Ollama's port is held by a process of another user".to_owned()));
        }
        Ownership::Absent => return Some(Hindrance::Absent),
        Ownership::Unknown(reason) => {
            return Some(Hindrance::Unclear(format!("it could not be told who owns the server: {reason}")));
        }
    };
    if !can_be_moved(owner) {
        return Some(Hindrance::Owner(in_words(owner).to_owned()));
    }
    match (owner, &found.exposed) {
        (Owner::App { .. }, Known::Is(true)) => Some(Hindrance::Exposed),
        // What cannot be read forbids nothing: an exposed server does not come up at its moved port, and is then left.
        (Owner::App { .. }, Known::Is(false) | Known::Unknown(_))
        | (
            Owner::Brew { .. }
            | Owner::Systemd { .. }
            | Owner::Agent(_)
            | Owner::Container { .. }
            | Owner::Manual { .. },
            _,
        ) => None,
    }
}

fn in_words(owner: &Owner) -> &'static str {
    match owner {
        Owner::App { .. } => "Ollama.app",
        Owner::Brew { .. } => "a Homebrew service",
        Owner::Systemd { .. } => "a systemd unit",
        Owner::Agent(_) => "a launchd job",
        Owner::Container { .. } => "a container",
        Owner::Manual { .. } => "a server that was started by hand",
    }
}

/// What is wrong with what stands there, as a sentence; `None` when it is as wished, or stands aside in good order.
pub fn half_done(mode: Mode, place: Place, door: Door) -> Option<&'static str> {
    match (mode, place, door) {
        (_, Place::Moved, Door::Shut | Door::Leaving) => {
            Some("Ollama was moved, and nobody answers at its own address")
        }
        (Mode::Off | Mode::Beside, _, Door::Home) => {
            Some("the gateway still holds Ollama's own address, where it shall not stand")
        }
        (Mode::Off | Mode::Beside, Place::Moved, Door::Beside) => {
            Some("Ollama is still at its moved address, and its own is nobody's")
        }
        (Mode::Takeover, Place::Moved, Door::Beside) => {
            Some("Ollama was moved, and the gateway listens somewhere else than in its place")
        }
        (Mode::Takeover, Place::Home, Door::Home) => {
            Some("the gateway stands in Ollama's place, and Ollama has not left it")
        }
        (Mode::Takeover, Place::Nowhere, Door::Home) => {
            Some("the gateway answers in the place of an Ollama that is not running, or does not answer")
        }
        (Mode::Takeover, Place::Moved, Door::Home)
        | (Mode::Takeover, Place::Home | Place::Nowhere, Door::Shut | Door::Beside | Door::Leaving)
        | (Mode::Off | Mode::Beside, Place::Home | Place::Nowhere, Door::Shut | Door::Beside | Door::Leaving)
        | (_, _, Door::Unknown) => None,
    }
}

/// The acts that a wish takes from what is seen, in their order.
///
/// # Errors
/// The [`Hindrance`] that forbids it; nothing is to be changed then.
pub fn plan(mode: Mode, found: &Found) -> Result<Vec<Act>, Hindrance> {
    let hindrance = match mode {
        Mode::Takeover => hindrance(found),
        Mode::Off | Mode::Beside => None,
    };
    if let Some(hindrance) = hindrance {
        return Err(hindrance);
    }
    let mut machine = Takeover::new(mode, None);
    // A wish for the place starts a server that is down.
    machine.owes_start = mode == Mode::Takeover && found.place == Place::Nowhere;
    let mut found = Found { busy: false, sick: false, ..found.clone() };
    let mut acts = Vec::new();
    while let Next::Do(act) = machine.next(Awake::from_start(Duration::ZERO), &found) {
        found.astray = false;
        match act {
            Act::Move => found.place = Place::Moved,
            Act::MoveBack => found.place = Place::Home,
            Act::Open => found.door = if mode == Mode::Beside { Door::Beside } else { Door::Home },
            Act::Leave => found.door = Door::Leaving,
            Act::Shut => found.door = Door::Shut,
        }
        acts.push(act);
    }
    Ok(acts)
}
