//! `open(1)`: hands apps to launchd and everything else to nobody.

use std::path::{Path, PathBuf};

use crate::app::gui::HIDDEN;
use crate::launchd::apps::Opening;
use crate::launchd::{Request, SERVICE};
use crate::wire::{self, Reply};
use crate::world::World;

/// What was asked for.
#[derive(Debug, Default, PartialEq, Eq)]
struct Call {
    app: Option<String>,
    bundle_id: Option<String>,
    fresh: bool,
    hidden: bool,
    targets: Vec<String>,
    environment: Vec<(String, String)>,
    arguments: Vec<String>,
}

/// Runs the command.
pub fn run(world: &World, arguments: &[String]) -> Reply {
    let call = match parse(arguments) {
        Ok(call) => call,
        Err(reply) => return reply,
    };
    let bundle = match (&call.app, &call.bundle_id) {
        (Some(app), _) => match find_app(world, app) {
            Some(bundle) => bundle,
            None => {
                return Reply::failed(1, format!("Unable to find application named '{app}'"));
            }
        },
        (None, Some(id)) => match find_app(world, "Ollama").filter(|_| id == "com.electron.ollama") {
            Some(bundle) => bundle,
            None => {
                return Reply::failed(
                    1,
                    format!(
                        "LSCopyApplicationURLsForBundleIdentifier() failed while trying to determine the application with bundle identifier {id}."
                    ),
                );
            }
        },
        (None, None) => match call.targets.first() {
            Some(target) if target.ends_with(".app") || target.ends_with(".app/") => {
                let path = world.resolve(target);
                if !path.exists() {
                    return Reply::failed(1, format!("The file {target} does not exist."));
                }
                path
            }
            // Web addresses and settings pages open in apps that are not played.
            Some(_) => return Reply::quiet(),
            None => {
                return Reply::failed(
                    1,
                    "Usage: open [-e] [-t] [-f] [-W] [-R] [-n] [-g] [-h] [-s <partial SDK name>][-b <bundle identifier>] [-a <application>] [-u URL] [filenames] [--args arguments]",
                );
            }
        },
    };
    // The caller's own variables are inherited by the app; so are those of --env.
    let environment = std::env::vars()
        .filter(|(key, _)| key.starts_with("OLLAMA_") || key.starts_with("LLAMA_ARG_"))
        .chain(call.environment)
        .chain(call.hidden.then(|| (HIDDEN.to_owned(), "1".to_owned())))
        .collect();
    let opening = Opening { bundle, arguments: call.arguments, environment, fresh: call.fresh };
    match wire::ask(world, SERVICE, &Request::Open(opening)) {
        // launchd tells the pid; open does not.
        Ok(reply) => Reply { stdout: String::new(), ..reply },
        Err(error) => Reply::failed(1, format!("{error:#}")),
    }
}

fn parse(arguments: &[String]) -> Result<Call, Reply> {
    let mut call = Call::default();
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        match word.as_str() {
            "--args" => {
                call.arguments = words.cloned().collect();
                break;
            }
            "--env" => {
                let pair = words.next().cloned().unwrap_or_default();
                if let Some((key, value)) = pair.split_once('=') {
                    call.environment.push((key.to_owned(), value.to_owned()));
                }
            }
            "--stdout" | "--stderr" | "--stdin" | "-o" | "-i" | "--arch" => {
                words.next();
            }
            "--new" => call.fresh = true,
            "--hide" => call.hidden = true,
            "--background" | "--fresh" => {}
            "-a" => call.app = words.next().cloned(),
            "-b" => call.bundle_id = words.next().cloned(),
            "-u" => call.targets.extend(words.next().cloned()),
            flags if flags.starts_with('-') && !flags.starts_with("--") => {
                for flag in flags.chars().skip(1) {
                    match flag {
                        'n' => call.fresh = true,
                        'a' => call.app = words.next().cloned(),
                        'b' => call.bundle_id = words.next().cloned(),
                        'j' => call.hidden = true,
                        'g' | 'F' | 'W' | 'R' | 'e' | 't' | 'f' | 'h' => {}
                        other => {
                            return Err(Reply::failed(1, format!("open: invalid option -- {other}")));
                        }
                    }
                }
            }
            target => call.targets.push(target.to_owned()),
        }
    }
    Ok(call)
}

fn find_app(world: &World, name: &str) -> Option<PathBuf> {
    if name.contains('/') {
        let path = world.resolve(name.trim_end_matches('/'));
        return path.join("Contents").is_dir().then_some(path);
    }
    let file = if name.ends_with(".app") { name.to_owned() } else { format!("{name}.app") };
    let folders = [world.path("/Applications"), world.home().join("Applications")];
    folders
        .iter()
        .flat_map(|folder| std::fs::read_dir(folder).into_iter().flatten().flatten())
        .map(|entry| entry.path())
        .find(|path| same_name(path, &file))
}

/// Application names are compared without case.
fn same_name(path: &Path, wanted: &str) -> bool {
    path.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.eq_ignore_ascii_case(wanted))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_values_and_arguments_are_told_apart() {
        let line = "-g -j -a /Applications/Ollama.app --env A=1 --args hidden -n";
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        let call = parse(&words).unwrap();
        assert_eq!(call.app.as_deref(), Some("/Applications/Ollama.app"));
        assert_eq!(call.environment, [("A".to_owned(), "1".to_owned())]);
        assert_eq!(call.arguments, ["hidden", "-n"]);
        assert!(!call.fresh);
    }

    #[test]
    fn joined_flags_are_read_letter_by_letter() {
        let words = ["-gnja", "X"].map(str::to_owned);
        let call = parse(&words).unwrap();
        assert!(call.fresh);
        assert_eq!(call.app.as_deref(), Some("X"));
        assert!(parse(&["-z".to_owned()]).is_err());
    }
}
