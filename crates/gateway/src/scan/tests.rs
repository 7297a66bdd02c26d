use super::*;

fn scanned(text: &str) -> Result<Found, Bad> {
    let mut whole = Scanner::default();
    let found = whole.push(text.as_bytes()).and_then(|()| whole.finish());
    // In pieces of every size the same is found.
    for size in 1..=text.len().min(7) {
        let mut pieces = Scanner::default();
        let result = text.as_bytes().chunks(size).try_for_each(|piece| pieces.push(piece));
        assert_eq!(result.and_then(|()| pieces.finish()), found, "{text} in pieces of {size}");
    }
    found
}

fn model(text: &str) -> String {
    let (name, range) = scanned(text).unwrap().model.unwrap();
    let written = &text[usize::try_from(range.start).unwrap()..usize::try_from(range.end).unwrap()];
    assert_eq!(serde_json::from_str::<String>(written).unwrap(), name, "{text}");
    name
}

#[test]
fn the_model_is_found_wherever_and_however_it_is_written() {
    for text in [
        r#"{"model":"m:1b"}"#,
        r#"  { "prompt" : "x" , "model" : "m:1b" , "stream":false}"#,
        r#"{"messages":[{"role":"user","content":"{\"model\":\"other\"}"}],"model":"m:1b"}"#,
        r#"{"a":{"model":"inner"},"b":[{"model":"inner"}],"model":"m:1b"}"#,
        r#"{"MoDeL":"m:1b"}"#,
        r#"{"mod\u0065l":"m\u003a1b"}"#,
        r#"{"model":null,"model":"m:1b"}"#,
        r#"{"options":{"model":"inner","num_ctx":1},"model":"m:1b"} and more"#,
        "{\"context\":[1,2,-3.5e+2],\"a\":[],\"b\":{},\"c\":true,\n\t\"model\":\"m:1b\"}\r\n",
    ] {
        assert_eq!(model(text), "m:1b", "{text}");
    }
}

#[test]
fn what_makes_a_request_one_for_a_load_is_seen() {
    let found = |text| {
        let found = scanned(text).unwrap();
        (found.prompt, found.messages)
    };
    assert_eq!(found(r#"{"model":"m","keep_alive":0}"#), (false, false));
    assert_eq!(found(r#"{"model":"m","prompt":""}"#), (false, false));
    assert_eq!(found(r#"{"model":"m","prompt":null,"messages":null}"#), (false, false));
    assert_eq!(found(r#"{"model":"m","prompt":"hi","prompt":null}"#), (true, false), "it stays as it was");
    assert_eq!(found(r#"{"model":"m","prompt":"hi","prompt":""}"#), (false, false));
    assert_eq!(found(r#"{"model":"m","messages":[ ]}"#), (false, false));
    assert_eq!(found(r#"{"model":"m","prompt":"\n"}"#), (true, false));
    assert_eq!(found(r#"{"model":"m","prompt":["a"]}"#), (true, false));
    assert_eq!(found(r#"{"model":"m","messages":[{"role":"user","content":""}]}"#), (false, true));
    let long = format!(r#"{{"prompt":"{}","model":"m"}}"#, "x".repeat(100_000));
    let mut scanner = Scanner::default();
    scanner.push(long.as_bytes()).unwrap();
    assert!(scanner.finish().unwrap().prompt);
}

#[test]
fn whether_it_streams_is_seen_at_the_top_alone() {
    assert_eq!(scanned(r#"{"stream":true,"a":{"stream":false}}"#).unwrap().stream, Some(true));
    assert_eq!(scanned(r#"{"stream":false}"#).unwrap().stream, Some(false));
    assert_eq!(scanned(r#"{"stream":null}"#).unwrap().stream, None);
    assert_eq!(scanned(r"{}").unwrap().stream, None);
}

#[test]
fn options_are_found_with_their_places() {
    let text = r#"{"options":{"temperature":0.5,"num_ctx": 4096 ,"stop":["a","b"],"x":{"num_ctx":1}},"model":"m"}"#;
    let found = scanned(text).unwrap();
    let Some(Options::Object { inside, empty: false, values }) = found.options else { panic!() };
    assert_eq!(&text[..usize::try_from(inside).unwrap()], r#"{"options":{"#);
    let written = |key: &str| {
        let range = &values[key].0;
        text[usize::try_from(range.start).unwrap()..usize::try_from(range.end).unwrap()].trim()
    };
    assert_eq!(written("num_ctx"), "4096");
    assert_eq!(written("stop"), r#"["a","b"]"#);
    assert_eq!(written("x"), r#"{"num_ctx":1}"#);
    assert_eq!(values["num_ctx"].1, "4096");
    assert_eq!(values.len(), 4);
    let Some(Options::Object { empty: true, .. }) = scanned(r#"{"options":{ }}"#).unwrap().options else { panic!() };
    assert_eq!(scanned(r#"{"options":null}"#).unwrap().options, Some(Options::Null(11..15)));
    assert!(scanned(r#"{"options":{},"options":{"num_ctx":1}}"#).unwrap().options_twice);
}

#[test]
fn what_is_no_object_with_one_model_is_refused() {
    for (text, bad) in [
        ("", Bad::Missing),
        ("  \n", Bad::Missing),
        ("hello", Bad::Byte(0)),
        ("[]", Bad::NotAnObject),
        ("\"model\"", Bad::NotAnObject),
        ("null", Bad::NotAnObject),
        ("{", Bad::Unfinished),
        (r#"{"model":"m""#, Bad::Unfinished),
        (r#"{"model":"m"#, Bad::Unfinished),
        (r#"{"model" "m"}"#, Bad::Byte(9)),
        (r#"{"model":"m",}"#, Bad::Byte(13)),
        (r#"{"model":"m"]"#, Bad::Byte(12)),
        (r#"{"a":tru,"model":"m"}"#, Bad::Byte(5)),
        (r#"{"a":1 2}"#, Bad::Byte(7)),
        (r#"{"a":--}"#, Bad::Byte(5)),
        (r#"{"model":"a","model":"b"}"#, Bad::ModelTwice),
        (r#"{"model":"a","Model":"b"}"#, Bad::ModelTwice),
        (r#"{"model":5}"#, Bad::ModelIsNoText),
        (r#"{"model":["m"]}"#, Bad::ModelIsNoText),
    ] {
        assert_eq!(scanned(text), Err(bad), "{text}");
    }
    let long = format!(r#"{{"model":"{}"}}"#, "m".repeat(MODEL_BYTES + 1));
    assert_eq!(Scanner::default().push(long.as_bytes()), Err(Bad::ModelTooLong));
    let deep = format!(r#"{{"a":{}"#, "[".repeat(DEPTH_AT_MOST));
    assert_eq!(Scanner::default().push(deep.as_bytes()), Err(Bad::TooDeep));
}
