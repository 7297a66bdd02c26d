//! Stopping and starting Ollama.app.
//!
//! The app refuses an AppleEvent quit and only hides; SIGTERM to its GUI is what ends it, and it may first restore
//! another program's profile for up to 30 s (`app/cmd/app/app_darwin.go`). Killing `serve` alone is useless: the GUI
//! starts it again with the environment that the GUI was started with. And `open` may exit 0 without starting
//! anything, so a start has succeeded only when a *new* GUI process is there.

use crate::command::{Invocation, Output, run};
use crate::console;
use crate::machine::Machine;
use crate::signal;
use crate::survey::Surveyor;
use stablehand_engine::plan::{Again, StepFailure};
use stablehand_engine::process::{Identity, Role};
use stablehand_engine::setting::Values;
use std::path::Path;
use std::time::Duration;
use tokio::sync::Mutex;
use tokio::time::Instant;

/// How long the GUI may take to quit: 30 s for the profile, then 5 s and more for the server.
const QUIT_PATIENCE: Duration = Duration::from_secs(40);

/// How long a GUI may take to show up after `open`.
const APPEARANCE: Duration = Duration::from_secs(5);

const APPEARANCE_POLL: Duration = Duration::from_millis(200);

/// Ends every GUI of this bundle that belongs to this user. None there is no failure.
///
/// # Errors
/// A [`StepFailure`] when one may not be signalled or does not end.
pub async fn stop(machine: &Machine, surveyor: &Mutex<Surveyor>, bundle: &Path) -> Result<String, StepFailure> {
    // What could not be opened again is not ended either.
    console::check(machine).await?;
    if !bundle.is_dir() {
        return Err(missing(bundle));
    }
    let (guis, classify) = {
        let mut surveyor = surveyor.lock().await;
        (guis_of(machine, &mut surveyor, bundle), surveyor.classify())
    };
    if guis.is_empty() {
        return Ok("no GUI was running".to_owned());
    }
    let mut notes = Vec::new();
    for gui in guis {
        let how = signal::end(machine, classify, gui, QUIT_PATIENCE, |role| is_gui_of(role, bundle)).await?;
        notes.push(format!("GUI pid {} {how}", gui.pid));
    }
    Ok(notes.join("; "))
}

/// Opens the bundle, hidden and in the background, with the values on its own environment too. One try; a known race
/// is told by [`Again::Soon`].
///
/// A GUI of the bundle that is there already was started by somebody else since the stop, and so with the values
/// that the session had then; it is left alone.
///
/// # Errors
/// A [`StepFailure`] when there is no session at the screen, no bundle, or no new GUI shows up.
pub async fn start(
    machine: &Machine,
    surveyor: &Mutex<Surveyor>,
    bundle: &Path,
    environment: &Values,
) -> Result<String, StepFailure> {
    if !bundle.is_dir() {
        return Err(missing(bundle));
    }
    // The stop was let through a moment ago; a session that is gone since may come back.
    console::check(machine).await.map_err(|failure| StepFailure { again: Again::Soon, ..failure })?;
    let before = guis_of(machine, &mut *surveyor.lock().await, bundle);
    if let Some(gui) = before.first() {
        return Ok(format!("{} is up already, GUI pid {}, started by somebody else", bundle.display(), gui.pid));
    }
    let output = run(machine, &open(machine, bundle, environment)).await?;
    if !output.succeeded() {
        return Err(not_opened(bundle, &output));
    }
    let deadline = Instant::now() + machine.clock().patience(APPEARANCE);
    loop {
        let now = guis_of(machine, &mut *surveyor.lock().await, bundle);
        if let Some(gui) = now.iter().find(|gui| !before.contains(gui)) {
            return Ok(format!("{} is up, GUI pid {}", bundle.display(), gui.pid));
        }
        if Instant::now() >= deadline {
            return Err(StepFailure {
                code: "app-not-started",
                message: format!("open reported success, but no new process of {} showed up", bundle.display()),
                hint: "look at the screen for a dialog of macOS about this app".to_owned(),
                again: Again::Soon,
            });
        }
        machine.clock().sleep(APPEARANCE_POLL).await;
    }
}

/// `open(1)`: `-g` in the background, `-j` hidden, `-a` by path because there may be several copies. Values go on the
/// command's own environment and as `--env`: versions of macOS differ in which of the two reaches the app.
/// `--fast-startup` skips a staged update and the prompt to move the app (`cmd/start_darwin.go`).
pub fn open(machine: &Machine, bundle: &Path, environment: &Values) -> Invocation {
    // The app inherits what `open` was given, and it wins over the session: our PATH, proxies and locale are not its.
    let mut invocation =
        Invocation::new(machine.at("/usr/bin/open")).bare_environment().args(["-g", "-j", "-a"]).arg(bundle);
    for (name, value) in environment {
        invocation = invocation.arg("--env").arg(format!("{name}={value}")).env(name.as_str(), value.as_str());
    }
    invocation.args(["--args", "--fast-startup"])
}

fn guis_of(machine: &Machine, surveyor: &mut Surveyor, bundle: &Path) -> Vec<Identity> {
    let sightings = surveyor.sightings();
    let ours = sightings.iter().filter(|sighting| sighting.process.uid.known() == Some(&machine.uid()));
    ours.filter(|sighting| is_gui_of(&sighting.role, bundle)).map(|sighting| sighting.process.id).collect()
}

fn is_gui_of(role: &Role, wanted: &Path) -> bool {
    match role {
        Role::Gui { bundle } => same_bundle(bundle, wanted),
        Role::Shim { .. } | Role::Serve | Role::Runner(_) => false,
    }
}

