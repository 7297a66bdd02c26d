//! Copies of Ollama.app on this machine, by bundle id and not by name.

use crate::launchd::property_list::PropertyList;
use crate::machine::{Machine, Os};
use stablehand_engine::Known;
use stablehand_engine::owner::AppBundle;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

/// The app's id, and the one of its newer helpers; the app itself takes both for Ollama
/// (`app/cmd/app/app_darwin.m`).
const BUNDLE_IDS: [&str; 2] = ["com.electron.ollama", "ai.ollama.ollama"];

/// Part of the random read-only path that macOS runs a quarantined app from.
const TRANSLOCATED: &str = "/AppTranslocation/";

/// Every copy in `/Applications` and `~/Applications`, and those that run from elsewhere. `Ollama.app` comes before
/// copies with other names (`Ollama 2.app`), the system's folder before the user's.
pub fn ollama_apps(machine: &Machine, running: &[PathBuf]) -> Vec<AppBundle> {
    if machine.os() != Os::MacOs {
        return Vec::new();
    }
    let mut bundles = Vec::new();
    for folder in [machine.at("/Applications"), machine.home().join("Applications")] {
        let mut here: Vec<_> = bundles_in(&folder).into_iter().filter(|bundle| is_ollama(bundle)).collect();
        here.sort_by_key(|bundle| (bundle.file_name() != Some(OsStr::new("Ollama.app")), bundle.clone()));
        bundles.extend(here);
    }
    for bundle in running {
        if !bundles.contains(bundle) {
            bundles.push(bundle.clone());
        }
    }
    bundles.into_iter().map(described).collect()
}

/// The version that a bundle's Info.plist names.
///
/// # Errors
/// Why there is none, as a phrase.
pub fn version(bundle: &Path) -> Result<String, String> {
    let named = info(bundle)?.text("CFBundleShortVersionString").map(str::to_owned);
    named.ok_or_else(|| "its Info.plist names no version".to_owned())
}

fn bundles_in(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
    let named = |path: &PathBuf| {
        path.extension() == Some(OsStr::new("app"))
            && path.file_name().and_then(OsStr::to_str).is_some_and(|name| name.starts_with("Ollama"))
    };
    paths.filter(named).collect()
}

fn is_ollama(bundle: &Path) -> bool {
    info(bundle).is_ok_and(|info| info.text("CFBundleIdentifier").is_some_and(|id| BUNDLE_IDS.contains(&id)))
}

fn described(path: PathBuf) -> AppBundle {
    let version = version(&path).map_or_else(Known::Unknown, Known::Is);
    let translocated = is_translocated(&path);
    AppBundle { path, version, translocated }
}

/// Whether macOS runs it from a random read-only path.
pub(crate) fn is_translocated(path: &Path) -> bool {
    path.to_string_lossy().contains(TRANSLOCATED)
}

fn info(bundle: &Path) -> Result<PropertyList, String> {
    let path = bundle.join("Contents/Info.plist");
    let info = PropertyList::look(&path).map_err(|error| error.to_string())?;
    info.ok_or_else(|| format!("{} is missing", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::world_folder;

    #[test]
    fn copies_are_told_by_their_id_and_the_plain_name_comes_first() {
        let (_dir, machine) = world_folder("macos");
        let applications = machine.at("/Applications");
        bundle(&applications.join("Ollama 2.app"), "com.electron.ollama", "0.30.1");
        bundle(&applications.join("Ollama.app"), "com.electron.ollama", "0.33.0");
        bundle(&applications.join("Ollamac.app"), "com.example.ollamac", "1.0");
        bundle(&machine.home().join("Applications/Ollama.app"), "ai.ollama.ollama", "0.34.0");
        let found = ollama_apps(&machine, &[]);
        let versions: Vec<_> = found.iter().filter_map(|app| app.version.known().cloned()).collect();
        assert_eq!(versions, ["0.33.0", "0.30.1", "0.34.0"]);
        assert!(found.iter().all(|app| !app.translocated));
    }

    #[test]
    fn a_copy_that_runs_from_a_random_path_is_listed_as_translocated() {
        let (_dir, machine) = world_folder("macos");
        let path = PathBuf::from("/private/var/folders/zz/T/AppTranslocation/0A1B/d/Ollama.app");
        let found = ollama_apps(&machine, std::slice::from_ref(&path));
        assert_eq!(found[0].path, path);
        assert!(found[0].translocated);
        assert!(found[0].version.known().is_none());
    }

    #[test]
    fn linux_has_no_bundles() {
        let (_dir, machine) = world_folder("linux");
        assert_eq!(ollama_apps(&machine, &[PathBuf::from("/x/Ollama.app")]), []);
    }

    fn bundle(path: &Path, id: &str, version: &str) {
        fs::create_dir_all(path.join("Contents")).unwrap();
        let text = format!(
            "<plist version=\"1.0\"><dict><key>CFBundleIdentifier</key><string>{id}</string>\
             <key>CFBundleShortVersionString</key><string>{version}</string></dict></plist>"
        );
        fs::write(path.join("Contents/Info.plist"), text).unwrap();
    }
}
