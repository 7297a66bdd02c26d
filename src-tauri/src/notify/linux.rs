//! Through the session's notification service (freedesktop.org, Desktop Notifications 1.2).

use super::{Click, Refusal};
use crate::face::notice::Notice;
use gio::glib::{Variant, VariantTy};
use gio::prelude::ToVariant;
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

const SERVICE: &str = "org.freedesktop.Notifications";
const PATH: &str = "/org/freedesktop/Notifications";
const TIMEOUT_MS: i32 = 5000;
/// The action of a click on the notification itself.
const DEFAULT_ACTION: &str = "default";
/// The action of its button.
const DEED_ACTION: &str = "deed";

/// What is on the screen, by the service's numbers: the kind, and what its button does.
static POSTED: Mutex<Option<HashMap<u32, Click>>> = Mutex::new(None);

/// Nothing needs to be allowed here.
///
/// # Errors
/// Never.
pub async fn allow() -> Result<(), Refusal> {
    Ok(())
}

/// Calls back when a notification or its button is clicked. On the main thread.
pub fn on_click(clicked: impl Fn(Click) + Send + Sync + 'static) {
    gio::bus_get(gio::BusType::Session, gio::Cancellable::NONE, move |bus| {
        let Ok(bus) = bus else { return };
        let _ = bus.signal_subscribe(
            Some(SERVICE),
            Some(SERVICE),
            Some("ActionInvoked"),
            Some(PATH),
            None,
            gio::DBusSignalFlags::NONE,
            move |_, _, _, _, _, parameters| {
                let Some((number, action)) = parameters.get::<(u32, String)>() else { return };
                if let Some(click) = posted(|clicks| clicks.remove(&number)) {
                    let deed = click.deed.filter(|_| action == DEED_ACTION);
                    clicked(Click { deed, ..click });
                }
            },
        );
    });
}

/// Posts it. Calls back when that does not work.
pub fn post(kind: &str, notice: &Notice, refused: impl FnOnce(Refusal) + Send + 'static) {
    let (kind, notice) = (kind.to_owned(), notice.clone());
    // A service that does not answer holds up nobody but this thread.
    let spawned = std::thread::Builder::new().name("notification".to_owned()).spawn(move || match call(&notice) {
        Ok(number) => {
            let deed = notice.deed.map(|deed| deed.ask);
            posted(|clicks| clicks.insert(number, Click { kind, deed }));
        }
        Err(why) => refused(Refusal::Refused(why)),
    });
    if let Err(error) = spawned {
        crate::aside(&format!("stablehand-tray: no notification: {error}\n"));
    }
}

fn call(notice: &Notice) -> Result<u32, String> {
    let bus = gio::bus_get_sync(gio::BusType::Session, gio::Cancellable::NONE).map_err(|error| error.to_string())?;
    let hints: HashMap<String, Variant> =
        HashMap::from([("desktop-entry".to_owned(), "dev.stablehand.tray".to_variant())]);
    let mut actions = vec![DEFAULT_ACTION.to_owned(), "Stablehand".to_owned()];
    if let Some(deed) = &notice.deed {
        actions.extend([DEED_ACTION.to_owned(), deed.text.clone()]);
    }
    let parameters =
        ("Stablehand", 0_u32, "", notice.summary.as_str(), notice.body.as_str(), actions, hints, -1_i32).to_variant();
    let answer = bus
        .call_sync(
            Some(SERVICE),
            PATH,
            SERVICE,
            "Notify",
            Some(&parameters),
            VariantTy::new("(u)").ok(),
            gio::DBusCallFlags::NONE,
            TIMEOUT_MS,
            gio::Cancellable::NONE,
        )
        .map_err(|error| error.to_string())?;
    answer.get::<(u32,)>().map(|(number,)| number).ok_or_else(|| "the service answers strangely".to_owned())
}

fn posted<T>(change: impl FnOnce(&mut HashMap<u32, Click>) -> T) -> T {
    change(POSTED.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_default())
}
