//! A simulated machine on which recovery may act, and what it did.

use super::World;
use serde_json::Value;
use std::ops::Deref;
use std::sync::{Condvar, Mutex, PoisonError};

/// So many machines run at the same time: they mostly wait, and their time runs whether they get a core or not.
const AT_ONCE: u32 = 2;

static RUNNING: Mutex<u32> = Mutex::new(0);
static ENDED: Condvar = Condvar::new();

struct Turn;

impl Turn {
    fn take() -> Self {
        let running = RUNNING.lock().unwrap_or_else(PoisonError::into_inner);
        let mut running = ENDED.wait_while(running, |running| *running >= AT_ONCE).unwrap();
        *running += 1;
        Self
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        *RUNNING.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
        ENDED.notify_one();
    }
}

/// A machine whose daemon may recover it as far as its policy goes.
pub struct Recovering {
    world: World,
    // After the machine: its turn is over when it is stopped.
    _turn: Turn,
}

impl Deref for Recovering {
    type Target = World;

    fn deref(&self) -> &World {
        &self.world
    }
}

impl Recovering {
    /// Starts a machine at so many times the real speed. A second of the machine's should be long enough for a look at
    /// it on a computer that has other things to do: what is silent for 20 of them may be ended.
    pub fn start(speed: u32, policy: &str, arguments: &[&str]) -> Self {
        let turn = Turn::take();
        let mut world = World::without_daemon(&[&["--speed", &speed.to_string()], arguments].concat());
        let folder = world.file("/Users/sim/Library/Application Support/dev.stablehand");
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("config.toml"), format!("[recovery]\npolicy = \"{policy}\"\n")).unwrap();
        world.start_daemon();
        Self { world, _turn: turn }
    }

    /// A steady client begins, and is served.
    pub fn work_steadily(&self, model: &str) {
        self.fault_with(&["work-steady", "--model", model]);
        self.is_served_again(2);
    }

    /// Whoever was never seen to generate is not accused of having stopped.
    pub fn is_seen_generating(&self) {
        self.a_runner_is(|judged| judged["verdict"] == "generating");
    }

    /// Waits until a runner is judged so.
    pub fn a_runner_is(&self, judged: impl Fn(&Value) -> bool) {
        self.watch_until(|snapshot| {
            let runners = snapshot["watched"]["runners"].as_array();
            runners.is_some_and(|runners| runners.iter().any(|runner| judged(&runner["judged"])))
        });
    }

    /// So many more requests of the clients are served.
    pub fn is_served_again(&self, times: u64) {
        let before = served(&self.inside());
        self.inside_until(|inside| served(inside) >= before + times);
    }

    pub fn alert(&self, kind: &str) {
        self.watch_until(|snapshot| snapshot["alerts"].as_array().unwrap().iter().any(|alert| alert["kind"] == kind));
    }

    /// Events of the history of one kind.
    pub fn events(&self, kind: &str) -> Vec<Value> {
        let (_, history) = self.last(&["history", "--since", "1d"]);
        let entries = history["entries"].as_array().unwrap_or_else(|| panic!("{history}")).clone();
        entries.into_iter().filter(|entry| entry["kind"] == kind).collect()
    }

    /// Whether a verdict in the history begins with these words.
    #[track_caller]
    pub fn was_judged(&self, words: &str) {
        let verdicts = self.events("verdict");
        assert!(verdicts.iter().any(|entry| begins(entry, words)), "no «{words}»: {verdicts:#?}");
    }

    /// No step of recovery was taken. Evidence is saved before each, whatever it is.
    #[track_caller]
    pub fn was_left_alone(&self) {
        assert_eq!((self.events("kill"), self.evidence()), (vec![], 0), "{:#?}", self.events("verdict"));
        let by_recovery = |entry: &Value| begins(entry, "restart through the owner");
        assert!(!self.events("restart").iter().any(by_recovery), "{:#?}", self.events("restart"));
    }

    /// How many steps of recovery have evidence.
    pub fn evidence(&self) -> usize {
        let folder = self.file("/Users/sim/Library/Logs/dev.stablehand/evidence");
        std::fs::read_dir(folder).map_or(0, Iterator::count)
    }
}

pub fn served(inside: &Value) -> u64 {
    inside["work"]["served"].as_u64().unwrap_or(0)
}

pub fn begins(entry: &Value, words: &str) -> bool {
    entry["words"].as_str().unwrap().starts_with(words)
}
