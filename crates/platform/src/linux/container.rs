//! Containers that run an Ollama server: found by their control group, described by their engine, never changed.

use super::cgroup::Engine;
use crate::command::{Invocation, run};
use crate::machine::Machine;
use crate::server_variables::server_values;
use serde::Deserialize;
use stablehand_engine::Known;
use stablehand_engine::setting::Values;
use std::collections::BTreeMap;
use std::time::Duration;

/// An engine that does not answer in this time tells nothing.
const LOOK_TIMEOUT: Duration = Duration::from_secs(5);

/// How much of an id is shown, as the engines do.
const SHORT_ID: usize = 12;

/// A container as its engine describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Container {
    /// Its full id.
    pub id: String,
    /// Its name.
    pub name: String,
    /// Pid of its first process on this machine, while it runs.
    pub pid: Option<u32>,
    /// The server's variables that its image and its creator gave it. A script inside may change them; what the
    /// server uses is proved by its process.
    pub values: Values,
    /// Its ports that can be reached on this machine.
    pub ports: Vec<PublishedPort>,
    /// It shares the machine's network, so that its ports are the machine's.
    pub host_network: bool,
    /// Its engine starts it again when it ends.
    pub restarts: bool,
}

/// A port of a container that is reached through one of the machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublishedPort {
    /// The port inside.
    pub inside: u16,
    /// The address outside; empty for every address.
    pub address: String,
    /// The port outside.
    pub outside: u16,
}

/// Asks the engine about one container. Nothing is changed by it.
pub async fn inspect(machine: &Machine, engine: &Engine, id: &str) -> Known<Container> {
    let Some(invocation) = inspect_invocation(machine, engine, id) else {
        return Known::unknown(format!("{} is not asked about its containers", word(engine)));
    };
    if !invocation.program.exists() {
        return Known::unknown(format!("{} is not installed where it is looked for", invocation.program.display()));
    }
    match run(machine, &invocation).await {
        Ok(output) if output.succeeded() => parse(&output.stdout, id).into(),
        Ok(output) => {
            let said = output.said();
            let why = if said.contains("permission denied") { " (this user may not ask it)" } else { "" };
            Known::unknown(format!("{} did not describe the container{why}: {said}", invocation.name()))
        }
        Err(error) => Known::unknown(error.to_string()),
    }
}

/// The command that describes a container, for the engines that have one.
pub fn inspect_invocation(machine: &Machine, engine: &Engine, id: &str) -> Option<Invocation> {
    let program = match engine {
        Engine::Docker => "/usr/bin/docker",
        Engine::Podman => "/usr/bin/podman",
        Engine::Other(_) => return None,
    };
    // Without a format every version of both engines writes JSON; `--format json` is younger.
    let invocation = Invocation::new(machine.at(program)).arg("inspect");
    Some(invocation.arg(id).timeout(LOOK_TIMEOUT))
}

/// What a container is called when its engine does not tell.
pub fn fallback_name(engine: &Engine, id: &str) -> String {
    let short = if id.len() == 64 && id.is_ascii() { &id[..SHORT_ID] } else { id };
    format!("{} {short}", word(engine))
}

fn word(engine: &Engine) -> &str {
    match engine {
        Engine::Docker => "docker",
        Engine::Podman => "podman",
        Engine::Other(name) => name,
    }
}

