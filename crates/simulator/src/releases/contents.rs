//! What an app and a tarball are made of, as one list for the disk and for archives.

use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use anyhow::{Context, Result};

use super::Release;
use super::flaw::Flaw;
use crate::commands::codesign;
use crate::world::{World, generation, layout, write_whole};

/// The file beside the programs that tells them what is wrong with them.
pub const FLAW: &str = "simulated-flaw";
/// What an archive holds that is not the release it says.
const OTHER_VERSION: &str = "0.20.0";

/// One thing of a tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its path below the root.
    pub path: String,
    /// What it is.
    pub what: What,
}

/// What a thing is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// An empty folder.
    Folder,
    /// This program under another name.
    Program,
    /// A file for everybody to read.
    File(Vec<u8>),
    /// A link.
    Link(String),
}

fn entry(path: &str, what: What) -> Entry {
    Entry { path: path.to_owned(), what }
}

fn file(path: &str, text: &str) -> Entry {
    entry(path, What::File(text.as_bytes().to_vec()))
}

fn link(path: &str, target: &str) -> Entry {
    entry(path, What::Link(target.to_owned()))
}

/// An Ollama.app, below its own folder.
pub fn bundle(release: &Release) -> Vec<Entry> {
    let version = inside(release);
    let mut entries = vec![
        file("Contents/Info.plist", &information(version)),
        file("Contents/PkgInfo", "APPL????"),
        entry("Contents/MacOS/Ollama", What::Program),
        entry("Contents/Resources/ollama", What::Program),
        entry("Contents/Resources/en.lproj", What::Folder),
        entry("Contents/Frameworks/Squirrel.framework/Versions/A/Squirrel", What::Program),
        link("Contents/Frameworks/Squirrel.framework/Versions/Current", "A"),
        link("Contents/Frameworks/Squirrel.framework/Squirrel", "Versions/Current/Squirrel"),
        file("Contents/Library/LaunchAgents/com.ollama.ollama.plist", LOGIN_ITEM),
    ];
    if has_llama_server(release) {
        entries.push(entry("Contents/Resources/llama-server", What::Program));
    }
    match release.flaw {
        Some(Flaw::Unsigned) => {}
        Some(Flaw::BrokenSeal) => entries.push(entry("Contents/_CodeSignature", What::Folder)),
        Some(Flaw::WrongTeam) => entries.push(file(layout::SEAL, &seal(version, Some(codesign::OTHER), true))),
        Some(Flaw::NotNotarised) => entries.push(file(layout::SEAL, &seal(version, None, false))),
        Some(_) | None => entries.push(file(layout::SEAL, &seal(version, None, true))),
    }
    entries.extend(told(release, "Contents/Resources"));
    entries
}

/// What a tarball for Linux holds, and `/usr/local` after it was unpacked there.
pub fn tarball(release: &Release) -> Vec<Entry> {
    let mut entries = vec![
        entry("bin/ollama", What::Program),
        file("lib/ollama/version", inside(release)),
        file("lib/ollama/libggml-base.so.0.0.0", "a library"),
        link("lib/ollama/libggml-base.so.0", "libggml-base.so.0.0.0"),
        link("lib/ollama/libggml-base.so", "libggml-base.so.0"),
    ];
    if has_llama_server(release) {
        entries.push(entry("lib/ollama/llama-server", What::Program));
    }
    entries.extend(told(release, "lib/ollama"));
    entries
}

/// A keg of Homebrew's formula.
pub fn keg(release: &Release) -> Vec<Entry> {
    let mut entries = vec![
        entry("bin/ollama", What::Program),
        file("libexec/lib/ollama/version", inside(release)),
        file("INSTALL_RECEIPT.json", "{\"installed_on_request\":true}"),
    ];
    if has_llama_server(release) {
        entries.push(entry("libexec/lib/ollama/llama-server", What::Program));
    }
    entries.extend(told(release, "libexec/lib/ollama"));
    entries
}

/// The version of what is inside.
fn inside(release: &Release) -> &str {
    if release.has(Flaw::OtherVersionInside) { OTHER_VERSION } else { &release.version }
}

fn has_llama_server(release: &Release) -> bool {
    generation(inside(release)) >= (0, 30) && !release.has(Flaw::LlamaServerMissing)
}

