use super::health::{Checked, Health};
use super::*;
use crate::owner::AgentKind;
use proptest::prelude::*;

fn server() -> Identity {
    Identity { pid: 7, birth: 1 }
}

fn app() -> Owner {
    Owner::App { bundle: "/Applications/Ollama.app".into() }
}

fn found(place: Place, door: Door) -> Found {
    let server = (place != Place::Nowhere).then(server);
    Found {
        ownership: Ownership::One { owner: app(), server },
        place,
        astray: false,
        exposed: Known::Is(false),
        door,
        sick: false,
        busy: false,
    }
}

fn at(seconds: u64) -> Awake {
    Awake::from_start(Duration::from_secs(seconds))
}

#[test]
fn the_gateway_is_opened_only_after_the_server_is_proved_where_it_was_moved() {
    let mut takeover = Takeover::new(Mode::Takeover, None);
    assert_eq!(takeover.next(at(0), &found(Place::Home, Door::Shut)), Next::Do(Act::Move));
    let busy = Found { busy: true, ..found(Place::Nowhere, Door::Shut) };
    assert_eq!(takeover.next(at(1), &busy), Next::Wait);
    assert_eq!(takeover.next(at(2), &found(Place::Moved, Door::Shut)), Next::Do(Act::Open));
    assert_eq!(takeover.next(at(3), &found(Place::Moved, Door::Home)), Next::Rest);
    assert!(takeover.moves());
}

#[test]
fn the_way_back_leaves_the_port_first_and_ends_the_gateway_last() {
    let acts = plan(Mode::Off, &found(Place::Moved, Door::Home)).unwrap();
    assert_eq!(acts, [Act::Leave, Act::MoveBack, Act::Shut]);
    assert_eq!(plan(Mode::Off, &found(Place::Home, Door::Beside)).unwrap(), [Act::Leave, Act::Shut]);
    assert_eq!(plan(Mode::Off, &found(Place::Home, Door::Shut)).unwrap(), []);
}

#[test]
fn a_gateway_that_cannot_be_looked_at_is_not_started_anew_and_is_told_to_leave_all_the_same() {
    let untold = found(Place::Moved, Door::Unknown);
    let mut takeover = Takeover::new(Mode::Takeover, None);
    assert_eq!(takeover.next(at(0), &untold), Next::Rest, "it may be in good order");
    assert_eq!(takeover.next(at(1), &found(Place::Moved, Door::Home)), Next::Rest);
    let mut moved = Takeover::new(Mode::Takeover, None);
    assert_eq!(moved.next(at(0), &found(Place::Home, Door::Shut)), Next::Do(Act::Move));
    assert_eq!(moved.next(at(1), &untold), Next::Rest);
    assert_eq!(moved.next(at(2), &found(Place::Home, Door::Shut)), Next::Do(Act::Move), "it had moved, and may again");
    takeover.wish(Mode::Off);
    assert_eq!(takeover.next(at(2), &untold), Next::Do(Act::Leave), "it may hold the port");
    assert_eq!(takeover.next(at(3), &untold), Next::Do(Act::MoveBack));
    assert_eq!(takeover.next(at(4), &found(Place::Home, Door::Unknown)), Next::Rest);
    takeover.wish(Mode::Takeover);
    assert_eq!(takeover.next(at(5), &untold), Next::Do(Act::Open), "whoever wishes hears whether it starts");
    assert_eq!(takeover.next(at(6), &untold), Next::Rest, "once");
}

#[test]
fn the_way_back_is_tried_again_after_a_pause_for_nobody_else_has_the_port() {
    let mut takeover = Takeover::new(Mode::Off, None);
    let moved = found(Place::Moved, Door::Shut);
    let tries = |takeover: &mut Takeover, seconds: u64| {
        (0..10).filter(|second| takeover.next(at(seconds + second), &moved) == Next::Do(Act::MoveBack)).count()
    };
    assert_eq!(tries(&mut takeover, 0), TRIES_ALLOWED);
    assert_eq!(tries(&mut takeover, 100), 0);
    assert_eq!(tries(&mut takeover, 320), TRIES_ALLOWED);
    let holds = found(Place::Home, Door::Home);
    let leaves = (0..10).filter(|second| takeover.next(at(400 + second), &holds) == Next::Do(Act::Leave)).count();
    assert_eq!(leaves, TRIES_ALLOWED, "whoever does not leave is not told so with every look");
}

