//! Telling a stall from honest work.
//!
//! Evidence in ([`evidence::Observation`]), verdicts out ([`Judgement`]). The [`Watcher`] keeps one watch per runner
//! life and one for the server, and compares each observation with those before it.
//!
//! ```text
//! observation ─► progress::Movement ─► any counter of the runner moved? ── yes ─► its silence begins anew
//!                                                  │ no
//!                                                  ▼
//!       silence (awake, a paged second weighs a tenth)  >  prediction::Prediction's longest honest step ?
//!                                                  │ yes
//!              a request in flight · no load, image, wake-up grace · an independent sign ?
//!                       │ all                                │ one is missing
//!                       ▼                                    ▼
//!                 Hung, with a rung                      Suspect, without
//! ```
//!
//! Four rules stand above the others:
//! - Progress is movement of a counter in *any* slot of a runner. That an HTTP side answers says nothing.
//! - The allowed silence is predicted from what this model needed on this machine, inside an [`envelope`] of what is
//!   honest at all; it is not the longest silence remembered.
//! - What cannot be read is no sign of health and no sign of a fault: paging that cannot be ruled out counts as
//!   possible, a request that is not known to be in flight counts as absent.
//! - In doubt the verdict is [`Verdict::Suspect`], and nothing is done.

pub mod envelope;
pub mod evidence;
mod fact;
mod prediction;
mod profile;
mod progress;
mod runner;
mod server;
mod span;
#[cfg(test)]
mod tests;
mod verdict;
mod watcher;

pub use fact::{Counter, Fact, Pattern, Step};
pub use prediction::{Bound, Prediction};
pub use profile::Profile;
pub use verdict::{How, Judgement, Rung, Subject, Verdict, Why};
pub use watcher::Watcher;
