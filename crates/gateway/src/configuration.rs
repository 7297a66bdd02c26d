//! The table `[gateway]` of the configuration file that the daemon reads too.
//!
//! A person may edit it while the gateway runs. A bad edit is reported with line and column, and the last good version
//! stays in force; no request is dropped for a new one, and what is bound stays bound until the next start.

use serde::Deserialize;
use stablehand_engine::admission::{ClientLimits, Lane, Limits, ModelLimits};
use stablehand_ollama::host::HostAddress;
use stablehand_platform::files::Stamp;
use stablehand_platform::machine::Machine;
use stablehand_platform::paths::stablehand_files;
use stablehand_protocol::Failure;
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Options of a request that make Ollama load the model anew when they change (`server/sched.go`, `needsReload`;
/// `api/types.go`, `Runner`).
const PINNABLE: [&str; 6] = ["num_ctx", "num_batch", "num_gpu", "main_gpu", "use_mmap", "num_thread"];

/// The configuration of the gateway as it is in force.
#[derive(Clone, Debug, PartialEq)]
pub struct Configuration {
    /// Where it listens.
    pub listen: Vec<SocketAddr>,
    /// Where Ollama is.
    pub upstream: SocketAddr,
    /// Of the queue.
    pub limits: Limits,
    /// A person has written down how many may wait in all, so that Ollama's own setting does not count.
    pub waiting_by_hand: bool,
    /// The same of how many models fit into memory.
    pub loaded_models_by_hand: bool,
    /// Of messages and connections.
    pub bounds: Bounds,
    /// Pages that may ask, beside those that always may.
    pub origins: Vec<String>,
    /// Other names for models.
    pub aliases: BTreeMap<String, String>,
    /// What requests for a model always ask for, by the model's full name.
    pub pins: BTreeMap<String, BTreeMap<String, Pin>>,
    /// Slots that a person knows of, by the model's full name.
    pub slots: BTreeMap<String, u32>,
    /// Who asks.
    pub clients: BTreeMap<String, Client>,
    /// The file with bearer keys.
    pub keys: Option<PathBuf>,
    /// Nobody is let in without a key.
    pub require_key: bool,
    /// The lane of requests that do not say.
    pub lane: Lane,
    /// One line a request in the access log.
    pub access_log: bool,
}

/// Bounds of messages and connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// The longest body of one request that may wait.
    pub body_bytes: u64,
    /// The bodies of all that wait, together.
    pub bodies_bytes: u64,
    /// The longest head.
    pub head_bytes: usize,
    /// How long a client may take for a head, and how long it may be silent between requests.
    pub head: Duration,
    /// How long a client may be silent in a body.
    pub body_silence: Duration,
    /// The most connections.
    pub connections: usize,
    /// After so long a stream of events gets signs of life while it waits; `None` never.
    pub keep_alive: Option<Duration>,
    /// How long simple questions wait for a server that is being restarted.
    pub held_question: Duration,
    /// The longest hold that anybody may ask for.
    pub hold: Duration,
    /// How long requests wait for a server that cannot be reached, before they are refused.
    pub unreachable: Duration,
    /// How long a stop waits for requests that run.
    pub drain: Duration,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            body_bytes: 256 << 20,
            bodies_bytes: 1 << 30,
            head_bytes: 32 << 10,
            head: Duration::from_secs(60),
            body_silence: Duration::from_secs(30),
            connections: 4_096,
            keep_alive: Some(Duration::from_secs(15)),
            held_question: Duration::from_secs(5),
            hold: Duration::from_secs(30 * 60),
            unreachable: Duration::from_secs(30),
            drain: Duration::from_secs(20),
        }
    }
}

/// A pinned value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub enum Pin {
    /// True or false.
    Truth(bool),
    /// A whole number.
    Number(i64),
}

impl std::fmt::Display for Pin {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Truth(truth) => write!(out, "{truth}"),
            Self::Number(number) => write!(out, "{number}"),
        }
    }
}

