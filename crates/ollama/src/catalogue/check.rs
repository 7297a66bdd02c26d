//! May a person set this? The refusals, each with its reason, and what to write instead.

use super::{Entry, Kind, entries, find, in_force, runner_flag};
use crate::host::HostAddress;
use crate::parse::{self, Signed, signed, stripped, unsigned};
use crate::version::{FIRST_WITH_LLAMA_SERVER, Version};
use stablehand_engine::setting::{Value, Wish};
use std::cmp::Ordering;

/// Why a setting is not taken. Nothing has been changed then.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Refused {
    /// Stable code for programs, kebab-case.
    pub code: &'static str,
    /// What is wrong with it, and that nothing was changed.
    pub message: String,
    /// What to write instead.
    pub hint: String,
}

/// Judges a name and a value against the catalogue and, when it is known, the version of the server.
///
/// # Errors
/// [`Refused`] for a name that the server does not read, a value that it would ignore or misread, one that can harm
/// it, and a setting that this version does not have.
pub fn check(name: &str, value: &str, server_version: Option<&Version>) -> Result<Wish, Refused> {
    let entry = find(name).ok_or_else(|| unknown(name))?;
    let judged =
        Judged { entry, text: value, version: server_version.copied().filter(|version| !version.is_development()) };
    let wish = Value::try_new(value)
        .map_err(|malformed| judged.refuse("malformed-value", &malformed.to_string(), "write it on one line"))?;
    judged.version_has_it()?;
    judged.quotes()?;
    judged.value(stripped(value))?;
    Ok(Wish { value: wish, in_force: in_force(name, value) })
}

/// The name that was probably meant: understood without the `OLLAMA_` prefix, in lower case, with dashes, or misspelt.
pub fn nearest(name: &str) -> Option<&'static str> {
    let upper: String = name
        .trim()
        .chars()
        .map(|symbol| if symbol.is_ascii_alphanumeric() { symbol.to_ascii_uppercase() } else { '_' })
        .collect();
    let forms = [upper.clone(), format!("OLLAMA_{upper}"), format!("LLAMA_ARG_{upper}")];
    if let Some(entry) = forms.iter().find_map(|form| find(form)) {
        return Some(entry.name);
    }
    let distance = |entry: &Entry| forms.iter().map(|form| strsim::osa_distance(form, entry.name)).min();
    let (nearest, distance) = entries()
        .iter()
        .filter_map(|entry| Some((entry.name, distance(entry)?)))
        .min_by_key(|(_, distance)| *distance)?;
    let body = nearest.trim_start_matches("OLLAMA_").trim_start_matches("LLAMA_ARG_");
    (distance <= body.len().div_ceil(3)).then_some(nearest)
}

fn unknown(name: &str) -> Refused {
    let hint = match nearest(name) {
        Some(nearest) => format!("did you mean {nearest}?"),
        None => "list the settings to see every name".to_owned(),
    };
    Refused {
        code: "unknown-setting",
        message: format!(
            "Ollama's server reads no variable of this name, so it would be ignored; nothing was changed: {name}"
        ),
        hint,
    }
}

struct Judged<'a> {
    entry: &'static Entry,
    text: &'a str,
    version: Option<Version>,
}

