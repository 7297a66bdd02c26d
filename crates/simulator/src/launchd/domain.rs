//! The verbs of `launchctl(1)`.

use std::collections::BTreeMap;
use std::path::Path;

use rustix::process::Signal;

use super::{Shared, job_plist, jobs, print};
use crate::faults::Fault;
use crate::process_table;
use crate::wire::Reply;
use crate::world::{World, notes, write_whole};

const INPUT_OUTPUT: &str =
    "Bootstrap failed: 5: Input/output error\nTry re-running the command as root for richer errors.";

/// What a service or domain target names.
#[derive(Debug, PartialEq, Eq)]
pub enum Target {
    /// `gui/UID` or `user/UID`.
    Domain {
        /// The user.
        uid: u32,
    },
    /// `gui/UID/LABEL`.
    Service {
        /// The user.
        uid: u32,
        /// The label.
        label: String,
    },
    /// `system` or `system/LABEL`.
    System,
}

impl Target {
    /// Reads a target.
    pub fn parse(text: &str) -> Option<Self> {
        if text == "system" || text.starts_with("system/") {
            return Some(Self::System);
        }
        let mut parts = text.splitn(3, '/');
        let kind = parts.next()?;
        if !matches!(kind, "gui" | "user" | "login") {
            return None;
        }
        let uid = parts.next()?.parse().ok()?;
        match parts.next().filter(|label| !label.is_empty()) {
            Some(label) => Some(Self::Service { uid, label: label.to_owned() }),
            None => Some(Self::Domain { uid }),
        }
    }
}

/// Runs one `launchctl` command.
pub async fn launchctl(shared: &Shared, arguments: &[String]) -> Reply {
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["setenv", rest @ ..] => set_environment(shared, rest),
        ["getenv", key] => {
            let value = shared.borrow().session.get(*key).cloned();
            value.map_or_else(Reply::quiet, |value| Reply::said(format!("{value}\n")))
        }
        ["unsetenv", keys @ ..] if !keys.is_empty() => {
            if let Some(refused) = setenv_refused(shared) {
                return refused;
            }
            for key in keys {
                shared.borrow_mut().session.remove(*key);
            }
            Reply::quiet()
        }
        ["bootstrap", domain, paths @ ..] => bootstrap(shared, domain, paths),
        ["bootout", target] => bootout(shared, target),
        ["bootout", domain, path] => {
            let label = Path::new(path).file_stem().unwrap_or_default().to_string_lossy();
            bootout(shared, &format!("{domain}/{label}"))
        }
        ["kickstart", options @ .., target] => kickstart(shared, options, target).await,
        ["print", target] => print_target(shared, target),
        ["print-disabled", _] => Reply::said(print::disabled(&shared.borrow().disabled)),
        [verb @ ("enable" | "disable"), target] => switch(shared, target, *verb == "disable"),
        ["managername"] => {
            let aqua = notes::console_in_use(&shared.borrow().world);
            Reply::said(if aqua { "Aqua\n" } else { "Background\n" })
        }
        ["managerpid"] => Reply::said("1\n"),
        ["manageruid"] => Reply::said(format!("{}\n", shared.borrow().uid)),
        ["list"] => Reply::said(print::list(&shared.borrow())),
        ["list", label] => print::list_one(&shared.borrow(), label),
        ["kill", signal, target] => kill(shared, signal, target),
        ["load", options @ .., path] => legacy_load(shared, options, path),
        ["unload", options @ .., path] => legacy_unload(shared, options, path),
        ["stop", label] => {
            jobs::stop_process(shared, label);
            Reply::quiet()
        }
        ["start", label] => {
            jobs::start(shared, label);
            Reply::quiet()
        }
        [] => Reply::failed(64, "Usage: launchctl <subcommand> ... | help [subcommand]"),
        [verb, ..] => Reply::failed(
            64,
            format!(
                "Unrecognized subcommand or wrong arguments: {verb}\nUsage: launchctl <subcommand> ... | help [subcommand]"
            ),
        ),
    }
}

/// The labels switched off or on before.
pub fn read_disabled(world: &World) -> BTreeMap<String, bool> {
    std::fs::read_to_string(world.state("disabled.json"))
        .ok()
        .and_then(|text| serde_json::from_str(&text).ok())
        .unwrap_or_default()
}

fn setenv_refused(shared: &Shared) -> Option<Reply> {
    notes::is_raised(&shared.borrow().world, Fault::SetenvDenied)
        .then(|| Reply::failed(1, "Not privileged to set domain environment."))
}

