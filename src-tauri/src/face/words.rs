//! Words for people, in their language. The page uses the same two files.

use serde_json::Value;
use stablehand_protocol::{Failure, Phrase, PhraseValue};
use std::collections::BTreeMap;

const ENGLISH: &str = include_str!("../../../ui/src/messages/en.json");
const KOREAN: &str = include_str!("../../../ui/src/messages/ko.json");

/// From here on a span is told in minutes.
const LONG_S: f64 = 600.0;

/// The languages that there are words in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Language {
    /// English.
    English,
    /// Korean.
    Korean,
}

impl Language {
    /// The chosen one, else the system's, else English. Both are tags such as `ko`, `ko-KR` or `ko_KR.UTF-8`.
    pub fn of(chosen: Option<&str>, system: Option<&str>) -> Self {
        chosen.and_then(Self::from_tag).or_else(|| system.and_then(Self::from_tag)).unwrap_or(Self::English)
    }

    fn from_tag(tag: &str) -> Option<Self> {
        match tag.split(['-', '_', '.']).next()?.to_ascii_lowercase().as_str() {
            "en" => Some(Self::English),
            "ko" => Some(Self::Korean),
            _ => None,
        }
    }
}

/// The words of one language.
#[derive(Clone, Debug)]
pub struct Words {
    texts: BTreeMap<String, String>,
}

impl Words {
    /// Those of this language.
    pub fn of(language: Language) -> Self {
        let source = match language {
            Language::English => ENGLISH,
            Language::Korean => KOREAN,
        };
        // The files are compiled in, and a test reads them.
        let texts = match serde_json::from_str(source) {
            Ok(Value::Object(map)) => {
                map.into_iter().filter_map(|(key, text)| Some((key, text.as_str()?.to_owned()))).collect()
            }
            Ok(_) | Err(_) => BTreeMap::new(),
        };
        Self { texts }
    }

    /// The text of that key; the key itself when there is none.
    pub fn say(&self, key: &str) -> String {
        self.texts.get(key).map_or(key, String::as_str).to_owned()
    }

    /// The same with `{name}` replaced by its value, for each name.
    pub fn fill(&self, key: &str, values: &[(&str, &str)]) -> String {
        let text = self.say(key);
        let mut filled = String::with_capacity(text.len());
        let mut rest = text.as_str();
        // One pass, so that braces in a value stay what they are.
        while let Some((before, after)) = rest.split_once('{') {
            filled.push_str(before);
            match after.split_once('}') {
                Some((name, tail)) => {
                    match values.iter().find(|(known, _)| *known == name) {
                        Some((_, value)) => filled.push_str(value),
                        None => filled.push_str(&format!("{{{name}}}")),
                    }
                    rest = tail;
                }
                None => {
                    filled.push('{');
                    rest = after;
                }
            }
        }
        filled.push_str(rest);
        filled
    }

    /// What the daemon says, in this language; its own words where there are none here.
    pub fn phrase(&self, phrase: &Phrase) -> String {
        let key = format!("phrase.{}", phrase.code);
        if !self.texts.contains_key(&key) {
            return phrase.words.clone();
        }
        let values: Vec<(&str, String)> =
            phrase.values.iter().map(|(name, value)| (name.as_str(), self.value(name, value))).collect();
        let values: Vec<(&str, &str)> = values.iter().map(|(name, value)| (*name, value.as_str())).collect();
        self.fill(&key, &values)
    }

    fn value(&self, name: &str, value: &PhraseValue) -> String {
        match value {
            PhraseValue::Text(text) => {
                self.texts.get(&format!("phrase.counter.{text}")).cloned().unwrap_or_else(|| text.clone())
            }
            PhraseValue::Number(seconds) if name.ends_with("_s") && *seconds >= LONG_S => {
                self.fill("unit.minutes", &[("count", &format!("{:.0}", (seconds / 60.0).floor()))])
            }
            PhraseValue::Number(seconds) if name.ends_with("_s") => {
                self.fill("unit.seconds", &[("count", &format!("{seconds:.0}"))])
            }
            PhraseValue::Number(number) => format!("{number:.0}"),
        }
    }

    /// A failure of the tray: its code names two texts, `notice.CODE.message` and `notice.CODE.hint`.
    pub fn failure(&self, code: &str, values: &[(&str, &str)]) -> Failure {
        let text = |part: &str| self.fill(&format!("notice.{code}.{part}"), values);
        Failure::new(code, text("message"), text("hint"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn ours(language: Language) -> BTreeMap<String, String> {
        let mut texts = Words::of(language).texts;
        texts.retain(|key, _| key.starts_with("menu.") || key.starts_with("notice.") || key.starts_with("phrase."));
        texts
    }

    fn blanks(text: &str) -> BTreeSet<&str> {
        text.split('{').skip(1).filter_map(|part| part.split_once('}').map(|(name, _)| name)).collect()
    }

    #[test]
    fn both_languages_say_the_same_things_with_the_same_blanks() {
        let (english, korean) = (ours(Language::English), ours(Language::Korean));
        assert!(english.len() > 40);
        assert_eq!(english.keys().collect::<Vec<_>>(), korean.keys().collect::<Vec<_>>());
        for (key, text) in &english {
            assert_eq!(blanks(text), blanks(&korean[key]), "{key}");
        }
    }

    #[test]
    fn the_choice_comes_before_the_system_and_an_unknown_language_is_english() {
        assert_eq!(Language::of(Some("en"), Some("ko-KR")), Language::English);
        assert_eq!(Language::of(None, Some("ko_KR.UTF-8")), Language::Korean);
        assert_eq!(Language::of(Some("fr"), Some("ko")), Language::Korean);
        assert_eq!(Language::of(None, Some("C")), Language::English);
        assert_eq!(Language::of(None, None), Language::English);
    }

    #[test]
    fn blanks_are_filled_once_and_a_value_may_hold_braces() {
        let words = Words { texts: BTreeMap::from([("k".to_owned(), "{a} and {b} {c".to_owned())]) };
        assert_eq!(words.fill("k", &[("a", "{b}"), ("b", "2")]), "{b} and 2 {c");
        assert_eq!(words.fill("missing", &[]), "missing");
    }

    #[test]
    fn what_the_daemon_says_is_said_in_the_language_or_in_its_own_words() {
        let values = BTreeMap::from([
            ("silence_s".to_owned(), PhraseValue::Number(22.0)),
            ("allowed_s".to_owned(), PhraseValue::Number(1200.0)),
        ]);
        let suspect = Phrase { code: "suspect".to_owned(), values, words: "suspect: …".to_owned() };
        assert_eq!(Words::of(Language::English).phrase(&suspect), "silent for 22 s, 20 min are honest");
        assert!(Words::of(Language::Korean).phrase(&suspect).contains("22초"));
        let newer = Phrase { code: "of-a-newer-daemon".to_owned(), ..suspect };
        assert_eq!(Words::of(Language::Korean).phrase(&newer), "suspect: …");
    }

    #[test]
    fn a_failure_has_both_its_texts_in_every_language() {
        for language in [Language::English, Language::Korean] {
            for key in ours(language).keys().filter_map(|key| key.strip_suffix(".message")) {
                let code = key.trim_start_matches("notice.");
                let failure = Words::of(language).failure(code, &[]);
                assert!(!failure.message.starts_with("notice.") && !failure.hint.starts_with("notice."), "{code}");
            }
        }
    }
}
