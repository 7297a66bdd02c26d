//! What to do with an upgrade that was cut off, or in which a deed has failed.
//!
//! The records say how far anything may have gone, what is seen says how far it went. A rename that was announced may
//! have been lost with the power, or may have happened without its record; both look the same in the journal, so a
//! record alone never moves anything.

use super::Words;
use super::database::{self, AfterUndo};
use super::deed::{Deed, Step};
use super::journal::{Ending, Journal, Record, Unreadable};
use super::order::{Order, Switch};
use std::path::Path;

/// How often the new version is started before it is given up. Whatever cut the first start off may have been the new
/// version itself.
pub const STARTS: usize = 2;

/// What lies in a slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Presence {
    /// Nothing.
    Absent,
    /// A version with its Info.plist (or version) and its program; for the new slot, with its signature checked now.
    Whole(String),
    /// Something that is no whole version, with the reason: half a copy, a link that leads nowhere.
    Broken(String),
    /// It could not be looked at, with the reason.
    Unknown(String),
}

/// What is seen at a start of the daemon, or after a deed has failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// In the place: what a start would start.
    pub place: Presence,
    /// In the old slot.
    pub old: Presence,
    /// In the new slot.
    pub new: Presence,
    /// Something else that is at work on it now, as a phrase ("Homebrew runs (pid 812)").
    pub busy: Option<String>,
    /// The database.
    pub database: database::Sight,
}

/// Which way the work goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// To its end.
    Finish,
    /// Back. [`Record::Undoing`] is written before the first deed, with [`Course::why`].
    Undo,
    /// Neither: what is in place is left as it is.
    Leave,
}

impl Turn {
    /// How the journal is closed when the deeds are done.
    pub fn ending(self) -> Ending {
        match self {
            Self::Finish => Ending::Committed,
            Self::Undo => Ending::Undone,
            Self::Leave => Ending::Left,
        }
    }
}

/// How the work goes on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Course {
    /// On what.
    pub order: Order,
    /// Which way.
    pub turn: Turn,
    /// The deeds, in their order.
    pub deeds: Vec<Deed>,
    /// Why the work does not simply go on, as a phrase.
    pub why: String,
    /// What happened, what is done about it and what the person can do.
    pub words: Words,
}

impl Course {
    /// The deeds with their words.
    pub fn steps(&self) -> impl Iterator<Item = Step<'_>> {
        self.deeds.iter().map(|deed| Step { deed: *deed, order: &self.order })
    }
}

/// What to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Resume {
    /// There is nothing to do: no journal, or one that has ended. It may be removed.
    Nothing,
    /// Go on like this, with the same journal.
    Go(Box<Course>),
    /// Change nothing now, tell these words, and look again at the next start or when asked to.
    Wait(Words),
}

/// Says what to do with the records of a journal and what is seen.
pub fn resume(records: &Result<Vec<Record>, Unreadable>, seen: &Seen) -> Resume {
    let journal = records.as_ref().map_err(Clone::clone).and_then(|records| Journal::read(records));
    match journal {
        Ok(None) => Resume::Nothing,
        Ok(Some(journal)) if journal.ending.is_some() => Resume::Nothing,
        Ok(Some(journal)) => go_on(&journal, seen),
        Err(unreadable) => Resume::Wait(unreadable.words()),
    }
}

