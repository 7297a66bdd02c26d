//! Unit files and their drop-ins, read as `systemd.unit(5)` says.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use crate::world::World;

/// When a unit's process is started again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Restart {
    /// Never.
    No,
    /// After a failure.
    OnFailure,
    /// Always.
    Always,
}

impl Restart {
    /// The word of the setting.
    pub fn word(self) -> &'static str {
        match self {
            Self::No => "no",
            Self::OnFailure => "on-failure",
            Self::Always => "always",
        }
    }
}

/// A unit as its files define it.
#[derive(Clone, Debug)]
pub struct UnitFile {
    /// The unit file.
    pub fragment: PathBuf,
    /// Drop-ins in the order they apply.
    pub drop_ins: Vec<PathBuf>,
    /// Where drop-ins are looked for.
    pub folders: Vec<PathBuf>,
    /// `Description`.
    pub description: String,
    /// Command line of the service.
    pub exec_start: Vec<String>,
    /// `Environment`, in order, last assignment of a name wins.
    pub environment: Vec<(String, String)>,
    /// `EnvironmentFile`, with the mark for an optional file.
    pub environment_files: Vec<(PathBuf, bool)>,
    /// `UnsetEnvironment`: taken away from everything else.
    pub unset: Vec<String>,
    /// When it is started again.
    pub restart: Restart,
    /// How long before that.
    pub restart_delay: Duration,
    /// `User`.
    pub user: String,
    /// `Group`.
    pub group: String,
    /// Targets of `[Install]`.
    pub wanted_by: Vec<String>,
    /// Files and their times when read.
    pub stamps: Vec<(PathBuf, Option<SystemTime>)>,
}

/// Reads the unit `name` from `folder` with its drop-ins.
pub fn read(world: &World, folder: &Path, name: &str) -> Option<UnitFile> {
    let fragment = folder.join(name);
    let text = std::fs::read_to_string(&fragment).ok()?;
    let folders = vec![folder.to_path_buf(), runtime_folder(world, folder)];
    let drop_ins = drop_ins(&folders, name);
    let mut unit = UnitFile {
        fragment: fragment.clone(),
        drop_ins: drop_ins.clone(),
        folders,
        description: name.to_owned(),
        exec_start: Vec::new(),
        environment: Vec::new(),
        environment_files: Vec::new(),
        unset: Vec::new(),
        restart: Restart::No,
        restart_delay: Duration::from_millis(100),
        user: String::new(),
        group: String::new(),
        wanted_by: Vec::new(),
        stamps: std::iter::once(&fragment).chain(&drop_ins).map(|path| (path.clone(), modified(path))).collect(),
    };
    let home = world.home().display().to_string();
    unit.apply(&text, &home);
    for path in &drop_ins {
        if let Ok(text) = std::fs::read_to_string(path) {
            unit.apply(&text, &home);
        }
    }
    Some(unit)
}

/// Where drop-ins lie until the next boot, or the last logout of the user.
pub fn runtime_folder(world: &World, folder: &Path) -> PathBuf {
    if folder == world.path("/etc/systemd/system") {
        return world.path("/run/systemd/system");
    }
    world.path(&format!("/run/user/{}/systemd/user", rustix::process::getuid().as_raw()))
}

/// The drop-ins of a unit, in order of their names, whichever folder they lie in.
pub fn drop_ins(folders: &[PathBuf], name: &str) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = folders
        .iter()
        .flat_map(|folder| std::fs::read_dir(folder.join(format!("{name}.d"))))
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "conf"))
        .collect();
    files.sort_by(|one, other| one.file_name().cmp(&other.file_name()));
    files
}

/// When a file was changed last.
pub fn modified(path: &Path) -> Option<SystemTime> {
    std::fs::metadata(path).and_then(|metadata| metadata.modified()).ok()
}

impl UnitFile {
    /// Whether files changed, came or went since this was read.
    pub fn is_stale(&self, name: &str) -> bool {
        drop_ins(&self.folders, name) != self.drop_ins || self.stamps.iter().any(|(path, time)| modified(path) != *time)
    }

    fn apply(&mut self, text: &str, home: &str) {
        let mut section = String::new();
        let joined = text.replace("\\\n", " ");
        for line in joined.lines() {
            let line = line.trim();
            if line.is_empty() || line.starts_with(['#', ';']) {
                continue;
            }
            if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
                name.clone_into(&mut section);
                continue;
            }
            let Some((key, value)) = line.split_once('=') else {
                continue;
            };
            let value = value.trim().replace("%h", home).replace("%%", "%");
            self.set(&section, key.trim(), &value);
        }
    }

    fn set(&mut self, section: &str, key: &str, value: &str) {
        match (section, key) {
            ("Unit", "Description") => value.clone_into(&mut self.description),
            ("Install", "WantedBy") => {
                self.wanted_by = value.split_whitespace().map(str::to_owned).collect();
            }
            ("Service", "ExecStart") => {
                self.exec_start = split_words(value.trim_start_matches(['-', '@', ':', '+', '!']));
            }
            ("Service", "Environment") if value.is_empty() => self.environment.clear(),
            ("Service", "Environment") => {
                for word in split_words(value) {
                    if let Some((name, value)) = word.split_once('=') {
                        self.environment.retain(|(known, _)| known != name);
                        self.environment.push((name.to_owned(), value.to_owned()));
                    }
                }
            }
            ("Service", "EnvironmentFile") if value.is_empty() => self.environment_files.clear(),
            ("Service", "EnvironmentFile") => {
                let optional = value.starts_with('-');
                let path = value.trim_start_matches('-');
                self.environment_files.push((PathBuf::from(path), optional));
            }
            ("Service", "UnsetEnvironment") if value.is_empty() => self.unset.clear(),
            ("Service", "UnsetEnvironment") => self.unset.extend(split_words(value)),
            ("Service", "Restart") => {
                self.restart = match value {
                    "always" => Restart::Always,
                    "on-failure" | "on-abnormal" | "on-abort" => Restart::OnFailure,
                    _ => Restart::No,
                };
            }
            ("Service", "RestartSec") => {
                if let Some(delay) = time_span(value) {
                    self.restart_delay = delay;
                }
            }
            ("Service", "User") => value.clone_into(&mut self.user),
            ("Service", "Group") => value.clone_into(&mut self.group),
            _ => {}
        }
    }

    /// The variables given to the process: `Environment`, then the files, without those that are unset.
    pub fn variables(&self, world: &World) -> Vec<(String, String)> {
        let mut variables = self.environment.clone();
        for (path, _) in &self.environment_files {
            let path = world.resolve(&path.display().to_string());
            for line in std::fs::read_to_string(path).unwrap_or_default().lines() {
                let line = line.trim();
                if line.starts_with('#') {
                    continue;
                }
                if let Some((name, value)) = line.split_once('=') {
                    let value = value.trim().trim_matches(['"', '\'']);
                    variables.push((name.trim().to_owned(), value.to_owned()));
                }
            }
        }
        variables
            .retain(|(name, value)| !self.unset.iter().any(|gone| gone == name || *gone == format!("{name}={value}")));
        variables
    }
}

