//! Our drop-in: the file that gives a unit our values at every start, `UNIT.d/zz-stablehand.conf`.
//!
//! systemd reads the drop-ins of a unit sorted by file name, whichever folder they lie in, and the last assignment of
//! a name wins; `zz-` sorts behind a hand-made `override.conf`. The unit file itself is never changed: installers
//! rewrite it. Lines that a person adds to our file are kept.

use super::quoting::{Unquotable, assignment, quoted, without_specifiers, words};
use super::systemctl;
use crate::change::Change;
use crate::command::Invocation;
use crate::files;
use crate::machine::Machine;
use crate::paths::stablehand_files;
use crate::server_variables::{is_server_variable, server_values};
use stablehand_engine::Known;
use stablehand_engine::owner::Scope;
use stablehand_engine::plan::{Again, StepFailure};
use stablehand_engine::setting::Values;
use std::path::PathBuf;

/// Its name in the folder of any unit.
pub const FILE_NAME: &str = "zz-stablehand.conf";

/// What stands on top of it.
const HEADER: [&str; 2] = [
    "# Stablehand keeps the values of Ollama here that `stablehand apply` set.",
    "# Its Environment= lines of OLLAMA_* and LLAMA_ARG_* are replaced by the next apply; other lines are kept.",
];

/// A drop-in as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DropIn {
    /// The server's variables in it.
    values: Result<Values, Unquotable>,
    /// Lines of `[Service]` that are not ours.
    service: Vec<String>,
    /// Everything before the first section that is not our header, such as a person's own comment.
    before: Vec<String>,
    /// Every other section, as it stood.
    other: Vec<String>,
}

impl DropIn {
    /// Reads the text of a drop-in.
    pub fn parse(text: &str) -> Self {
        let mut drop_in =
            Self { values: Ok(Values::new()), service: Vec::new(), before: Vec::new(), other: Vec::new() };
        let mut section = None;
        for line in logical_lines(text) {
            let trimmed = line.trim();
            if trimmed.starts_with('[') && trimmed.ends_with(']') {
                section = Some(trimmed == "[Service]");
                if section == Some(false) {
                    drop_in.other.push(line);
                }
                continue;
            }
            match section {
                None if HEADER.contains(&trimmed) || trimmed.is_empty() => {}
                None => drop_in.before.push(line),
                Some(false) => drop_in.other.push(line),
                Some(true) => drop_in.service_line(line),
            }
        }
        drop_in
    }

    /// The server's variables in it.
    pub fn values(&self) -> Known<Values> {
        match &self.values {
            Ok(values) => Known::Is(values.clone()),
            Err(error) => Known::unknown(format!("an Environment= line of it cannot be read: {error}")),
        }
    }

    /// Its text with these values in place of those that it had; `None` when nothing is left to say.
    pub fn render(&self, values: &Values) -> Option<String> {
        if values.is_empty() && self.service.is_empty() && self.before.is_empty() && self.other.is_empty() {
            return None;
        }
        let ours = values.iter().map(|(name, value)| format!("Environment={}", quoted(&format!("{name}={value}"))));
        // Without values of ours what is left is the person's file alone.
        let header = if values.is_empty() { &[][..] } else { &HEADER[..] };
        let mut lines: Vec<String> = header.iter().map(|line| (*line).to_owned()).collect();
        lines.extend(self.before.iter().cloned());
        if !values.is_empty() || !self.service.is_empty() {
            lines.push("[Service]".to_owned());
            lines.extend(self.service.iter().cloned());
            // Last, so that an `Environment=` that resets the list does not take ours away.
            lines.extend(ours);
        }
        if !self.other.is_empty() {
            lines.push(String::new());
            lines.extend(self.other.iter().cloned());
        }
        Some(lines.join("\n") + "\n")
    }

