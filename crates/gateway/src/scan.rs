//! Reads what matters of a request's body while it comes in, once, byte by byte, and keeps nothing of the rest.
//!
//! The body is a JSON object of many megabytes at times, with the key `model` anywhere in it. What Go's decoder takes is
//! taken here: names of keys in any case, escapes in them, anything after the object (`encoding/json`). A body that
//! names two models is refused: one reader would see the first, another the last.

use memchr::memchr2;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::Range;

/// The deepest nesting; Go's decoder stops there too.
const DEPTH_AT_MOST: usize = 10_000;
/// The longest name of a model, in bytes.
const MODEL_BYTES: usize = 1_024;
/// What is kept of a key or a scalar; nothing that matters is longer.
const CAPTURED_BYTES: usize = 96;

/// What was found in a body.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// The model, and where its text stands, quotes included.
    pub model: Option<(String, Range<u64>)>,
    /// `stream`, where it is true or false.
    pub stream: Option<bool>,
    /// `prompt` is there and holds something.
    pub prompt: bool,
    /// `messages` is there and holds something.
    pub messages: bool,
    /// Where the object begins, behind its brace.
    pub inside: u64,
    /// `options`, where it is there.
    pub options: Option<Options>,
    /// `options` stands there twice.
    pub options_twice: bool,
}

/// The object `options`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Options {
    /// An object.
    Object {
        /// Behind its brace.
        inside: u64,
        /// It holds nothing.
        empty: bool,
        /// Where the values of its keys stand, and what they are where they are short.
        values: BTreeMap<String, (Range<u64>, String)>,
    },
    /// `null`, and where it stands.
    Null(Range<u64>),
}

/// Why a body is none that could be passed on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Bad {
    /// Nothing was sent.
    #[error("missing request body")]
    Missing,
    /// It is not JSON.
    #[error("the body is not JSON: unexpected byte at {0}")]
    Byte(u64),
    /// It ends in the middle.
    #[error("the body is not JSON: it ends in the middle")]
    Unfinished,
    /// It is something else than an object.
    #[error("the body is not a JSON object")]
    NotAnObject,
    /// It is nested too deeply.
    #[error("the body is nested too deeply")]
    TooDeep,
    /// It names a model twice.
    #[error("the body names a model twice")]
    ModelTwice,
    /// The model is no text.
    #[error("the model is not named by a text")]
    ModelIsNoText,
    /// The model's name is too long.
    #[error("the name of the model is too long")]
    ModelTooLong,
}

/// What comes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Expect {
    /// The object.
    Start,
    /// A key, or the end of an object that holds nothing.
    FirstKey,
    /// A key.
    Key,
    /// A colon.
    Colon,
    /// A value.
    Value,
    /// A value, or the end of an array that holds nothing.
    FirstValue,
    /// A comma or the end of what is open.
    More,
    /// The rest of a text that is a key.
    InKey { escaped: bool },
    /// The rest of a text that is a value.
    InText { escaped: bool },
    /// The rest of a number, `true`, `false` or `null`.
    InScalar,
    /// Nothing: the object has ended.
    Nothing,
}

/// A key of the object that matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Field {
    Model,
    Stream,
    Prompt,
    Messages,
    Options,
    /// A key of `options`.
    Option,
    /// All others, and everything inside of them.
    Other,
}

/// The reader.
#[derive(Debug)]
pub struct Scanner {
    at: u64,
    expect: Expect,
    /// What is open: `{` or `[`.
    open: Vec<u8>,
    field: Field,
    /// Bytes of the key or value that is being read, as far as they are kept.
    captured: Vec<u8>,
    /// It was longer than what is kept.
    longer: bool,
    captures: bool,
    /// Where the value of the field begins.
    value_start: u64,
    /// Where the text or scalar begins that is being read.
    token_start: u64,
    option_key: String,
    found: Found,
}

impl Default for Scanner {
    fn default() -> Self {
        Self {
            at: 0,
            expect: Expect::Start,
            open: Vec::new(),
            field: Field::Other,
            captured: Vec::new(),
            longer: false,
            captures: false,
            value_start: 0,
            token_start: 0,
            option_key: String::new(),
            found: Found::default(),
        }
    }
}

