//! `launchctl(1)`: its command lines, what `print` says of a job, and what its failures mean.
//!
//! The manual warns that `print` is no interface; only a few keys at the first level are read, and a missing one is
//! unknown. The exit code is what counts.

use crate::command::{Invocation, Output};
use crate::machine::Machine;
use stablehand_engine::Known;
use stablehand_engine::plan::{Again, StepFailure};
use std::path::{Path, PathBuf};

/// The domain of the user's login at the screen.
pub fn domain(machine: &Machine) -> String {
    format!("gui/{}", machine.uid())
}

/// A job in that domain.
pub fn target(machine: &Machine, label: &str) -> String {
    format!("gui/{}/{label}", machine.uid())
}

/// Gives a value to every process that launchd starts from now on in this login.
pub fn setenv(machine: &Machine, name: &str, value: &str) -> Invocation {
    launchctl(machine, "setenv").args([name, value])
}

/// Takes such a value away.
pub fn unsetenv(machine: &Machine, name: &str) -> Invocation {
    launchctl(machine, "unsetenv").arg(name)
}

/// Prints such a value; an unset one prints an empty line or nothing, so the text counts and not the code.
pub fn getenv(machine: &Machine, name: &str) -> Invocation {
    launchctl(machine, "getenv").arg(name)
}

/// Loads a job.
pub fn bootstrap(machine: &Machine, plist: &Path) -> Invocation {
    launchctl(machine, "bootstrap").arg(domain(machine)).arg(plist)
}

/// Takes a job out and ends its process.
pub fn bootout(machine: &Machine, label: &str) -> Invocation {
    launchctl(machine, "bootout").arg(target(machine, label))
}

/// Shows a job.
pub fn print(machine: &Machine, label: &str) -> Invocation {
    launchctl(machine, "print").arg(target(machine, label))
}

/// Ends a loaded job's process, if it runs, and starts it.
pub fn kickstart(machine: &Machine, label: &str) -> Invocation {
    launchctl(machine, "kickstart").arg("-k").arg(target(machine, label))
}

/// Allows a job that was switched off to be loaded again.
pub fn enable(machine: &Machine, label: &str) -> Invocation {
    launchctl(machine, "enable").arg(target(machine, label))
}

/// Shows which jobs are switched off.
pub fn print_disabled(machine: &Machine) -> Invocation {
    launchctl(machine, "print-disabled").arg(domain(machine))
}

/// Lists every job of the session: pid, last status, label.
pub fn list(machine: &Machine) -> Invocation {
    launchctl(machine, "list")
}

/// The label under which launchd runs this pid. Applications that LaunchServices started have labels too
/// (`application.…`); those are no jobs that launchd would start again.
pub fn parse_list(text: &str, pid: u32) -> Option<String> {
    let wanted = pid.to_string();
    text.lines().find_map(|line| {
        let mut columns = line.split('\t');
        let (found, _status, label) = (columns.next()?, columns.next()?, columns.next()?);
        (found == wanted && !label.starts_with("application.")).then(|| label.to_owned())
    })
}

/// Names the kind of session we run in: `Aqua` at the screen, `Background` through ssh.
pub fn managername(machine: &Machine) -> Invocation {
    launchctl(machine, "managername")
}

fn launchctl(machine: &Machine, subcommand: &str) -> Invocation {
    Invocation::new(machine.at("/bin/launchctl")).arg(subcommand)
}

/// What `print` says of a loaded job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PrintedJob {
    /// `running`, `not running`, `spawn scheduled`, …
    pub state: Known<String>,
    /// Its process, while it runs.
    pub pid: Option<u32>,
    /// The plist it was loaded from.
    pub path: Option<PathBuf>,
    /// The program it runs.
    pub program: Option<PathBuf>,
    /// How its last process ended.
    pub last_end: LastEnd,
    /// It is started again whenever it ends.
    pub keep_alive: bool,
}

/// How a job's last process ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LastEnd {
    /// No process of it has ended since it was loaded.
    Never,
    /// With this exit code.
    Code(i32),
    /// By this signal, as launchd words it (`Terminated: 15`).
    Signal(String),
    /// It is not told.
    NotTold,
}

/// Reads the keys of the job itself. Only lines with exactly one tab of indentation are the job's own: nested blocks
/// repeat the same keys with other meanings.
pub fn parse_print(text: &str) -> PrintedJob {
    let own = || {
        text.lines().filter_map(|line| {
            let line = line.strip_prefix('\t').filter(|rest| !rest.starts_with(['\t', ' ']))?;
            line.split_once(" = ").filter(|(_, value)| *value != "{")
        })
    };
    let key = |wanted: &str| own().find(|(key, _)| *key == wanted).map(|(_, value)| value.trim());
    let last_end = match (key("last exit code"), key("last terminating signal")) {
        (Some("(never exited)"), _) => LastEnd::Never,
        // Some versions add words: `78: EX_CONFIG`.
        (Some(code), _) => {
            code.split(':').next().and_then(|code| code.trim().parse().ok()).map_or(LastEnd::NotTold, LastEnd::Code)
        }
        (None, Some(signal)) => LastEnd::Signal(signal.to_owned()),
        (None, None) => LastEnd::NotTold,
    };
    PrintedJob {
        state: key("state").map_or_else(
            || Known::unknown("launchctl does not tell the state of the job"),
            |state| Known::Is(state.to_owned()),
        ),
        pid: key("pid").and_then(|pid| pid.parse().ok()),
        path: key("path").filter(|path| path.starts_with('/')).map(PathBuf::from),
        program: key("program").map(PathBuf::from),
        last_end,
        keep_alive: key("properties").is_some_and(|list| list.split('|').any(|word| word.trim() == "keepalive")),
    }
}

