//! "Expose to network", a setting of Ollama.app: it starts its server on every address, whatever the app's own start was
//! given (`app/server/server.go`).

use rusqlite::{Connection, OpenFlags};
use stablehand_engine::Known;
use stablehand_platform::machine::{Machine, Os};
use std::time::Duration;

/// How long the app may hold its database.
const BUSY: Duration = Duration::from_millis(500);

/// Whether it is on. An app that has no database yet was never told to.
pub fn is_on(machine: &Machine) -> Known<bool> {
    if machine.os() != Os::MacOs {
        return Known::Is(false);
    }
    let path = machine.home().join("Library/Application Support/Ollama/db.sqlite");
    if !path.exists() {
        return Known::Is(false);
    }
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let read = Connection::open_with_flags(&path, flags).and_then(|connection| {
        connection.busy_timeout(BUSY)?;
        connection.query_row("SELECT expose FROM settings LIMIT 1", [], |row| row.get::<_, bool>(0))
    });
    match read {
        Ok(on) => Known::Is(on),
        Err(rusqlite::Error::QueryReturnedNoRows) => Known::Is(false),
        Err(error) => Known::unknown(format!("{} cannot be read: {error}", path.display())),
    }
}
