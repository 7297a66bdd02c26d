//! The `server config` line: every setting as the server understood it.
//!
//! Its `env` is a Go map of texts, printed as `map[KEY:VALUE KEY:VALUE …]` with the keys in order. Neither keys nor
//! values are quoted in it, so a value may hold a text that looks like the next key. Two facts tell them apart: keys
//! come in strictly rising order, and numbers, switches, durations and lists have a known shape. Of all ways to take
//! the text apart the ones with the most keys are the candidates; a value on which they do not agree is left out, since
//! a wrong value would be worse than none.

use crate::catalogue::{self, Kind};
use stablehand_engine::setting::Name;
use stablehand_engine::time::Wall;
use std::collections::BTreeMap;

/// A `server config` line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigLine {
    /// When it was written.
    pub logged_at: Wall,
    /// How far `logged_at` may lie before the true moment: 1 ms, or a second in old logs.
    pub resolution_ms: u16,
    /// What it shows, in the form of [`catalogue::canonical`]. Proxies are left out, since their addresses may hold
    /// passwords.
    pub values: BTreeMap<Name, String>,
}

/// Why a text is no printed map.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoMap {
    /// Not between `map[` and `]`.
    #[error("the settings of the line are cut off or not between map[ and ]")]
    NotBetweenBrackets,
    /// No key at the beginning.
    #[error("the settings of the line begin with no key")]
    NoKeys,
    /// Far more keys than any server prints.
    #[error("the settings of the line hold too many keys")]
    TooMany,
}

/// The largest number of key-shaped words looked at. A server prints about fifty.
const MOST_CANDIDATES: usize = 600;

/// Takes a printed map apart.
///
/// # Errors
/// [`NoMap`] when it is none.
pub fn values(printed: &str) -> Result<BTreeMap<Name, String>, NoMap> {
    let body = printed.trim().strip_prefix("map[").and_then(|rest| rest.strip_suffix(']'));
    let body = body.ok_or(NoMap::NotBetweenBrackets)?;
    if body.is_empty() {
        return Ok(BTreeMap::new());
    }
    let keys = candidates(body);
    if keys.first().is_none_or(|key| key.begins != 0) {
        return Err(NoMap::NoKeys);
    }
    if keys.len() > MOST_CANDIDATES {
        return Err(NoMap::TooMany);
    }
    Ok(certain(body, &keys)
        .into_iter()
        .filter(|(key, _)| !key.ends_with("_PROXY"))
        .filter_map(|(key, value)| Some((Name::try_new(key).ok()?, catalogue::canonical(key, value))))
        .collect())
}

/// A word that looks like a key.
struct Candidate<'a> {
    name: &'a str,
    begins: usize,
    value_begins: usize,
    kind: Option<Kind>,
}

fn candidates(body: &str) -> Vec<Candidate<'_>> {
    let mut found = Vec::new();
    for colon in memchr::memchr_iter(b':', body.as_bytes()) {
        let begins = body[..colon].rfind(' ').map_or(0, |space| space + 1);
        let name = &body[begins..colon];
        if is_key(name) {
            let kind = catalogue::find(name).map(|entry| entry.kind);
            found.push(Candidate { name, begins, value_begins: colon + 1, kind });
            if found.len() > MOST_CANDIDATES {
                break;
            }
        }
    }
    found
}

/// Upper-case words joined by underscores, or one of the lower-case proxies.
fn is_key(word: &str) -> bool {
    let symbols =
        |word: &str| word.bytes().all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_');
    let upper = word.contains('_') && word.starts_with(|first: char| first.is_ascii_uppercase()) && symbols(word);
    upper || matches!(word, "http_proxy" | "https_proxy" | "no_proxy")
}

