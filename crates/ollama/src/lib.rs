//! What Ollama says.
//!
//! Everything that Stablehand knows of Ollama's own language is here: the variables its server reads and how it reads
//! them ([`catalogue`], [`parse`], [`host`]), its versions ([`version`]), its processes ([`argv`]), its log ([`log`]) and
//! what that tells over time ([`log_statistics`]), its answers ([`client`]), its runners' ([`runner`]), its models'
//! numbers ([`model_shape`]) and its [`releases`]. [`evidence`] joins them into the proof of what is in force, in the engine's own terms.
//!
//! Nothing here starts or stops a process. Three parts touch the world: [`client`] and [`runner`] ask over loopback with
//! a deadline on every call, [`log::reader`] and [`log::follower`] read one file in constant memory, and
//! [`releases::Source`] asks for releases over the network and downloads a file of one to a folder that it is given. All
//! else is parsing, and compiles and is tested everywhere.
//!
//! Facts carry the place in Ollama's source that they come from (`ollama envconfig/config.go`). Both generations of
//! runner are understood, since a machine may hold either: `ollama runner` up to 0.24, `llama-server` from 0.30 on.

pub mod argv;
pub mod catalogue;
pub mod client;
pub mod evidence;
pub mod go_duration;
pub mod go_quote;
pub mod host;
pub mod log;
pub mod log_statistics;
pub mod model_shape;
pub mod parse;
pub mod releases;
pub mod runner;
pub mod version;
