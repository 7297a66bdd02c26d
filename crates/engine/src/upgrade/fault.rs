//! Why a deed has failed, in words. Whoever carries a deed out names the fault; what follows from it is
//! [`Deed::when_failed`]'s to say.

use super::deed::{BUNDLE_IDENTIFIER, Deed, Phase, TEAM_ID, WhenFailed, megabytes};
use super::order::Order;
use super::refusal::APP_MANAGEMENT_HINT;
use crate::plan::{Again, StepFailure};
use std::path::PathBuf;

/// Why a deed has failed. Its text is a phrase that stands after "because".
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// The volume is full (`ENOSPC`, `EDQUOT`).
    #[error("there is no room left at {}", .0.display())]
    NoSpace(PathBuf),
    /// Modes or owner forbid it (`EACCES`).
    #[error("{} may not be changed by you", .0.display())]
    Denied(PathBuf),
    /// macOS forbids changing the app (`EPERM`).
    #[error("macOS did not let Stablehand change {} (App Management)", .0.display())]
    AppManagement(PathBuf),
    /// The disk failed (`EIO`), or anything else went wrong with a file.
    #[error("{} could not be read or written: {reason}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// The system's words.
        reason: String,
    },
    /// The place that something is to be moved to is taken.
    #[error("{} is there already", .0.display())]
    Taken(PathBuf),
    /// The network failed; the phrase says how.
    #[error("the download stopped: {0}")]
    Network(String),
    /// The file is not the one whose hash the release names.
    #[error("the download is not what the release names: its SHA-256 differs")]
    WrongHash,
    /// It changed while it was read.
    #[error("{} was replaced while it was read", .0.display())]
    Replaced(PathBuf),
    /// It is no archive.
    #[error("the download is no release of Ollama: {0}")]
    NoArchive(String),
    /// It claims, or turns out, to hold more than a release can.
    #[error("the download would unpack to more than {}", megabytes(*.limit_bytes))]
    TooLarge {
        /// What it may hold.
        limit_bytes: u64,
    },
    /// It holds a path or a link that leads out of its folder.
    #[error("the download holds {0:?}, which leads out of its folder")]
    LeadsOut(String),
    /// The seal is broken, or there is none.
    #[error("its seal is broken: {0}")]
    BrokenSeal(String),
    /// Somebody else has signed it.
    #[error("it was signed by {team}, not by Ollama's team {TEAM_ID} as {BUNDLE_IDENTIFIER}")]
    AnotherTeam {
        /// Who, as `codesign` names them.
        team: String,
    },
    /// Gatekeeper refuses it.
    #[error("Gatekeeper refuses it: {0}")]
    Refused(String),
    /// It is another version than it should be.
    #[error("it is {found}")]
    AnotherVersion {
        /// What it is.
        found: String,
    },
    /// The mark of quarantine can not be removed.
    #[error("{} stays in quarantine", .0.display())]
    Quarantined(PathBuf),
    /// Homebrew failed; the end of what it printed.
    #[error("Homebrew failed: {0}")]
    Brew(String),
    /// The server could not be stopped or started.
    #[error("{0}")]
    Server(StepFailure),
    /// It runs and does not show that it works.
    #[error("{0}")]
    NotProved(NotProved),
    /// It took longer than [`Deed::allowance`].
    #[error("it took longer than {} s", .0.allowance().as_secs())]
    TookTooLong(Deed),
}

/// What the proof of a version has shown instead.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotProved {
    /// Nothing answers on the port.
    #[error("it does not answer")]
    Silent,
    /// It answers as another version.
    #[error("it answers as {0}")]
    AnswersAs(String),
    /// These settings are no longer in force.
    #[error("it lost {}", .0.join(" "))]
    LostSettings(Vec<String>),
    /// The command line is another version.
    #[error("the command line is {0}")]
    CommandLineIs(String),
    /// A model of its own generates nothing.
    #[error("{model} generates nothing: {reason}")]
    GeneratesNothing {
        /// Which model.
        model: String,
        /// What came instead.
        reason: String,
    },
}

