//! The journal of one upgrade or rollback: what was about to be done, and what was done.
//!
//! A record is on the disk before the deed that it announces begins, and after the deed that it reports has ended. Its
//! text form is the business of whoever writes the file; what the records mean is here.

use super::Words;
use super::deed::Deed;
use super::order::Order;
use std::collections::BTreeSet;

/// Number of the form of the records. A journal with a higher one was written by a newer Stablehand.
pub const FORMAT: u32 = 1;

/// One record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// The first: what is to be done.
    Opened(Box<Order>),
    /// A deed is about to begin.
    Before(Deed),
    /// It has ended well, and its effects are on the disk.
    After(Deed),
    /// From here on the work is undone, for this reason.
    Undoing(String),
    /// The last.
    Closed(Ending),
}

/// How it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The new version is in place and proved.
    Committed,
    /// The old version is in place.
    Undone,
    /// Something is in place that is neither to be finished nor undone; the person was told.
    Left,
}

impl Ending {
    /// The word used for it in the journal and in JSON.
    pub fn word(self) -> &'static str {
        match self {
            Self::Committed => "committed",
            Self::Undone => "undone",
            Self::Left => "left",
        }
    }
}

/// Why a journal says nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unreadable {
    /// A newer Stablehand wrote it.
    #[error("the journal of an upgrade has the form {format}, this Stablehand reads forms up to {FORMAT}")]
    Newer {
        /// Its form.
        format: u32,
    },
    /// It can not be what was written.
    #[error("the journal of an upgrade is broken at record {record}: {why}")]
    Broken {
        /// Position of the record, from 1.
        record: usize,
        /// Why, as a phrase.
        why: String,
    },
}

impl Unreadable {
    /// Words for a person.
    pub fn words(&self) -> Words {
        let message = format!("{self}; nothing was changed, and no upgrade begins until this is settled");
        match self {
            Self::Newer { .. } => Words::new(
                "upgrade-journal-newer",
                message,
                "start the newer Stablehand once: it finishes or undoes that upgrade by itself",
            ),
            Self::Broken { .. } => Words::new(
                "upgrade-journal-broken",
                message,
                "see with `stablehand versions` what is in place and what is kept; put back what is missing with \
                 `stablehand rollback`, which sets the broken journal aside",
            ),
        }
    }
}

/// What the records of a journal come to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Journal {
    /// What was to be done.
    pub order: Order,
    /// Deeds that may have happened, wholly or in part.
    pub begun: BTreeSet<Deed>,
    /// Deeds that have happened.
    pub done: BTreeSet<Deed>,
    /// How often the new version was about to be started.
    pub starts: usize,
    /// Why the work is being undone, when it is.
    pub undoing: Option<String>,
    /// How it ended, when it has.
    pub ending: Option<Ending>,
}

impl Journal {
    /// Reads the records of one journal. `Ok(None)` when there is none: nothing was begun then, because the first record
    /// is on the disk before anything else is done.
    ///
    /// The last line of a file may be torn; whoever reads the text leaves out a last line without its end.
    ///
    /// # Errors
    /// [`Unreadable::Broken`] where the order of the records is not one that is ever written.
    pub fn read(records: &[Record]) -> Result<Option<Self>, Unreadable> {
        let Some((first, rest)) = records.split_first() else { return Ok(None) };
        let Record::Opened(order) = first else {
            return Err(broken(1, "it does not begin with what was to be done"));
        };
        let mut journal = Self {
            order: (**order).clone(),
            begun: BTreeSet::new(),
            done: BTreeSet::new(),
            starts: 0,
            undoing: None,
            ending: None,
        };
        for (index, record) in rest.iter().enumerate() {
            journal.add(record).map_err(|why| broken(index + 2, why))?;
        }
        Ok(Some(journal))
    }

    /// Takes one more record.
    fn add(&mut self, record: &Record) -> Result<(), &'static str> {
        if self.ending.is_some() {
            return Err("something follows its end");
        }
        match record {
            Record::Opened(_) => return Err("it begins a second time"),
            Record::Before(deed) => {
                self.starts += usize::from(*deed == Deed::Start);
                self.begun.insert(*deed);
                self.done.remove(deed);
            }
            Record::After(deed) if !self.begun.contains(deed) => {
                return Err("something has ended that never began");
            }
            Record::After(deed) => {
                self.done.insert(*deed);
            }
            Record::Undoing(why) => {
                self.undoing.get_or_insert_with(|| why.clone());
            }
            Record::Closed(ending) => self.ending = Some(*ending),
        }
        Ok(())
    }

    /// Whether a deed may have happened, wholly or in part.
    pub fn may_have(&self, deed: Deed) -> bool {
        self.begun.contains(&deed)
    }
}

fn broken(record: usize, why: &str) -> Unreadable {
    Unreadable::Broken { record, why: why.to_owned() }
}
