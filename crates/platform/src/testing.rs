//! Folders that look like a simulated world, for unit tests.

use crate::machine::Machine;
use crate::processes;
use stablehand_engine::process::Identity;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use tempfile::TempDir;

/// A world with a marker and a clock at real speed, and nothing in it.
pub(crate) fn world_folder(os: &str) -> (TempDir, Machine) {
    world_at_speed(os, 1.0)
}

/// The same at another speed.
pub(crate) fn world_at_speed(os: &str, speed: f64) -> (TempDir, Machine) {
    let dir = tempfile::tempdir().unwrap();
    let home = if os == "macos" { "/Users/sim" } else { "/home/sim" };
    let marker = format!(
        r#"{{"format":1,"os":"{os}","user":"sim","home":"{home}","port":41873,"ollama":"0.33.0","memory_bytes":68719476736,"gpu_working_set_bytes":51539607552}}"#
    );
    fs::write(dir.path().join("stablehand-world.json"), marker).unwrap();
    let clock =
        format!(r#"{{"speed":{speed:?},"anchor_monotonic_ms":0,"anchor_wall_unix_ms":1796000000000,"slept_ms":0}}"#);
    fs::write(dir.path().join("clock.json"), clock).unwrap();
    fs::create_dir_all(dir.path().join(home.trim_start_matches('/'))).unwrap();
    let machine = Machine::world(dir.path()).unwrap();
    (dir, machine)
}

/// A real process whose program lies in a world; it ends with the test.
pub(crate) struct Napper {
    /// Ours to wait for, unless it is nobody's child.
    child: Option<std::process::Child>,
    /// Which life it is.
    pub(crate) id: Identity,
}

impl Napper {
    /// Starts it from this path inside the world, and waits until it shows its own program.
    pub(crate) fn start(machine: &Machine, below_root: &str) -> Self {
        let program = machine.root().join(below_root);
        copy_program(Path::new("/bin/sleep"), &program);
        let child = std::process::Command::new(&program).arg("60").spawn().unwrap();
        let id = Self::appeared(machine, child.id());
        Self { child: Some(child), id }
    }

    /// Starts it by a shell that ends at once, so that nobody holds it.
    pub(crate) fn orphan(machine: &Machine, below_root: &str) -> Self {
        let program = machine.root().join(below_root);
        copy_program(Path::new("/bin/sleep"), &program);
        let script = "\"$0\" 60 >/dev/null 2>&1 & echo $!";
        let said = std::process::Command::new("/bin/sh").args(["-c", script]).arg(&program).output().unwrap();
        let pid = String::from_utf8(said.stdout).unwrap().trim().parse().unwrap();
        Self { child: None, id: Self::appeared(machine, pid) }
    }

    fn appeared(machine: &Machine, pid: u32) -> Identity {
        let (id, _name) = processes::life_of(pid).unwrap();
        while processes::look_at(machine, id).is_none() {
            std::thread::yield_now();
        }
        id
    }
}

impl Drop for Napper {
    fn drop(&mut self) {
        match &mut self.child {
            Some(child) => {
                let _gone_already = child.kill();
                let _reaped_already = child.wait();
            }
            None => {
                let pid = i32::try_from(self.id.pid).ok().and_then(rustix::process::Pid::from_raw);
                if let Some(pid) = pid.filter(|_| processes::is_alive(self.id)) {
                    let _gone_already = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
                }
            }
        }
    }
}

/// Puts a shell script into a world in place of a system command.
pub(crate) fn fake_command(machine: &Machine, below_root: &str, script: &str) {
    let path = machine.root().join(below_root);
    let source = machine.root().join("script");
    fs::write(&source, format!("#!/bin/sh\n{script}\n")).unwrap();
    copy_program(&source, &path);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
}

/// Copies a program by another process. A file cannot be started while it is open for writing, and a descriptor of
/// ours would be open for a moment in every child that another test starts meanwhile.
pub(crate) fn copy_program(from: &Path, to: &Path) {
    fs::create_dir_all(to.parent().unwrap()).unwrap();
    let status = std::process::Command::new("/bin/cp").args(["-f", "--"]).args([from, to]).status().unwrap();
    assert!(status.success());
}
