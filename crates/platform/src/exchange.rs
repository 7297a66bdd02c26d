//! One version taking another's place: moves, links and copies that are on the disk when they return, and that may be
//! carried out again after they were cut off anywhere.
//!
//! Where a thing lies is decided by what is seen, never by what was recorded. Nothing is ever moved into a folder that
//! is there, and nothing is replaced but a link (or the program that a link takes the place of).

use crate::disk::Disk;
use crate::machine::Machine;
use stablehand_engine::Known;
use stablehand_engine::upgrade::fault::Fault;
use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

/// Changes to the files of one machine.
#[derive(Clone, Copy)]
pub struct Exchange<'a> {
    machine: &'a Machine,
    disk: Disk<'a>,
}

impl<'a> Exchange<'a> {
    /// Changes made through this disk.
    pub fn new(machine: &'a Machine, disk: Disk<'a>) -> Self {
        Self { machine, disk }
    }

    /// Renames `from` to `to`, where nothing is. When `from` is gone and `to` is there, it was done before.
    ///
    /// # Errors
    /// [`Fault::Taken`] when both are there; another [`Fault`] when neither is, or the disk refuses.
    pub fn move_to(&self, from: &Path, to: &Path) -> Result<(), Fault> {
        self.allow(from)?;
        self.allow(to)?;
        match (self.is_there(from)?, self.is_there(to)?) {
            (true, true) => return Err(Fault::Taken(to.to_path_buf())),
            (false, true) => {}
            (false, false) => {
                return Err(Fault::File { path: from.to_path_buf(), reason: "it is not there".to_owned() });
            }
            (true, false) => {
                self.disk.create_folders(folder_of(to))?;
                self.disk.rename(from, to)?;
            }
        }
        self.disk.sync_folder(folder_of(to))?;
        self.disk.sync_folder(folder_of(from))
    }

    /// As [`Self::move_to`], also to another volume, where it is a copy and a removal.
    ///
    /// # Errors
    /// As there.
    pub fn move_across(&self, from: &Path, to: &Path) -> Result<(), Fault> {
        if on_one_volume(from, folder_of(to)) {
            return self.move_to(from, to);
        }
        if self.is_there(from)? {
            // A copy is there only when it is whole.
            self.copy(&[(from, Path::new(""))], to)?;
        }
        self.remove(from)
    }

    /// Makes `place` a link that leads to `target`, in one go, whatever file or link it was before.
    ///
    /// # Errors
    /// [`Fault::Taken`] when `place` is a folder; another [`Fault`] when the disk refuses. `place` is as before then.
    pub fn link(&self, place: &Path, target: &Path) -> Result<(), Fault> {
        self.allow(place)?;
        match fs::symlink_metadata(place) {
            Ok(about) if about.is_dir() => return Err(Fault::Taken(place.to_path_buf())),
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(self.disk.fault(place, &error)),
        }
        if fs::read_link(place).is_ok_and(|leads_to| leads_to == target) {
            return self.disk.sync_folder(folder_of(place));
        }
        let beside = hidden(place, "new");
        self.disk.remove_tree(&beside)?;
        self.disk.change("link", &beside, || symlink(target, &beside))?;
        if let Err(fault) = self.disk.rename(&beside, place) {
            // The first error is the one to tell.
            let _in_vain = self.disk.remove_tree(&beside);
            return Err(fault);
        }
        self.disk.sync_folder(folder_of(place))
    }

    /// Copies a file, a link or a folder with links, modes and empty folders to `to`, which is there only when it is
    /// whole. What is there was made before. Several sources are laid into the folder `to` under their own names.
    ///
    /// # Errors
    /// A [`Fault`]; what was begun is removed as far as the disk allows.
    pub fn copy(&self, sources: &[(&Path, &Path)], to: &Path) -> Result<(), Fault> {
        self.allow(to)?;
        if self.is_there(to)? {
            return self.disk.sync_folder(folder_of(to));
        }
        let beside = hidden(to, "copying");
        self.disk.create_folders(folder_of(to))?;
        self.disk.remove_tree(&beside)?;
        let copied = self.copy_all(sources, &beside).and_then(|()| self.disk.rename(&beside, to));
        if let Err(fault) = copied {
            let _in_vain = self.disk.remove_tree(&beside);
            return Err(fault);
        }
        self.disk.sync_folder(folder_of(to))
    }

    fn copy_all(&self, sources: &[(&Path, &Path)], to: &Path) -> Result<(), Fault> {
        for (from, name) in sources {
            let at = if name.as_os_str().is_empty() { to.to_path_buf() } else { to.join(name) };
            self.disk.create_folders(folder_of(&at))?;
            self.copy_tree(from, &at)?;
            // Folders made on the way are read by whoever reads what is in them.
            for folder in at.ancestors().skip(1).take_while(|folder| folder.starts_with(to)) {
                self.disk.change("mode", folder, || fs::set_permissions(folder, fs::Permissions::from_mode(0o755)))?;
            }
        }
        Ok(())
    }

