//! Whatever cuts an upgrade off, wherever, and however often: at the end a whole app is in place, the old or the new.

use super::disk::{Change, Disk, LATE_CHAT, NEW_CHAT, OLD_CHATS, Thing};
use super::*;
use crate::upgrade::deed::WhenFailed;
use crate::upgrade::journal::{Ending, Record};
use crate::upgrade::resume::{Course, Resume, Turn, resume};
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// What happens to a deed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// The daemon is killed before the deed's first record is on the disk.
    CutBefore,
    /// The power goes at that moment, and the owner starts what is in place before we look.
    DarkBefore,
    /// The daemon is killed; of the deed's changes those of the mask have happened.
    Killed(u32),
    /// The power goes; of the changes not yet synced those of the mask are there afterwards. With [`AT_LOGIN`] in the
    /// mask, the owner has started what is in place before we look.
    PowerLost(u32),
    /// The daemon is killed right after the record that it is done.
    CutAfter,
    /// It fails for good after those changes.
    Fails(u32),
}

/// See [`Fate::PowerLost`].
const AT_LOGIN: u32 = 1 << 31;

/// A computer on which a plan is carried out.
#[derive(Clone)]
struct Machine {
    /// The disk at the beginning.
    before: Rc<Disk>,
    /// What is on the disk for certain.
    synced: Disk,
    /// What may be lost with the power.
    pending: Vec<Change>,
    /// The records after the first.
    records: Vec<Record>,
    order: Rc<Order>,
    /// Whether somebody makes a chat with whatever runs, as soon as it does.
    used: bool,
    /// The chats made so.
    made: BTreeSet<&'static str>,
    /// Whether something was only told, and gone on from.
    told: bool,
}

/// What a run of deeds has come to.
enum Stopped {
    Closed(Ending),
    /// The daemon is gone, or waits for its next start.
    CutOff,
    Turned,
}

impl Machine {
    fn new(plan: &Plan, found: &Found, used: bool) -> Self {
        Self {
            before: Rc::new(Disk::before(plan, found)),
            synced: Disk::before(plan, found),
            pending: vec![],
            records: vec![],
            order: Rc::new(plan.order.clone()),
            used,
            made: BTreeSet::new(),
            told: false,
        }
    }

    fn disk(&self) -> Disk {
        let mut disk = self.synced.clone();
        self.pending.iter().for_each(|change| disk.apply(change));
        disk
    }

    fn sync(&mut self) {
        for change in std::mem::take(&mut self.pending) {
            self.synced.apply(&change);
        }
    }

    /// Carries out one deed to its end.
    fn carry_out(&mut self, deed: Deed) {
        self.records.push(Record::Before(deed));
        self.sync();
        self.pending = self.synced.changes(&self.order, deed);
        self.sync();
        self.records.push(Record::After(deed));
        if matches!(deed, Deed::Start | Deed::StartOld) {
            self.use_it();
        }
    }

    fn use_it(&mut self) {
        if !self.used {
            return;
        }
        let chat = match &self.synced.server {
            Some(version) if *version == self.order.to => NEW_CHAT,
            Some(_) => LATE_CHAT,
            None => return,
        };
        let database = self.order.database.as_ref().and_then(|database| self.synced.names.get_mut(&database.at));
        if let Some(Thing::Database(_, chats)) = database {
            // Nobody writes the same again, so that what is lost stays lost.
            if self.made.insert(chat) {
                chats.insert(chat);
            }
        }
    }

    fn power_lost(&mut self, mask: u32) {
        for (_, change) in std::mem::take(&mut self.pending).iter().enumerate().filter(|(bit, _)| chosen(mask, *bit)) {
            self.synced.apply(change);
        }
        self.synced.server = None;
        // What has been proved is started by its owner at every login; that is no matter of the upgrade any more.
        if mask & AT_LOGIN != 0 || self.records.contains(&Record::After(Deed::Prove)) {
            self.pending = self.synced.start(&self.order);
            self.sync();
            self.use_it();
        }
    }

