//! What a runner says on its own port: the back door to progress that the server itself does not have.
//!
//! A `llama-server` (0.30 and newer) tells its slots, its properties and, when it was started with them, its counters;
//! an MLX runner tells how far a load is; the older `ollama runner` tells no more than whether it is ready. All of them
//! listen on 127.0.0.1, at the port in their arguments, and ask for no key.
//!
//! Shapes differ from build to build, so each answer is read with whatever it holds, and what it does not hold is
//! unknown with a reason. In newer builds HTTP threads answer without the decode loop: an answer is a fact about the
//! HTTP side, and only a counter in it that moves is a fact about the work.

mod evidence;
mod metrics;
mod properties;
mod slots;

pub use evidence::{RunnerEvidence, evidence, slots_seen};
pub use metrics::{Counter, Metrics};
pub use properties::{MlxStatus, Properties};
pub use slots::Slot;

use crate::client::{Answer, CallError, Client, snippet};
use hyper::Method;
use serde_json::Value;
use stablehand_engine::process::RunnerKind;
use std::time::Duration;
use tokio::time::Instant;

/// Asks one runner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunnerClient {
    client: Client,
}

/// What a runner's HTTP side says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HealthAnswer {
    /// It is ready.
    Ok,
    /// Its model is being loaded.
    Loading,
    /// Nothing within the deadline.
    Silent,
    /// Nothing listens there: it has ended, or has not begun to listen.
    Refused,
    /// Something that no runner says; the reason is a phrase for a person.
    Strange(String),
}

/// Why a runner did not tell what it was asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoAnswer {
    /// Nothing listens there.
    #[error("nothing listens on the runner's port")]
    Refused,
    /// Nothing within the deadline.
    #[error("the runner did not answer {path} within {} ms", deadline.as_millis())]
    Silent {
        /// What was asked.
        path: &'static str,
        /// How long it was waited for.
        deadline: Duration,
    },
    /// Its model is being loaded.
    #[error("the runner is loading its model")]
    Loading,
    /// It does not have this: another generation, or not switched on.
    #[error("the runner does not offer {path}")]
    Unsupported {
        /// What was asked.
        path: &'static str,
    },
    /// An answer of an unknown shape.
    #[error("{0}")]
    Strange(String),
}

/// What one look at a runner came to.
#[derive(Clone, Debug, PartialEq)]
pub struct Look {
    /// Its HTTP side.
    pub health: HealthAnswer,
    /// Its slots.
    pub slots: Result<Vec<Slot>, NoAnswer>,
    /// Its counters.
    pub metrics: Result<Metrics, NoAnswer>,
}

/// Builds of `llama-server` differ in what they tell of a slot, its sampling parameters among it; this is enough for
/// hundreds of slots.
const MOST_ANSWER_BYTES: usize = 4 << 20;

impl RunnerClient {
    /// A client of the runner at that port of 127.0.0.1.
    pub fn new(port: u16) -> Self {
        Self { client: Client::of_port(port).with_most_answer_bytes(MOST_ANSWER_BYTES) }
    }

    /// The port.
    pub fn port(&self) -> u16 {
        self.client.address().port()
    }

    /// `GET /health`. An MLX runner sends this on to `/v1/status`, which is asked within the same deadline.
    pub async fn health(&self, deadline: Duration) -> HealthAnswer {
        let began = Instant::now();
        let answer = match self.get("/health", deadline).await {
            Ok(answer) if matches!(answer.status, 301 | 302 | 307 | 308) => {
                self.get("/v1/status", deadline.saturating_sub(began.elapsed())).await
            }
            other => other,
        };
        match answer {
            Ok(answer) => health_of(answer.status, &answer.body),
            Err(CallError::Refused { .. }) => HealthAnswer::Refused,
            Err(CallError::Silent { .. }) => HealthAnswer::Silent,
            Err(error) => HealthAnswer::Strange(error.to_string()),
        }
    }

    /// `GET /slots` of a `llama-server`.
    ///
    /// # Errors
    /// [`NoAnswer`].
    pub async fn slots(&self, deadline: Duration) -> Result<Vec<Slot>, NoAnswer> {
        slots::parse(&self.ask("/slots", deadline).await?).map_err(NoAnswer::Strange)
    }

    /// `GET /props` of a `llama-server`.
    ///
    /// # Errors
    /// [`NoAnswer`].
    pub async fn props(&self, deadline: Duration) -> Result<Properties, NoAnswer> {
        properties::parse(&self.ask("/props", deadline).await?).map_err(NoAnswer::Strange)
    }

    /// `GET /metrics` of a `llama-server` that has `LLAMA_ARG_ENDPOINT_METRICS=1` in its environment.
    ///
    /// # Errors
    /// [`NoAnswer`].
    pub async fn metrics(&self, deadline: Duration) -> Result<Metrics, NoAnswer> {
        metrics::parse(&self.ask("/metrics", deadline).await?).map_err(NoAnswer::Strange)
    }

    /// `GET /v1/status` of an MLX runner. It comes from a cache: it says nothing about the work either.
    ///
    /// # Errors
    /// [`NoAnswer`].
    pub async fn mlx_status(&self, deadline: Duration) -> Result<MlxStatus, NoAnswer> {
        properties::parse_mlx(&self.ask("/v1/status", deadline).await?).map_err(NoAnswer::Strange)
    }

