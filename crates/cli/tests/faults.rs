//! What goes wrong on a Mac, each as a scenario: faults of launchctl, open and the app, and what an apply makes of them.

#![allow(clippy::unwrap_used, reason = "tests panic where they fail; clippy's own exception does not reach here")]

mod world;

use serde_json::Value;
use world::{World, gateway, setting};

/// A world with the preset desired, the fault raised, and the ending of an apply.
fn applied(arguments: &[&str], fault: &str) -> (World, Value) {
    let world = World::start(arguments);
    assert_eq!(world.text(&["settings", "preset", "serial"]).0, 0);
    world.fault(fault);
    let (_, ending) = world.last(&["apply"]);
    (world, ending)
}

#[track_caller]
fn proven(arguments: &[&str], fault: &str) -> World {
    let (world, ending) = applied(arguments, fault);
    assert_eq!(ending["outcome"], "proven", "{fault}: {ending}");
    assert_eq!(world.last(&["verify"]).0, 0);
    world
}

/// The apply fails with this code, and Ollama serves on as before.
#[track_caller]
fn refused_while_serving(arguments: &[&str], fault: &str, code: &str) -> World {
    let (world, ending) = applied(arguments, fault);
    assert_eq!(ending["failure"]["code"], code, "{fault}: {ending}");
    let message = ending["failure"]["message"].as_str().unwrap();
    assert!(message.contains("serves as before") || message.contains("nothing was changed"), "{message}");
    assert!(!ending["failure"]["hint"].as_str().unwrap().is_empty());
    assert_eq!(world.status()["server"]["serving"], true);
    world
}

const QUICK: [&str; 2] = ["--speed", "20"];

#[test]
fn an_open_that_fails_with_600_is_tried_again() {
    proven(&QUICK, "open-600-twice");
}

#[test]
fn an_open_that_only_wakes_the_dying_app_is_seen_through() {
    proven(&QUICK, "open-activates-dying-app");
}

#[test]
fn a_job_that_still_drains_is_waited_for() {
    proven(&["--speed", "20", "--owner", "brew"], "bootstrap-5-after-bootout");
}

#[test]
fn a_bootout_in_progress_is_waited_for() {
    proven(&["--speed", "20", "--owner", "brew"], "bootout-36");
}

#[test]
fn without_a_session_at_the_screen_the_server_is_left_alone() {
    refused_while_serving(&QUICK, "no-gui-session", "no-gui-session");
}

#[test]
fn a_denied_setenv_leaves_the_server_alone() {
    refused_while_serving(&QUICK, "setenv-denied", "setenv-denied");
}

#[test]
fn an_agent_that_was_switched_off_is_switched_on_again() {
    let world = proven(&QUICK, "agent-disabled");
    let listed = world.inside();
    assert!(listed["session"]["OLLAMA_NUM_PARALLEL"] == "1", "{listed}");
}

#[test]
fn an_app_that_restores_another_programs_profile_gets_its_time() {
    proven(&["--speed", "60"], "slow-quit");
}

#[test]
fn an_app_that_heeds_no_signal_is_killed_after_its_time() {
    proven(&["--speed", "60"], "gui-ignores-sigterm");
}

#[test]
fn a_server_that_ignores_sigint_is_no_obstacle() {
    proven(&QUICK, "serve-ignores-sigint");
}

#[test]
fn a_server_without_its_app_is_swept() {
    let world = proven(&QUICK, "orphan-serve");
    assert_eq!(world.inside()["serve"].as_array().unwrap().len(), 1);
}

#[test]
fn a_runner_without_its_server_is_swept() {
    let world = proven(&QUICK, "orphan-runner");
    assert!(world.inside()["runners"].as_array().unwrap().is_empty());
}

#[test]
fn an_app_brought_back_by_the_command_line_ends_with_the_new_values() {
    proven(&QUICK, "cli-resurrects-app");
}

#[test]
fn a_slow_start_is_waited_for() {
    proven(&["--speed", "60"], "slow-start");
}

#[test]
fn a_start_that_hangs_once_is_repeated() {
    proven(&["--speed", "60"], "start-hangs-once");
}

#[test]
fn a_start_that_never_answers_is_given_up_on_with_words() {
    let (world, ending) = applied(&["--speed", "60"], "start-never-answers");
    assert_eq!(ending["failure"]["code"], "step-timed-out", "{ending}");
    assert_eq!(world.status()["server"]["state"], "gave-up");
    world.fault("clear");
    assert_eq!(world.last(&["restart"]).1["outcome"], "proven");
}

