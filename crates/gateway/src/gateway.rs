//! The gateway as a whole: what it is made of, how it begins, follows its configuration, and ends.

use crate::access_log::AccessLog;
use crate::callers::Programs;
use crate::configuration::{Configuration, ConfigurationFile, reaches};
use crate::doorway::Origins;
use crate::front::Front;
use crate::intake::Room;
use crate::keys::Keys;
use crate::listening::{self, Phase, Places};
use crate::queue::{Queue, View};
use crate::upstream::Upstream as Ollama;
use crate::{control, looking};
use stablehand_engine::admission::{Event, Scope, Why};
use stablehand_engine::time::Awake;
use stablehand_platform::control_socket;
use stablehand_platform::files::Stamp;
use stablehand_platform::machine::Machine;
use stablehand_platform::paths::stablehand_files;
use stablehand_protocol::Failure;
use stablehand_protocol::queue::{
    MissingModel, QueueHold, QueueModel, QueueView, RunningRequest, Upstream, WaitingRequest,
};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::watch;

/// How often the configuration file is looked at.
const FOLLOW: Duration = Duration::from_secs(1);

/// A gateway that runs.
#[derive(Debug)]
pub struct Gateway {
    shared: Arc<Shared>,
    machine: Machine,
    tasks: Vec<tokio::task::JoinHandle<()>>,
    _presence: control_socket::Presence,
}

/// What its parts share.
#[derive(Debug)]
pub struct Shared {
    /// What requests share.
    pub front: Arc<Front>,
    /// Whether it goes on.
    pub phases: watch::Sender<Phase>,
    /// Where it listens.
    pub addresses: Vec<SocketAddr>,
    /// What the daemon has told.
    pub told: Told,
    places: Places,
    file: Mutex<ConfigurationFile>,
    configurations: watch::Sender<Arc<Configuration>>,
    origins: watch::Sender<Arc<Origins>>,
    keys: watch::Sender<Arc<Keys>>,
    keys_failure: Mutex<Option<Failure>>,
    uid: u32,
    simulated: Option<String>,
}

/// What the daemon has told, which goes before what the configuration says.
#[derive(Debug, Default)]
pub struct Told {
    inner: Mutex<ToldInner>,
}

#[derive(Clone, Debug, Default, PartialEq)]
struct ToldInner {
    at: Option<Awake>,
    loaded_models: Option<usize>,
    waiting: Option<usize>,
    origins: Vec<String>,
}

impl Told {
    /// It has told something now.
    pub fn note(&self, now: Awake) {
        self.inner().at = Some(now);
    }

    /// Takes in bounds and pages that may ask; says whether they are new.
    pub fn take(&self, upstream: &Upstream) -> bool {
        let count = |told: Option<u64>| told.map(|told| usize::try_from(told).unwrap_or(usize::MAX));
        let mut inner = self.inner();
        let before = inner.clone();
        inner.loaded_models = count(upstream.loaded_models).or(inner.loaded_models);
        inner.waiting = count(upstream.waiting).or(inner.waiting);
        if let Some(origins) = &upstream.origins {
            inner.origins.clone_from(origins);
        }
        before != *inner
    }

    /// When it told something last.
    pub fn last(&self) -> Option<Awake> {
        self.inner().at
    }

