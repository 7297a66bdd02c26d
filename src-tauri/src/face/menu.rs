//! The menu as data. Every item that can be chosen has a name that stays the same while the menu changes, so that a
//! click always means what was read.

use crate::face::icon::{self, Shape};
use crate::face::words::Words;
use stablehand_protocol::face::{Ask, Choices, Link, Matter, QueueRequest, View};
use stablehand_protocol::{Known, Request, Snapshot, Upgrade, Versions, WatchedRunner};
use std::collections::BTreeMap;

/// How long alerts are paused from the menu.
const PAUSE_S: u64 = 3600;
/// Longer texts of others (alerts, failures) are cut: a menu is as wide as its longest line.
const LINE_LIMIT_CHARS: usize = 72;

/// A menu from top to bottom.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Menu(pub Vec<Item>);

/// One line of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Item {
    /// Words that do nothing.
    Line {
        /// Its name.
        id: String,
        /// Its words.
        text: String,
    },
    /// Something to do.
    Command {
        /// Its name.
        id: String,
        /// Its words.
        text: String,
        /// What it does.
        act: Act,
    },
    /// One of several of which one holds; without an act it is shown alone.
    Radio {
        /// Its name.
        id: String,
        /// Its words.
        text: String,
        /// It is the one.
        chosen: bool,
        /// What it does.
        act: Option<Act>,
    },
    /// Something that is on or off.
    Toggle {
        /// Its name.
        id: String,
        /// Its words.
        text: String,
        /// It is on.
        on: bool,
        /// What it does.
        act: Act,
    },
    /// A menu of its own.
    Submenu {
        /// Its name.
        id: String,
        /// Its words.
        text: String,
        /// What is in it.
        items: Vec<Item>,
    },
    /// A thin line.
    Separator,
}

/// What an item does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Act {
    /// These, one after the other until one fails.
    Ask(Vec<Ask>),
    /// Opens the popover, at a matter if there is one.
    Open(Option<Matter>),
    /// Ends the menu.
    Quit,
}

impl Menu {
    /// What the item of this name does.
    pub fn act(&self, id: &str) -> Option<&Act> {
        act_in(&self.0, id)
    }
}

fn act_in<'a>(items: &'a [Item], wanted: &str) -> Option<&'a Act> {
    items.iter().find_map(|item| match item {
        Item::Line { .. } | Item::Separator => None,
        Item::Command { id, act, .. } | Item::Toggle { id, act, .. } => (id == wanted).then_some(act),
        Item::Radio { id, act, .. } => act.as_ref().filter(|_| id == wanted),
        Item::Submenu { items, .. } => act_in(items, wanted),
    })
}

/// The menu of this view.
pub fn menu(view: &View, simulated: bool, words: &Words) -> Menu {
    let mut items = Vec::new();
    if simulated {
        items.push(line("simulated", words.say("menu.simulated")));
    }
    items.push(command("state", shortened(&state_line(view, words)), Act::Open(None)));
    if let Some(failure) = view.failures.last() {
        let text = words.fill("menu.state.failed", &[("message", &failure.message)]);
        items.push(command("failed", shortened(&text), Act::Open(None)));
    }
    items.push(Item::Separator);
    match &view.link {
        Link::Live { snapshot } => items.extend(of_daemon(snapshot, view, words)),
        Link::Absent => items.push(at_login(&view.choices, words)),
        Link::Connecting | Link::OtherVersion { .. } => {}
        Link::Reconnecting { .. } => {
            items.push(command("start", words.say("menu.start"), Act::Ask(vec![Ask::StartDaemon])));
            items.push(at_login(&view.choices, words));
        }
    }
    if !matches!(items.last(), Some(Item::Separator)) {
        items.push(Item::Separator);
    }
    items.push(command("open", words.say("menu.open"), Act::Open(None)));
    let (quit, stop) = match view.link {
        Link::Live { .. } | Link::OtherVersion { .. } => ("menu.quit", true),
        Link::Connecting | Link::Reconnecting { .. } | Link::Absent => ("menu.quit-without", false),
    };
    items.push(command("quit", words.say(quit), Act::Quit));
    if stop {
        items.push(command("stop", words.say("menu.stop"), Act::Open(Some(Matter::StopDaemon))));
    }
    Menu(items)
}

