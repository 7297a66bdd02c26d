//! What goes wrong, in classes.

use crate::log::RunnerFailure;
use stablehand_engine::time::Wall;
use std::time::Duration;

/// A class of errors. A line counts in one of them, the first that fits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ErrorClass {
    /// Memory that could not be had, by Ollama's own markers.
    OutOfMemory,
    /// A prompt, or the context asked for, is longer than what there is.
    ContextTooLarge,
    /// Something was waited for in vain.
    Timeout,
    /// A runner's process ended.
    RunnerTerminated,
    /// The connection to a runner broke (`EOF`).
    ConnectionCut,
    /// A request ended well and without a single token.
    EmptyResponse,
    /// A model could not be loaded.
    LoadFailed,
    /// Another failure of a runner.
    Other,
}

impl ErrorClass {
    /// Every class.
    pub const ALL: [Self; 8] = [
        Self::OutOfMemory,
        Self::ContextTooLarge,
        Self::Timeout,
        Self::RunnerTerminated,
        Self::ConnectionCut,
        Self::EmptyResponse,
        Self::LoadFailed,
        Self::Other,
    ];

    /// Its name where it is shown.
    pub fn name(self) -> &'static str {
        match self {
            Self::OutOfMemory => "out of memory",
            Self::ContextTooLarge => "context too large",
            Self::Timeout => "timeout",
            Self::RunnerTerminated => "runner terminated",
            Self::ConnectionCut => "EOF",
            Self::EmptyResponse => "empty response",
            Self::LoadFailed => "load failed",
            Self::Other => "other",
        }
    }

    /// The class of a failure that the server logs.
    pub fn of(failure: &RunnerFailure, while_loading: bool) -> Self {
        let text = &failure.error;
        let has = |words: &[&str]| words.iter().any(|word| text.contains(word));
        if failure.out_of_memory {
            Self::OutOfMemory
        } else if has(&[
            "exceeds the available context",
            "larger than the max context",
            "context size",
            "context length",
        ]) {
            Self::ContextTooLarge
        } else if has(&["timed out", "deadline exceeded", "timeout"]) {
            Self::Timeout
        } else if failure.process_ended || has(&["unexpectedly stopped", "signal: ", "exit status"]) {
            if while_loading { Self::LoadFailed } else { Self::RunnerTerminated }
        } else if has(&["EOF", "connection reset", "broken pipe", "forcibly closed"]) {
            Self::ConnectionCut
        } else if has(&["empty response", "no response"]) {
            Self::EmptyResponse
        } else if while_loading {
            Self::LoadFailed
        } else {
            Self::Other
        }
    }

    /// One event of these classes leaves several lines; lines this close are one event. Errors of requests are one
    /// each.
    fn one_event(self) -> Duration {
        match self {
            Self::OutOfMemory | Self::RunnerTerminated | Self::LoadFailed => Duration::from_secs(2),
            Self::ContextTooLarge | Self::Timeout | Self::ConnectionCut | Self::EmptyResponse | Self::Other => {
                Duration::ZERO
            }
        }
    }
}

/// How often a class came up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ErrorView {
    /// The class.
    pub class: ErrorClass,
    /// How often since the statistics began.
    pub count: u64,
    /// The last time.
    pub last: Wall,
    /// The server's words of that time, at most 400 bytes.
    pub words: String,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Errors {
    seen: Vec<ErrorView>,
}

const MOST_WORDS_BYTES: usize = 400;

impl Errors {
    pub fn add(&mut self, class: ErrorClass, at: Wall, words: &str) {
        let words = words[..words.floor_char_boundary(MOST_WORDS_BYTES)].to_owned();
        match self.seen.iter_mut().find(|view| view.class == class) {
            Some(view) => {
                let apart_ms = at.unix_ms.abs_diff(view.last.unix_ms);
                if u128::from(apart_ms) >= class.one_event().as_millis() {
                    view.count += 1;
                }
                (view.last, view.words) = (at, words);
            }
            None => self.seen.push(ErrorView { class, count: 1, last: at, words }),
        }
    }

    /// The classes that came up.
    pub fn view(&self) -> Vec<ErrorView> {
        let mut view = self.seen.clone();
        view.sort_by_key(|view| view.class);
        view
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::speaks_of_exhausted_memory;

    fn class(error: &str, while_loading: bool) -> ErrorClass {
        let failure = RunnerFailure {
            at: Wall::default(),
            model: None,
            error: error.to_owned(),
            out_of_memory: speaks_of_exhausted_memory(error),
            process_ended: error.contains("process has terminated"),
        };
        ErrorClass::of(&failure, while_loading)
    }

    #[test]
    fn words_lead_to_their_class() {
        for (error, while_loading, expected) in [
            ("an error was encountered while running the model: unexpected EOF", false, ErrorClass::ConnectionCut),
            ("llama-server reported out-of-memory during startup: failed to allocate", true, ErrorClass::OutOfMemory),
            ("CUDA error: out of memory", false, ErrorClass::OutOfMemory),
            ("request (9 tokens) exceeds the available context size (4 tokens)", false, ErrorClass::ContextTooLarge),
            ("timed out waiting for llama-server to start - ", true, ErrorClass::Timeout),
            ("context deadline exceeded", false, ErrorClass::Timeout),
            ("llama-server process has terminated: exit status 1", true, ErrorClass::LoadFailed),
            ("llama-server process has terminated: signal: killed", false, ErrorClass::RunnerTerminated),
            ("runner sent an empty response", false, ErrorClass::EmptyResponse),
            ("unknown model architecture", true, ErrorClass::LoadFailed),
            ("something", false, ErrorClass::Other),
        ] {
            assert_eq!(class(error, while_loading), expected, "{error}");
        }
    }

    #[test]
    fn the_lines_of_one_event_count_once_and_those_of_requests_each() {
        let mut errors = Errors::default();
        let at = Wall::from_unix_ms;
        for unix_ms in [10_000, 10_100, 11_900, 60_000] {
            errors.add(ErrorClass::OutOfMemory, at(unix_ms), "failed to allocate");
            errors.add(ErrorClass::ConnectionCut, at(unix_ms), "EOF");
        }
        let view = errors.view();
        assert_eq!((view[0].class, view[0].count), (ErrorClass::OutOfMemory, 2));
        assert_eq!((view[1].class, view[1].count), (ErrorClass::ConnectionCut, 4));
        errors.add(ErrorClass::Other, at(0), &"한".repeat(1000));
        assert_eq!(errors.view()[2].words.len(), 399);
    }
}
