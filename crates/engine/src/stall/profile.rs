//! How a model uses processor and GPU in honest work, so that another use can be told from it.

use super::fact::Pattern;

/// What was seen of one model, per phase. Use is measured from one step of progress to the next, never within one.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Profile {
    prefill: Range,
    decode: Range,
    /// Steps of progress in which the GPU was seen at work.
    gpu_steps: u32,
}

/// CPU use in cores.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Range {
    least: f64,
    most: f64,
    seen: u32,
}

/// Steps that must have been seen before a use is called unlike.
const STEPS_WANTED: u32 = 5;
/// GPU use, in percent, from which on it is at work.
const GPU_AT_WORK_PERCENT: u32 = 20;
/// GPU use, in percent, up to which it is idle.
pub(super) const GPU_IDLE_PERCENT: u32 = 5;
/// Below this part of the least use seen, a use is unlike.
const LESS: f64 = 0.6;
/// Above this multiple of the most use seen, a use is unlike.
const MORE: f64 = 1.5;
/// CPU use, in cores, below which a difference is noise, above and below what was seen. A process that works on the GPU
/// uses little of the processor; one that stands still uses none.
const CPU_NOISE: f64 = 0.05;
const CPU_NOISE_BELOW: f64 = 0.02;

impl Profile {
    /// Takes in one step of progress: CPU use in cores, GPU use in percent where it can be read.
    pub(super) fn learn(&mut self, pattern: Pattern, cores: f64, gpu_percent: Option<u32>) {
        let range = match pattern {
            Pattern::Prefill => &mut self.prefill,
            Pattern::Decode => &mut self.decode,
        };
        if range.seen == 0 {
            (range.least, range.most) = (cores, cores);
        }
        range.least = range.least.min(cores);
        range.most = range.most.max(cores);
        range.seen = range.seen.saturating_add(1);
        if gpu_percent.is_some_and(|percent| percent >= GPU_AT_WORK_PERCENT) {
            self.gpu_steps = self.gpu_steps.saturating_add(1);
        }
    }

    /// Whether this CPU use lies clearly outside of what the model shows in this phase; when the phase is not known,
    /// outside of what it shows in both.
    pub(super) fn is_unlike(&self, pattern: Option<Pattern>, cores: f64) -> bool {
        match pattern {
            Some(Pattern::Prefill) => self.prefill.excludes(cores),
            Some(Pattern::Decode) => self.decode.excludes(cores),
            None => self.prefill.excludes(cores) && self.decode.excludes(cores),
        }
    }

    /// Whether this CPU use lies clearly above what the model shows in both phases.
    pub(super) fn is_beyond(&self, cores: f64) -> bool {
        [self.prefill, self.decode].iter().any(|range| range.seen >= STEPS_WANTED)
            && cores > self.prefill.most.max(self.decode.most) * MORE + CPU_NOISE
    }

    /// Whether this model is known to work on the GPU.
    pub(super) fn uses_gpu(&self) -> bool {
        self.gpu_steps >= STEPS_WANTED
    }
}

impl Range {
    fn excludes(self, cores: f64) -> bool {
        self.seen >= STEPS_WANTED
            && (cores < self.least * LESS - CPU_NOISE_BELOW || cores > self.most * MORE + CPU_NOISE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_use_is_called_unlike_only_after_enough_of_the_honest_one_was_seen() {
        let mut profile = Profile::default();
        for _ in 0..4 {
            profile.learn(Pattern::Decode, 0.9, None);
        }
        assert!(!profile.is_unlike(Some(Pattern::Decode), 0.2));
        profile.learn(Pattern::Decode, 0.9, None);
        assert!(profile.is_unlike(Some(Pattern::Decode), 0.2));
        assert!(!profile.is_unlike(Some(Pattern::Decode), 0.8));
        assert!(profile.is_beyond(4.0) && !profile.is_beyond(0.2));
    }

    #[test]
    fn a_phase_that_was_seen_too_little_excuses_every_use() {
        let mut profile = Profile::default();
        for _ in 0..9 {
            profile.learn(Pattern::Decode, 0.9, None);
        }
        profile.learn(Pattern::Prefill, 0.2, None);
        assert!(!profile.is_unlike(Some(Pattern::Prefill), 4.0));
        assert!(!profile.is_unlike(None, 0.2), "one prefill step looked like it");
    }
}
