//! How much memory a setting can cost at most: weights plus an f16 KV cache of all layers, for the full context of
//! every slot. It is an upper bound (*at most*): sliding windows, recurrent layers and a quantised cache need less.

use crate::known::Known;

/// The numbers of a model that the bound needs, from `/api/show`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelNumbers {
    /// Size of the weights.
    pub weights_bytes: u64,
    /// KV heads of each layer; a model with equal layers has the same number `block_count` times.
    pub kv_heads_per_layer: Vec<u64>,
    /// Length of one key vector, in elements.
    pub key_length: u64,
    /// Length of one value vector, in elements.
    pub value_length: u64,
    /// The longest context the model was made for, in tokens; the server caps to it.
    pub context_limit_tokens: u64,
}

/// What a model would take at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bound {
    /// Weights.
    pub weights_bytes: u64,
    /// KV cache of all slots.
    pub kv_cache_bytes: u64,
    /// Context of one slot, as the server would cap it.
    pub context_per_slot_tokens: u64,
}

impl Bound {
    /// All together.
    pub fn total_bytes(&self) -> u64 {
        self.weights_bytes.saturating_add(self.kv_cache_bytes)
    }
}

/// Bytes of one f16 element.
const F16_BYTES: u64 = 2;

/// The bound for a model with this context per slot and this many slots.
pub fn at_most(model: &ModelNumbers, context_tokens: u64, slots: u64) -> Bound {
    let context = context_tokens.min(model.context_limit_tokens);
    let elements_per_head = model.key_length.saturating_add(model.value_length);
    let heads = model.kv_heads_per_layer.iter().fold(0_u64, |sum, heads| sum.saturating_add(*heads));
    let per_token = heads.saturating_mul(elements_per_head).saturating_mul(F16_BYTES);
    Bound {
        weights_bytes: model.weights_bytes,
        kv_cache_bytes: per_token.saturating_mul(context).saturating_mul(slots.max(1)),
        context_per_slot_tokens: context,
    }
}

/// Where a budget comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BudgetSource {
    /// The GPU's own limit.
    GpuWorkingSet,
    /// Three quarters of the memory, where the GPU's limit is unknown.
    ThreeQuartersOfMemory,
}

impl BudgetSource {
    /// In words; a stable text of the snapshot.
    pub fn words(self) -> &'static str {
        match self {
            Self::GpuWorkingSet => "GPU working set",
            Self::ThreeQuartersOfMemory => "75 % of memory",
        }
    }
}

/// The memory that models may take together.
///
/// # Errors
/// The reason, when neither number is known.
pub fn budget_bytes(
    gpu_working_set_bytes: &Known<u64>,
    memory_bytes: &Known<u64>,
) -> Result<(u64, BudgetSource), String> {
    match (gpu_working_set_bytes, memory_bytes) {
        (Known::Is(limit), _) => Ok((*limit, BudgetSource::GpuWorkingSet)),
        (Known::Unknown(_), Known::Is(total)) => Ok((total / 4 * 3, BudgetSource::ThreeQuartersOfMemory)),
        (Known::Unknown(gpu), Known::Unknown(memory)) => Err(format!("{gpu}; {memory}")),
    }
}

const GIB: u64 = 1 << 30;

/// The context that the server gives a model when nobody sets one, by GPU memory (`ollama server/routes.go`).
pub fn automatic_context_tokens(gpu_bytes: u64) -> u64 {
    if gpu_bytes >= 47 * GIB {
        262_144
    } else if gpu_bytes >= 23 * GIB {
        32_768
    } else {
        4_096
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_slot_multiplies_the_cache_and_never_the_weights() {
        let one = at_most(&model(), 8192, 1);
        let four = at_most(&model(), 8192, 4);
        assert_eq!(four.kv_cache_bytes, 4 * one.kv_cache_bytes);
        assert_eq!(four.weights_bytes, one.weights_bytes);
        // 32 layers × 8 heads × (128 + 128) × 2 bytes × 8192 tokens
        assert_eq!(one.kv_cache_bytes, 32 * 8 * 256 * 2 * 8192);
    }

    #[test]
    fn the_context_is_capped_to_what_the_model_was_made_for() {
        assert_eq!(at_most(&model(), 1 << 20, 1).context_per_slot_tokens, 131_072);
    }

    #[test]
    fn numbers_beyond_all_memory_stay_at_the_top_and_do_not_wrap() {
        let model = ModelNumbers { context_limit_tokens: u64::MAX, ..model() };
        assert_eq!(at_most(&model, u64::MAX, 64).total_bytes(), u64::MAX);
    }

    #[test]
    fn without_a_gpu_limit_three_quarters_of_memory_are_the_budget() {
        let memory = Known::Is(64 * GIB);
        let unknown = Known::unknown("no GPU");
        assert_eq!(budget_bytes(&unknown, &memory), Ok((48 * GIB, BudgetSource::ThreeQuartersOfMemory)));
        assert_eq!(budget_bytes(&Known::Is(40 * GIB), &memory), Ok((40 * GIB, BudgetSource::GpuWorkingSet)));
        assert!(budget_bytes(&unknown, &Known::unknown("unreadable")).is_err());
    }

    #[test]
    fn the_automatic_context_follows_the_gpu() {
        assert_eq!(automatic_context_tokens(48 * GIB), 262_144);
        assert_eq!(automatic_context_tokens(24 * GIB), 32_768);
        assert_eq!(automatic_context_tokens(8 * GIB), 4_096);
    }

    fn model() -> ModelNumbers {
        ModelNumbers {
            weights_bytes: 5 * GIB,
            kv_heads_per_layer: vec![8; 32],
            key_length: 128,
            value_length: 128,
            context_limit_tokens: 131_072,
        }
    }
}
