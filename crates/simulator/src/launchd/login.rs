//! Login and logout of the world's user.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::job_plist::{self, JobPlist, KeepAlive};
use super::{Shared, jobs};
use crate::process_table;
use crate::wire::Reply;
use crate::world::{Owner, World, notes};

/// Label of the app's login item.
pub const LOGIN_ITEM: &str = "com.ollama.ollama";

/// Real time that login waits for agents that end by themselves.
const ONE_SHOT_LIMIT: Duration = Duration::from_secs(5);

/// Loads the agents of the home directory and the app's login item. There is
/// no order between them on a Mac; the caller says who wins.
pub async fn log_in(shared: &Shared, agents_first: bool) -> Reply {
    if agents_first {
        load_agents(shared).await;
        load_login_item(shared);
    } else {
        load_login_item(shared);
        wait_for_server(shared).await;
        load_agents(shared).await;
    }
    Reply::quiet()
}

/// Ends every job and app, and forgets the session's environment.
pub async fn log_out(shared: &Shared) -> Reply {
    let labels: Vec<String> = shared.borrow().jobs.keys().cloned().collect();
    for label in &labels {
        jobs::drain(shared, label);
    }
    let processes = process_table::of(&shared.borrow().world);
    for process in processes.iter().filter(|process| process.is_gui()) {
        process_table::signal(process.pid, Signal::TERM);
    }
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        let apps_left =
            process_table::of(&shared.borrow().world).iter().any(|process| process.is_gui() || process.is_serve());
        let jobs_left = !shared.borrow().jobs.is_empty();
        if (!apps_left && !jobs_left) || Instant::now() > deadline {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    shared.borrow_mut().session.clear();
    Reply::quiet()
}

async fn load_agents(shared: &Shared) {
    let (agents, uid) = {
        let state = shared.borrow();
        (agent_files(&state.world), state.uid)
    };
    let mut one_shots = Vec::new();
    for file in agents {
        let Ok(plist) = job_plist::read(&file, uid) else {
            continue;
        };
        let state = shared.borrow();
        let off = state.disabled.get(&plist.label).copied().unwrap_or(false);
        let loaded = state.jobs.contains_key(&plist.label);
        drop(state);
        if off || loaded {
            continue;
        }
        if plist.run_at_load && plist.keep_alive == KeepAlive::No {
            one_shots.push(plist.label.clone());
        }
        jobs::load(shared, plist);
    }
    let deadline = Instant::now() + ONE_SHOT_LIMIT;
    loop {
        let running =
            one_shots.iter().any(|label| shared.borrow().jobs.get(label).is_some_and(|job| job.pid.is_some()));
        if !running || Instant::now() > deadline {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

fn load_login_item(shared: &Shared) {
    let state = shared.borrow();
    let bundle = state.world.path("/Applications/Ollama.app");
    let off = state.disabled.get(LOGIN_ITEM).copied().unwrap_or(false);
    let wanted = notes::owner(&state.world) == Owner::App && bundle.is_dir();
    if !wanted || off || state.jobs.contains_key(LOGIN_ITEM) {
        return;
    }
    drop(state);
    let program = bundle.join("Contents/Frameworks/Squirrel.framework/Versions/A/Squirrel").display().to_string();
    jobs::load(
        shared,
        JobPlist {
            label: LOGIN_ITEM.to_owned(),
            path: bundle.join("Contents/Library/LaunchAgents/com.ollama.ollama.plist"),
            program: program.clone(),
            program_is_inferred: false,
            arguments: vec![program, "background".to_owned()],
            environment: std::collections::BTreeMap::new(),
            run_at_load: true,
            keep_alive: KeepAlive::No,
            throttle_s: 10,
            exit_timeout_s: 5,
            interval_s: None,
            stdout: None,
            stderr: None,
            directory: None,
            process_type: "Standard".to_owned(),
        },
    );
}

async fn wait_for_server(shared: &Shared) {
    let port = shared.borrow().world.marker.port;
    let deadline = Instant::now() + Duration::from_secs(15);
    while Instant::now() < deadline {
        let answered = tokio::task::spawn_blocking(move || {
            crate::http_probe::get(port, "/api/version", Duration::from_millis(500)).is_some()
        })
        .await
        .unwrap_or(false);
        if answered {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn agent_files(world: &World) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = std::fs::read_dir(world.home().join("Library/LaunchAgents"))
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "plist"))
        .collect();
    files.sort();
    files
}
