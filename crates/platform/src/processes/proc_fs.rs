//! Reading what `/proc` says of processes (`proc(5)`).

use super::{Details, Row};
use crate::server_variables::is_server_variable;
use stablehand_engine::Known;
use stablehand_engine::process::Identity;
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// What the kernel adds to the path of a program whose file was replaced or removed.
const DELETED: &str = " (deleted)";

/// The fields of `/proc/PID/stat` that matter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Stat {
    pub(super) pid: u32,
    pub(super) name: String,
    pub(super) state: char,
    pub(super) parent: u32,
    /// Field 22: clock ticks between boot and the start.
    pub(super) start_ticks: u64,
}

/// Reads `/proc/PID/stat`. The name stands in parentheses and may hold spaces and parentheses itself, so fields are
/// counted from the last one that closes.
pub(super) fn parse_stat(text: &str) -> Option<Stat> {
    let (head, tail) = text.rsplit_once(')')?;
    let (pid, name) = head.split_once(" (")?;
    let fields: Vec<_> = tail.split_whitespace().collect();
    // `tail` starts with field 3.
    let field = |number: usize| fields.get(number - 3).copied();
    Some(Stat {
        pid: pid.trim().parse().ok()?,
        name: name.to_owned(),
        state: field(3)?.chars().next()?,
        parent: field(4)?.parse().ok()?,
        start_ticks: field(22)?.parse().ok()?,
    })
}

/// The real uid in `/proc/PID/status`.
pub(super) fn parse_status_uid(text: &str) -> Option<u32> {
    let line = text.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    line.split_whitespace().next()?.parse().ok()
}

/// The server's variables in `/proc/PID/environ`; all others are dropped here.
pub(super) fn parse_environ(bytes: &[u8]) -> BTreeMap<String, String> {
    let variables = bytes.split(|byte| *byte == 0).filter_map(|variable| {
        let text = std::str::from_utf8(variable).ok()?;
        text.split_once('=').filter(|(name, _)| is_server_variable(name))
    });
    variables.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

/// The arguments in `/proc/PID/cmdline`; each ends with a NUL.
pub(super) fn parse_cmdline(bytes: &[u8]) -> Vec<String> {
    let bytes = bytes.strip_suffix(b"\0").unwrap_or(bytes);
    if bytes.is_empty() {
        return Vec::new();
    }
    bytes.split(|byte| *byte == 0).map(|argument| String::from_utf8_lossy(argument).into_owned()).collect()
}

/// When, in Unix ms, a process started that many ticks after boot.
pub(super) fn started_ms(boot_unix_ms: i64, start_ticks: u64, ticks_per_second: u64) -> i64 {
    let since_boot_ms = u128::from(start_ticks) * 1000 / u128::from(ticks_per_second.max(1));
    boot_unix_ms.saturating_add(i64::try_from(since_boot_ms).unwrap_or(i64::MAX))
}

/// One row; `None` when there is no such process.
pub(super) fn row(pid: u32, boot_unix_ms: i64, ticks_per_second: u64) -> Option<Row> {
    // The name may hold any bytes.
    let stat = parse_stat(&String::from_utf8_lossy(&fs::read(format!("/proc/{pid}/stat")).ok()?))?;
    Some(Row {
        id: Identity { pid: stat.pid, birth: stat.start_ticks },
        parent: (stat.parent != 0).then_some(stat.parent),
        started_real_ms: started_ms(boot_unix_ms, stat.start_ticks, ticks_per_second),
        ended: matches!(stat.state, 'Z' | 'X' | 'x'),
        name: stat.name,
    })
}

/// Every pid.
pub(super) fn pids() -> Vec<u32> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect()
}

/// What is read once per life.
pub(super) fn details(pid: u32) -> Details {
    let folder = PathBuf::from(format!("/proc/{pid}"));
    let uid = match fs::read_to_string(folder.join("status")) {
        Ok(text) => {
            parse_status_uid(&text).map_or_else(|| Known::unknown("the kernel does not tell its owner"), Known::Is)
        }
        Err(error) => Known::unknown(not_shown("owner", &error)),
    };
    Details {
        uid,
        executable: Known::from(fs::read_link(folder.join("exe")).map_err(|error| not_shown("program", &error)))
            .map(|path| without_deleted(&path)),
        argv: match fs::read(folder.join("cmdline")) {
            Ok(bytes) if bytes.is_empty() => Known::unknown("the process has no arguments to show"),
            Ok(bytes) => Known::Is(parse_cmdline(&bytes)),
            Err(error) => Known::unknown(not_shown("arguments", &error)),
        },
        environment: Known::from(fs::read(folder.join("environ")).map_err(|error| not_shown("environment", &error)))
            .map(|bytes| parse_environ(&bytes)),
    }
}

fn not_shown(what: &str, error: &io::Error) -> String {
    if error.kind() == io::ErrorKind::PermissionDenied {
        format!("the {what} of another user's process cannot be read")
    } else {
        format!("the {what} of the process cannot be read: {error}")
    }
}

fn without_deleted(path: &Path) -> PathBuf {
    match path.to_str().and_then(|text| text.strip_suffix(DELETED)) {
        Some(plain) => PathBuf::from(plain),
        None => path.to_path_buf(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_spaces_and_parentheses_does_not_shift_the_fields() {
        let text = include_str!("../../fixtures/proc-stat.odd-name.txt");
        assert_eq!(
            parse_stat(text),
            Some(Stat { pid: 5120, name: "odd) name (x".to_owned(), state: 'S', parent: 871, start_ticks: 904_412 })
        );
        assert_eq!(parse_stat("12 (cut"), None);
        assert_eq!(parse_stat("12 (cut) S 1 2"), None);
    }

    #[test]
    fn starts_are_told_to_the_tick() {
        assert_eq!(started_ms(1_000_000, 1_234, 100), 1_012_340);
        assert_eq!(started_ms(1_000_000, 5, 0), 1_005_000);
    }

    #[test]
    fn only_the_servers_variables_are_kept() {
        let found = parse_environ(b"PATH=/bin\0OLLAMA_HOST=a=b\0TOKEN=x\0LLAMA_ARG_NP=2\0OLLAMA_EMPTY=\0");
        let names: Vec<_> = found.iter().map(|(name, value)| format!("{name}:{value}")).collect();
        assert_eq!(names, ["LLAMA_ARG_NP:2", "OLLAMA_EMPTY:", "OLLAMA_HOST:a=b"]);
    }

    #[test]
    fn empty_arguments_are_kept_in_their_places() {
        assert_eq!(parse_cmdline(b"ollama\0\0serve\0"), ["ollama", "", "serve"]);
        assert!(parse_cmdline(b"").is_empty());
    }

    #[test]
    fn the_real_uid_comes_first() {
        assert_eq!(parse_status_uid("Name:\tx\nUid:\t1000\t0\t0\t0\nGid:\t5\n"), Some(1000));
        assert_eq!(parse_status_uid("Name:\tx\n"), None);
    }

    #[test]
    fn a_replaced_program_keeps_its_path() {
        assert_eq!(without_deleted(Path::new("/usr/bin/ollama (deleted)")), Path::new("/usr/bin/ollama"));
        assert_eq!(without_deleted(Path::new("/usr/bin/ollama")), Path::new("/usr/bin/ollama"));
    }
}
