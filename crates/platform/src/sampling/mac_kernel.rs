//! The calls into macOS' kernel. What they hand out is read by plain code elsewhere ([`super::mac_memory`],
//! [`super::mac_process`]); elsewhere than on macOS every call is refused.
//!
//! Sources: `mach/mach_host.h`, `mach/vm_statistics.h`, `sys/sysctl.h`, `libproc.h`, `sys/resource.h`.

use super::mac_memory::{Settings, Swap, Told, VmCounts, no_counts};
use super::mac_process::{RawLife, RawUsage, Refusal, Timebase, refusal};

/// Counts of pages.
pub(super) fn vm_counts() -> VmCounts {
    calls::vm_counts().unwrap_or_else(|reason| no_counts(&reason))
}

/// The values of `sysctl` that a sample needs.
pub(super) fn settings() -> Settings {
    Settings {
        total_bytes: calls::sysctl::<8>(c"hw.memsize")
            .map(u64::from_ne_bytes)
            .and_then(|bytes| if bytes == 0 { Err("the system names no main memory".to_owned()) } else { Ok(bytes) }),
        swap: calls::sysctl::<32>(c"vm.swapusage").map(|raw| swap(&raw)),
        pressure_level: small(c"kern.memorystatus_vm_pressure_level"),
        free_percent: small(c"kern.memorystatus_level"),
    }
}

/// Life, status and start of a process, ended ones included.
pub(super) fn life(pid: u32) -> Result<RawLife, Refusal> {
    calls::life(pid).map_err(|error| refusal(&error))
}

/// CPU time and memory of a process.
pub(super) fn usage(pid: u32) -> Result<RawUsage, Refusal> {
    calls::usage(pid).map_err(|error| refusal(&error))
}

/// The unit of CPU times.
pub(super) fn timebase() -> Timebase {
    calls::timebase()
}

fn small(name: &std::ffi::CStr) -> Told<u32> {
    calls::sysctl::<4>(name).map(u32::from_ne_bytes)
}

/// `struct xsw_usage`: total, available and used bytes, then page size and whether it is encrypted.
fn swap(raw: &[u8; 32]) -> Swap {
    let word = |index: usize| {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(&raw[index * 8..index * 8 + 8]);
        u64::from_ne_bytes(bytes)
    };
    Swap { total_bytes: word(0), used_bytes: word(2) }
}

#[cfg(target_os = "macos")]
#[expect(unsafe_code, reason = "the kernel's numbers are handed out through C functions alone")]
mod calls {
    use super::{RawLife, RawUsage, Timebase, Told, VmCounts};
    use std::ffi::{CStr, c_int, c_void};
    use std::io;
    use std::mem::{offset_of, size_of};
    use std::sync::OnceLock;

    /// `mach_timebase_info_data_t`.
    #[repr(C)]
    struct RawTimebase {
        numer: u32,
        denom: u32,
    }

    // `libc` marks its own declarations of these as deprecated.
    unsafe extern "C" {
        fn mach_host_self() -> libc::mach_port_t;
        fn host_page_size(host: libc::mach_port_t, page_bytes: *mut libc::vm_size_t) -> libc::kern_return_t;
        fn mach_timebase_info(info: *mut RawTimebase) -> libc::kern_return_t;
    }

    /// The right to ask the host. Each call of `mach_host_self` adds a reference to it, so it is asked for once and
    /// kept for the life of the process.
    fn host() -> libc::mach_port_t {
        static HOST: OnceLock<libc::mach_port_t> = OnceLock::new();
        // SAFETY: takes no arguments and returns a port name that stays valid for this process.
        *HOST.get_or_init(|| unsafe { mach_host_self() })
    }

    pub(super) fn vm_counts() -> Told<VmCounts> {
        let refused = |call: &str, code: libc::kern_return_t| format!("the kernel refused {call} with {code}");
        let mut page_bytes: libc::vm_size_t = 0;
        // SAFETY: the pointer is to a live variable of the type that is written.
        let code = unsafe { host_page_size(host(), &raw mut page_bytes) };
        if code != libc::KERN_SUCCESS || page_bytes == 0 {
            return Err(refused("host_page_size", code));
        }
        // SAFETY: the structure holds integers alone, for which all zeros is a value.
        let mut raw: libc::vm_statistics64 = unsafe { std::mem::zeroed() };
        let mut words = libc::HOST_VM_INFO64_COUNT;
        // SAFETY: `words` is the size of `raw` in 32-bit words, so that the kernel writes within it.
        let code =
            unsafe { libc::host_statistics64(host(), libc::HOST_VM_INFO64, (&raw mut raw).cast(), &raw mut words) };
        // An older kernel knows fewer fields, and says how many words it wrote.
        let needed = offset_of!(libc::vm_statistics64, total_uncompressed_pages_in_compressor) / size_of::<u32>();
        if code != libc::KERN_SUCCESS || usize::try_from(words).is_ok_and(|words| words < needed) {
            return Err(refused("host_statistics64", code));
        }
        Ok(VmCounts {
            page_bytes: u64::try_from(page_bytes).map_err(|error| error.to_string()),
            internal: Ok(u64::from(raw.internal_page_count)),
            external: Ok(u64::from(raw.external_page_count)),
            purgeable: Ok(u64::from(raw.purgeable_count)),
            wired: Ok(u64::from(raw.wire_count)),
            compressor: Ok(u64::from(raw.compressor_page_count)),
            decompressions: Ok(raw.decompressions),
            swapins: Ok(raw.swapins),
            swapouts: Ok(raw.swapouts),
        })
    }