    fn copy_tree(&self, from: &Path, to: &Path) -> Result<(), Fault> {
        let failed = |error: io::Error| self.disk.fault(from, &error);
        let about = fs::symlink_metadata(from).map_err(failed)?;
        if about.is_symlink() {
            let target = fs::read_link(from).map_err(failed)?;
            return self.disk.change("link", to, || symlink(&target, to));
        }
        if about.is_file() {
            // On APFS this is a clone, extended attributes with it.
            self.disk.change("write", to, || fs::copy(from, to).map(|_| ()))?;
            return self.disk.change("sync", to, || fs::File::open(to)?.sync_all());
        }
        if !about.is_dir() {
            return Err(Fault::File { path: from.to_path_buf(), reason: "it is no file, folder or link".to_owned() });
        }
        self.disk.create_folder(to)?;
        for entry in fs::read_dir(from).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            self.copy_tree(&entry.path(), &to.join(entry.file_name()))?;
        }
        self.disk
            .change("mode", to, || fs::set_permissions(to, fs::Permissions::from_mode(about.permissions().mode())))?;
        self.disk.sync_folder(to)
    }

    /// Removes a file, a link, or a folder with all that is in it; what is gone is gone.
    ///
    /// # Errors
    /// A [`Fault`].
    pub fn remove(&self, path: &Path) -> Result<(), Fault> {
        self.allow(path)?;
        if !self.is_there(path)? {
            return Ok(());
        }
        // What is half removed must not look whole: it leaves its name first.
        let going = hidden(path, "going");
        self.disk.remove_tree(&going)?;
        self.disk.rename(path, &going)?;
        self.disk.remove_tree(&going)?;
        self.disk.sync_folder(folder_of(path))
    }

    /// Removes what nobody takes for a whole thing any more, without the care of [`Self::remove`].
    ///
    /// # Errors
    /// A [`Fault`].
    pub fn discard(&self, path: &Path) -> Result<(), Fault> {
        self.allow(path)?;
        self.disk.remove_tree(path)
    }

    /// Removes what a removal, a copy or a link at this path left when it was cut off.
    ///
    /// # Errors
    /// A [`Fault`].
    pub fn sweep(&self, path: &Path) -> Result<(), Fault> {
        self.allow(path)?;
        cut_off(path).iter().try_for_each(|left| self.disk.remove_tree(left))
    }

    fn is_there(&self, path: &Path) -> Result<bool, Fault> {
        match fs::symlink_metadata(path) {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
            Err(error) => Err(self.disk.fault(path, &error)),
        }
    }

    fn allow(&self, path: &Path) -> Result<(), Fault> {
        self.machine
            .allow_write(path)
            .map_err(|error| Fault::File { path: path.to_path_buf(), reason: error.to_string() })
    }
}

/// What a removal, a copy or a link at this path left when it was cut off.
pub fn cut_off(path: &Path) -> Vec<PathBuf> {
    let left = CUT_OFF.map(|what| hidden(path, what));
    left.into_iter().filter(|left| fs::symlink_metadata(left).is_ok()).collect()
}

/// What is beside a path while it is removed, copied or linked.
const CUT_OFF: [&str; 3] = ["going", "copying", "new"];

/// How many bytes a file or a folder holds, links not followed.
pub fn size_bytes(path: &Path) -> Known<u64> {
    fn add(path: &Path) -> io::Result<u64> {
        let about = fs::symlink_metadata(path)?;
        if !about.is_dir() {
            return Ok(about.len());
        }
        fs::read_dir(path)?.try_fold(0_u64, |sum, entry| Ok(sum.saturating_add(add(&entry?.path())?)))
    }
    add(path).map_or_else(|error| Known::unknown(format!("{}: {error}", path.display())), Known::Is)
}

/// Whether both lie on one volume, so that a rename is enough. The nearest folder that is there counts.
pub fn on_one_volume(one: &Path, other: &Path) -> bool {
    use std::os::unix::fs::MetadataExt as _;
    let volume = |path: &Path| path.ancestors().find_map(|folder| fs::metadata(folder).ok()).map(|about| about.dev());
    volume(one).is_some() && volume(one) == volume(other)
}

/// `.NAME.WHAT` beside it.
fn hidden(path: &Path, what: &str) -> PathBuf {
    let mut name = std::ffi::OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(".");
    name.push(what);
    path.with_file_name(name)
}

