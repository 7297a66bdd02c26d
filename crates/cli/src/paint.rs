//! Colours, only where they are wanted: on a terminal, and never with `NO_COLOR`.

use std::io::IsTerminal;

/// How text is painted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Paint {
    /// As it is.
    Plain,
    /// With ANSI colours.
    Coloured,
}

impl Paint {
    /// What suits stdout.
    pub fn for_stdout() -> Self {
        Self::choose(
            std::io::stdout().is_terminal(),
            std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty()),
        )
    }

    fn choose(terminal: bool, no_color: bool) -> Self {
        if terminal && !no_color { Self::Coloured } else { Self::Plain }
    }

    /// All is well.
    pub fn good(self, text: &str) -> String {
        self.with("32", text)
    }

    /// Something differs or is missing.
    pub fn bad(self, text: &str) -> String {
        self.with("31", text)
    }

    /// Something is not known.
    pub fn doubtful(self, text: &str) -> String {
        self.with("33", text)
    }

    /// A heading.
    pub fn strong(self, text: &str) -> String {
        self.with("1", text)
    }

    /// Less important.
    pub fn faint(self, text: &str) -> String {
        self.with("2", text)
    }

    fn with(self, code: &str, text: &str) -> String {
        match self {
            Self::Plain => text.to_owned(),
            Self::Coloured if text.is_empty() => String::new(),
            Self::Coloured => format!("\x1b[{code}m{text}\x1b[0m"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_need_a_terminal_and_no_objection() {
        assert_eq!(Paint::choose(true, false), Paint::Coloured);
        assert_eq!(Paint::choose(true, true), Paint::Plain);
        assert_eq!(Paint::choose(false, false), Paint::Plain);
        assert_eq!(Paint::Plain.bad("x"), "x");
        assert_eq!(Paint::Coloured.bad("x"), "\x1b[31mx\x1b[0m");
    }
}
