//! Hand-made setters: other people's agents that run `launchctl setenv OLLAMA_…` at login.
//!
//! Two setters would fight at every login, in no fixed order. One that does nothing else is adopted: a copy is kept
//! in our data folder, the job is taken out of launchd, the file leaves the agents' folder. Uninstalling puts it back.
//! One that also does other things is left alone, and named when it would set something else than we do.

use super::property_list::PropertyList;
use super::{daemon_agent, env_agent, launch_agents_dir};
use crate::change::Change;
use crate::files;
use crate::machine::Machine;
use crate::paths;
use crate::server_variables::is_server_variable;
use stablehand_engine::plan::{Again, StepFailure};
use stablehand_engine::setting::{Name, Value, Values};
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

/// A script longer than this is no hand-made setter.
const SCRIPT_LIMIT_BYTES: u64 = 64 * 1024;

/// Commands in a setter's script that have no effect of their own.
const HARMLESS: [&str; 7] = [":", "true", "exit", "set", "sleep", "echo", "exec"];

/// An agent that sets variables of the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setter {
    /// Its launchd label.
    pub label: String,
    /// Its file.
    pub plist: PathBuf,
    /// What it sets, where that is written out.
    pub values: Values,
    /// Names whose values it works out when it runs.
    pub computed: BTreeSet<String>,
    /// What it does besides; it is only adopted when this is empty.
    pub also_does: Vec<String>,
}

/// Every hand-made setter of this user.
pub fn setters(machine: &Machine) -> Vec<Setter> {
    let ours = [env_agent::LABEL, daemon_agent::LABEL];
    let mut found: Vec<Setter> = plists_in(&launch_agents_dir(machine))
        .into_iter()
        .filter(|path| path.file_stem().and_then(OsStr::to_str).is_none_or(|stem| !ours.contains(&stem)))
        .filter_map(|path| setter(machine, path))
        .collect();
    found.sort_by(|a, b| a.plist.cmp(&b.plist));
    found
}

/// The changes that adopt every setter that does nothing else.
///
/// # Errors
/// A [`StepFailure`] when a setter that does other things too would set one of `values` differently: it would win or
/// lose at every login by chance.
pub fn adopt(machine: &Machine, values: &Values) -> Result<Vec<Change>, StepFailure> {
    let mut changes = Vec::new();
    for setter in setters(machine) {
        if setter.also_does.is_empty() {
            changes.extend(adopt_one(machine, setter)?);
        } else if let Some(name) = clash(&setter, values) {
            return Err(StepFailure {
                code: "hand-made-setter",
                message: format!(
                    "{} sets {name} at every login too, and also does other things ({}), so it was left as it is and \
                     nothing was changed",
                    setter.plist.display(),
                    setter.also_does.join("; "),
                ),
                hint: format!("take the lines with `launchctl setenv {name}` out of it"),
                again: Again::Never,
            });
        }
    }
    Ok(changes)
}

/// The changes that put every adopted setter back.
pub fn restore(machine: &Machine) -> Vec<Change> {
    let mut changes = Vec::new();
    for kept in plists_in(&adopted_dir(machine)) {
        let Some(name) = kept.file_name() else { continue };
        let plist = launch_agents_dir(machine).join(name);
        if fs::symlink_metadata(&plist).is_ok() {
            // Somebody has made it anew; theirs counts.
            continue;
        }
        let label = read(&kept).and_then(|list| list.text("Label").map(str::to_owned));
        changes.push(Change::Move { from: kept, to: plist.clone() });
        changes.extend(label.map(|label| Change::Load { label, plist }));
    }
    changes
}

fn adopt_one(machine: &Machine, setter: Setter) -> Result<[Change; 3], StepFailure> {
    let name = setter.plist.file_name().unwrap_or_default();
    let kept = adopted_dir(machine).join(name);
    let contents = files::read(&setter.plist)?.unwrap_or_default();
    let before = files::read(&kept)?;
    Ok([
        Change::Write { path: kept, mode: env_agent::PLIST_MODE, contents, before },
        Change::Unload { label: setter.label },
        Change::Remove { path: setter.plist },
    ])
}

fn clash(setter: &Setter, values: &Values) -> Option<String> {
    let differs = |(name, value): (&Name, &Value)| values.get(name).is_some_and(|ours| ours != value);
    let written = setter.values.iter().find(|pair| differs(*pair)).map(|(name, _)| name.to_string());
    let computed = || {
        let known = |name: &&String| values.keys().any(|ours| ours.as_str() == name.as_str());
        setter.computed.iter().find(known).cloned()
    };
    written.or_else(computed)
}

fn adopted_dir(machine: &Machine) -> PathBuf {
    paths::stablehand_files(machine).data_dir.join("adopted")
}

