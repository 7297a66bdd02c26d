//! Free ports outside the range from which the system takes ports for
//! outgoing connections, so that a port stays free until it is bound.

use std::net::{Ipv4Addr, TcpListener};

const FIRST: u32 = 20_000;
const COUNT: u32 = 12_000;

/// A port on loopback that nobody listens on.
pub fn free() -> std::io::Result<u16> {
    free_but(|_port| false)
}

/// The same, and none that somebody will listen on later.
pub fn free_but(is_promised: impl Fn(u16) -> bool) -> std::io::Result<u16> {
    let nanos = jiff::Timestamp::now().subsec_nanosecond().unsigned_abs();
    let start = std::process::id().wrapping_mul(7_919).wrapping_add(nanos / 100);
    for step in 0..COUNT {
        let port = FIRST + start.wrapping_add(step.wrapping_mul(37)) % COUNT;
        let Ok(port) = u16::try_from(port) else {
            continue;
        };
        if !is_promised(port) && TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return Ok(port);
        }
    }
    Err(std::io::Error::other("no free port on loopback"))
}
