//! What `systemctl show` says of units (`org.freedesktop.systemd1(5)`).

use super::quoting::{assignment, words};
use crate::server_variables::server_values;
use stablehand_engine::Known;
use stablehand_engine::setting::Values;
use std::path::PathBuf;

/// The properties that are asked for; the answer names each, in an order of its own.
pub const PROPERTIES: &str = "Id,LoadState,UnitFileState,ActiveState,SubState,Result,MainPID,Restart,User,ExecStart,\
                              FragmentPath,DropInPaths,Environment,EnvironmentFiles,UnsetEnvironment,NeedDaemonReload";

/// One unit, as its manager has it in memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unit {
    /// Its name.
    pub id: String,
    /// `loaded`, `not-found`, `masked`, `bad-setting`, …
    pub load_state: String,
    /// `enabled`, `disabled`, `static`, …; empty when there is no file.
    pub file_state: String,
    /// `active`, `inactive`, `activating`, `deactivating`, `failed`, …
    pub active_state: String,
    /// `running`, `dead`, `auto-restart`, …
    pub sub_state: String,
    /// Why it ended last: `success`, `exit-code`, `start-limit-hit`, …
    pub result: String,
    /// Pid of its main process while it runs.
    pub main_pid: Option<u32>,
    /// `Restart=`: `no`, `always`, `on-failure`, …
    pub restart: String,
    /// `User=`, when one is set.
    pub user: Option<String>,
    /// Command lines of `ExecStart=`, their words joined by spaces.
    pub exec_start: Vec<String>,
    /// The unit file.
    pub fragment: Option<PathBuf>,
    /// Its drop-ins in the order in which they were read; a later one outranks an earlier one.
    pub drop_ins: Vec<PathBuf>,
    /// All `Environment=` assignments of unit and drop-ins, the last of a name only.
    pub environment: Known<Vec<(String, String)>>,
    /// Files of `EnvironmentFile=`, which outrank every `Environment=`.
    pub environment_files: Vec<EnvironmentFile>,
    /// Names (or whole assignments) of `UnsetEnvironment=`, which outranks everything.
    pub unset_environment: Vec<String>,
    /// Its files on the disk are newer than what the manager has in memory.
    pub needs_reload: bool,
}

/// A file of `EnvironmentFile=`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EnvironmentFile {
    /// Where; it may hold wildcards.
    pub path: PathBuf,
    /// Missing is no error.
    pub optional: bool,
}

impl Unit {
    /// It has a file that its manager could read.
    pub fn is_loaded(&self) -> bool {
        self.load_state == "loaded"
    }

    /// It runs, or its manager is about to start it (again).
    pub fn is_up(&self) -> bool {
        matches!(self.active_state.as_str(), "active" | "activating" | "reloading")
    }

    /// It will be started at the next boot or login.
    pub fn is_enabled(&self) -> bool {
        self.file_state.starts_with("enabled")
    }

    /// Its manager starts it again when its process ends.
    pub fn restarts(&self) -> bool {
        !matches!(self.restart.as_str(), "" | "no")
    }

    /// The server's variables among its `Environment=` assignments.
    pub fn values(&self) -> Known<Values> {
        self.environment.as_ref().map(|pairs| server_values(pairs.iter().map(|(name, value)| (name, value))))
    }
}

/// Reads the blocks of `systemctl show UNIT…`, one per unit, apart by an empty line.
pub fn parse(text: &str) -> Vec<Unit> {
    let mut units = Vec::new();
    let mut block = Vec::new();
    for line in text.lines().chain([""]) {
        match line.split_once('=') {
            Some(pair) => block.push(pair),
            // No property of ours spans lines: line breaks in a value are escaped.
            None if line.trim().is_empty() && !block.is_empty() => {
                units.extend(unit(&block));
                block.clear();
            }
            None => {}
        }
    }
    units
}

/// Reads `systemctl show-environment`: one assignment a line, in a shell's `$'…'` where a plain word would not do.
pub fn parse_manager_environment(text: &str) -> Known<Vec<(String, String)>> {
    let mut pairs = Vec::new();
    for (name, value) in text.lines().filter_map(assignment) {
        let value = match value.strip_prefix('$').filter(|rest| rest.starts_with('\'')) {
            Some(quoted) => match words(quoted) {
                Ok(words) => words.concat(),
                Err(error) => {
                    return Known::unknown(format!("systemctl wrote {name} in a way that cannot be read: {error}"));
                }
            },
            None => value.to_owned(),
        };
        pairs.push((name.to_owned(), value));
    }
    Known::Is(pairs)
}

fn unit(block: &[(&str, &str)]) -> Option<Unit> {
    let all =
        |name: &str| block.iter().filter(move |(key, _)| *key == name).map(|(_, value)| *value).collect::<Vec<_>>();
    let one = |name: &str| all(name).first().copied().unwrap_or_default().to_owned();
    let some = |name: &str| Some(one(name)).filter(|text| !text.is_empty());
    Some(Unit {
        id: some("Id")?,
        load_state: one("LoadState"),
        file_state: one("UnitFileState"),
        active_state: one("ActiveState"),
        sub_state: one("SubState"),
        result: one("Result"),
        main_pid: one("MainPID").parse().ok().filter(|pid| *pid != 0),
        restart: one("Restart"),
        user: some("User"),
        exec_start: all("ExecStart").into_iter().filter_map(command_line).collect(),
        fragment: some("FragmentPath").map(PathBuf::from),
        drop_ins: words(&one("DropInPaths")).unwrap_or_default().into_iter().map(PathBuf::from).collect(),
        environment: pairs(&one("Environment")),
        environment_files: all("EnvironmentFiles").into_iter().filter_map(environment_file).collect(),
        unset_environment: words(&one("UnsetEnvironment")).unwrap_or_default(),
        needs_reload: one("NeedDaemonReload") == "yes",
    })
}

