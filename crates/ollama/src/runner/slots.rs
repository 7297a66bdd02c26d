//! `GET /slots`, as the builds of `llama-server` write it (`llama.cpp tools/server`).
//!
//! A slot without a request tells little more than its number. `next_token` is an object in older builds and a list of
//! one in newer ones. A prompt may stand in the answer of a build for debugging; it is never kept.

use serde::Deserialize;
use serde_json::Value;
use stablehand_engine::stall::evidence::SlotSeen;

/// One slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    /// Its number.
    pub id: u32,
    /// The runner's number of the request that it has or had last.
    pub task: Option<u64>,
    /// Whether a request is in it.
    pub busy: bool,
    /// Tokens of context that it has.
    pub context_tokens: Option<u64>,
    /// `n_prompt_tokens`: grows with each batch; the total of the prompt only after the last one.
    pub prompt_tokens_so_far: Option<u64>,
    /// `n_prompt_tokens_processed`.
    pub prompt_tokens_done: Option<u64>,
    /// `n_prompt_tokens_cache`.
    pub prompt_tokens_cached: Option<u64>,
    /// `n_decoded`.
    pub tokens_generated: Option<u64>,
}

impl Slot {
    /// The slot as the rules look at it, with the total of its prompt when somebody knows it.
    ///
    /// # Errors
    /// Why its progress cannot be told: a counter that is missing from a busy slot would look like one that stands
    /// still.
    pub fn seen(&self, prompt_tokens_total: Option<u64>) -> Result<SlotSeen, String> {
        let missing = |what: &str| format!("slot {} is busy and does not tell {what}", self.id);
        let tokens_generated = match self.tokens_generated {
            Some(tokens) => tokens,
            None if self.busy => return Err(missing("how many tokens it has generated")),
            None => 0,
        };
        let prompt_tokens_done = match self.prompt_tokens_done {
            Some(tokens) => tokens,
            // Once it generates, that is its progress.
            None if self.busy && tokens_generated == 0 => return Err(missing("how far it is with the prompt")),
            None => 0,
        };
        Ok(SlotSeen {
            id: self.id,
            task: self.task,
            busy: self.busy,
            prompt_tokens_done,
            prompt_tokens_cached: self.prompt_tokens_cached.unwrap_or(0),
            tokens_generated,
            prompt_tokens_total,
        })
    }
}

#[derive(Deserialize)]
struct Raw {
    id: Option<Value>,
    id_task: Option<Value>,
    is_processing: Option<Value>,
    state: Option<Value>,
    n_ctx: Option<Value>,
    n_prompt_tokens: Option<Value>,
    n_prompt_tokens_processed: Option<Value>,
    n_prompt_tokens_cache: Option<Value>,
    n_decoded: Option<Value>,
    next_token: Option<Value>,
}

/// Reads the answer. The error is a phrase for a person.
pub(super) fn parse(body: &[u8]) -> Result<Vec<Slot>, String> {
    let raw: Vec<Raw> = serde_json::from_slice(body)
        .map_err(|error| format!("/slots is of an unknown shape ({error}): {}", beginning(body)))?;
    raw.iter().map(slot).collect()
}

fn slot(raw: &Raw) -> Result<Slot, String> {
    let id = whole(&raw.id).and_then(|id| u32::try_from(id).ok());
    let id = id.ok_or("/slots is of an unknown shape: a slot without a number")?;
    let busy = match (&raw.is_processing, whole(&raw.state)) {
        (Some(Value::Bool(busy)), _) => *busy,
        // Builds before `is_processing` told a state: 0 idle, 1 working.
        (_, Some(state)) => state != 0,
        _ => return Err(format!("/slots is of an unknown shape: slot {id} does not tell whether it works")),
    };
    let next = match &raw.next_token {
        Some(Value::Array(list)) => list.first(),
        other => other.as_ref(),
    };
    let decoded = next.and_then(|next| next.get("n_decoded")).or(raw.n_decoded.as_ref());
    Ok(Slot {
        id,
        task: whole(&raw.id_task),
        busy,
        context_tokens: whole(&raw.n_ctx),
        prompt_tokens_so_far: whole(&raw.n_prompt_tokens),
        prompt_tokens_done: whole(&raw.n_prompt_tokens_processed),
        prompt_tokens_cached: whole(&raw.n_prompt_tokens_cache),
        tokens_generated: decoded.and_then(number),
    })
}

