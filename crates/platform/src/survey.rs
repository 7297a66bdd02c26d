//! One look at everything that bears on who owns the server.

use crate::applications;
use crate::command::run;
use crate::launchd::property_list::PropertyList;
use crate::launchd::{job, launchctl, plist_of};
use crate::linux;
use crate::listeners::ListenerTable;
use crate::machine::{Machine, Os};
use crate::paths::versions_folders;
use crate::processes::{self, ProcessTable};
use crate::signal::Classify;
use stablehand_engine::Known;
use stablehand_engine::owner::{
    AgentKind, Keeper, Listener, Owner, Started, Survey, adopts_orphans, enclosing_bundle, holder, lies_in_ollama,
};
use stablehand_engine::process::{Belonging, Identity, Process, Role, RunnerKind, Sighting};
use std::collections::{BTreeSet, HashMap, HashSet};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Label of the launchd job with which we run a server where nothing else does.
pub const SERVER_LABEL: &str = "dev.stablehand.ollama";

/// Labels of the Homebrew service: until Homebrew 6, and from 7 on.
const BREW_LABELS: [&str; 2] = ["homebrew.mxcl.ollama", "sh.brew.ollama"];

/// How many servers that are gone stay known, for telling whose runners were left behind.
const REMEMBERED_SERVERS: usize = 32;

/// A server as it was when it was last seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SeenServer {
    pub(crate) process: Process,
    /// Number of the look in which it was last seen.
    look: u64,
}

impl SeenServer {
    /// Whether a runner comes from the same installation and started after this server: below the folder above the
    /// server's own (`/usr/local` for `/usr/local/bin/ollama`, `Contents` for the app's).
    pub(crate) fn could_have_started(&self, runner: &Sighting) -> bool {
        let (Some(server), Some(program)) = (self.process.executable.known(), runner.process.executable.known()) else {
            return false;
        };
        let prefix = server.parent().and_then(Path::parent);
        let narrow = prefix.filter(|prefix| prefix.parent().is_some());
        let same_place = narrow.is_some_and(|prefix| program.starts_with(prefix)) || server == program;
        same_place && runner.process.started >= self.process.started
    }
}

/// Takes looks. It keeps what costs to read, and what only an earlier look could tell: whose child a runner was.
#[derive(Debug)]
pub struct Surveyor {
    machine: Machine,
    classify: Classify,
    processes: ProcessTable,
    listeners: ListenerTable,
    units: linux::keepers::KeeperSearch,
    servers: HashMap<Identity, SeenServer>,
    runners: HashMap<Identity, Identity>,
    look: u64,
    /// The servers that ran when a stop began.
    before_stop: Option<HashSet<Identity>>,
}

impl Surveyor {
    /// A surveyor that has seen nothing. `classify` tells the part of Ollama that a process plays.
    pub fn new(machine: Machine, classify: Classify) -> Self {
        Self {
            processes: ProcessTable::new(machine.clone()),
            machine,
            classify,
            listeners: ListenerTable::default(),
            units: linux::keepers::KeeperSearch::default(),
            servers: HashMap::new(),
            runners: HashMap::new(),
            look: 0,
            before_stop: None,
        }
    }

    /// Looks at processes, the port, service managers, bundles and programs.
    pub async fn survey(&mut self, port: u16) -> Survey {
        // The port before the processes: whoever listens was there when the processes were read, or is gone since.
        // The other way round, a server that binds in between would look like a stranger.
        let listeners = self.listeners.look(port).await;
        let (mut sightings, others) = self.look_at_processes();
        let uid = self.machine.uid();
        let listeners = listeners.map(|listeners| without_the_gone(listeners, &sightings, uid));
        let keepers = self.keepers(&sightings, &others).await;
        let started = linux::own_process::recorded_start(&self.machine);
        let programs = programs(&self.machine, started.as_ref());
        let named = |program: PathBuf| by_its_link(&self.machine, &programs, program);
        let started_by_us = started.map(|started| Started { program: named(started.program), ..started });
        for sighting in sightings.iter_mut().filter(|sighting| sighting.role == Role::Serve) {
            if let Known::Is(program) = &sighting.process.executable {
                sighting.process.executable = Known::Is(named(program.clone()));
            }
        }
        let running: BTreeSet<PathBuf> = sightings.iter().filter_map(bundle_of_gui).collect();
        let running: Vec<_> = running.into_iter().collect();
        Survey {
            uid: self.machine.uid(),
            port,
            parents: ancestors(&sightings, &others),
            listeners,
            keepers,
            apps: applications::ollama_apps(&self.machine, &running),
            programs,
            own_unit: match self.machine.os() {
                Os::MacOs => Known::unknown("macOS runs no systemd"),
                Os::Linux => self.units.own_unit(),
            },
            started_by_us,
            sightings,
        }
    }

