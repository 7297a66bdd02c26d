//! Who is let in, by Ollama's own rules: the name in `Host`, the page in `Origin` (`ollama server/routes.go`,
//! `allowedHostsMiddleware`; `envconfig/config.go`, `AllowedOrigins`; gin-contrib/cors).
//!
//! A page in a browser can send anything to a port of this machine. What stops it is that its own name (`Host`, when
//! the name was made to point here) or its own address (`Origin`) gives it away.

use crate::answer::{self, Answer};
use http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN, ACCESS_CONTROL_MAX_AGE,
    ACCESS_CONTROL_REQUEST_METHOD, HOST, ORIGIN, VARY,
};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use std::net::{IpAddr, SocketAddr};

/// What a browser may send along (`server/routes.go`, `corsConfig.AllowHeaders`), in the spelling that Go gives it.
const ALLOWED_HEADERS: &str = "Authorization,Content-Type,User-Agent,Accept,X-Requested-With,Openai-Beta,\
     X-Stainless-Arch,X-Stainless-Async,X-Stainless-Custom-Poll-Interval,X-Stainless-Helper-Method,X-Stainless-Lang,\
     X-Stainless-Os,X-Stainless-Package-Version,X-Stainless-Poll-Helper,X-Stainless-Retry-Count,X-Stainless-Runtime,\
     X-Stainless-Runtime-Version,X-Stainless-Timeout";
/// gin-contrib/cors `config.go`, `DefaultConfig`.
const ALLOWED_METHODS: &str = "GET,POST,PUT,PATCH,DELETE,HEAD,OPTIONS";
const PREFLIGHT_MAX_AGE_S: u64 = 43_200;

/// Hosts whose pages may always ask, with any port or none.
const LOCAL_HOSTS: [&str; 3] = ["localhost", "127.0.0.1", "0.0.0.0"];
/// Other programs' pages that may always ask.
const LOCAL_SCHEMES: [&str; 5] = ["app://", "file://", "tauri://", "vscode-webview://", "vscode-file://"];

/// Pages that may ask.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Origins {
    /// As in `OLLAMA_ORIGINS`, which Ollama knows as well: whole, or with one `*`.
    allowed: Vec<String>,
    /// In the same way, those that the gateway alone lets in.
    ours: Vec<String>,
}

/// What a request is, as far as a browser's rules go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Page {
    /// No page of another place.
    None,
    /// A page that may ask.
    Allowed,
    /// A page that may ask here. Ollama would refuse it, so it does not hear of it.
    Ours,
    /// A page that may not.
    Refused,
}

impl Origins {
    /// With those of `OLLAMA_ORIGINS`, and our own, beside those that may always ask.
    pub fn new(allowed: &[String], ours: &[String]) -> Self {
        let written = |origins: &[String]| origins.iter().map(|origin| origin.trim().to_lowercase()).collect();
        Self { allowed: written(allowed), ours: written(ours) }
    }

