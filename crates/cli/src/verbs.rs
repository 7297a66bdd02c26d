//! Each verb: arguments in, request out, text or JSON to stdout.

use crate::arguments::{
    Arguments, Consent, DryRun, GatewayVerb, HereVerb, Quarantine, QueueVerb, Restarting, RollingBack, RunnerVerb,
    SettingsVerb, Upgrading, Verb,
};
use crate::paint::Paint;
use crate::versions::{self, Answer, Meter};
use crate::{demo, text, watched};
use serde::Serialize;
use stablehand_daemon::doctor::{self, Finding, Severity};
use stablehand_daemon::installation::Report;
use stablehand_daemon::quarantine::{self, State};
use stablehand_daemon::{HistoryForm, Place, installation, server_log};
use stablehand_protocol::client::gateway::{self, Gateway};
use stablehand_protocol::client::{Client, ClientError};
use stablehand_protocol::queue::QueueView;
use stablehand_protocol::{Ending, Event, Failure, Outcome, Request, Setting, Snapshot};
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::process::ExitCode;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};

/// Drift, or something that failed.
const FAILED: u8 = 1;
/// Wrong usage.
const USAGE: u8 = 2;
/// Something could not be read.
const UNKNOWN: u8 = 3;

/// How a verb writes.
#[derive(Clone, Copy, Debug)]
pub struct Voice {
    /// JSON alone on stdout.
    pub json: bool,
    /// How text is painted.
    pub paint: Paint,
}

/// Runs a verb.
pub async fn run(arguments: Arguments) -> ExitCode {
    let voice = Voice { json: arguments.json, paint: Paint::for_stdout() };
    let done = match arguments.verb {
        Verb::Demo { verb } => demo::run(voice, verb).await,
        Verb::Here(verb) => match Place::detect() {
            Ok(place) => at(&place, voice, verb).await,
            Err(failure) => Err(failure),
        },
    };
    match done {
        Ok(code) => code,
        Err(failure) => {
            say_failure(voice, &failure);
            ExitCode::from(if failure.code == "usage" { USAGE } else { FAILED })
        }
    }
}

async fn at(place: &Place, voice: Voice, verb: HereVerb) -> Result<ExitCode, Failure> {
    let client = Client::new(place.socket());
    match verb {
        HereVerb::Serve { gateway } => serve(place, gateway).await,
        HereVerb::Status { watch: false } => status(&client, voice).await,
        HereVerb::Status { watch: true } => watch(&client, voice).await,
        HereVerb::Settings { verb } => settings(&client, voice, verb).await,
        HereVerb::Apply(Restarting { take_over, dry_run }) => {
            ask(&client, voice, Request::Apply { take_over, dry_run: dry_run.dry_run }).await
        }
        HereVerb::Restart(Restarting { take_over, dry_run }) => {
            ask(&client, voice, Request::Restart { take_over, dry_run: dry_run.dry_run }).await
        }
        HereVerb::Verify => ask(&client, voice, Request::Verify).await,
        HereVerb::Doctor { mend } => examine(place, &client, voice, mend).await,
        HereVerb::Install(DryRun { dry_run }) => {
            changes(place, voice, installation::install(place, dry_run).await, dry_run)
        }
        HereVerb::Uninstall(DryRun { dry_run }) => {
            if !dry_run && installation::is_taken_over(place) {
                let_gateway_leave(&client).await?;
            }
            changes(place, voice, installation::uninstall(place, dry_run).await, dry_run)
        }
        HereVerb::Quarantine(wish) => Ok(quarantine(place, voice, &wish).await),
        HereVerb::Upgrade(wish) => upgrade(&client, voice, wish).await,
        HereVerb::Rollback(wish) => rollback(&client, voice, wish).await,
        HereVerb::Pin { version, off: _ } => ask(&client, voice, Request::Pin { version }).await,
        HereVerb::Versions => shown_versions(&client, voice).await,
        HereVerb::Gateway { verb } => gateway(&client, voice, verb).await,
        HereVerb::Runners => runners(&client, voice).await,
        HereVerb::Runner { verb: RunnerVerb::Stop { model, force, dry_run: DryRun { dry_run } } } => {
            ask(&client, voice, Request::StopRunner { model, force, dry_run }).await
        }
        HereVerb::Unload { model, dry_run: DryRun { dry_run } } => {
            ask(&client, voice, Request::Unload { model, dry_run }).await
        }
        HereVerb::Recover(DryRun { dry_run }) => ask(&client, voice, Request::Recover { dry_run }).await,
        HereVerb::Queue { watch, verb } => queue(place, voice, watch, verb).await,
        HereVerb::Why => why(&client, voice).await,
        HereVerb::History { since, csv } => history(place, voice, &since, csv),
        HereVerb::Metrics => {
            print(&client.metrics().await?);
            Ok(ExitCode::SUCCESS)
        }
        HereVerb::GpuWorkingSet => match stablehand_daemon::gpu_working_set() {
            Ok(bytes) => {
                print(&format!("{bytes}\n"));
                Ok(ExitCode::SUCCESS)
            }
            Err(reason) => {
                aside(&format!("{reason}\n"));
                Ok(ExitCode::FAILURE)
            }
        },
        HereVerb::Logs { daemon, lines, follow } => logs(place, voice, daemon, lines, follow).await,
        HereVerb::Deed { name } => deed(place, &name).await,
        HereVerb::Publish => publish(place, voice).await,
    }
}

