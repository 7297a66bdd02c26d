//! Ollama.app: its GUI, its login shim, its settings and its updater.

pub mod gui;
pub mod settings;
pub mod shim;
pub mod updater;
