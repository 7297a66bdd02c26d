//! The table itself. Names, kinds, defaults and what is shown: `ollama envconfig/config.go` from 0.12.0 to 0.33.0-rc2,
//! release by release; `LLAMA_ARG_*`: llama.cpp `common/arg.cpp`.

use super::{Entry, Kind};
use crate::version::Version;
use stablehand_engine::setting::Shown;

/// What `llama-server` accepts for `--cache-type-k` (llama.cpp `common/arg.cpp`).
pub(super) const KV_CACHE_TYPES: &[&str] = &["f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "iq4_nl", "q5_0", "q5_1"];

const V0_30: Option<Version> = Some(Version::new(0, 30, 0));
const V0_24: Option<Version> = Some(Version::new(0, 24, 0));

/// An entry of the most common sort; the table names only what differs.
const PLAIN: Entry = Entry {
    name: "",
    kind: Kind::Text,
    default: "",
    earlier_defaults: &[],
    meaning: "",
    since: None,
    until: None,
    shown: Shown::ConfigLine,
    app_may_override: false,
    caution: None,
};

/// Sorted by name.
pub(super) static ENTRIES: &[Entry] = &[
    Entry {
        name: "LLAMA_ARG_CACHE_RAM",
        kind: Kind::RunnerNumber { least: -1, most: 1 << 20 },
        default: "8192",
        meaning: "How many MiB of main memory each runner may use to keep prompts it has already processed; -1 is no \
                  limit, 0 is none.",
        since: V0_30,
        shown: Shown::EnvironmentOnly,
        caution: Some("it comes on top of the size that Ollama reports for a model, once per runner"),
        ..PLAIN
    },
    Entry {
        name: "LLAMA_ARG_ENDPOINT_METRICS",
        kind: Kind::RunnerFlag,
        default: "false",
        meaning: "Lets each runner count its work at /metrics, which shows whether a request still makes progress.",
        since: V0_30,
        shown: Shown::EnvironmentOnly,
        ..PLAIN
    },
    Entry {
        name: "LLAMA_ARG_FIT",
        kind: Kind::RunnerFlag,
        meaning: "Whether a runner reduces what nobody set (such as layers on the GPU) until it fits into memory.",
        since: V0_30,
        ..PLAIN
    },
    Entry {
        name: "LLAMA_ARG_FIT_TARGET",
        kind: Kind::RunnerNumbers,
        meaning: "How many MiB of GPU memory a runner leaves free, for each device.",
        since: V0_30,
        ..PLAIN
    },
    Entry {
        name: "OLLAMA_AUTH",
        kind: Kind::Flag,
        default: "false",
        meaning: "Makes Ollama's own client sign its requests to the server.",
        shown: Shown::EnvironmentOnly,
        ..PLAIN
    },
    Entry {
        name: "OLLAMA_CONTEXT_LENGTH",
        kind: Kind::Count { least: 0, most: 1 << 24 },
        default: "0",
        earlier_defaults: &[(Version::new(0, 15, 5), "4096")],
        meaning: "How many tokens of context a model gets when a request does not say; 0 lets Ollama choose by GPU \
                  memory.",
        app_may_override: true,
        caution: Some("every parallel request of every model gets this much, so memory grows with both"),
        ..PLAIN
    },
    Entry {
        name: "OLLAMA_DEBUG",
        kind: Kind::Level,
        default: "INFO",
        meaning: "How much the server writes into its log.",
        caution: Some("level 2 writes parts of conversations into the log"),
        ..PLAIN
    },
    Entry {
        name: "OLLAMA_DEBUG_LOG_REQUESTS",
        kind: Kind::Flag,
        default: "false",
        meaning: "Writes the body of every inference request into a temporary folder.",
        since: Some(Version::new(0, 18, 3)),
        caution: Some("the folder holds every prompt in clear text"),
        ..PLAIN
    },
    Entry {
        name: "OLLAMA_EDITOR",
        meaning: "The editor that Ollama's interactive client opens; the server only shows it.",
        since: Some(Version::new(0, 16, 0)),
        ..PLAIN
    },
    Entry {
        name: "OLLAMA_FLASH_ATTENTION",
        kind: Kind::Flag,
        default: "false",
        meaning: "Forces flash attention on or off; without it the runner decides.",
        caution: Some("the server shows false both when it is off and when nobody set it"),
        ..PLAIN
    },
    Entry {
        name: "OLLAMA_GO_TEMPLATE",
        kind: Kind::Flag,
        default: "true",
        meaning: "Whether a model's own prompt template is used where it has one.",
        since: V0_30,
        ..PLAIN
    },
    Entry {
        name: "OLLAMA_GPU_OVERHEAD",
        kind: Kind::Bytes { most: 1 << 40 },
        default: "0",
        meaning: "How many bytes of every GPU's memory Ollama leaves alone.",
        ..PLAIN
    },
    Entry {
        name: "OLLAMA_HOST",
        kind: Kind::Host,
        default: "http://127.0.0.1:11434",
        meaning: "The address and port that the server listens on.",
        app_may_override: true,
        caution: Some("any other address than loopback opens the server to the network, without a password"),
        ..PLAIN
    },
    Entry {
        name: "OLLAMA_IGPU_ENABLE",
        kind: Kind::FlagShownRaw,
        meaning: "Whether a GPU that shares the processor's memory may be used.",
        since: V0_30,
        ..PLAIN
    },
    Entry {
        name: "OLLAMA_INTEL_GPU",
        kind: Kind::Flag,
        default: "false",
        meaning: "Looks for Intel GPUs.",
        until: Some(Version::new(0, 12, 10)),
        ..PLAIN
    },
    Entry {
        name: "OLLAMA_KEEP_ALIVE",
        kind: Kind::KeepAlive,
        default: "5m0s",
        meaning: "How long a model stays in memory after its last request, unless the request says otherwise.",
        ..PLAIN
    },
    Entry {
        name: "OLLAMA_KV_CACHE_TYPE",
        kind: Kind::Word { allowed: KV_CACHE_TYPES },
        meaning: "How exactly the context is kept in memory; q8_0 takes about half of f16.",
        caution: Some(
            "a type that the runner does not know makes every load fail; types below f16 need flash attention",
        ),
        ..PLAIN
    },
    Entry {
        name: "OLLAMA_LLM_LIBRARY",
        meaning: "The GPU library to use instead of the one that Ollama finds by itself.",
        ..PLAIN
    },
    Entry {
        name: "OLLAMA_LOAD_TIMEOUT",
        kind: Kind::LoadTimeout,
        default: "5m0s",
        meaning: "How long the loading of a model may stand still before Ollama gives it up.",
        ..PLAIN
    },
    Entry {
        name: "OLLAMA_MAX_LOADED_MODELS",
        kind: Kind::Count { least: 0, most: 64 },
        default: "0",
        meaning: "How many models may be in memory at once; 0 is three for each GPU.",
        ..PLAIN
    },
    Entry {
        name: "OLLAMA_MAX_QUEUE",
        kind: Kind::Count { least: 1, most: 10_000 },
        default: "512",
        meaning: "How many requests may wait for a model to be loaded before further ones are turned away.",
        caution: Some("it does not limit requests that wait for a model that is already loaded"),
        ..PLAIN
    },
    Entry {
        name: "OLLAMA_MAX_TRANSFER_STREAMS",
        kind: Kind::Count { least: 1, most: 64 },
        default: "4",
        meaning: "How many streams a pull or push of a model in safetensors format uses at once.",
        since: Some(Version::new(0, 23, 3)),
        ..PLAIN
    },
    Entry {
        name: "OLLAMA_MODELS",
        kind: Kind::Path,
        default: "~/.ollama/models",
        meaning: "The folder that holds the models.",
        app_may_override: true,
        caution: Some("models in the old folder are not moved; the server must be allowed to write to the new one"),
        ..PLAIN
    },
    Entry {
        name: "OLLAMA_MULTIUSER_CACHE",
        kind: Kind::Flag,
        default: "false",
        meaning: "Keeps prompts of several users apart in the runner's cache.",
        until: V0_24,
        ..PLAIN
    },
    Entry {
        name: "OLLAMA_NEW_ENGINE",
        kind: Kind::Flag,
        default: "false",
        meaning: "Uses Ollama's own engine for models that both engines can run.",
        until: V0_24,
        ..PLAIN
    },
    Entry {
        name: "OLLAMA_NOHISTORY",
        kind: Kind::Flag,
        default: "false",
        meaning: "Ollama's interactive client keeps no history of its input.",
        ..PLAIN
    },
    Entry {
        name: "OLLAMA_NOPRUNE",
        kind: Kind::Flag,
        default: "false",
        meaning: "Leaves unused model files on the disk when the server starts.",
        ..PLAIN
    },
    Entry {
        name: "OLLAMA_NO_CLOUD",
        kind: Kind::Flag,
        default: "false",
        meaning: "Switches off models and searches that run on Ollama's own servers.",
        since: Some(Version::new(0, 16, 2)),
        app_may_override: true,
        caution: Some("~/.ollama/server.json can switch them off as well, and then 0 here changes nothing"),
        ..PLAIN
    },
    Entry {
        name: "OLLAMA_NUM_PARALLEL",
        kind: Kind::Count { least: 1, most: 64 },
        default: "1",
        meaning: "How many requests one model works on at the same time.",
        caution: Some("every one of them takes a whole context of memory, whether it is used or not"),
        ..PLAIN
    },
    Entry {
        name: "OLLAMA_ORIGINS",
        kind: Kind::Origins,
        default: "[]",
        meaning: "Which web pages may call the server, beside those of this machine.",
        app_may_override: true,
        caution: Some("* lets every web page that is open in a browser use the server"),
        ..PLAIN
    },
    Entry {
        name: "OLLAMA_REMOTES",
        kind: Kind::List,
        default: "[ollama.com]",
        meaning: "Which hosts a model may name to be run there instead of here.",
        ..PLAIN
    },
    Entry {
        name: "OLLAMA_SCHED_SPREAD",
        kind: Kind::Flag,
        default: "false",
        meaning: "Spreads every model over all GPUs, even when one would hold it.",
        ..PLAIN
    },
    Entry {
        name: "OLLAMA_VULKAN",
        kind: Kind::Flag,
        default: "true",
        earlier_defaults: &[(Version::new(0, 30, 0), "false")],
        meaning: "Whether GPUs are used through Vulkan (not on macOS).",
        since: Some(Version::new(0, 12, 11)),
        ..PLAIN
    },
];
