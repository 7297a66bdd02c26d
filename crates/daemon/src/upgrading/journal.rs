//! The journal's file: one record a line, on the disk before what it announces begins.
//!
//! A record that could not be written whole is written over by the next one, so that a broken line never stands before
//! a good one. A last line without its end was cut off, and is left out.

use serde::{Deserialize, Serialize};
use stablehand_engine::upgrade::deed::Deed;
use stablehand_engine::upgrade::fault::Fault;
use stablehand_engine::upgrade::journal::{Ending, FORMAT, Record, Unreadable};
use stablehand_engine::upgrade::order::{Aside, DatabaseCopy, Download, Goal, Instead, Order, Slots, Switch};
use stablehand_platform::disk::Disk;
use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// The journal of the work under way.
pub(super) struct JournalFile<'a> {
    disk: Disk<'a>,
    path: PathBuf,
    records: Vec<Record>,
    /// Lines of records that could not be written yet. They come before the next one, so that what has ended never stands
    /// there without its beginning.
    owed: Vec<u8>,
    /// Length of what is good.
    length: u64,
}

impl<'a> JournalFile<'a> {
    /// Writes a new journal with its first record.
    ///
    /// # Errors
    /// A [`Fault`]; there is no journal then.
    pub(super) fn create(disk: Disk<'a>, path: &Path, order: &Order) -> Result<Self, Fault> {
        let first = Record::Opened(Box::new(order.clone()));
        let line = line(&first).map_err(|reason| Fault::File { path: path.to_path_buf(), reason })?;
        let folder = path.parent().unwrap_or(Path::new("/"));
        disk.create_folders(folder)?;
        let beside = unfinished(path);
        disk.remove_tree(&beside)?;
        let written = disk
            .change("write", &beside, || {
                let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&beside)?;
                file.write_all(&line)?;
                file.sync_all()
            })
            .and_then(|()| disk.change("rename", path, || fs::rename(&beside, path)))
            .and_then(|()| disk.sync_folder(folder));
        if let Err(fault) = written {
            // Nothing was begun, and nobody shall find it.
            for rubbish in [beside.as_path(), path] {
                let _in_vain = disk.remove_tree(rubbish);
            }
            return Err(fault);
        }
        Ok(Self { disk, path: path.to_path_buf(), length: line.len() as u64, records: vec![first], owed: vec![] })
    }

    /// Takes a journal up that an earlier daemon left.
    pub(super) fn resume(disk: Disk<'a>, path: &Path, found: Found) -> Self {
        Self { disk, path: path.to_path_buf(), records: found.records, owed: vec![], length: found.length }
    }

    /// What it is so far, to be taken up elsewhere.
    pub(super) fn into_found(self) -> Found {
        Found { records: self.records, length: self.length }
    }

    /// The records so far.
    pub(super) fn records(&self) -> &[Record] {
        &self.records
    }

    /// Adds a record, and has it on the disk before it returns.
    ///
    /// # Errors
    /// A [`Fault`]; the record is not among [`Self::records`] then.
    pub(super) fn append(&mut self, record: Record) -> Result<(), Fault> {
        let line = line(&record).map_err(|reason| Fault::File { path: self.path.clone(), reason })?;
        let lines = [self.owed.as_slice(), &line].concat();
        let (path, length) = (&self.path, self.length);
        self.disk.change("write", path, || {
            let file = OpenOptions::new().write(true).open(path)?;
            file.set_len(length)?;
            file.write_all_at(&lines, length)?;
            file.sync_all()
        })?;
        self.length += lines.len() as u64;
        self.owed.clear();
        self.records.push(record);
        Ok(())
    }

    /// Adds a record that may be lost: what is seen on the disk stands in for it at the next start.
    pub(super) fn note(&mut self, record: Record) {
        if let Err(fault) = self.append(record.clone()) {
            tracing::warn!(%fault, "a record of the upgrade's journal is not written yet");
            self.owed.extend(line(&record).unwrap_or_default());
            self.records.push(record);
        }
    }

    /// Ends it. It stays until the person was told.
    pub(super) fn close(mut self, ending: Ending) {
        self.note(Record::Closed(ending));
    }
}

/// Where a new journal is written until its first record is whole.
pub(super) fn unfinished(path: &Path) -> PathBuf {
    path.with_extension("new")
}

/// What an earlier daemon left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Found {
    /// Its records.
    pub(super) records: Vec<Record>,
    /// How much of the file they are.
    length: u64,
}