fn of_daemon(snapshot: &Snapshot, view: &View, words: &Words) -> Vec<Item> {
    let mut items = vec![line("presets", words.say("menu.preset.title"))];
    let desired = Preset::of(snapshot);
    for preset in [Preset::Serial, Preset::OllamaDefaults, Preset::Custom] {
        let chosen = preset == desired;
        let act = match preset {
            Preset::Serial | Preset::OllamaDefaults if chosen => None,
            Preset::Serial | Preset::OllamaDefaults => Some(Act::Ask(vec![take(preset.word()), apply()])),
            Preset::Custom => Some(Act::Open(None)),
        };
        let text = words.say(&format!("menu.preset.{}", preset.word()));
        items.push(Item::Radio { id: format!("preset:{}", preset.word()), text, chosen, act });
    }
    if icon::drifts(snapshot) {
        items.push(command("apply", words.say("menu.apply"), Act::Ask(vec![apply()])));
    }
    items.push(Item::Separator);
    items.extend(recover(snapshot, words));
    items.extend(gateway(snapshot, words));
    items.push(at_login(&view.choices, words));
    let paused = snapshot.alerts_paused_until.is_some();
    items.push(Item::Toggle {
        id: "pause-alerts".to_owned(),
        text: words.say("menu.pause-alerts"),
        on: paused,
        act: request(Request::PauseAlerts { seconds: if paused { 0 } else { PAUSE_S } }),
    });
    items.push(Item::Separator);
    if let Some(pause) = pause_queue(view, words) {
        items.extend([pause, Item::Separator]);
    }
    items.extend(models(snapshot, words));
    let restart = Request::Restart { take_over: false, dry_run: false };
    items.push(command("restart", words.say("menu.restart"), request(restart)));
    if let Some(versions) = &snapshot.versions {
        // What is done about them takes notes and sizes to decide on: they stand in the popover.
        items.push(command("versions", versions_line(versions, words), Act::Open(Some(Matter::Versions))));
    }
    items
}

fn versions_line(versions: &Versions, words: &Words) -> String {
    if let Some(running) = &versions.running {
        return running_line(running, words);
    }
    match (&versions.latest, &versions.newer, &versions.installed, &versions.pin) {
        (_, _, _, Some(pin)) => words.fill("menu.pinned", &[("version", pin)]),
        (Some(release), Known::Is(true), _, None) => words.fill("menu.upgrade", &[("version", &release.version)]),
        (Some(_), Known::Is(false), Known::Is(installed), None) => {
            words.fill("menu.up-to-date", &[("version", installed)])
        }
        (None, _, _, None) | (Some(_), Known::Unknown { .. } | Known::Is(false), _, None) => words.say("menu.versions"),
    }
}

fn running_line(running: &Upgrade, words: &Words) -> String {
    let (key, version) = match (&running.undoing, running.goal.as_str()) {
        (Some(_), _) => ("menu.undoing", &running.from),
        (None, "rollback") => ("menu.rolling-back", &running.to),
        (None, _) => ("menu.upgrading", &running.to),
    };
    let (index, of) = (running.index.to_string(), running.of.to_string());
    let line = words.fill(key, &[("version", version), ("index", &index), ("of", &of)]);
    match (running.done_bytes, running.of_bytes) {
        (Some(done), Some(of)) if of > 0 => {
            format!("{line} · {} %", (u128::from(done.min(of)) * 100) / u128::from(of))
        }
        (Some(_) | None, Some(_) | None) => line,
    }
}

/// Whether recovery acts by itself is known once the daemon has watched.
fn recover(snapshot: &Snapshot, words: &Words) -> Option<Item> {
    let policy = snapshot.watched.as_ref()?.recovery.policy.as_str();
    let on = policy != "alert";
    let set = BTreeMap::from([("recovery.policy".to_owned(), if on { "alert" } else { "runner" }.to_owned())]);
    let act = request(Request::Configure { set });
    Some(Item::Toggle { id: "recover".to_owned(), text: words.say("menu.recover"), on, act })
}

/// The gateway in Ollama's place, which no client has to be told of; one beside it is made on the page, and ended here.
fn gateway(snapshot: &Snapshot, words: &Words) -> Option<Item> {
    let on = snapshot.gateway.as_ref()?.mode != "off";
    let mode = if on { "off" } else { "takeover" }.to_owned();
    let act = request(Request::Gateway { mode, port: None, dry_run: false });
    Some(Item::Toggle { id: "gateway".to_owned(), text: words.say("menu.gateway"), on, act })
}

