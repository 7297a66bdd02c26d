//! Our own configuration: a commented TOML file that a person may edit while the daemon runs.
//!
//! Comments and order survive an edit of ours. A bad edit is reported with line and column, and the last good version
//! stays in force.

use stablehand_engine::alert::desktop::QuietHours;
use stablehand_engine::recovery::Policy;
use stablehand_engine::setting::{MAIN_SETTINGS, Name, Preset, Wish};
use stablehand_engine::takeover::Mode;
use stablehand_engine::upgrade::kept::KEPT_VERSIONS;
use stablehand_ollama::catalogue;
use stablehand_ollama::releases;
use stablehand_ollama::version::Version;
use stablehand_platform::files::Stamp;
use stablehand_platform::files::write_atomically;
use stablehand_platform::machine::Machine;
use stablehand_platform::paths::stablehand_files;
use stablehand_protocol::Failure;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::ops::Range;
use std::path::{Path, PathBuf};
use toml_edit::{Document, DocumentMut, Item, TableLike, value};

/// What a new file says.
const TEMPLATE: &str = "\
# Stablehand's configuration. You may edit this file while the daemon runs; comments are kept.
# A mistake is reported by `stablehand status`, and the last good version stays in force.

# Settings of Ollama's server that shall hold after every login. `stablehand settings list --all` explains them all.
# Changes take effect with `stablehand apply`.
[settings]

# What may be done about a stall without asking: \"alert\" (tell, nothing else), \"runner\" (end or unload a hung
# runner), \"all\" (restart Ollama as well). With allowed_models, a model that is not among them is alerted.
[recovery]
policy = \"alert\"
# allowed_models = [\"gemma4:26b\"]

# In quiet hours (local time, over midnight if need be) nothing is shown on the desktop. Alerts are kept in
# `stablehand status` and `stablehand history` all the same; what is still wrong when they end is shown then, once.
[notifications]
# quiet = \"22:00-07:00\"

# Upgrades of Ollama: whether releases are asked for once a day, how many old versions are kept, the version to stay on,
# and where releases come from. With install = \"quiet\" a new release is put in place by itself while nobody waits.
[upgrades]
# check = true
# keep = 2
# pin = \"0.24.0\"
# install = \"ask\"
# prerelease = false
# releases = \"https://api.github.com\"

# The gateway: a queue in front of Ollama. `stablehand gateway on` and `off` write mode, listen and upstream.
[gateway]
mode = \"off\"
";

/// What a client may change beside the settings of the server: section and key.
const CONFIGURABLE: [(&str, &str); 4] =
    [("recovery", "policy"), ("notifications", "quiet"), ("upgrades", "pin"), ("upgrades", "check")];

/// The configuration as it is in force.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Configuration {
    /// Desired settings.
    pub desired: BTreeMap<Name, Wish>,
    /// No good version was read yet, so what is desired is not known.
    pub unknown: bool,
    /// How far recovery may go by itself.
    pub policy: Policy,
    /// Models that may be loaded without an alert; empty allows all.
    pub allowed_models: Vec<String>,
    /// When nothing is shown on the desktop.
    pub quiet: Option<QuietHours>,
    /// How versions of Ollama are dealt with.
    pub upgrades: Upgrades,
    /// Where the gateway shall be.
    pub gateway: GatewayPlace,
}

/// Where the gateway shall be; the rest of its section it reads itself, and says what is wrong with it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GatewayPlace {
    /// Beside Ollama, in its place, or nowhere.
    pub mode: Mode,
    /// Where it listens; nothing leaves that to it.
    pub listen: Vec<SocketAddr>,
    /// Where Ollama is behind it.
    pub upstream: Option<SocketAddr>,
}