async fn serve(place: &Place, gateway: bool) -> Result<ExitCode, Failure> {
    let filter = tracing_subscriber::EnvFilter::try_from_env("STABLEHAND_LOG")
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("info"));
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(false).init();
    if gateway {
        stablehand_gateway::serve(place.machine().clone()).await?;
    } else {
        place.serve().await?;
    }
    Ok(ExitCode::SUCCESS)
}

async fn status(client: &Client, voice: Voice) -> Result<ExitCode, Failure> {
    let snapshot = client.snapshot().await?;
    if voice.json {
        print_json(&snapshot);
    } else {
        print(&text::snapshot(&snapshot, voice.paint));
    }
    Ok(ExitCode::SUCCESS)
}

async fn watch(client: &Client, voice: Voice) -> Result<ExitCode, Failure> {
    let mut changes = client.changes().await?;
    loop {
        tokio::select! {
            changed = changes.next() => match changed? {
                Some(snapshot) => show_change(&snapshot, voice),
                None => return Err(ClientError::Broken("the daemon has ended".to_owned()).into()),
            },
            () = told_to_end() => return Ok(ExitCode::SUCCESS),
        }
    }
}

/// Waits for whatever tells a program at a terminal to end.
pub async fn told_to_end() {
    let signals = [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()].map(signal);
    let [Ok(mut interrupt), Ok(mut terminate), Ok(mut hang_up)] = signals else {
        return std::future::pending().await;
    };
    tokio::select! { _ = interrupt.recv() => {}, _ = terminate.recv() => {}, _ = hang_up.recv() => {} }
}

fn show_change(snapshot: &Snapshot, voice: Voice) {
    if voice.json {
        print_json(snapshot);
        return;
    }
    // On a terminal the page is drawn over the last one.
    let clear = match voice.paint {
        Paint::Coloured => "\x1b[H\x1b[2J",
        Paint::Plain => "",
    };
    print(&format!("{clear}{}", text::snapshot(snapshot, voice.paint)));
}

