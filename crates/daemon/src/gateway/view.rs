//! Looks at the gateway: a real `GET /api/version` through its port, beside one that goes to Ollama directly. A port
//! that listens says nothing; a process that is stopped or stuck has one.

use super::link::Link;
use crate::configuration::Configuration;
use crate::looking::Seen;
use stablehand_engine::Known;
use stablehand_engine::takeover::Door;
use stablehand_engine::takeover::health::{Checked, Health};
use stablehand_ollama::client::Client;
use stablehand_platform::machine::Machine;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// The time between two checks.
const INTERVAL: Duration = Duration::from_secs(2);
/// The same in real time at least, however fast a simulated machine runs.
const LEAST_INTERVAL: Duration = Duration::from_millis(250);
/// How long an answer through the gateway may take, in real time. It holds such a question for at most 5 s while the
/// server is away, and answers then.
const PATIENCE: Duration = Duration::from_secs(7);

/// What is known of the gateway.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct View {
    /// Whether a request came through it just now.
    pub healthy: Known<bool>,
    /// Why it counts as broken, when it does.
    pub sick: Option<String>,
    /// Pid of the gateway that this is about.
    pub of: Option<u32>,
}

impl View {
    /// Why the gateway with this pid counts as broken.
    pub fn sick(&self, pid: Option<u32>) -> Option<&str> {
        self.sick.as_deref().filter(|_| self.of == pid)
    }
}

impl Default for View {
    fn default() -> Self {
        Self { healthy: Known::unknown("nothing was asked through it yet"), sick: None, of: None }
    }
}

/// What the task reads and writes.
#[derive(Debug)]
pub struct Links {
    /// The last look of the supervision.
    pub seen: watch::Receiver<Option<Arc<Seen>>>,
    /// Our configuration.
    pub configuration: watch::Receiver<Configuration>,
    /// What came of it.
    pub view: watch::Sender<View>,
    /// The way to the gateway.
    pub link: Link,
}

/// Checks the gateway until the daemon ends.
pub async fn run(machine: Machine, links: Links) {
    let mut health = Health::default();
    let mut of = None;
    loop {
        tokio::time::sleep(machine.clock().real_span(INTERVAL).max(LEAST_INTERVAL)).await;
        let seen = links.seen.borrow().clone();
        let configuration = links.configuration.borrow().clone();
        let standing = seen.as_deref().and_then(|seen| {
            let front = reached_at(seen, &configuration)?;
            Some((front, seen.address, seen.front.gateway))
        });
        let Some((front, behind, pid)) = standing else {
            health.renewed();
            of = None;
            publish(&links.view, View::default());
            continue;
        };
        if of != pid {
            health.renewed();
            of = pid;
        }
        let checked = check(front, behind, &links.link).await;
        let healthy = match &checked {
            Checked::Passed => Known::Is(true),
            Checked::Failed(_) => Known::Is(false),
            Checked::Unfit => Known::unknown("Ollama itself does not answer, or requests are held"),
        };
        health.checked(checked);
        publish(&links.view, View { healthy, sick: health.sick().map(str::to_owned), of });
    }
}

fn publish(view: &watch::Sender<View>, new: View) {
    view.send_if_modified(|old| {
        let news = *old != new;
        if news {
            *old = new;
        }
        news
    });
}

/// Where clients of this machine reach the gateway, while it listens.
pub fn reached_at(seen: &Seen, configuration: &Configuration) -> Option<SocketAddr> {
    match seen.front.door {
        Door::Shut | Door::Leaving | Door::Unknown => None,
        Door::Home | Door::Beside => Some(listening_at(seen.front.home, configuration)),
    }
}

/// Where clients of this machine reach a gateway that listens as the configuration says.
pub fn listening_at(home: u16, configuration: &Configuration) -> SocketAddr {
    let usual = SocketAddr::from((Ipv4Addr::LOCALHOST, home.wrapping_add(1)));
    let listen = &configuration.gateway.listen;
    let first = listen.iter().find(|address| address.ip().is_loopback()).or(listen.first()).copied().unwrap_or(usual);
    match first {
        SocketAddr::V4(address) if address.ip().is_unspecified() => {
            SocketAddr::from((Ipv4Addr::LOCALHOST, address.port()))
        }
        SocketAddr::V6(address) if address.ip().is_unspecified() => {
            SocketAddr::from((Ipv6Addr::LOCALHOST, address.port()))
        }
        address @ (SocketAddr::V4(_) | SocketAddr::V6(_)) => address,
    }
}

/// One request through the gateway. Only when it fails is Ollama asked itself.
async fn check(front: SocketAddr, behind: SocketAddr, link: &Link) -> Checked {
    // What is not on loopback is not asked by us.
    let (Ok(through), Ok(direct)) = (Client::new(front), Client::new(behind)) else { return Checked::Unfit };
    let reason = match through.version(PATIENCE).await {
        Ok(_) => return Checked::Passed,
        Err(error) => error.to_string(),
    };
    if link.is_holding() || direct.version(PATIENCE).await.is_err() { Checked::Unfit } else { Checked::Failed(reason) }
}
