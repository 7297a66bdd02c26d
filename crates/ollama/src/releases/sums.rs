//! `sha256sum.txt` of a release: lines of `sha256sum`, a hash, two spaces and `./NAME`
//! (`ollama .github/workflows/release.yaml`).

use std::collections::BTreeMap;

/// The longest file worth reading; a release has some twenty files.
const LONGEST_BYTES: usize = 256 << 10;

/// The hashes of a release's files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sums {
    /// By name; `None` where a name has two different hashes.
    by_name: BTreeMap<String, Option<String>>,
}

/// Why there is no hash of a file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoSum {
    /// The file is not named.
    #[error("sha256sum.txt does not name it")]
    Missing,
    /// It is named twice, with different hashes.
    #[error("sha256sum.txt names two different hashes of it")]
    Twice,
}

impl Sums {
    /// Reads the file. Lines that are none of `sha256sum`'s are passed over.
    pub fn read(text: &[u8]) -> Self {
        let text = String::from_utf8_lossy(&text[..text.len().min(LONGEST_BYTES)]);
        let mut sums = Self::default();
        for (hash, name) in text.lines().filter_map(line) {
            sums.by_name
                .entry(name.to_owned())
                .and_modify(|known| {
                    if known.as_deref() != Some(hash.as_str()) {
                        *known = None;
                    }
                })
                .or_insert(Some(hash));
        }
        sums
    }

    /// The hash of a file, in lower-case hex.
    ///
    /// # Errors
    /// [`NoSum`] when there is none, or no single one.
    pub fn of(&self, name: &str) -> Result<&str, NoSum> {
        match self.by_name.get(name) {
            Some(Some(hash)) => Ok(hash),
            Some(None) => Err(NoSum::Twice),
            None => Err(NoSum::Missing),
        }
    }
}

/// `HASH  ./NAME`; a `*` before the name marks a file read as bytes.
fn line(line: &str) -> Option<(String, &str)> {
    let (hash, name) = line.split_once(' ')?;
    let name = name.strip_prefix([' ', '*'])?.trim_end_matches('\r');
    let name = name.strip_prefix("./").unwrap_or(name);
    let is_hash = hash.len() == 64 && hash.bytes().all(|byte| byte.is_ascii_hexdigit());
    (is_hash && !name.is_empty()).then(|| (hash.to_ascii_lowercase(), name))
}
