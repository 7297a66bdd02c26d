//! The clock of a world: a real monotonic anchor, a speed, and the time slept.

use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

/// How long a read of the clock file is trusted, in real time.
const TRUST: Duration = Duration::from_millis(20);

/// Shortest real time that a process is given to react.
const LEAST_PATIENCE: Duration = Duration::from_millis(500);

/// The contents of `clock.json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClockFile {
    /// World seconds per real second.
    pub speed: f64,
    /// Real `CLOCK_MONOTONIC` at the anchor.
    pub anchor_monotonic_ms: i64,
    /// World wall time at the anchor.
    pub anchor_wall_unix_ms: i64,
    /// Sum of all simulated sleeps.
    pub slept_ms: i64,
}

impl ClockFile {
    /// Awake time in the world at the real monotonic instant.
    pub fn awake_ms(&self, monotonic_ms: f64) -> f64 {
        (monotonic_ms - self.anchor_monotonic_ms as f64) * self.speed
    }

    /// Wall time in the world at the real monotonic instant.
    pub fn wall_ms(&self, monotonic_ms: f64) -> i64 {
        self.anchor_wall_unix_ms + self.awake_ms(monotonic_ms) as i64 + self.slept_ms
    }

    /// The same wall time at another speed from this instant on.
    pub fn at_speed(&self, speed: f64, monotonic_ms: f64) -> Self {
        Self {
            speed,
            anchor_monotonic_ms: monotonic_ms as i64,
            anchor_wall_unix_ms: self.wall_ms(monotonic_ms) - self.slept_ms,
            slept_ms: self.slept_ms,
        }
    }

    /// A new clock that starts now at the real wall time.
    pub fn starting_now(speed: f64) -> Self {
        Self { speed, anchor_monotonic_ms: monotonic_ms() as i64, anchor_wall_unix_ms: real_unix_ms(), slept_ms: 0 }
    }

    /// Writes the file by rename.
    pub fn write(&self, path: &Path) -> Result<()> {
        super::write_whole(path, &serde_json::to_vec_pretty(self)?)
    }
}

/// A clock that follows its file.
#[derive(Debug)]
pub struct Clock {
    path: PathBuf,
    last: Mutex<(Instant, ClockFile)>,
}

impl Clock {
    /// Opens the clock kept in `path`.
    pub fn open(path: &Path) -> Result<Self> {
        let file = read(path)?;
        Ok(Self { path: path.to_owned(), last: Mutex::new((Instant::now(), file)) })
    }

    /// The clock file as it is now, at most [`TRUST`] old.
    pub fn file(&self) -> ClockFile {
        let mut last = self.last.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if last.0.elapsed() > TRUST
            && let Ok(file) = read(&self.path)
        {
            *last = (Instant::now(), file);
        }
        last.1.clone()
    }

    /// Wall time of the world in Unix milliseconds.
    pub fn wall_ms(&self) -> i64 {
        self.file().wall_ms(monotonic_ms())
    }

    /// Wall time without the sleeps: awake time, from an origin that a change
    /// of speed does not move.
    pub fn awake_ms(&self) -> i64 {
        let file = self.file();
        file.wall_ms(monotonic_ms()) - file.slept_ms
    }

    /// World seconds per real second.
    pub fn speed(&self) -> f64 {
        self.file().speed.max(0.001)
    }

    /// The real length of a wait of `world` in the world.
    pub fn real(&self, world: Duration) -> Duration {
        world.div_f64(self.speed())
    }

    /// The real length of a wait of `world` for another process. It is never so
    /// short that a busy host looks like a process that does not react.
    pub fn real_for_processes(&self, world: Duration) -> Duration {
        self.real(world).max(LEAST_PATIENCE)
    }

    /// World time passed since a real instant.
    pub fn since(&self, instant: Instant) -> Duration {
        instant.elapsed().mul_f64(self.speed())
    }

    /// Waits `world` in world time.
    pub async fn wait(&self, world: Duration) {
        tokio::time::sleep(self.real(world)).await;
    }

    /// World wall time of a real instant, ignoring sleeps since.
    pub fn wall_of_real_ms(&self, real_ms: i64) -> i64 {
        let file = self.file();
        let ago = (real_unix_ms() - real_ms) as f64 * file.speed;
        file.wall_ms(monotonic_ms()) - ago as i64
    }
}

/// The machine's real `CLOCK_MONOTONIC`.
pub fn monotonic_ms() -> f64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as f64 * 1000.0 + now.tv_nsec as f64 / 1_000_000.0
}

/// The machine's real wall time.
pub fn real_unix_ms() -> i64 {
    jiff::Timestamp::now().as_millisecond()
}

fn read(path: &Path) -> Result<ClockFile> {
    let text = std::fs::read_to_string(path).with_context(|| format!("the clock {} cannot be read", path.display()))?;
    serde_json::from_str(&text).with_context(|| format!("the clock {} cannot be understood", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> ClockFile {
        ClockFile { speed: 60.0, anchor_monotonic_ms: 1_000, anchor_wall_unix_ms: 1_796_000_000_000, slept_ms: 0 }
    }

    #[test]
    fn wall_time_runs_at_the_speed_of_the_world() {
        assert_eq!(sample().wall_ms(2_000.0), 1_796_000_060_000);
    }

    #[test]
    fn sleep_moves_the_wall_clock_only() {
        let slept = ClockFile { slept_ms: 5_000, ..sample() };
        assert_eq!(slept.wall_ms(2_000.0), 1_796_000_065_000);
        assert!((slept.awake_ms(2_000.0) - 60_000.0).abs() < 0.001);
    }

    #[test]
    fn a_change_of_speed_does_not_jump() {
        let slept = ClockFile { slept_ms: 5_000, ..sample() };
        let slower = slept.at_speed(1.0, 2_000.0);
        assert_eq!(slower.wall_ms(2_000.0), slept.wall_ms(2_000.0));
        assert_eq!(slower.wall_ms(3_000.0), slept.wall_ms(2_000.0) + 1_000);
    }
}