/// Whether `print-disabled` lists this label as switched off (`=> disabled`, or `=> true` in older versions).
pub fn parse_disabled(text: &str, label: &str) -> bool {
    text.lines().filter_map(|line| line.trim().split_once(" => ")).any(|(name, state)| {
        name.trim_matches('"') == label && matches!(state.trim().trim_end_matches(';'), "disabled" | "true")
    })
}

/// What a failure of `launchctl` means. Codes are read first, then the words, because several meanings share a code.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LaunchctlError {
    /// 5 from `bootstrap` or `bootout`: already loaded, still draining, switched off, or a plist that does not suit.
    #[error("launchd answered with the input/output error that has many causes ({0})")]
    Ambiguous(String),
    /// No such job is loaded (3 from `bootout`, 113 from `print` and `kickstart`).
    #[error("no such job is loaded")]
    NotLoaded,
    /// It is loaded already (37, 17).
    #[error("the job is loaded already")]
    AlreadyLoaded,
    /// The job is still ending (36).
    #[error("the job is still ending")]
    InProgress,
    /// This user has no session at the screen (125, 112).
    #[error("there is no session of this user at the screen ({0})")]
    NoGuiDomain(String),
    /// The caller may not do it: a sandboxed terminal, or another user's domain.
    #[error("the system does not allow it ({0})")]
    NotPermitted(String),
    /// Something else.
    #[error("{0}")]
    Other(String),
}

/// Decodes a failed [`Output`] of one subcommand.
pub fn decode(subcommand: &str, output: &Output) -> LaunchctlError {
    let said = output.said();
    let words = |wanted: &str| output.stderr.contains(wanted) || output.stdout.contains(wanted);
    match output.code {
        Some(125 | 112) => LaunchctlError::NoGuiDomain(said),
        _ if words("Could not find domain") || words("Domain does not support specified action") => {
            LaunchctlError::NoGuiDomain(said)
        }
        Some(113) => LaunchctlError::NotLoaded,
        Some(3) if subcommand == "bootout" => LaunchctlError::NotLoaded,
        _ if words("Could not find service") => LaunchctlError::NotLoaded,
        Some(36) => LaunchctlError::InProgress,
        Some(37 | 17) => LaunchctlError::AlreadyLoaded,
        _ if words("service already loaded") => LaunchctlError::AlreadyLoaded,
        _ if words("Not privileged") || words("Operation not permitted") => LaunchctlError::NotPermitted(said),
        Some(5) => LaunchctlError::Ambiguous(said),
        Some(_) | None => LaunchctlError::Other(said),
    }
}

