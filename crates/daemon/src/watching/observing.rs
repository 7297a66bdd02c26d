//! One observation: processes, their own ports, `/api/ps`, connections, the log and the machine, joined into the
//! engine's terms.

use super::log_feed::LogFeed;
use super::tokens::{self, TokenCounters, Tokens};
use crate::gateway::exchange::{self, Exchange, RunnerFacts};
use crate::gateway::link::Link;
use crate::looking::Seen;
use crate::models::{ModelNames, Named};
use futures_util::future::join_all;
use stablehand_engine::Known;
use stablehand_engine::loaded::{GpuMemory, Loaded, LoadedModels, same_model};
use stablehand_engine::owner::{Owner, Ownership};
use stablehand_engine::process::{Belonging, Identity, Role, RunnerArgs, Sighting};
use stablehand_engine::stall::evidence::{
    Health, Listing, MachineSeen, Observation, ProcessState, RunnerSeen, ServerSeen, Waiting,
};
use stablehand_engine::takeover::Door;
use stablehand_engine::time::{Awake, Now, Wall};
use stablehand_ollama::client::{CallError, Client, LoadedModel};
use stablehand_ollama::log::Parser;
use stablehand_ollama::log_statistics::{LivingRunner, LogView, Statistics};
use stablehand_ollama::runner::{Look, RunnerClient, evidence};
use stablehand_platform::connections::{Connection, Connections};
use stablehand_platform::machine::{Machine, Os};
use stablehand_platform::sampling::{ProcessSample, RunState, Sample, Sampler};
use stablehand_platform::server_log::server_log;
use stablehand_platform::survey::Surveyor;
use stablehand_protocol::queue::QueueView;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Mutex;

/// The whole process table is gone through this often; in between only known processes are looked at.
const TABLE_INTERVAL: Duration = Duration::from_secs(10);
/// `/api/ps` takes locks in the server; it is not asked more often.
const PS_INTERVAL: Duration = Duration::from_secs(3);
/// How long each answer may take, in real time.
const ANSWER: Duration = Duration::from_secs(2);

/// What was observed: the engine's part, and what people want to see beside it.
#[derive(Debug)]
pub struct Observed {
    /// For the engine.
    pub observation: Observation,
    /// The machine and the processes.
    pub sample: Sample,
    /// Connections to the server.
    pub connections: Known<Vec<Connection>>,
    /// What `/api/ps` lists.
    pub listed: Known<LoadedModels>,
    /// What the log tells; unknown where it cannot be read.
    pub log: Known<LogView>,
    /// Tokens of each model that is loaded.
    pub tokens: BTreeMap<String, Known<Tokens>>,
    /// Whether the numbers of waiting requests are known.
    pub waiting: Known<Waiting>,
}

impl Observed {
    /// What the GPU may use in all, as it says itself, or as the machine is known for.
    pub fn gpu_limit_bytes(&self, machine: &Machine) -> Known<u64> {
        match (&self.sample.gpu.working_set_limit_bytes, machine.gpu_working_set_bytes()) {
            (Known::Unknown(_), Known::Is(limit)) => Known::Is(limit),
            (known, _) => known.clone(),
        }
    }

    /// Where the GPU's memory is. Linux tells a limit of cards alone.
    pub fn gpu_memory(&self, machine: &Machine) -> GpuMemory {
        match (machine.os(), self.gpu_limit_bytes(machine)) {
            (Os::MacOs, limit) | (Os::Linux, limit @ Known::Unknown(_)) => GpuMemory::Shared(limit),
            (Os::Linux, Known::Is(_)) => GpuMemory::OwnCard,
        }
    }

    /// Whether it is known that no request is in this model's runners.
    pub fn is_idle(&self, model: &str) -> bool {
        let of_model = |runner: &&RunnerSeen| runner.model.known().is_some_and(|known| same_model(known, model));
        let mut runners = self.observation.runners.iter().filter(of_model);
        runners.all(|runner| runner.slots.known().is_some_and(|slots| slots.iter().all(|slot| !slot.busy)))
    }

