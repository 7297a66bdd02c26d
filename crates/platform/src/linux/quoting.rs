//! The quoting of systemd: words in unit files (`systemd.syntax(7)`) and in the output of `systemctl show`.
//!
//! Both split at white space, know `"…"` and `'…'` anywhere in a word, and read C escapes inside and outside of
//! quotes. `show` also puts a backslash before `$` and the backtick, as a shell would; reading takes either.

/// Why a text has no words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unquotable {
    /// A quote is never closed.
    #[error("a quote is never closed")]
    OpenQuote,
    /// The text ends in a backslash, or an escape is not one that systemd knows.
    #[error("an unknown escape: \\{0}")]
    Escape(String),
    /// Escaped bytes that are no UTF-8.
    #[error("escaped bytes are no UTF-8")]
    NotUtf8,
    /// A specifier such as `%h`, which only systemd can resolve.
    #[error("the specifier %{0} is known to systemd alone")]
    Specifier(char),
}

/// Splits a line into words and takes quotes and escapes away.
///
/// # Errors
/// [`Unquotable`] where systemd would ignore the line.
pub fn words(line: &str) -> Result<Vec<String>, Unquotable> {
    let mut words = Vec::new();
    let mut word: Option<Vec<u8>> = None;
    let mut quote = None;
    let mut chars = line.chars().peekable();
    while let Some(char) = chars.next() {
        match (quote, char) {
            (None, ' ' | '\t' | '\n' | '\r') => {
                if let Some(word) = word.take() {
                    words.push(utf8(word)?);
                }
            }
            (None, '"' | '\'') => {
                quote = Some(char);
                word.get_or_insert_default();
            }
            (Some(open), _) if open == char => quote = None,
            (_, '\\') => unescape(&mut chars, word.get_or_insert_default())?,
            (_, _) => push(word.get_or_insert_default(), char),
        }
    }
    if quote.is_some() {
        return Err(Unquotable::OpenQuote);
    }
    if let Some(word) = word {
        words.push(utf8(word)?);
    }
    Ok(words)
}

/// Takes the doubling of `%` away, as a unit file needs it.
///
/// # Errors
/// [`Unquotable::Specifier`] for any other `%`.
pub fn without_specifiers(word: &str) -> Result<String, Unquotable> {
    let mut plain = String::with_capacity(word.len());
    let mut chars = word.chars();
    while let Some(char) = chars.next() {
        if char == '%' {
            match chars.next() {
                Some('%') => {}
                Some(other) => return Err(Unquotable::Specifier(other)),
                None => {}
            }
        }
        plain.push(char);
    }
    Ok(plain)
}

/// A text as one quoted word of a unit file: quotes, backslashes and control characters escaped, `%` doubled.
pub fn quoted(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for char in text.chars() {
        match char {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '%' => quoted.push_str("%%"),
            '\t' => quoted.push_str("\\t"),
            control if control.is_ascii_control() => quoted.push_str(&format!("\\x{:02x}", u32::from(control))),
            other => quoted.push(other),
        }
    }
    quoted.push('"');
    quoted
}

/// `NAME=VALUE` in two.
pub fn assignment(word: &str) -> Option<(&str, &str)> {
    word.split_once('=').filter(|(name, _)| !name.is_empty())
}

fn unescape(chars: &mut std::iter::Peekable<std::str::Chars<'_>>, word: &mut Vec<u8>) -> Result<(), Unquotable> {
    let Some(kind) = chars.next() else { return Err(Unquotable::Escape(String::new())) };
    match kind {
        'a' => word.push(7),
        'b' => word.push(8),
        't' => word.push(b'\t'),
        'n' => word.push(b'\n'),
        'v' => word.push(11),
        'f' => word.push(12),
        'r' => word.push(b'\r'),
        's' => word.push(b' '),
        '\\' | '"' | '\'' | '$' | '`' => push(word, kind),
        'x' => {
            let value = number(chars, kind, "", 2, 16)?;
            word.push(u8::try_from(value).map_err(|_| Unquotable::Escape(format!("x{value:x}")))?);
        }
        'u' | 'U' => {
            let digits = if kind == 'u' { 4 } else { 8 };
            let value = number(chars, kind, "", digits, 16)?;
            push(word, char::from_u32(value).ok_or_else(|| Unquotable::Escape(format!("{kind}{value:x}")))?);
        }
        '0'..='7' => {
            let value = number(chars, kind, &kind.to_string(), 3, 8)?;
            word.push(u8::try_from(value).map_err(|_| Unquotable::Escape(format!("{value:o}")))?);
        }
        other => return Err(Unquotable::Escape(other.to_string())),
    }
    Ok(())
}

/// Exactly `digits` digits, of which `begun` are already read.
fn number(
    chars: &mut std::iter::Peekable<std::str::Chars<'_>>,
    kind: char,
    begun: &str,
    digits: usize,
    radix: u32,
) -> Result<u32, Unquotable> {
    let mut text = begun.to_owned();
    while text.len() < digits {
        match chars.next_if(|char| char.is_digit(radix)) {
            Some(digit) => text.push(digit),
            None => return Err(Unquotable::Escape(format!("{kind}{text}"))),
        }
    }
    match u32::from_str_radix(&text, radix) {
        Ok(value) if value != 0 => Ok(value),
        Ok(_) | Err(_) => Err(Unquotable::Escape(format!("{kind}{text}"))),
    }
}

fn push(word: &mut Vec<u8>, char: char) {
    word.extend_from_slice(char.encode_utf8(&mut [0; 4]).as_bytes());
}

fn utf8(word: Vec<u8>) -> Result<String, Unquotable> {
    String::from_utf8(word).map_err(|_| Unquotable::NotUtf8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_split_and_freed_of_quotes_and_escapes() {
        let line = r#"A=1 "B=x y" 'C=it\'s' D="x y"z "E=\"\\\$\`" F=\x41\101\u00e9\s. G= "" "#;
        let expected = ["A=1", "B=x y", "C=it's", "D=x yz", "E=\"\\$`", "F=AA\u{e9} .", "G=", ""];
        assert_eq!(words(line).unwrap(), expected);
    }

    #[test]
    fn what_systemd_ignores_has_no_words() {
        assert_eq!(words("\"A=1"), Err(Unquotable::OpenQuote));
        assert_eq!(words(r"A=a\qb"), Err(Unquotable::Escape("q".to_owned())));
        assert_eq!(words(r"A=\x4"), Err(Unquotable::Escape("x4".to_owned())));
        assert_eq!(words(r"A=\000"), Err(Unquotable::Escape("0000".to_owned())));
        assert_eq!(words("A=\\"), Err(Unquotable::Escape(String::new())));
        assert_eq!(words(r"A=\xff"), Err(Unquotable::NotUtf8));
    }

    #[test]
    fn a_quoted_text_reads_back_as_itself() {
        for text in ["OLLAMA_A=1", "A=a\"b'c\\d%e$f`g  h\ti!#;\u{e9}", "A=%%h", "A=\u{1}", "A=", "A= x "] {
            let read = words(&quoted(text)).unwrap();
            assert_eq!(read.len(), 1);
            assert_eq!(without_specifiers(&read[0]).unwrap(), text);
        }
    }

    #[test]
    fn a_specifier_is_not_guessed() {
        assert_eq!(without_specifiers("A=%h"), Err(Unquotable::Specifier('h')));
        assert_eq!(without_specifiers("A=50%%").unwrap(), "A=50%");
    }
}
