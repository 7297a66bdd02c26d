//! The folder that plays a machine: its marker, its paths, its clock and the
//! state that the simulator keeps beside it.

pub mod clock;
pub mod layout;
pub mod moments;
pub mod notes;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

use clock::Clock;

use crate::releases::flaw::Flaw;

/// Name of the marker file in the root of a world.
pub const MARKER: &str = "stablehand-world.json";

/// The variable that names the world a program lives in.
pub const WORLD_VARIABLE: &str = "STABLEHAND_WORLD";

/// Which system a world plays.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Os {
    /// macOS with launchd and Ollama.app.
    Macos,
    /// Linux with systemd.
    Linux,
}

/// What starts Ollama in a world.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Owner {
    /// Ollama.app, through its login item.
    App,
    /// The Homebrew service.
    Brew,
    /// A terminal.
    Manual,
    /// The system unit `ollama.service`.
    Systemd,
    /// A user unit `ollama.service`.
    UserUnit,
    /// A container.
    Container,
    /// Nothing: Ollama is installed but not started.
    None,
}

/// The contents of the marker file.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Marker {
    /// Version of the layout, 1.
    pub format: u32,
    /// The system that is played.
    pub os: Os,
    /// Name of the user of the world.
    pub user: String,
    /// Home directory, as a path inside the world.
    pub home: String,
    /// Port of this world's Ollama unless its environment says otherwise.
    pub port: u16,
    /// Version of the Ollama that was installed when the world was made.
    pub ollama: String,
    /// Physical memory.
    pub memory_bytes: u64,
    /// Recommended GPU working set.
    pub gpu_working_set_bytes: u64,
}

/// An opened world.
#[derive(Debug)]
pub struct World {
    /// Canonical path of the root.
    pub dir: PathBuf,
    /// The marker as read when the world was opened.
    pub marker: Marker,
    /// The clock of the world.
    pub clock: Clock,
}

impl World {
    /// Opens the world whose root is `dir`.
    pub fn open(dir: &Path) -> Result<Self> {
        let dir = dir.canonicalize().with_context(|| format!("the world {} cannot be opened", dir.display()))?;
        let marker_path = dir.join(MARKER);
        let text = std::fs::read_to_string(&marker_path)
            .with_context(|| format!("{} is not a world: no {MARKER}", dir.display()))?;
        let marker: Marker =
            serde_json::from_str(&text).with_context(|| format!("{} cannot be understood", marker_path.display()))?;
        if marker.format != 1 {
            bail!("{}: format {} is unknown", marker_path.display(), marker.format);
        }
        let clock = Clock::open(&dir.join("clock.json"))?;
        Ok(Self { dir, marker, clock })
    }

    /// Finds the world from the path a program was called by, the program
    /// file itself, or the environment, in this order.
    pub fn find(called_as: &str) -> Result<Self> {
        let mut candidates = Vec::new();
        if called_as.contains('/') {
            candidates.push(std::path::absolute(called_as).unwrap_or_else(|_| called_as.into()));
        }
        if let Ok(executable) = std::env::current_exe() {
            candidates.push(executable);
        }
        for candidate in candidates {
            if let Some(root) = candidate.ancestors().skip(1).find(|folder| folder.join(MARKER).is_file()) {
                return Self::open(root);
            }
        }
        match std::env::var_os(WORLD_VARIABLE) {
            Some(dir) => Self::open(Path::new(&dir)),
            None => bail!("no world: {called_as} lies in none and {WORLD_VARIABLE} is not set"),
        }
    }

    /// A path of the simulated machine as a real path.
    pub fn path(&self, inside: &str) -> PathBuf {
        self.dir.join(inside.trim_start_matches('/'))
    }

    /// The home directory as a real path.
    pub fn home(&self) -> PathBuf {
        self.path(&self.marker.home)
    }

    /// A file of the simulator's own state.
    pub fn state(&self, name: &str) -> PathBuf {
        self.dir.join(".sim").join(name)
    }