impl Scanner {
    /// Reads the next piece.
    ///
    /// # Errors
    /// As soon as the body can be none.
    pub fn push(&mut self, piece: &[u8]) -> Result<(), Bad> {
        let mut rest = piece;
        while let Some(&byte) = rest.first() {
            match self.expect {
                Expect::InKey { escaped } | Expect::InText { escaped } => rest = self.text(rest, escaped)?,
                Expect::InScalar if !ends_scalar(byte) => {
                    self.capture(&rest[..1]);
                    rest = self.skip(rest, 1);
                }
                Expect::InScalar => self.scalar_ended()?,
                // What follows the object is nobody's business; Go's decoder does not read it either.
                Expect::Nothing => return Ok(()),
                Expect::Start
                | Expect::FirstKey
                | Expect::Key
                | Expect::Colon
                | Expect::Value
                | Expect::FirstValue
                | Expect::More => {
                    if !matches!(byte, b' ' | b'\n' | b'\r' | b'\t') {
                        self.token(byte)?;
                    }
                    rest = self.skip(rest, 1);
                }
            }
        }
        Ok(())
    }

    /// What was found, at the end of the body.
    ///
    /// # Errors
    /// When the body has not ended.
    pub fn finish(self) -> Result<Found, Bad> {
        match self.expect {
            Expect::Nothing => Ok(self.found),
            Expect::Start => Err(Bad::Missing),
            Expect::FirstKey
            | Expect::Key
            | Expect::Colon
            | Expect::Value
            | Expect::FirstValue
            | Expect::More
            | Expect::InKey { .. }
            | Expect::InText { .. }
            | Expect::InScalar => Err(Bad::Unfinished),
        }
    }

