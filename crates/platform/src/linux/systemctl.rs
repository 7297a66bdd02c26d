//! Asking systemd, and telling it to act.
//!
//! Reading needs no rights. A change of the machine's own manager goes through `pkexec` unless we are root; a change
//! of the user's manager needs nothing.

use super::unit::{self, PROPERTIES, Unit};
use crate::command::{CommandError, Invocation, Output, run};
use crate::machine::Machine;
use stablehand_engine::Known;
use stablehand_engine::owner::Scope;
use stablehand_engine::plan::{Again, StepFailure};
use std::ffi::OsStr;
use std::path::PathBuf;
use std::time::Duration;

const SYSTEMCTL: &str = "/usr/bin/systemctl";
const PKEXEC: &str = "/usr/bin/pkexec";

/// For a look; a manager that does not answer in this time tells nothing.
const LOOK_TIMEOUT: Duration = Duration::from_secs(10);

/// For an action: a unit may take 90 s to stop (`DefaultTimeoutStopSec=`), and a person may be asked for a password.
const ACT_TIMEOUT: Duration = Duration::from_secs(95);

/// Something that a manager can be told to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action<'a> {
    /// Read the unit files again.
    DaemonReload,
    /// Start a unit and wait until it is up.
    Start(&'a str),
    /// Stop a unit and wait until it is down.
    Stop(&'a str),
    /// Stop and start a unit.
    Restart(&'a str),
    /// Forget the failures of a unit, which may bar its start.
    ResetFailed(&'a str),
    /// Start a unit at each login or boot; it is not started by this.
    Enable(&'a str),
    /// Start a unit no more, and stop it now.
    DisableNow(&'a str),
}

impl Action<'_> {
    fn words(&self) -> Vec<&str> {
        match self {
            Self::DaemonReload => vec!["daemon-reload"],
            Self::Start(unit) => vec!["start", unit],
            Self::Stop(unit) => vec!["stop", unit],
            Self::Restart(unit) => vec!["restart", unit],
            Self::ResetFailed(unit) => vec!["reset-failed", unit],
            Self::Enable(unit) => vec!["enable", unit],
            Self::DisableNow(unit) => vec!["disable", "--now", unit],
        }
    }
}

/// Whether there is a systemd to ask: its tool is there and, on a real machine, the machine was booted with it
/// (`sd_booted(3)`). In a container there usually is none.
pub fn is_there(machine: &Machine) -> bool {
    machine.at(SYSTEMCTL).exists() && (machine.simulated().is_some() || machine.at("/run/systemd/system").is_dir())
}

/// The command that reads units.
pub fn show_invocation(machine: &Machine, scope: Scope, units: &[&str]) -> Invocation {
    let properties = format!("--property={PROPERTIES}");
    plain(machine, scope).args(["show", &properties]).args(units).timeout(LOOK_TIMEOUT)
}

/// The command for an action, with `pkexec` in front where rights are needed.
pub fn act_invocation(machine: &Machine, scope: Scope, action: Action<'_>) -> Invocation {
    let plain = plain(machine, scope).args(action.words());
    with_rights(machine, scope, plain).timeout(ACT_TIMEOUT)
}

/// Puts `pkexec` in front of a command that changes the machine's own systemd, unless we are root.
pub fn with_rights(machine: &Machine, scope: Scope, invocation: Invocation) -> Invocation {
    match scope {
        Scope::System if machine.uid() != 0 => {
            let Invocation { program, args, env, stdin, timeout, bare } = invocation;
            let elevated = Invocation::new(machine.at(PKEXEC)).arg(program).args(args);
            Invocation { env, stdin, timeout, bare, ..elevated }
        }
        Scope::System | Scope::User => invocation,
    }
}

/// Reads units.
///
/// # Errors
/// A [`StepFailure`] when the manager cannot be asked. A unit that does not exist is no error, but not loaded.
pub async fn show(machine: &Machine, scope: Scope, units: &[&str]) -> Result<Vec<Unit>, StepFailure> {
    let invocation = show_invocation(machine, scope, units);
    let output = run(machine, &invocation).await?;
    if output.succeeded() {
        Ok(unit::parse(&output.stdout))
    } else {
        Err(failure(machine, scope, &invocation, &output))
    }
}

/// Reads one unit.
///
/// # Errors
/// As [`show`], and `unit-not-found` when the manager knows no such unit.
pub async fn show_one(machine: &Machine, scope: Scope, name: &str) -> Result<Unit, StepFailure> {
    let units = show(machine, scope, &[name]).await?;
    units.into_iter().next().filter(Unit::is_loaded).ok_or_else(|| not_found(scope, name))
}

/// What the manager itself hands to every unit: `DefaultEnvironment=`, `environment.d`, `systemctl set-environment`.
pub async fn manager_environment(machine: &Machine, scope: Scope) -> Known<Vec<(String, String)>> {
    let invocation = plain(machine, scope).arg("show-environment").timeout(LOOK_TIMEOUT);
    match run(machine, &invocation).await {
        Ok(output) if output.succeeded() => unit::parse_manager_environment(&output.stdout),
        Ok(output) => Known::unknown(failure(machine, scope, &invocation, &output).message),
        Err(error) => Known::unknown(error.to_string()),
    }
}

/// Tells the manager to act, and waits for it.
///
/// # Errors
/// A [`StepFailure`] in words.
pub async fn act(machine: &Machine, scope: Scope, action: Action<'_>) -> Result<(), StepFailure> {
    carry_out(machine, scope, &act_invocation(machine, scope, action)).await
}

/// Runs a command of [`act_invocation`] or [`with_rights`].
///
/// # Errors
/// A [`StepFailure`] in words.
pub async fn carry_out(machine: &Machine, scope: Scope, invocation: &Invocation) -> Result<(), StepFailure> {
    match run(machine, invocation).await {
        Ok(output) if output.succeeded() => Ok(()),
        Ok(output) => Err(failure(machine, scope, invocation, &output)),
        Err(error @ CommandError::NotStarted { .. }) if invocation.program == machine.at(PKEXEC) => {
            Err(polkit_refused(invocation, &error.to_string()))
        }
        Err(error) => Err(error.into()),
    }
}

/// Whether a name is one of a service that a path can be made of.
pub fn is_service_name(name: &str) -> bool {
    let body = |byte: u8| byte.is_ascii_alphanumeric() || b":-_.\\@".contains(&byte);
    name.strip_suffix(".service").is_some_and(|stem| !stem.is_empty()) && name.bytes().all(body)
}

/// Refuses a name that is none of a service, so that no path outside the units' folders can be made of it.
///
/// # Errors
/// The refusal.
pub fn check_name(unit: &str) -> Result<(), StepFailure> {
    if is_service_name(unit) {
        return Ok(());
    }
    Err(StepFailure {
        code: "unit-name",
        message: format!("{unit:?} is no name of a systemd service; nothing was changed"),
        hint: "see which unit runs Ollama: systemctl status PID".to_owned(),
        again: Again::Never,
    })
}

/// The failure for a unit that its manager does not know.
pub(super) fn not_found(scope: Scope, name: &str) -> StepFailure {
    StepFailure {
        code: "unit-not-found",
        message: format!("systemd knows no unit {name} {}; nothing was changed", whose(scope)),
        hint: format!("look for it: systemctl{} status {name}", flag(scope)),
        again: Again::Never,
    }
}

/// ` --user` where it is needed, for commands in words.
pub(super) fn flag(scope: Scope) -> &'static str {
    match scope {
        Scope::System => "",
        Scope::User => " --user",
    }
}

fn whose(scope: Scope) -> &'static str {
    match scope {
        Scope::System => "of the system",
        Scope::User => "of this user",
    }
}

fn plain(machine: &Machine, scope: Scope) -> Invocation {
    let invocation = Invocation::new(machine.at(SYSTEMCTL));
    match scope {
        Scope::System => invocation,
        Scope::User => match runtime_dir(machine) {
            Some(dir) => invocation.arg("--user").env("XDG_RUNTIME_DIR", dir),
            None => invocation.arg("--user"),
        },
    }
}

/// The user's runtime folder, where the environment does not name it (a job of cron, a bare `su`): without it the
/// user's manager is not found although it runs.
fn runtime_dir(machine: &Machine) -> Option<PathBuf> {
    let named = std::env::var_os("XDG_RUNTIME_DIR").is_some_and(|dir| !dir.is_empty());
    let usual = PathBuf::from(format!("/run/user/{}", machine.uid()));
    (!named && machine.simulated().is_none() && usual.is_dir()).then_some(usual)
}

/// Where the user's own manager listens, as far as its folder can be told.
pub fn user_manager_socket(machine: &Machine) -> Option<PathBuf> {
    let named = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|dir| dir.is_absolute());
    Some(named.or_else(|| runtime_dir(machine))?.join("systemd/private"))
}

/// Makes words of what systemctl or pkexec said. Their exit codes tell little (1 for nearly everything), so their
/// texts are looked at; `LC_ALL=C` keeps those in English.
fn failure(machine: &Machine, scope: Scope, invocation: &Invocation, output: &Output) -> StepFailure {
    let said = output.said();
    let has = |texts: &[&str]| texts.iter().any(|text| said.contains(text));
    let through_pkexec = invocation.program == machine.at(PKEXEC);
    let elevated = through_pkexec && matches!(output.code, Some(126 | 127));
    if has(&["Failed to connect to bus", "not been booted with systemd", "Failed to connect to user scope bus"]) {
        return no_manager(machine, scope, &said);
    }
    if elevated || has(&["Interactive authentication required", "Access denied", "Not authorized", "Request dismissed"])
    {
        return polkit_refused(invocation, &said);
    }
    let name = unit_of(invocation).unwrap_or_else(|| "the unit".to_owned());
    if has(&["is masked"]) {
        return StepFailure {
            code: "unit-masked",
            message: format!("{name} is masked, so that nobody can start it; it was left as it is"),
            hint: format!("allow it again: systemctl{} unmask {name}", flag(scope)),
            again: Again::Never,
        };
    }
    if has(&["not found", "not loaded", "does not exist"]) {
        return not_found(scope, &name);
    }
    if has(&["repeated too quickly", "attempted too often"]) {
        return StepFailure {
            code: "start-limit",
            message: format!("systemd refuses to start {name} because it failed too often in a short time"),
            hint: format!("see why: journalctl{} -u {name} -n 50", flag(scope)),
            again: Again::Never,
        };
    }
    StepFailure {
        code: "systemctl-failed",
        message: format!("`{invocation}` failed with {said}"),
        hint: format!("see why: journalctl{} -u {name} -n 50", flag(scope)),
        again: Again::Never,
    }
}

fn no_manager(machine: &Machine, scope: Scope, said: &str) -> StepFailure {
    match scope {
        Scope::User => StepFailure {
            code: "no-user-manager",
            message: format!("the systemd of user {} cannot be reached ({said}); nothing was changed", machine.user()),
            hint: format!(
                "log in as {0} itself, or keep its systemd running: loginctl enable-linger {0}",
                machine.user()
            ),
            again: Again::Never,
        },
        Scope::System => StepFailure {
            code: "no-system-manager",
            message: format!("the systemd of this machine cannot be reached ({said}); nothing was changed"),
            hint: "is this a container? Run Stablehand on the machine that starts Ollama".to_owned(),
            again: Again::Never,
        },
    }
}

fn polkit_refused(invocation: &Invocation, said: &str) -> StepFailure {
    StepFailure {
        code: "polkit-refused",
        message: format!("`{invocation}` needs rights that were not given ({said}); the server was left as it is"),
        hint: "run: sudo stablehand apply".to_owned(),
        again: Again::Never,
    }
}

fn unit_of(invocation: &Invocation) -> Option<String> {
    let last = invocation.args.last().and_then(|arg| OsStr::to_str(arg))?;
    is_service_name(last).then(|| last.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::linux::playing::Player;

    #[test]
    fn the_users_manager_is_told_directly() {
        let player = Player::new();
        let stop = act_invocation(&player.machine, Scope::User, Action::Stop("ollama.service"));
        let expected = format!("{} --user stop ollama.service", player.machine.at(SYSTEMCTL).display());
        assert!(stop.to_string().ends_with(&expected), "{stop}");
    }

    #[test]
    fn the_systems_manager_is_told_with_rights_and_asked_without() {
        let player = Player::new();
        let machine = &player.machine;
        let start = act_invocation(machine, Scope::System, Action::Start("ollama.service")).to_string();
        let systemctl = machine.at(SYSTEMCTL).display().to_string();
        let rights = format!("{} {systemctl} start ollama.service", machine.at(PKEXEC).display());
        let expected = if machine.uid() == 0 { format!("{systemctl} start ollama.service") } else { rights };
        assert_eq!(start, expected);
        let show = show_invocation(machine, Scope::System, &["ollama.service"]).to_string();
        assert!(show.starts_with(&format!("{systemctl} show --property=Id,LoadState")), "{show}");
    }

    #[tokio::test]
    async fn a_user_without_a_manager_gets_words() {
        let player = Player::new();
        player.fails("systemctl.user.show", 1, "Failed to connect to bus: No medium found");
        let failure = show(&player.machine, Scope::User, &["ollama.service"]).await.unwrap_err();
        assert_eq!(failure.code, "no-user-manager");
        assert!(failure.hint.contains("loginctl enable-linger sim"));
    }

    #[tokio::test]
    async fn refusals_of_systemd_are_told_apart() {
        for (text, code) in [
            ("Failed to start ollama.service: Interactive authentication required.", "polkit-refused"),
            ("Failed to start ollama.service: Unit ollama.service not found.", "unit-not-found"),
            ("Failed to start ollama.service: Unit ollama.service is masked.", "unit-masked"),
            ("ollama.service: Start request repeated too quickly.", "start-limit"),
            ("Job for ollama.service failed because the control process exited with error code.", "systemctl-failed"),
            ("System has not been booted with systemd as init system (PID 1). Can't operate.", "no-user-manager"),
        ] {
            let player = Player::new();
            player.fails("systemctl.user.start", 1, text);
            let failure = act(&player.machine, Scope::User, Action::Start("ollama.service")).await.unwrap_err();
            assert_eq!(failure.code, code, "{text}");
        }
    }

    #[test]
    fn a_refused_password_is_a_refusal_of_polkit() {
        let player = Player::new();
        let invocation = Invocation::new(player.machine.at(PKEXEC)).args(["/usr/bin/systemctl", "daemon-reload"]);
        for code in [126, 127] {
            let output = Output { code: Some(code), ..Output::default() };
            let failure = failure(&player.machine, Scope::System, &invocation, &output);
            assert_eq!((failure.code, failure.hint.as_str()), ("polkit-refused", "run: sudo stablehand apply"));
        }
    }

    #[tokio::test]
    async fn a_missing_pkexec_is_a_refusal_of_polkit() {
        let (_dir, machine) = crate::testing::world_folder("linux");
        let invocation = Invocation::new(machine.at(PKEXEC)).arg("/usr/bin/systemctl");
        let failure = carry_out(&machine, Scope::System, &invocation).await.unwrap_err();
        assert_eq!(failure.code, "polkit-refused");
    }

    #[test]
    fn only_names_of_services_become_paths() {
        assert!(is_service_name("ollama.service") && is_service_name("ollama@1.service"));
        for name in ["ollama", ".service", "a/b.service", "../x.service", "a b.service", "ollama.scope"] {
            assert!(!is_service_name(name), "{name}");
        }
    }
}
