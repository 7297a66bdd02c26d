//! On what terms a model is loaded: what a request of ours must not change.

use stablehand_engine::Known;
use stablehand_engine::loaded::PINNED;
use stablehand_engine::process::RunnerArgs;
use stablehand_engine::time::Wall;
use std::time::Duration;

/// How long a model stays after its last request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stay {
    /// It is pinned (`keep_alive` -1).
    Forever,
    /// So long.
    For(Duration),
}

impl Stay {
    /// The stay that is left at `now` of one that ends at `until` (`expires_at` of `/api/ps`); `None` when that is over,
    /// as it is while a request takes longer than the stay: then it is not known.
    pub fn left(until: Wall, now: Wall) -> Option<Self> {
        let left = until - now;
        if left.is_zero() {
            None
        } else if left >= PINNED {
            Some(Self::Forever)
        } else {
            Some(Self::For(left))
        }
    }
}

/// The options of a load that a later request has to repeat, as far as they are known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LoadTerms {
    /// Context of one slot (`num_ctx`).
    pub context_per_slot_tokens: Option<u64>,
    /// Its stay (`keep_alive`).
    pub stay: Option<Stay>,
}

impl LoadTerms {
    /// From the arguments of its runner, whose context is that of all slots together, and the stay.
    pub fn of(args: Option<&RunnerArgs>, stay: Option<Stay>) -> Self {
        let context_per_slot_tokens = args.and_then(|args| match (&args.context_tokens, &args.slots) {
            (Known::Is(tokens), Known::Is(slots)) if *slots > 0 => Some(*tokens / u64::from(*slots)),
            (Known::Is(_) | Known::Unknown(_), Known::Is(_) | Known::Unknown(_)) => None,
        });
        Self { context_per_slot_tokens: context_per_slot_tokens.filter(|tokens| *tokens > 0), stay }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::argv::runner_of_command_line;

    #[test]
    fn the_context_of_one_slot_is_what_a_client_asked_for() {
        let terms = |line: &str| LoadTerms::of(runner_of_command_line(line).as_ref(), None).context_per_slot_tokens;
        assert_eq!(terms("/x/llama-server --model /m/blobs/sha256-a --port 1 -c 32768 -np 4"), Some(8192));
        assert_eq!(terms("/x/llama-server --model /m/blobs/sha256-a --port 1 -c 8192 -np 1"), Some(8192));
        for unknown in ["/x/llama-server --model /m/blobs/sha256-a -c 8192", "/x/ollama runner --mlx-engine --model m"]
        {
            assert_eq!(terms(unknown), None, "{unknown}");
        }
        assert_eq!(LoadTerms::of(None, Some(Stay::Forever)).context_per_slot_tokens, None);
    }

    #[test]
    fn a_pin_is_a_pin_and_a_stay_that_is_over_is_not_known() {
        let at = Wall::from_unix_ms;
        assert_eq!(Stay::left(at(300_000), at(0)), Some(Stay::For(Duration::from_secs(300))));
        assert_eq!(Stay::left(at(i64::MAX), at(0)), Some(Stay::Forever));
        assert_eq!(Stay::left(at(11_000_000_000_000), at(1_796_000_000_000)), Some(Stay::Forever));
        assert_eq!(Stay::left(at(5), at(5)), None);
        assert_eq!(Stay::left(at(5), at(9)), None);
    }
}
