//! `brew(1)`: prefixes, the `ollama` service, the formula `ollama` and the cask `ollama-app`. What it can install is what
//! the world has published.

mod packages;
mod services;

use crate::wire::Reply;
use crate::world::World;
use packages::Package;

/// The cask that has the app.
pub const CASK: &str = "ollama-app";

/// Runs the command.
pub fn run(world: &World, arguments: &[String]) -> Reply {
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let has = |flag: &str| words.contains(&flag);
    let flags = |word: &&&str| word.starts_with("--json") || SILENT.contains(*word) || KINDS.contains(*word);
    let plain: Vec<&str> = words.iter().filter(|word| !flags(word)).copied().collect();
    let as_json = words.iter().any(|word| word.starts_with("--json"));
    let prefix = world.path("/opt/homebrew");
    let shown = |path: std::path::PathBuf| Reply::said(format!("{}\n", path.display()));
    let package = |name: &str| match name {
        CASK if !has("--formula") => Some(Package::Cask),
        "ollama" if !has("--cask") => Some(Package::Formula),
        _ => None,
    };
    let unknown = |name: &str| {
        Reply::failed(
            1,
            if has("--cask") {
                format!("Error: Cask '{name}' is unavailable: No Cask with this name exists.")
            } else {
                format!("Error: No available formula with the name \"{name}\".")
            },
        )
    };
    let about = |name: &str, act: &dyn Fn(&World, Package) -> Reply| {
        package(name).map_or_else(|| unknown(name), |package| act(world, package))
    };
    match plain.as_slice() {
        ["--prefix"] => shown(prefix),
        ["--prefix", formula] => shown(prefix.join("opt").join(formula)),
        ["--caskroom"] => shown(prefix.join("Caskroom")),
        ["--cellar"] => shown(prefix.join("Cellar")),
        ["--version"] => Reply::said("Homebrew 7.0.8\n"),
        ["list", "--versions"] => packages::list(world),
        ["list", "--versions", name] => about(name, &packages::version),
        ["list"] if has("--cask") => packages::casks(world),
        ["info", name] if as_json => about(name, &packages::information),
        ["outdated"] if as_json => packages::outdated(world),
        ["fetch", name] => about(name, &packages::fetch),
        ["upgrade", name] => about(name, &packages::upgrade),
        ["update"] => packages::wait(world),
        ["services", words @ ..] => services::run(world, words, as_json).unwrap_or_else(|| refused(arguments)),
        _ => refused(arguments),
    }
}

/// Flags that change nothing here.
const SILENT: [&str; 6] = ["--quiet", "-q", "--verbose", "-v", "--greedy", "--force"];
/// Flags that say which of two packages of one name is meant.
const KINDS: [&str; 2] = ["--cask", "--formula"];

fn refused(arguments: &[String]) -> Reply {
    Reply::failed(1, format!("Error: Unknown command: brew {}", arguments.join(" ")))
}
