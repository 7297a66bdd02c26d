//! From counters to rates, in awake time: a night asleep is no slow second.

use super::sample::{FIRST_LOOK, Flow, Memory, ProcessSample};
use stablehand_engine::Known;
use stablehand_engine::process::Identity;
use stablehand_engine::time::Awake;
use std::collections::HashMap;

/// The counters of the look before.
#[derive(Debug, Default)]
pub(super) struct Rates {
    before: Option<Before>,
}

#[derive(Debug)]
struct Before {
    at: Awake,
    swap_in: Known<u64>,
    swap_out: Known<u64>,
    decompressed: Known<u64>,
}

impl Rates {
    /// Puts the rates since the look before into this one.
    pub(super) fn fill(&mut self, now: Awake, memory: &mut Memory) {
        let before = self.before.as_ref();
        let since = |pick: fn(&Before) -> &Known<u64>| before.map(|before| (before.at, pick(before)));
        let flow = |flow: &mut Flow, before| flow.bytes_per_s = rate(before, now, &flow.total_bytes);
        flow(&mut memory.swap_in, since(|before| &before.swap_in));
        flow(&mut memory.swap_out, since(|before| &before.swap_out));
        flow(&mut memory.decompressed, since(|before| &before.decompressed));
        self.before = Some(Before {
            at: now,
            swap_in: memory.swap_in.total_bytes.clone(),
            swap_out: memory.swap_out.total_bytes.clone(),
            decompressed: memory.decompressed.total_bytes.clone(),
        });
    }
}

/// What processes had read back at the look before.
#[derive(Debug, Default)]
pub(super) struct ReadBack {
    before: HashMap<Identity, (Awake, Known<u64>)>,
}

impl ReadBack {
    /// Puts the rates since the look before into these.
    pub(super) fn fill(&mut self, now: Awake, processes: &mut [ProcessSample]) {
        let before = std::mem::take(&mut self.before);
        for process in processes {
            let known = before.get(&process.id).map(|(at, bytes)| (*at, bytes));
            process.read_back.bytes_per_s = rate(known, now, &process.read_back.total_bytes);
            self.before.insert(process.id, (now, process.read_back.total_bytes.clone()));
        }
    }
}

fn rate(before: Option<(Awake, &Known<u64>)>, now: Awake, total: &Known<u64>) -> Known<f64> {
    let now_bytes = match total {
        Known::Is(bytes) => *bytes,
        Known::Unknown(reason) => return Known::Unknown(reason.clone()),
    };
    let Some((then, before)) = before else { return Known::unknown(FIRST_LOOK) };
    let before_bytes = match before {
        Known::Is(bytes) => *bytes,
        Known::Unknown(reason) => return Known::unknown(format!("the look before did not tell: {reason}")),
    };
    let Some(grown_bytes) = now_bytes.checked_sub(before_bytes) else {
        return Known::unknown("the counter went back since the look before");
    };
    let seconds = now.since(then).as_secs_f64();
    if seconds > 0.0 {
        Known::Is(grown_bytes as f64 / seconds)
    } else {
        Known::unknown("no time has passed since the look before")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn at(seconds: u64) -> Awake {
        Awake::from_start(Duration::from_secs(seconds))
    }

    fn memory(swapped_out_bytes: Known<u64>) -> Memory {
        Memory { swap_out: Flow::so_far(swapped_out_bytes), ..Memory::unknown("not asked") }
    }

    #[test]
    fn the_first_look_has_no_rate_and_the_second_counts_awake_seconds() {
        let mut rates = Rates::default();
        let mut first = memory(Known::Is(1_000));
        rates.fill(at(10), &mut first);
        assert_eq!(first.swap_out.bytes_per_s, Known::unknown(FIRST_LOOK));
        let mut second = memory(Known::Is(5_000));
        rates.fill(at(12), &mut second);
        assert_eq!(second.swap_out.bytes_per_s, Known::Is(2_000.0));
        assert_eq!(second.swap_in.bytes_per_s, Known::unknown("not asked"));
    }

    #[test]
    fn each_life_of_a_process_has_its_own_rate_and_those_that_are_gone_are_forgotten() {
        let id = |birth| Identity { pid: 7, birth };
        let read = |birth, bytes| {
            let unknown = ProcessSample::unknown(id(birth), "not asked");
            ProcessSample { read_back: Flow::so_far(Known::Is(bytes)), ..unknown }
        };
        let mut rates = ReadBack::default();
        rates.fill(at(1), &mut [read(1, 100)]);
        let mut second = [read(1, 700), read(2, 50)];
        rates.fill(at(3), &mut second);
        assert_eq!(second[0].read_back.bytes_per_s, Known::Is(300.0));
        assert_eq!(second[1].read_back.bytes_per_s, Known::unknown(FIRST_LOOK));
        rates.fill(at(4), &mut []);
        assert!(rates.before.is_empty());
    }

    #[test]
    fn a_still_counter_is_a_known_zero() {
        assert_eq!(rate(Some((at(1), &Known::Is(7))), at(2), &Known::Is(7)), Known::Is(0.0));
    }

    #[test]
    fn a_counter_that_went_back_or_was_not_read_has_no_rate() {
        let mut rates = Rates::default();
        rates.fill(at(1), &mut memory(Known::Is(9)));
        let mut back = memory(Known::Is(8));
        rates.fill(at(2), &mut back);
        assert!(back.swap_out.bytes_per_s.reason().is_some_and(|reason| reason.contains("went back")));
        rates.fill(at(3), &mut memory(Known::unknown("refused")));
        let mut again = memory(Known::Is(20));
        rates.fill(at(4), &mut again);
        assert!(again.swap_out.bytes_per_s.reason().is_some_and(|reason| reason.contains("refused")));
    }

    #[test]
    fn two_looks_at_one_instant_have_no_rate_and_extremes_do_not_overflow() {
        let before = Known::Is(0);
        assert!(rate(Some((at(1), &before)), at(1), &Known::Is(1)).known().is_none());
        let fastest = rate(Some((at(1), &before)), at(2), &Known::Is(u64::MAX));
        assert!(fastest.known().is_some_and(|rate| rate.is_finite()));
    }
}
