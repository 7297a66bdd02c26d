//! A server that we start ourselves, where no service manager does: its values, its start, and the record of it.
//!
//! The process is detached: it outlives the daemon, and the next daemon knows it by the record. A record alone proves
//! nothing; the pid and the start mark in it are compared with the process table wherever they are used.

use super::service::EARLY_END;
use crate::change::Change;
use crate::files;
use crate::machine::{Machine, WORLD_VARIABLE};
use crate::paths::stablehand_files;
use crate::processes;
use crate::server_variables::{is_server_variable, server_values};
use crate::signal::{self, Classify};
use serde::{Deserialize, Serialize};
use stablehand_engine::Known;
use stablehand_engine::owner::Started;
use stablehand_engine::plan::{Again, StepFailure};
use stablehand_engine::process::{Identity, Role};
use stablehand_engine::setting::Values;
use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;
use tokio::process::{Child, Command};

/// What stands on top of the file of values.
const HEADER: &str =
    "# Values that Stablehand gives to the `ollama serve` that it starts itself, NAME=VALUE, one a line.";

/// How long a server may take to end after SIGTERM.
const PATIENCE: Duration = Duration::from_secs(10);

/// The one variable of the server that it takes from our own environment: where it listens is decided by whoever
/// started us. All others could be stale.
const KEPT: &str = "OLLAMA_HOST";

/// The layout of the record.
const FORMAT: u32 = 1;

/// What we wrote down of the server that we started.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Record {
    format: u32,
    pid: u32,
    birth: u64,
    program: PathBuf,
    values: BTreeMap<String, String>,
}

/// The log of a server that we start ourselves.
pub fn log_file(machine: &Machine) -> PathBuf {
    stablehand_files(machine).log_dir.join("ollama.log")
}

/// The values that the next start gives to the server, apart from those that the plan names.
pub fn values(machine: &Machine) -> Known<Values> {
    match read_environment(machine) {
        Ok(pairs) => Known::Is(server_values(pairs)),
        Err(failure) => Known::unknown(failure.message),
    }
}

/// What makes the next start give exactly these values; nothing when it does. Lines that a person added are kept.
///
/// # Errors
/// A [`StepFailure`] when the file is there and cannot be read.
pub fn value_changes(machine: &Machine, values: &Values) -> Result<Vec<Change>, StepFailure> {
    let path = environment_path(machine);
    let before = files::read(&path)?;
    let text = before.as_deref().map(String::from_utf8_lossy).unwrap_or_default();
    let kept = text.lines().filter(|line| {
        let ours = pair(line).is_some_and(|(name, _)| is_server_variable(name));
        !ours && *line != HEADER && !line.trim().is_empty()
    });
    let kept: Vec<&str> = kept.collect();
    if values.is_empty() && kept.is_empty() {
        return Ok(before.map(|_| Change::Remove { path }).into_iter().collect());
    }
    let ours = values.iter().map(|(name, value)| format!("{name}={value}"));
    let lines = [HEADER.to_owned()].into_iter().chain(kept.into_iter().map(str::to_owned)).chain(ours);
    let contents = (lines.collect::<Vec<_>>().join("\n") + "\n").into_bytes();
    if before.as_ref() == Some(&contents) {
        return Ok(Vec::new());
    }
    Ok(vec![Change::Write { path, mode: 0o600, contents, before }])
}

/// The server that we wrote down, whether it still runs or not.
pub fn recorded(machine: &Machine) -> Option<Identity> {
    recorded_start(machine).map(|started| started.id)
}

/// The server that we wrote down, with the name of its program. That need not lie where one would look for it.
pub fn recorded_start(machine: &Machine) -> Option<Started> {
    let record = record(machine)?;
    Some(Started { id: Identity { pid: record.pid, birth: record.birth }, program: record.program })
}

fn record(machine: &Machine) -> Option<Record> {
    let path = record_path(machine);
    let bytes = match files::read(&path) {
        Ok(bytes) => bytes?,
        Err(error) => {
            tracing::warn!(%error, "the record of our own server cannot be read");
            return None;
        }
    };
    match serde_json::from_slice::<Record>(&bytes) {
        Ok(record) if record.format == FORMAT => Some(record),
        Ok(record) => {
            tracing::warn!(path = %path.display(), format = record.format, "the record of our own server is of another version");
            None
        }
        Err(error) => {
            tracing::warn!(path = %path.display(), %error, "the record of our own server is not understood");
            None
        }
    }
}

