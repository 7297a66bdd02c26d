//! Tokens of each model, as counters that only grow: those of a model's runners, one after the other, put together.

use stablehand_engine::Known;
use stablehand_engine::process::Identity;
use stablehand_ollama::runner::Look;
use std::collections::BTreeMap;

/// How many models are kept; the least of names goes first.
const MODELS: usize = 200;

/// Prompt tokens processed and tokens generated, of a runner or a model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tokens {
    /// Of prompts, without what came from the cache.
    pub prompt: u64,
    /// Generated, counted when their request ends.
    pub generated: u64,
}

/// Counts since the daemon began to watch.
#[derive(Debug, Default)]
pub struct TokenCounters {
    runners: BTreeMap<Identity, Tokens>,
    models: BTreeMap<String, Tokens>,
}

impl TokenCounters {
    /// Takes in what each living runner says of itself, with its model, and returns the counts of those models. A runner that
    /// was there before begins with what it says first. Unknown, with the reason, where one of a model's runners tells
    /// nothing.
    pub fn observe(&mut self, said: &[(Identity, String, Result<Tokens, String>)]) -> BTreeMap<String, Known<Tokens>> {
        self.runners.retain(|known, _| said.iter().any(|(id, ..)| id == known));
        let mut shown: BTreeMap<String, Known<Tokens>> = BTreeMap::new();
        for (id, model, tokens) in said {
            match tokens {
                Ok(now) => {
                    let last = self.runners.insert(*id, *now).unwrap_or_default();
                    let sum = self.models.entry(model.clone()).or_default();
                    sum.prompt += now.prompt.saturating_sub(last.prompt);
                    sum.generated += now.generated.saturating_sub(last.generated);
                    let sum = *sum;
                    shown
                        .entry(model.clone())
                        .and_modify(|known| {
                            if let Known::Is(tokens) = known {
                                *tokens = sum;
                            }
                        })
                        .or_insert(Known::Is(sum));
                }
                Err(reason) => {
                    shown.insert(model.clone(), Known::Unknown(reason.clone()));
                }
            }
        }
        while self.models.len() > MODELS {
            self.models.pop_first();
        }
        shown
    }
}

/// What the runner's own counters say.
///
/// # Errors
/// The reason, where it tells none.
pub fn of(look: Option<&Look>) -> Result<Tokens, String> {
    let metrics = match look.map(|look| &look.metrics) {
        Some(Ok(metrics)) => metrics,
        Some(Err(reason)) => return Err(reason.to_string()),
        None => return Err("its port is not known".to_owned()),
    };
    match (&metrics.prompt_tokens_total, &metrics.tokens_generated_total) {
        (Known::Is(prompt), Known::Is(generated)) => Ok(Tokens { prompt: prompt.value, generated: generated.value }),
        (Known::Unknown(reason), _) | (_, Known::Unknown(reason)) => Err(reason.clone()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_goes_on_counting_when_its_runner_is_another() {
        let mut counters = TokenCounters::default();
        assert_eq!(counters.look(&[(1, "a", Some((100, 10)))]), [("a", Some((100, 10)))]);
        assert_eq!(counters.look(&[(1, "a", Some((150, 30)))]), [("a", Some((150, 30)))]);
        assert_eq!(counters.look(&[]), []);
        assert_eq!(counters.look(&[(2, "a", Some((5, 1)))]), [("a", Some((155, 31)))]);
        assert_eq!(
            counters.look(&[(2, "a", Some((6, 1))), (3, "a", Some((4, 2))), (4, "b", Some((1, 1)))]),
            [("a", Some((160, 33))), ("b", Some((1, 1)))]
        );
    }

    #[test]
    fn what_one_runner_does_not_tell_is_unknown_and_never_falls() {
        let mut counters = TokenCounters::default();
        counters.look(&[(1, "a", Some((100, 10)))]);
        assert_eq!(counters.look(&[(1, "a", None), (2, "a", Some((5, 5)))]), [("a", None)]);
        assert_eq!(counters.look(&[(1, "a", Some((100, 10))), (2, "a", Some((5, 5)))]), [("a", Some((105, 15)))]);
        assert_eq!(
            counters.look(&[(1, "a", Some((1, 1)))]),
            [("a", Some((105, 15)))],
            "a counter that fell adds nothing"
        );
    }

    type Said = Option<(u64, u64)>;

    impl TokenCounters {
        fn look(&mut self, said: &[(u32, &'static str, Said)]) -> Vec<(&'static str, Said)> {
            let one = |(pid, model, tokens): &(u32, &'static str, Said)| {
                let tokens = tokens.map(|(prompt, generated)| Tokens { prompt, generated });
                (Identity { pid: *pid, birth: 1 }, (*model).to_owned(), tokens.ok_or_else(|| "no".to_owned()))
            };
            let shown = self.observe(&said.iter().map(one).collect::<Vec<_>>());
            let name = |model: &str| if model == "a" { "a" } else { "b" };
            shown
                .iter()
                .map(|(model, tokens)| (name(model), tokens.known().map(|tokens| (tokens.prompt, tokens.generated))))
                .collect()
        }
    }
}
