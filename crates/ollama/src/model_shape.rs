//! The numbers of a model that its memory depends on, from `/api/show`.
//!
//! Keys are those of the GGUF file: `general.architecture` names the prefix of the others. What a model does not say
//! is unknown with its reason; two lengths have a default in the format itself. An array of more than five entries
//! comes empty unless it was asked for with `verbose` ([`ModelShape::needs_verbose`]).

use crate::client::Shown;
use serde_json::Value;
use stablehand_engine::Known;
use stablehand_engine::memory_bound::ModelNumbers;

/// KV heads of the layers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KvHeads {
    /// Every layer has as many.
    Same(u64),
    /// Each layer has its own number; 0 for layers without attention.
    PerLayer(Vec<u64>),
}

/// The numbers of a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelShape {
    /// Architecture, e.g. `qwen3`.
    pub architecture: Known<String>,
    /// Weights, counted.
    pub parameter_count: Known<u64>,
    /// Layers.
    pub block_count: Known<u64>,
    /// The longest context it was made for, in tokens.
    pub context_length_tokens: Known<u64>,
    /// Width of the model.
    pub embedding_length: Known<u64>,
    /// KV heads of its layers.
    pub kv_heads: Known<KvHeads>,
    /// Elements of one key vector.
    pub key_length: Known<u64>,
    /// Elements of one value vector.
    pub value_length: Known<u64>,
    /// Whether it can generate text; a model that cannot gets one slot.
    pub completes: bool,
    /// An array that is needed came empty: ask again with `verbose`.
    pub needs_verbose: bool,
}

/// A number, or one for each layer.
enum Count {
    One(u64),
    Many(Vec<u64>),
    Emptied,
}

impl ModelShape {
    /// Reads the answer of `/api/show`.
    pub fn from_shown(shown: &Shown) -> Self {
        let info = &shown.model_info;
        let architecture = match info.get("general.architecture").and_then(Value::as_str) {
            Some(name) => Known::Is(name.to_owned()),
            None => Known::unknown("the model does not name its architecture"),
        };
        let keyed = |key: &str| {
            let name = architecture.known()?;
            info.get(&format!("{name}.{key}"))
        };
        let number = |key: &str| known(keyed(key).and_then(unsigned), key);
        let heads = keyed("attention.head_count").and_then(count);
        let kv_heads = keyed("attention.head_count_kv").and_then(count);
        let emptied = |count: &Option<Count>| matches!(count, Some(Count::Emptied));
        let needs_verbose = emptied(&kv_heads) || (emptied(&heads) && keyed("attention.key_length").is_none());
        let embedding_length = number("embedding_length");
        let length = |key: &str| match (keyed(key).and_then(unsigned), &embedding_length, largest(&heads)) {
            (Some(length), _, _) => Known::Is(length),
            (None, Known::Is(width), Some(heads)) if heads > 0 => Known::Is(width / heads),
            (None, Known::Is(_), _) => Known::unknown("the model does not say how many attention heads it has"),
            (None, Known::Unknown(reason), _) => Known::Unknown(reason.clone()),
        };
        let kv_heads = match (kv_heads, &heads) {
            (Some(Count::One(heads)), _) => Known::Is(KvHeads::Same(heads)),
            (Some(Count::Many(heads)), _) => Known::Is(KvHeads::PerLayer(heads)),
            (Some(Count::Emptied), _) => {
                Known::unknown("the model's KV heads differ from layer to layer and were not asked for")
            }
            // Without grouped attention every head has its own keys and values.
            (None, Some(Count::One(heads))) => Known::Is(KvHeads::Same(*heads)),
            (None, Some(Count::Many(heads))) => Known::Is(KvHeads::PerLayer(heads.clone())),
            (None, Some(Count::Emptied) | None) => Known::unknown("the model does not say how many KV heads it has"),
        };
        Self {
            parameter_count: known(info.get("general.parameter_count").and_then(unsigned), "general.parameter_count"),
            block_count: number("block_count"),
            context_length_tokens: number("context_length"),
            key_length: length("attention.key_length"),
            value_length: length("attention.value_length"),
            embedding_length,
            kv_heads,
            completes: shown.capabilities.is_empty() || shown.capabilities.iter().any(|word| word == "completion"),
            needs_verbose,
            architecture,
        }
    }

    /// Why this model gets one slot whatever the setting says; `None` when it does not.
    pub fn forced_to_one(&self) -> Option<&'static str> {
        if !self.completes {
            return Some(
                "Ollama works on one request at a time with models that generate no text, such as embedding models",
            );
        }
        crate::argv::forced_to_one(self.architecture.known()?)
    }

    /// The engine's numbers for a memory bound, with the size of the weights from elsewhere (`/api/tags`, the file).
    pub fn numbers(&self, weights_bytes: u64) -> Known<ModelNumbers> {
        let numbers = || {
            let kv_heads_per_layer = match (value(&self.kv_heads)?, value(&self.block_count)) {
                (KvHeads::PerLayer(heads), _) => heads.clone(),
                (KvHeads::Same(heads), layers) => {
                    // No model has so many layers; a number like that is a broken file.
                    let layers = usize::try_from(*layers?).ok().filter(|layers| *layers <= 10_000);
                    vec![*heads; layers.ok_or("the model claims more layers than any model has")?]
                }
            };
            Ok(ModelNumbers {
                weights_bytes,
                kv_heads_per_layer,
                key_length: *value(&self.key_length)?,
                value_length: *value(&self.value_length)?,
                context_limit_tokens: *value(&self.context_length_tokens)?,
            })
        };
        match numbers() {
            Ok(numbers) => Known::Is(numbers),
            Err(reason) => Known::Unknown(reason),
        }
    }
}