/// The queue can be paused where a gateway keeps one.
fn pause_queue(view: &View, words: &Words) -> Option<Item> {
    view.queue.as_ref()?;
    let on = icon::is_paused(view);
    let request = if on { QueueRequest::Resume } else { QueueRequest::Pause };
    let act = Act::Ask(vec![Ask::Queue { request }]);
    Some(Item::Toggle { id: "pause-queue".to_owned(), text: words.say("menu.pause-queue"), on, act })
}

fn at_login(choices: &Choices, words: &Words) -> Item {
    let on = choices.at_login;
    let flipped = Choices { at_login: !on, ..choices.clone() };
    let act = Act::Ask(vec![Ask::Choose { choices: flipped }]);
    Item::Toggle { id: "at-login".to_owned(), text: words.say("menu.at-login"), on, act }
}

fn models(snapshot: &Snapshot, words: &Words) -> Vec<Item> {
    let Some(watched) = &snapshot.watched else {
        return vec![line("models", words.say("menu.models.unknown"))];
    };
    if watched.runners.is_empty() {
        return vec![line("models", words.say("menu.models.none"))];
    }
    let mut items = vec![line("models", words.say("menu.models.title"))];
    items.extend(watched.runners.iter().map(|runner| model(runner, words)));
    items
}

fn model(runner: &WatchedRunner, words: &Words) -> Item {
    let name = match &runner.model {
        Known::Is(name) => name,
        Known::Unknown { .. } => {
            let text = words.fill("menu.models.unnamed", &[("pid", &runner.pid.to_string())]);
            return line(&format!("runner:{}", runner.pid), text);
        }
    };
    let unload = request(Request::Unload { model: name.clone(), dry_run: false });
    let stop = request(Request::StopRunner { model: name.clone(), force: true, dry_run: false });
    Item::Submenu {
        // Two runners of one model, of which one is left behind, are two lines.
        id: format!("model:{name}:{}", runner.pid),
        text: shortened_name(name),
        items: vec![
            command(&format!("unload:{name}:{}", runner.pid), words.say("menu.unload"), unload),
            command(&format!("force-stop:{name}:{}", runner.pid), words.say("menu.force-stop"), stop),
        ],
    }
}

fn state_line(view: &View, words: &Words) -> String {
    let snapshot = match &view.link {
        Link::Connecting => return words.say("menu.state.connecting"),
        Link::Absent => return words.say("menu.state.absent"),
        Link::Reconnecting { .. } => return words.say("menu.state.reconnecting"),
        Link::OtherVersion { daemon, .. } => return words.fill("menu.state.other-version", &[("version", daemon)]),
        Link::Live { snapshot } => snapshot,
    };
    match snapshot.server.state.as_str() {
        "looking" => return words.say("menu.state.looking"),
        "coming-up" => return words.say("menu.state.coming-up"),
        "gave-up" => return words.say("menu.state.gave-up"),
        "blocked" => return words.say("menu.state.blocked"),
        _ => {}
    }
    match icon::icon(&View { failures: vec![], ..view.clone() }) {
        Shape::Well => words.say("menu.state.well"),
        Shape::Busy => words.say("menu.state.busy"),
        Shape::Warning => warning_line(view, snapshot, words),
        Shape::Stalled => match icon::hanging(snapshot) {
            Some(Some(model)) => words.fill("menu.state.stalled-model", &[("model", &model)]),
            Some(None) | None => words.say("menu.state.stalled-server"),
        },
        Shape::Restarting => {
            if let Some(running) = snapshot.versions.as_ref().and_then(|versions| versions.running.as_ref()) {
                return running_line(running, words);
            }
            if snapshot.server.state == "upgrading" {
                return words.say("menu.state.upgrading");
            }
            let step = snapshot.work.as_ref().map(|work| (work.step.index.to_string(), work.step.of.to_string()));
            match step {
                Some((index, of)) => words.fill("menu.state.restarting", &[("index", &index), ("of", &of)]),
                None => words.say("menu.state.coming-up"),
            }
        }
        Shape::NoServer => words.say("menu.state.no-server"),
    }
}

