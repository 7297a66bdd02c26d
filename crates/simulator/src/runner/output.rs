//! What a runner prints, in llama-server's words; the MLX engine's, where it is
//! the one that runs.

use super::arguments::Kind;
use super::slots::Task;
use super::{Runner, say, say_info};
use crate::world::moments;

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
    say(&format!("llama_context: n_batch               = {}", runner.batch));
    say(&format!("llama_context: n_ubatch              = {}", runner.batch.min(512)));
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
    say("srv  get_availabl: updating prompt cache");
    say("srv  get_availabl: prompt cache update took 0.01 ms");
    say(&format!("slot launch_slot_: id {slot:2} | task {} | processing task, is_child = 0", task.id));
    say(&format!(
        "slot   operator(): id {slot:2} | task {} | new prompt, n_ctx_slot = {context}, n_keep = 0, task.n_tokens = {}",
        task.id, task.prompt
    ));
}

/// Prints where a batch begins.
pub fn say_cached(slot: usize, task: &Task) {
    let tokens = task.processed;
    say(&format!(
        "slot   operator(): id {slot:2} | task {} | cached n_tokens = {tokens}, memory_seq_rm [{tokens}, end)",
        task.id
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
    say(&format!("slot print_timing: id {slot:2} | task {} |    graphs reused = {:10}", task.id, task.decoded));
    say_release(slot, task);
}

/// Prints that a slot is free again. The last token was never fed back.
pub fn say_release(slot: usize, task: &Task) {
    say(&format!(
        "slot      release: id {slot:2} | task {} | stop processing: n_tokens = {}, truncated = 0",
        task.id,
        task.processed + task.decoded.saturating_sub(1)
    ));
}

/// Prints the memory that the MLX engine used for a request, as it does after
/// each, also where the client left.
pub fn say_peak(runner: &Runner) {
    let bytes = runner.model.loaded_bytes(runner.state_context(), 1);
    say_info(runner, "pipeline.go:64", "peak memory", &[("size", &moments::human_bytes(bytes))]);
}

/// Prints the last words of a runner whose GPU gave up.
pub fn say_broken(kind: Kind) {
    match kind {
        Kind::LlamaServer | Kind::Old => {
            say("ggml_metal_synchronize: error: command buffer 0 failed with status 5");
            say("error: Internal Error (0000000e:Internal Error)");
        }
        Kind::Mlx => say("mlx: [metal::eval] command buffer execution failed: Internal Error (0000000e)"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_made_of_words() {
        assert_eq!(words(0, 3), "The stable is");
        assert_eq!(words(3, 1), " quiet");
    }
}
