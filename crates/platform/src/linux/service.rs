//! The server's unit: the values that it is given, and its stop and start.

use super::precedence::{self, Precedence};
use super::systemctl::{self, Action, act};
use super::unit::Unit;
use crate::machine::Machine;
use crate::server_variables::server_values;
use stablehand_engine::Known;
use stablehand_engine::owner::Scope;
use stablehand_engine::plan::{Again, StepFailure};
use stablehand_engine::setting::{Name, Values};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// A server that ends within this time after its start could not start.
pub(super) const EARLY_END: Duration = Duration::from_millis(400);

/// What a unit's server is given at its next start, of these names: what the manager gives to every unit, then
/// `Environment=`, then its environment files, less what it takes away.
pub async fn handed_out(machine: &Machine, scope: Scope, name: &str, names: &[Name]) -> Known<Values> {
    let unit = match systemctl::show_one(machine, scope, name).await {
        Ok(unit) => unit,
        Err(failure) => return Known::unknown(failure.message),
    };
    let own = match own_values(&unit) {
        Known::Is(values) => values,
        Known::Unknown(reason) => return Known::Unknown(reason),
    };
    let mut values = if names.iter().all(|name| own.contains_key(name.as_str())) {
        // What the unit sets itself outranks the manager; nothing more needs to be asked.
        BTreeMap::new()
    } else {
        match systemctl::manager_environment(machine, scope).await {
            Known::Is(pairs) => pairs.into_iter().collect(),
            Known::Unknown(reason) => return Known::Unknown(reason),
        }
    };
    values.extend(own);
    for word in &unit.unset_environment {
        match word.split_once('=') {
            // A whole assignment takes away that value alone.
            Some((name, value)) => values.retain(|key, held| key != name || held != value),
            None => values.retain(|key, _| key != word),
        }
    }
    values.retain(|key, _| names.iter().any(|name| name.as_str() == key));
    Known::Is(server_values(values))
}

/// Lets the manager read its files again, and tells what it then hands out.
///
/// # Errors
/// A [`StepFailure`] when the manager cannot be told.
pub async fn publish(
    machine: &Machine,
    scope: Scope,
    name: &str,
    set: &Values,
    unset: &BTreeSet<Name>,
) -> Result<String, StepFailure> {
    let before = systemctl::show_one(machine, scope, name).await?;
    // A reload may ask a person for a password; it is left out when nothing would come of it.
    if !before.needs_reload && holds(&before, set, unset) {
        return Ok(format!("{name} has the values already{}", rest(&precedence::beaten_by(&before, set))));
    }
    act(machine, scope, Action::DaemonReload).await?;
    let after = systemctl::show_one(machine, scope, name).await?;
    Ok(format!("systemd has read {name} again{}", rest(&precedence::beaten_by(&after, set))))
}

/// Stops a unit and waits until it is down.
///
/// # Errors
/// A [`StepFailure`] in words.
pub async fn stop_unit(machine: &Machine, scope: Scope, name: &str) -> Result<String, StepFailure> {
    let begun = machine.clock().awake();
    act(machine, scope, Action::Stop(name)).await?;
    let unit = systemctl::show_one(machine, scope, name).await?;
    if unit.is_up() {
        return Err(StepFailure {
            code: "unit-came-back",
            message: format!("{name} was stopped and is {} ({}) again", unit.active_state, unit.sub_state),
            hint: format!("see what starts it: systemctl{} status {name}", systemctl::flag(scope)),
            again: Again::Soon,
        });
    }
    let took = machine.clock().awake().since(begun);
    Ok(format!("{name} is down after {:.1} s", took.as_secs_f64()))
}

/// Starts a unit and looks whether it stays up. Failures of earlier starts are forgotten first.
///
/// # Errors
/// A [`StepFailure`] in words.
pub async fn start_unit(machine: &Machine, scope: Scope, name: &str) -> Result<String, StepFailure> {
    bring_up(machine, scope, name, Action::Start(name)).await
}

/// Stops and starts a unit in one step of its manager.
///
/// # Errors
/// A [`StepFailure`] in words.
pub async fn restart_unit(machine: &Machine, scope: Scope, name: &str) -> Result<String, StepFailure> {
    bring_up(machine, scope, name, Action::Restart(name)).await
}