    fn inner(&self) -> MutexGuard<'_, ToldInner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Gateway {
    /// Starts a gateway as its configuration says.
    ///
    /// # Errors
    /// When another one runs, its configuration cannot be taken, or an address is not to be had. Nothing was changed
    /// then.
    pub async fn start(machine: Machine) -> Result<Self, Failure> {
        let paths = stablehand_files(&machine);
        let presence = control_socket::claim(&machine, &paths.data_dir.join("gateway-lock"))
            .map_err(|error| already_there(&error))?;
        let file = ConfigurationFile::open(&machine)?;
        let configuration = file.current();
        let keys = Arc::new(keys_of(&configuration, machine.uid())?);
        let places = Places::new(configuration.bounds.connections);
        let mut listeners = Vec::new();
        for address in &configuration.listen {
            listeners.push(listening::open(*address).map_err(|error| not_to_be_had(*address, &error))?);
        }
        let addresses: Vec<SocketAddr> = listeners.iter().filter_map(|listener| listener.local_addr().ok()).collect();
        let socket = control_socket::listen(&machine, &paths.gateway_socket).map_err(|error| no_socket(&error))?;
        let (configurations, configuration_now) = watch::channel(configuration.clone());
        let (origins, origins_now) = watch::channel(Arc::new(Origins::default()));
        let (keys, keys_now) = watch::channel(keys);
        let (phases, phase) = watch::channel(Phase::Open);
        let front = Arc::new(Front {
            configuration: configuration_now,
            origins: origins_now,
            keys: keys_now,
            upstream: Ollama::new(configuration.upstream, places.all()),
            queue: Queue::start(configuration.limits.clone(), machine.clock().clone()),
            programs: Programs::start(machine.clone()),
            room: Room::default(),
            access_log: AccessLog::start(&machine, &paths.log_dir),
            phase: phase.clone(),
            clock: machine.clock().clone(),
            hostname: rustix::system::uname().nodename().to_string_lossy().into_owned(),
        });
        let shared = Arc::new(Shared {
            front: front.clone(),
            phases,
            addresses,
            told: Told::default(),
            places: places.clone(),
            file: Mutex::new(file),
            configurations,
            origins,
            keys,
            keys_failure: Mutex::new(None),
            uid: machine.uid(),
            simulated: machine.simulated().map(|folder| folder.display().to_string()),
        });
        shared.apply();
        shared.tell_slots(&configuration);
        for listener in listeners {
            tokio::spawn(listening::accept(listener, front.clone(), places.clone(), phase.clone()));
        }
        let tasks = vec![
            tokio::spawn(control::serve(socket, machine.uid(), shared.clone())),
            tokio::spawn(follow_configuration(shared.clone())),
            tokio::spawn(watch_holds(front.clone())),
            tokio::spawn(looking::look(shared.clone())),
        ];
        for address in &shared.addresses {
            tracing::info!(%address, upstream = %configuration.upstream, "the gateway listens");
        }
        Ok(Self { shared, machine, tasks, _presence: presence })
    }

    /// Where it listens.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.shared.addresses
    }

    /// Waits until it has left its addresses and served everybody.
    pub async fn left(&self) {
        let mut phase = self.shared.front.phase.clone();
        let _ = phase.wait_for(|phase| *phase != Phase::Open).await;
        self.shared.closed().await;
        self.shared.places.emptied().await;
    }

    /// Ends: it listens no more, what waits is refused, and what runs may end within the time that is set for that.
    pub async fn stop(self) {
        self.shared.phases.send_replace(Phase::Stopping);
        let drain = self.shared.front.configuration.borrow().bounds.drain;
        if tokio::time::timeout(drain, self.shared.places.emptied()).await.is_err() {
            tracing::warn!("requests were still running after {} s; they are broken off", drain.as_secs());
        }
        self.shared.front.access_log.flush().await;
        for task in &self.tasks {
            task.abort();
        }
        control_socket::leave(&stablehand_files(&self.machine).gateway_socket);
    }
}

impl Shared {
    /// Puts into effect what the configuration says and what the daemon has told.
    pub fn apply(&self) {
        let configuration = self.file().current();
        let told = self.told.inner().clone();
        let mut limits = configuration.limits.clone();
        if let Some(models) = told.loaded_models.filter(|_| !configuration.loaded_models_by_hand) {
            limits.loaded_models = models;
        }
        if let Some(waiting) = told.waiting.filter(|_| !configuration.waiting_by_hand) {
            limits.waiting = waiting;
        }
        self.front.queue.tell(Event::Reloaded(Box::new(limits)));
        self.front.access_log.want(configuration.access_log);
        self.origins.send_replace(Arc::new(Origins::new(&told.origins, &configuration.origins)));
        match keys_of(&configuration, self.uid) {
            Ok(keys) => {
                self.keys.send_replace(Arc::new(keys));
                *self.keys_failure() = None;
            }
            Err(failure) => {
                tracing::warn!(code = %failure.code, message = %failure.message, "the keys were not read anew");
                *self.keys_failure() = Some(failure);
            }
        }
        let before = self.configurations.send_replace(configuration.clone());
        // One that it would be itself is taken when it has left its addresses.
        if before.upstream != configuration.upstream && !self.is_own(configuration.upstream) {
            self.front.upstream.moved(configuration.upstream);
        }
    }

