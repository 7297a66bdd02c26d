use super::*;
use std::collections::{BTreeSet, HashSet};

const DASHBOARD: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging/grafana/stablehand.json"));

#[test]
fn a_full_page_is_well_formed_and_says_what_it_was_given() {
    let page = parse(&exposition(&full()));
    assert_eq!(page.value("stablehand_memory_used_bytes", &[]), Some(51_539_607_552.0));
    assert_eq!(page.value("stablehand_swap_out_bytes_per_second", &[]), Some(1_048_576.5));
    assert_eq!(page.value("stablehand_server_start_time_seconds", &[]), Some(1_794_052_985.25));
    assert_eq!(page.value("stablehand_start_time_seconds", &[]), Some(1_794_052_000.5));
    assert_eq!(page.value("stablehand_runner_slots_busy", &[("model", "gemma3:27b")]), Some(2.0));
    assert_eq!(
        page.value("stablehand_request_duration_seconds", &[("endpoint", "/api/chat"), ("quantile", "0.95")]),
        Some(41.5)
    );
    assert_eq!(page.value("stablehand_requests_recent", &[("endpoint", "/api/chat")]), Some(812.0));
    assert_eq!(page.value("stablehand_error_responses_total", &[("status", "503")]), Some(7.0));
    assert_eq!(page.value("stablehand_build_info", &[("version", "0.1.0"), ("simulated", "false")]), Some(1.0));
    assert!(page.samples.iter().all(|sample| sample.name != "stablehand_unknown"));
}

#[test]
fn what_is_not_known_has_no_sample_and_is_named() {
    let mut gauges = full();
    gauges.memory.used_bytes = Known::unknown("refused");
    gauges.requests = Known::unknown("there is no log");
    gauges.swap.in_bytes_per_second = Known::Is(f64::NAN);
    let model = gauges.models.get_mut("gemma3:27b").unwrap();
    model.slots = Known::unknown("its port is closed");
    let page = parse(&exposition(&gauges));
    assert_eq!(page.value("stablehand_memory_used_bytes", &[]), None);
    let unknown = [
        "memory_used_bytes",
        "swap_in_bytes_per_second",
        "request_duration_seconds",
        "requests_recent",
        "error_responses_total",
    ];
    for what in unknown {
        assert_eq!(page.value("stablehand_unknown", &[("what", what)]), Some(1.0), "{what}");
    }
    let of_model = [("what", "runner_slots"), ("model", "gemma3:27b")];
    assert_eq!(page.value("stablehand_unknown", &of_model), Some(1.0));
    assert_eq!(page.samples.iter().filter(|sample| sample.name == "stablehand_unknown").count(), 6);
}

#[test]
fn what_does_not_exist_here_is_neither_told_nor_unknown() {
    let mut gauges = full();
    gauges.gpu = None;
    gauges.models.clear();
    gauges.history = None;
    let text = exposition(&gauges);
    parse(&text);
    for name in ["gpu_", "runner_slots", "history_", "unknown{"] {
        assert!(!text.contains(name), "{name} in\n{text}");
    }
}

#[test]
fn names_of_models_are_escaped() {
    let mut gauges = full();
    let odd = "큰 \"model\" C:\\x\nend";
    let model = gauges.models["gemma3:27b"].clone();
    gauges.models.insert(odd.to_owned(), model);
    let page = parse(&exposition(&gauges));
    assert_eq!(page.value("stablehand_runner_slots", &[("model", odd)]), Some(4.0));
}

#[test]
fn the_dashboard_shows_every_family_and_nothing_else() {
    let told: BTreeSet<String> = parse(&exposition(&with_one_unknown())).names();
    let named = named_in_dashboard();
    let invented: Vec<_> = named.difference(&told).collect();
    assert!(invented.is_empty(), "the dashboard names what is not told: {invented:?}");
    let unseen: Vec<_> = told.difference(&named).collect();
    assert!(unseen.is_empty(), "the dashboard does not show: {unseen:?}");
}

#[test]
fn the_dashboard_works_with_any_data_source() {
    let dashboard: serde_json::Value = serde_json::from_str(DASHBOARD).unwrap();
    assert!(dashboard["schemaVersion"].as_u64().unwrap() >= 39);
    let variables = dashboard["templating"]["list"].as_array().unwrap();
    let source = &variables[0];
    assert_eq!((source["name"].as_str(), source["type"].as_str()), (Some("datasource"), Some("datasource")));
    assert_eq!(source["query"], "prometheus");
    let mut ids = HashSet::new();
    for panel in dashboard["panels"].as_array().unwrap() {
        assert!(ids.insert(panel["id"].as_u64().unwrap()), "two panels have one id");
        if panel["type"] != "row" {
            assert_eq!(panel["datasource"]["uid"], "${datasource}", "{}", panel["title"]);
            assert!(!panel["targets"].as_array().unwrap().is_empty());
        }
    }
}

