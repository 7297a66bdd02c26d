//! Upgrades and rollbacks of Ollama: which versions there are, a plan carried out with a journal, and whatever an
//! earlier daemon left of one.
//!
//! One task owns all of it. What to do is the engine's to say ([`stablehand_engine::upgrade`]); here it is found out
//! what there is ([`finding`]), the deeds are carried out ([`carrying_out`], [`deeds`]), and people are told
//! ([`telling`]). The server's life stays with the supervision, which is asked to stop and start it ([`life`]).

mod as_root;
mod brew;
mod carrying_out;
mod database;
mod deeds;
mod finding;
mod journal;
mod life;
#[cfg(test)]
mod matrix;
mod measuring;
mod presence;
mod releases;
mod signed;
mod telling;

use crate::configuration::{Configuration, Upgrades};
use crate::history::{Entry, History, Kind};
use crate::looking::Seen;
use crate::supervision::{Charge, Command};
use crate::translation::{self, rfc3339};
use carrying_out::{End, News, Pace};
use deeds::{Before, Files, Hand};
use finding::{Beside, InPlace, ProgramVersions};
use journal::JournalFile;
use life::ServersLife;
use measuring::{compared, measured, speed_in_words};
use releases::Known as KnownReleases;
use serde_json::json;
use stablehand_engine::Known;
use stablehand_engine::alert::{Alert, AlertKind};
use stablehand_engine::plan::{Seat, StepFailure};
use stablehand_engine::time::Awake;
use stablehand_engine::upgrade::Words;
use stablehand_engine::upgrade::by_itself::Chance;
use stablehand_engine::upgrade::found::{Busy, Found};
use stablehand_engine::upgrade::journal::{Ending as Ended, Record};
use stablehand_engine::upgrade::order::{Goal, Order};
use stablehand_engine::upgrade::plan::{Ask, Plan, plan, plan_rollback};
use stablehand_engine::upgrade::resume::{Course, Presence, Resume, Turn, resume};
use stablehand_platform::disk::Disk;
use stablehand_platform::exchange::Exchange;
use stablehand_platform::machine::Machine;
use stablehand_platform::survey::Surveyor;
use stablehand_protocol::{self as protocol, Ending, Event, Failure, Request, Versions, Watched};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex as StdMutex};
use std::time::Duration;
use telling::{failure_of, words_of};
use tokio::sync::{Mutex, mpsc, watch};
use tokio::task::JoinHandle;

/// How often it is looked at what is due, in the machine's time.
const INTERVAL: Duration = Duration::from_secs(60);
/// How long the first look may take before an upgrade that was cut off is taken up without it.
const FIRST_LOOK: Duration = Duration::from_secs(60);
/// How often an upgrade that could neither be finished nor undone is tried again by itself: a full disk gets room, a
/// volume is attached.
const TRY_AGAIN: Duration = Duration::from_secs(300);
/// Code of a journal that can not be what was written.
const JOURNAL_BROKEN: &str = "upgrade-journal-broken";
/// What every allowance gets more in a simulated machine, whose time can run faster than its processes do.
const SIMULATED_SLACK: Duration = Duration::from_secs(60);

/// What connects this task to the others.
#[derive(Debug)]
pub struct Links {
    /// Wishes about versions.
    pub requests: mpsc::Receiver<Command>,
    /// What is to be done to the server's life.
    pub charges: mpsc::Sender<Charge>,
    /// Changes of our configuration go to its owner.
    pub commands: mpsc::Sender<Command>,
    /// The last look at the server and its owner.
    pub seen: watch::Receiver<Option<Arc<Seen>>>,
    /// Our configuration.
    pub configuration: watch::Receiver<Configuration>,
    /// What is watched.
    pub watched: watch::Receiver<Option<Arc<Watched>>>,
    /// What people are told.
    pub notices: mpsc::Sender<Alert>,
    /// What is known of versions.
    pub versions: watch::Sender<Option<Arc<Versions>>>,
}

