//! A small disk: names and what lies under them. It carries deeds out by the rules of [`super::super::deed`], as lists
//! of changes of which any may be lost while the deed is not recorded as done.

use super::*;
use crate::upgrade::database::{Sight, Use};
use crate::upgrade::found::odd_place;
use crate::upgrade::order::{Goal, Instead};
use crate::upgrade::resume::{Presence, Seen};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// What lies under a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Thing {
    /// A whole version: a bundle, or a program with its libraries.
    Version(String),
    /// Half of one, or of a file.
    Half,
    /// Any other file.
    File,
    /// A link.
    Link(PathBuf),
    /// A database of this form with these chats.
    Database(Schema, BTreeSet<&'static str>),
}

/// One change that happens whole or not at all.
#[derive(Clone, Debug)]
pub(super) enum Change {
    Put(PathBuf, Thing),
    Remove(PathBuf),
    Move(PathBuf, PathBuf),
    Serve(Option<String>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Disk {
    pub names: BTreeMap<PathBuf, Thing>,
    /// Version of the server that runs.
    pub server: Option<String>,
    /// The form that the newer app brings the database into.
    newer_form: Schema,
}

/// The chats at the beginning.
pub(super) const OLD_CHATS: &[&str] = &["first", "second"];
/// The chat made with the new version, when somebody uses it.
pub(super) const NEW_CHAT: &str = "made with the new version";
/// The chat made with the old version once it runs again.
pub(super) const LATE_CHAT: &str = "made with the old version";

impl Disk {
    /// The disk before a plan is carried out.
    pub fn before(plan: &Plan, found: &Found) -> Self {
        let order = &plan.order;
        let mut names = BTreeMap::new();
        let from = Thing::Version(order.from.clone());
        match (&order.switch, order.replaced.is_empty()) {
            (Switch::Link, true) => {
                names.insert(order.slots.old.clone(), from);
                names.insert(order.slots.place.clone(), Thing::Link(order.slots.old.clone()));
            }
            (Switch::Link, false) | (Switch::Renames | Switch::Cask { .. } | Switch::Formula, _) => {
                names.insert(order.slots.place.clone(), from);
            }
        }
        names.extend(order.replaced.iter().map(|libraries| (libraries.clone(), Thing::File)));
        names.extend(order.aside.iter().map(|aside| (aside.from.clone(), Thing::File)));
        for kept in &found.kept {
            names.insert(kept.at.clone(), Thing::Version(kept.version.clone()));
            let chats = OLD_CHATS[..1].iter().copied().collect();
            let database = Thing::Database(FORM_FROM, chats);
            names.extend(kept.database.clone().filter(|_| order.database.is_some()).map(|at| (at, database)));
        }
        if let (Some(database), Some(found)) = (&order.database, &found.database) {
            let form = *found.schema.known().unwrap();
            names.insert(database.at.clone(), Thing::Database(form, OLD_CHATS.iter().copied().collect()));
        }
        let newer_form = match (order.goal, &found.database) {
            (Goal::Rollback, Some(database)) => *database.schema.known().unwrap(),
            (Goal::Upgrade | Goal::Rollback, _) => FORM_TO,
        };
        Self { names, server: Some(order.from.clone()), newer_form }
    }

    pub fn apply(&mut self, change: &Change) {
        match change {
            Change::Put(at, thing) => {
                self.names.insert(at.clone(), thing.clone());
            }
            Change::Remove(at) => {
                self.names.remove(at);
            }
            // A lost rename before this one may have left nothing to move, or something in the way.
            Change::Move(from, to) => {
                if !self.names.contains_key(to)
                    && let Some(thing) = self.names.remove(from)
                {
                    self.names.insert(to.clone(), thing);
                }
            }
            Change::Serve(server) => self.server.clone_from(server),
        }
    }

    /// The version that a start would start.
    pub fn version_in(&self, at: &Path) -> Option<&str> {
        match self.names.get(at)? {
            Thing::Version(version) => Some(version),
            Thing::Link(to) => match self.names.get(to)? {
                Thing::Version(version) => Some(version),
                Thing::Half | Thing::File | Thing::Link(_) | Thing::Database(..) => None,
            },
            Thing::Half | Thing::File | Thing::Database(..) => None,
        }
    }

    fn presence(&self, at: &Path) -> Presence {
        match (self.version_in(at), self.names.contains_key(at)) {
            (Some(version), _) => Presence::Whole(version.to_owned()),
            (None, true) => Presence::Broken("it is half".to_owned()),
            (None, false) => Presence::Absent,
        }
    }

    fn form(&self, at: &Path) -> Known<Schema> {
        match self.names.get(at) {
            Some(Thing::Database(form, _)) => Known::Is(*form),
            Some(Thing::Version(_) | Thing::Half | Thing::File | Thing::Link(_)) | None => {
                Known::unknown("no database")
            }
        }
    }

    /// What the daemon sees.
    pub fn seen(&self, order: &Order) -> Seen {
        let sight = match &order.database {
            Some(database) => Sight {
                used: if self.chats_at(&database.at).iter().any(|chat| !OLD_CHATS.contains(chat)) {
                    Use::Somebody("a chat was changed".to_owned())
                } else {
                    Use::Nobody
                },
                before: self.form(&database.copy),
                now: self.form(&database.at),
            },
            None => Sight { used: Use::Nobody, before: Known::unknown("none"), now: Known::unknown("none") },
        };
        Seen {
            place: self.presence(&order.slots.place),
            old: self.presence(&order.slots.old),
            new: self.presence(&order.slots.new),
            busy: None,
            database: sight,
        }
    }

    pub fn chats_at(&self, at: &Path) -> BTreeSet<&'static str> {
        match self.names.get(at) {
            Some(Thing::Database(_, chats)) => chats.clone(),
            Some(Thing::Version(_) | Thing::Half | Thing::File | Thing::Link(_)) | None => BTreeSet::new(),
        }
    }

    /// Every chat that is in any database.
    pub fn chats(&self) -> BTreeSet<&'static str> {
        self.names.keys().flat_map(|at| self.chats_at(at)).collect()
    }

