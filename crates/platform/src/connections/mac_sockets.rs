//! macOS: sockets in the open files of one's own processes (`sys/proc_info.h`).
//!
//! There is no table of all connections with their processes. The server's own sockets tell how many there are and
//! where they come from; the process at the other end is found by its own socket.

use super::mac_kernel;
use super::{ClientSocket, Key, Pair, Search};
use std::collections::{BTreeSet, HashMap, HashSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Instant;

/// Size of `struct socket_fdinfo`.
pub(super) const SOCKET_INFO_BYTES: usize = 792;

/// Where its parts stand, in bytes from its start: after `struct proc_fileinfo` (24 bytes) comes `struct socket_info`,
/// whose last part is a union that holds a `struct tcp_sockinfo` for TCP.
mod place {
    pub(super) const KIND: usize = 256;
    pub(super) const FOREIGN_PORT: usize = 264;
    pub(super) const LOCAL_PORT: usize = 268;
    pub(super) const VERSION_FLAGS: usize = 288;
    pub(super) const FOREIGN_ADDRESS: usize = 296;
    pub(super) const LOCAL_ADDRESS: usize = 312;
    pub(super) const TCP_STATE: usize = 344;
}

/// `SOCKINFO_TCP`.
const KIND_TCP: i32 = 2;

/// `INI_IPV6`: the sixteen bytes of the address are one of IPv6; otherwise the last four are one of IPv4.
const VERSION_6: u8 = 2;

/// States of TCP (`TSI_S_*`).
const LISTEN: i32 = 1;
const ESTABLISHED: i32 = 4;

/// A TCP socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TcpSocket {
    here: SocketAddr,
    there: SocketAddr,
    state: i32,
}

/// The processes that hold the server's sockets, remembered between looks.
#[derive(Debug, Default)]
pub(super) struct Servers {
    port: u16,
    pids: BTreeSet<u32>,
    searched: Option<Instant>,
}

impl Servers {
    /// The connections to this port.
    pub(super) fn pairs(&mut self, port: u16) -> Result<Vec<Pair>, String> {
        self.pairs_with(port, mac_kernel::pids, mac_kernel::sockets_of)
    }

    fn pairs_with(
        &mut self,
        port: u16,
        pids: impl Fn() -> Result<Vec<u32>, String>,
        sockets_of: impl Fn(u32) -> Vec<TcpSocket>,
    ) -> Result<Vec<Pair>, String> {
        if self.port != port {
            *self = Self { port, ..Self::default() };
        }
        let at_port = |pid: u32| -> Vec<TcpSocket> {
            sockets_of(pid).into_iter().filter(|socket| socket.here.port() == port).collect()
        };
        let listens = |sockets: &[TcpSocket]| sockets.iter().any(|socket| socket.state == LISTEN);
        let mut sockets: Vec<_> = self.pids.iter().flat_map(|pid| at_port(*pid)).collect();
        if !listens(&sockets) && self.searched.is_none_or(|when| when.elapsed() >= super::WIDE_GAP) {
            self.searched = Some(Instant::now());
            let found: Vec<_> = pids()?.into_iter().map(|pid| (pid, at_port(pid))).collect();
            self.pids = found.iter().filter(|(_, sockets)| listens(sockets)).map(|(pid, _)| *pid).collect();
            sockets = found.into_iter().filter(|(pid, _)| self.pids.contains(pid)).flat_map(|(_, all)| all).collect();
        }
        if !listens(&sockets) {
            return Err(format!("no process of yours listens on port {port}, and macOS shows no others"));
        }
        // A process that started others may share its sockets with them.
        let mut pairs: Vec<Pair> = Vec::new();
        for socket in sockets.into_iter().filter(|socket| socket.state == ESTABLISHED) {
            let pair = Pair { server_end: socket.here, client_end: socket.there, client_socket: ClientSocket::Untold };
            if !pairs.contains(&pair) {
                pairs.push(pair);
            }
        }
        Ok(pairs)
    }
}

