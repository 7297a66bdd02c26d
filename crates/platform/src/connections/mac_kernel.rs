//! The calls into macOS' kernel that show processes and their sockets (`libproc.h`). Elsewhere nothing is shown.

use super::mac_sockets::{SOCKET_INFO_BYTES, TcpSocket, parse_socket};

/// A `struct socket_fdinfo` as the kernel wrote it.
type RawSocket = [u8; SOCKET_INFO_BYTES];

/// Every pid.
pub(super) fn pids() -> Result<Vec<u32>, String> {
    calls::pids()
}

/// The TCP sockets that a process has open; none when it is not shown to us or has ended.
pub(super) fn sockets_of(pid: u32) -> Vec<TcpSocket> {
    calls::sockets_of(pid).iter().filter_map(parse_socket).collect()
}

#[cfg(target_os = "macos")]
#[expect(unsafe_code, reason = "the kernel shows processes and sockets through C functions alone")]
mod calls {
    use super::{RawSocket, SOCKET_INFO_BYTES};
    use std::ffi::c_int;
    use std::io;

    /// `PROC_PIDLISTFDS`.
    const LIST_FDS: c_int = 1;

    /// `PROC_PIDFDSOCKETINFO`.
    const SOCKET_INFO: c_int = 3;

    /// `PROX_FDTYPE_SOCKET`.
    const SOCKET: u32 = 2;

    /// `struct proc_fdinfo`: a descriptor and its kind.
    const FD_BYTES: usize = 8;

    /// Room for processes that start between the two calls.
    const SPARE_PIDS: usize = 64;

    pub(super) fn pids() -> Result<Vec<u32>, String> {
        // SAFETY: without a buffer the kernel only tells how many there are.
        let count = unsafe { libc::proc_listallpids(std::ptr::null_mut(), 0) };
        let mut pids = vec![0_i32; usize::try_from(count).unwrap_or(0) + SPARE_PIDS];
        let bytes = c_int::try_from(size_of_val(pids.as_slice())).unwrap_or(0);
        // SAFETY: `bytes` is the size of the buffer, and the kernel writes no more than that.
        let count = unsafe { libc::proc_listallpids(pids.as_mut_ptr().cast(), bytes) };
        match usize::try_from(count) {
            Ok(count) if count > 0 => {
                pids.truncate(count);
                Ok(pids.into_iter().filter_map(|pid| u32::try_from(pid).ok()).collect())
            }
            Ok(_) | Err(_) => Err(format!("macOS does not list processes: {}", io::Error::last_os_error())),
        }
    }

    pub(super) fn sockets_of(pid: u32) -> Vec<RawSocket> {
        let Ok(pid) = c_int::try_from(pid) else { return Vec::new() };
        descriptors(pid).into_iter().filter_map(|descriptor| socket(pid, descriptor)).collect()
    }

    /// The descriptors that are sockets.
    fn descriptors(pid: c_int) -> Vec<c_int> {
        // SAFETY: without a buffer the kernel only tells how much room the list takes.
        let bytes = unsafe { libc::proc_pidinfo(pid, LIST_FDS, 0, std::ptr::null_mut(), 0) };
        let Some(bytes) = usize::try_from(bytes).ok().filter(|bytes| *bytes > 0) else { return Vec::new() };
        let mut buffer = vec![0_u8; bytes + 16 * FD_BYTES];
        let room = c_int::try_from(buffer.len()).unwrap_or(0);
        // SAFETY: `room` is the size of the buffer, and the kernel writes no more than that.
        let written = unsafe { libc::proc_pidinfo(pid, LIST_FDS, 0, buffer.as_mut_ptr().cast(), room) };
        buffer.truncate(usize::try_from(written).unwrap_or(0));
        let sockets = buffer.chunks_exact(FD_BYTES).filter_map(|entry| {
            let (descriptor, kind) = entry.split_at(4);
            (u32::from_ne_bytes(kind.try_into().ok()?) == SOCKET)
                .then(|| descriptor.try_into().ok().map(c_int::from_ne_bytes))
                .flatten()
        });
        sockets.collect()
    }

    fn socket(pid: c_int, descriptor: c_int) -> Option<RawSocket> {
        let mut raw = [0_u8; SOCKET_INFO_BYTES];
        let room = c_int::try_from(SOCKET_INFO_BYTES).ok()?;
        // SAFETY: `room` is the size of the buffer, and the kernel writes no more than that.
        let written = unsafe { libc::proc_pidfdinfo(pid, descriptor, SOCKET_INFO, raw.as_mut_ptr().cast(), room) };
        (written == room).then_some(raw)
    }
}

#[cfg(not(target_os = "macos"))]
mod calls {
    use super::RawSocket;

    pub(super) fn pids() -> Result<Vec<u32>, String> {
        Err("this is not macOS".to_owned())
    }

    pub(super) fn sockets_of(_pid: u32) -> Vec<RawSocket> {
        Vec::new()
    }
}
