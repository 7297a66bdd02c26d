//! What `systemctl show`, `cat` and `status` write.

use std::fmt::Write;

use super::units::Unit;
use super::{Scope, Systemd, journal};
use crate::world::{World, moments};

/// The properties of a unit in systemd's order; those of no unit if absent.
pub fn properties(state: &Systemd, scope: Scope, name: &str) -> Vec<(&'static str, String)> {
    let unit = state.units.get(&(scope, name.to_owned()));
    let Some(unit) = unit else {
        return vec![
            ("Restart", "no".to_owned()),
            ("MainPID", "0".to_owned()),
            ("NRestarts", "0".to_owned()),
            ("Result", "success".to_owned()),
            ("Id", name.to_owned()),
            ("Names", name.to_owned()),
            ("Description", name.to_owned()),
            ("LoadState", "not-found".to_owned()),
            ("ActiveState", "inactive".to_owned()),
            ("SubState", "dead".to_owned()),
            ("FragmentPath", String::new()),
            ("DropInPaths", String::new()),
            ("UnitFileState", String::new()),
            ("NeedDaemonReload", "no".to_owned()),
        ];
    };
    let file = &unit.file;
    let started = if unit.started_ms == 0 { String::new() } else { moments::systemd(unit.started_ms) };
    let running = unit.pid.is_some();
    let environment: Vec<String> =
        file.environment.iter().map(|(key, value)| quoted(&format!("{key}={value}"))).collect();
    let environment_files: Vec<String> = file
        .environment_files
        .iter()
        .map(|(path, optional)| {
            let word = if *optional { "yes" } else { "no" };
            format!("{} (ignore_errors={word})", path.display())
        })
        .collect();
    let drop_ins: Vec<String> = file.drop_ins.iter().map(|path| path.display().to_string()).collect();
    let (code, status) =
        if running || unit.started_ms == 0 { (0, 0) } else { (if unit.by_signal { 2 } else { 1 }, unit.status) };
    vec![
        ("Type", "simple".to_owned()),
        ("Restart", file.restart.word().to_owned()),
        ("RestartUSec", moments::go_duration(file.restart_delay)),
        ("TimeoutStopUSec", "1min 30s".to_owned()),
        ("MainPID", unit.pid.unwrap_or(0).to_string()),
        ("NRestarts", unit.restarts.to_string()),
        ("Result", unit.result.to_owned()),
        ("ExecMainStartTimestamp", started.clone()),
        ("ExecMainPID", unit.pid.unwrap_or(0).to_string()),
        ("ExecMainCode", code.to_string()),
        ("ExecMainStatus", status.to_string()),
        ("ExecStart", exec_start(unit)),
        ("ControlGroup", control_group(scope, name)),
        ("MemoryCurrent", "[not set]".to_owned()),
        ("Environment", environment.join(" ")),
        ("EnvironmentFiles", environment_files.join(" ")),
        ("UnsetEnvironment", file.unset.join(" ")),
        ("User", file.user.clone()),
        ("Group", file.group.clone()),
        ("KillMode", "control-group".to_owned()),
        ("Id", name.to_owned()),
        ("Names", name.to_owned()),
        ("Description", file.description.clone()),
        ("LoadState", "loaded".to_owned()),
        ("ActiveState", unit.activity.active_state().to_owned()),
        ("SubState", unit.activity.sub_state().to_owned()),
        ("FragmentPath", file.fragment.display().to_string()),
        ("DropInPaths", drop_ins.join(" ")),
        ("UnitFileState", enabled_word(&state.world, scope, name).to_owned()),
        ("ActiveEnterTimestamp", started),
        ("NeedDaemonReload", if file.is_stale(name) { "yes" } else { "no" }.to_owned()),
    ]
}

/// `show` with the wanted properties, all if none is named.
pub fn show(all: &[(&str, String)], wanted: &[String], bare: bool) -> String {
    let mut text = String::new();
    for (key, value) in all {
        if !wanted.is_empty() && !wanted.iter().any(|name| name == key) {
            continue;
        }
        let _ = if bare { writeln!(text, "{value}") } else { writeln!(text, "{key}={value}") };
    }
    text
}

/// `cat`: every file after a comment with its path.
pub fn cat(unit: &Unit) -> String {
    let mut text = String::new();
    for path in std::iter::once(&unit.file.fragment).chain(&unit.file.drop_ins) {
        if !text.is_empty() {
            text.push('\n');
        }
        let _ = writeln!(text, "# {}", path.display());
        text.push_str(&std::fs::read_to_string(path).unwrap_or_default());
    }
    text
}

/// `status`.
pub fn status(state: &Systemd, scope: Scope, name: &str, lines: usize) -> String {
    let Some(unit) = state.units.get(&(scope, name.to_owned())) else {
        return String::new();
    };
    let mut text = format!("● {name} - {}\n", unit.file.description);
    let _ = writeln!(
        text,
        "     Loaded: loaded ({}; {}; preset: enabled)",
        unit.file.fragment.display(),
        enabled_word(&state.world, scope, name)
    );
    let _ = writeln!(
        text,
        "     Active: {} ({}) since {}",
        unit.activity.active_state(),
        unit.activity.sub_state(),
        moments::systemd(unit.started_ms)
    );
    if let Some(pid) = unit.pid {
        let _ = writeln!(text, "   Main PID: {pid} (ollama)");
    }
    text.push('\n');
    let entries = journal::read(&state.world, scope, name);
    for entry in entries.iter().rev().take(lines).rev() {
        let _ = writeln!(
            text,
            "{} sim {}[{}]: {}",
            moments::short_iso(entry.unix_ms),
            entry.identifier,
            entry.pid,
            entry.message
        );
    }
    text
}

/// `enabled`, `disabled`, `static`, or empty without a unit file.
pub fn enabled_word(world: &World, scope: Scope, name: &str) -> &'static str {
    let folder = scope.folder(world);
    if folder.join("default.target.wants").join(name).is_symlink() {
        return "enabled";
    }
    match std::fs::read_to_string(folder.join(name)) {
        Ok(text) if text.contains("[Install]") => "disabled",
        Ok(_) => "static",
        Err(_) => "",
    }
}

fn exec_start(unit: &Unit) -> String {
    let words = &unit.file.exec_start;
    format!(
        "{{ path={} ; argv[]={} ; ignore_errors=no ; start_time=[n/a] ; stop_time=[n/a] ; pid={} ; code=(null) ; status=0/0 }}",
        words.first().map_or("", String::as_str),
        words.join(" "),
        unit.pid.unwrap_or(0)
    )
}

fn control_group(scope: Scope, name: &str) -> String {
    match scope {
        Scope::System => format!("/system.slice/{name}"),
        Scope::User => format!("/user.slice/user-1000.slice/user@1000.service/app.slice/{name}"),
    }
}

fn quoted(word: &str) -> String {
    if word.chars().any(|character| character.is_whitespace() || character == '"') {
        format!("\"{}\"", word.replace('\\', "\\\\").replace('"', "\\\""))
    } else {
        word.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wanted_properties_come_in_systemds_order() {
        let all = [("MainPID", "7".to_owned()), ("Environment", "A=1".to_owned())];
        let wanted = ["Environment".to_owned(), "MainPID".to_owned()];
        assert_eq!(show(&all, &wanted, false), "MainPID=7\nEnvironment=A=1\n");
        assert_eq!(show(&all, &wanted[..1], true), "A=1\n");
    }

    #[test]
    fn words_with_spaces_are_quoted_whole() {
        assert_eq!(quoted("A=b c"), "\"A=b c\"");
        assert_eq!(quoted("A=b"), "A=b");
    }
}