fn pairs(line: &str) -> Known<Vec<(String, String)>> {
    match words(line) {
        Ok(words) => Known::Is(
            words
                .iter()
                .filter_map(|word| assignment(word).map(|(name, value)| (name.to_owned(), value.to_owned())))
                .collect(),
        ),
        Err(error) => Known::unknown(format!("systemctl wrote an environment that cannot be read: {error}")),
    }
}

/// The words of `{ path=… ; argv[]=/usr/local/bin/ollama serve ; ignore_errors=no ; … }`.
fn command_line(text: &str) -> Option<String> {
    let (_, rest) = text.split_once("argv[]=")?;
    let end = rest.find(" ; ignore_errors=").or_else(|| rest.find(" ; flags=")).unwrap_or(rest.len());
    Some(rest[..end].to_owned())
}

/// `/etc/default/ollama (ignore_errors=yes)`.
fn environment_file(text: &str) -> Option<EnvironmentFile> {
    let (path, flags) = text.rsplit_once(" (").unwrap_or((text, ""));
    let path = Some(path).filter(|path| !path.is_empty())?;
    Some(EnvironmentFile { path: PathBuf::from(path), optional: flags.contains("ignore_errors=yes") })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_running_service_is_read_with_all_that_bears_on_its_values() {
        let units = parse(include_str!("../../fixtures/linux/systemctl/show-system-service.txt"));
        assert_eq!(units.len(), 1);
        let unit = &units[0];
        assert_eq!(
            (unit.id.as_str(), unit.main_pid, unit.user.as_deref()),
            ("ollama.service", Some(1873), Some("ollama"))
        );
        assert!(unit.is_loaded() && unit.is_up() && unit.is_enabled() && unit.restarts() && !unit.needs_reload);
        assert_eq!(unit.exec_start, ["/usr/local/bin/ollama serve"]);
        let folder = PathBuf::from("/etc/systemd/system/ollama.service.d");
        assert_eq!(unit.drop_ins, [folder.join("override.conf"), folder.join("zz-stablehand.conf")]);
        assert_eq!(
            unit.environment_files,
            [
                EnvironmentFile { path: "/etc/default/ollama".into(), optional: true },
                EnvironmentFile { path: "/etc/ollama.env".into(), optional: false },
            ]
        );
        assert_eq!(unit.unset_environment, ["OLLAMA_DEBUG"]);
    }

    #[test]
    fn the_environment_is_freed_of_its_quoting() {
        let units = parse(include_str!("../../fixtures/linux/systemctl/show-system-service.txt"));
        let values = units[0].values();
        let values: Vec<_> =
            values.known().unwrap().iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        assert_eq!(
            values,
            [
                ("LLAMA_ARG_CACHE_RAM", "a\tb"),
                ("OLLAMA_KEEP_ALIVE", ""),
                ("OLLAMA_LLM_LIBRARY", "\u{fc}n\u{ef}"),
                ("OLLAMA_MAX_QUEUE", "10"),
                ("OLLAMA_MODELS", "/srv/it's \"here\"\\$x`y"),
                ("OLLAMA_NUM_PARALLEL", "1"),
                ("OLLAMA_ORIGINS", "http://a b,c"),
            ]
        );
    }

    #[test]
    fn units_that_are_not_there_are_blocks_of_their_own() {
        let units = parse(include_str!("../../fixtures/linux/systemctl/show-user-none.txt"));
        let ids: Vec<_> = units.iter().map(|unit| (unit.id.as_str(), unit.is_loaded(), unit.is_up())).collect();
        assert_eq!(ids, [("ollama.service", false, false), ("stablehand-ollama.service", false, false)]);
    }

    #[test]
    fn a_service_between_two_crashes_is_up_without_a_pid() {
        let units = parse(include_str!("../../fixtures/linux/systemctl/show-crash-loop.txt"));
        assert!(units[0].is_up() && units[0].restarts());
        assert_eq!(units[0].main_pid, None);
        assert_eq!(units[0].values(), Known::Is(Values::new()));
    }

    #[test]
    fn an_environment_that_cannot_be_read_is_unknown() {
        let units = parse("Id=a.service\nEnvironment=\"A=1\n");
        assert!(units[0].values().reason().is_some());
    }

    #[test]
    fn the_managers_environment_is_freed_of_its_shell_quoting() {
        let text = "HOME=/root\nOLLAMA_A=$'a b\"c'\nOLLAMA_B=$'a$b'\nOLLAMA_C=$'it\\'s\\t'\nOLLAMA_D=\n";
        let pairs = parse_manager_environment(text);
        let pairs: Vec<_> =
            pairs.known().unwrap().iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        let expected =
            [("HOME", "/root"), ("OLLAMA_A", "a b\"c"), ("OLLAMA_B", "a$b"), ("OLLAMA_C", "it's\t"), ("OLLAMA_D", "")];
        assert_eq!(pairs, expected);
        assert!(parse_manager_environment("OLLAMA_A=$'a\n").reason().is_some());
    }
}
