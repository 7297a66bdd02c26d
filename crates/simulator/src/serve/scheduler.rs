//! Which models are loaded and who may use them (`server/sched.go`).
//!
//! Two queues: requests that need a load decision wait in a bounded one that a
//! single task works off, one load at a time; requests for a loaded model wait
//! for a slot without any bound.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Mutex as AsyncMutex, Notify, Semaphore, mpsc, oneshot};

use super::environment::Environment;
use super::library::Stored;
use super::log::{Log, Phase};
use super::{completion, disturbance, loading};
use crate::faults::Fault;
use crate::process_table;
use crate::world::World;

/// How long a runner may take to answer a ping before it is given up.
const PING_LIMIT: Duration = Duration::from_secs(10);
/// Models at once when the setting is 0, per GPU.
const AUTOMATIC_MODELS: usize = 3;
/// Far future for models that stay for ever, in Unix ms (year 2318).
const FOREVER_MS: i64 = 11_000_000_000_000;

/// What a request needs.
#[derive(Clone, Debug)]
pub struct Want {
    /// The model.
    pub stored: Stored,
    /// Context of one slot, in tokens.
    pub context: u64,
    /// Whether the context was chosen by memory and may shrink.
    pub context_is_automatic: bool,
    /// Other load options, as text to compare.
    pub options: String,
    /// Keep-alive of this request: `None` if it names none, `Some(None)` for ever.
    pub keep_alive: Option<Option<Duration>>,
}

/// Why a request gets no runner.
#[derive(Debug)]
pub enum Refused {
    /// The bounded queue is full.
    QueueFull,
    /// The load failed.
    LoadFailed(String),
}

/// A loaded model's process.
#[derive(Debug)]
pub struct Runner {
    /// The model.
    pub stored: Stored,
    /// Context of one slot.
    pub context: u64,
    /// Slots.
    pub slots: u64,
    /// Load options.
    pub options: String,
    /// Process id.
    pub pid: i32,
    /// Port.
    pub port: u16,
    /// One permit per slot; waiters are not counted anywhere. The MLX engine
    /// queues requests itself.
    pub gate: Arc<Semaphore>,
    /// Set when the process ended.
    pub exited: Arc<AtomicBool>,
    /// Held during a ping, so that `/api/ps` waits too.
    pub reference_lock: AsyncMutex<()>,
    /// When an idle runner goes, world Unix ms.
    pub expires_ms: AtomicI64,
    references: AtomicUsize,
    timer: AtomicU64,
    session: Mutex<Option<Duration>>,
}

impl Runner {
    /// A runner that has just become ready.
    #[expect(clippy::too_many_arguments, reason = "the facts of one load")]
    pub fn new(
        stored: Stored,
        context: u64,
        slots: u64,
        options: String,
        pid: i32,
        port: u16,
        exited: Arc<AtomicBool>,
        session: Option<Duration>,
    ) -> Self {
        let permits = if stored.model.is_mlx() { Semaphore::MAX_PERMITS } else { slots as usize };
        Self {
            stored,
            context,
            slots,
            options,
            pid,
            port,
            gate: Arc::new(Semaphore::new(permits)),
            exited,
            reference_lock: AsyncMutex::new(()),
            expires_ms: AtomicI64::new(0),
            references: AtomicUsize::new(0),
            timer: AtomicU64::new(0),
            session: Mutex::new(session),
        }
    }

    /// Memory of the runner.
    pub fn bytes(&self) -> u64 {
        self.stored.model.loaded_bytes(self.context, self.slots)
    }

    fn is_idle(&self) -> bool {
        self.references.load(Ordering::SeqCst) == 0
    }

    fn session(&self) -> MutexGuard<'_, Option<Duration>> {
        self.session.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The right to use a runner; gives it back when dropped.
#[derive(Debug)]
pub struct Lease {
    /// The runner.
    pub runner: Arc<Runner>,
    scheduler: Arc<Scheduler>,
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.scheduler.finished(&self.runner);
    }
}

struct Pending {
    want: Want,
    phase: Arc<Mutex<Phase>>,
    reply: oneshot::Sender<Result<Lease, Refused>>,
}

