//! The models of a new world and the arithmetic of their memory.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

/// Position at which a prompt goes half as fast as at its start.
const DEPTH_TOKENS: f64 = 32_768.0;

/// How the weights are kept, which decides what runs them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    /// One GGUF blob: `llama-server`, or `ollama runner` up to 0.24.
    #[default]
    Gguf,
    /// Many blobs of tensors: the MLX engine.
    Safetensors,
}

/// What the simulator knows about one model. Kept as JSON in the place of the
/// weights: the blob is small, the sizes told about it are not.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Model {
    /// Name with tag.
    pub name: String,
    /// How the weights are kept.
    #[serde(default)]
    pub format: Format,
    /// `general.architecture`.
    pub architecture: String,
    /// Parameter count as shown.
    pub parameter_size: String,
    /// Exact parameter count.
    pub parameters: u64,
    /// Quantisation as shown.
    pub quantization: String,
    /// `general.file_type`.
    pub file_type: u32,
    /// Size of the weights.
    pub weights_bytes: u64,
    /// Digest of the manifest, hex.
    pub manifest_digest: String,
    /// Digest of the weights, hex.
    pub blob_digest: String,
    /// Longest context the model was trained for, in tokens.
    pub context_length: u64,
    /// Width of the embedding.
    pub embedding_length: u64,
    /// Attention heads.
    pub head_count: u64,
    /// Key/value heads of each layer; 0 for layers without attention.
    pub head_count_kv: Vec<u64>,
    /// Width of a key.
    pub key_length: u64,
    /// Width of a value.
    pub value_length: u64,
    /// Window of sliding layers, in tokens, and every how many layers a full one comes.
    pub sliding: Option<(u64, u64)>,
    /// Largest number of prompt tokens in one step (`-b`).
    #[serde(default = "usual_batch")]
    pub batch_tokens: u64,
    /// Prompt tokens per second at the start of a prompt.
    pub prefill_per_second: f64,
    /// Generated tokens per second of a lone request.
    pub decode_per_second: f64,
    /// World time that loading takes, in ms.
    pub load_ms: u64,
    /// Length of an answer when the request names none, in tokens.
    pub answer_tokens: u64,
    /// What Ollama says the model can do.
    pub capabilities: Vec<String>,
}

/// Batch of a model whose description names none.
fn usual_batch() -> u64 {
    2048
}

impl Model {
    /// Whether the MLX engine runs it.
    pub fn is_mlx(&self) -> bool {
        match self.format {
            Format::Safetensors => true,
            Format::Gguf => false,
        }
    }

    /// Whether it understands images.
    pub fn sees_images(&self) -> bool {
        self.capabilities.iter().any(|capability| capability == "vision")
    }

    /// World seconds that `tokens` of a prompt take from `position` on. The
    /// longer the context, the slower: a quarter of the speed at 98,304.
    pub fn prefill_seconds(&self, position: u64, tokens: u64) -> f64 {
        let middle = position as f64 + tokens as f64 / 2.0;
        tokens as f64 / self.prefill_per_second * (1.0 + middle / DEPTH_TOKENS)
    }

    /// Tokens of a prompt that takes about `seconds` from its start.
    pub fn tokens_of_prefill(&self, seconds: f64) -> u64 {
        let product = seconds * self.prefill_per_second;
        ((DEPTH_TOKENS * DEPTH_TOKENS + 2.0 * DEPTH_TOKENS * product).sqrt() - DEPTH_TOKENS) as u64
    }

    /// What the kernel counts as a runner's own memory: mapped weights are not
    /// in it, the MLX engine's are.
    pub fn footprint_bytes(&self, context: u64, slots: u64) -> u64 {
        match self.format {
            Format::Gguf => self.cache_bytes(context, slots) + self.compute_bytes(),
            Format::Safetensors => self.loaded_bytes(context, slots),
        }
    }

    /// Layers of the model.
    pub fn block_count(&self) -> u64 {
        self.head_count_kv.len() as u64
    }

    /// Bytes of f16 key/value cache for `slots` contexts of `context` tokens.
    pub fn cache_bytes(&self, context: u64, slots: u64) -> u64 {
        self.head_count_kv
            .iter()
            .enumerate()
            .map(|(layer, heads)| {
                let tokens = match self.sliding {
                    Some((window, every)) if !(layer as u64 + 1).is_multiple_of(every) => context.min(window),
                    Some(_) | None => context,
                };
                heads * (self.key_length + self.value_length) * 2 * tokens * slots
            })
            .sum()
    }

    /// Bytes of scratch memory of a loaded runner.
    pub fn compute_bytes(&self) -> u64 {
        (self.weights_bytes / 50).clamp(64 << 20, 512 << 20)
    }

    /// What a loaded runner takes in all.
    pub fn loaded_bytes(&self, context: u64, slots: u64) -> u64 {
        self.weights_bytes + self.cache_bytes(context, slots) + self.compute_bytes()
    }

