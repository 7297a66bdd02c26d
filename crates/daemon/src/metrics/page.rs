//! Samples of facts: what is not known is named, and has no sample.

use stablehand_engine::Known;
use stablehand_protocol::exposition::Family;
pub(super) use stablehand_protocol::exposition::{Page, Type, as_float, number};

/// Adds facts to a family.
pub(super) trait Facts {
    /// A sample, unless the value is not known.
    fn known(&mut self, labels: &[(&str, &str)], value: &Known<f64>);

    /// A sample of bytes without labels.
    fn bytes(&mut self, bytes: &Known<u64>) {
        self.known(&[], &bytes.clone().map(as_float));
    }

    /// A small number.
    fn count(&mut self, labels: &[(&str, &str)], count: &Known<u32>) {
        self.known(labels, &count.clone().map(f64::from));
    }

    /// 1 or 0.
    fn flag(&mut self, flag: &Known<bool>) {
        self.known(&[], &flag.clone().map(|set| if set { 1.0 } else { 0.0 }));
    }
}

impl Facts for Family<'_> {
    fn known(&mut self, labels: &[(&str, &str)], value: &Known<f64>) {
        match value {
            Known::Is(value) if value.is_finite() => self.sample(labels, *value),
            Known::Is(_) | Known::Unknown(_) => self.unknown(labels),
        }
    }
}