async fn settings(client: &Client, voice: Voice, verb: SettingsVerb) -> Result<ExitCode, Failure> {
    let change =
        |set, unset, preset, dry_run: DryRun| Request::Settings { set, unset, preset, dry_run: dry_run.dry_run };
    match verb {
        SettingsVerb::List { all } => {
            let snapshot = client.snapshot().await?;
            let shown = if all { snapshot.settings.clone() } else { text::main_settings(&snapshot.settings) };
            if voice.json {
                print_json(&shown);
            } else {
                print(&text::simulated_line(snapshot.simulated.as_deref(), voice.paint));
                print(&text::settings(&shown, voice.paint));
                if all {
                    print(&format!("\n{}", text::meanings(&shown, voice.paint)));
                }
            }
            Ok(ExitCode::SUCCESS)
        }
        SettingsVerb::Get { name } => {
            let snapshot = client.snapshot().await?;
            let setting = snapshot.settings.iter().find(|setting| setting.name == name);
            if !voice.json {
                print(&text::simulated_line(snapshot.simulated.as_deref(), voice.paint));
            }
            show_setting(voice, setting, &name)
        }
        SettingsVerb::Set { assignments, dry_run } => {
            ask(client, voice, change(assigned(&assignments)?, vec![], None, dry_run)).await
        }
        SettingsVerb::Unset { names, dry_run } => {
            ask(client, voice, change(BTreeMap::new(), names, None, dry_run)).await
        }
        SettingsVerb::Preset { name, dry_run } => {
            ask(client, voice, change(BTreeMap::new(), vec![], Some(name), dry_run)).await
        }
    }
}

fn show_setting(voice: Voice, setting: Option<&Setting>, name: &str) -> Result<ExitCode, Failure> {
    let Some(setting) = setting else { return Err(stablehand_daemon::no_such_setting(name)) };
    if voice.json {
        print_json(setting);
    } else {
        print(&text::setting(setting, voice.paint));
    }
    Ok(ExitCode::SUCCESS)
}

fn assigned(assignments: &[String]) -> Result<BTreeMap<String, String>, Failure> {
    if let [name, value] = assignments
        && !name.contains('=')
    {
        return Ok(BTreeMap::from([(name.clone(), value.clone())]));
    }
    let pair = |text: &String| match text.split_once('=') {
        Some((name, value)) => Ok((name.to_owned(), value.to_owned())),
        None => Err(Failure::new(
            "usage",
            format!("«{text}» is no NAME=VALUE; nothing was changed"),
            "for example: stablehand settings set OLLAMA_NUM_PARALLEL=2",
        )),
    };
    assignments.iter().map(pair).collect()
}

/// Sends a request, shows its progress, and ends with its outcome.
async fn ask(client: &Client, voice: Voice, request: Request) -> Result<ExitCode, Failure> {
    let mut events = client.request(&request).await?;
    let mut meter = Meter::default();
    loop {
        let event = events.next().await?;
        if voice.json {
            print_json(&event);
        } else if let Event::Bytes { done_bytes, of_bytes } = &event {
            meter.draw(*done_bytes, *of_bytes);
        } else if let Some(line) = text::event(&event, voice.paint) {
            meter.clear();
            print(&format!("{line}\n"));
        }
        if let Event::Result(ending) = event {
            meter.clear();
            return Ok(conclude(voice, &ending));
        }
    }
}

async fn upgrade(client: &Client, voice: Voice, wish: Upgrading) -> Result<ExitCode, Failure> {
    let Upgrading { check, to, prerelease, downgrade, measure, yes, dry_run: DryRun { dry_run } } = wish;
    if check {
        return ask(client, voice, Request::CheckReleases { prerelease }).await;
    }
    let request = |dry_run| Request::Upgrade { to: to.clone(), prerelease, downgrade, measure, dry_run };
    if dry_run || yes {
        return ask(client, voice, request(dry_run)).await;
    }
    let planned = answer(client, &request(true)).await?;
    if planned.failure.is_some() {
        return Ok(conclude_aloud(voice, planned));
    }
    match asked(voice, &planned, "Go on?") {
        Ok(()) => ask(client, voice, request(false)).await,
        Err(ended) => ended,
    }
}

/// What a rollback is refused with when the old version can not read the database.
const DATABASE_NEWER: &str = "rollback-database";

