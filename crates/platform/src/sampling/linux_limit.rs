//! The memory limit of a control group (`cgroups(7)`): `memory.max` of version 2, `memory.limit_in_bytes` of version 1.
//! A limit of any group above counts as well, so the tightest on the way up is taken.

use super::sample::MemoryLimit;
use crate::machine::Machine;
use stablehand_engine::Known;
use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Limits seldom change, so the groups are gone through this seldom; what the tightest one uses is read each time.
const WALK_GAP: Duration = Duration::from_secs(10);

/// Version 1 writes "no limit" as the largest number of whole pages; no machine has this much memory.
const NO_LIMIT_BYTES: u64 = 1 << 60;

/// Looks for the tightest limit, with a memory.
#[derive(Debug, Default)]
pub(super) struct LimitSource {
    walked: Option<(Instant, BTreeSet<u32>, Known<Option<Found>>)>,
}

/// A limit and where its group tells what it uses.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Found {
    limit_bytes: u64,
    group: PathBuf,
    usage: PathBuf,
}

/// Where a process's memory is accounted.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Group {
    /// Where the hierarchy is mounted.
    mount: &'static str,
    /// The group's path in it.
    path: String,
    limit_file: &'static str,
    usage_file: &'static str,
}

impl LimitSource {
    /// The tightest limit on us and on these processes.
    pub(super) fn read(&mut self, machine: &Machine, pids: &[u32]) -> Known<Option<MemoryLimit>> {
        let pids: BTreeSet<u32> = pids.iter().copied().collect();
        let kept = self.walked.take().filter(|(when, whose, _)| when.elapsed() < WALK_GAP && *whose == pids);
        let (when, whose, found) = kept.unwrap_or_else(|| {
            let found = tightest(machine, &pids);
            (Instant::now(), pids, found)
        });
        let limit = found.clone().map(|found| {
            found.map(|found| MemoryLimit {
                limit_bytes: found.limit_bytes,
                used_bytes: Known::from(read_number(&found.usage)),
                group: found.group,
            })
        });
        self.walked = Some((when, whose, found));
        limit
    }
}

fn tightest(machine: &Machine, pids: &BTreeSet<u32>) -> Known<Option<Found>> {
    let mut groups = BTreeSet::new();
    for who in std::iter::once("self".to_owned()).chain(pids.iter().map(u32::to_string)) {
        let path = machine.at(&format!("/proc/{who}/cgroup"));
        match fs::read_to_string(&path) {
            Ok(text) => groups.extend(group(&text)),
            // A process that has just ended limits nobody.
            Err(error) if error.kind() == io::ErrorKind::NotFound && who != "self" => {}
            Err(_) if machine.simulated().is_some() => {
                return Known::unknown("the simulated machine plays no control groups");
            }
            Err(error) => return Known::unknown(format!("{} cannot be read: {error}", path.display())),
        }
    }
    if groups.is_empty() {
        return Known::unknown("no control group accounts for memory here");
    }
    let mut found: Option<Found> = None;
    for group in &groups {
        match limit_on_the_way_up(machine, group) {
            Ok(Some(limit)) if found.as_ref().is_none_or(|found| limit.limit_bytes < found.limit_bytes) => {
                found = Some(limit);
            }
            Ok(_) => {}
            Err(reason) => return Known::Unknown(reason),
        }
    }
    Known::Is(found)
}

/// Reads `/proc/PID/cgroup`: `4:memory:/path` where version 1 accounts for memory, else `0::/path`.
fn group(text: &str) -> Option<Group> {
    let lines = text.lines().filter_map(|line| {
        let mut parts = line.splitn(3, ':').skip(1);
        Some((parts.next()?, parts.next()?))
    });
    let mut unified = None;
    for (controllers, path) in lines {
        if controllers.split(',').any(|controller| controller == "memory") {
            return Some(Group {
                mount: "/sys/fs/cgroup/memory",
                path: path.to_owned(),
                limit_file: "memory.limit_in_bytes",
                usage_file: "memory.usage_in_bytes",
            });
        }
        if controllers.is_empty() {
            unified = Some(Group {
                mount: "/sys/fs/cgroup",
                path: path.to_owned(),
                limit_file: "memory.max",
                usage_file: "memory.current",
            });
        }
    }
    unified
}

/// The tightest limit between a group and the top of what is mounted here.
fn limit_on_the_way_up(machine: &Machine, group: &Group) -> Result<Option<Found>, String> {
    let mount = machine.at(group.mount);
    if !mount.is_dir() {
        return Err(format!("{} is not mounted", group.mount));
    }
    // A group outside our own view is shown as `/../…`; only what is mounted here can be read.
    let inside = Path::new(group.path.trim_start_matches('/'));
    let hidden = inside.components().any(|part| part == std::path::Component::ParentDir);
    let lowest = if hidden { mount.clone() } else { mount.join(inside) };
    let mut found: Option<Found> = None;
    for folder in lowest.ancestors().take_while(|folder| folder.starts_with(&mount)) {
        let text = match fs::read_to_string(folder.join(group.limit_file)) {
            Ok(text) => text,
            // The topmost group has no limit; in a container the path on the host leads nowhere.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(format!("{}/{} cannot be read: {error}", folder.display(), group.limit_file)),
        };
        let Some(limit_bytes) = parse_limit(&text)? else { continue };
        if found.as_ref().is_none_or(|found| limit_bytes < found.limit_bytes) {
            found = Some(Found { limit_bytes, group: folder.to_path_buf(), usage: folder.join(group.usage_file) });
        }
    }
    Ok(found)
}