    /// Ollama's processes alone.
    pub fn sightings(&mut self) -> Vec<Sighting> {
        self.look_at_processes().0
    }

    /// Ollama's processes, and everybody else's.
    pub(crate) fn sightings_and_others(&mut self) -> (Vec<Sighting>, Vec<Process>) {
        let (sightings, mut others) = self.look_at_processes();
        others.extend(strangers(&sightings, &others));
        (sightings, others)
    }

    /// Who listens on a port.
    pub async fn listeners(&mut self, port: u16) -> Known<Vec<Listener>> {
        self.listeners.look(port).await
    }

    /// Whether this life of a process still goes on.
    #[expect(clippy::unused_async, reason = "callers await it beside other looks; a system may have to be asked")]
    pub async fn alive(&self, id: Identity) -> bool {
        processes::is_alive(id)
    }

    /// How processes are told apart.
    pub fn classify(&self) -> Classify {
        self.classify
    }

    /// The server as it was last seen, also when it is gone.
    pub(crate) fn seen_server(&self, id: Identity) -> Option<&SeenServer> {
        self.servers.get(&id)
    }

    /// Whose a runner is. One that nobody saw below a server counts as left behind only when a server that is gone
    /// could have started it, or when it is a program of Ollama's that nobody holds: a `llama-server` with a model of
    /// Ollama's may be a person's own.
    pub fn belonging(&self, sighting: &Sighting) -> Belonging {
        let process = &sighting.process;
        let parent = |seen: &&SeenServer| Some(seen.process.id.pid) == process.parent;
        if let Some(server) = self.servers.values().filter(parent).find(|seen| processes::is_alive(seen.process.id)) {
            return Belonging::Server(server.process.id);
        }
        if let Some(server) = self.server_of_runner(process.id) {
            return if processes::is_alive(server) { Belonging::Server(server) } else { Belonging::LeftBehind };
        }
        let could = |seen: &SeenServer| !processes::is_alive(seen.process.id) && seen.could_have_started(sighting);
        if self.servers.values().any(could) || (is_of_ollama(sighting) && is_held_by_nobody(process)) {
            return Belonging::LeftBehind;
        }
        Belonging::Unknown
    }

    /// Whose child a runner was when it was first seen with a server above it.
    pub(crate) fn server_of_runner(&self, runner: Identity) -> Option<Identity> {
        self.runners.get(&runner).copied()
    }

    /// Notes which servers run, before one is stopped.
    pub(crate) fn note_stop(&mut self) {
        let running = self.sightings().into_iter().filter(|sighting| matches!(sighting.role, Role::Serve));
        self.before_stop = Some(running.map(|sighting| sighting.process.id).collect());
    }

    /// Whether this server was not there yet when the last stop began; false when no stop was seen.
    pub(crate) fn is_newer_than_stop(&self, id: Identity) -> bool {
        self.before_stop.as_ref().is_some_and(|before| !before.contains(&id))
    }

    fn look_at_processes(&mut self) -> (Vec<Sighting>, Vec<Process>) {
        let (mut sightings, mut others) = (Vec::new(), Vec::new());
        for process in self.processes.look() {
            match (self.classify)(&process) {
                Some(role) => sightings.push(Sighting { process, role }),
                None => others.push(process),
            }
        }
        sightings.sort_by_key(|sighting| sighting.process.id);
        self.remember(&sightings);
        (sightings, others)
    }

