//! What the rules found, as clients get it: a code with its values, which a face can say in its person's language, and
//! the same in English words.
//!
//! Names of values end with their unit: `_s` seconds, `_bytes_per_s`, `_percent`; what has none counts things, or is a
//! word.

use stablehand_engine::stall::{Counter, Fact, How, Pattern, Step, Verdict, Why};
use stablehand_protocol::{Phrase, PhraseValue};
use std::collections::BTreeMap;
use std::fmt::Display;
use std::time::Duration;

type Values = Vec<(&'static str, PhraseValue)>;

/// A verdict.
pub(crate) fn verdict(verdict: &Verdict) -> Phrase {
    let (code, values): (&str, Values) = match verdict {
        Verdict::Idle => ("idle", vec![]),
        Verdict::Loading { span } => ("loading", vec![seconds("span_s", *span)]),
        Verdict::Prefill { tokens_done, of, eta } => {
            let mut values = vec![whole("done", *tokens_done)];
            values.extend(of.map(|total| whole("total", total)));
            values.extend(eta.map(|left| seconds("left_s", left)));
            (if of.is_some() { "prefill.of" } else { "prefill" }, values)
        }
        Verdict::Generating { tokens_per_s: Some(rate) } => ("generating.rate", vec![number("rate", *rate)]),
        Verdict::Generating { tokens_per_s: None } => ("generating", vec![]),
        Verdict::Serving => ("serving", vec![]),
        Verdict::Queued => ("queued", vec![]),
        Verdict::Slow { why } => (
            match why {
                Why::Paging => "slow.paging",
                Why::Throttled => "slow.heat",
                Why::LongContext => "slow.long-context",
                Why::Shared => "slow.shared",
                Why::Unexplained => "slow",
            },
            vec![],
        ),
        Verdict::Suspect { silence, allowed } => {
            ("suspect", vec![seconds("silence_s", *silence), seconds("allowed_s", *allowed)])
        }
        Verdict::Hung { how } => (
            match how {
                How::ProcessStopped => "hung.stopped",
                How::DecodeLoop => "hung.decode-loop",
                How::BusyLoop => "hung.busy-loop",
                How::HttpDead => "hung.http-dead",
                How::Load => "hung.load",
            },
            vec![],
        ),
        Verdict::EmptyReplies => ("empty-replies", vec![]),
        Verdict::StuckUnloading => ("stuck-unloading", vec![]),
        Verdict::Orphan => ("orphan", vec![]),
        Verdict::DeadButListed => ("dead-but-listed", vec![]),
        Verdict::ServerSilent => ("server-silent", vec![]),
        Verdict::SchedulerBlocked => ("scheduler-blocked", vec![]),
        Verdict::ServerCorrupt => ("server-corrupt", vec![]),
        Verdict::JustWoke => ("just-woke", vec![]),
        Verdict::Unknown { why } => ("unknown", vec![text("why", why)]),
    };
    phrase(code, values, verdict)
}

/// A fact.
pub(crate) fn fact(fact: &Fact) -> Phrase {
    let (code, values): (&str, Values) = match fact {
        Fact::Still { counter, from, to, silence, step, honest } => (
            match step {
                Step::Batch { position: _ } => "still.batch",
                Step::BatchSomewhere => "still.batch-somewhere",
                Step::WholePrompt => "still.whole-prompt",
                Step::Token => "still.token",
                Step::Load => "still.load",
                Step::Answer => "still.answer",
            },
            vec![
                text("counter", of_counter(*counter)),
                whole("from", *from),
                whole("to", *to),
                seconds("silence_s", *silence),
                seconds("honest_s", *honest),
            ],
        ),
        Fact::DecodeCounterStill { value } => ("decode-counter-still", vec![whole("value", *value)]),
        Fact::GpuIdle { percent } => ("gpu-idle", vec![whole("use_percent", u64::from(*percent))]),
        Fact::Cpu { percent, unlike } => (
            match unlike {
                Some(Pattern::Prefill) => "cpu.unlike-prefill",
                Some(Pattern::Decode) => "cpu.unlike-decode",
                None => "cpu",
            },
            vec![whole("use_percent", u64::from(*percent))],
        ),
        Fact::ProcessStopped { span } => ("process-stopped", vec![seconds("span_s", *span)]),
        Fact::HealthSilent { span } => ("health-silent", vec![seconds("span_s", *span)]),
        Fact::InFlight { busy_slots: Some(slots), .. } => ("in-flight.slots", vec![whole("count", u64::from(*slots))]),
        Fact::InFlight { busy_slots: None, tickets: Some(tickets), .. } => {
            ("in-flight", vec![whole("count", u64::from(*tickets))])
        }
        Fact::InFlight { busy_slots: None, tickets: None, logged: true } => ("in-flight.logged", vec![]),
        Fact::InFlight { busy_slots: None, tickets: None, logged: false } => ("in-flight", vec![whole("count", 1)]),
        Fact::NoRequestKnown => ("no-request-known", vec![]),
        Fact::SlotsFreeWhileTicketsHeld { tickets } => {
            ("slots-free-while-held", vec![whole("count", u64::from(*tickets))])
        }
        Fact::Waiting { at_least, at_most, oldest } => {
            let code = match (at_least == at_most, oldest.is_some()) {
                (true, true) => "waiting.oldest",
                (true, false) => "waiting",
                (false, true) => "waiting.between.oldest",
                (false, false) => "waiting.between",
            };
            let mut values = vec![whole("least", u64::from(*at_least)), whole("count", u64::from(*at_most))];
            values.extend(oldest.map(|oldest| seconds("oldest_s", oldest)));
            (code, values)
        }
        Fact::Paging { in_bytes_per_s, out_bytes_per_s } => {
            ("paging", vec![number("in_bytes_per_s", *in_bytes_per_s), number("out_bytes_per_s", *out_bytes_per_s)])
        }
        Fact::PagingPossible { why } => ("paging-possible", vec![text("why", why)]),
        Fact::Throttled => ("throttled", vec![]),
        Fact::Shared { busy_runners } => ("shared", vec![whole("count", u64::from(*busy_runners))]),
        Fact::Unfamiliar { gaps } => ("unfamiliar", vec![whole("count", u64::from(*gaps))]),
        Fact::ImagePossible => ("image-possible", vec![]),
        Fact::NoIndependentSign => ("no-independent-sign", vec![]),
        Fact::FarBeyond { times } => ("far-beyond", vec![number("times", *times)]),
        Fact::Quiet { silence, allowed } => {
            ("quiet", vec![seconds("silence_s", *silence), seconds("allowed_s", *allowed)])
        }
        Fact::FootprintStill { span } => ("footprint-still", vec![seconds("span_s", *span)]),
        Fact::Woke { ago } => ("woke", vec![seconds("ago_s", *ago)]),
        Fact::Loading { span, honest } => {
            ("loading.honest", vec![seconds("span_s", *span), seconds("honest_s", *honest)])
        }
        Fact::NotRead { what, why } => ("not-read", vec![text("what", what), text("why", why)]),
        Fact::NoProgressTold => ("no-progress-told", vec![]),
        Fact::EmptyReplies { count } => {
            ("empty-replies.count", vec![whole("count", u64::try_from(*count).unwrap_or(u64::MAX))])
        }
        Fact::NeverGenerated => ("never-generated", vec![]),
        Fact::StayOver { span } => ("stay-over", vec![seconds("span_s", *span)]),
        Fact::UnloadAsked => ("unload-asked", vec![]),
        Fact::NotListed { span } => ("not-listed", vec![seconds("span_s", *span)]),
        Fact::ListedThoughGone => ("listed-though-gone", vec![]),
        Fact::ServerGone { span } => ("server-gone", vec![seconds("span_s", *span)]),
        Fact::VersionSilent { span } => ("version-silent", vec![seconds("span_s", *span)]),
        Fact::PsSilent { span } => ("ps-silent", vec![seconds("span_s", *span)]),
        Fact::Failures { count, succeeded, span } => (
            "failures",
            vec![
                whole("count", u64::from(*count)),
                whole("succeeded", u64::from(*succeeded)),
                seconds("span_s", *span),
            ],
        ),
        Fact::Rate { tokens_per_s, usual_tokens_per_s } => {
            let mut values = vec![number("rate", *tokens_per_s)];
            values.extend(usual_tokens_per_s.map(|usual| number("usual", usual)));
            (if usual_tokens_per_s.is_some() { "rate.usual" } else { "rate" }, values)
        }
        Fact::Prompt { done, total } => {
            let mut values = vec![whole("done", *done)];
            values.extend(total.map(|total| whole("total", total)));
            (if total.is_some() { "prompt.of" } else { "prompt" }, values)
        }
        Fact::RunnersFirst { count } => ("runners-first", vec![whole("count", u64::from(*count))]),
        Fact::EveryRunnerSlow { lives } => ("every-runner-slow", vec![whole("count", u64::from(*lives))]),
    };
    phrase(code, values, fact)
}

/// A word of the sources' own where they have one; the others are said by the face.
fn of_counter(counter: Counter) -> &'static str {
    match counter {
        Counter::PromptTokens | Counter::TokensGenerated => counter.name(),
        Counter::LoggedPromptTokens => "logged-prompt-tokens",
        Counter::GatewayBytes => "gateway-bytes",
    }
}

