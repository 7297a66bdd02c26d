//! The child that carries the popover for its tray. It keeps nothing, and ends with the tray.

use super::lines::{Order, Word, line};
use crate::placement::Area;
use crate::popover::Event;
use crate::shell::on_main;
use crate::shell::page::{self, Host};
use rustix::io::fcntl_dupfd_cloexec;
use stablehand_protocol::Failure;
use stablehand_protocol::face::{Answer, Ask};
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader, IsTerminal, Write};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tauri::{AppHandle, Builder, Wry};
use tokio::sync::oneshot;

/// The argument that it is started with.
pub const VERB: &str = "popover";
/// As the system lists it; 15 bytes are the limit.
const NAME: &std::ffi::CStr = c"stablehand-page";
/// Above the three that every process has.
const FIRST_FREE: i32 = 3;

/// Shows the popover until the tray wants it no more.
///
/// # Errors
/// When there is no tray at the other end, or no window system.
pub fn run() -> Result<(), String> {
    if io::stdin().is_terminal() {
        return Err("the menu starts this by itself; `stablehand-tray --open` opens the window".to_owned());
    }
    let _ = rustix::thread::set_name(NAME);
    let (input, output) = take_over().map_err(|error| error.to_string())?;
    let mut orders = BufReader::new(input)
        .split(b'\n')
        .map(|text| serde_json::from_slice::<Order>(&text?).map_err(io::Error::other));
    let Some(Ok(Order::View { view })) = orders.next() else { return Err("no menu is at the other end".to_owned()) };
    let tray = Arc::new(Line { output: Mutex::new(output), asked: Mutex::default() });
    let answers = tray.clone();
    let app = page::prepare(Builder::<Wry>::default(), Other(tray))
        .setup(move |app| {
            page::create(app.handle(), &view)?;
            page::brief_engine(app.handle())?;
            let app = app.handle().clone();
            std::thread::Builder::new().name("orders".to_owned()).spawn(move || obey(&app, orders, &answers))?;
            Ok(())
        })
        .build(page::context())
        .map_err(|error| error.to_string())?;
    app.run(|app, event| page::on_event(app, &event));
    Ok(())
}

/// The two ways to the tray, out of reach of the web engine's processes and of whatever prints something.
fn take_over() -> io::Result<(File, File)> {
    let input = File::from(fcntl_dupfd_cloexec(io::stdin(), FIRST_FREE)?);
    let output = File::from(fcntl_dupfd_cloexec(io::stdout(), FIRST_FREE)?);
    rustix::stdio::dup2_stdin(File::open("/dev/null")?)?;
    rustix::stdio::dup2_stdout(io::stderr())?;
    Ok((input, output))
}

/// What the tray says, until it says no more.
fn obey(app: &AppHandle, orders: impl Iterator<Item = io::Result<Order>>, tray: &Line) {
    for order in orders.map_while(Result::ok) {
        let shown = app.clone();
        match order {
            Order::Show => on_main(app, move || {
                page::show(&shown);
            }),
            Order::Hide => on_main(app, move || page::hide(&shown)),
            Order::View { view } => page::tell(app, &view),
            Order::Answer { number, answer } => tray.answered(number, *answer),
        }
    }
    app.exit(0);
}

/// The way to the tray.
struct Line {
    output: Mutex<File>,
    asked: Mutex<Asked>,
}

#[derive(Default)]
struct Asked {
    last: u64,
    waiting: HashMap<u64, oneshot::Sender<Answer>>,
}

impl Line {
    /// A tray that does not hear has ended, and so do we.
    fn say(&self, word: &Word) {
        let mut output = self.output.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = output.write_all(&line(word));
    }

    fn ask(&self, ask: Ask) -> oneshot::Receiver<Answer> {
        let (answer, answered) = oneshot::channel();
        let mut asked = self.asked();
        asked.last += 1;
        let number = asked.last;
        asked.waiting.insert(number, answer);
        drop(asked);
        self.say(&Word::Ask { number, ask });
        answered
    }

    fn answered(&self, number: u64, answer: Answer) {
        if let Some(waiting) = self.asked().waiting.remove(&number) {
            // A page that was left does not wait any more.
            let _ = waiting.send(answer);
        }
    }

    fn asked(&self) -> MutexGuard<'_, Asked> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The tray, in the other process.
struct Other(Arc<Line>);

impl Host for Other {
    fn ask(&self, _: AppHandle, ask: Ask) -> Pin<Box<dyn Future<Output = Answer> + Send>> {
        let answered = self.0.ask(ask);
        Box::pin(async move {
            answered.await.unwrap_or_else(|_| Answer::Failed {
                failure: Failure::new("tray-unreachable", "the menu has ended", "start it again: stablehand-tray"),
            })
        })
    }

    fn happened(&self, _: &AppHandle, event: Event) {
        if let Some(word) = Word::of(event) {
            self.0.say(&word);
        }
    }

    fn icon(&self, _: &AppHandle) -> Option<Area> {
        // Linux tells nobody where an icon is.
        None
    }
}
