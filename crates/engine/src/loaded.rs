//! What may be loaded: the models that are allowed, and no more of them than fit into memory together.

use crate::alert::{Alert, AlertKind};
use crate::known::Known;
use crate::memory_bound::{BudgetSource, budget_bytes};
use crate::recovery::shell_word;
use crate::time::{Awake, Wall};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// A model in memory, as `/api/ps` lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loaded {
    /// What it takes in all: weights, cache and scratch memory.
    pub bytes: Known<u64>,
    /// What of that the GPU holds.
    pub gpu_bytes: u64,
    /// When the server will unload it.
    pub until: Wall,
}

/// Models that are loaded, by name.
pub type LoadedModels = BTreeMap<String, Loaded>;

/// Where the GPU's memory is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GpuMemory {
    /// Part of main memory, of which it may use so much.
    Shared(Known<u64>),
    /// On a card of its own. What lies there fits there, or the server would not have put it there; the rest of a model
    /// lies in main memory.
    OwnCard,
}

impl GpuMemory {
    fn counted_bytes(&self, model: &Loaded) -> Option<u64> {
        let bytes = *model.bytes.known()?;
        match self {
            Self::Shared(_) => Some(bytes),
            Self::OwnCard => Some(bytes.saturating_sub(model.gpu_bytes)),
        }
    }

    fn budget(&self, memory_bytes: &Known<u64>) -> Option<(u64, BudgetSource)> {
        match self {
            Self::Shared(limit_bytes) => budget_bytes(limit_bytes, memory_bytes).ok(),
            Self::OwnCard => budget_bytes(&Known::unknown("it has a card of its own"), memory_bytes).ok(),
        }
    }
}

/// A name without a tag means `latest`.
pub fn same_model(one: &str, other: &str) -> bool {
    one == other || one == format!("{other}:latest") || format!("{one}:latest") == other
}

/// The alert of models that are loaded and not among the allowed ones. No list allows all.
pub fn unexpected(loaded: &LoadedModels, allowed: &[String]) -> Option<Alert> {
    if allowed.is_empty() {
        return None;
    }
    let unexpected: Vec<&str> =
        loaded.keys().map(String::as_str).filter(|model| !allowed.iter().any(|one| same_model(one, model))).collect();
    let first = unexpected.first()?;
    let (are, were) = if unexpected.len() == 1 { ("is", "was") } else { ("are", "were") };
    Some(Alert::new(
        AlertKind::UnexpectedModel,
        format!("{} {were} loaded, and {are} not among the allowed models", unexpected.join(", ")),
        format!("stablehand unload {}", shell_word(first)),
    ))
}

/// A model that stays longer than this is pinned: `keep_alive` -1 is a time about 292 years ahead in `/api/ps`.
pub const PINNED: Duration = Duration::from_secs(10 * 365 * 86_400);

/// Remembers which models were pinned when they were last listed: one that is being loaded is not listed.
#[derive(Debug, Default)]
pub struct Pins {
    pinned: BTreeSet<String>,
}

impl Pins {
    /// Takes in what is listed at `now`; the pinned models when they are others than before. A model without a time
    /// ([`Loaded::until`] at the end of all times) tells nothing.
    pub fn observe(&mut self, loaded: &Known<LoadedModels>, now: Wall) -> Option<&BTreeSet<String>> {
        let mut changed = false;
        for (name, model) in loaded.known().into_iter().flatten().filter(|(_, model)| model.until.unix_ms < i64::MAX) {
            changed |=
                if model.until - now >= PINNED { self.pinned.insert(name.clone()) } else { self.pinned.remove(name) };
        }
        changed.then_some(&self.pinned)
    }
}

/// While one model makes room for another, both are listed for a moment.
pub const OVER_SPAN: Duration = Duration::from_secs(10);
/// Percent of the budget that must not be passed any more for the alert to end.
const ENDS_AT_PERCENT: u64 = 95;

/// Watches whether what is loaded fits into the memory that models may take together.
#[derive(Debug, Default)]
pub struct BudgetWatch {
    over_since: Option<Awake>,
    alert: Option<Alert>,
}

