//! Settings: their names and values, the four layers they pass through, and the proof of what is in force.
//!
//! *desired* (our config) → *persisted* (a file that holds after every login) → *session* (what the service manager
//! hands to new processes) → *effective* (what the running server uses). Each layer that differs from the desired
//! value is drift, and is named.

mod report;

pub use report::{Layer, Report, Standing, Verification, report, verify};

use crate::known::Known;
use crate::process::Identity;
use crate::time::Wall;
use std::collections::BTreeMap;
use std::fmt;

/// Name of one environment variable of the server, e.g. `OLLAMA_NUM_PARALLEL`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(String);

/// Why a text is no setting name or value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// Not upper-case letters, digits and underscores.
    #[error("a setting name has only A–Z, 0–9 and _: {0:?}")]
    Name(String),
    /// Holds a control character, which a plist, a unit or a terminal cannot carry.
    #[error("a setting value cannot hold a line break or another control character")]
    Value,
}

impl Name {
    /// A name from text.
    ///
    /// # Errors
    /// [`Malformed::Name`] unless the text is upper-case letters, digits and underscores, starting with a letter.
    pub fn try_new(text: &str) -> Result<Self, Malformed> {
        let body = |byte: u8| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_';
        let starts_well = text.bytes().next().is_some_and(|byte| byte.is_ascii_uppercase());
        if starts_well && text.bytes().all(body) {
            Ok(Self(text.to_owned()))
        } else {
            Err(Malformed::Name(text.to_owned()))
        }
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Name {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

/// Value of a setting as a person wrote it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Value(String);

impl Value {
    /// A value from text.
    ///
    /// # Errors
    /// [`Malformed::Value`] when it holds a control character other than a tab.
    pub fn try_new(text: &str) -> Result<Self, Malformed> {
        let forbidden = |symbol: char| symbol.is_control() && symbol != '\t';
        if text.contains(forbidden) { Err(Malformed::Value) } else { Ok(Self(text.to_owned())) }
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Value {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

/// A set of values by name.
pub type Values = BTreeMap<Name, Value>;

/// What a person wants of one setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wish {
    /// As written.
    pub value: Value,
    /// What the server will report once it has read `value` (`10m` becomes `10m0s`, `'4'` becomes `4`).
    pub in_force: String,
}

/// How a running server shows what it made of a setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shown {
    /// In its `server config` log line.
    ConfigLine,
    /// Nowhere: only the process environment tells.
    EnvironmentOnly,
}

/// What the engine needs to know of one setting. The catalogue of the `ollama` crate makes these.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Definition {
    /// Its name.
    pub name: Name,
    /// What the server reports when nobody set it.
    pub default_in_force: String,
    /// Where the server shows it.
    pub shown: Shown,
    /// Ollama.app's own settings may override the environment for it (host, origins, models, context, cloud).
    pub app_may_override: bool,
}

/// One piece of evidence for an effective value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Proof {
    /// The last `server config` line, written after the server started.
    ConfigLine {
        /// When the line was written.
        logged_at: Wall,
        /// Where it stands: a path, or the name of a journal unit.
        log: String,
    },
    /// The environment of the server's process.
    Environment {
        /// The process.
        server: Identity,
    },
}

impl Proof {
    /// The word used for it in reports and JSON.
    pub fn word(&self) -> &'static str {
        match self {
            Self::ConfigLine { .. } => "server-config-line",
            Self::Environment { .. } => "process-environment",
        }
    }
}

/// What the running server uses for one setting, with the evidence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Effective {
    /// As the server reports it.
    pub in_force: String,
    /// At least one.
    pub proofs: Vec<Proof>,
}

/// What could be learnt of the server's values, before it is compared with anything.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerEvidence {
    /// The last config line that is newer than the server's start: its values by name, and its proof.
    pub config_line: Known<(BTreeMap<Name, String>, Proof)>,
    /// The process environment, each value already in the form in which the server would report it.
    pub environment: Known<(BTreeMap<Name, String>, Proof)>,
}

/// Whose file the persisted layer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PersistedIn {
    /// Ours: a value in it that nobody wants any more is drift.
    OurFile,
    /// Somebody else's (what a container was made with): shown, never ours to clean up.
    Elsewhere,
}

/// What Ollama.app's GUI handed to its server. Its own settings go over the environment that it was started with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FromApp {
    /// The owner is not the app.
    NotTheApp,
    /// The environment that the GUI was started with, only the variables that matter here.
    StartedWith(BTreeMap<String, String>),
    /// It cannot be read. Whether the app was at least started after the session had its values.
    Unreadable {
        /// Started after the publication of this login.
        after_publication: bool,
    },
}

/// The layers between the wish and the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layers {
    /// What we want.
    pub desired: BTreeMap<Name, Wish>,
    /// What the file that holds after every login says.
    pub persisted: Known<Values>,
    /// Whose file that is.
    pub persisted_in: PersistedIn,
    /// What the service manager hands to a process that starts now; `None` where there is no such layer.
    pub session: Option<Known<Values>>,
    /// What the app was started with, when it is the owner.
    pub from_app: FromApp,
    /// What the running server uses.
    pub server: ServerEvidence,
}

/// The three settings that this program exists for.
pub const MAIN_SETTINGS: [&str; 3] = ["OLLAMA_NUM_PARALLEL", "OLLAMA_MAX_LOADED_MODELS", "OLLAMA_MAX_QUEUE"];

/// A named set of values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Preset {
    /// One request at a time, one model at a time, a short queue.
    Serial,
    /// Nothing of ours: Ollama decides.
    OllamaDefaults,
}

impl Preset {
    /// Every preset.
    pub const ALL: [Self; 2] = [Self::Serial, Self::OllamaDefaults];

    /// The word a person types.
    pub fn word(self) -> &'static str {
        match self {
            Self::Serial => "serial",
            Self::OllamaDefaults => "ollama-defaults",
        }
    }

    /// The preset of that name.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|preset| preset.word() == word)
    }

    /// What it sets; a main setting that is not named here becomes unset.
    pub fn values(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::Serial => {
                &[("OLLAMA_NUM_PARALLEL", "1"), ("OLLAMA_MAX_LOADED_MODELS", "1"), ("OLLAMA_MAX_QUEUE", "10")]
            }
            Self::OllamaDefaults => &[],
        }
    }
}