/// Whether an upgrade was cut off, so that the server's life is its business.
pub fn was_cut_off(machine: &Machine) -> bool {
    journal::is_there(&journal_path(machine))
}

fn journal_path(machine: &Machine) -> PathBuf {
    finding::folder(machine).join("journal")
}

/// Carries one deed of an upgrade out, as root; see [`as_root`]. What it says is for the daemon alone.
///
/// # Errors
/// When nothing was begun.
pub async fn deed_as_root(machine: &Machine, deed: &str, order: &[u8]) -> Result<String, Failure> {
    as_root::serve(machine, deed, order).await.map_err(|reason| {
        let message = format!("{reason}; nothing was changed");
        Failure::new("no-deed", message, "`stablehand upgrade` runs this by itself where rights are needed")
    })
}

/// Serves until the daemon ends.
pub async fn run(machine: Machine, surveyor: Arc<Mutex<Surveyor>>, history: History, mut links: Links) {
    let (news, mut told) = mpsc::unbounded_channel();
    let releases = KnownReleases::open(&machine);
    let mut upgrading = Upgrading {
        before: deadly(&machine),
        machine,
        surveyor,
        history,
        releases,
        news,
        work: None,
        last: None,
        stuck: None,
        tried_at: None,
        app_management_refused: false,
        programs: ProgramVersions::default(),
    };
    upgrading.take_up(&mut links).await;
    upgrading.publish(&links).await;
    loop {
        let pause = upgrading.machine.clock().real_span(INTERVAL).max(Duration::from_millis(500));
        tokio::select! {
            Some(command) = links.requests.recv() => upgrading.request(&mut links, command).await,
            Some(told) = told.recv() => upgrading.told(&mut links, told).await,
            changed = links.configuration.changed() => {
                if changed.is_err() {
                    return;
                }
                upgrading.publish(&links).await;
            }
            () = tokio::time::sleep(pause) => upgrading.look_what_is_due(&mut links).await,
        }
    }
}

/// What comes back from the work under way.
enum Told {
    News(News),
    Ended { end: Box<End>, order: Box<Order>, measured: Option<protocol::Measured> },
}

/// The work under way.
struct Work {
    order: Order,
    shown: protocol::Upgrade,
    /// Whoever asked, while it still listens.
    events: Option<mpsc::Sender<Event>>,
    task: JoinHandle<()>,
}

struct Upgrading {
    machine: Machine,
    surveyor: Arc<Mutex<Surveyor>>,
    history: History,
    releases: KnownReleases,
    before: Before,
    news: mpsc::UnboundedSender<Told>,
    work: Option<Work>,
    last: Option<protocol::UpgradeEnd>,
    /// Why a journal that lies there can not be dealt with now.
    stuck: Option<Words>,
    /// When that was tried last.
    tried_at: Option<Awake>,
    /// macOS has refused this very process a change to the app; the permission holds for one that starts after it.
    app_management_refused: bool,
    programs: ProgramVersions,
}

impl Upgrading {
    /// Finishes or undoes what an earlier daemon left.
    async fn take_up(&mut self, links: &mut Links) {
        let path = journal_path(&self.machine);
        if !journal::is_there(&path) {
            // One that was cut off at its first record: nothing was begun.
            let before = Arc::clone(&self.before);
            let disk = Disk::new(self.machine.os(), &*before);
            if journal::is_there(&journal::unfinished(&path))
                && let Err(fault) = journal::remove(&disk, &journal::unfinished(&path))
            {
                tracing::warn!(%fault, "the beginning of a journal stays");
            }
            self.keep_house(links).await;
            return;
        }
        let looked = tokio::time::timeout(self.real(FIRST_LOOK), links.seen.wait_for(Option::is_some));
        let _without_one = looked.await.map(|_seen| ());
        let found = journal::read(&path);
        let order = found.as_ref().ok().and_then(|found| match found.records.first() {
            Some(Record::Opened(order)) => Some((**order).clone()),
            Some(_) | None => None,
        });
        let records = found.as_ref().map(|found| found.records.clone()).map_err(Clone::clone);
        let seen = match &order {
            Some(order) => {
                use carrying_out::Works as _;
                self.hand(links).look(order).await
            }
            // What the engine says then needs nothing that is seen.
            None => nothing_seen(),
        };
        match (resume(&records, &seen), found) {
            (Resume::Nothing, found) => {
                self.hand_back(links).await;
                let records = found.map(|found| found.records).unwrap_or_default();
                if let (Some(order), Some(Record::Closed(ending))) = (order, records.last()) {
                    self.ended_unseen(links, &order, *ending).await;
                }
                self.remove_journal();
                self.keep_house(links).await;
            }
            (Resume::Go(course), Ok(found)) => {
                tracing::warn!(message = %course.words.message, "an upgrade was cut off");
                self.begin(links, found, *course, None, false);
            }
            (Resume::Go(course), Err(_)) => self.wait(links, course.words).await,
            (Resume::Wait(words), _) => self.wait(links, words).await,
        }
    }

