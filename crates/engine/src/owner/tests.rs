use super::*;
use crate::time::Wall;
use std::collections::BTreeMap;

const ME: u32 = 501;
const BUNDLE: &str = "/Applications/Ollama.app";

#[test]
fn a_server_below_the_gui_belongs_to_the_app() {
    let survey = survey(vec![gui(10), serve(11, Some(10), &in_bundle())], vec![listener(11)]);
    assert_eq!(ownership(&survey), one(Owner::App { bundle: BUNDLE.into() }, Some(11)));
}

#[test]
fn a_server_whose_gui_is_gone_still_belongs_to_its_bundle() {
    let survey = survey(vec![serve(11, Some(1), &in_bundle())], vec![listener(11)]);
    assert_eq!(ownership(&survey), one(Owner::App { bundle: BUNDLE.into() }, Some(11)));
}

#[test]
fn a_server_of_the_bundle_that_a_terminal_holds_belongs_to_the_terminal() {
    let mut survey = survey(vec![serve(11, Some(9), &in_bundle())], vec![listener(11)]);
    survey.parents.push(process(9, Some(1), "/bin/zsh", ME));
    assert!(matches!(ownership(&survey), Ownership::One { owner: Owner::Manual { .. }, .. }));
    survey.parents[0] = process(9, Some(1), "/sbin/launchd", ME);
    assert_eq!(ownership(&survey), one(Owner::App { bundle: BUNDLE.into() }, Some(11)));
}

#[test]
fn a_server_kept_by_a_job_belongs_to_the_job() {
    let mut survey = survey(vec![serve(20, Some(1), "/opt/homebrew/bin/ollama")], vec![listener(20)]);
    survey.keepers.push(Keeper { owner: brew(), pid: Some(20), restarts: true });
    assert_eq!(ownership(&survey), one(brew(), Some(20)));
}

#[test]
fn a_server_started_in_a_terminal_names_the_shell() {
    let mut survey = survey(vec![serve(30, Some(29), "/usr/local/bin/ollama")], vec![listener(30)]);
    survey.parents.push(process(29, Some(1), "/bin/zsh", ME));
    let Ownership::One { owner: Owner::Manual { started_by, .. }, .. } = ownership(&survey) else {
        panic!("not manual: {:?}", ownership(&survey));
    };
    assert_eq!(started_by.as_deref(), Some("zsh"));
}

#[test]
fn a_server_we_wrote_down_is_ours() {
    let mut survey = survey(vec![serve(30, Some(1), "/versions/0.24.0/bin/ollama")], vec![listener(30)]);
    survey.started_by_us = Some(Started { id: id(30), program: "/usr/local/bin/ollama".into() });
    let owner = Owner::Agent(AgentKind::Process { program: "/usr/local/bin/ollama".into() });
    assert_eq!(ownership(&survey), one(owner, Some(30)));
}

#[test]
fn an_app_and_a_kept_brew_service_are_both_named() {
    let mut survey = survey(
        vec![gui(10), serve(11, Some(10), &in_bundle()), serve(20, Some(1), "/opt/homebrew/bin/ollama")],
        vec![listener(11)],
    );
    survey.keepers.push(Keeper { owner: brew(), pid: Some(20), restarts: true });
    let Ownership::Contested { holder, rivals, .. } = ownership(&survey) else {
        panic!("not contested: {:?}", ownership(&survey));
    };
    assert_eq!(holder.word(), "app");
    assert_eq!(rivals.len(), 1, "{rivals:?}");
    assert_eq!(rivals[0].who, Contender::Owner(brew()));
    assert_eq!(rivals[0].pid, Some(20));
}

#[test]
fn a_second_server_on_another_port_is_no_rival() {
    let mut second = serve(40, Some(1), "/usr/local/bin/ollama");
    second.process.environment = Known::Is(BTreeMap::from([("OLLAMA_HOST".into(), "127.0.0.1:11500".into())]));
    let survey = survey(vec![gui(10), serve(11, Some(10), &in_bundle()), second], vec![listener(11)]);
    assert_eq!(ownership(&survey), one(Owner::App { bundle: BUNDLE.into() }, Some(11)));
}

#[test]
fn a_server_on_another_port_is_not_on_its_way_to_ours() {
    let mut other = serve(40, Some(1), "/usr/local/bin/ollama");
    other.process.environment = Known::Is(BTreeMap::from([("OLLAMA_HOST".into(), "127.0.0.1:11500".into())]));
    assert_eq!(ownership(&survey(vec![other.clone()], vec![])), Ownership::Absent);
    let starting = serve(41, Some(1), "/usr/local/bin/ollama");
    let Ownership::One { server, .. } = ownership(&survey(vec![other, starting], vec![])) else {
        panic!("the one that was told no address may yet bind the port");
    };
    assert_eq!(server.map(|server| server.pid), Some(41));
}

#[test]
fn a_server_caught_while_it_starts_a_runner_is_no_rival_of_itself() {
    let survey =
        survey(vec![gui(10), serve(11, Some(10), &in_bundle()), serve(12, Some(11), &in_bundle())], vec![listener(11)]);
    assert_eq!(ownership(&survey), one(Owner::App { bundle: BUNDLE.into() }, Some(11)));
    let by_hand = "/usr/local/bin/ollama";
    let survey = self::survey(vec![serve(40, None, by_hand), serve(41, Some(40), by_hand)], vec![listener(40)]);
    assert!(matches!(ownership(&survey), Ownership::One { server: Some(Identity { pid: 40, .. }), .. }));
}

