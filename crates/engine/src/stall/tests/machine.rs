//! A machine with a server and runners, looked at once a second.

use crate::Known;
use crate::process::{Belonging, Identity, RunnerKind};
use crate::stall::evidence::{
    FinishedRequest, Health, Listing, LogProgress, MachineSeen, Observation, ProcessState, RunnerSeen, ServerSeen,
    SlotSeen, Waiting,
};
use crate::stall::{Judgement, Rung, Verdict, Watcher};
use crate::time::{Awake, Now, Wall};
use std::collections::VecDeque;
use std::time::Duration;

/// "Never" as `/api/ps` writes it.
pub const FOR_EVER: Wall = Wall::from_unix_ms(11_000_000_000_000);

/// One request.
#[derive(Clone, Copy, Debug)]
pub struct Job {
    pub cached: u64,
    pub prompt: u64,
    pub image_s: f64,
    pub answer: u64,
}

impl Job {
    pub fn text(prompt: u64, answer: u64) -> Self {
        Self { cached: 0, prompt, image_s: 0.0, answer }
    }
}

#[derive(Clone, Debug, Default)]
pub struct Slot {
    pub task: u64,
    pub job: Option<Job>,
    pub image_left_s: f64,
    pub done: u64,
    pub generated: u64,
}

impl Slot {
    fn reads(&self) -> bool {
        self.job.is_some_and(|job| self.done < job.prompt)
    }

    fn writes(&self) -> bool {
        self.job.is_some_and(|job| self.done >= job.prompt)
    }
}

/// A runner of one model on this machine.
#[derive(Clone, Debug)]
pub struct Runner {
    pub seen: RunnerSeen,
    pub tokens_per_s: f64,
    pub far_factor: f64,
    pub batch: u64,
    pub token_s: f64,
    pub slots: Vec<Slot>,
    pub queue: VecDeque<Job>,
    /// Nothing moves any more.
    pub stuck: bool,
    /// Cores that it uses while stuck.
    pub stuck_cores: f64,
    /// `/slots` cannot be read.
    pub unreadable: bool,
    step: Option<(Vec<(usize, u64)>, f64)>,
    cpu_s: f64,
    pub decodes: u64,
    pub metrics: bool,
    tasks: u64,
}

pub struct Machine {
    pub watcher: Watcher,
    pub runners: Vec<Runner>,
    pub server: ServerSeen,
    pub machine: MachineSeen,
    /// How many times slower paging makes everything now.
    pub paging: f64,
    pub awake_ms: u64,
    pub wall_ms: i64,
    pub judged: Vec<Judgement>,
    /// Every rung that was ever allowed, with the second.
    pub rungs: Vec<(u64, Identity, Rung)>,
    pub words: Vec<&'static str>,
}

impl Machine {
    pub fn new() -> Self {
        let server = Identity { pid: 10, birth: 10 };
        let mut machine = Self {
            watcher: Watcher::new(),
            runners: vec![],
            server: ServerSeen {
                id: Some(server),
                answers: true,
                ps_answers: Known::Is(true),
                loading: false,
                waiting: Waiting::default(),
                oldest_wait: Known::unknown("nothing waits"),
                failures: 0,
                successes: 0,
            },
            machine: MachineSeen {
                swap_in_bytes_per_s: Some(0.0),
                swap_out_bytes_per_s: Some(0.0),
                pressure: Some(1),
                gpu_percent: None,
                throttled: Some(false),
            },
            paging: 1.0,
            awake_ms: 1_000_000,
            wall_ms: 1_764_000_000_000,
            judged: vec![],
            rungs: vec![],
            words: vec![],
        };
        machine.add("qwen3:8b", 1);
        machine
    }

