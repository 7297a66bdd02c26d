//! Who starts the server. Exactly one owner is named, or everybody who fights for the port is.
//!
//! The rule is [`ownership`]: it looks at who listens on the port, which service manager keeps that process, and
//! which bundle it came from. It decides nothing by what is merely installed while a server runs.

use crate::known::Known;
use crate::process::{Identity, Process, Role, Sighting};
use std::path::{Path, PathBuf};

/// Which systemd manager a unit belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scope {
    /// The machine's manager; changes need root or polkit.
    System,
    /// The user's own manager (`systemctl --user`).
    User,
}

/// How our own server is kept running, where no other owner exists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AgentKind {
    /// A launchd job of this user: ours, or one that somebody wrote by hand.
    LaunchAgent {
        /// Its label.
        label: String,
        /// Its plist.
        plist: PathBuf,
    },
    /// Our unit of the user's systemd.
    UserUnit {
        /// Its name.
        unit: String,
    },
    /// A unit of the user's systemd that we are about to make; once it is there it is a [`Self::UserUnit`].
    NewUnit {
        /// Its name.
        unit: String,
        /// The `ollama` program to start.
        program: PathBuf,
    },
    /// A process that we started ourselves, where there is no service manager.
    Process {
        /// The `ollama` program to start.
        program: PathBuf,
    },
}

/// What starts the server, and must be asked to restart it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Owner {
    /// Ollama.app: its GUI starts `serve` and starts it again whenever it dies.
    App {
        /// Path of the bundle.
        bundle: PathBuf,
    },
    /// A Homebrew service.
    Brew {
        /// launchd label (`homebrew.mxcl.ollama`, or `sh.brew.ollama` from Homebrew 7 on).
        label: String,
        /// Its plist.
        plist: PathBuf,
    },
    /// A systemd unit that is not ours.
    Systemd {
        /// Whose manager.
        scope: Scope,
        /// Unit name, e.g. `ollama.service`.
        unit: String,
    },
    /// Our own job, unit or process.
    Agent(AgentKind),
    /// A container. It is shown and proved, never changed.
    Container {
        /// Container id or name.
        name: String,
    },
    /// Somebody's terminal or script. It is never stopped without being told to.
    Manual {
        /// The server.
        server: Identity,
        /// The program it runs from.
        program: Known<PathBuf>,
        /// Name of the parent process, e.g. `zsh`.
        started_by: Option<String>,
        /// The unit of ours that it becomes when it is taken over; unknown where no systemd of the user answers.
        own_unit: Known<String>,
    },
}

impl Owner {
    /// The word used for it in reports and JSON.
    pub fn word(&self) -> &'static str {
        match self {
            Self::App { .. } => "app",
            Self::Brew { .. } => "brew",
            Self::Systemd { .. } => "systemd",
            Self::Agent(_) => "agent",
            Self::Container { .. } => "container",
            Self::Manual { .. } => "manual",
        }
    }
}

/// The gateway's program, which may stand there for a moment while places are changed.
const OUR_PROGRAM: &str = "stablehand";

/// A process that listens on the server's port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listener {
    /// Its address as shown, e.g. `127.0.0.1:11434` or `*:11434`.
    pub address: String,
    /// The process; unknown when it belongs to another user.
    pub process: Known<Identity>,
    /// Its program's name, when it can be read.
    pub program: Option<String>,
    /// Numeric owner of the socket, when it can be read.
    pub uid: Option<u32>,
}

/// A service manager's view of a job, unit or container that can run an Ollama server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Keeper {
    /// The owner it stands for.
    pub owner: Owner,
    /// Pid of its main process while it runs.
    pub pid: Option<u32>,
    /// Whether the manager would start it again by itself.
    pub restarts: bool,
}

/// A copy of Ollama.app on this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AppBundle {
    /// Path of the bundle.
    pub path: PathBuf,
    /// Version in its Info.plist.
    pub version: Known<String>,
    /// It runs from a random read-only path because of quarantine, and must be moved by Finder first.
    pub translocated: bool,
}

/// Everything seen in one look that bears on ownership.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Survey {
    /// The user we work for.
    pub uid: u32,
    /// The port looked at.
    pub port: u16,
    /// Ollama's processes of every user that could be seen.
    pub sightings: Vec<Sighting>,
    /// Who listens on the port.
    pub listeners: Known<Vec<Listener>>,
    /// Names of parents by pid, for words only.
    pub parents: Vec<Process>,
    /// Jobs, units and containers that can run a server, running or not.
    pub keepers: Vec<Keeper>,
    /// Copies of Ollama.app.
    pub apps: Vec<AppBundle>,
    /// `ollama` programs found, for a start of our own.
    pub programs: Vec<PathBuf>,
    /// Name of a unit of ours for a server; unknown where no systemd of the user answers.
    pub own_unit: Known<String>,
    /// The server that we started ourselves, as we wrote it down.
    pub started_by_us: Option<Started>,
}

