//! One look at everything: processes, port, owner, every layer of the settings, the server's answer.
//!
//! What costs to read and cannot change is kept per life of the server: its config line is written once, its
//! environment is fixed at its start. What the session holds is asked for again once a minute at rest, and at once
//! when the server changed or somebody wants to know ([`Looker::look_anew`]).

use crate::configuration::{Configuration, ConfigurationFile};
use crate::gateway::exposure;
use crate::gateway::seating::Seating;
use crate::models::ModelNames;
use stablehand_engine::Known;
use stablehand_engine::owner::{AgentKind, Listener, Owner, Ownership, Scope, Survey, ownership};
use stablehand_engine::plan::{ADDRESS, Seat};
use stablehand_engine::process::{Identity, Process, Role, RunnerKind};
use stablehand_engine::setting::{
    FromApp, Layer, Layers, MAIN_SETTINGS, Name, PersistedIn, Report, ServerEvidence, Standing, Values, report,
};
use stablehand_engine::supervisor::{Answer, Look};
use stablehand_engine::takeover::{Door, Mode, Place};
use stablehand_engine::time::{Awake, Wall};
use stablehand_ollama::client::{CallError, Client};
use stablehand_ollama::evidence::{Logged, is_of_server, server_evidence};
use stablehand_ollama::host::HostAddress;
use stablehand_ollama::log::reader::{Limits, Search, last_config_line};
use stablehand_ollama::log::{ConfigLine, Parser};
use stablehand_ollama::version::Version;
use stablehand_ollama::{argv, catalogue};
use stablehand_platform::layers::{self, Obstacles};
use stablehand_platform::linux;
use stablehand_platform::listeners::reachable_at;
use stablehand_platform::machine::{Machine, Os};
use stablehand_platform::publish;
use stablehand_platform::server_log::{LogSource, server_log};
use stablehand_platform::survey::Surveyor;
use stablehand_protocol as protocol;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Mutex;

/// How long `/api/version` may take, in real time. It takes no lock in the server.
const VERSION_DEADLINE: Duration = Duration::from_secs(2);
/// How long what the session holds is believed at rest.
const SESSION_BELIEVED: Duration = Duration::from_secs(60);
/// How long a search for a config line that found nothing is not repeated.
const SEARCH_PAUSE: Duration = Duration::from_secs(30);
/// How long an app that was started with the moved address may take until its server listens.
const COMES_UP: Duration = Duration::from_secs(30);
/// The most of a log that is searched for a config line.
const SEARCH_BYTES: u64 = 4 << 30;

/// What one look saw: the engine's part, and what only people want to see.
#[derive(Clone, Debug)]
pub struct Seen {
    /// For the engine.
    pub look: Look,
    /// What `/api/version` says.
    pub version: Known<Version>,
    /// Where the server is, or would be, reached from this machine.
    pub address: SocketAddr,
    /// Runners in the process table.
    pub runners: Vec<protocol::Runner>,
    /// Values in our persisted file.
    pub persisted: Known<Values>,
    /// The variables that a server started by hand was given, as far as they can be read.
    pub given_by_hand: BTreeMap<String, String>,
    /// Where server and gateway stand.
    pub front: Front,
    /// Things worth knowing.
    pub notes: Vec<String>,
}

/// Where server and gateway stand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Front {
    /// When the look began.
    pub at: Awake,
    /// The port that clients know.
    pub home: u16,
    /// Where the server listens. At its moved port it also has to answer.
    pub place: Place,
    /// The addresses at which the server listens on its own port.
    pub addresses: Vec<String>,
    /// The owner runs without the moved address that it should have been started with, and has no server that listens.
    pub astray: bool,
    /// "Expose to network" of Ollama.app.
    pub exposed: Known<bool>,
    /// What the gateway does.
    pub door: Door,
    /// Pid of the gateway.
    pub gateway: Option<u32>,
}

impl Seen {
    /// The names that our persisted file carries, as far as it could be read.
    pub fn persisted_names(&self) -> BTreeSet<Name> {
        self.persisted.known().map(|values| values.keys().cloned().collect()).unwrap_or_default()
    }
}