/// How versions of Ollama are dealt with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Upgrades {
    /// Releases are asked for once a day.
    pub check: bool,
    /// How many old versions are kept.
    pub keep: usize,
    /// The version to stay on.
    pub pin: Option<String>,
    /// A new release is put in place by itself while nobody waits.
    pub quiet: bool,
    /// Releases meant for testing count too.
    pub prerelease: bool,
    /// Base address of the releases; GitHub's own, or the simulated machine's, when there is none.
    pub releases: Option<String>,
}

impl Default for Upgrades {
    fn default() -> Self {
        Self { check: true, keep: KEPT_VERSIONS, pin: None, quiet: false, prerelease: false, releases: None }
    }
}

/// A change of desired settings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Change {
    /// Taken first.
    pub preset: Option<Preset>,
    /// Values to set.
    pub set: BTreeMap<String, String>,
    /// Names to unset.
    pub unset: BTreeSet<String>,
}

/// The file, the last good version of it, and why the present one is not taken.
#[derive(Debug)]
pub struct ConfigurationFile {
    machine: Machine,
    path: PathBuf,
    stamp: Option<Stamp>,
    current: Configuration,
    failure: Option<Failure>,
    /// A good version was read since the daemon started.
    ever_good: bool,
}

impl ConfigurationFile {
    /// Reads the file; one that is not there is an empty configuration.
    pub fn open(machine: &Machine) -> Self {
        let path = stablehand_files(machine).config_file;
        let mut file = Self {
            machine: machine.clone(),
            path,
            stamp: None,
            current: Configuration::default(),
            failure: None,
            ever_good: false,
        };
        file.read();
        file
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What is in force.
    pub fn current(&self) -> &Configuration {
        &self.current
    }

    /// Why the file as it lies there is not taken.
    pub fn failure(&self) -> Option<&Failure> {
        self.failure.as_ref()
    }

    /// Reads the file again when it was changed since; says whether it was.
    pub fn follow(&mut self) -> bool {
        if Stamp::of(&self.path) == self.stamp {
            return false;
        }
        self.read();
        true
    }

    /// Changes desired settings in the file. Returns each change in words, and the configuration after it. With
    /// `dry_run` nothing is written. The server's version, when it is known, decides what it can take.
    ///
    /// # Errors
    /// When a name or value is refused, the file as it lies there is broken, or it cannot be written. The file is
    /// then left as it was.
    pub fn change(
        &mut self,
        change: &Change,
        version: Option<&Version>,
        dry_run: bool,
    ) -> Result<(Vec<String>, Configuration), Failure> {
        self.follow();
        if let Some(failure) = &self.failure {
            return Err(failure.clone());
        }
        let wanted = wanted(change, version)?;
        self.edit(dry_run, |path, text, document| {
            let settings = document.entry("settings").or_insert_with(toml_edit::table).as_table_like_mut();
            let Some(settings) = settings else { return Err(not_a_table(path, text, None)) };
            let changes = wanted.iter().filter_map(|(name, new)| change_one(settings, name, new.as_deref()));
            Ok(changes.collect())
        })
    }

    /// Changes values of the other sections, by `section.key`; an empty value takes the line out. Returns each change
    /// in words.
    ///
    /// # Errors
    /// As for [`Self::change`], and when the file would not be taken with the new value.
    pub fn configure(&mut self, set: &BTreeMap<String, String>) -> Result<Vec<String>, Failure> {
        self.follow();
        if let Some(failure) = &self.failure {
            return Err(failure.clone());
        }
        let (words, _) = self.edit(false, |path, text, document| {
            let mut words = Vec::new();
            for (name, new) in set {
                let known = CONFIGURABLE.iter().find_map(|(section, key)| {
                    (name.split_once('.') == Some((section, key))).then_some((*section, *key))
                });
                let Some((section, key)) = known else {
                    let names: Vec<_> = CONFIGURABLE.iter().map(|(section, key)| format!("{section}.{key}")).collect();
                    return Err(Failure::new(
                        "unknown-name",
                        format!("there is no «{name}» to configure; nothing was changed"),
                        format!("the names are {}", names.join(", ")),
                    ));
                };
                let table = document.entry(section).or_insert_with(toml_edit::table).as_table_like_mut();
                let Some(table) = table else { return Err(not_a_table(path, text, None)) };
                let new = Some(new.as_str()).filter(|new| !new.is_empty());
                words.extend(change_one(table, key, new).map(|change| format!("{section}.{change}")));
            }
            Ok(words)
        })?;
        Ok(words)
    }

    /// Writes down where the gateway shall be.
    ///
    /// # Errors
    /// As for [`Self::change`].
    pub fn place_gateway(&mut self, place: &GatewayPlace) -> Result<(), Failure> {
        self.follow();
        if let Some(failure) = &self.failure {
            return Err(failure.clone());
        }
        self.edit(false, |path, text, document| {
            let table = document.entry("gateway").or_insert_with(toml_edit::table).as_table_like_mut();
            let Some(table) = table else { return Err(not_a_table(path, text, None)) };
            let listen: toml_edit::Array = place.listen.iter().map(SocketAddr::to_string).collect();
            let wanted = [
                ("mode", Some(value(place.mode.word()))),
                ("listen", (!listen.is_empty()).then(|| value(listen))),
                ("upstream", place.upstream.map(|upstream| value(upstream.to_string()))),
            ];
            for (key, item) in wanted {
                match item {
                    None => {
                        table.remove(key);
                    }
                    Some(item) => put(table, key, item),
                }
            }
            Ok(vec![format!("gateway.mode: {}", place.mode.word())])
        })?;
        Ok(())
    }

    /// Edits the text of the file as it lies there, or of a new one. What would not be taken is not written.
    fn edit(
        &mut self,
        dry_run: bool,
        edit: impl FnOnce(&Path, &str, &mut DocumentMut) -> Result<Vec<String>, Failure>,
    ) -> Result<(Vec<String>, Configuration), Failure> {
        let text = match std::fs::read_to_string(&self.path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => TEMPLATE.to_owned(),
            Err(error) => return Err(unreadable(&self.path, &error)),
        };
        let mut document: DocumentMut = text.parse().map_err(|error| broken(&self.path, &text, &error))?;
        let words = edit(&self.path, &text, &mut document)?;
        let after = parse(&self.path, &document.to_string()).map_err(|failure| Failure {
            message: failure.message.replace("this version of the file is not taken", "nothing was changed"),
            ..failure
        })?;
        if !dry_run && !words.is_empty() {
            let parent = self.path.parent().unwrap_or(Path::new("/"));
            self.machine.allow_write(&self.path).map_err(|error| unwritable(&self.path, &error.to_string()))?;
            std::fs::create_dir_all(parent).map_err(|error| unwritable(&self.path, &error.to_string()))?;
            write_atomically(&self.machine, &self.path, document.to_string().as_bytes(), 0o644)
                .map_err(|error| unwritable(&self.path, &error.to_string()))?;
            self.read();
        }
        Ok((words, after))
    }

    fn read(&mut self) {
        self.stamp = Stamp::of(&self.path);
        let read = match std::fs::read_to_string(&self.path) {
            Ok(text) => parse(&self.path, &text),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Configuration::default()),
            Err(error) => Err(unreadable(&self.path, &error)),
        };
        match read {
            Ok(configuration) => {
                self.current = configuration;
                self.failure = None;
                self.ever_good = true;
            }
            Err(failure) => {
                tracing::warn!(code = %failure.code, message = %failure.message, "the configuration was not taken");
                self.current.unknown = !self.ever_good;
                self.failure = Some(failure);
            }
        }
    }
}

