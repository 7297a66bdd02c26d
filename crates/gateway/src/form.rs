//! The field `model` of a form with files (RFC 7578, RFC 2046 §5.1.1).

use crate::scan::Found;
use crate::sending::Kept;
use http::HeaderValue;
use memchr::memmem;

/// The longest head of a part.
const HEAD_BYTES: usize = 8 << 10;
/// The longest name of a model.
const MODEL_BYTES: usize = 1_024;

/// The text between the parts, from `multipart/form-data; boundary=…`.
pub fn boundary(content_type: Option<&HeaderValue>) -> Option<String> {
    let content_type = content_type?.to_str().ok()?;
    let (kind, parameters) = content_type.split_once(';')?;
    if !kind.trim().eq_ignore_ascii_case("multipart/form-data") {
        return None;
    }
    let boundary = parameters.split(';').find_map(|parameter| {
        let (name, value) = parameter.split_once('=')?;
        name.trim().eq_ignore_ascii_case("boundary").then(|| value.trim().trim_matches('"').to_owned())
    })?;
    (1..=70).contains(&boundary.len()).then_some(boundary)
}

/// Finds the model. The body is put into one piece for that.
pub fn read(kept: &mut Kept, boundary: &str) -> Result<Found, &'static str> {
    let body = kept.whole();
    let delimiter = format!("\r\n--{boundary}");
    let first = &delimiter.as_bytes()[2..];
    let mut at = if body.starts_with(first) {
        first.len()
    } else {
        memmem::find(&body, delimiter.as_bytes()).ok_or("the body is no multipart form: it has no part")?
            + delimiter.len()
    };
    let mut found = Found { prompt: true, messages: true, ..Found::default() };
    while !body[at..].starts_with(b"--") {
        let head_end = memmem::find(&body[at..body.len().min(at + HEAD_BYTES)], b"\r\n\r\n")
            .ok_or("a part of the form has no end of its head")?;
        let head = &body[at..at + head_end];
        let start = at + head_end + 4;
        let end = start
            + memmem::find(&body[start..], delimiter.as_bytes()).ok_or("the form ends in the middle of a part")?;
        if names_model(head) {
            if end - start > MODEL_BYTES {
                return Err("the name of the model is too long");
            }
            let name = std::str::from_utf8(&body[start..end]).map_err(|_| "the name of the model is no text")?;
            if found.model.replace((name.to_owned(), start as u64..end as u64)).is_some() {
                return Err("the form names a model twice");
            }
        }
        at = end + delimiter.len();
    }
    Ok(found)
}

fn names_model(head: &[u8]) -> bool {
    let head = String::from_utf8_lossy(head);
    head.lines().any(|line| {
        let Some((name, value)) = line.split_once(':') else { return false };
        name.trim().eq_ignore_ascii_case("content-disposition")
            && value.split(';').any(|parameter| {
                let parameter = parameter.trim();
                parameter == "name=\"model\"" || parameter == "name=model"
            })
            && !value.split(';').any(|parameter| parameter.trim().starts_with("filename"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    fn form(text: &str) -> Result<Option<String>, &'static str> {
        let mut kept = Kept::new();
        for piece in text.as_bytes().chunks(7) {
            kept.push(Bytes::copy_from_slice(piece));
        }
        let found = read(&mut kept, "x1")?;
        if let Some((name, range)) = &found.model {
            assert_eq!(kept.copy(range.clone()), name.as_bytes());
        }
        Ok(found.model.map(|(name, _)| name))
    }

    #[test]
    fn the_model_is_the_field_of_that_name() {
        let file =
            "--x1\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a.wav\"\r\n\r\nname=\"model\"\r\n";
        let model = "--x1\r\ncontent-disposition: form-data; name=\"model\"\r\n\r\nwhisper:1b\r\n";
        assert_eq!(form(&format!("{file}{model}--x1--\r\n")), Ok(Some("whisper:1b".to_owned())));
        assert_eq!(form(&format!("{model}{file}--x1--\r\n")), Ok(Some("whisper:1b".to_owned())));
        assert_eq!(form(&format!("{file}--x1--")), Ok(None));
        assert!(form(&format!("{model}{model}--x1--")).is_err());
        assert!(form(model).is_err(), "it has no end");
        assert!(form("").is_err());
    }

    #[test]
    fn the_boundary_is_read_from_the_content_type() {
        let of = |text: &'static str| boundary(Some(&HeaderValue::from_static(text)));
        assert_eq!(of("multipart/form-data; boundary=x1").as_deref(), Some("x1"));
        assert_eq!(of("Multipart/Form-Data; charset=utf-8; boundary=\"x 1\"").as_deref(), Some("x 1"));
        assert_eq!(of("application/json"), None);
        assert_eq!(of("multipart/form-data; boundary="), None);
    }
}