#[test]
fn another_program_on_the_port_is_a_stranger() {
    let stranger = Listener {
        address: "127.0.0.1:11434".to_owned(),
        process: Known::Is(id(77)),
        program: Some("python3".to_owned()),
        uid: Some(ME),
    };
    assert_eq!(
        ownership(&survey(vec![], vec![stranger])),
        Ownership::Foreign(Foreigner::Stranger { pid: 77, program: "python3".to_owned() })
    );
}

#[test]
fn a_program_at_another_address_of_the_port_stands_beside_the_server() {
    let beside = |pid: u32, address: &str, program: &str| Listener {
        address: address.to_owned(),
        program: Some(program.to_owned()),
        ..listener(pid)
    };
    let mine = vec![gui(10), serve(11, Some(10), &in_bundle())];
    let found = |others: Vec<Listener>| {
        let listeners = others.into_iter().chain([listener(11)]).collect();
        ownership(&survey(mine.clone(), listeners))
    };
    let Ownership::Contested { server, rivals, .. } =
        found(vec![beside(77, "*:11434", "com.docker.backend"), beside(77, "[::1]:11434", "com.docker.backend")])
    else {
        panic!("a restart would find the port taken");
    };
    assert_eq!((server.pid, rivals.len()), (11, 1));
    assert_eq!((&rivals[0].who, rivals[0].pid), (&Contender::Stranger, Some(77)));
    assert_eq!(rivals[0].why, "it listens beside it, at *:11434");
    let app = one(Owner::App { bundle: BUNDLE.into() }, Some(11));
    assert_eq!(found(vec![beside(12, "127.0.0.1:11434", "ollama")]), app, "its own socket, in a child of it");
    assert_eq!(found(vec![beside(13, "*:11434", "stablehand")]), app, "the gateway leaves");
}

#[test]
fn a_listener_that_cannot_be_seen_is_another_users() {
    let hidden = Listener {
        address: "127.0.0.1:11434".to_owned(),
        process: Known::unknown("not ours to see"),
        program: None,
        uid: Some(502),
    };
    assert_eq!(ownership(&survey(vec![], vec![hidden])), Ownership::Foreign(Foreigner::OtherUser { uid: Some(502) }));
}

#[test]
fn another_users_ollama_is_never_ours() {
    let mut theirs = serve(50, Some(1), "/usr/local/bin/ollama");
    theirs.process.uid = Known::Is(502);
    let survey = survey(vec![theirs], vec![listener(50)]);
    assert_eq!(ownership(&survey), Ownership::Foreign(Foreigner::OtherUser { uid: Some(502) }));
}

#[test]
fn a_system_service_under_its_own_user_is_ours_to_look_after() {
    let mut server = serve(60, Some(1), "/usr/local/bin/ollama");
    server.process.uid = Known::Is(998);
    let mut survey = survey(vec![server], vec![listener(60)]);
    let owner = Owner::Systemd { scope: Scope::System, unit: "ollama.service".to_owned() };
    survey.keepers.push(Keeper { owner: owner.clone(), pid: Some(60), restarts: true });
    assert_eq!(ownership(&survey), one(owner, Some(60)));
}

#[test]
fn with_nothing_running_what_is_installed_is_named() {
    let mut nothing = survey(vec![], vec![]);
    assert_eq!(ownership(&nothing), Ownership::Absent);
    nothing.programs.push("/usr/local/bin/ollama".into());
    assert!(matches!(ownership(&nothing).sole_owner(), Some(Owner::Agent(AgentKind::Process { .. }))));
    nothing.apps.push(AppBundle { path: BUNDLE.into(), version: Known::Is("0.33.0".into()), translocated: false });
    assert_eq!(ownership(&nothing), one(Owner::App { bundle: BUNDLE.into() }, None));
    nothing.keepers.push(Keeper { owner: brew(), pid: None, restarts: true });
    assert_eq!(ownership(&nothing), one(brew(), None));
}

fn one(owner: Owner, server: Option<u32>) -> Ownership {
    Ownership::One { owner, server: server.map(id) }
}

fn brew() -> Owner {
    Owner::Brew { label: "homebrew.mxcl.ollama".to_owned(), plist: "/u/homebrew.mxcl.ollama.plist".into() }
}

fn in_bundle() -> String {
    format!("{BUNDLE}/Contents/Resources/ollama")
}

fn gui(pid: u32) -> Sighting {
    let process = process(pid, Some(1), &format!("{BUNDLE}/Contents/MacOS/Ollama"), ME);
    Sighting { process, role: Role::Gui { bundle: BUNDLE.into() } }
}

fn serve(pid: u32, parent: Option<u32>, program: &str) -> Sighting {
    Sighting { process: process(pid, parent, program, ME), role: Role::Serve }
}

fn process(pid: u32, parent: Option<u32>, program: &str, uid: u32) -> Process {
    Process {
        id: id(pid),
        parent,
        uid: Known::Is(uid),
        started: Wall::from_unix_ms(1000),
        executable: Known::Is(program.into()),
        argv: Known::Is(vec![program.to_owned(), "serve".to_owned()]),
        environment: Known::Is(BTreeMap::new()),
    }
}

fn id(pid: u32) -> Identity {
    Identity { pid, birth: u64::from(pid) * 10 }
}

fn listener(pid: u32) -> Listener {
    Listener {
        address: "127.0.0.1:11434".to_owned(),
        process: Known::Is(id(pid)),
        program: Some("ollama".to_owned()),
        uid: Some(ME),
    }
}

fn survey(sightings: Vec<Sighting>, listeners: Vec<Listener>) -> Survey {
    Survey {
        uid: ME,
        port: 11434,
        sightings,
        listeners: Known::Is(listeners),
        parents: vec![],
        keepers: vec![],
        apps: vec![],
        programs: vec![],
        own_unit: Known::unknown("no systemd"),
        started_by_us: None,
    }
}