/// Forgets the server that we wrote down, once it is gone.
///
/// # Errors
/// A [`StepFailure`] when the record cannot be removed.
pub fn forget(machine: &Machine) -> Result<(), StepFailure> {
    files::remove(machine, &record_path(machine))?;
    Ok(())
}

/// Ends a server with SIGTERM, at most 10 s of patience, then SIGKILL; and forgets it when it is the one that we
/// wrote down.
///
/// # Errors
/// A [`StepFailure`] when it may not be signalled, or stays.
pub async fn stop(machine: &Machine, classify: Classify, server: Identity) -> Result<String, StepFailure> {
    let is_serve = |role: &Role| matches!(role, Role::Serve);
    let note = signal::end(machine, classify, server, PATIENCE, is_serve).await?;
    if recorded(machine) == Some(server) {
        forget(machine)?;
    }
    Ok(note)
}

/// Starts `PROGRAM serve`, detached, with the values of our file and these, which win; and writes it down.
///
/// # Errors
/// A [`StepFailure`] when it cannot be started, ends at once, or cannot be written down.
pub async fn start(machine: &Machine, program: &Path, environment: &Values) -> Result<Identity, StepFailure> {
    if machine.simulated().is_some_and(|world| !program.starts_with(world)) {
        return Err(StepFailure {
            code: "outside-world",
            message: format!("refused: {} lies outside the simulated world; nothing was started", program.display()),
            hint: "check the paths of the simulated world".to_owned(),
            again: Again::Never,
        });
    }
    let mut pairs = read_environment(machine)?;
    pairs.extend(environment.iter().map(|(name, value)| (name.to_string(), value.to_string())));
    let identity = begin(machine, program, &["serve"], &pairs, &log_file(machine)).await?;
    let record = Record {
        format: FORMAT,
        pid: identity.pid,
        birth: identity.birth,
        program: program.to_path_buf(),
        values: pairs.into_iter().filter(|(name, _)| is_server_variable(name)).collect(),
    };
    let written = serde_json::to_vec_pretty(&record).map_err(|error| error.to_string()).and_then(|json| {
        files::write_atomically(machine, &record_path(machine), &json, 0o600).map_err(|error| error.to_string())
    });
    written.map_err(|error| StepFailure {
        code: "record-not-written",
        message: format!("the server runs (pid {}), but it could not be written down as ours: {error}", identity.pid),
        hint: format!("make {} writable for you, then restart", stablehand_files(machine).data_dir.display()),
        again: Again::Never,
    })?;
    Ok(identity)
}

/// Starts a program of ours, detached, as a service manager would.
///
/// # Errors
/// A [`StepFailure`] when it cannot be started, or ends at once.
pub(crate) async fn start_program(
    machine: &Machine,
    program: &Path,
    arguments: &[&str],
    log: &Path,
) -> Result<Identity, StepFailure> {
    begin(machine, program, arguments, &[], log).await
}

async fn begin(
    machine: &Machine,
    program: &Path,
    arguments: &[&str],
    pairs: &[(String, String)],
    log_path: &Path,
) -> Result<Identity, StepFailure> {
    let log = open_log(machine, log_path)?;
    let mut child = spawn(machine, program, arguments, pairs, log).map_err(|error| StepFailure {
        code: "server-not-started",
        message: format!("{} could not be started: {error}", program.display()),
        hint: format!("try it by hand: {} {}", program.display(), arguments.join(" ")),
        again: Again::Never,
    })?;
    let identity = child.id().and_then(processes::life_of).map(|(identity, _)| identity);
    let early = |ended| ended_early(program, arguments, log_path, ended);
    tokio::select! {
        ended = child.wait() => return Err(early(ended)),
        () = tokio::time::sleep(machine.clock().patience(EARLY_END)) => {}
    }
    // Not ended and yet not in the process table: it ended just now. Otherwise the runtime collects the child's exit
    // whenever it ends; dropping the handle does not end it.
    identity.ok_or_else(|| early(child.try_wait().map(Option::unwrap_or_default)))
}

