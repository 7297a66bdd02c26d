use super::*;
use crate::upgrade::database::{Sight, Use};
use crate::upgrade::journal::{Ending, Journal, Record, Unreadable};
use crate::upgrade::resume::{Course, Presence, Resume, STARTS, Seen, Turn, resume};

#[test]
fn no_record_and_an_ended_journal_ask_for_nothing() {
    assert_eq!(resume(&Ok(vec![]), &seen(TO, "", "")), Resume::Nothing);
    let mut records = records(&app(), &[Deed::Download]);
    records.push(Record::Closed(Ending::Undone));
    assert_eq!(resume(&Ok(records), &seen(FROM, "", "")), Resume::Nothing);
}

#[test]
fn a_journal_of_a_newer_version_is_told_and_never_guessed() {
    let newer = Err(Unreadable::Newer { format: 2 });
    let Resume::Wait(words) = resume(&newer, &seen("", FROM, TO)) else { panic!("it was guessed") };
    assert_eq!(words.code, "upgrade-journal-newer");
    assert!(
        words.message.contains("the form 2, this Stablehand reads forms up to 1; nothing was changed"),
        "{words:?}"
    );
}

#[test]
fn records_that_are_never_written_like_this_are_told_and_never_guessed() {
    let opened = records(&app(), &[]);
    let then = |record: Record| vec![opened[0].clone(), record];
    let closed = [opened[0].clone(), Record::Closed(Ending::Left), Record::Before(Deed::Stop)].to_vec();
    for (records, record) in [
        (vec![Record::Before(Deed::Stop)], 1),
        (then(opened[0].clone()), 2),
        (then(Record::After(Deed::Stop)), 2),
        (closed, 3),
    ] {
        let broken = Journal::read(&records).unwrap_err();
        assert!(matches!(broken, Unreadable::Broken { record: at, .. } if at == record), "{broken}");
        let Resume::Wait(words) = resume(&Ok(records), &seen("", FROM, TO)) else { panic!("it was guessed") };
        assert_eq!(words.code, "upgrade-journal-broken");
    }
}

#[test]
fn what_was_cut_off_while_it_was_prepared_goes_and_the_server_is_left_alone() {
    let course = go(&records(&app(), &[Deed::Download, Deed::CheckHash, Deed::Unpack]), &seen(FROM, "", TO));
    assert_eq!((course.turn, course.deeds), (Turn::Undo, vec![Deed::Tidy]));
    assert_eq!(course.words.message, "the upgrade to 0.24.0 is undone, because it was cut off; 0.22.1 is in its place");
}

#[test]
fn between_the_two_renames_the_old_app_goes_back() {
    let course = go(&records(&app(), &[Deed::Stop, Deed::CopyDatabase, Deed::MoveOut]), &seen("", FROM, TO));
    assert_eq!(course.turn, Turn::Undo);
    assert_eq!(course.deeds[0], Deed::MoveOldBack);
}

#[test]
fn a_new_app_that_was_not_yet_proved_is_started_and_proved() {
    let course = go(&records(&app(), &[Deed::Stop, Deed::MoveOut, Deed::MoveIn, Deed::Start]), &seen(TO, FROM, ""));
    assert_eq!((course.turn, course.deeds), (Turn::Finish, vec![Deed::Start, Deed::Prove, Deed::Commit]));
}

#[test]
fn a_new_app_whose_start_was_cut_off_again_and_again_is_given_up() {
    let mut deeds = vec![Deed::Stop, Deed::MoveOut, Deed::MoveIn];
    deeds.extend([Deed::Start; STARTS]);
    let course = go(&records(&app(), &deeds), &seen(TO, FROM, ""));
    assert_eq!(course.turn, Turn::Undo);
    assert_eq!(course.deeds[..3], [Deed::StopNew, Deed::MoveNewOut, Deed::MoveOldBack]);
}

#[test]
fn a_new_app_that_the_power_has_damaged_makes_way_for_the_old_one() {
    let mut seen = seen("", FROM, "");
    seen.place = Presence::Broken("a sealed file is missing".to_owned());
    let course = go(&records(&app(), &[Deed::Stop, Deed::MoveOut, Deed::MoveIn]), &seen);
    assert_eq!(course.deeds[..3], [Deed::StopNew, Deed::MoveNewOut, Deed::MoveOldBack]);
}

#[test]
fn where_the_old_app_is_nowhere_the_checked_new_one_is_better_than_none() {
    let course = go(&records(&app(), &[Deed::Stop, Deed::MoveOut]), &seen("", "", TO));
    assert_eq!(course.turn, Turn::Finish);
    assert_eq!(course.deeds, [Deed::MoveIn, Deed::Start, Deed::Prove, Deed::Commit]);
}

#[test]
fn a_proved_app_is_committed_whatever_else_is_seen() {
    let course =
        go(&records(&app(), &[Deed::Stop, Deed::MoveOut, Deed::MoveIn, Deed::Start, Deed::Prove]), &seen(TO, "", ""));
    assert_eq!((course.turn, course.deeds), (Turn::Finish, vec![Deed::Commit]));
}

#[test]
fn what_somebody_else_has_put_in_place_is_left() {
    let course = go(&records(&app(), &[Deed::Stop, Deed::MoveOut]), &seen("0.31.0", FROM, TO));
    assert_eq!((course.turn, course.deeds), (Turn::Leave, vec![Deed::Tidy]));
    assert!(course.words.message.contains("somebody put 0.31.0 in its place"), "{:?}", course.words);
}

