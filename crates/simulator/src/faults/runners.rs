//! Faults of a model's process.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use rustix::process::Signal;
use serde_json::json;

use super::{Details, Fault, machine};
use crate::clients::{self, Plan, ledger};
use crate::http_probe;
use crate::process_table::{self, Process};
use crate::runner::record::{self, Phase, Record};
use crate::world::{Owner, World, notes};

/// Model that is loaded when a fault needs a runner and there is none.
pub const DEFAULT_MODEL: &str = "smollm:135m";
/// Models of which a client loads the first that is not loaded yet.
const OTHERS: [&str; 3] = ["gemma4:26b", "qwen3.6:35b", "smollm:135m"];
/// Real time that a client in the world may take until it has a request in the runner.
const PATIENCE: Duration = Duration::from_secs(10);

/// How a runner shows that it heeds a fault.
type Shows = fn(&Record) -> bool;

/// Faults that a runner shows while a request is in it.
const SHOWN: [(Fault, Shows); 3] = [
    (Fault::RunnerStuck, |record| record.phase == Phase::Stuck),
    (Fault::RunnerBusyLoop, |record| record.phase == Phase::BusyLoop),
    (Fault::RunnerHttpDead, |record| record.http_dead),
];

/// Raises a fault of one runner, loading its model first if need be. Where
/// clients are at work the fault meets a request.
pub fn disturb(world: &World, fault: Fault, details: &Details) -> Result<String> {
    let runner = runner_of(world, details.model.as_deref())?;
    let (pid, model) = (runner.pid, &runner.model);
    let with_request = !clients::living(world).is_empty() && machine::wait_until(PATIENCE, || is_busy(world, pid));
    let parameters = json!({ "model": model, "with_request": with_request });
    if fault == Fault::RunnerKilled {
        machine::end(&[pid], Signal::KILL)?;
        return Ok(format!("the runner {pid} of {model} was killed"));
    }
    if fault == Fault::RunnerStopped {
        stop(world, pid, with_request)?;
    }
    notes::raise_for(world, fault, pid, parameters)?;
    // Where no request is in the runner, nothing can be seen of these yet.
    let is_shown = !with_request
        || SHOWN.iter().filter(|(shown, _)| *shown == fault).all(|(_, shows)| {
            machine::wait_until(machine::LIMIT, || record::of(world, pid).is_some_and(|record| shows(&record)))
        });
    if !is_shown {
        bail!("the runner {pid} of {model} does not heed the fault");
    }
    Ok(format!("the runner {pid} of {model}: {}", fault.words()))
}

/// Lets a request hang in a runner and tells its model to unload.
pub fn stop_for_ever(world: &World, details: &Details) -> Result<String> {
    let runner = runner_of(world, details.model.as_deref())?;
    let (pid, model) = (runner.pid, &runner.model);
    let port = machine::answering_port(world).context("no server answers; nothing was changed")?;
    notes::raise_for(world, Fault::StoppingForEver, pid, json!({ "model": model }))?;
    clients::start(world, &Plan::new(Fault::StoppingForEver, model, port))?;
    let hangs = machine::wait_until(machine::LIMIT, || {
        record::of(world, pid).is_some_and(|record| record.phase == Phase::Stuck)
    });
    if !hangs {
        bail!("no request came to hang in the runner {pid} of {model}");
    }
    let body = json!({ "model": model, "keep_alive": 0 }).to_string();
    if http_probe::post(port, "/api/generate", &body, Duration::from_secs(5)).is_none() {
        bail!("a request hangs in the runner {pid} of {model}, but the server did not take the unload");
    }
    Ok(format!("the runner {pid} of {model} is told to stop while a request hangs in it"))
}

