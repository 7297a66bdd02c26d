//! The queue as Prometheus text: lengths as they stand, waits and services since the start, by lane, client and model.

use crate::counts::Counts;
use stablehand_engine::admission::{Lane, Snapshot};
use stablehand_protocol::exposition::{Page, Type, as_float};
use std::collections::BTreeMap;
use std::time::Duration;

pub use stablehand_protocol::exposition::CONTENT_TYPE;

/// All of it.
pub fn exposition(view: &Snapshot, counts: &Counts, bodies_bytes: u64, connections: usize) -> String {
    let mut page = Page::default();
    page.family("gateway_build_info", Type::Gauge, "Always 1; the label tells which gateway this is.")
        .sample(&[("version", env!("CARGO_PKG_VERSION"))], 1.0);
    queue(&mut page, view);
    models(&mut page, view);
    since_the_start(&mut page, counts);
    page.family("gateway_switches_total", Type::Counter, "Models that took another one's place in memory.")
        .sample(&[], as_float(view.switches));
    page.family("gateway_bodies_bytes", Type::Gauge, "Memory for the bodies of requests that wait.")
        .sample(&[], as_float(bodies_bytes));
    page.family("gateway_connections", Type::Gauge, "Connections of clients.")
        .sample(&[], as_float(connections as u64));
    page.finish()
}

fn queue(page: &mut Page, view: &Snapshot) {
    let mut waiting: BTreeMap<(&str, &str, &str), u64> = BTreeMap::new();
    for one in &view.waiting {
        *waiting.entry((one.lane.word(), &one.client, &one.model)).or_default() += 1;
    }
    let mut lanes = page.family("gateway_queue_length", Type::Gauge, "Requests that wait, by lane.");
    for lane in Lane::ALL {
        let count = view.waiting.iter().filter(|one| one.lane == lane).count();
        lanes.sample(&[("lane", lane.word())], as_float(count as u64));
    }
    let text = "Requests that wait, by lane, client and model.";
    let mut family = page.family("gateway_waiting", Type::Gauge, text);
    for ((lane, client, model), count) in waiting {
        family.sample(&[("lane", lane), ("client", client), ("model", model)], as_float(count));
    }
    let oldest = view.waiting.iter().map(|one| one.waited).max().unwrap_or_default();
    page.family("gateway_oldest_wait_seconds", Type::Gauge, "How long the oldest waiting request has waited.")
        .sample(&[], oldest.as_secs_f64());
    let mut holds = page.family("gateway_held", Type::Gauge, "1 for every reason that holds requests.");
    for held in &view.held {
        holds.sample(&[("why", held.why.word())], 1.0);
    }
}

fn models(page: &mut Page, view: &Snapshot) {
    let mut permits = page.family("gateway_permits", Type::Gauge, "Requests that run, by model.");
    for model in &view.models {
        permits.sample(&[("model", &model.model)], f64::from(model.running));
    }
    let mut room = page.family("gateway_permits_limit", Type::Gauge, "Requests that may run at once, by model.");
    for model in &view.models {
        room.sample(&[("model", &model.model)], f64::from(model.at_most));
    }
    let mut around = page.family("gateway_around_busy", Type::Gauge, "Slots busy with what went around the gateway.");
    for model in &view.models {
        around.sample(&[("model", &model.model)], f64::from(model.around));
    }
}

fn since_the_start(page: &mut Page, counts: &Counts) {
    let mut each = |name, help, value: fn(&crate::counts::Served) -> f64| {
        let mut family = page.family(name, Type::Counter, help);
        for ((lane, client, model), served) in &counts.served {
            family.sample(&[("lane", lane), ("client", client), ("model", model)], value(served));
        }
    };
    each("gateway_admitted_total", "Requests that were sent to Ollama.", |served| as_float(served.admitted));
    each("gateway_wait_seconds_total", "Time that those waited.", |served| seconds(served.waited));
    each("gateway_ended_total", "Requests whose answer has ended.", |served| as_float(served.ended));
    each("gateway_service_seconds_total", "Time that those held their permits.", |served| seconds(served.served));
    let mut waits = page.family("gateway_wait_seconds_bucket", Type::Counter, "Waits of at most so long, by lane.");
    for (lane, buckets) in &counts.waits {
        for (bound, count) in buckets.told() {
            waits.sample(&[("lane", lane), ("le", &bound)], as_float(count));
        }
    }
    let text = "Requests that were refused with 503, by reason and lane.";
    let mut refused = page.family("gateway_refused_total", Type::Counter, text);
    for ((reason, lane), count) in &counts.refused {
        refused.sample(&[("reason", reason), ("lane", lane)], as_float(*count));
    }
    page.family("gateway_loads_total", Type::Counter, "Requests that found their model not in memory, and room.")
        .sample(&[], as_float(counts.loads));
}

fn seconds(span: Duration) -> f64 {
    span.as_secs_f64()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counts::Served;
    use std::sync::Arc;

    #[test]
    fn names_of_others_cannot_break_the_text() {
        let mut counts = Counts::default();
        let key = ("agent", Arc::from("a\"b\nc"), Arc::from("m:1b"));
        let waited = Duration::from_millis(1_500);
        counts.served.insert(key, Served { admitted: 2, waited, ended: 1, served: waited });
        counts.refused.insert(("full", "batch"), 3);
        let text = exposition(&Snapshot::default(), &counts, 7, 1);
        for line in [
            r#"stablehand_gateway_admitted_total{lane="agent",client="a\"b\nc",model="m:1b"} 2"#,
            r#"stablehand_gateway_wait_seconds_total{lane="agent",client="a\"b\nc",model="m:1b"} 1.5"#,
            r#"stablehand_gateway_refused_total{reason="full",lane="batch"} 3"#,
            r#"stablehand_gateway_queue_length{lane="interactive"} 0"#,
            "stablehand_gateway_bodies_bytes 7",
        ] {
            assert!(text.lines().any(|one| one == line), "{line}\n{text}");
        }
    }
}
