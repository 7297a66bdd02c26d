//! The app's own database: its settings, whose values beat the environment when
//! the app starts the server, and its chats.

use std::path::PathBuf;

use anyhow::{Context, Result};
use rusqlite::Connection;

use crate::releases::flaw::Flaw;
use crate::world::{World, generation, moments};

/// A form that no released app knows.
const FORM_TO_COME: i64 = 99;

/// The database of the app.
pub fn file(world: &World) -> PathBuf {
    world.home().join("Library/Application Support/Ollama/db.sqlite")
}

/// The form that an app gives its database (`app/store/database.go`: 16 from 0.20 to 0.32, 18 in 0.33).
pub fn form(version: &str, flaw: Option<Flaw>) -> i64 {
    match generation(version) {
        _ if flaw == Some(Flaw::NewerDatabase) => FORM_TO_COME,
        newer if newer >= (0, 33) => 18,
        _ => 16,
    }
}

/// Opens the database as an app does when it starts: what is missing is made, an older form becomes the app's own, a
/// newer one stays.
pub fn prepare(world: &World, version: &str, flaw: Option<Flaw>) -> Result<()> {
    let folder = file(world).with_file_name("");
    std::fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
    bring_forward(&open(world)?, form(version, flaw))
}

fn bring_forward(connection: &Connection, own: i64) -> Result<()> {
    connection.execute_batch(TABLES)?;
    let now: i64 = connection.query_row("SELECT schema_version FROM settings WHERE id = 1", [], |row| row.get(0))?;
    let added = [
        (17, "ALTER TABLE settings ADD COLUMN onboarding_version INTEGER NOT NULL DEFAULT 0"),
        (18, "ALTER TABLE settings ADD COLUMN claude_desktop_used BOOLEAN NOT NULL DEFAULT 0"),
        (FORM_TO_COME, "ALTER TABLE chats RENAME COLUMN title TO heading"),
    ];
    for (form, change) in added.into_iter().filter(|(form, _)| now < *form && *form <= own) {
        connection.execute(change, [])?;
        connection.execute("UPDATE settings SET schema_version = ?1", [form])?;
    }
    Ok(())
}

/// Makes the database of somebody who has used the app for a while.
pub fn create(world: &World) -> Result<()> {
    let folder = file(world).with_file_name("");
    std::fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
    let connection = open(world)?;
    // A world that is cut off while it is made is made anew.
    connection.pragma_update(None, "synchronous", "OFF")?;
    bring_forward(&connection, form(&world.marker.ollama, None))?;
    connection.execute_batch("UPDATE settings SET has_completed_first_run = 1, config_migrated = 1")?;
    insert_chat(world, &connection, "chat-1", "A name for a grey horse", "What would you call a grey horse?")
}

/// Writes a chat, as a person does in the app's window.
pub fn write_chat(world: &World, id: &str, title: &str, question: &str) -> Result<()> {
    insert_chat(world, &open(world)?, id, title, question)
}

fn insert_chat(world: &World, connection: &Connection, id: &str, title: &str, question: &str) -> Result<()> {
    let at = moments::rfc3339_utc(world.clock.wall_ms());
    let column = if connection.prepare("SELECT heading FROM chats").is_ok() { "heading" } else { "title" };
    let transaction = connection.unchecked_transaction()?;
    transaction
        .execute(&format!("INSERT INTO chats (id, {column}, created_at) VALUES (?1, ?2, ?3)"), [id, title, &at])?;
    for (role, content) in [("user", question), ("assistant", "Pewter.")] {
        transaction.execute(
            "INSERT INTO messages (chat_id, role, content, model_name, created_at, updated_at) VALUES (?1, ?2, ?3, 'smollm:135m', ?4, ?4)",
            [id, role, content, &at],
        )?;
    }
    transaction.commit()?;
    Ok(())
}

/// Changes one setting, as the app's settings window does.
pub fn set(world: &World, column: &'static str, value: i64) -> Result<()> {
    open(world)?
        .execute(&format!("UPDATE settings SET {column} = ?1 WHERE id = 1"), [value])
        .with_context(|| format!("the app's setting {column} cannot be changed"))?;
    Ok(())
}

