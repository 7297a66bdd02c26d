//! Who listens on a port. The socket table is the real system's, in a world too: a stranger from outside that holds
//! the world's port is a listener all the same.

pub(crate) mod socket_table;

use crate::processes;
use socket_table::Socket;
use stablehand_engine::Known;
use stablehand_engine::owner::Listener;
use stablehand_engine::process::Identity;
use std::collections::HashMap;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

/// How long the probe of a port may take; it only goes to this very machine.
const PROBE_LIMIT: Duration = Duration::from_millis(500);

/// Looks at ports, and remembers which process held which socket so that later looks are cheap.
#[derive(Debug, Default)]
pub struct ListenerTable {
    holders: HashMap<u64, Vec<Identity>>,
}

impl ListenerTable {
    /// Everybody who listens on this TCP port, on any address.
    pub async fn look(&mut self, port: u16) -> Known<Vec<Listener>> {
        if cfg!(target_os = "linux") { self.look_in_proc(port) } else { look_through_crate(port).await }
    }

    fn look_in_proc(&mut self, port: u16) -> Known<Vec<Listener>> {
        let mut sockets = Vec::new();
        for table in ["/proc/net/tcp", "/proc/net/tcp6"] {
            match fs::read_to_string(table) {
                Ok(text) => sockets.extend(socket_table::listening(&text, port)),
                // A kernel without IPv6 has no second table.
                Err(_) if table.ends_with('6') => {}
                Err(error) => return Known::unknown(format!("{table} cannot be read: {error}")),
            }
        }
        self.name_holders(&sockets);
        Known::Is(sockets.iter().flat_map(|socket| self.listeners_of(socket)).collect())
    }

    fn name_holders(&mut self, sockets: &[Socket]) {
        let wanted = |inode: &u64| sockets.iter().any(|socket| socket.inode == *inode);
        self.holders.retain(|inode, ids| wanted(inode) && ids.iter().all(|id| processes::is_alive(*id)));
        if sockets.iter().all(|socket| self.holders.contains_key(&socket.inode)) {
            return;
        }
        let mut found: HashMap<u64, Vec<Identity>> = HashMap::new();
        for (inode, pid) in socket_table::open_sockets() {
            if wanted(&inode)
                && let Some((id, _name)) = processes::life_of(pid)
            {
                found.entry(inode).or_default().push(id);
            }
        }
        self.holders = found;
    }

    fn listeners_of(&self, socket: &Socket) -> Vec<Listener> {
        let address = shown(socket.address);
        let uid = Some(socket.uid);
        let holders = self.holders.get(&socket.inode).map(Vec::as_slice).unwrap_or_default();
        if holders.is_empty() {
            let reason = format!("the socket belongs to uid {} and its process is not shown", socket.uid);
            return vec![Listener { address, process: Known::unknown(reason), program: None, uid }];
        }
        let one = |id: &Identity| Listener {
            address: address.clone(),
            process: Known::Is(*id),
            program: processes::life_of(id.pid).map(|(_, name)| name),
            uid,
        };
        holders.iter().map(one).collect()
    }
}

/// macOS shows only the sockets of one's own processes, so an answer from a port that nobody seems to hold means
/// another user's process.
async fn look_through_crate(port: u16) -> Known<Vec<Listener>> {
    let mut seen = match seen_through_crate(port) {
        Ok(seen) => seen,
        Err(reason) => return Known::Unknown(reason),
    };
    if seen.is_empty() && answers(port).await {
        // A server of ours may have bound the port in between.
        seen = match seen_through_crate(port) {
            Ok(seen) => seen,
            Err(reason) => return Known::Unknown(reason),
        };
        if seen.is_empty() {
            seen.push(Listener {
                address: format!("127.0.0.1:{port}"),
                process: Known::unknown("macOS shows neither other users' sockets nor, to a sandboxed program, any"),
                program: None,
                uid: None,
            });
        }
    }
    Known::Is(seen)
}

