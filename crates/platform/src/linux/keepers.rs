//! Units and containers that run an Ollama server, or could.
//!
//! Looked for by name (`ollama.service` of the machine and of the user, our own unit), and by the control group of
//! each `ollama serve` that runs (or the engine's helper above it), which finds any other unit and every container
//! without asking anybody.

use super::cgroup::{Engine, Place, place_of};
use super::container::{self, Container};
use super::shim;
use super::systemctl;
use super::unit::Unit;
use super::{DAEMON_UNIT, SERVER_UNIT};
use crate::machine::Machine;
use stablehand_engine::Known;
use stablehand_engine::owner::{AgentKind, Keeper, Owner, Scope};
use std::collections::BTreeMap;
use std::fs;

/// The unit that Ollama's installer writes (`scripts/install.sh`), and that distributions ship.
const USUAL_UNIT: &str = "ollama.service";

const NO_SYSTEMD: &str = "this machine runs no systemd";

/// Looks for keepers; keeps what it learnt of containers, so that an engine is asked once for each.
#[derive(Debug, Default)]
pub struct KeeperSearch {
    containers: BTreeMap<String, Known<Container>>,
    unread: Vec<String>,
    /// Why the user's own manager does not answer; `None` when it does.
    no_user_manager: Option<String>,
}

impl KeeperSearch {
    /// Everything that keeps a server, with those that are up first. `serves` are the pids of the `ollama serve`
    /// processes that run.
    ///
    /// At most two calls of systemctl, none where there is no systemd; one of the container engine for each new
    /// container.
    pub async fn keepers(&mut self, machine: &Machine, serves: &[u32]) -> Vec<Keeper> {
        self.unread.clear();
        let places: Vec<(u32, Place)> = serves.iter().map(|pid| (*pid, place(machine, *pid))).collect();
        let mut keepers = self.units(machine, &places).await;
        for (pid, place) in &places {
            if let Place::Container { engine, id } = place {
                keepers.push(self.container(machine, *pid, engine, id).await);
            }
        }
        let held: Vec<&str> = places.iter().filter_map(|(_, place)| container_id(place)).collect();
        self.containers.retain(|id, _| held.contains(&id.as_str()));
        keepers
    }

    /// What could not be asked in the last look, with the reason.
    pub fn unread(&self) -> &[String] {
        &self.unread
    }

    /// Name of our unit for a server, where the user's own manager answered in the last look.
    pub fn own_unit(&self) -> Known<String> {
        match &self.no_user_manager {
            None => Known::Is(SERVER_UNIT.to_owned()),
            Some(reason) => Known::unknown(reason.clone()),
        }
    }

    async fn units(&mut self, machine: &Machine, places: &[(u32, Place)]) -> Vec<Keeper> {
        if !systemctl::is_there(machine) {
            self.unread.push(NO_SYSTEMD.to_owned());
            self.no_user_manager = Some(NO_SYSTEMD.to_owned());
            return Vec::new();
        }
        self.no_user_manager = None;
        let mut found: Vec<(Scope, Unit)> = Vec::new();
        for scope in [Scope::System, Scope::User] {
            let mut names = match scope {
                Scope::System => vec![USUAL_UNIT],
                Scope::User => vec![USUAL_UNIT, SERVER_UNIT],
            };
            for (_, place) in places {
                if let Some(name) = unit_in(place, scope, machine.uid())
                    && !names.contains(&name)
                {
                    names.push(name);
                }
            }
            match systemctl::show(machine, scope, &names).await {
                Ok(units) => {
                    for unit in units.into_iter().filter(Unit::is_loaded) {
                        // An alias is answered with the name of the unit that it stands for.
                        if found.iter().all(|(other, known)| *other != scope || known.id != unit.id) {
                            found.push((scope, unit));
                        }
                    }
                }
                Err(failure) => {
                    if scope == Scope::User {
                        self.no_user_manager = Some(failure.message.clone());
                    }
                    self.unread.push(failure.message);
                }
            }
        }
        // When nothing runs, the first keeper is the one that will be started.
        found.sort_by_key(|(_, unit)| (!unit.is_up(), !unit.is_enabled()));
        found.iter().filter_map(|(scope, unit)| keeper(machine, *scope, unit, places)).collect()
    }

    async fn container(&mut self, machine: &Machine, pid: u32, engine: &Engine, id: &str) -> Keeper {
        if !self.containers.contains_key(id) {
            let container = container::inspect(machine, engine, id).await;
            self.containers.insert(id.to_owned(), container);
        }
        let known = self.containers.get(id).and_then(Known::known);
        if let Some(reason) = self.containers.get(id).and_then(Known::reason) {
            self.unread.push(reason.to_owned());
        }
        Keeper {
            owner: Owner::Container {
                name: known.map_or_else(|| container::fallback_name(engine, id), |known| known.name.clone()),
            },
            pid: Some(pid),
            restarts: known.is_some_and(|known| known.restarts),
        }
    }
}

