//! Publishing: handing the persisted values to the login session, so that apps which start from now on have them.
//!
//! launchd keeps such values only until logout. `stablehand publish`, run by our agent at login, sets them anew and
//! leaves a mark in the session with the time. The mark dies with the login, so its presence proves that *this* login
//! was published, and whatever started before it may have started without the values.

use crate::command::run;
use crate::console;
use crate::launchd::{env_agent, launchctl};
use crate::machine::{Machine, Os};
use stablehand_engine::Known;
use stablehand_engine::plan::{Again, StepFailure};
use stablehand_engine::setting::{Name, Value, Values};
use stablehand_engine::time::Wall;
use std::collections::BTreeSet;

/// The session's mark: when it was published, in Unix ms.
pub const PUBLISHED_AT: &str = "STABLEHAND_PUBLISHED_AT";

/// What the agent does at login: every persisted value into the session, then the mark.
///
/// # Errors
/// A [`StepFailure`] when there is no session at the screen, the file cannot be read, or launchd refuses.
pub async fn publish(machine: &Machine) -> Result<String, StepFailure> {
    let values = match env_agent::persisted(machine) {
        Known::Is(values) => values,
        Known::Unknown(reason) => {
            return Err(StepFailure {
                code: "env-plist-unreadable",
                message: format!("the settings of this login were not published: {reason}"),
                hint: "run `stablehand apply`, which says what is wrong with the file".to_owned(),
                again: Again::Never,
            });
        }
    };
    let warning = hand_over(machine, &values, &BTreeSet::new()).await?;
    mark(machine).await?;
    Ok(note(&values, &BTreeSet::new(), warning))
}

/// Sets and takes away values of the session, as a step of an apply. The mark is only left when there is none: the
/// login counts as published from its first time on.
///
/// # Errors
/// A [`StepFailure`] as for [`publish`].
pub async fn publish_step(machine: &Machine, set: &Values, unset: &BTreeSet<Name>) -> Result<String, StepFailure> {
    let warning = hand_over(machine, set, unset).await?;
    if matches!(published_at(machine).await, Known::Is(None)) {
        mark(machine).await?;
    }
    Ok(note(set, unset, warning))
}

/// When this login was published; `None` when it was not. A world that carries no mark counts as published at its
/// login. Linux has no such layer: its manager reads the files itself.
pub async fn published_at(machine: &Machine) -> Known<Option<Wall>> {
    if machine.os() == Os::Linux {
        return Known::Is(None);
    }
    match session_value(machine, PUBLISHED_AT).await {
        Known::Is(Some(text)) => match text.parse() {
            Ok(unix_ms) => Known::Is(Some(Wall::from_unix_ms(unix_ms))),
            Err(_) => Known::unknown(format!("{PUBLISHED_AT} of the session holds no time: {text:?}")),
        },
        Known::Is(None) => Known::Is(machine.clock().world_login()),
        Known::Unknown(reason) => Known::Unknown(reason),
    }
}

/// Values of the session, by name; unset ones are left out.
pub async fn session_values(machine: &Machine, names: &[Name]) -> Known<Values> {
    // Elsewhere launchctl answers for another session, and "unset" would be false.
    if let Err(failure) = console::session(machine).await {
        return Known::unknown(failure.message);
    }
    let mut values = Values::new();
    for name in names {
        match session_value(machine, name.as_str()).await {
            Known::Is(Some(text)) => match Value::try_new(&text) {
                Ok(value) => {
                    values.insert(name.clone(), value);
                }
                Err(error) => return Known::unknown(format!("{name} of the session: {error}")),
            },
            Known::Is(None) => {}
            Known::Unknown(reason) => return Known::Unknown(reason),
        }
    }
    Known::Is(values)
}

/// launchd prints nothing, or an empty line, for a name that is not set; an empty value cannot be told from it.
async fn session_value(machine: &Machine, name: &str) -> Known<Option<String>> {
    match run(machine, &launchctl::getenv(machine, name)).await {
        Ok(output) if output.succeeded() || (output.stdout.trim().is_empty() && output.stderr.trim().is_empty()) => {
            let text = output.stdout.strip_suffix('\n').unwrap_or(&output.stdout);
            Known::Is((!text.is_empty()).then(|| text.to_owned()))
        }
        Ok(output) => Known::unknown(format!("launchctl getenv {name} failed with {}", output.said())),
        Err(error) => Known::unknown(error.to_string()),
    }
}

async fn hand_over(machine: &Machine, set: &Values, unset: &BTreeSet<Name>) -> Result<Option<String>, StepFailure> {
    let warning = console::session(machine).await?;
    for (name, value) in set {
        setenv(machine, name.as_str(), value.as_str()).await?;
    }
    for name in unset.iter().filter(|name| !set.contains_key(*name)) {
        let output = run(machine, &launchctl::unsetenv(machine, name.as_str())).await?;
        if !output.succeeded() {
            return Err(refused("unsetenv", name.as_str(), &output));
        }
    }
    Ok(warning)
}