#[test]
fn nothing_is_moved_while_something_can_not_be_looked_at_or_others_are_at_work() {
    let records = records(&app(), &[Deed::Stop, Deed::MoveOut]);
    let unknown = || Presence::Unknown("permission denied".to_owned());
    let unseen_place = Seen { place: unknown(), ..seen("", FROM, TO) };
    let unseen_old = Seen { old: unknown(), ..seen("", "", TO) };
    let unseen_new = Seen { new: unknown(), ..seen("", "", "") };
    let busy = Seen { busy: Some("Homebrew runs (pid 8)".to_owned()), ..seen("", FROM, TO) };
    for (seen, code) in [
        (unseen_place, "upgrade-unseen"),
        (unseen_old, "upgrade-unseen"),
        (unseen_new, "upgrade-unseen"),
        (busy, "upgrade-others-at-work"),
        (seen("", "", ""), "upgrade-nothing-whole"),
    ] {
        let Resume::Wait(words) = resume(&Ok(records.clone()), &seen) else { panic!("{seen:?}") };
        assert_eq!(words.code, code);
        assert!(words.message.contains("nothing was changed"), "{words:?}");
    }
}

#[test]
fn what_the_built_in_updater_staged_goes_back_unless_the_new_version_was_started_and_given_up() {
    let mut deeds = vec![Deed::Stop, Deed::SetUpdaterAside, Deed::MoveOut, Deed::MoveIn];
    let undoing = |deeds: &[Deed]| {
        let mut records = records(&app(), deeds);
        records.push(Record::Undoing("the disk failed".to_owned()));
        go(&records, &seen(TO, FROM, "")).deeds.contains(&Deed::PutUpdaterBack)
    };
    assert!(undoing(&deeds));
    deeds.push(Deed::Start);
    assert!(!undoing(&deeds), "the next login would put it in place");
}

#[test]
fn a_formula_that_does_not_prove_stays_because_there_is_no_way_back() {
    let mut records = records(&formula(), &[Deed::Stop, Deed::Brew, Deed::Start, Deed::Prove]);
    records.pop();
    records.push(Record::Undoing("it generated nothing".to_owned()));
    let course = go(&records, &seen(TO, "", ""));
    assert_eq!(course.turn, Turn::Leave);
    assert_eq!(
        course.words.message,
        "0.24.0 stays in its place although it generated nothing: Homebrew keeps no older one"
    );
}

#[test]
fn a_used_database_in_a_newer_form_is_set_aside_and_named() {
    let mut records = records(&app(), &[Deed::Stop, Deed::CopyDatabase, Deed::MoveOut, Deed::MoveIn, Deed::Start]);
    records.push(Record::Undoing("it lost OLLAMA_NUM_PARALLEL".to_owned()));
    let mut seen = seen(TO, FROM, "");
    seen.database.used = Use::Somebody("a chat was changed".to_owned());
    let course = go(&records, &seen);
    assert_eq!(
        course.deeds[..5],
        [Deed::StopNew, Deed::MoveNewOut, Deed::MoveOldBack, Deed::SetDatabaseAside, Deed::PutDatabaseBack]
    );
    assert!(course.words.message.ends_with("; chats made with 0.24.0 are in /data/kept/chats-of-0.24.0-17.sqlite"));
}

#[test]
fn a_database_that_is_back_is_not_put_back_again_over_what_was_made_since() {
    let forth = [Deed::Stop, Deed::CopyDatabase, Deed::MoveOut, Deed::MoveIn, Deed::Start];
    let back = [Deed::StopNew, Deed::MoveNewOut, Deed::MoveOldBack, Deed::PutDatabaseBack];
    let mut seen = seen(FROM, "", "");
    seen.database = Sight { used: Use::Somebody("a chat was changed".to_owned()), ..seen.database };
    let course = go(&records(&app(), &[&forth[..], &back[..]].concat()), &seen);
    assert_eq!(course.deeds, [Deed::StopNew, Deed::StartOld, Deed::ProveOld, Deed::DropDatabaseCopy, Deed::Tidy]);
}

/// The journal after these deeds.
fn records(found: &Found, deeds: &[Deed]) -> Vec<Record> {
    let order = plan(found, &newer(), &ask()).unwrap().order;
    let done = deeds.iter().flat_map(|deed| [Record::Before(*deed), Record::After(*deed)]);
    std::iter::once(Record::Opened(Box::new(order))).chain(done).collect()
}

/// What is seen: the versions in the three slots, empty where there is nothing.
fn seen(place: &str, old: &str, new: &str) -> Seen {
    let presence = |version: &str| match version {
        "" => Presence::Absent,
        version => Presence::Whole(version.to_owned()),
    };
    Seen {
        place: presence(place),
        old: presence(old),
        new: presence(new),
        busy: None,
        database: Sight { used: Use::Nobody, before: Known::Is(FORM_FROM), now: Known::Is(FORM_TO) },
    }
}

fn go(records: &[Record], seen: &Seen) -> Course {
    match resume(&Ok(records.to_vec()), seen) {
        Resume::Go(course) => *course,
        Resume::Nothing => panic!("it says that there is nothing to do"),
        Resume::Wait(words) => panic!("{words:?}"),
    }
}
