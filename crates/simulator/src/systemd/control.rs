//! The verbs of `systemctl(1)`.

use std::os::unix::fs::symlink;

use rustix::process::Signal;

use super::units::{self, Activity};
use super::{Scope, Shared, show};
use crate::faults::Fault;
use crate::process_table;
use crate::wire::Reply;
use crate::world::notes;

#[derive(Debug, Default)]
struct Call {
    words: Vec<String>,
    properties: Vec<String>,
    bare: bool,
    now: bool,
    quiet: bool,
    lines: usize,
}

/// Runs one `systemctl` command.
pub async fn systemctl(shared: &Shared, scope: Scope, arguments: &[String], privileged: bool) -> Reply {
    let call = parse(arguments);
    let words: Vec<&str> = call.words.iter().map(String::as_str).collect();
    let (verb, names) = match words.split_first() {
        Some((verb, rest)) => (*verb, rest),
        None => return Reply::quiet(),
    };
    let names: Vec<String> = names.iter().map(|name| full_name(name)).collect();
    let changes = matches!(
        verb,
        "start" | "stop" | "restart" | "try-restart" | "daemon-reload" | "enable" | "disable" | "kill" | "reset-failed"
    );
    if changes && scope == Scope::System && !privileged {
        let refused = notes::is_raised(&shared.borrow().world, Fault::PkexecRefused);
        if refused {
            let what = names.first().map_or("", String::as_str);
            return Reply::failed(
                1,
                format!(
                    "Failed to {verb} {what}: Interactive authentication required.\nSee system logs and 'systemctl status {what}' for details."
                ),
            );
        }
    }
    match verb {
        "daemon-reload" | "daemon-reexec" => {
            units::reload(&mut shared.borrow_mut(), scope);
            Reply::quiet()
        }
        "start" | "restart" | "try-restart" | "reload-or-restart" => {
            let mut reply = Reply::quiet();
            for name in &names {
                merge(&mut reply, start(shared, scope, name, verb).await);
            }
            reply
        }
        "stop" => {
            for name in &names {
                if !units::ensure_loaded(&mut shared.borrow_mut(), scope, name) {
                    return Reply::failed(5, format!("Failed to stop {name}: Unit {name} not loaded."));
                }
                units::stop(shared, scope, name).await;
            }
            Reply::quiet()
        }
        "kill" => {
            for name in &names {
                let pid = shared.borrow().units.get(&(scope, name.clone())).and_then(|unit| unit.pid);
                if let Some(pid) = pid {
                    process_table::signal(pid, Signal::TERM);
                }
            }
            Reply::quiet()
        }
        "reset-failed" => {
            for unit in shared.borrow_mut().units.values_mut() {
                unit.reset();
            }
            Reply::quiet()
        }
        "is-active" | "is-failed" => is_in_state(shared, scope, &names, verb, call.quiet),
        "is-enabled" => is_enabled(shared, scope, &names, call.quiet),
        "enable" | "disable" => switch(shared, scope, &names, verb == "enable", call.now).await,
        "show" => show_units(shared, scope, &names, &call),
        "cat" => {
            let name = names.first().cloned().unwrap_or_default();
            units::ensure_loaded(&mut shared.borrow_mut(), scope, &name);
            let state = shared.borrow();
            match state.units.get(&(scope, name.clone())) {
                Some(unit) => Reply::said(show::cat(unit)),
                None => Reply::failed(1, format!("No files found for {name}.")),
            }
        }
        "status" => {
            let name = names.first().cloned().unwrap_or_default();
            if !units::ensure_loaded(&mut shared.borrow_mut(), scope, &name) {
                return Reply::failed(4, format!("Unit {name} could not be found."));
            }
            let state = shared.borrow();
            let running = state.units.get(&(scope, name.clone())).is_some_and(|unit| unit.pid.is_some());
            let text = show::status(&state, scope, &name, call.lines);
            Reply { code: if running { 0 } else { 3 }, stdout: text, stderr: String::new() }
        }
        "show-environment" => {
            let state = shared.borrow();
            Reply::said(
                state.user_environment.iter().map(|(key, value)| format!("{key}={value}\n")).collect::<String>(),
            )
        }
        "set-environment" => {
            for pair in &call.words[1..] {
                if let Some((key, value)) = pair.split_once('=') {
                    shared.borrow_mut().user_environment.insert(key.to_owned(), value.to_owned());
                }
            }
            Reply::quiet()
        }
        "unset-environment" => {
            for key in &call.words[1..] {
                shared.borrow_mut().user_environment.remove(key);
            }
            Reply::quiet()
        }
        "is-system-running" => Reply::said("running\n"),
        "list-units" | "list-unit-files" => list(shared, scope),
        other => Reply::failed(1, format!("Unknown command verb {other}.")),
    }
}

fn parse(arguments: &[String]) -> Call {
    let mut call = Call { lines: 10, ..Call::default() };
    let mut words = arguments.iter().map(String::as_str);
    while let Some(word) = words.next() {
        let mut properties = |list: &str| {
            call.properties.extend(list.split(',').map(str::to_owned));
        };
        match word {
            "--now" => call.now = true,
            "--value" => call.bare = true,
            "-q" | "--quiet" => call.quiet = true,
            "-p" | "--property" => properties(words.next().unwrap_or_default()),
            "-n" | "--lines" => call.lines = words.next().and_then(|n| n.parse().ok()).unwrap_or(10),
            "-t" | "-s" | "--signal" | "--kill-whom" => {
                words.next();
            }
            flag if flag.starts_with("--property=") => properties(&flag["--property=".len()..]),
            flag if flag.starts_with("-p") => properties(&flag[2..]),
            flag if flag.starts_with('-') => {}
            plain => call.words.push(plain.to_owned()),
        }
    }
    call
}

