//! The files of a release, made when they are first asked for and kept beside the world's other state.

use std::collections::hash_map::DefaultHasher;
use std::fs::File;
use std::hash::{Hash, Hasher};
use std::io::{BufReader, BufWriter, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use ring::digest::{Context as Digest, SHA256};
use serde::{Deserialize, Serialize};
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipWriter};

use super::Release;
use super::contents::{self, Entry, What};
use super::flaw::Flaw;
use crate::first_start;
use crate::world::{Os, World, write_whole};

/// What is read or written in one go.
const PIECE_BYTES: usize = 64 << 10;
/// What each of the large files claims to hold where the header lies; four of them together are 10 GB and more.
const CLAIMED_BYTES: u32 = 2_700_000_000;
/// Names of the large files.
const WEIGHTS: [&str; 4] = ["mlx.metallib", "ggml-metal.metallib", "libmlx.dylib", "libggml-metal.dylib"];

/// A file of a release.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Asset {
    /// Its name, e.g. `Ollama-darwin.zip`.
    pub name: String,
    /// Its size.
    pub size_bytes: u64,
    /// Its SHA-256 in hex.
    pub sha256: String,
}

/// Where the files of a release lie.
pub fn folder(world: &World, release: &Release) -> PathBuf {
    world.state("releases").join(release.tag())
}

/// The files of a release. They are made if they are not there yet.
pub fn assets(world: &World, release: &Release) -> Result<Vec<Asset>> {
    let folder = folder(world, release);
    let list = folder.join("assets.json");
    if let Ok(text) = std::fs::read_to_string(&list)
        && let Ok(assets) = serde_json::from_str(&text)
    {
        return Ok(assets);
    }
    std::fs::create_dir_all(&folder)?;
    let mut assets = Vec::new();
    for name in archive_names(world, release) {
        let path = folder.join(name);
        make(world, release, &path).with_context(|| format!("cannot make {}", path.display()))?;
        assets.push(measured(&path, name)?);
    }
    let script = folder.join("install.sh");
    write_whole(&script, b"#!/bin/sh\necho 'This is a simulated machine.' >&2\nexit 1\n")?;
    assets.push(measured(&script, "install.sh")?);
    if !release.has(Flaw::NoSums) {
        let sums = folder.join("sha256sum.txt");
        write_whole(&sums, sums_of(release, &assets).as_bytes())?;
        assets.push(measured(&sums, "sha256sum.txt")?);
    }
    write_whole(&list, &serde_json::to_vec_pretty(&assets)?)?;
    Ok(assets)
}

/// Whether the file is the release's archive, which its flaw is about.
pub fn is_archive(name: &str) -> bool {
    name.ends_with(".zip") || name.ends_with(".tar.zst")
}

fn archive_names(world: &World, release: &Release) -> &'static [&'static str] {
    match world.marker.os {
        _ if release.has(Flaw::NoAsset) => &[],
        Os::Macos => &["Ollama-darwin.zip"],
        Os::Linux => match std::env::consts::ARCH {
            "aarch64" => &["ollama-linux-arm64.tar.zst"],
            _ => &["ollama-linux-amd64.tar.zst"],
        },
    }
}

fn sums_of(release: &Release, assets: &[Asset]) -> String {
    assets
        .iter()
        .filter(|asset| !(release.has(Flaw::NoHash) && is_archive(&asset.name)))
        .map(|asset| {
            let wrong = release.has(Flaw::WrongHash) && is_archive(&asset.name);
            let sha256 = if wrong { asset.sha256.chars().rev().collect() } else { asset.sha256.clone() };
            format!("{sha256}  ./{}\n", asset.name)
        })
        .collect()
}

fn measured(path: &Path, name: &str) -> Result<Asset> {
    let mut file = File::open(path)?;
    let mut hash = Digest::new(&SHA256);
    let mut piece = vec![0; PIECE_BYTES];
    let mut size_bytes = 0;
    loop {
        let read = file.read(&mut piece)?;
        if read == 0 {
            break;
        }
        hash.update(&piece[..read]);
        size_bytes += read as u64;
    }
    let sha256 = hash.finish().as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(Asset { name: name.to_owned(), size_bytes, sha256 })
}

