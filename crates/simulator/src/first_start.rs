//! Programs of an unpacked archive. In the archive each is a small script; when it is first started it takes this
//! program's place in the file system, as one more link to the world's copy, and goes on as that.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode};

use crate::wire::Reply;
use crate::world::{World, layout};

/// The verb that the script calls this program with.
pub const VERB: &str = "first-start";

/// What stands in for a program in an archive.
pub const SCRIPT: &str = r#"#!/bin/sh
# A program of a simulated machine, before its first start.
program=$(readlink -f "$0") || exit 127
world=${program%/*}
while [ -n "$world" ] && [ ! -e "$world/stablehand-world.json" ]; do
    world=${world%/*}
done
exec "$world/.sim/stablehand-sim" first-start "$program" "$0" "$@"
"#;

/// `first-start PROGRAM CALLED_AS ARGUMENTS…`: puts this program at `PROGRAM` and becomes it.
pub fn run(words: &[String]) -> ExitCode {
    let [program, called_as, arguments @ ..] = words else {
        return Reply::failed(64, format!("usage: {VERB} PROGRAM CALLED_AS ARGUMENTS...")).deliver();
    };
    let placed = World::find(program).and_then(|world| layout::install_program(&world, Path::new(program)));
    if let Err(error) = placed {
        return Reply::failed(126, format!("{program}: {error:#}")).deliver();
    }
    let error = Command::new(program).arg0(called_as).args(arguments).exec();
    Reply::failed(126, format!("{program}: {error}")).deliver()
}
