//! What several tests need: a simulated machine in a folder.

use crate::configuration::Configuration;
use stablehand_platform::machine::Machine;
use std::path::Path;

/// A machine whose Ollama has port 21434 and whose time runs as real time.
pub fn machine(folder: &Path) -> Machine {
    let marker = r#"{"format":1,"os":"linux","user":"sim","home":"/home/sim","port":21434}"#;
    std::fs::write(folder.join("stablehand-world.json"), marker).unwrap();
    let clock = r#"{"speed":1.0,"anchor_monotonic_ms":0,"anchor_wall_unix_ms":0,"slept_ms":0}"#;
    std::fs::write(folder.join("clock.json"), clock).unwrap();
    Machine::world(folder).unwrap()
}

/// What holds there when nothing is written.
pub fn configuration() -> Configuration {
    let folder = tempfile::tempdir().unwrap();
    Configuration::of(&machine(folder.path()))
}