fn parse_limit(text: &str) -> Result<Option<u64>, String> {
    match text.trim() {
        "max" => Ok(None),
        number => match number.parse::<u64>() {
            Ok(bytes) if bytes >= NO_LIMIT_BYTES => Ok(None),
            Ok(bytes) => Ok(Some(bytes)),
            Err(_) => Err(format!("a control group names {number:?} as its memory limit")),
        },
    }
}

fn read_number(path: &Path) -> Result<u64, String> {
    let text = fs::read_to_string(path).map_err(|error| format!("{} cannot be read: {error}", path.display()))?;
    text.trim().parse().map_err(|_| format!("{} holds {:?}", path.display(), text.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::world_folder;

    fn write(machine: &Machine, path: &str, text: &str) {
        let path = machine.at(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    #[test]
    fn the_tightest_limit_on_the_way_up_is_taken_with_what_its_group_uses() {
        let (_dir, machine) = world_folder("linux");
        write(&machine, "/proc/self/cgroup", "0::/user.slice/app.slice/stablehand.service\n");
        write(&machine, "/sys/fs/cgroup/user.slice/app.slice/stablehand.service/memory.max", "max\n");
        write(&machine, "/sys/fs/cgroup/user.slice/memory.max", "8589934592\n");
        write(&machine, "/sys/fs/cgroup/user.slice/memory.current", "1073741824\n");
        write(&machine, "/proc/7/cgroup", "0::/system.slice/ollama.service\n");
        write(&machine, "/sys/fs/cgroup/system.slice/ollama.service/memory.max", "4294967296\n");
        write(&machine, "/sys/fs/cgroup/system.slice/ollama.service/memory.current", "4000000000\n");
        let mut source = LimitSource::default();
        let ours = source.read(&machine, &[]);
        assert_eq!(ours.known().and_then(Option::as_ref).map(|limit| limit.limit_bytes), Some(8_589_934_592));
        let both = source.read(&machine, &[7, 99]);
        let expected = MemoryLimit {
            limit_bytes: 4_294_967_296,
            used_bytes: Known::Is(4_000_000_000),
            group: machine.at("/sys/fs/cgroup/system.slice/ollama.service"),
        };
        assert_eq!(both, Known::Is(Some(expected)));
        // The usage is read anew, the groups are not gone through again.
        write(&machine, "/sys/fs/cgroup/system.slice/ollama.service/memory.current", "4100000000\n");
        let again = source.read(&machine, &[7, 99]).known().cloned().flatten().unwrap();
        assert_eq!(again.used_bytes, Known::Is(4_100_000_000));
    }

    #[test]
    fn version_1_is_read_where_it_accounts_for_memory() {
        let (_dir, machine) = world_folder("linux");
        write(&machine, "/proc/self/cgroup", "9:name=systemd:/\n4:cpuset,memory:/docker/abc\n0::/\n");
        // In a container the group on the host leads nowhere, and the mount itself is the group.
        write(&machine, "/sys/fs/cgroup/memory/memory.limit_in_bytes", "2147483648\n");
        let limit = LimitSource::default().read(&machine, &[]).known().cloned().flatten().unwrap();
        assert_eq!(limit.limit_bytes, 2_147_483_648);
        assert!(limit.used_bytes.known().is_none());
        write(&machine, "/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
        assert_eq!(LimitSource::default().read(&machine, &[]), Known::Is(None));
    }

    #[test]
    fn no_limit_is_known_and_no_answer_is_unknown() {
        let (_dir, machine) = world_folder("linux");
        assert!(LimitSource::default().read(&machine, &[]).known().is_none());
        write(&machine, "/proc/self/cgroup", "0::/../../other.slice\n");
        assert!(LimitSource::default().read(&machine, &[]).known().is_none());
        write(&machine, "/sys/fs/cgroup/cgroup.procs", "");
        assert_eq!(LimitSource::default().read(&machine, &[]), Known::Is(None));
        write(&machine, "/sys/fs/cgroup/memory.max", "lots\n");
        assert!(LimitSource::default().read(&machine, &[]).reason().is_some_and(|reason| reason.contains("lots")));
        write(&machine, "/proc/self/cgroup", "");
        assert!(LimitSource::default().read(&machine, &[]).known().is_none());
    }

    #[test]
    fn a_limit_of_zero_is_a_limit() {
        assert_eq!(parse_limit("0\n"), Ok(Some(0)));
        assert_eq!(parse_limit("max\n"), Ok(None));
    }
}