fn told(release: &Release, folder: &str) -> Option<Entry> {
    let flaw = release.flaw.filter(|flaw| flaw.is_behaviour())?;
    Some(file(&format!("{folder}/{FLAW}"), flaw.name()))
}

/// Puts a tree into a folder, with programs that are ready to start.
pub fn put(world: &World, root: &Path, entries: &[Entry]) -> Result<()> {
    for entry in entries {
        let path = root.join(&entry.path);
        match &entry.what {
            What::Folder => std::fs::create_dir_all(&path)?,
            What::Program => layout::install_program(world, &path)?,
            What::File(bytes) => {
                write_whole(&path, bytes)?;
                std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644))?;
            }
            What::Link(target) => {
                std::fs::create_dir_all(path.parent().unwrap_or(root))?;
                symlink(target, &path).with_context(|| format!("cannot create {}", path.display()))?;
            }
        }
    }
    Ok(())
}

/// The seal of a bundle, in the name of a team and its authority or of Ollama's developer.
pub fn seal(version: &str, signer: Option<[&str; 2]>, notarised: bool) -> String {
    let mut entries = vec![("sealed", version)];
    if let Some([team, authority]) = signer {
        entries.extend([("team", team), ("authority", authority)]);
    }
    if !notarised {
        entries.push(("notarised", "no"));
    }
    property_list(&entries)
}

fn information(version: &str) -> String {
    property_list(&[
        ("CFBundleExecutable", "Ollama"),
        ("CFBundleIdentifier", "com.electron.ollama"),
        ("CFBundleName", "Ollama"),
        ("CFBundlePackageType", "APPL"),
        ("CFBundleShortVersionString", version),
        ("CFBundleVersion", version),
        ("LSMinimumSystemVersion", "14.0"),
    ])
}

fn property_list(entries: &[(&str, &str)]) -> String {
    let body: String =
        entries.iter().map(|(key, value)| format!("\t<key>{key}</key>\n\t<string>{value}</string>\n")).collect();
    format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<!DOCTYPE plist PUBLIC \"-//Apple//DTD PLIST 1.0//EN\" \"http://www.apple.com/DTDs/PropertyList-1.0.dtd\">\n<plist version=\"1.0\">\n<dict>\n{body}</dict>\n</plist>\n"
    )
}

const LOGIN_ITEM: &str = r#"<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE plist PUBLIC "-//Apple//DTD PLIST 1.0//EN" "http://www.apple.com/DTDs/PropertyList-1.0.dtd">
<plist version="1.0">
<dict>
	<key>Label</key>
	<string>com.ollama.ollama</string>
	<key>BundleProgram</key>
	<string>Contents/Frameworks/Squirrel.framework/Versions/A/Squirrel</string>
	<key>ProgramArguments</key>
	<array>
		<string>Contents/Frameworks/Squirrel.framework/Versions/A/Squirrel</string>
		<string>background</string>
	</array>
	<key>RunAtLoad</key>
	<true/>
	<key>LimitLoadToSessionType</key>
	<string>Aqua</string>
</dict>
</plist>
"#;

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(entries: &[Entry]) -> Vec<&str> {
        entries.iter().map(|entry| entry.path.as_str()).collect()
    }

    #[test]
    fn llama_server_came_with_0_30_unless_it_was_left_out() {
        let server = "Contents/Resources/llama-server";
        assert!(!paths(&bundle(&Release::sound("0.24.0", 0))).contains(&server));
        assert!(paths(&bundle(&Release::sound("0.30.0", 0))).contains(&server));
        let flaw = Some(Flaw::LlamaServerMissing);
        let bad = Release { flaw, ..Release::sound("0.30.0", 0) };
        assert!(!paths(&bundle(&bad)).contains(&server));
        assert!(!paths(&tarball(&bad)).contains(&"lib/ollama/llama-server"));
    }

    #[test]
    fn only_what_the_programs_do_is_told_to_them() {
        let told = |flaw| {
            let bad = Release { flaw: Some(flaw), ..Release::sound("0.24.0", 0) };
            bundle(&bad).into_iter().find(|entry| entry.path.ends_with(FLAW))
        };
        assert_eq!(told(Flaw::WillNotStart).unwrap().what, What::File(b"will-not-start".to_vec()));
        assert_eq!(told(Flaw::WrongHash), None);
    }
}