/// A server that we started ourselves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Started {
    /// The process.
    pub id: Identity,
    /// The program, by the name under which it was started: a link, where versions lie side by side. The file that runs is
    /// another one, and would be started again although the link leads elsewhere by then.
    pub program: PathBuf,
}

/// Who stands beside the server on its port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Contender {
    /// An owner of another server.
    Owner(Owner),
    /// A program that is no Ollama and listens at another address of the same port. macOS lets both of a user's
    /// listen (`bsd/netinet/in_pcb.c`, `in_pcbbind`), and whoever has the more precise address gets the connections.
    Stranger,
}

impl Contender {
    /// The word used for it in reports and JSON.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Owner(owner) => owner.word(),
            Self::Stranger => "stranger",
        }
    }
}

/// Somebody who wants the same port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rival {
    /// Who.
    pub who: Contender,
    /// Its pid, while it runs.
    pub pid: Option<u32>,
    /// Where it runs from.
    pub program: Option<PathBuf>,
    /// Version, when it can be told.
    pub version: Option<String>,
    /// Why it counts as a rival, as a phrase.
    pub why: String,
}

/// Who holds the port when it is not a server of ours to care for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Foreigner {
    /// Another program of this user.
    Stranger {
        /// Its pid.
        pid: u32,
        /// Its program's name.
        program: String,
    },
    /// Another user's process.
    OtherUser {
        /// Who, when it can be told.
        uid: Option<u32>,
    },
}

/// The conclusion about ownership.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ownership {
    /// One owner, and its server when it runs.
    One {
        /// The owner.
        owner: Owner,
        /// Its server process, `None` while it is down.
        server: Option<Identity>,
    },
    /// Several fight for the port.
    Contested {
        /// Whose server holds the port now.
        holder: Owner,
        /// That server.
        server: Identity,
        /// The others.
        rivals: Vec<Rival>,
    },
    /// The port belongs to somebody else.
    Foreign(Foreigner),
    /// No server and nothing that could start one.
    Absent,
    /// It could not be told.
    Unknown(String),
}

impl Ownership {
    /// The owner that a restart goes through, when there is exactly one.
    pub fn sole_owner(&self) -> Option<&Owner> {
        match self {
            Self::One { owner, .. } => Some(owner),
            Self::Contested { .. } | Self::Foreign(_) | Self::Absent | Self::Unknown(_) => None,
        }
    }

    /// Whether a program that is no Ollama listens on the server's port as well.
    pub fn is_port_shared(&self) -> bool {
        match self {
            Self::Contested { rivals, .. } => rivals.iter().any(|rival| rival.who == Contender::Stranger),
            Self::One { .. } | Self::Foreign(_) | Self::Absent | Self::Unknown(_) => false,
        }
    }

    /// The server process, when one of the user's runs.
    pub fn server(&self) -> Option<Identity> {
        match self {
            Self::One { server, .. } => *server,
            Self::Contested { server, .. } => Some(*server),
            Self::Foreign(_) | Self::Absent | Self::Unknown(_) => None,
        }
    }
}

/// Names the owner of the server on the survey's port.
pub fn ownership(survey: &Survey) -> Ownership {
    let listeners = match &survey.listeners {
        Known::Is(listeners) => listeners.as_slice(),
        Known::Unknown(reason) if serves(survey).next().is_none() => return Ownership::Unknown(reason.clone()),
        Known::Unknown(_) => &[],
    };
    if let Some(holder) = serves(survey).find(|sighting| listens(listeners, sighting.process.id)) {
        return with_rivals(survey, holder);
    }
    if let Some(foreigner) = foreigner(survey, listeners) {
        return Ownership::Foreign(foreigner);
    }
    // A server that has not bound its port yet is on its way up; it is the one to wait for.
    let may_bind = |sighting: &&Sighting| is_ours(survey, &sighting.process) && same_port(survey, &sighting.process);
    if let Some(starting) = serves(survey).find(may_bind) {
        return with_rivals(survey, starting);
    }
    match owner_of_nothing(survey) {
        Some(owner) => Ownership::One { owner, server: None },
        None => Ownership::Absent,
    }
}

