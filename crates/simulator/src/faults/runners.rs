//! Faults of a model's process.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use rustix::process::Signal;
use serde_json::json;

use super::{Details, Fault, machine};
use crate::http_probe;
use crate::models::Model;
use crate::process_table::{self, Process};
use crate::world::{Owner, World, notes};

/// Model that is loaded when a fault needs a runner and there is none.
const DEFAULT_MODEL: &str = "smollm:135m";

/// Raises a fault of one runner, loading its model first if need be.
pub fn disturb(world: &World, fault: Fault, details: &Details) -> Result<String> {
    let (runner, model) = runner_of(world, details.model.as_deref())?;
    let pid = runner.pid;
    if fault == Fault::RunnerKilled {
        machine::end(&[pid], Signal::KILL)?;
        return Ok(format!("the runner {pid} of {model} was killed"));
    }
    if fault == Fault::RunnerStopped {
        process_table::signal(pid, Signal::STOP);
        let stopped = machine::wait_until(machine::LIMIT, || {
            process_table::of(world).iter().any(|process| process.pid == pid && process.state == 'T')
        });
        if !stopped {
            bail!("the runner {pid} does not stop");
        }
    }
    notes::raise(world, fault, &json!({ "pid": pid, "model": model }))?;
    Ok(format!("the runner {pid} of {model}: {}", fault.words()))
}

/// Kills the server; a runner stays.
pub fn orphan(world: &World, details: &Details) -> Result<String> {
    match notes::owner(world) {
        Owner::App | Owner::Manual | Owner::None => {}
        Owner::Brew => {
            bail!("launchd ends the process group of its job, so no runner is left behind; nothing was changed")
        }
        Owner::Systemd | Owner::UserUnit | Owner::Container => {
            bail!("the whole control group ends with the server, so no runner is left behind; nothing was changed")
        }
    }
    let (runner, model) = runner_of(world, details.model.as_deref())?;
    let servers = machine::pids(world, |process| process.is_serve() && process.pid == runner.ppid);
    machine::end(&servers, Signal::KILL)?;
    if !process_table::is_alive(runner.pid) {
        bail!("the runner {} ended with its server", runner.pid);
    }
    let kept = notes::owner(world) == Owner::App;
    if kept && !machine::wait_for_server(world, machine::LIMIT) {
        bail!("the runner {} is orphaned but no new server answers", runner.pid);
    }
    Ok(format!("the server was killed; the runner {} of {model} is an orphan", runner.pid))
}

/// Lets stopped runners go on.
pub fn go_on(world: &World) {
    for pid in machine::pids(world, |process| process.is_runner() && process.state == 'T') {
        process_table::signal(pid, Signal::CONT);
    }
}

/// A runner of the model, or of any model; loads one if there is none.
fn runner_of(world: &World, model: Option<&str>) -> Result<(Process, String)> {
    if let Some(found) = find(world, model) {
        return Ok(found);
    }
    let wanted = model.unwrap_or(DEFAULT_MODEL);
    let port =
        machine::answering_port(world).context("no server answers, so no model can be loaded; nothing was changed")?;
    let body = json!({ "model": wanted, "stream": false }).to_string();
    http_probe::post(port, "/api/generate", &body, Duration::from_secs(90))
        .with_context(|| format!("{wanted} cannot be loaded; nothing was changed"))?;
    find(world, Some(wanted)).with_context(|| format!("{wanted} was loaded but has no runner"))
}

fn find(world: &World, model: Option<&str>) -> Option<(Process, String)> {
    let servers: Vec<i32> = machine::pids(world, Process::is_serve);
    process_table::of(world)
        .into_iter()
        .filter(|process| process.is_runner() && servers.contains(&process.ppid))
        .filter_map(|process| {
            let blob = process.argument_after("--model")?;
            let facts: Model = serde_json::from_str(&std::fs::read_to_string(blob).ok()?).ok()?;
            Some((process, facts.name))
        })
        .find(|(_, name)| model.is_none_or(|wanted| name == wanted))
}
