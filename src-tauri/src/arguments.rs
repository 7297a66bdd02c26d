//! The command line: nothing, `--open`, or `notify KIND`.

/// What this copy was started for; the first copy does it, whichever was asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wish {
    /// Stand in the menu bar.
    Stand,
    /// Open the popover.
    Open,
    /// Post a notification about an alert of this kind.
    Notify(String),
    /// The same, and nothing where no copy runs yet: what a daemon asks for that has no bundle to open.
    NotifyIfThere(String),
}

/// How the program is called.
pub const USAGE: &str = "usage: stablehand-tray [--open | notify KIND [--if-there]]

  --open        open the window at once
  notify KIND   post a notification about the newest alert of that kind
  --if-there    only where a copy runs; ends with 3 where none does

A copy that runs already does it, and this one ends. STABLEHAND_WORLD=DIR shows the simulated machine in DIR.
";

impl Wish {
    /// Reads the arguments after the program's name.
    ///
    /// # Errors
    /// The argument that is not understood.
    pub fn parse(arguments: &[String]) -> Result<Self, String> {
        match arguments {
            [] => Ok(Self::Stand),
            [only] if only == "--open" => Ok(Self::Open),
            [verb, kind] if verb == "notify" && is_kind(kind) => Ok(Self::Notify(kind.clone())),
            [verb, kind, only] if verb == "notify" && is_kind(kind) && only == "--if-there" => {
                Ok(Self::NotifyIfThere(kind.clone()))
            }
            [first, ..] => Err(first.clone()),
        }
    }

    /// As one line for the first copy. A second copy that was only started wants to be seen.
    pub fn line(&self) -> String {
        match self {
            Self::Stand | Self::Open => "open\n".to_owned(),
            Self::Notify(kind) | Self::NotifyIfThere(kind) => format!("notify {kind}\n"),
        }
    }

    /// Reads such a line.
    pub fn from_line(line: &str) -> Option<Self> {
        match line.trim_end().split_once(' ') {
            None if line.trim_end() == "open" => Some(Self::Open),
            Some(("notify", kind)) if is_kind(kind) => Some(Self::Notify(kind.to_owned())),
            Some(_) | None => None,
        }
    }
}

/// Kinds of alerts are words in kebab-case.
fn is_kind(text: &str) -> bool {
    !text.is_empty() && text.len() <= 64 && text.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(arguments: &[&str]) -> Result<Wish, String> {
        Wish::parse(&arguments.iter().map(ToString::to_string).collect::<Vec<_>>())
    }

    #[test]
    fn what_is_asked_survives_the_way_to_the_first_copy() {
        assert_eq!(parse(&[]), Ok(Wish::Stand));
        for arguments in [&["--open"][..], &["notify", "memory-budget"]] {
            let wish = parse(arguments).unwrap();
            assert_eq!(Wish::from_line(&wish.line()), Some(wish));
        }
        assert_eq!(Wish::from_line(&Wish::Stand.line()), Some(Wish::Open));
    }

    #[test]
    fn anything_else_is_refused() {
        assert_eq!(parse(&["--opne"]), Err("--opne".to_owned()));
        assert_eq!(parse(&["notify"]), Err("notify".to_owned()));
        assert!(parse(&["notify", "a b"]).is_err() && parse(&["notify", "x\nopen"]).is_err());
        assert_eq!(Wish::from_line("quit\n"), None);
        assert_eq!(Wish::from_line("notify X\n"), None);
    }
}
