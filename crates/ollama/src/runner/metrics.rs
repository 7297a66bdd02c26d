//! `GET /metrics`, Prometheus' text format, the counters of `llama-server` among whatever else is in it.

use stablehand_engine::Known;
use std::collections::BTreeMap;

/// A counter as it was printed. The runner prints six significant digits: from a million on the last ones are lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counter {
    /// The value.
    pub value: u64,
    /// How far the next value that can be printed lies away: 1 while the counter is exact.
    pub step: u64,
}

/// What the counters say. One that the build does not have is unknown.
#[derive(Clone, Debug, PartialEq)]
pub struct Metrics {
    /// `n_decode_total`: batches decoded.
    pub decode_total: Known<Counter>,
    /// `prompt_tokens_total`: prompt tokens processed, without those from the cache.
    pub prompt_tokens_total: Known<Counter>,
    /// `prompt_tokens_cached_total`: prompt tokens that came from the cache.
    pub prompt_tokens_cached_total: Known<Counter>,
    /// `tokens_predicted_total`: tokens generated, counted when their request ends.
    pub tokens_generated_total: Known<Counter>,
    /// `prompt_seconds_total`: time spent on prompts, in seconds.
    pub prompt_seconds_total: Known<f64>,
    /// `tokens_predicted_seconds_total`: time spent on generating, in seconds.
    pub generation_seconds_total: Known<f64>,
    /// `requests_processing`: busy slots.
    pub requests_processing: Known<u64>,
    /// `requests_deferred`: requests that the runner itself lets wait; Ollama hardly ever lets it come to that.
    pub requests_deferred: Known<u64>,
    /// `n_tokens_max`: the longest context so far, in tokens.
    pub context_tokens_max: Known<Counter>,
}

impl Metrics {
    /// Batches decoded, when the counter is exact. A rounded one that stands still proves nothing.
    pub fn exact_decode_total(&self) -> Known<u64> {
        match &self.decode_total {
            Known::Is(Counter { value, step: 1 }) => Known::Is(*value),
            Known::Is(Counter { step, .. }) => {
                Known::unknown(format!("the runner prints its decode counter rounded, in steps of {step}"))
            }
            Known::Unknown(reason) => Known::Unknown(reason.clone()),
        }
    }
}

const PREFIX: &str = "llamacpp:";

/// Reads the answer. The error is a phrase for a person.
pub(super) fn parse(body: &[u8]) -> Result<Metrics, String> {
    let mut values = BTreeMap::new();
    for line in body.split(|byte| *byte == b'\n') {
        // Lines of other programs may hold anything.
        let Ok(line) = std::str::from_utf8(line) else { continue };
        if let Some((name, value)) = sample(line) {
            values.insert(name, value);
        }
    }
    if values.is_empty() {
        return Err(format!("/metrics holds no counter of llama-server: {}", crate::client::snippet(body)));
    }
    let text = |name: &str| values.get(name).ok_or_else(|| format!("the runner has no counter {name}"));
    let counter = |name: &str| text(name).and_then(|text| counter(text).ok_or_else(|| no_number(name, text))).into();
    let whole = |name: &str| match counter(name) {
        Known::Is(Counter { value, .. }) => Known::Is(value),
        Known::Unknown(reason) => Known::Unknown(reason),
    };
    let seconds = |name: &str| text(name).and_then(|text| seconds(text).ok_or_else(|| no_number(name, text))).into();
    Ok(Metrics {
        decode_total: counter("n_decode_total"),
        prompt_tokens_total: counter("prompt_tokens_total"),
        prompt_tokens_cached_total: counter("prompt_tokens_cached_total"),
        tokens_generated_total: counter("tokens_predicted_total"),
        prompt_seconds_total: seconds("prompt_seconds_total"),
        generation_seconds_total: seconds("tokens_predicted_seconds_total"),
        requests_processing: whole("requests_processing"),
        requests_deferred: whole("requests_deferred"),
        context_tokens_max: counter("n_tokens_max"),
    })
}

/// Name and value of a line `llamacpp:name value`, maybe with a stamp after it. Lines with labels are other things.
fn sample(line: &str) -> Option<(&str, &str)> {
    let mut words = line.trim().strip_prefix(PREFIX)?.split_ascii_whitespace();
    let name = words.next()?;
    let value = words.next()?;
    let plain = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    plain.then_some((name, value))
}

fn counter(text: &str) -> Option<Counter> {
    if let Ok(value) = text.parse() {
        return Some(Counter { value, step: 1 });
    }
    let number: f64 = text.parse().ok()?;
    if !(0.0..9.0e15).contains(&number) {
        return None;
    }
    let exponent = text.split_once(['e', 'E']).and_then(|(_, exponent)| exponent.parse::<i32>().ok()).unwrap_or(0);
    let step = u32::try_from(exponent - 5).ok().and_then(|zeros| 10_u64.checked_pow(zeros)).unwrap_or(1);
    Some(Counter { value: number.round() as u64, step })
}

fn seconds(text: &str) -> Option<f64> {
    text.parse().ok().filter(|number: &f64| number.is_finite() && *number >= 0.0)
}

fn no_number(name: &str, text: &str) -> String {
    let text: String = text.chars().take(40).collect();
    format!("the runner's counter {name} holds no number: {text}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_counters_are_read_among_foreign_lines() {
        let metrics = parse(include_bytes!("../../fixtures/runner/metrics.txt")).unwrap();
        assert_eq!(metrics.exact_decode_total(), Known::Is(1093));
        assert_eq!(metrics.prompt_tokens_total, Known::Is(Counter { value: 47_324, step: 1 }));
        assert_eq!(metrics.tokens_generated_total, Known::Is(Counter { value: 1_234_560, step: 10 }));
        assert_eq!(metrics.prompt_seconds_total, Known::Is(402.117));
        assert_eq!((metrics.requests_processing, metrics.requests_deferred), (Known::Is(2), Known::Is(0)));
        assert!(metrics.context_tokens_max.reason().is_some_and(|reason| reason.contains("NaN")));
        assert!(metrics.prompt_tokens_cached_total.reason().is_some_and(|reason| reason.contains("has no counter")));
    }

    #[test]
    fn a_rounded_counter_does_not_stand_for_a_still_one() {
        for (text, value, step) in [
            ("999999", 999_999, 1),
            ("1e+06", 1_000_000, 10),
            ("1.23457e+07", 12_345_700, 100),
            ("0", 0, 1),
            ("14.0", 14, 1),
        ] {
            assert_eq!(counter(text), Some(Counter { value, step }), "{text}");
        }
        for text in ["-1", "NaN", "+Inf", "x", "", "1e300"] {
            assert_eq!(counter(text), None, "{text}");
        }
        let rounded = parse(b"llamacpp:n_decode_total 1.23457e+07\n").unwrap();
        assert!(rounded.exact_decode_total().reason().is_some_and(|reason| reason.contains("steps of 100")));
    }

    #[test]
    fn something_else_is_told() {
        for body in
            [&b"<html>x</html>"[..], b"", b"# HELP go_goroutines x\ngo_goroutines 7\n", b"llamacpp:", b"\xff\xfe"]
        {
            assert!(parse(body).is_err_and(|reason| reason.starts_with("/metrics holds no counter")));
        }
    }
}