/// A whole number that is not negative; `-1` is the runner's word for none.
fn whole(value: &Option<Value>) -> Option<u64> {
    number(value.as_ref()?)
}

fn number(value: &Value) -> Option<u64> {
    value.as_u64().or_else(|| {
        let float = value.as_f64()?;
        (float.fract() == 0.0 && (0.0..9.0e15).contains(&float)).then_some(float as u64)
    })
}

/// Enough of an answer to recognise what it is; not of JSON, which may hold a prompt.
fn beginning(body: &[u8]) -> String {
    match body.trim_ascii_start().first() {
        None => "it is empty".to_owned(),
        Some(b'[' | b'{') => format!("{} bytes of JSON", body.len()),
        Some(_) => crate::client::snippet(body),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEWER: &str = include_str!("../../fixtures/runner/slots.newer.json");
    const OLDER: &str = include_str!("../../fixtures/runner/slots.older.json");

    #[test]
    fn slots_of_a_newer_build_are_read() {
        let slots = parse(NEWER.as_bytes()).unwrap();
        assert_eq!(slots.len(), 4);
        assert_eq!((slots[0].busy, slots[0].task, slots[0].context_tokens), (false, None, Some(16_384)));
        assert_eq!(slots[0].seen(None).map(|slot| slot.tokens_generated), Ok(0));
        let prefill = slots[1].seen(Some(47_324)).unwrap();
        assert_eq!((prefill.task, prefill.prompt_tokens_done, prefill.tokens_generated), (Some(311), 6144, 0));
        assert_eq!((prefill.prompt_tokens_cached, prefill.prompt_tokens_total), (2048, Some(47_324)));
        assert_eq!(slots[1].prompt_tokens_so_far, Some(8192));
        assert_eq!(slots[2].tokens_generated, Some(812));
        assert_eq!((slots[3].busy, slots[3].task), (false, Some(298)));
    }

    #[test]
    fn slots_of_an_older_build_are_read() {
        let slots = parse(OLDER.as_bytes()).unwrap();
        assert_eq!((slots[0].busy, slots[0].task), (false, None));
        assert_eq!((slots[1].busy, slots[1].tokens_generated), (true, Some(57)));
        // It generates, so that the missing counter of the prompt is no matter.
        assert_eq!(slots[1].seen(None).map(|slot| (slot.prompt_tokens_done, slot.tokens_generated)), Ok((0, 57)));
        // In its prompt it has nothing that could move.
        assert_eq!((slots[2].busy, slots[2].tokens_generated), (true, Some(0)));
        assert!(slots[2].seen(None).is_err_and(|reason| reason.contains("slot 2")));
    }

    #[test]
    fn a_counter_that_is_missing_from_a_busy_slot_is_never_zero() {
        for next in
            [r#""next_token":[]"#, r#""next_token":null"#, r#""next_token":7"#, r#""next_token":{}"#, r#""x":1"#]
        {
            let body = format!(r#"[{{"id":3,"is_processing":true,"n_prompt_tokens_processed":512,{next}}}]"#);
            let slots = parse(body.as_bytes()).unwrap();
            assert!(slots[0].seen(None).is_err(), "{next}");
        }
    }

    #[test]
    fn other_shapes_are_told_with_a_reason_and_without_their_text() {
        let secret = r#"{"slots":[{"prompt":"my secret"}]}"#;
        for body in
            ["", "<html>not here</html>", "null", secret, r#"[{"is_processing":true}]"#, r#"[{"id":1}]"#, "[[]]"]
        {
            let reason = parse(body.as_bytes()).unwrap_err();
            assert!(reason.starts_with("/slots is of an unknown shape"), "{reason}");
            assert!(!reason.contains("secret"), "{reason}");
        }
        assert!(parse(b"<html>not here</html>").unwrap_err().contains("not here"));
        assert_eq!(parse(b"[]"), Ok(vec![]));
    }
}
