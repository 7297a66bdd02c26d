//! What one look finds, as data. Every value is known or carries the reason why it is not.

use stablehand_engine::Known;
use stablehand_engine::process::Identity;
use stablehand_engine::time::{Awake, Now};
use std::path::PathBuf;
use std::time::Duration;

/// One look at the machine and at the processes that were asked for.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// When it was taken.
    pub at: Now,
    /// Main memory and swap.
    pub memory: Memory,
    /// The GPU.
    pub gpu: Gpu,
    /// Heat.
    pub thermal: Thermal,
    /// One entry for each process that was asked for, in that order.
    pub processes: Vec<ProcessSample>,
}

/// Main memory and swap.
#[derive(Clone, Debug, PartialEq)]
pub struct Memory {
    /// Main memory.
    pub total_bytes: Known<u64>,
    /// In use. macOS: as Activity Monitor counts it, apps (anonymous pages that cannot be purged) + wired +
    /// compressed; its headline may lie up to 1 GB above this sum. Linux: `MemTotal` − `MemAvailable`.
    pub used_bytes: Known<u64>,
    /// Cannot be paged out. macOS: wired pages. Linux: unevictable pages, the kernel's own unreclaimable slabs, stacks
    /// and page tables.
    pub wired_bytes: Known<u64>,
    /// Main memory that holds compressed pages. macOS: "occupied by compressor". Linux: `Zswap`.
    pub compressed_bytes: Known<u64>,
    /// Holds copies of files and what apps have declared purgeable; given up on demand.
    pub cached_bytes: Known<u64>,
    /// What can be had without swapping, in percent of the total. macOS: `kern.memorystatus_level`. Linux:
    /// `MemAvailable`.
    pub free_percent: Known<u32>,
    /// Size of the swap space; macOS lets it grow and shrink.
    pub swap_total_bytes: Known<u64>,
    /// Swap space in use.
    pub swap_used_bytes: Known<u64>,
    /// Read back from swap.
    pub swap_in: Flow,
    /// Written to swap. It flows also while [`Self::pressure`] stays normal with swap full.
    pub swap_out: Flow,
    /// Unpacked from compressed memory. macOS: decompressions. Linux: zswap.
    pub decompressed: Flow,
    /// What the kernel calls the pressure.
    pub pressure: Known<Pressure>,
    /// The tightest limit that a control group sets on us or on one of the processes that were asked for; `None` when
    /// none is set. It can lie far below the machine's memory.
    pub limit: Known<Option<MemoryLimit>>,
}

/// A counter since boot, and how fast it grew in awake time since the look before.
#[derive(Clone, Debug, PartialEq)]
pub struct Flow {
    /// Since boot.
    pub total_bytes: Known<u64>,
    /// Between the last two looks, per second awake.
    pub bytes_per_s: Known<f64>,
}

/// How hard memory is to get.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Pressure {
    /// Enough.
    Normal,
    /// Pages are being compressed or reclaimed while others wait.
    Warning,
    /// Everybody waits for memory.
    Critical,
}

impl Pressure {
    /// As `kern.memorystatus_vm_pressure_level` counts: 1, 2, 4.
    pub const fn level(self) -> u32 {
        match self {
            Self::Normal => 1,
            Self::Warning => 2,
            Self::Critical => 4,
        }
    }

    /// The pressure with that level.
    pub const fn from_level(level: u32) -> Option<Self> {
        match level {
            1 => Some(Self::Normal),
            2 => Some(Self::Warning),
            4 => Some(Self::Critical),
            _ => None,
        }
    }
}

/// What a control group may use (`memory.max` of cgroups v2, `memory.limit_in_bytes` of v1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryLimit {
    /// The most that the group may use.
    pub limit_bytes: u64,
    /// What it uses, caches included.
    pub used_bytes: Known<u64>,
    /// The group's folder.
    pub group: PathBuf,
}

