//! The gateway in Ollama's place, on a simulated machine: it comes and goes with real requests on the way, and whoever
//! is in between finds Ollama where it looks for it.

#![allow(clippy::unwrap_used, reason = "tests panic where they fail; clippy's own exception does not reach here")]

mod world;

use serde_json::{Value, json};
use std::process::Command;
use world::gateway::{ask, gateway_socket, home, in_queue, take_over, until};
use world::{World, setting};

fn version(port: u16) -> u16 {
    ask(port, "GET", "/api/version", "").0
}

fn generate(port: u16) -> (u16, String) {
    let body = json!({ "model": "gemma4:26b", "prompt": "Why?", "stream": false, "options": { "num_predict": 60 } });
    ask(port, "POST", "/api/generate", &body.to_string())
}

fn gateway(world: &World) -> Value {
    world.last(&["gateway", "status"]).1
}

fn until_state(world: &World, state: &str) -> Value {
    let snapshot = world.watch_until(|snapshot| snapshot["gateway"]["state"] == state);
    snapshot["gateway"].clone()
}

fn signal(name: &str, pid: &Value) {
    let pid = pid.as_u64().unwrap().to_string();
    assert!(Command::new("/bin/kill").args([name, &pid]).status().unwrap().success());
}

/// What a click in the Dock, or the command line, does: it starts the app with what the session holds.
fn open_app(world: &World) -> bool {
    let bundle = world.file("/Applications/Ollama.app");
    Command::new(world.file("/usr/bin/open")).args(["-g", "-j", "-a"]).arg(bundle).status().unwrap().success()
}

fn quit_app(world: &World) {
    for gui in world.inside()["gui"].as_array().unwrap() {
        signal("-TERM", gui);
    }
    world.inside_until(|inside| inside["gui"].as_array().unwrap().is_empty());
}

#[test]
fn it_stands_in_ollamas_place_through_restarts_and_leaves_without_losing_who_waits() {
    let world = World::start(&["--speed", "10"]);
    let home = home(&world);
    let before = world.inside();
    let (code, planned) = world.last(&["gateway", "on", "--takeover", "--dry-run"]);
    assert_eq!((code, &planned["restarts"]), (0, &json!(true)), "{planned}");
    assert!(planned["steps"].to_string().contains("OLLAMA_HOST=127.0.0.1:"), "{planned}");
    assert_eq!(world.inside()["serve"], before["serve"], "a plan changes nothing");
    let (code, said) = world.text(&["gateway", "on", "--takeover"]);
    assert_eq!(code, 2, "without a terminal nobody can agree to a restart: {said}");
    assert_eq!(world.inside()["serve"], before["serve"]);

    assert_eq!(world.text(&["settings", "preset", "serial"]).0, 0);
    // The gateway's queue is as long as Ollama's own may be; twenty shall find room in it.
    assert_eq!(world.text(&["settings", "set", "OLLAMA_MAX_QUEUE=30"]).0, 0);
    let ending = take_over(&world);
    assert_eq!(setting(&ending, "OLLAMA_NUM_PARALLEL")["standing"], "proven", "what was pending is applied: {ending}");
    let shown = gateway(&world);
    assert_eq!(shown["state"], "in-place", "{shown}");
    assert_eq!(shown["listen"], format!("http://127.0.0.1:{home}"));
    assert_eq!(version(home), 200);
    let (_, session) = (0, world.inside()["session"].clone());
    assert!(!session.to_string().contains("OLLAMA_HOST"), "only its own start is told: {session}");
    let plist = world.agents().join("dev.stablehand.ollama-env.plist");
    assert!(!std::fs::read_to_string(plist).unwrap().contains("OLLAMA_HOST"));
    assert_eq!(world.last(&["verify"]).0, 0, "a moved address is no drift");
    assert_eq!(until_healthy(&world)["healthy"], true);

    let pid = world.status()["server"]["pid"].clone();
    let (code, ending) = world.last(&["restart"]);
    assert_eq!(code, 0, "{ending}");
    let status = world.status();
    assert_ne!(status["server"]["pid"], pid);
    assert_eq!(status["gateway"]["state"], "in-place", "a later restart keeps the address: {status}");

    let waiting: Vec<_> = (0..20).map(|_| std::thread::spawn(move || generate(home))).collect();
    let socket = gateway_socket(&world);
    until(|| in_queue(&socket) == 20);
    world.watch_until(|snapshot| {
        let queue = &snapshot["watched"]["queue"];
        queue["at_least"].as_u64() >= Some(10) && queue["at_least"] == queue["at_most"]
    });
    let (code, ending) = world.last(&["gateway", "off", "--yes"]);
    assert_eq!(code, 0, "{ending}");
    let answers: Vec<_> = waiting.into_iter().map(|asked| asked.join().unwrap()).collect();
    let served = answers.iter().filter(|(status, _)| *status == 200).count();
    assert!(served >= 19, "the one that had been sent may break, nobody else: {answers:?}");
    let broken: Vec<_> = answers.iter().filter(|(status, _)| *status != 200).collect();
    assert!(
        broken.iter().all(|(status, said)| *status == 502 && said.contains("not sent a second time")),
        "{broken:?}"
    );
    until_state(&world, "off");
    assert_eq!(version(home), 200);
    assert_eq!(world.status()["server"]["address"], format!("127.0.0.1:{home}"));
    assert_eq!(world.last(&["verify"]).0, 0);
}