    /// Where a request comes from.
    pub fn page(&self, headers: &HeaderMap) -> Page {
        let Some(origin) = headers.get(ORIGIN).map(HeaderValue::as_bytes).filter(|origin| !origin.is_empty()) else {
            return Page::None;
        };
        let Ok(origin) = std::str::from_utf8(origin) else { return Page::Refused };
        let host = headers.get(HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
        let own = ["http://", "https://"].iter().any(|scheme| origin.strip_prefix(scheme) == Some(host));
        let origin = origin.to_lowercase();
        if own && !host.is_empty() {
            Page::None
        } else if is_local(&origin) || is_among(&self.allowed, &origin) {
            Page::Allowed
        } else if is_among(&self.ours, &origin) {
            Page::Ours
        } else {
            Page::Refused
        }
    }

    fn allows_all(&self, page: Page) -> bool {
        let origins = match page {
            Page::Ours => &self.ours,
            Page::None | Page::Allowed | Page::Refused => &self.allowed,
        };
        origins.iter().any(|origin| origin == "*")
    }

    /// What an answer of our own says to a browser, as Ollama's would.
    pub fn mark(&self, page: Page, origin: Option<&HeaderValue>, headers: &mut HeaderMap) {
        match (page, origin) {
            (Page::Allowed | Page::Ours, Some(_)) if self.allows_all(page) => {
                headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, HeaderValue::from_static("*"));
            }
            (Page::Allowed | Page::Ours, Some(origin)) => {
                headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin.clone());
                headers.append(VARY, HeaderValue::from_static("Origin"));
            }
            (Page::None | Page::Refused, _) | (Page::Allowed | Page::Ours, None) => {}
        }
    }

    /// The answer to a browser that asks whether this page may ask.
    pub fn preflight(&self, page: Page, origin: Option<&HeaderValue>) -> Response<Answer> {
        let mut response = answer::empty(StatusCode::NO_CONTENT);
        let headers = response.headers_mut();
        headers.insert(ACCESS_CONTROL_ALLOW_HEADERS, HeaderValue::from_static(ALLOWED_HEADERS));
        headers.insert(ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static(ALLOWED_METHODS));
        headers.insert(ACCESS_CONTROL_MAX_AGE, HeaderValue::from(PREFLIGHT_MAX_AGE_S));
        self.mark(page, origin, headers);
        if !self.allows_all(page) {
            headers.append(VARY, HeaderValue::from_static("Access-Control-Request-Method"));
            headers.append(VARY, HeaderValue::from_static("Access-Control-Request-Headers"));
        }
        response
    }
}

fn is_local(origin: &str) -> bool {
    let local_host = ["http://", "https://"].iter().filter_map(|scheme| origin.strip_prefix(scheme)).any(|rest| {
        let host = rest.split_once(':').map_or(rest, |(host, _)| host);
        LOCAL_HOSTS.contains(&host)
    });
    local_host || LOCAL_SCHEMES.iter().any(|scheme| origin.starts_with(scheme))
}

fn is_among(origins: &[String], origin: &str) -> bool {
    origins.iter().any(|allowed| match allowed.split_once('*') {
        None => allowed == origin,
        Some((before, after)) => {
            origin.len() >= before.len() + after.len() && origin.starts_with(before) && origin.ends_with(after)
        }
    })
}

/// Whether a browser asks whether it may ask.
pub fn is_preflight<B>(request: &Request<B>) -> bool {
    request.method() == Method::OPTIONS
        && request.headers().contains_key(ORIGIN)
        && request.headers().contains_key(ACCESS_CONTROL_REQUEST_METHOD)
}

/// Whether a request to this address of ours may name this host. Another name points here only because somebody made
/// it do so.
pub fn host_is_allowed(local: SocketAddr, host: Option<&HeaderValue>, hostname: &str) -> bool {
    if !local.ip().to_canonical().is_loopback() {
        return true;
    }
    let Some(host) = host else { return true };
    let Ok(host) = host.to_str() else { return false };
    let host = without_port(host);
    if host.is_empty() || host.eq_ignore_ascii_case("localhost") {
        return true;
    }
    if let Ok(address) = host.trim_matches(['[', ']']).parse::<IpAddr>() {
        return is_near(address);
    }
    host.to_lowercase() == hostname.to_lowercase()
        || [".localhost", ".local", ".internal"].iter().any(|domain| {
            let start = host.len().checked_sub(domain.len());
            start.and_then(|start| host.get(start..)).is_some_and(|end| end.eq_ignore_ascii_case(domain))
        })
}

/// Loopback, private or every interface (Go's `IsLoopback`, `IsPrivate`, `IsUnspecified`). Ollama also takes the
/// machine's own public addresses; who means this machine by one of those comes to that address, not to loopback.
fn is_near(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(address) => address.is_loopback() || address.is_private() || address.is_unspecified(),
        IpAddr::V6(address) => address.is_loopback() || address.is_unspecified() || address.is_unique_local(),
    }
}

fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port))
            if port.bytes().all(|byte| byte.is_ascii_digit()) && (!name.contains(':') || name.ends_with(']')) =>
        {
            name
        }
        Some(_) | None => host,
    }
}

