//! Zips, as `ditto -c -k --keepParent` makes them. What counts is the directory at their end; the headers before each
//! file may leave lengths out.

use super::name::{LONGEST_BYTES, shown};
use super::tree::Tree;
use crate::disk::Disk;
use stablehand_engine::upgrade::fault::Fault;
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::Path;
use zip::ZipArchive;
use zip::result::ZipError;

/// The part of a mode that says what a thing is (`stat(2)`).
const KIND: u32 = 0o170_000;
const REGULAR: u32 = 0o100_000;

pub(super) fn unpack(disk: &Disk<'_>, tree: &mut Tree<'_>, file: &File, path: &Path) -> Result<(), Fault> {
    let failed = |error: ZipError| match io::Error::from(error) {
        error if error.raw_os_error().is_some() => disk.fault(path, &error),
        error => Fault::NoArchive(shown(error.to_string().as_bytes())),
    };
    let mut archive = ZipArchive::new(BufReader::new(file)).map_err(failed)?;
    let mut bytes = 0_u64;
    for index in 0..archive.len() {
        bytes = bytes.saturating_add(archive.by_index_raw(index).map_err(failed)?.size());
    }
    tree.promised(archive.len(), bytes)?;
    for index in 0..archive.len() {
        let mut entry = archive.by_index(index).map_err(failed)?;
        let (name, mode) = (entry.name_raw().to_vec(), entry.unix_mode());
        if entry.is_dir() {
            tree.folder(&name, mode)?;
        } else if entry.is_symlink() {
            let mut target = Vec::new();
            let most = LONGEST_BYTES as u64 + 1;
            entry.by_ref().take(most).read_to_end(&mut target).map_err(|error| failed(error.into()))?;
            tree.link(&name, &target)?;
        } else {
            let kind = mode.unwrap_or(REGULAR) & KIND;
            if kind != REGULAR && kind != 0 {
                return Err(Fault::NoArchive(format!("{} is neither file, folder nor link", shown(&name))));
            }
            let length = entry.size();
            tree.file(&name, mode, length, &mut entry, &|error| match error.raw_os_error() {
                Some(_) => disk.fault(path, error),
                None => Fault::NoArchive(shown(error.to_string().as_bytes())),
            })?;
        }
    }
    Ok(())
}