/// Reads the journal; none is no records.
///
/// # Errors
/// [`Unreadable`].
pub(super) fn read(path: &Path) -> Result<Found, Unreadable> {
    let bytes = match fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Found { records: vec![], length: 0 }),
        Err(error) => return Err(Unreadable::Broken { record: 1, why: error.to_string() }),
    };
    let length = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
    let lines = bytes[..length].split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    let records: Result<Vec<_>, _> = lines.enumerate().map(|(index, line)| record(index, line)).collect();
    let records = records?;
    if records.is_empty() {
        // The first record is renamed into its place when it is whole.
        return Err(Unreadable::Broken { record: 1, why: "it holds nothing".to_owned() });
    }
    Ok(Found { records, length: length as u64 })
}

/// Takes the journal away.
///
/// # Errors
/// A [`Fault`].
pub(super) fn remove(disk: &Disk<'_>, path: &Path) -> Result<(), Fault> {
    disk.remove_tree(path)?;
    disk.sync_folder(path.parent().unwrap_or(Path::new("/")))
}

/// Sets a journal that can not be read aside, where a person may look at it.
///
/// # Errors
/// A [`Fault`].
pub(super) fn set_aside(disk: &Disk<'_>, path: &Path, name: &str) -> Result<PathBuf, Fault> {
    let aside = path.with_file_name(format!("journal-set-aside-{name}"));
    disk.change("rename", &aside, || fs::rename(path, &aside))?;
    disk.sync_folder(path.parent().unwrap_or(Path::new("/")))?;
    Ok(aside)
}

fn line(record: &Record) -> Result<Vec<u8>, String> {
    let written = match record {
        Record::Opened(order) => Written::Opened { format: FORMAT, order: Box::new(WrittenOrder::of(order)) },
        Record::Before(deed) => Written::Before { deed: deed.name().to_owned() },
        Record::After(deed) => Written::After { deed: deed.name().to_owned() },
        Record::Undoing(why) => Written::Undoing { why: why.clone() },
        Record::Closed(ending) => Written::Closed { ending: ending.word().to_owned() },
    };
    let mut line = serde_json::to_vec(&written).map_err(|error| error.to_string())?;
    line.push(b'\n');
    Ok(line)
}

fn record(index: usize, line: &[u8]) -> Result<Record, Unreadable> {
    let broken = |why: String| Unreadable::Broken { record: index + 1, why };
    if index == 0
        && let Ok(Form { format: Some(format) }) = serde_json::from_slice(line)
        && format > FORMAT
    {
        return Err(Unreadable::Newer { format });
    }
    let deed = |name: String| Deed::named(&name).ok_or_else(|| broken(format!("there is no deed «{name}»")));
    let written: Written = serde_json::from_slice(line).map_err(|error| broken(error.to_string()))?;
    Ok(match written {
        Written::Opened { format: _, order } => Record::Opened(Box::new(order.read().map_err(broken)?)),
        Written::Before { deed: name } => Record::Before(deed(name)?),
        Written::After { deed: name } => Record::After(deed(name)?),
        Written::Undoing { why } => Record::Undoing(why),
        Written::Closed { ending: word } => {
            let all = [Ending::Committed, Ending::Undone, Ending::Left];
            let ending = all.into_iter().find(|ending| ending.word() == word);
            Record::Closed(ending.ok_or_else(|| broken(format!("nothing ends «{word}»")))?)
        }
    })
}

#[derive(Deserialize)]
struct Form {
    format: Option<u32>,
}

#[derive(Serialize, Deserialize)]
#[serde(tag = "record", rename_all = "kebab-case", deny_unknown_fields)]
enum Written {
    Opened { format: u32, order: Box<WrittenOrder> },
    Before { deed: String },
    After { deed: String },
    Undoing { why: String },
    Closed { ending: String },
}