async fn bring_up(machine: &Machine, scope: Scope, name: &str, action: Action<'_>) -> Result<String, StepFailure> {
    // Failures of earlier starts are counted and may bar this one, and systemctl does not always say that it was that
    // (systemd 252 names the last exit code instead). A person's own start is not one of a loop.
    if systemctl::show_one(machine, scope, name).await?.active_state == "failed" {
        act(machine, scope, Action::ResetFailed(name)).await?;
    }
    match act(machine, scope, action).await {
        Ok(()) => {}
        Err(failure) if failure.code == "start-limit" => {
            act(machine, scope, Action::ResetFailed(name)).await?;
            act(machine, scope, action).await?;
        }
        Err(failure) => return Err(failure),
    }
    // A program that cannot start ends just after systemd has reported success.
    tokio::time::sleep(machine.clock().patience(EARLY_END)).await;
    let unit = systemctl::show_one(machine, scope, name).await?;
    if !unit.is_up() || unit.sub_state == "auto-restart" {
        return Err(StepFailure {
            code: "unit-ended",
            message: format!(
                "{name} was started and is {} ({}, {}) now",
                unit.active_state, unit.sub_state, unit.result
            ),
            hint: format!("see why: journalctl{} -u {name} -n 50", systemctl::flag(scope)),
            again: Again::Few,
        });
    }
    Ok(match unit.main_pid {
        Some(pid) => format!("{name} runs, pid {pid}"),
        None => format!("{name} is {}", unit.active_state),
    })
}

/// `Environment=` and the environment files of a unit.
fn own_values(unit: &Unit) -> Known<BTreeMap<String, String>> {
    let mut values: BTreeMap<String, String> = match &unit.environment {
        Known::Is(pairs) => pairs.iter().cloned().collect(),
        Known::Unknown(reason) => return Known::Unknown(reason.clone()),
    };
    for file in &unit.environment_files {
        match precedence::read_environment_file(file) {
            Known::Is(pairs) => values.extend(pairs),
            Known::Unknown(reason) => return Known::Unknown(reason),
        }
    }
    Known::Is(values)
}

fn holds(unit: &Unit, set: &Values, unset: &BTreeSet<Name>) -> bool {
    unit.values().known().is_some_and(|values| {
        set.iter().all(|(name, value)| values.get(name) == Some(value))
            && unset.iter().all(|name| !values.contains_key(name))
    })
}

