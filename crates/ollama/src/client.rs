//! What a running server answers, over loopback and with a deadline on every call.
//!
//! Each call is its own connection that is closed with it: Ollama may be gone and back between two calls, and a
//! connection from a pool would only tell that late. A deadline covers the whole call, from the connection to the last
//! byte. What the errors mean differs: [`CallError::Refused`] is a server that is down, [`CallError::Silent`] one that is
//! up and does not answer — `/api/ps` can wait for a lock while `/api/version` answers at once.

mod answers;
mod exchange;
mod terms;

pub(crate) use answers::snippet;
pub(crate) use exchange::Answer;

pub use answers::{Details, Generation, Installed, InstalledModel, Loaded, LoadedModel, Shown, Unloaded};
pub use terms::{LoadTerms, Stay};

use crate::version::Version;
use hyper::Method;
use serde::de::DeserializeOwned;
use serde_json::json;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

/// Asks one server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Client {
    address: SocketAddr,
    most_answer_bytes: usize,
}

/// Why an address is not asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("only a server on this machine's loopback address is asked, and this is none: {0}")]
pub struct NotLoopback(pub SocketAddr);

/// Why there is no answer. None of the calls but an unload and a short answer (which may load) changes anything, and
/// those only when they were received.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// Nobody listens there.
    #[error("nothing listens on {address}")]
    Refused {
        /// Where.
        address: SocketAddr,
    },
    /// Somebody listens and did not answer in time.
    #[error("no answer to {path} within {} ms", deadline.as_millis())]
    Silent {
        /// What was asked.
        path: &'static str,
        /// How long it was waited for.
        deadline: Duration,
    },
    /// The connection broke before the answer was complete.
    #[error("the connection broke before the answer to {path} was complete: {reason}")]
    Broken {
        /// What was asked.
        path: &'static str,
        /// The system's words.
        reason: String,
    },
    /// Something else than Ollama answered.
    #[error("what answers on {address} is not Ollama: {reason}")]
    NotOllama {
        /// Where.
        address: SocketAddr,
        /// What was wrong with the answer.
        reason: String,
    },
    /// Ollama said no.
    #[error("Ollama answered {path} with status {code}: {text}")]
    Status {
        /// What was asked.
        path: &'static str,
        /// HTTP status.
        code: u16,
        /// Its words.
        text: String,
    },
    /// The answer cannot be understood.
    #[error("the answer to {path} cannot be understood: {reason}")]
    Malformed {
        /// What was asked.
        path: &'static str,
        /// What is wrong with it.
        reason: String,
    },
}

/// Enough for `/api/show` with every array of a large vocabulary.
const MOST_ANSWER_BYTES: usize = 64 << 20;

impl Client {
    /// A client of the server at that address.
    ///
    /// # Errors
    /// [`NotLoopback`] for any other address than a loopback one.
    pub fn new(address: SocketAddr) -> Result<Self, NotLoopback> {
        if address.ip().is_loopback() {
            Ok(Self { address, most_answer_bytes: MOST_ANSWER_BYTES })
        } else {
            Err(NotLoopback(address))
        }
    }

    /// A client of whatever listens at that port of 127.0.0.1.
    pub(crate) fn of_port(port: u16) -> Self {
        Self { address: (Ipv4Addr::LOCALHOST, port).into(), most_answer_bytes: MOST_ANSWER_BYTES }
    }

    /// The same client, which gives up answers that are longer.
    #[must_use]
    pub fn with_most_answer_bytes(self, most_answer_bytes: usize) -> Self {
        Self { most_answer_bytes, ..self }
    }

    /// The server's address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// `GET /api/version`: the one question that takes no lock. Whoever answers it otherwise is not Ollama.
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn version(&self, deadline: Duration) -> Result<Version, CallError> {
        let path = "/api/version";
        let answer = self.exchange(Method::GET, path, None, deadline).await?;
        let not_ollama = |reason: String| CallError::NotOllama { address: self.address, reason };
        if answer.status != 200 {
            return Err(not_ollama(format!("{path} has status {}", answer.status)));
        }
        let version: answers::VersionAnswer = serde_json::from_slice(&answer.body)
            .map_err(|_| not_ollama(format!("{path} holds no version: {}", snippet(&answer.body))))?;
        version.version.parse().map_err(|error| CallError::Malformed { path, reason: format!("{error}") })
    }

