//! `brew services`: the `ollama` service.

use serde_json::{Value, json};

use super::packages;
use crate::launchd::{Request, SERVICE};
use crate::wire::{self, Reply};
use crate::world::{World, layout};

/// `brew services …`.
pub fn run(world: &World, words: &[&str], as_json: bool) -> Option<Reply> {
    Some(match words {
        [] | ["list"] => list(world, as_json),
        ["info", "ollama"] => information(world, as_json),
        ["start", "ollama"] => start(world),
        ["stop", "ollama"] => stop(world),
        ["restart", "ollama"] => {
            stop(world);
            start(world)
        }
        _ => return None,
    })
}

fn launchctl(world: &World, words: &[&str]) -> Reply {
    let arguments = words.iter().map(|word| (*word).to_owned()).collect();
    wire::ask(world, SERVICE, &Request::Launchctl { arguments })
        .unwrap_or_else(|error| Reply::failed(1, format!("{error:#}")))
}

fn uid() -> u32 {
    rustix::process::getuid().as_raw()
}

/// Pid and exit code as launchd tells them; `None` if the job is not loaded.
fn job(world: &World) -> Option<(Option<i64>, i64)> {
    let (label, _) = layout::brew_plist(world);
    let text = launchctl(world, &["list"]).stdout;
    let row = text.lines().find(|row| row.ends_with(&format!("\t{label}")))?;
    let mut cells = row.split('\t');
    let pid = cells.next()?.parse().ok();
    let code = cells.next()?.parse().unwrap_or(0);
    Some((pid, code))
}

fn status_of(job: Option<(Option<i64>, i64)>) -> &'static str {
    match job {
        Some((Some(_), _)) => "started",
        Some((None, 0)) => "stopped",
        Some((None, _)) => "error",
        None => "none",
    }
}

fn list(world: &World, as_json: bool) -> Reply {
    let (_, file) = layout::brew_plist(world);
    if packages::keg(world).is_none() {
        return Reply::said(if as_json { "[]\n" } else { "" });
    }
    let found = job(world);
    let status = status_of(found);
    let user = &world.marker.user;
    if as_json {
        let rows = json!([{
            "name": "ollama",
            "status": status,
            "user": if found.is_some() { json!(user) } else { Value::Null },
            "file": file.display().to_string(),
            "exit_code": found.map(|(_, code)| code),
        }]);
        return Reply::said(format!("{rows:#}\n"));
    }
    let (user, file) = if found.is_some() { (user.as_str(), file.display().to_string()) } else { ("", String::new()) };
    Reply::said(format!(
        "{:<8}{:<9}{:<6}{}\n{:<8}{status:<9}{user:<6}{file}\n",
        "Name", "Status", "User", "File", "ollama"
    ))
}

fn information(world: &World, as_json: bool) -> Reply {
    let (label, file) = layout::brew_plist(world);
    if packages::keg(world).is_none() {
        return Reply::failed(1, "Error: No available formula with the name \"ollama\".");
    }
    let found = job(world);
    let running = matches!(found, Some((Some(_), _)));
    let log = world.path("/opt/homebrew/var/log/ollama.log").display().to_string();
    if as_json {
        let rows = json!([{
            "name": "ollama",
            "service_name": label,
            "running": running,
            "loaded": found.is_some(),
            "schedulable": false,
            "pid": found.and_then(|(pid, _)| pid),
            "exit_code": found.map(|(_, code)| code),
            "user": if found.is_some() { json!(world.marker.user) } else { Value::Null },
            "status": status_of(found),
            "file": file.display().to_string(),
            "registered": file.exists(),
            "command": format!("{} serve", world.path("/opt/homebrew/opt/ollama/bin/ollama").display()),
            "working_dir": world.path("/opt/homebrew/var").display().to_string(),
            "root_dir": null,
            "log_path": log,
            "error_log_path": log,
            "interval": null,
            "cron": null,
        }]);
        return Reply::said(format!("{rows:#}\n"));
    }
    Reply::said(format!(
        "ollama ({label})\nRunning: {running}\nLoaded: {}\nSchedulable: false\nUser: {}\nPID: {}\n",
        found.is_some(),
        world.marker.user,
        found.and_then(|(pid, _)| pid).unwrap_or(0),
    ))
}

fn start(world: &World) -> Reply {
    let (label, file) = layout::brew_plist(world);
    if !file.exists() {
        if packages::keg(world).is_none() {
            return Reply::failed(1, "Error: No available formula with the name \"ollama\".");
        }
        if let Err(error) = layout::write_brew_service(world) {
            return Reply::failed(1, format!("Error: {error:#}"));
        }
    }
    if job(world).is_some() {
        return Reply::said("Service `ollama` already started, use `brew services restart ollama` to restart.\n");
    }
    let domain = format!("gui/{}", uid());
    let reply = launchctl(world, &["bootstrap", &domain, &file.display().to_string()]);
    if reply.code != 0 {
        return reply;
    }
    Reply::said(format!("==> Successfully started `ollama` (label: {label})\n"))
}

/// Stops the service, waits until it is gone, and removes its file as brew does.
fn stop(world: &World) -> Reply {
    let (label, file) = layout::brew_plist(world);
    if job(world).is_none() {
        return Reply::failed(1, "Error: Service `ollama` is not started.");
    }
    launchctl(world, &["bootout", &format!("gui/{}/{label}", uid())]);
    for _ in 0..400 {
        if job(world).is_none() {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(25));
    }
    let _ = std::fs::remove_file(file);
    Reply::said(format!("==> Successfully stopped `ollama` (label: {label})\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_has_a_status_word() {
        assert_eq!(status_of(None), "none");
        assert_eq!(status_of(Some((Some(3), 0))), "started");
        assert_eq!(status_of(Some((None, 1))), "error");
    }
}
