//! TCP sockets with their owners. Where the host has `/proc`, both ends of a
//! connection and the file descriptor are known; elsewhere only local ends.

use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr};

use listeners::{Protocol, SocketState};

/// One end of a TCP socket.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Socket {
    /// Process that holds it.
    pub pid: i32,
    /// Its file descriptor; 3 where it is not known.
    pub descriptor: u32,
    /// Local end.
    pub local: SocketAddr,
    /// Other end of a connection.
    pub remote: Option<SocketAddr>,
    /// State in lsof's words.
    pub state: &'static str,
}

/// The sockets of these processes.
pub fn of(pids: &[i32]) -> Vec<Socket> {
    let mut sockets = match std::fs::read_to_string("/proc/net/tcp") {
        Ok(table) => from_proc(&table, pids),
        Err(_) => from_library(pids),
    };
    sockets.sort();
    sockets
}

fn from_proc(table: &str, pids: &[i32]) -> Vec<Socket> {
    let rows: HashMap<String, Row> = table.lines().skip(1).filter_map(parse_row).collect();
    let mut sockets = Vec::new();
    for pid in pids {
        let descriptors = std::fs::read_dir(format!("/proc/{pid}/fd"));
        for entry in descriptors.into_iter().flatten().flatten() {
            let Ok(target) = std::fs::read_link(entry.path()) else {
                continue;
            };
            let target = target.to_string_lossy().into_owned();
            let inode = target.strip_prefix("socket:[").and_then(|rest| rest.strip_suffix(']'));
            let Some(row) = inode.and_then(|inode| rows.get(inode)) else {
                continue;
            };
            sockets.push(Socket {
                pid: *pid,
                descriptor: entry.file_name().to_string_lossy().parse().unwrap_or(3),
                local: row.local,
                remote: row.remote,
                state: row.state,
            });
        }
    }
    sockets
}

struct Row {
    local: SocketAddr,
    remote: Option<SocketAddr>,
    state: &'static str,
}

/// A line of `/proc/net/tcp` (`proc_net(5)`), keyed by inode.
fn parse_row(line: &str) -> Option<(String, Row)> {
    let cells: Vec<&str> = line.split_whitespace().collect();
    let local = parse_address(cells.get(1)?)?;
    let remote = parse_address(cells.get(2)?)?;
    let state = match *cells.get(3)? {
        "01" => "ESTABLISHED",
        "02" => "SYN_SENT",
        "03" => "SYN_RCDV",
        "04" => "FIN_WAIT_1",
        "05" => "FIN_WAIT_2",
        "08" => "CLOSE_WAIT",
        "09" => "LAST_ACK",
        "0A" => "LISTEN",
        "0B" => "CLOSING",
        _ => "CLOSED",
    };
    let remote = (remote.port() != 0).then_some(remote);
    Some(((*cells.get(9)?).to_owned(), Row { local, remote, state }))
}

fn parse_address(text: &str) -> Option<SocketAddr> {
    let (address, port) = text.split_once(':')?;
    let address = u32::from_str_radix(address, 16).ok()?;
    let port = u16::from_str_radix(port, 16).ok()?;
    Some(SocketAddr::from((Ipv4Addr::from(address.swap_bytes()), port)))
}

fn from_library(pids: &[i32]) -> Vec<Socket> {
    listeners::get_all()
        .into_iter()
        .flatten()
        .filter(|row| row.protocol == Protocol::TCP)
        .filter_map(|row| {
            let pid = i32::try_from(row.process.pid).ok()?;
            let state = match row.state {
                SocketState::Listen => "LISTEN",
                SocketState::Established => "ESTABLISHED",
                SocketState::SynSent => "SYN_SENT",
                SocketState::SynReceived => "SYN_RCDV",
                SocketState::FinWait1 => "FIN_WAIT_1",
                SocketState::FinWait2 => "FIN_WAIT_2",
                SocketState::CloseWait => "CLOSE_WAIT",
                SocketState::LastAck => "LAST_ACK",
                SocketState::Closing => "CLOSING",
                SocketState::TimeWait | SocketState::Closed | SocketState::Unknown => "CLOSED",
            };
            pids.contains(&pid).then_some(Socket { pid, descriptor: 3, local: row.socket, remote: None, state })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_proc_are_read() {
        let listening = "   0: 0100007F:5E73 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 48211 1 0000000000000000 100 0 0 10 0";
        let (inode, row) = parse_row(listening).unwrap();
        assert_eq!(inode, "48211");
        assert_eq!(row.local.to_string(), "127.0.0.1:24179");
        assert_eq!((row.remote, row.state), (None, "LISTEN"));
    }

    #[test]
    fn both_ends_of_an_own_connection_are_found() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let _client = std::net::TcpStream::connect(address).unwrap();
        let found = of(&[std::process::id() as i32]);
        assert!(found.iter().any(|socket| socket.local == address && socket.state == "LISTEN"));
    }
}
