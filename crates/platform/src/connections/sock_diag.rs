//! Linux: established TCP connections through the kernel's diagnostics socket (`sock_diag(7)`).
//!
//! `/proc/net/tcp` says the same, but walks the kernel's whole hash table in a costly way: milliseconds on a machine
//! with much memory, however few connections there are. This takes a twentieth of that.

use super::proc_net::End;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// `AF_INET` and `AF_INET6`.
const FAMILIES: [u8; 2] = [AF_INET, AF_INET6];
const AF_INET: u8 = 2;
const AF_INET6: u8 = 10;

/// `IPPROTO_TCP`.
const TCP: u8 = 6;

/// `TCP_ESTABLISHED`.
const ESTABLISHED: u8 = 1;

/// `SOCK_DIAG_BY_FAMILY`.
const BY_FAMILY: u16 = 20;

/// `NLM_F_REQUEST | NLM_F_DUMP`.
const REQUEST_ALL: u16 = 0x301;

/// Kinds of messages (`linux/netlink.h`).
const ERROR: u16 = 2;
const DONE: u16 = 3;

/// Size of `struct nlmsghdr`.
const HEADER_BYTES: usize = 16;

/// Size of `struct inet_diag_req_v2`.
const REQUEST_BYTES: usize = 56;

/// Size of `struct inet_diag_msg`.
const ANSWER_BYTES: usize = 72;

/// Whether more of the answer follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rest {
    Follows,
    Ended,
}

/// Every established connection of this network namespace.
pub(super) fn ends() -> Result<Vec<End>, String> {
    let mut ends = Vec::new();
    for family in FAMILIES {
        let socket = netlink::Socket::open()?;
        socket.send(&request(family))?;
        let mut buffer = vec![0; 64 * 1024];
        loop {
            let length = socket.receive(&mut buffer)?;
            if read_messages(buffer.get(..length).unwrap_or_default(), &mut ends)? == Rest::Ended {
                break;
            }
        }
    }
    Ok(ends)
}

/// A header and a `struct inet_diag_req_v2` that asks for all established connections.
fn request(family: u8) -> Vec<u8> {
    let length = HEADER_BYTES + REQUEST_BYTES;
    let mut bytes = Vec::with_capacity(length);
    bytes.extend(u32::try_from(length).unwrap_or(u32::MAX).to_ne_bytes());
    bytes.extend(BY_FAMILY.to_ne_bytes());
    bytes.extend(REQUEST_ALL.to_ne_bytes());
    // Sequence number and port of the sender.
    bytes.extend(1_u32.to_ne_bytes());
    bytes.extend(0_u32.to_ne_bytes());
    bytes.extend([family, TCP, 0, 0]);
    bytes.extend((1_u32 << ESTABLISHED).to_ne_bytes());
    bytes.resize(length, 0);
    bytes
}

/// Reads what one receive brought.
fn read_messages(mut bytes: &[u8], ends: &mut Vec<End>) -> Result<Rest, String> {
    if bytes.is_empty() {
        return Err("the kernel's answer about connections was cut".to_owned());
    }
    while bytes.len() >= HEADER_BYTES {
        let length = number(bytes, 0).and_then(|length| usize::try_from(length).ok()).unwrap_or(0);
        let message = bytes.get(HEADER_BYTES..length).ok_or("the kernel's answer about connections was cut")?;
        match short(bytes, 4) {
            Some(DONE) => return Ok(Rest::Ended),
            Some(ERROR) => {
                let code = number(message, 0).map_or(0, |code| code.cast_signed().wrapping_neg());
                return Err(format!(
                    "the kernel does not tell of connections: {}",
                    std::io::Error::from_raw_os_error(code)
                ));
            }
            Some(_) | None => ends.extend(end(message)),
        }
        // Messages start at multiples of four bytes.
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    Ok(Rest::Follows)
}

/// A `struct inet_diag_msg`: family, state, timer, retransmits, ports, addresses, interface, cookie, expiry, queues,
/// uid, inode.
fn end(message: &[u8]) -> Option<End> {
    if message.len() < ANSWER_BYTES || message[1] != ESTABLISHED {
        return None;
    }
    let port = |place: usize| Some(u16::from_be_bytes(message.get(place..place + 2)?.try_into().ok()?));
    Some(End {
        here: SocketAddr::new(address(message, 8)?, port(4)?),
        there: SocketAddr::new(address(message, 24)?, port(6)?),
        uid: number(message, 64)?,
        inode: u64::from(number(message, 68)?),
    })
}

fn address(message: &[u8], place: usize) -> Option<IpAddr> {
    let bytes: [u8; 16] = message.get(place..place + 16)?.try_into().ok()?;
    match *message.first()? {
        AF_INET => Some(IpAddr::V4(Ipv4Addr::new(bytes[0], bytes[1], bytes[2], bytes[3]))),
        AF_INET6 => Some(IpAddr::V6(Ipv6Addr::from(bytes)).to_canonical()),
        _ => None,
    }
}

fn number(bytes: &[u8], place: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(place..place + 4)?.try_into().ok()?))
}

fn short(bytes: &[u8], place: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(place..place + 2)?.try_into().ok()?))
}

