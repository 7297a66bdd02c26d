//! Whether we run in the login session at the screen. Values set elsewhere (through ssh, with sudo) land in another
//! session, and an app opened from elsewhere fails with -600.

use crate::command::run;
use crate::launchd::launchctl;
use crate::machine::Machine;
use stablehand_engine::plan::{Again, StepFailure};
use std::fs;
use std::os::unix::fs::MetadataExt;

/// What `launchctl managername` prints in the session of the screen.
const SCREEN_SESSION: &str = "Aqua";

/// Succeeds in a login session with a screen of its own, also while another user is in front of it; values set here
/// reach this user's apps. The text is a warning worth showing.
///
/// # Errors
/// A [`StepFailure`] `no-gui-session` anywhere else.
pub async fn session(machine: &Machine) -> Result<Option<String>, StepFailure> {
    let output = run(machine, &launchctl::managername(machine)).await?;
    let session = output.stdout.trim();
    if !output.succeeded() {
        return Err(elsewhere(&format!("launchctl does not name the session ({})", output.said())));
    }
    if session != SCREEN_SESSION {
        return Err(elsewhere(&format!("this is a session of kind {session:?}, not the one at the screen")));
    }
    Ok((machine.uid() == 0 && machine.simulated().is_none())
        .then(|| "running as root: values reach root's session alone".to_owned()))
}

/// Succeeds in the session that is at the screen now: only there can an app be opened.
///
/// # Errors
/// A [`StepFailure`] `no-gui-session` anywhere else.
pub async fn check(machine: &Machine) -> Result<Option<String>, StepFailure> {
    let warning = session(machine).await?;
    if !at_the_screen(machine) {
        return Err(elsewhere("another user, or nobody, is at the screen"));
    }
    Ok(warning)
}

fn at_the_screen(machine: &Machine) -> bool {
    match machine.simulated() {
        Some(world) => fs::read_to_string(world.join(".sim/console")).is_ok_and(|name| name.trim() == machine.user()),
        None => fs::metadata("/dev/console").is_ok_and(|about| about.uid() == machine.uid()),
    }
}

fn elsewhere(why: &str) -> StepFailure {
    StepFailure {
        code: "no-gui-session",
        message: format!("the login session at the screen cannot be reached: {why}"),
        hint: "log in at the screen of this Mac and run it in a terminal there, or let the daemon do it (it runs in \
               that session); ssh and sudo reach another session"
            .to_owned(),
        again: Again::Never,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{fake_command, world_folder};

    #[tokio::test]
    async fn the_user_at_the_screen_passes_and_everybody_else_is_told_why() {
        let (_dir, machine) = world_folder("macos");
        fake_command(&machine, "bin/launchctl", "echo Aqua");
        assert_eq!(check(&machine).await.unwrap_err().code, "no-gui-session");
        fs::create_dir_all(machine.root().join(".sim")).unwrap();
        fs::write(machine.root().join(".sim/console"), "sim\n").unwrap();
        assert_eq!(check(&machine).await, Ok(None), "a simulated session is not root's, whoever plays it");
        fake_command(&machine, "bin/launchctl", "echo Background");
        let failure = check(&machine).await.unwrap_err();
        assert!(failure.message.contains("\"Background\"") && failure.hint.contains("ssh"));
    }
}
