//! The whole state as a copy. Menu, icon, page and CLI text are pure functions of it; two copies compare with `==`.

use crate::{Failure, Gateway, Known, Versions, Watched};
use serde::{Deserialize, Deserializer, Serialize};

/// Everything the daemon knows that a person may want to see.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "types", derive(ts_rs::TS), ts(export_to = "protocol.ts"))]
pub struct Snapshot {
    /// Version of the daemon.
    pub daemon_version: String,
    /// The folder of the simulated machine, when it is one; everything shown says SIMULATED then.
    pub simulated: Option<String>,
    /// The Ollama server.
    pub server: Server,
    /// What is being done to it.
    pub work: Option<Work>,
    /// Every setting of the catalogue.
    pub settings: Vec<Setting>,
    /// Runners seen in the process table.
    pub runners: Vec<Runner>,
    /// Memory, queue, runners' verdicts and the log, once they were watched.
    #[serde(default)]
    pub watched: Option<Watched>,
    /// Versions of Ollama, once they were looked for.
    #[serde(default)]
    pub versions: Option<Versions>,
    /// Where the gateway stands.
    #[serde(default)]
    pub gateway: Option<Gateway>,
    /// The last alerts, newest last.
    pub alerts: Vec<Alert>,
    /// Until when no desktop notification is delivered, RFC 3339; `null` when they are.
    #[serde(default)]
    pub alerts_paused_until: Option<String>,
    /// Our own configuration.
    pub config: Config,
    /// Things worth knowing that are no failure, e.g. that the daemon runs as root.
    pub notes: Vec<String>,
}

/// The Ollama server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "types", derive(ts_rs::TS), ts(export_to = "protocol.ts"))]
pub struct Server {
    /// One of `looking`, `down`, `coming-up`, `up`, `silent`, `blocked`, `planning`, `preparing`, `stopping`,
    /// `starting`, `proving`, `gave-up`, `upgrading`.
    pub state: String,
    /// Since when, RFC 3339.
    pub since: String,
    /// One sentence for a person.
    pub words: String,
    /// What `/api/version` says.
    pub version: Known<String>,
    /// What starts it: `app`, `brew`, `systemd`, `agent`, `container`, `manual`.
    pub owner: Known<String>,
    /// The owner in detail, when there is one.
    pub owner_detail: Option<Owner>,
    /// Others who start a server on the same port.
    pub rivals: Vec<Rival>,
    /// Process id, when it runs and can be seen.
    pub pid: Option<u32>,
    /// When that process started, RFC 3339.
    pub started: Known<String>,
    /// The address looked at, e.g. `127.0.0.1:11434`.
    pub address: String,
    /// Whether it takes requests.
    pub serving: bool,
}

/// The owner in detail.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "types", derive(ts_rs::TS), ts(export_to = "protocol.ts"))]
pub struct Owner {
    /// Bundle, label, unit, container or program, in words.
    pub name: String,
    /// Whether a restart of ours is possible; if not, `hint` says how to make it so.
    pub can_restart: bool,
    /// How to hand it over, when we may not restart it.
    pub hint: String,
}

/// Somebody else who starts a server on the same port.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "types", derive(ts_rs::TS), ts(export_to = "protocol.ts"))]
pub struct Rival {
    /// Its owner's word.
    pub owner: String,
    /// Its pid.
    pub pid: Option<u32>,
    /// Where it runs from.
    pub path: Option<String>,
    /// Its version.
    pub version: Option<String>,
    /// Why it counts as a rival.
    pub why: String,
}

/// What is being done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "types", derive(ts_rs::TS), ts(export_to = "protocol.ts"))]
pub struct Work {
    /// `apply` or `restart`.
    pub goal: String,
    /// Who wanted it: `person`, `login-race`, `crash`.
    pub origin: String,
    /// The step under way.
    pub step: StepProgress,
}

/// One step of a plan under way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "types", derive(ts_rs::TS), ts(export_to = "protocol.ts"))]
pub struct StepProgress {
    /// Position in the plan, from 1.
    pub index: usize,
    /// How many steps there are.
    pub of: usize,
    /// Fixed name of the step, e.g. `await-answer`.
    pub name: String,
    /// The step in words.
    pub words: String,
    /// 1 for the first attempt.
    pub attempt: u32,
}

