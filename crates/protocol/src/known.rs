//! Unknown as a value: a known value is written plainly, an unknown one as `{"unknown": "reason"}`.

use serde::{Deserialize, Serialize};

/// A fact, or why it could not be had.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "types", derive(ts_rs::TS), ts(export_to = "protocol.ts"))]
#[serde(untagged)]
pub enum Known<T> {
    /// It could not be read.
    Unknown {
        /// Why.
        unknown: String,
    },
    /// The fact.
    Is(T),
}

impl<T> Known<T> {
    /// An unknown with its reason.
    pub fn unknown(reason: impl Into<String>) -> Self {
        Self::Unknown { unknown: reason.into() }
    }

    /// The fact, when there is one.
    pub fn known(&self) -> Option<&T> {
        match self {
            Self::Is(value) => Some(value),
            Self::Unknown { .. } => None,
        }
    }

    /// The reason, when there is no fact.
    pub fn reason(&self) -> Option<&str> {
        match self {
            Self::Is(_) => None,
            Self::Unknown { unknown } => Some(unknown),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_known_value_is_plain_and_an_unknown_one_carries_its_reason() {
        let known: Known<Option<String>> = Known::Is(Some("1".to_owned()));
        let unset: Known<Option<String>> = Known::Is(None);
        let unknown: Known<Option<String>> = Known::unknown("the log holds no config line");
        assert_eq!(serde_json::to_string(&known).unwrap(), r#""1""#);
        assert_eq!(serde_json::to_string(&unset).unwrap(), "null");
        assert_eq!(serde_json::to_string(&unknown).unwrap(), r#"{"unknown":"the log holds no config line"}"#);
        for value in [known, unset, unknown] {
            let text = serde_json::to_string(&value).unwrap();
            assert_eq!(serde_json::from_str::<Known<Option<String>>>(&text).unwrap(), value);
        }
    }
}