#[test]
fn a_wish_for_the_place_starts_a_server_that_is_down() {
    assert_eq!(plan(Mode::Takeover, &found(Place::Nowhere, Door::Shut)).unwrap(), [Act::Move, Act::Open]);
    assert_eq!(plan(Mode::Takeover, &found(Place::Moved, Door::Home)).unwrap(), []);
    assert_eq!(
        plan(Mode::Beside, &found(Place::Moved, Door::Home)).unwrap(),
        [Act::Leave, Act::MoveBack, Act::Open],
        "from one place to the other"
    );
}

#[test]
fn what_forbids_the_place_is_refused_with_words() {
    let exposed = Found { exposed: Known::Is(true), ..found(Place::Home, Door::Shut) };
    assert_eq!(plan(Mode::Takeover, &exposed), Err(Hindrance::Exposed));
    let of =
        |owner| Found { ownership: Ownership::One { owner, server: Some(server()) }, ..found(Place::Home, Door::Shut) };
    let brew = of(Owner::Brew { label: "sh.brew.ollama".to_owned(), plist: "/p".into() });
    let refused = plan(Mode::Takeover, &brew).unwrap_err();
    assert!(refused.to_string().ends_with("so takeover is unavailable"), "{refused}");
    assert_eq!(plan(Mode::Beside, &brew).unwrap(), [Act::Open], "beside it the gateway may stand");
    let unit = of(Owner::Agent(AgentKind::UserUnit { unit: "ollama.service".to_owned() }));
    assert_eq!(plan(Mode::Takeover, &unit).unwrap(), [Act::Move, Act::Open]);
    let nobody = Found { ownership: Ownership::Absent, ..found(Place::Nowhere, Door::Shut) };
    assert_eq!(plan(Mode::Takeover, &nobody), Err(Hindrance::Absent));
    let unread = Found { exposed: Known::unknown("no database"), ..found(Place::Home, Door::Shut) };
    assert!(plan(Mode::Takeover, &unread).is_ok(), "unknown is not on");
}

#[test]
fn a_lost_login_race_restarts_the_server_once_and_then_leaves_it_where_clients_find_it() {
    let mut takeover = Takeover::new(Mode::Takeover, None);
    assert_eq!(takeover.next(at(0), &found(Place::Home, Door::Shut)), Next::Do(Act::Move));
    for second in 1..100 {
        assert_eq!(takeover.next(at(second), &found(Place::Home, Door::Shut)), Next::Rest);
    }
    assert_eq!(takeover.aside(), Some(&Hindrance::NotMoved));
    assert!(!takeover.moves(), "a later restart leaves it at its own port");
    let mut of_the_next_daemon = Takeover::new(Mode::Takeover, takeover.spent());
    assert_eq!(of_the_next_daemon.next(at(0), &found(Place::Home, Door::Shut)), Next::Rest);
    takeover.wish(Mode::Takeover);
    assert_eq!(takeover.next(at(200), &found(Place::Home, Door::Shut)), Next::Do(Act::Move), "a person asks again");
}

#[test]
fn an_app_that_was_started_without_the_address_while_the_gateway_holds_its_port_is_restarted() {
    let mut takeover = Takeover::new(Mode::Takeover, None);
    assert_eq!(takeover.next(at(0), &found(Place::Moved, Door::Home)), Next::Rest);
    let astray = Found { astray: true, ..found(Place::Nowhere, Door::Home) };
    assert_eq!(takeover.next(at(10), &astray), Next::Do(Act::Move));
    assert_eq!(takeover.next(at(20), &astray), Next::Do(Act::Leave), "it cannot be told its address");
    let astray = Found { astray: true, ..found(Place::Home, Door::Leaving) };
    assert_eq!(takeover.next(at(30), &astray), Next::Do(Act::Shut));
}

#[test]
fn a_server_that_comes_up_nowhere_after_its_move_is_started_at_its_own_port() {
    let mut takeover = Takeover::new(Mode::Takeover, None);
    assert_eq!(takeover.next(at(0), &found(Place::Home, Door::Shut)), Next::Do(Act::Move));
    let nothing = found(Place::Nowhere, Door::Shut);
    assert_eq!(takeover.next(at(90), &nothing), Next::Do(Act::MoveBack));
    assert_eq!(takeover.next(at(100), &found(Place::Home, Door::Shut)), Next::Rest);
}

#[test]
fn the_port_is_left_while_ollama_is_down_and_taken_again_when_it_runs() {
    let mut takeover = Takeover::new(Mode::Takeover, None);
    assert_eq!(takeover.next(at(0), &found(Place::Moved, Door::Home)), Next::Rest);
    assert_eq!(takeover.next(at(10), &found(Place::Nowhere, Door::Home)), Next::Rest, "it may come back");
    assert_eq!(takeover.next(at(40), &found(Place::Nowhere, Door::Home)), Next::Do(Act::Leave));
    assert_eq!(takeover.next(at(41), &found(Place::Nowhere, Door::Leaving)), Next::Do(Act::Shut));
    assert_eq!(takeover.next(at(42), &found(Place::Nowhere, Door::Shut)), Next::Rest);
    assert_eq!(takeover.next(at(500), &found(Place::Home, Door::Shut)), Next::Do(Act::Move));
}

