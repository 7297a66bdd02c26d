//! The folder that an archive is written into.

use super::name::{LONGEST_BYTES, check_link, inside, shown};
use super::{Progress, free_bytes};
use crate::disk::Disk;
use stablehand_engine::upgrade::fault::Fault;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// What is written in one go.
const PIECE_BYTES: usize = 128 << 10;
/// How many entries an archive may have. A release has some hundred.
const MOST_ENTRIES: usize = 100_000;
/// A file from this size on is compared with the free space before it is written.
const LARGE_BYTES: u64 = 16 << 20;
/// Where `ditto` puts what it keeps of old Macs' files. Nothing of a signed bundle is there.
const OF_OLD_MACS: &str = "__MACOSX";

pub(super) struct Tree<'a> {
    disk: &'a Disk<'a>,
    root: &'a Path,
    /// The one name that may lie at the top.
    bundle: Option<&'a OsStr>,
    tell: &'a mut dyn FnMut(Progress),
    /// Folders with their modes, by their path below the root.
    folders: BTreeMap<PathBuf, u32>,
    /// Links with their targets.
    links: BTreeMap<PathBuf, PathBuf>,
    /// Files of the current archive.
    files: BTreeSet<PathBuf>,
    piece: Vec<u8>,
    done_bytes: u64,
    of_bytes: Option<u64>,
    /// Of the current archive.
    entries: usize,
    archive_bytes: u64,
    limit_bytes: u64,
}

impl<'a> Tree<'a> {
    pub(super) fn new(
        disk: &'a Disk<'a>,
        root: &'a Path,
        bundle: Option<&'a OsStr>,
        tell: &'a mut dyn FnMut(Progress),
    ) -> Result<Self, Fault> {
        disk.create_folder(root)?;
        Ok(Self {
            disk,
            root,
            bundle,
            tell,
            folders: BTreeMap::from([(PathBuf::new(), 0o755)]),
            links: BTreeMap::new(),
            files: BTreeSet::new(),
            piece: vec![0; PIECE_BYTES],
            done_bytes: 0,
            of_bytes: None,
            entries: 0,
            archive_bytes: 0,
            limit_bytes: 0,
        })
    }

    /// The next archive comes, and may hold so much. Its files take the place of those of the one before.
    pub(super) fn begin(&mut self, limit_bytes: u64) {
        self.files.clear();
        (self.entries, self.archive_bytes, self.limit_bytes) = (0, 0, limit_bytes);
        self.of_bytes = None;
    }

    /// What the archive's header says that it holds. Nothing has been written of it then.
    pub(super) fn promised(&mut self, entries: usize, bytes: u64) -> Result<(), Fault> {
        if bytes > self.limit_bytes {
            return Err(Fault::TooLarge { limit_bytes: self.limit_bytes });
        }
        if entries > MOST_ENTRIES {
            return Err(too_many());
        }
        self.room_for(bytes)?;
        self.of_bytes = Some(self.done_bytes + bytes);
        Ok(())
    }

    /// Whether the volume has room for so much more.
    pub(super) fn room_for(&self, bytes: u64) -> Result<(), Fault> {
        match free_bytes(self.root).known() {
            Some(free_bytes) if *free_bytes < bytes => Err(Fault::NoSpace(self.root.to_path_buf())),
            Some(_) | None => Ok(()),
        }
    }

    /// The path of an entry below the root; `None` for what is passed over.
    fn entry(&mut self, name: &[u8]) -> Result<Option<PathBuf>, Fault> {
        self.entries += 1;
        if self.entries > MOST_ENTRIES {
            return Err(too_many());
        }
        let path = inside(name)?;
        let Some(top) = path.components().next() else { return Ok(None) };
        match self.bundle {
            Some(_) if top.as_os_str() == OF_OLD_MACS => Ok(None),
            Some(bundle) if top.as_os_str() != bundle => Err(Fault::NoArchive(format!(
                "it holds {} beside {}",
                shown(top.as_os_str().as_bytes()),
                bundle.display()
            ))),
            Some(_) | None => Ok(Some(path)),
        }
    }

    pub(super) fn folder(&mut self, name: &[u8], mode: Option<u32>) -> Result<(), Fault> {
        let Some(path) = self.entry(name)? else { return Ok(()) };
        self.make_folders(&path)?;
        if let Some(mode) = mode {
            self.folders.insert(path, mode);
        }
        Ok(())
    }

    /// Makes a folder with those above it. None of them may be anything else: neither a file nor a link.
    fn make_folders(&mut self, path: &Path) -> Result<(), Fault> {
        let mut at = PathBuf::new();
        for part in path.components() {
            at.push(part);
            if self.folders.contains_key(&at) {
                continue;
            }
            if self.links.contains_key(&at) || !self.disk.create_folder(&self.root.join(&at))? {
                return Err(twice(&at));
            }
            self.folders.insert(at.clone(), 0o755);
        }
        Ok(())
    }