fn full_name(name: &str) -> String {
    if name.contains('.') { name.to_owned() } else { format!("{name}.service") }
}

fn merge(reply: &mut Reply, other: Reply) {
    reply.code = reply.code.max(other.code);
    reply.stdout.push_str(&other.stdout);
    reply.stderr.push_str(&other.stderr);
}

async fn start(shared: &Shared, scope: Scope, name: &str, verb: &str) -> Reply {
    if !units::ensure_loaded(&mut shared.borrow_mut(), scope, name) {
        return Reply::failed(5, format!("Failed to {verb} {name}: Unit {name} not found."));
    }
    let mut reply = Reply::quiet();
    let (stale, running) = {
        let state = shared.borrow();
        state
            .units
            .get(&(scope, name.to_owned()))
            .map_or((false, false), |unit| (unit.file.is_stale(name), unit.pid.is_some()))
    };
    if stale {
        let flag = if scope == Scope::User { "--user " } else { "" };
        reply.stderr = format!(
            "Warning: The unit file, source configuration file or drop-ins of {name} changed on disk. Run 'systemctl {flag}daemon-reload' to reload units.\n"
        );
    }
    if verb == "try-restart" && !running {
        return reply;
    }
    if verb != "start" {
        units::stop(shared, scope, name).await;
    }
    if !units::start(shared, scope, name) {
        reply.code = 1;
        reply.stderr.push_str(&format!(
            "Job for {name} failed.\nSee \"systemctl status {name}\" and \"journalctl -xeu {name}\" for details.\n"
        ));
    }
    reply
}

fn is_in_state(shared: &Shared, scope: Scope, names: &[String], verb: &str, quiet: bool) -> Reply {
    let mut reply = Reply::quiet();
    let mut any = false;
    for name in names {
        units::ensure_loaded(&mut shared.borrow_mut(), scope, name);
        let state = shared.borrow();
        let activity = state.units.get(&(scope, name.clone())).map_or(Activity::Dead, |unit| unit.activity);
        any |= match verb {
            "is-failed" => activity == Activity::Failed,
            _ => activity == Activity::Running,
        };
        if !quiet {
            reply.stdout.push_str(activity.active_state());
            reply.stdout.push('\n');
        }
    }
    reply.code = match (any, verb) {
        (true, _) => 0,
        (false, "is-failed") => 1,
        (false, _) => 3,
    };
    reply
}

fn is_enabled(shared: &Shared, scope: Scope, names: &[String], quiet: bool) -> Reply {
    let name = names.first().cloned().unwrap_or_default();
    match show::enabled_word(&shared.borrow().world, scope, &name) {
        "" => Reply::failed(1, format!("Failed to get unit file state for {name}: No such file or directory")),
        word => Reply {
            code: u8::from(word == "disabled"),
            stdout: if quiet { String::new() } else { format!("{word}\n") },
            stderr: String::new(),
        },
    }
}

async fn switch(shared: &Shared, scope: Scope, names: &[String], on: bool, now: bool) -> Reply {
    let mut reply = Reply::quiet();
    for name in names {
        let folder = scope.folder(&shared.borrow().world);
        let unit = folder.join(name);
        let wants = folder.join("default.target.wants");
        let link = wants.join(name);
        if on {
            if !unit.exists() {
                return Reply::failed(1, format!("Failed to enable unit: Unit file {name} does not exist."));
            }
            let made = std::fs::create_dir_all(&wants)
                .and_then(|()| if link.is_symlink() { Ok(()) } else { symlink(&unit, &link) });
            if let Err(error) = made {
                return Reply::failed(1, format!("Failed to enable unit: {error}"));
            }
            reply.stderr.push_str(&format!("Created symlink {} → {}.\n", link.display(), unit.display()));
        } else if std::fs::remove_file(&link).is_ok() {
            reply.stderr.push_str(&format!("Removed \"{}\".\n", link.display()));
        }
        if now && on {
            merge(&mut reply, start(shared, scope, name, "start").await);
        } else if now {
            units::stop(shared, scope, name).await;
        }
    }
    // Enabling reads the files again, as systemctl does.
    units::reload(&mut shared.borrow_mut(), scope);
    reply
}

fn show_units(shared: &Shared, scope: Scope, names: &[String], call: &Call) -> Reply {
    let mut text = String::new();
    for name in names {
        units::ensure_loaded(&mut shared.borrow_mut(), scope, name);
        let state = shared.borrow();
        if !text.is_empty() {
            text.push('\n');
        }
        let all = show::properties(&state, scope, name);
        text.push_str(&show::show(&all, &call.properties, call.bare));
    }
    Reply::said(text)
}

fn list(shared: &Shared, scope: Scope) -> Reply {
    let state = shared.borrow();
    let rows: String = state
        .units
        .iter()
        .filter(|((known, _), _)| *known == scope)
        .map(|((_, name), unit)| {
            format!(
                "  {name} loaded {} {} {}\n",
                unit.activity.active_state(),
                unit.activity.sub_state(),
                unit.file.description
            )
        })
        .collect();
    Reply::said(rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_of_show_are_read() {
        let words = ["show", "ollama", "-p", "MainPID,Environment", "--property=SubState", "--value"];
        let call = parse(&words.map(str::to_owned));
        assert_eq!(call.properties, ["MainPID", "Environment", "SubState"]);
        assert!(call.bare);
        assert_eq!(call.words, ["show", "ollama"]);
        assert_eq!(full_name("ollama"), "ollama.service");
    }
}
