//! What the running system tells of processes: `/proc` on Linux, `sysinfo` on macOS. Both ways compile everywhere;
//! `cfg!` chooses.

use super::{Details, Row, proc_fs};
use crate::server_variables::is_server_variable;
use stablehand_engine::Known;
use stablehand_engine::process::Identity;
use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};
use sysinfo::{Pid, ProcessRefreshKind, ProcessStatus, ProcessesToUpdate, System, UpdateKind};

const HAS_PROC: bool = cfg!(target_os = "linux");

/// Every process.
pub(super) fn rows() -> Vec<Row> {
    if HAS_PROC {
        let (boot_unix_ms, ticks_per_second) = (boot_unix_ms(), rustix::param::clock_ticks_per_second());
        return proc_fs::pids()
            .into_iter()
            .filter_map(|pid| proc_fs::row(pid, boot_unix_ms, ticks_per_second))
            .collect();
    }
    let system = refreshed(ProcessesToUpdate::All, ProcessRefreshKind::nothing());
    system.map(|system| system.processes().values().map(system_row).collect()).unwrap_or_default()
}

/// One process; `None` when there is none with this pid.
pub(super) fn row(pid: u32) -> Option<Row> {
    if HAS_PROC {
        return proc_fs::row(pid, boot_unix_ms(), rustix::param::clock_ticks_per_second());
    }
    let pid = Pid::from_u32(pid);
    let system = refreshed(ProcessesToUpdate::Some(&[pid]), ProcessRefreshKind::nothing())?;
    system.process(pid).map(system_row)
}

/// Owner, program, arguments and the server's variables of one process.
pub(super) fn details(pid: u32) -> Details {
    if HAS_PROC {
        return proc_fs::details(pid);
    }
    let pid = Pid::from_u32(pid);
    let kind = ProcessRefreshKind::nothing()
        .with_user(UpdateKind::Always)
        .with_exe(UpdateKind::Always)
        .with_cmd(UpdateKind::Always)
        .with_environ(UpdateKind::Always);
    let system = refreshed(ProcessesToUpdate::Some(&[pid]), kind);
    system.as_ref().and_then(|system| system.process(pid)).map_or_else(nothing_told, system_details)
}

/// Real time, in Unix ms.
pub(super) fn real_now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

fn boot_unix_ms() -> i64 {
    let up = since_boot();
    real_now_ms() - (up.tv_sec * 1000 + up.tv_nsec / 1_000_000)
}

#[cfg(target_os = "linux")]
fn since_boot() -> rustix::time::Timespec {
    // Start marks count time asleep as well.
    rustix::time::clock_gettime(rustix::time::ClockId::Boottime)
}

#[cfg(not(target_os = "linux"))]
fn since_boot() -> rustix::time::Timespec {
    rustix::time::clock_gettime(rustix::time::ClockId::Monotonic)
}

fn refreshed(which: ProcessesToUpdate<'_>, kind: ProcessRefreshKind) -> Option<System> {
    let mut system = System::new().ok()?;
    system.refresh_processes_specifics(which, true, kind);
    Some(system)
}

fn system_row(process: &sysinfo::Process) -> Row {
    Row {
        id: Identity { pid: process.pid().as_u32(), birth: process.start_time() },
        parent: process.parent().map(Pid::as_u32),
        name: process.name().to_string_lossy().into_owned(),
        started_real_ms: i64::try_from(process.start_time().saturating_mul(1000)).unwrap_or(i64::MAX),
        ended: matches!(process.status(), ProcessStatus::Zombie | ProcessStatus::Dead),
    }
}

fn system_details(process: &sysinfo::Process) -> Details {
    let owner = process.user_id().map(|uid| **uid);
    let told = |what: &str| format!("macOS does not show the {what} of this process");
    // The kernel leaves arguments and environment away without saying so.
    let argv: Vec<_> = process.cmd().iter().map(|argument| argument.to_string_lossy().into_owned()).collect();
    let variables = process.environ().iter().filter_map(|variable| variable.to_str()?.split_once('='));
    let ours: BTreeMap<_, _> = variables
        .filter(|(name, _)| is_server_variable(name))
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect();
    Details {
        uid: owner.map_or_else(|| Known::unknown(told("owner")), Known::Is),
        // The kernel keeps the path that was handed to exec; a relative one means nothing here.
        executable: match process.exe() {
            Some(path) if path.is_absolute() => Known::Is(path.to_path_buf()),
            Some(_) | None => Known::unknown(told("program")),
        },
        argv: if argv.is_empty() { Known::unknown(told("arguments")) } else { Known::Is(argv) },
        environment: if process.environ().is_empty() { Known::unknown(told("environment")) } else { Known::Is(ours) },
    }
}

fn nothing_told() -> Details {
    const REASON: &str = "the process ended while it was looked at";
    Details {
        uid: Known::unknown(REASON),
        executable: Known::unknown(REASON),
        argv: Known::unknown(REASON),
        environment: Known::unknown(REASON),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ways_see_this_very_process_alike() {
        let pid = Pid::from_u32(std::process::id());
        let kind = ProcessRefreshKind::nothing()
            .with_user(UpdateKind::Always)
            .with_exe(UpdateKind::Always)
            .with_cmd(UpdateKind::Always)
            .with_environ(UpdateKind::Always);
        let system = refreshed(ProcessesToUpdate::Some(&[pid]), kind).unwrap();
        let process = system.process(pid).unwrap();
        let (through_sysinfo, direct) = (system_row(process), row(std::process::id()).unwrap());
        assert_eq!(through_sysinfo.parent, direct.parent);
        assert!((through_sysinfo.started_real_ms - direct.started_real_ms).abs() < 3_000);
        assert!(!direct.ended);
        let (through_sysinfo, direct) = (system_details(process), details(std::process::id()));
        assert_eq!(through_sysinfo.uid, direct.uid);
        assert_eq!(through_sysinfo.executable, direct.executable);
        assert_eq!(through_sysinfo.argv, direct.argv);
    }
}