    /// An upgrade had ended when the daemon was cut off, and nobody may have heard of it.
    async fn ended_unseen(&mut self, links: &Links, order: &Order, ending: Ended) {
        let (goal, from, to) = (order.goal.word(), &order.from, &order.to);
        let message = match ending {
            Ended::Committed => format!("{goal} from {from} to {to}: done, and {to} is proved"),
            Ended::Undone => format!("the {goal} to {to} was undone; {from} is in its place"),
            Ended::Left => format!("the {goal} to {to} was left as it was found"),
        };
        let now = self.machine.clock().now().wall;
        self.last = Some(protocol::UpgradeEnd {
            goal: goal.to_owned(),
            from: from.clone(),
            to: to.clone(),
            end: ending.word().to_owned(),
            failure: None,
            at: rfc3339(now),
            measured: None,
        });
        self.tell(links, message, "`stablehand versions` shows what is in place").await;
    }

    /// What it says is done, and told.
    fn remove_journal(&self) {
        let before = Arc::clone(&self.before);
        if let Err(fault) = journal::remove(&Disk::new(self.machine.os(), &*before), &journal_path(&self.machine)) {
            tracing::warn!(%fault, "the journal of an upgrade that has ended stays");
        }
    }

    /// Removes what is nobody's any more: nothing is under way.
    async fn keep_house(&self, links: &Links) {
        let there = self.look(links).await;
        let before = Arc::clone(&self.before);
        let keep = links.configuration.borrow().upgrades.keep;
        let rubbish = finding::rubbish(&there, keep);
        let exchange = Exchange::new(&self.machine, Disk::new(self.machine.os(), &*before));
        for path in rubbish {
            match exchange.discard(&path) {
                Ok(()) => tracing::info!(path = %path.display(), "a remainder of an upgrade was removed"),
                Err(fault) => tracing::warn!(%fault, "a remainder of an upgrade stays"),
            }
        }
    }

    /// Changes nothing, tells, and lets everybody else work.
    async fn wait(&mut self, links: &Links, words: Words) {
        self.tried_at = Some(self.machine.clock().awake());
        self.tell(links, words.message.clone(), &words.hint).await;
        self.stuck = Some(words);
        self.hand_back(links).await;
    }

    async fn hand_back(&self, links: &Links) {
        let _ending = links.charges.send(Charge::HandBack).await;
    }

    async fn tell(&self, links: &Links, message: String, action: &str) {
        let alert = Alert::new(AlertKind::Upgrade, message, action.to_owned());
        let _ending = links.notices.send(alert).await;
    }

    fn hand(&self, links: &Links) -> Hand<ServersLife> {
        Hand {
            files: Files { machine: self.machine.clone(), before: Arc::clone(&self.before) },
            life: ServersLife {
                machine: self.machine.clone(),
                surveyor: Arc::clone(&self.surveyor),
                charges: links.charges.clone(),
                commands: links.commands.clone(),
                seen: links.seen.clone(),
                last_start: StdMutex::new(None),
            },
            source: releases::source(&self.machine, &links.configuration.borrow().upgrades).ok(),
        }
    }