fn spawn(
    machine: &Machine,
    program: &Path,
    arguments: &[&str],
    pairs: &[(String, String)],
    log: File,
) -> io::Result<Child> {
    let mut command = Command::new(program);
    command.args(arguments).current_dir(machine.home()).env("HOME", machine.home());
    for (name, _) in std::env::vars_os() {
        if name.to_str().is_some_and(|name| is_server_variable(name) && name != KEPT) {
            command.env_remove(name);
        }
    }
    if let Some(world) = machine.simulated() {
        // What a simulated service manager gives to the jobs that it runs.
        command.env(WORLD_VARIABLE, world);
    }
    command.envs(pairs.iter().map(|(name, value)| (name, value)));
    command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
    detach(&mut command);
    command.spawn()
}

/// A session of its own: no terminal can hang it up, and no signal for our group reaches it.
fn detach(command: &mut Command) {
    let begin_session = || rustix::process::setsid().map(|_| ()).map_err(io::Error::from);
    #[expect(unsafe_code, reason = "the standard library has no safe way to begin a session in the child")]
    // SAFETY: the closure runs in the child between fork and exec, where only async-signal-safe calls are allowed. It
    // makes one such call, setsid(2), and neither allocates nor locks: making an `io::Error` from an errno does not.
    unsafe {
        command.pre_exec(begin_session);
    }
}

fn open_log(machine: &Machine, path: &Path) -> Result<File, StepFailure> {
    let open = || -> io::Result<File> {
        let folder = path.parent().unwrap_or(path);
        machine.allow_write(path).map_err(io::Error::other)?;
        DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        OpenOptions::new().append(true).create(true).mode(0o600).open(path)
    };
    open().map_err(|error| StepFailure {
        code: "log-not-writable",
        message: format!("the log {} cannot be written: {error}; nothing was started", path.display()),
        hint: "make its folder writable for you, then try again".to_owned(),
        again: Again::Never,
    })
}

fn ended_early(program: &Path, arguments: &[&str], log: &Path, ended: io::Result<ExitStatus>) -> StepFailure {
    let how = match ended {
        Ok(status) => status.to_string(),
        Err(error) => error.to_string(),
    };
    let last = last_line(log).map(|line| format!("; its last words: {line}")).unwrap_or_default();
    StepFailure {
        code: "server-ended",
        message: format!("{} {} ended at once ({how}){last}", program.display(), arguments.join(" ")),
        hint: format!("look at {}", log.display()),
        // Another server may still be letting go of the port.
        again: Again::Few,
    }
}

fn last_line(path: &Path) -> Option<String> {
    let text = fs::read(path).ok()?;
    let tail = text.get(text.len().saturating_sub(4096)..)?;
    let tail = String::from_utf8_lossy(tail);
    let line = tail.lines().rev().find(|line| !line.trim().is_empty())?;
    Some(line.chars().take(300).collect())
}

fn read_environment(machine: &Machine) -> Result<Vec<(String, String)>, StepFailure> {
    let bytes = files::read(&environment_path(machine))?.unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    Ok(text.lines().filter_map(pair).map(|(name, value)| (name.to_owned(), value.to_owned())).collect())
}

/// `NAME=VALUE` as it stands: no quotes, no escapes, so that every value reads back as it was written.
fn pair(line: &str) -> Option<(&str, &str)> {
    let (name, value) = line.split_once('=')?;
    let name = name.trim();
    let is_name = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    is_name.then_some((name, value))
}

fn environment_path(machine: &Machine) -> PathBuf {
    stablehand_files(machine).data_dir.join("ollama.env")
}

