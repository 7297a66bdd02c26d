//! Loading and unloading a launchd job, with the races that launchd has.
//!
//! A job that was just taken out is still *draining*: `bootstrap` then fails with 5, as it does for a job that is
//! loaded, switched off, or described badly. So an unload waits until `print` knows the job no more (113), and a load
//! asks `print` what a 5 meant.

use super::launchctl::{self, LaunchctlError, PrintedJob};
use crate::command::run;
use crate::machine::Machine;
use stablehand_engine::plan::{Again, StepFailure};
use std::path::Path;
use std::time::Duration;
use tokio::time::Instant;

/// Waits between tries of `bootstrap` after a 5.
const LOAD_PAUSES: [Duration; 4] =
    [Duration::from_millis(500), Duration::from_secs(1), Duration::from_millis(1500), Duration::from_secs(2)];

/// How long a job may take to leave launchd after `bootout`: its process may use its whole exit timeout (5 s as
/// launchd prints it; our daemon's is 75 s).
const DRAIN_LIMIT: Duration = Duration::from_secs(80);

/// How long a job that is already on its way out may take before a load is tried.
const DRAIN_BEFORE_LOAD: Duration = Duration::from_secs(10);

const DRAIN_POLL: Duration = Duration::from_millis(250);

/// What launchd knows of a job; `None` when it is not loaded.
///
/// # Errors
/// [`StepFailure`] when launchd cannot be asked.
pub async fn look(machine: &Machine, label: &str) -> Result<Option<PrintedJob>, StepFailure> {
    let output = run(machine, &launchctl::print(machine, label)).await?;
    if output.succeeded() {
        return Ok(Some(launchctl::parse_print(&output.stdout)));
    }
    match launchctl::decode("print", &output) {
        LaunchctlError::NotLoaded => Ok(None),
        other @ (LaunchctlError::Ambiguous(_)
        | LaunchctlError::AlreadyLoaded
        | LaunchctlError::InProgress
        | LaunchctlError::NoGuiDomain(_)
        | LaunchctlError::NotPermitted(_)
        | LaunchctlError::Other(_)) => Err(other.into_failure(&format!("launchd could not be asked about {label}"))),
    }
}

/// Loads a job and starts it; a job that is loaded already is started anew.
///
/// # Errors
/// A [`StepFailure`] with what launchd said; the job is not loaded then.
pub async fn load(machine: &Machine, label: &str, plist: &Path) -> Result<String, StepFailure> {
    if !plist.is_file() {
        return Err(StepFailure {
            code: "job-without-plist",
            message: format!("{} is missing, so the job {label} was not loaded", plist.display()),
            hint: "install the service again (for Homebrew: brew services start ollama)".to_owned(),
            again: Again::Never,
        });
    }
    let mut pauses = LOAD_PAUSES.into_iter();
    loop {
        let output = run(machine, &launchctl::bootstrap(machine, plist)).await?;
        if output.succeeded() {
            return Ok(format!("the job {label} is loaded"));
        }
        let error = launchctl::decode("bootstrap", &output);
        let unclear = match &error {
            LaunchctlError::Ambiguous(_) | LaunchctlError::AlreadyLoaded => {
                if look(machine, label).await?.is_some()
                    && let Some(note) = start_anew(machine, label).await?
                {
                    return Ok(note);
                }
                enable_if_disabled(machine, label).await?;
                true
            }
            LaunchctlError::InProgress => {
                gone_within(machine, label, DRAIN_BEFORE_LOAD).await?;
                true
            }
            LaunchctlError::NotLoaded
            | LaunchctlError::NoGuiDomain(_)
            | LaunchctlError::NotPermitted(_)
            | LaunchctlError::Other(_) => false,
        };
        match pauses.next() {
            Some(pause) if unclear => machine.clock().sleep(pause).await,
            Some(_) | None => return Err(error.into_failure(&format!("the job {label} was not loaded"))),
        }
    }
}

