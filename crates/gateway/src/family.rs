//! The three families of Ollama's interface, and how each says that something did not work.
//!
//! `/api` is Ollama's own, `/v1` speaks as OpenAI does, `/v1/messages` as Anthropic does (`ollama server/routes.go`,
//! `openai/openai.go`, `anthropic/anthropic.go`).

use bytes::Bytes;
use http::StatusCode;
use serde_json::json;

/// A family of paths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// `/api/…` and everything that is none of the others.
    Ollama,
    /// `/v1/…`.
    OpenAi,
    /// `/v1/messages`.
    Anthropic,
}

impl Family {
    /// The family of a path.
    pub fn of(path: &str) -> Self {
        match path.strip_prefix("/v1/") {
            Some(rest) if rest == "messages" || rest.starts_with("messages/") => Self::Anthropic,
            Some(_) => Self::OpenAi,
            None => Self::Ollama,
        }
    }

    /// The body of an answer with this status.
    pub fn error(self, status: StatusCode, message: &str) -> Bytes {
        let body = match self {
            Self::Ollama => json!({ "error": message }),
            Self::OpenAi => json!({
                "error": { "message": message, "type": openai_kind(status), "param": null, "code": null }
            }),
            Self::Anthropic => {
                json!({ "type": "error", "error": { "type": anthropic_kind(status), "message": message } })
            }
        };
        Bytes::from(body.to_string())
    }

    /// The same as an event of a stream that has begun.
    pub fn error_event(self, status: StatusCode, message: &str) -> Bytes {
        let body = self.error(status, message);
        let mut event = Vec::with_capacity(body.len() + 32);
        match self {
            Self::Ollama | Self::OpenAi => {}
            Self::Anthropic => event.extend_from_slice(b"event: error\n"),
        }
        event.extend_from_slice(b"data: ");
        event.extend_from_slice(&body);
        event.extend_from_slice(b"\n\n");
        Bytes::from(event)
    }

    /// What keeps a stream of events open that has nothing to say yet. Clients pass over it.
    pub fn keep_alive(self) -> Bytes {
        match self {
            Self::Ollama | Self::OpenAi => Bytes::from_static(b": waiting for a turn\n\n"),
            Self::Anthropic => Bytes::from_static(b"event: ping\ndata: {\"type\": \"ping\"}\n\n"),
        }
    }
}

fn openai_kind(status: StatusCode) -> &'static str {
    match status.as_u16() {
        404 => "not_found_error",
        400..=499 => "invalid_request_error",
        _ => "api_error",
    }
}

fn anthropic_kind(status: StatusCode) -> &'static str {
    match status.as_u16() {
        401 => "authentication_error",
        403 => "permission_error",
        404 => "not_found_error",
        413 => "request_too_large",
        429 => "rate_limit_error",
        400..=499 => "invalid_request_error",
        503 | 529 => "overloaded_error",
        _ => "api_error",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_family_says_it_in_its_own_shape() {
        let told = |path: &str| -> serde_json::Value {
            serde_json::from_slice(&Family::of(path).error(StatusCode::SERVICE_UNAVAILABLE, "busy")).unwrap()
        };
        assert_eq!(told("/api/chat"), json!({ "error": "busy" }));
        assert_eq!(told("/nowhere"), json!({ "error": "busy" }));
        assert_eq!(told("/v1/chat/completions")["error"]["message"], "busy");
        assert_eq!(told("/v1/chat/completions")["error"]["type"], "api_error");
        assert_eq!(told("/v1/messages")["error"]["type"], "overloaded_error");
        assert_eq!(told("/v1/messages")["type"], "error");
        assert_eq!(Family::of("/v1/messages_of_others"), Family::OpenAi);
    }

    #[test]
    fn an_event_is_one_line_of_data_whatever_the_message_holds() {
        let event = Family::Anthropic.error_event(StatusCode::BAD_GATEWAY, "two\nlines");
        let text = std::str::from_utf8(&event).unwrap();
        assert!(text.starts_with("event: error\ndata: {") && text.ends_with("}\n\n"), "{text}");
        assert_eq!(text.lines().count(), 3);
    }
}
