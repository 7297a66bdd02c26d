//! The app's built-in updater (`app/updater/updater_darwin.go`): what it has staged is put in place when the app starts
//! hidden; the app of before waits in a folder until the new one has started.

use std::fs::File;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use zip::ZipArchive;
use zip::read::root_dir_common_filter;

use crate::commands::codesign;
use crate::world::World;

/// Where it keeps what it has downloaded, each in a folder named after its state.
pub fn updates(world: &World) -> PathBuf {
    world.home().join("Library/Caches/ollama/updates")
}

/// Where it moves the app that it replaces.
pub fn backup(world: &World) -> PathBuf {
    world.home().join("Library/Caches/ollama/backup/Ollama.app")
}

/// There from the moment the new app is in place until it has started.
fn marker(world: &World) -> PathBuf {
    world.home().join("Library/Caches/ollama/upgraded")
}

/// What waits to be put in place.
pub fn staged(world: &World) -> Option<PathBuf> {
    let entries = |folder: &Path| std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let is_zip = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "zip");
    let mut found: Vec<PathBuf> =
        entries(&updates(world)).flat_map(|folder| entries(&folder).collect::<Vec<_>>()).filter(is_zip).collect();
    found.sort();
    found.into_iter().next()
}

/// Removes what an upgrade has left, at the first start after it. True if there was one.
pub fn clean_up(world: &World) -> bool {
    if !marker(world).exists() {
        return false;
    }
    let folder = backup(world);
    let _ = std::fs::remove_dir_all(folder.parent().unwrap_or(&folder));
    let _ = std::fs::remove_file(marker(world));
    true
}

/// Puts what is staged in the bundle's place.
pub fn put_in_place(world: &World, bundle: &Path, staged: &Path) -> Result<()> {
    if let Err(error) = verify(world, staged) {
        let _ = std::fs::remove_file(staged);
        return Err(error);
    }
    let backup = backup(world);
    if backup.join("Contents").exists() {
        bail!("prior upgrade failed - please upgrade manually by installing the bundle");
    }
    std::fs::create_dir_all(backup.parent().unwrap_or(&backup))?;
    let mut archive = ZipArchive::new(File::open(staged)?)?;
    std::fs::rename(bundle, &backup).context("unable to upgrade in non-interactive mode with permission problems")?;
    if let Err(error) = archive.extract_unwrapped_root_dir(bundle, root_dir_common_filter) {
        let _ = std::fs::remove_dir_all(bundle);
        std::fs::rename(&backup, bundle).context("failed to revert to prior version")?;
        return Err(error.into());
    }
    File::create(marker(world))?;
    let _ = std::fs::remove_dir_all(updates(world));
    Ok(())
}

/// Any signature is enough for it; whose it is, it does not ask.
fn verify(world: &World, staged: &Path) -> Result<()> {
    let folder = world.path(&format!("/private/tmp/ollama_update_verify{}", std::process::id()));
    let extracted = File::open(staged).map_err(anyhow::Error::from).and_then(|file| {
        ZipArchive::new(file)?.extract(&folder)?;
        Ok(())
    });
    let sealed = codesign::is_sealed(&folder.join("Ollama.app"));
    let _ = std::fs::remove_dir_all(&folder);
    extracted?;
    if sealed { Ok(()) } else { bail!("signature verification failed") }
}
