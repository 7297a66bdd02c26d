//! Tarballs, as the releases for Linux are: `zstd --ultra -22` today, `gzip` before.

use super::name::shown;
use super::tree::Tree;
use crate::disk::Disk;
use flate2::read::MultiGzDecoder;
use ruzstd::decoding::StreamingDecoder;
use stablehand_engine::upgrade::fault::Fault;
use std::cell::Cell;
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::Path;
use tar::Archive;

/// How a tarball is packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Packing {
    Zstandard,
    Gzip,
}

/// The window of `zstd --ultra -22`, which has to be held in memory. A larger one is not Ollama's.
const WINDOW_LONGEST_BYTES: u64 = 128 << 20;

/// What a tarball is filled up with at its end: `tar` writes blocks of 10 KiB.
const PADDING_LONGEST_BYTES: u64 = 1 << 20;

/// A reader that remembers what the disk refused: decoders hand on an error of their own.
struct Remembering<'a> {
    file: &'a File,
    refused: &'a Cell<Option<i32>>,
}

impl Read for Remembering<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.file.read(buffer).inspect_err(|error| self.refused.set(error.raw_os_error()))
    }
}

pub(super) fn unpack(
    disk: &Disk<'_>,
    tree: &mut Tree<'_>,
    file: &File,
    path: &Path,
    packing: Packing,
) -> Result<(), Fault> {
    let refused = Cell::new(None);
    let failed = |error: &io::Error| match refused.get() {
        Some(code) => disk.fault(path, &io::Error::from_raw_os_error(code)),
        None => Fault::NoArchive(shown(error.to_string().as_bytes())),
    };
    // It holds at least that much, whatever it says.
    tree.room_for(file.metadata().map_err(|error| disk.fault(path, &error))?.len())?;
    let source = BufReader::new(Remembering { file, refused: &refused });
    match packing {
        Packing::Gzip => entries(tree, MultiGzDecoder::new(source), &failed),
        Packing::Zstandard => {
            let decoder = StreamingDecoder::new_with_max_window_size(source, WINDOW_LONGEST_BYTES)
                .map_err(|error| failed(&io::Error::other(error.to_string())))?;
            entries(tree, decoder, &failed)
        }
    }
}

fn entries(tree: &mut Tree<'_>, from: impl Read, failed: &dyn Fn(&io::Error) -> Fault) -> Result<(), Fault> {
    let mut archive = Archive::new(from);
    for entry in archive.entries().map_err(|error| failed(&error))? {
        let mut entry = entry.map_err(|error| failed(&error))?;
        let name = entry.path_bytes().into_owned();
        let mode = entry.header().mode().map_err(|error| failed(&error))?;
        let target = entry.link_name_bytes().map(std::borrow::Cow::into_owned).unwrap_or_default();
        let kind = entry.header().entry_type();
        if kind.is_dir() {
            tree.folder(&name, Some(mode))?;
        } else if kind.is_file() || kind.is_contiguous() || kind.is_gnu_sparse() {
            let length = entry.size();
            tree.file(&name, Some(mode), length, &mut entry, failed)?;
        } else if kind.is_symlink() {
            tree.link(&name, &target)?;
        } else if kind.is_hard_link() {
            tree.hard_link(&name, &target)?;
        } else if !kind.is_pax_global_extensions() {
            return Err(Fault::NoArchive(format!("{} is of kind {kind:?}, which no release has", shown(&name))));
        }
    }
    // What follows the last entry belongs to the packing, whose own sum stands at its very end.
    let rest = archive.into_inner().take(PADDING_LONGEST_BYTES + 1);
    if io::copy(&mut { rest }, &mut io::sink()).map_err(|error| failed(&error))? > PADDING_LONGEST_BYTES {
        return Err(Fault::NoArchive("something follows its end".to_owned()));
    }
    Ok(())
}