/// Which of the processes have which of the wanted connections open.
pub(super) fn holders(wanted: &HashSet<Key>, search: Search<'_>) -> HashMap<Key, u32> {
    holders_with(wanted, search, || mac_kernel::pids().unwrap_or_default(), mac_kernel::sockets_of)
}

fn holders_with(
    wanted: &HashSet<Key>,
    search: Search<'_>,
    pids: impl Fn() -> Vec<u32>,
    sockets_of: impl Fn(u32) -> Vec<TcpSocket>,
) -> HashMap<Key, u32> {
    let by_ends: HashMap<(SocketAddr, SocketAddr), Key> =
        wanted.iter().map(|key| ((key.client_end, key.server_end), *key)).collect();
    let pids = match search {
        Search::Among(pids) => pids.iter().copied().collect(),
        Search::Everywhere => pids(),
    };
    let mut found = HashMap::new();
    for pid in pids {
        for socket in sockets_of(pid).into_iter().filter(|socket| socket.state == ESTABLISHED) {
            if let Some(key) = by_ends.get(&(socket.here, socket.there)) {
                found.entry(*key).or_insert(pid);
            }
        }
    }
    found
}

/// Reads a `struct socket_fdinfo`; `None` for anything but TCP.
pub(super) fn parse_socket(raw: &[u8; SOCKET_INFO_BYTES]) -> Option<TcpSocket> {
    if integer(raw, place::KIND)? != KIND_TCP {
        return None;
    }
    let long = raw.get(place::VERSION_FLAGS)? & VERSION_6 != 0;
    Some(TcpSocket {
        here: SocketAddr::new(address(raw, place::LOCAL_ADDRESS, long)?, port(raw, place::LOCAL_PORT)?),
        there: SocketAddr::new(address(raw, place::FOREIGN_ADDRESS, long)?, port(raw, place::FOREIGN_PORT)?),
        state: integer(raw, place::TCP_STATE)?,
    })
}

fn integer(raw: &[u8], place: usize) -> Option<i32> {
    Some(i32::from_ne_bytes(raw.get(place..place + 4)?.try_into().ok()?))
}

/// Ports are in network order in the first two bytes of a whole integer.
fn port(raw: &[u8], place: usize) -> Option<u16> {
    Some(u16::from_be_bytes(raw.get(place..place + 2)?.try_into().ok()?))
}