impl Judged<'_> {
    fn refuse(&self, code: &'static str, why: &str, hint: &str) -> Refused {
        Refused {
            code,
            message: format!("{why}; nothing was changed: {}={}", self.entry.name, self.text.escape_debug()),
            hint: hint.to_owned(),
        }
    }

    fn version_has_it(&self) -> Result<(), Refused> {
        let Some(version) = self.version else { return Ok(()) };
        if let Some(since) = self.entry.since
            && version.cmp_numbers(since) == Ordering::Less
        {
            let why = format!("Ollama reads it from {since} on and this server is {version}, which would ignore it");
            return Err(self.refuse("setting-too-new", &why, &format!("upgrade Ollama to {since} or newer first")));
        }
        if let Some(until) = self.entry.until
            && version.cmp_numbers(until) == Ordering::Greater
        {
            let why = format!("Ollama read it up to {until} and this server is {version}, which ignores it");
            return Err(self.refuse("setting-removed", &why, "leave it out"));
        }
        Ok(())
    }

    fn quotes(&self) -> Result<(), Refused> {
        let trimmed = self.text.trim();
        let is_quote = |symbol: &char| matches!(symbol, '"' | '\'');
        let opening: String = trimmed.chars().take_while(is_quote).collect();
        let closing: String = trimmed.chars().rev().take_while(is_quote).collect();
        let read_by_runner = self.entry.name.starts_with("LLAMA_ARG_");
        if read_by_runner && stripped(self.text) != self.text {
            let why = "llama-server reads it with its quotes and spaces and would not understand it";
            return Err(self.refuse("quoted-value", why, &format!("write {}", stripped(self.text))));
        }
        if opening != closing {
            let why = "a quote stands on one side only";
            return Err(self.refuse("unbalanced-quotes", why, &format!("write {}", stripped(self.text))));
        }
        if stripped(self.text).is_empty() {
            let why = "an empty value is the same as none";
            return Err(self.refuse("empty-value", why, &format!("unset {} instead", self.entry.name)));
        }
        Ok(())
    }

    fn value(&self, text: &str) -> Result<(), Refused> {
        match self.entry.kind {
            Kind::Count { least, most } => self.count(text, least, most),
            Kind::Bytes { most } => self.bytes(text, most),
            Kind::Flag | Kind::FlagShownRaw => self.flag(text),
            Kind::KeepAlive | Kind::LoadTimeout => self.duration(text),
            Kind::Host => self.host(text),
            Kind::Origins => self.origins(text),
            Kind::List => self.list(text),
            Kind::Path => self.path(text),
            Kind::Level => self.level(text),
            Kind::Word { allowed } => self.word(text, allowed),
            Kind::Text => Ok(()),
            Kind::RunnerFlag => self.runner_flag(text),
            Kind::RunnerNumber { least, most } => self.runner_number(text, least, most),
            Kind::RunnerNumbers => text.split(',').try_for_each(|part| self.runner_number(part, 0, 1 << 20)),
        }
    }

    fn count(&self, text: &str, least: u64, most: u64) -> Result<(), Refused> {
        let Some(count) = unsigned(text) else { return Err(self.not_a_number()) };
        if (least..=most).contains(&count) {
            return Ok(());
        }
        Err(match (self.entry.name, count) {
            ("OLLAMA_NUM_PARALLEL", 0) => {
                let why = "Ollama acts on 0 as on 1 but goes on showing 0, so it could never be proved";
                self.refuse("out-of-range", why, "write 1")
            }
            ("OLLAMA_MAX_QUEUE", 0) => {
                let why = "with 0 Ollama can lock itself up at the first unload and answer nothing any more";
                self.refuse("dangerous-value", why, "write 1 or more; 10 keeps the queue short")
            }
            ("OLLAMA_MAX_QUEUE", _) => {
                let why =
                    "Ollama sets aside memory for the whole queue when it starts, and crashes on very large values";
                self.refuse("out-of-range", why, &format!("write {least} to {most}"))
            }
            ("OLLAMA_NUM_PARALLEL", _) => {
                let why = "every parallel request takes a whole context of memory, and no machine here has that much";
                self.refuse("out-of-range", why, &format!("write {least} to {most}"))
            }
            _ => self.refuse(
                "out-of-range",
                &format!("the range is {least} to {most}"),
                &format!("write {least} to {most}"),
            ),
        })
    }

    fn not_a_number(&self) -> Refused {
        let why = format!("Ollama takes digits alone, would ignore this and use {}", self.entry.default);
        self.refuse("ignored-value", &why, &format!("write {}", self.entry.kind.allowed()))
    }

    fn bytes(&self, text: &str, most: u64) -> Result<(), Refused> {
        match unsigned(text) {
            Some(bytes) if bytes <= most => Ok(()),
            Some(_) => Err(self.refuse("out-of-range", &format!("the most is {most} bytes"), "write fewer bytes")),
            None => {
                let refused = self.not_a_number();
                let hint = in_bytes(text).map_or(refused.hint, |bytes| format!("write {bytes}"));
                Err(Refused { hint, ..refused })
            }
        }
    }

    fn flag(&self, text: &str) -> Result<(), Refused> {
        if parse::boolean(text).is_some() {
            return Ok(());
        }
        let why = "Ollama would read this word as true, whatever it says";
        let means_no =
            ["off", "no", "n", "none", "disable", "disabled", "never"].contains(&text.to_ascii_lowercase().as_str());
        let means_no = means_no || text.eq_ignore_ascii_case("false");
        let hint = match (means_no, text.to_ascii_lowercase().as_str()) {
            (true, _) => "write 0 or false".to_owned(),
            (false, "auto" | "default") => format!("unset {} to let Ollama decide", self.entry.name),
            (false, _) => "write 1 or true, or else 0 or false".to_owned(),
        };
        Err(self.refuse("read-as-true", why, &hint))
    }

    fn duration(&self, text: &str) -> Result<(), Refused> {
        let beyond = match signed(text) {
            Signed::Is(seconds) => seconds.unsigned_abs() > i64::MAX.unsigned_abs() / 1_000_000_000,
            Signed::Beyond(_) => true,
            Signed::None => false,
        };
        if beyond {
            let why = "so many seconds are more than Ollama can count, and it would use another number";
            return Err(self.refuse("out-of-range", why, "write -1 for ever"));
        }
        if parse::duration(text).is_some() {
            return Ok(());
        }
        let days = text.strip_suffix('d').and_then(unsigned).and_then(|days| days.checked_mul(24));
        let hint =
            days.map_or_else(|| format!("write it {}", self.entry.kind.allowed()), |hours| format!("write {hours}h"));
        let why = format!("this is no duration, and Ollama would use {} without a word", self.entry.default);
        Err(self.refuse("ignored-value", &why, &hint))
    }

    fn host(&self, text: &str) -> Result<(), Refused> {
        let address = HostAddress::parse(text);
        let refuse = |code, why: &str, hint: &str| Err(self.refuse(code, why, hint));
        if let Some(port) = &address.replaced_port {
            let why = format!("{port:?} is no port, and Ollama would use {} instead", address.port);
            return refuse("ignored-value", &why, "write a port from 1 to 65535");
        }
        if address.scheme != "http" {
            let why = "Ollama's server speaks plain HTTP, whatever the address says";
            return refuse("unsupported-value", why, "write the address without a scheme, like 127.0.0.1:11434");
        }
        if text.contains("://") && !address.names_port {
            let why = "with http:// and no port Ollama uses port 80";
            return refuse("misleading-value", why, &format!("write {}:11434", address.host));
        }
        if !address.path.is_empty() {
            return refuse(
                "misleading-value",
                "Ollama ignores the path when it listens",
                "write address and port alone",
            );
        }
        if address.port == 0 {
            return refuse("out-of-range", "port 0 is a different port at every start", "write a port from 1 to 65535");
        }
        if unsigned(&address.host).is_some() {
            let hint = format!("write 127.0.0.1:{}", address.host);
            return refuse(
                "unsupported-value",
                "a number alone is taken for a host name, and the server would not start",
                &hint,
            );
        }
        if address.host == "*" {
            return refuse("unsupported-value", "* is no address", &format!("write 0.0.0.0:{}", address.port));
        }
        let is_name =
            address.host.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_'));
        if is_name || address.host.parse::<std::net::IpAddr>().is_ok() {
            return Ok(());
        }
        refuse("unsupported-value", "this is no address or host name", "write it like 127.0.0.1:11434")
    }

    fn origins(&self, text: &str) -> Result<(), Refused> {
        // The server does not start with an origin that fails these (gin's CORS middleware panics).
        const SCHEMES: [&str; 6] = [
            "http://",
            "https://",
            "chrome-extension://",
            "safari-extension://",
            "moz-extension://",
            "ms-browser-extension://",
        ];
        for origin in text.split(',') {
            let origin = origin.trim();
            let hint = "write origins like http://example.com:* between commas";
            if origin.is_empty() || origin.contains(char::is_whitespace) {
                return Err(self.refuse("unsupported-value", "an entry of the list is empty or holds a space", hint));
            }
            if origin.matches('*').count() > 1 {
                let why = "with more than one * in an origin Ollama does not start";
                return Err(self.refuse("dangerous-value", why, hint));
            }
            if !origin.contains('*') && !SCHEMES.iter().any(|scheme| origin.starts_with(scheme)) {
                let why = format!(
                    "with an origin that has neither * nor http:// or https:// Ollama does not start ({origin})"
                );
                return Err(self.refuse("dangerous-value", &why, hint));
            }
        }
        if text.contains(char::is_whitespace) {
            let why = "Ollama keeps the spaces around a comma as a part of the origin";
            return Err(self.refuse(
                "misleading-value",
                why,
                &format!("write {}", text.replace(char::is_whitespace, "")),
            ));
        }
        Ok(())
    }

    fn list(&self, text: &str) -> Result<(), Refused> {
        if text.split(',').all(|part| !part.is_empty() && !part.contains(char::is_whitespace)) {
            return Ok(());
        }
        let why = "an entry of the list is empty or holds a space, which Ollama keeps as a part of it";
        Err(self.refuse("unsupported-value", why, "write names between commas, without spaces"))
    }

    fn path(&self, text: &str) -> Result<(), Refused> {
        if text.starts_with('/') {
            return Ok(());
        }
        let why = if text.starts_with('~') {
            "Ollama does not know what ~ is and would make a folder of that name"
        } else {
            "a relative path depends on where the server happens to be started"
        };
        Err(self.refuse("misleading-value", why, "write an absolute path"))
    }

    fn level(&self, text: &str) -> Result<(), Refused> {
        match signed(text) {
            Signed::Is(0..=2) => Ok(()),
            Signed::Is(..0) => {
                let why = "a level below 0 hides the line in which the server shows its settings, and they could not be proved";
                Err(self.refuse("dangerous-value", why, "write 0, 1 or 2"))
            }
            Signed::Is(3..) | Signed::Beyond(_) => {
                Err(self.refuse("out-of-range", "there is nothing beyond level 2", "write 0, 1 or 2"))
            }
            Signed::None if parse::boolean(text).is_some() => Ok(()),
            Signed::None => {
                let why = "Ollama would not understand this and use its normal level";
                Err(self.refuse("ignored-value", why, "write 0, 1 or 2"))
            }
        }
    }

    fn word(&self, text: &str, allowed: &[&str]) -> Result<(), Refused> {
        let list = allowed.join(", ");
        if !allowed.contains(&text) {
            let lower = text.to_ascii_lowercase();
            let hint = match allowed.iter().min_by_key(|word| strsim::osa_distance(word, &lower)) {
                Some(word) if strsim::osa_distance(word, &lower) <= 2 => format!("write {word}; all of them: {list}"),
                Some(_) | None => format!("write one of {list}"),
            };
            let why = "the runner does not know this type, and no model could be loaded";
            return Err(self.refuse("unsupported-value", why, &hint));
        }
        // `ollama fs/ggml/ggml.go` up to 0.24 knows three types and ignores the others.
        let old = self.version.is_some_and(|version| version.cmp_numbers(FIRST_WITH_LLAMA_SERVER) == Ordering::Less);
        if old && !["f16", "q8_0", "q4_0"].contains(&text) {
            let why = "before 0.30 Ollama knows f16, q8_0 and q4_0 and would ignore this";
            return Err(self.refuse("ignored-value", why, "write f16, q8_0 or q4_0"));
        }
        Ok(())
    }

    fn runner_flag(&self, text: &str) -> Result<(), Refused> {
        if runner_flag(text).is_some() {
            return Ok(());
        }
        let why = "llama-server takes on, enabled, true or 1, and off, disabled, false or 0";
        Err(self.refuse("unsupported-value", why, "write 1 or 0"))
    }

    fn runner_number(&self, text: &str, least: i64, most: i64) -> Result<(), Refused> {
        let hint = format!("write {least} to {most}");
        match signed(text) {
            Signed::Is(value) if (least..=most).contains(&value) && !text.starts_with('+') => Ok(()),
            Signed::Is(_) | Signed::Beyond(_) => {
                Err(self.refuse("out-of-range", &format!("the range is {least} to {most}"), &hint))
            }
            Signed::None => {
                let why =
                    "llama-server does not start with anything but a whole number here, and no model could be loaded";
                Err(self.refuse("unsupported-value", why, &hint))
            }
        }
    }
}

/// What a size with a unit is in bytes, for the hint.
fn in_bytes(text: &str) -> Option<u64> {
    let split = text.find(|symbol: char| !symbol.is_ascii_digit())?;
    let (number, unit) = text.split_at(split);
    let factor: u64 = match unit.trim().to_ascii_lowercase().as_str() {
        "k" | "kib" => 1 << 10,
        "m" | "mib" => 1 << 20,
        "g" | "gib" => 1 << 30,
        "kb" => 1_000,
        "mb" => 1_000_000,
        "gb" => 1_000_000_000,
        _ => return None,
    };
    unsigned(number)?.checked_mul(factor)
}
