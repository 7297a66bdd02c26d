//! How commands talk to the simulated launchd or systemd: one line of JSON
//! each way over a loopback connection. A world's path may be too long for a
//! socket file, so the port is written into `.sim/`.

use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use crate::world::{World, write_whole};

/// What a command prints and how it ends.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Reply {
    /// Exit code.
    pub code: u8,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
}

impl Reply {
    /// Success without a word.
    pub fn quiet() -> Self {
        Self::default()
    }

    /// Success with output.
    pub fn said(stdout: impl Into<String>) -> Self {
        Self { stdout: stdout.into(), ..Self::default() }
    }

    /// Failure with a line on standard error.
    pub fn failed(code: u8, stderr: impl Into<String>) -> Self {
        let mut stderr = stderr.into();
        if !stderr.is_empty() && !stderr.ends_with('\n') {
            stderr.push('\n');
        }
        Self { code, stdout: String::new(), stderr }
    }

    /// Prints the reply and gives the exit code. A reader that has left (`| head`) misses the rest, and that is all.
    pub fn deliver(self) -> std::process::ExitCode {
        let _ = std::io::stdout().write_all(self.stdout.as_bytes());
        let _ = std::io::stdout().flush();
        let _ = std::io::stderr().write_all(self.stderr.as_bytes());
        std::process::ExitCode::from(self.code)
    }
}

/// Asks the service whose port is kept in `.sim/<name>.port`.
pub fn ask<Request: Serialize>(world: &World, name: &str, request: &Request) -> Result<Reply> {
    let port_file = world.state(&format!("{name}.port"));
    let port: u16 = std::fs::read_to_string(&port_file)
        .with_context(|| format!("{name} of this world is not running"))?
        .trim()
        .parse()
        .with_context(|| format!("{} holds no port", port_file.display()))?;
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))
        .with_context(|| format!("{name} of this world is not running"))?;
    stream.set_read_timeout(Some(Duration::from_secs(120)))?;
    let mut line = serde_json::to_vec(request)?;
    line.push(b'\n');
    stream.write_all(&line)?;
    let mut answer = String::new();
    BufReader::new(stream).read_line(&mut answer)?;
    serde_json::from_str(&answer).with_context(|| format!("{name} gave no answer"))
}

/// Binds the port of a service and writes it where commands find it.
pub async fn listen(world: &World, name: &str) -> Result<TcpListener> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    let port = listener.local_addr()?.port();
    write_whole(&world.state(&format!("{name}.port")), port.to_string().as_bytes())?;
    Ok(listener)
}

/// Answers requests for ever, each in its own local task.
pub async fn answer<Request, Handler, Answer>(listener: TcpListener, handler: Handler)
where
    Request: DeserializeOwned + 'static,
    Handler: Fn(Request) -> Answer + Clone + 'static,
    Answer: Future<Output = Reply> + 'static,
{
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            continue;
        };
        let handler = handler.clone();
        tokio::task::spawn_local(async move {
            let (reading, mut writing) = stream.into_split();
            let mut line = String::new();
            if tokio::io::BufReader::new(reading).read_line(&mut line).await.is_err() {
                return;
            }
            let reply = match serde_json::from_str::<Request>(&line) {
                Ok(request) => handler(request).await,
                Err(error) => Reply::failed(64, format!("request not understood: {error}")),
            };
            let mut bytes = serde_json::to_vec(&reply).unwrap_or_default();
            bytes.push(b'\n');
            let _ = writing.write_all(&bytes).await;
        });
    }
}