    fn remember(&mut self, sightings: &[Sighting]) {
        self.look += 1;
        let serves: HashMap<u32, &Process> = sightings
            .iter()
            .filter(|sighting| matches!(sighting.role, Role::Serve))
            .map(|sighting| (sighting.process.id.pid, &sighting.process))
            .collect();
        for process in serves.values() {
            self.servers.insert(process.id, SeenServer { process: (*process).clone(), look: self.look });
        }
        if self.servers.len() > REMEMBERED_SERVERS {
            let mut looks: Vec<_> = self.servers.values().map(|server| server.look).collect();
            looks.sort_unstable();
            let oldest_kept = looks[looks.len() - REMEMBERED_SERVERS];
            self.servers.retain(|_, server| server.look >= oldest_kept);
        }
        let mut runners = HashMap::new();
        for sighting in sightings.iter().filter(|sighting| matches!(sighting.role, Role::Runner(_))) {
            let id = sighting.process.id;
            let parent = sighting.process.parent.and_then(|pid| serves.get(&pid)).map(|process| process.id);
            if let Some(server) = self.runners.get(&id).copied().or(parent) {
                runners.insert(id, server);
            }
        }
        self.runners = runners;
    }

    async fn keepers(&mut self, sightings: &[Sighting], others: &[Process]) -> Vec<Keeper> {
        match self.machine.os() {
            Os::MacOs => launchd_keepers(&self.machine, sightings, others).await,
            Os::Linux => {
                let serves = sightings.iter().filter(|sighting| matches!(sighting.role, Role::Serve));
                let pids: Vec<u32> = serves.map(|sighting| sighting.process.id.pid).collect();
                self.units.keepers(&self.machine, &pids).await
            }
        }
    }
}

/// The launchd jobs that can run a server. One without a plist in the agents' folder (`brew services run`) is asked
/// for only when a server is there that launchd may have started.
async fn launchd_keepers(machine: &Machine, sightings: &[Sighting], others: &[Process]) -> Vec<Keeper> {
    let from_launchd = sightings.iter().any(|sighting| {
        let in_bundle = sighting.process.executable.known().is_some_and(|path| enclosing_bundle(path).is_some());
        matches!(sighting.role, Role::Serve) && !in_bundle
    });
    let mut keepers = Vec::new();
    for label in BREW_LABELS.into_iter().chain([SERVER_LABEL]) {
        let plist = plist_of(machine, label);
        if plist.is_file() || from_launchd {
            keepers.extend(launchd_keeper(machine, label, plist).await);
        }
    }
    // An agent that somebody wrote to run the bundle's own server is a widely published recipe. Whatever no shell and
    // no GUI holds may be launchd's, and launchd would start it again.
    for sighting in sightings.iter().filter(|sighting| matches!(sighting.role, Role::Serve)) {
        let pid = sighting.process.id.pid;
        let below_gui = sightings.iter().any(|other| {
            Some(other.process.id.pid) == sighting.process.parent && matches!(other.role, Role::Gui { .. })
        });
        let known = below_gui || keepers.iter().any(|keeper| keeper.pid == Some(pid));
        if !known && holder(&sighting.process, others).is_none() {
            keepers.extend(foreign_job(machine, pid).await);
        }
    }
    keepers
}

async fn foreign_job(machine: &Machine, pid: u32) -> Option<Keeper> {
    let listed = run(machine, &launchctl::list(machine)).await.ok()?;
    let label = launchctl::parse_list(&listed.stdout, pid)?;
    let plist = plist_of(machine, &label);
    launchd_keeper(machine, &label, plist).await
}

async fn launchd_keeper(machine: &Machine, label: &str, plist: PathBuf) -> Option<Keeper> {
    // Without an answer (no session at the screen) the plist alone still says that the job exists.
    let loaded = job::look(machine, label).await.ok().flatten();
    let plist = match &loaded {
        Some(job) => job.path.clone().unwrap_or(plist),
        None if plist.is_file() => plist,
        None => return None,
    };
    let restarts = loaded.as_ref().is_some_and(|job| job.keep_alive || keeps_alive(&plist));
    let owner = if BREW_LABELS.contains(&label) {
        Owner::Brew { label: label.to_owned(), plist }
    } else {
        Owner::Agent(AgentKind::LaunchAgent { label: label.to_owned(), plist })
    };
    Some(Keeper { owner, pid: loaded.and_then(|job| job.pid), restarts })
}

fn keeps_alive(plist: &Path) -> bool {
    matches!(PropertyList::look(plist), Ok(Some(list)) if list.keeps_alive())
}

