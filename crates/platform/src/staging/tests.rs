//! With archives that are made here, whole and broken in each way.

use super::*;
use crate::testing::world_folder;
use flate2::Compression;
use flate2::write::GzEncoder;
use ruzstd::encoding::{CompressionLevel, compress_to_vec};
use std::io::{Cursor, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::sync::Mutex;
use tempfile::TempDir;
use zip::ZipWriter;
use zip::write::SimpleFileOptions;

const ENOSPC: i32 = 28;
const EACCES: i32 = 13;
const EPERM: i32 = 1;
const EIO: i32 = 5;
const LIMIT_BYTES: u64 = 1 << 20;

/// What an archive holds.
#[derive(Clone)]
enum Entry {
    Folder(&'static str, u32),
    File(&'static str, u32, Vec<u8>),
    Link(&'static str, &'static str),
    Hard(&'static str, &'static str),
    Pipe(&'static str),
}
use Entry::{Folder, Hard, Link, Pipe};

fn text(name: &'static str, bytes: &[u8]) -> Entry {
    Entry::File(name, 0o644, bytes.to_vec())
}

/// A bundle with everything that a real one has.
fn bundle() -> Vec<Entry> {
    vec![
        Folder("Ollama.app/", 0o755),
        Folder("Ollama.app/Contents/Empty/", 0o750),
        Entry::File("Ollama.app/Contents/MacOS/Ollama", 0o755, vec![7; 200_000]),
        Entry::File("Ollama.app/Contents/Resources/read-only", 0o444, b"kept".to_vec()),
        text("Ollama.app/Contents/Resources/\u{d6}llama", b"name"),
        text("__MACOSX/Ollama.app/._Contents", b"of old Macs"),
        Folder("Ollama.app/Contents/Frameworks/S.framework/Versions/A/", 0o755),
        Link("Ollama.app/Contents/Frameworks/S.framework/Versions/Current", "A"),
        Link("Ollama.app/Contents/Frameworks/S.framework/Resources", "Versions/Current/Resources"),
    ]
}

fn zipped(entries: &[Entry]) -> Vec<u8> {
    let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
    let options = SimpleFileOptions::default();
    for entry in entries {
        match entry {
            Folder(name, mode) => zip.add_directory(*name, options.unix_permissions(*mode)).unwrap(),
            Entry::File(name, mode, bytes) => {
                zip.start_file(*name, options.unix_permissions(*mode)).unwrap();
                zip.write_all(bytes).unwrap();
            }
            Link(name, target) => zip.add_symlink(*name, *target, options).unwrap(),
            Hard(..) | Pipe(_) => panic!("no zip has those"),
        }
    }
    zip.finish().unwrap().into_inner()
}

/// Written by hand where a library would refuse the name.
fn tarred(entries: &[Entry]) -> Vec<u8> {
    let mut tar = tar::Builder::new(Vec::new());
    for entry in entries {
        let mut header = tar::Header::new_gnu();
        let (name, kind, mode, target, bytes): (_, _, _, _, &[u8]) = match entry {
            Folder(name, mode) => (name, tar::EntryType::Directory, *mode, "", &[]),
            Entry::File(name, mode, bytes) => (name, tar::EntryType::Regular, *mode, "", bytes),
            Link(name, target) => (name, tar::EntryType::Symlink, 0o777, *target, &[]),
            Hard(name, target) => (name, tar::EntryType::Link, 0o644, *target, &[]),
            Pipe(name) => (name, tar::EntryType::Fifo, 0o644, "", &[]),
        };
        header.set_entry_type(kind);
        header.set_mode(mode);
        header.set_size(bytes.len() as u64);
        header.as_mut_bytes()[..name.len()].copy_from_slice(name.as_bytes());
        header.as_mut_bytes()[157..157 + target.len()].copy_from_slice(target.as_bytes());
        header.set_cksum();
        tar.append(&header, bytes).unwrap();
    }
    tar.into_inner().unwrap()
}

fn gzipped(entries: &[Entry]) -> Vec<u8> {
    let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
    gzip.write_all(&tarred(entries)).unwrap();
    gzip.finish().unwrap()
}

fn zstandard(entries: &[Entry]) -> Vec<u8> {
    compress_to_vec(Cursor::new(tarred(entries)), CompressionLevel::Fastest)
}

struct Case {
    _folder: TempDir,
    machine: Machine,
    place: PathBuf,
    downloads: Vec<Download>,
    holds: Holds,
    told: Vec<Progress>,
}

impl Case {
    fn new(os: &str, holds: Holds, archives: &[Vec<u8>]) -> Self {
        let (folder, machine) = world_folder(os);
        let work = machine.home().join("work");
        fs::create_dir(&work).unwrap();
        let download = |(index, bytes): (usize, &Vec<u8>)| {
            let file = work.join(format!("archive-{index}"));
            fs::write(&file, bytes).unwrap();
            Download {
                url: String::new(),
                file,
                size_bytes: bytes.len() as u64,
                sha256: String::new(),
                unpacked_limit_bytes: LIMIT_BYTES,
            }
        };
        let downloads = archives.iter().enumerate().map(download).collect();
        let place = work.join("new/Ollama.app");
        Self { _folder: folder, machine, place, downloads, holds, told: vec![] }
    }

    fn app(archive: Vec<u8>) -> Self {
        Self::new("macos", Holds::TheBundle, &[archive])
    }

    fn tarball(archive: Vec<u8>) -> Self {
        Self::new("linux", Holds::ItsContents, &[archive])
    }

    fn run(&mut self) -> Result<(), Fault> {
        self.run_with(&|_, _| Ok(()))
    }

    fn run_with(&mut self, before: Before<'_>) -> Result<(), Fault> {
        unpack(&self.machine, &self.downloads, &self.place, self.holds, before, &mut |now| self.told.push(now))
    }

    /// The fault of an unpacking after which nothing is left.
    fn refused(mut self) -> Fault {
        let fault = self.run().unwrap_err();
        assert_eq!(self.left(), Vec::<PathBuf>::new());
        fault
    }

    /// What lies where the place would be.
    fn left(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.place.parent().unwrap()).into_iter().flatten();
        entries.map(|entry| entry.unwrap().path()).collect()
    }

    fn mode(&self, below: &str) -> u32 {
        fs::metadata(self.place.join(below)).unwrap().mode() & 0o7777
    }
}

#[test]
fn a_bundle_keeps_its_links_modes_and_empty_folders() {
    let mut case = Case::app(zipped(&bundle()));
    case.run().unwrap();
    let at = |below: &str| case.place.join("Contents").join(below);
    assert_eq!(fs::read(at("MacOS/Ollama")).unwrap(), vec![7; 200_000]);
    assert_eq!((case.mode("Contents/MacOS/Ollama"), case.mode("Contents/Resources/read-only")), (0o755, 0o444));
    assert_eq!((case.mode("Contents/Empty"), case.mode("")), (0o750, 0o755));
    assert_eq!(fs::read_dir(at("Empty")).unwrap().count(), 0);
    assert_eq!(fs::read(at("Resources/\u{d6}llama")).unwrap(), b"name");
    assert_eq!(fs::read_link(at("Frameworks/S.framework/Versions/Current")).unwrap(), Path::new("A"));
    assert_eq!(fs::read_link(at("Frameworks/S.framework/Resources")).unwrap(), Path::new("Versions/Current/Resources"));
    assert_eq!(case.left(), [case.place.clone()]);
    let all_bytes = 200_000 + 4 + 4;
    assert!(case.told.is_sorted_by_key(|now| now.done_bytes));
    assert_eq!(case.told.last().map(|now| now.done_bytes), Some(all_bytes));
    // The header counts what is passed over, and targets of links, too.
    assert!(case.told.iter().all(|now| now.of_bytes.is_some_and(|of_bytes| of_bytes > all_bytes)));
}

#[test]
fn tarballs_of_both_kinds_are_unpacked_one_over_the_other() {
    let base = [
        Folder("./", 0o755),
        Entry::File("./bin/ollama", 0o755, b"base".to_vec()),
        text("./lib/ollama/liba.so.1", b"one"),
        Link("./lib/ollama/liba.so", "liba.so.1"),
        Hard("./lib/ollama/same", "./lib/ollama/liba.so.1"),
    ];
    let rocm = [
        text("lib/ollama/rocm/libb.so", b"two"),
        text("lib/ollama/liba.so", b"in the place of a link"),
        Entry::File("bin/ollama", 0o700, b"over".to_vec()),
    ];
    for pack in [gzipped, zstandard] {
        let mut case = Case::new("linux", Holds::ItsContents, &[pack(&base), pack(&rocm)]);
        case.run().unwrap();
        let read = |below: &str| fs::read(case.place.join(below)).unwrap();
        assert_eq!(read("bin/ollama"), b"over");
        assert_eq!(case.mode("bin/ollama"), 0o700);
        assert_eq!((read("lib/ollama/rocm/libb.so"), read("lib/ollama/same")), (b"two".to_vec(), b"one".to_vec()));
        assert_eq!(read("lib/ollama/liba.so"), b"in the place of a link");
        assert!(!fs::symlink_metadata(case.place.join("lib/ollama/liba.so")).unwrap().is_symlink());
        let ino = |below: &str| fs::metadata(case.place.join(below)).unwrap().ino();
        assert_eq!(ino("lib/ollama/same"), ino("lib/ollama/liba.so.1"));
        assert_eq!(case.left(), [case.place.clone()]);
    }
}

#[test]
fn what_leads_out_is_refused_and_nothing_of_it_stays() {
    let outside: &[&[Entry]] = &[
        &[text("../outside", b"x")],
        &[text("/outside", b"x")],
        &[text("a/../../outside", b"x")],
        &[Folder("../outside/", 0o755)],
        &[Link("a", "/etc/passwd")],
        &[Link("a/b", "../../outside")],
        &[Link("d/up", ".."), Link("b", "d/up/../outside")],
        &[Link("a", "")],
        &[Hard("a", "../outside")],
        &[Hard("a", "/etc/passwd")],
        &[Link("../a", "b")],
    ];
    for entries in outside {
        for pack in [gzipped, zstandard] {
            let case = Case::tarball(pack(entries));
            let outside = case.machine.home().join("work/outside");
            let fault = case.refused();
            assert!(matches!(fault, Fault::LeadsOut(_)), "{fault}");
            assert!(!outside.exists());
        }
    }
    for entries in [&[text("../outside", b"x")][..], &[text("/outside", b"x")], &[Link("Ollama.app/a", "../b")]] {
        let fault = Case::app(zipped(entries)).refused();
        assert!(matches!(fault, Fault::LeadsOut(_)), "{fault}");
    }
}

#[test]
fn nothing_is_written_through_a_link_of_the_archive() {
    for entries in [
        &[Link("a", "lib"), text("a/b", b"x")][..],
        &[Link("a", "b"), text("a", b"x")],
        &[text("a", b"x"), Link("a", "b")],
        &[text("a", b"x"), text("a/b", b"x")],
        &[text("a/b", b"x"), text("a", b"x")],
        &[text("a", b"x"), text("a", b"y")],
        &[Hard("a", "b")],
        &[Link("b", "c"), Hard("a", "b")],
        &[Pipe("a")],
        &[Link("a", "b"), Link("b", "a")],
    ] {
        let fault = Case::tarball(gzipped(entries)).refused();
        assert!(matches!(fault, Fault::NoArchive(_)), "{fault}");
    }
}

#[test]
fn a_bundle_of_another_name_or_with_company_is_refused() {
    for entries in [
        &[text("Other.app/a", b"x")][..],
        &[text("Ollama.app/a", b"x"), text("README", b"x")],
        &[text("__MACOSX/a", b"x")],
        &[text("Ollama.app", b"x")],
        &[],
    ] {
        let fault = Case::app(zipped(entries)).refused();
        assert!(matches!(fault, Fault::NoArchive(_)), "{fault}");
    }
}

#[test]
fn more_than_the_plan_allows_is_refused_by_the_header_or_as_it_comes() {
    let large = [Entry::File("Ollama.app/a", 0o644, vec![0; LIMIT_BYTES as usize + 1])];
    for case in [Case::app(zipped(&large)), Case::tarball(gzipped(&large)), Case::tarball(zstandard(&large))] {
        let created = Mutex::new(0);
        let mut case = case;
        let fault = case.run_with(&|what, _| {
            *created.lock().unwrap() += i32::from(what == "write");
            Ok(())
        });
        assert_eq!(fault, Err(Fault::TooLarge { limit_bytes: LIMIT_BYTES }));
        assert_eq!((*created.lock().unwrap(), case.left()), (0, vec![]));
    }
    // The directory at the end promises 10 GB.
    let fault = Case::app(promising(10_000_000_000_u64 as u32)).refused();
    assert_eq!(fault, Fault::TooLarge { limit_bytes: LIMIT_BYTES });
    // It promises less than there is.
    let fault = Case::app(promising(3)).refused();
    assert!(matches!(fault, Fault::NoArchive(_)), "{fault}");
}

/// A zip of one file of 1000 bytes whose directory says another length.
fn promising(length: u32) -> Vec<u8> {
    let mut zip = zipped(&[text("Ollama.app/a", &[1; 1000])]);
    let directory = zip.windows(4).rposition(|bytes| bytes == b"PK\x01\x02").unwrap();
    zip[directory + 24..directory + 28].copy_from_slice(&length.to_le_bytes());
    zip
}

#[test]
fn what_is_broken_is_no_archive() {
    let whole = zipped(&bundle());
    let mut flipped = whole.clone();
    // In the middle of the packed bytes of the program.
    let at = whole.windows(6).position(|bytes| bytes == b"Ollama").unwrap();
    let packed = whole[at..].windows(12).position(|bytes| bytes == b"MacOS/Ollama").unwrap() + at + 60;
    flipped[packed] ^= 0xff;
    for bytes in [vec![], b"PK\x03\x04".to_vec(), b"<html>".to_vec(), whole[..whole.len() - 30].to_vec(), flipped] {
        let fault = Case::app(bytes).refused();
        assert!(matches!(fault, Fault::NoArchive(_)), "{fault}");
    }
    let entries =
        [Entry::File("a", 0o644, (0..100_000_u32).flat_map(|n| n.wrapping_mul(2_654_435_761).to_le_bytes()).collect())];
    for whole in [gzipped(&entries), zstandard(&entries)] {
        let fault = Case::tarball(whole[..whole.len() / 2].to_vec()).refused();
        assert!(matches!(fault, Fault::NoArchive(_)), "{fault}");
    }
}

#[test]
fn a_file_that_is_replaced_while_it_is_read_is_told() {
    let mut case = Case::app(zipped(&bundle()));
    let (file, done) = (case.downloads[0].file.clone(), Mutex::new(false));
    let fault = case.run_with(&|what, _| {
        let mut done = done.lock().unwrap();
        if what == "write" && !*done {
            *done = true;
            let other = file.with_extension("other");
            fs::copy(&file, &other)?;
            fs::rename(other, &file)?;
        }
        Ok(())
    });
    assert_eq!((fault, case.left()), (Err(Fault::Replaced(case.downloads[0].file.clone())), vec![]));
}

#[test]
fn what_is_in_place_is_left_and_what_was_cut_off_is_begun_anew() {
    let mut case = Case::app(zipped(&bundle()));
    let half = unfinished(&case.place).join("Ollama.app/Contents");
    fs::create_dir_all(&half).unwrap();
    fs::write(half.join("half"), "x").unwrap();
    symlink("/etc", half.join("out")).unwrap();
    case.run().unwrap();
    assert!(!case.place.join("Contents/half").exists() && Path::new("/etc/passwd").exists());
    fs::write(case.place.join("mine"), "x").unwrap();
    case.run().unwrap();
    assert!(case.place.join("mine").exists());

    let mut taken = Case::app(zipped(&bundle()));
    fs::create_dir_all(taken.place.parent().unwrap()).unwrap();
    fs::write(&taken.place, "x").unwrap();
    assert_eq!(taken.run(), Err(Fault::Taken(taken.place.clone())));
}

#[test]
fn outside_its_world_nothing_is_unpacked() {
    let mut case = Case::app(zipped(&bundle()));
    let elsewhere = tempfile::tempdir().unwrap();
    case.place = elsewhere.path().join("Ollama.app");
    assert!(matches!(case.run(), Err(Fault::File { .. })));
    assert_eq!(case.left(), Vec::<PathBuf>::new());
}

#[test]
fn each_refusal_of_the_disk_at_each_change_is_told_and_leaves_nothing() {
    // Small: each change is made some hundred times, and each flush is a real one.
    let small = [Folder("Ollama.app/Empty/", 0o755), text("Ollama.app/a/b", b"x"), Link("Ollama.app/l", "a/b")];
    let archives = [
        ("macos", Holds::TheBundle, zipped(&small)),
        ("linux", Holds::ItsContents, gzipped(&[text("a/b", b"x"), Link("l", "a/b"), Hard("h", "a/b")])),
    ];
    let points = Mutex::new(Vec::new());
    for (os, holds, archive) in &archives {
        for code in [ENOSPC, EACCES, EPERM, EIO] {
            for fail_at in 0.. {
                let mut case = Case::new(os, *holds, std::slice::from_ref(archive));
                let count = Mutex::new(0);
                let result = case.run_with(&|what, _| {
                    let mut count = count.lock().unwrap();
                    *count += 1;
                    if *count == fail_at + 1 {
                        points.lock().unwrap().push(what);
                        return Err(io::Error::from_raw_os_error(code));
                    }
                    Ok(())
                });
                let Err(fault) = result else { break };
                let is_right = match (code, *os) {
                    (ENOSPC, _) => matches!(fault, Fault::NoSpace(_)),
                    (EPERM, "macos") => matches!(fault, Fault::AppManagement(_)),
                    (EACCES | EPERM, _) => matches!(fault, Fault::Denied(_)),
                    _ => matches!(fault, Fault::File { .. }),
                };
                assert!(is_right, "{os} {code} {fail_at}: {fault}");
                // After the rename the place is whole; only the folder's flush is missing.
                let left = case.left();
                assert!(left.is_empty() || left.contains(&case.place) && left.len() <= 2, "{left:?}");
                if code == ENOSPC {
                    case.run().unwrap();
                    assert_eq!(case.left(), [case.place.clone()]);
                }
            }
        }
    }
    let points = points.into_inner().unwrap();
    for what in ["create", "write", "mode", "sync", "link", "rename", "remove"] {
        assert!(points.contains(&what), "{what}");
    }
    assert!(points.len() >= 150, "{}", points.len());
}

#[test]
fn a_simulated_volume_has_the_room_that_it_says() {
    let (_dir, machine) = world_folder("macos");
    let folder = machine.home();
    assert_eq!(free_on(&machine, folder).known().is_some(), free_bytes(folder).known().is_some());
    let file = machine.root().join("volume.json");
    fs::write(&file, "{\"free_bytes\":7}").unwrap();
    assert_eq!(free_on(&machine, folder), Known::Is(7));
    fs::write(&file, "full").unwrap();
    assert!(free_on(&machine, folder).known().is_none());
}

#[test]
fn free_space_is_asked_of_the_folder_that_is_there() {
    let folder = tempfile::tempdir().unwrap();
    let here = free_bytes(folder.path()).known().copied().unwrap();
    let there = free_bytes(&folder.path().join("not/yet/there")).known().copied().unwrap();
    assert!(here > 0 && there > 0);
    let disk = Disk::new(crate::machine::Os::MacOs, &|_, _| Ok(()));
    let root = folder.path().join("root");
    let tell = &mut |_| {};
    let mut tree = Tree::new(&disk, &root, None, tell).unwrap();
    tree.begin(u64::MAX);
    assert_eq!(tree.promised(1, u64::MAX), Err(Fault::NoSpace(root.clone())));
    assert_eq!(tree.promised(1, 1), Ok(()));
    assert_eq!(fs::metadata(&root).unwrap().permissions().mode() & 0o777, 0o700);
}
