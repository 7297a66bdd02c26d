//! Spending world time on work: slower where the machine pages, not at all
//! where the loop is stuck, with a little real CPU.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::condition::{Condition, Failing};
use super::record::Phase;
use super::{Runner, decode};

/// Real time between two looks at the notes while working.
const GLANCE: Duration = Duration::from_millis(10);
/// Real time between two looks while standing still; short of it, looking would
/// show as CPU use.
const STILL: Duration = Duration::from_millis(80);
/// Longest real time between two looks that counts as work: a process that was
/// stopped did none.
const LONGEST_LOOK: Duration = Duration::from_millis(60);

/// Share of one core that each kind of work burns, the rest being the GPU's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// Reading weights.
    Load,
    /// Encoding an image.
    Encode,
    /// Prompt batches.
    Prefill,
    /// Tokens.
    Decode,
}

impl Work {
    fn core_share(self, condition: Condition) -> f64 {
        let share = match self {
            Self::Load => 0.15,
            Self::Encode => 0.05,
            Self::Prefill => 0.03,
            Self::Decode => 0.08,
        };
        // What waits for pages does not compute.
        if condition.slowness > 1.0 { share / 2.0 } else { share }
    }
}

/// Keeps steps at their world times although a step may be shorter than the
/// timer's grain.
#[derive(Debug)]
pub struct Pace {
    accounted: Instant,
    /// World seconds worked ahead.
    credit: f64,
}

impl Pace {
    /// Starts now.
    pub fn new() -> Self {
        Self { accounted: Instant::now(), credit: 0.0 }
    }

    /// Forgets the time until now: nothing was to be done.
    pub fn rest(&mut self) {
        self.accounted = Instant::now();
        self.credit = 0.0;
    }

    /// Works for `world` of unhindered time. The world time that it took.
    pub async fn spend(&mut self, runner: &Runner, world: Duration, work: Work) -> Duration {
        let mut left = world.as_secs_f64() - self.credit;
        let mut took = 0.0;
        self.credit = 0.0;
        loop {
            if hold(runner).await {
                self.accounted = Instant::now();
            }
            let condition = runner.condition();
            let now = Instant::now();
            let real = now.saturating_duration_since(self.accounted).min(LONGEST_LOOK);
            self.accounted = now;
            let speed = runner.world.clock.speed();
            let passed = real.as_secs_f64() * speed;
            left -= passed / condition.slowness;
            took += passed;
            if left <= 0.0 {
                self.credit = (-left).min(LONGEST_LOOK.as_secs_f64() * speed);
                took += left * condition.slowness;
                tokio::task::yield_now().await;
                return Duration::from_secs_f64(took.max(world.as_secs_f64()));
            }
            let piece = Duration::from_secs_f64(left * condition.slowness / speed).min(GLANCE);
            let share = work.core_share(condition);
            burn(piece.mul_f64(share));
            tokio::time::sleep(piece.mul_f64(1.0 - share)).await;
        }
    }
}

/// Stands still, or burns a core, as long as the loop is told to fail and a
/// request is in a slot. Whether it did.
pub async fn hold(runner: &Runner) -> bool {
    let mut held = false;
    let mut burning = None;
    loop {
        let failing = runner.condition().failing;
        if runner.state().is_idle() {
            return held;
        }
        match failing {
            Some(Failing::Stuck) => {
                burning = None;
                decode::assign(runner);
                runner.enter(Phase::Stuck);
                tokio::time::sleep(STILL).await;
            }
            Some(Failing::BusyLoop) => {
                decode::assign(runner);
                runner.enter(Phase::BusyLoop);
                burning.get_or_insert_with(Burning::start);
                tokio::time::sleep(GLANCE).await;
            }
            Some(Failing::EmptyReplies) | None => return held,
        }
        held = true;
    }
}

/// A thread that keeps a core busy until this is dropped. The HTTP side goes on.
struct Burning {
    over: Arc<AtomicBool>,
}

impl Burning {
    fn start() -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&over);
        std::thread::spawn(move || {
            while !seen.load(Ordering::Relaxed) {
                std::hint::spin_loop();
            }
        });
        Self { over }
    }
}

impl Drop for Burning {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
    }
}

/// Works on the processor for a real time.
fn burn(time: Duration) {
    let until = Instant::now() + time;
    while Instant::now() < until {
        std::hint::spin_loop();
    }
}