fn warning_line(view: &View, snapshot: &Snapshot, words: &Words) -> String {
    let troubles = snapshot.watched.iter().flat_map(|watched| {
        watched.server.iter().chain(watched.runners.iter().filter_map(|runner| runner.judged.as_ref()))
    });
    let trouble = troubles.into_iter().find(|judged| judged.trouble && !judged.said.words.is_empty());
    match trouble {
        Some(judged) => words.phrase(&judged.said),
        None if icon::is_paused(view) => words.fill("menu.state.paused", &[("count", &waiting(view).to_string())]),
        None if icon::gateway_fails(snapshot) => words.say("menu.state.gateway"),
        None if icon::drifts(snapshot) => words.say("menu.state.drift"),
        None => words.say("menu.state.warning"),
    }
}

fn waiting(view: &View) -> usize {
    match &view.queue {
        Some(Known::Is(queue)) => queue.waiting.len(),
        Some(Known::Unknown { .. }) | None => 0,
    }
}

/// What the main settings that are desired amount to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Preset {
    Serial,
    OllamaDefaults,
    Custom,
}

impl Preset {
    fn of(snapshot: &Snapshot) -> Self {
        let main = ["OLLAMA_NUM_PARALLEL", "OLLAMA_MAX_LOADED_MODELS", "OLLAMA_MAX_QUEUE"];
        let desired = main.map(|name| {
            snapshot.settings.iter().find(|setting| setting.name == name).and_then(|setting| setting.desired.as_deref())
        });
        match desired {
            [Some("1"), Some("1"), Some("10")] => Self::Serial,
            [None, None, None] => Self::OllamaDefaults,
            [_, _, _] => Self::Custom,
        }
    }

    /// The word that the daemon and the message files know it by.
    fn word(self) -> &'static str {
        match self {
            Self::Serial => "serial",
            Self::OllamaDefaults => "ollama-defaults",
            Self::Custom => "custom",
        }
    }
}

fn take(preset: &str) -> Ask {
    let preset = Some(preset.to_owned());
    Ask::Request { request: Request::Settings { set: BTreeMap::new(), unset: vec![], preset, dry_run: false } }
}

fn apply() -> Ask {
    Ask::Request { request: Request::Apply { take_over: false, dry_run: false } }
}

fn request(request: Request) -> Act {
    Act::Ask(vec![Ask::Request { request }])
}

fn line(id: &str, text: String) -> Item {
    Item::Line { id: id.to_owned(), text }
}

fn command(id: &str, text: String, act: Act) -> Item {
    Item::Command { id: id.to_owned(), text, act }
}

fn shortened(text: &str) -> String {
    let text = text.lines().next().unwrap_or_default();
    match text.char_indices().nth(LINE_LIMIT_CHARS) {
        Some((end, _)) => format!("{}…", text[..end].trim_end()),
        None => text.to_owned(),
    }
}