    fn service_line(&mut self, line: String) {
        let Some(text) = value_of(&line, "Environment") else {
            if !line.trim().is_empty() {
                self.service.push(line);
            }
            return;
        };
        let words = match assignments(text) {
            Ok(words) => words,
            Err(error) => {
                // systemd ignores such a line. It is a person's; it stays, and the reading is unknown.
                if is_server_variable(text.trim_start_matches(['"', '\''])) {
                    self.values = Err(error);
                }
                self.service.push(line);
                return;
            }
        };
        let (ours, foreign): (Vec<_>, Vec<_>) = words.into_iter().partition(|(name, _)| is_server_variable(name));
        if ours.is_empty() {
            self.service.push(line);
            return;
        }
        if let Ok(values) = &mut self.values {
            values.extend(server_values(ours));
        }
        if !foreign.is_empty() {
            let rest: Vec<_> = foreign.iter().map(|(name, value)| quoted(&format!("{name}={value}"))).collect();
            self.service.push(format!("Environment={}", rest.join(" ")));
        }
    }
}

/// The assignments of an `Environment=` line of a unit file.
///
/// # Errors
/// [`Unquotable`] where systemd would ignore the line, or where only systemd knows what a specifier means.
pub fn assignments(text: &str) -> Result<Vec<(String, String)>, Unquotable> {
    let mut pairs = Vec::new();
    for word in words(text)? {
        let word = without_specifiers(&word)?;
        pairs.extend(assignment(&word).map(|(name, value)| (name.to_owned(), value.to_owned())));
    }
    Ok(pairs)
}

/// The right side of `KEY=…` in a line, when it has this key.
pub(super) fn value_of<'a>(line: &'a str, key: &str) -> Option<&'a str> {
    let (name, value) = line.split_once('=')?;
    (name.trim() == key).then(|| value.trim())
}

/// Lines with those joined that end in a backslash. Comments inside a joined line are left out, as systemd does.
pub(super) fn logical_lines(text: &str) -> Vec<String> {
    let mut lines = Vec::new();
    let mut open: Option<String> = None;
    for line in text.lines() {
        let comment = line.trim_start().starts_with(['#', ';']);
        if open.is_some() && comment {
            continue;
        }
        let joined = match open.take() {
            Some(begun) => format!("{begun} {}", line.trim_start()),
            None => line.to_owned(),
        };
        match joined.strip_suffix('\\') {
            Some(begun) if !comment => open = Some(begun.to_owned()),
            Some(_) | None => lines.push(joined),
        }
    }
    lines.extend(open);
    lines
}

/// Where our drop-in of a unit lies.
pub fn path(machine: &Machine, scope: Scope, unit: &str) -> PathBuf {
    let units = match scope {
        Scope::System => machine.at("/etc/systemd/system"),
        Scope::User => stablehand_files(machine).services_dir,
    };
    units.join(format!("{unit}.d")).join(FILE_NAME)
}

/// The values that our drop-in of a unit holds; none when there is no such file.
pub fn read(machine: &Machine, scope: Scope, unit: &str) -> Known<Values> {
    let path = path(machine, scope, unit);
    match text_of(&path) {
        Ok(None) => Known::Is(Values::new()),
        Ok(Some(text)) => match DropIn::parse(&text).values() {
            Known::Is(values) => Known::Is(values),
            Known::Unknown(reason) => Known::unknown(format!("{}: {reason}", path.display())),
        },
        Err(failure) => Known::unknown(failure.message),
    }
}

