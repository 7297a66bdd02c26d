//! The machine that is looked after: the real one, or a simulated world in a folder.
//!
//! Every path of a system command goes through [`Machine::at`] and every change of a file through
//! [`Machine::allow_write`], so that a simulated world can never reach the machine that plays it.

use crate::clock::Clock;
use serde::Deserialize;
use stablehand_engine::Known;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

/// Name of the variable that names the folder of a simulated world.
pub const WORLD_VARIABLE: &str = "STABLEHAND_WORLD";

/// Name of the marker file at the root of a world.
pub(crate) const MARKER: &str = "stablehand-world.json";

/// The only layout of the marker that this program understands.
const MARKER_FORMAT: u32 = 1;

/// Ollama's own port (`envconfig/config.go`).
const OLLAMA_PORT: u16 = 11434;

/// Which family of services, paths and commands a machine has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Os {
    /// launchd, app bundles, `/Applications`.
    MacOs,
    /// systemd, journals, `/proc`.
    Linux,
}

/// A machine, cheap to clone.
#[derive(Clone, Debug)]
pub struct Machine {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    os: Os,
    uid: u32,
    user: String,
    home: PathBuf,
    root: PathBuf,
    world: Option<World>,
    clock: Clock,
}

#[derive(Debug)]
struct World {
    port: u16,
    memory_bytes: Option<u64>,
    gpu_working_set_bytes: Option<u64>,
}

