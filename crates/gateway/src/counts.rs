//! What was counted of the queue since the start, for whoever measures it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// The most kinds of requests that are counted apart; clients name themselves, and a name must not fill the memory.
const KINDS_AT_MOST: usize = 512;
/// As many missing models are remembered.
const MISSING_AT_MOST: usize = 16;

/// A kind of request: its lane, its client, its model.
pub type Kind = (&'static str, Arc<str>, Arc<str>);

/// What was counted since the start.
#[derive(Clone, Debug, Default)]
pub struct Counts {
    /// By lane, client and model.
    pub served: BTreeMap<Kind, Served>,
    /// How long requests waited, by lane.
    pub waits: BTreeMap<&'static str, Waits>,
    /// Requests that were not sent, by reason and lane.
    pub refused: BTreeMap<(&'static str, &'static str), u64>,
    /// Admissions that loaded a model where there was room.
    pub loads: u64,
    /// Models that were asked for and are not installed, with who asked last; the newest last.
    pub missing: Vec<(Arc<str>, Arc<str>)>,
}

/// How many requests waited at most so long.
#[derive(Clone, Copy, Debug, Default)]
pub struct Waits([u64; BOUNDS_MS.len() + 1]);

/// The bounds, in milliseconds.
const BOUNDS_MS: [u64; 8] = [1, 100, 1_000, 5_000, 15_000, 60_000, 300_000, 1_200_000];

impl Waits {
    fn note(&mut self, waited: Duration) {
        let bucket = BOUNDS_MS.iter().position(|bound| waited <= Duration::from_millis(*bound));
        self.0[bucket.unwrap_or(BOUNDS_MS.len())] += 1;
    }

    /// The bounds in seconds as Prometheus writes them, with how many waited no longer.
    pub fn told(&self) -> Vec<(String, u64)> {
        let bounds = BOUNDS_MS.iter().map(|bound| Duration::from_millis(*bound).as_secs_f64().to_string());
        let counts = self.0.iter().scan(0, |sum, count| {
            *sum += count;
            Some(*sum)
        });
        bounds.chain(["+Inf".to_owned()]).zip(counts).collect()
    }
}

/// What was counted of one kind of request.
#[derive(Clone, Copy, Debug, Default)]
pub struct Served {
    /// How often one was admitted.
    pub admitted: u64,
    /// How long they waited, in all.
    pub waited: Duration,
    /// How many have ended.
    pub ended: u64,
    /// How long they held their permits, in all.
    pub served: Duration,
}

impl Counts {
    /// One was admitted after this long.
    pub fn admitted(&mut self, kind: &Kind, waited: Duration) {
        self.waits.entry(kind.0).or_default().note(waited);
        let served = self.of(kind);
        served.admitted += 1;
        served.waited += waited;
    }

    /// One that was admitted has ended after this long.
    pub fn ended(&mut self, kind: &Kind, served: Duration) {
        let all = self.of(kind);
        all.ended += 1;
        all.served += served;
    }

    /// A model was asked for that is not installed.
    pub fn missing(&mut self, model: Arc<str>, client: Arc<str>) {
        self.missing.retain(|(other, _)| *other != model);
        if self.missing.len() == MISSING_AT_MOST {
            self.missing.remove(0);
        }
        self.missing.push((model, client));
    }

    /// A model has answered, so it is not missing any more.
    pub fn is_there(&mut self, model: &str) {
        self.missing.retain(|(other, _)| **other != *model);
    }

    fn of(&mut self, kind: &Kind) -> &mut Served {
        if self.served.len() >= KINDS_AT_MOST && !self.served.contains_key(kind) {
            let others: Arc<str> = Arc::from("others");
            return self.served.entry((kind.0, others.clone(), others)).or_default();
        }
        self.served.entry(kind.clone()).or_default()
    }
}
