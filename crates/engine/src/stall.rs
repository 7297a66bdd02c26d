//! Telling a stall from honest work.
//!
//! Evidence in ([`evidence::Observation`]), verdicts out.

pub mod evidence;
