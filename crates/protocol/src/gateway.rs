//! The gateway as the daemon sees it.

use crate::{Failure, Known};
use serde::{Deserialize, Serialize};

/// Where the gateway stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "types", derive(ts_rs::TS), ts(export_to = "protocol.ts"))]
pub struct Gateway {
    /// What is wished: `off`, `beside` or `takeover`.
    pub mode: String,
    /// What is: `off`, `beside`, `in-place`, `leaving` (it serves what it has and takes nothing new), `changing` (on its
    /// way to what is wished) or `aside` (not in Ollama's place although it is wished, see `aside`).
    pub state: String,
    /// It in one sentence.
    pub words: String,
    /// Where clients reach it, a URL; `null` while it listens nowhere.
    pub listen: Option<String>,
    /// Where Ollama is behind it, a URL; `null` while it stands nowhere.
    pub upstream: Option<String>,
    /// Whether a real `GET /api/version` came through it just now.
    pub healthy: Known<bool>,
    /// Its pid.
    pub pid: Option<u32>,
    /// Why it is not in Ollama's place.
    pub aside: Option<Failure>,
}