/// Takes looks.
#[derive(Debug)]
pub struct Looker {
    machine: Machine,
    surveyor: Arc<Mutex<Surveyor>>,
    port: u16,
    /// Where it is reached, as of the last look.
    reached_at: Option<SocketAddr>,
    /// `OLLAMA_HOST` as clients on this machine have it.
    host_of_clients: Option<String>,
    session: Option<Session>,
    /// The config line of the server with this identity, or why it was not found and when that was tried.
    config_line: Option<(Identity, Known<Logged>, Awake)>,
    names: ModelNames,
    forced: HashMap<String, Option<String>>,
    seating: Arc<Seating>,
    /// Somebody wants to know, so nothing is left out.
    anew: bool,
}

/// A survey of the port on which the server listens or shall, and what else was seen on the way.
struct Surveyed {
    survey: Survey,
    home: u16,
    wanted: Option<u16>,
    /// Who listens on the server's own port.
    /// `None` where that could not be read.
    at_home: Option<Vec<Listener>>,
}

/// What the session held, for which server and names it was asked, and when.
#[derive(Clone, Debug)]
struct Session {
    values: Option<Known<Values>>,
    obstacles: Obstacles,
    published_at: Known<Option<Wall>>,
    server: Option<Identity>,
    names: Vec<Name>,
    at: Awake,
}

impl Looker {
    /// A looker that has seen nothing.
    pub fn new(machine: Machine) -> Self {
        let surveyor = Surveyor::new(machine.clone(), argv::role);
        let seating = Arc::new(Seating::left(&machine));
        Self::with(machine, Arc::new(Mutex::new(surveyor)), seating)
    }

    /// A looker that shares what a surveyor remembers, and where the server shall listen.
    pub fn with(machine: Machine, surveyor: Arc<Mutex<Surveyor>>, seating: Arc<Seating>) -> Self {
        Self {
            surveyor,
            port: machine.default_port(),
            reached_at: None,
            host_of_clients: None,
            session: None,
            config_line: None,
            names: ModelNames::default(),
            forced: HashMap::new(),
            seating,
            anew: false,
            machine,
        }
    }

    /// The surveyor, which steps need too.
    pub fn surveyor(&self) -> Arc<Mutex<Surveyor>> {
        Arc::clone(&self.surveyor)
    }

    /// The address of the server, as of the last look.
    pub fn address(&self) -> SocketAddr {
        let loopback = SocketAddr::from((Ipv4Addr::LOCALHOST, self.port));
        self.reached_at.filter(|address| address.port() == self.port).unwrap_or(loopback)
    }

    /// A look in which nothing is taken from an earlier one.
    pub async fn look_anew(&mut self, configuration: &Configuration) -> Seen {
        self.session = None;
        self.config_line = None;
        self.anew = true;
        let seen = self.look(configuration).await;
        self.anew = false;
        seen
    }