    /// Carries out one deed as its fate is. `None` when the next deed follows.
    fn suffer(&mut self, deed: Deed, fate: Fate, turn: Turn) -> Option<Stopped> {
        match fate {
            Fate::CutBefore => return Some(Stopped::CutOff),
            Fate::DarkBefore => {
                self.power_lost(AT_LOGIN);
                return Some(Stopped::CutOff);
            }
            Fate::CutAfter => {
                self.carry_out(deed);
                return Some(Stopped::CutOff);
            }
            Fate::Killed(mask) | Fate::PowerLost(mask) | Fate::Fails(mask) => {
                self.records.push(Record::Before(deed));
                let changes = self.disk().changes(&self.order, deed);
                match fate {
                    Fate::PowerLost(_) => {
                        self.pending.extend(changes);
                        self.power_lost(mask);
                        return Some(Stopped::CutOff);
                    }
                    Fate::CutBefore | Fate::DarkBefore | Fate::CutAfter | Fate::Killed(_) | Fate::Fails(_) => {
                        let happened = changes.into_iter().enumerate().filter(|(bit, _)| chosen(mask, *bit));
                        self.pending.extend(happened.map(|(_, change)| change));
                    }
                }
            }
        }
        if let Fate::Killed(_) = fate {
            return Some(Stopped::CutOff);
        }
        match deed.when_failed() {
            WhenFailed::TurnBack => {
                assert_ne!(turn, Turn::Leave);
                self.records.push(Record::Undoing(format!("{} failed", deed.name())));
                Some(Stopped::Turned)
            }
            WhenFailed::GoOn => {
                self.told = true;
                None
            }
            WhenFailed::Halt => Some(Stopped::CutOff),
        }
    }

    fn carry_out_all(&mut self, deeds: &[Deed], turn: Turn) -> Stopped {
        deeds.iter().for_each(|deed| self.carry_out(*deed));
        self.close(turn)
    }

    fn close(&mut self, turn: Turn) -> Stopped {
        self.records.push(Record::Closed(turn.ending()));
        Stopped::Closed(turn.ending())
    }

    /// What the next start does: its course, unless the journal has ended.
    fn next(&self) -> Option<Course> {
        let opened = Record::Opened(Box::new((*self.order).clone()));
        let records = std::iter::once(opened).chain(self.records.iter().cloned()).collect();
        match resume(&Ok(records), &self.disk().seen(&self.order)) {
            Resume::Nothing => None,
            Resume::Go(course) => Some(*course),
            Resume::Wait(words) => panic!("{words:?} after {:?} on {:?}", self.records, self.disk()),
        }
    }

    fn turn_back_recorded(&mut self, course: &Course) {
        if course.turn == Turn::Undo {
            self.records.push(Record::Undoing(course.why.clone()));
        }
    }

    /// Starts again without a further fault until the journal has ended.
    fn recover(mut self) -> (Self, Ending) {
        for _ in 0..3 {
            let Some(course) = self.next() else {
                let Some(Record::Closed(ending)) = self.records.last() else { panic!("{:?}", self.records) };
                let ending = *ending;
                return (self, ending);
            };
            self.turn_back_recorded(&course);
            self.carry_out_all(&course.deeds, course.turn);
        }
        panic!("it never ends: {:?}", self.records)
    }
}

fn chosen(mask: u32, bit: usize) -> bool {
    mask >> (bit % 32) & 1 == 1
}

/// Tries every fate at every deed, and after each of them again, `faults` deep.
fn explore(machine: &Machine, deeds: &[Deed], turn: Turn, faults: usize, check: &mut impl FnMut(Machine, Ending)) {
    let mut machine = machine.clone();
    for deed in deeds {
        for fate in fates(&machine, *deed) {
            let mut struck = machine.clone();
            match struck.suffer(*deed, fate, turn) {
                Some(Stopped::Closed(ending)) => check(struck, ending),
                Some(Stopped::CutOff | Stopped::Turned) => go_on(struck, faults, check),
                // What was only told: the rest follows without a further fault.
                None => {
                    let rest = deeds.iter().skip_while(|other| *other != deed).skip(1).copied().collect::<Vec<_>>();
                    let Stopped::Closed(ending) = struck.carry_out_all(&rest, turn) else { panic!() };
                    check(struck, ending);
                }
            }
        }
        machine.carry_out(*deed);
    }
    // Before the last record.
    go_on(machine.clone(), faults, check);
    let Stopped::Closed(ending) = machine.close(turn) else { panic!() };
    check(machine, ending);
}

