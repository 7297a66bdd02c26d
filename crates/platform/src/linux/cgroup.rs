//! Which unit or container a process lies in, by its control group (`/proc/PID/cgroup`, `cgroups(7)`).
//!
//! systemd gives each unit a group of its own, and so does each container engine; the path is readable for every
//! process of every user and costs no command.

use crate::machine::Machine;
use stablehand_engine::owner::Scope;
use std::fs;

/// What runs containers.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Engine {
    /// Docker.
    Docker,
    /// Podman.
    Podman,
    /// Something else, by its name (`containerd`, `lxc`, `nspawn`).
    Other(String),
}

/// Where a process lies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// In a service of systemd.
    Unit {
        /// Whose manager.
        scope: Scope,
        /// Its name, e.g. `ollama.service`.
        unit: String,
        /// Whose user manager, for [`Scope::User`].
        uid: Option<u32>,
    },
    /// In a container.
    Container {
        /// Its engine.
        engine: Engine,
        /// Its full id, or its name where the engine knows no ids.
        id: String,
    },
    /// In a login session, a terminal's scope, or in no group that says anything.
    Elsewhere,
}

/// Where this process of the machine lies; [`Place::Elsewhere`] when it is gone.
pub fn place_of(machine: &Machine, pid: u32) -> Place {
    let read = |who: &str| fs::read_to_string(machine.at(&format!("/proc/{who}/cgroup"))).unwrap_or_default();
    let place = parse(&read(&pid.to_string()));
    // Seen from inside the same container, the server is no container's but an ordinary process.
    if matches!(place, Place::Container { .. }) && place == parse(&read("self")) {
        return Place::Elsewhere;
    }
    place
}

/// Reads the text of `/proc/PID/cgroup`: one line per hierarchy (v1), one line in all (v2), or both.
pub fn parse(text: &str) -> Place {
    // `0::/path` is the unified hierarchy, `N:name=systemd:/path` is systemd's own in v1.
    let paths: Vec<&str> = text.lines().filter_map(|line| line.splitn(3, ':').nth(2)).collect();
    let container = paths.iter().find_map(|path| container(path));
    let unit = || paths.iter().find_map(|path| unit(path));
    container.or_else(unit).unwrap_or(Place::Elsewhere)
}

fn container(path: &str) -> Option<Place> {
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    let found = |engine: Engine, id: &str| Some(Place::Container { engine, id: id.to_owned() });
    for (index, part) in parts.iter().enumerate() {
        let scope = part.strip_suffix(".scope").unwrap_or(part);
        let next = parts.get(index + 1).copied();
        if let Some((engine, id)) = scope.rsplit_once('-').filter(|(_, id)| is_id(id)) {
            return match engine {
                "docker" => found(Engine::Docker, id),
                "libpod" => found(Engine::Podman, id),
                "cri-containerd" => found(Engine::Other("containerd".to_owned()), id),
                other => found(Engine::Other(other.to_owned()), id),
            };
        }
        match (*part, next) {
            ("docker", Some(id)) if is_id(id) => return found(Engine::Docker, id),
            ("libpod_parent", Some(id)) => {
                let id = id.strip_prefix("libpod-").unwrap_or(id);
                return found(Engine::Podman, id);
            }
            ("lxc", Some(name)) => return found(Engine::Other("lxc".to_owned()), name),
            ("machine.slice", Some(name)) => {
                if let Some(name) = name.strip_prefix("systemd-nspawn@").and_then(|name| name.strip_suffix(".service"))
                {
                    return found(Engine::Other("nspawn".to_owned()), name);
                }
            }
            (name, _) => {
                if let Some(name) = name.strip_prefix("lxc.payload.") {
                    return found(Engine::Other("lxc".to_owned()), name);
                }
                // Kubernetes without systemd's driver: the bare id below the pod's group.
                if is_id(name) && path.contains("kubepods") {
                    return found(Engine::Other("kubernetes".to_owned()), name);
                }
            }
        }
    }
    None
}