fn seen_through_crate(port: u16) -> Result<Vec<Listener>, String> {
    let all = listeners::get_all().map_err(|error| format!("the system does not tell who listens: {error}"))?;
    let ours = all.into_iter().filter(|found| {
        found.socket.port() == port
            && found.protocol == listeners::Protocol::TCP
            && found.state == listeners::SocketState::Listen
    });
    let mut seen: Vec<_> = ours
        .map(|found| Listener {
            address: shown(found.socket),
            process: processes::life_of(found.process.pid)
                .map_or_else(|| Known::unknown("its process ended meanwhile"), |(id, _)| Known::Is(id)),
            program: Some(found.process.name),
            uid: processes::owner_of(found.process.pid).known().copied(),
        })
        .collect();
    seen.sort_by(|a, b| a.address.cmp(&b.address));
    Ok(seen)
}

async fn answers(port: u16) -> bool {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    matches!(tokio::time::timeout(PROBE_LIMIT, tokio::net::TcpStream::connect(address)).await, Ok(Ok(_)))
}

/// Where a server that listens so is reached from this machine: by loopback where it listens there or everywhere, else
/// at an address of its own.
pub fn reachable_at(listeners: &[Listener], port: u16) -> SocketAddr {
    let loopback = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let own: Vec<SocketAddr> = listeners.iter().filter_map(|listener| listener.address.parse().ok()).collect();
    let everywhere = own.len() < listeners.len() || own.iter().any(|address| address.ip().is_unspecified());
    if everywhere || own.contains(&loopback) {
        return loopback;
    }
    own.iter().find(|address| address.ip().is_loopback()).or(own.first()).copied().unwrap_or(loopback)
}

/// As `lsof` shows it: `*` for every address.
fn shown(address: SocketAddr) -> String {
    match address.ip() {
        ip if ip.is_unspecified() => format!("*:{}", address.port()),
        IpAddr::V4(_) | IpAddr::V6(_) => address.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn a_server_is_asked_where_it_listens() {
        let at = |addresses: &[&str]| {
            let one = |address: &&str| Listener {
                address: (*address).to_owned(),
                process: Known::unknown("not asked"),
                program: None,
                uid: None,
            };
            reachable_at(&addresses.iter().map(one).collect::<Vec<_>>(), 11434).to_string()
        };
        assert_eq!(at(&[]), "127.0.0.1:11434");
        assert_eq!(at(&["*:11434"]), "127.0.0.1:11434");
        assert_eq!(at(&["192.168.1.5:11434", "*:11434"]), "127.0.0.1:11434");
        assert_eq!(at(&["[::1]:11434", "127.0.0.1:11434"]), "127.0.0.1:11434");
        assert_eq!(at(&["192.168.1.5:11434", "[::1]:11434"]), "[::1]:11434");
        assert_eq!(at(&["100.64.0.7:11434"]), "100.64.0.7:11434");
    }

    #[tokio::test]
    async fn a_socket_of_ours_is_found_with_its_process_and_gone_when_closed() {
        let socket = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = socket.local_addr().unwrap().port();
        let mut table = ListenerTable::default();
        for _look_and_cached_look in 0..2 {
            let seen = table.look(port).await;
            let seen = seen.known().unwrap();
            assert_eq!(seen[0].address, format!("127.0.0.1:{port}"));
            assert!(seen.iter().any(|one| one.process.known().is_some_and(|id| id.pid == std::process::id())));
        }
        drop(socket);
        let own = |seen: &Known<Vec<Listener>>| {
            let listed = seen.known().map(Vec::as_slice).unwrap_or_default();
            listed.iter().any(|one| one.process.known().is_some_and(|id| id.pid == std::process::id()))
        };
        assert!(!own(&table.look(port).await));
    }

    #[tokio::test]
    async fn the_crates_way_finds_it_too() {
        let socket = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = socket.local_addr().unwrap().port();
        let seen = look_through_crate(port).await;
        let seen = seen.known().unwrap();
        assert!(seen.iter().any(|one| one.process.known().is_some_and(|id| id.pid == std::process::id())));
    }
}