impl BudgetWatch {
    /// Takes in what is loaded, and returns the alert that holds. It begins when the sum has passed the budget for
    /// [`OVER_SPAN`] and ends at 95 % of it; what is not known changes nothing. `is_idle` tells of a model that no
    /// request is in.
    pub fn observe(
        &mut self,
        now: Awake,
        loaded: &Known<LoadedModels>,
        gpu: &GpuMemory,
        memory_bytes: &Known<u64>,
        is_idle: impl Fn(&str) -> bool,
    ) -> Option<Alert> {
        let sum = loaded.known().and_then(|loaded| {
            // The size of each has to be known.
            loaded.values().try_fold(0_u64, |sum, model| Some(sum.saturating_add(gpu.counted_bytes(model)?)))
        });
        let (Known::Is(loaded), Some(sum_bytes), Some((budget_bytes, source))) =
            (loaded, sum, gpu.budget(memory_bytes))
        else {
            return self.alert.clone();
        };
        if sum_bytes > budget_bytes {
            let since = *self.over_since.get_or_insert(now);
            if self.alert.is_some() || now.since(since) >= OVER_SPAN {
                self.alert = alert(loaded, sum_bytes, budget_bytes, source, is_idle);
            }
        } else {
            self.over_since = None;
            if sum_bytes <= budget_bytes / 100 * ENDS_AT_PERCENT {
                self.alert = None;
            }
        }
        self.alert.clone()
    }
}

/// The model to unload is the one that the server would put out first: one that nobody uses, and of those the one
/// that has the least time left.
fn alert(
    loaded: &LoadedModels,
    sum_bytes: u64,
    budget_bytes: u64,
    source: BudgetSource,
    is_idle: impl Fn(&str) -> bool,
) -> Option<Alert> {
    let (first, _) = loaded.iter().min_by_key(|(name, model)| (!is_idle(name), model.until))?;
    let names: Vec<_> = loaded.keys().map(String::as_str).collect();
    let (take, together) = if names.len() == 1 { ("takes", "") } else { ("take", " together") };
    Some(Alert::new(
        AlertKind::MemoryBudget,
        format!(
            "{} {take} {}{together}, more than the {} that models may take ({})",
            names.join(", "),
            gibibytes(sum_bytes),
            gibibytes(budget_bytes),
            source.words()
        ),
        format!("stablehand unload {}", shell_word(first)),
    ))
}