fn is_of_ollama(sighting: &Sighting) -> bool {
    match &sighting.role {
        Role::Runner(args) => match args.kind {
            RunnerKind::OllamaRunner | RunnerKind::Mlx => true,
            RunnerKind::LlamaServer => sighting.process.executable.known().is_some_and(|path| lies_in_ollama(path)),
        },
        Role::Gui { .. } | Role::Shim { .. } | Role::Serve => true,
    }
}

fn is_held_by_nobody(process: &Process) -> bool {
    match process.parent {
        None | Some(0 | 1) => true,
        Some(parent) => processes::anybody(parent).is_none_or(|parent| adopts_orphans(&parent)),
    }
}

/// A socket of this user's whose process cannot be found was closed in between, as was one whose process has ended.
fn without_the_gone(listeners: Vec<Listener>, sightings: &[Sighting], uid: u32) -> Vec<Listener> {
    let there = |listener: &Listener| match &listener.process {
        Known::Is(id) => sightings.iter().any(|sighting| sighting.process.id == *id) || processes::is_alive(*id),
        Known::Unknown(_) => listener.uid != Some(uid),
    };
    listeners.into_iter().filter(there).collect()
}

fn bundle_of_gui(sighting: &Sighting) -> Option<PathBuf> {
    match &sighting.role {
        Role::Gui { bundle } => Some(bundle.clone()),
        Role::Shim { .. } | Role::Serve | Role::Runner(_) => None,
    }
}

/// Everybody above Ollama's processes who is no part of it.
fn ancestors(sightings: &[Sighting], others: &[Process]) -> Vec<Process> {
    let by_pid: HashMap<u32, &Process> = others.iter().map(|process| (process.id.pid, process)).collect();
    let mut found: Vec<Process> = strangers(sightings, others);
    for sighting in sightings {
        let mut next = sighting.process.parent;
        while let Some(parent) = next.and_then(|pid| by_pid.get(&pid)) {
            if found.iter().any(|seen| seen.id == parent.id) {
                break;
            }
            found.push((*parent).clone());
            next = parent.parent;
        }
    }
    found
}

/// Parents that the table did not show: another user's, or (for a world) one from outside it. Whoever has such a
/// parent is held by it.
fn strangers(sightings: &[Sighting], others: &[Process]) -> Vec<Process> {
    let shown = |pid: u32| {
        let ours = sightings.iter().map(|sighting| &sighting.process).chain(others);
        ours.into_iter().any(|process| process.id.pid == pid)
    };
    let parents: BTreeSet<u32> = sightings.iter().filter_map(|sighting| sighting.process.parent).collect();
    let unseen = parents.into_iter().filter(|pid| *pid > 1 && !shown(*pid));
    unseen.filter_map(processes::anybody).collect()
}

/// `ollama` programs for a start of our own, the one that we started last before all. One that only leads into an app
/// bundle is the app's.
fn programs(machine: &Machine, started: Option<&Started>) -> Vec<PathBuf> {
    let usual: &[&str] = match machine.os() {
        Os::MacOs => &["/opt/homebrew/bin/ollama", "/usr/local/bin/ollama"],
        Os::Linux => &["/usr/local/bin/ollama", "/usr/bin/ollama", "/opt/ollama/bin/ollama", "/snap/bin/ollama"],
    };
    let own = machine.home().join(".local/bin/ollama");
    let mut found: Vec<PathBuf> = vec![];
    let started = started.map(|started| started.program.clone());
    for path in started.into_iter().chain(usual.iter().map(|path| machine.at(path))).chain([own]) {
        if is_program(&path) && !found.contains(&path) {
            found.push(path);
        }
    }
    found
}

/// A version among those that lie side by side, by the link that leads to it: the version that runs is not the one that
/// the next start shall take, should the link lead elsewhere by then.
fn by_its_link(machine: &Machine, programs: &[PathBuf], program: PathBuf) -> PathBuf {
    let ours = versions_folders(machine);
    let within = |path: &Path| ours.iter().any(|folder| path.starts_with(folder));
    if !within(&program) {
        return program;
    }
    let links = programs.iter().find(|path| {
        !within(path) && path.canonicalize().is_ok_and(|real| program.canonicalize().is_ok_and(|other| real == other))
    });
    links.cloned().unwrap_or(program)
}

