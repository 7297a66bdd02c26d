//! What `launchctl print`, `list` and `print-disabled` write. The layout is
//! that of macOS 26 and 27: tabs, blocks that repeat keys of the job, and an
//! empty line after most blocks.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::Launchd;
use super::job_plist::KeepAlive;
use super::jobs::{Ending, Job};
use crate::process_table;
use crate::wire::Reply;

/// `launchctl print gui/UID/LABEL`.
pub fn job(state: &Launchd, job: &Job) -> String {
    let plist = &job.plist;
    let running = job.pid.is_some();
    let mut text = String::new();
    let mut line = |indent: usize, content: &str| {
        if content.is_empty() {
            text.push('\n');
        } else {
            let _ = writeln!(text, "{}{content}", "\t".repeat(indent));
        }
    };
    line(0, &format!("gui/{}/{} = {{", state.uid, plist.label));
    line(1, &format!("active count = {}", u8::from(running)));
    line(1, &format!("path = {}", plist.path.display()));
    line(1, "type = LaunchAgent");
    line(1, &format!("state = {}", state_word(job)));
    line(0, "");
    line(1, &format!("program = {}", plist.program));
    line(1, "arguments = {");
    for argument in &plist.arguments {
        line(2, argument);
    }
    line(1, "}");
    line(0, "");
    if let Some(path) = &plist.stdout {
        line(1, &format!("stdout path = {}", path.display()));
    }
    if let Some(path) = &plist.stderr {
        line(1, &format!("stderr path = {}", path.display()));
    }
    line(1, "inherited environment = {");
    for (key, value) in &state.session {
        line(2, &format!("{key} => {value}"));
    }
    line(2, "SSH_AUTH_SOCK => /var/run/com.apple.launchd.q2v8RmL0Xk/Listeners");
    line(1, "}");
    line(0, "");
    line(1, "default environment = {");
    line(2, "PATH => /usr/bin:/bin:/usr/sbin:/sbin");
    line(1, "}");
    line(0, "");
    line(1, "environment = {");
    line(2, "OSLogRateLimit => 64");
    for (key, value) in &plist.environment {
        line(2, &format!("{key} => {value}"));
    }
    line(2, &format!("XPC_SERVICE_NAME => {}", plist.label));
    line(1, "}");
    line(0, "");
    line(1, &format!("domain = gui/{} [100017]", state.uid));
    line(1, "asid = 100017");
    line(1, &format!("minimum runtime = {}", plist.throttle_s));
    line(1, &format!("exit timeout = {}", plist.exit_timeout_s));
    line(1, &format!("runs = {}", job.runs));
    if let Some(pid) = job.pid {
        line(1, &format!("pid = {pid}"));
        line(1, "immediate reason = speculative");
        line(1, "forks = 0");
        line(1, "execs = 1");
        line(1, "initialized = 1");
        line(1, "trampolined = 1");
        line(1, "started suspended = 0");
        line(1, "proxy started suspended = 0");
    }
    match job.ending {
        Ending::Never => line(1, "last exit code = (never exited)"),
        Ending::Code(78) => line(1, "last exit code = 78: EX_CONFIG"),
        Ending::Code(code) => line(1, &format!("last exit code = {code}")),
        Ending::Signal(signal) => {
            line(1, &format!("last terminating signal = {}: {signal}", signal_words(signal)));
        }
    }
    line(0, "");
    if running {
        for (kind, id) in [("resource", 2210), ("jetsam", 2211)] {
            line(1, &format!("{kind} coalition = {{"));
            line(2, &format!("ID = {id}"));
            line(2, &format!("type = {kind}"));
            line(2, "state = active");
            line(2, "active count = 1");
            line(2, &format!("name = {}", plist.label));
            line(1, "}");
            line(0, "");
        }
    }
    let spawn_type = match plist.process_type.as_str() {
        "Interactive" => "interactive (4)",
        "Background" => "background (2)",
        "Adaptive" => "adaptive (6)",
        _ => "daemon (3)",
    };
    line(1, &format!("spawn type = {spawn_type}"));
    line(1, "jetsam priority = 40");
    line(1, "jetsam memory limit (active) = (unlimited)");
    line(1, "jetsam memory limit (inactive) = (unlimited)");
    line(1, "jetsamproperties category = daemon");
    line(1, "jetsam thread limit = 32");
    line(1, "cpumon = default");
    if let Some(seconds) = plist.interval_s {
        line(1, &format!("run interval = {seconds} seconds"));
    }
    line(1, &format!("job state = {}", if running { "running" } else { "exited" }));
    line(1, "sanitizer flags = 0x0");
    line(0, "");
    line(1, &format!("properties = {}", properties(job)));
    line(0, "}");
    text
}

