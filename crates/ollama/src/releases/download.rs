//! Downloading a file of a release: resumed where it stopped, tried again when the network fails, in constant memory,
//! and never longer than the release says.
//!
//! What has come in lies beside the file as `NAME.part`, with the `ETag` that it belongs to as `NAME.part.etag`; the
//! file itself is there only once it is whole and its hash right. Dropping the future stops the download and leaves
//! both for the next time.

use super::answer::{Answer, ETag};
use super::source::Source;
use reqwest::header::{ACCEPT, CONTENT_RANGE, ETAG, HeaderMap, HeaderValue, IF_RANGE, RANGE};
use reqwest::{Response, StatusCode};
use ring::digest::{Context, SHA256};
use stablehand_engine::time::Wall;
use stablehand_engine::upgrade::fault::Fault;
use stablehand_engine::upgrade::found::Unreachable;
use stablehand_engine::upgrade::order::Download;
use std::fs::Metadata;
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::time::Duration;
use tokio::fs::{self, File, OpenOptions};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// What is written, or read, in one go.
const PIECE_BYTES: usize = 256 << 10;
/// What has come in.
const PART_ENDING: &str = ".part";
/// Which state that belongs to.
const STATE_ENDING: &str = ".part.etag";
/// The longest wait that a server may ask for before it counts as a failure.
const WAIT_LONGEST: Duration = Duration::from_secs(15 * 60);

/// How long to wait before each new try. The list begins anew whenever a try has brought something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackOff {
    /// The waits, one after the other; after the last one the download fails.
    pub waits: Vec<Duration>,
}

impl Default for BackOff {
    fn default() -> Self {
        Self { waits: [1, 2, 5, 10, 30, 60, 120].map(Duration::from_secs).to_vec() }
    }
}

/// What a download tells while it works.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum News {
    /// So much is on the disk.
    Bytes {
        /// What is there.
        done_bytes: u64,
        /// Of how much.
        of_bytes: u64,
    },
    /// It stopped and is tried again after a wait.
    Waiting {
        /// Why, as a phrase.
        why: String,
        /// How long.
        wait: Duration,
    },
}

/// Called before each change of the disk, with what is done (`create`, `write`, `sync`, `rename`, `remove`) to which
/// path. Its error is taken for the disk's; a test makes the disk fail with it.
pub type Before<'a> = &'a (dyn Fn(&'static str, &Path) -> io::Result<()> + Send + Sync);

/// Waits for so long.
pub type Wait<'a> = &'a (dyn Fn(Duration) -> Pin<Box<dyn Future<Output = ()> + Send>> + Send + Sync);

/// What a download works with.
#[derive(Clone, Copy)]
pub struct Means<'a> {
    /// How long to wait before each new try.
    pub back_off: &'a BackOff,
    /// Waits, on the machine's clock.
    pub wait: Wait<'a>,
    /// Tells the time, which limits are counted from.
    pub now: &'a (dyn Fn() -> Wall + Send + Sync),
    /// Called before each change of the disk.
    pub before: Before<'a>,
}

/// Why a try ended without the file.
enum Stop {
    /// Another try may help, after this wait at least; the phrase says why.
    Again { why: String, wait: Duration },
    /// None will.
    Never(Fault),
}

impl From<Unreachable> for Stop {
    fn from(why: Unreachable) -> Self {
        match why {
            Unreachable::Offline => again("no network"),
            Unreachable::Other(phrase) => again(phrase),
            Unreachable::RateLimited { wait_seconds } => {
                let wait = Duration::from_secs(wait_seconds.unwrap_or(0));
                let why = match wait_seconds {
                    Some(seconds) => {
                        format!("too many questions came from this address; they are answered again in {seconds} s")
                    }
                    None => "too many questions came from this address".to_owned(),
                };
                if wait > WAIT_LONGEST { Self::Never(Fault::Network(why)) } else { Self::Again { why, wait } }
            }
            Unreachable::Proxy => Self::Never(Fault::Network("the proxy wants a name and a password".to_owned())),
            Unreachable::Clock => Self::Never(Fault::Network(
                "the certificate is not valid at the time that this computer's clock shows".to_owned(),
            )),
        }
    }
}

fn again(why: impl Into<String>) -> Stop {
    Stop::Again { why: why.into(), wait: Duration::ZERO }
}

fn never(why: impl Into<String>) -> Stop {
    Stop::Never(Fault::Network(why.into()))
}

impl Source {
    /// Downloads a file to its place. One that is there already, whole, is left.
    ///
    /// # Errors
    /// A [`Fault`]: `Network` when it could not be had, `WrongHash` when it is another one, or what the disk refused.
    pub async fn download(
        &self,
        wanted: &Download,
        means: Means<'_>,
        tell: &mut (dyn FnMut(News) + Send),
    ) -> Result<(), Fault> {
        if is_there(wanted, means.before).await? {
            tell(News::Bytes { done_bytes: wanted.size_bytes, of_bytes: wanted.size_bytes });
            return Ok(());
        }
        let mut waits = means.back_off.waits.iter();
        loop {
            let mut part = Part::open(wanted, means.before).await?;
            let had_bytes = part.bytes;
            let (why, asked_wait) = match self.fill(&mut part, wanted, means, tell).await {
                Ok(()) => return Ok(()),
                Err(Stop::Never(fault)) => return Err(fault),
                Err(Stop::Again { why, wait }) => (why, wait),
            };
            if part.bytes > had_bytes {
                waits = means.back_off.waits.iter();
            }
            let Some(wait) = waits.next() else { return Err(Fault::Network(why)) };
            let wait = (*wait).max(asked_wait);
            tell(News::Waiting { why, wait });
            (means.wait)(wait).await;
        }
    }

    /// One try.
    async fn fill(
        &self,
        part: &mut Part<'_>,
        wanted: &Download,
        means: Means<'_>,
        tell: &mut (dyn FnMut(News) + Send),
    ) -> Result<(), Stop> {
        let resumed = part.bytes > 0;
        if part.bytes < wanted.size_bytes {
            let mut response = self.link.get(&wanted.url, &part.headers()).await?;
            part.begin(&response, wanted, (means.now)()).await?;
            loop {
                match self.link.chunk(&mut response).await {
                    Ok(Some(chunk)) => part.take(&chunk, wanted, tell).await?,
                    Ok(None) => break,
                    Err(why) => {
                        // What has come in is kept.
                        part.write(wanted, tell).await?;
                        return Err(why.into());
                    }
                }
            }
            part.write(wanted, tell).await?;
        }
        if part.bytes < wanted.size_bytes {
            return Err(again(format!("it ended after {} of {} bytes", part.bytes, wanted.size_bytes)));
        }
        part.finish(wanted, resumed).await
    }
}

/// What has come in so far.
struct Part<'a> {
    path: PathBuf,
    state_path: PathBuf,
    file: File,
    /// What is on the disk.
    bytes: u64,
    /// What is not yet.
    piece: Vec<u8>,
    /// Of what is on the disk.
    hash: Context,
    /// The state that it belongs to; without one it is not resumed.
    state: Option<ETag>,
    before: Before<'a>,
}

