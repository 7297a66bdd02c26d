//! A simulated machine: clients, the server with its queues, runners, paging, sleep. It moves tick by tick.

use super::paging::PagingState;
use super::runner::{Phase, Request, Runner, Turn};
use super::setup::{Class, Client, Fault, Prompt, Setup, Span, What};
use crate::envelope;
use crate::random::Random;
use stablehand_engine::process::Identity;
use stablehand_engine::time::{Awake, Now, Wall};
use std::collections::VecDeque;
use std::time::Duration;

const START_UNIX_MS: i64 = 1_796_000_000_000;

/// The machine.
pub struct World {
    pub setup: Setup,
    pub random: Random,
    pub now_ms: u64,
    ahead_ms: i64,
    pub runners: Vec<Runner>,
    pub queues: Vec<VecDeque<Request>>,
    clients: Vec<ClientState>,
    pub server: Server,
    pub paging: PagingState,
    sleep_at_ms: Option<u64>,
    set_back_at_ms: Option<u64>,
    failure_at_ms: Option<u64>,
    pub failures: u32,
    /// It slept in this tick.
    pub woke: bool,
    /// When the fault struck.
    pub onset_ms: Option<u64>,
    /// What a rule should act on.
    pub culprit: Option<Culprit>,
    ended: Vec<usize>,
    next_pid: u32,
    next_request: u64,
}

/// What is at fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Culprit {
    Runner(Identity),
    Server,
}

/// The server's process.
pub struct Server {
    pub id: Option<Identity>,
    pub answers: bool,
    pub ps_answers: bool,
    pub loading: bool,
    restart_at_ms: Option<u64>,
    up_at_ms: u64,
    answers_at_ms: u64,
    silent_left_s: f64,
}

struct ClientState {
    due_ms: Option<u64>,
    thread: u64,
}

impl World {
    pub fn new(setup: Setup, mut random: Random) -> Self {
        let clients = setup
            .clients
            .iter()
            .map(|client| ClientState { due_ms: Some(ms(random.between(client.first_after_s))), thread: 0 })
            .collect();
        let mut world = Self {
            now_ms: 0,
            ahead_ms: 0,
            runners: Vec::new(),
            queues: vec![VecDeque::new(); setup.models.len()],
            clients,
            server: Server {
                id: Some(Identity { pid: 700, birth: 7 }),
                answers: true,
                ps_answers: true,
                loading: false,
                restart_at_ms: setup.server_restarts_every_s.map(|span| ms(random.between(span))),
                up_at_ms: 0,
                answers_at_ms: 0,
                silent_left_s: 0.0,
            },
            paging: PagingState::default(),
            sleep_at_ms: setup.sleeps.map(|(between, _)| ms(random.between(between))),
            set_back_at_ms: setup.clock_set_back.then(|| ms(random.between((600.0, 3_600.0)))),
            failure_at_ms: setup.failures_every_s.map(|span| ms(random.between(span))),
            failures: 0,
            woke: false,
            onset_ms: None,
            culprit: None,
            ended: Vec::new(),
            next_pid: 900,
            next_request: 1,
            setup,
            random,
        };
        for model in 0..world.setup.models.len() {
            if world.setup.models[model].loaded {
                let runner = world.new_runner(model, Phase::Serving);
                world.runners.push(runner);
            }
        }
        world
    }

    pub fn now(&self) -> Now {
        Now { awake: Awake::from_start(Duration::from_millis(self.now_ms)), wall: self.wall() }
    }

    pub fn wall(&self) -> Wall {
        Wall::from_unix_ms(START_UNIX_MS + self.now_ms as i64 + self.ahead_ms)
    }

    /// Lets so much time pass.
    pub fn tick(&mut self, span_ms: u64) {
        self.now_ms += span_ms;
        self.woke = false;
        let seconds = span_ms as f64 / 1_000.0;
        self.sleep_or_set_back();
        self.paging.advance(self.setup.paging, self.now_ms, &mut self.random);
        self.send_requests();
        self.begin_faults();
        self.run_server(seconds);
        self.run_runners(seconds);
        for client in std::mem::take(&mut self.ended) {
            self.rest(client);
        }
    }