/// The owner of one server process.
pub fn owner_of(survey: &Survey, server: &Process) -> Owner {
    let lineage = lineage(survey, server);
    if let Some(keeper) = survey.keepers.iter().find(|keeper| keeper.pid.is_some_and(|pid| lineage.contains(&pid))) {
        return keeper.owner.clone();
    }
    if let Some(started) = survey.started_by_us.as_ref().filter(|started| started.id == server.id) {
        return Owner::Agent(AgentKind::Process { program: started.program.clone() });
    }
    if let Some(bundle) = gui_above(survey, &lineage) {
        return Owner::App { bundle };
    }
    let holder = holder(server, &survey.parents);
    // Held by nobody, it is an orphan of the bundle that it runs from.
    if let (None, Some(bundle)) = (holder, server.executable.known().and_then(|path| enclosing_bundle(path))) {
        return Owner::App { bundle: bundle.to_path_buf() };
    }
    let started_by =
        holder.and_then(|parent| Some(parent.executable.known()?.file_name()?.to_string_lossy().into_owned()));
    Owner::Manual {
        server: server.id,
        program: server.executable.clone(),
        started_by,
        own_unit: survey.own_unit.clone(),
    }
}

fn with_rivals(survey: &Survey, holder: &Sighting) -> Ownership {
    if !is_ours(survey, &holder.process) {
        return Ownership::Foreign(Foreigner::OtherUser { uid: holder.process.uid.known().copied() });
    }
    let owner = owner_of(survey, &holder.process);
    let mut rivals: Vec<Rival> = serves(survey)
        .filter(|other| other.process.id != holder.process.id && is_ours(survey, &other.process))
        // A server that starts a runner is for a moment there twice, until its child becomes the runner.
        .filter(|other| other.process.parent != Some(holder.process.id.pid))
        .filter(|other| same_port(survey, &other.process))
        .map(|other| Rival {
            who: Contender::Owner(owner_of(survey, &other.process)),
            pid: Some(other.process.id.pid),
            program: other.process.executable.known().cloned(),
            version: version_at(survey, &other.process),
            why: "a second `ollama serve` runs for this user".to_owned(),
        })
        .filter(|rival| rival.who != Contender::Owner(owner.clone()))
        .collect();
    for keeper in &survey.keepers {
        let fights = keeper.restarts
            && keeper.owner != owner
            && rivals.iter().all(|rival| rival.who != Contender::Owner(keeper.owner.clone()));
        if fights && !matches!(keeper.owner, Owner::Container { .. }) {
            rivals.push(Rival {
                who: Contender::Owner(keeper.owner.clone()),
                pid: keeper.pid,
                program: None,
                version: None,
                why: "its service manager keeps starting it again".to_owned(),
            });
        }
    }
    rivals.extend(strangers(survey, holder.process.id));
    if rivals.is_empty() {
        Ownership::One { owner, server: Some(holder.process.id) }
    } else {
        Ownership::Contested { holder: owner, server: holder.process.id, rivals }
    }
}

/// Programs that listen beside this server. One at its very address holds the server's own socket: a child of it that
/// is just becoming a runner.
fn strangers(survey: &Survey, server: Identity) -> Vec<Rival> {
    let listeners = survey.listeners.known().map(Vec::as_slice).unwrap_or_default();
    let is_its =
        |address: &str| listeners.iter().any(|one| one.address == address && one.process.known() == Some(&server));
    let mut rivals: Vec<Rival> = Vec::new();
    if !listens(listeners, server) {
        return rivals;
    }
    for listener in listeners {
        let id = listener.process.known();
        let is_ollama = id.is_some_and(|id| serves(survey).any(|serve| serve.process.id == *id));
        let is_ours = listener.program.as_deref() == Some(OUR_PROGRAM);
        let pid = id.map(|id| id.pid);
        if is_ollama || is_ours || is_its(&listener.address) || rivals.iter().any(|known| known.pid == pid) {
            continue;
        }
        rivals.push(Rival {
            who: Contender::Stranger,
            pid,
            program: listener.program.as_ref().map(PathBuf::from),
            version: None,
            why: format!("it listens beside it, at {}", listener.address),
        });
    }
    rivals
}

/// Whether a server may want the survey's port. One that was told another in its environment is no business of ours:
/// neither a rival, nor on its way up.
fn same_port(survey: &Survey, server: &Process) -> bool {
    let host = server.environment.known().and_then(|environment| environment.get("OLLAMA_HOST"));
    match host {
        Some(host) => host.ends_with(&format!(":{}", survey.port)) || !host.rsplit(':').next().is_some_and(is_port),
        None => true,
    }
}

fn is_port(text: &str) -> bool {
    text.parse::<u16>().is_ok()
}