impl<'a> Part<'a> {
    async fn open(wanted: &Download, before: Before<'a>) -> Result<Self, Fault> {
        let (path, state_path) = (beside(&wanted.file, PART_ENDING), beside(&wanted.file, STATE_ENDING));
        let state = match fs::read_to_string(&state_path).await {
            Ok(text) => ETag::new(&text).filter(is_strong),
            Err(_) => None,
        };
        if let Some(folder) = path.parent() {
            before("create", folder).map_err(|error| of_disk(folder, &error))?;
            fs::create_dir_all(folder).await.map_err(|error| of_disk(folder, &error))?;
        }
        before("create", &path).map_err(|error| of_disk(&path, &error))?;
        let mut options = OpenOptions::new();
        options.read(true).append(true).create(true).mode(0o600);
        let mut file = options.open(&path).await.map_err(|error| of_disk(&path, &error))?;
        let length = file.metadata().await.map_err(|error| of_disk(&path, &error))?.len();
        let mut hash = Context::new(&SHA256);
        let mut bytes = 0;
        if state.is_some() && length <= wanted.size_bytes {
            bytes = read_through(&mut file, &mut hash).await.map_err(|error| of_disk(&path, &error))?;
        }
        let mut part = Self { path, state_path, file, bytes, piece: Vec::new(), hash, state, before };
        if part.bytes != length {
            part.begin_anew(None).await?;
        }
        Ok(part)
    }

