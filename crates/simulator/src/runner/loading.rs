//! The load of a model.

use std::process::ExitCode;
use std::time::Duration;

use super::arguments::Kind;
use super::pace::{Pace, Work};
use super::record::Phase;
use super::{Runner, output, say};
use crate::faults::Fault;
use crate::world::notes;

/// Steps in which the progress of a load is told.
const STEPS: u32 = 20;

/// Loads the model. The error is how the process ends.
pub async fn load(runner: &Runner, port: u16) -> Result<(), ExitCode> {
    let (slots, context) = {
        let state = runner.state();
        (state.slots.len() as u64, state.context)
    };
    runner.enter(Phase::Loading);
    let needed = runner.model.loaded_bytes(context, slots);
    if runner.kind == Kind::LlamaServer {
        output::say_load(runner, context, slots);
        if needed > runner.world.marker.gpu_working_set_bytes {
            say(&format!(
                "ggml_metal_buffer_type_alloc_buffer: error: failed to allocate buffer, size = {:.2} MiB\nsrv    load_model: failed to load model, '{}'\nsrv  llama_server: exiting due to model loading error",
                needed as f64 / 1_048_576.0,
                runner.model_path,
            ));
            return Err(ExitCode::FAILURE);
        }
    }
    let mut pace = Pace::new();
    for step in 1..=STEPS {
        pace.spend(runner, duration(runner) / STEPS, Work::Load).await;
        runner.state().progress = f64::from(step) / f64::from(STEPS);
        runner.note_load(step);
    }
    if runner.kind == Kind::LlamaServer {
        say("srv  llama_server: model loaded");
        say(&format!("srv  llama_server: listening on http://127.0.0.1:{port}"));
        say("srv  update_slots: all slots are idle");
    }
    runner.enter(Phase::Idle);
    runner.state().ready = true;
    Ok(())
}

/// The model's own time, unless a longer one is asked for.
fn duration(runner: &Runner) -> Duration {
    notes::raised(&runner.world, Fault::WorkLongLoad)
        .filter(|value| value["model"] == runner.model.name.as_str())
        .and_then(|value| value["seconds"].as_u64())
        .map_or(Duration::from_millis(runner.model.load_ms), Duration::from_secs)
}