/// Makes an archive under another name first, so that one that is there is whole.
fn make(world: &World, release: &Release, path: &Path) -> Result<()> {
    let unfinished = path.with_extension("unfinished");
    match world.marker.os {
        Os::Macos => make_zip(release, &first_start::script(world), &unfinished)?,
        Os::Linux => make_tarball(release, &first_start::script(world), &unfinished)?,
    }
    if release.has(Flaw::CorruptZip) {
        damage(&unfinished)?;
    }
    std::fs::rename(&unfinished, path)?;
    Ok(())
}

/// Turns a few bytes in the middle of a file round.
fn damage(path: &Path) -> Result<()> {
    let mut file = File::options().read(true).write(true).open(path)?;
    let middle = file.metadata()?.len() / 2;
    let mut bytes = [0; 16];
    file.seek(SeekFrom::Start(middle))?;
    file.read_exact(&mut bytes)?;
    file.seek(SeekFrom::Start(middle))?;
    file.write_all(&bytes.map(|byte| !byte))?;
    Ok(())
}

/// Writes the app as `ditto -c -k --keepParent` does: folders of their own, links as such, modes kept.
fn make_zip(release: &Release, script: &str, path: &Path) -> Result<()> {
    let mut zip = ZipWriter::new(BufWriter::new(File::create(path)?));
    let options = SimpleFileOptions::default().compression_method(CompressionMethod::Stored).large_file(false);
    let mode = |mode: u32| options.unix_permissions(mode);
    let mut folders: Vec<String> = Vec::new();
    let mut entries = contents::bundle(release);
    entries.extend(strangers(release, "Contents/Resources"));
    for Entry { path, what } in &entries {
        let path = format!("Ollama.app/{path}");
        for (at, _) in path.match_indices('/') {
            let folder = path[..at].to_owned();
            if !folder.contains("..") && !folders.contains(&folder) {
                zip.add_directory(folder.as_str(), mode(0o755))?;
                folders.push(folder);
            }
        }
        match what {
            What::Folder => zip.add_directory(path.as_str(), mode(0o755))?,
            What::Program => {
                zip.start_file(path, mode(0o755))?;
                zip.write_all(script.as_bytes())?;
            }
            What::File(bytes) => {
                zip.start_file(path, mode(0o644))?;
                zip.write_all(bytes)?;
            }
            What::Link(target) => zip.add_symlink(path, target, mode(0o777))?,
        }
    }
    for name in weights(release) {
        zip.start_file(format!("Ollama.app/Contents/Resources/{name}"), mode(0o644))?;
        Weights::of(release, name).write(&mut zip)?;
    }
    zip.finish()?.into_inner()?.sync_data()?;
    if release.has(Flaw::HugeByHeader) {
        claim_too_much(path)?;
    }
    Ok(())
}

/// Writes other sizes into the directory at the end of a zip. It holds, at 24 bytes after a signature, the size of what
/// was packed, and at 46 the name (APPNOTE.TXT, 4.3.12).
fn claim_too_much(path: &Path) -> Result<()> {
    let mut bytes = std::fs::read(path)?;
    for name in WEIGHTS {
        let named = |at: &usize| {
            bytes[*at..].starts_with(b"PK\x01\x02") && {
                let name_end = at + 46 + usize::from(u16::from_le_bytes([bytes[at + 28], bytes[at + 29]]));
                bytes.get(at + 46..name_end).is_some_and(|found| found.ends_with(name.as_bytes()))
            }
        };
        if let Some(at) = (0..bytes.len().saturating_sub(46)).rev().find(named) {
            bytes[at + 24..at + 28].copy_from_slice(&CLAIMED_BYTES.to_le_bytes());
        }
    }
    std::fs::write(path, bytes)?;
    Ok(())
}