#[test]
fn a_look_that_tells_nothing_clears_no_place_and_takes_none() {
    let unread = |place, door| Found { ownership: Ownership::Unknown("unread".to_owned()), ..found(place, door) };
    let mut takeover = Takeover::new(Mode::Takeover, None);
    assert_eq!(takeover.next(at(0), &unread(Place::Moved, Door::Home)), Next::Rest);
    assert_eq!(takeover.next(at(1), &unread(Place::Home, Door::Shut)), Next::Rest);
    assert_eq!(takeover.next(at(2), &found(Place::Home, Door::Shut)), Next::Do(Act::Move));
}

#[test]
fn an_upgrade_is_no_time_in_which_ollama_is_down() {
    let mut takeover = Takeover::new(Mode::Takeover, None);
    let busy = Found { busy: true, ..found(Place::Nowhere, Door::Home) };
    for second in 0..200 {
        assert_eq!(takeover.next(at(second), &busy), Next::Wait);
    }
    assert_eq!(takeover.next(at(200), &found(Place::Nowhere, Door::Home)), Next::Rest);
}

#[test]
fn exposing_it_later_clears_the_port_and_taking_that_back_needs_no_restart() {
    let mut takeover = Takeover::new(Mode::Takeover, None);
    let exposed = |place, door| Found { exposed: Known::Is(true), ..found(place, door) };
    assert_eq!(takeover.next(at(0), &exposed(Place::Nowhere, Door::Home)), Next::Do(Act::Leave));
    assert_eq!(takeover.aside(), Some(&Hindrance::Exposed));
    assert_eq!(takeover.next(at(1), &exposed(Place::Home, Door::Leaving)), Next::Do(Act::Shut));
    assert_eq!(takeover.next(at(2), &exposed(Place::Home, Door::Shut)), Next::Rest);
    assert_eq!(takeover.next(at(9), &found(Place::Moved, Door::Shut)), Next::Do(Act::Open));
}

#[test]
fn a_gateway_that_keeps_breaking_is_started_a_few_times_and_then_leaves_the_place() {
    let mut takeover = Takeover::new(Mode::Takeover, None);
    for time in 0..OPENS_ALLOWED as u64 {
        assert_eq!(takeover.next(at(time), &found(Place::Moved, Door::Shut)), Next::Do(Act::Open));
    }
    assert_eq!(takeover.next(at(60), &found(Place::Moved, Door::Shut)), Next::Do(Act::MoveBack));
    assert_eq!(takeover.aside(), Some(&Hindrance::Broken));
    assert_eq!(takeover.next(at(70), &found(Place::Home, Door::Shut)), Next::Rest);

    let mut patient = Takeover::new(Mode::Takeover, None);
    for time in 0..50 {
        let now = at(time * 300);
        assert_eq!(patient.next(now, &found(Place::Moved, Door::Shut)), Next::Do(Act::Open), "seldom is no loop");
    }
}

#[test]
fn only_failures_in_a_row_make_a_gateway_sick() {
    let mut health = Health::default();
    let failed = || Checked::Failed("no answer within 2 s".to_owned());
    for checked in [failed(), failed(), Checked::Passed, failed(), Checked::Unfit, failed()] {
        health.checked(checked);
        assert_eq!(health.sick(), None);
    }
    health.checked(failed());
    assert_eq!(health.sick(), Some("no answer within 2 s"));
    let sick = Found { sick: true, ..found(Place::Moved, Door::Home) };
    assert_eq!(Takeover::new(Mode::Takeover, None).next(at(0), &sick), Next::Do(Act::Open));
    health.renewed();
    assert_eq!(health.sick(), None);
}