/// The final value (or its absence) of every name that the change touches.
fn wanted(change: &Change, version: Option<&Version>) -> Result<BTreeMap<String, Option<String>>, Failure> {
    let mut wanted = BTreeMap::new();
    if let Some(preset) = change.preset {
        for name in MAIN_SETTINGS {
            wanted.insert(name.to_owned(), None);
        }
        for (name, value) in preset.values() {
            wanted.insert((*name).to_owned(), Some((*value).to_owned()));
        }
    }
    for name in &change.unset {
        if catalogue::find(name).is_none() {
            // The check knows the nearest right name.
            catalogue::check(name, "1", None).map_err(|refused| refusal(&refused))?;
        }
        wanted.insert(name.clone(), None);
    }
    for (name, value) in &change.set {
        catalogue::check(name, value, version).map_err(|refused| refusal(&refused))?;
        wanted.insert(name.clone(), Some(value.clone()));
    }
    Ok(wanted)
}

fn change_one(settings: &mut dyn TableLike, name: &str, new: Option<&str>) -> Option<String> {
    let old = settings.get(name).and_then(text_of);
    match (old, new) {
        (None, None) => None,
        (Some(old), None) => {
            settings.remove(name);
            Some(format!("{name}: {old} → unset"))
        }
        (Some(old), Some(new)) if old == new => None,
        (old, Some(new)) => {
            put(settings, name, value(new));
            Some(format!("{name}: {} → {new}", old.as_deref().unwrap_or("unset")))
        }
    }
}

