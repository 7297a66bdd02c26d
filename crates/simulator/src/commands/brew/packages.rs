//! The two packages: what is installed of them, what is to be had, and how it is replaced.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Result, anyhow, bail};
use serde_json::{Value, json};

use super::CASK;
use crate::faults::{self, Fault};
use crate::process_table::{self, Process};
use crate::releases::flaw::Flaw;
use crate::releases::{self, Release, contents};
use crate::wire::Reply;
use crate::world::{World, layout, notes, write_whole};

/// Real time between two looks whether a long command may end.
const GLANCE: Duration = Duration::from_millis(50);

/// What Homebrew knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Package {
    /// The app.
    Cask,
    /// Server and command line.
    Formula,
}

impl Package {
    fn name(self) -> &'static str {
        match self {
            Self::Cask => CASK,
            Self::Formula => "ollama",
        }
    }

    fn installed(self, world: &World) -> Option<String> {
        match self {
            Self::Cask => cask(world),
            Self::Formula => keg(world),
        }
    }
}

/// The version of the formula that is linked.
pub fn keg(world: &World) -> Option<String> {
    let opt = world.path("/opt/homebrew/opt/ollama").canonicalize().ok()?;
    Some(opt.file_name()?.to_string_lossy().into_owned())
}

/// The version of the cask, as Homebrew remembers it.
fn cask(world: &World) -> Option<String> {
    let room = std::fs::read_dir(caskroom(world)).ok()?;
    let mut versions: Vec<String> =
        room.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    versions.retain(|name| !name.starts_with('.'));
    versions.sort();
    versions.pop()
}

fn caskroom(world: &World) -> PathBuf {
    world.path("/opt/homebrew/Caskroom").join(CASK)
}

/// `brew list --versions`.
pub fn list(world: &World) -> Reply {
    let each = [Package::Formula, Package::Cask].into_iter();
    let lines = each.filter_map(|package| Some(format!("{} {}\n", package.name(), package.installed(world)?)));
    Reply::said(lines.collect::<String>())
}

/// `brew list --versions NAME`.
pub fn version(world: &World, package: Package) -> Reply {
    match package.installed(world) {
        Some(version) => Reply::said(format!("{} {version}\n", package.name())),
        None => Reply::failed(1, ""),
    }
}

/// `brew list --cask`.
pub fn casks(world: &World) -> Reply {
    Reply::said(cask(world).map(|_| format!("{CASK}\n")).unwrap_or_default())
}

/// `brew info --json=v2 NAME`.
pub fn information(world: &World, package: Package) -> Reply {
    let installed = package.installed(world);
    let newest = releases::newest(world).map(|release| release.version);
    let outdated = is_outdated(installed.as_deref(), newest.as_deref());
    let told = match package {
        Package::Cask => json!({ "formulae": [], "casks": [{
            "token": CASK,
            "full_token": CASK,
            "old_tokens": ["ollama"],
            "tap": "homebrew/cask",
            "name": ["Ollama"],
            "desc": "Get up and running with large language models locally",
            "homepage": "https://ollama.com/",
            "url": newest.as_deref().map(url),
            "version": newest,
            "installed": installed,
            "outdated": outdated,
            "auto_updates": true,
            "artifacts": [{ "app": ["Ollama.app"] }, { "binary": ["$APPDIR/Ollama.app/Contents/Resources/ollama"] }],
        }]}),
        Package::Formula => json!({ "formulae": [{
            "name": "ollama",
            "full_name": "ollama",
            "tap": "homebrew/core",
            "desc": "Create, run, and share large language models (LLMs)",
            "homepage": "https://ollama.com/",
            "versions": { "stable": newest, "head": "HEAD", "bottle": true },
            "installed": installed.iter().map(|version| json!({ "version": version })).collect::<Vec<_>>(),
            "linked_keg": installed,
            "pinned": false,
            "outdated": outdated,
        }], "casks": [] }),
    };
    Reply::said(format!("{told:#}\n"))
}