fn plists_in(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
    let mut plists: Vec<_> = paths.filter(|path| path.extension() == Some(OsStr::new("plist"))).collect();
    plists.sort();
    plists
}

/// A file that is no property list sets nothing: launchd does not load it either.
fn read(path: &Path) -> Option<PropertyList> {
    PropertyList::look(path).ok()?
}

fn setter(machine: &Machine, plist: PathBuf) -> Option<Setter> {
    let list = read(&plist)?;
    let arguments = list.arguments();
    let commands = match arguments.as_slice() {
        [] => return None,
        [shell, flag, script, ..] if is_shell(shell) && flag.starts_with('-') && flag.ends_with('c') => {
            commands(script)
        }
        [shell, file, ..] if is_shell(shell) => commands(&script_file(machine, file)?),
        [program, ..] if names_launchctl(program) => vec![arguments.iter().map(|word| (*word).to_owned()).collect()],
        [program, ..] => commands(&script_file(machine, program)?),
    };
    let mut found = Setter {
        label: list.text("Label")?.to_owned(),
        plist,
        values: Values::new(),
        computed: BTreeSet::new(),
        also_does: Vec::new(),
    };
    commands.iter().for_each(|command| take_in(&mut found, command));
    (!found.values.is_empty() || !found.computed.is_empty()).then_some(found)
}

fn take_in(found: &mut Setter, command: &[String]) {
    let mut words = command.iter().map(String::as_str).peekable();
    if words.peek() == Some(&"exec") {
        words.next();
    }
    let words: Vec<_> = words.collect();
    match words.as_slice() {
        [program, "setenv", name, rest @ ..] if names_launchctl(program) && is_server_variable(name) => {
            let text = rest.first().copied().unwrap_or_default();
            match (Name::try_new(name), Value::try_new(text)) {
                (Ok(name), Ok(value)) if !text.contains(['$', '`']) => {
                    found.values.insert(name, value);
                }
                (Ok(_) | Err(_), _) => {
                    found.computed.insert((*name).to_owned());
                }
            }
        }
        [] => {}
        [first, ..] if HARMLESS.contains(first) => {}
        [..] => found.also_does.push(words.join(" ")),
    }
}

fn script_file(machine: &Machine, path: &str) -> Option<String> {
    let path = Path::new(path);
    let about = fs::metadata(path).ok()?;
    // Inside a world only its own files count; a program of the host is nobody's script there.
    let readable = machine.allow_write(path).is_ok() && about.is_file() && about.len() <= SCRIPT_LIMIT_BYTES;
    let text = readable.then(|| fs::read_to_string(path).ok())??;
    text.contains("setenv").then_some(text)
}

fn is_shell(program: &str) -> bool {
    matches!(program.rsplit('/').next(), Some("sh" | "bash" | "zsh" | "dash" | "ksh"))
}

fn names_launchctl(program: &str) -> bool {
    program.rsplit('/').next() == Some("launchctl")
}