    pub fn add(&mut self, model: &str, slots: usize) -> usize {
        let pid = 100 + u32::try_from(self.runners.len()).unwrap();
        let seen = RunnerSeen {
            id: Identity { pid, birth: u64::from(pid) },
            kind: RunnerKind::LlamaServer,
            model: Known::Is(model.to_owned()),
            belongs: self.server.id.map_or(Belonging::LeftBehind, Belonging::Server),
            paged_in_bytes_per_s: Some(0.0),
            started: Wall::from_unix_ms(self.wall_ms),
            state: ProcessState::Alive,
            cpu: Known::Is(Duration::ZERO),
            footprint_bytes: Known::Is(8_000_000_000),
            health: Health::Ok,
            slots: Known::unknown("not asked"),
            decode_total: Known::unknown("metrics are off"),
            log_progress: None,
            finished: vec![],
            listed: Known::Is(Listing::Until(FOR_EVER)),
            tickets: None,
            gateway_bytes: None,
        };
        self.runners.push(Runner {
            seen,
            tokens_per_s: 500.0,
            far_factor: 2.0,
            batch: 2_048,
            token_s: 0.05,
            slots: vec![Slot::default(); slots],
            queue: VecDeque::new(),
            stuck: false,
            stuck_cores: 0.01,
            unreadable: false,
            step: None,
            cpu_s: 0.0,
            decodes: 0,
            metrics: true,
            tasks: 0,
        });
        self.runners.len() - 1
    }

    pub fn now(&self) -> Now {
        Now { awake: Awake::from_start(Duration::from_millis(self.awake_ms)), wall: Wall::from_unix_ms(self.wall_ms) }
    }

    pub fn run_for(&mut self, seconds: u64) {
        for _ in 0..seconds {
            self.tick(1.0);
        }
    }

    /// Runs until the first runner's verdict has this word; panics after a day.
    pub fn run_until(&mut self, word: &str) -> Judgement {
        for _ in 0..86_400 {
            self.tick(1.0);
            if let Some(judgement) = self.judged.iter().find(|judgement| judgement.verdict.word() == word) {
                return judgement.clone();
            }
        }
        panic!("never {word}: {:?}", self.judged)
    }

    pub fn tick(&mut self, seconds: f64) {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "small spans of a test")]
        let ms = (seconds * 1_000.0) as u64;
        self.awake_ms += ms;
        self.wall_ms += i64::try_from(ms).unwrap();
        let rate = if self.paging > 1.0 { 40_000_000.0 } else { 0.0 };
        if self.machine.swap_in_bytes_per_s.is_some() {
            self.machine.swap_in_bytes_per_s = Some(rate);
        }
        let wall = Wall::from_unix_ms(self.wall_ms);
        for runner in &mut self.runners {
            runner.advance(seconds / self.paging, seconds, wall);
        }
        self.look();
    }

    pub fn look(&mut self) {
        let observation = Observation {
            runners: self.runners.iter().map(|runner| runner.seen.clone()).collect(),
            server: self.server.clone(),
            machine: self.machine,
        };
        self.judged = self.watcher.observe(self.now(), &observation);
        for judgement in &self.judged {
            if self.words.last() != Some(&judgement.verdict.word()) {
                self.words.push(judgement.verdict.word());
            }
            if let Some(rung) = judgement.may_recover {
                self.rungs.push((self.awake_ms / 1_000, judgement.subject.id(), rung));
            }
        }
        (self.server.failures, self.server.successes) = (0, 0);
    }

    pub fn verdict(&self, number: usize) -> &Verdict {
        &self.judgement(number).verdict
    }

    pub fn judgement(&self, number: usize) -> &Judgement {
        let id = self.runners[number].seen.id;
        self.judged.iter().find(|judgement| judgement.subject.id() == id).expect("each runner is judged")
    }

    pub fn server_verdict(&self) -> &Verdict {
        let id = self.server.id.expect("there is a server");
        &self.judged.iter().find(|judgement| judgement.subject.id() == id).expect("the server is judged").verdict
    }

    /// The machine sleeps: the calendar goes on, awake time does not.
    pub fn sleep(&mut self, hours: i64) {
        self.wall_ms += hours * 3_600_000;
        let now = self.now();
        self.watcher.woke(now);
    }
}

impl Runner {
    pub fn is_busy(&self) -> bool {
        self.slots.iter().any(|slot| slot.job.is_some())
    }

