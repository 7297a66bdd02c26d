//! Programs of an unpacked archive. In the archive each is a small script; when it is first started it takes this
//! program's place in the file system, as one more link to the world's copy, and goes on as that.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode};

use anyhow::{Context, Result};

use crate::wire::Reply;
use crate::world::{World, layout};

/// The verb that the script calls this program with.
pub const VERB: &str = "first-start";

/// The longest first line that every system reads whole (Linux before 5.1 had the least).
const LONGEST_FIRST_LINE_BYTES: usize = 127;

/// What stands in for a program in an archive. Its interpreter is this program, which never reads it: a shell that was
/// just about to would find what another first start has put there.
pub fn script(world: &World) -> String {
    let ours = world.dir.join(layout::PROGRAM);
    let direct = format!("#!{} {VERB}\n", ours.display());
    if direct.len() <= LONGEST_FIRST_LINE_BYTES && !world.dir.as_os_str().as_encoded_bytes().contains(&b' ') {
        return direct;
    }
    format!("#!/bin/sh\nexec '{}' {VERB} \"$0\" \"$@\"\n", ours.display())
}

/// `first-start CALLED_AS ARGUMENTS…`: puts this program in the place of the script, and becomes it.
pub fn run(words: &[String]) -> ExitCode {
    let Some((called_as, arguments)) = words.split_first() else {
        return Reply::failed(64, format!("usage: {VERB} CALLED_AS ARGUMENTS...")).deliver();
    };
    match take_place(called_as, arguments) {
        Ok(error) => Reply::failed(126, format!("{called_as}: {error}")).deliver(),
        Err(error) => Reply::failed(126, format!("{called_as}: {error:#}")).deliver(),
    }
}

/// Comes back with why the program could not be started.
fn take_place(called_as: &str, arguments: &[String]) -> Result<std::io::Error> {
    let program = Path::new(called_as).canonicalize().context("this program is not there")?;
    let world = World::find(&program.display().to_string())?;
    layout::install_program(&world, &program)?;
    Ok(Command::new(&program).arg0(called_as).args(arguments).exec())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::world::testing_world;

    #[test]
    fn a_world_in_a_deep_folder_needs_a_shell() {
        let folder = tempfile::tempdir().unwrap();
        assert!(script(&testing_world(folder.path())).ends_with(".sim/stablehand-sim first-start\n"));
        let deep = folder.path().join("d".repeat(120));
        std::fs::create_dir(&deep).unwrap();
        assert!(script(&testing_world(&deep)).starts_with("#!/bin/sh\nexec '"));
    }
}