/// The scheduler of one server.
#[derive(Debug)]
pub struct Scheduler {
    /// The machine.
    pub world: Arc<World>,
    /// Effective settings.
    pub environment: Environment,
    /// The log.
    pub log: Log,
    /// Version of the server.
    pub version: String,
    /// Pid of a runner that is still loading, 0 if none.
    pub loading_pid: AtomicI64,
    /// Held while an MLX model is loaded.
    pub mlx_load: AsyncMutex<()>,
    loaded: Mutex<HashMap<String, Arc<Runner>>>,
    queue: mpsc::Sender<Pending>,
    pump_is_idle: AtomicBool,
    unloaded: Notify,
}

impl Scheduler {
    /// Starts the task that works off the bounded queue.
    pub fn start(world: Arc<World>, environment: Environment, log: Log, version: String) -> Arc<Self> {
        let capacity = environment.max_queue.clamp(1, 1 << 24) as usize;
        let (queue, receiver) = mpsc::channel(capacity);
        let scheduler = Arc::new(Self {
            world,
            environment,
            log,
            version,
            loading_pid: AtomicI64::new(0),
            mlx_load: AsyncMutex::new(()),
            loaded: Mutex::new(HashMap::new()),
            queue,
            pump_is_idle: AtomicBool::new(true),
            unloaded: Notify::new(),
        });
        tokio::spawn(Arc::clone(&scheduler).work_off(receiver));
        scheduler
    }

    /// The loaded runners.
    pub fn runners(&self) -> Vec<Arc<Runner>> {
        self.loaded().values().cloned().collect()
    }

    /// Slots that a load of this model gets.
    pub fn slots_for(&self, want: &Want) -> u64 {
        let model = &want.stored.model;
        if model.is_mlx() || model.is_forced_to_one_slot() { 1 } else { self.environment.num_parallel.max(1) }
    }

    /// Gets the right to use the wanted model, loading it if need be.
    pub async fn acquire(self: &Arc<Self>, want: Want, phase: Arc<Mutex<Phase>>) -> Result<Lease, Refused> {
        disturbance::outlast(&self.world, Fault::SchedulerBlocked).await;
        let known = self.loaded().get(&want.stored.model.name).cloned();
        if let Some(runner) = known
            && !self.needs_reload(&runner, &want).await
        {
            return Ok(self.use_loaded(&runner, &want));
        }
        // A queue of capacity 0 hands over only to a waiting receiver.
        if self.environment.max_queue == 0 && !self.pump_is_idle.load(Ordering::SeqCst) {
            return Err(Refused::QueueFull);
        }
        let (reply, answer) = oneshot::channel();
        set(&phase, Phase::Pending);
        let pending = Pending { want, phase: Arc::clone(&phase), reply };
        if self.queue.try_send(pending).is_err() {
            set(&phase, Phase::Plain);
            return Err(Refused::QueueFull);
        }
        let lease = answer.await.unwrap_or_else(|_| Err(Refused::LoadFailed("scheduler stopped".to_owned())));
        set(&phase, Phase::Plain);
        lease
    }

    /// Lets a model go: at once if it is idle, else after its requests.
    pub async fn expire(self: &Arc<Self>, name: &str) {
        disturbance::outlast(&self.world, Fault::SchedulerBlocked).await;
        let runner = self.loaded().get(name).cloned();
        if let Some(runner) = runner {
            *runner.session() = Some(Duration::ZERO);
            runner.expires_ms.store(self.world.clock.wall_ms(), Ordering::SeqCst);
            if runner.is_idle() {
                self.unload(&runner);
            }
        }
    }

    /// Ends every runner, as the server does before it exits.
    pub fn kill_runners(&self) {
        for runner in self.runners() {
            process_table::signal(runner.pid, rustix::process::Signal::KILL);
        }
        let loading = self.loading_pid.load(Ordering::SeqCst);
        if loading > 0 {
            process_table::signal(loading as i32, rustix::process::Signal::KILL);
        }
    }