fn record_path(machine: &Machine) -> PathBuf {
    stablehand_files(machine).data_dir.join("server.json")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::change::carry_out;
    use crate::linux::playing::Player;
    use stablehand_engine::setting::{Name, Value};
    use std::os::unix::fs::symlink;

    #[tokio::test]
    async fn values_are_written_read_and_taken_away_beside_a_persons_own_lines() {
        let player = Player::new();
        let machine = &player.machine;
        assert_eq!(values(machine), Known::Is(Values::new()));
        let wanted = set(&[("OLLAMA_ORIGINS", "a \"b\" = c"), ("OLLAMA_MAX_QUEUE", "10")]);
        carry_out(machine, &value_changes(machine, &wanted).unwrap()).await.unwrap();
        assert_eq!(values(machine), Known::Is(wanted.clone()));
        assert_eq!(value_changes(machine, &wanted).unwrap(), []);
        let path = environment_path(machine);
        let text = fs::read_to_string(&path).unwrap();
        fs::write(&path, format!("{text}# mine\nCUDA_VISIBLE_DEVICES=1\n")).unwrap();
        carry_out(machine, &value_changes(machine, &Values::new()).unwrap()).await.unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), format!("{HEADER}\n# mine\nCUDA_VISIBLE_DEVICES=1\n"));
        fs::write(&path, format!("{HEADER}\nOLLAMA_MAX_QUEUE=10\n")).unwrap();
        carry_out(machine, &value_changes(machine, &Values::new()).unwrap()).await.unwrap();
        assert!(!path.exists());
    }

    #[tokio::test]
    async fn a_started_server_is_detached_has_its_values_and_is_written_down() {
        let player = Player::new();
        let machine = &player.machine;
        let program = program(&player, "/usr/local/bin/ollama");
        let persisted = set(&[("OLLAMA_MAX_QUEUE", "10"), ("OLLAMA_NUM_PARALLEL", "4")]);
        carry_out(machine, &value_changes(machine, &persisted).unwrap()).await.unwrap();
        let server = start(machine, &program, &set(&[("OLLAMA_NUM_PARALLEL", "1")])).await.unwrap();
        assert_eq!(recorded(machine), Some(server));
        let log = fs::read_to_string(log_file(machine)).unwrap();
        assert!(log.starts_with("serve parallel=1 queue=10\n"), "{log}");
        let pid = rustix::process::Pid::from_raw(i32::try_from(server.pid).unwrap()).unwrap();
        assert_eq!(rustix::process::getsid(Some(pid)).unwrap(), pid);
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
        forget(machine).unwrap();
        assert_eq!(recorded(machine), None);
    }

    #[tokio::test]
    async fn a_server_that_ends_at_once_is_told_with_its_last_words() {
        let player = Player::new();
        let program = program(&player, "/usr/local/bin/ollama");
        player.file("/home/sim/fail", "");
        let failure = start(&player.machine, &program, &Values::new()).await.unwrap_err();
        assert_eq!((failure.code, failure.again), ("server-ended", Again::Few));
        assert!(failure.message.contains("last words: Error: listen tcp"), "{}", failure.message);
        assert_eq!(recorded(&player.machine), None);
    }

    #[tokio::test]
    async fn nothing_is_started_outside_a_world_or_where_there_is_nothing() {
        let player = Player::new();
        let start = async |program: &Path| start(&player.machine, program, &Values::new()).await.unwrap_err().code;
        assert_eq!(start(Path::new("/bin/sh")).await, "outside-world");
        assert_eq!(start(&player.machine.at("/no/such")).await, "server-not-started");
    }

    #[test]
    fn a_record_that_is_not_understood_is_no_record() {
        let player = Player::new();
        let path = record_path(&player.machine);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        for text in ["", "{}", r#"{"format":2,"pid":1,"birth":1,"program":"/x","values":{}}"#] {
            fs::write(&path, text).unwrap();
            assert_eq!(recorded(&player.machine), None, "{text}");
        }
    }

    /// A stand-in for `ollama`: says what it was given, then waits to be ended.
    fn program(player: &Player, absolute: &str) -> PathBuf {
        let path = player.machine.at(absolute);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        symlink(Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/linux/bin/play-ollama"), &path).unwrap();
        path
    }

    fn set(pairs: &[(&str, &str)]) -> Values {
        pairs.iter().map(|(name, value)| (Name::try_new(name).unwrap(), Value::try_new(value).unwrap())).collect()
    }
}
