//! One line a request: who asked what, how long it waited and was answered. Never what was asked or answered.
//!
//! Lines are gathered and written now and then, beside the requests, so that neither they nor a slow disk delay any; and
//! to two files of bounded size.

use crate::callers::Caller;
use crate::route::Endpoint;
use http::{Method, StatusCode};
use jiff::Timestamp;
use serde::Serialize;
use stablehand_platform::machine::Machine;
use std::borrow::Cow;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};
use tokio::sync::Notify;

/// The file is put aside at this length.
const FILE_BYTES: u64 = 8 << 20;
/// As many lines wait for the disk at most; requests go before lines, so more are lost.
const LINES_AT_MOST: usize = 16_384;
/// Memory for so many is kept between two writings.
const LINES_KEPT: usize = 512;
/// How long lines are gathered.
const GATHER: Duration = Duration::from_millis(250);
/// A longer path is cut off.
const PATH_BYTES: usize = 128;

/// The way to the log. Cheap to clone.
#[derive(Clone, Debug)]
pub struct AccessLog {
    inner: Arc<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    path: PathBuf,
    lines: Mutex<Vec<Line>>,
    /// The memory of lines that were written, for the next ones: growing it while requests are answered costs them.
    written: Mutex<Vec<Line>>,
    /// The first line after a while has come.
    first: Notify,
    wanted: AtomicBool,
}

/// A request, noted when this is dropped.
#[derive(Debug)]
pub struct Entry {
    noted: Option<Box<(AccessLog, Instant, Line)>>,
}

#[derive(Debug, Serialize)]
struct Line {
    #[serde(serialize_with = "as_timestamp")]
    at: SystemTime,
    #[serde(serialize_with = "as_text")]
    method: Method,
    path: Cow<'static, str>,
    status: u16,
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "as_name")]
    client: Option<Arc<str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    lane: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "as_name")]
    model: Option<Arc<str>>,
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
        let path = folder.join("gateway-access.log");
        let refused = machine.allow_write(&path);
        let log = Self { inner: Arc::new(Inner { path, ..Inner::default() }) };
        match refused {
            Ok(()) => {
                let gathering = log.clone();
                tokio::spawn(async move {
                    loop {
                        gathering.inner.first.notified().await;
                        tokio::time::sleep(GATHER).await;
                        gathering.flush().await;
                    }
                });
            }
            Err(error) => tracing::warn!(%error, "requests are not noted"),
        }
        log
    }

    /// Writes down what was gathered.
    pub async fn flush(&self) {
        let mut lines = {
            let mut lines = self.inner.lines.lock().unwrap_or_else(PoisonError::into_inner);
            if lines.is_empty() {
                return;
            }
            let fresh = std::mem::take(&mut *self.inner.written.lock().unwrap_or_else(PoisonError::into_inner));
            std::mem::replace(&mut *lines, fresh)
        };
        let inner = self.inner.clone();
        let written = tokio::task::spawn_blocking(move || {
            let written = append(&inner.path, &text_of(&lines));
            lines.clear();
            lines.shrink_to(LINES_KEPT);
            *inner.written.lock().unwrap_or_else(PoisonError::into_inner) = lines;
            written
        })
        .await;
        if let Ok(Err(error)) = written {
            tracing::debug!(%error, "requests were not noted");
        }
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
        let line = Line {
            at: SystemTime::now(),
            method: method.clone(),
            path: path_of(path),
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
            line.client = Some(caller.client.clone());
            line.lane = Some(caller.lane.word());
        }
    }

    /// For which model.
    pub fn model(&mut self, model: &Arc<str>) {
        if let Some(line) = self.line() {
            line.model = Some(model.clone());
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
            let mut lines = log.inner.lines.lock().unwrap_or_else(PoisonError::into_inner);
            if lines.len() < LINES_AT_MOST {
                lines.push(line);
            }
            if lines.len() == 1 {
                log.inner.first.notify_one();
            }
        }
    }
}

fn path_of(path: &str) -> Cow<'static, str> {
    match Endpoint::at(path) {
        Some(endpoint) => Cow::Borrowed(endpoint.path),
        None => Cow::Owned(path[..path.floor_char_boundary(PATH_BYTES)].to_owned()),
    }
}

fn as_timestamp<S: serde::Serializer>(at: &SystemTime, into: S) -> Result<S::Ok, S::Error> {
    Timestamp::try_from(*at).unwrap_or_default().serialize(into)
}

fn as_text<S: serde::Serializer>(method: &Method, into: S) -> Result<S::Ok, S::Error> {
    into.serialize_str(method.as_str())
}

fn as_name<S: serde::Serializer>(name: &Option<Arc<str>>, into: S) -> Result<S::Ok, S::Error> {
    name.as_deref().serialize(into)
}

fn milliseconds(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

fn text_of(lines: &[Line]) -> Vec<u8> {
    let mut text = Vec::new();
    for line in lines {
        if serde_json::to_writer(&mut text, line).is_ok() {
            text.push(b'\n');
        }
    }
    text
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
        let log = AccessLog { inner: Arc::default() };
        log.want(true);
        let mut entry = log.entry(&Method::POST, &format!("/api/{}", "ä".repeat(200)));
        entry.status(StatusCode::OK);
        entry.model(&Arc::from("m\n:1b"));
        let lane = Lane::Batch;
        entry.caller(&Caller { client: Arc::from("chat"), lane, patience: None, keep_alive: None });
        entry.sent(5);
        drop(entry);
        let lines = std::mem::take(&mut *log.inner.lines.lock().unwrap());
        let line = String::from_utf8(text_of(&lines)).unwrap();
        let line = line.strip_suffix('\n').unwrap();
        for part in
            [r#""status":200"#, r#""client":"chat""#, r#""lane":"batch""#, r#""bytes":5"#, r#""complete":false"#]
        {
            assert!(line.contains(part), "{line}");
        }
        assert!(!line.contains('\n') && line.len() < 500, "{line}");
        log.want(false);
        drop(log.entry(&Method::GET, "/"));
        assert!(log.inner.lines.lock().unwrap().is_empty());
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