    /// Whether a request is being worked on or a model loaded.
    pub fn is_busy(&self) -> bool {
        let busy = |runner: &RunnerSeen| match &runner.slots {
            Known::Is(slots) => slots.iter().any(|slot| slot.busy),
            Known::Unknown(_) => true,
        };
        self.observation.server.loading || self.observation.runners.iter().any(busy)
    }
}

/// What `/api/ps` said.
#[derive(Clone, Debug)]
struct Listed {
    models: Known<LoadedModels>,
    /// Whether it was answered, with whatever.
    answered: Known<bool>,
}

/// Makes observations.
#[derive(Debug)]
pub struct Observer {
    machine: Machine,
    surveyor: Arc<Mutex<Surveyor>>,
    sampler: Sampler,
    connections: Connections,
    /// Of the port that clients know, where the gateway holds it.
    fronts: Connections,
    link: Link,
    exchange: Exchange,
    names: ModelNames,
    /// Under which name the server listed each runner.
    listed_as: BTreeMap<Identity, String>,
    /// Whose each runner of the table is.
    belongs: BTreeMap<Identity, Belonging>,
    table: Vec<Sighting>,
    table_at: Option<Awake>,
    ps: Option<(Awake, Listed)>,
    log: LogFeed,
    tokens: TokenCounters,
    statistics: Statistics,
    failures: u64,
    served: u64,
}

impl Observer {
    /// An observer that has seen nothing.
    pub fn new(machine: Machine, surveyor: Arc<Mutex<Surveyor>>, link: Link) -> Self {
        let sampler = Sampler::new(machine.clone());
        let sampler = match std::env::current_exe() {
            Ok(program) => sampler.asking_metal_through(program),
            Err(_) => sampler,
        };
        Self {
            sampler,
            connections: Connections::new(machine.clone()),
            fronts: Connections::new(machine.clone()),
            link,
            exchange: Exchange::default(),
            surveyor,
            names: ModelNames::default(),
            listed_as: BTreeMap::new(),
            belongs: BTreeMap::new(),
            table: vec![],
            table_at: None,
            ps: None,
            log: LogFeed::None,
            tokens: TokenCounters::default(),
            statistics: Statistics::new(),
            failures: 0,
            served: 0,
            machine,
        }
    }

    /// One observation of the server that the last look found.
    pub async fn observe(&mut self, seen: &Seen) -> Observed {
        let now = self.machine.clock().now();
        self.look_at_table(now.awake).await;
        let client = Client::new(seen.address).ok();
        let runners: Vec<(Sighting, RunnerArgs)> = self
            .table
            .iter()
            .filter_map(|sighting| match &sighting.role {
                Role::Runner(args) => Some((sighting.clone(), args.clone())),
                Role::Gui { .. } | Role::Shim { .. } | Role::Serve => None,
            })
            .collect();
        let server = seen.look.ownership.server();
        let ids: Vec<Identity> = runners.iter().map(|(sighting, _)| sighting.process.id).chain(server).collect();
        let sample = self.sampler.sample(&ids).await;
        let looks = join_all(runners.iter().map(|(_, args)| look_at(args))).await;
        let answers = match client {
            Some(client) if server.is_some() => was_answered(&client.version(ANSWER).await),
            Some(_) | None => false,
        };
        let Listed { models: listed, answered: ps_answers } = self.listed(now.awake, client.filter(|_| answers)).await;
        let log = self.follow(seen, &runners, now);
        let queue = exchange::queue(&self.link, seen).await;
        let connections = without_ourselves(self.connections.look(seen.look.port));
        let view = log.known();
        let mut seen_runners: Vec<RunnerSeen> = runners
            .iter()
            .zip(&looks)
            .map(|((sighting, args), look)| self.runner(sighting, args, look.as_ref(), &sample, view, &listed, server))
            .collect();
        let said: Vec<_> = seen_runners
            .iter()
            .zip(&looks)
            .filter_map(|(runner, look)| Some((runner.id, runner.model.known()?.clone(), tokens::of(look.as_ref()))))
            .collect();
        let tokens = self.tokens.observe(&said);
        let (connections, waiting) = match &queue {
            None => {
                let waiting = waiting(&connections, &seen_runners);
                (connections, waiting)
            }
            Some(queue) => self.behind_gateway(seen, queue, &runners, &mut seen_runners, connections, &listed).await,
        };
        let observation = Observation {
            server: self.server(server, answers, ps_answers, view, &seen_runners, &waiting, &connections, now.awake),
            runners: seen_runners,
            machine: machine_seen(&sample),
        };
        Observed { observation, sample, connections, listed, log, tokens, waiting }
    }

