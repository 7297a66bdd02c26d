use super::*;
use crate::upgrade::deed::{Phase, Step};
use crate::upgrade::kept::{against_pin, retain, to_roll_back_to};
use std::path::PathBuf;

#[test]
fn an_app_is_fetched_checked_and_staged_before_the_stop_and_moved_in_by_two_renames() {
    let plan = plan(&app(), &newer(), &ask()).unwrap();
    assert_eq!(plan.to_string(), "upgrade of Ollama from 0.22.1 to 0.24.0");
    assert_eq!(
        printed(&plan),
        "download https://releases.example/v0.24.0/Ollama-darwin.zip (190 MB)
compare its SHA-256 with the release's
unpack it to /data/upgrades/17/new/Ollama.app
check seal, signer (team 3MU9H2V9Y9) and notarisation of /data/upgrades/17/new/Ollama.app
check that it is 0.24.0
clear com.apple.quarantine on /data/upgrades/17/new/Ollama.app, and prove that it is gone
stop Ollama through app, wait until port 11434 is free
take the built-in updater's /cache/updates/a/Ollama-darwin.zip and /cache/backup/Ollama.app out of its way
copy settings and chats (/app/db.sqlite) to /data/kept/0.22.1-17.sqlite
move /Applications/Ollama.app to /data/kept/0.22.1-17
move /data/upgrades/17/new/Ollama.app to /Applications/Ollama.app, and sync its folder
start 0.24.0 through app
prove 0.24.0: version, settings in force, command line, one generation
commit: keep 0.22.1 in /data/kept/0.22.1-17 for a rollback"
    );
}

#[test]
fn a_cask_is_left_to_homebrew_with_a_copy_beside_and_checked_where_it_lies() {
    let plan = plan(&cask(), &newer(), &ask()).unwrap();
    assert_eq!(
        printed(&plan),
        "let Homebrew download the cask ollama-app
copy 0.22.1 to /data/kept/0.22.1-17
stop Ollama through app, wait until port 11434 is free
take the built-in updater's /cache/updates/a/Ollama-darwin.zip and /cache/backup/Ollama.app out of its way
copy settings and chats (/app/db.sqlite) to /data/kept/0.22.1-17.sqlite
let Homebrew upgrade the cask ollama-app
check version, seal, signer (team 3MU9H2V9Y9) and notarisation of /Applications/Ollama.app
clear com.apple.quarantine on /Applications/Ollama.app, and prove that it is gone
start 0.24.0 through app
prove 0.24.0: version, settings in force, command line, one generation
commit: keep 0.22.1 in /data/kept/0.22.1-17 for a rollback"
    );
}

#[test]
fn a_formula_is_left_to_homebrew_and_proved() {
    let found = formula();
    assert_eq!(
        printed(&plan(&found, &newer(), &ask()).unwrap()),
        "let Homebrew download the formula ollama
stop Ollama through brew, wait until port 11434 is free
let Homebrew upgrade the formula ollama
start 0.24.0 through brew
prove 0.24.0: version, settings in force, command line, one generation
commit"
    );
}

#[test]
fn a_tarball_is_unpacked_beside_the_old_version_and_a_link_is_switched() {
    let plan = plan(&tarball(false), &newer(), &ask()).unwrap();
    assert!(plan.order.polkit);
    assert_eq!(
        printed(&plan),
        "download https://releases.example/v0.24.0/Ollama-darwin.zip (190 MB)
compare its SHA-256 with the release's
unpack it to /data/kept/0.24.0-17
check that it is 0.24.0
copy 0.22.1 to /data/kept/0.22.1-17
stop Ollama through systemd, wait until port 11434 is free
make /usr/local/bin/ollama a link to 0.24.0 in /data/kept/0.24.0-17, in one go
start 0.24.0 through systemd
prove 0.24.0: version, settings in force, command line, one generation
commit: keep 0.22.1 in /data/kept/0.22.1-17 for a rollback, remove /usr/local/lib/ollama"
    );
}

#[test]
fn a_rollback_moves_the_kept_version_in_and_stays_on_it() {
    let found = Found { database: app().database, ..upgraded(app()) };
    let plan = plan_rollback(&found, None, &ask()).unwrap();
    assert_eq!(plan.order.pin.as_deref(), Some(FROM));
    assert_eq!(
        printed(&plan),
        "check seal, signer (team 3MU9H2V9Y9) and notarisation of /data/kept/0.22.1-9
check that it is 0.22.1
clear com.apple.quarantine on /data/kept/0.22.1-9, and prove that it is gone
stop Ollama through app, wait until port 11434 is free
take the built-in updater's /cache/updates/a/Ollama-darwin.zip and /cache/backup/Ollama.app out of its way
copy settings and chats (/app/db.sqlite) to /data/kept/0.24.0-17.sqlite
move /Applications/Ollama.app to /data/kept/0.24.0-17
move /data/kept/0.22.1-9 to /Applications/Ollama.app, and sync its folder
start 0.22.1 through app
prove 0.22.1: version, settings in force, command line, one generation
commit: keep 0.24.0 in /data/kept/0.24.0-17 for a rollback, stay on 0.22.1 until `stablehand pin --off`, remove \
/data/kept/0.22.1-9.sqlite"
    );
}