/// A client asks a model that is not loaded.
pub fn load_another(world: &World, details: &Details) -> Result<String> {
    let port = machine::answering_port(world).context("no server answers; nothing was changed")?;
    let loaded = of_server(world);
    let is_loaded = |name: &str| loaded.iter().any(|record| record.model == name);
    let model = match details.model.as_deref() {
        Some(model) if is_loaded(model) => bail!("{model} is loaded already; nothing was changed"),
        Some(model) => model,
        None => match OTHERS.into_iter().find(|name| !is_loaded(name)) {
            Some(model) => model,
            None => bail!("every model is loaded already; nothing was changed"),
        },
    };
    let before = ledger::count(world, Fault::UnexpectedModel.name());
    clients::start(world, &Plan { answer_tokens: 8, ..Plan::new(Fault::UnexpectedModel, model, port) })?;
    let answered = machine::wait_until(Duration::from_secs(90), || {
        let now = ledger::count(world, Fault::UnexpectedModel.name());
        now.served + now.failed > before.served + before.failed
    });
    let now = ledger::count(world, Fault::UnexpectedModel.name());
    if now.served > before.served {
        return Ok(format!("a client loaded {model}"));
    }
    match now.last_error.filter(|_| answered) {
        Some(error) => bail!("a client asked {model}, but it was not loaded: {error}"),
        None => bail!("a client asked {model} and still waits"),
    }
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
    let runner = runner_of(world, details.model.as_deref())?;
    let parent = process_table::of(world).into_iter().find(|process| process.pid == runner.pid).map(|found| found.ppid);
    let servers = machine::pids(world, |process| process.is_serve() && Some(process.pid) == parent);
    machine::end(&servers, Signal::KILL)?;
    if !process_table::is_alive(runner.pid) {
        bail!("the runner {} ended with its server", runner.pid);
    }
    let kept = notes::owner(world) == Owner::App;
    if kept && !machine::wait_for_server(world, machine::LIMIT) {
        bail!("the runner {} is orphaned but no new server answers", runner.pid);
    }
    Ok(format!("the server was killed; the runner {} of {} is an orphan", runner.pid, runner.model))
}

/// Lets stopped runners go on.
pub fn go_on(world: &World) {
    for pid in machine::pids(world, |process| process.is_runner() && process.state == 'T') {
        process_table::signal(pid, Signal::CONT);
    }
}

/// A runner of the model, or of any model; loads one if there is none.
pub fn runner_of(world: &World, model: Option<&str>) -> Result<Record> {
    let find = |wanted: Option<&str>| {
        of_server(world).into_iter().find(|record| wanted.is_none_or(|name| record.model == name))
    };
    if let Some(found) = find(model) {
        return Ok(found);
    }
    let wanted = model.unwrap_or(DEFAULT_MODEL);
    load(world, wanted, None)?;
    find(Some(wanted)).with_context(|| format!("{wanted} was loaded but has no runner"))
}

/// Loads a model by a request without a prompt.
pub fn load(world: &World, model: &str, context: Option<u64>) -> Result<()> {
    let port =
        machine::answering_port(world).context("no server answers, so no model can be loaded; nothing was changed")?;
    let mut body = json!({ "model": model, "stream": false });
    if let Some(context) = context {
        body["options"] = json!({ "num_ctx": context });
    }
    http_probe::post(port, "/api/generate", &body.to_string(), Duration::from_secs(90))
        .with_context(|| format!("{model} cannot be loaded; nothing was changed"))?;
    Ok(())
}

/// The runners that belong to a living server.
pub fn of_server(world: &World) -> Vec<Record> {
    let processes = process_table::of(world);
    let is_server = |pid: i32| processes.iter().any(|process| process.pid == pid && process.is_serve());
    processes
        .iter()
        .filter(|process| process.is_runner() && is_server(process.ppid))
        .filter_map(|process: &Process| record::of(world, process.pid))
        .collect()
}

fn is_busy(world: &World, pid: i32) -> bool {
    record::of(world, pid).is_some_and(|record| record.busy > 0)
}

/// SIGSTOP; where clients are at work, in the middle of a request.
fn stop(world: &World, pid: i32, with_request: bool) -> Result<()> {
    let stopped = machine::wait_until(machine::LIMIT, || {
        process_table::signal(pid, Signal::STOP);
        let held = machine::wait_until(Duration::from_secs(2), || process_table::state_of(pid) == Some('T'));
        if held && with_request && !is_busy(world, pid) {
            process_table::signal(pid, Signal::CONT);
            return false;
        }
        held
    });
    if !stopped {
        bail!("the runner {pid} does not stop");
    }
    Ok(())
}
