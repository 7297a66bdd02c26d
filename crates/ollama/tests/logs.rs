//! The log as a whole: files with every kind of line, and files that change while they are read.

#![expect(clippy::expect_used, reason = "a helper of a test fails the test")]

use jiff::tz::TimeZone;
use stablehand_engine::Known;
use stablehand_engine::process::RunnerKind;
use stablehand_engine::setting::Name;
use stablehand_engine::time::Wall;
use stablehand_ollama::log::follower::{Follower, Piece, Polled, Start};
use stablehand_ollama::log::reader::{Limits, Search, last_config_line};
use stablehand_ollama::log::{BufferUse, Line, Parser, SlotEvent};
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::time::Duration;

fn parser() -> Parser {
    Parser::in_zone(TimeZone::UTC)
}

fn lines(text: &str) -> Vec<Line> {
    text.lines().map(|line| parser().line(line.as_bytes())).collect()
}

#[test]
fn every_kind_of_line_is_understood() {
    let lines = lines(include_str!("../fixtures/server.log"));
    let mut lines = lines.iter();
    let mut next = || lines.next().expect("the fixture has this line");
    assert!(
        matches!(next(), Line::SettingIgnored { name, value, used, .. } if name == "OLLAMA_MAX_QUEUE" && value == "-1" && used == "512")
    );
    let Line::Config(config) = next() else { panic!("no config line") };
    assert_eq!(config.logged_at, Wall::from_unix_ms(1_796_019_019_631));
    let value = |name: &str| config.values.get(&Name::try_new(name).expect("a name")).map(String::as_str);
    assert_eq!(value("OLLAMA_NUM_PARALLEL"), Some("4"));
    assert_eq!(value("OLLAMA_MODELS"), Some("/Users/sim/big disk/models"));
    assert_eq!(value("OLLAMA_ORIGINS"), Some("[http://desk.example:*]"));
    assert_eq!(value("HTTP_PROXY"), None);
    assert_eq!(*next(), Line::Other);
    assert!(matches!(next(), Line::Listening { version, .. } if version == "0.33.0"));
    assert_eq!(*next(), Line::Other);
    assert!(
        matches!(next(), Line::Compute { library, description, .. } if library == "Metal" && description == "Apple M3 Max")
    );
    assert!(matches!(next(), Line::DefaultContext { tokens: 262_144, .. }));
    assert!(matches!(next(), Line::Access(access) if access.status == 200 && access.path == "/api/version"));
    assert!(matches!(next(), Line::ForcedToOne { architecture, .. } if architecture == "qwen35"));
    assert!(matches!(next(), Line::Loading { model, .. } if model.ends_with("/blobs/sha256-0a1b")));
    let Line::RunnerStarting { args, .. } = next() else { panic!("no start of a runner") };
    assert_eq!((args.kind, args.port.known(), args.slots.known()), (RunnerKind::LlamaServer, Some(&53411), Some(&1)));
    assert_eq!(args.model, Known::Is("/Users/sim/big disk/models/blobs/sha256-0a1b".to_owned()));
    assert!(
        matches!(next(), Line::Buffer(buffer) if buffer.purpose == BufferUse::Model && buffer.bytes == 2_011_693_056)
    );
    assert!(matches!(next(), Line::Buffer(buffer) if buffer.purpose == BufferUse::KeyValue && buffer.device == "MTL0"));
    assert!(matches!(next(), Line::Buffer(buffer) if buffer.purpose == BufferUse::Compute));
    assert!(matches!(next(), Line::RunnerReady { took: Some(took), .. } if *took == Duration::from_millis(3210)));
    assert!(matches!(next(), Line::RunnersLoaded { count: 1, .. }));
    assert_eq!(*next(), Line::Other);
    let mut events = Vec::new();
    for _ in 0..7 {
        let Line::Slot(slot) = next() else { panic!("no slot line") };
        assert_eq!((slot.slot, slot.task), (0, 3));
        events.push(&slot.event);
    }
    assert_eq!(*events[0], SlotEvent::Launched);
    assert_eq!(*events[1], SlotEvent::PromptMeasured { prompt_tokens: 9120 });
    let SlotEvent::PromptProgress { done_tokens: 6144, share, elapsed, tokens_per_second } = events[2] else {
        panic!()
    };
    assert_eq!((*share, *elapsed, *tokens_per_second), (0.67, Some(Duration::from_millis(3250)), Some(1889.42)));
    assert_eq!(*events[3], SlotEvent::Generating { generated_tokens: 100, tokens_per_second: 17.29 });
    assert!(matches!(events[4], SlotEvent::PromptDone { prompt_tokens: 9120, .. }));
    assert!(matches!(events[5], SlotEvent::GenerationDone { generated_tokens: 120, .. }));
    assert_eq!(*events[6], SlotEvent::Released { context_tokens: 9240, truncated: false });
    assert_eq!(*next(), Line::TaskCancelled { task: 4 });
    assert_eq!(*next(), Line::SlotsIdle);
    assert!(matches!(next(), Line::Access(access) if access.status == 503));
    assert!(matches!(next(), Line::LoadFailed(failure) if failure.out_of_memory && failure.model.is_some()));
    assert!(matches!(next(), Line::RunnerFailed(failure) if !failure.out_of_memory));
    assert!(matches!(next(), Line::OutOfMemory { .. }));
    assert!(matches!(next(), Line::MlxPromptProgress { done_tokens: 2048, prompt_tokens: 8192, .. }));
    assert!(matches!(next(), Line::AddressInUse { address } if address == "127.0.0.1:41873"));
    assert_eq!(lines.next(), None);
}

