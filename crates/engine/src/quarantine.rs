//! What macOS' quarantine says about an app, whether its next start would stop at a question, and how it is cleared.
//!
//! A download carries the extended attribute [`ATTRIBUTE`]: `FLAGS;TIME;AGENT;EVENT`. Its presence alone blocks
//! nothing: an app that a person has opened once keeps it, with the flag for their approval. Without that flag the
//! first start stops at a window that waits for a click, which on a machine without a person is for ever.

mod mark;

pub use mark::{Flags, Mark, UnreadableMark};

use crate::known::Known;
use std::fmt;
use std::path::{Path, PathBuf};

/// Name of the attribute.
pub const ATTRIBUTE: &str = "com.apple.quarantine";

/// A file or folder below a bundle that carries a mark, or of which that could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Marked {
    /// The file, folder or link.
    pub path: PathBuf,
    /// What the mark says.
    pub mark: Known<Mark>,
}

/// Everything that was read of one bundle or file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// The bundle or file.
    pub path: PathBuf,
    /// Whether it is a bundle, whose contents were read too.
    pub bundle: bool,
    /// macOS runs it from a random read-only folder, because of its mark.
    pub translocated: bool,
    /// Its own mark.
    pub own: Known<Option<Mark>>,
    /// The marks below it, in the order of their paths; what carries none is left out.
    pub below: Vec<Marked>,
    /// How many files, folders and links were looked at, itself included.
    pub looked_at: usize,
}

/// Whether the next start would stop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// There is no mark anywhere.
    Unmarked,
    /// It is marked, and a person has approved it.
    Approved,
    /// A mark without approval.
    WouldBlock {
        /// What carries it: the bundle, or the first below it.
        at: PathBuf,
    },
    /// It could not be told; the reason is a phrase.
    Unknown(String),
}

impl Found {
    /// How many carry a mark, readable or not.
    pub fn marked(&self) -> usize {
        let own = match &self.own {
            Known::Is(Some(_)) => 1,
            Known::Is(None) | Known::Unknown(_) => 0,
        };
        own + self.below.iter().filter(|marked| marked.mark.known().is_some()).count()
    }

    /// What could not be read, with the reasons.
    pub fn unreadable(&self) -> Vec<(&Path, &str)> {
        let own = self.own.reason().map(|reason| (self.path.as_path(), reason));
        let below = self.below.iter().filter_map(|marked| Some((marked.path.as_path(), marked.mark.reason()?)));
        own.into_iter().chain(below).collect()
    }

    /// Whether the next start would stop.
    ///
    /// The bundle's own mark decides where it has one: a person's approval is written there and holds for all of it.
    /// Where it has none, a program inside it that is marked is asked about when it is started by itself.
    pub fn verdict(&self) -> Verdict {
        match &self.own {
            Known::Is(Some(mark)) if mark.flags.approved() => Verdict::Approved,
            Known::Is(Some(_)) => Verdict::WouldBlock { at: self.path.clone() },
            Known::Is(None) => self.verdict_of_contents(),
            Known::Unknown(reason) => Verdict::Unknown(reason.clone()),
        }
    }

    fn verdict_of_contents(&self) -> Verdict {
        let blocks = |marked: &&Marked| marked.mark.known().is_some_and(|mark| !mark.flags.approved());
        if let Some(marked) = self.below.iter().find(blocks) {
            return Verdict::WouldBlock { at: marked.path.clone() };
        }
        let unread = self.below.iter().find_map(|marked| Some((&marked.path, marked.mark.reason()?)));
        match unread {
            Some((path, reason)) => Verdict::Unknown(format!("{}: {reason}", path.display())),
            None if self.below.is_empty() => Verdict::Unmarked,
            None => Verdict::Approved,
        }
    }

    /// The steps that clear it; none where there is nothing to clear.
    pub fn clearing(&self) -> Vec<Step> {
        let from = self.marked() + self.unreadable().len();
        if from == 0 {
            return Vec::new();
        }
        vec![Step::CheckSignature, Step::Assess, Step::Remove { from }, Step::Prove { looked_at: self.looked_at }]
    }
}

/// A step of clearing, in its order. The signature comes first: what a mark protects from is a changed or foreign app.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Seal and signer.
    CheckSignature,
    /// What macOS itself would say.
    Assess,
    /// Take the mark from everything.
    Remove {
        /// How many files, folders and links carry one, or may.
        from: usize,
    },
    /// Read everything again.
    Prove {
        /// How many files, folders and links that is.
        looked_at: usize,
    },
}

impl fmt::Display for Step {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::CheckSignature => write!(
                out,
                "check seal and signer: {} of team {}",
                crate::upgrade::deed::BUNDLE_IDENTIFIER,
                crate::upgrade::deed::TEAM_ID
            ),
            Self::Assess => write!(out, "ask macOS whether it accepts the app"),
            Self::Remove { from } => write!(out, "remove {ATTRIBUTE} from {from} files and folders"),
            Self::Prove { looked_at } => write!(out, "read all {looked_at} again, to prove that it is gone"),
        }
    }
}

#[cfg(test)]
mod tests;
