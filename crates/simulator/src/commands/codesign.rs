//! `codesign(1)` and `spctl(8)`. A bundle of the simulator counts as signed by
//! Ollama's developer as long as its seal is whole.

use std::path::Path;

use crate::wire::Reply;
use crate::world::World;

const TEAM: &str = "3MU9H2V9Y9";
const AUTHORITY: &str = "Developer ID Application: Infra Technologies, Inc";

/// What is wrong with a bundle.
#[derive(Debug, PartialEq, Eq)]
enum Seal {
    Whole,
    Unsealed,
    Broken,
    Absent,
}

/// Runs `codesign`.
pub fn codesign(_world: &World, arguments: &[String]) -> Reply {
    let Some(path) = arguments.last().filter(|word| !word.starts_with('-')) else {
        return Reply::failed(
            2,
            "Usage: codesign -v [-R=<req string>|-R <req file path>] [--[v]arch <arch>] <[+]pid|path>",
        );
    };
    let seal = inspect(Path::new(path));
    if seal == Seal::Absent {
        return Reply::failed(1, format!("{path}: No such file or directory"));
    }
    let has = |wanted: &str| arguments.iter().any(|word| word == wanted);
    let shows = has("-dv") || has("-d") || has("--display") || has("-dvv") || has("-dvvv");
    if shows {
        return Reply { code: 0, stdout: String::new(), stderr: display(path) };
    }
    match seal {
        Seal::Unsealed => {
            return Reply::failed(1, format!("{path}: unsealed contents present in the bundle root"));
        }
        Seal::Broken => {
            return Reply::failed(1, format!("{path}: a sealed resource is missing or invalid"));
        }
        Seal::Whole | Seal::Absent => {}
    }
    let requirement = arguments.iter().find_map(|word| word.strip_prefix("-R=").map(str::to_owned));
    if let Some(requirement) = requirement
        && (!requirement.contains(TEAM) || foreign_identifier(&requirement))
    {
        return Reply::failed(
            3,
            format!("{path}: valid on disk\ntest-requirement: code failed to satisfy specified code requirement(s)"),
        );
    }
    let verbose =
        arguments.iter().any(|word| word.starts_with("--verbose") || matches!(word.as_str(), "-v" | "-vv" | "-vvv"));
    if verbose {
        return Reply {
            code: 0,
            stdout: String::new(),
            stderr: format!("{path}: valid on disk\n{path}: satisfies its Designated Requirement\n"),
        };
    }
    Reply::quiet()
}

/// Runs `spctl`. Its verdicts go to standard error.
pub fn spctl(_world: &World, arguments: &[String]) -> Reply {
    if arguments.iter().any(|word| word == "--status") {
        return Reply::said("assessments enabled\n");
    }
    let Some(path) = arguments.last().filter(|word| !word.starts_with('-')) else {
        return Reply::failed(2, "System Policy Basic Usage:");
    };
    let reply = |code, text: String| Reply { code, stdout: String::new(), stderr: text };
    match inspect(Path::new(path)) {
        Seal::Whole => {
            reply(0, format!("{path}: accepted\nsource=Notarized Developer ID\norigin={AUTHORITY} ({TEAM})\n"))
        }
        Seal::Unsealed => reply(
            3,
            format!("{path}: rejected (unsealed contents present in the bundle root)\norigin={AUTHORITY} ({TEAM})\n"),
        ),
        Seal::Broken => reply(
            3,
            format!("{path}: rejected (a sealed resource is missing or invalid)\norigin={AUTHORITY} ({TEAM})\n"),
        ),
        Seal::Absent => reply(1, format!("{path}: No such file or directory\n")),
    }
}

fn foreign_identifier(requirement: &str) -> bool {
    requirement.contains("identifier ")
        && !requirement.contains("com.electron.ollama")
        && !requirement.contains("ai.ollama.ollama")
}

fn inspect(path: &Path) -> Seal {
    if !path.exists() {
        return Seal::Absent;
    }
    let contents = path.join("Contents");
    if !contents.is_dir() {
        return Seal::Whole;
    }
    let beside = std::fs::read_dir(path).into_iter().flatten().flatten().any(|entry| entry.file_name() != "Contents");
    if beside {
        return Seal::Unsealed;
    }
    let current = contents.join("Frameworks/Squirrel.framework/Versions/Current");
    let whole = contents.join("_CodeSignature/CodeResources").is_file()
        && contents.join("MacOS/Ollama").is_file()
        && contents.join("Resources/ollama").is_file()
        && current.is_symlink();
    if whole { Seal::Whole } else { Seal::Broken }
}

fn display(path: &str) -> String {
    let executable = Path::new(path).join("Contents/MacOS/Ollama");
    format!(
        "Executable={}\nIdentifier=com.electron.ollama\nFormat=app bundle with Mach-O universal (x86_64 arm64)\nCodeDirectory v=20500 size=632 flags=0x10000(runtime) hashes=9+7 location=embedded\nHash type=sha256 size=32\nCDHash=7d1f0a93c25be84460d3b9f1c8e25a7730b4e6d1\nSignature size=9046\nAuthority={AUTHORITY} ({TEAM})\nAuthority=Developer ID Certification Authority\nAuthority=Apple Root CA\nTimestamp=Aug 21, 2026 at 18:02:11\nNotarization Ticket=stapled\nInfo.plist entries=31\nTeamIdentifier={TEAM}\nRuntime Version=15.5.0\nSealed Resources version=2 rules=13 files=214\nInternal requirements count=1 size=180\n",
        executable.display()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_beside_contents_breaks_the_seal() {
        let folder = tempfile::tempdir().unwrap();
        let bundle = folder.path().join("X.app");
        std::fs::create_dir_all(bundle.join("Contents")).unwrap();
        assert_eq!(inspect(&bundle), Seal::Broken);
        std::fs::write(bundle.join("note"), "").unwrap();
        assert_eq!(inspect(&bundle), Seal::Unsealed);
        assert_eq!(inspect(&folder.path().join("none")), Seal::Absent);
    }

    #[test]
    fn requirements_name_the_team_and_the_identifier() {
        assert!(!foreign_identifier("identifier \"com.electron.ollama\""));
        assert!(foreign_identifier("identifier \"com.example\""));
        assert!(!foreign_identifier("anchor apple generic"));
    }
}
