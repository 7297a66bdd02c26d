//! Which requests wait for a turn: inference, and of that what really computes.

use crate::family::Family;
use crate::scan::Found;
use http::Method;
use std::borrow::Cow;

/// A path behind which a model works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// Its path.
    pub path: &'static str,
    /// How its errors look.
    pub family: Family,
    /// What a request holds unless it only loads or unloads a model (`server/routes.go`, `GenerateHandler`,
    /// `ChatHandler`).
    works_with: WorksWith,
    /// How its body is written.
    pub written: Written,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WorksWith {
    Prompt,
    Messages,
    Anything,
}

/// How a body is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Written {
    /// A JSON object.
    Json,
    /// A form with files (RFC 7578).
    Form,
}

const fn json(path: &'static str, family: Family, works_with: WorksWith) -> Endpoint {
    Endpoint { path, family, works_with, written: Written::Json }
}

/// All of them; each is asked with POST.
const ENDPOINTS: [Endpoint; 10] = [
    json("/api/generate", Family::Ollama, WorksWith::Prompt),
    json("/api/chat", Family::Ollama, WorksWith::Messages),
    json("/api/embed", Family::Ollama, WorksWith::Anything),
    json("/api/embeddings", Family::Ollama, WorksWith::Anything),
    json("/v1/chat/completions", Family::OpenAi, WorksWith::Anything),
    json("/v1/completions", Family::OpenAi, WorksWith::Anything),
    json("/v1/embeddings", Family::OpenAi, WorksWith::Anything),
    json("/v1/responses", Family::OpenAi, WorksWith::Anything),
    json("/v1/messages", Family::Anthropic, WorksWith::Anything),
    Endpoint {
        path: "/v1/audio/transcriptions",
        family: Family::OpenAi,
        works_with: WorksWith::Anything,
        written: Written::Form,
    },
];

impl Endpoint {
    /// The one that a request is for, if any.
    pub fn of(method: &Method, path: &str) -> Option<&'static Self> {
        if method != Method::POST {
            return None;
        }
        Self::at(&decoded(path))
    }

    /// The one at this path, written just like that.
    pub fn at(path: &str) -> Option<&'static Self> {
        ENDPOINTS.iter().find(|endpoint| endpoint.path == path)
    }

    /// Whether a request computes something. One that only loads or unloads a model has to come through while others
    /// wait: unloading is what ends a hang.
    pub fn works(&self, found: &Found) -> bool {
        match self.works_with {
            WorksWith::Prompt => found.prompt,
            WorksWith::Messages => found.messages,
            WorksWith::Anything => true,
        }
    }

    /// Whether the answer comes as events.
    pub fn answers_with_events(&self, found: &Found) -> bool {
        match self.family {
            Family::Ollama => false,
            Family::OpenAi | Family::Anthropic => found.stream == Some(true),
        }
    }
}

/// Whether a model works somewhere else, so that nothing here is busy with it (`internal/modelref`).
pub fn is_cloud(model: &str) -> bool {
    let tag = model.rsplit('/').next().and_then(|last| last.split_once(':')).map_or("", |(_, tag)| tag);
    tag == "cloud" || model.ends_with("-cloud")
}

/// A path, or a name behind it, as Go's server compares it: `%63` is `c`.
pub fn decoded(path: &str) -> Cow<'_, str> {
    if !path.contains('%') {
        return Cow::Borrowed(path);
    }
    let mut bytes = Vec::with_capacity(path.len());
    let mut rest = path.as_bytes();
    while let [first, tail @ ..] = rest {
        let digits = tail.get(..2).filter(|_| *first == b'%').and_then(|digits| std::str::from_utf8(digits).ok());
        match digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &tail[2..];
            }
            None => {
                bytes.push(*first);
                rest = tail;
            }
        }
    }
    Cow::Owned(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scan::Scanner;

    fn found(text: &str) -> Found {
        let mut scanner = Scanner::default();
        scanner.push(text.as_bytes()).unwrap();
        scanner.finish().unwrap()
    }

    #[test]
    fn only_inference_waits() {
        let waits = |method: Method, path: &str| Endpoint::of(&method, path).is_some();
        assert!(waits(Method::POST, "/api/chat"));
        assert!(waits(Method::POST, "/api/%63hat"), "the same path to Ollama");
        assert!(waits(Method::POST, "/v1/messages"));
        for (method, path) in [
            (Method::HEAD, "/api/chat"),
            (Method::OPTIONS, "/api/chat"),
            (Method::POST, "/api/pull"),
            (Method::POST, "/api/show"),
            (Method::POST, "/api/chat/"),
            (Method::POST, "/v1/messages/count_tokens"),
            (Method::GET, "/"),
        ] {
            assert!(!waits(method.clone(), path), "{method} {path}");
        }
    }

    #[test]
    fn what_only_loads_or_unloads_does_not_work() {
        let works = |path: &str, body: &str| Endpoint::of(&Method::POST, path).unwrap().works(&found(body));
        assert!(!works("/api/generate", r#"{"model":"m","keep_alive":0}"#));
        assert!(!works("/api/generate", r#"{"model":"m","prompt":""}"#));
        assert!(!works("/api/chat", r#"{"model":"m","messages":[],"keep_alive":0}"#));
        assert!(works("/api/generate", r#"{"model":"m","prompt":"hi","keep_alive":0}"#));
        assert!(works("/api/chat", r#"{"model":"m","messages":[{}]}"#));
        assert!(works("/v1/chat/completions", r#"{"model":"m"}"#));
    }

    #[test]
    fn models_in_the_cloud_are_known_by_their_names() {
        for name in ["gpt-oss:120b-cloud", "qwen3-coder:480b-cloud", "kimi-k2:cloud", "ada/model:cloud"] {
            assert!(is_cloud(name), "{name}");
        }
        for name in ["gpt-oss:120b", "cloud:latest", "my-cloud-model:1b"] {
            assert!(!is_cloud(name), "{name}");
        }
    }
}
