//! Whether a new release is put in place without a person.

/// What is known when a new release is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chance<'a> {
    /// A person has said that it may be done.
    pub wished: bool,
    /// The release.
    pub version: &'a str,
    /// The version to stay on.
    pub pin: Option<&'a str>,
    /// The version whose upgrade did not succeed last. It would be taken back again, and cost everybody a restart each
    /// time; a person may try it, and a newer one is tried.
    pub taken_back: Option<&'a str>,
    /// It is known that no request is worked on or waits.
    pub nobody_waits: bool,
}

impl Chance<'_> {
    /// Whether it is taken.
    pub fn is_taken(&self) -> bool {
        self.wished && self.pin.is_none() && self.taken_back != Some(self.version) && self.nobody_waits
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: Chance<'_> =
        Chance { wished: true, version: "0.24.0", pin: None, taken_back: Some("0.23.0"), nobody_waits: true };

    #[test]
    fn it_is_taken_when_it_is_wished_and_disturbs_nobody() {
        assert!(GOOD.is_taken());
        assert!(!Chance { wished: false, ..GOOD }.is_taken());
        assert!(!Chance { nobody_waits: false, ..GOOD }.is_taken());
        assert!(!Chance { pin: Some("0.22.1"), ..GOOD }.is_taken());
    }

    #[test]
    fn what_was_taken_back_is_not_tried_again_by_itself() {
        assert!(!Chance { taken_back: Some("0.24.0"), ..GOOD }.is_taken());
    }
}