fn folder_of(path: &Path) -> &Path {
    path.parent().unwrap_or(Path::new("/"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::world_folder;

    fn no_fault(_what: &'static str, _path: &Path) -> io::Result<()> {
        Ok(())
    }

    fn refuse_renames(what: &'static str, _path: &Path) -> io::Result<()> {
        if what == "rename" { Err(io::Error::from_raw_os_error(28)) } else { Ok(()) }
    }

    #[test]
    fn a_move_is_done_once_and_never_into_what_is_there() {
        let (_dir, machine) = world_folder("macos");
        let exchange = Exchange::new(&machine, Disk::new(machine.os(), &no_fault));
        let (from, to) = (machine.at("/Applications/Ollama.app"), machine.at("/kept/0.22.1-a"));
        fs::create_dir_all(from.join("Contents")).unwrap();
        exchange.move_to(&from, &to).unwrap();
        exchange.move_to(&from, &to).unwrap();
        assert!(to.join("Contents").is_dir() && !from.exists());
        fs::create_dir_all(&from).unwrap();
        assert_eq!(exchange.move_to(&from, &to), Err(Fault::Taken(to.clone())));
        fs::remove_dir_all(&from).unwrap();
        fs::remove_dir_all(&to).unwrap();
        assert!(exchange.move_to(&from, &to).is_err(), "neither is there");
    }

    #[test]
    fn a_link_takes_the_place_of_a_program_or_leaves_it() {
        let (_dir, machine) = world_folder("linux");
        let place = machine.at("/usr/local/bin/ollama");
        fs::create_dir_all(place.parent().unwrap()).unwrap();
        fs::write(&place, "program").unwrap();
        let target = Path::new("/opt/0.24.0-a/bin/ollama");
        let full = Exchange::new(&machine, Disk::new(machine.os(), &refuse_renames));
        assert!(matches!(full.link(&place, target), Err(Fault::NoSpace(_))));
        assert_eq!(fs::read_dir(place.parent().unwrap()).unwrap().count(), 1, "nothing is left beside it");
        let exchange = Exchange::new(&machine, Disk::new(machine.os(), &no_fault));
        exchange.link(&place, target).unwrap();
        exchange.link(&place, target).unwrap();
        assert_eq!(fs::read_link(&place).unwrap(), target);
        exchange.link(&place, Path::new("/opt/0.22.1-a/bin/ollama")).unwrap();
        assert_eq!(fs::read_link(&place).unwrap(), Path::new("/opt/0.22.1-a/bin/ollama"));
    }

    #[test]
    fn a_copy_is_whole_or_not_there() {
        let (_dir, machine) = world_folder("linux");
        let from = machine.at("/usr/local/lib/ollama");
        fs::create_dir_all(from.join("empty")).unwrap();
        fs::write(from.join("llama-server"), "x").unwrap();
        fs::set_permissions(from.join("llama-server"), fs::Permissions::from_mode(0o751)).unwrap();
        symlink("llama-server", from.join("link")).unwrap();
        let to = machine.at("/kept/0.22.1-a");
        let full = Exchange::new(&machine, Disk::new(machine.os(), &refuse_renames));
        assert!(full.copy(&[(&from, Path::new("lib/ollama"))], &to).is_err());
        assert_eq!(fs::read_dir(to.parent().unwrap()).unwrap().count(), 0);
        let exchange = Exchange::new(&machine, Disk::new(machine.os(), &no_fault));
        for _ in 0..2 {
            exchange.copy(&[(&from, Path::new("lib/ollama"))], &to).unwrap();
        }
        let copied = to.join("lib/ollama");
        assert!(copied.join("empty").is_dir());
        assert_eq!(fs::read_link(copied.join("link")).unwrap(), Path::new("llama-server"));
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&copied.join("llama-server")), 0o751);
        assert_eq!((mode(&to), mode(&to.join("lib"))), (0o755, 0o755), "another user's service reads them");
        assert_eq!(size_bytes(&copied).known().copied(), Some(1 + "llama-server".len() as u64));
        exchange.remove(&to).unwrap();
        exchange.remove(&to).unwrap();
        assert!(!to.exists());
    }

    #[test]
    fn what_was_cut_off_beside_a_place_is_swept() {
        let (_dir, machine) = world_folder("linux");
        let place = machine.at("/kept/0.22.1-a");
        for what in ["going", "copying", "new"] {
            fs::create_dir_all(hidden(&place, what)).unwrap();
        }
        Exchange::new(&machine, Disk::new(machine.os(), &no_fault)).sweep(&place).unwrap();
        assert_eq!(fs::read_dir(place.parent().unwrap()).unwrap().count(), 0);
    }
}