/// The keys and values on which all longest readings agree.
///
/// `from_start[i]` is the number of keys in the longest reading that ends with candidate `i`, `to_end[i]` of the one
/// that begins with it. A candidate is in *every* longest reading when it lies on one and no other candidate of such a
/// reading has the same place in it; its value is certain when the next one is, too.
fn certain<'a>(body: &'a str, keys: &[Candidate<'a>]) -> Vec<(&'a str, &'a str)> {
    let count = keys.len();
    let value = |index: usize, next: usize| {
        let ends = keys.get(next).map_or(body.len(), |key| key.begins.saturating_sub(1));
        body.get(keys[index].value_begins..ends)
    };
    let fits = |index: usize, next: usize| {
        let rising = keys.get(next).is_none_or(|key| keys[index].name < key.name);
        rising && value(index, next).is_some_and(|value| has_shape(keys[index].kind, value))
    };
    let mut from_start = vec![0_usize; count];
    from_start[0] = 1;
    for next in 1..count {
        let longest =
            (0..next).filter(|index| from_start[*index] > 0 && fits(*index, next)).map(|index| from_start[index]).max();
        from_start[next] = longest.map_or(0, |longest| longest + 1);
    }
    let mut to_end = vec![0_usize; count];
    for index in (0..count).rev() {
        let after =
            (index + 1..count).filter(|next| to_end[*next] > 0 && fits(index, *next)).map(|next| to_end[next]).max();
        let last = fits(index, count).then_some(0);
        to_end[index] = after.max(last).map_or(0, |after| after + 1);
    }
    let on_a_reading = |index: usize| from_start[index] > 0 && to_end[index] > 0;
    let Some(longest) =
        (0..count).filter(|index| on_a_reading(*index)).map(|index| from_start[index] + to_end[index]).max()
    else {
        return Vec::new();
    };
    let mut at_place: Vec<Vec<usize>> = vec![Vec::new(); longest];
    for index in (0..count).filter(|index| on_a_reading(*index) && from_start[*index] + to_end[*index] == longest) {
        at_place[from_start[index]].push(index);
    }
    let sole = |place: usize| match at_place.get(place).map(Vec::as_slice) {
        Some([only]) => Some(*only),
        Some(_) | None => None,
    };
    let pair = |place: usize| {
        let index = sole(place)?;
        let next = if place + 1 == longest { count } else { sole(place + 1)? };
        Some((keys[index].name, value(index, next)?))
    };
    (1..longest).filter_map(pair).collect()
}