/// Takes a job out of launchd and waits until launchd has forgotten it. A job that is not loaded is no failure.
///
/// # Errors
/// A [`StepFailure`] when launchd refuses, or the job does not end.
pub async fn unload(machine: &Machine, label: &str) -> Result<String, StepFailure> {
    let output = run(machine, &launchctl::bootout(machine, label)).await?;
    if !output.succeeded() {
        match launchctl::decode("bootout", &output) {
            LaunchctlError::NotLoaded => return Ok(format!("the job {label} was not loaded")),
            LaunchctlError::InProgress => {}
            // Older versions answer 5 for a job that is not loaded.
            error @ LaunchctlError::Ambiguous(_) => {
                return match look(machine, label).await? {
                    None => Ok(format!("the job {label} was not loaded")),
                    Some(_) => Err(error.into_failure(&format!("the job {label} is still loaded"))),
                };
            }
            error @ (LaunchctlError::AlreadyLoaded
            | LaunchctlError::NoGuiDomain(_)
            | LaunchctlError::NotPermitted(_)
            | LaunchctlError::Other(_)) => {
                return Err(error.into_failure(&format!("the job {label} is still loaded")));
            }
        }
    }
    let begun = machine.clock().awake();
    if gone_within(machine, label, DRAIN_LIMIT).await? {
        let took = machine.clock().awake().since(begun);
        Ok(format!("the job {label} left launchd after {:.1} s", took.as_secs_f64()))
    } else {
        Err(LaunchctlError::InProgress.into_failure(&format!("the job {label} was told to end")))
    }
}

async fn gone_within(machine: &Machine, label: &str, limit: Duration) -> Result<bool, StepFailure> {
    let deadline = Instant::now() + machine.clock().patience(limit);
    while look(machine, label).await?.is_some() {
        if Instant::now() >= deadline {
            return Ok(false);
        }
        machine.clock().sleep(DRAIN_POLL).await;
    }
    Ok(true)
}

/// `None` when the job was draining after all and has left launchd meanwhile.
async fn start_anew(machine: &Machine, label: &str) -> Result<Option<String>, StepFailure> {
    let output = run(machine, &launchctl::kickstart(machine, label)).await?;
    if output.succeeded() {
        return Ok(Some(format!("the job {label} was loaded already and is started anew")));
    }
    match launchctl::decode("kickstart", &output) {
        LaunchctlError::NotLoaded => Ok(None),
        error @ (LaunchctlError::Ambiguous(_)
        | LaunchctlError::AlreadyLoaded
        | LaunchctlError::InProgress
        | LaunchctlError::NoGuiDomain(_)
        | LaunchctlError::NotPermitted(_)
        | LaunchctlError::Other(_)) => {
            Err(error.into_failure(&format!("the job {label} is loaded and was not started anew")))
        }
    }
}

/// A job that was switched off (System Settings, or `launchctl disable`) can only be loaded once it is on again.
/// Whether this user has switched the job off. Where launchd cannot be asked, nothing says so.
pub(crate) async fn is_disabled(machine: &Machine, label: &str) -> bool {
    match run(machine, &launchctl::print_disabled(machine)).await {
        Ok(listed) => launchctl::parse_disabled(&listed.stdout, label),
        Err(_) => false,
    }
}

