//! A log file that grows: its complete lines, whatever happens to the file.
//!
//! The follower is polled and never waits by itself. It holds the open file, so that a file that is renamed away is
//! read to its end before the new one of that name is begun. Memory is one block and one line, whatever is written.

use std::fs::{File, Metadata};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Where to begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// With the first line.
    Beginning,
    /// With the first line that begins after this moment.
    End,
}

/// What a poll comes upon, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Piece<'a> {
    /// A complete line, without its break.
    Line {
        /// Its bytes, which need not be UTF-8.
        bytes: &'a [u8],
        /// How many further bytes of it were dropped because it is longer than is kept.
        cut_bytes: u64,
    },
    /// The file was renamed away; lines of the new one follow. Files that came and went between two polls are missed.
    Rotated,
    /// The file became shorter; it is read from its beginning.
    Truncated,
}

/// What a poll ended with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Polled {
    /// Everything written so far was read.
    CaughtUp,
    /// The budget was used up; there may be more.
    More,
    /// There is no file of that name (yet).
    Missing,
}

const BLOCK_BYTES: usize = 64 << 10;

/// Follows one path.
#[derive(Debug)]
pub struct Follower {
    path: PathBuf,
    most_line_bytes: usize,
    open: Option<Open>,
    start: Start,
    block: Vec<u8>,
}

#[derive(Debug)]
struct Open {
    file: File,
    identity: (u64, u64),
    read_bytes: u64,
    line: Vec<u8>,
    cut_bytes: u64,
    /// The first line began before the follower did and is dropped.
    inside_a_line: bool,
}

impl Follower {
    /// Follows `path`, which need not exist yet. Of a longer line the first `most_line_bytes` are kept.
    pub fn new(path: impl Into<PathBuf>, start: Start, most_line_bytes: usize) -> Self {
        Self { path: path.into(), most_line_bytes, open: None, start, block: vec![0; BLOCK_BYTES] }
    }

    /// The path that is followed.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Hands on what was written since the last poll, but reads no more than about `budget_bytes`.
    ///
    /// # Errors
    /// What opening or reading the file said; a missing file is no error. The next poll goes on where this one ended.
    pub fn poll(&mut self, budget_bytes: u64, mut hand_on: impl FnMut(Piece<'_>)) -> io::Result<Polled> {
        let mut budget = budget_bytes;
        loop {
            if self.open.is_none() {
                match Open::new(&self.path, self.start) {
                    Ok(open) => self.open = Some(open),
                    Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Polled::Missing),
                    Err(error) => return Err(error),
                }
                // A file that appears later is read from its beginning: all of it is new.
                self.start = Start::Beginning;
            }
            let Some(open) = &mut self.open else { return Ok(Polled::Missing) };
            if open.file.metadata()?.len() < open.read_bytes {
                open.rewind()?;
                hand_on(Piece::Truncated);
            }
            // Looked at before the rest is read, so that nothing written before the rename is lost.
            let replaced = match std::fs::metadata(&self.path) {
                Ok(now) => Some(identity(&now) != open.identity),
                Err(error) if error.kind() == io::ErrorKind::NotFound => None,
                Err(error) => return Err(error),
            };
            loop {
                let read = open.file.read(&mut self.block)?;
                if read == 0 {
                    break;
                }
                open.read_bytes += read as u64;
                open.take(&self.block[..read], self.most_line_bytes, &mut hand_on);
                budget = budget.saturating_sub(read as u64);
                if budget == 0 {
                    return Ok(Polled::More);
                }
            }
            match replaced {
                Some(false) => return Ok(Polled::CaughtUp),
                None => return Ok(Polled::Missing),
                Some(true) => {
                    open.finish(&mut hand_on);
                    self.open = None;
                    hand_on(Piece::Rotated);
                }
            }
        }
    }
}

impl Open {
    fn new(path: &Path, start: Start) -> io::Result<Self> {
        let mut file = File::open(path)?;
        let metadata = file.metadata()?;
        let (read_bytes, inside_a_line) = match start {
            Start::Beginning => (0, false),
            Start::End if metadata.len() == 0 => (0, false),
            Start::End => {
                let end = metadata.len();
                let mut last = [0];
                file.seek(SeekFrom::Start(end - 1))?;
                let read = file.read(&mut last)?;
                (end - 1 + read as u64, read == 1 && last != *b"\n")
            }
        };
        Ok(Self { file, identity: identity(&metadata), read_bytes, line: Vec::new(), cut_bytes: 0, inside_a_line })
    }

    fn rewind(&mut self) -> io::Result<()> {
        self.file.seek(SeekFrom::Start(0))?;
        self.read_bytes = 0;
        self.line.clear();
        self.cut_bytes = 0;
        self.inside_a_line = false;
        Ok(())
    }

    fn take(&mut self, mut bytes: &[u8], most_line_bytes: usize, hand_on: &mut impl FnMut(Piece<'_>)) {
        while let Some(end) = memchr::memchr(b'\n', bytes) {
            let (line, rest) = (&bytes[..end], &bytes[end + 1..]);
            bytes = rest;
            if self.inside_a_line {
                self.inside_a_line = false;
            } else if self.line.is_empty() && self.cut_bytes == 0 && line.len() <= most_line_bytes {
                hand_on(Piece::Line { bytes: without_return(line), cut_bytes: 0 });
            } else {
                self.keep(line, most_line_bytes);
                self.finish(hand_on);
            }
        }
        if !self.inside_a_line {
            self.keep(bytes, most_line_bytes);
        }
    }

    fn keep(&mut self, bytes: &[u8], most_line_bytes: usize) {
        let kept = bytes.len().min(most_line_bytes.saturating_sub(self.line.len()));
        self.line.extend_from_slice(&bytes[..kept]);
        self.cut_bytes += (bytes.len() - kept) as u64;
    }

    fn finish(&mut self, hand_on: &mut impl FnMut(Piece<'_>)) {
        if !self.line.is_empty() || self.cut_bytes > 0 {
            hand_on(Piece::Line { bytes: without_return(&self.line), cut_bytes: self.cut_bytes });
        }
        self.line.clear();
        self.cut_bytes = 0;
    }
}

fn without_return(line: &[u8]) -> &[u8] {
    line.strip_suffix(b"\r").unwrap_or(line)
}

fn identity(metadata: &Metadata) -> (u64, u64) {
    (metadata.dev(), metadata.ino())
}
