//! The deeds that upgrades, rollbacks and their undoing are made of.
//!
//! Whoever carries them out keeps to these rules, on which [`super::resume`] relies:
//! - a deed may be carried out again after it was cut off anywhere; what it finds done, it leaves;
//! - a move refuses a place that is taken, so that nothing is ever moved *into* a bundle; only
//!   [`Deed::MoveNewOut`] at an upgrade empties its place first, which holds rubbish alone;
//! - a deed's effects are on the disk (files and folders synced) before the record that it is done.

use super::order::{Instead, Order, Switch};
use std::fmt;
use std::time::Duration;

/// Which part of the work a deed belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// Nothing has been taken from the running server yet.
    Preparing,
    /// No server is ready; what is done here has to be quick.
    Switching,
    /// The new version runs and has to show that it works.
    Proving,
    /// It has shown it.
    Settling,
    /// The old version is put back.
    Undoing,
}

macro_rules! deeds {
    ($($(#[$doc:meta])* $deed:ident $name:literal $phase:ident $seconds:literal,)*) => {
        /// One deed. What it works on stands in the [`Order`].
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Deed {
            $($(#[$doc])* $deed,)*
        }

        impl Deed {
            /// Every deed.
            pub const ALL: &'static [Self] = &[$(Self::$deed,)*];

            /// Its name, kebab-case: in the journal, in JSON, and as the name of its deadline.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$deed => $name,)*
                }
            }

            /// Its part of the work.
            pub fn phase(self) -> Phase {
                match self {
                    $(Self::$deed => Phase::$phase,)*
                }
            }

            /// How long it may take in all, retries included, in awake time.
            pub fn allowance(self) -> Duration {
                Duration::from_secs(match self {
                    $(Self::$deed => $seconds,)*
                })
            }
        }
    };
}

deeds! {
    /// Download the release's files, going on where it stopped.
    Download "download" Preparing 21_600,
    /// Let Homebrew download, while the server still runs.
    BrewFetch "brew-fetch" Preparing 21_600,
    /// Compare each file with the release's SHA-256.
    CheckHash "check-hash" Preparing 600,
    /// Unpack it into the new slot, with links, modes and empty folders kept.
    Unpack "unpack" Preparing 1_800,
    /// Read the version of what lies in the new slot.
    CheckVersion "check-version" Preparing 60,
    /// Check seal, identifier, team and notarisation of what lies in the new slot.
    CheckSignature "check-signature" Preparing 600,
    /// Take `com.apple.quarantine` from every file of it, and read again to prove it.
    ClearQuarantine "clear-quarantine" Preparing 300,
    /// Copy the old version into its slot, while it still runs.
    KeepCopy "keep-copy" Preparing 1_800,
    /// Stop app, server and runners through their owner, and wait for the port.
    Stop "stop" Switching 190,
    /// Take what the built-in updater left out of its way.
    SetUpdaterAside "set-updater-aside" Switching 60,
    /// Copy the database with SQLite's backup.
    CopyDatabase "copy-database" Switching 120,
    /// Give the old version a database that it can read.
    UseOldDatabase "use-old-database" Switching 120,
    /// Rename the version in place into the old slot.
    MoveOut "move-out" Switching 30,
    /// Rename the new version into its place.
    MoveIn "move-in" Switching 30,
    /// Put a link to the new version in the place of what is there, in one go.
    SwitchLink "switch-link" Switching 30,
    /// Let Homebrew replace it.
    Brew "brew" Switching 1_800,
    /// Check the signature of what Homebrew has put in place.
    CheckInPlace "check-in-place" Switching 600,
    /// Take the quarantine from it, after that check, and read again to prove it.
    ClearInPlace "clear-in-place" Switching 300,
    /// Start the server through its owner.
    Start "start" Proving 130,
    /// Version, settings, command line, and one real generation.
    Prove "prove" Proving 300,
    /// Write down what is kept, and remove what is not.
    Commit "commit" Settling 600,
    /// Stop the version that is given up.
    StopNew "stop-new" Undoing 190,
    /// Rename it out of the place.
    MoveNewOut "move-new-out" Undoing 60,
    /// Rename the old version back into its place.
    MoveOldBack "move-old-back" Undoing 30,
    /// Put the link to the old version back, in one go.
    LinkBack "link-back" Undoing 30,
    /// Set the database aside that somebody has used, under a name that is told. What was set aside before and is not
    /// the same stays: the next free name beside it is taken.
    SetDatabaseAside "set-database-aside" Undoing 120,
    /// Put the copy of the database back; the copy remains until the end.
    PutDatabaseBack "put-database-back" Undoing 120,
    /// Give the built-in updater back what was taken from it.
    PutUpdaterBack "put-updater-back" Undoing 60,
    /// Start the old version through the owner.
    StartOld "start-old" Undoing 130,
    /// Prove it as the new one would have been.
    ProveOld "prove-old" Undoing 300,
    /// Remove the copy of the old version that is not needed.
    DropCopy "drop-copy" Undoing 600,
    /// Remove what was unpacked beside the other versions.
    DropNew "drop-new" Undoing 600,
    /// Remove the copy of the database, once the database itself is as it shall be.
    DropDatabaseCopy "drop-database-copy" Undoing 60,
    /// Remove the libraries of the program that is a link now.
    DropReplaced "drop-replaced" Undoing 600,
    /// Remove the folder of this work.
    Tidy "tidy" Undoing 600,
}

impl Deed {
    /// The deed of that name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|deed| deed.name() == name)
    }

    /// The deeds that take it back, in their order; none where there is nothing to take back. What is in the folder of
    /// the work needs no undoing of its own: it goes with that folder.
    pub fn undone_by(self, order: &Order) -> &'static [Self] {
        match self {
            Self::Download => &[Self::Tidy],
            Self::Unpack => match order.switch {
                Switch::Link => &[Self::DropNew],
                Switch::Renames | Switch::Cask { .. } | Switch::Formula => &[Self::Tidy],
            },
            Self::KeepCopy => &[Self::DropCopy],
            Self::Stop => &[Self::StartOld],
            Self::SetUpdaterAside => &[Self::PutUpdaterBack],
            Self::CopyDatabase => &[Self::DropDatabaseCopy],
            Self::UseOldDatabase => &[Self::PutDatabaseBack],
            Self::MoveOut => &[Self::MoveOldBack],
            Self::MoveIn => &[Self::MoveNewOut],
            Self::SwitchLink => &[Self::LinkBack],
            Self::Brew => match order.switch {
                Switch::Cask { .. } => &[Self::MoveNewOut, Self::MoveOldBack],
                Switch::Renames | Switch::Link | Switch::Formula => &[],
            },
            Self::Start => match order.database.as_ref().and_then(|database| database.instead.as_ref()) {
                // Which database it ran on is taken back with the deed that chose it.
                Some(Instead::Kept(_) | Instead::None) => &[Self::StopNew],
                None => &[Self::StopNew, Self::PutDatabaseBack],
            },
            // They change nothing that anybody else looks at, or are no deeds to be taken back.
            Self::BrewFetch
            | Self::CheckHash
            | Self::CheckVersion
            | Self::CheckSignature
            | Self::ClearQuarantine
            | Self::CheckInPlace
            | Self::ClearInPlace
            | Self::Prove
            | Self::Commit
            | Self::StopNew
            | Self::MoveNewOut
            | Self::MoveOldBack
            | Self::LinkBack
            | Self::SetDatabaseAside
            | Self::PutDatabaseBack
            | Self::PutUpdaterBack
            | Self::StartOld
            | Self::ProveOld
            | Self::DropCopy
            | Self::DropNew
            | Self::DropDatabaseCopy
            | Self::DropReplaced
            | Self::Tidy => &[],
        }
    }

    /// What to do when it fails for good.
    pub fn when_failed(self) -> WhenFailed {
        match self {
            Self::Download
            | Self::BrewFetch
            | Self::CheckHash
            | Self::Unpack
            | Self::CheckVersion
            | Self::CheckSignature
            | Self::ClearQuarantine
            | Self::KeepCopy
            | Self::Stop
            | Self::SetUpdaterAside
            | Self::CopyDatabase
            | Self::UseOldDatabase
            | Self::MoveOut
            | Self::MoveIn
            | Self::SwitchLink
            | Self::Brew
            | Self::CheckInPlace
            | Self::ClearInPlace
            | Self::Start
            | Self::Prove => WhenFailed::TurnBack,
            // The server's app is in its place and runs: what is left is a matter of tidiness, or of words.
            Self::Commit
            | Self::PutUpdaterBack
            | Self::StartOld
            | Self::ProveOld
            | Self::DropCopy
            | Self::DropNew
            | Self::DropDatabaseCopy
            | Self::DropReplaced
            | Self::Tidy => WhenFailed::GoOn,
            Self::StopNew
            | Self::MoveNewOut
            | Self::MoveOldBack
            | Self::LinkBack
            | Self::SetDatabaseAside
            | Self::PutDatabaseBack => WhenFailed::Halt,
        }
    }
}