/// `launchctl print gui/UID`.
pub fn domain(state: &Launchd) -> String {
    let mut text = String::new();
    let active = state.jobs.values().filter(|job| job.pid.is_some()).count();
    let _ = writeln!(
        text,
        "gui/{0} = {{\n\ttype = gui\n\thandle = 100017\n\tactive count = {active}\n\tservice count = {1}\n\tactive service count = {active}\n\tcreator = loginwindow[412]\n\tcreator euid = 0\n\tsession = Aqua\n\tsecurity context = {{\n\t\tuid = {0}\n\t\tasid = 100017\n\t}}\n",
        state.uid,
        state.jobs.len(),
    );
    text.push_str("\tenvironment = {\n");
    for (key, value) in &state.session {
        let _ = writeln!(text, "\t\t{key} => {value}");
    }
    text.push_str("\t\tSSH_AUTH_SOCK => /var/run/com.apple.launchd.q2v8RmL0Xk/Listeners\n\t}\n\n");
    text.push_str("\tservices = {\n");
    for (label, job) in &state.jobs {
        let status = match job.ending {
            Ending::Never => "-".to_owned(),
            Ending::Code(_) | Ending::Signal(_) => job.status().to_string(),
        };
        let _ = writeln!(text, "\t\t{:>8} {status:>6} \t{label}", job.pid.unwrap_or(0));
    }
    text.push_str("\t}\n\n\tdisabled services = {\n");
    text.push_str(&disabled_rows(&state.disabled));
    text.push_str("\t}\n\n\tproperties = uncorked | audit check done | bootcache hacks\n}\n");
    text
}

/// `launchctl print-disabled`.
pub fn disabled(labels: &BTreeMap<String, bool>) -> String {
    format!("\n\tdisabled services = {{\n{}\t}}\n", disabled_rows(labels))
}

/// `launchctl list`: process, status, label.
pub fn list(state: &Launchd) -> String {
    let mut text = "PID\tStatus\tLabel\n".to_owned();
    for (label, job) in &state.jobs {
        let pid = job.pid.map_or("-".to_owned(), |pid| pid.to_string());
        let _ = writeln!(text, "{pid}\t{}\t{label}", job.status());
    }
    for gui in process_table::of(&state.world).iter().filter(|process| process.is_gui()) {
        let _ = writeln!(
            text,
            "{0}\t0\tapplication.com.electron.ollama.{1}.{2}",
            gui.pid,
            2_300_000_000_i64 + i64::from(gui.pid),
            2_300_000_006_i64 + i64::from(gui.pid),
        );
    }
    text
}

/// `launchctl list LABEL`.
pub fn list_one(state: &Launchd, label: &str) -> Reply {
    let Some(job) = state.jobs.get(label) else {
        return Reply::failed(113, format!("Could not find service \"{label}\" in domain for port"));
    };
    let mut text = "{\n".to_owned();
    let _ = writeln!(text, "\t\"LimitLoadToSessionType\" = \"Aqua\";");
    let _ = writeln!(text, "\t\"Label\" = \"{label}\";");
    let _ = writeln!(text, "\t\"OnDemand\" = {};", job.plist.keep_alive == KeepAlive::No);
    let _ = writeln!(text, "\t\"LastExitStatus\" = {};", job.status().abs() << 8);
    if let Some(pid) = job.pid {
        let _ = writeln!(text, "\t\"PID\" = {pid};");
    }
    let _ = writeln!(text, "\t\"Program\" = \"{}\";", job.plist.program);
    text.push_str("};\n");
    Reply::said(text)
}

