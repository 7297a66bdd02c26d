//! `stablehand demo`: the simulated machine. The simulator is a program of its own, `stablehand-sim`, that lies beside
//! this one; the verbs here hand their arguments to it.

use crate::arguments::DemoVerb;
use crate::verbs::{Voice, aside, told_to_end};
use stablehand_protocol::Failure;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{ExitCode, Stdio};
use std::time::Duration;
use tokio::process::{Child, Command};

/// How long the demo's daemon may take until its socket answers.
const DAEMON_START: Duration = Duration::from_secs(20);

/// How long the picture may take to put the terminal in order.
const PICTURE_END: Duration = Duration::from_secs(1);

/// What happens on the machine of the whole demo, each so long after what came before it.
const STORY: [(Duration, &[&str]); 2] = [
    (Duration::from_secs(2), &["work-steady", "--model", "gemma4:26b"]),
    (Duration::from_secs(60), &["runner-stuck", "--model", "gemma4:26b"]),
];

/// Runs a demo verb, or the whole demo.
pub async fn run(voice: Voice, verb: Option<DemoVerb>) -> Result<ExitCode, Failure> {
    match verb {
        Some(verb) => {
            let code = simulator(&beside_us("stablehand-sim")?, &arguments(voice, verb)?).await?;
            Ok(ExitCode::from(u8::try_from(code).unwrap_or(1)))
        }
        None => whole(voice).await,
    }
}

fn arguments(voice: Voice, verb: DemoVerb) -> Result<Vec<OsString>, Failure> {
    let mut arguments: Vec<OsString> = Vec::new();
    if voice.json {
        arguments.push("--json".into());
    }
    match verb {
        DemoVerb::Start { dir, os, ollama, speed, owner, cask } => {
            arguments.extend(["start".into(), "--dir".into(), dir.into()]);
            let speed = speed.map(|speed| speed.to_string());
            for (flag, value) in [("--os", os), ("--ollama", ollama), ("--speed", speed), ("--owner", owner)] {
                if let Some(value) = value {
                    arguments.extend([flag.into(), value.into()]);
                }
            }
            arguments.extend(cask.then(|| "--cask".into()));
        }
        DemoVerb::Stop { dir } => arguments.extend(["stop".into(), "--dir".into(), dir.into()]),
        DemoVerb::Fault { name, dir, model, seconds, times } => {
            arguments.push("fault".into());
            match (&name, dir) {
                (_, Some(dir)) => arguments.extend(["--dir".into(), dir.into()]),
                (None, None) => {}
                (Some(_), None) => {
                    return Err(which_machine("stablehand demo fault session-changed-by-hand --dir /tmp/world"));
                }
            }
            arguments.extend(name.map(OsString::from));
            let number = |number: Option<u64>| number.map(|number| number.to_string());
            for (flag, value) in [("--model", model), ("--seconds", number(seconds)), ("--times", number(times))] {
                if let Some(value) = value {
                    arguments.extend([flag.into(), value.into()]);
                }
            }
        }
        DemoVerb::Release { dir, bad, megabytes, version } => {
            arguments.push("release".into());
            match (&version, dir) {
                (_, Some(dir)) => arguments.extend(["--dir".into(), dir.into()]),
                (None, None) => {}
                (Some(version), None) => {
                    return Err(which_machine(&format!("stablehand demo release {version} --dir /tmp/world")));
                }
            }
            if let Some(bad) = bad {
                arguments.push("--bad".into());
                arguments.extend((!bad.is_empty()).then(|| bad.into()));
            }
            if let Some(megabytes) = megabytes {
                arguments.extend(["--megabytes".into(), megabytes.to_string().into()]);
            }
            arguments.extend(version.map(OsString::from));
        }
        DemoVerb::Sleep { seconds, dir } => {
            arguments.extend(["sleep".into(), "--dir".into(), dir.into(), seconds.to_string().into()]);
        }
    }
    Ok(arguments)
}

fn which_machine(example: &str) -> Failure {
    Failure::new(
        "usage",
        "which simulated machine? Neither --dir nor STABLEHAND_WORLD names one; nothing was changed",
        format!("for example: {example}"),
    )
}

async fn simulator(program: &Path, arguments: &[OsString]) -> Result<i32, Failure> {
    status_of(program, Command::new(program).args(arguments)).await
}

/// The whole demo has its own picture; with `--json`, stdout is for that alone.
async fn simulator_aside(program: &Path, arguments: &[OsString]) -> Result<i32, Failure> {
    status_of(program, Command::new(program).args(arguments).stdout(Stdio::null())).await
}

async fn status_of(program: &Path, command: &mut Command) -> Result<i32, Failure> {
    let status = command.status().await.map_err(|error| no_simulator(program, &error))?;
    Ok(status.code().unwrap_or(1))
}

