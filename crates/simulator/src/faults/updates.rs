//! What the app's own updater leaves behind, where an app can lie that nobody can upgrade, and what a person does
//! meanwhile.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use ring::digest;
use serde_json::json;

use super::{Fault, machine, macos_only};
use crate::app::{settings, updater};
use crate::releases::{self, archives};
use crate::world::{Owner, World, layout, notes};

/// The app has downloaded the newest release, to be put in place when it next starts hidden.
pub fn stage(world: &World) -> Result<String> {
    let release = releases::newest(world).context("nothing is published; nothing was changed")?;
    owned_by_the_app(world)?;
    let asset = archives::assets(world, &release)?
        .into_iter()
        .find(|asset| archives::is_archive(&asset.name))
        .context("the newest release has no archive; nothing was changed")?;
    let state = digest::digest(&digest::SHA256, asset.sha256.as_bytes());
    let folder: String = state.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    let folder = updater::updates(world).join(folder);
    std::fs::create_dir_all(&folder)?;
    std::fs::copy(archives::folder(world, &release).join(&asset.name), folder.join(&asset.name))?;
    notes::raise(world, Fault::UpdaterStaged, &json!({}))?;
    Ok(format!("the app has staged {} in {}", release.version, folder.display()))
}

/// What is staged goes.
pub fn unstage(world: &World) {
    let _ = std::fs::remove_dir_all(updater::updates(world));
}

/// An upgrade of the app by itself was broken off, and its app of before was never removed.
pub fn leave_backup(world: &World) -> Result<String> {
    owned_by_the_app(world)?;
    let backup = updater::backup(world);
    if backup.exists() {
        bail!("{} is there already; nothing was changed", backup.display());
    }
    layout::install_bundle(world, &backup, "0.20.0")?;
    notes::raise(world, Fault::UpdaterStaleBackup, &json!({}))?;
    Ok(format!("{} was left behind", backup.display()))
}

/// The backup goes.
pub fn remove_backup(world: &World) {
    let _ = std::fs::remove_dir_all(updater::backup(world));
}

/// Somebody runs Homebrew, until the fault is taken back.
pub fn run_homebrew(world: &World) -> Result<String> {
    macos_only(world)?;
    notes::raise(world, Fault::BrewAtWork, &json!({}))?;
    let brew = world.path("/opt/homebrew/bin/brew").display().to_string();
    machine::spawn(world, &[&brew, "update"])?;
    Ok("Homebrew is at work".to_owned())
}

/// A person writes a chat in the app.
pub fn write_chat(world: &World) -> Result<String> {
    macos_only(world)?;
    if !settings::file(world).exists() {
        bail!("the app has no database here; nothing was changed");
    }
    let at = world.clock.wall_ms();
    settings::write_chat(world, &format!("chat-{at}"), "Feed", "How much hay does a horse eat?")?;
    Ok("a chat was written in the app".to_owned())
}

/// The app runs from another place than the one it was installed in.
pub fn run_elsewhere(world: &World, fault: Fault) -> Result<String> {
    owned_by_the_app(world)?;
    let (home, runs) = places(world, fault);
    if home.exists() || runs.exists() {
        bail!("the app is not in its place already; nothing was changed");
    }
    machine::stop_ollama(world)?;
    let installed = world.path(INSTALLED);
    let version = layout::version_of_bundle(&installed).unwrap_or_else(|| world.marker.ollama.clone());
    rename(&installed, &home)?;
    if home != runs {
        layout::install_bundle(world, &runs, &version)?;
    }
    notes::raise(world, fault, &json!({}))?;
    start(world, &runs)?;
    Ok(format!("the app runs from {}", runs.display()))
}

/// The app runs from its own place again.
pub fn run_at_home(world: &World, fault: Fault) -> Result<()> {
    let (home, runs) = places(world, fault);
    machine::stop_ollama(world)?;
    if home != runs {
        std::fs::remove_dir_all(&runs)?;
    }
    let installed = world.path(INSTALLED);
    rename(&home, &installed)?;
    start(world, &installed)
}

const INSTALLED: &str = "/Applications/Ollama.app";

/// Where the installed app lies meanwhile, and where it runs.
fn places(world: &World, fault: Fault) -> (PathBuf, PathBuf) {
    if fault == Fault::AppFromBackup {
        return (updater::backup(world), updater::backup(world));
    }
    let random = "7B1E0A52-3F64-4C0B-8F0E-6C2D9A41E7B5";
    let copy = format!("/private/var/folders/zz/sim0000gn/T/AppTranslocation/{random}/d/Ollama.app");
    (world.home().join("Downloads/Ollama.app"), world.path(&copy))
}

fn rename(from: &Path, to: &Path) -> Result<()> {
    std::fs::create_dir_all(to.parent().unwrap_or(to))?;
    std::fs::rename(from, to).with_context(|| format!("{} cannot be moved to {}", from.display(), to.display()))
}

fn start(world: &World, bundle: &Path) -> Result<()> {
    machine::open_app(world, bundle, false)?;
    if machine::wait_for_server(world, machine::LIMIT) { Ok(()) } else { bail!("the server does not answer") }
}

fn owned_by_the_app(world: &World) -> Result<()> {
    macos_only(world)?;
    if notes::owner(world) != Owner::App {
        bail!("Ollama.app is not the owner here; nothing was changed");
    }
    Ok(())
}