fn until_healthy(world: &World) -> Value {
    world.watch_until(|snapshot| snapshot["gateway"]["healthy"] == true)["gateway"].clone()
}

#[test]
fn a_lost_login_race_fails_open_and_is_mended_by_one_restart() {
    let mut world = World::start(&["--speed", "10"]);
    let home = home(&world);
    take_over(&world);
    world.stop_daemon();
    world.log_in_again();
    assert_eq!(version(home), 200, "without a daemon Ollama itself answers");
    assert!(gateway_pid(&world).is_none());
    world.start_daemon();
    let shown = until_state(&world, "in-place");
    assert_eq!(shown["listen"], format!("http://127.0.0.1:{home}"));
    assert_eq!(version(home), 200);
}

fn gateway_pid(world: &World) -> Option<u32> {
    let listed = Command::new(world.file("/bin/launchctl")).arg("list").output().unwrap();
    let listed = String::from_utf8(listed.stdout).unwrap();
    let line = listed.lines().find(|line| line.ends_with("dev.stablehand.gateway"))?;
    line.split_whitespace().next()?.parse().ok()
}

#[test]
fn an_app_started_from_the_dock_is_restarted_once_with_the_address() {
    let world = World::start(&["--speed", "10"]);
    let home = home(&world);
    take_over(&world);
    quit_app(&world);
    assert!(open_app(&world));
    world.watch_until(|snapshot| snapshot["work"]["origin"] == "gateway" || snapshot["server"]["state"] == "up");
    let shown = until_state(&world, "in-place");
    assert_eq!(shown["aside"], Value::Null);
    world.watch_until(|snapshot| snapshot["server"]["state"] == "up");
    until(|| version(home) == 200);
}

#[test]
fn an_app_that_the_command_line_starts_during_the_stop_is_restarted_with_the_address() {
    let world = World::start(&["--speed", "4"]);
    std::thread::scope(|scope| {
        let starter = scope.spawn(|| {
            world.inside_until(|inside| inside["gui"].as_array().unwrap().is_empty());
            open_app(&world)
        });
        let ending = take_over(&world);
        assert!(starter.join().unwrap());
        assert!(ending["notes"].to_string().contains("in Ollama's place"), "{ending}");
    });
    assert_eq!(version(home(&world)), 200);
}