    fn sleep_or_set_back(&mut self) {
        if let (Some(at_ms), Some((between, long))) = (self.sleep_at_ms, self.setup.sleeps)
            && self.now_ms >= at_ms
        {
            self.ahead_ms += ms(self.random.between(long)) as i64;
            self.woke = true;
            self.sleep_at_ms = Some(self.now_ms + ms(self.random.between(between)));
            self.paging.come_back(self.now_ms, &mut self.random);
        }
        if self.set_back_at_ms.is_some_and(|at_ms| self.now_ms >= at_ms) {
            self.ahead_ms -= 3_600_000;
            self.set_back_at_ms = Some(self.now_ms + ms(self.random.between((1_800.0, 7_200.0))));
        }
    }

    fn send_requests(&mut self) {
        let failing = self.onset_ms.is_some()
            && self.setup.fault.is_some_and(|fault| matches!(fault.what, What::EverythingFails));
        for number in 0..self.clients.len() {
            if self.clients[number].due_ms.is_some_and(|due_ms| self.now_ms >= due_ms) {
                self.clients[number].due_ms = None;
                let request = self.compose(number);
                if failing {
                    self.failures += 1;
                    self.rest(number);
                } else {
                    self.queues[self.setup.clients[number].model].push_back(request);
                }
            }
        }
        let now_ms = self.now_ms;
        let leaves = |request: &Request| !request.gone && request.leaves_ms.is_some_and(|at_ms| now_ms >= at_ms);
        let mut left = Vec::new();
        for queue in &mut self.queues {
            queue.retain(|request| {
                let goes = leaves(request);
                if goes {
                    left.push(request.client);
                }
                !goes
            });
        }
        for slot in self.runners.iter_mut().flat_map(|runner| &mut runner.slots) {
            if let Some(request) = &mut slot.request
                && leaves(request)
            {
                request.gone = true;
                left.push(request.client);
            }
        }
        for client in left {
            self.rest(client);
        }
        if let (Some(at_ms), Some(span)) = (self.failure_at_ms, self.setup.failures_every_s)
            && now_ms >= at_ms
        {
            self.failures += 1;
            self.failure_at_ms = Some(now_ms + ms(self.random.between(span)));
        }
    }

    fn compose(&mut self, number: usize) -> Request {
        let client: &Client = &self.setup.clients[number];
        let random = &mut self.random;
        let limit = envelope::CONTEXT_TOKENS - 2_048;
        let thread = &mut self.clients[number].thread;
        let (cached, new) = match client.prompt {
            Prompt::Fresh(span) => (0, random.between(span) as u64),
            Prompt::Far { cached, new } => (random.between(cached) as u64, random.between(new) as u64),
            Prompt::Thread { first, turn } => {
                let mut new = random.between(if *thread == 0 { first } else { turn }) as u64;
                if *thread + new > limit {
                    *thread = 0;
                    new = random.between(first) as u64;
                }
                (*thread, new)
            }
        };
        let new = new.clamp(1, limit - cached.min(limit - 1));
        let answer =
            if random.chance(client.one_token_share) { 1 } else { random.between(client.answer_tokens) as u64 };
        *thread = cached + new + answer;
        let streams = client.streams;
        let unread = streams && random.chance(client.stops_reading_share);
        self.next_request += 1;
        Request {
            id: self.next_request,
            client: number,
            issued_ms: self.now_ms,
            leaves_ms: client.patience_s.map(|span| self.now_ms + ms(random.between(span))),
            cached,
            new,
            answer: answer.min(2_048),
            image_s: client.image_s.map_or(0.0, |span| random.between(span)),
            streams,
            unread_after: unread.then_some(1 + answer / 4),
            unread_ms: ms(random.between((20.0, 600.0))),
            unread_until_ms: None,
            reads_on: random.chance(0.5),
            gone: false,
        }
    }

    fn rest(&mut self, client: usize) {
        let span: Span = self.setup.clients[client].rest_s;
        self.clients[client].due_ms = Some(self.now_ms + ms(self.random.between(span)));
    }