    /// What is in place now.
    async fn look(&self, links: &Links) -> InPlace {
        let home = self.machine.default_port();
        let port = links.seen.borrow().as_ref().map_or(home, |seen| seen.look.port);
        finding::look(&self.machine, &self.surveyor, &self.programs, port).await
    }

    async fn find(&self, links: &Links) -> Found {
        let home = self.machine.default_port();
        let (seat, port) = match &*links.seen.borrow() {
            Some(seen) => (seen.look.seat, seen.look.port),
            None => (Seat::at_home(home), home),
        };
        let beside = Beside {
            upgrades: links.configuration.borrow().upgrades.clone(),
            busy: self.busy(links),
            app_management_refused: self.app_management_refused,
            seat,
            port,
        };
        finding::find(&self.machine, &self.surveyor, &self.programs, beside).await
    }

    fn busy(&self, links: &Links) -> Option<Busy> {
        if self.work.is_some() {
            return Some(Busy::Upgrade);
        }
        let recovers = links.watched.borrow().as_ref().is_some_and(|watched| watched.recovery.acts);
        if recovers {
            return Some(Busy::Recovery);
        }
        brew::at_work(&self.machine).map(|_| Busy::Brew)
    }

    async fn request(&mut self, links: &mut Links, command: Command) {
        let Command { request, events } = command;
        let ending = match request {
            Request::CheckReleases { prerelease } => self.check(links, prerelease).await,
            Request::Upgrade { to, prerelease, downgrade, measure, dry_run } => {
                let planned = self.plan_upgrade(links, to.as_deref(), prerelease, downgrade).await;
                match self.planned(links, planned, dry_run, measure, &events) {
                    Some(ending) => ending,
                    None => return,
                }
            }
            Request::Rollback { to, set_database_aside, dry_run } => {
                let planned = self.plan_rollback(links, to.as_deref(), set_database_aside, dry_run).await;
                match self.planned(links, planned, dry_run, false, &events) {
                    Some(ending) => ending,
                    None => return,
                }
            }
            Request::Pin { version } => self.pin(links, version.as_deref()).await,
            Request::Settings { .. }
            | Request::Apply { .. }
            | Request::Restart { .. }
            | Request::Verify
            | Request::Unload { .. }
            | Request::StopRunner { .. }
            | Request::Recover { .. }
            | Request::Configure { .. }
            | Request::Gateway { .. }
            | Request::PauseAlerts { .. } => {
                tracing::error!("a request that concerns no version came to the upgrades");
                return;
            }
        };
        self.publish(links).await;
        let ending = Ending { simulated: translation::simulated(&self.machine), ..ending };
        let _left = events.send(Event::Result(Box::new(ending))).await;
    }

    /// Asks for releases, and says what there is.
    async fn check(&mut self, links: &Links, prerelease: bool) -> Ending {
        let upgrades = links.configuration.borrow().upgrades.clone();
        self.releases.ask(&self.machine, &upgrades).await;
        let versions = self.versions(links, &self.look(links).await, prerelease || upgrades.prerelease);
        let failure = versions.unreachable.clone();
        let outcome = if failure.is_some() { protocol::Outcome::Failed } else { protocol::Outcome::Planned };
        Ending { versions: Some(versions), failure, ..Ending::new(outcome) }
    }

    async fn plan_upgrade(
        &mut self,
        links: &Links,
        to: Option<&str>,
        prerelease: bool,
        downgrade: bool,
    ) -> Result<(Plan, Vec<String>), Words> {
        self.may_begin()?;
        let upgrades = links.configuration.borrow().upgrades.clone();
        let found = self.find(links).await;
        let which = releases::Which::of(to, prerelease || upgrades.prerelease)?;
        let (wanted, notes) = self.releases.wanted(&self.machine, &upgrades, &found, which).await;
        let planned =
            plan(&found, &wanted, &self.ask_of(&upgrades, downgrade, false)).map_err(|refusal| refusal.words());
        planned.map(|plan| (plan, notes))
    }

