//! One line a request: who asked what, how long it waited and was answered. Never what was asked or answered.
//!
//! Lines are written by a thread of their own, so that a slow disk delays no request, and to two files of bounded size.

use crate::callers::Caller;
use http::{Method, StatusCode};
use jiff::Timestamp;
use serde::Serialize;
use stablehand_platform::machine::Machine;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, Instant};

/// The file is put aside at this length.
const FILE_BYTES: u64 = 8 << 20;
/// As many lines wait for the disk at most; more are lost, and the loss is told.
const LINES_AT_MOST: usize = 4_096;
/// A longer path is cut off.
const PATH_BYTES: usize = 128;

/// The way to the log. Cheap to clone.
#[derive(Clone, Debug)]
pub struct AccessLog {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    lines: SyncSender<Line>,
    wanted: AtomicBool,
}

/// A request, noted when this is dropped.
#[derive(Debug)]
pub struct Entry {
    noted: Option<Box<(AccessLog, Instant, Line)>>,
}

#[derive(Debug, Serialize)]
struct Line {
    at: Timestamp,
    method: String,
    path: String,
    status: u16,
    #[serde(skip_serializing_if = "Option::is_none")]
    client: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    lane: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    model: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    waited_ms: Option<u64>,
    took_ms: u64,
    bytes: u64,
    /// The answer began while the request still waited.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    began_early: bool,
    /// The answer came to its end.
    complete: bool,
}

impl AccessLog {
    /// Opens the log in the machine's folder of logs.
    pub fn start(machine: &Machine, folder: &Path) -> Self {
        let (lines, written) = sync_channel(LINES_AT_MOST);
        let path = folder.join("gateway-access.log");
        if let Err(error) = machine.allow_write(&path) {
            tracing::warn!(%error, "requests are not noted");
        } else {
            // It ends with the last sender.
            std::thread::spawn(move || write(&path, &written));
        }
        Self { inner: Arc::new(Inner { lines, wanted: AtomicBool::new(false) }) }
    }

    /// Whether requests are noted from now on.
    pub fn want(&self, wanted: bool) {
        self.inner.wanted.store(wanted, Ordering::Relaxed);
    }

    /// A request has come.
    pub fn entry(&self, method: &Method, path: &str) -> Entry {
        if !self.inner.wanted.load(Ordering::Relaxed) {
            return Entry { noted: None };
        }
        let end = path.char_indices().map(|(at, _)| at).take_while(|at| *at <= PATH_BYTES).last().unwrap_or(0);
        let path = if path.len() > PATH_BYTES { &path[..end] } else { path };
        let line = Line {
            at: Timestamp::now(),
            method: method.as_str().to_owned(),
            path: path.to_owned(),
            status: 0,
            client: None,
            lane: None,
            model: None,
            waited_ms: None,
            took_ms: 0,
            bytes: 0,
            began_early: false,
            complete: false,
        };
        Entry { noted: Some(Box::new((self.clone(), Instant::now(), line))) }
    }
}

impl Entry {
    fn line(&mut self) -> Option<&mut Line> {
        self.noted.as_mut().map(|noted| &mut noted.2)
    }

    /// Its status.
    pub fn status(&mut self, status: StatusCode) {
        if let Some(line) = self.line() {
            line.status = status.as_u16();
        }
    }

    /// Who asked.
    pub fn caller(&mut self, caller: &Caller) {
        if let Some(line) = self.line() {
            line.client = Some(caller.client.to_string());
            line.lane = Some(caller.lane.word());
        }
    }

    /// For which model.
    pub fn model(&mut self, model: &str) {
        if let Some(line) = self.line() {
            line.model = Some(model.to_owned());
        }
    }

    /// How long it waited for its turn.
    pub fn waited(&mut self, waited: Duration) {
        if let Some(line) = self.line() {
            line.waited_ms = Some(milliseconds(waited));
        }
    }

    /// Its answer began while it waited.
    pub fn began_early(&mut self) {
        if let Some(line) = self.line() {
            line.began_early = true;
        }
    }

    /// A piece of the answer has gone.
    pub fn sent(&mut self, bytes: usize) {
        if let Some(line) = self.line() {
            line.bytes += bytes as u64;
        }
    }

    /// The answer has come to its end.
    pub fn complete(&mut self) {
        if let Some(line) = self.line() {
            line.complete = true;
        }
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        if let Some(noted) = self.noted.take() {
            let (log, began, mut line) = *noted;
            line.took_ms = milliseconds(began.elapsed());
            // A full channel means a disk that does not keep up; requests go before lines.
            let _ = log.inner.lines.try_send(line);
        }
    }
}

fn milliseconds(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

fn write(path: &Path, lines: &Receiver<Line>) {
    let mut text = Vec::new();
    while let Ok(first) = lines.recv() {
        text.clear();
        for line in std::iter::once(first).chain(lines.try_iter().take(LINES_AT_MOST)) {
            if serde_json::to_writer(&mut text, &line).is_ok() {
                text.push(b'\n');
            }
        }
        if let Err(error) = append(path, &text) {
            tracing::debug!(%error, path = %path.display(), "requests were not noted");
        }
    }
}

fn append(path: &Path, text: &[u8]) -> io::Result<()> {
    let mut file = open(path)?;
    if file.metadata()?.len() >= FILE_BYTES {
        std::fs::rename(path, older(path))?;
        file = open(path)?;
    }
    file.write_all(text)
}

fn open(path: &Path) -> io::Result<File> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    OpenOptions::new().append(true).create(true).mode(0o600).open(path)
}

fn older(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".1");
    PathBuf::from(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use stablehand_engine::admission::Lane;

    #[test]
    fn a_line_says_who_and_how_long_and_is_one_line() {
        let (lines, written) = sync_channel(1);
        let log = AccessLog { inner: Arc::new(Inner { lines, wanted: AtomicBool::new(true) }) };
        let mut entry = log.entry(&Method::POST, &format!("/api/{}", "ä".repeat(200)));
        entry.status(StatusCode::OK);
        entry.model("m\n:1b");
        let lane = Lane::Batch;
        entry.caller(&Caller { client: Arc::from("chat"), lane, patience: None, keep_alive: None });
        entry.sent(5);
        drop(entry);
        let line = serde_json::to_string(&written.recv().unwrap()).unwrap();
        for part in
            [r#""status":200"#, r#""client":"chat""#, r#""lane":"batch""#, r#""bytes":5"#, r#""complete":false"#]
        {
            assert!(line.contains(part), "{line}");
        }
        assert!(!line.contains('\n') && line.len() < 500, "{line}");
        log.want(false);
        drop(log.entry(&Method::GET, "/"));
        assert!(written.try_recv().is_err());
    }

    #[test]
    fn the_file_is_put_aside_when_it_is_long() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log/access.log");
        append(&path, b"first\n").unwrap();
        OpenOptions::new().write(true).open(&path).unwrap().set_len(FILE_BYTES).unwrap();
        append(&path, b"second\n").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"second\n");
        assert_eq!(std::fs::metadata(older(&path)).unwrap().len(), FILE_BYTES);
    }
}
