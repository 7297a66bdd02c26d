//! How the server reads its environment (`envconfig/config.go`): forgiving,
//! typed, and printed once as the effective values.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::world::moments;

/// Effective settings of a server.
#[derive(Clone, Debug)]
pub struct Environment {
    /// Host part as it was asked for.
    pub host: String,
    /// Port to listen on.
    pub port: u16,
    /// Slots asked for; 0 acts as 1.
    pub num_parallel: u64,
    /// Models at once; 0 means automatic.
    pub max_loaded_models: u64,
    /// Requests that may wait for a load decision.
    pub max_queue: u64,
    /// Context per slot; 0 means by memory.
    pub context_length: u64,
    /// How long an idle model stays; `None` for ever.
    pub keep_alive: Option<Duration>,
    /// How long a load may stand still; `None` for ever.
    pub load_timeout: Option<Duration>,
    /// Model store.
    pub models: String,
    /// Type of the key/value cache, empty for f16.
    pub kv_cache_type: String,
    /// Flash attention; `None` for automatic.
    pub flash_attention: Option<bool>,
    /// Cloud models are off.
    pub no_cloud: bool,
    /// Debug lines are written.
    pub debug: bool,
    /// All variables as printed in the `server config` line.
    pub printed: BTreeMap<&'static str, String>,
    /// Variables that could not be understood: name, value, default.
    pub warnings: Vec<(String, String, String)>,
}

/// Variables that are printed as they are.
const PLAIN: [&str; 14] = [
    "HTTPS_PROXY",
    "HTTP_PROXY",
    "NO_PROXY",
    "https_proxy",
    "http_proxy",
    "no_proxy",
    "LLAMA_ARG_FIT",
    "LLAMA_ARG_FIT_TARGET",
    "OLLAMA_EDITOR",
    "OLLAMA_IGPU_ENABLE",
    "OLLAMA_KV_CACHE_TYPE",
    "OLLAMA_LLM_LIBRARY",
    "OLLAMA_FLASH_ATTENTION",
    "OLLAMA_REMOTES",
];

/// Variables printed on other systems than macOS.
const ACCELERATORS: [&str; 7] = [
    "CUDA_VISIBLE_DEVICES",
    "GGML_VK_VISIBLE_DEVICES",
    "GPU_DEVICE_ORDINAL",
    "HIP_VISIBLE_DEVICES",
    "HSA_OVERRIDE_GFX_VERSION",
    "OLLAMA_VULKAN",
    "ROCR_VISIBLE_DEVICES",
];

impl Environment {
    /// Reads the environment through `lookup`.
    pub fn read(lookup: impl Fn(&str) -> Option<String>, default_port: u16, home: &str, mac: bool) -> Self {
        let mut reader = Reader { lookup: &lookup, warnings: Vec::new() };
        let mut printed = BTreeMap::new();
        for key in PLAIN {
            printed.insert(key, reader.text(key));
        }
        let remotes = match reader.text("OLLAMA_REMOTES") {
            own if own.is_empty() => "ollama.com".to_owned(),
            own => own.replace(',', " "),
        };
        printed.insert("OLLAMA_REMOTES", format!("[{remotes}]"));
        if !mac {
            for key in ACCELERATORS {
                printed.insert(key, reader.text(key));
            }
        }
        let (host_url, host, port) = reader.host(default_port);
        printed.insert("OLLAMA_HOST", host_url);
        let mut number = |key: &'static str, default: u64| {
            let value = reader.number(key, default);
            printed.insert(key, value.to_string());
            value
        };
        let num_parallel = number("OLLAMA_NUM_PARALLEL", 1);
        let max_loaded_models = number("OLLAMA_MAX_LOADED_MODELS", 0);
        let max_queue = number("OLLAMA_MAX_QUEUE", 512);
        let context_length = number("OLLAMA_CONTEXT_LENGTH", 0);
        number("OLLAMA_GPU_OVERHEAD", 0);
        number("OLLAMA_MAX_TRANSFER_STREAMS", 4);
        let mut flag = |key: &'static str, default: bool| {
            let value = reader.flag(key).unwrap_or(default);
            printed.insert(key, value.to_string());
            value
        };
        let no_cloud = flag("OLLAMA_NO_CLOUD", false);
        flag("OLLAMA_DEBUG_LOG_REQUESTS", false);
        flag("OLLAMA_GO_TEMPLATE", true);
        flag("OLLAMA_NOHISTORY", false);
        flag("OLLAMA_NOPRUNE", false);
        flag("OLLAMA_SCHED_SPREAD", false);
        let flash_attention = reader.flag("OLLAMA_FLASH_ATTENTION");
        printed.insert("OLLAMA_FLASH_ATTENTION", flash_attention.unwrap_or(false).to_string());
        let five_minutes = Duration::from_secs(300);
        let keep_alive = match reader.duration("OLLAMA_KEEP_ALIVE") {
            Some(GoDuration::Negative) => None,
            Some(GoDuration::Positive(duration)) => Some(duration),
            None => Some(five_minutes),
        };
        printed.insert("OLLAMA_KEEP_ALIVE", printed_duration(keep_alive));
        let load_timeout = match reader.duration("OLLAMA_LOAD_TIMEOUT") {
            Some(GoDuration::Negative) => None,
            Some(GoDuration::Positive(duration)) => (!duration.is_zero()).then_some(duration),
            None => Some(five_minutes),
        };
        printed.insert("OLLAMA_LOAD_TIMEOUT", printed_duration(load_timeout));
        let models = match reader.text("OLLAMA_MODELS") {
            path if path.is_empty() => format!("{home}/.ollama/models"),
            path => path,
        };
        printed.insert("OLLAMA_MODELS", models.clone());
        printed.insert("OLLAMA_ORIGINS", origins(&reader.text("OLLAMA_ORIGINS")));
        let level = debug_level(&reader.text("OLLAMA_DEBUG"));
        printed.insert("OLLAMA_DEBUG", level.clone());
        Self {
            host,
            port,
            num_parallel,
            max_loaded_models,
            max_queue,
            context_length,
            keep_alive,
            load_timeout,
            models,
            kv_cache_type: printed.get("OLLAMA_KV_CACHE_TYPE").cloned().unwrap_or_default(),
            flash_attention,
            no_cloud,
            debug: level.starts_with("DEBUG"),
            printed,
            warnings: reader.warnings,
        }
    }

    /// `map[KEY:VALUE …]`, sorted, as Go prints it.
    pub fn printed_map(&self) -> String {
        let pairs: Vec<String> = self.printed.iter().map(|(key, value)| format!("{key}:{value}")).collect();
        format!("map[{}]", pairs.join(" "))
    }
}

