//! What a runner prints and answers about itself, in llama-server's words.

use std::fmt::Write;

use serde_json::{Value, json};

use super::decode::{State, Task, Totals};
use super::{Runner, say};

const WORDS: [&str; 24] = [
    "The", "stable", "is", "quiet", "and", "every", "horse", "has", "its", "own", "stall", "with", "fresh", "hay",
    "while", "the", "keeper", "walks", "past", "each", "door", "once", "an", "hour.",
];

const MIB: f64 = 1_048_576.0;

/// `count` words of an answer, from its `start`-th on.
pub fn words(start: u64, count: u64) -> String {
    (start..start + count)
        .map(|index| {
            let word = WORDS[(index % WORDS.len() as u64) as usize];
            if index == 0 { word.to_owned() } else { format!(" {word}") }
        })
        .collect()
}

/// Prints the lines of a load.
pub fn say_load(runner: &Runner, context: u64, slots: u64) {
    let model = &runner.model;
    say("srv  llama_server: initializing ...");
    say("srv  init_listene: running without SSL");
    say("srv          init: using 6 threads for HTTP server");
    say(&format!("srv    load_model: loading model '{}'", runner.model_path));
    say(&format!("print_info: arch                  = {}", model.architecture));
    say(&format!("print_info: n_ctx_train           = {}", model.context_length));
    say(&format!("print_info: n_layer               = {}", model.block_count()));
    say("llama_model_load_from_file_impl: using device MTL0 (Apple M4 Max) (unknown id) - 49151 MiB free");
    say("load_tensors: loading model tensors, this can take a while... (load_mode = mmap)");
    let layers = model.block_count() + 1;
    say(&format!("load_tensors: offloaded {layers}/{layers} layers to GPU"));
    say(&format!("load_tensors:  MTL0_Mapped model buffer size = {:8.2} MiB", model.weights_bytes as f64 / MIB));
    say("llama_context: constructing llama_context");
    say(&format!("llama_context: n_seq_max             = {slots}"));
    say(&format!("llama_context: n_ctx                 = {}", context * slots));
    say(&format!("llama_context: n_ctx_seq             = {context}"));
    say("llama_context: n_batch               = 2048");
    say("llama_context: n_ubatch              = 512");
    say(&format!(
        "llama_kv_cache:       MTL0 KV buffer size = {:8.2} MiB",
        model.cache_bytes(context, slots) as f64 / MIB
    ));
    say(&format!("sched_reserve:       MTL0 compute buffer size = {:8.2} MiB", model.compute_bytes() as f64 / MIB));
    say(&format!("srv    load_model: initializing, n_slots = {slots}, n_ctx_slot = {context}, kv_unified = 'false'"));
    for slot in 0..slots {
        say(&format!("slot   load_model: id {slot:2} | task -1 | new slot, n_ctx = {context}"));
    }
    say("srv    load_model: prompt cache is enabled, size limit: 8192 MiB");
}

/// Prints that a slot takes a task.
pub fn say_launch(slot: usize, task: &Task, context: u64) {
    say(&format!("slot get_availabl: id {slot:2} | task -1 | selected slot by LRU, t_last = -1"));
    say(&format!("slot launch_slot_: id {slot:2} | task {} | processing task, is_child = 0", task.id));
    say(&format!(
        "slot   operator(): id {slot:2} | task {} | new prompt, n_ctx_slot = {context}, n_keep = 0, task.n_tokens = {}",
        task.id, task.prompt
    ));
}

/// Prints the progress of a prompt.
pub fn say_progress(slot: usize, task: &Task) {
    let seconds = task.prompt_ms / 1000.0;
    say(&format!(
        "slot print_timing: id {slot:2} | task {} | prompt processing, n_tokens = {:6}, progress = {:.2}, t = {seconds:6.2} s / {:.2} tokens per second",
        task.id,
        task.processed,
        task.processed as f64 / task.prompt as f64,
        task.processed as f64 / seconds.max(1e-6),
    ));
}

/// Prints the speed of generating, every hundred tokens.
pub fn say_speed(slot: usize, task: &Task) {
    let speed = task.decoded as f64 / (task.generate_ms / 1000.0).max(1e-6);
    say(&format!(
        "slot print_timing: id {slot:2} | task {} | n_gen = {:6}, tg = {speed:6.2} t/s, tg_3s = {speed:6.2} t/s",
        task.id, task.decoded
    ));
}

/// Prints the end of a task.
pub fn say_end(slot: usize, task: &Task) {
    let row = |name: &str, ms: f64, tokens: u64| {
        let per_token = ms / tokens.max(1) as f64;
        say(&format!(
            "slot print_timing: id {slot:2} | task {} | {name} time = {ms:10.2} ms / {tokens:5} tokens ({per_token:8.2} ms per token, {:8.2} tokens per second)",
            task.id,
            1000.0 / per_token.max(1e-6),
        ));
    };
    row("prompt eval", task.prompt_ms, task.prompt);
    row("       eval", task.generate_ms, task.decoded);
    say(&format!(
        "slot print_timing: id {slot:2} | task {} |       total time = {:10.2} ms / {:5} tokens",
        task.id,
        task.prompt_ms + task.generate_ms,
        task.prompt + task.decoded
    ));
    say_release(slot, task);
}

/// Prints that a slot is free again.
pub fn say_release(slot: usize, task: &Task) {
    say(&format!(
        "slot      release: id {slot:2} | task {} | stop processing: n_tokens = {}, truncated = 0",
        task.id,
        task.processed + task.decoded
    ));
}

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
        "modalities": { "vision": false, "video": false, "audio": false },
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
    let Totals { prompt_tokens, prompt_seconds, tokens, token_seconds, decodes, longest } = state.totals.clone();
    let rate = |amount: u64, seconds: f64| if seconds > 0.0 { amount as f64 / seconds } else { 0.0 };
    let rows: [(&str, &str, &str, String); 11] = [
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
        state.slots[0].task = Some(Task {
            id: 1,
            prompt: 2802,
            taken: 2048,
            processed: 0,
            decoded: 0,
            limit: 300,
            limited: true,
            prompt_ms: 0.0,
            generate_ms: 0.0,
            events,
        });
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

    #[test]
    fn answers_are_made_of_words() {
        assert_eq!(words(0, 3), "The stable is");
        assert_eq!(words(3, 1), " quiet");
    }
}
