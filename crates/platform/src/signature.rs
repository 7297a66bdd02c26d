//! Whether an app is Ollama's own and unchanged, by `codesign(1)` and `spctl(8)`.

use crate::command::{CommandError, Invocation, Output, run};
use crate::machine::Machine;
use stablehand_engine::plan::{Again, StepFailure};
use stablehand_engine::upgrade::deed::{BUNDLE_IDENTIFIER, TEAM_ID};
use std::path::Path;
use std::time::Duration;

/// A whole bundle of some gigabytes is read and hashed.
const CHECK: Duration = Duration::from_secs(300);

/// Seal and signer: every nested program, and the requirement on identifier and team.
pub fn verification(machine: &Machine, bundle: &Path) -> Invocation {
    codesign(machine).args(["--verify", "--deep", "--strict", "-R"]).arg(requirement()).arg(bundle)
}

/// What Gatekeeper says of starting it. It looks at the signature and the notarisation, marked or not.
pub fn assessment(machine: &Machine, bundle: &Path) -> Invocation {
    Invocation::new(machine.at("/usr/sbin/spctl")).args(["-a", "-vv", "-t", "exec"]).arg(bundle).timeout(CHECK)
}

fn description(machine: &Machine, bundle: &Path) -> Invocation {
    codesign(machine).args(["-d", "--verbose=4"]).arg(bundle)
}

fn codesign(machine: &Machine) -> Invocation {
    Invocation::new(machine.at("/usr/bin/codesign")).timeout(CHECK)
}

/// The `=` makes it a requirement and not the path of a file with one.
fn requirement() -> String {
    format!(
        "=anchor apple generic and identifier \"{BUNDLE_IDENTIFIER}\" and certificate leaf[subject.OU] = \"{TEAM_ID}\""
    )
}

/// How a verification ended.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Verified {
    Sound,
    OtherSigner,
    Unsigned,
    Broken(String),
    Unknown(String),
}

/// `codesign(1)`: 0 is sound, 1 is not, 3 is sound but for the requirement.
fn verified(output: &Output) -> Verified {
    let untold = ["No such file", "internal error", "Permission denied", "Operation not permitted"];
    match output.code {
        Some(0) => Verified::Sound,
        Some(3) => Verified::OtherSigner,
        Some(1) if output.stderr.contains("not signed at all") => Verified::Unsigned,
        Some(1) if !untold.iter().any(|words| output.stderr.contains(words)) => Verified::Broken(reason(output)),
        Some(_) | None => Verified::Unknown(output.said()),
    }
}

/// How an assessment ended.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Assessed {
    Accepted(String),
    Rejected(String),
    Unknown(String),
}

/// `spctl(8)`: 0 accepts, 3 rejects, everything else is no verdict.
fn assessed(output: &Output) -> Assessed {
    let accepts = output.stderr.lines().chain(output.stdout.lines()).any(|line| line.ends_with(": accepted"));
    match output.code {
        Some(0) if accepts => Assessed::Accepted(source(output)),
        Some(3) => Assessed::Rejected(reason(output)),
        Some(_) | None => Assessed::Unknown(output.said()),
    }
}

/// What follows the path in the first line, e.g. `rejected (a sealed resource is missing or invalid)`, with the line
/// that names the source.
fn reason(output: &Output) -> String {
    let first = output.stderr.lines().next().unwrap_or_default();
    let words = first.rsplit_once(": ").map_or(first, |(_path, words)| words);
    match source(output).as_str() {
        "" => words.to_owned(),
        source => format!("{words}, {source}"),
    }
}

fn source(output: &Output) -> String {
    output.stderr.lines().find_map(|line| line.strip_prefix("source=")).unwrap_or_default().to_owned()
}

/// The team in a description, which goes to standard error.
fn team(output: &Output) -> Option<&str> {
    let team = output.stderr.lines().find_map(|line| line.strip_prefix("TeamIdentifier="))?;
    (team != "not set").then_some(team)
}

/// What to do with an app that is not as Ollama signed it.
const ANEW: &str = "if it is meant to be Ollama, do not open it: remove it and install Ollama anew from ollama.com; \
                    Stablehand clears no other app";

/// Checks seal and signer; what was found, in words.
///
/// # Errors
/// A [`StepFailure`] unless the app is Ollama's own and unchanged. Nothing is changed by it.
pub async fn verify(machine: &Machine, bundle: &Path) -> Result<String, StepFailure> {
    let shown = bundle.display();
    match verified(&run(machine, &verification(machine, bundle)).await.map_err(|error| not_run(&error))?) {
        Verified::Sound => Ok(format!("sealed and signed as {BUNDLE_IDENTIFIER} by team {TEAM_ID}")),
        Verified::OtherSigner => {
            let described = run(machine, &description(machine, bundle)).await.map_err(|error| not_run(&error))?;
            let signer = team(&described).map_or("by no team".to_owned(), |team| format!("by team {team}"));
            let words = format!("{shown} is signed {signer}, and Ollama is {BUNDLE_IDENTIFIER} of team {TEAM_ID}");
            Err(refused("signature-other-team", &words))
        }
        Verified::Unsigned => Err(refused("signature-missing", &format!("{shown} is not signed at all"))),
        Verified::Broken(why) => {
            Err(refused("signature-broken", &format!("the signature of {shown} is broken: {why}")))
        }
        Verified::Unknown(why) => Err(unknown(format!("the signature of {shown} could not be checked: {why}"))),
    }
}