/// A Go duration with its sign kept apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GoDuration {
    /// Below zero.
    Negative,
    /// Zero or more.
    Positive(Duration),
}

/// Parses `10m`, `1h30m`, `500ms`, or whole seconds.
pub fn parse_duration(text: &str) -> Option<GoDuration> {
    if let Ok(seconds) = text.parse::<i64>() {
        return Some(match u64::try_from(seconds) {
            Ok(seconds) => GoDuration::Positive(Duration::from_secs(seconds)),
            Err(_) => GoDuration::Negative,
        });
    }
    let (negative, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    if rest.is_empty() {
        return None;
    }
    let mut seconds = 0.0;
    while !rest.is_empty() {
        let digits = rest
            .find(|character: char| !character.is_ascii_digit() && character != '.')
            .filter(|length| *length > 0)?;
        let amount: f64 = rest[..digits].parse().ok()?;
        rest = &rest[digits..];
        let unit = rest.find(|character: char| character.is_ascii_digit() || character == '.').unwrap_or(rest.len());
        seconds += amount
            * match &rest[..unit] {
                "ns" => 1e-9,
                "us" | "µs" => 1e-6,
                "ms" => 1e-3,
                "s" => 1.0,
                "m" => 60.0,
                "h" => 3600.0,
                _ => return None,
            };
        rest = &rest[unit..];
    }
    Some(if negative && seconds > 0.0 {
        GoDuration::Negative
    } else {
        GoDuration::Positive(Duration::try_from_secs_f64(seconds).ok()?)
    })
}

struct Reader<'a> {
    lookup: &'a dyn Fn(&str) -> Option<String>,
    warnings: Vec<(String, String, String)>,
}

impl Reader<'_> {
    /// The value without surrounding spaces and quotes.
    fn text(&self, key: &str) -> String {
        (self.lookup)(key).unwrap_or_default().trim().trim_matches(['"', '\'']).to_owned()
    }

    fn number(&mut self, key: &str, default: u64) -> u64 {
        let text = self.text(key);
        if text.is_empty() {
            return default;
        }
        let plain = text.bytes().all(|byte| byte.is_ascii_digit());
        match text.parse() {
            Ok(value) if plain => value,
            Ok(_) | Err(_) => {
                self.warnings.push((key.to_owned(), text, default.to_string()));
                default
            }
        }
    }

    /// Any text that is no truth value counts as true.
    fn flag(&self, key: &str) -> Option<bool> {
        match self.text(key).as_str() {
            "" => None,
            "0" | "f" | "F" | "false" | "FALSE" | "False" => Some(false),
            _ => Some(true),
        }
    }

    fn duration(&self, key: &str) -> Option<GoDuration> {
        parse_duration(&self.text(key))
    }

    fn host(&mut self, default_port: u16) -> (String, String, u16) {
        let text = self.text("OLLAMA_HOST");
        let (scheme, rest) = text.split_once("://").unwrap_or(("http", &text));
        let address = rest.split('/').next().unwrap_or_default();
        let (host, port) = match address.rsplit_once(':') {
            Some((host, port)) if !host.contains(':') || host.ends_with(']') => (host, port),
            Some(_) | None => (address, ""),
        };
        let host = if host.is_empty() { "127.0.0.1" } else { host };
        let port = if port.is_empty() {
            default_port
        } else {
            port.parse().unwrap_or_else(|_| {
                self.warnings.push(("OLLAMA_HOST".to_owned(), port.to_owned(), default_port.to_string()));
                default_port
            })
        };
        (format!("{scheme}://{host}:{port}"), host.to_owned(), port)
    }
}

