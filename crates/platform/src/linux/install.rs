//! Our units of the user's systemd: the daemon's, and one for Ollama where nothing else starts it.

use super::drop_in::{self, FILE_NAME};
use super::quoting::quoted;
use super::systemctl::{self, Action};
use super::{DAEMON_UNIT, SERVER_UNIT, own_process};
use crate::change::Change;
use crate::files;
use crate::machine::Machine;
use crate::paths::stablehand_files;
use stablehand_engine::owner::Scope;
use stablehand_engine::plan::{Again, StepFailure};
use stablehand_engine::setting::Values;
use std::fs;
use std::path::{Path, PathBuf};

const DAEMON_TEMPLATE: &str = include_str!("../../../../systemd/stablehand.service");
const SERVER_TEMPLATE: &str = include_str!("../../../../systemd/stablehand-ollama.service");

/// What makes the daemon run at each login, from this program, and now.
///
/// # Errors
/// A [`StepFailure`] when there is no systemd, or the unit cannot be read.
pub fn install_changes(machine: &Machine, program: &Path) -> Result<Vec<Change>, StepFailure> {
    need_systemd(machine)?;
    let mut changes = unit_changes(machine, DAEMON_UNIT, DAEMON_TEMPLATE, program, &["serve"])?;
    changes.push(run(machine, Scope::User, Action::DaemonReload));
    changes.push(run(machine, Scope::User, Action::Enable(DAEMON_UNIT)));
    // Starts it, and exchanges a daemon that runs from an older program.
    changes.push(run(machine, Scope::User, Action::Restart(DAEMON_UNIT)));
    Ok(changes)
}

/// What a person should know after an install.
pub fn install_notes(machine: &Machine) -> Vec<String> {
    let lingers = machine.at("/var/lib/systemd/linger").join(machine.user()).exists();
    if lingers {
        return Vec::new();
    }
    vec![format!(
        "the daemon runs while you are logged in; to keep it running after that: loginctl enable-linger {}",
        machine.user()
    )]
}

/// What takes our units and drop-ins away again. A drop-in to which a person added lines keeps those.
///
/// # Errors
/// A [`StepFailure`] when a drop-in is there and cannot be read.
pub fn uninstall_changes(machine: &Machine) -> Result<Vec<Change>, StepFailure> {
    let mut changes = Vec::new();
    for scope in [Scope::User, Scope::System] {
        let before = changes.len();
        for unit in units_with_drop_in(machine, scope) {
            changes.extend(drop_in::changes(machine, scope, &unit, &Values::new())?);
        }
        if changes.len() > before && systemctl::is_there(machine) {
            changes.push(run(machine, scope, Action::DaemonReload));
        }
    }
    changes.extend(own_process::value_changes(machine, &Values::new())?);
    // The daemon last: it may be the one that carries this out.
    for unit in [SERVER_UNIT, DAEMON_UNIT] {
        let path = unit_path(machine, unit);
        if path.exists() {
            if systemctl::is_there(machine) {
                changes.push(run(machine, Scope::User, Action::DisableNow(unit)));
            }
            changes.push(Change::Remove { path });
            if systemctl::is_there(machine) {
                changes.push(run(machine, Scope::User, Action::DaemonReload));
            }
        }
    }
    Ok(changes)
}

/// What a person should know before an uninstall.
pub fn uninstall_notes(machine: &Machine) -> Vec<String> {
    let mut notes: Vec<String> = units_with_drop_in(machine, Scope::System)
        .iter()
        .filter(|_| machine.uid() != 0)
        .map(|unit| {
            let path = drop_in::path(machine, Scope::System, unit);
            format!(
                "{} belongs to the system: you are asked for a password, or run: sudo stablehand uninstall",
                path.display()
            )
        })
        .collect();
    if [Scope::System, Scope::User].iter().any(|scope| !units_with_drop_in(machine, *scope).is_empty()) {
        notes.push("a server that runs keeps its values until its next start".to_owned());
    }
    notes
}