fn disabled_rows(labels: &BTreeMap<String, bool>) -> String {
    labels
        .iter()
        .map(|(label, off)| format!("\t\t\"{label}\" => {}\n", if *off { "disabled" } else { "enabled" }))
        .collect()
}

fn state_word(job: &Job) -> &'static str {
    if job.pid.is_some() {
        "running"
    } else if job.respawning {
        "spawn scheduled"
    } else {
        "not running"
    }
}

fn properties(job: &Job) -> String {
    let mut words = Vec::new();
    if job.plist.keep_alive != KeepAlive::No {
        words.push("keepalive");
    }
    if job.plist.run_at_load {
        words.push("runatload");
    }
    if job.plist.program_is_inferred {
        words.push("inferred program");
    }
    words.join(" | ")
}

fn signal_words(signal: i32) -> &'static str {
    match signal {
        1 => "Hangup",
        2 => "Interrupt",
        3 => "Quit",
        6 => "Abort trap",
        9 => "Killed",
        11 => "Segmentation fault",
        15 => "Terminated",
        _ => "Unknown signal",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::launchd::job_plist::JobPlist;
    use crate::world::clock::ClockFile;
    use crate::world::{MARKER, World};

    fn state() -> (tempfile::TempDir, Launchd) {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(
            dir.path().join(MARKER),
            r#"{"format":1,"os":"macos","user":"sim","home":"/Users/sim","port":1,"ollama":"0.33.0","memory_bytes":1,"gpu_working_set_bytes":1}"#,
        )
        .unwrap();
        ClockFile::starting_now(1.0).write(&dir.path().join("clock.json")).unwrap();
        let state = Launchd {
            world: World::open(dir.path()).unwrap(),
            uid: 501,
            session: BTreeMap::from([("OLLAMA_NUM_PARALLEL".into(), "4".into())]),
            jobs: BTreeMap::new(),
            disabled: BTreeMap::new(),
            serial: 0,
            shutting_down: false,
        };
        (dir, state)
    }

    fn sample() -> Job {
        Job::new(JobPlist {
            label: "a.b".into(),
            path: "/Users/sim/Library/LaunchAgents/a.b.plist".into(),
            program: "/bin/x".into(),
            program_is_inferred: true,
            arguments: vec!["/bin/x".into(), "y".into()],
            environment: BTreeMap::from([("MINE".into(), "1".into())]),
            run_at_load: true,
            keep_alive: KeepAlive::Always,
            throttle_s: 10,
            exit_timeout_s: 5,
            interval_s: None,
            stdout: None,
            stderr: None,
            directory: None,
            process_type: "Standard".into(),
        })
    }

    #[test]
    fn a_running_job_repeats_state_inside_its_blocks() {
        let (_dir, state) = state();
        let mut running = sample();
        running.pid = Some(77);
        running.runs = 1;
        let text = job(&state, &running);
        assert!(text.starts_with("gui/501/a.b = {\n\tactive count = 1\n"));
        assert!(text.contains("\n\tstate = running\n"));
        assert!(text.contains("\n\t\tstate = active\n"));
        assert!(text.contains("\tinherited environment = {\n\t\tOLLAMA_NUM_PARALLEL => 4\n"));
        assert!(text.contains("\n\tpid = 77\n"));
        assert!(text.ends_with("\n\tproperties = keepalive | runatload | inferred program\n}\n"));
    }

    #[test]
    fn a_job_killed_by_a_signal_has_no_exit_code() {
        let (_dir, state) = state();
        let mut killed = sample();
        killed.ending = Ending::Signal(15);
        let text = job(&state, &killed);
        assert!(text.contains("\tlast terminating signal = Terminated: 15\n"));
        assert!(!text.contains("last exit code"));
    }
}