    async fn plan_rollback(
        &mut self,
        links: &Links,
        to: Option<&str>,
        set_database_aside: bool,
        dry_run: bool,
    ) -> Result<(Plan, Vec<String>), Words> {
        match &self.stuck {
            // A rollback is the way out: what was broken lies beside, for whoever wants to know.
            Some(words) if words.code == JOURNAL_BROKEN && !dry_run => {
                self.set_journal_aside(words)?;
                self.stuck = None;
            }
            Some(words) if words.code == JOURNAL_BROKEN => {}
            Some(words) => return Err(words.clone()),
            None => {}
        }
        let upgrades = links.configuration.borrow().upgrades.clone();
        let found = self.find(links).await;
        let planned = plan_rollback(&found, to, &self.ask_of(&upgrades, true, set_database_aside));
        planned.map(|plan| (plan, vec![])).map_err(|refusal| refusal.words())
    }

    fn may_begin(&self) -> Result<(), Words> {
        match &self.stuck {
            Some(words) => Err(words.clone()),
            None => Ok(()),
        }
    }

    fn set_journal_aside(&self, words: &Words) -> Result<(), Words> {
        let before = Arc::clone(&self.before);
        let name = finding::id(self.machine.clock().now().wall);
        let disk = Disk::new(self.machine.os(), &*before);
        match journal::set_aside(&disk, &journal_path(&self.machine), &name) {
            Ok(path) => {
                tracing::warn!(path = %path.display(), "a broken journal of an upgrade was set aside");
                Ok(())
            }
            Err(fault) => Err(Words::new(
                words.code,
                format!("the broken journal could not be set aside: {fault}; nothing was changed"),
                "see that its folder belongs to you and can be written",
            )),
        }
    }

    fn ask_of(&self, upgrades: &Upgrades, downgrade: bool, set_database_aside: bool) -> Ask {
        let id = finding::id(self.machine.clock().now().wall);
        Ask { id, downgrade, set_database_aside, keep: upgrades.keep }
    }

    /// Begins a plan; what is to be answered at once is returned.
    fn planned(
        &mut self,
        links: &Links,
        planned: Result<(Plan, Vec<String>), Words>,
        dry_run: bool,
        measure: bool,
        events: &mpsc::Sender<Event>,
    ) -> Option<Ending> {
        let (plan, notes) = match planned {
            Ok(planned) => planned,
            Err(words) => return Some(Ending::failed(failure_of(&words))),
        };
        let steps: Vec<String> = plan.steps().map(|step| step.to_string()).collect();
        if dry_run {
            return Some(Ending { steps, notes, ..Ending::new(protocol::Outcome::Planned) });
        }
        let _full = events.try_send(Event::Planned {
            goal: plan.order.goal.word().to_owned(),
            owner: plan.order.owner.clone(),
            steps,
        });
        let before = Arc::clone(&self.before);
        let disk = Disk::new(self.machine.os(), &*before);
        let found = match JournalFile::create(disk, &journal_path(&self.machine), &plan.order) {
            Ok(journal) => journal.into_found(),
            Err(fault) => {
                let message = format!(
                    "the journal of the {} could not be written: {fault}; nothing was changed",
                    plan.order.goal.word()
                );
                return Some(Ending::failed(Failure::new(fault.code(), message, "make room, then try again")));
            }
        };
        let words = Words::new("upgrade", String::new(), String::new());
        let course = Course { order: plan.order, turn: Turn::Finish, deeds: plan.deeds, why: String::new(), words };
        self.begin(links, found, course, Some(events.clone()), measure);
        None
    }