fn beside_us(name: &str) -> Result<PathBuf, Failure> {
    let us = std::env::current_exe()
        .and_then(std::fs::canonicalize)
        .map_err(|error| Failure::new("no-own-path", format!("this program cannot tell where it lies: {error}"), ""))?;
    Ok(us.with_file_name(name))
}

fn no_simulator(program: &Path, error: &std::io::Error) -> Failure {
    Failure::new(
        "no-simulator",
        format!("{} cannot be started: {error}; nothing was changed", program.display()),
        "stablehand-sim is installed beside stablehand; build it with `cargo build -p stablehand-simulator`",
    )
}

/// Makes a machine, runs the daemon on it, shows its state until Ctrl-C, and takes all of it away again.
async fn whole(voice: Voice) -> Result<ExitCode, Failure> {
    // Looked up once: the programs may be built anew while the demo runs.
    let (stablehand, stablehand_sim) = (beside_us("stablehand")?, beside_us("stablehand-sim")?);
    let folder = tempfile::Builder::new().prefix("stablehand-demo-").tempdir().map_err(|error| {
        Failure::new("no-temporary-folder", format!("no folder for the demo can be made: {error}"), "see TMPDIR")
    })?;
    let world = folder.path().join("world");
    let dir = || -> Vec<OsString> { vec!["--dir".into(), world.clone().into()] };
    aside("SIMULATED: this shows a stand-in Ollama on a simulated Mac, not your machine. Ctrl-C ends it.\n");
    let started = simulator_aside(&stablehand_sim, &[vec!["start".into()], dir()].concat()).await?;
    if started != 0 {
        return Ok(ExitCode::from(u8::try_from(started).unwrap_or(1)));
    }
    let shown = show(voice, &stablehand, &stablehand_sim, &world).await;
    let stopped = simulator_aside(&stablehand_sim, &[vec!["stop".into()], dir()].concat()).await;
    if !matches!(stopped, Ok(0)) {
        // Its processes may still run from this folder.
        let kept = folder.keep();
        return Err(Failure::new(
            "demo-not-stopped",
            format!("the demo could not be ended; its folder was kept: {}", kept.display()),
            format!("stablehand demo stop --dir {}", kept.join("world").display()),
        ));
    }
    shown
}

async fn show(voice: Voice, program: &Path, simulator: &Path, world: &Path) -> Result<ExitCode, Failure> {
    let in_world = |program: &Path, verb: &[&str]| {
        let mut command = Command::new(program);
        command.args(verb).env("STABLEHAND_WORLD", world).kill_on_drop(true);
        command
    };
    let ours = |verb: &[&str]| in_world(program, verb);
    let start = |mut command: Command| -> Result<Child, Failure> {
        command.spawn().map_err(|error| no_simulator(program, &error))
    };
    let mut quiet = ours(&["serve"]);
    quiet.stderr(Stdio::null());
    let mut daemon = start(quiet)?;
    let mut ready = ours(&["status"]);
    ready.stdout(Stdio::null()).stderr(Stdio::null());
    let answers = async {
        loop {
            if ready.status().await.is_ok_and(|status| status.success()) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    tokio::select! {
        () = answers => {}
        ended = daemon.wait() => {
            return Err(Failure::new("demo-daemon", format!("the demo's daemon ended: {ended:?}"), ""));
        }
        () = tokio::time::sleep(DAEMON_START) => {
            return Err(Failure::new("demo-daemon", "the demo's daemon does not answer", ""));
        }
        () = told_to_end() => return Ok(ExitCode::SUCCESS),
    }
    let menu = program.with_file_name("stablehand-tray");
    let _menu = if on_a_desktop() && menu.is_file() {
        let mut menu = in_world(&menu, &["--open"]);
        // Its words would fall into the picture below.
        menu.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Some(start(menu)?)
    } else {
        None
    };
    let story = tokio::spawn(tell(simulator.to_owned(), world.to_owned()));
    let flags: &[&str] = if voice.json { &["status", "--watch", "--json"] } else { &["status", "--watch"] };
    let mut watch = start(ours(flags))?;
    tokio::select! {
        _ = watch.wait() => {}
        // Ctrl-C ends the picture too; whoever signals this program alone does not.
        () = told_to_end() => { let _ = tokio::time::timeout(PICTURE_END, watch.wait()).await; }
    }
    story.abort();
    Ok(ExitCode::SUCCESS)
}

/// What happens on the machine meanwhile: a client works, and after a while its model stops moving.
async fn tell(simulator: PathBuf, world: PathBuf) {
    for (after, event) in STORY {
        tokio::time::sleep(after).await;
        let mut command = Command::new(&simulator);
        command.args(["fault", "--dir"]).arg(&world).args(event);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let _ = command.status().await;
    }
}

/// Whether there is a screen to show the menu on.
fn on_a_desktop() -> bool {
    let is_set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    match std::env::consts::OS {
        "macos" => !is_set("SSH_CONNECTION"),
        _ => is_set("DISPLAY") || is_set("WAYLAND_DISPLAY"),
    }
}
