//! Versions of Ollama, an upgrade's progress, and the question before it.

use crate::paint::Paint;
use stablehand_protocol::{Known, Release, Upgrade, Versions};
use std::io::{IsTerminal, Write};

/// What a question before a change came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Go on.
    Yes,
    /// Do not.
    No,
    /// There is nobody to ask.
    Nobody,
}

/// Asks whether to go on; whatever is not a clear yes is none.
pub fn confirmed(question: &str) -> Answer {
    if !std::io::stdin().is_terminal() {
        return Answer::Nobody;
    }
    crate::verbs::aside(&format!("{question} [y/N] "));
    let mut said = String::new();
    match std::io::stdin().read_line(&mut said) {
        Ok(_) if matches!(said.trim().to_lowercase().as_str(), "y" | "yes") => Answer::Yes,
        Ok(_) | Err(_) => Answer::No,
    }
}

/// The page of `versions` and `upgrade --check`.
pub fn page(versions: &Versions, paint: Paint) -> String {
    let mut out = String::new();
    let mut row = |name: &str, text: &str| out.push_str(&format!("{:<11} {text}\n", format!("{name}:")));
    let install = match &versions.install {
        Known::Is(Some(word)) => format!(" ({})", install_in_words(word)),
        Known::Is(None) => String::new(),
        Known::Unknown { unknown } => format!(" (how it came here is unknown: {unknown})"),
    };
    match &versions.installed {
        Known::Is(version) => row("installed", &format!("{version}{install}")),
        Known::Unknown { unknown } => row("installed", &format!("unknown: {unknown}{install}")),
    }
    match (&versions.latest, &versions.newer) {
        (Some(release), Known::Is(true)) => row("newest", &paint.doubtful(&format!("{} is out", in_words(release)))),
        (Some(release), Known::Is(false)) => row("newest", &format!("{}: up to date", release.version)),
        (Some(release), Known::Unknown { unknown }) => row("newest", &format!("{} ({unknown})", in_words(release))),
        (None, _) => {
            row("newest", "unknown: the releases were not read yet; `stablehand upgrade --check` asks for them")
        }
    }
    if let Some(pin) = &versions.pin {
        row("pinned", &format!("{pin}, until `stablehand pin --off`"));
    }
    for (index, kept) in versions.kept.iter().enumerate() {
        let database = if kept.database { ", with settings and chats of then" } else { "" };
        let name = if index == 0 { "kept:" } else { "" };
        let text = format!("{} since {}{database}, in {}", kept.version, kept.since, kept.at);
        out.push_str(&format!("{name:<11} {text}\n"));
    }
    if versions.kept.is_empty() {
        out.push_str(&format!("{:<11} nothing: there was no upgrade yet\n", "kept:"));
    }
    let mut row = |name: &str, text: &str| out.push_str(&format!("{:<11} {text}\n", format!("{name}:")));
    if let Some(running) = &versions.running {
        row("under way", &under_way(running));
    }
    if let Some(last) = &versions.last {
        let words = match (&last.failure, last.end.as_str()) {
            (Some(failure), end) => format!("{} to {}: {end}, at {}: {}", last.goal, last.to, last.at, failure.message),
            (None, end) => format!("{} from {} to {}: {end}, at {}", last.goal, last.from, last.to, last.at),
        };
        row("last", &words);
    }
    match (&versions.checked_at, versions.checks) {
        (Some(at), true) => row("asked", &format!("last at {at}, once a day")),
        (Some(at), false) => row("asked", &format!("last at {at}; not by itself (upgrades.check is off)")),
        (None, true) => row("asked", "not yet; once a day"),
        (None, false) => row("asked", "never by itself (upgrades.check is off)"),
    }
    if let Some(release) = versions.latest.as_ref().filter(|_| matches!(versions.newer, Known::Is(true)))
        && !release.notes.is_empty()
    {
        let how = match (&versions.pin, versions.replaceable) {
            (Some(_), _) => "stablehand pin --off, then stablehand upgrade puts it in place",
            (None, true) => "stablehand upgrade puts it in place",
            (None, false) => "stablehand upgrade says how it is put in place",
        };
        out.push_str(&format!("\n{}\n\n{how}\n", release.notes.trim()));
    }
    out
}