async fn rollback(client: &Client, voice: Voice, wish: RollingBack) -> Result<ExitCode, Failure> {
    let RollingBack { to, yes, dry_run: DryRun { dry_run } } = wish;
    let request = |set_database_aside, dry_run| Request::Rollback { to: to.clone(), set_database_aside, dry_run };
    if dry_run || yes {
        return ask(client, voice, request(yes, dry_run)).await;
    }
    let mut planned = answer(client, &request(false, true)).await?;
    let newer = planned.failure.as_ref().filter(|failure| failure.code == DATABASE_NEWER).cloned();
    if let Some(failure) = &newer {
        planned = answer(client, &request(true, true)).await?;
        planned.notes.push(format!("{}; {}", failure.message, failure.hint));
    }
    if planned.failure.is_some() {
        return Ok(conclude_aloud(voice, planned));
    }
    match asked(voice, &planned, "Go on?") {
        Ok(()) => ask(client, voice, request(newer.is_some(), false)).await,
        Err(ended) => ended,
    }
}

/// Shows what would be done, and asks.
fn asked(voice: Voice, planned: &Ending, question: &str) -> Result<(), Result<ExitCode, Failure>> {
    if !voice.json {
        print(&text::ending(planned, voice.paint));
    }
    match versions::confirmed(question) {
        Answer::Yes => Ok(()),
        Answer::No => {
            aside("nothing was changed\n");
            Err(Ok(ExitCode::from(FAILED)))
        }
        Answer::Nobody => Err(Err(Failure::new(
            "usage",
            "there is nobody to ask; nothing was changed",
            "add --yes to go on without a question, or --dry-run to see what would be done",
        ))),
    }
}

/// Sends a request, and waits for its end.
async fn answer(client: &Client, request: &Request) -> Result<Ending, Failure> {
    let mut events = client.request(request).await?;
    loop {
        if let Event::Result(ending) = events.next().await? {
            return Ok(*ending);
        }
    }
}

fn conclude_aloud(voice: Voice, ending: Ending) -> ExitCode {
    let code = conclude(voice, &ending);
    if voice.json {
        print_json(&Event::Result(Box::new(ending)));
    }
    code
}

async fn shown_versions(client: &Client, voice: Voice) -> Result<ExitCode, Failure> {
    let snapshot = client.snapshot().await?;
    let Some(versions) = &snapshot.versions else {
        return Err(Failure::new("still-looking", "the versions were not looked for yet", "ask again in a moment"));
    };
    if voice.json {
        print_json(versions);
    } else {
        print(&text::simulated_line(snapshot.simulated.as_deref(), voice.paint));
        print(&versions::page(versions, voice.paint));
    }
    Ok(ExitCode::SUCCESS)
}

async fn gateway(client: &Client, voice: Voice, verb: GatewayVerb) -> Result<ExitCode, Failure> {
    let (mode, port, consent) = match verb {
        GatewayVerb::On { beside: Some(port), consent, .. } => ("beside", Some(port), consent),
        GatewayVerb::On { beside: None, consent, .. } => ("takeover", None, consent),
        GatewayVerb::Off(consent) => ("off", None, consent),
        GatewayVerb::Status => return gateway_status(client, voice).await,
    };
    let request = |dry_run| Request::Gateway { mode: mode.to_owned(), port, dry_run };
    let Consent { yes, dry_run: DryRun { dry_run } } = consent;
    if dry_run || yes {
        return ask(client, voice, request(dry_run)).await;
    }
    let planned = answer(client, &request(true)).await?;
    if planned.failure.is_some() {
        return Ok(conclude_aloud(voice, planned));
    }
    if !planned.restarts {
        return ask(client, voice, request(false)).await;
    }
    match asked(voice, &planned, "Ollama is restarted for it. Go on?") {
        Ok(()) => ask(client, voice, request(false)).await,
        Err(ended) => ended,
    }
}

