//! Small notes between the processes of a world, kept in `.sim/`: which faults
//! are raised, who starts Ollama, what the session forbids.

use std::time::SystemTime;

use serde_json::{Value, json};

use super::{Owner, World, write_whole};
use crate::faults::Fault;

/// The parameters of a fault that is raised, if it is.
pub fn raised(world: &World, fault: Fault) -> Option<Value> {
    let text = std::fs::read_to_string(fault_file(world, fault)).ok()?;
    Some(serde_json::from_str(&text).unwrap_or(Value::Null))
}

/// Whether a fault is raised.
pub fn is_raised(world: &World, fault: Fault) -> bool {
    raised(world, fault).is_some()
}

/// Raises a fault with parameters.
pub fn raise(world: &World, fault: Fault, parameters: &Value) -> anyhow::Result<()> {
    write_whole(&fault_file(world, fault), parameters.to_string().as_bytes())
}

/// When a fault was last raised or taken back.
pub fn last_change(world: &World) -> SystemTime {
    let folder = world.state("faults");
    std::fs::metadata(folder).and_then(|meta| meta.modified()).unwrap_or(SystemTime::UNIX_EPOCH)
}

/// Takes a fault back. Nothing happens if it is not raised.
pub fn clear(world: &World, fault: Fault) {
    let _ = std::fs::remove_file(fault_file(world, fault));
}

/// Uses up one of the `times` that a fault was raised for. True if the fault
/// holds this time.
pub fn consume(world: &World, fault: Fault) -> bool {
    let Some(parameters) = raised(world, fault) else {
        return false;
    };
    let times = parameters["times"].as_u64().unwrap_or(1);
    // A fault that cannot be counted down ends, so that it cannot last for ever.
    if times <= 1 || raise(world, fault, &json!({ "times": times - 1 })).is_err() {
        clear(world, fault);
    }
    true
}

/// The parameters of a fault that is raised for the process `pid`, if it is.
pub fn raised_for(world: &World, fault: Fault, pid: u32) -> Option<Value> {
    raised(world, fault).filter(|value| {
        value["pids"].as_array().is_some_and(|pids| pids.iter().any(|one| one.as_u64() == Some(u64::from(pid))))
    })
}

/// Raises a fault for one more process. Those for which it was raised before
/// keep it, with the new parameters.
pub fn raise_for(world: &World, fault: Fault, pid: i32, mut parameters: Value) -> anyhow::Result<()> {
    let mut pids: Vec<i64> = raised(world, fault)
        .and_then(|value| Some(value["pids"].as_array()?.iter().filter_map(Value::as_i64).collect()))
        .unwrap_or_default();
    pids.retain(|old| *old != i64::from(pid));
    pids.push(i64::from(pid));
    parameters["pids"] = json!(pids);
    raise(world, fault, &parameters)
}

/// What starts Ollama here.
pub fn owner(world: &World) -> Owner {
    std::fs::read_to_string(world.state("owner"))
        .ok()
        .and_then(|text| serde_json::from_str(&text).ok())
        .unwrap_or(Owner::None)
}

/// Whether someone sits at the screen.
pub fn console_in_use(world: &World) -> bool {
    world.state("console").exists()
}

fn fault_file(world: &World, fault: Fault) -> std::path::PathBuf {
    world.state("faults").join(fault.name())
}