    fn begin(
        &mut self,
        links: &Links,
        found: journal::Found,
        course: Course,
        events: Option<mpsc::Sender<Event>>,
        measure: bool,
    ) {
        let order = course.order.clone();
        let shown = protocol::Upgrade {
            goal: order.goal.word().to_owned(),
            from: order.from.clone(),
            to: order.to.clone(),
            step: String::new(),
            words: String::new(),
            index: 0,
            of: course.deeds.len(),
            done_bytes: None,
            of_bytes: None,
            undoing: (course.turn == Turn::Undo).then(|| course.why.clone()),
        };
        let mut hand = self.hand(links);
        let (machine, before, news) = (self.machine.clone(), Arc::clone(&self.before), self.news.clone());
        let path = journal_path(&self.machine);
        let task = tokio::spawn(async move {
            let before_it = if measure { measured(&hand.life).await } else { None };
            let journal = JournalFile::resume(Disk::new(machine.os(), &*before), &path, found);
            let slack = if machine.simulated().is_some() { SIMULATED_SLACK } else { Duration::ZERO };
            let pace = Pace { clock: machine.clock(), slack };
            let tell = {
                let news = news.clone();
                move |told: News| {
                    let _ending = news.send(Told::News(told));
                }
            };
            let order = Box::new(course.order.clone());
            let end = Box::new(carrying_out::carry_out(&mut hand, pace, journal, course, &tell).await);
            let measured = match before_it {
                Some(before) if end.turn == Some(Turn::Finish) => Some(compared(before, measured(&hand.life).await)),
                Some(_) | None => None,
            };
            let _ending = news.send(Told::Ended { end, order, measured });
        });
        self.work = Some(Work { order, shown, events, task });
    }

    async fn told(&mut self, links: &mut Links, told: Told) {
        match told {
            Told::News(news) => {
                self.news(news);
                self.show(links);
            }
            Told::Ended { end, order, measured } => {
                self.ended(links, *end, &order, measured).await;
                self.publish(links).await;
            }
        }
    }

    fn news(&mut self, news: News) {
        let Some(work) = &mut self.work else { return };
        let event = match news {
            News::Began { index, of, deed } => {
                let words = stablehand_engine::upgrade::deed::Step { deed, order: &work.order }.to_string();
                tracing::info!(deed = deed.name(), %words, "upgrade");
                let (name, index) = (deed.name().to_owned(), index + 1);
                work.shown.step.clone_from(&name);
                work.shown.words.clone_from(&words);
                (work.shown.index, work.shown.of) = (index, of);
                (work.shown.done_bytes, work.shown.of_bytes) = (None, None);
                Event::StepBegan(protocol::StepProgress { index, of, name, words, attempt: 1 })
            }
            News::Bytes { done_bytes, of_bytes } => {
                (work.shown.done_bytes, work.shown.of_bytes) = (Some(done_bytes), of_bytes);
                Event::Bytes { done_bytes, of_bytes }
            }
            News::Waiting(why) => {
                Event::StepRetrying { index: work.shown.index, failure: Failure::new("waiting", why, "") }
            }
            News::Done { index, note } => Event::StepDone { index: index + 1, note },
            News::Turned { failure, deeds } => {
                work.shown.undoing = Some(failure.message.clone());
                let step = |deed| stablehand_engine::upgrade::deed::Step { deed, order: &work.order }.to_string();
                Event::TurnedBack { failure: crate::failure_of(&failure), steps: deeds.into_iter().map(step).collect() }
            }
        };
        if let Some(events) = &work.events {
            // Whoever does not read gets the end all the same.
            let _full = events.try_send(event);
        }
    }

