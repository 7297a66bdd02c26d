//! Prometheus' text format: families with their help and type, samples with escaped labels.
//!
//! <https://prometheus.io/docs/instrumenting/exposition_formats/>, "Text format details".

use std::fmt::Write;

/// `Content-Type` of such a text.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Before every name.
const PREFIX: &str = "stablehand_";

/// What a family is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Type {
    /// Goes up and down.
    Gauge,
    /// Only grows, and begins again at zero.
    Counter,
}

impl Type {
    fn word(self) -> &'static str {
        match self {
            Self::Gauge => "gauge",
            Self::Counter => "counter",
        }
    }
}

/// The text as it grows.
#[derive(Debug, Default)]
pub struct Page {
    text: String,
    /// Labels of what is not known.
    unknown: Vec<Vec<(String, String)>>,
}

impl Page {
    /// Begins a family. One without samples leaves no trace.
    pub fn family(&mut self, name: &'static str, kind: Type, help: &'static str) -> Family<'_> {
        Family { page: self, name, kind, help, begun: false }
    }

    /// The text, with what is not known at its end.
    pub fn finish(mut self) -> String {
        let unknown = std::mem::take(&mut self.unknown);
        let mut family = self.family("unknown", Type::Gauge, "Always 1; names a value that could not be read.");
        for labels in &unknown {
            let labels: Vec<(&str, &str)> =
                labels.iter().map(|(label, value)| (label.as_str(), value.as_str())).collect();
            family.sample(&labels, 1.0);
        }
        self.text
    }
}

/// A family of samples under one name.
#[derive(Debug)]
pub struct Family<'a> {
    page: &'a mut Page,
    name: &'static str,
    kind: Type,
    help: &'static str,
    begun: bool,
}

impl Family<'_> {
    /// A sample.
    pub fn sample(&mut self, labels: &[(&str, &str)], value: f64) {
        let Self { page, name, kind, help, begun } = self;
        let text = &mut page.text;
        // Writing to a string cannot fail.
        if !*begun {
            *begun = true;
            let help = help.replace('\\', "\\\\").replace('\n', "\\n");
            let _ = write!(text, "# HELP {PREFIX}{name} {help}\n# TYPE {PREFIX}{name} {}\n", kind.word());
        }
        let _ = write!(text, "{PREFIX}{name}");
        let labels: Vec<String> =
            labels.iter().map(|(label, value)| format!("{label}=\"{}\"", escaped(value))).collect();
        if !labels.is_empty() {
            let _ = write!(text, "{{{}}}", labels.join(","));
        }
        let _ = writeln!(text, " {}", number(value));
    }

    /// Names this as not known.
    pub fn unknown(&mut self, labels: &[(&str, &str)]) {
        let what = [("what", self.name)];
        let labels = what.iter().chain(labels).map(|(label, value)| ((*label).to_owned(), (*value).to_owned()));
        self.page.unknown.push(labels.collect());
    }
}

/// Prometheus knows nothing but floats.
#[expect(clippy::cast_precision_loss, reason = "exact up to 2^53, which is 8 PiB")]
pub fn as_float(value: u64) -> f64 {
    value as f64
}

/// A number as Go's `strconv.ParseFloat` reads it.
pub fn number(value: f64) -> String {
    if value.is_nan() {
        "NaN".to_owned()
    } else if value.is_infinite() {
        if value > 0.0 { "+Inf" } else { "-Inf" }.to_owned()
    } else {
        value.to_string()
    }
}

fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}
