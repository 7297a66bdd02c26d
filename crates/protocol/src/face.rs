//! What the tray says to the page in its popover, and the page to the tray: one event, one command.
//!
//! The tray is the page's way to the daemon and decides nothing on its behalf. What only the tray can do (it works
//! without a daemon, too) stands beside what it passes on.

use crate::queue::QueueView;
use crate::{Ending, Failure, FoundOwner, Known, Past, Request, Snapshot};
use serde::{Deserialize, Serialize};

/// Name of the one event that the page listens to; its payload is a [`View`].
pub const EVENT: &str = "view";
/// Name of the one command that the page calls, with an [`Ask`] as `ask`; it answers with an [`Answer`].
pub const COMMAND: &str = "ask";

/// What the page shows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "types", derive(ts_rs::TS), ts(export_to = "protocol.ts"))]
pub struct View {
    /// What there is to show.
    pub link: Link,
    /// The gateway's queue, while a gateway runs; unknown when it runs and does not tell.
    #[serde(default)]
    pub queue: Option<Known<Box<QueueView>>>,
    /// The person's choices for this face.
    pub choices: Choices,
    /// What failed since the page was last seen (a menu item has no other place to say so), newest last.
    pub failures: Vec<Failure>,
    /// What the person came for, when a menu item or a notification opened the popover: to be brought first. It is
    /// over with `Ask::Dismiss`, and when the popover hides.
    #[serde(default)]
    pub matter: Option<Matter>,
    /// Version of the tray.
    pub version: String,
    /// `macos` or `linux`.
    pub system: String,
}

/// What a person came for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "types", derive(ts_rs::TS), ts(export_to = "protocol.ts"))]
#[serde(tag = "matter", rename_all = "kebab-case")]
pub enum Matter {
    /// To end the supervision: asked whether it is meant, then [`Ask::StopDaemon`].
    StopDaemon,
    /// To see which versions of Ollama there are, and what is being done about them.
    Versions,
    /// The newest alert of this kind.
    Alert {
        /// Its kind.
        kind: String,
    },
}

/// How it stands between the tray and the daemon.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "types", derive(ts_rs::TS), ts(export_to = "protocol.ts"))]
#[serde(tag = "state", rename_all = "kebab-case")]
pub enum Link {
    /// The first answer is awaited.
    Connecting,
    /// Snapshots come.
    Live {
        /// The newest.
        snapshot: Box<Snapshot>,
    },
    /// They came, and the daemon is gone for the moment.
    Reconnecting {
        /// Since when, RFC 3339.
        since: String,
        /// The last one.
        snapshot: Option<Box<Snapshot>>,
        /// Why.
        failure: Failure,
    },
    /// No daemon is installed for every login, and none runs: the first-run page.
    Absent,
    /// The daemon is of another version.
    OtherVersion {
        /// Its version.
        daemon: String,
        /// What that means and what to do.
        failure: Failure,
    },
}

/// What a person chose for the face alone. It is kept by the tray.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "types", derive(ts_rs::TS), ts(export_to = "protocol.ts"))]
#[serde(default)]
pub struct Choices {
    /// `en`, `ko`, or `null` for the system's.
    pub language: Option<String>,
    /// What stands beside the icon.
    pub title: Title,
    /// The face itself starts at login.
    pub at_login: bool,
}

/// What stands beside the icon.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "types", derive(ts_rs::TS), ts(export_to = "protocol.ts"))]
#[serde(rename_all = "kebab-case")]
pub enum Title {
    /// Nothing.
    #[default]
    Off,
    /// Memory in use, in percent.
    Memory,
    /// How many requests wait.
    Queue,
}

impl Default for Choices {
    fn default() -> Self {
        Self { language: None, title: Title::Off, at_login: false }
    }
}

/// What the page asks for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "types", derive(ts_rs::TS), ts(export_to = "protocol.ts"))]
#[serde(tag = "what", rename_all = "kebab-case")]
pub enum Ask {
    /// The present view.
    View,
    /// Something of the daemon.
    Request {
        /// What.
        request: Request,
    },
    /// Something of the gateway's queue.
    Queue {
        /// What.
        request: QueueRequest,
    },
    /// The last while, for the charts and the list of events.
    History {
        /// How far back.
        since_s: u64,
        /// Into how many points.
        points: u32,
    },
    /// Install the daemon for every login, or say what that would write.
    Install {
        /// Only say it.
        dry_run: bool,
    },
    /// Take everything of ours away, or say what that would be.
    Uninstall {
        /// Only say it.
        dry_run: bool,
    },
    /// Start the installed daemon.
    StartDaemon,
    /// Stop the installed daemon: until the next login, or until it is started. Ollama goes on.
    StopDaemon,
    /// Keep these choices.
    Choose {
        /// All of them.
        choices: Choices,
    },
    /// Ask the system for the right to notify.
    AllowNotifications,
    /// The failures and the matter were read.
    Dismiss,
    /// Open our configuration file in the person's editor.
    OpenConfig,
    /// Open a page of the system's own settings.
    OpenSystemSettings {
        /// Which.
        page: SystemSettings,
    },
    /// Hide the popover.
    Hide,
}

/// What can be asked about the gateway's queue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "types", derive(ts_rs::TS), ts(export_to = "protocol.ts"))]
#[serde(tag = "verb", rename_all = "kebab-case")]
pub enum QueueRequest {
    /// Send nothing more to Ollama; what runs goes on.
    Pause,
    /// Go on.
    Resume,
    /// Take a waiting request out; its client gets an error.
    Drop {
        /// Its number.
        id: u64,
    },
    /// Put a waiting request into another lane.
    Move {
        /// Its number.
        id: u64,
        /// `interactive`, `agent` or `batch`.
        lane: String,
    },
}

/// A page of the system's settings that a person may have to change something on. There is no other way to have
/// something opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "types", derive(ts_rs::TS), ts(export_to = "protocol.ts"))]
#[serde(rename_all = "kebab-case")]
pub enum SystemSettings {
    /// Which programs may change other apps (macOS).
    AppManagement,
}

/// What the tray answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "types", derive(ts_rs::TS), ts(export_to = "protocol.ts"))]
#[serde(tag = "answer", rename_all = "kebab-case")]
pub enum Answer {
    /// It was done.
    Done,
    /// The view.
    View {
        /// It.
        view: Box<View>,
    },
    /// How a request ended. Its progress is seen in the snapshots.
    Ended {
        /// It.
        ending: Box<Ending>,
    },
    /// The last while.
    Past {
        /// It.
        past: Past,
    },
    /// What would be written or taken away, one path with its purpose a line.
    Planned {
        /// The lines.
        steps: Vec<String>,
        /// Who starts Ollama here; for an installation.
        owner: Option<FoundOwner>,
    },
    /// It did not work.
    Failed {
        /// Why.
        failure: Failure,
    },
}