    async fn ended(&mut self, links: &Links, end: End, order: &Order, measured: Option<protocol::Measured>) {
        let Some(work) = self.work.take() else { return };
        let _over = work.task.await;
        self.hand_back(links).await;
        let app_management = |failure: &StepFailure| failure.code == "app-management";
        self.app_management_refused |= end.failure.as_ref().is_some_and(app_management);
        let (word, words) = words_of(&end, order);
        if end.turn.is_none() {
            self.tried_at = Some(self.machine.clock().awake());
            self.stuck = Some(Words::new("upgrade-halted", words.message.clone(), words.hint.clone()));
        }
        let committed = end.turn == Some(Turn::Finish);
        match order.goal {
            Goal::Upgrade => self.releases.tried(&self.machine, &order.to, committed),
            Goal::Rollback => {}
        }
        let failure = (!committed).then(|| Failure::new(words.code, words.message.clone(), words.hint.clone()));
        let now = self.machine.clock().now().wall;
        self.history.note(Entry {
            at: now,
            kind: Kind::Upgrade,
            subject: order.to.clone(),
            words: words.message.clone(),
            detail_json: json!({
                "goal": order.goal.word(), "from": order.from, "to": order.to, "end": word, "code": words.code,
            })
            .to_string(),
        });
        let listens = work.events.as_ref().is_some_and(|events| !events.is_closed());
        if !listens {
            self.tell(links, words.message.clone(), &words.hint).await;
        }
        let mut notes: Vec<String> = end.also.iter().map(|failure| failure.message.clone()).collect();
        notes.extend(measured.as_ref().map(speed_in_words));
        self.last = Some(protocol::UpgradeEnd {
            goal: order.goal.word().to_owned(),
            from: order.from.clone(),
            to: order.to.clone(),
            end: word.to_owned(),
            failure: failure.clone(),
            at: rfc3339(now),
            measured,
        });
        // Whoever asks for the versions after the answer gets those of now.
        self.publish(links).await;
        if let Some(events) = work.events {
            let outcome = if committed { protocol::Outcome::Proven } else { protocol::Outcome::Failed };
            if committed {
                notes.insert(0, words.message);
            }
            let simulated = translation::simulated(&self.machine);
            let ending = Ending { failure, notes, simulated, ..Ending::new(outcome) };
            tokio::spawn(async move {
                let _left = events.send(Event::Result(Box::new(ending))).await;
            });
        }
        if end.turn.is_some() {
            self.remove_journal();
            self.keep_house(links).await;
        }
    }

    async fn pin(&mut self, links: &Links, version: Option<&str>) -> Ending {
        let version = match version.map(releases::version_of).transpose() {
            Ok(version) => version.map(|version| version.to_string()),
            Err(words) => return Ending::failed(failure_of(&words)),
        };
        let version = version.as_deref();
        if let Some(version) = version {
            let place = self.look(links).await;
            let there = place.installed.known().is_some_and(|installed| installed == version)
                || place.kept.iter().any(|kept| kept.version == version);
            let upgrades = links.configuration.borrow().upgrades.clone();
            if !there && let Err(words) = self.releases.exists(&self.machine, &upgrades, version).await {
                return Ending::failed(failure_of(&words));
            }
        }
        match life::configure(&links.commands, "upgrades.pin", version.unwrap_or_default()).await {
            Ok(()) => {
                let step = match version {
                    Some(version) => format!("Ollama stays on {version} until `stablehand pin --off`"),
                    None => "Ollama is pinned to no version any more".to_owned(),
                };
                Ending { steps: vec![step], ..Ending::new(protocol::Outcome::Changed) }
            }
            Err(message) => Ending::failed(Failure::new(
                "pin-not-written",
                format!("{message}; nothing was changed"),
                "see `stablehand status` about the configuration file",
            )),
        }
    }