    /// What the gateway knows is exact. What the daemon knows is told to it, so that it fills the slots that there are.
    async fn behind_gateway(
        &mut self,
        seen: &Seen,
        queue: &QueueView,
        runners: &[(Sighting, RunnerArgs)],
        seen_runners: &mut [RunnerSeen],
        connections: Known<Vec<Connection>>,
        listed: &Known<LoadedModels>,
    ) -> (Known<Vec<Connection>>, Known<Waiting>) {
        for runner in seen_runners.iter_mut() {
            runner.tickets = runner.model.known().map(|model| exchange::tickets(queue, model));
        }
        let known: Vec<RunnerFacts> =
            seen_runners.iter().zip(runners).filter_map(|(seen, (_, args))| RunnerFacts::of(seen, args)).collect();
        let loaded = listed.known().map(|listed| listed.keys().cloned().collect());
        if let Err(error) = self.link.tell(&self.exchange.facts(queue, &known, loaded, seen)).await {
            tracing::debug!(%error, "the gateway goes on with what it knew");
        }
        let gateway = seen.front.gateway;
        let around = connections.map(|open| {
            let theirs = |one: &Connection| one.client.known().map(|client| client.pid) != gateway;
            open.into_iter().filter(theirs).collect::<Vec<_>>()
        });
        let busy = known.iter().map(|runner| exchange::around(queue, &runner.model, runner.busy)).sum();
        let waiting = around
            .as_ref()
            .map(|around| exchange::waiting(queue, u32::try_from(around.len()).unwrap_or(u32::MAX), busy));
        let clients = match seen.front.door {
            Door::Home => without_ourselves(self.fronts.look(seen.front.home)),
            Door::Shut | Door::Beside | Door::Leaving => Known::Is(Vec::new()),
            Door::Unknown => Known::unknown("it could not be told what the gateway does"),
        };
        let connected = match (around, clients) {
            (Known::Is(around), Known::Is(clients)) => Known::Is(clients.into_iter().chain(around).collect()),
            (Known::Unknown(reason), _) | (_, Known::Unknown(reason)) => Known::Unknown(reason),
        };
        (connected, waiting)
    }

    async fn look_at_table(&mut self, now: Awake) {
        let due = self.table_at.is_none_or(|at| now.since(at) >= TABLE_INTERVAL);
        // A runner that ended or a load under way means that the table has changed or will.
        let moved = self.statistics.snapshot(Wall::default()).loading().is_some();
        if due
            || moved
            || self.table.iter().any(|sighting| !stablehand_platform::processes::is_alive(sighting.process.id))
        {
            let mut surveyor = self.surveyor.lock().await;
            self.table = surveyor.sightings();
            let whose = |sighting: &Sighting| (sighting.process.id, surveyor.belonging(sighting));
            let runners = self.table.iter().filter(|seen| matches!(seen.role, Role::Runner(_)));
            let belongs = runners.map(whose).collect();
            let before = std::mem::replace(&mut self.belongs, belongs);
            if !before.keys().eq(self.belongs.keys()) {
                // What was listed a moment ago is not what is listed now.
                self.ps = None;
            }
            self.listed_as.retain(|id, _| self.belongs.contains_key(id));
            self.table_at = Some(now);
        }
    }

