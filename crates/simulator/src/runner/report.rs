//! What a runner answers about itself: `/slots`, `/props`, `/metrics`.

use std::fmt::Write;

use serde_json::{Value, json};

use super::Runner;
use super::slots::{State, Task, Totals};

/// `GET /slots`.
pub fn slots(state: &State) -> Value {
    let rows: Vec<Value> = state
        .slots
        .iter()
        .enumerate()
        .map(|(id, slot)| match &slot.task {
            None => json!({
                "id": id, "n_ctx": state.context, "speculative": false, "is_processing": false,
            }),
            Some(task) => json!({
                "id": id,
                "n_ctx": state.context,
                "speculative": false,
                "is_processing": true,
                "id_task": task.id,
                "n_prompt_tokens": task.taken + task.decoded,
                "n_prompt_tokens_processed": task.processed,
                "n_prompt_tokens_cache": 0,
                "params": parameters(task),
                "next_token": [{
                    "has_next_token": true,
                    "has_new_line": false,
                    "n_remain": task.limit.saturating_sub(task.decoded),
                    "n_decoded": task.decoded,
                }],
            }),
        })
        .collect();
    Value::Array(rows)
}

/// `GET /props`.
pub fn properties(runner: &Runner) -> Value {
    let state = runner.state();
    json!({
        "default_generation_settings": { "params": sampling(), "n_ctx": state.context },
        "total_slots": state.slots.len(),
        "model_alias": runner.model_path,
        "model_ftype": runner.model.quantization,
        "model_path": runner.model_path,
        "modalities": { "vision": runner.model.sees_images(), "video": false, "audio": false },
        "endpoint_slots": true,
        "endpoint_props": false,
        "endpoint_metrics": runner.metrics,
        "ui": false,
        "ui_settings": {},
        "chat_template": "{{ messages }}",
        "bos_token": "<s>",
        "eos_token": "</s>",
        "build_info": "b10488-simulated",
        "is_sleeping": false,
        "cors_proxy_enabled": false,
    })
}

/// `GET /metrics`.
pub fn metrics(state: &State) -> String {
    let Totals { prompt_tokens, prompt_seconds, tokens, token_seconds, decodes, busy_slots, longest } =
        state.totals.clone();
    let rate = |amount: u64, seconds: f64| if seconds > 0.0 { amount as f64 / seconds } else { 0.0 };
    let rows: [(&str, &str, &str, String); 15] = [
        (
            "prompt_tokens_total",
            "counter",
            "Number of prompt tokens processed, excluding cached tokens",
            prompt_tokens.to_string(),
        ),
        ("prompt_tokens_cached_total", "counter", "Number of prompt tokens reused from the cache", "0".into()),
        ("prompt_seconds_total", "counter", "Total time spent processing prompts", format!("{prompt_seconds:.4}")),
        ("tokens_predicted_total", "counter", "Number of generation tokens processed", tokens.to_string()),
        (
            "tokens_predicted_seconds_total",
            "counter",
            "Total time spent generating tokens",
            format!("{token_seconds:.4}"),
        ),
        (
            "n_decode_total",
            "counter",
            "Total number of llama_decode() calls, excluding speculative decoding and multimodal decoding",
            decodes.to_string(),
        ),
        ("n_tokens_max", "counter", "Largest observed sequence length (prompt + generation)", longest.to_string()),
        ("spec_decode_num_draft_tokens_total", "counter", "Speculative: Total draft tokens generated", "0".into()),
        (
            "spec_decode_num_accepted_tokens_total",
            "counter",
            "Speculative: Total draft tokens accepted by the target model",
            "0".into(),
        ),
        (
            "spec_decode_num_drafts_total",
            "counter",
            "Speculative: Total speculative decoding verification steps",
            "0".into(),
        ),
        (
            "prompt_tokens_seconds",
            "gauge",
            "Average prompt throughput in tokens/s",
            format!("{:.3}", rate(prompt_tokens, prompt_seconds)),
        ),
        (
            "predicted_tokens_seconds",
            "gauge",
            "Average generation throughput in tokens/s",
            format!("{:.3}", rate(tokens, token_seconds)),
        ),
        ("requests_processing", "gauge", "Number of requests processing", state.busy().to_string()),
        ("requests_deferred", "gauge", "Number of requests deferred", state.deferred.len().to_string()),
        (
            "n_busy_slots_per_decode",
            "gauge",
            "Average number of busy slots per llama_decode() call",
            format!("{:.3}", rate(busy_slots, decodes as f64)),
        ),
    ];
    let mut text = String::new();
    for (name, kind, help, value) in rows {
        let _ = writeln!(text, "# HELP llamacpp:{name} {help}\n# TYPE llamacpp:{name} {kind}\nllamacpp:{name} {value}");
    }
    text
}

fn parameters(task: &Task) -> Value {
    let mut parameters = sampling();
    parameters["max_tokens"] = json!(task.limit);
    parameters["n_predict"] = json!(task.limit);
    parameters["stream"] = json!(true);
    parameters
}

fn sampling() -> Value {
    json!({
        "seed": 4_294_967_295_u32,
        "temperature": 0.8,
        "top_k": 40,
        "top_p": 0.95,
        "min_p": 0.05,
        "repeat_last_n": 64,
        "repeat_penalty": 1.0,
        "mirostat": 0,
        "max_tokens": -1,
        "n_predict": -1,
        "n_keep": 0,
        "ignore_eos": false,
        "stream": false,
        "n_probs": 0,
        "chat_format": "Content-only",
        "samplers": ["penalties", "dry", "top_n_sigma", "top_k", "typ_p", "top_p", "min_p", "xtc", "temperature"],
        "speculative.types": "none",
        "lora": [],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_slots_have_four_keys() {
        let shown = slots(&State::new(2, 4096));
        assert_eq!(shown[1], json!({"id": 1, "n_ctx": 4096, "speculative": false, "is_processing": false}));
    }

    #[test]
    fn a_slot_in_its_first_batch_shows_the_batch_and_no_progress() {
        let (events, _receiver) = tokio::sync::mpsc::unbounded_channel();
        let mut state = State::new(1, 4096);
        state.slots[0].task = Some(Task { id: 1, taken: 2048, ..Task::new(2802, 300, events) });
        let slot = &slots(&state)[0];
        assert_eq!(slot["n_prompt_tokens"], 2048);
        assert_eq!(slot["n_prompt_tokens_processed"], 0);
        assert_eq!(slot["next_token"][0]["n_remain"], 300);
    }

    #[test]
    fn metrics_carry_help_type_and_value() {
        let text = metrics(&State::new(1, 4096));
        assert!(text.contains("# TYPE llamacpp:n_decode_total counter\nllamacpp:n_decode_total 0\n"));
    }
}
