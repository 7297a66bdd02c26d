//! Which environment variables are the server's, and the only ones of a process or a file that are ever looked at.

use stablehand_engine::setting::{Name, Value, Values};

/// Whether a variable belongs to Ollama (`OLLAMA_*`) or to its runners (`LLAMA_ARG_*`).
pub fn is_server_variable(name: &str) -> bool {
    name.starts_with("OLLAMA_") || name.starts_with("LLAMA_ARG_")
}

/// The server's variables among these. A value that no plist, unit or environment could carry is left out.
pub fn server_values<K: AsRef<str>, V: AsRef<str>>(pairs: impl IntoIterator<Item = (K, V)>) -> Values {
    let ours = pairs.into_iter().filter(|(name, _)| is_server_variable(name.as_ref()));
    ours.filter_map(|(name, value)| Some((Name::try_new(name.as_ref()).ok()?, Value::try_new(value.as_ref()).ok()?)))
        .collect()
}
