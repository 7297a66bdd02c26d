//! The page's types are these types: `ui/src/protocol/protocol.ts` is what the Rust types say, byte for byte.
//!
//! `WRITE_TYPES=1` writes the file anew.

use stablehand_protocol::face::{Answer, Ask, View};
use std::path::Path;
use ts_rs::{Config, TS};

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../ui/src/protocol");

#[test]
fn the_types_of_the_page_are_those_of_the_protocol() {
    let fresh = tempfile::tempdir().unwrap();
    // JSON has one kind of number, and the page reads it with `JSON.parse`.
    let config = Config::new().with_large_int("number").with_out_dir(fresh.path());
    View::export_all(&config).unwrap();
    Ask::export_all(&config).unwrap();
    Answer::export_all(&config).unwrap();
    let said = std::fs::read_to_string(fresh.path().join("protocol.ts")).unwrap();
    let page = Path::new(PAGE).join("protocol.ts");
    if std::env::var_os("WRITE_TYPES").is_some() {
        std::fs::create_dir_all(PAGE).unwrap();
        std::fs::write(&page, &said).unwrap();
    }
    let stands = std::fs::read_to_string(&page).unwrap_or_default();
    assert!(stands == said, "ui/src/protocol is not what the protocol says: run this test with WRITE_TYPES=1");
}