fn set_environment(shared: &Shared, pairs: &[&str]) -> Reply {
    if pairs.is_empty() || !pairs.len().is_multiple_of(2) {
        return Reply::failed(64, "Usage: launchctl setenv <key> <value>, [<key> <value>, ...]");
    }
    if let Some(refused) = setenv_refused(shared) {
        return refused;
    }
    for pair in pairs.chunks_exact(2) {
        shared.borrow_mut().session.insert(pair[0].to_owned(), pair[1].to_owned());
    }
    Reply::quiet()
}

/// Whether the domain of `uid` can be used for jobs of the screen.
fn domain_exists(shared: &Shared, uid: u32) -> bool {
    let state = shared.borrow();
    uid == state.uid && notes::console_in_use(&state.world)
}

fn bootstrap(shared: &Shared, domain: &str, paths: &[&str]) -> Reply {
    let uid = match Target::parse(domain) {
        Some(Target::Domain { uid }) if domain_exists(shared, uid) => uid,
        Some(Target::System) => {
            return Reply::failed(1, "Bootstrap failed: 1: Operation not permitted");
        }
        Some(Target::Domain { .. } | Target::Service { .. }) | None => {
            return Reply::failed(125, "Bootstrap failed: 125: Domain does not support specified action");
        }
    };
    if paths.is_empty() {
        return Reply::failed(64, "Usage: launchctl bootstrap <domain-target> [service-path, ...]");
    }
    for path in paths {
        let Ok(plist) = job_plist::read(Path::new(path), uid) else {
            return Reply::failed(5, INPUT_OUTPUT);
        };
        let state = shared.borrow();
        let off = state.disabled.get(&plist.label).copied().unwrap_or(false);
        let loaded = state.jobs.contains_key(&plist.label);
        drop(state);
        if off || loaded {
            return Reply::failed(5, INPUT_OUTPUT);
        }
        jobs::load(shared, plist);
    }
    Reply::quiet()
}

fn bootout(shared: &Shared, target: &str) -> Reply {
    let label = match Target::parse(target) {
        Some(Target::Service { uid, label }) if domain_exists(shared, uid) => label,
        Some(Target::System) => return Reply::failed(1, "Boot-out failed: 1: Operation not permitted"),
        Some(Target::Service { .. } | Target::Domain { .. }) | None => {
            return Reply::failed(125, "Boot-out failed: 125: Domain does not support specified action");
        }
    };
    let draining = shared.borrow().jobs.get(&label).map(|job| job.draining);
    match draining {
        None => Reply::failed(3, "Boot-out failed: 3: No such process"),
        Some(true) => Reply::failed(36, "Boot-out failed: 36: Operation now in progress"),
        Some(false) => {
            jobs::drain(shared, &label);
            if notes::is_raised(&shared.borrow().world, Fault::Bootout36) {
                return Reply::failed(36, "Boot-out failed: 36: Operation now in progress");
            }
            Reply::quiet()
        }
    }
}

async fn kickstart(shared: &Shared, options: &[&str], target: &str) -> Reply {
    let has = |letter: char| options.iter().any(|option| option.starts_with('-') && option.contains(letter));
    let (uid, label) = match service(shared, target) {
        Ok(found) => found,
        Err(reply) => return reply,
    };
    let found = {
        let state = shared.borrow();
        state.jobs.get(&label).map(|job| (job.pid, jobs::patience(&state, job) * 2))
    };
    let Some((pid, limit)) = found else {
        return Reply::failed(113, format!("Could not find service \"{label}\" in domain for user gui: {uid}"));
    };
    if let Some(pid) = pid
        && has('k')
    {
        jobs::stop_process(shared, &label);
        process_table::wait_gone(pid, limit).await;
        // The end of a process is noted by its own task.
        while shared.borrow().jobs.get(&label).is_some_and(|job| job.pid == Some(pid)) {
            tokio::time::sleep(std::time::Duration::from_millis(2)).await;
        }
    }
    jobs::start(shared, &label);
    let pid = shared.borrow().jobs.get(&label).and_then(|job| job.pid);
    match pid {
        Some(pid) if has('p') => Reply::said(format!("service spawned with pid: {pid}\n")),
        Some(_) | None => Reply::quiet(),
    }
}

fn print_target(shared: &Shared, target: &str) -> Reply {
    match Target::parse(target) {
        Some(Target::Domain { uid }) if domain_exists(shared, uid) => Reply::said(print::domain(&shared.borrow())),
        Some(Target::Domain { .. }) => Reply::failed(125, "Domain does not support specified action"),
        Some(Target::System) => Reply::said("system = {\n\ttype = system\n}\n"),
        Some(Target::Service { .. }) | None => match service(shared, target) {
            Ok((uid, label)) => {
                let state = shared.borrow();
                match state.jobs.get(&label) {
                    Some(job) => Reply::said(print::job(&state, job)),
                    None => Reply::failed(
                        113,
                        format!("Bad request.\nCould not find service \"{label}\" in domain for user gui: {uid}"),
                    ),
                }
            }
            Err(reply) => reply,
        },
    }
}

