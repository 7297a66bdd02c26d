//! A model of a machine with one server: enough to answer every effect of the supervisor, with faults on demand.

use super::super::*;
use crate::plan::{Again, Start, Stop};
use crate::setting::{
    Definition, Effective, FromApp, Layers, Name, PersistedIn, Proof, ServerEvidence, Shown, Value, Wish as Wanted,
    report,
};
use std::collections::{BTreeMap, BTreeSet};

/// What goes wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    None,
    NeverAnswers,
    /// The owner starts one server after the other, and each dies.
    DiesAtStart,
    OwnerRespawns,
    OwnerRespawnsWithOldValues,
    StartsWithOldValues,
    Unreadable,
    DiesAfter(Duration),
    StepHangs(&'static str),
    StepFails {
        name: &'static str,
        code: &'static str,
        again: Again,
        times: u32,
    },
}

pub struct Bench {
    pub supervisor: Supervisor,
    pub now: Now,
    pub owner: Owner,
    pub foreigner: Option<Foreigner>,
    pub server: Option<Identity>,
    pub server_started: Wall,
    pub answers: bool,
    pub desired: String,
    pub persisted: String,
    pub session: String,
    pub effective: String,
    pub published_at: Option<Wall>,
    pub fault: Fault,
    pub seat: Seat,
    /// The port that the server listens on.
    pub listens: u16,
    /// What was asked for and is still to be answered.
    pub performing: Option<(Life, usize)>,
    pub performed: Vec<Step>,
    pub started: usize,
    pub stops: usize,
    pub abandoned: usize,
    pub holds: Vec<bool>,
    pub alerts: Vec<Alert>,
    pub outcomes: BTreeMap<WishId, Outcome>,
    pub transitions: BTreeSet<(&'static str, &'static str, &'static str)>,
    last_wish: Option<WishId>,
    planned_from: Option<Identity>,
    looked_server: Option<Identity>,
    dies_at: Option<Awake>,
    next_id: u64,
    pending: VecDeque<Effect>,
}

impl Bench {
    pub fn with_app() -> Self {
        Self::new(Owner::App { bundle: "/Applications/Ollama.app".into() })
    }

    pub fn with_own_process() -> Self {
        Self::new(Owner::Agent(AgentKind::Process { program: "/usr/local/bin/ollama".into() }))
    }

    pub fn blocked_by(foreigner: Foreigner) -> Self {
        let mut bench = Self::with_app();
        bench.foreigner = Some(foreigner);
        bench.server = None;
        bench
    }

    fn new(owner: Owner) -> Self {
        let now =
            Now { awake: Awake::from_start(Duration::from_secs(1000)), wall: Wall::from_unix_ms(1_796_000_000_000) };
        let (supervisor, effects) = Supervisor::new(now, Duration::ZERO);
        let mut bench = Self {
            supervisor,
            now,
            owner,
            foreigner: None,
            server: Some(Identity { pid: 100, birth: 1 }),
            server_started: Wall::from_unix_ms(now.wall.unix_ms - 60_000),
            answers: true,
            desired: String::new(),
            persisted: String::new(),
            session: String::new(),
            effective: "4".to_owned(),
            published_at: None,
            fault: Fault::None,
            seat: Seat::at_home(11434),
            listens: 11434,
            performing: None,
            performed: vec![],
            started: 0,
            stops: 0,
            abandoned: 0,
            holds: vec![],
            alerts: vec![],
            outcomes: BTreeMap::new(),
            transitions: BTreeSet::new(),
            last_wish: None,
            planned_from: None,
            looked_server: None,
            dies_at: None,
            next_id: 100,
            pending: VecDeque::new(),
        };
        bench.pending.extend(effects);
        bench
    }

    /// Answers everything that was asked for, without letting time pass.
    pub fn settle(&mut self) {
        while let Some(effect) = self.pending.pop_front() {
            self.answer(effect);
        }
    }

    /// Lets time pass, stopping at every deadline of the supervisor.
    pub fn run_for(&mut self, seconds: u64) {
        let end = self.now.awake + Duration::from_secs(seconds);
        self.settle();
        loop {
            let (at, name) = self.supervisor.deadline().expect("there always is a deadline");
            assert!(!name.is_empty());
            let next = self.dies_at.map_or(at, |dies| at.min(dies)).max(self.now.awake);
            if next > end {
                self.advance_to(end);
                return;
            }
            // A deadline that is due stays due until it is served; a tick must always move it.
            self.advance_to(next);
            if self.dies_at.is_some_and(|dies| self.now.awake >= dies) {
                self.kill_server();
            }
            self.event(Event::Tick);
            let (after, name) = self.supervisor.deadline().expect("there always is a deadline");
            assert!(after > self.now.awake, "the deadline «{name}» is not served by a tick");
        }
    }

