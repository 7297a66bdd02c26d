//! Telling a person on the desktop. The engine decided that it is worth it; here it is only delivered.
//!
//! On Linux the menu is asked, whose notifications speak its person's language and have buttons; where none runs, the
//! session's notification service shows it in our words. On macOS only an app bundle may post notifications (a program
//! outside one is aborted by `UNUserNotificationCenter`), so the bundle that this program lies in is opened in the
//! background with the matter's name; without a bundle there is nobody to post it. A simulated machine's troubles are
//! not the person's: only a menu that shows that machine is told.

use crate::command::{CommandError, Invocation, run};
use crate::machine::{Machine, Os};
use stablehand_engine::alert::Alert;
use stablehand_engine::owner::enclosing_bundle;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

/// How long the desktop may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// The program of the menu, beside ours.
const MENU: &str = "stablehand-tray";
/// How it ends when no copy of it runs (`stablehand-tray --help`).
const NOBODY_CODE: i32 = 3;

/// Why nothing was shown. The alert is in the daemon's snapshot all the same.
#[derive(Debug, thiserror::Error)]
pub enum Undelivered {
    /// No menu runs that could show it; a simulated machine tells nobody else.
    #[error("no menu runs that could show it")]
    NoMenu,
    /// Nothing here can show it.
    #[error("there is no desktop session to show it in: {0}")]
    NoDesktop(String),
    /// The program lies in no app bundle.
    #[error("only an app bundle may post notifications, and this program lies in none")]
    NoBundle,
    /// The bundle could not be opened.
    #[error("the app could not be opened to post it: {0}")]
    NotOpened(String),
}

impl From<CommandError> for Undelivered {
    fn from(error: CommandError) -> Self {
        Self::NotOpened(error.to_string())
    }
}

/// Shows an alert on the desktop.
///
/// # Errors
/// [`Undelivered`], with the reason.
pub async fn deliver(machine: &Machine, alert: &Alert) -> Result<(), Undelivered> {
    if let Some(world) = machine.simulated() {
        return through_menu(Some(world), alert).await;
    }
    match machine.os() {
        Os::Linux => match through_menu(None, alert).await {
            Ok(()) => Ok(()),
            // There is none, or it is of no use: the person is told all the same.
            Err(_) => through_session_bus(alert).await,
        },
        Os::MacOs => {
            let program = std::env::current_exe().map_err(|error| Undelivered::NotOpened(error.to_string()))?;
            let bundle = bundle_of(&program).ok_or(Undelivered::NoBundle)?;
            let output = run(machine, &open(machine, &bundle, alert)).await?;
            if output.succeeded() { Ok(()) } else { Err(Undelivered::NotOpened(output.said())) }
        }
    }
}

/// Asks the menu, where one runs: a simulated machine's own, or the person's.
async fn through_menu(world: Option<&Path>, alert: &Alert) -> Result<(), Undelivered> {
    let program = std::env::current_exe().map_err(|error| Undelivered::NotOpened(error.to_string()))?;
    let menu = program.with_file_name(MENU);
    if !menu.is_file() {
        return Err(Undelivered::NoMenu);
    }
    let mut command = tokio::process::Command::new(menu);
    command.args(["notify", alert.kind.word(), "--if-there"]).kill_on_drop(true);
    if let Some(world) = world {
        command.env("STABLEHAND_WORLD", world);
    }
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    match tokio::time::timeout(PATIENCE, command.status()).await {
        Ok(Ok(status)) if status.success() => Ok(()),
        Ok(Ok(status)) if status.code() == Some(NOBODY_CODE) => Err(Undelivered::NoMenu),
        Ok(Ok(status)) => Err(Undelivered::NotOpened(status.to_string())),
        Ok(Err(error)) => Err(Undelivered::NotOpened(error.to_string())),
        Err(_) => Err(Undelivered::NotOpened("it does not answer".to_owned())),
    }
}

/// Opens the bundle in the background to post one matter. `-n` (`open(1)`), because a bundle that runs is not handed
/// the arguments: the second copy hands them to the first, and ends.
fn open(machine: &Machine, bundle: &Path, alert: &Alert) -> Invocation {
    Invocation::new(machine.at("/usr/bin/open"))
        .args(["-n", "-g", "-j"])
        .arg(bundle)
        .args(["--args", "notify", alert.kind.word()])
        .timeout(PATIENCE)
}

fn bundle_of(program: &Path) -> Option<PathBuf> {
    let program = program.canonicalize().ok()?;
    enclosing_bundle(&program).map(Path::to_path_buf)
}

#[cfg(target_os = "linux")]
async fn through_session_bus(alert: &Alert) -> Result<(), Undelivered> {
    let mut notification = notify_rust::Notification::new();
    let evidence = alert.evidence.as_deref().map_or_else(String::new, |evidence| format!("{evidence}\n"));
    let body = format!("{evidence}What to do: {}", alert.action);
    notification.appname("Stablehand").summary(&alert.message).body(&body);
    match tokio::time::timeout(PATIENCE, notification.show_async()).await {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(error)) => Err(Undelivered::NoDesktop(error.to_string())),
        Err(_) => Err(Undelivered::NoDesktop("the notification service does not answer".to_owned())),
    }
}

#[cfg(not(target_os = "linux"))]
async fn through_session_bus(_alert: &Alert) -> Result<(), Undelivered> {
    Err(Undelivered::NoDesktop("this system has no session bus".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::world_folder;
    use stablehand_engine::alert::AlertKind;

    #[tokio::test]
    async fn a_simulated_machine_without_a_menu_tells_nobody() {
        let (_dir, machine) = world_folder("linux");
        assert!(matches!(deliver(&machine, &alert()).await, Err(Undelivered::NoMenu)));
    }

    #[test]
    fn the_bundle_is_opened_in_the_background_with_the_matters_name() {
        let (_dir, machine) = world_folder("macos");
        let invocation = open(&machine, Path::new("/Applications/Stablehand.app"), &alert());
        assert!(invocation.program.ends_with("usr/bin/open"));
        assert_eq!(invocation.args, ["-n", "-g", "-j", "/Applications/Stablehand.app", "--args", "notify", "drift"]);
    }

    fn alert() -> Alert {
        Alert::new(AlertKind::Drift, "m".to_owned(), "a")
    }
}
