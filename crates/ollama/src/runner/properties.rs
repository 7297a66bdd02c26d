//! `GET /props` of `llama-server` and `GET /v1/status` of an MLX runner. What an answer does not hold is unknown.

use serde_json::{Map, Value};
use stablehand_engine::Known;

/// What a `llama-server` is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Properties {
    /// How many requests it takes at once.
    pub slots: Known<u32>,
    /// Path of its model's file.
    pub model_path: Known<String>,
    /// Its build, in its own words.
    pub build: Known<String>,
    /// Tokens of context of one slot.
    pub context_per_slot_tokens: Known<u64>,
    /// Whether it offers `/slots`.
    pub offers_slots: Known<bool>,
    /// Whether it offers `/metrics`.
    pub offers_metrics: Known<bool>,
    /// Whether it takes images; an image can take minutes without a sign of progress.
    pub takes_images: Known<bool>,
}

/// What an MLX runner says of itself (`ollama x/mlxrunner/server.go`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MlxStatus {
    /// Whether it is ready.
    pub ready: Known<bool>,
    /// Tokens of context.
    pub context_tokens: Known<u64>,
    /// Memory that it has in use, as it read it last.
    pub memory_bytes: Known<u64>,
}

/// Reads `/props`. The error is a phrase for a person.
pub(super) fn parse(body: &[u8]) -> Result<Properties, String> {
    let object = object("/props", body)?;
    let settings = object.get("default_generation_settings").and_then(Value::as_object);
    let has_any = ["total_slots", "model_path", "build_info", "default_generation_settings"];
    if !has_any.iter().any(|key| object.contains_key(*key)) {
        return Err("/props is of an unknown shape: it holds nothing that llama-server tells".to_owned());
    }
    let flag = |map: Option<&Map<String, Value>>, key: &str| {
        told(map.and_then(|map| map.get(key)).and_then(Value::as_bool), "/props", key)
    };
    let text = |key: &str| told(object.get(key).and_then(Value::as_str).map(str::to_owned), "/props", key);
    let slots = object.get("total_slots").and_then(Value::as_u64).and_then(|slots| u32::try_from(slots).ok());
    Ok(Properties {
        slots: told(slots, "/props", "total_slots"),
        model_path: text("model_path"),
        build: text("build_info"),
        context_per_slot_tokens: told(
            settings.and_then(|settings| settings.get("n_ctx")).and_then(Value::as_u64),
            "/props",
            "n_ctx",
        ),
        offers_slots: flag(Some(&object), "endpoint_slots"),
        offers_metrics: flag(Some(&object), "endpoint_metrics"),
        takes_images: flag(object.get("modalities").and_then(Value::as_object), "vision"),
    })
}

/// Reads `/v1/status`. The error is a phrase for a person.
pub(super) fn parse_mlx(body: &[u8]) -> Result<MlxStatus, String> {
    let object = object("/v1/status", body)?;
    let status = object.get("Status").and_then(Value::as_i64);
    if status.is_none() && !object.contains_key("ContextLength") {
        return Err("/v1/status is of an unknown shape: it holds nothing that an MLX runner tells".to_owned());
    }
    let number = |key: &str| told(object.get(key).and_then(Value::as_u64), "/v1/status", key);
    Ok(MlxStatus {
        ready: told(status.map(|status| status == 0), "/v1/status", "Status"),
        context_tokens: number("ContextLength"),
        memory_bytes: number("Memory"),
    })
}

fn object(path: &str, body: &[u8]) -> Result<Map<String, Value>, String> {
    serde_json::from_slice(body)
        .map_err(|error| format!("{path} is of an unknown shape ({error}): {}", crate::client::snippet(body)))
}

fn told<T>(value: Option<T>, path: &str, key: &str) -> Known<T> {
    value.map_or_else(|| Known::unknown(format!("{path} does not tell {key}")), Known::Is)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn properties_are_read() {
        let properties = parse(include_bytes!("../../fixtures/runner/props.json")).unwrap();
        assert_eq!((properties.slots, properties.context_per_slot_tokens), (Known::Is(4), Known::Is(16_384)));
        assert_eq!(properties.model_path, Known::Is("/Users/sim/큰 디스크/models/blobs/sha256-0a1b2c3d".to_owned()));
        assert_eq!((properties.offers_slots, properties.offers_metrics), (Known::Is(true), Known::Is(false)));
        assert_eq!(properties.takes_images, Known::Is(true));
        let older = parse(br#"{"total_slots":1,"chat_template":"x"}"#).unwrap();
        assert_eq!(older.slots, Known::Is(1));
        assert!(older.offers_metrics.reason().is_some());
    }

    #[test]
    fn the_status_of_mlx_is_read() {
        let status = parse_mlx(br#"{"Status":0,"Progress":100,"ContextLength":32768,"Memory":7516192768}"#).unwrap();
        assert_eq!(
            status,
            MlxStatus {
                ready: Known::Is(true),
                context_tokens: Known::Is(32_768),
                memory_bytes: Known::Is(7_516_192_768)
            }
        );
    }

    #[test]
    fn other_shapes_are_told() {
        for body in ["<html>", "[]", "{}", "null", "", r#"{"models":[]}"#] {
            assert!(parse(body.as_bytes()).is_err(), "{body}");
            assert!(parse_mlx(body.as_bytes()).is_err(), "{body}");
        }
    }
}