    /// A look.
    pub async fn look(&mut self, configuration: &Configuration) -> Seen {
        if self.session.is_none() {
            self.read_session_host().await;
        }
        let began = self.machine.clock().awake();
        self.port = self.port_wanted(configuration);
        let Surveyed { survey, home, wanted, at_home } = self.survey(configuration).await;
        let ownership = ownership(&survey);
        self.reached_at = survey.listeners.known().map(|listeners| {
            // Another program may listen at another address of the port.
            reachable_at(&own_listeners(listeners, ownership.server()), self.port)
        });
        let server = ownership.server().and_then(|id| process_of(&survey, id)).cloned();
        let (answer, version) = self.ask().await;
        let definitions = catalogue::definitions_for(version.known().copied());
        let owner = match &ownership {
            Ownership::One { owner, .. } | Ownership::Contested { holder: owner, .. } => Some(owner),
            Ownership::Foreign(_) | Ownership::Absent | Ownership::Unknown(_) => None,
        };
        let persisted = match owner {
            Some(owner) => layers::persisted(&self.machine, owner).await,
            None => Known::unknown("no owner of the server is known"),
        };
        let given_by_hand = match (owner, &server) {
            (Some(Owner::Manual { .. }), Some(server)) => server.environment.known().cloned().unwrap_or_default(),
            (_, _) => BTreeMap::new(),
        };
        let names = self.names_that_matter(configuration, &persisted);
        let desired = configuration.desired.iter().map(|(name, wish)| (name.clone(), wish.value.clone())).collect();
        let session = self.session(owner, server.as_ref(), &names, &desired).await;
        // A file that nobody will read persists nothing.
        let persisted = match &session.obstacles.switched_off {
            Some(reason) => Known::Unknown(reason.clone()),
            None => persisted,
        };
        let evidence = self.evidence(owner, server.as_ref()).await;
        let layers = Layers {
            desired: configuration.desired.clone(),
            persisted: persisted.clone(),
            persisted_in: match owner {
                Some(Owner::Container { .. }) => PersistedIn::Elsewhere,
                // Without a good configuration nobody knows what is no longer wanted.
                Some(_) | None if configuration.unknown => PersistedIn::Elsewhere,
                Some(_) | None => PersistedIn::OurFile,
            },
            from_app: from_app(&survey, owner, server.as_ref(), &session.published_at),
            session: session.values,
            server: evidence,
        };
        let mut reports = report(&definitions, &layers);
        forget_unasked(&mut reports, &names);
        if self.port != home {
            forgive_moved_address(&mut reports, self.port);
        }
        let seat = Seat { home, moved: wanted, written: owner.is_some_and(|owner| self.is_address_written(owner)) };
        let answers = matches!(answer, Answer::Version(_));
        let front =
            Front { at: began, ..self.front(configuration, &survey, owner, seat, answers, at_home.as_deref()).await };
        let runners = self.runners(&survey, matches!(answer, Answer::Version(_))).await;
        Seen {
            look: Look {
                port: self.port,
                seat,
                port_free: survey.listeners.as_ref().map(|listeners| listeners.is_empty()),
                ownership,
                server_started: server.map(|server| server.started),
                answer,
                reports,
                kept_by_us: survey.started_by_us.is_some(),
                published_at: session.published_at,
            },
            version,
            address: self.address(),
            runners,
            persisted,
            given_by_hand,
            front,
            notes: self.notes(session.obstacles),
        }
    }

    /// A survey of the port on which the server listens or shall. Where the gateway can stand in its place that is its
    /// moved port, so that whoever answers on the other is never taken for it.
    async fn survey(&mut self, configuration: &Configuration) -> Surveyed {
        let home = self.port;
        let ports = self.seating.ports();
        let mut survey = self.surveyor.lock().await.survey(home).await;
        let at_home = survey.listeners.known().cloned();
        let Some(moved) = ports.wanted.or(ports.last).filter(|moved| *moved != home) else {
            let survey = self.survey_of_told(configuration, survey).await;
            return Surveyed { survey, home: self.port, wanted: None, at_home };
        };
        let at_moved = self.surveyor.lock().await.listeners(moved).await;
        let there = at_moved.known().is_some_and(|listeners| a_server_listens(&survey, listeners));
        if there || (!a_server_listens(&survey, at_home.as_deref().unwrap_or_default()) && ports.wanted == Some(moved))
        {
            self.port = moved;
            survey.port = moved;
            survey.listeners = at_moved;
        }
        Surveyed { survey, home, wanted: ports.wanted, at_home }
    }

    /// When nothing names a port and the one server was told another than the usual one, that.
    async fn survey_of_told(&mut self, configuration: &Configuration, survey: Survey) -> Survey {
        let named = self.host_of_clients.is_some() || configuration.desired.keys().any(|name| name.as_str() == ADDRESS);
        let told = told_port(&survey).filter(|port| *port != self.port && !named);
        match told {
            Some(port) if matches!(&survey.listeners, Known::Is(listeners) if listeners.is_empty()) => {
                self.port = port;
                self.surveyor.lock().await.survey(port).await
            }
            Some(_) | None => survey,
        }
    }

    /// A survey for a question that nothing else is looked at for, of the port that the settings name.
    pub async fn survey_alone(&mut self) -> Survey {
        self.read_session_host().await;
        let file = ConfigurationFile::open(&self.machine);
        self.port = self.port_wanted(file.current());
        self.survey(file.current()).await.survey
    }

