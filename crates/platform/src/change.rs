//! What install, uninstall and persist do to the machine, as data: shown by `--dry-run`, compared by tests, carried
//! out in order.

use crate::command::{Invocation, quoted_path, run};
use crate::files::{self, LinkTarget};
use crate::launchd::job;
use crate::machine::Machine;
use stablehand_engine::plan::{Again, StepFailure};
use std::fmt;
use std::path::{Path, PathBuf};

/// One change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Make a folder, with those above it, unless it is there.
    Folder {
        /// Where.
        path: PathBuf,
        /// Permission bits of a new one.
        mode: u32,
    },
    /// Write a file.
    Write {
        /// Where.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
        /// What it shall hold.
        contents: Vec<u8>,
        /// What it holds now; `None` when there is no such file.
        before: Option<Vec<u8>>,
    },
    /// Take a file away, if it is there.
    Remove {
        /// Which.
        path: PathBuf,
    },
    /// Move a file to a place where nothing is yet.
    Move {
        /// From here.
        from: PathBuf,
        /// To here.
        to: PathBuf,
    },
    /// Make a symbolic link, or let one lead elsewhere. Anything else that is there stays, and the change fails.
    Link {
        /// Where.
        path: PathBuf,
        /// What it shall lead to.
        leads_to: PathBuf,
        /// What it leads to now; `None` when there is nothing.
        before: Option<PathBuf>,
    },
    /// Take a symbolic link away, unless it has come to lead elsewhere.
    Unlink {
        /// Which.
        path: PathBuf,
        /// What it leads to.
        leads_to: PathBuf,
    },
    /// Run a command, which must end with code 0.
    Run(Invocation),
    /// Load a job into launchd, or start it anew when it is loaded.
    Load {
        /// Its label.
        label: String,
        /// Its plist.
        plist: PathBuf,
    },
    /// Take a job out of launchd, if it is loaded, and wait until launchd has forgotten it.
    Unload {
        /// Its label.
        label: String,
    },
}

impl fmt::Display for Change {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Folder { path, mode } => write!(out, "make the folder {} (mode {mode:04o})", quoted_path(path)),
            Self::Write { path, mode, contents, before } => {
                let verb = if before.is_some() { "change" } else { "write" };
                write!(out, "{verb} {} (mode {mode:04o})", quoted_path(path))?;
                match (std::str::from_utf8(contents), before.as_deref().map(std::str::from_utf8)) {
                    (Ok(new), None) => new.lines().try_for_each(|line| write!(out, "\n    {line}")),
                    (Ok(new), Some(Ok(old))) => write_difference(out, old, new),
                    (Err(_), _) | (Ok(_), Some(Err(_))) => write!(out, "\n    {} bytes, not text", contents.len()),
                }
            }
            Self::Remove { path } => write!(out, "remove {}", quoted_path(path)),
            Self::Move { from, to } => write!(out, "move {} to {}", quoted_path(from), quoted_path(to)),
            Self::Link { path, leads_to, before: None } => {
                write!(out, "link {} to {}", quoted_path(path), quoted_path(leads_to))
            }
            Self::Link { path, leads_to, before: Some(before) } => write!(
                out,
                "let the link {} lead to {} instead of {}",
                quoted_path(path),
                quoted_path(leads_to),
                quoted_path(before)
            ),
            Self::Unlink { path, leads_to } => {
                write!(out, "remove the link {} to {}", quoted_path(path), quoted_path(leads_to))
            }
            Self::Run(invocation) => write!(out, "run {invocation}"),
            Self::Load { label, plist } => write!(out, "load the job {label} from {} into launchd", quoted_path(plist)),
            Self::Unload { label } => write!(out, "take the job {label} out of launchd, if it is loaded"),
        }
    }
}

/// Carries changes out in order and stops at the first that fails.
///
/// # Errors
/// The failure, with how many changes before it stay made.
pub async fn carry_out(machine: &Machine, changes: &[Change]) -> Result<(), StepFailure> {
    for (done, change) in changes.iter().enumerate() {
        carry_out_one(machine, change).await.map_err(|mut failure| {
            if done > 0 {
                let rest = changes.len() - done - 1;
                failure
                    .message
                    .push_str(&format!(" ({done} changes before it stay made, {rest} after it were not tried)"));
            }
            failure
        })?;
    }
    Ok(())
}

