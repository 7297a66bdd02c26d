//! The way to releases over a network: which addresses are asked, how redirects are followed, and what the errors mean.

use reqwest::header::{HeaderMap, LOCATION};
use reqwest::{Client, Response, StatusCode, Url};
use stablehand_engine::upgrade::found::Unreachable;
use std::error::Error;
use std::io::ErrorKind;
use std::time::Duration;

/// Where Ollama's releases are listed.
pub const BASE: &str = "https://api.github.com";
/// How often one question may be led elsewhere. GitHub's own files need one.
const MOST_REDIRECTS: usize = 10;
/// GitHub answers nobody without a name.
const USER_AGENT: &str = concat!("stablehand/", env!("CARGO_PKG_VERSION"));
/// hyper-util's words for a proxy's 407 to CONNECT; its type is private.
const PROXY_WANTS_A_NAME: &str = "proxy authorization required";

/// How long it is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// For a connection, name service and TLS included.
    pub connect: Duration,
    /// For the next byte.
    pub silence: Duration,
}

impl Default for Terms {
    fn default() -> Self {
        Self { connect: Duration::from_secs(20), silence: Duration::from_secs(60) }
    }
}

/// Why an address is not asked. Nothing was sent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotAsked {
    /// It is none.
    #[error("{0:?} is no address like {BASE}")]
    NoAddress(String),
    /// Anybody on the way could change what it answers.
    #[error("{0} is not asked: only https is, and http on this computer itself where the releases come from there")]
    Plain(String),
    /// Nothing can be asked on this computer.
    #[error("no connection can be made with TLS: {0}")]
    NoTls(String),
}

/// Asks addresses that it trusts to be the ones that were meant.
#[derive(Clone, Debug)]
pub(super) struct Link {
    base: Url,
    /// For this computer itself, where no proxy leads.
    direct: Client,
    /// For everything else, through the proxies of the environment or the system.
    outward: Client,
    terms: Terms,
}

impl Link {
    pub(super) fn new(base: &str, terms: Terms) -> Result<Self, NotAsked> {
        let url = Url::parse(base).ok().filter(|url| url.has_host() && !url.cannot_be_a_base());
        let Some(url) = url else { return Err(NotAsked::NoAddress(base.to_owned())) };
        if url.scheme() != "https" && !(url.scheme() == "http" && is_loopback(&url)) {
            return Err(NotAsked::Plain(plain(&url)));
        }
        // Somebody else in this process may have chosen before; either choice is ring.
        let _chosen_before = rustls::crypto::ring::default_provider().install_default();
        let client = || {
            Client::builder()
                .user_agent(USER_AGENT)
                .redirect(reqwest::redirect::Policy::none())
                .connect_timeout(terms.connect)
                .pool_max_idle_per_host(0)
        };
        let built =
            |builder: reqwest::ClientBuilder| builder.build().map_err(|error| NotAsked::NoTls(innermost(&error)));
        Ok(Self { base: url, direct: built(client().no_proxy())?, outward: built(client())?, terms })
    }

    #[cfg(test)]
    pub(super) fn through(mut self, proxy: &str) -> Self {
        let proxy = reqwest::Proxy::all(proxy).unwrap();
        self.outward = Client::builder().redirect(reqwest::redirect::Policy::none()).proxy(proxy).build().unwrap();
        self
    }

    /// Asks for a path below the base.
    pub(super) async fn below(&self, path: &str, headers: &HeaderMap) -> Result<Response, Unreachable> {
        let base = self.base.as_str().trim_end_matches('/');
        self.get(&format!("{base}{path}"), headers).await
    }

    /// Asks for an address, and follows where it leads.
    pub(super) async fn get(&self, url: &str, headers: &HeaderMap) -> Result<Response, Unreachable> {
        let mut url =
            Url::parse(url).map_err(|_| Unreachable::Other(NotAsked::NoAddress(url.to_owned()).to_string()))?;
        for _ in 0..=MOST_REDIRECTS {
            if !self.may_ask(&url) {
                return Err(Unreachable::Other(NotAsked::Plain(plain(&url)).to_string()));
            }
            let client = if is_loopback(&url) { &self.direct } else { &self.outward };
            let asked = client.get(url.clone()).headers(headers.clone()).send();
            let answer = tokio::time::timeout(self.terms.connect + self.terms.silence, asked).await;
            let response = match answer {
                Ok(Ok(response)) => response,
                Ok(Err(error)) => return Err(unreachable(&error, &url)),
                Err(_) => return Err(silent(&url, self.terms.silence)),
            };
            let Some(to) = led_to(&response) else { return Ok(response) };
            url = url.join(to).map_err(|_| Unreachable::Other(format!("{} leads nowhere", plain(&url))))?;
        }
        Err(Unreachable::Other(format!("it was led elsewhere more than {MOST_REDIRECTS} times")))
    }

    /// What is on this computer is asked only where the releases come from there: no answer from outside may send
    /// requests to its services.
    fn may_ask(&self, url: &Url) -> bool {
        match url.scheme() {
            "https" => !is_loopback(url) || is_loopback(&self.base),
            "http" => is_loopback(url) && url.host() == self.base.host(),
            _ => false,
        }
    }

    /// The next bytes of a body; `None` at its end.
    pub(super) async fn chunk(&self, response: &mut Response) -> Result<Option<hyper::body::Bytes>, Unreachable> {
        let url = response.url().clone();
        match tokio::time::timeout(self.terms.silence, response.chunk()).await {
            Ok(Ok(chunk)) => Ok(chunk),
            Ok(Err(error)) => Err(unreachable(&error, &url)),
            Err(_) => Err(silent(&url, self.terms.silence)),
        }
    }