    async fn listed(&mut self, now: Awake, client: Option<Client>) -> Listed {
        let Some(client) = client else {
            self.ps = None;
            let reason = "the server does not answer";
            return Listed { models: Known::unknown(reason), answered: Known::unknown("it was not asked") };
        };
        if let Some((at, listed)) = &self.ps
            && now.since(*at) < PS_INTERVAL
            && listed.models.known().is_some()
        {
            return listed.clone();
        }
        let asked = client.ps(ANSWER).await;
        let answered = Known::Is(was_answered(&asked));
        let models = match asked {
            Ok(loaded) => {
                let until = |expires: Known<Wall>| expires.known().copied().unwrap_or(Wall::from_unix_ms(i64::MAX));
                let one = |model: LoadedModel| {
                    let bytes = match model.size_bytes {
                        0 => Known::unknown("the server tells no size"),
                        bytes => Known::Is(bytes),
                    };
                    (model.name, Loaded { bytes, gpu_bytes: model.gpu_bytes, until: until(model.expires_at) })
                };
                Known::Is(loaded.models.into_iter().map(one).collect())
            }
            Err(error) => Known::unknown(error.to_string()),
        };
        let listed = Listed { models, answered };
        self.ps = Some((now, listed.clone()));
        listed
    }

    fn follow(&mut self, seen: &Seen, runners: &[(Sighting, RunnerArgs)], now: Now) -> Known<LogView> {
        let owner: Option<&Owner> = match &seen.look.ownership {
            Ownership::One { owner, .. } | Ownership::Contested { holder: owner, .. } => Some(owner),
            Ownership::Foreign(_) | Ownership::Absent | Ownership::Unknown(_) => None,
        };
        let Some(owner) = owner else { return Known::unknown("no owner of the server is known") };
        let living: Vec<LivingRunner> = runners.iter().map(|(_, args)| LivingRunner::from(args)).collect();
        self.statistics.living(now.wall, &living);
        let parser = Parser::local();
        let statistics = &mut self.statistics;
        let mut take = |line: &[u8]| statistics.line(now.wall, &parser.line(line));
        let polled = self.log.poll(&self.machine, server_log(&self.machine, owner), now.awake, &mut take);
        polled.map(|()| self.statistics.snapshot(now.wall))
    }

    #[expect(clippy::too_many_arguments, reason = "each is one source of an observation")]
    fn runner(
        &mut self,
        sighting: &Sighting,
        args: &RunnerArgs,
        look: Option<&Look>,
        sample: &Sample,
        log: Option<&LogView>,
        listed: &Known<LoadedModels>,
        server: Option<Identity>,
    ) -> RunnerSeen {
        let process = &sighting.process;
        let belongs = match self.belongs.get(&process.id).cloned().unwrap_or(Belonging::Unknown) {
            Belonging::Server(own) if server.is_some_and(|server| server != own) => Belonging::Elsewhere,
            belongs @ (Belonging::Server(_) | Belonging::Elsewhere | Belonging::LeftBehind | Belonging::Unknown) => {
                belongs
            }
        };
        let (model, listing) = match &args.model {
            Known::Is(model) => {
                let named = self.names.of(self.machine.home(), self.machine.clock().awake(), model);
                let listing = listing(&named, listed, &belongs);
                let listed_as = listed.known().and_then(|all| listed_as(&named, all)).map(|(name, _)| name);
                // The name that it was loaded by, for as long as it lives: what was learned of it goes by its name.
                if let (Some(name), Known::Is(Listing::Until(_))) = (listed_as, &listing) {
                    self.listed_as.entry(process.id).or_insert_with(|| name.clone());
                }
                (Known::Is(self.listed_as.get(&process.id).cloned().unwrap_or(named.name)), listing)
            }
            Known::Unknown(reason) => (Known::Unknown(reason.clone()), Known::Unknown(reason.clone())),
        };
        let said = args.port.known().and_then(|port| log?.runner(*port));
        let told = look.map(|look| evidence(look, |slot, task| said?.prompt_tokens_total(slot, task)));
        let usage = sample.processes.iter().find(|one| one.id == process.id);
        RunnerSeen {
            id: process.id,
            kind: args.kind,
            model,
            belongs,
            started: process.started,
            state: usage.map_or(ProcessState::Alive, state),
            cpu: usage.map_or_else(|| Known::unknown("it was not sampled"), |usage| usage.cpu.clone()),
            footprint_bytes: usage.map_or_else(
                || Known::unknown("it was not sampled"),
                |usage| usage.footprint.as_ref().map(|footprint| footprint.bytes),
            ),
            health: told.as_ref().map_or(Health::Unknown, |told| told.health),
            slots: told.as_ref().map_or_else(|| Known::unknown("its port is not known"), |told| told.slots.clone()),
            decode_total: told.map_or_else(|| Known::unknown("its port is not known"), |told| told.decode_total),
            log_progress: said.and_then(|said| said.progress.known().copied().flatten()),
            paged_in_bytes_per_s: usage.and_then(|usage| usage.read_back.bytes_per_s.known().copied()),
            finished: said.and_then(|said| said.finished.known().cloned()).unwrap_or_default(),
            listed: listing,
            tickets: None,
            gateway_bytes: None,
        }
    }