impl LaunchctlError {
    /// The failure of a step that this ends, in words. `doing` completes "…, so `doing`": what did not happen.
    pub fn into_failure(self, doing: &str) -> StepFailure {
        let message = format!("{doing}: {self}");
        match self {
            Self::NoGuiDomain(_) => StepFailure {
                code: "no-gui-session",
                message,
                hint: "log in at the screen of this Mac and run it in a terminal there; over ssh or with sudo it \
                       reaches another session"
                    .to_owned(),
                again: Again::Never,
            },
            Self::NotPermitted(_) => StepFailure {
                code: "launchctl-denied",
                message,
                hint: "run it in a plain terminal of your own login: terminals inside editors and agents can be \
                       sandboxed"
                    .to_owned(),
                again: Again::Never,
            },
            Self::InProgress => StepFailure {
                code: "job-draining",
                message,
                hint: "it ends by itself within seconds; try again".to_owned(),
                again: Again::Soon,
            },
            Self::Ambiguous(_) => StepFailure {
                code: "launchd-refused",
                message,
                hint: "look for the job in System Settings > General > Login Items & Extensions; its plist must be \
                       yours, not writable for others, and named after its label"
                    .to_owned(),
                again: Again::Soon,
            },
            Self::NotLoaded | Self::AlreadyLoaded | Self::Other(_) => StepFailure {
                code: "launchctl-failed",
                message,
                hint: "run the command by hand to see what it says".to_owned(),
                again: Again::Soon,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::world_folder;

    const RUNNING: &str = include_str!("../../fixtures/launchctl-print.running.txt");
    const ENDED: &str = include_str!("../../fixtures/launchctl-print.ended.txt");

    #[test]
    fn a_job_is_found_by_its_pid_and_an_application_is_none() {
        let text = "PID\tStatus\tLabel\n-\t0\tcom.ollama.ollama\n17810\t0\tapplication.com.electron.ollama.23.24\n\
                    901\t0\tai.ollama.serve\n";
        assert_eq!(parse_list(text, 901).as_deref(), Some("ai.ollama.serve"));
        assert_eq!(parse_list(text, 17810), None);
        assert_eq!(parse_list(text, 90), None);
    }

    #[test]
    fn commands_are_argument_lists_in_the_users_own_domain() {
        let (_dir, machine) = world_folder("macos");
        let uid = machine.uid();
        let root = machine.root().display().to_string();
        assert_eq!(bootout(&machine, "a.b").to_string(), format!("{root}/bin/launchctl bootout gui/{uid}/a.b"));
        assert_eq!(
            setenv(&machine, "OLLAMA_HOST", "a b").to_string(),
            format!("{root}/bin/launchctl setenv OLLAMA_HOST 'a b'")
        );
        assert_eq!(
            bootstrap(&machine, Path::new("/x.plist")).to_string(),
            format!("{root}/bin/launchctl bootstrap gui/{uid} /x.plist")
        );
    }

    #[test]
    fn only_the_jobs_own_keys_are_read() {
        let job = parse_print(RUNNING);
        assert_eq!(job.state, Known::Is("running".to_owned()));
        assert_eq!(job.pid, Some(4711));
        assert_eq!(job.path, Some("/Users/ada/Library/LaunchAgents/homebrew.mxcl.ollama.plist".into()));
        assert_eq!(job.program, Some("/opt/homebrew/opt/ollama/bin/ollama".into()));
        assert_eq!(job.last_end, LastEnd::Never);
        assert!(job.keep_alive);
    }

    #[test]
    fn a_job_ended_by_a_signal_has_no_code_and_no_pid() {
        let job = parse_print(ENDED);
        assert_eq!(job.state, Known::Is("not running".to_owned()));
        assert_eq!(job.pid, None);
        assert_eq!(job.last_end, LastEnd::Signal("Terminated: 15".to_owned()));
        assert!(!job.keep_alive);
    }

    #[test]
    fn an_empty_print_is_unknown() {
        let job = parse_print("");
        assert!(job.state.known().is_none());
        assert_eq!(job.last_end, LastEnd::NotTold);
    }

    #[test]
    fn both_spellings_of_switched_off_are_understood() {
        let text = "disabled services = {\n\t\t\"a.b\" => disabled\n\t\t\"c.d\" => true\n\t\t\"e.f\" => enabled\n\t}\n";
        let found: Vec<_> = ["a.b", "c.d", "e.f", "a"].iter().map(|label| parse_disabled(text, label)).collect();
        assert_eq!(found, [true, true, false, false]);
    }

    #[test]
    fn failures_are_decoded_by_code_and_words() {
        let failed = |subcommand, code, stderr: &str| {
            decode(subcommand, &Output { code: Some(code), stderr: stderr.to_owned(), ..Output::default() })
        };
        let input_output = "Bootstrap failed: 5: Input/output error\nTry re-running the command as root.";
        assert!(matches!(failed("bootstrap", 5, input_output), LaunchctlError::Ambiguous(_)));
        assert_eq!(failed("bootstrap", 37, "/a.plist: service already loaded"), LaunchctlError::AlreadyLoaded);
        assert_eq!(failed("bootstrap", 17, "Bootstrap failed: 17: File exists"), LaunchctlError::AlreadyLoaded);
        assert!(matches!(
            failed("bootstrap", 125, "Bootstrap failed: 125: Domain does not support specified action"),
            LaunchctlError::NoGuiDomain(_)
        ));
        assert!(matches!(
            failed("print", 112, "Could not find domain for user gui: 501"),
            LaunchctlError::NoGuiDomain(_)
        ));
        assert_eq!(
            failed("print", 113, "Bad request.\nCould not find service \"x\" in domain for user gui: 501"),
            LaunchctlError::NotLoaded
        );
        assert_eq!(failed("bootout", 3, "Boot-out failed: 3: No such process"), LaunchctlError::NotLoaded);
        assert!(matches!(failed("bootout", 5, "Boot-out failed: 5: Input/output error"), LaunchctlError::Ambiguous(_)));
        assert_eq!(failed("bootout", 36, "Boot-out failed: 36: Operation now in progress"), LaunchctlError::InProgress);
        assert!(matches!(
            failed("setenv", 1, "Not privileged to set domain environment."),
            LaunchctlError::NotPermitted(_)
        ));
        assert!(matches!(
            failed("bootout", 1, "Boot-out failed: 1: Operation not permitted"),
            LaunchctlError::NotPermitted(_)
        ));
        assert!(matches!(failed("print", 64, "usage"), LaunchctlError::Other(_)));
    }

    #[test]
    fn a_failure_for_want_of_a_session_names_the_way_out() {
        let failure = LaunchctlError::NoGuiDomain("exit code 125".to_owned()).into_failure("the job was not loaded");
        assert_eq!((failure.code, failure.again), ("no-gui-session", Again::Never));
        assert!(failure.hint.contains("ssh"));
    }
}
