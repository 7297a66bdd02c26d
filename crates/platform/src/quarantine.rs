//! Reads and removes macOS' quarantine marks of a bundle or a file. What they mean is the engine's
//! ([`stablehand_engine::quarantine`]).
//!
//! Links are never followed. On a Mac marks are read and removed by system calls; in a simulated Mac they are real
//! attributes of the files under the host's prefix, and removed by the world's own `xattr(1)`, which refuses what
//! macOS would refuse.

use crate::applications;
use crate::command::{Invocation, Output, quoted_path, run};
use crate::machine::{Machine, MachineError, Os};
use rustix::fs::{lgetxattr, lremovexattr};
use rustix::io::Errno;
use stablehand_engine::Known;
use stablehand_engine::plan::{Again, StepFailure};
use stablehand_engine::quarantine::{ATTRIBUTE, Found, Mark, Marked};
use stablehand_engine::upgrade::refusal::APP_MANAGEMENT_PAGE;
use std::ffi::OsStr;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A mark is some eighty bytes; no longer value is one.
const VALUE_LIMIT_BYTES: usize = 4096;

/// What the world's `xattr` may take for a whole bundle.
const REMOVAL: Duration = Duration::from_secs(120);

/// "Attribute not found" on macOS (`sys/errno.h`: `ENOATTR`).
const NO_ATTRIBUTE_ON_MACOS: i32 = 93;

/// Reads the mark of a bundle and of everything in it, or of one file. A link in the path's last part is followed
/// once: it names what a person means.
///
/// # Errors
/// A [`StepFailure`] when there is no such path, or nothing on it that a quarantine could be read of.
pub fn look(machine: &Machine, path: &Path) -> Result<Found, StepFailure> {
    if machine.os() != Os::MacOs {
        return Err(failure(
            "no-quarantine",
            "this system has no quarantine: it is a thing of macOS; nothing was looked at".to_owned(),
            String::new(),
        ));
    }
    let path = path.canonicalize().map_err(|error| {
        let shown = std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf());
        let shown = shown.display();
        if error.kind() == ErrorKind::NotFound {
            failure("no-such-path", format!("there is no {shown}"), "check the path".to_owned())
        } else {
            unreadable(format!("{shown} cannot be looked at: {error}"))
        }
    })?;
    machine.allow_write(&path).map_err(|error| outside(&error))?;
    let about =
        fs::metadata(&path).map_err(|error| unreadable(format!("{} cannot be looked at: {error}", path.display())))?;
    let bundle = about.is_dir();
    if bundle && path.extension() != Some(OsStr::new("app")) && !path.join("Contents/Info.plist").is_file() {
        return Err(failure(
            "not-a-bundle",
            format!("{} is a folder and no app; nothing was looked at", path.display()),
            "name an app, or a file in that folder".to_owned(),
        ));
    }
    let own = mark_of(&path);
    let (mut below, mut looked_at) = (Vec::new(), 1);
    if bundle {
        looked_at += look_below(&path, &mut below);
    }
    below.sort_by(|one, other| one.path.cmp(&other.path));
    let translocated = applications::is_translocated(&path);
    Ok(Found { path, bundle, translocated, own, below, looked_at })
}

/// Adds every mark below a folder; how many files, folders and links there are.
fn look_below(folder: &Path, marks: &mut Vec<Marked>) -> usize {
    let mut count = 0;
    let mut folders = vec![folder.to_path_buf()];
    while let Some(folder) = folders.pop() {
        let unread = |reason: String| Marked { path: folder.clone(), mark: Known::Unknown(reason) };
        let entries = match fs::read_dir(&folder) {
            Ok(entries) => entries,
            Err(error) => {
                marks.push(unread(format!("the folder cannot be read: {error}")));
                continue;
            }
        };
        for entry in entries {
            let (path, kind) = match entry.and_then(|entry| Ok((entry.path(), entry.file_type()?))) {
                Ok(seen) => seen,
                Err(error) => {
                    marks.push(unread(format!("not all of the folder can be read: {error}")));
                    break;
                }
            };
            count += 1;
            let mark = match mark_of(&path) {
                Known::Is(None) => None,
                Known::Is(Some(mark)) => Some(Known::Is(mark)),
                Known::Unknown(reason) => Some(Known::Unknown(reason)),
            };
            marks.extend(mark.map(|mark| Marked { path: path.clone(), mark }));
            // A link to a folder is no folder here.
            if kind.is_dir() {
                folders.push(path);
            }
        }
    }
    count
}