/// Why an engine's description was not understood.
#[derive(Debug, thiserror::Error)]
pub enum InspectError {
    /// It is no JSON of the known layout.
    #[error("the engine's description of the container is not understood: {0}")]
    Layout(#[from] serde_json::Error),
    /// It describes another container, or none.
    #[error("the engine describes no container {0}")]
    Missing(String),
}

/// Reads the output of `inspect`: a list with one description in it, or (Podman with a template) the bare description.
///
/// # Errors
/// An [`InspectError`].
pub fn parse(text: &str, id: &str) -> Result<Container, InspectError> {
    let described: Vec<Described> = if text.trim_start().starts_with('[') {
        serde_json::from_str(text)?
    } else {
        vec![serde_json::from_str(text)?]
    };
    // The engine also takes a prefix or a name, and answers with the full id.
    let is_meant = |one: &Described| one.id.starts_with(id) || one.name.trim_start_matches('/') == id;
    let one = described.into_iter().find(is_meant).ok_or_else(|| InspectError::Missing(id.to_owned()))?;
    let environment = one.config.env.unwrap_or_default();
    let published = one.network.ports.unwrap_or_default();
    Ok(Container {
        name: one.name.trim_start_matches('/').to_owned(),
        pid: one.state.pid.filter(|pid| *pid != 0),
        values: server_values(environment.iter().filter_map(|pair| pair.split_once('='))),
        ports: published.iter().flat_map(|(inside, outside)| ports(inside, outside.as_deref())).collect(),
        host_network: one.host.network.as_deref() == Some("host"),
        restarts: one.host.restart.name.is_some_and(|name| !matches!(name.as_str(), "" | "no")),
        id: one.id,
    })
}

fn ports(inside: &str, bindings: Option<&[Binding]>) -> Vec<PublishedPort> {
    let Some(inside) = inside.strip_suffix("/tcp").and_then(|port| port.parse().ok()) else { return Vec::new() };
    let outside = |binding: &Binding| {
        let address = binding.address.clone().unwrap_or_default();
        Some(PublishedPort { inside, address, outside: binding.port.as_deref()?.parse().ok()? })
    };
    bindings.unwrap_or_default().iter().filter_map(outside).collect()
}

/// The part of a description that is used; both engines write it alike.
#[derive(Deserialize)]
struct Described {
    #[serde(rename = "Id")]
    id: String,
    #[serde(rename = "Name")]
    name: String,
    #[serde(rename = "State", default)]
    state: State,
    #[serde(rename = "Config", default)]
    config: Config,
    #[serde(rename = "HostConfig", default)]
    host: HostConfig,
    #[serde(rename = "NetworkSettings", default)]
    network: Network,
}

#[derive(Default, Deserialize)]
struct State {
    #[serde(rename = "Pid")]
    pid: Option<u32>,
}

#[derive(Default, Deserialize)]
struct Config {
    #[serde(rename = "Env")]
    env: Option<Vec<String>>,
}

#[derive(Default, Deserialize)]
struct HostConfig {
    #[serde(rename = "NetworkMode")]
    network: Option<String>,
    #[serde(rename = "RestartPolicy", default)]
    restart: RestartPolicy,
}

#[derive(Default, Deserialize)]
struct RestartPolicy {
    #[serde(rename = "Name")]
    name: Option<String>,
}

#[derive(Default, Deserialize)]
struct Network {
    #[serde(rename = "Ports")]
    ports: Option<BTreeMap<String, Option<Vec<Binding>>>>,
}

#[derive(Deserialize)]
struct Binding {
    #[serde(rename = "HostIp")]
    address: Option<String>,
    #[serde(rename = "HostPort")]
    port: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::linux::playing::Player;

    const ID: &str = "5d0c7f4be1a9b26d3f8e47a05c9b1d62e8f3a7460b5c2d918e7f6a3b4c0d1e2f";
    const DOCKER: &str = include_str!("../../fixtures/linux/docker/inspect.json");
    const PODMAN: &str = include_str!("../../fixtures/linux/docker/podman-inspect.json");

    #[test]
    fn dockers_description_gives_name_pid_values_and_ports() {
        let container = parse(DOCKER, ID).unwrap();
        assert_eq!((container.name.as_str(), container.pid, container.restarts), ("llm-box", Some(31207), true));
        let values: Vec<_> = container.values.iter().map(|(name, value)| format!("{name}={value}")).collect();
        assert_eq!(values, ["OLLAMA_HOST=0.0.0.0:11434", "OLLAMA_MAX_LOADED_MODELS=3"]);
        let port = PublishedPort { inside: 11434, address: "127.0.0.1".to_owned(), outside: 21434 };
        assert_eq!(container.ports, [port]);
        assert!(!container.host_network);
    }

    #[test]
    fn podmans_description_is_read_alike() {
        let container = parse(PODMAN, ID).unwrap();
        assert_eq!((container.name.as_str(), container.pid, container.restarts), ("ollama", Some(4410), false));
        assert!(container.host_network && container.ports.is_empty());
    }

    #[test]
    fn another_container_or_another_layout_is_an_error() {
        assert!(matches!(parse(DOCKER, "feed"), Err(InspectError::Missing(_))));
        assert!(matches!(parse("[]", ID), Err(InspectError::Missing(_))));
        assert!(matches!(parse("json", ID), Err(InspectError::Layout(_))));
    }

    #[tokio::test]
    async fn an_engine_that_may_not_be_asked_is_unknown_with_the_reason() {
        let player = Player::new().with("docker");
        let said = "permission denied while trying to connect to the docker API at unix:///var/run/docker.sock";
        player.fails("docker.inspect", 1, said);
        let container = inspect(&player.machine, &Engine::Docker, ID).await;
        assert!(container.reason().unwrap().contains("this user may not ask it"));
    }

    #[tokio::test]
    async fn a_missing_or_mute_engine_is_unknown() {
        let player = Player::new();
        let missing = inspect(&player.machine, &Engine::Podman, ID).await;
        assert!(missing.reason().unwrap().contains("not installed"));
        let mute = inspect(&player.machine, &Engine::Other("lxc".to_owned()), "box").await;
        assert_eq!(mute.reason(), Some("lxc is not asked about its containers"));
    }

    #[test]
    fn without_a_name_the_short_id_names_it() {
        assert_eq!(fallback_name(&Engine::Docker, ID), "docker 5d0c7f4be1a9");
        assert_eq!(fallback_name(&Engine::Other("lxc".to_owned()), "box"), "lxc box");
    }
}