    fn headers(&self) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, HeaderValue::from_static("application/octet-stream"));
        if self.bytes == 0 {
            return headers;
        }
        let state = self.state.as_ref().map(|state| HeaderValue::from_str(state.as_str()));
        if let (Some(Ok(state)), Ok(range)) = (state, HeaderValue::from_str(&format!("bytes={}-", self.bytes))) {
            headers.insert(IF_RANGE, state);
            headers.insert(RANGE, range);
        }
        headers
    }

    /// Takes the answer's head: the rest of what is here, or the whole of something else.
    async fn begin(&mut self, response: &Response, wanted: &Download, now: Wall) -> Result<(), Stop> {
        let status = response.status();
        if status == StatusCode::PARTIAL_CONTENT {
            let range = response.headers().get(CONTENT_RANGE).and_then(|range| range.to_str().ok());
            if range.and_then(range_of) == Some((self.bytes, wanted.size_bytes)) {
                return Ok(());
            }
            self.begin_anew(None).await?;
            return Err(again("the server went on with another part of the file; it is fetched anew"));
        }
        if status == StatusCode::RANGE_NOT_SATISFIABLE && self.bytes > 0 {
            self.begin_anew(None).await?;
            return Err(again("the server can not go on where it stopped; it is fetched anew"));
        }
        if status.is_server_error() || status == StatusCode::REQUEST_TIMEOUT {
            return Err(again(format!("the server answered {}", status.as_u16())));
        }
        match Answer::read(status.as_u16(), response.headers(), now) {
            Answer::Body { .. } => {}
            Answer::Unreachable(why @ (Unreachable::RateLimited { .. } | Unreachable::Proxy)) => return Err(why.into()),
            Answer::NotModified { .. } | Answer::Missing | Answer::Unreachable(_) => {
                return Err(never(format!("the server answered {}", status.as_u16())));
            }
        }
        if let Some(length) = response.content_length().filter(|length| *length != wanted.size_bytes) {
            return Err(never(format!("the file has {length} bytes, the release says {}", wanted.size_bytes)));
        }
        let state = response.headers().get(ETAG).and_then(|state| state.to_str().ok());
        self.begin_anew(state.and_then(ETag::new).filter(is_strong)).await?;
        Ok(())
    }

    /// Throws away what is here, and writes down what state the rest will have.
    async fn begin_anew(&mut self, state: Option<ETag>) -> Result<(), Fault> {
        self.change("remove", &self.state_path)?;
        // Before the bytes: bytes of one state must never stand beside the name of another.
        removed(&self.state_path).await?;
        self.change("write", &self.path)?;
        self.file.set_len(0).await.map_err(|error| of_disk(&self.path, &error))?;
        self.bytes = 0;
        self.piece.clear();
        self.hash = Context::new(&SHA256);
        if let Some(state) = &state {
            self.change("write", &self.state_path)?;
            let written = fs::write(&self.state_path, state.as_str()).await;
            written.map_err(|error| of_disk(&self.state_path, &error))?;
        }
        self.state = state;
        Ok(())
    }

    async fn take(&mut self, chunk: &[u8], wanted: &Download, tell: &mut (dyn FnMut(News) + Send)) -> Result<(), Stop> {
        if self.bytes + (self.piece.len() + chunk.len()) as u64 > wanted.size_bytes {
            self.begin_anew(None).await?;
            return Err(never(format!(
                "the file is longer than the {} bytes that the release says",
                wanted.size_bytes
            )));
        }
        self.piece.extend_from_slice(chunk);
        if self.piece.len() >= PIECE_BYTES {
            self.write(wanted, tell).await?;
        }
        Ok(())
    }

    /// Brings to the disk what has come in.
    async fn write(&mut self, wanted: &Download, tell: &mut (dyn FnMut(News) + Send)) -> Result<(), Fault> {
        if self.piece.is_empty() {
            return Ok(());
        }
        self.change("write", &self.path)?;
        let written = async {
            self.file.write_all(&self.piece).await?;
            self.file.flush().await
        };
        written.await.map_err(|error| of_disk(&self.path, &error))?;
        self.hash.update(&self.piece);
        self.bytes += self.piece.len() as u64;
        self.piece.clear();
        tell(News::Bytes { done_bytes: self.bytes, of_bytes: wanted.size_bytes });
        Ok(())
    }

    /// Puts the whole file in its place once it is the right one.
    async fn finish(&mut self, wanted: &Download, resumed: bool) -> Result<(), Stop> {
        if hex(self.hash.clone()) != wanted.sha256 {
            self.begin_anew(None).await?;
            self.change("remove", &self.path)?;
            removed(&self.path).await?;
            return Err(if resumed {
                again("what was here before does not belong to the rest; it is fetched anew")
            } else {
                Stop::Never(Fault::WrongHash)
            });
        }
        self.change("sync", &self.path)?;
        self.file.sync_all().await.map_err(|error| of_disk(&self.path, &error))?;
        self.change("rename", &wanted.file)?;
        fs::rename(&self.path, &wanted.file).await.map_err(|error| of_disk(&wanted.file, &error))?;
        Ok(settle(wanted, self.before).await?)
    }

    fn change(&self, what: &'static str, path: &Path) -> Result<(), Fault> {
        (self.before)(what, path).map_err(|error| of_disk(path, &error))
    }
}

impl From<Fault> for Stop {
    fn from(fault: Fault) -> Self {
        Self::Never(fault)
    }
}

