//! Rules of others, as public projects describe them. Each gets what it would have in reality, without its own
//! weaknesses in transport: probes cost nothing, never load a model and never disturb a request.

use stablehand_engine::process::Identity;

/// What such a rule acts on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    Runner(Identity),
    Server,
}

/// What a rule could find out at one look.
pub struct View<'a> {
    pub now_s: f64,
    /// The server answers `GET /` and `/api/tags`; neither takes a lock.
    pub server_answers: bool,
    /// There is a server process at all.
    pub server_runs: bool,
    pub runners: &'a [RunnerView],
}

/// What a rule could find out about a runner.
#[derive(Clone, Copy)]
pub struct RunnerView {
    pub id: Identity,
    /// The model is loaded, so that a probe would not load it.
    pub serves: bool,
    /// The age of the oldest request in it.
    pub oldest_s: Option<f64>,
    /// Bytes that reached clients.
    pub bytes: u64,
    /// A slot is free for a probe, and nobody waits before it.
    pub has_room: bool,
    /// Steps that its decode loop has made.
    pub steps: u64,
    /// The decode loop would take a request in.
    pub loop_turns: bool,
}

/// A rule of others.
pub enum Rival {
    Heartbeat(Heartbeat),
    TagsPing(Ping),
    RootPing(Ping),
    Canary(Canary),
    BusyTimeout,
}

impl Rival {
    /// All of them, fresh.
    pub fn all() -> [Self; 5] {
        [
            Self::Heartbeat(Heartbeat::default()),
            Self::TagsPing(Ping { strikes_allowed: 1, ..Ping::default() }),
            Self::RootPing(Ping { strikes_allowed: 3, ..Ping::default() }),
            Self::Canary(Canary::default()),
            Self::BusyTimeout,
        ]
    }

    /// Its name in the report.
    pub const NAMES: [&'static str; 5] = [
        "10 s heartbeat without bytes",
        "/api/tags ping",
        "GET / ping, 3 strikes",
        "30 s one-token canary",
        "busy timeout 5 min",
    ];

    /// Looks, and adds what it would act on.
    pub fn look(&mut self, view: &View<'_>, acts: &mut Vec<Target>) {
        match self {
            Self::Heartbeat(heartbeat) => heartbeat.look(view, acts),
            Self::TagsPing(ping) | Self::RootPing(ping) => ping.look(view, acts),
            Self::Canary(canary) => canary.look(view, acts),
            Self::BusyTimeout => {
                let late = view.runners.iter().filter(|runner| runner.oldest_s.is_some_and(|age_s| age_s > 300.0));
                acts.extend(late.map(|runner| Target::Runner(runner.id)));
            }
        }
    }
}

/// A request is in the runner, and no byte came for 10 seconds.
#[derive(Default)]
pub struct Heartbeat {
    /// Per runner: its bytes, and since when they stand still.
    still: Vec<(Identity, u64, f64)>,
}

impl Heartbeat {
    fn look(&mut self, view: &View<'_>, acts: &mut Vec<Target>) {
        self.still.retain(|(id, ..)| view.runners.iter().any(|runner| runner.id == *id));
        for runner in view.runners {
            let number = match self.still.iter().position(|(id, ..)| *id == runner.id) {
                Some(number) => number,
                None => {
                    self.still.push((runner.id, runner.bytes, view.now_s));
                    self.still.len() - 1
                }
            };
            let (_, bytes, since_s) = &mut self.still[number];
            let busy_s = runner.oldest_s.unwrap_or(0.0);
            if *bytes != runner.bytes || runner.oldest_s.is_none() {
                (*bytes, *since_s) = (runner.bytes, view.now_s);
            } else if view.now_s - *since_s > 10.0 && busy_s > 10.0 {
                acts.push(Target::Runner(runner.id));
            }
        }
    }
}

/// A request to the server that takes no lock, every 10 seconds with a deadline of 10.
#[derive(Default)]
pub struct Ping {
    strikes_allowed: u32,
    strikes: u32,
    next_s: f64,
    silent_since_s: Option<f64>,
}

impl Ping {
    fn look(&mut self, view: &View<'_>, acts: &mut Vec<Target>) {
        if view.server_answers || !view.server_runs {
            (self.strikes, self.silent_since_s, self.next_s) = (0, None, view.now_s + 10.0);
            return;
        }
        let since_s = *self.silent_since_s.get_or_insert(view.now_s);
        if view.now_s - since_s >= 10.0 && view.now_s >= self.next_s {
            self.strikes += 1;
            self.next_s = view.now_s + 10.0;
            if self.strikes >= self.strikes_allowed {
                acts.push(Target::Server);
            }
        }
    }
}

/// A request for one token of each loaded model, once a minute, with a deadline of 30 seconds.
#[derive(Default)]
pub struct Canary {
    next_s: f64,
    /// Under way: the runner, when it was sent, and the step at which it was taken in.
    sent: Vec<(Identity, f64, Option<u64>)>,
}

impl Canary {
    fn look(&mut self, view: &View<'_>, acts: &mut Vec<Target>) {
        self.sent.retain_mut(|(id, sent_s, taken)| {
            let Some(runner) = view.runners.iter().find(|runner| runner.id == *id && runner.serves) else {
                return false;
            };
            if taken.is_none() && runner.has_room {
                *taken = Some(runner.steps);
            }
            // It is answered with the next step after it was taken in, or at once by a runner at rest.
            let idle = runner.oldest_s.is_none() && runner.loop_turns;
            if taken.is_some_and(|steps| idle || runner.steps >= steps + 2) {
                return false;
            }
            if view.now_s - *sent_s > 30.0 {
                acts.push(Target::Runner(*id));
                return false;
            }
            true
        });
        if view.now_s >= self.next_s {
            self.next_s = view.now_s + 60.0;
            let fresh = view.runners.iter().filter(|runner| runner.serves);
            let fresh: Vec<_> = fresh.map(|runner| (runner.id, view.now_s, None)).collect();
            for canary in fresh {
                if !self.sent.iter().any(|(id, ..)| *id == canary.0) {
                    self.sent.push(canary);
                }
            }
        }
    }
}