#[test]
fn a_server_that_crashes_at_each_start_is_given_up_on() {
    let (world, ending) = applied(&QUICK, "crash-loop");
    // A look can miss servers that live for a moment only; then the time for an answer decides.
    let code = ending["failure"]["code"].as_str().unwrap();
    assert!(["dies-at-start", "step-timed-out"].contains(&code), "{ending}");
    assert_eq!(world.status()["server"]["state"], "gave-up");
}

#[test]
fn a_stranger_on_the_port_is_named_and_left_alone() {
    let (world, ending) = applied(&QUICK, "port-stranger");
    assert_eq!(ending["failure"]["code"], "port-stranger", "{ending}");
    assert!(ending["failure"]["message"].as_str().unwrap().contains("other-server"), "{ending}");
    assert_eq!(world.status()["server"]["state"], "blocked");
    assert_eq!(world.text(&["doctor"]).0, 1);
}

#[test]
fn a_program_beside_the_server_on_its_port_is_named_before_anything_is_stopped() {
    let world = World::start(&QUICK);
    assert_eq!(world.text(&["settings", "preset", "serial"]).0, 0);
    // Linux lets one have another address of loopback, as macOS lets one have every address.
    let _beside = std::net::TcpListener::bind(("127.0.0.2", gateway::home(&world))).unwrap();
    let before = world.status()["server"]["pid"].clone();
    let (_, ending) = world.last(&["apply"]);
    assert_eq!(ending["failure"]["code"], "owners-contested", "{ending}");
    assert!(ending["failure"]["message"].as_str().unwrap().contains("stranger"), "{ending}");
    let server = world.status()["server"].clone();
    assert_eq!((&server["pid"], &server["rivals"][0]["owner"]), (&before, &"stranger".into()), "{server}");
    let (code, told) = world.text(&["doctor"]);
    assert!(code == 1 && told.contains("it listens beside it, at 127.0.0.2:"), "{told}");
}

#[test]
fn two_owners_are_named_and_neither_is_restarted() {
    let world = refused_while_serving(&QUICK, "two-ollamas", "owners-contested");
    let rivals = world.status()["server"]["rivals"].clone();
    assert_eq!(rivals[0]["owner"], "brew", "{rivals}");
}

#[test]
fn a_missing_log_leaves_the_environment_as_proof() {
    let (_world, ending) = applied(&QUICK, "config-line-missing");
    assert_eq!(ending["outcome"], "proven", "{ending}");
    assert_eq!(setting(&ending, "OLLAMA_MAX_QUEUE")["proof"][0]["kind"], "process-environment");
}

#[test]
fn the_log_of_early_2025_is_read_too() {
    let (_world, ending) = applied(&QUICK, "bad-log-format-2025");
    assert_eq!(ending["outcome"], "proven", "{ending}");
    assert_eq!(setting(&ending, "OLLAMA_MAX_QUEUE")["proof"][0]["kind"], "server-config-line");
}

#[test]
fn a_value_that_the_app_itself_sets_is_named_as_such() {
    let world = World::start(&QUICK);
    assert_eq!(world.text(&["settings", "set", "OLLAMA_CONTEXT_LENGTH=8192"]).0, 0);
    world.fault("app-overrides-context");
    let (code, ending) = world.last(&["apply"]);
    assert_eq!(code, 1);
    let context = setting(&ending, "OLLAMA_CONTEXT_LENGTH");
    assert_eq!((&context["standing"], &context["effective"]), (&"set-in-app".into(), &"65536".into()), "{context}");
}

#[test]
fn a_lost_login_race_is_mended_once_by_itself() {
    let world = World::start(&QUICK);
    assert_eq!(world.apply_serial()["outcome"], "proven");
    let server = world.status()["server"]["pid"].clone();
    world.fault("lost-login-race");
    let mended = world.watch_until(|snapshot| {
        snapshot["server"]["state"] == "up"
            && snapshot["server"]["pid"] != server
            && setting(snapshot, "OLLAMA_NUM_PARALLEL")["standing"] == "proven"
            && snapshot["alerts"].as_array().unwrap().iter().any(|alert| alert["kind"] == "login-race")
    });
    assert!(mended["work"].is_null());
    assert_eq!(world.last(&["verify"]).0, 0);
}

#[test]
fn a_sleep_of_eight_hours_restarts_nothing() {
    let world = World::start(&QUICK);
    assert_eq!(world.apply_serial()["outcome"], "proven");
    let server = world.status()["server"]["pid"].clone();
    assert_eq!(world.text(&["demo", "sleep", "28800"]).0, 0);
    assert_eq!(world.last(&["verify"]).0, 0);
    let status = world.status();
    assert_eq!((&status["server"]["pid"], &status["server"]["state"]), (&server, &"up".into()));
}
