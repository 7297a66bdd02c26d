//! Where the threads of a process stand, as text that is kept in a file: what a stall is made of is gone with its process.
//!
//! macOS samples any process of the same user (`sample(1)`, names of functions). Linux tells it in `/proc`: per thread the
//! state, the place in the kernel that it waits at and the number of its system call, as far as the system lets its owner
//! read them; the kernel's stack itself only root may read. Neither holds anything of what the process works on.

use crate::command::{Invocation, run};
use crate::files::{self, write_atomically};
use crate::machine::{Machine, Os};
use crate::processes;
use stablehand_engine::process::Identity;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::time::Duration;

/// For how long macOS samples, in seconds.
const SAMPLE_S: &str = "1";
/// How long that may take with its symbols, in the machine's time: evidence holds a recovery up by no more than a moment.
const SAMPLE_LONGEST: Duration = Duration::from_secs(3);

/// Keeps in this file where the threads of this life of a process stand.
///
/// # Errors
/// Why nothing is known, in words; there is no file then, or a part of one.
pub async fn keep(machine: &Machine, id: Identity, path: &Path) -> Result<(), String> {
    machine.allow_write(path).map_err(|error| error.to_string())?;
    processes::look_at(machine, id).ok_or_else(|| format!("process {} is gone", id.pid))?;
    match machine.os() {
        Os::MacOs => {
            let patience = machine.clock().real_span(SAMPLE_LONGEST);
            let invocation = sample(machine, id.pid, path);
            match tokio::time::timeout(patience, run(machine, &invocation)).await {
                Ok(Ok(said)) if said.succeeded() => Ok(()),
                Ok(Ok(said)) => Err(said.said()),
                Ok(Err(error)) => Err(error.to_string()),
                Err(_) => Err(format!("sample took longer than {} s", SAMPLE_LONGEST.as_secs())),
            }
        }
        Os::Linux => {
            let text = threads(Path::new(&format!("/proc/{}/task", id.pid)))?;
            write_atomically(machine, path, text.as_bytes(), 0o600).map_err(|error: files::FileError| error.to_string())
        }
    }
}

/// `-mayDie`: symbols are read first, since the process may be gone before the end.
fn sample(machine: &Machine, pid: u32, path: &Path) -> Invocation {
    Invocation::new(machine.at("/usr/bin/sample"))
        .args([pid.to_string().as_str(), SAMPLE_S, "-mayDie", "-file"])
        .arg(path)
        .timeout(SAMPLE_LONGEST)
}

/// One line a thread, from a folder like `/proc/PID/task`.
fn threads(folder: &Path) -> Result<String, String> {
    let unreadable = |error: std::io::Error| format!("{} cannot be read: {error}", folder.display());
    let mut tids: Vec<u32> = fs::read_dir(folder)
        .map_err(unreadable)?
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .collect();
    tids.sort_unstable();
    let mut text = String::new();
    for tid in tids {
        let thread = folder.join(tid.to_string());
        let read = |name: &str| fs::read_to_string(thread.join(name)).map(|text| text.trim().to_owned());
        let shown = |name: &str| read(name).unwrap_or_else(|error| format!("unknown ({error})"));
        // Writing to a String cannot fail. Of a system call only the number: the rest are addresses.
        let call = shown("syscall");
        let call = if call.starts_with("unknown") { call.as_str() } else { call.split(' ').next().unwrap_or_default() };
        let _ = writeln!(
            text,
            "thread {tid} ({}): state {}, waits at {}, system call {call}",
            shown("comm"),
            read("stat").ok().and_then(|stat| state(&stat)).unwrap_or("unknown".to_owned()),
            shown("wchan"),
        );
        if let Ok(stack) = read("stack") {
            stack.lines().for_each(|line| {
                let _ = writeln!(text, "    {line}");
            });
        }
    }
    if text.is_empty() { Err(format!("{} names no thread", folder.display())) } else { Ok(text) }
}

/// The letter behind the name, which may hold anything.
fn state(stat: &str) -> Option<String> {
    stat.rsplit_once(')')?.1.split_whitespace().next().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::world_folder;

    #[test]
    fn a_mac_is_asked_with_arguments_alone() {
        let (_dir, machine) = world_folder("macos");
        let asked = sample(&machine, 4711, Path::new("/l/one file.txt"));
        assert!(asked.program.ends_with("usr/bin/sample"));
        assert_eq!(asked.args, ["4711", "1", "-mayDie", "-file", "/l/one file.txt"]);
    }

    #[test]
    fn each_thread_is_a_line_and_what_may_not_be_read_is_said() {
        let folder = tempfile::tempdir().unwrap();
        let put = |name: &str, text: &str| {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        put("12/comm", "llama-server\n");
        put("12/stat", "12 (a) b) D 1 2 3");
        put("12/wchan", "folio_wait_bit_common");
        put("12/syscall", "202 0x7f 0x80 0x0\n");
        put("12/stack", "[<0>] one+0x1/0x2\n[<0>] two+0x1/0x2\n");
        put("13/comm", "worker\n");
        let text = threads(folder.path()).unwrap();
        assert!(
            text.starts_with(
                "thread 12 (llama-server): state D, waits at folio_wait_bit_common, system call 202\n    [<0>] one+"
            ),
            "{text}"
        );
        assert!(text.contains("thread 13 (worker): state unknown, waits at unknown ("), "{text}");
        assert!(threads(&folder.path().join("12")).unwrap_err().contains("names no thread"));
    }

    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn a_process_of_this_machine_is_kept_and_another_life_is_not() {
        let (_dir, machine) = world_folder("linux");
        let napper = crate::testing::Napper::start(&machine, "usr/local/bin/ollama");
        let path = machine.home().join("stacks.txt");
        keep(&machine, napper.id, &path).await.unwrap();
        assert!(fs::read_to_string(&path).unwrap().starts_with(&format!("thread {} (", napper.id.pid)));
        let other = Identity { birth: napper.id.birth + 1, ..napper.id };
        assert!(keep(&machine, other, &path).await.unwrap_err().contains("is gone"));
        assert!(keep(&machine, napper.id, Path::new("/tmp/stacks.txt")).await.is_err(), "outside of the world");
    }
}
