//! The catalogue: every variable that Ollama's server reads, what it may hold, and what the server makes of it.
//!
//! Three questions are answered from it: may a person set this ([`check()`]), what will the server show for it
//! ([`in_force`]), and what is known of it ([`entries`], [`definitions`]). The server itself refuses almost nothing: a
//! misspelt name is never read, a bad number becomes the default, and any odd word is "true". That is why values are
//! judged here, before they are set.

mod check;
mod entries;

pub use check::{Refused, check, nearest};

use crate::host::HostAddress;
use crate::parse;
use crate::version::Version;
use stablehand_engine::setting::{Definition, Name, Shown};

/// What a variable holds, and how it is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A whole number; the range is what is sensible, the server applies none.
    Count {
        /// Smallest sensible value.
        least: u64,
        /// Largest sensible value.
        most: u64,
    },
    /// A whole number of bytes.
    Bytes {
        /// Largest sensible value.
        most: u64,
    },
    /// Yes or no; any word that is neither counts as yes.
    Flag,
    /// Yes or no, but shown as it was written.
    FlagShownRaw,
    /// How long a model stays loaded; negative means for ever, zero not at all.
    KeepAlive,
    /// How long a load may stand still; zero and negative mean for ever.
    LoadTimeout,
    /// Where the server listens.
    Host,
    /// Origins beside the built-in ones, between commas.
    Origins,
    /// Names between commas.
    List,
    /// A folder.
    Path,
    /// How much is logged.
    Level,
    /// One word out of a list.
    Word {
        /// The words.
        allowed: &'static [&'static str],
    },
    /// Any text.
    Text,
    /// Yes or no, read by `llama-server` itself: `on enabled true 1` or `off disabled false 0`.
    RunnerFlag,
    /// A whole number, read by `llama-server` itself.
    RunnerNumber {
        /// Smallest value that means something.
        least: i64,
        /// Largest sensible value.
        most: i64,
    },
    /// Whole numbers between commas, read by `llama-server` itself.
    RunnerNumbers,
}

impl Kind {
    /// The word used for it in lists and JSON.
    pub fn word(self) -> &'static str {
        match self {
            Self::Count { .. } | Self::RunnerNumber { .. } => "number",
            Self::Bytes { .. } => "bytes",
            Self::Flag | Self::FlagShownRaw | Self::RunnerFlag => "boolean",
            Self::KeepAlive | Self::LoadTimeout => "duration",
            Self::Host => "address",
            Self::Origins | Self::List | Self::RunnerNumbers => "list",
            Self::Path => "path",
            Self::Level => "level",
            Self::Word { .. } => "word",
            Self::Text => "text",
        }
    }

    /// What may be written, as a phrase.
    pub fn allowed(self) -> String {
        match self {
            Self::Count { least, most } => format!("{least} to {most}"),
            Self::Bytes { most } => format!("0 to {most} bytes"),
            Self::Flag | Self::FlagShownRaw => "1 or 0, true or false".to_owned(),
            Self::KeepAlive => "like 30s, 10m or 24h, whole seconds, -1 for ever, 0 to unload at once".to_owned(),
            Self::LoadTimeout => "like 30s or 10m, or whole seconds; 0 for ever".to_owned(),
            Self::Host => "an address with a port, like 127.0.0.1:11434".to_owned(),
            Self::Origins => "origins like http://host:port between commas, at most one * in each".to_owned(),
            Self::List => "names between commas".to_owned(),
            Self::Path => "an absolute path".to_owned(),
            Self::Level => "0 (normal), 1 (debug) or 2 (trace)".to_owned(),
            Self::Word { allowed } => format!("one of {}", allowed.join(", ")),
            Self::Text => "any text".to_owned(),
            Self::RunnerFlag => "1 or 0, on or off".to_owned(),
            Self::RunnerNumber { least, most } => format!("{least} to {most}"),
            Self::RunnerNumbers => "whole numbers between commas".to_owned(),
        }
    }

    /// Whether a printed value of this kind can hold a space.
    pub(crate) fn printed_without_space(self) -> bool {
        match self {
            Self::Count { .. } | Self::Bytes { .. } | Self::Flag | Self::KeepAlive | Self::LoadTimeout => true,
            Self::Host | Self::Level => true,
            Self::FlagShownRaw | Self::Origins | Self::List | Self::Path | Self::Word { .. } | Self::Text => false,
            Self::RunnerFlag | Self::RunnerNumber { .. } | Self::RunnerNumbers => false,
        }
    }

    /// Whether a printed value of this kind stands between square brackets.
    pub(crate) fn printed_in_brackets(self) -> bool {
        matches!(self, Self::Origins | Self::List)
    }
}

/// One variable.
#[derive(Debug)]
pub struct Entry {
    /// Its name.
    pub name: &'static str,
    /// What it holds.
    pub kind: Kind,
    /// What the newest server shows when nobody set it, in the canonical form of [`canonical`].
    pub default: &'static str,
    /// What servers before a version showed instead, newest version first.
    pub earlier_defaults: &'static [(Version, &'static str)],
    /// What it does, as one plain sentence.
    pub meaning: &'static str,
    /// The first version that reads it; `None` when it is as old as anything that is supported (0.12.0).
    pub since: Option<Version>,
    /// The last version that reads it; `None` when it is still read.
    pub until: Option<Version>,
    /// Where the server shows it.
    pub shown: Shown,
    /// Ollama.app puts its own setting into the server's environment over this one (`ollama app/server/server.go`).
    pub app_may_override: bool,
    /// What a person should know before setting it.
    pub caution: Option<&'static str>,
}

