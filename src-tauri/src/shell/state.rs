//! What the program knows, behind one lock that is never held while anything is waited for.

use crate::choices;
use crate::face::words::{Language, Words};
use crate::link::{Connection, Moment, Seen};
use crate::place::Place;
use crate::popover::{self, Popover};
use stablehand_protocol::client::Client;
use stablehand_protocol::client::gateway::Gateway;
use stablehand_protocol::face::{Choices, Link, Matter, Title, View};
use stablehand_protocol::queue::QueueView;
use stablehand_protocol::{Failure, Known, Snapshot};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::{Notify, watch};

/// Older failures are of no use to anybody.
const FAILURES_KEPT: usize = 5;
/// So many notifications may wait for the daemon's first answer.
const NOTICES_OWED: usize = 8;

/// The program.
#[derive(Debug)]
pub struct Tray {
    /// Where things lie.
    pub place: Place,
    /// The way to the daemon.
    pub client: Client,
    /// The way to the gateway.
    pub gateway: Gateway,
    /// Wakes the task that follows the daemon out of its wait.
    pub poke: Notify,
    /// Wakes the task that follows the gateway: it may have come, gone or changed.
    pub poke_gateway: Notify,
    /// Whether somebody looks at numbers that change all the time.
    pub looked_at: watch::Sender<bool>,
    began: Instant,
    model: Mutex<Model>,
}

#[derive(Debug)]
struct Model {
    connection: Connection,
    queue: Option<Known<Box<QueueView>>>,
    choices: Choices,
    words: Arc<Words>,
    failures: Vec<Failure>,
    matter: Option<Matter>,
    popover: Popover,
    owed_notices: Vec<String>,
}

impl Tray {
    /// Before anything is known.
    pub fn new(place: Place) -> Self {
        let choices = choices::read(&place);
        Self {
            client: Client::new(&place.control_socket),
            gateway: Gateway::new(&place.gateway_socket),
            poke: Notify::new(),
            poke_gateway: Notify::new(),
            looked_at: watch::Sender::new(shows_numbers(&choices)),
            began: Instant::now(),
            model: Mutex::new(Model {
                connection: Connection::new(),
                queue: None,
                words: Arc::new(words(&choices)),
                choices,
                failures: vec![],
                matter: None,
                popover: Popover::new(),
                owed_notices: vec![],
            }),
            place,
        }
    }

    /// No code panics while it holds the lock; if it did, what is in it would still be the last whole state.
    fn model(&self) -> MutexGuard<'_, Model> {
        self.model.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How long the program runs.
    pub fn now(&self) -> Duration {
        self.began.elapsed()
    }

    /// Whether the machine is a simulated one.
    pub fn is_simulated(&self) -> bool {
        self.place.world.is_some()
    }

    /// What is to be shown.
    pub fn view(&self) -> View {
        let model = self.model();
        View {
            link: model.connection.link().clone(),
            queue: model.queue.clone(),
            choices: model.choices.clone(),
            failures: model.failures.clone(),
            matter: model.matter.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            system: self.place.system.word().to_owned(),
        }
    }

    /// The words of the person's language.
    pub fn words(&self) -> Arc<Words> {
        self.model().words.clone()
    }

    /// Takes in what was seen of the daemon.
    pub fn saw(&self, seen: Seen) {
        let now = Moment { since_start: self.now(), wall: jiff::Timestamp::now().to_string() };
        self.model().connection.step(&now, seen);
    }

    /// Takes in what was seen of the gateway's queue; whether that is news.
    pub fn saw_queue(&self, queue: Option<Known<Box<QueueView>>>) -> bool {
        let mut model = self.model();
        let news = model.queue != queue;
        model.queue = queue;
        news
    }

    /// How long to wait before the daemon is tried again.
    pub fn retry_after(&self) -> Duration {
        self.model().connection.retry_after()
    }

    /// The daemon may have come or gone just now.
    pub fn hope(&self) {
        self.model().connection.hope();
        self.poke.notify_one();
    }

    /// The newest snapshot, while there is a connection.
    fn snapshot_of(model: &Model) -> Option<&Snapshot> {
        match model.connection.link() {
            Link::Live { snapshot } => Some(snapshot),
            Link::Connecting | Link::Reconnecting { .. } | Link::Absent | Link::OtherVersion { .. } => None,
        }
    }

    /// Where the daemon says that its configuration lies.
    pub fn config_path(&self) -> Option<PathBuf> {
        let model = self.model();
        Self::snapshot_of(&model).map(|snapshot| PathBuf::from(&snapshot.config.path))
    }

    /// The choices.
    pub fn choices(&self) -> Choices {
        self.model().choices.clone()
    }

    /// Takes other choices over.
    pub fn choose(&self, choices: Choices) {
        let mut model = self.model();
        model.words = Arc::new(words(&choices));
        model.choices = choices;
        self.look(&model);
    }

    fn look(&self, model: &Model) {
        let looked_at = model.popover.is_shown() || shows_numbers(&model.choices);
        self.looked_at.send_if_modified(|before| std::mem::replace(before, looked_at) != looked_at);
    }

    /// Keeps a failure until it was read. One of the same code takes the place of the one before.
    pub fn fail(&self, failure: Failure) {
        let mut model = self.model();
        model.failures.retain(|other| other.code != failure.code);
        model.failures.push(failure);
        let surplus = model.failures.len().saturating_sub(FAILURES_KEPT);
        model.failures.drain(..surplus);
    }

    /// A failure of this code is over.
    pub fn mended(&self, code: &str) {
        self.model().failures.retain(|failure| failure.code != code);
    }

    /// Everything was read.
    pub fn dismiss(&self) {
        let mut model = self.model();
        model.failures.clear();
        model.matter = None;
    }

    /// What the person comes for; `None` leaves what is there.
    pub fn set_matter(&self, matter: Option<Matter>) {
        if matter.is_some() {
            self.model().matter = matter;
        }
    }

    /// Steps the popover's life.
    pub fn step_popover(&self, event: popover::Event) -> Option<popover::Act> {
        let now = self.now();
        let mut model = self.model();
        let act = model.popover.step(now, event);
        if act == Some(popover::Act::Hide) {
            model.matter = None;
        }
        self.look(&model);
        act
    }

    /// Whether the popover can be seen.
    pub fn is_popover_shown(&self) -> bool {
        self.model().popover.is_shown()
    }

    /// Whether the popover stays when the focus goes elsewhere.
    #[cfg(target_os = "linux")]
    pub fn keep_popover(&self, stays: bool) {
        self.model().popover.stay(stays);
    }

    /// A notification was asked for.
    pub fn owe_notice(&self, kind: String) {
        let mut model = self.model();
        if model.owed_notices.len() < NOTICES_OWED && !model.owed_notices.contains(&kind) {
            model.owed_notices.push(kind);
        }
    }

    /// The notifications that were asked for and can be put in words now; they are no longer owed then.
    pub fn owed_notices(&self) -> Option<(Vec<String>, Snapshot)> {
        let mut model = self.model();
        if model.owed_notices.is_empty() {
            return None;
        }
        let snapshot = Self::snapshot_of(&model)?.clone();
        Some((std::mem::take(&mut model.owed_notices), snapshot))
    }
}

fn words(choices: &Choices) -> Words {
    Words::of(Language::of(choices.language.as_deref(), sys_locale::get_locale().as_deref()))
}

/// Whether a number stands beside the icon.
fn shows_numbers(choices: &Choices) -> bool {
    match choices.title {
        Title::Off => false,
        Title::Memory | Title::Queue => true,
    }
}