fn go_on(mut machine: Machine, faults: usize, check: &mut impl FnMut(Machine, Ending)) {
    if faults == 0 {
        let (machine, ending) = machine.recover();
        return check(machine, ending);
    }
    if let Some(course) = machine.next() {
        machine.turn_back_recorded(&course);
        explore(&machine, &course.deeds, course.turn, faults - 1, check);
    }
}

/// Every fate of a deed with few changes; with many, every beginning and every single loss of them.
fn fates(machine: &Machine, deed: Deed) -> Vec<Fate> {
    let changes = machine.disk().changes(&machine.order, deed).len();
    let all = (1_u32 << changes) - 1;
    let masks: BTreeSet<u32> = if changes <= 3 {
        (0..=all).collect()
    } else {
        let beginnings = (0..=changes).map(|count| (1_u32 << count) - 1);
        beginnings.chain((0..changes).map(|lost| all & !(1 << lost))).collect()
    };
    let masks = masks.into_iter().flat_map(|mask| {
        [Fate::Killed(mask), Fate::PowerLost(mask), Fate::PowerLost(mask | AT_LOGIN), Fate::Fails(mask)]
    });
    [Fate::CutBefore, Fate::DarkBefore, Fate::CutAfter].into_iter().chain(masks).collect()
}

/// What has to hold at the end, whatever has happened.
fn check(name: &str, machine: &Machine, ending: Ending) {
    let disk = machine.disk();
    let order = &machine.order;
    let story = || format!("{name}: {ending:?} after {:?} on {disk:?}", machine.records);
    let slots = &order.slots;
    let version = match ending {
        Ending::Committed => &order.to,
        Ending::Undone => &order.from,
        Ending::Left => panic!("{}", story()),
    };
    assert_eq!(disk.version_in(&slots.place), Some(version.as_str()), "{}", story());
    match order.switch {
        Switch::Renames | Switch::Cask { .. } if !machine.told => {
            assert_eq!(disk.offered(), [slots.place.as_path()], "{}", story());
        }
        Switch::Renames | Switch::Cask { .. } | Switch::Link | Switch::Formula => {}
    }
    for chat in OLD_CHATS.iter().chain(&machine.made).filter(|_| order.database.is_some()) {
        assert!(disk.chats().contains(chat), "the chat {chat:?} is lost; {}", story());
    }
    if machine.told {
        return;
    }
    let ran = |deed| machine.records.contains(&Record::Before(deed));
    if ran(Deed::Stop) {
        assert_eq!(disk.server.as_deref(), Some(version.as_str()), "{}", story());
    }
    assert_eq!(left_over(machine, &disk, ending), Vec::<&Path>::new(), "{}", story());
    if let (Ending::Undone, false, Some(database)) = (ending, machine.used, &order.database) {
        assert_eq!(disk.names.get(&database.at), machine.before.names.get(&database.at), "{}", story());
    }
}

/// What lies around that nobody needs.
fn left_over<'a>(machine: &'a Machine, disk: &'a Disk, ending: Ending) -> Vec<&'a Path> {
    let order = &machine.order;
    let linked = matches!(disk.names.get(&order.slots.place), Some(Thing::Link(_)));
    let replaced = |name: &PathBuf| linked && order.replaced.contains(name);
    let new = disk.names.keys().filter(|name| replaced(name) || !machine.before.names.contains_key(*name));
    new.map(|name| name.as_path())
        .filter(|name| {
            let database = order.database.as_ref();
            let kept = [Some(&order.slots.old), database.map(|database| &database.copy)];
            let in_use = disk.names.get(&order.slots.place) == Some(&Thing::Link(name.to_path_buf()));
            let aside = machine.used && name.to_string_lossy().contains("/chats-of-");
            let wanted = ending == Ending::Committed && kept.into_iter().flatten().any(|kept| kept == name);
            !in_use && !aside && !wanted
        })
        .collect()
}

/// Every plan with what it was made from.
fn found_by_name() -> Vec<(&'static str, Plan, Found)> {
    let mut same_form = upgraded(app());
    same_form.database = app().database;
    let found = [
        app(),
        cask(),
        tarball(true),
        tarball(false),
        same_form,
        upgraded(app()),
        upgraded(cask()),
        upgraded(tarball(true)),
    ];
    every_plan().into_iter().zip(found).map(|((name, plan), found)| (name, plan, found)).collect()
}