/// `brew outdated --json=v2`.
pub fn outdated(world: &World) -> Reply {
    let newest = releases::newest(world).map(|release| release.version);
    let old = |package: Package| -> Vec<Value> {
        let installed = package.installed(world).filter(|version| is_outdated(Some(version), newest.as_deref()));
        let told = |version: String| json!({ "name": package.name(), "installed_versions": [version], "current_version": newest, "pinned": false });
        installed.map(told).into_iter().collect()
    };
    let told = json!({ "formulae": old(Package::Formula), "casks": old(Package::Cask) });
    Reply::said(format!("{told:#}\n"))
}

fn is_outdated(installed: Option<&str>, newest: Option<&str>) -> bool {
    matches!((installed, newest), (Some(installed), Some(newest)) if releases::numbers(installed) < releases::numbers(newest))
}

fn url(version: &str) -> String {
    format!("https://github.com/ollama/ollama/releases/download/v{version}/Ollama-darwin.zip")
}

/// `brew update`, which here goes on for as long as a fault says that Homebrew is at work.
pub fn wait(world: &World) -> Reply {
    while notes::is_raised(world, Fault::BrewAtWork) {
        std::thread::sleep(GLANCE);
    }
    Reply::said("Already up-to-date.\n")
}

/// `brew fetch NAME`.
pub fn fetch(world: &World, package: Package) -> Reply {
    let Some(release) = releases::newest(world) else {
        return Reply::failed(1, format!("Error: {} has no version to fetch", package.name()));
    };
    match download(world, package, &release) {
        Ok(said) => Reply::said(format!("==> Fetching downloads for: {}\n{said}", package.name())),
        Err(reply) => reply,
    }
}

/// Downloads what an upgrade needs, unless it is there. It comes from where everything comes from, and is as good.
fn download(world: &World, package: Package, release: &Release) -> Result<String, Reply> {
    let Release { version, .. } = release;
    let file = match package {
        Package::Cask => "Ollama-darwin.zip".to_owned(),
        Package::Formula => format!("ollama--{version}.arm64_sequoia.bottle.tar.gz"),
    };
    let cached = world.home().join(format!("Library/Caches/Homebrew/downloads/{version}--{file}"));
    if cached.exists() {
        return Ok(format!("==> Downloading {}\nAlready downloaded: {}\n", url(version), cached.display()));
    }
    let failed = |said: &str| {
        let words = format!(
            "{said}\nError: Download failed on {} with message: Download failed: {}",
            what(package),
            url(version)
        );
        Reply::failed(1, words)
    };
    if notes::is_raised(world, Fault::NoNetwork) {
        return Err(failed("curl: (6) Could not resolve host: github.com"));
    }
    match release.flaw {
        Some(Flaw::NoAsset) => return Err(failed("curl: (22) The requested URL returned error: 404")),
        Some(Flaw::Truncated) => return Err(failed("curl: (18) end of response with 528000 bytes missing")),
        Some(Flaw::WrongHash) => {
            let words = "Error: SHA-256 mismatch\nExpected: 0f1d8c6be5\n  Actual: 5eb6c8d1f0\nTo retry an incomplete download, remove the file above.";
            return Err(Reply::failed(1, words));
        }
        Some(_) | None => {}
    }
    write_whole(&cached, b"a download\n").map_err(|error| Reply::failed(1, format!("Error: {error:#}")))?;
    Ok(format!("==> Downloading {}\n==> Downloaded to: {}\n", url(version), cached.display()))
}

fn what(package: Package) -> String {
    match package {
        Package::Cask => format!("Cask '{CASK}'"),
        Package::Formula => "Formula 'ollama'".to_owned(),
    }
}

/// `brew upgrade NAME`.
pub fn upgrade(world: &World, package: Package) -> Reply {
    let name = package.name();
    let Some(installed) = package.installed(world) else {
        return Reply::failed(
            1,
            match package {
                Package::Cask => format!("Error: Cask '{name}' is not installed."),
                Package::Formula => format!("Error: {name} not installed"),
            },
        );
    };
    let newest = releases::newest(world).filter(|newest| is_outdated(Some(&installed), Some(&newest.version)));
    let Some(release) = newest else {
        let said = match package {
            Package::Cask => format!("Warning: Not upgrading {name}, the latest version is already installed\n"),
            Package::Formula => format!("Warning: {name} {installed} already installed\n"),
        };
        return Reply { stderr: said, ..Reply::default() };
    };
    if notes::is_raised(world, Fault::BrewAtWork) {
        return Reply::failed(
            1,
            format!(
                "Error: A `brew upgrade {name}` process has already locked {name}.\nPlease wait for it to finish or terminate it to continue."
            ),
        );
    }
    let mut said = format!(
        "==> Upgrading 1 outdated package:\n{name} {installed} -> {}\n==> Fetching downloads for: {name}\n",
        release.version
    );
    match download(world, package, &release) {
        Ok(words) => said.push_str(&words),
        Err(reply) => return Reply { stdout: said, ..reply },
    }
    let replaced = match package {
        Package::Cask => replace_app(world, &installed, &release),
        Package::Formula => replace_keg(world, &installed, &release),
    };
    match replaced {
        Ok(words) => Reply::said(said + &words),
        Err(error) => Reply { stdout: said, ..Reply::failed(1, format!("Error: {error:#}")) },
    }
}