fn has_shape(kind: Option<Kind>, value: &str) -> bool {
    let Some(kind) = kind else { return true };
    if kind.printed_in_brackets() {
        return value.len() >= 2 && value.starts_with('[') && value.ends_with(']');
    }
    !(kind.printed_without_space() && value.contains(' '))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn values_with_spaces_and_lists_stay_whole() {
        let map = "map[LLAMA_ARG_FIT: OLLAMA_DEBUG:INFO OLLAMA_EDITOR:code --wait OLLAMA_FLASH_ATTENTION:false \
                   OLLAMA_HOST:http://127.0.0.1:11434 OLLAMA_MODELS:/Volumes/big disk/models OLLAMA_NUM_PARALLEL:4 \
                   OLLAMA_ORIGINS:[http://a.example:* http://localhost app://*] OLLAMA_REMOTES:[ollama.com x.example] \
                   OLLAMA_SCHED_SPREAD:false http_proxy:http://u:p@h:1 no_proxy:]";
        let values = values(map).unwrap();
        let get = |name: &str| values.get(&Name::try_new(name).unwrap()).map(String::as_str);
        assert_eq!(get("LLAMA_ARG_FIT"), Some(""));
        assert_eq!(get("OLLAMA_EDITOR"), Some("code --wait"));
        assert_eq!(get("OLLAMA_MODELS"), Some("/Volumes/big disk/models"));
        assert_eq!(get("OLLAMA_NUM_PARALLEL"), Some("4"));
        assert_eq!(get("OLLAMA_ORIGINS"), Some("[http://a.example:*]"));
        assert_eq!(get("OLLAMA_REMOTES"), Some("[ollama.com x.example]"));
        assert_eq!(values.len(), 10);
    }

    #[test]
    fn a_key_inside_a_value_is_not_taken_for_one() {
        let text = |editor: &str| {
            let map = format!(
                "map[OLLAMA_DEBUG:INFO OLLAMA_EDITOR:{editor} OLLAMA_FLASH_ATTENTION:false OLLAMA_KEEP_ALIVE:5m0s \
                 OLLAMA_MAX_QUEUE:512 OLLAMA_NUM_PARALLEL:1 OLLAMA_SCHED_SPREAD:false]"
            );
            values(&map).unwrap()
        };
        for editor in [
            "x OLLAMA_NUM_PARALLEL:9",
            "x\nOLLAMA_NUM_PARALLEL:9",
            "x OLLAMA_DEBUG:TRACE",
            "x OLLAMA_FLASH_ATTENTION:true",
            "x OLLAMA_FLASH_ATTENTION:true OLLAMA_KEEP_ALIVE:1s OLLAMA_NUM_PARALLEL:9",
            "]",
            "map[A_B:1]",
        ] {
            let values = text(editor);
            assert_eq!(values[&name("OLLAMA_NUM_PARALLEL")], "1", "{editor}");
            assert_eq!(values[&name("OLLAMA_FLASH_ATTENTION")], "false", "{editor}");
        }
    }

    #[test]
    fn what_cannot_be_decided_is_left_out() {
        // Either the first value is "f16 OLLAMA_LLM_LIBRARY:a" or the second is "a OLLAMA_LLM_LIBRARY:b".
        let map = "map[OLLAMA_KV_CACHE_TYPE:f16 OLLAMA_LLM_LIBRARY:a OLLAMA_LLM_LIBRARY:b OLLAMA_NUM_PARALLEL:2]";
        let values = values(map).unwrap();
        assert_eq!(values.get(&name("OLLAMA_LLM_LIBRARY")), None);
        assert_eq!(values[&name("OLLAMA_NUM_PARALLEL")], "2");
    }

    #[test]
    fn other_texts_are_no_maps() {
        assert_eq!(values("map[OLLAMA_A:1"), Err(NoMap::NotBetweenBrackets));
        assert_eq!(values("[OLLAMA_A:1]"), Err(NoMap::NotBetweenBrackets));
        assert_eq!(values("map[hello OLLAMA_A:1]"), Err(NoMap::NoKeys));
        assert_eq!(values("map[]"), Ok(BTreeMap::new()));
        let endless = format!("map[{}]", "A_B:1 ".repeat(2000));
        assert_eq!(values(&endless), Err(NoMap::TooMany));
    }

    fn name(text: &str) -> Name {
        Name::try_new(text).unwrap()
    }

    fn any_value(kind: Kind) -> BoxedStrategy<String> {
        if kind.printed_in_brackets() {
            proptest::collection::vec("[a-z]{1,8}", 0..4).prop_map(|words| format!("[{}]", words.join(" "))).boxed()
        } else if kind.printed_without_space() {
            "[a-zA-Z0-9:/._-]{0,12}".boxed()
        } else {
            "[a-z0-9:/. -]{0,24}".boxed()
        }
    }

    proptest! {
        #[test]
        fn whatever_the_server_prints_is_read_back(
            chosen in proptest::sample::subsequence(catalogue::entries().iter().collect::<Vec<_>>(), 1..20)
                .prop_flat_map(|entries| {
                    entries.into_iter().map(|entry| (Just(entry.name), any_value(entry.kind))).collect::<Vec<_>>()
                })
        ) {
            let printed: Vec<String> = chosen.iter().map(|(name, value)| format!("{name}:{value}")).collect();
            let read = values(&format!("map[{}]", printed.join(" "))).unwrap();
            prop_assert_eq!(read.len(), chosen.len());
            for (key, value) in chosen {
                let canonical = catalogue::canonical(key, &value);
                prop_assert_eq!(read.get(&name(key)), Some(&canonical));
            }
        }

        #[test]
        fn no_text_makes_the_reader_panic(text in "(map\\[)?[A-Z_:\\[\\] a-zé]{0,200}\\]?") {
            let _ = values(&text);
        }
    }
}