/// An order as it is written. Its names are the file's, so that a change of the engine's does not make old files
/// unreadable.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenOrder {
    id: String,
    goal: String,
    switch: String,
    token: Option<String>,
    from: String,
    to: String,
    owner: String,
    port: u16,
    polkit: bool,
    work: PathBuf,
    place: PathBuf,
    old: PathBuf,
    new: PathBuf,
    discard: PathBuf,
    downloads: Vec<WrittenDownload>,
    aside: Vec<(PathBuf, PathBuf)>,
    database: Option<WrittenDatabase>,
    remove: Vec<PathBuf>,
    replaced: Vec<PathBuf>,
    pin: Option<String>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenDownload {
    url: String,
    file: PathBuf,
    size_bytes: u64,
    sha256: String,
    unpacked_limit_bytes: u64,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenDatabase {
    at: PathBuf,
    copy: PathBuf,
    aside: PathBuf,
    /// `kept` with [`Self::kept`], `none`, or nothing when the current one stays.
    instead: Option<String>,
    kept: Option<PathBuf>,
}

impl WrittenOrder {
    fn of(order: &Order) -> Self {
        let (switch, token) = match &order.switch {
            Switch::Renames => ("renames", None),
            Switch::Link => ("link", None),
            Switch::Cask { token } => ("cask", Some(token.clone())),
            Switch::Formula => ("formula", None),
        };
        Self {
            id: order.id.clone(),
            goal: order.goal.word().to_owned(),
            switch: switch.to_owned(),
            token,
            from: order.from.clone(),
            to: order.to.clone(),
            owner: order.owner.clone(),
            port: order.port,
            polkit: order.polkit,
            work: order.work.clone(),
            place: order.slots.place.clone(),
            old: order.slots.old.clone(),
            new: order.slots.new.clone(),
            discard: order.slots.discard.clone(),
            downloads: order
                .downloads
                .iter()
                .map(|download| WrittenDownload {
                    url: download.url.clone(),
                    file: download.file.clone(),
                    size_bytes: download.size_bytes,
                    sha256: download.sha256.clone(),
                    unpacked_limit_bytes: download.unpacked_limit_bytes,
                })
                .collect(),
            aside: order.aside.iter().map(|aside| (aside.from.clone(), aside.to.clone())).collect(),
            database: order.database.as_ref().map(|database| {
                let (instead, kept) = match &database.instead {
                    Some(Instead::Kept(kept)) => (Some("kept"), Some(kept.clone())),
                    Some(Instead::None) => (Some("none"), None),
                    None => (None, None),
                };
                WrittenDatabase {
                    at: database.at.clone(),
                    copy: database.copy.clone(),
                    aside: database.aside.clone(),
                    instead: instead.map(str::to_owned),
                    kept,
                }
            }),
            remove: order.remove.clone(),
            replaced: order.replaced.clone(),
            pin: order.pin.clone(),
        }
    }

    fn read(self) -> Result<Order, String> {
        let goal = [Goal::Upgrade, Goal::Rollback].into_iter().find(|goal| goal.word() == self.goal);
        let switch = match (self.switch.as_str(), self.token) {
            ("renames", None) => Switch::Renames,
            ("link", None) => Switch::Link,
            ("cask", Some(token)) => Switch::Cask { token },
            ("formula", None) => Switch::Formula,
            (other, _) => return Err(format!("there is no switch «{other}»")),
        };
        let database = self.database.map(WrittenDatabase::read).transpose()?;
        Ok(Order {
            id: self.id,
            goal: goal.ok_or_else(|| format!("there is no goal «{}»", self.goal))?,
            switch,
            from: self.from,
            to: self.to,
            owner: self.owner,
            port: self.port,
            polkit: self.polkit,
            work: self.work,
            slots: Slots { place: self.place, old: self.old, new: self.new, discard: self.discard },
            downloads: self
                .downloads
                .into_iter()
                .map(|download| Download {
                    url: download.url,
                    file: download.file,
                    size_bytes: download.size_bytes,
                    sha256: download.sha256,
                    unpacked_limit_bytes: download.unpacked_limit_bytes,
                })
                .collect(),
            aside: self.aside.into_iter().map(|(from, to)| Aside { from, to }).collect(),
            database,
            remove: self.remove,
            replaced: self.replaced,
            pin: self.pin,
        })
    }
}

impl WrittenDatabase {
    fn read(self) -> Result<DatabaseCopy, String> {
        let instead = match (self.instead.as_deref(), self.kept) {
            (None, None) => None,
            (Some("none"), None) => Some(Instead::None),
            (Some("kept"), Some(kept)) => Some(Instead::Kept(kept)),
            (other, _) => return Err(format!("nothing is put instead as {other:?}")),
        };
        Ok(DatabaseCopy { at: self.at, copy: self.copy, aside: self.aside, instead })
    }
}

/// An order as text, for another process.
///
/// # Errors
/// Why it can not be written.
pub(super) fn order_text(order: &Order) -> Result<Vec<u8>, String> {
    serde_json::to_vec(&WrittenOrder::of(order)).map_err(|error| error.to_string())
}

/// The order that another process wrote.
///
/// # Errors
/// Why it is none.
pub(super) fn order_of(text: &[u8]) -> Result<Order, String> {
    serde_json::from_slice::<WrittenOrder>(text).map_err(|error| error.to_string())?.read()
}

/// Whether a journal lies there, whatever it says.
pub(super) fn is_there(path: &Path) -> bool {
    File::open(path).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use stablehand_platform::machine::Os;
    use std::io;
    use std::sync::atomic::{AtomicBool, Ordering};

    fn order() -> Order {
        Order {
            id: "20261130T101112345".to_owned(),
            goal: Goal::Rollback,
            switch: Switch::Cask { token: "ollama-app".to_owned() },
            from: "0.24.0".to_owned(),
            to: "0.22.1".to_owned(),
            owner: "app".to_owned(),
            port: 11434,
            polkit: false,
            work: "/w/a".into(),
            slots: Slots { place: "/a".into(), old: "/k/o".into(), new: "/k/n".into(), discard: "/w/a/d".into() },
            downloads: vec![Download {
                url: "https://x/y".to_owned(),
                file: "/w/a/y".into(),
                size_bytes: 7,
                sha256: "ab".to_owned(),
                unpacked_limit_bytes: 56,
            }],
            aside: vec![Aside { from: "/u/1".into(), to: "/w/a/aside/0".into() }],
            database: Some(DatabaseCopy {
                at: "/d".into(),
                copy: "/k/d".into(),
                aside: "/k/e".into(),
                instead: Some(Instead::Kept("/k/f".into())),
            }),
            remove: vec!["/k/old".into()],
            replaced: vec![],
            pin: Some("0.22.1".to_owned()),
        }
    }

    #[test]
    fn every_record_reads_as_it_was_written() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("upgrades/journal");
        let disk = Disk::new(Os::MacOs, &|_, _| Ok(()));
        let mut journal = JournalFile::create(disk, &path, &order()).unwrap();
        for record in [
            Record::Before(Deed::CheckSignature),
            Record::After(Deed::CheckSignature),
            Record::Undoing("it is 0.0.0".to_owned()),
            Record::Closed(Ending::Undone),
        ] {
            journal.append(record).unwrap();
        }
        assert_eq!(read(&path).unwrap().records, journal.records());
        assert_eq!(journal.records()[0], Record::Opened(Box::new(order())));
    }

    #[test]
    fn a_line_that_was_cut_off_is_left_out_and_written_over() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("journal");
        let disk = Disk::new(Os::MacOs, &|_, _| Ok(()));
        drop(JournalFile::create(disk, &path, &order()).unwrap());
        OpenOptions::new().append(true).open(&path).unwrap().write_all(b"{\"record\":\"bef").unwrap();
        let found = read(&path).unwrap();
        assert_eq!(found.records.len(), 1);
        let mut journal = JournalFile::resume(disk, &path, found);
        journal.append(Record::Before(Deed::Download)).unwrap();
        assert_eq!(read(&path).unwrap().records.last(), Some(&Record::Before(Deed::Download)));
    }

    #[test]
    fn what_could_not_be_written_stands_before_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("journal");
        let full = AtomicBool::new(false);
        let before = |_: &'static str, _: &Path| {
            if full.load(Ordering::Relaxed) { Err(io::Error::from_raw_os_error(28)) } else { Ok(()) }
        };
        let mut journal = JournalFile::create(Disk::new(Os::MacOs, &before), &path, &order()).unwrap();
        full.store(true, Ordering::Relaxed);
        assert_eq!(journal.append(Record::Before(Deed::Download)), Err(Fault::NoSpace(path.clone())));
        journal.note(Record::Undoing("there is no room".to_owned()));
        assert_eq!(journal.records().len(), 2, "what is only noted is remembered");
        full.store(false, Ordering::Relaxed);
        journal.append(Record::Before(Deed::Tidy)).unwrap();
        assert_eq!(read(&path).unwrap().records, journal.records(), "what was owed comes first");
    }

    #[test]
    fn a_newer_journal_and_a_broken_one_are_told_apart() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("journal");
        let unreadable = |text: &str| {
            fs::write(&path, text).unwrap();
            read(&path).unwrap_err()
        };
        assert_eq!(unreadable("{\"record\":\"opened\",\"format\":9,\"plan\":1}\n"), Unreadable::Newer { format: 9 });
        assert!(matches!(unreadable("{\"record\":\"opened\",\"format\":1}\n"), Unreadable::Broken { record: 1, .. }));
        assert!(matches!(unreadable(""), Unreadable::Broken { record: 1, .. }));
        assert_eq!(read(&dir.path().join("none")).unwrap().records, []);
    }
}