    #[expect(clippy::too_many_arguments, reason = "each is one source of an observation")]
    fn server(
        &mut self,
        id: Option<Identity>,
        answers: bool,
        ps_answers: Known<bool>,
        log: Option<&LogView>,
        runners: &[RunnerSeen],
        waiting: &Known<Waiting>,
        connections: &Known<Vec<Connection>>,
        now: Awake,
    ) -> ServerSeen {
        let failures = log.map_or(self.failures, LogView::failures);
        let new = u32::try_from(failures.saturating_sub(self.failures)).unwrap_or(u32::MAX);
        self.failures = failures;
        let served = log.map_or(self.served, |log| log.served);
        let answered = u32::try_from(served.saturating_sub(self.served)).unwrap_or(u32::MAX);
        self.served = served;
        let loading = log.is_some_and(|log| log.loading().is_some())
            || runners.iter().any(|runner| runner.health == Health::Loading);
        let oldest = match (waiting, connections) {
            (Known::Is(waiting), Known::Is(open)) if waiting.at_most > 0 => open
                .iter()
                .map(|connection| now.since(connection.since))
                .max()
                .map_or_else(|| Known::unknown("nobody is connected"), Known::Is),
            (Known::Is(_), Known::Is(_)) => Known::unknown("nobody waits"),
            (Known::Unknown(reason), _) | (_, Known::Unknown(reason)) => Known::Unknown(reason.clone()),
        };
        ServerSeen {
            id,
            answers,
            ps_answers,
            loading,
            waiting: waiting.known().copied().unwrap_or_default(),
            oldest_wait: oldest,
            failures: new,
            successes: answered,
        }
    }
}

/// How the server lists a runner. A server knows nothing of another one's runners, and what no manifest names cannot be
/// looked for.
fn listing(named: &Named, listed: &Known<LoadedModels>, belongs: &Belonging) -> Known<Listing> {
    match belongs {
        Belonging::Elsewhere => return Known::unknown("it belongs to another server"),
        Belonging::Server(_) | Belonging::LeftBehind | Belonging::Unknown => {}
    }
    match listed {
        Known::Unknown(reason) => Known::Unknown(reason.clone()),
        Known::Is(listed) => match listed_as(named, listed).map(|(_, loaded)| loaded) {
            Some(loaded) => Known::Is(Listing::Until(loaded.until)),
            None if named.all.is_empty() => Known::unknown("no manifest names its model"),
            None => Known::Is(Listing::Absent),
        },
    }
}

/// The name under which the server lists it, whichever of its names that is, and how.
fn listed_as<'a>(named: &Named, listed: &'a LoadedModels) -> Option<(&'a String, &'a Loaded)> {
    listed.iter().find(|(listed, _)| named.all.iter().any(|name| same_model(listed, name)))
}

/// Whether anything came back; whatever that was, somebody serves.
fn was_answered<T>(asked: &Result<T, CallError>) -> bool {
    match asked {
        Ok(_) | Err(CallError::NotOllama { .. } | CallError::Status { .. } | CallError::Malformed { .. }) => true,
        Err(CallError::Refused { .. } | CallError::Silent { .. } | CallError::Broken { .. }) => false,
    }
}