fn place(machine: &Machine, pid: u32) -> Place {
    match place_of(machine, pid) {
        Place::Elsewhere => shim::container_above(machine, pid),
        found @ (Place::Unit { .. } | Place::Container { .. }) => found,
    }
}

fn keeper(machine: &Machine, scope: Scope, unit: &Unit, places: &[(u32, Place)]) -> Option<Keeper> {
    let inside: Vec<u32> = places
        .iter()
        .filter(|(_, place)| unit_in(place, scope, machine.uid()).is_some_and(|name| name == unit.id))
        .map(|(pid, _)| *pid)
        .collect();
    let main = unit.main_pid;
    let served = inside.iter().copied().find(|pid| Some(*pid) == main).or_else(|| inside.first().copied());
    let named = unit.id == USUAL_UNIT || (scope == Scope::User && unit.id == SERVER_UNIT);
    // A desktop may run a terminal as a service of its own, and our daemon may have started a server itself: such a
    // unit only contains the server, it does not keep it.
    let keeps = || {
        let is_main = main.is_some_and(|main| inside.iter().any(|pid| *pid == main || parent(machine, *pid) == main));
        is_main || unit.exec_start.iter().any(|line| line.contains("ollama"))
    };
    if unit.id == DAEMON_UNIT || !(named || (served.is_some() && keeps())) {
        return None;
    }
    let owner = if scope == Scope::User && unit.id == SERVER_UNIT {
        Owner::Agent(AgentKind::UserUnit { unit: unit.id.clone() })
    } else {
        Owner::Systemd { scope, unit: unit.id.clone() }
    };
    // A unit that is down is started by nobody, whatever its `Restart=` says.
    Some(Keeper { owner, pid: served.or(main), restarts: unit.restarts() && unit.is_up() })
}

/// The unit of a place, when it belongs to this manager of this user.
fn unit_in(place: &Place, scope: Scope, uid: u32) -> Option<&str> {
    match place {
        Place::Unit { scope: of, unit, uid: manager } => {
            let same = *of == scope && manager.is_none_or(|manager| manager == uid);
            (same && systemctl::is_service_name(unit)).then_some(unit.as_str())
        }
        Place::Container { .. } | Place::Elsewhere => None,
    }
}

fn container_id(place: &Place) -> Option<&str> {
    match place {
        Place::Container { id, .. } => Some(id),
        Place::Unit { .. } | Place::Elsewhere => None,
    }
}

