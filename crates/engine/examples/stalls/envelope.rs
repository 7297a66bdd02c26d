//! What healthy work can be like. These bounds stood before the rule did; the generator of traces stays inside them and
//! the oracle proves nothing that they allow.
//!
//! Time is *work* here: seconds that a machine without paging would need. Paging stretches any work by up to
//! [`PAGING_FACTOR`].

/// Tokens of context; no position lies beyond.
pub const CONTEXT_TOKENS: u64 = 131_072;

/// Slowest and fastest prefill at position 0, in tokens per second, noise included. What lies under the noise is
/// constant per model on a machine.
pub const PREFILL_TOKENS_PER_S: (f64, f64) = (20.0, 2_000.0);

/// How many times longer a prompt token takes at the end of the context than at its beginning, at most; it grows
/// linearly with the position. Constant per model on a machine.
pub const SLOWDOWN_AT_END: f64 = 8.0;

/// Prompt tokens in one batch. Constant per model on a machine; only the last batch of a prompt is smaller, and a batch
/// that several slots share.
pub const BATCH_TOKENS: [u64; 3] = [512, 1_024, 2_048];

/// Prompt tokens in one batch of an MLX runner (`x/mlxrunner/pipeline.go`).
pub const MLX_BATCH_TOKENS: u64 = 2_048;

/// Slowest and fastest generation, in tokens per second, noise included; any token may take as long as the slowest.
pub const GENERATION_TOKENS_PER_S: (f64, f64) = (0.5, 100.0);

/// Every batch and every token takes between `1 / NOISE` and `NOISE` times what the constants of its model say.
pub const NOISE: f64 = 1.25;

/// Constants of a model that stay inside such bounds with all the noise.
pub const fn under_noise((slowest, fastest): (f64, f64)) -> (f64, f64) {
    (slowest * NOISE, fastest / NOISE)
}

/// The longest load. One that takes longer without a sign is ended by Ollama itself (`OLLAMA_LOAD_TIMEOUT`).
pub const LOAD_S: f64 = 300.0;

/// The longest work on images before the first prompt token of a request.
pub const IMAGE_S: f64 = 120.0;

/// How much slower paging makes work, at most.
pub const PAGING_FACTOR: f64 = 10.0;

/// Paging that slows anything reads back at least this much.
pub const PAGING_SEEN_BYTES_PER_S: f64 = 100_000.0;

/// A runner ends within this time after its server has gone, and after it was told to unload.
pub const RUNNER_END_S: f64 = 60.0;

/// The longest time from a server's start, or under paging, to its answer to a trivial request.
pub const SERVER_ANSWER_S: f64 = 60.0;

/// The longest time for which a runner's HTTP side gives no answer, which happens under paging.
pub const UNANSWERED_S: f64 = 30.0;

/// The longest time that `/api/ps` waits for locks: the load of an MLX model.
pub const PS_ANSWER_S: f64 = LOAD_S + 10.0;

/// How many requests in a row a model that writes text ends with at most one token, at most.
pub const ONE_TOKEN_ANSWERS: usize = 2;
