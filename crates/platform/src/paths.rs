//! Where Stablehand keeps its own files.

use crate::launchd;
use crate::machine::{Machine, Os};
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Name of our folder and bundle on macOS.
const MACOS_NAME: &str = "dev.stablehand";

/// Name of our folder on Linux.
const LINUX_NAME: &str = "stablehand";

/// Label of the menu's agent, and name of its desktop entry.
const MENU: &str = "dev.stablehand.tray";

/// `sockaddr_un.sun_path` holds 104 bytes on macOS, with the closing NUL.
const SOCKET_PATH_LIMIT_BYTES: usize = 103;

/// Stablehand's own files and folders.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Paths {
    /// What a person wants, in TOML.
    pub config_file: PathBuf,
    /// What the daemon remembers.
    pub data_dir: PathBuf,
    /// What the daemon logs, and the log of a server that we run ourselves.
    pub log_dir: PathBuf,
    /// The control socket.
    pub socket: PathBuf,
    /// The gateway's control socket.
    pub gateway_socket: PathBuf,
    /// Held by the one daemon that runs.
    pub lock: PathBuf,
    /// Where the service manager looks for agents or units of this user.
    pub services_dir: PathBuf,
    /// What starts the menu at login; the menu itself writes it, when a person wants that.
    pub menu_at_login: PathBuf,
}

/// Where versions of a user's server lie side by side on Linux: a link leads there, so it may be another volume.
pub fn versions_of_the_user(machine: &Machine) -> PathBuf {
    stablehand_files(machine).data_dir.join("upgrades/versions")
}

/// The same for a service of the system, which runs as a user of its own and must start nothing that anybody but root
/// can write.
pub fn versions_of_the_system(machine: &Machine) -> PathBuf {
    machine.at("/usr/local/lib/stablehand/versions")
}

/// Both.
pub fn versions_folders(machine: &Machine) -> [PathBuf; 2] {
    [versions_of_the_system(machine), versions_of_the_user(machine)]
}

/// Stablehand's files on this machine. In a world they lie below the world's home, whatever `XDG_*` says.
pub fn stablehand_files(machine: &Machine) -> Paths {
    match machine.os() {
        Os::MacOs => {
            let data_dir = machine.home().join("Library/Application Support").join(MACOS_NAME);
            Paths {
                config_file: data_dir.join("config.toml"),
                log_dir: machine.home().join("Library/Logs").join(MACOS_NAME),
                socket: short_socket(machine, data_dir.join("s")),
                gateway_socket: short_socket(machine, data_dir.join("g")),
                lock: data_dir.join("lock"),
                services_dir: launchd::launch_agents_dir(machine),
                menu_at_login: launchd::plist_of(machine, MENU),
                data_dir,
            }
        }
        Os::Linux => {
            let home = |below: &str| machine.home().join(below);
            let config = xdg(machine, "XDG_CONFIG_HOME").unwrap_or_else(|| home(".config"));
            let state = xdg(machine, "XDG_STATE_HOME").unwrap_or_else(|| home(".local/state"));
            let data_dir = state.join(LINUX_NAME);
            let socket_dir =
                xdg(machine, "XDG_RUNTIME_DIR").map_or_else(|| data_dir.clone(), |runtime| runtime.join(LINUX_NAME));
            Paths {
                config_file: config.join(LINUX_NAME).join("config.toml"),
                log_dir: data_dir.join("log"),
                socket: short_socket(machine, socket_dir.join("s")),
                gateway_socket: short_socket(machine, socket_dir.join("g")),
                lock: data_dir.join("lock"),
                services_dir: config.join("systemd/user"),
                menu_at_login: config.join("autostart").join(format!("{MENU}.desktop")),
                data_dir,
            }
        }
    }
}

/// Makes the folder of the control socket, for its owner alone.
///
/// # Errors
/// When it cannot be made, or the stand-in folder for long paths belongs to somebody else: whoever owns it could
/// answer in the daemon's place.
pub fn prepare_socket_folder(machine: &Machine) -> io::Result<()> {
    let socket = stablehand_files(machine).socket;
    let folder = socket.parent().unwrap_or(&socket);
    DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    let about = fs::symlink_metadata(folder)?;
    if !about.is_dir() || about.uid() != machine.uid() {
        let message = format!("{} belongs to somebody else; it was not used", folder.display());
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, message));
    }
    if folder == stand_in_folder(machine) && about.mode() & 0o077 != 0 {
        fs::set_permissions(folder, fs::Permissions::from_mode(0o700))?;
    }
    Ok(())
}

fn xdg(machine: &Machine, name: &str) -> Option<PathBuf> {
    if machine.simulated().is_some() {
        return None;
    }
    // The specification tells to ignore relative paths.
    std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute())
}

/// A socket's path has little room; a long one gets a short stand-in that is found again from the long one.
fn short_socket(machine: &Machine, wanted: PathBuf) -> PathBuf {
    let bytes = wanted.as_os_str().as_bytes();
    if bytes.len() <= SOCKET_PATH_LIMIT_BYTES {
        return wanted;
    }
    stand_in_folder(machine).join(format!("{:016x}.s", fnv1a_64(bytes)))
}

fn stand_in_folder(machine: &Machine) -> PathBuf {
    Path::new("/tmp").join(format!("stablehand-{}", machine.uid()))
}

/// FNV-1a (Fowler, Noll, Vo), 64 bits: the same in every build, which the standard library's hasher does not promise.
fn fnv1a_64(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::world_folder;

    #[test]
    fn a_world_keeps_everything_below_its_home() {
        for os in ["macos", "linux"] {
            let (_dir, machine) = world_folder(os);
            let paths = stablehand_files(&machine);
            let Paths { config_file, data_dir, log_dir, lock, services_dir, menu_at_login, .. } = &paths;
            for path in [config_file, data_dir, log_dir, lock, services_dir, menu_at_login] {
                assert!(path.starts_with(machine.home()), "{}", path.display());
            }
        }
    }

    #[test]
    fn a_long_socket_path_gets_a_short_one_that_stays_the_same() {
        let (_dir, machine) = world_folder("macos");
        let long = machine.home().join("x".repeat(100)).join("s");
        let short = short_socket(&machine, long.clone());
        assert!(short.as_os_str().len() <= SOCKET_PATH_LIMIT_BYTES);
        assert!(short.starts_with(format!("/tmp/stablehand-{}", machine.uid())));
        assert_eq!(short, short_socket(&machine, long.clone()));
        assert_ne!(short, short_socket(&machine, long.join("t")));
        let fits = machine.home().join("s");
        assert_eq!(short_socket(&machine, fits.clone()), fits);
    }

    #[test]
    fn the_hash_is_the_published_one() {
        assert_eq!(fnv1a_64(b""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(fnv1a_64(b"a"), 0xaf63_dc4c_8601_ec8c);
    }
}
