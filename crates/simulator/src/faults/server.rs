//! Faults of the server process, for as long as it lives.

use std::time::Duration;

use anyhow::{Result, bail};
use serde_json::json;

use super::{Fault, machine};
use crate::http_probe;
use crate::world::{World, notes};

/// Real time in which an answer is known not to come.
const PROBE: Duration = Duration::from_millis(250);

/// Raises a fault for the server that answers now. A path that it must not
/// answer any more is tried.
pub fn disturb(world: &World, fault: Fault, unanswered: Option<&str>) -> Result<String> {
    let Some((pid, port)) = machine::answering_server(world) else {
        bail!("no server answers; nothing was changed");
    };
    notes::raise_for(world, fault, pid, json!({}))?;
    if let Some(path) = unanswered {
        let silent = machine::wait_until(machine::LIMIT, || http_probe::get(port, path, PROBE).is_none());
        if !silent {
            bail!("the server {pid} goes on answering {path}");
        }
    }
    Ok(format!("the server {pid}: {}", fault.words()))
}