fn gibibytes(bytes: u64) -> String {
    #[expect(clippy::cast_precision_loss, reason = "one decimal is shown")]
    let gibibytes = bytes as f64 / f64::from(1_u32 << 30);
    format!("{gibibytes:.1} GiB")
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    #[test]
    fn a_list_of_allowed_models_names_all_others_at_once() {
        let loaded = models(&[("b:latest", 1, 9), ("it's:1", 1, 9), ("smollm:135m", 1, 9)]);
        assert_eq!(unexpected(&loaded, &[]), None, "no list allows all");
        let allowed = ["b".to_owned(), "it's:1".to_owned(), "smollm:135m".to_owned()];
        assert_eq!(unexpected(&loaded, &allowed), None);
        let alert = unexpected(&loaded, &allowed[..1]).unwrap();
        assert!(alert.message.starts_with("it's:1, smollm:135m were loaded"), "{}", alert.message);
        assert_eq!(alert.action, "stablehand unload 'it'\\''s:1'");
    }

    #[test]
    fn a_pin_is_remembered_while_its_model_is_not_listed() {
        let one = |until: i64| Loaded { bytes: Known::Is(1), gpu_bytes: 0, until: Wall::from_unix_ms(until) };
        let now = Wall::from_unix_ms(1_796_000_000_000);
        let listed = |until| Known::Is(LoadedModels::from([("a:1".to_owned(), one(until))]));
        let mut pins = Pins::default();
        let (never, soon) = (11_000_000_000_000, 1_796_000_300_000);
        assert_eq!(pins.observe(&listed(never), now), Some(&BTreeSet::from(["a:1".to_owned()])));
        assert_eq!(pins.observe(&listed(never), now), None, "no news");
        assert_eq!(pins.observe(&Known::Is(LoadedModels::new()), now), None, "it is being loaded");
        assert_eq!(pins.observe(&Known::unknown("silent"), now), None);
        assert_eq!(pins.observe(&listed(i64::MAX), now), None, "no time was told");
        assert_eq!(pins.observe(&listed(soon), now), Some(&BTreeSet::new()));
        assert_eq!(Pins::default().observe(&listed(i64::MAX), now), None);
    }

    #[test]
    fn a_sum_over_the_budget_is_alerted_after_a_while_and_names_an_idle_model() {
        let mut watch = BudgetWatch::default();
        let two = models(&[("a:1", 30, 5), ("b:1", 20, 9)]);
        assert_eq!(watch.look(0, &two, &["b:1"]), None, "one may be making room for the other");
        assert_eq!(watch.look(9, &two, &["b:1"]), None);
        let alert = watch.look(10, &two, &["b:1"]).unwrap();
        assert_eq!(
            alert.message,
            "a:1, b:1 take 50.0 GiB together, more than the 48.0 GiB that models may take (GPU working set)"
        );
        assert_eq!(alert.action, "stablehand unload b:1", "a request is in the other");
        assert_eq!(watch.look(12, &two, &["a:1", "b:1"]).unwrap().action, "stablehand unload a:1", "it goes first");
        assert_eq!(watch.look(14, &two, &[]).unwrap().action, "stablehand unload a:1", "both are at work");
    }

    #[test]
    fn an_eviction_that_takes_a_moment_is_no_alert() {
        let mut watch = BudgetWatch::default();
        assert_eq!(watch.look(0, &models(&[("a:1", 30, 5), ("b:1", 20, 9)]), &[]), None);
        assert_eq!(watch.look(5, &models(&[("b:1", 20, 9)]), &[]), None);
        assert_eq!(watch.look(11, &models(&[("a:1", 30, 5), ("b:1", 20, 9)]), &[]), None, "it is counted anew");
    }

    #[test]
    fn it_ends_clearly_below_the_budget_and_not_at_its_edge() {
        let mut watch = BudgetWatch::default();
        watch.look(0, &models(&[("a:1", 49, 5)]), &[]);
        assert!(watch.look(10, &models(&[("a:1", 49, 5)]), &[]).is_some());
        assert!(watch.look(20, &models(&[("a:1", 47, 5)]), &[]).is_some());
        assert_eq!(watch.look(30, &models(&[("a:1", 45, 5)]), &[]), None);
        assert_eq!(watch.look(40, &models(&[("a:1", 47, 5)]), &[]), None);
    }

    #[test]
    fn what_is_not_known_neither_begins_nor_ends_it() {
        let mut watch = BudgetWatch::default();
        let over = models(&[("a:1", 49, 5)]);
        let mut no_size = over.clone();
        no_size.values_mut().for_each(|model| model.bytes = Known::unknown("no size"));
        assert_eq!(watch.look(0, &no_size, &[]), None);
        watch.look(10, &over, &[]);
        assert!(watch.look(20, &over, &[]).is_some());
        assert!(watch.look(30, &no_size, &[]).is_some());
        let unlisted = Known::unknown("the server does not answer");
        let memory = Known::Is(64 * GIB);
        assert!(watch.observe(awake(40), &unlisted, &shared(), &memory, |_| true).is_some());
        let (no_limit, none) = (GpuMemory::Shared(Known::unknown("no GPU")), Known::unknown("unreadable"));
        assert!(watch.observe(awake(50), &Known::Is(models(&[])), &no_limit, &none, |_| true).is_some());
    }

    #[test]
    fn on_a_card_of_its_own_only_the_rest_of_a_model_counts_against_main_memory() {
        let mut loaded = models(&[("a:1", 70, 5)]);
        let mut look = |second, gpu_gibibytes: u64| {
            loaded.values_mut().for_each(|model| model.gpu_bytes = gpu_gibibytes * GIB);
            let mut watch = BudgetWatch { over_since: Some(awake(0)), alert: None };
            watch
                .observe(awake(second), &Known::Is(loaded.clone()), &GpuMemory::OwnCard, &Known::Is(64 * GIB), |_| true)
        };
        assert_eq!(look(10, 24), None, "46 of 48 GiB");
        let alert = look(10, 20).unwrap();
        assert_eq!(alert.message, "a:1 takes 50.0 GiB, more than the 48.0 GiB that models may take (75 % of memory)");
    }

    impl BudgetWatch {
        fn look(&mut self, second: u64, loaded: &LoadedModels, idle: &[&str]) -> Option<Alert> {
            let (loaded, memory) = (Known::Is(loaded.clone()), Known::Is(64 * GIB));
            self.observe(awake(second), &loaded, &shared(), &memory, |model| idle.contains(&model))
        }
    }

    fn models(models: &[(&str, u64, i64)]) -> LoadedModels {
        let loaded = |gibibytes: u64, second: i64| Loaded {
            bytes: Known::Is(gibibytes * GIB),
            gpu_bytes: gibibytes * GIB,
            until: at(second),
        };
        models.iter().map(|(name, size, second)| ((*name).to_owned(), loaded(*size, *second))).collect()
    }

    fn shared() -> GpuMemory {
        GpuMemory::Shared(Known::Is(48 * GIB))
    }

    fn at(second: i64) -> Wall {
        Wall::from_unix_ms(second * 1000)
    }

    fn awake(second: u64) -> Awake {
        Awake::from_start(Duration::from_secs(second))
    }
}
