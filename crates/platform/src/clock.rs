//! The machine's two clocks. In a simulated world both run at the world's speed.
//!
//! Waits go through [`Clock::sleep`], which counts awake time: the timers below it stand still while the machine
//! sleeps, on Linux (`CLOCK_MONOTONIC`) and on macOS (`CLOCK_UPTIME_RAW`, which the standard library's monotonic
//! clock reads there).

use crate::files::Stamp;
use crate::machine::MachineError;
use serde::Deserialize;
use stablehand_engine::time::{Awake, Now, Wall};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The fixed point of awake time on a real machine; every clock of this process shares it.
static AWAKE_ORIGIN: LazyLock<Instant> = LazyLock::new(Instant::now);

/// The least real time that a process of a world is given to do something.
const LEAST_PATIENCE: Duration = Duration::from_millis(400);

/// A machine's clock, cheap to clone.
#[derive(Clone, Debug)]
pub struct Clock {
    source: Source,
}

#[derive(Clone, Debug)]
enum Source {
    Real,
    World(Arc<WorldClock>),
}

#[derive(Debug)]
struct WorldClock {
    path: PathBuf,
    read: Mutex<Reading>,
}

#[derive(Clone, Copy, Debug)]
struct Reading {
    stamp: Stamp,
    face: Face,
}

/// `clock.json` of a world.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
pub(crate) struct Face {
    /// World seconds per real second.
    speed: f64,
    /// The real `CLOCK_MONOTONIC` at which the world's awake time was 0.
    anchor_monotonic_ms: i64,
    /// The world's wall time at that instant: its login.
    pub(crate) anchor_wall_unix_ms: i64,
    /// How long the world has slept since, in its own time.
    slept_ms: i64,
}

impl Clock {
    /// The clock of the real machine.
    pub fn real() -> Self {
        LazyLock::force(&AWAKE_ORIGIN);
        Self { source: Source::Real }
    }

    /// The clock of the world in this folder.
    ///
    /// # Errors
    /// [`MachineError::BadClock`] when `clock.json` cannot be read or tells no time.
    pub fn world(dir: &Path) -> Result<Self, MachineError> {
        let path = dir.join("clock.json");
        let read = Mutex::new(read_face(&path).map_err(MachineError::BadClock)?);
        Ok(Self { source: Source::World(Arc::new(WorldClock { path, read })) })
    }

    /// This instant on both clocks.
    pub fn now(&self) -> Now {
        match &self.source {
            Source::Real => {
                Now { awake: Awake::from_start(AWAKE_ORIGIN.elapsed()), wall: Wall::from_unix_ms(real_unix_ms()) }
            }
            Source::World(world) => world.face().at(monotonic_ms()),
        }
    }

    /// This instant in awake time alone, which costs less than [`Self::now`].
    pub fn awake(&self) -> Awake {
        match &self.source {
            Source::Real => Awake::from_start(AWAKE_ORIGIN.elapsed()),
            Source::World(world) => world.face().at(monotonic_ms()).awake,
        }
    }

    /// Waits for this span of the machine's awake time.
    pub async fn sleep(&self, span: Duration) {
        tokio::time::sleep(self.real_span(span)).await;
    }

    /// How long this span of the machine's time really takes.
    pub fn real_span(&self, span: Duration) -> Duration {
        match &self.source {
            Source::Real => span,
            Source::World(world) => span.div_f64(world.face().speed),
        }
    }

    /// How long, really, to wait for something that a process of the machine does within this span: never less than
    /// 400 ms in a world, because its processes start and end in real time, however fast it runs.
    pub fn patience(&self, span: Duration) -> Duration {
        match &self.source {
            Source::Real => span,
            Source::World(_) => self.real_span(span).max(LEAST_PATIENCE),
        }
    }

    /// The machine's wall time at a real instant, which is how the kernel tells when a process started. Sleeps of a
    /// world are ignored, so that it is exact between sleeps only.
    pub fn wall_of_real(&self, real_instant_unix_ms: i64) -> Wall {
        match &self.source {
            Source::Real => Wall::from_unix_ms(real_instant_unix_ms),
            Source::World(world) => {
                let face = world.face();
                let ago_ms = real_unix_ms().saturating_sub(real_instant_unix_ms);
                let wall_now_ms = face.at(monotonic_ms()).wall.unix_ms;
                Wall::from_unix_ms(wall_now_ms.saturating_sub(face.scaled_ms(ago_ms)))
            }
        }
    }

    /// The wall time of the world's login; `None` on a real machine, which does not tell.
    pub(crate) fn world_login(&self) -> Option<Wall> {
        match &self.source {
            Source::Real => None,
            Source::World(world) => Some(Wall::from_unix_ms(world.face().anchor_wall_unix_ms)),
        }
    }
}