    /// The real path for `path`: inside the world if it exists there, else as
    /// it is. Plists and units may name programs of either side.
    pub fn resolve(&self, path: &str) -> PathBuf {
        if path.starts_with('/') && !Path::new(path).starts_with(&self.dir) {
            let inside = self.path(path);
            if inside.exists() {
                return inside;
            }
        }
        PathBuf::from(path)
    }

    /// The search path of jobs: the simulated machine's first, then the host's
    /// own, so that scripts find an interpreter.
    pub fn search_path(&self) -> String {
        let inside = ["/usr/bin", "/bin", "/usr/sbin", "/sbin", "/usr/local/bin"]
            .map(|part| self.path(part).display().to_string())
            .join(":");
        format!("{inside}:/usr/bin:/bin:/usr/sbin:/sbin")
    }

    /// Environment that every process of the world starts from.
    pub fn base_environment(&self) -> Vec<(String, String)> {
        let home = self.home().display().to_string();
        let mut environment = vec![
            (WORLD_VARIABLE.to_owned(), self.dir.display().to_string()),
            ("HOME".to_owned(), home),
            ("USER".to_owned(), self.marker.user.clone()),
            ("LOGNAME".to_owned(), self.marker.user.clone()),
            ("PATH".to_owned(), self.search_path()),
        ];
        if let Ok(zone) = std::env::var("TZ") {
            environment.push(("TZ".to_owned(), zone));
        }
        environment
    }

    /// The version of the Ollama that the running program belongs to: its
    /// bundle's, its installation's, or the one the world was made with.
    pub fn ollama_version(&self) -> String {
        self.own_release().0
    }

    /// What is wrong with the Ollama that the running program belongs to.
    pub fn ollama_flaw(&self) -> Option<Flaw> {
        self.own_release().1
    }

    fn own_release(&self) -> (String, Option<Flaw>) {
        let executable = std::env::current_exe().unwrap_or_default();
        layout::version_of_program(&executable).unwrap_or_else(|| (self.marker.ollama.clone(), None))
    }
}

/// `major.minor` of a version, for rules that changed between versions.
pub fn generation(version: &str) -> (u32, u32) {
    let mut parts = version.split(['.', '-']).map(|part| part.parse::<u32>().unwrap_or(0));
    (parts.next().unwrap_or(0), parts.next().unwrap_or(0))
}

/// Writes a file through a neighbour and a rename, so that readers never see
/// half of it.
pub fn write_whole(path: &Path, contents: &[u8]) -> Result<()> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    }
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let neighbour = path.with_file_name(format!(".{name}.{}", std::process::id()));
    std::fs::write(&neighbour, contents).with_context(|| format!("cannot write {}", neighbour.display()))?;
    std::fs::rename(&neighbour, path).with_context(|| format!("cannot replace {}", path.display()))?;
    Ok(())
}

/// A world that is nothing but its marker and its clock.
#[cfg(test)]
pub fn testing_world(dir: &Path) -> World {
    let marker = r#"{"format":1,"os":"macos","user":"sim","home":"/Users/sim","port":1,"ollama":"0.33.0","memory_bytes":1,"gpu_working_set_bytes":1}"#;
    std::fs::write(dir.join(MARKER), marker).unwrap();
    clock::ClockFile::starting_now(1.0).write(&dir.join("clock.json")).unwrap();
    World::open(dir).unwrap()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generations_compare_as_numbers() {
        assert_eq!(generation("0.33.0"), (0, 33));
        assert_eq!(generation("0.33.0-rc2"), (0, 33));
        assert!(generation("0.9.1") < generation("0.24.0"));
    }

    #[test]
    fn an_unknown_marker_format_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(
            dir.path().join(MARKER),
            r#"{"format":2,"os":"macos","user":"sim","home":"/Users/sim","port":1,"ollama":"0.33.0","memory_bytes":1,"gpu_working_set_bytes":1}"#,
        )
        .unwrap();
        let error = World::open(dir.path()).unwrap_err().to_string();
        assert!(error.contains("format 2"), "{error}");
    }
}