/// What makes Ollama a unit of the user's systemd, started at each login, with these values. It is not started by
/// this: whatever server runs has to be stopped first.
///
/// # Errors
/// A [`StepFailure`] when there is no systemd, or a file of it cannot be read.
pub fn hand_over_changes(machine: &Machine, program: &Path, values: &Values) -> Result<Vec<Change>, StepFailure> {
    need_systemd(machine)?;
    let mut changes = unit_changes(machine, SERVER_UNIT, SERVER_TEMPLATE, program, &["serve"])?;
    changes.extend(drop_in::changes(machine, Scope::User, SERVER_UNIT, values)?);
    changes.push(run(machine, Scope::User, Action::DaemonReload));
    changes.push(run(machine, Scope::User, Action::Enable(SERVER_UNIT)));
    Ok(changes)
}

/// What makes the file of a unit of ours start this program with these arguments; nothing when it does.
pub(crate) fn unit_changes(
    machine: &Machine,
    unit: &str,
    template: &str,
    program: &Path,
    arguments: &[&str],
) -> Result<Vec<Change>, StepFailure> {
    let contents = with_program(template, program, arguments)?.into_bytes();
    let path = unit_path(machine, unit);
    let before = files::read(&path)?;
    if before.as_ref() == Some(&contents) {
        return Ok(Vec::new());
    }
    Ok(vec![Change::Write { path, mode: 0o644, contents, before }])
}

/// The template with this program in its `ExecStart=` line.
fn with_program(template: &str, program: &Path, arguments: &[&str]) -> Result<String, StepFailure> {
    // systemd takes a program by its absolute path alone, and expands `$` in no way that could be escaped there.
    let refused = |why: &str| StepFailure {
        code: "program-path",
        message: format!("{} {why}, which a systemd unit cannot start; nothing was changed", program.display()),
        hint: "put the program into another folder, e.g. ~/.local/bin".to_owned(),
        again: Again::Never,
    };
    if !program.is_absolute() {
        return Err(refused("is no absolute path"));
    }
    let text = program.to_str().ok_or_else(|| refused("is no UTF-8"))?;
    if text.contains(['$', '\n', '\r', ';']) {
        return Err(refused("holds a character"));
    }
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/-_.+@".contains(&byte);
    let word = if text.bytes().all(plain) { text.to_owned() } else { quoted(text) };
    let lines = template.lines().map(|line| match line.strip_prefix("ExecStart=") {
        Some(_) => format!("ExecStart={word} {}", arguments.join(" ")),
        None => line.to_owned(),
    });
    Ok(lines.collect::<Vec<_>>().join("\n") + "\n")
}

fn unit_path(machine: &Machine, unit: &str) -> PathBuf {
    stablehand_files(machine).services_dir.join(unit)
}

/// Units for which we wrote a drop-in.
fn units_with_drop_in(machine: &Machine, scope: Scope) -> Vec<String> {
    let folder = match scope {
        Scope::System => machine.at("/etc/systemd/system"),
        Scope::User => stablehand_files(machine).services_dir,
    };
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let mut units: Vec<String> = entries
        .filter_map(|entry| {
            let entry = entry.ok()?;
            let name = entry.file_name().into_string().ok()?;
            let unit = name.strip_suffix(".d")?;
            let ours = systemctl::is_service_name(unit) && entry.path().join(FILE_NAME).exists();
            ours.then(|| unit.to_owned())
        })
        .collect();
    units.sort();
    units
}

fn need_systemd(machine: &Machine) -> Result<(), StepFailure> {
    if systemctl::is_there(machine) {
        return Ok(());
    }
    Err(StepFailure {
        code: "no-user-manager",
        message: "this machine runs no systemd; nothing was changed".to_owned(),
        hint: "run `stablehand serve` from whatever starts programs here".to_owned(),
        again: Again::Never,
    })
}

