//! `xattr(1)`. Attributes are kept as real ones, under the host's prefix.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{XattrFlags, getxattr, listxattr, removexattr, setxattr};
use rustix::io::Errno;

use crate::faults::Fault;
use crate::wire::Reply;
use crate::world::{World, notes};

/// Runs the command.
pub fn run(world: &World, arguments: &[String]) -> Reply {
    let mut verb = 'n';
    let mut recursive = false;
    let mut words = Vec::new();
    for word in arguments {
        match word.strip_prefix('-') {
            Some(flags) if words.is_empty() && !flags.is_empty() => {
                for flag in flags.chars() {
                    match flag {
                        'r' => recursive = true,
                        'p' | 'w' | 'd' | 'c' | 'l' => verb = flag,
                        's' | 'v' | 'x' | 'z' => {}
                        other => {
                            return Reply::failed(64, format!("option -{other} not recognized"));
                        }
                    }
                }
            }
            Some(_) | None => words.push(word.as_str()),
        }
    }
    let (name, value, files): (&str, &str, &[&str]) = match (verb, words.as_slice()) {
        ('p' | 'd', [name, files @ ..]) => (name, "", files),
        ('w', [name, value, files @ ..]) => (name, value, files),
        (_, files) => ("", "", files),
    };
    let mut reply = Reply::quiet();
    for file in files {
        let file = Path::new(file);
        if !file.exists() && std::fs::symlink_metadata(file).is_err() {
            reply.stderr.push_str(&format!("xattr: No such file: {}\n", file.display()));
            reply.code = 1;
            continue;
        }
        for path in targets(file, recursive) {
            let one = match verb {
                'p' => print(&path, name),
                'w' => guarded(world, &path, || write(&path, name, value)),
                'd' => guarded(world, &path, || delete(&path, name, recursive)),
                'c' => guarded(world, &path, || clear(&path)),
                'l' => list(&path, true, recursive || files.len() > 1),
                _ => list(&path, false, recursive || files.len() > 1),
            };
            reply.stdout.push_str(&one.stdout);
            reply.stderr.push_str(&one.stderr);
            reply.code = reply.code.max(one.code);
        }
    }
    reply
}

/// The attribute's name on this host.
fn host_name(name: &str) -> String {
    if std::env::consts::OS == "macos" { name.to_owned() } else { format!("user.{name}") }
}

/// The file and, if asked, everything below it. Links are not followed.
fn targets(file: &Path, recursive: bool) -> Vec<PathBuf> {
    let mut found = Vec::new();
    if recursive && file.is_dir() && !file.is_symlink() {
        for entry in std::fs::read_dir(file).into_iter().flatten().flatten() {
            if !entry.path().is_symlink() {
                found.extend(targets(&entry.path(), true));
            }
        }
    }
    found.push(file.to_owned());
    found
}

/// Apps of other teams are not to be changed while App Management forbids it.
fn guarded(world: &World, path: &Path, change: impl FnOnce() -> Reply) -> Reply {
    let inside_app = path.starts_with(world.path("/Applications"));
    if inside_app && notes::is_raised(world, Fault::RenameEperm) {
        return Reply::failed(1, format!("xattr: [Errno 1] Operation not permitted: '{}'", path.display()));
    }
    change()
}

fn print(path: &Path, name: &str) -> Reply {
    match read(path, name) {
        Some(value) => Reply::said(format!("{value}\n")),
        None => missing(path, name),
    }
}

fn write(path: &Path, name: &str, value: &str) -> Reply {
    match setxattr(path, host_name(name), value.as_bytes(), XattrFlags::empty()) {
        Ok(()) => Reply::quiet(),
        Err(error) => refused(path, error),
    }
}

fn delete(path: &Path, name: &str, recursive: bool) -> Reply {
    match removexattr(path, host_name(name)) {
        Ok(()) => Reply::quiet(),
        Err(error) if is_missing(error) && recursive => Reply::quiet(),
        Err(error) if is_missing(error) => missing(path, name),
        Err(error) => refused(path, error),
    }
}

fn clear(path: &Path) -> Reply {
    for name in names(path) {
        if let Err(error) = removexattr(path, host_name(&name)) {
            return refused(path, error);
        }
    }
    Reply::quiet()
}

fn list(path: &Path, values: bool, with_path: bool) -> Reply {
    let mut text = String::new();
    for name in names(path) {
        if with_path {
            text.push_str(&format!("{}: ", path.display()));
        }
        text.push_str(&name);
        if values {
            text.push_str(&format!(": {}", read(path, &name).unwrap_or_default()));
        }
        text.push('\n');
    }
    Reply::said(text)
}

/// The attributes of a file, without the host's own.
pub fn names(path: &Path) -> Vec<String> {
    let mut buffer = vec![0_u8; 8192];
    let Ok(length) = listxattr(path, buffer.as_mut_slice()) else {
        return Vec::new();
    };
    buffer[..length]
        .split(|byte| *byte == 0)
        .filter_map(|name| std::str::from_utf8(name).ok())
        .filter_map(|name| if std::env::consts::OS == "macos" { Some(name) } else { name.strip_prefix("user.") })
        .filter(|name| !name.is_empty())
        .map(str::to_owned)
        .collect()
}

/// The value of an attribute.
pub fn read(path: &Path, name: &str) -> Option<String> {
    let mut buffer = vec![0_u8; 8192];
    let length = getxattr(path, host_name(name), buffer.as_mut_slice()).ok()?;
    Some(String::from_utf8_lossy(&buffer[..length]).into_owned())
}

/// Sets an attribute of everything in a bundle. Programs that are other names of
/// the world's one copy are left out: they share their attributes with each other.
pub fn set_below(bundle: &Path, name: &str, value: &str) -> Result<(), Errno> {
    let shared = |path: &PathBuf| path.is_file() && std::fs::metadata(path).is_ok_and(|about| about.nlink() > 1);
    targets(bundle, true)
        .iter()
        .filter(|path| !shared(path))
        .try_for_each(|path| setxattr(path, host_name(name), value.as_bytes(), XattrFlags::empty()))
}

/// Takes an attribute from everything in a bundle.
pub fn remove_below(bundle: &Path, name: &str) -> Result<(), Errno> {
    targets(bundle, true).iter().try_for_each(|path| match removexattr(path, host_name(name)) {
        Err(error) if !is_missing(error) => Err(error),
        Ok(()) | Err(_) => Ok(()),
    })
}

/// Copies every attribute from one file to another.
pub fn copy(from: &Path, to: &Path) {
    for name in names(from) {
        if let Some(value) = read(from, &name) {
            let _ = setxattr(to, host_name(&name), value.as_bytes(), XattrFlags::empty());
        }
    }
}

/// No such attribute: ENODATA on Linux, ENOATTR (93) on macOS.
fn is_missing(error: Errno) -> bool {
    error == Errno::NODATA || (std::env::consts::OS == "macos" && error.raw_os_error() == 93)
}

fn missing(path: &Path, name: &str) -> Reply {
    Reply::failed(1, format!("xattr: {}: No such xattr: {name}", path.display()))
}

fn refused(path: &Path, error: Errno) -> Reply {
    let (number, words) = if error == Errno::PERM {
        (1, "Operation not permitted")
    } else if error == Errno::ACCESS {
        (13, "Permission denied")
    } else {
        (error.raw_os_error(), "Operation failed")
    };
    Reply::failed(1, format!("xattr: [Errno {number}] {words}: '{}'", path.display()))
}