async fn mark(machine: &Machine) -> Result<(), StepFailure> {
    setenv(machine, PUBLISHED_AT, &machine.clock().now().wall.unix_ms.to_string()).await
}

async fn setenv(machine: &Machine, name: &str, value: &str) -> Result<(), StepFailure> {
    let output = run(machine, &launchctl::setenv(machine, name, value)).await?;
    // A refusal has been seen with words and without a code that could be relied on.
    if output.succeeded() && !output.stderr.contains("Not privileged") {
        return Ok(());
    }
    Err(refused("setenv", name, &output))
}

fn refused(subcommand: &str, name: &str, output: &crate::command::Output) -> StepFailure {
    let doing = format!("{name} was not changed in the session, and the running server was left as it is");
    let mut failure = launchctl::decode(subcommand, output).into_failure(&doing);
    if failure.code == "launchctl-denied" {
        failure.code = "setenv-denied";
    }
    failure
}

fn note(set: &Values, unset: &BTreeSet<Name>, warning: Option<String>) -> String {
    let taken = unset.iter().filter(|name| !set.contains_key(*name)).count();
    let mut note = format!("{} values set in the session, {taken} taken away", set.len());
    if let Some(warning) = warning {
        note.push_str(&format!(" ({warning})"));
    }
    note
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server_variables::server_values;
    use crate::testing::{fake_command, world_folder};
    use std::fs;

    /// Keeps the session in a folder, one file per name.
    const LAUNCHCTL: &str = r#"
session="$(dirname "$0")/session"; mkdir -p "$session"
case "$1" in
  managername) echo Aqua;;
  setenv) printf '%s' "$3" > "$session/$2";;
  unsetenv) rm -f "$session/$2";;
  getenv) [ -f "$session/$2" ] && cat "$session/$2" && echo; true;;
esac"#;

    #[tokio::test]
    async fn a_step_sets_takes_away_and_keeps_an_earlier_mark() {
        let (_dir, machine) = screen();
        let set = server_values([("OLLAMA_NUM_PARALLEL", "1")]);
        let gone = BTreeSet::from([Name::try_new("OLLAMA_MAX_QUEUE").unwrap()]);
        publish_step(&machine, &server_values([("OLLAMA_MAX_QUEUE", "9")]), &BTreeSet::new()).await.unwrap();
        let note = publish_step(&machine, &set, &gone).await.unwrap();
        assert!(note.starts_with("1 values set in the session, 1 taken away"), "{note}");
        let names = [Name::try_new("OLLAMA_NUM_PARALLEL").unwrap(), Name::try_new("OLLAMA_MAX_QUEUE").unwrap()];
        assert_eq!(session_values(&machine, &names).await, Known::Is(set));
    }

    #[tokio::test]
    async fn a_login_is_published_from_the_file_and_marked() {
        let (_dir, machine) = screen();
        assert_eq!(published_at(&machine).await, Known::Is(machine.clock().world_login()));
        let text = include_str!("../fixtures/env-agent.edited.plist");
        crate::files::write_atomically(&machine, &env_agent::path(&machine), text.as_bytes(), 0o644).unwrap();
        let before = machine.clock().now().wall;
        publish(&machine).await.unwrap();
        let published = published_at(&machine).await;
        assert!(published.known().copied().flatten().is_some_and(|at| at >= before), "{published:?}");
        let names = ["OLLAMA_NUM_PARALLEL", "HF_HOME"].map(|name| Name::try_new(name).unwrap());
        assert_eq!(session_values(&machine, &names).await, Known::Is(server_values([("OLLAMA_NUM_PARALLEL", "4")])));
    }

    #[tokio::test]
    async fn a_sandboxed_terminal_is_told_and_nothing_is_marked() {
        let (_dir, machine) = screen();
        let script = r#"case "$1" in managername) echo Aqua;; setenv) echo "Not privileged to set domain environment." >&2; exit 1;; esac"#;
        fake_command(&machine, "bin/launchctl", script);
        let set = server_values([("OLLAMA_NUM_PARALLEL", "1")]);
        let failure = publish_step(&machine, &set, &BTreeSet::new()).await.unwrap_err();
        assert_eq!((failure.code, failure.again), ("setenv-denied", Again::Never));
        assert!(failure.message.contains("left as it is"));
    }

    fn screen() -> (tempfile::TempDir, Machine) {
        let (dir, machine) = world_folder("macos");
        fs::create_dir_all(machine.root().join(".sim")).unwrap();
        fs::write(machine.root().join(".sim/console"), "sim").unwrap();
        fake_command(&machine, "bin/launchctl", LAUNCHCTL);
        (dir, machine)
    }
}