    /// A value of exactly N bytes.
    pub(super) fn sysctl<const N: usize>(name: &CStr) -> Told<[u8; N]> {
        let mut bytes = [0_u8; N];
        let mut length = N;
        // SAFETY: `name` ends with NUL; `length` is the size of `bytes`, and the kernel writes no more than that; no
        // new value is handed in.
        let code = unsafe {
            libc::sysctlbyname(name.as_ptr(), bytes.as_mut_ptr().cast(), &raw mut length, std::ptr::null_mut(), 0)
        };
        let shown = name.to_string_lossy();
        if code != 0 {
            return Err(format!("the kernel does not tell {shown}: {}", io::Error::last_os_error()));
        }
        if length == N { Ok(bytes) } else { Err(format!("the kernel tells {shown} in {length} bytes, not {N}")) }
    }

    pub(super) fn life(pid: u32) -> io::Result<RawLife> {
        // SAFETY: the structure holds integers alone, for which all zeros is a value.
        let mut raw: libc::proc_bsdinfo = unsafe { std::mem::zeroed() };
        let size = size_of::<libc::proc_bsdinfo>();
        // The argument 1 asks for ended processes as well.
        // SAFETY: `size` is the size of `raw`, and the kernel writes no more than that.
        let written = unsafe {
            libc::proc_pidinfo(
                number(pid)?,
                libc::PROC_PIDTBSDINFO,
                1,
                (&raw mut raw).cast::<c_void>(),
                c_int::try_from(size).unwrap_or(0),
            )
        };
        if usize::try_from(written).ok() == Some(size) {
            Ok(RawLife { status: raw.pbi_status, flags: raw.pbi_flags, started_unix_s: raw.pbi_start_tvsec })
        } else {
            Err(io::Error::last_os_error())
        }
    }

    pub(super) fn usage(pid: u32) -> io::Result<RawUsage> {
        // SAFETY: the structure holds integers alone, for which all zeros is a value.
        let mut raw: libc::rusage_info_v4 = unsafe { std::mem::zeroed() };
        // SAFETY: the flavour names the structure that the pointer leads to. The declared type of the pointer is a
        // quirk of the header; the kernel writes the structure itself.
        let code = unsafe {
            libc::proc_pid_rusage(number(pid)?, libc::RUSAGE_INFO_V4, (&raw mut raw).cast::<libc::rusage_info_t>())
        };
        if code != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(RawUsage {
            cpu_units: raw.ri_user_time.saturating_add(raw.ri_system_time),
            footprint_bytes: raw.ri_phys_footprint,
            pageins: raw.ri_pageins,
        })
    }

    pub(super) fn timebase() -> Timebase {
        static TIMEBASE: OnceLock<Timebase> = OnceLock::new();
        *TIMEBASE.get_or_init(|| {
            let mut raw = RawTimebase { numer: 0, denom: 0 };
            // SAFETY: the pointer is to a live structure of the layout that is written.
            let _zeros_tell = unsafe { mach_timebase_info(&raw mut raw) };
            Timebase { numer: raw.numer, denom: raw.denom }
        })
    }

    fn number(pid: u32) -> io::Result<c_int> {
        c_int::try_from(pid).map_err(|_| io::Error::from_raw_os_error(libc::ESRCH))
    }
}

#[cfg(not(target_os = "macos"))]
mod calls {
    use super::{RawLife, RawUsage, Timebase, Told, VmCounts};
    use std::ffi::CStr;
    use std::io;

    const REASON: &str = "this is not macOS";

    pub(super) fn vm_counts() -> Told<VmCounts> {
        Err(REASON.to_owned())
    }

    pub(super) fn sysctl<const N: usize>(_name: &CStr) -> Told<[u8; N]> {
        Err(REASON.to_owned())
    }

    pub(super) fn life(_pid: u32) -> io::Result<RawLife> {
        Err(io::Error::other(REASON))
    }

    pub(super) fn usage(_pid: u32) -> io::Result<RawUsage> {
        Err(io::Error::other(REASON))
    }

    pub(super) fn timebase() -> Timebase {
        Timebase { numer: 0, denom: 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn swap_usage_is_read_word_by_word() {
        let mut raw = [0; 32];
        for (index, word) in [6_442_450_944_u64, 1_069_809_664, 5_372_641_280].into_iter().enumerate() {
            raw[index * 8..index * 8 + 8].copy_from_slice(&word.to_ne_bytes());
        }
        assert_eq!(swap(&raw), Swap { total_bytes: 6_442_450_944, used_bytes: 5_372_641_280 });
    }

    #[cfg(not(target_os = "macos"))]
    #[test]
    fn elsewhere_the_kernel_is_not_asked() {
        assert_eq!(vm_counts().wired, Err("this is not macOS".to_owned()));
        assert_eq!(settings().swap, Err("this is not macOS".to_owned()));
        assert!(matches!(life(1), Err(Refusal::Because(_))));
        assert!(matches!(usage(1), Err(Refusal::Because(_))));
        assert_eq!(timebase().denom, 0);
    }

    #[cfg(target_os = "macos")]
    #[test]
    fn the_kernel_tells_of_itself_and_of_this_process() {
        let counts = vm_counts();
        assert!(counts.wired.is_ok_and(|pages| pages > 0));
        assert!(counts.page_bytes.is_ok_and(|bytes| bytes == 4_096 || bytes == 16_384));
        assert!(settings().total_bytes.is_ok_and(|bytes| bytes > 1 << 30));
        assert!(usage(std::process::id()).is_ok_and(|usage| usage.footprint_bytes > 0));
        let life = life(std::process::id()).unwrap();
        assert_eq!(Some(life.started_unix_s), crate::processes::identity(std::process::id()).map(|id| id.birth));
        assert!(timebase().denom > 0);
    }
}