fn owner_of_nothing(survey: &Survey) -> Option<Owner> {
    let gui = survey.sightings.iter().find_map(|sighting| match &sighting.role {
        Role::Gui { bundle } if is_ours(survey, &sighting.process) => Some(bundle.clone()),
        Role::Gui { .. } | Role::Shim { .. } | Role::Serve | Role::Runner(_) => None,
    });
    if let Some(bundle) = gui {
        return Some(Owner::App { bundle });
    }
    let startable = |keeper: &&Keeper| !matches!(keeper.owner, Owner::Container { .. });
    if let Some(keeper) = survey.keepers.iter().find(startable) {
        return Some(keeper.owner.clone());
    }
    if let Some(app) = survey.apps.first() {
        return Some(Owner::App { bundle: app.path.clone() });
    }
    survey.programs.first().map(|program| Owner::Agent(AgentKind::Process { program: program.clone() }))
}

fn foreigner(survey: &Survey, listeners: &[Listener]) -> Option<Foreigner> {
    let listener = listeners.first()?;
    Some(match (&listener.process, listener.uid) {
        (Known::Is(identity), uid) if uid.is_none_or(|uid| uid == survey.uid) => Foreigner::Stranger {
            pid: identity.pid,
            program: listener.program.clone().unwrap_or_else(|| "a program without a readable name".to_owned()),
        },
        (Known::Is(_) | Known::Unknown(_), uid) => Foreigner::OtherUser { uid },
    })
}

fn serves(survey: &Survey) -> impl Iterator<Item = &Sighting> {
    survey.sightings.iter().filter(|sighting| matches!(sighting.role, Role::Serve))
}

fn listens(listeners: &[Listener], id: Identity) -> bool {
    listeners.iter().any(|listener| listener.process.known() == Some(&id))
}

fn is_ours(survey: &Survey, process: &Process) -> bool {
    // A system service runs as its own user (`ollama`); its unit is what makes it ours to look after.
    let kept = survey.keepers.iter().any(|keeper| keeper.pid == Some(process.id.pid));
    kept || process.uid.known().is_some_and(|uid| *uid == survey.uid)
}

fn lineage(survey: &Survey, process: &Process) -> Vec<u32> {
    let mut pids = vec![process.id.pid];
    let mut parent = process.parent;
    while let Some(pid) = parent {
        if pids.contains(&pid) || pids.len() > 16 {
            break;
        }
        pids.push(pid);
        let known = survey.sightings.iter().map(|sighting| &sighting.process).chain(&survey.parents);
        parent = known.into_iter().find(|other| other.id.pid == pid).and_then(|other| other.parent);
    }
    // Everything descends from the first process; a job is never recognised by it.
    pids.retain(|pid| *pid > 1);
    pids
}

fn gui_above(survey: &Survey, lineage: &[u32]) -> Option<PathBuf> {
    survey.sightings.iter().find_map(|sighting| match &sighting.role {
        Role::Gui { bundle } if lineage.contains(&sighting.process.id.pid) => Some(bundle.clone()),
        Role::Gui { .. } | Role::Shim { .. } | Role::Serve | Role::Runner(_) => None,
    })
}

/// Programs that take in orphans. Whoever has one of them for a parent is held by nobody.
const ADOPTERS: [&str; 3] = ["launchd", "systemd", "init"];

/// The process that started this one and still lives: a shell, a script, another program. `others` are processes that
/// are no part of Ollama. What somebody holds is not ours to stop without being told to.
pub fn holder<'a>(process: &Process, others: &'a [Process]) -> Option<&'a Process> {
    let parent = process.parent.filter(|pid| *pid > 1)?;
    let parent = others.iter().find(|other| other.id.pid == parent)?;
    (!adopts_orphans(parent)).then_some(parent)
}

/// Whether this process takes in orphans.
pub fn adopts_orphans(process: &Process) -> bool {
    let name = process.executable.known().and_then(|path| path.file_name());
    process.id.pid == 1 || name.is_some_and(|name| ADOPTERS.iter().any(|adopter| name == *adopter))
}

/// The `.app` folder that a path lies in.
pub fn enclosing_bundle(path: &Path) -> Option<&Path> {
    path.ancestors().skip(1).find(|ancestor| ancestor.extension().is_some_and(|extension| extension == "app"))
}

/// Whether a program is part of an installation of Ollama: it lies in a folder of that name, or in its bundle.
pub fn lies_in_ollama(program: &Path) -> bool {
    program.ancestors().skip(1).any(|folder| {
        let Some(name) = folder.file_name().and_then(|name| name.to_str()) else { return false };
        let name = name.to_ascii_lowercase();
        name == "ollama" || name == ".ollama" || (name.starts_with("ollama") && name.ends_with(".app"))
    })
}

fn version_at(survey: &Survey, process: &Process) -> Option<String> {
    let bundle = enclosing_bundle(process.executable.known()?)?;
    survey.apps.iter().find(|app| app.path == bundle)?.version.known().cloned()
}

#[cfg(test)]
mod tests;
