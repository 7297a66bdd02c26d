//! Everything that the deeds of one upgrade or rollback need to know. It stands in the journal's first record, so that
//! the next start of the daemon knows every path without looking for it.

use std::path::PathBuf;

/// What is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Goal {
    /// A release is fetched and put in place.
    Upgrade,
    /// A version that was kept is put back in place.
    Rollback,
}

impl Goal {
    /// The word used for it in reports and JSON.
    pub fn word(self) -> &'static str {
        match self {
            Self::Upgrade => "upgrade",
            Self::Rollback => "rollback",
        }
    }
}

/// How one version takes the other's place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Switch {
    /// Two renames of a whole bundle. Between them there is no app; an exchange in one go is refused to programs of
    /// another team (App Management).
    Renames,
    /// A link is replaced by another, in one go.
    Link,
    /// Homebrew replaces the app of a cask. A copy of the old one is kept beside, since Homebrew can not go back.
    Cask {
        /// Name of the cask.
        token: String,
    },
    /// Homebrew replaces its formula `ollama`. There is no way back but Homebrew's own.
    Formula,
}

/// The places that one version and the other are moved between.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slots {
    /// Where the version in use lies: the bundle, the link, or the program.
    pub place: PathBuf,
    /// Where the old version lies once it is out of its place.
    pub old: PathBuf,
    /// Where the new version lies before it is in its place.
    pub new: PathBuf,
    /// Where a version that is given up is moved to. It goes with the folder of the work.
    pub discard: PathBuf,
}

/// A file that is downloaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Download {
    /// From where.
    pub url: String,
    /// To where.
    pub file: PathBuf,
    /// How much.
    pub size_bytes: u64,
    /// Its SHA-256 in lower-case hex.
    pub sha256: String,
    /// What it may hold unpacked at most; more is refused before a byte is written.
    pub unpacked_limit_bytes: u64,
}

/// Something of the built-in updater that is taken out of its way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Aside {
    /// Where it lies.
    pub from: PathBuf,
    /// Where it waits, in the folder of the work.
    pub to: PathBuf,
}

/// The database of the app.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DatabaseCopy {
    /// Where the app looks for it.
    pub at: PathBuf,
    /// Where the copy of it goes. It is kept with the old version, or for ever when [`Self::instead`] takes its place,
    /// since it is then the only one with the latest chats.
    pub copy: PathBuf,
    /// Where the current one goes when the copy has to take its place although somebody has used it. Never removed by
    /// us.
    pub aside: PathBuf,
    /// At a rollback to a version that can not read the current one: what it gets instead.
    pub instead: Option<Instead>,
}

/// What an old version gets in place of a database that it can not read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Instead {
    /// The copy that was made when it was taken out of its place.
    Kept(PathBuf),
    /// Nothing: it makes one of its own.
    None,
}

/// One upgrade or rollback.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Order {
    /// Its name, unique on this machine; part of the names of files.
    pub id: String,
    /// What is wanted.
    pub goal: Goal,
    /// How.
    pub switch: Switch,
    /// The version in place before.
    pub from: String,
    /// The version in place afterwards.
    pub to: String,
    /// Word of the owner that starts the server.
    pub owner: String,
    /// The server's port.
    pub port: u16,
    /// Whether files are changed through polkit.
    pub polkit: bool,
    /// The folder of this work alone. It goes at the end, whatever the end is.
    pub work: PathBuf,
    /// The places.
    pub slots: Slots,
    /// What is downloaded, and unpacked one over the other; nothing at a rollback and where a package manager does it.
    pub downloads: Vec<Download>,
    /// What is taken out of the built-in updater's way.
    pub aside: Vec<Aside>,
    /// The app's database.
    pub database: Option<DatabaseCopy>,
    /// What goes once the new version is proved: old versions beyond the kept ones.
    pub remove: Vec<PathBuf>,
    /// What goes once the program is a link: the libraries beside the file that it was.
    pub replaced: Vec<PathBuf>,
    /// The version to stay on afterwards; a rollback would else be undone by the next upgrade.
    pub pin: Option<String>,
}

impl Order {
    /// The copy of the database that goes when the old version is kept no longer.
    pub fn kept_database(&self) -> Option<&PathBuf> {
        let database = self.database.as_ref()?;
        database.instead.is_none().then_some(&database.copy)
    }

    /// Where a version that is taken back goes: one that was kept before, to where it was kept.
    pub fn given_up(&self) -> &PathBuf {
        match self.goal {
            Goal::Upgrade => &self.slots.discard,
            Goal::Rollback => &self.slots.new,
        }
    }
}