/// Sets a value in place, so that the comment above the key stays, and the one behind the old value too.
fn put(table: &mut dyn TableLike, key: &str, mut item: Item) {
    match table.get_mut(key) {
        Some(kept) => {
            if let (Some(kept), Some(fresh)) = (kept.as_value(), item.as_value_mut()) {
                *fresh.decor_mut() = kept.decor().clone();
            }
            *kept = item;
        }
        None => {
            table.insert(key, item);
        }
    }
}

/// Parses the text of a configuration.
///
/// # Errors
/// A failure with line and column.
pub fn parse(path: &Path, text: &str) -> Result<Configuration, Failure> {
    let document = Document::parse(text).map_err(|error| broken(path, text, &error))?;
    let mut configuration = Configuration::default();
    for (key, item) in document.iter() {
        if key == "recovery" {
            recovery(path, text, item, &mut configuration)?;
            continue;
        }
        if key == "upgrades" {
            upgrades(path, text, item, &mut configuration)?;
            continue;
        }
        if key == "notifications" {
            notifications(path, text, item, &mut configuration)?;
            continue;
        }
        if key == "gateway" {
            gateway(path, text, item, &mut configuration)?;
            continue;
        }
        if key != "settings" {
            return Err(Failure::in_config(
                path,
                text,
                key_span(&document, key),
                &format!(
                    "there is no section or key «{key}»; the sections are [settings], [recovery], \
                     [notifications], [upgrades] and [gateway]"
                ),
            ));
        }
        let Some(settings) = item.as_table_like() else { return Err(not_a_table(path, text, item.span())) };
        for (name, item) in settings.iter() {
            let Some(written) = text_of(item) else {
                return Err(Failure::in_config(
                    path,
                    text,
                    item.span(),
                    &format!("{name} takes a text, a number or true/false"),
                ));
            };
            let wish = catalogue::check(name, &written, None).map_err(|refused| {
                let said = format!("{refused}; {}", refused.hint);
                Failure::in_config(path, text, item.span(), &said)
            })?;
            let name =
                Name::try_new(name).map_err(|error| Failure::in_config(path, text, item.span(), &error.to_string()))?;
            configuration.desired.insert(name, wish);
        }
    }
    Ok(configuration)
}