    async fn work_off(self: Arc<Self>, mut queue: mpsc::Receiver<Pending>) {
        while let Some(pending) = queue.recv().await {
            if pending.reply.is_closed() {
                self.log.debug("sched.go:181", "pending request cancelled or timed out, skipping scheduling", &[]);
                continue;
            }
            self.pump_is_idle.store(false, Ordering::SeqCst);
            self.settle(pending).await;
            self.pump_is_idle.store(true, Ordering::SeqCst);
        }
    }

    async fn settle(self: &Arc<Self>, mut pending: Pending) {
        loop {
            disturbance::outlast(&self.world, Fault::SchedulerBlocked).await;
            let known = self.loaded().get(&pending.want.stored.model.name).cloned();
            let (count, used) = {
                let loaded = self.loaded();
                (loaded.len(), loaded.values().map(|runner| runner.bytes()).sum::<u64>())
            };
            let most = match self.environment.max_loaded_models {
                0 => AUTOMATIC_MODELS,
                most => most as usize,
            };
            let victim = if let Some(runner) = known {
                if !self.needs_reload(&runner, &pending.want).await {
                    let lease = self.use_loaded(&runner, &pending.want);
                    let _ = pending.reply.send(Ok(lease));
                    return;
                }
                Some(runner)
            } else if count >= most {
                self.runner_to_unload()
            } else if count == 0 || self.fits(&pending.want, used) {
                set(&pending.phase, Phase::Loading);
                let _held = if pending.want.stored.model.is_mlx() { Some(self.mlx_load.lock().await) } else { None };
                let result = tokio::select! {
                    result = loading::load(self, &pending.want) => result,
                    () = pending.reply.closed() => {
                        self.abort_load();
                        return;
                    }
                };
                // The lock that a loaded model is entered under is held by someone.
                disturbance::outlast(&self.world, Fault::SchedulerBlocked).await;
                let lease = match result {
                    Ok(runner) => {
                        let runner = Arc::new(runner);
                        let count = {
                            let mut loaded = self.loaded();
                            loaded.insert(pending.want.stored.model.name.clone(), Arc::clone(&runner));
                            loaded.len()
                        };
                        self.log.info("sched.go:635", "loaded runners", &[("count", &count.to_string())]);
                        Ok(self.use_loaded(&runner, &pending.want))
                    }
                    Err(message) => Err(Refused::LoadFailed(message)),
                };
                let _ = pending.reply.send(lease);
                return;
            } else {
                self.log.info(
                    "sched.go:402",
                    "llama-server model predicted to exceed available memory, evicting",
                    &[("model", &pending.want.stored.blob.display().to_string())],
                );
                self.runner_to_unload()
            };
            let Some(victim) = victim else {
                continue;
            };
            *victim.session() = Some(Duration::ZERO);
            if victim.is_idle() {
                self.unload(&victim);
            } else {
                self.log.debug("sched.go:245", "waiting for pending requests to complete and unload to occur", &[]);
            }
            // While this waits, no other load is decided.
            loop {
                let notified = self.unloaded.notified();
                if !self.holds(&victim) {
                    break;
                }
                notified.await;
            }
        }
    }

    fn abort_load(&self) {
        let pid = self.loading_pid.swap(0, Ordering::SeqCst);
        if pid > 0 {
            process_table::signal(pid as i32, rustix::process::Signal::KILL);
        }
        self.log.info(
            "llama_server.go:611",
            "client connection closed before llama-server finished loading, aborting load",
            &[],
        );
    }

    /// A model goes beside others if its prediction is at most 80 % of what is free.
    fn fits(&self, want: &Want, used: u64) -> bool {
        let free = self.world.marker.gpu_working_set_bytes.saturating_sub(used);
        let predicted = want.stored.model.predicted_bytes(want.context, self.slots_for(want));
        predicted <= free / 5 * 4
    }

    /// The first idle runner by (session, path), else the one with the shortest session.
    fn runner_to_unload(&self) -> Option<Arc<Runner>> {
        let mut runners = self.runners();
        runners.sort_by_key(|runner| (runner.session().unwrap_or(Duration::MAX), runner.stored.blob.clone()));
        let idle = runners.iter().find(|runner| runner.is_idle()).cloned();
        idle.or_else(|| runners.first().cloned())
    }