    /// What Ollama predicts before it loads the model beside another
    /// (`PredictServerVRAM` of `llm/llama_server.go`, with its surcharge).
    pub fn predicted_bytes(&self, context: u64, slots: u64) -> u64 {
        let least_heads = self.head_count_kv.iter().copied().filter(|heads| *heads > 0).min().unwrap_or(1);
        let cache =
            2 * self.block_count() * least_heads * (self.embedding_length / self.head_count) * (context * slots) * 2;
        let surcharge: u64 = match context {
            0..=4096 => 0,
            4097..=32768 => 768 << 20,
            _ => 2 << 30,
        };
        self.weights_bytes + cache + surcharge
    }

    /// Whether Ollama gives the model one slot whatever is asked
    /// (`server/sched.go`).
    pub fn is_forced_to_one_slot(&self) -> bool {
        const SINGLE: [&str; 11] = [
            "mllama",
            "qwen3vl",
            "qwen3vlmoe",
            "qwen35",
            "qwen35moe",
            "qwen3next",
            "lfm2",
            "lfm2moe",
            "nemotron_h",
            "nemotron_h_moe",
            "nemotron_h_omni",
        ];
        SINGLE.contains(&self.architecture.as_str())
    }

    /// The `details` object of tags, ps and show.
    pub fn details(&self) -> Value {
        json!({
            "parent_model": "",
            "format": self.format,
            "family": self.architecture,
            "families": [self.architecture],
            "parameter_size": self.parameter_size,
            "quantization_level": self.quantization,
        })
    }

    /// The `model_info` object. Arrays of more than five entries are emptied
    /// unless `verbose`.
    pub fn information(&self, verbose: bool) -> Value {
        let mut map = Map::new();
        let mut put = |key: String, value: Value| {
            map.insert(key, value);
        };
        let architecture = &self.architecture;
        put("general.architecture".into(), json!(architecture));
        put("general.file_type".into(), json!(self.file_type));
        put("general.parameter_count".into(), json!(self.parameters));
        put("general.quantization_version".into(), json!(2));
        let own = |key: &str| format!("{architecture}.{key}");
        put(own("block_count"), json!(self.block_count()));
        put(own("context_length"), json!(self.context_length));
        put(own("embedding_length"), json!(self.embedding_length));
        put(own("attention.head_count"), json!(self.head_count));
        let uniform = self.head_count_kv.windows(2).all(|pair| pair[0] == pair[1]);
        let heads = match (uniform, verbose) {
            (true, _) => json!(self.head_count_kv.first()),
            (false, true) => json!(self.head_count_kv),
            (false, false) => json!([]),
        };
        put(own("attention.head_count_kv"), heads);
        put(own("attention.key_length"), json!(self.key_length));
        put(own("attention.value_length"), json!(self.value_length));
        if let Some((window, every)) = self.sliding {
            put(own("attention.sliding_window"), json!(window));
            put(own("attention.sliding_window_pattern"), json!(every));
        }
        if self.head_count_kv.contains(&0) {
            put(own("ssm.conv_kernel"), json!(4));
            put(own("ssm.group_count"), json!(16));
            put(own("ssm.inner_size"), json!(4096));
            put(own("ssm.state_size"), json!(128));
        }
        put("tokenizer.ggml.model".into(), json!("gpt2"));
        put(
            "tokenizer.ggml.tokens".into(),
            if verbose { json!(["<a>", "<b>", "<c>", "<d>", "<e>", "<f>"]) } else { json!([]) },
        );
        Value::Object(map)
    }
}