fn recovery(path: &Path, text: &str, item: &Item, configuration: &mut Configuration) -> Result<(), Failure> {
    let Some(table) = item.as_table_like() else {
        return Err(Failure::in_config(path, text, item.span(), "«recovery» must be a section, written [recovery]"));
    };
    for (key, item) in table.iter() {
        match key {
            "policy" => {
                configuration.policy = match item.as_str() {
                    Some("alert") => Policy::AlertOnly,
                    Some("runner") => Policy::Runner,
                    Some("all") => Policy::All,
                    Some(_) | None => {
                        let what = "policy takes \"alert\", \"runner\" or \"all\"";
                        return Err(Failure::in_config(path, text, item.span(), what));
                    }
                };
            }
            "allowed_models" => {
                let names = item.as_array().map(|array| array.iter().map(|name| name.as_str().map(str::to_owned)));
                let names: Option<Vec<String>> = names.and_then(Iterator::collect);
                let what = "allowed_models takes a list of model names, [\"gemma4:26b\"]";
                configuration.allowed_models =
                    names.ok_or_else(|| Failure::in_config(path, text, item.span(), what))?;
            }
            other => {
                let what = format!("there is no key «{other}» in [recovery]; there are policy and allowed_models");
                return Err(Failure::in_config(path, text, item.span(), &what));
            }
        }
    }
    Ok(())
}

fn notifications(path: &Path, text: &str, item: &Item, configuration: &mut Configuration) -> Result<(), Failure> {
    let Some(table) = item.as_table_like() else {
        return Err(Failure::in_config(
            path,
            text,
            item.span(),
            "«notifications» must be a section, written [notifications]",
        ));
    };
    for (key, item) in table.iter() {
        match key {
            "quiet" => {
                let hours = item.as_str().unwrap_or_default().parse::<QuietHours>();
                configuration.quiet =
                    Some(hours.map_err(|error| Failure::in_config(path, text, item.span(), &error.to_string()))?);
            }
            other => {
                let what = format!("there is no key «{other}» in [notifications]; there is quiet");
                return Err(Failure::in_config(path, text, item.span(), &what));
            }
        }
    }
    Ok(())
}

/// More old versions than this are no way back but a heap.
const KEPT_AT_MOST: i64 = 9;

fn upgrades(path: &Path, text: &str, item: &Item, configuration: &mut Configuration) -> Result<(), Failure> {
    let Some(table) = item.as_table_like() else {
        return Err(Failure::in_config(path, text, item.span(), "«upgrades» must be a section, written [upgrades]"));
    };
    let upgrades = &mut configuration.upgrades;
    for (key, item) in table.iter() {
        let wrong = |what: &str| Failure::in_config(path, text, item.span(), what);
        let truth = || match text_of(item).as_deref() {
            Some("1" | "true" | "on") => Ok(true),
            Some("0" | "false" | "off") => Ok(false),
            Some(_) | None => Err(wrong(&format!("{key} takes true or false"))),
        };
        match key {
            "check" => upgrades.check = truth()?,
            "prerelease" => upgrades.prerelease = truth()?,
            "keep" => {
                let count = item.as_integer().filter(|count| (0..=KEPT_AT_MOST).contains(count));
                let count = count.and_then(|count| usize::try_from(count).ok());
                upgrades.keep = count.ok_or_else(|| wrong("keep takes a number from 0 to 9"))?;
            }
            "pin" => {
                let version = item.as_str().and_then(|text| text.parse::<Version>().ok());
                let version = version.ok_or_else(|| wrong("pin takes a version, e.g. \"0.24.0\""))?;
                upgrades.pin = Some(version.to_string());
            }
            "install" => {
                upgrades.quiet = match item.as_str() {
                    Some("ask") => false,
                    Some("quiet") => true,
                    Some(_) | None => return Err(wrong("install takes \"ask\" or \"quiet\"")),
                };
            }
            "releases" => {
                let address = item.as_str().ok_or_else(|| wrong("releases takes an address"))?;
                if let Err(reason) = releases::Source::new(address, releases::Terms::default()) {
                    return Err(wrong(&format!("releases takes an address: {reason}")));
                }
                upgrades.releases = Some(address.to_owned());
            }
            other => {
                let known = "check, keep, pin, install, prerelease and releases";
                return Err(wrong(&format!("there is no key «{other}» in [upgrades]; there are {known}")));
            }
        }
    }
    Ok(())
}

