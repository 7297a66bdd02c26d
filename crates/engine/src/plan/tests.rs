use super::*;
use crate::known::Known;
use crate::owner::{Contender, Foreigner, Rival};
use crate::setting::Value;

#[test]
fn an_app_is_quit_swept_and_opened_with_the_values_on_its_own_environment() {
    let owner = Owner::App { bundle: "/Applications/Ollama.app".into() };
    assert_eq!(
        printed(&plan(apply(), &one(owner), Seat::at_home(11434), false)),
        "persist OLLAMA_NUM_PARALLEL=1 for app
publish OLLAMA_NUM_PARALLEL=1, take away OLLAMA_MAX_QUEUE
quit /Applications/Ollama.app with SIGTERM, at most 40 s, then SIGKILL
end what is left of /Applications/Ollama.app
wait until port 11434 is free
open /Applications/Ollama.app
wait for a new server to answer on port 11434
prove what is in force"
    );
}

#[test]
fn a_brew_service_is_taken_out_of_launchd_and_loaded_again() {
    let owner = Owner::Brew { label: "sh.brew.ollama".to_owned(), plist: "/u/sh.brew.ollama.plist".into() };
    assert_eq!(
        printed(&plan(restart(), &one(owner), Seat::at_home(11434), false)),
        "take the job sh.brew.ollama out of launchd
end runners left by pid 7
wait until port 11434 is free
load the job sh.brew.ollama into launchd
wait for a new server to answer on port 11434
prove what is in force"
    );
}

#[test]
fn a_unit_is_stopped_and_started_by_its_manager() {
    let owner = Owner::Systemd { scope: Scope::System, unit: "ollama.service".to_owned() };
    assert_eq!(
        printed(&plan(restart(), &one(owner), Seat::at_home(11434), false)),
        "stop the unit ollama.service
end runners left by pid 7
wait until port 11434 is free
start the unit ollama.service
wait for a new server to answer on port 11434
prove what is in force"
    );
}

#[test]
fn a_server_of_ours_is_stopped_by_its_identity_and_started_with_its_values() {
    let owner = Owner::Agent(AgentKind::Process { program: "/usr/local/bin/ollama".into() });
    let plan = plan(restart(), &one(owner), Seat::at_home(11434), false).unwrap();
    assert_eq!(plan.steps[0], Step::Stop(Stop::Process { server: server() }));
    assert!(
        plan.steps
            .contains(&Step::Start(Start::Process { program: "/usr/local/bin/ollama".into(), environment: values() }))
    );
}

#[test]
fn a_terminals_server_is_left_alone_until_it_may_be_taken_over() {
    let owner = Owner::Manual {
        server: server(),
        program: Known::Is("/usr/local/bin/ollama".into()),
        started_by: Some("zsh".to_owned()),
        own_unit: Known::unknown("no systemd"),
    };
    let refused = plan(apply(), &one(owner.clone()), Seat::at_home(11434), false);
    assert_eq!(refused, Err(Refusal::Manual { server: server(), started_by: Some("zsh".to_owned()) }));
    let taken = plan(apply(), &one(owner), Seat::at_home(11434), true).unwrap();
    assert_eq!(taken.owner.word(), "agent");
    assert!(taken.steps.contains(&Step::Stop(Stop::Process { server: server() })));
}

#[test]
fn where_the_users_systemd_answers_what_is_taken_over_becomes_a_unit() {
    let owner = Owner::Manual {
        server: server(),
        program: Known::Is("/usr/local/bin/ollama".into()),
        started_by: Some("zsh".to_owned()),
        own_unit: Known::Is("stablehand-ollama.service".to_owned()),
    };
    let start = Step::Start(Start::Unit { scope: Scope::User, unit: "stablehand-ollama.service".to_owned() });
    for goal in [apply(), restart()] {
        let taken = plan(goal, &one(owner.clone()), Seat::at_home(11434), true).unwrap();
        assert!(matches!(&taken.steps[0], Step::Persist { owner, .. } if *owner == taken.owner), "{taken:?}");
        assert!(taken.steps.contains(&Step::Stop(Stop::Process { server: server() })));
        assert!(taken.steps.contains(&start));
    }
}

#[test]
fn a_translocated_app_is_not_quit() {
    let bundle = "/private/var/folders/x/AppTranslocation/AB-12/d/Ollama.app";
    let refused = plan(apply(), &one(Owner::App { bundle: bundle.into() }), Seat::at_home(11434), false);
    assert_eq!(refused, Err(Refusal::Translocated(bundle.into())));
}

#[test]
fn a_server_called_by_a_relative_path_is_not_taken_over() {
    let owner = Owner::Manual {
        server: server(),
        program: Known::Is("./ollama".into()),
        started_by: Some("zsh".to_owned()),
        own_unit: Known::unknown("no systemd"),
    };
    assert!(matches!(plan(apply(), &one(owner), Seat::at_home(11434), true), Err(Refusal::Manual { .. })));
}

