//! Which headers travel on: all of them, except those that are about one connection (RFC 9110 §7.6.1).

use http::header::{CONNECTION, CONTENT_LENGTH, HOST, TE, TRANSFER_ENCODING, UPGRADE};
use http::{HeaderMap, HeaderName, HeaderValue};

const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");
const PROXY_CONNECTION: HeaderName = HeaderName::from_static("proxy-connection");

/// About one connection, whatever [`CONNECTION`] names beside them.
const HOP_BY_HOP: [HeaderName; 5] = [KEEP_ALIVE, PROXY_CONNECTION, TE, TRANSFER_ENCODING, UPGRADE];

/// How long a request waited for its turn, in milliseconds.
pub const QUEUED_MS: HeaderName = HeaderName::from_static("x-stablehand-queued-ms");
/// Its place when it came, from 1; 0 for one that did not wait.
pub const POSITION: HeaderName = HeaderName::from_static("x-stablehand-position");
/// Its lane: told by a client that wants another one, and told back.
pub const LANE: HeaderName = HeaderName::from_static("x-stablehand-lane");
/// After how many milliseconds its client would give up.
pub const DEADLINE_MS: HeaderName = HeaderName::from_static("x-stablehand-deadline-ms");
/// Who asks, as the client names itself.
pub const CLIENT: HeaderName = HeaderName::from_static("x-stablehand-client");
/// What an alias or a pin changed in the request's body.
pub const CHANGED: HeaderName = HeaderName::from_static("x-stablehand-changed");

/// Takes out what concerns the connection alone. Says whether the sender reads trailers.
pub fn drop_hop_by_hop(headers: &mut HeaderMap) -> bool {
    // Most messages have none of them, and looking once costs less than looking for each.
    if !headers.keys().any(|name| *name == CONNECTION || HOP_BY_HOP.contains(name)) {
        return false;
    }
    let trailers = headers.get_all(TE).iter().any(|value| {
        value.to_str().is_ok_and(|value| value.split(',').any(|one| one.trim().eq_ignore_ascii_case("trailers")))
    });
    if headers.contains_key(CONNECTION) {
        let named: Vec<HeaderName> = headers
            .get_all(CONNECTION)
            .iter()
            .filter_map(|value| value.to_str().ok())
            .flat_map(|value| value.split(','))
            .filter_map(|name| HeaderName::from_bytes(name.trim().as_bytes()).ok())
            // Whom a message is for and where it ends is not the sender's to take away on the way.
            .filter(|name| *name != HOST && *name != CONTENT_LENGTH)
            .collect();
        for name in named {
            headers.remove(name);
        }
        headers.remove(CONNECTION);
    }
    for name in HOP_BY_HOP {
        headers.remove(name);
    }
    trailers
}

/// A number as a header's value.
pub fn number(value: u64) -> HeaderValue {
    if value == 0 { HeaderValue::from_static("0") } else { HeaderValue::from(value) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(lines: &[(&'static str, &'static str)]) -> HeaderMap {
        let pairs = lines.iter().map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)));
        pairs.collect()
    }

    #[test]
    fn what_concerns_one_connection_stays_and_all_else_travels() {
        let mut all = headers(&[
            ("connection", "close, X-Private"),
            ("keep-alive", "timeout=5"),
            ("proxy-connection", "keep-alive"),
            ("te", "gzip, Trailers"),
            ("transfer-encoding", "chunked"),
            ("upgrade", "h2c"),
            ("x-private", "1"),
            ("trailer", "x-sum"),
            ("authorization", "Bearer k"),
            ("x-other", "2"),
        ]);
        assert!(drop_hop_by_hop(&mut all));
        assert_eq!(all, headers(&[("trailer", "x-sum"), ("authorization", "Bearer k"), ("x-other", "2")]));
    }

    #[test]
    fn a_connection_header_takes_away_neither_host_nor_length() {
        let mut all =
            headers(&[("connection", "host, content-length"), ("host", "localhost"), ("content-length", "3")]);
        assert!(!drop_hop_by_hop(&mut all));
        assert_eq!(all, headers(&[("host", "localhost"), ("content-length", "3")]));
    }
}