    fn is_address_written(&self, owner: &Owner) -> bool {
        let (scope, unit) = match owner {
            Owner::Systemd { scope, unit } => (*scope, unit),
            Owner::Agent(AgentKind::UserUnit { unit } | AgentKind::NewUnit { unit, .. }) => (Scope::User, unit),
            Owner::App { .. }
            | Owner::Brew { .. }
            | Owner::Agent(AgentKind::LaunchAgent { .. } | AgentKind::Process { .. })
            | Owner::Container { .. }
            | Owner::Manual { .. } => return false,
        };
        linux::address::is_written(&self.machine, scope, unit)
    }

    async fn front(
        &mut self,
        configuration: &Configuration,
        survey: &Survey,
        owner: Option<&Owner>,
        seat: Seat,
        answers: bool,
        at_home: Option<&[Listener]>,
    ) -> Front {
        let here = survey.listeners.known().is_some_and(|listeners| a_server_listens(survey, listeners));
        let place = match (here, self.port == seat.home) {
            (true, true) => Place::Home,
            (true, false) if answers => Place::Moved,
            (true | false, _) => Place::Nowhere,
        };
        let gateway = stablehand_platform::gateway_service::pid(&self.machine).await;
        let door = match gateway {
            Known::Is(None) => Door::Shut,
            Known::Is(Some(pid)) => self.door(configuration, seat.home, pid, at_home).await,
            Known::Unknown(_) => Door::Unknown,
        };
        let astray = place == Place::Nowhere && seat.moved.is_some() && self.is_astray(survey, owner, seat);
        Front {
            at: Awake::default(),
            home: seat.home,
            place,
            addresses: if place == Place::Home {
                let its = own_listeners(at_home.unwrap_or_default(), serve_among(survey, at_home.unwrap_or_default()));
                its.into_iter().map(|listener| listener.address).collect()
            } else {
                Vec::new()
            },
            astray,
            exposed: match owner {
                // The app's database is a person's, and read only for what it matters to.
                Some(Owner::App { .. }) if self.anew || configuration.gateway.mode == Mode::Takeover => {
                    exposure::is_on(&self.machine)
                }
                Some(Owner::App { .. }) => Known::unknown("it was not looked at"),
                Some(
                    Owner::Brew { .. }
                    | Owner::Systemd { .. }
                    | Owner::Agent(_)
                    | Owner::Container { .. }
                    | Owner::Manual { .. },
                )
                | None => Known::Is(false),
            },
            door,
            gateway: gateway.known().copied().flatten(),
        }
    }

    async fn door(&mut self, configuration: &Configuration, home: u16, pid: u32, at_home: Option<&[Listener]>) -> Door {
        let holds = |listeners: &[Listener]| {
            listeners.iter().any(|one| one.process.known().is_some_and(|process| process.pid == pid))
        };
        if at_home.is_some_and(holds) {
            return Door::Home;
        }
        // Where nobody says otherwise it listens on the next port.
        let usual = SocketAddr::from((Ipv4Addr::LOCALHOST, home.wrapping_add(1)));
        let listed = &configuration.gateway.listen;
        let listed = if listed.is_empty() { std::slice::from_ref(&usual) } else { listed.as_slice() };
        let mut unread = at_home.is_none();
        for port in listed.iter().map(SocketAddr::port).filter(|port| *port != home) {
            match self.surveyor.lock().await.listeners(port).await {
                Known::Is(listeners) if holds(&listeners) => return Door::Beside,
                Known::Is(_) => {}
                Known::Unknown(_) => unread = true,
            }
        }
        if unread { Door::Unknown } else { Door::Leaving }
    }

    /// Whether whoever starts the server runs, and was started without the moved address.
    fn is_astray(&self, survey: &Survey, owner: Option<&Owner>, seat: Seat) -> bool {
        let Some(Owner::App { bundle }) = owner else { return false };
        let gui = survey.sightings.iter().find(|sighting| match &sighting.role {
            Role::Gui { bundle: of } => of == bundle,
            Role::Shim { .. } | Role::Serve | Role::Runner(_) => false,
        });
        let Some(gui) = gui else { return false };
        match &gui.process.environment {
            Known::Is(values) => values.get(ADDRESS).map(|raw| HostAddress::parse(raw).port) != seat.moved,
            // One that cannot be read and was started with the address has a server by then.
            Known::Unknown(_) => self.machine.clock().now().wall - gui.process.started > COMES_UP,
        }
    }