fn gateway(path: &Path, text: &str, item: &Item, configuration: &mut Configuration) -> Result<(), Failure> {
    let Some(table) = item.as_table_like() else {
        return Err(Failure::in_config(path, text, item.span(), "«gateway» must be a section, written [gateway]"));
    };
    let address = |item: &Item| {
        let address = item.as_str().and_then(|written| written.trim_start_matches("http://").parse().ok());
        address.ok_or_else(|| {
            let what = "this takes an IP address and a port, \"127.0.0.1:11434\"";
            Failure::in_config(path, text, item.span(), what)
        })
    };
    if let Some(item) = table.get("mode") {
        configuration.gateway.mode = item.as_str().and_then(Mode::from_word).ok_or_else(|| {
            Failure::in_config(path, text, item.span(), "mode takes \"off\", \"beside\" or \"takeover\"")
        })?;
    }
    // In takeover we say ourselves where it listens; beside, a person may use the gateway's own, wider forms.
    if configuration.gateway.mode == Mode::Off {
        return Ok(());
    }
    if let Some(item) = table.get("upstream") {
        configuration.gateway.upstream = Some(address(item)?);
    }
    if let Some(item) = table.get("listen") {
        let Some(listed) = item.as_array() else {
            return Err(Failure::in_config(
                path,
                text,
                item.span(),
                "listen takes a list of addresses, [\"127.0.0.1:11434\"]",
            ));
        };
        let listen = listed.iter().map(|written| address(&Item::Value(written.clone())));
        configuration.gateway.listen = listen.collect::<Result<_, _>>()?;
    }
    Ok(())
}

fn key_span<S>(document: &Document<S>, key: &str) -> Option<Range<usize>> {
    document.as_table().key(key).and_then(toml_edit::Key::span)
}

fn text_of(item: &Item) -> Option<String> {
    match item.as_value()? {
        toml_edit::Value::String(text) => Some(text.value().clone()),
        toml_edit::Value::Integer(number) => Some(number.value().to_string()),
        toml_edit::Value::Boolean(truth) => Some(if *truth.value() { "1" } else { "0" }.to_owned()),
        toml_edit::Value::Float(_)
        | toml_edit::Value::Datetime(_)
        | toml_edit::Value::Array(_)
        | toml_edit::Value::InlineTable(_) => None,
    }
}

fn refusal(refused: &catalogue::Refused) -> Failure {
    Failure::new(refused.code, refused.to_string(), refused.hint.clone())
}

fn broken(path: &Path, text: &str, error: &toml_edit::TomlError) -> Failure {
    Failure::in_config(path, text, error.span(), error.message())
}

fn not_a_table(path: &Path, text: &str, span: Option<Range<usize>>) -> Failure {
    Failure::in_config(path, text, span, "«settings» must be a section, written [settings]")
}

fn unreadable(path: &Path, error: &std::io::Error) -> Failure {
    Failure::new(
        "config-unreadable",
        format!("{} cannot be read: {error}; nothing was changed", path.display()),
        "see its owner and mode with `ls -l`",
    )
}