/// Splits at spaces, honouring both kinds of quotes.
pub fn split_words(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word = String::new();
    let mut started = false;
    let mut quote = None;
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        match (quote, character) {
            (Some(open), close) if open == close => quote = None,
            (None, '"' | '\'') => {
                quote = Some(character);
                started = true;
            }
            (Some('"') | None, '\\') => {
                word.extend(characters.next());
                started = true;
            }
            (None, space) if space.is_whitespace() => {
                if started {
                    words.push(std::mem::take(&mut word));
                    started = false;
                }
            }
            (Some(_) | None, other) => {
                word.push(other);
                started = true;
            }
        }
    }
    if started {
        words.push(word);
    }
    words
}

fn time_span(text: &str) -> Option<Duration> {
    if let Ok(seconds) = text.parse::<f64>() {
        return Duration::try_from_secs_f64(seconds).ok();
    }
    let at = text.find(|character: char| character.is_alphabetic())?;
    let amount: f64 = text[..at].trim().parse().ok()?;
    let unit = match &text[at..] {
        "ms" => 0.001,
        "s" | "sec" => 1.0,
        "min" | "m" => 60.0,
        "h" => 3600.0,
        _ => return None,
    };
    Duration::try_from_secs_f64(amount * unit).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::world::MARKER;
    use crate::world::clock::ClockFile;

    fn world() -> (tempfile::TempDir, World) {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(
            dir.path().join(MARKER),
            r#"{"format":1,"os":"linux","user":"sim","home":"/home/sim","port":1,"ollama":"0.33.0","memory_bytes":1,"gpu_working_set_bytes":1}"#,
        )
        .unwrap();
        ClockFile::starting_now(1.0).write(&dir.path().join("clock.json")).unwrap();
        let world = World::open(dir.path()).unwrap();
        (dir, world)
    }

    #[test]
    fn words_are_split_as_systemd_does() {
        assert_eq!(split_words("\"A=b c\" D=e 'F=g'"), ["A=b c", "D=e", "F=g"]);
        assert_eq!(split_words("A=\"x y\""), ["A=x y"]);
    }

    #[test]
    fn later_drop_ins_win_and_changes_are_seen() {
        let (dir, world) = world();
        let folder = dir.path().join("units");
        let drops = folder.join("o.service.d");
        std::fs::create_dir_all(&drops).unwrap();
        std::fs::write(
            folder.join("o.service"),
            "[Service]\nExecStart=/bin/o serve\nEnvironment=\"A=1\"\nRestart=always\nRestartSec=3\n",
        )
        .unwrap();
        std::fs::write(drops.join("zz.conf"), "[Service]\nEnvironment=A=3\n").unwrap();
        std::fs::write(drops.join("aa.conf"), "[Service]\nEnvironment=A=2 B=x\n").unwrap();
        let unit = read(&world, &folder, "o.service").unwrap();
        assert_eq!(unit.environment, [("B".to_owned(), "x".to_owned()), ("A".to_owned(), "3".to_owned())]);
        assert_eq!(unit.exec_start, ["/bin/o", "serve"]);
        assert_eq!((unit.restart, unit.restart_delay), (Restart::Always, Duration::from_secs(3)));
        assert!(!unit.is_stale("o.service"));
        let running = runtime_folder(&world, &folder).join("o.service.d");
        std::fs::create_dir_all(&running).unwrap();
        std::fs::write(running.join("zy.conf"), "[Service]\nEnvironment=A=4\n").unwrap();
        assert!(unit.is_stale("o.service"));
        let unit = read(&world, &folder, "o.service").unwrap();
        assert_eq!(unit.environment[1].1, "3", "sorted by name, not by folder");
        std::fs::write(drops.join("zzz.conf"), "").unwrap();
        assert!(unit.is_stale("o.service"));
    }

    #[test]
    fn an_empty_assignment_clears() {
        let (dir, world) = world();
        std::fs::write(
            dir.path().join("o.service"),
            "[Service]\nExecStart=/bin/a\nEnvironment=A=1\nEnvironment=\nEnvironment=B=2\nExecStart=\nExecStart=/bin/b\n",
        )
        .unwrap();
        let unit = read(&world, dir.path(), "o.service").unwrap();
        assert_eq!(unit.environment, [("B".to_owned(), "2".to_owned())]);
        assert_eq!(unit.exec_start, ["/bin/b"]);
    }
}
