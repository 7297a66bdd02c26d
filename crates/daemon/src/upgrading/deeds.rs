//! Each deed: what it changes, by the rules of [`stablehand_engine::upgrade::deed`]. Carried out again, it leaves what
//! it finds done.

use super::carrying_out::{News, Tell, Works};
use super::presence::{self, Checked};
use super::{as_root, brew, database, signed};
use stablehand_engine::Known;
use stablehand_engine::plan::StepFailure;
use stablehand_engine::time::Wall;
use stablehand_engine::upgrade::database::Sight;
use stablehand_engine::upgrade::deed::Deed;
use stablehand_engine::upgrade::fault::{Fault, NotProved};
use stablehand_engine::upgrade::order::{DatabaseCopy, Goal, Instead, Order, Switch};
use stablehand_engine::upgrade::resume::{Presence, Seen};
use stablehand_ollama::releases::{self, BackOff, Means, Source};
use stablehand_platform::disk::Disk;
use stablehand_platform::exchange::Exchange;
use stablehand_platform::machine::Machine;
use stablehand_platform::paths::versions_of_the_system;
use stablehand_platform::{quarantine, staging};
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Called before each change of the disk; see [`stablehand_platform::disk::Before`].
pub(super) type Before = Arc<dyn Fn(&'static str, &Path) -> io::Result<()> + Send + Sync>;

/// The server's life, and what shows that it works.
pub(super) trait Life: Send + Sync {
    /// Stops it through its owner, and keeps it stopped.
    fn stop(&self) -> impl Future<Output = Result<String, StepFailure>> + Send;
    /// Starts it through its owner. What is there already is replaced by a new one.
    fn start(&self) -> impl Future<Output = Result<String, StepFailure>> + Send;
    /// Shows that this version works: it answers, its settings are in force, it generates.
    fn prove(&self, order: &Order, version: &str) -> impl Future<Output = Result<String, NotProved>> + Send;
    /// Whether a process runs from what lies there.
    fn runs_from(&self, place: &Path) -> impl Future<Output = Option<u32>> + Send;
    /// Writes down which version to stay on.
    fn pin(&self, version: &str) -> impl Future<Output = Result<(), String>> + Send;
}

/// Changes files of a machine.
#[derive(Clone)]
pub(super) struct Files {
    pub(super) machine: Machine,
    pub(super) before: Before,
}

/// Carries deeds out on a machine.
pub(super) struct Hand<L> {
    pub(super) files: Files,
    pub(super) life: L,
    /// Where releases come from; nothing is downloaded without.
    pub(super) source: Option<Source>,
}

impl<L: Life> Works for Hand<L> {
    async fn carry_out(&mut self, deed: Deed, order: &Order, tell: Tell<'_>) -> Result<String, Fault> {
        let (machine, slots) = (&self.files.machine, &order.slots);
        if deed == Deed::Commit
            && let Some(pin) = &order.pin
        {
            let path = slots.place.clone();
            self.life.pin(pin).await.map_err(|reason| Fault::File { path, reason })?;
        }
        if as_root::is_needed(deed, order) {
            return as_root::carry_out(machine, deed, order).await;
        }
        if deed == Deed::MoveOut
            && let Some(pid) = self.life.runs_from(&slots.place).await
        {
            let reason = format!("it was started again meanwhile (pid {pid})");
            return Err(Fault::File { path: slots.place.clone(), reason });
        }
        if let Some(done) = self.files.change(deed, order).await {
            return done;
        }
        match deed {
            Deed::Download => self.download(order, tell).await,
            Deed::BrewFetch => brew::fetch(machine, order).await,
            Deed::CheckHash => {
                for download in &order.downloads {
                    releases::check(download).await?;
                }
                Ok("it is the release's own".to_owned())
            }
            Deed::Unpack => self.files.unpack(order, tell).await,
            Deed::CheckVersion => self.check_version(&slots.new, order).await,
            Deed::CheckSignature => signed::check(machine, &slots.new, order.goal).await,
            Deed::ClearQuarantine => self.clear_quarantine(&slots.new).await,
            Deed::KeepCopy => self.files.keep_copy(order).await,
            Deed::Stop | Deed::StopNew => self.life.stop().await.map_err(Fault::Server),
            Deed::Brew => brew::upgrade(machine, order).await,
            Deed::CheckInPlace => {
                self.check_version(&slots.place, order).await?;
                signed::check(machine, &slots.place, order.goal).await
            }
            Deed::ClearInPlace => self.clear_quarantine(&slots.place).await,
            Deed::Start | Deed::StartOld => self.life.start().await.map_err(Fault::Server),
            Deed::Prove => self.life.prove(order, &order.to).await.map_err(Fault::NotProved),
            Deed::ProveOld => self.life.prove(order, &order.from).await.map_err(Fault::NotProved),
            Deed::SetUpdaterAside
            | Deed::CopyDatabase
            | Deed::UseOldDatabase
            | Deed::MoveOut
            | Deed::MoveIn
            | Deed::SwitchLink
            | Deed::Commit
            | Deed::MoveNewOut
            | Deed::MoveOldBack
            | Deed::LinkBack
            | Deed::SetDatabaseAside
            | Deed::PutDatabaseBack
            | Deed::PutUpdaterBack
            | Deed::DropCopy
            | Deed::DropNew
            | Deed::DropDatabaseCopy
            | Deed::DropReplaced
            | Deed::Tidy => Ok(String::new()),
        }
    }

    async fn look(&mut self, order: &Order) -> Seen {
        let new = match presence::of(&self.files.machine, &order.switch, &order.slots.new, Checked::Slot).await {
            // A bundle in a folder that anybody may have written into counts only with its signature, checked now.
            Presence::Whole(version) => match &order.switch {
                Switch::Renames | Switch::Cask { .. } => {
                    match signed::check(&self.files.machine, &order.slots.new, order.goal).await {
                        Ok(_) => Presence::Whole(version),
                        Err(fault) => Presence::Broken(fault.to_string()),
                    }
                }
                Switch::Link | Switch::Formula => Presence::Whole(version),
            },
            other @ (Presence::Absent | Presence::Broken(_) | Presence::Unknown(_)) => other,
        };
        Seen {
            place: presence::of(&self.files.machine, &order.switch, &order.slots.place, Checked::Place).await,
            old: presence::of(&self.files.machine, &order.switch, &order.slots.old, Checked::Slot).await,
            new,
            busy: match &order.switch {
                Switch::Cask { .. } | Switch::Formula => brew::at_work(&self.files.machine),
                Switch::Renames | Switch::Link => None,
            },
            database: match &order.database {
                Some(copy) => Sight {
                    used: database::used_since(&copy.copy, &copy.at),
                    before: database::schema(&copy.copy),
                    now: database::schema(&copy.at),
                },
                None => Sight {
                    used: stablehand_engine::upgrade::database::Use::Nobody,
                    before: Known::unknown("there is none"),
                    now: Known::unknown("there is none"),
                },
            },
        }
    }
}

impl<L: Life> Hand<L> {
    async fn download(&self, order: &Order, tell: Tell<'_>) -> Result<String, Fault> {
        let Some(source) = &self.source else {
            return Err(Fault::Network("no address of releases is configured".to_owned()));
        };
        let all: u64 = order.downloads.iter().map(|download| download.size_bytes).sum();
        let back_off = BackOff::default();
        let clock = self.files.machine.clock();
        let wait = |span: Duration| -> Pin<Box<dyn Future<Output = ()> + Send>> {
            let clock = clock.clone();
            Box::pin(async move { clock.sleep(span).await })
        };
        let now = || -> Wall { clock.now().wall };
        let means = Means { back_off: &back_off, wait: &wait, now: &now, before: &*self.files.before };
        let mut done = 0;
        for download in &order.downloads {
            let mut told = |news: releases::News| match news {
                releases::News::Bytes { done_bytes, .. } => {
                    tell(News::Bytes { done_bytes: done + done_bytes, of_bytes: Some(all) });
                }
                releases::News::Waiting { why, .. } => tell(News::Waiting(why)),
            };
            source.download(download, means, &mut told).await?;
            done += download.size_bytes;
        }
        Ok(String::new())
    }

    async fn check_version(&self, at: &Path, order: &Order) -> Result<String, Fault> {
        match presence::of(&self.files.machine, &order.switch, at, Checked::Slot).await {
            Presence::Whole(version) if version == order.to => Ok(format!("it is {version}")),
            Presence::Whole(found) => Err(Fault::AnotherVersion { found }),
            Presence::Absent => Err(Fault::NoArchive("nothing lies where it was unpacked to".to_owned())),
            Presence::Broken(why) | Presence::Unknown(why) => Err(Fault::NoArchive(why)),
        }
    }

    async fn clear_quarantine(&self, bundle: &Path) -> Result<String, Fault> {
        let failed = |failure: StepFailure| match failure.code {
            "app-management" => Fault::AppManagement(bundle.to_path_buf()),
            "quarantine-not-writable" => Fault::Denied(bundle.to_path_buf()),
            "quarantine-came-back" | "quarantine-not-cleared" => Fault::Quarantined(bundle.to_path_buf()),
            _ => Fault::File { path: bundle.to_path_buf(), reason: failure.message },
        };
        let disk = self.files.disk();
        (self.files.before)("remove", bundle).map_err(|error| disk.fault(bundle, &error))?;
        let found = quarantine::look(&self.files.machine, bundle).map_err(failed)?;
        let marked = found.marked();
        if marked > 0 || !found.unreadable().is_empty() {
            quarantine::remove(&self.files.machine, &found).await.map_err(failed)?;
        }
        let after = quarantine::prove(&self.files.machine, bundle).map_err(failed)?;
        Ok(format!("{marked} marks were removed, {} files read again", after.looked_at))
    }
}

impl Files {
    /// The disk that they lie on.
    pub(super) fn disk(&self) -> Disk<'_> {
        Disk::new(self.machine.os(), &*self.before)
    }

    /// What asks before each change, for a deed that goes on elsewhere: one that is no longer waited for stops at its
    /// next change, so that it does not disturb what comes after it.
    fn while_waited_for(&self) -> (Before, GivenUp) {
        let wanted = Arc::new(AtomicBool::new(true));
        let given_up = GivenUp(Arc::clone(&wanted));
        let before = Arc::clone(&self.before);
        let before: Before = Arc::new(move |what, path: &Path| {
            if wanted.load(Ordering::Relaxed) { before(what, path) } else { Err(io::ErrorKind::Interrupted.into()) }
        });
        (before, given_up)
    }

    /// Carries a deed out that is nothing but a change of files; `None` for every other.
    pub(super) async fn change(&self, deed: Deed, order: &Order) -> Option<Result<String, Fault>> {
        Some(match deed {
            Deed::SetUpdaterAside => self.on_disk(order, set_updater_aside).await,
            Deed::CopyDatabase => {
                self.with_database(order, |disk, database| database::copy(disk, &database.at, &database.copy)).await
            }
            Deed::UseOldDatabase => self.with_database(order, use_old_database).await,
            Deed::MoveOut => {
                self.on_disk(order, |exchange, order| exchange.move_to(&order.slots.place, &order.slots.old)).await
            }
            Deed::MoveIn => {
                self.on_disk(order, |exchange, order| exchange.move_to(&order.slots.new, &order.slots.place)).await
            }
            Deed::SwitchLink => {
                self.on_disk(order, |exchange, order| {
                    exchange.link(&order.slots.place, &presence::program_in(&order.slots.new))
                })
                .await
            }
            Deed::Commit => self.on_disk(order, commit).await,
            Deed::MoveNewOut => self.on_disk(order, move_new_out).await,
            Deed::MoveOldBack => {
                self.on_disk(order, |exchange, order| exchange.move_to(&order.slots.old, &order.slots.place)).await
            }
            Deed::LinkBack => {
                self.on_disk(order, |exchange, order| {
                    exchange.link(&order.slots.place, &presence::program_in(&order.slots.old))
                })
                .await
            }
            Deed::SetDatabaseAside => self.set_database_aside(order).await,
            Deed::PutDatabaseBack => self.with_database(order, put_database_back).await,
            Deed::PutUpdaterBack => self.on_disk(order, put_updater_back).await,
            Deed::DropCopy => self.on_disk(order, |exchange, order| exchange.remove(&order.slots.old)).await,
            Deed::DropNew => {
                self.on_disk(order, |exchange, order| {
                    exchange.remove(&order.slots.new)?;
                    exchange.remove(&staging::unfinished(&order.slots.new))
                })
                .await
            }
            Deed::DropDatabaseCopy => {
                self.with_database(order, |disk, database| database::remove_database(disk, &database.copy)).await
            }
            Deed::DropReplaced => {
                self.on_disk(order, |exchange, order| order.replaced.iter().try_for_each(|path| exchange.remove(path)))
                    .await
            }
            Deed::Tidy => self.on_disk(order, tidy).await,
            Deed::Download
            | Deed::BrewFetch
            | Deed::CheckHash
            | Deed::Unpack
            | Deed::CheckVersion
            | Deed::CheckSignature
            | Deed::ClearQuarantine
            | Deed::KeepCopy
            | Deed::Stop
            | Deed::Brew
            | Deed::CheckInPlace
            | Deed::ClearInPlace
            | Deed::Start
            | Deed::Prove
            | Deed::StopNew
            | Deed::StartOld
            | Deed::ProveOld => return None,
        })
    }

    /// Lets everybody read what lies there, and come there: a service of the system runs as a user of its own.
    ///
    /// # Errors
    /// A [`Fault`].
    pub(super) fn open_to_all(&self, version: &Path) -> Result<(), Fault> {
        let ours = versions_of_the_system(&self.machine);
        let mut folders = vec![version.to_path_buf()];
        folders
            .extend(version.ancestors().skip(1).take_while(|folder| folder.starts_with(&ours)).map(Path::to_path_buf));
        folders.extend(ours.parent().map(Path::to_path_buf));
        folders.iter().try_for_each(|folder| {
            self.disk().change("mode", folder, || fs::set_permissions(folder, fs::Permissions::from_mode(0o755)))
        })
    }

    async fn set_database_aside(&self, order: &Order) -> Result<String, Fault> {
        let Some(copy) = order.database.clone() else { return Ok(String::new()) };
        let machine = self.machine.clone();
        let (before, _given_up) = self.while_waited_for();
        blocking(move || {
            let disk = Disk::new(machine.os(), &*before);
            let name = database::set_aside(&disk, &copy.at, &copy.aside)?;
            Ok(format!("it is {}", name.display()))
        })
        .await
    }

    /// Unpacks what was downloaded into the new slot.
    ///
    /// # Errors
    /// A [`Fault`].
    pub(super) async fn unpack(&self, order: &Order, tell: Tell<'_>) -> Result<String, Fault> {
        let holds = match &order.switch {
            Switch::Renames | Switch::Cask { .. } => staging::Holds::TheBundle,
            Switch::Link | Switch::Formula => staging::Holds::ItsContents,
        };
        let (news, mut told) = tokio::sync::mpsc::channel(1);
        let (machine, order) = (self.machine.clone(), order.clone());
        let (before, _given_up) = self.while_waited_for();
        let unpacked = blocking(move || {
            let mut tell = |progress: staging::Progress| {
                // Whoever looks sees the next one.
                let _full = news.try_send(progress);
            };
            staging::unpack(&machine, &order.downloads, &order.slots.new, holds, &*before, &mut tell)?;
            Ok(String::new())
        });
        tokio::pin!(unpacked);
        loop {
            tokio::select! {
                done = &mut unpacked => return done,
                Some(progress) = told.recv() => {
                    tell(News::Bytes { done_bytes: progress.done_bytes, of_bytes: progress.of_bytes });
                }
            }
        }
    }

    /// Copies the version in place into the old slot.
    ///
    /// # Errors
    /// A [`Fault`].
    pub(super) async fn keep_copy(&self, order: &Order) -> Result<String, Fault> {
        self.on_disk(order, |exchange, order| match &order.switch {
            Switch::Cask { .. } | Switch::Renames | Switch::Formula => {
                exchange.copy(&[(&order.slots.place, Path::new(""))], &order.slots.old)
            }
            Switch::Link => {
                let program = presence::program_in(Path::new(""));
                let mut sources = vec![(order.slots.place.as_path(), program.as_path())];
                let libraries = Path::new("lib/ollama");
                sources
                    .extend(order.replaced.iter().filter(|path| path.exists()).map(|path| (path.as_path(), libraries)));
                exchange.copy(&sources, &order.slots.old)
            }
        })
        .await
    }

    async fn on_disk(
        &self,
        order: &Order,
        change: impl FnOnce(&Exchange<'_>, &Order) -> Result<(), Fault> + Send + 'static,
    ) -> Result<String, Fault> {
        let (machine, order) = (self.machine.clone(), order.clone());
        let (before, _given_up) = self.while_waited_for();
        blocking(move || {
            let disk = Disk::new(machine.os(), &*before);
            change(&Exchange::new(&machine, disk), &order).map(|()| String::new())
        })
        .await
    }

    async fn with_database(
        &self,
        order: &Order,
        change: impl FnOnce(&Disk<'_>, &DatabaseCopy) -> Result<(), Fault> + Send + 'static,
    ) -> Result<String, Fault> {
        let Some(copy) = order.database.clone() else { return Ok(String::new()) };
        let machine = self.machine.clone();
        let (before, _given_up) = self.while_waited_for();
        blocking(move || change(&Disk::new(machine.os(), &*before), &copy).map(|()| String::new())).await
    }
}

/// Lets what blocks know that nobody waits for it any more.
struct GivenUp(Arc<AtomicBool>);

impl Drop for GivenUp {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T, Fault> + Send + 'static) -> Result<T, Fault> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(broken) => Err(Fault::File { path: "/".into(), reason: format!("the work broke: {broken}") }),
    }
}

fn set_updater_aside(exchange: &Exchange<'_>, order: &Order) -> Result<(), Fault> {
    // One that has gone by itself is out of the way.
    order
        .aside
        .iter()
        .filter(|aside| is_there(&aside.from))
        .try_for_each(|aside| exchange.move_across(&aside.from, &aside.to))
}

fn put_updater_back(exchange: &Exchange<'_>, order: &Order) -> Result<(), Fault> {
    // One that is there anew is the updater's own business.
    let owed = order.aside.iter().filter(|aside| is_there(&aside.to) && !is_there(&aside.from));
    owed.into_iter().try_for_each(|aside| exchange.move_across(&aside.to, &aside.from))
}

fn move_new_out(exchange: &Exchange<'_>, order: &Order) -> Result<(), Fault> {
    let to = order.given_up();
    if !is_there(&order.slots.place) {
        return Ok(());
    }
    match order.goal {
        // It holds rubbish alone.
        Goal::Upgrade => exchange.remove(to)?,
        Goal::Rollback => {}
    }
    exchange.move_to(&order.slots.place, to)
}

fn use_old_database(disk: &Disk<'_>, copy: &DatabaseCopy) -> Result<(), Fault> {
    match &copy.instead {
        Some(Instead::Kept(kept)) => database::put(disk, kept, &copy.at),
        Some(Instead::None) => database::remove_database(disk, &copy.at),
        None => Ok(()),
    }
}

fn put_database_back(disk: &Disk<'_>, copy: &DatabaseCopy) -> Result<(), Fault> {
    // Without a copy there was none, and none was changed.
    if is_there(&copy.copy) { database::put(disk, &copy.copy, &copy.at) } else { Ok(()) }
}

fn commit(exchange: &Exchange<'_>, order: &Order) -> Result<(), Fault> {
    let gone = order.remove.iter().chain(&order.replaced);
    gone.into_iter().try_for_each(|path| exchange.remove(path))?;
    tidy(exchange, order)
}

fn tidy(exchange: &Exchange<'_>, order: &Order) -> Result<(), Fault> {
    exchange.remove(&order.work)?;
    let slots = &order.slots;
    [&slots.place, &slots.old, &slots.new, &order.work].into_iter().try_for_each(|path| exchange.sweep(path))
}

fn is_there(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok()
}