impl Entry {
    /// What a server of that version shows when nobody set it; the newest server's default when the version is unknown.
    pub fn default_for(&self, version: Option<Version>) -> &'static str {
        let version = version.filter(|version| !version.is_development());
        // The last match is the oldest version that is still newer than the server.
        let earlier = version.and_then(|version| {
            self.earlier_defaults.iter().rev().find(|(before, _)| version.cmp_numbers(*before).is_lt())
        });
        earlier.map_or(self.default, |(_, default)| default)
    }
}

/// Every variable, by name.
pub fn entries() -> &'static [Entry] {
    entries::ENTRIES
}

/// The variable of exactly that name.
pub fn find(name: &str) -> Option<&'static Entry> {
    entries().binary_search_by(|entry| entry.name.cmp(name)).ok().map(|index| &entries()[index])
}

/// The catalogue in the engine's terms, with the defaults of the newest server.
pub fn definitions() -> Vec<Definition> {
    definitions_for(None)
}

/// The catalogue in the engine's terms, with the defaults of a server of that version.
pub fn definitions_for(version: Option<Version>) -> Vec<Definition> {
    let define = |entry: &Entry| {
        Some(Definition {
            name: Name::try_new(entry.name).ok()?,
            default_in_force: entry.default_for(version).to_owned(),
            shown: entry.shown,
            app_may_override: entry.app_may_override,
        })
    };
    entries().iter().filter_map(define).collect()
}

/// What the server's config line would show once the server has read `raw`, in the form of [`canonical`].
///
/// A variable that the server does not show is given in the form it is used in; one that is not in the catalogue is
/// given without the quotes and spaces that the server takes away.
pub fn in_force(name: &str, raw: &str) -> String {
    let stripped = parse::stripped(raw);
    let Some(entry) = find(name) else { return stripped.to_owned() };
    let or_default = |text: &str| if text.is_empty() { entry.default.to_owned() } else { text.to_owned() };
    match entry.kind {
        Kind::Count { .. } | Kind::Bytes { .. } => {
            parse::unsigned(stripped).map_or_else(|| entry.default.to_owned(), |count| count.to_string())
        }
        Kind::Flag => parse::truth(raw, entry.default == "true").to_string(),
        Kind::KeepAlive => parse::keep_alive(raw).to_string(),
        Kind::LoadTimeout => parse::load_timeout(raw).to_string(),
        Kind::Host => HostAddress::parse(raw).to_string(),
        Kind::Origins => canonical(name, &list(stripped)),
        Kind::List if stripped.trim().is_empty() => entry.default.to_owned(),
        Kind::List => canonical(name, &list(stripped.trim())),
        Kind::Path => or_default(stripped),
        Kind::Level => parse::level(raw),
        Kind::FlagShownRaw | Kind::Word { .. } | Kind::Text => stripped.to_owned(),
        // What the server shows of these went through its stripping; llama-server reads them untouched, but a value
        // with quotes or spaces around it is refused before it is set.
        Kind::RunnerFlag | Kind::RunnerNumber { .. } | Kind::RunnerNumbers if entry.shown == Shown::ConfigLine => {
            stripped.to_owned()
        }
        Kind::RunnerFlag => match runner_flag(raw) {
            Some(flag) => flag.to_string(),
            None => entry.default.to_owned(),
        },
        Kind::RunnerNumber { .. } | Kind::RunnerNumbers => or_default(raw),
    }
}

/// The one form in which printed values are compared.
///
/// All but lists stay as printed. A list is its entries with one space between them; `OLLAMA_ORIGINS` loses the
/// built-in origins that every server adds, since they differ from version to version and nobody set them.
pub fn canonical(name: &str, printed: &str) -> String {
    let Some(kind) = find(name).map(|entry| entry.kind).filter(|kind| kind.printed_in_brackets()) else {
        return printed.to_owned();
    };
    let inner = printed.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(printed);
    let own = |entry: &&str| kind != Kind::Origins || !is_built_in_origin(entry);
    let entries: Vec<&str> = inner.split_whitespace().filter(own).collect();
    format!("[{}]", entries.join(" "))
}

/// `llama-server`'s own words for yes and no (llama.cpp `common/arg.cpp`).
pub(crate) fn runner_flag(text: &str) -> Option<bool> {
    match text {
        "on" | "enabled" | "true" | "1" => Some(true),
        "off" | "disabled" | "false" | "0" => Some(false),
        _ => None,
    }
}

fn list(text: &str) -> String {
    format!("[{}]", text.split(',').collect::<Vec<_>>().join(" "))
}

/// The origins that the server adds by itself (`ollama envconfig/config.go`, `AllowedOrigins`).
fn is_built_in_origin(origin: &str) -> bool {
    let application = ["app://*", "file://*", "tauri://*", "vscode-webview://*", "vscode-file://*"];
    let host = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
    let host = host.map(|host| host.strip_suffix(":*").unwrap_or(host));
    application.contains(&origin) || host.is_some_and(|host| matches!(host, "localhost" | "127.0.0.1" | "0.0.0.0"))
}

#[cfg(test)]
mod tests;
