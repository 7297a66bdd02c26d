//! `plutil(1)`, of which only checking and conversion to JSON or XML is played.

use crate::wire::Reply;

/// Runs the command.
pub fn run(arguments: &[String]) -> Reply {
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["-lint", files @ ..] => lint(files),
        ["-convert", format @ ("json" | "xml1"), "-o", "-", file] => convert(format, file),
        ["-extract", key, "raw", rest @ ..] => extract(key, rest.last().copied().unwrap_or_default()),
        files if !files.is_empty() && !files[0].starts_with('-') => lint(files),
        _ => Reply::failed(1, "plutil: [command_option] [other_options] file..."),
    }
}

fn lint(files: &[&str]) -> Reply {
    let mut reply = Reply::quiet();
    for file in files.iter().filter(|file| **file != "-s" && **file != "--") {
        match plist::Value::from_file(file) {
            Ok(_) => reply.stdout.push_str(&format!("{file}: OK\n")),
            Err(_) if !std::path::Path::new(file).exists() => {
                reply
                    .stderr
                    .push_str(&format!("{file}: file does not exist or is not readable or is not a regular file\n"));
                reply.code = 1;
            }
            Err(_) => {
                reply.stderr.push_str(&format!(
                    "{file}: Property List error: Unexpected character at line 1 / JSON error: JSON text did not start with array or object and option to allow fragments not set.\n"
                ));
                reply.code = 1;
            }
        }
    }
    reply
}

fn convert(format: &str, file: &str) -> Reply {
    let Ok(value) = plist::Value::from_file(file) else {
        return lint(&[file]);
    };
    let mut bytes = Vec::new();
    let written = if format == "json" {
        serde_json::to_vec(&value).map(|json| bytes = json).is_ok()
    } else {
        value.to_writer_xml(&mut bytes).is_ok()
    };
    if written {
        Reply::said(String::from_utf8_lossy(&bytes).into_owned())
    } else {
        Reply::failed(1, format!("{file}: invalid object in plist for destination format"))
    }
}

fn extract(key: &str, file: &str) -> Reply {
    let value = plist::Value::from_file(file).ok();
    let text =
        value.as_ref().and_then(plist::Value::as_dictionary).and_then(|dictionary| dictionary.get(key)).and_then(
            |value| {
                let text = value.as_string().map(str::to_owned);
                let flag = || value.as_boolean().map(|flag| flag.to_string());
                let number = || value.as_signed_integer().map(|number| number.to_string());
                text.or_else(flag).or_else(number)
            },
        );
    match text {
        Some(text) => Reply::said(format!("{text}\n")),
        None => Reply::failed(
            1,
            format!("{file}: Could not extract value, error: No value at that key path or invalid key path: {key}"),
        ),
    }
}
