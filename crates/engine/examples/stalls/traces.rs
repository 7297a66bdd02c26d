//! Labelled traces: a kind, a class of evidence and a seed make one simulated machine ([`world`]), and looks at it
//! ([`sight`]) make the trace.

mod healthy;
mod paging;
pub mod runner;
pub mod setup;
pub mod sight;
mod stalled;
pub mod world;

use crate::random::{Random, label};
use setup::{Class, Setup};
use world::World;

/// A kind of trace.
pub struct Kind {
    pub name: &'static str,
    pub classes: &'static [Class],
    shape: fn(&mut Setup, &mut Random),
}

/// Kinds in which nothing is wrong.
pub const HEALTHY: &[Kind] = healthy::KINDS;
/// Kinds in which something goes wrong.
pub const STALLED: &[Kind] = stalled::KINDS;

const EVERY: &[Class] = &Class::ALL;

impl Kind {
    /// The machine of one trace.
    pub fn world(&self, class: Class, seed: u64, number: u64) -> World {
        let mut random = Random::new(seed, &[label(self.name), label(class.name()), number]);
        let mut setup = Setup::ordinary(class, &mut random);
        (self.shape)(&mut setup, &mut random);
        World::new(setup, random)
    }
}