    fn advance(&mut self, mut work_s: f64, seconds: f64, wall: Wall) {
        if self.stuck {
            self.cpu_s += seconds * self.stuck_cores;
        } else {
            while work_s > 0.0 {
                if self.step.is_none() {
                    self.begin();
                }
                let Some((parts, need_s)) = self.step.take() else { break };
                let part = need_s.min(work_s);
                self.cpu_s += part * if parts.is_empty() { 0.9 } else { 0.4 };
                work_s -= part;
                if need_s > part {
                    self.step = Some((parts, need_s - part));
                } else {
                    self.complete(&parts, wall);
                }
            }
        }
        self.show();
    }

    fn begin(&mut self) {
        for slot in &mut self.slots {
            if slot.job.is_none()
                && let Some(job) = self.queue.pop_front()
            {
                self.tasks += 1;
                *slot = Slot { task: self.tasks, job: Some(job), image_left_s: job.image_s, done: 0, generated: 0 };
            }
        }
        if !self.is_busy() {
            return;
        }
        let images: f64 = self.slots.iter_mut().map(|slot| std::mem::take(&mut slot.image_left_s)).sum();
        let mut parts = vec![];
        let mut room = self.batch;
        let mut need_s = images;
        for (number, slot) in self.slots.iter().enumerate().filter(|(_, slot)| slot.reads()) {
            let job = slot.job.expect("it reads");
            let tokens = room.min(job.prompt - slot.done);
            room -= tokens;
            if tokens > 0 {
                let middle = (job.cached + slot.done + tokens / 2) as f64;
                let slower = 1.0 + (self.far_factor - 1.0) * middle / 131_072.0;
                need_s += tokens as f64 / self.tokens_per_s * slower;
                parts.push((number, tokens));
            }
        }
        if self.slots.iter().any(Slot::writes) {
            need_s += self.token_s;
        }
        self.step = Some((parts, need_s));
    }

    fn complete(&mut self, parts: &[(usize, u64)], wall: Wall) {
        self.decodes += 1;
        for slot in self.slots.iter_mut().filter(|slot| slot.writes()) {
            slot.generated += 1;
        }
        for (number, tokens) in parts {
            self.slots[*number].done += tokens;
            if self.seen.kind == RunnerKind::Mlx
                && let Some(job) = self.slots[*number].job
            {
                let total = job.prompt;
                let done = self.slots[*number].done.min(total - 1);
                self.seen.log_progress = Some(LogProgress {
                    at: wall,
                    prompt_tokens_done: done,
                    prompt_tokens_total: Some(total),
                    tokens_generated: 0,
                });
            }
        }
        for slot in &mut self.slots {
            if slot.job.is_some_and(|job| slot.done >= job.prompt && slot.generated >= job.answer) {
                let tokens_generated = slot.generated;
                slot.job = None;
                // The line that ends a request of an MLX runner says that it has ended, and nothing more.
                if self.seen.kind == RunnerKind::Mlx {
                    self.seen.log_progress = None;
                    continue;
                }
                self.seen.finished.push(FinishedRequest { at: wall, tokens_generated, cancelled: false });
                if self.seen.finished.len() > 8 {
                    self.seen.finished.remove(0);
                }
            }
        }
    }

    /// The client of a slot leaves.
    pub fn cancel(&mut self, number: usize) {
        self.slots[number].job = None;
    }

    pub fn show(&mut self) {
        self.seen.cpu = Known::Is(Duration::from_secs_f64(self.cpu_s));
        if self.seen.kind != RunnerKind::LlamaServer {
            return;
        }
        if self.unreadable || self.seen.health == Health::Loading {
            self.seen.slots = Known::unknown("no answer within 1 s");
            self.seen.decode_total = Known::unknown("no answer within 1 s");
            return;
        }
        if self.metrics {
            self.seen.decode_total = Known::Is(self.decodes);
        }
        let slots = self.slots.iter().enumerate().map(|(number, slot)| SlotSeen {
            id: u32::try_from(number).unwrap(),
            task: (slot.task > 0).then_some(slot.task),
            busy: slot.job.is_some(),
            prompt_tokens_done: slot.done,
            prompt_tokens_cached: slot.job.map_or(0, |job| job.cached),
            tokens_generated: slot.generated,
            prompt_tokens_total: None,
        });
        self.seen.slots = Known::Is(slots.collect());
    }
}
