//! The layers of a setting that this machine keeps: the file that holds after every login or start, and what new
//! processes are handed.

use crate::change::Change;
use crate::launchd::{self, adoption, env_agent, job, job_env};
use crate::linux;
use crate::machine::{Machine, Os};
use crate::publish;
use stablehand_engine::Known;
use stablehand_engine::owner::{AgentKind, Owner, Scope};
use stablehand_engine::plan::{Again, StepFailure};
use stablehand_engine::setting::{Name, Values};

/// What our file for this owner says. No file says nothing, which is known.
pub async fn persisted(machine: &Machine, owner: &Owner) -> Known<Values> {
    match machine.os() {
        Os::MacOs => match macos_layer(owner) {
            MacOsLayer::Session => env_agent::persisted(machine),
            MacOsLayer::OwnProcess => linux::own_process::values(machine),
            MacOsLayer::Nothing(reason) => Known::unknown(reason),
        },
        Os::Linux => linux::persisted(machine, owner).await,
    }
}

/// What a process that starts now is handed, for these names; `None` where there is no such layer.
pub async fn session(machine: &Machine, owner: &Owner, names: &[Name]) -> Option<Known<Values>> {
    match machine.os() {
        Os::MacOs => match macos_layer(owner) {
            MacOsLayer::Session => Some(publish::session_values(machine, names).await),
            MacOsLayer::OwnProcess | MacOsLayer::Nothing(_) => None,
        },
        Os::Linux => linux::session(machine, owner, names).await,
    }
}

/// The changes after which our file for this owner carries exactly these values; none when it does.
///
/// # Errors
/// A [`StepFailure`] when a file is there that cannot be worked with; nothing was changed then.
pub fn persist_changes(machine: &Machine, owner: &Owner, values: &Values) -> Result<Vec<Change>, StepFailure> {
    match machine.os() {
        Os::MacOs => match macos_layer(owner) {
            MacOsLayer::Session => for_the_session(machine, values),
            MacOsLayer::OwnProcess => linux::own_process::value_changes(machine, values),
            MacOsLayer::Nothing(reason) => Err(StepFailure {
                code: "not-persistable",
                message: format!("{reason}; nothing was changed"),
                hint: "change the container's own environment, and create it anew".to_owned(),
                again: Again::Never,
            }),
        },
        Os::Linux => linux::persist_changes(machine, owner, values),
    }
}

/// What keeps our file from doing its duty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Obstacles {
    /// Why it will not be read at the next login or start, although it is there.
    pub switched_off: Option<String>,
    /// What outranks it, each as a sentence that names the file.
    pub outranked: Vec<String>,
}

/// Looks for what keeps our file from doing its duty.
pub async fn obstacles(machine: &Machine, owner: &Owner, values: &Values) -> Obstacles {
    match (machine.os(), owner) {
        (Os::MacOs, _) => match macos_layer(owner) {
            MacOsLayer::Session if env_agent::path(machine).exists() => Obstacles {
                switched_off: job::is_disabled(machine, env_agent::LABEL).await.then(|| {
                    format!(
                        "the agent {} is switched off in System Settings › General › Login Items, so nothing is \
                         published at the next login",
                        env_agent::LABEL
                    )
                }),
                outranked: job_env::outranked(owner, values),
            },
            MacOsLayer::Session | MacOsLayer::OwnProcess | MacOsLayer::Nothing(_) => Obstacles::default(),
        },
        (Os::Linux, Owner::Systemd { scope, unit }) => {
            Obstacles { switched_off: None, outranked: linux::outranked(machine, *scope, unit, values).await }
        }
        (Os::Linux, Owner::Agent(AgentKind::UserUnit { unit } | AgentKind::NewUnit { unit, .. })) => {
            Obstacles { switched_off: None, outranked: linux::outranked(machine, Scope::User, unit, values).await }
        }
        (
            Os::Linux,
            Owner::App { .. }
            | Owner::Brew { .. }
            | Owner::Container { .. }
            | Owner::Manual { .. }
            | Owner::Agent(AgentKind::LaunchAgent { .. } | AgentKind::Process { .. }),
        ) => Obstacles::default(),
    }
}