    /// The port the desired settings name, or the one that clients on this machine use.
    fn port_wanted(&self, configuration: &Configuration) -> u16 {
        let desired = configuration.desired.iter().find(|(name, _)| name.as_str() == "OLLAMA_HOST");
        let port = |raw: &str| {
            let address = HostAddress::parse(raw);
            if address.port == 0 { self.machine.default_port() } else { address.port }
        };
        if let Some((_, wish)) = desired {
            return port(wish.value.as_str());
        }
        self.host_of_clients.as_deref().map_or_else(|| self.machine.default_port(), port)
    }

    /// The address that clients of this login use. On macOS the session tells; a daemon's own environment is as old as
    /// the daemon.
    async fn read_session_host(&mut self) {
        let named = match self.machine.os() {
            Os::MacOs => {
                let Ok(name) = Name::try_new("OLLAMA_HOST") else { return };
                let values = publish::session_values(&self.machine, std::slice::from_ref(&name)).await;
                values.known().and_then(|values| values.get(&name)).map(ToString::to_string)
            }
            Os::Linux if self.machine.simulated().is_none() => std::env::var("OLLAMA_HOST").ok(),
            Os::Linux => None,
        };
        self.host_of_clients = named.filter(|raw| !raw.trim().is_empty());
    }

    async fn ask(&self) -> (Answer, Known<Version>) {
        let client = match Client::new(self.address()) {
            Ok(client) => client,
            Err(error) => return (Answer::Refused, Known::unknown(error.to_string())),
        };
        match client.version(VERSION_DEADLINE).await {
            Ok(version) => (Answer::Version(version.to_string()), Known::Is(version)),
            Err(error) => {
                let reason = Known::unknown(error.to_string());
                let answer = match error {
                    CallError::Refused { .. } => Answer::Refused,
                    CallError::Silent { .. } | CallError::Broken { .. } => Answer::Silent,
                    CallError::NotOllama { .. } | CallError::Status { .. } | CallError::Malformed { .. } => {
                        Answer::NotOllama(error.to_string())
                    }
                };
                (answer, reason)
            }
        }
    }

    fn names_that_matter(&self, configuration: &Configuration, persisted: &Known<Values>) -> Vec<Name> {
        let main = MAIN_SETTINGS.iter().filter_map(|name| Name::try_new(name).ok());
        let persisted = persisted.known().into_iter().flat_map(|values| values.keys().cloned());
        let names: BTreeSet<Name> = main.chain(configuration.desired.keys().cloned()).chain(persisted).collect();
        names.into_iter().collect()
    }

    async fn session(
        &mut self,
        owner: Option<&Owner>,
        server: Option<&Process>,
        names: &[Name],
        desired: &Values,
    ) -> Session {
        let now = self.machine.clock().awake();
        let server = server.map(|process| process.id);
        if let Some(session) = &self.session {
            let fresh = now.since(session.at) < SESSION_BELIEVED;
            if fresh && session.server == server && session.names == names {
                return session.clone();
            }
        }
        let values = match owner {
            Some(owner) => layers::session(&self.machine, owner, names).await,
            None => None,
        };
        let published_at = publish::published_at(&self.machine).await;
        let obstacles = match owner {
            Some(owner) => layers::obstacles(&self.machine, owner, desired).await,
            None => Obstacles::default(),
        };
        let session = Session { values, obstacles, published_at, server, names: names.to_vec(), at: now };
        self.session = Some(session.clone());
        self.read_session_host().await;
        session
    }

    async fn evidence(&mut self, owner: Option<&Owner>, server: Option<&Process>) -> ServerEvidence {
        let Some(server) = server else {
            let reason = "no server of this user runs";
            return ServerEvidence { config_line: Known::unknown(reason), environment: Known::unknown(reason) };
        };
        let logged = match owner {
            Some(owner) => self.config_line(owner, server).await,
            None => Known::unknown("no owner of the server is known"),
        };
        server_evidence(logged, server)
    }