fn named_in_dashboard() -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let mut rest = DASHBOARD;
    while let Some(start) = rest.find("stablehand_") {
        rest = &rest[start..];
        let end = rest.find(|c: char| !(c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')).unwrap();
        names.insert(rest[..end].to_owned());
        rest = &rest[end..];
    }
    names
}

fn with_one_unknown() -> Gauges {
    let mut gauges = full();
    let mut second = gauges.models["gemma3:27b"].clone();
    second.slots = Known::unknown("its port is closed");
    gauges.models.insert("other".to_owned(), second);
    gauges
}

fn full() -> Gauges {
    let gib = 1024 * 1024 * 1024;
    let model = ModelGauges {
        verdicts: BTreeMap::from([("generating".to_owned(), 1)]),
        slots: Known::Is(4),
        slots_busy: Known::Is(2),
        footprint_bytes: Known::Is(19 * gib),
        cpu: Known::Is(Duration::from_millis(93_250)),
        prompt_tokens_total: Known::Is(47_324),
        generated_tokens_total: Known::Is(2_100),
        tokens_per_second: Known::Is(17.25),
    };
    let chat = DurationGauges {
        quantiles: [(0.5, 9_000), (0.95, 41_500), (0.99, 131_072)]
            .map(|(quantile, time_ms)| (quantile, Duration::from_millis(time_ms)))
            .to_vec(),
        count: 812,
    };
    Gauges {
        version: "0.1.0".to_owned(),
        simulated: false,
        started: Wall::from_unix_ms(1_794_052_000_500),
        memory: MemoryGauges {
            total_bytes: Known::Is(64 * gib),
            used_bytes: Known::Is(48 * gib),
            wired_bytes: Known::Is(5 * gib),
            compressed_bytes: Known::Is(3 * gib),
        },
        swap: SwapGauges {
            total_bytes: Known::Is(4 * gib),
            used_bytes: Known::Is(gib),
            in_bytes_per_second: Known::Is(0.0),
            out_bytes_per_second: Known::Is(1_048_576.5),
        },
        pressure_level: Known::Is(2),
        throttled: Known::Is(false),
        gpu: Some(GpuGauges {
            utilization_ratio: Known::Is(0.75),
            memory_used_bytes: Known::Is(20 * gib),
            memory_limit_bytes: Known::Is(48 * gib),
        }),
        server: ServerGauges {
            up: true,
            serving: true,
            version: Known::Is("0.33.0".to_owned()),
            owner: Known::Is("app".to_owned()),
            started: Known::Is(Wall::from_unix_ms(1_794_052_985_250)),
        },
        models: BTreeMap::from([("gemma3:27b".to_owned(), model)]),
        queue: QueueGauges {
            at_least: Known::Is(1),
            at_most: Known::Is(3),
            oldest_wait: Known::Is(Duration::from_secs(131)),
        },
        settings_drift: Known::Is(0),
        deeds: DeedGauges { alerts_total: 3, restarts_total: 1, runner_kills_total: 2 },
        requests: Known::Is(RequestGauges {
            durations: BTreeMap::from([("/api/chat".to_owned(), chat)]),
            refused_total: 7,
            abandoned_total: 2,
            failed_total: 1,
        }),
        history: Some(HistoryGauges { file_bytes: 9_000_000, dropped_total: 0 }),
    }
}

struct Parsed {
    samples: Vec<Sample>,
}

struct Sample {
    name: String,
    labels: BTreeMap<String, String>,
    value: f64,
}

impl Parsed {
    fn value(&self, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        let labels: BTreeMap<String, String> =
            labels.iter().map(|(label, value)| ((*label).to_owned(), (*value).to_owned())).collect();
        self.samples.iter().find(|sample| sample.name == name && sample.labels == labels).map(|sample| sample.value)
    }

    fn names(&self) -> BTreeSet<String> {
        self.samples.iter().map(|sample| sample.name.clone()).collect()
    }
}

/// Reads the format strictly: one help and one type before the samples of a family, families in one piece, no sample
/// twice, names and escapes as the format allows.
fn parse(text: &str) -> Parsed {
    assert!(text.ends_with('\n') && !text.contains("\n\n"));
    let mut samples = Vec::new();
    let (mut families, mut seen) = (HashSet::new(), HashSet::new());
    let mut family: Option<String> = None;
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if let Some(help) = line.strip_prefix("# HELP ") {
            let (name, words) = help.split_once(' ').unwrap();
            assert!(words.ends_with('.') && families.insert(name.to_owned()), "{line}");
            let kind = lines.next().unwrap().strip_prefix(&format!("# TYPE {name} ")).unwrap();
            assert!(["gauge", "counter"].contains(&kind));
            assert_eq!(kind == "counter", name.ends_with("_total"), "{name} is a {kind}");
            family = Some(name.to_owned());
            continue;
        }
        let sample = parse_sample(line);
        assert_eq!(family.as_ref(), Some(&sample.name), "{line}");
        let head = line.rsplit_once(' ').unwrap().0.to_owned();
        assert!(seen.insert(head), "{line} comes twice");
        samples.push(sample);
    }
    Parsed { samples }
}

fn parse_sample(line: &str) -> Sample {
    let end = line.find(['{', ' ']).unwrap();
    let (name, mut rest) = line.split_at(end);
    assert!(
        name.starts_with("stablehand_")
            && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
    );
    let mut labels = BTreeMap::new();
    if let Some(inside) = rest.strip_prefix('{') {
        rest = inside;
        loop {
            let (label, after) = rest.split_once("=\"").unwrap();
            assert!(label.chars().all(|c| c.is_ascii_lowercase() || c == '_'), "{line}");
            let mut value = String::new();
            let mut chars = after.char_indices();
            let closing = loop {
                match chars.next().unwrap() {
                    (index, '"') => break index,
                    (_, '\\') => value.push(match chars.next().unwrap().1 {
                        'n' => '\n',
                        same @ ('\\' | '"') => same,
                        other => panic!("\\{other} in {line}"),
                    }),
                    (_, plain) => value.push(plain),
                }
            };
            assert!(labels.insert(label.to_owned(), value).is_none(), "{line}");
            rest = &after[closing + 1..];
            match rest.strip_prefix(',') {
                Some(more) => rest = more,
                None => break,
            }
        }
        rest = rest.strip_prefix('}').unwrap();
    }
    let value = rest.strip_prefix(' ').unwrap().parse().unwrap();
    Sample { name: name.to_owned(), labels, value }
}
