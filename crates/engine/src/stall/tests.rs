//! Scenarios and properties, played on a small model of a machine ([`machine`]) that works as runners do: one decode
//! loop per runner, in steps of whole batches.

mod faults;
mod healthy;
mod machine;
mod properties;
mod server;