/// The app of before goes, the new one comes, marked as everything that Homebrew has downloaded.
fn replace_app(world: &World, installed: &str, release: &Release) -> Result<String> {
    let app = world.path("/Applications/Ollama.app");
    let room = caskroom(world);
    let old = room.join(installed);
    let shown = app.display();
    let mut said = format!("==> Upgrading {CASK}\n");
    // Homebrew quits what it upgrades by an Apple event, which this app refuses, and opens again what has quit.
    if process_table::of(world).iter().any(Process::is_gui) {
        said.push_str("==> Quitting application 'com.electron.ollama'...\nWarning: Application 'com.electron.ollama' did not quit.\n");
    }
    if release.has(Flaw::CorruptZip) {
        bail!("Failure while executing; `unzip -qq -o Ollama-darwin.zip` exited with 3.");
    }
    // A folder whose name begins with a dot is no version of the cask.
    let staging = room.join(".staged");
    let staged = staging.join("Ollama.app");
    contents::put(world, &staged, &contents::bundle(release))?;
    faults::app::mark_by_homebrew(world, &staged)?;
    let moved = exchange(&app, &staged, &staging.join("before"));
    let _ = std::fs::remove_dir_all(&staging);
    moved?;
    said.push_str(&format!(
        "==> Backing App 'Ollama.app' up to '{}'\n==> Removing App '{shown}'\n==> Moving App 'Ollama.app' to '{shown}'\n",
        old.join("Ollama.app").display()
    ));
    layout::record_cask(world, &release.version)?;
    std::fs::remove_dir_all(&old)?;
    said.push_str(&format!(
        "==> Purging files for version {installed} of Cask {CASK}\n🍺  {CASK} was successfully upgraded!\n"
    ));
    Ok(said)
}

/// Moves an app out of its place and another in.
fn exchange(app: &Path, new: &Path, before: &Path) -> Result<()> {
    let rename = |from: &Path, to: &Path| {
        std::fs::rename(from, to).map_err(|error| {
            let words = match error.raw_os_error() {
                Some(1) => "Operation not permitted",
                Some(13) => "Permission denied",
                Some(_) | None => "Invalid argument",
            };
            anyhow!("{words} @ rb_file_s_rename - ({}, {})", from.display(), to.display())
        })
    };
    if app.exists() {
        rename(app, before)?;
    }
    rename(new, app).inspect_err(|_| drop(std::fs::rename(before, app)))
}

/// The new keg is linked and the old one removed. The service goes on with the old program until it is restarted.
fn replace_keg(world: &World, installed: &str, release: &Release) -> Result<String> {
    let cellar = world.path("/opt/homebrew/Cellar/ollama");
    let (old, new) = (cellar.join(installed), cellar.join(&release.version));
    contents::put(world, &new, &contents::keg(release))?;
    layout::link_keg(world, &new)?;
    std::fs::remove_dir_all(&old)?;
    Ok(format!(
        "==> Upgrading ollama\n  {installed} -> {}\n==> Pouring ollama--{}.arm64_sequoia.bottle.tar.gz\n==> Caveats\nTo restart ollama after an upgrade:\n  brew services restart ollama\n==> Summary\n🍺  {}: 9 files, 45.6MB\n==> Running `brew cleanup ollama`...\nRemoving: {}... (9 files, 45.1MB)\n",
        release.version,
        release.version,
        new.display(),
        old.display()
    ))
}