/// An upgrade under way, on one line.
pub fn under_way(running: &Upgrade) -> String {
    let bytes = match (running.done_bytes, running.of_bytes) {
        (Some(done), Some(of)) => format!(" ({} of {})", megabytes(done), megabytes(of)),
        (Some(done), None) => format!(" ({})", megabytes(done)),
        (None, _) => String::new(),
    };
    let back = if running.undoing.is_some() { ", going back" } else { "" };
    format!(
        "{} from {} to {}{back}: {}/{} {}{bytes}",
        running.goal, running.from, running.to, running.index, running.of, running.words
    )
}

/// Draws how far a download has come over the last line, where somebody sits before it.
#[derive(Debug, Default)]
pub struct Meter {
    drawn: bool,
}

impl Meter {
    /// Bytes so far.
    pub fn draw(&mut self, done_bytes: u64, of_bytes: Option<u64>) {
        if !std::io::stderr().is_terminal() {
            return;
        }
        let of = of_bytes.map_or_else(String::new, |of| format!(" of {}", megabytes(of)));
        let _nobody_looks = write!(std::io::stderr(), "\r       {}{of}\x1b[K", megabytes(done_bytes));
        self.drawn = true;
    }

    /// Takes the line away.
    pub fn clear(&mut self) {
        if std::mem::take(&mut self.drawn) {
            let _nobody_looks = write!(std::io::stderr(), "\r\x1b[K");
        }
    }
}

fn in_words(release: &Release) -> String {
    let size = match &release.size_bytes {
        Known::Is(bytes) => format!(", {}", megabytes(*bytes)),
        Known::Unknown { .. } => String::new(),
    };
    let testing = if release.prerelease { ", for testing" } else { "" };
    format!("{}{size}{testing}", release.version)
}

fn install_in_words(word: &str) -> &str {
    match word {
        "app" => "Ollama.app",
        "cask" => "Homebrew cask",
        "formula" => "Homebrew formula",
        "tarball" => "release tarball",
        "manual" => "put there by hand",
        other => other,
    }
}

fn megabytes(bytes: u64) -> String {
    format!("{} MB", bytes.div_ceil(1_000_000))
}

#[cfg(test)]
mod tests {
    use super::*;
    use stablehand_protocol::KeptVersion;

    fn versions() -> Versions {
        Versions {
            installed: Known::Is("0.22.1".to_owned()),
            install: Known::Is(Some("app".to_owned())),
            replaceable: true,
            latest: Some(Release {
                version: "0.24.0".to_owned(),
                published: Known::unknown("x"),
                notes: "faster".to_owned(),
                size_bytes: Known::Is(190_000_000),
                prerelease: false,
            }),
            newer: Known::Is(true),
            checked_at: Some("2026-11-30T10:00:00Z".to_owned()),
            unreachable: None,
            pin: None,
            kept: vec![KeptVersion {
                version: "0.21.0".to_owned(),
                at: "/k/0.21.0-a".to_owned(),
                since: "2026-11-01T10:00:00Z".to_owned(),
                database: true,
            }],
            running: None,
            last: None,
            checks: true,
        }
    }

    #[test]
    fn the_page_says_what_is_there_and_what_is_new() {
        let page = page(&versions(), Paint::Plain);
        for words in ["0.22.1 (Ollama.app)", "0.24.0, 190 MB is out", "0.21.0 since", "faster", "once a day"] {
            assert!(page.contains(words), "no «{words}»:\n{page}");
        }
    }

    #[test]
    fn what_is_not_known_is_said_with_its_reason() {
        let unread = Versions {
            installed: Known::unknown("its Info.plist is missing"),
            latest: None,
            newer: Known::unknown("not asked"),
            kept: vec![],
            ..versions()
        };
        let page = page(&unread, Paint::Plain);
        assert!(page.contains("unknown: its Info.plist is missing"), "{page}");
        assert!(page.contains("--check` asks for them"), "{page}");
    }
}
