//! A simulated machine with our daemon on it, as a user would set it up.

// Each test program uses a part of this.
#![allow(dead_code)]

pub mod gateway;
pub mod recovering;

use serde_json::Value;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

const STABLEHAND: &str = env!("CARGO_BIN_EXE_stablehand");

/// How long the daemon may take to say that it is ready.
const READY: Duration = Duration::from_secs(30);

/// How long anything that is waited for may take.
const LONGEST: Duration = Duration::from_secs(300);

pub struct World {
    folder: tempfile::TempDir,
    daemon: Option<Child>,
}

impl World {
    /// Starts a machine, with the daemon on it.
    pub fn start(arguments: &[&str]) -> Self {
        let mut world = Self::without_daemon(arguments);
        world.start_daemon();
        world
    }

    pub fn without_daemon(arguments: &[&str]) -> Self {
        Self::made_in(tempfile::Builder::new().prefix("shw").tempdir().unwrap(), arguments)
    }

    /// As [`Self::start`], in a folder of this name.
    pub fn start_in(folder: tempfile::TempDir, arguments: &[&str]) -> Self {
        let mut world = Self::made_in(folder, arguments);
        world.start_daemon();
        world
    }

    fn made_in(folder: tempfile::TempDir, arguments: &[&str]) -> Self {
        let world = Self { folder, daemon: None };
        world.demo_start(arguments);
        world
    }

    pub fn dir(&self) -> PathBuf {
        self.folder.path().join("w")
    }

    /// A file of the simulated machine.
    pub fn file(&self, path: &str) -> PathBuf {
        self.dir().join(path.trim_start_matches('/'))
    }

    pub fn agents(&self) -> PathBuf {
        self.file("/Users/sim/Library/LaunchAgents")
    }

    pub fn demo_start(&self, arguments: &[&str]) {
        let dir = self.dir();
        let mut all = vec!["demo", "start", "--dir", dir.to_str().unwrap()];
        all.extend(arguments);
        let started = self.run(&all);
        assert!(started.status.success(), "{}", words(&started));
    }

    /// Stops the machine and starts it again; its Ollama is then whatever a new login starts.
    pub fn log_in_again(&self) {
        let dir = self.dir();
        let stopped = self.run(&["demo", "stop", "--dir", dir.to_str().unwrap()]);
        assert!(stopped.status.success(), "{}", words(&stopped));
        self.demo_start(&[]);
    }

    pub fn start_daemon(&mut self) {
        let mut daemon = self.command(&["serve"]);
        let mut child = daemon.stderr(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        let lines = read_lines(child.stderr.take().unwrap());
        self.daemon = Some(child);
        let mut said = Vec::new();
        loop {
            match lines.recv_timeout(READY) {
                Ok(line) if line.contains(" ready ") => return,
                Ok(line) => said.push(line),
                Err(error) => panic!("the daemon is not ready ({error}): {said:#?}"),
            }
        }
    }

    pub fn stop_daemon(&mut self) {
        if let Some(mut daemon) = self.daemon.take() {
            // The daemon ends by itself on SIGTERM; `kill` is not enough to remove its socket.
            let pid = daemon.id().to_string();
            assert!(Command::new("/bin/kill").arg(pid).status().unwrap().success());
            daemon.wait().unwrap();
        }
    }

    pub fn kill_daemon(&mut self) {
        if let Some(mut daemon) = self.daemon.take() {
            daemon.kill().unwrap();
            daemon.wait().unwrap();
        }
    }

    /// The daemon has ended by itself.
    pub fn bury_daemon(&mut self) {
        if let Some(mut daemon) = self.daemon.take() {
            daemon.wait().unwrap();
        }
    }

    pub fn fault(&self, name: &str) {
        self.fault_with(&[name]);
    }

    /// Raises a fault with its flags.
    pub fn fault_with(&self, arguments: &[&str]) {
        let raised = self.run(&[&["demo", "fault"], arguments].concat());
        assert!(raised.status.success(), "{arguments:?}: {}", words(&raised));
    }

    /// Runs a verb, and returns its exit code and text.
    pub fn text(&self, verb: &[&str]) -> (i32, String) {
        let output = self.run(verb);
        (output.status.code().unwrap(), words(&output))
    }

    /// Runs a verb with `--json`, and returns its exit code and every line as JSON.
    pub fn json(&self, verb: &[&str]) -> (i32, Vec<Value>) {
        let mut verb = verb.to_vec();
        verb.push("--json");
        let output = self.run(&verb);
        let text = String::from_utf8(output.stdout.clone()).unwrap();
        let lines =
            text.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}")));
        let lines: Vec<Value> = lines.collect();
        assert!(!lines.is_empty(), "{verb:?} said nothing: {}", words(&output));
        (output.status.code().unwrap(), lines)
    }

