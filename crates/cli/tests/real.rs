//! The main job against a real Ollama, in a home and on a port of its own. `scripts/test --real` names the program in
//! `STABLEHAND_REAL_OLLAMA`; without it there is nothing to test against, and the test says so.

#![allow(clippy::unwrap_used, reason = "tests panic where they fail; clippy's own exception does not reach here")]

use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::process::{Child, Command, Output, Stdio};

#[test]
fn a_real_server_is_taken_over_restarted_and_proved() {
    let Some(ollama) = std::env::var_os("STABLEHAND_REAL_OLLAMA") else {
        eprintln!("skipped: STABLEHAND_REAL_OLLAMA names no program");
        return;
    };
    let mut place = Place::new();
    let mut by_hand = place.command(ollama.to_str().unwrap(), &["serve"]).stderr(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(by_hand.stderr.take().unwrap()).lines().map_while(Result::ok);
    let mut lines = lines.skip_while(|line| !line.contains("Listening on"));
    assert!(lines.next().is_some(), "the server listens");
    // Its further words are read to the end, so that it is never held up by a full pipe.
    let drain = std::thread::spawn(move || lines.count());
    place.start_daemon();

    assert_eq!(place.last(&["status"]).1["server"]["owner"], "manual");
    assert_eq!(place.last(&["settings", "preset", "serial"]).0, 0);
    let (code, ending) = place.last(&["apply"]);
    assert_eq!((code, &ending["failure"]["code"]), (1, &"owner-manual".into()), "{ending}");

    let (code, ending) = place.last(&["apply", "--take-over"]);
    assert_eq!((code, &ending["outcome"]), (0, &"proven".into()), "{ending}");
    for (name, value) in [("OLLAMA_NUM_PARALLEL", "1"), ("OLLAMA_MAX_LOADED_MODELS", "1"), ("OLLAMA_MAX_QUEUE", "10")] {
        let settings = ending["settings"].as_array().unwrap();
        let setting = settings.iter().find(|setting| setting["name"] == name).unwrap();
        for layer in ["desired", "persisted", "effective"] {
            assert_eq!(setting[layer], value, "{setting}");
        }
        assert_eq!(setting["proof"][0]["kind"], "server-config-line", "{setting}");
    }
    by_hand.wait().unwrap();
    drain.join().unwrap();
    assert_eq!(place.last(&["verify"]).0, 0);

    assert_eq!(place.last(&["settings", "set", "OLLAMA_MAX_QUEUE=20"]).0, 0);
    assert_eq!(place.last(&["verify"]).0, 1, "desired, but not applied yet");
    assert_eq!(place.last(&["apply"]).1["outcome"], "proven");
    assert_eq!(place.last(&["restart"]).1["outcome"], "proven");
}

/// A home, a port and a daemon of its own.
struct Place {
    folder: tempfile::TempDir,
    port: u16,
    daemon: Option<Child>,
}

impl Place {
    fn new() -> Self {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        Self { folder: tempfile::Builder::new().prefix("shr").tempdir().unwrap(), port, daemon: None }
    }

    fn command(&self, program: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new(program);
        command.args(arguments).env("HOME", self.folder.path()).env("XDG_RUNTIME_DIR", self.folder.path());
        command.env("OLLAMA_HOST", format!("127.0.0.1:{}", self.port)).env("OLLAMA_NO_CLOUD", "1");
        for name in ["STABLEHAND_WORLD", "XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_DATA_HOME"] {
            command.env_remove(name);
        }
        command.stdin(Stdio::null()).stdout(Stdio::null());
        command
    }

    fn start_daemon(&mut self) {
        let mut daemon =
            self.command(env!("CARGO_BIN_EXE_stablehand"), &["serve"]).stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(daemon.stderr.take().unwrap()).lines().map_while(Result::ok);
        let ready = lines.any(|line| line.contains(" ready "));
        self.daemon = Some(daemon);
        assert!(ready, "the daemon says that it is ready");
        std::thread::spawn(move || lines.count());
    }

    fn run(&self, verb: &[&str]) -> Output {
        self.command(env!("CARGO_BIN_EXE_stablehand"), verb).stdout(Stdio::piped()).output().unwrap()
    }

    fn last(&self, verb: &[&str]) -> (i32, Value) {
        let output = self.run(&[verb, &["--json"]].concat());
        let text = String::from_utf8(output.stdout).unwrap();
        let line = text.lines().last().unwrap_or_else(|| panic!("{verb:?} said nothing"));
        (output.status.code().unwrap(), serde_json::from_str(line).unwrap())
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let status: Value = serde_json::from_slice(&self.run(&["status", "--json"]).stdout).unwrap_or_default();
        let server = status["server"]["pid"].as_u64();
        self.run(&["uninstall"]);
        if let Some(mut daemon) = self.daemon.take() {
            let _ = daemon.kill();
            let _ = daemon.wait();
        }
        if let Some(pid) = server {
            let _ = Command::new("/bin/kill").arg(pid.to_string()).status();
        }
    }
}
