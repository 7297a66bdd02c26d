//! The answers as types. Fields that nobody needs are not named, fields that are missing or `null` are empty, and
//! fields that newer versions add do no harm (`ollama api/types.go`).

use serde::{Deserialize, Deserializer};
use stablehand_engine::Known;
use stablehand_engine::time::Wall;

/// `/api/version`
#[derive(Debug, Deserialize)]
pub(super) struct VersionAnswer {
    pub version: String,
}

/// `/api/ps`
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Loaded {
    /// The models in memory.
    #[serde(default, deserialize_with = "or_empty")]
    pub models: Vec<LoadedModel>,
}

/// A model in memory.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct LoadedModel {
    /// Its name, with the tag.
    pub name: String,
    /// Digest of its manifest.
    #[serde(default)]
    pub digest: String,
    /// What it takes in all, as the runner reported it.
    #[serde(default, rename = "size")]
    pub size_bytes: u64,
    /// What of that is GPU memory.
    #[serde(default, rename = "size_vram")]
    pub gpu_bytes: u64,
    /// Context of one slot, in tokens; 0 before 0.11 or so.
    #[serde(default, rename = "context_length")]
    pub context_per_slot_tokens: u64,
    /// When it will be unloaded; a far year when never.
    #[serde(default = "no_stamp", deserialize_with = "stamp")]
    pub expires_at: Known<Wall>,
    /// What kind of model it is.
    #[serde(default, deserialize_with = "or_empty")]
    pub details: Details,
}

/// `/api/tags`
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Installed {
    /// The models on disk.
    #[serde(default, deserialize_with = "or_empty")]
    pub models: Vec<InstalledModel>,
}

/// A model on disk.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct InstalledModel {
    /// Its name, with the tag.
    pub name: String,
    /// Digest of its manifest.
    #[serde(default)]
    pub digest: String,
    /// Size of all its files.
    #[serde(default, rename = "size")]
    pub size_bytes: u64,
    /// The host that runs it, when that is not this one.
    #[serde(default)]
    pub remote_host: Option<String>,
    /// What kind of model it is.
    #[serde(default, deserialize_with = "or_empty")]
    pub details: Details,
}

/// What kind of model it is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Details {
    /// `gguf` or `safetensors`.
    #[serde(deserialize_with = "or_empty")]
    pub format: String,
    /// Architecture.
    #[serde(deserialize_with = "or_empty")]
    pub family: String,
    /// Size as a word, e.g. `8.2B`.
    #[serde(deserialize_with = "or_empty")]
    pub parameter_size: String,
    /// Quantisation, e.g. `Q4_K_M`.
    #[serde(deserialize_with = "or_empty")]
    pub quantization_level: String,
}

/// `/api/show`
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Shown {
    /// What kind of model it is.
    #[serde(default, deserialize_with = "or_empty")]
    pub details: Details,
    /// The model's own keys and values (`general.architecture`, `<architecture>.block_count` …).
    #[serde(default, deserialize_with = "or_empty")]
    pub model_info: serde_json::Map<String, serde_json::Value>,
    /// What it can do: `completion`, `embedding`, `vision` …
    #[serde(default, deserialize_with = "or_empty")]
    pub capabilities: Vec<String>,
    /// The host that runs it, when that is not this one.
    #[serde(default)]
    pub remote_host: Option<String>,
}

/// The answer to an unload.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Unloaded {
    /// `unload` when the server took it for what it is.
    #[serde(default)]
    pub done_reason: Option<String>,
}

/// `/api/generate`, without its text.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Generation {
    /// The answer; only whether there is one is of interest.
    #[serde(deserialize_with = "or_empty")]
    response: String,
    /// What a thinking model says before it.
    #[serde(deserialize_with = "or_empty")]
    thinking: String,
    /// Tokens generated.
    #[serde(rename = "eval_count")]
    pub tokens: u64,
    /// Time that they took.
    #[serde(rename = "eval_duration")]
    pub generation_ns: u64,
    /// Time until the model was loaded.
    #[serde(rename = "load_duration")]
    pub load_ns: u64,
}

impl Generation {
    /// Whether anything was generated that could be read.
    pub fn says_something(&self) -> bool {
        !self.response.trim().is_empty() || !self.thinking.trim().is_empty()
    }

    /// Speed in thousandths of a token a second; unknown where nothing was counted.
    pub fn millitokens_per_s(&self) -> Known<u64> {
        match (self.tokens, self.generation_ns) {
            (0, _) | (_, 0) => Known::unknown("the server counted no tokens"),
            (tokens, ns) => {
                Known::Is(u64::try_from(u128::from(tokens) * 1_000_000_000_000 / u128::from(ns)).unwrap_or(u64::MAX))
            }
        }
    }
}

/// Go writes an empty list as `null`.
fn or_empty<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(from: D) -> Result<T, D::Error> {
    Ok(Option::<T>::deserialize(from)?.unwrap_or_default())
}

fn no_stamp() -> Known<Wall> {
    Known::unknown("the server did not say")
}

fn stamp<'de, D: Deserializer<'de>>(from: D) -> Result<Known<Wall>, D::Error> {
    let text = Option::<String>::deserialize(from)?;
    let Some(text) = text else { return Ok(no_stamp()) };
    Ok(match text.parse::<jiff::Timestamp>() {
        Ok(stamp) => Known::Is(Wall::from_unix_ms(stamp.as_millisecond())),
        Err(_) => Known::unknown(format!("the server named no time: {text}")),
    })
}

/// The server's words for an error: `{"error":"…"}`, or the beginning of whatever it is.
pub(super) fn error_text(body: &[u8]) -> String {
    #[derive(Deserialize)]
    struct Refusal {
        error: String,
    }
    serde_json::from_slice::<Refusal>(body).map_or_else(|_| snippet(body), |refusal| refusal.error)
}

/// The beginning of an answer, on one line.
pub(crate) fn snippet(body: &[u8]) -> String {
    let text = String::from_utf8_lossy(&body[..body.len().min(200)]);
    let plain: String = text.chars().map(|symbol| if symbol.is_control() { ' ' } else { symbol }).collect();
    plain.trim().to_owned()
}