    fn skip<'a>(&mut self, rest: &'a [u8], count: usize) -> &'a [u8] {
        self.at += count as u64;
        &rest[count..]
    }

    /// One byte between texts and scalars.
    fn token(&mut self, byte: u8) -> Result<(), Bad> {
        match (self.expect, byte) {
            (Expect::Start, b'{') => {
                self.found.inside = self.at + 1;
                self.enter(byte)
            }
            (Expect::Start, _) => Err(if begins_value(byte) { Bad::NotAnObject } else { Bad::Byte(self.at) }),
            (Expect::FirstKey | Expect::Key, b'"') => {
                self.begin_capture(self.open.len() == 1 || self.in_options());
                self.expect = Expect::InKey { escaped: false };
                Ok(())
            }
            (Expect::Colon, b':') => {
                self.expect = Expect::Value;
                Ok(())
            }
            (Expect::Value | Expect::FirstValue, b'"') => {
                self.begin_value(self.is_field());
                self.expect = Expect::InText { escaped: false };
                Ok(())
            }
            (Expect::Value | Expect::FirstValue, b'{' | b'[') => {
                self.opens_field(byte)?;
                self.enter(byte)
            }
            (Expect::FirstValue, b']') | (Expect::FirstKey, b'}') => self.leave(byte, true),
            (Expect::More, b'}' | b']') => self.leave(byte, false),
            (Expect::Value | Expect::FirstValue, _) if begins_value(byte) => {
                self.begin_value(true);
                self.capture(&[byte]);
                self.expect = Expect::InScalar;
                Ok(())
            }
            (Expect::More, b',') => {
                self.expect = if self.open.last() == Some(&b'{') { Expect::Key } else { Expect::Value };
                Ok(())
            }
            (
                Expect::FirstKey
                | Expect::Key
                | Expect::Colon
                | Expect::Value
                | Expect::FirstValue
                | Expect::More
                | Expect::InKey { .. }
                | Expect::InText { .. }
                | Expect::InScalar
                | Expect::Nothing,
                _,
            ) => Err(Bad::Byte(self.at)),
        }
    }

    fn enter(&mut self, byte: u8) -> Result<(), Bad> {
        if self.open.len() == DEPTH_AT_MOST {
            return Err(Bad::TooDeep);
        }
        self.open.push(byte);
        self.expect = if byte == b'{' { Expect::FirstKey } else { Expect::FirstValue };
        Ok(())
    }

    fn leave(&mut self, byte: u8, empty: bool) -> Result<(), Bad> {
        let opened = if byte == b'}' { b'{' } else { b'[' };
        if self.open.pop() != Some(opened) {
            return Err(Bad::Byte(self.at));
        }
        match self.open.len() {
            0 => self.expect = Expect::Nothing,
            1 => {
                match self.field {
                    Field::Messages => self.found.messages = !empty,
                    Field::Options | Field::Option => {
                        if let Some(Options::Object { empty: is_empty, .. }) = &mut self.found.options {
                            *is_empty = empty;
                        }
                    }
                    Field::Model | Field::Stream | Field::Prompt | Field::Other => {}
                }
                self.field = Field::Other;
                self.expect = Expect::More;
            }
            2 if self.field == Field::Option => {
                self.value_ended(self.at + 1);
                self.expect = Expect::More;
            }
            _ => self.expect = Expect::More,
        }
        Ok(())
    }

    /// Whether the value that begins now is that of a key that matters, and not something inside of it.
    fn is_field(&self) -> bool {
        match self.field {
            Field::Model | Field::Stream | Field::Prompt | Field::Messages | Field::Options => self.open.len() == 1,
            Field::Option => self.open.len() == 2,
            Field::Other => false,
        }
    }

    fn in_options(&self) -> bool {
        self.open.len() == 2 && matches!(self.field, Field::Options | Field::Option) && self.open[1] == b'{'
    }

    fn opens_field(&mut self, byte: u8) -> Result<(), Bad> {
        if !self.is_field() {
            return Ok(());
        }
        self.value_start = self.at;
        match self.field {
            Field::Model => return Err(Bad::ModelIsNoText),
            Field::Prompt => self.found.prompt = true,
            Field::Options if byte == b'{' => {
                self.found.options_twice |= self.found.options.is_some();
                let values = BTreeMap::new();
                self.found.options = Some(Options::Object { inside: self.at + 1, empty: false, values });
            }
            Field::Stream | Field::Messages | Field::Options | Field::Option | Field::Other => {}
        }
        Ok(())
    }

    /// Reads on in a text; what comes back begins behind what was read.
    fn text<'a>(&mut self, rest: &'a [u8], escaped: bool) -> Result<&'a [u8], Bad> {
        let is_key = matches!(self.expect, Expect::InKey { .. });
        let go_on = |escaped| if is_key { Expect::InKey { escaped } } else { Expect::InText { escaped } };
        if escaped {
            self.capture(&rest[..1]);
            self.expect = go_on(false);
            return Ok(self.skip(rest, 1));
        }
        let Some(end) = memchr2(b'"', b'\\', rest) else {
            self.capture(rest);
            return Ok(self.skip(rest, rest.len()));
        };
        self.capture(&rest[..end]);
        if rest[end] == b'\\' {
            self.capture(b"\\");
            self.expect = go_on(true);
            return Ok(self.skip(rest, end + 1));
        }
        let rest = self.skip(rest, end + 1);
        if is_key {
            self.key_ended();
        } else {
            self.text_ended()?;
        }
        Ok(rest)
    }

    fn key_ended(&mut self) {
        self.expect = Expect::Colon;
        if !self.captures {
            return;
        }
        let key = if self.longer { None } else { unescaped(&self.captured) };
        if self.in_options() {
            self.field = Field::Option;
            self.option_key = key.map(Cow::into_owned).unwrap_or_default();
        } else {
            self.field = key.map_or(Field::Other, |key| field(&key));
        }
    }

    fn text_ended(&mut self) -> Result<(), Bad> {
        self.expect = Expect::More;
        if !self.is_field() {
            return Ok(());
        }
        match self.field {
            Field::Model => {
                if self.longer {
                    return Err(Bad::ModelTooLong);
                }
                let name = unescaped(&self.captured).ok_or(Bad::Byte(self.token_start))?.into_owned();
                if self.found.model.replace((name, self.value_start..self.at)).is_some() {
                    return Err(Bad::ModelTwice);
                }
            }
            Field::Prompt => self.found.prompt = !self.captured.is_empty(),
            Field::Option => self.value_ended(self.at),
            Field::Stream | Field::Messages | Field::Options | Field::Other => {}
        }
        Ok(())
    }

    fn scalar_ended(&mut self) -> Result<(), Bad> {
        let text = self.captured.as_slice();
        let fine = self.longer || matches!(text, b"true" | b"false" | b"null") || is_number(text);
        if !fine {
            return Err(Bad::Byte(self.token_start));
        }
        self.expect = Expect::More;
        if !self.is_field() {
            return Ok(());
        }
        match self.field {
            Field::Model if text != b"null" => return Err(Bad::ModelIsNoText),
            Field::Stream => {
                self.found.stream = match text {
                    b"true" => Some(true),
                    b"false" => Some(false),
                    _ => None,
                };
            }
            // Go leaves a text as it was when it reads `null` (encoding/json).
            Field::Prompt => self.found.prompt |= text != b"null",
            Field::Options if text == b"null" => {
                self.found.options_twice |= self.found.options.is_some();
                self.found.options = Some(Options::Null(self.value_start..self.at));
            }
            Field::Option => self.value_ended(self.at),
            Field::Model | Field::Messages | Field::Options | Field::Other => {}
        }
        Ok(())
    }

    /// The value of a key of `options` has ended before this byte.
    fn value_ended(&mut self, end: u64) {
        let shown = if self.longer { String::new() } else { String::from_utf8_lossy(&self.captured).into_owned() };
        if let Some(Options::Object { values, .. }) = &mut self.found.options {
            values.insert(std::mem::take(&mut self.option_key), (self.value_start..end, shown));
        }
    }

    fn begin_value(&mut self, captures: bool) {
        self.token_start = self.at;
        if self.is_field() {
            self.value_start = self.at;
        }
        self.begin_capture(captures);
    }

    fn begin_capture(&mut self, captures: bool) {
        self.captures = captures;
        self.longer = false;
        self.captured.clear();
    }

    fn capture(&mut self, bytes: &[u8]) {
        if !self.captures || self.longer {
            return;
        }
        let is_model = self.field == Field::Model && matches!(self.expect, Expect::InText { .. });
        let room = if is_model { MODEL_BYTES } else { CAPTURED_BYTES }.saturating_sub(self.captured.len());
        self.longer = bytes.len() > room;
        self.captured.extend_from_slice(&bytes[..bytes.len().min(room)]);
    }
}

