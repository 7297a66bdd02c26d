//! Asking for releases.

use super::answer::{Answer, ETag, Limit};
use super::link::{Link, NotAsked, Terms};
use super::{ANSWER_LONGEST_BYTES, Release, Releases, SUMS, Sums, path_of, path_of_list};
use crate::version::Version;
use reqwest::header::{ACCEPT, HeaderMap, HeaderValue, IF_NONE_MATCH};
use stablehand_engine::time::Wall;
use stablehand_engine::upgrade::found::Unreachable;

/// The longest file of hashes worth reading.
const SUMS_LONGEST_BYTES: usize = 256 << 10;

/// Where releases come from: GitHub, a mirror, or a server on this computer.
#[derive(Clone, Debug)]
pub struct Source {
    pub(super) link: Link,
}

/// What came of a question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Asked {
    /// Releases.
    Releases {
        /// What was read.
        releases: Releases,
        /// To be sent with the next question of the same kind.
        etag: Option<ETag>,
        /// What is left of the limit.
        limit: Option<Limit>,
    },
    /// Nothing has changed since the state that was sent.
    NotModified {
        /// What is left of the limit.
        limit: Option<Limit>,
    },
    /// There is no such release.
    Missing,
    /// No answer that helps.
    Unreachable(Unreachable),
}

impl Source {
    /// Releases below that address ([`super::BASE`], or one that answers as GitHub does). Proxies of the environment
    /// (`HTTPS_PROXY`, `ALL_PROXY`, `NO_PROXY`) and of macOS are honoured for everything but this computer itself.
    ///
    /// # Errors
    /// [`NotAsked`] for an address that is none, or that is neither https nor on this computer.
    pub fn new(base: &str, terms: Terms) -> Result<Self, NotAsked> {
        Link::new(base, terms).map(|link| Self { link })
    }

    /// The newest releases. `state` is the one that an answer brought before; `now` is the time that limits are counted
    /// from.
    pub async fn list(&self, at_most: u8, state: Option<&ETag>, now: Wall) -> Asked {
        self.ask(&path_of_list(at_most), state, now).await
    }

    /// One release.
    pub async fn one(&self, version: Version, state: Option<&ETag>, now: Wall) -> Asked {
        self.ask(&path_of(version), state, now).await
    }

    async fn ask(&self, path: &str, state: Option<&ETag>, now: Wall) -> Asked {
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, HeaderValue::from_static("application/vnd.github+json"));
        headers.insert("x-github-api-version", HeaderValue::from_static("2022-11-28"));
        if let Some(Ok(state)) = state.map(|state| HeaderValue::from_str(state.as_str())) {
            headers.insert(IF_NONE_MATCH, state);
        }
        let response = match self.link.below(path, &headers).await {
            Ok(response) => response,
            Err(why) => return Asked::Unreachable(why),
        };
        match Answer::read(response.status().as_u16(), response.headers(), now) {
            Answer::Body { etag, limit } => match self.link.body(response, ANSWER_LONGEST_BYTES).await {
                Ok(body) => match Releases::read(&body) {
                    Ok(releases) => Asked::Releases { releases, etag, limit },
                    Err(why) => Asked::Unreachable(Unreachable::Other(why.to_string())),
                },
                Err(why) => Asked::Unreachable(why),
            },
            Answer::NotModified { limit } => Asked::NotModified { limit },
            Answer::Missing => Asked::Missing,
            Answer::Unreachable(why) => Asked::Unreachable(why),
        }
    }

    /// The hashes of a release's files. None where the release has no such file; that a hash is missing is then told of
    /// the file that needs it.
    ///
    /// # Errors
    /// [`Unreachable`] when the file is there and could not be read.
    pub async fn sums(&self, release: &Release, now: Wall) -> Result<Sums, Unreachable> {
        let Some(file) = release.file(SUMS) else { return Ok(Sums::default()) };
        let response = self.link.get(&file.url, &HeaderMap::new()).await?;
        match Answer::read(response.status().as_u16(), response.headers(), now) {
            Answer::Body { .. } => Ok(Sums::read(&self.link.body(response, SUMS_LONGEST_BYTES).await?)),
            Answer::NotModified { .. } | Answer::Missing => Ok(Sums::default()),
            Answer::Unreachable(why) => Err(why),
        }
    }
}