fn mark_of(path: &Path) -> Known<Option<Mark>> {
    let mut buffer = [0_u8; VALUE_LIMIT_BYTES];
    match lgetxattr(path, host_name(), buffer.as_mut_slice()) {
        Ok(length) => Mark::parse(&buffer[..length.min(buffer.len())]).map(Some).into(),
        Err(error) if is_missing(error) => Known::Is(None),
        Err(error) => Known::unknown(format!("{ATTRIBUTE} cannot be read: {error}")),
    }
}

/// The attribute's name on the host: Linux gives users' attributes a prefix.
fn host_name() -> String {
    if cfg!(target_os = "macos") { ATTRIBUTE.to_owned() } else { format!("user.{ATTRIBUTE}") }
}

fn is_missing(error: Errno) -> bool {
    if cfg!(target_os = "macos") { error.raw_os_error() == NO_ATTRIBUTE_ON_MACOS } else { error == Errno::NODATA }
}

/// Takes the marks away from everything that [`look`] found one on. [`prove`] tells whether they are gone.
///
/// # Errors
/// A [`StepFailure`] that says how many marks are left, and what keeps them.
pub async fn remove(machine: &Machine, found: &Found) -> Result<(), StepFailure> {
    machine.allow_write(&found.path).map_err(|error| outside(&error))?;
    let refused = if machine.simulated().is_some() {
        refusals(&run(machine, &removal(machine, &found.path)).await?)
    } else {
        by_system_calls(found)
    };
    match refused.first() {
        None => Ok(()),
        Some(refused) => match left(&look(machine, &found.path)?) {
            Some((after, left)) => Err(kept(after, left, Some(refused))),
            // What was refused carried no mark.
            None => Ok(()),
        },
    }
}

/// Reads everything again.
///
/// # Errors
/// A [`StepFailure`] when a mark is left, or one cannot be read.
pub fn prove(machine: &Machine, path: &Path) -> Result<Found, StepFailure> {
    let after = look(machine, path)?;
    match left(&after) {
        Some((after, left)) => Err(kept(after, left, None)),
        None => Ok(after),
    }
}

/// How many marks are left, where there are some.
fn left(after: &Found) -> Option<(&Found, usize)> {
    let left = after.marked() + after.unreadable().len();
    (left > 0).then_some((after, left))
}

fn by_system_calls(found: &Found) -> Vec<Refused> {
    let own = match &found.own {
        Known::Is(None) => None,
        Known::Is(Some(_)) | Known::Unknown(_) => Some(&found.path),
    };
    // Contents before their folder, so that the bundle's own mark, which guards all of it, goes last.
    let paths = found.below.iter().rev().map(|marked| &marked.path).chain(own);
    paths
        .filter_map(|path| match lremovexattr(path, host_name()) {
            Ok(()) => None,
            Err(error) if is_missing(error) => None,
            Err(error) => Some(Refused::of(path, error.raw_os_error())),
        })
        .collect()
}

/// The world's own command; `-r` goes on after an error and passes over what has no mark.
fn removal(machine: &Machine, path: &Path) -> Invocation {
    Invocation::new(machine.at("/usr/bin/xattr")).args(["-d", "-r", ATTRIBUTE]).arg(path).timeout(REMOVAL)
}

/// What kept a mark on a file.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Refused {
    path: PathBuf,
    why: Why,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Why {
    /// `EPERM`: App Management, or an immutable file.
    NotPermitted,
    /// `EACCES`: another owner, or a mode without writing.
    Denied,
    /// `EROFS`.
    ReadOnlyVolume,
    /// Anything else, in the system's words.
    Other(String),
}

impl Refused {
    fn of(path: &Path, code: i32) -> Self {
        let why = match Errno::from_raw_os_error(code) {
            Errno::PERM => Why::NotPermitted,
            Errno::ACCESS => Why::Denied,
            Errno::ROFS => Why::ReadOnlyVolume,
            other => Why::Other(other.to_string()),
        };
        Self { path: path.to_path_buf(), why }
    }
}