#[test]
fn a_database_that_the_old_version_can_not_read_is_set_aside_when_a_person_agrees() {
    let agreed = Ask { set_database_aside: true, ..ask() };
    let plan = plan_rollback(&upgraded(app()), None, &agreed).unwrap();
    let text = printed(&plan);
    assert!(
        text.contains("copy settings and chats (/app/db.sqlite) to /data/kept/chats-of-0.24.0-17.sqlite\n"),
        "{text}"
    );
    assert!(text.contains("give 0.22.1 its database of then (/data/kept/0.22.1-9.sqlite)\n"), "{text}");
    assert_eq!(plan.order.kept_database(), None, "the only copy of the latest chats never goes with an old version");
}

#[test]
fn whatever_is_slow_comes_before_the_stop() {
    for (name, plan) in every_plan() {
        let phases: Vec<_> = plan.deeds.iter().map(|deed| deed.phase()).collect();
        assert!(phases.is_sorted(), "{name}: {phases:?}");
        assert!(!phases.contains(&Phase::Undoing), "{name}");
    }
}

#[test]
fn a_name_from_outside_stays_in_the_folder_of_the_work() {
    for (name, file) in [("../../etc/passwd", "passwd"), ("a\\b.zip", "b.zip"), ("..", "archive"), ("", "archive")] {
        let Wanted::Release { version, against_installed, mut archives } = newer() else { panic!() };
        archives[0].name = name.to_owned();
        let plan = plan(&app(), &Wanted::Release { version, against_installed, archives }, &ask()).unwrap();
        assert_eq!(plan.order.downloads[0].file, PathBuf::from("/data/upgrades/17").join(file));
    }
}

#[test]
fn an_archive_may_unpack_to_a_bounded_size() {
    let order = plan(&app(), &newer(), &ask()).unwrap().order;
    assert_eq!(order.downloads[0].unpacked_limit_bytes, 8 * 190_000_000, "a zip of 10 GB by its header is refused");
}

#[test]
fn two_old_versions_are_kept_and_the_third_goes_with_its_database() {
    let all = [kept("0.20.0", 1), kept("0.22.0", 3), kept("0.21.0", 2)];
    let retention = retain(&all, 2, "0.24.0");
    assert_eq!(versions(&retention.stay), ["0.22.0", "0.21.0"]);
    assert_eq!(retention.removed(), [PathBuf::from("/data/kept/0.20.0-1"), "/data/kept/0.20.0-1.sqlite".into()]);
    assert_eq!(versions(&retain(&all, 0, "0.24.0").stay), [""; 0]);
}

#[test]
fn a_version_is_kept_once_and_not_while_it_is_in_place() {
    let all = [kept("0.20.0", 1), kept("0.22.0", 2), kept("0.20.0", 3), kept("0.24.0", 4)];
    let retention = retain(&all, 2, "0.24.0");
    assert_eq!(versions(&retention.stay), ["0.20.0", "0.22.0"]);
    assert_eq!(retention.stay[0].at, PathBuf::from("/data/kept/0.20.0-3"));
}

#[test]
fn an_upgrade_plans_the_removal_of_what_is_kept_no_longer() {
    let found = Found { kept: vec![kept("0.20.0", 1), kept("0.21.0", 2)], ..app() };
    let order = plan(&found, &newer(), &ask()).unwrap().order;
    assert_eq!(order.remove, [PathBuf::from("/data/kept/0.20.0-1"), "/data/kept/0.20.0-1.sqlite".into()]);
    let nothing_kept = plan(&app(), &newer(), &Ask { keep: 0, ..ask() }).unwrap().order;
    let commit = Step { deed: Deed::Commit, order: &nothing_kept };
    assert_eq!(commit.to_string(), "commit, remove /data/kept/0.22.1-17 /data/kept/0.22.1-17.sqlite");
    assert_eq!(nothing_kept.remove, [PathBuf::from("/data/kept/0.22.1-17"), "/data/kept/0.22.1-17.sqlite".into()]);
}

#[test]
fn a_rollback_goes_to_what_was_in_use_last_or_to_the_version_named() {
    let all = [kept("0.20.0", 1), kept("0.24.0", 5), kept("0.21.0", 4)];
    assert_eq!(to_roll_back_to(&all, "0.24.0", None).unwrap().version, "0.21.0");
    assert_eq!(to_roll_back_to(&all, "0.24.0", Some("0.20.0")).unwrap().version, "0.20.0");
    assert_eq!(to_roll_back_to(&all, "0.24.0", Some("0.1.0")), None);
}

#[test]
fn what_the_built_in_updater_stages_goes_while_a_version_is_pinned() {
    let staged = ["/cache/updates/a/Ollama-darwin.zip".into()];
    assert_eq!(against_pin(Some(FROM), &staged), staged);
    assert!(against_pin(None, &staged).is_empty());
}

#[test]
fn names_of_deeds_are_unique_and_lead_back() {
    for deed in Deed::ALL {
        assert_eq!(Deed::named(deed.name()), Some(*deed));
    }
    assert_eq!(Deed::named("fly"), None);
}

fn versions<'a>(kept: &[&'a Kept]) -> Vec<&'a str> {
    kept.iter().map(|kept| kept.version.as_str()).collect()
}