async fn carry_out_one(machine: &Machine, change: &Change) -> Result<(), StepFailure> {
    match change {
        Change::Folder { path, mode } => files::make_folder(machine, path, *mode)?,
        Change::Write { path, mode, contents, before } => {
            // Between the plan and now somebody may have edited the file; their edit must not be lost.
            if files::read(path)? != *before {
                return Err(changed_meanwhile(path));
            }
            files::write_atomically(machine, path, contents, *mode)?;
        }
        Change::Remove { path } => {
            files::remove(machine, path)?;
        }
        Change::Move { from, to } => files::move_file(machine, from, to)?,
        Change::Link { path, leads_to, before } => {
            if files::link_target(path)? != before.as_deref().map_or(LinkTarget::Nothing, LinkTarget::to) {
                return Err(changed_meanwhile(path));
            }
            files::link(machine, path, leads_to, before.is_some())?;
        }
        Change::Unlink { path, leads_to } => {
            if files::link_target(path)? != LinkTarget::to(leads_to) {
                return Err(changed_meanwhile(path));
            }
            files::remove(machine, path)?;
        }
        Change::Run(invocation) => {
            let output = run(machine, invocation).await?;
            if !output.succeeded() {
                return Err(StepFailure {
                    code: "command-failed",
                    message: format!("`{invocation}` failed with {}", output.said()),
                    hint: "run the command by hand to see what it says".to_owned(),
                    again: Again::Never,
                });
            }
        }
        Change::Load { label, plist } => {
            job::load(machine, label, plist).await?;
        }
        Change::Unload { label } => {
            job::unload(machine, label).await?;
        }
    }
    Ok(())
}

fn changed_meanwhile(path: &Path) -> StepFailure {
    StepFailure {
        code: "file-changed",
        message: format!("{} was changed by somebody else meanwhile; it was left as it is", path.display()),
        hint: "try again: the new contents are then taken into account".to_owned(),
        again: Again::Soon,
    }
}

/// The lines that go and come, with what both share before and after left out.
fn write_difference(out: &mut fmt::Formatter<'_>, old: &str, new: &str) -> fmt::Result {
    let (old, new): (Vec<_>, Vec<_>) = (old.lines().collect(), new.lines().collect());
    let head = old.iter().zip(&new).take_while(|(a, b)| a == b).count();
    let tail = old[head..].iter().rev().zip(new[head..].iter().rev()).take_while(|(a, b)| a == b).count();
    if old.len() == head && new.len() == head {
        return out.write_str("\n    (unchanged)");
    }
    old[head..old.len() - tail].iter().try_for_each(|line| write!(out, "\n  - {line}"))?;
    new[head..new.len() - tail].iter().try_for_each(|line| write!(out, "\n  + {line}"))
}

/// The first thing that would keep these changes from being carried out, as far as it can be told without changing
/// anything. What needs another's rights (polkit) is not judged.
pub fn in_the_way(machine: &Machine, changes: &[Change]) -> Option<StepFailure> {
    changes.iter().find_map(|change| match change {
        Change::Write { path, .. } => files::could_write(machine, path).err().map(StepFailure::from),
        Change::Folder { .. }
        | Change::Remove { .. }
        | Change::Move { .. }
        | Change::Link { .. }
        | Change::Unlink { .. }
        | Change::Run(_)
        | Change::Load { .. }
        | Change::Unload { .. } => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::world_folder;
    use std::fs;

    #[test]
    fn a_change_of_a_file_shows_the_lines_that_go_and_come() {
        let change = Change::Write {
            path: "/a/b c".into(),
            mode: 0o644,
            contents: b"same\nnew\nend\n".to_vec(),
            before: Some(b"same\nold\nend\n".to_vec()),
        };
        assert_eq!(change.to_string(), "change '/a/b c' (mode 0644)\n  - old\n  + new");
    }

    #[tokio::test]
    async fn a_file_edited_meanwhile_is_not_overwritten() {
        let (_dir, machine) = world_folder("macos");
        let path = machine.home().join("file");
        fs::write(&path, "edited").unwrap();
        let write = Change::Write { path: path.clone(), mode: 0o644, contents: b"new".to_vec(), before: None };
        let failure = carry_out(&machine, &[write]).await.unwrap_err();
        assert_eq!((failure.code, failure.again), ("file-changed", Again::Soon));
        assert_eq!(fs::read(&path).unwrap(), b"edited");
    }

    #[tokio::test]
    async fn the_first_failure_ends_it_and_says_what_stays() {
        let (_dir, machine) = world_folder("macos");
        let path = machine.home().join("file");
        let write = Change::Write { path: path.clone(), mode: 0o600, contents: b"new".to_vec(), before: None };
        let failing = Change::Run(Invocation::new("/bin/sh").args(["-c", "echo no >&2; exit 4"]));
        let failure = carry_out(&machine, &[write, failing, Change::Remove { path: path.clone() }]).await.unwrap_err();
        assert!(failure.message.contains("exit code 4: no"), "{}", failure.message);
        assert!(failure.message.contains("1 changes before it stay made, 1 after it were not tried"));
        assert!(path.exists());
    }
}