/// What is known of a client by its name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Client {
    /// It is the program of this name.
    pub program: Option<String>,
    /// It comes to this port of ours.
    pub port: Option<u16>,
    /// Signs of life while it waits.
    pub keep_alive: Option<bool>,
}

impl Configuration {
    /// What holds when nothing is written: beside Ollama, on the next port, on loopback.
    pub fn of(machine: &Machine) -> Self {
        let upstream = SocketAddr::from((Ipv4Addr::LOCALHOST, machine.default_port()));
        Self {
            listen: vec![beside(upstream)],
            upstream,
            limits: Limits::default(),
            waiting_by_hand: false,
            loaded_models_by_hand: false,
            bounds: Bounds::default(),
            origins: Vec::new(),
            aliases: BTreeMap::new(),
            pins: BTreeMap::new(),
            slots: BTreeMap::new(),
            clients: BTreeMap::new(),
            keys: None,
            require_key: false,
            lane: Lane::default(),
            access_log: true,
        }
    }

    /// The model that a name means, over all aliases.
    pub fn model<'a>(&'a self, name: &'a str) -> &'a str {
        // There are no cycles in what was taken, so this ends.
        let mut name = name;
        while let Some(next) = self.aliases.get(name).or_else(|| self.aliases.get(name.strip_suffix(":latest")?)) {
            name = next;
        }
        name
    }
}

/// A model's name as `/api/ps` tells it: in small letters, without the registry's own parts, with a tag
/// (`types/model/name.go`).
pub fn full_name(name: &str) -> Cow<'_, str> {
    let name = name.trim();
    let is_small = name.bytes().all(|byte| byte.is_ascii() && !byte.is_ascii_uppercase());
    let name = if is_small { Cow::Borrowed(name) } else { Cow::Owned(name.to_lowercase()) };
    let short = name.strip_prefix("registry.ollama.ai/").unwrap_or(&name);
    let short = short.strip_prefix("library/").unwrap_or(short);
    let last = short.rsplit('/').next().unwrap_or(short);
    match (last.contains(':'), short.len() == name.len()) {
        (true, true) => name,
        (true, false) => Cow::Owned(short.to_owned()),
        (false, _) => Cow::Owned(format!("{short}:latest")),
    }
}

/// The file, the last good version of it, and why the present one is not taken.
#[derive(Debug)]
pub struct ConfigurationFile {
    machine: Machine,
    path: PathBuf,
    stamp: Option<Stamp>,
    current: Arc<Configuration>,
    failure: Option<Failure>,
}

impl ConfigurationFile {
    /// Reads the file; one that is not there says nothing.
    ///
    /// # Errors
    /// When it is there and cannot be taken: there is no last good version yet.
    pub fn open(machine: &Machine) -> Result<Self, Failure> {
        let path = stablehand_files(machine).config_file;
        let current = Arc::new(Configuration::of(machine));
        let mut file = Self { machine: machine.clone(), path, stamp: None, current, failure: None };
        file.read();
        match file.failure.take() {
            Some(failure) => Err(failure),
            None => Ok(file),
        }
    }

    /// What is in force.
    pub fn current(&self) -> Arc<Configuration> {
        self.current.clone()
    }

    /// Why the file as it lies there is not taken.
    pub fn failure(&self) -> Option<&Failure> {
        self.failure.as_ref()
    }

    /// Reads the file again when it was changed since; says whether there is a new version.
    pub fn follow(&mut self) -> bool {
        if Stamp::of(&self.path) == self.stamp {
            return false;
        }
        let before = self.current.clone();
        self.read();
        *before != *self.current
    }

    fn read(&mut self) {
        self.stamp = Stamp::of(&self.path);
        let read = match std::fs::read_to_string(&self.path) {
            Ok(text) => parse(&self.machine, &self.path, &text),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Configuration::of(&self.machine)),
            Err(error) => Err(Failure::new(
                "config-unreadable",
                format!("{} cannot be read: {error}; what was in force stays so", self.path.display()),
                "see that it belongs to you and can be read",
            )),
        };
        match read {
            Ok(configuration) => {
                self.current = Arc::new(configuration);
                self.failure = None;
            }
            Err(failure) => {
                tracing::warn!(code = %failure.code, message = %failure.message, "the configuration was not taken");
                self.failure = Some(failure);
            }
        }
    }
}

