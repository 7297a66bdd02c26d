//! How fast the server computes before an upgrade and after it.

use super::life::ServersLife;
use stablehand_engine::Known;
use stablehand_engine::upgrade::speed::is_slower;
use stablehand_ollama::client::Generation;
use stablehand_protocol as protocol;

/// As often the prompt is asked. The fastest counts: what else a machine does makes an answer slower, never faster.
const MEASURED_TIMES: usize = 3;

/// The smallest model's speed, with its name; `None` where nothing could be measured.
pub(super) async fn measured(life: &ServersLife) -> Option<(String, Generation)> {
    let mut best: Option<(String, Generation)> = None;
    for _ in 0..MEASURED_TIMES {
        match life.generate().await {
            Ok(Some((model, generation))) => best = Some(faster(best, model, generation)),
            Ok(None) => break,
            Err((model, reason)) => {
                tracing::warn!(%model, %reason, "its speed was not measured");
                break;
            }
        }
    }
    best
}

/// The faster of the two, with the time of loading of the first: the model was loaded by then.
fn faster(best: Option<(String, Generation)>, model: String, next: Generation) -> (String, Generation) {
    let Some((of, best)) = best.filter(|(of, _)| *of == model) else { return (model, next) };
    let is_faster = match (next.millitokens_per_s(), best.millitokens_per_s()) {
        (Known::Is(next), Known::Is(best)) => next > best,
        (Known::Is(_), Known::Unknown(_)) => true,
        (Known::Unknown(_), _) => false,
    };
    let load_ns = best.load_ns;
    let mut fastest = if is_faster { next } else { best };
    fastest.load_ns = load_ns;
    (of, fastest)
}

pub(super) fn compared(before: (String, Generation), after: Option<(String, Generation)>) -> protocol::Measured {
    let (model, before) = before;
    let after = after.filter(|(other, _)| *other == model).map(|(_, after)| after);
    let without = "the new version was not measured";
    let speed_before = before.millitokens_per_s();
    let speed_after = after.as_ref().map_or_else(|| Known::unknown(without), Generation::millitokens_per_s);
    let load_ms = |generation: &Generation| protocol::Known::Is(generation.load_ns / 1_000_000);
    protocol::Measured {
        model,
        slower: is_slower(&speed_before, &speed_after),
        before_millitokens_per_s: shown(speed_before),
        after_millitokens_per_s: shown(speed_after),
        before_load_ms: load_ms(&before),
        after_load_ms: after.as_ref().map_or_else(|| protocol::Known::unknown(without), load_ms),
    }
}

fn shown(speed: Known<u64>) -> protocol::Known<u64> {
    match speed {
        Known::Is(speed) => protocol::Known::Is(speed),
        Known::Unknown(reason) => protocol::Known::unknown(reason),
    }
}

pub(super) fn speed_in_words(measured: &protocol::Measured) -> String {
    let (protocol::Known::Is(before), protocol::Known::Is(after)) =
        (&measured.before_millitokens_per_s, &measured.after_millitokens_per_s)
    else {
        return format!("the speed of {} could not be compared", measured.model);
    };
    let whole = |milli: u64| format!("{}.{}", milli / 1000, milli % 1000 / 100);
    let compared = format!("{}: {} tokens/s before, {} now", measured.model, whole(*before), whole(*after));
    if measured.slower { format!("{compared}: slower; `stablehand rollback` goes back") } else { compared }
}