    pub fn event(&mut self, event: Event) {
        let cause = word(&event);
        let before = self.supervisor.state().word();
        let effects = self.supervisor.step(self.now, event);
        let after = self.supervisor.state().word();
        if before != after {
            self.transitions.insert((before, cause, after));
        }
        self.pending.extend(effects);
        self.settle();
        assert_eq!(self.holds.last() == Some(&false), self.supervisor.serving(), "held exactly while not ready");
    }

    pub fn wish(&mut self, wish: Wish) {
        self.desired = wish.goal.desired().values().next().map(ToString::to_string).unwrap_or_default();
        self.last_wish = Some(wish.id);
        self.outcomes.remove(&wish.id);
        self.event(Event::Wished(wish));
    }

    /// A person applies this value.
    pub fn ask(&mut self, value: &str) {
        let wish = self.apply(value);
        self.wish(wish);
    }

    pub fn apply(&mut self, value: &str) -> Wish {
        self.next_id += 1;
        let desired = Values::from([(name(), Value::try_new(value).unwrap())]);
        Wish {
            id: WishId(self.next_id),
            origin: Origin::Person,
            goal: Goal::Apply { desired, unset: BTreeSet::new() },
            take_over: false,
        }
    }

    /// An upgrade stops the server, or starts it again.
    pub fn upgrade_wishes(&mut self, goal: Goal) -> WishId {
        self.next_id += 1;
        let id = WishId(self.next_id);
        self.wish(Wish { id, origin: Origin::Upgrade, goal, take_over: false });
        id
    }

    pub fn outcome(&self) -> Option<&Outcome> {
        self.outcomes.get(&self.last_wish?)
    }

    pub fn kill_server(&mut self) {
        self.server = None;
        self.answers = false;
        self.dies_at = None;
    }

    pub fn respawn(&mut self, value: String) {
        self.next_id += 1;
        self.server = Some(Identity { pid: 100, birth: self.next_id });
        self.server_started = self.now.wall;
        self.answers = self.fault != Fault::NeverAnswers;
        self.effective = value;
        if let Fault::DiesAfter(span) = self.fault {
            self.dies_at = Some(self.now.awake + span);
        }
    }

    fn advance_to(&mut self, awake: Awake) {
        let span = awake.since(self.now.awake);
        let span_ms = i64::try_from(span.as_millis()).unwrap();
        self.now = Now { awake, wall: Wall::from_unix_ms(self.now.wall.unix_ms + span_ms) };
    }

    fn answer(&mut self, effect: Effect) {
        match effect {
            Effect::Look { life } => {
                if self.fault == Fault::DiesAtStart && self.server.is_some() && self.started > 0 {
                    self.respawn(self.effective.clone());
                    self.answers = false;
                }
                let look = Box::new(self.look());
                self.looked_server = self.server;
                self.event(Event::Looked { life, look });
            }
            Effect::Perform { life, index, step } => {
                self.performing = Some((life, index));
                self.performed.push(step.clone());
                match self.perform(&step) {
                    Some(Ok(())) => self.event(Event::StepDone { life, index, note: String::new() }),
                    Some(Err(failure)) => self.event(Event::StepFailed { life, index, failure }),
                    None => {}
                }
            }
            Effect::Abandon { .. } => self.abandoned += 1,
            Effect::Hold => self.holds.push(true),
            Effect::Release => self.holds.push(false),
            Effect::Report { progress, .. } => {
                if let Progress::Planned(_) = progress {
                    self.planned_from = self.looked_server;
                }
            }
            Effect::Finish { wish, outcome } => {
                self.outcomes.insert(wish, outcome);
            }
            Effect::Alert(alert) => self.alerts.push(alert),
        }
    }

    /// `None`: no answer comes.
    fn perform(&mut self, step: &Step) -> Option<Result<(), StepFailure>> {
        if self.fault == Fault::StepHangs(step.name()) {
            return None;
        }
        if let Fault::StepFails { name, code, again, times } = &mut self.fault
            && *name == step.name()
            && *times > 0
        {
            *times -= 1;
            let (code, again) = (*code, *again);
            return Some(Err(StepFailure { code, message: code.to_owned(), hint: String::new(), again }));
        }
        match step {
            Step::Persist { values, .. } => self.persisted = first(values),
            Step::Publish { set, .. } => self.session = first(set),
            Step::Stop(stop) => {
                if let Stop::Process { server } = stop {
                    assert_eq!(Some(*server), self.planned_from, "a signal goes to the server the plan was made for");
                }
                self.stop();
            }
            Step::Sweep(_) | Step::Address { .. } => {}
            Step::Start(start) => {
                assert_eq!(self.server, None, "never a second server of ours");
                self.started += 1;
                self.listens = match start {
                    Start::App { environment, .. } | Start::Process { environment, .. } => {
                        let address = environment.iter().find(|(name, _)| name.as_str() == "OLLAMA_HOST");
                        address.map_or(11434, |(_, value)| value.as_str().rsplit(':').next().unwrap().parse().unwrap())
                    }
                    Start::Job { .. } | Start::Unit { .. } => 11434,
                };
                let value = match start {
                    Start::Process { environment, .. } => first(environment),
                    Start::App { .. } | Start::Job { .. } | Start::Unit { .. } => {
                        if self.fault == Fault::StartsWithOldValues { "4".to_owned() } else { self.session.clone() }
                    }
                };
                self.respawn(value);
            }
            Step::AwaitPortFree { .. } | Step::AwaitAnswer { .. } | Step::Prove => {
                panic!("{step} is looked at, not performed")
            }
        }
        Some(Ok(()))
    }

