//! The agent that keeps the settings over a new login: `~/Library/LaunchAgents/dev.stablehand.ollama-env.plist`.
//!
//! Its `EnvironmentVariables` are the persisted layer. launchd gives them only to the agent's own program, which is
//! `stablehand publish` and hands them on to the whole session. The file may be edited by hand: keys and variables
//! that are not ours stay as they are.

use super::plist_of;
use super::property_list::{PropertyList, PropertyListError};
use crate::change::Change;
use crate::files::FileError;
use crate::machine::Machine;
use crate::server_variables::{is_server_variable, server_values};
use plist::{Dictionary, Value};
use stablehand_engine::Known;
use stablehand_engine::plan::{Again, StepFailure};
use stablehand_engine::setting::Values;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Its label.
pub const LABEL: &str = "dev.stablehand.ollama-env";

/// launchd refuses a plist that others may write (`launchd.plist(5)`).
pub(crate) const PLIST_MODE: u32 = 0o644;

const TEMPLATE: &str = include_str!("../../../../launchd/dev.stablehand.ollama-env.plist");
const VARIABLES: &str = "EnvironmentVariables";

/// Where the file lies.
pub fn path(machine: &Machine) -> PathBuf {
    plist_of(machine, LABEL)
}

/// The persisted values: what the file says, and nothing when there is no file.
pub fn persisted(machine: &Machine) -> Known<Values> {
    let path = path(machine);
    let list = match PropertyList::read(&path) {
        Ok(Some((list, _bytes))) => list,
        Ok(None) => return Known::Is(Values::new()),
        Err(error) => return Known::unknown(error.to_string()),
    };
    match list.top.get(VARIABLES) {
        None => Known::Is(Values::new()),
        Some(Value::Dictionary(variables)) => match text_of_each(variables) {
            Ok(pairs) => Known::Is(server_values(pairs)),
            Err(name) => Known::unknown(format!("{}: {name} is not a <string>", path.display())),
        },
        Some(_) => Known::unknown(format!("{}: {VARIABLES} is not a <dict>", path.display())),
    }
}

/// The change that makes the file carry exactly these values of ours, or nothing when it does already.
///
/// `program` is our own binary, for a file that names none that exists.
///
/// # Errors
/// A [`StepFailure`] when the file is there and cannot be worked with; it is left as it is then.
pub fn persist(machine: &Machine, values: &Values, program: &Path) -> Result<Option<Change>, StepFailure> {
    let path = path(machine);
    let found = PropertyList::read(&path).map_err(unusable)?;
    let (mut list, before) = match found {
        Some((list, bytes)) => (list, Some(bytes)),
        None => (PropertyList::parse(&path, TEMPLATE.as_bytes()).map_err(unusable)?, None),
    };
    let untouched = list.clone();
    fill(&mut list, values, program).map_err(|what| StepFailure {
        code: "env-plist-not-strings",
        message: format!("{}: {what}, which launchd does not take; the file was left as it is", path.display()),
        hint: format!("write it as a <string>, or take the file away: {}", crate::command::quoted_path(&path)),
        again: Again::Never,
    })?;
    if before.is_some() && list == untouched && mode_suits(&path) {
        return Ok(None);
    }
    let contents = list.bytes().map_err(unusable)?;
    Ok(Some(Change::Write { path, mode: PLIST_MODE, contents, before }))
}

/// The change that makes the file run `program` at login; none when there is no file, or it does already.
///
/// # Errors
/// A [`StepFailure`] when the file is there and cannot be worked with; it is left as it is then.
pub fn run_at_login(machine: &Machine, program: &Path) -> Result<Option<Change>, StepFailure> {
    let path = path(machine);
    let Some((mut list, bytes)) = PropertyList::read(&path).map_err(unusable)? else { return Ok(None) };
    if list.arguments() == [program.to_string_lossy().as_ref(), "publish"] {
        return Ok(None);
    }
    name_program(&mut list, program);
    let contents = list.bytes().map_err(unusable)?;
    Ok(Some(Change::Write { path, mode: PLIST_MODE, contents, before: Some(bytes) }))
}

