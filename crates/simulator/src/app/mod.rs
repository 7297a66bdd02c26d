//! Ollama.app: its GUI, its login shim and its settings.

pub mod gui;
pub mod settings;
pub mod shim;