    /// Whether what is sent there would come back here.
    pub fn is_own(&self, address: SocketAddr) -> bool {
        *self.phases.borrow() == Phase::Open && self.addresses.iter().any(|own| reaches(*own, address))
    }

    /// It has left its addresses: what is configured there is somebody else now.
    pub fn has_left(&self) {
        let upstream = self.front.configuration.borrow().upstream;
        if self.addresses.iter().any(|own| reaches(*own, upstream)) {
            self.front.upstream.moved(upstream);
        }
    }

    fn own_upstream(&self) -> Option<Failure> {
        let upstream = self.front.configuration.borrow().upstream;
        self.is_own(upstream).then(|| {
            Failure::new(
                "upstream-is-gateway",
                format!(
                    "{upstream} is written as Ollama's address, and the gateway itself listens there; requests go to {} \
                     as before",
                    self.front.upstream.address()
                ),
                "start the gateway anew when its addresses have changed, or set `upstream` in [gateway] right",
            )
        })
    }

    fn waiting_at_most(&self) -> usize {
        let configuration = self.front.configuration.borrow();
        let told = self.told.inner().waiting.filter(|_| !configuration.waiting_by_hand);
        told.unwrap_or(configuration.limits.waiting)
    }

    /// Slots that a person has written down; the daemon's word comes later and goes before it.
    fn tell_slots(&self, before: &Configuration) {
        let now = self.file().current();
        let taken_out = before.slots.keys().filter(|model| !now.slots.contains_key(*model));
        let told = now.slots.iter().map(|(model, slots)| (model, Some(*slots)));
        for (model, slots) in told.chain(taken_out.map(|model| (model, None))) {
            self.front.queue.tell(Event::Slots { model: Arc::from(model.as_str()), slots });
        }
    }

    /// Waits until every address is free.
    pub async fn closed(&self) {
        self.places.closed().await;
    }

    /// Connections that are open.
    pub fn connections(&self) -> usize {
        self.places.taken()
    }

