//! Release notes as plain text. GitHub gives Markdown, in which anything of HTML may stand; it is shown to people in a
//! terminal and on a page, so nothing of it may act there. Markdown itself reads well as it is.

/// The longest notes that are kept.
pub const NOTES_LONGEST_BYTES: usize = 16 << 10;
/// How much is looked at to find them; the rest is cut unread.
const READ_BYTES: usize = 256 << 10;
/// Elements whose text is not for reading.
const UNREAD: [&str; 2] = ["script", "style"];
/// The longest that a tag may be; a `<` that is not closed within it is a plain sign.
const TAG_LONGEST_BYTES: usize = 4 << 10;
/// What stands at the end of notes that were cut.
const CUT: &str = "\n…";

/// The text without HTML and without signs that steer a terminal or turn the direction of writing; at most
/// [`NOTES_LONGEST_BYTES`], cut with a `…`.
pub fn plain(notes: &str) -> String {
    let read = head(notes, READ_BYTES);
    let mut text = String::with_capacity(read.len().min(NOTES_LONGEST_BYTES * 2));
    let mut rest = read;
    let mut whole = read.len() == notes.len();
    while let Some(at) = rest.find(['<', '&']) {
        push(&mut text, &rest[..at]);
        if text.len() > NOTES_LONGEST_BYTES {
            (rest, whole) = ("", false);
            break;
        }
        rest = &rest[at..];
        rest = match markup(rest) {
            Some((read, after)) => {
                push(&mut text, &read);
                after
            }
            None => {
                push(&mut text, &rest[..1]);
                &rest[1..]
            }
        };
    }
    push(&mut text, rest);
    let tidy = without_gaps(&text);
    if tidy.len() <= NOTES_LONGEST_BYTES && whole {
        return tidy;
    }
    let mut cut = head(&tidy, NOTES_LONGEST_BYTES - CUT.len()).trim_end().to_owned();
    cut.push_str(CUT);
    cut
}

/// A comment, element, tag or entity at the beginning: what is read for it, and what follows.
fn markup(text: &str) -> Option<(String, &str)> {
    if text.starts_with('&') {
        return entity(text);
    }
    if let Some(comment) = text.strip_prefix("<!--") {
        return Some((String::new(), after(comment, "-->")));
    }
    let near = head(text, TAG_LONGEST_BYTES);
    let name = near.trim_start_matches('<').trim_start_matches('/');
    let name: String =
        name.chars().take_while(char::is_ascii_alphanumeric).map(|sign| sign.to_ascii_lowercase()).collect();
    let is_tag = name.starts_with(|sign: char| sign.is_ascii_alphabetic());
    let end = near.find('>').filter(|_| is_tag)?;
    // `<https://…>` is Markdown's way to write an address.
    if near[1..end].contains("://") && !near[1..end].contains(' ') {
        return Some((near[1..end].to_owned(), &text[end + 1..]));
    }
    let opens = !near.starts_with("</") && !near[..end].ends_with('/');
    let behind = &text[end + 1..];
    if opens && UNREAD.contains(&name.as_str()) {
        let closing = format!("</{name}");
        return Some((String::new(), after(after_ignoring_case(behind, &closing), ">")));
    }
    let read = match name.as_str() {
        "br" | "p" | "div" | "li" | "tr" | "summary" | "details" => "\n",
        _ => "",
    };
    Some((read.to_owned(), behind))
}

/// What follows the first `mark`; nothing when there is none.
fn after<'a>(text: &'a str, mark: &str) -> &'a str {
    text.split_once(mark).map_or("", |(_, behind)| behind)
}

fn after_ignoring_case<'a>(text: &'a str, mark: &str) -> &'a str {
    let found = text.as_bytes().windows(mark.len()).position(|part| part.eq_ignore_ascii_case(mark.as_bytes()));
    found.map_or("", |at| &text[at + mark.len()..])
}

fn entity(text: &str) -> Option<(String, &str)> {
    let end = head(text, 12).find(';')?;
    let name = &text[1..end];
    let sign = match name {
        "amp" => '&',
        "lt" => '<',
        "gt" => '>',
        "quot" => '"',
        "apos" => '\'',
        "nbsp" => ' ',
        _ => {
            let number = name.strip_prefix('#')?;
            let code = match number.strip_prefix(['x', 'X']) {
                Some(hex) => u32::from_str_radix(hex, 16),
                None => number.parse(),
            };
            char::from_u32(code.ok()?)?
        }
    };
    Some((sign.to_string(), &text[end + 1..]))
}

/// Appends what may be shown.
fn push(text: &mut String, part: &str) {
    text.extend(part.chars().filter(|sign| matches!(sign, '\n' | '\t') || !(sign.is_control() || turns(*sign))));
}

/// Signs without a shape that turn the direction of writing or hide text.
fn turns(sign: char) -> bool {
    matches!(sign, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

/// At most one empty line in a row, none at the ends, no space at the end of a line.
fn without_gaps(text: &str) -> String {
    let mut tidy = String::with_capacity(text.len());
    let mut gap = false;
    for line in text.lines().map(str::trim_end) {
        if line.is_empty() {
            gap = !tidy.is_empty();
            continue;
        }
        if !tidy.is_empty() {
            tidy.push('\n');
        }
        if std::mem::take(&mut gap) {
            tidy.push('\n');
        }
        tidy.push_str(line);
    }
    tidy
}

/// The beginning of a text, of at most so many bytes.
fn head(text: &str, at_most_bytes: usize) -> &str {
    let mut end = text.len().min(at_most_bytes);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}
