//! The only changes of a body: another name of a model becomes the model's, and options that would make Ollama load it
//! anew get the values that a person pinned. Everything else stays byte for byte.

use crate::answer::Refusal;
use crate::configuration::{Configuration, full_name};
use crate::family::Family;
use crate::route::{Endpoint, Written};
use crate::scan::{Found, Options};
use crate::sending::Kept;
use http::HeaderValue;
use std::ops::Range;
use std::sync::Arc;

/// What is put where, and how it is told.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Changes {
    places: Vec<(Range<u64>, Vec<u8>)>,
    words: Vec<String>,
}

/// Applies aliases and pins to a body. Returns the model that is asked for in the end, by its full name, and what was
/// changed, if anything.
///
/// # Errors
/// When a pin cannot be put into the body without ambiguity.
pub fn rewrite(
    configuration: &Configuration,
    endpoint: &Endpoint,
    found: &Found,
    body: &mut Kept,
) -> Result<(Arc<str>, Option<HeaderValue>), Refusal> {
    let Some((asked, range)) = found.model.as_ref().filter(|(name, _)| !name.trim().is_empty()) else {
        return Err(Refusal::bad_request("model is required"));
    };
    let name = configuration.model(asked.trim());
    let model = full_name(name);
    let mut changes = Changes::default();
    if name != asked.trim() {
        let text = match endpoint.written {
            Written::Json => serde_json::Value::from(name).to_string().into_bytes(),
            Written::Form => name.as_bytes().to_vec(),
        };
        changes.places.push((range.clone(), text));
        changes.words.push(format!("model={name}"));
    }
    // The other families have no options; there Ollama takes the model's own (`openai/openai.go`).
    if endpoint.family == Family::Ollama
        && let Some(pins) = configuration.pins.get(&*model)
    {
        if found.options_twice {
            return Err(Refusal::bad_request("the body has options twice, so that none of them can be pinned"));
        }
        let pins: Vec<_> = pins.iter().map(|(key, pin)| (key.as_str(), pin.to_string())).collect();
        changes.pin(&pins, found);
    }
    if changes.places.is_empty() {
        return Ok((model.into(), None));
    }
    changes.places.sort_by_key(|(range, _)| (range.start, range.end));
    body.replace(&changes.places);
    Ok((model.into(), HeaderValue::from_str(&changes.words.join(", ")).ok()))
}