/// Asks macOS whether it accepts the app; its answer in words.
///
/// # Errors
/// A [`StepFailure`] unless it does. Nothing is changed by it.
pub async fn assess(machine: &Machine, bundle: &Path) -> Result<String, StepFailure> {
    let shown = bundle.display();
    match assessed(&run(machine, &assessment(machine, bundle)).await.map_err(|error| not_run(&error))?) {
        Assessed::Accepted(source) if source.is_empty() => Ok("accepted by macOS".to_owned()),
        Assessed::Accepted(source) => Ok(format!("accepted by macOS ({source})")),
        Assessed::Rejected(why) => {
            Err(refused("signature-not-accepted", &format!("macOS does not accept {shown}: {why}")))
        }
        Assessed::Unknown(why) => Err(unknown(format!("macOS does not say whether it accepts {shown}: {why}"))),
    }
}

fn refused(code: &'static str, words: &str) -> StepFailure {
    StepFailure { code, message: format!("{words}; nothing was changed"), hint: ANEW.to_owned(), again: Again::Never }
}

fn not_run(error: &CommandError) -> StepFailure {
    unknown(error.to_string())
}

fn unknown(words: String) -> StepFailure {
    StepFailure {
        code: "signature-unknown",
        message: format!("{words}; nothing was changed"),
        hint: "run it in a terminal that is not sandboxed, then try again".to_owned(),
        again: Again::Never,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{fake_command, world_folder};

    fn ended(code: i32, stderr: &str) -> Output {
        Output { code: Some(code), stderr: stderr.to_owned(), ..Output::default() }
    }

    #[test]
    fn the_commands_pin_identifier_and_team() {
        let (_dir, machine) = world_folder("macos");
        let bundle = Path::new("/Applications/Ollama.app");
        let root = machine.root().display().to_string();
        let typed = verification(&machine, bundle).to_string().replace(&root, "");
        assert_eq!(
            typed,
            "/usr/bin/codesign --verify --deep --strict -R '=anchor apple generic and identifier \
             \"com.electron.ollama\" and certificate leaf[subject.OU] = \"3MU9H2V9Y9\"' /Applications/Ollama.app"
        );
        let typed = assessment(&machine, bundle).to_string().replace(&root, "");
        assert_eq!(typed, "/usr/sbin/spctl -a -vv -t exec /Applications/Ollama.app");
    }

    #[test]
    fn what_codesign_says_is_told_apart() {
        let app = "/Applications/Ollama.app";
        assert_eq!(verified(&ended(0, "")), Verified::Sound);
        let failed = "test-requirement: code failed to satisfy specified code requirement(s)";
        assert_eq!(verified(&ended(3, failed)), Verified::OtherSigner);
        let unsigned = format!("{app}: code object is not signed at all\nIn architecture: arm64\n");
        assert_eq!(verified(&ended(1, &unsigned)), Verified::Unsigned);
        let broken = "unsealed contents present in the bundle root";
        assert_eq!(verified(&ended(1, &format!("{app}: {broken}\n"))), Verified::Broken(broken.to_owned()));
        for untold in
            [ended(1, &format!("{app}: internal error in Code Signing subsystem")), ended(2, "Usage: codesign")]
        {
            assert!(matches!(verified(&untold), Verified::Unknown(_)), "{untold:?}");
        }
        assert!(matches!(verified(&Output { signal: Some(9), ..Output::default() }), Verified::Unknown(_)));
    }

    #[test]
    fn what_spctl_says_is_told_apart() {
        let accepted = "/A/O.app: accepted\nsource=Notarized Developer ID\norigin=Developer ID Application: X (3MU9)\n";
        assert_eq!(assessed(&ended(0, accepted)), Assessed::Accepted("Notarized Developer ID".to_owned()));
        let rejected = "/A/O.app: rejected\nsource=Unnotarized Developer ID\n";
        assert_eq!(assessed(&ended(3, rejected)), Assessed::Rejected("rejected, Unnotarized Developer ID".to_owned()));
        let broken = "/A/O.app: rejected (unsealed contents present in the bundle root)\norigin=Developer ID\n";
        let why = "rejected (unsealed contents present in the bundle root)";
        assert_eq!(assessed(&ended(3, broken)), Assessed::Rejected(why.to_owned()));
        for untold in [ended(0, ""), ended(1, "/A/O.app: internal error in Code Signing subsystem"), ended(4, "")] {
            assert!(matches!(assessed(&untold), Assessed::Unknown(_)), "{untold:?}");
        }
    }

    #[tokio::test]
    async fn each_command_alone_can_refuse() {
        let (_dir, machine) = world_folder("macos");
        let bundle = machine.at("/Applications/Ollama.app");
        fake_command(&machine, "usr/bin/codesign", "exit 0");
        fake_command(&machine, "usr/sbin/spctl", "echo '/A/O.app: accepted\nsource=Notarized Developer ID' >&2");
        assert!(verify(&machine, &bundle).await.unwrap().contains(TEAM_ID));
        assert_eq!(assess(&machine, &bundle).await.unwrap(), "accepted by macOS (Notarized Developer ID)");
        fake_command(&machine, "usr/sbin/spctl", "echo '/A/O.app: rejected' >&2; exit 3");
        assert_eq!(assess(&machine, &bundle).await.unwrap_err().code, "signature-not-accepted");
        let other = "case \"$1\" in --verify) exit 3;; esac; echo TeamIdentifier=ABCDE12345 >&2";
        fake_command(&machine, "usr/bin/codesign", other);
        let failure = verify(&machine, &bundle).await.unwrap_err();
        assert_eq!(failure.code, "signature-other-team");
        assert!(failure.message.contains("by team ABCDE12345"), "{failure}");
        std::fs::remove_file(machine.at("/usr/bin/codesign")).unwrap();
        assert_eq!(verify(&machine, &bundle).await.unwrap_err().code, "signature-unknown");
    }
}
