//! Starting the face at login: a LaunchAgent on macOS, a desktop entry in `autostart` on Linux.

use crate::kept_file;
use crate::place::{Place, System};
use std::io;
use std::path::Path;

const AGENT: &str = include_str!("../../launchd/dev.stablehand.tray.plist");
const AGENT_PROGRAM: &str = "/Applications/Stablehand.app/Contents/MacOS/stablehand-tray";
const ENTRY: &str = include_str!("../../packaging/linux/dev.stablehand.tray.desktop");
const ENTRY_PROGRAM: &str = "Exec=stablehand-tray";

/// Makes it start at login, or no longer. Nothing is started or ended now.
///
/// # Errors
/// When the file cannot be changed; it is as it was.
pub fn set(place: &Place, program: &Path, on: bool) -> io::Result<()> {
    if !on {
        return kept_file::remove(&place.at_login_file);
    }
    let contents = contents(place.system, program)
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "the program's own path is no text"))?;
    kept_file::write(&place.at_login_file, contents.as_bytes(), 0o644)
}

fn contents(system: System, program: &Path) -> Option<String> {
    let program = program.to_str()?;
    match system {
        System::MacOs => Some(AGENT.replace(AGENT_PROGRAM, &in_xml(program))),
        System::Linux => Some(ENTRY.replace(ENTRY_PROGRAM, &format!("Exec={}", in_exec(program)?))),
    }
}

fn in_xml(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// A quoted argument of `Exec` (Desktop Entry Specification: the string's own escapes, then those of the quotes, and
/// `%` doubled); a path with a line break in it cannot be written.
fn in_exec(text: &str) -> Option<String> {
    if text.contains(['\n', '\r', '\t']) {
        return None;
    }
    let mut quoted = String::from("\"");
    for symbol in text.chars() {
        match symbol {
            '\\' => quoted.push_str("\\\\\\\\"),
            '"' | '`' | '$' => {
                quoted.push_str("\\\\");
                quoted.push(symbol);
            }
            '%' => quoted.push_str("%%"),
            other => quoted.push(other),
        }
    }
    quoted.push('"');
    Some(quoted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_files_start_this_very_program() {
        let agent = contents(System::MacOs, Path::new("/A & B/stablehand-tray")).unwrap();
        assert!(agent.contains("<string>/A &amp; B/stablehand-tray</string>") && !agent.contains("/Applications/"));
        let entry = contents(System::Linux, Path::new("/opt/100% $x/stablehand-tray")).unwrap();
        assert!(entry.contains("\nExec=\"/opt/100%% \\\\$x/stablehand-tray\"\n"), "{entry}");
        assert_eq!(contents(System::Linux, Path::new("/a\nExec=evil")), None);
    }
}
