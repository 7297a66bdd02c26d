//! What status and headers of an answer of GitHub mean ("Rate limits for the REST API", "Best practices" in GitHub's
//! REST documentation).

use hyper::HeaderMap;
use hyper::header::{ETAG, RETRY_AFTER};
use stablehand_engine::time::Wall;
use stablehand_engine::upgrade::found::Unreachable;

/// The longest wait that an answer is believed to ask for. GitHub counts by the hour.
const WAIT_LONGEST_SECONDS: u64 = 24 * 3600;
/// The longest `ETag` that is kept.
const ETAG_LONGEST_BYTES: usize = 256;

/// The state of what was answered, to be sent back as `If-None-Match`: an answer of 304 costs nothing of the limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ETag(String);

impl ETag {
    /// The value of the header, where it is one that can be kept and sent.
    pub fn new(value: &str) -> Option<Self> {
        let fits = (2..=ETAG_LONGEST_BYTES).contains(&value.len()) && value.ends_with('"');
        (fits && value.bytes().all(|byte| byte.is_ascii_graphic())).then(|| Self(value.to_owned()))
    }

    /// The value of `If-None-Match`.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// What is left of the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// Questions that are answered until it is counted anew.
    pub remaining: u64,
    /// Seconds until then.
    pub reset_seconds: u64,
}

/// What an answer is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// A body to be read.
    Body {
        /// Its state.
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

impl Answer {
    /// What status and headers mean at this time. Redirects are followed by whoever asks; one that arrives here led
    /// nowhere.
    pub fn read(status: u16, headers: &HeaderMap, now: Wall) -> Self {
        let limit = limit(headers, now);
        match status {
            200 => Self::Body { etag: text(headers, ETAG.as_str()).and_then(ETag::new), limit },
            304 => Self::NotModified { limit },
            404 => Self::Missing,
            407 => Self::Unreachable(Unreachable::Proxy),
            // 403 stands for a spent limit and for a plain refusal; the headers tell them apart.
            403 | 429 => match (retry_after(headers), limit) {
                (Some(seconds), _) => rate_limited(Some(seconds)),
                (None, Some(Limit { remaining: 0, reset_seconds })) => rate_limited(Some(reset_seconds)),
                (None, Some(_) | None) if status == 429 => rate_limited(None),
                (None, Some(_) | None) => other(status),
            },
            status => other(status),
        }
    }
}

fn rate_limited(wait_seconds: Option<u64>) -> Answer {
    Answer::Unreachable(Unreachable::RateLimited { wait_seconds })
}

fn other(status: u16) -> Answer {
    Answer::Unreachable(Unreachable::Other(format!("the server answered {status}")))
}

fn limit(headers: &HeaderMap, now: Wall) -> Option<Limit> {
    let remaining = number(headers, "x-ratelimit-remaining")?;
    let reset_ms = i64::try_from(number(headers, "x-ratelimit-reset")?.checked_mul(1000)?).ok()?;
    let wait = Wall::from_unix_ms(reset_ms) - now;
    Some(Limit { remaining, reset_seconds: wait.as_secs().min(WAIT_LONGEST_SECONDS) })
}

/// Seconds alone; GitHub writes no date here.
fn retry_after(headers: &HeaderMap) -> Option<u64> {
    number(headers, RETRY_AFTER.as_str()).map(|seconds| seconds.min(WAIT_LONGEST_SECONDS))
}

fn number(headers: &HeaderMap, name: &str) -> Option<u64> {
    crate::parse::unsigned(text(headers, name)?.trim())
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}
