//! Views to test with.

use stablehand_protocol::face::{Choices, Link, View};
use stablehand_protocol::queue::{QueueHold, QueueView, WaitingRequest};
use stablehand_protocol::{
    Alert, Config, Gateway, Judged, Known, Memory, Phrase, Queue, Recovery, Release, Server, Setting, Snapshot,
    Upgrade, Versions, Watched, WatchedRunner,
};
use std::collections::BTreeMap;

pub fn view(link: Link) -> View {
    View {
        link,
        queue: None,
        choices: Choices::default(),
        failures: vec![],
        matter: None,
        version: "0.1.0".to_owned(),
        system: "macos".to_owned(),
    }
}

pub fn live(snapshot: Snapshot) -> View {
    view(Link::Live { snapshot: Box::new(snapshot) })
}

pub fn snapshot() -> Snapshot {
    Snapshot {
        daemon_version: env!("CARGO_PKG_VERSION").to_owned(),
        simulated: None,
        server: Server {
            state: "up".to_owned(),
            since: String::new(),
            words: String::new(),
            version: Known::Is("0.33.0".to_owned()),
            owner: Known::Is("app".to_owned()),
            owner_detail: None,
            rivals: vec![],
            pid: None,
            started: Known::unknown("not looked"),
            address: "127.0.0.1:11434".to_owned(),
            serving: true,
        },
        work: None,
        settings: vec![],
        runners: vec![],
        watched: None,
        gateway: None,
        alerts: vec![],
        versions: None,
        alerts_paused_until: None,
        config: Config { path: "/c.toml".to_owned(), failure: None, quiet: None },
        notes: vec![],
    }
}

pub fn watched(runners: Vec<WatchedRunner>) -> Watched {
    Watched {
        at: String::new(),
        memory: Memory {
            total_bytes: Known::Is(64 << 30),
            used_bytes: Known::Is(32 << 30),
            wired_bytes: Known::unknown("not asked"),
            compressed_bytes: Known::unknown("not asked"),
            swap_total_bytes: Known::unknown("not asked"),
            swap_used_bytes: Known::Is(0),
            swap_in_bytes_per_s: Known::Is(0.0),
            swap_out_bytes_per_s: Known::Is(0.0),
            pressure_level: Known::Is(1),
            gpu_limit_bytes: Known::unknown("not asked"),
            gpu_used_bytes: Known::unknown("not asked"),
            gpu_percent: Known::unknown("not asked"),
            throttled: Known::unknown("not asked"),
        },
        queue: Queue { at_least: Known::Is(0), at_most: Known::Is(0), clients: Known::Is(vec![]) },
        runners,
        server: None,
        recovery: Recovery { policy: "alert".to_owned(), given_up: vec![], acts: false },
        log: Known::unknown("not read"),
        tokens: vec![],
    }
}

pub fn runner(model: &str, busy: u32, judged: Option<Judged>) -> WatchedRunner {
    WatchedRunner {
        pid: 7,
        model: Known::Is(model.to_owned()),
        kind: "llama-server".to_owned(),
        judged,
        slots: Known::Is(1),
        slots_busy: Known::Is(busy),
        footprint_bytes: Known::unknown("not asked"),
        cpu_s: Known::unknown("not asked"),
        listed_until: Known::Is(None),
    }
}

pub fn judged(verdict: &str, trouble: bool) -> Judged {
    Judged {
        verdict: verdict.to_owned(),
        said: Phrase { code: verdict.to_owned(), values: BTreeMap::new(), words: String::new() },
        evidence: vec![],
        for_s: 1,
        trouble,
        progress: None,
        tokens_per_s: None,
    }
}

pub fn alert(kind: &str, message: &str) -> Alert {
    let (kind, message, action) = (kind.to_owned(), message.to_owned(), "do it".to_owned());
    Alert { kind, message, evidence: None, action, at: String::new() }
}

pub fn setting(name: &str, desired: Option<&str>) -> Setting {
    Setting {
        name: name.to_owned(),
        desired: desired.map(str::to_owned),
        persisted: Known::Is(None),
        session: None,
        effective: Known::unknown("not looked"),
        proof: vec![],
        default: "1".to_owned(),
        standing: "not-managed".to_owned(),
        drift: vec![],
        meaning: String::new(),
        allowed: String::new(),
        caution: String::new(),
    }
}

pub fn gateway(mode: &str, state: &str) -> Gateway {
    Gateway {
        mode: mode.to_owned(),
        state: state.to_owned(),
        words: String::new(),
        listen: None,
        upstream: None,
        healthy: Known::unknown("not asked"),
        pid: None,
        aside: None,
    }
}

pub fn queue(waiting: u64, holds: &[&str]) -> QueueView {
    let request = |id| WaitingRequest {
        id,
        model: "m:1b".to_owned(),
        client: "bot".to_owned(),
        lane: "agent".to_owned(),
        path: "/api/chat".to_owned(),
        waited_ms: 1000,
        position: id,
        expected_ms: None,
    };
    QueueView {
        at: String::new(),
        version: "0.1.0".to_owned(),
        phase: "open".to_owned(),
        listen: vec!["127.0.0.1:11434".to_owned()],
        upstream: "127.0.0.1:11436".to_owned(),
        holds: holds.iter().map(|why| QueueHold { why: (*why).to_owned(), model: None, left_ms: None }).collect(),
        waiting: (1..=waiting).map(request).collect(),
        waiting_at_most: 512,
        running: vec![],
        models: vec![],
        switches: 0,
        bodies_bytes: 0,
        missing: vec![],
        config_failure: None,
        simulated: None,
    }
}

pub fn versions() -> Versions {
    Versions {
        installed: Known::Is("0.22.1".to_owned()),
        install: Known::Is(Some("app".to_owned())),
        replaceable: true,
        latest: Some(Release {
            version: "0.24.0".to_owned(),
            published: Known::unknown("not said"),
            notes: "faster".to_owned(),
            size_bytes: Known::Is(190_000_000),
            prerelease: false,
        }),
        newer: Known::Is(true),
        checked_at: None,
        unreachable: None,
        pin: None,
        kept: vec![],
        running: None,
        last: None,
        checks: true,
    }
}

pub fn running(goal: &str) -> Upgrade {
    Upgrade {
        goal: goal.to_owned(),
        from: "0.22.1".to_owned(),
        to: "0.24.0".to_owned(),
        step: "download".to_owned(),
        words: "download it".to_owned(),
        index: 1,
        of: 18,
        done_bytes: Some(82_000_000),
        of_bytes: Some(190_000_000),
        undoing: None,
    }
}