/// One setting through all its layers. `null` means unset.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "types", derive(ts_rs::TS), ts(export_to = "protocol.ts"))]
pub struct Setting {
    /// Name of the variable.
    pub name: String,
    /// What we want.
    pub desired: Option<String>,
    /// In the file that holds after every login or start.
    pub persisted: Known<Option<String>>,
    /// What new processes are handed; absent where there is no such layer.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    #[cfg_attr(feature = "types", ts(optional))]
    pub session: Option<Known<Option<String>>>,
    /// What the running server uses, as it reports it.
    pub effective: Known<String>,
    /// The evidence for `effective`.
    pub proof: Vec<Proof>,
    /// What the server uses when nobody sets it.
    pub default: String,
    /// `not-managed`, `proven`, `drift`, `set-in-app` or `unknown`.
    pub standing: String,
    /// The layers that differ from `desired`.
    pub drift: Vec<String>,
    /// What it means, in one sentence.
    pub meaning: String,
    /// Which values it takes, in words.
    #[serde(default)]
    pub allowed: String,
    /// What a person should know before setting it; empty when there is nothing.
    #[serde(default)]
    pub caution: String,
}

/// A field that is there is `Some`, also when it says `null`: unset is not absent.
fn present<'de, D: Deserializer<'de>, T: Deserialize<'de>>(field: D) -> Result<Option<T>, D::Error> {
    T::deserialize(field).map(Some)
}

/// One piece of evidence.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "types", derive(ts_rs::TS), ts(export_to = "protocol.ts"))]
pub struct Proof {
    /// `server-config-line` or `process-environment`.
    pub kind: String,
    /// Where it stands: a log and time, or a pid.
    pub source: String,
}

/// A model's process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "types", derive(ts_rs::TS), ts(export_to = "protocol.ts"))]
pub struct Runner {
    /// Its pid.
    pub pid: u32,
    /// `llama-server`, `ollama-runner` or `mlx`.
    pub kind: String,
    /// Model name, or its blob when the name is not known.
    pub model: Known<String>,
    /// How many requests it really takes at once.
    pub slots: Known<u32>,
    /// Why it has one slot whatever the setting says, when Ollama forces that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forced: Option<String>,
}

/// Something a person was told.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "types", derive(ts_rs::TS), ts(export_to = "protocol.ts"))]
pub struct Alert {
    /// Its kind.
    pub kind: String,
    /// What happened.
    pub message: String,
    /// The facts that speak for it, where it rests on any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evidence: Option<String>,
    /// What to do: a command.
    pub action: String,
    /// When, RFC 3339.
    pub at: String,
}

/// Our own configuration file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "types", derive(ts_rs::TS), ts(export_to = "protocol.ts"))]
pub struct Config {
    /// Its path.
    pub path: String,
    /// Why the last edit was not taken; the one before stays in force.
    pub failure: Option<Failure>,
    /// The quiet hours in force, e.g. `22:00-07:00` in local time; `null` when there are none.
    #[serde(default)]
    pub quiet: Option<String>,
}

/// What a model can cost at most with the desired settings.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "types", derive(ts_rs::TS), ts(export_to = "protocol.ts"))]
pub struct MemoryBound {
    /// Model name.
    pub model: String,
    /// Weights plus f16 KV cache of all layers for all slots, or why it is not known.
    pub at_most_bytes: Known<u64>,
    /// Slots counted.
    pub slots: u32,
    /// Context of one slot counted.
    pub context_tokens: u64,
    /// What models may take together.
    pub budget_bytes: Known<u64>,
    /// Where the budget comes from, in words.
    pub budget_source: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unset_session_survives_the_wire_and_an_absent_one_stays_absent() {
        for session in [Some(Known::Is(None)), Some(Known::Is(Some("1".to_owned()))), Some(Known::unknown("x")), None] {
            let setting = Setting {
                name: "OLLAMA_NUM_PARALLEL".to_owned(),
                desired: None,
                persisted: Known::Is(None),
                session,
                effective: Known::Is("1".to_owned()),
                proof: vec![],
                default: "1".to_owned(),
                standing: "not-managed".to_owned(),
                drift: vec![],
                meaning: String::new(),
                allowed: String::new(),
                caution: String::new(),
            };
            let text = serde_json::to_string(&setting).unwrap();
            assert_eq!(serde_json::from_str::<Setting>(&text).unwrap(), setting, "{text}");
        }
    }
}
