//! The server's log: its lines, its config line, and two ways to read the file in constant memory.
//!
//! One file holds four languages: the server's own records (`time=… level=… msg=…`, before 0.6 or so
//! `2025/02/26 21:37:33 file.go:1: INFO …`), access lines (`[GIN] …`), the raw lines of the runners, and whatever else
//! was printed. [`Parser`] makes one [`Line`] of each. Lines of the first three kinds may be cut, interleaved or hold
//! bytes that are no UTF-8; none of that is an error, it is [`Line::Other`].

pub mod config_line;
pub mod follower;
pub mod reader;

mod access;
mod line;
mod record;
mod runner_line;
mod stamp;

pub use access::Access;
pub use config_line::ConfigLine;
pub use line::{Line, Parser, RunnerFailure};
pub use record::Level;
pub use runner_line::{Buffer, BufferUse, SlotEvent, SlotLine};

/// What Ollama itself looks for in a runner's words to call them out of memory (`ollama llm/status.go`), lower case.
const OUT_OF_MEMORY: [&str; 10] = [
    "out of memory",
    "out of device memory",
    "cudamalloc failed",
    "hipmalloc failed",
    "failed to allocate",
    "allocation failed",
    "not enough memory",
    "insufficient memory",
    "vk_error_out_of_device_memory",
    "erroroutofmemory",
];

/// Whether a text speaks of memory that could not be had. The runner recovers by itself from one case, which does not
/// count.
pub fn speaks_of_exhausted_memory(text: &str) -> bool {
    if !may_speak_of_exhausted_memory(text.as_bytes()) {
        return false;
    }
    let lower = text.to_ascii_lowercase();
    OUT_OF_MEMORY.iter().any(|marker| lower.contains(marker))
        && !lower.contains("retrying without pipeline parallelism")
}

/// A quick look that excludes nearly everything: each marker holds `memory` or `failed`.
fn may_speak_of_exhausted_memory(text: &[u8]) -> bool {
    let holds = |[small, large]: [u8; 2], before: &[u8], after: &[u8]| {
        memchr::memchr2_iter(small, large, text).any(|at| {
            let begins = text[..at].len().checked_sub(before.len());
            begins.is_some_and(|begins| text[begins..at].eq_ignore_ascii_case(before))
                && text[at + 1..].get(..after.len()).is_some_and(|next| next.eq_ignore_ascii_case(after))
        })
    };
    holds([b'y', b'Y'], b"memor", b"") || holds([b'f', b'F'], b"", b"ailed")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_marker_passes_the_quick_look_in_any_case() {
        for marker in OUT_OF_MEMORY {
            let (upper, mixed) = (marker.to_uppercase(), format!("x{}y", marker.replace('o', "O")));
            for text in [marker, &upper, &mixed] {
                assert!(speaks_of_exhausted_memory(text), "{text}");
            }
        }
        for text in ["", "memor", "all slots are idle", "failed", "out of mem", "f", "y", "memory_seq_rm [0, end)"] {
            assert!(!speaks_of_exhausted_memory(text), "{text}");
        }
    }
}