/// Writes the tarball that the official script unpacks to `/usr/local`.
fn make_tarball(release: &Release, script: &str, path: &Path) -> Result<()> {
    let plain = path.with_extension("tar");
    let mut tar = tar::Builder::new(BufWriter::new(File::create(&plain)?));
    let header = |kind: tar::EntryType, mode: u32, size: u64| {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(kind);
        header.set_mode(mode);
        header.set_size(size);
        header.set_mtime(0);
        header.set_uid(0);
        header.set_gid(0);
        header
    };
    for folder in ["bin", "lib", "lib/ollama", "lib/ollama/vulkan"] {
        let mut header = header(tar::EntryType::Directory, 0o755, 0);
        tar.append_data(&mut header, folder, std::io::empty())?;
    }
    let mut entries = contents::tarball(release);
    entries.extend(strangers(release, "lib/ollama"));
    for Entry { path, what } in &entries {
        let (kind, mode, bytes): (_, _, &[u8]) = match what {
            What::Folder => (tar::EntryType::Directory, 0o755, &[]),
            What::Program => (tar::EntryType::Regular, 0o755, script.as_bytes()),
            What::File(bytes) => (tar::EntryType::Regular, 0o644, bytes),
            What::Link(_) => (tar::EntryType::Symlink, 0o777, &[]),
        };
        let mut header = header(kind, mode, bytes.len() as u64);
        if let What::Link(target) = what {
            header.set_link_name_literal(target)?;
        }
        // Written as it is: the library would refuse a path that leads out.
        let name = header.as_gnu_mut().context("this header is GNU's")?;
        let fits = path.len().min(name.name.len());
        name.name[..fits].copy_from_slice(&path.as_bytes()[..fits]);
        header.set_cksum();
        tar.append(&header, bytes)?;
    }
    for name in weights(release) {
        let weights = Weights::of(release, name);
        let claimed = if release.has(Flaw::HugeByHeader) { u64::from(CLAIMED_BYTES) } else { weights.left_bytes };
        let mut header = header(tar::EntryType::Regular, 0o644, claimed);
        tar.append_data(&mut header, format!("lib/ollama/{name}"), weights)?;
    }
    tar.into_inner()?.into_inner()?;
    let packed = File::create(path)?;
    ruzstd::encoding::compress(
        BufReader::new(File::open(&plain)?),
        BufWriter::new(packed),
        ruzstd::encoding::CompressionLevel::Uncompressed,
    );
    std::fs::remove_file(plain)?;
    Ok(())
}

/// What does not belong into an archive.
fn strangers(release: &Release, folder: &str) -> Option<Entry> {
    if release.has(Flaw::ZipSlip) {
        return Some(Entry { path: format!("{folder}/../../../../slipped"), what: What::File(b"slipped".to_vec()) });
    }
    let target = "/etc/passwd".to_owned();
    release.has(Flaw::AbsoluteLink).then(|| Entry { path: format!("{folder}/accounts"), what: What::Link(target) })
}

fn weights(release: &Release) -> &'static [&'static str] {
    if release.has(Flaw::HugeByHeader) { &WEIGHTS } else { &WEIGHTS[..1] }
}

/// Bytes that nothing makes smaller, the same for the same release.
struct Weights {
    state: u64,
    left_bytes: u64,
}

impl Weights {
    fn of(release: &Release, name: &str) -> Self {
        let mut hasher = DefaultHasher::new();
        (&release.version, name).hash(&mut hasher);
        Self { state: hasher.finish() | 1, left_bytes: release.weights_bytes }
    }

    fn write(mut self, out: &mut impl Write) -> std::io::Result<()> {
        let mut piece = vec![0; PIECE_BYTES];
        loop {
            let length = self.read(&mut piece)?;
            if length == 0 {
                return Ok(());
            }
            out.write_all(&piece[..length])?;
        }
    }
}

impl Read for Weights {
    fn read(&mut self, piece: &mut [u8]) -> std::io::Result<usize> {
        let length = piece.len().min(usize::try_from(self.left_bytes).unwrap_or(usize::MAX));
        for word in piece[..length].chunks_mut(8) {
            // xorshift64
            self.state ^= self.state << 13;
            self.state ^= self.state >> 7;
            self.state ^= self.state << 17;
            word.copy_from_slice(&self.state.to_le_bytes()[..word.len()]);
        }
        self.left_bytes -= length as u64;
        Ok(length)
    }
}