/// Makes sure that our file will be read at the next login, after it was written.
///
/// # Errors
/// A [`StepFailure`] `agent-disabled` when the agent is switched off and cannot be switched on.
pub async fn switch_on(machine: &Machine, owner: &Owner) -> Result<(), StepFailure> {
    let agent = machine.os() == Os::MacOs && matches!(macos_layer(owner), MacOsLayer::Session);
    if !agent || !job::is_disabled(machine, env_agent::LABEL).await {
        return Ok(());
    }
    let switched = job::enable_if_disabled(machine, env_agent::LABEL).await;
    if switched.is_ok() && !job::is_disabled(machine, env_agent::LABEL).await {
        return Ok(());
    }
    Err(StepFailure {
        code: "agent-disabled",
        message: format!(
            "the settings were written, but the agent {} that publishes them at login is switched off; the session \
             and the server were left as they are",
            env_agent::LABEL
        ),
        hint: "switch Stablehand on in System Settings › General › Login Items & Extensions, then apply again"
            .to_owned(),
        again: Again::Never,
    })
}

/// Which of our files holds an owner's values on macOS.
enum MacOsLayer {
    /// The agent that publishes to the whole session: app, Homebrew, our own job, and whatever a person starts.
    Session,
    /// The file of the server that we start ourselves.
    OwnProcess,
    /// None.
    Nothing(&'static str),
}

fn macos_layer(owner: &Owner) -> MacOsLayer {
    match owner {
        Owner::App { .. } | Owner::Brew { .. } | Owner::Manual { .. } | Owner::Agent(AgentKind::LaunchAgent { .. }) => {
            MacOsLayer::Session
        }
        Owner::Agent(AgentKind::Process { .. }) => MacOsLayer::OwnProcess,
        Owner::Container { .. } => MacOsLayer::Nothing("a container's settings are its own"),
        Owner::Systemd { .. } | Owner::Agent(AgentKind::UserUnit { .. } | AgentKind::NewUnit { .. }) => {
            MacOsLayer::Nothing("macOS runs no systemd")
        }
    }
}

/// Adoption comes first: when a setter cannot be taken out, the values are not written either, and nothing fights.
fn for_the_session(machine: &Machine, values: &Values) -> Result<Vec<Change>, StepFailure> {
    launchd::check_home(machine)?;
    let mut changes = adoption::adopt(machine, values)?;
    let nothing_to_say = values.is_empty() && !env_agent::path(machine).exists();
    if !nothing_to_say {
        let program = std::env::current_exe().map_err(|error| StepFailure {
            code: "own-program-unknown",
            message: format!("our own program's path cannot be told: {error}; nothing was changed"),
            hint: "install Stablehand again".to_owned(),
            again: Again::Never,
        })?;
        changes.extend(env_agent::persist(machine, values, &program)?);
    }
    Ok(changes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server_variables::server_values;
    use crate::testing::world_folder;

    #[tokio::test]
    async fn a_mac_persists_for_the_session_and_reads_it_back() {
        let (_dir, machine) = world_folder("macos");
        let owner = Owner::App { bundle: machine.at("/Applications/Ollama.app") };
        let values = server_values([("OLLAMA_NUM_PARALLEL", "1")]);
        assert_eq!(persist_changes(&machine, &owner, &Values::new()).unwrap(), []);
        let changes = persist_changes(&machine, &owner, &values).unwrap();
        assert!(matches!(&changes[..], [Change::Write { before: None, .. }]), "{changes:?}");
        crate::change::carry_out(&machine, &changes).await.unwrap();
        assert_eq!(persisted(&machine, &owner).await, Known::Is(values.clone()));
        assert_eq!(persist_changes(&machine, &owner, &values).unwrap(), []);
    }

    #[tokio::test]
    async fn a_container_has_no_layer_of_ours() {
        let (_dir, machine) = world_folder("macos");
        let owner = Owner::Container { name: "ollama".to_owned() };
        assert!(persisted(&machine, &owner).await.known().is_none());
        assert_eq!(session(&machine, &owner, &[]).await, None);
        assert_eq!(persist_changes(&machine, &owner, &Values::new()).unwrap_err().code, "not-persistable");
    }
}
