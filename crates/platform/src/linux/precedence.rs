//! What still outranks our drop-in, with its path, so that a report can name it.
//!
//! From weak to strong (`systemd.exec(5)`, tried on systemd 252): the manager's own environment, `Environment=` of the
//! unit and its drop-ins in their order, `EnvironmentFile=`, `UnsetEnvironment=`, and what the command line of the
//! unit sets itself (`ExecStart=/usr/bin/env OLLAMA_…`).

use super::drop_in::{FILE_NAME, assignments, logical_lines, value_of};
use super::environment_file;
use super::quoting::{assignment, words};
use super::unit::{EnvironmentFile, Unit};
use stablehand_engine::Known;
use stablehand_engine::setting::{Name, Values};
use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// How something outranks our drop-in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// A drop-in that is read after ours.
    LaterDropIn,
    /// A file of `EnvironmentFile=`.
    EnvironmentFile,
    /// `UnsetEnvironment=`.
    Unset,
    /// The unit's command line.
    CommandLine,
}

/// One of our values that does not reach the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Beaten {
    /// Its name.
    pub name: Name,
    /// What the server is given instead; `None` when the variable is taken away.
    pub value: Option<String>,
    /// The file that says so.
    pub by: PathBuf,
    /// Why that file wins.
    pub how: How,
}

impl fmt::Display for Beaten {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, value, by, how } = self;
        match value {
            Some(value) => write!(out, "{} sets {name}={value}", by.display())?,
            None => write!(out, "{} takes {name} away", by.display())?,
        }
        out.write_str(match how {
            How::LaterDropIn => ", and is read after our drop-in",
            How::EnvironmentFile => ", and an environment file outranks every Environment= line",
            How::Unset => " with UnsetEnvironment=, which outranks every Environment= line",
            How::CommandLine => " on the command line of the unit",
        })
    }
}

/// What outranks our values in this unit, and what could not be read to tell.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Precedence {
    /// Values of ours that do not reach the server.
    pub beaten: Vec<Beaten>,
    /// Files that may outrank ours and could not be read, with the reason.
    pub unread: Vec<String>,
}

/// Finds what outranks our values in a unit.
pub fn beaten_by(unit: &Unit, values: &Values) -> Precedence {
    let mut found = Precedence::default();
    let ours = unit.drop_ins.iter().position(|path| path.file_name().is_some_and(|name| name == FILE_NAME));
    let later = ours.map_or(&[][..], |index| &unit.drop_ins[index + 1..]);
    // The address of a server in whose place the gateway stands is ours too.
    let moved = |path: &&PathBuf| path.file_name().is_some_and(|name| name == super::address::FILE_NAME);
    for path in later.iter().filter(|path| !moved(path)) {
        match fs::read_to_string(path) {
            Ok(text) => found.add(drop_in_effects(&text), path, How::LaterDropIn, values),
            Err(error) => found.unread.push(format!("{}: {error}", path.display())),
        }
    }
    for file in &unit.environment_files {
        match read_environment_file(file) {
            Known::Is(pairs) => {
                let effects = pairs.into_iter().map(|(name, value)| (name, Some(value))).collect();
                found.add(effects, &file.path, How::EnvironmentFile, values);
            }
            Known::Unknown(reason) => found.unread.push(reason),
        }
    }
    let fragment = unit.fragment.clone().unwrap_or_else(|| PathBuf::from(&unit.id));
    let unset = unit.unset_environment.iter().map(|word| (word.clone(), None)).collect();
    // Which file the line stands in, systemd does not tell; the last drop-in that is not ours is tried, then the unit.
    let source = unit.drop_ins.iter().rev().find(|path| mentions(path, "UnsetEnvironment"));
    found.add(unset, source.unwrap_or(&fragment), How::Unset, values);
    let line = unit.exec_start.iter().flat_map(|line| line.split_whitespace());
    let set = line.filter_map(assignment).map(|(name, value)| (name.to_owned(), Some(value.to_owned()))).collect();
    let source = unit.drop_ins.iter().rev().find(|path| mentions(path, "ExecStart"));
    found.add(set, source.unwrap_or(&fragment), How::CommandLine, values);
    found
}