/// The GPU. Read at most every few seconds, because it takes a command of the system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gpu {
    /// How much memory it may use in all. macOS: `recommendedMaxWorkingSetSize` of Metal. It is never computed from
    /// main memory.
    pub working_set_limit_bytes: Known<u64>,
    /// Memory that it uses.
    pub in_use_bytes: Known<u64>,
    /// How busy it is. A desktop alone can show well over half for a moment: only use that lasts means something.
    pub utilisation_percent: Known<u32>,
}

/// Heat.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Thermal {
    /// The system has made the processor slower because of heat.
    pub throttled: Known<bool>,
}

/// One process.
#[derive(Clone, Debug, PartialEq)]
pub struct ProcessSample {
    /// Which life of which pid was asked for.
    pub id: Identity,
    /// What the kernel says of it.
    pub state: Known<RunState>,
    /// CPU time since it started, all threads, in the machine's own time (a simulated world may run faster).
    pub cpu: Known<Duration>,
    /// Memory that is its own.
    pub footprint: Known<Footprint>,
    /// What had to be read from a disk for it: swapped pages, and mapped files that memory had no room for (Linux
    /// `majflt`, which counts what was read ahead as nothing; macOS `ri_pageins`).
    pub read_back: Flow,
}

/// What the kernel says of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunState {
    /// It runs, waits or sleeps.
    Running,
    /// A signal or a debugger stopped it.
    Stopped,
    /// It has ended and its parent has not noticed yet.
    Zombie,
    /// There is no such process, or its pid has begun another life.
    Gone,
}

/// Memory of one process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Footprint {
    /// How much.
    pub bytes: u64,
    /// What was counted.
    pub kind: FootprintKind,
    /// When it was counted: counting shares of a large process is costly, so it is not done in each look.
    pub counted: Awake,
}

/// What a footprint counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FootprintKind {
    /// macOS' physical footprint (`ri_phys_footprint`), which Activity Monitor shows as "Memory". Weights that are
    /// mapped from a file are missing from it.
    Physical,
    /// Linux' proportional set size: pages shared by *n* processes count 1/*n*.
    Proportional,
    /// Linux' resident set size, where shares are not shown to us: pages shared with others count in full.
    Resident,
}

/// Why a flow has no rate yet.
pub(super) const FIRST_LOOK: &str = "a rate needs two looks, and this is the first";

impl Flow {
    /// A counter whose rate is not known yet.
    pub(super) fn so_far(total_bytes: Known<u64>) -> Self {
        let bytes_per_s = match &total_bytes {
            Known::Is(_) => Known::unknown(FIRST_LOOK),
            Known::Unknown(reason) => Known::Unknown(reason.clone()),
        };
        Self { total_bytes, bytes_per_s }
    }
}

#[cfg(test)]
impl Memory {
    /// A memory of which nothing is known, for one reason.
    pub(super) fn unknown(reason: &str) -> Self {
        let bytes = || Known::unknown(reason);
        Self {
            total_bytes: bytes(),
            used_bytes: bytes(),
            wired_bytes: bytes(),
            compressed_bytes: bytes(),
            cached_bytes: bytes(),
            free_percent: Known::unknown(reason),
            swap_total_bytes: bytes(),
            swap_used_bytes: bytes(),
            swap_in: Flow::so_far(bytes()),
            swap_out: Flow::so_far(bytes()),
            decompressed: Flow::so_far(bytes()),
            pressure: Known::unknown(reason),
            limit: Known::unknown(reason),
        }
    }
}

impl ProcessSample {
    /// A process that is not there any more.
    pub(super) fn gone(id: Identity) -> Self {
        Self { state: Known::Is(RunState::Gone), ..Self::unknown(id, "the process has ended") }
    }

    /// A process that cannot be looked at.
    pub(super) fn unknown(id: Identity, reason: &str) -> Self {
        Self {
            id,
            state: Known::unknown(reason),
            cpu: Known::unknown(reason),
            footprint: Known::unknown(reason),
            read_back: Flow::so_far(Known::unknown(reason)),
        }
    }
}
