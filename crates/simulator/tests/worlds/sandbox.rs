//! A world in a temporary folder that is stopped when it goes out of scope.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use serde_json::Value;

/// How long anything may take, in real time.
const LIMIT: Duration = Duration::from_secs(20);

pub struct Sandbox {
    folder: tempfile::TempDir,
}

impl Sandbox {
    /// Makes a world with these options of `start`.
    pub fn start(options: &[&str]) -> Self {
        let sandbox = Self { folder: tempfile::tempdir().unwrap() };
        let output = sandbox.restart(options);
        assert!(output.status.success(), "{output:?}");
        sandbox
    }

    /// `start` on the same folder.
    pub fn restart(&self, options: &[&str]) -> Output {
        let mut words = vec!["start", "--dir", self.dir_text()];
        if !options.contains(&"--speed") {
            words.extend(["--speed", "20"]);
        }
        words.extend(options);
        sim(&words)
    }

    pub fn dir(&self) -> &Path {
        self.folder.path()
    }

    fn dir_text(&self) -> &str {
        self.dir().to_str().unwrap()
    }

    /// The program's own verb on this world.
    pub fn verb(&self, verb: &str, words: &[&str]) -> Output {
        let mut all = vec![verb, "--dir", self.dir_text()];
        all.extend(words);
        sim(&all)
    }

    /// Raises a fault.
    pub fn fault(&self, words: &[&str]) {
        let output = self.verb("fault", words);
        assert!(output.status.success(), "{output:?}");
    }

    /// What `status` tells.
    pub fn status(&self) -> Value {
        let output = self.verb("status", &[]);
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// The first pid under a key of the status.
    pub fn pid(&self, key: &str) -> Option<i64> {
        self.status()[key][0].as_i64()
    }

    /// A command of the simulated machine.
    pub fn command(&self, path: &str, words: &[&str]) -> Output {
        Command::new(self.dir().join(path)).args(words).output().unwrap()
    }

    pub fn launchctl(&self, words: &[&str]) -> Output {
        self.command("bin/launchctl", words)
    }

    pub fn port(&self) -> u16 {
        let text = std::fs::read_to_string(self.dir().join("stablehand-world.json")).unwrap();
        let marker: Value = serde_json::from_str(&text).unwrap();
        marker["port"].as_u64().unwrap() as u16
    }

    pub fn home(&self) -> PathBuf {
        self.dir().join("Users/sim")
    }

    pub fn server_log(&self) -> String {
        std::fs::read_to_string(self.home().join(".ollama/logs/server.log")).unwrap_or_default()
    }

    /// Status and body of an answer.
    pub fn http(&self, method: &str, path: &str, body: &str) -> (u16, String) {
        http(self.port(), method, path, body)
    }

    /// Requests that clients of the world were served so far.
    pub fn served(&self) -> u64 {
        self.status()["work"]["served"].as_u64().unwrap()
    }

    /// Waits until so many seconds have passed in the world.
    #[track_caller]
    pub fn seconds_pass(&self, seconds: i64) {
        let now = || self.status()["wall_unix_ms"].as_i64().unwrap();
        let until = now() + seconds * 1000;
        eventually(|| now() >= until);
    }

    /// Waits until the world's clients are served once more.
    #[track_caller]
    pub fn is_served_again(&self) {
        let before = self.served();
        eventually(|| self.served() > before);
    }

    /// The entry of a model's runner in the status.
    pub fn runner_of(&self, model: &str) -> Value {
        let status = self.status();
        let runners = status["runners"].as_array().unwrap();
        runners.iter().find(|runner| runner["model"] == model).cloned().unwrap_or_default()
    }

    /// What the port of a model's runner answers within half a second.
    pub fn ask_runner(&self, model: &str, path: &str) -> (u16, String) {
        let port = self.runner_of(model)["port"].as_u64().unwrap() as u16;
        http_within(port, "GET", path, "", Duration::from_millis(500))
    }

    /// The only loaded runner's entry in the status.
    pub fn runner(&self) -> Value {
        self.status()["runners"][0].clone()
    }

    /// A full restart of the app, as the facts say it has to be done.
    pub fn restart_app(&self) {
        let old = self.pid("gui").unwrap();
        signal(old, "TERM");
        eventually(|| self.pid("gui").is_none() && self.pid("serve").is_none());
        self.open_app();
        eventually(|| self.status()["answering"] == true);
    }

    pub fn open_app(&self) {
        let app = self.dir().join("Applications/Ollama.app");
        let output = self.command("usr/bin/open", &["-g", "-j", "-a", app.to_str().unwrap()]);
        assert!(output.status.success(), "{output:?}");
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        let _ = self.verb("stop", &[]);
    }
}

/// Waits for a condition of real processes.
#[track_caller]
pub fn eventually(mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + LIMIT;
    while !holds() {
        assert!(Instant::now() < deadline, "it did not happen in time");
        std::thread::park_timeout(Duration::from_millis(10));
    }
}

pub fn http(port: u16, method: &str, path: &str, body: &str) -> (u16, String) {
    http_within(port, method, path, body, LIMIT)
}

/// The same with another limit; status 0 where nothing came in time.
pub fn http_within(port: u16, method: &str, path: &str, body: &str, limit: Duration) -> (u16, String) {
    let Ok(mut stream) = TcpStream::connect(("127.0.0.1", port)) else {
        return (0, String::new());
    };
    stream.set_read_timeout(Some(limit)).unwrap();
    let request = format!(
        "{method} {path} HTTP/1.0\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let mut answer = String::new();
    if stream.write_all(request.as_bytes()).is_err() || stream.read_to_string(&mut answer).is_err() {
        return (0, String::new());
    }
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    let status = head.split_whitespace().nth(1).and_then(|status| status.parse().ok());
    (status.unwrap_or(0), body.to_owned())
}

pub fn signal(pid: i64, name: &str) {
    let status = Command::new("/bin/kill").args([&format!("-{name}"), &pid.to_string()]).status().unwrap();
    assert!(status.success());
}

/// Whether a process runs. One that ended but was not yet collected does not.
pub fn is_alive(pid: i64) -> bool {
    let output = Command::new("/bin/ps").args(["-o", "stat=", "-p", &pid.to_string()]).output().unwrap();
    let state = text(&output.stdout);
    !state.trim().is_empty() && !state.trim().starts_with('Z')
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn sim(words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_stablehand-sim")).args(words).env_remove("STABLEHAND_WORLD").output().unwrap()
}