/// The values that an environment file assigns; none when it is missing and may be.
pub(super) fn read_environment_file(file: &EnvironmentFile) -> Known<Vec<(String, String)>> {
    let shown = file.path.display();
    if file.path.to_string_lossy().contains(['*', '?', '[']) {
        return Known::unknown(format!("systemd also reads the environment files {shown}, which are not looked at"));
    }
    match fs::read_to_string(&file.path) {
        Ok(text) => Known::Is(environment_file::parse(&text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound && file.optional => Known::Is(Vec::new()),
        Err(error) => {
            Known::unknown(format!("systemd also reads the environment file {shown}, which cannot be read: {error}"))
        }
    }
}

impl Precedence {
    fn add(&mut self, effects: BTreeMap<String, Option<String>>, by: &Path, how: How, values: &Values) {
        for (name, wanted) in values {
            let Some(value) = effects.get(name.as_str()) else { continue };
            if value.as_deref() == Some(wanted.as_str()) {
                continue;
            }
            self.beaten.retain(|weaker| weaker.name != *name);
            self.beaten.push(Beaten { name: name.clone(), value: value.clone(), by: by.to_path_buf(), how });
        }
    }
}

/// What a drop-in makes of variables: the value it sets, or `None` where it takes one away.
fn drop_in_effects(text: &str) -> BTreeMap<String, Option<String>> {
    let mut effects = BTreeMap::new();
    let mut in_service = false;
    for line in logical_lines(text) {
        let line = line.trim();
        if line.starts_with('[') {
            in_service = line == "[Service]";
        }
        if !in_service || line.starts_with(['#', ';']) {
            continue;
        }
        if let Some(text) = value_of(line, "Environment") {
            // A line that cannot be read is one that systemd ignores, or holds a specifier; its names are seen as
            // they stand.
            let pairs = assignments(text).unwrap_or_else(|_| {
                let words = words(text).unwrap_or_default();
                words.iter().filter_map(|word| assignment(word)).map(|(a, b)| (a.to_owned(), b.to_owned())).collect()
            });
            effects.extend(pairs.into_iter().map(|(name, value)| (name, Some(value))));
        }
    }
    effects
}

fn mentions(path: &Path, key: &str) -> bool {
    let text = fs::read_to_string(path).unwrap_or_default();
    logical_lines(&text).iter().any(|line| value_of(line, key).is_some())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::linux::playing::Player;
    use crate::linux::unit;
    use stablehand_engine::setting::Value;

    #[test]
    fn a_later_drop_in_is_named_with_its_value() {
        let player = Player::new();
        let ours = player.file("/etc/systemd/system/ollama.service.d/zz-stablehand.conf", "");
        let earlier = player.file("/etc/systemd/system/ollama.service.d/override.conf", PARALLEL_4);
        let later = player.file("/run/systemd/system/ollama.service.d/zzz.conf", PARALLEL_4);
        let unit = unit(&format!("DropInPaths={} {} {}", earlier.display(), ours.display(), later.display()));
        let found = beaten_by(&unit, &wanted());
        assert_eq!(found.unread, [""; 0]);
        let text = format!("{} sets OLLAMA_NUM_PARALLEL=4, and is read after our drop-in", later.display());
        assert_eq!(found.beaten.iter().map(ToString::to_string).collect::<Vec<_>>(), [text]);
    }

    #[test]
    fn an_environment_file_outranks_and_an_unreadable_one_is_said() {
        let player = Player::new();
        let file = player.file("/etc/ollama.env", "OLLAMA_NUM_PARALLEL=7\nOLLAMA_MAX_QUEUE=10\n");
        let unit = unit(&format!(
            "EnvironmentFiles={} (ignore_errors=no)\nEnvironmentFiles=/no/such (ignore_errors=no)\n\
             EnvironmentFiles=/no/such (ignore_errors=yes)",
            file.display()
        ));
        let found = beaten_by(&unit, &wanted());
        assert_eq!(found.beaten.len(), 1);
        assert_eq!((found.beaten[0].how, found.beaten[0].value.as_deref()), (How::EnvironmentFile, Some("7")));
        assert_eq!(found.unread.len(), 1);
    }

    #[test]
    fn the_strongest_is_named_when_several_outrank() {
        let unit = unit(
            "FragmentPath=/etc/systemd/system/ollama.service\nUnsetEnvironment=OLLAMA_MAX_QUEUE\n\
             ExecStart={ path=/usr/bin/env ; argv[]=/usr/bin/env OLLAMA_NUM_PARALLEL=9 OLLAMA_MAX_QUEUE=5 \
             /usr/bin/ollama serve ; ignore_errors=no ; pid=0 }",
        );
        let found = beaten_by(&unit, &wanted());
        let told: Vec<_> = found.beaten.iter().map(|beaten| (beaten.how, beaten.value.as_deref())).collect();
        assert_eq!(told, [(How::CommandLine, Some("5")), (How::CommandLine, Some("9"))]);
    }

    #[test]
    fn the_same_value_elsewhere_beats_nothing() {
        let player = Player::new();
        let file = player.file("/etc/ollama.env", "OLLAMA_NUM_PARALLEL=1\n");
        let unit = unit(&format!("EnvironmentFiles={} (ignore_errors=no)", file.display()));
        assert_eq!(beaten_by(&unit, &wanted()), Precedence::default());
    }

    const PARALLEL_4: &str = "[Service]\nEnvironment=\"OLLAMA_NUM_PARALLEL=4\"\n";

    fn unit(lines: &str) -> Unit {
        unit::parse(&format!("Id=ollama.service\nLoadState=loaded\n{lines}\n")).remove(0)
    }

    fn wanted() -> Values {
        let pairs = [("OLLAMA_NUM_PARALLEL", "1"), ("OLLAMA_MAX_QUEUE", "10")];
        pairs.iter().map(|(name, value)| (Name::try_new(name).unwrap(), Value::try_new(value).unwrap())).collect()
    }
}