#[test]
fn an_undisturbed_plan_ends_with_the_new_version_and_nothing_left_over() {
    for (name, plan, found) in found_by_name() {
        let mut machine = Machine::new(&plan, &found, false);
        machine.carry_out_all(&plan.deeds, Turn::Finish);
        check(name, &machine, Ending::Committed);
    }
}

#[test]
fn cut_off_or_failed_at_any_deed_and_once_more_on_the_way_back_a_whole_app_is_in_place() {
    let (mut ends, mut committed) = (0_usize, 0_usize);
    for (name, plan, found) in found_by_name() {
        // Without a database nobody can make a chat.
        for used in [false, true].into_iter().take(1 + usize::from(plan.order.database.is_some())) {
            explore(&Machine::new(&plan, &found, used), &plan.deeds, Turn::Finish, 1, &mut |machine, ending| {
                check(name, &machine, ending);
                ends += 1;
                committed += usize::from(ending == Ending::Committed);
            });
        }
    }
    println!("{ends} ends, {committed} with the new version");
    assert!(committed > 0 && committed < ends, "both ends are reached");
}

#[test]
fn what_undoes_a_deed_undoes_it() {
    for (name, plan, found) in found_by_name() {
        let mut machine = Machine::new(&plan, &found, false);
        for deed in &plan.deeds {
            let before = machine.disk();
            let mut undone = machine.clone();
            undone.carry_out(*deed);
            if !deed.undone_by(&plan.order).is_empty() {
                assert_ne!(
                    outside(&undone.disk(), &plan.order, true),
                    outside(&before, &plan.order, true),
                    "{name}: {deed:?} does nothing"
                );
            }
            deed.undone_by(&plan.order).iter().for_each(|undoing| undone.carry_out(*undoing));
            let mut before = outside(&before, &plan.order, false);
            let mut undone = outside(&undone.disk(), &plan.order, false);
            if *deed == Deed::Brew {
                // The copy beside has become the app in place.
                before.names.remove(&plan.order.slots.old);
                undone.names.remove(&plan.order.slots.old);
            }
            if *deed != Deed::Commit {
                assert_eq!(undone, before, "{name}: {deed:?}");
            }
            machine.carry_out(*deed);
        }
    }
}

/// A disk without the folder of the work, and with the version that a link leads to in its place.
fn outside(disk: &Disk, order: &Order, work: bool) -> Disk {
    let mut disk = disk.clone();
    disk.names.retain(|name, _| work || !name.starts_with(&order.work));
    if let Some(version) = disk.version_in(&order.slots.place).map(str::to_owned) {
        disk.names.insert(order.slots.place.clone(), Thing::Version(version));
    }
    disk
}

fn fate() -> impl Strategy<Value = Option<Fate>> {
    prop_oneof![
        6 => Just(None),
        1 => Just(Some(Fate::CutBefore)),
        1 => Just(Some(Fate::DarkBefore)),
        1 => Just(Some(Fate::CutAfter)),
        1 => any::<u32>().prop_map(|mask| Some(Fate::Killed(mask))),
        1 => any::<u32>().prop_map(|mask| Some(Fate::PowerLost(mask))),
        1 => any::<u32>().prop_map(|mask| Some(Fate::Fails(mask))),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn cut_off_again_and_again_a_whole_app_is_in_place(
        which in 0_usize..8,
        used in any::<bool>(),
        fates in prop::collection::vec(fate(), 0..60),
    ) {
        let (name, plan, found) = found_by_name().swap_remove(which);
        let mut machine = Machine::new(&plan, &found, used);
        let mut fates = fates.into_iter();
        let mut course = Some((plan.deeds.clone(), Turn::Finish));
        while let Some((deeds, turn)) = course.take() {
            let stopped = deeds.iter().find_map(|deed| match fates.next().flatten() {
                Some(fate) => machine.suffer(*deed, fate, turn),
                None => {
                    machine.carry_out(*deed);
                    None
                }
            });
            match stopped {
                Some(Stopped::Closed(_)) => unreachable!(),
                Some(Stopped::CutOff | Stopped::Turned) => {
                    let next = machine.next().expect("the journal is open");
                    machine.turn_back_recorded(&next);
                    course = Some((next.deeds, next.turn));
                }
                None => {
                    machine.close(turn);
                }
            }
        }
        let (machine, ending) = machine.recover();
        check(name, &machine, ending);
    }
}