#[cfg(target_os = "linux")]
mod netlink {
    use rustix::fd::OwnedFd;
    use rustix::io::Errno;
    use rustix::net::sockopt::{Timeout, set_socket_timeout};
    use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink, recv, send, socket_with};
    use std::time::Duration;

    /// The kernel answers at once; this only keeps a fault of it from holding us.
    const PATIENCE: Duration = Duration::from_secs(1);

    /// A socket to the kernel's diagnostics.
    pub(super) struct Socket(OwnedFd);

    impl Socket {
        pub(super) fn open() -> Result<Self, String> {
            let (family, kind) = (AddressFamily::NETLINK, SocketType::RAW);
            let socket = socket_with(family, kind, SocketFlags::CLOEXEC, Some(netlink::SOCK_DIAG)).map_err(refused)?;
            set_socket_timeout(&socket, Timeout::Recv, Some(PATIENCE)).map_err(refused)?;
            Ok(Self(socket))
        }

        pub(super) fn send(&self, bytes: &[u8]) -> Result<(), String> {
            send(&self.0, bytes, SendFlags::empty()).map(|_whole| ()).map_err(refused)
        }

        pub(super) fn receive(&self, buffer: &mut [u8]) -> Result<usize, String> {
            recv(&self.0, buffer, RecvFlags::empty()).map(|(length, _)| length).map_err(refused)
        }
    }

    fn refused(error: Errno) -> String {
        format!("the kernel does not tell of connections: {error}")
    }
}

#[cfg(not(target_os = "linux"))]
mod netlink {
    const REASON: &str = "only Linux tells of connections in this way";

    pub(super) struct Socket;

    impl Socket {
        pub(super) fn open() -> Result<Self, String> {
            Err(REASON.to_owned())
        }

        pub(super) fn send(&self, _bytes: &[u8]) -> Result<(), String> {
            Err(REASON.to_owned())
        }

        pub(super) fn receive(&self, _buffer: &mut [u8]) -> Result<usize, String> {
            Err(REASON.to_owned())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(kind: u16, body: &[u8]) -> Vec<u8> {
        let length = u32::try_from(HEADER_BYTES + body.len()).unwrap();
        let mut bytes = length.to_ne_bytes().to_vec();
        bytes.extend(kind.to_ne_bytes());
        bytes.extend([2, 0, 1, 0, 0, 0, 9, 0, 0, 0]);
        bytes.extend(body);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    fn answer(family: u8, state: u8, here: (&[u8], u16), there: (&[u8], u16), uid: u32, inode: u32) -> Vec<u8> {
        let mut bytes = vec![0; ANSWER_BYTES + 6];
        (bytes[0], bytes[1]) = (family, state);
        bytes[4..6].copy_from_slice(&here.1.to_be_bytes());
        bytes[6..8].copy_from_slice(&there.1.to_be_bytes());
        bytes[8..8 + here.0.len()].copy_from_slice(here.0);
        bytes[24..24 + there.0.len()].copy_from_slice(there.0);
        bytes[64..68].copy_from_slice(&uid.to_ne_bytes());
        bytes[68..72].copy_from_slice(&inode.to_ne_bytes());
        bytes
    }

    #[test]
    fn answers_of_both_families_are_read_to_the_end() {
        let local = [127, 0, 0, 1];
        let mapped = Ipv4Addr::LOCALHOST.to_ipv6_mapped().octets();
        let mut bytes = message(BY_FAMILY, &answer(AF_INET, 1, (&local, 51_000), (&local, 11_434), 1_000, 70_001));
        bytes.extend(message(BY_FAMILY, &answer(AF_INET6, 1, (&mapped, 11_434), (&mapped, 51_002), 998, 0)));
        // Another state, another family, a short one.
        bytes.extend(message(BY_FAMILY, &answer(AF_INET, 8, (&local, 1), (&local, 2), 0, 0)));
        bytes.extend(message(BY_FAMILY, &answer(1, 1, (&local, 1), (&local, 2), 0, 0)));
        bytes.extend(message(BY_FAMILY, &[AF_INET, 1]));
        let mut ends = Vec::new();
        assert_eq!(read_messages(&bytes, &mut ends), Ok(Rest::Follows));
        assert_eq!(read_messages(&message(DONE, &[0; 4]), &mut ends), Ok(Rest::Ended));
        let socket = |text: &str| text.parse::<SocketAddr>().unwrap();
        let expected = [
            End { here: socket("127.0.0.1:51000"), there: socket("127.0.0.1:11434"), uid: 1_000, inode: 70_001 },
            End { here: socket("127.0.0.1:11434"), there: socket("127.0.0.1:51002"), uid: 998, inode: 0 },
        ];
        assert_eq!(ends, expected);
    }

    #[test]
    fn a_refusal_is_a_reason_and_a_cut_answer_is_no_end() {
        let mut ends = Vec::new();
        let refused = message(ERROR, &(-2_i32).to_ne_bytes());
        assert!(read_messages(&refused, &mut ends).is_err_and(|reason| reason.contains("No such file")));
        assert!(read_messages(&[], &mut ends).is_err());
        let mut cut = message(BY_FAMILY, &[0; ANSWER_BYTES]);
        cut.truncate(HEADER_BYTES + 20);
        assert!(read_messages(&cut, &mut ends).is_err());
        let mut endless = message(BY_FAMILY, &[0; 4]);
        endless[..4].copy_from_slice(&0_u32.to_ne_bytes());
        assert!(read_messages(&endless, &mut ends).is_err());
        assert_eq!(ends, []);
    }

    #[test]
    fn the_request_asks_for_established_connections_of_a_family() {
        let bytes = request(AF_INET6);
        assert_eq!(bytes.len(), 72);
        assert_eq!(number(&bytes, 0), Some(72));
        assert_eq!((bytes[16], bytes[17]), (AF_INET6, TCP));
        assert_eq!(number(&bytes, 20), Some(2));
    }
}