    /// Whole apps that LaunchServices would offer, outside the built-in updater's own folder.
    pub fn offered(&self) -> Vec<&Path> {
        let is_app = |at: &&PathBuf| at.extension().is_some_and(|extension| extension == "app");
        let whole = |at: &&PathBuf| self.version_in(at).is_some() && odd_place(at).is_none();
        self.names.keys().filter(is_app).filter(whole).map(PathBuf::as_path).collect()
    }

    /// The changes that a deed makes on this disk.
    pub fn changes(&self, order: &Order, deed: Deed) -> Vec<Change> {
        let slots = &order.slots;
        let there = |at: &Path| self.names.contains_key(at);
        let written = |at: &Path, thing: Thing| vec![put(at, Thing::Half), put(at, thing)];
        let version = |version: &str| Thing::Version(version.to_owned());
        match deed {
            Deed::Download => {
                order.downloads.iter().flat_map(|download| written(&download.file, Thing::File)).collect()
            }
            Deed::Unpack => written(&slots.new, version(&order.to)),
            Deed::KeepCopy => written(&slots.old, version(&order.from)),
            Deed::Stop | Deed::StopNew => vec![Change::Serve(None)],
            Deed::SetUpdaterAside => order
                .aside
                .iter()
                .filter(|aside| there(&aside.from))
                .map(|aside| moved(&aside.from, &aside.to))
                .collect(),
            Deed::PutUpdaterBack => {
                order.aside.iter().filter(|aside| there(&aside.to)).map(|aside| moved(&aside.to, &aside.from)).collect()
            }
            Deed::CopyDatabase => self.database_changes(order, |database| (&database.at, Some(&database.copy))),
            Deed::UseOldDatabase => self.database_changes(order, |database| match database.instead.as_ref().unwrap() {
                Instead::Kept(kept) => (kept, Some(&database.at)),
                Instead::None => (&database.at, None),
            }),
            Deed::SetDatabaseAside => self.set_aside(order),
            Deed::PutDatabaseBack => self.database_changes(order, |database| (&database.copy, Some(&database.at))),
            Deed::MoveOut => self.rename(&slots.place, &slots.old),
            Deed::MoveIn => self.rename(&slots.new, &slots.place),
            Deed::MoveOldBack => self.rename(&slots.old, &slots.place),
            Deed::MoveNewOut => {
                let to = order.given_up();
                let mut changes = match order.goal {
                    Goal::Upgrade if there(&slots.place) => self.removal(to),
                    Goal::Upgrade | Goal::Rollback => vec![],
                };
                changes.extend(there(&slots.place).then(|| moved(&slots.place, to)));
                changes
            }
            Deed::SwitchLink => vec![put(&slots.place, Thing::Link(slots.new.clone()))],
            Deed::LinkBack => vec![put(&slots.place, Thing::Link(slots.old.clone()))],
            Deed::Brew => vec![
                Change::Remove(slots.place.clone()),
                put(&slots.place, Thing::Half),
                put(&slots.place, version(&order.to)),
            ],
            Deed::Start | Deed::StartOld => self.start(order),
            Deed::Commit => {
                let gone = order.remove.iter().chain(&order.replaced).chain([&order.work]);
                gone.flat_map(|at| self.removal(at)).collect()
            }
            Deed::DropCopy => self.removal(&slots.old),
            Deed::DropNew => self.removal(&slots.new),
            Deed::DropDatabaseCopy => order.database.iter().flat_map(|database| self.removal(&database.copy)).collect(),
            Deed::DropReplaced => order.replaced.iter().flat_map(|at| self.removal(at)).collect(),
            Deed::Tidy => self.removal(&order.work),
            Deed::BrewFetch
            | Deed::CheckHash
            | Deed::CheckVersion
            | Deed::CheckSignature
            | Deed::ClearQuarantine
            | Deed::CheckInPlace
            | Deed::ClearInPlace
            | Deed::Prove
            | Deed::ProveOld => vec![],
        }
    }