    /// Runs a verb with `--json`, and returns its exit code and last line.
    pub fn last(&self, verb: &[&str]) -> (i32, Value) {
        let (code, mut lines) = self.json(verb);
        (code, lines.pop().unwrap())
    }

    /// Takes the preset `serial` and applies it; the ending.
    pub fn apply_serial(&self) -> Value {
        let (code, _) = self.text(&["settings", "preset", "serial"]);
        assert_eq!(code, 0);
        let (_, ending) = self.last(&["apply"]);
        ending
    }

    pub fn status(&self) -> Value {
        let (code, snapshot) = self.last(&["status"]);
        assert_eq!(code, 0);
        snapshot
    }

    /// The first snapshot of a watch that suits.
    pub fn watch_until(&self, suits: impl Fn(&Value) -> bool) -> Value {
        first_line(self.command(&["status", "--watch", "--json"]), suits)
    }

    /// Asks for something and leaves as soon as a line of progress suits; whether one did.
    pub fn ask_and_leave(&self, verb: &[&str], suits: impl Fn(&Value) -> bool) -> bool {
        let verb = [verb, &["--json"]].concat();
        let mut asking = self.command(&verb).stdout(Stdio::piped()).spawn().unwrap();
        let lines = read_lines(asking.stdout.take().unwrap());
        let mut found = false;
        while let (false, Ok(line)) = (found, lines.recv_timeout(READY)) {
            found = suits(&serde_json::from_str(&line).unwrap());
        }
        asking.kill().unwrap();
        asking.wait().unwrap();
        found
    }

    /// The first that the simulator says of the machine and that suits.
    pub fn inside_until(&self, suits: impl Fn(&Value) -> bool) -> Value {
        let mut watch = self.simulator("status");
        watch.arg("--watch");
        first_line(watch, suits)
    }

    /// What the simulator says of the machine.
    pub fn inside(&self) -> Value {
        let output = self.simulator("status").output().unwrap();
        serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {}", words(&output)))
    }

    fn simulator(&self, verb: &str) -> Command {
        let mut command = Command::new(Path::new(STABLEHAND).with_file_name("stablehand-sim"));
        command.arg(verb).arg("--dir").arg(self.dir());
        command
    }

    pub fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    /// Runs a verb whose reader has left before it writes; what it says on standard error.
    pub fn unread(&self, arguments: &[&str]) -> String {
        unread(&mut self.command(arguments))
    }

    /// The same for the simulator's own program.
    pub fn unread_inside(&self, arguments: &[&str]) -> String {
        unread(Command::new(Path::new(STABLEHAND).with_file_name("stablehand-sim")).args(arguments))
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(STABLEHAND);
        command.args(arguments).env("STABLEHAND_WORLD", self.dir()).env("STABLEHAND_LOG", "info");
        command.env_remove("XDG_RUNTIME_DIR").stdin(Stdio::null());
        command
    }
}

impl Drop for World {
    fn drop(&mut self) {
        let dir = self.dir();
        let stopped = self.run(&["demo", "stop", "--dir", dir.to_str().unwrap()]);
        if let Some(mut daemon) = self.daemon.take() {
            let _ = daemon.kill();
            let _ = daemon.wait();
        }
        if !std::thread::panicking() {
            assert!(stopped.status.success(), "{}", words(&stopped));
        }
    }
}

/// The setting of that name in an ending or snapshot.
pub fn setting<'a>(said: &'a Value, name: &str) -> &'a Value {
    let settings = said["settings"].as_array().unwrap_or_else(|| panic!("no settings: {said}"));
    settings.iter().find(|setting| setting["name"] == name).unwrap_or_else(|| panic!("no {name} in {said}"))
}

pub fn words(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

fn unread(command: &mut Command) -> String {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let output = command.stdin(Stdio::null()).stdout(writer).stderr(Stdio::piped()).output().unwrap();
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The first line of JSON that a watch prints and that suits.
fn first_line(mut watch: Command, suits: impl Fn(&Value) -> bool) -> Value {
    let mut watch = watch.stdout(Stdio::piped()).spawn().unwrap();
    let lines = read_lines(watch.stdout.take().unwrap());
    let mut last = Value::Null;
    let began = Instant::now();
    let found = loop {
        match lines.recv_timeout(LONGEST.saturating_sub(began.elapsed())) {
            Ok(line) => last = serde_json::from_str(&line).unwrap(),
            Err(error) => break Err(error),
        }
        if suits(&last) {
            break Ok(());
        }
    };
    watch.kill().unwrap();
    watch.wait().unwrap();
    match found {
        Ok(()) => last,
        Err(error) => {
            // Long, and never what is waited for here.
            last.as_object_mut().map(|last| last.remove("settings"));
            panic!("nothing suitable ({error}), the last line: {last:#}")
        }
    }
}

fn read_lines(stream: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, lines) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(stream).lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                // Nobody listens any more; the pipe is drained so that the daemon is never held up by it.
            }
        }
    });
    lines
}
