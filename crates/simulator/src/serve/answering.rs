//! From a request to a running generation: find the model, get a runner, wait
//! for a slot, ask.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::http::StatusCode;
use serde_json::Value;

use super::completion::Generation;
use super::environment::{GoDuration, parse_duration};
use super::log::Phase;
use super::scheduler::{Lease, Refused, Want, set};
use super::{Arrival, Server};

/// What Ollama says when the bounded queue is full, with its two spaces.
pub const BUSY: &str = "server busy, please try again.  maximum pending requests exceeded";
/// What it says when a runner went away before it answered.
pub const RUNNER_GONE: &str = "model runner has unexpectedly stopped, this may be due to resource limitations or an internal error, check ollama server logs for details";
/// What it says when a runner went away in the middle.
pub const RUNNER_BROKE: &str = "an error was encountered while running the model: unexpected EOF";

/// A refusal that becomes an error answer.
#[derive(Debug)]
pub struct Problem {
    /// Status.
    pub status: StatusCode,
    /// Words.
    pub message: String,
}

impl Problem {
    /// A problem with a status and words.
    pub fn new(status: StatusCode, message: impl Into<String>) -> Self {
        Self { status, message: message.into() }
    }
}

/// The parts of a request that matter to the scheduler.
#[derive(Clone, Debug, Default)]
pub struct Ask {
    /// Model name as asked.
    pub model: String,
    /// Prompt text; empty to load or unload.
    pub prompt: String,
    /// Images beside it.
    pub images: u64,
    /// `options` object.
    pub options: Value,
    /// `keep_alive` value.
    pub keep_alive: Value,
}

impl Ask {
    /// Whether this asks to let the model go.
    pub fn is_unload(&self) -> bool {
        self.prompt.is_empty() && keep_alive(&self.keep_alive) == Some(Some(Duration::ZERO))
    }
}

/// A generation under way, with what its answer must tell.
pub struct Running {
    /// The steps.
    pub generation: Generation,
    /// Name of the model.
    pub model: String,
    /// When the request came.
    pub arrived: Instant,
    /// Time until the model was there, world.
    pub load: Duration,
}

/// Gets a runner for the request.
pub async fn lease(server: &Server, ask: &Ask, arrival: &Arrival) -> Result<(Lease, String), Problem> {
    if ask.model.is_empty() {
        return Err(Problem::new(StatusCode::BAD_REQUEST, "model is required"));
    }
    let stored = server
        .library
        .find(&ask.model)
        .ok_or_else(|| Problem::new(StatusCode::NOT_FOUND, format!("model '{}' not found", ask.model)))?;
    let asked = ask.options["num_ctx"].as_u64().filter(|tokens| *tokens > 0);
    let context = asked.unwrap_or_else(|| server.default_context()).min(stored.model.context_length).max(4);
    let name = stored.model.name.clone();
    let want = Want {
        stored,
        context,
        context_is_automatic: asked.is_none() && server.environment.context_length == 0,
        options: load_options(&ask.options),
        keep_alive: keep_alive(&ask.keep_alive),
    };
    match server.scheduler.acquire(want, Arc::clone(&arrival.phase)).await {
        Ok(lease) => Ok((lease, name)),
        Err(Refused::QueueFull) => Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, BUSY)),
        Err(Refused::LoadFailed(message)) => Err(Problem::new(StatusCode::INTERNAL_SERVER_ERROR, message)),
    }
}

/// Starts generating.
pub async fn run(server: &Server, ask: &Ask, arrival: &Arrival) -> Result<Running, Problem> {
    let (lease, model) = lease(server, ask, arrival).await?;
    let load = server.world.clock.since(arrival.at);
    set(&arrival.phase, Phase::Waiting);
    let gate = Arc::clone(&lease.runner.gate);
    let permit =
        gate.acquire_owned().await.map_err(|_| Problem::new(StatusCode::INTERNAL_SERVER_ERROR, RUNNER_GONE))?;
    set(&arrival.phase, Phase::Plain);
    let context = lease.runner.context;
    let predict = ask.options["num_predict"].as_i64().unwrap_or(-1);
    let predict = if predict > 0 { predict.min(10 * context as i64) } else { -1 };
    let generation = Generation::start(lease, permit, &ask.prompt, ask.images, predict)
        .await
        .ok_or_else(|| Problem::new(StatusCode::INTERNAL_SERVER_ERROR, RUNNER_GONE))?;
    Ok(Running { generation, model, arrived: arrival.at, load })
}

/// Reads a `keep_alive`: `None` if absent, `Some(None)` for ever.
pub fn keep_alive(value: &Value) -> Option<Option<Duration>> {
    let parsed = match value {
        Value::Number(number) => {
            let seconds = number.as_f64()?;
            if seconds < 0.0 {
                GoDuration::Negative
            } else {
                GoDuration::Positive(Duration::try_from_secs_f64(seconds).ok()?)
            }
        }
        Value::String(text) => parse_duration(text)?,
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => return None,
    };
    Some(match parsed {
        GoDuration::Negative => None,
        GoDuration::Positive(duration) => Some(duration),
    })
}

/// The options that make a loaded runner unfit, as text.
fn load_options(options: &Value) -> String {
    ["num_batch", "num_gpu", "main_gpu", "use_mmap", "num_thread"]
        .iter()
        .filter(|key| !options[**key].is_null())
        .map(|key| format!("{key}={} ", options[*key]))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn keep_alive_takes_seconds_and_durations() {
        assert_eq!(keep_alive(&json!(null)), None);
        assert_eq!(keep_alive(&json!(0)), Some(Some(Duration::ZERO)));
        assert_eq!(keep_alive(&json!(-1)), Some(None));
        assert_eq!(keep_alive(&json!("10m")), Some(Some(Duration::from_secs(600))));
        assert_eq!(keep_alive(&json!("-1s")), Some(None));
    }

    #[test]
    fn an_empty_prompt_with_no_keep_alive_is_an_unload() {
        let mut ask = Ask { keep_alive: json!(0), ..Ask::default() };
        assert!(ask.is_unload());
        ask.prompt = "hello".into();
        assert!(!ask.is_unload());
    }

    #[test]
    fn options_that_matter_to_a_load_are_compared() {
        assert_eq!(load_options(&json!({"temperature": 1})), "");
        assert_eq!(load_options(&json!({"num_gpu": 3})), "num_gpu=3 ");
    }
}
