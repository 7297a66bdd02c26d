//! `OLLAMA_HOST` as the server reads it (`ollama envconfig/config.go`, `Host`): every half of an address is filled up
//! or replaced in its own way, and nothing is refused.

use crate::parse::{Signed, signed, stripped};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// The address that a value of `OLLAMA_HOST` means to the server. Shown as the server shows it
/// (`http://127.0.0.1:11434`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostAddress {
    /// `http` unless the value names another.
    pub scheme: String,
    /// A name or address without brackets; empty means every interface.
    pub host: String,
    /// The port.
    pub port: u16,
    /// What followed the first `/`; the server ignores it when it listens.
    pub path: String,
    /// The port text that the server would replace by its default, if it did.
    pub replaced_port: Option<String>,
    /// Whether the value names a port itself, valid or not.
    pub names_port: bool,
    port_text: String,
}

/// Ollama's port when nobody names one.
pub const DEFAULT_PORT: u16 = 11434;

impl HostAddress {
    /// Reads a value as the server does. Never fails: the server fills up what is missing and replaces a bad port.
    pub fn parse(raw: &str) -> Self {
        let text = stripped(raw).trim();
        let (scheme, rest, default_port) = match text.split_once("://") {
            None if text == "ollama.com" => ("https", "ollama.com:443", DEFAULT_PORT),
            None => ("http", text, DEFAULT_PORT),
            Some(("http", rest)) => ("http", rest, 80),
            Some(("https", rest)) => ("https", rest, 443),
            Some((other, rest)) => (other, rest, DEFAULT_PORT),
        };
        let (host_port, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (host, port_text, names_port) = match split_host_port(host_port) {
            Some((host, port)) => (host.to_owned(), port.to_owned(), true),
            None => (lone_host(host_port), default_port.to_string(), false),
        };
        let valid = match signed(&port_text) {
            Signed::Is(port) => u16::try_from(port).ok(),
            Signed::Beyond(_) | Signed::None => None,
        };
        let replaced_port = if valid.is_none() { Some(port_text.clone()) } else { None };
        Self {
            scheme: scheme.to_owned(),
            host,
            port: valid.unwrap_or(default_port),
            path: path.to_owned(),
            port_text: if valid.is_some() { port_text } else { default_port.to_string() },
            replaced_port,
            names_port,
        }
    }

    /// Whether the server listens on every interface.
    pub fn is_every_interface(&self) -> bool {
        self.host.is_empty() || self.host.parse::<IpAddr>().is_ok_and(|address| address.is_unspecified())
    }

    /// Where a client on this machine reaches the server over loopback; `None` when it listens elsewhere only.
    pub fn loopback(&self) -> Option<SocketAddr> {
        let address = match self.host.parse::<IpAddr>() {
            Ok(IpAddr::V4(address)) if address.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
            Ok(IpAddr::V6(address)) if address.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
            Ok(address) if address.is_loopback() => address,
            Ok(_) => return None,
            Err(_) if self.host.is_empty() || self.host.eq_ignore_ascii_case("localhost") => {
                IpAddr::V4(Ipv4Addr::LOCALHOST)
            }
            Err(_) => return None,
        };
        Some(SocketAddr::new(address, self.port))
    }
}

impl fmt::Display for HostAddress {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { scheme, host, port_text, path, .. } = self;
        if host.contains(':') {
            write!(out, "{scheme}://[{host}]:{port_text}")?;
        } else {
            write!(out, "{scheme}://{host}:{port_text}")?;
        }
        if path.is_empty() { Ok(()) } else { write!(out, "/{}", path.trim_start_matches('/')) }
    }
}

/// `net.SplitHostPort`: `None` where Go reports an error (no port, too many colons, stray brackets).
fn split_host_port(text: &str) -> Option<(&str, &str)> {
    let (host, port) = text.rsplit_once(':')?;
    let host = match host.strip_prefix('[') {
        Some(inner) => inner.strip_suffix(']')?,
        None if host.contains(':') => return None,
        None => host,
    };
    let stray = |part: &str| part.contains(['[', ']']);
    if stray(host) || stray(port) { None } else { Some((host, port)) }
}

/// What the server makes of a value without a port.
fn lone_host(text: &str) -> String {
    match text.trim_matches(['[', ']']).parse::<IpAddr>() {
        Ok(IpAddr::V6(address)) => match address.to_ipv4_mapped() {
            Some(mapped) => mapped.to_string(),
            None => address.to_string(),
        },
        Ok(IpAddr::V4(address)) => address.to_string(),
        Err(_) if text.is_empty() => Ipv4Addr::LOCALHOST.to_string(),
        Err(_) => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_is_shown_as_the_server_shows_it() {
        for (raw, shown) in [
            ("", "http://127.0.0.1:11434"),
            ("0.0.0.0", "http://0.0.0.0:11434"),
            ("localhost:1234", "http://localhost:1234"),
            ("http://127.0.0.1:99999", "http://127.0.0.1:80"),
            (":1235", "http://:1235"),
            ("127.0.0.1:", "http://127.0.0.1:11434"),
            ("127.0.0.1:0", "http://127.0.0.1:0"),
            ("::1", "http://[::1]:11434"),
            ("[::1]", "http://[::1]:11434"),
            ("[::1]:1236", "http://[::1]:1236"),
            ("::", "http://[::]:11434"),
            ("http://127.0.0.1", "http://127.0.0.1:80"),
            ("https://127.0.0.1:1238", "https://127.0.0.1:1238"),
            ("127.0.0.1:abc", "http://127.0.0.1:11434"),
            ("127.0.0.1:-1", "http://127.0.0.1:11434"),
            ("127.0.0.1:70000", "http://127.0.0.1:11434"),
            ("1239", "http://1239:11434"),
            (" 127.0.0.1:1240 ", "http://127.0.0.1:1240"),
            ("\"127.0.0.1:1241\"", "http://127.0.0.1:1241"),
            ("http://127.0.0.1:1242/api", "http://127.0.0.1:1242/api"),
            ("127.0.0.1:1243/", "http://127.0.0.1:1243"),
            ("HTTP://127.0.0.1:1247", "HTTP://127.0.0.1:1247"),
            ("tcp://127.0.0.1:1248", "tcp://127.0.0.1:1248"),
            ("::ffff:127.0.0.1", "http://127.0.0.1:11434"),
            ("ollama.com", "https://ollama.com:443"),
        ] {
            assert_eq!(HostAddress::parse(raw).to_string(), shown, "{raw:?}");
        }
    }

    #[test]
    fn a_client_of_this_machine_goes_over_loopback_or_not_at_all() {
        for (raw, reached) in [
            ("", Some("127.0.0.1:11434")),
            (":1235", Some("127.0.0.1:1235")),
            ("0.0.0.0:9", Some("127.0.0.1:9")),
            ("[::]:9", Some("[::1]:9")),
            ("LOCALHOST", Some("127.0.0.1:11434")),
            ("127.0.0.2:9", Some("127.0.0.2:9")),
            ("192.168.1.5", None),
            ("studio.local:11434", None),
        ] {
            assert_eq!(HostAddress::parse(raw).loopback(), reached.map(|text| text.parse().unwrap()), "{raw:?}");
        }
    }

    #[test]
    fn a_port_that_the_server_would_replace_is_told() {
        assert_eq!(HostAddress::parse("127.0.0.1:abc").replaced_port.as_deref(), Some("abc"));
        assert_eq!(HostAddress::parse("127.0.0.1").replaced_port, None);
    }
}