impl Changes {
    fn pin(&mut self, pins: &[(&str, String)], found: &Found) {
        let Some(Options::Object { inside, empty, values }) = &found.options else {
            let all: Vec<_> = pins.iter().map(|(key, pin)| format!("\"{key}\":{pin}")).collect();
            let object = format!("{{{}}}", all.join(","));
            match &found.options {
                Some(Options::Null(range)) => self.places.push((range.clone(), object.into_bytes())),
                // There is a model behind it, so a comma is right.
                Some(Options::Object { .. }) | None => {
                    self.places.push((found.inside..found.inside, format!("\"options\":{object},").into_bytes()));
                }
            }
            self.words.extend(pins.iter().map(|(key, pin)| format!("{key}={pin}")));
            return;
        };
        let mut added = Vec::new();
        for (key, pin) in pins {
            match values.get(*key) {
                Some((_, present)) if present == pin => continue,
                Some((range, present)) => {
                    self.places.push((range.clone(), pin.clone().into_bytes()));
                    self.words.push(format!("{key}={pin} (asked for {present})"));
                }
                None => {
                    added.push(format!("\"{key}\":{pin}"));
                    self.words.push(format!("{key}={pin}"));
                }
            }
        }
        if !added.is_empty() {
            let comma = if *empty { "" } else { "," };
            self.places.push((*inside..*inside, format!("{}{comma}", added.join(",")).into_bytes()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::configuration::Pin;
    use crate::scan::Scanner;
    use bytes::Bytes;
    use http::Method;
    use std::collections::BTreeMap;

    fn configuration() -> Configuration {
        let mut configuration = crate::testing::configuration();
        configuration.aliases = BTreeMap::from([("agent-red".to_owned(), "qwen3.5:4b".to_owned())]);
        let pins =
            BTreeMap::from([("num_ctx".to_owned(), Pin::Number(8192)), ("use_mmap".to_owned(), Pin::Truth(true))]);
        configuration.pins = BTreeMap::from([("qwen3.5:4b".to_owned(), pins)]);
        configuration
    }

    fn rewritten(path: &str, text: &str) -> (String, String, String) {
        let mut scanner = Scanner::default();
        scanner.push(text.as_bytes()).unwrap();
        let mut kept = Kept::new();
        kept.push(Bytes::copy_from_slice(text.as_bytes()));
        let endpoint = Endpoint::of(&Method::POST, path).unwrap();
        let (model, told) = rewrite(&configuration(), endpoint, &scanner.finish().unwrap(), &mut kept).unwrap();
        let told = told.map(|told| told.to_str().unwrap().to_owned()).unwrap_or_default();
        (model.to_string(), String::from_utf8(kept.whole().to_vec()).unwrap(), told)
    }

    #[test]
    fn an_alias_changes_the_name_alone() {
        let (model, body, told) = rewritten("/v1/chat/completions", r#"{ "model" : "agent-red", "x":"agent-red"}"#);
        assert_eq!(model, "qwen3.5:4b");
        assert_eq!(body, r#"{ "model" : "qwen3.5:4b", "x":"agent-red"}"#);
        assert_eq!(told, "model=qwen3.5:4b");
    }

    #[test]
    fn without_alias_or_pin_nothing_is_touched() {
        let text = r#"{"Model":"Other" ,"prompt":"x","options":{"num_ctx":1}}"#;
        assert_eq!(rewritten("/api/generate", text), ("other:latest".to_owned(), text.to_owned(), String::new()));
    }

    #[test]
    fn pins_take_the_place_of_what_is_asked_for_or_are_added() {
        for (text, expected, words) in [
            (
                r#"{"model":"qwen3.5:4b","options":{"num_ctx":4096,"seed":1}}"#,
                r#"{"model":"qwen3.5:4b","options":{"use_mmap":true,"num_ctx":8192,"seed":1}}"#,
                "num_ctx=8192 (asked for 4096), use_mmap=true",
            ),
            (
                r#"{"options":{},"model":"agent-red"}"#,
                r#"{"options":{"num_ctx":8192,"use_mmap":true},"model":"qwen3.5:4b"}"#,
                "model=qwen3.5:4b, num_ctx=8192, use_mmap=true",
            ),
            (
                r#"{"model":"qwen3.5:4b"}"#,
                r#"{"options":{"num_ctx":8192,"use_mmap":true},"model":"qwen3.5:4b"}"#,
                "num_ctx=8192, use_mmap=true",
            ),
            (
                r#"{"model":"qwen3.5:4b","options":null}"#,
                r#"{"model":"qwen3.5:4b","options":{"num_ctx":8192,"use_mmap":true}}"#,
                "num_ctx=8192, use_mmap=true",
            ),
            (
                r#"{"model":"qwen3.5:4b","options":{"num_ctx":8192,"use_mmap":true}}"#,
                r#"{"model":"qwen3.5:4b","options":{"num_ctx":8192,"use_mmap":true}}"#,
                "",
            ),
        ] {
            let (_, body, told) = rewritten("/api/chat", text);
            assert_eq!(body, expected, "{text}");
            assert_eq!(told, words, "{text}");
            serde_json::from_str::<serde_json::Value>(&body).unwrap();
        }
        let (_, body, _) = rewritten("/v1/chat/completions", r#"{"model":"qwen3.5:4b"}"#);
        assert_eq!(body, r#"{"model":"qwen3.5:4b"}"#, "OpenAI's interface has no options");
    }

    #[test]
    fn a_model_has_to_be_named() {
        let mut kept = Kept::new();
        let endpoint = Endpoint::of(&Method::POST, "/api/chat").unwrap();
        let refusal = rewrite(&configuration(), endpoint, &Found::default(), &mut kept).unwrap_err();
        assert_eq!(refusal.message, "model is required");
    }
}
