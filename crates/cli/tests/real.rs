//! The main job and recovery against a real Ollama, in a home and on a port of its own. `scripts/test --real` names the
//! program in `STABLEHAND_REAL_OLLAMA`; a small model is named in `STABLEHAND_REAL_MODEL`. Without them there is nothing to
//! test against, and the tests say so.

#![allow(clippy::unwrap_used, reason = "tests panic where they fail; clippy's own exception does not reach here")]

use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::channel;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long anything that is waited for may take.
const LONGEST: Duration = Duration::from_secs(180);

#[test]
fn a_real_server_is_taken_over_restarted_and_proved() {
    let Some(ollama) = named("STABLEHAND_REAL_OLLAMA", "program") else { return };
    let mut place = Place::new();
    let by_hand = place.serve(&ollama);
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
    by_hand.ended();
    assert_eq!(place.last(&["verify"]).0, 0);

    assert_eq!(place.last(&["settings", "set", "OLLAMA_MAX_QUEUE=20"]).0, 0);
    assert_eq!(place.last(&["verify"]).0, 1, "desired, but not applied yet");
    assert_eq!(place.last(&["apply"]).1["outcome"], "proven");
    assert_eq!(place.last(&["restart"]).1["outcome"], "proven");
}

#[test]
fn a_runner_that_stands_still_is_ended_and_the_next_request_served() {
    let Some(ollama) = named("STABLEHAND_REAL_OLLAMA", "program") else { return };
    let Some(model) = named("STABLEHAND_REAL_MODEL", "GGUF file") else { return };
    let mut place = Place::new();
    let by_hand = place.serve(&ollama);
    place.start_daemon();
    assert_eq!(place.last(&["apply", "--take-over"]).1["outcome"], "proven");
    by_hand.ended();
    place.may_end_runners();
    place.create(&ollama, &model);

    let mut words = place.ask("Wednesday is a day. Count for ever: 1, 2, 3,", 20_000);
    assert!(words.next().unwrap()["response"].is_string(), "it generates");
    let at_work = place.watch_until(|snapshot| snapshot["watched"]["runners"][0]["slots_busy"] == 1);
    let runner = at_work["watched"]["runners"][0]["pid"].as_u64().unwrap();
    assert!(Command::new("/bin/kill").args(["-STOP", &runner.to_string()]).status().unwrap().success());

    let recovered = |alert: &Value| alert["kind"] == "recovered";
    place.watch_until(|snapshot| snapshot["alerts"].as_array().unwrap().iter().any(recovered));
    let last = words.last().unwrap();
    assert!(last["error"].is_string(), "whoever was in it is told, and not left to wait: {last}");
    let last = place.ask("Wednesday is a day. Count: 1, 2, 3,", 3).last().unwrap();
    assert_eq!(last["done"], true, "{last}");

    let evidence = place.evidence();
    assert_eq!(evidence.len(), 2, "facts, and where the threads stand: {evidence:#?}");
    assert!(evidence.iter().any(|text| text.contains("its process is stopped")), "{evidence:#?}");
    assert!(!evidence.iter().any(|text| text.contains("Wednesday")), "no prompt is in it: {evidence:#?}");
}

/// What the variable names; says so when it names nothing.
fn named(variable: &str, what: &str) -> Option<String> {
    let named = std::env::var(variable).ok();
    if named.is_none() {
        eprintln!("skipped: {variable} names no {what}");
    }
    named
}

/// A server that was started in a terminal.
struct ByHand {
    server: Child,
    /// Its further words are read to the end, so that it is never held up by a full pipe.
    drain: JoinHandle<usize>,
}

impl ByHand {
    /// Waits until it has ended.
    fn ended(mut self) {
        self.server.wait().unwrap();
        self.drain.join().unwrap();
    }
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

    /// Starts the server, and waits until it listens.
    fn serve(&self, ollama: &str) -> ByHand {
        let mut server = self.command(ollama, &["serve"]).stderr(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(server.stderr.take().unwrap()).lines().map_while(Result::ok);
        let mut lines = lines.skip_while(|line| !line.contains("Listening on"));
        assert!(lines.next().is_some(), "the server listens");
        ByHand { server, drain: std::thread::spawn(move || lines.count()) }
    }

    /// Makes the model `counting` of a GGUF file.
    fn create(&self, ollama: &str, model: &str) {
        let model_file = self.folder.path().join("Modelfile");
        std::fs::write(&model_file, format!("FROM {model}\nPARAMETER num_ctx 2048\n")).unwrap();
        let created = self.command(ollama, &["create", "counting", "-f", model_file.to_str().unwrap()]).output();
        let created = created.unwrap();
        assert!(created.status.success(), "{}", String::from_utf8_lossy(&created.stderr));
    }

    /// Edits the configuration as a person would.
    fn may_end_runners(&self) {
        let path = self.last(&["status"]).1["config"]["path"].as_str().unwrap().to_owned();
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.contains("policy = \"alert\""), "{text}");
        std::fs::write(&path, text.replace("policy = \"alert\"", "policy = \"runner\"")).unwrap();
        self.watch_until(|snapshot| snapshot["watched"]["recovery"]["policy"] == "runner");
    }

    /// Asks the model, and returns what comes, line by line.
    fn ask(&self, prompt: &str, tokens: u32) -> impl Iterator<Item = Value> + use<> {
        let options = json!({ "num_predict": tokens, "temperature": 0 });
        let body = json!({ "model": "counting", "prompt": prompt, "raw": true, "options": options }).to_string();
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        stream.set_read_timeout(Some(LONGEST)).unwrap();
        let head = format!("Host: localhost\r\nConnection: close\r\nContent-Length: {}", body.len());
        write!(stream, "POST /api/generate HTTP/1.1\r\n{head}\r\n\r\n{body}").unwrap();
        // Between them are the head and the lengths of chunks.
        BufReader::new(stream)
            .lines()
            .map(Result::unwrap)
            .filter_map(|line| serde_json::from_str(&line).ok().filter(Value::is_object))
    }

    /// The first snapshot of a watch that suits.
    fn watch_until(&self, suits: impl Fn(&Value) -> bool) -> Value {
        let mut watch = self.command(env!("CARGO_BIN_EXE_stablehand"), &["status", "--watch", "--json"]);
        let mut watch = watch.stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(watch.stdout.take().unwrap()).lines().map_while(Result::ok);
        let (sender, snapshots) = channel();
        std::thread::spawn(move || lines.for_each(|line| drop(sender.send(line))));
        let began = Instant::now();
        let mut last = Value::Null;
        loop {
            match snapshots.recv_timeout(LONGEST.saturating_sub(began.elapsed())) {
                Ok(line) => last = serde_json::from_str(&line).unwrap(),
                Err(error) => panic!("no suitable snapshot ({error}), the last one: {last}"),
            }
            if suits(&last) {
                break;
            }
        }
        watch.kill().unwrap();
        watch.wait().unwrap();
        last
    }

    /// What was saved of stalls.
    fn evidence(&self) -> Vec<String> {
        let folders = [".local/state/stablehand/log/evidence", "Library/Logs/dev.stablehand/evidence"];
        let folder = folders.map(|folder| self.folder.path().join(folder)).into_iter().find(|folder| folder.exists());
        let files = std::fs::read_dir(folder.unwrap()).unwrap();
        files.map(|file| std::fs::read_to_string(file.unwrap().path()).unwrap()).collect()
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