    /// Makes room for a name: the folders above it, and nothing of that name but what an archive before has brought.
    fn make_room(&mut self, path: &Path) -> Result<PathBuf, Fault> {
        self.make_folders(path.parent().unwrap_or(Path::new("")))?;
        if !self.files.insert(path.to_path_buf()) || self.folders.contains_key(path) {
            return Err(twice(path));
        }
        self.links.remove(path);
        Ok(self.root.join(path))
    }

    /// A file, as long as the archive says where it says so.
    pub(super) fn file(
        &mut self,
        name: &[u8],
        mode: Option<u32>,
        length: u64,
        from: &mut dyn Read,
        failed: &dyn Fn(&std::io::Error) -> Fault,
    ) -> Result<(), Fault> {
        let Some(path) = self.entry(name)? else { return Ok(()) };
        if length > self.limit_bytes.saturating_sub(self.archive_bytes) {
            return Err(Fault::TooLarge { limit_bytes: self.limit_bytes });
        }
        if length >= LARGE_BYTES {
            self.room_for(length)?;
        }
        let at = self.make_room(&path)?;
        let mut file = self.new_file(&at, &path)?;
        let mut left = length;
        loop {
            let read = match from.read(&mut self.piece) {
                Ok(0) => break,
                Ok(read) => read,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(failed(&error)),
            };
            let Some(rest) = left.checked_sub(read as u64) else {
                return Err(Fault::NoArchive(format!("{} is longer than it says", path.display())));
            };
            left = rest;
            self.disk.write(&at, &mut file, &self.piece[..read])?;
            self.archive_bytes += read as u64;
            self.done_bytes += read as u64;
            (self.tell)(Progress { done_bytes: self.done_bytes, of_bytes: self.of_bytes });
        }
        if left > 0 {
            return Err(Fault::NoArchive(format!("{} is shorter than it says", path.display())));
        }
        self.disk.mode(&at, &file, mode.unwrap_or(0o644) & 0o777)?;
        self.disk.sync(&at, &file)
    }

    fn new_file(&self, at: &Path, path: &Path) -> Result<File, Fault> {
        if let Some(file) = self.disk.create(at)? {
            return Ok(file);
        }
        // Of an archive before. On a volume that takes `A` for `a`, one of this archive would be lost.
        let lower = |path: &Path| path.to_string_lossy().to_lowercase();
        if self.files.iter().filter(|known| lower(known) == lower(path)).count() > 1 {
            return Err(twice(path));
        }
        self.disk.remove_file(at)?;
        self.disk.create(at)?.ok_or_else(|| twice(path))
    }

    /// A symbolic link. It is made at the end.
    pub(super) fn link(&mut self, name: &[u8], target: &[u8]) -> Result<(), Fault> {
        let Some(path) = self.entry(name)? else { return Ok(()) };
        if target.is_empty() || target.len() > LONGEST_BYTES || target.contains(&0) {
            return Err(Fault::LeadsOut(shown(target)));
        }
        let at = self.make_room(&path)?;
        if fs::symlink_metadata(&at).is_ok() {
            self.disk.remove_file(&at)?;
        }
        self.links.insert(path, PathBuf::from(OsString::from(OsStr::from_bytes(target))));
        Ok(())
    }

    /// One more name of a file that came before.
    pub(super) fn hard_link(&mut self, name: &[u8], target: &[u8]) -> Result<(), Fault> {
        let Some(path) = self.entry(name)? else { return Ok(()) };
        let of = inside(target)?;
        if !self.files.contains(&of) || self.links.contains_key(&of) {
            return Err(Fault::NoArchive(format!("{} is a name of nothing", path.display())));
        }
        let at = self.make_room(&path)?;
        if fs::symlink_metadata(&at).is_ok() {
            self.disk.remove_file(&at)?;
        }
        self.disk.hard_link(&at, &self.root.join(of))
    }

    /// Makes the links, gives the folders their modes, and brings all of them to the disk.
    pub(super) fn finish(self) -> Result<(), Fault> {
        let top = self.bundle.map(PathBuf::from).unwrap_or_default();
        for link in self.links.keys() {
            check_link(link, &self.links, &top)?;
        }
        for (path, target) in &self.links {
            self.disk.link(&self.root.join(path), target)?;
        }
        // Those inside come first.
        for (path, mode) in self.folders.iter().rev() {
            let at = self.root.join(path);
            let folder = File::open(&at).map_err(|error| self.disk.fault(&at, &error))?;
            // Without these three its owner could neither move nor remove it.
            self.disk.mode(&at, &folder, mode & 0o777 | 0o700)?;
            self.disk.sync_folder(&at)?;
        }
        Ok(())
    }
}

fn too_many() -> Fault {
    Fault::NoArchive(format!("it holds more than {MOST_ENTRIES} files"))
}

fn twice(path: &Path) -> Fault {
    Fault::NoArchive(format!("it holds two things named {}", shown(path.as_os_str().as_bytes())))
}
