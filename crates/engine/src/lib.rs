//! What should happen.
//!
//! The engine holds every rule of Stablehand as pure code: events and `now` go in, effects come out. It opens no
//! file, reads no clock, starts no process and imports no other crate of the workspace. The daemon feeds it what
//! was seen ([`supervisor::Event`]) and performs what it asks for ([`supervisor::Effect`]); because nothing else
//! can happen here, a week of a server's life runs in a test within milliseconds.
//!
//! Where to look:
//! - who starts the server, and who else fights for its port: [`owner`]
//! - the four layers of a setting, drift and proof: [`setting`]
//! - the steps of an apply or a restart, per owner: [`plan`]
//! - when to restart, when to wait, when to give up: [`supervisor`]
//! - whether the gateway stands in the server's place, and what comes next: [`takeover`]
//! - how much memory a setting can cost at most: [`memory_bound`]
//! - which models may be loaded, and how much together: [`loaded`]
//! - what a person is told, and how often: [`alert`]
//! - which request goes next, and which may not wait: [`admission`]
//! - how one version takes the other's place and comes back: [`upgrade`]
//! - whether macOS would stop the app at a question: [`quarantine`]

pub mod admission;
pub mod alert;
pub mod known;
pub mod loaded;
pub mod memory_bound;
pub mod owner;
pub mod plan;
pub mod process;
pub mod quarantine;
pub mod recovery;
pub mod setting;
pub mod stall;
pub mod supervisor;
pub mod takeover;
pub mod time;
pub mod upgrade;

pub use known::Known;