#[test]
fn expose_to_network_is_refused_at_first_and_clears_the_place_later() {
    let world = World::start(&["--speed", "10"]);
    let home = home(&world);
    world.fault("expose-on");
    let pid = world.status()["server"]["pid"].clone();
    let (code, ending) = world.last(&["gateway", "on", "--takeover", "--yes"]);
    assert_eq!((code, &ending["failure"]["code"]), (1, &json!("exposed-to-network")), "{ending}");
    assert!(ending["failure"]["message"].as_str().unwrap().ends_with("nothing was changed"), "{ending}");
    assert_eq!(gateway(&world)["mode"], "off");
    world.fault("clear");
    world.watch_until(|snapshot| snapshot["server"]["state"] == "up" && snapshot["server"]["pid"] != pid);

    take_over(&world);
    world.fault("expose-on");
    let shown = until_state(&world, "aside");
    assert_eq!(shown["aside"]["code"], "exposed-to-network", "{shown}");
    until(|| version(home) == 200);
    let address = format!("127.0.0.1:{home}");
    world.watch_until(|snapshot| snapshot["server"]["address"] == address.as_str());
    let alerts = world.status()["alerts"].to_string();
    assert!(alerts.contains("gateway-aside"), "{alerts}");
}

#[test]
fn a_bundle_in_the_trash_gives_its_port_back() {
    let world = World::start(&["--speed", "20"]);
    let home = home(&world);
    take_over(&world);
    std::fs::create_dir_all(world.file("/Users/sim/.Trash")).unwrap();
    quit_app(&world);
    let (bundle, trash) = (world.file("/Applications/Ollama.app"), world.file("/Users/sim/.Trash/Ollama.app"));
    std::fs::rename(&bundle, &trash).unwrap();
    let shown = until_state(&world, "aside");
    assert_eq!(shown["aside"]["code"], "ollama-down", "{shown}");
    until(|| version(home) == 0);
    std::fs::rename(&trash, &bundle).unwrap();
    assert!(open_app(&world));
    until_state(&world, "in-place");
    assert_eq!(version(home), 200);
}

#[test]
fn a_gateway_that_dies_or_hangs_is_started_anew() {
    let world = World::start(&["--speed", "10"]);
    let home = home(&world);
    take_over(&world);
    let first = gateway(&world)["pid"].clone();
    signal("-KILL", &first);
    let another = |pid: Value| {
        move |snapshot: &Value| {
            let shown = &snapshot["gateway"];
            shown["state"] == "in-place" && shown["pid"] != pid && shown["healthy"] == true
        }
    };
    let second = world.watch_until(another(first))["gateway"]["pid"].clone();
    assert_eq!(version(home), 200);
    // Its port goes on listening, and connections are accepted by the kernel.
    signal("-STOP", &second);
    world.watch_until(another(second));
    assert_eq!(version(home), 200);
    assert!(world.status()["alerts"].to_string().contains("gateway-restarted"));
}

#[test]
fn a_daemon_that_is_killed_on_the_way_goes_on_when_it_is_back() {
    let mut world = World::start(&["--speed", "10"]);
    let home = home(&world);
    for step in ["stop", "start", "open"] {
        let began = world.ask_and_leave(&["gateway", "on", "--takeover", "--yes"], |line| line["name"] == step);
        assert!(began, "{step}");
        world.kill_daemon();
        world.start_daemon();
        until_state(&world, "in-place");
        until(|| version(home) == 200);
        let (code, ending) = world.last(&["gateway", "off", "--yes"]);
        assert_eq!(code, 0, "{step}: {ending}");
        until_state(&world, "off");
    }
    take_over(&world);
    for step in ["leave", "stop"] {
        let began = world.ask_and_leave(&["gateway", "off", "--yes"], |line| line["name"] == step);
        assert!(began, "{step}");
        world.kill_daemon();
        world.start_daemon();
        until_state(&world, "off");
        until(|| version(home) == 200);
        take_over(&world);
    }
}