/// The variables that the app puts over its own environment for the server
/// (`app/server/server.go`). A database that cannot be read overrides nothing.
pub fn overrides(world: &World) -> Vec<(&'static str, String)> {
    let mut variables = Vec::new();
    let row = open(world).and_then(|connection| {
        Ok(connection.query_row(
            "SELECT expose, browser, models, context_length, airplane_mode FROM settings WHERE id = 1",
            [],
            |row| {
                Ok((
                    row.get::<_, bool>(0)?,
                    row.get::<_, bool>(1)?,
                    row.get::<_, String>(2)?,
                    row.get::<_, i64>(3)?,
                    row.get::<_, bool>(4)?,
                ))
            },
        )?)
    });
    let (expose, browser, models, context, airplane) = row.unwrap_or((false, false, String::new(), 0, false));
    if expose {
        variables.push(("OLLAMA_HOST", "0.0.0.0".to_owned()));
    }
    if browser {
        variables.push(("OLLAMA_ORIGINS", "*".to_owned()));
    }
    if !models.is_empty() && std::path::Path::new(&models).exists() {
        variables.push(("OLLAMA_MODELS", models));
    }
    if context > 0 {
        variables.push(("OLLAMA_CONTEXT_LENGTH", context.to_string()));
    }
    variables.push(("OLLAMA_NO_CLOUD", i32::from(airplane).to_string()));
    variables
}

/// Whether the app puts updates in place by itself. Where that cannot be read, it does not.
pub fn updates_itself(world: &World) -> bool {
    let asked = open(world).and_then(|connection| {
        Ok(connection.query_row("SELECT auto_update_enabled FROM settings WHERE id = 1", [], |row| row.get(0))?)
    });
    asked.unwrap_or(false)
}

fn open(world: &World) -> Result<Connection> {
    let path = file(world);
    let connection = Connection::open(&path).with_context(|| format!("{} cannot be opened", path.display()))?;
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.pragma_update(None, "synchronous", "NORMAL")?;
    connection.busy_timeout(std::time::Duration::from_secs(5))?;
    Ok(connection)
}

const TABLES: &str = "
BEGIN;
CREATE TABLE IF NOT EXISTS settings (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    device_id TEXT NOT NULL DEFAULT '',
    has_completed_first_run BOOLEAN NOT NULL DEFAULT 0,
    expose BOOLEAN NOT NULL DEFAULT 0,
    survey BOOLEAN NOT NULL DEFAULT TRUE,
    browser BOOLEAN NOT NULL DEFAULT 0,
    models TEXT NOT NULL DEFAULT '',
    agent BOOLEAN NOT NULL DEFAULT 0,
    tools BOOLEAN NOT NULL DEFAULT 0,
    working_dir TEXT NOT NULL DEFAULT '',
    context_length INTEGER NOT NULL DEFAULT 0,
    window_width INTEGER NOT NULL DEFAULT 0,
    window_height INTEGER NOT NULL DEFAULT 0,
    config_migrated BOOLEAN NOT NULL DEFAULT 0,
    airplane_mode BOOLEAN NOT NULL DEFAULT 0,
    turbo_enabled BOOLEAN NOT NULL DEFAULT 0,
    websearch_enabled BOOLEAN NOT NULL DEFAULT 0,
    selected_model TEXT NOT NULL DEFAULT '',
    sidebar_open BOOLEAN NOT NULL DEFAULT 0,
    last_home_view TEXT NOT NULL DEFAULT 'launch',
    think_enabled BOOLEAN NOT NULL DEFAULT 0,
    think_level TEXT NOT NULL DEFAULT '',
    cloud_setting_migrated BOOLEAN NOT NULL DEFAULT 0,
    remote TEXT NOT NULL DEFAULT '',
    auto_update_enabled BOOLEAN NOT NULL DEFAULT 1,
    schema_version INTEGER NOT NULL DEFAULT 16
);
INSERT OR IGNORE INTO settings (id) VALUES (1);
CREATE TABLE IF NOT EXISTS chats (
    id TEXT PRIMARY KEY,
    title TEXT NOT NULL DEFAULT '',
    created_at TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP,
    browser_state TEXT
);
CREATE TABLE IF NOT EXISTS messages (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    chat_id TEXT NOT NULL REFERENCES chats(id) ON DELETE CASCADE,
    role TEXT NOT NULL,
    content TEXT NOT NULL DEFAULT '',
    thinking TEXT NOT NULL DEFAULT '',
    stream BOOLEAN NOT NULL DEFAULT 0,
    model_name TEXT,
    created_at TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP,
    updated_at TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP,
    tool_result TEXT
);
CREATE INDEX IF NOT EXISTS idx_messages_chat_id ON messages(chat_id);
COMMIT;
";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_form_follows_the_version() {
        assert_eq!(form("0.22.1", None), 16);
        assert_eq!(form("0.24.0", None), 16);
        assert_eq!(form("0.33.0-rc2", None), 18);
        assert_eq!(form("0.24.0", Some(Flaw::NewerDatabase)), FORM_TO_COME);
    }
}
