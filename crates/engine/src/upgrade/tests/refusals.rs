use super::*;
use crate::plan::Refusal as NoRestart;
use crate::upgrade::database::{AfterUndo, AtRollback, Sight, Use, after_undo, at_rollback};
use crate::upgrade::found::{Busy, OddPlace, Unreachable, odd_place};
use crate::upgrade::refusal::Refusal;

#[test]
fn each_refusal_says_what_happened_what_is_unchanged_and_what_to_do() {
    for (code, refusal) in refused() {
        let words = refusal.words();
        assert_eq!(words.code, code, "{words:?}");
        assert!(words.message.ends_with("; nothing was changed"), "{words:?}");
        assert!(!words.hint.is_empty() && words.hint.lines().count() == 1, "{words:?}");
    }
}

#[test]
fn a_version_in_words_is_the_one_that_was_asked_for() {
    let words = refusal(&install(Install::Container { name: "ollama-1".to_owned() }), &newer()).words();
    assert_eq!(words.hint, "run `docker pull ollama/ollama:0.24.0`, then make ollama-1 anew from that image");
    let words = refusal(&install(Install::Manual { program: "/opt/ollama".into() }), &newer()).words();
    assert!(words.hint.contains("OLLAMA_VERSION=0.24.0 sh"), "{words:?}");
}

#[test]
fn a_downgrade_is_planned_when_asked_for() {
    let older = release("0.20.0", Ordering::Less);
    assert_eq!(plan(&app(), &older, &Ask { downgrade: true, ..ask() }).unwrap().order.to, "0.20.0");
}

#[test]
fn the_pinned_version_itself_is_put_in_place() {
    let pinned = Found { pin: Some(TO.to_owned()), ..app() };
    assert!(plan(&pinned, &newer(), &ask()).is_ok());
}

#[test]
fn room_is_needed_for_the_archive_the_new_and_the_old_version_and_the_database() {
    let needed_bytes = 190_000_000 + 4 * 190_000_000 + 600_000_000 + 4_000_000 + (256 << 20);
    let with = |free_bytes| plan(&Found { free_bytes: Known::Is(free_bytes), ..app() }, &newer(), &ask());
    assert!(with(needed_bytes).is_ok());
    assert!(matches!(with(needed_bytes - 1), Err(Refusal::NoSpace { .. })));
}

#[test]
fn a_rollback_by_renames_needs_room_for_the_database_alone() {
    let full = |free_bytes| Found { free_bytes: Known::Is(free_bytes), database: app().database, ..upgraded(app()) };
    assert!(plan_rollback(&full(4_000_000 + (256 << 20)), None, &ask()).is_ok());
    assert!(matches!(plan_rollback(&full(256 << 20), None, &ask()), Err(Refusal::NoSpace { .. })));
}

#[test]
fn an_app_of_apples_or_the_updaters_odd_places_is_told_from_one_that_only_sounds_so() {
    assert_eq!(odd_place("/cache/ollama/backup/Ollama.app".as_ref()), Some(OddPlace::UpdatersBackup));
    assert_eq!(odd_place("/x/AppTranslocation/1/d/Ollama.app".as_ref()), Some(OddPlace::Translocated));
    for path in ["/Volumes/backup/Ollama.app", "/Applications/ollama-backup/Ollama.app", "/Applications/Ollama.app"] {
        assert_eq!(odd_place(path.as_ref()), None, "{path}");
    }
}

#[test]
fn the_database_goes_back_only_if_nobody_used_the_new_version() {
    let sight = |used, now| Sight { used, before: Known::Is(Schema(5)), now };
    let same = || Known::Is(Schema(5));
    let newer = || Known::Is(Schema(6));
    let unread = || Known::unknown("it is locked");
    let somebody = || Use::Somebody("a chat was changed".to_owned());
    let unknown = || Use::Unknown("no log".to_owned());
    assert_eq!(after_undo(false, false, &sight(somebody(), newer())), AfterUndo::Untouched);
    assert_eq!(after_undo(true, false, &sight(Use::Nobody, newer())), AfterUndo::PutBack);
    assert_eq!(after_undo(true, false, &sight(somebody(), same())), AfterUndo::Keep);
    assert_eq!(after_undo(true, false, &sight(somebody(), newer())), AfterUndo::SetAside);
    assert_eq!(after_undo(true, false, &sight(somebody(), unread())), AfterUndo::SetAside);
    assert_eq!(after_undo(true, false, &sight(unknown(), newer())), AfterUndo::SetAside, "unknown counts as used");
    assert_eq!(after_undo(false, true, &sight(Use::Nobody, newer())), AfterUndo::PutBack);
    assert_eq!(
        after_undo(false, true, &sight(somebody(), same())),
        AfterUndo::SetAside,
        "a login started the old app on it"
    );
    assert_eq!(after_undo(true, true, &sight(somebody(), same())), AfterUndo::SetAside);
}