/// Pid of the parent, from `/proc/PID/status`; 0 when it is gone.
fn parent(machine: &Machine, pid: u32) -> u32 {
    let text = fs::read_to_string(machine.at(&format!("/proc/{pid}/status"))).unwrap_or_default();
    text.lines().find_map(|line| line.strip_prefix("PPid:")?.trim().parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::linux::playing::Player;

    const NONE_OF_THE_USER: &str = include_str!("../../fixtures/linux/systemctl/show-user-none.txt");
    const SYSTEM_SERVICE: &str = include_str!("../../fixtures/linux/systemctl/show-system-service.txt");
    const CRASH_LOOP: &str = include_str!("../../fixtures/linux/systemctl/show-crash-loop.txt");

    #[tokio::test]
    async fn the_installers_service_keeps_its_server_and_two_calls_tell() {
        let player = Player::new();
        player.answers("systemctl.show", SYSTEM_SERVICE);
        player.answers("systemctl.user.show", NONE_OF_THE_USER);
        let keepers = KeeperSearch::default().keepers(&player.machine, &[1873]).await;
        assert_eq!(keepers, [Keeper { owner: system("ollama.service"), pid: Some(1873), restarts: true }]);
        assert_eq!(player.calls().len(), 2);
    }

    #[tokio::test]
    async fn without_systemd_nobody_is_asked() {
        let (_dir, machine) = crate::testing::world_folder("linux");
        let mut search = KeeperSearch::default();
        assert_eq!(search.keepers(&machine, &[7]).await, []);
        assert_eq!(search.unread(), ["this machine runs no systemd"]);
        assert_eq!(search.own_unit().reason(), Some("this machine runs no systemd"));
    }

    #[tokio::test]
    async fn a_user_without_a_manager_hides_nothing_of_the_system() {
        let player = Player::new();
        player.answers("systemctl.show", CRASH_LOOP);
        player.fails("systemctl.user.show", 1, "Failed to connect to bus: No medium found");
        let mut search = KeeperSearch::default();
        let keepers = search.keepers(&player.machine, &[]).await;
        assert_eq!(keepers, [Keeper { owner: system("ollama.service"), pid: None, restarts: true }]);
        assert!(search.unread()[0].contains("No medium found"));
        assert!(search.own_unit().reason().unwrap().contains("No medium found"));
    }

    #[tokio::test]
    async fn a_unit_of_any_name_is_found_by_the_control_group() {
        let player = Player::new();
        player.file("/proc/77/cgroup", "0::/system.slice/llm.service\n");
        player.file("/proc/77/status", "Name:\tollama\nPPid:\t70\n");
        player.answers("systemctl.show", &shown("llm.service", 70, "/opt/llm/start"));
        player.answers("systemctl.user.show", NONE_OF_THE_USER);
        let keepers = KeeperSearch::default().keepers(&player.machine, &[77]).await;
        // The pid is the server's, not that of the script around it.
        assert_eq!(keepers, [Keeper { owner: system("llm.service"), pid: Some(77), restarts: true }]);
        assert!(player.calls()[0].ends_with("ollama.service llm.service"), "{:?}", player.calls());
    }

    #[tokio::test]
    async fn a_terminal_or_our_daemon_that_runs_as_a_service_keeps_no_server() {
        let player = Player::new();
        let uid = player.machine.uid();
        player.file("/proc/77/cgroup", &user_group(uid, "app-org.kde.konsole@1f.service"));
        player.file("/proc/77/status", "PPid:\t75\n");
        player.file("/proc/78/cgroup", &user_group(uid, "stablehand.service"));
        player.file("/proc/78/status", "PPid:\t60\n");
        let konsole = shown("app-org.kde.konsole@1f.service", 70, "/usr/bin/konsole");
        let daemon = shown("stablehand.service", 60, "/usr/local/bin/stablehand serve");
        player.answers("systemctl.user.show", &format!("{konsole}\n{daemon}"));
        assert_eq!(KeeperSearch::default().keepers(&player.machine, &[77, 78]).await, []);
    }

    #[tokio::test]
    async fn our_own_unit_is_ours_and_another_users_units_are_not() {
        let player = Player::new();
        let uid = player.machine.uid();
        player.file("/proc/77/cgroup", &user_group(uid, "stablehand-ollama.service"));
        player.file("/proc/79/cgroup", &user_group(uid + 1, "ollama.service"));
        player.answers("systemctl.user.show", &shown("stablehand-ollama.service", 77, "/usr/local/bin/ollama serve"));
        let keepers = KeeperSearch::default().keepers(&player.machine, &[77, 79]).await;
        let owner = Owner::Agent(AgentKind::UserUnit { unit: "stablehand-ollama.service".to_owned() });
        assert_eq!(keepers, [Keeper { owner, pid: Some(77), restarts: true }]);
    }

    #[tokio::test]
    async fn what_runs_comes_before_what_is_only_installed() {
        let player = Player::new();
        let idle = SYSTEM_SERVICE.replace("active\n", "inactive\n").replace("MainPID=1873", "MainPID=0");
        player.answers("systemctl.show", &idle);
        player.answers("systemctl.user.show", &shown("ollama.service", 90, "/usr/bin/ollama serve"));
        let keepers = KeeperSearch::default().keepers(&player.machine, &[]).await;
        let told: Vec<_> = keepers.iter().map(|keeper| (&keeper.owner, keeper.pid, keeper.restarts)).collect();
        let user = Owner::Systemd { scope: Scope::User, unit: "ollama.service".to_owned() };
        assert_eq!(told, [(&user, Some(90), true), (&system("ollama.service"), None, false)]);
    }

    #[tokio::test]
    async fn a_container_is_asked_for_once_and_keeps_its_server() {
        let player = Player::new().with("docker");
        let text = include_str!("../../fixtures/linux/cgroup/v2-docker.txt");
        player.file("/proc/77/cgroup", text);
        player.answers("docker.inspect", include_str!("../../fixtures/linux/docker/inspect.json"));
        let mut search = KeeperSearch::default();
        let container =
            Keeper { owner: Owner::Container { name: "llm-box".to_owned() }, pid: Some(77), restarts: true };
        assert_eq!(search.keepers(&player.machine, &[77]).await, std::slice::from_ref(&container));
        assert_eq!(search.keepers(&player.machine, &[77]).await, [container]);
        assert_eq!(player.calls().iter().filter(|call| call.starts_with("docker")).count(), 1);
    }

    fn system(unit: &str) -> Owner {
        Owner::Systemd { scope: Scope::System, unit: unit.to_owned() }
    }

    fn shown(id: &str, main_pid: u32, command: &str) -> String {
        format!(
            "Id={id}\nLoadState=loaded\nActiveState=active\nSubState=running\nRestart=always\nMainPID={main_pid}\n\
             ExecStart={{ path={command} ; argv[]={command} ; ignore_errors=no ; pid=1 }}\n"
        )
    }

    fn user_group(uid: u32, unit: &str) -> String {
        format!("0::/user.slice/user-{uid}.slice/user@{uid}.service/app.slice/{unit}\n")
    }
}
