//! Where things lie on this machine, or in the simulated one that `STABLEHAND_WORLD` names (docs/world.md, docs/api.md).

use serde::Deserialize;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

const WORLD_VARIABLE: &str = "STABLEHAND_WORLD";
const MARKER: &str = "stablehand-world.json";
const MARKER_FORMAT: u32 = 1;
/// `sockaddr_un.sun_path` holds 104 bytes on macOS, with the closing NUL.
const SOCKET_PATH_LIMIT_BYTES: usize = 103;

/// The family of services and folders.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum System {
    /// launchd, app bundles.
    MacOs,
    /// systemd.
    Linux,
}

impl System {
    /// The word that the page knows it by.
    pub fn word(self) -> &'static str {
        match self {
            Self::MacOs => "macos",
            Self::Linux => "linux",
        }
    }
}

/// The files of one machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// What it is, or plays.
    pub system: System,
    /// The folder of the simulated machine.
    pub world: Option<PathBuf>,
    /// The user.
    pub uid: u32,
    /// The daemon's control socket.
    pub control_socket: PathBuf,
    /// The gateway's.
    pub gateway_socket: PathBuf,
    /// Our own socket: a second copy of this program talks to the first.
    pub own_socket: PathBuf,
    /// Held by the one copy that runs.
    pub own_lock: PathBuf,
    /// What the person chose for the face.
    pub choices_file: PathBuf,
    /// The daemon's agent or unit; it is there when the daemon is installed for every login.
    pub daemon_service: PathBuf,
    /// What starts the face at login.
    pub at_login_file: PathBuf,
    /// Stablehand's own configuration.
    pub config_file: PathBuf,
}

/// Why there is no place.
#[derive(Debug, thiserror::Error)]
pub enum PlaceError {
    /// The variable names no world of this user.
    #[error("{path} is no simulated machine of yours: {why}")]
    NoWorld {
        /// Its marker.
        path: PathBuf,
        /// Which condition it fails.
        why: String,
    },
    /// There is no home folder.
    #[error("the home folder is not known; set HOME to an absolute path")]
    NoHome,
}

#[derive(Deserialize)]
struct Marker {
    format: u32,
    os: String,
    home: String,
}

impl Place {
    /// The one that the environment names. A world that is named and cannot be entered is never replaced by the real
    /// machine.
    ///
    /// # Errors
    /// A [`PlaceError`].
    pub fn detect() -> Result<Self, PlaceError> {
        let uid = rustix::process::getuid().as_raw();
        if let Some(dir) = std::env::var_os(WORLD_VARIABLE).filter(|dir| !dir.is_empty()) {
            return Self::world(Path::new(&dir), uid);
        }
        let home = std::env::home_dir().filter(|home| home.is_absolute()).ok_or(PlaceError::NoHome)?;
        let system = if cfg!(target_os = "macos") { System::MacOs } else { System::Linux };
        // The specification tells to ignore relative paths.
        let xdg = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
        Ok(Self::of(system, None, uid, &home, &xdg))
    }

    /// The world in this folder.
    #[cfg(test)]
    pub fn in_world(dir: &Path) -> Result<Self, PlaceError> {
        Self::world(dir, rustix::process::getuid().as_raw())
    }

    fn world(dir: &Path, uid: u32) -> Result<Self, PlaceError> {
        let no = |path: &Path, why: String| PlaceError::NoWorld { path: path.to_path_buf(), why };
        let root = dir.canonicalize().map_err(|error| no(&dir.join(MARKER), error.to_string()))?;
        let path = root.join(MARKER);
        let about = fs::symlink_metadata(&path).map_err(|error| no(&path, error.to_string()))?;
        if !about.is_file() || about.uid() != uid {
            return Err(no(&path, "the marker is no file of this user".to_owned()));
        }
        let text = fs::read(&path).map_err(|error| no(&path, error.to_string()))?;
        let marker: Marker = serde_json::from_slice(&text).map_err(|error| no(&path, error.to_string()))?;
        if marker.format != MARKER_FORMAT {
            return Err(no(&path, format!("format {} is not {MARKER_FORMAT}", marker.format)));
        }
        let system = match marker.os.as_str() {
            "macos" => System::MacOs,
            "linux" => System::Linux,
            other => return Err(no(&path, format!("unknown os {other:?}"))),
        };
        let Some(home) = marker.home.strip_prefix('/').map(Path::new) else {
            return Err(no(&path, "its home is not absolute".to_owned()));
        };
        if home.components().any(|part| !matches!(part, Component::Normal(_))) {
            return Err(no(&path, "its home is not plain".to_owned()));
        }
        Ok(Self::of(system, Some(root.clone()), uid, &root.join(home), &|_| None))
    }

