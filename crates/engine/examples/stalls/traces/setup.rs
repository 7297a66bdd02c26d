//! What a trace is made of: the machine, its models, who asks them what, and what goes wrong.

use crate::envelope;
use crate::random::Random;

/// Constants of models, in tokens per second.
pub const PREFILL: Span = envelope::under_noise(envelope::PREFILL_TOKENS_PER_S);
pub const GENERATION: Span = envelope::under_noise(envelope::GENERATION_TOKENS_PER_S);

/// What can be seen of progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// `llama-server` of 0.30 and newer: slots and the decode counter.
    Llama,
    /// MLX: progress lines of prefill in the log, and a line when a request ends.
    Mlx,
    /// 0.24 and older, behind a gateway: bytes and tickets.
    Gateway,
    /// 0.24 and older alone: nothing.
    Blind,
}

impl Class {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Llama, Self::Mlx, Self::Gateway, Self::Blind];

    /// Its name in the report.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Llama => "0.30+",
            Self::Mlx => "MLX",
            Self::Gateway => "≤0.24 with gateway",
            Self::Blind => "≤0.24 without",
        }
    }

    /// Whether anything tells of progress.
    pub const fn shows_progress(self) -> bool {
        match self {
            Self::Llama | Self::Mlx | Self::Gateway => true,
            Self::Blind => false,
        }
    }
}

/// A range to draw from.
pub type Span = (f64, f64);

/// A machine with its work.
#[derive(Clone)]
pub struct Setup {
    pub class: Class,
    pub models: Vec<Model>,
    /// Only one model is loaded at a time.
    pub exclusive: bool,
    pub clients: Vec<Client>,
    pub paging: Paging,
    pub sights: Sights,
    /// Seconds awake between sleeps, and how long it sleeps.
    pub sleeps: Option<(Span, Span)>,
    /// The clock is set back by an hour now and then.
    pub clock_set_back: bool,
    /// Seconds between restarts of the server.
    pub server_restarts_every_s: Option<Span>,
    /// Seconds between 5xx answers that mean nothing.
    pub failures_every_s: Option<Span>,
    /// The watcher begins to look only now.
    pub first_look_s: f64,
    pub fault: Option<Fault>,
}

/// A model on this machine.
#[derive(Clone)]
pub struct Model {
    pub name: String,
    pub prefill_tokens_per_s: f64,
    pub slowdown_at_end: f64,
    pub batch_tokens: u64,
    pub generation_tokens_per_s: f64,
    pub slots: usize,
    pub load_s: Span,
    /// Share of its loads that get stuck, until the server gives them up.
    pub stuck_loads_share: f64,
    /// Unloaded after this rest; `None` for never.
    pub keep_alive_s: Option<f64>,
    /// Cores that it keeps busy in prefill and in generation.
    pub cpu: (f64, f64),
    pub embedding: bool,
    pub loaded: bool,
    /// Ends by itself at rest, every so many seconds.
    pub ends_every_s: Option<f64>,
}

/// Who asks.
#[derive(Clone)]
pub struct Client {
    pub model: usize,
    pub first_after_s: Span,
    pub rest_s: Span,
    pub prompt: Prompt,
    pub answer_tokens: Span,
    /// Share of its answers that are one token long.
    pub one_token_share: f64,
    pub image_s: Option<Span>,
    /// How long it waits before it leaves.
    pub patience_s: Option<Span>,
    /// Share of its answers in which it stops reading.
    pub stops_reading_share: f64,
    pub streams: bool,
}

/// What a client sends.
#[derive(Clone, Copy)]
pub enum Prompt {
    /// Something new each time.
    Fresh(Span),
    /// A growing conversation, of which all but the last turn is cached.
    Thread { first: Span, turn: Span },
    /// A little behind a long cached beginning.
    Far { cached: Span, new: Span },
}

/// When the machine pages.
#[derive(Clone, Copy)]
pub enum Paging {
    /// Never.
    None,
    /// By turns, for so many seconds, then quiet for so many, with that factor.
    Bursts { on_s: Span, off_s: Span, factor: Span },
    /// Pages move, and nothing is slower for it.
    Harmless,
}

/// What cannot be read, or reads oddly.
#[derive(Clone, Copy)]
pub struct Sights {
    pub swap_unknown: bool,
    pub cpu_unknown: bool,
    pub gpu_shown: bool,
    pub cpu_only: bool,
    /// `/metrics` is not switched on.
    pub no_decode_counter: bool,
    /// An older build, in which `/slots` waits for the end of the batch.
    pub slots_wait_for_batch: bool,
}

/// What goes wrong, once.
#[derive(Clone, Copy)]
pub struct Fault {
    pub what: What,
    /// Not before this many seconds.
    pub after_s: f64,
    /// Only while the machine pages (or does not).
    pub paging: Option<bool>,
    /// The model whose runner it hits.
    pub model: usize,
}

