//! Homebrew's part: what it would install, and letting it. Its own messages are the reason of a fault.

use serde_json::Value;
use stablehand_engine::upgrade::fault::Fault;
use stablehand_engine::upgrade::order::{Order, Switch};
use stablehand_platform::command::{Invocation, Output, run};
use stablehand_platform::machine::Machine;
use stablehand_platform::processes::ProcessTable;
use std::path::PathBuf;
use std::time::Duration;

/// Where Homebrew lies, by the kind of computer (`docs.brew.sh/Installation`).
pub(super) const PREFIXES: [&str; 2] = ["/opt/homebrew", "/usr/local"];
/// A download of some hundred MB on a slow line.
const FETCH: Duration = Duration::from_secs(21_600);
const UPGRADE: Duration = Duration::from_secs(1_800);
const INFO: Duration = Duration::from_secs(60);

/// What Homebrew knows by a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Package {
    /// A cask.
    Cask(String),
    /// The formula `ollama`.
    Formula,
}

/// The program, where there is one.
pub(super) fn program(machine: &Machine) -> Option<PathBuf> {
    PREFIXES.iter().map(|prefix| machine.at(prefix).join("bin/brew")).find(|brew| brew.is_file())
}

/// The version that Homebrew would install.
///
/// # Errors
/// Why it could not be had.
pub(super) async fn offered(machine: &Machine, package: &Package) -> Result<String, String> {
    let asked = brew(machine)?.args(["info", "--json=v2"]).args(words(package)).timeout(INFO);
    let output = run(machine, &asked).await.map_err(|error| error.to_string())?;
    if !output.succeeded() {
        return Err(last_words(&output));
    }
    let told: Value = serde_json::from_str(&output.stdout).map_err(|error| format!("`brew info`: {error}"))?;
    let version = match package {
        Package::Cask(_) => &told["casks"][0]["version"],
        Package::Formula => &told["formulae"][0]["versions"]["stable"],
    };
    version.as_str().map(str::to_owned).ok_or_else(|| "`brew info` tells no version".to_owned())
}

/// Downloads what an upgrade needs.
///
/// # Errors
/// A [`Fault`].
pub(super) async fn fetch(machine: &Machine, order: &Order) -> Result<String, Fault> {
    perform(machine, "fetch", order, FETCH).await
}

/// Lets Homebrew upgrade it.
///
/// # Errors
/// A [`Fault`].
pub(super) async fn upgrade(machine: &Machine, order: &Order) -> Result<String, Fault> {
    perform(machine, "upgrade", order, UPGRADE).await
}

/// Whether Homebrew runs, as a phrase.
pub(super) fn at_work(machine: &Machine) -> Option<String> {
    let processes = ProcessTable::new(machine.clone()).look();
    let is_brew = |argument: &String| argument.ends_with("/brew.rb") || argument.ends_with("/bin/brew");
    let works = processes.into_iter().find(|process| process.argv.known().is_some_and(|argv| argv.iter().any(is_brew)));
    works.map(|process| format!("Homebrew runs (pid {})", process.id.pid))
}

async fn perform(machine: &Machine, verb: &str, order: &Order, allowance: Duration) -> Result<String, Fault> {
    let package = match &order.switch {
        Switch::Cask { token } => Package::Cask(token.clone()),
        Switch::Formula | Switch::Renames | Switch::Link => Package::Formula,
    };
    let asked = brew(machine).map_err(Fault::Brew)?.arg(verb).args(words(&package)).timeout(allowance);
    let output = run(machine, &asked).await.map_err(|error| Fault::Brew(error.to_string()))?;
    if output.succeeded() { Ok(String::new()) } else { Err(Fault::Brew(last_words(&output))) }
}

fn brew(machine: &Machine) -> Result<Invocation, String> {
    let program = program(machine).ok_or_else(|| "no Homebrew was found on this machine".to_owned())?;
    Ok(Invocation::new(program).env("HOMEBREW_NO_ENV_HINTS", "1").env("HOMEBREW_NO_ASK", "1"))
}

fn words(package: &Package) -> Vec<&str> {
    match package {
        Package::Cask(token) => vec!["--cask", token],
        Package::Formula => vec!["--formula", "ollama"],
    }
}

fn last_words(output: &Output) -> String {
    let said = output.said();
    said.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("it ended without a word").to_owned()
}
