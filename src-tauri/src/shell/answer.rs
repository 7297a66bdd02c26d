//! What the page and the menu ask for.

use super::state::Tray;
use super::{changed, come_for, on_main, window};
use crate::face::menu::Act;
use crate::{at_login, choices, command_line, notify, popover, service};
use stablehand_protocol::client::gateway;
use stablehand_protocol::face::{Answer, Ask, Choices, QueueRequest, SystemSettings};
use stablehand_protocol::{Ending, Failure, Request};
use tauri::{AppHandle, Manager};

/// Does it.
pub async fn answer(app: &AppHandle, ask: Ask) -> Answer {
    let tray = app.state::<Tray>();
    let done = match ask {
        Ask::View => Ok(Answer::View { view: Box::new(tray.view()) }),
        Ask::Request { request } => tray
            .client
            .ask(&request)
            .await
            .map(|ending| Answer::Ended { ending: Box::new(ending) })
            .map_err(Failure::from),
        Ask::Queue { request } => queue(&tray, request).await,
        Ask::History { since_s, points } => {
            tray.client.past(since_s, points).await.map(|past| Answer::Past { past }).map_err(Failure::from)
        }
        Ask::Install { dry_run } => install(app, dry_run).await,
        Ask::Uninstall { dry_run } => uninstall(app, dry_run).await,
        Ask::StartDaemon => command_service(app, &service::start(&tray.place)).await,
        Ask::StopDaemon => stop_daemon(app).await,
        Ask::Choose { choices } => choose(app, choices),
        Ask::AllowNotifications => allow_notifications(app).await,
        Ask::Dismiss => {
            tray.dismiss();
            changed(app);
            Ok(Answer::Done)
        }
        Ask::OpenConfig => open_config(app).await,
        Ask::OpenSystemSettings { page } => open_system_settings(app, page).await,
        Ask::Hide => {
            let hidden = app.clone();
            on_main(app, move || window::step(&hidden, popover::Event::Closed));
            Ok(Answer::Done)
        }
    };
    done.unwrap_or_else(|failure| Answer::Failed { failure })
}

async fn queue(tray: &Tray, request: QueueRequest) -> Result<Answer, Failure> {
    let gateway = &tray.gateway;
    let done = match request {
        QueueRequest::Pause => gateway.pause().await,
        QueueRequest::Resume => gateway.resume().await,
        QueueRequest::Drop { id } => gateway.drop_request(id).await,
        QueueRequest::Move { id, lane } => gateway.move_request(id, &lane).await,
    };
    tray.poke_gateway.notify_one();
    done.map(|_words| Answer::Done).map_err(gateway::failure)
}

/// Does what a menu item says. Its failures are kept for the page; the icon and the menu tell that there is one.
pub async fn act(app: &AppHandle, act: Act) {
    match act {
        Act::Open(matter) => come_for(app, matter),
        Act::Quit => app.exit(0),
        Act::Ask(asks) => {
            for ask in asks {
                if let Some(failure) = failure_of(answer(app, ask).await) {
                    app.state::<Tray>().fail(failure);
                    break;
                }
            }
            changed(app);
        }
    }
}

fn failure_of(answer: Answer) -> Option<Failure> {
    match answer {
        Answer::Failed { failure } => Some(failure),
        Answer::Ended { ending } => ending.failure,
        Answer::Done | Answer::View { .. } | Answer::Past { .. } | Answer::Planned { .. } => None,
    }
}

async fn install(app: &AppHandle, dry_run: bool) -> Result<Answer, Failure> {
    let tray = app.state::<Tray>();
    let ending = command_line::stablehand("install", dry_run, &tray.words()).await?;
    tray.hope();
    Ok(told(ending, dry_run))
}

/// What starts the face at login goes with the rest.
async fn uninstall(app: &AppHandle, dry_run: bool) -> Result<Answer, Failure> {
    let tray = app.state::<Tray>();
    let ending = command_line::stablehand("uninstall", dry_run, &tray.words()).await?;
    if !dry_run {
        tray.choose(Choices { at_login: false, ..tray.choices() });
        tray.hope();
        changed(app);
    }
    Ok(told(ending, dry_run))
}

