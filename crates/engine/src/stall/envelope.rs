//! What counts as honest at all. The figures were fixed before the rules were written and are the same that the
//! stall benchmark draws its healthy traces from (`docs/stalls.md`); a rule may narrow them by what it measured, and
//! may not widen or tighten them to please a trace.

use std::time::Duration;

/// The slowest honest prefill at position 0, noise included.
pub const PREFILL_SLOWEST_TOKENS_PER_S: f64 = 20.0;
/// How many times slower prefill may be at [`FAR_POSITION`] than at 0; linear in between and beyond.
pub const PREFILL_FAR_FACTOR: f64 = 8.0;
/// The position at which [`PREFILL_FAR_FACTOR`] is reached, in tokens.
pub const FAR_POSITION: u64 = 131_072;
/// The smallest batch, in tokens.
pub const BATCH_SMALLEST: u64 = 512;
/// The largest batch, in tokens.
pub const BATCH_LARGEST: u64 = 2_048;
/// The slowest honest generation, noise included.
pub const GENERATION_SLOWEST_TOKENS_PER_S: f64 = 0.5;
/// A runner is gone this long after its server has ended, and after its model was unloaded.
pub const END_LONGEST: Duration = Duration::from_secs(60);
/// A side that answers from between two batches may miss the end of one, and be late by this much on top.
pub const ANSWER_LATEST: Duration = Duration::from_secs(30);
/// The longest honest load of a model.
pub const LOAD_LONGEST: Duration = Duration::from_secs(300);
/// The longest honest encoding of an image.
pub const IMAGE_LONGEST: Duration = Duration::from_secs(120);
/// How many times slower paging makes anything.
pub const PAGING_FACTOR: u32 = 10;

/// Saving a finished prompt to the runner's own cache before the next one starts (`llama-server`'s prompt cache of up
/// to 8 GiB).
pub const CACHE_SAVE_LONGEST: Duration = Duration::from_secs(10);

/// What a prediction from measurements is multiplied by: the measured step may have been a quick one and the next a slow
/// one.
pub const NOISE_FACTOR: f64 = 1.6;
/// What is added to every prediction, for noise.
pub const NOISE_SPAN: Duration = Duration::from_secs(2);
/// Gaps between steps of progress that must have been seen of a model before less than [`UNFAMILIAR_SPAN`] is
/// believed.
pub const GAPS_WANTED: u32 = 10;
/// The shortest silence that is suspected while a model is unfamiliar.
pub const UNFAMILIAR_SPAN: Duration = Duration::from_secs(120);
/// The shortest silence that is ever suspected: a machine that does something else for a moment is no fault.
pub const FAMILIAR_SPAN: Duration = Duration::from_secs(20);
/// After the machine woke, silence is excused for this long.
pub const WAKE_GRACE: Duration = Duration::from_secs(120);
/// An interval in which nobody looked counts for at most this much silence: a sleep that was not noticed, or a
/// daemon that was held up, must not look like a stall.
pub const UNSEEN_INTERVAL: Duration = Duration::from_secs(60);
/// From this rate on, in bytes per second, paging may slow the work: some six pages of 16 KiB a second.
pub const PAGING_BYTES_PER_S: f64 = 100_000.0;
/// Rates are averages over a sampling interval; after paging was seen it is taken to go on for this long.
pub const PAGING_TAIL: Duration = Duration::from_secs(10);
/// How many times heat may slow the work.
pub const THROTTLING_FACTOR: f64 = 2.0;
/// At most so many other busy runners are thought to share the machine with a runner.
pub const SHARERS_COUNTED: u32 = 3;
/// A silence so many times longer than allowed, margins included, needs no other sign: no slowness explains it.
pub const FAR_BEYOND: u32 = 3;
/// The same where the bound is the envelope itself: it is no prediction that could be wrong of this model, and the margin
/// is for machines that the envelope did not think of.
pub const BEYOND_ENVELOPE: f64 = NOISE_FACTOR;
