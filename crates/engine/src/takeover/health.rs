//! Whether the gateway is well: told by real requests through it, never by a port that listens. A process that is
//! stopped or stuck has a port that listens.

/// What came of one `GET /api/version` through the gateway.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Checked {
    /// The answer of Ollama came.
    Passed,
    /// It did not, with the reason; Ollama itself, asked in the same moment, answers.
    Failed(String),
    /// It says nothing of the gateway: Ollama itself does not answer, or requests are held.
    Unfit,
}

/// How many checks in a row must fail.
pub const FAILURES: u32 = 3;

/// The state of the gateway's health.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Health {
    failures: u32,
    reason: String,
}

impl Health {
    /// Takes a check in.
    pub fn checked(&mut self, checked: Checked) {
        match checked {
            Checked::Passed => *self = Self::default(),
            Checked::Failed(reason) => {
                self.failures += 1;
                self.reason = reason;
            }
            Checked::Unfit => {}
        }
    }

    /// The gateway was started anew; what was seen before is of another process.
    pub fn renewed(&mut self) {
        *self = Self::default();
    }

    /// Why the gateway counts as broken, when it does.
    pub fn sick(&self) -> Option<&str> {
        (self.failures >= FAILURES).then_some(self.reason.as_str())
    }
}
