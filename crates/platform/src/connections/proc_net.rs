//! Linux: both ends of connections (from the kernel's diagnostics, else from `/proc/net/tcp` and `/proc/net/tcp6`), and
//! the links in `/proc/PID/fd` (`proc(5)`).

use super::{ClientSocket, Key, Pair, Search, sock_diag};
use crate::listeners::socket_table;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::fs;
use std::net::SocketAddr;

/// State `TCP_ESTABLISHED` in hexadecimal (`include/net/tcp_states.h`).
const ESTABLISHED: &str = "01";

/// One end of an established connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct End {
    pub(super) here: SocketAddr,
    pub(super) there: SocketAddr,
    pub(super) uid: u32,
    /// 0 until the server accepts it.
    pub(super) inode: u64,
}

/// The connections to this port.
pub(super) fn pairs(port: u16) -> Result<Vec<Pair>, String> {
    // A kernel without the diagnostics, or a service that may not open such sockets, still has the tables.
    let ends = sock_diag::ends().or_else(|_why| ends_in_tables())?;
    Ok(paired(&ends, port))
}

fn ends_in_tables() -> Result<Vec<End>, String> {
    let short =
        fs::read_to_string("/proc/net/tcp").map_err(|error| format!("/proc/net/tcp cannot be read: {error}"))?;
    // A kernel without IPv6 has no second table.
    let long = fs::read_to_string("/proc/net/tcp6").unwrap_or_default();
    Ok(ends(&[&short, &long]))
}

fn ends(tables: &[&str]) -> Vec<End> {
    tables.iter().flat_map(|table| table.lines().skip(1).filter_map(end)).collect()
}

/// Which of the processes have which of the wanted sockets open.
pub(super) fn holders(wanted: &HashSet<Key>, search: Search<'_>) -> HashMap<Key, u32> {
    let by_inode: HashMap<u64, Key> = wanted
        .iter()
        .filter_map(|key| match key.client_socket {
            ClientSocket::Inode(inode, _) => Some((inode, *key)),
            ClientSocket::Untold | ClientSocket::Elsewhere => None,
        })
        .collect();
    let all;
    let pids = match search {
        Search::Among(pids) => pids,
        Search::Everywhere => {
            all = every_pid();
            &all
        }
    };
    let mut found = HashMap::new();
    for pid in pids {
        let sockets = socket_table::sockets_of(*pid);
        let wanted = sockets.iter().filter_map(|inode| by_inode.get(inode));
        for key in wanted {
            // A socket that several processes have open was opened by the one with the lowest number, as a rule.
            found.entry(*key).or_insert(*pid);
        }
        if found.len() == by_inode.len() {
            break;
        }
    }
    found
}

fn every_pid() -> BTreeSet<u32> {
    let Ok(entries) = fs::read_dir("/proc") else { return BTreeSet::new() };
    entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// The ends at the server's port, each with the client's end where that is on this machine as well.
fn paired(ends: &[End], port: u16) -> Vec<Pair> {
    let clients: HashMap<(SocketAddr, SocketAddr), &End> =
        ends.iter().filter(|end| end.there.port() == port).map(|end| ((end.here, end.there), end)).collect();
    let servers = ends.iter().filter(|end| end.here.port() == port);
    let pair = |server: &End| Pair {
        server_end: server.here,
        client_end: server.there,
        client_socket: clients
            .get(&(server.there, server.here))
            .map_or(ClientSocket::Elsewhere, |client| ClientSocket::Inode(client.inode, client.uid)),
    };
    servers.map(pair).collect()
}

fn end(line: &str) -> Option<End> {
    let fields: Vec<_> = line.split_whitespace().collect();
    // sl local_address rem_address st tx:rx tr:when retrnsmt uid timeout inode
    let [_, here, there, ESTABLISHED, _, _, _, uid, _, inode, ..] = fields.as_slice() else { return None };
    Some(End {
        here: plain(socket_table::address(here)?),
        there: plain(socket_table::address(there)?),
        uid: uid.parse().ok()?,
        inode: inode.parse().ok()?,
    })
}

/// A short address in its long form is the same address.
fn plain(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TCP: &str = include_str!("../../fixtures/connections/proc-net-tcp.txt");
    const TCP6: &str = include_str!("../../fixtures/connections/proc-net-tcp6.txt");

    #[test]
    fn ends_are_paired_across_both_tables() {
        let pairs = paired(&ends(&[TCP, TCP6]), 11434);
        let told: Vec<_> = pairs.iter().map(|pair| (pair.client_end.to_string(), pair.client_socket)).collect();
        assert_eq!(
            told,
            [
                // Both ends in the short table; the server has not accepted it yet.
                ("127.0.0.1:51000".to_owned(), ClientSocket::Inode(70_001, 1_000)),
                // The server's end in the long table, the client's in the short one.
                ("127.0.0.1:51002".to_owned(), ClientSocket::Inode(70_003, 1_001)),
                // From another machine.
                ("192.0.2.7:40000".to_owned(), ClientSocket::Elsewhere),
                ("[::1]:51004".to_owned(), ClientSocket::Inode(70_005, 1_000)),
            ]
        );
    }

    #[test]
    fn connections_to_the_same_port_of_other_machines_and_closing_ones_are_left_out() {
        // The short table also holds a connection from here to 192.0.2.9:11434, a listener and one in CLOSE_WAIT.
        assert!(!paired(&ends(&[TCP, TCP6]), 11434).iter().any(|pair| pair.client_end.port() == 52_000));
        assert_eq!(paired(&ends(&[TCP, TCP6]), 80), []);
        assert_eq!(paired(&ends(&["", "head\nodd line\n  0: XX:YY 01\n"]), 11434), []);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn the_diagnostics_and_the_tables_tell_the_same_of_a_real_connection() {
        let server = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = server.local_addr().unwrap().port();
        let _client = std::net::TcpStream::connect(("127.0.0.1", port)).unwrap();
        let in_tables = paired(&ends_in_tables().unwrap(), port);
        assert_eq!(in_tables.len(), 1);
        // Where the kernel lacks the diagnostics, there is nothing to compare.
        if let Ok(ends) = sock_diag::ends() {
            assert_eq!(paired(&ends, port), in_tables);
        }
    }

    #[test]
    fn ten_thousand_rows_are_paired_without_comparing_each_with_each() {
        let mut table = String::from("head\n");
        for index in 0..10_000_u32 {
            let client = format!("0100007F:{:04X}", 1_024 + index % 60_000);
            table.push_str(&format!("{index}: 0100007F:2CAA {client} 01 0:0 00:0 0 0 0 0 1 0\n"));
            table.push_str(&format!("{index}: {client} 0100007F:2CAA 01 0:0 00:0 0 1000 0 {} 1 0\n", 90_000 + index));
        }
        let pairs = paired(&ends(&[&table]), 11434);
        assert_eq!(pairs.len(), 10_000);
        assert!(pairs.iter().all(|pair| matches!(pair.client_socket, ClientSocket::Inode(_, 1_000))));
    }
}