    /// Faults that need no particular moment of a runner.
    fn begin_faults(&mut self) {
        let Some(fault) = self.setup.fault else { return };
        if self.onset_ms.is_some() || (self.now_ms as f64) < fault.after_s * 1_000.0 {
            return;
        }
        let runner =
            self.runners.iter_mut().find(|runner| runner.model == fault.model && runner.phase == Phase::Serving);
        let culprit = match (fault.what, runner) {
            (What::Stuck { .. }, _) | (What::EmptyAnswers | What::Resident | What::Orphan, None) => return,
            (What::EmptyAnswers, Some(runner)) => {
                runner.reset = true;
                Culprit::Runner(runner.id)
            }
            (What::Resident, Some(runner)) => {
                if runner.is_busy() {
                    return;
                }
                runner.listed = false;
                runner.phase = Phase::Ending { left_s: f64::INFINITY };
                Culprit::Runner(runner.id)
            }
            (What::Orphan, Some(runner)) => {
                runner.owned = false;
                runner.phase = Phase::Ending { left_s: f64::INFINITY };
                let id = runner.id;
                self.end_server(Some(id));
                Culprit::Runner(id)
            }
            (What::ServerSilent | What::SchedulerBlocked | What::EverythingFails, _) => Culprit::Server,
        };
        self.strike(culprit);
    }

    fn strike(&mut self, culprit: Culprit) {
        self.onset_ms = Some(self.now_ms);
        self.culprit = Some(culprit);
    }

    fn run_server(&mut self, seconds: f64) {
        if let Some(span) = self.setup.server_restarts_every_s
            && self.server.restart_at_ms.is_some_and(|at_ms| self.now_ms >= at_ms)
        {
            self.end_server(None);
            self.server.restart_at_ms = Some(self.now_ms + ms(self.random.between(span)));
        }
        if self.server.id.is_none() && self.now_ms >= self.server.up_at_ms {
            self.next_pid += 1;
            self.server.id = Some(Identity { pid: self.next_pid, birth: u64::from(self.next_pid) });
        }
        let onset = self.onset_ms.and(self.setup.fault).map(|fault: Fault| fault.what);
        let silent = matches!(onset, Some(What::ServerSilent));
        let blocked = silent || matches!(onset, Some(What::SchedulerBlocked));
        // Under paging it may not answer in time for a while.
        if self.server.silent_left_s <= 0.0
            && self.paging.factor > 1.0
            && self.random.chance(0.0004 * self.paging.factor)
        {
            self.server.silent_left_s = self.random.between((2.0, 25.0));
        }
        self.server.silent_left_s -= seconds;
        self.server.answers = self.server.id.is_some()
            && self.now_ms >= self.server.answers_at_ms
            && self.server.silent_left_s <= 0.0
            && !silent;
        self.server.loading = self.runners.iter().any(|runner| matches!(runner.phase, Phase::Loading { .. }));
        let locked = self.setup.class == Class::Mlx && self.server.loading;
        self.server.ps_answers = self.server.answers && !blocked && !locked;
        if self.server.id.is_some() && !blocked && self.now_ms >= self.server.answers_at_ms {
            for model in 0..self.queues.len() {
                self.provide_runner(model);
            }
        }
    }

    /// The server goes; its runners follow a little later, but for one.
    fn end_server(&mut self, survivor: Option<Identity>) {
        self.server.id = None;
        self.server.up_at_ms = self.now_ms + ms(self.random.between((1.0, 5.0)));
        self.server.answers_at_ms = self.server.up_at_ms + ms(self.random.between((1.0, 40.0)));
        let mut lost: Vec<usize> =
            self.queues.iter_mut().flat_map(|queue| queue.drain(..)).map(|request| request.client).collect();
        for runner in &mut self.runners {
            runner.owned = false;
            lost.extend(runner.requests().filter(|request| !request.gone).map(|request| request.client));
            for slot in &mut runner.slots {
                if let Some(request) = &mut slot.request {
                    request.gone = true;
                }
            }
            if Some(runner.id) != survivor {
                runner.phase = Phase::Ending { left_s: self.random.between((0.5, 15.0)) };
            }
        }
        for client in lost {
            self.rest(client);
        }
    }

    /// Sees to it that a model with waiting requests has a runner; one load at a time.
    fn provide_runner(&mut self, model: usize) {
        let stays = |runner: &Runner| runner.model == model && runner.owned && runner.listed && !runner.is_dead();
        if self.queues[model].is_empty() || self.runners.iter().any(stays) || self.server.loading {
            return;
        }
        self.runners.retain(|runner| runner.model != model || !runner.is_dead());
        if self.setup.exclusive {
            let mut others = false;
            for runner in &mut self.runners {
                others = true;
                if runner.phase == Phase::Serving && !runner.is_busy() {
                    runner.listed = false;
                    runner.phase = Phase::Ending { left_s: self.random.between((0.5, 10.0)) };
                }
            }
            if others {
                return;
            }
        }
        let stuck = self.random.chance(self.setup.models[model].stuck_loads_share);
        let left_s = if stuck { f64::INFINITY } else { self.random.between(self.setup.models[model].load_s) };
        let runner = self.new_runner(model, Phase::Loading { left_s });
        self.runners.push(runner);
        self.server.loading = true;
    }