    async fn config_line(&mut self, owner: &Owner, server: &Process) -> Known<Logged> {
        let now = self.machine.clock().awake();
        if let Some((of, logged, at)) = &self.config_line
            && *of == server.id
        {
            let settled = match logged {
                Known::Is(logged) => is_of_server(&logged.line, server.started),
                Known::Unknown(_) => false,
            };
            if settled || (now.since(*at) < SEARCH_PAUSE && !just_started(now, self.machine.clock().now().wall, server))
            {
                return logged.clone();
            }
        }
        let logged = match server_log(&self.machine, owner) {
            LogSource::File(path) => search_file(path).await,
            LogSource::Journal { scope, unit } => {
                crate::server_log::config_line_in_journal(&self.machine, scope, &unit, server.started).await
            }
            LogSource::Nowhere(reason) => Known::Unknown(reason),
        };
        self.config_line = Some((server.id, logged.clone(), now));
        logged
    }

    async fn runners(&mut self, survey: &Survey, answers: bool) -> Vec<protocol::Runner> {
        let mut runners = Vec::new();
        for sighting in &survey.sightings {
            let Role::Runner(args) = &sighting.role else { continue };
            let model = match &args.model {
                Known::Is(model) => {
                    Known::Is(self.names.of(self.machine.home(), self.machine.clock().awake(), model).name)
                }
                Known::Unknown(reason) => Known::Unknown(reason.clone()),
            };
            let forced = match (&args.kind, model.known()) {
                (RunnerKind::Mlx, _) => Some("an MLX runner serves one request at a time".to_owned()),
                (RunnerKind::LlamaServer | RunnerKind::OllamaRunner, Some(model)) if answers => {
                    self.forced(model).await
                }
                (RunnerKind::LlamaServer | RunnerKind::OllamaRunner, _) => None,
            };
            runners.push(protocol::Runner {
                pid: sighting.process.id.pid,
                kind: match args.kind {
                    RunnerKind::LlamaServer => "llama-server",
                    RunnerKind::OllamaRunner => "ollama-runner",
                    RunnerKind::Mlx => "mlx",
                }
                .to_owned(),
                model: wire(model),
                slots: wire(args.slots.clone()),
                forced,
            });
        }
        runners
    }

    /// Why a model gets one slot whatever the setting says; asked of the server once per model.
    async fn forced(&mut self, model: &str) -> Option<String> {
        if let Some(known) = self.forced.get(model) {
            return known.clone();
        }
        let client = Client::new(self.address()).ok()?;
        let shown = client.show(model, false, VERSION_DEADLINE).await.ok()?;
        let shape = stablehand_ollama::model_shape::ModelShape::from_shown(&shown);
        let architecture = shape.architecture.known().cloned().unwrap_or_default();
        let reason = shape.forced_to_one().map(|why| format!("{architecture}: {why}"));
        self.forced.insert(model.to_owned(), reason.clone());
        reason
    }

    fn notes(&self, obstacles: Obstacles) -> Vec<String> {
        let mut notes = obstacles.outranked;
        if self.machine.uid() == 0 && self.machine.simulated().is_none() {
            notes.push(
                "the daemon runs as root; it needs no rights beyond those of the user who runs Ollama".to_owned(),
            );
        }
        notes
    }
}

/// What this server listens at; all that listen where it is not known which of them it is.
fn own_listeners(listeners: &[Listener], server: Option<Identity>) -> Vec<Listener> {
    let is_its = |listener: &&Listener| server.is_some() && listener.process.known() == server.as_ref();
    let its: Vec<Listener> = listeners.iter().filter(is_its).cloned().collect();
    if its.is_empty() { listeners.to_vec() } else { its }
}

fn a_server_listens(survey: &Survey, listeners: &[Listener]) -> bool {
    serve_among(survey, listeners).is_some()
}

/// The server that is one of those who listen.
fn serve_among(survey: &Survey, listeners: &[Listener]) -> Option<Identity> {
    let serves = survey.sightings.iter().filter(|sighting| matches!(sighting.role, Role::Serve));
    serves.map(|serve| serve.process.id).find(|id| listeners.iter().any(|one| one.process.known() == Some(id)))
}

