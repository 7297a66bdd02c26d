//! Whole worlds, with real processes, at twenty times the speed of life.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod app;
mod healthy_work;
mod homebrew;
mod launchd;
mod linux;
mod memory;
mod progress;
mod queue;
mod releases;
mod runners;
mod sandbox;
mod server_faults;
mod stalls;
mod updater;
mod world;