fn unwritable(path: &Path, error: &str) -> Failure {
    Failure::new(
        "config-unwritable",
        format!("{} was not changed: {error}", path.display()),
        "see that the file and its folder belong to you and can be written",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_texts_and_truths_are_read() {
        let text = "[settings]\nOLLAMA_NUM_PARALLEL = 2\nOLLAMA_KEEP_ALIVE = \"10m\"\nOLLAMA_NOPRUNE = true\n";
        let configuration = parse(Path::new("c.toml"), text).unwrap();
        let values: Vec<_> =
            configuration.desired.iter().map(|(name, wish)| format!("{name}={}", wish.value)).collect();
        assert_eq!(values, ["OLLAMA_KEEP_ALIVE=10m", "OLLAMA_NOPRUNE=1", "OLLAMA_NUM_PARALLEL=2"]);
    }

    #[test]
    fn a_mistake_is_reported_with_line_and_column() {
        let cases = [
            ("[settings\n", "c.toml:1:"),
            ("# hello\n[settings]\nOLLAMA_NUM_PARALLEL = \"many\"\n", "c.toml:3:23: "),
            ("[settings]\nOLLAMA_NUM_PARALEL = 1\n", "c.toml:2:22: "),
            ("[settings]\nOLLAMA_NUM_PARALLEL = [1]\n", "c.toml:2:23: "),
            ("settings = 3\n", "c.toml:1:12: "),
            ("\n[setings]\n", "c.toml:2:2: "),
            ("[notifications]\nquiet = \"22-7\"\n", "c.toml:2:9: "),
            ("[notifications]\nquiet = \"07:00-07:00\"\n", "c.toml:2:9: "),
            ("[notifications]\nquiet = 22\n", "c.toml:2:9: "),
            ("[notifications]\nsilent = true\n", "c.toml:2:10: "),
            ("notifications = 1\n", "c.toml:1:17: "),
            ("gateway = 1\n", "c.toml:1:11: "),
            ("[gateway]\nmode = \"on\"\n", "c.toml:2:8: "),
            ("[gateway]\nmode = \"beside\"\nlisten = \"127.0.0.1:1\"\n", "c.toml:3:10: "),
        ];
        for (text, place) in cases {
            let failure = parse(Path::new("c.toml"), text).unwrap_err();
            assert!(failure.message.starts_with(place), "{text:?}: {}", failure.message);
            assert!(failure.message.contains("is not taken"), "{}", failure.message);
        }
    }

    #[test]
    fn a_client_changes_the_other_sections_and_what_would_not_be_taken_is_not_written() {
        let world = tempfile::tempdir().unwrap();
        let marker = r#"{"format":1,"os":"linux","user":"sim","home":"/home/sim","port":1,"ollama":"0.33.0",
            "memory_bytes":1,"gpu_working_set_bytes":1}"#;
        std::fs::write(world.path().join("stablehand-world.json"), marker).unwrap();
        let clock = r#"{"speed":1.0,"anchor_monotonic_ms":0,"anchor_wall_unix_ms":1,"slept_ms":0}"#;
        std::fs::write(world.path().join("clock.json"), clock).unwrap();
        let mut file = ConfigurationFile::open(&Machine::world(world.path()).unwrap());
        let set = |name: &str, value: &str| BTreeMap::from([(name.to_owned(), value.to_owned())]);
        assert_eq!(file.configure(&set("recovery.policy", "runner")).unwrap(), ["recovery.policy: alert → runner"]);
        assert_eq!(file.current().policy, Policy::Runner);
        assert_eq!(
            file.configure(&set("notifications.quiet", "22:00-07:00")).unwrap(),
            ["notifications.quiet: unset → 22:00-07:00"]
        );
        assert!(file.current().quiet.is_some());
        assert_eq!(file.configure(&set("notifications.quiet", "")).unwrap().len(), 1);
        assert_eq!(file.current().quiet, None);
        let before = std::fs::read_to_string(file.path()).unwrap();
        let refused = file.configure(&set("recovery.policy", "kill")).unwrap_err();
        assert!(refused.message.ends_with("nothing was changed"), "{}", refused.message);
        assert_eq!(file.configure(&set("recovery.pilocy", "all")).unwrap_err().code, "unknown-name");
        assert_eq!(std::fs::read_to_string(file.path()).unwrap(), before);
        assert!(before.contains("# A mistake is reported"), "comments are kept");
    }

    #[test]
    fn the_place_of_the_gateway_is_written_read_and_taken_away_beside_a_persons_own_lines() {
        let world = tempfile::tempdir().unwrap();
        let marker = r#"{"format":1,"os":"linux","user":"sim","home":"/home/sim","port":1,"ollama":"0.33.0"}"#;
        std::fs::write(world.path().join("stablehand-world.json"), marker).unwrap();
        let clock = r#"{"speed":1.0,"anchor_monotonic_ms":0,"anchor_wall_unix_ms":1,"slept_ms":0}"#;
        std::fs::write(world.path().join("clock.json"), clock).unwrap();
        let mut file = ConfigurationFile::open(&Machine::world(world.path()).unwrap());
        let place = GatewayPlace {
            mode: Mode::Takeover,
            listen: vec!["127.0.0.1:11434".parse().unwrap()],
            upstream: Some("127.0.0.1:11435".parse().unwrap()),
        };
        file.place_gateway(&place).unwrap();
        assert_eq!(file.current().gateway, place);
        let text = std::fs::read_to_string(file.path()).unwrap();
        std::fs::write(file.path(), text.replace("mode =", "# mine\naffinity_s = 60\nmode =")).unwrap();
        file.place_gateway(&GatewayPlace::default()).unwrap();
        assert_eq!(file.current().gateway, GatewayPlace::default());
        let text = std::fs::read_to_string(file.path()).unwrap();
        assert!(text.contains("# mine\naffinity_s = 60\nmode = \"off\"\n"), "{text}");
        assert!(!text.contains("listen ="), "{text}");
    }

    #[test]
    fn the_file_that_a_person_gets_is_taken_with_every_comment_switched_on() {
        let path = Path::new("c.toml");
        assert_eq!(parse(path, TEMPLATE).unwrap(), Configuration::default());
        let all = TEMPLATE.replace("# allowed", "allowed").replace("# quiet", "quiet");
        let configuration = parse(path, &all).unwrap();
        assert_eq!(configuration.quiet.unwrap().to_string(), "22:00-07:00");
        assert_eq!(configuration.allowed_models, ["gemma4:26b"]);
    }

    #[test]
    fn a_change_keeps_comments_and_foreign_order() {
        let mut document: DocumentMut =
            "# mine\n[settings]\n# why\nOLLAMA_NUM_PARALLEL = 4 # was 8\nOLLAMA_DEBUG = \"1\"\n".parse().unwrap();
        let settings = document["settings"].as_table_like_mut().unwrap();
        assert_eq!(
            change_one(settings, "OLLAMA_NUM_PARALLEL", Some("1")).as_deref(),
            Some("OLLAMA_NUM_PARALLEL: 4 → 1")
        );
        assert_eq!(change_one(settings, "OLLAMA_NUM_PARALLEL", Some("1")), None);
        assert_eq!(change_one(settings, "OLLAMA_DEBUG", None).as_deref(), Some("OLLAMA_DEBUG: 1 → unset"));
        assert_eq!(document.to_string(), "# mine\n[settings]\n# why\nOLLAMA_NUM_PARALLEL = \"1\" # was 8\n");
    }

    #[test]
    fn a_preset_unsets_what_it_does_not_name_and_a_value_beside_it_wins() {
        let change = Change {
            preset: Some(Preset::OllamaDefaults),
            set: BTreeMap::from([("OLLAMA_MAX_QUEUE".to_owned(), "20".to_owned())]),
            unset: BTreeSet::new(),
        };
        let wanted = wanted(&change, None).unwrap();
        assert_eq!(wanted["OLLAMA_NUM_PARALLEL"], None);
        assert_eq!(wanted["OLLAMA_MAX_QUEUE"].as_deref(), Some("20"));
    }

    #[test]
    fn an_unknown_name_cannot_be_unset_either() {
        let change = Change { unset: BTreeSet::from(["OLLAMA_MAX_QEUE".to_owned()]), ..Change::default() };
        let failure = wanted(&change, None).unwrap_err();
        assert!(format!("{} {}", failure.message, failure.hint).contains("OLLAMA_MAX_QUEUE"), "{failure:?}");
    }
}