    /// Asks at once what a runner of that kind can tell. A runner that does not have slots or counters is not asked for
    /// them.
    pub async fn look(&self, kind: RunnerKind, deadline: Duration) -> Look {
        match kind {
            RunnerKind::LlamaServer => {
                let (health, slots, metrics) =
                    tokio::join!(self.health(deadline), self.slots(deadline), self.metrics(deadline));
                Look { health, slots, metrics }
            }
            RunnerKind::OllamaRunner | RunnerKind::Mlx => Look {
                health: self.health(deadline).await,
                slots: Err(NoAnswer::Unsupported { path: "/slots" }),
                metrics: Err(NoAnswer::Unsupported { path: "/metrics" }),
            },
        }
    }

    async fn get(&self, path: &'static str, deadline: Duration) -> Result<Answer, CallError> {
        self.client.exchange(Method::GET, path, None, deadline).await
    }

    /// The body of a 200.
    async fn ask(&self, path: &'static str, deadline: Duration) -> Result<Vec<u8>, NoAnswer> {
        let answer = self.get(path, deadline).await.map_err(|error| match error {
            CallError::Refused { .. } => NoAnswer::Refused,
            CallError::Silent { path, deadline } => NoAnswer::Silent { path, deadline },
            CallError::Broken { .. }
            | CallError::NotOllama { .. }
            | CallError::Status { .. }
            | CallError::Malformed { .. } => NoAnswer::Strange(error.to_string()),
        })?;
        match answer.status {
            200 => Ok(answer.body.to_vec()),
            404 | 405 | 501 => Err(NoAnswer::Unsupported { path }),
            503 if tells_of_loading(&answer.body) => Err(NoAnswer::Loading),
            status => {
                let text = snippet(&answer.body);
                Err(NoAnswer::Strange(format!("the runner answered {path} with status {status}: {text}")))
            }
        }
    }
}

/// What `/health` says, of every generation: `{"status":"ok"}`, `{"status":"no slot available"}`, a 503 with
/// `{"error":{"message":"Loading model"}}`, the older runner's `{"status":2,"progress":0.4}` and MLX's
/// `{"Status":0,"Progress":100}`. The older numbers are 0 ready, 1 no slot free, then the stages of a load, 4 and more
/// for what went wrong (`ollama llm/server.go`, 0.12).
fn health_of(status: u16, body: &[u8]) -> HealthAnswer {
    if status == 503 && tells_of_loading(body) {
        return HealthAnswer::Loading;
    }
    let strange = || HealthAnswer::Strange(format!("/health has status {status}: {}", snippet(body)));
    let Ok(Value::Object(object)) = serde_json::from_slice(body) else { return strange() };
    let said = object.get("status").or_else(|| object.get("Status"));
    match (status, said) {
        (200, Some(Value::String(word))) if word == "ok" => HealthAnswer::Ok,
        (200 | 503, Some(Value::String(word))) if word.starts_with("no slot") => HealthAnswer::Ok,
        (200 | 503, Some(Value::String(word))) if word.contains("loading") => HealthAnswer::Loading,
        (200, Some(Value::Number(number))) => match number.as_u64() {
            Some(0 | 1) => HealthAnswer::Ok,
            Some(2 | 3) => HealthAnswer::Loading,
            Some(_) | None => strange(),
        },
        _ => strange(),
    }
}

/// A 503 of `llama-server` while its model is being loaded. Anything else that answers 503 is no runner.
fn tells_of_loading(body: &[u8]) -> bool {
    let Ok(Value::Object(object)) = serde_json::from_slice(body) else { return false };
    let message = match object.get("error") {
        Some(Value::Object(error)) => error.get("message").and_then(Value::as_str),
        Some(Value::String(error)) => Some(error.as_str()),
        _ => object.get("status").and_then(Value::as_str),
    };
    message.is_some_and(|message| message.to_ascii_lowercase().contains("loading"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn every_generation_says_that_it_is_ready_or_loading() {
        for (status, body, expected) in [
            (200, r#"{"status":"ok"}"#, HealthAnswer::Ok),
            (200, r#"{"status":"no slot available","slots_idle":0}"#, HealthAnswer::Ok),
            (
                503,
                r#"{"error":{"code":503,"message":"Loading model","type":"unavailable_error"}}"#,
                HealthAnswer::Loading,
            ),
            (503, r#"{"status":"loading model"}"#, HealthAnswer::Loading),
            (200, r#"{"status":0,"progress":1}"#, HealthAnswer::Ok),
            (200, r#"{"status":2,"progress":0.37}"#, HealthAnswer::Loading),
            (200, r#"{"Status":0,"Progress":100,"ContextLength":8192,"Memory":5}"#, HealthAnswer::Ok),
        ] {
            assert_eq!(health_of(status, body.as_bytes()), expected, "{body}");
        }
    }

    #[test]
    fn what_no_runner_says_is_strange() {
        for (status, body) in [
            (200, "<html><title>It works</title></html>"),
            (200, "{}"),
            (200, r#"{"status":5}"#),
            (200, r#"{"status":-1}"#),
            (200, "[]"),
            (503, "<html>503 Service Unavailable</html>"),
            (500, r#"{"status":"ok"}"#),
            (401, "{}"),
        ] {
            assert!(matches!(health_of(status, body.as_bytes()), HealthAnswer::Strange(_)), "{body}");
        }
    }

    proptest! {
        #[test]
        fn no_body_makes_a_reader_panic(status in 100..600_u16, body in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = health_of(status, &body);
            let _ = slots::parse(&body);
            let _ = properties::parse(&body);
            let _ = properties::parse_mlx(&body);
            let _ = metrics::parse(&body);
        }
    }
}
