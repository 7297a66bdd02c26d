//! Linux: systemd units, containers, and servers that we start ourselves.
//!
//! Everything here runs against any [`Machine`] that plays Linux, and compiles everywhere; a server of our own
//! ([`own_process`]) is started in the same way on macOS.
//!
//! Where to look:
//! - who keeps a server: [`keepers`], [`cgroup`], [`shim`], [`container`]
//! - systemd's tool and what it says: [`systemctl`], [`unit`], [`quoting`]
//! - our values in a unit, and what outranks them: [`drop_in`], [`precedence`], [`environment_file`]
//! - stop, start and the values handed out: [`service`]
//! - the address of a server in whose place the gateway stands: [`address`]
//! - our own server process, our own units: [`own_process`], [`install`]

pub mod address;
pub mod cgroup;
pub mod container;
pub mod drop_in;
pub mod environment_file;
pub mod install;
pub mod keepers;
pub mod own_process;
pub mod precedence;
pub mod quoting;
pub mod service;
pub mod shim;
pub mod systemctl;
pub mod unit;

#[cfg(test)]
pub(crate) mod playing;

pub use install::{hand_over_changes, install_changes, install_notes, uninstall_changes, uninstall_notes};
pub use keepers::KeeperSearch;
pub use own_process::{recorded as started_by_us, start as start_process, stop as stop_process};
pub use service::{publish, restart_unit, start_unit, stop_unit};

use crate::change::{self, Change};
use crate::command::Invocation;
use crate::machine::Machine;
use cgroup::Engine;
use stablehand_engine::Known;
use stablehand_engine::owner::{AgentKind, Keeper, Owner, Scope};
use stablehand_engine::plan::{Again, StepFailure};
use stablehand_engine::setting::{Name, Values};

/// The daemon's unit.
pub const DAEMON_UNIT: &str = "stablehand.service";

/// The unit of an Ollama that only we keep.
pub const SERVER_UNIT: &str = "stablehand-ollama.service";

/// How values reach the server of an owner.
enum Carrier<'a> {
    /// Through our drop-in of this unit.
    Unit(Scope, &'a str),
    /// Through the file that our own start reads.
    OwnProcess,
    /// Not through us; the reason is a phrase.
    Nobody(&'static str),
}

/// Everything that keeps a server, in one look without a memory; see [`KeeperSearch::keepers`].
pub async fn keepers(machine: &Machine, serves: &[u32]) -> Vec<Keeper> {
    KeeperSearch::default().keepers(machine, serves).await
}

/// The server's variables in the file of ours that holds after every start; for a container those that it was made
/// with.
pub async fn persisted(machine: &Machine, owner: &Owner) -> Known<Values> {
    if let Owner::Container { name } = owner {
        return container_values(machine, name).await;
    }
    match carrier(owner) {
        Carrier::Unit(scope, unit) => drop_in::read(machine, scope, unit),
        Carrier::OwnProcess => own_process::values(machine),
        Carrier::Nobody(why) => Known::unknown(why),
    }
}

/// What the service manager hands to the server at its next start, of these names; `None` where there is none.
pub async fn session(machine: &Machine, owner: &Owner, names: &[Name]) -> Option<Known<Values>> {
    match carrier(owner) {
        Carrier::Unit(scope, unit) => Some(service::handed_out(machine, scope, unit, names).await),
        Carrier::OwnProcess | Carrier::Nobody(_) => None,
    }
}

/// What outranks our values in a unit, and what may; a sentence each.
pub async fn outranked(machine: &Machine, scope: Scope, unit: &str, values: &Values) -> Vec<String> {
    let Ok(shown) = systemctl::show_one(machine, scope, unit).await else { return Vec::new() };
    let found = precedence::beaten_by(&shown, values);
    let beaten = found.beaten.iter().map(ToString::to_string);
    beaten.chain(found.unread.iter().cloned()).collect()
}

/// What makes exactly these values hold after every start; nothing when they do.
///
/// # Errors
/// A [`StepFailure`] when the owner takes no values from us, or our file cannot be read.
pub fn persist_changes(machine: &Machine, owner: &Owner, values: &Values) -> Result<Vec<Change>, StepFailure> {
    if let Owner::Agent(AgentKind::NewUnit { program, .. }) = owner {
        return hand_over_changes(machine, program, values);
    }
    match carrier(owner) {
        Carrier::Unit(scope, unit) => drop_in::changes(machine, scope, unit, values),
        Carrier::OwnProcess => own_process::value_changes(machine, values),
        Carrier::Nobody(why) => Err(StepFailure {
            code: "owner-takes-no-values",
            message: format!("the values cannot be made to last: {why}; nothing was changed"),
            hint: "set them where that server is started".to_owned(),
            again: Again::Never,
        }),
    }
}

/// Carries out changes like [`change::carry_out`], and makes words of what systemd and polkit answer.
///
/// # Errors
/// The first failure.
pub async fn carry_out(machine: &Machine, changes: &[Change]) -> Result<(), StepFailure> {
    for change in changes {
        if let Change::Run(invocation) = change {
            systemctl::carry_out(machine, scope_of(invocation), invocation).await?;
        } else {
            change::carry_out(machine, std::slice::from_ref(change)).await?;
        }
    }
    Ok(())
}

fn carrier(owner: &Owner) -> Carrier<'_> {
    match owner {
        Owner::Systemd { scope, unit } => Carrier::Unit(*scope, unit),
        Owner::Agent(AgentKind::UserUnit { unit } | AgentKind::NewUnit { unit, .. }) => {
            Carrier::Unit(Scope::User, unit)
        }
        Owner::Agent(AgentKind::Process { .. }) => Carrier::OwnProcess,
        Owner::Container { .. } => Carrier::Nobody("a container is shown and never changed"),
        Owner::Manual { .. } => Carrier::Nobody("the server was started by hand"),
        Owner::App { .. } | Owner::Brew { .. } | Owner::Agent(AgentKind::LaunchAgent { .. }) => {
            Carrier::Nobody("its owner is one of macOS")
        }
    }
}