/// Why there is no machine to work on, or why a path of it is refused.
#[derive(Debug, thiserror::Error)]
pub enum MachineError {
    /// The folder holds no marker that can be read.
    #[error("{path} is no simulated world: its marker cannot be read: {source}")]
    NoMarker {
        /// The marker.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The marker is a link, a folder or belongs to somebody else.
    #[error("{path} is no simulated world of yours: {why}")]
    ForeignMarker {
        /// The marker.
        path: PathBuf,
        /// Which condition it fails.
        why: &'static str,
    },
    /// The marker's contents are not understood.
    #[error("{path} does not describe a simulated world that this version understands: {why}")]
    BadMarker {
        /// The marker.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// The world's clock cannot be read.
    #[error("the clock of the simulated world cannot be read: {0}")]
    BadClock(String),
    /// The user has no home folder.
    #[error("the home folder of uid {0} is not known; set HOME to an absolute path")]
    NoHome(u32),
    /// A world may only change its own files.
    #[error("refused: {path} lies outside the simulated world {world}; nothing was changed")]
    OutsideWorld {
        /// The path.
        path: PathBuf,
        /// The world.
        world: PathBuf,
    },
}

/// The marker as it lies on the disk; unknown keys are a newer simulator's business.
#[derive(Debug, Deserialize)]
struct Marker {
    format: u32,
    os: String,
    user: String,
    home: String,
    port: u16,
    #[serde(default)]
    memory_bytes: Option<u64>,
    #[serde(default)]
    gpu_working_set_bytes: Option<u64>,
}

impl Machine {
    /// The world that `STABLEHAND_WORLD` names, or the real machine when it is unset or empty.
    ///
    /// # Errors
    /// A [`MachineError`] when the named folder is no world of this user, or the user has no home. A world that was
    /// asked for and cannot be entered is never replaced by the real machine.
    pub fn detect() -> Result<Self, MachineError> {
        match std::env::var_os(WORLD_VARIABLE) {
            Some(dir) if !dir.is_empty() => Self::world(Path::new(&dir)),
            Some(_) | None => Self::real(),
        }
    }

    /// The world in this folder.
    ///
    /// # Errors
    /// A [`MachineError`] unless the marker is a regular file of this user in a layout that is understood.
    pub fn world(dir: &Path) -> Result<Self, MachineError> {
        let named = dir.join(MARKER);
        let root = dir.canonicalize().map_err(|source| MachineError::NoMarker { path: named, source })?;
        let path = root.join(MARKER);
        let uid = rustix::process::getuid().as_raw();
        let marker = read_marker(&path, uid)?;
        let bad = |why: String| MachineError::BadMarker { path: path.clone(), why };
        if marker.format != MARKER_FORMAT {
            return Err(bad(format!("format {} is not {MARKER_FORMAT}", marker.format)));
        }
        let os = match marker.os.as_str() {
            "macos" => Os::MacOs,
            "linux" => Os::Linux,
            other => return Err(bad(format!("unknown os {other:?}"))),
        };
        if !marker.home.starts_with('/')
            || Path::new(&marker.home).components().any(|part| part == Component::ParentDir)
        {
            return Err(bad(format!("home must be absolute and plain: {:?}", marker.home)));
        }
        let clock = Clock::world(&root)?;
        Ok(Self {
            inner: Arc::new(Inner {
                os,
                uid,
                user: marker.user,
                home: inside(&root, &marker.home),
                world: Some(World {
                    port: marker.port,
                    memory_bytes: marker.memory_bytes,
                    gpu_working_set_bytes: marker.gpu_working_set_bytes,
                }),
                root,
                clock,
            }),
        })
    }

    fn real() -> Result<Self, MachineError> {
        let uid = rustix::process::getuid().as_raw();
        let home = std::env::home_dir().filter(|home| home.is_absolute()).ok_or(MachineError::NoHome(uid))?;
        let user = ["USER", "LOGNAME"]
            .iter()
            .find_map(|name| std::env::var(name).ok().filter(|user| !user.is_empty()))
            .unwrap_or_else(|| uid.to_string());
        let os = if cfg!(target_os = "macos") { Os::MacOs } else { Os::Linux };
        let root = PathBuf::from("/");
        let clock = Clock::real();
        Ok(Self { inner: Arc::new(Inner { os, uid, user, home, root, world: None, clock }) })
    }

    /// Which system it is, or plays.
    pub fn os(&self) -> Os {
        self.inner.os
    }

    /// The user we work for.
    pub fn uid(&self) -> u32 {
        self.inner.uid
    }

    /// That user's name (the world's name for it in a world).
    pub fn user(&self) -> &str {
        &self.inner.user
    }

    /// That user's home, as a path that can be opened.
    pub fn home(&self) -> &Path {
        &self.inner.home
    }

    /// `/`, or the folder of the world.
    pub fn root(&self) -> &Path {
        &self.inner.root
    }

    /// The folder of the world, when this is one. Everything shown to a person says so then.
    pub fn simulated(&self) -> Option<&Path> {
        self.inner.world.as_ref().map(|_| self.inner.root.as_path())
    }

    /// Its clock.
    pub fn clock(&self) -> &Clock {
        &self.inner.clock
    }

    /// An absolute path of this machine as a path that can be opened: `/bin/launchctl` is below the folder in a world.
    pub fn at(&self, absolute: &str) -> PathBuf {
        inside(&self.inner.root, absolute)
    }

    /// Whether a file at this path may be changed: anything on a real machine, only its own files in a world.
    ///
    /// # Errors
    /// [`MachineError::OutsideWorld`] when the path leaves the world, by its text or through a symbolic link.
    pub fn allow_write(&self, path: &Path) -> Result<(), MachineError> {
        let Some(world) = self.simulated() else { return Ok(()) };
        let plain = path.is_absolute() && path.components().all(|part| part != Component::ParentDir);
        if plain && path.starts_with(world) && resolved_parent(path).is_some_and(|real| real.starts_with(world)) {
            return Ok(());
        }
        Err(MachineError::OutsideWorld { path: path.to_path_buf(), world: world.to_path_buf() })
    }

    /// Where Ollama listens when nothing else is said.
    pub fn default_port(&self) -> u16 {
        self.inner.world.as_ref().map_or(OLLAMA_PORT, |world| world.port)
    }

    /// Main memory.
    pub fn memory_bytes(&self) -> Known<u64> {
        match &self.inner.world {
            Some(world) => stated(world.memory_bytes, "memory_bytes"),
            None => real_memory_bytes(),
        }
    }

    /// How much memory the GPU may use in all. Only the graphics driver knows it; it is never derived from
    /// [`Self::memory_bytes`].
    pub fn gpu_working_set_bytes(&self) -> Known<u64> {
        match &self.inner.world {
            Some(world) => stated(world.gpu_working_set_bytes, "gpu_working_set_bytes"),
            None => Known::unknown("the graphics driver is not asked by this version"),
        }
    }
}

fn read_marker(path: &Path, uid: u32) -> Result<Marker, MachineError> {
    let unreadable = |source| MachineError::NoMarker { path: path.to_path_buf(), source };
    let foreign = |why| MachineError::ForeignMarker { path: path.to_path_buf(), why };
    let about = fs::symlink_metadata(path).map_err(unreadable)?;
    if !about.is_file() {
        return Err(foreign("its marker is not a regular file"));
    }
    if about.uid() != uid {
        return Err(foreign("its marker belongs to another user"));
    }
    let text = fs::read_to_string(path).map_err(unreadable)?;
    serde_json::from_str(&text)
        .map_err(|error| MachineError::BadMarker { path: path.to_path_buf(), why: error.to_string() })
}

fn inside(root: &Path, absolute: &str) -> PathBuf {
    root.join(absolute.trim_start_matches('/'))
}

/// The nearest existing ancestor of a path (not the path itself, which may be the link that gets replaced), with
/// every symbolic link resolved.
fn resolved_parent(path: &Path) -> Option<PathBuf> {
    path.ancestors().skip(1).find_map(|ancestor| ancestor.canonicalize().ok())
}

fn stated(value: Option<u64>, key: &str) -> Known<u64> {
    value.map_or_else(|| Known::unknown(format!("the world's marker does not state {key}")), Known::Is)
}

fn real_memory_bytes() -> Known<u64> {
    let mut system = match sysinfo::System::new() {
        Ok(system) => system,
        Err(error) => return Known::unknown(format!("the system does not tell its memory: {error}")),
    };
    system.refresh_memory();
    match system.total_memory() {
        0 => Known::unknown("the system does not tell its memory"),
        bytes => Known::Is(bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::world_folder;
    use std::os::unix::fs::symlink;

    #[test]
    fn a_world_maps_system_paths_below_its_folder() {
        let (dir, machine) = world_folder("macos");
        let root = dir.path().canonicalize().unwrap();
        assert_eq!(machine.os(), Os::MacOs);
        assert_eq!(machine.at("/bin/launchctl"), root.join("bin/launchctl"));
        assert_eq!(machine.home(), root.join("Users/sim"));
        assert_eq!(machine.default_port(), 41873);
        assert_eq!(machine.memory_bytes(), Known::Is(68_719_476_736));
    }

    #[test]
    fn a_folder_without_a_marker_is_no_world() {
        let dir = tempfile::tempdir().unwrap();
        assert!(matches!(Machine::world(dir.path()), Err(MachineError::NoMarker { .. })));
    }

    #[test]
    fn a_marker_that_is_a_link_is_refused() {
        let (dir, _machine) = world_folder("linux");
        let marker = dir.path().join(MARKER);
        fs::rename(&marker, dir.path().join("elsewhere.json")).unwrap();
        symlink(dir.path().join("elsewhere.json"), &marker).unwrap();
        assert!(matches!(Machine::world(dir.path()), Err(MachineError::ForeignMarker { .. })));
    }

    #[test]
    fn a_marker_of_another_format_is_refused() {
        let (dir, _machine) = world_folder("linux");
        let marker = dir.path().join(MARKER);
        let text = fs::read_to_string(&marker).unwrap().replace("\"format\":1", "\"format\":2");
        fs::write(&marker, text).unwrap();
        assert!(matches!(Machine::world(dir.path()), Err(MachineError::BadMarker { .. })));
    }

    #[test]
    fn a_world_refuses_paths_outside_itself() {
        let (dir, machine) = world_folder("macos");
        let outside = tempfile::tempdir().unwrap();
        symlink(outside.path(), machine.root().join("way-out")).unwrap();
        assert!(machine.allow_write(&machine.home().join("Library/LaunchAgents/a.plist")).is_ok());
        for path in [
            PathBuf::from("/etc/hosts"),
            machine.root().join("a/../../b"),
            machine.root().join("way-out/file"),
            PathBuf::from("relative"),
        ] {
            assert!(machine.allow_write(&path).is_err(), "{}", path.display());
        }
        drop(dir);
    }
}