    fn stop(&mut self) {
        self.stops += 1;
        self.kill_server();
        if self.fault == Fault::OwnerRespawns {
            self.listens = 11434;
            self.respawn(self.session.clone());
        } else if self.fault == Fault::OwnerRespawnsWithOldValues {
            self.fault = Fault::None;
            self.respawn("4".to_owned());
        }
    }

    fn look(&self) -> Look {
        let ownership = match (&self.foreigner, self.server) {
            (Some(foreigner), _) => Ownership::Foreign(foreigner.clone()),
            (None, server) => Ownership::One { owner: self.owner_now(), server },
        };
        let answer = match (self.server, self.answers) {
            (_, true) => Answer::Version("0.33.0".to_owned()),
            (Some(_), false) => Answer::Silent,
            (None, false) => Answer::Refused,
        };
        Look {
            port: self.listens,
            seat: self.seat,
            ownership,
            port_free: Known::Is(self.server.is_none() && self.foreigner.is_none()),
            server_started: self.server.map(|_| self.server_started),
            answer,
            reports: self.reports(),
            kept_by_us: false,
            published_at: Known::Is(self.published_at),
        }
    }

    /// A server taken over from a terminal is ours from its next start on.
    fn owner_now(&self) -> Owner {
        if let Owner::Manual { program: Known::Is(program), .. } = &self.owner
            && self.started + self.stops > 0
        {
            return Owner::Agent(AgentKind::Process { program: program.clone() });
        }
        self.owner.clone()
    }

    fn reports(&self) -> Vec<Report> {
        let values = |text: &str| match text {
            "" => Values::new(),
            text => Values::from([(name(), Value::try_new(text).unwrap())]),
        };
        let desired = match self.desired.as_str() {
            "" => BTreeMap::new(),
            text => {
                BTreeMap::from([(name(), Wanted { value: Value::try_new(text).unwrap(), in_force: text.to_owned() })])
            }
        };
        let readable = self.server.is_some() && self.fault != Fault::Unreadable;
        let config_line = if readable {
            let proof = Proof::ConfigLine { logged_at: self.server_started, log: "server.log".to_owned() };
            Known::Is((BTreeMap::from([(name(), self.effective.clone())]), proof))
        } else {
            Known::unknown("no line")
        };
        let layers = Layers {
            desired,
            persisted: Known::Is(values(&self.persisted)),
            persisted_in: PersistedIn::OurFile,
            from_app: FromApp::NotTheApp,
            session: Some(Known::Is(values(&self.session))),
            server: ServerEvidence { config_line, environment: Known::unknown("not readable") },
        };
        let mut reports = report(&[definition()], &layers);
        if self.desired.is_empty() || self.persisted.is_empty() {
            // These scenarios are about the server's values; the file layer is told by its own tests.
            for report in &mut reports {
                report.persisted = Known::Is(report.desired.as_ref().map(|wish| wish.value.clone()));
                report.standing = match (&report.desired, &report.effective) {
                    (None, _) => Standing::NotManaged,
                    (Some(wish), Known::Is(Effective { in_force, .. })) if *in_force == wish.in_force => {
                        Standing::Proven
                    }
                    (Some(_), Known::Is(_)) => Standing::Drift(vec![Layer::Effective]),
                    (Some(_), Known::Unknown(reason)) => Standing::Unknown(reason.clone()),
                };
            }
        }
        reports
    }
}

fn word(event: &Event) -> &'static str {
    match event {
        Event::Looked { .. } => "looked",
        Event::Wished(_) => "wished",
        Event::StepDone { .. } => "step done",
        Event::StepFailed { .. } => "step failed",
        Event::Tick => "deadline",
        Event::Woke => "woke",
        Event::Changed => "changed",
        Event::HandedOver => "handed over",
        Event::HandedBack => "handed back",
    }
}

fn first(values: &Values) -> String {
    values.values().next().map(ToString::to_string).unwrap_or_default()
}

fn definition() -> Definition {
    Definition { name: name(), default_in_force: "1".to_owned(), shown: Shown::ConfigLine, app_may_override: false }
}

fn name() -> Name {
    Name::try_new("OLLAMA_NUM_PARALLEL").unwrap()
}