fn rest(precedence: &Precedence) -> String {
    let beaten = precedence.beaten.iter().map(ToString::to_string);
    let unread = precedence.unread.iter().map(|reason| format!("not looked at: {reason}"));
    beaten.chain(unread).map(|phrase| format!("; {phrase}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::linux::playing::Player;
    use stablehand_engine::setting::Value;

    const UNIT: &str = "ollama.service";

    #[tokio::test]
    async fn what_the_manager_and_the_unit_set_is_handed_out_together() {
        let player = Player::new();
        let file = player.file("/etc/ollama.env", "OLLAMA_MAX_QUEUE=7\n");
        player.answers(
            "systemctl.show",
            &format!(
                "Id={UNIT}\nLoadState=loaded\nEnvironment=OLLAMA_NUM_PARALLEL=1 OLLAMA_DEBUG=1 OLLAMA_MAX_QUEUE=10\n\
                 EnvironmentFiles={} (ignore_errors=no)\nUnsetEnvironment=OLLAMA_DEBUG\n",
                file.display()
            ),
        );
        player.answers(
            "systemctl.show-environment",
            "PATH=/bin\nOLLAMA_NUM_PARALLEL=9\nOLLAMA_KEEP_ALIVE=5m\nOLLAMA_HOST=other\n",
        );
        let names = ["OLLAMA_NUM_PARALLEL", "OLLAMA_MAX_QUEUE", "OLLAMA_KEEP_ALIVE", "OLLAMA_DEBUG"].map(name);
        let values = handed_out(&player.machine, Scope::System, UNIT, &names).await;
        let expected = [("OLLAMA_NUM_PARALLEL", "1"), ("OLLAMA_MAX_QUEUE", "7"), ("OLLAMA_KEEP_ALIVE", "5m")];
        assert_eq!(values, Known::Is(set(&expected)));
    }

    #[tokio::test]
    async fn a_manager_that_does_not_tell_leaves_unknown_only_what_the_unit_does_not_set() {
        let player = Player::new();
        player.answers("systemctl.show", &loaded("Environment=OLLAMA_MAX_QUEUE=10"));
        player.fails("systemctl.show-environment", 1, "Failed to get properties: Connection timed out");
        let handed = async |names: &[Name]| handed_out(&player.machine, Scope::System, UNIT, names).await;
        assert_eq!(handed(&[name("OLLAMA_MAX_QUEUE")]).await, Known::Is(set(&[("OLLAMA_MAX_QUEUE", "10")])));
        assert!(handed(&[name("OLLAMA_DEBUG")]).await.reason().unwrap().contains("Connection timed out"));
    }

    #[tokio::test]
    async fn an_environment_file_that_cannot_be_read_makes_the_session_unknown() {
        let player = Player::new();
        player.answers("systemctl.show", &loaded("EnvironmentFiles=/no/such (ignore_errors=no)"));
        let values = handed_out(&player.machine, Scope::System, UNIT, &[name("OLLAMA_DEBUG")]).await;
        assert!(values.reason().unwrap().contains("/no/such"));
    }

    #[tokio::test]
    async fn a_reload_is_left_out_when_the_values_are_there_and_names_what_outranks_them() {
        let player = Player::new();
        let file = player.file("/etc/ollama.env", "OLLAMA_MAX_QUEUE=7\n");
        let files = format!("EnvironmentFiles={} (ignore_errors=no)", file.display());
        player.answers("systemctl.show", &loaded(&format!("Environment=OLLAMA_MAX_QUEUE=10\n{files}")));
        let publish = async |set: &Values, unset: &[Name]| {
            let unset = unset.iter().cloned().collect();
            publish(&player.machine, Scope::System, UNIT, set, &unset).await.unwrap()
        };
        let note = publish(&set(&[("OLLAMA_MAX_QUEUE", "10")]), &[]).await;
        assert!(note.starts_with("ollama.service has the values already; "), "{note}");
        assert!(note.contains("sets OLLAMA_MAX_QUEUE=7"), "{note}");
        assert_eq!(player.calls().len(), 1);
        assert!(publish(&Values::new(), &[name("OLLAMA_MAX_QUEUE")]).await.starts_with("systemd has read"));
        assert!(player.calls().iter().any(|call| call.ends_with("systemctl daemon-reload")), "{:?}", player.calls());
    }

    #[tokio::test]
    async fn a_unit_is_stopped_and_one_that_comes_back_is_told() {
        let player = Player::new();
        player.answers("systemctl.user.show", &loaded("ActiveState=inactive\nSubState=dead"));
        let note = stop_unit(&player.machine, Scope::User, UNIT).await.unwrap();
        assert!(note.starts_with("ollama.service is down after"), "{note}");
        assert_eq!(player.calls()[0], "systemctl --user stop ollama.service");
        player.answers("systemctl.user.show", &loaded("ActiveState=active\nSubState=running"));
        let failure = stop_unit(&player.machine, Scope::User, UNIT).await.unwrap_err();
        assert_eq!(failure.code, "unit-came-back");
    }

    #[tokio::test]
    async fn a_unit_that_does_not_stay_up_is_told() {
        let player = Player::new();
        player.answers("systemctl.user.show", &loaded("ActiveState=active\nSubState=running\nMainPID=5"));
        let note = start_unit(&player.machine, Scope::User, UNIT).await.unwrap();
        assert_eq!(note, "ollama.service runs, pid 5");
        player
            .answers("systemctl.user.show", &loaded("ActiveState=activating\nSubState=auto-restart\nResult=exit-code"));
        let failure = start_unit(&player.machine, Scope::User, UNIT).await.unwrap_err();
        assert_eq!((failure.code, failure.again), ("unit-ended", Again::Few));
        assert!(failure.hint.contains("journalctl --user -u ollama.service"));
    }

    #[tokio::test]
    async fn a_unit_that_failed_too_often_gets_one_more_try() {
        let player = Player::new();
        player.answers("systemctl.user.show", &loaded("ActiveState=inactive"));
        player.fails("systemctl.user.start", 1, "start of the service was attempted too often");
        let failure = start_unit(&player.machine, Scope::User, UNIT).await.unwrap_err();
        assert_eq!(failure.code, "start-limit");
        assert_eq!(verbs(&player), ["show", "start", "reset-failed", "start"]);
    }

    #[tokio::test]
    async fn failures_of_earlier_starts_are_forgotten_first() {
        let player = Player::new();
        player.answers("systemctl.user.show", &loaded("ActiveState=failed\nSubState=failed\nResult=exit-code"));
        let failure = start_unit(&player.machine, Scope::User, UNIT).await.unwrap_err();
        assert_eq!(failure.code, "unit-ended");
        assert_eq!(verbs(&player), ["show", "reset-failed", "start", "show"]);
    }

    fn verbs(player: &Player) -> Vec<String> {
        player.calls().iter().filter_map(|call| call.split(' ').nth(2)).map(str::to_owned).collect()
    }

    fn loaded(lines: &str) -> String {
        format!("Id={UNIT}\nLoadState=loaded\n{lines}\n")
    }

    fn name(text: &str) -> Name {
        Name::try_new(text).unwrap()
    }

    fn set(pairs: &[(&str, &str)]) -> Values {
        pairs.iter().map(|(text, value)| (name(text), Value::try_new(value).unwrap())).collect()
    }
}