fn is_program(path: &Path) -> bool {
    let runnable = fs::metadata(path).is_ok_and(|about| about.is_file() && about.permissions().mode() & 0o111 != 0);
    runnable && path.canonicalize().is_ok_and(|real| enclosing_bundle(&real).is_none())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Napper, fake_command, world_folder};

    #[tokio::test]
    async fn a_survey_of_a_mac_names_processes_jobs_and_programs() {
        let (_dir, machine) = world_folder("macos");
        let napper = Napper::start(&machine, "opt/homebrew/bin/ollama");
        let script = format!(
            "case \"$2\" in *homebrew.mxcl.ollama) printf 'x = {{\\n\\tpath = /p/homebrew.mxcl.ollama.plist\\n\\tstate = running\\n\\tpid = {}\\n\\tproperties = keepalive\\n}}\\n';; *) echo 'Could not find service' >&2; exit 113;; esac",
            napper.id.pid
        );
        fake_command(&machine, "bin/launchctl", &script);
        let survey = Surveyor::new(machine.clone(), by_name).survey(1).await;
        assert_eq!(survey.sightings.len(), 1);
        assert_eq!(survey.sightings[0].process.id, napper.id);
        assert_eq!(
            survey.keepers,
            [Keeper {
                owner: Owner::Brew {
                    label: "homebrew.mxcl.ollama".to_owned(),
                    plist: "/p/homebrew.mxcl.ollama.plist".into()
                },
                pid: Some(napper.id.pid),
                restarts: true
            }]
        );
        assert_eq!(survey.programs, [machine.at("/opt/homebrew/bin/ollama")]);
        assert_eq!(survey.listeners, Known::Is(Vec::new()));
    }

    #[tokio::test]
    async fn nothing_is_asked_of_launchd_when_nothing_could_be_there() {
        let (_dir, machine) = world_folder("macos");
        let survey = Surveyor::new(machine, by_name).survey(1).await;
        assert_eq!(survey.keepers, []);
        assert_eq!(survey.sightings, []);
    }

    #[test]
    fn a_link_into_a_bundle_is_no_program_of_its_own() {
        let (_dir, machine) = world_folder("macos");
        fake_command(&machine, "Applications/Ollama.app/Contents/Resources/ollama", "");
        let link = machine.at("/usr/local/bin/ollama");
        fs::create_dir_all(link.parent().unwrap()).unwrap();
        std::os::unix::fs::symlink(machine.at("/Applications/Ollama.app/Contents/Resources/ollama"), &link).unwrap();
        assert!(programs(&machine, None).is_empty());
    }

    #[test]
    fn the_program_that_we_started_last_is_found_wherever_it_lies() {
        let (_dir, machine) = world_folder("linux");
        fake_command(&machine, "usr/bin/ollama", "");
        fake_command(&machine, "opt/somewhere/ollama", "");
        let started = machine.at("/opt/somewhere/ollama");
        let folder = crate::paths::stablehand_files(&machine).data_dir;
        fs::create_dir_all(&folder).unwrap();
        let record = serde_json::json!({ "format": 1, "pid": 1, "birth": 1, "program": started, "values": {} });
        fs::write(folder.join("server.json"), record.to_string()).unwrap();
        let recorded = linux::own_process::recorded_start(&machine);
        assert_eq!(programs(&machine, recorded.as_ref()), [started.clone(), machine.at("/usr/bin/ollama")]);
        fs::remove_file(started).unwrap();
        assert_eq!(programs(&machine, recorded.as_ref()), [machine.at("/usr/bin/ollama")]);
    }

    #[test]
    fn servers_that_came_after_a_stop_are_told_from_those_before() {
        let (_dir, machine) = world_folder("macos");
        let mut surveyor = Surveyor::new(machine.clone(), by_name);
        let old = Napper::start(&machine, "opt/homebrew/bin/ollama");
        assert!(!surveyor.is_newer_than_stop(old.id));
        surveyor.note_stop();
        let new = Napper::start(&machine, "usr/local/bin/ollama");
        assert!(!surveyor.is_newer_than_stop(old.id));
        assert!(surveyor.is_newer_than_stop(new.id));
    }

    fn by_name(process: &Process) -> Option<Role> {
        process.executable.known()?.ends_with("ollama").then_some(Role::Serve)
    }
}
