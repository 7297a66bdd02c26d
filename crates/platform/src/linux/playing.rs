//! A Linux machine whose commands are played from a test's answers.

use crate::machine::Machine;
use crate::testing::world_folder;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// The machine, its answers, and a record of how its commands were called.
pub(crate) struct Player {
    pub machine: Machine,
    _dir: TempDir,
}

impl Player {
    /// A machine with `systemctl` and `pkexec`.
    pub fn new() -> Self {
        let (dir, machine) = world_folder("linux");
        let player = Self { machine, _dir: dir };
        fs::create_dir_all(player.machine.at("/usr/bin")).unwrap();
        fs::create_dir_all(player.machine.at("/answers")).unwrap();
        player.with("systemctl").with("pkexec")
    }

    /// The same machine with one more command.
    pub fn with(self, name: &str) -> Self {
        let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/linux/bin/play-command");
        symlink(program, self.machine.at(&format!("/usr/bin/{name}"))).unwrap();
        self
    }

    /// A command that succeeds and writes this.
    pub fn answers(&self, key: &str, output: &str) {
        fs::write(self.machine.at(&format!("/answers/{key}.out")), output).unwrap();
    }

    /// A command that fails like this.
    pub fn fails(&self, key: &str, code: i32, error: &str) {
        fs::write(self.machine.at(&format!("/answers/{key}.code")), code.to_string()).unwrap();
        fs::write(self.machine.at(&format!("/answers/{key}.err")), format!("{error}\n")).unwrap();
    }

    /// How commands were called so far.
    pub fn calls(&self) -> Vec<String> {
        let text = fs::read_to_string(self.machine.at("/calls")).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    /// Writes a file of the machine.
    pub fn file(&self, absolute: &str, text: &str) -> PathBuf {
        let path = self.machine.at(absolute);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        path
    }
}