#[test]
fn a_unit_is_moved_by_a_drop_in_that_no_boot_outlives() {
    let mut world = World::start(&["--os", "linux", "--speed", "20"]);
    let home = home(&world);
    take_over(&world);
    assert_eq!(version(home), 200);
    let drop_in = world.file("/run/systemd/system/ollama.service.d/zz-stablehand_gateway.conf");
    assert!(std::fs::read_to_string(&drop_in).unwrap().contains("OLLAMA_HOST=127.0.0.1:"));
    assert!(!world.file("/etc/systemd/system/ollama.service.d/zz-stablehand.conf").exists());
    assert_eq!(world.last(&["verify"]).0, 0);
    world.stop_daemon();
    world.log_in_again();
    assert_eq!(version(home), 200, "a boot fails open");
    world.start_daemon();
    until_state(&world, "in-place");
    let (code, ending) = world.last(&["gateway", "off", "--yes"]);
    assert_eq!(code, 0, "{ending}");
    assert!(!drop_in.exists());
    assert_eq!(version(home), 200);
}

#[test]
fn beside_ollama_nothing_is_moved_and_an_owner_that_cannot_be_told_is_named() {
    let world = World::start(&["--owner", "brew", "--speed", "10"]);
    let home = home(&world);
    let pid = world.status()["server"]["pid"].clone();
    let (code, ending) = world.last(&["gateway", "on", "--takeover", "--yes"]);
    assert_eq!((code, &ending["failure"]["code"]), (1, &json!("takeover-unavailable")), "{ending}");
    assert!(ending["failure"]["message"].as_str().unwrap().contains("unavailable"), "{ending}");
    let taken = world.last(&["gateway", "on", "--beside", &home.to_string()]).1;
    assert_eq!(taken["failure"]["code"], "bad-port", "{taken}");
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = free.local_addr().unwrap().port();
    drop(free);
    let (code, ending) = world.last(&["gateway", "on", "--beside", &port.to_string()]);
    assert_eq!(code, 0, "{ending}");
    assert_eq!(gateway(&world)["listen"], format!("http://127.0.0.1:{port}"));
    assert_eq!((version(port), version(home)), (200, 200));
    assert_eq!(world.status()["server"]["pid"], pid, "Ollama was not touched");
    let (code, ending) = world.last(&["gateway", "off"]);
    assert_eq!(code, 0, "it needs no restart, and no leave: {ending}");
    assert_eq!((version(port), version(home)), (0, 200));
}

#[test]
fn doctor_sees_a_takeover_that_was_cut_off_and_mends_it_and_an_uninstall_undoes_it_first() {
    let mut world = World::start(&["--speed", "10"]);
    let home = home(&world);
    take_over(&world);
    let codes = |world: &World| {
        let findings = world.last(&["doctor"]).1;
        let codes = findings.as_array().unwrap().iter().map(|finding| finding["code"].as_str().unwrap().to_owned());
        codes.collect::<Vec<_>>()
    };
    assert!(codes(&world).contains(&"gateway".to_owned()));
    world.kill_daemon();
    signal("-KILL", &json!(gateway_pid(&world).unwrap()));
    until(|| version(home) == 0);
    assert!(codes(&world).contains(&"gateway-half-done".to_owned()), "without a daemon, too");
    let (code, said) = world.text(&["uninstall"]);
    assert_eq!(code, 1, "{said}");
    assert!(said.contains("gateway-in-place") && said.contains("nothing was taken away"), "{said}");
    world.start_daemon();
    let (_, said) = world.text(&["doctor", "--mend"]);
    assert!(said.contains("the gateway is wished in Ollama's place"), "{said}");
    assert_eq!(version(home), 200);
    assert!(!codes(&world).contains(&"gateway-half-done".to_owned()));

    let (code, said) = world.text(&["uninstall"]);
    assert_eq!(code, 0, "{said}");
    assert_eq!(version(home), 200, "Ollama itself answers");
    assert!(gateway_pid(&world).is_none());
    assert!(!world.agents().join("dev.stablehand.gateway.plist").exists());
    let servers = world.inside()["serve"].to_string();
    assert!(!servers.contains("OLLAMA_HOST"), "{servers}");
}