fn begins_value(byte: u8) -> bool {
    matches!(byte, b'"' | b'[' | b'{' | b't' | b'f' | b'n' | b'-' | b'0'..=b'9')
}

fn ends_scalar(byte: u8) -> bool {
    matches!(byte, b',' | b'}' | b']' | b' ' | b'\n' | b'\r' | b'\t')
}

fn is_number(text: &[u8]) -> bool {
    text.iter().all(|byte| matches!(byte, b'0'..=b'9' | b'-' | b'+' | b'.' | b'e' | b'E'))
        && text.iter().any(u8::is_ascii_digit)
}

fn unescaped(text: &[u8]) -> Option<Cow<'_, str>> {
    if !text.contains(&b'\\') {
        return std::str::from_utf8(text).ok().map(Cow::Borrowed);
    }
    let quoted = [b"\"", text, b"\""].concat();
    serde_json::from_slice(&quoted).ok().map(Cow::Owned)
}

/// The field of a key, in any case: Go folds letters as Unicode does, where `ſ` is an s and the Kelvin sign a k.
fn field(key: &str) -> Field {
    let is = |name: &str| {
        if key.is_ascii() {
            return key.eq_ignore_ascii_case(name);
        }
        let mut folded = key.chars().map(|letter| match letter {
            'ſ' => 's',
            '\u{212a}' => 'k',
            other => other.to_ascii_lowercase(),
        });
        name.chars().all(|letter| folded.next() == Some(letter)) && folded.next().is_none()
    };
    [
        ("model", Field::Model),
        ("stream", Field::Stream),
        ("prompt", Field::Prompt),
        ("messages", Field::Messages),
        ("options", Field::Options),
    ]
    .into_iter()
    .find(|(name, _)| is(name))
    .map_or(Field::Other, |(_, field)| field)
}

#[cfg(test)]
mod tests;