/// The same folder, also when one of the two paths goes through a link.
pub(crate) fn same_bundle(one: &Path, other: &Path) -> bool {
    one == other || matches!((one.canonicalize(), other.canonicalize()), (Ok(one), Ok(other)) if one == other)
}

/// The failures of LaunchServices by their numbers (`LSInfo.h`).
fn not_opened(bundle: &Path, output: &Output) -> StepFailure {
    let said = output.said();
    let number = |wanted: &str| said.contains(&format!("error {wanted}."));
    if said.contains("Unable to find application") {
        return missing(bundle);
    }
    let failed = |code, hint: &str, again| StepFailure {
        code,
        message: format!("{} was not opened: {said}", bundle.display()),
        hint: hint.to_owned(),
        again,
    };
    if number("-600") {
        failed(
            "launchservices-busy",
            "macOS still lists the app that just ended; if it lasts, another user's session is at the screen",
            Again::Soon,
        )
    } else if number("-10825") {
        failed("app-needs-newer-macos", "install a version of Ollama that suits this macOS", Again::Never)
    } else if number("-10827") || number("-10669") || number("-54") {
        failed("app-damaged", "install Ollama.app again, copied with Finder or ditto", Again::Never)
    } else {
        failed("open-failed", "open the app by hand to see what macOS says", Again::Soon)
    }
}

fn missing(bundle: &Path) -> StepFailure {
    StepFailure {
        code: "app-not-found",
        message: format!("{} is not there any more, so it was not opened", bundle.display()),
        hint: "install Ollama.app, or look where it was moved to".to_owned(),
        again: Again::Never,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server_variables::server_values;
    use crate::testing::{fake_command, world_folder};

    #[test]
    fn the_bundle_is_opened_hidden_with_the_values_in_both_places() {
        let (_dir, machine) = world_folder("macos");
        let values = server_values([("OLLAMA_NUM_PARALLEL", "1")]);
        let line = open(&machine, Path::new("/Applications/Ollama 2.app"), &values).to_string();
        let program = machine.at("/usr/bin/open");
        assert_eq!(
            line,
            format!(
                "OLLAMA_NUM_PARALLEL=1 {} -g -j -a '/Applications/Ollama 2.app' --env OLLAMA_NUM_PARALLEL=1 \
                 --args --fast-startup",
                program.display()
            )
        );
    }

    #[test]
    fn failures_of_launchservices_are_told_apart() {
        let failed = |stderr: &str| {
            let output = Output { code: Some(1), stderr: stderr.to_owned(), ..Output::default() };
            let failure = not_opened(Path::new("/Applications/Ollama.app"), &output);
            (failure.code, failure.again)
        };
        let numbered = |number: i32| {
            format!("_LSOpenURLsWithCompletionHandler() failed for the application /A.app with error {number}.")
        };
        assert_eq!(failed(&numbered(-600)), ("launchservices-busy", Again::Soon));
        assert_eq!(failed(&numbered(-54)), ("app-damaged", Again::Never));
        assert_eq!(failed(&numbered(-10810)), ("open-failed", Again::Soon));
        assert_eq!(failed("Unable to find application named '/A.app'"), ("app-not-found", Again::Never));
    }

    #[tokio::test]
    async fn a_start_is_a_new_gui_and_a_stop_ends_it() {
        let (_dir, machine, bundle) = screen();
        let surveyor = Mutex::new(Surveyor::new(machine.clone(), by_place));
        // `open -g -j -a BUNDLE …`
        fake_command(&machine, "usr/bin/open", r#""$4/Contents/MacOS/Ollama" 60 >/dev/null 2>&1 &"#);
        let note = start(&machine, &surveyor, &bundle, &Values::new()).await.unwrap();
        assert!(note.contains("is up, GUI pid"), "{note}");
        let again = start(&machine, &surveyor, &bundle, &Values::new()).await.unwrap();
        assert!(again.contains("is up already"), "{again}");
        let note = stop(&machine, &surveyor, &bundle).await.unwrap();
        assert!(note.contains("gone after"), "{note}");
        assert_eq!(stop(&machine, &surveyor, &bundle).await.unwrap(), "no GUI was running");
    }

    #[tokio::test]
    async fn an_open_that_starts_nothing_is_no_success() {
        let (_dir, machine, bundle) = screen();
        let surveyor = Mutex::new(Surveyor::new(machine.clone(), by_place));
        fake_command(&machine, "usr/bin/open", "exit 0");
        let failure = start(&machine, &surveyor, &bundle, &Values::new()).await.unwrap_err();
        assert_eq!((failure.code, failure.again), ("app-not-started", Again::Soon));
    }

    fn screen() -> (tempfile::TempDir, Machine, std::path::PathBuf) {
        let (dir, machine) = crate::testing::world_at_speed("macos", 20.0);
        std::fs::create_dir_all(machine.root().join(".sim")).unwrap();
        std::fs::write(machine.root().join(".sim/console"), "sim").unwrap();
        fake_command(&machine, "bin/launchctl", "echo Aqua");
        let bundle = machine.at("/Applications/Ollama.app");
        crate::testing::copy_program(Path::new("/bin/sleep"), &bundle.join("Contents/MacOS/Ollama"));
        (dir, machine, bundle)
    }

    fn by_place(process: &stablehand_engine::process::Process) -> Option<Role> {
        let bundle = process.executable.known()?.ancestors().nth(3)?;
        bundle.ends_with("Ollama.app").then(|| Role::Gui { bundle: bundle.to_path_buf() })
    }
}