/// What is in a slot, as the order knows it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Holds<'a> {
    Old,
    New,
    Other(&'a str),
    Nothing,
    Rubble,
    Unseen(&'a str),
}

fn go_on(journal: &Journal, seen: &Seen) -> Resume {
    let order = &journal.order;
    if let Some(busy) = &seen.busy {
        return wait(
            order,
            "upgrade-others-at-work",
            &format!("{busy}, so nothing was changed"),
            "it is taken up again by itself once that has ended",
        );
    }
    let switching = [Deed::MoveOut, Deed::MoveIn, Deed::SwitchLink, Deed::Brew];
    if !switching.into_iter().any(|deed| journal.may_have(deed)) {
        return undo(journal, seen, &[]);
    }
    if journal.done.contains(&Deed::Prove) && journal.undoing.is_none() {
        return finish(journal, &[]);
    }
    let holds = |presence| holds(order, presence);
    match (holds(&seen.place), holds(&seen.old), holds(&seen.new)) {
        (Holds::Unseen(why), _, _) => unseen(order, &order.slots.place, why),
        (Holds::Other(version), _, _) => left_to(journal, version),
        (Holds::Old, _, _) => {
            let back: &[Deed] = if journal.may_have(Deed::SwitchLink) { &[Deed::LinkBack] } else { &[] };
            undo(journal, seen, back)
        }
        (Holds::New, _, _) if journal.undoing.is_none() && journal.starts < STARTS => {
            finish(journal, from_the_start(&order.switch))
        }
        (Holds::New | Holds::Rubble | Holds::Nothing, Holds::Unseen(why), _) => unseen(order, &order.slots.old, why),
        (Holds::New | Holds::Rubble, Holds::Old, _) => undo(journal, seen, back(&order.switch, true)),
        (Holds::Nothing, Holds::Old, _) => undo(journal, seen, back(&order.switch, false)),
        (Holds::New, Holds::New | Holds::Other(_) | Holds::Nothing | Holds::Rubble, _) => no_way_back(journal),
        (Holds::Rubble | Holds::Nothing, _, Holds::Unseen(why)) => unseen(order, &order.slots.new, why),
        // The old version is nowhere. What has been checked and is whole is better than none.
        (Holds::Rubble | Holds::Nothing, _, Holds::New) if order.switch == Switch::Link => {
            finish(journal, &[Deed::SwitchLink, Deed::Start, Deed::Prove])
        }
        (Holds::Nothing, _, Holds::New) => finish(journal, &[Deed::MoveIn, Deed::Start, Deed::Prove]),
        (Holds::Rubble, Holds::Nothing, Holds::New) => {
            finish(journal, &[Deed::MoveOut, Deed::MoveIn, Deed::Start, Deed::Prove])
        }
        (
            Holds::Rubble | Holds::Nothing,
            _,
            Holds::New | Holds::Old | Holds::Other(_) | Holds::Nothing | Holds::Rubble,
        ) => nothing_whole(order),
    }
}

fn holds<'a>(order: &Order, presence: &'a Presence) -> Holds<'a> {
    match presence {
        Presence::Absent => Holds::Nothing,
        Presence::Whole(version) if *version == order.from => Holds::Old,
        Presence::Whole(version) if *version == order.to => Holds::New,
        Presence::Whole(version) => Holds::Other(version),
        Presence::Broken(_) => Holds::Rubble,
        Presence::Unknown(why) => Holds::Unseen(why),
    }
}

/// The deeds that follow once the new version is in its place.
fn from_the_start(switch: &Switch) -> &'static [Deed] {
    match switch {
        Switch::Renames | Switch::Link | Switch::Formula => &[Deed::Start, Deed::Prove],
        Switch::Cask { .. } => &[Deed::CheckInPlace, Deed::ClearInPlace, Deed::Start, Deed::Prove],
    }
}

/// The deeds that bring the old version from its slot back into its place.
fn back(switch: &Switch, taken: bool) -> &'static [Deed] {
    match switch {
        Switch::Link => &[Deed::LinkBack],
        Switch::Renames | Switch::Cask { .. } | Switch::Formula if taken => &[Deed::MoveNewOut, Deed::MoveOldBack],
        Switch::Renames | Switch::Cask { .. } | Switch::Formula => &[Deed::MoveOldBack],
    }
}

fn finish(journal: &Journal, deeds: &[Deed]) -> Resume {
    let order = &journal.order;
    let mut deeds = deeds.to_vec();
    deeds.push(Deed::Commit);
    let message =
        format!("the {} to {} was cut off when {} was in its place; it is finished", word(order), order.to, order.to);
    course(journal, Turn::Finish, deeds, Words::new("upgrade-finished", message, "`stablehand versions` shows the end"))
}