async fn gateway_status(client: &Client, voice: Voice) -> Result<ExitCode, Failure> {
    let snapshot = client.snapshot().await?;
    let Some(gateway) = &snapshot.gateway else {
        return Err(Failure::new("still-looking", "the gateway was not looked for yet", "ask again in a moment"));
    };
    if voice.json {
        print_json(gateway);
    } else {
        print(&text::simulated_line(snapshot.simulated.as_deref(), voice.paint));
        print(&crate::gateway::page(gateway, voice.paint));
    }
    Ok(ExitCode::SUCCESS)
}

fn conclude(voice: Voice, ending: &Ending) -> ExitCode {
    if !voice.json {
        print(&text::ending(ending, voice.paint));
        if let Some(failure) = &ending.failure {
            aside(&text::failure(failure, Paint::Plain));
        }
    }
    match ending.outcome {
        Outcome::Proven | Outcome::Changed | Outcome::Planned => ExitCode::SUCCESS,
        Outcome::Drift | Outcome::Failed => ExitCode::from(FAILED),
        Outcome::Unknown => ExitCode::from(UNKNOWN),
    }
}

async fn runners(client: &Client, voice: Voice) -> Result<ExitCode, Failure> {
    let snapshot = client.snapshot().await?;
    if voice.json {
        print_json(&snapshot.watched);
    } else {
        print(&text::simulated_line(snapshot.simulated.as_deref(), voice.paint));
        print(&watched::page(snapshot.watched.as_ref(), voice.paint));
    }
    Ok(ExitCode::SUCCESS)
}

async fn queue(place: &Place, voice: Voice, watch: bool, verb: Option<QueueVerb>) -> Result<ExitCode, Failure> {
    let gateway = Gateway::new(stablehand_gateway::socket(place.machine()));
    let asked = match verb {
        Some(QueueVerb::Drop { id }) => gateway.drop_request(id).await,
        Some(QueueVerb::Move { id, lane }) => gateway.move_request(id, &lane).await,
        Some(QueueVerb::Pause) => gateway.pause().await,
        Some(QueueVerb::Resume) => gateway.resume().await,
        None if watch => return watch_queue(&gateway, voice).await,
        None => {
            show_queue(&gateway.queue().await.map_err(gateway::failure)?, voice, Paint::Plain);
            return Ok(ExitCode::SUCCESS);
        }
    };
    let done = asked.map_err(gateway::failure)?;
    if voice.json {
        print_json(&done);
    } else {
        print(&format!("{}\n", done.words));
    }
    Ok(ExitCode::SUCCESS)
}

async fn watch_queue(gateway: &Gateway, voice: Voice) -> Result<ExitCode, Failure> {
    let mut changes = gateway.changes().await.map_err(gateway::failure)?;
    loop {
        tokio::select! {
            changed = changes.next() => match changed.map_err(gateway::failure)? {
                Some(view) => show_queue(&view, voice, voice.paint),
                None => return Err(gateway::failure(ClientError::Broken("the gateway has ended".to_owned()))),
            },
            () = told_to_end() => return Ok(ExitCode::SUCCESS),
        }
    }
}

/// On a terminal the page is drawn over the last one, when there was one.
fn show_queue(view: &QueueView, voice: Voice, over: Paint) {
    if voice.json {
        print_json(view);
        return;
    }
    let clear = match over {
        Paint::Coloured => "\x1b[H\x1b[2J",
        Paint::Plain => "",
    };
    print(&format!("{clear}{}", crate::queue::page(view, voice.paint)));
}

async fn why(client: &Client, voice: Voice) -> Result<ExitCode, Failure> {
    let snapshot = client.snapshot().await?;
    let text = watched::why(&snapshot);
    if voice.json {
        print_json(&serde_json::json!({ "why": text, "watched": snapshot.watched }));
    } else {
        print(&text::simulated_line(snapshot.simulated.as_deref(), voice.paint));
        print(&text);
    }
    Ok(ExitCode::SUCCESS)
}