    async fn needs_reload(&self, runner: &Arc<Runner>, want: &Want) -> bool {
        let _held = runner.reference_lock.lock().await;
        if runner.context != want.context || runner.options != want.options {
            // An automatic context that was shrunk for memory stays as it is.
            let shrunk = want.context_is_automatic && runner.context < want.context;
            if !shrunk || runner.options != want.options {
                return true;
            }
        }
        if runner.exited.load(Ordering::SeqCst) {
            self.log.debug("sched.go:560", "llama-server process no longer running", &[]);
            return true;
        }
        let limit = self.world.clock.real_for_processes(PING_LIMIT);
        !completion::is_healthy(runner.port, runner.stored.model.is_mlx(), limit).await
    }

    fn use_loaded(self: &Arc<Self>, runner: &Arc<Runner>, want: &Want) -> Lease {
        runner.references.fetch_add(1, Ordering::SeqCst);
        runner.timer.fetch_add(1, Ordering::SeqCst);
        if let Some(session) = want.keep_alive {
            *runner.session() = session;
        }
        self.note_expiry(runner);
        Lease { runner: Arc::clone(runner), scheduler: Arc::clone(self) }
    }

    fn finished(self: &Arc<Self>, runner: &Arc<Runner>) {
        if runner.references.fetch_sub(1, Ordering::SeqCst) > 1 {
            return;
        }
        let session = *runner.session();
        let Some(session) = session else {
            return;
        };
        if session.is_zero() {
            self.unload(runner);
            return;
        }
        self.note_expiry(runner);
        let ticket = runner.timer.fetch_add(1, Ordering::SeqCst) + 1;
        let scheduler = Arc::clone(self);
        let runner = Arc::clone(runner);
        tokio::spawn(async move {
            scheduler.world.clock.wait(session).await;
            if runner.timer.load(Ordering::SeqCst) == ticket && runner.is_idle() {
                scheduler.unload(&runner);
            }
        });
    }

    fn note_expiry(&self, runner: &Runner) {
        let expires = match *runner.session() {
            Some(session) => self.world.clock.wall_ms() + session.as_millis() as i64,
            None => FOREVER_MS,
        };
        runner.expires_ms.store(expires, Ordering::SeqCst);
    }

    fn unload(&self, runner: &Arc<Runner>) {
        // With a queue of capacity 0 the task that would unload waits for itself.
        if self.environment.max_queue == 0 {
            return;
        }
        {
            let mut loaded = self.loaded();
            let name = &runner.stored.model.name;
            if !loaded.get(name).is_some_and(|held| Arc::ptr_eq(held, runner)) {
                return;
            }
            loaded.remove(name);
        }
        if runner.stored.model.is_mlx() {
            self.stop_mlx(runner);
        } else {
            process_table::signal(runner.pid, rustix::process::Signal::KILL);
        }
        self.unloaded.notify_waiters();
    }

    /// The MLX engine is asked first and killed after 5 s.
    fn stop_mlx(&self, runner: &Arc<Runner>) {
        let pid = runner.pid.to_string();
        self.log.info("client.go:154", "stopping mlx runner subprocess", &[("pid", &pid)]);
        process_table::signal(runner.pid, rustix::process::Signal::INT);
        let (runner, limit) = (Arc::clone(runner), self.world.clock.real_for_processes(Duration::from_secs(5)));
        tokio::spawn(async move {
            tokio::time::sleep(limit).await;
            if !runner.exited.load(Ordering::SeqCst) {
                process_table::signal(runner.pid, rustix::process::Signal::KILL);
            }
        });
    }

    fn holds(&self, runner: &Arc<Runner>) -> bool {
        self.loaded().get(&runner.stored.model.name).is_some_and(|held| Arc::ptr_eq(held, runner))
    }

    fn loaded(&self) -> MutexGuard<'_, HashMap<String, Arc<Runner>>> {
        self.loaded.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Notes what a request is doing.
pub fn set(phase: &Arc<Mutex<Phase>>, now: Phase) {
    *phase.lock().unwrap_or_else(PoisonError::into_inner) = now;
}
