//! Bearer keys: a file of names and keys that nobody else can read, and a comparison that tells nothing by its time.

use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderName, HeaderValue};
use std::collections::BTreeMap;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use subtle::ConstantTimeEq;

/// Where Anthropic's clients put theirs.
const API_KEY: HeaderName = HeaderName::from_static("x-api-key");
/// A shorter key can be guessed.
const KEY_BYTES: usize = 16;

/// Keys, and whose they are.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Keys {
    keys: Vec<(Arc<str>, String)>,
}

impl std::fmt::Debug for Keys {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_list().entries(self.keys.iter().map(|(name, _)| name)).finish()
    }
}

/// Why a file of keys is not taken.
#[derive(Debug, thiserror::Error)]
pub enum KeysError {
    /// It cannot be read.
    #[error("cannot be read: {0}")]
    Unreadable(#[from] io::Error),
    /// Others can read it.
    #[error("can be read by others, its mode is {mode:o}; `chmod 600` it")]
    Open {
        /// Its mode.
        mode: u32,
    },
    /// It is somebody else's.
    #[error("belongs to uid {0}")]
    Foreign(u32),
    /// It does not hold keys.
    #[error("does not hold lines NAME = \"KEY\": {0}")]
    Malformed(String),
    /// A key is too short.
    #[error("has a key for «{0}» that is shorter than {KEY_BYTES} bytes")]
    Short(String),
}

impl Keys {
    /// Reads a file.
    ///
    /// # Errors
    /// A [`KeysError`] when it cannot be read or should not be used.
    pub fn read(path: &Path, uid: u32) -> Result<Self, KeysError> {
        let about = std::fs::metadata(path)?;
        if about.uid() != uid {
            return Err(KeysError::Foreign(about.uid()));
        }
        if about.mode() & 0o077 != 0 {
            return Err(KeysError::Open { mode: about.mode() & 0o777 });
        }
        Self::parse(&std::fs::read_to_string(path)?)
    }

    fn parse(text: &str) -> Result<Self, KeysError> {
        // What the parser says of a line could hold a key.
        let table: BTreeMap<String, String> = toml_edit::de::from_str(text).map_err(|error| {
            let line = error.span().map_or(0, |span| text.get(..span.start).unwrap_or(text).matches('\n').count() + 1);
            KeysError::Malformed(format!("line {line}"))
        })?;
        if let Some((name, _)) = table.iter().find(|(_, key)| key.len() < KEY_BYTES) {
            return Err(KeysError::Short(name.clone()));
        }
        Ok(Self { keys: table.into_iter().map(|(name, key)| (Arc::from(name), key)).collect() })
    }

    /// Whose key a request carries, if it carries one of these. Every key is compared, whichever fits.
    pub fn owner(&self, headers: &HeaderMap) -> Option<Arc<str>> {
        if self.keys.is_empty() {
            return None;
        }
        let told =
            headers.get(AUTHORIZATION).and_then(bearer).or_else(|| headers.get(API_KEY).map(HeaderValue::as_bytes))?;
        let mut owner = None;
        for (name, key) in &self.keys {
            if bool::from(key.as_bytes().ct_eq(told)) {
                owner = Some(name.clone());
            }
        }
        owner
    }
}

fn bearer(value: &HeaderValue) -> Option<&[u8]> {
    let (scheme, key) = value.as_bytes().split_at_checked(7)?;
    scheme.eq_ignore_ascii_case(b"bearer ").then(|| key.trim_ascii())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    const TEXT: &str = "chat = \"0123456789abcdef\"\nnight = \"fedcba9876543210\"\n";

    fn headers(name: &'static str, value: &'static str) -> HeaderMap {
        HeaderMap::from_iter([(HeaderName::from_static(name), HeaderValue::from_static(value))])
    }

    #[test]
    fn a_key_tells_whose_request_it_is() {
        let keys = Keys::parse(TEXT).unwrap();
        let owner = |name, value| keys.owner(&headers(name, value)).map(|name| name.to_string());
        assert_eq!(owner("authorization", "Bearer fedcba9876543210").as_deref(), Some("night"));
        assert_eq!(owner("authorization", "bearer  0123456789abcdef ").as_deref(), Some("chat"));
        assert_eq!(owner("x-api-key", "0123456789abcdef").as_deref(), Some("chat"));
        for wrong in ["Bearer 0123456789abcdeX", "Bearer 0123456789abcde", "Bearer ", "Basic 0123456789abcdef", ""] {
            assert_eq!(owner("authorization", wrong), None, "{wrong}");
        }
        assert_eq!(Keys::default().owner(&headers("authorization", "Bearer ")), None);
    }

    #[test]
    fn a_file_that_others_can_read_is_not_used() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("keys.toml");
        std::fs::write(&path, TEXT).unwrap();
        let uid = std::fs::metadata(&path).unwrap().uid();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
        assert!(matches!(Keys::read(&path, uid), Err(KeysError::Open { mode: 0o640 })));
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        assert_eq!(Keys::read(&path, uid).unwrap(), Keys::parse(TEXT).unwrap());
        assert!(matches!(Keys::read(&path, uid + 1), Err(KeysError::Foreign(_))));
    }

    #[test]
    fn what_is_said_of_a_bad_file_or_shown_of_a_good_one_holds_no_key() {
        let error = Keys::parse("a = \"0123456789abcdef\"\nb = topsecretvalue\n").unwrap_err().to_string();
        assert!(error.ends_with("line 2"), "{error}");
        assert!(matches!(Keys::parse("a = \"short\"\n"), Err(KeysError::Short(_))));
        assert_eq!(format!("{:?}", Keys::parse(TEXT).unwrap()), "[\"chat\", \"night\"]");
    }
}