#[test]
fn a_log_of_an_old_server_is_understood() {
    let lines = lines(include_str!("../fixtures/server.old.log"));
    let Line::Config(config) = &lines[0] else { panic!("no config line") };
    assert_eq!((config.logged_at, config.resolution_ms), (Wall::from_unix_ms(1_740_605_853_000), 1000));
    assert_eq!(config.values[&Name::try_new("OLLAMA_MAX_QUEUE").expect("a name")], "64");
    assert!(matches!(&lines[2], Line::Listening { version, .. } if version == "0.5.12"));
    let Line::RunnerStarting { args, .. } = &lines[3] else { panic!("no start of a runner") };
    assert_eq!(
        (args.kind, args.slots.known(), args.context_tokens.known()),
        (RunnerKind::OllamaRunner, Some(&4), Some(&8192))
    );
    assert!(matches!(lines[4], Line::RunnerReady { .. }));
    assert!(matches!(&lines[5], Line::LoadFailed(failure) if failure.error.contains("signal: killed")));
}

#[test]
fn no_cut_of_a_line_and_no_byte_makes_the_parser_panic() {
    let parser = parser();
    for line in include_str!("../fixtures/server.log").lines().chain(include_str!("../fixtures/server.old.log").lines())
    {
        for end in 0..line.len() {
            let _ = parser.line(&line.as_bytes()[..end]);
            let mut broken = line.as_bytes()[..=end].to_vec();
            broken[end] = 0xff;
            let _ = parser.line(&broken);
        }
    }
}

#[test]
fn the_last_config_line_of_a_file_is_found() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("server.log");
    let mut file = fs::File::create(&path).expect("a file");
    file.write_all(include_bytes!("../fixtures/server.old.log")).expect("written");
    file.write_all(include_bytes!("../fixtures/server.log")).expect("written");
    for _ in 0..20_000 {
        file.write_all(b"slot print_timing: id  0 | task 3 | n_gen = 100, tg = 17.29 t/s\n").expect("written");
    }
    let found = last_config_line(&path, Limits::default(), &parser()).expect("read");
    assert!(matches!(found, Search::Found(line) if line.logged_at == Wall::from_unix_ms(1_796_019_019_631)));
    assert!(last_config_line(&folder.path().join("none"), Limits::default(), &parser()).is_err());
}

#[derive(Debug, PartialEq)]
enum Seen {
    Line(String, u64),
    Rotated,
    Truncated,
}

