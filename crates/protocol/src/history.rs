//! The past as a client draws it.

use serde::{Deserialize, Serialize};

/// What `GET /v1/history?since_s=3600&points=120` answers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "types", derive(ts_rs::TS), ts(export_to = "protocol.ts"))]
pub struct Past {
    /// Points at equal distances, oldest first. A span of which nothing is known has no point.
    pub points: Vec<PastPoint>,
    /// What happened, newest last.
    pub events: Vec<PastEvent>,
}

/// Means over one span; the greatest number of what waited. What was not known in it is `null`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "types", derive(ts_rs::TS), ts(export_to = "protocol.ts"))]
pub struct PastPoint {
    /// Its begin, RFC 3339.
    pub at: String,
    /// Memory in use.
    pub used_bytes: Option<f64>,
    /// Swap in use.
    pub swap_used_bytes: Option<f64>,
    /// Written to swap.
    pub swap_out_bytes_per_s: Option<f64>,
    /// Requests that waited at most.
    pub waiting_at_most: Option<f64>,
}

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "types", derive(ts_rs::TS), ts(export_to = "protocol.ts"))]
pub struct PastEvent {
    /// When, RFC 3339.
    pub at: String,
    /// Its kind: `verdict`, `alert`, `kill`, `restart`, `outcome`, `history`, …
    pub kind: String,
    /// Whom it is about: a model, `server`, a pid.
    pub subject: String,
    /// What happened, in a sentence.
    pub words: String,
}
