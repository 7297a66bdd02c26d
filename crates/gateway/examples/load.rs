//! Asks a server as fast as it can, and tells how fast that is. `scripts/bench gateway` runs it.
//!
//! It writes bytes and reads bytes, so that what is measured is the server and not this.

#![allow(clippy::print_stdout, reason = "what was measured is what it has to say")]

use rustix::time::{ClockId, clock_gettime};
use std::io::{Error, Read, Result, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// A short question to a model, as a chat sends it.
const BODY: &str = r#"{"model":"m:1b","messages":[{"role":"user","content":"Why is the sky blue?"}],"stream":false}"#;

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [what, address, numbers @ ..] = arguments.as_slice() else { return Err(usage()) };
    let address: SocketAddr = address.parse().map_err(|_| usage())?;
    let number = |index: usize| numbers.get(index).and_then(|text: &String| text.parse::<u64>().ok()).ok_or_else(usage);
    match what.as_str() {
        "latency" => latency(address, number(0)?),
        "rate" => rate(address, number(0)?, Duration::from_millis(number(1)?)),
        "tokens" => tokens(address, number(0)?, number(1)?),
        "wait" => wait(address, number(0)?),
        _ => Err(usage()),
    }
}

fn usage() -> Error {
    Error::other(
        "load latency ADDRESS REQUESTS | rate ADDRESS CONNECTIONS MS | tokens ADDRESS TOKENS GAP_US | wait ADDRESS COUNT",
    )
}

fn request(path: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    format!(
        "POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
    )
    .into_bytes()
}

fn connect(address: SocketAddr) -> Result<TcpStream> {
    let stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// Reads one answer with a length, or in chunks.
fn read_answer(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> Result<()> {
    buffer.clear();
    let mut piece = [0; 8 << 10];
    loop {
        let count = stream.read(&mut piece)?;
        if count == 0 {
            return Err(Error::other("the server closed the connection"));
        }
        buffer.extend_from_slice(&piece[..count]);
        if is_whole(buffer)? {
            return Ok(());
        }
    }
}

fn is_whole(buffer: &[u8]) -> Result<bool> {
    let Some(end) = buffer.windows(4).position(|four| four == b"\r\n\r\n") else { return Ok(false) };
    let head = std::str::from_utf8(&buffer[..end]).map_err(Error::other)?;
    if !head.starts_with("HTTP/1.1 200") {
        return Err(Error::other(format!("the server answers {}", head.lines().next().unwrap_or_default())));
    }
    let length = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>().ok())?
    });
    Ok(match length {
        Some(length) => buffer.len() >= end + 4 + length,
        None => buffer.ends_with(b"0\r\n\r\n"),
    })
}

fn latency(address: SocketAddr, count: u64) -> Result<()> {
    let mut stream = connect(address)?;
    let request = request("/api/chat", BODY);
    let mut buffer = Vec::new();
    let mut spans = Vec::new();
    for index in 0..count + count / 10 {
        let began = Instant::now();
        stream.write_all(&request)?;
        read_answer(&mut stream, &mut buffer)?;
        // The first tenth warms up.
        if index >= count / 10 {
            spans.push(began.elapsed());
        }
    }
    println!("{{\"p50_us\":{:.1},\"p99_us\":{:.1}}}", percentile(&mut spans, 50), percentile(&mut spans, 99));
    Ok(())
}

fn rate(address: SocketAddr, connections: u64, span: Duration) -> Result<()> {
    let end = Instant::now() + span;
    let threads: Vec<_> = (0..connections)
        .map(|_| {
            std::thread::spawn(move || -> Result<u64> {
                let mut stream = connect(address)?;
                let request = request("/api/chat", BODY);
                let mut buffer = Vec::new();
                let mut count = 0;
                while Instant::now() < end {
                    stream.write_all(&request)?;
                    read_answer(&mut stream, &mut buffer)?;
                    count += 1;
                }
                Ok(count)
            })
        })
        .collect();
    let mut all = 0;
    for thread in threads {
        all += thread.join().map_err(|_| Error::other("a thread broke"))??;
    }
    #[expect(clippy::cast_precision_loss, reason = "a rate")]
    let rate = all as f64 / span.as_secs_f64();
    println!("{{\"requests_per_s\":{rate:.0}}}");
    Ok(())
}

fn tokens(address: SocketAddr, count: u64, gap_us: u64) -> Result<()> {
    let mut stream = connect(address)?;
    let body = r#"{"model":"m:1b","prompt":"Why is the sky blue?"}"#;
    stream.write_all(&request(&format!("/api/generate?tokens={count}&gap_us={gap_us}"), body))?;
    let mut buffer = Vec::new();
    let mut piece = [0; 8 << 10];
    let mut spans = Vec::new();
    while !buffer.ends_with(b"\r\n0\r\n\r\n") {
        let read = stream.read(&mut piece)?;
        if read == 0 {
            return Err(Error::other("the server closed the connection"));
        }
        let now = clock_gettime(ClockId::Monotonic);
        let now_ns = now.tv_sec * 1_000_000_000 + now.tv_nsec;
        buffer.extend_from_slice(&piece[..read]);
        let text = String::from_utf8_lossy(&piece[..read]).into_owned();
        for sent in text.split("\"sent_ns\":").skip(1) {
            let digits: String = sent.chars().take_while(char::is_ascii_digit).collect();
            if let Ok(sent_ns) = digits.parse::<i64>() {
                spans.push(Duration::from_nanos(u64::try_from(now_ns - sent_ns).unwrap_or(0)));
            }
        }
    }
    println!("{{\"p50_us\":{:.1},\"p99_us\":{:.1}}}", percentile(&mut spans, 50), percentile(&mut spans, 99));
    Ok(())
}

/// Opens streams that wait, says so, and holds them until its input ends.
fn wait(address: SocketAddr, count: u64) -> Result<()> {
    let body = r#"{"model":"m:1b","messages":[{"role":"user","content":"Why is the sky blue?"}],"stream":true}"#;
    let request = request("/v1/chat/completions", body);
    let mut streams = Vec::new();
    for _ in 0..count {
        let mut stream = connect(address)?;
        stream.write_all(&request)?;
        streams.push(stream);
    }
    println!("{{\"streams\":{count}}}");
    let mut rest = Vec::new();
    std::io::stdin().read_to_end(&mut rest)?;
    Ok(())
}

fn percentile(spans: &mut [Duration], percent: usize) -> f64 {
    spans.sort_unstable();
    let index = (spans.len() * percent / 100).min(spans.len().saturating_sub(1));
    spans.get(index).map_or(0.0, |span| span.as_secs_f64() * 1e6)
}