/// The label of a service target in a domain that exists.
fn service(shared: &Shared, target: &str) -> Result<(u32, String), Reply> {
    match Target::parse(target) {
        Some(Target::Service { uid, label }) => {
            if domain_exists(shared, uid) {
                Ok((uid, label))
            } else {
                Err(Reply::failed(125, "Domain does not support specified action"))
            }
        }
        Some(Target::Domain { .. } | Target::System) | None => {
            Err(Reply::failed(64, format!("Unrecognized target specifier: {target}")))
        }
    }
}

fn switch(shared: &Shared, target: &str, off: bool) -> Reply {
    let Some(Target::Service { label, .. }) = Target::parse(target) else {
        return Reply::failed(64, format!("Unrecognized target specifier: {target}"));
    };
    let mut state = shared.borrow_mut();
    state.disabled.insert(label, off);
    let text = serde_json::to_vec_pretty(&state.disabled).unwrap_or_default();
    match write_whole(&state.world.state("disabled.json"), &text) {
        Ok(()) => Reply::quiet(),
        Err(error) => Reply::failed(1, error.to_string()),
    }
}

fn kill(shared: &Shared, signal: &str, target: &str) -> Reply {
    let (uid, label) = match service(shared, target) {
        Ok(found) => found,
        Err(reply) => return reply,
    };
    let pid = shared.borrow().jobs.get(&label).map(|job| job.pid);
    match pid {
        None => Reply::failed(113, format!("Could not find service \"{label}\" in domain for user gui: {uid}")),
        Some(None) => Reply::failed(3, "Could not kill service: 3: No such process"),
        Some(Some(pid)) => match signal_named(signal) {
            Some(signal) => {
                process_table::signal(pid, signal);
                Reply::quiet()
            }
            None => Reply::failed(64, format!("Unrecognized signal: {signal}")),
        },
    }
}

/// A signal by its name or number.
fn signal_named(name: &str) -> Option<Signal> {
    let name = name.trim_start_matches('-').trim_start_matches("SIG");
    Some(match name {
        "HUP" | "1" => Signal::HUP,
        "INT" | "2" => Signal::INT,
        "QUIT" | "3" => Signal::QUIT,
        "KILL" | "9" => Signal::KILL,
        "TERM" | "15" => Signal::TERM,
        "STOP" => Signal::STOP,
        "CONT" => Signal::CONT,
        "USR1" => Signal::USR1,
        "USR2" => Signal::USR2,
        _ => return None,
    })
}

/// `load` says what failed and still exits 0.
fn legacy_load(shared: &Shared, options: &[&str], path: &str) -> Reply {
    let uid = shared.borrow().uid;
    if options.iter().any(|option| option.contains('w')) {
        let label = Path::new(path).file_stem().unwrap_or_default().to_string_lossy();
        switch(shared, &format!("gui/{uid}/{label}"), false);
    }
    let reply = bootstrap(shared, &format!("gui/{uid}"), &[path]);
    if reply.code == 0 {
        return reply;
    }
    Reply {
        code: 0,
        stdout: String::new(),
        stderr: "Load failed: 5: Input/output error\nTry running `launchctl bootstrap` as root for richer errors.\n"
            .to_owned(),
    }
}

fn legacy_unload(shared: &Shared, options: &[&str], path: &str) -> Reply {
    let uid = shared.borrow().uid;
    let label = Path::new(path).file_stem().unwrap_or_default().to_string_lossy();
    if options.iter().any(|option| option.contains('w')) {
        switch(shared, &format!("gui/{uid}/{label}"), true);
    }
    let reply = bootout(shared, &format!("gui/{uid}/{label}"));
    if reply.code == 0 {
        return reply;
    }
    Reply {
        code: 0,
        stdout: String::new(),
        stderr: "Unload failed: 5: Input/output error\nTry running `launchctl bootout` as root for richer errors.\n"
            .to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_told_apart() {
        assert_eq!(Target::parse("gui/501"), Some(Target::Domain { uid: 501 }));
        assert_eq!(Target::parse("gui/501/a.b"), Some(Target::Service { uid: 501, label: "a.b".into() }));
        assert_eq!(Target::parse("system/x"), Some(Target::System));
        assert_eq!(Target::parse("pid/1"), None);
    }

    #[test]
    fn signals_have_names_and_numbers() {
        assert_eq!(signal_named("SIGTERM"), Some(Signal::TERM));
        assert_eq!(signal_named("9"), Some(Signal::KILL));
        assert_eq!(signal_named("NONSENSE"), None);
    }
}