fn history(place: &Place, voice: Voice, since: &str, csv: bool) -> Result<ExitCode, Failure> {
    let span = span(since).ok_or_else(|| {
        Failure::new("usage", format!("«{since}» is no span"), "for example: stablehand history --since 2h")
    })?;
    let form = match (voice.json, csv) {
        (true, _) => HistoryForm::Json,
        (false, true) => HistoryForm::Csv,
        (false, false) => HistoryForm::Events,
    };
    print(&stablehand_daemon::history_text(place, span, form)?);
    Ok(ExitCode::SUCCESS)
}

/// `30m`, `2h`, `7d`, `90s`.
fn span(text: &str) -> Option<Duration> {
    let (number, unit) = text.split_at(text.find(|symbol: char| !symbol.is_ascii_digit())?);
    let seconds = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3600,
        "d" => 86_400,
        _ => return None,
    };
    Some(Duration::from_secs(number.parse::<u64>().ok()?.checked_mul(seconds)?))
}

/// The first step of an uninstall.
async fn let_gateway_leave(client: &Client) -> Result<(), Failure> {
    let off = Request::Gateway { mode: "off".to_owned(), port: None, dry_run: false };
    let left = answer(client, &off).await.and_then(|ending| ending.failure.map_or(Ok(()), Err));
    left.map_err(|failure| installation::still_taken_over(&failure))
}

async fn examine(place: &Place, client: &Client, voice: Voice, mend: bool) -> Result<ExitCode, Failure> {
    let mut findings = vec![match client.snapshot().await {
        Ok(snapshot) => Finding::of_daemon(&snapshot),
        Err(error) => Finding::without_daemon(&error.into()),
    }];
    findings.extend(doctor::examine(place).await);
    if mend && let Some(request) = doctor::mending(place, &findings) {
        let ending = answer(client, &request).await?;
        if let Some(failure) = ending.failure {
            return Err(failure);
        }
        findings.truncate(1);
        findings.extend(doctor::examine(place).await);
    }
    if voice.json {
        print_json(&findings);
    } else {
        for finding in &findings {
            let mark = match finding.severity {
                Severity::Good => voice.paint.good("ok"),
                Severity::Note => voice.paint.doubtful("note"),
                Severity::Bad => voice.paint.bad("bad"),
                Severity::Unknown => voice.paint.doubtful("unknown"),
            };
            print(&format!("{mark:<8} {}\n", finding.message));
            if !finding.hint.is_empty() {
                print(&format!("         → {}\n", finding.hint));
            }
        }
    }
    let any = |severity| findings.iter().any(|finding| finding.severity == severity);
    Ok(ExitCode::from(if any(Severity::Bad) {
        FAILED
    } else if any(Severity::Unknown) {
        UNKNOWN
    } else {
        0
    }))
}

/// Its exit code tells three things apart, so a look that failed is no "would block".
async fn quarantine(place: &Place, voice: Voice, wish: &Quarantine) -> ExitCode {
    let path = wish.path.as_deref();
    let done = if wish.clear {
        quarantine::clear(place, path, wish.dry_run).await
    } else {
        quarantine::check(place, path).await
    };
    match done {
        Ok(report) => {
            if voice.json {
                print_json(&report);
            } else {
                print(&crate::quarantine::page(&report, path, voice.paint));
            }
            match report.state {
                State::NothingBlocks => ExitCode::SUCCESS,
                // A plan was asked for, and is there.
                State::WouldBlock | State::Unknown if wish.dry_run => ExitCode::SUCCESS,
                State::WouldBlock => ExitCode::from(FAILED),
                State::Unknown => ExitCode::from(UNKNOWN),
            }
        }
        Err(failure) => {
            say_failure(voice, &failure);
            ExitCode::from(if quarantine::is_untold(&failure) { UNKNOWN } else { FAILED })
        }
    }
}