fn run(machine: &Machine, scope: Scope, action: Action<'_>) -> Change {
    Change::Run(systemctl::act_invocation(machine, scope, action))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::change::carry_out;
    use crate::linux::playing::Player;
    use stablehand_engine::setting::{Name, Value};

    #[tokio::test]
    async fn an_installed_daemon_is_enabled_and_runs_from_its_program() {
        let player = Player::new();
        let machine = &player.machine;
        let changes = install_changes(machine, Path::new("/opt/stable hand/stablehand")).unwrap();
        carry_out(machine, &changes).await.unwrap();
        let unit = fs::read_to_string(unit_path(machine, "stablehand.service")).unwrap();
        assert!(unit.contains("\nExecStart=\"/opt/stable hand/stablehand\" serve\n"), "{unit}");
        assert!(!unit.contains("STABLEHAND_WORLD"));
        assert_eq!(
            player.calls(),
            [
                "systemctl --user daemon-reload",
                "systemctl --user enable stablehand.service",
                "systemctl --user restart stablehand.service",
            ]
        );
    }

    #[tokio::test]
    async fn an_uninstall_takes_away_what_was_installed_and_nothing_else() {
        let player = Player::new();
        let machine = &player.machine;
        let program = Path::new("/usr/local/bin/ollama");
        let values = [(Name::try_new("OLLAMA_MAX_QUEUE").unwrap(), Value::try_new("10").unwrap())].into();
        carry_out(machine, &install_changes(machine, Path::new("/usr/local/bin/stablehand")).unwrap()).await.unwrap();
        carry_out(machine, &hand_over_changes(machine, program, &values).unwrap()).await.unwrap();
        let foreign = player.file("/home/sim/.config/systemd/user/other.service.d/override.conf", "[Service]\n");
        let edited = player.file("/etc/systemd/system/ollama.service.d/zz-stablehand.conf", EDITED);
        carry_out(machine, &uninstall_changes(machine).unwrap()).await.unwrap();
        let left: Vec<_> = [DAEMON_UNIT, SERVER_UNIT].iter().filter(|unit| unit_path(machine, unit).exists()).collect();
        assert!(left.is_empty(), "{left:?}");
        assert!(!drop_in::path(machine, Scope::User, SERVER_UNIT).exists());
        assert!(foreign.exists());
        let kept = fs::read_to_string(edited).unwrap();
        assert!(kept.contains("MemoryMax=48G") && !kept.contains("OLLAMA_"), "{kept}");
        assert!(player.calls().contains(&"systemctl --user disable --now stablehand.service".to_owned()));
    }

    #[test]
    fn with_nothing_installed_there_is_nothing_to_take_away() {
        let player = Player::new();
        assert_eq!(uninstall_changes(&player.machine).unwrap(), []);
        assert_eq!(uninstall_notes(&player.machine), [""; 0]);
    }

    #[test]
    fn without_systemd_there_are_words() {
        let (_dir, machine) = crate::testing::world_folder("linux");
        let failure = install_changes(&machine, Path::new("/usr/local/bin/stablehand")).unwrap_err();
        assert_eq!(failure.code, "no-user-manager");
    }

    #[test]
    fn the_templates_start_what_they_are_given() {
        for (template, program) in [(DAEMON_TEMPLATE, "/a/stablehand"), (SERVER_TEMPLATE, "/b/ollama")] {
            let unit = with_program(template, Path::new(program), &["serve"]).unwrap();
            let starts: Vec<_> = unit.lines().filter(|line| line.starts_with("ExecStart=")).collect();
            assert_eq!(starts, [format!("ExecStart={program} serve")]);
            assert!(unit.contains("WantedBy=default.target"));
        }
        assert!(with_program(DAEMON_TEMPLATE, Path::new("stablehand"), &["serve"]).is_err());
        assert!(with_program(DAEMON_TEMPLATE, Path::new("/a$b/stablehand"), &["serve"]).is_err());
        let odd = with_program(DAEMON_TEMPLATE, Path::new("/a 100%/stablehand"), &["serve"]).unwrap();
        assert!(odd.contains("ExecStart=\"/a 100%%/stablehand\" serve"));
    }

    #[test]
    fn a_user_who_is_logged_out_at_night_is_told_of_lingering() {
        let player = Player::new();
        assert!(install_notes(&player.machine)[0].ends_with("loginctl enable-linger sim"));
        player.file("/var/lib/systemd/linger/sim", "");
        assert_eq!(install_notes(&player.machine), [""; 0]);
    }

    const EDITED: &str = "[Service]\nEnvironment=\"OLLAMA_MAX_QUEUE=10\"\nMemoryMax=48G\n";
}