fn poll(follower: &mut Follower) -> (Vec<Seen>, Polled) {
    let mut seen = Vec::new();
    let polled = follower
        .poll(u64::MAX, |piece| {
            seen.push(match piece {
                Piece::Line { bytes, cut_bytes } => Seen::Line(String::from_utf8_lossy(bytes).into_owned(), cut_bytes),
                Piece::Rotated => Seen::Rotated,
                Piece::Truncated => Seen::Truncated,
            });
        })
        .expect("polled");
    (seen, polled)
}

fn append(path: &Path, text: &[u8]) {
    let mut file = OpenOptions::new().append(true).create(true).open(path).expect("opened");
    file.write_all(text).expect("written");
}

fn line(text: &str) -> Seen {
    Seen::Line(text.to_owned(), 0)
}

#[test]
fn a_growing_file_gives_its_lines_when_they_are_complete() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("server.log");
    let mut follower = Follower::new(&path, Start::Beginning, 100);
    assert_eq!(poll(&mut follower), (vec![], Polled::Missing));
    append(&path, b"one\r\ntw");
    assert_eq!(poll(&mut follower), (vec![line("one")], Polled::CaughtUp));
    append(&path, b"o\n\n\xff\n");
    assert_eq!(poll(&mut follower).0, vec![line("two"), line(""), line("\u{fffd}")]);
    assert_eq!(poll(&mut follower), (vec![], Polled::CaughtUp));
}

#[test]
fn a_follower_from_the_end_begins_with_a_whole_line() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("server.log");
    append(&path, b"old\nhalf");
    let mut follower = Follower::new(&path, Start::End, 100);
    assert_eq!(poll(&mut follower).0, vec![]);
    append(&path, b" of it\nnew\n");
    assert_eq!(poll(&mut follower).0, vec![line("new")]);
    let mut follower = Follower::new(&path, Start::End, 100);
    poll(&mut follower);
    append(&path, b"next\n");
    assert_eq!(poll(&mut follower).0, vec![line("next")]);
}

#[test]
fn a_renamed_file_is_read_to_its_end_before_the_new_one() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("server.log");
    append(&path, b"one\n");
    let mut follower = Follower::new(&path, Start::Beginning, 100);
    poll(&mut follower);
    append(&path, b"two\nlast words");
    fs::rename(&path, folder.path().join("server-1.log")).expect("renamed");
    assert_eq!(poll(&mut follower), (vec![line("two")], Polled::Missing));
    append(&path, b"three\n");
    assert_eq!(poll(&mut follower).0, vec![line("last words"), Seen::Rotated, line("three")]);
}

#[test]
fn a_truncated_file_is_read_from_its_beginning() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("server.log");
    append(&path, b"one\ntwo\nthr");
    let mut follower = Follower::new(&path, Start::Beginning, 100);
    poll(&mut follower);
    fs::write(&path, b"new\n").expect("written");
    assert_eq!(poll(&mut follower).0, vec![Seen::Truncated, line("new")]);
}

#[test]
fn a_line_of_ten_megabytes_is_cut_and_says_so() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("server.log");
    let mut text = vec![b'x'; 10 << 20];
    text.extend_from_slice(b"\nshort\n");
    append(&path, &text);
    let mut follower = Follower::new(&path, Start::Beginning, 1000);
    let (seen, _) = poll(&mut follower);
    assert_eq!(seen, vec![Seen::Line("x".repeat(1000), (10 << 20) - 1000), line("short")]);
}

#[test]
fn a_small_budget_takes_several_polls_and_loses_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("server.log");
    let text: String = (0..50_000).map(|number| format!("line {number}\n")).collect();
    append(&path, text.as_bytes());
    let mut follower = Follower::new(&path, Start::Beginning, 100);
    let (mut count, mut polls) = (0, 0);
    loop {
        polls += 1;
        if follower.poll(70_000, |_| count += 1).expect("polled") == Polled::CaughtUp {
            break;
        }
    }
    assert_eq!(count, 50_000);
    assert!(polls > 2);
}
