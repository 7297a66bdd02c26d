use super::*;

const PRINTED: &str = include_str!("../../fixtures/printed-values.tsv");
const REFUSED: &str = include_str!("../../fixtures/refused-values.tsv");

#[test]
fn the_table_is_sorted_and_every_entry_is_complete() {
    assert!(entries().is_sorted_by(|one, next| one.name < next.name));
    for entry in entries() {
        assert!(Name::try_new(entry.name).is_ok(), "{}", entry.name);
        assert!(entry.meaning.ends_with('.') && entry.meaning.len() > 20, "{}", entry.name);
        assert!(find(entry.name).is_some_and(|found| found.name == entry.name));
        assert!(!entry.kind.allowed().is_empty() && !entry.kind.word().is_empty());
    }
    assert_eq!(definitions().len(), entries().len());
}

#[test]
fn an_unset_variable_shows_the_default() {
    for entry in entries() {
        assert_eq!(in_force(entry.name, ""), entry.default, "{}", entry.name);
    }
}

/// name, value as a JSON text, what a real server printed.
#[test]
fn values_are_shown_as_the_server_showed_them() {
    let mut cases = 0;
    for line in PRINTED.lines().filter(|line| !line.starts_with('#')) {
        let [name, value, printed] = line.split('\t').collect::<Vec<_>>()[..] else { panic!("{line}") };
        let value: String = serde_json::from_str(value).unwrap();
        assert_eq!(in_force(name, &value), canonical(name, printed), "{line}");
        cases += 1;
    }
    assert!(cases > 100);
}

/// name, value, code, a part of the hint.
#[test]
fn values_that_would_be_ignored_or_do_harm_are_refused() {
    for line in REFUSED.lines().filter(|line| !line.starts_with('#')) {
        let [name, value, code, hint] = line.split('\t').collect::<Vec<_>>()[..] else { panic!("{line}") };
        let refused = check(name, value, None).expect_err(line);
        assert_eq!(refused.code, code, "{line}");
        assert!(refused.hint.contains(hint), "{line}: {}", refused.hint);
        assert!(refused.message.contains("nothing was changed"), "{line}");
    }
}

#[test]
fn good_values_keep_their_text_and_tell_what_will_be_shown() {
    for (name, value, shown) in [
        ("OLLAMA_NUM_PARALLEL", "4", "4"),
        ("OLLAMA_NUM_PARALLEL", "'4'", "4"),
        ("OLLAMA_MAX_QUEUE", "10000", "10000"),
        ("OLLAMA_MAX_LOADED_MODELS", "0", "0"),
        ("OLLAMA_KEEP_ALIVE", "10m", "10m0s"),
        ("OLLAMA_KEEP_ALIVE", "-1", "2562047h47m16.854775807s"),
        ("OLLAMA_KEEP_ALIVE", "300", "5m0s"),
        ("OLLAMA_FLASH_ATTENTION", "1", "true"),
        ("OLLAMA_NOPRUNE", "False", "false"),
        ("OLLAMA_HOST", "0.0.0.0", "http://0.0.0.0:11434"),
        ("OLLAMA_HOST", "http://127.0.0.1:1234", "http://127.0.0.1:1234"),
        ("OLLAMA_HOST", "[::1]:1236", "http://[::1]:1236"),
        ("OLLAMA_KV_CACHE_TYPE", "q8_0", "q8_0"),
        ("OLLAMA_DEBUG", "1", "DEBUG"),
        ("OLLAMA_ORIGINS", "http://example.com:*,app://x*", "[http://example.com:* app://x*]"),
        ("OLLAMA_MODELS", "\"/Volumes/big disk/models\"", "/Volumes/big disk/models"),
        ("LLAMA_ARG_ENDPOINT_METRICS", "1", "true"),
        ("LLAMA_ARG_CACHE_RAM", "0", "0"),
        ("LLAMA_ARG_CACHE_RAM", "-1", "-1"),
        ("LLAMA_ARG_FIT", "off", "off"),
        ("LLAMA_ARG_FIT_TARGET", "512,1024", "512,1024"),
    ] {
        let wish = check(name, value, None).unwrap_or_else(|refused| panic!("{name}={value}: {refused}"));
        assert_eq!((wish.value.as_str(), wish.in_force.as_str()), (value, shown), "{name}");
    }
}

#[test]
fn a_setting_is_refused_outside_the_versions_that_read_it() {
    let code = |name: &str, value: &str, version: &str| {
        check(name, value, Some(&version.parse().unwrap())).map_err(|refused| refused.code).err()
    };
    assert_eq!(code("LLAMA_ARG_ENDPOINT_METRICS", "1", "0.24.0"), Some("setting-too-new"));
    assert_eq!(code("LLAMA_ARG_ENDPOINT_METRICS", "1", "0.30.0-rc4"), None);
    assert_eq!(code("OLLAMA_NEW_ENGINE", "1", "0.33.0"), Some("setting-removed"));
    assert_eq!(code("OLLAMA_NEW_ENGINE", "1", "0.24.0"), None);
    assert_eq!(code("OLLAMA_KV_CACHE_TYPE", "q5_1", "0.24.0"), Some("ignored-value"));
    assert_eq!(code("OLLAMA_KV_CACHE_TYPE", "q5_1", "0.33.0"), None);
    assert_eq!(code("OLLAMA_NEW_ENGINE", "1", "0.0.0"), None);
}

#[test]
fn the_name_that_was_meant_is_named() {
    for (written, meant) in [
        ("num-parallel", "OLLAMA_NUM_PARALLEL"),
        ("NUM_PARALLEL", "OLLAMA_NUM_PARALLEL"),
        ("ollama_num_parallel", "OLLAMA_NUM_PARALLEL"),
        ("OLLAMA_NUM_PARALEL", "OLLAMA_NUM_PARALLEL"),
        ("OLLAMA_MAX_QUEU", "OLLAMA_MAX_QUEUE"),
        ("max queue", "OLLAMA_MAX_QUEUE"),
        ("OLLAMA_KEEPALIVE", "OLLAMA_KEEP_ALIVE"),
        ("endpoint-metrics", "LLAMA_ARG_ENDPOINT_METRICS"),
    ] {
        assert_eq!(nearest(written), Some(meant), "{written}");
        let refused = check(written, "1", None).unwrap_err();
        assert_eq!(refused.code, "unknown-setting");
        assert!(refused.hint.contains(meant));
    }
    assert_eq!(nearest("COMPLETELY_DIFFERENT_THING"), None);
}

#[test]
fn defaults_follow_the_version_of_the_server() {
    let default = |name: &str, version: &str| find(name).unwrap().default_for(Some(version.parse().unwrap()));
    assert_eq!(default("OLLAMA_CONTEXT_LENGTH", "0.15.4"), "4096");
    assert_eq!(default("OLLAMA_CONTEXT_LENGTH", "0.15.5"), "0");
    assert_eq!(default("OLLAMA_VULKAN", "0.24.0"), "false");
    assert_eq!(default("OLLAMA_VULKAN", "0.0.0"), "true");
}

#[test]
fn built_in_origins_do_not_count() {
    let printed = "[http://a.example  b* http://localhost https://localhost:* http://0.0.0.0 app://* vscode-file://*]";
    assert_eq!(canonical("OLLAMA_ORIGINS", printed), "[http://a.example b*]");
    assert_eq!(canonical("OLLAMA_ORIGINS", "[http://localhost tauri://*]"), "[]");
    assert_eq!(canonical("OLLAMA_MODELS", "/a  b"), "/a  b");
}