/// A name keeps its end, too: models of one family differ there.
fn shortened_name(name: &str) -> String {
    let letters: Vec<char> = name.chars().map(|letter| if letter.is_control() { ' ' } else { letter }).collect();
    if letters.len() <= LINE_LIMIT_CHARS {
        return letters.into_iter().collect();
    }
    let (head, tail) = (LINE_LIMIT_CHARS / 2, LINE_LIMIT_CHARS - LINE_LIMIT_CHARS / 2 - 1);
    letters[..head].iter().chain(['…'].iter()).chain(&letters[letters.len() - tail..]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::face::testing::{
        gateway, judged, live, queue, runner, running, setting, snapshot, versions, view, watched,
    };
    use crate::face::words::Language;
    use stablehand_protocol::{Failure, Gateway};

    fn english(view: &View) -> Menu {
        menu(view, false, &Words::of(Language::English))
    }

    fn texts(items: &[Item]) -> Vec<&str> {
        items
            .iter()
            .flat_map(|item| match item {
                Item::Separator => vec!["—"],
                Item::Line { text, .. }
                | Item::Command { text, .. }
                | Item::Radio { text, .. }
                | Item::Toggle { text, .. } => vec![text.as_str()],
                Item::Submenu { text, items, .. } => [vec![text.as_str()], texts(items)].concat(),
            })
            .collect()
    }

    fn busy() -> Snapshot {
        let mut snapshot = snapshot();
        snapshot.watched = Some(watched(vec![runner("gemma4:26b", 1, Some(judged("prefill", false)))]));
        snapshot
    }

    #[test]
    fn the_whole_menu_of_a_machine_at_work() {
        assert_eq!(
            texts(&english(&live(busy())).0),
            [
                "Ollama is at work",
                "—",
                "Preset (a change restarts Ollama)",
                "Serial",
                "Ollama defaults",
                "Custom",
                "—",
                "Recover runners by itself",
                "Launch at login",
                "Pause alerts for 1 h",
                "—",
                "Loaded models",
                "gemma4:26b",
                "Unload",
                "Force stop",
                "Restart Ollama",
                "—",
                "Open Stablehand",
                "Quit menu (supervision continues)",
                "Stop Stablehand…",
            ]
        );
    }

    #[test]
    fn each_item_asks_for_what_it_says() {
        let menu = english(&live(busy()));
        let asked = |id: &str| match menu.act(id) {
            Some(Act::Ask(asks)) => serde_json::to_string(asks).unwrap(),
            Some(other) => format!("{other:?}"),
            None => "nothing".to_owned(),
        };
        assert_eq!(
            asked("preset:serial"),
            concat!(
                r#"[{"what":"request","request":{"verb":"settings","set":{},"unset":[],"preset":"serial","dry_run":false}},"#,
                r#"{"what":"request","request":{"verb":"apply","take_over":false,"dry_run":false}}]"#
            )
        );
        assert_eq!(asked("preset:ollama-defaults"), "nothing", "it holds already");
        assert_eq!(
            asked("recover"),
            r#"[{"what":"request","request":{"verb":"configure","set":{"recovery.policy":"runner"}}}]"#
        );
        assert_eq!(asked("pause-alerts"), r#"[{"what":"request","request":{"verb":"pause-alerts","seconds":3600}}]"#);
        assert_eq!(
            asked("at-login"),
            r#"[{"what":"choose","choices":{"language":null,"title":"off","at_login":true}}]"#
        );
        assert_eq!(
            asked("unload:gemma4:26b:7"),
            r#"[{"what":"request","request":{"verb":"unload","model":"gemma4:26b","dry_run":false}}]"#
        );
        assert_eq!(
            asked("force-stop:gemma4:26b:7"),
            r#"[{"what":"request","request":{"verb":"stop-runner","model":"gemma4:26b","force":true,"dry_run":false}}]"#
        );
        assert_eq!(
            asked("restart"),
            r#"[{"what":"request","request":{"verb":"restart","take_over":false,"dry_run":false}}]"#
        );
        assert_eq!(asked("stop"), "Open(Some(StopDaemon))", "it is asked first whether it is meant");
        assert_eq!(asked("quit"), "Quit");
        assert_eq!(asked("unload:other:8"), "nothing");
    }

    #[test]
    fn what_is_on_can_be_switched_off() {
        let mut snapshot = busy();
        snapshot.alerts_paused_until = Some("2026-01-01T00:00:00Z".to_owned());
        if let Some(watched) = &mut snapshot.watched {
            watched.recovery.policy = "all".to_owned();
        }
        let mut view = live(snapshot);
        view.choices.at_login = true;
        let menu = english(&view);
        let on: Vec<_> = menu
            .0
            .iter()
            .filter_map(|item| match item {
                Item::Toggle { id, on, .. } => Some((id.as_str(), *on)),
                Item::Line { .. }
                | Item::Command { .. }
                | Item::Radio { .. }
                | Item::Submenu { .. }
                | Item::Separator => None,
            })
            .collect();
        assert_eq!(on, [("recover", true), ("at-login", true), ("pause-alerts", true)]);
        let off = |id: &str| format!("{:?}", menu.act(id));
        assert!(off("recover").contains(r#""recovery.policy": "alert""#));
        assert!(off("pause-alerts").contains("seconds: 0"));
        assert!(off("at-login").contains("at_login: false"));
    }

    #[test]
    fn versions_are_one_line_that_opens_their_card() {
        let line = |change: &dyn Fn(&mut Versions)| {
            let mut versions = versions();
            change(&mut versions);
            let mut snapshot = busy();
            snapshot.versions = Some(versions);
            let menu = english(&live(snapshot));
            assert_eq!(menu.act("versions"), Some(&Act::Open(Some(Matter::Versions))));
            let named = |item: &Item| match item {
                Item::Command { id, text, .. } if id == "versions" => Some(text.clone()),
                Item::Line { .. }
                | Item::Command { .. }
                | Item::Radio { .. }
                | Item::Toggle { .. }
                | Item::Submenu { .. }
                | Item::Separator => None,
            };
            menu.0.iter().find_map(named).unwrap()
        };
        assert_eq!(line(&|_| {}), "Upgrade to 0.24.0…");
        assert_eq!(line(&|versions| versions.newer = Known::Is(false)), "Up to date (0.22.1)");
        assert_eq!(line(&|versions| versions.newer = Known::unknown("a nightly")), "Versions of Ollama…");
        assert_eq!(line(&|versions| versions.latest = None), "Versions of Ollama…");
        assert_eq!(line(&|versions| versions.pin = Some("0.22.1".to_owned())), "Pinned to 0.22.1");
        assert_eq!(
            line(&|versions| versions.running = Some(running("upgrade"))),
            "Upgrading to 0.24.0: step 1 of 18 · 43 %"
        );
        let back = Upgrade { done_bytes: None, ..running("rollback") };
        assert_eq!(line(&|versions| versions.running = Some(back.clone())), "Going back to 0.24.0: step 1 of 18");
        let undoing = Upgrade { undoing: Some("it is silent".to_owned()), of_bytes: None, ..running("upgrade") };
        assert_eq!(line(&|versions| versions.running = Some(undoing.clone())), "Putting 0.22.1 back: step 1 of 18");
        assert_eq!(english(&live(busy())).act("versions"), None, "they were not looked for");
    }

    #[test]
    fn while_the_server_is_down_for_an_upgrade_the_first_line_says_so() {
        let mut snapshot = busy();
        snapshot.server.state = "upgrading".to_owned();
        assert_eq!(texts(&english(&live(snapshot.clone())).0)[0], "Upgrading Ollama…");
        snapshot.versions = Some(Versions { running: Some(running("upgrade")), ..versions() });
        assert_eq!(texts(&english(&live(snapshot)).0)[0], "Upgrading to 0.24.0: step 1 of 18 · 43 %");
    }

    #[test]
    fn the_gateway_is_switched_on_and_off_where_the_daemon_knows_of_one() {
        let asked = |mode: &str| {
            let mut snapshot = busy();
            snapshot.gateway = Some(gateway(mode, mode));
            match english(&live(snapshot)).act("gateway") {
                Some(Act::Ask(asks)) => serde_json::to_string(asks).unwrap(),
                Some(other) => format!("{other:?}"),
                None => "nothing".to_owned(),
            }
        };
        let request = |mode: &str| {
            format!(
                r#"[{{"what":"request","request":{{"verb":"gateway","mode":"{mode}","port":null,"dry_run":false}}}}]"#
            )
        };
        assert_eq!(asked("off"), request("takeover"));
        assert_eq!(asked("takeover"), request("off"));
        assert_eq!(asked("beside"), request("off"));
        assert_eq!(english(&live(busy())).act("gateway"), None);
    }

    #[test]
    fn a_queue_can_be_paused_and_says_so_until_it_goes_on() {
        let with = |holds: &[&str]| {
            let mut view = live(busy());
            view.queue = Some(Known::Is(Box::new(queue(3, holds))));
            english(&view)
        };
        let running = with(&[]);
        let asked = |menu: &Menu| menu.act("pause-queue").cloned();
        assert_eq!(asked(&running), Some(Act::Ask(vec![Ask::Queue { request: QueueRequest::Pause }])));
        let paused = with(&["paused"]);
        assert_eq!(asked(&paused), Some(Act::Ask(vec![Ask::Queue { request: QueueRequest::Resume }])));
        assert_eq!(texts(&paused.0)[0], "The queue is paused; waiting: 3");
        assert_eq!(asked(&english(&live(busy()))), None, "there is no gateway");
    }

    #[test]
    fn the_preset_is_read_from_what_is_desired() {
        let chosen = |values: [Option<&str>; 3]| {
            let mut snapshot = busy();
            let names = ["OLLAMA_NUM_PARALLEL", "OLLAMA_MAX_LOADED_MODELS", "OLLAMA_MAX_QUEUE"];
            snapshot.settings = names.iter().zip(values).map(|(name, value)| setting(name, value)).collect();
            Preset::of(&snapshot)
        };
        assert_eq!(chosen([Some("1"), Some("1"), Some("10")]), Preset::Serial);
        assert_eq!(chosen([None, None, None]), Preset::OllamaDefaults);
        assert_eq!(chosen([Some("1"), Some("1"), None]), Preset::Custom);
        assert_eq!(chosen([Some("2"), Some("1"), Some("10")]), Preset::Custom);
    }

    #[test]
    fn without_a_daemon_only_what_works_is_offered() {
        let failure = Failure::new("x", "y", "z");
        let link = Link::Reconnecting { since: String::new(), snapshot: None, failure };
        let lost = english(&view(link));
        assert_eq!(lost.act("start"), Some(&Act::Ask(vec![Ask::StartDaemon])));
        assert_eq!((lost.act("restart"), lost.act("stop")), (None, None));
        assert_eq!(
            texts(&english(&view(Link::Connecting)).0),
            ["Asking Stablehand…", "—", "Open Stablehand", "Quit menu"]
        );
    }

    #[test]
    fn a_simulated_machine_is_named_first_and_a_failure_is_read_in_the_menu() {
        let mut view = live(busy());
        view.failures.push(Failure::new("x", "it broke\nsecond line", "z"));
        let menu = menu(&view, true, &Words::of(Language::Korean));
        assert_eq!(&texts(&menu.0)[..3], ["시뮬레이션(SIMULATED) 컴퓨터", "Ollama가 작업 중입니다", "실패: it broke"]);
    }

    #[test]
    fn every_word_exists_whatever_is_shown() {
        let mut hung = busy();
        hung.watched = Some(watched(vec![runner("m:1b", 1, Some(judged("hung", true)))]));
        let mut views = vec![view(Link::Connecting), view(Link::Absent), live(snapshot()), live(busy()), live(hung)];
        for state in ["down", "coming-up", "silent", "blocked", "planning", "gave-up", "looking", "upgrading", "new"] {
            let mut snapshot = busy();
            snapshot.server.state = state.to_owned();
            views.push(live(snapshot));
        }
        let pinned = Versions { pin: Some("0.22.1".to_owned()), ..versions() };
        let undoing = Upgrade { undoing: Some(String::new()), ..running("upgrade") };
        let under_way = [running("upgrade"), running("rollback"), undoing];
        let under_way = under_way.map(|running| Versions { running: Some(running), ..versions() });
        let current = Versions { newer: Known::Is(false), ..versions() };
        let unread = Versions { latest: None, ..versions() };
        let mut paused = live(busy());
        paused.queue = Some(Known::Is(Box::new(queue(1, &["paused"]))));
        views.push(paused);
        let aside = Gateway { healthy: Known::Is(false), ..gateway("takeover", "in-place") };
        views.push(live(Snapshot { gateway: Some(aside), ..busy() }));
        for versions in [versions(), pinned, current, unread].into_iter().chain(under_way) {
            views.push(live(Snapshot { versions: Some(versions), ..busy() }));
        }
        for view in &views {
            for language in [Language::English, Language::Korean] {
                let menu = menu(view, true, &Words::of(language));
                for text in texts(&menu.0) {
                    assert!(!text.contains("menu.") && !text.contains('{'), "{text}");
                }
            }
        }
    }

    #[test]
    fn long_texts_of_others_are_cut_at_a_character() {
        assert_eq!(shortened(&"가".repeat(100)), format!("{}…", "가".repeat(72)));
        assert_eq!(shortened("short"), "short");
    }

    #[test]
    fn a_long_name_keeps_both_its_ends_and_its_item_the_whole_name() {
        let name = format!("registry.example/{}:27b-한글-😀-q4", "가".repeat(300));
        let shown = shortened_name(&name);
        assert_eq!(shown.chars().count(), LINE_LIMIT_CHARS);
        assert!(shown.starts_with("registry.example/가") && shown.ends_with("가:27b-한글-😀-q4"), "{shown}");
        assert_eq!(shortened_name("<script>\n&"), "<script> &");
        let mut snapshot = snapshot();
        snapshot.watched = Some(watched(vec![runner(&name, 0, None)]));
        let menu = menu(&live(snapshot), false, &Words::of(Language::English));
        let named = |item: &&Item| matches!(item, Item::Submenu { text, .. } if *text == shown);
        assert_eq!(menu.0.iter().filter(named).count(), 1);
        let pid = runner(&name, 0, None).pid;
        assert_eq!(
            menu.act(&format!("unload:{name}:{pid}")),
            Some(&request(Request::Unload { model: name, dry_run: false }))
        );
    }
}