/// What comes after the file has its name.
async fn settle(wanted: &Download, before: Before<'_>) -> Result<(), Fault> {
    let state_path = beside(&wanted.file, STATE_ENDING);
    before("remove", &state_path).map_err(|error| of_disk(&state_path, &error))?;
    removed(&state_path).await?;
    let Some(folder) = wanted.file.parent() else { return Ok(()) };
    before("sync", folder).map_err(|error| of_disk(folder, &error))?;
    let synced = async { File::open(folder).await?.sync_all().await };
    match synced.await {
        // Not every file system lets a folder be flushed, which is then not ours to fail for.
        Err(error) if !matches!(error.kind(), ErrorKind::Unsupported | ErrorKind::InvalidInput) => {
            Err(of_disk(folder, &error))
        }
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Whether the file is there, whole and the right one. Another one is removed.
async fn is_there(wanted: &Download, before: Before<'_>) -> Result<bool, Fault> {
    match fs::symlink_metadata(&wanted.file).await {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(of_disk(&wanted.file, &error)),
        Ok(about) if !about.is_file() => return Err(Fault::Taken(wanted.file.clone())),
        Ok(_) => {}
    }
    match check(wanted).await {
        // It got its name when it was whole; what came after that may have been cut off.
        Ok(()) => settle(wanted, before).await.map(|()| true),
        Err(Fault::WrongHash) => {
            before("remove", &wanted.file).map_err(|error| of_disk(&wanted.file, &error))?;
            removed(&wanted.file).await?;
            Ok(false)
        }
        Err(fault) => Err(fault),
    }
}

/// Reads a downloaded file once more, and compares it with the release's hash.
///
/// # Errors
/// [`Fault::WrongHash`] when it is another file, [`Fault::Replaced`] when it changed meanwhile, or what the disk refused.
pub async fn check(wanted: &Download) -> Result<(), Fault> {
    let failed = |error: io::Error| of_disk(&wanted.file, &error);
    let mut file = File::open(&wanted.file).await.map_err(failed)?;
    let began = file.metadata().await.map_err(failed)?;
    if began.len() != wanted.size_bytes {
        return Err(Fault::WrongHash);
    }
    let mut hash = Context::new(&SHA256);
    read_through(&mut file, &mut hash).await.map_err(failed)?;
    let ended = file.metadata().await.map_err(failed)?;
    let there = fs::metadata(&wanted.file).await.map_err(failed)?;
    if mark(&began) != mark(&ended) || mark(&began) != mark(&there) {
        return Err(Fault::Replaced(wanted.file.clone()));
    }
    if hex(hash) == wanted.sha256 { Ok(()) } else { Err(Fault::WrongHash) }
}

/// Which file it is, in which state.
fn mark(about: &Metadata) -> (u64, u64, u64, i64, i64) {
    (about.dev(), about.ino(), about.size(), about.mtime(), about.mtime_nsec())
}

/// Reads to the end, and says how much there was.
async fn read_through(file: &mut File, hash: &mut Context) -> io::Result<u64> {
    let mut piece = vec![0; PIECE_BYTES];
    let mut bytes = 0;
    loop {
        let read = file.read(&mut piece).await?;
        if read == 0 {
            return Ok(bytes);
        }
        hash.update(&piece[..read]);
        bytes += read as u64;
    }
}

fn hex(hash: Context) -> String {
    hash.finish().as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Whether the same state means the same bytes (RFC 9110 §8.8.1); a weak one is no ground to go on from.
fn is_strong(state: &ETag) -> bool {
    state.as_str().starts_with('"')
}

/// First byte and whole length of `bytes 10-99/100`.
fn range_of(value: &str) -> Option<(u64, u64)> {
    let (range, whole) = value.strip_prefix("bytes ")?.split_once('/')?;
    let (first, last) = range.split_once('-')?;
    let (first, last, whole) =
        (crate::parse::unsigned(first)?, crate::parse::unsigned(last)?, crate::parse::unsigned(whole)?);
    (last.checked_add(1)? == whole).then_some((first, whole))
}

async fn removed(path: &Path) -> Result<(), Fault> {
    match fs::remove_file(path).await {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(error) => Err(of_disk(path, &error)),
    }
}

fn beside(file: &Path, ending: &str) -> PathBuf {
    let mut name = file.file_name().unwrap_or_default().to_owned();
    name.push(ending);
    file.with_file_name(name)
}

/// What a refusal of the disk means. The folder is one of ours, so that `EPERM` is no matter of App Management here.
fn of_disk(path: &Path, error: &io::Error) -> Fault {
    let kind = error.kind();
    if matches!(kind, ErrorKind::StorageFull | ErrorKind::QuotaExceeded) {
        Fault::NoSpace(path.to_path_buf())
    } else if kind == ErrorKind::PermissionDenied {
        Fault::Denied(path.to_path_buf())
    } else {
        Fault::File { path: path.to_path_buf(), reason: error.to_string() }
    }
}

#[cfg(test)]
mod tests;
