//! Texts between double quotes as Go's `strconv.Quote` writes them: the log quotes every value that holds a space.

use std::borrow::Cow;

/// Reads a quoted text whose opening quote has been taken, and gives it with what follows the closing quote.
/// `None` when the closing quote or a part of an escape is missing. Bytes that are no UTF-8 become U+FFFD.
pub fn unquote(text: &str) -> Option<(Cow<'_, str>, &str)> {
    let stop = memchr::memchr2(b'"', b'\\', text.as_bytes())?;
    if text.as_bytes()[stop] == b'"' {
        return Some((Cow::Borrowed(&text[..stop]), &text[stop + 1..]));
    }
    let mut bytes = text.as_bytes()[..stop].to_vec();
    let mut rest = &text[stop..];
    loop {
        let stop = memchr::memchr2(b'"', b'\\', rest.as_bytes())?;
        bytes.extend_from_slice(&rest.as_bytes()[..stop]);
        if rest.as_bytes()[stop] == b'"' {
            let text =
                String::from_utf8(bytes).unwrap_or_else(|bad| String::from_utf8_lossy(bad.as_bytes()).into_owned());
            return Some((Cow::Owned(text), &rest[stop + 1..]));
        }
        rest = escape(&rest[stop + 1..], &mut bytes)?;
    }
}

/// Writes what an escape stands for, and gives what follows it.
fn escape<'a>(text: &'a str, bytes: &mut Vec<u8>) -> Option<&'a str> {
    let symbol = text.chars().next()?;
    let rest = &text[symbol.len_utf8()..];
    let single = match symbol {
        'a' => 0x07,
        'b' => 0x08,
        'f' => 0x0c,
        'n' => b'\n',
        'r' => b'\r',
        't' => b'\t',
        'v' => 0x0b,
        '\\' | '"' | '\'' => u8::try_from(symbol).ok()?,
        'x' => {
            let (code, rest) = hexadecimal(rest, 2)?;
            bytes.push(u8::try_from(code).ok()?);
            return Some(rest);
        }
        'u' | 'U' => {
            let (code, rest) = hexadecimal(rest, if symbol == 'u' { 4 } else { 8 })?;
            let letter = char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER);
            bytes.extend_from_slice(letter.encode_utf8(&mut [0; 4]).as_bytes());
            return Some(rest);
        }
        _ => return None,
    };
    bytes.push(single);
    Some(rest)
}

fn hexadecimal(text: &str, length: usize) -> Option<(u32, &str)> {
    let (code, rest) = text.split_at_checked(length)?;
    let all_hex = code.bytes().all(|byte| byte.is_ascii_hexdigit());
    if all_hex { Some((u32::from_str_radix(code, 16).ok()?, rest)) } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_become_what_they_stand_for() {
        let (text, rest) = unquote(r#"a\"b\\c\n\té\u00e9\U0001F40E\x41" k=v"#).unwrap();
        assert_eq!(text, "a\"b\\c\n\téé🐎A");
        assert_eq!(rest, " k=v");
        assert_eq!(unquote(r#"plain" x"#).unwrap(), (Cow::Borrowed("plain"), " x"));
        assert_eq!(unquote(r#"\xff\xfe""#).unwrap().0, "\u{fffd}\u{fffd}");
    }

    #[test]
    fn a_text_without_its_end_is_none() {
        for text in ["", "abc", r"abc\", r#"abc\""#, r#"\x4""#, r#"\u12"#, r#"\q""#, r#"\xé""#] {
            assert_eq!(unquote(text), None, "{text:?}");
        }
    }
}
