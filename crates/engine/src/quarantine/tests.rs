use super::*;
use crate::time::Wall;

fn mark(value: &str) -> Mark {
    Mark::parse(value.as_bytes()).unwrap()
}

#[test]
fn a_value_is_read_with_its_time_and_its_escaped_agent() {
    let read = mark("0181;6ac3a2c0;Homebrew\\x20Cask;9A7C51D2-0E44-4F0B-8D17-6B2E9C3F5A01");
    assert_eq!(read.flags.to_string(), "0181");
    assert_eq!(read.at, Known::Is(Wall::from_unix_ms(0x6ac3_a2c0 * 1000)));
    assert_eq!(read.agent.as_deref(), Some("Homebrew Cask"));
    assert_eq!(read.event.as_deref(), Some("9A7C51D2-0E44-4F0B-8D17-6B2E9C3F5A01"));
}

#[test]
fn agent_and_event_may_be_missing_and_a_broken_time_costs_the_time_alone() {
    let read = mark("0000;59d84776;MySoftware.app;");
    assert_eq!((read.agent.as_deref(), read.event), (Some("MySoftware.app"), None));
    let read = mark("0083;soon;Safari");
    assert!(read.at.reason().is_some() && read.flags.to_string() == "0083");
    let read = mark("00c1");
    assert!(read.at.reason().is_some() && read.agent.is_none() && read.flags.approved());
    assert!(mark("0081;+1;Safari").at.reason().is_some());
}

#[test]
fn what_has_no_flags_is_no_mark() {
    for value in ["", "81;5f;Safari;", "q/0081;5f;Safari;", "+081;5f;Safari;", "zzzz;5f;Safari;", "00811;5f;;"] {
        assert_eq!(Mark::parse(value.as_bytes()), Err(UnreadableMark::NoFlags(value.to_owned())), "{value:?}");
    }
    assert_eq!(Mark::parse(&[0xff, 0xfe]), Err(UnreadableMark::NotText));
}

#[test]
fn an_agent_cannot_steer_the_terminal() {
    assert_eq!(mark("0081;0;a\\x1b[2Jb\u{7};").agent.as_deref(), Some("a\u{fffd}[2Jb\u{fffd}"));
    assert_eq!(mark("0081;0;a\\xzz\\x2;").agent.as_deref(), Some("a\\xzz\\x2"));
    assert_eq!(mark("0081;0;\\xed\\x95\\x9c;").agent.as_deref(), Some("한"));
}

#[test]
fn flags_are_told_as_far_as_they_are_known() {
    assert_eq!(
        mark("0183;0").flags.meanings().join(", "),
        "downloaded, written by a sandboxed program, not approved by a person, others: 0180"
    );
    assert_eq!(mark("0041;0").flags.meanings().join(", "), "downloaded, approved by a person");
    assert_eq!(mark("0000;0").flags.meanings().join(", "), "not approved by a person");
}

fn found(own: Known<Option<Mark>>, below: &[(&str, Known<Mark>)]) -> Found {
    let below = below.iter().map(|(path, mark)| Marked { path: PathBuf::from(path), mark: mark.clone() }).collect();
    Found { path: PathBuf::from("/A/O.app"), bundle: true, translocated: false, own, below, looked_at: 9 }
}

#[test]
fn the_bundles_own_mark_decides_where_it_has_one() {
    let inside = || ("/A/O.app/p", Known::Is(mark("0181;0")));
    for seen in ["01c1;0", "01c3;0", "01e3;0", "0041;0"] {
        assert_eq!(found(Known::Is(Some(mark(seen))), &[inside()]).verdict(), Verdict::Approved, "{seen}");
    }
    for seen in ["0081;0", "0083;0", "0181;0", "0000;0"] {
        let at = PathBuf::from("/A/O.app");
        assert_eq!(found(Known::Is(Some(mark(seen))), &[]).verdict(), Verdict::WouldBlock { at }, "{seen}");
    }
}

#[test]
fn without_one_the_contents_decide() {
    assert_eq!(found(Known::Is(None), &[]).verdict(), Verdict::Unmarked);
    assert_eq!(found(Known::Is(None), &[("/A/O.app/p", Known::Is(mark("01c1;0")))]).verdict(), Verdict::Approved);
    let below = [("/A/O.app/d", Known::unknown("denied")), ("/A/O.app/p", Known::Is(mark("0181;0")))];
    assert_eq!(found(Known::Is(None), &below).verdict(), Verdict::WouldBlock { at: PathBuf::from("/A/O.app/p") });
}

#[test]
fn what_cannot_be_read_is_never_taken_for_harmless() {
    assert_eq!(found(Known::unknown("denied"), &[]).verdict(), Verdict::Unknown("denied".to_owned()));
    let below = [("/A/O.app/d", Known::unknown("denied")), ("/A/O.app/p", Known::Is(mark("01c1;0")))];
    let unread = found(Known::Is(None), &below);
    assert_eq!(unread.verdict(), Verdict::Unknown("/A/O.app/d: denied".to_owned()));
    assert_eq!((unread.marked(), unread.unreadable().len()), (1, 1));
}

#[test]
fn clearing_checks_before_it_removes_and_proves_after() {
    assert_eq!(found(Known::Is(None), &[]).clearing(), []);
    let steps = found(Known::Is(Some(mark("0181;0"))), &[]).clearing();
    let words: Vec<String> = steps.iter().map(ToString::to_string).collect();
    assert_eq!(
        words,
        [
            "check seal and signer: com.electron.ollama of team 3MU9H2V9Y9",
            "ask macOS whether it accepts the app",
            "remove com.apple.quarantine from 1 files and folders",
            "read all 9 again, to prove that it is gone",
        ]
    );
    // A mark that cannot be read is cleared like any other.
    assert_eq!(found(Known::unknown("no flags"), &[]).clearing().len(), 4);
}
