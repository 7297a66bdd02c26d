//! Files of `EnvironmentFile=` (`systemd.exec(5)`): close to a shell's assignments, and not the syntax of a unit.

/// Reads the assignments of an environment file, in order. Lines that assign nothing are passed over, as systemd does.
pub fn parse(text: &str) -> Vec<(String, String)> {
    let mut pairs = Vec::new();
    let mut chars = text.chars().peekable();
    while let Some(name) = name(&mut chars) {
        let value = value(&mut chars);
        if is_name(&name) {
            pairs.push((name, value));
        }
    }
    pairs
}

type Chars<'a> = std::iter::Peekable<std::str::Chars<'a>>;

/// The text before the next `=`, with comments and lines without one passed over.
fn name(chars: &mut Chars<'_>) -> Option<String> {
    loop {
        while chars.next_if(|char| char.is_whitespace()).is_some() {}
        let first = *chars.peek()?;
        let mut name = String::new();
        let comment = first == '#' || first == ';';
        loop {
            match chars.next() {
                Some('\n') => break,
                Some('=') if !comment => return Some(name.trim().to_owned()),
                Some(char) => name.push(char),
                None => return None,
            }
        }
    }
}

/// The text after `=` to the end of the line: quotes taken away, white space around it cut off.
fn value(chars: &mut Chars<'_>) -> String {
    while chars.next_if(|char| *char == ' ' || *char == '\t').is_some() {}
    let mut value = String::new();
    // White space outside of quotes counts only when something follows it.
    let mut kept = 0;
    while let Some(char) = chars.next() {
        match char {
            '\n' => break,
            '\'' => {
                value.extend(std::iter::from_fn(|| chars.next().filter(|char| *char != '\'')));
                kept = value.len();
            }
            '"' => {
                double_quoted(chars, &mut value);
                kept = value.len();
            }
            '\\' => {
                // Before a line break it joins two lines.
                if let Some(next) = chars.next().filter(|next| *next != '\n') {
                    value.push(next);
                }
                kept = value.len();
            }
            white if white.is_whitespace() => value.push(white),
            other => {
                value.push(other);
                kept = value.len();
            }
        }
    }
    value.truncate(kept);
    value
}

fn double_quoted(chars: &mut Chars<'_>, value: &mut String) {
    while let Some(char) = chars.next() {
        match char {
            '"' => return,
            '\\' => match chars.next() {
                Some(escaped @ ('"' | '\\' | '`' | '$')) => value.push(escaped),
                Some('\n') | None => {}
                Some(other) => value.extend(['\\', other]),
            },
            other => value.push(other),
        }
    }
}

fn is_name(text: &str) -> bool {
    let body = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    text.bytes().all(body) && text.bytes().next().is_some_and(|byte| !byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read_as_systemd_reads_them() {
        let text = "A=7\n# c\n; d=1\nB=\"a b\" \nC=a\\b\nD='x \"y'\nexport E=1\nno assignment\n F = x  y \nG=\n\
                    H=\"a\\\"b\\n\"\nI=one\\\ntwo\nJ=a\"b\"'c'\n\nK=last";
        let pairs = parse(text);
        let pairs: Vec<_> = pairs.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        assert_eq!(
            pairs,
            [
                ("A", "7"),
                ("B", "a b"),
                ("C", "ab"),
                ("D", "x \"y"),
                ("F", "x  y"),
                ("G", ""),
                ("H", "a\"b\\n"),
                ("I", "onetwo"),
                ("J", "abc"),
                ("K", "last"),
            ]
        );
    }
}
