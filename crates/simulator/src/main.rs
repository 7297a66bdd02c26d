//! A machine in a folder: macOS or Linux commands, their services and a
//! stand-in Ollama, as real processes with real sockets and signals.
//!
//! One program plays every part. Which one is told by the file name it was
//! called by; where its world is, by the path it was called by. Under its own
//! name it makes, stops and disturbs worlds. `docs/world.md` is the contract
//! with the programs that are tested against it.

// They panic when the reader has left.
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod app;
mod clients;
mod commands;
mod demo;
mod faults;
mod first_start;
mod http_probe;
mod launchd;
mod machine_memory;
mod models;
mod named;
mod ports;
mod process_table;
mod releases;
mod runner;
mod serve;
mod sockets;
mod systemd;
mod wire;
mod world;

use std::path::Path;
use std::process::ExitCode;

use releases::flaw::Flaw;
use world::{Os, World};

fn main() -> ExitCode {
    let mut arguments = std::env::args();
    let called_as = arguments.next().unwrap_or_default();
    let name = Path::new(&called_as).file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let arguments: Vec<String> = arguments.collect();
    if !PARTS.contains(&name.as_str()) {
        return match arguments.split_first() {
            Some((verb, words)) if verb == first_start::VERB => first_start::run(words),
            Some(_) | None => demo::run(),
        };
    }
    if name == "plutil" {
        return commands::plutil::run(&arguments).deliver();
    }
    match World::find(&called_as) {
        Ok(world) => play(&name, world, &arguments),
        Err(error) => wire::Reply::failed(1, format!("{name}: {error:#}")).deliver(),
    }
}

/// Names under which this program plays a part of a world.
const PARTS: [&str; 30] = [
    "launchctl",
    "open",
    "xattr",
    "codesign",
    "spctl",
    "ditto",
    "sysctl",
    "vm_stat",
    "footprint",
    "ioreg",
    "lsof",
    "plutil",
    "osascript",
    "ps",
    "brew",
    "systemctl",
    "journalctl",
    "pkexec",
    "docker",
    "launchd",
    "systemd",
    "Ollama",
    "Squirrel",
    "ollama",
    "llama-server",
    "zsh",
    "containerd-shim-runc-v2",
    "other-server",
    "bot",
    "release-server",
];

fn play(name: &str, world: World, arguments: &[String]) -> ExitCode {
    if matches!(name, "Ollama" | "Squirrel" | "ollama") && world.ollama_flaw() == Some(Flaw::WillNotStart) {
        return will_not_start(name, world.marker.os).deliver();
    }
    match name {
        "launchctl" => commands::launchctl::run(&world, arguments).deliver(),
        "open" => commands::open::run(&world, arguments).deliver(),
        "xattr" => commands::xattr::run(&world, arguments).deliver(),
        "codesign" => commands::codesign::codesign(&world, arguments).deliver(),
        "spctl" => commands::codesign::spctl(&world, arguments).deliver(),
        "ditto" => commands::archive::ditto(&world, arguments).deliver(),
        "sysctl" => commands::sysctl::run(&world, arguments).deliver(),
        "vm_stat" => commands::memory::vm_stat(&world).deliver(),
        "footprint" => commands::memory::footprint(&world, arguments).deliver(),
        "ioreg" => commands::memory::ioreg(&world, arguments).deliver(),
        "lsof" => commands::lsof::run(&world, arguments).deliver(),
        "osascript" => commands::accounts::osascript(&world, arguments).deliver(),
        "ps" => commands::ps::run(&world, arguments).deliver(),
        "brew" => commands::brew::run(&world, arguments).deliver(),
        "systemctl" => commands::systemctl::run(&world, arguments).deliver(),
        "journalctl" => commands::journalctl::run(&world, arguments).deliver(),
        "pkexec" => commands::accounts::pkexec(&world, arguments).deliver(),
        "docker" => commands::docker::run(&world, arguments).deliver(),
        "launchd" => launchd::run(world),
        "systemd" => systemd::run(world),
        "Ollama" => app::gui::run(world, arguments),
        "Squirrel" => app::shim::run(&world),
        "llama-server" => runner::run(world, arguments),
        "ollama" if arguments.first().is_some_and(|verb| verb == "runner") => runner::run(world, arguments),
        "ollama" => serve::run(world, arguments),
        "zsh" => demo::terminal::run(&world),
        "containerd-shim-runc-v2" => commands::docker::shim(&world),
        "bot" => clients::run(world, arguments),
        "release-server" => releases::server::run(world),
        "other-server" => faults::stranger::run(&world),
        _ => ExitCode::FAILURE,
    }
}

/// What the loader of the system says, and how it ends the program.
fn will_not_start(name: &str, os: Os) -> wire::Reply {
    match os {
        Os::Macos => wire::Reply::failed(
            134,
            format!(
                "dyld[{}]: Library not loaded: @rpath/libmlx.dylib\n  Reason: tried: no such file",
                std::process::id()
            ),
        ),
        Os::Linux => wire::Reply::failed(
            127,
            format!(
                "{name}: error while loading shared libraries: libggml-base.so.0: cannot open shared object file: No such file or directory"
            ),
        ),
    }
}
