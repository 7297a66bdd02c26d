//! Linux's socket table: `/proc/net/tcp`, `/proc/net/tcp6` and the links in `/proc/PID/fd` (`proc(5)`).

use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// State `TCP_LISTEN` in hexadecimal (`include/net/tcp_states.h`).
const LISTEN: &str = "0A";

/// A listening socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Socket {
    pub(super) address: SocketAddr,
    pub(super) uid: u32,
    pub(super) inode: u64,
}

/// The sockets of a table that listen on this port. Rows that are not understood are left out.
pub(super) fn listening(table: &str, port: u16) -> Vec<Socket> {
    table.lines().skip(1).filter_map(row).filter(|socket| socket.address.port() == port).collect()
}

/// Every socket that some process of ours (every process, for root) has open, with the process.
pub(super) fn open_sockets() -> Vec<(u64, u32)> {
    let Ok(processes) = fs::read_dir("/proc") else { return Vec::new() };
    let pids = processes.flatten().filter_map(|process| process.file_name().to_str()?.parse::<u32>().ok());
    pids.flat_map(|pid| sockets_of(pid).into_iter().map(move |inode| (inode, pid))).collect()
}

/// The sockets that a process has open; none when its folder cannot be listed (another user's process).
pub(crate) fn sockets_of(pid: u32) -> Vec<u64> {
    let Ok(descriptors) = fs::read_dir(format!("/proc/{pid}/fd")) else { return Vec::new() };
    let links = descriptors.flatten().filter_map(|descriptor| fs::read_link(descriptor.path()).ok());
    links.filter_map(|link| socket_inode(link.to_str()?)).collect()
}

fn row(line: &str) -> Option<Socket> {
    let fields: Vec<_> = line.split_whitespace().collect();
    // sl local_address rem_address st tx:rx tr:when retrnsmt uid timeout inode
    let [_, local, _, LISTEN, _, _, _, uid, _, inode, ..] = fields.as_slice() else { return None };
    Some(Socket { address: address(local)?, uid: uid.parse().ok()?, inode: inode.parse().ok()? })
}

/// `0100007F:2CAA` as `127.0.0.1:11434`.
pub(crate) fn address(text: &str) -> Option<SocketAddr> {
    let (ip, port) = text.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    // Each group of eight digits is a word in the machine's byte order.
    let word = |text: &str| u32::from_str_radix(text, 16).ok().map(u32::to_ne_bytes);
    let ip = match ip.len() {
        8 => IpAddr::V4(Ipv4Addr::from(word(ip)?)),
        32 => {
            let mut octets = [0; 16];
            for (group, out) in ip.as_bytes().chunks(8).zip(octets.chunks_mut(4)) {
                out.copy_from_slice(&word(std::str::from_utf8(group).ok()?)?);
            }
            IpAddr::V6(Ipv6Addr::from(octets))
        }
        _ => return None,
    };
    Some(SocketAddr::new(ip, port))
}

fn socket_inode(link: &str) -> Option<u64> {
    link.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TCP: &str = include_str!("../../fixtures/proc-net-tcp.txt");
    const TCP6: &str = include_str!("../../fixtures/proc-net-tcp6.txt");

    #[test]
    fn only_listening_sockets_of_the_port_are_taken() {
        let found = listening(TCP, 11434);
        assert_eq!(found, [Socket { address: "127.0.0.1:11434".parse().unwrap(), uid: 998, inode: 48213 }]);
        assert_eq!(listening(TCP, 22).len(), 1);
        assert_eq!(listening(TCP, 80), []);
    }

    #[test]
    fn long_addresses_are_read_word_by_word() {
        let found = listening(TCP6, 11434);
        let addresses: Vec<_> = found.iter().map(|socket| socket.address.to_string()).collect();
        assert_eq!(addresses, ["[::]:11434", "[::1]:11434"]);
    }

    #[test]
    fn other_descriptors_are_no_sockets() {
        assert_eq!(socket_inode("socket:[48213]"), Some(48213));
        assert_eq!(socket_inode("/dev/null"), None);
        assert_eq!(socket_inode("anon_inode:[eventpoll]"), None);
    }
}