#[test]
fn what_is_not_ours_to_change_is_refused_with_its_name() {
    let port = 11434;
    let container = one(Owner::Container { name: "llm".to_owned() });
    assert_eq!(
        plan(apply(), &container, Seat::at_home(port), true),
        Err(Refusal::Container { name: "llm".to_owned() })
    );
    let stranger = Foreigner::Stranger { pid: 9, program: "nginx".to_owned() };
    assert_eq!(
        plan(apply(), &Ownership::Foreign(stranger), Seat::at_home(port), true),
        Err(Refusal::Stranger { port, pid: 9, program: "nginx".to_owned() })
    );
    let other = Foreigner::OtherUser { uid: Some(502) };
    assert_eq!(plan(apply(), &Ownership::Foreign(other), Seat::at_home(port), true), Err(Refusal::OtherUser { port }));
    assert_eq!(plan(apply(), &Ownership::Absent, Seat::at_home(port), true), Err(Refusal::Absent));
}

#[test]
fn two_owners_are_both_named_and_neither_is_restarted() {
    let contested = Ownership::Contested {
        holder: Owner::App { bundle: "/Applications/Ollama.app".into() },
        server: server(),
        rivals: vec![Rival {
            who: Contender::Owner(Owner::Brew { label: "sh.brew.ollama".to_owned(), plist: "/u/x.plist".into() }),
            pid: Some(20),
            program: Some("/opt/homebrew/bin/ollama".into()),
            version: None,
            why: String::new(),
        }],
    };
    let who = "app (pid 7), brew (pid 20) from /opt/homebrew/bin/ollama".to_owned();
    assert_eq!(plan(restart(), &contested, Seat::at_home(11434), false), Err(Refusal::Contested { port: 11434, who }));
}

#[test]
fn whatever_can_be_refused_comes_before_anything_is_taken_from_the_server() {
    let owners = [
        Owner::App { bundle: "/Applications/Ollama.app".into() },
        Owner::Brew { label: "b".to_owned(), plist: "/b.plist".into() },
        Owner::Systemd { scope: Scope::User, unit: "u".to_owned() },
        Owner::Agent(AgentKind::UserUnit { unit: "u".to_owned() }),
        Owner::Agent(AgentKind::LaunchAgent { label: "l".to_owned(), plist: "/l.plist".into() }),
        Owner::Agent(AgentKind::Process { program: "/ollama".into() }),
    ];
    let order = |phase| match phase {
        Phase::Preparing => 0,
        Phase::Stopping => 1,
        Phase::Starting => 2,
        Phase::Proving => 3,
    };
    for owner in owners {
        let plan = plan(apply(), &one(owner), Seat::at_home(11434), false).unwrap();
        let phases: Vec<_> = plan.steps.iter().map(|step| order(step.phase())).collect();
        assert!(phases.is_sorted(), "{:?}", plan.steps);
        assert_eq!(plan.steps.last(), Some(&Step::Prove));
    }
}

fn printed(plan: &Result<Plan, Refusal>) -> String {
    let lines: Vec<_> = plan.as_ref().unwrap().steps.iter().map(ToString::to_string).collect();
    lines.join("\n")
}

fn apply() -> Goal {
    Goal::Apply { desired: values(), unset: BTreeSet::from([Name::try_new("OLLAMA_MAX_QUEUE").unwrap()]) }
}

fn restart() -> Goal {
    Goal::Restart { desired: values() }
}

fn values() -> Values {
    Values::from([(Name::try_new("OLLAMA_NUM_PARALLEL").unwrap(), Value::try_new("1").unwrap())])
}

fn one(owner: Owner) -> Ownership {
    Ownership::One { owner, server: Some(server()) }
}

fn server() -> Identity {
    Identity { pid: 7, birth: 70 }
}

#[test]
fn a_moved_address_goes_to_the_start_of_its_owner_alone() {
    let moved = Seat { home: 11434, moved: Some(11435), written: false };
    let app = Owner::App { bundle: "/Applications/Ollama.app".into() };
    let steps = plan(apply(), &one(app.clone()), moved, false).unwrap().steps;
    let Step::Publish { set, .. } = &steps[1] else { panic!("{steps:?}") };
    assert_eq!(set, &values(), "the session never gets it");
    assert!(steps.iter().any(|step| matches!(step, Step::Persist { values: held, .. } if held == &values())));
    let words = printed(&plan(restart(), &one(app), moved, false));
    assert!(words.contains("open /Applications/Ollama.app with OLLAMA_HOST=127.0.0.1:11435 of its own"), "{words}");
    assert!(words.contains("wait for a new server to answer on port 11435"), "{words}");

    let unit = Owner::Systemd { scope: Scope::System, unit: "ollama.service".to_owned() };
    let words = printed(&plan(restart(), &one(unit.clone()), moved, false));
    assert!(words.starts_with("give the start of systemd alone the address 127.0.0.1:11435\nstop"), "{words}");
    let back = Seat { home: 11434, moved: None, written: true };
    let words = printed(&plan(restart(), &one(unit), back, false));
    assert!(words.starts_with("take the moved address from the start of systemd\nstop"), "{words}");
    assert!(words.contains("answer on port 11434"), "{words}");
}

#[test]
fn an_owner_whose_start_cannot_be_told_alone_stays_at_its_own_port() {
    let moved = Seat { home: 11434, moved: Some(11435), written: false };
    let brew = Owner::Brew { label: "sh.brew.ollama".to_owned(), plist: "/u/sh.brew.ollama.plist".into() };
    let plan = plan(restart(), &one(brew), moved, false).unwrap();
    assert_eq!(plan.port(), Some(11434));
    assert!(!plan.steps.iter().any(|step| matches!(step, Step::Address { .. })));
}