    /// The queue for people and programs; `None` when the gateway ends.
    pub fn view(&self) -> QueueView {
        let View { snapshot, counts, paths } = self.front.queue.view();
        let path = |ticket| paths.get(&ticket).copied().unwrap_or_default().to_owned();
        let now = self.front.clock.now();
        let waiting = snapshot.waiting.iter().map(|one| WaitingRequest {
            id: one.ticket.0,
            model: one.model.to_string(),
            client: one.client.to_string(),
            lane: one.lane.word().to_owned(),
            path: path(one.ticket),
            waited_ms: milliseconds(one.waited),
            position: one.position as u64,
            expected_ms: one.expected.map(milliseconds),
        });
        let running = snapshot.running.iter().map(|one| RunningRequest {
            id: one.ticket.0,
            model: one.model.to_string(),
            client: one.client.to_string(),
            lane: one.lane.word().to_owned(),
            path: path(one.ticket),
            waited_ms: milliseconds(one.waited),
            running_ms: milliseconds(one.running),
        });
        let models = snapshot.models.iter().map(|one| QueueModel {
            model: one.model.to_string(),
            loaded: one.loaded,
            slots: one.slots,
            at_most: one.at_most,
            running: one.running,
            around: one.around,
            waiting: one.waiting as u64,
            service_ms: one.costs.service.map(milliseconds),
            load_ms: one.costs.load.map(milliseconds),
        });
        let holds = snapshot.held.iter().map(|one| QueueHold {
            why: one.why.word().to_owned(),
            model: match &one.scope {
                Scope::All => None,
                Scope::Model(model) => Some(model.to_string()),
            },
            left_ms: one.until.map(|until| milliseconds(until.since(now.awake))),
        });
        let phase = *self.phases.borrow();
        QueueView {
            at: jiff::Timestamp::from_millisecond(now.wall.unix_ms).unwrap_or_default().to_string(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            phase: phase.word().to_owned(),
            listen: match phase {
                Phase::Open => self.addresses.iter().map(ToString::to_string).collect(),
                Phase::Leaving | Phase::Stopping => Vec::new(),
            },
            upstream: self.front.upstream.address().to_string(),
            holds: holds.collect(),
            waiting: waiting.collect(),
            waiting_at_most: self.waiting_at_most() as u64,
            running: running.collect(),
            models: models.collect(),
            switches: snapshot.switches,
            bodies_bytes: self.front.room.used_bytes(),
            missing: counts
                .missing
                .iter()
                .map(|(model, client)| MissingModel { model: model.to_string(), client: client.to_string() })
                .collect(),
            config_failure: (self.file().failure().cloned())
                .or_else(|| self.keys_failure().clone())
                .or_else(|| self.own_upstream()),
            simulated: self.simulated.clone(),
        }
    }

    fn file(&self) -> MutexGuard<'_, ConfigurationFile> {
        self.file.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn keys_failure(&self) -> MutexGuard<'_, Option<Failure>> {
        self.keys_failure.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A span in whole milliseconds.
pub fn milliseconds(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

async fn follow_configuration(shared: Arc<Shared>) {
    let keys = || shared.front.configuration.borrow().keys.as_deref().and_then(Stamp::of);
    let mut keys_before = keys();
    loop {
        tokio::time::sleep(FOLLOW).await;
        let before = shared.file().current();
        let changed = shared.file().follow();
        // A key that was taken out of its file opens nothing any more.
        let keys_now = keys();
        if changed || keys_now != keys_before {
            tracing::info!("the configuration was read anew");
            shared.apply();
        }
        if changed {
            shared.tell_slots(&before);
        }
        keys_before = keys_now;
    }
}

/// What a hold of all requests means beside the queue.
async fn watch_holds(front: Arc<Front>) {
    let mut holds = front.queue.holds();
    loop {
        let now = holds.borrow_and_update().clone();
        if now.contains(&Why::Restart) || now.contains(&Why::Upgrade) {
            // What comes after it is another server.
            front.upstream.moved(front.upstream.address());
        }
        if now.contains(&Why::Unreachable) {
            let back = front.upstream.answers_again();
            tokio::select! {
                () = back => front.queue.tell(Event::Release { why: Why::Unreachable, scope: Scope::All }),
                changed = holds.changed() => match changed {
                    Ok(()) => continue,
                    Err(_) => return,
                },
            }
        }
        // Where the release was just told, it is the next change.
        if holds.changed().await.is_err() {
            return;
        }
    }
}

fn keys_of(configuration: &Configuration, uid: u32) -> Result<Keys, Failure> {
    let Some(path) = &configuration.keys else { return Ok(Keys::default()) };
    Keys::read(path, uid).map_err(|error| {
        Failure::new(
            "bad-keys",
            format!("{} {error}", path.display()),
            "the file holds lines NAME = \"KEY\" and has mode 0600; `keys` in [gateway] names it",
        )
    })
}

fn already_there(error: &control_socket::ClaimError) -> Failure {
    match error {
        control_socket::ClaimError::Held { holder } => {
            let who = holder.map_or_else(String::new, |pid| format!(" (pid {pid})"));
            Failure::new(
                "gateway-already-running",
                format!("a gateway already runs for this user{who}; this one ends, nothing was changed"),
                "use it: `stablehand queue`",
            )
        }
        control_socket::ClaimError::Unwritable { path, reason } => Failure::new(
            "lock-unwritable",
            format!("the lock file {} cannot be made: {reason}; no gateway was started", path.display()),
            "see that its folder belongs to you and can be written",
        ),
    }
}

fn no_socket(error: &control_socket::SocketError) -> Failure {
    Failure::new(
        "socket-unusable",
        format!("{error}; no gateway was started"),
        "see that its folder belongs to you and can be written",
    )
}

fn not_to_be_had(address: SocketAddr, error: &std::io::Error) -> Failure {
    let hint = if error.kind() == std::io::ErrorKind::AddrInUse {
        "somebody listens there already (`stablehand doctor` says who); `listen` in [gateway] names the addresses"
    } else {
        "`listen` in [gateway] of the configuration names the addresses"
    };
    Failure::new(
        "address-not-to-be-had",
        format!("{address} cannot be listened on: {error}; no gateway was started"),
        hint,
    )
}