fn printed_duration(duration: Option<Duration>) -> String {
    duration.map_or("2562047h47m16.854775807s".to_owned(), moments::go_duration)
}

fn debug_level(text: &str) -> String {
    match text {
        "" | "0" | "false" | "f" | "F" | "FALSE" | "False" => "INFO".to_owned(),
        "1" => "DEBUG".to_owned(),
        "2" => "DEBUG-4".to_owned(),
        "-1" => "WARN".to_owned(),
        _ => "DEBUG".to_owned(),
    }
}

fn origins(own: &str) -> String {
    let mut origins: Vec<String> = own.split(',').filter(|origin| !origin.is_empty()).map(str::to_owned).collect();
    for host in ["localhost", "127.0.0.1", "0.0.0.0"] {
        for scheme in ["http", "https"] {
            origins.push(format!("{scheme}://{host}"));
        }
        for scheme in ["http", "https"] {
            origins.push(format!("{scheme}://{host}:*"));
        }
    }
    for scheme in ["app", "file", "tauri", "vscode-webview", "vscode-file"] {
        origins.push(format!("{scheme}://*"));
    }
    format!("[{}]", origins.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(pairs: &[(&str, &str)]) -> Environment {
        let lookup = |key: &str| pairs.iter().find(|(name, _)| *name == key).map(|(_, value)| (*value).to_owned());
        Environment::read(lookup, 41873, "/Users/sim", true)
    }

    #[test]
    fn numbers_that_are_none_fall_back_with_a_warning() {
        for bad in ["abc", "-1", "4.0", "1e3", "+4"] {
            let environment = read(&[("OLLAMA_NUM_PARALLEL", bad)]);
            assert_eq!(environment.num_parallel, 1, "{bad}");
            assert_eq!(environment.warnings.len(), 1, "{bad}");
        }
        let quoted = read(&[("OLLAMA_NUM_PARALLEL", " \"4\" ")]);
        assert_eq!((quoted.num_parallel, quoted.warnings.len()), (4, 0));
    }

    #[test]
    fn the_map_is_sorted_and_typed() {
        let map = read(&[("OLLAMA_NUM_PARALLEL", "0"), ("OLLAMA_KEEP_ALIVE", "-1")]).printed_map();
        assert!(map.starts_with("map[HTTPS_PROXY: HTTP_PROXY: "), "{map}");
        assert!(map.contains(" OLLAMA_NUM_PARALLEL:0 "), "{map}");
        assert!(map.contains(" OLLAMA_KEEP_ALIVE:2562047h47m16.854775807s "), "{map}");
        assert!(map.contains(" OLLAMA_LOAD_TIMEOUT:5m0s "), "{map}");
        assert!(map.contains(" OLLAMA_HOST:http://127.0.0.1:41873 "), "{map}");
        assert!(map.ends_with(" http_proxy: https_proxy: no_proxy:]"), "{map}");
    }

    #[test]
    fn hosts_are_read_in_many_shapes() {
        assert_eq!(read(&[("OLLAMA_HOST", "0.0.0.0")]).printed["OLLAMA_HOST"], "http://0.0.0.0:41873");
        assert_eq!(read(&[("OLLAMA_HOST", ":5000")]).printed["OLLAMA_HOST"], "http://127.0.0.1:5000");
        assert_eq!(read(&[("OLLAMA_HOST", "http://127.0.0.1:1234/")]).port, 1234);
        assert_eq!(read(&[("OLLAMA_HOST", "127.0.0.1:99999999")]).port, 41873);
    }

    #[test]
    fn durations_follow_go() {
        assert_eq!(parse_duration("1h30m"), Some(GoDuration::Positive(Duration::from_secs(5400))));
        assert_eq!(parse_duration("10"), Some(GoDuration::Positive(Duration::from_secs(10))));
        assert_eq!(parse_duration("-1"), Some(GoDuration::Negative));
        assert_eq!(parse_duration("-5m"), Some(GoDuration::Negative));
        assert_eq!(parse_duration("soon"), None);
        assert_eq!(parse_duration(""), None);
    }
}