fn unit(path: &str) -> Option<Place> {
    let mut uid = None;
    let mut found = None;
    for part in path.split('/') {
        let Some(stem) = part.strip_suffix(".service") else { continue };
        // Below a user's manager its own units follow.
        match stem.strip_prefix("user@").and_then(|uid| uid.parse().ok()) {
            Some(manager) => uid = Some(manager),
            None => {
                // A service may split its own group further; the outermost one is what its manager knows.
                found = found.or(Some(unescaped(part)));
            }
        }
    }
    let unit = found?;
    Some(Place::Unit { scope: if uid.is_some() { Scope::User } else { Scope::System }, unit, uid })
}

/// A group's name that the kernel reserves carries one underscore in front.
fn unescaped(part: &str) -> String {
    part.strip_prefix('_').unwrap_or(part).to_owned()
}

fn is_id(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "5d0c7f4be1a9b26d3f8e47a05c9b1d62e8f3a7460b5c2d918e7f6a3b4c0d1e2f";

    #[test]
    fn a_system_service_is_recognised_in_both_layouts() {
        let expected = Place::Unit { scope: Scope::System, unit: "ollama.service".to_owned(), uid: None };
        assert_eq!(parse(include_str!("../../fixtures/linux/cgroup/v2-system-service.txt")), expected);
        assert_eq!(parse(include_str!("../../fixtures/linux/cgroup/v1-system-service.txt")), expected);
        assert_eq!(parse("0::/system.slice/ollama.service/models\n"), expected);
    }

    #[test]
    fn a_user_service_names_its_user() {
        let text = include_str!("../../fixtures/linux/cgroup/v2-user-service.txt");
        let unit = "stablehand-ollama.service".to_owned();
        assert_eq!(parse(text), Place::Unit { scope: Scope::User, unit, uid: Some(1000) });
    }

    #[test]
    fn a_terminal_is_no_keeper() {
        let text = include_str!("../../fixtures/linux/cgroup/v2-terminal.txt");
        assert_eq!(parse(text), Place::Elsewhere);
        assert_eq!(parse("0::/user.slice/user-1000.slice/session-3.scope\n"), Place::Elsewhere);
        assert_eq!(parse("0::/\n"), Place::Elsewhere);
        assert_eq!(parse(""), Place::Elsewhere);
    }

    #[test]
    fn containers_are_recognised_before_any_unit_around_or_inside_them() {
        let docker = Place::Container { engine: Engine::Docker, id: ID.to_owned() };
        let podman = Place::Container { engine: Engine::Podman, id: ID.to_owned() };
        let other =
            |name: &str, id: &str| Place::Container { engine: Engine::Other(name.to_owned()), id: id.to_owned() };
        assert_eq!(parse(include_str!("../../fixtures/linux/cgroup/v2-docker.txt")), docker);
        assert_eq!(parse(include_str!("../../fixtures/linux/cgroup/v1-docker.txt")), docker);
        assert_eq!(parse(&format!("0::/../docker-{ID}.scope\n")), docker);
        assert_eq!(parse(include_str!("../../fixtures/linux/cgroup/v2-podman-rootless.txt")), podman);
        assert_eq!(parse(&format!("0::/libpod_parent/libpod-{ID}\n")), podman);
        let pod = format!("0::/kubepods.slice/kubepods-pod1.slice/cri-containerd-{ID}.scope\n");
        assert_eq!(parse(&pod), other("containerd", ID));
        assert_eq!(parse(&format!("4:memory:/kubepods/burstable/pod1/{ID}\n")), other("kubernetes", ID));
        assert_eq!(parse("0::/lxc.payload.box/system.slice/ollama.service\n"), other("lxc", "box"));
        let nspawn = "0::/machine.slice/systemd-nspawn@box.service/payload/system.slice/ollama.service\n";
        assert_eq!(parse(nspawn), other("nspawn", "box"));
    }

    #[test]
    fn a_server_in_our_own_container_is_an_ordinary_process() {
        let (_dir, machine) = crate::testing::world_folder("linux");
        let write = |who: &str, id: &str| {
            let folder = machine.at(&format!("/proc/{who}"));
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join("cgroup"), format!("0::/system.slice/docker-{id}.scope\n")).unwrap();
        };
        write("7", ID);
        assert!(matches!(place_of(&machine, 7), Place::Container { .. }));
        write("self", ID);
        assert_eq!(place_of(&machine, 7), Place::Elsewhere);
    }
}