    /// `GET /api/ps`: the models in memory. One that is still being loaded is not among them, one whose runner died may
    /// be. It can wait for a lock for seconds, or for a whole load.
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn ps(&self, deadline: Duration) -> Result<Loaded, CallError> {
        self.ask(Method::GET, "/api/ps", None, deadline).await
    }

    /// `GET /api/tags`: the models on disk.
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn tags(&self, deadline: Duration) -> Result<Installed, CallError> {
        self.ask(Method::GET, "/api/tags", None, deadline).await
    }

    /// `POST /api/show`: a model's numbers. Without `verbose` every array of more than five entries comes empty.
    ///
    /// # Errors
    /// [`CallError`]; status 404 when there is no such model.
    pub async fn show(&self, model: &str, verbose: bool, deadline: Duration) -> Result<Shown, CallError> {
        let body = json!({ "model": model, "verbose": verbose });
        self.ask(Method::POST, "/api/show", Some(&body), deadline).await
    }

    /// `POST /api/generate` with `keep_alive` 0 and no prompt: unloads the model at once, or as soon as its requests are
    /// done. The answer comes before that; whether the memory is free is seen at the processes.
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn unload(&self, model: &str, deadline: Duration) -> Result<Unloaded, CallError> {
        let body = json!({ "model": model, "keep_alive": 0, "stream": false });
        self.ask(Method::POST, "/api/generate", Some(&body), deadline).await
    }

    /// `POST /api/generate` for two tokens (an answer of one is what a broken GPU gives): proves that the model's next
    /// request is answered. It has to come on the terms that the model's clients have: a request without `num_ctx` asks
    /// for the default context, so that the server loads the model anew for it and once more for the next client
    /// (`needsReload` in `ollama server/sched.go`), and one without `keep_alive` puts the default in the place of a stay
    /// that a client has asked for. What is not known of the terms is left to the server.
    ///
    /// # Errors
    /// [`CallError`]; status 400 for a model that generates nothing.
    pub async fn short_answer(&self, model: &str, terms: LoadTerms, deadline: Duration) -> Result<(), CallError> {
        let mut body = json!({ "model": model, "prompt": "Hello", "stream": false, "options": { "num_predict": 2 } });
        if let Some(tokens) = terms.context_per_slot_tokens {
            body["options"]["num_ctx"] = json!(tokens);
        }
        match terms.stay {
            Some(Stay::Forever) => body["keep_alive"] = json!(-1),
            // Whole seconds, and never 0, which would unload it.
            Some(Stay::For(span)) => body["keep_alive"] = json!(span.as_secs().max(1)),
            None => {}
        }
        self.ask::<serde_json::Value>(Method::POST, "/api/generate", Some(&body), deadline).await.map(|_| ())
    }

    /// `POST /api/generate` for a short answer, after which the model is unloaded: what it does, and how fast.
    ///
    /// # Errors
    /// [`CallError`]; status 400 for a model that generates nothing.
    pub async fn generation(&self, model: &str, prompt: &str, deadline: Duration) -> Result<Generation, CallError> {
        let body = json!({
            "model": model, "prompt": prompt, "stream": false, "keep_alive": 0,
            "options": { "num_predict": 64, "temperature": 0, "seed": 1 },
        });
        self.ask(Method::POST, "/api/generate", Some(&body), deadline).await
    }

    async fn ask<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &'static str,
        body: Option<&serde_json::Value>,
        deadline: Duration,
    ) -> Result<T, CallError> {
        let answer = self.exchange(method, path, body, deadline).await?;
        if answer.status != 200 {
            let text = answers::error_text(&answer.body);
            return Err(CallError::Status { path, code: answer.status, text });
        }
        serde_json::from_slice(&answer.body)
            .map_err(|error| CallError::Malformed { path, reason: format!("{error}: {}", snippet(&answer.body)) })
    }

    /// Asks anything and gives back the answer, whatever its status.
    pub(crate) async fn exchange(
        &self,
        method: Method,
        path: &'static str,
        body: Option<&serde_json::Value>,
        deadline: Duration,
    ) -> Result<Answer, CallError> {
        let body = body.map(serde_json::Value::to_string).unwrap_or_default();
        let call = exchange::exchange(self.address, method, path, body, self.most_answer_bytes);
        tokio::time::timeout(deadline, call).await.unwrap_or(Err(CallError::Silent { path, deadline }))
    }
}
