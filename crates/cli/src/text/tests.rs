use super::*;
use stablehand_protocol::{Alert, Config, Owner, Proof, Server};

#[test]
fn a_snapshot_reads_as_one_page() {
    assert_eq!(
        snapshot(&sample(), Paint::Plain),
        "SIMULATED machine in /w
Ollama 0.33.0 up since 2026-11-30T06:00:00Z at 127.0.0.1:11434
  Ollama answers
  owner: app (/Applications/Ollama.app, pid 812)

setting              desired  persisted  session  effective  standing
OLLAMA_NUM_PARALLEL  1        1          1        1          proven by server config line and process environment
OLLAMA_MAX_QUEUE     10       10         512      512        drift: session, effective

runners
  qwen3.6:35b  1 slot, forced: qwen35moe takes one request at a time  llama-server pid 900

alerts
  2026-11-30T06:01:00Z not in force as desired: OLLAMA_MAX_QUEUE  → stablehand apply
"
    );
}

#[test]
fn an_unknown_layer_says_why_and_never_looks_like_unset() {
    let mut unknown = sample().settings.remove(0);
    unknown.effective = Known::unknown("the log holds no config line");
    unknown.standing = "unknown".to_owned();
    let text = settings(&[unknown], Paint::Plain);
    assert!(text.contains("OLLAMA_NUM_PARALLEL effective is unknown: the log holds no config line"), "{text}");
}

#[test]
fn a_machine_without_a_session_layer_has_no_empty_column() {
    let mut one = sample().settings.remove(0);
    one.session = None;
    assert!(!settings(&[one], Paint::Plain).contains("session"));
}

#[test]
fn a_failure_says_what_happened_and_what_to_do() {
    let text = failure(&Failure::new("port-stranger", "port 1 is held", "stop it"), Paint::Plain);
    assert_eq!(text, "error: port 1 is held [port-stranger]\nhint: stop it\n");
}

#[test]
fn a_cost_beyond_the_budget_is_painted_as_bad() {
    let bound = MemoryBound {
        model: "m".to_owned(),
        at_most_bytes: Known::Is(3 << 30),
        slots: 4,
        context_tokens: 4096,
        budget_bytes: Known::Is(2 << 30),
        budget_source: "GPU working set".to_owned(),
    };
    let mut out = String::new();
    memory(&mut out, std::slice::from_ref(&bound), Paint::Coloured);
    assert!(out.contains("\u{1b}[31mat most 3.0 GiB\u{1b}[0m for 4 × 4096 tokens; budget 2.0 GiB"), "{out}");
}

#[test]
fn drift_names_the_layers() {
    let ending = Ending { settings: sample().settings, ..Ending::new(Outcome::Drift) };
    assert!(super::ending(&ending, Paint::Plain).ends_with("drift: OLLAMA_MAX_QUEUE (session, effective)\n"));
}

fn sample() -> Snapshot {
    let proofs = ["server-config-line", "process-environment"];
    let setting = |name: &str, desired: &str, in_force: &str| Setting {
        name: name.to_owned(),
        desired: Some(desired.to_owned()),
        persisted: Known::Is(Some(desired.to_owned())),
        session: Some(Known::Is(Some(in_force.to_owned()))),
        effective: Known::Is(in_force.to_owned()),
        proof: proofs.iter().map(|kind| Proof { kind: (*kind).to_owned(), source: String::new() }).collect(),
        default: "1".to_owned(),
        standing: if desired == in_force { "proven" } else { "drift" }.to_owned(),
        drift: if desired == in_force { vec![] } else { vec!["session".to_owned(), "effective".to_owned()] },
        meaning: String::new(),
        allowed: String::new(),
        caution: String::new(),
    };
    Snapshot {
        daemon_version: env!("CARGO_PKG_VERSION").to_owned(),
        simulated: Some("/w".to_owned()),
        server: Server {
            state: "up".to_owned(),
            since: "2026-11-30T06:00:00Z".to_owned(),
            words: "Ollama answers".to_owned(),
            version: Known::Is("0.33.0".to_owned()),
            owner: Known::Is("app".to_owned()),
            owner_detail: Some(Owner {
                name: "/Applications/Ollama.app".to_owned(),
                can_restart: true,
                hint: String::new(),
            }),
            rivals: vec![],
            pid: Some(812),
            started: Known::Is("2026-11-30T05:59:00Z".to_owned()),
            address: "127.0.0.1:11434".to_owned(),
            serving: true,
        },
        work: None,
        settings: vec![setting("OLLAMA_NUM_PARALLEL", "1", "1"), setting("OLLAMA_MAX_QUEUE", "10", "512")],
        runners: vec![Runner {
            pid: 900,
            kind: "llama-server".to_owned(),
            model: Known::Is("qwen3.6:35b".to_owned()),
            slots: Known::Is(1),
            forced: Some("qwen35moe takes one request at a time".to_owned()),
        }],
        watched: None,
        gateway: None,
        alerts: vec![Alert {
            kind: "drift".to_owned(),
            message: "not in force as desired: OLLAMA_MAX_QUEUE".to_owned(),
            evidence: None,
            action: "stablehand apply".to_owned(),
            at: "2026-11-30T06:01:00Z".to_owned(),
        }],
        versions: None,
        alerts_paused_until: None,
        config: Config { path: "/c.toml".to_owned(), failure: None, quiet: None },
        notes: vec![],
    }
}