/// A short address in its long form is the same address.
fn address(raw: &[u8], place: usize, long: bool) -> Option<IpAddr> {
    let bytes: [u8; 16] = raw.get(place..place + 16)?.try_into().ok()?;
    Some(if long {
        IpAddr::V6(Ipv6Addr::from(bytes)).to_canonical()
    } else {
        IpAddr::V4(Ipv4Addr::new(bytes[12], bytes[13], bytes[14], bytes[15]))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(kind: i32, state: i32, long: bool, here: &str, there: &str) -> [u8; SOCKET_INFO_BYTES] {
        let mut raw = [0xAA; SOCKET_INFO_BYTES];
        let mut put = |place: usize, bytes: &[u8]| raw[place..place + bytes.len()].copy_from_slice(bytes);
        put(place::KIND, &kind.to_ne_bytes());
        put(place::TCP_STATE, &state.to_ne_bytes());
        put(place::VERSION_FLAGS, &[if long { 2 } else { 1 }]);
        let ends =
            [(here, place::LOCAL_ADDRESS, place::LOCAL_PORT), (there, place::FOREIGN_ADDRESS, place::FOREIGN_PORT)];
        for (end, address, port) in ends {
            let end: SocketAddr = end.parse().unwrap();
            put(port, &end.port().to_be_bytes());
            match end.ip() {
                IpAddr::V4(ip) => put(address + 12, &ip.octets()),
                IpAddr::V6(ip) => put(address, &ip.octets()),
            }
        }
        raw
    }

    fn socket(state: i32, here: &str, there: &str) -> TcpSocket {
        TcpSocket { here: here.parse().unwrap(), there: there.parse().unwrap(), state }
    }

    #[test]
    fn both_forms_of_addresses_are_read() {
        let short = raw(KIND_TCP, ESTABLISHED, false, "127.0.0.1:11434", "127.0.0.1:51000");
        assert_eq!(parse_socket(&short), Some(socket(ESTABLISHED, "127.0.0.1:11434", "127.0.0.1:51000")));
        let long = raw(KIND_TCP, LISTEN, true, "[::]:11434", "[::]:0");
        assert_eq!(parse_socket(&long), Some(socket(LISTEN, "[::]:11434", "[::]:0")));
        let mapped = raw(KIND_TCP, ESTABLISHED, true, "[::ffff:127.0.0.1]:11434", "[::ffff:127.0.0.1]:51000");
        assert_eq!(parse_socket(&mapped), Some(socket(ESTABLISHED, "127.0.0.1:11434", "127.0.0.1:51000")));
        assert_eq!(parse_socket(&raw(1, ESTABLISHED, false, "127.0.0.1:1", "127.0.0.1:2")), None);
    }

    #[test]
    fn the_servers_sockets_tell_the_connections_and_the_other_end_its_process() {
        let sockets_of = |pid: u32| match pid {
            10 => vec![
                socket(LISTEN, "127.0.0.1:11434", "0.0.0.0:0"),
                socket(ESTABLISHED, "127.0.0.1:11434", "127.0.0.1:51000"),
                socket(ESTABLISHED, "127.0.0.1:11434", "127.0.0.1:51001"),
                socket(5, "127.0.0.1:11434", "127.0.0.1:51002"),
                socket(ESTABLISHED, "127.0.0.1:60000", "127.0.0.1:61000"),
            ],
            20 => vec![socket(ESTABLISHED, "127.0.0.1:51000", "127.0.0.1:11434")],
            _ => Vec::new(),
        };
        let mut servers = Servers::default();
        let pairs = servers.pairs_with(11434, || Ok(vec![1, 10, 20]), sockets_of).unwrap();
        let ports: Vec<_> = pairs.iter().map(|pair| pair.client_end.port()).collect();
        assert_eq!(ports, [51_000, 51_001]);
        // The next look goes through nobody but the server.
        let again = servers.pairs_with(11434, || panic!("not to be asked"), sockets_of).unwrap();
        assert_eq!(again, pairs);
        let wanted: HashSet<Key> = pairs.iter().map(super::super::key).collect();
        let found = holders_with(&wanted, Search::Everywhere, || vec![1, 10, 20], sockets_of);
        assert_eq!(
            found.into_iter().map(|(key, pid)| (key.client_end.port(), pid)).collect::<Vec<_>>(),
            [(51_000, 20)]
        );
    }

    #[test]
    fn a_server_that_is_not_shown_is_unknown_and_not_without_connections() {
        let mut servers = Servers::default();
        let none = |_: u32| Vec::new();
        assert!(servers.pairs_with(11434, || Ok(vec![1, 2]), none).is_err());
        // Everybody is gone through again only later.
        assert!(servers.pairs_with(11434, || panic!("not to be asked"), none).is_err());
        assert_eq!(servers.pairs_with(1, || Err("refused".to_owned()), none), Err("refused".to_owned()));
    }

    #[test]
    fn sockets_shared_with_a_child_are_counted_once() {
        let sockets_of = |_: u32| {
            vec![socket(LISTEN, "[::]:11434", "[::]:0"), socket(ESTABLISHED, "127.0.0.1:11434", "127.0.0.1:51000")]
        };
        assert_eq!(Servers::default().pairs_with(11434, || Ok(vec![1, 2]), sockets_of).unwrap().len(), 1);
    }
}