/// Reads `xattr: [Errno 1] Operation not permitted: 'FILE'`, a line for each file.
fn refusals(output: &Output) -> Vec<Refused> {
    let line = |line: &str| {
        let (code, words) = line.strip_prefix("xattr: [Errno ")?.split_once("] ")?;
        let path = words.split_once(": '")?.1.strip_suffix('\'')?;
        Some(Refused::of(Path::new(path), code.parse().ok()?))
    };
    let named: Vec<Refused> = output.stderr.lines().filter_map(line).collect();
    if named.is_empty() && !output.succeeded() {
        return vec![Refused { path: PathBuf::new(), why: Why::Other(output.said()) }];
    }
    named
}

fn kept(after: &Found, left: usize, refused: Option<&Refused>) -> StepFailure {
    let path = after.path.display();
    let all = after.looked_at;
    let count = format!("{left} of its {all} files and folders still carry {ATTRIBUTE}");
    match refused.map(|refused| (&refused.path, &refused.why)) {
        Some((_, Why::NotPermitted)) => failure(
            "app-management",
            format!("macOS did not let Stablehand change {path} (App Management); {count}"),
            format!(
                "allow the program you run this in (Terminal, or Stablehand) in System Settings > Privacy & Security > \
                 App Management, start it anew and try again; the page opens with: open '{APP_MANAGEMENT_PAGE}'"
            ),
        ),
        Some((at, Why::Denied)) => failure(
            "quarantine-not-writable",
            format!("{} may not be changed by you; {count}", at.display()),
            format!("make it yours, then try again: sudo chown -R \"$USER\" {}", quoted_path(&after.path)),
        ),
        Some((_, Why::ReadOnlyVolume)) => failure(
            "quarantine-read-only",
            format!("{path} lies on a read-only volume; {count}"),
            "copy the app to the Applications folder with Finder, then clear it there".to_owned(),
        ),
        Some((_, Why::Other(said))) => failure(
            "quarantine-not-cleared",
            format!("{ATTRIBUTE} was not removed from {path} ({said}); {count}"),
            "try again, and look at the first file with `xattr -l`".to_owned(),
        ),
        None => failure(
            "quarantine-came-back",
            format!("nothing refused the removal, and yet {count}: {path}"),
            "quit whatever unpacks or scans the app, then try again".to_owned(),
        ),
    }
}

fn unreadable(message: String) -> StepFailure {
    failure("quarantine-unreadable", message, "make it readable for you, then try again".to_owned())
}

fn outside(error: &MachineError) -> StepFailure {
    failure("outside-world", error.to_string(), "name a path in the simulated machine".to_owned())
}