/// The simple commands of a shell script as words, with quotes taken off. Expansions stay as they are written; this
/// reads what people write into such agents, it is no shell.
fn commands(script: &str) -> Vec<Vec<String>> {
    let mut commands = Vec::new();
    let mut command = Vec::new();
    let mut word: Option<String> = None;
    let mut characters = script.chars().peekable();
    while let Some(character) = characters.next() {
        match character {
            '\'' => {
                let text = word.get_or_insert_default();
                text.extend(characters.by_ref().take_while(|next| *next != '\''));
            }
            '"' => {
                let text = word.get_or_insert_default();
                while let Some(next) = characters.next() {
                    match next {
                        '"' => break,
                        '\\' => text.extend(characters.next()),
                        other => text.push(other),
                    }
                }
            }
            '\\' => match characters.next() {
                // A line that goes on.
                Some('\n') | None => {}
                Some(escaped) => word.get_or_insert_default().push(escaped),
            },
            '#' if word.is_none() => while characters.next_if(|next| *next != '\n').is_some() {},
            ';' | '&' | '|' | '\n' | '(' | ')' => {
                command.extend(word.take());
                if !command.is_empty() {
                    commands.push(std::mem::take(&mut command));
                }
            }
            blank if blank.is_whitespace() => command.extend(word.take()),
            other => word.get_or_insert_default().push(other),
        }
    }
    command.extend(word);
    if !command.is_empty() {
        commands.push(command);
    }
    commands
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server_variables::server_values;
    use crate::testing::world_folder;

    const HAND_MADE: &str = include_str!("../../fixtures/hand-made-setter.plist");

    #[test]
    fn a_setter_through_a_shell_is_found_with_its_values() {
        let (_dir, machine) = world_folder("macos");
        place(&machine, "ai.ollama.envsetter.plist", HAND_MADE);
        place(&machine, "com.example.other.plist", &plist(&["/usr/bin/true"]));
        place(&machine, "broken.plist", "no plist");
        let found = setters(&machine);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].label, "ai.ollama.envsetter");
        assert_eq!(
            found[0].values,
            server_values([
                ("OLLAMA_NUM_PARALLEL", "4"),
                ("OLLAMA_KEEP_ALIVE", "24h"),
                ("OLLAMA_HOST", "127.0.0.1:11434")
            ])
        );
        assert!(found[0].also_does.is_empty());
    }

    #[test]
    fn a_direct_call_and_a_script_file_are_found_too() {
        let (_dir, machine) = world_folder("macos");
        place(&machine, "a.plist", &plist(&["/bin/launchctl", "setenv", "OLLAMA_MAX_QUEUE", "512"]));
        let script = machine.home().join("set.sh");
        fs::write(&script, "#!/bin/sh\n# mine\nset -e\nlaunchctl setenv OLLAMA_MODELS \"$HOME/m\"\n").unwrap();
        place(&machine, "b.plist", &plist(&["/bin/zsh", script.to_str().unwrap()]));
        let found = setters(&machine);
        assert_eq!(found[0].values, server_values([("OLLAMA_MAX_QUEUE", "512")]));
        assert!(found[1].values.is_empty());
        assert_eq!(found[1].computed.first().map(String::as_str), Some("OLLAMA_MODELS"));
        assert!(found[1].also_does.is_empty());
    }

    #[test]
    fn adopting_keeps_a_copy_then_unloads_then_removes() {
        let (_dir, machine) = world_folder("macos");
        let placed = place(&machine, "ai.ollama.envsetter.plist", HAND_MADE);
        let changes = adopt(&machine, &Values::new()).unwrap();
        let kept = adopted_dir(&machine).join("ai.ollama.envsetter.plist");
        assert_eq!(
            changes,
            [
                Change::Write { path: kept, mode: 0o644, contents: HAND_MADE.as_bytes().to_vec(), before: None },
                Change::Unload { label: "ai.ollama.envsetter".to_owned() },
                Change::Remove { path: placed },
            ]
        );
    }

    #[test]
    fn a_setter_that_does_more_is_left_and_named_only_when_it_clashes() {
        let (_dir, machine) = world_folder("macos");
        let script = "launchctl setenv OLLAMA_NUM_PARALLEL 4; launchctl setenv EDITOR vi";
        place(&machine, "mixed.plist", &plist(&["/bin/sh", "-lc", script]));
        assert_eq!(adopt(&machine, &server_values([("OLLAMA_NUM_PARALLEL", "4")])).unwrap(), []);
        let failure = adopt(&machine, &server_values([("OLLAMA_NUM_PARALLEL", "1")])).unwrap_err();
        assert_eq!(failure.code, "hand-made-setter");
        assert!(failure.message.contains("setenv EDITOR vi"));
    }

    #[test]
    fn restoring_puts_the_file_back_and_loads_it_unless_it_was_made_anew() {
        let (_dir, machine) = world_folder("macos");
        let kept = adopted_dir(&machine).join("ai.ollama.envsetter.plist");
        files::write_atomically(&machine, &kept, HAND_MADE.as_bytes(), 0o644).unwrap();
        let plist = launch_agents_dir(&machine).join("ai.ollama.envsetter.plist");
        assert_eq!(
            restore(&machine),
            [
                Change::Move { from: kept, to: plist.clone() },
                Change::Load { label: "ai.ollama.envsetter".to_owned(), plist },
            ]
        );
        place(&machine, "ai.ollama.envsetter.plist", HAND_MADE);
        assert_eq!(restore(&machine), []);
    }

    #[test]
    fn quotes_comments_and_line_ends_are_read_like_a_shell_does() {
        assert_eq!(
            commands("a 'b c' \"d \\\"e\"# f\n  g \\\n h # comment; x\ni&&j||k"),
            [vec!["a", "b c", "d \"e#", "f"], vec!["g", "h"], vec!["i"], vec!["j"], vec!["k"]]
        );
    }

    fn place(machine: &Machine, name: &str, text: &str) -> PathBuf {
        let path = launch_agents_dir(machine).join(name);
        files::write_atomically(machine, &path, text.as_bytes(), 0o644).unwrap();
        path
    }

    fn plist(arguments: &[&str]) -> String {
        let strings: String = arguments.iter().map(|argument| format!("<string>{argument}</string>")).collect();
        format!(
            "<plist version=\"1.0\"><dict><key>Label</key><string>com.example.x</string>\
             <key>ProgramArguments</key><array>{strings}</array></dict></plist>"
        )
    }
}