#[test]
fn whatever_needs_an_act_beyond_the_wish_itself_is_told_as_half_done() {
    let places = [Place::Home, Place::Moved, Place::Nowhere];
    let doors = [Door::Shut, Door::Home, Door::Beside, Door::Leaving];
    for (place, door) in places.into_iter().flat_map(|place| doors.map(|door| (place, door))) {
        let clean = |mode, acts: &[Act]| match mode {
            // Nothing is in the way of a client, and nothing is left where it should not be.
            Mode::Off => acts.is_empty() || (place != Place::Moved && door != Door::Home),
            Mode::Beside => place != Place::Moved && door != Door::Home,
            Mode::Takeover => acts.is_empty() || (place != Place::Moved && door != Door::Home),
        };
        for mode in [Mode::Off, Mode::Beside, Mode::Takeover] {
            let acts = plan(mode, &found(place, door)).unwrap();
            assert_eq!(
                half_done(mode, place, door).is_none(),
                clean(mode, &acts),
                "{mode:?} {place:?} {door:?} {acts:?}"
            );
        }
    }
}

/// What a world does with an act: what was wanted, nothing, or half of it.
#[derive(Clone, Copy, Debug)]
enum Luck {
    Done,
    Nothing,
    ServerDown,
    Killed,
}

fn luck() -> impl Strategy<Value = Luck> {
    prop_oneof![6 => Just(Luck::Done), 1 => Just(Luck::Nothing), 1 => Just(Luck::ServerDown), 1 => Just(Luck::Killed)]
}

fn anything() -> impl Strategy<Value = Found> {
    let place = prop_oneof![Just(Place::Home), Just(Place::Moved), Just(Place::Nowhere)];
    let door =
        prop_oneof![Just(Door::Shut), Just(Door::Home), Just(Door::Beside), Just(Door::Leaving), Just(Door::Unknown)];
    (place, door, any::<bool>(), any::<bool>()).prop_map(|(place, door, exposed, sick)| Found {
        exposed: Known::Is(exposed),
        sick,
        ..found(place, door)
    })
}

fn carry_out(act: Act, found: &mut Found, mode: Mode) {
    found.sick = false;
    match act {
        Act::Move if found.exposed == Known::Is(true) => found.place = Place::Home,
        Act::Move => found.place = Place::Moved,
        Act::MoveBack => found.place = if found.door == Door::Home { Place::Nowhere } else { Place::Home },
        Act::Open => found.door = if mode == Mode::Beside { Door::Beside } else { Door::Home },
        Act::Leave => found.door = Door::Leaving,
        Act::Shut => found.door = Door::Shut,
    }
    let server = (found.place != Place::Nowhere).then(server);
    found.ownership = Ownership::One { owner: app(), server };
}

/// Until every piece of bad luck is over: the things on the way back are tried twice, and then after a pause again.
const STORY_SECONDS: u64 = LUCK_AT_MOST as u64 / TRIES_ALLOWED as u64 * (TRIES_WINDOW.as_secs() + 10) + 400;
const LUCK_AT_MOST: usize = 12;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn wherever_it_was_cut_off_the_end_is_the_wish_or_ollama_where_clients_find_it(
        start in anything(),
        mode in prop_oneof![Just(Mode::Off), Just(Mode::Beside), Just(Mode::Takeover)],
        story in prop::collection::vec(luck(), 0..=LUCK_AT_MOST),
    ) {
        let mut found = start;
        let mut machine = Takeover::new(mode, None);
        let mut story = story.into_iter();
        let mut acts = 0;
        for second in 0..STORY_SECONDS {
            let Next::Do(act) = machine.next(at(second), &found) else { continue };
            acts += 1;
            if act == Act::Open && mode == Mode::Takeover {
                prop_assert_eq!(found.place, Place::Moved, "never before the server is proved there");
            }
            if act == Act::MoveBack {
                prop_assert_ne!(found.door, Door::Home, "its port has to be free");
            }
            match story.next().unwrap_or(Luck::Done) {
                Luck::Done => carry_out(act, &mut found, mode),
                Luck::Nothing => {}
                Luck::ServerDown => {
                    found.place = Place::Nowhere;
                    found.ownership = Ownership::One { owner: app(), server: None };
                }
                Luck::Killed => {
                    carry_out(act, &mut found, mode);
                    machine = Takeover::new(mode, machine.spent());
                }
            }
        }
        prop_assert!(acts <= 40, "{} acts: it never comes to rest", acts);
        let served = found.place == Place::Nowhere || match mode {
            Mode::Off => (found.place, found.door) == (Place::Home, Door::Shut),
            Mode::Beside => found.place == Place::Home && found.door != Door::Home,
            Mode::Takeover => match machine.aside() {
                None => (found.place, found.door) == (Place::Moved, Door::Home),
                Some(_) => found.place == Place::Home && found.door == Door::Shut,
            },
        };
        // What cannot be looked at stays as it is where it may be in order; nobody is at a loss for it.
        let untold = found.door == Door::Unknown && (mode != Mode::Off || found.place == Place::Home);
        prop_assert!(served || untold, "{:?} {:?}", found, machine);
    }
}
