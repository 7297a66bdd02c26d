//! `ditto(1)`: copies trees with links and attributes, and unpacks or makes
//! zip archives with the host's own tools.

use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use super::xattr;
use crate::wire::Reply;
use crate::world::World;

/// Runs the command.
pub fn ditto(_world: &World, arguments: &[String]) -> Reply {
    let flags: String = arguments
        .iter()
        .filter(|word| word.starts_with('-') && !word.starts_with("--"))
        .flat_map(|word| word.chars().skip(1))
        .collect();
    let keep_parent = arguments.iter().any(|word| word == "--keepParent");
    let paths: Vec<&String> = arguments.iter().filter(|word| !word.starts_with('-')).collect();
    let [source, target] = paths.as_slice() else {
        return Reply::failed(1, "Usage: ditto [ <options> ] src [ ... src ] dst");
    };
    let (source, target) = (Path::new(source), Path::new(target));
    if !source.exists() {
        return Reply::failed(1, format!("ditto: Can't find path {}", source.display()));
    }
    if flags.contains('x') && flags.contains('k') {
        return host(Command::new("/usr/bin/unzip").args(["-q", "-o"]).arg(source).arg("-d").arg(target));
    }
    if flags.contains('c') && flags.contains('k') {
        let folder = source.parent().unwrap_or(source);
        let (place, name) = if keep_parent {
            (folder, source.file_name().map_or(Path::new("."), Path::new))
        } else {
            (source, Path::new("."))
        };
        return host(
            Command::new("/usr/bin/zip").current_dir(place).args(["-q", "-r", "-y", "-1"]).arg(target).arg(name),
        );
    }
    match copy_tree(source, target) {
        Ok(()) => Reply::quiet(),
        Err(error) => Reply::failed(1, format!("ditto: {}: {error}", target.display())),
    }
}

fn host(command: &mut Command) -> Reply {
    match command.output() {
        Ok(output) if output.status.success() => Reply::quiet(),
        Ok(output) => Reply::failed(1, format!("ditto: {}", String::from_utf8_lossy(&output.stderr))),
        Err(error) => Reply::failed(1, format!("ditto: the host's archiver cannot be run: {error}")),
    }
}

/// Copies a tree.
pub fn copy_tree(source: &Path, target: &Path) -> std::io::Result<()> {
    let kind = std::fs::symlink_metadata(source)?.file_type();
    if kind.is_symlink() {
        let _ = std::fs::remove_file(target);
        return symlink(std::fs::read_link(source)?, target);
    }
    if kind.is_dir() {
        std::fs::create_dir_all(target)?;
        for entry in std::fs::read_dir(source)? {
            let entry = entry?;
            copy_tree(&entry.path(), &target.join(entry.file_name()))?;
        }
    } else {
        if let Some(folder) = target.parent() {
            std::fs::create_dir_all(folder)?;
        }
        // A program that runs cannot be written over; its name can be taken.
        let _ = std::fs::remove_file(target);
        std::fs::copy(source, target)?;
    }
    xattr::copy(source, target);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_stay_links() {
        let folder = tempfile::tempdir().unwrap();
        let source = folder.path().join("a");
        std::fs::create_dir_all(source.join("V/A")).unwrap();
        symlink("A", source.join("V/Current")).unwrap();
        std::fs::write(source.join("V/A/file"), "x").unwrap();
        let target = folder.path().join("b");
        copy_tree(&source, &target).unwrap();
        assert!(target.join("V/Current").is_symlink());
        assert_eq!(std::fs::read_to_string(target.join("V/Current/file")).unwrap(), "x");
    }
}