/// What makes our drop-in of a unit hold exactly these values; nothing when it does.
///
/// # Errors
/// A [`StepFailure`] when the file cannot be read, or the unit's name is none of a service.
pub fn changes(machine: &Machine, scope: Scope, unit: &str, values: &Values) -> Result<Vec<Change>, StepFailure> {
    systemctl::check_name(unit)?;
    let path = path(machine, scope, unit);
    let before = text_of(&path)?;
    let after = DropIn::parse(before.as_deref().unwrap_or_default()).render(values);
    if before == after {
        return Ok(Vec::new());
    }
    if scope == Scope::User || machine.uid() == 0 {
        return Ok(vec![match after {
            Some(text) => {
                Change::Write { path, mode: 0o644, contents: text.into(), before: before.map(String::into_bytes) }
            }
            None => Change::Remove { path },
        }]);
    }
    Ok(match after {
        Some(text) => {
            let staged = stablehand_files(machine).data_dir.join(format!("{unit}.{FILE_NAME}"));
            let install = Invocation::new(tool(machine, "/usr/bin/install"))
                .args(["-D", "-m", "0644", "--"])
                .args([&staged, &path]);
            vec![
                Change::Write {
                    path: staged.clone(),
                    mode: 0o600,
                    contents: text.into(),
                    before: files::read(&staged)?,
                },
                Change::Run(systemctl::with_rights(machine, scope, install)),
                Change::Remove { path: staged },
            ]
        }
        None => {
            let remove = Invocation::new(tool(machine, "/usr/bin/rm")).args(["-f", "--"]).arg(&path);
            vec![Change::Run(systemctl::with_rights(machine, scope, remove))]
        }
    })
}

/// A tool that only handles files. A simulated world does not play it, and its paths were checked to lie inside.
pub(super) fn tool(machine: &Machine, absolute: &str) -> PathBuf {
    let own = machine.at(absolute);
    if own.exists() { own } else { PathBuf::from(absolute) }
}