async fn look_at(args: &RunnerArgs) -> Option<Look> {
    let port = args.port.known()?;
    Some(RunnerClient::new(*port).look(args.kind, ANSWER).await)
}

fn state(usage: &ProcessSample) -> ProcessState {
    match usage.state {
        Known::Is(RunState::Stopped) => ProcessState::Stopped,
        Known::Is(RunState::Zombie | RunState::Gone) => ProcessState::Gone,
        Known::Is(RunState::Running) | Known::Unknown(_) => ProcessState::Alive,
    }
}

/// Our own questions are connections too.
fn without_ourselves(connections: Known<Vec<Connection>>) -> Known<Vec<Connection>> {
    let us = std::process::id();
    connections.map(|open| {
        open.into_iter().filter(|connection| connection.client.known().is_none_or(|client| client.pid != us)).collect()
    })
}

/// Without a gateway the number of waiting requests is an interval: a connection that is kept open looks like one that
/// waits. Nobody waits while a slot is free.
fn waiting(connections: &Known<Vec<Connection>>, runners: &[RunnerSeen]) -> Known<Waiting> {
    let open = match connections {
        Known::Is(open) => u32::try_from(open.len()).unwrap_or(u32::MAX),
        Known::Unknown(reason) => return Known::Unknown(reason.clone()),
    };
    let mut busy = 0;
    for runner in runners {
        match &runner.slots {
            Known::Is(slots) => busy += u32::try_from(slots.iter().filter(|slot| slot.busy).count()).unwrap_or(0),
            Known::Unknown(_) => return Known::Is(Waiting { at_least: 0, at_most: open }),
        }
    }
    Known::Is(Waiting { at_least: 0, at_most: open.saturating_sub(busy) })
}

fn machine_seen(sample: &Sample) -> MachineSeen {
    MachineSeen {
        swap_in_bytes_per_s: sample.memory.swap_in.bytes_per_s.known().copied(),
        swap_out_bytes_per_s: sample.memory.swap_out.bytes_per_s.known().copied(),
        pressure: sample.memory.pressure.known().map(|pressure| pressure.level()),
        gpu_percent: sample.gpu.utilisation_percent.known().copied(),
        throttled: sample.thermal.throttled.known().copied(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SERVER: Identity = Identity { pid: 10, birth: 1 };

    fn named(all: &[&str]) -> Named {
        Named { name: "sha256-ab".to_owned(), all: all.iter().map(|name| (*name).to_owned()).collect() }
    }

    fn loaded(names: &[&str]) -> Known<LoadedModels> {
        let one = |name: &&str| {
            let model = Loaded { bytes: Known::Is(1), gpu_bytes: 1, until: Wall::from_unix_ms(7) };
            ((*name).to_owned(), model)
        };
        Known::Is(names.iter().map(one).collect())
    }

    #[test]
    fn a_runner_is_listed_under_any_name_of_its_blob() {
        let ours = Belonging::Server(SERVER);
        let listed = loaded(&["gemma4:copy"]);
        let until = Known::Is(Listing::Until(Wall::from_unix_ms(7)));
        assert_eq!(listing(&named(&["gemma4:26b", "gemma4:copy"]), &listed, &ours), until);
        assert_eq!(listing(&named(&["gemma4:26b"]), &listed, &ours), Known::Is(Listing::Absent));
        let latest = listing(&named(&["qwen3-mlx"]), &loaded(&["qwen3-mlx:latest"]), &ours);
        assert_eq!(latest, until, "a name without a tag means the latest");
    }

    #[test]
    fn what_no_manifest_names_and_what_another_server_runs_is_not_missed() {
        let listed = loaded(&["gemma4:26b"]);
        let unnamed = listing(&named(&[]), &listed, &Belonging::Server(SERVER));
        assert!(unnamed.reason().is_some_and(|reason| reason.contains("manifest")), "{unnamed:?}");
        let of_another = listing(&named(&["smollm:135m"]), &listed, &Belonging::Elsewhere);
        assert!(of_another.reason().is_some_and(|reason| reason.contains("another server")), "{of_another:?}");
    }
}