    async fn look_what_is_due(&mut self, links: &mut Links) {
        let upgrades = links.configuration.borrow().upgrades.clone();
        if self.work.is_some() {
            return;
        }
        let now = self.machine.clock().awake();
        if self.stuck.is_some() && self.tried_at.is_none_or(|at| now.since(at) >= TRY_AGAIN) {
            self.stuck = None;
            let _ending = links.charges.send(Charge::HandOver).await;
            self.take_up(links).await;
            return;
        }
        self.keep_pin(&upgrades);
        if upgrades.check && self.releases.is_due(&self.machine) {
            self.releases.ask(&self.machine, &upgrades).await;
        }
        self.publish(links).await;
        let Some(versions) = links.versions.borrow().clone() else { return };
        let (Some(release), protocol::Known::Is(true), None) = (&versions.latest, &versions.newer, &upgrades.pin)
        else {
            return;
        };
        let installed = match &versions.installed {
            protocol::Known::Is(version) => version.as_str(),
            protocol::Known::Unknown { .. } => "an unknown version",
        };
        let message = format!("Ollama {} is out; {installed} is installed", release.version);
        let alert = Alert::new(AlertKind::NewVersion, message, "stablehand upgrade");
        let _ending = links.notices.send(alert).await;
        let chance = Chance {
            wished: upgrades.quiet && self.stuck.is_none(),
            version: &release.version,
            pin: upgrades.pin.as_deref(),
            taken_back: self.releases.taken_back(),
            nobody_waits: nobody_waits(links),
        };
        if chance.is_taken() {
            let planned = self.plan_upgrade(links, None, upgrades.prerelease, false).await;
            let (nobody, _closed) = mpsc::channel(1);
            if let Some(ending) = self.planned(links, planned, false, false, &nobody) {
                let why = ending.failure.map_or_else(String::new, |failure| failure.message);
                tracing::info!(%why, "no upgrade by itself");
            }
        }
    }

    /// What the built-in updater has staged would leave a pinned version at the next login.
    fn keep_pin(&self, upgrades: &Upgrades) {
        let staged = finding::staged(&self.machine);
        let before = Arc::clone(&self.before);
        let exchange = Exchange::new(&self.machine, Disk::new(self.machine.os(), &*before));
        for path in stablehand_engine::upgrade::kept::against_pin(upgrades.pin.as_deref(), &staged) {
            match exchange.remove(path) {
                Ok(()) => tracing::info!(path = %path.display(), "a staged update was removed: Ollama is pinned"),
                Err(fault) => tracing::warn!(%fault, "a staged update stays, although Ollama is pinned"),
            }
        }
    }

    fn real(&self, span: Duration) -> Duration {
        self.machine.clock().real_span(span).max(Duration::from_secs(5))
    }
}

fn nothing_seen() -> stablehand_engine::upgrade::resume::Seen {
    use stablehand_engine::upgrade::database::{Sight, Use};
    let unknown = || Presence::Unknown("it was not looked at".to_owned());
    stablehand_engine::upgrade::resume::Seen {
        place: unknown(),
        old: unknown(),
        new: unknown(),
        busy: None,
        database: Sight {
            used: Use::Unknown("it was not looked at".to_owned()),
            before: Known::unknown("it was not looked at"),
            now: Known::unknown("it was not looked at"),
        },
    }
}

/// Whether it is known that no request is worked on or waits.
fn nobody_waits(links: &Links) -> bool {
    links.watched.borrow().as_ref().is_some_and(|watched| {
        let idle = |runner: &protocol::WatchedRunner| matches!(runner.slots_busy, protocol::Known::Is(0));
        watched.runners.iter().all(idle) && matches!(watched.queue.at_most, protocol::Known::Is(0))
    })
}

/// In a simulated machine a file can order the daemon's death at a record of the journal, so that a test can cut an
/// upgrade off anywhere: `7` before the seventh record is written, `7+` at the first change of the disk after it.
fn deadly(machine: &Machine) -> Before {
    let Some(world) = machine.simulated() else { return Arc::new(|_what, _path| Ok(())) };
    let order = world.join("upgrade-dies-at");
    let records = AtomicU64::new(0);
    Arc::new(move |what, path: &Path| {
        let Ok(text) = std::fs::read_to_string(&order) else { return Ok(()) };
        let (number, after) = match text.trim().strip_suffix('+') {
            Some(number) => (number, true),
            None => (text.trim(), false),
        };
        let is_record = matches!(what, "write" | "remove")
            && path.file_name().is_some_and(|name| name == "journal" || name == "journal.new");
        let seen = records.load(Ordering::Relaxed);
        if is_record {
            records.fetch_add(1, Ordering::Relaxed);
        }
        let dies = number.parse().is_ok_and(|at: u64| if after { seen >= at } else { is_record && seen + 1 == at });
        if dies {
            stablehand_platform::signal::kill_this_process();
        }
        Ok(())
    })
}