pub(crate) async fn enable_if_disabled(machine: &Machine, label: &str) -> Result<(), StepFailure> {
    let listed = run(machine, &launchctl::print_disabled(machine)).await?;
    if !launchctl::parse_disabled(&listed.stdout, label) {
        return Ok(());
    }
    let output = run(machine, &launchctl::enable(machine, label)).await?;
    if output.succeeded() {
        return Ok(());
    }
    let error = launchctl::decode("enable", &output);
    Err(error.into_failure(&format!("the job {label} is switched off and could not be switched on")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{fake_command, world_at_speed};
    use std::fs;
    use std::path::PathBuf;
    use tempfile::TempDir;

    const LABEL: &str = "dev.example.job";

    /// A launchd whose answers are lists of codes, one a call, the last one for ever; it notes its calls.
    const LAUNCHCTL: &str = r#"
here="$(dirname "$0")"
echo "$@" >> "$here/calls"
codes="$here/$1.codes"
[ -f "$codes" ] || exit 0
code="$(head -n 1 "$codes")"
[ "$(wc -l < "$codes")" -gt 1 ] && sed -i 1d "$codes"
case "$1:$code" in
  print:0) printf 'x = {\n\tstate = running\n\tpid = 7\n}\n';;
  print-disabled:0) printf 'disabled services = {\n\t\t"dev.example.job" => disabled\n\t}\n';;
esac
exit "$code""#;

    #[tokio::test]
    async fn a_job_that_still_drains_is_loaded_after_some_tries() {
        let (_dir, machine, plist) = launchd(&[("bootstrap", &[5, 5, 0]), ("print", &[113])]);
        assert_eq!(load(&machine, LABEL, &plist).await.unwrap(), "the job dev.example.job is loaded");
        assert_eq!(calls(&machine, "bootstrap"), 3);
    }

    #[tokio::test]
    async fn a_job_that_is_loaded_already_is_started_anew() {
        let (_dir, machine, plist) = launchd(&[("bootstrap", &[5]), ("print", &[0])]);
        let note = load(&machine, LABEL, &plist).await.unwrap();
        assert!(note.contains("started anew"), "{note}");
        assert_eq!((calls(&machine, "bootstrap"), calls(&machine, "kickstart -k")), (1, 1));
    }

    #[tokio::test]
    async fn a_job_that_was_switched_off_is_switched_on() {
        let answers: Answers = &[("bootstrap", &[5, 0]), ("print", &[113]), ("print-disabled", &[0])];
        let (_dir, machine, plist) = launchd(answers);
        load(&machine, LABEL, &plist).await.unwrap();
        assert_eq!(calls(&machine, "enable"), 1);
    }

    #[tokio::test]
    async fn without_a_session_there_is_one_try_and_words() {
        let (_dir, machine, plist) = launchd(&[("bootstrap", &[125])]);
        let failure = load(&machine, LABEL, &plist).await.unwrap_err();
        assert_eq!((failure.code, calls(&machine, "bootstrap")), ("no-gui-session", 1));
    }

    #[tokio::test]
    async fn a_lasting_refusal_ends_after_five_tries() {
        let (_dir, machine, plist) = launchd(&[("bootstrap", &[5]), ("print", &[113])]);
        assert_eq!(load(&machine, LABEL, &plist).await.unwrap_err().code, "launchd-refused");
        assert_eq!(calls(&machine, "bootstrap"), 5);
    }

    #[tokio::test]
    async fn a_missing_plist_is_told_before_launchd_is_asked() {
        let (_dir, machine, _plist) = launchd(&[]);
        let failure = load(&machine, LABEL, Path::new("/no/such.plist")).await.unwrap_err();
        assert_eq!((failure.code, calls(&machine, "")), ("job-without-plist", 0));
    }

    #[tokio::test]
    async fn an_unload_waits_until_launchd_has_forgotten_the_job() {
        for first in [0, 36] {
            let (_dir, machine, _plist) = launchd(&[("bootout", &[first]), ("print", &[0, 0, 113])]);
            let note = unload(&machine, LABEL).await.unwrap();
            assert!(note.contains("left launchd"), "{note}");
            assert_eq!(calls(&machine, "print"), 3);
        }
    }

    #[tokio::test]
    async fn a_job_that_is_not_loaded_needs_no_unload() {
        for answers in [&[("bootout", &[3][..])][..], &[("bootout", &[5][..]), ("print", &[113][..])][..]] {
            let (_dir, machine, _plist) = launchd(answers);
            assert!(unload(&machine, LABEL).await.unwrap().contains("was not loaded"));
        }
    }

    type Answers<'a> = &'a [(&'a str, &'a [i32])];

    fn launchd(answers: Answers<'_>) -> (TempDir, Machine, PathBuf) {
        let (dir, machine) = world_at_speed("macos", 100.0);
        fake_command(&machine, "bin/launchctl", LAUNCHCTL);
        for (subcommand, codes) in answers {
            let lines: String = codes.iter().map(|code| format!("{code}\n")).collect();
            fs::write(machine.root().join(format!("bin/{subcommand}.codes")), lines).unwrap();
        }
        let plist = machine.home().join("job.plist");
        fs::write(&plist, "").unwrap();
        (dir, machine, plist)
    }

    fn calls(machine: &Machine, start: &str) -> usize {
        let text = fs::read_to_string(machine.root().join("bin/calls")).unwrap_or_default();
        let wanted = if start.is_empty() { String::new() } else { format!("{start} ") };
        text.lines().filter(|line| line.starts_with(&wanted)).count()
    }
}