    fn of(
        system: System,
        world: Option<PathBuf>,
        uid: u32,
        home: &Path,
        xdg: &dyn Fn(&str) -> Option<PathBuf>,
    ) -> Self {
        match system {
            System::MacOs => {
                let data = home.join("Library/Application Support/dev.stablehand");
                let agents = home.join("Library/LaunchAgents");
                Self {
                    system,
                    world,
                    uid,
                    control_socket: short_socket(uid, data.join("s")),
                    gateway_socket: short_socket(uid, data.join("g")),
                    own_socket: short_socket(uid, data.join("tray.s")),
                    own_lock: data.join("tray.lock"),
                    choices_file: data.join("face.json"),
                    daemon_service: agents.join("dev.stablehand.daemon.plist"),
                    at_login_file: agents.join("dev.stablehand.tray.plist"),
                    config_file: data.join("config.toml"),
                }
            }
            System::Linux => {
                let config = xdg("XDG_CONFIG_HOME").unwrap_or_else(|| home.join(".config"));
                let state = xdg("XDG_STATE_HOME").unwrap_or_else(|| home.join(".local/state")).join("stablehand");
                let sockets = xdg("XDG_RUNTIME_DIR").map_or_else(|| state.clone(), |run| run.join("stablehand"));
                Self {
                    system,
                    world,
                    uid,
                    control_socket: short_socket(uid, sockets.join("s")),
                    gateway_socket: short_socket(uid, sockets.join("g")),
                    own_socket: short_socket(uid, sockets.join("tray.s")),
                    own_lock: state.join("tray.lock"),
                    choices_file: config.join("stablehand/face.json"),
                    daemon_service: config.join("systemd/user/stablehand.service"),
                    at_login_file: config.join("autostart/dev.stablehand.tray.desktop"),
                    config_file: config.join("stablehand/config.toml"),
                }
            }
        }
    }

    /// A command of the system by its absolute path: below the folder in a simulated machine.
    pub fn command(&self, absolute: &str) -> PathBuf {
        match &self.world {
            Some(root) => root.join(absolute.trim_start_matches('/')),
            None => PathBuf::from(absolute),
        }
    }

    /// Whether the daemon is installed for every login.
    pub fn daemon_is_installed(&self) -> bool {
        self.daemon_service.is_file()
    }

    /// Whether the face starts at login.
    pub fn starts_at_login(&self) -> bool {
        self.at_login_file.is_file()
    }
}

/// Makes the folder of a file of ours, for its owner alone.
///
/// # Errors
/// When it cannot be made, or belongs to somebody else.
pub fn prepare_folder(file: &Path, uid: u32) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    let folder = file.parent().unwrap_or(file);
    fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    let about = fs::symlink_metadata(folder)?;
    if about.is_dir() && about.uid() == uid {
        return Ok(());
    }
    Err(io::Error::new(io::ErrorKind::PermissionDenied, format!("{} belongs to somebody else", folder.display())))
}

/// The stand-in for a socket's path that is too long, which the daemon finds in the same way (FNV-1a, 64 bits).
fn short_socket(uid: u32, wanted: PathBuf) -> PathBuf {
    let bytes = wanted.as_os_str().as_bytes();
    if bytes.len() <= SOCKET_PATH_LIMIT_BYTES {
        return wanted;
    }
    let hash = bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3));
    PathBuf::from(format!("/tmp/stablehand-{uid}/{hash:016x}.s"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn world(marker: &str) -> (tempfile::TempDir, Result<Place, PlaceError>) {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join(MARKER), marker).unwrap();
        let place = Place::world(dir.path(), rustix::process::getuid().as_raw());
        (dir, place)
    }

    #[test]
    fn a_world_keeps_everything_below_its_home() {
        for (os, home) in [("macos", "/Users/sim"), ("linux", "/home/sim")] {
            let (dir, place) = world(&format!(r#"{{"format":1,"os":"{os}","home":"{home}","more":1}}"#));
            let place = place.unwrap();
            let below = dir.path().canonicalize().unwrap().join(home.trim_start_matches('/'));
            for path in [&place.own_lock, &place.choices_file, &place.daemon_service, &place.at_login_file] {
                assert!(path.starts_with(&below), "{}", path.display());
            }
            assert!(place.command("/bin/launchctl").starts_with(dir.path().canonicalize().unwrap()));
            assert_eq!(place.system.word(), os);
        }
    }

    #[test]
    fn a_folder_that_is_no_world_is_refused() {
        let home = |path: &str| format!(r#"{{"format":1,"os":"macos","home":"{path}"}}"#);
        for marker in
            ["", "{}", r#"{"format":2,"os":"macos","home":"/Users/sim"}"#, &home("Users/sim"), &home("/Users/../..")]
        {
            let (_dir, place) = world(marker);
            assert!(matches!(place, Err(PlaceError::NoWorld { .. })), "{marker}");
        }
        assert!(Place::world(Path::new("/nowhere"), 0).is_err());
    }

    #[test]
    fn the_real_machines_folders_follow_xdg_and_the_stand_in_is_the_daemons() {
        let xdg = |name: &str| Some(PathBuf::from(format!("/x/{name}")));
        let place = Place::of(System::Linux, None, 7, Path::new("/home/you"), &xdg);
        assert_eq!(place.control_socket, Path::new("/x/XDG_RUNTIME_DIR/stablehand/s"));
        assert_eq!(place.gateway_socket, Path::new("/x/XDG_RUNTIME_DIR/stablehand/g"));
        assert_eq!(place.config_file, Path::new("/x/XDG_CONFIG_HOME/stablehand/config.toml"));
        let place = Place::of(System::MacOs, None, 7, Path::new("/Users/you"), &xdg);
        assert_eq!(place.control_socket, Path::new("/Users/you/Library/Application Support/dev.stablehand/s"));
        let long = Path::new("/Users").join("a".repeat(90));
        let place = Place::of(System::MacOs, None, 7, &long, &xdg);
        assert!(place.control_socket.starts_with("/tmp/stablehand-7"));
        assert_ne!(place.control_socket, place.own_socket);
        assert_ne!(place.control_socket, place.gateway_socket);
    }
}
