//! Unknown is a value: what could not be read carries the reason, and is never taken for unset, zero or well.

/// A fact, or why it could not be had.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Known<T> {
    /// The fact as it was read.
    Is(T),
    /// It could not be read; the reason is a phrase a person understands ("the log holds no config line").
    Unknown(String),
}

impl<T> Known<T> {
    /// An unknown with its reason.
    pub fn unknown(reason: impl Into<String>) -> Self {
        Self::Unknown(reason.into())
    }

    /// The fact, when there is one.
    pub fn known(&self) -> Option<&T> {
        match self {
            Self::Is(value) => Some(value),
            Self::Unknown(_) => None,
        }
    }

    /// The reason, when there is no fact.
    pub fn reason(&self) -> Option<&str> {
        match self {
            Self::Is(_) => None,
            Self::Unknown(reason) => Some(reason),
        }
    }

    /// The same state of knowledge about something derived from the fact.
    pub fn map<U>(self, derive: impl FnOnce(T) -> U) -> Known<U> {
        match self {
            Self::Is(value) => Known::Is(derive(value)),
            Self::Unknown(reason) => Known::Unknown(reason),
        }
    }

    /// Borrows the fact.
    pub fn as_ref(&self) -> Known<&T> {
        match self {
            Self::Is(value) => Known::Is(value),
            Self::Unknown(reason) => Known::Unknown(reason.clone()),
        }
    }
}

impl<T, E: std::fmt::Display> From<Result<T, E>> for Known<T> {
    fn from(result: Result<T, E>) -> Self {
        match result {
            Ok(value) => Self::Is(value),
            Err(error) => Self::Unknown(error.to_string()),
        }
    }
}