    fn new_runner(&mut self, model: usize, phase: Phase) -> Runner {
        self.next_pid += 1;
        let id = Identity { pid: self.next_pid, birth: u64::from(self.next_pid) };
        let mut runner = Runner::new(id, model, &self.setup.models[model], self.wall(), phase);
        runner.busy_until_ms = self.now_ms;
        runner
    }

    fn run_runners(&mut self, seconds: f64) {
        let factor = self.paging.factor;
        let (now_ms, wall) = (self.now_ms, self.wall());
        let waiting_fault = self.setup.fault.filter(|_| self.onset_ms.is_none());
        let mut struck_by = None;
        for runner in &mut self.runners {
            let model = &self.setup.models[runner.model];
            if runner.silent_left_s > 0.0 {
                runner.silent_left_s -= seconds;
            } else if factor > 1.0 && self.random.chance(0.004 * factor) {
                runner.silent_left_s = self.random.between((2.0, 20.0));
            }
            match &mut runner.phase {
                Phase::Loading { left_s } => {
                    *left_s -= seconds / factor;
                    let stuck = left_s.is_infinite();
                    runner.cpu_s += seconds * if stuck { 0.002 } else { self.random.between((0.3, 1.0)) / factor };
                    if *left_s <= 0.0 {
                        runner.phase = Phase::Serving;
                        runner.busy_until_ms = now_ms;
                    } else if stuck && wall - runner.started >= Duration::from_secs_f64(envelope::LOAD_S) {
                        // The server ends it, and whoever waited for it gets an error.
                        runner.phase = Phase::Ending { left_s: 0.0 };
                        self.failures += self.queues[runner.model].len() as u32;
                        self.ended.extend(self.queues[runner.model].drain(..).map(|request| request.client));
                    }
                }
                Phase::Ending { left_s } => {
                    *left_s -= seconds / factor;
                    runner.cpu_s += seconds * 0.002;
                    if *left_s <= 0.0 {
                        for slot in &mut runner.slots {
                            self.ended.extend(
                                slot.request.take().filter(|request| !request.gone).map(|request| request.client),
                            );
                        }
                    }
                }
                Phase::Serving => {
                    let mut struck = false;
                    let mut turn = Turn {
                        class: self.setup.class,
                        now_ms,
                        wall,
                        paging: factor > 1.0,
                        model,
                        queue: &mut self.queues[runner.model],
                        ended: &mut self.ended,
                        random: &mut self.random,
                        fault: waiting_fault.as_ref().filter(|fault| fault.model == runner.model),
                        struck: &mut struck,
                    };
                    runner.advance(seconds, factor, &mut turn);
                    if struck {
                        struck_by = Some(runner.id);
                        if runner.frozen.is_some_and(|look| look.unloading) {
                            runner.unload_asked_ms = Some(now_ms);
                        }
                    }
                    let rested_s = now_ms.saturating_sub(runner.busy_until_ms) as f64 / 1_000.0;
                    let at_rest = runner.frozen.is_none() && !runner.is_busy() && !runner.reset;
                    if at_rest && model.keep_alive_s.is_some_and(|keep_s| rested_s > keep_s) {
                        runner.listed = false;
                        runner.phase = Phase::Ending { left_s: self.random.between((0.2, 8.0)) };
                    }
                    if at_rest && model.ends_every_s.is_some_and(|every_s| self.random.chance(seconds / every_s)) {
                        runner.phase = Phase::Dead { left_s: 300.0 };
                    }
                }
                Phase::Dead { left_s } => *left_s -= seconds,
            }
        }
        self.runners.retain(
            |runner| !matches!(runner.phase, Phase::Ending { left_s } | Phase::Dead { left_s } if left_s <= 0.0),
        );
        if let Some(id) = struck_by {
            self.strike(Culprit::Runner(id));
        }
    }
}

fn ms(seconds: f64) -> u64 {
    (seconds * 1_000.0) as u64
}