    /// The whole body, unless it is longer.
    pub(super) async fn body(&self, mut response: Response, most_bytes: usize) -> Result<Vec<u8>, Unreachable> {
        let mut body = Vec::new();
        while let Some(chunk) = self.chunk(&mut response).await? {
            if body.len() + chunk.len() > most_bytes {
                return Err(Unreachable::Other(format!("the answer is longer than {most_bytes} bytes")));
            }
            body.extend_from_slice(&chunk);
        }
        Ok(body)
    }
}

fn led_to(response: &Response) -> Option<&str> {
    match response.status() {
        StatusCode::MOVED_PERMANENTLY
        | StatusCode::FOUND
        | StatusCode::SEE_OTHER
        | StatusCode::TEMPORARY_REDIRECT
        | StatusCode::PERMANENT_REDIRECT => response.headers().get(LOCATION)?.to_str().ok(),
        _ => None,
    }
}

fn is_loopback(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default().trim_start_matches('[').trim_end_matches(']');
    host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// An address without its question, which at GitHub's stores holds a signature.
fn plain(url: &Url) -> String {
    let mut url = url.clone();
    url.set_query(None);
    url.set_fragment(None);
    // Refused only where there is no host, which has no password either.
    let _none = url.set_username("");
    let _none = url.set_password(None);
    url.to_string()
}

fn silent(url: &Url, silence: Duration) -> Unreachable {
    let host = url.host_str().unwrap_or_default();
    Unreachable::Other(format!("{host} sent nothing for {} s", silence.as_secs_f32()))
}

fn unreachable(error: &reqwest::Error, url: &Url) -> Unreachable {
    if error.is_dns() {
        return Unreachable::Offline;
    }
    let mut next: Option<&(dyn Error + 'static)> = Some(error);
    while let Some(cause) = next {
        if let Some(error) = cause.downcast_ref::<std::io::Error>() {
            let kind = error.kind();
            if matches!(kind, ErrorKind::NetworkUnreachable | ErrorKind::HostUnreachable | ErrorKind::NetworkDown) {
                return Unreachable::Offline;
            }
            // An error that another was made of is not its source.
            let held = error.get_ref().and_then(|held| held.downcast_ref::<rustls::Error>());
            if held.is_some_and(at_another_time) {
                return Unreachable::Clock;
            }
        }
        if cause.downcast_ref::<rustls::Error>().is_some_and(at_another_time) {
            return Unreachable::Clock;
        }
        if cause.to_string().contains(PROXY_WANTS_A_NAME) {
            return Unreachable::Proxy;
        }
        next = cause.source();
    }
    let host = url.host_str().unwrap_or_default();
    if error.is_timeout() {
        return Unreachable::Other(format!("no connection with {host} in time"));
    }
    Unreachable::Other(format!("{host}: {}", innermost(error)))
}

/// Whether a certificate was refused for the time alone.
fn at_another_time(error: &rustls::Error) -> bool {
    use rustls::CertificateError::{Expired, ExpiredContext, NotValidYet, NotValidYetContext};
    matches!(
        error,
        rustls::Error::InvalidCertificate(Expired | ExpiredContext { .. } | NotValidYet | NotValidYetContext { .. })
    )
}

/// The words of the cause that lies deepest; those above only say that there is one.
fn innermost(error: &(dyn Error + 'static)) -> String {
    let mut deepest = error;
    while let Some(cause) = deepest.source() {
        deepest = cause;
    }
    crate::client::snippet(deepest.to_string().as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustls::CertificateError;

    #[test]
    fn only_https_is_asked_and_this_computer_where_the_releases_come_from_there() {
        let may = |base: &str, url: &str| Link::new(base, Terms::default()).unwrap().may_ask(&Url::parse(url).unwrap());
        assert!(may(BASE, "https://objects.example/file?sig=1"));
        for url in [
            "http://objects.example/file",
            "http://127.0.0.1/",
            "https://localhost/",
            "https://[::1]/",
            "file:///etc/passwd",
        ] {
            assert!(!may(BASE, url), "{url}");
        }
        let here = "http://127.0.0.1:8080";
        for url in ["http://127.0.0.1:9090/file", "https://objects.example/file"] {
            assert!(may(here, url), "{url}");
        }
        for url in ["http://127.0.0.2/", "http://objects.example/"] {
            assert!(!may(here, url), "{url}");
        }
    }

    #[test]
    fn a_base_that_is_not_asked_is_told_without_its_password() {
        assert_eq!(
            Link::new("http://me:secret@mirror.example/x?token=1", Terms::default()).unwrap_err(),
            NotAsked::Plain("http://mirror.example/x".to_owned())
        );
        for base in ["", "mirror.example", "data:text/plain,x"] {
            assert_eq!(Link::new(base, Terms::default()).unwrap_err(), NotAsked::NoAddress(base.to_owned()));
        }
    }

    #[test]
    fn a_certificate_of_another_time_is_a_matter_of_the_clock_another_name_is_not() {
        let refused = |why: CertificateError| at_another_time(&rustls::Error::InvalidCertificate(why));
        assert!(refused(CertificateError::Expired) && refused(CertificateError::NotValidYet));
        assert!(!refused(CertificateError::UnknownIssuer) && !refused(CertificateError::NotValidForName));
    }
}
