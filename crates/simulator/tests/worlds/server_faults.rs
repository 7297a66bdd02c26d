//! Faults of the server process, which end with it.

use std::time::Duration;

use crate::sandbox::{Sandbox, eventually, http_within, signal};

const SHORT: Duration = Duration::from_millis(250);
const LOAD: &str = "{\"model\":\"smollm:135m\"}";
const GENERATE: &str =
    "{\"model\":\"smollm:135m\",\"prompt\":\"hello\",\"stream\":false,\"options\":{\"num_predict\":10}}";

fn replace_server(sandbox: &Sandbox) {
    let old = sandbox.pid("serve").unwrap();
    signal(old, "KILL");
    eventually(|| sandbox.pid("serve").is_some_and(|pid| pid != old) && sandbox.status()["answering"] == true);
}

#[test]
fn a_blocked_scheduler_answers_about_its_version_only() {
    for version in ["0.33.0", "0.24.0"] {
        let sandbox = Sandbox::start(&["--ollama", version, "--speed", "60"]);
        sandbox.http("POST", "/api/generate", LOAD);
        sandbox.fault(&["scheduler-blocked"]);
        assert_eq!(sandbox.http("GET", "/api/version", "").0, 200);
        assert_eq!(sandbox.http("GET", "/api/tags", "").0, 200);
        for (method, path, body) in [("GET", "/api/ps", ""), ("POST", "/api/generate", GENERATE)] {
            assert_eq!(http_within(sandbox.port(), method, path, body, SHORT).0, 0, "{path}");
        }

        replace_server(&sandbox);

        assert_eq!(sandbox.http("GET", "/api/ps", "").0, 200);
        assert_eq!(sandbox.http("POST", "/api/generate", GENERATE).0, 200);
    }
}

#[test]
fn a_silent_server_keeps_its_port_open_and_breaks_no_answer_off() {
    let sandbox = Sandbox::start(&[]);
    sandbox.fault(&["work-steady"]);
    sandbox.fault(&["server-silent"]);
    let served = sandbox.served();
    assert!(std::net::TcpStream::connect(("127.0.0.1", sandbox.port())).is_ok());
    assert_eq!(http_within(sandbox.port(), "GET", "/api/version", "", SHORT).0, 0);
    assert_eq!(sandbox.served(), served);
    assert_eq!(sandbox.status()["work"]["failed"], 0);

    replace_server(&sandbox);

    sandbox.is_served_again();
}

#[test]
fn every_runner_of_a_corrupt_server_is_slow_and_breaks() {
    let sandbox = Sandbox::start(&["--speed", "60"]);
    assert_eq!(sandbox.http("POST", "/api/generate", GENERATE).0, 200);
    let first = sandbox.runner()["pid"].clone();
    sandbox.fault(&["serve-corrupt"]);
    assert_eq!(sandbox.http("POST", "/api/generate", GENERATE).0, 500, "its second request");
    assert_eq!(sandbox.http("POST", "/api/generate", GENERATE).0, 200, "the first of its successor");
    assert_ne!(sandbox.runner()["pid"], first);
    assert_eq!(sandbox.http("POST", "/api/generate", GENERATE).0, 500);
    assert!(sandbox.server_log().contains("level=ERROR") && sandbox.server_log().contains("| 500 |"));

    replace_server(&sandbox);

    for _ in 0..3 {
        assert_eq!(sandbox.http("POST", "/api/generate", GENERATE).0, 200);
    }
}

#[test]
fn these_faults_can_be_taken_back() {
    let sandbox = Sandbox::start(&[]);
    sandbox.http("POST", "/api/generate", LOAD);
    for name in ["scheduler-blocked", "server-silent"] {
        sandbox.fault(&[name]);
        sandbox.fault(&["clear"]);
        assert_eq!(sandbox.http("GET", "/api/ps", "").0, 200, "{name}");
    }
}