/// The port that the environment of the one server of this machine names.
fn told_port(survey: &Survey) -> Option<u16> {
    let mut serves = survey.sightings.iter().filter(|sighting| matches!(sighting.role, Role::Serve));
    let (server, None) = (serves.next()?, serves.next()) else { return None };
    let raw = server.process.environment.known()?.get("OLLAMA_HOST")?;
    Some(HostAddress::parse(raw).port).filter(|port| *port != 0)
}

/// What the app's GUI was started with, when the app is the owner.
fn from_app(
    survey: &Survey,
    owner: Option<&Owner>,
    server: Option<&Process>,
    published_at: &Known<Option<Wall>>,
) -> FromApp {
    let Some(Owner::App { .. }) = owner else { return FromApp::NotTheApp };
    let gui = survey.sightings.iter().find(|sighting| {
        let above = server.and_then(|server| server.parent);
        matches!(sighting.role, Role::Gui { .. }) && Some(sighting.process.id.pid) == above
    });
    match gui.map(|gui| &gui.process.environment) {
        Some(Known::Is(values)) => FromApp::StartedWith(values.clone()),
        Some(Known::Unknown(_)) | None => FromApp::Unreadable {
            after_publication: match (published_at.known(), server) {
                (Some(Some(published)), Some(server)) => server.started >= *published,
                (_, _) => false,
            },
        },
    }
}

/// A server writes its config line within moments; until then it is looked for at every look.
fn just_started(_now: Awake, wall: Wall, server: &Process) -> bool {
    wall - server.started < Duration::from_secs(120)
}

async fn search_file(path: std::path::PathBuf) -> Known<Logged> {
    let log = path.display().to_string();
    let searched = tokio::task::spawn_blocking(move || {
        let limits = Limits { scan_bytes: SEARCH_BYTES, ..Limits::default() };
        last_config_line(&path, limits, &Parser::local())
    })
    .await;
    match searched {
        Ok(Ok(Search::Found(line))) => found(line, log),
        Ok(Ok(Search::Absent { .. })) => Known::unknown(format!("{log} holds no server config line")),
        Ok(Err(error)) => Known::unknown(format!("{log} cannot be read: {error}")),
        Err(error) => Known::unknown(format!("the search of {log} broke: {error}")),
    }
}

/// A config line with its place.
pub fn found(line: ConfigLine, log: String) -> Known<Logged> {
    Known::Is(Logged { line, log })
}

fn process_of(survey: &Survey, id: Identity) -> Option<&Process> {
    survey.sightings.iter().map(|sighting| &sighting.process).find(|process| process.id == id)
}

/// The session was asked only for some names; for the others it is not unset but not known, and not shown.
fn forget_unasked(reports: &mut [Report], asked: &[Name]) {
    for report in reports.iter_mut().filter(|report| !asked.contains(&report.name)) {
        report.session = None;
    }
}

/// The server listens where the gateway wants it, and not where clients are told to go; that is no drift.
fn forgive_moved_address(reports: &mut [Report], moved: u16) {
    for report in reports.iter_mut().filter(|report| report.name.as_str() == ADDRESS) {
        let session_moved = match &report.session {
            Some(Known::Is(Some(value))) => HostAddress::parse(value.as_str()).port == moved,
            Some(Known::Is(None) | Known::Unknown(_)) | None => false,
        };
        let stays = |layer: &Layer| match layer {
            Layer::Persisted => true,
            // A unit's start is told through the layer that its manager hands out.
            Layer::Session => !session_moved,
            Layer::Effective => false,
        };
        report.standing = match std::mem::replace(&mut report.standing, Standing::Proven) {
            Standing::Drift(layers) => {
                let layers: Vec<Layer> = layers.into_iter().filter(stays).collect();
                if layers.is_empty() { Standing::Proven } else { Standing::Drift(layers) }
            }
            Standing::SetInApp => Standing::Proven,
            standing @ (Standing::NotManaged | Standing::Proven | Standing::Unknown(_)) => standing,
        };
    }
}

fn wire<T>(fact: Known<T>) -> protocol::Known<T> {
    match fact {
        Known::Is(value) => protocol::Known::Is(value),
        Known::Unknown(reason) => protocol::Known::unknown(reason),
    }
}