fn failure(code: &'static str, message: String, hint: String) -> StepFailure {
    StepFailure { code, message, hint, again: Again::Never }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{fake_command, world_folder};
    use rustix::fs::{XattrFlags, setxattr};
    use stablehand_engine::quarantine::Verdict;
    use std::os::unix::fs::symlink;

    const MARK: &str = "0181;6ac3a2c0;Homebrew\\x20Cask;";

    fn set(path: &Path, value: &str) {
        setxattr(path, host_name(), value.as_bytes(), XattrFlags::empty()).unwrap();
    }

    fn app(machine: &Machine) -> PathBuf {
        let bundle = machine.at("/Applications/Ollama.app");
        fs::create_dir_all(bundle.join("Contents/MacOS")).unwrap();
        fs::write(bundle.join("Contents/MacOS/Ollama"), "").unwrap();
        fs::write(bundle.join("Contents/Info.plist"), "").unwrap();
        bundle
    }

    #[test]
    fn a_bundle_is_read_to_its_depth_and_links_are_not_followed() {
        let (_dir, machine) = world_folder("macos");
        let bundle = app(&machine);
        let elsewhere = machine.at("/elsewhere");
        fs::create_dir_all(&elsewhere).unwrap();
        fs::write(elsewhere.join("file"), "").unwrap();
        set(&elsewhere.join("file"), MARK);
        symlink(&elsewhere, bundle.join("Contents/way-out")).unwrap();
        let found = look(&machine, &bundle).unwrap();
        assert_eq!((found.verdict(), found.looked_at), (Verdict::Unmarked, 6));
        let program = bundle.join("Contents/MacOS/Ollama");
        set(&program, MARK);
        let found = look(&machine, &bundle).unwrap();
        assert_eq!(found.verdict(), Verdict::WouldBlock { at: program.canonicalize().unwrap() });
        set(&bundle, "01c1;6ac3a2c0;Safari;");
        let found = look(&machine, &bundle).unwrap();
        assert_eq!((found.verdict(), found.marked()), (Verdict::Approved, 2));
    }

    #[test]
    fn a_value_that_is_no_mark_is_unknown() {
        let (_dir, machine) = world_folder("macos");
        let bundle = app(&machine);
        for value in
            ["nonsense".to_owned(), "0081;0;".to_owned() + &"x".repeat(VALUE_LIMIT_BYTES - 100), "x".repeat(3000)]
        {
            set(&bundle, &value);
            let readable = value.starts_with("0081");
            assert_eq!(matches!(look(&machine, &bundle).unwrap().verdict(), Verdict::Unknown(_)), !readable);
        }
    }

    #[test]
    fn what_is_no_app_is_refused_and_a_plain_file_is_not() {
        let (_dir, machine) = world_folder("macos");
        let bundle = app(&machine);
        let code = |path: &Path| look(&machine, path).unwrap_err().code;
        assert_eq!(code(&machine.at("/Applications/None.app")), "no-such-path");
        assert_eq!(code(&machine.at("/Applications")), "not-a-bundle");
        assert_eq!(code(Path::new("/etc/hosts")), "outside-world");
        let file = look(&machine, &bundle.join("Contents/Info.plist")).unwrap();
        assert_eq!((file.bundle, file.looked_at), (false, 1));
        let link = machine.at("/Applications/Link.app");
        symlink(&bundle, &link).unwrap();
        assert_eq!(look(&machine, &link).unwrap().path, bundle.canonicalize().unwrap());
    }

    #[test]
    fn linux_has_no_quarantine() {
        let (_dir, machine) = world_folder("linux");
        assert_eq!(look(&machine, machine.home()).unwrap_err().code, "no-quarantine");
    }

    #[test]
    fn system_calls_take_every_mark_away_and_nothing_else() {
        let (_dir, machine) = world_folder("macos");
        let bundle = app(&machine);
        for path in [&bundle, &bundle.join("Contents"), &bundle.join("Contents/MacOS/Ollama")] {
            set(path, MARK);
        }
        setxattr(&bundle, "user.com.apple.macl", b"kept", XattrFlags::empty()).unwrap();
        assert_eq!(by_system_calls(&look(&machine, &bundle).unwrap()), []);
        assert_eq!(look(&machine, &bundle).unwrap().verdict(), Verdict::Unmarked);
        assert_eq!(lgetxattr(&bundle, "user.com.apple.macl", &mut [0_u8; 8][..]).unwrap(), 4);
    }

    #[tokio::test]
    async fn each_refusal_has_its_words() {
        let (_dir, machine) = world_folder("macos");
        let bundle = app(&machine);
        set(&bundle, MARK);
        let found = look(&machine, &bundle).unwrap();
        for (said, code, word) in [
            ("xattr: [Errno 1] Operation not permitted: '/A/b'", "app-management", "Privacy_AppBundles"),
            ("xattr: [Errno 13] Permission denied: '/A/b: '\\''c'", "quarantine-not-writable", "chown"),
            ("xattr: [Errno 30] Read-only file system: '/A/b'", "quarantine-read-only", "Finder"),
            ("xattr: [Errno 5] Input/output error: '/A/b'", "quarantine-not-cleared", "xattr -l"),
            ("Abort trap", "quarantine-not-cleared", "xattr -l"),
        ] {
            fake_command(&machine, "usr/bin/xattr", &format!("cat >&2 <<'END'\n{said}\nEND\nexit 1"));
            let failure = remove(&machine, &found).await.unwrap_err();
            assert_eq!(failure.code, code, "{failure:?}");
            assert!(failure.hint.contains(word) && failure.message.contains("1 of its 5"), "{failure:?}");
        }
        fake_command(&machine, "usr/bin/xattr", "exit 0");
        remove(&machine, &found).await.unwrap();
        assert_eq!(prove(&machine, &found.path).unwrap_err().code, "quarantine-came-back");
        by_system_calls(&found);
        assert_eq!(prove(&machine, &found.path).unwrap().verdict(), Verdict::Unmarked);
    }
}