fn scope_of(invocation: &Invocation) -> Scope {
    if invocation.args.iter().any(|arg| arg == "--user") { Scope::User } else { Scope::System }
}

async fn container_values(machine: &Machine, name: &str) -> Known<Values> {
    // A container without a name of its own is called by its engine and its short id.
    let (engines, id) = match name.split_once(' ') {
        Some(("docker", id)) => (vec![Engine::Docker], id),
        Some(("podman", id)) => (vec![Engine::Podman], id),
        Some((other, id)) => (vec![Engine::Other(other.to_owned())], id),
        None => (vec![Engine::Docker, Engine::Podman], name),
    };
    let mut reasons = Vec::new();
    for engine in engines {
        match container::inspect(machine, &engine, id).await {
            Known::Is(found) => return Known::Is(found.values),
            Known::Unknown(reason) => reasons.push(reason),
        }
    }
    Known::unknown(reasons.join("; "))
}

#[cfg(test)]
mod tests {
    use super::playing::Player;
    use super::*;
    use stablehand_engine::process::Identity;
    use stablehand_engine::setting::Value;
    use std::path::PathBuf;

    #[tokio::test]
    async fn a_container_shows_the_values_that_it_was_made_with_and_takes_none() {
        let player = Player::new().with("docker");
        player.answers("docker.inspect", include_str!("../../fixtures/linux/docker/inspect.json"));
        let owner = Owner::Container { name: "llm-box".to_owned() };
        let values = persisted(&player.machine, &owner).await;
        assert_eq!(values.known().unwrap().len(), 2);
        assert_eq!(session(&player.machine, &owner, &[]).await, None);
        let failure = persist_changes(&player.machine, &owner, &Values::new()).unwrap_err();
        assert_eq!(failure.code, "owner-takes-no-values");
    }

    #[tokio::test]
    async fn each_owner_keeps_its_values_in_its_own_file() {
        let player = Player::new();
        let machine = &player.machine;
        let values: Values = [(Name::try_new("OLLAMA_MAX_QUEUE").unwrap(), Value::try_new("10").unwrap())].into();
        let unit = |name: &str| name.to_owned();
        let owners = [
            Owner::Systemd { scope: Scope::System, unit: unit("ollama.service") },
            Owner::Systemd { scope: Scope::User, unit: unit("ollama.service") },
            Owner::Agent(AgentKind::UserUnit { unit: unit("stablehand-ollama.service") }),
            Owner::Agent(AgentKind::Process { program: PathBuf::from("/usr/local/bin/ollama") }),
        ];
        for owner in &owners {
            assert_eq!(persisted(machine, owner).await, Known::Is(Values::new()));
            carry_out(machine, &persist_changes(machine, owner, &values).unwrap()).await.unwrap();
            assert_eq!(persisted(machine, owner).await, Known::Is(values.clone()));
        }
    }

    #[tokio::test]
    async fn a_server_started_by_hand_has_no_file() {
        let player = Player::new();
        let server = Identity { pid: 7, birth: 1 };
        let owner = Owner::Manual {
            server,
            program: Known::unknown("gone"),
            started_by: None,
            own_unit: Known::unknown("no systemd"),
        };
        assert_eq!(persisted(&player.machine, &owner).await.reason(), Some("the server was started by hand"));
        assert_eq!(session(&player.machine, &owner, &[]).await, None);
    }
}