fn text_of(path: &std::path::Path) -> Result<Option<String>, StepFailure> {
    let Some(bytes) = files::read(path)? else { return Ok(None) };
    String::from_utf8(bytes).map(Some).map_err(|_| StepFailure {
        code: "file-not-text",
        message: format!("{} is no UTF-8 text; it was left as it is", path.display()),
        hint: format!("look at it, then move it away: {}", path.display()),
        again: Again::Never,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::change::carry_out;
    use crate::linux::playing::Player;
    use stablehand_engine::setting::{Name, Value};
    use std::fs;

    const EDITED: &str = include_str!("../../fixtures/linux/drop-in-edited.conf");

    #[test]
    fn a_new_file_has_a_header_and_one_escaped_line_a_value() {
        let text =
            DropIn::parse("").render(&values(&[("OLLAMA_ORIGINS", "a \"b\" c\\d 50%"), ("OLLAMA_MAX_QUEUE", "10")]));
        let text = text.unwrap();
        let lines: Vec<_> = text.lines().skip_while(|line| line.starts_with('#')).collect();
        assert_eq!(
            lines,
            [
                "[Service]",
                "Environment=\"OLLAMA_MAX_QUEUE=10\"",
                "Environment=\"OLLAMA_ORIGINS=a \\\"b\\\" c\\\\d 50%%\"",
            ]
        );
        let again = DropIn::parse(&text);
        let wanted = values(&[("OLLAMA_ORIGINS", "a \"b\" c\\d 50%"), ("OLLAMA_MAX_QUEUE", "10")]);
        assert_eq!(again.values(), Known::Is(wanted.clone()));
        assert_eq!(again.render(&wanted).unwrap(), text);
    }

    #[test]
    fn what_a_person_added_is_kept_and_only_our_values_change() {
        let edited = DropIn::parse(EDITED);
        let had = values(&[("OLLAMA_NUM_PARALLEL", "2"), ("OLLAMA_KEEP_ALIVE", "10m"), ("LLAMA_ARG_CACHE_RAM", "0")]);
        assert_eq!(edited.values(), Known::Is(had));
        let text = edited.render(&values(&[("OLLAMA_NUM_PARALLEL", "1")])).unwrap();
        let lines: Vec<_> = text.lines().skip(HEADER.len()).collect();
        assert_eq!(
            lines,
            [
                "# mine: ask before you touch this",
                "[Service]",
                "# the second card only",
                "Environment=\"CUDA_VISIBLE_DEVICES=1\"",
                "MemoryMax=48G",
                "Environment=HTTPS_PROXY=http://127.0.0.1:3128",
                "Environment=\"OLLAMA_NUM_PARALLEL=1\"",
                "",
                "[Unit]",
                "After=nvidia-persistenced.service",
            ]
        );
        assert_eq!(DropIn::parse(&text).render(&values(&[("OLLAMA_NUM_PARALLEL", "1")])).unwrap(), text);
    }

    #[test]
    fn without_values_the_file_goes_unless_a_person_added_to_it() {
        let ours = DropIn::parse("").render(&values(&[("OLLAMA_MAX_QUEUE", "10")])).unwrap();
        assert_eq!(DropIn::parse(&ours).render(&Values::new()), None);
        let kept = DropIn::parse(EDITED).render(&Values::new()).unwrap();
        assert!(kept.contains("MemoryMax=48G") && !kept.contains("OLLAMA_NUM"));
    }

    #[test]
    fn a_line_that_only_systemd_understands_makes_the_values_unknown() {
        let drop_in = DropIn::parse("[Service]\nEnvironment=OLLAMA_MODELS=%h/models\n");
        assert!(drop_in.values().reason().unwrap().contains("%h"));
    }

    #[tokio::test]
    async fn a_users_drop_in_is_written_read_and_removed() {
        let player = Player::new();
        let machine = &player.machine;
        let wanted = values(&[("OLLAMA_NUM_PARALLEL", "1")]);
        let unit = "ollama.service";
        carry_out(machine, &changes(machine, Scope::User, unit, &wanted).unwrap()).await.unwrap();
        assert_eq!(read(machine, Scope::User, unit), Known::Is(wanted.clone()));
        assert_eq!(changes(machine, Scope::User, unit, &wanted).unwrap(), []);
        carry_out(machine, &changes(machine, Scope::User, unit, &Values::new()).unwrap()).await.unwrap();
        assert!(!path(machine, Scope::User, unit).exists());
        assert_eq!(read(machine, Scope::User, unit), Known::Is(Values::new()));
    }

    #[tokio::test]
    async fn a_system_drop_in_needs_rights_unless_we_are_root() {
        let player = Player::new();
        let machine = &player.machine;
        let wanted = values(&[("OLLAMA_NUM_PARALLEL", "1")]);
        let plan = changes(machine, Scope::System, "ollama.service", &wanted).unwrap();
        let target = machine.at("/etc/systemd/system/ollama.service.d/zz-stablehand.conf");
        if machine.uid() == 0 {
            assert!(matches!(&plan[..], [Change::Write { path, mode: 0o644, .. }] if *path == target));
        } else {
            assert!(matches!(&plan[..], [Change::Write { .. }, Change::Run(run), Change::Remove { .. }]
                if run.program.ends_with("pkexec") && run.args.last().unwrap() == target.as_os_str()));
        }
        carry_out(machine, &plan).await.unwrap();
        assert_eq!(read(machine, Scope::System, "ollama.service"), Known::Is(wanted));
        carry_out(machine, &changes(machine, Scope::System, "ollama.service", &Values::new()).unwrap()).await.unwrap();
        assert!(!target.exists());
    }

    #[test]
    fn a_name_that_leads_elsewhere_is_refused() {
        let player = Player::new();
        let failure = changes(&player.machine, Scope::User, "../x.service", &Values::new()).unwrap_err();
        assert_eq!(failure.code, "unit-name");
    }

    #[test]
    fn a_file_that_is_no_text_is_left_alone() {
        let player = Player::new();
        let path = path(&player.machine, Scope::User, "ollama.service");
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, [0xff, 0xfe]).unwrap();
        assert!(read(&player.machine, Scope::User, "ollama.service").reason().is_some());
        let failure = changes(&player.machine, Scope::User, "ollama.service", &Values::new()).unwrap_err();
        assert_eq!(failure.code, "file-not-text");
    }

    fn values(pairs: &[(&str, &str)]) -> Values {
        pairs.iter().map(|(name, value)| (Name::try_new(name).unwrap(), Value::try_new(value).unwrap())).collect()
    }
}