fn changes(place: &Place, voice: Voice, done: Result<Report, Failure>, dry_run: bool) -> Result<ExitCode, Failure> {
    let Report { steps, notes, owner } = done?;
    let outcome = if dry_run { Outcome::Planned } else { Outcome::Changed };
    let mut ending = Ending { steps, notes, owner, simulated: place.simulated(), ..Ending::new(outcome) };
    if ending.steps.is_empty() {
        ending.notes.push("nothing to do".to_owned());
    }
    if voice.json {
        print_json(&Event::Result(Box::new(ending)));
    } else {
        print(&text::ending(&ending, voice.paint));
    }
    Ok(ExitCode::SUCCESS)
}

async fn logs(place: &Place, voice: Voice, daemon: bool, lines: usize, follow: bool) -> Result<ExitCode, Failure> {
    let source = if daemon { server_log::of_daemon(place) } else { server_log::of_server(place).await? };
    let json = voice.json;
    let mut show = move |line: &str| {
        if json {
            print_json(&serde_json::json!({ "line": line }));
        } else {
            print(&format!("{line}\n"));
        }
    };
    tokio::select! {
        shown = server_log::show(place, &source, lines, follow, &mut show) => shown.map(|()| ExitCode::SUCCESS),
        () = told_to_end() => Ok(ExitCode::SUCCESS),
    }
}

/// Reads the order from standard input, says what came of it as JSON.
async fn deed(place: &Place, name: &str) -> Result<ExitCode, Failure> {
    let mut order = Vec::new();
    if let Err(error) = std::io::stdin().read_to_end(&mut order) {
        return Err(Failure::new("usage", format!("the order could not be read: {error}"), ""));
    }
    print(&stablehand_daemon::deed_as_root(place, name, &order).await?);
    Ok(ExitCode::SUCCESS)
}

async fn publish(place: &Place, voice: Voice) -> Result<ExitCode, Failure> {
    let note = installation::publish(place).await?;
    if voice.json {
        print_json(&Event::Result(Box::new(Ending { notes: vec![note], ..Ending::new(Outcome::Changed) })));
    } else {
        print(&format!("{note}\n"));
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints a failure where the voice wants it.
fn say_failure(voice: Voice, failure: &Failure) {
    if voice.json {
        print_json(&Event::Result(Box::new(Ending::failed(failure.clone()))));
    } else {
        aside(&text::failure(failure, Paint::Plain));
    }
}

fn print_json<T: Serialize>(value: &T) {
    if let Ok(text) = serde_json::to_string(value) {
        print(&format!("{text}\n"));
    }
}

/// Writes to stdout; a reader that has left (`| head`) ends the program quietly.
fn print(text: &str) {
    let mut stdout = std::io::stdout().lock();
    if let Err(error) = stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        let left = error.kind() == std::io::ErrorKind::BrokenPipe;
        std::process::exit(if left { 0 } else { i32::from(FAILED) });
    }
}

/// Writes talk to stderr. Whoever closed it wants none; the verb goes on.
pub fn aside(text: &str) {
    let _ = std::io::stderr().write_all(text.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_numbers_with_a_unit() {
        assert_eq!(span("90s"), Some(Duration::from_secs(90)));
        assert_eq!(span("2h"), Some(Duration::from_secs(7200)));
        assert_eq!(span("7d"), Some(Duration::from_secs(604_800)));
        for wrong in ["", "h", "2", "2w", "-1h", "99999999999999999999h"] {
            assert_eq!(span(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn both_ways_of_writing_an_assignment_are_understood() {
        let one = |texts: &[&str]| assigned(&texts.iter().map(ToString::to_string).collect::<Vec<_>>());
        assert_eq!(
            one(&["A=1", "B=x=y"]).unwrap(),
            BTreeMap::from([("A".into(), "1".into()), ("B".into(), "x=y".into())])
        );
        assert_eq!(one(&["A", "1"]).unwrap(), BTreeMap::from([("A".into(), "1".into())]));
        assert_eq!(one(&["A"]).unwrap_err().code, "usage");
        assert_eq!(one(&["A", "B", "C"]).unwrap_err().code, "usage");
    }
}