#[test]
fn a_rollback_keeps_the_database_that_the_old_version_can_read_and_else_asks() {
    let form = |number| Known::Is(Schema(number));
    assert_eq!(at_rollback(&form(5), &form(5)), AtRollback::Keep);
    assert_eq!(at_rollback(&form(4), &form(5)), AtRollback::Keep);
    for (now, readable) in [(form(6), form(5)), (Known::unknown("locked"), form(5)), (form(5), Known::unknown("none"))]
    {
        assert!(matches!(at_rollback(&now, &readable), AtRollback::Ask(_)), "{now:?} {readable:?}");
    }
}

/// Every refusal, as it comes from what was found.
fn refused() -> Vec<(&'static str, Refusal)> {
    let found = |change: fn(&mut Found)| {
        let mut found = app();
        change(&mut found);
        refusal(&found, &newer())
    };
    let of = |wanted: Wanted| refusal(&app(), &wanted);
    let unreachable = |why| of(Wanted::Unreachable(why));
    let back = |found: Found, asked| plan_rollback(&found, asked, &ask()).unwrap_err();
    let asset = || "Ollama-darwin.zip".to_owned();
    vec![
        ("upgrade-unknown", found(|found| found.installed = Known::unknown("no Info.plist"))),
        ("upgrade-unknown", found(|found| found.install = Known::unknown("it changed"))),
        ("upgrade-unknown", found(|found| found.rights = Known::unknown("stat failed"))),
        ("ollama-missing", found(|found| found.install = Known::Is(None))),
        ("install-manual", refusal(&install(Install::Manual { program: "/opt/ollama".into() }), &newer())),
        ("install-container", refusal(&install(Install::Container { name: "c".to_owned() }), &newer())),
        ("upgrade-no-restart", found(|found| found.restart = Err(NoRestart::OtherUser { port: 11434 }))),
        ("upgrade-busy", found(|found| found.busy = Some(Busy::Upgrade))),
        ("upgrade-busy", found(|found| found.busy = Some(Busy::Restart))),
        ("upgrade-busy", found(|found| found.busy = Some(Busy::Recovery))),
        ("upgrade-busy", found(|found| found.busy = Some(Busy::Brew))),
        ("no-such-release", of(Wanted::NoSuch { version: "9.9.9".to_owned(), newest: Some(TO.to_owned()) })),
        ("no-such-release", of(Wanted::NoSuch { version: "9.9.9".to_owned(), newest: None })),
        ("release-without-asset", of(Wanted::WithoutAsset { version: TO.to_owned(), asset: asset() })),
        (
            "release-without-asset",
            of(Wanted::Release {
                version: TO.to_owned(),
                against_installed: Known::Is(Ordering::Greater),
                archives: vec![],
            }),
        ),
        ("release-without-hash", of(Wanted::WithoutHash { version: TO.to_owned(), asset: asset() })),
        ("releases-offline", unreachable(Unreachable::Offline)),
        ("releases-proxy", unreachable(Unreachable::Proxy)),
        ("releases-clock", unreachable(Unreachable::Clock)),
        ("releases-rate-limited", unreachable(Unreachable::RateLimited { wait_seconds: Some(61) })),
        ("releases-rate-limited", unreachable(Unreachable::RateLimited { wait_seconds: None })),
        ("releases-unreadable", unreachable(Unreachable::Other("the answer was no JSON".to_owned()))),
        ("upgrade-same", of(release(FROM, Ordering::Equal))),
        ("upgrade-older", of(release("0.20.0", Ordering::Less))),
        (
            "upgrade-unknown",
            of(Wanted::Release {
                version: TO.to_owned(),
                against_installed: Known::unknown("0.0.0 is a build of one's own"),
                archives: vec![],
            }),
        ),
        ("upgrade-pinned", found(|found| found.pin = Some("0.22.1".to_owned()))),
        ("app-translocated", found(|found| found.running_from = Some("/x/AppTranslocation/1/d/Ollama.app".into()))),
        ("app-in-backup", found(|found| found.running_from = Some("/cache/ollama/backup/Ollama.app".into()))),
        (
            "upgrade-folder-denied",
            found(|found| found.rights = Known::Is(Rights::FolderDenied { folder: "/Applications".into() })),
        ),
        (
            "upgrade-foreign-owner",
            found(|found| found.rights = Known::Is(Rights::ForeignOwner { owner: "root".to_owned() })),
        ),
        (
            "upgrade-read-only",
            found(|found| found.rights = Known::Is(Rights::ReadOnly { volume: "/Volumes/a".into() })),
        ),
        ("app-management", found(|found| found.rights = Known::Is(Rights::AppManagement))),
        ("upgrade-no-space", found(|found| found.free_bytes = Known::Is(1 << 30))),
        ("rollback-nothing-kept", back(app(), None)),
        ("rollback-nothing-kept", back(upgraded(app()), Some("0.1.0"))),
        ("upgrade-same", back(upgraded(app()), Some(TO))),
        ("rollback-brew", back(formula(), None)),
        ("rollback-database", back(upgraded(app()), None)),
    ]
}

fn refusal(found: &Found, wanted: &Wanted) -> Refusal {
    plan(found, wanted, &ask()).unwrap_err()
}

fn install(install: Install) -> Found {
    Found { install: Known::Is(Some(install)), ..app() }
}
