//! More clients at once than the gateway may have files open: each gets an answer or is told to come again.

#![allow(clippy::unwrap_used, reason = "tests panic where they fail; clippy's own exception does not reach here")]

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

const CLIENTS: usize = 1_000;
/// Nothing here takes as long; what does is broken.
const PATIENCE: Duration = Duration::from_secs(120);
/// The threads here do nothing but wait.
const STACK_BYTES: usize = 128 << 10;

struct Gateway {
    process: Child,
    address: SocketAddr,
}

impl Gateway {
    /// On a machine of its own, with so many file descriptors.
    fn start(folder: &Path, upstream: SocketAddr, descriptors: usize) -> Self {
        let marker = r#"{"format":1,"os":"linux","user":"sim","home":"/home/sim","port":21434}"#;
        std::fs::write(folder.join("stablehand-world.json"), marker).unwrap();
        let clock = r#"{"speed":1.0,"anchor_monotonic_ms":0,"anchor_wall_unix_ms":0,"slept_ms":0}"#;
        std::fs::write(folder.join("clock.json"), clock).unwrap();
        let configuration = folder.join("home/sim/.config/stablehand/config.toml");
        std::fs::create_dir_all(configuration.parent().unwrap()).unwrap();
        let lines = format!("[gateway]\nlisten = [\"127.0.0.1:0\"]\nupstream = \"{upstream}\"\nwaiting = 50\n");
        std::fs::write(configuration, lines).unwrap();
        let script = format!("ulimit -n {descriptors}; exec \"$0\" serve --gateway");
        let mut process = Command::new("/bin/sh")
            .args(["-c", &script, env!("CARGO_BIN_EXE_stablehand")])
            .env("STABLEHAND_WORLD", folder)
            .env("STABLEHAND_LOG", "info")
            .env_remove("XDG_RUNTIME_DIR")
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(process.stderr.take().unwrap()).lines().map_while(Result::ok);
        let mut said = Vec::new();
        let address = loop {
            let Some(line) = lines.next() else { panic!("the gateway does not listen: {said:#?}") };
            let plain: String = line.chars().filter(|letter| !letter.is_control()).collect();
            if let Some((_, rest)) = plain.split_once("the gateway listens")
                && let Some(port) = rest.split("127.0.0.1:").nth(1)
            {
                let port: String = port.chars().take_while(char::is_ascii_digit).collect();
                break SocketAddr::from(([127, 0, 0, 1], port.parse().unwrap()));
            }
            said.push(line);
        };
        std::thread::spawn(move || lines.for_each(drop));
        Self { process, address }
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Answers every request with an empty object, and counts those for inference.
fn ollama(listener: TcpListener, inferences: Arc<AtomicUsize>) {
    for stream in listener.incoming() {
        let (Ok(mut stream), inferences) = (stream, inferences.clone()) else { continue };
        let serve = move || {
            let mut said = Vec::new();
            let mut part = [0; 4096];
            while let Ok(count @ 1..) = stream.read(&mut part) {
                said.extend_from_slice(&part[..count]);
                let text = String::from_utf8_lossy(&said);
                if !(text.ends_with('}') || text.starts_with("GET") && text.ends_with("\r\n\r\n")) {
                    continue;
                }
                if text.starts_with("POST /api/chat") {
                    inferences.fetch_add(1, Ordering::Relaxed);
                }
                said.clear();
                if stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}").is_err() {
                    return;
                }
            }
        };
        std::thread::Builder::new().stack_size(STACK_BYTES).spawn(serve).unwrap();
    }
}

/// The status that a client is told, or what went wrong.
fn ask(address: SocketAddr) -> Result<u16, String> {
    let mut stream = TcpStream::connect(address).map_err(|error| format!("connect: {error}"))?;
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let body = r#"{"model":"m","messages":[{"role":"user","content":"hi"}]}"#;
    let request = format!(
        "POST /api/chat HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes()).map_err(|error| format!("write: {error}"))?;
    let mut said = Vec::new();
    stream.read_to_end(&mut said).map_err(|error| format!("read: {error}"))?;
    let said = String::from_utf8_lossy(&said).into_owned();
    let status = said.split(' ').nth(1).and_then(|word| word.parse().ok());
    status.filter(|_| said.ends_with('}')).ok_or_else(|| format!("half an answer: {said:?}"))
}

#[test]
fn a_thousand_clients_at_256_descriptors_each_get_an_answer_or_are_told_to_come_again() {
    let limit = getrlimit(Resource::Nofile);
    let needed = 2 * CLIENTS as u64 + 256;
    if limit.current.is_some_and(|current| current < needed) {
        setrlimit(Resource::Nofile, Rlimit { current: Some(needed), maximum: limit.maximum }).unwrap();
    }
    let folder = tempfile::tempdir().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let upstream = listener.local_addr().unwrap();
    let inferences = Arc::new(AtomicUsize::new(0));
    let counted = inferences.clone();
    std::thread::spawn(move || ollama(listener, counted));
    let gateway = Gateway::start(folder.path(), upstream, 256);

    let address = gateway.address;
    let client = |_| std::thread::Builder::new().stack_size(STACK_BYTES).spawn(move || ask(address)).unwrap();
    let clients: Vec<_> = (0..CLIENTS).map(client).collect();
    let (mut served, mut busy, mut other) = (0, 0, Vec::new());
    for client in clients {
        match client.join().unwrap() {
            Ok(200) => served += 1,
            Ok(503) => busy += 1,
            Ok(status) => other.push(status.to_string()),
            Err(problem) => other.push(problem),
        }
    }
    assert_eq!(other, [""; 0], "{served} served, {busy} told that the queue is full");
    assert_eq!(served, inferences.load(Ordering::Relaxed), "whoever was served was sent once");
    assert!(served > 0 && served + busy == CLIENTS, "{served} and {busy}");
    // The last of the crowd may still be on their way out.
    let end = Instant::now() + PATIENCE;
    while ask(address) == Ok(503) {
        assert!(Instant::now() < end, "the gateway does not go on");
    }
    assert_eq!(ask(address), Ok(200), "and the gateway goes on");
}