impl WorldClock {
    /// The present face. Between two versions of the file, or when it is gone, the last one holds.
    fn face(&self) -> Face {
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        if Stamp::of(&self.path).is_some_and(|stamp| stamp != read.stamp)
            && let Ok(fresh) = read_face(&self.path)
        {
            *read = fresh;
        }
        read.face
    }
}

impl Face {
    fn at(self, real_monotonic_ms: i64) -> Now {
        let awake_ms = self.scaled_ms(real_monotonic_ms.saturating_sub(self.anchor_monotonic_ms)).max(0);
        let wall_ms = self.anchor_wall_unix_ms.saturating_add(awake_ms).saturating_add(self.slept_ms);
        let awake = Duration::from_millis(u64::try_from(awake_ms).unwrap_or(0));
        Now { awake: Awake::from_start(awake), wall: Wall::from_unix_ms(wall_ms) }
    }

    /// A real span in world time. An `f64` holds every whole millisecond of the next 285 000 years.
    #[expect(clippy::cast_precision_loss, clippy::cast_possible_truncation, reason = "spans are far below 2^53 ms")]
    fn scaled_ms(self, real_ms: i64) -> i64 {
        (real_ms as f64 * self.speed) as i64
    }
}

fn read_face(path: &Path) -> Result<Reading, String> {
    let told = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
    let stamp = Stamp::of(path).ok_or_else(|| format!("{} is missing", path.display()))?;
    let text = fs::read_to_string(path).map_err(|error| told(&error))?;
    let face: Face = serde_json::from_str(&text).map_err(|error| told(&error))?;
    if face.speed.is_finite() && face.speed > 0.0 {
        Ok(Reading { stamp, face })
    } else {
        Err(told(&format!("a speed must be above 0: {}", face.speed)))
    }
}

fn monotonic_ms() -> i64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    time.tv_sec.saturating_mul(1000).saturating_add(time.tv_nsec / 1_000_000)
}

fn real_unix_ms() -> i64 {
    match SystemTime::now().duration_since(UNIX_EPOCH) {
        Ok(since) => i64::try_from(since.as_millis()).unwrap_or(i64::MAX),
        Err(before) => -i64::try_from(before.duration().as_millis()).unwrap_or(i64::MAX),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn awake_time_runs_at_the_worlds_speed_and_sleep_moves_the_wall_alone() {
        let face = Face { speed: 60.0, anchor_monotonic_ms: 1_000, anchor_wall_unix_ms: 500_000, slept_ms: 0 };
        let before = face.at(3_000);
        assert_eq!(before.awake.since_start(), Duration::from_secs(120));
        assert_eq!(before.wall.unix_ms, 620_000);
        let after = Face { slept_ms: 7_000, ..face }.at(3_000);
        assert_eq!(after.awake, before.awake);
        assert_eq!(after.wall.unix_ms, 627_000);
    }

    #[test]
    fn a_replaced_clock_file_is_seen_and_a_missing_one_keeps_the_last_face() {
        let dir = tempfile::tempdir().unwrap();
        let write = |slept_ms: i64| {
            let text = format!(
                r#"{{"speed":2.0,"anchor_monotonic_ms":0,"anchor_wall_unix_ms":1796000000000,"slept_ms":{slept_ms}}}"#
            );
            fs::write(dir.path().join("new.json"), text).unwrap();
            fs::rename(dir.path().join("new.json"), dir.path().join("clock.json")).unwrap();
        };
        write(0);
        let clock = Clock::world(dir.path()).unwrap();
        let before = clock.now().wall;
        write(3_600_000);
        let slept = clock.now().wall;
        assert!(slept - before >= Duration::from_secs(3_600));
        fs::remove_file(dir.path().join("clock.json")).unwrap();
        assert!(clock.now().wall >= slept);
        assert_eq!(clock.real_span(Duration::from_secs(10)), Duration::from_secs(5));
    }

    #[test]
    fn a_clock_that_stands_still_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let text = r#"{"speed":0.0,"anchor_monotonic_ms":0,"anchor_wall_unix_ms":0,"slept_ms":0}"#;
        fs::write(dir.path().join("clock.json"), text).unwrap();
        assert!(matches!(Clock::world(dir.path()), Err(MachineError::BadClock(_))));
    }

    #[test]
    fn a_real_instant_one_second_ago_lies_a_minute_back_at_sixty_fold_speed() {
        let dir = tempfile::tempdir().unwrap();
        let text = format!(
            r#"{{"speed":60.0,"anchor_monotonic_ms":{},"anchor_wall_unix_ms":1796000000000,"slept_ms":0}}"#,
            monotonic_ms()
        );
        fs::write(dir.path().join("clock.json"), text).unwrap();
        let clock = Clock::world(dir.path()).unwrap();
        let started = clock.wall_of_real(real_unix_ms() - 1_000);
        let ago = clock.now().wall - started;
        assert!(ago >= Duration::from_secs(59) && ago < Duration::from_secs(120), "{ago:?}");
    }
}
