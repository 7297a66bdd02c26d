//! Posting notifications. On macOS this program is the one that may (UNUserNotificationCenter, inside an app bundle).
//! On Linux they go through the session bus, also what a simulated Mac would post; where this program does not run, the
//! daemon posts its own there.

#[cfg_attr(target_os = "linux", path = "linux.rs")]
#[cfg_attr(target_os = "macos", path = "macos.rs")]
mod system;

use crate::face::words::Words;
use stablehand_protocol::Failure;
use stablehand_protocol::face::Ask;
pub use system::{allow, on_click, post};

/// The code of the failure that the person or the system refuses.
pub const REFUSED: &str = "notifications-refused";

/// A notification was clicked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Click {
    /// The kind of the alert that it told of.
    pub kind: String,
    /// What its button does, when that was clicked.
    pub deed: Option<Ask>,
}

/// Why nothing is posted.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(target_os = "linux", expect(dead_code, reason = "only macOS asks for a bundle"))]
pub enum Refusal {
    /// The system or the person does not let us.
    Refused(String),
    /// The program runs outside of an app bundle.
    OutsideBundle,
}

impl Refusal {
    /// In words.
    pub fn failure(&self, words: &Words) -> Failure {
        match self {
            Self::Refused(why) => words.failure(REFUSED, &[("why", why)]),
            Self::OutsideBundle => words.failure("notifications-not-here", &[]),
        }
    }
}