fn told(ending: Ending, dry_run: bool) -> Answer {
    if dry_run { Answer::Planned { steps: ending.steps, owner: ending.owner } } else { Answer::Done }
}

/// Without a daemon nobody would bring Ollama back to its own address, so the gateway leaves its place first.
async fn stop_daemon(app: &AppHandle) -> Result<Answer, Failure> {
    let tray = app.state::<Tray>();
    let gateway = tray.client.snapshot().await.ok().and_then(|snapshot| snapshot.gateway);
    if gateway.is_some_and(|gateway| gateway.mode == "takeover") {
        let off = Request::Gateway { mode: "off".to_owned(), port: None, dry_run: false };
        if let Some(failure) = tray.client.ask(&off).await?.failure {
            return Err(failure);
        }
    }
    let answer = command_service(app, &service::stop(&tray.place)).await?;
    if let Some(ending) = service::still_ending(&tray.place) {
        let gone = command_line::until_fails(&ending).await;
        gone.map_err(|why| tray.words().failure("service-failed", &[("why", &why)]))?;
    }
    Ok(answer)
}

async fn command_service(app: &AppHandle, invocations: &[service::Invocation]) -> Result<Answer, Failure> {
    let tray = app.state::<Tray>();
    let done = command_line::first_of(invocations).await;
    tray.hope();
    done.map(|()| Answer::Done).map_err(|why| tray.words().failure("service-failed", &[("why", &why)]))
}

fn choose(app: &AppHandle, wanted: Choices) -> Result<Answer, Failure> {
    let tray = app.state::<Tray>();
    let words = tray.words();
    let before = tray.choices();
    if wanted.at_login != before.at_login {
        let path = &tray.place.at_login_file;
        std::env::current_exe().and_then(|program| at_login::set(&tray.place, &program, wanted.at_login)).map_err(
            |error| {
                let values = [("path", &*path.to_string_lossy()), ("why", &error.to_string())];
                words.failure("at-login-not-changed", &values)
            },
        )?;
    }
    let kept = choices::write(&tray.place, &wanted);
    // What was written for the login holds in any case.
    let taken = if kept.is_ok() { wanted } else { Choices { at_login: wanted.at_login, ..before } };
    tray.choose(taken);
    changed(app);
    kept.map(|()| Answer::Done).map_err(|error| {
        let values = [("path", &*tray.place.choices_file.to_string_lossy()), ("why", &error.to_string())];
        words.failure("choices-not-kept", &values)
    })
}

/// A refusal is shown until it is over, wherever the question was asked.
async fn allow_notifications(app: &AppHandle) -> Result<Answer, Failure> {
    let tray = app.state::<Tray>();
    let outcome = notify::allow().await.map_err(|why| why.failure(&tray.words()));
    match &outcome {
        Ok(()) => tray.mended(notify::REFUSED),
        Err(failure) => tray.fail(failure.clone()),
    }
    changed(app);
    outcome.map(|()| Answer::Done)
}

async fn open_config(app: &AppHandle) -> Result<Answer, Failure> {
    let tray = app.state::<Tray>();
    let path = tray.config_path().unwrap_or_else(|| tray.place.config_file.clone());
    let opened = command_line::first_of(&[command_line::editor(&path)]).await;
    opened.map(|()| Answer::Done).map_err(|why| {
        let values = [("path", &*path.to_string_lossy()), ("why", &why)];
        tray.words().failure("not-opened", &values)
    })
}

async fn open_system_settings(app: &AppHandle, page: SystemSettings) -> Result<Answer, Failure> {
    let tray = app.state::<Tray>();
    let words = tray.words();
    let failed = |why: &str| words.failure("settings-not-opened", &[("why", why)]);
    let invocation = command_line::system_settings(&tray.place, page)
        .ok_or_else(|| failed(&words.say("notice.settings-not-opened.none")))?;
    let opened = command_line::first_of(&[invocation]).await;
    opened.map(|()| Answer::Done).map_err(|why| failed(&why))
}
