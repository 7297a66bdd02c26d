//! The smallest blocking HTTP client: asks a loopback port and reads to the
//! end. Used to see whether a server answers and to cause traffic for faults.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

/// `GET path`; the body if the answer's status is 200.
pub fn get(port: u16, path: &str, limit: Duration) -> Option<String> {
    exchange(port, &format!("GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n"), limit)
}

/// `POST path` with a JSON body; the answer's body if its status is 200.
pub fn post(port: u16, path: &str, body: &str, limit: Duration) -> Option<String> {
    let request = format!(
        "POST {path} HTTP/1.0\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    exchange(port, &request, limit)
}

fn exchange(port: u16, request: &str, limit: Duration) -> Option<String> {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let mut stream = TcpStream::connect_timeout(&address, limit).ok()?;
    stream.set_read_timeout(Some(limit)).ok()?;
    stream.write_all(request.as_bytes()).ok()?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).ok()?;
    let answer = String::from_utf8_lossy(&answer);
    let (head, body) = answer.split_once("\r\n\r\n")?;
    head.split_whitespace().nth(1).filter(|status| *status == "200").map(|_| body.to_owned())
}