fn phrase(code: &str, values: Values, words: &impl Display) -> Phrase {
    let values: BTreeMap<_, _> = values.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
    Phrase { code: code.to_owned(), values, words: words.to_string() }
}

fn number(name: &'static str, value: f64) -> (&'static str, PhraseValue) {
    (name, PhraseValue::Number(value))
}

#[expect(clippy::cast_precision_loss, reason = "counts of tokens and things lie far below 2^52")]
fn whole(name: &'static str, value: u64) -> (&'static str, PhraseValue) {
    number(name, value as f64)
}

fn seconds(name: &'static str, span: Duration) -> (&'static str, PhraseValue) {
    whole(name, span.as_secs())
}

fn text(name: &'static str, words: &str) -> (&'static str, PhraseValue) {
    (name, PhraseValue::Text(words.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fact_is_told_in_words_and_as_data() {
        let still = Fact::Still {
            counter: Counter::TokensGenerated,
            from: 812,
            to: 812,
            silence: Duration::from_millis(141_900),
            step: Step::Token,
            honest: Duration::from_secs(2),
        };
        let told = fact(&still);
        assert_eq!(told.code, "still.token");
        assert_eq!(told.values["silence_s"], PhraseValue::Number(141.0));
        assert_eq!(told.values["counter"], PhraseValue::Text("n_decoded".to_owned()));
        assert_eq!(told.words, still.to_string());
    }

    const MESSAGES: [&str; 2] =
        [include_str!("../../../ui/src/messages/en.json"), include_str!("../../../ui/src/messages/ko.json")];

    fn facts() -> Vec<Fact> {
        let span = Duration::from_secs(141);
        let still = |counter, step| Fact::Still { counter, from: 1, to: 1, silence: span, step, honest: span };
        let in_flight = |busy_slots, tickets, logged| Fact::InFlight { busy_slots, tickets, logged };
        let waiting = |at_least, oldest| Fact::Waiting { at_least, at_most: 3, oldest };
        vec![
            still(Counter::TokensGenerated, Step::Token),
            still(Counter::PromptTokens, Step::Batch { position: 7 }),
            still(Counter::LoggedPromptTokens, Step::BatchSomewhere),
            still(Counter::GatewayBytes, Step::WholePrompt),
            still(Counter::GatewayBytes, Step::Load),
            still(Counter::GatewayBytes, Step::Answer),
            Fact::DecodeCounterStill { value: 7 },
            Fact::GpuIdle { percent: 5 },
            Fact::Cpu { percent: 23, unlike: Some(Pattern::Prefill) },
            Fact::Cpu { percent: 23, unlike: Some(Pattern::Decode) },
            Fact::Cpu { percent: 23, unlike: None },
            Fact::ProcessStopped { span },
            Fact::HealthSilent { span },
            in_flight(Some(1), None, false),
            in_flight(None, Some(2), false),
            in_flight(None, None, true),
            in_flight(None, None, false),
            Fact::NoRequestKnown,
            Fact::SlotsFreeWhileTicketsHeld { tickets: 2 },
            waiting(3, Some(span)),
            waiting(3, None),
            waiting(0, Some(span)),
            waiting(0, None),
            Fact::Paging { in_bytes_per_s: 1e6, out_bytes_per_s: 2e6 },
            Fact::PagingPossible { why: "pressure" },
            Fact::Throttled,
            Fact::Shared { busy_runners: 2 },
            Fact::Unfamiliar { gaps: 4 },
            Fact::ImagePossible,
            Fact::NoIndependentSign,
            Fact::FarBeyond { times: 3.0 },
            Fact::Quiet { silence: span, allowed: span },
            Fact::FootprintStill { span },
            Fact::Woke { ago: span },
            Fact::Loading { span, honest: span },
            Fact::NotRead { what: "slots", why: "no answer".to_owned() },
            Fact::NoProgressTold,
            Fact::EmptyReplies { count: 3 },
            Fact::NeverGenerated,
            Fact::StayOver { span },
            Fact::UnloadAsked,
            Fact::NotListed { span },
            Fact::ListedThoughGone,
            Fact::ServerGone { span },
            Fact::VersionSilent { span },
            Fact::PsSilent { span },
            Fact::Failures { count: 5, succeeded: 0, span },
            Fact::Rate { tokens_per_s: 3.5, usual_tokens_per_s: Some(20.0) },
            Fact::Rate { tokens_per_s: 3.5, usual_tokens_per_s: None },
            Fact::Prompt { done: 1, total: Some(2) },
            Fact::Prompt { done: 1, total: None },
            Fact::RunnersFirst { count: 2 },
            Fact::EveryRunnerSlow { lives: 2 },
        ]
    }

    fn verdicts() -> Vec<Verdict> {
        let span = Duration::from_secs(141);
        let slow = [Why::Paging, Why::Throttled, Why::LongContext, Why::Shared, Why::Unexplained];
        let hung = [How::ProcessStopped, How::DecodeLoop, How::BusyLoop, How::HttpDead, How::Load];
        let mut verdicts = vec![
            Verdict::Idle,
            Verdict::Loading { span },
            Verdict::Prefill { tokens_done: 1, of: Some(2), eta: Some(span) },
            Verdict::Prefill { tokens_done: 1, of: None, eta: None },
            Verdict::Generating { tokens_per_s: Some(3.5) },
            Verdict::Generating { tokens_per_s: None },
            Verdict::Serving,
            Verdict::Queued,
            Verdict::Suspect { silence: span, allowed: span },
            Verdict::EmptyReplies,
            Verdict::StuckUnloading,
            Verdict::Orphan,
            Verdict::DeadButListed,
            Verdict::ServerSilent,
            Verdict::SchedulerBlocked,
            Verdict::ServerCorrupt,
            Verdict::JustWoke,
            Verdict::Unknown { why: "not asked".to_owned() },
        ];
        verdicts.extend(slow.map(|why| Verdict::Slow { why }));
        verdicts.extend(hung.map(|how| Verdict::Hung { how }));
        verdicts
    }

    #[test]
    fn every_phrase_has_its_words_in_both_languages_and_no_blank_stays_open() {
        let phrases = facts().iter().map(fact).chain(verdicts().iter().map(verdict)).collect::<Vec<_>>();
        for messages in MESSAGES {
            let messages: BTreeMap<String, String> = serde_json::from_str(messages).unwrap();
            for phrase in &phrases {
                let text = messages.get(&format!("phrase.{}", phrase.code));
                let text = text.unwrap_or_else(|| panic!("no words for {}: {}", phrase.code, phrase.words));
                for blank in text.split('{').skip(1).filter_map(|part| part.split_once('}')).map(|(name, _)| name) {
                    assert!(phrase.values.contains_key(blank), "{}: nothing fills {blank}", phrase.code);
                }
            }
        }
    }

    #[test]
    fn a_verdict_without_a_total_promises_none() {
        let told = verdict(&Verdict::Prefill { tokens_done: 512, of: None, eta: None });
        assert_eq!((told.code.as_str(), told.values.len()), ("prefill", 1));
    }
}
