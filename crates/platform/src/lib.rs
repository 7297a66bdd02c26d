//! What this computer can do: its services, processes, files and clock, on macOS and Linux.
//!
//! The crate carries out what the engine decides and hands back what it saw, in the engine's own types. All of it
//! works on a [`Machine`]: the real one, or a simulated world in a folder, which plays the commands and the file
//! system of a Mac or a Linux box with real processes. Parsers, command lines and plans are plain code that compiles
//! and is tested everywhere; behind `cfg(target_os)` stands only the thinnest line that touches the system.
//!
//! Where to look:
//! - the machine, its clock, its commands and its files: [`machine`], [`clock`], [`command`], [`files`]
//! - changes as data: [`change`]
//! - who runs, who listens and who is connected: [`processes`], [`listeners`], [`connections`], [`survey`]
//! - what the machine and its runners use: [`sampling`]
//! - carrying out one step of a plan: [`perform`](mod@perform), [`signal`], [`sweep`]
//! - the layers of a setting, our own services, and the command in a terminal: [`layers`], [`install`], [`paths`],
//!   [`command_link`]
//! - one version in another's place: [`staging`] unpacks a release beside it, [`exchange`] moves it there; every change
//!   goes through [`disk`]
//! - telling a person: [`notification`]; being told by one: [`control_socket`]
//! - macOS: [`launchd`], [`applications`], [`app`], [`console`], [`publish`], [`quarantine`], [`signature`];
//!   Linux: [`linux`]

#![deny(unsafe_code)]

pub mod app;
pub mod applications;
pub mod change;
pub mod clock;
pub mod command;
pub mod command_link;
pub mod connections;
pub mod console;
pub mod control_socket;
pub mod disk;
pub mod exchange;
pub mod files;
pub mod gateway_service;
pub mod install;
pub mod launchd;
pub mod layers;
pub mod linux;
pub mod listeners;
pub mod machine;
pub mod notification;
pub mod paths;
pub mod perform;
pub mod processes;
pub mod publish;
pub mod quarantine;
pub mod sampling;
pub mod server_log;
pub mod server_variables;
pub mod signal;
pub mod signature;
pub mod stacks;
pub mod staging;
pub mod survey;
pub mod sweep;

#[cfg(test)]
mod testing;

pub use change::Change;
pub use clock::Clock;
pub use install::{install_changes, install_notes, uninstall_changes};
pub use layers::{persist_changes, persisted, session};
pub use machine::{Machine, MachineError, Os};
pub use paths::{Paths, stablehand_files};
pub use perform::{carry_out, perform};
pub use publish::published_at;
pub use server_log::{LogSource, server_log};
pub use server_variables::is_server_variable;
pub use signal::Classify;
pub use survey::Surveyor;
