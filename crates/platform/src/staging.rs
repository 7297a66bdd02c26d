//! Unpacking a release beside its place, on the same volume, so that a rename puts it there.
//!
//! Everything is written into a folder `.NAME.unpacking` first ([`unfinished`]), and that folder becomes the place in one
//! go when it is whole and on the disk. So a place that is there is whole; what was cut off is thrown away and begun
//! anew.
//!
//! Archives come from outside. A path that leads out of the folder, a link that does, an archive that holds more than
//! the plan allows by its header or in fact, a device, two things of one name: each ends the work with a
//! [`Fault`] before anything of it could be used. Links are made last of all, so that nothing is ever written through one.

mod name;
mod tarball;
mod tree;
mod zipped;

use crate::disk::{self, Before, Disk};
use crate::machine::Machine;
use stablehand_engine::Known;
use stablehand_engine::upgrade::fault::Fault;
use stablehand_engine::upgrade::order::Download;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use tree::Tree;

/// What the archives hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holds {
    /// One bundle with the name of the place, as `Ollama-darwin.zip` holds `Ollama.app`.
    TheBundle,
    /// What the place will hold, as a tarball for Linux holds `bin` and `lib`.
    ItsContents,
}

/// How far the work has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Bytes that were unpacked.
    pub done_bytes: u64,
    /// Of how many, where the archive says so in its header.
    pub of_bytes: Option<u64>,
}

/// Where it is unpacked to until it is whole. It is there only after the work was cut off; removing it takes back all of
/// the work that [`unpack`] has not ended.
pub fn unfinished(place: &Path) -> PathBuf {
    let mut name = std::ffi::OsString::from(".");
    name.push(place.file_name().unwrap_or_default());
    name.push(".unpacking");
    place.with_file_name(name)
}

/// What is free for this user on the volume of a path, which may not be there yet.
pub fn free_bytes(path: &Path) -> Known<u64> {
    let there = path.ancestors().find(|folder| folder.exists()).unwrap_or(Path::new("/"));
    match rustix::fs::statvfs(there) {
        Ok(volume) => Known::Is(volume.f_bavail.saturating_mul(volume.f_frsize)),
        Err(error) => Known::unknown(format!("{}: {error}", there.display())),
    }
}

/// What is free on this machine's volume. A simulated machine may have less than its host.
pub fn free_on(machine: &Machine, path: &Path) -> Known<u64> {
    #[derive(serde::Deserialize)]
    struct Volume {
        free_bytes: u64,
    }
    let file = machine.simulated().map(|world| world.join("volume.json"));
    match file.and_then(|file| fs::read(file).ok()).map(|text| serde_json::from_slice::<Volume>(&text)) {
        Some(Ok(volume)) => Known::Is(volume.free_bytes),
        Some(Err(error)) => Known::unknown(format!("volume.json: {error}")),
        None => free_bytes(path),
    }
}

/// Unpacks the downloads, one over the other, to a place where nothing is yet. A place that is there is left as it is.
///
/// It blocks, for minutes with a large release. An error from `before` ends it, and nothing of it remains; that is also
/// how it is stopped.
///
/// # Errors
/// A [`Fault`]; the place is not there then, unless only the last flush of its folder failed, and what else was written
/// is removed as far as the disk allows.
pub fn unpack(
    machine: &Machine,
    downloads: &[Download],
    place: &Path,
    holds: Holds,
    before: Before<'_>,
    tell: &mut dyn FnMut(Progress),
) -> Result<(), Fault> {
    let outside =
        |error: crate::machine::MachineError| Fault::File { path: place.to_path_buf(), reason: error.to_string() };
    machine.allow_write(place).map_err(outside)?;
    let disk = Disk::new(machine.os(), before);
    let folder = place.parent().unwrap_or(Path::new("/"));
    let root = unfinished(place);
    match fs::symlink_metadata(place) {
        // It was renamed when it was whole; what came after the rename may have been cut off.
        Ok(about) if about.is_dir() => {
            disk.remove_tree(&root)?;
            return disk.sync_folder(folder);
        }
        Ok(_) => return Err(Fault::Taken(place.to_path_buf())),
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => return Err(disk.fault(place, &error)),
    }
    disk.create_folders(folder)?;
    disk.remove_tree(&root)?;
    let done = fill(&disk, downloads, place, &root, holds, tell);
    if done.is_err() {
        // The first error is the one to tell; what can not be removed now goes with the folder of the work.
        let _in_vain = disk.remove_tree(&root);
    }
    done
}

fn fill(
    disk: &Disk<'_>,
    downloads: &[Download],
    place: &Path,
    root: &Path,
    holds: Holds,
    tell: &mut dyn FnMut(Progress),
) -> Result<(), Fault> {
    let bundle = match holds {
        Holds::TheBundle => place.file_name(),
        Holds::ItsContents => None,
    };
    let mut tree = Tree::new(disk, root, bundle, tell)?;
    for download in downloads {
        tree.begin(download.unpacked_limit_bytes);
        one(disk, &mut tree, download)?;
    }
    tree.finish()?;
    let whole = bundle.map_or_else(|| root.to_path_buf(), |name| root.join(name));
    match fs::symlink_metadata(&whole) {
        Ok(about) if about.is_dir() => {}
        Ok(_) | Err(_) => {
            let name = whole.file_name().unwrap_or_default().display();
            return Err(Fault::NoArchive(format!("it holds no folder {name}")));
        }
    }
    disk.rename(&whole, place)?;
    disk.remove_tree(root)?;
    disk.sync_folder(place.parent().unwrap_or(Path::new("/")))
}

/// Unpacks one archive, by what it is and not by its name.
fn one(disk: &Disk<'_>, tree: &mut Tree<'_>, download: &Download) -> Result<(), Fault> {
    let path = &download.file;
    let failed = |error: io::Error| disk.fault(path, &error);
    let mut file = File::open(path).map_err(failed)?;
    let began = disk::mark(&file.metadata().map_err(failed)?);
    let mut first = Vec::new();
    file.by_ref().take(4).read_to_end(&mut first).map_err(failed)?;
    file.seek(SeekFrom::Start(0)).map_err(failed)?;
    match first.as_slice() {
        b"PK\x03\x04" => zipped::unpack(disk, tree, &file, path)?,
        [0x28, 0xb5, 0x2f, 0xfd] => tarball::unpack(disk, tree, &file, path, tarball::Packing::Zstandard)?,
        [0x1f, 0x8b, ..] => tarball::unpack(disk, tree, &file, path, tarball::Packing::Gzip)?,
        _ => return Err(Fault::NoArchive("it is neither a zip nor a tarball".to_owned())),
    }
    let ended = disk::mark(&file.metadata().map_err(failed)?);
    let there = disk::mark(&fs::metadata(path).map_err(failed)?);
    if began != ended || began != there {
        return Err(Fault::Replaced(path.clone()));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
