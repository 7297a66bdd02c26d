//! `codesign(1)` and `spctl(8)`. A bundle of the simulator counts as signed by
//! whoever its `_CodeSignature/CodeResources` names, Ollama's developer where it
//! names nobody, as long as its seal is whole.

use std::path::Path;

use crate::wire::Reply;
use crate::world::World;
use crate::world::layout::SEAL;

/// Ollama's developer, as team and authority.
const OLLAMA: [&str; 2] = ["3MU9H2V9Y9", "Developer ID Application: Infra Technologies, Inc"];
/// Another developer.
pub const OTHER: [&str; 2] = ["K7QX2D4M9B", "Developer ID Application: Example Tools Ltd"];

/// Who signed a bundle.
struct Signer {
    team: String,
    authority: String,
    notarised: bool,
}

/// What is wrong with a bundle.
#[derive(Debug, PartialEq, Eq)]
enum Seal {
    Whole,
    Unsealed,
    Broken,
    Unsigned,
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
    if shows && seal == Seal::Unsigned {
        return unsigned(path);
    }
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
        Seal::Unsigned => return unsigned(path),
        Seal::Whole | Seal::Absent => {}
    }
    if requirement(arguments).is_some_and(|wanted| !satisfies(&signer(path), &wanted)) {
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
    let Signer { team, authority, notarised } = signer(path);
    match inspect(Path::new(path)) {
        Seal::Whole if Path::new(path).join("Contents").is_dir() && !path.trim_end_matches('/').ends_with(".app") => {
            let words = "the code is valid but does not seem to be an app";
            reply(3, format!("{path}: rejected ({words})\norigin={authority} ({team})\n"))
        }
        Seal::Whole if !notarised => {
            reply(3, format!("{path}: rejected\nsource=Unnotarized Developer ID\norigin={authority} ({team})\n"))
        }
        Seal::Whole => {
            reply(0, format!("{path}: accepted\nsource=Notarized Developer ID\norigin={authority} ({team})\n"))
        }
        Seal::Unsealed => reply(
            3,
            format!("{path}: rejected (unsealed contents present in the bundle root)\norigin={authority} ({team})\n"),
        ),
        Seal::Broken => reply(
            3,
            format!("{path}: rejected (a sealed resource is missing or invalid)\norigin={authority} ({team})\n"),
        ),
        Seal::Unsigned => reply(3, format!("{path}: rejected\nsource=no usable signature\n")),
        Seal::Absent => reply(1, format!("{path}: No such file or directory\n")),
    }
}

fn unsigned(path: &str) -> Reply {
    Reply::failed(1, format!("{path}: code object is not signed at all"))
}

fn signer(path: &str) -> Signer {
    let file = Path::new(path).join(SEAL);
    let value = plist::Value::from_file(file).ok();
    let named = |key: &str| Some(value.as_ref()?.as_dictionary()?.get(key)?.as_string()?.to_owned());
    let [team, authority] = OLLAMA;
    Signer {
        team: named("team").unwrap_or_else(|| team.to_owned()),
        authority: named("authority").unwrap_or_else(|| authority.to_owned()),
        notarised: named("notarised").is_none_or(|word| word != "no"),
    }
}

/// What `-R` asks for: text behind a `=`, in the same word or the next.
fn requirement(arguments: &[String]) -> Option<String> {
    let at = arguments.iter().position(|word| word.starts_with("-R"))?;
    let own = &arguments[at][2..];
    let wanted = if own.is_empty() { arguments.get(at + 1)? } else { own };
    Some(wanted.trim_start_matches('=').to_owned())
}

/// Whether a signature satisfies a requirement on identifier and team.
fn satisfies(signer: &Signer, wanted: &str) -> bool {
    let team = !wanted.contains("subject.OU") || wanted.contains(&format!("\"{}\"", signer.team));
    let identifier = !wanted.contains("identifier ")
        || wanted.contains("com.electron.ollama")
        || wanted.contains("ai.ollama.ollama");
    team && identifier
}

/// Whether a bundle has a whole seal, whoever signed it.
pub fn is_sealed(bundle: &Path) -> bool {
    inspect(bundle) == Seal::Whole
}

fn inspect(path: &Path) -> Seal {
    if !path.exists() {
        return Seal::Absent;
    }
    let contents = path.join("Contents");
    if !contents.is_dir() {
        return Seal::Whole;
    }
    if !contents.join("_CodeSignature").is_dir() {
        return Seal::Unsigned;
    }
    let beside = std::fs::read_dir(path).into_iter().flatten().flatten().any(|entry| entry.file_name() != "Contents");
    if beside {
        return Seal::Unsealed;
    }
    let current = contents.join("Frameworks/Squirrel.framework/Versions/Current");
    let whole = path.join(SEAL).is_file()
        && contents.join("MacOS/Ollama").is_file()
        && contents.join("Resources/ollama").is_file()
        && current.is_symlink();
    if whole { Seal::Whole } else { Seal::Broken }
}

fn display(path: &str) -> String {
    let Signer { team, authority, notarised } = signer(path);
    let ticket = if notarised { "Notarization Ticket=stapled\n" } else { "" };
    let executable = Path::new(path).join("Contents/MacOS/Ollama");
    format!(
        "Executable={}\nIdentifier=com.electron.ollama\nFormat=app bundle with Mach-O universal (x86_64 arm64)\nCodeDirectory v=20500 size=632 flags=0x10000(runtime) hashes=9+7 location=embedded\nHash type=sha256 size=32\nCDHash=7d1f0a93c25be84460d3b9f1c8e25a7730b4e6d1\nSignature size=9046\nAuthority={authority} ({team})\nAuthority=Developer ID Certification Authority\nAuthority=Apple Root CA\nTimestamp=Aug 21, 2026 at 18:02:11\n{ticket}Info.plist entries=31\nTeamIdentifier={team}\nRuntime Version=15.5.0\nSealed Resources version=2 rules=13 files=214\nInternal requirements count=1 size=180\n",
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
        assert_eq!(inspect(&bundle), Seal::Unsigned);
        std::fs::create_dir_all(bundle.join("Contents/_CodeSignature")).unwrap();
        assert_eq!(inspect(&bundle), Seal::Broken);
        std::fs::write(bundle.join("note"), "").unwrap();
        assert_eq!(inspect(&bundle), Seal::Unsealed);
        assert_eq!(inspect(&folder.path().join("none")), Seal::Absent);
    }

    #[test]
    fn requirements_name_the_team_and_the_identifier() {
        let [team, authority] = OLLAMA.map(str::to_owned);
        let signer = Signer { team, authority, notarised: true };
        assert!(satisfies(&signer, "anchor apple generic"));
        assert!(satisfies(&signer, "identifier \"com.electron.ollama\" and leaf[subject.OU] = \"3MU9H2V9Y9\""));
        assert!(!satisfies(&signer, "identifier \"com.example\" and leaf[subject.OU] = \"3MU9H2V9Y9\""));
        assert!(!satisfies(&signer, "leaf[subject.OU] = \"3MU9\""));
    }

    #[test]
    fn a_requirement_is_the_rest_of_its_word_or_the_next_one() {
        let asked = |words: &[&str]| requirement(&words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>());
        assert_eq!(asked(&["--verify", "-R", "=anchor apple", "/A"]).as_deref(), Some("anchor apple"));
        assert_eq!(asked(&["--verify", "-R=anchor apple", "/A"]).as_deref(), Some("anchor apple"));
        assert_eq!(asked(&["--verify", "/A"]), None);
    }
}