impl Fault {
    /// Stable code for programs.
    pub fn code(&self) -> &'static str {
        match self {
            Self::NoSpace(_) => "upgrade-no-space",
            Self::Denied(_) => "upgrade-denied",
            Self::AppManagement(_) => "app-management",
            Self::File { .. } => "upgrade-file",
            Self::Taken(_) => "upgrade-place-taken",
            Self::Network(_) => "download-stopped",
            Self::WrongHash => "download-wrong-hash",
            Self::Replaced(_) => "download-replaced",
            Self::NoArchive(_) => "download-no-archive",
            Self::TooLarge { .. } => "download-too-large",
            Self::LeadsOut(_) => "download-leads-out",
            Self::BrokenSeal(_) => "signature-broken",
            Self::AnotherTeam { .. } => "signature-another-team",
            Self::Refused(_) => "signature-refused",
            Self::AnotherVersion { .. } => "upgrade-another-version",
            Self::Quarantined(_) => "quarantine-remains",
            Self::Brew(_) => "brew-failed",
            Self::Server(failure) => failure.code,
            Self::NotProved(NotProved::Silent) => "not-proved-silent",
            Self::NotProved(NotProved::AnswersAs(_)) => "not-proved-version",
            Self::NotProved(NotProved::LostSettings(_)) => "not-proved-settings",
            Self::NotProved(NotProved::CommandLineIs(_)) => "not-proved-command-line",
            Self::NotProved(NotProved::GeneratesNothing { .. }) => "not-proved-generation",
            Self::TookTooLong(_) => "upgrade-took-too-long",
        }
    }

    /// Whether trying the deed again, within its allowance, can help.
    pub fn again(&self) -> Again {
        match self {
            Self::Network(_) => Again::Soon,
            Self::Server(failure) => failure.again,
            Self::NoSpace(_)
            | Self::Denied(_)
            | Self::AppManagement(_)
            | Self::File { .. }
            | Self::Taken(_)
            | Self::WrongHash
            | Self::Replaced(_)
            | Self::NoArchive(_)
            | Self::TooLarge { .. }
            | Self::LeadsOut(_)
            | Self::BrokenSeal(_)
            | Self::AnotherTeam { .. }
            | Self::Refused(_)
            | Self::AnotherVersion { .. }
            | Self::Quarantined(_)
            | Self::Brew(_)
            | Self::NotProved(_)
            | Self::TookTooLong(_) => Again::Never,
        }
    }

    /// The failure of this deed: what happened, what is left unchanged or put back, what to do.
    pub fn failure(&self, deed: Deed, order: &Order) -> StepFailure {
        let (from, to) = (&order.from, &order.to);
        let rest = match (deed.when_failed(), deed.phase()) {
            (WhenFailed::TurnBack, Phase::Preparing) => format!("{from} runs on, nothing of it was changed"),
            (WhenFailed::TurnBack, Phase::Switching | Phase::Proving | Phase::Settling | Phase::Undoing) => {
                format!("{from} is put back")
            }
            (WhenFailed::GoOn, _) => "the rest is done all the same".to_owned(),
            (WhenFailed::Halt, _) => "it is tried again every few minutes, and when Stablehand starts anew".to_owned(),
        };
        let message = format!("{} to {to}: {} failed, because {self}; {rest}", order.goal.word(), deed.name());
        StepFailure { code: self.code(), message, hint: self.hint(order), again: self.again() }
    }

    fn hint(&self, order: &Order) -> String {
        let again = format!("`stablehand {}`", order.goal.word());
        match self {
            Self::NoSpace(_) => format!("make room (`ollama rm` removes a model), then try {again} again"),
            Self::Denied(_) => {
                "ask an administrator, or put Ollama.app into the Applications folder of your home".to_owned()
            }
            Self::AppManagement(_) => APP_MANAGEMENT_HINT.to_owned(),
            Self::File { .. } | Self::Taken(_) => format!("see `stablehand doctor`, then try {again} again"),
            Self::Network(_) => format!("check the network, then try {again} again"),
            Self::WrongHash | Self::Replaced(_) | Self::NoArchive(_) => {
                format!("try {again} again; if it stays so, the mirror or the network changes what it delivers")
            }
            Self::TooLarge { .. } | Self::LeadsOut(_) | Self::AnotherTeam { .. } => {
                "do not install this file by hand; ask Ollama what it is".to_owned()
            }
            Self::BrokenSeal(_) | Self::Refused(_) | Self::AnotherVersion { .. } => {
                "choose another version with --to, or wait for the next release".to_owned()
            }
            Self::Quarantined(_) => "`stablehand quarantine --check` shows what holds it".to_owned(),
            Self::Brew(_) => "`brew doctor` says what is wrong with Homebrew".to_owned(),
            Self::Server(failure) => failure.hint.clone(),
            Self::NotProved(_) => {
                format!(
                    "stay on {} with `stablehand pin {}`, or choose another version with --to",
                    order.from, order.from
                )
            }
            Self::TookTooLong(_) => format!("try {again} again when the computer is less busy"),
        }
    }
}
