//! The helper of a container engine that stays above a container's first process: it names the container where the
//! control group does not (an engine without groups of its own, a hidden hierarchy).

use super::cgroup::{Engine, Place};
use crate::machine::Machine;
use crate::processes;

/// How far above the server it is looked for; an image may put a script or an init in between.
const DEPTH: usize = 8;

/// Namespace of containerd in which Docker runs its containers.
const DOCKER_NAMESPACE: &str = "moby";

/// The container whose helper stands above a process; [`Place::Elsewhere`] when none does.
pub fn container_above(machine: &Machine, pid: u32) -> Place {
    let look = |pid: u32| processes::look_at(machine, processes::life_of(pid)?.0);
    let mut process = look(pid);
    for _ in 0..DEPTH {
        process = process.and_then(|process| process.parent).filter(|parent| *parent > 1).and_then(look);
        let Some(argv) = process.as_ref().map(|process| &process.argv) else { break };
        if let Some(place) = argv.known().and_then(|argv| parse(argv)) {
            return place;
        }
    }
    Place::Elsewhere
}

/// Reads the arguments of a helper: `containerd-shim-runc-v2 -namespace moby -id ID …`, or Podman's `conmon … -c ID`.
pub fn parse(argv: &[String]) -> Option<Place> {
    let after = |flag: &str| argv.iter().position(|word| word == flag).and_then(|index| argv.get(index + 1));
    let name = argv.first()?.rsplit('/').next()?;
    let (engine, id) = match name {
        "conmon" => (Engine::Podman, after("-c").or_else(|| after("--cid"))?),
        shim if shim.starts_with("containerd-shim") => match after("-namespace")?.as_str() {
            DOCKER_NAMESPACE => (Engine::Docker, after("-id")?),
            _ => (Engine::Other("containerd".to_owned()), after("-id")?),
        },
        _ => return None,
    };
    Some(Place::Container { engine, id: id.clone() })
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "5d0c7f4be1a9b26d3f8e47a05c9b1d62e8f3a7460b5c2d918e7f6a3b4c0d1e2f";

    #[test]
    fn a_helper_names_its_engine_and_container() {
        let place = |engine| Some(Place::Container { engine, id: ID.to_owned() });
        let docker = format!("/usr/bin/containerd-shim-runc-v2 -namespace moby -id {ID} -address /run/c.sock");
        assert_eq!(parse(&argv(&docker)), place(Engine::Docker));
        let pod = format!("containerd-shim-runc-v2 -namespace k8s.io -id {ID}");
        assert_eq!(parse(&argv(&pod)), place(Engine::Other("containerd".to_owned())));
        let podman = format!("/usr/bin/conmon --api-version 1 -c {ID} -u {ID} -r /usr/bin/crun");
        assert_eq!(parse(&argv(&podman)), place(Engine::Podman));
    }

    #[test]
    fn other_programs_name_none() {
        for line in ["/bin/zsh -c 5d0c", "containerd-shim-runc-v2 -namespace moby", "conmon", ""] {
            assert_eq!(parse(&argv(line)), None, "{line}");
        }
        assert_eq!(parse(&[]), None);
    }

    #[test]
    fn a_process_of_no_container_lies_elsewhere() {
        let (_dir, machine) = crate::testing::world_folder("linux");
        assert_eq!(container_above(&machine, std::process::id()), Place::Elsewhere);
    }

    fn argv(line: &str) -> Vec<String> {
        line.split(' ').map(str::to_owned).collect()
    }
}
