//! Running a command of the machine: arguments as a list, never a shell; bounded in time and output. One that goes on
//! writing is in [`lines`].

pub mod lines;

use crate::machine::{Machine, WORLD_VARIABLE};
use crate::server_variables::is_server_variable;
use stablehand_engine::plan::{Again, StepFailure};
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::process::Command;

/// What a command may take unless it says otherwise.
const USUAL_TIMEOUT: Duration = Duration::from_secs(20);

/// No command gets less real time than this, however fast a world runs.
const LEAST_REAL_TIMEOUT: Duration = Duration::from_secs(5);

/// What is kept of each output stream; the rest is read and dropped.
const OUTPUT_LIMIT_BYTES: usize = 16 * 1024 * 1024;

/// How long a stream may stay open after the command itself has ended (a child of it may have inherited it).
const STREAM_GRACE: Duration = Duration::from_millis(500);

/// A command as data: shown by `--dry-run`, compared by tests, run by [`run`]. It inherits our environment without
/// `STABLEHAND_WORLD` and without any `OLLAMA_*` or `LLAMA_ARG_*` variable: ours may be stale.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Invocation {
    /// Absolute path of the program.
    pub program: PathBuf,
    /// Its arguments, without its name.
    pub args: Vec<OsString>,
    /// Variables put on it.
    pub env: Vec<(OsString, OsString)>,
    /// It gets `HOME`, `USER` and `LOGNAME` of ours and what is put on it, and nothing else.
    pub bare: bool,
    /// What it reads; nothing when `None`.
    pub stdin: Option<Vec<u8>>,
    /// Time of the machine that it may take; at least 5 s of real time are given.
    pub timeout: Duration,
}

impl Invocation {
    /// A command without arguments.
    pub fn new(program: impl Into<PathBuf>) -> Self {
        Self {
            program: program.into(),
            args: Vec::new(),
            env: Vec::new(),
            bare: false,
            stdin: None,
            timeout: USUAL_TIMEOUT,
        }
    }

    /// Adds an argument.
    #[must_use]
    pub fn arg(mut self, arg: impl AsRef<OsStr>) -> Self {
        self.args.push(arg.as_ref().to_owned());
        self
    }

    /// Adds arguments.
    #[must_use]
    pub fn args<I, S>(mut self, args: I) -> Self
    where
        I: IntoIterator<Item = S>,
        S: AsRef<OsStr>,
    {
        self.args.extend(args.into_iter().map(|arg| arg.as_ref().to_owned()));
        self
    }

    /// Puts a variable on it.
    #[must_use]
    pub fn env(mut self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Self {
        self.env.push((name.as_ref().to_owned(), value.as_ref().to_owned()));
        self
    }

    /// Keeps our environment from it, but for `HOME`, `USER` and `LOGNAME`.
    #[must_use]
    pub fn bare_environment(mut self) -> Self {
        self.bare = true;
        self
    }

    /// What it reads on its standard input.
    #[must_use]
    pub fn stdin(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.stdin = Some(bytes.into());
        self
    }

    /// Time of the machine that it may take.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Last part of the program's path, for words.
    pub fn name(&self) -> String {
        let name = self.program.file_name().unwrap_or(self.program.as_os_str());
        name.to_string_lossy().into_owned()
    }
}

impl fmt::Display for Invocation {
    /// The line that a person would type into a shell.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, value) in &self.env {
            write!(out, "{}={} ", name.to_string_lossy(), quoted(value))?;
        }
        out.write_str(&quoted(self.program.as_os_str()))?;
        self.args.iter().try_for_each(|arg| write!(out, " {}", quoted(arg)))
    }
}

/// How a command ended, and what it wrote.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Output {
    /// Exit code; `None` when a signal ended it.
    pub code: Option<i32>,
    /// The signal that ended it.
    pub signal: Option<i32>,
    /// Standard output, with bytes that are no UTF-8 replaced.
    pub stdout: String,
    /// Standard error, likewise.
    pub stderr: String,
}

impl Output {
    /// It ended with code 0.
    pub fn succeeded(&self) -> bool {
        self.code == Some(0)
    }