/// The faults.
#[derive(Clone, Copy)]
pub enum What {
    /// A step of the decode loop never ends.
    Stuck { moment: Moment, look: Look },
    /// Requests end at once without text.
    EmptyAnswers,
    /// A runner stays after it was unloaded.
    Resident,
    /// The server dies, its runner lives on.
    Orphan,
    /// The server answers nothing.
    ServerSilent,
    /// The server's scheduler is blocked.
    SchedulerBlocked,
    /// Every request fails.
    EverythingFails,
}

/// In which work a runner gets stuck.
#[derive(Clone, Copy, PartialEq)]
pub enum Moment {
    /// In a prompt, with at least this much of it done.
    Prefill { done: u64 },
    /// While it generates.
    Generation,
    /// Before the first prompt token of a request (in an image, where there is one).
    FirstBatch,
    /// In a prompt, while others generate.
    Shared,
}

/// How a stuck runner looks from outside.
#[derive(Clone, Copy, PartialEq)]
pub struct Look {
    /// Cores that it keeps busy.
    pub cores: f64,
    pub gpu_percent: u32,
    /// The HTTP side is dead too.
    pub silent: bool,
    /// Stopped by a signal.
    pub stopped: bool,
    /// The server has been told to unload it.
    pub unloading: bool,
}

impl Setup {
    /// An ordinary machine of this class: one model, two chats.
    pub fn ordinary(class: Class, random: &mut Random) -> Self {
        let cpu_only = random.chance(0.25);
        let sights = Sights {
            swap_unknown: false,
            cpu_unknown: false,
            gpu_shown: random.chance(0.5),
            cpu_only,
            no_decode_counter: false,
            slots_wait_for_batch: false,
        };
        let model = Model::any(class, cpu_only, random);
        Self {
            class,
            models: vec![model],
            exclusive: false,
            clients: vec![Client::chat(0), Client::chat(0)],
            paging: Paging::None,
            sights,
            sleeps: None,
            clock_set_back: false,
            server_restarts_every_s: None,
            failures_every_s: None,
            first_look_s: 0.0,
            fault: None,
        }
    }

    /// The first model.
    pub fn model(&mut self) -> &mut Model {
        &mut self.models[0]
    }

    /// Adds a model that is drawn like the first.
    pub fn add_model(&mut self, name: &str, random: &mut Random) -> usize {
        let mut model = Model::any(self.class, self.sights.cpu_only, random);
        model.name = name.to_owned();
        self.models.push(model);
        self.models.len() - 1
    }
}

impl Model {
    fn any(class: Class, cpu_only: bool, random: &mut Random) -> Self {
        let prefill_tokens_per_s = random.scaled(PREFILL);
        let fastest = (prefill_tokens_per_s / 2.0).clamp(1.0, GENERATION.1);
        let cpu = if cpu_only {
            let cores = random.between((2.0, 16.0));
            (cores, cores * random.between((0.7, 1.0)))
        } else {
            (random.between((0.05, 0.6)), random.between((0.2, 1.0)))
        };
        Self {
            name: "qwen3:30b".to_owned(),
            prefill_tokens_per_s,
            slowdown_at_end: random.between((1.0, envelope::SLOWDOWN_AT_END)),
            batch_tokens: match class {
                Class::Mlx => envelope::MLX_BATCH_TOKENS,
                Class::Llama | Class::Gateway | Class::Blind => random.choice(&envelope::BATCH_TOKENS),
            },
            generation_tokens_per_s: random.scaled((GENERATION.0, fastest)),
            slots: match class {
                Class::Mlx => 1,
                Class::Llama | Class::Gateway | Class::Blind => random.choice(&[1, 1, 2, 4]),
            },
            load_s: (5.0, 60.0),
            stuck_loads_share: 0.0,
            keep_alive_s: None,
            cpu,
            embedding: false,
            loaded: true,
            ends_every_s: None,
        }
    }
}

impl Client {
    /// A conversation.
    pub fn chat(model: usize) -> Self {
        Self {
            model,
            first_after_s: (1.0, 60.0),
            rest_s: (5.0, 240.0),
            prompt: Prompt::Thread { first: (200.0, 4_000.0), turn: (50.0, 800.0) },
            answer_tokens: (20.0, 400.0),
            one_token_share: 0.05,
            image_s: None,
            patience_s: None,
            stops_reading_share: 0.0,
            streams: true,
        }
    }

    /// One that sends something new each time.
    pub fn fresh(model: usize, prompt: Span, rest_s: Span) -> Self {
        Self { prompt: Prompt::Fresh(prompt), rest_s, ..Self::chat(model) }
    }
}