    /// A start of what is in place. The newer app brings the database into its own form.
    pub fn start(&self, order: &Order) -> Vec<Change> {
        let version = self.version_in(&order.slots.place);
        let mut changes = vec![Change::Serve(version.map(str::to_owned))];
        if let (Some(TO), Some(database)) = (version, &order.database) {
            changes.push(put(&database.at, Thing::Database(self.newer_form, self.chats_at(&database.at))));
        }
        changes
    }

    /// A rename that finds its work done, or refuses a place that is taken.
    fn rename(&self, from: &Path, to: &Path) -> Vec<Change> {
        let (source, target) = (self.names.contains_key(from), self.names.contains_key(to));
        assert!(!(source && target), "{} would be moved into {}", from.display(), to.display());
        assert!(source || target, "{} is to be moved, and is not there", from.display());
        if source { vec![moved(from, to)] } else { vec![] }
    }

    /// A copy that appears whole under its name; a copy that is there already is left.
    fn database_changes(
        &self,
        order: &Order,
        pick: impl Fn(&crate::upgrade::order::DatabaseCopy) -> (&PathBuf, Option<&PathBuf>),
    ) -> Vec<Change> {
        let Some(database) = &order.database else { return vec![] };
        match pick(database) {
            (from, Some(to)) => {
                let Some(thing) = self.names.get(from) else { panic!("{} is not there", from.display()) };
                vec![put(to, thing.clone())]
            }
            (from, None) => self.removal(from),
        }
    }

    /// What was set aside before stays, unless it is the same.
    fn set_aside(&self, order: &Order) -> Vec<Change> {
        let Some(database) = &order.database else { return vec![] };
        let Some(current) = self.names.get(&database.at) else { panic!("{} is not there", database.at.display()) };
        let names = (1..).map(|number| match number {
            1 => database.aside.clone(),
            number => database.aside.with_extension(format!("{number}.sqlite")),
        });
        for name in names {
            match self.names.get(&name) {
                Some(same) if same == current => return vec![],
                Some(_) => {}
                None => return vec![put(&name, current.clone())],
            }
        }
        vec![]
    }

    /// A folder goes piece by piece.
    fn removal(&self, at: &Path) -> Vec<Change> {
        let inside = self.names.iter().filter(|(name, _)| name.starts_with(at));
        inside
            .flat_map(|(name, thing)| match thing {
                Thing::Version(_) => vec![put(name, Thing::Half), Change::Remove(name.clone())],
                Thing::Half | Thing::File | Thing::Link(_) | Thing::Database(..) => vec![Change::Remove(name.clone())],
            })
            .collect()
    }
}

fn put(at: &Path, thing: Thing) -> Change {
    Change::Put(at.to_path_buf(), thing)
}

fn moved(from: &Path, to: &Path) -> Change {
    Change::Move(from.to_path_buf(), to.to_path_buf())
}
