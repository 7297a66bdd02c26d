//! Lists that a person chooses from by name: what they are called, and one line about each.

/// Declares an enum whose variants have a kebab-case name and a line of words.
macro_rules! named {
    (
        $(#[$doc:meta])*
        pub enum $Name:ident { $($(#[$note:meta])* $variant:ident = $name:literal: $words:literal,)+ }
    ) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $Name {
            $($(#[$note])* #[doc = $words] $variant,)+
        }

        impl $Name {
            /// Every one, in the order in which they are listed.
            pub const ALL: &[Self] = &[$(Self::$variant,)+];

            /// The name it is chosen by.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)+
                }
            }

            /// One line about it.
            pub fn words(self) -> &'static str {
                match self {
                    $(Self::$variant => $words,)+
                }
            }

            /// The one of that name.
            pub fn named(name: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|one| one.name() == name)
            }

            /// All names with one line each.
            pub fn list() -> String {
                Self::ALL.iter().map(|one| format!("{:<27} {}\n", one.name(), one.words())).collect()
            }
        }
    };
}

pub(crate) use named;
