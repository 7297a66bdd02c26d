//! The last `server config` line of a log file, read from its end.
//!
//! A log has no size limit and is rotated only when the app starts; the line may be a gigabyte back or a kilobyte. The
//! file is searched backwards in blocks, so that time goes with the distance from the end and memory with nothing.

use super::{ConfigLine, Parser};
use memchr::memmem;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;

/// How far and in what pieces a file is searched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Size of the blocks read.
    pub block_bytes: usize,
    /// The most that is read of the file, from its end.
    pub scan_bytes: u64,
    /// The longest line that is looked at; a config line of the largest possible environment fits.
    pub line_bytes: usize,
}

impl Default for Limits {
    /// The whole file in blocks of 64 KiB, lines up to 512 KiB.
    fn default() -> Self {
        Self { block_bytes: 64 << 10, scan_bytes: u64::MAX, line_bytes: 512 << 10 }
    }
}

/// What a search came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Search {
    /// The last config line.
    Found(ConfigLine),
    /// There is none in what was read.
    Absent {
        /// How much was read.
        scanned_bytes: u64,
        /// Whether that was the whole file.
        whole_file: bool,
    },
}

const MARK: &[u8] = b"server config";

/// Searches a file for its last config line.
///
/// A line that only speaks of one (in a quoted prompt, or cut off while it is being written) is passed over.
///
/// # Errors
/// What opening or reading the file said.
pub fn last_config_line(path: &Path, limits: Limits, parser: &Parser) -> io::Result<Search> {
    let mut file = File::open(path)?;
    let size = file.seek(SeekFrom::End(0))?;
    last_config_line_in(&mut file, size, limits, parser)
}

/// The same for anything that can be read at any place. `size` is how much of it is looked at.
///
/// # Errors
/// What reading said.
pub fn last_config_line_in(
    file: &mut (impl Read + Seek),
    size: u64,
    limits: Limits,
    parser: &Parser,
) -> io::Result<Search> {
    let block_bytes = limits.block_bytes.max(MARK.len() * 2);
    let finder = memmem::FinderRev::new(MARK);
    let floor = size.saturating_sub(limits.scan_bytes);
    let mut block = Vec::with_capacity(block_bytes + MARK.len());
    let mut ends = size;
    while ends > floor {
        let begins = ends.saturating_sub(block_bytes as u64).max(floor);
        // A mark that lies across two blocks begins in this one.
        let overlap = (MARK.len() as u64 - 1).min(size - ends);
        read_at(file, begins, ends - begins + overlap, &mut block)?;
        let mut within = block.len();
        while let Some(at) = finder.rfind(&block[..within]) {
            let place = begins + at as u64;
            if let Some(line) = line_around(file, place, size, limits.line_bytes)?
                && let Some(config) = parser.config_line(&line)
            {
                return Ok(Search::Found(config));
            }
            within = at + MARK.len() - 1;
        }
        ends = begins;
    }
    Ok(Search::Absent { scanned_bytes: size - floor, whole_file: floor == 0 })
}

/// The line that holds a place; `None` when it is longer than is looked at.
fn line_around(file: &mut (impl Read + Seek), place: u64, size: u64, line_bytes: usize) -> io::Result<Option<Vec<u8>>> {
    let line_bytes = line_bytes as u64;
    let mut window = Vec::new();
    let from = place.saturating_sub(line_bytes);
    read_at(file, from, place - from, &mut window)?;
    let begins = match memchr::memrchr(b'\n', &window) {
        Some(at) => from + at as u64 + 1,
        None if from == 0 => 0,
        None => return Ok(None),
    };
    read_at(file, begins, line_bytes.min(size - begins), &mut window)?;
    Ok(match memchr::memchr(b'\n', &window) {
        Some(at) => {
            window.truncate(at);
            Some(window)
        }
        None if begins + window.len() as u64 >= size => Some(window),
        None => None,
    })
}

/// Reads as much of a range as is there: a file may be cut while it is read.
fn read_at(file: &mut (impl Read + Seek), begins: u64, length: u64, into: &mut Vec<u8>) -> io::Result<()> {
    into.clear();
    file.seek(SeekFrom::Start(begins))?;
    file.by_ref().take(length).read_to_end(into)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::tz::TimeZone;
    use stablehand_engine::setting::Name;
    use std::io::Cursor;

    fn search(bytes: &[u8], limits: Limits) -> Search {
        let size = bytes.len() as u64;
        last_config_line_in(&mut Cursor::new(bytes), size, limits, &Parser::in_zone(TimeZone::UTC)).unwrap()
    }

    fn parallel(search: &Search) -> Option<&str> {
        match search {
            Search::Found(line) => Some(&line.values[&Name::try_new("OLLAMA_NUM_PARALLEL").unwrap()]),
            Search::Absent { .. } => None,
        }
    }

    fn config(parallel: u32) -> String {
        format!(
            "time=2026-08-21T18:48:22.123Z level=INFO source=routes.go:1951 msg=\"server config\" \
             env=\"map[OLLAMA_MAX_QUEUE:512 OLLAMA_NUM_PARALLEL:{parallel}]\"\n"
        )
    }

    fn limits(block_bytes: usize) -> Limits {
        Limits { block_bytes, ..Limits::default() }
    }

    #[test]
    fn the_last_line_wins_wherever_blocks_begin() {
        let log = format!("first\n{}some\nlines\n{}[GIN] more\nand more", config(1), config(8));
        for block_bytes in [26, 27, 31, 64, 100, 1 << 16] {
            assert_eq!(parallel(&search(log.as_bytes(), limits(block_bytes))), Some("8"), "{block_bytes}");
        }
    }

    #[test]
    fn a_line_without_its_break_counts_and_a_cut_one_does_not() {
        let whole = format!("{}{}", config(1), config(8).trim_end());
        assert_eq!(parallel(&search(whole.as_bytes(), limits(64))), Some("8"));
        let cut = &whole[..whole.len() - 4];
        assert_eq!(parallel(&search(cut.as_bytes(), limits(64))), Some("1"));
    }

    #[test]
    fn a_line_that_only_speaks_of_it_is_passed_over() {
        let log =
            format!("{}time=2026-08-21T18:50:00Z level=INFO msg=\"what is server config\"\nserver config\n", config(3));
        assert_eq!(parallel(&search(log.as_bytes(), Limits::default())), Some("3"));
    }

    #[test]
    fn ten_megabytes_in_one_line_and_broken_text_do_not_stop_it() {
        let mut log = config(5).into_bytes();
        log.extend(std::iter::repeat_n(b'x', 5 << 20));
        log.extend_from_slice(b" server config ");
        log.extend(std::iter::repeat_n(0xff, 5 << 20));
        log.extend_from_slice(b"\n\xff\xfe\n");
        assert_eq!(parallel(&search(&log, Limits::default())), Some("5"));
    }

    #[test]
    fn the_search_ends_where_it_is_told_to() {
        let log = format!("{}{}", config(2), "slot line\n".repeat(100));
        let near = Limits { scan_bytes: 500, ..Limits::default() };
        assert_eq!(search(log.as_bytes(), near), Search::Absent { scanned_bytes: 500, whole_file: false });
        assert_eq!(search(b"", near), Search::Absent { scanned_bytes: 0, whole_file: true });
        assert_eq!(search(b"\n", near), Search::Absent { scanned_bytes: 1, whole_file: true });
    }
}
