use super::*;
use crate::testing::machine;

fn read(text: &str) -> Result<Configuration, Failure> {
    let folder = tempfile::tempdir().unwrap();
    parse(&machine(folder.path()), Path::new("c.toml"), text)
}

#[test]
fn without_a_word_it_stands_beside_the_ollama_of_its_machine() {
    let configuration = read("[settings]\nOLLAMA_NUM_PARALLEL = 1\n").unwrap();
    assert_eq!(configuration.upstream, "127.0.0.1:21434".parse().unwrap());
    assert_eq!(configuration.listen, ["127.0.0.1:21435".parse().unwrap()]);
}

#[test]
fn everything_that_can_be_written_is_read() {
    let configuration = read(
        r#"
[gateway]
listen = ["127.0.0.1:11434", "[::1]:11434"]
upstream = "http://localhost:11450"
waiting = 10
slots = 2
lane = "interactive"
keep_alive_after_s = 0
body_mib = 4
origins = ["https://*.good.example"]

[gateway.aliases]
agent-red = "agent"
agent = "qwen3.5:4b"

[gateway.models."qwen3.5:4b"]
slots = 3
waiting = 5
pin = { num_ctx = 8192, use_mmap = true }

[gateway.clients.chat]
program = "node"
lane = "batch"
patience_s = 60
keep_alive = false
"#,
    )
    .unwrap();
    assert_eq!(configuration.listen.len(), 2);
    assert_eq!(configuration.upstream, "127.0.0.1:11450".parse().unwrap());
    assert_eq!((configuration.limits.waiting, configuration.limits.slots_while_unknown), (10, 2));
    assert_eq!(configuration.bounds.keep_alive, None);
    assert_eq!(configuration.bounds.body_bytes, 4 << 20);
    assert_eq!(configuration.model("agent-red"), "qwen3.5:4b");
    assert_eq!(configuration.model("agent-red:latest"), "qwen3.5:4b");
    assert_eq!(configuration.model("other"), "other");
    assert_eq!(configuration.pins["qwen3.5:4b"]["num_ctx"], Pin::Number(8192));
    assert_eq!(configuration.slots["qwen3.5:4b"], 3);
    assert_eq!(configuration.limits.of_model("qwen3.5:4b").waiting, 5);
    let chat = configuration.limits.of_client("chat");
    assert_eq!((chat.lane, chat.patience), (Some(Lane::Batch), Some(Duration::from_secs(60))));
    assert_eq!(configuration.clients["chat"].keep_alive, Some(false));
}

#[test]
fn without_a_word_about_it_nobody_is_let_in_from_outside() {
    for (upstream, listen) in
        [("0.0.0.0:11450", "127.0.0.1:11451"), ("192.0.2.7:11450", "127.0.0.1:11451"), ("[::]:11450", "[::1]:11451")]
    {
        let taken = read(&format!("[gateway]\nupstream = \"{upstream}\"\n")).unwrap();
        assert_eq!(taken.listen, [listen.parse().unwrap()], "{upstream}");
    }
}

#[test]
fn a_mistake_is_told_with_its_place() {
    let cases = [
        ("gateway = 1\n", "c.toml:1:11: «gateway» must be a section"),
        ("[gateway]\nlisten = 5\n", "c.toml:2:10: "),
        ("[gateway]\nlissten = []\n", "c.toml:2:1: unknown field `lissten`"),
        ("[gateway]\nlisten = [\"somewhere\"]\n", "«somewhere» is no address"),
        ("[gateway]\nupstream = \"https://127.0.0.1:1\"\n", "only http is spoken here"),
        ("[gateway]\nlane = \"fast\"\n", "there is no lane «fast»; the lanes are interactive, agent, batch"),
        ("[gateway]\nslots = 0\n", "slots must be at least 1"),
        ("[gateway]\nrequire_key = true\n", "require_key needs keys"),
        ("[gateway]\nlisten = [\"0.0.0.0:21434\"]\n", "listen and upstream are the same address"),
        (
            "[gateway]\nlisten = [\"127.0.0.1:21434\"]\nupstream = \"0.0.0.0:21434\"\n",
            "listen and upstream are the same address",
        ),
        ("[gateway.models.m]\npin = { temperature = 1 }\n", "«temperature» of m cannot be pinned"),
        ("[gateway.models.m]\npin = { num_ctx = \"big\" }\n", "c.toml:2:"),
    ];
    for (text, expected) in cases {
        let failure = read(text).unwrap_err();
        assert_eq!(failure.code, "bad-config");
        assert!(failure.message.contains(expected), "{text}: {}", failure.message);
    }
}

#[test]
fn aliases_that_go_in_a_circle_are_refused_and_the_circle_is_shown() {
    let failure = read("[gateway.aliases]\na = \"b:latest\"\nb = \"c\"\nc = \"a\"\n").unwrap_err();
    assert!(failure.message.contains("circle: a → b:latest → c → a"), "{}", failure.message);
    let failure = read("[gateway.aliases]\na = \"a:latest\"\n").unwrap_err();
    assert!(failure.message.contains("circle"), "{}", failure.message);
}

#[test]
fn a_bad_edit_leaves_the_last_good_version_in_force() {
    let folder = tempfile::tempdir().unwrap();
    let machine = machine(folder.path());
    let path = stablehand_files(&machine).config_file;
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(&path, "[gateway]\nwaiting = 7\n").unwrap();
    let mut file = ConfigurationFile::open(&machine).unwrap();
    assert_eq!(file.current().limits.waiting, 7);
    std::fs::write(&path, "[gateway.aliases]\na = \"b\"\nb = \"a\"\n").unwrap();
    assert!(!file.follow());
    assert!(file.failure().is_some_and(|failure| failure.message.contains("circle")));
    assert_eq!(file.current().limits.waiting, 7);
    std::fs::write(&path, "[gateway]\nwaiting = 8\n# mended\n").unwrap();
    assert!(file.follow());
    assert!(file.failure().is_none());
    assert_eq!(file.current().limits.waiting, 8);
}

#[test]
fn names_are_what_the_server_lists() {
    for (name, full) in [
        ("Qwen3.5:4B", "qwen3.5:4b"),
        ("llama", "llama:latest"),
        ("registry.ollama.ai/library/llama", "llama:latest"),
        ("hf.co/ada/model:Q4", "hf.co/ada/model:q4"),
        ("host:5000/ada/model", "host:5000/ada/model:latest"),
        ("library/llama:1b", "llama:1b"),
        // Large letters that have no small ones.
        ("𝐀Ä", "𝐀ä:latest"),
    ] {
        assert_eq!(full_name(name), full);
    }
}

#[test]
fn a_span_that_could_not_be_reckoned_with_is_refused_where_it_stands() {
    for name in ["affinity_s", "ageing_s", "head_s", "body_silence_s", "hold_at_most_s", "unreachable_s", "drain_s"] {
        let failure = read(&format!("[gateway]\n{name} = 9223372036854775807\n")).unwrap_err();
        assert!(failure.message.contains("30 days") && failure.message.contains(":2"), "{name}: {}", failure.message);
    }
    assert!(read("[gateway]\nbody_silence_s = 2592000\n").is_ok());
}