/// What to do when a deed fails for good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhenFailed {
    /// Write down that the work is undone, look, and let [`super::resume::resume`] say how.
    TurnBack,
    /// Go on with the next deed, and tell.
    GoOn,
    /// Stop here with the journal open, and tell. The next start of the daemon tries again.
    Halt,
}

/// A deed with its order, for words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step<'a> {
    /// What is done.
    pub deed: Deed,
    /// On what.
    pub order: &'a Order,
}

impl fmt::Display for Step<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let order = self.order;
        let (from, to) = (&order.from, &order.to);
        let place = order.slots.place.display();
        let old = order.slots.old.display();
        let new = order.slots.new.display();
        match self.deed {
            Deed::Download => {
                let each = order.downloads.iter();
                let files: Vec<_> = each.map(|file| format!("{} ({})", file.url, megabytes(file.size_bytes))).collect();
                write!(out, "download {}", files.join(" and "))
            }
            Deed::BrewFetch => write!(out, "let Homebrew download {}", formula_or_cask(order)),
            Deed::CheckHash => write!(out, "compare its SHA-256 with the release's"),
            Deed::Unpack => write!(out, "unpack it to {new}"),
            Deed::CheckVersion => write!(out, "check that it is {to}"),
            Deed::CheckSignature => {
                write!(out, "check seal, signer (team {TEAM_ID}) and notarisation of {new}")
            }
            Deed::ClearQuarantine => write!(out, "clear com.apple.quarantine on {new}, and prove that it is gone"),
            Deed::KeepCopy => write!(out, "copy {from} to {old}"),
            Deed::Stop => {
                write!(out, "stop Ollama through {}, wait until port {} is free", order.owner, order.port)
            }
            Deed::SetUpdaterAside => {
                let paths: Vec<_> = order.aside.iter().map(|aside| aside.from.display().to_string()).collect();
                write!(out, "take the built-in updater's {} out of its way", paths.join(" and "))
            }
            Deed::CopyDatabase => match &order.database {
                Some(database) => {
                    write!(out, "copy settings and chats ({}) to {}", database.at.display(), database.copy.display())
                }
                None => write!(out, "copy no database"),
            },
            Deed::UseOldDatabase => match order.database.as_ref().and_then(|database| database.instead.as_ref()) {
                Some(Instead::Kept(kept)) => {
                    write!(out, "give {to} its database of then ({})", kept.display())
                }
                Some(Instead::None) => write!(out, "let {to} make a database of its own"),
                None => write!(out, "leave the database as it is"),
            },
            Deed::MoveOut => write!(out, "move {place} to {old}"),
            Deed::MoveIn => write!(out, "move {new} to {place}, and sync its folder"),
            Deed::SwitchLink => write!(out, "make {place} a link to {to} in {new}, in one go"),
            Deed::Brew => write!(out, "let Homebrew upgrade {}", formula_or_cask(order)),
            Deed::CheckInPlace => {
                write!(out, "check version, seal, signer (team {TEAM_ID}) and notarisation of {place}")
            }
            Deed::ClearInPlace => write!(out, "clear com.apple.quarantine on {place}, and prove that it is gone"),
            Deed::Start => write!(out, "start {to} through {}", order.owner),
            Deed::Prove => write!(out, "prove {to}: version, settings in force, command line, one generation"),
            Deed::Commit => {
                write!(out, "commit")?;
                if order.switch != Switch::Formula && !order.remove.contains(&order.slots.old) {
                    write!(out, ": keep {from} in {old} for a rollback")?;
                }
                if let Some(pin) = &order.pin {
                    write!(out, ", stay on {pin} until `stablehand pin --off`")?;
                }
                let removed: Vec<_> =
                    order.remove.iter().chain(&order.replaced).map(|path| path.display().to_string()).collect();
                if removed.is_empty() { Ok(()) } else { write!(out, ", remove {}", removed.join(" ")) }
            }
            Deed::StopNew => write!(out, "stop {to} through {}", order.owner),
            Deed::MoveNewOut => write!(out, "move {place} to {}", order.given_up().display()),
            Deed::MoveOldBack => write!(out, "move {old} back to {place}"),
            Deed::LinkBack => write!(out, "make {place} a link to {from} in {old} again, in one go"),
            Deed::SetDatabaseAside => match &order.database {
                Some(database) => {
                    write!(out, "set the database with its new chats aside as {}", database.aside.display())
                }
                None => write!(out, "set no database aside"),
            },
            Deed::PutDatabaseBack => write!(out, "put settings and chats back as they were under {from}"),
            Deed::PutUpdaterBack => write!(out, "give the built-in updater back what was taken from it"),
            Deed::StartOld => write!(out, "start {from} through {}", order.owner),
            Deed::ProveOld => write!(out, "prove {from}: version, settings in force, command line, one generation"),
            Deed::DropCopy => write!(out, "remove the copy of {from} in {old}"),
            Deed::DropNew => write!(out, "remove {new}"),
            Deed::DropDatabaseCopy => match &order.database {
                Some(database) => write!(out, "remove the copy {}", database.copy.display()),
                None => write!(out, "remove no copy of a database"),
            },
            Deed::DropReplaced => {
                let paths: Vec<_> = order.replaced.iter().map(|path| path.display().to_string()).collect();
                write!(out, "remove {}, which the link has replaced", paths.join(" "))
            }
            Deed::Tidy => write!(out, "remove {}", order.work.display()),
        }
    }
}

/// Team that signs Ollama.app: "Developer ID Application: Infra Technologies, Inc".
pub const TEAM_ID: &str = "3MU9H2V9Y9";

/// Bundle identifier of Ollama.app (Info.plist of the app).
pub const BUNDLE_IDENTIFIER: &str = "com.electron.ollama";

fn formula_or_cask(order: &Order) -> String {
    match &order.switch {
        Switch::Cask { token } => format!("the cask {token}"),
        Switch::Formula | Switch::Renames | Switch::Link => "the formula ollama".to_owned(),
    }
}

/// Megabytes as a person reads a download's size.
pub(super) fn megabytes(size_bytes: u64) -> String {
    format!("{} MB", size_bytes.div_ceil(1_000_000))
}
