//! The popover's window in a child of this process, which talks over its standard input and output: nobody else can
//! reach those, and their end tells each side that the other is gone.

use super::lines::{Order, Word, line};
use super::outbox::Outbox;
use super::page_process::VERB;
use crate::popover::Event;
use crate::shell::state::Tray;
use crate::shell::{answer, on_main, tell as tell_person, window};
use stablehand_protocol::face::View;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tauri::{App, AppHandle, Builder, Context, Manager, RunEvent, Wry};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

/// This very program, also when an upgrade has put another one in its place.
const OWN_PROGRAM: &str = "/proc/self/exe";
/// Whether GTK may use OpenGL; it is read once.
const GL: &str = "GDK_GL";
/// How long it may take to end.
const PATIENCE: Duration = Duration::from_secs(3);
/// No question of the page is longer.
const LINE_LIMIT_BYTES: u64 = 1 << 20;

/// The popover that there is.
#[derive(Default)]
struct Carried(Mutex<Option<Arc<Outbox>>>);

impl Carried {
    fn with<T>(app: &AppHandle, change: impl FnOnce(&mut Option<Arc<Outbox>>) -> T) -> T {
        change(&mut app.state::<Self>().0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The program, which has no window of its own. GTK would look for OpenGL when it begins, and the drivers for that
/// take more memory than all the rest; whatever is started later, the popover too, is to find its environment as it was.
pub fn build(builder: Builder<Wry>, context: Context<Wry>) -> tauri::Result<App> {
    let spared = std::env::var_os(GL).is_none() && gio::glib::setenv(GL, "disable", false).is_ok();
    let app = builder.manage(Carried::default()).build(context);
    if spared {
        gio::glib::unsetenv(GL);
    }
    app
}

/// Starts its process, which shows it once there is something to see. On the main thread.
///
/// # Errors
/// Why that does not work.
pub fn create(app: &AppHandle) -> Result<(), String> {
    let runtime = tauri::async_runtime::handle();
    let _entered = runtime.inner().enter();
    let child = Command::new(OWN_PROGRAM)
        .arg0("stablehand-tray")
        .arg(VERB)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .map_err(|error| error.to_string())?;
    let outbox = Arc::new(Outbox::default());
    outbox.put(Order::View { view: Box::new(app.state::<Tray>().view()) });
    Carried::with(app, |carried| *carried = Some(outbox.clone()));
    tauri::async_runtime::spawn(attend(app.clone(), child, outbox));
    Ok(())
}

/// Shows it again; `false` when it is gone. On the main thread.
pub fn show(app: &AppHandle) -> bool {
    put(app, Order::Show)
}

/// Hides it.
pub fn hide(app: &AppHandle) {
    put(app, Order::Hide);
}

/// Ends its process.
pub fn destroy(app: &AppHandle) {
    if let Some(outbox) = Carried::with(app, Option::take) {
        outbox.close();
    }
}

/// Tells its page what there is to show.
pub fn tell(app: &AppHandle, view: &View) {
    put(app, Order::View { view: Box::new(view.clone()) });
}

/// Nothing: its window is not of this process.
pub fn on_event(_: &AppHandle, _: &RunEvent) {}

fn put(app: &AppHandle, order: Order) -> bool {
    Carried::with(app, |carried| carried.as_ref().map(|outbox| outbox.put(order)).is_some())
}

/// Talks with it until one of the two ends, and sees it end.
async fn attend(app: AppHandle, mut child: Child, outbox: Arc<Outbox>) {
    let said = match (child.stdin.take(), child.stdout.take()) {
        (Some(input), Some(output)) => tokio::select! {
            said = write(input, &outbox) => said,
            said = read(&app, output, &outbox) => said,
        },
        (None, _) | (_, None) => Ok(()),
    };
    // Its input is closed now, which is its end.
    let ended = match tokio::time::timeout(PATIENCE, child.wait()).await {
        Ok(ended) => ended,
        Err(_) => {
            let _ = child.start_kill();
            child.wait().await
        }
    };
    let unasked = Carried::with(&app, |carried| carried.take_if(|it| Arc::ptr_eq(it, &outbox)).is_some());
    if unasked {
        let why = why(said.err(), ended);
        let gone = app.clone();
        on_main(&app, move || lost(&gone, &why));
    }
}

/// It ended by itself.
fn lost(app: &AppHandle, why: &str) {
    let tray = app.state::<Tray>();
    let was_shown = tray.is_popover_shown();
    window::step(app, Event::Gone);
    // A hidden one is made anew when it is wanted, and nobody has missed it.
    if was_shown {
        tell_person(app, "window-lost", &[("why", why)]);
    }
}

fn why(said: Option<io::Error>, ended: io::Result<ExitStatus>) -> String {
    match (ended, said) {
        (Ok(status), Some(error)) if status.success() => error.to_string(),
        (Ok(status), Some(_) | None) => match status.signal() {
            Some(signal) => format!("its process was ended by signal {signal}"),
            None => format!("its process ended with {status}"),
        },
        (Err(error), Some(_) | None) => error.to_string(),
    }
}

async fn write(mut input: ChildStdin, outbox: &Outbox) -> io::Result<()> {
    while let Some(order) = outbox.next().await {
        input.write_all(&line(&order)).await?;
    }
    Ok(())
}

async fn read(app: &AppHandle, output: ChildStdout, outbox: &Arc<Outbox>) -> io::Result<()> {
    let mut output = BufReader::new(output);
    let mut text = Vec::new();
    loop {
        text.clear();
        let bytes = (&mut output).take(LINE_LIMIT_BYTES).read_until(b'\n', &mut text).await?;
        if bytes == 0 {
            return Ok(());
        }
        let word = serde_json::from_slice(&text).map_err(io::Error::other)?;
        match word {
            Word::Ask { number, ask } => {
                let (app, outbox) = (app.clone(), outbox.clone());
                tauri::async_runtime::spawn(async move {
                    let answer = Box::new(answer::answer(&app, ask).await);
                    outbox.put(Order::Answer { number, answer });
                });
            }
            Word::Blurred => happened(app, outbox, Event::Blurred),
            Word::Closed => happened(app, outbox, Event::Closed),
        }
    }
}

/// What happens to one that is being destroyed is nothing to the next one.
fn happened(app: &AppHandle, outbox: &Arc<Outbox>, event: Event) {
    let (shown, outbox) = (app.clone(), outbox.clone());
    on_main(app, move || {
        if Carried::with(&shown, |carried| carried.as_ref().is_some_and(|it| Arc::ptr_eq(it, &outbox))) {
            window::step(&shown, event);
        }
    });
}