/// Why a request was not let in.
pub const HOST_REFUSED: &str = "this host name does not belong to this machine; nothing was done";
/// Why a page was not let in.
pub const ORIGIN_REFUSED: &str =
    "pages of this origin may not ask; OLLAMA_ORIGINS and `origins` in [gateway] name those that may";

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderName;

    fn allowed(host: &'static str) -> bool {
        host_is_allowed("127.0.0.1:11434".parse().unwrap(), Some(&HeaderValue::from_static(host)), "Box")
    }

    #[test]
    fn names_of_this_machine_pass_and_others_are_a_trick() {
        let good = [
            "localhost:11434",
            "LOCALHOST",
            "127.0.0.1:11434",
            "[::1]:11434",
            "0.0.0.0:1",
            "192.168.1.7",
            "10.1.2.3:11434",
            "box:11434",
            "mac.local:11434",
            "host.docker.internal:11434",
            "a.localhost",
            "",
        ];
        for host in good {
            assert!(allowed(host), "{host}");
        }
        for host in ["evil.example:11434", "8.8.8.8", "localhost.evil.example", "internal", "127.0.0.1.evil.example"] {
            assert!(!allowed(host), "{host}");
        }
        let wide = "192.168.1.2:11434".parse().unwrap();
        assert!(host_is_allowed(wide, Some(&HeaderValue::from_static("box.example")), "box"));
    }

    fn page(origins: &[&str], origin: &'static str, host: &'static str) -> Page {
        let headers: HeaderMap = [("origin", origin), ("host", host)]
            .into_iter()
            .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)))
            .collect();
        let allowed: Vec<_> = origins.iter().map(ToString::to_string).collect();
        Origins::new(&allowed, &["https://ours.example".to_owned()]).page(&headers)
    }

    #[test]
    fn pages_are_told_apart_as_ollama_does() {
        let host = "localhost:11434";
        assert_eq!(page(&[], "", host), Page::None);
        assert_eq!(page(&[], "http://localhost:11434", host), Page::None, "the same place");
        for origin in
            ["http://localhost:3000", "https://127.0.0.1", "app://x", "tauri://localhost", "vscode-webview://a"]
        {
            assert_eq!(page(&[], origin, host), Page::Allowed, "{origin}");
        }
        for origin in ["https://evil.example", "http://localhost.evil.example", "null"] {
            assert_eq!(page(&[], origin, host), Page::Refused, "{origin}");
        }
        assert_eq!(page(&["*"], "https://evil.example", host), Page::Allowed);
        assert_eq!(page(&[], "https://ours.example", host), Page::Ours);
        assert_eq!(page(&["*"], "https://ours.example", host), Page::Allowed, "Ollama takes it as well");
        assert_eq!(page(&["https://*.good.example"], "https://a.good.example", host), Page::Allowed);
        assert_eq!(page(&["https://*.good.example"], "https://good.example", host), Page::Refused);
        assert_eq!(page(&["chrome-extension://*"], "chrome-extension://abc", host), Page::Allowed);
    }

    #[test]
    fn our_own_answers_carry_what_a_browser_needs_to_read_them() {
        let origin = HeaderValue::from_static("http://localhost:3000");
        let mut headers = HeaderMap::new();
        Origins::default().mark(Page::Allowed, Some(&origin), &mut headers);
        assert_eq!(headers[ACCESS_CONTROL_ALLOW_ORIGIN], "http://localhost:3000");
        let headers = Origins::new(&["*".to_owned()], &[]).preflight(Page::Allowed, Some(&origin)).headers().clone();
        assert_eq!(headers[ACCESS_CONTROL_ALLOW_ORIGIN], "*");
        assert_eq!(headers[ACCESS_CONTROL_MAX_AGE], "43200");
        let mut headers = HeaderMap::new();
        Origins::default().mark(Page::Refused, Some(&origin), &mut headers);
        assert!(headers.is_empty());
    }
}