    /// What it said about itself, in one line: its error text, else its output, else how it ended.
    pub fn said(&self) -> String {
        let line =
            |text: &str| text.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join("; ");
        let texts = [line(&self.stderr), line(&self.stdout)];
        let text = texts.into_iter().find(|text| !text.is_empty()).map(|text| format!(": {text}")).unwrap_or_default();
        match (self.code, self.signal) {
            (Some(code), _) => format!("exit code {code}{text}"),
            (None, Some(signal)) => format!("ended by signal {signal}{text}"),
            (None, None) => format!("ended without a code{text}"),
        }
    }
}

/// Why a command gave no [`Output`].
#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    /// It could not be started.
    #[error("{program} could not be started: {source}")]
    NotStarted {
        /// The program.
        program: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// It took too long and was killed.
    #[error("{program} did not end within {} s and was killed", timeout.as_secs())]
    TimedOut {
        /// The program.
        program: PathBuf,
        /// Time of the machine that it was given.
        timeout: Duration,
    },
    /// It could not be waited for.
    #[error("the end of {program} could not be awaited: {source}")]
    Lost {
        /// The program.
        program: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

impl From<CommandError> for StepFailure {
    fn from(error: CommandError) -> Self {
        let again = match &error {
            CommandError::NotStarted { .. } => Again::Never,
            CommandError::TimedOut { .. } | CommandError::Lost { .. } => Again::Soon,
        };
        Self {
            code: "command-failed",
            message: error.to_string(),
            hint: "run the command by hand to see what it says".to_owned(),
            again,
        }
    }
}

/// Runs a command to its end.
///
/// # Errors
/// A [`CommandError`] when it could not be started, took too long, or was lost. A failure that the command reports
/// itself is an [`Output`].
pub async fn run(machine: &Machine, invocation: &Invocation) -> Result<Output, CommandError> {
    let program = invocation.program.clone();
    let mut child = command(machine, invocation)
        .spawn()
        .map_err(|source| CommandError::NotStarted { program: program.clone(), source })?;
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    let patience = machine.clock().real_span(invocation.timeout).max(LEAST_REAL_TIMEOUT);
    let status = {
        let (pipe_in, pipe_out, pipe_err) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let streams = async {
            let feed = async {
                if let (Some(mut pipe), Some(bytes)) = (pipe_in, &invocation.stdin) {
                    // A command that does not read everything is no failure; its exit code tells.
                    let _closed_early = pipe.write_all(bytes).await;
                }
            };
            tokio::join!(feed, keep(pipe_out, &mut stdout), keep(pipe_err, &mut stderr));
        };
        tokio::pin!(streams);
        let mut drained = false;
        let ended = tokio::time::timeout(patience, async {
            tokio::select! {
                status = child.wait() => status,
                () = &mut streams => {
                    drained = true;
                    child.wait().await
                }
            }
        })
        .await;
        match ended {
            Err(_elapsed) => {
                // The child is killed when it is dropped as well; this one also reaps it.
                let _gone_already = child.kill().await;
                return Err(CommandError::TimedOut { program, timeout: invocation.timeout });
            }
            Ok(status) => {
                if !drained {
                    let _held_open = tokio::time::timeout(STREAM_GRACE, &mut streams).await;
                }
                status.map_err(|source| CommandError::Lost { program, source })?
            }
        }
    };
    Ok(Output {
        code: status.code(),
        signal: status.signal(),
        stdout: String::from_utf8_lossy(&stdout).into_owned(),
        stderr: String::from_utf8_lossy(&stderr).into_owned(),
    })
}

fn command(machine: &Machine, invocation: &Invocation) -> Command {
    let mut command = Command::new(&invocation.program);
    command.args(&invocation.args).env("LC_ALL", "C").env_remove(WORLD_VARIABLE).kill_on_drop(true);
    for (name, _stale) in std::env::vars_os() {
        if name.to_str().is_some_and(is_server_variable) {
            command.env_remove(name);
        }
    }
    if invocation.bare {
        command.env_clear();
        for name in ["HOME", "USER", "LOGNAME"] {
            if let Some(value) = std::env::var_os(name) {
                command.env(name, value);
            }
        }
    }
    if machine.simulated().is_some() {
        command.env("HOME", machine.home());
    }
    command.envs(invocation.env.iter().map(|(name, value)| (name, value)));
    let stdin = if invocation.stdin.is_some() { Stdio::piped() } else { Stdio::null() };
    command.stdin(stdin).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

async fn keep(pipe: Option<impl AsyncRead + Unpin>, kept: &mut Vec<u8>) {
    let Some(mut pipe) = pipe else { return };
    let mut buffer = vec![0; 16 * 1024];
    while let Ok(count) = pipe.read(&mut buffer).await {
        if count == 0 {
            return;
        }
        let room = OUTPUT_LIMIT_BYTES.saturating_sub(kept.len()).min(count);
        kept.extend_from_slice(&buffer[..room]);
    }
}

fn quoted(text: &OsStr) -> String {
    let text = text.to_string_lossy();
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./:=@%+,".contains(&byte);
    if !text.is_empty() && text.bytes().all(plain) {
        text.into_owned()
    } else {
        format!("'{}'", text.replace('\'', r"'\''"))
    }
}

/// A path as a shell word, for words that show a command.
pub(crate) fn quoted_path(path: &Path) -> String {
    quoted(path.as_os_str())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::world_folder;

    #[test]
    fn a_command_is_shown_as_it_would_be_typed() {
        let invocation = Invocation::new("/usr/bin/open")
            .args(["-g", "-a"])
            .arg("/Applications/Ollama 2.app")
            .env("OLLAMA_HOST", "it's");
        assert_eq!(invocation.to_string(), r"OLLAMA_HOST='it'\''s' /usr/bin/open -g -a '/Applications/Ollama 2.app'");
    }

    #[tokio::test]
    async fn output_and_code_are_handed_back() {
        let (_dir, machine) = world_folder("linux");
        let script = "cat; echo err >&2; exit 3";
        let output = run(&machine, &Invocation::new("/bin/sh").args(["-c", script]).stdin("fed")).await.unwrap();
        assert_eq!((output.code, output.stdout.as_str(), output.stderr.as_str()), (Some(3), "fed", "err\n"));
        assert_eq!(output.said(), "exit code 3: err");
    }

    #[tokio::test]
    async fn more_output_than_a_pipe_holds_does_not_block() {
        let (_dir, machine) = world_folder("linux");
        let script = "head -c 300000 /dev/zero | tr '\\0' x; head -c 300000 /dev/zero | tr '\\0' y >&2";
        let output = run(&machine, &Invocation::new("/bin/sh").args(["-c", script])).await.unwrap();
        assert_eq!((output.stdout.len(), output.stderr.len()), (300_000, 300_000));
    }

    #[tokio::test]
    async fn a_stream_kept_open_by_a_grandchild_does_not_hold_us() {
        let (_dir, machine) = world_folder("linux");
        let script = "sleep 30 & echo started";
        let output = run(&machine, &Invocation::new("/bin/sh").args(["-c", script])).await.unwrap();
        assert_eq!(output.stdout, "started\n");
    }

    #[tokio::test]
    async fn a_missing_program_is_named() {
        let (_dir, machine) = world_folder("linux");
        let error = run(&machine, &Invocation::new("/no/such/program")).await.unwrap_err();
        assert!(error.to_string().starts_with("/no/such/program could not be started"));
    }

    #[tokio::test]
    async fn the_world_and_stale_server_values_are_not_passed_on() {
        let (_dir, machine) = world_folder("linux");
        let output = run(&machine, &Invocation::new("/usr/bin/env").env("OLLAMA_DEBUG", "1")).await.unwrap();
        assert!(!output.stdout.contains("STABLEHAND_WORLD="));
        assert!(output.stdout.contains("OLLAMA_DEBUG=1\n"));
        assert!(output.stdout.contains(&format!("HOME={}\n", machine.home().display())));
    }
}