fn value<T>(known: &Known<T>) -> Result<&T, String> {
    match known {
        Known::Is(value) => Ok(value),
        Known::Unknown(reason) => Err(reason.clone()),
    }
}

fn known(value: Option<u64>, key: &str) -> Known<u64> {
    value.map_or_else(|| Known::unknown(format!("the model does not say its {key}")), Known::Is)
}

/// Go writes numbers as they are in the file, but some converters stored whole numbers as floats.
fn unsigned(value: &Value) -> Option<u64> {
    value.as_u64().or_else(|| {
        let float = value.as_f64()?;
        let whole = float.fract() == 0.0 && (0.0..9.0e15).contains(&float);
        whole.then_some(float as u64)
    })
}

fn count(value: &Value) -> Option<Count> {
    let Some(array) = value.as_array() else { return unsigned(value).map(Count::One) };
    if array.is_empty() {
        return Some(Count::Emptied);
    }
    array.iter().map(unsigned).collect::<Option<Vec<u64>>>().map(Count::Many)
}

fn largest(count: &Option<Count>) -> Option<u64> {
    match count {
        Some(Count::One(heads)) => Some(*heads),
        Some(Count::Many(heads)) => heads.iter().copied().max(),
        Some(Count::Emptied) | None => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn equal_layers_and_default_lengths() {
        let shape = shape(json!({
            "general.architecture": "llama", "general.parameter_count": 8_030_261_312_u64, "llama.block_count": 32,
            "llama.embedding_length": 4096, "llama.context_length": 131_072.0, "llama.attention.head_count": 32,
            "llama.attention.head_count_kv": 8
        }));
        let numbers = shape.numbers(5).known().cloned().unwrap();
        assert_eq!(numbers.kv_heads_per_layer, vec![8; 32]);
        assert_eq!((numbers.key_length, numbers.value_length, numbers.context_limit_tokens), (128, 128, 131_072));
        assert!(!shape.needs_verbose);
    }

    #[test]
    fn lengths_that_are_told_win_and_layers_may_differ() {
        let shape = shape(json!({
            "general.architecture": "gemma3", "gemma3.block_count": 3, "gemma3.embedding_length": 640,
            "gemma3.context_length": 32768, "gemma3.attention.head_count": [4, 4, 4],
            "gemma3.attention.head_count_kv": [1, 0, 2], "gemma3.attention.key_length": 256,
            "gemma3.attention.value_length": 128
        }));
        assert_eq!(shape.kv_heads, Known::Is(KvHeads::PerLayer(vec![1, 0, 2])));
        assert_eq!((shape.key_length, shape.value_length), (Known::Is(256), Known::Is(128)));
    }

    #[test]
    fn an_emptied_array_asks_for_the_whole_answer() {
        let shape = shape(json!({
            "general.architecture": "qwen3next", "qwen3next.block_count": 48, "qwen3next.embedding_length": 2048,
            "qwen3next.context_length": 262_144, "qwen3next.attention.head_count": 16,
            "qwen3next.attention.head_count_kv": []
        }));
        assert!(shape.needs_verbose);
        assert!(shape.numbers(1).known().is_none());
        assert!(shape.forced_to_one().is_some());
    }

    #[test]
    fn what_is_missing_is_unknown_and_never_zero() {
        let shape = shape(json!({}));
        assert!(shape.architecture.known().is_none());
        assert!(shape.numbers(1).reason().is_some());
        let broken = self::shape(json!({
            "general.architecture": "x", "x.block_count": u64::MAX, "x.embedding_length": 64, "x.context_length": 1,
            "x.attention.head_count": 0, "x.attention.head_count_kv": 1
        }));
        assert!(broken.key_length.known().is_none());
        assert!(broken.numbers(1).known().is_none());
    }

    #[test]
    fn an_embedding_model_gets_one_slot() {
        let mut shown: Shown =
            serde_json::from_value(json!({ "model_info": { "general.architecture": "bert" } })).unwrap();
        assert_eq!(ModelShape::from_shown(&shown).forced_to_one(), None);
        shown.capabilities = vec!["embedding".to_owned()];
        assert!(ModelShape::from_shown(&shown).forced_to_one().is_some());
    }

    fn shape(info: Value) -> ModelShape {
        ModelShape::from_shown(&serde_json::from_value(json!({ "model_info": info })).unwrap())
    }
}