/// The file as far as it concerns the gateway.
#[derive(Deserialize)]
struct Written {
    gateway: Option<Table>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Table {
    /// Where it stands is the daemon's business.
    #[serde(rename = "mode")]
    _mode: Option<serde::de::IgnoredAny>,
    listen: Option<Vec<String>>,
    upstream: Option<String>,
    waiting: Option<usize>,
    waiting_per_model: Option<usize>,
    waiting_per_client: Option<usize>,
    loaded_models: Option<usize>,
    slots: Option<u32>,
    affinity_s: Option<Seconds>,
    ageing_s: Option<Seconds>,
    body_mib: Option<u64>,
    bodies_mib: Option<u64>,
    head_kib: Option<usize>,
    head_s: Option<Seconds>,
    body_silence_s: Option<Seconds>,
    connections: Option<usize>,
    keep_alive_after_s: Option<Seconds>,
    hold_at_most_s: Option<Seconds>,
    unreachable_s: Option<Seconds>,
    drain_s: Option<Seconds>,
    lane: Option<String>,
    origins: Vec<String>,
    keys: Option<PathBuf>,
    require_key: bool,
    access_log: Option<bool>,
    aliases: BTreeMap<String, String>,
    models: BTreeMap<String, ModelTable>,
    clients: BTreeMap<String, ClientTable>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct ModelTable {
    slots: Option<u32>,
    running: Option<u32>,
    waiting: Option<usize>,
    pin: BTreeMap<String, Pin>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct ClientTable {
    program: Option<String>,
    port: Option<u16>,
    lane: Option<String>,
    waiting: Option<usize>,
    running: Option<u32>,
    patience_s: Option<Seconds>,
    keep_alive: Option<bool>,
}

/// A span in whole seconds, so short that nothing that is reckoned with it overflows.
#[derive(Clone, Copy, Deserialize, PartialEq)]
#[serde(try_from = "u64")]
struct Seconds(Duration);

/// Thirty days.
const SECONDS_AT_MOST: u64 = 30 * 24 * 60 * 60;

impl TryFrom<u64> for Seconds {
    type Error = String;

    fn try_from(seconds: u64) -> Result<Self, String> {
        if seconds > SECONDS_AT_MOST {
            return Err(format!("{seconds} s is too long; at most {SECONDS_AT_MOST} s (30 days) are understood"));
        }
        Ok(Self(Duration::from_secs(seconds)))
    }
}

/// Parses the text of a configuration file.
///
/// # Errors
/// A failure with line and column where there is one.
pub fn parse(machine: &Machine, path: &Path, text: &str) -> Result<Configuration, Failure> {
    let refused = |span: Option<Range<usize>>, what: &str| Failure::in_config(path, text, span, what);
    let document = toml_edit::Document::parse(text).map_err(|error| refused(error.span(), error.message()))?;
    let Some(item) = document.get("gateway") else { return Ok(Configuration::of(machine)) };
    if !item.is_table_like() {
        return Err(refused(item.span(), "«gateway» must be a section, written [gateway]"));
    }
    let written: Written = toml_edit::de::from_str(text).map_err(|error| refused(error.span(), error.message()))?;
    taken(machine, written.gateway.unwrap_or_default()).map_err(|what| refused(item.span(), &what))
}

fn taken(machine: &Machine, table: Table) -> Result<Configuration, String> {
    let mut taken = Configuration::of(machine);
    if let Some(upstream) = &table.upstream {
        taken.upstream = address(upstream)?;
        // Beside another server than the usual one, too.
        taken.listen = vec![beside(taken.upstream)];
    }
    if let Some(listen) = &table.listen {
        taken.listen = listen.iter().map(|text| address(text)).collect::<Result<_, _>>()?;
        if taken.listen.is_empty() {
            return Err("listen names no address".to_owned());
        }
    }
    if taken.listen.iter().any(|own| reaches(*own, taken.upstream)) {
        return Err(format!("listen and upstream are the same address: {}", taken.upstream));
    }
    limits(&table, &mut taken)?;
    bounds(&table, &mut taken.bounds)?;
    if let Some(word) = &table.lane {
        taken.lane = lane(word)?;
    }
    taken.origins = table.origins;
    taken.require_key = table.require_key;
    taken.access_log = table.access_log.unwrap_or(true);
    if let Some(keys) = table.keys {
        if !keys.is_absolute() {
            return Err(format!("keys must be an absolute path: {}", keys.display()));
        }
        taken.keys = Some(keys);
    }
    if taken.require_key && taken.keys.is_none() {
        return Err("require_key needs keys, the path of the file that holds them".to_owned());
    }
    taken.aliases = without_cycles(table.aliases)?;
    models(table.models, &mut taken)?;
    clients(table.clients, &mut taken)?;
    Ok(taken)
}

fn limits(table: &Table, taken: &mut Configuration) -> Result<(), String> {
    taken.waiting_by_hand = table.waiting.is_some();
    taken.loaded_models_by_hand = table.loaded_models.is_some();
    let limits = &mut taken.limits;
    let at_least_one =
        |name: &str, value: u64| if value == 0 { Err(format!("{name} must be at least 1")) } else { Ok(()) };
    if let Some(waiting) = table.waiting {
        limits.waiting = waiting;
    }
    if let Some(waiting) = table.waiting_per_model {
        limits.model.waiting = waiting;
    }
    if let Some(waiting) = table.waiting_per_client {
        limits.client.waiting = waiting;
    }
    if let Some(models) = table.loaded_models {
        at_least_one("loaded_models", models as u64)?;
        limits.loaded_models = models;
    }
    if let Some(slots) = table.slots {
        at_least_one("slots", u64::from(slots))?;
        limits.slots_while_unknown = slots;
    }
    if let Some(Seconds(affinity)) = table.affinity_s {
        limits.affinity = affinity;
    }
    if let Some(Seconds(ageing)) = table.ageing_s {
        at_least_one("ageing_s", ageing.as_secs())?;
        limits.ageing = ageing;
    }
    Ok(())
}

fn bounds(table: &Table, bounds: &mut Bounds) -> Result<(), String> {
    let seconds = |value: Option<Seconds>, default: Duration| value.map_or(default, |Seconds(span)| span);
    let mebibytes = |name: &str, value: Option<u64>, default: u64| match value {
        None => Ok(default),
        Some(0) => Err(format!("{name} must be at least 1")),
        Some(value) => value.checked_mul(1 << 20).ok_or_else(|| format!("{name} is too large: {value}")),
    };
    bounds.body_bytes = mebibytes("body_mib", table.body_mib, bounds.body_bytes)?;
    bounds.bodies_bytes = mebibytes("bodies_mib", table.bodies_mib, bounds.bodies_bytes)?;
    if let Some(kibibytes) = table.head_kib {
        if !(8..=128).contains(&kibibytes) {
            return Err(format!("head_kib takes 8 to 128: {kibibytes}"));
        }
        bounds.head_bytes = kibibytes << 10;
    }
    for (name, value) in [("head_s", table.head_s), ("body_silence_s", table.body_silence_s)] {
        if value == Some(Seconds(Duration::ZERO)) {
            return Err(format!("{name} must be at least 1"));
        }
    }
    bounds.head = seconds(table.head_s, bounds.head);
    bounds.body_silence = seconds(table.body_silence_s, bounds.body_silence);
    bounds.hold = seconds(table.hold_at_most_s, bounds.hold);
    bounds.unreachable = seconds(table.unreachable_s, bounds.unreachable);
    bounds.drain = seconds(table.drain_s, bounds.drain);
    match table.keep_alive_after_s {
        None => {}
        Some(Seconds(span)) => bounds.keep_alive = Some(span).filter(|span| !span.is_zero()),
    }
    match table.connections {
        None => {}
        Some(0) => return Err("connections must be at least 1".to_owned()),
        Some(connections) => bounds.connections = connections,
    }
    Ok(())
}

fn models(tables: BTreeMap<String, ModelTable>, taken: &mut Configuration) -> Result<(), String> {
    for (name, table) in tables {
        let model = full_name(&name).into_owned();
        if let Some(unknown) = table.pin.keys().find(|key| !PINNABLE.contains(&key.as_str())) {
            return Err(format!(
                "«{unknown}» of {name} cannot be pinned; a change of these makes Ollama load a model anew: {}",
                PINNABLE.join(", ")
            ));
        }
        if !table.pin.is_empty() {
            taken.pins.insert(model.clone(), table.pin);
        }
        if let Some(slots) = table.slots {
            if slots == 0 {
                return Err(format!("slots of {name} must be at least 1"));
            }
            taken.slots.insert(model.clone(), slots);
        }
        if table.running.is_some() || table.waiting.is_some() {
            let waiting = table.waiting.unwrap_or(taken.limits.model.waiting);
            taken.limits.models.insert(Arc::from(model), ModelLimits { waiting, running: table.running });
        }
    }
    Ok(())
}

fn clients(tables: BTreeMap<String, ClientTable>, taken: &mut Configuration) -> Result<(), String> {
    for (name, table) in tables {
        let lane = table.lane.as_deref().map(lane).transpose()?;
        let limits = ClientLimits {
            waiting: table.waiting.unwrap_or(taken.limits.client.waiting),
            running: table.running,
            patience: table.patience_s.map(|Seconds(span)| span),
            lane,
        };
        taken.limits.clients.insert(Arc::from(name.as_str()), limits);
        let client = Client { program: table.program, port: table.port, keep_alive: table.keep_alive };
        taken.clients.insert(name, client);
    }
    Ok(())
}

fn lane(word: &str) -> Result<Lane, String> {
    Lane::from_word(word).ok_or_else(|| {
        let words: Vec<_> = Lane::ALL.iter().map(|lane| lane.word()).collect();
        format!("there is no lane «{word}»; the lanes are {}", words.join(", "))
    })
}

/// An address as a person writes it, and as `OLLAMA_HOST` takes it.
fn address(text: &str) -> Result<SocketAddr, String> {
    let wrong = || format!("«{text}» is no address; write an IP address and a port, \"127.0.0.1:11434\"");
    let host = HostAddress::parse(text);
    if host.scheme != "http" {
        return Err(format!("only http is spoken here: {text}"));
    }
    let ip = match host.host.as_str() {
        "localhost" => IpAddr::from(Ipv4Addr::LOCALHOST),
        other => other.parse().map_err(|_| wrong())?,
    };
    Ok(SocketAddr::new(ip, host.port))
}

/// The port after this one, on loopback: nobody is let in from outside without a word about it.
fn beside(upstream: SocketAddr) -> SocketAddr {
    SocketAddr::new(loopback_of(upstream.ip()), upstream.port().wrapping_add(1).max(1))
}

fn loopback_of(ip: IpAddr) -> IpAddr {
    match ip {
        loopback if loopback.is_loopback() => loopback,
        IpAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
    }
}

/// Whether what is sent to `address` would come to this address of ours.
pub fn reaches(own: SocketAddr, address: SocketAddr) -> bool {
    // What is sent to "every address" comes to loopback.
    let to = if address.ip().is_unspecified() { loopback_of(address.ip()) } else { address.ip() };
    own.port() == address.port() && (own.ip() == to || (own.ip().is_unspecified() && to.is_loopback()))
}

fn without_cycles(aliases: BTreeMap<String, String>) -> Result<BTreeMap<String, String>, String> {
    for start in aliases.keys() {
        let mut seen = BTreeSet::from([start.as_str()]);
        let mut path = vec![start.as_str()];
        let mut name = start.as_str();
        while let Some(next) = aliases.get(name).or_else(|| aliases.get(name.strip_suffix(":latest")?)) {
            path.push(next);
            if !seen.insert(next.strip_suffix(":latest").unwrap_or(next)) {
                return Err(format!("the aliases go in a circle: {}", path.join(" → ")));
            }
            name = next;
        }
    }
    Ok(aliases)
}

#[cfg(test)]
mod tests;