fn fill(list: &mut PropertyList, values: &Values, program: &Path) -> Result<(), String> {
    let mut variables = match list.top.get(VARIABLES) {
        None => Dictionary::new(),
        Some(Value::Dictionary(variables)) => variables.clone(),
        Some(_) => return Err(format!("{VARIABLES} is not a <dict>")),
    };
    text_of_each(&variables).map_err(|name| format!("the value of {name} is not a <string>"))?;
    variables.retain(|name, _| !is_server_variable(name));
    for (name, value) in values {
        variables.insert(name.to_string(), Value::String(value.to_string()));
    }
    list.top.insert(VARIABLES.to_owned(), Value::Dictionary(variables));
    list.top.insert("Label".to_owned(), Value::String(LABEL.to_owned()));
    list.top.insert("RunAtLoad".to_owned(), Value::Boolean(true));
    let runs_us = list.arguments().get(1) == Some(&"publish")
        && list.arguments().first().is_some_and(|named| Path::new(named).is_file());
    if !runs_us {
        name_program(list, program);
    }
    Ok(())
}

fn name_program(list: &mut PropertyList, program: &Path) {
    let arguments = [program.to_string_lossy().into_owned(), "publish".to_owned()].map(Value::String);
    list.top.insert("ProgramArguments".to_owned(), Value::Array(arguments.into()));
    list.top.remove("Program");
}

/// Every variable with its text; the name of the first that is no text otherwise.
fn text_of_each(variables: &Dictionary) -> Result<Vec<(&str, &str)>, String> {
    let texts = variables.iter().map(|(name, value)| match value.as_string() {
        Some(text) => Ok((name.as_str(), text)),
        None => Err(name.clone()),
    });
    texts.collect()
}

fn mode_suits(path: &Path) -> bool {
    let ours = rustix::process::getuid().as_raw();
    fs::metadata(path).is_ok_and(|about| about.mode() & 0o777 == PLIST_MODE && about.uid() == ours)
}

