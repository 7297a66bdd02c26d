//! The gateway of a simulated machine, and clients that ask through it.

use super::World;
use serde_json::Value;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// The port that clients of the world know.
pub fn home(world: &World) -> u16 {
    let marker = std::fs::read_to_string(world.file("/stablehand-world.json")).unwrap();
    let marker: Value = serde_json::from_str(&marker).unwrap();
    u16::try_from(marker["port"].as_u64().unwrap()).unwrap()
}

/// Status and body of a request; status 0 when there is no answer.
pub fn ask(port: u16, method: &str, path: &str, body: &str) -> (u16, String) {
    ask_as(port, method, path, &[], body)
}

/// The same with these headers; the answer with its own.
pub fn ask_as(port: u16, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> (u16, String) {
    let Ok(mut stream) = TcpStream::connect(("127.0.0.1", port)) else { return (0, "nobody listens".to_owned()) };
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n",
        body.len()
    );
    let head = headers.iter().fold(head, |head, (name, value)| head + &format!("{name}: {value}\r\n")) + "\r\n";
    let sent = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body.as_bytes()));
    let mut said = Vec::new();
    let read = sent.and_then(|()| stream.read_to_end(&mut said));
    let said = String::from_utf8_lossy(&said).into_owned();
    let status = said.split(' ').nth(1).and_then(|word| word.parse().ok()).unwrap_or(0);
    match read {
        Ok(_) => (status, said),
        Err(error) => (status, format!("{error}: {said}")),
    }
}

pub fn take_over(world: &World) -> Value {
    let (code, ending) = world.last(&["gateway", "on", "--takeover", "--yes"]);
    assert_eq!(code, 0, "{ending}");
    ending
}

pub fn gateway_socket(world: &World) -> PathBuf {
    let config = world.status()["config"]["path"].as_str().unwrap().to_owned();
    Path::new(&config).with_file_name("g")
}

/// The gateway's queue, from its own socket.
pub fn queue(socket: &Path) -> Value {
    let mut stream = UnixStream::connect(socket).unwrap();
    stream.write_all(b"GET /v1/queue HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
    let mut said = String::new();
    stream.read_to_string(&mut said).unwrap();
    let body = &said[said.find('{').unwrap()..=said.rfind('}').unwrap()];
    serde_json::from_str(body).unwrap_or_else(|error| panic!("{error}: {said}"))
}

/// How many requests are in the gateway.
pub fn in_queue(socket: &Path) -> usize {
    let queue = queue(socket);
    queue["waiting"].as_array().unwrap().len() + queue["running"].as_array().unwrap().len()
}

/// Looks again until it is so.
pub fn until(so: impl Fn() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !so() {
        assert!(Instant::now() < end, "it never became so");
        std::thread::yield_now();
    }
}
