//! Paging: whether pages move, what can be seen of it, and how much slower it makes work.

use super::setup::Paging;
use crate::envelope;
use crate::random::Random;

/// Of one tick.
pub struct PagingState {
    /// Work takes so many times longer.
    pub factor: f64,
    pub bytes_per_s: f64,
    pub pressure: u32,
    on: bool,
    change_at_ms: u64,
    forced_until_ms: u64,
    forced_factor: f64,
}

impl Default for PagingState {
    fn default() -> Self {
        Self {
            factor: 1.0,
            bytes_per_s: 0.0,
            pressure: 1,
            on: false,
            change_at_ms: 0,
            forced_until_ms: 0,
            forced_factor: 1.0,
        }
    }
}

impl PagingState {
    /// Draws the tick that ends now.
    pub fn advance(&mut self, plan: Paging, now_ms: u64, random: &mut Random) {
        // Now and then a few pages come back for some other program.
        let stray = if random.chance(0.01) { random.between((0.0, 500_000.0)) } else { 0.0 };
        (self.factor, self.bytes_per_s, self.pressure) = (1.0, stray, 1);
        match plan {
            Paging::None => {}
            Paging::Harmless => {
                self.bytes_per_s = random.scaled((envelope::PAGING_SEEN_BYTES_PER_S, 3e8));
                self.pressure = 2;
            }
            Paging::Bursts { on_s, off_s, factor } => {
                if now_ms >= self.change_at_ms {
                    // It begins quietly, so that the first burst is not at a fixed moment.
                    self.on = !self.on && self.change_at_ms > 0;
                    let span_s = random.between(if self.on { on_s } else { off_s });
                    self.change_at_ms = now_ms + 1 + (span_s * 1_000.0) as u64;
                }
                if self.on {
                    self.factor = random.between(factor);
                }
            }
        }
        if now_ms < self.forced_until_ms {
            self.factor = self.factor.max(self.forced_factor);
        }
        if self.factor > 1.0 {
            self.bytes_per_s = random.scaled((envelope::PAGING_SEEN_BYTES_PER_S, 8e8));
            // The level can stay normal with swap full.
            self.pressure = random.choice(&[1, 2, 4]);
        }
    }

    /// After a sleep what was paged out comes back.
    pub fn come_back(&mut self, now_ms: u64, random: &mut Random) {
        self.forced_until_ms = now_ms + (random.between((10_000.0, 90_000.0)) as u64);
        self.forced_factor = random.between((2.0, envelope::PAGING_FACTOR));
    }
}
