//! The history as text for other programs: CSV (RFC 4180) and JSON, with times as RFC 3339.

use super::{Entry, Recorded, Row};
use crate::translation::rfc3339;
use serde::{Serialize, Serializer};
use serde_json::Value;
use std::borrow::Cow;
use std::fmt::Write;

/// Numbers as CSV with a header. `span_seconds` is 0 for a number as it came; then all three are that number.
pub fn rows_csv(rows: &[Row]) -> String {
    let mut text = String::from("at,span_seconds,series,min,avg,max\r\n");
    for Row { at, span, series, min, avg, max } in rows {
        // Writing to a string cannot fail.
        let _ = write!(text, "{},{},{},{min},{avg},{max}\r\n", rfc3339(*at), span.as_secs_f64(), quoted(series));
    }
    text
}

/// Events as CSV with a header.
pub fn entries_csv(entries: &[Entry]) -> String {
    let mut text = String::from("at,kind,subject,words,detail\r\n");
    for Entry { at, kind, subject, words, detail_json } in entries {
        let fields = [kind.word(), subject, words, detail_json].map(|field| quoted(field).into_owned());
        let _ = write!(text, "{},{}\r\n", rfc3339(*at), fields.join(","));
    }
    text
}

/// Both as one JSON object: `{"points": […], "entries": […]}`.
pub fn json(recorded: &Recorded) -> String {
    let said = Said {
        points: recorded.rows.iter().map(SaidRow).collect(),
        entries: recorded.entries.iter().map(SaidEntry::from).collect(),
    };
    // Strings and finite numbers alone: there is nothing that JSON cannot hold.
    serde_json::to_string(&said).unwrap_or_default()
}

/// A field is quoted when a comma, a quote, a line's end, or a space at either end would change its meaning.
fn quoted(field: &str) -> Cow<'_, str> {
    let plain = !field.contains(['"', ',', '\r', '\n']) && field.trim().len() == field.len();
    if plain { Cow::Borrowed(field) } else { Cow::Owned(format!("\"{}\"", field.replace('"', "\"\""))) }
}

#[derive(Serialize)]
struct Said<'a> {
    points: Vec<SaidRow<'a>>,
    entries: Vec<SaidEntry<'a>>,
}

struct SaidRow<'a>(&'a Row);

impl Serialize for SaidRow<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeStruct;
        let Row { at, span, series, min, avg, max } = self.0;
        let mut fields = serializer.serialize_struct("point", 6)?;
        fields.serialize_field("at", &rfc3339(*at))?;
        fields.serialize_field("span_seconds", &plain_number(span.as_secs_f64()))?;
        fields.serialize_field("series", series.as_ref())?;
        fields.serialize_field("min", &plain_number(*min))?;
        fields.serialize_field("avg", &plain_number(*avg))?;
        fields.serialize_field("max", &plain_number(*max))?;
        fields.end()
    }
}

#[derive(Serialize)]
struct SaidEntry<'a> {
    at: String,
    kind: &'a str,
    subject: &'a str,
    words: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    detail: Option<Value>,
}

impl<'a> From<&'a Entry> for SaidEntry<'a> {
    fn from(entry: &'a Entry) -> Self {
        let Entry { at, kind, subject, words, detail_json } = entry;
        let detail = match detail_json.as_str() {
            "" => None,
            // What is no JSON is still told, as the text that it is.
            text => Some(serde_json::from_str(text).unwrap_or_else(|_| Value::String(text.to_owned()))),
        };
        Self { at: rfc3339(*at), kind: kind.word(), subject, words, detail }
    }
}

/// A whole number without a point, so that 2 is not told as `2.0`.
#[expect(clippy::cast_possible_truncation, reason = "whole and below 2^53")]
fn plain_number(value: f64) -> Value {
    if value.fract() == 0.0 && value.abs() < 9_007_199_254_740_992.0 {
        Value::from(value as i64)
    } else {
        Value::from(value)
    }
}

#[cfg(test)]
mod tests {
    use super::super::Kind;
    use super::*;
    use stablehand_engine::time::Wall;
    use std::time::Duration;

    fn recorded() -> Recorded {
        let at = Wall::from_unix_ms(1_794_052_985_250);
        let row = |series: &str, span, min, avg, max| Row { at, span, series: series.into(), min, avg, max };
        Recorded {
            rows: vec![
                row("queue_at_least", Duration::ZERO, 2.0, 2.0, 2.0),
                row(r#"tokens_per_s{model="a b:큰"}"#, Duration::from_secs(60), 0.0, 12.25, 30.5),
            ],
            entries: vec![
                Entry {
                    at,
                    kind: Kind::Verdict,
                    subject: "gemma3:27b".to_owned(),
                    words: "hung, \"n_decoded\" still\nfor 141 s".to_owned(),
                    detail_json: r#"{"n_decoded":[812,812]}"#.to_owned(),
                },
                Entry {
                    at,
                    kind: Kind::Other("moved".to_owned()),
                    subject: String::new(),
                    words: " ends with a space ".to_owned(),
                    detail_json: "not JSON".to_owned(),
                },
            ],
        }
    }

    #[test]
    fn csv_has_a_header_crlf_and_quotes_only_where_they_are_needed() {
        let recorded = recorded();
        assert_eq!(
            rows_csv(&recorded.rows),
            "at,span_seconds,series,min,avg,max\r\n\
             2026-11-07T12:03:05.25Z,0,queue_at_least,2,2,2\r\n\
             2026-11-07T12:03:05.25Z,60,\"tokens_per_s{model=\"\"a b:큰\"\"}\",0,12.25,30.5\r\n"
        );
        assert_eq!(
            entries_csv(&recorded.entries),
            "at,kind,subject,words,detail\r\n\
             2026-11-07T12:03:05.25Z,verdict,gemma3:27b,\"hung, \"\"n_decoded\"\" still\nfor 141 s\",\"{\"\"n_decoded\"\":[812,812]}\"\r\n\
             2026-11-07T12:03:05.25Z,moved,,\" ends with a space \",not JSON\r\n"
        );
        assert_eq!(rows_csv(&[]).lines().count(), 1);
    }

    #[test]
    fn json_carries_the_same_with_particulars_as_values() {
        let value: Value = serde_json::from_str(&json(&recorded())).unwrap();
        assert_eq!(value["points"][0]["avg"], 2);
        assert_eq!(value["points"][1]["series"], r#"tokens_per_s{model="a b:큰"}"#);
        assert_eq!(value["points"][1]["max"], 30.5);
        assert_eq!(value["points"][1]["at"], "2026-11-07T12:03:05.25Z");
        assert_eq!(value["entries"][0]["detail"]["n_decoded"][1], 812);
        assert_eq!(value["entries"][1]["detail"], "not JSON");
        assert_eq!(json(&Recorded::default()), r#"{"points":[],"entries":[]}"#);
    }
}