fn unusable(error: PropertyListError) -> StepFailure {
    match error {
        PropertyListError::File(error @ FileError::Symlink(_)) => {
            StepFailure { code: "env-plist-is-a-link", ..error.into() }
        }
        PropertyListError::File(error) => error.into(),
        PropertyListError::NotAPlist { ref path, .. } | PropertyListError::NotADictionary(ref path) => StepFailure {
            code: "env-plist-unreadable",
            message: format!("{error}; the file was left as it is"),
            hint: format!(
                "repair it (plutil -lint shows where) or move it away: {}",
                crate::command::quoted_path(path)
            ),
            again: Again::Never,
        },
        PropertyListError::NotWritten(_) => StepFailure {
            code: "env-plist-not-written",
            message: format!("{error}; the file was left as it is"),
            hint: "remove characters that a property list cannot hold from the values".to_owned(),
            again: Again::Never,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::super::property_list::Form;
    use super::*;
    use crate::files::write_atomically;
    use crate::testing::world_folder;
    use std::os::unix::fs::{PermissionsExt, symlink};

    const EDITED: &str = include_str!("../../fixtures/env-agent.edited.plist");

    #[test]
    fn a_new_file_carries_the_values_and_runs_publish_at_load() {
        let (_dir, machine) = world_folder("macos");
        let change = persist(&machine, &serial(), Path::new("/opt/stablehand")).unwrap().unwrap();
        let (list, mode) = written(&change);
        assert_eq!(mode, 0o644);
        assert_eq!(list.arguments(), ["/opt/stablehand", "publish"]);
        assert_eq!(list.top.get("RunAtLoad"), Some(&Value::Boolean(true)));
        assert_eq!(list.top.get("AssociatedBundleIdentifiers").and_then(Value::as_array).map(Vec::len), Some(1));
        put(&machine, &change);
        assert_eq!(persisted(&machine), Known::Is(serial()));
        assert_eq!(persist(&machine, &Values::new(), Path::new("/x")).unwrap().map(|_| ()), Some(()));
    }

    #[test]
    fn keys_and_variables_of_a_person_are_kept_and_ours_are_replaced() {
        let (_dir, machine) = world_folder("macos");
        write_atomically(&machine, &path(&machine), EDITED.as_bytes(), 0o644).unwrap();
        let change = persist(&machine, &serial(), Path::new("/opt/stablehand")).unwrap().unwrap();
        let (list, _) = written(&change);
        let variables = list.top.get(VARIABLES).and_then(Value::as_dictionary).unwrap();
        assert_eq!(variables.get("HF_HOME").and_then(Value::as_string), Some("/Volumes/big/hf"));
        assert_eq!(variables.get("OLLAMA_NUM_PARALLEL").and_then(Value::as_string), Some("1"));
        assert!(!variables.contains_key("OLLAMA_KEEP_ALIVE"));
        assert_eq!(list.top.get("Nice").and_then(Value::as_signed_integer), Some(5));
    }

    #[test]
    fn a_file_that_says_it_already_is_not_written_unless_others_may_write_it() {
        let (_dir, machine) = world_folder("macos");
        let program = machine.home().join("stablehand");
        fs::write(&program, "").unwrap();
        put(&machine, &persist(&machine, &serial(), &program).unwrap().unwrap());
        assert_eq!(persist(&machine, &serial(), Path::new("/newer")).unwrap(), None);
        fs::set_permissions(path(&machine), fs::Permissions::from_mode(0o666)).unwrap();
        assert!(persist(&machine, &serial(), &program).unwrap().is_some());
    }

    #[test]
    fn an_install_points_the_file_at_its_program_and_changes_nothing_else() {
        let (_dir, machine) = world_folder("macos");
        assert_eq!(run_at_login(&machine, Path::new("/new/stablehand")).unwrap(), None);
        write_atomically(&machine, &path(&machine), EDITED.as_bytes(), 0o644).unwrap();
        let change = run_at_login(&machine, Path::new("/new/stablehand")).unwrap().unwrap();
        let (list, _) = written(&change);
        assert_eq!(list.arguments(), ["/new/stablehand", "publish"]);
        assert_eq!(list.top.get(VARIABLES).and_then(Value::as_dictionary).map(Dictionary::len), Some(3));
        put(&machine, &change);
        assert_eq!(run_at_login(&machine, Path::new("/new/stablehand")).unwrap(), None);
    }

    #[test]
    fn a_binary_file_stays_binary() {
        let (_dir, machine) = world_folder("macos");
        let mut list = PropertyList::parse(Path::new("x"), EDITED.as_bytes()).unwrap();
        list.form = Form::Binary;
        write_atomically(&machine, &path(&machine), &list.bytes().unwrap(), 0o644).unwrap();
        let change = persist(&machine, &serial(), Path::new("/opt/stablehand")).unwrap().unwrap();
        let Change::Write { contents, .. } = &change else { panic!("{change:?}") };
        assert!(contents.starts_with(b"bplist00"));
        assert!(persisted(&machine).known().is_some());
    }

    #[test]
    fn files_that_cannot_be_worked_with_are_left_and_named() {
        let (_dir, machine) = world_folder("macos");
        let path = path(&machine);
        let try_with = |text: &str| {
            write_atomically(&machine, &path, text.as_bytes(), 0o644).unwrap();
            let failure = persist(&machine, &serial(), Path::new("/opt/stablehand")).unwrap_err();
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
            assert!(failure.message.contains("left as it is"), "{}", failure.message);
            assert!(persisted(&machine).known().is_none());
            failure.code
        };
        assert_eq!(try_with("OLLAMA_NUM_PARALLEL=1\n"), "env-plist-unreadable");
        assert_eq!(try_with("<plist version=\"1.0\"><array/></plist>"), "env-plist-unreadable");
        let number = EDITED.replace("<string>24h</string>", "<integer>24</integer>");
        assert_eq!(try_with(&number), "env-plist-not-strings");
    }

    #[test]
    fn a_link_is_never_written_through() {
        let (_dir, machine) = world_folder("macos");
        let elsewhere = machine.home().join("dotfiles.plist");
        fs::write(&elsewhere, EDITED).unwrap();
        fs::create_dir_all(path(&machine).parent().unwrap()).unwrap();
        symlink(&elsewhere, path(&machine)).unwrap();
        let failure = persist(&machine, &serial(), Path::new("/opt/stablehand")).unwrap_err();
        assert_eq!(failure.code, "env-plist-is-a-link");
        assert_eq!(fs::read_to_string(&elsewhere).unwrap(), EDITED);
    }

    fn serial() -> Values {
        server_values([("OLLAMA_NUM_PARALLEL", "1"), ("OLLAMA_MAX_QUEUE", "10")])
    }

    fn written(change: &Change) -> (PropertyList, u32) {
        let Change::Write { path, mode, contents, .. } = change else { panic!("{change:?}") };
        (PropertyList::parse(path, contents).unwrap(), *mode)
    }

    fn put(machine: &Machine, change: &Change) {
        let Change::Write { path, mode, contents, .. } = change else { panic!("{change:?}") };
        write_atomically(machine, path, contents, *mode).unwrap();
    }
}