/// Takes everything back that may have happened. `moves` bring the old version into its place.
fn undo(journal: &Journal, seen: &Seen, moves: &[Deed]) -> Resume {
    let order = &journal.order;
    // A login starts whatever is in place, whether we came to start it or not.
    let in_place = [Deed::MoveIn, Deed::SwitchLink, Deed::Brew];
    let may_have_run = in_place.into_iter().any(|deed| journal.may_have(deed));
    let replaced = journal.may_have(Deed::UseOldDatabase);
    // Once the old version may run again, all before its start is settled: what has happened since is its own.
    let old_runs = journal.may_have(Deed::StartOld);
    let mut deeds = vec![];
    deeds.extend(((may_have_run && !old_runs) || moves.contains(&Deed::MoveNewOut)).then_some(Deed::StopNew));
    deeds.extend(moves);
    let mut told = String::new();
    if let Some(database) =
        order.database.as_ref().filter(|_| !old_runs && !journal.done.contains(&Deed::PutDatabaseBack))
    {
        let put_back = match database::after_undo(may_have_run, replaced, &seen.database) {
            AfterUndo::Untouched | AfterUndo::Keep => false,
            AfterUndo::PutBack => true,
            AfterUndo::SetAside => {
                deeds.push(Deed::SetDatabaseAside);
                told = format!("; chats made with {} are in {}", order.to, database.aside.display());
                true
            }
        };
        deeds.extend(put_back.then_some(Deed::PutDatabaseBack));
    }
    // A version that was started and is given up would come back at the next login, if that is what is staged.
    let give_back = journal.may_have(Deed::SetUpdaterAside) && !journal.may_have(Deed::Start);
    deeds.extend(give_back.then_some(Deed::PutUpdaterBack));
    if journal.may_have(Deed::Stop) {
        deeds.extend([Deed::StartOld, Deed::ProveOld]);
    }
    let linked = journal.may_have(Deed::SwitchLink);
    deeds.extend((linked && !order.replaced.is_empty()).then_some(Deed::DropReplaced));
    let copied = journal.may_have(Deed::KeepCopy);
    deeds.extend((copied && !linked && !moves.contains(&Deed::MoveOldBack)).then_some(Deed::DropCopy));
    deeds.extend(unpacked_beside(journal).then_some(Deed::DropNew));
    deeds.extend(journal.may_have(Deed::CopyDatabase).then_some(Deed::DropDatabaseCopy));
    deeds.push(Deed::Tidy);
    let why = journal.undoing.as_deref().unwrap_or("it was cut off");
    let message =
        format!("the {} to {} is undone, because {why}; {} is in its place{told}", word(order), order.to, order.from);
    let hint = format!("try again with `stablehand {}`", word(order));
    course(journal, Turn::Undo, deeds, Words::new("upgrade-undone", message, hint))
}

/// Somebody else has put a version in place.
fn left_to(journal: &Journal, version: &str) -> Resume {
    let order = &journal.order;
    let message = format!(
        "while the {} to {} was cut off, somebody put {version} in its place; it was left, and {} remains in {}",
        word(order),
        order.to,
        order.from,
        order.slots.old.display()
    );
    let hint = "`stablehand rollback` goes back to what was kept";
    leave(journal, unpacked_beside(journal), Words::new("upgrade-overtaken", message, hint))
}

/// The new version is given up, and there is nothing to put in its place.
fn no_way_back(journal: &Journal) -> Resume {
    let order = &journal.order;
    let why = journal.undoing.as_deref().unwrap_or("it was cut off twice");
    let (because, hint) = match order.switch {
        Switch::Formula => ("Homebrew keeps no older one".to_owned(), "see `brew info ollama` for what else there is"),
        Switch::Renames | Switch::Link | Switch::Cask { .. } => (
            format!("{} holds no whole {}", order.slots.old.display(), order.from),
            "install the wanted version from ollama.com",
        ),
    };
    let message = format!("{} stays in its place although {why}: {because}", order.to);
    leave(journal, false, Words::new("upgrade-no-way-back", message, hint))
}

fn leave(journal: &Journal, drop_new: bool, words: Words) -> Resume {
    let mut deeds = vec![];
    deeds.extend(drop_new.then_some(Deed::DropNew));
    deeds.push(Deed::Tidy);
    course(journal, Turn::Leave, deeds, words)
}

/// Whether the new version was unpacked outside the folder of the work, for this upgrade alone.
fn unpacked_beside(journal: &Journal) -> bool {
    journal.order.switch == Switch::Link && journal.may_have(Deed::Unpack)
}

fn nothing_whole(order: &Order) -> Resume {
    let slots = &order.slots;
    let looked = format!(
        "no whole Ollama is left in {}, {} or {}; nothing was changed",
        slots.place.display(),
        slots.old.display(),
        slots.new.display()
    );
    let hint = match order.switch {
        Switch::Cask { .. } | Switch::Formula => "repair it with `brew reinstall`, then restart Stablehand",
        Switch::Renames | Switch::Link => {
            "if its volume is not there, attach it; else install Ollama from ollama.com; then restart Stablehand"
        }
    };
    wait(order, "upgrade-nothing-whole", &looked, hint)
}

fn unseen(order: &Order, path: &Path, why: &str) -> Resume {
    let message = format!("{} could not be looked at ({why}), so nothing was changed", path.display());
    wait(order, "upgrade-unseen", &message, "make it readable, then restart Stablehand")
}

fn wait(order: &Order, code: &'static str, what: &str, hint: &str) -> Resume {
    Resume::Wait(Words::new(code, format!("the {} to {} was cut off: {what}", word(order), order.to), hint))
}

fn course(journal: &Journal, turn: Turn, deeds: Vec<Deed>, words: Words) -> Resume {
    let why = journal.undoing.clone().unwrap_or_else(|| "it was cut off".to_owned());
    Resume::Go(Box::new(Course { order: journal.order.clone(), turn, deeds, why, words }))
}

fn word(order: &Order) -> &'static str {
    order.goal.word()
}
