//! The GUI: keeps one `ollama serve` alive with the environment it was itself
//! started with, refuses to quit except by signal, and hands its log over.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::PathBuf;
use std::process::{ExitCode, Stdio};
use std::time::Duration;

use anyhow::{Context, Result};
use rustix::process::Signal;
use tokio::process::{Child, Command};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

use super::{settings, updater};
use crate::faults::Fault;
use crate::launchd::apps::Opening;
use crate::launchd::{Request, SERVICE};
use crate::world::{World, generation, moments, notes, write_whole};
use crate::{process_table, wire};

/// Set where `open -j` starts the app.
pub const HIDDEN: &str = "STABLEHAND_SIM_HIDDEN";

/// How long a dead server stays dead (`app/server/server.go`).
const RESPAWN_DELAY: Duration = Duration::from_secs(1);
/// How long the server may take to end before SIGKILL.
const STOP_GRACE: Duration = Duration::from_secs(5);
/// Logs kept by rotation (`app/logrotate`).
const KEPT_LOGS: u32 = 5;

/// Runs the GUI until a signal ends it.
pub fn run(world: World, arguments: &[String]) -> ExitCode {
    let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else {
        return ExitCode::FAILURE;
    };
    let gui = Gui { version: world.ollama_version(), world };
    match runtime.block_on(gui.live(arguments)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            gui.log("ERROR", &format!("app failed: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

struct Gui {
    world: World,
    version: String,
}

impl Gui {
    async fn live(&self, arguments: &[String]) -> Result<()> {
        let mut quit = self.listen_for_quit()?;
        self.log(
            "INFO",
            &format!(
                "starting Ollama\" app={} version={} args=\"{}",
                self.bundle().display(),
                self.version,
                arguments.join(" ")
            ),
        );
        let first_start = updater::clean_up(&self.world);
        self.end_other_instances().await;
        self.end_recorded_server().await;
        let hidden = first_start
            || std::env::var_os(HIDDEN).is_some()
            || arguments.iter().any(|word| matches!(word.as_str(), "hidden" | "-j" | "--hide"));
        if let Err(error) = settings::prepare(&self.world, &self.version, self.world.ollama_flaw()) {
            self.log("ERROR", &format!("failed to open the database\" error=\"{error:#}"));
        }
        if hidden && self.has_updated_itself(arguments) {
            return Ok(());
        }
        let log = self.open_server_log()?;
        let window = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await?;
        self.log("INFO", &format!("ui listening on {}", window.local_addr()?));

        let mut reaped = false;
        loop {
            let mut server = self.start_server(&log)?;
            let status = tokio::select! {
                status = server.wait() => status?,
                Some(slow) = quit.recv() => return self.quit(server, slow).await,
            };
            self.log("WARN", &format!("ollama exited\" err=\"{status}"));
            if status.code() == Some(1) && !reaped {
                reaped = true;
                self.reap_servers();
            }
            tokio::select! {
                () = self.world.clock.wait(RESPAWN_DELAY) => {}
                Some(_) = quit.recv() => {
                    self.log("INFO", "quitting");
                    return Ok(());
                }
            }
        }
    }

    /// Puts a staged update in place and starts it. True if another instance takes over.
    fn has_updated_itself(&self, arguments: &[String]) -> bool {
        let Some(staged) = updater::staged(&self.world) else {
            return false;
        };
        if arguments.iter().any(|word| word == "--fast-startup") {
            self.log("INFO", "deferring pending update for fast startup");
            return false;
        }
        if !settings::updates_itself(&self.world) {
            self.log("INFO", "auto-update disabled, skipping automatic upgrade at startup");
            return false;
        }
        self.log("INFO", &format!("performing update at startup\" bundle=\"{}", staged.display()));
        let bundle = self.bundle();
        if let Err(error) = updater::put_in_place(&self.world, &bundle, &staged) {
            self.log("INFO", &format!("unable to perform upgrade at startup\" error=\"{error:#}"));
            return false;
        }
        let opening = Opening { bundle, arguments: Vec::new(), environment: Vec::new(), fresh: true };
        if let Err(error) = wire::ask(&self.world, SERVICE, &Request::Open(opening)) {
            self.log("ERROR", &format!("the new version was not launched: {error:#}"));
        }
        true
    }

    /// Signals that quit, as a stream. The value tells whether the quit first
    /// restores another program's settings, which SIGTERM does since 0.33.
    fn listen_for_quit(&self) -> Result<mpsc::Receiver<bool>> {
        let (sender, receiver) = mpsc::channel(4);
        let hand_off = generation(&self.version) >= (0, 33);
        let mut kinds = vec![(SignalKind::terminate(), hand_off), (SignalKind::interrupt(), false)];
        if hand_off {
            kinds.push((SignalKind::user_defined1(), false));
        }
        let dir = self.world.dir.clone();
        for (kind, slow) in kinds {
            let mut stream = signal(kind)?;
            let sender = sender.clone();
            let dir = dir.clone();
            tokio::spawn(async move {
                while stream.recv().await.is_some() {
                    let deaf = World::open(&dir).is_ok_and(|world| notes::is_raised(&world, Fault::GuiIgnoresSigterm));
                    if !deaf && sender.send(slow).await.is_err() {
                        return;
                    }
                }
            });
        }
        Ok(receiver)
    }

    async fn quit(&self, mut server: Child, slow: bool) -> Result<()> {
        self.log("INFO", "quitting");
        if slow && let Some(parameters) = notes::raised(&self.world, Fault::SlowQuit) {
            let seconds = parameters["seconds"].as_u64().unwrap_or(30);
            self.log("INFO", "restoring Claude Desktop profile");
            self.world.clock.wait(Duration::from_secs(seconds)).await;
        }
        if let Some(pid) = server.id() {
            process_table::signal(pid as i32, Signal::INT);
        }
        let grace = self.world.clock.real_for_processes(STOP_GRACE);
        if tokio::time::timeout(grace, server.wait()).await.is_err() {
            self.log("WARN", "ollama did not stop in time, killing it");
            server.kill().await?;
        }
        let _ = std::fs::remove_file(self.pid_file());
        Ok(())
    }

    fn start_server(&self, log: &File) -> Result<Child> {
        let program = self.bundle().join("Contents/Resources/ollama");
        let mut command = Command::new(&program);
        command
            .arg("serve")
            .envs(settings::overrides(&self.world))
            .env_remove(HIDDEN)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log.try_clone()?);
        let server = command.spawn().with_context(|| format!("cannot start {}", program.display()))?;
        if let Some(pid) = server.id() {
            write_whole(&self.pid_file(), pid.to_string().as_bytes())?;
            self.log("INFO", &format!("started ollama server\" pid={pid} path=\"{}", program.display()));
        }
        Ok(server)
    }

    /// A new instance ends the others: SIGTERM up to 0.32, SIGUSR1 since.
    async fn end_other_instances(&self) {
        let signal = if generation(&self.version) >= (0, 33) { Signal::USR1 } else { Signal::TERM };
        let own = std::process::id() as i32;
        for other in process_table::of(&self.world) {
            if other.is_gui() && other.pid != own {
                self.log("INFO", &format!("ending other instance\" pid=\"{}", other.pid));
                process_table::signal(other.pid, signal);
                let limit = self.world.clock.real_for_processes(Duration::from_secs(45));
                process_table::wait_gone(other.pid, limit).await;
            }
        }
    }

    /// Ends the server of an earlier run, as the pid file names it.
    async fn end_recorded_server(&self) {
        let Ok(text) = std::fs::read_to_string(self.pid_file()) else {
            return;
        };
        let Ok(pid) = text.trim().parse::<i32>() else {
            return;
        };
        let recorded =
            process_table::of(&self.world).into_iter().any(|process| process.pid == pid && process.is_serve());
        if recorded {
            self.log("INFO", &format!("ending earlier server\" pid=\"{pid}"));
            process_table::signal(pid, Signal::INT);
            if !process_table::wait_gone(pid, self.world.clock.real_for_processes(STOP_GRACE)).await {
                process_table::signal(pid, Signal::KILL);
            }
        }
        let _ = std::fs::remove_file(self.pid_file());
    }

    /// Ends every other `ollama serve`, whoever started it.
    fn reap_servers(&self) {
        for other in process_table::of(&self.world) {
            if other.is_serve() {
                self.log("INFO", &format!("ending foreign server\" pid=\"{}", other.pid));
                process_table::signal(other.pid, Signal::TERM);
            }
        }
    }

    /// Rotates `server.log` and opens a new one. A log that cannot be written
    /// is lost in silence.
    fn open_server_log(&self) -> Result<File> {
        let folder = self.world.home().join(".ollama/logs");
        std::fs::create_dir_all(&folder)?;
        let numbered = |number: u32| folder.join(format!("server-{number}.log"));
        for number in (1..KEPT_LOGS).rev() {
            let _ = std::fs::rename(numbered(number), numbered(number + 1));
        }
        let current = folder.join("server.log");
        let _ = std::fs::rename(&current, numbered(1));
        let path =
            if notes::is_raised(&self.world, Fault::ConfigLineMissing) { PathBuf::from("/dev/null") } else { current };
        OpenOptions::new()
            .create(true)
            .append(true)
            .open(&path)
            .with_context(|| format!("cannot open {}", path.display()))
    }

    fn bundle(&self) -> PathBuf {
        let executable = std::env::current_exe().unwrap_or_default();
        executable.ancestors().nth(3).map_or_else(PathBuf::new, std::path::Path::to_path_buf)
    }

    fn pid_file(&self) -> PathBuf {
        settings::file(&self.world).with_file_name("ollama.pid")
    }

    fn log(&self, level: &str, message: &str) {
        let path = self.world.home().join(".ollama/logs/app.log");
        let line = format!(
            "time={} level={level} source=app.go:1 msg=\"{message}\"\n",
            moments::slog(self.world.clock.wall_ms())
        );
        if let Some(folder) = path.parent() {
            let _ = std::fs::create_dir_all(folder);
        }
        if let Ok(mut file) = OpenOptions::new().create(true).append(true).open(path) {
            let _ = file.write_all(line.as_bytes());
        }
    }
}