/// The models that a new world can have on disk; the MLX engine runs on macOS
/// only.
pub fn of_a_new_world() -> Vec<Model> {
    let attention_every_fourth =
        |layers: u64, heads: u64| (1..=layers).map(|layer| if layer.is_multiple_of(4) { heads } else { 0 }).collect();
    vec![
        Model {
            name: "qwen3.6:35b".into(),
            format: Format::Gguf,
            architecture: "qwen35moe".into(),
            parameter_size: "35.1B".into(),
            parameters: 35_107_184_640,
            quantization: "Q4_K_M".into(),
            file_type: 15,
            weights_bytes: 22_186_164_224,
            manifest_digest: "5c1e0f6a6d44ab5d2f4f0f5a8c0d90f34f8f6a8e3c1c7b8f2d2a50d6a3e9b714".into(),
            blob_digest: "91d3c7a05be2f84d6a1790c3b5e8f26407ad91be35c860f2174ed0a98b3c56fe".into(),
            context_length: 262_144,
            embedding_length: 2048,
            head_count: 16,
            head_count_kv: attention_every_fourth(40, 2),
            key_length: 256,
            value_length: 256,
            sliding: None,
            batch_tokens: 2048,
            prefill_per_second: 420.0,
            decode_per_second: 24.0,
            load_ms: 9_000,
            answer_tokens: 180,
            capabilities: vec!["completion".into(), "tools".into(), "thinking".into()],
        },
        Model {
            name: "gemma4:26b".into(),
            format: Format::Gguf,
            architecture: "gemma4".into(),
            parameter_size: "25.8B".into(),
            parameters: 25_805_933_872,
            quantization: "Q4_K_M".into(),
            file_type: 15,
            weights_bytes: 16_042_876_928,
            manifest_digest: "c7d20be14f5a9863d1e0b8a2f6c47590ad3b8ef1265c70d94e8f3b6a1d5270c9".into(),
            blob_digest: "3fa6b0d81c7e5294f0d6a38b97c1e25048bf6d73a90e1c85f247bd3069ea41c8".into(),
            context_length: 262_144,
            embedding_length: 2816,
            head_count: 16,
            head_count_kv: vec![8; 30],
            key_length: 256,
            value_length: 256,
            sliding: Some((1024, 6)),
            batch_tokens: 1024,
            prefill_per_second: 560.0,
            decode_per_second: 30.0,
            load_ms: 7_000,
            answer_tokens: 150,
            capabilities: vec!["completion".into(), "vision".into(), "tools".into()],
        },
        Model {
            name: "smollm:135m".into(),
            format: Format::Gguf,
            architecture: "llama".into(),
            parameter_size: "134.52M".into(),
            parameters: 134_515_008,
            quantization: "Q4_0".into(),
            file_type: 2,
            weights_bytes: 91_739_392,
            manifest_digest: "e1a8f4f5c3d79b20864ce1f70a5d3b9286cf04e7d1b85a3920e7c4f6b8d1935a".into(),
            blob_digest: "eb2c714d40d4b35ba4b8ee98475a06d51d8080a17d2d2a75a23665985c739b94".into(),
            context_length: 2048,
            embedding_length: 576,
            head_count: 9,
            head_count_kv: vec![3; 30],
            key_length: 64,
            value_length: 64,
            sliding: None,
            batch_tokens: 512,
            prefill_per_second: 5_000.0,
            decode_per_second: 160.0,
            load_ms: 1_200,
            answer_tokens: 80,
            capabilities: vec!["completion".into()],
        },
        Model {
            name: "qwen3-mlx:4b".into(),
            format: Format::Safetensors,
            architecture: "qwen3".into(),
            parameter_size: "4.0B".into(),
            parameters: 4_022_468_096,
            quantization: "int4".into(),
            file_type: 0,
            weights_bytes: 2_263_022_592,
            manifest_digest: "0b7f3e9ad2c84651f0a9c7d35e816b24fd90c6137ea5b842d1fc309e75a6b8d2".into(),
            blob_digest: "6d0e42b9f7a318c5de94b07a2f61c8350ab9e7d41f5c2836907bd1ae43f8c569".into(),
            context_length: 40_960,
            embedding_length: 2560,
            head_count: 32,
            head_count_kv: vec![8; 36],
            key_length: 128,
            value_length: 128,
            sliding: None,
            batch_tokens: 2048,
            prefill_per_second: 900.0,
            decode_per_second: 62.0,
            load_ms: 2_500,
            answer_tokens: 120,
            capabilities: vec!["completion".into(), "tools".into()],
        },
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_slots_cost_more_cache() {
        for model in of_a_new_world() {
            assert_eq!(model.cache_bytes(4096, 4), 4 * model.cache_bytes(4096, 1));
            assert!(model.loaded_bytes(4096, 1) > model.weights_bytes);
        }
    }

    #[test]
    fn the_prediction_follows_the_formula() {
        let model = &of_a_new_world()[2];
        let cache = 2 * 30 * 3 * (576 / 9) * 2048 * 2;
        assert_eq!(model.predicted_bytes(2048, 1), model.weights_bytes + cache);
    }

    #[test]
    fn a_prompt_of_a_wanted_length_takes_about_that_long() {
        for model in of_a_new_world() {
            let tokens = model.tokens_of_prefill(660.0);
            assert!((model.prefill_seconds(0, tokens) - 660.0).abs() < 1.0, "{}", model.name);
        }
    }

    #[test]
    fn the_speed_falls_with_the_position() {
        let model = &of_a_new_world()[0];
        let ratio = model.prefill_seconds(98_304, 1) / model.prefill_seconds(0, 1);
        assert!((3.9..4.1).contains(&ratio), "{ratio}");
    }

    #[test]
    fn descriptions_of_older_worlds_are_still_read() {
        let mut value = serde_json::to_value(&of_a_new_world()[2]).unwrap();
        let fields = value.as_object_mut().unwrap();
        fields.remove("format");
        fields.remove("batch_tokens");
        let model: Model = serde_json::from_value(value).unwrap();
        assert_eq!((model.format, model.batch_tokens), (Format::Gguf, 2048));
    }

    #[test]
    fn long_arrays_are_shown_on_request_only() {
        let model = &of_a_new_world()[0];
        let key = "qwen35moe.attention.head_count_kv";
        assert_eq!(model.information(false)[key], json!([]));
        assert_eq!(model.information(true)[key].as_array().unwrap().len(), 40);
        assert!(model.is_forced_to_one_slot());
    }
}
